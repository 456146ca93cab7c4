//! Peers whose signed words are refused because of their clock: it looks like a partition, so it is told, though not with every
//! advert.

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
pub(super) struct Clocks {
    refused: u64,
    warned: BTreeMap<IpAddr, Time>,
}

impl Clocks {
    /// How many were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Something of a peer was refused. What is to be said of it, if it is because of a clock and time to say it: the peers have
    /// shown that they have the key, so there are few of them.
    pub(super) fn note(&mut self, from: IpAddr, why: Refused, now: Time) -> Option<String> {
        let problem = match why {
            Refused::Clock { ahead } => {
                let (by, side) =
                    (seconds(ahead.unsigned_abs()), if ahead > 0 { "ahead of" } else { "behind" });
                format!("its clock is {by} {side} ours")
            }
            Refused::Replay { behind } if behind >= OVERTAKEN => {
                let by = seconds(behind);
                // Not by its clock: one that was set back begins an epoch.
                format!("its adverts are {by} older than its last one: somebody repeats or delays them")
            }
            _ => return None,
        };
        self.refused += 1;
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
        let mut clocks = Clocks::default();
        let wrong = Refused::Clock { ahead: -(300 * SECOND as i64) };
        assert_eq!(clocks.note(ONE, wrong, 0).unwrap(), "its clock is 300.0 s behind ours");
        assert_eq!(clocks.note(ONE, wrong, WARN_EVERY - 1), None);
        assert!(clocks.note(OTHER, wrong, 1).is_some(), "each by itself");
        assert!(clocks.note(ONE, wrong, WARN_EVERY).is_some());
        assert_eq!(clocks.refused(), 4);
    }

    #[test]
    fn what_is_wrong_is_said_with_how_much() {
        let mut clocks = Clocks::default();
        let ahead = clocks.note(ONE, Refused::Clock { ahead: 130_250_000 }, 0).unwrap();
        assert_eq!(ahead, "its clock is 130.2 s ahead of ours");
        let back = clocks.note(OTHER, Refused::Replay { behind: 45 * SECOND }, 0).unwrap();
        assert!(back.starts_with("its adverts are 45.0 s older"), "{back}");
    }

    #[test]
    fn what_has_nothing_to_do_with_clocks_is_not_counted() {
        let mut clocks = Clocks::default();
        for why in
            [Refused::Unsigned, Refused::UnknownKey(1), Refused::Signature, Refused::Replay { behind: 0 }]
        {
            assert_eq!(clocks.note(ONE, why, 0), None);
        }
        assert_eq!(clocks.refused(), 0);
    }
}
