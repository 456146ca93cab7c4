//! Whether one backend is well: thresholds over active checks, ejection after failed connections, and the slow return to
//! a full share.

use super::super::{MILLISECOND, NEVER, Random, SECOND, Time};
use crate::config;

/// A full share, in the unit that shares are counted in.
pub(super) const FULL: u64 = 1000;
/// What a backend that just came back gets of it: enough to be seen working.
const FLOOR: u64 = 100;

/// How backends are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    interval: Time,
    timeout: Time,
    healthy: u32,
    unhealthy: u32,
    passive: u32,
    slow_start: Time,
    manner: Manner,
}

/// How a pool goes about its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// Our own way: one good check brings a new backend in, a new one that fails stays new, intervals vary by up to a
    /// tenth, and while a verdict is in doubt they are halved.
    #[default]
    Eager,
    /// The way of the clouds: exact intervals, and a new backend that fails as often as any other is down.
    Plain {
        /// Good checks in a row that make a new backend healthy.
        first: u32,
    },
}

/// What is known of a backend's health. Plain data: it can be kept, and given to another pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// What it is.
    pub verdict: Verdict,
    /// Good checks in a row since it became so.
    pub good: u32,
    /// Bad checks in a row since it became so.
    pub bad: u32,
}

/// What a backend is by its checks and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Never checked with success. Gets nothing until it is.
    New,
    /// Healthy.
    Up,
    /// Its checks fail.
    Down,
    /// Connections to it failed. One good check brings it back.
    Ejected,
}

/// A change of what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It became healthy.
    Up,
    /// Its checks fail.
    Down,
    /// Connections to it failed.
    Ejected,
}

#[derive(Debug, Clone)]
pub(super) struct Health {
    verdict: Verdict,
    /// When it became what it is.
    since: Time,
    /// Good checks in a row.
    good: u32,
    /// Bad checks in a row.
    bad: u32,
    /// Connections in a row that failed.
    failures: u32,
    /// When the next check begins.
    due: Time,
    /// When the last check began.
    began: Time,
    /// Whether a check is on its way; `due` is then when it counts as lost.
    checking: bool,
    /// End of the slow start.
    ramp_end: Time,
}

impl Rules {
    pub(super) fn new(health: &config::HealthCheck, manner: Manner) -> Rules {
        let times = health.times();
        Rules {
            manner,
            interval: times.interval_ms.max(1).saturating_mul(MILLISECOND),
            timeout: times.timeout_ms.saturating_mul(MILLISECOND),
            healthy: times.healthy.max(1),
            unhealthy: times.unhealthy.max(1),
            passive: health.passive,
            slow_start: health.slow_start.saturating_mul(SECOND),
        }
    }

    /// Good checks in a row that a new backend needs.
    fn first(&self) -> u32 {
        match self.manner {
            Manner::Eager => 1,
            Manner::Plain { first } => first,
        }
    }

    /// From the beginning of one check to that of the next.
    fn pause(&self, undecided: bool, random: &mut Random) -> Time {
        if self.manner != Manner::Eager {
            return self.interval;
        }
        // While it is undecided the next look comes in half the time: the answer is wanted by both sides.
        let interval = if undecided { self.interval / 2 } else { self.interval };
        // Up to a tenth early, never late: checks of many balancers must not fall into step, nor the stated times grow.
        interval - random.below(interval / 10 + 1)
    }
}

