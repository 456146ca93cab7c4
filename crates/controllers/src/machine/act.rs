//! Does what the plan says: one call to the outside each, and what it said is remembered.

use super::observe::Observed;
use super::plan;
use crate::error::ReconcileError;
use crate::external::{Action, Outcome, pause_in_doubt};
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Class, Failure, MachineFacts, MachineTarget, MachineWanted, Operation, StaticAddress};
use butler_api::names::FINALIZER_MACHINE_REQUEST;
use butler_api::{MachineRequest, StaticAddressSpec};
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
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let wanted = *action == Action::AddFinalizer;
                object::set_finalizer(api, &observed.object, FINALIZER_MACHINE_REQUEST, wanted).await?;
            }
            Action::Ensure | Action::Look | Action::Delete => {
                if *action == Action::Ensure {
                    let now = (shared.context.clock)();
                    shared.machines.change(&Key::of(&observed.object), |memory| memory.ask(now));
                }
                let (outcome, recheck) = call(shared, observed, *action).await?;
                remember(shared, observed, outcome, recheck);
            }
        }
    }
    Ok(())
}

fn remember(shared: &Shared, observed: &Observed, outcome: Outcome<MachineFacts>, recheck: Option<Duration>) {
    let now = (shared.context.clock)();
    // What the look was made with, which began then.
    let doubt = observed.unsettled(observed.now);
    shared.machines.change(&Key::of(&observed.object), |memory| {
        memory.in_doubt = doubt.is_some();
        memory.keep(outcome, now, |memory, outcome| match (outcome, doubt) {
            (Outcome::Gone, Some(until)) => pause_in_doubt(now, until),
            _ => plan::pause_after(outcome, recheck, memory.failures, memory.missing, &observed.deadlines),
        });
    });
}

async fn call(
    shared: &Shared,
    observed: &Observed,
    action: Action,
) -> Result<(Outcome<MachineFacts>, Option<Duration>), ReconcileError> {
    let reference = &observed.object.spec.provider_ref;
    let machines = match shared.infrastructure(&observed.object, reference).await? {
        Ok(infrastructure) => infrastructure.machines,
        Err(failure) => return Ok((Outcome::Failed(failure), None)),
    };
    let operation = observed.operation().map(Operation);
    Ok(match action {
        Action::Look => match machines.find(&target(observed)).await {
            Ok(Some(facts)) => (Outcome::Found(facts), None),
            Ok(None) => (Outcome::Missing, None),
            Err(failure) => (Outcome::Failed(failure), None),
        },
        Action::Delete => Outcome::of_delete(machines.delete(&target(observed), operation.as_ref()).await),
        _ => match wanted(observed) {
            Ok(wanted) => Outcome::of_ensure(machines.ensure(&wanted, operation.as_ref()).await),
            Err(failure) => (Outcome::Failed(failure), None),
        },
    })
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
