//! One configured virtual address on this machine: the election of `core::vrrp` with its sockets, and what it decides done.
//!
//! The sockets come and go with the interface and its own address; the election stays, and is told by one more track check
//! whether there is a way to speak.

mod addresses;

use self::addresses::not_ours;
use super::lifeline;
use super::machine::Machine;
use super::netlink::{self, Interface};
use super::refusals::Refusals;
use super::resets::{Id, Order, Resets, Watched};
use super::rivals::{Ear, Rivals};
use super::seal::{Seal, SealKeys};
use super::status::{TrackStatus, VipStatus};
use super::track::Tracks;
use super::wire::{Arrived, Sender, Wire};
use crate::config::{Track, Vip};
use crate::core::auth::Refused;
use crate::core::neighbour::Claim;
use crate::core::vrrp::{Advert, Output, Role, Router, Settings};
use crate::core::{SECOND, Time};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::net::IpAddr;

/// Adverts that are taken before other things get their turn.
const AT_ONCE: usize = 64;
/// Before a machine that could not put its addresses on stands again.
const TRY_AGAIN_AFTER: Time = 5 * SECOND;

/// A configured virtual address.
#[derive(Debug)]
pub(super) struct Member {
    id: Id,
    config: Vip,
    addresses: Vec<(IpAddr, u8)>,
    seal: Option<Seal>,
    tracks: Tracks,
    wire: Option<Wire>,
    /// By which interface and from which address it last spoke.
    last_way: Option<(Interface, IpAddr)>,
    router: Option<Router>,
    /// The interface that the addresses are put on; known also after its sockets were closed.
    interface: Option<u32>,
    /// Addresses that we have put on the interface.
    held: Vec<(IpAddr, u8)>,
    /// When the kernel is told that the addresses stay.
    renew_at: Time,
    /// Why there is no way to speak.
    problem: Option<String>,
    /// Why the addresses could not be put on, and when that is tried again.
    unable: Option<(String, Time)>,
    stopping: bool,
    transitions: u64,
    /// Whether this machine took the addresses and has not given them up.
    holding: bool,
    /// Addresses that a peer holds and whose connections are looked after for that; from the moment on that we hold none of them.
    elsewhere: Vec<IpAddr>,
    /// Whether it was ever fit to. Before that, what is not so is nothing to warn of.
    was_fit: bool,
    rejected: u64,
    refusals: Refusals,
    /// Hears who else claims the addresses.
    ear: Option<Ear>,
    rivals: Rivals,
    failed_sends: u64,
}

/// A configured address whose texts and files have been read.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) config: Vip,
    /// All of one family, at least one.
    pub(super) addresses: Vec<(IpAddr, u8)>,
    /// For adverts.
    pub(super) keys: Option<SealKeys>,
    /// For what peers tell each other of connections.
    pub(super) connection_keys: Option<SealKeys>,
    pub(super) tracks: Tracks,
}

/// What a member needs of the rest to do what was decided.
pub(super) struct Hands<'a> {
    pub(super) machine: &'a mut Machine,
    pub(super) resets: &'a Resets,
    pub(super) now: Time,
}

// === impl Member ===

impl Member {
    pub(super) fn new(prepared: Prepared, id: Id, hands: &Hands<'_>) -> Self {
        let Prepared { config, addresses, keys, connection_keys, tracks } = prepared;
        hands.resets.order(Order::Sign { vip: id, keys: connection_keys });
        Self {
            id,
            config,
            addresses,
            seal: Seal::renew(None, keys),
            tracks,
            wire: None,
            last_way: None,
            router: None,
            interface: None,
            held: Vec::new(),
            renew_at: Time::MAX,
            problem: None,
            unable: None,
            stopping: false,
            transitions: 0,
            holding: false,
            elsewhere: Vec::new(),
            was_fit: false,
            rejected: 0,
            refusals: Refusals::default(),
            ear: None,
            rivals: Rivals::default(),
            failed_sends: 0,
        }
    }

    pub(super) fn id(&self) -> Id {
        self.id
    }

    pub(super) fn config(&self) -> &Vip {
        &self.config
    }

    pub(super) fn tracks(&self) -> &Tracks {
        &self.tracks
    }

