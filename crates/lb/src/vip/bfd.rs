//! The sockets of `core::bfd`: one receiver per interface and family, one sender per peer.
//!
//! Several virtual addresses on one interface share the session with a peer, if they speak from the same address: it is the
//! machine that is watched.

use super::ip::FROM_THIS_LINK;
use super::netlink::Interface;
use super::resets::open_udp;
use crate::config::{Bfd, Vip};
use crate::core::Time;
use crate::core::bfd::{Control, Diagnostic, Output, PORT, Session, Settings, State};
use crate::sys::{self, Tell};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the standard wants the sender's port to lie.
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Packets that are taken before other things get their turn: a flood must not keep us from what is due.
const AT_ONCE: usize = 256;

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    links: Vec<Link>,
    /// Numbers of sessions, and the seeds of their jitter.
    next: u64,
}

/// The sessions on one interface, of one family: there is one port for all of them, whatever address each speaks from.
#[derive(Debug)]
struct Link {
    interface: Interface,
    v4: bool,
    receiver: OwnedFd,
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    source: IpAddr,
    address: IpAddr,
    settings: Bfd,
    session: Session,
    sender: OwnedFd,
}

/// What is to be watched: the machine's way to a network, and who is there.
struct Wanted<'a> {
    interface: &'a Interface,
    source: IpAddr,
    peer: IpAddr,
    settings: Bfd,
}

// === impl Sessions ===

impl Default for Sessions {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // A new life takes other numbers than the last one: the peer must not take them for the same session.
        Self { links: Vec::new(), next: since.as_micros() as u64 }
    }
}

impl Sessions {
    /// Watches exactly the peers of these virtual addresses, each with the machine's way to its network.
    pub(super) fn open<'a>(
        &mut self,
        ways: impl Iterator<Item = (&'a Vip, (&'a Interface, IpAddr))>,
        now: Time,
    ) {
        let wanted = wanted(ways);
        for link in &mut self.links {
            for mut peer in std::mem::take(&mut link.peers) {
                let here = wanted.iter().filter(|wanted| link.is_for(wanted));
                let same: Vec<_> = here.filter(|wanted| wanted.is_between(&peer)).collect();
                let goes_on = same.iter().any(|wanted| wanted.settings == peer.settings);
                if !peer.is_leaving() && !goes_on {
                    let outputs = peer.session.stop(now);
                    peer.apply(outputs, link.interface.index);
                }
                // A new session between the two says the same by its beginning, and must not be ended by the old one.
                if !peer.is_leaving() || same.is_empty() {
                    link.peers.push(peer);
                }
            }
        }
        self.forget_what_is_over(now);
        for wanted in &wanted {
            if let Err(errno) = self.ensure(wanted, now) {
                let peer = wanted.peer;
                tracing::warn!(%peer, %errno, "BFD: the peer can't be watched");
            }
        }
    }

    fn ensure(&mut self, wanted: &Wanted<'_>, now: Time) -> rustix::io::Result<()> {
        let found = self.links.iter_mut().position(|link| link.is_for(wanted));
        let index = match found {
            Some(index) => index,
            None => {
                self.links.push(Link::open(wanted.interface, wanted.source)?);
                self.links.len() - 1
            }
        };
        if self.links[index].peers.iter().any(|peer| wanted.is_between(peer)) {
            return Ok(());
        }
        self.next = self.next.wrapping_add(1);
        let settings = Settings::from_config(&wanted.settings, self.next as u32);
        self.links[index].peers.push(Peer {
            source: wanted.source,
            address: wanted.peer,
            settings: wanted.settings.clone(),
            session: Session::new(settings, self.next, now),
            sender: open_sender(wanted.interface, wanted.source)?,
        });
        Ok(())
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.links.iter().map(|link| link.receiver.as_fd())
    }

    pub(super) fn next_deadline(&self) -> Time {
        let peers = self.links.iter().flat_map(|link| &link.peers);
        peers.map(|peer| peer.session.next_deadline()).min().unwrap_or(Time::MAX)
    }

    pub(super) fn is_up(&self, interface: &str, peer: IpAddr) -> bool {
        let links = self.links.iter().filter(|link| link.interface.name == interface);
        let mut peers = links.flat_map(|link| &link.peers).filter(|p| p.address == peer);
        peers.any(|peer| peer.session.state() == State::Up)
    }

    /// Takes what has arrived, then what is due. Returns the peers that fell silent, with their interfaces.
    pub(super) fn work(&mut self, readable: bool, now: Time) -> Vec<(String, IpAddr)> {
        let mut lost = Vec::new();
        for link in &mut self.links {
            if readable {
                link.receive(now, &mut lost);
            }
            for peer in link.peers.iter_mut().filter(|peer| now >= peer.session.next_deadline()) {
                let outputs = peer.session.on_timer(now);
                if peer.apply(outputs, link.interface.index) {
                    lost.push((link.interface.name.clone(), peer.address));
                }
            }
        }
        self.forget_what_is_over(now);
        lost
    }

    fn forget_what_is_over(&mut self, now: Time) {
        self.links.iter_mut().for_each(|link| link.peers.retain(|peer| !peer.session.is_over(now)));
        self.links.retain(|link| !link.peers.is_empty());
    }

    /// Tells all peers that this is an end on purpose. Once: by now they have the addresses, and need not watch us for them.
    pub(super) fn stop(&mut self, now: Time) {
        for link in &mut self.links {
            for peer in &mut link.peers {
                let outputs = peer.session.stop(now);
                peer.apply(outputs, link.interface.index);
            }
        }
        self.links.clear();
    }
}

