//! LoadBalancerRequest: the cloud load balancer in front of a control plane.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{MachineRole, ProviderReference};
use crate::conditions::Condition;
use crate::values::ClusterName;

/// The load balancer that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "LoadBalancerRequest",
    namespaced,
    shortname = "lbr",
    category = "butler",
    status = "LoadBalancerRequestStatus",
    derive = "PartialEq",
    doc = "A LoadBalancerRequest asks a cloud for the L4 load balancer in front of a cluster's control plane; its endpoint goes into the machine configs. On-prem clusters have a virtual IP instead.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Targets", type_ = "integer", json_path = ".status.registeredTargets"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerRequestSpec {
    /// Name of the cluster that is served; the names of the cloud resources begin with it. 1 to 63 lower-case letters,
    /// digits and dashes. Cannot be changed.
    #[schemars(length(min = 1, max = 63), regex(pattern = ClusterName::PATTERN))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterName is immutable: delete the LoadBalancerRequest and create a new one"))]
    pub cluster_name: String,
    /// The ProviderConfig with the cloud's credentials. Cannot be changed.
    #[x_kube(validation = Rule::new("self == oldSelf").message("providerConfigRef is immutable: delete the LoadBalancerRequest and create a new one"))]
    pub provider_config_ref: ProviderReference,
    /// Port on the load balancer and on the control-plane nodes. Default: 6443.
    #[serde(default = "api_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Port that health checks ask. Default: the value of port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub health_check_port: Option<i32>,
    /// The machines behind the load balancer. The bootstrap adds each one when it has its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<LoadBalancerTarget>,
    /// Ports beside the first one, such as 50000 for the Talos API of the control plane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<LoadBalancerListener>,
    /// How the load balancer is set up. Clouds that lack a setting report it as a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<LoadBalancerOptions>,
}

/// One machine behind a load balancer. Each cloud uses its own subset: GCP ip and instanceName, AWS ip and instanceID,
/// Azure ip.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerTarget {
    /// Address of the machine.
    #[schemars(length(min = 1))]
    pub ip: String,
    /// The cloud's id of the machine; AWS registers by it.
    #[serde(default, rename = "instanceID", skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// The cloud's name of the machine; GCP registers by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// What the machine is for; a listener takes the targets of its own role. Default: control-plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<MachineRole>,
}

/// One more port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerListener {
    /// Port on the load balancer, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Port on the machines, 1 to 65535. Default: the value of port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub target_port: Option<i32>,
    /// Which targets it sends to: control-plane (default) or worker.
    #[serde(default)]
    pub role: MachineRole,
}

/// How a load balancer is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerOptions {
    /// Reachable from inside the cloud network only. Default: false.
    #[serde(default)]
    pub internal: bool,
    /// Client networks that may connect, in CIDR notation. Default: everyone who can route to it.
    #[serde(default, rename = "allowedCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub allowed_cidrs: Vec<String>,
    /// Send to machines in other zones too. Default: false.
    #[serde(default)]
    pub cross_zone: bool,
    /// Ask the cloud to refuse deletion; butleradm destroy then says so and stops. Default: false.
    #[serde(default)]
    pub deletion_protection: bool,
    /// Keep the client's address on the way to the machine. A machine then cannot reach itself through the load balancer,
    /// which breaks control planes that use their own endpoint. Default: false.
    #[serde(default, rename = "preserveClientIP")]
    pub preserve_client_ip: bool,
    /// How long a machine that leaves keeps its open connections, in seconds, 0 to 3600. Default: 30.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 3600))]
    pub deregistration_delay_seconds: i32,
    /// How machines are checked.
    #[serde(default)]
    pub health_check: LoadBalancerHealthCheck,
    /// GCP: backend-service (what is used when this is not set) or target-pool, whose legacy health check needs a port
    /// that speaks plain HTTP. Other clouds have one implementation only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<LoadBalancerImplementation>,
}

/// How the machines behind a load balancer are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerHealthCheck {
    /// tcp (default): the port accepts connections. http or https: the path answers with a success.
    #[serde(default)]
    pub protocol: HealthCheckProtocol,
    /// Path for http and https, beginning with a slash. What is used when this is not set: /readyz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^/"))]
    pub path: Option<String>,
    /// Seconds between two checks, 1 to 300. Default: 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 300))]
    pub interval: i32,
    /// Seconds until a check counts as failed, 1 to 300, not more than interval. Default: 5.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout: i32,
    /// Good checks in a row that bring a machine in, 1 to 10. Default: 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 10))]
    pub healthy: i32,
    /// Failed checks in a row that take a machine out, 1 to 10. Default: 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 10))]
    pub unhealthy: i32,
}

