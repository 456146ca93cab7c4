//! What is told about a load balancer. Pure.

use super::observe::Observed;
use super::plan::{LATE, deadline};
use super::targets::{self, Count};
use crate::external::{Action, Outcome, REQUESTED};
use crate::report::{condition, told, whole_second, with_remedy};
use crate::step::Step;
use crate::{Class, Failure, LoadBalancerFacts};
use butler_api::{
    CONDITION_DEGRADED, CONDITION_PROGRESSING, CONDITION_PROVISIONED, CONDITION_READY,
    CONDITION_TARGETS_SYNCED, LoadBalancerListenerStatus, LoadBalancerOutputs, LoadBalancerPhase,
    LoadBalancerRequestStatus, find_condition, set_condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;

/// Condition: somebody else has put targets there. They are left alone.
pub(crate) const FOREIGN_TARGETS: &str = "ForeignTargets";
/// Condition: the infrastructure has every setting that was asked for.
pub(crate) const SETTINGS_APPLIED: &str = "SettingsApplied";
/// Condition: all of it was there once. From then on it is mended; before, it is made.
pub(crate) const ESTABLISHED: &str = "Established";
/// Reason of TargetsSynced: all wanted targets are in, and connections of former ones are still open.
pub(crate) const DRAINING: &str = "TargetsDraining";

/// The status as it is to be before the step's actions are done.
pub(crate) fn status(observed: &Observed, step: &Step<Action>) -> LoadBalancerRequestStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    if let Some(known) = observed.facts() {
        facts(observed, known, &mut status);
    }
    let stopped = matches!(step, Step::Stop(_));
    let failure = failure(observed, step);
    let late = failure.as_ref().is_some_and(|failure| failure.reason == LATE);
    status.phase = Some(phase(observed, &status, stopped || late));
    status.operation = observed.operation();
    (status.failure_reason, status.failure_message) = told(failure.as_ref(), stopped || late);
    conditions(observed, step, failure.as_ref(), &mut status);
    status.observed_generation = observed.object.metadata.generation;
    status.last_updated = Some(Time(whole_second(observed.now)));
    status
}

/// What is known of the load balancer itself.
fn facts(observed: &Observed, facts: &LoadBalancerFacts, status: &mut LoadBalancerRequestStatus) {
    let spec = &observed.object.spec;
    let count = targets::count(facts, spec);
    if !facts.resource_id.is_empty() {
        status.resource_id = Some(facts.resource_id.clone());
    }
    if !facts.endpoint.is_empty() {
        // At once: machines can be told of it while the load balancer is still being made.
        status.endpoint = Some(facts.endpoint.clone());
    } else if facts.endpoint.is_empty() && facts.resource_id.is_empty() {
        // Somebody took all of it away: until it is made anew, there is nothing to connect to.
        (status.endpoint, status.resource_id) = (None, None);
    }
    status.registered_targets = i32::try_from(count.registered.len()).ok();
    status.listeners = listeners(observed, facts);
    status.outputs = (facts.outputs != LoadBalancerOutputs::default()).then(|| facts.outputs.clone());
}

/// One entry for each port that is asked for. A port that is not there has no targets.
fn listeners(observed: &Observed, facts: &LoadBalancerFacts) -> Vec<LoadBalancerListenerStatus> {
    let number = |list: &[String]| {
        let ours: BTreeSet<&String> =
            list.iter().filter(|address| !facts.foreign_targets.contains(address)).collect();
        i32::try_from(ours.len()).unwrap_or(i32::MAX)
    };
    targets::ports(&observed.object.spec)
        .into_iter()
        .map(|(port, _)| {
            let seen = facts.listeners.iter().find(|listener| listener.port == port);
            LoadBalancerListenerStatus {
                port: port.into(),
                registered: seen.map_or(0, |listener| number(&listener.registered)),
                healthy: seen.map_or(0, |listener| number(&listener.healthy)),
                resource_id: seen.map(|listener| listener.resource_id.clone()).filter(|id| !id.is_empty()),
            }
        })
        .collect()
}

/// Whether all parts are there. While it is made, only the driver can tell; afterwards a port that is missing does.
fn all_there(observed: &Observed, facts: &LoadBalancerFacts, count: &Count) -> bool {
    let ready = matches!(observed.memory.last, Some(Outcome::Ready(_)));
    !facts.endpoint.is_empty() && (ready || (observed.was_ready() && count.closed.is_empty()))
}

