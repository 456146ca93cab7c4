//! Does what the plan says: one call to the outside each, and what it said is remembered.

use super::observe::Observed;
use super::plan;
use crate::error::ReconcileError;
use crate::external::{Action, Outcome};
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Class, Failure, ImageFacts, ImageWanted, Operation};
use butler_api::ImageSync;
use butler_api::names::FINALIZER_IMAGE_SYNC;
use butler_drivers::Images;
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
            Action::AddFinalizer | Action::RemoveFinalizer => {
                let wanted = *action == Action::AddFinalizer;
                object::set_finalizer(api, &observed.object, FINALIZER_IMAGE_SYNC, wanted).await?;
            }
            Action::Ensure | Action::Look | Action::Delete => {
                let (outcome, recheck) = call(shared, observed, *action).await?;
                remember(shared, observed, outcome, recheck);
            }
        }
    }
    Ok(())
}

fn remember(shared: &Shared, observed: &Observed, outcome: Outcome<ImageFacts>, recheck: Option<Duration>) {
    let now = (shared.context.clock)();
    shared.images.change(&Key::of(&observed.object), |memory| {
        memory.keep(outcome, now, |memory, outcome| {
            plan::pause_after(outcome, recheck, memory.failures, &observed.deadlines)
        });
    });
}

async fn call(
    shared: &Shared,
    observed: &Observed,
    action: Action,
) -> Result<(Outcome<ImageFacts>, Option<Duration>), ReconcileError> {
    let images = match connect(shared, observed).await? {
        Ok(images) => images,
        Err(failure) => return Ok((Outcome::Failed(failure), None)),
    };
    let wanted = wanted(observed);
    let operation = observed.operation().map(Operation);
    Ok(match action {
        Action::Delete => Outcome::of_delete(images.delete(&wanted, operation.as_ref()).await),
        _ => Outcome::of_ensure(images.ensure(&wanted, operation.as_ref()).await),
    })
}

async fn connect(
    shared: &Shared,
    observed: &Observed,
) -> Result<Result<Arc<dyn Images>, Failure>, ReconcileError> {
    let reference = &observed.object.spec.provider_config_ref;
    let connected = shared.infrastructure(&observed.object, reference).await?;
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
