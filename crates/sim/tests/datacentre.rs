//! A whole data centre: reached through its proxy, with faults by script, copied in the middle of a call and gone on with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use butler_sim::{
    BranchOptions, DataCentre, DataCentreOptions, Fault, FaultScript, Matcher, Media, Moment, NodeHandle,
    NodeOptions, Progress, Stage,
};
use butler_talos::client::{
    Credentials, ErrorClass, Fingerprint, Node, NodeState, Settings, Wait, bootstrap_when_ready,
    wait_until_configured, wait_until_etcd,
};
use butler_talos::{
    ClusterIntent, Endpoint, NodeIntent, Role, SecretsBundle, TalosVersion, Talosconfig, render,
};
use jiff::Timestamp;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const VERSION: &str = "v1.9.2";
const FIRST: &str = "10.40.0.11";

static SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);

async fn started(faults: &str) -> DataCentre {
    let faults = FaultScript::parse(faults).unwrap();
    DataCentre::start(DataCentreOptions { faults, ..DataCentreOptions::default() }).await.unwrap()
}

async fn machine(data_centre: &DataCentre, address: &str, name: &str) -> NodeHandle {
    let mut options = NodeOptions::new(address.parse().unwrap());
    options.media = Media::DiskImage;
    options.hostname = Some(name.to_string());
    data_centre.world().add_node(options).await.unwrap()
}

fn wait(name: &str) -> Wait {
    Wait::new(name, (std::time::Instant::now() + PATIENCE).into())
}

/// Our own client, with nothing but the proxy and the user's address.
fn client(data_centre: &DataCentre, address: &str) -> Node {
    let now = Timestamp::now();
    let config = Talosconfig::generate("c1", Vec::new(), &SECRETS, now, Duration::from_secs(3600)).unwrap();
    let credentials = Credentials::from_context(config.get(None).unwrap()).unwrap();
    let proxy = Some(data_centre.proxy_url().parse().unwrap());
    let settings = Settings { proxy, ..Settings::default() };
    Node::new(format!("{address}:50000").parse().unwrap(), Arc::new(settings)).with_credentials(credentials)
}

fn config(role: Role, name: &str) -> String {
    let endpoint = Endpoint::parse("https://10.40.0.200:6443").unwrap();
    let cluster = ClusterIntent::new("c1", endpoint, TalosVersion::parse(VERSION).unwrap());
    render(&cluster, &NodeIntent::new(role, name), &SECRETS).unwrap().to_yaml()
}

