//! What only shows when all nodes are looked at together.

use super::{Problem, Severity, Source};
use crate::config::MachineConfig;
use crate::intent::{Cidr, ClusterIntent, NodeIntent, Role, is_dns_name};
use crate::render::is_mac;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What is wrong with what was asked for, before anything is rendered. The paths are those of the intent.
pub fn check_cluster(cluster: &ClusterIntent, nodes: &[NodeIntent]) -> Vec<Problem> {
    let mut found = Found { problems: Vec::new() };
    found.cluster(cluster);
    found.addresses(cluster, nodes);
    for node in nodes {
        found.node(cluster, node);
    }
    let control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane).count();
    if !nodes.is_empty() && control_planes == 0 {
        found.error("nodes", "there is no control plane");
    }
    if control_planes > 0 && control_planes.is_multiple_of(2) {
        let text =
            format!("{control_planes} control planes survive no more failures than {}", control_planes - 1);
        found.warning("nodes", text);
    }
    found.problems
}

struct Found {
    problems: Vec<Problem>,
}

impl Found {
    fn error(&mut self, path: &str, text: impl Into<String>) {
        self.problems.push(Problem::error(Source::Butler, "", path, text));
    }

    fn warning(&mut self, path: &str, text: impl Into<String>) {
        let problem = Problem::error(Source::Butler, "", path, text);
        self.problems.push(Problem { severity: Severity::Warning, ..problem });
    }

    fn cluster(&mut self, cluster: &ClusterIntent) {
        if cluster.name.is_empty() {
            self.error("cluster.name", "must not be empty");
        }
        let contract = cluster.talos.contract();
        if !contract.supports(&cluster.kubernetes) {
            let (first, last) = contract.kubernetes_minors();
            let text =
                format!("Talos {contract} runs Kubernetes 1.{first} to 1.{last}, not {}", cluster.kubernetes);
            self.error("cluster.kubernetes", text);
        }
        let pods = cluster.pod_networks.iter().map(|network| ("pod network", *network));
        let services = cluster.service_networks.iter().map(|network| ("service network", *network));
        let networks: Vec<(&str, Cidr)> = pods.chain(services).collect();
        for (index, (what, network)) in networks.iter().enumerate() {
            if network.network() != *network {
                let text = format!("the {what} {network} has host bits: did you mean {}?", network.network());
                self.error("cluster.networks", text);
            }
            if let Some((other, with)) = networks[..index].iter().find(|(_, other)| other.overlaps(*network))
            {
                self.error("cluster.networks", format!("the {what} {network} overlaps the {other} {with}"));
            }
        }
        for list in [&cluster.pod_networks, &cluster.service_networks] {
            if list.is_empty() {
                self.error("cluster.networks", "pods and services need a network each");
            }
        }
        if let crate::intent::Installer::Factory { schematic, .. } = &cluster.installer
            && (schematic.len() != 64 || !schematic.chars().all(|c| c.is_ascii_hexdigit()))
        {
            self.error(
                "cluster.installer",
                format!("{schematic:?} is not a schematic: 64 hexadecimal digits"),
            );
        }
        if cluster.vip.is_some()
            && cluster.vip.map(|vip| vip.to_string()).as_deref() != Some(cluster.endpoint.host())
        {
            let text = "is not the endpoint's host: nothing uses it unless a name leads to it";
            self.warning("cluster.vip", text);
        }
    }

    /// Everything that has an address: unique, and outside of the pod and service networks.
    fn addresses(&mut self, cluster: &ClusterIntent, nodes: &[NodeIntent]) {
        let mut all: Vec<(String, IpAddr)> = Vec::new();
        if let Some(vip) = cluster.vip {
            all.push(("cluster.vip".into(), vip));
        }
        for node in nodes {
            let path = format!("nodes[{}].address", node.hostname);
            all.extend(node.addresses().into_iter().map(|address| (path.clone(), address)));
        }
        for (index, (path, address)) in all.iter().enumerate() {
            if let Some((other, _)) = all[..index].iter().find(|(_, other)| other == address) {
                self.error(path, format!("{address} is also {other}"));
            }
        }
        let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
        for node in nodes {
            if seen.insert(&node.hostname, ()).is_some() {
                let text = "the host name is there twice, and etcd knows members by it";
                self.error(&format!("nodes[{}].hostname", node.hostname), text);
            }
        }
        if let Ok(address) = cluster.endpoint.host().parse::<IpAddr>() {
            all.push(("cluster.endpoint".into(), address));
            let worker = nodes.iter().find(|n| n.role == Role::Worker && n.addresses().contains(&address));
            if let Some(node) = worker {
                self.error("cluster.endpoint", format!("{address} is the worker {}", node.hostname));
            }
        }
        all.extend(
            cluster.control_planes.iter().map(|address| ("cluster.control_planes".to_owned(), *address)),
        );
        for (path, address) in all {
            for network in cluster.pod_networks.iter().chain(&cluster.service_networks) {
                if network.contains(address) {
                    self.error(
                        &path,
                        format!("{address} lies inside {network}, a network of pods or services"),
                    );
                }
            }
        }
    }

