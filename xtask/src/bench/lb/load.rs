//! The load: one thread, edge-triggered epoll, a bounded number of connections, to 127.0.0.1 only.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt},
    time::Timespec,
};

use super::backend::ANSWER;

/// Not counted at the beginning of every stretch.
const WARM_UP: Duration = Duration::from_millis(200);
/// A stretch in which nothing happens for so long has failed.
const HANGS: Duration = Duration::from_secs(5);
const QUESTION: [u8; 110] = [b'G'; 110];

/// What a stretch has shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) elapsed: Duration,
    /// Answers, connections or bytes.
    pub(super) count: u64,
    /// Sorted; empty for bytes.
    pub(super) latencies: Vec<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Questions on connections that stay.
    Questions,
    /// A connection for every question.
    Connections,
    /// Bytes, as many as go through.
    Bulk,
}

/// What became of connections around a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Casualties {
    /// Connections that were begun after it and answered.
    pub(super) answered: u64,
    /// Connections that were begun after it and failed.
    pub(super) failed: u64,
    /// Connections that were under way then and failed.
    pub(super) cut: u64,
}

struct Client {
    socket: OwnedFd,
    begun: Instant,
    received: usize,
}

struct Load {
    kind: Kind,
    target: SocketAddr,
    epoll: OwnedFd,
    clients: Vec<Option<Client>>,
    shown: Shown,
    counting: bool,
    heard: Instant,
    /// When connections began that have failed, where that is not the end.
    failures: Option<Vec<Instant>>,
    /// As long as the longest read; nothing is ever written into it.
    bin: Vec<u8>,
}

/// Puts load on an address for a while. `started` is called when counting begins.
pub(super) fn run<T>(
    kind: Kind,
    target: SocketAddr,
    connections: usize,
    duration: Duration,
    started: impl FnOnce() -> Result<T>,
) -> Result<(Shown, T)> {
    ensure!(target.ip().is_loopback(), "load is put on loopback addresses only");
    let mut load = Load::new(kind, target, connections).context("start the load")?;
    let begin = Instant::now();
    let mut counted_from = begin;
    let mut started = Some(started);
    let mut token = None;
    while begin.elapsed() < WARM_UP + duration {
        if begin.elapsed() >= WARM_UP
            && let Some(started) = started.take()
        {
            token = Some(started()?);
            counted_from = Instant::now();
            load.counting = true;
        }
        load.turn()?;
    }
    let mut shown = load.shown;
    shown.elapsed = counted_from.elapsed();
    shown.latencies.sort_unstable();
    Ok((shown, token.context("the stretch was too short")?))
}

/// So many connections, one after the other on each of a few clients. The first one that fails is an error.
pub(super) fn connect(target: SocketAddr, clients: usize, count: u64) -> Result<Shown> {
    ensure!(target.ip().is_loopback(), "load is put on loopback addresses only");
    let mut load = Load::new(Kind::Connections, target, clients).context("start the load")?;
    load.counting = true;
    let begin = Instant::now();
    while load.shown.count < count {
        load.turn().with_context(|| format!("after {} connections", load.shown.count))?;
    }
    load.shown.elapsed = begin.elapsed();
    Ok(load.shown)
}

/// New connections all the time; in the middle of it something is changed.
pub(super) fn change(
    target: SocketAddr,
    clients: usize,
    duration: Duration,
    change: impl FnOnce(),
) -> Result<Casualties> {
    ensure!(target.ip().is_loopback(), "load is put on loopback addresses only");
    let mut load = Load::new(Kind::Connections, target, clients).context("start the load")?;
    load.failures = Some(Vec::new());
    let turns = |load: &mut Load| -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < duration / 2 {
            load.turn()?;
        }
        Ok(())
    };
    turns(&mut load)?;
    let early = load.failures.as_ref().map_or(0, Vec::len);
    ensure!(early == 0, "{early} connections failed before anything was changed");
    change();
    let changed = Instant::now();
    load.counting = true;
    turns(&mut load)?;
    let failures = load.failures.take().unwrap_or_default();
    let failed = failures.iter().filter(|begun| **begun > changed).count() as u64;
    Ok(Casualties { answered: load.shown.count, failed, cut: failures.len() as u64 - failed })
}

