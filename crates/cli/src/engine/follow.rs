//! Follows a ClusterBootstrap and its machines: whatever changes, the latest picture of all is there to be looked at.

use crate::progress::{Snapshot, Warning};
use butler_api::{ClusterBootstrap, MachineRequest, names};
use futures::StreamExt as _;
use k8s_openapi::api::events::v1::Event as ClusterEvent;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;

/// Follows until it is dropped.
pub(crate) async fn follow(client: Client, cluster: String, pictures: watch::Sender<Snapshot>) {
    let bootstraps: Api<ClusterBootstrap> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let events: Api<ClusterEvent> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let machines: Api<MachineRequest> = Api::namespaced(client, names::SYSTEM_NAMESPACE);
    let only = Config::default().fields(&format!("metadata.name={cluster}"));
    let labelled = Config::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let of_cluster = watcher(bootstraps, only).default_backoff().for_each(|event| {
        match event {
            Ok(event) => {
                pictures.send_modify(|picture| take_bootstrap(picture, event));
            }
            Err(error) => {
                tracing::debug!(%error, "the watch of the ClusterBootstrap broke; it is begun again")
            }
        }
        std::future::ready(())
    });
    let of_machines = watcher(machines, labelled).default_backoff().for_each(|event| {
        match event {
            Ok(event) => {
                pictures.send_modify(|picture| take_machine(picture, event));
            }
            Err(error) => tracing::debug!(%error, "the watch of the machines broke; it is begun again"),
        }
        std::future::ready(())
    });
    let told = watcher(events, Config::default()).default_backoff().for_each(|event| {
        // What was told before this command began is not news.
        if let Ok(Event::Apply(event)) = event
            && let Some(warning) = warning(&event)
        {
            pictures.send_modify(|picture| {
                picture.warnings.insert(event.name_any(), warning);
            });
        }
        std::future::ready(())
    });
    tokio::join!(of_cluster, of_machines, told);
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

fn take_machine(picture: &mut Snapshot, event: Event<MachineRequest>) {
    match event {
        Event::Apply(machine) | Event::InitApply(machine) => {
            picture.machines.insert(machine.name_any(), machine);
        }
        Event::Delete(machine) => {
            picture.machines.remove(&machine.name_any());
        }
        Event::Init => picture.machines.clear(),
        Event::InitDone => {}
    }
}
