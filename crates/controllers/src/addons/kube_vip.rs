//! kube-vip: holds the control plane's address on one of the control-plane nodes.
//!
//! It starts before there is a CNI, and nobody stands in for kube-proxy yet, so the address of the `kubernetes` Service is
//! dead. It therefore asks the API servers through KubePrism, which every Talos node has on its loopback.

use super::objects::{meta, named};
use super::site::Site;
use super::values::KUBE_PRISM_PORT;
use butler_drivers::{Class, Failure};
use serde_json::{Value, json};

/// The version that is installed when nobody asks for another.
pub(crate) const VERSION: &str = "v0.8.7";
const NAME: &str = "kube-vip";
const NAMESPACE: &str = "kube-system";

pub(crate) fn objects(site: &Site<'_>) -> Result<Vec<Value>, Failure> {
    let address = site.spec.network.vip.as_deref().filter(|vip| !vip.is_empty()).ok_or_else(|| {
        Failure::new(
            Class::InvalidConfig,
            "VipMissing",
            "kube-vip has no address to hold: network.vip is not set",
            "set network.vip to a free address of the nodes' network",
        )
    })?;
    // `10.40.0.200/24` was a way to give the prefix; the address alone is what is held.
    let address = address.split('/').next().unwrap_or(address);
    Ok(vec![account(), role(), binding(), daemon_set(site, address)])
}

fn account() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(NAMESPACE, NAME) })
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": named("butler:kube-vip"),
        "rules": [
            { "apiGroups": [""], "resources": ["services", "endpoints"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
              "verbs": ["get", "list", "watch", "create", "update", "patch"] },
        ],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": named("butler:kube-vip"),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "butler:kube-vip" },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE }],
    })
}

fn daemon_set(site: &Site<'_>, address: &str) -> Value {
    let version = super::graph::find(NAME).map(|row| (row.version)(site)).unwrap_or_default();
    let labels = json!({ "app.kubernetes.io/name": NAME });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta(NAMESPACE, NAME),
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": NAME,
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": { "node-role.kubernetes.io/control-plane": "" },
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": NAME,
                        "image": format!("ghcr.io/kube-vip/kube-vip:{version}"),
                        "imagePullPolicy": "IfNotPresent",
                        "args": ["manager"],
                        "env": environment(site, address),
                        "securityContext": { "capabilities": {
                            "add": ["NET_ADMIN", "NET_RAW"],
                            "drop": ["ALL"],
                        } },
                    }],
                },
            },
            "updateStrategy": { "type": "RollingUpdate" },
        },
    })
}

fn environment(site: &Site<'_>, address: &str) -> Vec<Value> {
    let prefix = if address.contains(':') { "128" } else { "32" };
    let mut all = vec![json!({
        "name": "vip_nodename",
        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "spec.nodeName" } },
    })];
    let mut set = |name: &str, value: &str| all.push(json!({ "name": name, "value": value }));
    set("KUBERNETES_SERVICE_HOST", "localhost");
    set("KUBERNETES_SERVICE_PORT", &KUBE_PRISM_PORT.to_string());
    set("vip_arp", "true");
    set("address", address);
    // The address of one host: a longer prefix would bring a second route to the nodes' network.
    set("vip_cidr", prefix);
    set("port", "6443");
    set("cp_enable", "true");
    set("cp_namespace", NAMESPACE);
    set("svc_enable", "false");
    set("vip_leaderelection", "true");
    set("vip_leasename", "kube-vip-lease");
    set("vip_leaseduration", "5");
    set("vip_renewdeadline", "3");
    set("vip_retryperiod", "1");
    // Without it kube-vip takes the interface that has the default route.
    if let Some(interface) = site.spec.network.vip_interface.as_deref().filter(|name| !name.is_empty()) {
        set("vip_interface", interface);
    }
    all
}
