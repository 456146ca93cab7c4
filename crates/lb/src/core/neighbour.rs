//! Frames that tell a network segment where an address now lives: gratuitous ARP (RFC 826, RFC 5227) for IPv4 and
//! unsolicited neighbour advertisements (RFC 4861) for IPv6. Written to be sent as they are, read to notice a rival.

use super::checksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A hardware address.
pub type Mac = [u8; 6];

/// To everyone on the segment.
pub const BROADCAST: Mac = [0xff; 6];
/// Where ff02::1 (all nodes) is sent on Ethernet.
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
/// Neighbour advertisement.
const ADVERTISEMENT: u8 = 136;
/// Override: replace what you had. (The router flag stays clear: we forward connections, not packets.)
const OVERRIDE: u8 = 0x20;

/// What an ARP frame does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Asks. Some switches and hosts learn only from these.
    Request,
    /// Answers. Others learn only from these.
    Reply,
}

/// A statement, heard or made, that an address lives at a hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// Where it is said to live.
    pub mac: Mac,
}

/// A gratuitous ARP frame, from the Ethernet header on: sender and target are both the address.
pub fn gratuitous_arp(mac: Mac, address: Ipv4Addr, operation: Operation) -> [u8; 42] {
    let mut frame = [0; 42];
    frame[..6].copy_from_slice(&BROADCAST);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_ARP);
    // Ethernet, IPv4, 6 and 4 bytes of address.
    frame[14..20].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    frame[21] = match operation {
        Operation::Request => 1,
        Operation::Reply => 2,
    };
    frame[22..28].copy_from_slice(&mac);
    frame[28..32].copy_from_slice(&address.octets());
    // RFC 5227: a request leaves the target's hardware address zero; a reply carries the sender's.
    if operation == Operation::Reply {
        frame[32..38].copy_from_slice(&mac);
    }
    frame[38..42].copy_from_slice(&address.octets());
    frame
}

/// An unsolicited neighbour advertisement to all nodes, from the Ethernet header on.
pub fn unsolicited_advertisement(mac: Mac, address: Ipv6Addr) -> [u8; 86] {
    let mut frame = [0; 86];
    frame[..6].copy_from_slice(&ALL_NODES_MAC);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV6);
    frame[14] = 0x60;
    frame[18..20].copy_from_slice(&32u16.to_be_bytes());
    frame[20] = ICMPV6;
    frame[21] = 255;
    frame[22..38].copy_from_slice(&address.octets());
    frame[38..54].copy_from_slice(&ALL_NODES.octets());
    frame[54] = ADVERTISEMENT;
    frame[58] = OVERRIDE;
    frame[62..78].copy_from_slice(&address.octets());
    // Option: target link-layer address, one unit of 8 bytes.
    frame[78..80].copy_from_slice(&[2, 1]);
    frame[80..86].copy_from_slice(&mac);
    let pseudo = checksum::pseudo_header(address.into(), ALL_NODES.into(), ICMPV6, 32);
    let sum = checksum::internet(&[&pseudo, &frame[54..]]);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// What an Ethernet frame claims, if it is ARP or a neighbour advertisement that is well made.
pub fn claim(frame: &[u8]) -> Option<Claim> {
    match frame.get(12..14)? {
        kind if kind == ETHERTYPE_ARP => arp_claim(frame.get(14..)?),
        kind if kind == ETHERTYPE_IPV6 => advertisement_claim(frame.get(14..)?),
        _ => None,
    }
}

fn arp_claim(arp: &[u8]) -> Option<Claim> {
    if arp.get(..6)? != [0, 1, 8, 0, 6, 4] || !matches!(arp.get(6..8)?, [0, 1 | 2]) {
        return None;
    }
    let mac = arp.get(8..14)?.try_into().ok()?;
    let address: [u8; 4] = arp.get(14..18)?.try_into().ok()?;
    // A probe (RFC 5227) has no sender address: it asks, it does not claim.
    if address == [0; 4] {
        return None;
    }
    Some(Claim { address: Ipv4Addr::from(address).into(), mac })
}

fn advertisement_claim(packet: &[u8]) -> Option<Claim> {
    let header = packet.get(..40)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // A hop limit of 255 proves that it was not routed here.
    if header[0] >> 4 != 6 || header[6] != ICMPV6 || header[7] != 255 {
        return None;
    }
    let message = packet.get(40..40 + length)?;
    if message.len() < 24 || message[0] != ADVERTISEMENT || message[1] != 0 {
        return None;
    }
    let source: [u8; 16] = header[8..24].try_into().ok()?;
    let destination: [u8; 16] = header[24..40].try_into().ok()?;
    let pseudo = checksum::pseudo_header(
        Ipv6Addr::from(source).into(),
        Ipv6Addr::from(destination).into(),
        ICMPV6,
        length,
    );
    if checksum::internet(&[&pseudo, message]) != 0 {
        return None;
    }
    let address: [u8; 16] = message[8..24].try_into().ok()?;
    let mut options = &message[24..];
    while let [kind, units, ..] = options {
        let size = usize::from(*units) * 8;
        if size == 0 || options.len() < size {
            return None;
        }
        if *kind == 2 {
            let mac = options.get(2..8)?.try_into().ok()?;
            return Some(Claim { address: Ipv6Addr::from(address).into(), mac });
        }
        options = &options[size..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = [2, 0, 0, 0xaa, 0xbb, 0xcc];

    #[test]
    fn both_kinds_of_arp_are_read_back_and_differ_only_where_the_rfc_says() {
        let address = Ipv4Addr::new(192, 0, 2, 7);
        let request = gratuitous_arp(MAC, address, Operation::Request);
        let reply = gratuitous_arp(MAC, address, Operation::Reply);
        assert_eq!(claim(&request), Some(Claim { address: address.into(), mac: MAC }));
        assert_eq!(claim(&reply), claim(&request));
        assert_eq!((request[21], reply[21]), (1, 2));
        assert_eq!(&request[32..38], &[0; 6]);
        assert_eq!(&reply[32..38], &MAC);
    }

    #[test]
    fn an_arp_probe_claims_nothing() {
        assert_eq!(claim(&gratuitous_arp(MAC, Ipv4Addr::UNSPECIFIED, Operation::Request)), None);
    }

    #[test]
    fn an_advertisement_is_read_back_and_a_spoilt_or_routed_one_is_not() {
        let address: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let frame = unsolicited_advertisement(MAC, address);
        assert_eq!(claim(&frame), Some(Claim { address: address.into(), mac: MAC }));
        let mut spoilt = frame;
        spoilt[70] ^= 1;
        assert_eq!(claim(&spoilt), None);
        let mut routed = frame;
        routed[21] = 254;
        assert_eq!(claim(&routed), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = claim(&bytes);
        }

        #[test]
        fn a_cut_or_changed_frame_is_read_without_panic(cut in 0usize..86, at in 0usize..86, bit in 0u8..8) {
            let mut frame = unsolicited_advertisement(MAC, Ipv6Addr::LOCALHOST).to_vec();
            frame[at] ^= 1 << bit;
            frame.truncate(cut);
            let _ = claim(&frame);
        }
    }
}
