//! A connection from every standby to the holder, on which nothing is said but hello and goodbye. When the holder's process
//! dies (killed, out of memory, crashed), its kernel ends the connection at once, and the standby need not wait for adverts to
//! be missed.
//!
//! Only an end without goodbye, told by the kernel of a holder that said hello, counts: a silent machine is the business of
//! adverts and BFD, a reload says goodbye, and a holder that is not one of ours says nothing of the kind.

use super::netlink::Interface;
use super::wire;
use crate::core::Time;
use crate::sys;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// TCP port of the holder's end.
const PORT: u16 = 8112;
/// Standbys that are let in, at most.
const MOST: usize = 64;
const HELLO: u8 = b'H';
const GOODBYE: u8 = b'G';
/// Before a holder that refused is asked again: it may not be one of ours.
const RETRY_AFTER: Time = 5_000_000;
/// Without descriptors or memory nobody is let in for so long: asked again at once, the kernel would say the same.
const REST: Time = 100_000;
/// A connection that says nothing for so long is checked, so that one to a machine that is long gone does not stay.
const CHECK_AFTER: std::time::Duration = std::time::Duration::from_secs(60);

/// This machine's way to a network, and who is believed there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) interface: &'a Interface,
    pub(super) source: IpAddr,
    /// Empty: whoever is on the link.
    pub(super) peers: &'a [IpAddr],
    /// Who holds the addresses, where this machine stands by.
    pub(super) holder: Option<IpAddr>,
}

/// All lifelines of this machine.
#[derive(Debug, Default)]
pub(super) struct Lifelines {
    ends: Vec<End>,
    lines: Vec<Line>,
    /// Ends that could not be opened, and when that is tried again.
    closed: BTreeMap<(u32, IpAddr), Time>,
}

/// The holder's end at one address on one interface, for all vips that are there.
#[derive(Debug)]
struct End {
    interface: u32,
    source: IpAddr,
    /// The peers of any of them. Empty: whoever is on the link.
    peers: Vec<IpAddr>,
    listener: OwnedFd,
    /// One for each address: a neighbour that connects again and again keeps nobody else out.
    standbys: Vec<(IpAddr, OwnedFd)>,
    /// Nobody is let in until then.
    resting: Option<Time>,
}

/// A standby's connection.
#[derive(Debug)]
struct Line {
    interface: Interface,
    source: IpAddr,
    holder: IpAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Until the holder has said hello.
    Connecting(OwnedFd),
    Connected(OwnedFd),
    /// Until then.
    Refused(Time),
}

// === impl Lifelines ===

