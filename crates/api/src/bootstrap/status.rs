//! How far a bootstrap has come.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::MachineRole;
use crate::conditions::Condition;
use crate::machine::MachinePhase;

/// How far a bootstrap has come. An output for people: no code decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ClusterBootstrapPhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// Machines are being made and get their addresses.
    ProvisioningMachines,
    /// Machine configs are made and applied.
    ConfiguringTalos,
    /// etcd and Kubernetes come up on the first control-plane node.
    BootstrappingCluster,
    /// Kubernetes answers; addons are installed.
    InstallingAddons,
    /// ha: management moves to the new cluster.
    Pivoting,
    /// Done.
    Ready,
    /// Stopped; failureReason and failureMessage say why.
    Failed,
}

/// The cluster that there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapStatus {
    /// How far the bootstrap has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClusterBootstrapPhase>,
    /// Where the control plane is reached: the vip on-prem, the load balancer's address or name in a cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<String>,
    /// The admin kubeconfig in base64. Left out with annotation butler.butlerlabs.dev/credentials-in-status: "false".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<String>,
    /// The talosconfig in base64. Left out with annotation butler.butlerlabs.dev/credentials-in-status: "false".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub talosconfig: Option<String>,
    /// URL of the console, when it is installed.
    #[serde(default, rename = "consoleURL", skip_serializing_if = "Option::is_none")]
    pub console_url: Option<String>,
    /// Every machine of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub machines: Vec<ClusterBootstrapMachineStatus>,
    /// The machine that etcd is bootstrapped on. Written before it is asked, and never changed after: no second machine is
    /// asked while this one has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_machine: Option<String>,
    /// Why it failed, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// What to do about the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_remedy: Option<String>,
    /// Which addons are installed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addons_installed: BTreeMap<String, bool>,
    /// Observations about the bootstrap: Ready, Progressing, Failed.
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

/// State of one machine of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapMachineStatus {
    /// Name of the MachineRequest.
    pub name: String,
    /// What the machine is for: control-plane or worker.
    pub role: MachineRole,
    /// Phase of the MachineRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// Address of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Whether the machine has taken its config.
    #[serde(default)]
    pub talos_configured: bool,
    /// Whether the node has joined the cluster.
    #[serde(default)]
    pub ready: bool,
}
