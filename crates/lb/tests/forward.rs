//! Bytes through the balancer, on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use butler_lb::forward::{Handle, LoadBalancer, Options, Tuning};
use support::*;

/// Sends `count` bytes with a pattern, half-closes, and checks that the same comes back.
fn round_trip(mut stream: TcpStream, count: usize) {
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        let chunk: Vec<u8> = (0..=250).cycle().take(251 * 400).collect();
        let mut left = count;
        while left > 0 {
            let now = left.min(chunk.len());
            writer.write_all(&chunk[..now]).unwrap();
            left -= now;
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::with_capacity(count);
    stream.read_to_end(&mut got).unwrap();
    sender.join().unwrap();
    assert_eq!(got.len(), count);
    // The chunk is a whole number of patterns, so that the pattern never breaks.
    assert!(got.iter().zip((0..=250_u8).cycle()).all(|(is, should)| *is == should));
}

#[test]
fn what_is_said_comes_back_whole_and_ends_are_passed_on() {
    let server = Server::echo();
    let (_handle, address) = start(listener(&[server.address]));
    for count in [0, 1, 1000, 65_536, 65_537, 3_000_000] {
        round_trip(connect(address), count);
    }
}

#[test]
fn spliced_bytes_are_the_same_bytes() {
    let server = Server::echo();
    let tuning = Tuning { buffer: 4096, splice_after: Some(1), pipe: 64 << 10, ..Tuning::default() };
    let (_handle, address) =
        start_with(listener(&[server.address]), Options { tuning, ..Options::default() });
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || round_trip(connect(address), 8_000_000))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_slow_reader_gets_everything() {
    let server = Server::start(|mut stream| {
        let _ = stream.write_all(&vec![7; 20_000_000]);
    });
    let (_handle, address) = start(listener(&[server.address]));
    let mut stream = connect(address);
    // The server is done or blocked by the time that anything is read.
    std::thread::sleep(Duration::from_millis(100));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 20_000_000);
    assert!(got.iter().all(|byte| *byte == 7));
}

#[test]
fn a_client_that_has_said_its_last_word_still_hears_the_answer() {
    let server = Server::start(|mut stream| {
        let mut question = String::new();
        stream.read_to_string(&mut question).unwrap();
        write!(stream, "you said {question}").unwrap();
    });
    let (_handle, address) = start(listener(&[server.address]));
    let mut stream = connect(address);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hear(&mut stream).unwrap(), "you said hello");
}

#[test]
fn a_server_that_has_said_its_last_word_still_hears_the_client() {
    let (heard, hearing) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        heard.send(text).unwrap();
    });
    let (_handle, address) = start(listener(&[server.address]));
    let mut stream = connect(address);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    stream.write_all(b"still here").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(hearing.recv_timeout(LONG).unwrap(), "still here");
}

