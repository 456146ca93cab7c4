//! A connection's way in: accepted, allowed, its PROXY header read, a backend chosen, reached, or another one tried.

use std::net::SocketAddr;

use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{self, SocketFlags, sockopt},
};

use super::{
    access::Ending,
    link::{BACKEND, CLIENT, End, Link, Phase},
    mover::{Broken, First},
    shared::{Choice, Fault, Waiter},
    slab::Key,
    sockets,
    worker::Worker,
};
use crate::config::ProxyProtocol;

/// Clients that are taken from one listener before the connections that are there get their turn: a flood of new ones holds
/// them up by some tenths of a millisecond.
pub(super) const BATCH: usize = 8;

impl Worker {
    /// Takes the clients that wait at a listener.
    /// `true`: there may be more of them.
    pub(super) fn accept(&mut self, listener: usize, place: usize) -> Result<bool, Errno> {
        for _ in 0..BATCH {
            let Some(Some(local)) = self.listeners.get(listener) else { return Ok(false) };
            let Some(Some((_, socket))) = local.sockets.get(place) else { return Ok(false) };
            match net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    local.counters.accepted.add(1);
                    if let Err(errno) = self.mover.spare(&fd) {
                        local.counters.no_room.add(1);
                        return Err(errno);
                    }
                    if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                        self.admit(Link::new(fd, peer, listener as u32, self.now));
                    }
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(errno);
                }
                // A client that has given up, or a network error of its connection: the next one may be fine.
                Err(_) => {}
            }
        }
        Ok(true)
    }

    fn admit(&mut self, link: Link) {
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        let settings = &local.settings;
        let allowed = settings.allows(sockets::plain(link.peer.ip()));
        let header = settings.accept_proxy;
        let deadline = self.now + settings.connect;
        let key = self.links.insert(link);
        if !allowed {
            return self.close(key, Ending::NotAllowed);
        }
        self.wheel.set(key.index, deadline);
        if header {
            return self.await_header(key);
        }
        self.dial(key);
    }

    /// Chooses a newcomer's backend and sets out for it, until one is on its way or there is none left.
    pub(super) fn dial(&mut self, key: Key) {
        self.set_out(key, None);
    }

    /// The same, beginning with what was chosen already.
    fn set_out(&mut self, key: Key, mut chosen: Option<Choice>) {
        loop {
            let Some(link) = self.links.get_mut(key) else { return };
            let Some(Some(local)) = self.listeners.get_mut(link.listener as usize) else { return };
            let settings = &local.settings;
            let choice = chosen.take().unwrap_or_else(|| {
                let waiter = Waiter { thread: self.number, key };
                let client = sockets::plain(link.client().ip());
                local.shared.choose(self.now, client, waiter, settings.queue_length)
            });
            let (id, address) = match choice {
                Choice::To(id, address) => (id, address),
                Choice::Wait => {
                    link.enter(Phase::Waiting, self.now);
                    self.wheel.set(key.index, self.now.saturating_add(settings.queue));
                    return self.watch_waiting(key);
                }
                Choice::Full => return self.close(key, Ending::NoRoom),
                Choice::Refuse => return self.close(key, Ending::NoBackend),
            };
            (link.backend, link.dialled) = (Some(id), self.turns);
            if link.phase == Phase::Waiting || !link.tried.is_empty() {
                // It was allowed to wait longer than a backend may take, or has no deadline any more. A newcomer has one.
                self.wheel.set(key.index, self.now.saturating_add(settings.connect));
            }
            link.enter(Phase::Connecting, self.now);
            let looks = local.near.look();
            let first = sockets::connect(address).and_then(|socket| {
                self.mover.spare(&socket)?;
                link.ends[BACKEND] = End::new(socket);
                if !looks {
                    return Ok(First::OnItsWay);
                }
                let first = self.mover.first(link, settings.send_proxy == ProxyProtocol::None);
                local.near.learn(!matches!(first, Ok(First::OnItsWay)));
                local.counters.from_clients.add(link.moved[CLIENT]);
                first
            });
            match first {
                Ok(First::Arrived { heard }) => return self.open(key, EventFlags::empty(), heard),
                Ok(First::ClientGone) => return self.close(key, Ending::ClientCut),
                Ok(First::OnItsWay) => {
                    if let Err(errno) = self.mover.watch(&mut link.ends[BACKEND], key, BACKEND, true) {
                        tracing::error!(%errno, "a socket cannot be watched");
                        self.close(key, Ending::NoBackend);
                    }
                    return;
                }
                Err(errno) => match self.give_up(key, errno) {
                    Some(other) => chosen = Some(other),
                    None => return,
                },
            }
        }
    }

    /// A client that is gone is not to keep its place in the queue, nor to cost a backend a connection.
    fn watch_waiting(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if !link.ends[CLIENT].watched
            && let Err(errno) = self.mover.watch(&mut link.ends[CLIENT], key, CLIENT, false)
        {
            tracing::error!(%errno, "a socket cannot be watched");
            self.close(key, Ending::NoRoom);
        }
    }

    /// Epoll has something to say about a socket that is on its way.
    pub(super) fn on_connect(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let Some(link) = self.links.get_mut(key) else { return };
            let errno = link.ends[BACKEND].fd().map(sockopt::socket_error);
            let errno = match errno {
                Some(Ok(Err(errno))) | Some(Err(errno)) => errno,
                _ => Errno::CONNRESET,
            };
            return self.on_refusal(key, errno);
        }
        if flags.contains(EventFlags::OUT) {
            self.open(key, flags, false);
        }
    }

    /// A backend was not reached, or was lost before it had a part in anything.
    pub(super) fn on_refusal(&mut self, key: Key, errno: Errno) {
        if let Some(other) = self.give_up(key, errno) {
            self.set_out(key, Some(other));
        }
    }

    /// Leaves a backend, in exchange for what is tried next, if anything is.
    pub(super) fn give_up(&mut self, key: Key, errno: Errno) -> Option<Choice> {
        let link = self.links.get_mut(key)?;
        let local = self.listeners.get(link.listener as usize)?.as_ref()?;
        link.ends[BACKEND] = End::default();
        link.kept_alive = false;
        // A part of our own preface may be left; the next backend gets a whole one, and then what the client has said.
        let unsent = link.preface.saturating_sub(link.moved[CLIENT]);
        self.mover.drop_first(&mut link.held[CLIENT], usize::try_from(unsent).unwrap_or(usize::MAX));
        (link.moved[CLIENT], link.preface) = (0, 0);
        let id = link.backend.take()?;
        let fault = if ours(errno) { Fault::Ours } else { Fault::Theirs };
        link.tried.push(id);
        if link.tried.len() >= local.settings.tries {
            local.shared.given_up(id, self.now, fault);
            self.close(key, Ending::NoBackend);
            return None;
        }
        local.counters.retried.add(1);
        let waiter = Waiter { thread: self.number, key };
        let client = sockets::plain(link.client().ip());
        Some(local.shared.choose_again(self.now, client, &link.tried, waiter, fault))
    }

    /// The backend is there. `heard`: the client has just been listened to.
    fn open(&mut self, key: Key, flags: EventFlags, heard: bool) {
        let Some(link) = self.links.get_mut(key) else { return };
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        let settings = &local.settings;
        link.enter(Phase::Open, self.now);
        (link.active, link.heard) = (self.now, self.now);
        local.counters.opened.add(1);
        if let Some(id) = link.backend {
            local.shared.opened(id, self.now);
        }
        if settings.idle < settings.connect {
            self.wheel.set(key.index, self.now + settings.idle);
        }
        self.announce(key);
        if let Some(link) = self.links.get_mut(key) {
            // Most clients have spoken by now.
            link.ends[CLIENT].readable |= !heard;
            link.ends[BACKEND].readable = flags.contains(EventFlags::IN);
            link.ends[BACKEND].hear(flags);
        }
        if !self.pump(key, CLIENT) || (flags.contains(EventFlags::IN) && !self.pump(key, BACKEND)) {
            return;
        }
        let Some(link) = self.links.get_mut(key) else { return };
        if link.moved[CLIENT] == 0
            && let Some(socket) = link.ends[BACKEND].fd()
        {
            sockets::acknowledge(socket);
        }
        if let Err((end, errno)) = self.watch_both(key) {
            tracing::error!(%errno, "a socket cannot be watched");
            self.on_break(key, Broken { end, by_writing: false, errno });
        }
    }

    /// A connection that waits has a place now. If it does not wait any more, the place is the next one's.
    pub(super) fn on_room(&mut self, listener: u32, key: Key, choice: Choice) {
        if self.links.get_mut(key).is_some_and(|link| link.phase == Phase::Waiting) {
            return self.set_out(key, Some(choice));
        }
        if let (Choice::To(id, _), Some(Some(local))) = (choice, self.listeners.get(listener as usize)) {
            local.shared.closed(id, self.now);
        }
    }
}

/// Failures that are no backend's fault: we have no descriptors, ports or memory left.
fn ours(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN
    )
}
