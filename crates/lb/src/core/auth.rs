//! Signed adverts: a trailer with key number, epoch, stamp and HMAC-SHA256, for peers that are all ours.
//!
//! The stamp is the sender's wall clock in microseconds, and never goes back within an epoch. A new epoch, with a number that was
//! never there before, begins with the process and when its clock was set back. A receiver takes only stamps above the last one
//! of that epoch, and only near its own clock: the first refuses what was heard before, the second what was heard before a
//! restart made it forget.
//!
//! What one of ours has signed and not said before, with a clock that differs by more than the tolerance, is told as
//! `Refused::Clock`, and nothing it says counts. Of the epoch that was heard last, or of one that the same life has begun
//! since, it is known to be newer than what was taken: its sender lives, and only a clock was set. Of any other epoch it may
//! be a recording from before our time.
//!
//! Rotation without a flap: add the new key after the old one everywhere, then move it to the front everywhere, then drop
//! the old one. All keys are taken at any time, the first one signs.

use super::{SECOND, Time};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::collections::BTreeMap;
use std::net::IpAddr;
use thiserror::Error;

/// Marks the trailer, and its version.
const MARK: [u8; 4] = *b"BLB2";
const TAG: usize = 32;
/// Mark, key number, epoch, stamp, tag.
const TRAILER: usize = 4 + 4 + 8 + 8 + TAG;
/// How far the clocks of peers may be apart, in microseconds.
const TOLERANCE: Time = 120 * SECOND;
/// A clock that is behind the last stamp by no more than this is waited for; one that is further back begins an epoch.
const SET_BACK: Time = 5 * SECOND;
/// Epochs that are remembered of a sender: far more than it begins within the tolerance.
const NEAR_EPOCHS: usize = 64;
/// Of those whose stamps are far from our clock. Apart, so that recordings of old ones push nothing out that counts.
const FAR_EPOCHS: usize = 8;
/// Epochs that a life may have begun since it was last heard and still be known as the same.
const NEXT_EPOCHS: u64 = 64;
/// Shorter keys can be guessed.
const SHORTEST_KEY: usize = 16;

/// Keys that peers share. The first one signs.
pub struct Keys(Vec<(u32, hmac::Key)>);

/// What is wrong with a file of keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Not a number and a word.
    #[error("line {line}: expected `id base64`")]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Not base64, or less than 16 bytes.
    #[error("line {line}: the key is not base64 of at least {SHORTEST_KEY} bytes")]
    Key {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A number that was there before.
    #[error("line {line}: key {id} is there twice")]
    Twice {
        /// Number of the line, from 1.
        line: usize,
        /// The key's number.
        id: u32,
    },
    /// No key at all.
    #[error("there is no key")]
    Empty,
}

/// Signs what is sent.
#[derive(Debug)]
pub struct Signer {
    keys: Keys,
    epoch: u64,
    last: u64,
}

/// Checks what is received.
#[derive(Debug)]
pub struct Verifier {
    keys: Keys,
    /// Of each sender and stream.
    heard: BTreeMap<(IpAddr, Stream), Heard>,
}

/// Epochs with their last stamps.
#[derive(Debug, Default)]
struct Heard {
    near: Vec<(u64, u64)>,
    far: Vec<(u64, u64)>,
    /// Epoch and stamp of the last one that was taken, or is known to be newer than that.
    latest: Option<(u64, u64)>,
}

/// The first two bytes of a message: of an advert, kind and virtual router. Every stream has a signer and stamps of its
/// own, and one must not make another's look old.
type Stream = [u8; 2];

/// Why a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// It has no trailer.
    #[error("it is not signed")]
    Unsigned,
    /// It is signed with a key that we do not have.
    #[error("key {0} is unknown")]
    UnknownKey(u32),
    /// Forged, spoilt, or signed with another key of that number.
    #[error("the signature is wrong")]
    Signature,
    /// Heard before, or overtaken.
    #[error("it was heard before")]
    Replay {
        /// How much older than the last one it is, in microseconds.
        behind: Time,
    },
    /// Too far from our clock.
    #[error("its clock differs from ours by more than {} s", TOLERANCE / SECOND)]
    Clock {
        /// How far the sender's clock is ahead of ours, in microseconds; less than 0: behind.
        ahead: i64,
        /// It was signed after the last one that was taken from this sender. Otherwise it may be a recording.
        newer: bool,
    },
}

