//! What the threads share of a listener: its pool, behind a lock that is taken when a connection comes and when it goes,
//! never for a byte. One pool for all threads keeps counts, limits and the order of backends exact.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    bell::Bell,
    counters::{Counters, Totals},
    inbox::{Command, Inbox},
    slab::Key,
};
use crate::{
    config,
    core::{BackendId, Change, Pick, Pool, Time},
};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: u32,
    pub(super) name: String,
    book: Mutex<Book>,
    /// By thread.
    counters: Vec<Arc<Counters>>,
    inboxes: Arc<[Arc<Inbox>]>,
    /// Wakes the keeper, who has to look at a pool whose health has changed.
    keeper: Arc<Bell>,
}

/// The part that is behind the lock.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) pool: Pool,
    /// Why the last check of a backend was bad.
    pub(super) reasons: BTreeMap<BackendId, String>,
    waiting: VecDeque<Waiter>,
}

/// A connection that waits for room, and the thread that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) thread: usize,
    pub(super) key: Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    To(BackendId, SocketAddr),
    /// It is in the queue now.
    Wait,
    /// There was no room in the queue either.
    Full,
    Refuse,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(
        id: u32,
        name: &str,
        pool: Pool,
        inboxes: Arc<[Arc<Inbox>]>,
        keeper: Arc<Bell>,
    ) -> Self {
        let book = Book { pool, reasons: BTreeMap::new(), waiting: VecDeque::new() };
        let counters = inboxes.iter().map(|_| Arc::default()).collect();
        Self { id, name: name.to_owned(), book: Mutex::new(book), counters, inboxes, keeper }
    }

    pub(super) fn counters(&self, thread: usize) -> Arc<Counters> {
        self.counters.get(thread).cloned().unwrap_or_default()
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.iter().for_each(|counters| totals.add(counters));
        totals
    }

    /// Chooses a backend, which has the connection from now on, or puts it into the queue.
    pub(super) fn choose(
        &self,
        now: Time,
        client: IpAddr,
        tried: &[BackendId],
        waiter: Waiter,
        most: usize,
    ) -> Choice {
        let mut book = self.book.lock();
        match book.pool.pick(now, client, tried) {
            Pick::Backend(id) => match book.pool.address(id) {
                Some(address) => Choice::To(id, address),
                None => Choice::Refuse,
            },
            Pick::Queue if book.waiting.len() < most => {
                book.waiting.push_back(waiter);
                Choice::Wait
            }
            Pick::Queue => Choice::Full,
            Pick::Refuse => Choice::Refuse,
        }
    }

    pub(super) fn opened(&self, id: BackendId, now: Time) {
        self.book.lock().pool.opened(id, now);
    }

    /// The backend could not be reached.
    pub(super) fn failed(&self, id: BackendId, now: Time) {
        let mut book = self.book.lock();
        let change = book.pool.failed(id, now);
        self.wake_one(&mut book);
        let name = change.map(|_| book.name(id));
        drop(book);
        if let Some(backend) = name {
            tracing::warn!(listener = self.name, backend, "a backend is out: connections to it fail");
            self.keeper.ring();
        }
    }

    pub(super) fn closed(&self, id: BackendId, now: Time) {
        let mut book = self.book.lock();
        book.pool.closed(id, now);
        self.wake_one(&mut book);
    }

    /// A check has ended.
    pub(super) fn checked(&self, id: BackendId, result: Result<(), String>, now: Time) -> Option<Change> {
        let mut book = self.book.lock();
        let change = book.pool.check_result(id, result.is_ok(), now);
        match result {
            Ok(()) => book.reasons.remove(&id),
            Err(reason) => book.reasons.insert(id, reason),
        };
        if change == Some(Change::Up) {
            self.wake_all(&mut book);
        }
        change
    }

    /// Puts another configuration into force.
    pub(super) fn reload(&self, listener: &config::Listener, now: Time) {
        let mut book = self.book.lock();
        book.pool.reload(listener, now);
        self.wake_all(&mut book);
    }

    /// Room was offered to a connection that is not there any more: the next one has it.
    pub(super) fn pass_on(&self) {
        self.wake_one(&mut self.book.lock());
    }

    /// A connection does not wait any more.
    pub(super) fn leave_queue(&self, waiter: Waiter) {
        self.book.lock().waiting.retain(|other| *other != waiter);
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.book.lock())
    }

    /// Has connections of a backend, or of all, ended by whichever threads have them.
    pub(super) fn close(&self, backend: Option<BackendId>, count: u32, gently: bool) {
        let count = Arc::new(count.into());
        for inbox in self.inboxes.iter() {
            inbox.send(Command::Close { listener: self.id, backend, count: Arc::clone(&count), gently });
        }
    }

    /// Whoever does not find room after all queues again.
    fn wake_all(&self, book: &mut Book) {
        for _ in 0..book.waiting.len() {
            self.wake_one(book);
        }
    }

    fn wake_one(&self, book: &mut Book) {
        if let Some(waiter) = book.waiting.pop_front()
            && let Some(inbox) = self.inboxes.get(waiter.thread)
        {
            inbox.send(Command::Room { listener: self.id, key: waiter.key });
        }
    }
}

// === impl Book ===

impl Book {
    /// What people call a backend.
    pub(super) fn name(&self, id: BackendId) -> String {
        let found = self.pool.backends().into_iter().find(|status| status.id == id);
        found.map(|status| status.name).unwrap_or_default()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
