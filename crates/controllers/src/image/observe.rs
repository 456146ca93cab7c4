//! Reads an ImageSync and all that it refers to. Decides nothing.

use crate::error::ReconcileError;
use crate::object::{self, Key};
use crate::provider;
use crate::runtime::Shared;
use crate::{Class, Deadlines, Failure, ImageFacts, Owner};
use butler_api::names::{BUTLER_CONFIG_NAME, LABEL_CLUSTER};
use butler_api::{ButlerConfig, ClusterBootstrap, ImageSync};
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};

/// What is known of an image.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    pub(crate) object: ImageSync,
    pub(crate) owner: Owner,
    /// URL of the image factory.
    pub(crate) factory: Option<String>,
    /// Whether another ImageSync stands for the same image.
    pub(crate) shared: bool,
    /// What keeps the infrastructure from being asked at all.
    pub(crate) unusable: Option<Failure>,
    pub(crate) memory: Memory,
    pub(crate) deadlines: Deadlines,
}

/// What calls have said, until the process ends.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) last: Option<Outcome>,
    /// No call before this moment.
    pub(crate) next: Option<Timestamp>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The last pass of this life ended with a failure that stops the plan.
    pub(crate) stopped: bool,
    /// The last of them, until all is well.
    pub(crate) trouble: Option<Failure>,
    /// Spec, ProviderConfig and credentials by which the last call was made.
    pub(crate) inputs: String,
    pub(crate) deleting: bool,
}

/// What a call said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It is on its way, either way.
    Working { operation: Option<String>, waiting_for: String },
    /// It can be booted from.
    Ready(ImageFacts),
    /// It is not there any more.
    Gone,
    /// The call failed.
    Failed(Failure),
}

/// Annotation: uid of the ClusterBootstrap that the image was first made for. Owner references come and go with the
/// clusters that share the image; the tag on the image has to stay.
pub(crate) const ANNOTATION_OWNER_UID: &str = "butler.butlerlabs.dev/image-owner-uid";

/// `None` when the object is gone.
pub(crate) async fn observe(
    shared: &Shared,
    api: &Api<ImageSync>,
    name: &str,
) -> Result<Option<Observed>, ReconcileError> {
    let Some(object) = object::get(api, name).await? else { return Ok(None) };
    let client = &shared.context.client;
    let namespace = object.namespace().unwrap_or_default();
    let provided = provider::look(client, &object.spec.provider_config_ref, &namespace).await?;
    let (unusable, version) = match &provided {
        Ok(provided) => (usable(shared, provided), provided.version.clone()),
        Err(failure) => (Some(failure.clone()), failure.message.clone()),
    };
    let settings: Api<ButlerConfig> = Api::all(client.clone());
    let factory = object::get(&settings, BUTLER_CONFIG_NAME)
        .await?
        .and_then(|config| config.spec.image_factory)
        .map(|factory| factory.url)
        .filter(|url| !url.is_empty());
    let inputs = format!("{} {version} {factory:?}", object.metadata.generation.unwrap_or_default());
    let deleting = object.metadata.deletion_timestamp.is_some();
    let memory = shared.images.change(&Key::of(&object), |memory| {
        if memory.inputs != inputs || memory.deleting != deleting {
            (memory.next, memory.failures, memory.trouble) = (None, 0, None);
            (memory.inputs, memory.deleting) = (inputs, deleting);
        }
        memory.clone()
    });
    let others = if deleting { used_by_others(api, &object).await? } else { false };
    Ok(Some(Observed {
        now: (shared.context.clock)(),
        owner: owner(&object),
        factory,
        shared: others,
        unusable,
        memory,
        deadlines: shared.context.deadlines,
        object,
    }))
}

fn usable(shared: &Shared, provided: &provider::Provided) -> Option<Failure> {
    match shared.connections.connect(&shared.context, provided) {
        Err(failure) => Some(failure),
        Ok(infrastructure) if infrastructure.images.is_none() => Some(Failure::new(
            Class::InvalidConfig,
            "ImagesNotBuilt",
            format!("images can't be brought to {} yet", provided.config.spec.provider),
            "upload the image by hand, and take imageFactory out of the ButlerConfig",
        )),
        Ok(_) => None,
    }
}

fn owner(object: &ImageSync) -> Owner {
    let uid = object.uid().unwrap_or_default();
    let kind = ClusterBootstrap::kind(&());
    let first = object.owner_references().iter().find(|owner| owner.kind == kind);
    let written = object.annotations().get(ANNOTATION_OWNER_UID).cloned();
    Owner {
        cluster: object.labels().get(LABEL_CLUSTER).cloned().unwrap_or_else(|| object.name_any()),
        cluster_uid: written.or(first.map(|owner| owner.uid.clone())).unwrap_or_else(|| uid.clone()),
        object_uid: uid,
    }
}

async fn used_by_others(api: &Api<ImageSync>, object: &ImageSync) -> Result<bool, ReconcileError> {
    use crate::error::Doing;
    let all = api.list(&ListParams::default()).await.doing(|| "list ImageSyncs".to_owned())?;
    let name = super::image_name(object);
    Ok(all.items.iter().any(|other| {
        other.uid() != object.uid()
            && other.metadata.deletion_timestamp.is_none()
            && other.spec.provider_config_ref == object.spec.provider_config_ref
            && super::image_name(other) == name
    }))
}

impl Observed {
    pub(crate) fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|known| known == butler_api::names::FINALIZER_IMAGE_SYNC)
    }

    /// Whether the infrastructure may have been asked for the image: written down before the first time.
    pub(crate) fn requested(&self) -> bool {
        let conditions = self.object.status.as_ref().map(|status| status.conditions.as_slice());
        butler_api::find_condition(conditions.unwrap_or_default(), super::plan::REQUESTED)
            .is_some_and(butler_api::Condition::is_true)
    }

    /// Where the image comes from: as it was first written down, so that a changed factory does not bring a second one.
    pub(crate) fn url(&self) -> Option<String> {
        let written = self.object.status.as_ref().and_then(|status| status.artifact_url.clone());
        written.or_else(|| Some(super::artifact_url(self.factory.as_deref()?, &self.object.spec)))
    }

    /// What the file has to be, in small letters: as it was asked for, else as it was found.
    pub(crate) fn sha256(&self) -> Option<String> {
        let found = self.object.status.as_ref().and_then(|status| status.artifact_sha256.as_ref());
        self.object.spec.sha256.as_ref().or(found).map(|sum| sum.to_ascii_lowercase())
    }

    pub(crate) fn operation(&self) -> Option<String> {
        match &self.memory.last {
            Some(Outcome::Working { operation, .. }) => operation.clone(),
            Some(Outcome::Failed(_)) | None => self.object.status.as_ref()?.provider_task_id.clone(),
            Some(_) => None,
        }
    }
}
