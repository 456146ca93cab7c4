//! The machine configs of all nodes, from the spec. Pure: nothing is drawn, so that the same spec gives the same text.

use super::wanted::WantedNode;
use crate::{Class, Failure, Profile};
use aws_lc_rs::digest;
use butler_api::{
    ClusterBootstrapSpec, CniType, ControlPlaneHaType, MachineRole, PatchOperation, ProviderConfigSpec,
    StorageType,
};
use butler_talos::{
    API_PORT, Cidr, ClusterIntent, Cni, Endpoint, ExtraDisk, InstallDisk, Installer, KUBE_PRISM_PORT, Link,
    LinkName, MachineConfig, Mode, NodeIntent, Patch, Problem, Role, Route, Secret, SecretsBundle, Severity,
    TalosVersion, apply_patches, check_cluster, check_together, render as render_node, validate,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What configs are made from.
pub(crate) struct Inputs<'a> {
    pub(crate) spec: &'a ClusterBootstrapSpec,
    pub(crate) provider: &'a ProviderConfigSpec,
    pub(crate) profile: &'a Profile,
    /// Host of the control-plane endpoint.
    pub(crate) endpoint: &'a str,
    /// Whether the endpoint is a load balancer that hands packets on with its own address in them.
    pub(crate) passthrough: bool,
    pub(crate) nodes: &'a [NodeInput],
    pub(crate) secrets: &'a SecretsBundle,
}

/// One node, with what its machine showed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeInput {
    pub(crate) wanted: WantedNode,
    /// All addresses; the first is the one that it is reached by.
    pub(crate) addresses: Vec<IpAddr>,
    /// The address on its own card, which is not the one that it is reached by where the infrastructure translates.
    pub(crate) own: Option<IpAddr>,
    pub(crate) mac: Option<String>,
}

/// Configs that were checked.
#[derive(Debug, PartialEq)]
pub(crate) struct Rendered {
    /// By node.
    pub(crate) configs: BTreeMap<String, Secret>,
    /// What works and is probably not meant so.
    pub(crate) warnings: Vec<String>,
}

/// Renders and checks the configs of all nodes; whatever is wrong is found before any node sees one.
pub(crate) fn render(inputs: &Inputs<'_>) -> Result<Rendered, Failure> {
    let cluster = cluster(inputs)?;
    let nodes: Vec<NodeIntent> =
        inputs.nodes.iter().map(|node| intent(inputs, node)).collect::<Result<_, _>>()?;
    let mut warnings = Vec::new();
    sort("the cluster", check_cluster(&cluster, &nodes), &mut warnings)?;
    let patches = patches(inputs.spec)?;
    let contract = cluster.talos.contract();
    let mut made: Vec<MachineConfig> = Vec::new();
    for node in &nodes {
        let config = render_node(&cluster, node, inputs.secrets).map_err(|error| wrong(&error))?;
        let config = apply_patches(config, &patches, contract).map_err(|error| {
            let remedy = "mend that entry of spec.talos.configPatches";
            Failure::new(Class::InvalidConfig, "ConfigPatchWrong", text(&error), remedy)
        })?;
        // Images of clouds have Talos on their disk already.
        let mode = if inputs.profile.on_prem { Mode::Metal } else { Mode::Cloud };
        sort(&node.hostname, validate(&config, mode, Some(contract)), &mut warnings)?;
        made.push(config);
    }
    for (index, problem) in check_together(&made.iter().collect::<Vec<_>>()) {
        let node = nodes.get(index).map(|node| node.hostname.as_str()).unwrap_or("the cluster");
        sort(node, vec![problem], &mut warnings)?;
    }
    warnings.sort();
    warnings.dedup();
    let configs =
        nodes.iter().zip(&made).map(|(node, config)| (node.hostname.clone(), Secret::new(config.to_yaml())));
    Ok(Rendered { configs: configs.collect(), warnings })
}

