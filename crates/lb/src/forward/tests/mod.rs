//! A thread's work without the thread, where the order of things matters.

mod handover;
mod tries;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use rustix::io::Errno;

use super::{
    bell::Bell,
    clock::Clock,
    inbox::{Command, Inbox, Inboxes},
    link::{CLIENT, Held, Link, Phase},
    mover::Tuning,
    settings::Settings,
    shared::{Choice, Shared, Waiter},
    slab::Key,
    spread::Spread,
    worker::{Start, Worker},
};
use crate::{
    config::{Config, Listener},
    core::Pool,
    forward::{LoadBalancer, Options, StartError},
};

/// One thread, its orders, and a place for its connections to go to.
struct Lone {
    worker: Worker,
    inboxes: Arc<Inboxes>,
    listener: Listener,
    _backend: TcpListener,
}

impl Lone {
    fn new() -> Self {
        let backend = loopback();
        let address = backend.local_addr().unwrap();
        let listener: Listener = serde_json::from_value(serde_json::json!({
            "name": "test", "bind": ["127.0.0.1:0"], "sendProxy": "v1", "allDown": "tryAll",
            "backends": [
                {"name": "a", "address": address}, {"name": "b", "address": address}, {"name": "c", "address": address},
            ],
        }))
        .unwrap();
        let inboxes = Arc::new(Inboxes::new(1).unwrap());
        let worker = Worker::new(Start {
            number: 0,
            clock: Clock::start(),
            inboxes: Arc::clone(&inboxes),
            spread: Arc::new(Spread::new(1, 1)),
            open: Arc::default(),
            tuning: Tuning::default(),
            log: None,
        });
        Self { worker: worker.unwrap(), inboxes, listener, _backend: backend }
    }

    fn inbox(&self) -> &Inbox {
        &self.inboxes.each()[0]
    }

    fn shared(&self, id: u32) -> Arc<Shared> {
        let inboxes = Arc::clone(&self.inboxes);
        let pool = Pool::new(&self.listener, 1, 0);
        Arc::new(Shared::new(id, &format!("test{id}"), pool, inboxes, Arc::new(Bell::new().unwrap())))
    }

    fn serve(&mut self, shared: &Arc<Shared>, adopt: &[SocketAddr], sockets: Vec<(SocketAddr, OwnedFd)>) {
        self.inbox().send(Command::Serve {
            shared: Arc::clone(shared),
            settings: Arc::new(Settings::new(&self.listener).unwrap()),
            keep: Vec::new(),
            adopt: adopt.to_vec(),
            sockets,
            done: mpsc::channel().0,
        });
    }
}