    /// The socket that adverts come in by.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.wire.as_ref().map(AsFd::as_fd)
    }

    /// Whether claims of others are to be looked for.
    pub(super) fn minds_rivals(&self) -> bool {
        self.ear.is_some() && self.is_master()
    }

    pub(super) fn is_over(&self) -> bool {
        self.stopping && self.router.as_ref().is_none_or(|router| router.role() == Role::Stopped)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let router = self.router.as_ref().map_or(Time::MAX, Router::next_deadline);
        let again = self.unable.as_ref().map_or(Time::MAX, |(_, again)| *again);
        router.min(self.renew_at).min(again).min(self.rivals.next_deadline())
    }

    /// Whether other settings can be taken without an end and a new start. A name is only a name; a number is what peers know the
    /// router by, and one that changes is no reason to let the address go.
    pub(super) fn can_become(&self, other: &Prepared) -> bool {
        let family = |addresses: &[(IpAddr, u8)]| addresses.first().map(|(address, _)| address.is_ipv4());
        !self.is_over()
            && other.config.interface == self.config.interface
            && family(&other.addresses) == family(&self.addresses)
    }

    pub(super) fn shares_an_address_with(&self, other: &Prepared) -> bool {
        let ours = |(address, _): &(IpAddr, u8)| self.addresses.iter().any(|(own, _)| own == address);
        other.addresses.iter().any(ours)
    }

    pub(super) fn has_the_number_of(&self, other: &Prepared) -> bool {
        self.config.router_id == other.config.router_id
    }

    pub(super) fn is_master(&self) -> bool {
        self.router.as_ref().is_some_and(|router| router.role() == Role::Master)
    }

    /// Gives up addresses that other vips of this machine hold from now on, and leaves them on the interface: what of ours is not in
    /// `next`, our settings to come, and is in one of the `takers`.
    pub(super) fn pass_on(&mut self, next: Option<&Prepared>, takers: &[&Prepared]) -> Vec<(IpAddr, u8)> {
        if !self.is_master() {
            return Vec::new();
        }
        let stays = |held: &(IpAddr, u8)| next.is_some_and(|next| next.addresses.contains(held));
        let interface = &self.config.interface;
        let goes = |held: &mut (IpAddr, u8)| {
            let takes = |to: &&Prepared| &to.config.interface == interface && to.addresses.contains(held);
            !stays(held) && takers.iter().any(takes)
        };
        let passed: Vec<(IpAddr, u8)> = self.held.extract_if(.., goes).collect();
        self.addresses.retain(|address| !passed.contains(address));
        passed
    }

    /// Begins as holder, if any of these are its own.
    pub(super) fn inherit(&mut self, passed: &[(IpAddr, u8)]) {
        self.held = self.addresses.iter().copied().filter(|address| passed.contains(address)).collect();
    }

    /// Takes other settings and stays what it is.
    pub(super) fn reconfigure(&mut self, prepared: Prepared, hands: &mut Hands<'_>) {
        let Prepared { config, addresses, keys, connection_keys, mut tracks } = prepared;
        tracks.take_over(&mut self.tracks);
        hands.resets.order(Order::Sign { vip: self.id, keys: connection_keys });
        if config.name != self.config.name {
            tracing::info!(vip = %config.name, former = %self.config.name, "the vip has another name");
        }
        if config.peers != self.config.peers {
            self.wire = None;
        }
        if addresses != self.addresses {
            self.ear = None;
        }
        self.elsewhere.clear();
        let is_back = std::mem::take(&mut self.stopping);
        let same = same_checks(&self.config.track, &config.track);
        (self.config, self.addresses, self.tracks) = (config, addresses, tracks);
        self.seal = Seal::renew(self.seal.take(), keys);
        // Also without a way to speak: what is told of checks from now on is about the new ones.
        let settings = self.router.as_ref().map(|router| self.settings(router.source()));
        if let (Some(router), Some(settings)) = (&mut self.router, settings) {
            let mut outputs = router.reconfigure(settings, &same, hands.now);
            if is_back {
                outputs.extend(router.stay(hands.now));
            }
            self.apply(outputs, hands);
        }
    }

    /// The interface and the address that adverts come from, where there is a way to speak.
    pub(super) fn way(&self) -> Option<(&Interface, IpAddr)> {
        self.wire.as_ref().map(|wire| (wire.interface(), wire.source()))
    }

    /// Where a connection to the holder is kept, or to be taken.
    pub(super) fn lifeline(&self) -> Option<lifeline::Way<'_>> {
        let (interface, source) = self.way()?;
        let router = self.router.as_ref().filter(|router| router.role() == Role::Backup);
        let holder = router.and_then(Router::holder).map(|(holder, _)| holder);
        Some(lifeline::Way { interface, source, peers: &self.config.peers, holder })
    }

    /// What is to be followed so that clients can be told of a takeover. What is held is followed also while there is no way to
    /// speak: it may be back at once.
    pub(super) fn watched(&self) -> Option<Watched> {
        let holds = self.router.as_ref().is_some_and(|router| router.role().holds());
        let last = self.last_way.as_ref().filter(|_| holds);
        let (interface, source) = self.way().or(last.map(|(interface, source)| (interface, *source)))?;
        Some(Watched {
            id: self.id,
            name: self.config.name.clone(),
            router_id: self.config.router_id,
            interface: interface.clone(),
            source,
            addresses: self.addresses.iter().map(|(address, _)| *address).collect(),
            peers: self.config.peers.clone(),
        })
    }

    /// Looks whether there is a way to speak, after anything about the machine has changed.
    pub(super) fn look(&mut self, hands: &mut Hands<'_>) {
        match self.find_way(hands.machine) {
            Ok((interface, source)) => self.open(interface, source, hands),
            Err(problem) => self.close(problem, hands),
        }
        let able = self.wire.as_ref().is_some_and(|wire| wire.interface().up) && self.unable.is_none();
        self.tell_track(self.config.track.len(), able, hands);
        self.put_back(hands);
    }

    /// The interface, and the address to speak from.
    fn find_way(&self, machine: &Machine) -> Result<(Interface, IpAddr), String> {
        let name = &self.config.interface;
        let interface = machine.interface(name).ok_or_else(|| format!("there is no interface {name}"))?;
        let source = self.find_source(interface.index, machine)?;
        for (address, _) in &self.addresses {
            let found = machine.find(interface.index, *address);
            if let Some(found) = found.filter(|found| !self.is_ours(found)) {
                return Err(not_ours(found, name));
            }
        }
        Ok((interface.clone(), source))
    }

    fn find_source(&self, interface: u32, machine: &Machine) -> Result<IpAddr, String> {
        let (name, peers) = (&self.config.interface, &self.config.peers);
        if let Some(source) = self.config.source {
            let usable = machine.find(interface, source).is_some_and(|found| !found.ours && !found.tentative);
            let unusable = || format!("{source}, the source of adverts, is not an address of {name}");
            return usable.then_some(source).ok_or_else(unusable);
        }
        let shared: Vec<IpAddr> = self.addresses.iter().map(|(address, _)| *address).collect();
        let found = netlink::source_address(machine.assigned(), interface, &shared, peers);
        found.ok_or_else(|| format!("interface {name} has no address of its own"))
    }

    fn open(&mut self, interface: Interface, source: IpAddr, hands: &mut Hands<'_>) {
        let same = |wire: &&Wire| wire.source() == source && wire.interface() == &interface;
        let reopen = self.wire.as_ref().filter(same).is_none();
        if reopen {
            match Wire::open(&interface, source, &self.config.peers) {
                Ok(wire) => {
                    self.interface = Some(interface.index);
                    self.last_way = Some((interface.clone(), source));
                    self.wire = Some(wire);
                }
                Err(errno) => return self.close(open_problem(errno), hands),
            }
        }
        if reopen || self.ear.is_none() {
            self.listen_for_rivals(&interface);
        }
        if self.problem.take().is_some() {
            tracing::info!(vip = %self.config.name, %source, "there is a way to speak again");
        }
        let settings = self.settings(source);
        match &mut self.router {
            None if !self.stopping => {
                let mut router = Router::new(settings, hands.now);
                let looked_at = self.held.is_empty();
                if !looked_at {
                    router.inherit();
                }
                for (index, good) in self.tracks.good().iter().enumerate().filter(|_| looked_at) {
                    router.on_track(index, *good, hands.now);
                }
                router.on_track(self.config.track.len(), interface.up, hands.now);
                self.router = Some(router);
            }
            Some(router) if reopen => {
                let same = same_checks(&self.config.track, &self.config.track);
                let outputs = router.reconfigure(settings, &same, hands.now);
                self.apply(outputs, hands);
            }
            _ => {}
        }
    }

    fn listen_for_rivals(&mut self, interface: &Interface) {
        let addresses: Vec<IpAddr> = self.addresses.iter().map(|(address, _)| *address).collect();
        let opened = Ear::open(interface, &addresses);
        if let Err(errno) = &opened {
            tracing::debug!(vip = %self.config.name, %errno, "claims of others can't be heard");
        }
        self.ear = opened.ok();
    }

    /// Takes what others have claimed. It counts where this machine holds the addresses and gives them to nobody.
    pub(super) fn hear_rivals(&mut self, hands: &Hands<'_>) {
        let claims = self.ear.as_ref().map(Ear::heard).unwrap_or_default();
        if self.minds_rivals() {
            claims.into_iter().for_each(|claim| self.rivals.hear(claim, hands.now));
        }
    }

    fn tell_of_rivals(&mut self, now: Time) {
        let Some(Claim { address, mac }) = self.rivals.on_timer(now) else { return };
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        let (vip, claims) = (&self.config.name, self.rivals.counted());
        tracing::warn!(%vip, %address, mac, claims, "another machine claims an address that this one holds");
    }

    fn close(&mut self, problem: String, hands: &mut Hands<'_>) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(vip = %self.config.name, "{problem}");
        }
        self.problem = Some(problem);
        self.tell_track(self.config.track.len(), false, hands);
        self.wire = None;
    }

    fn settings(&self, source: IpAddr) -> Settings {
        let addresses = self.addresses.iter().map(|(address, _)| *address).collect();
        let mut settings = Settings::from_config(&self.config, source, addresses);
        // One more than configured: whether there is a way to speak.
        settings.tracks.push(0);
        settings
    }

    /// What is looked at has been looked at.
    pub(super) fn take_tracks(&mut self, hands: &mut Hands<'_>) {
        for (index, good) in self.tracks.take_changes() {
            let (vip, check) = (&self.config.name, self.tracks.name(index));
            match good {
                true => tracing::info!(%vip, "{check}: good"),
                false if self.was_fit => tracing::warn!(%vip, "{check}: not good"),
                false => tracing::info!(%vip, "{check}: not good yet"),
            }
            self.tell_track(index, good, hands);
        }
    }

    /// Lets what is looked at be looked at.
    pub(super) fn poll_tracks(&mut self, machine: &Machine, listener_ready: &dyn Fn(&str) -> bool) {
        self.tracks.poll(machine, listener_ready);
    }

    fn tell_track(&mut self, index: usize, good: bool, hands: &mut Hands<'_>) {
        if let Some(router) = &mut self.router {
            let outputs = router.on_track(index, good, hands.now);
            self.apply(outputs, hands);
        }
    }

    /// Takes the adverts that are waiting: so many that a flood of them does not keep us from what is due.
    pub(super) fn receive(&mut self, hands: &mut Hands<'_>) {
        for _ in 0..AT_ONCE {
            let Some(wire) = &mut self.wire else { return };
            let arrived = match wire.receive() {
                Ok(Some(arrived)) => arrived,
                Ok(None) => return,
                // The interface went down: its change is told by the monitor.
                Err(errno) => {
                    tracing::debug!(vip = %self.config.name, %errno, "receive an advert");
                    return;
                }
            };
            // Adverts of other virtual routers come in by the same socket, and are signed by other keys.
            if arrived.sender == Sender::Nobody || arrived.payload.get(1) != Some(&self.config.router_id) {
                continue;
            }
            let from = arrived.from;
            if arrived.sender == Sender::Stranger {
                self.reject(from, "it comes from an address that is not among the peers");
                continue;
            }
            let read = match &mut self.seal {
                None => read_advert(arrived.payload, &arrived),
                Some(seal) => match seal.open(arrived.payload, from) {
                    Ok(bytes) => read_advert(bytes, &arrived),
                    Err(why) => {
                        let resigns = arrived.payload.get(2) == Some(&0);
                        let clock = if let Refused::Clock { newer, .. } = why { Some(newer) } else { None };
                        if let (Some(newer), false, Some(router)) = (clock, resigns, &mut self.router) {
                            router.on_doubtful_advert(newer, hands.now);
                        }
                        if let Some(problem) = self.refusals.note(from, why, hands.now) {
                            let vip = &self.config.name;
                            tracing::warn!(%vip, %from, "a peer's adverts are refused: {problem}");
                        }
                        Err(why.to_string())
                    }
                },
            };
            match (read, &mut self.router) {
                (Ok(advert), Some(router)) => {
                    let outputs = router.on_advert(&advert, from, hands.now);
                    self.apply(outputs, hands);
                    self.note_holder(&advert, from, hands);
                }
                (Ok(_), None) => {}
                (Err(why), _) => self.reject(from, &why),
            }
        }
    }

    /// Another machine says that it holds the addresses. Only then their clients are not ours any more: as long as nobody has
    /// them, we may take them again, and every connection goes on.
    fn note_holder(&mut self, advert: &Advert, from: IpAddr, hands: &Hands<'_>) {
        let Some(router) = &self.router else { return };
        let is_holder = router.holder().is_some_and(|(holder, _)| holder == from);
        if router.role().holds() || !is_holder || advert.priority == 0 {
            return;
        }
        if self.elsewhere.len() == self.addresses.len() {
            return;
        }
        let is_shared = |address: &IpAddr| self.addresses.iter().any(|(own, _)| own == address);
        let is_news = |address: &IpAddr| is_shared(address) && !self.elsewhere.contains(address);
        let addresses: Vec<IpAddr> = advert.addresses.iter().copied().filter(is_news).collect();
        if !addresses.is_empty() {
            self.elsewhere.extend(&addresses);
            hands.resets.order(Order::Elsewhere { vip: self.id, addresses });
        }
    }

    fn reject(&mut self, from: IpAddr, why: &str) {
        self.rejected += 1;
        // The first ones, and then ever fewer: whoever sends nonsense could else fill the log.
        if self.rejected.is_power_of_two() {
            let (vip, rejected) = (&self.config.name, self.rejected);
            tracing::warn!(%vip, %from, why, rejected, "an advert was thrown away");
        }
    }

    /// Time went by.
    pub(super) fn on_timer(&mut self, hands: &mut Hands<'_>) {
        if let Some(router) = self.router.as_mut().filter(|router| hands.now >= router.next_deadline()) {
            let outputs = router.on_timer(hands.now);
            self.apply(outputs, hands);
        }
        if hands.now >= self.renew_at {
            self.renew(hands);
        }
        self.tell_of_rivals(hands.now);
        if self.unable.take_if(|(_, again)| hands.now >= *again).is_some() {
            self.look(hands);
        }
    }

    fn renew(&mut self, hands: &mut Hands<'_>) {
        let renewed = self.hold(hands);
        self.fail_on(renewed, hands);
    }

    /// Without its addresses a holder must not say that it has them: another one may be able to.
    fn fail_on(&mut self, held: Result<(), String>, hands: &mut Hands<'_>) {
        if let Err(problem) = held {
            self.unable = Some((problem, hands.now + TRY_AGAIN_AFTER));
            self.tell_track(self.config.track.len(), false, hands);
        }
    }

    /// A peer is known to be gone: by BFD, or by its kernel.
    pub(super) fn on_peer_down(&mut self, peer: IpAddr, hands: &mut Hands<'_>) {
        if let Some(router) = &mut self.router {
            let outputs = router.on_peer_down(peer, hands.now);
            self.apply(outputs, hands);
        }
    }

    /// Ends: hands the addresses over first. See [`Member::is_over`].
    pub(super) fn stop(&mut self, hands: &mut Hands<'_>) {
        self.stopping = true;
        if let Some(router) = &mut self.router {
            let outputs = router.stop(hands.now);
            self.apply(outputs, hands);
        }
    }

    fn apply(&mut self, outputs: Vec<Output>, hands: &mut Hands<'_>) {
        let mut held = Ok(());
        for output in outputs {
            match output {
                Output::SendAdvert(_) | Output::Announce if held.is_err() => {}
                Output::SendAdvert(advert) => self.send(&advert),
                Output::AddAddress => held = self.hold(hands),
                Output::DelAddress => self.let_go(hands),
                Output::Announce => self.announce(),
                Output::Become(role) => self.become_role(role, hands),
                Output::Ignored(why) => {
                    tracing::debug!(vip = %self.config.name, ?why, "an advert was not for us");
                }
            }
        }
        self.fail_on(held, hands);
    }

    fn send(&mut self, advert: &Advert) {
        let Some(wire) = &self.wire else { return };
        for to in wire.destinations() {
            let mut bytes = advert.encode(wire.source(), *to);
            if let Some(seal) = &mut self.seal {
                bytes = seal.close(&bytes, wire.source());
            }
            if let Err(errno) = wire.send(*to, &bytes) {
                self.failed_sends += 1;
                if self.failed_sends.is_power_of_two() {
                    tracing::warn!(vip = %self.config.name, %to, %errno, "an advert could not be sent");
                }
            }
        }
    }

    fn become_role(&mut self, role: Role, hands: &mut Hands<'_>) {
        let vip = &self.config.name;
        match role {
            Role::Init => {}
            Role::Fault if self.was_fit => {
                tracing::warn!(%vip, "this machine is unfit to hold the addresses")
            }
            Role::Fault => tracing::info!(%vip, "this machine is not fit yet to hold the addresses"),
            Role::Backup => tracing::info!(%vip, "this machine stands by"),
            Role::Master => tracing::info!(%vip, "this machine holds the addresses"),
            Role::Resigning => tracing::info!(%vip, "the addresses are offered to another machine"),
            Role::Stopped => tracing::info!(%vip, "the addresses are given up"),
        }
        if role != Role::Master {
            self.rivals.forgive();
        }
        self.was_fit |= matches!(role, Role::Backup | Role::Master);
        let order = |held| Order::Held { vip: self.id, held };
        match role {
            Role::Master => {
                self.transitions += 1;
                self.holding = true;
                self.elsewhere.clear();
                hands.resets.order(order(true));
                // What waits there was said before we took the addresses, by who had them.
                let _ = self.ear.as_ref().map(Ear::heard);
            }
            Role::Backup | Role::Fault | Role::Stopped => {
                self.transitions += u64::from(std::mem::take(&mut self.holding));
                hands.resets.order(order(false));
            }
            Role::Resigning => hands.resets.order(Order::Look),
            Role::Init => {}
        }
    }

    pub(super) fn status(&self) -> VipStatus {
        let router = self.router.as_ref();
        VipStatus {
            name: self.config.name.clone(),
            addresses: self.config.addresses.clone(),
            interface: self.config.interface.clone(),
            role: router.map_or(Role::Init, Router::role),
            priority: router.and_then(Router::priority).unwrap_or(0),
            holder: router.and_then(Router::holder).map(|(holder, _)| holder),
            transitions: self.transitions,
            rejected: self.rejected,
            clock_refused: self.refusals.by_clock(),
            replayed: self.refusals.repeated(),
            wrong_key: self.refusals.by_key(),
            foreign_claims: self.rivals.counted(),
            tracks: self.track_status(),
            bfd: Vec::new(),
            lifeline: false,
            mirrored: 0,
            problem: self.problem.clone().or_else(|| self.unable.as_ref().map(|(why, _)| why.clone())),
        }
    }

    fn track_status(&self) -> Vec<TrackStatus> {
        let good = self.tracks.good().into_iter().enumerate();
        good.map(|(index, good)| TrackStatus { check: self.tracks.name(index), good }).collect()
    }
}

