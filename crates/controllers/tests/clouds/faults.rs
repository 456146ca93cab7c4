//! What goes wrong in clouds: it is told by name while nothing is lost, it is mended, and the cluster comes up all the same.

use crate::lives::Place;
use crate::site::{BALANCER, CLUSTER, Site};
use crate::support::cluster_conditions;
use butler_api::{ClusterBootstrap, LoadBalancerRequest, find_condition};
use butler_sim::FaultScript;
use butler_sim::aws::{AwsSite, Fate, Service, State as Aws};
use butler_sim::gce::State as Gce;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// What an obstacle is told as, anywhere in the cluster's conditions.
fn told(cb: &ClusterBootstrap, word: &str) -> bool {
    cluster_conditions(cb).iter().any(|condition| {
        let text = format!("{} {}", condition.reason, condition.message).to_lowercase();
        text.contains(&word.to_lowercase())
    })
}

async fn in_gcp(break_it: fn(&mut Gce), word: &'static str, mend: fn(&mut Gce)) {
    let site = Site::new(Place::Gcp).await;
    site.data_centre.gce().unwrap().change(break_it);
    let gce = site.data_centre.gce().unwrap();
    mended(site, json!({}), word, move || gce.change(mend)).await;
}

async fn in_aws(break_it: fn(&mut Aws), word: &'static str, mend: fn(&mut Aws)) {
    let site = Site::new(Place::Aws).await;
    site.data_centre.aws().unwrap().change(break_it);
    let aws = site.data_centre.aws().unwrap();
    mended(site, json!({}), word, move || aws.change(mend)).await;
}

