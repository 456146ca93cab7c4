//! A world: the machines of a simulated data centre, and what they share.

use crate::calm::{Calm, Still};
use crate::etcd::{EtcdWorld, Identity};
use crate::fabric::Network;
use crate::gate::{Gate, Pattern};
use crate::machine::{Machine, Media, Stage};
use crate::node::{self, Node, NodeSnapshot};
use crate::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The port of the Talos API.
pub const API_PORT: u16 = 50000;
/// The port of trustd.
pub const TRUSTD_PORT: u16 = 50001;

/// What holds for every machine of a world.
#[derive(Debug, Clone, Copy)]
pub struct WorldOptions {
    /// Scales every delay: 1 is real time, 0 is as fast as possible.
    pub speed: f64,
    /// Ids and jitter come from it (0: no jitter). Keys never do.
    pub seed: u64,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self { speed: 0.0, seed: 1 }
    }
}

/// One machine to be.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its address; on Linux all of 127.0.0.0/8 is there without being set up.
    pub address: IpAddr,
    /// 0 takes a free port, and keeps it.
    pub port: u16,
    pub trustd_port: u16,
    pub media: Media,
    /// The version on its boot media.
    pub talos_version: String,
    /// Used until a configuration names it otherwise.
    pub hostname: Option<String>,
    /// A configuration as user data: the machine boots with it, and never is in maintenance mode.
    pub user_data: Option<String>,
}

impl NodeOptions {
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self {
            address,
            port: API_PORT,
            trustd_port: TRUSTD_PORT,
            media: Media::Iso,
            talos_version: "v1.9.2".to_string(),
            hostname: None,
            user_data: None,
        }
    }
}

/// Why a machine can't be added.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("there is a machine at {0} already")]
    Occupied(IpAddr),
    #[error("cannot listen on {address} for a simulated node")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the user data of the machine at {address} is no valid configuration: {why}")]
    UserData { address: IpAddr, why: String },
}

/// The machines of a simulated data centre, in this process.
#[derive(Debug, Clone)]
pub struct World {
    shared: Arc<Shared>,
}

/// A world that may be gone.
#[derive(Debug, Clone)]
pub(crate) struct WeakWorld(Weak<Shared>);

impl WeakWorld {
    pub(crate) fn upgrade(&self) -> Option<World> {
        self.0.upgrade().map(|shared| World { shared })
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: WorldOptions,
    pub(crate) network: Network,
    /// Where faults come from, if any.
    pub(crate) gate: Option<Gate>,
    pub(crate) calm: Arc<Calm>,
    nodes: Mutex<BTreeMap<IpAddr, Arc<Node>>>,
    etcd: Mutex<EtcdWorld>,
    random: Mutex<Random>,
    followers: Mutex<Vec<mpsc::UnboundedSender<IpAddr>>>,
}

impl Shared {
    /// Says to those who follow the world that a machine has changed, come or gone.
    pub(crate) fn tell_followers(&self, address: IpAddr) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|follower| follower.send(address).is_ok());
    }

    pub(crate) fn etcd(&self) -> MutexGuard<'_, EtcdWorld> {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn node(&self, address: IpAddr) -> Option<Arc<Node>> {
        self.nodes().get(&address).cloned()
    }

    pub(crate) fn all_nodes(&self) -> Vec<Arc<Node>> {
        self.nodes().values().cloned().collect()
    }

    /// The control planes of a cluster that can be found: through discovery, or behind the Kubernetes endpoint.
    pub(crate) fn control_planes(&self, identity: &Identity) -> Vec<Arc<Node>> {
        let same = |node: &Arc<Node>| {
            let machine = node.machine();
            machine.is_control_plane() && node::identity(&machine).as_ref() == Some(identity)
        };
        self.all_nodes().into_iter().filter(same).collect()
    }
}

/// Dropping the last handle of a world ends what a stop would have ended, only less politely.
impl Drop for Shared {
    fn drop(&mut self) {
        self.nodes().values().for_each(|node| node.abort());
    }
}

impl World {
    #[must_use]
    pub fn new(options: WorldOptions) -> Self {
        Self::on(Network::Host, options)
    }

    /// A world whose machines are on a network of their own.
    #[must_use]
    pub fn on(network: Network, options: WorldOptions) -> Self {
        Self::with(network, options, None)
    }

    /// A world whose calls from outside pass a gate.
    #[must_use]
    pub fn behind(gate: Gate, network: Network, options: WorldOptions) -> Self {
        Self::with(network, options, Some(gate))
    }