#[test]
fn connections_are_spread_and_a_dead_backend_fails_none() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let (handle, address) = start(listener(&servers.each_ref().map(|server| server.address)));
    healthy(&handle, "3 of 3 members healthy");
    let mut shares = BTreeMap::new();
    for _ in 0..30 {
        *shares.entry(ask(address).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(shares, BTreeMap::from([("a".into(), 10), ("b".into(), 10), ("c".into(), 10)]));
    let [a, b, c] = servers;
    drop(b);
    for _ in 0..60 {
        let name = ask(address).unwrap();
        assert!(["a", "c"].contains(&name.as_str()), "{name:?}");
    }
    drop((a, c));
    handle.stop(Duration::ZERO);
}

#[test]
fn when_no_backend_is_there_clients_are_told_at_once() {
    let gone = [nobody(), nobody()];
    let (_handle, address) = start(listener(&gone.each_ref().map(|gone| gone.address)));
    let mut stream = connect(address);
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_backend_that_is_silent_is_left_for_another_in_time() {
    // An address of a documentation network: no route, or nobody answers. Either way the other one serves.
    let server = Server::named("here");
    let mut listener = listener(&["192.0.2.1:9".parse().unwrap(), server.address]);
    listener.timeouts.connect_ms = 50;
    let (_handle, address) = start(listener);
    for _ in 0..4 {
        assert_eq!(ask(address).unwrap(), "here");
    }
}

#[test]
fn ipv6_clients_reach_ipv4_backends() {
    let server = Server::named("four");
    let mut listener = listener(&[server.address]);
    listener.bind = vec!["[::1]:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()];
    let (handle, address) = start(listener);
    assert!(address.is_ipv6());
    for address in handle.addresses("test") {
        assert_eq!(ask(address).unwrap(), "four");
    }
}

#[test]
fn an_address_that_is_not_here_yet_is_bound_all_the_same() {
    let server = Server::named("x");
    let mut listener = listener(&[server.address]);
    listener.bind = vec!["192.0.2.77:0".parse().unwrap(), "[2001:db8::77]:0".parse().unwrap()];
    let (handle, _) = start(listener);
    assert_eq!(handle.addresses("test").len(), 2);
}

#[test]
fn who_is_not_allowed_is_cut_off() {
    let server = Server::named("x");
    let mut listener = listener(&[server.address]);
    listener.allow = vec!["10.0.0.0/8".into(), "::/0".into()];
    let (_handle, address) = start(listener.clone());
    assert_eq!(ask(address).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.served(), 0);
    listener.allow.push("127.0.0.0/8".into());
    let (_handle, address) = start(listener);
    assert_eq!(ask(address).unwrap(), "x");
}

#[test]
fn a_quiet_connection_is_ended() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.timeouts.idle = 1;
    let (_handle, address) = start(listener);
    let mut stream = connect(address);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn over_the_limit_clients_wait_for_room() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.max_connections = 1;
    listener.queue.length = 1;
    listener.queue.timeout_ms = 60_000;
    let (handle, address) = start(listener);
    let mut first = connect(address);
    first.write_all(b"1").unwrap();
    first.read_exact(&mut [0; 1]).unwrap();
    let mut second = connect(address);
    second.write_all(b"2").unwrap();
    until("the second waits", || handle.connections() == 2);
    // The queue is full.
    let mut third = connect(address);
    assert_eq!(third.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.served(), 1);
    drop(first);
    let mut answer = [0; 1];
    second.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"2");
}

#[test]
fn a_client_that_goes_away_gives_its_place_in_the_queue_up() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.max_connections = 1;
    listener.queue.timeout_ms = 60_000;
    let (handle, address) = start(listener);
    let mut first = connect(address);
    first.write_all(b"1").unwrap();
    first.read_exact(&mut [0; 1]).unwrap();
    let second = connect(address);
    let waiting = |handle: &Handle| handle.status().listeners[0].waiting;
    until("the second waits", || waiting(&handle) == 1);
    rustix::net::sockopt::set_socket_linger(&second, Some(Duration::ZERO)).unwrap();
    drop(second);
    until("nobody waits", || waiting(&handle) == 0);
}

#[test]
fn waiting_ends_in_time() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.max_connections = 1;
    listener.queue.timeout_ms = 20;
    let (_handle, address) = start(listener);
    let mut first = connect(address);
    first.write_all(b"1").unwrap();
    first.read_exact(&mut [0; 1]).unwrap();
    let mut second = connect(address);
    let since = Instant::now();
    assert_eq!(second.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // A backend might take two seconds to be reached; a client waits no longer than it was told.
    assert!(since.elapsed() < Duration::from_millis(1500), "{:?}", since.elapsed());
}

