//! One cluster: its API, the fronts of its control planes, and the loop that does what its controllers want. One task.
//!
//! ```text
//!   machines (from the supervisor) --+
//!   changes of objects --------------+--> plan (pure) --> actions --> API / store --> changes ...
//!   waits that end ------------------+
//! ```

use super::addresses::{self, Claims};
use super::clock::Clock;
use super::cloud;
use super::facts::{Facts, PodSecurity};
use super::front::{Backing, Front};
use super::kubelet::{self, Surroundings};
use super::manifests;
use super::nodes::{self, Kubelets};
use super::objects::{self, Action, Objects};
use super::schedule;
use super::services;
use super::workloads::{self, Sight};
use super::{Handle, Shared};
use crate::world::WeakWorld;
use butler_apiserver::store::{Change, CollectionName, Draft, Event, Expect, WriteError};
use butler_apiserver::{Api, ApiService, User};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// More rounds than any change takes to settle; what is left then is done when the next thing happens.
const ROUNDS: usize = 200;
/// When something that the API refused is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// What the supervisor knows of the machines of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) machines: Vec<Arc<Facts>>,
    /// Those whose kubelet reaches the API.
    pub(super) joined: BTreeSet<IpAddr>,
    pub(super) quorum: bool,
}

pub(super) struct Driver {
    pub(super) number: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) handle: Arc<Handle>,
    pub(super) world: WeakWorld,
    pub(super) seen: watch::Receiver<Seen>,
    /// Says to the supervisor that an address has moved.
    pub(super) moved: mpsc::UnboundedSender<u64>,
}

/// A driver whose API is up.
struct Running {
    driver: Driver,
    service: ApiService,
    backing: Backing,
    changes: mpsc::UnboundedReceiver<(CollectionName, Arc<Event>)>,
    objects: Objects,
    clock: Clock,
    seen: Seen,
    fronts: BTreeMap<IpAddr, Front>,
    /// Why the API did not take what an owner wanted; believed until it is time to try again.
    refused: BTreeMap<String, String>,
    retry_at: Option<Instant>,
    holders: BTreeMap<IpAddr, IpAddr>,
    /// What each machine was told about its node, and in which boot.
    told: BTreeMap<IpAddr, (u32, bool)>,
    furnished: bool,
    /// What can't be pulled now.
    registry: watch::Receiver<Vec<String>>,
}

impl Driver {
    /// Runs until the supervisor lets go of it. The API ends with it; the objects stay in the handle.
    pub(super) async fn run(self, api: Api) {
        let store = api.store().clone();
        let changes = store.observe();
        let user = User::new("system:simulated-cluster", &["system:masters"]);
        let backing = Backing {
            fabric: self.shared.fabric.clone(),
            gate: self.shared.gate.clone(),
            service: api.network_service(),
            store: store.clone(),
        };
        let clock = Clock::new(self.shared.speed, self.shared.seed, self.number);
        let mut running = Running {
            service: api.service(user),
            backing,
            changes,
            objects: Objects::read(&store),
            clock,
            seen: Seen::default(),
            fronts: BTreeMap::new(),
            refused: BTreeMap::new(),
            retry_at: None,
            holders: BTreeMap::new(),
            told: BTreeMap::new(),
            furnished: false,
            registry: self.shared.missing_images.subscribe(),
            driver: self,
        };
        running.follow().await;
        for address in running.holders.keys() {
            running.backing.fabric.hold(*address, None);
        }
    }
}

