//! One collection: its objects, and as much of its past as is kept.

use super::HistoryLimits;
use super::object::{Key, Object};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    /// The state after the change; for a deletion the last state, under the deletion's revision.
    pub object: Arc<Object>,
    /// The state before, if there was one: selectors need it to tell who enters and who leaves.
    pub previous: Option<Arc<Object>>,
    /// The line that most watchers are sent, made once for all of them.
    line: OnceLock<Bytes>,
}

pub(crate) struct Collection {
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    /// In order of revision.
    pub(crate) events: VecDeque<Arc<Event>>,
    /// Bytes that only the history still holds.
    superseded: usize,
    /// A watch may resume from here or later.
    pub(crate) floor: u64,
    pub(crate) changed: watch::Sender<u64>,
}

impl EventKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl Event {
    pub(crate) fn new(kind: EventKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { kind, object, previous, line: OnceLock::new() }
    }

    /// The watch line of the change as it stands.
    pub fn line(&self) -> Bytes {
        self.line.get_or_init(|| watch_line(self.kind.as_str(), &self.object.json)).clone()
    }

    /// What only this event keeps alive.
    fn superseded_bytes(&self) -> usize {
        let last = if self.kind == EventKind::Deleted { self.object.json.len() } else { 0 };
        last + self.previous.as_ref().map_or(0, |p| p.json.len())
    }
}

/// `{"type":"ADDED","object":{...}}` and a line feed.
pub(crate) fn watch_line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}

impl Collection {
    pub(crate) fn new(floor: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            superseded: 0,
            floor,
            changed: watch::Sender::new(0),
        }
    }

    pub(crate) fn remember(&mut self, event: Arc<Event>, limits: &HistoryLimits) {
        self.superseded += event.superseded_bytes();
        self.events.push_back(event);
        while self.events.len() > limits.events || (self.superseded > limits.bytes && self.events.len() > 1) {
            self.forget_oldest();
        }
    }

    /// Forgets all that happened up to `revision`: what etcd calls compaction.
    pub(crate) fn compact(&mut self, revision: u64) {
        while self.events.front().is_some_and(|e| e.object.revision <= revision) {
            self.forget_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    fn forget_oldest(&mut self) {
        if let Some(old) = self.events.pop_front() {
            self.superseded = self.superseded.saturating_sub(old.superseded_bytes());
            self.floor = self.floor.max(old.object.revision);
        }
    }
}
