//! The election: one virtual router on one machine.
//!
//! Follows RFC 9568 (and RFC 3768 for version 2). Where we go beyond it, and why:
//! - Clean stop, and loss of fitness: the holder says priority 0 but keeps the address until it hears its successor, so
//!   that at no moment nobody has it.
//! - A track check that fails moves the address even without preemption: the holder resigns, and the best one takes it.
//!   Without this a backup that doesn't preempt would respect the weakened holder for ever.
//! - A holder that slept longer than its peers' patience steps down before it speaks: they have elected another.
//!   A backup that slept looks once more before it takes over: the adverts may be waiting in its socket.
//! - A holder that hears a weaker one repeats its announcements: after a partition the network must relearn.
//! - A resignation counts only from the holder, so that a late copy of an old one moves nothing.
//! - A holder whose interval gets longer says so several times at the old pace: a peer that missed the one advert with the news would
//!   take it for gone.
//! - Signed adverts of a peer whose clock is off keep a backup from taking over, and do nothing else: for as long as they are
//!   known to be new, and a minute where they may be recordings and nobody better is heard.

use super::super::{MILLISECOND, NEVER, SECOND, Time};
use super::packet::{Advert, Version};
use super::words::{Ignored, Output, Role, Settings};
use std::net::IpAddr;

/// First gap between two announcements; each next one is three times as long.
const ANNOUNCE_GAP: Time = 50 * MILLISECOND;
/// Announcements of a holder that nothing happens to, so that a switch that forgot relearns.
const ANNOUNCE_REFRESH: Time = 60 * SECOND;
/// Spread of takeovers after BFD told that the holder is gone. Much below an interval: that is what BFD is for.
const FAST_SKEW: Time = 4 * MILLISECOND;

/// How long a backup that has heard nobody it believes lets itself be put off by adverts that may be recordings. Enough for a
/// machine that has just booted to set its clock; after that, an address that nobody holds is worse.
const DOUBT: Time = 60 * SECOND;

/// Adverts that a longer interval is told by before it is kept.
const SLOWING: u32 = 4;

/// What comes after a resignation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Stop,
    Fault,
    /// Stands again with its new priority.
    Reelect,
}

/// The state of one virtual router.
#[derive(Debug)]
pub struct Router {
    settings: Settings,
    passing: Vec<bool>,
    role: Role,
    /// Backup: when the holder counts as gone. Master: next advert. Resigning: next priority 0.
    deadline: Time,
    /// The interval of the holder that is heard; our own until one is.
    heard_interval: Time,
    /// Who is heard to hold the addresses.
    holder: Option<(IpAddr, u8)>,
    /// From when on a weaker holder is no longer respected.
    preempt_at: Time,
    /// Backup that knows no holder: until when adverts that may be recordings put it off.
    doubt_end: Time,
    /// Whether a late timer has been forgiven since the last advert.
    forgiven: bool,
    announce_at: Time,
    announce_gap: Time,
    announce_left: u32,
    /// The shorter interval that peers expect adverts in, and how many more are sent at it.
    slowing: Option<(Time, u32)>,
    /// No answer to a rival before this time.
    rival_at: Time,
    then: Then,
    resign_end: Time,
    /// Whether the addresses are here already when it begins.
    inherits: bool,
}

impl Router {
    /// A virtual router that begins at `now`. Track checks count as failed until they are told otherwise.
    pub fn new(settings: Settings, now: Time) -> Router {
        Router {
            passing: vec![false; settings.tracks.len()],
            role: Role::Init,
            deadline: now,
            heard_interval: settings.interval,
            holder: None,
            preempt_at: NEVER,
            doubt_end: now,
            forgiven: false,
            announce_at: NEVER,
            announce_gap: ANNOUNCE_GAP,
            announce_left: 0,
            slowing: None,
            rival_at: 0,
            then: Then::Stop,
            resign_end: NEVER,
            inherits: false,
            settings,
        }
    }

