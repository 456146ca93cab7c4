//! Connections that change their thread, with two threads' work done by hand.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rustix::{event::epoll::Event, time::Timespec};

use super::{
    super::{
        bell::Bell,
        clock::Clock,
        inbox::{Command, Inboxes},
        link::{BACKEND, CLIENT},
        mover::Tuning,
        settings::Settings,
        shared::Shared,
        sockets::{self, Liveness},
        spread::Spread,
        worker::{Start, Worker},
    },
    loopback,
};
use crate::{
    config::Listener,
    core::{Closing, Pool, Random, SECOND},
};

/// Far more than anything here takes, and less than the kernel tries to connect for.
const LONG: Duration = Duration::from_secs(30);

/// Two threads of a listener, and its backend.
pub(super) struct Pair {
    pub(super) workers: [Worker; 2],
    inboxes: Arc<Inboxes>,
    spread: Arc<Spread>,
    pub(super) shared: Arc<Shared>,
    settings: Arc<Settings>,
    backend: TcpListener,
    pub(super) at: std::net::SocketAddr,
}

impl Pair {
    fn new() -> Self {
        let backend = loopback();
        let backends = [backend.local_addr().unwrap()];
        Self::before(backend, &backends, 2_000)
    }

    /// In front of these backends, which are given so many milliseconds each. One of them is told of in more detail.
    pub(super) fn before(backend: TcpListener, backends: &[std::net::SocketAddr], connect_ms: u64) -> Self {
        let backends: Vec<_> = (0..)
            .zip(backends)
            .map(|(number, address)| serde_json::json!({"name": format!("b{number}"), "address": address}))
            .collect();
        let listener: Listener = serde_json::from_value(serde_json::json!({
            "name": "test", "bind": ["127.0.0.1:0"], "allDown": "tryAll", "backends": backends,
            "timeouts": {"connectMs": connect_ms},
        }))
        .unwrap();
        let inboxes = Arc::new(Inboxes::new(2).unwrap());
        let (clock, spread) = (Clock::start(), Arc::new(Spread::new(2, 1)));
        let workers = [0, 1].map(|number| {
            let (inboxes, spread) = (Arc::clone(&inboxes), Arc::clone(&spread));
            let (open, tuning) = (Arc::default(), Tuning::default());
            Worker::new(Start { number, clock, inboxes, spread, open, tuning, log: None }).unwrap()
        });
        let pool = Pool::new(&listener, 1, 0);
        let bell = Arc::new(Bell::new().unwrap());
        let shared = Arc::new(Shared::new(0, "test", pool, Arc::clone(&inboxes), bell));
        let settings = Arc::new(Settings::new(&listener).unwrap());
        let first = sockets::listen(([127, 0, 0, 1], 0).into(), Liveness::default()).unwrap();
        let at = sockets::local(&first).unwrap();
        let second = sockets::listen(at, Liveness::default()).unwrap();
        let mut pair = Self { workers, inboxes, spread, shared, settings, backend, at };
        pair.serve(&mut [Some(first), Some(second)]);
        pair.turn();
        pair
    }

    /// Has both threads listen at these sockets, or at none.
    fn serve(&self, sockets: &mut [Option<OwnedFd>; 2]) {
        self.inboxes.tell_all(|number| Command::Serve {
            shared: Arc::clone(&self.shared),
            settings: Arc::clone(&self.settings),
            keep: Vec::new(),
            adopt: Vec::new(),
            sockets: sockets[number].take().map(|socket| (self.at, socket)).into_iter().collect(),
            done: mpsc::channel().0,
        });
    }

    pub(super) fn turn(&mut self) {
        for worker in &mut self.workers {
            turn(worker);
        }
    }

    /// A client of the first thread, and what its backend has of it.
    pub(super) fn connect(&mut self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.at).unwrap();
        (&client).write_all(b".").unwrap();
        let began = Instant::now();
        let backend = loop {
            assert!(began.elapsed() < LONG, "no backend was reached");
            self.turn();
            match self.backend.accept() {
                Ok((backend, _)) => break backend,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        };
        client.set_nonblocking(true).unwrap();
        backend.set_nonblocking(true).unwrap();
        while read(&backend) != b"." {
            self.turn();
        }
        (client, backend)
    }

    /// Hands over as if all connections of a thread had moved a byte just now. Says how many have left.
    fn hand_over(&mut self, from: usize) -> u64 {
        let worker = &mut self.workers[from];
        worker.on_inbox();
        let keys: Vec<_> = worker.links.iter().map(|(key, _)| key).collect();
        for key in keys {
            worker.links.get_mut(key).unwrap().active = worker.now;
        }
        let inbox = &self.inboxes.each()[1 - from];
        let before = inbox.moving();
        worker.hand_over(1 - from);
        inbox.moving() - before
    }

