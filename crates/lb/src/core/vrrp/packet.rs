//! Adverts as bytes.
//!
//! Version 3 over IPv4 has two readings of its checksum in the field: with a pseudo header (RFC 5798, Keepalived, frr)
//! and without one. We write the first and take both.

use super::super::{MILLISECOND, SECOND, Time, checksum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// IP protocol number.
pub const PROTOCOL: u8 = 112;
/// Adverts with another time to live have been routed, and are not taken.
pub const TTL: u8 = 255;
/// Where adverts go when no peers are named.
pub const MULTICAST_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// Where adverts go when no peers are named, IPv6.
pub const MULTICAST_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);

const HEADER: usize = 8;
/// Version 2 ends in a field for a password. Nobody should use it, all must send it.
const V2_TAIL: usize = 8;
const CENTISECOND: Time = 10 * MILLISECOND;
/// The interval of version 3 has 12 bits.
const MOST_CENTISECONDS: Time = 0xfff;

/// The protocol's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 3768: IPv4 only, whole seconds.
    V2,
    /// RFC 9568: both families, hundredths of a second.
    V3,
}

/// What a holder says at every interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advert {
    /// The protocol's version.
    pub version: Version,
    /// The virtual router.
    pub router_id: u8,
    /// The sender's priority; 0 says that it stops.
    pub priority: u8,
    /// Time between two adverts.
    pub interval: Time,
    /// The addresses that are held; all of one family.
    pub addresses: Vec<IpAddr>,
}

/// Why bytes are no advert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Too short, or not as long as its count of addresses says.
    #[error("the length is wrong")]
    Length,
    /// Neither version 2 nor 3, or version 2 over IPv6.
    #[error("the version is unknown")]
    Version,
    /// Not an advert.
    #[error("the type is unknown")]
    Type,
    /// Spoilt on its way, or made for another destination.
    #[error("the checksum is wrong")]
    Checksum,
    /// Version 2 with a password: it is sent in the clear and protects nothing, so it is not supported.
    #[error("password authentication is not supported")]
    Authentication,
    /// An interval of 0, or no address.
    #[error("a value is out of range")]
    Value,
}

impl Advert {
    /// The bytes that follow the IP header. The addresses of the IP header go into the checksum.
    pub fn encode(&self, source: IpAddr, destination: IpAddr) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + 16 * self.addresses.len() + V2_TAIL);
        let version = match self.version {
            Version::V2 => 2,
            Version::V3 => 3,
        };
        bytes.extend_from_slice(&[
            version << 4 | 1,
            self.router_id,
            self.priority,
            self.addresses.len() as u8,
        ]);
        match self.version {
            Version::V2 => bytes.extend_from_slice(&[0, (self.interval / SECOND).clamp(1, 255) as u8]),
            Version::V3 => {
                let interval = (self.interval / CENTISECOND).clamp(1, MOST_CENTISECONDS) as u16;
                bytes.extend_from_slice(&interval.to_be_bytes());
            }
        }
        bytes.extend_from_slice(&[0, 0]);
        for address in &self.addresses {
            match address {
                IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
            }
        }
        let sum = match self.version {
            Version::V2 => {
                bytes.extend_from_slice(&[0; V2_TAIL]);
                checksum::internet(&[&bytes])
            }
            Version::V3 => {
                let pseudo = checksum::pseudo_header(source, destination, PROTOCOL, bytes.len());
                checksum::internet(&[&pseudo, &bytes])
            }
        };
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads what followed an IP header with these addresses.
    pub fn decode(bytes: &[u8], source: IpAddr, destination: IpAddr) -> Result<Advert, Malformed> {
        let [first, router_id, priority, count, fifth, sixth, ..] = *bytes else {
            return Err(Malformed::Length);
        };
        let version = match (first >> 4, source) {
            (2, IpAddr::V4(_)) => Version::V2,
            (3, _) => Version::V3,
            _ => return Err(Malformed::Version),
        };
        if first & 0xf != 1 {
            return Err(Malformed::Type);
        }
        let width = if source.is_ipv4() { 4 } else { 16 };
        let tail = if version == Version::V2 { V2_TAIL } else { 0 };
        let end = HEADER + usize::from(count) * width;
        if bytes.len() != end + tail {
            return Err(Malformed::Length);
        }
        if !sums_up(bytes, version, source, destination) {
            return Err(Malformed::Checksum);
        }
        let interval = match version {
            Version::V2 if fifth != 0 => return Err(Malformed::Authentication),
            Version::V2 => Time::from(sixth) * SECOND,
            // The upper four bits are reserved, and to be ignored.
            Version::V3 => Time::from(u16::from_be_bytes([fifth & 0xf, sixth])) * CENTISECOND,
        };
        if interval == 0 || count == 0 {
            return Err(Malformed::Value);
        }
        let addresses = bytes[HEADER..end].chunks_exact(width).filter_map(address).collect();
        Ok(Advert { version, router_id, priority, interval, addresses })
    }
}

/// Splits an IPv4 packet, as a raw socket hands it over: source, destination, time to live, payload.
pub fn ipv4_payload(packet: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u8, &[u8])> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    if packet[0] >> 4 != 4 || header < 20 || total < header {
        return None;
    }
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some((source.into(), destination.into(), packet[8], packet.get(header..total)?))
}

