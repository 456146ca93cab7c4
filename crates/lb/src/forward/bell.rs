//! Wakes a thread that waits for descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

// === impl Bell ===

impl Bell {
    pub(super) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    pub(super) fn ring(&self) {
        // It can only fail when it has been rung 2^64 times and nobody came.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Silences it until it is rung again.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
