//! Whose an object is: the ClusterBootstrap that it belongs to, or itself.

use crate::Owner;
use crate::error::ReconcileError;
use crate::object;
use crate::runtime::Shared;
use butler_api::ClusterBootstrap;
use butler_api::names::LABEL_CLUSTER;
use kube::api::Api;
use kube::{Resource, ResourceExt};

/// What is known of an object's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) owner: Owner,
    /// Its ClusterBootstrap is paused.
    pub(crate) paused: bool,
    /// It has a ClusterBootstrap that is there.
    pub(crate) kept: bool,
}

/// The owner that goes into the tags of what is made for an object. `cluster` is the cluster's name where the object itself says it.
pub(crate) async fn of<K: ResourceExt>(
    shared: &Shared,
    object: &K,
    cluster: Option<&str>,
) -> Result<Ownership, ReconcileError> {
    let uid = object.uid().unwrap_or_default();
    let kind = ClusterBootstrap::kind(&());
    let cluster = object.labels().get(LABEL_CLUSTER).cloned().or_else(|| cluster.map(str::to_owned));
    let Some(reference) = object.owner_references().iter().find(|owner| owner.kind == kind) else {
        // One that belongs to no cluster is its own.
        let cluster = cluster.unwrap_or_else(|| object.name_any());
        let owner = Owner { cluster, cluster_uid: uid.clone(), object_uid: uid };
        return Ok(Ownership { owner, paused: false, kept: false });
    };
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ClusterBootstrap> = Api::namespaced(shared.context.client.clone(), &namespace);
    let known = object::get(&api, &reference.name).await?;
    let cb = known.filter(|cb| cb.uid().as_ref() == Some(&reference.uid));
    let paused = cb.as_ref().is_some_and(|cb| cb.spec.paused && cb.metadata.deletion_timestamp.is_none());
    let cluster = cluster.unwrap_or_else(|| reference.name.clone());
    let owner = Owner { cluster, cluster_uid: reference.uid.clone(), object_uid: uid };
    Ok(Ownership { owner, paused, kept: cb.is_some() })
}
