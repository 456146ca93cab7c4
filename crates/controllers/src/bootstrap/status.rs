//! What is told about a bootstrap, and the facts that guard its acts: written before the acts of the step. Pure.

use super::deletion;
use super::memory::Task;
use super::milestone::Milestone;
use super::observe::{ImageSight, Observed};
use super::plan::{Action, refused};
use super::view::phase;
use crate::Failure;
use crate::addons::AddonState;
use crate::report::{bounded, condition, whole_second, with_remedy};
use crate::step::Step;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use butler_api::{
    CONDITION_DEGRADED, CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_READY,
    ClusterBootstrapMachineStatus, ClusterBootstrapPhase as Phase, ClusterBootstrapStatus, Condition,
    find_condition, set_condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::borrow::Cow;

/// Condition: management was moved to the new cluster.
const PIVOTED: &str = "Pivoted";
/// Condition: what the spec asks for is what there is, as far as it can be.
pub(crate) const SPEC_APPLIED: &str = "SpecApplied";
/// Condition: who took a machine config could be told by its certificate.
pub(crate) const PEERS_VERIFIED: &str = "TalosPeersVerified";
/// Condition: the load balancer in front of the control plane has an endpoint and all its targets. Only in a cloud.
pub(crate) const BALANCER_READY: &str = "LoadBalancerReady";
/// Condition: no Service has a load balancer of its own any more. Only while the cluster goes, and once it was asked.
pub(crate) const SERVICES_WITHDRAWN: &str = "ServicesWithdrawn";
/// Condition: all nodes are ready.
pub(crate) const NODES_READY: &str = "NodesReady";

/// The status as it is to be before the step's actions are done.
pub(crate) fn status(observed: &Observed, step: &Step<Action>) -> ClusterBootstrapStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    let failure = step.failure(observed.now).or_else(|| standing(observed, step));
    facts(observed, step, &mut status);
    status.phase = Some(told_phase(observed, failure.as_ref()));
    status.failure_reason = failure.as_ref().map(|failure| failure.reason.clone());
    status.failure_message = failure.as_ref().map(|failure| bounded(&failure.message));
    status.failure_remedy = failure.as_ref().map(|failure| bounded(&failure.remedy));
    conditions(observed, step, failure.as_ref(), &mut status);
    status.observed_generation = observed.object.metadata.generation;
    status.last_updated = Some(Time(whole_second(observed.now)));
    status
}

/// A failure that stands while what failed is tried again, and one whose deadline has passed while more is being done.
fn standing(observed: &Observed, step: &Step<Action>) -> Option<Failure> {
    if observed.deleting() || observed.object.spec.paused || matches!(step, Step::Wait(_)) {
        return None;
    }
    if let Some(failure) = observed.standing() {
        return Some(failure.clone());
    }
    // Past a deadline, a new try does not make the failure go away; only the milestone does.
    let old = observed.object.status.as_ref()?;
    let late = matches!(step, Step::Do(_)) && observed.now >= observed.deadline();
    let (reason, message) = (old.failure_reason.clone()?, old.failure_message.clone()?);
    let remedy = old.failure_remedy.clone().unwrap_or_default();
    late.then(|| Failure::new(crate::Class::Retryable, reason, message, remedy))
}

fn facts(observed: &Observed, step: &Step<Action>, status: &mut ClusterBootstrapStatus) {
    if let Step::Do(actions) = step
        && actions.contains(&Action::Start(Task::Bootstrap))
        && status.bootstrap_machine.is_none()
    {
        // Written before etcd is made there, and never changed: no second machine is ever asked.
        status.bootstrap_machine = observed.first();
    }
    if let Some(endpoint) = &observed.endpoint {
        status.control_plane_endpoint = Some(endpoint.clone());
    }
    let credentials = observed.object.credentials_in_status();
    let encoded = |text: &butler_talos::Secret| STANDARD.encode(text.expose());
    let etcd = observed.etcd_made();
    status.kubeconfig = observed.kubeconfig.as_ref().filter(|_| credentials && etcd).map(encoded);
    let talosconfig = observed.stored.as_ref().and_then(|stored| stored.talosconfig.as_ref());
    status.talosconfig = talosconfig.filter(|_| credentials).map(encoded);
    status.machines = machines(observed, status);
    if let Some(survey) = &observed.survey {
        let planned = observed.planned();
        status.addons_installed = planned
            .map(|addon| (addon.name.to_owned(), survey.addons.get(addon.name) == Some(&AddonState::Ready)))
            .collect();
    }
    status.console_url = console_url(observed).filter(|_| {
        status.addons_installed.iter().any(|(name, installed)| name.ends_with("console") && *installed)
    });
}

