//! The controllers on an API in memory, on whatever infrastructure is handed to them, with every node out of reach.

use super::api::MANAGER;
use super::folder::scratch_folder;
use super::put::put;
use super::work::{Reach, Workers};
use crate::apiserver::install_crds;
use crate::config::Settings;
use crate::recorder::{Journal, Redactor};
use anyhow::Result;
use butler_api::{
    CONDITION_TARGETS_SYNCED, ClusterBootstrapPhase, LoadBalancerRequest, MachinePhase, find_condition, names,
};
use butler_apiserver::{Server, User};
use butler_controllers::Infrastructures;
use butler_controllers::addons::Sources;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

/// Controllers that work on nothing real.
pub(crate) struct DryWorkers {
    pub(crate) client: Client,
    /// Of the ClusterBootstrap, in memory.
    pub(crate) uid: String,
    workers: Workers,
    /// Keeps the port that leads nowhere; nobody answers there.
    _nowhere: tokio::net::TcpListener,
    _scratch: TempDir,
    _server: Server,
}

/// Starts them on the objects of a bootstrap.
pub(crate) async fn dry_workers(
    settings: &Settings,
    infrastructures: Arc<dyn Infrastructures>,
    sources: Arc<dyn Sources>,
) -> Result<DryWorkers> {
    let scratch = scratch_folder("butler-dry-run-", false)?;
    let server = Server::in_memory(scratch.path()).await?;
    let service = server.service(User::new(MANAGER, &["system:masters"]));
    install_crds(&service).await?;
    let client = Client::new(service, names::SYSTEM_NAMESPACE);
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": names::SYSTEM_NAMESPACE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let bootstrap = put(&client, settings).await?;
    let nowhere = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let reach = Reach { proxy: Some(format!("http://{}", nowhere.local_addr()?)), ..Reach::default() };
    let journal = Arc::new(Journal::open(&scratch.path().join("journal.jsonl"), Redactor::default())?);
    let mut context = reach.context(client.clone(), &journal, sources)?;
    context.infrastructures = infrastructures;
    Ok(DryWorkers {
        client,
        uid: bootstrap.uid().unwrap_or_default(),
        workers: Workers::start(context, settings.cluster(), None),
        _nowhere: nowhere,
        _scratch: scratch,
        _server: server,
    })
}

impl DryWorkers {
    /// Until so many machines are planned to their end, and a load balancer with so many targets. An error says why that can't be.
    pub(crate) async fn until_planned(&self, machines: usize, targets: Option<usize>) -> Result<(), String> {
        let mut pictures = self.workers.pictures.clone();
        loop {
            {
                let picture = pictures.borrow_and_update();
                let running = picture.machines.values().filter(|machine| {
                    machine.status.as_ref().and_then(|status| status.phase) == Some(MachinePhase::Running)
                });
                let balancer = targets.is_none_or(|targets| {
                    picture.balancers.values().any(|request| is_balanced(request, targets))
                });
                if running.count() >= machines && balancer {
                    return Ok(());
                }
                let status = picture.bootstrap.as_ref().and_then(|bootstrap| bootstrap.status.clone());
                let status = status.unwrap_or_default();
                if status.phase == Some(ClusterBootstrapPhase::Failed) {
                    let part = |text: Option<String>| text.unwrap_or_default();
                    return Err(format!("{}: {}", part(status.failure_reason), part(status.failure_message)));
                }
            }
            if pictures.changed().await.is_err() {
                return Err("the controllers have ended".to_owned());
            }
        }
    }

    pub(crate) async fn stop(self) {
        self.workers.stop().await;
    }
}

/// Whether a load balancer is there with all its targets.
fn is_balanced(request: &LoadBalancerRequest, targets: usize) -> bool {
    let status = request.status.clone().unwrap_or_default();
    let synced = find_condition(&status.conditions, CONDITION_TARGETS_SYNCED)
        .is_some_and(|synced| synced.is_true() && synced.observed_generation == request.metadata.generation);
    synced && request.spec.targets.len() >= targets && status.endpoint.is_some()
}
