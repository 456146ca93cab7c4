//! What a cluster and its nodes are to be, in words that no Talos version changes.
//!
//! A renderer turns these into the documents of one contract. Everything is checked when it is put into a type here, or by
//! [`crate::check_cluster`] when it takes more than one value to see what is wrong.

use crate::contract::{KubernetesVersion, TalosVersion};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// What all nodes of a cluster share.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterIntent {
    pub name: String,
    /// Where the Kubernetes API is reached.
    pub endpoint: Endpoint,
    pub talos: TalosVersion,
    pub kubernetes: KubernetesVersion,
    pub pod_networks: Vec<Cidr>,
    pub service_networks: Vec<Cidr>,
    pub dns_domain: String,
    pub cni: Cni,
    pub kube_proxy: bool,
    /// The port of KubePrism, the API server's local stand-in on every node. `None`: off.
    pub kube_prism_port: Option<u16>,
    /// The addresses of all control planes: each goes into both lists of certificate names.
    pub control_planes: Vec<IpAddr>,
    /// Further names and addresses by which the Talos API and the Kubernetes API are reached: load balancers, NAT.
    pub extra_names: Vec<String>,
    /// The address that control planes share, when Talos is to hold it.
    pub vip: Option<IpAddr>,
    /// Whether nodes find each other by the discovery service.
    pub discovery: bool,
    /// Ordinary pods on control planes: for clusters without workers.
    pub schedule_on_control_planes: bool,
    /// Nodes wait for a cloud controller manager.
    pub external_cloud_provider: bool,
    pub time_servers: Vec<String>,
    pub nameservers: Vec<IpAddr>,
    /// By registry host; `*` is every registry.
    pub registry_mirrors: BTreeMap<String, Mirror>,
    pub installer: Installer,
}

/// What one node is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeIntent {
    pub role: Role,
    pub hostname: String,
    /// By which the node is reached from here; may be a NAT address that it does not know itself.
    pub address: Option<IpAddr>,
    /// `None` for images that are installed already.
    pub install_disk: Option<InstallDisk>,
    /// Wipe the disk before installing.
    pub wipe: bool,
    pub links: Vec<Link>,
    /// On which link the shared address is held. Needed on control planes when the cluster has one.
    pub vip_link: Option<LinkName>,
    /// Addresses on `lo`: those of a load balancer that passes packets through unchanged.
    pub loopback: Vec<IpAddr>,
    /// The networks whose addresses are the node's own, for etcd and kubelet. Empty: Talos chooses.
    pub node_networks: Vec<Cidr>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Key to `value:Effect`.
    pub taints: BTreeMap<String, String>,
    pub extra_disks: Vec<ExtraDisk>,
    /// Directories of the node that pods may mount volumes below, such as `/var/lib/longhorn`.
    pub kubelet_mounts: Vec<String>,
    pub kubelet_args: BTreeMap<String, String>,
    /// Pods that the kubelet runs without an API server.
    pub static_pods: Vec<Value>,
    pub sysctls: BTreeMap<String, String>,
    pub kernel_modules: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    ControlPlane,
    Worker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cni {
    /// Somebody else installs one.
    None,
    /// Talos' own default.
    Flannel,
}

