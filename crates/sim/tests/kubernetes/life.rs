//! Nodes come, get their network, and go.

use crate::site::{PATIENCE, Site, Wish, apply, cni, condition, node_ready, until};
use butler_sim::Stage;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_register_and_are_ready_when_a_cni_is_there() {
    let mut site = Site::new();
    site.cluster(3, 2, &Wish::default()).await;
    let client = site.admin("10.40.0.11").await;
    for name in ["cp1", "cp2", "cp3", "w1", "w2"] {
        node_ready(&client, name, "False").await;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let cp = serde_json::to_value(nodes.get("cp1").await.unwrap()).unwrap();
    assert_eq!(cp["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "");
    assert_eq!(cp["status"]["addresses"][0]["address"], "10.40.0.11");
    assert_eq!(cp["status"]["nodeInfo"]["osImage"], "Talos (v1.9.2)");
    assert!(cp["spec"]["taints"].to_string().contains("node-role.kubernetes.io/control-plane"), "{cp}");
    let ready = cp["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert!(ready["message"].as_str().unwrap().contains("cni plugin not initialized"));
    assert!(site.nodes["cp1"].machine().status().unmet.iter().any(|unmet| unmet.name == "nodeReady"));

    apply(&client, cni()).await;
    for name in ["cp1", "cp2", "cp3", "w1", "w2"] {
        node_ready(&client, name, "True").await;
    }
    let worker = nodes.get("w1").await.unwrap();
    assert!(worker.spec.unwrap_or_default().taints.unwrap_or_default().is_empty());
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    until(sets, "cilium", "ready on five nodes", |set| set["status"]["numberReady"] == 5).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    until(pods, "kube-apiserver-cp2", "running", |pod| pod["status"]["phase"] == "Running").await;
    let mut machine = site.nodes["w1"].watch();
    let told = machine.wait_for(|machine| machine.status().ready);
    tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_servers_and_a_lost_node_is_noticed() {
    let mut site = Site::new();
    site.cluster(3, 1, &Wish::default()).await;
    let first = site.admin("10.40.0.11").await;
    apply(&first, cni()).await;
    node_ready(&first, "cp1", "True").await;
    let map = serde_json::json!({"metadata": {"name": "kept"}, "data": {"a": "b"}});
    let maps: Api<ConfigMap> = Api::namespaced(first, "default");
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();

    site.nodes["cp1"].power_off().await;
    let second = site.admin("10.40.0.12").await;
    node_ready(&second, "cp1", "Unknown").await;
    let maps: Api<ConfigMap> = Api::namespaced(second.clone(), "default");
    assert_eq!(maps.get("kept").await.unwrap().data.unwrap()["a"], "b");
    site.nodes["cp2"].power_off().await;
    // Without a quorum nothing is served.
    site.port("10.40.0.13:6443", false).await;

    for name in ["cp1", "cp2"] {
        site.nodes[name].power_on().await;
        assert!(site.nodes[name].reaches(Stage::Running, PATIENCE).await);
    }
    site.port("10.40.0.13:6443", true).await;
    let third = site.admin("10.40.0.13").await;
    node_ready(&third, "cp1", "True").await;
    let maps: Api<ConfigMap> = Api::namespaced(third, "default");
    assert_eq!(
        maps.list(&ListParams::default()).await.unwrap().iter().filter(|m| m.name_any() == "kept").count(),
        1
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_goes_on_in_a_branch() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish { schedule_on_control_planes: true, ..Wish::default() }).await;
    let client = site.admin("10.40.0.11").await;
    apply(&client, cni()).await;
    node_ready(&client, "cp1", "True").await;
    let state = site.clusters.export();
    let revision = site.clusters.store("c1").unwrap().revision();
    drop(site.clusters);
    site.clusters = butler_sim::cluster::Clusters::import(
        site.world.clone(),
        site.fabric.clone(),
        site.gate.clone(),
        0.0,
        7,
        state,
    );
    let client = wait_for(&site).await;
    let nodes: Api<Node> = Api::all(client);
    let node = serde_json::to_value(nodes.get("cp1").await.unwrap()).unwrap();
    assert_eq!(condition(&node, "Ready"), Some("True".into()));
    assert!(site.clusters.store("c1").unwrap().revision() >= revision);
    site.stop().await;
}

/// A client, as soon as the API answers again.
async fn wait_for(site: &Site) -> kube::Client {
    for _ in 0..600 {
        let client = site.admin("10.40.0.11").await;
        if client.apiserver_version().await.is_ok() {
            return client;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the API never came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_happens_in_its_time_too() {
    let mut site = Site::at_speed(0.01);
    site.cluster(1, 1, &Wish::default()).await;
    let client = site.admin("10.40.0.11").await;
    node_ready(&client, "w1", "False").await;
    apply(&client, cni()).await;
    node_ready(&client, "w1", "True").await;
    site.nodes["w1"].power_off().await;
    node_ready(&client, "w1", "Unknown").await;
    site.nodes["w1"].power_on().await;
    node_ready(&client, "w1", "True").await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_cluster_is_gone() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish::default()).await;
    assert_eq!(site.clusters.names(), ["c1"]);
    let session = site.talos("cp1").await.connect().await.unwrap();
    let partitions = Vec::new();
    let options = butler_talos::client::ResetOptions {
        graceful: false,
        reboot: false,
        partitions,
        user_disks: Vec::new(),
    };
    session.reset(&options).await.unwrap();
    assert!(site.nodes["cp1"].reaches(Stage::Off, PATIENCE).await);
    site.port("10.40.0.11:6443", false).await;
    site.no_cluster().await;
    assert!(site.clusters.store("c1").is_none());
    site.stop().await;
}
