//! Reads a MachineRequest and all that it refers to. Decides nothing.

use crate::error::ReconcileError;
use crate::external::{self, Memory};
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Deadlines, Failure, MachineFacts, Owner};
use crate::{owner, provider};
use butler_api::MachineRequest;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;

/// What is known of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    pub(crate) object: MachineRequest,
    pub(crate) owner: Owner,
    /// Its ClusterBootstrap is paused.
    pub(crate) paused: bool,
    /// Its ClusterBootstrap is there.
    pub(crate) kept: bool,
    /// What keeps the infrastructure from being asked at all.
    pub(crate) unusable: Option<Failure>,
    pub(crate) memory: Memory<MachineFacts>,
    /// What was asked for may not be seen for a while.
    pub(crate) lists_lag: bool,
    pub(crate) deadlines: Deadlines,
}

/// `None` when the object is gone.
pub(crate) async fn observe(
    shared: &Shared,
    api: &Api<MachineRequest>,
    name: &str,
) -> Result<Option<Observed>, ReconcileError> {
    let Some(object) = object::get(api, name).await? else { return Ok(None) };
    let namespace = object.namespace().unwrap_or_default();
    let provided = provider::look(&shared.context.client, &object.spec.provider_ref, &namespace).await?;
    let (unusable, version) = shared.unusable(&provided, |_, _| None);
    let inputs = format!("{} {version}", object.metadata.generation.unwrap_or_default());
    let deleting = object.metadata.deletion_timestamp.is_some();
    let now = (shared.context.clock)();
    let memory = shared.machines.change(&Key::of(&object), |memory| memory.look(now, inputs, deleting));
    let whose = owner::of(shared, &object, None).await?;
    Ok(Some(Observed {
        now,
        owner: whose.owner,
        paused: whose.paused,
        kept: whose.kept,
        unusable,
        memory,
        lists_lag: provider::lists_lag(&provided),
        deadlines: shared.context.deadlines,
        object,
    }))
}

impl Observed {
    pub(crate) fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|known| known == butler_api::names::FINALIZER_MACHINE_REQUEST)
    }

    /// Whether a load balancer may still send to it. Whoever put that down takes it off when it is drained; when that one is
    /// gone, nobody would.
    pub(crate) fn held(&self) -> bool {
        let hold = butler_api::names::FINALIZER_LOAD_BALANCER_TARGET;
        self.kept && self.object.finalizers().iter().any(|known| known == hold)
    }

    /// Whether the infrastructure may have been asked for the machine: written down before the first time.
    pub(crate) fn requested(&self) -> bool {
        external::requested(self.object.status.as_ref().map(|status| &status.conditions))
    }

    /// Whether the machine was up with an address once.
    pub(crate) fn was_up(&self) -> bool {
        self.object.status.as_ref().is_some_and(|status| {
            status.provider_id.is_some() && status.ip_address.as_ref().is_some_and(|ip| !ip.is_empty())
        })
    }

    /// Until when the machine's absence is not believed.
    pub(crate) fn unsettled(&self, now: Timestamp) -> Option<Timestamp> {
        // One that was up was seen, and no request has a second machine.
        self.memory.unsettled(now, self.lists_lag && !self.was_up(), self.deadlines.settling)
    }

    /// The operation that is under way.
    pub(crate) fn operation(&self) -> Option<String> {
        self.memory.operation(self.object.status.as_ref().and_then(|status| status.operation.as_ref()))
    }
}
