//! What peers say to each other: signed messages and the datagrams of connections; and files of keys.

use crate::feed::Feed;
use aws_lc_rs::hmac;
use butler_lb::core::SECOND;
use butler_lb::core::auth::{Keys, Refused, Signer, Verifier};
use butler_lb::vip::fuzzing::{decode_connections, encode_connections, read_status, read_table, read_url};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const KEYS: &str = "1 b2xkIGtleSBvZiBzaXh0ZWVuIGJ5dGVz\n2 bmV3IGtleSBvZiBzaXh0ZWVuIGJ5dGVz";
const SECRETS: [(u32, &[u8]); 2] = [(1, b"old key of sixteen bytes"), (2, b"new key of sixteen bytes")];
const STRANGER: &str = "1 c3RyYW5nZXIncyBrZXkgb2YgYnl0ZXM=";
const NOW: u64 = 1_700_000_000 * SECOND;
/// How far clocks may be apart.
const TOLERANCE: u64 = 120 * SECOND;
const TRAILER: usize = 56;
/// Below what a receiver remembers of one sender.
const MOST_SET_BACKS: u32 = 40;

/// The first byte chooses what the rest is.
pub fn signed(data: &[u8]) {
    let mut feed = Feed::new(data);
    match feed.byte() % 8 {
        0 => datagram(feed.rest()),
        1 => mended_datagram(&mut feed),
        2 => key_file(feed.rest()),
        3 => answers(feed.rest()),
        4 => stranger(feed.rest()),
        5 => trailers(&mut feed),
        _ => conversation(&mut feed),
    }
}

fn datagram(bytes: &[u8]) {
    let Some((router_id, entries)) = decode_connections(bytes) else { return };
    assert_eq!(encode_connections(router_id, &entries), bytes, "one way to say a thing");
}

/// Entries with a right header and a right count.
fn mended_datagram(feed: &mut Feed<'_>) {
    let (router_id, cut, mut body) = (feed.byte(), feed.byte(), Vec::new());
    let mut count = 0u16;
    while !feed.is_empty() {
        let v6 = feed.flag();
        body.extend([feed.byte() & 1, if v6 { 6 } else { 4 }]);
        let mut ends = feed.take(if v6 { 36 } else { 12 }).to_vec();
        ends.resize(if v6 { 36 } else { 12 }, 0);
        body.extend(ends);
        count += 1;
    }
    let mut bytes = [&b"BLBC\x01"[..], &[router_id], &count.to_be_bytes(), &body].concat();
    let (read, entries) = decode_connections(&bytes).expect("it is right");
    assert_eq!((read, entries.len()), (router_id, usize::from(count)));
    datagram(&bytes);
    // Neither shorter nor longer.
    bytes.truncate(bytes.len() - 1 - usize::from(cut) % bytes.len());
    assert_eq!(decode_connections(&bytes), None);
}

fn key_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(keys) = Keys::parse(text) else { return };
    let again = Keys::parse(text).expect("it was read before");
    let bytes = Signer::new(keys).sign(b"advert", peer(0), NOW);
    assert_eq!(Verifier::new(again).open(&bytes, peer(0), NOW), Ok(&b"advert"[..]));
}

/// What API servers, operators and the kernel say.
fn answers(bytes: &[u8]) {
    let _ = read_status(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some((host, _, path)) = read_url(text) {
        assert!(!host.is_empty() && (path.starts_with('/')));
    }
    let services = [IpAddr::from([10, 0, 0, 9])];
    assert!(read_table(text, &services).iter().all(|(_, service)| services.contains(&service.ip())));
}

/// Who has no key is not believed, whatever he says.
fn stranger(bytes: &[u8]) {
    let mut verifier = Verifier::new(keys(KEYS));
    assert!(verifier.open(bytes, peer(0), NOW).is_err());
    let signed = Signer::new(keys(STRANGER)).sign(bytes, peer(0), NOW);
    assert_eq!(verifier.open(&signed, peer(0), NOW), Err(Refused::Signature));
}

/// Trailers with a right signature and any epoch and stamp: nothing is taken twice, and only near our clock.
fn trailers(feed: &mut Feed<'_>) {
    let mut verifier = Verifier::new(keys(KEYS));
    let mut taken = BTreeSet::new();
    let mut wall = NOW;
    let mut epochs = BTreeSet::new();
    while !feed.is_empty() {
        let how = feed.byte();
        let (id, secret) = SECRETS[usize::from(how & 1)];
        // Few epochs, so that the same ones come again.
        let epoch = u64::from(feed.byte() % 48);
        epochs.insert(epoch);
        let stamp = match how >> 1 & 3 {
            0 => feed.number(8),
            1 => wall - feed.number(4),
            2 => wall + feed.number(4),
            _ => wall - feed.number(1),
        };
        if how & 8 == 8 {
            wall += feed.number(4);
        }
        let message = [1, how >> 4];
        let mut bytes =
            [&message[..], b"BLB2", &id.to_be_bytes(), &epoch.to_be_bytes(), &stamp.to_be_bytes()].concat();
        let source = Ipv4Addr::new(10, 0, 0, 1).octets();
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, &[&bytes[..], &source].concat());
        bytes.extend_from_slice(tag.as_ref());
        match verifier.open(&bytes, peer(0), wall) {
            Ok(opened) => {
                assert_eq!(opened, message);
                assert!(stamp.abs_diff(wall) <= TOLERANCE, "{stamp} at {wall}");
                assert!(taken.insert((message, epoch, stamp)), "taken twice");
            }
            Err(Refused::Clock { ahead, .. }) => {
                assert!(stamp.abs_diff(wall) > TOLERANCE && (ahead > 0) == (stamp > wall), "{ahead}");
                let mut later = taken.range((message, epoch, stamp)..=(message, epoch, u64::MAX));
                assert_eq!(later.next(), None, "of this epoch a later one was taken");
            }
            Err(Refused::Replay { .. }) => {}
            Err(refused) => panic!("the signature is right: {refused}"),
        }
    }
}

