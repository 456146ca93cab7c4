//! Talos' checks of the v1alpha1 document, except for network devices.

use super::names::{check_key, check_taint, check_value, is_dns_domain};
use super::{Checker, Mode, network};
use crate::contract::Contract;
use crate::intent::Cidr;
use base64::Engine as _;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Settings of the kubelet that Talos keeps for itself.
const KUBELET_PROTECTED: [&str; 13] = [
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupRoot",
    "kind",
    "kubeletCgroups",
    "port",
    "protectKernelDefaults",
    "resolvConf",
    "rotateCertificates",
    "systemCgroups",
    "staticPodPath",
    "seccompDefault",
];
const ROLES: [&str; 5] = ["os:admin", "os:operator", "os:reader", "os:etcd:backup", "os:impersonator"];
const MIN_KUBESPAN_MTU: i64 = 1280;

pub(super) fn check(c: &mut Checker<'_>) {
    if c.config.main().is_none() {
        // Documents alone are a patch or a part of a config, and Talos takes them as such.
        return;
    }
    if !c.is_set("machine") {
        c.error("machine", "machine instructions are required");
        return;
    }
    cluster(c);
    install(c);
    host_dns(c);
    role(c);
    network::check(c);
    disks(c);
    kubelet(c);
    encryption(c);
    kubespan(c);
    logging(c);
    words(c);
    features(c);
    if c.config.get("persist") == Some(&Value::Bool(false)) {
        c.error("persist", ".persist should be enabled");
    }
    for (section, shown) in
        [("machine.registries.config", "config"), ("machine.registries.mirrors", "mirrors")]
    {
        for key in null_keys(c.config.get(section)) {
            c.error(&format!("{section}[{key}]"), format!("registries.{shown}[{key:?}] is null"));
        }
    }
}

fn null_keys(value: Option<&Value>) -> Vec<String> {
    let map = value.and_then(Value::as_object);
    map.map(|map| map.iter().filter(|(_, v)| v.is_null()).map(|(key, _)| key.clone()).collect())
        .unwrap_or_default()
}

// === cluster ===

fn cluster(c: &mut Checker<'_>) {
    if !c.is_set("cluster") {
        c.error("cluster", "cluster instructions are required");
        return;
    }
    let endpoint = c.text("cluster.controlPlane.endpoint").to_owned();
    if endpoint.is_empty() {
        c.error("cluster.controlPlane.endpoint", "cluster controlplane endpoint is required");
        return;
    }
    if let Err(why) = check_url(&endpoint) {
        c.error("cluster.controlPlane.endpoint", format!("invalid controlplane endpoint: {why}"));
    }
    let domain = c.text("cluster.network.dnsDomain").to_owned();
    if !domain.is_empty() && !is_dns_domain(&domain) {
        c.error("cluster.network.dnsDomain", format!("{domain:?} is not a valid DNS name"));
    }
    cloud_provider(c);
    etcd(c);
    inline_manifests(c);
    discovery(c);
    control_plane_pods(c);
    if c.is_control_plane() {
        cni(c);
    }
}

fn cloud_provider(c: &mut Checker<'_>) {
    let manifests = c.texts("cluster.externalCloudProvider.manifests");
    if !manifests.is_empty() && !c.flag("cluster.externalCloudProvider.enabled") {
        c.error(
            "cluster.externalCloudProvider",
            "external cloud provider is disabled, but manifests are provided",
        );
        return;
    }
    for (path, url) in manifests {
        if let Err(why) = check_url(&url) {
            c.error(&path, format!("invalid external cloud provider manifest url {url:?}: {why}"));
        }
    }
}

