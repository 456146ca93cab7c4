//! When a load balancer is asked for, what it is told, and what waits for it.

use super::super::configs::Rendered;
use super::super::plan::plan;
use super::super::plan::tests::{
    asked, at, begun, check, complete, machines_up, provided, stored, with_secrets, words,
};
use super::super::status::{BALANCER_READY, status};
use super::*;
use crate::step::Step;
use butler_api::{
    CONDITION_DEGRADED, ClusterBootstrapPhase as Phase, LoadBalancerRequestStatus, MachinePhase, Provider,
};
use butler_talos::Secret as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::sync::Arc;

const HOST: &str = "198.51.100.7";

/// Three control planes in a cloud that hands packets on as they are.
fn cloud() -> Observed {
    let mut observed = begun();
    observed.object.spec.provider = Provider::Gcp;
    observed.object.spec.network.vip = None;
    observed.profile = Profile::of(Provider::Gcp);
    let mut provided = provided();
    provided.config.spec.provider = Provider::Gcp;
    observed.provided = Ok(Arc::new(provided));
    observed.balancer.needed = true;
    observed.endpoint = None;
    observed
}

/// With a LoadBalancerRequest as it is wanted now, and of which nothing is known yet.
fn requested(mut observed: Observed) -> Observed {
    let mut own = observed.load_balancer_request();
    (own.metadata.uid, own.metadata.generation) = (Some("lb-uid".into()), Some(2));
    observed.balancer.own = Some(Box::new(own));
    observed
}

/// With a load balancer that is ready, and says this about its targets.
fn ready(observed: Observed, synced: bool, reason: &str) -> Observed {
    let mut observed = requested(observed);
    let own = observed.balancer.own.as_mut().unwrap();
    let told =
        crate::report::condition(CONDITION_TARGETS_SYNCED, synced, reason, "3 targets", at(3), Some(2));
    own.status = Some(LoadBalancerRequestStatus {
        phase: Some(LoadBalancerPhase::Ready),
        endpoint: Some(HOST.into()),
        conditions: vec![told],
        ..Default::default()
    });
    observed.endpoint = Some(HOST.into());
    let server = super::super::plan::server(HOST);
    observed.kubeconfig = observed.kubeconfig.map(|_| Text::new(format!("server: {server}")));
    observed
}

/// Each machine has an address of its own, and another one by which it is reached.
fn addressed(mut observed: Observed) -> Observed {
    for (index, machine) in observed.machines.values_mut().enumerate() {
        let status = machine.status.as_mut().unwrap();
        status.ip_address = Some(format!("203.0.113.{index}"));
        status.ip_addresses = vec![format!("10.128.0.{index}"), format!("203.0.113.{index}")];
        status.provider_id = Some(format!("cloud://project/zone-{index}/i-{index}"));
    }
    observed
}

fn up() -> Observed {
    addressed(machines_up(cloud()))
}

fn go(observed: &mut Observed, machine: &str) {
    observed.machines.get_mut(machine).unwrap().metadata.deletion_timestamp = Some(Time(at(6)));
}

fn addresses(observed: &Observed) -> Vec<String> {
    observed.load_balancer_request().spec.targets.into_iter().map(|target| target.ip).collect()
}

#[test]
fn a_cloud_has_one_unless_there_is_nothing_to_balance() {
    let of = |provider: Provider, change: fn(&mut ClusterBootstrapSpec)| {
        let mut spec = cloud().object.spec;
        spec.provider = provider;
        change(&mut spec);
        needed(&spec, &Profile::of(provider))
    };
    for provider in [Provider::Gcp, Provider::Aws, Provider::Azure] {
        assert!(of(provider, |_| {}), "{provider}");
        assert!(!of(provider, |spec| spec.network.vip = Some("api.example.com".into())), "given");
        assert!(of(provider, |spec| spec.network.vip = Some(String::new())), "an empty text is none");
        assert!(!of(provider, |spec| spec.cluster.topology = Topology::SingleNode), "one node");
    }
    for provider in [Provider::Proxmox, Provider::Harvester, Provider::Nutanix] {
        assert!(!of(provider, |_| {}), "{provider}");
    }
}

