//! What runs for each balancer, and what changes when its owner wants another one.

use super::pool::{Balancer, Check, Health, Mode, Probe, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A target of a pool of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) balancer: String,
    pub(super) pool: String,
    pub(super) target: SocketAddr,
}

/// A task that ends with what it belongs to.
#[derive(Debug)]
pub(super) struct Owned(JoinHandle<()>);

impl Owned {
    pub(super) fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) balancers: BTreeMap<String, Running>,
    pub(super) places: BTreeMap<Place, Slot>,
    /// Health from before, of targets that are yet to come.
    pub(super) remembered: BTreeMap<Place, Health>,
    pub(super) turn: usize,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) wanted: Balancer,
    pub(super) listeners: BTreeMap<SocketAddr, Owned>,
}

/// A target that is looked after.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) health: Health,
    pub(super) lines: Lines,
    pub(super) _checked_by: Owned,
}

/// The connections to one target.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    /// Counts how often they were cut.
    pub(super) cut: Arc<watch::Sender<u32>>,
    pub(super) count: Arc<AtomicUsize>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { cut: Arc::new(watch::Sender::new(0)), count: Arc::default() }
    }
}

impl Lines {
    pub(super) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    pub(super) fn open(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// A check that is to be made.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) check: Check,
    pub(super) at: SocketAddr,
    /// The address that the target has to accept packets for.
    pub(super) through: Option<IpAddr>,
    /// Rules keep the check from arriving.
    pub(super) kept_out: bool,
}

/// A target that a connection goes to.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) target: SocketAddr,
    pub(super) through: Option<IpAddr>,
    pub(super) lines: Lines,
}

impl Running {
    fn target(&self, place: &Place) -> Option<(&Target, &Check)> {
        let pool = self.wanted.pools.get(&place.pool)?;
        let target = pool.targets.iter().find(|target| target.socket() == place.target)?;
        Some((target, &pool.check))
    }

    fn through(&self, pool: &str) -> Option<IpAddr> {
        let frontend = self.wanted.frontends.iter().find(|frontend| frontend.pool == pool);
        frontend.filter(|_| self.wanted.mode == Mode::Passthrough).map(|frontend| frontend.address)
    }

    /// Addresses that it answers at.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.wanted.frontends.iter().map(|frontend| frontend.address).collect()
    }
}

impl Table {
    /// All targets that are to be looked after.
    pub(super) fn wanted_places(name: &str, wanted: &Balancer) -> BTreeSet<Place> {
        let pools = wanted.pools.iter();
        let places = pools.flat_map(|(pool, contents)| {
            contents.targets.iter().map(move |target| Place {
                balancer: name.to_string(),
                pool: pool.clone(),
                target: target.socket(),
            })
        });
        places.collect()
    }

    pub(super) fn job(&self, place: &Place) -> Option<Job> {
        let running = self.balancers.get(&place.balancer)?;
        let (target, check) = running.target(place)?;
        let at = SocketAddr::new(target.address, check.port.unwrap_or(target.port));
        let through = running.through(&place.pool);
        Some(Job { check: check.clone(), at, through, kept_out: !target.checkable })
    }

    pub(super) fn health(&self, balancer: &str, pool: &str, target: SocketAddr) -> Health {
        let place = Place { balancer: balancer.to_string(), pool: pool.to_string(), target };
        self.places.get(&place).map(|slot| slot.health).unwrap_or_default()
    }

    /// Where the next connection to a frontend goes.
    pub(super) fn route(&mut self, name: &str, at: SocketAddr) -> Option<Route> {
        self.turn = self.turn.wrapping_add(1);
        let running = self.balancers.get(name)?;
        let frontend = running.wanted.frontends.iter().find(|frontend| frontend.socket() == at)?;
        let pool = running.wanted.pools.get(&frontend.pool).filter(|_| frontend.open)?;
        let health = |target| self.health(name, &frontend.pool, target);
        let candidates = pool.candidates(frontend.zone.as_deref(), health);
        let chosen = candidates.get(self.turn % candidates.len().max(1)).filter(|target| target.open)?;
        let place =
            Place { balancer: name.to_string(), pool: frontend.pool.clone(), target: chosen.socket() };
        let through = (running.wanted.mode == Mode::Passthrough).then_some(frontend.address);
        Some(Route { target: chosen.socket(), through, lines: self.places.get(&place)?.lines.clone() })
    }

    /// Who is behind each frontend for the machines of the data centre, as far as rules let them through.
    pub(super) fn behind(&self, name: &str) -> BTreeMap<SocketAddr, BTreeSet<SocketAddr>> {
        let Some(running) = self.balancers.get(name) else { return BTreeMap::new() };
        let of = |frontend: &super::pool::Frontend| -> Option<BTreeSet<SocketAddr>> {
            let pool = running.wanted.pools.get(&frontend.pool).filter(|_| frontend.open_inside)?;
            let health = |target| self.health(name, &frontend.pool, target);
            let candidates = pool.candidates(frontend.zone.as_deref(), health);
            Some(candidates.into_iter().filter(|target| target.open).map(Target::socket).collect())
        };
        let frontends = running.wanted.frontends.iter();
        frontends.map(|frontend| (frontend.socket(), of(frontend).unwrap_or_default())).collect()
    }
}

impl Table {
    /// The address that a balancer's names lead to: the first that has anybody behind it, or simply the first.
    pub(super) fn lead(&self, name: &str) -> Option<IpAddr> {
        let wanted = &self.balancers.get(name)?.wanted;
        let peopled = |frontend: &&super::pool::Frontend| {
            let health = |target| self.health(name, &frontend.pool, target);
            let pool = wanted.pools.get(&frontend.pool);
            pool.is_some_and(|pool| !pool.candidates(frontend.zone.as_deref(), health).is_empty())
        };
        let first = wanted.frontends.iter().find(peopled).or_else(|| wanted.frontends.first());
        first.map(|frontend| frontend.address)
    }
}

impl Job {
    /// Whether it passes TLS, which takes longer than a connection.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.check.probe, Probe::Http { .. })
    }
}
