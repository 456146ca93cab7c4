//! Moves bytes between the two ends of a link. Read into one buffer of the thread and written at once; only what does not
//! fit is kept, in a buffer borrowed for so long. A stream of full buffers is moved by splice, through a pipe borrowed
//! for so long. A quiet connection holds neither.

use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, RecvFlags, SendFlags, Shutdown},
    pipe::{self, PipeFlags, SpliceFlags},
};

use super::{
    link::{BACKEND, CLIENT, End, Held, Link},
    slab::Key,
    sockets,
};

/// Sizes and thresholds. The defaults were measured by `examples/splice_threshold.rs`: on loopback a spliced byte costs as much
/// as a copied one in answers of 16 KiB, two thirds of it at 32 KiB, and less than half from 128 KiB on.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Bytes that are read at once.
    pub buffer: usize,
    /// Full buffers in a row after which bytes are spliced. `None`: never.
    pub splice_after: Option<u32>,
    /// Bytes in a pipe.
    pub pipe: usize,
    /// A connection that is younger is not shed for the sake of even shares: it is likely to end by itself, and its client
    /// to be in the middle of something.
    pub young: Duration,
    /// Threads that are in use even if fewer would have the time.
    pub least_threads: usize,
}

/// Bytes that one link may move before the others get their turn.
const TURN: usize = 1 << 20;
/// Borrowed buffers and pipes that are kept for the next borrower.
const SPARE_BUFFERS: usize = 16;
const SPARE_PIPES: usize = 16;
/// Descriptors that connections leave: to health checks, the runtime API and shared addresses, which must work under any load.
const RESERVED: u64 = 256;

#[derive(Debug)]
pub(super) struct Mover {
    pub(super) epoll: OwnedFd,
    scratch: Box<[u8]>,
    buffers: Vec<Box<[u8]>>,
    pipes: Vec<Pipe>,
    tuning: Tuning,
    /// Descriptors from this number on are for others.
    pub(super) descriptors: RawFd,
}

#[derive(Debug)]
pub(super) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// An end of a link does not work any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) end: usize,
    /// Found out by writing, so that there may still be something to read.
    pub(super) by_writing: bool,
    pub(super) errno: Errno,
}

/// What is left to do for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Nothing until epoll says so.
    Rest,
    /// There is more, but others are to have their turn.
    More,
}

/// Whether a backend is there, after the first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It is. `heard`: what the client has said until now was read.
    Arrived {
        heard: bool,
    },
    /// Epoll will tell.
    OnItsWay,
    ClientGone,
}

enum Filled {
    /// Something is on its way or held now.
    Some(usize),
    /// There was nothing.
    Dry,
}

// === impl Tuning ===

impl Default for Tuning {
    fn default() -> Self {
        Self {
            buffer: 16 << 10,
            splice_after: Some(1),
            pipe: 1 << 20,
            young: Duration::from_secs(5),
            least_threads: 1,
        }
    }
}

// === impl Mover ===

