//! Which connections the kernel has, by its socket diagnostics (`sock_diag(7)`): it is told which state and which addresses are
//! wanted, and gives only those. Reading `/proc/net/tcp` instead means having a line written for every connection that ended
//! in the last minute, of which a busy balancer has a hundred thousand; that is left for kernels that have nothing better.

use super::connections::{self, Connection};
use super::netlink::{self, Messages, Request, acknowledged, read_u16};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_REQ_BYTECODE`: the attribute with the filter.
const FILTER: u16 = 1;
const TCP: u8 = 6;
/// The set of states with only `TCP_ESTABLISHED` in it.
const ESTABLISHED: u32 = 1 << 1;

/// Operations of a filter: go on elsewhere; compare the local address.
const JUMP: u8 = 1;
const LOCAL_IS: u8 = 7;
/// An operation without its operand.
const OPERATION: usize = 4;
const ANY_PORT: i32 = -1;
/// So many addresses as offsets have room for, and far more than a machine shares.
const MOST_ADDRESSES: usize = 255;

/// Where the two ends are in an answer: after family, state, timer and retransmissions.
const ENDS: usize = 4;

/// After so many failures in a row it is not tried again.
const PATIENCE: u32 = 3;

/// Finds connections, in the best way that this kernel has.
#[derive(Debug, Default)]
pub(super) struct Looker {
    diag: Option<Diag>,
    failures: u32,
}

/// A socket for questions about sockets.
#[derive(Debug)]
struct Diag {
    socket: OwnedFd,
    sequence: u32,
}

// === impl Looker ===

impl Looker {
    /// Established connections to one of `services`.
    pub(super) fn look(&mut self, services: &[IpAddr]) -> BTreeSet<Connection> {
        if self.failures < PATIENCE {
            match self.ask(services) {
                Ok(found) => {
                    self.failures = 0;
                    return found;
                }
                Err(errno) => {
                    self.diag = None;
                    self.failures += 1;
                    tracing::info!(%errno, "the kernel's socket diagnostics don't answer; /proc is read instead");
                }
            }
        }
        read_tables(services)
    }

    fn ask(&mut self, services: &[IpAddr]) -> rustix::io::Result<BTreeSet<Connection>> {
        let diag = match &mut self.diag {
            Some(diag) => diag,
            none => none.insert(Diag::open()?),
        };
        let mut found = BTreeSet::new();
        // Sockets of a listener for both families are IPv6 ones, whatever their clients are.
        if services.iter().any(IpAddr::is_ipv4) {
            diag.dump(AddressFamily::INET, services, &mut found)?;
        }
        match diag.dump(AddressFamily::INET6, services, &mut found) {
            // A kernel without IPv6 has none.
            Err(Errno::NOENT) if services.iter().all(IpAddr::is_ipv4) => {}
            outcome => outcome?,
        }
        Ok(found)
    }
}

/// The same from the tables that every kernel has.
fn read_tables(services: &[IpAddr]) -> BTreeSet<Connection> {
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        // A kernel without IPv6 has no second table.
        if let Ok(text) = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            connections::read_table(&text, services, &mut found);
        }
    }
    found
}

// === impl Diag ===

impl Diag {
    fn open() -> rustix::io::Result<Self> {
        let socket = netlink::open(Some(SOCK_DIAG), 0, SocketFlags::CLOEXEC)?;
        Ok(Self { socket, sequence: 0 })
    }

    fn dump(
        &mut self,
        family: AddressFamily,
        services: &[IpAddr],
        found: &mut BTreeSet<Connection>,
    ) -> rustix::io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(family, services, self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let (length, _) = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                outcome => outcome?,
            };
            for message in Messages(&buffer[..length]).filter(|message| message.sequence == self.sequence) {
                match message.kind {
                    netlink::DONE => return Ok(()),
                    netlink::ERROR => return acknowledged(message.body),
                    _ => {
                        let connection = read(message.body);
                        found.extend(connection.filter(|found| services.contains(&found.service.ip())));
                    }
                }
            }
        }
    }
}

fn request(family: AddressFamily, services: &[IpAddr], sequence: u32) -> Vec<u8> {
    let [a, b, c, d] = ESTABLISHED.to_ne_bytes();
    let request = Request::new(BY_FAMILY, netlink::DUMP, sequence)
        .body(&[family.as_raw() as u8, TCP, 0, 0, a, b, c, d])
        // Which one, for those who ask for one.
        .body(&[0; 48]);
    // Without a filter all are given, and sorted out here.
    let filter = if services.len() <= MOST_ADDRESSES { filter(services) } else { Vec::new() };
    if filter.is_empty() { request.finish() } else { request.attribute(FILTER, &filter).finish() }
}

/// A program for the kernel that lets sockets pass whose local address is one of these: it runs until its end for those that pass,
/// and beyond it for the others.
fn filter(services: &[IpAddr]) -> Vec<u8> {
    let size = |address: &IpAddr| OPERATION + 8 + if address.is_ipv4() { 4 } else { 16 };
    // After each comparison but the last one, a jump to the end.
    let mut left: usize = services.iter().map(|address| size(address) + OPERATION).sum();
    left = left.saturating_sub(OPERATION);
    let mut program = Vec::with_capacity(left);
    for (index, address) in services.iter().enumerate() {
        let size = size(address);
        program.extend([LOCAL_IS, size as u8]);
        // Otherwise: over the jump to the next one, or over the end.
        program.extend(((size + OPERATION) as u16).to_ne_bytes());
        match address {
            IpAddr::V4(v4) => {
                program.extend([AddressFamily::INET.as_raw() as u8, 32, 0, 0]);
                program.extend(ANY_PORT.to_ne_bytes());
                program.extend(v4.octets());
            }
            IpAddr::V6(v6) => {
                program.extend([AddressFamily::INET6.as_raw() as u8, 128, 0, 0]);
                program.extend(ANY_PORT.to_ne_bytes());
                program.extend(v6.octets());
            }
        }
        left -= size;
        if index + 1 < services.len() {
            program.extend([JUMP, OPERATION as u8]);
            program.extend((left as u16).to_ne_bytes());
            left -= OPERATION;
        }
    }
    program
}

fn read(body: &[u8]) -> Option<Connection> {
    let family = u16::from(*body.first()?);
    let port = |at| read_u16(body, at).map(u16::from_be);
    let end = |at: usize, port| -> Option<SocketAddr> {
        let ip = if family == AddressFamily::INET.as_raw() {
            IpAddr::from(*body.get(at..)?.first_chunk::<4>()?)
        } else {
            // A listener for both families sees IPv4 clients by mapped addresses.
            IpAddr::from(*body.get(at..)?.first_chunk::<16>()?).to_canonical()
        };
        Some(SocketAddr::new(ip, port))
    };
    let service = end(ENDS + 4, port(ENDS)?)?;
    let client = end(ENDS + 20, port(ENDS + 2)?)?;
    Some(Connection { client, service })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, TcpListener, TcpStream};

    /// A connection to an address of this machine, by a listener there.
    fn connect(bind: &str, to: &str) -> (Connection, [TcpStream; 2], TcpListener) {
        let listener = TcpListener::bind(bind).unwrap();
        let to = SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
        let client = TcpStream::connect(to).unwrap();
        let (server, _) = listener.accept().unwrap();
        let connection = Connection { client: client.local_addr().unwrap(), service: to };
        (connection, [client, server], listener)
    }

    #[test]
    fn only_connections_to_the_addresses_that_are_asked_for_are_found() {
        let v4 = connect("127.0.77.1:0", "127.0.77.1");
        let mapped = connect("[::]:0", "127.0.77.2");
        let v6 = connect("[::1]:0", "::1");
        let other = connect("127.0.77.3:0", "127.0.77.3");
        let ask = |services: &[IpAddr]| Looker::default().ask(services).unwrap();
        let (first, second) = (IpAddr::from([127, 0, 77, 1]), IpAddr::from([127, 0, 77, 2]));
        let sixth = IpAddr::from(Ipv6Addr::LOCALHOST);
        assert_eq!(ask(&[first]), BTreeSet::from([v4.0]));
        assert_eq!(ask(&[second]), BTreeSet::from([mapped.0]));
        assert_eq!(ask(&[first, second]), BTreeSet::from([v4.0, mapped.0]));
        let three = ask(&[first, sixth, second]);
        assert!([v4.0, mapped.0, v6.0].iter().all(|connection| three.contains(connection)), "{three:?}");
        assert!(!three.contains(&other.0));
        assert!(ask(&[IpAddr::from([127, 0, 77, 9])]).is_empty());
        // What /proc says is the same.
        assert_eq!(read_tables(&[first, second]), BTreeSet::from([v4.0, mapped.0]));
    }

    #[test]
    fn many_addresses_are_asked_for_at_once_and_more_than_fit_one_by_one() {
        let (one, _streams, _listener) = connect("127.0.78.200:0", "127.0.78.200");
        for count in [MOST_ADDRESSES, MOST_ADDRESSES + 1] {
            let services: Vec<IpAddr> = (0..count).map(|n| IpAddr::from([127, 0, 78, n as u8])).collect();
            assert_eq!(Looker::default().ask(&services).unwrap(), BTreeSet::from([one]), "{count}");
        }
    }

    #[test]
    fn a_connection_that_has_ended_is_not_found() {
        let (one, [client, server], _listener) = connect("127.0.79.1:0", "127.0.79.1");
        let service = [one.service.ip()];
        let mut looker = Looker::default();
        assert_eq!(looker.look(&service).len(), 1);
        drop((client, server));
        assert!(looker.look(&service).is_empty());
    }

    #[test]
    fn a_kernel_that_does_not_answer_is_asked_three_times_and_its_tables_are_read() {
        let (one, _streams, _listener) = connect("127.0.80.1:0", "127.0.80.1");
        let mut looker = Looker { failures: PATIENCE, ..Looker::default() };
        assert_eq!(looker.look(&[one.service.ip()]), BTreeSet::from([one]));
        assert!(looker.diag.is_none(), "it was not asked");
        // A socket of another kind gives an error for an answer.
        let socket = netlink::open(None, 0, SocketFlags::CLOEXEC).unwrap();
        let mut looker = Looker { diag: Some(Diag { socket, sequence: 0 }), failures: 0 };
        assert_eq!(looker.look(&[one.service.ip()]), BTreeSet::from([one]));
        assert_eq!(looker.failures, 1);
        assert_eq!(looker.look(&[one.service.ip()]), BTreeSet::from([one]));
        assert_eq!(looker.failures, 0, "it is asked again by another socket");
    }

    #[test]
    fn answers_that_are_cut_are_not_read() {
        for length in 0..ENDS + 36 {
            let _ = read(&vec![10; length]);
        }
        assert!(read(&[2; 20]).is_none());
    }
}
