//! What Talos puts into a new cluster: DNS, and unless the configuration says otherwise, kube-proxy and flannel.

use super::facts::Facts;
use serde_json::{Value, json};

pub(super) fn of(facts: &Facts) -> Vec<Value> {
    let mut objects = vec![account("coredns"), dns(), dns_service()];
    if facts.kube_proxy() {
        objects.extend([account("kube-proxy"), proxy(facts)]);
    }
    if !facts.config.cni_none {
        objects.extend([account("flannel"), flannel()]);
    }
    objects
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}})
}

fn dns() -> Value {
    let labels = json!({"k8s-app": "kube-dns"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "coredns", "priorityClassName": "system-cluster-critical",
                    "tolerations": [
                        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "containers": [{"name": "coredns", "image": "registry.k8s.io/coredns/coredns:v1.12.0"}],
                },
            },
        },
    })
}

fn dns_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {
            "clusterIP": "10.96.0.10", "selector": {"k8s-app": "kube-dns"},
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    })
}

/// A DaemonSet of the host's network that runs everywhere.
fn daemon(name: &str, label: &str, image: &str, volumes: &Value) -> Value {
    let labels = json!({"k8s-app": label});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": true, "serviceAccountName": label, "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists", "effect": "NoExecute"}],
                    "containers": [{"name": label, "image": image}], "volumes": volumes,
                },
            },
        },
    })
}

fn proxy(facts: &Facts) -> Value {
    let image = format!("registry.k8s.io/kube-proxy:{}", facts.kubernetes_version());
    daemon("kube-proxy", "kube-proxy", &image, &json!([]))
}

fn flannel() -> Value {
    let volumes = json!([{"name": "cni", "hostPath": {"path": "/etc/cni/net.d"}}]);
    daemon("kube-flannel", "flannel", "ghcr.io/siderolabs/flannel:v0.26.1", &volumes)
}
