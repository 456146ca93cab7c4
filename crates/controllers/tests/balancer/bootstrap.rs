//! A ClusterBootstrap in a cloud, as far as it gets without nodes that answer: load balancer, targets, configs, and back.

use super::*;
use butler_api::{ClusterBootstrap, MachineRequest};
use kube::ResourceExt;
use kube::api::DeleteParams;
use support::ask::cluster as spec;
use support::{cluster_conditions, has, names};

fn in_cloud(extra: Value) -> Value {
    let mut object = spec("prod", 1, json!({"provider": "gcp"}));
    object["spec"]["network"] = json!({"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12"});
    support::ask::merge(&mut object["spec"], extra);
    object
}

async fn begin(cloud: &Cloud, extra: Value) -> (Home, Life) {
    let (home, life) = home(cloud).await;
    home.given_secrets("prod").await;
    home.create::<ClusterBootstrap>(in_cloud(extra)).await;
    (home, life)
}

async fn config(home: &Home, node: &str) -> String {
    let key = format!("{node}.yaml");
    let has = key.clone();
    let secret = home
        .until::<Secret>("prod-talos-configs", move |secret| {
            secret.data.as_ref().is_some_and(|data| data.contains_key(&has))
        })
        .await;
    String::from_utf8(secret.data.unwrap()[&key].0.clone()).unwrap()
}

fn machines_ready(cb: &ClusterBootstrap) -> bool {
    has(cluster_conditions(cb), "MachinesReady", true, "MachinesUp")
}

fn targets(request: &LoadBalancerRequest) -> Vec<String> {
    request.spec.targets.iter().filter_map(|target| target.instance_name.clone()).collect()
}

#[tokio::test]
async fn targets_come_with_their_addresses_and_configs_with_the_endpoint() {
    let cloud = cloud();
    let asleep = ["prod-cp-1", "prod-cp-2", "prod-worker-0"];
    cloud.by_hand(|state| state.asleep.extend(asleep.map(str::to_owned)));
    let (home, life) = begin(&cloud, json!({})).await;
    let first = home.until::<LoadBalancerRequest>(NAME, |request| request.spec.targets.len() == 1).await;
    assert_eq!(targets(&first), ["prod-cp-0"]);
    let target = first.spec.targets[0].clone();
    assert_eq!((target.ip.as_str(), target.instance_id.as_deref()), ("10.128.0.1", Some("i-1")));
    synced(&home).await;
    assert!(
        home.api::<Secret>().get_opt("prod-talos-configs").await.unwrap().is_none(),
        "machines are missing"
    );
    for name in asleep {
        cloud.by_hand(|state| state.asleep.remove(name));
    }
    let cb = home.until::<ClusterBootstrap>("prod", machines_ready).await;
    assert_eq!(cb.status.unwrap().control_plane_endpoint.as_deref(), Some("198.51.100.7"));
    let all = home.until::<LoadBalancerRequest>(NAME, |request| request.spec.targets.len() == 3).await;
    assert_eq!(targets(&all), ["prod-cp-0", "prod-cp-1", "prod-cp-2"], "no worker");
    let plane = config(&home, "prod-cp-0").await;
    for part in ["https://198.51.100.7:6443", "198.51.100.7/32", "10.128.0.1/32"] {
        assert!(plane.contains(part), "{part} is missing");
    }
    home.until::<ClusterBootstrap>("prod", |cb| {
        has(cluster_conditions(cb), "LoadBalancerReady", true, "TargetsRegistered")
    })
    .await;
    life.end().await;
}

#[tokio::test]
async fn a_machine_goes_only_when_it_is_drained_and_its_successor_takes_its_place() {
    let cloud = cloud();
    let (home, life) = begin(&cloud, json!({})).await;
    home.until::<ClusterBootstrap>("prod", machines_ready).await;
    home.until::<LoadBalancerRequest>(NAME, |request| request.spec.targets.len() == 3).await;
    synced(&home).await;
    let machines = home.api::<MachineRequest>();
    let old = machines.get("prod-cp-1").await.unwrap();
    let address = old.status.as_ref().unwrap().ip_addresses[0].clone();
    assert!(old.finalizers().contains(&"butler.butlerlabs.dev/load-balancer-target".to_owned()));
    cloud.take_journal();
    machines.delete("prod-cp-1", &DeleteParams::default()).await.unwrap();
    let drains = format!("listener 6443: {address} drains");
    home.until::<LoadBalancerRequest>(NAME, |request| {
        told(request, "TargetsSynced").is_some_and(|told| told.reason == "TargetsDraining")
    })
    .await;
    home.until::<MachineRequest>("prod-cp-1", |machine| {
        has(support::machine_conditions(machine), "Ready", false, "Deleting")
    })
    .await;
    assert_eq!(cloud.journal(), [drains.as_str()], "the machine still runs");
    cloud.by_hand(|state| state.ports.get_mut(&6443).unwrap().draining.clear());
    let uid = old.uid();
    let new = home
        .until::<MachineRequest>("prod-cp-1", move |machine| machine.uid() != uid && machine.is_ready())
        .await;
    let swapped = new.status.unwrap().ip_addresses[0].clone();
    assert_ne!(swapped, address);
    let wanted = swapped.clone();
    home.until::<LoadBalancerRequest>(NAME, move |request| {
        request.spec.targets.len() == 3 && request.spec.targets[1].ip == wanted
    })
    .await;
    synced(&home).await;
    let registered = format!("listener 6443: {swapped} registered");
    assert_eq!(
        cloud.journal(),
        [drains.as_str(), "machine prod-cp-1 removed", "machine prod-cp-1 made", registered.as_str()]
    );
    life.end().await;
}

