//! What is told about an image. Pure.

use super::observe::Observed;
use crate::external::{Action, Outcome, REQUESTED};
use crate::report::{condition, told, whole_second, with_remedy};
use crate::step::Step;
use crate::{Class, Failure};
use butler_api::{
    CONDITION_DEGRADED, CONDITION_PROGRESSING, CONDITION_READY, ImageSyncPhase, ImageSyncStatus,
    set_condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The status as it is to be before the step's actions are done.
pub(crate) fn status(observed: &Observed, step: &Step<Action>) -> ImageSyncStatus {
    let mut status = observed.object.status.clone().unwrap_or_default();
    if let Some(Outcome::Ready(facts)) = &observed.memory.last {
        status.provider_image_ref = Some(facts.image_ref.clone());
        if let Some(sum) = facts.sha256.clone().or_else(|| observed.sha256()) {
            status.artifact_sha256 = Some(sum);
        }
    }
    let asks = matches!(step, Step::Do(actions) if actions.contains(&Action::Ensure));
    if asks {
        status.artifact_url = observed.url();
    }
    let failure = observed.memory.obstacle(step);
    let stopped = matches!(step, Step::Stop(_));
    status.phase = Some(phase(observed, &status, stopped, asks));
    status.provider_task_id = observed.operation();
    (status.failure_reason, status.failure_message) = told(failure.as_ref(), stopped);
    conditions(observed, step, failure.as_ref(), asks, &mut status);
    status.observed_generation = observed.object.metadata.generation;
    status.last_updated = Some(Time(whole_second(observed.now)));
    status
}

fn phase(observed: &Observed, status: &ImageSyncStatus, stopped: bool, asks: bool) -> ImageSyncPhase {
    match &observed.memory.last {
        _ if stopped => ImageSyncPhase::Failed,
        Some(Outcome::Working { .. }) if !observed.deleting() => ImageSyncPhase::Downloading,
        _ if status.provider_image_ref.is_some() => ImageSyncPhase::Ready,
        _ if asks || observed.requested() => ImageSyncPhase::Downloading,
        _ => ImageSyncPhase::Pending,
    }
}

fn conditions(
    observed: &Observed,
    step: &Step<Action>,
    failure: Option<&Failure>,
    asks: bool,
    status: &mut ImageSyncStatus,
) {
    let ready = status.phase == Some(ImageSyncPhase::Ready) && failure.is_none() && !observed.deleting();
    let name = status.provider_image_ref.clone().unwrap_or_default();
    let generation = observed.object.metadata.generation;
    let mut set = |type_: &str, holds: bool, reason: &str, message: String| {
        set_condition(
            &mut status.conditions,
            condition(type_, holds, reason, message, observed.now, generation),
        );
    };
    if observed.requested() || asks {
        set(REQUESTED, true, "InfrastructureAsked", "the image may exist from now on".to_owned());
    }
    let waiting = match &observed.memory.last {
        Some(Outcome::Working { waiting_for, .. } | Outcome::Leaving { waiting_for, .. }) => {
            format!("waiting for {waiting_for}")
        }
        _ => String::new(),
    };
    let doing = if observed.deleting() { "Deleting" } else { "ImageDownloading" };
    match (ready, failure) {
        (true, _) => set(CONDITION_READY, true, "ImageReady", format!("the image is there as {name}")),
        (false, Some(failure)) => set(CONDITION_READY, false, &failure.reason, with_remedy(failure)),
        (false, None) => set(CONDITION_READY, false, doing, waiting.clone()),
    }
    set(CONDITION_PROGRESSING, !ready && !matches!(step, Step::Stop(_)), doing, waiting);
    // An obstacle stands until all is well, also while the next try is under way.
    match failure.or(observed.memory.trouble.as_ref()) {
        Some(failure) if failure.class != Class::Retryable || observed.memory.failures > 3 => {
            set(CONDITION_DEGRADED, true, &failure.reason, with_remedy(failure));
        }
        _ => set(CONDITION_DEGRADED, false, "AsExpected", String::new()),
    }
}
