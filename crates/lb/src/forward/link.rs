//! One client's connection together with its backend's: about 200 bytes, and nothing else while it is quiet.

use std::{net::SocketAddr, os::fd::OwnedFd};

use rustix::event::epoll::EventFlags;

use super::mover::Pipe;
use crate::core::{BackendId, Time};

/// The two ends of a link, as places in its arrays.
pub(super) const CLIENT: usize = 0;
pub(super) const BACKEND: usize = 1;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// What was read from an end and could not be written to the other yet.
    pub(super) held: [Held; 2],
    /// Bytes of an end that were written to the other.
    pub(super) moved: [u64; 2],
    /// Bytes that we have put before the client's.
    pub(super) preface: u64,
    pub(super) phase: Phase,
    /// The kernel finds out when the backend is gone.
    pub(super) kept_alive: bool,
    /// Whether so much came from an end lately that copying in the kernel pays.
    pub(super) bulk: [bool; 2],
    /// Which listener of the thread it came by.
    pub(super) listener: u32,
    /// Counts in the backend's number of connections.
    pub(super) backend: Option<BackendId>,
    /// Backends that could not be reached.
    pub(super) tried: Vec<BackendId>,
    /// Who is connected with us.
    pub(super) peer: SocketAddr,
    /// Whom the PROXY header names, if there was one.
    pub(super) named: Option<Box<Named>>,
    pub(super) accepted: Time,
    /// When the phase began.
    pub(super) since: Time,
    /// When the last byte moved.
    pub(super) active: Time,
    /// When the backend said something last.
    pub(super) heard: Time,
    /// In which of the thread's turns the backend's socket was made. 0: in another thread.
    pub(super) dialled: u64,
}

/// The addresses that a PROXY header names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) client: SocketAddr,
    pub(super) local: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The client's PROXY header is not whole yet.
    Header,
    /// There is no room.
    Waiting,
    Connecting,
    Open,
}

/// A socket, and what epoll has told of it.
#[derive(Debug, Default)]
pub(super) struct End {
    fd: Option<OwnedFd>,
    /// There may be something to read.
    pub(super) readable: bool,
    /// The other side has said its last word, so that a short read is not the end of what there is.
    pub(super) hung: bool,
    /// The connection is dead, and not because of what we have done.
    pub(super) lost: bool,
    /// It takes nothing any more. What it has said before ends with a cut, whatever the kernel calls it.
    pub(super) deaf: bool,
    /// It has more to say than one turn allows, and waits for the next.
    pub(super) queued: bool,
    /// Its last word is in its socket, and nothing was lost: a short read is the end of what there is after all.
    pub(super) finished: bool,
    /// Small pieces leave at once (TCP_NODELAY). The first one does anyway.
    pub(super) prompt: bool,
    /// Nothing more fits in for now.
    pub(super) blocked: bool,
    /// Known to epoll, for reading.
    pub(super) watched: bool,
    /// Known to epoll, for writing too. Set when it first blocks, and left: an edge comes only after a block.
    pub(super) watched_for_room: bool,
    /// Everything was read.
    pub(super) ended: bool,
    /// Everything was written.
    pub(super) shut: bool,
}

#[derive(Debug, Default)]
pub(super) enum Held {
    #[default]
    Nothing,
    Bytes {
        buffer: Box<[u8]>,
        start: usize,
        end: usize,
    },
    Piped {
        pipe: Pipe,
        count: usize,
    },
}

// === impl Link ===

impl Link {
    pub(super) fn new(fd: OwnedFd, peer: SocketAddr, listener: u32, now: Time) -> Self {
        Self {
            // What is accepted has inherited its options.
            ends: [End { prompt: true, ..End::new(fd) }, End::default()],
            held: [Held::Nothing, Held::Nothing],
            moved: [0; 2],
            preface: 0,
            phase: Phase::Connecting,
            kept_alive: false,
            bulk: [false; 2],
            listener,
            backend: None,
            tried: Vec::new(),
            peer,
            named: None,
            accepted: now,
            since: now,
            active: now,
            heard: now,
            dialled: 0,
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Time) {
        self.phase = phase;
        self.since = now;
    }

    /// Everything was said by both sides and passed on.
    pub(super) fn is_over(&self) -> bool {
        self.ends[CLIENT].shut && self.ends[BACKEND].shut
    }

    /// A backend that has seen and said nothing of the client's can be swapped for another one.
    pub(super) fn is_untouched(&self) -> bool {
        // A client that was told of a backend's end cannot be told anything more by the next one.
        self.moved[CLIENT] <= self.preface && self.moved[BACKEND] == 0 && !self.ends[CLIENT].shut
    }

    /// An end has said everything, all of it was passed on, and the rest of its connection is dead.
    pub(super) fn is_lost(&self, end: usize) -> bool {
        let side = &self.ends[end];
        side.lost && side.ended && !side.shut && matches!(self.held[end], Held::Nothing)
    }

    /// An end takes nothing any more, and has nothing more to say, or nobody to say it to.
    pub(super) fn is_done_with(&self, end: usize) -> bool {
        let other = &self.ends[1 - end];
        self.ends[end].deaf && (other.deaf || !other.blocked)
    }

    /// The end that takes nothing any more, while the other one still receives what it has said.
    pub(super) fn deaf(&self) -> Option<usize> {
        [CLIENT, BACKEND].into_iter().find(|end| self.ends[*end].deaf)
    }

    /// Who the client is, as far as is known.
    pub(super) fn client(&self) -> SocketAddr {
        self.named.as_ref().map_or(self.peer, |named| named.client)
    }
}

// === impl End ===

impl End {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), ..Self::default() }
    }

    /// Takes what epoll has told of the other side's end. It is told only once.
    pub(super) fn hear(&mut self, flags: EventFlags) {
        let last = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.hung |= last;
        // A read stops before urgent bytes, however many follow them.
        let whole = !flags.intersects(EventFlags::ERR | EventFlags::PRI);
        self.finished |= flags.contains(EventFlags::RDHUP) && whole;
        // After our own last word this would say only that both sides have ended.
        self.lost |= !self.shut && flags.intersects(EventFlags::HUP | EventFlags::ERR);
    }

    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// For what is to outlive its link.
    pub(super) fn take(&mut self) -> Option<OwnedFd> {
        self.fd.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_lost_by_what_is_told_of_it_unless_we_have_ended_it() {
        let told = |shut: bool, flags: EventFlags| {
            let mut end = End { shut, ..End::default() };
            end.hear(flags);
            (end.hung, end.finished, end.lost)
        };
        let (ended, dead) = (EventFlags::RDHUP, EventFlags::HUP | EventFlags::RDHUP);
        assert_eq!(told(false, EventFlags::IN), (false, false, false));
        assert_eq!(told(false, ended), (true, true, false));
        assert_eq!(told(false, dead), (true, true, true));
        assert_eq!(told(false, dead | EventFlags::ERR), (true, false, true));
        assert_eq!(told(true, dead), (true, true, false));
    }
}
