//! What makes a cluster a management cluster: our CRDs, the catalogue of addons, and the platform's settings.

use super::objects::{named, namespace};
use super::site::Site;
use super::values;
use butler_api::{
    AddonCategory, AddonChart, AddonDefaults, AddonDefinitionSpec, AddonTier, AddonVersions,
    ButlerConfigSpec, MultiTenancyMode, MultiTenancySpec, ProviderReference, names,
};
use butler_drivers::{Class, Failure};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Our CRDs: the generated ones, never another project's, whose schemas would prune our fields.
pub(crate) fn crds(_: &Site<'_>) -> Result<Vec<Value>, Failure> {
    static CRDS: OnceLock<Vec<Value>> = OnceLock::new();
    if let Some(ready) = CRDS.get() {
        return Ok(ready.clone());
    }
    let all = butler_api::crds();
    let made =
        all.iter().map(|crd| json_of("CustomResourceDefinition", crd)).collect::<Result<Vec<_>, _>>()?;
    Ok(CRDS.get_or_init(|| made).clone())
}

/// The catalogue: what can be installed on tenant clusters from the first day.
pub(crate) fn catalogue(_: &Site<'_>) -> Result<Vec<Value>, Failure> {
    entries().iter().map(definition).collect()
}

/// The platform's settings, the namespace of tenants, and roles for people.
pub(crate) fn platform(site: &Site<'_>) -> Result<Vec<Value>, Failure> {
    let spec = ButlerConfigSpec {
        default_namespace: "butler-tenants".to_owned(),
        multi_tenancy: MultiTenancySpec { mode: site.multi_tenancy.unwrap_or(MultiTenancyMode::Optional) },
        default_provider_config_ref: Some(ProviderReference {
            name: site.provider_config.name_any(),
            namespace: Some(site.provider_config.namespace().unwrap_or_else(|| site.namespace.to_owned())),
        }),
        default_addon_versions: Some(AddonVersions {
            cilium: Some(values::CILIUM.to_owned()),
            metallb: Some(values::METALLB.to_owned()),
            cert_manager: Some(values::CERT_MANAGER.to_owned()),
            longhorn: Some(values::LONGHORN.to_owned()),
            traefik: Some(values::TRAEFIK.to_owned()),
            fluxcd: Some(values::FLUX.to_owned()),
        }),
        ..ButlerConfigSpec::default()
    };
    Ok(vec![
        namespace(names::SYSTEM_NAMESPACE),
        namespace("butler-tenants"),
        role("view", "butler:view", &["get", "list", "watch"], &readable()),
        role("admin", "butler:admin", &["*"], &["*"]),
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
            "kind": "ButlerConfig",
            "metadata": named(names::BUTLER_CONFIG_NAME),
            "spec": json_of("ButlerConfig", &spec)?,
        }),
    ])
}

/// What everybody who may look at a cluster may look at. A ClusterBootstrap is not among it: its status can hold an
/// administrator's kubeconfig.
fn readable() -> [&'static str; 7] {
    [
        "addondefinitions",
        "butlerconfigs",
        "imagesyncs",
        "loadbalancerrequests",
        "machineloadbalancers",
        "machinerequests",
        "providerconfigs",
    ]
}

/// A role for our kinds that is part of Kubernetes' own role of that name.
fn role(part_of: &str, name: &str, verbs: &[&str], resources: &[&str]) -> Value {
    let mut metadata = named(name);
    metadata["labels"] = json!({ format!("rbac.authorization.k8s.io/aggregate-to-{part_of}"): "true" });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [{
            "apiGroups": [names::GROUP, names::LOAD_BALANCER_GROUP],
            "resources": resources,
            "verbs": verbs,
        }],
    })
}

/// A line of the catalogue.
struct Entry {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    category: AddonCategory,
    repository: &'static str,
    version: &'static str,
    namespace: &'static str,
    depends_on: &'static [&'static str],
}

fn entries() -> [Entry; 6] {
    [
        Entry {
            name: "cilium",
            title: "Cilium",
            about: "Pod networking and network policy by eBPF, in place of kube-proxy too.",
            category: AddonCategory::Cni,
            repository: "https://helm.cilium.io/",
            version: values::CILIUM,
            namespace: "kube-system",
            depends_on: &[],
        },
        Entry {
            name: "metallb",
            title: "MetalLB",
            about: "Addresses for load-balanced Services where no cloud gives any.",
            category: AddonCategory::LoadBalancer,
            repository: "https://metallb.github.io/metallb",
            version: values::METALLB,
            namespace: "metallb-system",
            depends_on: &["cilium"],
        },
        Entry {
            name: "cert-manager",
            title: "cert-manager",
            about: "Issues certificates and renews them in time.",
            category: AddonCategory::CertManager,
            repository: "https://charts.jetstack.io",
            version: values::CERT_MANAGER,
            namespace: "cert-manager",
            depends_on: &["cilium"],
        },
        Entry {
            name: "longhorn",
            title: "Longhorn",
            about: "Replicated volumes on the nodes' own disks.",
            category: AddonCategory::Storage,
            repository: "https://charts.longhorn.io",
            version: values::LONGHORN,
            namespace: "longhorn-system",
            depends_on: &["cilium"],
        },
        Entry {
            name: "traefik",
            title: "Traefik",
            about: "Ingress controller: HTTP and TLS from outside to Services.",
            category: AddonCategory::Ingress,
            repository: "https://traefik.github.io/charts",
            version: values::TRAEFIK,
            namespace: "traefik",
            depends_on: &["cilium"],
        },
        Entry {
            name: "metrics-server",
            title: "Metrics Server",
            about: "CPU and memory of nodes and pods, for kubectl top and autoscaling.",
            category: AddonCategory::Observability,
            repository: "https://kubernetes-sigs.github.io/metrics-server/",
            version: "3.12.2",
            namespace: "kube-system",
            depends_on: &["cilium"],
        },
    ]
}

fn definition(entry: &Entry) -> Result<Value, Failure> {
    let spec = AddonDefinitionSpec {
        display_name: entry.title.to_owned(),
        description: entry.about.to_owned(),
        category: entry.category,
        icon: None,
        icon_data: None,
        chart: AddonChart {
            repository: entry.repository.to_owned(),
            name: entry.name.to_owned(),
            default_version: entry.version.to_owned(),
            available_versions: vec![entry.version.to_owned()],
        },
        defaults: Some(AddonDefaults {
            namespace: Some(entry.namespace.to_owned()),
            release_name: Some(entry.name.to_owned()),
            ..AddonDefaults::default()
        }),
        platform: true,
        tier: Some(AddonTier::Infrastructure),
        depends_on: entry.depends_on.iter().map(|&name| name.to_owned()).collect(),
        maintainer: None,
        links: None,
    };
    let mut metadata = named(entry.name);
    metadata["labels"] = json!({ names::LABEL_SOURCE: "builtin" });
    Ok(json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "AddonDefinition",
        "metadata": metadata,
        "spec": json_of("AddonDefinition", &spec)?,
    }))
}

fn json_of<T: Serialize>(what: &str, value: &T) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| {
        Failure::new(
            Class::Terminal,
            "ObjectUnwritable",
            format!("write a {what} as JSON: {error}"),
            "report this as a bug",
        )
    })
}