fn cluster(inputs: &Inputs<'_>) -> Result<ClusterIntent, Failure> {
    let spec = inputs.spec;
    let talos = TalosVersion::parse(&spec.talos.version).map_err(|error| wrong(&error))?;
    let endpoint = Endpoint::new(inputs.endpoint, API_PORT);
    let mut cluster = ClusterIntent::new(&spec.cluster.name, endpoint, talos);
    cluster.pod_networks = vec![cidr(&spec.network.pod_cidr)?];
    cluster.service_networks = vec![cidr(&spec.network.service_cidr)?];
    cluster.cni = Cni::None;
    cluster.kube_proxy = spec.addons.cni.type_ != CniType::Cilium;
    cluster.kube_prism_port = Some(KUBE_PRISM_PORT);
    for node in inputs.nodes.iter().filter(|node| node.wanted.role == MachineRole::ControlPlane) {
        cluster.control_planes.extend(&node.addresses);
    }
    if spec.effective_control_plane_ha() == ControlPlaneHaType::TalosVip {
        cluster.vip = inputs.endpoint.parse().ok();
    }
    cluster.schedule_on_control_planes = spec.effective_workers().is_none_or(|pool| pool.replicas == 0);
    if let Some(network) = &inputs.provider.network {
        cluster.time_servers.clone_from(&network.time_servers);
        cluster.nameservers = network.dns_servers.iter().filter_map(|server| server.parse().ok()).collect();
    }
    if !spec.talos.schematic.is_empty() {
        cluster.installer = Installer::factory(&spec.talos.schematic);
    }
    Ok(cluster)
}

fn intent(inputs: &Inputs<'_>, input: &NodeInput) -> Result<NodeIntent, Failure> {
    let spec = inputs.spec;
    let role = match input.wanted.role {
        MachineRole::ControlPlane => Role::ControlPlane,
        MachineRole::Worker => Role::Worker,
    };
    let mut node = NodeIntent::new(role, &input.wanted.name);
    node.address = input.addresses.first().copied();
    node.install_disk = inputs.profile.on_prem.then(|| InstallDisk::Path(spec.talos.install_disk.clone()));
    node.labels.clone_from(&input.wanted.pool.labels);
    node.node_networks = own_networks(inputs, input)?;
    if inputs.passthrough && role == Role::ControlPlane {
        node.loopback = inputs.endpoint.parse().into_iter().collect();
        if node.node_networks.is_empty() {
            return Err(Failure::new(
                Class::InvalidConfig,
                "NodeNetworkUnknown",
                format!(
                    "the load balancer's address goes onto {} before its own is known, and could be taken for it",
                    node.hostname
                ),
                "name the nodes' network in network.subnet of the ProviderConfig, or set talos.configDelivery to push",
            ));
        }
    }
    let longhorn = spec.addons.storage.type_ == StorageType::Longhorn;
    if longhorn {
        node.kubelet_mounts.push("/var/lib/longhorn".to_owned());
    }
    for (index, _) in input.wanted.pool.extra_disks.iter().enumerate() {
        let device = device(inputs.profile.extra_disk_prefix, index)?;
        node.extra_disks.push(ExtraDisk { name: format!("extra-{index}"), device, kubelet_mount: longhorn });
    }
    let holds_vip =
        spec.effective_control_plane_ha() == ControlPlaneHaType::TalosVip && role == Role::ControlPlane;
    if holds_vip || spec.network.mtu.is_some() {
        let name = vip_link(inputs, input);
        let mtu = spec.network.mtu.and_then(|mtu| u32::try_from(mtu).ok());
        node.links.extend(link(&name, input, mtu)?);
        node.vip_link = holds_vip.then_some(name);
    }
    Ok(node)
}

/// The networks that a node's own address is in, so that neither a virtual IP, nor a load balancer's address, nor a second
/// network is ever taken for it. Nodes of a cloud are in as many networks as there are zones: there it is the address alone.
fn own_networks(inputs: &Inputs<'_>, input: &NodeInput) -> Result<Vec<Cidr>, Failure> {
    if let Some(own) = input.own.filter(|_| !inputs.profile.on_prem) {
        return Ok(vec![Cidr::host(own)]);
    }
    let subnet = inputs.provider.network.as_ref().and_then(|network| network.subnet.as_deref());
    subnet.map(|subnet| cidr(subnet).map(Cidr::network)).transpose().map(|one| one.into_iter().collect())
}

/// Where the virtual IP goes: the user's word, else the card that the infrastructure showed, else what is usual there.
fn vip_link(inputs: &Inputs<'_>, input: &NodeInput) -> LinkName {
    match (&inputs.spec.network.vip_interface, &input.mac) {
        (Some(name), _) if !name.is_empty() => LinkName::Name(name.clone()),
        (_, Some(mac)) => LinkName::Mac(mac.to_lowercase()),
        _ => LinkName::Name(inputs.profile.vip_interface.to_owned()),
    }
}

