//! Reads a MachineRequest and all that it refers to. Decides nothing.

use crate::error::ReconcileError;
use crate::object::{self, Key};
use crate::provider;
use crate::runtime::Shared;
use crate::{Deadlines, Failure, MachineFacts, Owner};
use butler_api::names::LABEL_CLUSTER;
use butler_api::{ClusterBootstrap, MachineRequest};
use jiff::Timestamp;
use kube::api::Api;
use kube::{Resource, ResourceExt};

/// What is known of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    pub(crate) object: MachineRequest,
    pub(crate) owner: Owner,
    /// Its ClusterBootstrap is paused.
    pub(crate) paused: bool,
    /// What keeps the infrastructure from being asked at all.
    pub(crate) unusable: Option<Failure>,
    pub(crate) memory: Memory,
    pub(crate) deadlines: Deadlines,
}

/// What calls have said, until the process ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Memory {
    /// What the last call said.
    pub(crate) last: Option<Outcome>,
    /// No call before this moment.
    pub(crate) next: Option<Timestamp>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The last of them, until all is well.
    pub(crate) trouble: Option<Failure>,
    /// Looks in a row that did not find it.
    pub(crate) missing: u32,
    /// The last pass of this life ended with a failure that stops the plan.
    pub(crate) stopped: bool,
    /// Spec, ProviderConfig and credentials by which the last call was made.
    pub(crate) inputs: String,
    /// The deletion has been seen.
    pub(crate) deleting: bool,
}

/// What a call said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It is on its way.
    Working { operation: Option<String>, waiting_for: String, known: Option<MachineFacts> },
    /// It is up and has an address.
    Ready(MachineFacts),
    /// A look found it so.
    Found(MachineFacts),
    /// A look did not find it.
    Missing,
    /// It is being removed.
    Leaving { operation: Option<String>, waiting_for: String },
    /// It is not there any more.
    Gone,
    /// The call failed.
    Failed(Failure),
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
    let (unusable, version) = match &provided {
        Ok(provided) => {
            (shared.connections.connect(&shared.context, provided).err(), provided.version.clone())
        }
        Err(failure) => (Some(failure.clone()), failure.message.clone()),
    };
    let inputs = format!("{} {version}", object.metadata.generation.unwrap_or_default());
    let deleting = object.metadata.deletion_timestamp.is_some();
    let memory = shared.machines.change(&Key::of(&object), |memory| {
        // A pause after a failure ends when what failed has changed, or when something else is wanted now.
        if memory.inputs != inputs || memory.deleting != deleting {
            (memory.next, memory.failures, memory.trouble) = (None, 0, None);
            (memory.inputs, memory.deleting) = (inputs, deleting);
        }
        memory.clone()
    });
    let (owner, paused) = owner(shared, &object, &namespace).await?;
    Ok(Some(Observed {
        now: (shared.context.clock)(),
        owner,
        paused,
        unusable,
        memory,
        deadlines: shared.context.deadlines,
        object,
    }))
}

/// Whose the machine is, and whether that one is paused.
async fn owner(
    shared: &Shared,
    object: &MachineRequest,
    namespace: &str,
) -> Result<(Owner, bool), ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    let kind = ClusterBootstrap::kind(&());
    let cluster = object.labels().get(LABEL_CLUSTER).cloned();
    let Some(reference) = object.owner_references().iter().find(|owner| owner.kind == kind) else {
        // One that belongs to no cluster is its own.
        let cluster = cluster.unwrap_or_else(|| object.name_any());
        return Ok((Owner { cluster, cluster_uid: uid.clone(), object_uid: uid }, false));
    };
    let api: Api<ClusterBootstrap> = Api::namespaced(shared.context.client.clone(), namespace);
    let paused = object::get(&api, &reference.name).await?.is_some_and(|cb| {
        cb.uid().as_ref() == Some(&reference.uid)
            && cb.spec.paused
            && cb.metadata.deletion_timestamp.is_none()
    });
    let cluster = cluster.unwrap_or_else(|| reference.name.clone());
    Ok((Owner { cluster, cluster_uid: reference.uid.clone(), object_uid: uid }, paused))
}

impl Observed {
    pub(crate) fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|known| known == butler_api::names::FINALIZER_MACHINE_REQUEST)
    }

    /// Whether the infrastructure may have been asked for the machine: written down before the first time.
    pub(crate) fn requested(&self) -> bool {
        let conditions = self.object.status.as_ref().map(|status| status.conditions.as_slice());
        butler_api::find_condition(conditions.unwrap_or_default(), super::plan::REQUESTED)
            .is_some_and(butler_api::Condition::is_true)
    }

    /// Whether the machine was up with an address once.
    pub(crate) fn was_up(&self) -> bool {
        self.object.status.as_ref().is_some_and(|status| {
            status.provider_id.is_some() && status.ip_address.as_ref().is_some_and(|ip| !ip.is_empty())
        })
    }

    /// The operation that is under way.
    pub(crate) fn operation(&self) -> Option<String> {
        match &self.memory.last {
            Some(Outcome::Working { operation, .. } | Outcome::Leaving { operation, .. }) => {
                operation.clone()
            }
            Some(Outcome::Failed(_)) | None => self.object.status.as_ref()?.operation.clone(),
            Some(_) => None,
        }
    }
}