async fn apply(data_centre: &DataCentre, node: &NodeHandle, name: &str) -> Result<(), ErrorClass> {
    let pin: Fingerprint = node.fingerprint().unwrap().parse().unwrap();
    let address = node.address().to_string();
    let maintenance = client(data_centre, &address).with_pin(pin).connect_maintenance().await.unwrap();
    let applied = maintenance.apply_configuration(&config(Role::ControlPlane, name), false).await;
    applied.map(|_| ()).map_err(|error| error.class().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_reached_through_the_proxy_and_faults_fire_as_scripted() {
    let data_centre = started(
        "calls:\n- {system: talos, operation: ApplyConfiguration, fault: status 503}\n\
         - {system: talos, operation: ApplyConfiguration, nth: 2, fault: lose-answer}\n\
         machines:\n- {machine: dead, fault: never-boots}\n- {machine: short-lived, stage: maintenance, fault: die}",
    )
    .await;
    let nobody = client(&data_centre, FIRST).probe().await;
    assert!(matches!(nobody, NodeState::Unreachable { .. }), "{nobody:?}");
    let node = machine(&data_centre, FIRST, "cp1").await;
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
    let fingerprint: Fingerprint = node.fingerprint().unwrap().parse().unwrap();
    assert_eq!(client(&data_centre, FIRST).probe().await, NodeState::Maintenance { fingerprint });

    let refused = apply(&data_centre, &node, "cp1").await.unwrap_err();
    assert_eq!(node.stage(), Stage::Maintenance, "{refused:?}: it was not carried out");
    let lost = apply(&data_centre, &node, "cp1").await;
    assert!(lost.is_err(), "it was carried out, but nobody said so");
    wait_until_configured(&client(&data_centre, FIRST), &wait("the API")).await.unwrap();
    bootstrap_when_ready(&client(&data_centre, FIRST), &wait("bootstrap")).await.unwrap();
    wait_until_etcd(&client(&data_centre, FIRST), &wait("etcd")).await.unwrap();
    assert!(node.reaches(Stage::Running, PATIENCE).await);

    let applies: Vec<_> = data_centre.gate().calls().into_iter().collect();
    let applies: Vec<_> =
        applies.iter().filter(|logged| logged.call.operation == "ApplyConfiguration").collect();
    assert_eq!((applies[0].progress, applies[0].fault), (Progress::Refused, Some(Fault::Status(503))));
    assert_eq!((applies[1].progress, applies[1].fault), (Progress::Lost, Some(Fault::LoseAnswer)));
    assert_eq!((applies.len(), applies[1].call.object.as_str()), (2, "cp1"));

    let dead = machine(&data_centre, "10.40.0.12", "dead").await;
    let short = machine(&data_centre, "10.40.0.13", "short-lived").await;
    assert!(short.reaches(Stage::Off, PATIENCE).await, "it had got to maintenance mode");
    short.power_on().await;
    assert!(short.reaches(Stage::Maintenance, PATIENCE).await, "it dies only once");
    assert_eq!(dead.stage(), Stage::PoweringOn);
    assert!(!data_centre.fabric().is_up(dead.address()));
    let proxy = data_centre.proxy_address();
    data_centre.stop().await;
    assert!(tokio::net::TcpStream::connect(proxy).await.is_err(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_goes_on_from_either_side_of_a_call() {
    let data_centre = started("").await;
    let node = machine(&data_centre, FIRST, "cp1").await;
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
    let fingerprint = node.fingerprint();
    let bootstraps = Matcher { operation: Some("Bootstrap".into()), ..Matcher::default() };
    let mut before = data_centre.gate().hold_when(bootstraps.clone(), Moment::Before);
    let mut after = data_centre.gate().hold_when(bootstraps, Moment::After);

    let early = data_centre.snapshot().await;
    apply(&data_centre, &node, "cp1").await.unwrap();
    let worker = machine(&data_centre, "10.40.0.21", "w1").await;
    assert!(worker.reaches(Stage::Maintenance, PATIENCE).await);
    let client_side = client(&data_centre, FIRST);
    let bootstrapping = tokio::spawn(async move {
        wait_until_configured(&client_side, &wait("the API")).await.unwrap();
        bootstrap_when_ready(&client_side, &wait("bootstrap")).await
    });
    let call = before.reached().await.unwrap();
    let undone = data_centre.snapshot().await;
    assert_eq!(undone.calls(), call.number);
    before.go_on();
    assert_eq!(after.reached().await.unwrap().number, call.number);
    let done = data_centre.snapshot().await;
    bootstrapping.abort();
    data_centre.stop().await;

    // Before anything was applied: the same certificate is shown, and the worker has never been.
    let branch = DataCentre::branch(&early, BranchOptions::default()).await.unwrap();
    let known = branch.world().node(FIRST.parse().unwrap()).unwrap();
    assert_eq!((known.stage(), known.fingerprint()), (Stage::Maintenance, fingerprint));
    assert_eq!(branch.world().nodes().len(), 1);
    apply(&branch, &known, "cp1").await.unwrap();
    wait_until_configured(&client(&branch, FIRST), &wait("the API")).await.unwrap();
    branch.stop().await;

    // Before the bootstrap: somebody has to do it.
    let branch = DataCentre::branch(&undone, BranchOptions::default()).await.unwrap();
    let known = branch.world().node(FIRST.parse().unwrap()).unwrap();
    assert_eq!(branch.world().nodes().len(), 2);
    wait_until_configured(&client(&branch, FIRST), &wait("the API")).await.unwrap();
    assert_ne!(known.stage(), Stage::Running);
    bootstrap_when_ready(&client(&branch, FIRST), &wait("bootstrap")).await.unwrap();
    assert!(known.reaches(Stage::Running, PATIENCE).await);
    assert!(branch.gate().calls().iter().any(|logged| logged.number > call.number));
    branch.stop().await;

    // After it: the machine comes up by itself. The same snapshot serves twice.
    for _ in 0..2 {
        let branch = DataCentre::branch(&done, BranchOptions::default()).await.unwrap();
        let known = branch.world().node(FIRST.parse().unwrap()).unwrap();
        assert!(known.reaches(Stage::Running, PATIENCE).await, "{:?}", known.machine());
        drop(branch);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_dies_just_before_a_call() {
    let data_centre = started("machines:\n- {machine: 'victim-*', call: 1, fault: die}").await;
    let victim = machine(&data_centre, "10.40.0.12", "victim-1").await;
    let node = machine(&data_centre, FIRST, "cp1").await;
    assert!(victim.reaches(Stage::Maintenance, PATIENCE).await);
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
    apply(&data_centre, &node, "cp1").await.unwrap();
    assert_eq!(victim.stage(), Stage::Off);
    assert_eq!(data_centre.gate().calls()[0].call.operation, "ApplyConfiguration");
    data_centre.stop().await;
}