fn machines(observed: &Observed, old: &ClusterBootstrapStatus) -> Vec<ClusterBootstrapMachineStatus> {
    let mut machines: Vec<ClusterBootstrapMachineStatus> = observed
        .wanted()
        .iter()
        .map(|node| {
            let was = old.machines.iter().find(|machine| machine.name == node.name);
            ClusterBootstrapMachineStatus {
                name: node.name.clone(),
                role: node.role,
                phase: observed.machines.get(&node.name).and_then(phase),
                ip_address: observed.address(&node.name),
                talos_configured: observed.configured(&node.name),
                // What was not looked at in this life is as it was.
                ready: match &observed.survey {
                    Some(_) => observed.node_ready(&node.name),
                    None => was.is_some_and(|machine| machine.ready) && !observed.deleting(),
                },
            }
        })
        .collect();
    if observed.deleting() {
        machines.retain(|machine| observed.machines.contains_key(&machine.name));
    }
    machines
}

fn console_url(observed: &Observed) -> Option<String> {
    let console = &observed.object.spec.addons.console;
    let ingress = console.ingress.as_ref().filter(|ingress| console.enabled && ingress.enabled)?;
    let scheme = if ingress.tls { "https" } else { "http" };
    let host = ingress.host.clone().filter(|host| !host.is_empty());
    let host = host.unwrap_or_else(|| format!("butler.{}.local", observed.object.spec.cluster.name));
    Some(format!("{scheme}://{host}"))
}

fn told_phase(observed: &Observed, failure: Option<&Failure>) -> Phase {
    if failure.is_some() {
        return Phase::Failed;
    }
    if !observed.has_finalizer() {
        return Phase::Pending;
    }
    observed.milestone().map_or(Phase::Ready, Milestone::phase)
}

fn conditions(
    observed: &Observed,
    step: &Step<Action>,
    failure: Option<&Failure>,
    status: &mut ClusterBootstrapStatus,
) {
    let generation = observed.object.metadata.generation;
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(
            &mut status.conditions,
            condition(type_, holds, reason, message, observed.now, generation),
        );
    };
    if !observed.deleting() {
        progress(observed, step, &mut set);
    } else if observed.withdrawn {
        set(SERVICES_WITHDRAWN, true, "Withdrawn", String::new());
    } else if let Some(trouble) = observed.troubles.get(&Task::Withdraw) {
        // A later life can't ask a cluster that has gone by then.
        set(SERVICES_WITHDRAWN, false, &trouble.failure.reason, with_remedy(&trouble.failure));
    }
    let ready = observed.milestone().is_none() && failure.is_none() && !observed.deleting();
    if let Some(failure) = failure {
        set(CONDITION_READY, false, &failure.reason, with_remedy(failure));
        set(CONDITION_PROGRESSING, false, &failure.reason, with_remedy(failure));
        set(CONDITION_FAILED, true, &failure.reason, with_remedy(failure));
    } else {
        let (reason, text) = match ready {
            true => ("BootstrapComplete".into(), "the cluster is up".to_owned()),
            false => doing(observed, step),
        };
        set(CONDITION_READY, ready, &reason, text.clone());
        let busy = !ready && (observed.deleting() || !observed.object.spec.paused);
        set(CONDITION_PROGRESSING, busy, &reason, with_deadline(observed, step, text));
        set(CONDITION_FAILED, false, "NoFailure", String::new());
    }
    match degraded(observed) {
        Some((reason, message)) => set(CONDITION_DEGRADED, true, &reason, message),
        None => set(CONDITION_DEGRADED, false, "AsExpected", String::new()),
    }
}

