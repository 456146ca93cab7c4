//! What a user of the simulated Proxmox asks for: ProviderConfig and cluster, as JSON.

use serde_json::{Value, json};

pub(crate) fn provider() -> Value {
    json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
        "metadata": {"name": "site"},
        "spec": {
            "provider": "proxmox",
            "credentialsRef": {"name": "creds"},
            "proxmox": {
                "endpoint": "https://pve.example.internal:8006",
                "nodes": ["pve1", "pve2", "pve3"], "storage": "ceph-vm", "templateID": 9000,
            },
            "network": {"subnet": "10.40.0.0/24", "gateway": "10.40.0.1"},
        }
    })
}

/// A highly available cluster with so many workers; `extra` is laid over its spec.
pub(crate) fn cluster(name: &str, workers: u32, extra: Value) -> Value {
    let mut object = json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": name},
        "spec": {
            "provider": "proxmox",
            "providerRef": {"name": "site"},
            "cluster": {
                "name": name, "topology": "ha",
                "controlPlane": {"replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 40},
                "workers": {"replicas": workers, "cpu": 4, "memoryMB": 8192, "diskGB": 60,
                            "extraDisks": [{"sizeGB": 100}], "labels": {"tier": "work"}},
            },
            "network": {
                "podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": "10.40.0.200",
                "loadBalancerPool": {"start": "10.40.0.210", "end": "10.40.0.250"},
            },
            "talos": {
                "version": "v1.9.2",
                "schematic": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
            },
        }
    });
    merge(&mut object["spec"], extra);
    object
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
