//! `machine.MachineService`: thin; what is answered is decided by the machine and the world.

use super::{Api, kubeconfig, refused};
use crate::config::version_of_image;
use crate::etcd::Cluster;
use crate::journal::{Recorded, ServiceRecord, stamp};
use crate::machine::{Answer, Apply, ApplyMode, Etcd, Input, Member, Role, Wipe};
use butler_talos::api::common::Data;
use butler_talos::api::machine::machine_service_server::MachineService;
use butler_talos::api::machine::{self as proto, reset_request::WipeMode};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::codegen::BoxStream;
use tonic::codegen::tokio_stream::{self, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, async_trait};

type Reply<T> = Result<Response<T>, Status>;

#[async_trait]
impl MachineService for Api {
    async fn apply_configuration(
        &self,
        request: Request<proto::ApplyConfigurationRequest>,
    ) -> Reply<proto::ApplyConfigurationResponse> {
        let request = request.into_inner();
        let Some(mode) = ApplyMode::from_number(request.mode) else {
            return Err(Status::unknown(format!("incorrect mode {}", request.mode)));
        };
        let input =
            Input::Apply(Apply { config: self.node.check(&request.data), mode, dry_run: request.dry_run });
        match self.node.tell(input).await {
            Answer::Applied { mode, details, warnings } => {
                let message =
                    proto::ApplyConfiguration { metadata: None, warnings, mode, mode_details: details };
                Ok(Response::new(proto::ApplyConfigurationResponse { messages: vec![message] }))
            }
            Answer::Refused { code, message } => Err(refused(code, message)),
            Answer::Done => Err(Status::internal("the simulated machine has not answered")),
        }
    }

    async fn bootstrap(&self, request: Request<proto::BootstrapRequest>) -> Reply<proto::BootstrapResponse> {
        if request.into_inner().recover_etcd {
            return Err(not_simulated("Bootstrap with recover_etcd"));
        }
        self.ask(Input::Bootstrap).await?;
        Ok(Response::new(proto::BootstrapResponse { messages: vec![proto::Bootstrap::default()] }))
    }

    async fn reboot(&self, _: Request<proto::RebootRequest>) -> Reply<proto::RebootResponse> {
        let actor_id = self.actor();
        self.ask(Input::Reboot { actor: actor_id.clone() }).await?;
        let message = proto::Reboot { metadata: None, actor_id };
        Ok(Response::new(proto::RebootResponse { messages: vec![message] }))
    }

    async fn shutdown(&self, _: Request<proto::ShutdownRequest>) -> Reply<proto::ShutdownResponse> {
        let actor_id = self.actor();
        self.ask(Input::Shutdown { actor: actor_id.clone() }).await?;
        let message = proto::Shutdown { metadata: None, actor_id };
        Ok(Response::new(proto::ShutdownResponse { messages: vec![message] }))
    }

    async fn reset(&self, request: Request<proto::ResetRequest>) -> Reply<proto::ResetResponse> {
        let request = request.into_inner();
        let wipe = wipe(&request)?;
        let actor_id = self.actor();
        let (graceful, reboot) = (request.graceful, request.reboot);
        self.ask(Input::Reset { actor: actor_id.clone(), graceful, reboot, wipe }).await?;
        let message = proto::Reset { metadata: None, actor_id };
        Ok(Response::new(proto::ResetResponse { messages: vec![message] }))
    }

    async fn upgrade(&self, request: Request<proto::UpgradeRequest>) -> Reply<proto::UpgradeResponse> {
        let request = request.into_inner();
        let Some(version) = version_of_image(&request.image) else {
            return Err(Status::unknown(format!(
                "error validating installer image {:?}: its tag names no version",
                request.image
            )));
        };
        self.may_upgrade(request.force)?;
        let actor_id = self.actor();
        self.ask(Input::Upgrade { actor: actor_id.clone(), version, stage: request.stage }).await?;
        let ack = "Upgrade request received".to_string();
        let message = proto::Upgrade { metadata: None, ack, actor_id };
        Ok(Response::new(proto::UpgradeResponse { messages: vec![message] }))
    }

    async fn version(&self, _: Request<()>) -> Reply<proto::VersionResponse> {
        let machine = self.node.machine();
        let version = proto::VersionInfo {
            tag: machine.version.clone(),
            sha: "SIMULATED".to_string(),
            built: String::new(),
            go_version: "go1.23.4".to_string(),
            os: "linux".to_string(),
            arch: "amd64".to_string(),
        };
        let rbac = machine.config().is_none_or(|config| config.parts.rbac);
        let message = proto::Version {
            metadata: None,
            version: Some(version),
            platform: Some(proto::PlatformInfo { name: "metal".to_string(), mode: "metal".to_string() }),
            features: Some(proto::FeaturesInfo { rbac }),
        };
        Ok(Response::new(proto::VersionResponse { messages: vec![message] }))
    }

