//! The Kubernetes of the simulated data centre: every cluster of machines gets its API, nodes, pods and virtual addresses.
//!
//! ```text
//!   World (machines) --changes--> supervisor: which machine belongs to which cluster, whose kubelet reaches it
//!                                     |  Seen
//!                                     v
//!                                 driver, one task per cluster: fronts on port 6443, controllers, addresses
//! ```
//!
//! Machines with the same Kubernetes CA belong together; their data are those of one etcd cluster. A control plane serves
//! when its static pods are up and etcd has a quorum. What a real cluster would do with containers is a state with a delay.
//!
//! Where it differs from a real one: no traffic flows between pods and services; kubelets reach the API by their endpoint only
//! if a control plane (or the holder of a virtual address) is behind it, not through a balancer of their own; there are no
//! resource limits, disruption budgets, autoscalers or CronJobs; a new Deployment never misses its progress deadline; service
//! addresses come from 10.96.0.0/12 whatever the configuration says.

mod addresses;
mod clock;
mod cloud;
mod driver;
mod facts;
mod front;
mod kubelet;
mod manifests;
mod nodes;
mod objects;
mod schedule;
mod security;
mod services;
mod supervisor;
mod workloads;

use crate::fabric::Fabric;
use crate::gate::Gate;
use crate::world::World;
use butler_apiserver::auth::AccountKey;
use butler_apiserver::store::{CollectionName, HistoryLimits, MemoryJournal, Object, Restored, Store};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The clusters of a world. Clones are the same; when the last one is dropped, their APIs end.
#[derive(Clone)]
pub struct Clusters {
    shared: Arc<Shared>,
    _task: Arc<Ended>,
}

/// What the drivers of all clusters share.
pub(crate) struct Shared {
    fabric: Fabric,
    gate: Gate,
    speed: f64,
    seed: u64,
    /// Words; an image with one of them in its name can't be pulled.
    missing_images: watch::Sender<Vec<String>>,
    /// By the number of their etcd cluster.
    clusters: Mutex<BTreeMap<u64, Arc<Handle>>>,
    /// Objects of clusters whose machines have not come up yet.
    restored: Mutex<BTreeMap<u64, ClusterState>>,
}

/// What is known of one cluster from outside of its task.
pub(crate) struct Handle {
    name: String,
    store: Store,
    account_key: Arc<AccountKey>,
    published: Mutex<BTreeMap<IpAddr, IpAddr>>,
    conflicts: Mutex<BTreeSet<IpAddr>>,
}

/// Everything that clusters remember. Plain data; clones share the objects.
#[derive(Clone, Default)]
pub struct ClustersState {
    clusters: BTreeMap<u64, ClusterState>,
    missing_images: Vec<String>,
}

#[derive(Clone)]
struct ClusterState {
    revision: u64,
    objects: Vec<(CollectionName, Arc<Object>)>,
    account_key: Arc<AccountKey>,
}

struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// By hand: it holds keys and Secrets.
impl fmt::Debug for ClustersState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClustersState").field("clusters", &self.clusters.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clusters").finish_non_exhaustive()
    }
}

impl Clusters {
    /// Gives every cluster of the world its Kubernetes. Needs a tokio runtime.
    #[must_use]
    pub fn run(world: World, fabric: Fabric, gate: Gate, speed: f64, seed: u64) -> Self {
        Self::import(world, fabric, gate, speed, seed, ClustersState::default())
    }

    /// The same, with what clusters of an earlier world remembered. Their etcd clusters must have kept their numbers.
    #[must_use]
    pub fn import(
        world: World,
        fabric: Fabric,
        gate: Gate,
        speed: f64,
        seed: u64,
        state: ClustersState,
    ) -> Self {
        let shared = Arc::new(Shared {
            fabric,
            gate,
            speed,
            seed,
            missing_images: watch::Sender::new(state.missing_images),
            clusters: Mutex::default(),
            restored: Mutex::new(state.clusters),
        });
        let task = tokio::spawn(supervisor::run(shared.clone(), world.downgrade(), world.follow()));
        Self { shared, _task: Arc::new(Ended(task)) }
    }

    /// Everything that the clusters remember now.
    #[must_use]
    pub fn export(&self) -> ClustersState {
        let mut clusters = self.shared.restored.lock().clone();
        for (number, handle) in self.shared.clusters.lock().iter() {
            clusters.insert(*number, handle.export());
        }
        ClustersState { clusters, missing_images: self.shared.missing_images.borrow().clone() }
    }

    /// From now on, no image with this word in its name can be pulled.
    pub fn lose_images(&self, word: &str) {
        self.shared.missing_images.send_modify(|words| words.push(word.to_string()));
    }

    /// All images can be pulled again, and pods that wait for theirs start.
    pub fn find_images(&self) {
        self.shared.missing_images.send_modify(Vec::clear);
    }

    /// The names of the clusters whose API is there.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.shared.clusters.lock().values().map(|handle| handle.name.clone()).collect()
    }

    /// The objects of a cluster, by its name.
    #[must_use]
    pub fn store(&self, name: &str) -> Option<Store> {
        let clusters = self.shared.clusters.lock();
        clusters.values().find(|handle| handle.name == name).map(|handle| handle.store.clone())
    }

    /// Addresses that both Talos and kube-vip were told to hold.
    #[must_use]
    pub fn conflicts(&self) -> Vec<IpAddr> {
        let clusters = self.shared.clusters.lock();
        clusters.values().flat_map(|handle| handle.conflicts.lock().clone()).collect()
    }
}

impl Handle {
    fn export(&self) -> ClusterState {
        let Restored { revision, objects, .. } = self.store.export();
        ClusterState { revision, objects, account_key: self.account_key.clone() }
    }

    fn note_conflicts(&self, addresses: &[IpAddr]) {
        let mut known = self.conflicts.lock();
        for address in addresses {
            if known.insert(*address) {
                tracing::warn!(cluster = %self.name, %address, "SIMULATED: Talos and kube-vip both hold this address");
            }
        }
    }
}

impl ClusterState {
    fn open(self) -> Store {
        let restored = Restored {
            revision: self.revision,
            objects: self.objects,
            recent: Vec::new(),
            floor: self.revision,
        };
        Store::open(Box::new(MemoryJournal), restored, HistoryLimits::default())
    }
}
