//! `cargo xtask bench loadbalancer`: the load balancers of clouds, on simulated ones.
//!
//! ```text
//! time    from the last control plane's address to an endpoint with all of them behind it, over the delay table's lower bound
//! calls   of the cloud's API, for a bootstrap and for an idle hour, beside those that fixed polling would make
//! ```
//!
//! Each measurement is a process of its own (`benches/loadbalancer` of butler-controllers). Both clouds are measured side by
//! side: they wait nearly all of the time.
//!
//! ```text
//! mod     arguments, rounds, what the program says      path      the lower bound
//! report  the page                                      upstream  the model of fixed polling
//! ```

mod path;
mod report;
mod upstream;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{bootstrap, machine, say, target_dir};

/// All of it takes about six minutes.
const ROUNDS: u64 = 1;
/// Real time: how often a cloud is asked depends on how long it takes.
const SPEED: f64 = 1.0;
/// The longest pause between looks at what is as it should be.
const WINDOW: u64 = 120;
/// How many times faster the idle hour goes.
const FACTOR: f64 = 60.0;
const HOUR: f64 = 3600.0;

#[derive(Debug, clap::Args)]
pub(super) struct LoadBalancerArgs {
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// How fast the delay table goes: 1 is real time, 0.1 a tenth of it
    #[arg(long, value_name = "X", default_value_t = SPEED)]
    speed: f64,
    /// Seconds of idleness without any haste, as a check of the fast hour; 0 leaves that out
    #[arg(long, value_name = "SECONDS", default_value_t = WINDOW)]
    window: u64,
    /// Write the result to docs/benchmarks-loadbalancer.md
    #[arg(long, conflicts_with = "program")]
    write: bool,
    /// Measure with this program in place of a new build of it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Gcp,
    Aws,
}

/// Seconds by name, as the simulated data centre has them.
type Table = BTreeMap<String, f64>;

/// Calls that change nothing, and those that do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
struct Count {
    reads: f64,
    writes: f64,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Method {
    method: String,
    writes: bool,
    times: f64,
}

/// Calls of a cloud's API.
#[derive(Debug, Clone, Default, Deserialize)]
struct Calls {
    all: Count,
    machines: Count,
    balancer: Count,
    login: Count,
    methods: Vec<Method>,
}

/// One cluster from its ClusterBootstrap to Ready; seconds after its beginning.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bootstrap {
    seconds: f64,
    last_address: f64,
    endpoint: f64,
    complete: f64,
    calls: Calls,
}

/// A Ready cluster that was left alone for so many seconds.
#[derive(Debug, Clone, Default, Deserialize)]
struct Idle {
    factor: f64,
    seconds: f64,
    calls: Calls,
}

/// One round: each cloud's figures, in the order of [`Place::ALL`].
#[derive(Debug, Clone)]
struct Round {
    bootstrap: [Bootstrap; 2],
    idle: [Idle; 2],
}

/// All that was measured.
struct Measured {
    speed: f64,
    table: Table,
    rounds: Vec<Round>,
    /// Without haste.
    slow: Option<[Idle; 2]>,
}

// === impl Place ===

impl Place {
    const ALL: [Place; 2] = [Place::Gcp, Place::Aws];

    fn name(self) -> &'static str {
        match self {
            Place::Gcp => "gcp",
            Place::Aws => "aws",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Place::Gcp => "Google Cloud",
            Place::Aws => "AWS",
        }
    }
}

// === impl Count ===

impl Count {
    fn total(self) -> f64 {
        self.reads + self.writes
    }

    fn plus(self, other: Self) -> Self {
        Self { reads: self.reads + other.reads, writes: self.writes + other.writes }
    }

    fn times(self, factor: f64) -> Self {
        Self { reads: self.reads * factor, writes: self.writes * factor }
    }
}

// === impl Idle ===

impl Idle {
    /// How many of such windows make an hour.
    fn to_hour(&self) -> f64 {
        HOUR / (self.seconds * self.factor)
    }
}

// === the command ===

pub(super) fn run(args: &LoadBalancerArgs) -> Result<()> {
    ensure!(args.speed > 0.0 && args.speed <= 10.0, "the speed is to be above 0 and at most 10");
    let program = match &args.program {
        Some(program) => program.clone(),
        None => bootstrap::build("loadbalancer")?,
    };
    let speed = args.speed.to_string();
    let table: Table = figures(&program, &["table", &speed])?;
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let round = round(&program, &speed).with_context(|| format!("round {number}"))?;
        for (place, one) in Place::ALL.into_iter().zip(&round.bootstrap) {
            say(&format!(
                "round {number} of {}: {}, {:.1} s to the last address, {:.1} s to a complete load balancer, {:.1} s to Ready, {} calls",
                args.rounds,
                place.title(),
                one.last_address,
                one.complete,
                one.seconds,
                one.calls.all.total(),
            ));
        }
        rounds.push(round);
    }
    let slow = match args.window {
        0 => None,
        seconds => Some(idle(&program, 1.0, seconds as f64)?),
    };
    let measured = Measured { speed: args.speed, table, rounds, slow };
    let text = report::report(&machine::describe(&target_dir()?)?, &measured)?;
    super::publish(&text, args.write.then_some("benchmarks-loadbalancer.md"))
}

fn round(program: &Path, speed: &str) -> Result<Round> {
    let bootstrap = side_by_side(|place| figures(program, &["bootstrap", place.name(), speed]))?;
    Ok(Round { bootstrap, idle: idle(program, FACTOR, HOUR / FACTOR)? })
}

fn idle(program: &Path, factor: f64, seconds: f64) -> Result<[Idle; 2]> {
    let (factor, seconds) = (factor.to_string(), seconds.to_string());
    side_by_side(|place| figures(program, &["idle", place.name(), &factor, &seconds]))
}

/// Both clouds at once, each in a process of its own.
fn side_by_side<T: Send>(measure: impl Fn(Place) -> Result<T> + Sync) -> Result<[T; 2]> {
    let [first, second] = Place::ALL;
    thread::scope(|scope| {
        let other = scope.spawn(|| measure(second));
        let one = measure(first)?;
        let other = other.join().map_err(|_| anyhow!("measuring {} failed", second.title()))??;
        Ok([one, other])
    })
}

fn figures<T: DeserializeOwned>(program: &Path, words: &[&str]) -> Result<T> {
    let told = bootstrap::ask(program, words)?;
    serde_json::from_value(told).with_context(|| format!("read the figures of {}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_make_an_hour() {
        let window = |factor, seconds| Idle { factor, seconds, ..Idle::default() };
        assert_eq!(window(FACTOR, HOUR / FACTOR).to_hour(), 1.0);
        assert_eq!(window(1.0, 240.0).to_hour(), 15.0);
    }

    #[test]
    fn what_the_program_says_is_read() {
        let count = r#"{"reads": 4, "writes": 1}"#;
        let calls = format!(
            r#"{{"all": {count}, "machines": {count}, "balancer": {count}, "login": {count},
                "methods": [{{"method": "ec2:RunInstances", "writes": true, "times": 1}}]}}"#
        );
        let told = format!(
            r#"{{"seconds": 9.5, "lastAddress": 2.0, "endpoint": 3.0, "complete": 4.0, "calls": {calls}}}"#
        );
        let read: Bootstrap = serde_json::from_str(&told).unwrap();
        assert_eq!((read.last_address, read.calls.all.total()), (2.0, 5.0));
        assert!(read.calls.methods[0].writes);
    }
}
