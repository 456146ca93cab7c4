//! Our own Talos client against simulated nodes: the whole way from maintenance mode to a cluster, and back.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use butler_sim::{NodeHandle, NodeOptions, Stage, World, WorldOptions};
use butler_talos::client::{
    Client, Credentials, Decision, ErrorClass, Fingerprint, MachineStatus, Node, NodeState, Owner, Refusal,
    ResetOptions, Settings, Wait, bootstrap_guard, bootstrap_when_ready, wait_until_configured,
    wait_until_etcd, wait_until_maintenance, wait_until_status,
};
use butler_talos::pki::{Leaf, Usage};
use butler_talos::{
    ClusterIntent, Endpoint, InstallDisk, NodeIntent, Role, SecretsBundle, TalosVersion, Talosconfig,
    client_certificate, render,
};
use jiff::Timestamp;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(60);
const VERSION: &str = "v1.9.2";

/// Two clusters' secrets: an RSA key takes a while, so that all tests share them.
static SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);
static OTHER_SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);

fn world() -> World {
    World::new(WorldOptions { speed: 0.0, seed: 7 })
}

async fn machine(world: &World, address: [u8; 4]) -> NodeHandle {
    let options = NodeOptions { port: 0, trustd_port: 0, ..NodeOptions::new(IpAddr::from(address)) };
    let node = world.add_node(options).await.unwrap();
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await, "{:?}", node.stage());
    node
}

fn wait(name: &str) -> Wait {
    Wait::new(name, (std::time::Instant::now() + PATIENCE).into())
}

fn credentials(secrets: &SecretsBundle) -> Credentials {
    let now = Timestamp::now();
    let config = Talosconfig::generate("c1", Vec::new(), secrets, now, Duration::from_secs(3600)).unwrap();
    Credentials::from_context(config.get(None).unwrap()).unwrap()
}

fn with_roles(roles: &[&str]) -> Credentials {
    let pair = client_certificate(&SECRETS.os, roles, Timestamp::now(), Duration::from_secs(3600)).unwrap();
    Credentials::from_pem(SECRETS.os.cert_pem(), &pair.cert_pem, pair.key_pem.expose()).unwrap()
}

fn client(node: &NodeHandle) -> Node {
    Node::new(node.api_address().into(), Arc::new(Settings::default()))
        .with_credentials(credentials(&SECRETS))
}

fn config(role: Role, name: &str) -> String {
    let endpoint = Endpoint::parse("https://127.64.0.99:6443").unwrap();
    let mut cluster = ClusterIntent::new("c1", endpoint, TalosVersion::parse(VERSION).unwrap());
    cluster.cni = butler_talos::Cni::Flannel;
    let mut node = NodeIntent::new(role, name);
    node.install_disk = Some(InstallDisk::Path("/dev/sda".into()));
    render(&cluster, &node, &SECRETS).unwrap().to_yaml()
}

/// Applies a configuration in maintenance mode.
async fn apply(node: &NodeHandle, role: Role, name: &str) {
    let pin: Fingerprint = node.fingerprint().unwrap().parse().unwrap();
    let maintenance = client(node).with_pin(pin).connect_maintenance().await.unwrap();
    maintenance.apply_configuration(&config(role, name), false).await.unwrap();
}

async fn control_plane(world: &World, address: [u8; 4], name: &str) -> NodeHandle {
    let node = machine(world, address).await;
    apply(&node, Role::ControlPlane, name).await;
    node
}

