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

use parking_lot::{Mutex, MutexGuard};

use super::{
    bell::Bell,
    counters::{Counters, Totals},
    inbox::{Command, Inboxes},
    slab::Key,
};
use crate::{
    config,
    core::{BackendId, Change, Closing, Pick, Pool, Time},
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
    inboxes: Arc<Inboxes>,
    /// Wakes the keeper, who has to look at a pool whose health has changed.
    keeper: Arc<Bell>,
}

/// The part that is behind the lock.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) pool: Pool,
    /// Why the last check of a backend was bad.
    pub(super) reasons: BTreeMap<BackendId, String>,
    /// Those for whom there is no room. Whatever makes room hands it out among them before anybody else can ask for it.
    waiting: VecDeque<Queued>,
    /// It was ready before its backends were replaced, and the new ones have not been checked yet.
    settling: bool,
}

/// A connection that waits for room, and the thread that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) thread: usize,
    pub(super) key: Key,
}

/// What a place is chosen by for a connection that waits.
#[derive(Debug)]
struct Queued {
    waiter: Waiter,
    client: IpAddr,
    tried: Vec<BackendId>,
}

/// Whose fault it is that a backend was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Ours,
    Theirs,
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
    pub(super) fn new(id: u32, name: &str, pool: Pool, inboxes: Arc<Inboxes>, keeper: Arc<Bell>) -> Self {
        let book = Book { pool, reasons: BTreeMap::new(), waiting: VecDeque::new(), settling: false };
        let counters = inboxes.each().iter().map(|_| Arc::default()).collect();
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

    /// Chooses a newcomer's backend, which has the connection from now on, or puts it into the queue if fewer than `most` wait.
    pub(super) fn choose(&self, now: Time, client: IpAddr, waiter: Waiter, most: usize) -> Choice {
        let mut book = self.book.lock();
        if let Some(choice) = book.pick(now, client, &[]) {
            return choice;
        }
        if book.waiting.len() >= most {
            return Choice::Full;
        }
        book.waiting.push_back(Queued { waiter, client, tried: Vec::new() });
        Choice::Wait
    }

    /// Chooses anew for a connection that leaves a backend, the last of those that it has tried. Under one lock, and before
    /// anybody else is asked: who was let in keeps its place. If all others are full it waits before those who never had one,
    /// however many they are.
    pub(super) fn choose_again(
        &self,
        now: Time,
        client: IpAddr,
        tried: &[BackendId],
        waiter: Waiter,
        fault: Fault,
    ) -> Choice {
        let mut book = self.book.lock();
        let change = tried.last().and_then(|id| book.give_back(*id, fault, now).map(|_| *id));
        self.note(&mut book);
        let choice = book.pick(now, client, tried).unwrap_or_else(|| {
            book.waiting.push_front(Queued { waiter, client, tried: tried.to_vec() });
            Choice::Wait
        });
        self.hand_out(&mut book, now);
        self.tell_of(book, change);
        choice
    }

    pub(super) fn opened(&self, id: BackendId, now: Time) {
        self.book.lock().pool.opened(id, now);
    }

    /// A connection leaves a backend that it could not be opened to, and asks for no other.
    pub(super) fn given_up(&self, id: BackendId, now: Time, fault: Fault) {
        let mut book = self.book.lock();
        let change = book.give_back(id, fault, now).map(|_| id);
        self.note(&mut book);
        self.hand_out(&mut book, now);
        self.tell_of(book, change);
    }

    /// Tells of a backend whose health a connection has changed, after the lock.
    fn tell_of(&self, book: MutexGuard<'_, Book>, changed: Option<BackendId>) {
        let name = changed.map(|id| book.name(id));
        drop(book);
        if let Some(backend) = name {
            tracing::warn!(listener = self.name, backend, "a backend is out: connections to it fail");
            self.keeper.ring();
        }
    }

    pub(super) fn closed(&self, id: BackendId, now: Time) {
        let mut book = self.book.lock();
        book.pool.closed(id, now);
        self.hand_out(&mut book, now);
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
        // Also when one is down: with none left that is well, others may be tried.
        if change.is_some() {
            self.hand_out(&mut book, now);
        }
        change
    }

    /// Puts another configuration into force.
    pub(super) fn reload(&self, listener: &config::Listener, now: Time) {
        let mut book = self.book.lock();
        book.settling |= self.is_ready();
        book.pool.reload(listener, now);
        self.note(&mut book);
        self.hand_out(&mut book, now);
    }

    /// Changes a backend, which may make room.
    pub(super) fn change(&self, backend: &str, now: Time, change: impl FnOnce(&mut Pool, BackendId)) -> bool {
        let mut book = self.book.lock();
        let Some(id) = book.pool.find(backend) else { return false };
        change(&mut book.pool, id);
        self.note(&mut book);
        self.hand_out(&mut book, now);
        true
    }

    /// A connection does not wait any more.
    pub(super) fn leave_queue(&self, waiter: Waiter) {
        self.book.lock().waiting.retain(|queued| queued.waiter != waiter);
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Book) -> T) -> T {
        look(&mut self.book.lock())
    }

    /// Has connections of a backend, or of all, ended by whichever threads have them.
    pub(super) fn close(&self, backend: Option<BackendId>, count: u32, which: Closing) {
        let count = Arc::new(count.into());
        self.inboxes.tell_all(|_| Command::Close {
            listener: self.id,
            backend,
            count: Arc::clone(&count),
            which,
        });
    }

    /// Gives room to those who wait, the first one first. Who can't use what there is stays where it is, and whoever comes
    /// after it is asked too: what it can't use must not lie idle.
    fn hand_out(&self, book: &mut Book, now: Time) {
        let mut at = 0;
        while let Some(queued) = book.waiting.get_mut(at) {
            let (client, tried) = (queued.client, std::mem::take(&mut queued.tried));
            match book.pick(now, client, &tried) {
                Some(choice) => {
                    if let Some(Queued { waiter, .. }) = book.waiting.remove(at)
                        && let Some(inbox) = self.inboxes.each().get(waiter.thread)
                    {
                        inbox.send(Command::Room { listener: self.id, key: waiter.key, choice });
                    }
                }
                // It would have taken any: there is nothing left for those behind it either.
                None if tried.is_empty() => return,
                None => {
                    if let Some(queued) = book.waiting.get_mut(at) {
                        queued.tried = tried;
                    }
                    at += 1;
                }
            }
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

    /// Frees the place of a connection that was not opened. Says whether that has changed the backend's health.
    fn give_back(&mut self, id: BackendId, fault: Fault, now: Time) -> Option<Change> {
        match fault {
            Fault::Theirs => self.pool.failed(id, now),
            Fault::Ours => {
                self.pool.closed(id, now);
                None
            }
        }
    }

    /// Where a connection goes. `None`: there is no room.
    fn pick(&mut self, now: Time, client: IpAddr, tried: &[BackendId]) -> Option<Choice> {
        match self.pool.pick(now, client, tried) {
            Pick::Backend(id) => match self.pool.address(id) {
                Some(address) => Some(Choice::To(id, address)),
                None => Some(Choice::Refuse),
            },
            Pick::Queue => None,
            Pick::Refuse => Some(Choice::Refuse),
        }
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
        let inboxes = Arc::new(Inboxes::new(1).unwrap());
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
        assert!(shared.change("a", 0, |pool, id| pool.drain(id, 0)));
        assert!(!shared.is_ready());
        assert!(shared.change("a", 0, |pool, id| pool.undrain(id, 0)));
        assert!(shared.is_ready());
        assert!(!shared.change("b", 0, |_, _| ()));
    }

    /// Who was told that there is room for it, in this order.
    fn told(shared: &Shared) -> Vec<u32> {
        let commands = shared.inboxes.each()[0].take().into_iter();
        let room = |command| if let Command::Room { key, .. } = command { Some(key.index) } else { None };
        commands.filter_map(room).collect()
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn waiter(index: u32) -> Waiter {
        Waiter { thread: 0, key: Key { index, generation: 1 } }
    }

    fn choose(shared: &Shared, index: u32) -> Choice {
        shared.choose(0, CLIENT, waiter(index), 3)
    }

    fn choose_again(shared: &Shared, index: u32, tried: &[BackendId]) -> Choice {
        shared.choose_again(0, CLIENT, tried, waiter(index), Fault::Ours)
    }

    #[test]
    fn a_place_that_gets_free_is_the_next_waiters_and_no_newcomers() {
        let shared = shared(&["a"]);
        check(&shared, "a", true);
        let Choice::To(id, _) = choose(&shared, 0) else { panic!("there is room for one") };
        assert_eq!([1, 2, 3].map(|index| choose(&shared, index)), [Choice::Wait; 3]);
        assert_eq!(choose(&shared, 4), Choice::Full);
        for index in 1..=3 {
            shared.closed(id, 0);
            assert_eq!(told(&shared), [index]);
            // Before the one that was told comes to it.
            assert_eq!(choose(&shared, 10 + index), Choice::Wait);
        }
    }

    #[test]
    fn a_place_that_is_of_no_use_to_the_next_waiter_is_the_one_afters() {
        let mut config = listener(&["a", "b"]);
        config.max_connections = 0;
        config.backends.iter_mut().for_each(|backend| backend.max_connections = 1);
        let shared = shared(&[]);
        shared.reload(&config, 0);
        check(&shared, "a", true);
        check(&shared, "b", true);
        let Choice::To(first, _) = choose(&shared, 0) else { panic!("there is room for two") };
        let Choice::To(_, _) = choose(&shared, 1) else { panic!("there is room for two") };
        assert_eq!(choose(&shared, 2), Choice::Wait);
        assert_eq!(choose_again(&shared, 0, &[first]), Choice::Wait, "the other one is full");
        assert_eq!(told(&shared), [2]);
        assert_eq!(shared.with(|book| book.waiting()), 1);
    }

    #[test]
    fn nobody_is_told_of_room_that_is_not_there() {
        let shared = shared(&["a"]);
        check(&shared, "a", true);
        assert_eq!(
            [0, 1, 2].map(|index| matches!(choose(&shared, index), Choice::To(..))),
            [true, false, false]
        );
        shared.reload(&listener(&["a"]), 0);
        assert_eq!((told(&shared), shared.with(|book| book.waiting())), (vec![], 2));
        let mut roomy = listener(&["a"]);
        roomy.max_connections = 3;
        shared.reload(&roomy, 0);
        assert_eq!(told(&shared), [1, 2]);
    }

    #[test]
    fn who_was_let_in_keeps_its_place_when_its_backend_fails() {
        for (most, fault) in [(0, Fault::Theirs), (1, Fault::Theirs), (1, Fault::Ours)] {
            let shared = shared(&["a", "b"]);
            check(&shared, "a", true);
            check(&shared, "b", true);
            let choose = |index| shared.choose(0, CLIENT, waiter(index), most);
            let Choice::To(first, _) = choose(0) else { panic!("there is room for one") };
            let newcomer = if most == 0 { Choice::Full } else { Choice::Wait };
            assert_eq!((choose(1), choose(2)), (newcomer, Choice::Full));
            let again = shared.choose_again(0, CLIENT, &[first], waiter(0), fault);
            assert!(matches!(again, Choice::To(second, _) if second != first), "{most}: {again:?}");
            assert_eq!(told(&shared), [] as [u32; 0], "it has given nothing away");
            assert_eq!(choose(3), Choice::Full, "nor got a second place");
        }
    }

    #[test]
    fn who_had_a_place_already_waits_before_all_others_and_beyond_their_number() {
        let mut config = listener(&["a", "b"]);
        config.max_connections = 0;
        config.backends.iter_mut().for_each(|backend| backend.max_connections = 1);
        for most in [0, 3] {
            let shared = shared(&[]);
            shared.reload(&config, 0);
            check(&shared, "a", true);
            check(&shared, "b", true);
            let choose = |index| shared.choose(0, CLIENT, waiter(index), most as usize);
            let Choice::To(first, _) = choose(0) else { panic!("there is room for two") };
            let Choice::To(second, _) = choose(1) else { panic!("there is room for two") };
            assert!((0..most).all(|index| choose(2 + index) == Choice::Wait));
            assert_eq!(choose(9), Choice::Full);
            assert_eq!(choose_again(&shared, 0, &[first]), Choice::Wait, "the queue is full, but not for it");
            assert_eq!(told(&shared), Vec::from_iter((most > 0).then_some(2)), "what it can't use");
            shared.closed(second, 0);
            assert_eq!(told(&shared), [0]);
        }
    }

    #[test]
    fn a_backend_that_is_taken_back_has_room_for_those_who_wait() {
        let mut config = listener(&["a", "b"]);
        config.max_connections = 0;
        config.backends.iter_mut().for_each(|backend| backend.max_connections = 1);
        let shared = shared(&[]);
        shared.reload(&config, 0);
        check(&shared, "a", true);
        check(&shared, "b", true);
        assert!(shared.change("b", 0, |pool, id| pool.drain(id, 0)));
        assert!(matches!(choose(&shared, 0), Choice::To(..)));
        assert_eq!([1, 2].map(|index| choose(&shared, index)), [Choice::Wait; 2]);
        assert!(shared.change("b", 0, |pool, id| pool.undrain(id, 0)));
        assert_eq!((told(&shared), shared.with(|book| book.waiting())), (vec![1], 1));
        // Where nobody is left to wait for, nobody waits.
        assert!(shared.change("a", 0, |pool, id| pool.drain(id, 0)));
        assert!(shared.change("b", 0, |pool, id| pool.drain(id, 0)));
        assert_eq!((told(&shared), shared.with(|book| book.waiting())), (vec![2], 0));
    }
}
