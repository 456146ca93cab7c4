//! A Proxmox site as data: what is there before the first call. From a file, from a user's own names, or the built-in example.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

const GIB: u64 = 1 << 30;
/// The storage that images and snippets are in when a site says nothing else.
const FILES: &str = "local";

/// Everything that a simulated Proxmox VE begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxmoxSite {
    /// Names of the endpoint, beside its address.
    pub names: Vec<String>,
    /// Address of the endpoint; port 8006.
    pub address: IpAddr,
    pub port: u16,
    pub nodes: Vec<SiteNode>,
    pub storages: Vec<SiteStorage>,
    pub templates: Vec<SiteTemplate>,
    pub users: Vec<SiteUser>,
    /// Roles beside the built-in ones: name and privileges.
    pub roles: BTreeMap<String, Vec<String>>,
    pub acls: Vec<SiteAcl>,
    pub network: SiteNetwork,
    /// The internet: images that `download-url` can fetch.
    pub images: Vec<SiteImage>,
    /// Virtual machines of others.
    pub foreign: Vec<SiteVm>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteNode {
    pub name: String,
    #[serde(default = "cpus")]
    pub cpus: u32,
    /// In bytes.
    #[serde(default = "memory")]
    pub memory: u64,
    #[serde(default = "yes")]
    pub online: bool,
}

/// A storage. One that is not shared is there once for each node, each with the whole size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteStorage {
    pub name: String,
    /// `dir`, `nfs`, `lvm`, `lvmthin`, `zfspool`, `rbd`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `images`, `iso`, `import`, `vztmpl`, `snippets`, `backup`, `rootdir`.
    pub content: Vec<String>,
    /// In bytes.
    pub total: u64,
    /// Taken by what is not in the list of volumes.
    #[serde(default)]
    pub used: u64,
    #[serde(default)]
    pub shared: bool,
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Nodes that have it; all when empty.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// So many copies can be made on it at once, and one more fails for want of the storage's lock; no limit without.
    #[serde(default)]
    pub copies: Option<usize>,
}

/// A template with Talos on its disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteTemplate {
    pub vmid: u32,
    pub name: String,
    pub node: String,
    pub storage: String,
    /// In bytes.
    #[serde(default = "template_disk")]
    pub disk: u64,
    #[serde(default = "talos")]
    pub talos_version: String,
    /// The guest agent is in the image and switched on in the configuration.
    #[serde(default = "yes")]
    pub agent: bool,
    /// A drive that cloud-init settings reach the machine by.
    #[serde(default = "yes")]
    pub cloud_init: bool,
    #[serde(default)]
    pub tags: String,
}

/// A user with a password, tokens, or both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteUser {
    /// With its realm: `root@pam`.
    pub id: String,
    #[serde(default)]
    pub password: Option<Secret>,
    #[serde(default)]
    pub tokens: Vec<SiteToken>,
}

/// An API token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteToken {
    /// What follows the `!`.
    pub id: String,
    pub secret: Secret,
    /// Has only the privileges that both it and its user have.
    #[serde(default)]
    pub privilege_separation: bool,
}

/// Who may do what where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteAcl {
    pub path: String,
    /// A user or a token.
    pub who: String,
    pub role: String,
    #[serde(default = "yes")]
    pub propagate: bool,
}

/// The one network of the machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteNetwork {
    pub bridge: String,
    pub gateway: IpAddr,
    pub prefix: u8,
    /// First and last address of the DHCP server; none without.
    #[serde(default)]
    pub dhcp: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// A file of the internet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteImage {
    pub url: String,
    /// In bytes.
    pub size: u64,
    pub sha256: String,
    /// The version of Talos on it, if it is a Talos image.
    #[serde(default)]
    pub talos_version: Option<String>,
    #[serde(default = "yes")]
    pub agent: bool,
}

/// A virtual machine that is there from the beginning, and nobody's business.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteVm {
    pub vmid: u32,
    pub name: String,
    pub node: String,
    #[serde(default)]
    pub running: bool,
    #[serde(default)]
    pub tags: String,
    /// Answers (with closed ports) when it runs.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Its disk, as storage and bytes.
    #[serde(default)]
    pub disk: Option<(String, u64)>,
}