fn etcd(c: &mut Checker<'_>) {
    if !c.is_set("cluster.etcd") {
        return;
    }
    if !c.is_control_plane() {
        c.error("cluster.etcd", "etcd config is only allowed on control plane machines");
        return;
    }
    if !c.is_set("cluster.etcd.ca") {
        c.error("cluster.etcd.ca", "key/cert combination should not be empty");
    }
    let advertised = c.texts("cluster.etcd.advertisedSubnets");
    if !c.text("cluster.etcd.subnet").is_empty() && !advertised.is_empty() {
        c.error("cluster.etcd.subnet", "etcd subnet can't be set when advertised subnets are set");
    }
    for (paths, what) in [(advertised, "advertised"), (c.texts("cluster.etcd.listenSubnets"), "listen")] {
        for (path, subnet) in paths {
            if !is_filter(&subnet) {
                c.error(
                    &path,
                    format!("etcd {what} subnet is not valid: {:?}", subnet.trim_start_matches('!')),
                );
            }
        }
    }
}

fn inline_manifests(c: &mut Checker<'_>) {
    let mut seen = BTreeSet::new();
    for (index, manifest) in c.list("cluster.inlineManifests").iter().enumerate() {
        let name = manifest["name"].as_str().unwrap_or_default();
        let path = format!("cluster.inlineManifests[{index}].name");
        if name.trim().is_empty() {
            c.error(&path, "inline manifest name can't be empty");
        }
        if !seen.insert(name.to_owned()) {
            c.error(&path, format!("inline manifest name {name:?} is duplicate"));
        }
    }
}

fn discovery(c: &mut Checker<'_>) {
    if !c.flag("cluster.discovery.enabled") || c.flag("cluster.discovery.registries.service.disabled") {
        return;
    }
    let endpoint = c.text("cluster.discovery.registries.service.endpoint").to_owned();
    let path = "cluster.discovery.registries.service.endpoint";
    if !endpoint.is_empty() {
        match endpoint.split_once("://") {
            None => c.error(path, "cluster discovery service registry endpoint is invalid: it is no URL"),
            Some((_, rest)) if has_path(rest) => {
                c.error(path, "cluster discovery service path should be empty");
            }
            Some(_) => {}
        }
    }
    for name in ["id", "secret"] {
        if c.text(&format!("cluster.{name}")).is_empty() {
            c.error(
                &format!("cluster.{name}"),
                format!("cluster discovery service requires .cluster.{name}"),
            );
        }
    }
}

fn control_plane_pods(c: &mut Checker<'_>) {
    for (name, shown) in
        [("apiServer", "apiserver"), ("controllerManager", "controller-manager"), ("scheduler", "scheduler")]
    {
        for part in ["requests", "limits"] {
            let path = format!("cluster.{name}.resources.{part}");
            let keys: Vec<String> = c
                .config
                .get(&path)
                .and_then(Value::as_object)
                .map(|m| m.keys().cloned().collect())
                .unwrap_or_default();
            for key in keys.iter().filter(|key| !matches!(key.as_str(), "memory" | "cpu")) {
                let text = format!("{shown} resource validation failed: unsupported pod resource {key:?}");
                c.error(&format!("{path}[{key}]"), text);
            }
        }
    }
    let authorizers = c.list("cluster.apiServer.authorizationConfig");
    if authorizers.is_empty() {
        return;
    }
    let args =
        c.config.get("cluster.apiServer.extraArgs").and_then(Value::as_object).cloned().unwrap_or_default();
    for key in
        args.keys().filter(|key| *key == "authorization-mode" || key.starts_with("authorization-webhook-"))
    {
        let path = format!("cluster.apiServer.extraArgs[{key}]");
        c.error(&path, format!("{key} cannot be used in conjunction with AuthorizationConfig"));
    }
    for (index, authorizer) in authorizers.iter().enumerate() {
        let path = format!("cluster.apiServer.authorizationConfig[{index}]");
        let (kind, name) = (
            authorizer["type"].as_str().unwrap_or_default(),
            authorizer["name"].as_str().unwrap_or_default(),
        );
        match (kind, name) {
            ("", _) => c.error(&path, "authorizer type must be set"),
            (_, "") => c.error(&path, "authorizer name must be set"),
            ("Node" | "RBAC" | "Webhook", _) => {}
            (kind, _) => c.error(&path, format!("authorizer type {kind} is not allowed")),
        }
    }
}

