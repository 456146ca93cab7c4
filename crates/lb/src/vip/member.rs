//! One configured virtual address on this machine: the election of `core::vrrp` with its sockets, and what it decides done.
//!
//! The sockets come and go with the interface and its own address; the election stays, and is told by one more track check
//! whether there is a way to speak.

use super::clocks::Clocks;
use super::lifeline;
use super::machine::Machine;
use super::netlink::{self, Interface};
use super::resets::{Order, Resets, Watched};
use super::seal::{Seal, SealKeys};
use super::status::{TrackStatus, VipStatus};
use super::track::Tracks;
use super::wire::{Arrived, Sender, Wire};
use crate::config::{Track, Vip};
use crate::core::auth::Refused;
use crate::core::neighbour::{self, Operation};
use crate::core::vrrp::{Advert, Output, Role, Router, Settings};
use crate::core::{SECOND, Time};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::net::IpAddr;

/// Adverts that are taken before other things get their turn.
const AT_ONCE: usize = 64;
/// Seconds that an address stays without us, at least. The kernel looks once a second.
const SHORTEST_LIFE: u32 = 3;
/// Before a machine that could not put its addresses on stands again.
const TRY_AGAIN_AFTER: Time = 5 * SECOND;

/// A configured virtual address.
#[derive(Debug)]
pub(super) struct Member {
    config: Vip,
    addresses: Vec<(IpAddr, u8)>,
    seal: Option<Seal>,
    tracks: Tracks,
    wire: Option<Wire>,
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
    /// Whether it was ever fit to. Before that, what is not so is nothing to warn of.
    was_fit: bool,
    rejected: u64,
    clocks: Clocks,
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
    pub(super) fn new(prepared: Prepared, hands: &Hands<'_>) -> Self {
        let Prepared { config, addresses, keys, connection_keys, tracks } = prepared;
        hands.resets.order(Order::Sign { vip: config.name.clone(), keys: connection_keys });
        Self {
            config,
            addresses,
            seal: Seal::renew(None, keys),
            tracks,
            wire: None,
            router: None,
            interface: None,
            held: Vec::new(),
            renew_at: Time::MAX,
            problem: None,
            unable: None,
            stopping: false,
            transitions: 0,
            holding: false,
            was_fit: false,
            rejected: 0,
            clocks: Clocks::default(),
            failed_sends: 0,
        }
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

    pub(super) fn is_over(&self) -> bool {
        self.stopping && self.router.as_ref().is_none_or(|router| router.role() == Role::Stopped)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let router = self.router.as_ref().map_or(Time::MAX, Router::next_deadline);
        let again = self.unable.as_ref().map_or(Time::MAX, |(_, again)| *again);
        router.min(self.renew_at).min(again)
    }

    /// Seconds after which the kernel takes an address off that nobody renews: a process that was killed or hangs must not keep it
    /// beside its next holder, and that one must not be slower.
    fn lifetime(&self) -> u32 {
        (3 * self.config.advert_ms).div_ceil(1000).max(SHORTEST_LIFE)
    }

    /// Whether other settings can be taken without an end and a new start.
    pub(super) fn can_become(&self, other: &Prepared) -> bool {
        let family = |addresses: &[(IpAddr, u8)]| addresses.first().map(|(address, _)| address.is_ipv4());
        !self.stopping
            && other.config.name == self.config.name
            && other.config.interface == self.config.interface
            && other.config.router_id == self.config.router_id
            && other.config.version == self.config.version
            && family(&other.addresses) == family(&self.addresses)
    }

    /// Takes other settings and stays what it is.
    pub(super) fn reconfigure(&mut self, prepared: Prepared, hands: &mut Hands<'_>) {
        let Prepared { config, addresses, keys, connection_keys, tracks } = prepared;
        hands.resets.order(Order::Sign { vip: config.name.clone(), keys: connection_keys });
        if config.peers != self.config.peers {
            self.wire = None;
        }
        let same = same_checks(&self.config.track, &config.track);
        (self.config, self.addresses, self.tracks) = (config, addresses, tracks);
        self.seal = Seal::renew(self.seal.take(), keys);
        // Also without a way to speak: what is told of checks from now on is about the new ones.
        let settings = self.router.as_ref().map(|router| self.settings(router.source()));
        if let (Some(router), Some(settings)) = (&mut self.router, settings) {
            let outputs = router.reconfigure(settings, &same, hands.now);
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

    /// What is to be followed so that clients can be told of a takeover.
    pub(super) fn watched(&self) -> Option<Watched> {
        let (interface, source) = self.way()?;
        Some(Watched {
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
        let virtual_addresses: Vec<IpAddr> = self.addresses.iter().map(|(address, _)| *address).collect();
        let source = netlink::source_address(
            machine.assigned(),
            interface.index,
            &virtual_addresses,
            &self.config.peers,
        );
        let source = source.ok_or_else(|| format!("interface {name} has no address of its own"))?;
        for (address, _) in &self.addresses {
            let found = machine.find(interface.index, *address);
            if let Some(found) = found.filter(|found| !may_remove(found)) {
                let prefix = found.prefix;
                return Err(format!("{address}/{prefix} on {name} is this machine's own address"));
            }
        }
        Ok((interface.clone(), source))
    }

    fn open(&mut self, interface: Interface, source: IpAddr, hands: &mut Hands<'_>) {
        let same = |wire: &&Wire| wire.source() == source && wire.interface() == &interface;
        let reopen = self.wire.as_ref().filter(same).is_none();
        if reopen {
            match Wire::open(&interface, source, &self.config.peers) {
                Ok(wire) => {
                    self.interface = Some(interface.index);
                    self.wire = Some(wire);
                }
                Err(errno) => return self.close(open_problem(errno), hands),
            }
        }
        if self.problem.take().is_some() {
            tracing::info!(vip = %self.config.name, %source, "there is a way to speak again");
        }
        let settings = self.settings(source);
        match &mut self.router {
            None if !self.stopping => {
                let mut router = Router::new(settings, hands.now);
                for (index, good) in self.tracks.good().iter().enumerate() {
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
                        let by_clock = matches!(why, Refused::Clock { .. });
                        if let (true, false, Some(router)) = (by_clock, resigns, &mut self.router) {
                            router.on_doubtful_advert(hands.now);
                        }
                        if let Some(problem) = self.clocks.note(from, why, hands.now) {
                            let (vip, refused) = (&self.config.name, self.clocks.refused());
                            let advice =
                                if by_clock { ". Have both machines set their clocks by NTP" } else { "" };
                            tracing::warn!(%vip, %from, refused, "a peer's adverts are refused: {problem}{advice}");
                        }
                        Err(why.to_string())
                    }
                },
            };
            match (read, &mut self.router) {
                (Ok(advert), Some(router)) => {
                    let outputs = router.on_advert(&advert, from, hands.now);
                    self.apply(outputs, hands);
                }
                (Ok(_), None) => {}
                (Err(why), _) => self.reject(from, &why),
            }
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

    /// Has exactly the configured addresses on the interface, for another while.
    fn hold(&mut self, hands: &mut Hands<'_>) -> Result<(), String> {
        let Some(index) = self.interface else { return Ok(()) };
        for (address, prefix) in self.held.extract_if(.., |held| !self.addresses.contains(held)) {
            report("take off", address, hands.machine.delete(index, address, prefix));
        }
        let lifetime = self.lifetime();
        let mut outcome = Ok(());
        for (address, prefix) in &self.addresses {
            if self.held.contains(&(*address, *prefix)) && hands.machine.find(index, *address).is_some() {
                hands.machine.renew(index, *address, lifetime);
                continue;
            }
            let added = hands.machine.add(index, *address, *prefix, lifetime);
            if let Err(errno) = &added {
                outcome = Err(format!("{address} can't be put on {}: {errno}", self.config.interface));
            }
            report("put on", *address, added);
        }
        self.held.clone_from(&self.addresses);
        self.renew_at = hands.now + Time::from(lifetime) * SECOND / 3;
        outcome
    }

    /// Takes our addresses off the interface, and those that an earlier life left there.
    fn let_go(&mut self, hands: &mut Hands<'_>) {
        let Some(index) = self.interface else { return };
        let held = std::mem::take(&mut self.held);
        self.renew_at = Time::MAX;
        for (address, _) in held.iter().chain(&self.addresses) {
            if let Some(found) = hands.machine.find(index, *address).copied().filter(may_remove) {
                report("take off", *address, hands.machine.delete(index, *address, found.prefix));
            }
        }
    }

    /// Puts back what someone else took off.
    fn put_back(&mut self, hands: &mut Hands<'_>) {
        let Some(index) = self.wire.as_ref().map(|wire| wire.interface().index) else { return };
        let gone = |(address, _): &(IpAddr, u8)| hands.machine.find(index, *address).is_none();
        if self.unable.is_none() && self.held.iter().any(gone) {
            tracing::warn!(vip = %self.config.name, "someone took an address off that we hold; it is put back");
            let held = self.hold(hands);
            self.announce();
            self.fail_on(held, hands);
        }
    }

    fn announce(&self) {
        let Some(wire) = &self.wire else { return };
        let mac = wire.interface().mac;
        for (address, _) in &self.addresses {
            let sent = match address {
                IpAddr::V4(v4) => wire
                    .send_frame(&neighbour::gratuitous_arp(mac, *v4, Operation::Request))
                    .and_then(|()| wire.send_frame(&neighbour::gratuitous_arp(mac, *v4, Operation::Reply))),
                IpAddr::V6(v6) => wire.send_frame(&neighbour::unsolicited_advertisement(mac, *v6)),
            };
            if let Err(errno) = sent {
                tracing::warn!(vip = %self.config.name, %address, %errno, "an address could not be announced");
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
        self.was_fit |= matches!(role, Role::Backup | Role::Master);
        let order = |held| Order::Held { vip: self.config.name.clone(), held };
        match role {
            Role::Master => {
                self.transitions += 1;
                self.holding = true;
                hands.resets.order(order(true));
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
            clock_refused: self.clocks.refused(),
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

/// Ours by its mark; or, on kernels that keep no mark, a bare address such as only we and our like put there.
fn may_remove(found: &netlink::Assigned) -> bool {
    found.ours || found.prefix == if found.address.is_ipv4() { 32 } else { 128 }
}

fn open_problem(errno: Errno) -> String {
    match errno {
        Errno::PERM | Errno::ACCESS => "raw sockets are not allowed: NET_RAW is missing".to_owned(),
        errno => format!("the sockets for adverts could not be opened: {errno}"),
    }
}

fn report(operation: &str, address: IpAddr, outcome: rustix::io::Result<()>) {
    match outcome {
        Ok(()) => {}
        Err(Errno::PERM) => tracing::error!(%address, "{operation} the interface: NET_ADMIN is missing"),
        Err(errno) => tracing::error!(%address, %errno, "{operation} the interface"),
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
