//! A home beside a simulated cloud, and the cluster that tests build in it.

use crate::lives::Place;
use crate::support::{Home, names};
use butler_api::{
    ClusterBootstrap, ClusterBootstrapPhase as Phase, LoadBalancerRequest, MachineRequest, ProviderConfig,
};
use butler_controllers::Context;
use butler_sim::DataCentre;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// The cluster of all these tests.
pub(crate) const CLUSTER: &str = "prod";
/// Its load balancer.
pub(crate) const BALANCER: &str = "prod-lb";

/// A home, and a cloud to build in.
pub(crate) struct Site {
    pub(crate) home: Home,
    pub(crate) data_centre: DataCentre,
    place: Place,
    /// What there was before anything was made.
    before: Vec<String>,
}

impl Site {
    pub(crate) async fn new(place: Place) -> Site {
        let home = Home::new().await;
        let data_centre = DataCentre::start(place.options()).await.unwrap();
        let credentials = place.credentials(&data_centre);
        home.create::<Secret>(json!({"metadata": {"name": "creds"}, "stringData": credentials})).await;
        home.create::<ProviderConfig>(place.provider(&data_centre)).await;
        home.given_secrets(CLUSTER).await;
        let before = Place::resources(&data_centre);
        Site { home, data_centre, place, before }
    }

    /// The ProviderConfig names the network of the nodes.
    pub(crate) async fn names_the_nodes_network(&self, cidr: &str) {
        let patch = Patch::Merge(json!({"spec": {"network": {"subnet": cidr}}}));
        self.home.api::<ProviderConfig>().patch("site", &PatchParams::default(), &patch).await.unwrap();
    }

    /// What there is now belongs to somebody else.
    pub(crate) fn is_furnished(&mut self) {
        self.before = Place::resources(&self.data_centre);
    }

    pub(crate) fn context(&self) -> Context {
        let mut context = self.home.context_in(&self.data_centre);
        context.deadlines.resync = Duration::from_secs(1);
        context
    }

    /// Asks for a cluster; `extra` is laid over its spec.
    pub(crate) async fn ask(&self, workers: u32, extra: Value) {
        let object = self.place.cluster(workers, extra);
        self.home.create::<ClusterBootstrap>(object).await;
    }

    /// Waits until the cluster is ready.
    pub(crate) async fn ready(&self) -> ClusterBootstrap {
        self.home
            .until::<ClusterBootstrap>(CLUSTER, |cb| {
                cb.status.as_ref().and_then(|status| status.phase) == Some(Phase::Ready)
            })
            .await
    }

    /// Destroys the cluster, and looks whether anything is left.
    pub(crate) async fn leaves_nothing(&self) {
        self.home.api::<ClusterBootstrap>().delete(CLUSTER, &DeleteParams::default()).await.unwrap();
        self.home.until_gone::<ClusterBootstrap>(CLUSTER).await;
        assert_eq!(names::<MachineRequest>(&self.home).await, Vec::<String>::new());
        assert_eq!(names::<LoadBalancerRequest>(&self.home).await, Vec::<String>::new());
        assert_eq!(
            names::<Secret>(&self.home).await,
            ["creds", "prod-talos-secrets"],
            "the given secrets stay"
        );
        assert_eq!(self.data_centre.world().nodes().len(), 0, "no machine is left");
        assert_eq!(Place::resources(&self.data_centre), self.before, "nothing is left in the cloud");
    }

    /// A client as anybody has who was given the kubeconfig: by the endpoint, and nothing else.
    pub(crate) async fn kubectl(&self) -> kube::Client {
        use kube::config::{KubeConfigOptions, Kubeconfig};
        let secret = self.home.api::<Secret>().get("prod-kubeconfig").await.unwrap();
        let text = String::from_utf8(secret.data.unwrap()["kubeconfig"].0.clone()).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let mut config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = Some(self.data_centre.proxy_url().parse().unwrap());
        kube::Client::try_from(config).unwrap()
    }
}