impl Keys {
    /// Reads a file of keys: one `id base64` per line; empty lines and those that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Keys, KeyError> {
        let mut keys: Vec<(u32, hmac::Key)> = Vec::new();
        for (line, words) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let (id, key) = words.split_once(char::is_whitespace).ok_or(KeyError::Line { line })?;
            let id = id.parse().map_err(|_| KeyError::Line { line })?;
            let key = BASE64_STANDARD.decode(key.trim()).map_err(|_| KeyError::Key { line })?;
            if key.len() < SHORTEST_KEY {
                return Err(KeyError::Key { line });
            }
            if keys.iter().any(|(known, _)| *known == id) {
                return Err(KeyError::Twice { line, id });
            }
            keys.push((id, hmac::Key::new(hmac::HMAC_SHA256, &key)));
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(Keys(keys)) }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

impl Signer {
    /// Signs with the first of these keys.
    pub fn new(keys: Keys) -> Signer {
        Signer { keys, epoch: new_epoch(), last: 0 }
    }

    /// Goes on with other keys.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The message with its trailer. `wall` is the clock of the world, in microseconds.
    pub fn sign(&mut self, message: &[u8], source: IpAddr, wall: u64) -> Vec<u8> {
        // A clock that was set back must not make peers take us for an echo, nor keep us from them until it has caught up.
        if self.last > wall.saturating_add(SET_BACK) {
            (self.epoch, self.last) = (self.epoch.wrapping_add(1), wall);
        } else {
            self.last = wall.max(self.last + 1);
        }
        let mut bytes = Vec::with_capacity(message.len() + TRAILER);
        bytes.extend_from_slice(message);
        let Some((id, key)) = self.keys.0.first() else { return bytes };
        bytes.extend_from_slice(&MARK);
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.extend_from_slice(&self.epoch.to_be_bytes());
        bytes.extend_from_slice(&self.last.to_be_bytes());
        let tag = hmac::sign(key, &with_source(&bytes, source));
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }
}

impl Verifier {
    /// Takes what was signed with any of these keys.
    pub fn new(keys: Keys) -> Verifier {
        Verifier { keys, heard: BTreeMap::new() }
    }

    /// Goes on with other keys, and forgets nothing.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The message without its trailer, if it is what this sender signed, and new. `wall` is our clock, in microseconds.
    pub fn open<'a>(&mut self, bytes: &'a [u8], source: IpAddr, wall: u64) -> Result<&'a [u8], Refused> {
        let at = bytes.len().checked_sub(TRAILER).ok_or(Refused::Unsigned)?;
        let (message, trailer) = bytes.split_at(at);
        if trailer[..4] != MARK {
            return Err(Refused::Unsigned);
        }
        let id = trailer[4..8].iter().fold(0, |id: u32, byte| id << 8 | u32::from(*byte));
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        let (epoch, stamp) = (number(&trailer[8..16]), number(&trailer[16..24]));
        let (_, key) = self.keys.0.iter().find(|(known, _)| *known == id).ok_or(Refused::UnknownKey(id))?;
        let signed = &bytes[..bytes.len() - TAG];
        hmac::verify(key, &with_source(signed, source), &trailer[24..]).map_err(|_| Refused::Signature)?;
        let apart = stamp.abs_diff(wall);
        let far = apart > TOLERANCE;
        let stream = [message.first(), message.get(1)].map(|byte| byte.copied().unwrap_or(0));
        let heard = self.heard.entry((source, stream)).or_default();
        if let Some(behind) = heard.behind(epoch, stamp) {
            return Err(Refused::Replay { behind });
        }
        let newer = heard.note(epoch, stamp, far);
        if far {
            let apart = i64::try_from(apart).unwrap_or(i64::MAX);
            return Err(Refused::Clock { ahead: if stamp > wall { apart } else { -apart }, newer });
        }
        Ok(message)
    }
}

impl Heard {
    /// How much older a stamp is than the last one of its epoch, whichever clock was wrong when that was heard: within an
    /// epoch no stamp ever goes back.
    fn behind(&self, epoch: u64, stamp: u64) -> Option<Time> {
        let known = self.near.iter().chain(&self.far).chain(&self.latest);
        let last = known.filter(|(known, _)| *known == epoch).map(|(_, last)| *last).max()?;
        last.checked_sub(stamp)
    }