/// Connections that have asked once and are quiet since.
pub(super) fn idle(target: SocketAddr, count: usize) -> Result<Vec<OwnedFd>> {
    ensure!(target.ip().is_loopback(), "load is put on loopback addresses only");
    (0..count)
        .map(|_| {
            let stream = std::net::TcpStream::connect(target).context("open a quiet connection")?;
            stream.set_read_timeout(Some(HANGS))?;
            std::io::Write::write_all(&mut &stream, &QUESTION)?;
            std::io::Read::read_exact(&mut &stream, &mut [0; ANSWER.len()]).context("hear an answer")?;
            Ok(stream.into())
        })
        .collect()
}

// === impl Load ===

impl Load {
    fn new(kind: Kind, target: SocketAddr, connections: usize) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut load = Self {
            kind,
            target,
            epoll,
            clients: (0..connections).map(|_| None).collect(),
            shown: Shown::default(),
            counting: false,
            heard: Instant::now(),
            failures: None,
            bin: vec![0; 1 << 20],
        };
        for place in 0..connections {
            load.open(place)?;
        }
        Ok(load)
    }

    fn open(&mut self, place: usize) -> Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, &self.target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno).context("connect"),
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(place as u64), flags)?;
        self.clients[place] = Some(Client { socket, begun: Instant::now(), received: usize::MAX });
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("wait for answers"),
        }
        if !events.is_empty() {
            self.heard = Instant::now();
        }
        ensure!(self.heard.elapsed() < HANGS, "nothing was heard for {HANGS:?}");
        for event in &events {
            let place = event.data.u64() as usize;
            if let Err(error) = self.on_event(place, event.flags) {
                self.on_failure(place, error)?;
            }
        }
        Ok(())
    }

    fn on_failure(&mut self, place: usize, error: anyhow::Error) -> Result<()> {
        match (&mut self.failures, self.clients[place].take()) {
            (Some(failures), Some(client)) => failures.push(client.begun),
            _ => return Err(error),
        }
        self.open(place)
    }

    fn on_event(&mut self, place: usize, flags: EventFlags) -> Result<()> {
        let kind = self.kind;
        let Some(client) = &mut self.clients[place] else { return Ok(()) };
        if flags.contains(EventFlags::OUT) && client.received == usize::MAX {
            client.received = 0;
            return ask(client, kind);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        match kind {
            Kind::Bulk => self.on_bytes(place),
            Kind::Questions | Kind::Connections => self.on_answer(place),
        }
    }

    fn on_answer(&mut self, place: usize) -> Result<()> {
        let Some(client) = &mut self.clients[place] else { return Ok(()) };
        let mut buffer = [0; 4096];
        loop {
            match net::recv(&client.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => {
                    ensure!(self.kind == Kind::Connections, "a connection was closed that was to stay");
                    ensure!(
                        client.received == ANSWER.len(),
                        "a connection was closed after {} bytes",
                        client.received
                    );
                    let begun = client.begun;
                    self.clients[place] = None;
                    self.note(begun);
                    return self.open(place);
                }
                Ok((_, count)) => client.received += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno).context("hear an answer"),
            }
            if self.kind == Kind::Questions && client.received == ANSWER.len() {
                let begun = client.begun;
                client.received = 0;
                ask(client, self.kind)?;
                self.note(begun);
                return Ok(());
            }
            if client.received > ANSWER.len() {
                bail!("an answer was too long");
            }
        }
    }

    /// Takes bytes without copying them, so that the proxy is what is measured.
    fn on_bytes(&mut self, place: usize) -> Result<()> {
        let Some(client) = &mut self.clients[place] else { return Ok(()) };
        loop {
            match net::recv(&client.socket, &mut *self.bin, RecvFlags::TRUNC) {
                Ok((_, 0)) => bail!("a stream of bytes has ended"),
                Ok((_, count)) if self.counting => self.shown.count += count as u64,
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno).context("take bytes"),
            }
        }
    }

    fn note(&mut self, begun: Instant) {
        if self.counting {
            self.shown.count += 1;
            self.shown.latencies.push(begun.elapsed());
        }
    }
}

fn ask(client: &mut Client, kind: Kind) -> Result<()> {
    let mut question = QUESTION;
    question[0] = match kind {
        Kind::Questions => b'G',
        Kind::Connections => b'C',
        Kind::Bulk => b'B',
    };
    if kind == Kind::Questions {
        client.begun = Instant::now();
    }
    let sent = net::send(&client.socket, &question, SendFlags::NOSIGNAL).context("ask")?;
    ensure!(sent == question.len(), "a question did not go out whole");
    Ok(())
}