/// How a health check asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthCheckProtocol {
    /// Opens a connection.
    #[default]
    Tcp,
    /// Asks for a path.
    Http,
    /// Asks for a path, over TLS.
    Https,
}

/// Which of a cloud's ways to build the load balancer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadBalancerImplementation {
    /// GCP: regional backend service.
    BackendService,
    /// GCP: target pool with a legacy health check.
    TargetPool,
}

/// Where a load balancer is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancerPhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// Its cloud resources are being made.
    Creating,
    /// It has an endpoint.
    Ready,
    /// It could not be made.
    Failed,
    /// Its cloud resources are being removed.
    Deleting,
}

/// The load balancer that there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerRequestStatus {
    /// Where the load balancer is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LoadBalancerPhase>,
    /// Its address or DNS name, there when phase is Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The cloud's id of the load balancer; cleaning up begins with it.
    #[serde(default, rename = "resourceID", skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
    /// Id of the cloud's operation that is under way, so that a restarted controller waits for the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Why it failed, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed and what to do, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// Number of targets that are registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_targets: Option<i32>,
    /// State of each port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".to_owned()]))]
    pub listeners: Vec<LoadBalancerListenerStatus>,
    /// What other tools need to know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<LoadBalancerOutputs>,
    /// Observations about the load balancer: Provisioned, TargetsSynced.
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

/// State of one port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerListenerStatus {
    /// Port on the load balancer.
    pub port: i32,
    /// Number of targets that are registered for it.
    #[serde(default)]
    pub registered: i32,
    /// Number of targets that pass their checks.
    #[serde(default)]
    pub healthy: i32,
    /// The cloud's id of what holds its targets: target group, backend service, pool.
    #[serde(default, rename = "resourceID", skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<String>,
}

/// What other tools need to know of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerOutputs {
    /// DNS name, where the cloud gives one.
    #[serde(default, rename = "dnsName", skip_serializing_if = "Option::is_none")]
    pub dns_name: Option<String>,
    /// The cloud's full id of the load balancer (an ARN on AWS).
    #[serde(default, rename = "loadBalancerID", skip_serializing_if = "Option::is_none")]
    pub load_balancer_id: Option<String>,
    /// URL of the Kubernetes API: https, host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_endpoint: Option<String>,
    /// Host and port of the Talos API, when there is a listener for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub talos_endpoint: Option<String>,
    /// The cloud's id of what holds the targets of the Kubernetes API.
    #[serde(default, rename = "kubernetesTargetGroupID", skip_serializing_if = "Option::is_none")]
    pub kubernetes_target_group_id: Option<String>,
    /// The cloud's id of what holds the targets of the Talos API.
    #[serde(default, rename = "talosTargetGroupID", skip_serializing_if = "Option::is_none")]
    pub talos_target_group_id: Option<String>,
}

impl LoadBalancerRequestSpec {
    /// The port that health checks ask.
    pub fn effective_health_check_port(&self) -> i32 {
        self.health_check_port.unwrap_or(self.port)
    }
}

impl LoadBalancerListener {
    /// The port on the machines.
    pub fn effective_target_port(&self) -> i32 {
        self.target_port.unwrap_or(self.port)
    }
}

impl Default for LoadBalancerOptions {
    fn default() -> Self {
        LoadBalancerOptions {
            internal: false,
            allowed_cidrs: Vec::new(),
            cross_zone: false,
            deletion_protection: false,
            preserve_client_ip: false,
            deregistration_delay_seconds: thirty(),
            health_check: LoadBalancerHealthCheck::default(),
            implementation: None,
        }
    }
}

impl Default for LoadBalancerHealthCheck {
    fn default() -> Self {
        LoadBalancerHealthCheck {
            protocol: HealthCheckProtocol::Tcp,
            path: None,
            interval: ten(),
            timeout: five(),
            healthy: two(),
            unhealthy: two(),
        }
    }
}

fn api_port() -> i32 {
    6443
}

fn thirty() -> i32 {
    30
}

fn ten() -> i32 {
    10
}

fn five() -> i32 {
    5
}

fn two() -> i32 {
    2
}
