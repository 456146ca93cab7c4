//! A client on one connection to one node: the calls, typed.

use std::{future::Future, sync::Arc};

use http::Uri;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::{
    address::{NodeAddress, Settings},
    error::{ClientError, ErrorClass, from_status},
    kubeconfig::unpack,
    open::{Opened, open},
    redact::redact,
    tls::{Access, Fingerprint},
    wire::Wire,
};
use crate::api::{
    cluster::cluster_service_client::ClusterServiceClient,
    cosi::resource::{self, state_client::StateClient},
    machine::{self, apply_configuration_request::Mode, machine_service_client::MachineServiceClient},
    storage::{self, storage_service_client::StorageServiceClient},
    time::{self, time_service_client::TimeServiceClient},
};
use crate::secret::Secret;

/// Talos' own limit, both ways.
const MESSAGE_LIMIT: usize = 32 << 20;

/// What ApplyConfiguration said. `details` may be shown: secrets of the config are taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub warnings: Vec<String>,
    /// What Talos chose to do; in maintenance mode always `REBOOT`.
    pub mode: Mode,
    pub details: String,
}

/// How a node is to be wiped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetOptions {
    /// Leave etcd first. Must be off for the last member.
    pub graceful: bool,
    /// Boot again after it, instead of power off.
    pub reboot: bool,
    /// Labels of system partitions (`STATE`, `EPHEMERAL`); empty means all.
    pub partitions: Vec<String>,
    pub user_disks: Vec<String>,
}

/// A connection to one node. Clones share it; a lost connection stays lost, and the caller makes a new one.
#[derive(Clone)]
pub struct Client {
    node: NodeAddress,
    wire: Wire,
    settings: Arc<Settings>,
    target: Option<String>,
    fingerprint: Option<Fingerprint>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("node", &self.node)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, and returns only after the node has accepted us.
    pub async fn connect(
        node: &NodeAddress,
        access: &Access,
        settings: Arc<Settings>,
    ) -> Result<Self, ClientError> {
        let opened =
            open(node, access, &settings).await.map_err(|error| error.into_error("connect", node))?;
        Self::over(opened, node, settings).await
    }

    pub(super) async fn over(
        opened: Opened,
        node: &NodeAddress,
        settings: Arc<Settings>,
    ) -> Result<Self, ClientError> {
        let fail = |text: String| ClientError::new("connect", node, ErrorClass::NotThereYet, text);
        let origin = Uri::builder()
            .scheme("https")
            .authority(node.authority())
            .path_and_query("/")
            .build()
            .map_err(|error| fail(error.to_string()))?;
        let fingerprint = opened.fingerprint.clone();
        let wire = Wire::start(opened, origin).await.map_err(|error| fail(error.to_string()))?;
        Ok(Self { node: node.clone(), wire, settings, target: None, fingerprint })
    }

    pub fn node(&self) -> &NodeAddress {
        &self.node
    }

