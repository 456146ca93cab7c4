//! Two or three machines that share an address.
//!
//! What is proved, in units of the advert interval and with packets that take up to a quarter of it:
//! - Overlap: two holders that can hear each other are one after an interval, a packet's way and a late timer; counted
//!   anew when the priority of one of them changes.
//! - One in the end: twelve intervals after the last fault has healed there is a holder, and from then on at every moment.
//!   Without preemption it stays the same one, with it the strongest has it in the end; and there is exactly one.
//! - Hand-over: while nothing else happens, clean stops, restarts and failing checks leave no moment without a holder.
//! - Failover: while nothing else happens, a holder that dies is replaced within three intervals and the skew; a timer's
//!   lateness and a packet's way more where the last advert was under way.

use butler_lb::core::vrrp::{Advert, Output, Role, Router, Settings, Version};
use butler_lb::core::{MILLISECOND, NEVER, Random, SECOND, Time};
use std::net::IpAddr;

/// Intervals with faults.
const FAULTY: Time = 40;
/// Intervals after which there must be a holder.
const SETTLE: Time = 12;
/// Intervals that a schedule has.
const END: Time = FAULTY + SETTLE + 14;

struct World {
    now: Time,
    random: Random,
    interval: Time,
    nodes: Vec<Node>,
    wire: Vec<Packet>,
    /// How many cuts lie on the way from one to another.
    cuts: [[u8; 3]; 3],
    loss: u64,
    duplicates: u64,
    /// Since when two hold the address although they could hear each other.
    overlap: [[Time; 3]; 3],
    takeovers: u64,
    /// The only holder, once things must have settled.
    settled: Option<usize>,
    trace: bool,
}

struct Node {
    settings: Settings,
    router: Option<Router>,
    /// Whether the address is on the machine; that of a killed process stays.
    address: bool,
    paused: bool,
    /// What arrived during a pause.
    inbox: Vec<(usize, Advert)>,
    /// How far its clock has jumped.
    shift: Time,
    wake: Time,
    /// Restarts when a clean stop has ended.
    restarts: bool,
}

struct Packet {
    at: Time,
    from: usize,
    to: usize,
    advert: Advert,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Cut(usize, usize),
    Mend(usize, usize),
    Loss(u64),
    Pause(usize),
    Resume(usize),
    /// Kill -9: the address stays behind.
    Kill(usize),
    Crash(usize),
    Start(usize),
    Stop(usize),
    Track(usize, usize, bool),
    Jump(usize, Time),
    FalseAlarm(usize, usize),
    Reload(usize, u8),
}

#[test]
fn at_most_one_holds_the_address_and_one_does_in_the_end() {
    let takeovers = crate::run(52, |seed, trace| World::new(seed, trace).run());
    assert!(takeovers > 0);
}

#[test]
fn clean_stops_leave_no_gap() {
    let takeovers = crate::run(4, |seed, trace| World::new(seed, trace).calm(Gap::None));
    assert!(takeovers > 0);
}

#[test]
fn a_holder_that_dies_is_replaced_in_time() {
    let takeovers = crate::run(4, |seed, trace| World::new(seed, trace).calm(Gap::Failover));
    assert!(takeovers > 0);
}

/// What a calm world may go without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Failover,
}

impl World {
    fn new(seed: u64, trace: bool) -> World {
        let mut random = Random::new(seed);
        let v2 = random.chance(10);
        let interval = match random.below(3) {
            _ if v2 => SECOND,
            0 => 10 * MILLISECOND,
            1 => 100 * MILLISECOND,
            _ => SECOND,
        };
        let count = 2 + random.below(2) as usize;
        let preempt = random.chance(50);
        let preempt_delay = random.below(2) * 3 * interval;
        let equal = random.chance(15);
        let nodes = (0..count)
            .map(|index| Node {
                settings: Settings {
                    version: if v2 { Version::V2 } else { Version::V3 },
                    router_id: 51,
                    priority: if equal { 100 } else { 80 + 40 * index as u8 + random.below(30) as u8 },
                    interval,
                    preempt,
                    preempt_delay,
                    source: address(index),
                    addresses: vec![IpAddr::from([10, 0, 0, 100])],
                    tracks: vec![0, 20 + random.below(60) as u8],
                    announcements: 3,
                },
                router: None,
                address: false,
                paused: false,
                inbox: Vec::new(),
                shift: 0,
                wake: NEVER,
                restarts: false,
            })
            .collect();
        World {
            now: 0,
            random,
            interval,
            nodes,
            wire: Vec::new(),
            cuts: [[0; 3]; 3],
            loss: 0,
            duplicates: 0,
            overlap: [[NEVER; 3]; 3],
            takeovers: 0,
            settled: None,
            trace,
        }
    }

