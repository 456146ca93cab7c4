//! The thread that holds the virtual addresses: it waits for adverts, changes of the machine, orders and deadlines, and
//! lets every [`Member`] do what is due. Nothing in it waits for anything else, so adverts leave in time.

use super::ListenerReady;
use super::bfd::Sessions;
use super::lifeline::Lifelines;
use super::machine::Machine;
use super::member::{Hands, Member, Prepared};
use super::resets::{Id, Order, Resets, Watched, timespec};
use super::status::{BfdStatus, VipStatus};
use super::wake::Waker;
use crate::core::Time;
use crate::sys;
use rustix::event::{PollFd, PollFlags};
use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Instant;

/// Between two looks at a listener of ours.
const POLL_EVERY: Time = 50_000;
/// Between two looks at what others claim. It is only warned of, and whoever likes can send any number of claims, past every
/// firewall: they must not wake this thread.
const HEAR_EVERY: Time = 100_000;

/// What the thread is asked for.
pub(super) enum Command {
    /// Hold exactly these. Answered when it is so.
    Reload(Vec<Prepared>, mpsc::Sender<()>),
    Status(mpsc::Sender<Vec<VipStatus>>),
    /// Hand everything over and end.
    Stop,
}

pub(super) struct Agent {
    commands: mpsc::Receiver<Command>,
    waker: Waker,
    machine: Machine,
    resets: Resets,
    listener_ready: ListenerReady,
    members: Vec<Member>,
    next_id: Id,
    sessions: Sessions,
    lifelines: Lifelines,
    /// What the thread that tells clients was last told.
    watched: Vec<Watched>,
    start: Instant,
    poll_at: Time,
    hear_at: Time,
    stopping: bool,
}

/// Who has something to read.
#[derive(Default)]
struct Readable {
    woken: bool,
    machine: bool,
    members: Vec<bool>,
    sessions: bool,
    lifelines: bool,
}

// === impl Agent ===

impl Agent {
    pub(super) fn new(
        commands: mpsc::Receiver<Command>,
        waker: Waker,
        machine: Machine,
        resets: Resets,
        listener_ready: ListenerReady,
    ) -> Self {
        Self {
            commands,
            waker,
            machine,
            resets,
            listener_ready,
            members: Vec::new(),
            next_id: 0,
            sessions: Sessions::default(),
            lifelines: Lifelines::default(),
            watched: Vec::new(),
            start: Instant::now(),
            poll_at: 0,
            hear_at: 0,
            stopping: false,
        }
    }

    pub(super) fn run(mut self) {
        hurry();
        loop {
            let readable = self.wait();
            self.take_commands();
            if readable.woken {
                // Perhaps by who asks an API server.
                self.poll_at = 0;
            }
            let now = self.now();
            // What has arrived comes before what is due: an advert in the socket means that its sender lives.
            self.each(now, |member, hands, index| {
                if readable.members.get(index).copied().unwrap_or(true) {
                    member.receive(hands);
                }
            });
            if now >= self.hear_at {
                self.hear_at = now + HEAR_EVERY;
                self.each(now, |member, hands, _| member.hear_rivals(hands));
            }
            self.watch_peers(&readable, now);
            self.look_at_tracks(now);
            self.each(now, |member, hands, _| member.on_timer(hands));
            // After what is due: a holder that slept until the kernel took its addresses off puts none of them back.
            if readable.machine {
                self.refresh();
            }
            if self.members.iter().any(Member::is_over) {
                for over in self.members.extract_if(.., |member| member.is_over()) {
                    self.resets.order(Order::Sign { vip: over.id(), keys: None });
                }
                self.look(now);
            }
            if self.stopping && self.members.is_empty() {
                self.sessions.stop(now);
                return;
            }
        }
    }

    fn now(&self) -> Time {
        self.start.elapsed().as_micros() as Time
    }

