//! What Talos takes and what then does not work, as far as one config shows it.

use super::Checker;
use super::{Problem, Severity, Source};
use crate::contract::KubernetesVersion;
use crate::intent::Cidr;
use serde_json::Value;
use std::net::IpAddr;

pub(super) fn check(c: &mut Checker<'_>) {
    if !c.is_set("machine") || !c.is_set("cluster") {
        return;
    }
    networks(c);
    shared_address(c);
    endpoint_names(c);
    versions(c);
    loopback(c);
    only_negative(c);
}

/// An address in a config: where it is written, and what it is.
struct Address {
    path: String,
    document: Option<crate::config::DocumentId>,
    address: IpAddr,
    what: &'static str,
}

/// The pod and service networks, with their paths.
fn cluster_networks(c: &Checker<'_>) -> Vec<(String, Cidr)> {
    let mut networks = Vec::new();
    for name in ["podSubnets", "serviceSubnets"] {
        for (path, text) in c.texts(&format!("cluster.network.{name}")) {
            networks.extend(Cidr::parse(&text).map(|network| (path, network)));
        }
    }
    networks
}

/// A node whose address is in the pod or service network has no address that Talos would use, and waits for ever.
fn networks(c: &mut Checker<'_>) {
    for name in ["podSubnets", "serviceSubnets"] {
        for (path, text) in c.texts(&format!("cluster.network.{name}")) {
            match Cidr::parse(&text) {
                Err(_) => c.ours(&path, format!("{text:?} is not a network, such as 10.244.0.0/16")),
                Ok(network) if network.network() != network => {
                    c.ours(&path, format!("{text} has host bits: did you mean {}?", network.network()));
                }
                Ok(_) => {}
            }
        }
    }
    let networks = cluster_networks(c);
    for (index, (path, network)) in networks.iter().enumerate() {
        if let Some((other, with)) = networks[..index].iter().find(|(_, other)| other.overlaps(*network)) {
            c.ours(path, format!("{network} overlaps {with} of {other}"));
        }
    }
    for Address { path, document, address, what } in addresses(c) {
        for (other, network) in networks.iter().filter(|(_, network)| network.contains(address)) {
            let text = format!("the {what} {address} lies inside {network} of {other}");
            let document = document.clone();
            c.problems.push(match document {
                Some(document) => Problem { document, ..Problem::error(Source::Butler, "", &path, text) },
                None => Problem::error(Source::Butler, crate::config::MAIN, &path, text),
            });
        }
    }
}

/// The endpoint, shared addresses and the node's own static addresses.
fn addresses(c: &Checker<'_>) -> Vec<Address> {
    let mut found = Vec::new();
    if let Some(address) = endpoint_host(c).and_then(|host| host.parse().ok()) {
        let path = "cluster.controlPlane.endpoint".to_owned();
        found.push(Address { path, document: None, address, what: "endpoint" });
    }
    let bare = |text: &str| text.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
    for (index, device) in c.list("machine.network.interfaces").iter().enumerate() {
        let path = format!("machine.network.interfaces[{index}]");
        if let Some(address) = device["vip"]["ip"].as_str().and_then(bare) {
            found.push(Address {
                path: format!("{path}.vip.ip"),
                document: None,
                address,
                what: "shared address",
            });
        }
        for (item, text) in device["addresses"].as_array().into_iter().flatten().enumerate() {
            if let Some(address) = text.as_str().and_then(bare) {
                let path = format!("{path}.addresses[{item}]");
                found.push(Address { path, document: None, address, what: "node address" });
            }
        }
    }
    for document in c.config.documents() {
        match document.kind() {
            "Layer2VIPConfig" | "HCloudVIPConfig" => {
                found.extend(document.name().parse().ok().map(|address| Address {
                    path: "name".into(),
                    document: Some(document.id()),
                    address,
                    what: "shared address",
                }))
            }
            _ => {
                for (index, item) in
                    document.value()["addresses"].as_array().into_iter().flatten().enumerate()
                {
                    found.extend(item["address"].as_str().and_then(bare).map(|address| Address {
                        path: format!("addresses[{index}].address"),
                        document: Some(document.id()),
                        address,
                        what: "node address",
                    }));
                }
            }
        }
    }
    found
}

/// Without brackets and port.
fn endpoint_host(c: &Checker<'_>) -> Option<String> {
    let rest = c.text("cluster.controlPlane.endpoint").split_once("://")?.1;
    let authority = rest.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(inside) => inside.split(']').next().map(str::to_owned),
        None => authority.split(':').next().map(str::to_owned),
    }
}

/// Talos checks this for the old form of the shared address only.
fn shared_address(c: &mut Checker<'_>) {
    if c.is_control_plane() {
        return;
    }
    let documents: Vec<_> = c
        .config
        .documents()
        .iter()
        .filter(|document| matches!(document.kind(), "Layer2VIPConfig" | "HCloudVIPConfig"))
        .map(crate::config::Document::id)
        .collect();
    for document in documents {
        c.about(
            Source::Butler,
            document,
            "",
            "a worker cannot hold the shared address of the control planes",
        );
    }
}

