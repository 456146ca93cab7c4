//! Every branch of the machine's plan, as tables.

use super::super::observe::Observed;
use super::*;
use crate::external::{Memory, REQUESTED};
use crate::{MachineFacts, Owner};
use butler_api::names::FINALIZER_MACHINE_REQUEST;
use butler_api::{MachineRequest, MachineRequestStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A machine with a finalizer that nobody has asked for yet.
pub(crate) fn fresh() -> Observed {
    let mut object: MachineRequest = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest",
        "metadata": {"name": "m0", "namespace": "n", "uid": "u0", "generation": 3},
        "spec": {"providerRef": {"name": "p"}, "machineName": "m0", "role": "worker",
                 "cpu": 1, "memoryMB": 2048, "diskGB": 20},
    }))
    .unwrap();
    object.metadata.finalizers = Some(vec![FINALIZER_MACHINE_REQUEST.to_owned()]);
    let owner = Owner { cluster: "c".into(), cluster_uid: "cu".into(), object_uid: "u0".into() };
    Observed {
        now: at(0),
        object,
        owner,
        paused: false,
        kept: true,
        unusable: None,
        memory: Memory::default(),
        lists_lag: false,
        deadlines: Deadlines::default(),
    }
}

pub(crate) fn requested(mut observed: Observed) -> Observed {
    let condition = crate::report::condition(REQUESTED, true, "InfrastructureAsked", "", at(-9), Some(3));
    let status = observed.object.status.get_or_insert_with(MachineRequestStatus::default);
    status.conditions.push(condition);
    observed
}

pub(crate) fn was_up() -> Observed {
    let mut observed = requested(fresh());
    let status = observed.object.status.as_mut().unwrap();
    (status.provider_id, status.ip_address) = (Some("pve1/7".into()), Some("10.0.0.7".into()));
    observed
}

pub(crate) fn after(mut observed: Observed, last: Outcome<MachineFacts>, next: i64) -> Observed {
    (observed.memory.last, observed.memory.next) = (Some(last), Some(at(next)));
    observed
}

pub(crate) fn deleting(mut observed: Observed) -> Observed {
    observed.object.metadata.deletion_timestamp = Some(Time(at(-1)));
    observed
}

pub(crate) fn facts(running: bool) -> MachineFacts {
    MachineFacts {
        provider_id: "pve1/7".into(),
        addresses: vec!["10.0.0.7".parse().unwrap()],
        running,
        ..MachineFacts::default()
    }
}

pub(crate) fn fail(class: Class) -> Outcome<MachineFacts> {
    Outcome::Failed(Failure::new(class, "Why", "it failed", "mend it"))
}

pub(crate) fn working() -> Outcome<MachineFacts> {
    Outcome::Working { operation: Some("UPID:1".into()), waiting_for: "the clone".into(), known: None }
}

#[test]
fn the_table_of_plans() {
    let no_finalizer = || {
        let mut observed = fresh();
        observed.object.metadata.finalizers = None;
        observed
    };
    let unusable = |mut observed: Observed| {
        observed.unusable = Some(Failure::new(Class::Auth, "NoSecret", "there is none", "make one"));
        observed
    };
    let missing = |times: u32| {
        let mut observed = after(was_up(), Outcome::Missing, 5);
        observed.memory.missing = times;
        observed
    };
    let stopped = || after(was_up(), Outcome::Found(facts(false)), 0);
    let held = || {
        let mut observed = deleting(was_up());
        let finalizers = observed.object.metadata.finalizers.as_mut().unwrap();
        finalizers.push(butler_api::names::FINALIZER_LOAD_BALANCER_TARGET.to_owned());
        observed
    };
    let draining = "wait for the load balancer to have let go of the machine";
    let leaving = || Outcome::Leaving { operation: None, waiting_for: "the stop".into() };
    let table: Vec<(&str, Observed, &str)> = vec![
        ("new", no_finalizer(), "AddFinalizer"),
        ("kept", fresh(), "Ensure"),
        ("paused", Observed { paused: true, ..fresh() }, "wait for the ClusterBootstrap to go on"),
        ("no credentials", unusable(fresh()), "stop NoSecret"),
        ("on its way", after(fresh(), working(), 5), "wait for the clone"),
        ("on its way, due", after(fresh(), working(), 0), "Ensure"),
        ("failed, mends itself", after(fresh(), fail(Class::Retryable), 5), "wait for it failed"),
        ("failed, due", after(fresh(), fail(Class::Retryable), 0), "Ensure"),
        ("no room", after(fresh(), fail(Class::Quota), 5), "wait for it failed"),
        ("not ours", after(fresh(), fail(Class::Conflict), 5), "stop Why"),
        ("not ours, looked at again", after(fresh(), fail(Class::Conflict), 0), "Ensure"),
        ("impossible", after(fresh(), fail(Class::InvalidConfig), 5), "stop Why"),
        ("just up", after(was_up(), Outcome::Ready(facts(true)), 5), "done"),
        ("up, a new life", was_up(), "Look"),
        ("up, looked at", after(was_up(), Outcome::Found(facts(true)), 5), "done"),
        ("up, due", after(was_up(), Outcome::Found(facts(true)), 0), "Look"),
        ("switched off", stopped(), "Ensure"),
        ("being switched on", after(was_up(), working(), 0), "Ensure"),
        ("missed once", missing(1), "wait for the machine to be found again"),
        ("missed thrice", missing(3), "stop VMDeleted"),
        ("missed, due", after(was_up(), Outcome::Missing, 0), "Look"),
        ("deleted, no finalizer", deleting(no_finalizer()), "done"),
        ("deleted, never asked for", deleting(fresh()), "RemoveFinalizer"),
        ("deleted, never asked for, no credentials", deleting(unusable(fresh())), "RemoveFinalizer"),
        ("deleted, asked for", deleting(requested(fresh())), "Delete"),
        ("deleted, paused", deleting(Observed { paused: true, ..was_up() }), "Delete"),
        ("deleted, no credentials", deleting(unusable(was_up())), "stop NoSecret"),
        ("deleted, behind a load balancer", held(), draining),
        ("deleted, and nobody is left to let go of it", Observed { kept: false, ..held() }, "Delete"),
        ("going", after(deleting(was_up()), leaving(), 5), "wait for the stop"),
        ("going, due", after(deleting(was_up()), leaving(), 0), "Delete"),
        ("gone", after(deleting(was_up()), Outcome::Gone, 0), "RemoveFinalizer"),
        ("not going", after(deleting(was_up()), fail(Class::Retryable), 5), "wait for it failed"),
    ];
    for (name, observed, expected) in table {
        assert_eq!(plan(&observed).word(), expected, "{name}");
    }
}

