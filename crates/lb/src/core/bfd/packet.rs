//! Control packets as bytes.

use super::super::Time;
use thiserror::Error;

/// UDP port that packets are sent to. They come from a port above 49151.
pub const PORT: u16 = 3784;
/// Packets with another time to live have been routed, and are not taken.
pub const TTL: u8 = 255;

const LENGTH: usize = 24;
const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// What a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Taken down on purpose: says nothing about the path.
    AdminDown,
    /// The peer is not heard.
    Down,
    /// The peer is heard, and does not say that it hears us.
    Init,
    /// Both hear each other.
    Up,
}

/// Why a session last left `Up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Diagnostic {
    /// It did not.
    None,
    /// Nothing was heard for the detection time.
    Expired,
    /// The peer said that it is down.
    NeighbourDown,
    /// On purpose.
    AdminDown,
    /// Another reason, by its number.
    Other(u8),
}

/// One control packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Why the sender last left `Up`.
    pub diagnostic: Diagnostic,
    /// What the sender is.
    pub state: State,
    /// Asks for an answer with `finish`.
    pub poll: bool,
    /// Answers a `poll`.
    pub finish: bool,
    /// The sender would rather not be sent packets. We never are.
    pub demand: bool,
    /// Missed packets after which the sender counts as gone.
    pub multiplier: u8,
    /// The sender's number for the session; not 0.
    pub mine: u32,
    /// The receiver's number for the session; 0 as long as it is unknown.
    pub yours: u32,
    /// How often the sender wants to send, at most.
    pub desired_tx: Time,
    /// How often the sender can take packets, at most; 0: never.
    pub required_rx: Time,
}

/// Why bytes are no control packet that is for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Too short, or not as long as it says.
    #[error("the length is wrong")]
    Length,
    /// Not version 1.
    #[error("the version is unknown")]
    Version,
    /// Authenticated, or for many receivers: not supported.
    #[error("it asks for what is not supported")]
    Unsupported,
    /// A multiplier or a number of 0.
    #[error("a value is out of range")]
    Value,
}

impl Control {
    /// The payload of the datagram.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0] = 1 << 5 | self.diagnostic.number();
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        bytes[1] = self.state.number() << 6
            | flag(self.poll, POLL)
            | flag(self.finish, FINAL)
            | flag(self.demand, DEMAND);
        bytes[2] = self.multiplier;
        bytes[3] = LENGTH as u8;
        bytes[4..8].copy_from_slice(&self.mine.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.yours.to_be_bytes());
        bytes[12..16].copy_from_slice(&micros(self.desired_tx));
        bytes[16..20].copy_from_slice(&micros(self.required_rx));
        bytes
    }

    /// Reads the payload of a datagram.
    pub fn decode(bytes: &[u8]) -> Result<Control, Malformed> {
        if bytes.len() < LENGTH {
            return Err(Malformed::Length);
        }
        if bytes[0] >> 5 != 1 {
            return Err(Malformed::Version);
        }
        let length = usize::from(bytes[3]);
        if length < LENGTH || length > bytes.len() {
            return Err(Malformed::Length);
        }
        if bytes[1] & (AUTHENTICATION | MULTIPOINT) != 0 {
            return Err(Malformed::Unsupported);
        }
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let state = State::from_number(bytes[1] >> 6);
        let (mine, yours) = (word(4), word(8));
        // Only who is down may not know our number.
        let lost = yours == 0 && !matches!(state, State::Down | State::AdminDown);
        if bytes[2] == 0 || mine == 0 || lost {
            return Err(Malformed::Value);
        }
        Ok(Control {
            diagnostic: Diagnostic::from_number(bytes[0] & 0x1f),
            state,
            poll: bytes[1] & POLL != 0,
            finish: bytes[1] & FINAL != 0,
            demand: bytes[1] & DEMAND != 0,
            multiplier: bytes[2],
            mine,
            yours,
            desired_tx: Time::from(word(12)),
            required_rx: Time::from(word(16)),
        })
    }
}

impl State {
    fn number(self) -> u8 {
        match self {
            State::AdminDown => 0,
            State::Down => 1,
            State::Init => 2,
            State::Up => 3,
        }
    }

    fn from_number(number: u8) -> State {
        match number & 3 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        }
    }
}

impl Diagnostic {
    fn number(self) -> u8 {
        match self {
            Diagnostic::None => 0,
            Diagnostic::Expired => 1,
            Diagnostic::NeighbourDown => 3,
            Diagnostic::AdminDown => 7,
            Diagnostic::Other(number) => number & 0x1f,
        }
    }

    fn from_number(number: u8) -> Diagnostic {
        match number {
            0 => Diagnostic::None,
            1 => Diagnostic::Expired,
            3 => Diagnostic::NeighbourDown,
            7 => Diagnostic::AdminDown,
            other => Diagnostic::Other(other),
        }
    }
}

fn micros(time: Time) -> [u8; 4] {
    u32::try_from(time).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn control() -> Control {
        Control {
            diagnostic: Diagnostic::Expired,
            state: State::Init,
            poll: true,
            finish: false,
            demand: false,
            multiplier: 3,
            mine: 0x0102_0304,
            yours: 0x0506_0708,
            desired_tx: 10_000,
            required_rx: 10_000,
        }
    }

    #[test]
    fn the_bytes_are_those_that_the_rfc_draws() {
        let bytes = control().encode();
        assert_eq!(bytes[..12], [0x21, 0xa0, 3, 24, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[12..], [0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10, 0, 0, 0, 0]);
    }

    #[test]
    fn what_the_rfc_says_to_discard_is_discarded() {
        let with = |at: usize, value: u8| {
            let mut bytes = control().encode();
            bytes[at] = value;
            Control::decode(&bytes)
        };
        assert_eq!(with(0, 0x01), Err(Malformed::Version));
        assert_eq!(with(3, 23), Err(Malformed::Length));
        assert_eq!(with(3, 25), Err(Malformed::Length));
        assert_eq!(with(2, 0), Err(Malformed::Value));
        assert_eq!(with(1, 0x81), Err(Malformed::Unsupported));
        assert_eq!(with(1, 0x84), Err(Malformed::Unsupported));
        assert_eq!(Control::decode(&Control { mine: 0, ..control() }.encode()), Err(Malformed::Value));
        assert_eq!(Control::decode(&Control { yours: 0, ..control() }.encode()), Err(Malformed::Value));
        let down = Control { yours: 0, state: State::Down, ..control() };
        assert_eq!(Control::decode(&down.encode()), Ok(down));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again(bytes in proptest::collection::vec(any::<u8>(), 0..40), fix in any::<bool>()) {
            let mut bytes = bytes;
            if fix && bytes.len() >= 24 {
                (bytes[0], bytes[3]) = (bytes[0] & 0x1f | 0x20, 24);
                bytes[1] &= !(AUTHENTICATION | MULTIPOINT);
            }
            if let Ok(control) = Control::decode(&bytes) {
                prop_assert_eq!(Control::decode(&control.encode()), Ok(control));
            }
        }
    }
}
