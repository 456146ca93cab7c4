//! What a load balancer's status says, for each thing that can be known.

use super::super::plan::plan;
use super::super::plan::tests::{
    after, at, complete, deleting, facts, fail, fresh, requested, told, unusable, was_ready, working,
};
use super::*;
use butler_api::find_condition;

fn report(observed: &Observed) -> LoadBalancerRequestStatus {
    status(observed, &plan(observed))
}

/// `true(reason)` of a condition, or a dash.
fn said(status: &LoadBalancerRequestStatus, type_: &str) -> String {
    match find_condition(&status.conditions, type_) {
        Some(condition) => format!("{}({})", condition.is_true(), condition.reason),
        None => "-".to_owned(),
    }
}

fn message(status: &LoadBalancerRequestStatus, type_: &str) -> String {
    find_condition(&status.conditions, type_).map(|known| known.message.clone()).unwrap_or_default()
}

fn ready(known: LoadBalancerFacts) -> Observed {
    after(requested(fresh()), Outcome::Ready(known), 5)
}

#[test]
fn the_table_of_reports() {
    use LoadBalancerPhase::{Creating, Deleting, Failed, Pending, Ready};
    let part = facts(&["10.0.0.1"], &[], &[]);
    let closed = LoadBalancerFacts { listeners: Vec::new(), ..complete() };
    let drained = facts(&["10.0.0.1", "10.0.0.2"], &[], &["10.0.0.9"]);
    let rows = [
        ("about to be asked for", fresh(), Pending, "false(Creating) - true(Creating) false(AsExpected)"),
        (
            "paused",
            Observed { paused: true, ..fresh() },
            Pending,
            "false(Paused) - false(Paused) false(AsExpected)",
        ),
        (
            "on its way",
            after(requested(fresh()), working(None), 5),
            Creating,
            "false(Creating) - true(Creating) false(AsExpected)",
        ),
        (
            "its address is known",
            after(requested(fresh()), working(Some(part.clone())), 5),
            Creating,
            "false(Creating) false(TargetsChanging) true(Creating) false(AsExpected)",
        ),
        (
            "a hiccup",
            after(requested(fresh()), fail(Class::Retryable), 5),
            Creating,
            "false(Why) - true(Creating) false(AsExpected)",
        ),
        (
            "no room",
            after(requested(fresh()), fail(Class::Quota), 5),
            Creating,
            "false(Why) - true(Creating) true(Why)",
        ),
        (
            "not ours",
            after(requested(fresh()), fail(Class::Conflict), 5),
            Failed,
            "false(Why) - false(Failed) true(Why)",
        ),
        ("no credentials", unusable(fresh()), Failed, "false(NoSecret) - false(Failed) true(NoSecret)"),
        (
            "ready",
            ready(complete()),
            Ready,
            "true(LBReady) true(AllTargetsRegistered) false(LBReady) false(AsExpected)",
        ),
        (
            "ready, and an old target drains",
            ready(drained),
            Ready,
            "true(LBReady) false(TargetsDraining) false(LBReady) false(AsExpected)",
        ),
        (
            "a target is being added",
            after(was_ready(), working(Some(part)), 5),
            Ready,
            "true(LBReady) false(TargetsChanging) true(Repairing) false(AsExpected)",
        ),
        (
            "a listener was taken away",
            after(was_ready(), working(Some(closed)), 5),
            Ready,
            "false(Repairing) false(TargetsChanging) true(Repairing) true(PartsMissing)",
        ),
        (
            "all of it was taken away",
            after(was_ready(), working(Some(Default::default())), 5),
            Creating,
            "false(Repairing) false(TargetsChanging) true(Repairing) true(PartsMissing)",
        ),
        ("was ready, a new life", was_ready(), Ready, "true(LBReady) - false(LBReady) false(AsExpected)"),
        (
            "was ready, a hiccup",
            after(was_ready(), fail(Class::Retryable), 5),
            Ready,
            "true(LBReady) - true(Repairing) false(AsExpected)",
        ),
        (
            "was ready, and can't be looked at",
            after(was_ready(), fail(Class::Auth), 5),
            Ready,
            "true(LBReady) - true(Repairing) true(Why)",
        ),
        (
            "going",
            deleting(was_ready()),
            Deleting,
            "true(LBReady) false(Deleting) true(Deleting) false(AsExpected)",
        ),
        (
            "protected",
            after(deleting(was_ready()), fail(Class::Conflict), 5),
            Deleting,
            "true(LBReady) false(Deleting) false(Deleting) true(Why)",
        ),
    ];
    for (name, observed, phase, expected) in rows {
        let status = report(&observed);
        assert_eq!(status.phase, Some(phase), "{name}");
        let all =
            [CONDITION_PROVISIONED, CONDITION_TARGETS_SYNCED, CONDITION_PROGRESSING, CONDITION_DEGRADED];
        assert_eq!(all.map(|type_| said(&status, type_)).join(" "), expected, "{name}");
        assert_eq!(status.observed_generation, Some(3), "{name}");
    }
}

