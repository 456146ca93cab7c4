//! Reads an ImageSync and all that it refers to. Decides nothing.

use crate::error::ReconcileError;
use crate::external::{self, Memory};
use crate::object::{self, Key};
use crate::provider;
use crate::runtime::Shared;
use crate::{Class, Deadlines, Failure, ImageFacts, Owner};
use butler_api::names::{BUTLER_CONFIG_NAME, LABEL_CLUSTER};
use butler_api::{ButlerConfig, ClusterBootstrap, ImageSync, Provider};
use butler_drivers::Infrastructure;
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
    pub(crate) memory: Memory<ImageFacts>,
    pub(crate) deadlines: Deadlines,
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
    let (unusable, version) = shared.unusable(&provided, lacks);
    let settings: Api<ButlerConfig> = Api::all(client.clone());
    let factory = object::get(&settings, BUTLER_CONFIG_NAME)
        .await?
        .and_then(|config| config.spec.image_factory)
        .map(|factory| factory.url)
        .filter(|url| !url.is_empty());
    let inputs = format!("{} {version} {factory:?}", object.metadata.generation.unwrap_or_default());
    let deleting = object.metadata.deletion_timestamp.is_some();
    let now = (shared.context.clock)();
    let memory = shared.images.change(&Key::of(&object), |memory| memory.look(now, inputs, deleting));
    let others = if deleting { used_by_others(api, &object).await? } else { false };
    Ok(Some(Observed {
        now,
        owner: owner(&object),
        factory,
        shared: others,
        unusable,
        memory,
        deadlines: shared.context.deadlines,
        object,
    }))
}

fn lacks(infrastructure: &Infrastructure, provider: Provider) -> Option<Failure> {
    infrastructure.images.is_none().then(|| {
        Failure::new(
            Class::InvalidConfig,
            "ImagesNotBuilt",
            format!("images can't be brought to {provider} yet"),
            "upload the image by hand, and take imageFactory out of the ButlerConfig",
        )
    })
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
        external::requested(self.object.status.as_ref().map(|status| &status.conditions))
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
        self.memory.operation(self.object.status.as_ref().and_then(|status| status.provider_task_id.as_ref()))
    }
}