fn cni(c: &mut Checker<'_>) {
    let name = match c.text("cluster.network.cni.name") {
        "" if !c.is_set("cluster.network.cni") => "flannel".to_owned(),
        name => name.to_owned(),
    };
    let urls = c.texts("cluster.network.cni.urls");
    let path = "cluster.network.cni";
    match name.as_str() {
        "flannel" | "none" if !urls.is_empty() => {
            c.error(&format!("{path}.urls"), format!("\"urls\" field should be empty for {name:?} CNI"));
        }
        "custom" if urls.is_empty() => {
            c.warning(&format!("{path}.urls"), "\"urls\" field should not be empty for \"custom\" CNI");
        }
        "flannel" | "none" | "custom" => {}
        _ => {
            c.error(&format!("{path}.name"), "cni name should be one of [\"flannel\", \"custom\", \"none\"]")
        }
    }
    if matches!(name.as_str(), "none" | "custom") {
        if !c.list("cluster.network.cni.flannel.extraArgs").is_empty() {
            let text = format!("\"flanneldExtraArgs\" field should be empty for {name:?} CNI");
            c.error(&format!("{path}.flannel.extraArgs"), text);
        }
        if c.flag("cluster.network.cni.flannel.kubeNetworkPoliciesEnabled") {
            let text =
                format!("\"flannelKubeNetworkPoliciesEnabled\" should not be enabled for {name:?} CNI");
            c.error(&format!("{path}.flannel.kubeNetworkPoliciesEnabled"), text);
        }
    }
    if name == "custom" {
        for (path, url) in urls {
            if let Err(why) = check_url(&url) {
                c.error(&path, why);
            }
        }
    }
}

// === machine ===

fn install(c: &mut Checker<'_>) {
    disk_selector(c);
    if c.mode == Mode::Metal {
        if !c.is_set("machine.install") {
            c.error("machine.install", "install instructions are required in \"metal\" mode");
        } else {
            let selects = c.is_set("machine.install.diskSelector");
            if c.text("machine.install.disk").is_empty() && !selects {
                c.error("machine.install", "either install disk or diskSelector should be defined");
            }
            if !c.list("machine.install.extraKernelArgs").is_empty()
                && c.flag("machine.install.grubUseUKICmdline")
            {
                let text = "install.extraKernelArgs and install.grubUseUKICmdline can't be used together";
                c.error("machine.install.extraKernelArgs", text);
            }
        }
    }
    let extensions = c.list("machine.install.extensions");
    let mut seen = BTreeSet::new();
    for (index, extension) in extensions.iter().enumerate() {
        let image = extension["image"].as_str().unwrap_or_default();
        if !seen.insert(image.to_owned()) {
            let path = format!("machine.install.extensions[{index}]");
            c.error(&path, format!("duplicate system extension {image:?}"));
        }
    }
    if !extensions.is_empty() {
        let text = ".machine.install.extensions is deprecated: extensions belong into the image's schematic";
        c.warning("machine.install.extensions", text);
    }
}

fn disk_selector(c: &mut Checker<'_>) {
    let path = "machine.install.diskSelector";
    if let Some(size) = c.config.text("machine.install.diskSelector.size").map(str::to_owned) {
        let number =
            [">=", "<=", "==", ">", "<"].iter().find_map(|op| size.trim().strip_prefix(op)).unwrap_or(&size);
        let number = number.trim();
        // A share of a disk is a size elsewhere, not here.
        if number.starts_with('-') || number.ends_with('%') || !crate::fields::is_size(number) {
            c.error(&format!("{path}.size"), format!("failed to parse disk size {size}"));
        }
    }
    if !c.text("machine.install.diskSelector.name").is_empty() {
        let text = "install disk selector is invalid: selector on name is not supported";
        c.error(&format!("{path}.name"), text);
    }
    let kind = c.text("machine.install.diskSelector.type").to_owned();
    if !matches!(kind.as_str(), "" | "ssd" | "hdd" | "nvme" | "sd") {
        let text = format!("install disk selector is invalid: unsupported disk type {kind:?}");
        c.error(&format!("{path}.type"), text);
    }
}