    /// Faults with their ends; all have ended when the faulty time is over.
    fn script(&mut self) -> Vec<(Time, Action)> {
        let heal = FAULTY * self.interval;
        let mut script: Vec<(Time, Action)> = (0..self.nodes.len())
            .map(|node| (self.random.below(self.interval), Action::Start(node)))
            .collect();
        for _ in 0..1 + self.random.below(8) {
            let from = self.random.below(heal);
            let until = (from + self.random.below(15 * self.interval)).min(heal);
            self.fault(from, until, &mut script);
        }
        for node in 0..self.nodes.len() {
            script.push((heal, Action::Track(node, 0, true)));
            script.push((heal, Action::Track(node, 1, true)));
            script.push((heal, Action::Start(node)));
        }
        script.sort_by_key(|(at, _)| *at);
        script
    }

    fn fault(&mut self, from: Time, until: Time, script: &mut Vec<(Time, Action)>) {
        let count = self.nodes.len() as u64;
        let node = self.random.below(count) as usize;
        let other = (node + 1 + self.random.below(count - 1) as usize) % count as usize;
        match self.random.below(12) {
            0 | 1 => script.extend([(from, Action::Cut(node, other)), (until, Action::Mend(node, other))]),
            2 | 3 => {
                for peer in (0..count as usize).filter(|peer| *peer != node) {
                    script.extend([(from, Action::Cut(node, peer)), (until, Action::Mend(node, peer))]);
                    script.extend([(from, Action::Cut(peer, node)), (until, Action::Mend(peer, node))]);
                }
            }
            4 => {
                let percent = 10 + self.random.below(90);
                script.extend([(from, Action::Loss(percent)), (until, Action::Loss(0))]);
            }
            5 => script.extend([(from, Action::Pause(node)), (until, Action::Resume(node))]),
            6 => script.extend([(from, Action::Kill(node)), (until, Action::Start(node))]),
            7 => script.extend([(from, Action::Crash(node)), (until, Action::Start(node))]),
            8 => script.extend([(from, Action::Stop(node)), (until, Action::Start(node))]),
            9 => {
                let track = self.random.below(2) as usize;
                script.push((from, Action::Track(node, track, false)));
                script.push((until, Action::Track(node, track, true)));
            }
            10 => script.push((from, Action::Jump(node, until - from))),
            _ => {
                script.push((from, Action::FalseAlarm(node, other)));
                script.push((until, Action::Reload(node, 50 + self.random.below(200) as u8)));
            }
        }
    }

    fn run(mut self) -> Result<u64, String> {
        let script = self.script();
        self.duplicates = 5;
        let mut next_action = 0;
        let end = END * self.interval;
        loop {
            let action = script.get(next_action).map_or(NEVER, |(at, _)| *at);
            let packet = self.wire.iter().map(|packet| packet.at).min().unwrap_or(NEVER);
            let awake = self.nodes.iter().filter(|node| !node.paused);
            let wake = awake.map(|node| node.wake).min().unwrap_or(NEVER);
            let now = action.min(packet).min(wake);
            if now > end {
                break;
            }
            self.now = now;
            if now > FAULTY * self.interval {
                self.duplicates = 0;
            }
            if packet == now {
                self.deliver();
            } else if action == now {
                self.act(script[next_action].1);
                next_action += 1;
            } else {
                self.wake();
            }
            self.check_overlap()?;
            if now > (FAULTY + SETTLE) * self.interval {
                self.check_settled()?;
            }
        }
        let holders: Vec<usize> = (0..self.nodes.len()).filter(|node| self.holds(*node)).collect();
        if holders.len() != 1 {
            return Err(format!("in the end {holders:?} hold the address"));
        }
        let strongest = (0..self.nodes.len()).max_by_key(|node| {
            let settings = &self.nodes[*node].settings;
            (settings.priority, settings.source)
        });
        let preempt = self.nodes[0].settings.preempt;
        // Preemption is about priority alone: of equals the one that has it keeps it.
        let priority = |node: usize| self.nodes[node].settings.priority;
        if preempt && strongest.is_some_and(|strongest| priority(strongest) > priority(holders[0])) {
            return Err(format!("in the end {holders:?} hold the address, and {strongest:?} is stronger"));
        }
        Ok(self.takeovers)
    }

