//! Lives of the controllers: each opens the embedded API in a folder on disk, and leaves nothing behind but that folder.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses its part")]

#[path = "../support/ask.rs"]
#[allow(clippy::duplicate_mod, reason = "some tests have both")]
mod ask;
mod folder;
mod golden;
mod inventory;
mod journal;
mod place;

pub(crate) use ask::provider;
pub use folder::Image;
pub use golden::golden;
pub use inventory::Inventory;
pub use journal::{Journal, inventories};
pub use place::Place;

use butler_api::{ButlerConfig, ClusterBootstrap, ClusterBootstrapPhase as Phase, ProviderConfig};
use butler_apiserver::{HistoryLimits, Options, Server, User};
use butler_controllers::addons::StandIns;
use butler_controllers::{Context, Deadlines, RealInfrastructures, run};
use butler_drivers::{Connection, SharedRecorder};
use butler_sim::DataCentre;
use butler_talos::client::Settings;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const NAMESPACE: &str = "butler-system";
/// The cluster of all these tests.
pub const CLUSTER: &str = "prod";

/// Controllers on an API in a folder. Dropped with its runtime, it is dead: nothing is said to anybody.
pub struct Life {
    pub server: Server,
    pub client: Client,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

/// How long an unanswered call is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience(pub Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl Life {
    /// Opens what is on disk and lets the controllers go on with it.
    pub async fn begin(
        folder: &Path,
        data_centre: &DataCentre,
        recorder: SharedRecorder,
        patience: Patience,
    ) -> Life {
        let (server, client) = open(folder).await;
        let context = context(client.clone(), data_centre, recorder, patience);
        Self::with(server, context)
    }

    /// The same with other wiring.
    pub fn with(server: Server, context: Context) -> Life {
        let client = context.client.clone();
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let task = tokio::spawn(async move { run(context, stop).await.unwrap() });
        Life { server, client, shutdown, task }
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Waits until the cluster is ready.
    pub async fn ready(&self) {
        let api: Api<ClusterBootstrap> = self.api();
        await_condition(api, CLUSTER, |cb: Option<&ClusterBootstrap>| phase(cb) == Some(Phase::Ready))
            .await
            .unwrap();
    }

    /// Waits until the cluster is gone.
    pub async fn gone(&self) {
        let api: Api<ClusterBootstrap> = self.api();
        await_condition(api, CLUSTER, |cb: Option<&ClusterBootstrap>| cb.is_none()).await.unwrap();
    }

    pub async fn cluster(&self) -> Option<ClusterBootstrap> {
        self.api::<ClusterBootstrap>().get_opt(CLUSTER).await.unwrap()
    }

    /// The text of a Secret's key.
    pub async fn secret(&self, name: &str, key: &str) -> Option<String> {
        let secret = self.api::<Secret>().get_opt(name).await.unwrap()?;
        secret.data.and_then(|mut data| data.remove(key)).map(|value| String::from_utf8(value.0).unwrap())
    }

    /// Ends in order.
    pub async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

pub fn phase(cluster: Option<&ClusterBootstrap>) -> Option<Phase> {
    cluster.and_then(|cluster| cluster.status.as_ref()).and_then(|status| status.phase)
}

/// Opens the API; the first time, our kinds and our namespace are put in.
pub async fn open(folder: &Path) -> (Server, Client) {
    let options =
        Options { data_dir: folder.to_owned(), hosts: Vec::new(), history: HistoryLimits::default() };
    let server = Server::open(options).await.unwrap();
    let client = Client::new(server.service(User::new("test", &["system:masters"])), NAMESPACE);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    if namespaces.get_opt(NAMESPACE).await.unwrap().is_none() {
        let crds = Api::all(client.clone());
        for crd in butler_api::crds() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(NAMESPACE.to_owned());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    (server, client)
}

/// Ordinary wiring, with short pauses between tries: tests would only wait for them.
pub fn context(
    client: Client,
    data_centre: &DataCentre,
    recorder: SharedRecorder,
    Patience(call_timeout): Patience,
) -> Context {
    let proxy = data_centre.proxy_url();
    let connection = Connection {
        ca_pem: Some(data_centre.ca_pem()),
        proxy: Some(proxy.clone()),
        call_timeout,
        recorder: recorder.clone(),
        ..Connection::default()
    };
    let talos = Settings {
        proxy: Some(proxy.parse().unwrap()),
        retry: (Duration::from_millis(10), Duration::from_millis(100)),
        call_timeout,
        ..Settings::default()
    };
    Context {
        client,
        infrastructures: Arc::new(RealInfrastructures(connection)),
        talos: Arc::new(talos),
        target_proxy: Some(proxy),
        recorder,
        sources: Arc::new(StandIns),
        clock: Arc::new(jiff::Timestamp::now),
        deadlines: Deadlines {
            call: call_timeout,
            resync: Duration::from_secs(5),
            slow_retry: Duration::from_millis(50),
            longest_retry: Duration::from_millis(200),
            settling: Duration::from_millis(500),
            ..Deadlines::default()
        },
    }
}

async fn create<K>(client: &Client, object: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// What a user asks for: provider, credentials and cluster.
pub async fn ask(client: &Client, data_centre: &DataCentre, place: Place, cluster: Value) {
    let credentials = place.credentials(data_centre);
    create::<Secret>(client, json!({"metadata": {"name": "creds"}, "stringData": credentials})).await;
    create::<ProviderConfig>(client, place.provider(data_centre)).await;
    if let Some(settings) = place.settings() {
        let settings: ButlerConfig = serde_json::from_value(settings).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &settings).await.unwrap();
    }
    create::<ClusterBootstrap>(client, cluster).await;
}

/// Secrets that a user brings, so that none are drawn.
pub async fn given_secrets(client: &Client, secrets: &str) {
    let name = format!("{CLUSTER}-talos-secrets");
    create::<Secret>(client, json!({"metadata": {"name": name}, "stringData": {"secrets.yaml": secrets}}))
        .await;
}

/// A highly available cluster with so many workers; `extra` is laid over its spec.
pub fn cluster(workers: u32, extra: Value) -> Value {
    ask::cluster(CLUSTER, workers, extra)
}
