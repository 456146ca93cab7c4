//! What is known of the cluster already: its uid, by which the infrastructure tells its machines from others, and its nodes.

use crate::engine::{Home, Made, Objects};
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, LoadBalancerRequest, MachineRequest, MachineRole, names};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use std::net::IpAddr;

/// A cluster that was begun.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) uid: Option<String>,
    /// How far it has come: what it has made is its own.
    pub(super) made: Made,
    pub(super) nodes: Vec<Node>,
    /// Name, host and first port of a load balancer that has an endpoint.
    pub(super) balancer: Option<(String, String, u16)>,
}

/// A machine with an address.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) control_plane: bool,
    pub(super) address: IpAddr,
}

impl Stored {
    /// Nothing is known but how much of what is found in use may be the cluster's own.
    pub(super) fn unread(made: Made) -> Stored {
        Stored { uid: None, made, nodes: Vec::new(), balancer: None }
    }
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
    let api: Api<LoadBalancerRequest> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let balancers = api.list(&labelled).await.context("cannot list the load balancers")?;
    let balancer = balancers.items.into_iter().find_map(|request| {
        let host = request.status.as_ref()?.endpoint.clone()?;
        Some((request.name_any(), host, u16::try_from(request.spec.port).ok()?))
    });
    let nodes = machines.items.into_iter().filter_map(|machine| {
        let address = machine.status.and_then(|status| status.ip_address)?.parse().ok()?;
        let control_plane = machine.spec.role == MachineRole::ControlPlane;
        Some(Node { name: machine.spec.machine_name, control_plane, address })
    });
    let made = there.as_ref().map_or(Made::Nothing, Made::of);
    Ok(Stored { uid: there.and_then(|there| there.uid()), made, nodes: nodes.collect(), balancer })
}