    /// Of the node's key, as it was shown on this connection.
    pub fn fingerprint(&self) -> Option<&Fingerprint> {
        self.fingerprint.as_ref()
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same connection, asking this node to pass every call on to `node` (an address without port). Control planes only.
    pub fn targeting(&self, node: &str) -> Self {
        Self { target: Some(node.to_owned()), ..self.clone() }
    }

    pub fn is_closed(&self) -> bool {
        self.wire.is_over()
    }

    /// Ends when the node goes away, or closes the connection.
    pub async fn closed(&self) {
        self.wire.over().await;
    }

    /// The machine config, applied as Talos sees fit (`AUTO`), or with `dry_run` only checked.
    pub async fn apply_configuration(&self, config: &str, dry_run: bool) -> Result<Applied, ClientError> {
        let request = machine::ApplyConfigurationRequest {
            data: config.as_bytes().to_vec(),
            mode: Mode::Auto.into(),
            dry_run,
            try_mode_timeout: None,
        };
        let operation = "ApplyConfiguration";
        let call = async {
            let mut client = self.machine();
            // Redacted before it becomes an error: Talos quotes what it does not like.
            client.apply_configuration(self.request(request)).await.map_err(|status| {
                let own = std::error::Error::source(&status).is_none();
                if own { Status::new(status.code(), redact(status.message(), config)) } else { status }
            })
        };
        let reply = self.first(operation, self.unary(operation, call).await?.messages)?;
        let mode = reply.mode();
        let warnings = reply.warnings.iter().map(|warning| redact(warning, config)).collect();
        Ok(Applied { warnings, mode, details: redact(&reply.mode_details, config) })
    }

    /// Makes a new etcd on this node. Use [`super::bootstrap_guard`] first: Talos itself lets a second node do it too.
    pub async fn bootstrap(&self) -> Result<(), ClientError> {
        let request = machine::BootstrapRequest::default();
        let mut client = self.machine();
        self.unary("Bootstrap", client.bootstrap(self.request(request))).await.map(drop)
    }

    /// The administrator's kubeconfig, made by the node.
    pub async fn kubeconfig(&self) -> Result<Secret, ClientError> {
        let operation = "Kubeconfig";
        let mut client = self.machine();
        let archive = self
            .limited(operation, async {
                let mut stream = client.kubeconfig(self.request(())).await?.into_inner();
                let mut archive = Vec::new();
                while let Some(part) = stream.message().await? {
                    archive.extend_from_slice(&part.bytes);
                }
                Ok(archive)
            })
            .await?;
        unpack(&archive).map_err(|why| ClientError::new(operation, &self.node, ErrorClass::Other, why))
    }

    pub async fn version(&self) -> Result<machine::Version, ClientError> {
        let mut client = self.machine();
        let reply = self.unary("Version", client.version(self.request(()))).await?;
        self.first("Version", reply.messages)
    }

    pub async fn service_list(&self) -> Result<Vec<machine::ServiceInfo>, ClientError> {
        let mut client = self.machine();
        let reply = self.unary("ServiceList", client.service_list(self.request(()))).await?;
        Ok(self.first("ServiceList", reply.messages)?.services)
    }

    /// `query_local` asks this node's own etcd, and not whichever member answers: that shows a split brain.
    pub async fn etcd_member_list(&self, query_local: bool) -> Result<Vec<machine::EtcdMember>, ClientError> {
        let request = machine::EtcdMemberListRequest { query_local };
        let mut client = self.machine();
        let reply = self.unary("EtcdMemberList", client.etcd_member_list(self.request(request))).await?;
        Ok(self.first("EtcdMemberList", reply.messages)?.members)
    }

    pub async fn etcd_status(&self) -> Result<machine::EtcdMemberStatus, ClientError> {
        let mut client = self.machine();
        let reply = self.unary("EtcdStatus", client.etcd_status(self.request(()))).await?;
        let status = self.first("EtcdStatus", reply.messages)?.member_status;
        self.first("EtcdStatus", status.into_iter().collect())
    }

    pub async fn etcd_remove_member_by_id(&self, member_id: u64) -> Result<(), ClientError> {
        let request = machine::EtcdRemoveMemberByIdRequest { member_id };
        let mut client = self.machine();
        self.unary("EtcdRemoveMemberByID", client.etcd_remove_member_by_id(self.request(request)))
            .await
            .map(drop)
    }

    /// What is in a folder: the folder itself comes first, with the relative name `.`.
    pub async fn list(&self, folder: &str) -> Result<Vec<machine::FileInfo>, ClientError> {
        let request = machine::ListRequest { root: folder.to_owned(), ..Default::default() };
        let mut client = self.machine();
        self.limited("List", async {
            let mut stream = client.list(self.request(request)).await?.into_inner();
            let mut files = Vec::new();
            while let Some(file) = stream.message().await? {
                files.push(file);
            }
            Ok(files)
        })
        .await
    }

    /// The node's clock beside that of its time server.
    pub async fn time(&self) -> Result<time::Time, ClientError> {
        let mut client = TimeServiceClient::with_origin(self.wire.clone(), self.wire.origin());
        let reply = self.unary("Time", client.time(self.request(()))).await?;
        self.first("Time", reply.messages)
    }

    pub async fn disks(&self) -> Result<Vec<storage::Disk>, ClientError> {
        let mut client = StorageServiceClient::with_origin(self.wire.clone(), self.wire.origin())
            .max_decoding_message_size(MESSAGE_LIMIT);
        let reply = self.unary("Disks", client.disks(self.request(()))).await?;
        Ok(self.first("Disks", reply.messages)?.disks)
    }

    /// Returns the actor id, by which Events tell of the progress.
    pub async fn reset(&self, options: &ResetOptions) -> Result<String, ClientError> {
        let wipe = |label: &String| machine::ResetPartitionSpec { label: label.clone(), wipe: true };
        let request = machine::ResetRequest {
            graceful: options.graceful,
            reboot: options.reboot,
            system_partitions_to_wipe: options.partitions.iter().map(wipe).collect(),
            user_disks_to_wipe: options.user_disks.clone(),
            // The zero value wipes the system disk and the user disks that are named.
            mode: machine::reset_request::WipeMode::All.into(),
        };
        let mut client = self.machine();
        let reply = self.unary("Reset", client.reset(self.request(request))).await?;
        Ok(self.first("Reset", reply.messages)?.actor_id)
    }

    pub async fn reboot(&self) -> Result<String, ClientError> {
        let mut client = self.machine();
        let reply =
            self.unary("Reboot", client.reboot(self.request(machine::RebootRequest::default()))).await?;
        Ok(self.first("Reboot", reply.messages)?.actor_id)
    }

    /// Returns the actor id. Data is always preserved, which Talos before 1.8 has to be told.
    pub async fn upgrade(&self, image: &str, stage: bool, force: bool) -> Result<String, ClientError> {
        let request = machine::UpgradeRequest {
            image: image.to_owned(),
            preserve: true,
            stage,
            force,
            reboot_mode: machine::upgrade_request::RebootMode::Default.into(),
        };
        let mut client = self.machine();
        let reply = self.unary("Upgrade", client.upgrade(self.request(request))).await?;
        Ok(self.first("Upgrade", reply.messages)?.actor_id)
    }

    /// One resource of the node's own store.
    pub async fn resource(
        &self,
        namespace: &str,
        kind: &str,
        id: &str,
    ) -> Result<resource::Resource, ClientError> {
        let request = resource::GetRequest {
            namespace: namespace.to_owned(),
            r#type: kind.to_owned(),
            id: id.to_owned(),
            options: None,
        };
        let mut client = self.state();
        let reply = self.unary("cosi Get", client.get(self.request(request))).await?;
        self.first("cosi Get", reply.resource.into_iter().collect())
    }

    pub(super) fn machine(&self) -> MachineServiceClient<Wire> {
        MachineServiceClient::with_origin(self.wire.clone(), self.wire.origin())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT)
    }

