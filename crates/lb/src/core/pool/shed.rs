//! Evens out long-lived connections: watches stay where they were opened, so a backend that comes back stays idle until
//! some are closed elsewhere. Their clients reconnect at once, and the choice sends them where room is.
//!
//! Bounded three ways: a rate over all backends, a tolerance below which nothing is done, and an account of connections
//! that were closed and have not come back yet, so that slow clients are not mistaken for an uneven share.

use super::super::{NEVER, SECOND, Time};
use super::Member;
use super::health::{FULL, Rules};
use crate::config;

/// After this time without shedding, connections that have not come back are given up.
const FORGET: Time = 10 * SECOND;

#[derive(Debug)]
pub(super) struct Shed {
    active: bool,
    /// Whether shares were uneven when it was last asked.
    moving: bool,
    /// Connections that the shares are computed for: those that are there, and those that are expected back.
    reference: u32,
    last: Time,
    /// When shares were last seen to be uneven.
    uneven: Time,
    /// How many more may be shed. Where limits make an even share impossible, shedding must come to an end all the same.
    budget: u64,
    /// When the next one may be shed.
    next: Time,
}

/// A backend's load against its even share.
struct Load {
    index: usize,
    connections: u64,
    /// Thousandths of a connection.
    even: u64,
}

impl Shed {
    pub(super) fn new() -> Shed {
        Shed { active: false, moving: false, reference: 0, last: 0, uneven: 0, budget: 0, next: NEVER }
    }

    /// A backend came back, or weights changed.
    pub(super) fn begin(&mut self, members: &[Member], now: Time) {
        self.reference = total(members);
        (self.last, self.uneven) = (now, now);
        self.budget = 2 * u64::from(self.reference);
        // What was not used before is not saved up for now.
        self.next = if self.active { self.next.max(now) } else { now };
        self.active = true;
    }

    /// Whether connections are on the move. They then go where the fewest are, or they would come back to where they were.
    pub(super) fn moving(&self) -> bool {
        self.moving
    }

    /// When it is to be asked again.
    pub(super) fn due(&self) -> Time {
        if self.active { self.next } else { NEVER }
    }

    /// Which backends are to lose a connection, and how many.
    pub(super) fn plan(
        &mut self,
        members: &[Member],
        settings: &config::Rebalance,
        rules: &Rules,
        now: Time,
    ) -> Vec<(usize, u32)> {
        if !self.active || now < self.next {
            return Vec::new();
        }
        let gap = SECOND / Time::from(settings.per_second.max(1)).min(SECOND);
        // Who asks seldom may catch up, but for no more than a second.
        let allowed = ((now - self.next) / gap + 1).min(Time::from(settings.per_second.max(1)));
        self.next = now + gap;
        if now.saturating_sub(self.last) > FORGET {
            self.reference = total(members);
        }
        let grown = total(members).saturating_sub(self.reference);
        self.reference += grown;
        self.budget += 2 * u64::from(grown);

        let mut loads = self.loads(members, rules, now);
        if within(&loads, settings.tolerance) {
            let ramping =
                members.iter().any(|member| member.takes() && member.health.share(rules, now) < FULL);
            // Clients that are still on their way back may yet make it uneven.
            self.active = ramping || now.saturating_sub(self.uneven) < FORGET;
            self.moving = false;
            self.next = now + SECOND;
            return Vec::new();
        }
        (self.uneven, self.moving) = (now, true);
        let missing: u64 = loads.iter().map(|load| (load.even / FULL).saturating_sub(load.connections)).sum();
        let excess: u64 =
            loads.iter().map(|load| load.connections.saturating_sub(load.even.div_ceil(FULL))).sum();
        let expected = u64::from(self.reference - total(members));
        let count = allowed.min(missing.max(excess).saturating_sub(expected)).min(self.budget);
        let plan = take_from_fullest(&mut loads, count);
        if !plan.is_empty() {
            self.last = now;
            self.budget -= plan.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
            self.active = self.budget > 0;
            self.moving &= self.active;
        }
        plan
    }

    fn loads(&self, members: &[Member], rules: &Rules, now: Time) -> Vec<Load> {
        let weights: u64 =
            members.iter().filter(|m| m.takes()).map(|member| member.load_weight(rules, now)).sum();
        let reference = u64::from(self.reference) * FULL;
        let taking = members.iter().enumerate().filter(|(_, member)| member.takes());
        taking
            .map(|(index, member)| Load {
                index,
                connections: u64::from(member.staying()),
                even: reference * member.load_weight(rules, now) / weights.max(1),
            })
            .collect()
    }
}

/// Connections that stay, at backends that take new ones.
fn total(members: &[Member]) -> u32 {
    members.iter().filter(|member| member.takes()).map(Member::staying).sum()
}

fn within(loads: &[Load], tolerance: u32) -> bool {
    let tolerance = u64::from(tolerance.min(100));
    loads.iter().all(|load| {
        // Rounded away from even: no share can be split finer than a connection.
        let most = (load.even * (100 + tolerance)).div_ceil(100 * FULL);
        let least = load.even * (100 - tolerance) / (100 * FULL);
        (least..=most).contains(&load.connections)
    })
}

/// Takes one after the other from the one that is furthest above its share.
fn take_from_fullest(loads: &mut [Load], count: u64) -> Vec<(usize, u32)> {
    let mut plan: Vec<(usize, u32)> = Vec::new();
    for _ in 0..count {
        let fullest = loads
            .iter_mut()
            .filter(|load| load.connections * FULL > load.even)
            .max_by_key(|load| load.connections * FULL - load.even);
        let Some(load) = fullest else { break };
        load.connections -= 1;
        match plan.iter_mut().find(|(index, _)| *index == load.index) {
            Some((_, count)) => *count += 1,
            None => plan.push((load.index, 1)),
        }
    }
    plan
}
