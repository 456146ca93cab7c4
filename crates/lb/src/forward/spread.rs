//! How many threads take new connections: as few as have the time for them. One thread serves connections in larger batches
//! than two would, wakes and is woken less often, and leaves the other cores to whoever shares the machine with it. Once the
//! threads in use are busy and a core is free, as many again take their part.

use std::{
    fs,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use crate::core::{SECOND, Time};

/// What is judged has gone on for so long at least.
const WINDOW: Time = SECOND / 2;
/// What goes back further says nothing about now.
const STALE: Time = 5 * WINDOW;
/// Connections change their threads at most once in this time.
const PAUSE: Time = 2 * SECOND;

/// What the threads of a balancer know of each other.
#[derive(Debug)]
pub(super) struct Spread {
    /// By thread.
    busy: Box<[Busy]>,
    used: AtomicUsize,
    least: usize,
    last: Mutex<Look>,
}

/// Microseconds in which a thread did not wait, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Busy(AtomicU64);

/// How things were when somebody last looked.
#[derive(Debug)]
struct Look {
    at: Time,
    busy: Vec<Time>,
    /// Time in which cores had nothing to do, all taken together.
    idle: Option<Time>,
    /// What was seen then.
    seen: Option<Seen>,
    /// When connections last changed their thread.
    moved: Time,
}

/// What has happened between two looks.
#[derive(Debug)]
struct Seen {
    elapsed: Time,
    /// By thread.
    busy: Vec<Time>,
    /// Another thread would find a core to run on.
    room: bool,
}

/// What a thread is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Advice {
    /// New connections are to go to another number of threads.
    pub(super) steers: bool,
    /// Connections are to go to this thread.
    pub(super) relief: Option<usize>,
}

/// How busy one thread is, as it sees itself.
#[derive(Debug)]
pub(super) struct Pace {
    busy: Time,
    /// The beginning of the window, and how busy it was until then.
    since: (Time, Time),
}

// === impl Spread ===

#[cfg(test)]
impl Spread {
    /// A core is free, whatever this machine does meanwhile.
    pub(super) fn have_room(&self) {
        self.last.lock().idle = None;
    }
}

impl Spread {
    /// Of so many threads, so many are in use at least.
    pub(super) fn new(threads: usize, least: usize) -> Self {
        let least = least.clamp(1, threads.max(1));
        Self {
            busy: (0..threads).map(|_| Busy::default()).collect(),
            used: AtomicUsize::new(least),
            least,
            last: Mutex::new(Look { at: 0, busy: vec![0; threads], idle: None, seen: None, moved: 0 }),
        }
    }

    /// How many threads take new connections.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A thread tells how long it has been busy in all.
    pub(super) fn note(&self, thread: usize, pace: &Pace) {
        if let Some(busy) = self.busy.get(thread) {
            busy.0.store(pace.busy, Ordering::Relaxed);
        }
    }

    /// Looks around for a thread that is busy, or one of several in use. `can_give`: whether it has connections to hand over.
    pub(super) fn look(&self, thread: usize, now: Time, can_give: impl FnOnce() -> bool) -> Advice {
        // Somebody looks at this moment, and the next window is not far.
        let Some(mut last) = self.last.try_lock() else { return Advice::default() };
        let used = self.used();
        let mut wanted = used;
        if now.saturating_sub(last.at) >= WINDOW {
            let seen = last.renew(now, &self.busy);
            wanted = seen.threads(used).max(self.least);
            self.used.store(wanted, Ordering::Relaxed);
        }
        // What another thread has just seen is as good: each of them is in its own part of a window, and the same one would
        // come first again and again.
        let rested = now.saturating_sub(last.moved) >= PAUSE;
        let relief = last.seen.as_ref().and_then(|seen| seen.relief(thread));
        let relief = relief.filter(|_| rested && can_give());
        if relief.is_some() {
            last.moved = now;
        }
        Advice { steers: wanted != used, relief }
    }
}

// === impl Look ===

impl Look {
    fn renew(&mut self, now: Time, busy: &[Busy]) -> &Seen {
        let elapsed = now.saturating_sub(self.at);
        let busy: Vec<Time> = busy.iter().map(|busy| busy.0.load(Ordering::Relaxed)).collect();
        let idle = idle();
        let seen = Seen {
            elapsed,
            busy: busy.iter().zip(&self.busy).map(|(now, then)| now.saturating_sub(*then)).collect(),
            // Where nobody tells, it is for the scheduler to find out.
            room: idle.zip(self.idle).is_none_or(|(now, then)| now.saturating_sub(then) >= elapsed / 2),
        };
        (self.at, self.busy, self.idle) = (now, busy, idle);
        self.seen.insert(seen)
    }
}

/// Time in which the machine's cores had nothing to do since it was started. `None` where that is not counted.
fn idle() -> Option<Time> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((seconds * SECOND as f64) as Time).filter(|idle| *idle > 0)
}

// === impl Seen ===

impl Seen {
    /// How many threads are to take new connections, where so many do now.
    fn threads(&self, used: usize) -> usize {
        let (all, total) = (self.busy.len(), self.busy.iter().sum::<Time>());
        let time_of = |threads: usize| self.elapsed.saturating_mul(threads as u64);
        if used < all && self.is_fresh() && self.room && total >= time_of(used) / 4 * 3 {
            (2 * used).min(all)
        } else if used > 1 && total < time_of(used - 1) / 5 * 2 {
            used - 1
        } else {
            used
        }
    }

