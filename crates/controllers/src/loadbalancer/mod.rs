//! LoadBalancerRequest: the load balancer of a cloud in front of a control plane.
//!
//! ```text
//!            finalizer        Requested=True (written before the infrastructure is first asked)
//!   (new) ------------> (kept) ------------------> ensure, ensure, ... --Ready--> endpoint told --+
//!                                                     ^    ^                          |           | ensure, now and then
//!                                                     |    +-- a part or a target ----+<----------+
//!                            another spec, at once ---+        is not as it should be
//!
//!   deletion: delete, delete, ... until every part is gone --> finalizer off
//! ```
//!
//! Every call is at most one change outside. There is no end to `ensure`: a target that comes or goes, a listener that
//! somebody removed, a machine that was replaced are all the same to it. What was said is remembered, and reported before the
//! next call. An obstacle, whatever it is, never lets a finalizer go.

mod act;
mod observe;
mod plan;
mod status;
mod targets;

pub(crate) use status::DRAINING;

use crate::error::ReconcileError;
use crate::object::{Key, Written};
use crate::report;
use crate::runtime::{ROUNDS, Shared, at_the_latest};
use crate::step::Step;
use butler_api::{
    CONDITION_DEGRADED, CONDITION_PROVISIONED, CONDITION_TARGETS_SYNCED, Condition, LoadBalancerRequest,
    LoadBalancerRequestStatus, find_condition,
};
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use observe::Observed;
use std::sync::Arc;
use std::time::Duration;

/// Whether a status tells of a load balancer that was all there once. Its endpoint may be told long before.
pub(crate) fn was_ready(status: &LoadBalancerRequestStatus) -> bool {
    let told = find_condition(&status.conditions, status::ESTABLISHED);
    // Who does not say so was told by one who knew no endpoint before all was there.
    status.endpoint.as_ref().is_some_and(|host| !host.is_empty()) && told.is_none_or(Condition::is_true)
}

/// One pass: look, decide, report, act, until there is nothing to do now.
pub(crate) async fn reconcile(
    object: Arc<LoadBalancerRequest>,
    shared: Arc<Shared>,
) -> Result<Action, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<LoadBalancerRequest> = Api::namespaced(shared.context.client.clone(), &namespace);
    for _ in 0..ROUNDS {
        let Some(observed) = observe::observe(&shared, &api, &object.name_any()).await? else {
            shared.balancers.forget_name(&namespace, &object.name_any());
            return Ok(Action::await_change());
        };
        let step = plan::plan(&observed);
        if write(&shared, &api, &observed, &step).await? == Written::Stale {
            continue;
        }
        shared.note_stop(&shared.balancers, &observed.object, &step);
        match step {
            Step::Do(actions) => act::act(&shared, &api, &observed, &actions).await?,
            step => {
                shared.went_well(&Key::of(&observed.object));
                return Ok(at_the_latest(observed.now, due(&observed, &step), observed.deadlines.calm()));
            }
        }
    }
    Ok(Action::requeue(Duration::from_millis(1)))
}

/// When to look again: at the next call, and at the deadline of a wait, which is told when it has passed.
fn due(observed: &Observed, step: &Step<crate::external::Action>) -> Option<jiff::Timestamp> {
    let deadline = match step {
        Step::Wait(wait) => Some(wait.deadline).filter(|deadline| *deadline > observed.now),
        _ => None,
    };
    observed.memory.next.into_iter().chain(deadline).min()
}

/// Reports, unless there is nothing new to say.
async fn write(
    shared: &Shared,
    api: &Api<LoadBalancerRequest>,
    observed: &Observed,
    step: &Step<crate::external::Action>,
) -> Result<Written, ReconcileError> {
    let old = observed.object.status.clone().unwrap_or_default();
    let new = status::status(observed, step);
    if (LoadBalancerRequestStatus { last_updated: old.last_updated.clone(), ..new.clone() }) == old {
        return Ok(Written::Yes);
    }
    let milestones = [CONDITION_PROVISIONED, CONDITION_TARGETS_SYNCED];
    let troubles = [CONDITION_DEGRADED, status::FOREIGN_TARGETS];
    let mut notes = report::notes(&old.conditions, &new.conditions, &milestones, &troubles);
    notes.extend(report::warning(&old.conditions, &new.conditions, status::SETTINGS_APPLIED));
    let object = LoadBalancerRequest { status: Some(new), ..observed.object.clone() };
    shared.report(api, &object, &notes, step).await
}
