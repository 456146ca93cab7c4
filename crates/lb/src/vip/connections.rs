//! Which connections the holder of a virtual address has, so that its peers can tell the clients when it dies.
//!
//! The kernel's own table is read, not ours: so the connections of a kube-apiserver that listens on the virtual address by
//! itself are there as well. The holder sends what changed several times a second, and with it a part of the rest, so that
//! everything has been said after a few seconds; a peer forgets what it has not heard of for a while, so a lost datagram mends
//! itself. Never more at once than sockets hold: what overflows would be the same part each time.
//!
//! ```text
//! datagram   "BLBC" 1 router-id  count(u16)  then per connection:  0 gone | 1 open, 4 | 6, client ip, port, service ip, port
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Bound;

const MAGIC: [u8; 4] = *b"BLBC";
const VERSION: u8 = 1;
/// Fits into one packet of an ordinary network, also with IPv6 and a signature.
const PER_DATAGRAM: usize = 32;
/// As many as a peer remembers for one router: a limit against a flood of made-up ones.
pub(super) const MOST: usize = 200_000;

/// At most so many in one go.
const AT_ONCE: usize = 8192;
/// Microseconds in which everything is said again.
const EVERYTHING_EVERY: u64 = 3_000_000;
/// Microseconds after which a peer forgets what it has not heard of.
const FORGET_AFTER: u64 = 10_000_000;

/// A client's connection to a service on a virtual address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Connection {
    pub(super) client: SocketAddr,
    pub(super) service: SocketAddr,
}

/// The holder's side: what the peers have been told.
#[derive(Debug, Default)]
pub(super) struct Reported {
    told: BTreeSet<Connection>,
    /// The last one that was said again, and when.
    repeated: Option<Connection>,
    repeated_at: u64,
}

/// A peer's side: what the holder has told, and when.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    heard: BTreeMap<Connection, u64>,
}

/// One line of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) open: bool,
    pub(super) connection: Connection,
}

// === impl Reported ===

impl Reported {
    /// The datagrams that bring the peers up to date.
    pub(super) fn datagrams(
        &mut self,
        router_id: u8,
        current: BTreeSet<Connection>,
        now: u64,
    ) -> Vec<Vec<u8>> {
        let gone =
            self.told.difference(&current).take(AT_ONCE).map(|c| Entry { open: false, connection: *c });
        let mut entries: Vec<Entry> = gone.collect();
        let room = AT_ONCE - entries.len();
        let new = current.difference(&self.told).take(room).map(|c| Entry { open: true, connection: *c });
        entries.extend(new);
        let changes = entries.len();
        let repeated = self.repeat(&current, AT_ONCE - changes, now);
        for Entry { open, connection } in &entries {
            if *open {
                self.told.insert(*connection)
            } else {
                self.told.remove(connection)
            };
        }
        entries.extend(repeated.into_iter().map(|connection| Entry { open: true, connection }));
        entries.chunks(PER_DATAGRAM).map(|entries| encode(router_id, entries)).collect()
    }

    /// The part of what was told before that is due to be said again.
    fn repeat(&mut self, current: &BTreeSet<Connection>, room: usize, now: u64) -> Vec<Connection> {
        let since = now.saturating_sub(self.repeated_at).min(EVERYTHING_EVERY);
        let due = (current.len() as u64 * since).div_ceil(EVERYTHING_EVERY) as usize;
        let due = due.min(room).min(current.len());
        if due == 0 {
            return Vec::new();
        }
        self.repeated_at = now;
        let after = self.repeated.map_or(Bound::Unbounded, Bound::Excluded);
        let part = current.range((after, Bound::Unbounded)).chain(current);
        let part: Vec<Connection> = part.take(due).copied().collect();
        self.repeated = part.last().copied();
        part.into_iter().filter(|connection| self.told.contains(connection)).collect()
    }