/// The milestones, and what is so beside them.
fn progress(observed: &Observed, step: &Step<Action>, set: &mut impl FnMut(&str, bool, &str, String)) {
    for milestone in Milestone::ALL {
        if let Some(holds) = observed.reached(milestone) {
            let (reason, message) = words(observed, step, milestone, holds);
            set(milestone.condition(), holds, reason, message);
        }
    }
    if observed.balancer.needed {
        let (reason, message) = match (observed.balancer.endpoint(), observed.balancer.complete()) {
            (Some(host), _) if !observed.balancer.ready() => {
                ("BeingMade", format!("the endpoint is going to be {host}"))
            }
            (Some(host), true) => ("TargetsRegistered", format!("the control plane is reached at {host}")),
            (Some(host), false) => {
                ("TargetsMissing", format!("there is an endpoint, {host}, and targets are missing"))
            }
            (None, _) => ("NotYet", String::new()),
        };
        set(BALANCER_READY, reason == "TargetsRegistered", reason, message);
    }
    if let Some(survey) = &observed.survey {
        let ready = |name: &String| survey.nodes.get(name).is_some_and(|sight| sight.ready);
        let missing: Vec<&str> = observed
            .wanted()
            .iter()
            .map(|node| &node.name)
            .filter(|name| !ready(name))
            .map(String::as_str)
            .collect();
        let reason = if missing.is_empty() { "AllReady" } else { "NodesNotReady" };
        set(NODES_READY, missing.is_empty(), reason, missing.join(", "));
    }
    if !observed.unverified.is_empty() {
        let seen: Vec<String> =
            observed.unverified.iter().map(|(machine, print)| format!("{machine} {print}")).collect();
        let message = format!(
            "machines without a config can't prove who they are, and a config holds the cluster's secrets; compare these \
             fingerprints with the machines' consoles where the network is not trusted: {}",
            seen.join(", ")
        );
        set(PEERS_VERIFIED, false, "MaintenanceUnverified", message);
    }
    match refused(observed) {
        Some(what) => {
            let way_out = "put them back, or make the cluster anew";
            let message = format!("these can't be changed on a cluster that is there: {what}; {way_out}");
            set(SPEC_APPLIED, false, "ChangeNotApplied", message);
        }
        None => set(SPEC_APPLIED, true, "AsAsked", String::new()),
    }
    let pivot = "management stays where the bootstrap runs: moving it to the new cluster is not built yet";
    set(PIVOTED, false, "PivotNotBuilt", pivot.to_owned());
}

/// An obstacle that does not go away by itself, or has been there a while: of our own work, or of what was asked for.
fn degraded(observed: &Observed) -> Option<(String, String)> {
    let troubled = observed.troubles.values().find(|trouble| trouble.failures > 3);
    if let Some(trouble) = troubled {
        return Some((trouble.failure.reason.clone(), with_remedy(&trouble.failure)));
    }
    if let Some(left) = deletion::left_behind(observed) {
        return Some(left);
    }
    let of = |name: String, conditions: Option<&Vec<Condition>>| {
        let told = find_condition(conditions?, CONDITION_DEGRADED).filter(|condition| condition.is_true())?;
        Some((told.reason.clone(), format!("{name}: {}", told.message)))
    };
    let machines = observed.machines.values();
    let machine = machines.map(|one| of(one.name_any(), one.status.as_ref().map(|s| &s.conditions)));
    let images = observed.images.iter();
    let image = images.map(|one| of(one.name_any(), one.status.as_ref().map(|s| &s.conditions)));
    let balancers = observed.balancer.own.iter();
    let balancer = balancers.map(|one| of(one.name_any(), one.status.as_ref().map(|s| &s.conditions)));
    machine.chain(image).chain(balancer).flatten().next().or_else(|| moved(observed))
}