#[test]
fn bulk_streams_of_one_thread_all_get_their_share() {
    let server = Server::start(|mut stream| {
        let chunk = vec![0; 1 << 20];
        while stream.write_all(&chunk).is_ok() {}
    });
    let mut config = config(listener(&[server.address]));
    config.threads = Some(1);
    // Small reads, so that the balancer is the slowest part and every stream has always more.
    let tuning = Tuning { buffer: 2048, splice_after: None, ..Tuning::default() };
    let handle = LoadBalancer::start(&config, Options { tuning, ..Options::default() }).unwrap();
    let address = handle.addresses("test")[0];
    let totals = [const { AtomicU64::new(0) }; 5];
    let shares = || totals.each_ref().map(|total| total.load(Ordering::Relaxed) >> 20);
    // Some are slower than others by what else the machine does, but none stands still.
    let (enough, too_much) = (32, 800);
    let go_on = || {
        let shares = shares();
        shares.iter().any(|mebibytes| *mebibytes < enough)
            && shares.iter().all(|mebibytes| *mebibytes < too_much)
    };
    std::thread::scope(|scope| {
        for total in &totals {
            let (mut stream, go_on) = (connect(address), &go_on);
            scope.spawn(move || {
                let mut buffer = vec![0; 256 << 10];
                while go_on() {
                    total.fetch_add(stream.read(&mut buffer).unwrap() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(shares().iter().all(|mebibytes| *mebibytes >= enough), "{:?} MiB", shares());
}

#[test]
fn a_client_that_dies_after_its_last_word_takes_its_backends_connection_along() {
    let (tell, told) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        let mut question = String::new();
        stream.read_to_string(&mut question).unwrap();
        tell.send(stream).unwrap();
    });
    let (handle, address) = start(listener(&[server.address]));
    let mut stream = connect(address);
    stream.write_all(b"question").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // The backend has heard everything and thinks; the client is gone before it has an answer.
    let backend = told.recv_timeout(LONG).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    until("the connection is gone", || handle.connections() == 0);
    drop(backend);
}

#[test]
fn a_cut_is_passed_on() {
    let (tell, told) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        for _ in 0..2 {
            tell.send(stream.read(&mut [0; 1]).map_err(|error| error.kind())).unwrap();
        }
    });
    let (_handle, address) = start(listener(&[server.address]));
    let stream = connect(address);
    (&stream).write_all(b"x").unwrap();
    // A cut takes with it what was not read.
    assert_eq!(told.recv_timeout(LONG).unwrap(), Ok(1));
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    assert_eq!(told.recv_timeout(LONG).unwrap(), Err(ErrorKind::ConnectionReset));
}

/// A backend that says so much and is cut off when it is told to.
fn half_an_answer(size: usize) -> (Server, mpsc::Sender<()>) {
    let (cut, told) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let server = Server::start(move |mut stream| {
        stream.write_all(&vec![7; size]).unwrap();
        told.lock().unwrap().recv_timeout(LONG).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    (server, cut)
}

/// Everything that comes, and how it ends.
fn to_the_end(stream: &mut TcpStream) -> (usize, Result<(), ErrorKind>) {
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).map(drop).map_err(|error| error.kind());
    (answer.len(), end)
}

#[test]
fn an_answer_that_is_cut_off_does_not_look_whole() {
    let (server, cut) = half_an_answer(1000);
    let (handle, address) = start(listener(&[server.address]));
    for round in 1..=20 {
        let mut stream = connect(address);
        let passed_on = || handle.status().listeners[0].totals.from_backends == 1000 * round;
        until("it was passed on", passed_on);
        cut.send(()).unwrap();
        assert_eq!(to_the_end(&mut stream), (1000, Err(ErrorKind::ConnectionReset)));
    }
}

/// A client whose kernel takes next to nothing before it is asked for it.
fn connect_with_little_room(address: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&client, 1).unwrap();
    connect(&client, &address).unwrap();
    let stream = TcpStream::from(client);
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

#[test]
fn an_answer_that_is_cut_off_still_reaches_a_client_that_reads_late() {
    // More than the client's kernel takes before it is asked for it, and little enough to wait in ours.
    let (server, cut) = half_an_answer(12_000);
    let (handle, address) = start(listener(&[server.address]));
    let mut stream = connect_with_little_room(address);
    let totals = || handle.status().listeners[0].totals;
    until("it was passed on", || totals().from_backends == 12_000);
    cut.send(()).unwrap();
    until("the cut was seen", || totals().reset == 1);
    assert_eq!(to_the_end(&mut stream), (12_000, Err(ErrorKind::ConnectionReset)));
    until("nothing is left", || handle.connections() == 0);
}

/// Bytes of a connection that the other side's kernel does not have.
fn not_arrived(stream: &TcpStream) -> usize {
    let (SocketAddr::V4(near), SocketAddr::V4(far)) =
        (stream.local_addr().unwrap(), stream.peer_addr().unwrap())
    else {
        panic!("an IPv4 connection is expected");
    };
    let ports =
        [near, far].map(|at| format!("{:08X}:{:04X}", u32::from_le_bytes(at.ip().octets()), at.port()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().find(|line| line.contains(&ports.join(" "))).unwrap();
    let queues = line.split_ascii_whitespace().nth(4).unwrap();
    usize::from_str_radix(queues.split_once(':').unwrap().0, 16).unwrap()
}

#[test]
fn an_upload_that_is_refused_costs_a_slow_client_nothing_of_the_answer() {
    let (tell, told) = mpsc::channel();
    // Says as much as there is room for on the way, and is cut off.
    let server = Server::start(move |mut stream| {
        stream.set_nonblocking(true).unwrap();
        let (mut said, mut quiet) = (0, 0);
        while quiet < 30 && said < 64 << 20 {
            quiet = match stream.write(&[7; 65_536]) {
                Ok(count) => (said += count, 0).1,
                Err(_) => (std::thread::sleep(Duration::from_millis(10)), quiet + 1).1,
            };
        }
        let arrived = said - not_arrived(&stream);
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        tell.send(arrived).unwrap();
    });
    let (handle, address) = start(listener(&[server.address]));
    let mut stream = connect_with_little_room(address);
    let arrived = told.recv_timeout(LONG).unwrap();
    let passed_on = || handle.status().listeners[0].totals.from_backends as usize;
    assert!(passed_on() < arrived, "{arrived} bytes: the client's side was never full");
    // The balancer finds out when it passes this on.
    stream.write_all(b"more").unwrap();
    let heard = to_the_end(&mut stream);
    assert_eq!(heard, (arrived, Err(ErrorKind::ConnectionReset)));
    until("nothing is left", || handle.connections() == 0);
}

#[test]
fn a_client_that_never_reads_is_not_waited_for_when_it_has_gone() {
    let (server, cut) = half_an_answer(12_000);
    let (handle, address) = start(listener(&[server.address]));
    let stream = connect(address);
    until("it was passed on", || handle.status().listeners[0].totals.from_backends == 12_000);
    cut.send(()).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    until("nothing is left", || handle.connections() == 0);
}

#[test]
fn a_backend_that_dies_under_load_fails_no_new_connection() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let (handle, address) = start(listener(&servers.each_ref().map(|server| server.address)));
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut heard = 0;
                while !over.load(Ordering::SeqCst) {
                    let name = ask(address).unwrap();
                    assert_eq!(name.len(), 1, "{name:?}");
                    heard += 1;
                }
                heard
            })
        })
        .collect();
    let accepted = |handle: &Handle| handle.status().listeners[0].totals.accepted;
    until("there is load", || accepted(&handle) > 200);
    let [a, b, c] = servers;
    drop(b);
    let so_far = accepted(&handle);
    until("there is load after it has died", || accepted(&handle) > so_far + 500);
    over.store(true, Ordering::SeqCst);
    let heard: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(heard > 700, "{heard}");
    assert_eq!(handle.status().listeners[0].totals.no_backend, 0);
    drop((a, c));
}

/// A client that says something, hears it back, and ends in one of several ways.
fn behave(address: SocketAddr, seed: u64) {
    let mut random = butler_lb::core::Random::new(seed);
    let mut stream = connect(address);
    let size = random.below(200_000) as usize;
    let text: Vec<u8> = (0..size).map(|place| (place as u64 ^ seed) as u8).collect();
    match random.below(5) {
        0 => {
            // Cuts the connection in the middle of it.
            stream.write_all(&text[..size / 2]).unwrap();
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
        1 => {
            // Goes without a word, with answers on their way.
            let _ = stream.write_all(&text[..size.min(20_000)]);
        }
        _ => {
            let mut writer = stream.try_clone().unwrap();
            let sent = text.clone();
            let sender = std::thread::spawn(move || {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).unwrap();
            sender.join().unwrap();
            assert!(heard == text, "seed {seed}: {} of {} bytes", heard.len(), text.len());
        }
    }
}

#[test]
fn whatever_clients_do_nothing_is_mixed_up_and_nothing_stays_behind() {
    let servers = [Server::echo(), Server::echo()];
    let mut listener = listener(&servers.each_ref().map(|server| server.address));
    listener.max_connections = 20;
    let tuning = Tuning { buffer: 8192, splice_after: Some(1), pipe: 32 << 10, ..Tuning::default() };
    let (handle, address) = start_with(listener, Options { tuning, ..Options::default() });
    let clients: Vec<_> = (0..8)
        .map(|client| {
            std::thread::spawn(move || (0..40).for_each(|turn| behave(address, client * 1000 + turn)))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    until("all are gone", || handle.connections() == 0);
    let report = handle.status().listeners.remove(0);
    assert_eq!(report.totals.accepted, 320);
    assert_eq!((report.connections, report.waiting), (0, 0));
    assert!(report.backends.iter().all(|backend| backend.connections == 0), "{report:?}");
}

#[test]
fn first_words_reach_the_backend_that_is_there() {
    // Connections are refused by one and not answered by another before the third gets what the client has said.
    let (refuses, server) = (nobody(), Server::echo());
    let mut listener = listener(&[refuses.address, "192.0.2.1:9".parse().unwrap(), server.address]);
    (listener.timeouts.connect_ms, listener.health.passive) = (50, 0);
    let (_handle, address) = start(listener);
    for count in [1, 300, 16 << 10, 40_000] {
        for _ in 0..3 {
            round_trip(connect(address), count);
        }
    }
}

#[test]
fn small_pieces_are_not_kept_back() {
    let (sender, pieces) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        let mut piece = [0; 1000];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            // Who answers what it is asked has its kernel acknowledge late, so that both travel together.
            if piece[0] == b'?' {
                stream.write_all(b"!").unwrap();
            } else {
                sender.send((std::time::Instant::now(), count)).unwrap();
            }
        }
    });
    let (_handle, address) = start(listener(&[server.address]));
    // On a busy machine one of several tries is enough.
    let prompt = (0..5).any(|_| {
        let mut stream = connect(address);
        stream.set_nodelay(true).unwrap();
        for _ in 0..10 {
            stream.write_all(b"?").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        let mut sent = Vec::new();
        for _ in 0..10 {
            stream.write_all(b"piece").unwrap();
            sent.push(std::time::Instant::now());
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(stream);
        let (mut bytes, mut late) = (0, Duration::ZERO);
        while bytes < 50 {
            let (at, count) = pieces.recv_timeout(LONG).unwrap();
            late = late.max(at.saturating_duration_since(sent[bytes / 5]));
            bytes += count;
        }
        late < Duration::from_millis(15)
    });
    assert!(prompt);
}

#[test]
fn what_follows_urgent_bytes_is_not_lost_with_the_end() {
    let server = Server::start(|mut stream| {
        use rustix::net::{SendFlags, send};
        // Urgent bytes are for those who ask for them; the rest is for everyone.
        stream.write_all(b"before ").unwrap();
        send(&stream, b"!", SendFlags::OOB).unwrap();
        stream.write_all(b"after").unwrap();
    });
    let (_handle, address) = start(listener(&[server.address]));
    for _ in 0..50 {
        assert_eq!(hear(&mut connect(address)).unwrap(), "before after");
    }
}

#[test]
fn streams_without_end_get_equal_turns() {
    let server = Server::start(|mut stream| while stream.write_all(&[7; 256 << 10]).is_ok() {});
    let mut config = config(listener(&[server.address]));
    config.threads = Some(1);
    let handle = LoadBalancer::start(&config, Options::default()).unwrap();
    let address = handle.addresses("test")[0];
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (over, mut stream) = (Arc::clone(&over), connect(address));
            std::thread::spawn(move || {
                let (mut buffer, mut count) = (vec![0; 1 << 20], 0);
                while !over.load(Ordering::Relaxed) {
                    count += stream.read(&mut buffer).unwrap();
                }
                count
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1000));
    over.store(true, Ordering::Relaxed);
    let counts: Vec<usize> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    let even = counts.iter().sum::<usize>() / counts.len();
    assert!(counts.iter().all(|count| *count > even / 5), "{counts:?}");
}