#[test]
fn that_the_infrastructure_is_asked_is_written_before_it_is() {
    let observed = fresh();
    let step = plan(&observed);
    assert_eq!(step, Step::Do(vec![Action::Ensure]));
    assert_eq!(said(&status(&observed, &step), REQUESTED), "true(InfrastructureAsked)");
    assert_eq!(said(&report(&Observed { paused: true, ..fresh() }), REQUESTED), "-");
}

#[test]
fn what_is_known_is_told_and_the_endpoint_as_soon_as_anything() {
    let early = report(&after(requested(fresh()), working(Some(complete())), 5));
    assert_eq!(early.endpoint.as_deref(), Some("198.51.100.7"), "machines can be told of it");
    assert_eq!(
        (early.phase, said(&early, ESTABLISHED).as_str()),
        (Some(LoadBalancerPhase::Creating), "false(PartsMissing)")
    );
    assert_eq!(early.resource_id.as_deref(), Some("rule-1"));
    assert_eq!(early.operation.as_deref(), Some("op-1"));
    // Who comes after it knows that it was never ready.
    let mut next = requested(fresh());
    next.object.status = Some(early);
    assert!(!next.was_ready());
    let mut known = complete();
    known.outputs.kubernetes_endpoint = Some("https://198.51.100.7:6443".into());
    let there = report(&ready(known));
    assert_eq!(there.endpoint.as_deref(), Some("198.51.100.7"));
    assert_eq!(
        (there.phase, said(&there, ESTABLISHED).as_str()),
        (Some(LoadBalancerPhase::Ready), "true(AllPartsMade)")
    );
    assert_eq!((there.registered_targets, there.operation.as_ref()), (Some(2), None));
    let port = &there.listeners[0];
    assert_eq!((port.port, port.registered, port.healthy), (6443, 2, 2));
    assert_eq!(port.resource_id.as_deref(), Some("pool-1"));
    assert_eq!(there.outputs.unwrap().kubernetes_endpoint.as_deref(), Some("https://198.51.100.7:6443"));
    let synced = find_condition(&there.conditions, CONDITION_TARGETS_SYNCED).unwrap();
    assert_eq!(synced.message, "2 targets registered");
    let lost = report(&after(was_ready(), working(Some(Default::default())), 5));
    assert_eq!(said(&lost, ESTABLISHED), "-", "who never said so is not contradicted");
    assert_eq!((lost.endpoint, lost.resource_id, lost.registered_targets), (None, None, Some(0)));
}

#[test]
fn targets_are_told_by_name_while_they_change() {
    let known = facts(&["10.0.0.1", "10.0.0.7"], &[], &[]);
    let changing = report(&after(was_ready(), working(Some(known)), 5));
    assert_eq!(
        message(&changing, CONDITION_TARGETS_SYNCED),
        "2 targets registered; to be added: 10.0.0.2; to be taken out: 10.0.0.7"
    );
    let mut none = ready(facts(&[], &[], &[]));
    none.object.spec.targets.clear();
    assert_eq!(said(&report(&none), CONDITION_TARGETS_SYNCED), "true(NoTargets)");
    let mut more = ready(complete());
    more.object
        .spec
        .targets
        .push(butler_api::LoadBalancerTarget { ip: "10.0.0.3".into(), ..Default::default() });
    assert_eq!(
        said(&report(&more), CONDITION_TARGETS_SYNCED),
        "false(TargetsChanging)",
        "a new spec, old facts"
    );
}

