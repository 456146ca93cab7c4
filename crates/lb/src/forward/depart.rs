//! A connection's way out: closed, counted, written down, its place given to one that waits.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::event::epoll;

use super::{
    access::{Ending, Record},
    counters::Counters,
    link::{BACKEND, CLIENT, Link, Phase},
    shared::Waiter,
    slab::Key,
    sockets,
    worker::Worker,
};
use crate::core::{BackendId, Closing, Time};

/// Clients that ask and ask of a backend that hears nothing keep nothing busy: after so many times of what is idle, its silence
/// counts alone.
const SILENT: Time = 3;

impl Worker {
    /// Ends a connection.
    pub(super) fn close(&mut self, key: Key, ending: Ending) {
        let Some(mut link) = self.links.remove(key) else { return };
        self.wheel.clear(key.index);
        for held in &mut link.held {
            self.mover.discard(held);
        }
        // One that was told that the backend has ended knows already.
        let knows = ending == Ending::BackendCut && link.ends[CLIENT].shut;
        if ending == Ending::BackendCut && !knows {
            self.say_farewell(&mut link);
        }
        for (side, cut) in [(CLIENT, ending.cuts_client() && !knows), (BACKEND, ending.cuts_backend())] {
            if let Some(socket) = link.ends[side].fd()
                && cut
            {
                sockets::cut_on_close(socket);
            }
        }
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        count(&local.counters, ending);
        if self.log.is_some() {
            self.write_down(&link, ending);
        }
        if let Some(id) = link.backend {
            local.shared.closed(id, self.now);
        }
        if link.phase == Phase::Waiting {
            local.shared.leave_queue(Waiter { thread: self.number, key });
        }
    }

    /// Has a client receive what its backend has said before that was cut off, and then learn of the cut.
    fn say_farewell(&mut self, link: &mut Link) {
        let watched = link.ends[CLIENT].watched;
        let Some(socket) = link.ends[CLIENT].take() else { return };
        if watched {
            // Whatever it says from now on is of no interest.
            let _ = epoll::delete(&self.mover.epoll, &socket);
        }
        self.farewells.add(socket, self.now);
    }

    /// Ends connections, the longest quiet ones first, for as long as there is a number left to take from.
    pub(super) fn shed(
        &mut self,
        listener: u32,
        backend: Option<BackendId>,
        count: &AtomicU32,
        which: Closing,
    ) {
        let Some(Some(local)) = self.listeners.get(listener as usize) else { return };
        let before = |age: Time| self.now.checked_sub(age);
        let idle = local.settings.unready_idle;
        let (old, quiet, silent) = (before(self.young), before(idle), before(SILENT * idle));
        let is_meant = |link: &Link| match which {
            Closing::Any => true,
            Closing::Old => old.is_some_and(|old| link.accepted < old),
            Closing::Idle => {
                link.phase == Phase::Open
                    && (quiet.is_some_and(|quiet| link.active <= quiet)
                        || silent.is_some_and(|silent| link.heard <= silent))
            }
        };
        let mut candidates: Vec<(u64, Key)> = self
            .links
            .iter()
            .filter(|(_, link)| link.listener == listener && (backend.is_none() || link.backend == backend))
            .filter(|(_, link)| is_meant(link))
            .map(|(key, link)| (link.active, key))
            .collect();
        candidates.sort_unstable_by_key(|(active, _)| *active);
        for (_, key) in candidates {
            let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if taken.is_err() {
                return;
            }
            self.close(key, Ending::Shed);
        }
    }

    /// Ends connections to addresses that have moved to another machine. Nothing of ours reaches their clients any more, so they
    /// are cut: an end would be repeated by the kernel until it gives up.
    pub(super) fn leave(&mut self, addresses: &[IpAddr]) {
        let came_by = |link: &Link| {
            link.ends[CLIENT].fd().and_then(sockets::local).map(|local| local.ip().to_canonical())
        };
        let gone =
            self.links.iter().filter(|(_, link)| came_by(link).is_some_and(|ip| addresses.contains(&ip)));
        let keys: Vec<Key> = gone.map(|(key, _)| key).collect();
        for key in keys {
            self.close(key, Ending::Moved);
        }
    }

    pub(super) fn close_all(&mut self) {
        let keys: Vec<Key> = self.links.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key, Ending::Stopped);
        }
        self.farewells.end();
        self.listeners.clear();
    }

    fn write_down(&self, link: &Link, ending: Ending) {
        let (Some(log), Some(Some(local))) = (&self.log, self.listeners.get(link.listener as usize)) else {
            return;
        };
        let known = link.backend.and_then(|id| local.shared.with(|book| book.pool.backend(id)));
        log.write(&Record {
            time: jiff::Timestamp::now().to_string(),
            listener: &local.shared.name,
            client: link.client(),
            backend: known.as_ref().map(|known| known.name.as_str()),
            address: known.as_ref().map(|known| known.address),
            retries: link.tried.len(),
            milliseconds: self.now.saturating_sub(link.accepted) / 1000,
            bytes_from_client: link.moved[CLIENT].saturating_sub(link.preface),
            bytes_from_backend: link.moved[BACKEND],
            ending,
        });
    }
}

fn count(counters: &Counters, ending: Ending) {
    match ending {
        Ending::ClientCut | Ending::BackendCut => counters.reset.add(1),
        Ending::Idle => counters.idle.add(1),
        Ending::Shed => counters.shed.add(1),
        Ending::NotAllowed => counters.not_allowed.add(1),
        Ending::BadHeader => counters.bad_header.add(1),
        Ending::NoBackend => counters.no_backend.add(1),
        Ending::NoRoom => counters.no_room.add(1),
        Ending::Done | Ending::Stopped | Ending::Moved => {}
    }
}