impl Mover {
    pub(super) fn new(tuning: Tuning) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let scratch = vec![0; tuning.buffer].into_boxed_slice();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        // Where there are so few that no connection would be left, the first ones have them.
        let ours = limit.map(|limit| limit - RESERVED.min(limit / 4));
        let descriptors = ours.and_then(|ours| RawFd::try_from(ours).ok()).unwrap_or(RawFd::MAX);
        Ok(Self { epoll, scratch, buffers: Vec::new(), pipes: Vec::new(), tuning, descriptors })
    }

    /// Refuses a descriptor that is not for connections: the kernel gives the lowest one that is free, so that from here on
    /// there are only those that were left for others.
    pub(super) fn spare(&self, fd: impl AsFd) -> Result<(), Errno> {
        if fd.as_fd().as_raw_fd() < self.descriptors { Ok(()) } else { Err(Errno::MFILE) }
    }

    /// Moves what `from` has to say to the other end, as far as it goes.
    pub(super) fn pump(&mut self, link: &mut Link, key: Key, from: usize) -> Result<Flow, Broken> {
        let mut budget = TURN;
        let mut full = 0;
        loop {
            if link.ends[1 - from].deaf || link.ends[1 - from].blocked || !self.flush(link, key, from)? {
                return Ok(Flow::Rest);
            }
            if link.ends[from].ended && link.ends[from].deaf {
                return Err(Broken { end: from, by_writing: false, errno: Errno::CONNRESET });
            }
            if link.ends[from].ended {
                return pass_on_the_end(link, from);
            }
            if !link.ends[from].readable {
                return Ok(Flow::Rest);
            }
            if budget == 0 {
                return Ok(Flow::More);
            }
            let filled = if link.bulk[from] {
                self.splice_in(link, from)?
            } else {
                self.copy(link, key, from, &mut full)?
            };
            match filled {
                Filled::Some(count) => budget = budget.saturating_sub(count),
                Filled::Dry => link.ends[from].readable = false,
            }
        }
    }

    /// Finds out whether a backend that was set out for is there already, best by telling it the client's first words: it would
    /// block before. What it does not take stays with us, for it or for another one.
    pub(super) fn first(&mut self, link: &mut Link, may_speak: bool) -> Result<First, Errno> {
        let Some(backend) = link.ends[BACKEND].fd() else { return Err(Errno::BADF) };
        let Some(client) = link.ends[CLIENT].fd() else { return Ok(First::ClientGone) };
        let arrived = |arrived, heard| if arrived { First::Arrived { heard } } else { First::OnItsWay };
        if !may_speak || !matches!(link.held[CLIENT], Held::Nothing) {
            return sockets::arrived(backend).map(|there| arrived(there, false));
        }
        let count = match net::recv(client, &mut *self.scratch, RecvFlags::empty()) {
            Ok((_, 0)) => return sockets::arrived(backend).map(|there| arrived(there, false)),
            Ok((_, count)) => count,
            Err(Errno::AGAIN) => return sockets::arrived(backend).map(|there| arrived(there, true)),
            Err(Errno::INTR) => return sockets::arrived(backend).map(|there| arrived(there, false)),
            Err(_) => return Ok(First::ClientGone),
        };
        let sent = net::send(backend, &self.scratch[..count], SendFlags::NOSIGNAL);
        link.ends[CLIENT].readable = link.ends[CLIENT].hung || count == self.scratch.len();
        let written = sent.unwrap_or(0);
        link.moved[CLIENT] += written as u64;
        if written < count {
            self.keep(link, CLIENT, written..count);
            // It is not known to epoll yet, and will be with this.
            link.ends[BACKEND].blocked = sent.is_ok();
        }
        match sent {
            Ok(_) => Ok(First::Arrived { heard: true }),
            Err(Errno::AGAIN) => Ok(First::OnItsWay),
            Err(errno) => Err(errno),
        }
    }

    /// One buffer full, from one socket to the other.
    fn copy(&mut self, link: &mut Link, key: Key, from: usize, full: &mut u32) -> Result<Filled, Broken> {
        let to = 1 - from;
        let count = match net::recv(fd(link, from)?, &mut *self.scratch, RecvFlags::empty()) {
            Ok((_, 0)) => {
                link.ends[from].ended = true;
                return Ok(Filled::Some(0));
            }
            Ok((_, count)) => count,
            Err(Errno::AGAIN) => return Ok(Filled::Dry),
            Err(Errno::INTR) => return Ok(Filled::Some(0)),
            Err(errno) => return Err(Broken { end: from, by_writing: false, errno }),
        };
        if count < self.scratch.len() {
            // Less than was asked for: the socket is empty, and whatever comes now makes a new edge.
            link.ends[from].ended = link.ends[from].finished;
            link.ends[from].readable = link.ends[from].hung;
        } else {
            *full += 1;
            link.bulk[from] = self.tuning.splice_after.is_some_and(|after| *full >= after);
        }
        let mut flags = SendFlags::NOSIGNAL;
        if link.ends[from].hung {
            // The end follows at once, and travels in the same packet.
            flags |= SendFlags::MORE;
        }
        hasten(link, from)?;
        let sent = net::send(fd(link, to)?, &self.scratch[..count], flags);
        let written = sent.unwrap_or(0);
        link.moved[from] += written as u64;
        if written < count {
            self.keep(link, from, written..count);
            match sent {
                Ok(_) | Err(Errno::AGAIN) => self.block(&mut link.ends[to], key, to)?,
                // Nothing of it has arrived, so that another backend may still get it.
                Err(errno) => return Err(Broken { end: to, by_writing: true, errno }),
            }
        }
        Ok(Filled::Some(count))
    }

    fn keep(&mut self, link: &mut Link, from: usize, range: Range<usize>) {
        let mut buffer = self.borrow_buffer(range.len());
        buffer[..range.len()].copy_from_slice(&self.scratch[range.clone()]);
        link.held[from] = Held::Bytes { buffer, start: 0, end: range.len() };
    }

    /// One pipe full out of a socket. It goes on its way with the next flush.
    fn splice_in(&mut self, link: &mut Link, from: usize) -> Result<Filled, Broken> {
        let Some(pipe) = self.borrow_pipe() else {
            // No pipes to be had: copying works always.
            link.bulk[from] = false;
            return Ok(Filled::Some(0));
        };
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match pipe::splice(fd(link, from)?, None, &pipe.writer, None, self.tuning.pipe, flags) {
            Ok(0) => {
                link.ends[from].ended = true;
                self.give_back(pipe);
                Ok(Filled::Some(0))
            }
            Ok(count) => {
                // A trickle is cheaper to copy.
                link.bulk[from] = count >= self.tuning.buffer / 2;
                link.held[from] = Held::Piped { pipe, count };
                Ok(Filled::Some(count))
            }
            Err(Errno::AGAIN) => {
                self.give_back(pipe);
                Ok(Filled::Dry)
            }
            Err(Errno::INTR) => {
                self.give_back(pipe);
                Ok(Filled::Some(0))
            }
            Err(errno) => Err(Broken { end: from, by_writing: false, errno }),
        }
    }

    /// Writes what is held. `false`: there is no room for all of it.
    fn flush(&mut self, link: &mut Link, key: Key, from: usize) -> Result<bool, Broken> {
        let to = 1 - from;
        loop {
            if matches!(link.held[from], Held::Nothing) {
                return Ok(true);
            }
            hasten(link, from)?;
            let target = fd(link, to)?;
            let (sent, left) = match &link.held[from] {
                Held::Nothing => return Ok(true),
                Held::Bytes { buffer, start, end } => {
                    (net::send(target, &buffer[*start..*end], SendFlags::NOSIGNAL), end - start)
                }
                Held::Piped { pipe, count } => {
                    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                    (pipe::splice(&pipe.reader, None, target, None, *count, flags), *count)
                }
            };
            link.moved[from] += sent.unwrap_or(0) as u64;
            match sent {
                Ok(sent) if sent < left => match &mut link.held[from] {
                    Held::Bytes { start, .. } => *start += sent,
                    Held::Piped { count, .. } => *count -= sent,
                    Held::Nothing => {}
                },
                Ok(_) => {
                    self.release(&mut link.held[from]);
                    return Ok(true);
                }
                Err(Errno::AGAIN) => {
                    self.block(&mut link.ends[to], key, to)?;
                    return Ok(false);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Broken { end: to, by_writing: true, errno }),
            }
        }
    }

    /// Nothing more fits in: from now on epoll tells when there is room.
    fn block(&mut self, end: &mut End, key: Key, side: usize) -> Result<(), Broken> {
        end.blocked = true;
        if end.watched && !end.watched_for_room {
            self.watch(end, key, side, true).map_err(|errno| Broken {
                end: side,
                by_writing: false,
                errno,
            })?;
        }
        Ok(())
    }

    /// Makes an end known to epoll. If there is something to be told already, it is told at the next wait.
    pub(super) fn watch(&mut self, end: &mut End, key: Key, side: usize, room: bool) -> Result<(), Errno> {
        let mut flags = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
        if room || end.blocked {
            flags |= EventFlags::OUT;
            end.watched_for_room = true;
        }
        let Some(socket) = end.fd() else { return Err(Errno::BADF) };
        let data = EventData::new_u64(token(key, side));
        if end.watched {
            epoll::modify(&self.epoll, socket, data, flags)?;
        } else {
            epoll::add(&self.epoll, socket, data, flags)?;
            end.watched = true;
        }
        Ok(())
    }

    // --- what is borrowed ---

    /// Has bytes written before anything else that is held.
    pub(super) fn put_first(&mut self, held: &mut Held, bytes: &[u8]) {
        let mut old = std::mem::take(held);
        let after: &[u8] = match &old {
            Held::Bytes { buffer, start, end } => &buffer[*start..*end],
            Held::Nothing | Held::Piped { .. } => &[],
        };
        let end = bytes.len() + after.len();
        let mut buffer = self.borrow_buffer(end);
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer[bytes.len()..end].copy_from_slice(after);
        self.discard(&mut old);
        *held = Held::Bytes { buffer, start: 0, end };
    }

    /// Forgets the first so many of the bytes that are held.
    pub(super) fn drop_first(&mut self, held: &mut Held, count: usize) {
        if let Held::Bytes { start, end, .. } = held {
            *start = start.saturating_add(count).min(*end);
            if start == end {
                self.release(held);
            }
        }
    }

    /// Takes back what a link has borrowed.
    pub(super) fn release(&mut self, held: &mut Held) {
        match std::mem::take(held) {
            Held::Bytes { buffer, .. }
                if self.buffers.len() < SPARE_BUFFERS && buffer.len() == self.tuning.buffer =>
            {
                self.buffers.push(buffer);
            }
            // A pipe with something in it would hand it to a stranger: callers release only empty ones, and `discard` the others.
            Held::Piped { pipe, .. } => self.give_back(pipe),
            Held::Bytes { .. } | Held::Nothing => {}
        }
    }

    /// Forgets what a link still held when it ended.
    pub(super) fn discard(&mut self, held: &mut Held) {
        match std::mem::take(held) {
            held @ Held::Bytes { .. } => self.release(&mut { held }),
            Held::Piped { .. } | Held::Nothing => {}
        }
    }

    fn borrow_buffer(&mut self, least: usize) -> Box<[u8]> {
        let size = least.max(self.tuning.buffer);
        let spare = if size == self.tuning.buffer { self.buffers.pop() } else { None };
        spare.unwrap_or_else(|| vec![0; size].into_boxed_slice())
    }

    fn borrow_pipe(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.pipes.pop() {
            return Some(pipe);
        }
        let (reader, writer) = pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        self.spare(&writer).ok()?;
        // Without the right to a bigger one the usual size does too.
        let _ = pipe::fcntl_setpipe_size(&writer, self.tuning.pipe);
        Some(Pipe { reader, writer })
    }

    fn give_back(&mut self, pipe: Pipe) {
        if self.pipes.len() < SPARE_PIPES {
            self.pipes.push(pipe);
        }
    }
}

