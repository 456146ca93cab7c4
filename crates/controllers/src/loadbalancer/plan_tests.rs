//! Every branch of the load balancer's plan, as tables.

use super::super::observe::Observed;
use super::*;
use crate::Owner;
use crate::external::{Memory, REQUESTED};
use butler_api::names::FINALIZER_LOAD_BALANCER_REQUEST;
use butler_api::{LoadBalancerRequest, LoadBalancerRequestStatus};
use butler_drivers::ListenerFacts;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A load balancer with a finalizer that nobody has asked for yet, for two control planes.
pub(crate) fn fresh() -> Observed {
    let mut object: LoadBalancerRequest = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "LoadBalancerRequest",
        "metadata": {"name": "c-lb", "namespace": "n", "uid": "u0", "generation": 3},
        "spec": {"clusterName": "c", "providerConfigRef": {"name": "p"},
                 "targets": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]},
    }))
    .unwrap();
    object.metadata.finalizers = Some(vec![FINALIZER_LOAD_BALANCER_REQUEST.to_owned()]);
    let owner = Owner { cluster: "c".into(), cluster_uid: "cu".into(), object_uid: "u0".into() };
    Observed {
        now: at(0),
        since: at(-10_000),
        object,
        owner,
        paused: false,
        unusable: None,
        memory: Memory::default(),
        lists_lag: false,
        deadlines: Deadlines::default(),
    }
}

pub(crate) fn told(mut observed: Observed, type_: &str, holds: bool, second: i64) -> Observed {
    let condition = crate::report::condition(type_, holds, "Word", "", at(second), Some(3));
    let status = observed.object.status.get_or_insert_with(LoadBalancerRequestStatus::default);
    status.observed_generation = Some(3);
    butler_api::set_condition(&mut status.conditions, condition);
    observed
}

pub(crate) fn requested(observed: Observed) -> Observed {
    told(observed, REQUESTED, true, -9)
}

/// One that was ready when it was last told.
pub(crate) fn was_ready() -> Observed {
    let mut observed = told(requested(fresh()), "Provisioned", true, -8);
    let status = observed.object.status.as_mut().unwrap();
    (status.endpoint, status.resource_id) = (Some("198.51.100.7".into()), Some("rule-1".into()));
    observed
}

pub(crate) fn after(mut observed: Observed, last: Outcome<LoadBalancerFacts>, next: i64) -> Observed {
    (observed.memory.last, observed.memory.next) = (Some(last), Some(at(next)));
    observed
}

pub(crate) fn deleting(mut observed: Observed) -> Observed {
    observed.object.metadata.deletion_timestamp = Some(Time(at(-1)));
    observed
}

