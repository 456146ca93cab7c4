//! How a thread is told something: a list behind a lock, and a bell that wakes its loop.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicU32, mpsc::Sender},
};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{bell::Bell, settings::Settings, shared::Shared, slab::Key};
use crate::core::BackendId;

#[derive(Debug)]
pub(super) struct Inbox {
    commands: Mutex<Vec<Command>>,
    bell: Bell,
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
    /// There is room for a connection that waits.
    Room { listener: u32, key: Key },
    /// End connections of clients that came by one of these addresses, which is not here any more.
    Leave { addresses: Arc<[IpAddr]> },
    /// End connections, the longest quiet ones first; gently: only such that have been there for a while. All threads take
    /// from the same number.
    Close { listener: u32, backend: Option<BackendId>, count: Arc<AtomicU32>, gently: bool },
    /// End everything and return.
    End,
}

// === impl Inbox ===

impl Inbox {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { commands: Mutex::default(), bell: Bell::new()? })
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
}
