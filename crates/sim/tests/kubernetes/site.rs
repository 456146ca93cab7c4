//! A site for tests: a network, machines, and ways into it from outside.

use butler_sim::cluster::{Clusters, ClustersState};
use butler_sim::{
    Fabric, FaultScript, Gate, Media, Network, NodeHandle, NodeOptions, Stage, World, WorldOptions,
};
use butler_talos::client::{Credentials, Node, Settings, Wait, bootstrap_when_ready, wait_until_etcd};
use butler_talos::{
    ClusterIntent, Endpoint, NodeIntent, Role, SecretsBundle, TalosVersion, Talosconfig, admin_kubeconfig,
    render,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const VIP: &str = "10.40.0.200";
const VERSION: &str = "v1.9.2";

pub(crate) static SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);
pub(crate) static OTHER_SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);

pub(crate) struct Site {
    pub(crate) fabric: Fabric,
    pub(crate) world: World,
    pub(crate) gate: Gate,
    pub(crate) clusters: Clusters,
    pub(crate) nodes: BTreeMap<String, NodeHandle>,
}

/// What a test wants to be otherwise.
pub(crate) struct Wish {
    pub(crate) talos_vip: bool,
    pub(crate) schedule_on_control_planes: bool,
    pub(crate) change: fn(&mut ClusterIntent, &mut NodeIntent),
}

impl Default for Wish {
    fn default() -> Self {
        Self { talos_vip: false, schedule_on_control_planes: false, change: |_, _| {} }
    }
}

