//! The PROXY protocol: what a stranger may write as the first bytes of a connection.

use crate::feed::Feed;
use butler_lb::core::proxy::{Header, LONGEST, Malformed, Parsed, encode_v1, encode_v2, parse};
use std::net::{IpAddr, SocketAddr};

const ADDRESSES: [usize; 4] = [0, 12, 36, 216];
const CHECKSUM: u8 = 3;

/// Header bytes as they come; with an odd first byte, the binary form with length and checksum made right.
pub fn proxy(data: &[u8]) {
    let mut feed = Feed::new(data);
    let bytes = if feed.flag() { mended(&mut feed) } else { feed.rest().to_vec() };
    let whole = parse(&bytes);
    a_part_says_the_same_or_nothing(&bytes, whole);
    if let Ok(Parsed::Complete(header, length)) = whole {
        assert!((1..=bytes.len()).contains(&length) && length <= LONGEST);
        is_read_as_written(header);
    }
}

/// However the bytes are split on their way: nothing is said too early, and nothing else is said later.
fn a_part_says_the_same_or_nothing(bytes: &[u8], whole: Result<Parsed, Malformed>) {
    let mut said = false;
    // All of a short one, some of a long one.
    let step = bytes.len() / 256 + 1;
    for end in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        let part = parse(&bytes[..end]);
        assert!(part == whole || (!said && part == Ok(Parsed::Incomplete)), "{end}: {part:?} {whole:?}");
        said |= part != Ok(Parsed::Incomplete);
        if let Ok(Parsed::Complete(_, length)) = part {
            assert!(length <= end, "more is taken than has come");
        }
    }
    assert!(said || bytes.len() < LONGEST, "more than the longest header and still no word");
}

fn is_read_as_written(header: Header) {
    for bytes in [encode_v1(&header), encode_v2(&header)] {
        assert_eq!(parse(&bytes), Ok(Parsed::Complete(plain(header), bytes.len())), "{header:?}");
    }
}

/// A mapped address is written as what it is, if the other one is of the same kind.
fn plain(header: Header) -> Header {
    let Header::Proxied { source, destination } = header else { return header };
    let both = (source.ip().to_canonical(), destination.ip().to_canonical());
    let (from, to) = match both {
        (IpAddr::V4(_), IpAddr::V4(_)) => both,
        _ => (source.ip(), destination.ip()),
    };
    Header::Proxied {
        source: SocketAddr::new(from, source.port()),
        destination: SocketAddr::new(to, destination.port()),
    }
}

/// A binary header: command, family, addresses and extensions from the input; signature, length and checksums as they must be.
fn mended(feed: &mut Feed<'_>) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    let family = feed.byte();
    bytes.extend([0x20 | feed.byte() & 1, family]);
    let body = feed.rest();
    let body = &body[..body.len().min(LONGEST)];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    let mut at = 16 + ADDRESSES.get(usize::from(family >> 4)).copied().unwrap_or(0);
    while let Some(&[kind, high, low]) = bytes.get(at..at + 3) {
        let end = at + 3 + usize::from(u16::from_be_bytes([high, low]));
        if kind == CHECKSUM && end == at + 7 && end <= bytes.len() {
            bytes[at + 3..end].fill(0);
            let sum = crc32c(&bytes);
            bytes[at + 3..end].copy_from_slice(&sum.to_be_bytes());
        }
        at = end;
    }
    bytes
}

/// By a table, unlike the one that is tested.
fn crc32c(bytes: &[u8]) -> u32 {
    let entry =
        |index: u32| (0..8).fold(index, |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 });
    !bytes.iter().fold(!0u32, |sum, byte| sum >> 8 ^ entry((sum ^ u32::from(*byte)) & 0xff))
}
