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
use crate::step::{Step, Wait};
use jiff::Timestamp;
use kube::ResourceExt;
use std::time::Duration;

/// The addon that makes load balancers for Services.
const CONTROLLER: &str = "cloud-controller-manager";
/// A cluster that does not answer for so long is not going to clean up after itself.
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

/// A moment so long after the deletion was asked for.
fn after(observed: &Observed, time: Duration) -> Timestamp {
    let began = observed.object.metadata.deletion_timestamp.as_ref().map_or(observed.now, |time| time.0);
    began.checked_add(time).unwrap_or(Timestamp::MAX)
}

/// Has Services with load balancers of their own removed, while somebody is there who can. `true` while that is waited for.
fn services(observed: &Observed, work: &mut Work) -> bool {
    let installed = observed.object.status.as_ref().is_some_and(|status| {
        status.addons_installed.contains_key(CONTROLLER) && observed.profile.cloud_controller.is_some()
    });
    let whole = !observed.machines.is_empty()
        && observed.machines.values().all(|machine| machine.metadata.deletion_timestamp.is_none());
    if !installed || !whole || observed.withdrawn || observed.kubeconfig.is_none() {
        return false;
    }
    // One that answers gets the time that clouds take; one that does not is given up soon, and what it leaves is told.
    let trouble = observed.troubles.get(&Task::Withdraw);
    let silent = trouble.is_none_or(|trouble| trouble.failure.reason != super::target::SERVICES_LEAVING);
    let patience =
        if silent { SILENCE.min(observed.deadlines.deletion / 3) } else { observed.deadlines.deletion / 2 };
    if observed.now >= after(observed, patience) {
        return false;
    }
    let what = "the load balancers of the cluster's Services to be gone".to_owned();
    let remedy =
        "look at the Services of type LoadBalancer on the cluster, and at its cloud controller manager";
    work.run(observed, Task::Withdraw, super::target::SERVICES_LEAVING, what, remedy);
    true
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
