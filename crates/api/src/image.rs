//! ImageSync: a boot image brought from an image factory to an infrastructure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::ProviderReference;
use crate::conditions::Condition;

/// The image that is wanted, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "ImageSync",
    namespaced,
    shortname = "is",
    category = "butler",
    status = "ImageSyncStatus",
    derive = "PartialEq",
    doc = "An ImageSync brings one Talos image from an image factory to an infrastructure, once for all clusters that use it.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Schematic",
        type_ = "string",
        json_path = ".spec.factoryRef.schematicID",
        priority = 1
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.factoryRef.version"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.providerConfigRef.name"),
    printcolumn(name = "Image Ref", type_ = "string", json_path = ".status.providerImageRef"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImageSyncSpec {
    /// Which image of the factory.
    pub factory_ref: ImageFactoryReference,
    /// The ProviderConfig of the infrastructure that gets the image.
    pub provider_config_ref: ProviderReference,
    /// File format of the image. Default: qcow2.
    #[serde(default = "qcow2")]
    pub format: String,
    /// How the image travels. direct (default): the infrastructure pulls it from the factory. proxy: it is downloaded and
    /// uploaded here, for infrastructures that cannot reach the factory.
    #[serde(default)]
    pub transfer_mode: TransferMode,
    /// Name of the image on the infrastructure. Default: made from platform, version, architecture and schematic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// SHA-256 of the file, as 64 hexadecimal digits. When given, an image that differs is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-fA-F]{64}$"))]
    pub sha256: Option<String>,
}

/// One image of an image factory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageFactoryReference {
    /// Schematic id, at least 8 characters.
    #[serde(rename = "schematicID")]
    #[schemars(length(min = 8))]
    pub schematic_id: String,
    /// Talos version of the image.
    pub version: String,
    /// CPU architecture: amd64 (default) or arm64.
    #[serde(default)]
    pub arch: Architecture,
    /// Talos platform of the image. Default: nocloud.
    #[serde(default = "nocloud")]
    pub platform: String,
}

/// CPU architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// x86-64.
    #[default]
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

/// How an image travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferMode {
    /// The infrastructure pulls it.
    #[default]
    Direct,
    /// It is downloaded and uploaded by the controller.
    Proxy,
}

/// Where an image is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ImageSyncPhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// The factory builds it.
    Building,
    /// It is fetched from the factory.
    Downloading,
    /// It goes to the infrastructure.
    Uploading,
    /// It can be booted from.
    Ready,
    /// It did not get there.
    Failed,
}

/// The image that there is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSyncStatus {
    /// Where the image is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ImageSyncPhase>,
    /// Observations about the image: Ready, Progressing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// The infrastructure's own name of the image; machines are created from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_image_ref: Option<String>,
    /// Where the image was fetched from.
    #[serde(default, rename = "artifactURL", skip_serializing_if = "Option::is_none")]
    pub artifact_url: Option<String>,
    /// SHA-256 of the fetched file.
    #[serde(default, rename = "artifactSHA256", skip_serializing_if = "Option::is_none")]
    pub artifact_sha256: Option<String>,
    /// Id of the infrastructure's task that is under way, so that a restarted controller waits for the same one.
    #[serde(default, rename = "providerTaskID", skip_serializing_if = "Option::is_none")]
    pub provider_task_id: Option<String>,
    /// Why it failed, as one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed and what to do, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When this status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
}

impl ImageSync {
    /// Whether the image can be booted from.
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.phase == Some(ImageSyncPhase::Ready)
                && status.provider_image_ref.as_ref().is_some_and(|name| !name.is_empty())
        })
    }
}

fn qcow2() -> String {
    "qcow2".to_owned()
}

fn nocloud() -> String {
    "nocloud".to_owned()
}
