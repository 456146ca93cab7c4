//! Tells the clients of a lost holder that their connections are gone.
//!
//! A client that waits for news on an idle connection sends nothing, so it would notice a dead holder only by its own
//! keepalive, half a minute later or never. The holder therefore tells its peers which connections there are
//! ([`super::connections`]), and whoever takes the addresses over sends each client a stray acknowledgement. The client
//! answers, the new holder's kernel knows of no such connection, and resets it.
//!
//! This is a thread of its own: reading the kernel's table can take longer than an advert may be late.

use super::connections::{self, Connection, Mirror, Reported};
use super::diag::Looker;
use super::ip::{self, FROM_THIS_LINK};
use super::netlink::Interface;
use super::seal::{Seal, SealKeys};
use super::sys::{self, Tell};
use super::wake::Waker;
use super::wire::{self, PacketSender};
use crate::core::Time;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// UDP port on which peers tell each other of connections.
const PORT: u16 = 8112;
/// Between two looks at the kernel's table, at least.
const LOOK_EVERY: Time = 250_000;
/// Of the time, at most this part goes into looking.
const LOOK_SHARE: Time = 50;
/// When clients are told, after the takeover. A client answers a stray acknowledgement at most twice a second, so that an answer
/// which went to the former holder costs that long; and any of them can get lost.
const TELL_AFTER: [Time; 5] = [0, 100_000, 650_000, 1_250_000, 2_500_000];
/// So many at once, and a pause: more than queues on the way hold would only be lost.
const AT_ONCE: usize = 256;
const PAUSE: Time = 2_000;
/// A round that is not through by then is given up: nothing leaves this machine.
const ROUND_LASTS: Time = 5_000_000;
/// Between the numbers of one round and those of the next: no client's window reaches so far.
const FAR: u32 = 1 << 30;
const TIDY_EVERY: Time = 1_000_000;
/// A socket that takes nothing for so long is not waited for.
const LONGEST_WAIT: Time = 20_000;
/// Bytes that wait in a socket: what a holder says in one go, and the kernel counts each datagram as several times its size.
const SOCKET_BUFFER: usize = 4 << 20;
const LONGEST: usize = 2048;

/// What the thread is asked for.
#[derive(Debug)]
pub(super) enum Order {
    /// Follow exactly these.
    Watch(Vec<Watched>),
    /// Sign and check what is said about this one.
    Sign { vip: String, keys: Option<SealKeys> },
    /// Tell the peers now of the connections that there are: they are about to take over.
    Look,
    /// This machine has got or lost the addresses.
    Held { vip: String, held: bool },
}

/// A virtual router whose connections are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) name: String,
    pub(super) router_id: u8,
    pub(super) interface: Interface,
    pub(super) source: IpAddr,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) peers: Vec<IpAddr>,
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Resets {
    orders: Option<mpsc::Sender<Order>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    mirrored: Mirrored,
}

/// How many connections are known of, by the name of the vip.
type Mirrored = Arc<Mutex<BTreeMap<String, usize>>>;

/// One virtual router, as the thread sees it.
#[derive(Debug)]
struct Follow {
    watched: Watched,
    held: bool,
    reported: Reported,
    mirror: Mirror,
    rounds: Vec<Round>,
}

/// Clients that are to be told.
#[derive(Debug)]
struct Round {
    due: Time,
    until: Time,
    connections: Arc<[Connection]>,
    /// How many of them have been.
    told: usize,
    number: u32,
}

/// The sockets on one interface, for one family.
#[derive(Debug)]
struct Port {
    interface: Interface,
    source: IpAddr,
    receiver: OwnedFd,
    sender: OwnedFd,
}

struct Worker {
    orders: mpsc::Receiver<Order>,
    waker: Waker,
    start: Instant,
    follows: Vec<Follow>,
    /// By the name of the vip; they outlive a change of the interface.
    seals: BTreeMap<String, Seal>,
    ports: Vec<Port>,
    looker: Looker,
    look_at: Time,
    tidy_at: Time,
    mirrored: Mirrored,
}

// === impl Resets ===

