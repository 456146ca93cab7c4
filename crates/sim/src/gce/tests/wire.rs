//! Over the wire, in a whole data centre: TLS, the gate, machines that boot, a firewall, and connections through a balancer.

use super::*;
use crate::gate::{Fault, Matcher, Moment, Progress};
use crate::infrastructure::calling;
use crate::{BranchOptions, DataCentre, DataCentreOptions, Stage};
use butler_talos::client::{Node, NodeState, Settings};
use butler_talos::{ClusterIntent, Endpoint, NodeIntent, Role, SecretsBundle, TalosVersion, render};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

static SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(jiff::Timestamp::now()).unwrap().bundle);

async fn started() -> DataCentre {
    let data_centre = DataCentre::start(DataCentreOptions::for_gce(site())).await.unwrap();
    log_in(&data_centre);
    data_centre
}

fn log_in(data_centre: &DataCentre) {
    let forever = u64::MAX;
    data_centre.gce().unwrap().change(|state| {
        state.tokens.insert(TOKEN.to_string(), (EMAIL.to_string(), forever));
    });
}

/// One call on a connection of its own. `None` when the connection was cut.
async fn call(data_centre: &DataCentre, method: &str, target: &str, body: Value) -> Option<(u16, Value)> {
    const HOST: &str = "compute.googleapis.com";
    let address = data_centre.fabric().resolve(HOST).unwrap();
    let stream = data_centre.fabric().dial_from_outside((address, 443).into()).unwrap();
    let request = http::Request::builder()
        .method(method)
        .uri(format!("/compute/v1/projects/rehearsal/{target}"))
        .header("host", HOST)
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(if body.is_null() { String::new() } else { body.to_string() })
        .unwrap();
    let response = calling::send(stream, &data_centre.ca_pem(), HOST, request).await?;
    Some((response.status().as_u16(), serde_json::from_slice(response.body()).unwrap()))
}

async fn get(data_centre: &DataCentre, target: &str) -> Value {
    let (status, body) = call(data_centre, "GET", target, Value::Null).await.unwrap();
    assert_eq!(status, 200, "{target}: {body}");
    body
}

/// A change, followed until its operation is done.
async fn done(data_centre: &DataCentre, target: &str, body: Value) {
    let (status, begun) = call(data_centre, "POST", target, body).await.unwrap();
    assert_eq!(status, 200, "{target}: {begun}");
    let path = begun["selfLink"].as_str().unwrap().split_once("/projects/rehearsal/").unwrap().1.to_string();
    let (_, over) = call(data_centre, "POST", &format!("{path}/wait"), Value::Null).await.unwrap();
    assert_eq!((over["status"].as_str(), &over["error"]), (Some("DONE"), &Value::Null), "{target}: {over}");
}

/// A control plane's configuration, with addresses on its loopback interface.
fn config(name: &str, loopback: &[IpAddr]) -> String {
    let endpoint = Endpoint::parse("https://192.0.2.1:6443").unwrap();
    let cluster = ClusterIntent::new("c1", endpoint, TalosVersion::parse("v1.9.2").unwrap());
    let mut node = NodeIntent::new(Role::ControlPlane, name);
    node.loopback = loopback.to_vec();
    render(&cluster, &node, &SECRETS).unwrap().to_yaml()
}

async fn machine(data_centre: &DataCentre, name: &str, user_data: Option<String>) -> (IpAddr, IpAddr) {
    let mut body = instance(ZONE, name);
    body["metadata"] = match user_data {
        Some(text) => json!({"items": [{"key": "user-data", "value": text}]}),
        None => json!({"items": []}),
    };
    done(data_centre, &format!("zones/{ZONE}/instances"), body).await;
    let made = get(data_centre, &format!("zones/{ZONE}/instances/{name}")).await;
    let nic = &made["networkInterfaces"][0];
    let address = |value: &Value| value.as_str().unwrap().parse().unwrap();
    (address(&nic["networkIP"]), address(&nic["accessConfigs"][0]["natIP"]))
}

