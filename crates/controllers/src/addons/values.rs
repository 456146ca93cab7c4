//! What sources are asked for: version, namespace and values of the addons that come as charts.
//!
//! The values are those of the published charts, for a cluster of Talos nodes without kube-proxy.

use super::site::Site;
use super::source::Part;
use butler_api::{CapiInfraProviderSpec, ConsoleIngressSpec, ControlPlaneProviderType, ExposureMode, names};
use butler_drivers::Profile;
use serde_json::{Value, json};

/// Versions that are installed when nobody asks for another.
pub(crate) const CILIUM: &str = "1.17.0";
pub(crate) const CERT_MANAGER: &str = "v1.16.2";
pub(crate) const LONGHORN: &str = "1.7.2";
pub(crate) const METALLB: &str = "0.14.9";
pub(crate) const TRAEFIK: &str = "34.3.0";
pub(crate) const INGRESS_NGINX: &str = "4.12.0";
pub(crate) const STEWARD: &str = "0.4.0";
pub(crate) const KAMAJI: &str = "1.0.0";
pub(crate) const CAPI_STEWARD: &str = "v0.3.0";
pub(crate) const FLUX: &str = "v2.4.0";
pub(crate) const BUTLER_CONTROLLER: &str = "0.27.0";
pub(crate) const BUTLER_CONSOLE: &str = "0.13.1";

/// Port on every node that leads to the API servers, with or without a CNI (Talos' KubePrism).
pub(crate) const KUBE_PRISM_PORT: u16 = 7445;

fn part(addon: &str, version: &str, namespace: &str, values: Value) -> Part {
    Part { addon: addon.to_owned(), version: version.to_owned(), namespace: namespace.to_owned(), values }
}

/// A part of the row of the same name, in the version that the row says.
fn row_part(site: &Site<'_>, addon: &'static str, namespace: &str, values: Value) -> Vec<Part> {
    let version = super::graph::find(addon).map(|row| (row.version)(site)).unwrap_or_default();
    vec![part(addon, &version, namespace, values)]
}

pub(crate) fn cilium(site: &Site<'_>) -> Vec<Part> {
    let mut values = json!({
        "ipam": { "mode": "kubernetes" },
        "kubeProxyReplacement": true,
        // Talos lets nobody load kernel modules, so SYS_MODULE is not among these.
        "securityContext": { "capabilities": {
            "ciliumAgent": ["CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_RESOURCE",
                "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"],
            "cleanCiliumState": ["NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"],
        } },
        "cgroup": { "autoMount": { "enabled": false }, "hostRoot": "/sys/fs/cgroup" },
        "k8sServiceHost": "localhost",
        "k8sServicePort": KUBE_PRISM_PORT,
        // One node can hold one operator only: the second would wait for a node for ever.
        "operator": { "replicas": if site.single_node() { 1 } else { 2 } },
    });
    let hubble = site.spec.addons.cni.hubble_enabled;
    values["hubble"] =
        json!({ "enabled": hubble, "relay": { "enabled": hubble }, "ui": { "enabled": hubble } });
    if site.spec.control_plane_exposure.mode == ExposureMode::Gateway {
        values["gatewayAPI"] = json!({ "enabled": true, "enableAlpn": true, "enableAppProtocol": true });
    }
    row_part(site, "cilium", "kube-system", values)
}

pub(crate) fn cloud_controller(site: &Site<'_>) -> Vec<Part> {
    let Some(controller) = site.profile.cloud_controller else { return Vec::new() };
    let values = json!({
        "clusterName": site.spec.cluster.name,
        "credentialsSecretRef": credentials_ref(site),
        // What its firewall rules are scoped to, where a cloud has tags for that: machines carry the cluster's name.
        "nodeTags": [site.spec.cluster.name],
        // The service controller alone: nodes get their providerID from us, pods their networks from Cilium.
        "controllers": ["service"],
        "configureCloudRoutes": false,
        "allocateNodeCIDRs": false,
    });
    vec![part(controller.name, controller.version, controller.namespace, values)]
}

pub(crate) fn cert_manager(site: &Site<'_>) -> Vec<Part> {
    row_part(site, "cert-manager", "cert-manager", json!({ "crds": { "enabled": true } }))
}

pub(crate) fn longhorn(site: &Site<'_>) -> Vec<Part> {
    let replicas = site.spec.storage_replicas();
    let values = json!({
        "defaultSettings": { "defaultReplicaCount": replicas, "defaultDataPath": "/var/lib/longhorn" },
        "persistence": { "defaultClassReplicaCount": replicas },
    });
    row_part(site, "longhorn", "longhorn-system", values)
}

pub(crate) fn metallb(site: &Site<'_>) -> Vec<Part> {
    // Addresses are announced by ARP alone; FRR would be a second daemon for nothing.
    row_part(site, "metallb", "metallb-system", json!({ "speaker": { "frr": { "enabled": false } } }))
}

