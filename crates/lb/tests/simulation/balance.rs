//! Clients with long-lived connections, backends that come and go, and a pool between them.
//!
//! What is proved: the pool's books are right at every moment; no connection goes to a backend that is drained or was
//! tried, nor past a healthy one to an unhealthy one; drained and unready backends are empty when their time is up; and
//! after the last fault shares are even within the tolerance, in the time that the rate needs, at no more than the rate.

use butler_lb::config::{Balance, Listener};
use butler_lb::core::{BackendId, BackendStatus, Pick, Pool, Random, SECOND, State, Time};
use std::net::IpAddr;

const MILLISECOND: Time = 1000;
const FAULTY: Time = 15 * SECOND;
const PER_SECOND: u32 = 20;
const TOLERANCE: u32 = 10;
/// Drained backends are empty after this time, in seconds.
const DELAY: u64 = 3;
/// Unready ones after this.
const UNREADY: u64 = 4;

struct World {
    now: Time,
    random: Random,
    pool: Pool,
    balance: Balance,
    backends: Vec<Backend>,
    clients: Vec<Client>,
    /// Checks on their way: when they end, of whom, how.
    checks: Vec<(Time, BackendId, bool)>,
    end: Time,
    healthy_since: Time,
    shed: u64,
    trace: bool,
}

struct Backend {
    id: BackendId,
    /// Takes connections.
    alive: bool,
    /// Passes checks.
    ready: bool,
    drained: Option<Time>,
    /// When it last got a connection.
    opened: Time,
}

struct Client {
    address: IpAddr,
    at: Option<BackendId>,
    /// When it connects, if it is not connected.
    next: Time,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Die(usize),
    Unready(usize),
    Recover(usize),
    Drain(usize),
    Undrain(usize),
    Leave(usize),
}

#[test]
fn books_are_right_and_shares_even_in_time() {
    let shed = crate::run(25, |seed, trace| World::new(seed, trace).run());
    assert!(shed > 0);
}

fn listener(balance: Balance, count: u64) -> Listener {
    let backends: Vec<_> = (0..count)
        .map(|n| serde_json::json!({"name": format!("cp-{n}"), "address": format!("10.0.0.{}:6443", n + 1)}))
        .collect();
    let value = serde_json::json!({
        "name": "api", "bind": ["127.0.0.1:0"], "backends": backends, "balance": balance,
        "deregistrationDelay": DELAY,
        "rebalance": {"perSecond": PER_SECOND, "tolerance": TOLERANCE, "closeUnready": UNREADY},
    });
    serde_json::from_value(value).unwrap()
}

impl World {
    fn new(seed: u64, trace: bool) -> World {
        let mut random = Random::new(seed ^ 0xba1a);
        let balance =
            [Balance::LeastConnections, Balance::RoundRobin, Balance::PowerOfTwo, Balance::SourceHash]
                [random.below(4) as usize];
        let count = 2 + random.below(3);
        let pool = Pool::new(&listener(balance, count), seed, 0);
        let clients = 5 + random.below(40);
        let client = |n: u64| Client {
            address: IpAddr::from([192, 0, 2, n as u8]),
            at: None,
            next: n * 20 * MILLISECOND,
        };
        let backend =
            |n: u64| Backend { id: BackendId(n as u32), alive: true, ready: true, drained: None, opened: 0 };
        World {
            now: 0,
            random,
            pool,
            balance,
            backends: (0..count).map(backend).collect(),
            clients: (0..clients).map(client).collect(),
            checks: Vec::new(),
            // Two checks to come back, then every connection may have to move twice; then some to come to rest.
            end: FAULTY + 4 * SECOND + 2 * clients * SECOND / u64::from(PER_SECOND) + 2 * SECOND,
            healthy_since: Time::MAX,
            shed: 0,
            trace,
        }
    }