async fn probe(data_centre: &DataCentre, address: IpAddr) -> NodeState {
    let proxy = Some(data_centre.proxy_url().parse().unwrap());
    let settings = Settings { proxy, ..Settings::default() };
    Node::new(SocketAddr::new(address, 50000).to_string().parse().unwrap(), Arc::new(settings)).probe().await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_pass_the_gate_and_a_machine_is_behind_a_firewall() {
    let data_centre = started().await;
    let (inside, outside) = machine(&data_centre, "cp-0", None).await;
    let node = data_centre.world().node(inside).unwrap();
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
    assert!(matches!(probe(&data_centre, outside).await, NodeState::Maintenance { .. }));
    let kind = |address: IpAddr, port| {
        data_centre
            .fabric()
            .dial_from_outside((address, port).into())
            .map(|_| ())
            .map_err(|error| error.kind())
    };
    assert_eq!(kind(outside, 50000), Ok(()));
    assert_eq!(kind(outside, 10250), Err(io::ErrorKind::TimedOut), "no rule lets it in");
    assert_eq!(kind(outside, 6443), Err(io::ErrorKind::ConnectionRefused), "let in, and nobody listens");
    assert_eq!(kind(inside, 50000), Err(io::ErrorKind::TimedOut), "private addresses are private");
    data_centre.gce().unwrap().change(|state| {
        assert!(state.take_away("projects/rehearsal/global/firewalls/default-allow-talos"));
    });
    assert_eq!(kind(outside, 50000), Err(io::ErrorKind::TimedOut));
    let log = data_centre.gate().calls();
    let insert = log.iter().find(|logged| logged.call.operation == "compute.instances.insert").unwrap();
    assert_eq!(
        (insert.call.system, insert.call.object.as_str(), insert.call.mutates),
        ("gce", "machine cp-0", true)
    );
    let wait = log.iter().find(|logged| logged.call.operation == "compute.zoneOperations.wait").unwrap();
    assert_eq!((wait.call.object.as_str(), wait.call.mutates), ("machine cp-0", false));
    let next = data_centre.gate().count() + 1;
    data_centre.gate().on_call(next, Fault::Throttle);
    let (status, refused) = call(&data_centre, "GET", REGION, Value::Null).await.unwrap();
    assert_eq!((status, refused["error"]["errors"][0]["reason"].as_str()), (403, Some("rateLimitExceeded")));
    data_centre.gate().on_call(next + 1, Fault::LoseAnswer);
    assert!(
        call(&data_centre, "DELETE", &format!("zones/{ZONE}/instances/cp-0"), Value::Null).await.is_none()
    );
    assert_eq!(data_centre.gate().calls().last().unwrap().progress, Progress::Lost);
    // The lost call was carried out. What it changed is not seen by a read that is behind.
    let mut watch = data_centre.world().follow();
    while data_centre.world().node(inside).is_some() {
        let _ = tokio::time::timeout(PATIENCE, watch.recv()).await.unwrap();
    }
    data_centre.gate().on_call(data_centre.gate().count() + 1, Fault::StaleRead);
    assert_eq!(get(&data_centre, &format!("zones/{ZONE}/instances/cp-0")).await["status"], "RUNNING");
    let (status, _) =
        call(&data_centre, "GET", &format!("zones/{ZONE}/instances/cp-0"), Value::Null).await.unwrap();
    assert_eq!(status, 404);
    data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_passes_connections_to_machines_that_know_its_address() {
    let data_centre = started().await;
    done(&data_centre, "regions/us-central1/addresses", json!({"name": "api"})).await;
    let address = get(&data_centre, "regions/us-central1/addresses/api").await;
    let address: IpAddr = address["address"].as_str().unwrap().parse().unwrap();
    done(
        &data_centre,
        "regions/us-central1/healthChecks",
        json!({
            "name": "api", "type": "TCP", "tcpHealthCheck": {"port": 50000},
        }),
    )
    .await;
    done(&data_centre, &format!("zones/{ZONE}/instanceGroups"), json!({"name": "api"})).await;
    let (good, _) = machine(&data_centre, "cp-0", Some(config("cp-0", &[address]))).await;
    let (bad, _) = machine(&data_centre, "cp-1", Some(config("cp-1", &[]))).await;
    let both: Vec<Value> = ["cp-0", "cp-1"]
        .iter()
        .map(|name| json!({"instance": format!("zones/{ZONE}/instances/{name}")}))
        .collect();
    done(&data_centre, &format!("zones/{ZONE}/instanceGroups/api/addInstances"), json!({"instances": both}))
        .await;
    done(&data_centre, "regions/us-central1/backendServices", json!({
        "name": "api", "loadBalancingScheme": "EXTERNAL", "healthChecks": ["regions/us-central1/healthChecks/api"],
        "backends": [{"group": format!("zones/{ZONE}/instanceGroups/api"), "balancingMode": "CONNECTION"}],
    }))
    .await;
    done(&data_centre, "regions/us-central1/forwardingRules", json!({
        "name": "api", "IPAddress": address.to_string(), "portRange": "50000", "loadBalancingScheme": "EXTERNAL",
        "backendService": "regions/us-central1/backendServices/api",
    }))
    .await;
    let gce = data_centre.gce().unwrap();
    let well = |target: IpAddr| {
        gce.balancers().health(&format!("gce/{address}"), "50000", (target, 50000).into()).is_healthy()
    };
    let mut watch = gce.balancers().watch();
    while !well(good) {
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
    }
    assert!(!well(bad), "it does not take packets for an address that it does not have");
    let seen = probe(&data_centre, address).await;
    assert!(!matches!(seen, NodeState::Unreachable { .. } | NodeState::Maintenance { .. }), "{seen:?}");
    let health = json!({"group": format!("zones/{ZONE}/instanceGroups/api")});
    let (_, told) = call(&data_centre, "POST", "regions/us-central1/backendServices/api/getHealth", health)
        .await
        .unwrap();
    let mut states: Vec<&str> = told["healthStatus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["healthState"].as_str().unwrap())
        .collect();
    states.sort_unstable();
    assert_eq!(states, ["HEALTHY", "UNHEALTHY"]);
    // Checks that the firewall drops make a target unhealthy; then all are as good as each other.
    gce.change(|state| {
        let rule = "projects/rehearsal/global/firewalls/default-allow-talos";
        assert!(state.set_fields(rule, &json!({"sourceRanges": ["203.0.113.0/24"]})));
    });
    while well(good) {
        tokio::time::timeout(PATIENCE, watch.changed()).await.unwrap().unwrap();
    }
    data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_goes_on_with_what_was_under_way() {
    let data_centre = started().await;
    let (inside, outside) = machine(&data_centre, "cp-0", None).await;
    assert!(data_centre.world().node(inside).unwrap().reaches(Stage::Maintenance, PATIENCE).await);
    let calls = Matcher { operation: Some("compute.addresses.insert".into()), ..Matcher::default() };
    let mut held = data_centre.gate().hold_when(calls, Moment::After);
    let target = format!("{REGION}/addresses");
    let (snapshot, answer) = tokio::join!(
        async {
            held.reached().await;
            let snapshot = data_centre.snapshot().await;
            held.go_on();
            snapshot
        },
        call(&data_centre, "POST", &target, json!({"name": "api"})),
    );
    assert_eq!(answer.unwrap().0, 200);
    let branch = DataCentre::branch(&snapshot, BranchOptions::default()).await.unwrap();
    data_centre.stop().await;
    let list = format!("{REGION}/operations?filter=operationType%3Dinsert");
    let operations = get(&branch, &list).await["items"].as_array().unwrap().clone();
    assert_eq!(operations.len(), 1, "{operations:?}");
    assert_eq!(get(&branch, &format!("{REGION}/addresses/api")).await["status"], "RESERVED");
    assert!(
        matches!(probe(&branch, outside).await, NodeState::Maintenance { .. }),
        "the outer address still leads there"
    );
    assert!(branch.proxmox().is_none() && branch.gce_site().is_some());
    branch.stop().await;
}
