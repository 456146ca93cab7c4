//! What is installed on a new cluster.
//!
//! Every part has a default of its own, and the parts have defaults as a whole: `addons: {}`, a missing part and a missing
//! `addons` mean the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Provider, SecretReference, yes};

/// What is installed on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBootstrapAddonsSpec {
    /// Pod networking. Default: cilium.
    #[serde(default)]
    pub cni: CniAddonSpec,
    /// Volumes. Default: longhorn with 3 replicas.
    #[serde(default)]
    pub storage: StorageAddonSpec,
    /// Load-balanced services, on-prem and with a network.loadBalancerPool only. Default: metallb.
    #[serde(default)]
    pub load_balancer: LoadBalancerAddonSpec,
    /// What moves the control-plane address between the nodes, on-prem only. Default: kube-vip.
    #[serde(default, rename = "controlPlaneHA")]
    pub control_plane_ha: ControlPlaneHaAddonSpec,
    /// Certificates. Default: enabled.
    #[serde(default)]
    pub cert_manager: CertManagerAddonSpec,
    /// Ingress controller, on-prem only. Default: traefik.
    #[serde(default)]
    pub ingress: IngressAddonSpec,
    /// Operator of hosted control planes. Default: steward.
    #[serde(default)]
    pub control_plane_provider: ControlPlaneProviderAddonSpec,
    /// Cluster API. Default: enabled, v1.9.4.
    #[serde(default)]
    pub capi: CapiAddonSpec,
    /// Butler's platform controller. Default: enabled, latest.
    #[serde(default)]
    pub butler_controller: ButlerControllerAddonSpec,
    /// GitOps controller. Default: flux.
    #[serde(default)]
    pub git_ops: GitOpsAddonSpec,
    /// Butler's web console. Default: not installed.
    #[serde(default)]
    pub console: ConsoleAddonSpec,
}

/// Pod networking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CniAddonSpec {
    /// cilium (default) or none.
    #[serde(default, rename = "type")]
    pub type_: CniType,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Install Hubble, with cilium. Default: true.
    #[serde(default = "yes")]
    pub hubble_enabled: bool,
}

/// Kind of pod networking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CniType {
    /// Cilium, in place of kube-proxy too.
    #[default]
    Cilium,
    /// The user brings one.
    None,
}

/// Volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageAddonSpec {
    /// longhorn (default) or none.
    #[serde(default, rename = "type")]
    pub type_: StorageType,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Replicas of each volume, at least 1. Default: 3. Taken as 1 when topology is single-node.
    #[serde(default = "three")]
    #[schemars(range(min = 1))]
    pub replica_count: i32,
}

/// Kind of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StorageType {
    /// Longhorn.
    #[default]
    Longhorn,
    /// The user brings one.
    None,
}

/// Load-balanced services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// metallb (default) or none.
    #[serde(default, rename = "type")]
    pub type_: LoadBalancerAddonType,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Kind of load-balanced services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadBalancerAddonType {
    /// MetalLB.
    #[default]
    Metallb,
    /// The user brings one.
    None,
}

/// What moves the control-plane address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneHaAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// kube-vip (default); talos-vip: Talos' own virtual IP; external: network.vip is a load balancer that is there
    /// already; none: network.vip answers by some other means. A single node gets talos-vip in place of kube-vip.
    #[serde(default, rename = "type")]
    pub type_: ControlPlaneHaType,
    /// kube-vip version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// What moves the control-plane address; never two at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPlaneHaType {
    /// kube-vip.
    #[default]
    KubeVip,
    /// Talos' built-in virtual IP.
    TalosVip,
    /// A load balancer of the site.
    External,
    /// Nothing of ours.
    None,
}

/// Certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertManagerAddonSpec {
    /// Install cert-manager. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Ingress controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// traefik (default), nginx or none.
    #[serde(default, rename = "type")]
    pub type_: IngressType,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Kind of ingress controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IngressType {
    /// Traefik.
    #[default]
    Traefik,
    /// ingress-nginx.
    Nginx,
    /// The user brings one.
    None,
}