/// A password or token value: never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// What is known of a site from a user's own settings.
#[derive(Debug, Clone, Default)]
pub struct SiteNames {
    /// `https://pve.example.com:8006`.
    pub endpoint: String,
    pub nodes: Vec<String>,
    pub storage: String,
    pub template_id: Option<u32>,
    pub talos_version: Option<String>,
    /// `root@pam`, or a token id `root@pam!butler`.
    pub user: String,
    pub secret: String,
    /// Any address of the machines' network; decides subnet, gateway and DHCP range.
    pub within: Option<Ipv4Addr>,
    /// Addresses that DHCP must keep away from.
    pub reserved: Vec<Ipv4Addr>,
    /// Images that will be asked for: URL and SHA-256 (empty: made up).
    pub images: Vec<(String, String)>,
}

fn yes() -> bool {
    true
}

fn cpus() -> u32 {
    32
}

fn memory() -> u64 {
    256 * GIB
}

fn template_disk() -> u64 {
    10 * GIB
}

fn talos() -> String {
    "v1.9.2".to_string()
}

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub(crate) fn is(&self, value: &str) -> bool {
        self.0 == value
    }

    /// The value, for the one who made it up.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

impl Default for ProxmoxSite {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            address: IpAddr::V4(Ipv4Addr::new(10, 40, 0, 5)),
            port: 8006,
            nodes: Vec::new(),
            storages: Vec::new(),
            templates: Vec::new(),
            users: Vec::new(),
            roles: BTreeMap::new(),
            acls: Vec::new(),
            network: SiteNetwork::around(Ipv4Addr::new(10, 40, 0, 5)),
            images: Vec::new(),
            foreign: Vec::new(),
        }
    }
}

impl SiteNetwork {
    /// The /24 of an address: router at .1, DHCP from .100 to .199.
    fn around(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        Self {
            bridge: "vmbr0".to_string(),
            gateway: IpAddr::V4(Ipv4Addr::new(a, b, c, 1)),
            prefix: 24,
            dhcp: Some((Ipv4Addr::new(a, b, c, 100), Ipv4Addr::new(a, b, c, 199))),
        }
    }
}

impl ProxmoxSite {
    /// Three hosts, a shared storage, a Talos template, one administrator with password and token, and two machines of others.
    #[must_use]
    pub fn example() -> Self {
        let mut site = Self::for_config(&SiteNames {
            endpoint: "https://pve.example.internal:8006".to_string(),
            nodes: ["pve1", "pve2", "pve3"].map(ToString::to_string).to_vec(),
            storage: "ceph-vm".to_string(),
            template_id: Some(9000),
            user: "root@pam!butler".to_string(),
            secret: "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11".to_string(),
            ..SiteNames::default()
        });
        if let Some(user) = site.users.first_mut() {
            user.password = Some(Secret::new("rehearsal"));
        }
        let local = SiteStorage { shared: false, ..site.storage_like("local-lvm", "lvmthin", 500 * GIB) };
        site.storages.push(local);
        site.images.push(SiteImage {
            url: "https://factory.talos.dev/image/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba/v1.9.2/nocloud-amd64.qcow2".to_string(),
            size: 96 << 20,
            sha256: made_up_sha256("nocloud-amd64 v1.9.2"),
            talos_version: Some("v1.9.2".to_string()),
            agent: true,
        });
        site.foreign = vec![
            SiteVm {
                vmid: 100,
                name: "fileserver".to_string(),
                node: "pve1".to_string(),
                running: true,
                tags: "production".to_string(),
                address: Some(IpAddr::V4(Ipv4Addr::new(10, 40, 0, 20))),
                disk: Some(("local-lvm".to_string(), 64 * GIB)),
            },
            SiteVm {
                vmid: 101,
                name: "old-experiments".to_string(),
                node: "pve2".to_string(),
                running: false,
                tags: String::new(),
                address: None,
                disk: Some(("local-lvm".to_string(), 32 * GIB)),
            },
        ];
        site
    }