#[test]
fn it_is_asked_for_beside_the_machines_and_told_each_of_them() {
    let machines =
        ["CreateMachine(\"prod-cp-0\")", "CreateMachine(\"prod-cp-1\")", "CreateMachine(\"prod-cp-2\")"];
    let beside: Vec<&str> = machines.into_iter().chain(["CreateBalancer"]).collect();
    let fresh = Observed { kubeconfig: None, ..with_secrets(cloud()) };
    check("side by side", &fresh, &beside);
    let request = fresh.load_balancer_request();
    assert_eq!(request.name_any(), "prod-lb");
    assert_eq!((request.spec.port, request.spec.cluster_name.as_str()), (6443, "prod"));
    assert_eq!(request.spec.provider_config_ref.namespace.as_deref(), Some("butler-system"));
    assert_eq!(request.owner_references()[0].uid, "cb-uid");
    assert!(request.spec.targets.is_empty());
    // One machine after the other.
    let mut coming = requested(asked(cloud()));
    assert_eq!(
        words(&plan(&coming)),
        ["wait MachineNotUp", "wait MachineNotUp", "wait MachineNotUp", "wait LoadBalancerNotReady"]
    );
    let all = up().machines;
    for (index, name) in ["prod-cp-2", "prod-cp-0", "prod-cp-1"].into_iter().enumerate() {
        coming.machines.insert(name.to_owned(), all[name].clone());
        assert!(words(&plan(&coming)).contains(&"UpdateBalancer".to_owned()), "{name}");
        coming = requested(coming);
        assert_eq!(coming.balancer.own.as_ref().unwrap().spec.targets.len(), index + 1);
        assert!(!words(&plan(&coming)).contains(&"UpdateBalancer".to_owned()), "{name}");
    }
    let target = &coming.balancer.own.as_ref().unwrap().spec.targets[0];
    assert_eq!(
        (target.ip.as_str(), target.role),
        ("10.128.0.0", None),
        "not the address that we reach it by"
    );
    assert_eq!(target.instance_id.as_deref(), Some("i-0"));
    assert_eq!(target.instance_name.as_deref(), Some("prod-cp-0"));
}

#[test]
fn settings_are_handed_on_and_workers_are_behind_ports_of_their_own() {
    let mut observed = up();
    observed.object.spec.control_plane_load_balancer = serde_json::from_value(json!({
        "listeners": [{"port": 50000}, {"port": 50001, "targetPort": 50000, "role": "worker"}],
        "options": {"internal": true},
    }))
    .unwrap();
    let mut worker = observed.machines["prod-cp-0"].clone();
    worker.metadata.name = Some("prod-worker-0".into());
    worker.status.as_mut().unwrap().ip_addresses = vec!["10.128.0.9".into()];
    observed.machines.insert("prod-worker-0".into(), worker);
    let mut nodes = observed.nodes.clone().unwrap();
    nodes.push(WantedNode { name: "prod-worker-0".into(), role: MachineRole::Worker, ..nodes[0].clone() });
    let spec = Observed { nodes: Ok(nodes.clone()), ..observed.clone() }.load_balancer_request().spec;
    assert_eq!(spec.listeners.len(), 2);
    assert!(spec.options.unwrap().internal);
    assert_eq!((spec.targets.len(), spec.targets[3].role), (4, Some(MachineRole::Worker)));
    observed.object.spec.control_plane_load_balancer = None;
    assert_eq!(Observed { nodes: Ok(nodes), ..observed }.load_balancer_request().spec.targets.len(), 3);
}

#[test]
fn configs_wait_for_its_endpoint() {
    let waiting = Observed { rendered: None, ..requested(up()) };
    check("no endpoint", &waiting, &["wait LoadBalancerNotReady"]);
    let told = status(&waiting, &plan(&waiting));
    assert_eq!(told.phase, Some(Phase::ProvisioningMachines));
    let condition = |name: &str| find_condition(&told.conditions, name).unwrap().is_true();
    assert!(!condition("MachinesReady") && !condition(BALANCER_READY));
    let there = ready(up(), true, "AllTargetsRegistered");
    check("an endpoint", &there, &["StoreConfigs"]);
    let told = status(&there, &plan(&there));
    assert_eq!(told.control_plane_endpoint.as_deref(), Some(HOST));
    assert!(find_condition(&told.conditions, BALANCER_READY).unwrap().is_true());
    let on_prem = status(&complete(begun()), &plan(&complete(begun())));
    assert!(find_condition(&on_prem.conditions, BALANCER_READY).is_none(), "nobody waits for one on-prem");
}

