//! One thread of the data plane: a loop around epoll with listeners, connections and deadlines of its own. Nothing in it
//! waits but epoll, and nothing is allocated for an event.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    time::Timespec,
};

use super::{
    access::{Ending, Log},
    arrive::BATCH,
    clock::Clock,
    counters::Counters,
    farewell::{Farewells, PATIENCE},
    inbox::{Command, Inbox, Inboxes},
    link::{BACKEND, CLIENT, Link, Phase},
    mover::{Broken, Flow, Mover, Tuning, key_of},
    settings::Settings,
    shared::Shared,
    slab::{Key, Slab},
    sockets,
    spread::{Pace, Spread},
    turns::Turns,
};
use crate::core::Time;

/// Events that are taken from epoll at once.
const EVENTS: usize = 256;
/// Tokens of what is no connection are below 2^33: the inbox, and sockets of listeners (`listener << 12 | place`).
const INBOX: u64 = (1 << 33) - 1;
const PLACE_BITS: u32 = 12;
const PLACES: u64 = 1 << PLACE_BITS;
/// Batches of clients that are taken from a socket before it is closed: as many as the kernel keeps, and no endless flood.
const LAST_ROUNDS: usize = (1 << 16) / BATCH;
/// After so many connections it is looked at again whether backends are near.
const LOOK_AGAIN: u8 = 63;
/// How long accepting rests when there are no descriptors left.
const REST: Time = 100_000;

pub(super) struct Worker {
    pub(super) number: usize,
    pub(super) clock: Clock,
    pub(super) now: Time,
    /// Counts the turns, from 1.
    pub(super) turns: u64,
    pub(super) mover: Mover,
    pub(super) links: Slab<Link>,
    pub(super) wheel: super::wheel::Wheel,
    /// By the listener's id. One that is gone stays while it has connections, and is forgotten by a later reload.
    pub(super) listeners: Vec<Option<Local>>,
    pub(super) log: Option<Log>,
    /// Connections below this age are not shed for the sake of even shares.
    pub(super) young: Time,
    pub(super) inboxes: Arc<Inboxes>,
    pub(super) spread: Arc<Spread>,
    pace: Pace,
    /// Connections that have come from another thread, and are not counted here yet.
    pub(super) taken: u64,
    /// Listening sockets on their way from one listener to another, within one reload.
    aside: Vec<(SocketAddr, OwnedFd)>,
    /// How many connections there are, for others to see.
    open: Arc<AtomicU64>,
    /// Links that have more to move, once the others had their turn.
    again: Turns,
    /// Clients that are cut once they have received everything.
    pub(super) farewells: Farewells,
    /// Accepting rests until then.
    resting: Option<Time>,
    over: bool,
}

/// A listener, as one thread has it.
pub(super) struct Local {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<Settings>,
    pub(super) counters: Arc<Counters>,
    pub(super) sockets: Vec<Option<(SocketAddr, OwnedFd)>>,
    pub(super) near: Near,
}

/// Whether backends are reached within the call that sets out for them, as on this machine. Looked at again now and then.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// Connections for which it is not looked at.
    skip: u8,
}

/// What a thread is started with.
pub(super) struct Start {
    pub(super) number: usize,
    pub(super) clock: Clock,
    pub(super) inboxes: Arc<Inboxes>,
    pub(super) spread: Arc<Spread>,
    pub(super) open: Arc<AtomicU64>,
    pub(super) tuning: Tuning,
    pub(super) log: Option<Log>,
}

// === impl Near ===

impl Near {
    /// Whether the next connection is worth a look.
    pub(super) fn look(&mut self) -> bool {
        let look = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        look
    }

    pub(super) fn learn(&mut self, near: bool) {
        self.skip = if near { 0 } else { LOOK_AGAIN };
    }
}

// === impl Worker ===

impl Worker {
    pub(super) fn new(start: Start) -> Result<Self, Errno> {
        let mover = Mover::new(start.tuning)?;
        let inbox = start.inboxes.each().get(start.number).ok_or(Errno::INVAL)?;
        epoll::add(&mover.epoll, inbox.bell(), EventData::new_u64(INBOX), EventFlags::IN)?;
        let now = start.clock.now();
        Ok(Self {
            number: start.number,
            clock: start.clock,
            now,
            turns: 0,
            mover,
            links: Slab::new(),
            wheel: super::wheel::Wheel::new(now),
            listeners: Vec::new(),
            log: start.log,
            young: u64::try_from(start.tuning.young.as_micros()).unwrap_or(Time::MAX),
            inboxes: start.inboxes,
            spread: start.spread,
            pace: Pace::new(now),
            taken: 0,
            aside: Vec::new(),
            open: start.open,
            again: Turns::default(),
            farewells: Farewells::default(),
            resting: None,
            over: false,
        })
    }