/// Whether all parts are there as far as anybody knows: what was not looked at in this life is as it was told.
fn provisioned(observed: &Observed) -> bool {
    match (observed.facts(), &observed.memory.last) {
        (Some(facts), _) => all_there(observed, facts, &targets::count(facts, &observed.object.spec)),
        (None, Some(Outcome::Working { .. } | Outcome::Failed(_)) | None) => {
            let told = observed.object.status.as_ref().map(|status| status.conditions.as_slice());
            observed.was_ready()
                && find_condition(told.unwrap_or_default(), CONDITION_PROVISIONED)
                    .is_some_and(butler_api::Condition::is_true)
        }
        (None, Some(_)) => false,
    }
}

/// Whether all of it is there or was there once.
fn established(observed: &Observed, status: &LoadBalancerRequestStatus) -> bool {
    let there =
        |facts: &LoadBalancerFacts| all_there(observed, facts, &targets::count(facts, &observed.object.spec));
    status.endpoint.is_some() && (observed.was_ready() || observed.facts().is_some_and(there))
}

fn phase(observed: &Observed, status: &LoadBalancerRequestStatus, failed: bool) -> LoadBalancerPhase {
    match () {
        () if observed.deleting() => LoadBalancerPhase::Deleting,
        () if failed => LoadBalancerPhase::Failed,
        () if established(observed, status) => LoadBalancerPhase::Ready,
        () if observed.requested() => LoadBalancerPhase::Creating,
        () => LoadBalancerPhase::Pending,
    }
}

/// The obstacle that is in the way now, whether it stops the plan or not.
fn failure(observed: &Observed, step: &Step<Action>) -> Option<Failure> {
    let failed = match &observed.memory.last {
        Some(Outcome::Failed(failure)) => Some(failure.clone()),
        _ => None,
    };
    match step {
        Step::Stop(failure) => return Some(failure.clone()),
        Step::Done => return None,
        Step::Wait(_) | Step::Do(_) => {}
    }
    if observed.now < deadline(observed) || observed.paused {
        return failed;
    }
    let (last, remedy) = match (&failed, &observed.memory.last) {
        (Some(failure), _) => (failure.message.clone(), failure.remedy.clone()),
        (None, Some(Outcome::Working { waiting_for, .. })) => (
            format!("it waits for {waiting_for}"),
            "look at the load balancer on the infrastructure: what it says of itself".to_owned(),
        ),
        _ => return None,
    };
    let limit = observed.deadlines.load_balancer.as_secs() / 60;
    let message = format!("the load balancer is not ready after {limit} minutes, and is watched on: {last}");
    Some(Failure::new(Class::Retryable, LATE, message, remedy))
}

fn conditions(
    observed: &Observed,
    step: &Step<Action>,
    failure: Option<&Failure>,
    status: &mut LoadBalancerRequestStatus,
) {
    let asked = observed.requested() || matches!(step, Step::Do(all) if all.contains(&Action::Ensure));
    let ready = provisioned(observed) && status.phase == Some(LoadBalancerPhase::Ready);
    let endpoint = status.endpoint.clone().unwrap_or_default();
    let established = established(observed, status);
    let known: BTreeSet<String> = status.conditions.iter().map(|known| known.type_.clone()).collect();
    let generation = observed.object.metadata.generation;
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(
            &mut status.conditions,
            condition(type_, holds, reason, message, observed.now, generation),
        );
    };
    if asked {
        set(REQUESTED, true, "InfrastructureAsked", "the load balancer may exist from now on".to_owned());
    }
    if established {
        set(
            ESTABLISHED,
            true,
            "AllPartsMade",
            "all parts were there; what goes missing is mended".to_owned(),
        );
    } else if !endpoint.is_empty() || known.contains(ESTABLISHED) {
        set(ESTABLISHED, false, "PartsMissing", String::new());
    }
    let doing = doing(observed, step);
    match (provisioned(observed), failure) {
        (true, _) => {
            set(CONDITION_PROVISIONED, true, "LBReady", "Load balancer resources created".to_owned());
        }
        (false, Some(failure)) => set(CONDITION_PROVISIONED, false, &failure.reason, with_remedy(failure)),
        (false, None) => set(CONDITION_PROVISIONED, false, doing.0, doing.1.clone()),
    }
    if let Some((holds, reason, message)) = synced(observed) {
        set(CONDITION_TARGETS_SYNCED, holds, reason, message);
    }
    match (ready && failure.is_none(), failure) {
        (true, _) => {
            set(CONDITION_READY, true, "LBReady", format!("the load balancer answers at {endpoint}"))
        }
        (false, Some(failure)) => set(CONDITION_READY, false, &failure.reason, with_remedy(failure)),
        (false, None) => set(CONDITION_READY, false, doing.0, doing.1.clone()),
    }
    let late = failure.is_some_and(|failure| failure.reason == LATE);
    let working = match &observed.memory.last {
        Some(Outcome::Ready(_)) => false,
        Some(_) => true,
        None => !ready,
    };
    let busy = working && !matches!(step, Step::Stop(_)) && !late && doing.0 != "Paused";
    set(CONDITION_PROGRESSING, busy, doing.0, doing.1);
    degraded(observed, failure, &mut set);
    remarks(observed, &known, &mut set);
}

