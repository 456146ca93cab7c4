//! The PROXY protocol, versions 1 (text) and 2 (binary): who the client is, told by the balancer in front in the first
//! bytes of a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, its end included.
const LONGEST_LINE: usize = 107;
/// The longest header of version 2 that is taken. More would let a client make us hold memory before it is let in.
pub const LONGEST: usize = 4096;
/// The extension that carries a checksum of the header.
const TLV_CHECKSUM: u8 = 0x03;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A client's connection.
    Proxied {
        /// The client.
        source: SocketAddr,
        /// What it connected to.
        destination: SocketAddr,
    },
    /// The balancer's own connection (its health check), or a client of a kind that has no address here.
    Local,
}

/// How far the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// More are needed.
    Incomplete,
    /// A whole header, and how many bytes it had. What follows is the client's.
    Complete(Header, usize),
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They begin otherwise.
    #[error("the connection does not begin with a PROXY header")]
    Signature,
    /// Version 1 that is not by the book.
    #[error("the PROXY line is malformed")]
    Line,
    /// Version 2 with a version, command, family or length that is not by the book.
    #[error("the binary PROXY header is malformed")]
    Binary,
    /// Version 2 whose checksum is wrong.
    #[error("the checksum of the PROXY header is wrong")]
    Checksum,
    /// Longer than any that is of use.
    #[error("the PROXY header is too long")]
    TooLong,
}

/// Reads a header from the first bytes of a connection; called again with more while it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    if begins(bytes, &SIGNATURE) {
        return parse_v2(bytes);
    }
    if begins(bytes, b"PROXY ") {
        return parse_v1(bytes);
    }
    Err(Malformed::Signature)
}

/// The text form.
pub fn encode_v1(header: &Header) -> Vec<u8> {
    let Header::Proxied { source, destination } = header else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let (source_ip, destination_ip, family) = same_family(*source, *destination);
    format!("PROXY {family} {source_ip} {destination_ip} {} {}\r\n", source.port(), destination.port())
        .into_bytes()
}

/// The binary form.
pub fn encode_v2(header: &Header) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    let Header::Proxied { source, destination } = header else {
        bytes.extend_from_slice(&[0x20, 0, 0, 0]);
        return bytes;
    };
    let (source_ip, destination_ip, _) = same_family(*source, *destination);
    match (source_ip, destination_ip) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend_from_slice(&[0x21, 0x11, 0, 12]);
            bytes.extend_from_slice(&from.octets());
            bytes.extend_from_slice(&to.octets());
        }
        (from, to) => {
            bytes.extend_from_slice(&[0x21, 0x21, 0, 36]);
            bytes.extend_from_slice(&as_v6(from).octets());
            bytes.extend_from_slice(&as_v6(to).octets());
        }
    }
    bytes.extend_from_slice(&source.port().to_be_bytes());
    bytes.extend_from_slice(&destination.port().to_be_bytes());
    bytes
}

/// Whether bytes are, as far as they go, the beginning of something.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let length = bytes.len().min(with.len());
    bytes[..length] == with[..length]
}

/// Both addresses in one family: mapped ones as IPv4 where both can be, as IPv6 otherwise.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (IpAddr, IpAddr, &'static str) {
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (from @ IpAddr::V4(_), to @ IpAddr::V4(_)) => (from, to, "TCP4"),
        (from, to) => (as_v6(from).into(), as_v6(to).into(), "TCP6"),
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let seen = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return if seen.len() == LONGEST_LINE { Err(Malformed::TooLong) } else { Ok(Parsed::Incomplete) };
    };
    let line = seen[..end].strip_suffix(b"\r").ok_or(Malformed::Line)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed::Line)?;
    let words: Vec<&str> = line.split(' ').collect();
    let header = match words[..] {
        // Whatever follows is to be ignored.
        ["PROXY", "UNKNOWN", ..] => Header::Local,
        ["PROXY", family @ ("TCP4" | "TCP6"), from, to, from_port, to_port] => Header::Proxied {
            source: SocketAddr::new(ip(family, from)?, port(from_port)?),
            destination: SocketAddr::new(ip(family, to)?, port(to_port)?),
        },
        _ => return Err(Malformed::Line),
    };
    Ok(Parsed::Complete(header, end + 1))
}

