//! What can be wrong with the infrastructure: logins, rights, templates, room, ids, names, hosts, images.

use crate::site::{Setting, Site, Size, TOKEN_SECRET, soon};
use butler_api::{ButlerConfig, ClusterBootstrap, ClusterBootstrapPhase as Phase};
use butler_sim::proxmox::{ProxmoxSite, Secret, SiteAcl, SiteImage, SiteToken, SiteUser, SiteVm};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// A machine of somebody else.
fn foreign(vmid: u32, name: &str) -> SiteVm {
    SiteVm { vmid, name: name.to_owned(), address: None, ..ProxmoxSite::example().foreign[1].clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials() {
    let credentials = json!({"token": "root@pam!butler", "tokenSecret": "wrong"});
    let mut site = Site::new(Setting { credentials, ..Setting::default() }).await;
    site.begin(soon()).await;
    site.is_degraded("LoginFailed").await;
    let (message, remedy) = site.fails("LoginFailed").await;
    assert!(remedy.contains("tokenSecret"), "{remedy}");
    assert!(!message.contains("wrong"), "the secret itself is never told: {message}");
    assert_eq!(site.ours(), []);
    site.set_credentials(json!({"tokenSecret": TOKEN_SECRET})).await;
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permission() {
    let mut proxmox = ProxmoxSite::example();
    proxmox.users.push(SiteUser {
        id: "butler@pve".to_owned(),
        password: None,
        tokens: vec![SiteToken {
            id: "t".to_owned(),
            secret: Secret::new(TOKEN_SECRET),
            privilege_separation: false,
        }],
    });
    proxmox.acls = vec![SiteAcl {
        path: "/".to_owned(),
        who: "butler@pve".to_owned(),
        role: "PVEAuditor".to_owned(),
        propagate: true,
    }];
    let credentials = json!({"token": "butler@pve!t", "tokenSecret": TOKEN_SECRET});
    let mut site = Site::new(Setting { credentials, proxmox, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, remedy) = site.fails("PermissionDenied").await;
    assert!(message.contains("VM.Clone") || message.contains("VM.Allocate"), "{message}");
    assert!(remedy.contains("rights"), "{remedy}");
    assert_eq!(site.ours(), []);
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.set_role("/", "Administrator")));
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_template() {
    let mut site = Site::new(Setting::default()).await;
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.move_to_id(9000, 9999)));
    site.begin(soon()).await;
    let (message, remedy) = site.fails("TemplateMissing").await;
    assert!(message.contains("9000") && remedy.contains("templateID"), "{message}: {remedy}");
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.move_to_id(9999, 9000)));
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_storage() {
    let mut site = Site::new(Setting::default()).await;
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.fill_storage("ceph-vm")));
    site.begin(soon()).await;
    site.is_degraded("StorageFull").await;
    let (message, remedy) = site.fails("StorageFull").await;
    assert!(message.contains("prod-cp-0") && remedy.contains("free some space"), "{message}: {remedy}");
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.clear_storage("ceph-vm")));
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// All machines are cloned at once, and the storage can lock for one at a time: that passes, and nobody calls it a failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_can_not_keep_up() {
    let mut proxmox = ProxmoxSite::example();
    proxmox.storages.iter_mut().filter(|s| s.name == "ceph-vm").for_each(|s| s.copies = Some(1));
    let mut site = Site::new(Setting { size: Size::Four, proxmox, speed: 0.01, ..Setting::default() }).await;
    site.begin(crate::support::quick()).await;
    let ended = site.home.until::<ClusterBootstrap>(crate::site::NAME, |cluster| {
        matches!(crate::site::phase(cluster), Some(Phase::Ready | Phase::Failed))
    });
    let ended = ended.await;
    assert_eq!(crate::site::phase(&ended), Some(Phase::Ready), "{:?}", ended.status.unwrap().failure_message);
    let state = serde_json::to_value(site.data_centre.proxmox().unwrap().state()).unwrap();
    let locked =
        |task: &&serde_json::Value| task["exit"].as_str().is_some_and(|exit| exit.contains("cfs-lock"));
    assert!(
        state["tasks"].as_object().unwrap().values().filter(locked).count() > 0,
        "no clone came too late"
    );
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ids_of_the_range_are_taken() {
    let provider = json!({"vmidRange": {"start": 200, "end": 202}});
    let mut site = Site::new(Setting { provider, ..Setting::default() }).await;
    let others = [200, 201, 202];
    site.data_centre.proxmox().unwrap().change(|state| {
        others.into_iter().for_each(|id| state.add_foreign(&foreign(id, &format!("other-{id}"))));
    });
    site.begin(soon()).await;
    let (message, remedy) = site.fails("NoFreeVmid").await;
    assert!(message.contains("200 to 202") && remedy.contains("vmidRange"), "{message}: {remedy}");
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.remove_foreign(201)));
    site.take_as_before();
    site.comes_up().await;
    let made = site.data_centre.proxmox().unwrap().state().name_of(201).map(str::to_owned);
    assert_eq!(made.as_deref(), Some("prod-cp-0"), "the freed id, and none of the others");
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_somebody_has_is_left_to_them() {
    let provider = json!({"vmidRange": {"start": 200, "end": 202}});
    let mut site = Site::new(Setting { provider, ..Setting::default() }).await;
    site.data_centre.proxmox().unwrap().change(|state| state.add_foreign(&foreign(200, "somebodys")));
    site.take_as_before();
    site.begin(soon()).await;
    site.comes_up().await;
    assert_eq!(site.data_centre.proxmox().unwrap().state().name_of(200), Some("somebodys"));
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_belongs_to_a_foreign_machine() {
    let mut site = Site::new(Setting::default()).await;
    site.data_centre.proxmox().unwrap().change(|state| state.add_foreign(&foreign(300, "prod-cp-0")));
    site.take_as_before();
    site.begin(soon()).await;
    let (message, remedy) = site.fails("NameTaken").await;
    assert!(message.contains("VM 300") && remedy.contains("rename or delete"), "{message}: {remedy}");
    assert_eq!(site.ours(), []);
    // Nothing of theirs is touched, neither now nor when the cluster is given up.
    site.delete().await;
    site.is_gone().await;
    site.home.create::<ClusterBootstrap>(crate::site::cluster(crate::site::Size::One, json!({}))).await;
    site.fails("NameTaken").await;
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.remove_foreign(300)));
    site.take_as_before();
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_of_the_infrastructure_is_up() {
    let mut site = Site::new(Setting::default()).await;
    let proxmox = site.data_centre.proxmox().unwrap();
    let all = |online: bool| {
        proxmox.change(|state| {
            for host in ["pve1", "pve2", "pve3"] {
                assert!(state.set_online(host, online));
            }
        });
    };
    all(false);
    site.begin(soon()).await;
    let (message, remedy) = site.fails("NoNodeOnline").await;
    assert!(message.contains("pve1, pve2, pve3") && remedy.contains("bring one"), "{message}: {remedy}");
    all(true);
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_that_is_down_is_passed_over() {
    let mut site = Site::new(Setting::default()).await;
    // The first control plane would be put there.
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.set_online("pve2", false)));
    site.begin(soon()).await;
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_of_the_infrastructure_is_cut_off() {
    let faults = "calls: [{system: proxmox, times: always, fault: reset}]";
    let mut site = Site::new(Setting { faults, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, _) = site.fails("AnswerLost").await;
    assert!(message.contains("pve.example.internal") || message.contains("prod-cp-0"), "{message}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// The settings of an image factory.
async fn factory(site: &Site, url: &str) {
    let settings: ButlerConfig = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ButlerConfig", "metadata": {"name": "butler"},
        "spec": {"imageFactory": {"url": url, "autoSync": true}},
    }))
    .unwrap();
    Api::all(site.home.client.clone()).create(&PostParams::default(), &settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_the_factory_does_not_have() {
    let mut proxmox = ProxmoxSite::example();
    let image: SiteImage = proxmox.images.remove(0);
    let mut site = Site::new(Setting { proxmox, ..Setting::default() }).await;
    factory(&site, "https://factory.talos.dev").await;
    site.begin(soon()).await;
    let (message, _) = site.fails("DownloadFailed").await;
    assert!(message.contains("image"), "{message}");
    assert_eq!(site.ours(), [], "no machine without its image");
    site.data_centre.proxmox().unwrap().change(|state| state.set_image(&image, true));
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_factory_the_image_is_skipped_and_said_to_be() {
    let mut site = Site::new(Setting::default()).await;
    site.begin(soon()).await;
    site.comes_up().await;
    let cluster = site.home.until::<ClusterBootstrap>(crate::site::NAME, |_| true).await;
    let conditions = crate::support::cluster_conditions(&cluster);
    assert!(crate::support::has(conditions, "ImageReady", true, "ImageSyncSkipped"), "{conditions:?}");
    site.leaves_nothing().await;
}

/// A host that is down while the cluster goes has a file of ours: it is not said to be gone, and goes when the host is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_down_that_has_the_image() {
    let mut proxmox = ProxmoxSite::example();
    for storage in proxmox.storages.iter_mut().filter(|storage| storage.name == "local") {
        (storage.shared, storage.kind) = (false, "dir".to_owned());
    }
    let mut site = Site::new(Setting { proxmox, ..Setting::default() }).await;
    factory(&site, "https://factory.talos.dev").await;
    site.begin(soon()).await;
    site.comes_up().await;
    // Not the one that has the machine.
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.set_online("pve3", false)));
    site.delete().await;
    let (message, remedy) = site.fails("NodeUnreachable").await;
    assert!(message.contains("pve3") && remedy.contains("bring"), "{message}: {remedy}");
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.set_online("pve3", true)));
    site.is_gone().await;
    site.stops().await;
}
