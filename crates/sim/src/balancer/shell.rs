//! The thin shell: listeners, relays and checks on the fabric.

use super::check;
use super::pool::{Balancer, Health, Trouble};
use super::table::{Job, Owned, Place, Route, Running, Slot, Table};
use crate::fabric::{Fabric, FabricListener, Stream};
use crate::world::{WeakWorld, World};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// At speed 0 an interval is this long: checks must not turn into a busy loop.
const INTERVAL_FLOOR: Duration = Duration::from_millis(50);
/// A handshake takes the time that this computer takes, whatever the speed.
const TIMEOUT_FLOOR: Duration = Duration::from_secs(3);

/// All load balancers of a data centre. Clones are the same; they end when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Balancers {
    inner: Arc<Inner>,
}

/// What is to be remembered of load balancers: the health of their targets. Plain data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BalancersState {
    health: BTreeMap<Place, Health>,
}

#[derive(Debug)]
struct Inner {
    fabric: Fabric,
    world: WeakWorld,
    speed: f64,
    table: Mutex<Table>,
    /// One at a time tells what is wanted, so that the last word is the newest.
    telling: Mutex<()>,
    /// Counts changes of health.
    changed: watch::Sender<u64>,
}

impl Balancers {
    /// On a network, for machines of this world. `speed` scales the intervals of checks.
    #[must_use]
    pub fn new(fabric: Fabric, world: &World, speed: f64) -> Self {
        Self::import(fabric, world, speed, BalancersState::default())
    }

