//! A home for the objects beside a simulated cloud, and the cluster that is built in it.

use crate::calls::{self, Calls};
use crate::lives::{CLUSTER, Place};
use crate::support::{Home, Life};
use butler_api::names::load_balancer_name;
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase, LoadBalancerRequest, ProviderConfig};
use butler_controllers::addons::StandIns;
use butler_controllers::{Context, Deadlines, RealInfrastructures};
use butler_drivers::Connection;
use butler_sim::{DataCentre, DataCentreOptions};
use butler_talos::client::Settings;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::wait::{Condition, await_condition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nobody waits longer for a cluster.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Nothing varies: the lower bound is then the table's.
const STEADY: u64 = 0;

pub(crate) const CONTROL_PLANES: usize = 3;
const WORKERS: u32 = 3;

/// Seconds between a look that found all well and the beginning of an idle window: at least, and by the pauses of real life.
pub(crate) const AWAY: f64 = 3.0;
pub(crate) const AWAY_REAL: f64 = 10.0;

pub(crate) struct Site {
    pub(crate) home: Home,
    data_centre: DataCentre,
    place: Place,
    calls: Arc<Calls>,
}

/// Where counting begins.
pub(crate) struct Window {
    logged: u64,
    recorded: usize,
}

impl Site {
    pub(crate) async fn new(place: Place, speed: f64) -> Site {
        let home = Home::new().await;
        let options = DataCentreOptions { seed: STEADY, speed, ..place.options() };
        let data_centre = DataCentre::start(options).await.unwrap();
        let credentials = place.credentials(&data_centre);
        home.create::<Secret>(json!({"metadata": {"name": "creds"}, "stringData": credentials})).await;
        home.create::<ProviderConfig>(place.provider(&data_centre)).await;
        home.given_secrets(CLUSTER).await;
        Site { home, data_centre, place, calls: Arc::default() }
    }

    /// The controllers, as butleradm sets them up. What they look at from time to time they look at more often by `factor`.
    pub(crate) fn start(&self, factor: f64) -> Life {
        let proxy = self.data_centre.proxy_url();
        let connection = Connection {
            ca_pem: Some(self.data_centre.ca_pem()),
            proxy: Some(proxy.clone()),
            recorder: self.calls.clone(),
            ..Connection::default()
        };
        let talos = Settings { proxy: Some(proxy.parse().unwrap()), ..Settings::default() };
        let usual = Deadlines::default();
        self.home.start(Context {
            talos: Arc::new(talos),
            target_proxy: Some(proxy),
            sources: Arc::new(StandIns),
            deadlines: Deadlines { resync: usual.resync.div_f64(factor), ..usual },
            recorder: self.calls.clone(),
            ..self.home.context(Arc::new(RealInfrastructures(connection)))
        })
    }

    pub(crate) async fn create(&self) {
        let object = self.place.cluster(WORKERS, json!({}));
        self.home.create::<ClusterBootstrap>(object).await;
    }

    pub(crate) async fn ready(&self) {
        self.until(CLUSTER, |object: Option<&ClusterBootstrap>| {
            let phase = object.and_then(|object| object.status.as_ref()?.phase);
            assert_ne!(phase, Some(ClusterBootstrapPhase::Failed), "{:?}", object.map(|o| &o.status));
            phase == Some(ClusterBootstrapPhase::Ready)
        })
        .await;
    }

    /// All control planes are behind the load balancer and healthy, so that nothing is expected soon.
    pub(crate) async fn calm(&self) {
        self.until(&load_balancer_name(CLUSTER), |object: Option<&LoadBalancerRequest>| {
            let status = object.and_then(|object| object.status.clone()).unwrap_or_default();
            let all = |number: i32| usize::try_from(number) == Ok(CONTROL_PLANES);
            !status.listeners.is_empty() && status.listeners.iter().all(|one| all(one.healthy))
        })
        .await;
    }

    async fn until<K>(&self, name: &str, good: impl Condition<K>)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let api: Api<K> = self.home.api();
        let waited = tokio::time::timeout(PATIENCE, await_condition(api, name, good)).await;
        assert!(matches!(waited, Ok(Ok(_))), "{name} was not there within {PATIENCE:?}");
    }

    /// Counting begins now.
    pub(crate) fn window(&self) -> Window {
        Window { logged: self.data_centre.gate().count() + 1, recorded: self.calls.0.lock().len() }
    }

    /// What was asked since then.
    pub(crate) fn counted(&self, window: &Window) -> Value {
        let logged = self.data_centre.gate().calls_from(window.logged);
        calls::count(&logged, &self.calls.0.lock()[window.recorded..])
    }

    /// For whoever looks for lost time or calls.
    pub(crate) fn tell_timeline(&self, began: Instant) {
        if std::env::var_os("TIMELINE").is_none() {
            return;
        }
        let now = (jiff::Timestamp::now(), began.elapsed().as_secs_f64());
        for call in self.calls.0.lock().iter().filter(|call| calls::to_cloud(call)) {
            let at = now.1 - now.0.duration_since(call.began).as_secs_f64();
            let outcome: String = format!("{:?}", call.outcome).chars().take(80).collect();
            eprintln!("{at:9.3} {} {}  {outcome}", call.operation, call.object);
        }
    }

    pub(crate) async fn stop(self) {
        self.data_centre.stop().await;
    }
}
