//! ClusterBootstrap: a whole management cluster, from machines to addons.

mod addons;
mod status;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use addons::*;
pub use status::*;

use crate::common::{DiskSpec, Provider, ProviderReference};
use crate::exposure::ControlPlaneExposureSpec;
use crate::loadbalancer::{LoadBalancerListener, LoadBalancerOptions};
use crate::names::ANNOTATION_CREDENTIALS_IN_STATUS;
use crate::values::{AddressRange, Cidr, ClusterName, Endpoint, TalosVersion, ValueError, address_slip};

/// The cluster that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "ClusterBootstrap",
    namespaced,
    shortname = "cb",
    category = "butler",
    status = "ClusterBootstrapStatus",
    derive = "PartialEq",
    doc = "A ClusterBootstrap describes a management cluster and drives it from machines through Talos and Kubernetes to its addons.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "Topology", type_ = "string", json_path = ".spec.cluster.topology"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.controlPlaneEndpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapSpec {
    /// The infrastructure: harvester, nutanix, proxmox, gcp, aws or azure.
    pub provider: Provider,
    /// The ProviderConfig with the infrastructure's settings and credentials.
    pub provider_ref: ProviderReference,
    /// Name, topology and nodes.
    pub cluster: ClusterBootstrapClusterSpec,
    /// Networks, control-plane endpoint and addresses for services.
    pub network: ClusterBootstrapNetworkSpec,
    /// Talos version, image and configuration.
    pub talos: ClusterBootstrapTalosSpec,
    /// What is installed on the cluster. What is left out is installed with its defaults.
    #[serde(default)]
    pub addons: ClusterBootstrapAddonsSpec,
    /// Settings of the cloud load balancer in front of the control plane. Not used on-prem, nor when network.vip names an
    /// endpoint that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_load_balancer: Option<ControlPlaneLoadBalancerSpec>,
    /// How tenant control planes are exposed after the bootstrap; written to ButlerConfig. Default: LoadBalancer.
    #[serde(default)]
    pub control_plane_exposure: ControlPlaneExposureSpec,
    /// Stop after the step that is under way, and go on when this is false again. Default: false.
    #[serde(default)]
    pub paused: bool,
}

/// Name, topology and nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapClusterSpec {
    /// Name of the cluster: 1 to 63 lower-case letters, digits and dashes.
    #[schemars(length(min = 1, max = 63), regex(pattern = ClusterName::PATTERN))]
    pub name: String,
    /// ha (default): three or more control-plane nodes, and workers. single-node: one control-plane node that also runs
    /// workloads.
    #[serde(default)]
    pub topology: Topology,
    /// The control-plane nodes.
    pub control_plane: ClusterBootstrapNodePool,
    /// The worker nodes. Ignored when topology is single-node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<ClusterBootstrapNodePool>,
}

/// Shape of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Survives the loss of a control-plane node.
    #[default]
    Ha,
    /// One node for everything.
    SingleNode,
}

/// Nodes that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapNodePool {
    /// Number of nodes, 1 to 10. Taken as 1 when topology is single-node.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: i32,
    /// CPU cores of each node, 1 to 128.
    #[schemars(range(min = 1, max = 128))]
    pub cpu: i32,
    /// Memory of each node in megabytes, at least 2048.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 2048))]
    pub memory_mb: i32,
    /// Root disk of each node in gigabytes, at least 20.
    #[serde(rename = "diskGB")]
    #[schemars(range(min = 20))]
    pub disk_gb: i32,
    /// Further disks of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_disks: Vec<DiskSpec>,
    /// Labels that the nodes get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Networks, control-plane endpoint and addresses for services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapNetworkSpec {
    /// Network of the pods, in CIDR notation, such as 10.244.0.0/16. It must not overlap any other address here.
    #[serde(rename = "podCIDR")]
    #[schemars(regex(pattern = Cidr::PATTERN))]
    pub pod_cidr: String,
    /// Network of the services, in CIDR notation, such as 10.96.0.0/12. It must not overlap any other address here.
    #[serde(rename = "serviceCIDR")]
    #[schemars(regex(pattern = Cidr::PATTERN))]
    pub service_cidr: String,
    /// Where the control plane is reached: an IP address or a DNS name. On-prem: a free address that moves between the
    /// nodes. Cloud: leave it out to get a load balancer, or name an endpoint that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vip: Option<String>,
    /// Network interface that carries the vip, on-prem. What is used when this is not set: the one with the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vip_interface: Option<String>,
    /// Largest packet of the nodes' network, 576 to 9000. Default: as the network has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 9000))]
    pub mtu: Option<i32>,
    /// Addresses for load-balanced services, on-prem. The vip must not be among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_pool: Option<LoadBalancerPoolSpec>,
}

/// Addresses for load-balanced services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerPoolSpec {
    /// First address.
    pub start: String,
    /// Last address; not before the first.
    pub end: String,
}

/// Settings of the cloud load balancer in front of the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneLoadBalancerSpec {
    /// Ports beside 6443, such as 50000 for the Talos API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<LoadBalancerListener>,
    /// How the load balancer is set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<LoadBalancerOptions>,
}

