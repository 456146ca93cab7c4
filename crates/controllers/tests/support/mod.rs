//! An embedded API with our kinds, the controllers on it, and an infrastructure that does as it is told.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod ask;
pub(crate) mod cloud;
pub(crate) mod site;

use async_trait::async_trait;
use butler_api::{ClusterBootstrap, MachineRequest, ProviderConfig, ProviderConfigSpec};
use butler_apiserver::{Server, User};
use butler_controllers::addons::{NoSources, StandIns};
use butler_controllers::{Context, Deadlines, Infrastructures, RealInfrastructures, run};
use butler_drivers::{
    Class, Connection, Credentials, Failure, Finding, ImageFacts, ImageWanted, Images, Infrastructure,
    MachineFacts, MachineTarget, MachineWanted, Machines, NoRecorder, Operation, OwnedResource, Preflight,
    PreflightWanted, Profile, Progress,
};
use butler_sim::DataCentre;
use butler_talos::SecretsBundle;
use butler_talos::client::Settings;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "butler-system";
/// Long, since it only counts when something is wrong, and computers that run tests are busy.
const PATIENCE: Duration = Duration::from_secs(240);

/// Drawing an RSA key takes a while, so that all tests of a process share one bundle.
pub(crate) static SECRETS: LazyLock<String> =
    LazyLock::new(|| SecretsBundle::generate(jiff::Timestamp::now()).unwrap().bundle.to_yaml());

/// An API with our kinds on it.
pub(crate) struct Home {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) scratch: tempfile::TempDir,
}

/// Controllers that run.
pub(crate) struct Life {
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Home {
    pub(crate) async fn new() -> Home {
        let scratch = tempfile::tempdir().unwrap();
        let server = Server::in_memory(scratch.path()).await.unwrap();
        let client = Client::new(server.service(User::new("test", &["system:masters"])), NAMESPACE);
        let crds = Api::all(client.clone());
        for crd in butler_api::crds() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let home = Home { server, client, scratch };
        let namespaces: Api<Namespace> = Api::all(home.client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(NAMESPACE.to_owned());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        home
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    /// A ProviderConfig with credentials beside it.
    pub(crate) async fn provider(&self, network: Value) {
        self.create::<Secret>(json!({
            "metadata": {"name": "creds"}, "stringData": {"token": "t@pve!x", "tokenSecret": "s3cret"}
        }))
        .await;
        self.create::<ProviderConfig>(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
            "metadata": {"name": "site"},
            "spec": {
                "provider": "proxmox",
                "credentialsRef": {"name": "creds"},
                "proxmox": {"endpoint": "https://pve.example:8006", "nodes": ["pve1"], "storage": "local-lvm", "templateID": 9000},
                "network": network,
            }
        }))
        .await;
    }

    /// The cluster's secrets, so that none are drawn.
    pub(crate) async fn given_secrets(&self, cluster: &str) {
        self.create::<Secret>(json!({
            "metadata": {"name": format!("{cluster}-talos-secrets")}, "stringData": {"secrets.yaml": *SECRETS}
        }))
        .await;
    }

    pub(crate) fn context(&self, infrastructures: Arc<dyn Infrastructures>) -> Context {
        Context {
            client: self.client.clone(),
            infrastructures,
            talos: Arc::new(Settings::default()),
            target_proxy: None,
            recorder: Arc::new(NoRecorder),
            sources: Arc::new(NoSources),
            clock: Arc::new(jiff::Timestamp::now),
            deadlines: quick(),
        }
    }

    /// The wiring for a simulated data centre, with short pauses between tries.
    pub(crate) fn context_in(&self, data_centre: &DataCentre) -> Context {
        let proxy = data_centre.proxy_url();
        let connection = Connection {
            ca_pem: Some(data_centre.ca_pem()),
            proxy: Some(proxy.clone()),
            ..Connection::default()
        };
        let talos = Settings {
            proxy: Some(proxy.parse().unwrap()),
            retry: (Duration::from_millis(10), Duration::from_millis(100)),
            ..Settings::default()
        };
        Context {
            talos: Arc::new(talos),
            target_proxy: Some(proxy),
            sources: Arc::new(StandIns),
            ..self.context(Arc::new(RealInfrastructures(connection)))
        }
    }

    pub(crate) fn start(&self, context: Context) -> Life {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let task = tokio::spawn(async move { run(context, stop).await.unwrap() });
        Life { shutdown, task }
    }

    /// Waits until an object is as it should be, and shows it as it is when it never gets there.
    pub(crate) async fn until<K>(&self, name: &str, good: impl Fn(&K) -> bool + Send + Sync + 'static) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize
            + Send
            + 'static,
    {
        let api: Api<K> = self.api();
        let wait = await_condition(api.clone(), name, move |object: Option<&K>| object.is_some_and(&good));
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => {
                let last = api.get_opt(name).await.unwrap();
                panic!("never got there: {}", serde_json::to_string_pretty(&last).unwrap());
            }
        }
    }

    pub(crate) async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize
            + Send
            + 'static,
    {
        let api: Api<K> = self.api();
        let wait = await_condition(api.clone(), name, |object: Option<&K>| object.is_none());
        if tokio::time::timeout(PATIENCE, wait).await.is_err() {
            let last = api.get_opt(name).await.unwrap();
            panic!("never gone: {}", serde_json::to_string_pretty(&last).unwrap());
        }
    }
}

impl Life {
    pub(crate) async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

/// Short pauses, so that tests need no patience.
pub(crate) fn quick() -> Deadlines {
    Deadlines {
        resync: Duration::from_millis(50),
        slow_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(200),
        settling: Duration::from_millis(50),
        ..Deadlines::default()
    }
}

/// What a MachineRequest is made from in tests.
pub(crate) fn machine_request(name: &str) -> Value {
    json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest",
        "metadata": {"name": name},
        "spec": {
            "providerRef": {"name": "site"}, "machineName": name, "role": "worker",
            "cpu": 2, "memoryMB": 4096, "diskGB": 20,
        }
    })
}

