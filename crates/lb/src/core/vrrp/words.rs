//! What goes into an election and what comes out of it.

use super::super::{MILLISECOND, SECOND, Time};
use super::packet::{Advert, Version};
use crate::config;
use std::net::IpAddr;

/// What a virtual router is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The protocol's version.
    pub version: Version,
    /// Number of the virtual router.
    pub router_id: u8,
    /// Priority while all is well, 1 to 254.
    pub priority: u8,
    /// Time between two adverts.
    pub interval: Time,
    /// Whether a weaker holder that works is replaced.
    pub preempt: bool,
    /// How long it is let be before.
    pub preempt_delay: Time,
    /// Our own address on the interface: equal priorities are decided by it.
    pub source: IpAddr,
    /// The addresses that are held.
    pub addresses: Vec<IpAddr>,
    /// What every track check that fails subtracts from the priority; 0: unfit.
    pub tracks: Vec<u8>,
    /// Announcements after a takeover.
    pub announcements: u32,
}

/// What a virtual router is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Not begun: the first call of `on_timer` begins.
    Init,
    /// Unfit: does not take part.
    Fault,
    /// Listens.
    Backup,
    /// Holds the addresses.
    Master,
    /// Holds the addresses, and asks others to take them.
    Resigning,
    /// At its end. Nothing happens any more.
    Stopped,
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to the peers.
    SendAdvert(Advert),
    /// Put the addresses on the interface. Said again while they are held: putting back what someone took away.
    AddAddress,
    /// Take the addresses off the interface, if they are there.
    DelAddress,
    /// Tell the segment that the addresses live here, once.
    Announce,
    /// The role changed. After `Stopped` the router can be dropped.
    Become(Role),
    /// An advert was not taken.
    Ignored(Ignored),
}

/// Why an advert was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It speaks another version.
    Version,
    /// It is about another virtual router.
    RouterId,
    /// It is our own, come back.
    Own,
    /// Version 2: its interval is not ours, and one of both is configured wrong.
    Interval,
}

impl Settings {
    /// Those of a configured address. `source` is the interface's own address, `addresses` are without prefix lengths.
    pub fn from_config(vip: &config::Vip, source: IpAddr, addresses: Vec<IpAddr>) -> Settings {
        Settings {
            version: if vip.version == 2 { Version::V2 } else { Version::V3 },
            router_id: vip.router_id,
            priority: vip.priority,
            interval: Time::from(vip.advert_ms) * MILLISECOND,
            preempt: vip.preempt,
            preempt_delay: vip.preempt_delay.saturating_mul(SECOND),
            source,
            addresses,
            tracks: vip.track.iter().map(|track| track.weight).collect(),
            announcements: vip.announcements,
        }
    }
}

impl Role {
    /// Whether the addresses are on this machine.
    pub fn holds(self) -> bool {
        matches!(self, Role::Master | Role::Resigning)
    }
}