    fn counts(&self) -> [usize; 2] {
        [0, 1].map(|number| self.workers[number].links.len())
    }
}

fn turn(worker: &mut Worker) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    worker.turn(Some(&timeout), &mut Vec::<Event>::with_capacity(16), &mut Vec::new()).unwrap();
}

/// Whatever there is.
pub(super) fn read(mut from: &TcpStream) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    match from.read(&mut buffer) {
        Ok(count) => buffer.truncate(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => buffer.clear(),
        Err(error) => panic!("{error}"),
    }
    buffer
}

/// One end of a conversation: says so many bytes, which can be told from each other, and then that this was all.
struct Speaker {
    stream: TcpStream,
    said: usize,
    heard: usize,
    ended: bool,
}

const WORDS: usize = 3_000_000;

impl Speaker {
    fn new(stream: TcpStream) -> Self {
        Self { stream, said: 0, heard: 0, ended: false }
    }

    fn go_on(&mut self, random: &mut Random) {
        let until = (self.said + 1 + random.below(1 << 17) as usize).min(WORDS);
        let words: Vec<u8> = (self.said..until).map(word).collect();
        if !words.is_empty() {
            match self.stream.write(&words) {
                Ok(count) => self.said += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            if self.said == WORDS {
                self.stream.shutdown(Shutdown::Write).unwrap();
            }
        }
        if random.chance(33) {
            // A slow reader, so that things have to wait on the way.
            return;
        }
        let mut buffer = vec![0; 1 + random.below(1 << 17) as usize];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                assert!((self.heard..).zip(&buffer[..count]).all(|(place, byte)| *byte == word(place)));
                self.heard += count;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
    }
}

fn word(place: usize) -> u8 {
    (place % 251) as u8
}

#[test]
fn nothing_is_lost_or_told_twice_however_often_connections_change_their_thread() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new();
        let mut speakers: Vec<Speaker> = (0..4)
            .flat_map(|_| {
                let (client, backend) = pair.connect();
                [Speaker::new(client), Speaker::new(backend)]
            })
            .collect();
        let mut moves = 0;
        while speakers.iter().any(|speaker| !speaker.ended) {
            let at = random.below(8) as usize;
            speakers[at].go_on(&mut random);
            let from = random.below(2) as usize;
            match random.below(8) {
                0 => moves += pair.hand_over(from),
                _ => turn(&mut pair.workers[from]),
            }
        }
        assert!(speakers.iter().all(|speaker| speaker.heard == WORDS));
        assert!(moves > 20, "{moves}");
        pair.turn();
        assert_eq!(pair.counts(), [0, 0], "all have ended");
        assert_eq!(pair.shared.with(|book| book.pool.connections()), 0);
    }
}

#[test]
fn an_order_reaches_connections_that_are_changing_their_thread() {
    // Before they go, on their way, and after they have arrived.
    for when in 0..3 {
        let mut pair = Pair::new();
        let clients: Vec<_> = (0..4).map(|_| pair.connect()).collect();
        assert_eq!(pair.counts(), [4, 0]);
        let order = |pair: &Pair, now| {
            if now == when {
                pair.shared.close(None, u32::MAX, Closing::Any);
            }
        };
        order(&pair, 0);
        pair.hand_over(0);
        order(&pair, 1);
        if when > 0 {
            assert_eq!((pair.counts(), pair.inboxes.each()[1].moving()), ([2, 0], 2));
        }
        turn(&mut pair.workers[1]);
        order(&pair, 2);
        pair.turn();
        pair.turn();
        assert_eq!((pair.counts(), pair.inboxes.each()[1].moving()), ([0, 0], 0), "{when}");
        drop(clients);
    }
}

#[test]
fn a_connection_is_taken_by_a_thread_that_has_forgotten_its_listener() {
    let mut pair = Pair::new();
    let mut ends: Vec<_> = (0..4).map(|_| pair.connect()).collect();
    // On its way while both threads are told that the listener is gone.
    assert_eq!(pair.hand_over(0), 2);
    let links = pair.inboxes.each()[1].take();
    pair.serve(&mut [None, None]);
    turn(&mut pair.workers[1]);
    assert!(pair.workers[1].listeners[0].is_none());
    links.into_iter().for_each(|order| pair.inboxes.each()[1].send(order));
    pair.turn();
    assert_eq!(pair.counts(), [2, 2]);
    for (client, backend) in &mut ends {
        client.write_all(b"hello").unwrap();
        let heard = (0..100).find_map(|_| {
            pair.turn();
            Some(read(backend)).filter(|heard| !heard.is_empty())
        });
        assert_eq!(heard.as_deref(), Some(&b"hello"[..]));
    }
    // Nobody leaves a listener that is about to go.
    assert_eq!(pair.hand_over(0), 0);
    assert_eq!(pair.counts(), [2, 2]);
}