impl Health {
    pub(super) fn new(now: Time) -> Health {
        Health {
            verdict: Verdict::New,
            since: now,
            good: 0,
            bad: 0,
            failures: 0,
            due: now,
            began: now,
            checking: false,
            ramp_end: 0,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(super) fn known(&self) -> Known {
        Known { verdict: self.verdict, good: self.good, bad: self.bad }
    }

    /// Goes on from what was known before.
    pub(super) fn restore(&mut self, known: Known, now: Time) {
        (self.verdict, self.good, self.bad) = (known.verdict, known.good, known.bad);
        (self.since, self.failures, self.ramp_end) = (now, 0, 0);
    }

    pub(super) fn is_up(&self) -> bool {
        self.verdict == Verdict::Up
    }

    pub(super) fn since(&self) -> Time {
        self.since
    }

    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Begins a check if it is time. Its result is expected; without one it is repeated some time after its timeout.
    pub(super) fn begin(&mut self, rules: &Rules, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        (self.checking, self.began) = (true, now);
        self.due = now.saturating_add(rules.timeout).saturating_add(rules.interval);
        true
    }

    /// A check ended.
    pub(super) fn checked(
        &mut self,
        ok: bool,
        rules: &Rules,
        random: &mut Random,
        now: Time,
    ) -> Option<Change> {
        self.checking = false;
        (self.good, self.bad) =
            if ok { (self.good.saturating_add(1), 0) } else { (0, self.bad.saturating_add(1)) };
        let change = match self.verdict {
            Verdict::Ejected if ok => Some(Change::Up),
            Verdict::New if ok && self.good >= rules.first() => Some(Change::Up),
            Verdict::Down if self.good >= rules.healthy => Some(Change::Up),
            // A backend that never was up does not go down by itself, it just does not come up.
            Verdict::New if rules.manner == Manner::Eager => None,
            Verdict::New | Verdict::Up | Verdict::Ejected if self.bad >= rules.unhealthy => {
                Some(Change::Down)
            }
            _ => None,
        };
        let undecided = match self.verdict {
            Verdict::New => false,
            Verdict::Up | Verdict::Ejected => self.bad > 0,
            Verdict::Down => self.good > 0,
        };
        if let Some(change) = change {
            self.turn(change, rules, now);
        }
        // Counted from where the last one began: a backend that does not answer is not asked more seldom for it.
        self.due = now.max(self.began.saturating_add(rules.pause(undecided && change.is_none(), random)));
        change
    }

    /// A connection could not be opened.
    pub(super) fn failed(&mut self, rules: &Rules, now: Time) -> Option<Change> {
        self.failures = self.failures.saturating_add(1);
        if self.verdict != Verdict::Up || rules.passive == 0 || self.failures < rules.passive {
            return None;
        }
        self.turn(Change::Ejected, rules, now);
        if !self.checking {
            self.due = now;
        }
        Some(Change::Ejected)
    }

    /// A connection was opened.
    pub(super) fn opened(&mut self) {
        if self.verdict == Verdict::Up {
            self.failures = 0;
        }
    }

    /// Whether something has failed since all was well, though not enough to take it out.
    pub(super) fn shaken(&self) -> bool {
        self.verdict == Verdict::Up && (self.bad > 0 || self.failures > 0)
    }

    /// The times of checks are others now: the next one comes no later than they say.
    pub(super) fn hurry(&mut self, rules: &Rules, now: Time) {
        if !self.checking {
            self.due = self.due.min(now.saturating_add(rules.interval));
        }
    }

    /// No more checks.
    pub(super) fn retire(&mut self) {
        self.due = NEVER;
    }

    /// The part of its share that it gets now.
    pub(super) fn share(&self, rules: &Rules, now: Time) -> u64 {
        if now >= self.ramp_end || rules.slow_start == 0 {
            return FULL;
        }
        let gone = rules.slow_start.saturating_sub(self.ramp_end - now);
        FLOOR + (FULL - FLOOR) * gone / rules.slow_start
    }

    fn turn(&mut self, change: Change, rules: &Rules, now: Time) {
        let first = self.verdict == Verdict::New;
        (self.verdict, self.ramp_end) = match change {
            // At the start everyone is new, and there is no one to protect.
            Change::Up if first => (Verdict::Up, 0),
            Change::Up => (Verdict::Up, now.saturating_add(rules.slow_start)),
            Change::Down => (Verdict::Down, 0),
            Change::Ejected => (Verdict::Ejected, 0),
        };
        (self.since, self.good, self.bad, self.failures) = (now, 0, 0, 0);
    }
}
