//! What a ClusterBootstrap asks for.

use super::*;
use serde_json::json;

pub(crate) fn cluster(topology: &str) -> ClusterBootstrap {
    serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": "prod", "namespace": "butler-system", "uid": "cb-uid", "generation": 1,
                     "creationTimestamp": "2026-03-10T12:00:00Z"},
        "spec": {
            "provider": "proxmox", "providerRef": {"name": "site"},
            "cluster": {
                "name": "prod", "topology": topology,
                "controlPlane": {"replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 40},
                "workers": {"replicas": 2, "cpu": 8, "memoryMB": 16384, "diskGB": 80,
                            "extraDisks": [{"sizeGB": 100}], "labels": {"tier": "work"}},
            },
            "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": "10.40.0.200"},
            "talos": {"version": "v1.9.2", "schematic": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"},
        }
    }))
    .unwrap()
}

fn network(start: &str, end: &str, subnet: Option<&str>) -> ProviderNetwork {
    serde_json::from_value(json!({
        "subnet": subnet, "gateway": "10.40.0.1", "dnsServers": ["10.40.0.2"],
        "nodeAddresses": {"start": start, "end": end},
    }))
    .unwrap()
}

#[test]
fn nodes_follow_the_topology() {
    let names = |topology: &str| {
        let nodes = nodes(&cluster(topology).spec, None).unwrap();
        nodes.into_iter().map(|node| node.name).collect::<Vec<_>>()
    };
    assert_eq!(names("ha"), ["prod-cp-0", "prod-cp-1", "prod-cp-2", "prod-worker-0", "prod-worker-1"]);
    assert_eq!(names("single-node"), ["prod-cp-0"]);
}

#[test]
fn fixed_addresses_are_handed_out_in_order() {
    let spec = cluster("ha").spec;
    let network_of = |end: &str, subnet| network("10.40.0.11", end, subnet);
    let nodes_of = |network: &ProviderNetwork| nodes(&spec, Some(network));
    let all = nodes_of(&network_of("10.40.0.20", Some("10.40.0.0/24"))).unwrap();
    let addresses: Vec<String> =
        all.iter().map(|node| node.static_address.clone().unwrap().address).collect();
    assert_eq!(
        addresses,
        ["10.40.0.11/24", "10.40.0.12/24", "10.40.0.13/24", "10.40.0.14/24", "10.40.0.15/24"]
    );
    let first = all[0].static_address.clone().unwrap();
    assert_eq!(
        (first.gateway.as_deref(), first.nameservers),
        (Some("10.40.0.1"), vec!["10.40.0.2".to_owned()])
    );
    let few = nodes_of(&network_of("10.40.0.13", Some("10.40.0.0/24"))).unwrap_err();
    assert_eq!(few.reason, "NodeAddressesWrong");
    assert!(few.message.contains("no address for node number 4"), "{}", few.message);
    assert!(nodes_of(&network_of("10.40.0.20", None)).is_err());
    assert!(nodes_of(&network("nonsense", "10.40.0.20", Some("10.40.0.0/24"))).is_err());
}

#[test]
fn a_machine_request_has_all_that_the_pool_says() {
    let cb = cluster("ha");
    let all = nodes(&cb.spec, None).unwrap();
    let worker = machine_request(&cb, &all[3], Some("local:import/x"), None);
    assert_eq!((worker.spec.cpu, worker.spec.memory_mb, worker.spec.disk_gb), (8, 16384, 80));
    assert_eq!(worker.spec.extra_disks.len(), 1);
    assert_eq!(worker.spec.image.as_deref(), Some("local:import/x"));
    assert_eq!(worker.spec.labels["tier"], "work");
    assert_eq!(worker.spec.provider_ref.namespace.as_deref(), Some("butler-system"));
    assert_eq!(worker.labels()["butler.butlerlabs.dev/cluster-bootstrap"], "prod");
    assert_eq!(worker.labels()["butler.butlerlabs.dev/role"], "worker");
    let owner = &worker.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("cb-uid", Some(true)));
    let secret = secret(&cb, "prod-kubeconfig", BTreeMap::new());
    assert_eq!(secret.owner_references()[0].uid, "cb-uid");
}

#[test]
fn an_image_is_named_and_labelled_so_that_others_find_it() {
    let cb = cluster("ha");
    let sum = "0123456789abcdef".repeat(4);
    let factory = serde_json::from_value(serde_json::json!({"url": "https://f", "sha256": sum})).unwrap();
    let image = image_sync(&cb, &Profile::of(cb.spec.provider), Some(&factory));
    assert_eq!(image.spec.sha256.as_ref(), Some(&sum));
    assert_eq!(image.name_any(), "prod-ce4c9805-1-9-2");
    assert_eq!((image.spec.factory_ref.platform.as_str(), image.spec.format.as_str()), ("nocloud", "qcow2"));
    for (key, value) in image_labels(&cb) {
        assert_eq!(image.labels().get(&key), Some(&value), "{key}");
    }
    assert_eq!(image.labels()["butler.butlerlabs.dev/schematic-id"].len(), 63);
    assert_eq!(image.annotations()[crate::image::ANNOTATION_OWNER_UID], "cb-uid");
}
