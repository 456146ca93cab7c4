//! Every call of the client, made to a simulated node. (The way of a node from config to cluster is tested in `sim` and `cli`.)
#![allow(clippy::unwrap_used, reason = "helpers of a test are not test functions themselves")]

use butler_sim::{NodeOptions, World, WorldOptions};
use butler_talos::api::cluster::ClusterInfo;
use butler_talos::api::cosi::resource::EventType;
use butler_talos::client::{
    Client, Credentials, ErrorClass, MachineStatus, Node, NodeEvent, Settings, Wait, bootstrap_when_ready,
    wait_until_answering, wait_until_configured, wait_until_etcd, wait_until_gone, wait_until_status,
};
use butler_talos::{
    ClusterIntent, Cni, Endpoint, InstallDisk, NodeIntent, Role, SecretsBundle, TalosVersion, Talosconfig,
    render,
};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

fn wait(name: &str) -> Wait {
    Wait::new(name, Instant::now() + Duration::from_secs(60))
}

/// A control plane with a healthy etcd, ready.
async fn running(world: &World) -> (Node, Client) {
    let now = Timestamp::now();
    let secrets = SecretsBundle::generate(now).unwrap().bundle;
    let talosconfig =
        Talosconfig::generate("c1", Vec::new(), &secrets, now, Duration::from_secs(3600)).unwrap();
    let endpoint = Endpoint::parse("https://127.64.30.9:6443").unwrap();
    let mut cluster = ClusterIntent::new("c1", endpoint, TalosVersion::parse("v1.9.2").unwrap());
    cluster.cni = Cni::Flannel;
    let mut intent = NodeIntent::new(Role::ControlPlane, "cp1");
    intent.install_disk = Some(InstallDisk::Path("/dev/sda".into()));
    let options = NodeOptions { port: 0, trustd_port: 0, ..NodeOptions::new([127, 64, 30, 1].into()) };
    let machine = world.add_node(options).await.unwrap();
    let node = Node::new(machine.api_address().into(), Arc::new(Settings::default()))
        .with_credentials(Credentials::from_context(talosconfig.get(None).unwrap()).unwrap());
    wait_until_answering(&node, &wait("maintenance")).await.unwrap();
    let config = render(&cluster, &intent, &secrets).unwrap().to_yaml();
    node.connect_maintenance().await.unwrap().apply_configuration(&config, false).await.unwrap();
    bootstrap_when_ready(&node, &wait("bootstrap")).await.unwrap();
    let client = wait_until_etcd(&node, &wait("etcd")).await.unwrap();
    wait_until_status(&node, &wait("ready"), |status| status.is_running() && status.ready).await.unwrap();
    (node, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_answered() {
    let world = World::new(WorldOptions { speed: 0.0, seed: 11 });
    let (node, client) = running(&world).await;

    assert_eq!(client.version().await.unwrap().version.unwrap().tag, "v1.9.2");
    let members = client.etcd_member_list(true).await.unwrap();
    assert_eq!((members.len(), members[0].hostname.as_str(), members[0].is_learner), (1, "cp1", false));
    let status = client.etcd_status().await.unwrap();
    assert_eq!((status.member_id, status.leader), (members[0].id, members[0].id));
    assert!(client.etcd_remove_member_by_id(members[0].id ^ 1).await.is_err());
    assert!(client.list("/var/lib/etcd").await.unwrap().iter().any(|file| file.relative_name == "member"));
    assert!(client.disks().await.unwrap().iter().any(|disk| disk.device_name == "/dev/sda"));
    let clock = SystemTime::try_from(client.time().await.unwrap().localtime.unwrap()).unwrap();
    assert!(clock.elapsed().unwrap_or_default() < Duration::from_secs(60));

    let mut events = client.events(-1, None).await.unwrap();
    let mut seen = Vec::new();
    while !seen.iter().any(|event| matches!(event, NodeEvent::ServiceState(state) if state.service == "etcd"))
    {
        seen.push(NodeEvent::decode(&events.next().await.unwrap().unwrap()));
    }
    assert_eq!(seen[0], NodeEvent::Hello);

    assert!(MachineStatus::get(&client).await.unwrap().unwrap().ready);
    let missing =
        client.resource("runtime", "MachineStatuses.runtime.talos.dev", "nobody").await.unwrap_err();
    assert_eq!(*missing.class(), ErrorClass::Refused);
    let mut changes = client.watch("runtime", "MachineStatuses.runtime.talos.dev", None).await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().kind, EventType::Created);
    assert_eq!(changes.next().await.unwrap().unwrap().kind, EventType::Bootstrapped);

    assert!(!client.logs("etcd", false, -1).await.unwrap().collect().await.unwrap().is_empty());
    assert!(!client.dmesg(false, false).await.unwrap().collect().await.unwrap().is_empty());
    let cluster = ClusterInfo { control_plane_nodes: vec!["127.64.30.1".to_owned()], ..Default::default() };
    let mut checks = client.health_check(cluster, Duration::from_secs(30)).await.unwrap();
    let mut lines = Vec::new();
    while let Some(line) = checks.next().await.unwrap() {
        lines.push(line.message);
    }
    assert!(lines.iter().any(|line| line.ends_with("OK")), "{lines:?}");

    assert!(!client.reboot().await.unwrap().is_empty());
    wait_until_gone(&client, &wait("the reboot")).await.unwrap();
    assert_eq!(*client.version().await.unwrap_err().class(), ErrorClass::ConnectionLost);
    let client = wait_until_configured(&node, &wait("the node again")).await.unwrap();
    wait_until_etcd(&node, &wait("etcd again")).await.unwrap();
    let image = "ghcr.io/siderolabs/installer:v1.9.3";
    assert!(!client.upgrade(image, false, false).await.unwrap().is_empty());
    wait_until_gone(&client, &wait("the upgrade")).await.unwrap();
    let client = wait_until_configured(&node, &wait("the upgraded node")).await.unwrap();
    assert_eq!(client.version().await.unwrap().version.unwrap().tag, "v1.9.3");
    world.stop().await;
}