    fn wait(&self) -> Readable {
        let polled = self.members.iter().any(|member| member.tracks().need_polling()).then_some(self.poll_at);
        let heard = self.members.iter().any(Member::minds_rivals).then_some(self.hear_at);
        let due = self.members.iter().map(Member::next_deadline).chain(polled).chain(heard);
        let peers = [self.sessions.next_deadline(), self.lifelines.next_deadline()];
        let due = due.chain(peers).min().unwrap_or(Time::MAX);
        let timeout = (due != Time::MAX).then(|| timespec(due.saturating_sub(self.now())));
        let mut fds = vec![self.waker.poll_fd(), PollFd::new(&self.machine, PollFlags::IN)];
        let sockets: Vec<_> = self.members.iter().map(Member::socket).collect();
        fds.extend(sockets.iter().flatten().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let first_session = fds.len();
        fds.extend(self.sessions.sockets().map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        let first_line = fds.len();
        fds.extend(self.lifelines.poll_fds());
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return Readable::default();
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let mut next = fds[2..first_session].iter();
        Readable {
            woken: ready(&fds[0]),
            machine: ready(&fds[1]),
            members: sockets.iter().map(|s| s.is_some() && next.next().is_some_and(ready)).collect(),
            sessions: fds[first_session..first_line].iter().any(ready),
            lifelines: fds[first_line..].iter().any(ready),
        }
    }

    /// Lets every member do something.
    fn each(&mut self, now: Time, mut work: impl FnMut(&mut Member, &mut Hands<'_>, usize)) {
        let mut hands = Hands { machine: &mut self.machine, resets: &self.resets, now };
        for (index, member) in self.members.iter_mut().enumerate() {
            work(member, &mut hands, index);
        }
    }

    fn take_commands(&mut self) {
        self.waker.clear();
        loop {
            match self.commands.try_recv() {
                Ok(Command::Reload(wanted, done)) => {
                    self.reload(wanted);
                    let _ = done.send(());
                }
                Ok(Command::Status(reply)) => {
                    let _ = reply.send(self.status());
                }
                Err(mpsc::TryRecvError::Empty) => return,
                // Whoever started us is gone without a word: that is no reason to leave the addresses behind.
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => {
                    if !std::mem::replace(&mut self.stopping, true) {
                        let now = self.now();
                        self.each(now, |member, hands, _| member.stop(hands));
                    }
                    return;
                }
            }
        }
    }

    fn reload(&mut self, wanted: Vec<Prepared>) {
        let now = self.now();
        let mut hands = Hands { machine: &mut self.machine, resets: &self.resets, now };
        let going_on = who_goes_on(&self.members, &wanted);
        let passed = pass_on(&mut self.members, &wanted, &going_on);
        for (index, member) in self.members.iter_mut().enumerate() {
            if !going_on.contains(&Some(index)) {
                member.stop(&mut hands);
            }
        }
        for (prepared, member) in wanted.into_iter().zip(going_on) {
            match member {
                Some(index) => self.members[index].reconfigure(prepared, &mut hands),
                None => {
                    self.next_id += 1;
                    let mut member = Member::new(prepared, self.next_id, &hands);
                    member.inherit(&passed);
                    self.members.push(member);
                }
            }
        }
        self.poll_at = now;
        self.look(now);
    }

    fn refresh(&mut self) {
        if let Err(errno) = self.machine.refresh() {
            tracing::warn!(%errno, "changes of interfaces and addresses can't be read");
        }
        self.poll_at = 0;
        let now = self.now();
        self.look(now);
    }

    /// Everything that hangs on the state of the machine.
    fn look(&mut self, now: Time) {
        // Before the election begins, what is known at once is known.
        self.look_at_tracks(now);
        self.each(now, |member, hands, _| member.look(hands));
        let ways = self.members.iter().filter_map(|m| Some((m.config(), m.way()?)));
        self.sessions.open(ways, now);
        let watched: Vec<_> = self.members.iter().filter_map(Member::watched).collect();
        if watched != self.watched {
            self.watched.clone_from(&watched);
            self.resets.order(Order::Watch(watched));
        }
    }

    fn look_at_tracks(&mut self, now: Time) {
        if now >= self.poll_at {
            self.poll_at = now + POLL_EVERY;
            for member in &mut self.members {
                member.poll_tracks(&self.machine, &*self.listener_ready);
            }
        }
        self.each(now, |member, hands, _| member.take_tracks(hands));
    }

    fn watch_peers(&mut self, readable: &Readable, now: Time) {
        for (interface, peer) in self.sessions.work(readable.sessions, now) {
            tracing::info!(%peer, "BFD: the peer is gone");
            self.each(now, |member, hands, _| {
                if member.config().bfd.is_some() && member.config().interface == interface {
                    member.on_peer_down(peer, hands);
                }
            });
        }
        for (interface, holder) in self.lifelines.work(readable.lifelines, now) {
            tracing::info!(%holder, "the holder's process has ended");
            self.each(now, |member, hands, _| {
                if member.config().interface == interface {
                    member.on_peer_down(holder, hands);
                }
            });
        }
        self.lifelines.keep(self.members.iter().filter_map(Member::lifeline), now);
    }

    fn status(&self) -> Vec<VipStatus> {
        let with_sessions = |member: &Member| {
            let config = member.config();
            let peers = config.peers.iter().filter(|_| config.bfd.is_some());
            let bfd = peers
                .map(|peer| BfdStatus { peer: *peer, up: self.sessions.is_up(&config.interface, *peer) });
            let mirrored = self.resets.mirrored(member.id());
            let lifeline = member.lifeline().is_some_and(|way| self.lifelines.is_up(&way));
            VipStatus { bfd: bfd.collect(), lifeline, mirrored, ..member.status() }
        };
        self.members.iter().map(with_sessions).collect()
    }
}

/// Of each wanted one, the member that goes on with its settings, and holds what it holds without a gap. What counts is whose
/// address it is, then whose number; each member goes on once.
fn who_goes_on(members: &[Member], wanted: &[Prepared]) -> Vec<Option<usize>> {
    let mut going_on = vec![None; wanted.len()];
    let both: fn(&Member, &Prepared) -> bool =
        |member, other| member.shares_an_address_with(other) && member.has_the_number_of(other);
    for alike in [both, Member::shares_an_address_with, Member::has_the_number_of] {
        for (index, prepared) in wanted.iter().enumerate() {
            if going_on[index].is_none() {
                let fits = |member: &Member| member.can_become(prepared) && alike(member, prepared);
                let free = |at: &usize| !going_on.contains(&Some(*at)) && fits(&members[*at]);
                going_on[index] = (0..members.len()).find(free);
            }
        }
    }
    going_on
}

/// Has members give up what other vips of this machine are to hold without a gap: new ones, and those that hold theirs.
fn pass_on(members: &mut [Member], wanted: &[Prepared], going_on: &[Option<usize>]) -> Vec<(IpAddr, u8)> {
    let takes = |member: &Option<usize>| member.is_none_or(|index| members[index].is_master());
    let takers = wanted.iter().zip(going_on).filter(|(_, member)| takes(member));
    let takers: Vec<&Prepared> = takers.map(|(prepared, _)| prepared).collect();
    let mut passed = Vec::new();
    for (index, member) in members.iter_mut().enumerate() {
        let next = going_on.iter().position(|at| *at == Some(index)).map(|at| &wanted[at]);
        passed.extend(member.pass_on(next, &takers));
    }
    passed
}

/// Before all ordinary threads, and woken to the microsecond, as far as the kernel lets us.
fn hurry() {
    if let Err(errno) = sys::be_realtime() {
        tracing::info!(%errno, "no real-time priority (SYS_NICE): adverts can be late on a busy machine");
    }
    let nanosecond = std::num::NonZeroU64::MIN;
    let _ = rustix::thread::set_current_timer_slack(Some(nanosecond));
}
