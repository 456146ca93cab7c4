//! The memory of the server: what objects there are, and what happened to them, in one order for everything.
//!
//! ```text
//!   write ──> Head (checks, next revision) ──> batch ──> journal (one sync for all) ──> State ──> watchers, answer
//!                      ^ overlay: accepted, not yet durable                               ^ all that readers ever see
//! ```
//!
//! - A write is checked against the newest accepted state, joins the batch that is being gathered, and is answered when
//!   that batch is on disk. While one batch is being synced the next one gathers: that is the whole of group commit. A lone
//!   writer syncs its batch itself; when more than that comes in, the journal's thread takes over.
//! - Readers and watchers see only what is durable, so nothing that anybody has seen can be lost.
//! - When a batch fails (disk full), everything accepted since is refused too, since it may build on the failed part.

pub mod disk;
mod durable;
mod history;
mod journal;
pub mod log;
mod object;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use durable::{Durable, DurableError};
pub(crate) use history::watch_line;
pub use history::{Event, EventKind};
pub use journal::{Journal, JournalError, MemoryJournal};
pub use object::{Draft, DraftError, Key, Object, ObjectRef};
pub use read::{ListError, Listing, Scope, WatchError, Watcher};
pub use write::{Change, Expect, Receipt, WriteError};

use history::Collection;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The name of a collection: `plural.group`, or the plural alone in the core group. All versions share it.
pub type CollectionName = Arc<str>;

/// How much of the past is kept for watches that resume and lists that go on.
#[derive(Debug, Clone, Copy)]
pub struct HistoryLimits {
    /// Events per collection.
    pub events: usize,
    /// Bytes of superseded objects per collection.
    pub bytes: usize,
}

/// A handle to the store. Clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    head: Mutex<write::Head>,
    /// Used by the present flusher alone.
    journal: Mutex<Box<dyn Journal>>,
    /// Told when there is a batch for the journal's thread, and when the store closes.
    work: Condvar,
    state: RwLock<State>,
    limits: HistoryLimits,
}

/// What readers see. Changes only by whole batches.
pub(crate) struct State {
    /// The newest durable revision.
    revision: u64,
    collections: HashMap<CollectionName, Collection>,
    /// Owner uid to the objects that name it.
    dependents: HashMap<Box<str>, HashSet<(CollectionName, Key)>>,
    /// Internal controllers (garbage collection, namespaces); they see every change in order.
    observers: Vec<mpsc::UnboundedSender<(CollectionName, Arc<Event>)>>,
    /// The oldest revision a watch may start from in a collection that has no history of its own.
    floor: u64,
}

/// What a journal knew when it was opened.
#[derive(Default)]
pub struct Restored {
    pub revision: u64,
    pub objects: Vec<(CollectionName, Arc<Object>)>,
    /// Recent changes in order, so that watches can resume over a restart.
    pub recent: Vec<(CollectionName, Event)>,
    pub floor: u64,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { events: 10_000, bytes: 16 << 20 }
    }
}

impl Store {
    /// A store on `journal`, whose past is `restored`.
    pub fn open(journal: Box<dyn Journal>, restored: Restored, limits: HistoryLimits) -> Self {
        // Revision 0 means "any" to clients, so the first list of an empty store answers 1.
        let revision = restored.revision.max(1);
        let mut state = State {
            revision,
            collections: HashMap::new(),
            dependents: HashMap::new(),
            observers: Vec::new(),
            floor: restored.floor,
        };
        for (collection, object) in restored.objects {
            state.restore(collection, object);
        }
        for (collection, event) in restored.recent {
            state.collection(&collection).remember(Arc::new(event), &limits);
        }
        let instant = journal.is_instant();
        let shared = Arc::new(Shared {
            head: Mutex::new(write::Head::new(revision + 1)),
            journal: Mutex::new(journal),
            work: Condvar::new(),
            state: RwLock::new(state),
            limits,
        });
        if !instant {
            write::spawn_flusher(&shared);
        }
        Self { shared }
    }

    /// A store that forgets everything when it is dropped: for tests and for clusters that are themselves simulated.
    pub fn in_memory() -> Self {
        Self::open(Box::new(MemoryJournal), Restored::default(), HistoryLimits::default())
    }

    /// Every change from now on, in order.
    pub fn observe(&self) -> mpsc::UnboundedReceiver<(CollectionName, Arc<Event>)> {
        let (tx, rx) = mpsc::unbounded_channel();
        self.shared.state.write().observers.push(tx);
        rx
    }

    /// Takes no more writes, and returns when what was accepted is durable.
    pub fn close(&self) {
        write::close(&self.shared);
    }
}

impl State {
    fn collection(&mut self, name: &CollectionName) -> &mut Collection {
        let floor = self.floor;
        self.collections.entry(name.clone()).or_insert_with(|| Collection::new(floor))
    }

    fn restore(&mut self, collection: CollectionName, object: Arc<Object>) {
        self.link(&collection, &object);
        self.collection(&collection).objects.insert(object.key.clone(), object);
    }

    fn link(&mut self, collection: &CollectionName, object: &Object) {
        for owner in &object.owners {
            self.dependents
                .entry(owner.clone())
                .or_default()
                .insert((collection.clone(), object.key.clone()));
        }
    }

    fn unlink(&mut self, collection: &CollectionName, object: &Object) {
        for owner in &object.owners {
            if let Some(set) = self.dependents.get_mut(owner) {
                set.remove(&(collection.clone(), object.key.clone()));
                if set.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    /// Makes one durable change visible.
    fn apply(&mut self, collection: &CollectionName, event: Arc<Event>, limits: &HistoryLimits) {
        if let Some(previous) = &event.previous {
            let previous = previous.clone();
            self.unlink(collection, &previous);
        }
        self.revision = self.revision.max(event.object.revision);
        if event.kind != EventKind::Deleted {
            self.link(collection, &event.object);
        }
        self.observers.retain(|o| o.send((collection.clone(), event.clone())).is_ok());
        let held = self.collection(collection);
        match event.kind {
            EventKind::Deleted => held.objects.remove(&event.object.key),
            _ => held.objects.insert(event.object.key.clone(), event.object.clone()),
        };
        held.remember(event, limits);
    }
}