fn host_dns(c: &mut Checker<'_>) {
    let path = "machine.features.hostDNS";
    let enabled = c.flag("machine.features.hostDNS.enabled");
    let forwards = c.flag("machine.features.hostDNS.forwardKubeDNSToHost");
    if c.mode == Mode::Container {
        if !enabled {
            c.error(
                path,
                "feature HostDNS should be enabled in container mode (.machine.features.hostDNS.enabled)",
            );
        }
        if !forwards {
            c.error(path, "feature HostDNS should forward kube-dns to host in container mode (.machine.features.hostDNS.forwardKubeDNSToHost)");
        }
    }
    if c.contract.is_some_and(|contract| contract >= Contract::V1_13) && forwards && !enabled {
        c.error(path, "feature hostDNS.forwardKubeDNSToHost requires hostDNS.enabled to be true (.machine.features.hostDNS)");
    }
}

fn role(c: &mut Checker<'_>) {
    let has_ca = c.is_set("machine.ca");
    let accepted = !c.list("machine.acceptedCAs").is_empty();
    if !has_ca && !accepted {
        c.error(
            "machine.ca",
            "issuing CA or some accepted CAs are required (.machine.ca, machine.acceptedCAs)",
        );
    }
    let kind = c.text("machine.type").to_owned();
    match kind.as_str() {
        "controlplane" | "init" => {
            if !has_ca {
                c.error("machine.ca", "issuing CA is required (.machine.ca)");
            } else if c.text("machine.ca.key").is_empty() {
                c.error(
                    "machine.ca.key",
                    "issuing CA key is required for controlplane nodes (.machine.ca.key)",
                );
            }
        }
        "worker" | "join" | "" => {
            if kind == "join" {
                c.warning("machine.type", "use \"worker\" instead of \"join\" for machine type");
            }
            if !c.text("machine.ca.key").is_empty() {
                let text = "issuing Talos API CA key is not allowed on non-controlplane nodes (.machine.ca)";
                c.error("machine.ca.key", text);
            }
            if has_ca && c.text("machine.ca.crt").is_empty() && !accepted {
                let text = "trusted CA certificates are required on non-controlplane nodes (.machine.ca.crt, .machine.acceptedCAs)";
                c.error("machine.ca.crt", text);
            }
            if !c.text("cluster.ca.key").is_empty() {
                let text =
                    "issuing Kubernetes API CA key is not allowed on non-controlplane nodes (.cluster.ca)";
                c.error("cluster.ca.key", text);
            }
        }
        other => c.error("machine.type", format!("unknown machine type {other:?}")),
    }
}

fn disks(c: &mut Checker<'_>) {
    for (index, disk) in c.list("machine.disks").iter().enumerate() {
        if disk.is_null() {
            c.error(&format!("machine.disks[{index}]"), format!("machine.disks[{index}] is null"));
        }
        let partitions = disk["partitions"].as_array().cloned().unwrap_or_default();
        for (part, partition) in partitions.iter().enumerate() {
            if partition.is_null() {
                let path = format!("machine.disks[{index}].partitions[{part}]");
                c.error(&path, "the partition is null");
            }
            let size = &partition["size"];
            let whole = size.is_null() || size == 0 || size == "" || size == "0";
            if whole && part + 1 < partitions.len() {
                let device = disk["device"].as_str().unwrap_or_default();
                let path = format!("machine.disks[{index}].partitions[{part}]");
                c.error(&path, format!("partition for disk {device:?} is set to occupy full disk, but it's not the last partition in the list"));
            }
        }
    }
}

fn kubelet(c: &mut Checker<'_>) {
    for (path, subnet) in c.texts("machine.kubelet.nodeIP.validSubnets") {
        if !is_filter(&subnet) {
            c.error(
                &path,
                format!("kubelet nodeIP subnet is not valid: {:?}", subnet.trim_start_matches('!')),
            );
        }
    }
    for field in KUBELET_PROTECTED {
        let path = format!("machine.kubelet.extraConfig.{field}");
        if c.config.get(&path).is_some() {
            c.error(&path, format!("kubelet configuration field {field:?} can't be overridden"));
        }
    }
}

