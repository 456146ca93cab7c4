//! What a machine's status says, for each thing that can be known.

use super::super::plan::plan;
use super::super::plan::tests::{after, at, deleting, facts, fail, fresh, requested, was_up, working};
use super::*;
use butler_api::find_condition;

fn told(observed: &Observed) -> MachineRequestStatus {
    status(observed, &plan(observed))
}

/// `Ready=False(reason)` and so on, for the three usual conditions.
fn conditions(status: &MachineRequestStatus) -> [String; 3] {
    [CONDITION_READY, CONDITION_PROGRESSING, CONDITION_DEGRADED].map(|type_| {
        let condition = find_condition(&status.conditions, type_).unwrap();
        assert_eq!(condition.observed_generation, Some(3));
        format!("{}({})", condition.is_true(), condition.reason)
    })
}

#[test]
fn the_table_of_reports() {
    use MachinePhase::{Creating, Deleting, Failed, Pending, Running, Unknown};
    let mut stopped = fresh();
    stopped.unusable = Some(Failure::new(Class::Auth, "NoSecret", "there is none", "make one"));
    let table = [
        (
            "about to be asked for",
            fresh(),
            Pending,
            ["false(Creating)", "true(Creating)", "false(AsExpected)"],
        ),
        (
            "paused",
            Observed { paused: true, ..fresh() },
            Pending,
            ["false(Paused)", "false(Paused)", "false(AsExpected)"],
        ),
        (
            "asked for",
            requested(fresh()),
            Creating,
            ["false(Creating)", "true(Creating)", "false(AsExpected)"],
        ),
        (
            "on its way",
            after(requested(fresh()), working(), 5),
            Creating,
            ["false(Creating)", "true(Creating)", "false(AsExpected)"],
        ),
        (
            "a hiccup",
            after(requested(fresh()), fail(Class::Retryable), 5),
            Creating,
            ["false(Why)", "true(Creating)", "false(AsExpected)"],
        ),
        (
            "no room",
            after(requested(fresh()), fail(Class::Quota), 5),
            Creating,
            ["false(Why)", "true(Creating)", "true(Why)"],
        ),
        (
            "not ours",
            after(requested(fresh()), fail(Class::Conflict), 5),
            Failed,
            ["false(Why)", "false(Failed)", "true(Why)"],
        ),
        ("no credentials", stopped, Failed, ["false(NoSecret)", "false(Failed)", "true(NoSecret)"]),
        (
            "up",
            after(requested(fresh()), Outcome::Ready(facts(true)), 5),
            Running,
            ["true(Running)", "false(Running)", "false(AsExpected)"],
        ),
        (
            "still up",
            after(was_up(), Outcome::Found(facts(true)), 0),
            Running,
            ["true(Running)", "false(Running)", "false(AsExpected)"],
        ),
        (
            "missed",
            after(was_up(), Outcome::Missing, 5),
            Unknown,
            ["false(VMNotFound)", "true(VMNotFound)", "true(VMNotFound)"],
        ),
        (
            "switched off",
            after(was_up(), Outcome::Found(facts(false)), 0),
            Running,
            ["true(Running)", "false(Running)", "true(VMStopped)"],
        ),
        ("going", deleting(was_up()), Deleting, ["false(Deleting)", "true(Deleting)", "false(AsExpected)"]),
    ];
    for (name, observed, phase, expected) in table {
        let status = told(&observed);
        assert_eq!(status.phase, Some(phase), "{name}");
        assert_eq!(conditions(&status), expected, "{name}");
    }
}

#[test]
fn that_the_infrastructure_is_asked_is_written_before_it_is() {
    let observed = fresh();
    let step = plan(&observed);
    assert_eq!(step, Step::Do(vec![Action::Ensure]));
    let status = status(&observed, &step);
    assert!(find_condition(&status.conditions, REQUESTED).is_some_and(butler_api::Condition::is_true));
    let mut paused = fresh();
    paused.paused = true;
    assert!(find_condition(&told(&paused).conditions, REQUESTED).is_none());
}

#[test]
fn facts_stay_and_operations_are_kept_across_failures() {
    let up = told(&after(requested(fresh()), Outcome::Ready(facts(true)), 5));
    assert_eq!((up.provider_id.as_deref(), up.ip_address.as_deref()), (Some("pve1/7"), Some("10.0.0.7")));
    assert_eq!(up.ip_addresses, ["10.0.0.7"]);
    let early = Outcome::Working {
        operation: Some("UPID:1".into()),
        waiting_for: "the start".into(),
        known: Some(facts(false)),
    };
    let early = told(&after(requested(fresh()), early, 5));
    assert_eq!((early.provider_id.as_deref(), early.ip_address), (Some("pve1/7"), None));
    assert_eq!(early.operation.as_deref(), Some("UPID:1"));
    let mut failed = after(requested(fresh()), fail(Class::Retryable), 5);
    failed.object.status.as_mut().unwrap().operation = Some("UPID:1".into());
    assert_eq!(told(&failed).operation.as_deref(), Some("UPID:1"), "it may still be under way");
    assert_eq!(told(&failed).failure_reason, None, "a hiccup is no failure");
    let stopped = told(&after(requested(fresh()), fail(Class::Terminal), 5));
    assert_eq!(stopped.failure_message.as_deref(), Some("it failed; what to do: mend it"));
}

#[test]
fn telling_the_same_twice_changes_nothing() {
    for observed in [after(was_up(), Outcome::Found(facts(true)), 5), after(requested(fresh()), working(), 5)]
    {
        let first = told(&observed);
        let mut later = observed.clone();
        later.now = at(3);
        later.object.status = Some(first.clone());
        let second = told(&later);
        assert_eq!(MachineRequestStatus { last_updated: first.last_updated.clone(), ..second }, first);
    }
}