/// Whoever connects by a name that is not in the certificate is refused.
fn endpoint_names(c: &mut Checker<'_>) {
    if !c.is_control_plane() {
        return;
    }
    let names = |c: &Checker<'_>, path: &str| -> Vec<String> {
        c.texts(path).into_iter().map(|(_, name)| name).collect()
    };
    // The node adds its endpoint and its own addresses to the API server's certificate by itself. A shared address that is
    // not the endpoint is added by nobody.
    let endpoint = endpoint_host(c);
    let api = names(c, "cluster.apiServer.certSANs");
    let talos = names(c, "machine.certSANs");
    for Address { address, what, .. } in addresses(c) {
        let name = address.to_string();
        if what == "shared address" && !api.contains(&name) && endpoint.as_ref() != Some(&name) {
            let text = format!(
                "the shared address {name} is missing: clients that use it could not verify the API server"
            );
            c.ours("cluster.apiServer.certSANs", text);
        }
        if what == "shared address" && !talos.contains(&name) {
            let text =
                format!("the shared address {name} is missing: the Talos API could not be reached by it");
            c.problems.push(Problem {
                severity: Severity::Warning,
                ..Problem::error(Source::Butler, crate::config::MAIN, "machine.certSANs", text)
            });
        }
    }
}

/// Talos and Kubernetes versions that do not go together, and Kubernetes parts that do not go with each other.
fn versions(c: &mut Checker<'_>) {
    let mut found: Vec<(&str, KubernetesVersion)> = Vec::new();
    for (path, needed) in [
        ("machine.kubelet.image", true),
        ("cluster.apiServer.image", c.is_control_plane()),
        ("cluster.controllerManager.image", c.is_control_plane()),
        ("cluster.scheduler.image", c.is_control_plane()),
        ("cluster.proxy.image", false),
    ] {
        let image = c.text(path).to_owned();
        if image.is_empty() {
            continue;
        }
        match KubernetesVersion::of_image(&image) {
            Some(version) => found.push((path, version)),
            // From 1.11 on the node refuses such an image when the config is applied.
            None if needed && c.contract.is_some_and(|c| c >= crate::contract::Contract::V1_11) => {
                c.ours(path, format!("the image {image:?} has no tag of the form :v1.32.3"));
            }
            None => {}
        }
    }
    if let Some(contract) = c.contract {
        let (first, last) = contract.kubernetes_minors();
        for (path, version) in &found {
            if !contract.supports(version) {
                c.ours(
                    path,
                    format!("Talos {contract} runs Kubernetes 1.{first} to 1.{last}, not {version}"),
                );
            }
        }
    }
    // A kubelet may be older than its API server, never newer.
    let minor = |path: &str| found.iter().find(|(found, _)| *found == path).map(|(_, version)| version.minor);
    if let (Some(kubelet), Some(api)) = (minor("machine.kubelet.image"), minor("cluster.apiServer.image")) {
        if kubelet > api {
            c.ours(
                "machine.kubelet.image",
                format!("the kubelet (1.{kubelet}) is newer than the API server (1.{api})"),
            );
        } else if api > kubelet + 3 {
            c.ours(
                "machine.kubelet.image",
                format!("the kubelet (1.{kubelet}) is too old for the API server (1.{api})"),
            );
        }
    }
}

/// With the load balancer's address on `lo`, a control plane that dials the endpoint reaches itself: it can learn of the
/// others from the discovery service only.
fn loopback(c: &mut Checker<'_>) {
    let old = c.list("machine.network.interfaces");
    let old: Vec<(String, Option<crate::config::DocumentId>, String)> = old
        .iter()
        .enumerate()
        .filter(|(_, device)| device["interface"] == "lo")
        .flat_map(|(index, device)| {
            let addresses = device["addresses"].as_array().cloned().unwrap_or_default();
            let path = format!("machine.network.interfaces[{index}].addresses");
            addresses.into_iter().filter_map(move |a| Some((path.clone(), None, a.as_str()?.to_owned())))
        })
        .collect();
    let new =
        c.config.of_kind("LinkConfig").filter(|document| document.name() == "lo").flat_map(|document| {
            let addresses = document.value()["addresses"].as_array().cloned().unwrap_or_default();
            let id = document.id();
            addresses.into_iter().filter_map(move |a| {
                Some(("addresses".to_owned(), Some(id.clone()), a["address"].as_str()?.to_owned()))
            })
        });
    let found: Vec<_> = old.into_iter().chain(new).collect();
    if found.is_empty() || !c.is_control_plane() {
        return;
    }
    let discovery =
        c.flag("cluster.discovery.enabled") && !c.flag("cluster.discovery.registries.service.disabled");
    let pinned = [
        ("cluster.etcd.advertisedSubnets", "etcd would advertise it"),
        ("machine.kubelet.nodeIP.validSubnets", "the kubelet would take it for the node's own"),
    ];
    for (path, document, address) in found {
        let tell = |c: &mut Checker<'_>, text: String| match document.clone() {
            Some(document) => c.about(Source::Butler, document, &path, text),
            None => c.ours(&path, text),
        };
        if !discovery {
            tell(
                c,
                format!(
                    "with {address} on lo, discovery must be on: the endpoint leads a control plane to itself, and it could not find the others"
                ),
            );
        }
        for (field, why) in pinned {
            if c.list(field).is_empty() {
                tell(
                    c,
                    format!(
                        "with {address} on lo, {field} must name the node's own network: otherwise {why}"
                    ),
                );
            }
        }
    }
}

/// A filter of exclusions alone selects nothing, and what waits for an address waits for ever.
fn only_negative(c: &mut Checker<'_>) {
    for path in [
        "cluster.etcd.advertisedSubnets",
        "cluster.etcd.listenSubnets",
        "machine.kubelet.nodeIP.validSubnets",
    ] {
        let filters = c.list(path);
        if !filters.is_empty()
            && filters.iter().filter_map(Value::as_str).all(|filter| filter.starts_with('!'))
        {
            c.ours(path, "excludes networks without naming any, so that no address is left");
        }
    }
}
