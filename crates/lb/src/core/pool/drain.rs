//! Connections that have to end: those of a drained backend when its time is up, and those of one that is not ready.

use super::super::{MILLISECOND, NEVER, SECOND, Time};
use super::{BackendId, Member, Pool, Settings};

/// How often the connections of an unready backend are looked at.
const STEP: Time = 100 * MILLISECOND;
/// How long connections may take to close before they are asked for again.
pub(super) const ASK_AGAIN: Time = SECOND;

/// Which of a backend's connections are meant when some are to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Any: their time is up.
    Any,
    /// Those that are idle: the backend is not ready, and who is in the middle of something may finish it.
    Idle,
    /// Those that have been there for a while: the backend is well, and others are to get their share.
    Old,
}

/// Since when a backend is not ready, and how many connections it had then.
#[derive(Debug)]
pub(super) struct Unready {
    pub(super) since: Time,
    pub(super) connections: u32,
}

impl Member {
    /// When connections of it may have to be closed.
    pub(super) fn next_closing(&self, settings: &Settings, others: bool) -> Time {
        if self.staying() == 0 {
            return self.closing_until;
        }
        let drained = self.draining_since.map(|since| since.saturating_add(settings.deregistration_delay));
        let unready = self.unready.as_ref().filter(|_| others).map(|unready| {
            let begin = unready.since.saturating_add(settings.close_unready / 2);
            begin.max(unready.next_step(self.staying(), settings.close_unready))
        });
        drained.unwrap_or(NEVER).min(unready.unwrap_or(NEVER)).min(self.closing_until)
    }

    /// Its last connections have had their time.
    fn drained(&self, settings: &Settings, now: Time) -> bool {
        self.draining_since.is_some_and(|since| now >= since.saturating_add(settings.deregistration_delay))
    }

    fn overdue(&self, settings: &Settings, others: bool, now: Time) -> u32 {
        if self.drained(settings, now) {
            return self.staying();
        }
        match &self.unready {
            // With nobody to go to, a connection that may still work is better than none.
            Some(unready) if others => {
                self.staying().saturating_sub(unready.may_stay(settings.close_unready, now))
            }
            _ => 0,
        }
    }
}

impl Unready {
    /// How many connections may stay: all for the first half of the time (it may come back), then fewer and fewer, so
    /// that their clients don't reconnect all at once.
    fn may_stay(&self, limit: Time, now: Time) -> u32 {
        let half = limit / 2;
        let left = (self.since.saturating_add(limit)).saturating_sub(now);
        if left > half {
            return u32::MAX;
        }
        (u128::from(self.connections) * u128::from(left) / u128::from(half.max(1))) as u32
    }

    /// When one more of so many has to go.
    fn next_step(&self, staying: u32, limit: Time) -> Time {
        let half = limit / 2;
        let connections = u128::from(self.connections.max(1));
        let left = u128::from(half) * u128::from(staying.saturating_sub(1)) / connections;
        let at = self.since.saturating_add(limit).saturating_sub(left.min(u128::from(half)) as Time);
        // In steps, so that a thousand connections are not a thousand timers.
        at.div_ceil(STEP).saturating_mul(STEP).min(self.since.saturating_add(limit))
    }
}

impl Pool {
    /// Which connections of a backend are meant by what `to_close` has just said.
    pub fn closing(&self, id: BackendId, now: Time) -> Closing {
        match self.members.iter().find(|member| member.id == id) {
            Some(member) if member.drained(&self.settings, now) => Closing::Any,
            Some(member) if member.unready.is_some() => Closing::Idle,
            Some(_) => Closing::Old,
            None => Closing::Any,
        }
    }

    /// Connections whose time is up, by place of their backend.
    pub(super) fn overdue(&self, now: Time) -> Vec<(usize, u32)> {
        let others = self.has_healthy();
        let members = self.members.iter().enumerate();
        members
            .map(|(at, member)| (at, member.overdue(&self.settings, others, now)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}
