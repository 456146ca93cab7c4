//! The system calls that rustix has no safe form of: a few socket options, link-layer addresses, the hop limit of a received
//! packet, how much of what was sent has not arrived, and two wishes to the scheduler. All `unsafe` of this crate is here,
//! each block with its reason.
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
/// In nanoseconds. Measured beside 0.1 ms, which costs connections per second.
const SHORT_TURN: u64 = 1_000_000;

/// A packet that was received, and what its header said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// Bytes of it that are in the buffer.
    pub(crate) length: usize,
    /// Who sent it.
    pub(crate) from: SocketAddr,
    /// Its time to live or hop limit, where the socket was asked to tell.
    pub(crate) hops: Option<u8>,
    /// The address that it was sent to, where the socket was asked to tell.
    pub(crate) to: Option<IpAddr>,
}

/// A receiver on a network interface: `sockaddr_ll`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkAddress(libc::sockaddr_ll);

/// Which option of a received packet the kernel shall tell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tell {
    HopsV4,
    HopsV6,
    DestinationV4,
    DestinationV6,
}

// === impl LinkAddress ===

impl LinkAddress {
    pub(crate) fn new(interface: u32, protocol: u16, mac: [u8; 6]) -> Self {
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
pub(crate) fn bind_to_interface(fd: impl AsFd, interface: &str) -> rustix::io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())
}

/// Only packets that this program lets pass are received.
pub(crate) fn attach_filter(fd: impl AsFd, steps: &[libc::sock_filter]) -> rustix::io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, steps)
}

/// This program says which of the sockets that share an address gets a new connection, by its number.
pub(crate) fn attach_steering(fd: impl AsFd, steps: &[libc::sock_filter]) -> rustix::io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, steps)
}

fn attach(fd: impl AsFd, option: i32, steps: &[libc::sock_filter]) -> rustix::io::Result<()> {
    let length = u16::try_from(steps.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: steps.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program during the call and writes nothing to it; pointer and length are those of one live
    // slice, and the size is that of the value which carries them.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// Has the kernel tell something about every received packet.
pub(crate) fn tell(fd: impl AsFd, what: Tell) -> rustix::io::Result<()> {
    let (level, option) = match what {
        Tell::HopsV4 => (libc::IPPROTO_IP, libc::IP_RECVTTL),
        Tell::HopsV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
        Tell::DestinationV4 => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        Tell::DestinationV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set_option(fd, level, option, &1_i32.to_ne_bytes())
}

/// Connections from another network are dropped: their packets can't have come with the highest hop limit.
pub(crate) fn only_from_this_link(fd: impl AsFd, like: IpAddr) -> rustix::io::Result<()> {
    let (level, option) = match like {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT),
    };
    set_option(fd, level, option, &255_i32.to_ne_bytes())
}

/// One packet, if one is waiting.
pub(crate) fn receive(fd: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Option<Received>> {
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
            // The interface, the address that would answer, and the one that was asked.
            (Some(libc::IPPROTO_IP), Some(libc::IP_PKTINFO)) => {
                let asked = value.get(8..).and_then(|rest| rest.first_chunk::<4>());
                received.to = asked.map(|b| IpAddr::V4(Ipv4Addr::from(*b)));
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

/// How many of the bytes that were written to a connection the other side's kernel has not confirmed yet.
pub(crate) fn unacknowledged(fd: impl AsFd) -> rustix::io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: for a socket this is `SIOCOUTQ`, which writes one `int`, to a live value of that type.
    let outcome = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if outcome == 0 { Ok(usize::try_from(count).unwrap_or(0)) } else { Err(last_error()) }
}

/// Puts the calling thread before all ordinary ones, so that adverts leave in time on a busy machine. Threads that it
/// starts are ordinary again.
pub(crate) fn be_realtime() -> rustix::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 means the calling thread; the pointer is to a live value that the kernel only reads.
    let outcome = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// Gives the calling thread shorter turns on its core, and more of them: two threads that share a core then wait for each
/// other's connections for a millisecond at most, not for the 4 ms of a tick. Its share of the core stays the same, and
/// so does its nice value. Kernels before 6.12 take it and do nothing.
pub(crate) fn take_short_turns() -> rustix::io::Result<()> {
    let mut attributes = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: 0 means the calling thread; the kernel writes at most `size` bytes to a live value of that size.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if outcome != 0 {
        return Err(last_error());
    }
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].map(i32::cast_unsigned).contains(&attributes.sched_policy) {
        // Somebody has chosen another scheduler for it, where this has another meaning.
        return Ok(());
    }
    attributes.sched_runtime = SHORT_TURN;
    // SAFETY: 0 means the calling thread; the pointer is to a live value that the kernel only reads.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 { Ok(()) } else { Err(last_error()) }
}

/// The address of a peer on a link: link-local IPv6 addresses mean nothing without the interface.
pub(crate) fn on_link(address: IpAddr, port: u16, interface: u32) -> SocketAddr {
    match address {
        IpAddr::V4(v4) => SocketAddr::from((v4, port)),
        IpAddr::V6(v6) => {
            let scope = if v6.is_unicast_link_local() || v6.is_multicast() { interface } else { 0 };
            SocketAddr::V6(std::net::SocketAddrV6::new(v6, port, 0, scope))
        }
    }
}

/// Whether two addresses are of the same family.
pub(crate) fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// Any address of the same family.
pub(crate) fn unspecified(like: IpAddr) -> IpAddr {
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
    fn the_destination_of_an_ipv4_packet_is_told() {
        let receiver = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        rustix::net::bind(&receiver, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
        tell(&receiver, Tell::HopsV4).unwrap();
        tell(&receiver, Tell::DestinationV4).unwrap();
        let port = SocketAddr::try_from(rustix::net::getsockname(&receiver).unwrap()).unwrap().port();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = Ipv4Addr::new(127, 0, 0, 7);
        sender.send_to(b"hello", (to, port)).unwrap();
        let received = receive(&receiver, &mut [0; 16]).unwrap().unwrap();
        assert_eq!((received.length, received.to), (5, Some(IpAddr::V4(to))));
        assert!(received.hops.is_some());
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

    #[test]
    fn short_turns_are_taken_without_any_right() {
        let attempt = std::thread::spawn(take_short_turns).join();
        assert!(matches!(attempt, Ok(Ok(()))), "{attempt:?}");
    }
}