    /// Runs until it is told to end.
    pub(super) fn run(mut self) -> Result<(), Errno> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut due = Vec::new();
        while !self.over {
            let timeout = self.timeout();
            self.turn(timeout.as_ref(), &mut events, &mut due)?;
            self.reckon();
        }
        Ok(())
    }

    /// Tells how much there was to do in this turn, and now and then has a look at the others.
    pub(super) fn reckon(&mut self) {
        let now = self.clock.now();
        let busy = self.pace.worked(self.now, now);
        self.spread.note(self.number, &self.pace);
        if busy.is_some_and(|busy| busy || self.spread.used() > 1) {
            self.look_around(now);
        }
    }

    /// Waits until there is something to do, and does it.
    pub(super) fn turn(
        &mut self,
        timeout: Option<&Timespec>,
        events: &mut Vec<Event>,
        due: &mut Vec<u32>,
    ) -> Result<(), Errno> {
        events.clear();
        match epoll::wait(&self.mover.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        self.now = self.clock.now();
        self.turns += 1;
        for event in &*events {
            let (token, flags) = (event.data.u64(), event.flags);
            match key_of(token) {
                Some((key, side)) => self.on_socket(key, side, flags),
                None if token == INBOX => self.on_inbox(),
                None => self.on_arrivals((token >> PLACE_BITS) as usize, (token % PLACES) as usize),
            }
        }
        self.go_on();
        self.wheel.come_up(self.now, due);
        for index in due.drain(..) {
            self.on_deadline(index);
        }
        self.farewells.look(self.now);
        self.publish();
        Ok(())
    }

    /// Tells how many connections there are.
    pub(super) fn publish(&mut self) {
        self.open.store((self.links.len() + self.farewells.len()) as u64, Ordering::Relaxed);
        if self.taken > 0 {
            self.inbox().arrived(self.taken);
            self.taken = 0;
        }
    }

    fn inbox(&self) -> &Inbox {
        &self.inboxes.each()[self.number]
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let next = [self.wheel.next(), self.resting, self.farewells.next()].into_iter().flatten().min()?;
        Timespec::try_from(Duration::from_micros(next.saturating_sub(self.now))).ok()
    }

    fn on_socket(&mut self, key: Key, side: usize, flags: EventFlags) {
        let Some(link) = self.links.get_mut(key) else { return };
        if side == BACKEND && link.dialled == self.turns {
            // It is of the socket that was left earlier in this turn: epoll did not know the new one yet.
            return;
        }
        // Also told to those who cannot act on it yet.
        link.ends[side].hear(flags);
        match link.phase {
            Phase::Open => {}
            Phase::Connecting if side == BACKEND => return self.on_connect(key, flags),
            Phase::Header if side == CLIENT => return self.on_header(key),
            Phase::Waiting if side == CLIENT && flags.intersects(EventFlags::HUP | EventFlags::ERR) => {
                return self.close(key, Ending::ClientCut);
            }
            // Whatever the client says is read when there is somebody to tell it to.
            Phase::Connecting | Phase::Header | Phase::Waiting => return,
        }
        let end = &mut link.ends[side];
        end.readable |= end.hung || flags.contains(EventFlags::IN);
        let room = end.blocked && flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        end.blocked &= !room;
        if room && !self.pump(key, 1 - side) {
            return;
        }
        self.pump(key, side);
    }

    /// Moves bytes from one end to the other, and deals with what comes of it. `false`: the link is gone.
    pub(super) fn pump(&mut self, key: Key, from: usize) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        if link.ends[from].queued {
            // Its turn comes in this round anyway, and is as long as those of the others.
            return true;
        }
        let before = link.moved[from];
        let flow = self.mover.pump(link, key, from);
        let moved = link.moved[from] - before;
        let over = link.is_over();
        let lost = link.is_lost(from) || link.is_done_with(from);
        if moved > 0 {
            link.active = self.now;
            if from == BACKEND {
                link.heard = self.now;
            }
            if let Some(Some(local)) = self.listeners.get(link.listener as usize) {
                let counters = &local.counters;
                if from == CLIENT { &counters.from_clients } else { &counters.from_backends }.add(moved);
            }
        }
        match flow {
            Ok(_) if over => {
                self.close(key, Ending::Done);
                false
            }
            // Nothing more comes from there, and nothing reaches it: the other side would wait for nobody.
            Ok(Flow::Rest) if lost => {
                self.on_break(key, Broken { end: from, by_writing: false, errno: Errno::CONNRESET })
            }
            Ok(Flow::Rest) => true,
            Ok(Flow::More) => {
                link.ends[from].queued = true;
                self.again.ask(key, from);
                true
            }
            Err(broken) => self.on_break(key, broken),
        }
    }

    /// An end has failed. What it had said before still reaches the other one, which then learns that it was cut.
    pub(super) fn on_break(&mut self, key: Key, broken: Broken) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        if broken.end == BACKEND && link.is_untouched() {
            self.on_refusal(key, broken.errno);
            return self.links.get_mut(key).is_some();
        }
        if broken.by_writing {
            // Its end of the connection is found when all of it was read.
            (link.ends[broken.end].deaf, link.ends[broken.end].readable) = (true, true);
            self.mover.discard(&mut link.held[1 - broken.end]);
            // Who goes on talking and never listens is not waited for.
            link.active = self.now;
            self.wheel.set(key.index, self.now + PATIENCE);
            return self.pump(key, broken.end);
        }
        self.close(key, if broken.end == CLIENT { Ending::ClientCut } else { Ending::BackendCut });
        false
    }

    fn go_on(&mut self) {
        let mut round = self.again.begin();
        for (key, from) in round.drain(..) {
            if let Some(link) = self.links.get_mut(key) {
                link.ends[from].queued = false;
            }
            self.pump(key, from);
        }
        self.again.end(round);
        if self.resting.is_some_and(|until| until <= self.now) {
            self.resting = None;
            self.watch_listeners();
        }
    }

    pub(super) fn on_deadline(&mut self, index: u32) {
        let Some(key) = self.links.key_at(index) else { return };
        let Some(link) = self.links.get_mut(key) else { return };
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        let settings = &local.settings;
        let deadline = match link.phase {
            Phase::Header | Phase::Connecting => link.since.saturating_add(settings.connect),
            Phase::Waiting => link.since.saturating_add(settings.queue),
            Phase::Open if link.deaf().is_some() => link.active.saturating_add(PATIENCE.min(settings.idle)),
            Phase::Open => link.active.saturating_add(settings.idle),
        };
        let quiet = match link.deaf() {
            Some(CLIENT) => Ending::ClientCut,
            Some(_) => Ending::BackendCut,
            None => Ending::Idle,
        };
        if deadline > self.now {
            if link.phase == Phase::Open && !link.kept_alive {
                // Most connections are over by now, and were spared the calls.
                link.kept_alive = true;
                let kept =
                    link.ends[BACKEND].fd().map(|socket| sockets::keep_alive(socket, settings.liveness));
                if let Some(Err(errno)) = kept {
                    tracing::warn!(%errno, "a connection cannot be kept alive");
                }
            }
            return self.wheel.set(index, deadline);
        }
        match link.phase {
            Phase::Header => self.close(key, Ending::BadHeader),
            Phase::Waiting => self.close(key, Ending::NoRoom),
            Phase::Open => self.close(key, quiet),
            Phase::Connecting => self.on_refusal(key, Errno::TIMEDOUT),
        }
    }

    // --- listeners ---

    fn on_arrivals(&mut self, listener: usize, place: usize) {
        if let Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) = self.accept(listener, place)
        {
            // Epoll would tell of the same client again and again.
            tracing::warn!(thread = self.number, "no descriptors or memory left: accepting rests for 100 ms");
            self.resting = Some(self.now + REST);
            for (_, socket) in
                self.listeners.iter().flatten().flat_map(|local| local.sockets.iter().flatten())
            {
                let _ = epoll::delete(&self.mover.epoll, socket);
            }
        }
    }

    fn watch_listeners(&mut self) {
        for (id, local) in self.listeners.iter().enumerate() {
            for (place, entry) in local.iter().flat_map(|local| local.sockets.iter().enumerate()) {
                if let Some((address, socket)) = entry {
                    let data = EventData::new_u64((id as u64) << PLACE_BITS | place as u64);
                    match epoll::add(&self.mover.epoll, socket, data, EventFlags::IN) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => {
                            tracing::error!(%address, %errno, "a listening socket cannot be watched")
                        }
                    }
                }
            }
        }
    }

    // --- commands ---

    pub(super) fn on_inbox(&mut self) {
        for command in self.inbox().take() {
            match command {
                Command::Take(links) => self.take(links),
                Command::SetAside { listener, addresses } => self.set_aside(listener, &addresses),
                Command::Serve { shared, settings, keep, adopt, mut sockets, done } => {
                    sockets.extend(self.aside.extract_if(.., |(address, _)| adopt.contains(address)));
                    self.serve(shared, settings, &keep, sockets);
                    // Nobody may be waiting any more.
                    let _ = done.send(());
                }
                Command::Room { listener, key, choice } => self.on_room(listener, key, choice),
                Command::Leave { addresses } => self.leave(&addresses),
                Command::Close { listener, backend, count, which } => {
                    self.shed(listener, backend, &count, which)
                }
                Command::End => {
                    self.close_all();
                    self.over = true;
                }
            }
        }
    }

    pub(super) fn serve(
        &mut self,
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        keep: &[SocketAddr],
        new: Vec<(SocketAddr, OwnedFd)>,
    ) {
        let id = shared.id as usize;
        let spread = Arc::clone(&self.spread);
        let local = self.local(shared, Arc::clone(&settings));
        for (_, socket) in local.sockets.iter().flatten().chain(&new) {
            // What is accepted from now on is as configured now; a socket that takes no options is none that we keep.
            let _ = sockets::keep_alive(socket, settings.liveness);
        }
        local.settings = settings;
        let leaving: Vec<usize> = (0..local.sockets.len())
            .filter(|place| {
                local.sockets[*place].as_ref().is_some_and(|(address, _)| !keep.contains(address))
            })
            .collect();
        for (address, socket) in new {
            let place = local.sockets.iter().position(Option::is_none).unwrap_or(local.sockets.len());
            if place == local.sockets.len() {
                local.sockets.push(None);
            }
            local.sockets[place] = Some((address, socket));
        }
        local.steer(&spread);
        for place in leaving {
            // Who has connected already is still served.
            let mut rounds = 0..LAST_ROUNDS;
            while rounds.next().is_some() && matches!(self.accept(id, place), Ok(true)) {}
            if let Some(Some(local)) = self.listeners.get_mut(id) {
                local.sockets[place] = None;
            }
        }
        if self.resting.is_none() {
            self.watch_listeners();
        }
        self.forget_unused();
    }

    /// A listener as this thread has it, from now on if it did not.
    pub(super) fn local(&mut self, shared: Arc<Shared>, settings: Arc<Settings>) -> &mut Local {
        let id = shared.id as usize;
        if self.listeners.len() <= id {
            self.listeners.resize_with(id + 1, || None);
        }
        let counters = shared.counters(self.number);
        self.listeners[id].get_or_insert_with(|| Local {
            shared,
            settings,
            counters,
            sockets: Vec::new(),
            near: Near::default(),
        })
    }

    /// Takes sockets from a listener, with the clients that wait at them, for another one.
    fn set_aside(&mut self, listener: u32, addresses: &[SocketAddr]) {
        let Some(Some(local)) = self.listeners.get_mut(listener as usize) else { return };
        for entry in &mut local.sockets {
            if let Some((address, socket)) = entry.take_if(|(address, _)| addresses.contains(address)) {
                // While accepting rests it is not there, and what epoll knows of it is the old listener's in any case.
                let _ = epoll::delete(&self.mover.epoll, &socket);
                self.aside.push((address, socket));
            }
        }
    }

    /// Listeners that are gone, and their last connections too.
    fn forget_unused(&mut self) {
        let is_gone = |local: &Option<Local>| {
            local.as_ref().is_some_and(|local| local.sockets.iter().all(Option::is_none))
        };
        if !self.listeners.iter().any(is_gone) {
            return;
        }
        let used: BTreeSet<u32> = self.links.iter().map(|(_, link)| link.listener).collect();
        for (id, local) in (0..).zip(&mut self.listeners) {
            if is_gone(local) && !used.contains(&id) {
                *local = None;
            }
        }
    }
}
