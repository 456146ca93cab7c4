//! A data centre with a cluster to be in it, and what is always asked of both.

use crate::support::ask::{self, merge};
use crate::support::{Home, Life, cluster_conditions, has, names, quick};
use butler_api::{
    CONDITION_DEGRADED, CONDITION_FAILED, CONDITION_PROGRESSING, ClusterBootstrap,
    ClusterBootstrapPhase as Phase, ImageSync, MachineRequest, ProviderConfig, find_condition,
};
use butler_controllers::{Context, Deadlines};
use butler_sim::proxmox::ProxmoxSite;
use butler_sim::{DataCentre, DataCentreOptions, FaultScript, LoggedCall, NodeHandle};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// The one cluster of every test.
pub(crate) const NAME: &str = "prod";
pub(crate) const TOKEN_SECRET: &str = "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11";
pub(crate) const VIP: &str = "10.40.0.200";

/// How large the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// One node that is everything.
    One,
    /// Three control planes and a worker.
    Four,
}

pub(crate) struct Site {
    pub(crate) home: Home,
    pub(crate) data_centre: DataCentre,
    size: Size,
    before: Picture,
    life: Option<Life>,
}

/// All that a data centre holds and that could leak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    vmids: Vec<u32>,
    volumes: BTreeSet<String>,
    machines: Vec<IpAddr>,
}

/// Settings that a test changes.
pub(crate) struct Setting {
    pub(crate) size: Size,
    pub(crate) faults: &'static str,
    pub(crate) proxmox: ProxmoxSite,
    /// Of the data centre.
    pub(crate) speed: f64,
    /// Merged into the block proxmox of the ProviderConfig.
    pub(crate) provider: Value,
    pub(crate) credentials: Value,
}

impl Default for Setting {
    fn default() -> Self {
        Setting {
            size: Size::One,
            faults: "",
            proxmox: ProxmoxSite::example(),
            speed: 0.0,
            provider: json!({}),
            credentials: json!({"token": "root@pam!butler", "tokenSecret": TOKEN_SECRET}),
        }
    }
}

/// Deadlines that come soon.
pub(crate) fn soon() -> Deadlines {
    let limit = Duration::from_millis(1500);
    Deadlines {
        image: limit,
        machines: limit,
        talos: limit,
        etcd: limit,
        kubernetes: limit,
        addons: limit,
        deletion: limit,
        ..quick()
    }
}

impl Site {
    pub(crate) async fn of(size: Size) -> Site {
        Site::new(Setting { size, ..Setting::default() }).await
    }

    pub(crate) async fn new(setting: Setting) -> Site {
        let Setting { size, faults, proxmox, speed, provider, credentials } = setting;
        let home = Home::new().await;
        let mut options = DataCentreOptions::for_site(proxmox);
        options.faults = FaultScript::parse(faults).unwrap();
        options.speed = speed;
        let data_centre = DataCentre::start(options).await.unwrap();
        home.create::<Secret>(json!({"metadata": {"name": "creds"}, "stringData": credentials})).await;
        let mut config = ask::provider();
        merge(&mut config["spec"]["proxmox"], provider);
        home.create::<ProviderConfig>(config).await;
        home.given_secrets(NAME).await;
        let before = picture(&data_centre);
        Site { home, data_centre, size, before, life: None }
    }

    pub(crate) fn context(&self, deadlines: Deadlines) -> Context {
        Context { deadlines, ..self.home.context_in(&self.data_centre) }
    }

    /// Controllers start, and the cluster is asked for.
    pub(crate) async fn begin(&mut self, deadlines: Deadlines) {
        self.begin_with(deadlines, json!({})).await;
    }

    pub(crate) async fn begin_with(&mut self, deadlines: Deadlines, extra: Value) {
        self.life = Some(self.home.start(self.context(deadlines)));
        self.home.create::<ClusterBootstrap>(cluster(self.size, extra)).await;
    }

    pub(crate) async fn begin_as(&mut self, context: Context) {
        self.life = Some(self.home.start(context));
        self.home.create::<ClusterBootstrap>(cluster(self.size, json!({}))).await;
    }

    /// Ends controllers and data centre.
    pub(crate) async fn stops(mut self) {
        if let Some(life) = self.life.take() {
            life.end().await;
        }
        self.data_centre.stop().await;
    }

    /// The controllers end, and others start that know nothing.
    pub(crate) async fn next_life(&mut self, context: Context) {
        if let Some(life) = self.life.take() {
            life.end().await;
        }
        self.life = Some(self.home.start(context));
    }

