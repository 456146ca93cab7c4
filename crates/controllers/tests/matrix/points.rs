//! All points: who runs which, and the table at the end.

use crate::branch::{Event, Goal, Name, SECRETS, Wanted, run};
use crate::lives::{self, Inventory, Life, Patience, Place};
use crate::record::{Point, record};
use butler_api::ClusterBootstrap;
use butler_drivers::NoRecorder;
use butler_sim::{DataCentre, DataCentreOptions, Fault};
use kube::api::DeleteParams;
use serde_json::json;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Every class of error that a call can meet.
const CLASSES: [Fault; 8] = [
    Fault::Status(500),
    Fault::LoseAnswer,
    Fault::Throttle,
    Fault::Status(403),
    Fault::Reset,
    Fault::StaleRead,
    Fault::Status(401),
    Fault::Timeout,
];
pub(crate) const WORKERS: u32 = 1;
/// Of so many errors, one is met by a first life as well, which takes as long as a whole run.
const ALIVE: usize = 20;
/// Of so many errors that were to be met on a line of the table, a quarter may be for calls that were not made again; with
/// fewer, one says little.
const ENOUGH: usize = 8;
/// The first life is held up on purpose, and must not take that for a failure.
const UNHURRIED: Patience = Patience(Duration::from_secs(120));

/// Which points are run.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Every n-th call.
    pub(crate) every: usize,
    /// The first of so many parts that together are the whole, or the second, and so on.
    pub(crate) part: (usize, usize),
    /// All classes of errors at each call, in place of one.
    pub(crate) all: bool,
    /// One call only.
    pub(crate) only: Option<(Goal, u64)>,
    /// As many at a time.
    pub(crate) threads: usize,
    /// On which infrastructure.
    pub(crate) place: Place,
    /// Of the data centre.
    pub(crate) seed: u64,
    /// The cluster's secrets are brought by the user: without optimisation, drawing them takes longer than all the rest.
    pub(crate) given_secrets: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            every: 1,
            part: (1, 1),
            all: false,
            only: None,
            threads: 2,
            place: Place::default(),
            seed: 1,
            given_secrets: false,
        }
    }
}

impl Choice {
    pub(crate) fn from_env() -> Choice {
        let text = std::env::var("BUTLER_FAULTS").unwrap_or_default();
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
        let threads = number("BUTLER_FAULTS_THREADS").unwrap_or(2) as usize;
        let seed = number("BUTLER_FAULTS_SEED").unwrap_or(1);
        let place = Place::parse(&std::env::var("BUTLER_FAULTS_ON").unwrap_or_default());
        let mut choice = Choice { threads, seed, place, ..Choice::default() };
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            [] => {}
            ["all"] => choice.all = true,
            ["every", every] => choice.every = every.parse().unwrap(),
            ["part", part, of] => choice.part = (part.parse().unwrap(), of.parse().unwrap()),
            ["all", "every", every] => (choice.all, choice.every) = (true, every.parse().unwrap()),
            [goal, call] => {
                let goal = if *goal == "destroy" { Goal::Destroy } else { Goal::Bootstrap };
                choice.only = Some((goal, call.parse().unwrap()));
                choice.all = true;
            }
            other => panic!("BUTLER_FAULTS: {other:?}"),
        }
        choice
    }

    fn takes(&self, goal: Goal, at: usize, point: &Point) -> bool {
        match self.only {
            Some(only) => only == (goal, point.call.number),
            None => at.is_multiple_of(self.every) && at % self.part.1 + 1 == self.part.0,
        }
    }
}

/// The first life: a cluster is made, and destroyed.
struct Story {
    bootstrap: (Vec<Point>, Wanted),
    destroy: (Vec<Point>, Wanted),
}

fn tell_story(choice: &Choice) -> Story {
    let seed = choice.seed;
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (world, life_of_its_own) = (runtime(), runtime());
    let folder = tempfile::tempdir().unwrap();
    let data_centre =
        world.block_on(DataCentre::start(DataCentreOptions { seed, ..choice.place.options() })).unwrap();
    let nothing = Inventory::of(&data_centre);
    let life =
        life_of_its_own.block_on(Life::begin(folder.path(), &data_centre, Arc::new(NoRecorder), UNHURRIED));
    if choice.given_secrets {
        world.block_on(lives::given_secrets(&life.client, &SECRETS));
    }
    let story = world.block_on(live(choice.place, &life, &data_centre, folder.path(), &nothing));
    drop(life);
    life_of_its_own.shutdown_background();
    world.block_on(data_centre.stop());
    story
}

