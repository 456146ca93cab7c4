//! Small verbs on our own objects: status, finalizers, owner references.

use crate::error::{Doing, ReconcileError, is_absent, is_conflict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

/// Which object, in this life of it: a later one of the same name has another uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Field manager of everything that we write.
pub(crate) const MANAGER: &str = "butler";

/// What came of writing an object that is read and written as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is as it was written.
    Yes,
    /// Somebody wrote it in between, or it is gone: look again.
    Stale,
}

impl Key {
    pub(crate) fn of(object: &impl ResourceExt) -> Key {
        Key {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }
    }
}

/// Replaces the status of an object that was just read.
pub(crate) async fn write_status<K>(api: &Api<K>, object: &K) -> Result<Written, ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    match api.replace_status(&object.name_any(), &manager(), object).await {
        Ok(_) => Ok(Written::Yes),
        Err(error) if is_conflict(&error) || is_absent(&error) => Ok(Written::Stale),
        Err(error) => Err(error).doing(|| format!("write the status of {}", object.name_any())),
    }
}

/// Puts a finalizer on an object, or takes it off.
pub(crate) async fn set_finalizer<K>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    wanted: bool,
) -> Result<Written, ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut finalizers: Vec<String> = object.finalizers().to_vec();
    finalizers.retain(|known| known != finalizer);
    if wanted {
        finalizers.push(finalizer.to_owned());
    }
    // With the version, so that a finalizer that somebody set in between is not lost.
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(Written::Yes),
        Err(error) if is_conflict(&error) || is_absent(&error) => Ok(Written::Stale),
        Err(error) => Err(error).doing(|| format!("write the finalizers of {}", object.name_any())),
    }
}

/// Creates an object. One of that name that is there already is left as it is: the next look tells whose it is.
pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> Result<(), ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    match api.create(&manager(), object).await {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) => Ok(()),
        Err(error) => Err(error).doing(|| format!("create {}", object.name_any())),
    }
}

/// Deletes exactly this object, and not a later one of its name.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match api.delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_absent(&error) || is_conflict(&error) => Ok(()),
        Err(error) => Err(error).doing(|| format!("delete {}", object.name_any())),
    }
}

/// An object, or `None` when there is none.
pub(crate) async fn get<K>(api: &Api<K>, name: &str) -> Result<Option<K>, ReconcileError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    api.get_opt(name).await.doing(|| format!("read {name}"))
}

/// The reference by which an object says whose it is.
pub(crate) fn owner_reference<K>(owner: &K) -> Option<OwnerReference>
where
    K: Resource<DynamicType = ()>,
{
    owner.controller_owner_ref(&())
}

fn manager() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}
