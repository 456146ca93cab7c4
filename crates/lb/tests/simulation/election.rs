//! Two or three machines that share an address.
//!
//! What is proved, in units of the longest advert interval and with packets that take up to a quarter of it:
//! - Overlap: two holders that can hear and understand each other are one after an interval, a packet's way and a late timer;
//!   counted anew when the priority of one of them changes. An address that a killed or frozen process leaves on its machine
//!   counts too: it is off when the kernel's time for it is over.
//! - One in the end: twelve intervals after the last fault has healed there is a holder, and from then on at every moment.
//!   Without preemption it stays the same one, with it the strongest has it in the end; and there is exactly one.
//! - Hand-over: while nothing else happens, clean stops, restarts and failing checks leave no moment without a holder.
//! - Clocks: while nothing else happens, a clock of the world that is set an hour ahead or back, and right again, moves nothing
//!   where adverts are signed, and a holder that dies meanwhile is replaced all the same.
//! - Recordings: what was signed by a holder that is dead, in that life or an earlier one, puts no takeover off.
//! - Reloads: while nothing else happens, other advert intervals (of some peers only, where VRRPv3 allows it) and other checks, in
//!   other orders, move nothing. Among faults no role changes by a reload itself, only by what the checks then say.
//! - Failover: while nothing else happens, a holder that dies is replaced within three intervals and the skew; a timer's
//!   lateness and a packet's way more where the last advert was under way.

use butler_lb::core::auth::{Keys, Refused, Signer, Verifier};
use butler_lb::core::vrrp::{Advert, Output, Role, Router, Settings, Version};
use butler_lb::core::{MILLISECOND, NEVER, Random, SECOND, Time};
use std::net::IpAddr;

/// Intervals with faults.
const FAULTY: Time = 40;
/// Intervals after which there must be a holder.
const SETTLE: Time = 12;
const KEYS: &str = "1 b2xkIGtleSBvZiBzaXh0ZWVuIGJ5dGVz";
/// When the worlds begin, by the clock of the world.
const WALL: Time = 1_700_000_000 * SECOND;
const HOUR: Time = 3600 * SECOND;
/// Checks that a file may name, in an order of its own; whether there is a way to speak is always one more, and the last.
const CHECKS: [&[usize]; 8] = [&[0, 1], &[1, 0], &[0], &[1], &[], &[0, 1, 2], &[2, 0], &[2, 1, 0]];
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
    /// Whether adverts are signed.
    signed: bool,
    /// How long the kernel keeps an address that nobody renews.
    life: Time,
    /// The only holder, once things must have settled.
    settled: Option<usize>,
    trace: bool,
    /// What a neighbour has recorded, and of whom.
    tape: Option<Vec<(usize, Signed)>>,
}

struct Node {
    settings: Settings,
    router: Option<Router>,
    /// Whether the address is on the machine.
    address: bool,
    /// Without anybody to renew it, the kernel takes it off then.
    expires: Time,
    /// Which checks are in its settings, in their order.
    checks: &'static [usize],
    /// What each check subtracts.
    weights: [u8; 3],
    /// What each check would say.
    good: [bool; 3],
    /// Of this life.
    signer: Signer,
    verifier: Verifier,
    /// The clock of the world, as this machine has it.
    wall: Time,
    paused: bool,
    /// What arrived during a pause.
    inbox: Vec<(usize, Signed)>,
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
    advert: Signed,
}