async fn bootstrapped(node: &NodeHandle) -> Client {
    bootstrap_when_ready(&client(node), &wait("bootstrap")).await.unwrap();
    wait_until_etcd(&client(node), &wait("etcd")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_from_maintenance_to_running_and_back() {
    let world = world();
    let node = machine(&world, [127, 64, 1, 1]).await;
    let fingerprint = node.fingerprint().unwrap();
    let state = client(&node).probe().await;
    assert_eq!(state, NodeState::Maintenance { fingerprint: fingerprint.parse().unwrap() });

    apply(&node, Role::ControlPlane, "cp1").await;
    let session = wait_until_configured(&client(&node), &wait("the API")).await.unwrap();
    assert_eq!(node.fingerprint(), None, "the maintenance certificate is gone");
    let version = session.version().await.unwrap();
    assert_eq!(version.version.unwrap().tag, VERSION);
    let state = client(&node).probe().await;
    assert!(matches!(state, NodeState::Configured { owner: Owner::Ours, .. }), "{state:?}");

    let session = bootstrapped(&node).await;
    let members = session.etcd_member_list(false).await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].hostname, "cp1");
    let again = session.bootstrap().await.unwrap_err();
    assert_eq!(again.class(), &ErrorClass::AlreadyBootstrapped);
    assert_eq!(again.code(), Some(Code::AlreadyExists));

    let ready = |status: &MachineStatus| status.is_running() && status.ready;
    wait_until_status(&client(&node), &wait("ready"), ready).await.unwrap();
    let services = session.service_list().await.unwrap();
    let ids: Vec<&str> = services.iter().map(|service| service.id.as_str()).collect();
    let all = [
        "apid",
        "auditd",
        "containerd",
        "cri",
        "dashboard",
        "etcd",
        "kubelet",
        "machined",
        "syslogd",
        "trustd",
        "udevd",
    ];
    assert_eq!(ids, all);
    assert!(services.iter().all(|service| service.state == "Running"), "{services:?}");

    let kubeconfig = session.kubeconfig().await.unwrap();
    assert!(kubeconfig.expose().contains("server: https://127.64.0.99:6443"));
    assert!(kubeconfig.expose().contains("current-context: admin@c1"));

    let options =
        ResetOptions { graceful: false, reboot: true, partitions: Vec::new(), user_disks: Vec::new() };
    session.reset(&options).await.unwrap();
    wait_until_maintenance(&client(&node), &wait("maintenance")).await.unwrap();
    assert!(node.machine().disk.config.is_none() && node.machine().disk.etcd.is_none());

    // Its etcd died with its data: the same configuration again finds nobody to join, and is a new cluster.
    apply(&node, Role::ControlPlane, "cp1").await;
    let session = bootstrapped(&node).await;
    let reborn = session.etcd_member_list(true).await.unwrap();
    assert_eq!(reborn.len(), 1);
    assert_ne!(reborn[0].id, members[0].id);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_mode_answers_as_talos_does() {
    let world = world();
    let node = machine(&world, [127, 64, 1, 2]).await;
    let session = client(&node).connect_maintenance().await.unwrap();
    let version = session.version().await.unwrap_err();
    assert_eq!(version.code(), Some(Code::Unimplemented));
    assert!(version.message().contains("API is not implemented in maintenance mode"), "{version}");
    assert_eq!(session.service_list().await.unwrap_err().code(), Some(Code::Unimplemented));
    assert_eq!(session.disks().await.unwrap()[0].device_name, "/dev/sda");
    let status = MachineStatus::get(&session).await.unwrap().unwrap();
    assert_eq!(status.stage.to_string(), "maintenance");

    let broken = config(Role::Worker, "w1").replace("certSANs:", "certSANz:");
    let refused = session.apply_configuration(&broken, false).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Unknown));
    assert!(refused.message().contains("unknown keys found during decoding:"), "{refused}");
    assert!(refused.message().contains("machine.certSANz"), "{refused}");

    let tried = session.apply_configuration(&config(Role::Worker, "w1"), true).await.unwrap();
    assert!(tried.details.contains("does not have a config yet"), "{}", tried.details);
    assert_eq!(node.stage(), Stage::Maintenance);

    let wrong: Fingerprint = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=".parse().unwrap();
    let pinned = client(&node).with_pin(wrong).connect_maintenance().await.unwrap_err();
    assert_eq!(pinned.class(), &ErrorClass::WrongCertificate);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_control_planes_and_a_worker() {
    let world = world();
    let worker = machine(&world, [127, 64, 2, 9]).await;
    apply(&worker, Role::Worker, "w1").await;
    assert!(worker.reaches(Stage::Booting, PATIENCE).await);
    assert!(!worker.machine().serves_apid(), "no control plane has signed its certificate");

    let mut nodes = Vec::new();
    for (number, name) in [(1, "cp1"), (2, "cp2"), (3, "cp3")] {
        nodes.push(control_plane(&world, [127, 64, 2, number], name).await);
    }
    // Now trustd is there.
    let session = wait_until_configured(&client(&worker), &wait("the worker's API")).await.unwrap();
    let refused = session.bootstrap().await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::FailedPrecondition));
    assert_eq!(session.kubeconfig().await.unwrap_err().code(), Some(Code::Unimplemented));

    for node in &nodes {
        wait_until_configured(&client(node), &wait("the API")).await.unwrap();
    }
    let clients: Vec<Node> = nodes.iter().map(client).collect();
    let (decision, _) = bootstrap_guard(&clients, &clients[0]).await;
    assert_eq!(decision, Decision::Bootstrap);
    let session = bootstrapped(&nodes[0]).await;
    for node in &nodes {
        wait_until_etcd(&client(node), &wait("a vote in etcd")).await.unwrap();
        assert!(node.reaches(Stage::Running, PATIENCE).await);
    }
    let members = session.etcd_member_list(false).await.unwrap();
    let mut names: Vec<&str> = members.iter().map(|member| member.hostname.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cp1", "cp2", "cp3"]);
    let (decision, _) = bootstrap_guard(&clients, &clients[1]).await;
    assert!(
        matches!(decision, Decision::AlreadyDone | Decision::Refuse(Refusal::Elsewhere { .. })),
        "{decision:?}"
    );
    assert!(worker.reaches(Stage::Running, PATIENCE).await);

    // A member whose machine is dead can be removed; when the machine comes back, its etcd fails.
    let gone = members.iter().find(|member| member.hostname == "cp3").unwrap();
    nodes[2].power_off().await;
    session.etcd_remove_member_by_id(gone.id).await.unwrap();
    assert_eq!(session.etcd_member_list(false).await.unwrap().len(), 2);
    nodes[2].power_on().await;
    let back = wait_until_configured(&client(&nodes[2]), &wait("the API")).await.unwrap();
    let failed = async {
        loop {
            let services = back.service_list().await.unwrap();
            if services.iter().any(|service| service.id == "etcd" && service.state == "Failed") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_by_control_planes_and_not_by_workers() {
    let world = world();
    let first = control_plane(&world, [127, 64, 3, 1], "cp1").await;
    let second = control_plane(&world, [127, 64, 3, 2], "cp2").await;
    let worker = machine(&world, [127, 64, 3, 3]).await;
    apply(&worker, Role::Worker, "w1").await;
    for node in [&first, &second, &worker] {
        wait_until_configured(&client(node), &wait("the API")).await.unwrap();
    }
    let status = |session: Client| async move { MachineStatus::get(&session).await };
    let session = client(&first).connect().await.unwrap();
    assert!(status(session.targeting("127.64.3.2")).await.is_ok());
    let absent = session.targeting("127.64.3.200").version().await.unwrap_err();
    assert_eq!(absent.code(), Some(Code::Unavailable));
    let session = client(&worker).connect().await.unwrap();
    assert!(session.targeting("127.64.3.3").version().await.is_ok(), "itself");
    let denied = session.targeting("127.64.3.1").version().await.unwrap_err();
    assert_eq!(denied.code(), Some(Code::PermissionDenied));
    assert!(denied.message().contains("no request forwarding"), "{denied}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_certificates_come_in() {
    let world = world();
    let node = control_plane(&world, [127, 64, 4, 1], "cp1").await;
    wait_until_configured(&client(&node), &wait("the API")).await.unwrap();
    let bare = || Node::new(node.api_address().into(), Arc::new(Settings::default()));

    let foreign = bare().with_credentials(credentials(&OTHER_SECRETS)).probe().await;
    assert!(matches!(foreign, NodeState::Configured { owner: Owner::Foreign, .. }), "{foreign:?}");
    let unknown = bare().probe().await;
    assert!(matches!(unknown, NodeState::Configured { owner: Owner::Unknown, .. }), "{unknown:?}");

    // Right CA, but usable for servers too: apid compares the list.
    let now = Timestamp::now();
    let leaf = Leaf {
        common_name: None,
        organizations: vec!["os:admin".into()],
        names: Vec::new(),
        usage: Usage::ClientAndServer,
        key_encipherment: false,
        not_before: now,
        not_after: now + Duration::from_secs(3600),
    };
    let pair = SECRETS.os.issue(SECRETS.os.key().algorithm(), &leaf).unwrap();
    let both = Credentials::from_pem(SECRETS.os.cert_pem(), &pair.cert_pem, pair.key_pem.expose()).unwrap();
    let refused = async { bare().with_credentials(both).connect().await?.version().await }.await.unwrap_err();
    assert_eq!(refused.class(), &ErrorClass::WrongCertificate, "{refused}");

    let reader = bare().with_credentials(with_roles(&["os:reader"])).connect().await.unwrap();
    reader.version().await.unwrap();
    let denied = reader.reboot().await.unwrap_err();
    assert_eq!((denied.code(), denied.class()), (Some(Code::PermissionDenied), &ErrorClass::Denied));
    assert!(reader.resource("config", "MachineConfigs.config.talos.dev", "v1alpha1").await.is_err());
    assert_eq!(node.stage(), Stage::Booting, "nothing has happened");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_keeps_the_cluster_and_an_upgrade_changes_the_version() {
    let world = world();
    let node = control_plane(&world, [127, 64, 5, 1], "cp1").await;
    let session = bootstrapped(&node).await;
    let before = session.etcd_member_list(true).await.unwrap()[0].id;
    session.reboot().await.unwrap();
    session.closed().await;
    let session = wait_until_etcd(&client(&node), &wait("etcd after the reboot")).await.unwrap();
    assert_eq!(session.etcd_member_list(true).await.unwrap()[0].id, before);

    assert!(node.reaches(Stage::Running, PATIENCE).await);
    session.upgrade("ghcr.io/siderolabs/installer:v1.10.6", false, false).await.unwrap();
    session.closed().await;
    let session = wait_until_etcd(&client(&node), &wait("etcd after the upgrade")).await.unwrap();
    assert_eq!(session.version().await.unwrap().version.unwrap().tag, "v1.10.6");
    let refused = session.upgrade("ghcr.io/siderolabs/installer", false, false).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Unknown));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_control_plane_can_be_bootstrapped_into_a_second_cluster() {
    let world = world();
    let first = control_plane(&world, [127, 64, 6, 1], "cp1").await;
    bootstrapped(&first).await;
    // Without a quorum the second finds nothing to join, and its own directory is empty: the check is local, as in Talos.
    first.power_off().await;
    let second = control_plane(&world, [127, 64, 6, 2], "cp2").await;
    bootstrapped(&second).await;
    first.power_on().await;
    wait_until_etcd(&client(&first), &wait("etcd")).await.unwrap();
    for (node, name) in [(&first, "cp1"), (&second, "cp2")] {
        let members = client(node).connect().await.unwrap().etcd_member_list(true).await.unwrap();
        let names: Vec<&str> = members.iter().map(|member| member.hostname.as_str()).collect();
        assert_eq!(names, [name], "two clusters of one member each");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_with_user_data_is_never_in_maintenance_mode() {
    let world = world();
    let options = NodeOptions {
        port: 0,
        trustd_port: 0,
        media: butler_sim::Media::DiskImage,
        user_data: Some(config(Role::ControlPlane, "cp1")),
        ..NodeOptions::new(IpAddr::from([127, 64, 7, 1]))
    };
    let node = world.add_node(options.clone()).await.unwrap();
    wait_until_configured(&client(&node), &wait("the API")).await.unwrap();
    assert!(world.add_node(options).await.is_err(), "the address is taken");
    let address = node.api_address();
    world.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing is left");
}
