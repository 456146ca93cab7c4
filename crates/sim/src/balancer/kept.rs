//! The targets of one pool, kept by the library of `butler-lb`: when they are checked, whether they are well, who drains, and
//! which one gets the next connection is decided there. Here is only what a cloud has beside it: zones, rules, and the words
//! that it has for what is wrong.

use super::pool::{Check, Health, Pool as Wanted, Target, Trouble, Verdict};
use butler_lb::config::{
    AllDown, Backend, Balance, HealthCheck, Listener, ProxyProtocol, Queue, Rebalance, Timeouts,
};
use butler_lb::core::{self as lb, BackendId, Change, Known, MILLISECOND, Manner, Pick, Time};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The pool chooses in turn, whoever the client is.
const ANYBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Debug)]
pub(super) struct Kept {
    pool: lb::Pool,
    targets: BTreeMap<SocketAddr, Seat>,
}

/// A target that is looked after.
#[derive(Debug)]
struct Seat {
    id: BackendId,
    zone: String,
    /// Whether rules let connections through.
    open: bool,
    /// What the last bad check found.
    trouble: Trouble,
    lines: Lines,
}

/// The times of checks, as they pass here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

/// What is to be remembered of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    known: Known,
    trouble: Trouble,
}

/// What a check has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// What its owner is told is another than before.
    pub(super) changed: bool,
    /// It was well and is not any more.
    pub(super) fell: bool,
}

/// The connections to one target.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    /// Counts how often they were cut.
    pub(super) cut: Arc<watch::Sender<u32>>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { cut: Arc::new(watch::Sender::new(0)) }
    }
}

impl Lines {
    fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

impl Kept {
    pub(super) fn new(wanted: &Wanted, pace: Pace, now: Time) -> Self {
        let pool = lb::Pool::with_manner(&listener(&Wanted::empty(wanted), pace), manner(wanted), 0, now);
        Self { pool, targets: BTreeMap::new() }
    }

    /// From now on these are the targets. One that stays keeps its health and its connections; a new one begins with what
    /// is remembered of it.
    pub(super) fn set(
        &mut self,
        wanted: &Wanted,
        pace: Pace,
        mut remembered: impl FnMut(SocketAddr) -> Option<Memory>,
        now: Time,
    ) {
        let targets = targets(wanted);
        self.pool.reload_with(&listener(wanted, pace), manner(wanted), now);
        self.targets.retain(|at, _| targets.contains_key(at));
        for (at, target) in targets {
            let Some(id) = self.pool.find(&at.to_string()) else { continue };
            let seat = self.targets.entry(at).or_insert_with(|| {
                let memory = remembered(at);
                if let Some(memory) = memory {
                    self.pool.restore(id, memory.known, now);
                }
                let trouble = memory.map_or(Trouble::Timeout, |memory| memory.trouble);
                Seat { id, zone: String::new(), open: true, trouble, lines: Lines::default() }
            });
            seat.zone.clone_from(&target.zone);
            seat.open = target.open;
            match target.draining {
                true => self.pool.drain(id, now),
                false => self.pool.undrain(id, now),
            }
        }
    }

