//! Does what the plan says: one call to the outside each, and what it said is remembered.

use super::observe::{Observed, Outcome};
use super::plan::{self, Action};
use crate::error::ReconcileError;
use crate::object::{self, Key};
use crate::provider;
use crate::runtime::Shared;
use crate::{Class, Failure, ImageWanted, Operation, Progress};
use butler_api::ImageSync;
use butler_api::names::FINALIZER_IMAGE_SYNC;
use butler_drivers::Images;
use kube::ResourceExt;
use kube::api::Api;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn act(
    shared: &Shared,
    api: &Api<ImageSync>,
    observed: &Observed,
    actions: &[Action],
) -> Result<(), ReconcileError> {
    for action in actions {
        match action {
            Action::AddFinalizer => {
                object::set_finalizer(api, &observed.object, FINALIZER_IMAGE_SYNC, true).await?;
            }
            Action::RemoveFinalizer => {
                object::set_finalizer(api, &observed.object, FINALIZER_IMAGE_SYNC, false).await?;
            }
            Action::Ensure | Action::Delete => {
                let (outcome, recheck) = call(shared, observed, *action).await?;
                remember(shared, observed, outcome, recheck);
            }
        }
    }
    Ok(())
}

fn remember(shared: &Shared, observed: &Observed, outcome: Outcome, recheck: Option<Duration>) {
    let now = (shared.context.clock)();
    shared.images.change(&Key::of(&observed.object), |memory| {
        match &outcome {
            Outcome::Failed(failure) => {
                memory.failures = memory.failures.saturating_add(1);
                memory.trouble = Some(failure.clone());
            }
            // What has only begun again may well fail again.
            Outcome::Working { .. } => {}
            _ => (memory.failures, memory.trouble) = (0, None),
        }
        let pause = plan::pause_after(&outcome, recheck, memory.failures, &observed.deadlines);
        memory.next = now.checked_add(pause).ok();
        memory.last = Some(outcome);
    });
}

async fn call(
    shared: &Shared,
    observed: &Observed,
    action: Action,
) -> Result<(Outcome, Option<Duration>), ReconcileError> {
    let images = match connect(shared, observed).await? {
        Ok(images) => images,
        Err(failure) => return Ok((Outcome::Failed(failure), None)),
    };
    let wanted = wanted(observed);
    let operation = observed.operation().map(Operation);
    let working = |operation: Option<Operation>, waiting_for, recheck| {
        (Outcome::Working { operation: operation.map(|id| id.0), waiting_for }, Some(recheck))
    };
    Ok(match action {
        Action::Delete => match images.delete(&wanted, operation.as_ref()).await {
            Ok(Progress::Ready(())) => (Outcome::Gone, None),
            Ok(Progress::InProgress { operation, waiting_for, recheck, .. }) => {
                working(operation, waiting_for, recheck)
            }
            Err(failure) => (Outcome::Failed(failure), None),
        },
        _ => match images.ensure(&wanted, operation.as_ref()).await {
            Ok(Progress::Ready(facts)) => (Outcome::Ready(facts), None),
            Ok(Progress::InProgress { operation, waiting_for, recheck, .. }) => {
                working(operation, waiting_for, recheck)
            }
            Err(failure) => (Outcome::Failed(failure), None),
        },
    })
}

async fn connect(
    shared: &Shared,
    observed: &Observed,
) -> Result<Result<Arc<dyn Images>, Failure>, ReconcileError> {
    let namespace = observed.object.namespace().unwrap_or_default();
    let reference = &observed.object.spec.provider_config_ref;
    let provided = provider::look(&shared.context.client, reference, &namespace).await?;
    let connected = provided.and_then(|provided| shared.connections.connect(&shared.context, &provided));
    Ok(connected.and_then(|infrastructure| {
        infrastructure.images.ok_or_else(|| {
            Failure::new(
                Class::InvalidConfig,
                "ImagesNotBuilt",
                "images are not built here",
                "upload it by hand",
            )
        })
    }))
}

fn wanted(observed: &Observed) -> ImageWanted {
    ImageWanted {
        owner: observed.owner.clone(),
        name: plan::image_name(&observed.object),
        url: observed.url().unwrap_or_default(),
        sha256: observed.sha256(),
        format: observed.object.spec.format.clone(),
    }
}
