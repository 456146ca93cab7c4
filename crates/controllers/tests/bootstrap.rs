//! Whole bootstraps in a simulated data centre: from nothing to a cluster that is ready, and back to nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase, MachineRequest};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use support::ask::cluster;
use support::site::{Site, bootstraps, phase};
use support::{Home, cluster_conditions, has, names};

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_cluster_comes_up_and_goes_away() {
    let site = Site::new().await;
    site.home.given_secrets("prod").await;
    let life = site.home.start(site.context());
    site.home.create::<ClusterBootstrap>(cluster("prod", 3, json!({}))).await;
    let ready = site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Ready)).await;
    let status = ready.status.clone().unwrap();
    assert_eq!(status.control_plane_endpoint.as_deref(), Some("10.40.0.200"));
    assert_eq!(status.bootstrap_machine.as_deref(), Some("prod-cp-0"));
    assert_eq!(status.machines.len(), 6);
    for machine in &status.machines {
        assert!(machine.talos_configured && machine.ready && machine.ip_address.is_some(), "{machine:?}");
    }
    assert!(status.kubeconfig.is_some() && status.talosconfig.is_some());
    assert!(status.addons_installed.len() > 8, "{:?}", status.addons_installed);
    assert!(status.addons_installed.values().all(|installed| *installed), "{:?}", status.addons_installed);
    assert_eq!(status.observed_generation, ready.metadata.generation);
    assert!(has(cluster_conditions(&ready), "Ready", true, "BootstrapComplete"));
    assert!(has(cluster_conditions(&ready), "Pivoted", false, "PivotNotBuilt"));
    assert!(has(cluster_conditions(&ready), "Failed", false, "NoFailure"));
    assert_eq!(bootstraps(&site), 1, "etcd is made once");
    assert_eq!(site.machines(), 6);
    let milestones = ["MachinesReady", "TalosConfigured", "EtcdBootstrapped", "AddonsInstalled", "Ready"];
    let told = events(&site.home, "prod", &milestones).await;
    for reason in milestones {
        assert_eq!(told.iter().filter(|known| *known == reason).count(), 1, "{reason} in {told:?}");
    }

    site.home.api::<ClusterBootstrap>().delete("prod", &DeleteParams::default()).await.unwrap();
    site.home.until_gone::<ClusterBootstrap>("prod").await;
    assert_eq!(names::<MachineRequest>(&site.home).await, Vec::<String>::new());
    assert_eq!(names::<Secret>(&site.home).await, ["creds", "prod-talos-secrets"], "the given secrets stay");
    assert_eq!(site.machines(), 0, "nothing of ours is left");
    life.end().await;
    site.data_centre.stop().await;
}

/// Reasons of the events about an object, once all of `awaited` are among them: they are told after the status is.
async fn events(home: &Home, name: &str, awaited: &[&str]) -> Vec<String> {
    let mut stream = Box::pin(watcher(home.api::<Event>(), watcher::Config::default()).applied_objects());
    let mut told = Vec::new();
    while !awaited.iter().all(|reason| told.iter().any(|known| known == reason)) {
        let event = stream.try_next().await.unwrap().unwrap();
        if event.regarding.and_then(|object| object.name).as_deref() == Some(name) {
            told.extend(event.reason);
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_with_its_virtual_address_comes_up() {
    let site = Site::new().await;
    site.home.given_secrets("dev").await;
    let life = site.home.start(site.context());
    let spec = json!({"cluster": {"topology": "single-node", "controlPlane": {"replicas": 1}}});
    site.home.create::<ClusterBootstrap>(cluster("dev", 1, spec)).await;
    let ready = site.home.until::<ClusterBootstrap>("dev", |cb| phase(cb) == Some(Phase::Ready)).await;
    let status = ready.status.unwrap();
    assert_eq!(status.machines.len(), 1);
    assert!(!status.addons_installed.contains_key("kube-vip"));
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_life_goes_on_and_makes_nothing_twice() {
    let site = Site::new().await;
    site.home.given_secrets("prod").await;
    let life = site.home.start(site.context());
    site.home.create::<ClusterBootstrap>(cluster("prod", 1, json!({}))).await;
    site.home
        .until::<ClusterBootstrap>("prod", |cb| {
            cb.status.as_ref().is_some_and(|status| status.bootstrap_machine.is_some())
        })
        .await;
    life.end().await;
    let life = site.home.start(site.context());
    site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Ready)).await;
    assert_eq!(site.machines(), 4);
    let calls = site.data_centre.gate().calls();
    let done =
        calls.iter().filter(|logged| logged.call.operation == "Bootstrap" && logged.fault.is_none()).count();
    assert!(done <= 2, "asked again at most, and of the same node");
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_is_honoured_and_taken_back() {
    let site = Site::new().await;
    site.home.given_secrets("prod").await;
    let life = site.home.start(site.context());
    site.home.create::<ClusterBootstrap>(cluster("prod", 1, json!({"paused": true}))).await;
    site.home
        .until::<ClusterBootstrap>("prod", |cb| has(cluster_conditions(cb), "Progressing", false, "Paused"))
        .await;
    assert_eq!(names::<MachineRequest>(&site.home).await, Vec::<String>::new());
    let go = json!({"spec": {"paused": false}});
    let api = site.home.api::<ClusterBootstrap>();
    api.patch("prod", &PatchParams::default(), &Patch::Merge(&go)).await.unwrap();
    site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Ready)).await;
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_spec_is_taken_before_etcd_and_refused_after() {
    let site = Site::new().await;
    site.home.given_secrets("prod").await;
    let life = site.home.start(site.context());
    site.home.create::<ClusterBootstrap>(cluster("prod", 2, json!({"paused": true}))).await;
    let api = site.home.api::<ClusterBootstrap>();
    let change = async |spec: serde_json::Value| {
        let patch = json!({"spec": spec});
        api.patch("prod", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    change(json!({"paused": false})).await;
    site.home
        .until::<ClusterBootstrap>("prod", |cb| {
            has(cluster_conditions(cb), "MachinesReady", true, "MachinesUp")
        })
        .await;
    // Before etcd: the configs are made anew, and one worker goes again.
    change(json!({"cluster": {"workers": {"replicas": 1}}, "talos": {"configPatches": [
        {"op": "add", "path": "/machine/sysctls", "value": "{\"vm.swappiness\": \"7\"}"},
    ]}}))
    .await;
    let ready = site
        .home
        .until::<ClusterBootstrap>("prod", |cb| {
            phase(cb) == Some(Phase::Ready)
                && cb.status.as_ref().and_then(|status| status.observed_generation) == cb.metadata.generation
        })
        .await;
    assert_eq!(has(cluster_conditions(&ready), "SpecApplied", true, "AsAsked"), site.machines() == 4);
    // After it: told, and left alone.
    let machines = site.machines();
    change(json!({"cluster": {"workers": {"replicas": 5}}})).await;
    site.home
        .until::<ClusterBootstrap>("prod", |cb| {
            has(cluster_conditions(cb), "SpecApplied", false, "ChangeNotApplied")
                && phase(cb) == Some(Phase::Ready)
        })
        .await;
    assert_eq!((site.machines(), names::<MachineRequest>(&site.home).await.len()), (machines, machines));
    life.end().await;
    site.data_centre.stop().await;
}
