//! The time that all threads of a balancer share.

use std::time::{Duration, Instant};

use crate::core::Time;

/// A steady clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
}

// === impl Clock ===

impl Clock {
    pub(super) fn start() -> Self {
        // A second has passed already, so that "a while ago" is never before the beginning.
        let now = Instant::now();
        Self { start: now.checked_sub(Duration::from_secs(1)).unwrap_or(now) }
    }

    pub(super) fn now(&self) -> Time {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