/// The image that installs and upgrades a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installer {
    /// Talos' plain one.
    Stock,
    /// That of an image factory, for a schematic.
    Factory { host: String, schematic: String, secure_boot: bool },
    /// Any other.
    Image(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallDisk {
    Path(String),
    /// Fields of Talos' disk selector, such as `size` to `>= 100GB`.
    Selector(BTreeMap<String, String>),
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: LinkName,
    pub dhcp: bool,
    /// Static addresses with their prefix lengths.
    pub addresses: Vec<Cidr>,
    pub routes: Vec<Route>,
    pub mtu: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkName {
    Name(String),
    /// Of whatever name, with this hardware address.
    Mac(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `None`: the default route.
    pub network: Option<Cidr>,
    pub gateway: IpAddr,
}

/// A disk beside the system's, mounted at `/var/mnt/<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraDisk {
    /// Letters, digits and dashes, 34 at most.
    pub name: String,
    /// `/dev/sdb`, or a stable name below `/dev/disk/`.
    pub device: String,
    /// Whether pods may mount volumes below it, as Longhorn does.
    pub kubelet_mount: bool,
}

/// Where else to pull a registry's images from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirror {
    pub endpoints: Vec<String>,
    /// The mirror's path is the whole path.
    pub override_path: bool,
    /// Never ask the registry itself.
    pub skip_fallback: bool,
}

/// Where the Kubernetes API is reached: `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// An address with a prefix length: a network, or an address in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    #[error("the endpoint {text:?} must have the form https://host:port{hint}")]
    Endpoint { text: String, hint: String },
    #[error("{text:?} is not an address with a prefix length, such as 10.0.0.0/24")]
    Cidr { text: String },
}

/// The port of the Kubernetes API when none is named.
pub const API_PORT: u16 = 6443;
/// KubePrism's usual port.
pub const KUBE_PRISM_PORT: u16 = 7445;
/// Where user volumes are mounted.
pub(crate) const VOLUMES: &str = "/var/mnt";

// === impl ClusterIntent ===

impl ClusterIntent {
    /// A cluster with our defaults: no CNI and no kube-proxy (Cilium brings both), KubePrism and discovery on.
    pub fn new(name: impl Into<String>, endpoint: Endpoint, talos: TalosVersion) -> ClusterIntent {
        let v6 = endpoint.host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
        let (pods, services) = if v6 {
            (cidr(0xfc00, 0x10, 56), cidr(0xfc00, 0x20, 112))
        } else {
            (cidr4(10, 244, 16), cidr4(10, 96, 12))
        };
        ClusterIntent {
            name: name.into(),
            endpoint,
            kubernetes: talos.contract().default_kubernetes(),
            talos,
            pod_networks: vec![pods],
            service_networks: vec![services],
            dns_domain: "cluster.local".into(),
            cni: Cni::None,
            kube_proxy: false,
            kube_prism_port: Some(KUBE_PRISM_PORT),
            control_planes: Vec::new(),
            extra_names: Vec::new(),
            vip: None,
            discovery: true,
            schedule_on_control_planes: false,
            external_cloud_provider: false,
            time_servers: Vec::new(),
            nameservers: Vec::new(),
            registry_mirrors: BTreeMap::new(),
            installer: Installer::Stock,
        }
    }

    /// Every name and address by which a control plane is reached: endpoint, control planes, shared address, others.
    pub fn names(&self) -> Vec<String> {
        let addresses = self.control_planes.iter().chain(&self.vip).map(ToString::to_string);
        let mut names = Vec::new();
        for name in
            [self.endpoint.host.clone()].into_iter().chain(addresses).chain(self.extra_names.iter().cloned())
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn cidr4(first: u8, second: u8, bits: u8) -> Cidr {
    Cidr { address: IpAddr::from([first, second, 0, 0]), bits }
}

fn cidr(first: u16, third: u16, bits: u8) -> Cidr {
    Cidr { address: IpAddr::from([first, 0xdb8, third, 0, 0, 0, 0, 0]), bits }
}

// === impl NodeIntent ===

impl NodeIntent {
    pub fn new(role: Role, hostname: impl Into<String>) -> NodeIntent {
        NodeIntent {
            role,
            hostname: hostname.into(),
            address: None,
            install_disk: None,
            wipe: false,
            links: Vec::new(),
            vip_link: None,
            loopback: Vec::new(),
            node_networks: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: BTreeMap::new(),
            extra_disks: Vec::new(),
            kubelet_mounts: Vec::new(),
            kubelet_args: BTreeMap::new(),
            static_pods: Vec::new(),
            sysctls: BTreeMap::new(),
            kernel_modules: Vec::new(),
        }
    }

    /// The address that it is reached by and those on its links.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.address.into_iter().collect();
        for address in self.links.iter().flat_map(|link| &link.addresses).map(|cidr| cidr.address) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::ControlPlane => "controlplane",
            Role::Worker => "worker",
        }
    }
}