impl Lifelines {
    /// Keeps an end on each of these ways, and a line to each holder.
    pub(super) fn keep<'a>(&mut self, ways: impl Iterator<Item = Way<'a>>, now: Time) {
        let ways: Vec<Way<'a>> = ways.collect();
        self.ends.retain(|end| ways.iter().any(|way| end.is_on(way)));
        self.lines.retain(|line| ways.iter().any(|way| line.is_to_holder_of(way)));
        for end in &mut self.ends {
            end.believe(believed(ways.iter().filter(|way| end.is_on(way))));
        }
        self.closed.retain(|_, again| now < *again);
        for way in &ways {
            let place = (way.interface.index, way.source);
            if !self.ends.iter().any(|end| end.is_on(way)) && !self.closed.contains_key(&place) {
                let all = ways.iter().filter(|other| (other.interface.index, other.source) == place);
                match End::open(way, believed(all)) {
                    Ok(end) => self.ends.push(end),
                    Err(errno) => {
                        tracing::debug!(%errno, "standbys can't be let in on TCP port {PORT}");
                        self.closed.insert(place, now + RETRY_AFTER);
                    }
                }
            }
            let Some(holder) = way.holder else { continue };
            if !self.lines.iter().any(|line| line.is_to_holder_of(way)) {
                let (interface, source) = (way.interface.clone(), way.source);
                let state = begin(&interface, source, holder).map_or(refused(now), State::Connecting);
                self.lines.push(Line { interface, source, holder, state });
            }
        }
    }

    /// Whether there is a connection to the holder.
    pub(super) fn is_up(&self, way: &Way<'_>) -> bool {
        let mut lines = self.lines.iter().filter(|line| line.is_to_holder_of(way));
        lines.any(|line| matches!(line.state, State::Connected(_)))
    }

    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let ends = self.ends.iter().flat_map(End::sockets);
        let lines = self.lines.iter().filter_map(|line| match &line.state {
            State::Connecting(socket) | State::Connected(socket) => Some(PollFd::new(socket, PollFlags::IN)),
            State::Refused(_) => None,
        });
        ends.map(|socket| PollFd::new(socket, PollFlags::IN)).chain(lines)
    }

    pub(super) fn next_deadline(&self) -> Time {
        let refused = self.lines.iter().filter_map(|line| match line.state {
            State::Refused(until) => Some(until),
            _ => None,
        });
        refused.chain(self.ends.iter().filter_map(|end| end.resting)).min().unwrap_or(Time::MAX)
    }

    /// Takes what has happened. Returns the holders whose process has ended, with their interfaces.
    pub(super) fn work(&mut self, readable: bool, now: Time) -> Vec<(String, IpAddr)> {
        for end in &mut self.ends {
            let rested = end.resting.take_if(|until| now >= *until).is_some();
            if readable || rested {
                end.work(now);
            }
        }
        let mut ended = Vec::new();
        for line in &mut self.lines {
            if line.work(readable, now) {
                ended.push((line.interface.name.clone(), line.holder));
            }
        }
        ended
    }
}

// === impl End ===

impl End {
    fn open(way: &Way<'_>, peers: Vec<IpAddr>) -> rustix::io::Result<Self> {
        let listener = open_tcp(way.interface, way.source)?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        sys::only_from_this_link(&listener, way.source)?;
        rustix::net::bind(&listener, &sys::on_link(way.source, PORT, way.interface.index))?;
        rustix::net::listen(&listener, MOST as i32)?;
        let (interface, source) = (way.interface.index, way.source);
        Ok(Self { interface, source, peers, listener, standbys: Vec::new(), resting: None })
    }

    fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        let standbys = self.standbys.iter().map(|(_, standby)| standby);
        standbys.chain(self.resting.is_none().then_some(&self.listener))
    }

    fn is_on(&self, way: &Way<'_>) -> bool {
        self.interface == way.interface.index && self.source == way.source
    }

    fn believes(&self, address: IpAddr) -> bool {
        self.peers.is_empty() || self.peers.contains(&address)
    }

    /// Other peers may stand by from now on; those that stay keep their connections.
    fn believe(&mut self, peers: Vec<IpAddr>) {
        if self.peers != peers {
            self.peers = peers;
            let standbys = std::mem::take(&mut self.standbys);
            let (stay, go) = standbys.into_iter().partition(|(from, _)| self.believes(*from));
            self.standbys = stay;
            part(&go);
        }
    }

    fn let_in(&mut self, from: IpAddr, standby: OwnedFd) {
        // Of one address the last one counts: the machine may have been switched off and on.
        let before: Vec<_> = self.standbys.extract_if(.., |(known, _)| *known == from).collect();
        part(&before);
        if self.standbys.len() < MOST
            && sockopt::set_socket_keepalive(&standby, true).is_ok()
            && say(&standby, HELLO).is_ok()
        {
            self.standbys.push((from, standby));
        }
    }

    fn work(&mut self, now: Time) {
        // Nobody has anything to say here: whoever speaks or goes is let go.
        self.standbys.retain(|(_, standby)| heard(standby) == Heard::Nothing);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while self.resting.is_none() {
            let (standby, from) = match rustix::net::acceptfrom_with(&self.listener, flags) {
                Ok(accepted) => accepted,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.resting = Some(now + REST);
                    return;
                }
                Err(_) => return,
            };
            let from = from.and_then(|from| SocketAddr::try_from(from).ok()).map(|from| from.ip());
            if let Some(from) = from.filter(|from| self.believes(*from)) {
                self.let_in(from, standby);
            }
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Not when the process is killed: that is the point.
        part(&self.standbys);
    }
}