fn all(addresses: &[&str]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// A load balancer whose one port has these targets.
pub(crate) fn facts(registered: &[&str], healthy: &[&str], draining: &[&str]) -> LoadBalancerFacts {
    LoadBalancerFacts {
        endpoint: "198.51.100.7".into(),
        resource_id: "rule-1".into(),
        listeners: vec![ListenerFacts {
            port: 6443,
            resource_id: "pool-1".into(),
            registered: all(registered),
            healthy: all(healthy),
            draining: all(draining),
        }],
        ..LoadBalancerFacts::default()
    }
}

pub(crate) fn complete() -> LoadBalancerFacts {
    facts(&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"], &[])
}

pub(crate) fn fail(class: Class) -> Outcome<LoadBalancerFacts> {
    Outcome::Failed(Failure::new(class, "Why", "it failed", "mend it"))
}

pub(crate) fn working(known: Option<LoadBalancerFacts>) -> Outcome<LoadBalancerFacts> {
    Outcome::Working { operation: Some("op-1".into()), waiting_for: "the address".into(), known }
}

pub(crate) fn unusable(mut observed: Observed) -> Observed {
    observed.unusable = Some(Failure::new(Class::Auth, "NoSecret", "there is none", "make one"));
    observed
}

#[test]
fn the_table_of_plans() {
    let no_finalizer = || {
        let mut observed = fresh();
        observed.object.metadata.finalizers = None;
        observed
    };
    let twice = || {
        let mut observed = fresh();
        observed.object.spec.targets[1].ip = "10.0.0.1".to_owned();
        observed
    };
    let leaving = || Outcome::Leaving { operation: None, waiting_for: "the rule to go".into() };
    let table: Vec<(&str, Observed, &str)> = vec![
        ("new", no_finalizer(), "AddFinalizer"),
        ("kept", fresh(), "Ensure"),
        ("paused", Observed { paused: true, ..fresh() }, "wait for the ClusterBootstrap to go on"),
        ("a target twice", twice(), "stop ValidationFailed"),
        ("no credentials", unusable(fresh()), "stop NoSecret"),
        ("on its way", after(fresh(), working(None), 5), "wait for the address"),
        ("on its way, due", after(fresh(), working(None), 0), "Ensure"),
        ("failed, mends itself", after(fresh(), fail(Class::Retryable), 5), "wait for it failed"),
        ("failed, due", after(fresh(), fail(Class::Retryable), 0), "Ensure"),
        ("no room", after(fresh(), fail(Class::Quota), 5), "wait for it failed"),
        ("a missing right", after(fresh(), fail(Class::Auth), 5), "wait for it failed"),
        ("not ours", after(fresh(), fail(Class::Conflict), 5), "stop Why"),
        ("not ours, looked at again", after(fresh(), fail(Class::Conflict), 0), "Ensure"),
        ("impossible", after(fresh(), fail(Class::InvalidConfig), 5), "stop Why"),
        ("ready", after(was_ready(), Outcome::Ready(complete()), 5), "done"),
        ("ready, looked at again", after(was_ready(), Outcome::Ready(complete()), 0), "Ensure"),
        ("ready, a new life", was_ready(), "Ensure"),
        ("deleted, no finalizer", deleting(no_finalizer()), "done"),
        ("deleted, never asked for", deleting(fresh()), "RemoveFinalizer"),
        ("deleted, never asked for, no credentials", deleting(unusable(fresh())), "RemoveFinalizer"),
        ("deleted, asked for", deleting(requested(fresh())), "Delete"),
        ("deleted, bad spec", deleting(requested(twice())), "Delete"),
        ("deleted, paused", deleting(Observed { paused: true, ..was_ready() }), "Delete"),
        ("deleted, no credentials", deleting(unusable(was_ready())), "stop NoSecret"),
        (
            "deleted, was ready a moment ago",
            after(deleting(was_ready()), Outcome::Ready(complete()), 0),
            "Delete",
        ),
        ("going", after(deleting(was_ready()), leaving(), 5), "wait for the rule to go"),
        ("going, due", after(deleting(was_ready()), leaving(), 0), "Delete"),
        ("gone", after(deleting(was_ready()), Outcome::Gone, 0), "RemoveFinalizer"),
        (
            "throttled on the way out",
            after(deleting(was_ready()), fail(Class::Throttled), 5),
            "wait for it failed",
        ),
        ("throttled, due", after(deleting(was_ready()), fail(Class::Throttled), 0), "Delete"),
        ("protected against deletion", after(deleting(was_ready()), fail(Class::Conflict), 5), "stop Why"),
        ("protected, looked at again", after(deleting(was_ready()), fail(Class::Conflict), 0), "Delete"),
    ];
    for (name, observed, expected) in table {
        assert_eq!(plan(&observed).word(), expected, "{name}");
    }
}

/// Whatever a call on the way out says, only "it is gone" lets the finalizer go.
#[test]
fn no_failure_lets_go_of_a_load_balancer_that_may_exist() {
    let classes = [
        Class::Retryable,
        Class::Throttled,
        Class::Quota,
        Class::Auth,
        Class::InvalidConfig,
        Class::Conflict,
        Class::Terminal,
    ];
    for class in classes {
        for next in [0, 5] {
            for observed in [requested(fresh()), was_ready()] {
                let observed = after(deleting(observed), fail(class), next);
                assert_ne!(plan(&observed), Step::Do(vec![Action::RemoveFinalizer]), "{class} {next}");
            }
        }
    }
}

#[test]
fn a_deletion_that_cannot_go_on_names_load_balancer_and_way_out() {
    let Step::Stop(failure) = plan(&deleting(unusable(was_ready()))) else { panic!("it must stop") };
    assert_eq!(failure.message, "the load balancer c-lb can't be removed: there is none");
    assert!(failure.remedy.contains("take the finalizer off this LoadBalancerRequest"), "{}", failure.remedy);
}

#[test]
fn a_wait_has_a_deadline_until_it_was_ready_once() {
    let limit = i64::try_from(Deadlines::default().load_balancer.as_secs()).unwrap();
    let begun = |second| told(requested(fresh()), "Progressing", true, second);
    assert_eq!(deadline(&begun(-60)), at(limit - 60));
    let new_life = Observed { since: at(-5), ..begun(-60) };
    assert_eq!(deadline(&new_life), at(limit - 5), "time that nobody was there to use does not count");
    assert_eq!(deadline(&was_ready()), Timestamp::MAX, "from then on it is mended, however long that takes");
    assert_eq!(deadline(&deleting(begun(-60))), Timestamp::MAX);
    let mut late = told(requested(fresh()), "Progressing", false, -60);
    late.object.status.as_mut().unwrap().failure_reason = Some(LATE.to_owned());
    assert_eq!(deadline(&late), at(0), "a new try does not make it early again");
    late.object.metadata.generation = Some(4);
    assert_eq!(deadline(&late), at(limit), "another spec gets its own time");
}

#[test]
fn pauses_follow_the_outcome() {
    let deadlines = Deadlines::default();
    let spec = fresh().object.spec;
    let pause = |outcome: &Outcome<LoadBalancerFacts>, failures| {
        pause_after(outcome, &spec, Some(Duration::from_millis(70)), failures, &deadlines)
    };
    assert_eq!(pause(&working(None), 0), Duration::from_millis(70), "as the infrastructure asked");
    assert_eq!(pause(&Outcome::Ready(complete()), 0), deadlines.resync * 4, "nothing is to be expected");
    let unhealthy = facts(&["10.0.0.1", "10.0.0.2"], &["10.0.0.1"], &[]);
    assert_eq!(pause(&Outcome::Ready(unhealthy), 0), deadlines.resync * 2);
    let mut draining = complete();
    draining.listeners[0].draining = all(&["10.0.0.3"]);
    assert_eq!(pause(&Outcome::Ready(draining), 0), deadlines.resync);
    assert_eq!(pause(&Outcome::Gone, 0), Duration::ZERO);
    assert_eq!(pause(&fail(Class::Retryable), 4), Duration::from_millis(800));
    assert_eq!(pause(&fail(Class::Throttled), 1), Duration::from_millis(800));
    for class in [Class::Quota, Class::Auth, Class::InvalidConfig, Class::Conflict, Class::Terminal] {
        assert_eq!(pause(&fail(class), 1), deadlines.slow_retry, "{class}");
    }
}

/// Where lists are behind, a load balancer that was asked for and never seen whole is not gone because nobody sees it.
#[test]
fn what_was_just_asked_for_is_not_believed_to_be_absent() {
    let mut gone = after(deleting(requested(fresh())), Outcome::Gone, 5);
    gone.memory.in_doubt = true;
    assert_eq!(plan(&gone).word(), format!("wait for {IN_DOUBT}"));
    gone.now = at(5);
    assert_eq!(plan(&gone).word(), "Delete", "it is looked for again, also when there was time enough since");
    gone.memory.in_doubt = false;
    assert_eq!(plan(&gone).word(), "RemoveFinalizer");
    let settling = i64::try_from(Deadlines::default().settling.as_secs()).unwrap();
    let mut begun = Observed { lists_lag: true, ..requested(fresh()) };
    begun.memory.since = Some(at(0));
    assert_eq!(begun.unsettled(at(1)), Some(at(settling)));
    begun.memory.whole = true;
    assert_eq!(begun.unsettled(at(1)), None, "all of it was seen");
    begun.memory.ask(at(2));
    assert_eq!(begun.unsettled(at(3)), Some(at(2 + settling)), "and then something was asked for again");
}