/// An answer of the scripted infrastructure.
pub(crate) type Answer<T> = Result<Progress<T>, Failure>;

/// An infrastructure that answers by script; without one, everything works at once.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) ensure: Mutex<VecDeque<Answer<MachineFacts>>>,
    pub(crate) find: Mutex<VecDeque<Result<Option<MachineFacts>, Failure>>>,
    pub(crate) delete: Mutex<VecDeque<Answer<()>>>,
    pub(crate) image: Mutex<VecDeque<Answer<ImageFacts>>>,
    pub(crate) image_delete: Mutex<VecDeque<Answer<()>>>,
    /// Every call, with its operation id.
    pub(crate) calls: Mutex<Vec<String>>,
    /// Machines that are there.
    pub(crate) there: Mutex<BTreeMap<String, MachineFacts>>,
}

/// Hands the same script to everybody.
pub(crate) struct Scripted(pub Arc<Script>);

impl Script {
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    fn note(&self, verb: &str, name: &str, operation: Option<&Operation>) {
        let operation = operation.map(|id| format!(" {}", id.0)).unwrap_or_default();
        self.calls.lock().push(format!("{verb} {name}{operation}"));
    }
}

pub(crate) fn up(address: &str) -> MachineFacts {
    MachineFacts {
        provider_id: "pve1/100".to_owned(),
        addresses: vec![address.parse().unwrap()],
        mac: Some("bc:24:11:00:00:01".to_owned()),
        running: true,
        ..MachineFacts::default()
    }
}

pub(crate) fn failure(class: Class, reason: &str) -> Failure {
    Failure::new(class, reason, format!("{reason} happened"), "mend it")
}

impl Infrastructures for Scripted {
    fn connect(&self, _: &ProviderConfigSpec, _: &Credentials) -> Result<Infrastructure, Failure> {
        Ok(Infrastructure {
            profile: Profile::of(butler_api::Provider::Proxmox),
            machines: Arc::new(Hands(self.0.clone())),
            images: Some(Arc::new(Hands(self.0.clone()))),
            load_balancers: None,
            preflight: Arc::new(Hands(self.0.clone())),
        })
    }
}

struct Hands(Arc<Script>);

#[async_trait]
impl Machines for Hands {
    async fn ensure(&self, wanted: &MachineWanted, operation: Option<&Operation>) -> Answer<MachineFacts> {
        self.0.note("ensure", &wanted.name, operation);
        let answer = self.0.ensure.lock().pop_front().unwrap_or_else(|| Ok(Progress::Ready(up("10.0.0.9"))));
        if let Ok(Progress::Ready(facts)) = &answer {
            self.0.there.lock().insert(wanted.name.clone(), facts.clone());
        }
        answer
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        self.0.note("find", &target.name, None);
        let scripted = self.0.find.lock().pop_front();
        scripted.unwrap_or_else(|| Ok(self.0.there.lock().get(&target.name).cloned()))
    }

    async fn delete(&self, target: &MachineTarget, operation: Option<&Operation>) -> Answer<()> {
        self.0.note("delete", &target.name, operation);
        let answer = self.0.delete.lock().pop_front().unwrap_or(Ok(Progress::Ready(())));
        if answer == Ok(Progress::Ready(())) {
            self.0.there.lock().remove(&target.name);
        }
        answer
    }

    async fn owned(&self, _: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Images for Hands {
    async fn ensure(&self, wanted: &ImageWanted, operation: Option<&Operation>) -> Answer<ImageFacts> {
        self.0.note("image", &format!("{} from {}", wanted.name, wanted.url), operation);
        let facts = ImageFacts { image_ref: format!("local:import/{}", wanted.name), sha256: None };
        self.0.image.lock().pop_front().unwrap_or(Ok(Progress::Ready(facts)))
    }

    async fn delete(&self, wanted: &ImageWanted, operation: Option<&Operation>) -> Answer<()> {
        self.0.note("image-delete", &wanted.name, operation);
        self.0.image_delete.lock().pop_front().unwrap_or(Ok(Progress::Ready(())))
    }

    async fn owned(&self, _: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Preflight for Hands {
    async fn check(&self, _: &PreflightWanted) -> Vec<Finding> {
        Vec::new()
    }
}

/// Whether a condition of an object has a status and a reason.
pub(crate) fn has(conditions: &[butler_api::Condition], type_: &str, holds: bool, reason: &str) -> bool {
    butler_api::find_condition(conditions, type_).is_some_and(|c| c.is_true() == holds && c.reason == reason)
}

pub(crate) fn machine_conditions(machine: &MachineRequest) -> &[butler_api::Condition] {
    machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

pub(crate) fn cluster_conditions(cluster: &ClusterBootstrap) -> &[butler_api::Condition] {
    cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// Names of all objects of a kind.
pub(crate) async fn names<K>(home: &Home) -> Vec<String>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = home.api();
    api.list(&Default::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}
