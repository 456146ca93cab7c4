//! Adverts as bytes.

use crate::feed::Feed;
use butler_lb::core::vrrp::{Advert, MULTICAST_V4, MULTICAST_V6, Malformed, PROTOCOL, ipv4_payload};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet. Its first byte: IPv6; the checksum made right; without pseudo header.
pub fn vrrp(data: &[u8]) {
    let mut feed = Feed::new(data);
    let (how, bytes) = (feed.byte(), feed.rest());
    let (v6, mend, plain) = (how & 1 == 1, how & 2 == 2, how & 4 == 4);
    let (source, destination) = ends(v6);
    let mut bytes = bytes.to_vec();
    if mend {
        mend_checksum(&mut bytes, source, destination, plain);
    }
    if let Some((_, _, _, payload)) = ipv4_payload(&bytes) {
        assert!(payload.len() + 20 <= bytes.len());
    }
    let read = Advert::decode(&bytes, source, destination);
    let Ok(advert) = read else {
        // Version 2 has no pseudo header, IPv6 always has one, and version 3 over IPv4 is taken with and without.
        let right = mend && bytes.len() >= 8 && if bytes[0] >> 4 == 2 { plain } else { !v6 || !plain };
        assert!(!right || read != Err(Malformed::Checksum), "the sum is right: {bytes:02x?}");
        return;
    };
    assert!(advert.interval > 0 && !advert.addresses.is_empty());
    assert!(advert.addresses.iter().all(|address| address.is_ipv6() == v6));
    let written = advert.encode(source, destination);
    assert_eq!(Advert::decode(&written, source, destination).as_ref(), Ok(&advert));
    assert_eq!(written.len(), bytes.len());
    // The same bytes again, but for the reserved bits, the sum, and the password that nobody reads.
    let addresses = 8 + advert.addresses.len() * if v6 { 16 } else { 4 };
    assert_eq!((&written[..4], &written[8..addresses]), (&bytes[..4], &bytes[8..addresses]));
}

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    match v6 {
        true => (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into(), MULTICAST_V6.into()),
        false => (Ipv4Addr::new(10, 0, 0, 1).into(), MULTICAST_V4.into()),
    }
}

pub(crate) fn mend_checksum(bytes: &mut [u8], source: IpAddr, destination: IpAddr, plain: bool) {
    if bytes.len() < 8 {
        return;
    }
    bytes[6..8].fill(0);
    let mut all = Vec::new();
    if !plain {
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => all.extend(address.octets()),
                IpAddr::V6(address) => all.extend(address.octets()),
            }
        }
        // The order of length and protocol does not matter to a sum of 16-bit words.
        all.extend([0, PROTOCOL]);
        all.extend((bytes.len() as u32).to_be_bytes());
    }
    all.extend_from_slice(bytes);
    let sum =
        all.chunks(2).map(|two| u64::from(two[0]) << 8 | u64::from(*two.get(1).unwrap_or(&0))).sum::<u64>();
    // Modulo 2^16 - 1, and never 0 unless all is.
    let sum = if sum == 0 { 0 } else { ((sum - 1) % 0xffff + 1) as u16 };
    bytes[6..8].copy_from_slice(&(!sum).to_be_bytes());
}