/// A card that a config mentions is set up by the config alone, so that a fixed address has to be in it too.
fn link(name: &LinkName, input: &NodeInput, mtu: Option<u32>) -> Result<Option<Link>, Failure> {
    let Some(fixed) = &input.wanted.static_address else {
        let dhcp = Link { name: name.clone(), dhcp: true, addresses: Vec::new(), routes: Vec::new(), mtu };
        return Ok(mtu.map(|_| dhcp));
    };
    let gateway = fixed.gateway.as_deref().and_then(|gateway| gateway.parse().ok());
    Ok(Some(Link {
        name: name.clone(),
        dhcp: false,
        addresses: vec![cidr(&fixed.address)?],
        routes: gateway.map(|gateway| Route { network: None, gateway }).into_iter().collect(),
        mtu,
    }))
}

/// `/dev/sd` and 0 give `/dev/sdb`: the first further disk comes after the system's.
fn device(prefix: &str, index: usize) -> Result<String, Failure> {
    if prefix.ends_with("nvme") {
        return Ok(format!("{prefix}{}n1", index + 1));
    }
    let letter = u8::try_from(index).ok().and_then(|index| b'b'.checked_add(index)).filter(|c| *c <= b'z');
    letter.map(|letter| format!("{prefix}{}", char::from(letter))).ok_or_else(|| {
        let message = format!("{} further disks are more than there are letters for", index + 1);
        Failure::new(Class::InvalidConfig, "TooManyDisks", message, "ask for fewer extraDisks")
    })
}

fn patches(spec: &ClusterBootstrapSpec) -> Result<Vec<Patch>, Failure> {
    let mut patches = Vec::new();
    for (index, patch) in spec.talos.config_patches.iter().enumerate() {
        let name = format!("spec.talos.configPatches[{index}]");
        let bad = |why: String| {
            let message = format!("{name} ({}): {why}", patch.path);
            Failure::new(Class::InvalidConfig, "ConfigPatchWrong", message, "mend that entry")
        };
        let op = match patch.op {
            PatchOperation::Add => "add",
            PatchOperation::Remove => "remove",
            PatchOperation::Replace => "replace",
        };
        let mut operation = json!({"op": op, "path": patch.path});
        if let Some(value) = &patch.value {
            let value: Value = serde_saphyr::from_str(value)
                .map_err(|_| bad("its value is neither JSON nor YAML".to_owned()))?;
            operation["value"] = value;
        }
        let text = Value::Array(vec![operation]).to_string();
        patches.push(Patch::parse(&name, &text).map_err(|error| bad(self::text(&error)))?);
    }
    Ok(patches)
}

/// Errors end it; warnings are kept.
fn sort(node: &str, problems: Vec<Problem>, warnings: &mut Vec<String>) -> Result<(), Failure> {
    let (errors, rest): (Vec<_>, Vec<_>) =
        problems.into_iter().partition(|problem| problem.severity == Severity::Error);
    warnings.extend(rest.iter().map(|problem| format!("{node}: {problem}")));
    if errors.is_empty() {
        return Ok(());
    }
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Err(Failure::new(
        Class::InvalidConfig,
        "TalosConfigInvalid",
        format!("the machine config of {node} would not work: {}", all.join("; ")),
        "change what the message names in the ClusterBootstrap or the ProviderConfig",
    ))
}

fn cidr(given: &str) -> Result<Cidr, Failure> {
    Cidr::parse(given).map_err(|error| wrong(&error))
}

fn wrong(error: &dyn std::error::Error) -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "TalosConfigGenerationFailed",
        text(error),
        "change what the message names in the ClusterBootstrap or the ProviderConfig",
    )
}

/// An error with all its sources.
pub(crate) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What tells one text from another, in hexadecimal digits.
pub(crate) fn fingerprint(text: &str) -> String {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The part of the spec that machines and their configs follow from.
pub(crate) fn intent_of(spec: &ClusterBootstrapSpec, provider: &ProviderConfigSpec) -> String {
    let value = json!([
        spec.cluster,
        spec.network.pod_cidr,
        spec.network.service_cidr,
        spec.network.vip,
        spec.network.vip_interface,
        spec.network.mtu,
        spec.talos,
        spec.addons.cni.type_,
        spec.addons.storage.type_,
        spec.effective_control_plane_ha(),
        provider.network,
    ]);
    fingerprint(&value.to_string())
}

#[cfg(test)]
#[path = "configs_tests.rs"]
pub(crate) mod tests;
