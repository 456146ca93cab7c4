//! How a cluster goes: in which order, and what is waited for. Pure.
//!
//! ```text
//!   Services' own load balancers --> load balancer --> machines --> images --> secrets --> finalizer
//! ```
//!
//! What a cloud controller has made for Services can be removed by it alone, so that it goes while there still is a cluster. The
//! load balancer goes before the machines: one that is protected against deletion stops everything before one of them is lost.

use super::balancer;
use super::memory::Task;
use super::observe::Observed;
use super::plan::{Action, RECHECK, Work, obstacle};
use super::status::SERVICES_WITHDRAWN;
use crate::report::with_remedy;
use crate::step::{Step, Wait};
use butler_api::find_condition;
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// The addon that makes load balancers for Services.
const CONTROLLER: &str = "cloud-controller-manager";
/// A cluster that has not answered for so long, and not to one try, is not going to clean up after itself.
const SILENCE: Duration = Duration::from_secs(120);

/// The whole decision about a cluster that is to go.
pub(super) fn plan(observed: &Observed) -> Step<Action> {
    if !observed.has_finalizer() {
        return Step::Done;
    }
    let mut work = Work::default();
    if !services(observed, &mut work) && balancer::removed(observed, &mut work) {
        machines(observed, &mut work);
    }
    if let Some(failure) = work.stop {
        return Step::Stop(failure);
    }
    if !work.actions.is_empty() {
        return Step::Do(work.actions);
    }
    Step::Wait(Wait { on: work.on, deadline: after(observed, observed.deadlines.deletion), recheck: RECHECK })
}

/// A moment so long after the deletion was asked for, or after somebody was there again to go on with it.
fn after(observed: &Observed, time: Duration) -> Timestamp {
    began(observed).checked_add(time).unwrap_or(Timestamp::MAX)
}

fn began(observed: &Observed) -> Timestamp {
    let asked = observed.object.metadata.deletion_timestamp.as_ref().map_or(observed.now, |time| time.0);
    asked.max(observed.since)
}

/// Has Services with load balancers of their own removed, while somebody is there who can. `true` while that is waited for.
fn services(observed: &Observed, work: &mut Work) -> bool {
    if !withdrawing(observed) {
        return false;
    }
    let what = "the load balancers of the cluster's Services to be gone".to_owned();
    let remedy =
        "look at the Services of type LoadBalancer on the cluster, and at its cloud controller manager";
    work.run(observed, Task::Withdraw, super::target::SERVICES_LEAVING, what, remedy);
    true
}

/// Whether the cluster is still expected to remove what was made for its Services. One that answers gets the time that clouds
/// take; one that does not is given up soon, but never before this life of ours has tried.
fn withdrawing(observed: &Observed) -> bool {
    let installed = observed.object.status.as_ref().is_some_and(|status| {
        status.addons_installed.contains_key(CONTROLLER) && observed.profile.cloud_controller.is_some()
    });
    let whole = !observed.machines.is_empty()
        && observed.machines.values().all(|machine| machine.metadata.deletion_timestamp.is_none());
    if !installed || !whole || observed.withdrawn || observed.kubeconfig.is_none() {
        return false;
    }
    let limit = observed.deadlines.deletion;
    let heard = observed.heard.map_or(began(observed), |heard| heard.max(began(observed)));
    let given_up = heard.checked_add(SILENCE.min(limit / 3)).unwrap_or(Timestamp::MAX);
    let silent = observed.troubles.contains_key(&Task::Withdraw) && observed.now >= given_up;
    !silent && observed.now < after(observed, limit / 2)
}

/// What is known of load balancers that nobody is left to remove: of this life or an earlier one. Reason and message.
pub(super) fn left_behind(observed: &Observed) -> Option<(String, String)> {
    if !observed.deleting() || observed.withdrawn || withdrawing(observed) {
        return None;
    }
    if let Some(trouble) = observed.troubles.get(&Task::Withdraw) {
        return Some((trouble.failure.reason.clone(), with_remedy(&trouble.failure)));
    }
    let told = find_condition(&observed.object.status.as_ref()?.conditions, SERVICES_WITHDRAWN)?;
    (!told.is_true()).then(|| (told.reason.clone(), told.message.clone()))
}

fn machines(observed: &Observed, work: &mut Work) {
    for (name, machine) in &observed.machines {
        if machine.metadata.deletion_timestamp.is_none() {
            work.act(Action::DeleteMachine(name.clone()));
            continue;
        }
        let status = machine.status.clone().unwrap_or_default();
        let (reason, why, remedy) = obstacle(&status.conditions, "MachineLeaving");
        let usual = "look at its MachineRequest and at the infrastructure";
        let remedy = if remedy.is_empty() { usual.to_owned() } else { remedy };
        work.wait(reason, format!("the machine {name} to be gone{why}"), remedy);
    }
    if observed.machines.is_empty() {
        images(observed, work);
    }
}

fn images(observed: &Observed, work: &mut Work) {
    for image in &observed.images {
        if image.metadata.deletion_timestamp.is_none() {
            work.act(Action::ReleaseImage(image.name_any()));
            continue;
        }
        let status = image.status.clone().unwrap_or_default();
        let (reason, why, remedy) = obstacle(&status.conditions, "ImageLeaving");
        let usual = "look at its ImageSync and at the infrastructure";
        let remedy = if remedy.is_empty() { usual.to_owned() } else { remedy };
        work.wait(reason, format!("the image {} to be gone{why}", image.name_any()), remedy);
    }
    if observed.images.is_empty() {
        observed.own_secrets.iter().for_each(|name| work.act(Action::DeleteSecret(name.clone())));
        if observed.own_secrets.is_empty() {
            work.act(Action::RemoveFinalizer);
        }
    }
}

#[cfg(test)]
#[path = "deletion_tests.rs"]
mod tests;