    /// Targets that were known before begin with the health that they had.
    #[must_use]
    pub fn import(fabric: Fabric, world: &World, speed: f64, from: BalancersState) -> Self {
        let table = Table { remembered: from.health, ..Table::default() };
        let inner = Inner {
            fabric,
            world: world.downgrade(),
            speed: speed.max(0.0),
            table: Mutex::new(table),
            telling: Mutex::default(),
            changed: watch::Sender::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    #[must_use]
    pub fn export(&self) -> BalancersState {
        let table = self.inner.table.lock();
        let mut health = table.remembered.clone();
        health.extend(table.places.iter().map(|(place, slot)| (place.clone(), slot.health)));
        BalancersState { health }
    }

    /// From now on these are the balancers whose names begin with `owner`, and no others. What stays the same goes on
    /// undisturbed. Needs a tokio runtime.
    pub fn apply(&self, owner: &str, wanted: BTreeMap<String, Balancer>) {
        let mut table = self.inner.table.lock();
        let there = |name: &&String| name.starts_with(owner) && !wanted.contains_key(*name);
        let gone: Vec<String> = table.balancers.keys().filter(there).cloned().collect();
        let mut changed = !gone.is_empty();
        for name in gone {
            self.inner.remove(&mut table, &name);
        }
        for (name, balancer) in wanted {
            if table.balancers.get(&name).is_none_or(|running| running.wanted != balancer) {
                self.inner.set(&mut table, &name, balancer);
                changed = true;
            }
        }
        drop(table);
        if changed {
            self.inner.tell();
        }
    }

    /// The same, with what is wanted looked up in the caller's turn.
    pub(crate) fn apply_newest(&self, owner: &str, wanted: impl FnOnce() -> BTreeMap<String, Balancer>) {
        let _telling = self.inner.telling.lock();
        self.apply(owner, wanted());
    }

    /// The health of a target; that of one it does not know is initial.
    #[must_use]
    pub fn health(&self, balancer: &str, pool: &str, target: SocketAddr) -> Health {
        self.inner.table.lock().health(balancer, pool, target)
    }

    /// How many connections to a target are open, over all balancers.
    #[must_use]
    pub fn connections(&self, target: SocketAddr) -> usize {
        let table = self.inner.table.lock();
        table
            .places
            .iter()
            .filter(|(place, _)| place.target == target)
            .map(|(_, slot)| slot.lines.open())
            .sum()
    }

    /// Changes whenever the health of a target, or a balancer, does.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }
}

impl Inner {
    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn remove(&self, table: &mut Table, name: &str) {
        let Some(running) = table.balancers.remove(name) else { return };
        for address in running.addresses() {
            self.fabric.host_down(address);
        }
        for at in running.listeners.keys() {
            self.fabric.close(*at);
            self.fabric.set_behind(*at, None);
        }
        for name in &running.wanted.names {
            self.fabric.unname(name);
        }
        for place in Table::wanted_places(name, &running.wanted) {
            if let Some(slot) = table.places.remove(&place) {
                slot.lines.cut();
            }
        }
    }

    fn set(self: &Arc<Self>, table: &mut Table, name: &str, wanted: Balancer) {
        let before = table.balancers.remove(name);
        let (old, mut listeners) = match before {
            Some(running) => (running.wanted, running.listeners),
            None => (Balancer::default(), BTreeMap::new()),
        };
        let running = Running { wanted: wanted.clone(), listeners: BTreeMap::new() };
        let old_addresses: BTreeSet<IpAddr> = old.frontends.iter().map(|f| f.address).collect();
        running.addresses().difference(&old_addresses).for_each(|address| self.fabric.host_up(*address));
        old_addresses.difference(&running.addresses()).for_each(|address| self.fabric.host_down(*address));
        let sockets: BTreeSet<SocketAddr> = wanted.frontends.iter().map(|f| f.socket()).collect();
        for gone in listeners.keys().filter(|at| !sockets.contains(at)) {
            self.fabric.close(*gone);
            self.fabric.set_behind(*gone, None);
        }
        listeners.retain(|at, _| sockets.contains(at));
        for at in sockets {
            if !listeners.contains_key(&at) {
                listeners.extend(self.listen(name, at).map(|listening| (at, listening)));
            }
        }
        for gone in old.names.iter().filter(|old| !wanted.names.contains(old)) {
            self.fabric.unname(gone);
        }
        self.set_places(table, name, &old, &wanted);
        table.balancers.insert(name.to_string(), Running { wanted, listeners });
        self.publish(table, name);
    }

    fn set_places(self: &Arc<Self>, table: &mut Table, name: &str, old: &Balancer, new: &Balancer) {
        let (before, after) = (Table::wanted_places(name, old), Table::wanted_places(name, new));
        for gone in before.difference(&after) {
            let Some(slot) = table.places.remove(gone) else { continue };
            if old.pools.get(&gone.pool).is_some_and(|pool| pool.cut_removed) {
                slot.lines.cut();
            }
        }
        for place in after {
            if table.places.contains_key(&place) {
                continue;
            }
            let health = table.remembered.remove(&place).unwrap_or_default();
            let task = tokio::spawn(look_after(Arc::downgrade(self), place.clone()));
            let slot = Slot { health, lines: Default::default(), _checked_by: Owned::new(task) };
            table.places.insert(place, slot);
        }
    }

    /// Tells the network who is behind a balancer, and where its names lead.
    fn publish(&self, table: &Table, name: &str) {
        let Some(running) = table.balancers.get(name) else { return };
        if let Some(address) = table.lead(name) {
            running.wanted.names.iter().for_each(|name| self.fabric.name(name, address));
        }
        for (at, targets) in table.behind(name) {
            self.fabric.set_behind(at, Some(targets));
        }
    }

    /// An address that somebody else has taken stays theirs, and clients of the balancer don't reach it.
    fn listen(self: &Arc<Self>, name: &str, at: SocketAddr) -> Option<Owned> {
        match self.fabric.listen(at) {
            Ok(listener) => Some(Owned::new(tokio::spawn(accept(
                Arc::downgrade(self),
                self.fabric.clone(),
                name.to_string(),
                at,
                listener,
            )))),
            Err(error) => {
                tracing::warn!(%at, %error, "SIMULATED: a load balancer can't listen");
                None
            }
        }
    }

    fn scaled(&self, time: Duration) -> Duration {
        Duration::try_from_secs_f64(time.as_secs_f64() * self.speed).unwrap_or(Duration::MAX)
    }

    /// Whether a machine takes packets that are addressed to somebody else.
    fn accepts(&self, target: IpAddr, through: Option<IpAddr>) -> bool {
        let Some(address) = through else { return true };
        let Some(node) = self.world.upgrade().and_then(|world| world.node(target)) else { return false };
        node.machine().config().is_some_and(|config| config.loopback_addresses().contains(&address))
    }

    async fn check(&self, job: &Job) -> Result<(), Trouble> {
        if job.kept_out || !self.accepts(job.at.ip(), job.through) {
            return Err(Trouble::Timeout);
        }
        let patience = self.scaled(job.check.timeout);
        let patience = if job.is_slow() { patience.max(TIMEOUT_FLOOR) } else { patience };
        let checked = check::run(&self.fabric, job.at, &job.check.probe);
        // A connection is there or refused at once, so that no patience at all is enough for it.
        tokio::time::timeout(patience.max(INTERVAL_FLOOR), checked).await.unwrap_or(Err(Trouble::Timeout))
    }

    /// Keeps what a check has found, and says when the next one is due.
    fn note(&self, place: &Place, job: &Job, outcome: Result<(), Trouble>) -> Duration {
        let mut table = self.table.lock();
        let cuts = |table: &Table| {
            let pool = table.balancers.get(&place.balancer).and_then(|r| r.wanted.pools.get(&place.pool));
            pool.is_some_and(|pool| pool.cut_unhealthy)
        };
        let cuts = cuts(&table);
        let Some(slot) = table.places.get_mut(place) else { return Duration::ZERO };
        let before = slot.health;
        slot.health = before.after(&job.check, outcome);
        let changed = slot.health.verdict != before.verdict;
        if changed && before.is_healthy() && cuts {
            slot.lines.cut();
        }
        if changed {
            self.publish(&table, &place.balancer);
        }
        drop(table);
        if changed {
            self.tell();
        }
        self.scaled(job.check.interval).max(INTERVAL_FLOOR)
    }
}

/// Names, addresses and the rest of it don't outlive the balancers.
impl Drop for Inner {
    fn drop(&mut self) {
        let mut table = std::mem::take(&mut *self.table.lock());
        let names: Vec<String> = table.balancers.keys().cloned().collect();
        for name in names {
            self.remove(&mut table, &name);
        }
    }
}

/// Checks a target for as long as it is one.
async fn look_after(inner: Weak<Inner>, place: Place) {
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let Some(job) = strong.table.lock().job(&place) else { return };
        let outcome = strong.check(&job).await;
        let pause = strong.note(&place, &job, outcome);
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

/// Takes connections for as long as the frontend is there; they end with it.
async fn accept(
    inner: Weak<Inner>,
    fabric: Fabric,
    name: String,
    at: SocketAddr,
    mut listener: FabricListener,
) {
    let mut relays = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (Ok(client), Some(strong)) = (accepted, inner.upgrade()) else { return };
                let route = strong.table.lock().route(&name, at);
                let route = route.filter(|route| strong.accepts(route.target.ip(), route.through));
                if let Some(route) = route {
                    relays.spawn(relay(client, fabric.clone(), route));
                }
            }
            Some(_) = relays.join_next(), if !relays.is_empty() => {}
        }
    }
}

async fn relay(mut client: Stream, fabric: Fabric, route: Route) {
    let mut cut = route.lines.cut.subscribe();
    let Ok(mut inside) = fabric.dial(route.target) else { return };
    let count = route.lines.count;
    count.fetch_add(1, Ordering::Relaxed);
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut inside) => {}
        _ = cut.changed() => {}
    }
    count.fetch_sub(1, Ordering::Relaxed);
}