/// A load balancer that was made anew has another endpoint than the one that all nodes know.
fn moved(observed: &Observed) -> Option<(String, String)> {
    let now = observed.endpoint_moved()?;
    let was = observed.endpoint.clone().unwrap_or_default();
    let message = format!(
        "the load balancer was made anew and has the endpoint {now}, and the cluster was made with {was}; what to do: lead {was} \
         to {now}, or make the cluster anew"
    );
    Some(("EndpointMoved".to_owned(), message))
}

/// One word and one sentence about a milestone.
fn words(
    observed: &Observed,
    step: &Step<Action>,
    milestone: Milestone,
    holds: bool,
) -> (&'static str, String) {
    if !holds {
        let waits = observed.milestone() == Some(milestone);
        let waiting = if waits { doing(observed, step).1 } else { String::new() };
        return ("NotYet", waiting);
    }
    match milestone {
        Milestone::Image => match &observed.image {
            ImageSight::Skipped(why) => ("ImageSyncSkipped", (*why).to_owned()),
            ImageSight::Ready { reference, .. } => ("ImageReady", format!("machines boot from {reference}")),
            _ => ("NotNeeded", String::new()),
        },
        Milestone::Machines => {
            let endpoint = observed.endpoint.clone().filter(|_| observed.balancer.needed);
            let behind = endpoint.map(|host| format!(", behind the load balancer at {host}"));
            ("MachinesUp", format!("all machines are up and have addresses{}", behind.unwrap_or_default()))
        }
        Milestone::Talos => ("ConfigsApplied", "all machines have taken their configs".to_owned()),
        Milestone::Etcd => {
            ("EtcdHealthy", format!("etcd was made on {}", observed.first().unwrap_or_default()))
        }
        Milestone::Kubernetes => {
            let via = observed.reached.clone().unwrap_or_default();
            ("ApiAnswers", format!("the Kubernetes API answers at {via}"))
        }
        Milestone::Addons => {
            let warnings = match &observed.rendered {
                Some(Ok(rendered)) => rendered.warnings.join("; "),
                _ => String::new(),
            };
            (
                "AddonsReady",
                format!(
                    "all addons and nodes are ready, and etcd votes on every control plane{}",
                    if warnings.is_empty() { String::new() } else { format!("; warnings: {warnings}") }
                ),
            )
        }
    }
}

/// What stands between what is waited for and until when.
const UNTIL: &str = "; until ";

/// Adds when a wait becomes a failure. That moment stays the same for as long as a milestone is worked for, so that it never
/// is a reason to write the status.
fn with_deadline(observed: &Observed, step: &Step<Action>, text: String) -> String {
    let deadline = match step {
        Step::Wait(wait) => wait.deadline,
        Step::Do(_) if !observed.deleting() => observed.deadline(),
        _ => return text,
    };
    if text.is_empty() || deadline == jiff::Timestamp::MAX {
        return text;
    }
    format!("{text}{UNTIL}{}", whole_second(deadline))
}

/// One word and one sentence for what goes on.
fn doing(observed: &Observed, step: &Step<Action>) -> (Cow<'static, str>, String) {
    match step {
        Step::Wait(wait) => {
            let all: Vec<&str> = wait.on.iter().map(|awaited| awaited.what.as_str()).collect();
            let reason = wait.on.first().map_or(Cow::Borrowed("Waiting"), |awaited| awaited.reason.clone());
            let reason = if observed.deleting() { Cow::Borrowed("Deleting") } else { reason };
            (reason, format!("waiting for {}", all.join("; ")))
        }
        Step::Do(_) if observed.deleting() => {
            ("Deleting".into(), "everything of this cluster is being removed".to_owned())
        }
        // What was told about the wait before stays until there is a next one.
        Step::Do(_) => match observed
            .object
            .status
            .as_ref()
            .and_then(|status| butler_api::find_condition(&status.conditions, CONDITION_PROGRESSING))
        {
            Some(old) if old.is_true() => {
                let text = old.message.rsplit_once(UNTIL).map_or(old.message.as_str(), |(text, _)| text);
                ("Working".into(), text.to_owned())
            }
            _ => ("Working".into(), String::new()),
        },
        Step::Done => ("BootstrapComplete".into(), String::new()),
        Step::Stop(failure) => ("Stopped".into(), failure.message.clone()),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