    /// A site that has what a user's settings name, and room for it.
    ///
    /// The storage is shared when there is more than one host: whether the user's own is can't be known from its name, and on
    /// one that is not, a clone stays on the template's host.
    #[must_use]
    pub fn for_config(names: &SiteNames) -> Self {
        let (host, port) = endpoint_parts(&names.endpoint);
        let within = names.within.unwrap_or(Ipv4Addr::new(10, 40, 0, 5));
        let mut network = SiteNetwork::around(within);
        network.dhcp = quiet_range(within, &names.reserved);
        let address = host.parse().unwrap_or_else(|_| {
            let [a, b, c, _] = within.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, 5))
        });
        let hosts = if names.nodes.is_empty() { vec!["pve1".to_string()] } else { names.nodes.clone() };
        let version = names.talos_version.clone().unwrap_or_else(talos);
        let mut site = Self {
            names: if host.parse::<IpAddr>().is_ok() { Vec::new() } else { vec![host] },
            address,
            port,
            network,
            users: vec![user_of(&names.user, &names.secret)],
            ..Self::default()
        };
        site.nodes = hosts
            .iter()
            .map(|name| SiteNode { name: name.clone(), cpus: cpus(), memory: memory(), online: true })
            .collect();
        site.storages = site.default_storages(&names.storage, hosts.len() > 1);
        site.acls = vec![SiteAcl {
            path: "/".to_string(),
            who: names.user.split('!').next().unwrap_or_default().to_string(),
            role: "Administrator".to_string(),
            propagate: true,
        }];
        site.templates = names
            .template_id
            .map(|vmid| SiteTemplate {
                vmid,
                name: format!("talos-{}", version.replace('.', "-")),
                node: hosts[0].clone(),
                storage: names.storage.clone(),
                disk: template_disk(),
                talos_version: version.clone(),
                agent: true,
                cloud_init: true,
                tags: String::new(),
            })
            .into_iter()
            .collect();
        site.images = names.images.iter().map(|(url, sum)| image_of(url, sum, &version)).collect();
        site
    }

    fn default_storages(&self, name: &str, shared: bool) -> Vec<SiteStorage> {
        let kind = match (name.contains("zfs"), shared) {
            (true, false) => "zfspool",
            (_, true) => "rbd",
            (false, false) => "lvmthin",
        };
        let files = SiteStorage {
            name: FILES.to_string(),
            kind: if shared { "nfs" } else { "dir" }.to_string(),
            content: ["iso", "import", "vztmpl", "snippets", "backup", "images"]
                .map(ToString::to_string)
                .to_vec(),
            ..self.storage_like(FILES, "dir", 200 * GIB)
        };
        let files = SiteStorage { shared, ..files };
        if name == FILES || name.is_empty() {
            return vec![files];
        }
        vec![files, SiteStorage { shared, ..self.storage_like(name, kind, 2000 * GIB) }]
    }

    fn storage_like(&self, name: &str, kind: &str, total: u64) -> SiteStorage {
        SiteStorage {
            name: name.to_string(),
            kind: kind.to_string(),
            content: vec!["images".to_string(), "rootdir".to_string()],
            total,
            used: 0,
            shared: false,
            enabled: true,
            nodes: Vec::new(),
            copies: None,
        }
    }
}

/// Host and port of a URL.
fn endpoint_parts(endpoint: &str) -> (String, u16) {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(8006)),
        // A URL without a port means 443, and a proxy in front of the API is what then answers there.
        _ => (authority, if endpoint.contains("://") { 443 } else { 8006 }),
    };
    (host.trim_matches(['[', ']']).to_string(), port)
}

fn user_of(user: &str, secret: &str) -> SiteUser {
    match user.split_once('!') {
        Some((id, token)) => SiteUser {
            id: id.to_string(),
            password: None,
            tokens: vec![SiteToken {
                id: token.to_string(),
                secret: Secret::new(secret),
                privilege_separation: false,
            }],
        },
        None => SiteUser { id: user.to_string(), password: Some(Secret::new(secret)), tokens: Vec::new() },
    }
}

fn image_of(url: &str, sum: &str, version: &str) -> SiteImage {
    // The version is a path segment in the URLs of Talos' image factory.
    let named = url.split('/').find(|part| part.starts_with("v1."));
    SiteImage {
        url: url.to_string(),
        size: 96 << 20,
        sha256: if sum.is_empty() { made_up_sha256(url) } else { sum.to_ascii_lowercase() },
        talos_version: Some(named.unwrap_or(version).to_string()),
        agent: true,
    }
}

/// A hash that a file with such a name could have.
fn made_up_sha256(name: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The longest run of addresses of the /24 that has none of the reserved ones in it.
fn quiet_range(within: Ipv4Addr, reserved: &[Ipv4Addr]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let [a, b, c, _] = within.octets();
    let free = |last: u8| !reserved.contains(&Ipv4Addr::new(a, b, c, last));
    let mut best: Option<(u8, u8)> = None;
    let mut start = None;
    for last in 50..=254_u8 {
        let open = last < 254 && free(last);
        match (open, start) {
            (true, None) => start = Some(last),
            (false, Some(first)) => {
                if best.is_none_or(|(from, to)| to - from < last - 1 - first) {
                    best = Some((first, last - 1));
                }
                start = None;
            }
            _ => {}
        }
    }
    best.map(|(from, to)| (Ipv4Addr::new(a, b, c, from), Ipv4Addr::new(a, b, c, to)))
}
