//! What is to happen to an image next, and how it is called. Pure.

use super::observe::Observed;
use crate::external::{Action, Outcome, unremovable};
use crate::machine::pause_after_failure;
use crate::step::{Awaited, Step, Wait};
use crate::{Class, Deadlines, Failure, ImageFacts};
use butler_api::names::MAX_NAME;
use butler_api::{Architecture, ImageSync, ImageSyncSpec, TransferMode};
use jiff::Timestamp;
use std::time::Duration;

/// The whole decision.
pub(crate) fn plan(observed: &Observed) -> Step<Action> {
    if observed.deleting() {
        return deletion(observed);
    }
    if !observed.has_finalizer() {
        return Step::Do(vec![Action::AddFinalizer]);
    }
    if observed.object.spec.transfer_mode == TransferMode::Proxy {
        return Step::Stop(Failure::new(
            Class::InvalidConfig,
            "TransferModeNotBuilt",
            "transferMode proxy is not built yet",
            "use transferMode direct, or upload the image by hand",
        ));
    }
    if observed.url().is_none() {
        return Step::Stop(Failure::new(
            Class::InvalidConfig,
            "ImageFactoryMissing",
            "there is no ButlerConfig with an image factory, so that it is not known where the image comes from",
            "set spec.imageFactory.url in the ButlerConfig named butler",
        ));
    }
    if let Some(failure) = &observed.unusable {
        return Step::Stop(failure.clone());
    }
    pause(observed).unwrap_or_else(|| Step::Do(vec![Action::Ensure]))
}

fn deletion(observed: &Observed) -> Step<Action> {
    if !observed.has_finalizer() {
        return Step::Done;
    }
    let settled = !observed.requested() || observed.shared || observed.memory.last == Some(Outcome::Gone);
    if settled {
        return Step::Do(vec![Action::RemoveFinalizer]);
    }
    if let Some(failure) = &observed.unusable {
        return Step::Stop(unremovable("the image", "image", "ImageSync", failure));
    }
    pause(observed).unwrap_or_else(|| Step::Do(vec![Action::Delete]))
}

fn pause(observed: &Observed) -> Option<Step<Action>> {
    let next = observed.memory.next.filter(|next| observed.now < *next)?;
    let recheck = crate::runtime::until(observed.now, next);
    let wait = |what: &str, remedy: &str| {
        let awaited =
            Awaited { reason: "InfrastructureBusy".into(), what: what.to_owned(), remedy: remedy.to_owned() };
        Step::Wait(Wait { on: vec![awaited], deadline: Timestamp::MAX, recheck })
    };
    Some(match &observed.memory.last {
        Some(Outcome::Failed(failure)) if failure.class.stops() => Step::Stop(failure.clone()),
        Some(Outcome::Failed(failure)) => wait(&failure.message, &failure.remedy),
        Some(Outcome::Working { waiting_for, .. } | Outcome::Leaving { waiting_for, .. }) => {
            wait(waiting_for, "")
        }
        Some(Outcome::Ready(_) | Outcome::Found(_) | Outcome::Missing | Outcome::Gone) | None => Step::Done,
    })
}

/// How long to leave the infrastructure alone after a call.
pub(crate) fn pause_after(
    outcome: &Outcome<ImageFacts>,
    recheck: Option<Duration>,
    failures: u32,
    deadlines: &Deadlines,
) -> Duration {
    match outcome {
        Outcome::Working { .. } | Outcome::Leaving { .. } => recheck.unwrap_or(deadlines.resync),
        // An image that is there does not change; it is looked at seldom.
        Outcome::Ready(_) | Outcome::Found(_) => deadlines.resync.saturating_mul(20),
        Outcome::Missing | Outcome::Gone => Duration::ZERO,
        Outcome::Failed(failure) => pause_after_failure(failure.class, failures, deadlines),
    }
}

/// `{factory}/image/{schematic}/{version}/{platform}-{arch}.{format}`
pub(crate) fn artifact_url(factory: &str, spec: &ImageSyncSpec) -> String {
    let image = &spec.factory_ref;
    format!(
        "{}/image/{}/{}/{}-{}.{}",
        factory.trim_end_matches('/'),
        image.schematic_id,
        image.version,
        image.platform,
        arch(image.arch),
        spec.format
    )
}

/// The image's name on the infrastructure, the same for everyone who asks for this image.
pub(crate) fn image_name(object: &ImageSync) -> String {
    if let Some(name) = object.spec.display_name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let image = &object.spec.factory_ref;
    let schematic: String = image.schematic_id.chars().take(8).collect();
    let name = format!("{}-{}-{}-{schematic}-butler", image.platform, image.version, arch(image.arch));
    let clean: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MAX_NAME)
        .collect();
    clean.trim_matches('-').to_owned()
}

/// The architecture's name on the wire.
pub(crate) fn arch(arch: Architecture) -> &'static str {
    match arch {
        Architecture::Amd64 => "amd64",
        Architecture::Arm64 => "arm64",
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
