//! Ten thousand seeded crashes of the log on a simulated disk.
//!
//! A world lives through many machines: each opens the log, checks that it finds what was acknowledged (and the one batch
//! in flight as a whole, or not at all), works for a while, and goes down in the middle of some disk operation, often in
//! the middle of recovery itself. Disks also get full and fail to sync on the way. A failure names its seed.

#![allow(clippy::panic, reason = "helpers of a test are not test functions themselves")]

use butler_apiserver::store::disk::{Restart, SimDisk};
use butler_apiserver::store::log::{
    AppendError, Entry, Log, Options, Record, Recovered, RotateError, SnapshotError, SnapshotJob,
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;

const WORLDS: u64 = 400;
const CRASHES: u32 = 25;

struct Random(u64);

/// What the log promised, and the disk it promised it on.
struct World {
    seed: u64,
    random: Random,
    disk: SimDisk,
    options: Options,
    /// Every acknowledged change, in order.
    history: Vec<Record>,
    state: BTreeMap<Arc<str>, Entry>,
    /// No revision up to here may be given out again.
    revision: u64,
    /// The highest one that was tried.
    tried: u64,
    in_flight: Vec<Record>,
    seen: Seen,
}

/// What happened: a test that never met a torn batch would prove nothing.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    crashes: u32,
    crashes_in_recovery: u32,
    appends: u32,
    snapshots: u32,
    cuts: u32,
    kept_in_flight: u32,
    lost_in_flight: u32,
    full: u32,
    failed_syncs: u32,
    /// Machines that went down between two operations.
    quiet: u32,
}

/// A snapshot that is to be made, and of what.
type Waiting = (SnapshotJob<SimDisk>, Vec<Entry>);

