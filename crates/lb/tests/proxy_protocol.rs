//! PROXY headers through the balancer, in and out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr},
};

use butler_lb::{
    config::ProxyProtocol,
    core::proxy::{Header, Parsed, encode_v1, encode_v2, parse},
};
use support::*;

fn proxied(source: &str, destination: &str) -> Header {
    Header::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

/// Sends bytes, and reads back what the backend has got.
fn through(address: SocketAddr, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    (stream.local_addr().unwrap(), got)
}

#[test]
fn backends_are_told_who_the_client_is() {
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        // The first backend is not there, so that the header has to be made twice.
        let (gone, server) = (nobody(), Server::echo());
        let mut listener = listener(&[gone.address, server.address]);
        listener.send_proxy = version;
        let (_handle, address) = start(listener);
        for _ in 0..4 {
            let (client, got) = through(address, b"hello");
            let header = Header::Proxied { source: client, destination: address };
            let mut expected =
                if version == ProxyProtocol::V1 { encode_v1(&header) } else { encode_v2(&header) };
            expected.extend_from_slice(b"hello");
            assert_eq!(got, expected, "{version:?}");
        }
    }
}

#[test]
fn a_header_is_taken_off_and_passed_on_in_the_other_version() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.accept_proxy = true;
    listener.send_proxy = ProxyProtocol::V2;
    let (_handle, address) = start(listener);
    for header in [proxied("192.0.2.1:1234", "192.0.2.2:6443"), proxied("[2001:db8::1]:1", "[2001:db8::2]:2")]
    {
        for encoded in [encode_v1(&header), encode_v2(&header)] {
            let (_, got) = through(address, &[encoded, b"payload".to_vec()].concat());
            let Ok(Parsed::Complete(is, length)) = parse(&got) else { panic!("no header: {got:?}") };
            assert_eq!(is, header);
            assert_eq!(&got[length..], b"payload");
        }
    }
}

#[test]
fn a_header_may_come_in_pieces() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.accept_proxy = true;
    let (_handle, address) = start(listener);
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    for byte in [encode_v1(&proxied("192.0.2.1:1234", "192.0.2.2:6443")), b"x".to_vec()].concat() {
        stream.write_all(&[byte]).unwrap();
        std::thread::yield_now();
    }
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"x");
}

#[test]
fn who_is_named_by_a_header_must_be_allowed_too() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.accept_proxy = true;
    listener.allow = vec!["127.0.0.0/8".into(), "192.0.2.0/24".into()];
    let (handle, address) = start(listener);
    let say = |source: &str| {
        let mut stream = connect(address);
        let header = encode_v1(&proxied(source, "198.51.100.1:6443"));
        stream.write_all(&[header, b"x".to_vec()].concat()).unwrap();
        stream.read_exact(&mut [0; 1]).map_err(|error| error.kind())
    };
    assert_eq!(say("192.0.2.1:1234"), Ok(()));
    assert_eq!(say("203.0.113.1:1234"), Err(ErrorKind::ConnectionReset));
    assert_eq!(handle.status().listeners[0].totals.not_allowed, 1);
    assert_eq!(server.served(), 1);
}

#[test]
fn without_a_header_clients_are_cut_off() {
    let server = Server::echo();
    let mut listener = listener(&[server.address]);
    listener.accept_proxy = true;
    listener.timeouts.connect_ms = 50;
    let (handle, address) = start(listener);
    let mut wrong = connect(address);
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(wrong.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut silent = connect(address);
    assert_eq!(silent.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(handle.status().listeners[0].totals.bad_header, 2);
    assert_eq!(server.served(), 0);
}
