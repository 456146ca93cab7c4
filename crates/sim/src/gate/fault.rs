//! What can go wrong with a call, and with a machine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this HTTP status (or what comes nearest to it in another protocol); not carried out.
    Status(u16),
    /// Refused because there are too many calls; not carried out.
    Throttle,
    /// Not carried out and never answered: the caller has to give up by itself.
    Timeout,
    /// The connection is cut before the call is carried out.
    Reset,
    /// Carried out; then the connection is cut instead of an answer.
    LoseAnswer,
    /// A read is answered from the state before the last change. Calls that change something don't meet it.
    StaleRead,
}

impl Fault {
    /// Whether the call is still carried out.
    #[must_use]
    pub fn is_carried_out(self) -> bool {
        matches!(self, Fault::LoseAnswer | Fault::StaleRead)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Status(code) => write!(f, "status {code}"),
            Fault::Throttle => f.write_str("throttle"),
            Fault::Timeout => f.write_str("timeout"),
            Fault::Reset => f.write_str("reset"),
            Fault::LoseAnswer => f.write_str("lose-answer"),
            Fault::StaleRead => f.write_str("stale-read"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "throttle" => Fault::Throttle,
            "timeout" => Fault::Timeout,
            "reset" => Fault::Reset,
            "lose-answer" => Fault::LoseAnswer,
            "stale-read" => Fault::StaleRead,
            other => {
                let code = other.strip_prefix("status ").and_then(|code| code.trim().parse().ok());
                match code {
                    Some(code @ 400..=599) => Fault::Status(code),
                    Some(code) => return Err(format!("status {code} is no error: use 400 to 599")),
                    None => {
                        return Err(format!(
                            "unknown fault {other:?}: use status CODE, throttle, timeout, reset, lose-answer or stale-read"
                        ));
                    }
                }
            }
        })
    }
}

/// What is wrong with one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineFault {
    /// The plug is pulled, once.
    Die,
    /// It has power and never gets as far as opening a port.
    NeverBoots,
    /// Its clock is off by so many seconds, and no time server sets it right.
    ClockSkew(i64),
    /// Its etcd never finds a cluster to join.
    NeverJoins,
    /// Its etcd joins and learns, and never gets to vote.
    NeverPromoted,
}

impl fmt::Display for MachineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineFault::Die => f.write_str("die"),
            MachineFault::NeverBoots => f.write_str("never-boots"),
            MachineFault::ClockSkew(seconds) => write!(f, "clock-skew {seconds}"),
            MachineFault::NeverJoins => f.write_str("never-joins"),
            MachineFault::NeverPromoted => f.write_str("never-promoted"),
        }
    }
}

impl FromStr for MachineFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "die" => MachineFault::Die,
            "never-boots" => MachineFault::NeverBoots,
            "never-joins" => MachineFault::NeverJoins,
            "never-promoted" => MachineFault::NeverPromoted,
            other => {
                let seconds = other.strip_prefix("clock-skew ").and_then(|s| s.trim().parse().ok());
                let Some(seconds) = seconds else {
                    return Err(format!(
                        "unknown machine fault {other:?}: use die, never-boots, never-joins, never-promoted or \
                         clock-skew SECONDS"
                    ));
                };
                MachineFault::ClockSkew(seconds)
            }
        })
    }
}

/// How long a call that is never answered holds its connection, at most: a hung server is found out by its peer's patience,
/// and this one only has to be longer than any of ours.
pub(super) const HANG: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_they_are_read() {
        for text in ["status 503", "throttle", "timeout", "reset", "lose-answer", "stale-read"] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in ["die", "never-boots", "never-joins", "never-promoted", "clock-skew -3600"] {
            assert_eq!(text.parse::<MachineFault>().unwrap().to_string(), text);
        }
        assert!("status 200".parse::<Fault>().unwrap_err().contains("is no error"));
        assert!("explode".parse::<Fault>().unwrap_err().contains("lose-answer"));
        assert!("clock-skew".parse::<MachineFault>().unwrap_err().contains("SECONDS"));
    }
}
