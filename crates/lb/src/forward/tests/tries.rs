//! Backends that are left for another one, with a thread's work done by hand.

use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::net::{self, AddressFamily, SocketType, sockopt};

use super::{
    super::link::{BACKEND, Phase},
    handover::{Pair, read},
    loopback,
};

/// Far more turns of a millisecond than anything here needs.
const MANY: usize = 20_000;

/// A machine that does not answer: all places in its queue are taken, and nobody is ever served.
struct Silent {
    _socket: OwnedFd,
    address: SocketAddr,
    _waiting: Vec<TcpStream>,
}

impl Silent {
    fn new() -> Self {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        net::listen(&socket, 0).unwrap();
        let address = SocketAddr::try_from(net::getsockname(&socket).unwrap()).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            waiting.push(stream);
            assert!(waiting.len() < 64, "its queue has no end");
        }
        Self { _socket: socket, address, _waiting: waiting }
    }
}

#[test]
fn each_of_several_silent_backends_has_its_time_and_who_is_reached_then_is_watched_like_any_other() {
    let silent = [Silent::new(), Silent::new()];
    let good = loopback();
    let at = good.local_addr().unwrap();
    let mut pair = Pair::before(good, &[silent[0].address, silent[1].address, at], 50);
    // Wherever round robin begins, one of them meets both first.
    for _ in 0..3 {
        let (client, backend) = pair.connect();
        let worker = &mut pair.workers[0];
        let key = worker.links.iter().map(|(key, _)| key).next().unwrap();
        assert_eq!(worker.links.get_mut(key).unwrap().phase, Phase::Open);
        let kept = (0..MANY).find(|_| {
            pair.turn();
            pair.workers[0].links.get_mut(key).unwrap().kept_alive
        });
        assert!(kept.is_some(), "nothing would ever end it");
        let worker = &mut pair.workers[0];
        let end = worker.links.get_mut(key).unwrap().ends[BACKEND].fd().unwrap();
        assert!(sockopt::socket_keepalive(end).unwrap());
        assert!(worker.wheel.next().is_some(), "its idle time is reckoned");
        drop((client, backend));
        let gone = (0..MANY).find(|_| {
            pair.turn();
            pair.workers[0].links.len() == 0
        });
        assert!(gone.is_some());
    }
    assert!(pair.shared.totals().retried >= 2, "{}", pair.shared.totals().retried);
}

#[test]
fn what_is_told_of_a_backend_that_was_just_left_is_not_held_against_the_next() {
    let servers = [loopback(), loopback()];
    let addresses = servers.each_ref().map(|server| server.local_addr().unwrap());
    let mut pair = Pair::before(loopback(), &addresses, 2_000);
    let accept = |pair: &mut Pair| {
        for _ in 0..MANY {
            pair.turn();
            for (number, server) in servers.iter().enumerate() {
                match server.accept() {
                    Ok((stream, _)) => return (number, stream),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
                }
            }
        }
        panic!("nobody comes");
    };
    let mut client = TcpStream::connect(pair.at).unwrap();
    let (first, stream) = accept(&mut pair);
    let until_open = (0..MANY).find(|_| {
        pair.turn();
        pair.workers[0].links.iter().any(|(_, link)| link.phase == Phase::Open)
    });
    assert!(until_open.is_some());
    // Both are known to the thread at once: the client's word first, then that its backend is gone.
    client.write_all(b"hello").unwrap();
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    let (second, mut stream) = accept(&mut pair);
    assert_ne!(first, second);
    stream.set_nonblocking(true).unwrap();
    let heard = (0..MANY).find_map(|_| {
        pair.turn();
        Some(read(&stream)).filter(|heard| !heard.is_empty())
    });
    assert_eq!(heard.as_deref(), Some(&b"hello"[..]));
    let (_, link) = pair.workers[0].links.iter().next().unwrap();
    assert_eq!((link.ends[BACKEND].hung, link.ends[BACKEND].lost), (false, false));
    assert_eq!(pair.shared.totals().retried, 1, "the second was reached at the first try");
    client.set_nonblocking(true).unwrap();
    stream.write_all(b"you too").unwrap();
    let answer = (0..MANY).find_map(|_| {
        pair.turn();
        Some(read(&client)).filter(|heard| !heard.is_empty())
    });
    assert_eq!(answer.as_deref(), Some(&b"you too"[..]));
}