    /// The obstacle is told by name, with a remedy, while it is still tried.
    pub(crate) async fn is_degraded(&self, reason: &'static str) -> String {
        let found = self.home.until::<ClusterBootstrap>(NAME, move |cb| {
            has(cluster_conditions(cb), CONDITION_DEGRADED, true, reason)
        });
        let found = found.await;
        let told = find_condition(cluster_conditions(&found), CONDITION_DEGRADED).unwrap();
        assert!(told.message.contains("what to do: "), "{}", told.message);
        told.message.clone()
    }

    /// The cluster is reported as failed for a reason that has a name and a remedy; gives the message and the remedy.
    pub(crate) async fn fails(&self, reason: &'static str) -> (String, String) {
        self.fails_saying(reason, &[]).await
    }

    /// The same, and the message has these words in it: what is waited for changes on the way, and on a slow machine the
    /// deadline comes before the obstacle does.
    pub(crate) async fn fails_saying(
        &self,
        reason: &'static str,
        words: &'static [&'static str],
    ) -> (String, String) {
        self.fails_with(&[reason], words).await
    }

    /// The same for one of several reasons, where it depends on how far the rest of the cluster had come.
    pub(crate) async fn fails_with(
        &self,
        reasons: &[&'static str],
        words: &'static [&'static str],
    ) -> (String, String) {
        let wanted = reasons.to_vec();
        let failed = self.home.until::<ClusterBootstrap>(NAME, move |cb| {
            let status = cb.status.clone().unwrap_or_default();
            let message = status.failure_message.unwrap_or_default();
            let said = !message.is_empty() && words.iter().all(|word| message.contains(word));
            let named = status.failure_reason.is_some_and(|reason| wanted.contains(&reason.as_str()));
            status.phase == Some(Phase::Failed) && named && said
        });
        let failed = failed.await;
        let status = failed.status.clone().unwrap();
        let reason = status.failure_reason.unwrap();
        let conditions = cluster_conditions(&failed);
        assert!(has(conditions, CONDITION_FAILED, true, &reason), "{conditions:?}");
        assert!(has(conditions, "Ready", false, &reason), "{conditions:?}");
        assert!(has(conditions, CONDITION_PROGRESSING, false, &reason), "{conditions:?}");
        assert_eq!(status.observed_generation, failed.metadata.generation);
        let (message, remedy) = (status.failure_message.unwrap(), status.failure_remedy.unwrap());
        assert!(!message.is_empty() && !remedy.is_empty(), "{reason}: {message:?}, what to do: {remedy:?}");
        (message, remedy)
    }

    /// The cluster comes up by itself, with as many machines as were asked for and one etcd.
    pub(crate) async fn comes_up(&self) {
        let ready = self.home.until::<ClusterBootstrap>(NAME, |cb| phase(cb) == Some(Phase::Ready)).await;
        let status = ready.status.clone().unwrap();
        assert_eq!((status.failure_reason, status.failure_message), (None, None));
        assert!(has(cluster_conditions(&ready), CONDITION_FAILED, false, "NoFailure"));
        assert!(status.machines.iter().all(|machine| machine.ready && machine.talos_configured));
        self.has_no_more_than_wanted();
        assert_eq!(self.ours().len(), self.wanted(), "{:?}", self.ours());
        assert_eq!(self.data_centre.clusters().names(), [NAME], "there is one etcd cluster");
        let mut members = self.data_centre.world().etcd_members();
        members.sort();
        let planes = if self.size == Size::One { 1 } else { 3 };
        let all: Vec<(String, bool)> = (0..planes).map(|n| (format!("{NAME}-cp-{n}"), true)).collect();
        assert_eq!(members, all, "at Ready, etcd votes on every control plane");
    }

    /// No machine twice, and etcd made at most once and on the same machine.
    pub(crate) fn has_no_more_than_wanted(&self) {
        let names: Vec<String> = self.ours().into_iter().map(|(_, name)| name).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "a machine is there twice: {names:?}");
        assert!(names.len() <= self.wanted(), "{names:?}");
        let asked: BTreeSet<String> =
            self.calls("Bootstrap").into_iter().map(|logged| logged.call.object).collect();
        assert!(asked.len() <= 1, "etcd was to be made on {asked:?}");
        assert!(self.data_centre.clusters().names().len() <= 1);
    }

    /// Asks for the cluster to go.
    pub(crate) async fn delete(&self) {
        self.home.api::<ClusterBootstrap>().delete(NAME, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes the cluster: the data centre is as it was before, and so are our objects.
    pub(crate) async fn leaves_nothing(self) {
        self.delete().await;
        self.is_gone().await;
        self.stops().await;
    }

    /// Everything of the cluster is gone, here and there.
    pub(crate) async fn is_gone(&self) {
        self.home.until_gone::<ClusterBootstrap>(NAME).await;
        assert_eq!(picture(&self.data_centre), self.before, "the data centre is as it was");
        assert_eq!(names::<MachineRequest>(&self.home).await, Vec::<String>::new());
        assert_eq!(names::<ImageSync>(&self.home).await, Vec::<String>::new());
        let secrets = names::<Secret>(&self.home).await;
        let left: Vec<&String> = secrets.iter().filter(|name| *name != "creds").collect();
        assert_eq!(left, [&format!("{NAME}-talos-secrets")], "the given secrets stay, and nothing else");
    }

    /// Whatever is in the data centre now is not ours, and has to be there in the end.
    pub(crate) fn take_as_before(&mut self) {
        self.before = picture(&self.data_centre);
    }

    pub(crate) fn wanted(&self) -> usize {
        match self.size {
            Size::One => 1,
            Size::Four => 4,
        }
    }

    /// Virtual machines that were not there before: id and name.
    pub(crate) fn ours(&self) -> Vec<(u32, String)> {
        let state = self.data_centre.proxmox().unwrap().state();
        let ids = state.vmids().into_iter().filter(|id| !self.before.vmids.contains(id));
        let named = ids.map(|id| (id, state.name_of(id).unwrap_or_default().to_owned()));
        named.filter(|(_, name)| name.starts_with(NAME)).collect()
    }

    /// A machine of ours in the world, by its name; it has been switched on at least once.
    pub(crate) fn machine(&self, name: &str) -> NodeHandle {
        let state = self.data_centre.proxmox().unwrap().state();
        let (id, _) = self.ours().into_iter().find(|(_, known)| known == name).unwrap();
        self.data_centre.world().node(state.machine_of(id).unwrap()).unwrap()
    }

    /// Calls from outside so far whose operation has a word in it.
    pub(crate) fn calls(&self, word: &str) -> Vec<LoggedCall> {
        let calls = self.data_centre.gate().calls();
        calls.into_iter().filter(|logged| logged.call.operation.contains(word)).collect()
    }

    /// Lets things go wrong from now on; nothing mends everything.
    pub(crate) fn set_faults(&self, script: &str) {
        self.data_centre.gate().set_faults(FaultScript::parse(script).unwrap());
    }

    pub(crate) async fn patch(&self, change: Value) {
        let api = self.home.api::<ClusterBootstrap>();
        api.patch(NAME, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }

    /// Gives the Secret with the credentials another value.
    pub(crate) async fn set_credentials(&self, credentials: Value) {
        let patch = json!({"stringData": credentials});
        let api = self.home.api::<Secret>();
        api.patch("creds", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}

fn picture(data_centre: &DataCentre) -> Picture {
    let state = data_centre.proxmox().unwrap().state();
    Picture {
        vmids: state.vmids(),
        volumes: state.volumes().into_iter().collect(),
        machines: data_centre.world().nodes().iter().map(NodeHandle::address).collect(),
    }
}

pub(crate) fn phase(cluster: &ClusterBootstrap) -> Option<Phase> {
    cluster.status.as_ref().and_then(|status| status.phase)
}

pub(crate) fn cluster(size: Size, extra: Value) -> Value {
    let (topology, planes, workers) = match size {
        Size::One => ("single-node", 1, 0),
        Size::Four => ("ha", 3, 1),
    };
    let mut object = json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": NAME},
        "spec": {
            "provider": "proxmox",
            "providerRef": {"name": "site"},
            "cluster": {
                "name": NAME, "topology": topology,
                "controlPlane": {"replicas": planes, "cpu": 4, "memoryMB": 8192, "diskGB": 40},
            },
            "network": {
                "podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": VIP,
                "loadBalancerPool": {"start": "10.40.0.210", "end": "10.40.0.250"},
            },
            "talos": {
                "version": "v1.9.2",
                "schematic": "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
            },
        }
    });
    if workers > 0 {
        object["spec"]["cluster"]["workers"] = json!({
            "replicas": workers, "cpu": 4, "memoryMB": 8192, "diskGB": 60, "extraDisks": [{"sizeGB": 100}],
        });
    }
    merge(&mut object["spec"], extra);
    object
}
