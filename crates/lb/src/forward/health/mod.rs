//! Health checks, and everything else that pools ask for in time: one thread that polls the sockets of checks and looks
//! at each pool when it is due.

mod probe;
mod target;
mod tls;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::Timespec,
};

use self::probe::{Probe, Progress};
pub(super) use self::target::Target;
pub use self::target::TargetError;
use super::{
    bell::Bell,
    clock::Clock,
    shared::{Book, Shared},
};
use crate::core::{BackendId, Change, Closing, NEVER, Time};

/// What the keeper looks after, for the handle to change.
#[derive(Debug)]
pub(super) struct Charge {
    pub(super) bell: Arc<Bell>,
    pub(super) over: AtomicBool,
    pub(super) kept: Mutex<Vec<Kept>>,
}

/// A listener that is looked after.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) shared: Arc<Shared>,
    pub(super) target: Arc<Target>,
    /// When the last connections of a listener that is gone are ended.
    pub(super) leaves: Option<Time>,
}

pub(super) struct Keeper {
    clock: Clock,
    charge: Arc<Charge>,
    running: Vec<Running>,
}

/// A check that is under way.
struct Running {
    shared: Arc<Shared>,
    backend: BackendId,
    probe: Probe,
    deadline: Time,
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(clock: Clock, charge: Arc<Charge>) -> Self {
        Self { clock, charge, running: Vec::new() }
    }

    pub(super) fn run(mut self) {
        while !self.charge.over.load(Ordering::Acquire) {
            let now = self.clock.now();
            let due = self.look(now);
            self.wait(due, now);
            let now = self.clock.now();
            self.advance(now);
        }
    }

    /// Does what pools ask for, and tells when to look again.
    fn look(&mut self, now: Time) -> Time {
        let kept = self.charge.kept.lock().clone();
        let mut next = NEVER;
        for kept in &kept {
            if let Some(leaves) = kept.leaves {
                if leaves <= now {
                    kept.shared.close(None, u32::MAX, Closing::Any);
                    self.charge.kept.lock().retain(|other| !Arc::ptr_eq(&other.shared, &kept.shared));
                } else {
                    next = next.min(leaves);
                }
                continue;
            }
            let (checks, closes, due) = kept.shared.with(|book| ask(book, now));
            for (id, count, which) in closes {
                kept.shared.close(Some(id), count, which);
            }
            next = next.min(due);
            for (id, address) in checks {
                match Probe::begin(&kept.target, address) {
                    Ok(probe) => {
                        let deadline = now.saturating_add(kept.target.timeout.as_micros() as Time);
                        let shared = Arc::clone(&kept.shared);
                        self.running.push(Running { shared, backend: id, probe, deadline });
                    }
                    Err(reason) => {
                        report(&kept.shared, id, Err(reason), now);
                        next = now;
                    }
                }
            }
        }
        self.running.iter().map(|running| running.deadline).fold(next, Time::min)
    }

    fn wait(&self, due: Time, now: Time) {
        let mut polled = vec![PollFd::new(&*self.charge.bell, PollFlags::IN)];
        polled.extend(self.running.iter().map(|r| PollFd::new(r.probe.socket(), r.probe.wants())));
        // Rounded up, so that what was waited for is due.
        let timeout = Duration::from_micros(due.saturating_sub(now).min(3_600_000_000));
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                tracing::error!(%errno, "health checks cannot wait for their sockets");
                // Checks go on by their deadlines, and this does not take a core.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        self.charge.bell.clear();
    }

    fn advance(&mut self, now: Time) {
        self.running.retain_mut(|running| {
            let result = match running.probe.advance() {
                Progress::Done(result) => result,
                Progress::Waiting if running.deadline <= now => Err("no answer in time".to_owned()),
                Progress::Waiting => return true,
            };
            report(&running.shared, running.backend, result, now);
            false
        });
    }
}

/// The checks that a pool wants, the connections that it wants closed, and when to ask it again.
#[allow(clippy::type_complexity)] // three answers to one question
fn ask(book: &mut Book, now: Time) -> (Vec<(BackendId, SocketAddr)>, Vec<(BackendId, u32, Closing)>, Time) {
    let pool = &mut book.pool;
    let checks = pool.due_checks(now).into_iter().filter_map(|id| Some((id, pool.address(id)?))).collect();
    let closes = pool.to_close(now);
    let closes = closes.into_iter().map(|(id, count)| (id, count, pool.closing(id, now))).collect();
    (checks, closes, pool.next_due())
}

fn report(shared: &Shared, backend: BackendId, result: Result<(), String>, now: Time) {
    let reason = result.as_ref().err().cloned();
    let before = shared.with(|book| book.reasons.get(&backend).cloned());
    let change = shared.checked(backend, result, now);
    if change.is_none() && (reason.is_none() || reason == before) {
        return;
    }
    let (name, summary) = shared.with(|book| (book.name(backend), book.pool.summary()));
    let listener = &shared.name;
    match change {
        Some(Change::Up) => tracing::info!(listener, backend = name, summary, "a backend is up"),
        Some(_) => tracing::warn!(listener, backend = name, summary, reason, "a backend is down"),
        // The first bad check, or another reason than before: told once, since a backend that never was up changes nothing.
        None => tracing::warn!(listener, backend = name, reason, "a check was bad"),
    }
}
