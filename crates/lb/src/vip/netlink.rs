//! The kernel's routing netlink: which interfaces and addresses there are, putting an address on an interface and taking it
//! off again, and hearing of changes. Messages are built and read by hand: we need six kinds of them.

use crate::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Marks an address as put there by us (`IFA_PROTO`), so that a later life knows which ones it may take off.
const OURS: u8 = 0xB7;

const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
pub(super) const ERROR: u16 = 2;
pub(super) const DONE: u16 = 3;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
pub(super) const DUMP: u16 = 0x300;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;

const OUR_GROUPS: u32 = GROUP_LINK | GROUP_IPV4_ADDRESS | GROUP_IPV6_ADDRESS;
const GROUP_LINK: u32 = 0x1;
const GROUP_IPV4_ADDRESS: u32 = 0x10;
const GROUP_IPV6_ADDRESS: u32 = 0x100;

const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const CACHE_INFO: u16 = 6;
const FLAGS: u16 = 8;
const PROTOCOL: u16 = 11;

const IS_UP: u32 = 0x1;
const HAS_CARRIER: u32 = 0x1_0000;
const NO_DUPLICATE_DETECTION: u32 = 0x02;
const TENTATIVE: u32 = 0x40;
const FOREVER: u32 = u32::MAX;

/// The kernel answers while it is asked. An answer that is not there by then was lost, and the thread that waits for it sends adverts.
const ANSWERS_WITHIN: Duration = Duration::from_millis(300);

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mac: [u8; 6],
    /// Switched on, and with a carrier.
    pub(super) up: bool,
}

/// An address on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
    /// Put there by us, in this life or an earlier one.
    pub(super) ours: bool,
    /// Not usable yet: the kernel still asks whether someone else has it.
    pub(super) tentative: bool,
    /// Seconds after which the kernel takes it off by itself, when it was last told of; none: it stays.
    pub(super) lifetime: Option<u32>,
}

/// What the kernel says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Link(Interface),
    LinkGone(u32),
    Address(Assigned),
    AddressGone(Assigned),
}

/// Asks and changes.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// Hears of changes.
#[derive(Debug)]
pub(super) struct Monitor {
    socket: OwnedFd,
}

/// What a monitor heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Changes(Vec<Change>),
    /// There was more than the kernel kept for us: look again at everything.
    Lost,
}

/// A request that is being built.
pub(super) struct Request(Vec<u8>);

// === impl Request ===

