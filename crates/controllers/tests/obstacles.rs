//! Bootstraps in a data centre where things go wrong: each obstacle is told by name, and the way goes on when it is gone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase, MachineRequest, ProviderConfig};
use butler_drivers::{Credentials, MachineTarget, Owner, Progress as Done};
use butler_sim::proxmox::{ProxmoxSite, SiteVm};
use butler_sim::{DataCentreOptions, FaultScript, Progress};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use support::ask::cluster;
use support::site::{Site, phase};
use support::{Life, cluster_conditions, has};

async fn site(faults: &str) -> Site {
    let faults = FaultScript::parse(faults).unwrap();
    Site::with(DataCentreOptions { faults, ..DataCentreOptions::default() }).await
}

/// Starts a small HA cluster: three control planes and a worker.
async fn begin(site: &Site) -> Life {
    site.home.given_secrets("prod").await;
    let life = site.home.start(site.context());
    site.home.create::<ClusterBootstrap>(cluster("prod", 1, json!({}))).await;
    life
}

async fn until_ready(site: &Site) -> ClusterBootstrap {
    site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Ready)).await
}

/// How often something was really carried out.
fn carried_out(site: &Site, operation: &str) -> usize {
    let calls = site.data_centre.gate().calls();
    let done = |progress| matches!(progress, Progress::Answered | Progress::Lost);
    calls.iter().filter(|logged| logged.call.operation == operation && done(logged.progress)).count()
}

