//! The thin shell: listeners, relays and checks on the fabric.

use super::check;
use super::kept::{Kept, Memory, Noted, Pace};
use super::pool::{Balancer, Check, Health, Pool, Probe, Trouble};
use super::table::{Group, Job, Name, Owned, Place, Route, Running, Table, Taken};
use crate::fabric::{Fabric, FabricListener, Stream};
use crate::world::{WeakWorld, World};
use butler_lb::core::{SECOND, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// At speed 0 an interval is this long: checks must not turn into a busy loop.
const INTERVAL_FLOOR: Duration = Duration::from_millis(50);
/// Nor may checks that take longer than their interval.
const REST: Time = 25_000;
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
    health: BTreeMap<Place, Memory>,
}

#[derive(Debug)]
struct Inner {
    fabric: Fabric,
    world: WeakWorld,
    speed: f64,
    /// Time is counted from here.
    began: Instant,
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
            began: Instant::now(),
            table: Mutex::new(table),
            telling: Mutex::default(),
            changed: watch::Sender::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    #[must_use]
    pub fn export(&self) -> BalancersState {
        BalancersState { health: self.inner.table.lock().memories() }
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
        self.inner.table.lock().pools.values().map(|group| group.kept.connections(target)).sum()
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
        for pool in running.wanted.pools.keys() {
            if let Some(group) = table.pools.remove(&Name::new(name, pool)) {
                group.kept.targets().for_each(|target| group.kept.cut(target));
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
        self.set_pools(table, name, &old, &wanted);
        table.balancers.insert(name.to_string(), Running { wanted, listeners });
        self.publish(table, name);
    }

    fn set_pools(self: &Arc<Self>, table: &mut Table, name: &str, old: &Balancer, new: &Balancer) {
        let now = self.now();
        for (pool, before) in &old.pools {
            let full = Name::new(name, pool);
            let after: BTreeSet<SocketAddr> = new
                .pools
                .get(pool)
                .iter()
                .flat_map(|pool| &pool.targets)
                .map(|target| target.socket())
                .collect();
            if let Some(group) = table.pools.get(&full).filter(|_| before.cut_removed) {
                group.kept.targets().filter(|target| !after.contains(target)).for_each(|t| group.kept.cut(t));
            }
            if !new.pools.contains_key(pool) {
                table.pools.remove(&full);
            }
        }
        for (pool, wanted) in &new.pools {
            let (full, pace) = (Name::new(name, pool), self.pace(&wanted.check));
            if !table.pools.contains_key(&full) {
                table.count += 1;
                let group = self.group(&full, table.count, wanted);
                table.pools.insert(full.clone(), group);
            }
            let Table { pools, remembered, .. } = table;
            let Some(group) = pools.get_mut(&full) else { continue };
            let remembered = |target| remembered.remove(&Place { pool: full.clone(), target });
            group.kept.set(wanted, pace, remembered, now);
            group.bell.notify_one();
        }
    }

    fn group(self: &Arc<Self>, name: &Name, number: u64, wanted: &Pool) -> Group {
        let bell = Arc::new(Notify::new());
        let task = tokio::spawn(look_after(Arc::downgrade(self), name.clone(), Arc::clone(&bell)));
        let kept = Kept::new(wanted, self.pace(&wanted.check), self.now());
        Group { kept, number, bell, _checked_by: Owned::new(task) }
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

    fn now(&self) -> Time {
        Time::try_from(self.began.elapsed().as_micros()).unwrap_or(Time::MAX)
    }

    fn pace(&self, check: &Check) -> Pace {
        let timeout = self.scaled(check.timeout);
        // A connection is there or refused at once, so that no patience at all is enough for it.
        let floor = if check.probe == Probe::Tcp { INTERVAL_FLOOR } else { TIMEOUT_FLOOR };
        Pace { interval: self.scaled(check.interval).max(INTERVAL_FLOOR), timeout: timeout.max(floor) }
    }

    /// One check, to be carried out by itself.
    fn check(&self, job: Job) -> impl Future<Output = (SocketAddr, Result<(), Trouble>)> + use<> {
        let unheard = job.kept_out || !self.accepts(job.at.ip(), job.through);
        let (fabric, patience) = (self.fabric.clone(), self.pace(&job.check).timeout);
        async move {
            if unheard {
                return (job.target, Err(Trouble::Timeout));
            }
            let checked = check::run(&fabric, job.at, &job.check.probe);
            let outcome = tokio::time::timeout(patience, checked).await;
            (job.target, outcome.unwrap_or(Err(Trouble::Timeout)))
        }
    }

    /// Keeps what a check has found.
    fn note(&self, pool: &Name, target: SocketAddr, outcome: Result<(), Trouble>) {
        let now = self.now();
        let mut table = self.table.lock();
        let wanted = table.balancers.get(&pool.balancer).and_then(|r| r.wanted.pools.get(&pool.pool));
        let cuts = wanted.is_some_and(|pool| pool.cut_unhealthy);
        let Some(group) = table.pools.get_mut(pool) else { return };
        let Noted { changed, fell } = group.kept.checked(target, outcome, now);
        if fell && cuts {
            group.kept.cut(target);
        }
        if changed {
            self.publish(&table, &pool.balancer);
            drop(table);
            self.tell();
        }
    }

    /// Begins the checks of a pool that are due; `None` when it is gone.
    fn begin(&self, pool: &Name, running: &mut Checks) -> Option<()> {
        let jobs = self.table.lock().jobs(pool, self.now())?;
        for job in jobs {
            running.spawn(self.check(job));
        }
        Some(())
    }

    fn next_due(&self, pool: &Name) -> Option<Time> {
        Some(self.table.lock().pools.get(pool)?.kept.next_due())
    }

    /// When a moment is, as far as that can be said.
    fn moment(&self, at: Time) -> Instant {
        self.began + Duration::from_micros(at.min(self.now().saturating_add(3600 * SECOND)))
    }
}

/// Checks that are under way.
type Checks = JoinSet<(SocketAddr, Result<(), Trouble>)>;

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

/// Checks the targets of a pool for as long as it is there, when the pool says so.
async fn look_after(inner: Weak<Inner>, pool: Name, bell: Arc<Notify>) {
    let mut running = Checks::new();
    let mut rested = 0;
    loop {
        let Some(strong) = inner.upgrade() else { return };
        if strong.now() >= rested {
            if strong.begin(&pool, &mut running).is_none() {
                return;
            }
            rested = strong.now().saturating_add(REST);
        }
        let Some(due) = strong.next_due(&pool) else { return };
        let until = strong.moment(due.max(rested));
        drop(strong);
        tokio::select! {
            Some(Ok((target, outcome))) = running.join_next(), if !running.is_empty() => {
                let Some(strong) = inner.upgrade() else { return };
                strong.note(&pool, target, outcome);
            }
            () = bell.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// A connection's place in a pool; given back when it ends, however that is.
struct Held {
    inner: Weak<Inner>,
    taken: Taken,
}

impl Held {
    fn opened(&self) {
        if let Some(inner) = self.inner.upgrade() {
            let now = inner.now();
            inner.table.lock().opened(&self.taken, now);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let now = inner.now();
            inner.table.lock().closed(&self.taken, now);
        }
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
                let route = strong.table.lock().route(&name, at, strong.now());
                let Some(route) = route else { continue };
                let held = Held { inner: inner.clone(), taken: route.at.clone() };
                if strong.accepts(route.target.ip(), route.through) {
                    relays.spawn(relay(client, fabric.clone(), route, held));
                }
            }
            Some(_) = relays.join_next(), if !relays.is_empty() => {}
        }
    }
}

async fn relay(mut client: Stream, fabric: Fabric, route: Route, held: Held) {
    let mut cut = route.lines.cut.subscribe();
    let Ok(mut inside) = fabric.dial(route.target) else { return };
    held.opened();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut inside) => {}
        _ = cut.changed() => {}
    }
}
