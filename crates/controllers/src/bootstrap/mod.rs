//! ClusterBootstrap: a whole cluster, from machines through Talos and Kubernetes to its addons.
//!
//! ```text
//!   spec, ProviderConfig, credentials
//!        |
//!        +--> image (ImageSync) --+
//!        +--> secrets (drawn) ----+--> machines (MachineRequests, all at once)
//!        +--> load balancer (LoadBalancerRequest, in a cloud), which gets each machine when that has its address
//!                                          | all have addresses, and the endpoint is known
//!                                          v
//!                      configs (rendered, checked, stored) --> applied to all machines side by side
//!                                                                  | control planes have theirs
//!      status.bootstrapMachine written --> guard --> etcd made on the first control plane, once
//!                                                                  |
//!              kubeconfig (offline) --> any control plane answers -+-> addons (graph) and nodes
//!                                                                        | all ready, endpoint answers
//!                                                                        v
//!                                                                      Ready, looked at from time to time
//!   deletion: Services' load balancers --> load balancer --> machines --> images --> secrets --> finalizer
//! ```
//!
//! A reconcile reads, decides, reports and starts work; the work itself runs in the background and wakes the controller when
//! it ends, so that a pause or a deletion is honoured at once.

mod act;
mod balancer;
mod claim;
mod clock;
mod configs;
mod deletion;
mod memory;
mod milestone;
mod observe;
mod plan;
mod status;
mod talos;
mod target;
mod view;
mod wanted;

pub use balancer::planned_load_balancer;
pub(crate) use memory::{Memory, Task};

use crate::error::ReconcileError;
use crate::object::{self, Key, Written};
use crate::report;
use crate::runtime::{ROUNDS, Shared, until};
use crate::step::Step;
use butler_api::{ClusterBootstrap, ClusterBootstrapStatus};
use kube::api::Api;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use observe::Observed;
use std::sync::Arc;
use std::time::Duration;

/// One pass: look, decide, report, act, until there is nothing to do now.
pub(crate) async fn reconcile(
    object: Arc<ClusterBootstrap>,
    shared: Arc<Shared>,
) -> Result<Action, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ClusterBootstrap> = Api::namespaced(shared.context.client.clone(), &namespace);
    for _ in 0..ROUNDS {
        let Some(observed) = observe::observe(&shared, &api, &object.name_any()).await? else {
            for key in shared.bootstraps.forget_name(&namespace, &object.name_any()) {
                shared.tasks.cancel(&key);
            }
            return Ok(Action::await_change());
        };
        let key = Key::of(&observed.object);
        if observed.deleting() {
            shared.tasks.cancel_but(&key, &Task::Withdraw);
        } else if observed.object.spec.paused {
            shared.tasks.cancel(&key);
        }
        let step = plan::plan(&observed);
        if write(&shared, &api, &observed, &step).await? == Written::Stale {
            continue;
        }
        match step {
            Step::Do(actions) => act::act(&shared, &api, &observed, &actions).await?,
            _ => {
                shared.went_well(&key);
                return Ok(Action::requeue(pause(&observed, &step)));
            }
        }
    }
    Ok(Action::requeue(Duration::from_millis(1)))
}

/// When to look again if nothing is heard until then. A deadline is looked at when it comes.
fn pause(observed: &Observed, step: &Step<plan::Action>) -> Duration {
    let pause = match step {
        Step::Wait(wait) if wait.deadline > observed.now => {
            wait.recheck.min(until(observed.now, wait.deadline).saturating_add(Duration::from_millis(1)))
        }
        Step::Wait(wait) => wait.recheck,
        Step::Stop(_) => {
            let due = observed.troubles.values().map(|trouble| until(observed.now, trouble.until)).min();
            due.unwrap_or(observed.deadlines.slow_retry).min(observed.deadlines.slow_retry)
        }
        Step::Do(_) | Step::Done => observed.deadlines.resync,
    };
    pause.max(Duration::from_millis(5))
}

/// Reports, unless there is nothing new to say.
async fn write(
    shared: &Shared,
    api: &Api<ClusterBootstrap>,
    observed: &Observed,
    step: &Step<plan::Action>,
) -> Result<Written, ReconcileError> {
    let old = observed.object.status.clone().unwrap_or_default();
    let new = status::status(observed, step);
    if (ClusterBootstrapStatus { last_updated: old.last_updated.clone(), ..new.clone() }) == old {
        return Ok(Written::Yes);
    }
    let milestones: Vec<&str> = milestone::Milestone::ALL
        .iter()
        .map(|milestone| milestone.condition())
        .chain([butler_api::CONDITION_READY])
        .collect();
    let troubles = [butler_api::CONDITION_FAILED, butler_api::CONDITION_DEGRADED];
    let mut notes = report::notes(&old.conditions, &new.conditions, &milestones, &troubles);
    notes.extend(report::warning(&old.conditions, &new.conditions, status::PEERS_VERIFIED));
    let object = ClusterBootstrap { status: Some(new), ..observed.object.clone() };
    let written = object::write_status(api, &object).await?;
    if written == Written::Yes {
        shared.tell(observed.object.object_ref(&()), &notes).await;
        let writes = matches!(step, Step::Do(actions) if actions.iter().any(plan::Action::writes_object));
        // The version has changed with it, and the next write needs the new one.
        return Ok(if writes { Written::Stale } else { Written::Yes });
    }
    Ok(written)
}