pub(crate) fn traefik(site: &Site<'_>) -> Vec<Part> {
    let values = json!({
        "ingressClass": { "enabled": true, "isDefaultClass": true },
        "service": { "type": "LoadBalancer" },
    });
    row_part(site, "traefik", "traefik", values)
}

pub(crate) fn ingress_nginx(site: &Site<'_>) -> Vec<Part> {
    let values = json!({ "controller": {
        "ingressClassResource": { "enabled": true, "default": true },
        "service": { "type": "LoadBalancer" },
    } });
    row_part(site, "ingress-nginx", "ingress-nginx", values)
}

pub(crate) fn steward(site: &Site<'_>) -> Vec<Part> {
    let tag = super::graph::find("steward").map(|row| (row.version)(site)).unwrap_or_default();
    let values = json!({
        "image": { "repository": "ghcr.io/butlerdotdev/steward", "tag": format!("v{}", tag.trim_start_matches('v')) },
        "steward-etcd": { "deploy": true },
    });
    row_part(site, "steward", "steward-system", values)
}

pub(crate) fn kamaji(site: &Site<'_>) -> Vec<Part> {
    row_part(site, "kamaji", "kamaji-system", json!({ "etcd": { "deploy": true } }))
}

/// The core, the bootstrap provider, the provider of hosted control planes, and one provider for each infrastructure.
pub(crate) fn capi(site: &Site<'_>) -> Vec<Part> {
    let wanted = &site.spec.addons.capi;
    let mut parts = vec![
        part("capi-core", &wanted.version, "capi-system", json!({})),
        part("capi-bootstrap-kubeadm", &wanted.version, "capi-kubeadm-bootstrap-system", json!({})),
    ];
    let control_planes = &site.spec.addons.control_plane_provider;
    if control_planes.enabled && control_planes.type_ == ControlPlaneProviderType::Steward {
        parts.push(part("capi-control-plane-steward", CAPI_STEWARD, "capi-steward-system", json!({})));
    }
    let own = CapiInfraProviderSpec { name: site.spec.provider, version: None, credentials_secret_ref: None };
    // The own provider is always there; an entry for it in the list says its version.
    let listed = &wanted.infrastructure_providers;
    let missing = listed.iter().all(|provider| provider.name != own.name);
    let all = missing.then_some(&own).into_iter().chain(listed);
    for provider in all {
        let component = Profile::of(provider.name).capi;
        let credentials = match &provider.credentials_secret_ref {
            Some(secret) => json!({
                "name": secret.name,
                "namespace": secret.namespace.as_deref().unwrap_or(site.namespace),
            }),
            None => credentials_ref(site),
        };
        parts.push(part(
            component.name,
            provider.version.as_deref().unwrap_or(component.version),
            component.namespace,
            json!({ "provider": provider.name, "credentialsSecretRef": credentials }),
        ));
    }
    parts
}

pub(crate) fn flux(site: &Site<'_>) -> Vec<Part> {
    row_part(site, "flux", "flux-system", json!({}))
}

pub(crate) fn butler_controller(site: &Site<'_>) -> Vec<Part> {
    let wanted = &site.spec.addons.butler_controller;
    let image = wanted.image.as_deref().unwrap_or("ghcr.io/butlerdotdev/butler-controller");
    let values = json!({ "image": { "repository": image, "tag": wanted.version } });
    row_part(site, "butler-controller", names::SYSTEM_NAMESPACE, values)
}

pub(crate) fn butler_console(site: &Site<'_>) -> Vec<Part> {
    let wanted = &site.spec.addons.console;
    let ingress = wanted.ingress.clone().unwrap_or_default();
    // In a cloud the console is reached by a load balancer of its own; on-prem by an Ingress, or by a port forward.
    let cloud = !site.profile.on_prem;
    let host = console_host(site, &ingress);
    let mut values = json!({
        "image": { "tag": wanted.version },
        "frontend": { "service": { "type": if cloud { "LoadBalancer" } else { "ClusterIP" } } },
        "ingress": { "enabled": ingress.enabled, "host": host },
    });
    if let Some(class) = &ingress.class_name {
        values["ingress"]["className"] = json!(class);
    }
    if ingress.tls {
        let secret = ingress.tls_secret_name.as_deref().unwrap_or("butler-console-tls");
        values["ingress"]["tls"] = json!({ "enabled": true, "secretName": secret });
    }
    row_part(site, "butler-console", names::SYSTEM_NAMESPACE, values)
}

/// The console's host name behind the ingress controller.
pub(crate) fn console_host(site: &Site<'_>, ingress: &ConsoleIngressSpec) -> String {
    ingress.host.clone().unwrap_or_else(|| format!("butler.{}.local", site.spec.cluster.name))
}

/// Where the cluster finds the credentials of its own infrastructure. Values hold the reference, never the credentials.
fn credentials_ref(site: &Site<'_>) -> Value {
    let (name, namespace) = super::provider_config::secret_place(site);
    json!({ "name": name, "namespace": namespace })
}