fn loopback() -> TcpListener {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A listening socket, and clients that wait at it.
fn waited_at(count: usize) -> (SocketAddr, OwnedFd, Vec<TcpStream>) {
    let socket = loopback();
    let address = socket.local_addr().unwrap();
    let clients = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    (address, socket.into(), clients)
}

#[test]
fn what_a_client_has_said_outlives_every_backend_that_fails_before_it_hears_it() {
    let mut lone = Lone::new();
    let shared = lone.shared(0);
    lone.serve(&shared, &[], Vec::new());
    let (address, socket, _clients) = waited_at(1);
    lone.serve(&shared, &[], vec![(address, socket)]);
    lone.worker.on_inbox();
    let worker = &mut lone.worker;
    let (peer, socket) = (address, OwnedFd::from(loopback()));
    let mut link = Link::new(socket, peer, 0, worker.now);
    // Read from the client, and not taken by the first backend.
    worker.mover.put_first(&mut link.held[CLIENT], b"hello");
    let key = worker.links.insert(link);
    for sent in [0, 7] {
        let waiter = Waiter { thread: 0, key };
        let Choice::To(id, _) = shared.choose(worker.now, peer.ip(), waiter, 0) else { panic!("no backend") };
        let link = worker.links.get_mut(key).unwrap();
        (link.backend, link.phase) = (Some(id), Phase::Open);
        worker.announce(key);
        // The backend is lost with a part of its preface sent, or none.
        let link = worker.links.get_mut(key).unwrap();
        link.moved[CLIENT] = sent;
        worker.mover.drop_first(&mut link.held[CLIENT], sent as usize);
        assert!(worker.give_up(key, Errno::CONNRESET).is_some());
        let link = worker.links.get_mut(key).unwrap();
        let Held::Bytes { buffer, start, end } = &link.held[CLIENT] else { panic!("{link:?}") };
        assert_eq!(&buffer[*start..*end], b"hello");
    }
}

#[test]
fn a_socket_that_is_closed_leaves_nobody_behind_who_waited_at_it() {
    let mut lone = Lone::new();
    let shared = lone.shared(0);
    let (address, socket, _clients) = waited_at(100);
    lone.serve(&shared, &[], vec![(address, socket)]);
    lone.serve(&shared, &[], Vec::new());
    lone.worker.on_inbox();
    assert_eq!(lone.worker.links.len(), 100);
}

#[test]
fn a_socket_changes_its_listener_with_all_who_wait_at_it() {
    let mut lone = Lone::new();
    let (old, new) = (lone.shared(0), lone.shared(1));
    let (address, socket, _clients) = waited_at(5);
    lone.serve(&old, &[], vec![(address, socket)]);
    lone.inbox().send(Command::SetAside { listener: 0, addresses: vec![address] });
    lone.serve(&new, &[address], Vec::new());
    lone.serve(&old, &[], Vec::new());
    lone.worker.on_inbox();
    assert_eq!(lone.worker.links.len(), 0, "the old one took nobody");
    assert!(lone.worker.listeners[0].is_none(), "a listener without sockets and connections is forgotten");
    assert_eq!(lone.worker.accept(1, 0), Ok(false));
    assert!(lone.worker.links.iter().all(|(_, link)| link.listener == 1));
    assert_eq!(lone.worker.links.len(), 5);
}

#[test]
fn a_place_of_one_that_has_gone_is_the_next_ones() {
    let mut lone = Lone::new();
    lone.listener.max_connections = 1;
    let shared = lone.shared(0);
    let (address, socket, _) = waited_at(0);
    lone.serve(&shared, &[], vec![(address, socket)]);
    lone.worker.on_inbox();
    let client = Ipv4Addr::LOCALHOST.into();
    let waiter = |index| Waiter { thread: 0, key: Key { index, generation: 1 } };
    let choose = |index| shared.choose(0, client, waiter(index), 9);
    let Choice::To(id, _) = choose(0) else { panic!("there is room for one") };
    assert_eq!([choose(1), choose(2)], [Choice::Wait; 2]);
    shared.closed(id, 0);
    // Nothing in the thread has the number of the first of them.
    lone.worker.on_inbox();
    let told = lone.inbox().take();
    assert!(matches!(told[..], [Command::Room { key, .. }] if key == waiter(2).key), "{told:?}");
    assert_eq!(choose(3), Choice::Wait);
}

#[test]
fn connections_leave_some_descriptors_to_others() {
    let mut lone = Lone::new();
    let shared = lone.shared(0);
    let (address, socket, _clients) = waited_at(1);
    lone.serve(&shared, &[], vec![(address, socket)]);
    lone.worker.on_inbox();
    lone.worker.mover.descriptors = 0;
    assert_eq!(lone.worker.accept(0, 0), Err(Errno::MFILE));
    assert_eq!(lone.worker.links.len(), 0);
    assert_eq!((shared.totals().accepted, shared.totals().no_room), (1, 1));
}

/// In a process of its own, which ends.
#[test]
fn a_thread_that_fails_takes_the_process_along() {
    const INSIDE: &str = "BUTLER_LB_TEST_FAILED_THREAD";
    if std::env::var_os(INSIDE).is_some() {
        let thread = std::thread::spawn(|| {
            let _guard = super::balancer::Irreplaceable("lb-0".to_owned());
            panic!("as a thread of the balancer could");
        });
        let _ = thread.join();
        return;
    }
    let test = "forward::tests::a_thread_that_fails_takes_the_process_along";
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let again = again.args(["--exact", test]).env(INSIDE, "1").output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&again.status), Some(libc::SIGABRT));
}

#[test]
fn a_reload_after_a_stop_is_refused_and_waits_for_nobody() {
    let config = |text: &str| serde_json::from_str::<Config>(text).unwrap();
    let handle = LoadBalancer::start(&config("{}"), Options::default()).unwrap();
    handle.stop(std::time::Duration::ZERO);
    let listener = config(r#"{"listeners": [{"name": "test", "bind": ["127.0.0.1:0"], "backends": []}]}"#);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let handle = &handle;
        scope.spawn(move || tell.send(handle.reload(&listener)));
        let answer = told.recv_timeout(std::time::Duration::from_secs(20));
        let Ok(answer) = answer else {
            // Else the thread would be waited for, and for ever.
            std::process::abort();
        };
        assert!(matches!(answer, Err(StartError::Stopping)), "{answer:?}");
    });
}

#[test]
fn whether_a_listener_is_ready_is_known_while_a_reload_is_under_way() {
    let config: Config = serde_json::from_str("{}").unwrap();
    let handle = LoadBalancer::start(&config, Options::default()).unwrap();
    // As a reload has it for as long as it takes.
    let _reload = handle.state.lock();
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let handle = &handle;
        scope.spawn(move || tell.send(handle.is_ready("test")));
        let answer = told.recv_timeout(std::time::Duration::from_secs(20));
        if answer.is_err() {
            // Else the thread would be waited for, and for ever.
            std::process::abort();
        }
        assert_eq!(answer, Ok(false));
    });
}
