//! A node for tests: the two TLS personalities of Talos on one port, and a few calls with answers that the test sets.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use http::{Request as HttpRequest, Response as HttpResponse};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::TcpListener,
    sync::broadcast,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status, async_trait, codegen::BoxStream};
use tower_service::Service;

use super::{Credentials, Fingerprint};
use crate::api::{
    common,
    cosi::resource::{self, state_server},
    machine::{self, machine_service_server},
};

pub(super) struct TestCa {
    pub(super) pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// Days from now between which a certificate is valid.
pub(super) type Days = (i64, i64);

pub(super) const VALID: Days = (-1, 1);

impl TestCa {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::OrganizationName, "talos");
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn leaf(
        &self,
        names: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        days: Days,
    ) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.extended_key_usages = vec![purpose];
        let at = |days: i64| {
            std::time::SystemTime::now()
                .checked_add(Duration::from_secs(400 * 86400))
                .unwrap()
                .checked_sub(Duration::from_secs(((400 - days) * 86400) as u64))
                .unwrap()
        };
        params.not_before = at(days.0).into();
        params.not_after = at(days.1).into();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate, key)
    }

    pub(super) fn credentials(&self, trusting: &TestCa, days: Days) -> Credentials {
        let (certificate, key) = self.leaf(&[], ExtendedKeyUsagePurpose::ClientAuth, days);
        // As Talos writes it.
        let key = key.serialize_pem().replace("PRIVATE KEY", "ED25519 PRIVATE KEY");
        Credentials::from_pem(&trusting.pem, &certificate.pem(), &key).unwrap()
    }

    fn server(
        &self,
        names: &[&str],
        clients: Option<&TestCa>,
        days: Days,
    ) -> (Arc<ServerConfig>, Fingerprint) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (certificate, key) = self.leaf(names, ExtendedKeyUsagePurpose::ServerAuth, days);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.der.clone()).unwrap();
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap(),
                )
            }
        };
        let der = certificate.der().clone();
        let fingerprint = Fingerprint::of(&der).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![der], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        (Arc::new(config), fingerprint)
    }
}

/// What the node answers; tests change it while it runs.
pub(super) struct Script {
    pub(super) maintenance: bool,
    pub(super) apply: Result<String, Status>,
    pub(super) applied: Vec<machine::ApplyConfigurationRequest>,
    /// The first is used up by each call; the last one stays.
    pub(super) bootstrap: VecDeque<Option<Result<(), Status>>>,
    pub(super) bootstraps: usize,
    pub(super) services: Vec<machine::ServiceInfo>,
    pub(super) etcd_files: Option<Vec<String>>,
    pub(super) learner: bool,
    pub(super) asked_for: Vec<Option<String>>,
}

#[derive(Clone)]
pub(super) struct Answers {
    pub(super) script: Arc<Mutex<Script>>,
    pub(super) events: broadcast::Sender<machine::Event>,
    pub(super) changes: broadcast::Sender<resource::Resource>,
}

pub(super) struct TestNode {
    pub(super) address: SocketAddr,
    pub(super) fingerprint: Fingerprint,
    pub(super) answers: Answers,
    running: Option<JoinHandle<()>>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(task) = self.running.take() {
            task.abort();
        }
    }
}

pub(super) fn service(id: &str, state: &str, health: Option<bool>) -> machine::ServiceInfo {
    let health = machine::ServiceHealth {
        unknown: health.is_none(),
        healthy: health.unwrap_or_default(),
        ..Default::default()
    };
    machine::ServiceInfo { id: id.to_owned(), state: state.to_owned(), health: Some(health), events: None }
}

impl TestNode {
    pub(super) async fn maintenance() -> Self {
        let (tls, fingerprint) = TestCa::new().server(&["maintenance-service.talos.dev"], None, VALID);
        let node = Self::start(tls, fingerprint).await;
        node.script(|script| script.maintenance = true);
        node
    }

    pub(super) async fn configured(ca: &TestCa) -> Self {
        Self::odd(ca, &["127.0.0.1", "node.test"], ca, VALID).await
    }

    /// With the server's names, the CA of its clients, and its validity chosen.
    pub(super) async fn odd(ca: &TestCa, names: &[&str], clients: &TestCa, days: Days) -> Self {
        let (tls, fingerprint) = ca.server(names, Some(clients), days);
        Self::start(tls, fingerprint).await
    }

