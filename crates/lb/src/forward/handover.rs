//! A connection's way from one thread to another, when the first one has no time for all of its connections.

use std::sync::Arc;

use rustix::{event::epoll, io::Errno};

use super::{
    inbox::Moving,
    link::{BACKEND, CLIENT, Link, Phase},
    mover::Broken,
    slab::Key,
    sockets,
    spread::Spread,
    worker::{Local, Worker},
};
use crate::core::{SECOND, Time};

/// Who has moved a byte within this time makes work.
const LATELY: Time = SECOND / 10;

impl Worker {
    /// Looks whether there is too much to do for the threads in use, or too little.
    pub(super) fn look_around(&mut self, now: Time) {
        let advice = self.spread.look(self.number, now, || self.makes_work().len() > 1);
        if advice.steers {
            tracing::debug!(threads = self.spread.used(), "new connections go to another number of threads");
            self.listeners.iter().flatten().for_each(|local| local.steer(&self.spread));
        }
        if let Some(thread) = advice.relief {
            self.hand_over(thread);
        }
    }

    /// Hands every second connection that makes work to another thread.
    pub(super) fn hand_over(&mut self, thread: usize) {
        let inboxes = Arc::clone(&self.inboxes);
        let Some(inbox) = inboxes.each().get(thread) else { return };
        // Orders that were given before are for connections that are still here. They are done twice, so that all but the last
        // ones keep nobody waiting.
        self.on_inbox();
        let _none = inboxes.no_orders();
        self.on_inbox();
        let mut moving = Vec::new();
        for key in self.makes_work().into_iter().skip(1).step_by(2) {
            moving.extend(self.let_go(key));
        }
        if !moving.is_empty() {
            tracing::debug!(
                from = self.number,
                to = thread,
                count = moving.len(),
                "connections change their thread"
            );
            inbox.hand(moving);
        }
        self.publish();
    }

    fn makes_work(&self) -> Vec<Key> {
        let lately = self.now.saturating_sub(LATELY);
        let makes_work = |link: &Link| link.phase == Phase::Open && link.active >= lately;
        self.links.iter().filter(|(_, link)| makes_work(link)).map(|(key, _)| key).collect()
    }

    /// Takes a connection out of this thread. One whose listener is about to go stays.
    fn let_go(&mut self, key: Key) -> Option<Moving> {
        let listener = self.links.get_mut(key)?.listener;
        let local = self.listeners.get(listener as usize)?.as_ref()?;
        if local.sockets.iter().all(Option::is_none) {
            return None;
        }
        let (shared, settings) = (Arc::clone(&local.shared), Arc::clone(&local.settings));
        let mut link = self.links.remove(key)?;
        self.wheel.clear(key.index);
        for end in &mut link.ends {
            if let Some(socket) = end.fd()
                && end.watched
            {
                // It fails for nobody who is watched.
                let _ = epoll::delete(&self.mover.epoll, socket);
            }
            (end.watched, end.watched_for_room, end.queued) = (false, false, false);
        }
        Some(Moving { link, shared, settings })
    }

    /// Goes on with connections of another thread.
    pub(super) fn take(&mut self, links: Vec<Moving>) {
        self.taken += links.len() as u64;
        for Moving { mut link, shared, settings } in links {
            let deadline = self.now.saturating_add(settings.connect.min(settings.idle));
            // Orders and moves exclude each other, so that this thread should know it.
            self.local(shared, settings);
            link.dialled = 0;
            let key = self.links.insert(link);
            // What is due is reckoned when it comes up.
            self.wheel.set(key.index, deadline);
            if let Err((end, errno)) = self.watch_both(key) {
                tracing::error!(%errno, "a socket cannot be watched");
                self.on_break(key, Broken { end, by_writing: false, errno });
            } else if self.pump(key, CLIENT) {
                self.pump(key, BACKEND);
            }
        }
    }

    /// Makes both ends known to epoll, unless they are.
    pub(super) fn watch_both(&mut self, key: Key) -> Result<(), (usize, Errno)> {
        let Some(link) = self.links.get_mut(key) else { return Ok(()) };
        for side in [CLIENT, BACKEND] {
            if !link.ends[side].watched {
                self.mover.watch(&mut link.ends[side], key, side, false).map_err(|errno| (side, errno))?;
            }
        }
        Ok(())
    }
}

impl Local {
    /// Has new connections come to those threads that are in use.
    pub(super) fn steer(&self, spread: &Spread) {
        for (address, socket) in self.sockets.iter().flatten() {
            let mut told = 0;
            // Another thread may tell the kernel an older number at the same time, and then sees a newer one too.
            while told != spread.used() {
                told = spread.used();
                if let Err(errno) = sockets::steer(socket, told) {
                    tracing::debug!(%address, %errno, "the kernel can't be told how to spread new connections");
                    return;
                }
            }
        }
    }
}