/// An advert, and what was signed of it.
#[derive(Clone)]
struct Signed {
    advert: Advert,
    seal: Option<Vec<u8>>,
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
    /// A reload with other checks. Their results come at once, or with the next change.
    Checks(usize, &'static [usize], bool),
    /// A reload with adverts four times as often, or not.
    Hurry(usize, bool),
    /// The clock of the world, as a machine has it.
    SetWall(usize, Time),
}

#[test]
fn at_most_one_holds_the_address_and_one_does_in_the_end() {
    let takeovers = crate::run(48, |seed, trace| World::new(seed, trace).run());
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

#[test]
fn reloads_of_intervals_and_checks_move_nothing() {
    crate::run(2, |seed, trace| World::new(seed, trace).reloads());
}

#[test]
fn a_clock_that_is_set_moves_nothing() {
    crate::run(1, |seed, trace| World::new(seed, trace).wrong_clock());
}

#[test]
fn recordings_of_a_dead_holder_keep_nobody_from_taking_over() {
    let takeovers = crate::run(1, |seed, trace| World::new(seed, trace).recordings());
    assert!(takeovers > 0);
}

/// What a calm world may go without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Failover,
}

impl Node {
    fn new(settings: Settings, weights: [u8; 3]) -> Node {
        Node {
            settings,
            router: None,
            address: false,
            expires: NEVER,
            checks: CHECKS[0],
            weights,
            good: [true; 3],
            signer: Signer::new(keys()),
            verifier: Verifier::new(keys()),
            wall: WALL,
            paused: false,
            inbox: Vec::new(),
            shift: 0,
            wake: NEVER,
            restarts: false,
        }
    }
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
        let signed = random.chance(25);
        let weights = [0; 3].map(|_| [0, 20 + random.below(60) as u8, 1 + random.below(40) as u8]);
        let mut settings = |index: usize| Settings {
            version: if v2 { Version::V2 } else { Version::V3 },
            router_id: 51,
            priority: if equal { 100 } else { 80 + 40 * index as u8 + random.below(30) as u8 },
            interval,
            preempt,
            preempt_delay,
            source: address(index),
            addresses: vec![IpAddr::from([10, 0, 0, 100])],
            tracks: tracks(CHECKS[0], weights[index]),
            announcements: 3,
        };
        let nodes = (0..count).map(|index| Node::new(settings(index), weights[index])).collect();
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
            signed,
            life: (3 * interval).max(3 * SECOND),
            settled: None,
            trace,
            tape: None,
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
            script.extend([0, 1, 2].map(|check| (heal, Action::Track(node, check, true))));
            script.push((heal, Action::Start(node)));
            script.push((heal, Action::SetWall(node, WALL)));
        }
        script.sort_by_key(|(at, _)| *at);
        script
    }

    fn fault(&mut self, from: Time, until: Time, script: &mut Vec<(Time, Action)>) {
        let count = self.nodes.len() as u64;
        let node = self.random.below(count) as usize;
        let other = (node + 1 + self.random.below(count - 1) as usize) % count as usize;
        match self.random.below(15) {
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
                let track = self.random.below(3) as usize;
                script.push((from, Action::Track(node, track, false)));
                script.push((until, Action::Track(node, track, true)));
            }
            10 => script.push((from, Action::Jump(node, until - from))),
            11 => {
                for at in [from, until] {
                    let (checks, at_once) = (self.random.below(8) as usize, self.random.chance(50));
                    script.push((at, Action::Checks(node, CHECKS[checks], at_once)));
                }
            }
            13 => script.extend([(from, Action::Hurry(node, true)), (until, Action::Hurry(node, false))]),
            12 => {
                let wrong = if self.random.chance(50) { WALL + HOUR } else { WALL - HOUR };
                script.extend([(from, Action::SetWall(node, wrong)), (until, Action::SetWall(node, WALL))]);
            }
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

    /// Files with other intervals and other checks, of one machine after the other.
    fn reloads(mut self) -> Result<u64, String> {
        (0..self.nodes.len()).for_each(|node| self.start(node));
        self.until(10 * self.interval, NEVER)?;
        // Before the strongest has it there may be moves.
        self.until(30 * self.interval, 0)?;
        let (takeovers, holder) = (self.takeovers, (0..self.nodes.len()).find(|node| self.holds(*node)));
        for _ in 0..8 {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let action = match self.random.below(3) {
                0 => Action::Checks(node, CHECKS[self.random.below(8) as usize], self.random.chance(50)),
                _ => Action::Hurry(node, self.random.chance(50)),
            };
            self.act(action);
            let end = self.now + 1 + self.random.below(5 * self.interval);
            self.until(end, 0)?;
            let holders: Vec<_> = (0..self.nodes.len()).filter(|node| self.holds(*node)).collect();
            if self.takeovers != takeovers || holders.first().copied() != holder || holders.len() != 1 {
                return Err(format!("{holders:?} hold the address after {action:?}, before {holder:?}"));
            }
        }
        Ok(self.takeovers)
    }

    /// A clock is set and set right again; then a holder dies while one is wrong.
    fn wrong_clock(mut self) -> Result<u64, String> {
        self.signed = true;
        (0..self.nodes.len()).for_each(|node| self.start(node));
        self.until(10 * self.interval, NEVER)?;
        // Before the strongest has it there may be moves.
        self.until(30 * self.interval, 0)?;
        let Some(holder) = (0..self.nodes.len()).find(|node| self.holds(*node)) else {
            return Err("nobody holds the address".to_owned());
        };
        let takeovers = self.takeovers;
        for _ in 0..3 {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            for wall in [if self.random.chance(50) { WALL + HOUR } else { WALL - HOUR }, WALL] {
                self.act(Action::SetWall(node, wall));
                self.until(self.now + 10 * self.interval, 0)?;
                let holders: Vec<_> = (0..self.nodes.len()).filter(|node| self.holds(*node)).collect();
                if self.takeovers != takeovers || holders != [holder] {
                    return Err(format!("{holders:?} hold the address after the clock of {node} was set"));
                }
            }
        }
        self.act(Action::SetWall(holder, WALL + HOUR));
        self.until(self.now + 5 * self.interval, 0)?;
        let longest = self.longest_failover(holder) + self.interval;
        self.act(Action::Crash(holder));
        self.until(self.now + 8 * self.interval, longest)?;
        Ok(self.takeovers)
    }

    /// A neighbour plays what it has recorded of the holder, in this life and another, when that is dead.
    fn recordings(mut self) -> Result<u64, String> {
        self.signed = true;
        (0..self.nodes.len()).for_each(|node| self.start(node));
        self.until(10 * self.interval, NEVER)?;
        self.until(30 * self.interval, 0)?;
        let Some(holder) = (0..self.nodes.len()).find(|node| self.holds(*node)) else {
            return Err("nobody holds the address".to_owned());
        };
        self.tape = Some(Vec::new());
        self.until(self.now + 5 * self.interval, 0)?;
        let tape = self.tape.take().unwrap_or_default().into_iter();
        let mut recorded: Vec<_> = tape.filter(|(from, _)| *from == holder).map(|(_, said)| said).collect();
        let Some(last) = recorded.last().cloned() else { return Err("nothing was said".to_owned()) };
        let mut earlier = Signer::new(keys());
        for place in 0..recorded.len() as u64 {
            let seal = earlier.sign(&[0x31, last.advert.router_id], address(holder), WALL - HOUR + place);
            recorded.push(Signed { advert: last.advert.clone(), seal: Some(seal) });
        }
        // Five minutes go by.
        (0..self.nodes.len()).for_each(|node| self.act(Action::SetWall(node, WALL + 300 * SECOND)));
        self.until(self.now + 5 * self.interval, 0)?;
        let longest = self.longest_failover(holder);
        self.act(Action::Crash(holder));
        for (place, advert) in recorded.into_iter().enumerate() {
            let at = self.now + 1 + place as Time * self.interval / 2;
            for to in (0..self.nodes.len()).filter(|to| *to != holder) {
                self.wire.push(Packet { at, from: holder, to, advert: advert.clone() });
            }
        }
        self.until(self.now + 8 * self.interval, longest)?;
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
        self.hear(packet.to, packet.from, packet.advert);
    }

    /// What a machine does with an advert.
    fn hear(&mut self, at: usize, from: usize, Signed { advert, seal }: Signed) {
        let node = &mut self.nodes[at];
        let wall = node.wall + self.now;
        let opened = seal.map_or(Ok(()), |seal| node.verifier.open(&seal, address(from), wall).map(drop));
        self.with_router(at, |router, now| match opened {
            Ok(()) => router.on_advert(&advert, address(from), now),
            Err(Refused::Clock { newer, .. }) if advert.priority > 0 => {
                router.on_doubtful_advert(newer, now);
                Vec::new()
            }
            Err(_) => Vec::new(),
        });
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

    fn die(&mut self, at: usize, leaves_address: bool) {
        let node = &mut self.nodes[at];
        if node.router.is_some() && !node.paused {
            node.expires = self.now + self.life;
        }
        (node.router, node.restarts, node.wake, node.paused) = (None, false, NEVER, false);
        node.inbox.clear();
        node.address &= leaves_address;
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
            Action::Pause(at) => {
                let node = &mut self.nodes[at];
                if !std::mem::replace(&mut node.paused, true) && node.router.is_some() {
                    node.expires = now + self.life;
                }
            }
            Action::Resume(at) => self.resume(at),
            Action::Kill(at) => self.die(at, true),
            Action::Crash(at) => self.die(at, false),
            Action::Start(at) => self.start(at),
            Action::Stop(at) => self.with_router(at, |router, now| router.stop(now)),
            Action::Track(at, track, passes) => {
                self.overlap = [[NEVER; 3]; 3];
                self.nodes[at].good[track] = passes;
                self.tell(at, track);
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
                self.overlap = [[NEVER; 3]; 3];
                self.reload(at, self.nodes[at].checks);
            }
            Action::Checks(at, checks, at_once) => {
                self.overlap = [[NEVER; 3]; 3];
                self.reload(at, checks);
                if at_once {
                    (0..3).for_each(|check| self.tell(at, check));
                }
            }
            // Peers of version 2 that do not agree on it do not hear each other.
            Action::Hurry(at, hurries) if self.nodes[at].settings.version == Version::V3 => {
                self.nodes[at].settings.interval = if hurries { self.interval / 4 } else { self.interval };
                self.reload(at, self.nodes[at].checks);
            }
            Action::Hurry(..) => {}
            Action::SetWall(at, wall) => {
                self.overlap = [[NEVER; 3]; 3];
                self.nodes[at].wall = wall;
            }
        }
    }

    /// What a machine does with other settings, and with these checks.
    fn reload(&mut self, at: usize, checks: &'static [usize]) {
        let node = &mut self.nodes[at];
        let old = std::mem::replace(&mut node.checks, checks);
        node.settings.tracks = tracks(checks, node.weights);
        let same = checks.iter().map(|check| old.iter().position(|known| known == check));
        let same: Vec<_> = same.chain([Some(old.len())]).collect();
        let (settings, before) = (node.settings.clone(), self.role(at));
        self.with_router(at, |router, now| router.reconfigure(settings, &same, now));
        assert_eq!(self.role(at), before, "a reload changes no role");
        // The machine is looked at after each: there is a way to speak.
        self.with_router(at, |router, now| router.on_track(checks.len(), true, now));
    }

    /// A check has been looked at.
    fn tell(&mut self, at: usize, check: usize) {
        let (checks, good) = (self.nodes[at].checks, self.nodes[at].good[check]);
        if let Some(index) = checks.iter().position(|known| *known == check) {
            self.with_router(at, |router, now| router.on_track(index, good, now));
        }
    }

    /// What waited in the socket is read before the clock is looked at, and then what the kernel has done meanwhile.
    fn resume(&mut self, at: usize) {
        let now = self.now;
        self.nodes[at].paused = false;
        for (from, advert) in std::mem::take(&mut self.nodes[at].inbox) {
            self.hear(at, from, advert);
        }
        let node = &mut self.nodes[at];
        if node.router.as_ref().is_some_and(|router| router.next_deadline() <= now + node.shift) {
            self.with_router(at, |router, now| router.on_timer(now));
        }
        let node = &mut self.nodes[at];
        // Who holds it puts it back; of a machine without a process it is not ours to say.
        if let Some(router) = &node.router {
            (node.address, node.expires) = (router.role().holds(), NEVER);
        }
        node.wake = node.wake.max(now);
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.router.is_some() {
            // Still handing over: it is started again when that is done.
            node.restarts = true;
            return;
        }
        let local = self.now + node.shift;
        (node.signer, node.verifier) = (Signer::new(keys()), Verifier::new(keys()));
        let mut router = Router::new(node.settings.clone(), local);
        let results = node.checks.iter().map(|check| node.good[*check]).chain([true]);
        let told = results.enumerate().flat_map(|(index, good)| router.on_track(index, good, local));
        let outputs = told.collect();
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
                Output::AddAddress => (self.nodes[at].address, self.nodes[at].expires) = (true, NEVER),
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
        let (source, wall) = (address(from), self.nodes[from].wall + self.now);
        let seal = self.signed.then(|| self.nodes[from].signer.sign(&[0x31, advert.router_id], source, wall));
        let advert = Signed { advert, seal };
        if let Some(tape) = &mut self.tape {
            tape.push((from, advert.clone()));
        }
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

    fn role(&self, at: usize) -> Option<Role> {
        self.nodes[at].router.as_ref().map(Router::role)
    }

    /// Whether a machine answers for the address, whoever put it there.
    fn answers(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        node.address && self.now < node.expires
    }

    fn check_overlap(&mut self) -> Result<(), String> {
        let bound = self.interval + self.interval / 4 + self.interval / 50 + 2;
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                let understand = !self.signed || self.nodes[a].wall == self.nodes[b].wall;
                let hear = self.cuts[a][b] == 0 && self.cuts[b][a] == 0 && self.loss == 0 && understand;
                let left = [a, b].map(|at| self.answers(at) && !self.holds(at));
                if self.answers(a) && self.answers(b) && left.contains(&true) {
                    let expires = self.nodes[a].expires.min(self.nodes[b].expires);
                    if expires > self.now + self.life {
                        return Err(format!("{a} and {b} both answer for the address, for good"));
                    }
                }
                // Two that both resign wait for a third.
                let both_resign =
                    self.role(a) == Some(Role::Resigning) && self.role(b) == Some(Role::Resigning);
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

#[allow(clippy::unwrap_used)]
fn keys() -> Keys {
    Keys::parse(KEYS).unwrap()
}

/// What each of these checks subtracts, and that there is a way to speak.
fn tracks(checks: &[usize], weights: [u8; 3]) -> Vec<u8> {
    checks.iter().map(|check| weights[*check]).chain([0]).collect()
}

fn address(index: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + index as u8])
}