    /// Begins as holder: another virtual router of this machine held the addresses until now. What is tracked counts as good until
    /// it is told otherwise.
    pub fn inherit(&mut self) {
        self.inherits = true;
        self.passing.fill(true);
    }

    /// What it is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The priority after what failed track checks subtract; none: unfit.
    pub fn priority(&self) -> Option<u8> {
        let mut priority = self.settings.priority;
        for (weight, _) in self.settings.tracks.iter().zip(&self.passing).filter(|(_, passing)| !**passing) {
            if *weight == 0 {
                return None;
            }
            priority = priority.saturating_sub(*weight).max(1);
        }
        Some(priority)
    }

    /// Who holds the addresses, as far as is known, and its priority.
    pub fn holder(&self) -> Option<(IpAddr, u8)> {
        match (self.role.holds(), self.priority()) {
            (true, priority) => Some((self.settings.source, priority.unwrap_or(0))),
            (false, _) => self.holder,
        }
    }

    /// Our own address, as the settings have it.
    pub fn source(&self) -> IpAddr {
        self.settings.source
    }

    /// When `on_timer` is to be called at the latest.
    pub fn next_deadline(&self) -> Time {
        self.deadline.min(self.announce_at).min(self.resign_end)
    }

    /// An advert came from a peer. What has arrived is told before a timer that expired meanwhile.
    pub fn on_advert(&mut self, advert: &Advert, from: IpAddr, now: Time) -> Vec<Output> {
        if let Some(why) = self.foreign(advert, from) {
            return vec![Output::Ignored(why)];
        }
        match self.role {
            Role::Backup => {
                self.backup_hears(advert, from, now);
                Vec::new()
            }
            Role::Master => self.master_hears(advert, from, now),
            Role::Resigning if advert.priority > 0 => {
                self.holder = Some((from, advert.priority));
                self.leave(now, Some(advert.interval))
            }
            Role::Fault if advert.priority > 0 => {
                self.holder = Some((from, advert.priority));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// A peer that has our key speaks, but its clock is so far from ours that nothing that it says counts. Still it may be the
    /// holder, which is not silent then. `newer`: it is known that it lives, since it has signed this after all that was heard
    /// of it. Without that it may be a recording: whoever has heard the holder itself is not put off by it, others for a time.
    pub fn on_doubtful_advert(&mut self, newer: bool, now: Time) {
        let believed = newer || (self.holder.is_none() && now < self.doubt_end);
        if self.role == Role::Backup && believed {
            self.deadline = self.deadline.max(now + 3 * self.heard_interval + self.skew());
        }
    }

    /// Time went by.
    pub fn on_timer(&mut self, now: Time) -> Vec<Output> {
        match self.role {
            Role::Init => self.begin(now),
            Role::Backup if now >= self.deadline => self.holder_is_silent(now),
            Role::Master => self.master_timer(now),
            Role::Resigning => self.resigning_timer(now),
            _ => Vec::new(),
        }
    }

    /// A track check passed or failed.
    pub fn on_track(&mut self, index: usize, passes: bool, now: Time) -> Vec<Output> {
        let before = self.priority();
        match self.passing.get_mut(index) {
            Some(passing) => *passing = passes,
            None => return Vec::new(),
        }
        let after = self.priority();
        match (self.role, after) {
            (Role::Fault, Some(_)) => self.listen(now, None),
            (Role::Backup, None) => self.turn(Role::Fault),
            (Role::Master, None) => self.resign(Then::Fault, now),
            (Role::Master, _) if after < before => self.resign(Then::Reelect, now),
            (Role::Master, _) if after > before => self.speak_soon(now),
            (Role::Resigning, None) if self.then == Then::Reelect => self.resign(Then::Fault, now),
            (Role::Resigning, Some(_)) if self.then == Then::Fault => {
                self.stand_again(now);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// BFD lost a peer. If it is the holder, there is no sense in waiting for its adverts.
    pub fn on_peer_down(&mut self, peer: IpAddr, now: Time) -> Vec<Output> {
        if self.role == Role::Backup && self.holder.is_some_and(|(holder, _)| holder == peer) {
            let interval = self.heard_interval.min(FAST_SKEW);
            self.deadline = self.deadline.min(now + share(interval, self.priority().unwrap_or(1)));
        }
        Vec::new()
    }

    /// Ends. A holder hands over first: it is at its end when it says `Become(Stopped)`.
    pub fn stop(&mut self, now: Time) -> Vec<Output> {
        match self.role {
            Role::Stopped => Vec::new(),
            Role::Master => self.resign(Then::Stop, now),
            Role::Resigning => {
                self.then = Then::Stop;
                self.resign_end = self.resign_end.max(now + self.patience());
                Vec::new()
            }
            _ => self.turn(Role::Stopped),
        }
    }

    /// Takes part again, while it still hands over after a `stop`.
    pub fn stay(&mut self, now: Time) -> Vec<Output> {
        match (self.role, self.then, self.priority()) {
            (Role::Resigning, Then::Stop, Some(_)) => self.stand_again(now),
            (Role::Resigning, Then::Stop, None) => self.then = Then::Fault,
            _ => {}
        }
        Vec::new()
    }

    /// Takes new settings and stays what it is. `same` says of each of their track checks which of the old ones it is.
    /// `AddAddress` then means: exactly the new addresses.
    pub fn reconfigure(&mut self, settings: Settings, same: &[Option<usize>], now: Time) -> Vec<Output> {
        let fit = self.priority().is_some();
        let old = std::mem::take(&mut self.passing);
        let known = |new: usize| old.get((*same.get(new)?)?).copied();
        // A check that is new counts as what we are until its first result: a reload changes no role by itself.
        self.passing = (0..settings.tracks.len()).map(|new| known(new).unwrap_or(fit)).collect();
        let moved = settings.addresses != self.settings.addresses;
        let old_interval = std::mem::replace(&mut self.settings, settings).interval;
        if !self.role.holds() {
            if self.holder.is_none() && old_interval == self.heard_interval {
                self.heard_interval = self.settings.interval;
            }
            return Vec::new();
        }
        if self.role == Role::Master {
            let pace = self.slowing.map_or(old_interval, |(pace, _)| pace.min(old_interval));
            self.slowing = (pace < self.settings.interval).then_some((pace, SLOWING));
            self.speak_soon(now);
        }
        if moved { vec![Output::AddAddress, Output::Announce] } else { Vec::new() }
    }

    /// A rival must not decide by what we were.
    fn speak_soon(&mut self, now: Time) -> Vec<Output> {
        self.deadline = self.deadline.min(now);
        Vec::new()
    }

    fn foreign(&self, advert: &Advert, from: IpAddr) -> Option<Ignored> {
        if advert.router_id != self.settings.router_id {
            Some(Ignored::RouterId)
        } else if from == self.settings.source {
            Some(Ignored::Own)
        } else if advert.version != self.settings.version {
            Some(Ignored::Version)
        } else if advert.version == Version::V2 && advert.interval != self.settings.interval {
            Some(Ignored::Interval)
        } else {
            None
        }
    }

    fn begin(&mut self, now: Time) -> Vec<Output> {
        if self.inherits && self.priority().is_some() {
            return self.take(now);
        }
        // What an earlier life left behind is not ours to keep.
        let mut outputs = vec![Output::DelAddress];
        match self.priority() {
            None => outputs.extend(self.turn(Role::Fault)),
            Some(255) => outputs.extend(self.take(now)),
            Some(_) => outputs.extend(self.listen(now, None)),
        }
        outputs
    }

    fn backup_hears(&mut self, advert: &Advert, from: IpAddr, now: Time) {
        let own = self.priority().unwrap_or(0);
        if advert.priority == 0 {
            if self.holder.is_none_or(|(holder, _)| holder == from) {
                // Never later than it was: a resignation that is repeated must not put the takeover off.
                self.deadline = self.deadline.min(now + self.skew());
            }
            return;
        }
        self.holder = Some((from, advert.priority));
        if advert.priority >= own {
            self.preempt_at = NEVER;
        } else if self.settings.preempt {
            if self.preempt_at == NEVER {
                self.preempt_at = now.saturating_add(self.settings.preempt_delay);
            }
            if now >= self.preempt_at {
                return;
            }
        }
        self.respect(advert.interval, now);
    }

    fn respect(&mut self, interval: Time, now: Time) {
        self.forgiven = false;
        self.heard_interval = interval;
        self.deadline = now + 3 * interval + self.skew();
    }

    fn holder_is_silent(&mut self, now: Time) -> Vec<Output> {
        // Two adverts could have come since. Less is a scheduler's hiccup, and waiting would only lengthen the outage.
        if now - self.deadline > 2 * self.heard_interval && !self.forgiven {
            self.forgiven = true;
            self.deadline = now + self.heard_interval + self.skew();
            return Vec::new();
        }
        self.take(now)
    }

    fn master_hears(&mut self, advert: &Advert, from: IpAddr, now: Time) -> Vec<Output> {
        let own = (self.priority().unwrap_or(0), self.settings.source);
        if advert.priority == 0 {
            self.deadline = now + self.pace();
            return vec![self.advert(own.0)];
        }
        if (advert.priority, from) > own {
            self.holder = Some((from, advert.priority));
            let mut outputs = vec![Output::DelAddress];
            outputs.extend(self.listen(now, Some(advert.interval)));
            return outputs;
        }
        if now < self.rival_at {
            return Vec::new();
        }
        self.rival_at = now + self.settings.interval;
        self.deadline = now + self.pace();
        self.schedule_announcements(now);
        vec![self.advert(own.0), Output::Announce]
    }

    fn master_timer(&mut self, now: Time) -> Vec<Output> {
        let mut outputs = Vec::new();
        if now >= self.deadline {
            if now - self.deadline > 3 * self.settings.interval + share(self.settings.interval, 1) {
                outputs.push(Output::DelAddress);
                outputs.extend(self.listen(now, None));
                return outputs;
            }
            outputs.push(self.advert(self.priority().unwrap_or(0)));
            // In step with what was planned, so that lateness does not add up.
            let pace = self.pace();
            self.deadline += pace;
            if self.deadline <= now {
                self.deadline = now + pace;
            }
        }
        if now >= self.announce_at {
            outputs.extend([Output::AddAddress, Output::Announce]);
            self.next_announcement(now);
        }
        outputs
    }

    fn take(&mut self, now: Time) -> Vec<Output> {
        self.deadline = now + self.settings.interval;
        self.resign_end = NEVER;
        self.slowing = None;
        self.rival_at = 0;
        self.preempt_at = NEVER;
        self.forgiven = false;
        self.schedule_announcements(now);
        let advert = self.advert(self.priority().unwrap_or(0));
        // The advert makes a resigning holder let go, so by then we must be reachable.
        let mut outputs = vec![Output::AddAddress, Output::Announce, advert];
        outputs.extend(self.turn(Role::Master));
        outputs
    }

    /// Becomes a backup, of a holder with this interval if one was heard.
    fn listen(&mut self, now: Time, interval: Option<Time>) -> Vec<Output> {
        if interval.is_none() {
            self.holder = None;
            self.doubt_end = now + DOUBT;
        }
        self.preempt_at = NEVER;
        let outputs = self.turn(Role::Backup);
        self.respect(interval.unwrap_or(self.settings.interval), now);
        outputs
    }

    fn resign(&mut self, then: Then, now: Time) -> Vec<Output> {
        let outputs = vec![self.advert(0)];
        self.then = then;
        self.announce_at = NEVER;
        self.deadline = now + self.settings.interval * 5 / 4;
        self.resign_end = now + self.patience();
        if then == Then::Reelect {
            self.stand_again(now);
        }
        [outputs, self.turn(Role::Resigning)].concat()
    }

    /// While resigning: takes the addresses back when nobody better has come within the time that it would need. Every better
    /// one has taken them by then, and its advert ends the overlap if it is still on its way; the weaker ones wait longer, and
    /// our advert stops them. A packet must not take longer than a weaker one does: the gap's part of an interval, in 256ths.
    fn stand_again(&mut self, now: Time) {
        self.then = Then::Reelect;
        self.resign_end = now + self.own_skew();
    }

    fn resigning_timer(&mut self, now: Time) -> Vec<Output> {
        if now >= self.resign_end {
            return match self.then {
                Then::Reelect => self.take(now),
                Then::Stop | Then::Fault => self.leave(now, None),
            };
        }
        if now < self.deadline {
            return Vec::new();
        }
        // More than any peer's skew after the last one: a peer by the book starts its timer anew at each.
        self.deadline = now + self.settings.interval * 5 / 4;
        vec![self.advert(0)]
    }

    /// Lets the addresses go: to a successor with this interval, or to nobody.
    fn leave(&mut self, now: Time, successor: Option<Time>) -> Vec<Output> {
        let mut outputs = vec![Output::DelAddress];
        self.resign_end = NEVER;
        outputs.extend(match self.then {
            Then::Stop => self.turn(Role::Stopped),
            Then::Fault => self.turn(Role::Fault),
            Then::Reelect => self.listen(now, successor),
        });
        outputs
    }

    fn turn(&mut self, role: Role) -> Vec<Output> {
        if !role.holds() {
            self.announce_at = NEVER;
            self.resign_end = NEVER;
        }
        if matches!(role, Role::Fault | Role::Stopped) {
            self.deadline = NEVER;
        }
        self.role = role;
        vec![Output::Become(role)]
    }

    /// The time after which the last peer has noticed that we are silent, and a little more.
    fn patience(&self) -> Time {
        self.settings.interval * 9 / 2
    }

    /// From an advert that is sent now to the next one.
    fn pace(&mut self) -> Time {
        let slowing = self.slowing.take().filter(|(_, left)| *left > 0);
        self.slowing = slowing.map(|(pace, left)| (pace, left - 1));
        slowing.map_or(self.settings.interval, |(pace, _)| pace)
    }

    fn skew(&self) -> Time {
        match self.settings.version {
            Version::V2 => share(SECOND, self.priority().unwrap_or(1)),
            Version::V3 => share(self.heard_interval, self.priority().unwrap_or(1)),
        }
    }

    fn own_skew(&self) -> Time {
        match self.settings.version {
            Version::V2 => share(SECOND, self.priority().unwrap_or(1)),
            Version::V3 => share(self.settings.interval, self.priority().unwrap_or(1)),
        }
    }

    fn advert(&self, priority: u8) -> Output {
        Output::SendAdvert(Advert {
            version: self.settings.version,
            router_id: self.settings.router_id,
            priority,
            interval: self.settings.interval,
            addresses: self.settings.addresses.clone(),
        })
    }

    fn schedule_announcements(&mut self, now: Time) {
        self.announce_left = self.settings.announcements;
        self.announce_gap = ANNOUNCE_GAP / 3;
        self.next_announcement(now);
    }

    fn next_announcement(&mut self, now: Time) {
        self.announce_left = self.announce_left.saturating_sub(1);
        self.announce_gap = match self.announce_left {
            0 => ANNOUNCE_REFRESH,
            _ => self.announce_gap.saturating_mul(3).min(ANNOUNCE_REFRESH),
        };
        self.announce_at = now + self.announce_gap;
    }
}

/// The part of an interval that a priority waits: the higher, the less.
fn share(interval: Time, priority: u8) -> Time {
    interval * (256 - Time::from(priority)) / 256
}