/// The obstacle is told; once it is mended, the cluster comes up, and then goes without a trace.
async fn mended(site: Site, extra: Value, word: &'static str, mend: impl FnOnce()) {
    let mut context = site.context();
    context.deadlines.slow_retry = std::time::Duration::from_millis(200);
    let life = site.home.start(context);
    site.ask(1, extra).await;
    site.home.until::<ClusterBootstrap>(CLUSTER, move |cb| told(cb, word)).await;
    mend();
    site.ready().await;
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_a_permission_is_missing() {
    let lacking = |state: &mut Gce| state.set_lacking(&["compute.forwardingRules.create"]);
    in_gcp(lacking, "compute.forwardingRules.create", |state| state.set_lacking(&[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_a_quota_ends_in_the_middle() {
    in_gcp(|state| state.set_quota("CPUS", 6.0), "quota", |state| state.set_quota("CPUS", 64.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_there_is_no_address_left() {
    let none = |state: &mut Gce| state.set_quota("STATIC_ADDRESSES", 0.0);
    in_gcp(none, "quota", |state| state.set_quota("STATIC_ADDRESSES", 8.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_an_action_is_denied() {
    let action = "elasticloadbalancing:CreateListener";
    fn deny(state: &mut Aws) {
        state.deny("elasticloadbalancing:CreateListener", true);
    }
    in_aws(deny, action, |state| state.deny("elasticloadbalancing:CreateListener", false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_keys_have_expired() {
    in_aws(|state| state.expire_keys(Some(1)), "expired", |state| state.expire_keys(None)).await;
}

/// A process dies right after it has asked for machines and a load balancer that nobody sees yet; the next one is to remove them.
#[tokio::test(flavor = "multi_thread")]
async fn aws_what_is_not_seen_yet_is_not_left_behind() {
    let site = Site::new(Place::Aws).await;
    let aws = site.data_centre.aws().unwrap();
    aws.change(|state| state.set_lag(1500));
    let life = site.home.start(site.context());
    site.ask(1, json!({})).await;
    while !aws.state().inventory().iter().any(|part| part.starts_with("instance ")) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    life.end().await;
    let mut context = site.context();
    context.deadlines.settling = std::time::Duration::from_secs(5);
    let life = site.home.start(context);
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_there_is_no_room_for_machines() {
    in_aws(|state| state.quotas_mut().vcpus = 8, "VcpuLimit", |state| state.quotas_mut().vcpus = 128).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_there_is_no_room_for_load_balancers() {
    let none = |state: &mut Aws| state.quotas_mut().network_load_balancers = 0;
    in_aws(none, "TooManyLoadBalancers", |state| state.quotas_mut().network_load_balancers = 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_the_account_is_switched_off() {
    let off = |state: &mut Gce| {
        state.set_disabled(true);
        state.expire_tokens();
    };
    in_gcp(off, "LoginFailed", |state| state.set_disabled(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_the_subnetwork_is_full() {
    const SUBNETWORK: &str = "projects/rehearsal/regions/us-central1/subnetworks/default";
    let full =
        |state: &mut Gce| assert!(state.set_fields(SUBNETWORK, &json!({"ipCidrRange": "10.128.0.0/30"})));
    let wide =
        |state: &mut Gce| assert!(state.set_fields(SUBNETWORK, &json!({"ipCidrRange": "10.128.0.0/20"})));
    in_gcp(full, "SubnetworkFull", wide).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_a_subnet_is_full() {
    fn room(state: &mut Aws, room: u32) {
        state.set_room(&AwsSite::example().subnets[0].id, room);
    }
    in_aws(|state| room(state, 0), "NoFreeAddress", |state| room(state, 200)).await;
}

/// What has one of our names and is somebody else's stops the bootstrap, and is there afterwards as it was before.
async fn left_alone(mut site: Site, word: &'static str) {
    site.is_furnished();
    let life = site.home.start(site.context());
    site.ask(1, json!({})).await;
    site.home.until::<ClusterBootstrap>(CLUSTER, move |cb| told(cb, word)).await;
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_the_address_is_somebody_elses() {
    let site = Site::new(Place::Gcp).await;
    let path = "projects/rehearsal/regions/us-central1/addresses/prod-lb-ip";
    let fields = json!({"name": "prod-lb-ip", "addressType": "EXTERNAL", "address": "203.0.113.77",
                        "status": "RESERVED", "description": "production"});
    site.data_centre.gce().unwrap().change(|state| state.add_foreign(path, fields));
    left_alone(site, "NameTaken").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_the_load_balancer_is_somebody_elses() {
    let site = Site::new(Place::Aws).await;
    let subnet = AwsSite::example().subnets[0].id.clone();
    let params = [
        ("Name", BALANCER),
        ("Type", "network"),
        ("Subnets.member.1", subnet.as_str()),
        ("Tags.member.1.Key", "Name"),
        ("Tags.member.1.Value", "theirs"),
    ];
    let answer = site.data_centre.aws().unwrap().call(Service::Elb, "CreateLoadBalancer", &params);
    assert_eq!(answer.status, 200, "{}", answer.body);
    left_alone(site, "NameTaken").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_the_target_group_is_somebody_elses() {
    let site = Site::new(Place::Aws).await;
    let vpc = AwsSite::example().vpcs[0].id.clone();
    let params = [
        ("Name", "prod-6443-6443"),
        ("Protocol", "TCP"),
        ("Port", "6443"),
        ("VpcId", vpc.as_str()),
        ("Tags.member.1.Key", "Name"),
        ("Tags.member.1.Value", "theirs"),
    ];
    let answer = site.data_centre.aws().unwrap().call(Service::Elb, "CreateTargetGroup", &params);
    assert_eq!(answer.status, 200, "{}", answer.body);
    left_alone(site, "NameTaken").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_the_image_is_not_there() {
    let site = Site::new(Place::Gcp).await;
    site.data_centre.gce().unwrap().change(|state| state.remove_image(None));
    left_alone(site, "images/family/talos").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_the_region_does_not_have_the_image() {
    let site = Site::new(Place::Aws).await;
    let aws = site.data_centre.aws().unwrap();
    aws.change(|state| state.remove_image(&AwsSite::example().images[0].id));
    left_alone(site, "NoSuchImage").await;
}

/// Looks are throttled for a long time while everything is deleted: nothing is taken to be gone because of it.
async fn throttled(place: Place, looks: &str) {
    let site = Site::new(place).await;
    let mut context = site.context();
    context.deadlines.slow_retry = std::time::Duration::from_millis(100);
    context.deadlines.longest_retry = std::time::Duration::from_millis(200);
    let life = site.home.start(context);
    site.ask(1, json!({})).await;
    site.ready().await;
    let script = format!("calls: [{{operation: {looks:?}, times: 40, fault: throttle}}]");
    site.data_centre.gate().set_faults(FaultScript::parse(&script).unwrap());
    site.leaves_nothing().await;
    let throttled = site.data_centre.gate().calls().iter().filter(|call| call.fault.is_some()).count();
    assert_eq!(throttled, 40, "nobody looked");
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gcp_looks_are_throttled_during_a_deletion() {
    throttled(Place::Gcp, "compute.*.list").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_looks_are_throttled_during_a_deletion() {
    throttled(Place::Aws, "*:DescribeLoadBalancers").await;
}

/// Deletion protection that the user asked for stops a destroy before anything is lost.
#[tokio::test(flavor = "multi_thread")]
async fn aws_a_protected_load_balancer_stops_a_destroy() {
    let site = Site::new(Place::Aws).await;
    let life = site.home.start(site.context());
    site.ask(1, json!({"controlPlaneLoadBalancer": {"options": {"deletionProtection": true}}})).await;
    site.ready().await;
    site.home.api::<ClusterBootstrap>().delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    let stuck = site
        .home
        .until::<LoadBalancerRequest>(BALANCER, |request| {
            request.status.as_ref().is_some_and(|status| status.failure_reason.is_some())
        })
        .await;
    let degraded = find_condition(&stuck.status.unwrap().conditions, "Degraded").cloned().unwrap();
    assert!(degraded.message.to_lowercase().contains("protect"), "{degraded:?}");
    assert_eq!(site.data_centre.world().nodes().len(), 4, "the cluster still works");
    life.end().await;
    site.data_centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_a_load_balancer_that_never_turns_active_is_told() {
    let site = Site::new(Place::Aws).await;
    site.data_centre.aws().unwrap().change(|state| state.set_fate(Fate::NeverActive));
    let mut context = site.context();
    context.deadlines.load_balancer = std::time::Duration::from_secs(2);
    let life = site.home.start(context);
    site.ask(1, json!({})).await;
    site.home.until::<ClusterBootstrap>(CLUSTER, |cb| told(cb, "LoadBalancerLate")).await;
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

/// An operation of Google's that does not end: told by name, and when it ends after all, all goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn gcp_an_operation_that_never_ends_is_told() {
    let site = Site::new(Place::Gcp).await;
    let stall = |stalled| move |state: &mut Gce| state.stall("compute.forwardingRules.insert", stalled);
    let gce = site.data_centre.gce().unwrap();
    gce.change(stall(true));
    let mut context = site.context();
    context.deadlines.load_balancer = std::time::Duration::from_secs(2);
    let life = site.home.start(context);
    site.ask(1, json!({})).await;
    site.home.until::<ClusterBootstrap>(CLUSTER, |cb| told(cb, "LoadBalancerLate")).await;
    let request = site.home.api::<LoadBalancerRequest>().get(BALANCER).await.unwrap();
    let status = request.status.unwrap();
    assert_eq!(status.failure_reason.as_deref(), Some("LoadBalancerLate"));
    assert!(status.endpoint.is_some() && status.operation.is_some(), "{status:?}");
    gce.change(stall(false));
    site.ready().await;
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}