    fn script(&mut self) -> Vec<(Time, Action)> {
        let mut script = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let from = SECOND + self.random.below(FAULTY - 4 * SECOND);
            let until = (from + self.random.below(10 * SECOND)).min(FAULTY - 3 * SECOND);
            let backend = self.random.below(self.backends.len() as u64) as usize;
            match self.random.below(4) {
                0 => script.extend([(from, Action::Die(backend)), (until, Action::Recover(backend))]),
                1 => script.extend([(from, Action::Unready(backend)), (until, Action::Recover(backend))]),
                2 => script.extend([(from, Action::Drain(backend)), (until, Action::Undrain(backend))]),
                _ => {
                    script.push((from, Action::Leave(self.random.below(self.clients.len() as u64) as usize)))
                }
            }
        }
        // One always comes back in the end, after a time in which it is missed: that is what makes connections move.
        script.push((FAULTY - 2 * SECOND, Action::Die(0)));
        for backend in 0..self.backends.len() {
            script.extend([(FAULTY, Action::Recover(backend)), (FAULTY, Action::Undrain(backend))]);
        }
        script.sort_by_key(|(at, _)| *at);
        script
    }

    fn run(mut self) -> Result<u64, String> {
        let script = self.script();
        let mut next_action = 0;
        loop {
            let action = script.get(next_action).map_or(Time::MAX, |(at, _)| *at);
            let waiting = self.clients.iter().filter(|client| client.at.is_none());
            let client = waiting.map(|client| client.next).min().unwrap_or(Time::MAX);
            let check = self.checks.iter().map(|(at, ..)| *at).min().unwrap_or(Time::MAX);
            let next = action.min(client).min(check).min(self.pool.next_due());
            if next > self.end {
                break;
            }
            self.now = self.now.max(next);
            if action <= self.now {
                self.act(script[next_action].1);
                next_action += 1;
            } else if check <= self.now {
                self.end_check();
            } else if client <= self.now {
                self.connect()?;
            } else {
                self.due()?;
            }
            self.check_books()?;
        }
        self.check_shares()?;
        Ok(self.shed)
    }

    fn act(&mut self, action: Action) {
        if self.trace {
            println!("{:>10} {action:?}", self.now);
        }
        let now = self.now;
        match action {
            Action::Die(at) => {
                (self.backends[at].alive, self.backends[at].ready) = (false, false);
                let id = self.backends[at].id;
                for index in 0..self.clients.len() {
                    if self.clients[index].at == Some(id) {
                        self.disconnect(index);
                    }
                }
            }
            Action::Unready(at) => self.backends[at].ready = false,
            Action::Recover(at) => (self.backends[at].alive, self.backends[at].ready) = (true, true),
            Action::Drain(at) => {
                self.backends[at].drained.get_or_insert(now);
                self.pool.drain(self.backends[at].id, now);
            }
            Action::Undrain(at) => {
                if self.backends[at].drained.take().is_some() {
                    self.pool.undrain(self.backends[at].id, now);
                }
            }
            Action::Leave(at) => {
                if self.clients[at].at.is_some() {
                    self.disconnect(at);
                    self.clients[at].next = now + self.random.below(3 * SECOND);
                }
            }
        }
    }

    /// A client's connection ends, and it comes back soon.
    fn disconnect(&mut self, index: usize) {
        if let Some(id) = self.clients[index].at.take() {
            self.pool.closed(id, self.now);
            self.clients[index].next = self.now + 1 + self.random.below(500 * MILLISECOND);
        }
    }

    fn end_check(&mut self) {
        let Some(at) = self.checks.iter().position(|(at, ..)| *at <= self.now) else { return };
        let (_, id, ok) = self.checks.swap_remove(at);
        let change = self.pool.check_result(id, ok, self.now);
        if self.trace && change.is_some() {
            println!("{:>10} {id:?} {change:?}", self.now);
        }
    }

    fn connect(&mut self) -> Result<(), String> {
        let now = self.now;
        let waits = |client: &Client| client.at.is_none() && client.next <= now;
        let Some(index) = self.clients.iter().position(waits) else { return Ok(()) };
        let address = self.clients[index].address;
        let mut tried = Vec::new();
        while let Pick::Backend(id) = self.pool.pick(now, address, &tried) {
            self.check_pick(id, &tried)?;
            let backend = self.backends.iter_mut().find(|backend| backend.id == id && backend.alive);
            if let Some(backend) = backend {
                backend.opened = now;
                self.pool.opened(id, now);
                self.clients[index].at = Some(id);
                return Ok(());
            }
            self.pool.failed(id, now);
            tried.push(id);
        }
        let could = self.backends.iter().any(|backend| backend.alive && backend.drained.is_none());
        if could {
            return Err(format!("a client was refused at {now} although a backend could take it"));
        }
        self.clients[index].next = now + 200 * MILLISECOND;
        Ok(())
    }

    fn check_pick(&self, id: BackendId, tried: &[BackendId]) -> Result<(), String> {
        let backend = self.backends.iter().find(|backend| backend.id == id);
        if tried.contains(&id) || backend.is_none_or(|backend| backend.drained.is_some()) {
            return Err(format!("{id:?} was picked at {} after {tried:?}", self.now));
        }
        let states = self.pool.backends();
        let passed = |other: &BackendStatus| other.state == State::Up && !tried.contains(&other.id);
        let unhealthy = states.iter().any(|own| own.id == id && own.state != State::Up);
        if unhealthy && states.iter().any(passed) {
            return Err(format!("{id:?} was picked at {} past a healthy one", self.now));
        }
        Ok(())
    }

    fn due(&mut self) -> Result<(), String> {
        for id in self.pool.due_checks(self.now) {
            let ready = self.backends.iter().any(|backend| backend.id == id && backend.ready);
            self.checks.push((self.now + 1 + self.random.below(50 * MILLISECOND), id, ready));
        }
        for (id, count) in self.pool.to_close(self.now) {
            if self.trace {
                let counts: Vec<u32> =
                    self.pool.backends().iter().map(|backend| backend.connections).collect();
                println!("{:>10} {count} of {id:?} are to be closed, of {counts:?}", self.now);
            }
            // Faults that have healed have no late closings.
            self.shed += u64::from(count) * u64::from(self.now > FAULTY + SECOND);
            let theirs: Vec<usize> = (0..self.clients.len())
                .filter(|at| self.clients[*at].at == Some(id))
                .take(count as usize)
                .collect();
            if theirs.len() < count as usize {
                return Err(format!("{count} are to be closed of {} at {id:?}", theirs.len()));
            }
            theirs.into_iter().for_each(|index| self.disconnect(index));
        }
        let limit = (self.now.saturating_sub(FAULTY) / SECOND + 2) * u64::from(PER_SECOND);
        if self.shed > limit {
            return Err(format!("{} were shed until {}", self.shed, self.now));
        }
        Ok(())
    }

    fn check_books(&mut self) -> Result<(), String> {
        // With nobody healthy, connections of unready backends may stay as long as that is so.
        if !self.pool.has_healthy() {
            self.healthy_since = Time::MAX;
        } else if self.healthy_since == Time::MAX {
            self.healthy_since = self.now;
        }
        let mut all = 0;
        for status in self.pool.backends() {
            let count = self.clients.iter().filter(|client| client.at == Some(status.id)).count() as u32;
            if count != status.connections {
                return Err(format!("{} has {count} connections, told {}", status.name, status.connections));
            }
            all += count;
            let drained =
                self.backends.iter().find(|backend| backend.id == status.id).and_then(|b| b.drained);
            if drained.is_some_and(|since| self.now > since + DELAY * SECOND) && count > 0 {
                return Err(format!("{} still has {count} connections at {}", status.name, self.now));
            }
            // A connection that found nobody else gets the whole time.
            let opened = self.backends.iter().find(|backend| backend.id == status.id).map_or(0, |b| b.opened);
            let deadline = self.healthy_since.max(status.since.max(opened) + UNREADY * SECOND);
            if status.state == State::Down && self.now > deadline && count > 0 {
                return Err(format!("{} is down and still has {count} at {}", status.name, self.now));
            }
        }
        if all != self.pool.connections() {
            return Err(format!("{all} connections, told {}", self.pool.connections()));
        }
        Ok(())
    }

    fn check_shares(&self) -> Result<(), String> {
        let states = self.pool.backends();
        let connected: u32 = states.iter().map(|backend| backend.connections).sum();
        if connected as usize != self.clients.len() {
            return Err(format!("{connected} of {} clients are connected", self.clients.len()));
        }
        // By source hash a share is what the hash says.
        if self.balance == Balance::SourceHash {
            return Ok(());
        }
        let even = connected * 100 / states.len() as u32;
        let most = (even * (100 + TOLERANCE)).div_ceil(10_000);
        let least = even * (100 - TOLERANCE) / 10_000;
        match states.iter().all(|backend| (least..=most).contains(&backend.connections)) {
            true => Ok(()),
            false => {
                let counts: Vec<u32> = states.iter().map(|backend| backend.connections).collect();
                Err(format!("{:?}: shares are {counts:?}", self.balance))
            }
        }
    }
}
