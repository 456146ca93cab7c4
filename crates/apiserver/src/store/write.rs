//! The way in: checks, revisions, batches.

use super::history::{Event, EventKind};
use super::journal::{JournalError, View};
use super::object::{Draft, Key, Object};
use super::{CollectionName, Shared, Store};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What must be true of the newest state for a write to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

/// What is to happen.
#[derive(Debug)]
pub enum Change {
    Put(Draft),
    Delete,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    #[error("the object exists already")]
    Exists,
    #[error("the object does not exist")]
    Missing,
    #[error("the object has been modified")]
    Stale,
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the server is shutting down")]
    Closed,
}

/// A write that was accepted; await it to know that it is durable.
pub type Receipt = oneshot::Receiver<Result<Arc<Object>, WriteError>>;

/// The newest accepted state: durable or about to be.
pub(crate) struct Head {
    next_revision: u64,
    /// Accepted but not yet visible, with its revision: `None` is a deletion. Whatever is not here is as in the visible
    /// state.
    overlay: HashMap<(CollectionName, Key), Accepted>,
    batch: Vec<Pending>,
    closed: bool,
    /// Set after a failure that leaves the disk's state unknown.
    broken: Option<JournalError>,
    /// Told when the journal's thread has ended.
    ended: Option<std::sync::mpsc::Receiver<()>>,
    /// Who is writing a batch; what comes in meanwhile gathers in the next one.
    flusher: Flusher,
    /// There is a thread for the journal; without one every writer flushes by itself.
    pub(crate) threaded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flusher {
    Nobody,
    /// The one that found nobody at it.
    Writer,
    /// The journal's thread: it takes over while there is more than one writer can do on the side.
    Thread,
}

/// The revision of an accepted write, and what it leaves behind.
type Accepted = (u64, Option<Arc<Object>>);

struct Pending {
    collection: CollectionName,
    event: Arc<Event>,
    answer: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

// === impl Head ===

impl Head {
    pub(crate) fn new(next_revision: u64) -> Self {
        Self {
            next_revision,
            overlay: HashMap::new(),
            batch: Vec::new(),
            closed: false,
            broken: None,
            ended: None,
            flusher: Flusher::Nobody,
            threaded: false,
        }
    }

    fn refusal(&self) -> Option<WriteError> {
        if let Some(broken) = &self.broken {
            return Some(WriteError::Journal(broken.clone()));
        }
        self.closed.then_some(WriteError::Closed)
    }
}

// === impl Store ===

impl Store {
    /// Checks and accepts a write, and waits until it is durable and visible.
    pub async fn write(
        &self,
        collection: &CollectionName,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Object>, WriteError> {
        let receipt = self.submit([(collection.clone(), key, expect, change)]).pop();
        match receipt {
            Some(Ok(receipt)) => receipt.await.unwrap_or(Err(WriteError::Closed)),
            Some(Err(refusal)) => Err(refusal),
            None => Err(WriteError::Closed),
        }
    }

    /// Checks and accepts writes, each for itself, all in one batch. They become visible in the order of acceptance.
    pub fn submit(
        &self,
        writes: impl IntoIterator<Item = (CollectionName, Key, Expect, Change)>,
    ) -> Vec<Result<Receipt, WriteError>> {
        let mut head = self.shared.head.lock();
        let receipts = writes
            .into_iter()
            .map(|(collection, key, expect, change)| {
                self.shared.accept(&mut head, collection, key, expect, change)
            })
            .collect();
        if head.flusher != Flusher::Nobody || head.batch.is_empty() {
            return receipts;
        }
        // A lone writer syncs on its own thread: waking another one and being woken by it would cost as much again.
        head.flusher = Flusher::Writer;
        let batch = std::mem::take(&mut head.batch);
        drop(head);
        self.shared.flush(batch);
        self.shared.hand_over();
        receipts
    }
}

// === impl Shared ===

impl Shared {
    /// Checks one write against the newest accepted state and puts it into the batch.
    fn accept(
        &self,
        head: &mut Head,
        collection: CollectionName,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Receipt, WriteError> {
        if let Some(refusal) = head.refusal() {
            return Err(refusal);
        }
        let place = (collection, key);
        let current = match head.overlay.get(&place) {
            Some((_, accepted)) => accepted.clone(),
            None => self.visible(&place.0, &place.1),
        };
        match (expect, &current) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Missing),
            (Expect::Revision(r), Some(c)) if c.revision != r => return Err(WriteError::Stale),
            _ => {}
        }
        let (kind, draft) = match (change, &current) {
            (Change::Put(draft), None) => (EventKind::Added, draft),
            (Change::Put(draft), Some(_)) => (EventKind::Modified, draft),
            (Change::Delete, Some(current)) => (EventKind::Deleted, Draft::again(current)),
            (Change::Delete, None) => return Err(WriteError::Missing),
        };
        let object = Arc::new(draft.seal(place.1.clone(), head.next_revision));
        head.next_revision += 1;
        let left = (kind != EventKind::Deleted).then(|| object.clone());
        let (answer, receipt) = oneshot::channel();
        let event = Arc::new(Event::new(kind, object.clone(), current));
        head.batch.push(Pending { collection: place.0.clone(), event, answer });
        head.overlay.insert(place, (object.revision, left));
        Ok(receipt)
    }