impl Installer {
    /// The image reference for a version.
    pub fn image(&self, talos: &TalosVersion) -> String {
        match self {
            Installer::Stock => format!("ghcr.io/siderolabs/installer:{talos}"),
            Installer::Factory { host, schematic, secure_boot } => {
                let kind = if *secure_boot { "installer-secureboot" } else { "installer" };
                format!("{host}/{kind}/{schematic}:{talos}")
            }
            Installer::Image(image) => image.clone(),
        }
    }

    /// Of `factory.talos.dev`.
    pub fn factory(schematic: impl Into<String>) -> Installer {
        Installer::Factory {
            host: "factory.talos.dev".into(),
            schematic: schematic.into(),
            secure_boot: false,
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub fn new(host: impl Into<String>, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port }
    }

    /// Scheme, host and port must all be there: each has been forgotten often enough.
    pub fn parse(text: &str) -> Result<Endpoint, IntentError> {
        let error = |hint: &str| IntentError::Endpoint { text: text.to_owned(), hint: hint.to_owned() };
        let Some(rest) = text.strip_prefix("https://") else {
            let hint = match text.split_once("://") {
                Some(_) => "; the Kubernetes API speaks https only".to_owned(),
                None => format!(": did you mean https://{}?", with_port(text)),
            };
            return Err(error(&hint));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(error(", with nothing after the port"));
        }
        let Some((host, port)) =
            rest.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'))
        else {
            return Err(error(&format!(": did you mean https://{}?", with_port(rest))));
        };
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| error(": the port is not a number"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let good = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => host.parse::<std::net::Ipv4Addr>().is_ok() || is_dns_name(host),
        };
        if !good {
            return Err(error(": the host is neither a name nor an address"));
        }
        Ok(Endpoint { host: bare.unwrap_or(host).to_owned(), port })
    }

    /// Without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "https://{}:{}", self.host, self.port)
        }
    }
}

fn with_port(host: &str) -> String {
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{API_PORT}"),
        Err(_) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            host.to_owned()
        }
        Err(_) => format!("{host}:{API_PORT}"),
    }
}

/// A name by DNS' own rules, not all numbers (that would be a mistyped address).
pub(crate) fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(good)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253
        && name.split('.').all(label)
        && !name.split('.').next_back().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()))
}

// === impl Cidr ===

impl Cidr {
    pub fn new(address: IpAddr, bits: u8) -> Option<Cidr> {
        (bits <= width(address)).then_some(Cidr { address, bits })
    }