    /// Forgets what was told: this machine holds the address no more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

// === impl Mirror ===

impl Mirror {
    pub(super) fn hear(&mut self, entries: &[Entry], now: u64) {
        for entry in entries {
            if !entry.open {
                self.heard.remove(&entry.connection);
            } else if self.heard.len() < MOST || self.heard.contains_key(&entry.connection) {
                self.heard.insert(entry.connection, now);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heard.len()
    }

    pub(super) fn forget_old(&mut self, now: u64) {
        self.heard.retain(|_, heard| now.saturating_sub(*heard) < FORGET_AFTER);
    }

    /// Everything that the holder had, which is now ours to end.
    pub(super) fn take(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.heard).into_keys().collect()
    }
}

// === the datagram ===

pub(super) fn encode(router_id: u8, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([VERSION, router_id]);
    bytes.extend((entries.len() as u16).to_be_bytes());
    for Entry { open, connection } in entries {
        let is_v4 = connection.client.is_ipv4();
        bytes.extend([u8::from(*open), if is_v4 { 4 } else { 6 }]);
        for end in [connection.client, connection.service] {
            match end.ip() {
                IpAddr::V4(v4) => bytes.extend(v4.octets()),
                IpAddr::V6(v6) => bytes.extend(v6.octets()),
            }
            bytes.extend(end.port().to_be_bytes());
        }
    }
    bytes
}

/// The router that a datagram says it is about, before anything of it is believed.
pub(super) fn router_of(bytes: &[u8]) -> Option<u8> {
    bytes.get(5).copied().filter(|_| bytes.starts_with(&MAGIC))
}

/// The router that a datagram is about, and what it says. `None`: it is none of ours, or broken.
pub(super) fn decode(bytes: &[u8]) -> Option<(u8, Vec<Entry>)> {
    let (header, mut rest) = bytes.split_first_chunk::<8>()?;
    if header[..4] != MAGIC || header[4] != VERSION {
        return None;
    }
    let count = usize::from(u16::from_be_bytes([header[6], header[7]]));
    let mut entries = Vec::with_capacity(count.min(bytes.len() / 14));
    for _ in 0..count {
        let (&[open, family], after) = rest.split_first_chunk::<2>()?;
        rest = after;
        let client = take_end(&mut rest, family)?;
        let service = take_end(&mut rest, family)?;
        entries.push(Entry {
            open: match open {
                0 => false,
                1 => true,
                _ => return None,
            },
            connection: Connection { client, service },
        });
    }
    rest.is_empty().then_some((header[5], entries))
}

fn take_end(rest: &mut &[u8], family: u8) -> Option<SocketAddr> {
    let ip = match family {
        4 => take::<4>(rest).map(IpAddr::from)?,
        6 => take::<16>(rest).map(IpAddr::from)?,
        _ => return None,
    };
    Some(SocketAddr::new(ip, take::<2>(rest).map(u16::from_be_bytes)?))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

// === the kernel's table ===

/// Established connections to one of `services`, in a table as `/proc/net/tcp` or `/proc/net/tcp6` shows it.
pub(super) fn read_table(table: &str, services: &[IpAddr], found: &mut BTreeSet<Connection>) {
    for line in table.lines().skip(1) {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(remote), Some("01")) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        // Addresses are compared before both ends are read: most lines are not about a virtual address.
        let Some(service) = read_end(local).filter(|local| services.contains(&local.ip())) else { continue };
        if let Some(client) = read_end(remote) {
            found.insert(Connection { client, service });
        }
    }
}

/// `0100007F:1F90`: each 32-bit word of the address as the machine holds it, and the port.
fn read_end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = address.get(at..at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for part in 0..4 {
                bytes[part * 4..part * 4 + 4].copy_from_slice(&word(part * 8)?);
            }
            // A listener for both families sees IPv4 clients by mapped addresses.
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn connection(client: &str, service: &str) -> Connection {
        Connection { client: client.parse().unwrap(), service: service.parse().unwrap() }
    }

    fn entries(datagrams: &[Vec<u8>]) -> Vec<Entry> {
        datagrams.iter().flat_map(|datagram| decode(datagram).unwrap().1).collect()
    }

    #[test]
    fn peers_are_told_what_changed_and_now_and_then_everything() {
        let (a, b) =
            (connection("10.0.0.1:4001", "10.0.0.9:6443"), connection("10.0.0.2:4002", "10.0.0.9:6443"));
        let mut reported = Reported::default();
        let mut mirror = Mirror::default();
        let first = reported.datagrams(7, BTreeSet::from([a]), 0);
        assert_eq!(decode(&first[0]).unwrap().0, 7);
        mirror.hear(&entries(&first), 0);
        assert!(reported.datagrams(7, BTreeSet::from([a]), 0).is_empty(), "nothing changed");
        let second = reported.datagrams(7, BTreeSet::from([b]), 2);
        assert_eq!(
            entries(&second),
            [Entry { open: false, connection: a }, Entry { open: true, connection: b }]
        );
        mirror.hear(&entries(&second), 2);
        let all = reported.datagrams(7, BTreeSet::from([b]), EVERYTHING_EVERY);
        assert_eq!(entries(&all), [Entry { open: true, connection: b }]);
        assert_eq!(mirror.take(), [b]);
        assert!(mirror.take().is_empty());
    }

    #[test]
    fn more_connections_than_a_socket_holds_are_told_and_stay_known() {
        const COUNT: usize = 20_000;
        // What a socket holds until the other side comes to read it.
        const HOLDS: usize = 300;
        const LOOK: u64 = 250_000;
        let client = |number: usize| format!("10.{}.{}.1:4001", number / 256, number % 256);
        let all: BTreeSet<Connection> =
            (0..COUNT).map(|number| connection(&client(number), "10.0.0.9:6443")).collect();
        let (mut reported, mut mirror) = (Reported::default(), Mirror::default());
        for look in 0..160 {
            let now = look * LOOK;
            let datagrams = reported.datagrams(7, all.clone(), now);
            mirror.hear(&entries(&datagrams[..datagrams.len().min(HOLDS)]), now);
            mirror.forget_old(now);
            assert!(look < 4 || mirror.len() == COUNT, "{} after {look} looks", mirror.len());
        }
        // All go at once.
        for look in 160..170 {
            let datagrams = reported.datagrams(7, BTreeSet::new(), look * LOOK);
            mirror.hear(&entries(&datagrams[..datagrams.len().min(HOLDS)]), look * LOOK);
        }
        assert_eq!(mirror.len(), 0);
    }

    #[test]
    fn what_was_not_heard_of_for_long_is_forgotten() {
        let mut mirror = Mirror::default();
        let open = |client| Entry { open: true, connection: connection(client, "10.0.0.9:6443") };
        mirror.hear(&[open("10.0.0.1:1")], 0);
        mirror.hear(&[open("10.0.0.1:2")], FORGET_AFTER - 1);
        mirror.forget_old(FORGET_AFTER);
        assert_eq!(mirror.take(), [open("10.0.0.1:2").connection]);
    }

    #[test]
    fn the_kernels_table_is_read_with_mapped_addresses_too() {
        let v4 = "  sl  local_address rem_address   st tx_queue\n\
             0: 0900000A:192B 0100000A:9C41 01 00000000:00000000\n\
             1: 0900000A:192B 00000000:0000 0A 00000000:00000000\n\
             2: 0800000A:192B 0100000A:9C42 01 00000000:00000000\n";
        let v6 = "  sl  local_address\n\
             0: 0000000000000000FFFF00000900000A:192B 0000000000000000FFFF00000200000A:9C41 01 x\n";
        let mut found = BTreeSet::new();
        let services = [IpAddr::from([10, 0, 0, 9])];
        read_table(v4, &services, &mut found);
        read_table(v6, &services, &mut found);
        let expected =
            [connection("10.0.0.1:40001", "10.0.0.9:6443"), connection("10.0.0.2:40001", "10.0.0.9:6443")];
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn the_real_table_shows_a_real_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_server, _) = listener.accept().unwrap();
        let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let mut found = BTreeSet::new();
        read_table(&table, &[IpAddr::from([127, 0, 0, 1])], &mut found);
        let wanted =
            Connection { client: client.local_addr().unwrap(), service: listener.local_addr().unwrap() };
        assert!(found.contains(&wanted));
    }

    proptest! {
        #[test]
        fn no_datagram_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let mut ours = vec![b'B', b'L', b'B', b'C', 1];
            ours.extend(bytes);
            let _ = decode(&ours);
        }

        #[test]
        fn datagrams_are_read_as_written(
            ends in proptest::collection::vec((any::<Ipv6Addr>(), any::<u16>(), any::<bool>()), 0..40)
        ) {
            let written: Vec<Entry> = ends
                .into_iter()
                .map(|(ip, port, open)| {
                    let client = SocketAddr::new(ip.into(), port);
                    Entry { open, connection: Connection { client, service: client } }
                })
                .collect();
            prop_assert_eq!(decode(&encode(3, &written)), Some((3, written)));
        }
    }
}