impl Request {
    pub(super) fn new(kind: u16, flags: u16, sequence: u32) -> Self {
        let mut bytes = Vec::with_capacity(96);
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0_u32.to_ne_bytes());
        Self(bytes)
    }

    pub(super) fn body(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(((value.len() + 4) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

// === impl Netlink ===

impl Netlink {
    pub(super) fn open() -> rustix::io::Result<Self> {
        Ok(Self { socket: open(None, 0, SocketFlags::CLOEXEC)?, sequence: 0 })
    }

    pub(super) fn interfaces(&mut self) -> rustix::io::Result<Vec<Interface>> {
        let request = Request::new(GET_LINK, DUMP, self.next()).body(&[0; 16]).finish();
        let mut found = Vec::new();
        self.exchange(&request, |change| {
            if let Change::Link(interface) = change {
                found.push(interface);
            }
        })?;
        Ok(found)
    }

    pub(super) fn addresses(&mut self) -> rustix::io::Result<Vec<Assigned>> {
        let request = Request::new(GET_ADDRESS, DUMP, self.next()).body(&[0; 8]).finish();
        let mut found = Vec::new();
        self.exchange(&request, |change| {
            if let Change::Address(assigned) = change {
                found.push(assigned);
            }
        })?;
        Ok(found)
    }

    /// Puts an address on an interface. It is usable at once, and never chosen as the source of this machine's own
    /// connections. One that is there already is fine, and stays for another `lifetime`, in seconds: after that the kernel takes it
    /// off by itself, whatever has become of us.
    pub(super) fn add_address(
        &mut self,
        interface: u32,
        address: IpAddr,
        prefix: u8,
        lifetime: u32,
    ) -> rustix::io::Result<()> {
        let request = self.address_request(
            NEW_ADDRESS,
            ACK | CREATE | REPLACE,
            interface,
            address,
            prefix,
            NO_DUPLICATE_DETECTION as u8,
        );
        // Deprecated from the start: an IPv6 address would else be a candidate for the source of new connections.
        let preferred = if address.is_ipv6() { 0 } else { lifetime };
        let lifetimes = [preferred, lifetime, 0, 0].map(u32::to_ne_bytes).concat();
        let request = request
            .attribute(CACHE_INFO, &lifetimes)
            .attribute(FLAGS, &NO_DUPLICATE_DETECTION.to_ne_bytes())
            .attribute(PROTOCOL, &[OURS])
            .finish();
        match self.exchange(&request, |_| ()) {
            Err(Errno::EXIST) => Ok(()),
            outcome => outcome,
        }
    }

    /// Takes an address off an interface. One that is not there is fine, and so is an interface that is gone.
    pub(super) fn delete_address(
        &mut self,
        interface: u32,
        address: IpAddr,
        prefix: u8,
    ) -> rustix::io::Result<()> {
        let request = self.address_request(DELETE_ADDRESS, ACK, interface, address, prefix, 0).finish();
        match self.exchange(&request, |_| ()) {
            Err(Errno::ADDRNOTAVAIL | Errno::NODEV) => Ok(()),
            outcome => outcome,
        }
    }

    fn address_request(
        &mut self,
        kind: u16,
        flags: u16,
        interface: u32,
        address: IpAddr,
        prefix: u8,
        address_flags: u8,
    ) -> Request {
        let (family, bytes) = match address {
            IpAddr::V4(v4) => (AddressFamily::INET, v4.octets().to_vec()),
            IpAddr::V6(v6) => (AddressFamily::INET6, v6.octets().to_vec()),
        };
        let [a, b, c, d] = interface.to_ne_bytes();
        Request::new(kind, flags, self.next())
            .body(&[family.as_raw() as u8, prefix, address_flags, 0, a, b, c, d])
            .attribute(LOCAL, &bytes)
            .attribute(ADDRESS, &bytes)
    }

    fn next(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Sends a request and hands on what comes back, until the kernel says that this was all.
    fn exchange(&mut self, request: &[u8], mut take: impl FnMut(Change)) -> rustix::io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, request, SendFlags::empty(), &kernel)?;
        let mut buffer = vec![0; 32 * 1024];
        let end = Instant::now() + ANSWERS_WITHIN;
        loop {
            let (length, _) = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR | Errno::AGAIN) if Instant::now() < end => continue,
                Err(Errno::INTR | Errno::AGAIN) => return Err(NO_ANSWER),
                outcome => outcome?,
            };
            for message in Messages(&buffer[..length]) {
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    DONE => return Ok(()),
                    ERROR => return acknowledged(message.body),
                    _ => {
                        if let Some(change) = read_change(&message) {
                            take(change);
                        }
                    }
                }
            }
        }
    }
}

/// The kernel's answer to a request did not come.
pub(super) const NO_ANSWER: Errno = Errno::TIMEDOUT;

/// An error of a request, in words.
pub(super) fn told(errno: Errno) -> String {
    match errno {
        NO_ANSWER => format!("the kernel (netlink) did not answer within {} ms", ANSWERS_WITHIN.as_millis()),
        Errno::PERM => "NET_ADMIN is missing".to_owned(),
        errno => errno.to_string(),
    }
}

/// What the kernel says of a request as a whole.
pub(super) fn acknowledged(body: &[u8]) -> rustix::io::Result<()> {
    match body.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw_os_error(-code)),
        None => Err(Errno::IO),
    }
}

/// No protocol means the first one: routing. Nobody waits at it for longer than an answer may take.
pub(super) fn open(
    protocol: Option<Protocol>,
    groups: u32,
    flags: SocketFlags,
) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWERS_WITHIN))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

// === impl Monitor ===

impl Monitor {
    pub(super) fn open() -> rustix::io::Result<Self> {
        Ok(Self { socket: open(None, OUR_GROUPS, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)? })
    }

    /// What has happened since the last call.
    pub(super) fn heard(&self) -> rustix::io::Result<Heard> {
        let mut changes = Vec::new();
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => {
                    changes.extend(Messages(&buffer[..length]).filter_map(|message| read_change(&message)));
                }
                Err(Errno::AGAIN) => return Ok(Heard::Changes(changes)),
                Err(Errno::NOBUFS) => return Ok(Heard::Lost),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One message in a buffer of several.
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let bytes = self.0;
        let length = read_u32(bytes, 0)? as usize;
        if length < 16 || length > bytes.len() {
            return None;
        }
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind: read_u16(bytes, 4)?, sequence: read_u32(bytes, 8)?, body: &bytes[16..length] })
    }
}

struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let bytes = self.0;
        let length = usize::from(read_u16(bytes, 0)?);
        if length < 4 || length > bytes.len() {
            return None;
        }
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((read_u16(bytes, 2)?, &bytes[4..length]))
    }
}

pub(super) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn read_change(message: &Message<'_>) -> Option<Change> {
    match message.kind {
        // Of a family: what a bridge says of its ports. One that leaves it is still there.
        NEW_LINK | DELETED_LINK if message.body.first() != Some(&0) => None,
        NEW_LINK => read_link(message.body).map(Change::Link),
        DELETED_LINK => read_u32(message.body, 4).map(Change::LinkGone),
        NEW_ADDRESS => read_address(message.body).map(Change::Address),
        DELETE_ADDRESS => read_address(message.body).map(Change::AddressGone),
        _ => None,
    }
}

fn read_link(body: &[u8]) -> Option<Interface> {
    let flags = read_u32(body, 8)?;
    let up = flags & (IS_UP | HAS_CARRIER) == IS_UP | HAS_CARRIER;
    let mut interface = Interface { index: read_u32(body, 4)?, name: String::new(), mac: [0; 6], up };
    for (kind, value) in Attributes(body.get(16..)?) {
        match kind {
            LINK_NAME => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            LINK_ADDRESS => {
                if let Some(mac) = value.first_chunk() {
                    interface.mac = *mac;
                }
            }
            _ => {}
        }
    }
    Some(interface)
}

fn read_address(body: &[u8]) -> Option<Assigned> {
    let (prefix, interface) = (*body.get(1)?, read_u32(body, 4)?);
    let mut flags = u32::from(*body.get(2)?);
    let (mut address, mut local, mut ours, mut lifetime) = (None, None, false, None);
    for (kind, value) in Attributes(body.get(8..)?) {
        match kind {
            ADDRESS => address = ip_address(value),
            LOCAL => local = ip_address(value),
            FLAGS => flags = read_u32(value, 0)?,
            PROTOCOL => ours = value == [OURS],
            // First how long it is preferred, then how long it is there.
            CACHE_INFO => lifetime = read_u32(value, 4).filter(|seconds| *seconds != FOREVER),
            _ => {}
        }
    }
    let tentative = flags & TENTATIVE != 0;
    // On a point-to-point link the first is the other side's.
    Some(Assigned { interface, address: local.or(address)?, prefix, ours, tentative, lifetime })
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
        16 => bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
        _ => None,
    }
}

/// The address that packets of a virtual router come from: one of this machine's own on that interface, of the same
/// family as the virtual ones. IPv6 routers speak from their link-local address, unless their peers are elsewhere.
pub(super) fn source_address(
    assigned: &[Assigned],
    interface: u32,
    virtual_addresses: &[IpAddr],
    peers: &[IpAddr],
) -> Option<IpAddr> {
    let like = *virtual_addresses.first()?;
    let is_link_local = |address: IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let wants_link_local = peers.iter().all(|peer| is_link_local(*peer));
    let usable = assigned
        .iter()
        .filter(|a| a.interface == interface && sys::same_family(a.address, like))
        .filter(|a| !a.ours && !a.tentative && !virtual_addresses.contains(&a.address))
        .filter(|a| a.address.is_ipv4() || is_link_local(a.address) == wants_link_local);
    // Peers know us by the address in their network; a bare one may be another virtual router's.
    let near =
        |a: &&Assigned| peers.iter().any(|peer| network(a.address, a.prefix) == network(*peer, a.prefix));
    let bare = |a: &&Assigned| a.prefix == if a.address.is_ipv4() { 32 } else { 128 };
    usable.min_by_key(|a| (!near(a), bare(a))).map(|a| a.address)
}