/// Says goodbye: an end without it means that the process has ended.
fn part(standbys: &[(IpAddr, OwnedFd)]) {
    for (_, standby) in standbys {
        let _ = say(standby, GOODBYE);
    }
}

/// Who is believed on any of these ways. Empty: everybody, because one of them believes everybody.
fn believed<'a>(ways: impl Iterator<Item = &'a Way<'a>> + Clone) -> Vec<IpAddr> {
    if ways.clone().any(|way| way.peers.is_empty()) {
        return Vec::new();
    }
    let peers: BTreeSet<IpAddr> = ways.flat_map(|way| way.peers.iter().copied()).collect();
    peers.into_iter().collect()
}

// === impl Line ===

impl Line {
    fn is_to_holder_of(&self, way: &Way<'_>) -> bool {
        way.holder == Some(self.holder)
            && self.interface.index == way.interface.index
            && self.source == way.source
    }

    /// `true`: the holder's kernel says that its process has ended.
    fn work(&mut self, readable: bool, now: Time) -> bool {
        let connected = matches!(self.state, State::Connected(_));
        match &self.state {
            State::Refused(until) if now >= *until => {
                let begun = begin(&self.interface, self.source, self.holder);
                self.state = begun.map_or(refused(now), State::Connecting);
            }
            State::Connecting(socket) | State::Connected(socket) if readable => match heard(socket) {
                Heard::Nothing => {}
                Heard::Hello => self.connected(),
                Heard::End => {
                    self.state = refused(now);
                    return connected;
                }
                Heard::Other => self.state = refused(now),
            },
            _ => {}
        }
        false
    }

    fn connected(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Refused(0));
        self.state = match state {
            State::Connecting(socket) => State::Connected(socket),
            state => state,
        };
    }
}

/// What a connection has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    Hello,
    /// The other side's kernel has ended it.
    End,
    /// A goodbye, words of a stranger, a refusal, or a failure on the way.
    Other,
}

