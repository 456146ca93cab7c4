//! MachineRequest: one virtual machine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{DiskSpec, MachineRole, ProviderReference};
use crate::conditions::Condition;
use crate::values::{Cidr, ClusterName, ValueError};

/// The machine that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "MachineRequest",
    namespaced,
    shortname = "mr",
    category = "butler",
    status = "MachineRequestStatus",
    derive = "PartialEq",
    doc = "A MachineRequest asks for one virtual machine; the driver of its infrastructure creates it and reports its addresses.",
    printcolumn(name = "Machine", type_ = "string", json_path = ".spec.machineName"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.ipAddress"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineRequestSpec {
    /// The ProviderConfig, and with it the infrastructure, that the machine is made on.
    pub provider_ref: ProviderReference,
    /// Name of the machine on the infrastructure, unique there: 1 to 63 lower-case letters, digits and dashes.
    #[schemars(length(min = 1, max = 63), regex(pattern = ClusterName::PATTERN))]
    pub machine_name: String,
    /// What the machine is for: control-plane or worker.
    pub role: MachineRole,
    /// CPU cores, 1 to 128.
    #[schemars(range(min = 1, max = 128))]
    pub cpu: i32,
    /// Memory in megabytes, at least 1024.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 1024))]
    pub memory_mb: i32,
    /// Size of the root disk in gigabytes, at least 10.
    #[serde(rename = "diskGB")]
    #[schemars(range(min = 10))]
    pub disk_gb: i32,
    /// Further disks, in the order in which the machine sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_disks: Vec<DiskSpec>,
    /// Boot image instead of the one in the ProviderConfig: namespace/name on Harvester, UUID on Nutanix, template id or
    /// name on Proxmox, family or self link on GCP, AMI id on AWS, image reference on Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// User data handed to the machine at its first boot. The bootstrap fills it when talos.configDelivery is userData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Network data handed to the machine at its first boot, where the infrastructure has such a channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// A fixed address in place of DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_address: Option<StaticAddressSpec>,
    /// Labels, tags or categories put on the machine on its infrastructure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A fixed address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticAddressSpec {
    /// The machine's address with the prefix length of its network: 10.40.0.11/24.
    #[schemars(length(min = 1))]
    pub address: String,
    /// Address of the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Addresses of name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
}

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum MachinePhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// Being created, or up and without an address.
    Creating,
    /// Up, with an address.
    Running,
    /// Not creatable, or gone without being asked to go.
    Failed,
    /// Being deleted.
    Deleting,
    /// Gone.
    Deleted,
    /// The infrastructure does not say.
    Unknown,
}

/// The machine that there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineRequestStatus {
    /// Where the machine is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// The infrastructure's own id of the machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Address at which the machine is reached: the public one where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// All addresses; the first is the private one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// Hardware address of the first network card, where the infrastructure shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Id of the infrastructure's operation that is under way, so that a restarted controller waits for the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Why it failed, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed and what to do, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Observations about the machine: Ready, Progressing, Degraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// When this status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl StaticAddressSpec {
    /// The machine's address and its network.
    ///
    /// # Errors
    /// When it is not an address with a prefix length.
    pub fn parse(&self) -> Result<(IpAddr, Cidr), ValueError> {
        let network: Cidr = self.address.parse()?;
        Ok((network.written(), network))
    }
}

impl MachineRequest {
    /// Whether the machine is up and has an address.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.phase == Some(MachinePhase::Running)
                && status.ip_address.as_ref().is_some_and(|ip| !ip.is_empty())
        })
    }
}