fn encryption(c: &mut Checker<'_>) {
    for (name, label) in [("ephemeral", "EPHEMERAL"), ("state", "STATE")] {
        let path = format!("machine.systemDiskEncryption.{name}");
        if c.is_set(&path) {
            for (at, text) in encryption_keys(&c.list(&format!("{path}.keys"))) {
                c.error(&format!("{path}.keys{at}"), format!("partition {label:?}: {text}"));
            }
        }
    }
}

/// What is wrong with the keys of an encrypted volume: where in the list, and what.
pub(super) fn encryption_keys(keys: &[Value]) -> Vec<(String, String)> {
    if keys.is_empty() {
        return vec![(String::new(), "no encryption keys provided".into())];
    }
    let mut found = Vec::new();
    let mut slots = BTreeSet::new();
    for (index, key) in keys.iter().enumerate() {
        let slot = key["slot"].as_i64().unwrap_or_default();
        if !slots.insert(slot) {
            found.push((format!("[{index}]"), format!("encryption key slot {slot} is already in use")));
        }
        if ["static", "nodeID", "kms", "tpm"].iter().all(|kind| key[*kind].is_null()) {
            let text = format!("encryption key at slot {slot} doesn't have the configuration parameters");
            found.push((format!("[{index}]"), text));
        }
    }
    found
}

fn kubespan(c: &mut Checker<'_>) {
    let path = "machine.network.kubespan";
    if !c.flag("machine.network.kubespan.enabled") {
        return;
    }
    let mtu = c.config.get("machine.network.kubespan.mtu").and_then(Value::as_i64);
    if mtu.is_some_and(|mtu| mtu < MIN_KUBESPAN_MTU) {
        c.error(&format!("{path}.mtu"), format!("kubespan link MTU must be at least {MIN_KUBESPAN_MTU}"));
    }
    if !c.flag("cluster.discovery.enabled") {
        c.error(path, ".cluster.discovery should be enabled when .machine.network.kubespan is enabled");
    }
    for name in ["id", "secret"] {
        if c.text(&format!("cluster.{name}")).is_empty() {
            c.error(path, format!(".cluster.{name} should be set when .machine.network.kubespan is enabled"));
        }
    }
    for (path, filter) in c.texts("machine.network.kubespan.filters.endpoints") {
        if !is_filter(&filter) {
            c.error(
                &path,
                format!("KubeSpan endpoint filter is not valid: {:?}", filter.trim_start_matches('!')),
            );
        }
    }
    for (path, network) in c.texts("machine.network.kubespan.filters.excludeAdvertisedNetworks") {
        if Cidr::parse(&network).is_err() {
            c.error(&path, format!("KubeSpan exclude advertised networks filter is not valid: {network:?}"));
        }
    }
}

fn logging(c: &mut Checker<'_>) {
    for (index, destination) in c.list("machine.logging.destinations").iter().enumerate() {
        let path = format!("machine.logging.destinations[{index}]");
        match destination["endpoint"].as_str().unwrap_or_default().split_once("://") {
            None => c.error(&path, "empty logging endpoint"),
            Some((_, "")) => c.error(&path, "empty logging endpoint's host"),
            Some(("tcp" | "udp", _)) => {}
            Some((scheme, _)) => c.error(&path, format!("unexpected logging endpoint scheme {scheme:?}")),
        }
        match destination["format"].as_str().unwrap_or_default() {
            "json_lines" => {}
            other => c.error(&path, format!("unknown logging format {other:?}")),
        }
    }
}

