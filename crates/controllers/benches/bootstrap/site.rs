//! A home for the objects, and one data centre with room for as many clusters as are wanted.

use crate::support::{Home, Life, NAMESPACE, SECRETS};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase, ProviderConfig};
use butler_controllers::addons::StandIns;
use butler_controllers::{Context, Deadlines, RealInfrastructures};
use butler_drivers::{Call, Connection, Recorder};
use butler_sim::proxmox::ProxmoxSite;
use butler_sim::{DataCentre, DataCentreOptions};
use butler_talos::SecretsBundle;
use butler_talos::client::Settings;
use butler_talos::pki::{BACKDATE, CA_LIFE, Ca, KeyAlgorithm};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Nobody waits longer for a cluster.
const PATIENCE: Duration = Duration::from_secs(600);
/// Nothing varies: the critical path is then the table's.
const STEADY: u64 = 0;

pub(crate) struct Site {
    pub(crate) home: Home,
    pub(crate) data_centre: DataCentre,
    pub(crate) calls: Arc<Calls>,
}

/// Every call to the outside: how many there were, and each of them where somebody wants to see them.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) made: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) all: Mutex<Vec<Call>>,
}

impl Recorder for Calls {
    fn record(&self, call: Call) {
        *self.made.lock().entry(call.system).or_default() += 1;
        if crate::timeline::wanted() {
            self.all.lock().push(call);
        }
    }
}

impl Site {
    pub(crate) async fn new(speed: f64, clusters: usize) -> Site {
        let home = Home::new().await;
        let options =
            DataCentreOptions { seed: STEADY, speed, ..DataCentreOptions::for_site(room(clusters)) };
        let data_centre = DataCentre::start(options).await.unwrap();
        for number in 0..clusters {
            provide(&home, number).await;
        }
        Site { home, data_centre, calls: Arc::default() }
    }

    /// Secrets of a cluster: its own, or else all clusters would be one.
    pub(crate) async fn given_secrets(&self, number: usize) {
        let secret = json!({
            "metadata": {"name": format!("{}-talos-secrets", name(number))},
            "stringData": {"secrets.yaml": secrets(number).to_yaml()},
        });
        self.home.create::<Secret>(secret).await;
    }

    /// The controllers, as butleradm sets them up.
    pub(crate) fn start(&self) -> Life {
        let proxy = self.data_centre.proxy_url();
        let connection = Connection {
            ca_pem: Some(self.data_centre.ca_pem()),
            proxy: Some(proxy.clone()),
            recorder: self.calls.clone(),
            ..Connection::default()
        };
        let talos = Settings { proxy: Some(proxy.parse().unwrap()), ..Settings::default() };
        self.home.start(Context {
            talos: Arc::new(talos),
            target_proxy: Some(proxy),
            sources: Arc::new(StandIns),
            deadlines: Deadlines::default(),
            recorder: self.calls.clone(),
            ..self.home.context(Arc::new(RealInfrastructures(connection)))
        })
    }

    pub(crate) async fn create(&self, number: usize) {
        self.home.create::<ClusterBootstrap>(cluster(number)).await;
    }

    pub(crate) async fn ready(&self, number: usize) {
        let api: Api<ClusterBootstrap> = self.home.api();
        let name = name(number);
        let ready = |object: Option<&ClusterBootstrap>| {
            let phase = object.and_then(|object| object.status.as_ref()?.phase);
            assert_ne!(phase, Some(ClusterBootstrapPhase::Failed), "{:?}", object.map(|o| &o.status));
            phase == Some(ClusterBootstrapPhase::Ready)
        };
        let waited = tokio::time::timeout(PATIENCE, await_condition(api.clone(), &name, ready)).await;
        if !matches!(waited, Ok(Ok(_))) {
            let status =
                api.get(&name).await.map(|object| serde_json::to_string_pretty(&object.status).unwrap());
            panic!("{name} was not ready within {PATIENCE:?}: {status:?}");
        }
    }

    pub(crate) async fn stop(self) {
        self.data_centre.stop().await;
    }
}

pub(crate) fn name(number: usize) -> String {
    format!("mgmt-{number}")
}

/// Only the RSA key, which takes longest to draw, is the same in all of them.
fn secrets(number: usize) -> SecretsBundle {
    let now = jiff::Timestamp::now();
    let begin = now - BACKDATE;
    let ca = |algorithm, name| Ca::generate(algorithm, Some(name), begin, CA_LIFE).unwrap();
    let mut id = [7; 32];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SecretsBundle {
        cluster_id: butler_talos::Secret::new(URL_SAFE.encode(id)),
        cluster_secret: butler_talos::Secret::new(STANDARD.encode(id)),
        etcd: ca(KeyAlgorithm::P256, "etcd"),
        kubernetes: ca(KeyAlgorithm::P256, "kubernetes"),
        os: ca(KeyAlgorithm::Ed25519, "talos"),
        ..SecretsBundle::from_yaml(&SECRETS, now).unwrap()
    }
}

/// The built-in example, as large as it has to be: a /16, with machines from 10.40.64.0 by DHCP.
fn room(clusters: usize) -> ProxmoxSite {
    let mut site = ProxmoxSite::example();
    site.network.prefix = 16;
    site.network.dhcp = Some(([10, 40, 64, 1].into(), [10, 40, 127, 254].into()));
    let clusters = u32::try_from(clusters).unwrap();
    for node in &mut site.nodes {
        node.cpus = node.cpus.max(16 * clusters);
        node.memory = node.memory.max(u64::from(clusters) << 36);
    }
    for storage in &mut site.storages {
        storage.total = storage.total.max(u64::from(clusters) << 40);
    }
    site
}

async fn provide(home: &Home, number: usize) {
    let name = name(number);
    home.create::<Secret>(json!({
        "metadata": {"name": format!("{name}-proxmox-credentials"), "namespace": NAMESPACE},
        "stringData": {"token": "root@pam!butler", "tokenSecret": "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11"}
    }))
    .await;
    let start = 1000 + 100 * number;
    home.create::<ProviderConfig>(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
        "metadata": {"name": format!("{name}-provider")},
        "spec": {
            "provider": "proxmox",
            "credentialsRef": {"name": format!("{name}-proxmox-credentials")},
            "proxmox": {
                "endpoint": "https://pve.example.internal:8006",
                "nodes": ["pve1", "pve2", "pve3"], "storage": "ceph-vm", "templateID": 9000,
                "vmidRange": {"start": start, "end": start + 99},
            },
            "network": {"subnet": "10.40.0.0/16", "gateway": "10.40.0.1"},
        }
    }))
    .await;
}

fn cluster(number: usize) -> Value {
    let name = name(number);
    json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": name},
        "spec": {
            "provider": "proxmox",
            "providerRef": {"name": format!("{name}-provider")},
            "cluster": {
                "name": name, "topology": "ha",
                "controlPlane": {"replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 40},
                "workers": {"replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 60,
                            "extraDisks": [{"sizeGB": 100}], "labels": {"tier": "work"}},
            },
            "network": {
                "podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12",
                "vip": format!("10.40.{}.{}", 32 + number / 200, 1 + number % 200),
                "loadBalancerPool": {
                    "start": format!("10.40.{}.{}", 128 + number / 10, 1 + 20 * (number % 10)),
                    "end": format!("10.40.{}.{}", 128 + number / 10, 20 + 20 * (number % 10)),
                },
            },
            "talos": {
                "version": "v1.9.2",
                "schematic": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
            },
        }
    })
}