    fn with(network: Network, options: WorldOptions, gate: Option<Gate>) -> Self {
        let shared = Shared {
            options,
            network,
            gate,
            calm: Arc::default(),
            nodes: Mutex::default(),
            etcd: Mutex::default(),
            random: Mutex::new(Random::new(options.seed)),
            followers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts a machine into the world and switches it on.
    ///
    /// # Errors
    /// Fails when the address is taken, in this world or on this computer.
    pub async fn add_node(&self, options: NodeOptions) -> Result<NodeHandle, WorldError> {
        let address = options.address;
        let _busy = self.shared.calm.busy().await;
        if self.shared.nodes().contains_key(&address) {
            return Err(WorldError::Occupied(address));
        }
        let node = Node::start(options, &self.shared).await?;
        self.shared.nodes().insert(address, node.clone());
        let handle = NodeHandle { node };
        handle.node.tell(crate::machine::Input::PowerOn).await;
        Ok(handle)
    }

    /// Takes a machine out of the world, as if it had never been there. Its etcd member stays in the list.
    pub async fn remove_node(&self, address: IpAddr) {
        let _busy = self.shared.calm.busy().await;
        let node = self.shared.nodes().remove(&address);
        if let Some(node) = node {
            node.tell(crate::machine::Input::PowerOff).await;
            node.end().await;
            self.shared.tell_followers(address);
        }
    }

    /// The addresses of machines that change, come or go from now on, each time they do.
    #[must_use]
    pub fn follow(&self) -> mpsc::UnboundedReceiver<IpAddr> {
        let (follower, changes) = mpsc::unbounded_channel();
        self.shared.followers.lock().unwrap_or_else(PoisonError::into_inner).push(follower);
        changes
    }

    /// The machine at an address.
    #[must_use]
    pub fn node(&self, address: IpAddr) -> Option<NodeHandle> {
        self.shared.node(address).map(|node| NodeHandle { node })
    }

    /// All machines, by address.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHandle> {
        self.shared.all_nodes().into_iter().map(|node| NodeHandle { node }).collect()
    }

    /// How many etcd clusters were ever made here: each by one bootstrap that was carried out.
    #[must_use]
    pub fn etcd_clusters(&self) -> usize {
        self.shared.etcd().made()
    }

    /// Members of all etcd clusters by name, and whether they vote.
    #[must_use]
    pub fn etcd_members(&self) -> Vec<(String, bool)> {
        self.shared.etcd().members()
    }

    /// Whether the etcd cluster of this number can decide.
    pub(crate) fn etcd_has_quorum(&self, cluster: u64) -> bool {
        self.shared.etcd().cluster(cluster).is_some_and(crate::etcd::Cluster::has_quorum)
    }

    /// Does not keep the world alive.
    pub(crate) fn downgrade(&self) -> WeakWorld {
        WeakWorld(Arc::downgrade(&self.shared))
    }

    /// Switches everything off and ends every task of this world.
    pub async fn stop(self) {
        let addresses: Vec<IpAddr> = self.shared.nodes().keys().copied().collect();
        for address in addresses {
            self.remove_node(address).await;
        }
    }
}

/// The machines of a world at one moment, and all they share: plain data.
#[derive(Debug, Clone)]
pub(crate) struct WorldSnapshot {
    nodes: Vec<NodeSnapshot>,
    etcd: EtcdWorld,
    random: Random,
}

impl World {
    /// Lets no machine change as long as the answer lives.
    pub(crate) async fn still(&self) -> Still {
        self.shared.calm.still().await
    }

    /// What the machines are; taken while the world is still.
    pub(crate) fn snapshot(&self, _: &Still) -> WorldSnapshot {
        WorldSnapshot {
            nodes: self.shared.all_nodes().iter().map(|node| node.snapshot()).collect(),
            etcd: self.shared.etcd().clone(),
            random: self.shared.random().clone(),
        }
    }

    /// Puts the machines of another world into this one, which has none yet. What they were in the middle of goes on.
    pub(crate) async fn restore(&self, from: &WorldSnapshot) -> Result<(), WorldError> {
        *self.shared.etcd() = from.etcd.clone();
        *self.shared.random() = from.random.clone();
        for snapshot in &from.nodes {
            let node = Node::restore(snapshot.clone(), &self.shared).await?;
            let address = node.options.address;
            self.shared.nodes().insert(address, node);
            self.shared.tell_followers(address);
        }
        Ok(())
    }

    /// Pulls the plug of all machines that go by this name.
    pub(crate) async fn kill(&self, name: &Pattern) {
        for node in self.shared.all_nodes() {
            if node.is_called(name) {
                node.tell_from_outside(crate::machine::Input::PowerOff).await;
            }
        }
    }
}

/// A machine of a world, from outside: its power button and its console.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    node: Arc<Node>,
}

impl NodeHandle {
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.node.options.address
    }

    /// Where the Talos API is, when it is open.
    #[must_use]
    pub fn api_address(&self) -> SocketAddr {
        self.node.api_address()
    }

    /// The fingerprint of the maintenance certificate, as the console shows it. `None` outside of maintenance mode.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.node.fingerprint()
    }

    /// Changes whenever the machine does; look at `stage`.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Machine>> {
        self.node.watch()
    }

    #[must_use]
    pub fn stage(&self) -> Stage {
        self.node.watch().borrow().stage
    }

    #[must_use]
    pub fn machine(&self) -> Arc<Machine> {
        self.node.watch().borrow().clone()
    }

    /// Waits until the machine is in a stage; `false` when that takes longer than `patience`.
    pub async fn reaches(&self, stage: Stage, patience: Duration) -> bool {
        let mut watch = self.watch();
        let reached = watch.wait_for(|machine| machine.stage == stage);
        matches!(tokio::time::timeout(patience, reached).await, Ok(Ok(_)))
    }

    pub async fn power_on(&self) {
        self.node.tell_from_outside(crate::machine::Input::PowerOn).await;
    }

    /// Pulls the plug: connections are cut, nothing is said.
    pub async fn power_off(&self) {
        self.node.tell_from_outside(crate::machine::Input::PowerOff).await;
    }

    /// Says that the Kubernetes node is (not) ready, which a CNI decides when the configuration has none.
    pub async fn set_kubernetes_ready(&self, ready: bool) {
        self.node.tell_from_outside(crate::machine::Input::KubernetesReady(ready)).await;
    }
}
