//! What a running balancer tells about itself. The JSON of `GET /v1/status`; metrics and `butler-lb status` are made from it.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Seconds since it was started.
    pub uptime: u64,
    /// Seconds since the configuration in force was read.
    pub config_age: u64,
    /// Reloads that were refused since then.
    pub failed_reloads: u64,
    /// Threads that forward.
    #[serde(default)]
    pub threads: Threads,
    /// Ports.
    pub listeners: Vec<ListenerStatus>,
    /// Shared addresses.
    pub vips: Vec<VipStatus>,
}

/// Threads that forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Threads {
    /// Those that new connections go to: as few as have the time for them.
    pub used: usize,
    /// Those that there are.
    pub all: usize,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Name.
    pub name: String,
    /// Where it listens.
    pub bind: Vec<SocketAddr>,
    /// `2 of 3 members healthy`.
    pub summary: String,
    /// Backends that are healthy.
    pub healthy: usize,
    /// Connections that are open.
    pub connections: u64,
    /// Connections that wait for room.
    pub queued: u64,
    /// Connections that were taken.
    pub accepted: u64,
    /// Connections that were closed because their client is not allowed.
    pub denied: u64,
    /// Connections that were closed because no backend took them, or there was no room.
    pub refused: u64,
    /// Connections that a second backend took after the first did not.
    pub retried: u64,
    /// Connections that were closed so that shares get even.
    pub shed: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Where connections go.
    pub backends: Vec<BackendStatus>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// Name.
    pub name: String,
    /// Address and port.
    pub address: SocketAddr,
    /// How it is.
    pub state: BackendState,
    /// Why its last check was bad; empty when it was good.
    pub check: String,
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that failed.
    pub failed: u64,
}

/// How a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BackendState {
    /// It has not had a good check yet.
    New,
    /// It gets connections.
    Up,
    /// Its checks fail.
    Down,
    /// Connections to it failed; out until a check is good.
    Ejected,
    /// It gets no new connections.
    Draining,
    /// It is not in the file any more, and has connections left.
    Removed,
}

/// A shared address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VipStatus {
    /// Name.
    pub name: String,
    /// The addresses.
    pub addresses: Vec<String>,
    /// Interface that carries them.
    pub interface: String,
    /// Whether this machine holds them.
    pub state: VipState,
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
    #[serde(default)]
    pub replayed: u64,
    /// Of these, refused because they are not signed, or not with a key of ours.
    #[serde(default)]
    pub wrong_key: u64,
    /// How often another machine has claimed an address that this one held.
    #[serde(default)]
    pub foreign_claims: u64,
    /// What is looked at.
    pub tracks: Vec<TrackStatus>,
    /// Peers that are watched by BFD.
    pub bfd: Vec<BfdStatus>,
    /// Why this machine can't take part, if it can't.
    pub problem: Option<String>,
}

/// Whether this machine holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VipState {
    /// Not started.
    Init,
    /// Not fit to hold it.
    Unfit,
    /// Another machine holds it, or will soon.
    Backup,
    /// This one holds it.
    Master,
    /// This one gives it to another.
    Resigning,
    /// It takes part no more.
    Stopped,
}

/// Something that is looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrackStatus {
    /// What.
    pub check: String,
    /// Whether it is so.
    pub good: bool,
}

/// A peer that is watched by BFD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BfdStatus {
    /// Which.
    pub peer: IpAddr,
    /// Whether both sides hear each other.
    pub up: bool,
}

impl Status {
    /// Whether every listener has a healthy backend.
    pub fn is_ready(&self) -> bool {
        self.listeners.iter().all(|listener| listener.healthy > 0)
    }
}