#[test]
fn remarks_are_made_and_taken_back() {
    let mut known = complete();
    known.listeners[0].registered.push("10.9.9.9".into());
    known.foreign_targets = vec!["10.9.9.9".into()];
    known.lacking = vec!["crossZone: it is always on here".into()];
    let first = report(&ready(known));
    assert_eq!((said(&first, FOREIGN_TARGETS), first.registered_targets), ("true(NotOurs)".into(), Some(2)));
    assert!(message(&first, FOREIGN_TARGETS).ends_with(": 10.9.9.9"), "{}", message(&first, FOREIGN_TARGETS));
    assert_eq!(said(&first, SETTINGS_APPLIED), "false(NotAvailable)");
    assert_eq!(said(&first, CONDITION_TARGETS_SYNCED), "true(AllTargetsRegistered)", "it is in nobody's way");
    let mut later = ready(complete());
    later.object.status = Some(first);
    let second = report(&later);
    assert_eq!(
        (said(&second, FOREIGN_TARGETS), said(&second, SETTINGS_APPLIED)),
        ("false(AllOurs)".into(), "true(AsAsked)".into())
    );
    assert_eq!(said(&report(&ready(complete())), FOREIGN_TARGETS), "-", "and not made without need");
}

#[test]
fn one_that_never_comes_is_told_as_failed_and_watched_on() {
    let begun = |last: Outcome<LoadBalancerFacts>, next| {
        after(told(requested(fresh()), CONDITION_PROGRESSING, true, -2000), last, next)
    };
    let late = report(&begun(working(None), 5));
    assert_eq!(late.phase, Some(LoadBalancerPhase::Failed));
    assert_eq!(late.failure_reason.as_deref(), Some("LoadBalancerLate"));
    assert!(
        late.failure_message.as_ref().unwrap().contains("after 15 minutes"),
        "{:?}",
        late.failure_message
    );
    assert_eq!(said(&late, CONDITION_DEGRADED), "true(LoadBalancerLate)");
    // The next try does not make it young again.
    let mut again = begun(working(None), 0);
    again.object.status = Some(late);
    assert_eq!(plan(&again), Step::Do(vec![Action::Ensure]), "it is watched on");
    assert_eq!(report(&again).phase, Some(LoadBalancerPhase::Failed));
    // It comes after all.
    let mut come = after(again, Outcome::Ready(complete()), 5);
    come.now = at(9);
    let come = report(&Observed { now: at(3), ..come });
    assert_eq!((come.phase, come.failure_reason), (Some(LoadBalancerPhase::Ready), None));
    let refused = report(&begun(fail(Class::Quota), 5));
    assert!(refused.failure_message.unwrap().contains("it failed; what to do: mend it"));
}

#[test]
fn operations_are_kept_across_failures_and_failures_have_remedies() {
    let mut failed = after(requested(fresh()), fail(Class::Retryable), 5);
    failed.object.status.as_mut().unwrap().operation = Some("op-1".into());
    assert_eq!(report(&failed).operation.as_deref(), Some("op-1"), "it may still be under way");
    assert_eq!(report(&failed).failure_reason, None, "a hiccup is no failure");
    failed.memory.failures = 4;
    assert_eq!(said(&report(&failed), CONDITION_DEGRADED), "true(Why)", "many of them are");
    let stopped = report(&after(requested(fresh()), fail(Class::Terminal), 5));
    assert_eq!(stopped.failure_message.as_deref(), Some("it failed; what to do: mend it"));
}

#[test]
fn telling_the_same_twice_changes_nothing() {
    let all = [
        ready(complete()),
        ready(facts(&["10.0.0.1", "10.0.0.2"], &[], &["10.0.0.3"])),
        after(requested(fresh()), working(None), 5),
        after(was_ready(), working(Some(facts(&["10.0.0.1"], &[], &[]))), 0),
        after(was_ready(), working(Some(facts(&["10.0.0.1"], &[], &[]))), 5),
        after(deleting(was_ready()), fail(Class::Throttled), 5),
    ];
    for observed in all {
        let first = report(&observed);
        let mut later = observed.clone();
        later.now = at(3);
        later.object.status = Some(first.clone());
        let second = report(&later);
        assert_eq!(LoadBalancerRequestStatus { last_updated: first.last_updated.clone(), ..second }, first);
    }
}