impl Running {
    async fn follow(&mut self) {
        loop {
            self.seen = self.driver.seen.borrow_and_update().clone();
            self.open_fronts();
            if !self.fronts.is_empty() {
                self.settle().await;
                self.tell_machines().await;
            }
            self.move_addresses();
            if !self.something_happens().await {
                return;
            }
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                self.refused.clear();
                self.retry_at = None;
            }
        }
    }

    /// Waits for something that may call for an action; `false` when there will be nothing any more.
    async fn something_happens(&mut self) -> bool {
        let wake = [self.clock.next(), self.retry_at].into_iter().flatten().min();
        loop {
            tokio::select! {
                changed = self.driver.seen.changed() => return changed.is_ok(),
                change = self.changes.recv() => match change {
                    Some((collection, event)) => {
                        if self.objects.take(&collection, &event) {
                            // Whoever is about to write more comes first: a plan looks at everything, and one is enough.
                            tokio::task::yield_now().await;
                            return true;
                        }
                    }
                    None => return false,
                },
                Ok(()) = self.registry.changed() => return true,
                () = until(wake) => return true,
            }
        }
    }

    /// Has everything looked at again in a while.
    fn try_again(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// The control planes of this cluster that serve.
    fn servers(&self) -> impl Iterator<Item = &Arc<Facts>> {
        let number = self.driver.number;
        let quorum = self.seen.quorum;
        let serves = move |facts: &&Arc<Facts>| {
            quorum && facts.is_control_plane() && facts.static_pods && facts.etcd_data == Some(number)
        };
        self.seen.machines.iter().filter(serves)
    }

    /// Opens and closes ports as machines come and go.
    fn open_fronts(&mut self) {
        let servers: BTreeMap<IpAddr, Arc<Facts>> =
            self.servers().map(|facts| (facts.address, facts.clone())).collect();
        self.fronts.retain(|address, front| servers.get(address).is_some_and(|facts| front.is_of(facts)));
        for (address, facts) in servers {
            if self.fronts.contains_key(&address) {
                continue;
            }
            match Front::open(&self.backing, &facts) {
                Ok(front) => {
                    self.fronts.insert(address, front);
                }
                Err(error) => {
                    // The port may still be on its way out from an earlier life of this machine.
                    tracing::debug!(node = %address, %error, "SIMULATED: kube-apiserver can't be served yet");
                    self.try_again();
                }
            }
        }
    }

    /// Does what the controllers want until they want nothing more.
    async fn settle(&mut self) {
        if !std::mem::replace(&mut self.furnished, true) {
            self.furnish().await;
        }
        for _ in 0..ROUNDS {
            while let Ok((collection, event)) = self.changes.try_recv() {
                self.objects.take(&collection, &event);
            }
            let mut done = false;
            for action in self.plan() {
                done |= self.apply(action).await;
            }
            if !done {
                return;
            }
        }
    }

    /// What Talos brings into a new cluster.
    async fn furnish(&mut self) {
        let Some(facts) = self.servers().next().cloned() else { return };
        for value in manifests::of(&facts) {
            // What is there already, from an earlier life of this cluster, stays as it is.
            let _ = self.post(&value).await;
        }
    }

    fn plan(&mut self) -> Vec<Action> {
        let kubelets: Kubelets = self
            .seen
            .machines
            .iter()
            .filter(|facts| facts.kubelet && self.seen.joined.contains(&facts.address))
            .map(|facts| (facts.hostname.clone(), facts.clone()))
            .collect();
        let servers: Vec<IpAddr> = self.fronts.keys().copied().collect();
        let security = self.security();
        let missing_images = self.registry.borrow_and_update().clone();
        let (objects, clock) = (&self.objects, &mut self.clock);
        clock.begin();
        let mut actions = nodes::plan(objects, &kubelets, clock);
        let sight = Sight::new(objects, &security, &self.refused, clock);
        actions.extend(workloads::plan(&sight));
        actions.extend(schedule::plan(objects, clock.text()));
        let networked = nodes::networked(objects, clock);
        let around =
            Surroundings { kubelets: &kubelets, networked: &networked, missing_images: &missing_images };
        actions.extend(kubelet::plan(objects, &around, clock));
        actions.extend(services::plan(objects, &servers, clock));
        actions.extend(cloud::plan(objects, clock));
        let claims = addresses::claims(objects, &self.seen.machines, self.seen.quorum);
        self.holders = holders(&claims, &self.holders, &self.seen, clock);
        actions.extend(claims.leases(objects, &self.holders, &self.seen.machines, clock.text()));
        clock.end();
        self.driver.handle.note_conflicts(&claims.conflicts());
        actions
    }

    fn security(&self) -> PodSecurity {
        self.servers().next().map(|facts| facts.pod_security()).unwrap_or_default()
    }

    /// Carries out one action; `false` when nothing came of it.
    async fn apply(&mut self, action: Action) -> bool {
        match action {
            Action::Create { value, .. } => match self.post(&value).await {
                Ok(()) => true,
                Err((409, _)) => false,
                Err((_, message)) => {
                    let owner = objects::controller_uid(&value).unwrap_or_default().to_string();
                    tracing::debug!(%message, "SIMULATED: the API refused an object");
                    self.refused.insert(owner, message);
                    self.try_again();
                    false
                }
            },
            Action::Put { collection, mut value } => {
                let key = objects::key(&value);
                let revision = objects::text(&value, "/metadata/resourceVersion").parse().unwrap_or(0);
                let Ok(draft) = Draft::new(&mut value) else { return false };
                let expect = Expect::Revision(revision);
                let written =
                    self.backing.store.write(&collection.into(), key, expect, Change::Put(draft)).await;
                // Somebody else was first: the next round sees what they did.
                matches!(written, Ok(_) | Err(WriteError::Stale))
            }
            Action::Delete { collection, key } => {
                // One that finalizers hold need not be told twice.
                let held = self.objects.get(collection, &key.namespace, &key.name);
                if held.is_none_or(|object| objects::is_deleting(object)) {
                    return false;
                }
                let path = format!("{}/{}", path(collection, &key.namespace), key.name);
                let (code, _) = self.service.send("DELETE", &path, "application/json", Bytes::new()).await;
                code < 300
            }
            Action::Tell { regarding, warning, reason, message } => {
                let _ = self.post(&event(&regarding, warning, reason, &message, self.clock.text())).await;
                false
            }
        }
    }

    /// Makes an object through the API.
    async fn post(&self, value: &Value) -> Result<(), (u16, String)> {
        let collection = collection_of(value);
        let path = path(collection, objects::namespace(value));
        let body = Bytes::from(value.to_string());
        let (code, answer) = self.service.send("POST", &path, "application/json", body).await;
        if code < 300 {
            return Ok(());
        }
        Err((code, answer["message"].as_str().unwrap_or_default().to_string()))
    }

    /// Talos on each machine looks at its own node.
    async fn tell_machines(&mut self) {
        let Some(world) = self.driver.world.upgrade() else { return };
        for facts in &self.seen.machines {
            let Some(node) = self.objects.get(objects::NODES, "", &facts.hostname) else { continue };
            let news = (facts.boot, objects::is_true(node, "Ready"));
            if self.told.insert(facts.address, news) != Some(news)
                && let Some(machine) = world.node(facts.address)
            {
                machine.set_kubernetes_ready(news.1).await;
            }
        }
    }

    /// Lets the network know who holds which address.
    fn move_addresses(&mut self) {
        if self.fronts.is_empty() {
            // No API and no etcd: nobody renews a lease, and Talos' own election is over as well.
            self.clock.begin();
            let claims = addresses::claims(&self.objects, &self.seen.machines, false);
            self.holders = holders(&claims, &self.holders, &self.seen, &mut self.clock);
            self.clock.end();
        }
        let fabric = &self.backing.fabric;
        let mut published = self.driver.handle.published.lock();
        if *published == self.holders {
            return;
        }
        for address in published.keys().filter(|address| !self.holders.contains_key(address)) {
            fabric.hold(*address, None);
        }
        for (address, holder) in &self.holders {
            fabric.hold(*address, Some(*holder));
        }
        published.clone_from(&self.holders);
        let _ = self.driver.moved.send(self.driver.number);
    }
}

