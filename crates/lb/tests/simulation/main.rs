//! The pure core under seeded schedules of faults that no real network can be made to produce on demand: partitions
//! (one-way ones too), loss, delay, duplication, reordering, pauses, clock jumps, crashes, restarts, reloads.
//!
//! A schedule is a number. `BUTLER_LB_SCHEDULES=1000000` runs more of them (best with --release),
//! `BUTLER_LB_SEED=n` runs one and prints what happens.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod balance;
mod detection;
mod election;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Schedules of all worlds together, without the variable.
const SCHEDULES: u64 = 100_000;

/// Runs a world's share of the schedules on all cores, and returns the sum of what each counted.
fn run(percent: u64, schedule: impl Fn(u64, bool) -> Result<u64, String> + Sync) -> u64 {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("BUTLER_LB_SEED") {
        return schedule(seed, true).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    let end = number("BUTLER_LB_SCHEDULES").unwrap_or(SCHEDULES) * percent / 100;
    let (next, counted, failed) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            match schedule(seed, false) {
                Ok(count) => counted.fetch_add(count, Ordering::Relaxed),
                Err(violation) => {
                    // The lowest seed that fails is told, whichever thread comes first.
                    next.store(end, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap();
                    if failed.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                        *failed = Some((seed, violation));
                    }
                    break;
                }
            };
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    if let Some((seed, violation)) = failed.into_inner().unwrap() {
        panic!("seed {seed}: {violation}");
    }
    counted.into_inner()
}
