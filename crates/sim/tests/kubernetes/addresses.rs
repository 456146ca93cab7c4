//! Virtual addresses of the control plane: who holds them, and where they go.

use crate::site::{PATIENCE, SECRETS, Site, VIP, Wish, apply, cni, node_ready, until};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::net::IpAddr;

fn vip() -> IpAddr {
    VIP.parse().unwrap()
}

/// Waits until somebody holds the address who is not `other`.
async fn holder(site: &Site, other: Option<IpAddr>) -> IpAddr {
    let look = async {
        loop {
            match site.fabric.holder(vip()) {
                Some(holder) if Some(holder) != other => return holder,
                _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("somebody takes the address")
}

fn name_of(site: &Site, address: IpAddr) -> String {
    let found = site.nodes.iter().find(|(_, node)| node.address() == address);
    found.map(|(name, _)| name.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn talos_holds_the_address_and_it_moves() {
    let mut site = Site::new();
    site.cluster(3, 0, &Wish { talos_vip: true, ..Wish::default() }).await;
    let first = holder(&site, None).await;
    let client = site.admin(VIP).await;
    node_ready(&client, "cp1", "False").await;
    site.nodes[&name_of(&site, first)].power_off().await;
    let second = holder(&site, Some(first)).await;
    assert_ne!(first, second);
    let client = site.client(VIP, VIP, &SECRETS).await;
    node_ready(&client, &name_of(&site, first), "Unknown").await;
    assert!(site.clusters.conflicts().is_empty());
    site.stop().await;
}

fn kube_vip(host: Option<(&str, &str)>) -> Value {
    let mut env = vec![
        json!({"name": "vip_arp", "value": "true"}),
        json!({"name": "port", "value": "6443"}),
        json!({"name": "vip_interface", "value": "eth0"}),
        json!({"name": "cp_enable", "value": "true"}),
        json!({"name": "cp_namespace", "value": "kube-system"}),
        json!({"name": "vip_leaderelection", "value": "true"}),
        json!({"name": "address", "value": VIP}),
    ];
    if let Some((host, port)) = host {
        env.push(json!({"name": "KUBERNETES_SERVICE_HOST", "value": host}));
        env.push(json!({"name": "KUBERNETES_SERVICE_PORT", "value": port}));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-vip", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "kube-vip"}},
            "template": {
                "metadata": {"labels": {"app": "kube-vip"}},
                "spec": {
                    "hostNetwork": true,
                    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "kube-vip", "image": "ghcr.io/kube-vip/kube-vip:v0.8.7", "env": env}],
                },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_vip_works_before_a_cni_by_kube_prism_only() {
    let mut site = Site::new();
    site.cluster(3, 1, &Wish::default()).await;
    let client = site.admin("10.40.0.12").await;
    node_ready(&client, "cp1", "False").await;
    apply(&client, kube_vip(None)).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    until(sets.clone(), "kube-vip", "started", |set| {
        set["status"]["currentNumberScheduled"] == 3 && set["status"]["numberReady"] == 0
    })
    .await;
    let all = pods.list(&ListParams::default().labels("app=kube-vip")).await.unwrap();
    let name = all.items[0].metadata.name.clone().unwrap();
    until(pods.clone(), &name, "crashing", |pod| {
        pod.pointer("/status/containerStatuses/0/state/waiting/reason") == Some(&"CrashLoopBackOff".into())
    })
    .await;
    assert_eq!(site.fabric.holder(vip()), None);

    apply(&client, kube_vip(Some(("localhost", "7445")))).await;
    until(sets, "kube-vip", "ready", |set| set["status"]["numberReady"] == 3).await;
    let first = holder(&site, None).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let name = name_of(&site, first);
    until(leases.clone(), "plndr-cp-lock", "held", move |lease| {
        lease["spec"]["holderIdentity"] == name.as_str()
    })
    .await;
    let through: Api<Node> = Api::all(site.admin(VIP).await);
    assert_eq!(through.list(&ListParams::default()).await.unwrap().items.len(), 4);
    site.nodes[&name_of(&site, first)].power_off().await;
    let second = holder(&site, Some(first)).await;
    let other = site.admin(&second.to_string()).await;
    let name = name_of(&site, second);
    let leases: Api<Lease> = Api::namespaced(other, "kube-system");
    until(leases, "plndr-cp-lock", "moved", move |lease| lease["spec"]["holderIdentity"] == name.as_str())
        .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_mechanisms_for_one_address_are_a_conflict() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish { talos_vip: true, ..Wish::default() }).await;
    let client = site.admin("10.40.0.11").await;
    apply(&client, cni()).await;
    apply(&client, kube_vip(Some(("localhost", "7445")))).await;
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    until(sets, "kube-vip", "ready", |set| set["status"]["numberReady"] == 1).await;
    assert_eq!(site.clusters.conflicts(), [vip()]);
    site.stop().await;
}