    /// One thing at a time happens to the holder, and the others have time to react.
    fn calm(mut self, gap: Gap) -> Result<u64, String> {
        (0..self.nodes.len()).for_each(|node| self.start(node));
        self.until(10 * self.interval, NEVER)?;
        for _ in 0..4 {
            let begin = self.now;
            let Some(holder) = (0..self.nodes.len()).find(|node| self.holds(*node)) else {
                return Err(format!("nobody holds the address at {}", self.now));
            };
            let (action, undo, longest) = match (gap, self.random.below(3)) {
                (Gap::None, 0) => (Action::Track(holder, 0, false), Action::Track(holder, 0, true), 0),
                (Gap::None, 1) => (Action::Track(holder, 1, false), Action::Track(holder, 1, true), 0),
                (Gap::None, _) => (Action::Stop(holder), Action::Start(holder), 0),
                (Gap::Failover, _) => {
                    (Action::Crash(holder), Action::Start(holder), self.longest_failover(holder))
                }
            };
            self.act(action);
            self.until(begin + 8 * self.interval, longest)?;
            self.act(undo);
            self.until(begin + 20 * self.interval, 0)?;
        }
        Ok(self.takeovers)
    }

    /// From a holder's death to the strongest other's takeover.
    fn longest_failover(&self, dead: usize) -> Time {
        let others = self.nodes.iter().enumerate().filter(|(at, _)| *at != dead);
        let strongest = others.map(|(_, node)| Time::from(node.settings.priority)).max().unwrap_or(0);
        let skew = self.interval * (256 - strongest) / 256;
        3 * self.interval + skew + self.interval / 4 + self.interval / 50 + 2
    }

    /// Lets time go by. No longer than `longest` may nobody hold the address.
    fn until(&mut self, end: Time, longest: Time) -> Result<(), String> {
        let mut gap_since = NEVER;
        loop {
            let packet = self.wire.iter().map(|packet| packet.at).min().unwrap_or(NEVER);
            let wake = self.nodes.iter().map(|node| node.wake).min().unwrap_or(NEVER);
            let next = packet.min(wake);
            let held = (0..self.nodes.len()).any(|node| self.holds(node));
            gap_since = if held { NEVER } else { gap_since.min(self.now) };
            if gap_since != NEVER && next.min(end) > gap_since.saturating_add(longest) {
                return Err(format!("nobody holds the address from {gap_since} to {}", next.min(end)));
            }
            if next > end {
                self.now = end;
                return Ok(());
            }
            self.now = next;
            if packet == next {
                self.deliver()
            } else {
                self.wake()
            }
            self.check_overlap()?;
        }
    }

    fn deliver(&mut self) {
        let Some(at) = self.wire.iter().position(|packet| packet.at == self.now) else { return };
        let packet = self.wire.swap_remove(at);
        let node = &mut self.nodes[packet.to];
        if node.paused {
            node.inbox.push((packet.from, packet.advert));
            return;
        }
        let local = self.now + node.shift;
        let Some(router) = &mut node.router else { return };
        let outputs = router.on_advert(&packet.advert, address(packet.from), local);
        self.obey(packet.to, outputs);
    }

    fn wake(&mut self) {
        let now = self.now;
        let Some(at) = self.nodes.iter().position(|node| !node.paused && node.wake <= now) else { return };
        let node = &mut self.nodes[at];
        let Some(router) = &mut node.router else {
            node.wake = NEVER;
            return;
        };
        let outputs = router.on_timer(now + node.shift);
        self.obey(at, outputs);
    }

    fn act(&mut self, action: Action) {
        if self.trace {
            println!("{:>10} {action:?}", self.now);
        }
        let now = self.now;
        match action {
            Action::Cut(from, to) => self.cuts[from][to] += 1,
            Action::Mend(from, to) => self.cuts[from][to] -= 1,
            Action::Loss(percent) => self.loss = percent,
            Action::Pause(at) => self.nodes[at].paused = true,
            Action::Resume(at) => self.resume(at),
            Action::Kill(at) | Action::Crash(at) => {
                let node = &mut self.nodes[at];
                (node.router, node.restarts, node.wake) = (None, false, NEVER);
                node.inbox.clear();
                node.address &= matches!(action, Action::Kill(_));
            }
            Action::Start(at) => self.start(at),
            Action::Stop(at) => self.with_router(at, |router, now| router.stop(now)),
            Action::Track(at, track, passes) => {
                self.overlap = [[NEVER; 3]; 3];
                self.with_router(at, |router, now| router.on_track(track, passes, now));
            }
            Action::Jump(at, by) => {
                let node = &mut self.nodes[at];
                node.shift += by;
                node.wake = node.wake.saturating_sub(by).max(now);
            }
            Action::FalseAlarm(at, peer) => {
                self.with_router(at, |router, now| router.on_peer_down(address(peer), now));
            }
            Action::Reload(at, priority) => {
                self.nodes[at].settings.priority = priority;
                let settings = self.nodes[at].settings.clone();
                self.overlap = [[NEVER; 3]; 3];
                self.with_router(at, |router, now| router.reconfigure(settings, now));
            }
        }
    }