#[test]
fn the_cluster_is_ready_when_all_targets_are() {
    let of = |synced, reason: &str| ready(addressed(complete(cloud())), synced, reason);
    check("all", &of(true, "AllTargetsRegistered"), &["done"]);
    check("a former one drains", &of(false, DRAINING), &["done"]);
    check("one is missing", &of(false, "TargetsChanging"), &["wait LoadBalancerTargets"]);
    let mut stale = of(true, "AllTargetsRegistered");
    stale.balancer.own.as_mut().unwrap().metadata.generation = Some(3);
    check("said about another spec", &stale, &["wait LoadBalancerTargets"]);
    let told = status(&stale, &plan(&stale));
    assert_eq!(told.phase, Some(Phase::InstallingAddons));
}

#[test]
fn what_is_wrong_with_it_is_wrong_with_the_cluster() {
    let foreign = |mut observed: Observed| {
        observed.balancer.foreign = true;
        observed
    };
    check("somebody else's", &foreign(with_secrets(cloud())), &["stop LoadBalancerRequestNotOurs"]);
    let on_prem = foreign(complete(begun()));
    check("somebody else's, and none is needed", &on_prem, &["done"]);
    let mut failed = requested(up());
    failed.balancer.own.as_mut().unwrap().status = Some(LoadBalancerRequestStatus {
        phase: Some(LoadBalancerPhase::Failed),
        failure_reason: Some("NameTaken".into()),
        failure_message: Some("it is there; what to do: choose another".into()),
        ..Default::default()
    });
    failed.rendered = None;
    check("failed in an earlier life", &failed, &["wait LoadBalancerNotReady"]);
    failed.stopped.insert("lb-uid".into());
    let Step::Stop(failure) = plan(&failed) else { panic!("it must stop") };
    assert_eq!((failure.reason.as_str(), failure.remedy.as_str()), ("NameTaken", "choose another"));
    assert_eq!(failure.message, "the load balancer prod-lb: it is there");
    let mut degraded = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    let own = degraded.balancer.own.as_mut().unwrap();
    let quota =
        crate::report::condition(CONDITION_DEGRADED, true, "QuotaExceeded", "no room", at(3), Some(2));
    own.status.as_mut().unwrap().conditions.push(quota);
    let told = status(&degraded, &plan(&degraded));
    assert_eq!(find_condition(&told.conditions, CONDITION_DEGRADED).unwrap().message, "prod-lb: no room");
}

#[test]
fn a_machine_that_goes_is_drained_first() {
    let node = |observed: &Observed| observed.wanted()[0].clone();
    assert_eq!(cloud().machine_request(&node(&cloud())).finalizers(), [FINALIZER_LOAD_BALANCER_TARGET]);
    assert!(
        begun().machine_request(&node(&begun())).finalizers().is_empty(),
        "nobody would take it off on-prem"
    );
    let mut going = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    go(&mut going, "prod-cp-1");
    assert_eq!(addresses(&going), ["10.128.0.0", "10.128.0.2"]);
    assert_eq!(words(&plan(&going)), ["UpdateBalancer"]);
    let draining = ready(going.clone(), false, DRAINING);
    assert_eq!(words(&plan(&draining)), ["wait MachineLeaving"], "old connections have their time");
    let mut stale = ready(going.clone(), true, "AllTargetsRegistered");
    stale.balancer.own.as_mut().unwrap().metadata.generation = Some(3);
    assert_eq!(
        words(&plan(&stale)),
        ["wait MachineLeaving", "wait LoadBalancerTargets"],
        "about the spec before"
    );
    let drained = ready(going.clone(), true, "AllTargetsRegistered");
    assert_eq!(words(&plan(&drained)), ["ReleaseMachine(\"prod-cp-1\")"]);
    let mut never = requested(going);
    never.endpoint = Some(HOST.into());
    assert!(
        words(&plan(&never)).contains(&"ReleaseMachine(\"prod-cp-1\")".to_owned()),
        "it has no targets at all"
    );
}

#[test]
fn a_machine_that_vanished_is_no_target() {
    let mut observed = up();
    let status = observed.machines.get_mut("prod-cp-1").unwrap().status.as_mut().unwrap();
    (status.phase, status.failure_reason) = (Some(MachinePhase::Failed), Some(VANISHED.into()));
    assert_eq!(addresses(&observed), ["10.128.0.0", "10.128.0.2"]);
}