async fn live(
    place: Place,
    life: &Life,
    data_centre: &DataCentre,
    folder: &Path,
    nothing: &Inventory,
) -> Story {
    let asked = lives::ask(&life.client, data_centre, place, place.cluster(WORKERS, json!({})));
    let points = record(data_centre, folder, asked, life.ready()).await;
    let status = life.cluster().await.and_then(|cluster| cluster.status).unwrap();
    let inventory = Inventory::of(data_centre);
    assert_eq!(inventory.machines.len(), 3 + WORKERS as usize, "{inventory:?}");
    assert_eq!(inventory.foreign, nothing.foreign);
    let ready =
        Wanted { goal: Goal::Bootstrap, inventory, addons: status.addons_installed.into_keys().collect() };
    let deleted = async {
        life.api::<ClusterBootstrap>().delete(lives::CLUSTER, &DeleteParams::default()).await.unwrap();
    };
    let last = record(data_centre, folder, deleted, life.gone()).await;
    let etcd_clusters = ready.inventory.etcd_clusters;
    let gone = Wanted {
        goal: Goal::Destroy,
        inventory: Inventory { etcd_clusters, ..nothing.clone() },
        ..ready.clone()
    };
    let left = Inventory::of(data_centre).differences(&gone.inventory);
    assert!(left.is_empty(), "the first life left something: {left:?}");
    Story { bootstrap: (points, ready), destroy: (last, gone) }
}

/// What is run at a call.
fn events(point: &Point, at: usize, all: bool) -> Vec<Event> {
    let fits = |fault: &Fault| match fault {
        // Only Proxmox answers from the past.
        Fault::StaleRead => !point.call.call.mutates && point.call.call.system == "proxmox",
        _ => true,
    };
    let classes: Vec<Fault> = CLASSES.into_iter().filter(fits).collect();
    let turn = classes[at % classes.len()];
    let errors = if all { classes } else { vec![turn] };
    let mut events = vec![Event::Before, Event::After];
    events.extend(errors.into_iter().map(Event::Error));
    events.extend(at.is_multiple_of(ALIVE).then_some(Event::Alive(turn)));
    events
}

struct Job<'a> {
    point: &'a Point,
    wanted: &'a Wanted,
    name: Name,
}

/// One line of the table.
#[derive(Default)]
struct Line {
    calls: usize,
    before: usize,
    after: usize,
    errors: usize,
    /// Errors that a first life was to meet.
    alive: usize,
    /// Errors whose call the second life never made.
    unmet: usize,
    failed: usize,
}

impl Line {
    /// More than a quarter of its errors was met by nobody.
    fn says_nothing(&self) -> bool {
        let errors = self.errors + self.alive;
        errors >= ENOUGH && self.unmet * 4 > errors
    }
}

#[derive(Default)]
struct Tally {
    /// By goal and system.
    lines: BTreeMap<(&'static str, &'static str), Line>,
    /// Time of all second lives, and of the slowest.
    lived: Duration,
    slowest: (Duration, String),
    failures: Vec<String>,
}

/// Runs all chosen points, and fails with a list of those that came to a bad end.
pub(crate) fn matrix(goals: &[Goal], choice: &Choice) {
    let began = Instant::now();
    let story = tell_story(choice);
    println!(
        "first life: {} calls to Ready, {} calls to nothing, {:.1?}",
        story.bootstrap.0.len(),
        story.destroy.0.len(),
        began.elapsed()
    );
    let mut tally = Tally::default();
    let mut jobs = Vec::new();
    for goal in goals {
        let (points, wanted) = if *goal == Goal::Bootstrap { &story.bootstrap } else { &story.destroy };
        assert!(!points.is_empty(), "the first life made no call for {}", goal.word());
        for (at, point) in points.iter().enumerate().filter(|(at, point)| choice.takes(*goal, *at, point)) {
            tally.lines.entry((goal.word(), point.call.call.system)).or_default().calls += 1;
            let call = point.call.number;
            let named = |event| Job { point, wanted, name: Name { goal: *goal, call, event } };
            jobs.extend(events(point, at / choice.every, choice.all).into_iter().map(named));
        }
    }
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(tally));
    std::thread::scope(|scope| {
        for _ in 0..choice.threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run_job(job, choice, &tally);
                }
            });
        }
    });
    report(&tally.into_inner().unwrap(), choice, began.elapsed());
}

