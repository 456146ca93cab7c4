//! The suite's world for Google Cloud: the simulated one, at Google's own names, reached through its proxy.

use crate::ground::{Ground, machine};
use crate::harness::{Balancing, Harness, Setup};
use butler_api::ProviderConfigSpec;
use butler_drivers::{Connection, Credentials, Infrastructure, MachineWanted, StaticAddress, connect};
use butler_sim::Proxy;
use butler_sim::balancer::BalancersState;
use butler_sim::gce::{Gce, GceHandle, GceSite};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::OnceLock;

const REGION: &str = "projects/rehearsal/regions/us-central1";

/// With backend services, as it is by default.
pub(crate) type GcpWorld = SimulatedGcp<false>;

/// With target pools.
pub(crate) type GcpPools = SimulatedGcp<true>;

pub(crate) struct SimulatedGcp<const POOLS: bool> {
    ground: Ground,
    pub(crate) gce: GceHandle,
    proxy: Proxy,
}

/// The same in all worlds: making its keys takes longer than most of the tests.
fn site() -> GceSite {
    static SITE: OnceLock<GceSite> = OnceLock::new();
    SITE.get_or_init(GceSite::example).clone()
}

pub(crate) fn config() -> ProviderConfigSpec {
    serde_json::from_value(json!({
        "provider": "gcp", "credentialsRef": {"name": "x"},
        "gcp": {"projectID": "rehearsal", "region": "us-central1", "subnetwork": "default", "externalAddress": false,
            "zones": ["us-central1-a", "us-central1-b", "us-central1-c"], "imageFamily": "talos"}
    }))
    .unwrap()
}

pub(crate) fn key() -> Credentials {
    let key = site().service_account_key().unwrap().to_owned();
    Credentials([("serviceAccountKey".to_owned(), key)].into())
}

/// Lines of the private key, which must be in nothing that is written down.
fn secret() -> &'static str {
    static SECRET: OnceLock<String> = OnceLock::new();
    SECRET.get_or_init(|| {
        let file: serde_json::Value = serde_json::from_str(site().service_account_key().unwrap()).unwrap();
        let pem = file["private_key"].as_str().unwrap().to_owned();
        pem.lines().nth(3).unwrap_or(&pem).chars().take(60).collect()
    })
}

impl<const POOLS: bool> SimulatedGcp<POOLS> {
    pub(crate) async fn with(site: GceSite) -> Self {
        let ground = Ground::new();
        let state = Gce::fresh(&site, 0.0, Ground::SEED);
        let gce = Gce::resume(state, ground.place(), BalancersState::default()).unwrap();
        let proxy = Proxy::open((Ipv4Addr::LOCALHOST, 0).into(), ground.fabric.clone()).await.unwrap();
        Self { ground, gce, proxy }
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection { proxy: Some(format!("http://{}", self.proxy.address())), ..self.ground.connection() }
    }

    fn paths(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let mut paths = self.gce.state().paths();
        paths.retain(|path| fits(path));
        paths.sort();
        paths
    }
}

fn is_machines(path: &str) -> bool {
    path.contains("/instances/") || path.contains("/disks/")
}

impl<const POOLS: bool> Harness for SimulatedGcp<POOLS> {
    async fn start(setup: Setup) -> Self {
        let world = Self::with(site()).await;
        world.gce.change(|state| {
            for name in &setup.foreign {
                let path = format!("projects/rehearsal/zones/us-central1-b/instances/{name}");
                state.add_foreign(&path, json!({"name": name, "status": "RUNNING", "description": "production"}));
            }
            if setup.foreign_balancer {
                let fields = json!({"name": "butler-lb-ip", "addressType": "EXTERNAL", "address": "203.0.113.77",
                    "status": "RESERVED", "description": "production"});
                state.add_foreign(&format!("{REGION}/addresses/butler-lb-ip"), fields);
            }
        });
        world
    }

    fn config() -> ProviderConfigSpec {
        config()
    }

    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn infrastructure(&self) -> Infrastructure {
        connect(&config(), &key(), &self.connection()).unwrap()
    }

    fn wanted(&self, name: &str, number: u8) -> MachineWanted {
        let address = Ipv4Addr::new(10, 128, 0, 30 + number).into();
        machine(name, number, StaticAddress { address, bits: 20, gateway: None, nameservers: Vec::new() })
    }

    fn secret(&self) -> &'static str {
        secret()
    }

    fn machines(&self) -> Vec<String> {
        let instances = self.paths(|path| path.contains("/instances/"));
        instances.iter().filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
    }

    fn volumes(&self) -> usize {
        self.paths(|path| path.contains("/disks/")).len()
    }

    async fn stop(self) {
        self.proxy.close().await;
        self.gce.stop().await;
        self.ground.world.stop().await;
    }
}

impl<const POOLS: bool> Balancing for SimulatedGcp<POOLS> {
    const SIDE_BY_SIDE: bool = true;

    fn settings() -> Value {
        let options = json!({"implementation": "target-pool", "healthCheck": {"protocol": "http"}});
        if POOLS { json!({"options": options, "healthCheckPort": 3990}) } else { json!({}) }
    }

    fn parts(&self) -> Vec<String> {
        self.paths(|path| !is_machines(path))
    }

    fn remove_listener(&self) {
        self.gce.change(|state| {
            assert!(state.take_away(&format!("{REGION}/forwardingRules/butler-lb-50000-fwd")))
        });
    }

    fn add_stranger(&self) -> String {
        let instance = "projects/rehearsal/zones/us-central1-a/instances/somebody";
        let holder = match POOLS {
            true => format!("{REGION}/targetPools/butler-lb-pool"),
            false => "projects/rehearsal/zones/us-central1-a/instanceGroups/butler-lb-cp".to_owned(),
        };
        self.gce.change(|state| {
            let cards = json!([{"networkIP": "10.128.0.99"}]);
            state.add_foreign(
                instance,
                json!({"name": "somebody", "status": "RUNNING", "networkInterfaces": cards}),
            );
            assert!(state.add_member(&holder, instance));
        });
        "somebody".to_owned()
    }
}
