//! How a thread is told something: a list behind a lock, and a bell that wakes its loop.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc::Sender,
    },
};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    bell::Bell,
    link::Link,
    settings::Settings,
    shared::{Choice, Shared},
    slab::Key,
};
use crate::core::{BackendId, Closing};

#[derive(Debug)]
pub(super) struct Inbox {
    commands: Mutex<Vec<Command>>,
    bell: Bell,
    /// Connections in it that come from another thread.
    moving: AtomicU64,
}

/// The inboxes of all threads.
#[derive(Debug)]
pub(super) struct Inboxes {
    each: Box<[Inbox]>,
    /// Held while all threads are told the same, and while connections change their thread: an order reaches each of them on
    /// one thread or on the other.
    orders: Mutex<()>,
}

/// A connection on its way to another thread, with what that one needs to know of its listener.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) link: Link,
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<Settings>,
}

#[derive(Debug)]
pub(super) enum Command {
    /// Take a listener's sockets at these addresses out of it, for the listener that adopts them in the same reload.
    SetAside { listener: u32, addresses: Vec<SocketAddr> },
    /// Serve a listener like this from now on. Sockets for addresses that are not kept are closed.
    Serve {
        shared: Arc<Shared>,
        settings: Arc<Settings>,
        keep: Vec<SocketAddr>,
        adopt: Vec<SocketAddr>,
        sockets: Vec<(SocketAddr, OwnedFd)>,
        done: Sender<()>,
    },
    /// A connection that waits has a place now, or will never have one. Whoever is not there any more gives it back.
    Room { listener: u32, key: Key, choice: Choice },
    /// End connections of clients that came by one of these addresses, which is not here any more.
    Leave { addresses: Arc<[IpAddr]> },
    /// End connections, the longest quiet ones first. All threads take from the same number.
    Close { listener: u32, backend: Option<BackendId>, count: Arc<AtomicU32>, which: Closing },
    /// Connections that another thread has no time for.
    Take(Vec<Moving>),
    /// End everything and return.
    End,
}

// === impl Inbox ===

impl Inbox {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { commands: Mutex::default(), bell: Bell::new()?, moving: AtomicU64::new(0) })
    }

    pub(super) fn send(&self, command: Command) {
        let mut commands = self.commands.lock();
        commands.push(command);
        if commands.len() == 1 {
            self.bell.ring();
        }
    }

    pub(super) fn take(&self) -> Vec<Command> {
        let mut commands = self.commands.lock();
        self.bell.clear();
        std::mem::take(&mut *commands)
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Connections of another thread.
    pub(super) fn hand(&self, links: Vec<Moving>) {
        self.moving.fetch_add(links.len() as u64, Ordering::Relaxed);
        self.send(Command::Take(links));
    }

    /// So many of them are counted by the thread itself now.
    pub(super) fn arrived(&self, count: u64) {
        // Who sees that they do not move any more sees that they are counted.
        self.moving.fetch_sub(count, Ordering::Release);
    }

    pub(super) fn moving(&self) -> u64 {
        self.moving.load(Ordering::Acquire)
    }
}

// === impl Inboxes ===

impl Inboxes {
    pub(super) fn new(count: usize) -> Result<Self, Errno> {
        let each = (0..count).map(|_| Inbox::new()).collect::<Result<_, _>>()?;
        Ok(Self { each, orders: Mutex::default() })
    }

    pub(super) fn each(&self) -> &[Inbox] {
        &self.each
    }

    /// Tells every thread something, by its number.
    pub(super) fn tell_all(&self, mut order: impl FnMut(usize) -> Command) {
        let _orders = self.orders.lock();
        self.each.iter().enumerate().for_each(|(number, inbox)| inbox.send(order(number)));
    }

    /// No orders are given to all threads for as long as this is held.
    pub(super) fn no_orders(&self) -> MutexGuard<'_, ()> {
        self.orders.lock()
    }
}
