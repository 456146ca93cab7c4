//! What the threads share of a listener: its pool, behind a lock that is taken when a connection comes and when it goes,
//! never for a byte. One pool for all threads keeps counts, limits and the order of backends exact.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    /// Beside the lock: who asks for it sends adverts, and waits for nothing.
    ready: AtomicBool,
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
    /// It was ready before its backends were replaced, and the new ones have not been checked yet.
    settling: bool,
}

/// A connection that waits for room, and the thread that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) thread: usize,
    pub(super) key: Key,
}

/// Whether a connection may wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// If no more than so many do.
    UpTo(usize),
    /// It has waited already, and keeps its place.
    Again,
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
        let book = Book { pool, reasons: BTreeMap::new(), waiting: VecDeque::new(), settling: false };
        let counters = inboxes.iter().map(|_| Arc::default()).collect();
        let ready = AtomicBool::new(false);
        Self { id, name: name.to_owned(), book: Mutex::new(book), ready, counters, inboxes, keeper }
    }

    /// Takes the place of a listener that was ready: it counts as ready until its own backends have been checked.
    pub(super) fn inherit_readiness(&self) {
        let mut book = self.book.lock();
        book.settling = true;
        self.note(&mut book);
    }

    /// Whether a connection would find a healthy backend, as far as is known. Answers at once.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// To be called after everything that may have changed the health of a backend.
    fn note(&self, book: &mut Book) {
        let healthy = book.pool.has_healthy();
        book.settling &= !healthy && book.pool.has_unchecked();
        self.ready.store(healthy || book.settling, Ordering::Release);
    }

    pub(super) fn counters(&self, thread: usize) -> Arc<Counters> {
        self.counters.get(thread).cloned().unwrap_or_default()
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters.iter().for_each(|counters| totals.add(counters));
        totals
    }

    /// Chooses a backend, which has the connection from now on, or puts it into the queue: to its end, or to its head where it
    /// has waited already.
    pub(super) fn choose(
        &self,
        now: Time,
        client: IpAddr,
        tried: &[BackendId],
        waiter: Waiter,
        queue: Queue,
    ) -> Choice {
        let mut book = self.book.lock();
        match book.pool.pick(now, client, tried) {
            Pick::Backend(id) => match book.pool.address(id) {
                Some(address) => Choice::To(id, address),
                None => Choice::Refuse,
            },
            Pick::Queue => match queue {
                Queue::Again => {
                    book.waiting.push_front(waiter);
                    Choice::Wait
                }
                Queue::UpTo(most) if book.waiting.len() < most => {
                    book.waiting.push_back(waiter);
                    Choice::Wait
                }
                Queue::UpTo(_) => Choice::Full,
            },
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
        self.note(&mut book);
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
        self.note(&mut book);
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
        book.settling |= self.is_ready();
        book.pool.reload(listener, now);
        self.note(&mut book);
        self.wake_all(&mut book);
    }

    /// Changes a backend, which may make room.
    pub(super) fn change(&self, backend: &str, change: impl FnOnce(&mut Pool, BackendId)) -> bool {
        let mut book = self.book.lock();
        let Some(id) = book.pool.find(backend) else { return false };
        change(&mut book.pool, id);
        self.note(&mut book);
        self.wake_all(&mut book);
        true
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
        self.pool.backend(id).map(|status| status.name).unwrap_or_default()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(backends: &[&str]) -> config::Listener {
        let backends: Vec<_> = (1..)
            .zip(backends)
            .map(|(port, name)| serde_json::json!({"name": name, "address": format!("127.0.0.1:{port}")}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "name": "test", "bind": ["127.0.0.1:0"], "backends": backends, "maxConnections": 1,
        }))
        .unwrap()
    }

    fn shared(backends: &[&str]) -> Shared {
        let inboxes: Arc<[Arc<Inbox>]> = Arc::new([Arc::new(Inbox::new().unwrap())]);
        let pool = Pool::new(&listener(backends), 1, 0);
        Shared::new(0, "test", pool, inboxes, Arc::new(Bell::new().unwrap()))
    }

    fn check(shared: &Shared, backend: &str, good: bool) {
        let id = shared.with(|book| book.pool.find(backend)).unwrap();
        shared.checked(id, if good { Ok(()) } else { Err("bad".to_owned()) }, 0);
    }

    #[test]
    fn it_stays_ready_until_the_backends_of_a_reload_have_been_checked() {
        let shared = shared(&["a"]);
        assert!(!shared.is_ready(), "nothing is claimed that has never been so");
        check(&shared, "a", true);
        assert!(shared.is_ready());
        shared.reload(&listener(&["b", "c"]), 0);
        assert!(shared.is_ready(), "it was, and nothing says that it is not");
        check(&shared, "b", false);
        assert!(shared.is_ready());
        check(&shared, "c", false);
        assert!(!shared.is_ready());
        check(&shared, "c", true);
        assert!(shared.is_ready());
        shared.reload(&listener(&[]), 0);
        assert!(!shared.is_ready(), "nobody is left to be checked");
    }

    #[test]
    fn it_is_not_ready_when_its_last_backend_is_drained() {
        let shared = shared(&["a"]);
        check(&shared, "a", true);
        assert!(shared.change("a", |pool, id| pool.drain(id, 0)));
        assert!(!shared.is_ready());
        assert!(shared.change("a", |pool, id| pool.undrain(id, 0)));
        assert!(shared.is_ready());
        assert!(!shared.change("b", |_, _| ()));
    }

    #[test]
    fn whoever_waited_in_vain_waits_on_at_the_head_of_the_queue() {
        let shared = shared(&["a"]);
        check(&shared, "a", true);
        let waiter = |index| Waiter { thread: 0, key: Key { index, generation: 1 } };
        let client = IpAddr::from([127, 0, 0, 1]);
        let choose = |index, queue| shared.choose(0, client, &[], waiter(index), queue);
        let Choice::To(id, _) = choose(0, Queue::UpTo(1)) else { panic!("there is room for one") };
        assert_eq!(choose(1, Queue::UpTo(1)), Choice::Wait);
        assert_eq!(choose(2, Queue::UpTo(1)), Choice::Full);
        // The first one ends, its place is offered to the second, and a newcomer is faster.
        shared.closed(id, 0);
        assert!(matches!(choose(3, Queue::UpTo(1)), Choice::To(..)));
        assert_eq!(choose(4, Queue::UpTo(1)), Choice::Wait);
        assert_eq!(choose(1, Queue::Again), Choice::Wait);
        let order: Vec<u32> =
            shared.with(|book| book.waiting.iter().map(|waiter| waiter.key.index).collect());
        assert_eq!(order, [1, 4]);
    }
}