    /// Remembers a stamp that is not behind. Returns whether it is known to be newer than what was taken before.
    fn note(&mut self, epoch: u64, stamp: u64, far: bool) -> bool {
        *self.last(epoch, far) = stamp;
        let newer = self.latest.is_some_and(|(latest, _)| epoch.wrapping_sub(latest) <= NEXT_EPOCHS);
        if newer || !far {
            self.latest = Some((epoch, stamp));
        }
        newer
    }

    /// The last stamp of an epoch, 0 for a new one.
    fn last(&mut self, epoch: u64, far: bool) -> &mut u64 {
        let (epochs, most) = if far { (&mut self.far, FAR_EPOCHS) } else { (&mut self.near, NEAR_EPOCHS) };
        let place = epochs.iter().position(|(known, _)| *known == epoch).unwrap_or_else(|| {
            if epochs.len() == most {
                // The oldest is the first that the clock refuses.
                let oldest = (0..most).min_by_key(|place| epochs[*place].1).unwrap_or(0);
                epochs.swap_remove(oldest);
            }
            epochs.push((epoch, 0));
            epochs.len() - 1
        });
        &mut epochs[place].1
    }
}

/// A number that no epoch has had.
fn new_epoch() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the process number has to do.
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => u64::from(std::process::id()) << 32,
    }
}