    pub(super) fn state(&self) -> StateClient<Wire> {
        StateClient::with_origin(self.wire.clone(), self.wire.origin())
            .max_decoding_message_size(MESSAGE_LIMIT)
    }

    pub(super) fn cluster(&self) -> ClusterServiceClient<Wire> {
        ClusterServiceClient::with_origin(self.wire.clone(), self.wire.origin())
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(node) = self.target.as_ref().and_then(|node| node.parse().ok()) {
            request.metadata_mut().insert("node", node);
        }
        request
    }

    pub(super) fn failed(&self, operation: &'static str, status: &Status) -> ClientError {
        from_status(operation, &self.node, status)
    }

    async fn unary<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        self.limited(operation, async { Ok(call.await?.into_inner()) }).await
    }

    async fn limited<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, ClientError> {
        let limit = self.settings.call_timeout;
        match timeout(limit, call).await {
            Ok(answer) => answer.map_err(|status| self.failed(operation, &status)),
            Err(_) => {
                let message = format!("no answer within {limit:?}");
                Err(ClientError::new(operation, &self.node, ErrorClass::TimedOut, message))
            }
        }
    }

    /// Replies are lists with one entry per node; we ask one node.
    fn first<T>(&self, operation: &'static str, messages: Vec<T>) -> Result<T, ClientError> {
        messages.into_iter().next().ok_or_else(|| {
            ClientError::new(operation, &self.node, ErrorClass::Other, "the node sent an empty reply")
        })
    }
}
