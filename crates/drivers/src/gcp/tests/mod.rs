//! The plans against tables and from end to end against the dry run's model; the client against a small server.

mod balancer;
mod machines;
mod wire;

use super::settings::Settings;
use crate::seam::{LoadBalancerWanted, MachineWanted, Owner};
use butler_api::{DiskSpec, MachineRole, ProviderConfigSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn owner(uid: &str) -> Owner {
    Owner { cluster: "mgmt".into(), cluster_uid: "c1c1c1c1-0000".into(), object_uid: uid.into() }
}

fn config(more: Value) -> ProviderConfigSpec {
    let mut block = json!({"projectID": "p", "region": "us-central1",
        "zones": ["us-central1-a", "us-central1-b", "us-central1-c"], "network": "vpc", "subnetwork": "nodes",
        "image": "talos-v1-12"});
    block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"provider": "gcp", "credentialsRef": {"name": "x"}, "gcp": block})).unwrap()
}

fn settings() -> Settings {
    Settings::read(&config(json!({}))).unwrap()
}

fn machine(name: &str) -> MachineWanted {
    MachineWanted {
        owner: owner(&format!("uid-{name}")),
        name: name.into(),
        role: MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 8192,
        disk_gb: 40,
        extra_disks: vec![DiskSpec { size_gb: 50, storage_class: Some("pd-ssd".into()) }],
        image: None,
        user_data: None,
        static_address: None,
        labels: BTreeMap::from([("butler.butlerlabs.dev/role".to_owned(), "control-plane".to_owned())]),
    }
}

fn balancer(more: Value) -> LoadBalancerWanted {
    let mut spec = json!({"clusterName": "mgmt", "providerConfigRef": {"name": "x"}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    LoadBalancerWanted {
        owner: owner("uid-lb"),
        name: "mgmt-lb".into(),
        spec: serde_json::from_value(spec).unwrap(),
    }
}