/// The sender's address is signed as well: one peer's words must not be taken for another's.
fn with_source(bytes: &[u8], source: IpAddr) -> Vec<u8> {
    let mut all = bytes.to_vec();
    match source {
        IpAddr::V4(address) => all.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => all.extend_from_slice(&address.octets()),
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "1 b2xkIGtleSBvZiBzaXh0ZWVuIGJ5dGVz";
    const NEW: &str = "2 bmV3IGtleSBvZiBzaXh0ZWVuIGJ5dGVz";
    const NOW: u64 = 1_700_000_000 * SECOND;

    fn keys(lines: &[&str]) -> Keys {
        Keys::parse(&lines.join("\n")).unwrap()
    }

    fn peer() -> IpAddr {
        "10.0.0.1".parse().unwrap()
    }

    #[test]
    fn a_message_comes_through_once() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let bytes = signer.sign(b"advert", peer(), NOW);
        assert_eq!(verifier.open(&bytes, peer(), NOW), Ok(&b"advert"[..]));
        assert_eq!(verifier.open(&bytes, peer(), NOW), Err(Refused::Replay { behind: 0 }));
    }

    #[test]
    fn a_message_is_refused_from_another_address_with_another_key_and_unsigned() {
        let mut signer = Signer::new(keys(&[OLD]));
        let bytes = signer.sign(b"advert", peer(), NOW);
        let other = "10.0.0.2".parse().unwrap();
        assert_eq!(Verifier::new(keys(&[OLD])).open(&bytes, other, NOW), Err(Refused::Signature));
        assert_eq!(Verifier::new(keys(&[NEW])).open(&bytes, peer(), NOW), Err(Refused::UnknownKey(1)));
        let same_number = NEW.replacen('2', "1", 1);
        assert_eq!(Verifier::new(keys(&[&same_number])).open(&bytes, peer(), NOW), Err(Refused::Signature));
        assert_eq!(Verifier::new(keys(&[OLD])).open(b"advert", peer(), NOW), Err(Refused::Unsigned));
    }

    #[test]
    fn after_a_restart_of_the_receiver_an_old_recording_is_refused_by_its_time() {
        let bytes = Signer::new(keys(&[OLD])).sign(b"advert", peer(), NOW);
        let mut restarted = Verifier::new(keys(&[OLD]));
        let late = TOLERANCE as i64 + 1;
        let refused = restarted.open(&bytes, peer(), NOW + TOLERANCE + 1);
        assert_eq!(refused, Err(Refused::Clock { ahead: -late, newer: false }));
        let refused = Verifier::new(keys(&[OLD])).open(&bytes, peer(), NOW - TOLERANCE - 1);
        assert_eq!(refused, Err(Refused::Clock { ahead: late, newer: false }));
    }

    #[test]
    fn after_a_restart_of_the_sender_its_messages_are_new() {
        let mut verifier = Verifier::new(keys(&[OLD]));
        let first = Signer::new(keys(&[OLD])).sign(b"advert one", peer(), NOW);
        let second = Signer::new(keys(&[OLD])).sign(b"advert two", peer(), NOW + SECOND);
        assert!(verifier.open(&first, peer(), NOW).is_ok());
        assert!(verifier.open(&second, peer(), NOW + SECOND).is_ok());
        assert_eq!(verifier.open(&first, peer(), NOW + SECOND), Err(Refused::Replay { behind: 0 }));
    }

    #[test]
    fn of_an_older_message_it_is_told_how_much_older_it_is() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let first = signer.sign(b"advert one", peer(), NOW);
        let second = signer.sign(b"advert two", peer(), NOW + SECOND);
        assert!(verifier.open(&second, peer(), NOW + SECOND).is_ok());
        assert_eq!(verifier.open(&first, peer(), NOW + SECOND), Err(Refused::Replay { behind: SECOND }));
    }

    #[test]
    fn a_clock_that_is_set_back_while_it_runs_does_no_harm() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        for wall in [NOW, NOW - 30 * SECOND, NOW - 29 * SECOND] {
            let bytes = signer.sign(b"advert", peer(), wall);
            assert!(verifier.open(&bytes, peer(), wall).is_ok());
        }
    }

    #[test]
    fn a_clock_that_jumped_ahead_and_back_is_understood_at_once() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let hour = 3600 * SECOND;
        let before = signer.sign(b"advert", peer(), NOW);
        assert!(verifier.open(&before, peer(), NOW).is_ok());
        let ahead = signer.sign(b"advert", peer(), NOW + hour);
        assert_eq!(
            verifier.open(&ahead, peer(), NOW),
            Err(Refused::Clock { ahead: hour as i64, newer: true })
        );
        assert_eq!(
            verifier.open(&ahead, peer(), NOW),
            Err(Refused::Replay { behind: 0 }),
            "once, not again and again"
        );
        let after = signer.sign(b"advert", peer(), NOW + 1);
        assert!(verifier.open(&after, peer(), NOW + 1).is_ok());
        for (old, behind) in [(before, hour), (after, 0)] {
            assert_eq!(verifier.open(&old, peer(), NOW + 1), Err(Refused::Replay { behind }));
        }
    }

    #[test]
    fn recordings_of_other_times_make_nothing_forgotten() {
        let mut verifier = Verifier::new(keys(&[OLD]));
        let now = Signer::new(keys(&[OLD])).sign(b"advert", peer(), NOW);
        assert!(verifier.open(&now, peer(), NOW).is_ok());
        for day in 1..200 {
            let recorded = Signer::new(keys(&[OLD])).sign(b"advert", peer(), NOW - day * 86_400 * SECOND);
            let ago = (day * 86_400 * SECOND) as i64;
            assert_eq!(
                verifier.open(&recorded, peer(), NOW),
                Err(Refused::Clock { ahead: -ago, newer: false })
            );
        }
        assert_eq!(verifier.open(&now, peer(), NOW), Err(Refused::Replay { behind: 0 }));
    }

    #[test]
    fn what_a_living_epoch_said_long_ago_is_a_replay() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let recorded: Vec<_> = (0..3000)
            .map(|tenth| {
                let wall = NOW + tenth * SECOND / 10;
                let bytes = signer.sign(b"advert", peer(), wall);
                assert!(verifier.open(&bytes, peer(), wall).is_ok());
                bytes
            })
            .collect();
        let now = NOW + 300 * SECOND;
        for bytes in &recorded {
            let refused = verifier.open(bytes, peer(), now);
            assert!(matches!(refused, Err(Refused::Replay { .. })), "{refused:?}");
        }
        // Nor when our own clock is set, back or ahead.
        for wall in [now - 3600 * SECOND, now + 3600 * SECOND] {
            assert!(matches!(verifier.open(&recorded[0], peer(), wall), Err(Refused::Replay { .. })));
        }
    }

    #[test]
    fn what_was_heard_with_a_wrong_clock_is_not_taken_when_its_time_has_come() {
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let hour = 3600 * SECOND;
        assert!(verifier.open(&signer.sign(b"advert", peer(), NOW), peer(), NOW).is_ok());
        let ahead = signer.sign(b"advert", peer(), NOW + hour);
        assert!(verifier.open(&ahead, peer(), NOW).is_err());
        assert_eq!(verifier.open(&ahead, peer(), NOW + hour), Err(Refused::Replay { behind: 0 }));
    }

    #[test]
    fn a_life_whose_clock_was_set_is_known_again_and_another_is_not() {
        let hour = 3600 * SECOND;
        for wrong in [NOW - hour, NOW + hour] {
            let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
            let other = Signer::new(keys(&[OLD])).sign(b"advert", peer(), wrong);
            assert!(verifier.open(&signer.sign(b"advert", peer(), NOW), peer(), NOW).is_ok());
            let mut known = |bytes: &[u8], wall| {
                matches!(verifier.open(bytes, peer(), wall), Err(Refused::Clock { newer: true, .. }))
            };
            for second in 1..4 {
                let bytes = signer.sign(b"advert", peer(), wrong + second * SECOND);
                assert!(known(&bytes, NOW + second * SECOND), "{second}");
            }
            assert!(!known(&other, NOW), "a recording of an earlier life");
        }
    }

    #[test]
    fn two_virtual_routers_of_a_sender_do_not_make_each_other_look_old() {
        let mut verifier = Verifier::new(keys(&[OLD]));
        let (mut one, mut other) = (Signer::new(keys(&[OLD])), Signer::new(keys(&[OLD])));
        let ahead = other.sign(b"\x31\x02", peer(), NOW + SECOND);
        assert!(verifier.open(&ahead, peer(), NOW).is_ok());
        let behind = one.sign(b"\x31\x01", peer(), NOW);
        assert!(verifier.open(&behind, peer(), NOW).is_ok());
        assert_eq!(verifier.open(&ahead, peer(), NOW), Err(Refused::Replay { behind: 0 }));
        assert_eq!(verifier.open(&behind, peer(), NOW), Err(Refused::Replay { behind: 0 }));
    }

    #[test]
    fn keys_are_rotated_without_a_message_refused() {
        let steps: [&[&str]; 4] = [&[OLD], &[OLD, NEW], &[NEW, OLD], &[NEW]];
        let (mut signer, mut verifier) = (Signer::new(keys(&[OLD])), Verifier::new(keys(&[OLD])));
        let mut wall = NOW;
        // At each step one side is a step ahead of the other, both ways round.
        for pair in steps.windows(2) {
            for (sends, takes) in [(0, 1), (1, 0), (1, 1)] {
                signer.set_keys(keys(pair[sends]));
                verifier.set_keys(keys(pair[takes]));
                wall += SECOND;
                let bytes = signer.sign(b"advert", peer(), wall);
                assert_eq!(
                    verifier.open(&bytes, peer(), wall),
                    Ok(&b"advert"[..]),
                    "{pair:?} {sends} {takes}"
                );
            }
        }
    }

    #[test]
    fn a_file_of_keys_is_read_with_its_lines() {
        assert_eq!(format!("{:?}", keys(&["# ours", "", OLD, NEW])), "[1, 2]");
        assert_eq!(Keys::parse("one two").unwrap_err(), KeyError::Line { line: 1 });
        assert_eq!(Keys::parse(&format!("{OLD}\n7 c2hvcnQ=")).unwrap_err(), KeyError::Key { line: 2 });
        assert_eq!(Keys::parse(&format!("{OLD}\n{OLD}")).unwrap_err(), KeyError::Twice { line: 2, id: 1 });
        assert_eq!(Keys::parse("\n").unwrap_err(), KeyError::Empty);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn any_change_is_refused(message in proptest::collection::vec(any::<u8>(), 0..40), at in any::<usize>(), bit in 0..8) {
            let mut bytes = Signer::new(keys(&[OLD])).sign(&message, peer(), NOW);
            let at = at % bytes.len();
            bytes[at] ^= 1u8 << bit;
            prop_assert!(Verifier::new(keys(&[OLD])).open(&bytes, peer(), NOW).is_err());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            prop_assert!(Verifier::new(keys(&[OLD])).open(&bytes, peer(), NOW).is_err());
        }
    }
}