fn holders(
    claims: &Claims,
    before: &BTreeMap<IpAddr, IpAddr>,
    seen: &Seen,
    clock: &mut Clock,
) -> BTreeMap<IpAddr, IpAddr> {
    let died =
        |holder| seen.machines.iter().find(|facts| facts.address == holder).is_none_or(|facts| facts.off);
    claims.holders(before, died, clock)
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

/// The collection of an object that is to be made.
fn collection_of(value: &Value) -> &'static str {
    match objects::text(value, "/kind") {
        "Node" => objects::NODES,
        "Namespace" => objects::NAMESPACES,
        "Pod" => objects::PODS,
        "Service" => objects::SERVICES,
        "ServiceAccount" => objects::SERVICE_ACCOUNTS,
        "PersistentVolumeClaim" => objects::CLAIMS,
        "PersistentVolume" => objects::VOLUMES,
        "ConfigMap" => objects::CONFIG_MAPS,
        "DaemonSet" => objects::DAEMON_SETS,
        "Deployment" => objects::DEPLOYMENTS,
        "ReplicaSet" => objects::REPLICA_SETS,
        "EndpointSlice" => objects::ENDPOINT_SLICES,
        "Lease" => objects::LEASES,
        _ => "events",
    }
}

/// Where the API has a collection.
fn path(collection: &str, namespace: &str) -> String {
    let (plural, group) = collection.split_once('.').unwrap_or((collection, ""));
    let root = if group.is_empty() { "/api/v1".to_string() } else { format!("/apis/{group}/v1") };
    if namespace.is_empty() {
        format!("{root}/{plural}")
    } else {
        format!("{root}/namespaces/{namespace}/{plural}")
    }
}

fn event(regarding: &Value, warning: bool, reason: &str, message: &str, now: &str) -> Value {
    let namespace = match objects::namespace(regarding) {
        "" => "default",
        namespace => namespace,
    };
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": format!("{}.", objects::name(regarding)), "namespace": namespace},
        "involvedObject": {
            "apiVersion": regarding["apiVersion"], "kind": regarding["kind"], "name": objects::name(regarding),
            "namespace": objects::namespace(regarding), "uid": objects::uid(regarding),
        },
        "type": if warning { "Warning" } else { "Normal" }, "reason": reason, "message": message,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        "source": {"component": "simulated-cluster"},
    })
}