    /// `10.0.0.1/24`: host bits are kept.
    pub fn parse(text: &str) -> Result<Cidr, IntentError> {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            // `/+8` and `/08` parse as numbers and are no prefix lengths.
            let plain = bits.chars().all(|c| c.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
            Cidr::new(address.parse().ok()?, bits.parse().ok().filter(|_| plain)?)
        });
        parsed.ok_or_else(|| IntentError::Cidr { text: text.to_owned() })
    }

    /// The network of one address.
    pub fn host(address: IpAddr) -> Cidr {
        Cidr { address, bits: width(address) }
    }

    pub fn address(self) -> IpAddr {
        self.address
    }

    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The same network without host bits.
    pub fn network(self) -> Cidr {
        Cidr { address: masked(self.address, self.bits), bits: self.bits }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && masked(address, self.bits) == masked(self.address, self.bits)
    }

    pub fn overlaps(self, other: Cidr) -> bool {
        let bits = self.bits.min(other.bits);
        self.address.is_ipv4() == other.address.is_ipv4()
            && masked(self.address, bits) == masked(other.address, bits)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl std::str::FromStr for Cidr {
    type Err = IntentError;

    fn from_str(text: &str) -> Result<Cidr, IntentError> {
        Cidr::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_slips_get_a_hint() {
        for good in ["https://10.0.0.1:6443", "https://api.example.com:443", "https://[fd00::1]:6443"] {
            assert_eq!(Endpoint::parse(good).unwrap().to_string(), good);
        }
        assert_eq!(Endpoint::parse("https://[fd00::1]:6443").unwrap().host(), "fd00::1");
        for (bad, hint) in [
            ("10.0.0.1", "did you mean https://10.0.0.1:6443?"),
            ("10.0.0.1:6443", "did you mean https://10.0.0.1:6443?"),
            ("fd00::1", "did you mean https://[fd00::1]:6443?"),
            ("https://api.example.com", "did you mean https://api.example.com:6443?"),
            ("https://[fd00::1]", "did you mean https://[fd00::1]:6443?"),
            ("http://10.0.0.1:6443", "https only"),
            ("https://a:6443/x", "nothing after the port"),
            ("https://a:0", "not a number"),
            ("https://a_b:6443", "neither a name nor an address"),
            ("https://10.0.0.256:6443", "neither a name nor an address"),
            ("https://:6443", "neither a name nor an address"),
        ] {
            let error = Endpoint::parse(bad).unwrap_err().to_string();
            assert!(error.contains(hint), "{bad}: {error}");
        }
    }

    #[test]
    fn networks_hold_what_they_should() {
        let net = |text| Cidr::parse(text).unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(net("10.244.0.0/16").contains(ip("10.244.255.1")));
        assert!(!net("10.244.0.0/16").contains(ip("10.245.0.0")));
        assert!(net("0.0.0.0/0").contains(ip("1.2.3.4")) && !net("0.0.0.0/0").contains(ip("::1")));
        assert!(net("::/0").contains(ip("fd00::1")));
        assert!(
            net("10.0.0.0/8").overlaps(net("10.96.0.0/12"))
                && net("10.96.0.0/12").overlaps(net("10.0.0.0/8"))
        );
        assert!(!net("10.0.0.0/16").overlaps(net("10.1.0.0/16")));
        assert_eq!(net("10.1.2.3/8").network(), net("10.0.0.0/8"));
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/08", "::/129", "a/8", "10.0.0.0/"]
        {
            assert!(Cidr::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_listed_once() {
        let endpoint = Endpoint::parse("https://10.0.0.9:6443").unwrap();
        let mut cluster = ClusterIntent::new("c", endpoint, TalosVersion::parse("1.9.5").unwrap());
        cluster.control_planes = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        cluster.vip = Some("10.0.0.9".parse().unwrap());
        cluster.extra_names = vec!["api.example.com".into(), "10.0.0.1".into()];
        assert_eq!(cluster.names(), ["10.0.0.9", "10.0.0.1", "10.0.0.2", "api.example.com"]);
        assert_eq!(cluster.pod_networks[0].to_string(), "10.244.0.0/16");
        assert_eq!(cluster.service_networks[0].to_string(), "10.96.0.0/12");
        let six = Endpoint::parse("https://[fd00::1]:6443").unwrap();
        let six = ClusterIntent::new("c", six, TalosVersion::parse("1.9.5").unwrap());
        assert_eq!(six.pod_networks[0].to_string(), "fc00:db8:10::/56");
        assert_eq!(six.service_networks[0].to_string(), "fc00:db8:20::/112");
    }

    #[test]
    fn the_installer_is_named() {
        let talos = TalosVersion::parse("v1.9.5").unwrap();
        assert_eq!(Installer::Stock.image(&talos), "ghcr.io/siderolabs/installer:v1.9.5");
        assert_eq!(Installer::factory("abc").image(&talos), "factory.talos.dev/installer/abc:v1.9.5");
        let secure =
            Installer::Factory { host: "f.example".into(), schematic: "abc".into(), secure_boot: true };
        assert_eq!(secure.image(&talos), "f.example/installer-secureboot/abc:v1.9.5");
    }
}