/// Of each of the new checks, which of the old ones it is; last of all, whether there is a way to speak.
fn same_checks(old: &[Track], new: &[Track]) -> Vec<Option<usize>> {
    let find = |track: &Track| old.iter().position(|known| known.check == track.check);
    new.iter().map(find).chain([Some(old.len())]).collect()
}

fn read_advert(bytes: &[u8], arrived: &Arrived<'_>) -> Result<Advert, String> {
    Advert::decode(bytes, arrived.from, arrived.to).map_err(|why| why.to_string())
}

fn open_problem(errno: Errno) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => "raw sockets are not allowed: NET_RAW is missing".to_owned(),
        errno => format!("the sockets for adverts could not be opened: {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TrackCheck;

    #[test]
    fn a_check_is_known_again_at_another_place_and_with_another_weight() {
        let track = |name: &str, weight| Track { check: TrackCheck::Interface(name.to_owned()), weight };
        let old = [track("eth0", 0), track("eth1", 20)];
        assert_eq!(same_checks(&old, &old), [Some(0), Some(1), Some(2)]);
        let new = [track("eth2", 0), track("eth1", 5), track("eth0", 0)];
        assert_eq!(same_checks(&old, &new), [None, Some(1), Some(0), Some(2)]);
        assert_eq!(same_checks(&old, &[]), [Some(2)]);
    }
}
