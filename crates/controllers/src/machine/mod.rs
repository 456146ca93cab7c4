//! MachineRequest: one machine on an infrastructure.
//!
//! ```text
//!            finalizer        Requested=True (written before the infrastructure is first asked)
//!   (new) ------------> (kept) ------------------> ensure, ensure, ... --Ready--> Running --+
//!                                                     ^                             |       | find, now and then
//!                                                     +------- switched off --------+<------+
//!                                                                                   | not found, three looks in a row
//!   deletion: delete, delete, ... until it is gone --> finalizer off                +----> Failed (VMDeleted)
//! ```
//!
//! Every call is at most one change outside. What it said is remembered, and reported before the next one.

mod act;
mod observe;
mod plan;
mod status;

pub(crate) use plan::{VANISHED, pause_after_failure};

use crate::error::ReconcileError;
use crate::object::{Key, Written};
use crate::report;
use crate::runtime::{ROUNDS, Shared, at_the_latest};
use crate::step::Step;
use butler_api::MachineRequest;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use observe::Observed;
use std::sync::Arc;
use std::time::Duration;

/// One pass: look, decide, report, act, until there is nothing to do now.
pub(crate) async fn reconcile(
    object: Arc<MachineRequest>,
    shared: Arc<Shared>,
) -> Result<Action, ReconcileError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<MachineRequest> = Api::namespaced(shared.context.client.clone(), &namespace);
    for _ in 0..ROUNDS {
        let Some(observed) = observe::observe(&shared, &api, &object.name_any()).await? else {
            shared.machines.forget_name(&namespace, &object.name_any());
            return Ok(Action::await_change());
        };
        let step = plan::plan(&observed);
        if write(&shared, &api, &observed, &step).await? == Written::Stale {
            continue;
        }
        shared.note_stop(&shared.machines, &observed.object, &step);
        match step {
            Step::Do(actions) => act::act(&shared, &api, &observed, &actions).await?,
            _ => {
                shared.went_well(&Key::of(&observed.object));
                return Ok(at_the_latest(observed.now, observed.memory.next, observed.deadlines.calm()));
            }
        }
    }
    Ok(Action::requeue(Duration::from_millis(1)))
}

/// Reports, unless there is nothing new to say.
async fn write(
    shared: &Shared,
    api: &Api<MachineRequest>,
    observed: &Observed,
    step: &Step<crate::external::Action>,
) -> Result<Written, ReconcileError> {
    let old = observed.object.status.clone().unwrap_or_default();
    let new = status::status(observed, step);
    if (butler_api::MachineRequestStatus { last_updated: old.last_updated.clone(), ..new.clone() }) == old {
        return Ok(Written::Yes);
    }
    let notes = report::notes(&old.conditions, &new.conditions, &["Ready"], &["Degraded"]);
    let object = MachineRequest { status: Some(new), ..observed.object.clone() };
    shared.report(api, &object, &notes, step).await
}