#[test]
fn a_thread_that_is_busy_is_helped_with_what_it_has_and_with_what_comes() {
    let mut pair = Pair::new();
    let early: Vec<_> = (0..8).map(|_| pair.connect()).collect();
    assert_eq!((pair.counts(), pair.spread.used()), ([8, 0], 1));
    let clock = pair.workers[0].clock;
    for _ in 0..3 {
        // A turn that takes as long as what is judged.
        pair.workers[0].now = clock.now();
        std::thread::sleep(Duration::from_millis(550));
        let (worker, now) = (&mut pair.workers[0], clock.now());
        let keys: Vec<_> = worker.links.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| worker.links.get_mut(key).unwrap().active = now);
        pair.spread.have_room();
        pair.workers[0].reckon();
    }
    pair.turn();
    assert_eq!((pair.counts(), pair.spread.used()), ([4, 4], 2));
    let late: Vec<_> = (0..64).map(|_| pair.connect()).collect();
    let [first, second] = pair.counts();
    assert!(first > 4 && second > 4, "{first}, {second}");
    drop((early, late));
}

#[test]
fn one_that_has_more_to_say_than_its_turn_allowed_goes_on_elsewhere() {
    let mut pair = Pair::new();
    let mut ends = [pair.connect(), pair.connect()];
    ends.iter_mut().for_each(|(client, _)| client.write_all(b"hello").unwrap());
    let keys: Vec<_> = pair.workers[0].links.iter().map(|(key, _)| key).collect();
    for key in keys {
        let link = pair.workers[0].links.get_mut(key).unwrap();
        (link.ends[CLIENT].readable, link.ends[CLIENT].queued) = (true, true);
    }
    assert_eq!(pair.hand_over(0), 1);
    let heard = (0..100).find_map(|_| {
        turn(&mut pair.workers[1]);
        ends.iter().map(|(_, backend)| read(backend)).find(|heard| !heard.is_empty())
    });
    assert_eq!(heard.as_deref(), Some(&b"hello"[..]));
}

#[test]
fn who_never_listens_is_not_waited_for_when_its_backend_is_gone() {
    let mut pair = Pair::new();
    let _ends = pair.connect();
    let worker = &mut pair.workers[0];
    let key = worker.links.iter().map(|(key, _)| key).next().unwrap();
    let link = worker.links.get_mut(key).unwrap();
    (link.ends[BACKEND].deaf, link.ends[CLIENT].blocked) = (true, true);
    let since = link.active;
    for (seconds, left) in [(9, 1), (11, 0)] {
        worker.now = since + seconds * SECOND;
        worker.on_deadline(key.index);
        assert_eq!(worker.links.len(), left, "after {seconds} s");
    }
    assert_eq!(pair.shared.totals().reset, 1);
}

#[test]
fn the_kernel_brings_new_clients_to_as_many_sockets_as_it_was_told() {
    let first = sockets::listen(([127, 0, 0, 1], 0).into(), Liveness::default()).unwrap();
    let at = sockets::local(&first).unwrap();
    let second = sockets::listen(at, Liveness::default()).unwrap();
    let third = sockets::listen(at, Liveness::default()).unwrap();
    let all = [first, second, third].map(TcpListener::from);
    for (told, threads) in [(0, 1), (1, 2), (2, 3), (1, 1)] {
        let socket: OwnedFd = all[told].try_clone().unwrap().into();
        sockets::steer(&socket, threads).unwrap();
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut came = [0; 3];
        let until = Instant::now() + Duration::from_secs(20);
        // The last step of a handshake can take a moment after the client's side of it.
        while came.iter().sum::<usize>() < clients.len() && Instant::now() < until {
            (0..3).for_each(|place| came[place] += std::iter::from_fn(|| all[place].accept().ok()).count());
        }
        assert_eq!(came.iter().sum::<usize>(), clients.len());
        let some: Vec<usize> = (0..3).filter(|place| came[*place] > 0).collect();
        assert_eq!(some, (0..threads).collect::<Vec<_>>(), "{came:?}");
    }
}