/// Talos version, image and configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapTalosSpec {
    /// Talos version, such as v1.9.2.
    #[schemars(regex(pattern = TalosVersion::PATTERN))]
    pub version: String,
    /// Schematic id of the boot image in the image factory.
    pub schematic: String,
    /// Disk that Talos is installed on. Default: /dev/vda.
    #[serde(default = "vda")]
    pub install_disk: String,
    /// Changes to the generated machine configs, in the order given (RFC 6902 JSON Patch).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_patches: Vec<TalosConfigPatch>,
    /// How a machine gets its config. push (default): over the network, when it waits for it. userData: with its creation,
    /// so that no secret travels to a peer that cannot be verified yet; on GCP, with several control planes, network.subnet of the
    /// ProviderConfig must then name the nodes' network.
    #[serde(default)]
    pub config_delivery: ConfigDelivery,
}

/// How a machine gets its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ConfigDelivery {
    /// Sent to the machine while it is in maintenance mode.
    #[default]
    Push,
    /// Handed over by the infrastructure.
    UserData,
}

/// One change to the generated machine configs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.op == 'remove' || has(self.value)")
    .message("value is required when op is add or replace")
    .field_path(".value")
    .reason(Reason::FieldValueRequired))]
#[serde(rename_all = "camelCase")]
pub struct TalosConfigPatch {
    /// add, remove or replace.
    pub op: PatchOperation,
    /// Where, as a JSON Pointer, such as /machine/network/hostname.
    pub path: String,
    /// What to set, as JSON or YAML text. Required for add and replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Operation of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PatchOperation {
    /// Adds a field or a list entry.
    Add,
    /// Removes a field or a list entry.
    Remove,
    /// Replaces a field or a list entry that is there.
    Replace,
}

impl ClusterBootstrap {
    /// Whether kubeconfig and talosconfig may be put into `status` (an annotation says no).
    pub fn credentials_in_status(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(ANNOTATION_CREDENTIALS_IN_STATUS))
            .is_none_or(|value| value != "false")
    }
}

impl ClusterBootstrapSpec {
    /// Number of control-plane nodes, as the topology has it.
    pub fn control_plane_count(&self) -> i32 {
        match self.cluster.topology {
            Topology::SingleNode => 1,
            Topology::Ha => self.cluster.control_plane.replicas,
        }
    }

    /// The worker pool, unless the topology ignores it.
    pub fn effective_workers(&self) -> Option<&ClusterBootstrapNodePool> {
        match self.cluster.topology {
            Topology::SingleNode => None,
            Topology::Ha => self.cluster.workers.as_ref(),
        }
    }

    /// Number of volume replicas, as the topology has it.
    pub fn storage_replicas(&self) -> i32 {
        match self.cluster.topology {
            Topology::SingleNode => 1,
            Topology::Ha => self.addons.storage.replica_count,
        }
    }

    /// What moves the control-plane address between the nodes: nothing in a cloud, and on a single node Talos' own virtual
    /// IP, since kube-vip is left out there and the endpoint has to answer all the same.
    pub fn effective_control_plane_ha(&self) -> ControlPlaneHaType {
        let asked = self.addons.control_plane_ha.type_;
        match self.cluster.topology {
            _ if !self.provider.is_on_prem() || !self.addons.control_plane_ha.enabled => {
                ControlPlaneHaType::None
            }
            Topology::SingleNode if asked == ControlPlaneHaType::KubeVip && self.network.vip.is_some() => {
                ControlPlaneHaType::TalosVip
            }
            Topology::SingleNode if asked == ControlPlaneHaType::KubeVip => ControlPlaneHaType::None,
            _ => asked,
        }
    }
}

impl ClusterBootstrapClusterSpec {
    /// The name, parsed.
    pub fn parsed_name(&self) -> Result<ClusterName, ValueError> {
        self.name.parse()
    }
}

impl ClusterBootstrapNetworkSpec {
    /// The pod network, parsed.
    pub fn pod_network(&self) -> Result<Cidr, ValueError> {
        self.pod_cidr.parse()
    }

    /// The service network, parsed.
    pub fn service_network(&self) -> Result<Cidr, ValueError> {
        self.service_cidr.parse()
    }

    /// The control-plane endpoint, parsed; an empty text counts as none.
    pub fn endpoint(&self) -> Option<Result<Endpoint, ValueError>> {
        self.vip.as_deref().filter(|vip| !vip.is_empty()).map(str::parse)
    }
}

impl LoadBalancerPoolSpec {
    /// Both ends, parsed and in order.
    pub fn range(&self) -> Result<AddressRange, ValueError> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                ValueError::new("an IP address", text, address_slip(text), "write it as 10.40.0.210")
            })
        };
        AddressRange::new(parse(&self.start)?, parse(&self.end)?)
    }
}

impl ClusterBootstrapTalosSpec {
    /// The version, parsed.
    pub fn parsed_version(&self) -> Result<TalosVersion, ValueError> {
        self.version.parse()
    }
}

fn vda() -> String {
    "/dev/vda".to_owned()
}
