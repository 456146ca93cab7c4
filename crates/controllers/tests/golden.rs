//! Golden journals: what whole bootstraps change and wait for, as text that people read and that is compared.
//!
//! `UPDATE_GOLDEN=1 cargo test -p butler-controllers --test golden` writes them anew; look at the difference.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lives;

use butler_api::{ClusterBootstrap, MachineRequest};
use butler_controllers::addons::{self, Site, SiteMachine, StandIns};
use butler_controllers::{Context, Infrastructures};
use butler_drivers::dry_run::Recording;
use butler_drivers::{Credentials, Failure, Infrastructure, NoRecorder, PlannedChange, Profile};
use butler_sim::{DataCentre, DataCentreOptions, Matcher, Moment};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use lives::{CLUSTER, Journal, Life, Patience, Place, cluster, golden};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Only ends a test that would never end.
const LIMIT: Duration = Duration::from_secs(120);

/// Drawing keys takes a while, and no journal tells of it.
static SECRETS: LazyLock<String> =
    LazyLock::new(|| butler_talos::SecretsBundle::generate(jiff::Timestamp::now()).unwrap().bundle.to_yaml());

async fn data_centre() -> DataCentre {
    DataCentre::start(DataCentreOptions::default()).await.unwrap()
}

async fn within<T>(life: &Life, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done,
        Err(_) => {
            let status = life.cluster().await.and_then(|cluster| cluster.status);
            panic!("never got there: {:?}", status.map(|status| status.conditions));
        }
    }
}

/// A life that is followed, with the cluster asked for.
async fn begin(folder: &Path, data_centre: &DataCentre, journal: &Arc<Journal>, wanted: Value) -> Life {
    begin_at(Place::Proxmox, folder, data_centre, journal, wanted).await
}

async fn begin_at(
    place: Place,
    folder: &Path,
    data_centre: &DataCentre,
    journal: &Arc<Journal>,
    wanted: Value,
) -> Life {
    let life = Life::begin(folder, data_centre, journal.clone(), Patience::default()).await;
    journal.follow(&life);
    lives::given_secrets(&life.client, &SECRETS).await;
    lives::ask(&life.client, data_centre, place, wanted).await;
    life
}