/// Operator of hosted control planes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneProviderAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// steward (default), kamaji or none.
    #[serde(default, rename = "type")]
    pub type_: ControlPlaneProviderType,
    /// Chart version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Kind of operator of hosted control planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlPlaneProviderType {
    /// Steward.
    #[default]
    Steward,
    /// Kamaji.
    Kamaji,
    /// None: no tenants with hosted control planes.
    None,
}

/// Cluster API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapiAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Version of the core. Default: v1.9.4.
    #[serde(default = "capi_version")]
    pub version: String,
    /// Infrastructure providers beside the cluster's own, which is always there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub infrastructure_providers: Vec<CapiInfraProviderSpec>,
}

/// One more infrastructure provider of Cluster API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapiInfraProviderSpec {
    /// The infrastructure: harvester, nutanix, proxmox, gcp, aws or azure.
    pub name: Provider,
    /// Version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Credentials, for an infrastructure other than the cluster's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretReference>,
}

/// Butler's platform controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ButlerControllerAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Image tag. Default: latest.
    #[serde(default = "latest")]
    pub version: String,
    /// Image instead of the published one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// GitOps controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsAddonSpec {
    /// Install it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// flux (default) or none.
    #[serde(default, rename = "type")]
    pub type_: GitOpsType,
    /// Version instead of the one that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Kind of GitOps controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GitOpsType {
    /// Flux.
    #[default]
    Flux,
    /// The user brings one.
    None,
}

/// Butler's web console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleAddonSpec {
    /// Install it. Default: false.
    #[serde(default)]
    pub enabled: bool,
    /// Image tag. Default: latest.
    #[serde(default = "latest")]
    pub version: String,
    /// How it is reached through the ingress controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<ConsoleIngressSpec>,
}

/// How the console is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsoleIngressSpec {
    /// Create an Ingress. Default: false.
    #[serde(default)]
    pub enabled: bool,
    /// Host name. What is used when this is not set: butler.CLUSTER.local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Ingress class, such as traefik. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<String>,
    /// End TLS at the ingress controller. Default: false.
    #[serde(default)]
    pub tls: bool,
    /// Secret with the certificate. What is used when this is not set: one that cert-manager makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret_name: Option<String>,
}

/// The `Default` of each spec. A test checks that it is what decoding an empty object gives.
macro_rules! defaults {
    ($($type:ident { $($field:ident: $value:expr),* $(,)? })*) => {$(
        impl Default for $type {
            fn default() -> Self {
                $type { $($field: $value),* }
            }
        }
    )*};
}

defaults! {
    CniAddonSpec { type_: CniType::Cilium, version: None, hubble_enabled: true }
    StorageAddonSpec { type_: StorageType::Longhorn, version: None, replica_count: three() }
    LoadBalancerAddonSpec { enabled: true, type_: LoadBalancerAddonType::Metallb, version: None }
    ControlPlaneHaAddonSpec { enabled: true, type_: ControlPlaneHaType::KubeVip, version: None }
    CertManagerAddonSpec { enabled: true, version: None }
    IngressAddonSpec { enabled: true, type_: IngressType::Traefik, version: None }
    ControlPlaneProviderAddonSpec { enabled: true, type_: ControlPlaneProviderType::Steward, version: None }
    CapiAddonSpec { enabled: true, version: capi_version(), infrastructure_providers: Vec::new() }
    ButlerControllerAddonSpec { enabled: true, version: latest(), image: None }
    GitOpsAddonSpec { enabled: true, type_: GitOpsType::Flux, version: None }
    ConsoleAddonSpec { enabled: false, version: latest(), ingress: None }
}

fn three() -> i32 {
    3
}

fn capi_version() -> String {
    "v1.9.4".to_owned()
}

fn latest() -> String {
    "latest".to_owned()
}