    /// Ends the connections to a target.
    pub(super) fn cut(&self, target: SocketAddr) {
        if let Some(seat) = self.targets.get(&target) {
            seat.lines.cut();
        }
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = SocketAddr> {
        self.targets.keys().copied()
    }

    /// The targets that are to be checked now.
    pub(super) fn due(&mut self, now: Time) -> Vec<SocketAddr> {
        let due = self.pool.due_checks(now);
        self.targets.iter().filter(|(_, seat)| due.contains(&seat.id)).map(|(at, _)| *at).collect()
    }

    /// When to ask again.
    pub(super) fn next_due(&self) -> Time {
        self.pool.next_due()
    }

    /// A check of a target has ended.
    pub(super) fn checked(&mut self, target: SocketAddr, outcome: Result<(), Trouble>, now: Time) -> Noted {
        let before = self.health(target);
        let Some(seat) = self.targets.get_mut(&target) else { return Noted::default() };
        if let Err(trouble) = outcome {
            seat.trouble = trouble;
        }
        let change = self.pool.check_result(seat.id, outcome.is_ok(), now);
        Noted {
            changed: self.health(target) != before,
            fell: change == Some(Change::Down) && before.is_healthy(),
        }
    }

    pub(super) fn health(&self, target: SocketAddr) -> Health {
        let Some(memory) = self.memory(target) else { return Health::default() };
        let verdict = match memory.known.verdict {
            lb::Verdict::New => Verdict::Initial,
            lb::Verdict::Up => Verdict::Healthy,
            lb::Verdict::Down | lb::Verdict::Ejected => Verdict::Unhealthy(memory.trouble),
        };
        Health { verdict }
    }

    pub(super) fn memory(&self, target: SocketAddr) -> Option<Memory> {
        let seat = self.targets.get(&target)?;
        Some(Memory { known: self.pool.known(seat.id)?, trouble: seat.trouble })
    }

    pub(super) fn connections(&self, target: SocketAddr) -> usize {
        let Some(seat) = self.targets.get(&target) else { return 0 };
        let found = self.pool.backends().into_iter().find(|backend| backend.id == seat.id);
        found.map_or(0, |backend| backend.connections as usize)
    }

    /// The targets that new connections to a zone (`None`: to any) may go to, and whether rules let them through.
    pub(super) fn candidates(&self, zone: Option<&str>) -> Vec<(SocketAddr, bool)> {
        let candidates = self.pool.candidates(&self.elsewhere(zone));
        let among = |(_, seat): &(&SocketAddr, &Seat)| candidates.contains(&seat.id);
        self.targets.iter().filter(among).map(|(at, seat)| (*at, seat.open)).collect()
    }

    /// The target of a new connection, which has a place there until `closed` gives it back.
    pub(super) fn pick(&mut self, zone: Option<&str>, now: Time) -> Option<(BackendId, SocketAddr, Lines)> {
        let elsewhere = self.elsewhere(zone);
        let Pick::Backend(id) = self.pool.pick(now, ANYBODY, &elsewhere) else { return None };
        match self.targets.iter().find(|(_, seat)| seat.id == id && seat.open) {
            Some((at, seat)) => Some((id, *at, seat.lines.clone())),
            None => {
                self.pool.closed(id, now);
                None
            }
        }
    }

    pub(super) fn opened(&mut self, id: BackendId, now: Time) {
        self.pool.opened(id, now);
    }

    pub(super) fn closed(&mut self, id: BackendId, now: Time) {
        self.pool.closed(id, now);
    }

    fn elsewhere(&self, zone: Option<&str>) -> Vec<BackendId> {
        let Some(zone) = zone else { return Vec::new() };
        self.targets.values().filter(|seat| seat.zone != zone).map(|seat| seat.id).collect()
    }
}

impl Wanted {
    /// The same without targets.
    fn empty(&self) -> Self {
        Self { targets: Vec::new(), ..self.clone() }
    }
}

/// Each address and port once. Whoever is in the list twice drains only if it does in both places.
fn targets(wanted: &Wanted) -> BTreeMap<SocketAddr, &Target> {
    let mut all = BTreeMap::new();
    for target in &wanted.targets {
        let known = all.entry(target.socket()).or_insert(target);
        if known.draining && !target.draining {
            *known = target;
        }
    }
    all
}

fn manner(wanted: &Wanted) -> Manner {
    Manner::Plain { first: wanted.check.first }
}

/// A pool in the words of the library. When draining ends and what becomes of connections then is for the cloud's API to say, so
/// that the library never ends one by itself; and a cloud does not take a target out because a connection failed.
fn listener(wanted: &Wanted, pace: Pace) -> Listener {
    let Check { rise, fall, .. } = wanted.check;
    let backends = targets(wanted).into_keys().map(|address| Backend {
        name: address.to_string(),
        address,
        weight: 1,
        max_connections: 0,
    });
    Listener {
        name: String::new(),
        bind: Vec::new(),
        backends: backends.collect(),
        balance: Balance::RoundRobin,
        health: HealthCheck {
            interval_ms: Some(milliseconds(pace.interval)),
            timeout_ms: Some(milliseconds(pace.timeout)),
            healthy: Some(rise),
            unhealthy: Some(fall),
            passive: 0,
            ..HealthCheck::default()
        },
        allow: Vec::new(),
        max_connections: 0,
        queue: Queue::default(),
        timeouts: Timeouts::default(),
        accept_proxy: false,
        send_proxy: ProxyProtocol::None,
        all_down: AllDown::TryAll,
        deregistration_delay: u64::MAX,
        rebalance: Rebalance { enabled: false, close_unready: u64::MAX, ..Rebalance::default() },
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / MILLISECOND)
}
