//! MachineLoadBalancer: load balancing across machines that are found by their labels.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{LabelSelector, ObjectReference};
use crate::conditions::Condition;

/// The load balancer that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "loadbalancer.butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "MachineLoadBalancer",
    namespaced,
    shortname = "mlb",
    category = "butler",
    status = "MachineLoadBalancerStatus",
    derive = "PartialEq",
    doc = "A MachineLoadBalancer balances connections across the machines that its selector finds, of one cluster or of several.",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Healthy", type_ = "integer", json_path = ".status.readyMembers"),
    printcolumn(name = "Members", type_ = "integer", json_path = ".status.totalMembers"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MachineLoadBalancerSpec {
    /// The port that clients connect to.
    pub port: MachineLoadBalancerPort,
    /// Further ports beside the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<MachineLoadBalancerPort>,
    /// Labels of the machines that are balanced across. It must not be empty: that would mean every machine there is.
    pub machine_selector: LabelSelector,
    /// The object that configures the load balancer or holds its credentials, of whatever kind the driver wants.
    pub provider_ref: ObjectReference,
    /// How a machine leaves. Default: as drain.timeoutSeconds says.
    #[serde(default)]
    pub drain: DrainSpec,
}

/// A port of a MachineLoadBalancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineLoadBalancerPort {
    /// Port on the load balancer, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Port on the machines, 1 to 65535. Default: the value of port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub machine_port: Option<i32>,
    /// tcp (default) or udp. udp is taken and reported as condition UnsupportedProtocol until it is built.
    #[serde(default)]
    pub protocol: MachineProtocol,
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MachineProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// How a machine leaves a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// How long the open connections of a leaving machine are kept, in seconds, 0 to 3600. 0 cuts them at once.
    /// Default: 30.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 3600))]
    pub timeout_seconds: i32,
}

/// The load balancer that there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineLoadBalancerStatus {
    /// Where clients connect to, with scheme and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Health in words, such as "4 of 5 members healthy".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// True while at least one machine is healthy.
    #[serde(default)]
    pub ready: bool,
    /// Number of healthy machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_members: Option<i32>,
    /// Number of machines that the selector finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_members: Option<i32>,
    /// Observations about the load balancer: Ready, Degraded, UnsupportedProtocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl MachineLoadBalancerSpec {
    /// All ports, the first one first.
    pub fn ports(&self) -> impl Iterator<Item = &MachineLoadBalancerPort> {
        std::iter::once(&self.port).chain(&self.listeners)
    }
}

impl MachineLoadBalancerPort {
    /// The port on the machines.
    pub fn effective_machine_port(&self) -> i32 {
        self.machine_port.unwrap_or(self.port)
    }
}

impl Default for DrainSpec {
    fn default() -> Self {
        DrainSpec { timeout_seconds: thirty() }
    }
}

fn thirty() -> i32 {
    30
}