    async fn start(tls: Arc<ServerConfig>, fingerprint: Fingerprint) -> Self {
        let answers = Answers {
            script: Arc::new(Mutex::new(Script {
                maintenance: false,
                apply: Ok(String::new()),
                applied: Vec::new(),
                bootstrap: VecDeque::from([Some(Ok(()))]),
                bootstraps: 0,
                services: vec![service("apid", "Running", Some(true)), service("etcd", "Preparing", None)],
                etcd_files: None,
                learner: false,
                asked_for: Vec::new(),
            })),
            events: broadcast::channel(64).0,
            changes: broadcast::channel(64).0,
        };
        let mut node = Self { address: ([127, 0, 0, 1], 0).into(), fingerprint, answers, running: None };
        node.listen(tls).await;
        node
    }

    async fn listen(&mut self, tls: Arc<ServerConfig>) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        self.running = Some(tokio::spawn(accept(listener, tls, self.answers.clone())));
    }

    /// Returns when the port is closed.
    pub(super) async fn stop(&mut self) {
        if let Some(task) = self.running.take() {
            task.abort();
            let _ = task.await;
        }
    }

    /// The port opens again, with the mTLS personality.
    pub(super) async fn come_back_configured(&mut self, ca: &TestCa) {
        self.script(|script| script.maintenance = false);
        let (tls, fingerprint) = ca.server(&["127.0.0.1"], Some(ca), VALID);
        self.fingerprint = fingerprint;
        self.listen(tls).await;
    }

    /// The port opens again, wiped.
    pub(super) async fn come_back_in_maintenance(&mut self) {
        self.script(|script| script.maintenance = true);
        let (tls, fingerprint) = TestCa::new().server(&["maintenance-service.talos.dev"], None, VALID);
        self.fingerprint = fingerprint;
        self.listen(tls).await;
    }

    pub(super) fn script<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.answers.script.lock().unwrap())
    }

    /// Sets a service and tells the listeners.
    pub(super) fn service_becomes(&self, info: machine::ServiceInfo) {
        let state = machine::ServiceStateEvent { service: info.id.clone(), ..Default::default() };
        self.script(|script| {
            script.services.retain(|old| old.id != info.id);
            script.services.push(info);
        });
        self.tell("ServiceStateEvent", state.encode_to_vec());
    }

    pub(super) fn tell(&self, name: &str, value: Vec<u8>) {
        let type_url = format!("{}{name}", crate::api::EVENT_TYPE_PREFIX);
        let data = Some(prost_types::Any { type_url, value });
        let _ = self.answers.events.send(machine::Event { data, ..Default::default() });
    }

    /// Until somebody listens to events (or to resources): what is told before is lost, as on a real node.
    pub(super) async fn listeners(&self, of_resources: bool) {
        let count = || {
            if of_resources {
                self.answers.changes.receiver_count()
            } else {
                self.answers.events.receiver_count()
            }
        };
        while count() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, answers: Answers) {
    // Dropped with this task: the connections end with the listener, as when a machine reboots.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (acceptor, answers) = (TlsAcceptor::from(tls.clone()), answers.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| dispatch(answers.clone(), request));
            let _ = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn dispatch(
    answers: Answers,
    request: HttpRequest<Incoming>,
) -> Result<HttpResponse<tonic::body::Body>, std::convert::Infallible> {
    let limit = 32 << 20;
    if request.uri().path().starts_with("/cosi.resource.State/") {
        return state_server::StateServer::new(answers).call(request).await;
    }
    machine_service_server::MachineServiceServer::new(answers)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit)
        .call(request)
        .await
}

impl Answers {
    fn script<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.script.lock().unwrap())
    }
}

#[async_trait]
impl machine_service_server::MachineService for Answers {
    async fn apply_configuration(
        &self,
        request: Request<machine::ApplyConfigurationRequest>,
    ) -> Result<Response<machine::ApplyConfigurationResponse>, Status> {
        self.script(|script| {
            script.applied.push(request.into_inner());
            let mode_details = script.apply.clone()?;
            let reply = machine::ApplyConfiguration { mode_details, ..Default::default() };
            Ok(Response::new(machine::ApplyConfigurationResponse { messages: vec![reply] }))
        })
    }

