//! The sockets of a virtual router: adverts out and in, and announcements of an address to the neighbours.

use super::ip::{self, FROM_THIS_LINK};
use super::netlink::Interface;
use crate::sys::{self, LinkAddress, Tell};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};
use std::net::{IpAddr, Ipv4Addr};

/// IP protocol number of VRRP.
const VRRP: u8 = 112;
/// Longest advert: 255 IPv6 addresses and a signature.
const LONGEST: usize = 8 * 1024;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The sockets of one virtual router on one interface, for one family.
#[derive(Debug)]
pub(super) struct Wire {
    interface: Interface,
    source: IpAddr,
    destinations: Vec<IpAddr>,
    /// Named peers; only they are believed. Empty: whoever is on the link.
    peers: Vec<IpAddr>,
    receiver: OwnedFd,
    sender: PacketSender,
    link: OwnedFd,
    buffer: Vec<u8>,
}

/// An advert's bytes, and how they came.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) payload: &'a [u8],
    pub(super) sender: Sender,
}

/// Who an advert came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// Somebody who is believed.
    Peer,
    /// Somebody on this link who is not among the peers.
    Stranger,
    /// Ourselves, another network, or nothing that can be read.
    Nobody,
}

/// Sends packets that were built whole. It receives nothing.
#[derive(Debug)]
pub(super) struct PacketSender {
    socket: OwnedFd,
    interface: u32,
}

// === impl PacketSender ===

impl PacketSender {
    /// A sender on one interface (adverts), or on whichever the route says (words to clients).
    pub(super) fn open(like: IpAddr, interface: Option<&Interface>) -> rustix::io::Result<Self> {
        let socket = rustix::net::socket_with(family(like), SocketType::RAW, FLAGS, Some(ipproto::RAW))?;
        if let Some(interface) = interface {
            sys::bind_to_interface(&socket, &interface.name)?;
        }
        match like {
            IpAddr::V4(_) => sockopt::set_ip_multicast_loop(&socket, false)?,
            IpAddr::V6(_) => sockopt::set_ipv6_multicast_loop(&socket, false)?,
        }
        Ok(Self { socket, interface: interface.map_or(0, |interface| interface.index) })
    }

    pub(super) fn send(&self, packet: &[u8], to: IpAddr) -> rustix::io::Result<()> {
        let to = sys::on_link(to, 0, self.interface);
        rustix::net::sendto(&self.socket, packet, SendFlags::DONTWAIT, &to).map(drop)
    }
}

// === impl Wire ===

impl Wire {
    /// Opens the sockets. `source` is an address of this machine on the interface.
    pub(super) fn open(interface: &Interface, source: IpAddr, peers: &[IpAddr]) -> rustix::io::Result<Self> {
        let receiver = open_receiver(interface, source, peers.is_empty())?;
        let link = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, FLAGS, None)?;
        let destinations = match peers {
            [] => vec![ip::vrrp_group(source)],
            peers => peers.to_vec(),
        };
        Ok(Self {
            sender: PacketSender::open(source, Some(interface))?,
            interface: interface.clone(),
            source,
            destinations,
            peers: peers.to_vec(),
            receiver,
            link,
            buffer: vec![0; LONGEST],
        })
    }

    /// Address that adverts come from.
    pub(super) fn source(&self) -> IpAddr {
        self.source
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Where adverts go: the group, or peer by peer. Their checksum depends on it.
    pub(super) fn destinations(&self) -> &[IpAddr] {
        &self.destinations
    }

    pub(super) fn send(&self, to: IpAddr, advert: &[u8]) -> rustix::io::Result<()> {
        let Some(packet) = ip::packet(self.source, to, VRRP, FROM_THIS_LINK, advert) else {
            return Err(rustix::io::Errno::INVAL);
        };
        self.sender.send(&packet, to)
    }

    /// The next packet that is waiting. One at a time, so that who counts them also counts those that are nothing to us.
    pub(super) fn receive(&mut self) -> rustix::io::Result<Option<Arrived<'_>>> {
        let Some(received) = sys::receive(&self.receiver, &mut self.buffer)? else { return Ok(None) };
        let length = received.length;
        let (from, to, hops, start) = match received.from.ip() {
            IpAddr::V4(from) => match ip::read_ipv4(&self.buffer[..length]) {
                Some(packet) => {
                    let start = length - packet.payload.len();
                    (IpAddr::V4(packet.from), IpAddr::V4(packet.to), Some(packet.hops), start)
                }
                None => (IpAddr::V4(from), self.source, None, length),
            },
            IpAddr::V6(from) => (IpAddr::V6(from), received.to.unwrap_or(self.source), received.hops, 0),
        };
        let sender = if hops != Some(FROM_THIS_LINK) || from == self.source {
            Sender::Nobody
        } else if self.peers.is_empty() || self.peers.contains(&from) {
            Sender::Peer
        } else {
            Sender::Stranger
        };
        Ok(Some(Arrived { from, to, payload: &self.buffer[start..length], sender }))
    }

    /// Sends a frame as it is: announcements of an address.
    pub(super) fn send_frame(&self, frame: &[u8]) -> rustix::io::Result<()> {
        let (Some(mac), Some(kind)) = (frame.first_chunk::<6>(), frame.get(12..14)) else {
            return Err(rustix::io::Errno::INVAL);
        };
        let to = LinkAddress::new(self.interface.index, u16::from_be_bytes([kind[0], kind[1]]), *mac);
        rustix::net::sendto(&self.link, frame, SendFlags::DONTWAIT, &to).map(drop)
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// The address family of a socket for addresses like this one.
pub(super) fn family(like: IpAddr) -> AddressFamily {
    if like.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn open_receiver(interface: &Interface, source: IpAddr, group: bool) -> rustix::io::Result<OwnedFd> {
    let protocol = RawProtocol::new(u32::from(VRRP)).map(Protocol::from_raw);
    let socket = rustix::net::socket_with(family(source), SocketType::RAW, FLAGS, protocol)?;
    sys::bind_to_interface(&socket, &interface.name)?;
    match ip::vrrp_group(source) {
        IpAddr::V4(address) if group => sockopt::set_ip_add_membership_with_ifindex(
            &socket,
            &address,
            &Ipv4Addr::UNSPECIFIED,
            interface.index,
        )?,
        IpAddr::V6(address) if group => {
            sockopt::set_ipv6_add_membership(&socket, &address, interface.index)?;
        }
        _ => {}
    }
    if source.is_ipv6() {
        sys::tell(&socket, Tell::HopsV6)?;
        sys::tell(&socket, Tell::DestinationV6)?;
    }
    Ok(socket)
}
