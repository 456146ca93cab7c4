//! Whole clusters: what was asked for, and configs against each other.

use super::tests::{base, with};
use super::*;
use crate::intent::{Cidr, ClusterIntent, Endpoint, LinkName, NodeIntent, Role};
use crate::render::tests::{full, full_node};
use serde_json::json;

fn intent() -> (ClusterIntent, Vec<NodeIntent>) {
    let mut cluster = full(Contract::V1_12);
    cluster.control_planes.truncate(1);
    (
        cluster,
        vec![full_node(Role::ControlPlane), {
            let mut worker = full_node(Role::Worker);
            worker.taints.clear();
            worker
        }],
    )
}

#[test]
fn a_cluster_is_checked_as_a_whole() {
    let (cluster, nodes) = intent();
    assert_eq!(check_cluster(&cluster, &nodes), []);
    type Change = fn(&mut ClusterIntent, &mut Vec<NodeIntent>);
    let cases: Vec<(&str, &str, Change)> = vec![
        ("cluster.name", "must not be empty", |c, _| c.name.clear()),
        ("cluster.kubernetes", "Talos 1.12 runs Kubernetes 1.30 to 1.35, not 1.36.0", |c, _| {
            c.kubernetes = "1.36.0".parse().unwrap()
        }),
        ("cluster.networks", "overlaps the pod network", |c, _| {
            c.service_networks = vec![Cidr::parse("10.244.0.0/24").unwrap()]
        }),
        ("cluster.networks", "has host bits", |c, _| {
            c.pod_networks = vec![Cidr::parse("10.244.0.1/16").unwrap()]
        }),
        ("cluster.networks", "need a network each", |c, _| c.pod_networks.clear()),
        ("cluster.installer", "is not a schematic", |c, _| c.installer = crate::Installer::factory("")),
        ("cluster.vip", "is not the endpoint's host", |c, _| {
            c.endpoint = Endpoint::new("api.example.com", 6443)
        }),
        ("nodes[prod-w-1].address", "10.40.0.201 is also nodes[prod-cp-1].address", |_, n| {
            n[1].address = Some("10.40.0.201".parse().unwrap())
        }),
        ("nodes[prod-cp-1].address", "10.40.0.200 is also cluster.vip", |_, n| {
            n[0].address = Some("10.40.0.200".parse().unwrap())
        }),
        ("nodes[prod-cp-1].hostname", "is there twice", |_, n| n[1].hostname = "prod-cp-1".into()),
        ("cluster.endpoint", "10.40.0.211 is the worker prod-w-1", |c, _| {
            c.endpoint = Endpoint::new("10.40.0.211", 6443)
        }),
        ("cluster.endpoint", "lies inside 10.244.0.0/16", |c, _| {
            c.endpoint = Endpoint::new("10.244.0.1", 6443)
        }),
        ("cluster.vip", "lies inside 10.96.0.0/12", |c, _| c.vip = Some("10.96.0.1".parse().unwrap())),
        ("nodes[prod-w-1].address", "lies inside 10.96.0.0/12", |_, n| {
            n[1].address = Some("10.96.0.1".parse().unwrap())
        }),
        ("cluster.control_planes", "is missing from the names", |c, _| c.control_planes.clear()),
        ("nodes[UP].hostname", "is not a host name", |_, n| n[1].hostname = "UP".into()),
        ("nodes[prod-cp-1].vip_link", "must name the link", |_, n| n[0].vip_link = None),
        ("nodes[prod-cp-1].loopback", "discovery must be on", |c, _| c.discovery = false),
        ("nodes[prod-cp-1].loopback", "node_networks must name", |_, n| n[0].node_networks.clear()),
        ("nodes[prod-w-1].taints", "may not give itself taints", |_, n| {
            n[1].taints = [("a".to_owned(), "NoSchedule".to_owned())].into()
        }),
        ("nodes[prod-w-1].labels[node-role.kubernetes.io/x]", "may not give itself this label", |_, n| {
            drop(n[1].labels.insert("node-role.kubernetes.io/x".into(), String::new()))
        }),
        ("nodes[prod-w-1].links", "not a hardware address", |_, n| {
            n[1].links[1].name = LinkName::Mac("x".into())
        }),
        ("nodes[prod-w-1].links", "neither DHCP nor addresses", |_, n| n[1].links[1].dhcp = false),
        ("nodes", "there is no control plane", |_, n| drop(n.remove(0))),
    ];
    for (path, text, change) in cases {
        let (mut cluster, mut nodes) = intent();
        change(&mut cluster, &mut nodes);
        let found = check_cluster(&cluster, &nodes);
        assert!(
            found.iter().any(|p| p.path == path && p.message.contains(text)),
            "{path}: {text}\n{found:#?}"
        );
    }
    let (cluster, mut nodes) = intent();
    nodes[1].role = Role::ControlPlane;
    assert!(
        check_cluster(&cluster, &nodes)
            .iter()
            .any(|p| p.severity == Severity::Warning && p.message.contains("2 control planes"))
    );
}

#[test]
fn configs_are_checked_against_each_other() {
    for contract in [Contract::V1_11, Contract::V1_12] {
        let (one, two) = (base(contract, Role::ControlPlane), base(contract, Role::Worker));
        assert_eq!(check_together(&[&one, &two]), []);
        let found = check_together(&[&one, &two, &one]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|(index, _)| *index == 2));
        assert_eq!(found[0].1.message, "the host name prod-cp-1 is also that of another file (number 1)");
        assert_eq!(found[1].1.message, "the address 10.40.0.201 is also that of another file (number 1)");
        let other = with(
            &with(&two, "/cluster/id", json!("x")),
            "/cluster/controlPlane/endpoint",
            json!("https://a:1"),
        );
        let found = check_together(&[&one, &other]);
        assert_eq!(
            found.iter().map(|(_, p)| p.path.as_str()).collect::<Vec<_>>(),
            ["cluster.id", "cluster.controlPlane.endpoint"]
        );
    }
}