fn run_job(job: &Job<'_>, choice: &Choice, tally: &Mutex<Tally>) {
    let began = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(job.point, job.name.event, job.wanted, choice)));
    let took = began.elapsed();
    let call = &job.point.call.call;
    let told = format!("{} ({} {} {})", job.name, call.system, call.operation, call.object);
    let (met, problem) = match outcome {
        // Its caller had hung up: there is nothing after it.
        Ok(None) => return,
        Ok(Some(Ok(met))) => (met.fault, None),
        Ok(Some(Err(problem))) => (true, Some(problem)),
        Err(_) => (true, Some("it panicked".to_owned())),
    };
    if std::env::var_os("BUTLER_FAULTS_VERBOSE").is_some() {
        println!("{told}: {took:.1?}{}", if met { "" } else { ", not met" });
    }
    let mut tally = tally.lock().unwrap();
    tally.lived += took;
    if took > tally.slowest.0 {
        tally.slowest = (took, told.clone());
    }
    let line = tally.lines.entry((job.name.goal.word(), call.system)).or_default();
    match job.name.event {
        Event::Before => line.before += 1,
        Event::After => line.after += 1,
        Event::Error(_) => line.errors += 1,
        Event::Alive(_) => line.alive += 1,
    }
    line.unmet += usize::from(!met);
    if let Some(problem) = problem {
        line.failed += 1;
        println!("FAILED {told}: {problem}");
        tally.failures.push(format!("{told}: {problem}"));
    }
}

fn report(tally: &Tally, choice: &Choice, took: Duration) {
    println!(
        "{:<10} {:<11} {:>6} {:>7} {:>6} {:>7} {:>10} {:>8} {:>7}",
        "", "", "calls", "before", "after", "errors", "same life", "not met", "failed"
    );
    let mut points = 0;
    for ((goal, system), line) in &tally.lines {
        let Line { calls, before, after, errors, alive, unmet, failed } = line;
        println!(
            "{goal:<10} {system:<11} {calls:>6} {before:>7} {after:>6} {errors:>7} {alive:>10} {unmet:>8} {failed:>7}"
        );
        points += before + after + errors + alive;
    }
    let empty: Vec<String> = tally
        .lines
        .iter()
        .filter(|(_, line)| line.says_nothing())
        .map(|((goal, system), line)| {
            format!("{goal} {system}: {} of {}", line.unmet, line.errors + line.alive)
        })
        .collect();
    let (slowest, whose) = &tally.slowest;
    println!(
        "{points} points in {took:.0?}, {:.2?} each; slowest {slowest:.1?}: {whose}",
        tally.lived / points.max(1) as u32
    );
    assert!(points > 0, "no point was run");
    for failure in &tally.failures {
        let call: Vec<&str> = failure.split(' ').take(2).collect();
        let (place, seed, call) = (choice.place.name(), choice.seed, call.join(" "));
        println!("again: cargo xtask faults --on {place} --seed {seed} --only \"{call}\"");
    }
    assert!(tally.failures.is_empty(), "{} of {points} points failed", tally.failures.len());
    assert!(empty.is_empty(), "errors that nobody met, so that they say nothing: {empty:?}");
}

#[test]
fn a_line_whose_errors_nobody_met_says_nothing() {
    let line = |errors, alive, unmet| Line { errors, alive, unmet, ..Line::default() }.says_nothing();
    assert!(line(9, 1, 3) && line(100, 0, 26));
    assert!(!line(9, 3, 3) && !line(100, 0, 25) && !line(0, 0, 0));
    assert!(!line(1, 0, 1), "one call says little");
}
