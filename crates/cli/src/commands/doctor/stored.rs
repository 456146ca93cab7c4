//! What is known of the cluster already: its uid, by which the infrastructure tells its machines from others, and its nodes.

use crate::engine::{Home, Objects};
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, MachineRequest, MachineRole, names};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::net::IpAddr;

/// A cluster that was begun.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) uid: Option<String>,
    pub(super) nodes: Vec<Node>,
}

/// A machine with an address.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) control_plane: bool,
    pub(super) address: IpAddr,
}

/// Reads it, and changes nothing.
pub(super) async fn stored(home: &Home, cluster: &str) -> Result<Stored> {
    let objects = Objects::attach(home, cluster).await?;
    let read = read(&objects, cluster).await;
    objects.stop().await;
    read
}

async fn read(objects: &Objects, cluster: &str) -> Result<Stored> {
    let api: Api<ClusterBootstrap> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let there = api.get_opt(cluster).await.context("cannot read the ClusterBootstrap")?;
    let api: Api<MachineRequest> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let labelled = ListParams::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let machines = api.list(&labelled).await.context("cannot list the machines")?;
    let nodes = machines.items.into_iter().filter_map(|machine| {
        let address = machine.status.and_then(|status| status.ip_address)?.parse().ok()?;
        let control_plane = machine.spec.role == MachineRole::ControlPlane;
        Some(Node { name: machine.spec.machine_name, control_plane, address })
    });
    Ok(Stored { uid: there.and_then(|there| there.uid()), nodes: nodes.collect() })
}
