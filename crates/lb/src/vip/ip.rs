//! IP packets that we build whole: adverts must leave from a chosen address, and a word to the clients of a dead holder must
//! come from the address that it held.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Adverts, BFD and neighbour advertisements are only believed with this: a packet from another network can't have it.
pub(super) const FROM_THIS_LINK: u8 = 255;

const TCP: u8 = 6;
/// Control traffic of the network, as routers mark it.
const CONTROL_CLASS: u8 = 0xC0;
const TCP_ACK: u8 = 0x10;

/// An IPv4 packet as a raw socket hands it over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ipv4Packet<'a> {
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) hops: u8,
    pub(super) payload: &'a [u8],
}

/// A whole packet. `None`: the two addresses are of different families, or it is too long.
pub(super) fn packet(from: IpAddr, to: IpAddr, protocol: u8, hops: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(40 + payload.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = u16::try_from(20 + payload.len()).ok()?;
            bytes.extend([0x45, CONTROL_CLASS]);
            bytes.extend(length.to_be_bytes());
            // Identification, fragment and checksum are the kernel's to fill in.
            bytes.extend([0, 0, 0, 0, hops, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = u16::try_from(payload.len()).ok()?;
            bytes.extend([0x60 | CONTROL_CLASS >> 4, CONTROL_CLASS << 4, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([protocol, hops]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => return None,
    }
    bytes.extend(payload);
    Some(bytes)
}

/// Takes the header off a packet.
pub(super) fn read_ipv4(bytes: &[u8]) -> Option<Ipv4Packet<'_>> {
    let first = *bytes.first()?;
    let header = usize::from(first & 0x0F) * 4;
    if first >> 4 != 4 || header < 20 {
        return None;
    }
    Some(Ipv4Packet {
        hops: *bytes.get(8)?,
        from: Ipv4Addr::from(*bytes.get(12..)?.first_chunk::<4>()?),
        to: Ipv4Addr::from(*bytes.get(16..)?.first_chunk::<4>()?),
        payload: bytes.get(header..)?,
    })
}

/// An acknowledgement that fits no connection, from `service` to `client`. A client that still has a connection there
/// answers with where it stands, the machine that has the address now knows of no such connection, and resets it in the
/// client's own numbers: so nobody needs to know the numbers of the lost connection. `number` is the one that it is sent with:
/// a client that happens to expect just that one takes it for good and says nothing, so the next one is to be far from it.
pub(super) fn stray_acknowledgement(service: SocketAddr, client: SocketAddr, number: u32) -> Option<Vec<u8>> {
    let mut segment = Vec::with_capacity(20);
    segment.extend(service.port().to_be_bytes());
    segment.extend(client.port().to_be_bytes());
    segment.extend(number.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend([0x50, TCP_ACK, 0, 0, 0, 0, 0, 0]);
    let sum = checksum(service.ip(), client.ip(), TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    packet(service.ip(), client.ip(), TCP, 64, &segment)
}

/// The Internet checksum over the pseudo header and a payload.
fn checksum(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> u16 {
    let add = |sum: u32, bytes: &[u8]| {
        bytes.chunks(2).fold(sum, |sum, pair| {
            let low = pair.get(1).copied().unwrap_or(0);
            sum + u32::from(u16::from_be_bytes([pair[0], low]))
        })
    };
    let address = |sum: u32, address: IpAddr| match address {
        IpAddr::V4(v4) => add(sum, &v4.octets()),
        IpAddr::V6(v6) => add(sum, &v6.octets()),
    };
    let mut sum = address(address(u32::from(protocol), from), to) + payload.len() as u32;
    sum = add(sum, payload);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// The address that adverts are sent to when peers are not named one by one.
pub(super) fn vrrp_group(like: IpAddr) -> IpAddr {
    if like.is_ipv4() {
        Ipv4Addr::new(224, 0, 0, 18).into()
    } else {
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_built() {
        let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(224, 0, 0, 18));
        let bytes = packet(from.into(), to.into(), 112, 255, b"hello").unwrap();
        assert_eq!(read_ipv4(&bytes), Some(Ipv4Packet { from, to, hops: 255, payload: b"hello" }));
        assert_eq!(packet(from.into(), Ipv6Addr::LOCALHOST.into(), 112, 255, b""), None);
    }

    #[test]
    fn an_ipv6_header_says_length_protocol_and_hops() {
        let bytes =
            packet(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), 112, 255, b"hello").unwrap();
        assert_eq!(bytes[..8], [0x6C, 0, 0, 0, 0, 5, 112, 255]);
        assert_eq!(bytes.len(), 45);
    }

    #[test]
    fn broken_packets_are_nothing() {
        assert_eq!(read_ipv4(&[]), None);
        assert_eq!(read_ipv4(&[0x45; 19]), None);
        assert_eq!(read_ipv4(&[0x65; 40]), None);
        assert_eq!(read_ipv4(&[0x41; 40]), None, "a header of four bytes");
        assert_eq!(read_ipv4(&[0x4F; 40]), None, "a header longer than the packet");
    }

    #[test]
    fn the_checksum_over_a_segment_with_its_checksum_is_zero() {
        for (service, client) in [("10.0.0.9:6443", "10.0.0.1:40001"), ("[fd00::9]:6443", "[fd00::1]:40001")]
        {
            let (service, client): (SocketAddr, SocketAddr) =
                (service.parse().unwrap(), client.parse().unwrap());
            let packet = stray_acknowledgement(service, client, 7).unwrap();
            let segment = &packet[packet.len() - 20..];
            assert_eq!(checksum(service.ip(), client.ip(), TCP, segment), 0);
            assert_eq!(segment[13], TCP_ACK);
        }
    }
}
