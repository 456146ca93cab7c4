//! Which machine belongs to which cluster, and whose kubelet reaches its API.

use super::driver::{Driver, Seen};
use super::facts::{API_PORT, Facts};
use super::{Handle, Shared};
use crate::world::{WeakWorld, World};
use butler_apiserver::Api;
use butler_apiserver::auth::AccountKey;
use butler_apiserver::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Machines that share a Kubernetes CA, by its text.
type Groups = BTreeMap<String, BTreeMap<IpAddr, Arc<Facts>>>;

struct Supervisor {
    shared: Arc<Shared>,
    world: WeakWorld,
    groups: Groups,
    /// In which group a machine is.
    places: BTreeMap<IpAddr, String>,
    drivers: BTreeMap<u64, watch::Sender<Seen>>,
    moved: mpsc::UnboundedSender<u64>,
}

/// Follows the machines of a world until it is gone.
pub(super) async fn run(shared: Arc<Shared>, world: WeakWorld, mut changes: mpsc::UnboundedReceiver<IpAddr>) {
    let (moved, mut moves) = mpsc::unbounded_channel();
    let mut supervisor = Supervisor {
        shared,
        world,
        groups: Groups::new(),
        places: BTreeMap::new(),
        drivers: BTreeMap::new(),
        moved,
    };
    let there: Vec<IpAddr> = match supervisor.world.upgrade() {
        Some(world) => world.nodes().iter().map(|node| node.address()).collect(),
        None => return,
    };
    supervisor.look(there.into_iter().collect(), BTreeSet::new()).await;
    let mut balanced = supervisor.shared.fabric.moves();
    loop {
        let mut changed = BTreeSet::new();
        let mut touched = BTreeSet::new();
        tokio::select! {
            address = changes.recv() => match address {
                Some(address) => changed.insert(address),
                None => return,
            },
            // Workers may reach the API by an address that has moved.
            Some(number) = moves.recv() => {
                touched.extend(supervisor.place_of(number));
                true
            }
            // Or by a load balancer, whose targets come and go.
            Ok(()) = balanced.changed() => {
                touched.extend(supervisor.groups.keys().cloned());
                true
            }
        };
        while let Ok(address) = changes.try_recv() {
            changed.insert(address);
        }
        supervisor.look(changed, touched).await;
    }
}

impl Supervisor {
    /// The group of a cluster's machines.
    fn place_of(&self, number: u64) -> Option<String> {
        let seen = self.drivers.get(&number)?.borrow();
        seen.machines.first().map(|facts| facts.kubernetes_ca().cert.clone())
    }

    fn known(&self, address: IpAddr) -> Option<&Arc<Facts>> {
        self.groups.get(self.places.get(&address)?)?.get(&address)
    }

    /// Looks at machines that have changed, and tells their clusters. `touched` are told in any case.
    async fn look(&mut self, changed: BTreeSet<IpAddr>, mut touched: BTreeSet<String>) {
        let Some(world) = self.world.upgrade() else { return };
        for address in changed {
            let facts = world.node(address).and_then(|node| Facts::of(address, &node.machine()));
            if let (Some(old), Some(new)) = (self.known(address), &facts)
                && old.is_same(new)
            {
                continue;
            }
            if let Some(place) = self.places.remove(&address) {
                if let Some(group) = self.groups.get_mut(&place) {
                    group.remove(&address);
                }
                touched.insert(place);
            }
            if let Some(facts) = facts {
                let place = facts.kubernetes_ca().cert.clone();
                self.groups.entry(place.clone()).or_default().insert(address, Arc::new(facts));
                self.places.insert(address, place.clone());
                touched.insert(place);
            }
        }
        for place in touched {
            self.tell(&world, &place).await;
        }
        self.groups.retain(|_, group| !group.is_empty());
    }

    async fn tell(&mut self, world: &World, place: &str) {
        let Some(group) = self.groups.get(place).cloned() else { return };
        let numbers: BTreeSet<u64> = group.values().filter_map(|facts| facts.etcd_data).collect();
        let mut clusters: BTreeMap<u64, Seen> = numbers
            .into_iter()
            .map(|number| (number, Seen { quorum: world.etcd_has_quorum(number), ..Seen::default() }))
            .collect();
        for facts in group.values() {
            let reached = self.reached(facts, &group, &clusters);
            let Some((number, joined)) = reached else { continue };
            let Some(seen) = clusters.get_mut(&number) else { continue };
            seen.machines.push(facts.clone());
            if joined {
                seen.joined.insert(facts.address);
            }
        }
        self.forget(place, &clusters);
        for (number, seen) in clusters {
            if let Some(driver) = self.drivers.get(&number) {
                driver.send_replace(seen);
            } else if seen.quorum && seen.machines.iter().any(|facts| facts.static_pods) {
                self.start(number, seen).await;
            }
        }
    }