impl Resets {
    pub(super) fn start() -> std::io::Result<Self> {
        let (sender, orders) = mpsc::channel();
        let waker = Waker::new()?;
        let mut worker = Worker {
            orders,
            waker: waker.clone(),
            start: Instant::now(),
            follows: Vec::new(),
            seals: BTreeMap::new(),
            ports: Vec::new(),
            looker: Looker::default(),
            look_at: 0,
            tidy_at: 0,
            mirrored: Mirrored::default(),
        };
        let mirrored = worker.mirrored.clone();
        let thread = std::thread::Builder::new().name("vip-resets".to_owned()).spawn(move || worker.run())?;
        Ok(Self { orders: Some(sender), waker, thread: Some(thread), mirrored })
    }

    /// Connections at the holder that are known of.
    pub(super) fn mirrored(&self, vip: &str) -> usize {
        self.mirrored.lock().get(vip).copied().unwrap_or(0)
    }

    pub(super) fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
            self.waker.wake();
        }
    }
}

impl Drop for Resets {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// === impl Worker ===

impl Worker {
    fn run(&mut self) {
        let mut buffer = vec![0; LONGEST];
        loop {
            self.wait();
            if !self.take_orders() {
                return;
            }
            let now = self.now();
            self.receive(&mut buffer, now);
            self.look(now);
            self.follows.iter_mut().for_each(|follow| follow.disturb(now));
            if now >= self.tidy_at {
                self.tidy_at = now + TIDY_EVERY;
                self.follows.iter_mut().for_each(|follow| follow.mirror.forget_old(now));
            }
            let known = self.follows.iter().map(|f| (f.watched.name.clone(), f.mirror.len()));
            *self.mirrored.lock() = known.collect();
        }
    }

    fn now(&self) -> Time {
        self.start.elapsed().as_micros() as Time
    }