    async fn hostname(&self, _: Request<()>) -> Reply<proto::HostnameResponse> {
        let message = proto::Hostname { metadata: None, hostname: self.node.hostname() };
        Ok(Response::new(proto::HostnameResponse { messages: vec![message] }))
    }

    async fn memory(&self, _: Request<()>) -> Reply<proto::MemoryResponse> {
        let kib = 16 << 20;
        let meminfo = proto::MemInfo {
            memtotal: kib,
            memfree: kib / 2,
            memavailable: kib / 2,
            ..proto::MemInfo::default()
        };
        let message = proto::Memory { metadata: None, meminfo: Some(meminfo) };
        Ok(Response::new(proto::MemoryResponse { messages: vec![message] }))
    }

    async fn system_stat(&self, _: Request<()>) -> Reply<proto::SystemStatResponse> {
        let booted = self.node.journal.events_from(self.node.journal.boot(), 0).unwrap_or_default();
        let boot_time = booted.first().map_or(0, |first| first.at.as_second());
        let message = proto::SystemStat {
            boot_time: u64::try_from(boot_time).unwrap_or_default(),
            ..proto::SystemStat::default()
        };
        Ok(Response::new(proto::SystemStatResponse { messages: vec![message] }))
    }

    async fn service_list(&self, _: Request<()>) -> Reply<proto::ServiceListResponse> {
        let services = self.node.journal.services();
        let services = services.into_iter().map(|(id, record)| service_info(id, record)).collect();
        let message = proto::ServiceList { metadata: None, services };
        Ok(Response::new(proto::ServiceListResponse { messages: vec![message] }))
    }

    async fn etcd_member_list(
        &self,
        _: Request<proto::EtcdMemberListRequest>,
    ) -> Reply<proto::EtcdMemberListResponse> {
        let (_, cluster) = self.etcd_cluster("member list")?;
        let members = cluster.members.iter().map(|member| proto::EtcdMember {
            id: member.id,
            // etcd knows the name only once the process has announced it.
            hostname: if member.running || !member.learner { member.name.clone() } else { String::new() },
            peer_urls: vec![format!("https://{}", socket(member.address, 2380))],
            client_urls: vec![format!("https://{}", socket(member.address, 2379))],
            is_learner: member.learner,
        });
        let message =
            proto::EtcdMembers { metadata: None, legacy_members: Vec::new(), members: members.collect() };
        Ok(Response::new(proto::EtcdMemberListResponse { messages: vec![message] }))
    }

    async fn etcd_status(&self, _: Request<()>) -> Reply<proto::EtcdStatusResponse> {
        let (member, cluster) = self.etcd_cluster("status")?;
        let leader = cluster.leader().unwrap_or(0);
        let status = proto::EtcdMemberStatus {
            protocol_version: "3.5.17".to_string(),
            db_size: 2_400_256,
            db_size_in_use: 1_200_128,
            leader,
            raft_index: cluster.index,
            raft_term: cluster.term,
            raft_applied_index: cluster.index,
            errors: if leader == 0 { vec!["etcdserver: no leader".to_string()] } else { Vec::new() },
            is_learner: cluster.members.iter().any(|one| one.id == member.id && one.learner),
            member_id: member.id,
            storage_version: String::new(),
        };
        let message = proto::EtcdStatus { metadata: None, member_status: Some(status) };
        Ok(Response::new(proto::EtcdStatusResponse { messages: vec![message] }))
    }

    async fn etcd_remove_member_by_id(
        &self,
        request: Request<proto::EtcdRemoveMemberByIdRequest>,
    ) -> Reply<proto::EtcdRemoveMemberByIdResponse> {
        let id = request.into_inner().member_id;
        let (member, _) = self.etcd_cluster("member removal")?;
        let world = self.world()?;
        let outcome = world.etcd().remove(member.cluster, id);
        outcome.map_err(|why| Status::unknown(format!("failed to remove member {id:016x}: {why}")))?;
        let gone = Member { cluster: member.cluster, id };
        for node in world.all_nodes() {
            if node.machine().disk.etcd == Some(gone) {
                node.etcd_removed();
            }
        }
        let message = proto::EtcdRemoveMemberById::default();
        Ok(Response::new(proto::EtcdRemoveMemberByIdResponse { messages: vec![message] }))
    }

    async fn kubeconfig(&self, _: Request<()>) -> Reply<BoxStream<Data>> {
        self.control_plane_only("kubeconfig")?;
        let machine = self.node.machine();
        let config = machine.config().ok_or_else(|| Status::unavailable("the node has no configuration"))?;
        let bytes = kubeconfig::archive(config)?;
        Ok(once(data(bytes)))
    }