#[tokio::test]
async fn a_given_endpoint_is_taken_as_it_is() {
    let cloud = cloud();
    let (home, life) = begin(&cloud, json!({"network": {"vip": "api.example.com"}})).await;
    let cb = home.until::<ClusterBootstrap>("prod", machines_ready).await;
    assert_eq!(cb.status.unwrap().control_plane_endpoint.as_deref(), Some("api.example.com"));
    let plane = config(&home, "prod-cp-0").await;
    assert!(plane.contains("https://api.example.com:6443"));
    assert_eq!(names::<LoadBalancerRequest>(&home).await, Vec::<String>::new());
    assert!(cloud.journal().iter().all(|line| line.starts_with("machine ")), "{:?}", cloud.journal());
    life.end().await;
}

#[tokio::test]
async fn a_single_node_has_none() {
    let cloud = cloud();
    let single = json!({"cluster": {"topology": "single-node", "controlPlane": {"replicas": 1}}});
    let (home, life) = begin(&cloud, single).await;
    let cb = home.until::<ClusterBootstrap>("prod", machines_ready).await;
    assert_eq!(
        cb.status.unwrap().control_plane_endpoint.as_deref(),
        Some("203.0.113.1"),
        "where it is reached"
    );
    assert_eq!(names::<LoadBalancerRequest>(&home).await, Vec::<String>::new());
    life.end().await;
}

#[tokio::test]
async fn everything_goes_the_load_balancer_first() {
    let cloud = cloud();
    let (home, life) = begin(&cloud, json!({})).await;
    home.until::<ClusterBootstrap>("prod", machines_ready).await;
    home.until::<LoadBalancerRequest>(NAME, |request| request.spec.targets.len() == 3).await;
    synced(&home).await;
    cloud.take_journal();
    cloud.by_hand(|state| state.protected = true);
    home.api::<ClusterBootstrap>().delete("prod", &DeleteParams::default()).await.unwrap();
    home.until::<ClusterBootstrap>("prod", |cb| {
        has(cluster_conditions(cb), "Degraded", true, "DeletionProtected")
    })
    .await;
    assert!(cloud.journal().is_empty(), "the cluster still works: {:?}", cloud.journal());
    cloud.by_hand(|state| state.protected = false);
    home.until_gone::<ClusterBootstrap>("prod").await;
    let journal = cloud.journal();
    assert_eq!(journal[..2], ["listener 6443 closed", "address 198.51.100.7 released"]);
    assert_eq!(journal[2..].iter().filter(|line| line.ends_with(" removed")).count(), 4, "{journal:?}");
    assert_eq!(names::<MachineRequest>(&home).await, Vec::<String>::new());
    assert_eq!(names::<LoadBalancerRequest>(&home).await, Vec::<String>::new());
    life.end().await;
}

#[tokio::test]
async fn somebody_elses_request_of_that_name_stops_it() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    home.given_secrets("prod").await;
    let theirs: LoadBalancerRequest = home.create(request(&["10.7.7.7"])).await;
    home.create::<ClusterBootstrap>(in_cloud(json!({}))).await;
    let stopped = home
        .until::<ClusterBootstrap>("prod", |cb| {
            has(cluster_conditions(cb), "Failed", true, "LoadBalancerRequestNotOurs")
        })
        .await;
    assert!(stopped.status.unwrap().failure_message.unwrap().contains(NAME));
    let kept = home.api::<LoadBalancerRequest>().get(NAME).await.unwrap();
    assert_eq!((kept.uid(), targets(&kept).len(), kept.spec.targets.len()), (theirs.uid(), 0, 1));
    life.end().await;
}
