//! What Kubernetes makes of one machine: read from its state and from the configuration in force. Pure.

use crate::config::{KeyPair, NodeConfig};
use crate::machine::{Etcd, Machine, Role, Stage};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;

pub(super) const API_PORT: u16 = 6443;
const DEFAULT_SERVICE_NETWORK: &str = "10.96.0.0/12";

/// A configured machine, as far as its cluster is concerned.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) address: IpAddr,
    pub(super) hostname: String,
    pub(super) role: Role,
    pub(super) version: String,
    pub(super) config: Arc<NodeConfig>,
    /// Changes with every boot.
    pub(super) boot: u32,
    /// No power: nothing says goodbye.
    pub(super) off: bool,
    pub(super) kubelet: bool,
    /// The etcd cluster whose data are on the disk.
    pub(super) etcd_data: Option<u64>,
    pub(super) etcd_runs: bool,
    pub(super) static_pods: bool,
}

impl Facts {
    /// `None` for a machine that no configuration makes part of a cluster.
    pub(super) fn of(address: IpAddr, machine: &Machine) -> Option<Self> {
        let config = machine.config().filter(|config| config.complete)?;
        let runs = matches!(machine.stage, Stage::Booting | Stage::Running);
        Some(Self {
            address,
            hostname: machine.hostname().to_string(),
            role: config.role,
            version: machine.version.clone(),
            config: config.clone(),
            boot: machine.boot,
            off: machine.stage == Stage::Off,
            kubelet: runs && machine.run.kubelet,
            etcd_data: machine.disk.etcd.map(|member| member.cluster),
            etcd_runs: runs && matches!(machine.run.etcd, Etcd::Running { .. }),
            static_pods: runs && machine.run.static_pods,
        })
    }

