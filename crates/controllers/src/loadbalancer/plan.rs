//! What is to happen to a load balancer next. Pure.

use super::observe::Observed;
use super::targets;
use crate::external::{Action, IN_DOUBT, Outcome, unremovable};
use crate::machine::pause_after_failure;
use crate::step::{Awaited, Step, Wait};
use crate::{Class, Deadlines, Failure, LoadBalancerFacts};
use butler_api::{LoadBalancerRequestSpec, Severity, Validate};
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// Reason: it is not there although there was time enough.
pub(crate) const LATE: &str = "LoadBalancerLate";

/// The whole decision. What there is and what is wanted are compared by the driver, each time anew: that a load balancer was
/// ready yesterday says nothing, and what somebody took away by hand comes back.
pub(crate) fn plan(observed: &Observed) -> Step<Action> {
    if observed.deleting() {
        return deletion(observed);
    }
    if !observed.has_finalizer() {
        return Step::Do(vec![Action::AddFinalizer]);
    }
    if observed.paused {
        let awaited = Awaited {
            reason: "Paused".into(),
            what: "the ClusterBootstrap to go on".to_owned(),
            remedy: "set spec.paused to false".to_owned(),
        };
        let recheck = observed.deadlines.resync;
        return Step::Wait(Wait { on: vec![awaited], deadline: Timestamp::MAX, recheck });
    }
    if let Some(failure) = invalid(observed).or_else(|| observed.unusable.clone()) {
        return Step::Stop(failure);
    }
    pause(observed).unwrap_or_else(|| Step::Do(vec![Action::Ensure]))
}

/// What can't work, whatever the outside does.
fn invalid(observed: &Observed) -> Option<Failure> {
    let problems = observed.object.validate();
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let text: Vec<String> = errors.map(ToString::to_string).collect();
    let remedy = "change the fields that the message names";
    (!text.is_empty())
        .then(|| Failure::new(Class::InvalidConfig, "ValidationFailed", text.join("; "), remedy))
}

/// What to say while the next call is not due.
fn pause(observed: &Observed) -> Option<Step<Action>> {
    let next = observed.memory.next.filter(|next| observed.now < *next)?;
    let recheck = crate::runtime::until(observed.now, next);
    let deadline = deadline(observed);
    let wait = |reason: &'static str, what: &str, remedy: &str| {
        let awaited = Awaited { reason: reason.into(), what: what.to_owned(), remedy: remedy.to_owned() };
        Step::Wait(Wait { on: vec![awaited], deadline, recheck })
    };
    Some(match &observed.memory.last {
        Some(Outcome::Failed(failure)) if failure.class.stops() => Step::Stop(failure.clone()),
        Some(Outcome::Failed(failure)) => wait("InfrastructureCall", &failure.message, &failure.remedy),
        Some(Outcome::Working { waiting_for, .. } | Outcome::Leaving { waiting_for, .. }) => wait(
            "InfrastructureBusy",
            waiting_for,
            "look at the load balancer on the infrastructure: what it says of itself, and what was last done to it",
        ),
        Some(Outcome::Gone) => wait("InfrastructureBusy", IN_DOUBT, ""),
        Some(Outcome::Ready(_) | Outcome::Found(_) | Outcome::Missing) | None => Step::Done,
    })
}

/// When waiting becomes a failure. What was ready once has no deadline: it is told as degraded, and mended.
pub(crate) fn deadline(observed: &Observed) -> Timestamp {
    if observed.deleting() || observed.was_ready() {
        return Timestamp::MAX;
    }
    if observed.told_late() {
        return observed.now;
    }
    observed.began().checked_add(observed.deadlines.load_balancer).unwrap_or(Timestamp::MAX)
}

fn deletion(observed: &Observed) -> Step<Action> {
    if !observed.has_finalizer() {
        return Step::Done;
    }
    if !observed.requested() || observed.memory.is_gone() {
        return Step::Do(vec![Action::RemoveFinalizer]);
    }
    if let Some(failure) = &observed.unusable {
        let which = format!("the load balancer {}", observed.object.name_any());
        return Step::Stop(unremovable(&which, "load balancer", "LoadBalancerRequest", failure));
    }
    pause(observed).unwrap_or_else(|| Step::Do(vec![Action::Delete]))
}

/// How long to leave the infrastructure alone after a call. `recheck` is what it asked for itself.
pub(crate) fn pause_after(
    outcome: &Outcome<LoadBalancerFacts>,
    spec: &LoadBalancerRequestSpec,
    recheck: Option<Duration>,
    failures: u32,
    deadlines: &Deadlines,
) -> Duration {
    match outcome {
        Outcome::Working { .. } | Outcome::Leaving { .. } => recheck.unwrap_or(deadlines.resync),
        Outcome::Ready(facts) if calm(facts, spec) => deadlines.calm(),
        // Nodes that come up turn healthy by themselves.
        Outcome::Ready(facts) if targets::count(facts, spec).synced() => deadlines.resync.saturating_mul(2),
        Outcome::Ready(_) | Outcome::Found(_) => deadlines.resync,
        Outcome::Missing | Outcome::Gone => Duration::ZERO,
        Outcome::Failed(failure) => pause_after_failure(failure.class, failures, deadlines),
    }
}

/// Whether nothing is to be expected soon: all targets are in and healthy, and none is on its way out.
fn calm(facts: &LoadBalancerFacts, spec: &LoadBalancerRequestSpec) -> bool {
    let count = targets::count(facts, spec);
    count.synced() && !spec.targets.is_empty() && count.unhealthy.is_empty()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
