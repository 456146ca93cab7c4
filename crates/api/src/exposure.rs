//! How tenant control planes are reached: shared by ClusterBootstrap (where the user sets it) and ButlerConfig (where it
//! is written to).

use kube::KubeSchema;
use kube::core::{Reason, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How tenant control planes are exposed after the bootstrap.
//
// The rules ask for presence first: without that, an absent key gives CEL's "no such key" and not the sentence below.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = needs("Ingress", "hostname"),
    validation = needs("Gateway", "hostname"),
    validation = needs("Gateway", "gatewayRef"),
)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneExposureSpec {
    /// LoadBalancer (default): an address for each control plane. Ingress or Gateway: names under one domain, and TLS
    /// passed through.
    #[serde(default)]
    pub mode: ExposureMode,
    /// Wildcard domain of the tenants' API servers, such as *.k8s.platform.example.com. Required for Ingress and Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Ingress class, for Ingress. Default: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_class_name: Option<String>,
    /// Kind of ingress controller, which decides how TLS is passed through: haproxy, nginx, traefik or generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_type: Option<IngressControllerType>,
    /// The Gateway, as namespace/name. Required for Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<String>,
}

/// How tenant control planes are exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ExposureMode {
    /// One load-balanced Service each.
    #[default]
    LoadBalancer,
    /// Host names behind an ingress controller.
    Ingress,
    /// Host names behind a Gateway.
    Gateway,
}

/// Kind of ingress controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IngressControllerType {
    /// HAProxy.
    Haproxy,
    /// ingress-nginx.
    Nginx,
    /// Traefik.
    Traefik,
    /// Another one, without annotations.
    Generic,
}

impl ExposureMode {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ExposureMode::LoadBalancer => "LoadBalancer",
            ExposureMode::Ingress => "Ingress",
            ExposureMode::Gateway => "Gateway",
        }
    }
}

fn needs(mode: &str, field: &str) -> Rule {
    Rule::new(format!(
        "!has(self.mode) || self.mode != '{mode}' || (has(self.{field}) && self.{field} != '')"
    ))
    .message(format!("{field} is required when mode is {mode}").as_str())
    .field_path(format!(".{field}"))
    .reason(Reason::FieldValueRequired)
}