pub(crate) fn config(role: Role, name: &str, wish: &Wish) -> String {
    let endpoint = Endpoint::parse(&format!("https://{VIP}:6443")).unwrap();
    let mut cluster = ClusterIntent::new("c1", endpoint, TalosVersion::parse(VERSION).unwrap());
    cluster.schedule_on_control_planes = wish.schedule_on_control_planes;
    let mut node = NodeIntent::new(role, name);
    if wish.talos_vip && role == Role::ControlPlane {
        cluster.vip = Some(VIP.parse().unwrap());
        node.vip_link = Some(butler_talos::LinkName::Name("eth0".into()));
    }
    (wish.change)(&mut cluster, &mut node);
    render(&cluster, &node, &SECRETS).unwrap().to_yaml()
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::at_speed(0.0)
    }

    pub(crate) fn at_speed(speed: f64) -> Self {
        let fabric = Fabric::default();
        let world = World::on(Network::Fabric(fabric.clone()), WorldOptions { speed, seed: 7 });
        let gate = Gate::new(FaultScript::default());
        let clusters =
            Clusters::import(world.clone(), fabric.clone(), gate.clone(), speed, 7, ClustersState::default());
        Self { fabric, world, gate, clusters, nodes: BTreeMap::new() }
    }

    /// A machine that boots with its configuration.
    pub(crate) async fn add(&mut self, address: &str, name: &str, text: String) -> NodeHandle {
        let address: IpAddr = address.parse().unwrap();
        self.fabric.host_up(address);
        let options =
            NodeOptions { media: Media::DiskImage, user_data: Some(text), ..NodeOptions::new(address) };
        let node = self.world.add_node(options).await.unwrap();
        self.nodes.insert(name.to_string(), node.clone());
        node
    }

    /// Control planes cp1.. at 10.40.0.11.., workers w1.. at 10.40.0.21..; etcd is bootstrapped on cp1.
    pub(crate) async fn cluster(&mut self, control_planes: u8, workers: u8, wish: &Wish) {
        for number in 1..=control_planes {
            let name = format!("cp{number}");
            self.add(&format!("10.40.0.1{number}"), &name, config(Role::ControlPlane, &name, wish)).await;
        }
        for number in 1..=workers {
            let name = format!("w{number}");
            self.add(&format!("10.40.0.2{number}"), &name, config(Role::Worker, &name, wish)).await;
        }
        self.bootstrap("cp1").await;
        for node in self.nodes.values() {
            assert!(node.reaches(Stage::Running, PATIENCE).await, "{:?}", node.stage());
        }
        for number in 1..=control_planes {
            self.port(&format!("10.40.0.1{number}:6443"), true).await;
        }
        self.voters("cp1", usize::from(control_planes)).await;
    }

    /// Waits until so many members of etcd vote. The last one serves before it does, and until then two others are no
    /// majority without the third.
    async fn voters(&self, name: &str, wanted: usize) {
        let session = self.talos(name).await.connect().await.unwrap();
        let look = async {
            loop {
                let members = session.etcd_member_list(false).await.unwrap();
                if members.iter().filter(|member| !member.is_learner).count() == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("never {wanted} voters"));
    }

    /// Waits until a port is open, or closed.
    pub(crate) async fn port(&self, address: &str, open: bool) {
        let address = address.parse().unwrap();
        let look = async {
            while self.fabric.dial(address).is_ok() != open {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{address} open: {open}"));
    }

    /// Waits until no cluster is there: the last one is noticed to be gone some time after its port is closed.
    pub(crate) async fn no_cluster(&self) {
        let look = async {
            while !self.clusters.names().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{:?}", self.clusters.names()));
    }

    pub(crate) async fn bootstrap(&self, name: &str) {
        let node = self.talos(name).await;
        let wait = || Wait::new("etcd", (std::time::Instant::now() + PATIENCE).into());
        bootstrap_when_ready(&node, &wait()).await.unwrap();
        wait_until_etcd(&node, &wait()).await.unwrap();
    }

    /// Our Talos client for a node.
    pub(crate) async fn talos(&self, name: &str) -> Node {
        let address = self.nodes[name].address();
        let way = self.way(SocketAddr::new(address, 50000)).await;
        let settings = Settings { overrides: [(address.to_string(), way)].into(), ..Settings::default() };
        let now = Timestamp::now();
        let config =
            Talosconfig::generate("c1", Vec::new(), &SECRETS, now, Duration::from_secs(3600)).unwrap();
        let credentials = Credentials::from_context(config.get(None).unwrap()).unwrap();
        Node::new(SocketAddr::new(address, 50000).into(), Arc::new(settings)).with_credentials(credentials)
    }

    /// A port of this computer that leads to one inside.
    pub(crate) async fn way(&self, to: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let fabric = self.fabric.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Ok(mut far) = fabric.dial(to) else { continue };
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        address
    }

    /// The administrator's client, by the kubeconfig that is made offline, at a host inside.
    pub(crate) async fn admin(&self, host: &str) -> Client {
        self.client(host, host, &SECRETS).await
    }

    /// A client that dials one host and expects the certificate of another.
    pub(crate) async fn client(&self, host: &str, name: &str, secrets: &SecretsBundle) -> Client {
        let server = Endpoint::parse(&format!("https://{host}:6443")).unwrap();
        let life = Duration::from_secs(3600);
        let text = admin_kubeconfig("c1", &server, secrets, Timestamp::now(), life, None).unwrap();
        let kubeconfig = kube::config::Kubeconfig::from_yaml(text.expose()).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        let address = self.fabric.resolve(host).unwrap();
        let way = self.way(SocketAddr::new(address, 6443)).await;
        config.cluster_url = format!("https://{way}").parse().unwrap();
        config.tls_server_name = Some(name.to_string());
        config.connect_timeout = Some(Duration::from_secs(5));
        Client::try_from(config).unwrap()
    }

    pub(crate) async fn stop(self) {
        drop(self.clusters);
        self.world.stop().await;
    }
}

/// Server-side apply of one object.
pub(crate) async fn apply(client: &Client, object: Value) {
    let text =
        |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    let version = text("/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text("/kind")));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        empty if empty.is_empty() => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), &namespace, &resource),
    };
    api.patch(&text("/metadata/name"), &PatchParams::apply("test").force(), &Patch::Apply(&object))
        .await
        .unwrap();
}

/// Waits until a condition holds of an object, by a watch.
pub(crate) async fn until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(&Value) -> bool + Send + 'static,
) where
    K: kube::Resource
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Send
        + 'static,
{
    let condition = move |object: Option<&K>| {
        object.is_some_and(|object| holds(&serde_json::to_value(object).unwrap_or_default()))
    };
    let waited = tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await;
    if !matches!(waited, Ok(Ok(_))) {
        let found = api.get_opt(name).await;
        panic!("{name} never became {what}: {found:?}");
    }
}

pub(crate) async fn node_ready(client: &Client, name: &str, status: &'static str) {
    let api: Api<KubeNode> = Api::all(client.clone());
    until(api, name, &format!("Ready={status}"), move |node| condition(node, "Ready") == Some(status.into()))
        .await;
}

pub(crate) fn condition(object: &Value, kind: &str) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == kind)?["status"].as_str().map(ToString::to_string)
}

/// A DaemonSet that a node takes for its CNI.
pub(crate) fn cni() -> Value {
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "cilium", "namespace": "kube-system", "labels": {"k8s-app": "cilium"}},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "cilium"}},
            "template": {
                "metadata": {"labels": {"k8s-app": "cilium"}},
                "spec": {
                    "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "agent", "image": "example.org/cilium:v1"}],
                },
            },
        },
    })
}
