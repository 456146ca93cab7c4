//! What holding addresses tells about itself, and why it could not begin.

use super::capabilities::CapabilityError;
use crate::core::vrrp::Role;
use std::net::IpAddr;

/// A virtual address on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VipStatus {
    /// Name.
    pub name: String,
    /// The addresses, as configured.
    pub addresses: Vec<String>,
    /// Interface that carries them.
    pub interface: String,
    /// What this machine is in the election.
    pub role: Role,
    /// Priority in force: the configured one less what is not so. 0: unfit.
    pub priority: u8,
    /// Who holds them, if it was heard.
    pub holder: Option<IpAddr>,
    /// How often this machine has taken or given up the addresses.
    pub transitions: u64,
    /// Adverts that were thrown away: not signed as they must be, malformed, or replayed.
    pub rejected: u64,
    /// Of these, refused because the sender's clock and ours are too far apart.
    pub clock_refused: u64,
    /// Of these, refused because they, or later ones, were heard before: repeated, delayed or overtaken.
    pub replayed: u64,
    /// Of these, refused because they are not signed, or not with a key of ours.
    pub wrong_key: u64,
    /// How often another machine has claimed an address that this one held.
    pub foreign_claims: u64,
    /// What is looked at.
    pub tracks: Vec<TrackStatus>,
    /// Peers that are watched by BFD.
    pub bfd: Vec<BfdStatus>,
    /// Whether the end of the holder's process would be noticed at once.
    pub lifeline: bool,
    /// Connections at the holder whose clients would be told if this machine took over.
    pub mirrored: usize,
    /// Why this machine can't take part, if it can't.
    pub problem: Option<String>,
}

/// Something that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackStatus {
    /// What.
    pub check: String,
    /// Whether it is so.
    pub good: bool,
}

/// A peer that is watched by BFD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BfdStatus {
    /// Which.
    pub peer: IpAddr,
    /// Whether both sides hear each other.
    pub up: bool,
}

/// Virtual addresses can't be held.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The kernel does not allow it.
    #[error("holding a virtual address needs the capabilities {}, which this process does not have", names.join(", "))]
    Capabilities {
        /// Those that are missing.
        names: Vec<&'static str>,
    },
    /// Not known what the kernel allows.
    #[error(transparent)]
    UnknownCapabilities(#[from] CapabilityError),
    /// An address that is none.
    #[error("vip {vip}: {address:?} is not an address")]
    Address {
        /// Name of the vip.
        vip: String,
        /// What stands there.
        address: String,
    },
    /// The file with the keys that sign adverts.
    #[error("vip {vip}: the key file {path}: {reason}")]
    Keys {
        /// Name of the vip.
        vip: String,
        /// The file.
        path: String,
        /// What is wrong with it. Never what stands in it.
        reason: String,
    },
    /// The kernel refused something.
    #[error("{operation}: {source}")]
    System {
        /// What was asked of it.
        operation: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// The thread that holds the addresses is gone.
    #[error("the thread that holds the virtual addresses has ended")]
    Ended,
}

impl Failed {
    pub(super) fn system(operation: &'static str) -> impl Fn(rustix::io::Errno) -> Failed {
        move |errno| Failed::System { operation, source: errno.into() }
    }
}
