//! Does what the plan says: one call to the outside each, and what it said is remembered.

use super::observe::Observed;
use super::plan;
use crate::error::ReconcileError;
use crate::external::{Action, Outcome, pause_in_doubt};
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Class, Failure, LoadBalancerFacts, LoadBalancerWanted, Operation};
use butler_api::LoadBalancerRequest;
use butler_api::names::FINALIZER_LOAD_BALANCER_REQUEST;
use butler_drivers::LoadBalancers;
use kube::ResourceExt;
use kube::api::Api;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn act(
    shared: &Shared,
    api: &Api<LoadBalancerRequest>,
    observed: &Observed,
    actions: &[Action],
) -> Result<(), ReconcileError> {
    for action in actions {
        match action {
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let wanted = *action == Action::AddFinalizer;
                object::set_finalizer(api, &observed.object, FINALIZER_LOAD_BALANCER_REQUEST, wanted).await?;
            }
            Action::Ensure | Action::Look | Action::Delete => {
                if *action == Action::Ensure {
                    let now = (shared.context.clock)();
                    shared.balancers.change(&Key::of(&observed.object), |memory| memory.ask(now));
                }
                let (outcome, recheck) = call(shared, observed, *action).await?;
                remember(shared, observed, outcome, recheck);
            }
        }
    }
    Ok(())
}

fn remember(
    shared: &Shared,
    observed: &Observed,
    outcome: Outcome<LoadBalancerFacts>,
    recheck: Option<Duration>,
) {
    let now = (shared.context.clock)();
    // What the look was made with, which began then.
    let doubt = observed.unsettled(observed.now);
    shared.balancers.change(&Key::of(&observed.object), |memory| {
        memory.in_doubt = doubt.is_some();
        memory.keep(outcome, now, |memory, outcome| match (outcome, doubt) {
            (Outcome::Gone, Some(until)) => pause_in_doubt(now, until),
            _ => plan::pause_after(
                outcome,
                &observed.object.spec,
                recheck,
                memory.failures,
                &observed.deadlines,
            ),
        });
    });
}

async fn call(
    shared: &Shared,
    observed: &Observed,
    action: Action,
) -> Result<(Outcome<LoadBalancerFacts>, Option<Duration>), ReconcileError> {
    let balancers = match connect(shared, observed).await? {
        Ok(balancers) => balancers,
        Err(failure) => return Ok((Outcome::Failed(failure), None)),
    };
    let wanted = LoadBalancerWanted {
        owner: observed.owner.clone(),
        name: observed.object.name_any(),
        spec: observed.object.spec.clone(),
    };
    let operation = observed.operation().map(Operation);
    Ok(match action {
        Action::Delete => Outcome::of_delete(balancers.delete(&wanted, operation.as_ref()).await),
        _ => Outcome::of_ensure(balancers.ensure(&wanted, operation.as_ref()).await),
    })
}

async fn connect(
    shared: &Shared,
    observed: &Observed,
) -> Result<Result<Arc<dyn LoadBalancers>, Failure>, ReconcileError> {
    let reference = &observed.object.spec.provider_config_ref;
    let connected = shared.infrastructure(&observed.object, reference).await?;
    Ok(connected.and_then(|infrastructure| {
        // The settings were changed between the look and the call: the next look says what is wrong with them.
        infrastructure.load_balancers.ok_or_else(|| {
            let message = "the infrastructure has no load balancers of its own";
            Failure::new(Class::Retryable, "LoadBalancersNotThere", message, "name another ProviderConfig")
        })
    }))
}
