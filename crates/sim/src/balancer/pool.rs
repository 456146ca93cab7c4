//! What a load balancer is, as its owner wants it, and what its owner can know of its targets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How connections reach a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// The balancer has its own addresses, and opens connections of its own.
    #[default]
    Proxy,
    /// Packets are handed on with the balancer's address as their destination.
    Passthrough,
}

/// A load balancer as its owner wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancer {
    pub mode: Mode,
    pub frontends: Vec<Frontend>,
    pub pools: BTreeMap<String, Pool>,
    /// Names that lead to its first address, or to the first that has somebody behind it.
    pub names: Vec<String>,
}

/// An address and port that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontend {
    pub address: IpAddr,
    pub port: u16,
    /// Whose targets get its connections.
    pub pool: String,
    /// Only targets of this zone; `None` for all.
    pub zone: Option<String>,
    /// Whether rules let clients in; without, their connections are cut.
    pub open: bool,
    /// Whether rules let the machines of the data centre in.
    pub open_inside: bool,
}

/// Targets, and how they are looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub targets: Vec<Target>,
    pub check: Check,
    /// Connections to a target that turns unhealthy are cut.
    pub cut_unhealthy: bool,
    /// Connections to a target that leaves the list are cut.
    pub cut_removed: bool,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub address: IpAddr,
    pub port: u16,
    pub zone: String,
    /// Gets no new connections, and keeps the ones it has.
    pub draining: bool,
    /// Whether rules let the balancer's connections through to it.
    pub open: bool,
    /// Whether rules let checks through to it.
    pub checkable: bool,
}

/// How a target is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub probe: Probe,
    /// The target's own without.
    pub port: Option<u16>,
    pub interval: Duration,
    pub timeout: Duration,
    /// Successes in a row that make a new target healthy.
    pub first: u32,
    /// Successes in a row that make an unhealthy target healthy.
    pub rise: u32,
    /// Failures in a row that make a target unhealthy.
    pub fall: u32,
}

/// What a check does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// Connects.
    Tcp,
    /// Asks for a path and looks at the status, by TLS (whose certificate nobody checks) or without.
    Http { tls: bool, path: String, good: Vec<(u16, u16)>, agent: &'static str },
}

/// What is known of a target's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    pub verdict: Verdict,
}

/// Whether a target is well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Not checked often enough.
    #[default]
    Initial,
    Healthy,
    Unhealthy(Trouble),
}

/// What the last check of an unhealthy target found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing came back in time.
    Timeout,
    /// The port is closed, or the connection broke.
    Refused,
    /// The status was another one.
    Status(u16),
}

impl Default for Check {
    /// A connection each 10 seconds, three of a kind.
    fn default() -> Self {
        Self {
            probe: Probe::Tcp,
            port: None,
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            first: 1,
            rise: 3,
            fall: 3,
        }
    }
}

impl Target {
    /// A target that rules don't keep anything from.
    #[must_use]
    pub fn new(address: IpAddr, port: u16) -> Self {
        Self { address, port, zone: String::new(), draining: false, open: true, checkable: true }
    }

    #[must_use]
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl Frontend {
    #[must_use]
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl Probe {
    /// Whether a status is as it should be.
    pub(super) fn is_good(good: &[(u16, u16)], status: u16) -> bool {
        good.iter().any(|(from, to)| (*from..=*to).contains(&status))
    }
}

impl Health {
    #[must_use]
    pub fn is_healthy(self) -> bool {
        self.verdict == Verdict::Healthy
    }
}
