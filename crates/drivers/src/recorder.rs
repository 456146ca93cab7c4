//! The flight recorder's seam: every call to the outside world is told to it, after it ended.
//!
//! Entries are redacted by those who write them: an operation names a path or a method, an object names a machine, and
//! neither ever holds a body, a header or a credential.

use crate::failure::Class;
use std::sync::Arc;
use std::time::Duration;

/// One call to the outside world that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whom it went to: `proxmox`, `talos`, `kubernetes`.
    pub system: &'static str,
    /// What was asked, with the changing parts: `POST /nodes/pve1/qemu/9000/clone`, `ApplyConfiguration`.
    pub operation: String,
    /// Which object it was about, in our words: `machine butler-mgmt-cp-0`.
    pub object: String,
    /// Whether it can change something.
    pub mutates: bool,
    /// When it began.
    pub began: jiff::Timestamp,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It worked; a short word about the answer, such as `200` or a task's id.
    Ok(String),
    /// It did not.
    Failed {
        /// What kind of obstacle.
        class: Class,
        /// The other side's words, without secrets.
        message: String,
    },
}

/// Somebody who writes calls down.
pub trait Recorder: Send + Sync {
    /// A call has ended. Must not block.
    fn record(&self, call: Call);
}

/// Writes nothing down.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn record(&self, _call: Call) {}
}

/// A recorder that is shared.
pub type SharedRecorder = Arc<dyn Recorder>;
