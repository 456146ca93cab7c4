//! Signed words of peers that are refused, counted by their reasons: a wrong clock, a wrong key and a repetition are mended in
//! different ways. Each looks like a partition, so it is told, though not with every advert.

use crate::core::auth::Refused;
use crate::core::{SECOND, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Between two warnings about a peer.
const WARN_EVERY: Time = 60 * SECOND;
/// A word that is older by less than this was overtaken by the next one, or came twice.
const OVERTAKEN: Time = SECOND;

/// What was refused, and who has been told of.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_clock: u64,
    repeated: u64,
    by_key: u64,
    warned: BTreeMap<IpAddr, Time>,
}

impl Refusals {
    /// Because the sender's clock and ours are too far apart.
    pub(super) fn by_clock(&self) -> u64 {
        self.by_clock
    }

    /// Because they were heard before, or later ones were.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Because they are not signed, or not with a key of ours.
    pub(super) fn by_key(&self) -> u64 {
        self.by_key
    }

    /// Something of a peer was refused. What is to be said of it, if it is from one who has the key, and time to say it: so there are
    /// few of them.
    pub(super) fn note(&mut self, from: IpAddr, why: Refused, now: Time) -> Option<String> {
        let problem = match why {
            Refused::Clock { ahead, newer } => {
                self.by_clock += 1;
                let (by, side) =
                    (seconds(ahead.unsigned_abs()), if ahead > 0 { "ahead of" } else { "behind" });
                let or = if newer { "" } else { "; if they are right, somebody repeats old adverts" };
                format!("its clock is {by} {side} ours. Have both machines set their clocks by NTP{or}")
            }
            Refused::Replay { behind } => {
                self.repeated += 1;
                if behind < OVERTAKEN {
                    return None;
                }
                let by = seconds(behind);
                // Not by its clock: one that was set back begins an epoch.
                format!("its adverts are {by} older than its last one: somebody repeats or delays them")
            }
            Refused::Unsigned | Refused::UnknownKey(_) | Refused::Signature => {
                self.by_key += 1;
                return None;
            }
        };
        let quiet = self.warned.get(&from).is_some_and(|last| now.saturating_sub(*last) < WARN_EVERY);
        if quiet {
            return None;
        }
        self.warned.insert(from, now);
        Some(problem)
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{} s", micros / SECOND, micros % SECOND / (SECOND / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_peer_is_warned_of_once_a_minute_and_every_word_counts() {
        let mut refusals = Refusals::default();
        const BEHIND: &str = "its clock is 300.0 s behind ours";
        let wrong = Refused::Clock { ahead: -(300 * SECOND as i64), newer: true };
        assert_eq!(refusals.note(ONE, wrong, 0).unwrap().split(". ").next(), Some(BEHIND));
        assert_eq!(refusals.note(ONE, wrong, WARN_EVERY - 1), None);
        assert!(refusals.note(OTHER, wrong, 1).is_some(), "each by itself");
        assert!(refusals.note(ONE, wrong, WARN_EVERY).is_some());
        assert_eq!((refusals.by_clock(), refusals.repeated(), refusals.by_key()), (4, 0, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_how_much() {
        let mut refusals = Refusals::default();
        let clock = |newer| Refused::Clock { ahead: 130_250_000, newer };
        let ahead = refusals.note(ONE, clock(true), 0).unwrap();
        assert!(
            ahead.starts_with("its clock is 130.2 s ahead of ours") && !ahead.contains("repeats"),
            "{ahead}"
        );
        let perhaps = refusals.note(ONE, clock(false), WARN_EVERY).unwrap();
        assert!(perhaps.contains("NTP; if they are right, somebody repeats"), "{perhaps}");
        let back = refusals.note(OTHER, Refused::Replay { behind: 45 * SECOND }, 0).unwrap();
        assert!(back.starts_with("its adverts are 45.0 s older"), "{back}");
        assert!(!back.contains("NTP"), "no clock is wrong: {back}");
    }

    #[test]
    fn reasons_are_counted_apart() {
        let mut refusals = Refusals::default();
        for why in
            [Refused::Unsigned, Refused::UnknownKey(1), Refused::Signature, Refused::Replay { behind: 0 }]
        {
            assert_eq!(refusals.note(ONE, why, 0), None);
        }
        assert_eq!((refusals.by_clock(), refusals.repeated(), refusals.by_key()), (0, 1, 3));
        refusals.note(ONE, Refused::Replay { behind: 45 * SECOND }, 0);
        assert_eq!((refusals.by_clock(), refusals.repeated(), refusals.by_key()), (0, 2, 3));
    }
}