/// The part of an address that its prefix covers.
fn network(address: IpAddr, prefix: u8) -> (bool, u128) {
    let (bits, most) = match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let rest = u32::from(most - prefix.min(most));
    (address.is_ipv4(), bits.checked_shr(rest).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_and_its_address_are_found() {
        let mut netlink = Netlink::open().unwrap();
        let interfaces = netlink.interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        let addresses = netlink.addresses().unwrap();
        let own = addresses.iter().find(|a| a.address == IpAddr::from([127, 0, 0, 1])).unwrap();
        assert_eq!((own.interface, own.prefix, own.ours), (loopback.index, 8, false));
    }

    #[test]
    fn requests_are_laid_out_as_the_kernel_reads_them() {
        let request =
            Request::new(NEW_ADDRESS, ACK, 7).body(&[2, 32, 0, 0]).attribute(PROTOCOL, &[OURS]).finish();
        let message = Messages(&request).next().unwrap();
        assert_eq!((message.kind, message.sequence, message.body.len()), (NEW_ADDRESS, 7, 12));
        let attributes: Vec<_> = Attributes(&message.body[4..]).collect();
        assert_eq!(attributes, [(PROTOCOL, &[OURS][..])]);
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for() {
        const NOTHING: u16 = 1;
        let mut netlink = Netlink::open().unwrap();
        let sequence = netlink.next();
        // The kernel answers this only where an answer is asked for.
        let request = Request::new(NOTHING, 0, sequence).finish();
        assert_eq!(netlink.exchange(&request, |_| ()), Err(NO_ANSWER));
        assert!(told(NO_ANSWER).contains("did not answer"));
        // One that comes late is not taken for that of the next request.
        assert!(!netlink.interfaces().unwrap().is_empty());
    }

    #[test]
    fn broken_messages_end_the_reading() {
        assert!(Messages(&[5, 0, 0, 0]).next().is_none());
        assert!(Messages(&[255; 20]).next().is_none());
        assert!(Attributes(&[3, 0, 1, 0]).next().is_none());
        assert!(read_link(&[0; 4]).is_none());
        assert!(read_address(&[0; 8]).is_none());
    }

    #[test]
    fn a_router_speaks_from_an_address_of_its_own() {
        let assigned = |address: &str, ours| Assigned {
            interface: 2,
            address: address.parse().unwrap(),
            prefix: 24,
            ours,
            tentative: false,
            lifetime: None,
        };
        let all = [
            assigned("10.0.0.9", true),
            assigned("10.0.0.2", false),
            assigned("fd00::2", false),
            assigned("fe80::2", false),
        ];
        let source = |vips: &[&str], peers: &[&str]| {
            let parse = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<IpAddr>>();
            source_address(&all, 2, &parse(vips), &parse(peers)).map(|a| a.to_string())
        };
        assert_eq!(source(&["10.0.0.9"], &[]).as_deref(), Some("10.0.0.2"));
        assert_eq!(source(&["10.0.0.2"], &[]), None, "a virtual address is never a source");
        assert_eq!(source(&["fd00::9"], &[]).as_deref(), Some("fe80::2"));
        assert_eq!(source(&["fd00::9"], &["fd00::3"]).as_deref(), Some("fd00::2"));
    }

    #[test]
    fn of_several_addresses_it_speaks_from_the_one_that_its_peers_know() {
        let assigned = |address: &str, prefix| Assigned {
            interface: 2,
            address: address.parse().unwrap(),
            prefix,
            ours: false,
            tentative: false,
            lifetime: None,
        };
        let all = [
            assigned("10.0.0.77", 32),
            assigned("10.0.0.2", 24),
            assigned("192.0.2.2", 24),
            assigned("fd00::2", 64),
            assigned("fd01::2", 64),
        ];
        let source = |vip: &str, peers: &[&str]| {
            let peers: Vec<IpAddr> = peers.iter().map(|a| a.parse().unwrap()).collect();
            source_address(&all, 2, &[vip.parse().unwrap()], &peers).map(|a| a.to_string())
        };
        assert_eq!(source("192.0.2.100", &["192.0.2.3"]).as_deref(), Some("192.0.2.2"));
        assert_eq!(source("10.0.0.100", &["10.0.0.3"]).as_deref(), Some("10.0.0.2"));
        assert_eq!(
            source("10.0.0.100", &["203.0.113.1"]).as_deref(),
            Some("10.0.0.2"),
            "of none: not the bare one"
        );
        assert_eq!(source("fd01::9", &["fd01::3"]).as_deref(), Some("fd01::2"));
    }

    #[test]
    fn what_a_bridge_says_of_its_ports_is_not_about_the_interface() {
        let of_family = |family: u8| {
            let mut body = vec![0; 16];
            body[0] = family;
            body[4] = 7;
            read_change(&Message { kind: DELETED_LINK, sequence: 0, body: &body })
        };
        assert_eq!(of_family(0), Some(Change::LinkGone(7)));
        assert_eq!(of_family(7), None);
    }
}
