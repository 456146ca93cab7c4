//! ButlerConfig: platform-wide settings, one object named `butler`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::{ProviderReference, SecretReference, yes};
use crate::conditions::Condition;
use crate::exposure::ControlPlaneExposureSpec;

/// The settings of the platform.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "ButlerConfig",
    shortname = "bc",
    category = "butler",
    status = "ButlerConfigStatus",
    derive = "PartialEq",
    doc = "ButlerConfig holds the settings of the platform. There is one, named butler.",
    validation = Rule::new("self.metadata.name == 'butler'").message("there is one ButlerConfig, and its name is butler"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.multiTenancy.mode"),
    printcolumn(name = "Git", type_ = "string", json_path = ".spec.gitProvider.type"),
    printcolumn(name = "Teams", type_ = "integer", json_path = ".status.teamCount"),
    printcolumn(name = "Clusters", type_ = "integer", json_path = ".status.clusterCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ButlerConfigSpec {
    /// Where boot images come from. Without it, images must be on the infrastructure already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_factory: Option<ImageFactorySpec>,
    /// How tenant control planes are exposed. The bootstrap writes what its ClusterBootstrap says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_exposure: Option<ControlPlaneExposureSpec>,
    /// How teams are kept apart.
    #[serde(default)]
    pub multi_tenancy: MultiTenancySpec,
    /// Namespace of tenant clusters. Default: butler-tenants.
    #[serde(default = "tenants")]
    pub default_namespace: String,
    /// ProviderConfig of tenant clusters that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_provider_config_ref: Option<ProviderReference>,
    /// Limits of teams that set none. Kept for the platform controller, not read by the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub default_team_limits: Option<Map<String, Value>>,
    /// Versions of addons that tenant clusters name none for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_addon_versions: Option<AddonVersions>,
    /// Git service for GitOps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_provider: Option<GitProviderSpec>,
    /// Observability settings. Kept for the platform controller, not read by the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub observability: Option<Map<String, Value>>,
    /// Resources of tenant control planes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_control_plane_resources: Option<ControlPlaneResources>,
    /// SSH key put on tenant machines that have SSH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_authorized_key: Option<String>,
    /// Time servers of tenant machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_time_servers: Vec<String>,
    /// Audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditSpec>,
    /// Notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications: Option<NotificationsSpec>,
}

/// An image factory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageFactorySpec {
    /// URL of the factory, with http or https.
    #[schemars(regex(pattern = "^https?://"))]
    pub url: String,
    /// Secret with key apiKey, where the factory asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<SecretReference>,
    /// Schematic for clusters that name none.
    #[serde(default, rename = "defaultSchematicID", skip_serializing_if = "Option::is_none")]
    pub default_schematic_id: Option<String>,
    /// Bring images to the infrastructure without being asked. Default: true.
    #[serde(default = "yes")]
    pub auto_sync: bool,
    /// SHA-256 of the image that a bootstrap brings, 64 hexadecimal digits. Default: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9A-Fa-f]{64}$"))]
    pub sha256: Option<String>,
}

/// How teams are kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiTenancySpec {
    /// Enforced: every tenant cluster belongs to a team. Optional: it may. Disabled (default): there are no teams.
    #[serde(default)]
    pub mode: MultiTenancyMode,
}

/// How teams are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum MultiTenancyMode {
    /// Every tenant cluster belongs to a team.
    Enforced,
    /// A tenant cluster may belong to a team.
    Optional,
    /// There are no teams.
    #[default]
    Disabled,
}

/// Versions of addons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonVersions {
    /// Cilium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cilium: Option<String>,
    /// MetalLB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metallb: Option<String>,
    /// cert-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<String>,
    /// Longhorn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longhorn: Option<String>,
    /// Traefik.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traefik: Option<String>,
    /// Flux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fluxcd: Option<String>,
}

/// A Git service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitProviderSpec {
    /// github, gitlab or bitbucket.
    #[serde(rename = "type")]
    pub type_: GitProviderType,
    /// URL of a self-hosted service. Default: the public one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Organization or group that repositories are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Secret with the access token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// Kind of Git service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitProviderType {
    /// GitHub.
    Github,
    /// GitLab.
    Gitlab,
    /// Bitbucket.
    Bitbucket,
}

/// Resources of the parts of a tenant control plane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneResources {
    /// kube-apiserver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<ComponentResources>,
    /// kube-controller-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_manager: Option<ComponentResources>,
    /// kube-scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<ComponentResources>,
}

/// Resources of one part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentResources {
    /// What is reserved for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceAmounts>,
    /// What it may not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceAmounts>,
}

/// An amount of CPU and memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// CPU as a Kubernetes quantity, such as 500m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory as a Kubernetes quantity, such as 512Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditSpec {
    /// Write it. Default: false.
    #[serde(default)]
    pub enabled: bool,
    /// Where entries are sent to.
    #[serde(default, rename = "webhookURL", skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
    /// Entries kept while the receiver is away, 100 to 100000. Default: 10000.
    #[serde(default = "ten_thousand")]
    #[schemars(range(min = 100, max = 100_000))]
    pub buffer_size: i32,
}

/// Notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationsSpec {
    /// Where they are sent to.
    #[serde(default, rename = "webhookURL", skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
}

/// What is known of the platform.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ButlerConfigStatus {
    /// Observations about the platform: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The exposure mode that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_exposure_mode: Option<String>,
    /// Whether tenants need the TCP proxy: true for Ingress and Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_proxy_required: Option<bool>,
    /// Number of teams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_count: Option<i32>,
    /// Number of tenant clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_count: Option<i32>,
    /// When this status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// An object whose fields are kept as they are written.
pub(crate) fn free_form(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn tenants() -> String {
    "butler-tenants".to_owned()
}

fn ten_thousand() -> i32 {
    10_000
}