    fn wait(&self) {
        let rounds = self.follows.iter().flat_map(|follow| follow.rounds.iter().map(|round| round.due));
        let look = self.follows.iter().any(|follow| follow.held).then_some(self.look_at);
        let mirrored = self.follows.iter().any(|follow| follow.mirror.len() > 0).then_some(self.tidy_at);
        let due = rounds.chain(look).chain(mirrored).min();
        let timeout = due.map(|due| timespec(due.saturating_sub(self.now())));
        let mut fds = vec![self.waker.poll_fd()];
        fds.extend(self.ports.iter().map(|port| PollFd::new(&port.receiver, PollFlags::IN)));
        // Interrupted or not: everything is looked at afterwards.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// `false`: nobody is there any more to give orders.
    fn take_orders(&mut self) -> bool {
        self.waker.clear();
        loop {
            match self.orders.try_recv() {
                Ok(Order::Watch(watched)) => self.watch(watched),
                Ok(Order::Sign { vip, keys }) => {
                    let seal = Seal::renew(self.seals.remove(&vip), keys);
                    self.seals.extend(seal.map(|seal| (vip, seal)));
                }
                // Before the next order: it may be that we hold the addresses no more, and then nobody would be told.
                Ok(Order::Look) => {
                    self.look_at = 0;
                    self.look(self.now());
                }
                Ok(Order::Held { vip, held }) => self.held(&vip, held),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn watch(&mut self, watched: Vec<Watched>) {
        let mut old = std::mem::take(&mut self.follows);
        for watched in watched {
            let kept = old.iter().position(|follow| follow.watched.name == watched.name);
            self.follows.push(match kept.map(|index| old.swap_remove(index)) {
                Some(follow) => Follow { watched, ..follow },
                None => Follow {
                    watched,
                    held: false,
                    reported: Reported::default(),
                    mirror: Mirror::default(),
                    rounds: Vec::new(),
                },
            });
        }
        let follows = &self.follows;
        self.ports.retain(|port| follows.iter().any(|follow| port.serves(&follow.watched)));
        for follow in follows {
            if !self.ports.iter().any(|port| port.serves(&follow.watched)) {
                match Port::open(&follow.watched) {
                    Ok(port) => self.ports.push(port),
                    Err(errno) => {
                        let vip = &follow.watched.name;
                        tracing::warn!(%vip, %errno, "peers can't be told of connections: UDP port {PORT}");
                    }
                }
            }
        }
    }

    fn held(&mut self, vip: &str, held: bool) {
        let now = self.now();
        let Some(follow) = self.follows.iter_mut().find(|follow| follow.watched.name == vip) else { return };
        if std::mem::replace(&mut follow.held, held) == held {
            return;
        }
        follow.reported.clear();
        if !held {
            follow.rounds.clear();
            return;
        }
        self.look_at = now;
        let connections = follow.mirror.take();
        if connections.is_empty() {
            return;
        }
        tracing::info!(vip, connections = connections.len(), "clients of the former holder are told");
        follow.tell_clients(connections, now);
    }

    fn receive(&mut self, buffer: &mut [u8], now: Time) {
        for port in &self.ports {
            while let Ok(Some(received)) = sys::receive(&port.receiver, buffer) {
                let from = received.from.ip();
                if received.hops != Some(FROM_THIS_LINK) || from == port.source {
                    continue;
                }
                let bytes = &buffer[..received.length];
                let follows = self.follows.iter_mut().filter(|follow| port.serves(&follow.watched));
                for follow in follows {
                    let seal = self.seals.get_mut(&follow.watched.name);
                    follow.hear(from, bytes, seal, now);
                }
            }
        }
    }

    /// As holder: looks which connections there are, and tells the peers.
    fn look(&mut self, now: Time) {
        if now < self.look_at || !self.follows.iter().any(|follow| follow.held) {
            return;
        }
        let services: Vec<IpAddr> = self
            .follows
            .iter()
            .filter(|follow| follow.held)
            .flat_map(|follow| follow.watched.addresses.iter().copied())
            .collect();
        let found = self.looker.look(&services);
        for follow in self.follows.iter_mut().filter(|follow| follow.held) {
            let port = self.ports.iter().find(|port| port.serves(&follow.watched));
            let seal = self.seals.get_mut(&follow.watched.name);
            follow.tell(&found, port, seal, now);
        }
        let end = self.now();
        self.look_at = end + LOOK_EVERY.max((end - now) * LOOK_SHARE);
    }
}

// === impl Follow ===

impl Follow {
    fn hear(&mut self, from: IpAddr, bytes: &[u8], seal: Option<&mut Seal>, now: Time) {
        let watched = &self.watched;
        if !watched.peers.is_empty() && !watched.peers.contains(&from) {
            return;
        }
        // Before the signature is looked at: with the same keys another router's would count, and make ours look old.
        if connections::router_of(bytes) != Some(watched.router_id) {
            return;
        }
        let bytes = match seal {
            None => Some(bytes),
            Some(seal) => seal.open(bytes, from).ok(),
        };
        if let Some((router_id, entries)) = bytes.and_then(connections::decode) {
            let ours = entries.iter().all(|e| watched.addresses.contains(&e.connection.service.ip()));
            if router_id != watched.router_id || !ours {
                return;
            }
            if self.held {
                // A last word of the former holder. It does no harm to connections that live.
                let open: Vec<_> = entries.iter().filter(|e| e.open).map(|e| e.connection).collect();
                self.tell_clients(open, now);
            } else {
                self.mirror.hear(&entries, now);
            }
        }
    }

    /// Has clients told that their connections are gone, several times.
    fn tell_clients(&mut self, connections: Vec<Connection>, now: Time) {
        let waiting: usize = self.rounds.iter().map(|round| round.connections.len()).sum();
        if connections.is_empty() || waiting > connections::MOST * TELL_AFTER.len() {
            return;
        }
        let connections: Arc<[Connection]> = connections.into();
        let rounds = TELL_AFTER.iter().zip(0..).map(|(after, index)| Round {
            due: now + after,
            until: now + after + ROUND_LASTS,
            connections: connections.clone(),
            told: 0,
            number: FAR.wrapping_mul(index),
        });
        self.rounds.extend(rounds);
        self.disturb(now);
    }

    /// Makes clients say where they stand, as many as may be now.
    fn disturb(&mut self, now: Time) {
        let mut room = AT_ONCE;
        for round in self.rounds.iter_mut().filter(|round| round.due <= now) {
            let next = &round.connections[round.told..];
            let sent = disturb(&next[..next.len().min(room)], round.number);
            round.told += sent;
            room -= sent;
            round.due = now + PAUSE;
        }
        self.rounds.retain(|round| round.told < round.connections.len() && now < round.until);
    }

    fn tell(
        &mut self,
        found: &BTreeSet<Connection>,
        port: Option<&Port>,
        mut seal: Option<&mut Seal>,
        now: Time,
    ) {
        let watched = &self.watched;
        let current = found.iter().filter(|c| watched.addresses.contains(&c.service.ip())).copied().collect();
        let datagrams = self.reported.datagrams(watched.router_id, current, now);
        let Some(port) = port else { return };
        for mut datagram in datagrams {
            if let Some(seal) = &mut seal {
                datagram = seal.close(&datagram, watched.source);
            }
            let group = [ip::vrrp_group(watched.source)];
            let to = if watched.peers.is_empty() { &group[..] } else { &watched.peers };
            for peer in to {
                let to = sys::on_link(*peer, PORT, port.interface.index);
                // What gets lost is told again soon; what only waits for the socket is not lost.
                if let Err(Errno::AGAIN) = port.send(&datagram, &to) {
                    let mut room = [PollFd::new(&port.sender, PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut room, Some(&timespec(LONGEST_WAIT)));
                    let _ = port.send(&datagram, &to);
                }
            }
        }
    }
}

// === impl Port ===

impl Port {
    fn send(&self, datagram: &[u8], to: &SocketAddr) -> rustix::io::Result<usize> {
        rustix::net::sendto(&self.sender, datagram, SendFlags::DONTWAIT, to)
    }

    fn serves(&self, watched: &Watched) -> bool {
        self.interface.index == watched.interface.index && self.source == watched.source
    }

    fn open(watched: &Watched) -> rustix::io::Result<Self> {
        let (interface, source) = (&watched.interface, watched.source);
        let receiver = open_udp(interface, source)?;
        match ip::vrrp_group(source) {
            IpAddr::V4(group) => {
                let (any, index) = (Ipv4Addr::UNSPECIFIED, interface.index);
                sockopt::set_ip_add_membership_with_ifindex(&receiver, &group, &any, index)?;
                sys::tell(&receiver, Tell::HopsV4)?;
            }
            IpAddr::V6(group) => {
                sockopt::set_ipv6_add_membership(&receiver, &group, interface.index)?;
                sys::tell(&receiver, Tell::HopsV6)?;
            }
        }
        rustix::net::bind(&receiver, &SocketAddr::new(sys::unspecified(source), PORT))?;
        let sender = open_udp(interface, source)?;
        // Beyond the usual limit by our rights; without them there are only the usual ones.
        let _ = sockopt::set_socket_recv_buffer_size_force(&receiver, SOCKET_BUFFER);
        let _ = sockopt::set_socket_send_buffer_size_force(&sender, SOCKET_BUFFER);
        rustix::net::bind(&sender, &sys::on_link(source, 0, interface.index))?;
        Ok(Self { interface: interface.clone(), source, receiver, sender })
    }
}

/// A UDP socket on one interface, whose packets show that they come from this link.
pub(super) fn open_udp(interface: &Interface, like: IpAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(wire::family(like), SocketType::DGRAM, flags, None)?;
    sys::bind_to_interface(&socket, &interface.name)?;
    match like {
        IpAddr::V4(_) => {
            sockopt::set_ip_ttl(&socket, FROM_THIS_LINK.into())?;
            sockopt::set_ip_multicast_ttl(&socket, FROM_THIS_LINK.into())?;
            sockopt::set_ip_multicast_loop(&socket, false)?;
        }
        IpAddr::V6(_) => {
            sockopt::set_ipv6_v6only(&socket, true)?;
            sockopt::set_ipv6_unicast_hops(&socket, Some(FROM_THIS_LINK))?;
            sockopt::set_ipv6_multicast_hops(&socket, FROM_THIS_LINK.into())?;
            sockopt::set_ipv6_multicast_loop(&socket, false)?;
        }
    }
    Ok(socket)
}

/// Makes the clients of these connections say where they stand, until the kernel takes no more for now; how many.
fn disturb(connections: &[Connection], number: u32) -> usize {
    let Some(first) = connections.first() else { return 0 };
    let sender = match PacketSender::open(first.service.ip(), None) {
        Ok(sender) => sender,
        Err(errno) => {
            tracing::warn!(%errno, "clients can't be told that their connections are gone");
            return connections.len();
        }
    };
    for (sent, connection) in connections.iter().enumerate() {
        let packet = ip::stray_acknowledgement(connection.service, connection.client, number);
        match packet.map(|packet| sender.send(&packet, connection.client.ip())) {
            Some(Err(Errno::AGAIN | Errno::NOBUFS)) => return sent,
            Some(Err(errno)) => {
                tracing::debug!(client = %connection.client, %errno, "a client could not be told");
            }
            Some(Ok(())) | None => {}
        }
    }
    connections.len()
}

/// Microseconds as the kernel wants them.
pub(super) fn timespec(micros: Time) -> Timespec {
    Timespec { tv_sec: (micros / 1_000_000) as i64, tv_nsec: (micros % 1_000_000 * 1000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "1 b2xkIGtleSBvZiBzaXh0ZWVuIGJ5dGVz";

    fn follow(router_id: u8) -> Follow {
        let interface = Interface { index: 1, name: "lo".to_owned(), mac: [0; 6], up: true };
        let watched = Watched {
            name: router_id.to_string(),
            router_id,
            interface,
            source: IpAddr::from([127, 0, 0, 1]),
            addresses: vec![IpAddr::from([127, 0, 90, router_id])],
            peers: Vec::new(),
        };
        let (reported, mirror) = (Reported::default(), Mirror::default());
        Follow { watched, held: false, reported, mirror, rounds: Vec::new() }
    }

    fn seal() -> Seal {
        Seal::renew(None, Some(SealKeys::parse(KEYS).unwrap())).unwrap()
    }

    /// What a holder says of one connection.
    fn datagram(router_id: u8) -> Vec<u8> {
        let connection = Connection {
            client: SocketAddr::from(([127, 0, 0, 1], 4001)),
            service: SocketAddr::from(([127, 0, 90, router_id], 6443)),
        };
        Reported::default().datagrams(router_id, BTreeSet::from([connection]), 0).remove(0)
    }

    #[test]
    fn routers_with_the_same_keys_do_not_make_each_other_look_old() {
        let from = IpAddr::from([127, 0, 0, 2]);
        let ours = seal().close(&datagram(1), from);
        std::thread::sleep(std::time::Duration::from_millis(1));
        let later = seal().close(&datagram(2), from);
        let (mut follow, mut seal) = (follow(1), seal());
        follow.hear(from, &later, Some(&mut seal), 0);
        assert_eq!(follow.mirror.len(), 0);
        follow.hear(from, &ours, Some(&mut seal), 0);
        assert_eq!(follow.mirror.len(), 1);
        follow.hear(from, &datagram(1), Some(&mut seal), 0);
        follow.hear(from, b"BLBC", Some(&mut seal), 0);
        assert_eq!(follow.mirror.len(), 1);
    }

    #[test]
    fn clients_are_told_in_rounds_and_not_all_at_once() {
        let mut follow = follow(1);
        // Nobody is at these ports; that the packets can't leave without NET_RAW does not matter here.
        let connection = |n: u16| Connection {
            client: SocketAddr::from(([127, 0, 91, 1], 20_000 + n)),
            service: SocketAddr::from(([127, 0, 90, 1], 6443)),
        };
        follow.tell_clients((0..600).map(connection).collect(), 0);
        assert_eq!(follow.rounds.len(), TELL_AFTER.len());
        assert!(follow.rounds[0].told <= AT_ONCE);
        let numbers: BTreeSet<u32> = follow.rounds.iter().map(|round| round.number).collect();
        assert!(numbers.len() >= 4, "no window reaches from one to the next");
        let mut now = 0;
        while let Some(due) = follow.rounds.iter().map(|round| round.due).min() {
            assert!(due >= now && now < 4_000_000, "it comes to an end: {now}");
            now = due;
            follow.disturb(now);
        }
        assert!(now >= TELL_AFTER[4]);
        follow.tell_clients(vec![connection(1)], 0);
        follow.rounds.iter_mut().for_each(|round| round.connections = vec![connection(2); 1 << 20].into());
        follow.disturb(TELL_AFTER[4] + ROUND_LASTS);
        assert!(follow.rounds.is_empty(), "what takes too long is given up");
    }
}