    /// Who can take over some of a busy thread's connections.
    fn relief(&self, of: usize) -> Option<usize> {
        let own = *self.busy.get(of)?;
        if !self.is_fresh() || !self.room || own < self.elapsed / 4 * 3 {
            return None;
        }
        let (thread, least) = self.busy.iter().enumerate().min_by_key(|(_, busy)| **busy)?;
        (*least <= own / 2).then_some(thread)
    }

    fn is_fresh(&self) -> bool {
        self.elapsed <= STALE
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(now: Time) -> Self {
        Self { busy: 0, since: (now, 0) }
    }

    /// It was busy from then until now. At the end of a window: whether it was most of that.
    pub(super) fn worked(&mut self, from: Time, now: Time) -> Option<bool> {
        self.busy += now.saturating_sub(from);
        let (since, before) = self.since;
        let elapsed = now.saturating_sub(since);
        (elapsed >= WINDOW).then(|| {
            self.since = (now, self.busy);
            self.busy - before >= elapsed / 4 * 3
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of a window, in percent.
    fn seen(busy: &[u64], room: bool) -> Seen {
        Seen { elapsed: WINDOW, busy: busy.iter().map(|share| WINDOW / 100 * share).collect(), room }
    }

    #[test]
    fn more_threads_take_their_part_when_those_in_use_are_busy_and_a_core_is_free() {
        assert_eq!(seen(&[100, 0, 0], true).threads(1), 2);
        assert_eq!(seen(&[100, 0, 0], false).threads(1), 1, "there is no core for it");
        assert_eq!(seen(&[70, 0, 0], true).threads(1), 1);
        assert_eq!(seen(&[70, 70, 0], true).threads(2), 2);
        assert_eq!(seen(&[90, 80, 0], true).threads(2), 3);
        assert_eq!(seen(&[90, 80, 0, 0, 0, 0], true).threads(2), 4);
        assert_eq!(seen(&[100, 100, 100], true).threads(3), 3, "there are no more");
        let old = Seen { elapsed: 2 * STALE, ..seen(&[100, 0], true) };
        assert_eq!(Seen { busy: vec![2 * STALE, 0], ..old }.threads(1), 1, "that was long ago");
    }

    #[test]
    fn a_thread_less_does_when_the_others_have_the_time() {
        assert_eq!(seen(&[20, 15, 0], true).threads(2), 1);
        assert_eq!(seen(&[20, 15, 0], false).threads(2), 1);
        assert_eq!(seen(&[40, 20, 0], true).threads(2), 2, "it would soon be two again");
        assert_eq!(seen(&[0, 0, 0], true).threads(1), 1);
    }

    #[test]
    fn a_busy_thread_is_relieved_by_one_that_is_much_less_so() {
        assert_eq!(seen(&[100, 30, 10], true).relief(0), Some(2));
        assert_eq!(seen(&[100, 30, 10], true).relief(1), None);
        assert_eq!(seen(&[100, 60, 60], true).relief(0), None);
        assert_eq!(seen(&[100, 0], false).relief(0), None);
        assert_eq!(seen(&[100], true).relief(0), None);
    }

    #[test]
    fn connections_change_their_thread_now_and_then_at_most() {
        let spread = Spread::new(2, 1);
        let mut pace = Pace::new(0);
        let mut moved = Vec::new();
        for turn in 1..=40 {
            let now = turn * WINDOW;
            pace.worked(now - WINDOW, now);
            spread.note(0, &pace);
            spread.have_room();
            if spread.look(0, now, || true).relief.is_some() {
                moved.push(now);
            }
        }
        assert!(moved.len() >= 3, "{moved:?}");
        assert!(moved.windows(2).all(|pair| pair[1] - pair[0] >= PAUSE), "{moved:?}");
    }

    #[test]
    fn who_waited_most_of_the_time_is_not_busy() {
        let mut pace = Pace::new(0);
        assert_eq!(pace.worked(0, WINDOW / 2), None);
        assert_eq!(pace.worked(WINDOW, WINDOW), Some(false));
        assert_eq!(pace.worked(WINDOW, 2 * WINDOW), Some(true));
    }

    #[test]
    fn a_busy_thread_is_relieved_whoever_looks_first() {
        let spread = Spread::new(3, 2);
        let (mut half, mut full) = (Pace::new(0), Pace::new(0));
        let mut relieved = None;
        for turn in 1..20 {
            let now = turn * WINDOW;
            half.worked(now - WINDOW / 2, now);
            spread.note(0, &half);
            spread.have_room();
            // It is the first one to look in every window, and it needs nobody.
            assert_eq!(spread.look(0, now, || true).relief, None);
            full.worked(now - WINDOW, now);
            spread.note(1, &full);
            relieved = relieved.or(spread.look(1, now + WINDOW / 2, || true).relief);
        }
        assert_eq!(relieved, Some(2));
    }

    #[test]
    fn who_has_nothing_to_give_does_not_keep_others_from_it() {
        let spread = Spread::new(3, 2);
        let mut pace = Pace::new(0);
        for turn in 1..=5 {
            let now = turn * WINDOW;
            pace.worked(now - WINDOW, now);
            spread.note(0, &pace);
            spread.note(1, &pace);
            spread.have_room();
            assert_eq!(spread.look(0, now, || false).relief, None);
        }
        assert_eq!(spread.look(1, 5 * WINDOW, || true).relief, Some(2));
    }

    #[test]
    fn some_are_in_use_whatever_happens() {
        let spread = Spread::new(3, 2);
        for turn in 1..5 {
            assert!(!spread.look(0, turn * WINDOW, || true).steers);
        }
        assert_eq!(spread.used(), 2);
        assert_eq!(Spread::new(3, 9).used(), 3);
    }
}
