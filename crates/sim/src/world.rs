//! A world: the machines of a simulated data centre, and what they share.

use crate::etcd::{EtcdWorld, Identity};
use crate::machine::{Machine, Media, Stage};
use crate::node::{self, Node};
use crate::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The port of the Talos API.
pub const API_PORT: u16 = 50000;
/// The port of trustd.
pub const TRUSTD_PORT: u16 = 50001;

/// What holds for every machine of a world.
#[derive(Debug, Clone, Copy)]
pub struct WorldOptions {
    /// Scales every delay: 1 is real time, 0 is as fast as possible.
    pub speed: f64,
    /// Ids and jitter come from it. Keys never do.
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

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: WorldOptions,
    nodes: Mutex<BTreeMap<IpAddr, Arc<Node>>>,
    etcd: Mutex<EtcdWorld>,
    random: Mutex<Random>,
}

impl Shared {
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
        let shared = Shared {
            options,
            nodes: Mutex::default(),
            etcd: Mutex::default(),
            random: Mutex::new(Random::new(options.seed)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts a machine into the world and switches it on.
    ///
    /// # Errors
    /// Fails when the address is taken, in this world or on this computer.
    pub async fn add_node(&self, options: NodeOptions) -> Result<NodeHandle, WorldError> {
        let address = options.address;
        if self.shared.nodes().contains_key(&address) {
            return Err(WorldError::Occupied(address));
        }
        let node = Node::start(options, &self.shared).await?;
        self.shared.nodes().insert(address, node.clone());
        let handle = NodeHandle { node };
        handle.power_on().await;
        Ok(handle)
    }

    /// Takes a machine out of the world, as if it had never been there. Its etcd member stays in the list.
    pub async fn remove_node(&self, address: IpAddr) {
        let node = self.shared.nodes().remove(&address);
        if let Some(node) = node {
            NodeHandle { node: node.clone() }.power_off().await;
            node.end().await;
        }
    }

    /// Switches everything off and ends every task of this world.
    pub async fn stop(self) {
        let addresses: Vec<IpAddr> = self.shared.nodes().keys().copied().collect();
        for address in addresses {
            self.remove_node(address).await;
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
        self.node.tell(crate::machine::Input::PowerOn).await;
    }

    /// Pulls the plug: connections are cut, nothing is said.
    pub async fn power_off(&self) {
        self.node.tell(crate::machine::Input::PowerOff).await;
    }

    /// Says that the Kubernetes node is (not) ready, which a CNI decides when the configuration has none.
    pub async fn set_kubernetes_ready(&self, ready: bool) {
        self.node.tell(crate::machine::Input::KubernetesReady(ready)).await;
    }
}
