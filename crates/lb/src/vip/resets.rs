//! Tells the clients of a lost holder that their connections are gone.
//!
//! A client that waits for news on an idle connection sends nothing, so it would notice a dead holder only by its own
//! keepalive, half a minute later or never. The holder therefore tells its peers which connections there are
//! ([`super::connections`]), and whoever takes the addresses over sends each client a stray acknowledgement. The client
//! answers, the new holder's kernel knows of no such connection, and resets it.
//!
//! This is a thread of its own: reading the kernel's table can take longer than an advert may be late.

use super::connections::{self, Connection, Mirror, Reported};
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
/// A client answers a stray acknowledgement at most twice a second, and any of them can get lost.
const REPEAT_AFTER: [Time; 2] = [600_000, 2_000_000];
const TIDY_EVERY: Time = 1_000_000;
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
    /// Clients to be told once more, and when.
    repeats: Vec<(Time, Vec<Connection>)>,
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
            self.repeat(now);
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
        let repeats = self.follows.iter().flat_map(|follow| follow.repeats.iter().map(|(due, _)| *due));
        let look = self.follows.iter().any(|follow| follow.held).then_some(self.look_at);
        let mirrored = self.follows.iter().any(|follow| follow.mirror.len() > 0).then_some(self.tidy_at);
        let due = repeats.chain(look).chain(mirrored).min();
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
                Ok(Order::Look) => self.look_at = 0,
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
                    repeats: Vec::new(),
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
            follow.repeats.clear();
            return;
        }
        self.look_at = now;
        let connections = follow.mirror.take();
        if connections.is_empty() {
            return;
        }
        tracing::info!(vip, connections = connections.len(), "clients of the former holder are told");
        disturb(&connections);
        follow.repeats = REPEAT_AFTER.iter().map(|after| (now + after, connections.clone())).collect();
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
        let mut found = BTreeSet::new();
        for table in ["tcp", "tcp6"] {
            // A kernel without IPv6 has no second table.
            if let Ok(text) = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
                connections::read_table(&text, &services, &mut found);
            }
        }
        for follow in self.follows.iter_mut().filter(|follow| follow.held) {
            let port = self.ports.iter().find(|port| port.serves(&follow.watched));
            let seal = self.seals.get_mut(&follow.watched.name);
            follow.tell(&found, port, seal, now);
        }
        let end = self.now();
        self.look_at = end + LOOK_EVERY.max((end - now) * LOOK_SHARE);
    }

    fn repeat(&mut self, now: Time) {
        for follow in &mut self.follows {
            for (_, connections) in follow.repeats.extract_if(.., |(due, _)| *due <= now) {
                disturb(&connections);
            }
        }
    }
}

// === impl Follow ===

impl Follow {
    fn hear(&mut self, from: IpAddr, bytes: &[u8], seal: Option<&mut Seal>, now: Time) {
        let watched = &self.watched;
        if !watched.peers.is_empty() && !watched.peers.contains(&from) {
            return;
        }
        let bytes = match seal {
            None => Some(bytes),
            // Every virtual router has keys of its own: what it can't open may be another's.
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
                disturb(&open);
            } else {
                self.mirror.hear(&entries, now);
            }
        }
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
                // What gets lost is told again soon.
                let _ = rustix::net::sendto(&port.sender, &datagram, SendFlags::DONTWAIT, &to);
            }
        }
    }
}

// === impl Port ===

impl Port {
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

/// Makes the clients of these connections say where they stand.
fn disturb(connections: &[Connection]) {
    let Some(first) = connections.first() else { return };
    let sender = match PacketSender::open(first.service.ip(), None) {
        Ok(sender) => sender,
        Err(errno) => {
            tracing::warn!(%errno, "clients can't be told that their connections are gone");
            return;
        }
    };
    for connection in connections {
        let Some(packet) = ip::stray_acknowledgement(connection.service, connection.client) else { continue };
        if let Err(errno) = sender.send(&packet, connection.client.ip()) {
            tracing::debug!(client = %connection.client, %errno, "a client could not be told");
        }
    }
}

/// Microseconds as the kernel wants them.
pub(super) fn timespec(micros: Time) -> Timespec {
    Timespec { tv_sec: (micros / 1_000_000) as i64, tv_nsec: (micros % 1_000_000 * 1000) as _ }
}