/// Whether the targets are those that are wanted; nothing when that was not looked at in this life.
fn synced(observed: &Observed) -> Option<(bool, &'static str, String)> {
    let spec = &observed.object.spec;
    if observed.deleting() {
        return Some((false, "Deleting", String::new()));
    }
    let facts = observed.facts()?;
    let count = targets::count(facts, spec);
    let names = |all: &BTreeSet<String>| all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let number = count.registered.len();
    let told = match number {
        1 => "1 target registered".to_owned(),
        _ => format!("{number} targets registered"),
    };
    if !count.complete() {
        let missing = (!count.missing.is_empty()).then(|| format!("to be added: {}", names(&count.missing)));
        let surplus =
            (!count.surplus.is_empty()).then(|| format!("to be taken out: {}", names(&count.surplus)));
        let rest: Vec<String> = missing.into_iter().chain(surplus).collect();
        return Some((false, "TargetsChanging", format!("{told}; {}", rest.join("; "))));
    }
    if !count.draining.is_empty() {
        let drained = names(&count.draining);
        return Some((false, DRAINING, format!("{told}; connections may still be open to {drained}")));
    }
    Some(match spec.targets.is_empty() {
        true => (true, "NoTargets", "there are no targets yet".to_owned()),
        false => (true, "AllTargetsRegistered", told),
    })
}

/// An obstacle stands until all is well, also while the next try is under way.
fn degraded(observed: &Observed, failure: Option<&Failure>, set: &mut impl FnMut(&str, bool, &str, String)) {
    match failure.or(observed.memory.trouble.as_ref()) {
        Some(failure)
            if failure.class != Class::Retryable
                || failure.reason == LATE
                || observed.memory.failures > 3 =>
        {
            set(CONDITION_DEGRADED, true, &failure.reason, with_remedy(failure));
        }
        _ if observed.was_ready() && !observed.deleting() && !provisioned(observed) => {
            let message = "parts of the load balancer are not there any more; they are made anew";
            set(CONDITION_DEGRADED, true, "PartsMissing", message.to_owned());
        }
        _ => set(CONDITION_DEGRADED, false, "AsExpected", String::new()),
    }
}

/// What is worth a word and in nobody's way. A remark that was made is taken back when it is not true any more.
fn remarks(observed: &Observed, known: &BTreeSet<String>, set: &mut impl FnMut(&str, bool, &str, String)) {
    let Some(facts) = observed.facts() else { return };
    if !facts.foreign_targets.is_empty() {
        let message = format!(
            "somebody else has put these there; they are left alone and take traffic: {}",
            facts.foreign_targets.join(", ")
        );
        set(FOREIGN_TARGETS, true, "NotOurs", message);
    } else if known.contains(FOREIGN_TARGETS) {
        set(FOREIGN_TARGETS, false, "AllOurs", String::new());
    }
    if !facts.lacking.is_empty() {
        set(SETTINGS_APPLIED, false, "NotAvailable", facts.lacking.join("; "));
    } else if known.contains(SETTINGS_APPLIED) {
        set(SETTINGS_APPLIED, true, "AsAsked", String::new());
    }
}

/// One word and one sentence for what goes on.
fn doing(observed: &Observed, step: &Step<Action>) -> (&'static str, String) {
    let waits = match step {
        Step::Wait(wait) => wait.on.first().map(|awaited| format!("waiting for {}", awaited.what)),
        _ => None,
    };
    if observed.deleting() {
        return ("Deleting", waits.unwrap_or_else(|| "the load balancer is being removed".to_owned()));
    }
    let word = if observed.was_ready() { "Repairing" } else { "Creating" };
    match (step, &observed.memory.last) {
        (Step::Wait(wait), _) if wait.on.iter().any(|awaited| awaited.reason == "Paused") => {
            ("Paused", "the ClusterBootstrap is paused".to_owned())
        }
        (Step::Stop(failure), _) => ("Failed", failure.message.clone()),
        (_, Some(Outcome::Ready(_))) => ("LBReady", String::new()),
        (Step::Wait(_), _) => (word, waits.unwrap_or_default()),
        (_, Some(Outcome::Working { waiting_for, .. })) => (word, format!("waiting for {waiting_for}")),
        (_, None) if observed.was_ready() => ("LBReady", String::new()),
        _ => (word, String::new()),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
