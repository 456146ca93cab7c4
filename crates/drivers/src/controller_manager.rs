//! What the cloud controller managers of all clouds have in common, as objects of the new cluster.
//!
//! Each runs its service controller alone. Nodes get their providerID from us and pods their addresses from the CNI, and a
//! kubelet that waited for it (`--cloud-provider=external`) would keep away the very pods that it consists of.

use crate::profile::Component;
use serde_json::{Value, json};

pub(crate) const NAME: &str = "cloud-controller-manager";
const ROLE: &str = "butler:cloud-controller-manager";
/// Where the container finds its configuration.
const CONFIG_FOLDER: &str = "/etc/cloud-config";

/// What differs from cloud to cloud.
pub(crate) struct Manager<'a> {
    pub(crate) cluster: &'a str,
    /// As `--cloud-provider` takes it.
    pub(crate) cloud: &'static str,
    pub(crate) image: String,
    /// The ConfigMap with its configuration, and what is in it.
    pub(crate) config: (&'static str, String),
    pub(crate) env: Vec<Value>,
    pub(crate) mounts: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
    /// Objects that it needs besides.
    pub(crate) more: Vec<Value>,
}

/// Metadata in the component's namespace.
pub(crate) fn place(component: &Component, name: &str) -> Value {
    json!({ "name": name, "namespace": component.namespace })
}

/// All its objects.
pub(crate) fn objects(component: &Component, manager: Manager<'_>) -> Vec<Value> {
    let mut all = vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": place(component, NAME) }),
        role(),
        binding("ClusterRoleBinding", json!({ "name": ROLE }), "ClusterRole", ROLE, component),
        // How its own endpoint tells who asks.
        binding(
            "RoleBinding",
            place(component, NAME),
            "Role",
            "extension-apiserver-authentication-reader",
            component,
        ),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": place(component, manager.config.0),
            "data": { "cloud-config": manager.config.1 },
        }),
    ];
    all.extend(manager.more.iter().cloned());
    all.push(daemon_set(component, manager));
    all
}

fn role() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": ROLE },
        "rules": [
            rule(&[""], &["services"], &["get", "list", "watch", "update", "patch"]),
            rule(&[""], &["services/status"], &["get", "update", "patch"]),
            rule(&[""], &["nodes"], &["get", "list", "watch"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "update", "patch"]),
            rule(&["coordination.k8s.io"], &["leases"], &["get", "list", "watch", "create", "update", "patch"]),
            // The cluster's id, by which it names what it makes.
            rule(&[""], &["configmaps"], &["get", "list", "watch", "create", "update"]),
            rule(&[""], &["endpoints", "serviceaccounts"], &["get", "list", "watch"]),
            rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
            rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
        ],
    })
}

fn binding(kind: &str, metadata: Value, role_kind: &str, role: &str, component: &Component) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": component.namespace }],
    })
}

fn daemon_set(component: &Component, manager: Manager<'_>) -> Value {
    let labels = json!({ "app.kubernetes.io/name": NAME });
    let mut mounts = vec![json!({ "name": "config", "mountPath": CONFIG_FOLDER, "readOnly": true })];
    mounts.extend(manager.mounts);
    let mut volumes = vec![json!({ "name": "config", "configMap": { "name": manager.config.0 } })];
    volumes.extend(manager.volumes);
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME, "namespace": component.namespace, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": NAME,
                    "hostNetwork": true,
                    "priorityClassName": "system-cluster-critical",
                    // The keys stay off the workers.
                    "nodeSelector": { "node-role.kubernetes.io/control-plane": "" },
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": NAME,
                        "image": manager.image,
                        "args": [
                            format!("--cloud-provider={}", manager.cloud),
                            format!("--cloud-config={CONFIG_FOLDER}/cloud-config"),
                            format!("--cluster-name={}", manager.cluster),
                            "--controllers=service",
                            "--configure-cloud-routes=false",
                            "--allocate-node-cidrs=false",
                            "--leader-elect=true",
                            "--v=2",
                        ],
                        "env": manager.env,
                        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
            "updateStrategy": { "type": "RollingUpdate" },
        },
    })
}
