//! The system calls that rustix has no safe form of: a few socket options, link-layer addresses, the hop limit of a received
//! packet, and the real-time scheduler. All `unsafe` of this crate is here, each block with its reason.
#![allow(unsafe_code, reason = "the only door to these system calls; see each block")]

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SocketAddrAny};
use std::io::IoSliceMut;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Room for the hop limit and the destination of a packet, aligned as the kernel's headers are.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

const CONTROL: usize = 128;
/// From the kernel's `in6.h`.
const IPV6_MINHOPCOUNT: i32 = 73;

/// A packet that was received, and what its header said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// Bytes of it that are in the buffer.
    pub(super) length: usize,
    /// Who sent it.
    pub(super) from: SocketAddr,
    /// Its time to live or hop limit, where the socket was asked to tell.
    pub(super) hops: Option<u8>,
    /// The address that it was sent to, where the socket was asked to tell.
    pub(super) to: Option<IpAddr>,
}

/// A receiver on a network interface: `sockaddr_ll`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkAddress(libc::sockaddr_ll);

/// Which option of a received packet the kernel shall tell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tell {
    HopsV4,
    HopsV6,
    DestinationV6,
}

// === impl LinkAddress ===

impl LinkAddress {
    pub(super) fn new(interface: u32, protocol: u16, mac: [u8; 6]) -> Self {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&mac);
        Self(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: interface as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: address,
        })
    }
}

// SAFETY: the closure gets a pointer to a whole, initialised `sockaddr_ll` that lives as long as `self`, and its true size.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f((&raw const self.0).cast(), size_of::<libc::sockaddr_ll>() as SocketAddrLen)
    }
}

fn set_option(fd: impl AsFd, level: i32, option: i32, value: &[u8]) -> rustix::io::Result<()> {
    // SAFETY: pointer and length are those of one live slice; the kernel only reads it, and refuses a length it can't use.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Only what comes in by this interface is received, and everything goes out by it.
pub(super) fn bind_to_interface(fd: impl AsFd, interface: &str) -> rustix::io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())
}

/// Has the kernel tell something about every received packet.
pub(super) fn tell(fd: impl AsFd, what: Tell) -> rustix::io::Result<()> {
    let (level, option) = match what {
        Tell::HopsV4 => (libc::IPPROTO_IP, libc::IP_RECVTTL),
        Tell::HopsV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        Tell::DestinationV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set_option(fd, level, option, &1_i32.to_ne_bytes())
}

/// Connections from another network are dropped: their packets can't have come with the highest hop limit.
pub(super) fn only_from_this_link(fd: impl AsFd, like: IpAddr) -> rustix::io::Result<()> {
    let (level, option) = match like {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT),
    };
    set_option(fd, level, option, &255_i32.to_ne_bytes())
}

/// One packet, if one is waiting.
pub(super) fn receive(fd: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Option<Received>> {
    let mut control = Control([MaybeUninit::new(0); CONTROL]);
    let message = {
        let mut ancillary = RecvAncillaryBuffer::new(&mut control.0);
        let slices = &mut [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(fd, slices, &mut ancillary, RecvFlags::DONTWAIT)
    };
    let message = match message {
        Ok(message) => message,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let Some(from) = message.address.and_then(socket_address) else { return Ok(None) };
    // SAFETY: every byte was set when the array was made, and the kernel only ever writes bytes over them.
    let control = control.0.map(|byte| unsafe { byte.assume_init() });
    let mut received = Received { length: message.bytes, from, hops: None, to: None };
    read_control(&control, &mut received);
    Ok(Some(received))
}

fn socket_address(address: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(address).ok()
}

#[cfg(not(target_pointer_width = "64"))]
compile_error!("control messages are read as 64-bit kernels lay them out");

/// The control messages: a length, a level, a type, then the value; each starts at a multiple of eight.
fn read_control(control: &[u8], received: &mut Received) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let number = |bytes: &[u8]| bytes.first_chunk().map(|b| i32::from_ne_bytes(*b));
    let mut rest = control;
    while let Some(length) = rest.first_chunk().map(|b| usize::from_ne_bytes(*b)) {
        if length < HEADER || length > rest.len() {
            return;
        }
        let value = &rest[HEADER..length];
        match (number(&rest[8..]), number(&rest[12..])) {
            (Some(libc::IPPROTO_IP), Some(libc::IP_TTL))
            | (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_HOPLIMIT)) => {
                received.hops = number(value).and_then(|hops| u8::try_from(hops).ok());
            }
            (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_PKTINFO)) => {
                received.to = value.first_chunk::<16>().map(|b| IpAddr::V6(Ipv6Addr::from(*b)));
            }
            _ => {}
        }
        let next = length.next_multiple_of(8);
        if next >= rest.len() {
            return;
        }
        rest = &rest[next..];
    }
}

/// Puts the calling thread before all ordinary ones, so that adverts leave in time on a busy machine. Threads that it
/// starts are ordinary again.
pub(super) fn be_realtime() -> rustix::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 means the calling thread; the pointer is to a live value that the kernel only reads.
    let outcome = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// The address of a peer on a link: link-local IPv6 addresses mean nothing without the interface.
pub(super) fn on_link(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V4(v4) => SocketAddr::from((v4, port)),
        IpAddr::V6(v6) => {
            let scope = if v6.is_unicast_link_local() || v6.is_multicast() { interface } else { 0 };
            SocketAddr::V6(std::net::SocketAddrV6::new(v6, port, 0, scope))
        }
    }
}

/// Whether two addresses are of the same family.
pub(super) fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// Any address of the same family.
pub(super) fn unspecified(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};

    #[test]
    fn the_hop_limit_and_the_destination_of_a_packet_are_told() {
        let receiver = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
        rustix::net::bind(&receiver, &SocketAddr::from((Ipv6Addr::LOCALHOST, 0))).unwrap();
        tell(&receiver, Tell::HopsV6).unwrap();
        tell(&receiver, Tell::DestinationV6).unwrap();
        let to = SocketAddr::try_from(rustix::net::getsockname(&receiver).unwrap()).unwrap();
        let sender = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        rustix::net::sockopt::set_ipv6_unicast_hops(&sender, Some(255)).unwrap();
        let mut buffer = [0; 16];
        assert!(receive(&receiver, &mut buffer).unwrap().is_none(), "nothing is waiting yet");
        sender.send_to(b"hello", to).unwrap();
        let received = receive(&receiver, &mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..received.length], b"hello");
        assert_eq!(received.from, sender.local_addr().unwrap());
        assert_eq!((received.hops, received.to), (Some(255), Some(IpAddr::V6(Ipv6Addr::LOCALHOST))));
    }

    #[test]
    fn control_messages_that_are_cut_end_the_reading() {
        let mut received =
            Received { length: 0, from: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), hops: None, to: None };
        let mut control = vec![0_u8; 24];
        control[..8].copy_from_slice(&200_usize.to_ne_bytes());
        read_control(&control, &mut received);
        control[..8].copy_from_slice(&3_usize.to_ne_bytes());
        read_control(&control, &mut received);
        assert_eq!((received.hops, received.to), (None, None));
    }
}
