//! What runs for each balancer, and what changes when its owner wants another one.

use super::kept::{Kept, Lines, Memory};
use super::pool::{Balancer, Check, Frontend, Health, Mode, Target};
use butler_lb::core::{BackendId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A pool of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) balancer: String,
    pub(super) pool: String,
}

/// A target of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) pool: Name,
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
    pub(super) pools: BTreeMap<Name, Group>,
    /// Health from before, of targets that are yet to come.
    pub(super) remembered: BTreeMap<Place, Memory>,
    /// Pools so far.
    pub(super) count: u64,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) wanted: Balancer,
    pub(super) listeners: BTreeMap<SocketAddr, Owned>,
}

/// A pool that is looked after.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) kept: Kept,
    /// Tells it from others that had its name.
    pub(super) number: u64,
    /// Wakes who looks after it.
    pub(super) bell: Arc<Notify>,
    pub(super) _checked_by: Owned,
}

/// One check, as it is to be made now.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) target: SocketAddr,
    pub(super) check: Check,
    /// Where it goes.
    pub(super) at: SocketAddr,
    /// The address that the target must take packets for.
    pub(super) through: Option<IpAddr>,
    /// Rules keep the check from arriving.
    pub(super) kept_out: bool,
}

/// A target that a connection goes to, and its place there.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) target: SocketAddr,
    pub(super) through: Option<IpAddr>,
    pub(super) lines: Lines,
    pub(super) at: Taken,
}

/// A place that a connection has in a pool.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pool: Name,
    number: u64,
    id: BackendId,
}

impl Running {
    fn target(&self, pool: &Name, target: SocketAddr) -> Option<(&Target, &Check)> {
        let pool = self.wanted.pools.get(&pool.pool)?;
        let target = pool.targets.iter().find(|other| other.socket() == target)?;
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

impl Name {
    pub(super) fn new(balancer: &str, pool: &str) -> Self {
        Self { balancer: balancer.to_string(), pool: pool.to_string() }
    }
}

impl Table {
    /// The checks of a pool that are to be made now; `None` when it is gone.
    pub(super) fn jobs(&mut self, pool: &Name, now: Time) -> Option<Vec<Job>> {
        let due = self.pools.get_mut(pool)?.kept.due(now);
        Some(due.into_iter().filter_map(|target| self.job(pool, target)).collect())
    }

    fn job(&self, pool: &Name, target: SocketAddr) -> Option<Job> {
        let running = self.balancers.get(&pool.balancer)?;
        let (wanted, check) = running.target(pool, target)?;
        let at = SocketAddr::new(wanted.address, check.port.unwrap_or(wanted.port));
        let through = running.through(&pool.pool);
        Some(Job { target, check: check.clone(), at, through, kept_out: !wanted.checkable })
    }

    pub(super) fn health(&self, balancer: &str, pool: &str, target: SocketAddr) -> Health {
        let group = self.pools.get(&Name::new(balancer, pool));
        group.map(|group| group.kept.health(target)).unwrap_or_default()
    }

    /// What is to be remembered of all targets.
    pub(super) fn memories(&self) -> BTreeMap<Place, Memory> {
        let mut all = self.remembered.clone();
        for (pool, group) in &self.pools {
            let targets = group.kept.targets();
            let memories = targets.filter_map(|target| {
                Some((Place { pool: pool.clone(), target }, group.kept.memory(target)?))
            });
            all.extend(memories);
        }
        all
    }

    /// Where the next connection to a frontend goes.
    pub(super) fn route(&mut self, name: &str, at: SocketAddr, now: Time) -> Option<Route> {
        let running = self.balancers.get(name)?;
        let frontend = running.wanted.frontends.iter().find(|frontend| frontend.socket() == at)?;
        let pool = Name::new(name, &frontend.pool);
        let group = self.pools.get_mut(&pool).filter(|_| frontend.open)?;
        let (id, target, lines) = group.kept.pick(frontend.zone.as_deref(), now)?;
        let through = (running.wanted.mode == Mode::Passthrough).then_some(frontend.address);
        Some(Route { target, through, lines, at: Taken { pool, number: group.number, id } })
    }

    /// The connection of a place is open.
    pub(super) fn opened(&mut self, taken: &Taken, now: Time) {
        if let Some(group) = self.taken(taken) {
            group.kept.opened(taken.id, now);
        }
    }

    /// The connection of a place has ended.
    pub(super) fn closed(&mut self, taken: &Taken, now: Time) {
        if let Some(group) = self.taken(taken) {
            group.kept.closed(taken.id, now);
        }
    }

    fn taken(&mut self, taken: &Taken) -> Option<&mut Group> {
        self.pools.get_mut(&taken.pool).filter(|group| group.number == taken.number)
    }

    fn candidates(&self, name: &str, frontend: &Frontend) -> Vec<(SocketAddr, bool)> {
        let group = self.pools.get(&Name::new(name, &frontend.pool));
        group.map(|group| group.kept.candidates(frontend.zone.as_deref())).unwrap_or_default()
    }

    /// Who is behind each frontend for the machines of the data centre, as far as rules let them through.
    pub(super) fn behind(&self, name: &str) -> BTreeMap<SocketAddr, BTreeSet<SocketAddr>> {
        let Some(running) = self.balancers.get(name) else { return BTreeMap::new() };
        let of = |frontend: &Frontend| -> BTreeSet<SocketAddr> {
            let candidates = self.candidates(name, frontend).into_iter();
            candidates.filter(|(_, open)| *open && frontend.open_inside).map(|(target, _)| target).collect()
        };
        running.wanted.frontends.iter().map(|frontend| (frontend.socket(), of(frontend))).collect()
    }

    /// The address that a balancer's names lead to: the first that has anybody behind it, or simply the first.
    pub(super) fn lead(&self, name: &str) -> Option<IpAddr> {
        let frontends = &self.balancers.get(name)?.wanted.frontends;
        let peopled = frontends.iter().find(|frontend| !self.candidates(name, frontend).is_empty());
        peopled.or_else(|| frontends.first()).map(|frontend| frontend.address)
    }
}