    async fn list(&self, request: Request<proto::ListRequest>) -> Reply<BoxStream<proto::FileInfo>> {
        let request = request.into_inner();
        let deep = request.recurse && request.recursion_depth != 1;
        let found = self.list_files(&request.root, deep)?;
        Ok(Response::new(Box::pin(tokio_stream::iter(found.into_iter().map(Ok)))))
    }

    async fn read(&self, request: Request<proto::ReadRequest>) -> Reply<BoxStream<Data>> {
        let text = self.read_file(&request.into_inner().path)?;
        Ok(once(data(text.into_bytes())))
    }

    async fn logs(&self, request: Request<proto::LogsRequest>) -> Reply<BoxStream<Data>> {
        let request = request.into_inner();
        let services = self.node.journal.services();
        let Some(record) = services.get(request.id.as_str()) else {
            return Err(Status::unknown(format!("log {:?} was not registered", request.id)));
        };
        let lines = record.history.iter().map(|(at, state, message)| {
            format!("{at} SIMULATED {}: {} ({message})\n", request.id, state.name())
        });
        let mut lines: Vec<String> = lines.collect();
        if let Ok(tail) = usize::try_from(request.tail_lines) {
            lines.drain(..lines.len().saturating_sub(tail));
        }
        let items: Vec<_> = lines.into_iter().map(|line| Ok(data(line.into_bytes()))).collect();
        if !request.follow {
            return Ok(Response::new(Box::pin(tokio_stream::iter(items))));
        }
        // Nothing more is ever said, but a follower stays until one of the two goes.
        let (sender, receiver) = mpsc::channel(items.len().max(1));
        items.into_iter().for_each(|item| {
            let _ = sender.try_send(item);
        });
        tokio::spawn(async move { sender.closed().await });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn dmesg(&self, request: Request<proto::DmesgRequest>) -> Reply<BoxStream<Data>> {
        let request = request.into_inner();
        let node = self.node.clone();
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            let (boot, mut changed) = (node.journal.boot(), node.journal.watch());
            let all = node.journal.log_from(boot, 0).map_or(0, |lines| lines.len());
            let mut next = if request.tail && request.follow { all } else { 0 };
            while let Some(lines) = node.journal.log_from(boot, next) {
                next += lines.len();
                for line in lines {
                    if sender.send(Ok(data(line.into_bytes()))).await.is_err() {
                        return;
                    }
                }
                if !request.follow || !wait(&sender, &mut changed).await {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn events(&self, request: Request<proto::EventsRequest>) -> Reply<BoxStream<proto::Event>> {
        let request = request.into_inner();
        let node = self.node.clone();
        let (sender, receiver) = mpsc::channel(64);
        // The hello tells the client that it is subscribed before anything else happens.
        let hello = proto::Event { data: Some(prost_types::Any::default()), ..proto::Event::default() };
        let _ = sender.try_send(Ok(hello));
        let boot = node.journal.boot();
        let past = node.journal.events_from(boot, 0).unwrap_or_default();
        let mut next = first_event(&request, &past);
        tokio::spawn(async move {
            let mut changed = node.journal.watch();
            while let Some(events) = node.journal.events_from(boot, next) {
                next += events.len();
                for Recorded { event, .. } in events {
                    let wanted = request.with_actor_id.is_empty() || event.actor_id == request.with_actor_id;
                    if wanted && sender.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
                if !wait(&sender, &mut changed).await {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Api {
    async fn ask(&self, input: Input) -> Result<(), Status> {
        match self.node.tell(input).await {
            Answer::Refused { code, message } => Err(refused(code, message)),
            Answer::Done | Answer::Applied { .. } => Ok(()),
        }
    }

    fn world(&self) -> Result<std::sync::Arc<crate::world::Shared>, Status> {
        self.node.world.upgrade().ok_or_else(|| Status::unavailable("the simulated world has ended"))
    }

    fn actor(&self) -> String {
        self.node.world.upgrade().map(|world| world.random().uuid()).unwrap_or_default()
    }

    fn control_plane_only(&self, what: &str) -> Result<(), Status> {
        if self.node.machine().role() == Some(Role::ControlPlane) {
            return Ok(());
        }
        Err(Status::unimplemented(format!("{what} is only available on control plane nodes")))
    }

    /// This node's member and its cluster, as etcd's own API would show them.
    fn etcd_cluster(&self, what: &str) -> Result<(Member, Cluster), Status> {
        self.control_plane_only(what)?;
        let machine = self.node.machine();
        let member = match (&machine.run.etcd, machine.disk.etcd) {
            (Etcd::Running { .. }, Some(member)) => member,
            (_, Some(_)) => {
                let address = socket(self.node.options.address, 2379);
                return Err(Status::unknown(format!(
                    "error building etcd client: dial tcp {address}: connect: connection refused"
                )));
            }
            (_, None) => {
                return Err(Status::unknown(
                    "error getting etcd endpoints: no controlplane endpoints discovered yet",
                ));
            }
        };
        let world = self.world()?;
        let cluster = world.etcd().cluster(member.cluster).cloned();
        let cluster = cluster.ok_or_else(|| Status::unknown("etcdserver: member not found"))?;
        if !cluster.has_quorum() && what != "status" {
            return Err(Status::deadline_exceeded("context deadline exceeded"));
        }
        Ok((member, cluster))
    }

    /// Two members, or one that is down, forbid an upgrade of a control plane.
    fn may_upgrade(&self, force: bool) -> Result<(), Status> {
        if force || self.node.machine().role() != Some(Role::ControlPlane) {
            return Ok(());
        }
        let (_, cluster) = self.etcd_cluster("upgrade")?;
        let problem = if cluster.members.len() == 2 {
            "etcd member count is 2; upgrading one would break the quorum"
        } else if cluster.members.iter().any(|member| !member.running) {
            "an etcd member is not healthy"
        } else {
            return Ok(());
        };
        Err(Status::unknown(format!("error validating etcd for upgrade: {problem}")))
    }
}

fn not_simulated(what: &str) -> Status {
    Status::unimplemented(format!("simulated node: {what} is not simulated"))
}

fn socket(address: std::net::IpAddr, port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address, port)
}

fn data(bytes: Vec<u8>) -> Data {
    Data { metadata: None, bytes: bytes.into() }
}

fn once(one: Data) -> Response<BoxStream<Data>> {
    Response::new(Box::pin(tokio_stream::iter([Ok(one)])))
}

/// Waits for something new; `false` when the reader has gone.
async fn wait<T>(
    sender: &mpsc::Sender<Result<T, Status>>,
    changed: &mut tokio::sync::watch::Receiver<u64>,
) -> bool {
    tokio::select! {
        () = sender.closed() => false,
        outcome = changed.changed() => outcome.is_ok(),
    }
}

/// Which event a stream starts with: a number of past ones (negative: all), those after an id, those of some seconds, or
/// only what is new.
fn first_event(request: &proto::EventsRequest, past: &[Recorded]) -> usize {
    let all = past.len();
    if request.tail_events < 0 {
        return 0;
    }
    if let (1.., Ok(count)) = (request.tail_events, usize::try_from(request.tail_events)) {
        return all.saturating_sub(count);
    }
    if !request.tail_id.is_empty() {
        return past.iter().position(|one| one.event.id == request.tail_id).map_or(0, |at| at + 1);
    }
    if let (1.., Ok(seconds)) = (request.tail_seconds, u64::try_from(request.tail_seconds)) {
        let since = jiff::Timestamp::now() - Duration::from_secs(seconds);
        return past.iter().position(|one| one.at >= since).unwrap_or(all);
    }
    all
}

fn service_info(id: &str, record: ServiceRecord) -> proto::ServiceInfo {
    let events = record.history.iter().map(|(at, state, message)| proto::ServiceEvent {
        msg: message.clone(),
        state: state.name().to_string(),
        ts: Some(stamp(*at)),
    });
    proto::ServiceInfo {
        id: id.to_string(),
        state: record.state.name().to_string(),
        events: Some(proto::ServiceEvents { events: events.collect() }),
        health: Some(proto::ServiceHealth {
            unknown: record.healthy.is_none(),
            healthy: record.healthy.unwrap_or(false),
            last_message: record.health_message,
            last_change: Some(stamp(record.health_changed)),
        }),
    }
}

/// Named partitions, or the whole system disk.
fn wipe(request: &proto::ResetRequest) -> Result<Wipe, Status> {
    if request.mode() == WipeMode::UserDisks {
        return Err(not_simulated("Reset of user disks alone"));
    }
    if request.system_partitions_to_wipe.is_empty() {
        return Ok(Wipe { everything: true, state: true, ephemeral: true });
    }
    let mut wipe = Wipe { everything: false, state: false, ephemeral: false };
    for partition in request.system_partitions_to_wipe.iter().filter(|partition| partition.wipe) {
        match partition.label.as_str() {
            "STATE" => wipe.state = true,
            "EPHEMERAL" => wipe.ephemeral = true,
            "META" => {}
            label => return Err(Status::unknown(format!("label {label:?} not found"))),
        }
    }
    Ok(wipe)
}