async fn finish(site: Site, life: Life) {
    assert_eq!(site.machines(), 4, "as many machines as were asked for");
    site.home.api::<ClusterBootstrap>().delete("prod", &DeleteParams::default()).await.unwrap();
    site.home.until_gone::<ClusterBootstrap>("prod").await;
    assert_eq!(site.machines(), 0, "nothing of ours is left");
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_make_nothing_twice() {
    let site = site(
        "calls:\n\
         - {system: proxmox, operation: 'POST */clone', times: 2, fault: lose-answer}\n\
         - {system: proxmox, operation: 'POST */status/start', fault: lose-answer}\n\
         - {system: proxmox, operation: 'DELETE *', fault: lose-answer}\n\
         - {system: talos, operation: ApplyConfiguration, times: 2, fault: lose-answer}\n\
         - {system: talos, operation: Bootstrap, fault: lose-answer}\n\
         - {system: kubernetes, operation: 'PATCH *', times: 3, fault: lose-answer}\n",
    )
    .await;
    let life = begin(&site).await;
    until_ready(&site).await;
    assert_eq!(carried_out(&site, "Bootstrap"), 1, "etcd is made once");
    finish(site, life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_asked_for_again_only_after_a_look_at_all_control_planes() {
    let site = site("calls:\n- {system: talos, operation: Bootstrap, fault: reset}\n").await;
    let life = begin(&site).await;
    until_ready(&site).await;
    let calls = site.data_centre.gate().calls();
    let asked: Vec<usize> =
        (0..calls.len()).filter(|index| calls[*index].call.operation == "Bootstrap").collect();
    assert!(asked.len() >= 2, "the first try was cut off");
    let looked: BTreeSet<&str> = calls[asked[0]..asked[1]]
        .iter()
        .filter(|logged| logged.call.operation == "ServiceList")
        .map(|logged| logged.call.object.as_str())
        .collect();
    assert_eq!(looked.len(), 3, "what is remembered of the others does not count: {looked:?}");
    for (name, key) in [("prod-kubeconfig", "kubeconfig"), ("prod-talos-configs", "talosconfig")] {
        let secret = site.home.api::<Secret>().get(name).await.unwrap();
        let text = String::from_utf8(secret.data.unwrap()[key].0.clone()).unwrap();
        assert!(!text.contains("proxy-url"), "the proxy is the way of whoever runs this: {name}");
    }
    finish(site, life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_throttling_by_chance_only_slow_it_down() {
    let site = site(
        "random: {rate: 0.08, limit: 60, faults: [status 500, throttle, reset, lose-answer, stale-read]}",
    )
    .await;
    let life = begin(&site).await;
    until_ready(&site).await;
    assert!(carried_out(&site, "Bootstrap") <= 1);
    finish(site, life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_told_and_mended() {
    let site = site("").await;
    let secrets = site.home.api::<Secret>();
    let wrong = json!({"stringData": {"tokenSecret": "00000000-0000-0000-0000-000000000000"}});
    secrets.patch("creds", &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap();
    site.home.given_secrets("prod").await;
    let mut context = site.context();
    context.deadlines.machines = Duration::from_secs(2);
    let life = site.home.start(context);
    site.home.create::<ClusterBootstrap>(cluster("prod", 1, json!({}))).await;
    let failed = site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Failed)).await;
    let status = failed.status.unwrap();
    let said =
        format!("{:?} {:?} {:?}", status.failure_reason, status.failure_message, status.failure_remedy);
    assert!(!said.contains("00000000-0000"), "{said}");
    assert_eq!(status.failure_reason.as_deref(), Some("LoginFailed"), "{said}");
    let right = json!({"stringData": {"tokenSecret": "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11"}});
    secrets.patch("creds", &PatchParams::default(), &Patch::Merge(&right)).await.unwrap();
    let ready = until_ready(&site).await;
    assert_eq!(ready.status.unwrap().failure_reason, None);
    finish(site, life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_machine_of_our_name_is_left_alone() {
    let mut proxmox = ProxmoxSite::example();
    proxmox.foreign.push(SiteVm {
        vmid: 150,
        name: "prod-cp-1".to_owned(),
        node: "pve1".to_owned(),
        running: true,
        tags: String::new(),
        address: Some("10.40.0.21".parse().unwrap()),
        disk: None,
    });
    let site = Site::with(DataCentreOptions::for_site(proxmox)).await;
    let before = site.machines();
    let life = begin(&site).await;
    let failed = site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Failed)).await;
    let status = failed.status.clone().unwrap();
    assert!(status.failure_message.unwrap().contains("prod-cp-1"));
    assert!(!status.failure_remedy.unwrap().is_empty());
    site.home.api::<ClusterBootstrap>().delete("prod", &DeleteParams::default()).await.unwrap();
    site.home.until_gone::<ClusterBootstrap>("prod").await;
    assert_eq!(site.machines(), before, "the other one is still there, and nothing of ours");
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_die_are_switched_on_again() {
    for stage in ["maintenance", "installing", "booting", "running"] {
        let faults = format!("machines:\n- {{machine: prod-cp-1, stage: {stage}, fault: die}}\n");
        let site = site(&faults).await;
        let life = begin(&site).await;
        until_ready(&site).await;
        finish(site, life).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_answers_is_named_at_its_deadline() {
    let site = site("machines:\n- {machine: prod-worker-0, fault: never-boots}\n").await;
    site.home.given_secrets("prod").await;
    let mut context = site.context();
    (context.deadlines.machines, context.deadlines.talos) = (Duration::from_secs(3), Duration::from_secs(3));
    let life = site.home.start(context);
    site.home.create::<ClusterBootstrap>(cluster("prod", 1, json!({}))).await;
    let failed = site.home.until::<ClusterBootstrap>("prod", |cb| phase(cb) == Some(Phase::Failed)).await;
    let status = failed.status.clone().unwrap();
    let message = status.failure_message.unwrap();
    assert!(message.contains("prod-worker-0"), "{message}");
    assert!(!status.failure_remedy.unwrap().is_empty());
    assert!(has(cluster_conditions(&failed), "Failed", true, status.failure_reason.as_deref().unwrap()));
    site.home.api::<ClusterBootstrap>().delete("prod", &DeleteParams::default()).await.unwrap();
    site.home.until_gone::<ClusterBootstrap>("prod").await;
    assert_eq!(site.machines(), 0);
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_machine_is_told_and_can_be_made_anew() {
    let site = site("").await;
    let life = begin(&site).await;
    until_ready(&site).await;
    let worker = site.home.until::<MachineRequest>("prod-worker-0", MachineRequest::is_ready).await;
    life.end().await;
    remove_behind_our_back(&site, &worker).await;
    let life = site.home.start(site.context());
    let failed = site
        .home
        .until::<ClusterBootstrap>("prod", |cb| has(cluster_conditions(cb), "Failed", true, "VMDeleted"))
        .await;
    assert!(failed.status.unwrap().failure_remedy.unwrap().contains("`butleradm destroy prod`"));
    site.home.api::<MachineRequest>().delete("prod-worker-0", &DeleteParams::default()).await.unwrap();
    until_ready(&site).await;
    finish(site, life).await;
}

/// What somebody does who clicks on the infrastructure's own console.
async fn remove_behind_our_back(site: &Site, machine: &MachineRequest) {
    let config = site.home.api::<ProviderConfig>().get("site").await.unwrap();
    let secret = site.home.api::<Secret>().get("creds").await.unwrap();
    let keys =
        secret.data.unwrap().into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap()));
    let credentials = Credentials(keys.collect());
    let infrastructure = site.context().infrastructures.connect(&config.spec, &credentials).unwrap();
    let owner = Owner {
        cluster: "prod".to_owned(),
        cluster_uid: machine.owner_references()[0].uid.clone(),
        object_uid: machine.uid().unwrap(),
    };
    let target = MachineTarget { owner, name: machine.name_any(), provider_id: None };
    let mut operation = None;
    while let Done::InProgress { operation: next, recheck, .. } =
        infrastructure.machines.delete(&target, operation.as_ref()).await.unwrap()
    {
        operation = next;
        tokio::time::sleep(recheck).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_do_not_wait_for_each_other() {
    let site = site("machines:\n- {machine: c0-cp-0, fault: never-boots}\n").await;
    let life = site.home.start(site.context());
    for index in 0..4 {
        let name = format!("c{index}");
        site.home.given_secrets(&name).await;
        let spec = json!({
            "cluster": {"topology": "single-node"},
            "network": {
                "vip": format!("10.40.0.{}", 230 + index),
                "loadBalancerPool": {"start": format!("10.40.0.{}", 240 + index), "end": format!("10.40.0.{}", 240 + index)},
            },
        });
        site.home.create::<ClusterBootstrap>(cluster(&name, 1, spec)).await;
    }
    for name in ["c1", "c2", "c3"] {
        site.home.until::<ClusterBootstrap>(name, |cb| phase(cb) == Some(Phase::Ready)).await;
    }
    let stuck = site.home.api::<ClusterBootstrap>().get("c0").await.unwrap();
    assert_eq!(phase(&stuck), Some(Phase::ProvisioningMachines));
    // A pause and a deletion are honoured while it waits.
    let pause = json!({"spec": {"paused": true}});
    let api = site.home.api::<ClusterBootstrap>();
    api.patch("c0", &PatchParams::default(), &Patch::Merge(&pause)).await.unwrap();
    site.home
        .until::<ClusterBootstrap>("c0", |cb| has(cluster_conditions(cb), "Progressing", false, "Paused"))
        .await;
    for index in 0..4 {
        api.delete(&format!("c{index}"), &DeleteParams::default()).await.unwrap();
    }
    for index in 0..4 {
        site.home.until_gone::<ClusterBootstrap>(&format!("c{index}")).await;
    }
    assert_eq!(site.machines(), 0);
    life.end().await;
    site.data_centre.stop().await;
}
