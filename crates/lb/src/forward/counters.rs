//! Counters of one thread for one listener. Only that thread writes them, so that counting is a plain store into a cache
//! line of its own; everybody may read.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

/// What one thread has seen of one listener.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) accepted: Counter,
    pub(super) opened: Counter,
    pub(super) retried: Counter,
    pub(super) not_allowed: Counter,
    pub(super) bad_header: Counter,
    pub(super) no_backend: Counter,
    pub(super) no_room: Counter,
    pub(super) idle: Counter,
    pub(super) shed: Counter,
    pub(super) reset: Counter,
    pub(super) from_clients: Counter,
    pub(super) from_backends: Counter,
}

/// Counts of a listener over all threads, since it was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Connections of clients that were accepted.
    pub accepted: u64,
    /// Of these, the ones that reached a backend.
    pub opened: u64,
    /// Attempts that failed and were made again with another backend.
    pub retried: u64,
    /// Refused: not in an allowed network.
    pub not_allowed: u64,
    /// Refused: no PROXY header, or a wrong one.
    pub bad_header: u64,
    /// Refused: no backend could be reached.
    pub no_backend: u64,
    /// Refused: no room, and none in time.
    pub no_room: u64,
    /// Ended for being quiet too long.
    pub idle: u64,
    /// Ended by us: drained, shed, or their backend was not ready.
    pub shed: u64,
    /// Cut by a client or a backend.
    pub reset: u64,
    /// Bytes from clients.
    pub from_clients: u64,
    /// Bytes from backends.
    pub from_backends: u64,
}

// === impl Counter ===

impl Counter {
    pub(super) fn add(&self, count: u64) {
        // No read-modify-write instruction: nobody else writes.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Totals ===

impl Totals {
    pub(super) fn add(&mut self, counters: &Counters) {
        self.accepted += counters.accepted.get();
        self.opened += counters.opened.get();
        self.retried += counters.retried.get();
        self.not_allowed += counters.not_allowed.get();
        self.bad_header += counters.bad_header.get();
        self.no_backend += counters.no_backend.get();
        self.no_room += counters.no_room.get();
        self.idle += counters.idle.get();
        self.shed += counters.shed.get();
        self.reset += counters.reset.get();
        self.from_clients += counters.from_clients.get();
        self.from_backends += counters.from_backends.get();
    }
}
