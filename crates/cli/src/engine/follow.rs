//! Follows a ClusterBootstrap, its machines and its load balancer: whatever changes, the latest picture of all is there to be looked at.

use crate::progress::{Snapshot, Warning};
use butler_api::{ClusterBootstrap, LoadBalancerRequest, MachineRequest, names};
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::events::v1::Event as ClusterEvent;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use tokio::sync::watch;

/// Follows until it is dropped.
pub(crate) async fn follow(client: Client, cluster: String, pictures: watch::Sender<Snapshot>) {
    let only = Config::default().fields(&format!("metadata.name={cluster}"));
    let labelled = Config::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let (client, pictures) = (&client, &pictures);
    tokio::join!(
        follow_kind::<ClusterBootstrap>(client, only, pictures, take_bootstrap),
        follow_kind::<MachineRequest>(client, labelled.clone(), pictures, |picture, event| {
            take(&mut picture.machines, event);
        }),
        follow_kind::<LoadBalancerRequest>(client, labelled, pictures, |picture, event| {
            take(&mut picture.balancers, event);
        }),
        follow_kind::<ClusterEvent>(client, Config::default(), pictures, take_event),
    );
}

/// Follows the objects of one kind.
async fn follow_kind<K>(
    client: &Client,
    which: Config,
    pictures: &watch::Sender<Snapshot>,
    take: impl Fn(&mut Snapshot, Event<K>),
) where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let told = watcher(api, which).default_backoff().for_each(|event| {
        match event {
            Ok(event) => pictures.send_modify(|picture| take(picture, event)),
            Err(error) => {
                tracing::debug!(%error, kind = %K::kind(&()), "a watch broke; it is begun again");
            }
        }
        std::future::ready(())
    });
    told.await;
}

/// A warning that is worth a line. Machines show their troubles themselves.
fn warning(event: &ClusterEvent) -> Option<Warning> {
    let regarding = event.regarding.clone().unwrap_or_default();
    let kind = regarding.kind.unwrap_or_default();
    if event.type_.as_deref() != Some("Warning") || kind == "MachineRequest" {
        return None;
    }
    Some(Warning {
        object: format!("{kind} {}", regarding.name.unwrap_or_default()),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.note.clone().unwrap_or_default(),
    })
}

/// What was told before this command began is not news.
fn take_event(picture: &mut Snapshot, event: Event<ClusterEvent>) {
    if let Event::Apply(event) = event
        && let Some(warning) = warning(&event)
    {
        picture.warnings.insert(event.name_any(), warning);
    }
}

fn take_bootstrap(picture: &mut Snapshot, event: Event<ClusterBootstrap>) {
    match event {
        Event::Apply(bootstrap) | Event::InitApply(bootstrap) => {
            picture.bootstrap = Some(bootstrap);
            picture.relisting = false;
        }
        Event::Delete(_) => picture.bootstrap = None,
        Event::Init => picture.relisting = true,
        Event::InitDone => {
            // It was listed, and it was not there.
            if std::mem::take(&mut picture.relisting) {
                picture.bootstrap = None;
            }
            picture.listed = true;
        }
    }
}

fn take<K: Resource>(known: &mut BTreeMap<String, K>, event: Event<K>) {
    match event {
        Event::Apply(object) | Event::InitApply(object) => {
            known.insert(object.name_any(), object);
        }
        Event::Delete(object) => {
            known.remove(&object.name_any());
        }
        Event::Init => known.clear(),
        Event::InitDone => {}
    }
}