    fn node(&mut self, cluster: &ClusterIntent, node: &NodeIntent) {
        let path = format!("nodes[{}]", node.hostname);
        if !is_dns_name(&node.hostname) || node.hostname.chars().any(|c| c.is_ascii_uppercase()) {
            self.error(&format!("{path}.hostname"), "is not a host name of small letters, digits and dashes");
        }
        match node.role {
            Role::ControlPlane => {
                if cluster.vip.is_some() && node.vip_link.is_none() {
                    self.error(
                        &format!("{path}.vip_link"),
                        "must name the link that holds the shared address",
                    );
                }
                if !node.loopback.is_empty() && !cluster.discovery {
                    let text = "with an address on lo, discovery must be on: the endpoint leads a control plane to itself";
                    self.error(&format!("{path}.loopback"), text);
                }
                if !node.loopback.is_empty() && node.node_networks.is_empty() {
                    let text = "with an address on lo, node_networks must name the node's own network";
                    self.error(&format!("{path}.loopback"), text);
                }
                for address in node.addresses().into_iter().filter(|a| !cluster.control_planes.contains(a)) {
                    if Some(address) == node.address {
                        let text =
                            format!("{address} is missing from the names of the API server's certificate");
                        self.error("cluster.control_planes", text);
                    }
                }
            }
            Role::Worker => {
                let restricted = |key: &str| key.starts_with("node-role.kubernetes.io/");
                for key in node.labels.keys().filter(|key| restricted(key)) {
                    self.error(&format!("{path}.labels[{key}]"), "a worker may not give itself this label");
                }
                if !node.taints.is_empty() {
                    self.error(&format!("{path}.taints"), "a worker may not give itself taints");
                }
            }
        }
        for link in &node.links {
            if let crate::intent::LinkName::Mac(mac) = &link.name
                && !is_mac(mac)
            {
                self.error(&format!("{path}.links"), format!("{mac:?} is not a hardware address"));
            }
            if !link.dhcp && link.addresses.is_empty() && link.mtu.is_none() {
                self.warning(&format!("{path}.links"), "a link has neither DHCP nor addresses");
            }
        }
    }
}

/// What several configs of one cluster say against each other: (index of the config, problem).
pub fn check_together(configs: &[&MachineConfig]) -> Vec<(usize, Problem)> {
    let mut found = Vec::new();
    unique(configs, &mut found, "host name", |config| {
        let old = config
            .text("machine.network.hostname")
            .map(|name| ("machine.network.hostname".to_owned(), name.to_owned()));
        let new = config.document("HostnameConfig", None).and_then(|d| d["hostname"].as_str());
        old.into_iter().chain(new.map(|name| ("hostname".to_owned(), name.to_owned()))).collect()
    });
    unique(configs, &mut found, "address", |config| {
        let mut addresses = Vec::new();
        let bare = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        let devices =
            config.get("machine.network.interfaces").and_then(Value::as_array).into_iter().flatten();
        // An address on lo is a load balancer's, and all control planes have it.
        for (index, device) in devices.enumerate().filter(|(_, device)| device["interface"] != "lo") {
            for text in device["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                addresses.push((format!("machine.network.interfaces[{index}].addresses"), bare(text)));
            }
        }
        for document in config.of_kind("LinkConfig").filter(|document| document.name() != "lo") {
            for item in document.value()["addresses"].as_array().into_iter().flatten() {
                addresses.extend(item["address"].as_str().map(|text| ("addresses".to_owned(), bare(text))));
            }
        }
        addresses
    });
    same(configs, &mut found, "cluster.id", "belongs to another cluster than the first file");
    same(configs, &mut found, "cluster.controlPlane.endpoint", "is not the endpoint of the first file");
    found
}

/// Values that no two configs may share.
fn unique(
    configs: &[&MachineConfig],
    found: &mut Vec<(usize, Problem)>,
    what: &str,
    values: impl Fn(&MachineConfig) -> Vec<(String, String)>,
) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, config) in configs.iter().enumerate() {
        for (path, value) in values(config) {
            if value.is_empty() {
                continue;
            }
            match seen.get(&value) {
                Some(first) if *first != index => {
                    let text =
                        format!("the {what} {value} is also that of another file (number {})", first + 1);
                    found.push((index, Problem::error(Source::Butler, "", &path, text)));
                }
                Some(_) => {}
                None => drop(seen.insert(value, index)),
            }
        }
    }
}

/// A value that all configs must share. It is not shown: it may be a secret.
fn same(configs: &[&MachineConfig], found: &mut Vec<(usize, Problem)>, path: &str, text: &str) {
    let Some(first) = configs.first().and_then(|config| config.get(path)) else { return };
    for (index, config) in configs.iter().enumerate().skip(1) {
        if config.get(path).is_some_and(|value| value != first) {
            found.push((index, Problem::error(Source::Butler, "", path, text)));
        }
    }
}
