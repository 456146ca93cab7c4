//! What is told about a machine. Pure.

use super::observe::Observed;
use crate::external::{Action, Outcome, REQUESTED};
use crate::report::{condition, told, whole_second, with_remedy};
use crate::step::Step;
use crate::{Class, Failure, MachineFacts};
use butler_api::{
    CONDITION_DEGRADED, CONDITION_PROGRESSING, CONDITION_READY, MachinePhase, MachineRequestStatus,
    set_condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The status as it is to be before the step's actions are done.
pub(crate) fn status(observed: &Observed, step: &Step<Action>) -> MachineRequestStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    facts(observed, &mut status);
    let failure = observed.memory.obstacle(step);
    let failed = matches!(step, Step::Stop(_));
    status.phase = Some(phase(observed, &status, failed));
    status.operation = observed.operation();
    (status.failure_reason, status.failure_message) = told(failure.as_ref(), failed);
    conditions(observed, step, failure.as_ref(), &mut status);
    status.observed_generation = observed.object.metadata.generation;
    status.last_updated = Some(Time(whole_second(observed.now)));
    status
}

/// What is known of the machine itself.
fn facts(observed: &Observed, status: &mut MachineRequestStatus) {
    let (known, up): (Option<&MachineFacts>, bool) = match &observed.memory.last {
        Some(Outcome::Ready(facts)) => (Some(facts), true),
        Some(Outcome::Found(facts)) => (Some(facts), facts.running),
        Some(Outcome::Working { known, .. }) => (known.as_ref(), false),
        _ => (None, false),
    };
    let Some(facts) = known else { return };
    if !facts.provider_id.is_empty() {
        status.provider_id = Some(facts.provider_id.clone());
    }
    if facts.mac.is_some() {
        status.mac_address.clone_from(&facts.mac);
    }
    // An address counts once the machine is up: before, it may still be another's.
    let reach = facts.reach.or(facts.addresses.first().copied());
    if up && let Some(address) = reach {
        status.ip_address = Some(address.to_string());
        status.ip_addresses = facts.addresses.iter().map(ToString::to_string).collect();
    }
}

fn phase(observed: &Observed, status: &MachineRequestStatus, failed: bool) -> MachinePhase {
    let up = status.ip_address.is_some();
    match &observed.memory.last {
        _ if observed.deleting() => MachinePhase::Deleting,
        _ if failed => MachinePhase::Failed,
        Some(Outcome::Missing) if up => MachinePhase::Unknown,
        Some(Outcome::Working { .. }) => MachinePhase::Creating,
        _ if up => MachinePhase::Running,
        _ if observed.requested() => MachinePhase::Creating,
        _ => MachinePhase::Pending,
    }
}

fn conditions(
    observed: &Observed,
    step: &Step<Action>,
    failure: Option<&Failure>,
    status: &mut MachineRequestStatus,
) {
    let generation = observed.object.metadata.generation;
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(
            &mut status.conditions,
            condition(type_, holds, reason, message, observed.now, generation),
        );
    };
    if observed.requested() || matches!(step, Step::Do(actions) if actions.contains(&Action::Ensure)) {
        set(REQUESTED, true, "InfrastructureAsked", "the machine may exist from now on".to_owned());
    }
    let running = status.phase == Some(MachinePhase::Running) && failure.is_none();
    let address = status.ip_address.clone().unwrap_or_default();
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(
            &mut status.conditions,
            condition(type_, holds, reason, message, observed.now, generation),
        );
    };
    let doing = doing(observed, step);
    match (running, failure) {
        (true, _) => set(CONDITION_READY, true, "Running", format!("the machine is up at {address}")),
        (false, Some(failure)) => set(CONDITION_READY, false, &failure.reason, with_remedy(failure)),
        (false, None) => set(CONDITION_READY, false, doing.0, doing.1.clone()),
    }
    let busy = !running && !matches!(step, Step::Stop(_)) && doing.0 != "Paused";
    set(CONDITION_PROGRESSING, busy, doing.0, doing.1);
    // An obstacle stands until all is well, also while the next try is under way.
    match (failure.or(observed.memory.trouble.as_ref()), &observed.memory.last) {
        (Some(failure), _) if failure.class != Class::Retryable || observed.memory.failures > 3 => {
            set(CONDITION_DEGRADED, true, &failure.reason, with_remedy(failure));
        }
        (_, Some(Outcome::Found(facts))) if !facts.running => {
            let message = "the machine is switched off; it is switched on again".to_owned();
            set(CONDITION_DEGRADED, true, "VMStopped", message);
        }
        (None, Some(Outcome::Missing)) => {
            let message = "the machine is not found; it is looked for again".to_owned();
            set(CONDITION_DEGRADED, true, "VMNotFound", message);
        }
        _ => set(CONDITION_DEGRADED, false, "AsExpected", String::new()),
    }
}

/// One word and one sentence for what goes on.
fn doing(observed: &Observed, step: &Step<Action>) -> (&'static str, String) {
    if observed.deleting() {
        return ("Deleting", waits_for(step).unwrap_or_else(|| "the machine is being removed".to_owned()));
    }
    match step {
        Step::Wait(wait) if wait.on.iter().any(|awaited| awaited.reason == "Paused") => {
            ("Paused", "the ClusterBootstrap is paused".to_owned())
        }
        Step::Wait(_) if observed.memory.last == Some(Outcome::Missing) => {
            ("VMNotFound", waits_for(step).unwrap_or_default())
        }
        Step::Wait(_) => ("Creating", waits_for(step).unwrap_or_default()),
        Step::Stop(failure) => ("Failed", failure.message.clone()),
        Step::Done => ("Running", String::new()),
        Step::Do(_) => match &observed.memory.last {
            _ if observed.was_up() && !matches!(observed.memory.last, Some(Outcome::Working { .. })) => {
                ("Running", String::new())
            }
            Some(Outcome::Working { waiting_for, .. }) => ("Creating", format!("waiting for {waiting_for}")),
            _ => ("Creating", String::new()),
        },
    }
}

fn waits_for(step: &Step<Action>) -> Option<String> {
    let Step::Wait(wait) = step else { return None };
    wait.on.first().map(|awaited| format!("waiting for {}", awaited.what))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