    async fn bootstrap(
        &self,
        _: Request<machine::BootstrapRequest>,
    ) -> Result<Response<machine::BootstrapResponse>, Status> {
        let answer = self.script(|script| {
            script.bootstraps += 1;
            if script.bootstrap.len() > 1 {
                script.bootstrap.pop_front()
            } else {
                script.bootstrap.front().cloned()
            }
        });
        match answer.flatten() {
            Some(answer) => answer?,
            // No answer at all.
            None => std::future::pending().await,
        }
        Ok(Response::new(machine::BootstrapResponse { messages: vec![machine::Bootstrap::default()] }))
    }

    async fn version(&self, request: Request<()>) -> Result<Response<machine::VersionResponse>, Status> {
        let target = request.metadata().get("node").map(|node| node.to_str().unwrap().to_owned());
        if self.script(|script| {
            script.asked_for.push(target);
            script.maintenance
        }) {
            return Err(Status::unimplemented("API is not implemented in maintenance mode"));
        }
        let version = machine::VersionInfo { tag: "v1.9.5".to_owned(), ..Default::default() };
        let reply = machine::Version { version: Some(version), ..Default::default() };
        Ok(Response::new(machine::VersionResponse { messages: vec![reply] }))
    }

    async fn service_list(&self, _: Request<()>) -> Result<Response<machine::ServiceListResponse>, Status> {
        let services = self.script(|script| script.services.clone());
        let reply = machine::ServiceList { metadata: None, services };
        Ok(Response::new(machine::ServiceListResponse { messages: vec![reply] }))
    }

    async fn etcd_status(&self, _: Request<()>) -> Result<Response<machine::EtcdStatusResponse>, Status> {
        let is_learner = self.script(|script| script.learner);
        let status = machine::EtcdMemberStatus { leader: 7, member_id: 7, is_learner, ..Default::default() };
        let reply = machine::EtcdStatus { metadata: None, member_status: Some(status) };
        Ok(Response::new(machine::EtcdStatusResponse { messages: vec![reply] }))
    }

    async fn kubeconfig(&self, _: Request<()>) -> Result<Response<BoxStream<common::Data>>, Status> {
        Err(Status::unimplemented("kubeconfig is only available on control plane nodes"))
    }

    async fn list(
        &self,
        request: Request<machine::ListRequest>,
    ) -> Result<Response<BoxStream<machine::FileInfo>>, Status> {
        let root = request.into_inner().root;
        let Some(files) = self.script(|script| script.etcd_files.clone()) else {
            return Err(Status::unknown(format!("lstat {root}: no such file or directory")));
        };
        let own =
            machine::FileInfo { name: root.clone(), relative_name: ".".to_owned(), ..Default::default() };
        let child = move |name: String| machine::FileInfo {
            name: format!("{root}/{name}"),
            relative_name: name,
            ..Default::default()
        };
        let all: Vec<_> = std::iter::once(own).chain(files.into_iter().map(child)).map(Ok).collect();
        Ok(Response::new(stream::iter(all).boxed()))
    }

    async fn events(
        &self,
        _: Request<machine::EventsRequest>,
    ) -> Result<Response<BoxStream<machine::Event>>, Status> {
        let hello = stream::iter([Ok(machine::Event::default())]);
        Ok(Response::new(hello.chain(following(self.events.subscribe())).boxed()))
    }
}

#[async_trait]
impl state_server::State for Answers {
    async fn watch(
        &self,
        _: Request<resource::WatchRequest>,
    ) -> Result<Response<BoxStream<resource::WatchResponse>>, Status> {
        let changes = following(self.changes.subscribe()).map(|resource| {
            let event = resource::Event { resource: Some(resource?), event_type: 1, ..Default::default() };
            Ok(resource::WatchResponse { event: vec![event] })
        });
        Ok(Response::new(changes.boxed()))
    }
}

fn following<T: Clone + Send + 'static>(
    receiver: broadcast::Receiver<T>,
) -> impl futures::Stream<Item = Result<T, Status>> + Send {
    stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.ok().map(|message| (Ok(message), receiver))
    })
}