    /// What waited in the socket is read before the clock is looked at.
    fn resume(&mut self, at: usize) {
        self.nodes[at].paused = false;
        for (from, advert) in std::mem::take(&mut self.nodes[at].inbox) {
            self.with_router(at, |router, now| router.on_advert(&advert, address(from), now));
        }
        self.nodes[at].wake = self.nodes[at].wake.max(self.now);
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.router.is_some() {
            // Still handing over: it is started again when that is done.
            node.restarts = true;
            return;
        }
        let local = self.now + node.shift;
        let mut router = Router::new(node.settings.clone(), local);
        let outputs = [0, 1].map(|track| router.on_track(track, true, local)).concat();
        node.router = Some(router);
        self.obey(at, outputs);
    }

    fn with_router(&mut self, at: usize, tell: impl FnOnce(&mut Router, Time) -> Vec<Output>) {
        let local = self.now + self.nodes[at].shift;
        if let Some(router) = &mut self.nodes[at].router {
            let outputs = tell(router, local);
            self.obey(at, outputs);
        }
    }

    fn obey(&mut self, at: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::SendAdvert(advert) => self.send(at, advert),
                Output::AddAddress => self.nodes[at].address = true,
                Output::DelAddress => self.nodes[at].address = false,
                Output::Become(role) => {
                    if self.trace {
                        println!("{:>10} {at} becomes {role:?}", self.now);
                    }
                    self.takeovers += u64::from(role == Role::Master);
                    if role == Role::Stopped {
                        self.nodes[at].router = None;
                    }
                }
                Output::Announce | Output::Ignored(_) => {}
            }
        }
        // Timers are as late as schedulers make them.
        let late = self.random.below(self.interval / 50);
        let node = &mut self.nodes[at];
        match &node.router {
            Some(router) => {
                node.wake =
                    router.next_deadline().saturating_sub(node.shift).max(self.now).saturating_add(late);
            }
            None => {
                node.wake = NEVER;
                if std::mem::take(&mut node.restarts) {
                    self.start(at);
                }
            }
        }
    }

    fn send(&mut self, from: usize, advert: Advert) {
        for to in (0..self.nodes.len()).filter(|to| *to != from) {
            if self.cuts[from][to] > 0 || self.random.chance(self.loss) {
                continue;
            }
            let at = self.now + 1 + self.random.below(self.interval / 4);
            self.wire.push(Packet { at, from, to, advert: advert.clone() });
            if self.random.chance(self.duplicates) {
                let late = at + self.random.below(3 * self.interval);
                self.wire.push(Packet { at: late, from, to, advert: advert.clone() });
            }
        }
    }

    fn holds(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        node.address && !node.paused && node.router.is_some()
    }

    fn check_overlap(&mut self) -> Result<(), String> {
        let bound = self.interval + self.interval / 4 + self.interval / 50 + 2;
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                let hear = self.cuts[a][b] == 0 && self.cuts[b][a] == 0 && self.loss == 0;
                let role = |at: usize| self.nodes[at].router.as_ref().map(Router::role);
                // Two that both resign wait for a third.
                let both_resign = role(a) == Some(Role::Resigning) && role(b) == Some(Role::Resigning);
                if !(self.holds(a) && self.holds(b) && hear) || both_resign {
                    self.overlap[a][b] = NEVER;
                } else if self.overlap[a][b] == NEVER {
                    self.overlap[a][b] = self.now;
                } else if self.now - self.overlap[a][b] > bound {
                    let since = self.overlap[a][b];
                    return Err(format!("{a} and {b} both hold the address since {since}, now {}", self.now));
                }
            }
        }
        Ok(())
    }

    /// When all has been well for long enough.
    fn check_settled(&mut self) -> Result<(), String> {
        let holders = (0..self.nodes.len()).filter(|at| self.holds(*at)).count();
        if holders == 0 {
            return Err(format!("nobody holds the address at {}", self.now));
        }
        let holder = (0..self.nodes.len()).find(|at| self.holds(*at));
        if holders == 1 && self.settled.is_none() {
            self.settled = holder;
        }
        if holders == 1 && self.settled != holder && !self.nodes[0].settings.preempt {
            return Err(format!("{:?} lost the address to {holder:?} at {}", self.settled, self.now));
        }
        Ok(())
    }
}

fn address(index: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + index as u8])
}