fn heard(socket: &OwnedFd) -> Heard {
    let mut words = [0; 16];
    match rustix::net::recv(socket, &mut words[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Heard::End,
        Ok((1, _)) if words[0] == HELLO => Heard::Hello,
        Err(Errno::AGAIN) => Heard::Nothing,
        Ok(_) | Err(_) => Heard::Other,
    }
}

fn say(socket: &OwnedFd, word: u8) -> rustix::io::Result<usize> {
    rustix::net::send(socket, &[word], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

fn refused(now: Time) -> State {
    State::Refused(now + RETRY_AFTER)
}

fn begin(interface: &Interface, source: IpAddr, holder: IpAddr) -> Option<OwnedFd> {
    let connect = || -> rustix::io::Result<OwnedFd> {
        let socket = open_tcp(interface, source)?;
        rustix::net::bind(&socket, &sys::on_link(source, 0, interface.index))?;
        // An end that somebody elsewhere made up counts as little as a beginning.
        sys::only_from_this_link(&socket, source)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, CHECK_AFTER)?;
        match rustix::net::connect(&socket, &sys::on_link(holder, PORT, interface.index)) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(errno) => Err(errno),
        }
    };
    connect().ok()
}

fn open_tcp(interface: &Interface, like: IpAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(wire::family(like), SocketType::STREAM, flags, None)?;
    sys::bind_to_interface(&socket, &interface.name)?;
    match like {
        IpAddr::V4(_) => sockopt::set_ip_ttl(&socket, 255)?,
        IpAddr::V6(_) => {
            sockopt::set_ipv6_v6only(&socket, true)?;
            sockopt::set_ipv6_unicast_hops(&socket, Some(255))?;
        }
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::super::machine::Machine;
    use super::*;
    use rustix::fd::AsRawFd;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::process::Command;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn lifelines(interface: &Interface) -> Lifelines {
        let mut lifelines = Lifelines::default();
        let way = Way { interface, source: HERE, peers: &[], holder: None };
        lifelines.keep([way].into_iter(), 0);
        assert_eq!(lifelines.ends.len(), 1, "the port is free");
        lifelines
    }

    /// In a process of its own: a limit is for all of it.
    #[test]
    fn without_descriptors_it_rests() {
        const INSIDE: &str = "BUTLER_LB_TEST_NO_DESCRIPTORS";
        if std::env::var_os(INSIDE).is_none() {
            let test = "vip::lifeline::tests::without_descriptors_it_rests";
            let mut again = Command::new(std::env::current_exe().unwrap());
            let again = again.args(["--exact", test]).env(INSIDE, "1").output().unwrap();
            assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
            return;
        }
        let machine = Machine::look().unwrap();
        let interface = machine.interface("lo").unwrap();
        let mut lifelines = lifelines(interface);
        let _standby = begin(interface, HERE, HERE).unwrap();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        assert_eq!(lifelines.poll_fds().count(), 1);
        lifelines.work(true, 1);
        assert_eq!(lifelines.poll_fds().count(), 0, "the kernel would say the same at once");
        assert_eq!(lifelines.next_deadline(), 1 + REST);
        setrlimit(Resource::Nofile, limit).unwrap();
        lifelines.work(false, REST);
        assert_eq!(lifelines.poll_fds().count(), 0);
        lifelines.work(false, 1 + REST);
        assert_eq!(lifelines.poll_fds().count(), 2, "the standby is in");
    }

    #[test]
    fn a_standby_stays_while_any_vip_lists_it_and_is_told_that_it_is_no_death_when_none_does() {
        let machine = Machine::look().unwrap();
        let interface = machine.interface("lo").unwrap();
        let address = |last: u8| IpAddr::from([127, 0, 66, last]);
        let (holder, standby, third) = (address(1), address(2), address(3));
        let way = |peers: &'static [IpAddr]| Way { interface, source: holder, peers, holder: None };
        const LISTED: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 66, 2))];
        const OTHER: &[IpAddr] = &[IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 66, 3))];
        let (mut ours, mut theirs) = (Lifelines::default(), Lifelines::default());
        ours.keep([way(OTHER), way(LISTED)].into_iter(), 0);
        assert_eq!(
            (ours.ends.len(), &ours.ends[0].peers[..]),
            (1, &[standby, third][..]),
            "one end for both"
        );
        let line = Way { interface, source: standby, peers: &[], holder: Some(holder) };
        theirs.keep([line].into_iter(), 0);
        while !theirs.is_up(&line) {
            ours.work(true, 0);
            assert_eq!(theirs.work(true, 0), []);
        }
        let port = ours.ends[0].listener.as_raw_fd();
        ours.keep([way(LISTED)].into_iter(), 0);
        assert_eq!((ours.ends[0].standbys.len(), ours.ends[0].listener.as_raw_fd()), (1, port), "in place");
        ours.keep([way(OTHER)].into_iter(), 0);
        assert_eq!(ours.ends[0].standbys.len(), 0);
        while theirs.is_up(&line) {
            assert_eq!(theirs.work(true, 0), [], "it was told goodbye");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_not_asked_for_in_every_round() {
        let machine = Machine::look().unwrap();
        let interface = machine.interface("lo").unwrap();
        let source = IpAddr::from([127, 0, 66, 9]);
        let taken = std::net::TcpListener::bind((source, PORT)).unwrap();
        let mut lifelines = Lifelines::default();
        let way = Way { interface, source, peers: &[], holder: None };
        lifelines.keep([way].into_iter(), 0);
        drop(taken);
        lifelines.keep([way].into_iter(), RETRY_AFTER - 1);
        assert!(lifelines.ends.is_empty());
        lifelines.keep([way].into_iter(), RETRY_AFTER);
        assert_eq!(lifelines.ends.len(), 1);
    }
}