// === tokens ===

/// What epoll carries for an end: generation, place, side.
pub(super) fn token(key: Key, side: usize) -> u64 {
    u64::from(key.generation) << 33 | u64::from(key.index) << 1 | side as u64
}

/// The reverse. `None` for what is no connection.
pub(super) fn key_of(token: u64) -> Option<(Key, usize)> {
    let generation = (token >> 33) as u32;
    (generation != 0).then_some((Key { index: (token >> 1) as u32, generation }, (token & 1) as usize))
}

fn fd(link: &Link, end: usize) -> Result<BorrowedFd<'_>, Broken> {
    link.ends[end].fd().map(AsFd::as_fd).ok_or(Broken { end, by_writing: false, errno: Errno::BADF })
}

/// Before the second piece: the kernel would keep it back until the first one is acknowledged.
fn hasten(link: &mut Link, from: usize) -> Result<(), Broken> {
    let to = 1 - from;
    if link.moved[from] > 0 && !link.ends[to].prompt {
        link.ends[to].prompt = true;
        sockets::be_prompt(fd(link, to)?);
    }
    Ok(())
}

/// `from` has ended and everything it said is written. When that makes the link over, closing says it all.
fn pass_on_the_end(link: &mut Link, from: usize) -> Result<Flow, Broken> {
    let to = 1 - from;
    if link.ends[to].shut {
        return Ok(Flow::Rest);
    }
    link.ends[to].shut = true;
    if !link.is_over() {
        match net::shutdown(fd(link, to)?, Shutdown::Write) {
            // Not connected: the other side was faster.
            Ok(()) | Err(Errno::NOTCONN) => {}
            Err(errno) => return Err(Broken { end: to, by_writing: true, errno }),
        }
    }
    Ok(Flow::Rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_keys_and_listeners_are_none() {
        for key in [Key { index: 0, generation: 1 }, Key { index: u32::MAX, generation: u32::MAX >> 1 }] {
            for side in [0, 1] {
                assert_eq!(key_of(token(key, side)), Some((key, side)));
            }
        }
        assert_eq!(key_of(u64::from(u32::MAX)), None);
    }
}
