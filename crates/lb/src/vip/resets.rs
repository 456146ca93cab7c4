//! Tells the clients of a lost holder that their connections are gone.
//!
//! A client that waits for news on an idle connection sends nothing, so it would notice a dead holder only by its own
//! keepalive, half a minute later or never. The holder therefore tells its peers which connections there are
//! ([`super::connections`]), and whoever takes the addresses over sends each client a stray acknowledgement. The client
//! answers, the new holder's kernel knows of no such connection, and resets it.
//!
//! This is a thread of its own: reading the kernel's table can take longer than an advert may be late.

use super::Lost;
use super::connections::{self, Connection, Mirror, Reported};
use super::diag::Looker;
use super::ip::{self, FROM_THIS_LINK};
use super::netlink::Interface;
use super::seal::{Seal, SealKeys};
use super::wake::Waker;
use super::wire::{self, PacketSender};
use crate::core::Time;
use crate::sys::{self, Tell};
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
/// Datagrams that are heard before orders are taken: a flood must not keep them waiting.
const HEARD_AT_ONCE: usize = 256;
const PAUSE: Time = 2_000;
/// A round that is not through by then is given up: nothing leaves this machine.
const ROUND_LASTS: Time = 5_000_000;
/// Between the numbers of one round and those of the next: no client's window reaches so far.
const FAR: u32 = 1 << 30;
const TIDY_EVERY: Time = 1_000_000;
/// A former holder's last words count for so long after the takeover, and for so many clients. Nobody else has a reason to tell a
/// holder of connections: without signatures anybody on the link could have it send packets wherever he likes.
const LAST_WORDS_FOR: Time = 5_000_000;
const LAST_WORDS: usize = 8192;
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
    /// Sign and check what is said about this one; without keys neither.
    Sign { vip: Id, keys: Option<SealKeys> },
    /// Tell the peers now of the connections that there are: they are about to take over.
    Look,
    /// This machine has got or lost the addresses.
    Held { vip: Id, held: bool },
    /// Another machine is known to hold these addresses, of this vip.
    Elsewhere { vip: Id, addresses: Vec<IpAddr> },
}

/// A vip by a number of its own: its name may change.
pub(super) type Id = u64;

/// A virtual router whose connections are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) id: Id,
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

/// How many connections are known of.
type Mirrored = Arc<Mutex<BTreeMap<Id, usize>>>;

/// One virtual router, as the thread sees it.
#[derive(Debug)]
struct Follow {
    watched: Watched,
    held: bool,
    /// When the addresses were taken.
    held_at: Time,
    /// Connections that somebody has told of since then.
    last_words: BTreeSet<Connection>,
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

/// The sockets on one interface, for one family: one to hear with, and one for each address that is spoken from.
#[derive(Debug)]
struct Port {
    interface: Interface,
    v4: bool,
    receiver: OwnedFd,
    senders: Vec<(IpAddr, OwnedFd)>,
}

struct Worker {
    orders: mpsc::Receiver<Order>,
    waker: Waker,
    start: Instant,
    follows: Vec<Follow>,
    /// They outlive a change of the interface.
    seals: BTreeMap<Id, Seal>,
    ports: Vec<Port>,
    looker: Looker,
    look_at: Time,
    tidy_at: Time,
    mirrored: Mirrored,
    /// Addresses that this machine has or had, and that nobody else is known to have got since.
    had: BTreeSet<IpAddr>,
    lost: Lost,
}

// === impl Resets ===

impl Resets {
    pub(super) fn start(lost: Lost) -> std::io::Result<Self> {
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
            had: BTreeSet::new(),
            lost,
        };
        let mirrored = worker.mirrored.clone();
        let thread = std::thread::Builder::new().name("vip-resets".to_owned()).spawn(move || worker.run())?;
        Ok(Self { orders: Some(sender), waker, thread: Some(thread), mirrored })
    }