    /// Whether nothing has changed: most of what happens to a machine does not concern its cluster.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let parts = |facts: &Self| {
            (facts.boot, facts.off, facts.kubelet, facts.etcd_data, facts.etcd_runs, facts.static_pods)
        };
        Arc::ptr_eq(&self.config, &other.config)
            && parts(self) == parts(other)
            && self.hostname == other.hostname
            && self.version == other.version
    }

    pub(super) fn is_control_plane(&self) -> bool {
        self.role == Role::ControlPlane
    }

    /// Kubernetes' certificate authority: machines that share it are of one cluster.
    pub(super) fn kubernetes_ca(&self) -> &KeyPair {
        &self.config.parts.kubernetes_ca
    }

    fn text(&self, pointer: &str) -> &str {
        self.config.value(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn texts(&self, pointer: &str) -> Vec<String> {
        let list = self.config.value(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(ToString::to_string).collect()
    }

    fn flag(&self, pointer: &str) -> bool {
        self.config.value(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn bootstrap_token(&self) -> &str {
        self.text("/cluster/token")
    }

    pub(super) fn kube_prism(&self) -> bool {
        self.flag("/machine/features/kubePrism/enabled")
    }

    pub(super) fn discovery(&self) -> bool {
        self.config.parts.discovery
    }

    /// Host and port of the cluster's endpoint.
    pub(super) fn endpoint(&self) -> Option<(String, u16)> {
        let rest = self.config.parts.endpoint.strip_prefix("https://")?;
        let authority = rest.split('/').next()?;
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, 443),
        };
        Some((host.trim_start_matches('[').trim_end_matches(']').to_string(), port))
    }

    /// The names in the certificate of the API server on this machine, as Talos gathers them.
    pub(super) fn names(&self) -> Vec<String> {
        let domain = match self.text("/cluster/network/dnsDomain") {
            "" => "cluster.local",
            domain => domain,
        };
        let mut names: Vec<String> =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"]
                .map(ToString::to_string)
                .into();
        names.push(format!("kubernetes.default.svc.{domain}"));
        names.push(self.hostname.to_ascii_lowercase());
        names.push(self.address.to_string());
        names.extend(self.texts("/cluster/apiServer/certSANs"));
        names.extend(self.endpoint().map(|(host, _)| host));
        let mut networks = self.texts("/cluster/network/serviceSubnets");
        if networks.is_empty() {
            networks.push(DEFAULT_SERVICE_NETWORK.to_string());
        }
        names.extend(networks.iter().filter_map(|network| first_address(network)));
        names.sort();
        names.dedup();
        names
    }

    /// Addresses that Talos itself holds on one of the control planes.
    pub(super) fn shared_addresses(&self) -> Vec<IpAddr> {
        if !self.is_control_plane() {
            return Vec::new();
        }
        let interfaces = self.config.value("/machine/network/interfaces").and_then(Value::as_array);
        let mut found = Vec::new();
        for interface in interfaces.into_iter().flatten() {
            found.push(interface.pointer("/vip/ip"));
            let vlans = interface.get("vlans").and_then(Value::as_array);
            found.extend(vlans.into_iter().flatten().map(|vlan| vlan.pointer("/vip/ip")));
        }
        found.extend(self.config.documents_of("Layer2VIPConfig").map(|document| document.get("name")));
        let parsed = found.into_iter().flatten().filter_map(Value::as_str).filter_map(|ip| ip.parse().ok());
        let mut addresses: Vec<IpAddr> = parsed.collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// A map of texts, such as `nodeLabels`.
    pub(super) fn map(&self, pointer: &str) -> Vec<(String, String)> {
        let map = self.config.value(pointer).and_then(Value::as_object);
        let pairs = map.into_iter().flatten();
        pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string()))).collect()
    }

    pub(super) fn schedules_on_control_planes(&self) -> bool {
        self.flag("/cluster/allowSchedulingOnControlPlanes")
    }

    pub(super) fn kube_proxy(&self) -> bool {
        !self.flag("/cluster/proxy/disabled")
    }

    /// The version of the kubelet: the tag of its image.
    pub(super) fn kubernetes_version(&self) -> String {
        let tag = self.text("/machine/kubelet/image").rsplit_once(':').map(|(_, tag)| tag.to_string());
        tag.unwrap_or_else(|| "v1.32.0".to_string())
    }

    /// Pods of the configuration, which run without being asked for.
    pub(super) fn own_pods(&self) -> Vec<Value> {
        self.config.value("/machine/pods").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// Whether the API server answers those without credentials at all. Talos' default is no, also for its health.
    pub(super) fn lets_anonymous_in(&self) -> bool {
        self.text("/cluster/apiServer/extraArgs/anonymous-auth") == "true"
    }

    /// What PodSecurity enforces where a namespace says nothing, and where it says nothing at all.
    pub(super) fn pod_security(&self) -> PodSecurity {
        let plugins = self.config.value("/cluster/apiServer/admissionControl").and_then(Value::as_array);
        let plugin = plugins.into_iter().flatten().find(|plugin| plugin["name"] == "PodSecurity");
        let Some(configuration) = plugin.and_then(|plugin| plugin.get("configuration")) else {
            return PodSecurity::default();
        };
        let enforce = configuration.pointer("/defaults/enforce").and_then(Value::as_str);
        let exempt = configuration.pointer("/exemptions/namespaces").and_then(Value::as_array);
        PodSecurity {
            enforce: enforce.unwrap_or("privileged").to_string(),
            exempt: exempt.into_iter().flatten().filter_map(Value::as_str).map(ToString::to_string).collect(),
        }
    }
}

/// How a cluster's API server is set up to judge pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodSecurity {
    pub(super) enforce: String,
    pub(super) exempt: Vec<String>,
}

/// Kubernetes' own default.
impl Default for PodSecurity {
    fn default() -> Self {
        Self { enforce: "privileged".to_string(), exempt: Vec::new() }
    }
}

/// The first address of a network: that of the service `kubernetes`.
fn first_address(network: &str) -> Option<String> {
    let address: IpAddr = network.split('/').next()?.parse().ok()?;
    Some(match address {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) + 1).to_be_bytes()).to_string(),
        IpAddr::V6(address) => IpAddr::from((u128::from(address) + 1).to_be_bytes()).to_string(),
    })
}
