//! Kinds: their path in the API, and their turn when an addon is applied.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

/// A kind as the API serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

/// Which object is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectRef {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// When an object is applied, relative to the others of its addon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Namespaces,
    Definitions,
    /// Accounts, rights and classes: what pods are made with.
    Rights,
    /// Configuration, Services and claims: what pods mount and reach.
    Config,
    Workloads,
    /// Hooks into the API: after the workloads that answer them.
    Hooks,
    /// Objects of kinds that a CRD brought.
    Custom,
}

/// Kinds that every cluster has, so that nobody has to ask for their path.
const BUILT_IN: &[(&str, &str, &str, bool, Stage)] = &[
    ("v1", "Namespace", "namespaces", false, Stage::Namespaces),
    ("v1", "ServiceAccount", "serviceaccounts", true, Stage::Rights),
    ("v1", "Secret", "secrets", true, Stage::Config),
    ("v1", "ConfigMap", "configmaps", true, Stage::Config),
    ("v1", "Service", "services", true, Stage::Config),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, Stage::Config),
    ("v1", "ResourceQuota", "resourcequotas", true, Stage::Rights),
    ("v1", "LimitRange", "limitranges", true, Stage::Rights),
    ("v1", "Pod", "pods", true, Stage::Workloads),
    ("v1", "Node", "nodes", false, Stage::Custom),
    ("apps/v1", "Deployment", "deployments", true, Stage::Workloads),
    ("apps/v1", "DaemonSet", "daemonsets", true, Stage::Workloads),
    ("apps/v1", "StatefulSet", "statefulsets", true, Stage::Workloads),
    ("batch/v1", "Job", "jobs", true, Stage::Workloads),
    ("batch/v1", "CronJob", "cronjobs", true, Stage::Workloads),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true, Stage::Workloads),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true, Stage::Workloads),
    ("rbac.authorization.k8s.io/v1", "Role", "roles", true, Stage::Rights),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true, Stage::Rights),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false, Stage::Rights),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false, Stage::Rights),
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false, Stage::Rights),
    ("storage.k8s.io/v1", "StorageClass", "storageclasses", false, Stage::Rights),
    ("storage.k8s.io/v1", "CSIDriver", "csidrivers", false, Stage::Rights),
    ("networking.k8s.io/v1", "IngressClass", "ingressclasses", false, Stage::Rights),
    ("networking.k8s.io/v1", "Ingress", "ingresses", true, Stage::Custom),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true, Stage::Rights),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
        Stage::Definitions,
    ),
    ("apiregistration.k8s.io/v1", "APIService", "apiservices", false, Stage::Hooks),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
        Stage::Hooks,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
        Stage::Hooks,
    ),
];

impl ObjectRef {
    /// Which object this is. `None` when it does not say.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            api_version: text("/apiVersion")?,
            kind: text("/kind")?,
            namespace: text("/metadata/namespace").unwrap_or_default(),
            name: text("/metadata/name")?,
        })
    }

    /// `Deployment cert-manager/cert-manager-webhook`.
    pub(crate) fn title(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    /// The object's turn.
    pub(crate) fn stage(&self) -> Stage {
        built_in(&self.api_version, &self.kind).map_or(Stage::Custom, |entry| entry.4)
    }
}

/// A kind that needs no discovery.
pub(crate) fn known(api_version: &str, kind: &str) -> Option<Kind> {
    built_in(api_version, kind).map(|entry| make(api_version, kind, entry.2, entry.3))
}

/// The kinds that a CRD brings, as far as it serves them.
pub(crate) fn of_definition(crd: &Value) -> Vec<((String, String), Kind)> {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, kind, plural) = (text("/spec/group"), text("/spec/names/kind"), text("/spec/names/plural"));
    let namespaced = text("/spec/scope") == "Namespaced";
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let names =
        versions.into_iter().flatten().filter_map(|version| version.get("name").and_then(Value::as_str));
    names
        .map(|version| {
            let api_version = format!("{group}/{version}");
            let served = make(&api_version, kind, plural, namespaced);
            ((api_version, kind.to_owned()), served)
        })
        .collect()
}

/// Splits `apps/v1` and `v1`.
pub(crate) fn gvk(api_version: &str, kind: &str) -> GroupVersionKind {
    match api_version.split_once('/') {
        Some((group, version)) => GroupVersionKind::gvk(group, version, kind),
        None => GroupVersionKind::gvk("", api_version, kind),
    }
}

/// An object as the client gives it, in one piece.
pub(crate) fn to_value(object: DynamicObject, of: &ObjectRef) -> Value {
    let DynamicObject { metadata, data, .. } = object;
    let mut value = if data.is_object() { data } else { Value::Object(serde_json::Map::new()) };
    value["apiVersion"] = of.api_version.clone().into();
    value["kind"] = of.kind.clone().into();
    value["metadata"] = serde_json::to_value(metadata).unwrap_or_default();
    value
}

fn built_in(
    api_version: &str,
    kind: &str,
) -> Option<&'static (&'static str, &'static str, &'static str, bool, Stage)> {
    BUILT_IN.iter().find(|entry| entry.0 == api_version && entry.1 == kind)
}

fn make(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Kind {
    Kind { resource: ApiResource::from_gvk_with_plural(&gvk(api_version, kind), plural), namespaced }
}
