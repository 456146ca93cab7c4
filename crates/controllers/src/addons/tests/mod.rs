//! Tests of the addons: the graph by itself, the objects against the embedded API.

mod bundles;
mod graph;
mod live;
mod made;
mod readiness;
mod real;
mod trouble;

use super::{Site, SiteMachine};
use butler_api::{ClusterBootstrapSpec, MachineRole, Provider, ProviderConfig};
use butler_drivers::Profile;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A cluster that owns what a [`Site`] borrows.
pub(super) struct Cluster {
    pub(super) spec: ClusterBootstrapSpec,
    pub(super) profile: Profile,
    pub(super) config: ProviderConfig,
    pub(super) credentials: BTreeMap<String, Vec<u8>>,
    pub(super) machines: Vec<SiteMachine>,
}

impl Cluster {
    /// A cluster with what `change` says merged over an HA spec.
    pub(super) fn new(provider: Provider, change: Value) -> Self {
        let mut spec = json!({
            "provider": provider,
            "providerRef": { "name": "butler-mgmt-provider", "namespace": "butler-system" },
            "cluster": {
                "name": "butler-mgmt",
                "controlPlane": { "replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 50 },
                "workers": { "replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 50 },
            },
            "network": {
                "podCIDR": "10.244.0.0/16",
                "serviceCIDR": "10.96.0.0/12",
                "vip": "10.40.0.200",
                "loadBalancerPool": { "start": "10.40.0.210", "end": "10.40.0.250" },
            },
            "talos": { "version": "v1.9.2", "schematic": "ce4c9805" },
        });
        merge(&mut spec, change);
        let config = json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1",
            "kind": "ProviderConfig",
            "metadata": { "name": "butler-mgmt-provider", "namespace": "butler-system" },
            "spec": {
                "provider": "proxmox",
                "credentialsRef": { "name": "butler-mgmt-proxmox-credentials" },
                "proxmox": {
                    "endpoint": "https://pve.example.com:8006",
                    "nodes": ["pve1", "pve2"],
                    "storage": "local-lvm",
                    "templateID": 9000,
                    "vmidRange": { "start": 200, "end": 299 },
                },
                "limits": { "maxClustersPerTeam": 4 },
            },
        });
        let machine = |role, name: &str, address: &str| SiteMachine {
            name: name.to_owned(),
            role,
            address: Some(address.to_owned()),
            provider_id: Some(format!("aws:///zone/{name}")),
        };
        Self {
            spec: serde_json::from_value(spec).expect("the spec is well-formed"),
            profile: Profile::of(provider),
            config: serde_json::from_value(config).expect("the ProviderConfig is well-formed"),
            credentials: BTreeMap::from([
                ("token".to_owned(), b"root@pam!butler".to_vec()),
                ("tokenSecret".to_owned(), b"hush: \"quoted\"\nand more".to_vec()),
            ]),
            machines: vec![
                machine(MachineRole::ControlPlane, "butler-mgmt-cp-0", "10.40.0.10"),
                machine(MachineRole::Worker, "butler-mgmt-worker-0", "10.40.0.20"),
            ],
        }
    }

    /// The usual one: HA on Proxmox.
    pub(super) fn proxmox() -> Self {
        Self::new(Provider::Proxmox, json!({}))
    }

    pub(super) fn site(&self) -> Site<'_> {
        Site {
            spec: &self.spec,
            name: "butler-mgmt",
            namespace: "butler-system",
            profile: &self.profile,
            endpoint: "10.40.0.200",
            provider_config: &self.config,
            credentials: &self.credentials,
            machines: &self.machines,
            multi_tenancy: None,
        }
    }
}

/// Merges as a JSON merge patch does: null removes.
pub(super) fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    fields.remove(&key);
                } else {
                    merge(fields.entry(key).or_insert(Value::Null), change);
                }
            }
        }
        (into, change) => *into = change,
    }
}

pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found =
        objects.iter().find(|object| text(object, "/kind") == kind && text(object, "/metadata/name") == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}
