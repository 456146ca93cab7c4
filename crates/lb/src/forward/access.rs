//! The access log: one line of JSON per connection, written when it ends. Lines are made by the thread that had the
//! connection and written by one of their own, so that a slow disk slows nobody down; when too many wait, lines are
//! dropped and counted.

use std::{
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use serde::Serialize;

/// Lines that may wait to be written.
const WAITING: usize = 16_384;

/// Where lines go.
#[derive(Debug, Clone)]
pub(super) struct Log {
    lines: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Ending {
    /// Both sides were done.
    Done,
    ClientCut,
    BackendCut,
    Idle,
    /// By us: its backend was drained, not ready, or had too many.
    Shed,
    /// By us: the balancer ended.
    Stopped,
    /// By us: its address is another machine's now.
    Moved,
    NotAllowed,
    BadHeader,
    NoBackend,
    NoRoom,
}

/// One line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a> {
    pub(super) time: String,
    pub(super) listener: &'a str,
    pub(super) client: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<SocketAddr>,
    /// Backends that could not be reached before this one.
    pub(super) retries: usize,
    pub(super) milliseconds: u64,
    pub(super) bytes_from_client: u64,
    pub(super) bytes_from_backend: u64,
    pub(super) ending: Ending,
}

// === impl Log ===

impl Log {
    /// A log, and what a thread is to run to write it. That ends when the last user of the log is gone.
    pub(super) fn new(out: Box<dyn Write + Send>) -> (Self, impl FnOnce() + Send) {
        let (lines, receiver) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Self { lines, dropped: Arc::clone(&dropped) };
        (log, move || write(&receiver, out, &dropped))
    }

    pub(super) fn write(&self, record: &Record<'_>) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(lines: &Receiver<Vec<u8>>, mut out: Box<dyn Write + Send>, dropped: &AtomicU64) {
    let mut batch = Vec::new();
    while let Ok(line) = lines.recv() {
        batch.clear();
        batch.extend_from_slice(&line);
        // Everything that waits goes out in one write.
        while batch.len() < 1 << 16
            && let Ok(line) = lines.try_recv()
        {
            batch.extend_from_slice(&line);
        }
        if let Err(error) = out.write_all(&batch).and_then(|()| out.flush()) {
            tracing::warn!(%error, "the access log cannot be written");
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lines = lost, "the access log was too slow: lines were dropped");
        }
    }
}

// === impl Ending ===

impl Ending {
    /// Whether the client is told that its connection was cut, not that it ended well.
    pub(super) fn cuts_client(self) -> bool {
        !matches!(self, Self::Done | Self::Idle | Self::Shed | Self::Stopped)
    }

    /// The same for the backend.
    pub(super) fn cuts_backend(self) -> bool {
        matches!(self, Self::ClientCut)
    }
}