/// Labels, annotations, taints.
fn words(c: &mut Checker<'_>) {
    let map = |c: &Checker<'_>, path: &str| -> Map<String, Value> {
        c.config.get(path).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    for (key, value) in map(c, "machine.nodeLabels") {
        let both = check_key(&key).and(check_value(value.as_str().unwrap_or_default()));
        if let Err(why) = both {
            c.error(&format!("machine.nodeLabels[{key}]"), format!("invalid machine node labels: {why}"));
        }
    }
    let annotations = map(c, "machine.nodeAnnotations");
    for key in annotations.keys() {
        let path = format!("machine.nodeAnnotations[{key}]");
        if let Err(why) = check_key(key) {
            c.error(&path, format!("invalid machine node annotations: {why}"));
        }
        if ["owned-labels", "owned-annotations", "owned-taints"]
            .iter()
            .any(|n| *key == format!("talos.dev/{n}"))
        {
            c.error(&path, format!("invalid machine node annotations: annotation {key:?} is reserved"));
        }
    }
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().unwrap_or_default().len()).sum();
    if size > 256 << 10 {
        let text = "invalid machine node annotations: total annotation size exceeds limit of 262144 bytes";
        c.error("machine.nodeAnnotations", text);
    }
    for (key, value) in map(c, "machine.nodeTaints") {
        let both = check_key(&key).and(check_taint(value.as_str().unwrap_or_default()));
        if let Err(why) = both {
            c.error(&format!("machine.nodeTaints[{key}]"), format!("invalid machine node taints: {why}"));
        }
    }
}

fn features(c: &mut Checker<'_>) {
    let path = "machine.features.kubernetesTalosAPIAccess";
    if c.flag("machine.features.kubernetesTalosAPIAccess.enabled") {
        if c.contract.is_some_and(|contract| contract < Contract::V1_12) && !c.flag("machine.features.rbac") {
            c.error(
                path,
                "feature API RBAC should be enabled when Kubernetes Talos API Access feature is enabled",
            );
        }
        if !c.is_control_plane() {
            c.error(
                path,
                "feature Kubernetes Talos API Access can only be enabled on control plane machines",
            );
        }
        for (path, role) in c.texts("machine.features.kubernetesTalosAPIAccess.allowedRoles") {
            if !ROLES.contains(&role.as_str()) {
                c.error(
                    &path,
                    format!("invalid role {role:?} in allowed roles for Kubernetes Talos API Access"),
                );
            }
        }
    }
    let algorithm = c.text("machine.features.nodeAddressSortAlgorithm").to_owned();
    if !matches!(algorithm.as_str(), "" | "v1" | "v2") {
        let text = format!(
            "invalid node address sort algorithm: {algorithm} does not belong to AddressSortAlgorithm values"
        );
        c.error("machine.features.nodeAddressSortAlgorithm", text);
    }
}

// === words that several checks share ===

/// As much as Talos asks of a URL.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = if let Some(inside) = host_and_port.strip_prefix('[') {
        let (host, after) = inside.split_once(']').ok_or("missing ']' in host")?;
        (host, after.strip_prefix(':').unwrap_or_default())
    } else if host_and_port.matches(':').count() > 1 {
        return Err("IPv6 addresses MUST be enclosed by square brackets".into());
    } else {
        host_and_port.split_once(':').unwrap_or((host_and_port, ""))
    };
    if host.is_empty() {
        return Err("hostname must not be blank".into());
    }
    match port {
        "" => Ok(()),
        port => match port.parse::<u32>() {
            Err(_) => Err("port number must be numeric".into()),
            Ok(1..=65535) => Ok(()),
            Ok(_) => Err("port number must be between 1 and 65535".into()),
        },
    }
}

/// Whether a URL has a path, given what is after its scheme. A slash alone is none, and a query is another thing.
pub(super) fn has_path(rest: &str) -> bool {
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    place.split_once('/').is_some_and(|(_, path)| !path.is_empty())
}

/// A network or an address, with a `!` in front when it is to be left out.
pub(super) fn is_filter(text: &str) -> bool {
    let text = text.strip_prefix('!').unwrap_or(text);
    Cidr::parse(text).is_ok() || text.parse::<IpAddr>().is_ok()
}

/// A key of WireGuard: 32 bytes.
pub(super) fn is_wireguard_key(text: &str) -> bool {
    base64::engine::general_purpose::STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for good in ["https://a", "https://a:1/x", "https://[fd00::1]:6443", "tcp://u:p@h:1"] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in [
            "a",
            "https://",
            "https://:1",
            "https://a:b",
            "https://a:0",
            "https://fd00::1:6443",
            "https://[a",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
        assert!(has_path("h:1/x") && has_path("h/x?y"));
        assert!(!has_path("h") && !has_path("h/") && !has_path("h/?jointoken=a/b") && !has_path("h?a=/b"));
    }
}