#[test]
fn a_deletion_that_cannot_go_on_names_machine_and_way_out() {
    let mut observed = deleting(was_up());
    observed.unusable =
        Some(Failure::new(Class::InvalidConfig, "Gone", "there is no ProviderConfig", "make it"));
    let Step::Stop(failure) = plan(&observed) else { panic!("it must stop") };
    assert_eq!(failure.message, "the machine m0 can't be removed: there is no ProviderConfig");
    assert!(failure.remedy.starts_with("make it; if the machine is known to be gone"), "{}", failure.remedy);
}

/// Where lists are behind, a machine that was asked for and never seen is not gone because nobody sees it: neither in the life that
/// asked, nor in one that began a moment ago.
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
    assert_eq!(begun.unsettled(at(1)), Some(at(settling)), "an earlier life may have asked a moment ago");
    assert_eq!(begun.unsettled(at(settling)), None);
    begun.memory.ask(at(20));
    assert_eq!(begun.unsettled(at(settling)), Some(at(20 + settling)), "asked for in this one");
    let believed = Observed { lists_lag: false, ..begun.clone() };
    assert_eq!(believed.unsettled(at(21)), None, "lists can be believed");
    let mut seen = Observed { lists_lag: true, ..was_up() };
    seen.memory.since = Some(at(0));
    assert_eq!(seen.unsettled(at(1)), None, "it was seen");
}

#[test]
fn pauses_follow_the_outcome() {
    let deadlines = Deadlines::default();
    let pause = |outcome: &Outcome<MachineFacts>, failures, missing| {
        pause_after(outcome, Some(Duration::from_millis(70)), failures, missing, &deadlines)
    };
    assert_eq!(pause(&working(), 0, 0), Duration::from_millis(70), "as the infrastructure asked");
    assert_eq!(pause(&Outcome::Ready(facts(true)), 0, 0), deadlines.calm());
    assert_eq!(pause(&Outcome::Found(facts(true)), 0, 0), deadlines.calm());
    assert_eq!(pause(&Outcome::Found(facts(false)), 0, 0), Duration::ZERO);
    assert_eq!(pause(&Outcome::Gone, 0, 0), Duration::ZERO);
    let looks: Duration = (1..LOOKS).map(|missing| pause(&Outcome::Missing, 0, missing)).sum();
    assert!(looks >= Duration::from_secs(30), "a list that is behind is not believed: {looks:?}");
    assert_eq!(pause(&Outcome::Missing, 0, 3), deadlines.resync);
    assert_eq!(pause(&fail(Class::Retryable), 1, 0), Duration::from_millis(100));
    assert_eq!(pause(&fail(Class::Retryable), 4, 0), Duration::from_millis(800));
    assert_eq!(pause(&fail(Class::Throttled), 1, 0), Duration::from_millis(800));
    for class in [Class::Quota, Class::Auth, Class::InvalidConfig, Class::Conflict, Class::Terminal] {
        assert_eq!(pause(&fail(class), 1, 0), deadlines.slow_retry, "{class}");
    }
}
