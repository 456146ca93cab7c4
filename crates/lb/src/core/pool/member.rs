//! One backend of a pool: what is known of it, and what it shows.

use super::super::{NEVER, Time};
use super::BackendId;
use super::drain::Unready;
use super::health::{Health, Rules, Verdict};
use crate::config;
use std::net::SocketAddr;

/// What a backend is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Never yet checked with success.
    New,
    /// Healthy.
    Up,
    /// Its checks fail.
    Down,
    /// Connections to it failed; out until a check is good.
    Ejected,
    /// Gets no new connections.
    Draining,
    /// No longer configured; here until its last connection ends.
    Removed,
}

/// A backend, for those who want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its number.
    pub id: BackendId,
    /// Its name.
    pub name: String,
    /// Its address and port.
    pub address: SocketAddr,
    /// Its configured weight.
    pub weight: u32,
    /// What it is.
    pub state: State,
    /// Since when it is healthy or not.
    pub since: Time,
    /// Connections now, those being opened included.
    pub connections: u32,
    /// Connections opened so far.
    pub opened: u64,
    /// Connections that could not be opened so far.
    pub failed: u64,
    /// Checks so far.
    pub checks: u64,
    /// Checks that were bad.
    pub bad_checks: u64,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: BackendId,
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) weight: u32,
    pub(super) max_connections: u32,
    pub(super) health: Health,
    /// Places taken.
    pub(super) connections: u32,
    /// Of these, asked to be closed.
    pub(super) closing: u32,
    /// When those that have not been are asked for again.
    pub(super) closing_until: Time,
    pub(super) draining_since: Option<Time>,
    pub(super) removed: bool,
    pub(super) unready: Option<Unready>,
    /// What round robin owes it.
    pub(super) credit: i64,
    pub(super) opened: u64,
    pub(super) failed: u64,
    pub(super) checks: u64,
    pub(super) bad_checks: u64,
}

impl Member {
    pub(super) fn new(id: u32, backend: &config::Backend, now: Time) -> Member {
        Member {
            id: BackendId(id),
            name: backend.name.clone(),
            address: backend.address,
            weight: backend.weight,
            max_connections: backend.max_connections,
            health: Health::new(now),
            connections: 0,
            closing: 0,
            closing_until: NEVER,
            draining_since: None,
            removed: false,
            unready: None,
            credit: 0,
            opened: 0,
            failed: 0,
            checks: 0,
            bad_checks: 0,
        }
    }

    /// Whether it is healthy and may get connections.
    pub(super) fn takes(&self) -> bool {
        self.health.is_up() && !self.drains()
    }

    pub(super) fn drains(&self) -> bool {
        self.draining_since.is_some()
    }

    pub(super) fn full(&self) -> bool {
        self.max_connections != 0 && self.connections >= self.max_connections
    }

    /// Connections that were not asked to be closed.
    pub(super) fn staying(&self) -> u32 {
        self.connections - self.closing
    }

    /// Weight times what the slow start leaves of it; never 0.
    pub(super) fn load_weight(&self, rules: &Rules, now: Time) -> u64 {
        u64::from(self.weight.max(1)) * self.health.share(rules, now)
    }

    pub(super) fn state(&self) -> State {
        match self.health.verdict() {
            _ if self.removed => State::Removed,
            _ if self.drains() => State::Draining,
            Verdict::New => State::New,
            Verdict::Up => State::Up,
            Verdict::Down => State::Down,
            Verdict::Ejected => State::Ejected,
        }
    }

    pub(super) fn status(&self) -> BackendStatus {
        BackendStatus {
            id: self.id,
            name: self.name.clone(),
            address: self.address,
            weight: self.weight,
            state: self.state(),
            since: self.health.since(),
            connections: self.connections,
            opened: self.opened,
            failed: self.failed,
            checks: self.checks,
            bad_checks: self.bad_checks,
        }
    }
}