#[test]
fn a_replaced_machine_gets_a_config_with_its_own_address() {
    let mut observed = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    let machine = observed.machines.get_mut("prod-cp-1").unwrap();
    machine.metadata.uid = Some("another".into());
    machine.status.as_mut().unwrap().ip_addresses = vec!["10.128.0.77".into()];
    let mut configs = observed.stored.as_ref().unwrap().configs.clone();
    for (name, config) in &mut configs {
        *config = Text::new(format!("new config of {name}"));
    }
    observed.rendered = Some(Ok(Arc::new(Rendered { configs, warnings: Vec::new() })));
    assert_eq!(
        words(&plan(&observed)),
        ["UpdateBalancer", "StoreConfig(\"prod-cp-1\")"],
        "and all others keep theirs"
    );
    observed.object.spec.talos.install_disk = "/dev/sdz".into();
    assert!(!observed.outdated("prod-cp-1"), "a spec that was changed since is not for this cluster");
    assert!(!complete(begun()).outdated("prod-cp-1"));
}

#[test]
fn before_etcd_an_endpoint_that_was_given_makes_it_go() {
    let given = |observed: Observed| {
        let mut observed = ready(observed, true, "AllTargetsRegistered");
        observed.balancer.needed = false;
        observed.object.spec.network.vip = Some("api.example.com".into());
        observed.endpoint = Some("api.example.com".into());
        observed
    };
    let early = given(addressed(stored(cloud())));
    assert!(words(&plan(&early)).contains(&"DeleteBalancer".to_owned()));
    let late = given(addressed(complete(cloud())));
    assert!(!words(&plan(&late)).contains(&"DeleteBalancer".to_owned()), "{:?}", plan(&late));
}

#[test]
fn one_that_was_made_anew_may_have_another_endpoint() {
    let mut observed = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    assert_eq!(observed.endpoint_moved(), None);
    observed.endpoint = Some("198.51.100.9".into());
    assert_eq!(observed.endpoint_moved().as_deref(), Some(HOST));
    let told = status(&observed, &plan(&observed));
    let degraded = find_condition(&told.conditions, CONDITION_DEGRADED).unwrap();
    assert_eq!((degraded.is_true(), degraded.reason.as_str()), (true, "EndpointMoved"));
    let mut gone = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    gone.balancer.own = None;
    check("made anew", &gone, &["CreateBalancer"]);
    gone = requested(gone);
    gone.balancer.own.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(6)));
    check("not before it is gone", &gone, &["wait LoadBalancerLeaving"]);
}

#[test]
fn it_goes_before_everything_else() {
    let mut observed = ready(addressed(complete(cloud())), true, "AllTargetsRegistered");
    observed.object.metadata.deletion_timestamp = Some(Time(at(5)));
    check("first", &observed, &["DeleteBalancer"]);
    observed.balancer.own.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(6)));
    check("waited for", &observed, &["wait LoadBalancerLeaving"]);
    let own = observed.balancer.own.as_mut().unwrap();
    let protected = crate::report::condition(
        CONDITION_DEGRADED,
        true,
        "DeletionProtected",
        "it is protected",
        at(6),
        Some(2),
    );
    own.status.as_mut().unwrap().conditions.push(protected);
    check("protected: no machine is touched", &observed, &["wait DeletionProtected"]);
    observed.balancer.own = None;
    let machines =
        ["DeleteMachine(\"prod-cp-0\")", "DeleteMachine(\"prod-cp-1\")", "DeleteMachine(\"prod-cp-2\")"];
    check("then machines", &observed, &machines);
    for machine in ["prod-cp-0", "prod-cp-1", "prod-cp-2"] {
        go(&mut observed, machine);
    }
    let released = machines.map(|action| action.replace("Delete", "Release"));
    assert_eq!(words(&plan(&observed)), released);
}

/// Waiting does not take a protection off: a destroy says so and ends, and a later one goes on.
#[test]
fn one_that_refuses_to_go_stops_a_destroy() {
    let mut observed = ready(stored(up()), true, "AllTargetsRegistered");
    observed.object.metadata.deletion_timestamp = Some(Time(at(5)));
    let own = observed.balancer.own.as_mut().unwrap();
    own.metadata.deletion_timestamp = Some(Time(at(6)));
    let told = own.status.as_mut().unwrap();
    told.failure_reason = Some("DeletionProtected".into());
    told.failure_message = Some("it is protected; what to do: switch it off".into());
    // Of an earlier life: nobody has tried in this one.
    assert!(matches!(plan(&observed), Step::Wait(_)));
    observed.stopped.insert("lb-uid".into());
    let Step::Stop(failure) = plan(&observed) else { panic!("it waits for what does not come") };
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str(), failure.remedy.as_str()),
        ("DeletionProtected", "the load balancer prod-lb: it is protected", "switch it off")
    );
}