/// A message on the wire: what it is, who sent it, and whether it was delivered.
struct Sent {
    bytes: Vec<u8>,
    message: Vec<u8>,
    from: IpAddr,
    opened: bool,
}

/// Peers with clocks that are set, a network that repeats, swaps and spoils: what is opened was said, unspoilt, by that peer,
/// and is opened once; and what comes in order from a peer with a right clock is opened.
fn conversation(feed: &mut Feed<'_>) {
    let mut signers = [Signer::new(keys(KEYS)), Signer::new(keys(KEYS))];
    let mut walls = [NOW; 2];
    let mut verifier = Verifier::new(keys(KEYS));
    let mut sent: Vec<Sent> = Vec::new();
    let (mut ours, mut set_backs) = (NOW, 0);
    while !feed.is_empty() {
        let kind = feed.byte();
        let who = usize::from(kind >> 7);
        match kind & 7 {
            0 if set_backs < MOST_SET_BACKS => {
                walls[who] -= feed.number(4).min(walls[who] / 2);
                set_backs += 1;
            }
            1 => walls[who] += feed.number(3),
            2 => ours += feed.number(3),
            3 | 4 => {
                let message = feed.take(usize::from(kind >> 3 & 7)).to_vec();
                let (from, signer) = (peer(who), &mut signers[who]);
                let bytes = signer.sign(&message, from, walls[who]);
                sent.push(Sent { bytes, message, from, opened: false });
            }
            5 => deliver(&mut verifier, &mut sent, feed, ours),
            6 => spoil(&mut verifier, &sent, feed, ours),
            _ => {
                let message = [1, 51, kind];
                // A peer whose clock is right, and that says something new.
                walls[who] = walls[who].max(ours);
                let near = walls[who] - ours <= TOLERANCE / 2;
                let bytes = signers[who].sign(&message, peer(who), walls[who]);
                let opened = verifier.open(&bytes, peer(who), ours);
                assert!(!near || opened == Ok(&message[..]), "{opened:?}");
                sent.push(Sent {
                    opened: opened.is_ok(),
                    bytes: bytes.clone(),
                    message: message.to_vec(),
                    from: peer(who),
                });
            }
        }
    }
}

fn deliver(verifier: &mut Verifier, sent: &mut [Sent], feed: &mut Feed<'_>, ours: u64) {
    let index = usize::from(feed.byte());
    let Some(sent) = sent.get_mut(index) else { return };
    if let Ok(opened) = verifier.open(&sent.bytes, sent.from, ours) {
        assert_eq!(opened, sent.message);
        assert!(!std::mem::replace(&mut sent.opened, true), "opened twice");
    }
}

/// Another sender, a changed byte, or less of it.
fn spoil(verifier: &mut Verifier, sent: &[Sent], feed: &mut Feed<'_>, ours: u64) {
    let Some(sent) = sent.get(usize::from(feed.byte())) else { return };
    let (how, place, change) = (feed.byte(), feed.number(2) as usize, feed.byte().max(1));
    let mut bytes = sent.bytes.clone();
    assert!(bytes.len() >= TRAILER);
    let mut from = sent.from;
    match how % 3 {
        0 => from = peer(2),
        1 => {
            let place = place % bytes.len();
            bytes[place] ^= change;
        }
        _ => bytes.truncate(place % bytes.len()),
    }
    let refused = verifier.open(&bytes, from, ours);
    let known = [Refused::Unsigned, Refused::Signature].map(Err);
    assert!(known.contains(&refused) || matches!(refused, Err(Refused::UnknownKey(_))), "{refused:?}");
}

fn keys(text: &str) -> Keys {
    Keys::parse(text).expect("they are good")
}

fn peer(index: usize) -> IpAddr {
    SocketAddr::from(([10, 0, 0, 1 + index as u8], 0)).ip()
}
