//! The objects that a ClusterBootstrap asks for. Pure.

use crate::object::owner_reference;
use crate::{Class, Failure, Profile};
use butler_api::names::{self, machine_labels, machine_name, with_suffix};
use butler_api::{
    ClusterBootstrap, ClusterBootstrapNodePool, ClusterBootstrapSpec, ImageFactoryReference,
    ImageFactorySpec, ImageSync, ImageSyncSpec, MachineRequest, MachineRequestSpec, MachineRole,
    ProviderNetwork, StaticAddressSpec,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A node that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WantedNode {
    pub(crate) name: String,
    pub(crate) role: MachineRole,
    pub(crate) pool: ClusterBootstrapNodePool,
    pub(crate) static_address: Option<StaticAddressSpec>,
}

impl WantedNode {
    /// The node of a machine that is there, whatever the spec says by now.
    pub(crate) fn of(machine: &MachineRequest) -> WantedNode {
        let spec = &machine.spec;
        WantedNode {
            name: machine.name_any(),
            role: spec.role,
            pool: ClusterBootstrapNodePool {
                replicas: 1,
                cpu: spec.cpu,
                memory_mb: spec.memory_mb,
                disk_gb: spec.disk_gb,
                extra_disks: spec.extra_disks.clone(),
                labels: spec.labels.clone(),
            },
            static_address: spec.static_address.clone(),
        }
    }
}

/// All nodes, control planes first.
pub(crate) fn nodes(
    spec: &ClusterBootstrapSpec,
    network: Option<&ProviderNetwork>,
) -> Result<Vec<WantedNode>, Failure> {
    let count = |replicas: i32| u32::try_from(replicas).unwrap_or_default();
    let control_planes = (0..count(spec.control_plane_count()))
        .map(|index| (MachineRole::ControlPlane, index, &spec.cluster.control_plane));
    let workers = spec
        .effective_workers()
        .into_iter()
        .flat_map(|pool| (0..count(pool.replicas)).map(move |index| (MachineRole::Worker, index, pool)));
    let mut nodes = Vec::new();
    for (place, (role, index, pool)) in control_planes.chain(workers).enumerate() {
        nodes.push(WantedNode {
            name: machine_name(&spec.cluster.name, role, index),
            role,
            pool: pool.clone(),
            static_address: network.map(|network| fixed(network, place)).transpose()?.flatten(),
        });
    }
    Ok(nodes)
}

/// The address of the node at a place in the list, when nodes have fixed ones.
fn fixed(network: &ProviderNetwork, place: usize) -> Result<Option<StaticAddressSpec>, Failure> {
    let Some(range) = &network.node_addresses else { return Ok(None) };
    let wrong = |message: String| {
        let remedy = "mend network.nodeAddresses and network.subnet in the ProviderConfig";
        Failure::new(Class::InvalidConfig, "NodeAddressesWrong", message, remedy)
    };
    let parse = |text: &str| text.parse().map_err(|_| wrong(format!("{text:?} is not an IP address")));
    let (start, end): (IpAddr, IpAddr) = (parse(&range.start)?, parse(&range.end)?);
    let address = after(start, place)
        .filter(|address| *address <= end)
        .ok_or_else(|| wrong(format!("{start} to {end} has no address for node number {}", place + 1)))?;
    let bits = network
        .subnet
        .as_deref()
        .and_then(|subnet| subnet.split_once('/'))
        .map(|(_, bits)| bits)
        .ok_or_else(|| wrong("network.nodeAddresses needs network.subnet beside it".to_owned()))?;
    Ok(Some(StaticAddressSpec {
        address: format!("{address}/{bits}"),
        gateway: network.gateway.clone(),
        nameservers: network.dns_servers.clone(),
    }))
}

fn after(start: IpAddr, steps: usize) -> Option<IpAddr> {
    match start {
        IpAddr::V4(v4) => u32::from(v4).checked_add(u32::try_from(steps).ok()?).map(|n| IpAddr::V4(n.into())),
        IpAddr::V6(v6) => u128::from(v6).checked_add(steps as u128).map(|n| IpAddr::V6(n.into())),
    }
}

/// The MachineRequest of a node.
pub(crate) fn machine_request(
    cb: &ClusterBootstrap,
    node: &WantedNode,
    image: Option<&str>,
    user_data: Option<String>,
) -> MachineRequest {
    let cluster = &cb.spec.cluster.name;
    let mut labels = machine_labels(cluster, node.role, None, None);
    labels.insert(names::LABEL_CLUSTER_BOOTSTRAP.to_owned(), names::label_value(&cb.name_any()));
    let mut tags = node.pool.labels.clone();
    if !cb.spec.provider.is_on_prem() {
        tags.insert(format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned());
    }
    let mut reference = cb.spec.provider_ref.clone();
    reference.namespace = reference.namespace.or_else(|| cb.namespace());
    let spec = MachineRequestSpec {
        provider_ref: reference,
        machine_name: node.name.clone(),
        role: node.role,
        cpu: node.pool.cpu,
        memory_mb: node.pool.memory_mb,
        disk_gb: node.pool.disk_gb,
        extra_disks: node.pool.extra_disks.clone(),
        image: image.map(str::to_owned),
        user_data,
        network_data: None,
        static_address: node.static_address.clone(),
        labels: tags,
    };
    let mut request = MachineRequest::new(&node.name, spec);
    request.metadata = ObjectMeta { labels: Some(labels), ..meta(cb, &node.name) };
    request
}

/// The labels by which an ImageSync is found that stands for the same image.
pub(crate) fn image_labels(cb: &ClusterBootstrap) -> BTreeMap<String, String> {
    let label = |key: &str, value: &str| (key.to_owned(), names::label_value(value));
    [
        label(names::LABEL_SCHEMATIC_ID, &cb.spec.talos.schematic),
        label(names::LABEL_IMAGE_VERSION, &cb.spec.talos.version),
        label(names::LABEL_IMAGE_ARCH, "amd64"),
        label(names::LABEL_PROVIDER_CONFIG, &cb.spec.provider_ref.name),
    ]
    .into()
}

/// The ImageSync for the cluster's image.
pub(crate) fn image_sync(
    cb: &ClusterBootstrap,
    profile: &Profile,
    factory: Option<&ImageFactorySpec>,
) -> ImageSync {
    let talos = &cb.spec.talos;
    let schematic: String = talos.schematic.chars().take(8).collect();
    let version = talos.version.trim_start_matches('v').replace('.', "-");
    let name = with_suffix(&cb.spec.cluster.name, &format!("-{schematic}-{version}"), names::MAX_NAME);
    let mut reference = cb.spec.provider_ref.clone();
    reference.namespace = reference.namespace.or_else(|| cb.namespace());
    let spec = ImageSyncSpec {
        factory_ref: ImageFactoryReference {
            schematic_id: talos.schematic.clone(),
            version: talos.version.clone(),
            arch: butler_api::Architecture::Amd64,
            platform: profile.image_platform.to_owned(),
        },
        provider_config_ref: reference,
        format: profile.image_format.to_owned(),
        transfer_mode: butler_api::TransferMode::Direct,
        display_name: None,
        sha256: factory.and_then(|factory| factory.sha256.clone()),
    };
    let mut labels = image_labels(cb);
    labels.insert(names::LABEL_CLUSTER.to_owned(), names::label_value(&cb.spec.cluster.name));
    labels.insert(names::LABEL_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned());
    let mut image = ImageSync::new(&name, spec);
    let uid = cb.uid().unwrap_or_default();
    image.metadata = ObjectMeta {
        labels: Some(labels),
        annotations: Some([(crate::image::ANNOTATION_OWNER_UID.to_owned(), uid)].into()),
        ..meta(cb, &name)
    };
    image
}

/// A Secret of the cluster's.
pub(crate) fn secret(cb: &ClusterBootstrap, name: &str, data: BTreeMap<String, String>) -> Secret {
    let labels = [
        (names::LABEL_CLUSTER_BOOTSTRAP.to_owned(), names::label_value(&cb.name_any())),
        (names::LABEL_CLUSTER.to_owned(), names::label_value(&cb.spec.cluster.name)),
        (names::LABEL_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned()),
    ];
    Secret {
        metadata: ObjectMeta { labels: Some(labels.into()), ..meta(cb, name) },
        string_data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

pub(super) fn meta(cb: &ClusterBootstrap, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: cb.namespace(),
        owner_references: owner_reference(cb).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}

/// Names of the cluster's Secrets.
pub(crate) fn secrets_name(cb: &str) -> String {
    format!("{cb}-talos-secrets")
}

pub(crate) fn configs_name(cb: &str) -> String {
    format!("{cb}-talos-configs")
}

pub(crate) fn kubeconfig_name(cb: &str) -> String {
    format!("{cb}-kubeconfig")
}

#[cfg(test)]
#[path = "wanted_tests.rs"]
pub(crate) mod tests;
