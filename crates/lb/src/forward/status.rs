//! How a balancer is, for people and for metrics.

use std::net::SocketAddr;

use serde::Serialize;

use super::{balancer::Handle, counters::Totals, shared::Book};
use crate::core::{SECOND, State, Time};

/// How a balancer is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its listeners, in the order of the configuration.
    pub listeners: Vec<ListenerReport>,
    /// Connections of clients, those that wait included.
    pub connections: u64,
}

/// How a listener is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerReport {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Its health in a sentence: "4 of 5 members healthy".
    pub summary: String,
    /// Whether a connection would find a healthy backend.
    pub ready: bool,
    /// Connections with backends, those on their way included.
    pub connections: u32,
    /// Clients that wait for room.
    pub waiting: usize,
    /// Counts since it was there.
    pub totals: Totals,
    /// Its backends. One that is no longer configured is there until its last connection has ended.
    pub backends: Vec<BackendReport>,
}

/// How a backend is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendReport {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// new, up, down, ejected, draining or removed.
    pub state: &'static str,
    /// Seconds since its health has last changed.
    pub for_seconds: u64,
    /// Why its last check was bad, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// Connections now.
    pub connections: u32,
    /// Connections opened so far.
    pub opened: u64,
    /// Connections that could not be opened so far.
    pub failed: u64,
    /// Checks so far.
    pub checks: u64,
    /// Of these, the bad ones.
    pub bad_checks: u64,
}

impl Handle {
    /// How everything is now.
    pub fn status(&self) -> Status {
        let now = self.clock.now();
        let state = self.state.lock();
        let listeners = state.serving.iter().map(|serving| {
            let shared = &serving.shared;
            shared.with(|book| ListenerReport {
                name: shared.name.clone(),
                addresses: serving.binds.iter().map(|(_, actual)| *actual).collect(),
                summary: book.pool.summary(),
                ready: book.pool.has_healthy(),
                connections: book.pool.connections(),
                waiting: book.waiting(),
                totals: shared.totals(),
                backends: backends(book, now),
            })
        });
        Status { listeners: listeners.collect(), connections: self.connections() }
    }
}

fn backends(book: &Book, now: Time) -> Vec<BackendReport> {
    let report = |status: crate::core::BackendStatus| BackendReport {
        reason: book.reasons.get(&status.id).cloned(),
        name: status.name,
        address: status.address,
        state: word(status.state),
        for_seconds: now.saturating_sub(status.since) / SECOND,
        weight: status.weight,
        connections: status.connections,
        opened: status.opened,
        failed: status.failed,
        checks: status.checks,
        bad_checks: status.bad_checks,
    };
    book.pool.backends().into_iter().map(report).collect()
}

fn word(state: State) -> &'static str {
    match state {
        State::New => "new",
        State::Up => "up",
        State::Down => "down",
        State::Ejected => "ejected",
        State::Draining => "draining",
        State::Removed => "removed",
    }
}