    /// Connections at the holder that are known of.
    pub(super) fn mirrored(&self, vip: Id) -> usize {
        self.mirrored.lock().get(&vip).copied().unwrap_or(0)
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
            let known = self.follows.iter().map(|f| (f.watched.id, f.mirror.len()));
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
                Ok(Order::Held { vip, held }) => self.held(vip, held),
                Ok(Order::Elsewhere { vip, addresses }) => self.give_up(vip, &addresses),
                Err(mpsc::TryRecvError::Empty) => return true,
                Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn watch(&mut self, watched: Vec<Watched>) {
        let mut old = std::mem::take(&mut self.follows);
        for watched in watched {
            let kept = old.iter().position(|follow| follow.watched.id == watched.id);
            self.follows.push(match kept.map(|index| old.swap_remove(index)) {
                Some(follow) => Follow { watched, ..follow },
                None => Follow {
                    watched,
                    held: false,
                    held_at: 0,
                    last_words: BTreeSet::new(),
                    reported: Reported::default(),
                    mirror: Mirror::default(),
                    rounds: Vec::new(),
                },
            });
        }
        let held = self.follows.iter().filter(|follow| follow.held);
        self.had.extend(held.flat_map(|follow| &follow.watched.addresses));
        let follows = &self.follows;
        self.ports.retain(|port| follows.iter().any(|follow| port.serves(&follow.watched)));
        for port in &mut self.ports {
            port.senders.retain(|(source, _)| follows.iter().any(|follow| follow.watched.source == *source));
        }
        for Follow { watched, .. } in follows {
            let place = self.ports.iter().position(|port| port.serves(watched));
            let opened = match place {
                Some(place) => self.ports[place].speak_from(watched.source),
                None => Port::open(watched).map(|port| self.ports.push(port)),
            };
            if let Err(errno) = opened {
                let vip = &watched.name;
                tracing::warn!(%vip, %errno, "peers can't be told of connections: UDP port {PORT}");
            }
        }
    }

    fn held(&mut self, vip: Id, held: bool) {
        let now = self.now();
        let Some(follow) = self.follows.iter_mut().find(|follow| follow.watched.id == vip) else { return };
        if std::mem::replace(&mut follow.held, held) == held {
            return;
        }
        follow.reported.clear();
        follow.held_at = now;
        follow.last_words.clear();
        if !held {
            follow.rounds.clear();
            return;
        }
        self.had.extend(&follow.watched.addresses);
        self.look_at = now;
        let connections = follow.mirror.take();
        if connections.is_empty() {
            return;
        }
        let vip = &follow.watched.name;
        tracing::info!(%vip, connections = connections.len(), "clients of the former holder are told");
        follow.tell_clients(connections, now);
    }

    /// Addresses that were here are another machine's now. Whoever has connections by them is told. Their clients hear nothing from
    /// us any more, so the new holder learns of them first: it may have been started since, or have forgotten them while nobody
    /// had the addresses.
    fn give_up(&mut self, vip: Id, addresses: &[IpAddr]) {
        let now = self.now();
        let held = self.follows.iter().filter(|follow| follow.held);
        let here: BTreeSet<IpAddr> =
            held.flat_map(|follow| follow.watched.addresses.iter().copied()).collect();
        let lost = addresses.iter().copied().filter(|address| !here.contains(address));
        let lost: Vec<IpAddr> = lost.filter(|address| self.had.remove(address)).collect();
        if lost.is_empty() {
            return;
        }
        let found = self.looker.look(&lost);
        if let Some(follow) = self.follows.iter_mut().find(|follow| follow.watched.id == vip) {
            let port = self.ports.iter().find(|port| port.serves(&follow.watched));
            follow.tell(&found, port, self.seals.get_mut(&vip), now);
            follow.reported.clear();
        }
        (self.lost)(&lost);
    }

    fn receive(&mut self, buffer: &mut [u8], now: Time) {
        for port in &self.ports {
            for _ in 0..HEARD_AT_ONCE {
                let Ok(Some(received)) = sys::receive(&port.receiver, buffer) else { break };
                let from = received.from.ip();
                if received.hops != Some(FROM_THIS_LINK) || port.sender(from).is_some() {
                    continue;
                }
                let bytes = &buffer[..received.length];
                let follows = self.follows.iter_mut().filter(|follow| port.serves(&follow.watched));
                for follow in follows {
                    let seal = self.seals.get_mut(&follow.watched.id);
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
            let seal = self.seals.get_mut(&follow.watched.id);
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
                self.hear_last_words(open, now);
            } else {
                self.mirror.hear(&entries, now);
            }
        }
    }

    fn hear_last_words(&mut self, mut connections: Vec<Connection>, now: Time) {
        if now.saturating_sub(self.held_at) >= LAST_WORDS_FOR {
            self.last_words.clear();
            return;
        }
        connections
            .retain(|connection| self.last_words.len() < LAST_WORDS && self.last_words.insert(*connection));
        self.tell_clients(connections, now);
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
        let Some((port, sender)) = port.and_then(|port| Some((port, port.sender(watched.source)?))) else {
            return;
        };
        for mut datagram in datagrams {
            if let Some(seal) = &mut seal {
                datagram = seal.close(&datagram, watched.source);
            }
            let group = [ip::vrrp_group(watched.source)];
            let to = if watched.peers.is_empty() { &group[..] } else { &watched.peers };
            for peer in to {
                let to = sys::on_link(*peer, PORT, port.interface.index);
                // What gets lost is told again soon; what only waits for the socket is not lost.
                if let Err(Errno::AGAIN) = send(sender, &datagram, &to) {
                    let mut room = [PollFd::new(sender, PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut room, Some(&timespec(LONGEST_WAIT)));
                    let _ = send(sender, &datagram, &to);
                }
            }
        }
    }
}

// === impl Port ===

impl Port {
    /// The socket that speaks from one of our addresses.
    fn sender(&self, source: IpAddr) -> Option<&OwnedFd> {
        self.senders.iter().find(|(own, _)| *own == source).map(|(_, sender)| sender)
    }

    fn serves(&self, watched: &Watched) -> bool {
        self.interface.index == watched.interface.index && self.v4 == watched.source.is_ipv4()
    }

    fn speak_from(&mut self, source: IpAddr) -> rustix::io::Result<()> {
        if self.sender(source).is_none() {
            let sender = open_udp(&self.interface, source)?;
            let _ = sockopt::set_socket_send_buffer_size_force(&sender, SOCKET_BUFFER);
            rustix::net::bind(&sender, &sys::on_link(source, 0, self.interface.index))?;
            self.senders.push((source, sender));
        }
        Ok(())
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
        // Beyond the usual limit by our rights; without them there are only the usual ones.
        let _ = sockopt::set_socket_recv_buffer_size_force(&receiver, SOCKET_BUFFER);
        let (interface, v4) = (interface.clone(), source.is_ipv4());
        let mut port = Self { interface, v4, receiver, senders: Vec::new() };
        port.speak_from(source)?;
        Ok(port)
    }
}

fn send(sender: &OwnedFd, datagram: &[u8], to: &SocketAddr) -> rustix::io::Result<usize> {
    rustix::net::sendto(sender, datagram, SendFlags::DONTWAIT, to)
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
            id: router_id.into(),
            name: router_id.to_string(),
            router_id,
            interface,
            source: IpAddr::from([127, 0, 0, 1]),
            addresses: vec![IpAddr::from([127, 0, 90, router_id])],
            peers: Vec::new(),
        };
        let (reported, mirror) = (Reported::default(), Mirror::default());
        let last_words = BTreeSet::new();
        Follow { watched, held: false, held_at: 0, last_words, reported, mirror, rounds: Vec::new() }
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
    fn a_holder_hears_of_connections_only_after_a_takeover_and_not_of_more_than_there_may_be() {
        let from = IpAddr::from([127, 0, 0, 2]);
        let mut follow = follow(1);
        (follow.held, follow.held_at) = (true, 1_000_000);
        let late = follow.held_at + LAST_WORDS_FOR;
        follow.hear(from, &datagram(1), None, late);
        assert!(follow.rounds.is_empty(), "nobody just took over");
        follow.hear(from, &datagram(1), None, late - 1);
        let rounds = follow.rounds.len();
        assert!(rounds > 0, "a last word");
        follow.hear(from, &datagram(1), None, late - 1);
        assert_eq!(follow.rounds.len(), rounds, "once is enough");
        let service = SocketAddr::from(([127, 0, 90, 1], 6443));
        let client = |n: u32| SocketAddr::from(([127, 91, (n >> 8) as u8, n as u8], 4001));
        let made_up: BTreeSet<_> = (0..20_000).map(|n| Connection { client: client(n), service }).collect();
        let mut neighbour = Reported::default();
        for _ in 0..3 {
            for datagram in neighbour.datagrams(1, made_up.clone(), 0) {
                follow.hear(from, &datagram, None, late - 1);
            }
        }
        let told: BTreeSet<Connection> =
            follow.rounds.iter().flat_map(|round| round.connections.iter().copied()).collect();
        assert!((LAST_WORDS - 1..=LAST_WORDS).contains(&told.len()), "{}", told.len());
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
