//! A whole server: storage, API, controllers, TLS front.

use crate::auth::{self, AccountKey, Authenticator, Pki, PkiError, StaticTokens, TokenFileError, User};
use crate::controllers;
use crate::engine::Engine;
use crate::http::ApiService;
use crate::serve;
use crate::store::{Durable, DurableError, HistoryLimits, Store};
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Settings of a server with a data directory.
#[derive(Debug, Clone)]
pub struct Options {
    /// Holds the objects, the certificates and the keys. Made when it is missing.
    pub data_dir: PathBuf,
    /// Further names and addresses that clients reach the server by.
    pub hosts: Vec<String>,
    pub history: HistoryLimits,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot make the data directory {}", path.display())]
    DataDir { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Storage(#[from] DurableError),
    #[error("cannot prepare the certificates in {}", path.display())]
    Pki { path: PathBuf, source: PkiError },
    #[error("cannot read the static tokens")]
    Tokens(#[from] TokenFileError),
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// A server that is ready to be served, or to be spoken to in this process.
pub struct Server {
    api: Api,
    pki: Arc<Pki>,
}

/// The API alone, on a store and keys that are given: whoever has it brings the TLS fronts, as many as they like.
/// Dropping it ends its controllers and watches.
pub struct Api {
    engine: Arc<Engine>,
    stop: watch::Sender<bool>,
}

/// A running server.
pub struct Running {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    front: tokio::task::JoinHandle<()>,
    store: Store,
    pki: Arc<Pki>,
}

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Server {
    /// Opens the data directory. Needs a tokio runtime: the controllers start at once.
    pub async fn open(options: Options) -> Result<Self, ServerError> {
        let Options { data_dir, hosts, history } = options;
        make_private_dir(&data_dir)
            .map_err(|source| ServerError::DataDir { path: data_dir.clone(), source })?;
        // The lock comes first: nothing else in the directory is touched while another server has it.
        let (journal, restored) = Durable::open(&data_dir.join("store"))?;
        let pki = Pki::open(&data_dir, &hosts)
            .map_err(|source| ServerError::Pki { path: data_dir.join("pki"), source })?;
        let tokens = match data_dir.join("tokens.csv") {
            path if path.exists() => StaticTokens::load(&path)?,
            _ => StaticTokens::parse("")?,
        };
        let store = Store::open(Box::new(journal), restored, history);
        Ok(Self::start(store, pki, tokens).await)
    }

    /// A server that forgets everything. `scratch` holds its certificates while it lives.
    pub async fn in_memory(scratch: &Path) -> Result<Self, ServerError> {
        let pki = Pki::open(scratch, &[])
            .map_err(|source| ServerError::Pki { path: scratch.to_path_buf(), source })?;
        Ok(Self::start(Store::in_memory(), pki, StaticTokens::parse("")?).await)
    }

    async fn start(store: Store, pki: Pki, tokens: StaticTokens) -> Self {
        let authenticator = Authenticator::new(tokens, pki.account_key().clone());
        Self { api: Api::start(store, authenticator, pki.ca_pem().to_string()).await, pki: Arc::new(pki) }
    }

    /// The API for a caller in this process that is known to be `user`: no socket, no TLS.
    pub fn service(&self, user: User) -> ApiService {
        self.api.service(user)
    }

    pub fn store(&self) -> &Store {
        self.api.store()
    }

    /// Serves on `listener` until [`Running::stop`].
    pub fn serve(self, listener: TcpListener) -> Result<Running, ServerError> {
        let tls = self
            .pki
            .server_config()
            .map_err(|source| ServerError::Pki { path: PathBuf::from("pki"), source })?;
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Listen { address: SocketAddr::from(([0, 0, 0, 0], 0)), source })?;
        let service = self.api.network_service();
        let Api { engine, stop } = self.api;
        let mut stopping = stop.subscribe();
        let shutdown = async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let front = tokio::spawn(serve::serve(listener, tls, service, shutdown));
        Ok(Running { address, stop, front, store: engine.store.clone(), pki: self.pki })
    }
}

impl Api {
    /// An API on a store. `ca_pem` is what it tells those who ask the cluster for its certificate authority.
    pub async fn open(
        store: Store,
        account_key: Arc<AccountKey>,
        ca_pem: String,
    ) -> Result<Self, ServerError> {
        let authenticator = Authenticator::new(StaticTokens::parse("")?, account_key);
        Ok(Self::start(store, authenticator, ca_pem).await)
    }

    async fn start(store: Store, authenticator: Authenticator, ca_pem: String) -> Self {
        let (stop, stopping) = watch::channel(false);
        let clock = Box::new(jiff::Timestamp::now);
        let engine = Arc::new(Engine::new(store, authenticator, ca_pem, clock, stopping));
        engine.provide(first_objects()).await;
        tokio::spawn(controllers::run(engine.clone()));
        Self { engine, stop }
    }

    /// The API for a caller in this process that is known to be `user`: no socket, no TLS.
    pub fn service(&self, user: User) -> ApiService {
        self.network_service().trusting(user)
    }

    /// The API for [`serve::serve`]: who calls is told by a client certificate or a token.
    pub fn network_service(&self) -> ApiService {
        ApiService::new(self.engine.clone())
    }

    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// Ends its controllers and every watch.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Running {
    pub fn url(&self) -> String {
        // "Every address" is none that a client could call.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Writes the administrator's kubeconfig, readable by its owner alone.
    pub fn write_kubeconfig(&self, path: &Path, context: &str) -> Result<(), PkiError> {
        self.pki.write_kubeconfig(path, &self.url(), context)
    }

    pub fn kubeconfig(&self, context: &str) -> String {
        self.pki.kubeconfig(&self.url(), context)
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Ends watches, finishes requests, makes everything durable.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.front.await;
        let store = self.store;
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
    }
}

/// What every cluster has from its first second.
fn first_objects() -> Vec<Value> {
    let mut out: Vec<Value> = NAMESPACES
        .iter()
        .map(|name| {
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        })
        .collect();
    out.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    }));
    out.extend(auth::default_rbac_objects());
    out
}

fn make_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