fn ip(family: &str, text: &str) -> Result<IpAddr, Malformed> {
    let parsed = match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from),
        _ => text.parse::<Ipv6Addr>().map(IpAddr::from),
    };
    parsed.map_err(|_| Malformed::Line)
}

fn port(text: &str) -> Result<u16, Malformed> {
    // `parse` takes a sign and leading zeros, the protocol does not.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err(Malformed::Line);
    }
    text.parse().map_err(|_| Malformed::Line)
}

fn parse_v2(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some(&[command, family, high, low]) = bytes.get(12..16) else { return Ok(Parsed::Incomplete) };
    if command >> 4 != 2 || command & 0xf > 1 || family >> 4 > 3 || family & 0xf > 2 {
        return Err(Malformed::Binary);
    }
    let end = 16 + usize::from(u16::from_be_bytes([high, low]));
    if end > LONGEST {
        return Err(Malformed::TooLong);
    }
    let Some(body) = bytes.get(16..end) else { return Ok(Parsed::Incomplete) };
    let (header, addresses) = match (command & 0xf, family) {
        // A local connection's addresses are to be skipped, whatever they are.
        (0, _) => return Ok(Parsed::Complete(Header::Local, end)),
        (_, 0x11) => (proxied::<4>(body).ok_or(Malformed::Binary)?, 12),
        (_, 0x21) => (proxied::<16>(body).ok_or(Malformed::Binary)?, 36),
        // Datagrams, unix sockets, unspecified: nothing that we could use.
        _ => return Ok(Parsed::Complete(Header::Local, end)),
    };
    check_extensions(&bytes[..end], 16 + addresses)?;
    Ok(Parsed::Complete(header, end))
}

/// Two addresses of so many bytes, then two ports.
fn proxied<const WIDTH: usize>(body: &[u8]) -> Option<Header>
where
    IpAddr: From<[u8; WIDTH]>,
{
    let address = |at: usize| Some(IpAddr::from(<[u8; WIDTH]>::try_from(body.get(at..at + WIDTH)?).ok()?));
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    Some(Header::Proxied {
        source: SocketAddr::new(address(0)?, port(2 * WIDTH)?),
        destination: SocketAddr::new(address(WIDTH)?, port(2 * WIDTH + 2)?),
    })
}

/// The extensions must fill the header exactly, and a checksum among them must be right.
fn check_extensions(header: &[u8], from: usize) -> Result<(), Malformed> {
    let mut at = from;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else { return Err(Malformed::Binary) };
        let end = at + 3 + usize::from(u16::from_be_bytes([high, low]));
        let value = header.get(at + 3..end).ok_or(Malformed::Binary)?;
        if kind == TLV_CHECKSUM {
            let told: [u8; 4] = value.try_into().map_err(|_| Malformed::Binary)?;
            // Computed with the checksum itself as zero.
            let zeroed = [&header[..at + 3], &[0; 4], &header[end..]];
            if crc32c(&zeroed) != u32::from_be_bytes(told) {
                return Err(Malformed::Checksum);
            }
        }
        at = end;
    }
    Ok(())
}