    fn visible(&self, collection: &CollectionName, key: &Key) -> Option<Arc<Object>> {
        self.state.read().collections.get(collection)?.objects.get(key).cloned()
    }

    /// Writes one batch and tells everyone concerned. Only the present flusher may call it.
    fn flush(&self, batch: Vec<Pending>) {
        let changes: Vec<_> = batch.iter().map(|p| (p.collection.clone(), p.event.clone())).collect();
        let mut journal = self.journal.lock();
        let result = journal.append(&changes);
        if result.is_ok() {
            self.publish(&changes);
        }
        self.settle(batch, result);
        journal.tidy(self);
    }

    /// After a batch of a writer's own: what others brought meanwhile is for the journal's thread.
    fn hand_over(&self) {
        loop {
            let mut head = self.head.lock();
            let over = head.batch.is_empty();
            if over || head.threaded {
                head.flusher = if over { Flusher::Nobody } else { Flusher::Thread };
                if !over || head.closed {
                    self.work.notify_all();
                }
                return;
            }
            let batch = std::mem::take(&mut head.batch);
            drop(head);
            self.flush(batch);
        }
    }

    /// Makes a durable batch visible and wakes those who wait for its collections.
    fn publish(&self, changes: &[(CollectionName, Arc<Event>)]) {
        let mut state = self.state.write();
        for (collection, event) in changes {
            state.apply(collection, event.clone(), &self.limits);
        }
        let revision = state.revision;
        let mut woken: Vec<&CollectionName> = Vec::new();
        for (collection, _) in changes {
            if !woken.contains(&collection) {
                woken.push(collection);
                state.collection(collection).changed.send_replace(revision);
            }
        }
    }

    /// The next batch for the journal's thread; waits until there is one. `None` when the store has closed.
    fn next_batch(&self) -> Option<Vec<Pending>> {
        let mut head = self.head.lock();
        if head.flusher == Flusher::Thread && head.batch.is_empty() {
            head.flusher = Flusher::Nobody;
        }
        while head.flusher != Flusher::Thread {
            if head.closed && head.flusher == Flusher::Nobody {
                return None;
            }
            self.work.wait(&mut head);
        }
        Some(std::mem::take(&mut head.batch))
    }

    fn settle(&self, batch: Vec<Pending>, result: Result<(), JournalError>) {
        let mut head = self.head.lock();
        match &result {
            Ok(()) => {
                for pending in &batch {
                    let place = (pending.collection.clone(), pending.event.object.key.clone());
                    // A newer accepted write of the same object stays in the overlay.
                    if head.overlay.get(&place).is_some_and(|(r, _)| *r == pending.event.object.revision) {
                        head.overlay.remove(&place);
                    }
                }
                drop(head);
                answer(batch, &Ok(()));
            }
            Err(error) => {
                tracing::error!(%error, writes = batch.len(), "a batch of writes did not reach the disk");
                if matches!(error, JournalError::Broken(_)) {
                    head.broken = Some(error.clone());
                }
                // What gathered meanwhile was checked against the failed writes: it can't stand either.
                let later = std::mem::take(&mut head.batch);
                head.overlay.clear();
                drop(head);
                answer(batch, &result);
                answer(later, &result);
            }
        }
    }
}

fn answer(batch: Vec<Pending>, result: &Result<(), JournalError>) {
    for pending in batch {
        let outcome = match result {
            Ok(()) => Ok(pending.event.object.clone()),
            Err(error) => Err(WriteError::Journal(error.clone())),
        };
        // The client may have gone; its write stands all the same.
        let _ = pending.answer.send(outcome);
    }
}

/// Writes batches until the store closes. A thread of its own, since it spends its life in `fdatasync`.
pub(crate) fn spawn_flusher(shared: &Arc<Shared>) {
    let (ended, on_end) = std::sync::mpsc::channel::<()>();
    let body = {
        let shared = shared.clone();
        move || {
            let _ended = ended;
            while let Some(batch) = shared.next_batch() {
                shared.flush(batch);
            }
        }
    };
    match std::thread::Builder::new().name("journal".into()).spawn(body) {
        Ok(_) => {
            let mut head = shared.head.lock();
            head.ended = Some(on_end);
            head.threaded = true;
        }
        // Writers then do it all by themselves, one after the other.
        Err(error) => tracing::warn!(%error, "cannot start the thread that writes the journal"),
    }
}

/// Stops accepting, lets the flusher finish, and waits for it.
pub(crate) fn close(shared: &Shared) {
    let ended = {
        let mut head = shared.head.lock();
        head.closed = true;
        head.ended.take()
    };
    shared.work.notify_all();
    if let Some(ended) = ended {
        // The sender is dropped when the thread ends, which is what is waited for.
        let _ = ended.recv();
    }
}

impl View for Shared {
    fn revision(&self) -> u64 {
        self.state.read().revision
    }

    fn objects(&self) -> Vec<(CollectionName, Arc<Object>)> {
        let state = self.state.read();
        let all = state.collections.iter();
        all.flat_map(|(name, c)| c.objects.values().map(move |o| (name.clone(), o.clone()))).collect()
    }
}