// === impl Link ===

impl Link {
    fn open(interface: &Interface, source: IpAddr) -> rustix::io::Result<Self> {
        let receiver = open_udp(interface, source)?;
        let wishes = if source.is_ipv4() {
            [Tell::HopsV4, Tell::DestinationV4]
        } else {
            [Tell::HopsV6, Tell::DestinationV6]
        };
        wishes.into_iter().try_for_each(|wish| sys::tell(&receiver, wish))?;
        rustix::net::bind(&receiver, &SocketAddr::new(sys::unspecified(source), PORT))?;
        Ok(Self { interface: interface.clone(), v4: source.is_ipv4(), receiver, peers: Vec::new() })
    }

    fn is_for(&self, wanted: &Wanted<'_>) -> bool {
        self.interface.index == wanted.interface.index && self.v4 == wanted.source.is_ipv4()
    }

    fn receive(&mut self, now: Time, lost: &mut Vec<(String, IpAddr)>) {
        let mut buffer = [0; 128];
        for _ in 0..AT_ONCE {
            let Ok(Some(received)) = sys::receive(&self.receiver, &mut buffer) else { return };
            if received.hops != Some(FROM_THIS_LINK) {
                continue;
            }
            let Ok(control) = Control::decode(&buffer[..received.length]) else { continue };
            let from = received.from.ip();
            // By the number that we gave it; who has not heard that yet is known by the addresses.
            let is_meant = |peer: &&mut Peer| match control.yours {
                0 => received.to.is_none_or(|to| to == peer.source),
                yours => peer.session.discriminator() == yours,
            };
            let mut between = self.peers.iter_mut().filter(|peer| peer.address == from && !peer.is_leaving());
            if let Some(peer) = between.find(is_meant) {
                let outputs = peer.session.on_packet(&control, now);
                if peer.apply(outputs, self.interface.index) {
                    lost.push((self.interface.name.clone(), from));
                }
            }
        }
    }
}

// === impl Peer ===

impl Peer {
    /// Whether the session has ended, and the peer is being told.
    fn is_leaving(&self) -> bool {
        self.session.state() == State::AdminDown
    }

    /// Does what was decided. `true`: the peer fell silent.
    fn apply(&mut self, outputs: Vec<Output>, interface: u32) -> bool {
        let mut silent = false;
        for output in outputs {
            match output {
                Output::Send(control) => {
                    let to = sys::on_link(self.address, PORT, interface);
                    // What can't be sent is missed by the peer, and that is what this is for.
                    let _ = rustix::net::sendto(&self.sender, &control.encode(), SendFlags::DONTWAIT, &to);
                }
                Output::Up => tracing::info!(peer = %self.address, "BFD: up"),
                // A peer that says that it goes, or that it does not hear us, is there. Silence alone means death.
                Output::Down(why) => {
                    tracing::info!(peer = %self.address, ?why, "BFD: down");
                    silent |= why == Diagnostic::Expired;
                }
            }
        }
        silent
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    fn is_between(&self, peer: &Peer) -> bool {
        self.peer == peer.address && self.source == peer.source
    }
}

/// Every peer once, with the quickest settings that any of the addresses asks for.
fn wanted<'a>(ways: impl Iterator<Item = (&'a Vip, (&'a Interface, IpAddr))>) -> Vec<Wanted<'a>> {
    let mut all: Vec<Wanted<'a>> = Vec::new();
    for (vip, (interface, source)) in ways {
        let Some(settings) = &vip.bfd else { continue };
        for peer in &vip.peers {
            let same = |w: &&mut Wanted<'a>| {
                w.interface.index == interface.index && w.source == source && w.peer == *peer
            };
            match all.iter_mut().find(same) {
                Some(known) if known.settings.interval_ms > settings.interval_ms => {
                    known.settings = settings.clone();
                }
                Some(_) => {}
                None => all.push(Wanted { interface, source, peer: *peer, settings: settings.clone() }),
            }
        }
    }
    all
}

fn open_sender(interface: &Interface, source: IpAddr) -> rustix::io::Result<OwnedFd> {
    let socket = open_udp(interface, source)?;
    for port in SOURCE_PORTS {
        match rustix::net::bind(&socket, &sys::on_link(source, port, interface.index)) {
            Ok(()) => return Ok(socket),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ADDRINUSE)
}
