//! The smaller services: disks, clock, health of the cluster.

use super::Api;
use crate::disks;
use crate::journal::stamp;
use crate::machine::Role;
use crate::node;
use crate::node::Node;
use butler_talos::api::cluster::cluster_service_server::ClusterService;
use butler_talos::api::cluster::{HealthCheckProgress, HealthCheckRequest};
use butler_talos::api::storage::storage_service_server::StorageService;
use butler_talos::api::storage::{Disk, Disks, DisksResponse, disk::DiskType};
use butler_talos::api::time::time_service_server::TimeService;
use butler_talos::api::time::{Time, TimeRequest, TimeResponse};
use jiff::Timestamp;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

#[async_trait]
impl StorageService for Api {
    async fn disks(&self, _: Request<()>) -> Result<Response<DisksResponse>, Status> {
        let installed = self.node.machine().disk.installed.is_some();
        let system = Disk {
            size: disks::SIZE,
            model: disks::MODEL.to_string(),
            device_name: disks::DEVICE.to_string(),
            name: disks::NAME.to_string(),
            serial: format!("SIM-{}", self.node.options.address),
            modalias: disks::MODALIAS.to_string(),
            r#type: DiskType::Ssd.into(),
            bus_path: disks::BUS_PATH.to_string(),
            system_disk: installed,
            subsystem: "/sys/class/block".to_string(),
            ..Disk::default()
        };
        let message = Disks { metadata: None, disks: vec![system] };
        Ok(Response::new(DisksResponse { messages: vec![message] }))
    }
}

#[async_trait]
impl TimeService for Api {
    async fn time(&self, _: Request<()>) -> Result<Response<TimeResponse>, Status> {
        Ok(clock(&self.node, "time.cloudflare.com".to_string()))
    }

    async fn time_check(&self, request: Request<TimeRequest>) -> Result<Response<TimeResponse>, Status> {
        Ok(clock(&self.node, request.into_inner().server))
    }
}

/// The simulated clock is this computer's, unless a fault script sets it off.
fn clock(node: &Node, server: String) -> Response<TimeResponse> {
    let now = Timestamp::now();
    let local = now.checked_add(jiff::SignedDuration::from_secs(node.clock_skew())).unwrap_or(now);
    let message =
        Time { metadata: None, server, localtime: Some(stamp(local)), remotetime: Some(stamp(now)) };
    Response::new(TimeResponse { messages: vec![message] })
}

/// How often the state is looked at while a check waits.
const LOOK: Duration = Duration::from_millis(100);

#[async_trait]
impl ClusterService for Api {
    /// The checks that the simulation can make: etcd, its members, services, readiness of the machines.
    async fn health_check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckProgress>>, Status> {
        let patience = request.get_ref().wait_timeout.and_then(|wait| Duration::try_from(wait).ok());
        let patience = patience.filter(|wait| !wait.is_zero()).unwrap_or(Duration::from_secs(300));
        let api = self.clone();
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            tokio::select! {
                outcome = tokio::time::timeout(patience, api.checks(&sender)) => {
                    if outcome.is_err() {
                        let _ = sender.send(Err(Status::deadline_exceeded("context deadline exceeded"))).await;
                    }
                }
                () = sender.closed() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// A check, and what it still waits for.
type Check = (&'static str, fn(&Api) -> Result<(), String>);

const CHECKS: [Check; 4] = [
    ("etcd to be healthy", Api::etcd_healthy),
    ("etcd members to be control plane nodes", Api::etcd_members),
    ("apid to be ready", Api::apid_ready),
    ("all nodes to finish boot sequence and be ready", Api::all_ready),
];

impl Api {
    async fn checks(&self, sender: &mpsc::Sender<Result<HealthCheckProgress, Status>>) {
        for (name, check) in CHECKS {
            let mut last = String::new();
            loop {
                let outcome = check(self);
                let text = outcome.as_ref().map_or_else(Clone::clone, |()| "OK".to_string());
                let message = format!("waiting for {name}: {text}");
                if message != last {
                    let progress = HealthCheckProgress { metadata: None, message: message.clone() };
                    if sender.send(Ok(progress)).await.is_err() {
                        return;
                    }
                    last = message;
                }
                if outcome.is_ok() {
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// The machines of this cluster, this one among them.
    fn cluster_nodes(&self) -> Vec<std::sync::Arc<node::Node>> {
        let own = node::identity(&self.node.machine());
        let Some(world) = self.node.world.upgrade() else { return Vec::new() };
        world.all_nodes().into_iter().filter(|node| node::identity(&node.machine()) == own).collect()
    }

    fn control_planes(&self) -> Vec<std::sync::Arc<node::Node>> {
        let nodes = self.cluster_nodes().into_iter();
        nodes.filter(|node| node.machine().role() == Some(Role::ControlPlane)).collect()
    }

    fn etcd_healthy(&self) -> Result<(), String> {
        for node in self.control_planes() {
            if !matches!(node.machine().run.etcd, crate::machine::Etcd::Running { .. }) {
                return Err(format!("{}: service \"etcd\" not healthy", node.options.address));
            }
        }
        Ok(())
    }

    fn etcd_members(&self) -> Result<(), String> {
        let nodes = self.control_planes();
        let world = self.node.world.upgrade().ok_or("the simulated world has ended")?;
        let member = nodes.iter().find_map(|node| node.machine().disk.etcd).ok_or("no etcd member")?;
        let etcd = world.etcd();
        let cluster = etcd.cluster(member.cluster).ok_or("no etcd cluster")?;
        let (voters, wanted) = (cluster.members.iter().filter(|one| !one.learner).count(), nodes.len());
        if voters == wanted { Ok(()) } else { Err(format!("{voters} of {wanted} members vote")) }
    }

    fn apid_ready(&self) -> Result<(), String> {
        self.each(|machine| machine.serves_apid(), "apid is not ready")
    }

    fn all_ready(&self) -> Result<(), String> {
        let ready = |machine: &crate::machine::Machine| {
            machine.stage == crate::machine::Stage::Running && machine.status().ready
        };
        self.each(ready, "machine is not ready")
    }

    fn each(&self, good: impl Fn(&crate::machine::Machine) -> bool, problem: &str) -> Result<(), String> {
        match self.cluster_nodes().iter().find(|node| !good(&node.machine())) {
            Some(node) => Err(format!("{}: {problem}", node.options.address)),
            None => Ok(()),
        }
    }
}