fn sums_up(bytes: &[u8], version: Version, source: IpAddr, destination: IpAddr) -> bool {
    let plain = || checksum::internet(&[bytes]) == 0;
    let with_header = || {
        let pseudo = checksum::pseudo_header(source, destination, PROTOCOL, bytes.len());
        checksum::internet(&[&pseudo, bytes]) == 0
    };
    match (version, source) {
        (Version::V2, _) => plain(),
        (Version::V3, IpAddr::V4(_)) => with_header() || plain(),
        (Version::V3, IpAddr::V6(_)) => with_header(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(octets.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn advert(version: Version, addresses: &[&str]) -> Advert {
        let interval = if version == Version::V2 { SECOND } else { 100 * MILLISECOND };
        Advert {
            version,
            router_id: 51,
            priority: 150,
            interval,
            addresses: addresses.iter().map(|a| ip(a)).collect(),
        }
    }

    #[test]
    fn version_2_is_the_bytes_that_the_rfc_draws() {
        let bytes = advert(Version::V2, &["10.0.0.9"]).encode(ip("10.0.0.1"), MULTICAST_V4.into());
        assert_eq!(bytes[..6], [0x21, 51, 150, 1, 0, 1]);
        assert_eq!(bytes[8..], [10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(checksum::internet(&[&bytes]), 0);
    }

    #[test]
    fn version_3_counts_in_hundredths_and_signs_for_its_destination() {
        let sent = advert(Version::V3, &["10.0.0.9", "10.0.0.10"]);
        let bytes = sent.encode(ip("10.0.0.1"), MULTICAST_V4.into());
        assert_eq!(bytes[..6], [0x31, 51, 150, 2, 0, 10]);
        assert_eq!(Advert::decode(&bytes, ip("10.0.0.1"), MULTICAST_V4.into()), Ok(sent));
        assert_eq!(Advert::decode(&bytes, ip("10.0.0.1"), ip("10.0.0.2")), Err(Malformed::Checksum));
    }

    #[test]
    fn version_3_over_ipv4_is_also_taken_without_pseudo_header_but_not_over_ipv6() {
        let sent = advert(Version::V3, &["10.0.0.9"]);
        let mut bytes = sent.encode(ip("10.0.0.1"), MULTICAST_V4.into());
        bytes[6..8].fill(0);
        let sum = checksum::internet(&[&bytes]);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Advert::decode(&bytes, ip("10.0.0.1"), MULTICAST_V4.into()), Ok(sent));

        let mut bytes = advert(Version::V3, &["fe80::9"]).encode(ip("fe80::1"), MULTICAST_V6.into());
        bytes[6..8].fill(0);
        let sum = checksum::internet(&[&bytes]);
        bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Advert::decode(&bytes, ip("fe80::1"), MULTICAST_V6.into()), Err(Malformed::Checksum));
    }

    #[test]
    fn every_kind_of_wrong_is_named() {
        let (source, destination) = (ip("10.0.0.1"), IpAddr::from(MULTICAST_V4));
        let good = advert(Version::V2, &["10.0.0.9"]).encode(source, destination);
        let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            bytes[6..8].fill(0);
            let sum = checksum::internet(&[&bytes]);
            bytes[6..8].copy_from_slice(&sum.to_be_bytes());
            Advert::decode(&bytes, source, destination)
        };
        assert_eq!(wrong(&|b| b[0] = 0x41), Err(Malformed::Version));
        assert_eq!(wrong(&|b| b[0] = 0x22), Err(Malformed::Type));
        assert_eq!(wrong(&|b| b[3] = 2), Err(Malformed::Length));
        assert_eq!(wrong(&|b| b[4] = 1), Err(Malformed::Authentication));
        assert_eq!(wrong(&|b| b[5] = 0), Err(Malformed::Value));
        assert_eq!(Advert::decode(&good, ip("fe80::1"), ip("fe80::2")), Err(Malformed::Version));
        assert_eq!(Advert::decode(&good[..5], source, destination), Err(Malformed::Length));
    }

    #[test]
    fn an_ip_header_is_taken_off_and_a_lying_one_refused() {
        let mut packet =
            vec![0x45, 0, 0, 22, 0, 0, 0, 0, 255, 112, 0, 0, 10, 0, 0, 1, 224, 0, 0, 18, 7, 8, 99];
        let (source, destination, ttl, payload) = ipv4_payload(&packet).unwrap();
        assert_eq!((source, destination), (Ipv4Addr::new(10, 0, 0, 1), MULTICAST_V4));
        assert_eq!((ttl, payload), (255, &[7, 8][..]));
        packet[3] = 200;
        assert_eq!(ipv4_payload(&packet), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            v2 in any::<bool>(), router_id in 1u8.., priority in any::<u8>(), units in 1u64..256,
            v4 in proptest::collection::vec(any::<[u8; 4]>(), 1..20),
        ) {
            let version = if v2 { Version::V2 } else { Version::V3 };
            let interval = if v2 { units * SECOND } else { units * CENTISECOND };
            let addresses = v4.into_iter().map(IpAddr::from).collect();
            let sent = Advert { version, router_id, priority, interval, addresses };
            let bytes = sent.encode(ip("10.0.0.1"), ip("10.0.0.2"));
            prop_assert_eq!(Advert::decode(&bytes, ip("10.0.0.1"), ip("10.0.0.2")), Ok(sent));
        }

        #[test]
        fn any_bytes_are_read_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), first in 0x20u8..0x32, v6 in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            let address = if v6 { ip("fe80::1") } else { ip("10.0.0.1") };
            let _ = Advert::decode(&bytes, address, address);
            let _ = ipv4_payload(&bytes);
        }

        #[test]
        fn one_flipped_bit_is_noticed(bit in 0usize..96) {
            let sent = advert(Version::V3, &["10.0.0.9"]);
            let mut bytes = sent.encode(ip("10.0.0.1"), MULTICAST_V4.into());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Advert::decode(&bytes, ip("10.0.0.1"), MULTICAST_V4.into()).is_err());
        }
    }
}
