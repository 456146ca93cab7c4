//! What is to happen to a machine next. Pure.

use super::observe::Observed;
use crate::deadlines::backoff;
use crate::external::{Action, IN_DOUBT, Outcome, unremovable};
use crate::step::{Awaited, Step, Wait};
use crate::{Class, Deadlines, Failure, MachineFacts};
use jiff::Timestamp;
use std::time::Duration;

/// Reason: the machine is gone, and nobody here removed it.
pub(crate) const VANISHED: &str = "VMDeleted";
/// Looks in a row that have to miss a machine before it counts as gone: answers can be stale.
const LOOKS: u32 = 3;
/// The pause after the first of them, and again as much after each: lists of clouds are behind for seconds, so that looks without
/// a pause would all miss it for the same reason.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The whole decision.
pub(crate) fn plan(observed: &Observed) -> Step<Action> {
    if observed.deleting() {
        return deletion(observed);
    }
    if !observed.has_finalizer() {
        return Step::Do(vec![Action::AddFinalizer]);
    }
    if observed.paused {
        return wait("Paused", "the ClusterBootstrap to go on", "set spec.paused to false", observed);
    }
    if let Some(failure) = &observed.unusable {
        return Step::Stop(failure.clone());
    }
    if let Some(step) = pause(observed) {
        return step;
    }
    Step::Do(vec![next_call(observed)])
}

/// The call that is due when nothing stands in its way.
fn next_call(observed: &Observed) -> Action {
    match &observed.memory.last {
        Some(Outcome::Found(facts)) if !facts.running => Action::Ensure,
        Some(Outcome::Working { .. }) => Action::Ensure,
        // It was up, so that it is only looked at: a machine that vanished is not quietly made anew.
        _ if observed.was_up() => Action::Look,
        _ => Action::Ensure,
    }
}

/// What to say while the next call is not due.
fn pause(observed: &Observed) -> Option<Step<Action>> {
    let next = observed.memory.next.filter(|next| observed.now < *next)?;
    let recheck = crate::runtime::until(observed.now, next);
    Some(match &observed.memory.last {
        Some(Outcome::Failed(failure)) if failure.class.stops() => Step::Stop(failure.clone()),
        Some(Outcome::Failed(failure)) => Step::Wait(Wait {
            on: vec![Awaited {
                reason: "InfrastructureCall".into(),
                what: failure.message.clone(),
                remedy: failure.remedy.clone(),
            }],
            deadline: Timestamp::MAX,
            recheck,
        }),
        Some(Outcome::Missing) if observed.memory.missing >= LOOKS => Step::Stop(vanished(observed)),
        Some(Outcome::Working { waiting_for, .. } | Outcome::Leaving { waiting_for, .. }) => {
            Step::Wait(waiting(waiting_for, recheck))
        }
        Some(Outcome::Missing) => Step::Wait(waiting("the machine to be found again", recheck)),
        Some(Outcome::Found(facts)) if !facts.running => {
            Step::Wait(waiting("the machine to be switched on", recheck))
        }
        Some(Outcome::Gone) => Step::Wait(waiting(IN_DOUBT, recheck)),
        Some(Outcome::Ready(_) | Outcome::Found(_)) | None => Step::Done,
    })
}

fn deletion(observed: &Observed) -> Step<Action> {
    if !observed.has_finalizer() {
        return Step::Done;
    }
    if !observed.requested() || observed.memory.is_gone() {
        return Step::Do(vec![Action::RemoveFinalizer]);
    }
    if observed.held() {
        let hold = butler_api::names::FINALIZER_LOAD_BALANCER_TARGET;
        return wait(
            "LoadBalancerDraining",
            "the load balancer to have let go of the machine",
            &format!("look at the LoadBalancerRequest; to go without it, take the finalizer {hold} off"),
            observed,
        );
    }
    if let Some(failure) = &observed.unusable {
        let which = format!("the machine {}", observed.object.spec.machine_name);
        return Step::Stop(unremovable(&which, "machine", "MachineRequest", failure));
    }
    pause(observed).unwrap_or_else(|| Step::Do(vec![Action::Delete]))
}

fn vanished(observed: &Observed) -> Failure {
    let name = &observed.object.spec.machine_name;
    let id =
        observed.object.status.as_ref().and_then(|status| status.provider_id.clone()).unwrap_or_default();
    Failure::new(
        Class::Terminal,
        VANISHED,
        format!("the machine {name} ({id}) is not there any more, and nobody here removed it"),
        "put the machine back, or have it made anew with `kubectl delete machinerequest`",
    )
}

fn waiting(what: &str, recheck: Duration) -> Wait {
    let awaited =
        Awaited { reason: "InfrastructureBusy".into(), what: what.to_owned(), remedy: String::new() };
    Wait { on: vec![awaited], deadline: Timestamp::MAX, recheck }
}

fn wait(reason: &'static str, what: &str, remedy: &str, observed: &Observed) -> Step<Action> {
    let awaited = Awaited { reason: reason.into(), what: what.to_owned(), remedy: remedy.to_owned() };
    Step::Wait(Wait { on: vec![awaited], deadline: Timestamp::MAX, recheck: observed.deadlines.resync })
}

/// How long to leave the infrastructure alone after a call. `recheck` is what it asked for itself.
pub(crate) fn pause_after(
    outcome: &Outcome<MachineFacts>,
    recheck: Option<Duration>,
    failures: u32,
    missing: u32,
    deadlines: &Deadlines,
) -> Duration {
    match outcome {
        Outcome::Working { .. } | Outcome::Leaving { .. } => recheck.unwrap_or(deadlines.resync),
        Outcome::Ready(_) => deadlines.calm(),
        Outcome::Found(facts) if facts.running => deadlines.calm(),
        Outcome::Found(_) | Outcome::Gone => Duration::ZERO,
        Outcome::Missing if missing >= LOOKS => deadlines.resync,
        Outcome::Missing => LOOK_AGAIN.saturating_mul(missing).min(deadlines.resync),
        Outcome::Failed(failure) => pause_after_failure(failure.class, failures, deadlines),
    }
}

/// Mends itself: soon, then ever later. Needs a person: seldom.
pub(crate) fn pause_after_failure(class: Class, failures: u32, deadlines: &Deadlines) -> Duration {
    match class {
        Class::Retryable => backoff(failures, deadlines.longest_retry),
        Class::Throttled => backoff(failures.saturating_add(3), deadlines.longest_retry),
        Class::Quota | Class::Auth | Class::InvalidConfig | Class::Conflict | Class::Terminal => {
            deadlines.slow_retry
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