async fn bootstrap(name: &str, title: &str, wanted: Value) {
    let (folder, data_centre) = (tempfile::tempdir().unwrap(), data_centre().await);
    let journal = Arc::new(Journal::default());
    let life = begin(folder.path(), &data_centre, &journal, wanted).await;
    within(&life, life.ready()).await;
    within(&life, journal.reaches("phase Ready")).await;
    golden(name, &journal.text(title, &data_centre));
    life.end().await;
    data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ha_with_kube_vip() {
    bootstrap("ha-kube-vip", "three control planes and a worker behind kube-vip", cluster(1, json!({})))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ha_with_talos_vip() {
    let spec = json!({"addons": {"controlPlaneHA": {"type": "talos-vip"}}});
    bootstrap(
        "ha-talos-vip",
        "three control planes and a worker behind Talos' own address",
        cluster(1, spec),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_node() {
    let spec = json!({"cluster": {"topology": "single-node", "controlPlane": {"replicas": 1}}});
    bootstrap("single-node", "one machine that is everything", cluster(1, spec)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delete() {
    let (folder, data_centre) = (tempfile::tempdir().unwrap(), data_centre().await);
    let journal = Arc::new(Journal::default());
    let life = begin(folder.path(), &data_centre, &journal, cluster(1, json!({}))).await;
    within(&life, journal.reaches("phase Ready")).await;
    journal.forget();
    life.api::<ClusterBootstrap>().delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    within(&life, life.gone()).await;
    golden("delete", &journal.text("a cluster goes, with all that was made for it", &data_centre));
    life.end().await;
    data_centre.stop().await;
}

/// The first life dies when etcd is made and it has not heard so. It has a runtime of its own, which ends with it.
#[test]
fn resume() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (world, first, folder) = (runtime(), runtime(), tempfile::tempdir().unwrap());
    let data_centre = world.block_on(data_centre());
    let bootstraps = Matcher { operation: Some("Bootstrap".into()), ..Matcher::default() };
    let mut held = data_centre.gate().hold_when(bootstraps, Moment::After);
    let life = first.block_on(begin(folder.path(), &data_centre, &Arc::default(), cluster(1, json!({}))));
    first.block_on(within(&life, held.reached())).unwrap();
    // The worker is on its way meanwhile; it gets there, so that the second life finds the same in every run.
    let configured = |cluster: Option<&ClusterBootstrap>| {
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        status.is_some_and(|status| status.machines.iter().all(|machine| machine.talos_configured))
    };
    first.block_on(within(&life, await_condition(life.api(), CLUSTER, configured))).unwrap();
    let store = life.server.store().clone();
    drop(life);
    first.shutdown_timeout(Duration::from_secs(30));
    // A process that dies lets go of the folder; here its last thread does.
    store.close();
    drop(store);
    held.go_on();

    world.block_on(async {
        let journal = Arc::new(Journal::default());
        let life = Life::begin(folder.path(), &data_centre, journal.clone(), Patience::default()).await;
        journal.follow(&life);
        within(&life, journal.reaches("phase Ready")).await;
        assert_eq!(data_centre.world().etcd_clusters(), 1);
        golden("resume", &journal.text("a second life goes on after etcd was made", &data_centre));
        life.end().await;
        data_centre.stop().await;
    });
}

/// Gives the one recording, whatever is asked for.
struct Recorded(Recording);

impl Infrastructures for Recorded {
    fn connect(
        &self,
        _: &butler_api::ProviderConfigSpec,
        _: &Credentials,
    ) -> Result<Infrastructure, Failure> {
        Ok(self.0.infrastructure())
    }
}

/// All changes that a dry run lists: the controllers run on a recording until every machine is planned.
async fn dry_run(
    place: Place,
    data_centre: &DataCentre,
    wanted: Value,
    machines: usize,
) -> Vec<PlannedChange> {
    let folder = tempfile::tempdir().unwrap();
    let config: butler_api::ProviderConfig = serde_json::from_value(place.provider(data_centre)).unwrap();
    let recording = Recording::new(&config.spec).unwrap();
    let (server, client) = lives::open(folder.path()).await;
    let wiring = lives::context(client, data_centre, Arc::new(NoRecorder), Patience::default());
    let life =
        Life::with(server, Context { infrastructures: Arc::new(Recorded(recording.clone())), ..wiring });
    lives::given_secrets(&life.client, &SECRETS).await;
    lives::ask(&life.client, data_centre, place, wanted).await;
    let planned = |cluster: Option<&ClusterBootstrap>| {
        let status = cluster.and_then(|cluster| cluster.status.as_ref());
        status.is_some_and(|status| {
            butler_api::find_condition(&status.conditions, "MachinesReady")
                .is_some_and(butler_api::Condition::is_true)
        })
    };
    within(&life, await_condition(life.api(), CLUSTER, planned)).await.unwrap();
    let made = life.api::<MachineRequest>().list(&Default::default()).await.unwrap().items;
    assert_eq!(made.len(), machines);
    life.end().await;
    recording.changes()
}

/// Side by side, machines are made in any order.
fn comparable(changes: Vec<PlannedChange>) -> Vec<String> {
    let mut lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_lists_what_a_real_run_makes() {
    let (folder, data_centre) = (tempfile::tempdir().unwrap(), data_centre().await);
    let planned = dry_run(Place::Proxmox, &data_centre, cluster(3, json!({})), 6).await;
    assert_eq!(data_centre.gate().count(), 0, "a dry run calls nobody");
    let journal = Arc::new(Journal::default());
    let life = begin(folder.path(), &data_centre, &journal, cluster(3, json!({}))).await;
    within(&life, life.ready()).await;
    let made = comparable(journal.changes());
    assert_eq!(comparable(planned), made);
    assert_eq!(made.iter().filter(|line| line.contains("clone template 9000")).count(), 6, "{made:#?}");

    let inventories = lives::inventories(&data_centre);
    let applied: BTreeMap<String, usize> =
        inventories.iter().map(|(addon, objects)| (addon.clone(), objects.len())).collect();
    assert_eq!(planned_objects(&life).await, applied, "every addon, with as many objects");
    life.end().await;
    data_centre.stop().await;
}

/// The same with an image from a factory, machines made from it, and fixed addresses.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_lists_what_a_real_run_makes_from_an_image() {
    let place = Place::ProxmoxImage;
    let folder = tempfile::tempdir().unwrap();
    let data_centre = DataCentre::start(place.options()).await.unwrap();
    let wanted = || place.cluster(1, json!({}));
    let planned = dry_run(place, &data_centre, wanted(), 4).await;
    assert_eq!(data_centre.gate().count(), 0, "a dry run calls nobody");
    let journal = Arc::new(Journal::default());
    let life = begin_at(place, folder.path(), &data_centre, &journal, wanted()).await;
    within(&life, life.ready()).await;
    let made = comparable(journal.changes());
    assert_eq!(comparable(planned), made);
    let count = |words: &str| made.iter().filter(|line| line.contains(words)).count();
    assert_eq!(
        (count("download https://factory.talos.dev/"), count("address 10.40.0.6")),
        (3, 4),
        "{made:#?}"
    );
    life.end().await;
    data_centre.stop().await;
}

/// How many objects the dry run lists for each addon.
async fn planned_objects(life: &Life) -> BTreeMap<String, usize> {
    let cluster = life.cluster().await.unwrap();
    let config = life.api::<butler_api::ProviderConfig>().get("site").await.unwrap();
    let credentials = life.api::<Secret>().get("creds").await.unwrap().data.unwrap();
    let credentials = credentials.into_iter().map(|(key, value)| (key, value.0)).collect();
    let machines = life.api::<MachineRequest>().list(&Default::default()).await.unwrap().items;
    let machines: Vec<SiteMachine> = machines
        .iter()
        .map(|machine| SiteMachine {
            name: machine.name_any(),
            role: machine.spec.role,
            address: None,
            provider_id: None,
        })
        .collect();
    let profile = Profile::of(butler_api::Provider::Proxmox);
    let site = Site {
        spec: &cluster.spec,
        name: CLUSTER,
        namespace: lives::NAMESPACE,
        profile: &profile,
        endpoint: "10.40.0.200",
        provider_config: &config,
        credentials: &credentials,
        machines: &machines,
        multi_tenancy: None,
    };
    let planned = addons::plan(&site).into_iter().filter(|addon| addon.skipped.is_none());
    let counted = planned.map(|addon| {
        let objects = addons::objects(addon.name, &site, &StandIns).unwrap();
        (addon.name.to_owned(), objects.len())
    });
    // Addons that only change nodes have no objects, and leave no inventory.
    counted.filter(|(_, objects)| *objects > 0).collect()
}