/// CRC-32C (Castagnoli), bit by bit: headers are short and seldom carry one.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = !0u32;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn proxied(source: &str, destination: &str) -> Header {
        Header::Proxied { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn the_line_is_the_one_of_the_specification() {
        let header = proxied("192.168.0.1:56324", "192.168.0.11:443");
        assert_eq!(encode_v1(&header), b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n");
        let header = proxied("[2001:db8::1]:5", "[2001:db8::2]:6");
        assert_eq!(encode_v1(&header), b"PROXY TCP6 2001:db8::1 2001:db8::2 5 6\r\n");
        assert_eq!(encode_v1(&Header::Local), b"PROXY UNKNOWN\r\n");
    }

    #[test]
    fn mixed_families_become_one() {
        let header = proxied("[::ffff:10.0.0.1]:5", "10.0.0.2:6");
        assert_eq!(encode_v1(&header), b"PROXY TCP4 10.0.0.1 10.0.0.2 5 6\r\n");
        let header = proxied("10.0.0.1:5", "[2001:db8::2]:6");
        assert_eq!(encode_v1(&header), b"PROXY TCP6 ::ffff:10.0.0.1 2001:db8::2 5 6\r\n");
        assert_eq!(encode_v2(&header).len(), 16 + 36);
    }

    #[test]
    fn what_follows_a_header_is_left_alone() {
        let mut bytes = encode_v2(&proxied("10.0.0.1:5", "10.0.0.2:6"));
        bytes.extend_from_slice(b"\x16\x03\x01");
        assert_eq!(parse(&bytes), Ok(Parsed::Complete(proxied("10.0.0.1:5", "10.0.0.2:6"), 28)));
        assert_eq!(parse(b"PROXY UNKNOWN whatever\r\nGET"), Ok(Parsed::Complete(Header::Local, 24)));
    }

    #[test]
    fn lines_that_are_not_by_the_book_are_refused() {
        for line in [
            "PROXY TCP4 10.0.0.1 10.0.0.2 5\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 5 65536\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 05 6\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 +5 6\r\n",
            "PROXY TCP4 10.0.0.1  10.0.0.2 5 6\r\n",
            "PROXY TCP4 ::1 ::2 5 6\r\n",
            "PROXY TCP6 10.0.0.1 10.0.0.2 5 6\r\n",
            "PROXY TCP4 10.0.0.1 10.0.0.2 5 6\n",
            "PROXY UDP4 10.0.0.1 10.0.0.2 5 6\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(Malformed::Line), "{line:?}");
        }
        assert_eq!(parse(&[b"PROXY ".as_slice(), &[b'x'; 200]].concat()), Err(Malformed::TooLong));
        assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(Malformed::Signature));
        assert_eq!(parse(b"\x16\x03\x01"), Err(Malformed::Signature));
    }

    #[test]
    fn binary_headers_are_checked_to_their_end() {
        let good = encode_v2(&proxied("10.0.0.1:5", "10.0.0.2:6"));
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            parse(&bytes)
        };
        assert_eq!(with(&|b| b[12] = 0x31), Err(Malformed::Binary));
        assert_eq!(with(&|b| b[12] = 0x22), Err(Malformed::Binary));
        assert_eq!(with(&|b| b[15] = 11), Err(Malformed::Binary));
        assert_eq!(with(&|b| b[14] = 0xff), Err(Malformed::TooLong));
        assert_eq!(with(&|b| b[12] = 0x20), Ok(Parsed::Complete(Header::Local, 28)));
        // Half an extension.
        let half = |b: &mut Vec<u8>| {
            b[15] += 2;
            b.extend_from_slice(&[4, 0]);
        };
        assert_eq!(with(&half), Err(Malformed::Binary));
    }

    #[test]
    fn a_checksum_is_verified() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        let mut bytes = encode_v2(&proxied("10.0.0.1:5", "10.0.0.2:6"));
        bytes[15] += 7;
        bytes.extend_from_slice(&[TLV_CHECKSUM, 0, 4, 0, 0, 0, 0]);
        assert_eq!(parse(&bytes), Err(Malformed::Checksum));
        let sum = crc32c(&[&bytes]).to_be_bytes();
        bytes[31..].copy_from_slice(&sum);
        assert_eq!(parse(&bytes), Ok(Parsed::Complete(proxied("10.0.0.1:5", "10.0.0.2:6"), 35)));
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        (prop_oneof![v4, v6], any::<u16>(), any::<u16>()).prop_map(|((from, to), a, b)| Header::Proxied {
            source: SocketAddr::new(from, a),
            destination: SocketAddr::new(to, b),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_every_part_of_it_is_incomplete(header in any_header(), v1 in any::<bool>()) {
            let bytes = if v1 { encode_v1(&header) } else { encode_v2(&header) };
            for cut in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(Parsed::Incomplete));
            }
            prop_assert_eq!(parse(&bytes), Ok(Parsed::Complete(header, bytes.len())));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..3) {
            let start: &[u8] = match kind {
                0 => b"",
                1 => b"PROXY ",
                _ => &SIGNATURE,
            };
            if let Ok(Parsed::Complete(_, used)) = parse(&[start, &bytes].concat()) {
                prop_assert!(used <= start.len() + bytes.len());
            }
        }

        #[test]
        fn extensions_of_any_shape_are_read_without_panic(tail in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = encode_v2(&proxied("10.0.0.1:5", "10.0.0.2:6"));
            bytes[15] += tail.len() as u8;
            bytes.extend_from_slice(&tail);
            let _ = parse(&bytes);
        }
    }
}
