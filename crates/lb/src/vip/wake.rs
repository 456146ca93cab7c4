//! Wakes a thread that waits for its sockets.

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Can be cloned and kept by whoever has news for a thread.
#[derive(Debug, Clone)]
pub(super) struct Waker(Arc<OwnedFd>);

// === impl Waker ===

impl Waker {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    pub(super) fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all wakings so far.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }

    /// Waits for a waking, and takes it.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        let mut fds = [PollFd::new(&*self.0, PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        self.clear();
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&*self.0, PollFlags::IN)
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
