//! Does what the plan says: one call to the outside each, and what it said is remembered.

use super::observe::{Observed, Outcome};
use super::plan::{self, Action};
use crate::error::ReconcileError;
use crate::object::{self, Key};
use crate::provider;
use crate::runtime::Shared;
use crate::{Class, Failure, MachineTarget, MachineWanted, Operation, Progress, StaticAddress};
use butler_api::names::FINALIZER_MACHINE_REQUEST;
use butler_api::{MachineRequest, StaticAddressSpec};
use butler_drivers::Infrastructure;
use kube::ResourceExt;
use kube::api::Api;
use std::time::Duration;

pub(crate) async fn act(
    shared: &Shared,
    api: &Api<MachineRequest>,
    observed: &Observed,
    actions: &[Action],
) -> Result<(), ReconcileError> {
    for action in actions {
        match action {
            Action::AddFinalizer => {
                object::set_finalizer(api, &observed.object, FINALIZER_MACHINE_REQUEST, true).await?;
            }
            Action::RemoveFinalizer => {
                object::set_finalizer(api, &observed.object, FINALIZER_MACHINE_REQUEST, false).await?;
            }
            Action::Ensure | Action::Look | Action::Delete => {
                let (outcome, recheck) = call(shared, observed, *action).await?;
                remember(shared, observed, outcome, recheck);
            }
        }
    }
    Ok(())
}

fn remember(shared: &Shared, observed: &Observed, outcome: Outcome, recheck: Option<Duration>) {
    let now = (shared.context.clock)();
    shared.machines.change(&Key::of(&observed.object), |memory| {
        match &outcome {
            Outcome::Failed(failure) => {
                memory.failures = memory.failures.saturating_add(1);
                memory.trouble = Some(failure.clone());
            }
            // What has only begun again may well fail again.
            Outcome::Working { .. } | Outcome::Leaving { .. } | Outcome::Missing => {}
            _ => (memory.failures, memory.trouble) = (0, None),
        }
        memory.missing = if outcome == Outcome::Missing { memory.missing.saturating_add(1) } else { 0 };
        let pause =
            plan::pause_after(&outcome, recheck, memory.failures, memory.missing, &observed.deadlines);
        memory.next = now.checked_add(pause).ok();
        memory.last = Some(outcome);
    });
}

async fn call(
    shared: &Shared,
    observed: &Observed,
    action: Action,
) -> Result<(Outcome, Option<Duration>), ReconcileError> {
    let infrastructure = match connect(shared, observed).await? {
        Ok(infrastructure) => infrastructure,
        Err(failure) => return Ok((Outcome::Failed(failure), None)),
    };
    let machines = &infrastructure.machines;
    let operation = observed.operation().map(Operation);
    let outcome = match action {
        Action::Look => match machines.find(&target(observed)).await {
            Ok(Some(facts)) => (Outcome::Found(facts), None),
            Ok(None) => (Outcome::Missing, None),
            Err(failure) => (Outcome::Failed(failure), None),
        },
        Action::Delete => match machines.delete(&target(observed), operation.as_ref()).await {
            Ok(Progress::Ready(())) => (Outcome::Gone, None),
            Ok(Progress::InProgress { operation, waiting_for, recheck, .. }) => {
                (Outcome::Leaving { operation: operation.map(|id| id.0), waiting_for }, Some(recheck))
            }
            Err(failure) => (Outcome::Failed(failure), None),
        },
        _ => ensure(observed, &infrastructure, operation.as_ref()).await,
    };
    Ok(outcome)
}

async fn ensure(
    observed: &Observed,
    infrastructure: &Infrastructure,
    operation: Option<&Operation>,
) -> (Outcome, Option<Duration>) {
    let wanted = match wanted(observed) {
        Ok(wanted) => wanted,
        Err(failure) => return (Outcome::Failed(failure), None),
    };
    match infrastructure.machines.ensure(&wanted, operation).await {
        Ok(Progress::Ready(facts)) => (Outcome::Ready(facts), None),
        Ok(Progress::InProgress { operation, waiting_for, recheck, known }) => {
            let operation = operation.map(|id| id.0);
            (Outcome::Working { operation, waiting_for, known }, Some(recheck))
        }
        Err(failure) => (Outcome::Failed(failure), None),
    }
}

async fn connect(
    shared: &Shared,
    observed: &Observed,
) -> Result<Result<Infrastructure, Failure>, ReconcileError> {
    let namespace = observed.object.namespace().unwrap_or_default();
    let reference = &observed.object.spec.provider_ref;
    let provided = provider::look(&shared.context.client, reference, &namespace).await?;
    Ok(provided.and_then(|provided| shared.connections.connect(&shared.context, &provided)))
}

fn target(observed: &Observed) -> MachineTarget {
    MachineTarget {
        owner: observed.owner.clone(),
        name: observed.object.spec.machine_name.clone(),
        provider_id: observed.object.status.as_ref().and_then(|status| status.provider_id.clone()),
    }
}

fn wanted(observed: &Observed) -> Result<MachineWanted, Failure> {
    let spec = &observed.object.spec;
    Ok(MachineWanted {
        owner: observed.owner.clone(),
        name: spec.machine_name.clone(),
        role: spec.role,
        cpu: unsigned("cpu", spec.cpu)?,
        memory_mb: unsigned("memoryMB", spec.memory_mb)?,
        disk_gb: unsigned("diskGB", spec.disk_gb)?,
        extra_disks: spec.extra_disks.clone(),
        image: spec.image.clone().filter(|image| !image.is_empty()),
        user_data: spec.user_data.clone().filter(|data| !data.is_empty()),
        static_address: spec.static_address.as_ref().map(address).transpose()?,
        labels: spec.labels.clone(),
    })
}

fn unsigned(field: &str, value: i32) -> Result<u32, Failure> {
    u32::try_from(value).map_err(|_| invalid(format!("spec.{field} is {value}, which is below zero")))
}

fn address(spec: &StaticAddressSpec) -> Result<StaticAddress, Failure> {
    let (address, network) = spec.parse().map_err(|error| invalid(error.to_string()))?;
    let parse = |text: &String| text.parse().map_err(|_| invalid(format!("{text:?} is not an IP address")));
    Ok(StaticAddress {
        address,
        bits: network.prefix(),
        gateway: spec.gateway.as_ref().map(parse).transpose()?,
        nameservers: spec.nameservers.iter().map(parse).collect::<Result<_, _>>()?,
    })
}

fn invalid(message: String) -> Failure {
    Failure::new(Class::InvalidConfig, "InvalidConfiguration", message, "change the MachineRequest")
}