/// Why a machine's work ended.
enum End {
    Down,
    Poisoned,
    Tired,
}

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.appends += other.appends;
        self.snapshots += other.snapshots;
        self.cuts += other.cuts;
        self.kept_in_flight += other.kept_in_flight;
        self.lost_in_flight += other.lost_in_flight;
        self.full += other.full;
        self.failed_syncs += other.failed_syncs;
        self.quiet += other.quiet;
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed ^ 0x5DEE_CE66);
        let fill_ahead = [0, 512, 4096][random.below(3) as usize];
        Self {
            seed,
            random,
            disk: SimDisk::new(seed),
            options: Options { fill_ahead },
            history: Vec::new(),
            state: BTreeMap::new(),
            revision: 0,
            tried: 0,
            in_flight: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn live(mut self) -> Seen {
        while self.seen.crashes < CRASHES {
            let fuse = self.random.below(45);
            let in_recovery = self.random.one_in(4);
            if in_recovery {
                self.disk.go_down_after(fuse % 12);
            }
            match Log::open_with(self.disk.clone(), self.options.clone()) {
                Ok((log, recovered)) => {
                    self.check(&recovered);
                    if !in_recovery {
                        self.disk.go_down_after(fuse);
                    }
                    match self.work(log) {
                        End::Poisoned => self.seen.failed_syncs += 1,
                        End::Tired => self.seen.quiet += 1,
                        End::Down => {}
                    }
                }
                Err(error) => {
                    assert!(is_down(&error), "seed {}: refused to start: {error}", self.seed);
                    self.seen.crashes_in_recovery += 1;
                }
            }
            let how = if self.random.one_in(3) { Restart::Kill } else { Restart::PowerCut };
            self.disk = self.disk.restart(how);
            self.disk.set_room(None);
            self.disk.set_short_writes(self.random.one_in(3));
            self.seen.crashes += 1;
        }
        self.seen
    }

    /// Compares what was recovered with what was promised, and takes in the batch in flight if it came through.
    fn check(&mut self, recovered: &Recovered) {
        let seed = self.seed;
        let in_flight = std::mem::take(&mut self.in_flight);
        if let Some(first) = in_flight.first() {
            let came_through = recovered.tail.iter().any(|r| r.revision == first.revision);
            if came_through {
                self.acknowledge(in_flight);
                self.seen.kept_in_flight += 1;
            } else {
                self.seen.lost_in_flight += 1;
            }
        }
        let expected: Vec<Entry> = self.state.values().cloned().collect();
        assert_eq!(recovered.entries, expected, "seed {seed}: the state differs from what was acknowledged");
        assert!(recovered.revision >= self.revision, "seed {seed}: revision {} reused", self.revision);
        assert!(
            recovered.revision <= self.tried,
            "seed {seed}: revision {} from nowhere",
            recovered.revision
        );
        assert!(recovered.floor <= recovered.revision, "seed {seed}: floor {}", recovered.floor);
        let history = self.history.iter().filter(|r| r.revision > recovered.floor);
        assert!(
            recovered.tail.iter().eq(history),
            "seed {seed}: the history above {} differs",
            recovered.floor
        );
        assert!(recovered.bad_snapshots.is_empty(), "seed {seed}: a torn snapshot became visible");
        self.revision = recovered.revision;
        self.seen.cuts += u32::from(recovered.cut.is_some());
    }

    fn acknowledge(&mut self, batch: Vec<Record>) {
        for record in batch {
            let Record { revision, key, value } = record.clone();
            match value {
                Some(value) => self.state.insert(key.clone(), Entry { key, revision, value }),
                None => self.state.remove(&key),
            };
            self.revision = revision;
            self.history.push(record);
        }
    }

    /// Appends, rotates and snapshots until the machine goes down.
    fn work(&mut self, mut log: Log<SimDisk>) -> End {
        let mut waiting: Option<Waiting> = None;
        for _ in 0..30 {
            match self.random.below(20) {
                0 => self.disk.set_room(Some(self.random.below(3000))),
                1 | 2 => self.disk.set_room(None),
                3 if self.random.one_in(4) => self.disk.fail_syncs(1),
                4 | 5 => match self.rotate(&mut log) {
                    Ok(job) => waiting = job.or(waiting),
                    Err(end) => return end,
                },
                // The job runs some appends after its rotation, as it would on another thread.
                6 | 7 => {
                    let Some((job, entries)) = waiting.take() else { continue };
                    let revision = job.revision();
                    match job.run(entries) {
                        Ok(report) => {
                            assert_eq!(report.revision, revision);
                            self.seen.snapshots += 1;
                        }
                        Err(SnapshotError::Io { source, .. }) if !is_down(&source) => {}
                        Err(_) => return End::Down,
                    }
                }
                _ => {
                    if let Err(end) = self.append(&mut log) {
                        return end;
                    }
                }
            }
        }
        End::Tired
    }

    fn append(&mut self, log: &mut Log<SimDisk>) -> Result<(), End> {
        let batch = self.batch();
        self.tried = self.tried.max(batch.last().map_or(0, |r| r.revision));
        match log.append(&batch) {
            Ok(()) => {
                self.acknowledge(batch);
                self.seen.appends += 1;
                Ok(())
            }
            Err(AppendError::Full { needed, .. }) => {
                assert!(needed > 0 && !log.is_poisoned());
                self.seen.full += 1;
                Ok(())
            }
            Err(AppendError::Poisoned { cause, .. }) => {
                let refused = log.append(&batch);
                assert!(
                    matches!(refused, Err(AppendError::Poisoned { .. })),
                    "seed {}: {refused:?}",
                    self.seed
                );
                self.in_flight = batch;
                Err(if cause.contains("is down") { End::Down } else { End::Poisoned })
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn rotate(&mut self, log: &mut Log<SimDisk>) -> Result<Option<Waiting>, End> {
        let skipped = if self.random.one_in(4) { self.random.below(4) } else { 0 };
        let revision = self.revision + skipped;
        self.tried = self.tried.max(revision);
        match log.rotate(revision, 0) {
            Ok(job) => {
                self.revision = revision;
                Ok(Some((job, self.state.values().cloned().collect())))
            }
            Err(RotateError::Start { source, .. }) => {
                assert!(!is_down(&source), "going down must poison");
                Ok(None)
            }
            Err(RotateError::Poisoned(_)) => Err(End::Down),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn batch(&mut self) -> Vec<Record> {
        let mut revision = self.revision;
        let count = 1 + self.random.below(5);
        let mut batch = Vec::new();
        for _ in 0..count {
            revision += 1;
            let key = format!("/registry/things/{}", self.random.below(12)).into();
            let size = [0, 20, 300, 1500][self.random.below(4) as usize];
            let value = format!("{revision}-").repeat(1 + size / 4);
            let value = (!self.random.one_in(3)).then(|| Bytes::from(value));
            batch.push(Record { revision, key, value });
        }
        batch
    }
}

fn is_down(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string().contains("machine is down") {
            return true;
        }
        next = error.source();
    }
    false
}

#[test]
fn ten_thousand_crashes_lose_nothing_that_was_acknowledged() {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get() as u64);
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let mut seen = Seen::default();
                    (worker..WORLDS)
                        .step_by(threads as usize)
                        .for_each(|seed| seen += World::new(seed).live());
                    seen
                })
            })
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(some) => seen += some,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    println!("{seen:?}");
    assert_eq!(u64::from(seen.crashes), WORLDS * u64::from(CRASHES));
    // Each kind of trouble was met often, else the test is not what it says.
    let often = [
        ("crashes in recovery", seen.crashes_in_recovery),
        ("snapshots", seen.snapshots),
        ("torn batches", seen.cuts),
        ("batches in flight that came through", seen.kept_in_flight),
        ("batches in flight that were lost", seen.lost_in_flight),
        ("full disks", seen.full),
        ("failed syncs", seen.failed_syncs),
    ];
    for (what, count) in often {
        assert!(count >= 300, "only {count} {what}");
    }
    assert!(seen.appends > 20_000, "only {} appends", seen.appends);
}
