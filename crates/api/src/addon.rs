//! AddonDefinition: an entry of the addon catalogue.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::yes;
use crate::config::free_form;

/// An addon that can be installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "AddonDefinition",
    shortname = "ad",
    shortname = "adddef",
    category = "butler",
    derive = "PartialEq",
    doc = "An AddonDefinition is an entry of the addon catalogue: what it is, and which chart installs it.",
    printcolumn(name = "Display Name", type_ = "string", json_path = ".spec.displayName"),
    printcolumn(name = "Category", type_ = "string", json_path = ".spec.category"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.chart.defaultVersion"),
    printcolumn(name = "Platform", type_ = "boolean", json_path = ".spec.platform"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AddonDefinitionSpec {
    /// Name for people, 1 to 64 characters.
    #[schemars(length(min = 1, max = 64))]
    pub display_name: String,
    /// What it does, 1 to 512 characters.
    #[schemars(length(min = 1, max = 512))]
    pub description: String,
    /// Shelf of the catalogue that it stands on.
    pub category: AddonCategory,
    /// One or two characters or an emoji, at most 8 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub icon: Option<String>,
    /// Picture: an SVG in base64, at most 131072 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub icon_data: Option<String>,
    /// The chart that installs it.
    pub chart: AddonChart,
    /// How it is installed unless someone says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<AddonDefaults>,
    /// Part of the platform itself. Default: false.
    #[serde(default)]
    pub platform: bool,
    /// infrastructure or apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<AddonTier>,
    /// Addons that have to be there first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Who looks after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintainer: Option<AddonMaintainer>,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<AddonLinks>,
}

/// Shelf of the addon catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddonCategory {
    /// Pod networking.
    Cni,
    /// Load-balanced services.
    LoadBalancer,
    /// Volumes.
    Storage,
    /// Certificates.
    CertManager,
    /// Ingress controllers.
    Ingress,
    /// Metrics, logs and traces.
    Observability,
    /// Backups.
    Backup,
    /// GitOps.
    GitOps,
    /// Policies and scanning.
    Security,
    /// DNS.
    Dns,
    /// Databases.
    Database,
    /// Queues and streams.
    Messaging,
    /// Service meshes.
    #[serde(rename = "service-mesh")]
    ServiceMesh,
    /// The rest.
    Other,
}

/// The chart of an addon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonChart {
    /// URL of the chart repository, with http or https.
    #[schemars(regex(pattern = "^https?://"))]
    pub repository: String,
    /// Name of the chart.
    pub name: String,
    /// Version that is installed unless someone says otherwise.
    pub default_version: String,
    /// Versions to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub available_versions: Vec<String>,
}

/// How an addon is installed unless someone says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonDefaults {
    /// Namespace that it is installed into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the release. What is used when this is not set: the name of the AddonDefinition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_name: Option<String>,
    /// Create the namespace when it is not there. Default: true.
    #[serde(default = "yes")]
    pub create_namespace: bool,
    /// Values of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub values: Option<Map<String, Value>>,
    /// How long the installation may take, such as 10m (the default).
    #[serde(default = "ten_minutes")]
    pub timeout: String,
}

/// What an addon belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddonTier {
    /// What other addons stand on.
    Infrastructure,
    /// What users see.
    Apps,
}

/// Who looks after an addon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonMaintainer {
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// Where to read more about an addon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonLinks {
    /// Documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documentation: Option<String>,
    /// Source code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Home page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homepage: Option<String>,
}

impl Default for AddonDefaults {
    fn default() -> Self {
        AddonDefaults {
            namespace: None,
            release_name: None,
            create_namespace: true,
            values: None,
            timeout: ten_minutes(),
        }
    }
}

fn ten_minutes() -> String {
    "10m".to_owned()
}