    /// The cluster that a machine belongs to, and whether its kubelet reaches the API there.
    fn reached(
        &self,
        facts: &Facts,
        group: &BTreeMap<IpAddr, Arc<Facts>>,
        clusters: &BTreeMap<u64, Seen>,
    ) -> Option<(u64, bool)> {
        if facts.is_control_plane() {
            // A control plane speaks to the API server beside it.
            return facts.etcd_data.map(|number| (number, facts.static_pods));
        }
        let serves = |server: &&Arc<Facts>| {
            let quorum =
                server.etcd_data.and_then(|number| clusters.get(&number)).is_some_and(|seen| seen.quorum);
            server.is_control_plane() && server.static_pods && quorum
        };
        let servers: Vec<&Arc<Facts>> = group.values().filter(serves).collect();
        let behind_endpoint = servers.iter().find(|server| self.at_endpoint(facts, server));
        // KubePrism tries the endpoint, and whoever discovery knows of.
        let known = || {
            let same = |server: &&&Arc<Facts>| {
                let (ours, theirs) = (&facts.config.parts, &server.config.parts);
                facts.kube_prism()
                    && facts.discovery()
                    && theirs.discovery
                    && ours.cluster_id == theirs.cluster_id
                    && ours.cluster_secret == theirs.cluster_secret
            };
            servers.iter().find(same)
        };
        match behind_endpoint.or_else(known) {
            Some(server) => Some((server.etcd_data?, server.bootstrap_token() == facts.bootstrap_token())),
            // Not reached now; the cluster whose node it is has to know that it is silent.
            None => clusters.keys().next().map(|number| (*number, false)),
        }
    }

    /// Whether a worker's endpoint leads to this control plane, and to a certificate that has its name.
    fn at_endpoint(&self, facts: &Facts, server: &Facts) -> bool {
        let Some((host, port)) = facts.endpoint() else { return false };
        let Some(address) = self.shared.fabric.resolve(&host) else { return false };
        let real = self.shared.fabric.holder(address).unwrap_or(address);
        let named = facts.kube_prism() || server.names().contains(&host);
        let balanced = || {
            let (front, target) = (SocketAddr::new(address, port), SocketAddr::new(server.address, API_PORT));
            self.shared.fabric.is_behind(front, target)
        };
        named && ((real == server.address && port == API_PORT) || balanced())
    }

    /// Clusters whose last data are gone.
    fn forget(&mut self, place: &str, clusters: &BTreeMap<u64, Seen>) {
        let of_place = |seen: &watch::Sender<Seen>| {
            let seen = seen.borrow();
            seen.machines.iter().any(|facts| facts.is_control_plane() && facts.kubernetes_ca().cert == place)
        };
        let gone: Vec<u64> = self
            .drivers
            .iter()
            .filter(|(number, seen)| !clusters.contains_key(number) && of_place(seen))
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.drivers.remove(&number);
            self.shared.clusters.lock().remove(&number);
        }
    }

    async fn start(&mut self, number: u64, seen: Seen) {
        let Some(first) = seen.machines.iter().find(|facts| facts.static_pods) else { return };
        let restored = self.shared.restored.lock().remove(&number);
        let account_key = match &restored {
            Some(state) => state.account_key.clone(),
            None => match AccountKey::generate() {
                Ok(key) => Arc::new(key),
                Err(error) => return tracing::error!(%error, "SIMULATED: a cluster can't be started"),
            },
        };
        let store = restored.map_or_else(Store::in_memory, super::ClusterState::open);
        let ca_pem = first.kubernetes_ca().cert.clone();
        let api = match Api::open(store.clone(), account_key.clone(), ca_pem).await {
            Ok(api) => api,
            Err(error) => return tracing::error!(%error, "SIMULATED: a cluster can't be started"),
        };
        let handle = Arc::new(Handle {
            name: first.config.parts.cluster_name.clone(),
            store,
            account_key,
            published: Default::default(),
            conflicts: Default::default(),
        });
        self.shared.clusters.lock().insert(number, handle.clone());
        let (sender, seen) = watch::channel(seen);
        self.drivers.insert(number, sender);
        let driver = Driver {
            number,
            shared: self.shared.clone(),
            handle,
            world: self.world.clone(),
            seen,
            moved: self.moved.clone(),
        };
        tokio::spawn(driver.run(api));
    }
}
