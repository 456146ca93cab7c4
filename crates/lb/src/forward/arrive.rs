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
    mover::Broken,
    shared::{Choice, Waiter},
    slab::Key,
    sockets,
    worker::Worker,
};

/// Clients that are taken from one listener before the connections that are there get their turn.
const BATCH: usize = 64;

impl Worker {
    /// Takes the clients that wait at a listener.
    pub(super) fn accept(&mut self, listener: usize, place: usize) -> Result<(), Errno> {
        for _ in 0..BATCH {
            let Some(Some(local)) = self.listeners.get(listener) else { return Ok(()) };
            let Some(Some((_, socket))) = local.sockets.get(place) else { return Ok(()) };
            match net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    local.counters.accepted.add(1);
                    if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                        self.admit(Link::new(fd, peer, listener as u32, self.now));
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Err(errno);
                }
                // A client that has given up, or a network error of its connection: the next one may be fine.
                Err(_) => {}
            }
        }
        Ok(())
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

    /// Chooses a backend and sets out for it, until one is on its way or there is none left.
    pub(super) fn dial(&mut self, key: Key) {
        loop {
            let Some(link) = self.links.get_mut(key) else { return };
            let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
            let waiter = Waiter { thread: self.number, key };
            let client = sockets::plain(link.client().ip());
            let settings = &local.settings;
            let (id, address) =
                match local.shared.choose(self.now, client, &link.tried, waiter, settings.queue_length) {
                    Choice::To(id, address) => (id, address),
                    Choice::Wait => {
                        if link.phase != Phase::Waiting {
                            link.enter(Phase::Waiting, self.now);
                        }
                        return;
                    }
                    Choice::Full => return self.close(key, Ending::NoRoom),
                    Choice::Refuse => return self.close(key, Ending::NoBackend),
                };
            link.backend = Some(id);
            link.enter(Phase::Connecting, self.now);
            let arrived = sockets::connect(address).and_then(|socket| {
                let arrived = sockets::arrived(&socket);
                link.ends[BACKEND] = End::new(socket);
                arrived
            });
            match arrived {
                Ok(true) => return self.open(key, EventFlags::empty()),
                Ok(false) => {
                    if let Err(errno) = self.mover.watch(&mut link.ends[BACKEND], key, BACKEND, true) {
                        tracing::error!(%errno, "a socket cannot be watched");
                        self.close(key, Ending::NoBackend);
                    }
                    return;
                }
                Err(errno) => {
                    if !self.give_up(key, errno) {
                        return;
                    }
                }
            }
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
            self.open(key, flags);
        }
    }

    /// A backend was not reached, or was lost before it had a part in anything.
    pub(super) fn on_refusal(&mut self, key: Key, errno: Errno) {
        if self.give_up(key, errno) {
            self.dial(key);
        }
    }

    /// Leaves a backend. `true`: another one may be tried.
    fn give_up(&mut self, key: Key, errno: Errno) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return false };
        link.ends[BACKEND] = End::default();
        link.kept_alive = false;
        if link.moved[CLIENT] < link.preface {
            // A part of our own preface is left; the next backend gets a whole one.
            self.mover.discard(&mut link.held[CLIENT]);
        }
        (link.moved[CLIENT], link.preface) = (0, 0);
        let Some(id) = link.backend.take() else { return false };
        if ours(errno) {
            local.shared.closed(id, self.now);
        } else {
            local.shared.failed(id, self.now);
        }
        link.tried.push(id);
        if link.tried.len() >= local.settings.tries {
            self.close(key, Ending::NoBackend);
            return false;
        }
        local.counters.retried.add(1);
        true
    }

    /// The backend is there.
    fn open(&mut self, key: Key, flags: EventFlags) {
        let Some(link) = self.links.get_mut(key) else { return };
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        let settings = &local.settings;
        link.enter(Phase::Open, self.now);
        link.active = self.now;
        local.counters.opened.add(1);
        if let Some(id) = link.backend {
            local.shared.opened(id, self.now);
        }
        if settings.idle < settings.connect {
            self.wheel.set(key.index, self.now + settings.idle);
        }
        self.announce(key);
        // Most clients have spoken by now.
        if let Some(link) = self.links.get_mut(key) {
            link.ends[CLIENT].readable = true;
            link.ends[BACKEND].readable = flags.contains(EventFlags::IN);
            link.ends[BACKEND].hung = flags.contains(EventFlags::RDHUP);
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
        for side in [CLIENT, BACKEND] {
            if !link.ends[side].watched
                && let Err(errno) = self.mover.watch(&mut link.ends[side], key, side, false)
            {
                tracing::error!(%errno, "a socket cannot be watched");
                self.on_break(key, Broken { end: side, by_writing: false, errno });
                return;
            }
        }
    }

    /// There is room for a connection that waits, if it still does.
    pub(super) fn on_room(&mut self, listener: u32, key: Key) {
        match self.links.get_mut(key) {
            Some(link) if link.phase == Phase::Waiting => self.dial(key),
            _ => {
                if let Some(Some(local)) = self.listeners.get(listener as usize) {
                    local.shared.pass_on();
                }
            }
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
