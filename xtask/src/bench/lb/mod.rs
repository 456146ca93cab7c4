//! `cargo xtask bench lb`: our load balancer beside HAProxy (with splice, without, with one thread) and nginx, on the same
//! cores, with one load generator and the same backends. The sides take turns in every round, each with a fresh process, and
//! are compared within each round.
//!
//! ```text
//! mod      arguments, rounds        sides    processes and their configurations
//! load     clients                  backend  servers
//! report   the tables and the goals  reloads  connections while it is reloaded
//! ```

mod backend;
mod load;
mod reloads;
mod report;
mod sides;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use self::{
    backend::Backends,
    load::{Casualties, Kind, Shown},
    sides::Side,
};
use super::{
    build_and_go_on, cargo, machine, publish, say,
    stats::{milliseconds, quantile},
    target_dir,
    usage::{Meter, Usage, memory},
};

const ROUNDS: u64 = 5;
/// Connections that ask at the same time.
const CLIENTS: usize = 32;
/// Connections that are quiet while memory is measured.
const QUIET: usize = 1000;
/// How often a backend is killed under each side, and how long new connections are made around it.
const KILLS: usize = 5;
const KILL_STRETCH: Duration = Duration::from_secs(3);
/// New connections while ours is reloaded, when the result is written down; a fiftieth otherwise.
const RELOADED: u64 = 1_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct LbArgs {
    /// One short round, for a first look
    #[arg(long)]
    quick: bool,
    /// How many rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// How long a stretch takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(300..=60_000))]
    stretch: u64,
    /// Only these sides, and only how fast they are: 0 direct, 1 HAProxy, 2 with splice, 3 with one thread, 4 nginx, 5 ours
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(0..=5))]
    sides: Vec<u64>,
    /// Write the result to docs/benchmarks-lb.md
    #[arg(long, conflicts_with_all = ["quick", "sides", "program"])]
    write: bool,
    /// Instead of measuring: so many new connections while the configuration is reloaded all the time
    #[arg(long, value_name = "N", conflicts_with_all = ["quick", "sides", "write", "rounds"])]
    reloads: Option<u64>,
    /// Another butler-lb than the one that is built
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// A figure of one side in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Requests,
    RequestP50,
    RequestP99,
    RequestCpu,
    Connections,
    ConnectionP50,
    ConnectionP99,
    ConnectionCpu,
    BulkOne,
    BulkFour,
    BulkCpu,
    Resident,
    PerConnection,
    Others,
}

/// What fails when something changes.
#[derive(Debug, Default)]
struct Changes {
    killed: BTreeMap<Side, Vec<Casualties>>,
    reloads: Option<String>,
}

type Figures = BTreeMap<Row, f64>;
type Round = BTreeMap<Side, Figures>;

pub(crate) async fn run(args: LbArgs) -> Result<()> {
    let target_dir = target_dir()?;
    if args.program.is_none() {
        cargo(&["--package", "butler-lb"])?;
    }
    build_and_go_on(&target_dir)?;
    // The load blocks; nothing else runs in this program meanwhile.
    tokio::task::spawn_blocking(move || bench(&args, &target_dir)).await.context("run the bench")?
}

fn bench(args: &LbArgs, target_dir: &Path) -> Result<()> {
    if args.reloads.is_none() {
        sides::install_peers()?;
    }
    let ours = args.program.clone().unwrap_or_else(|| target_dir.join("release/butler-lb"));
    ensure!(ours.is_file(), "{} is missing", ours.display());
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(target_dir).context("make a folder")?;
    if let Some(count) = args.reloads {
        say(&reloads::prove(&ours, folder.path(), count)?);
        return Ok(());
    }
    let stretch = Duration::from_millis(if args.quick { 700 } else { args.stretch });
    let count = args.rounds.unwrap_or(if args.quick { 1 } else { ROUNDS });
    let chosen: Vec<Side> = (0..)
        .zip(sides::ALL)
        .filter(|(number, _)| args.sides.is_empty() || args.sides.contains(number))
        .map(|(_, side)| side)
        .collect();
    let mut rounds: Vec<Round> = Vec::new();
    for number in 0..count as usize {
        let mut round = Round::new();
        for turn in 0..chosen.len() {
            // Everybody goes first once.
            let side = chosen[(number + turn) % chosen.len()];
            let figures = measure(side, &ours, folder.path(), stretch)
                .with_context(|| format!("measure {}", side.name()))?;
            say(&format!("round {} of {count}: {}", number + 1, side.name()));
            round.insert(side, figures);
        }
        rounds.push(round);
    }
    let changes = if args.sides.is_empty() {
        changes(&chosen, &ours, folder.path(), if args.write { RELOADED } else { RELOADED / 50 })?
    } else {
        Changes::default()
    };
    let machine = machine::describe(folder.path())?;
    let text = report::write(&machine, &sides::versions()?, stretch, &rounds, &changes);
    publish(&text, args.write.then_some("benchmarks-lb.md"))
}

/// A backend dies under each of the sides, and ours is reloaded.
fn changes(chosen: &[Side], ours: &Path, folder: &Path, reloaded: u64) -> Result<Changes> {
    let mut changes = Changes::default();
    for side in chosen.iter().copied().filter(|side| *side != Side::Direct) {
        let mut killed = Vec::new();
        for _ in 0..KILLS {
            let backends = Backends::start()?;
            let proxy = side.start(ours, folder, &backends.addresses)?;
            let casualties = load::change(proxy.address, CLIENTS, KILL_STRETCH, || backends.kill_one());
            killed.push(casualties.with_context(|| format!("kill a backend under {}", side.name()))?);
        }
        say(&format!("killed a backend under {}", side.name()));
        changes.killed.insert(side, killed);
    }
    if chosen.contains(&Side::Ours) {
        let seen = reloads::prove(ours, folder, reloaded).context("reload it under load")?;
        say(&seen);
        changes.reloads = Some(seen);
    }
    Ok(changes)
}

/// One side, once, with a fresh process.
fn measure(side: Side, ours: &Path, folder: &Path, stretch: Duration) -> Result<Figures> {
    let backends = Backends::start()?;
    let proxy = side.start(ours, folder, &backends.addresses)?;
    let pids = proxy.pids();
    let mut figures = Figures::new();
    let mut busiest = 0_f64;
    let mut stretch_of = |kind, clients| -> Result<(Shown, Usage)> {
        let (shown, meter) = load::run(kind, proxy.address, clients, stretch, || Meter::start(&pids))?;
        let usage = meter.stop()?;
        busiest = busiest.max(usage.others);
        Ok((shown, usage))
    };
    if !pids.is_empty() {
        let before = memory(&pids)?;
        let quiet = load::idle(proxy.address, QUIET)?;
        let after = memory(&pids)?;
        drop(quiet);
        figures.insert(Row::Resident, after.resident);
        figures
            .insert(Row::PerConnection, (after.proportional - before.proportional) * 1024.0 / QUIET as f64);
    }
    let (shown, usage) = stretch_of(Kind::Questions, CLIENTS)?;
    let proxied = !pids.is_empty();
    rate(&mut figures, &shown, [Row::Requests, Row::RequestP50, Row::RequestP99]);
    if proxied {
        figures.insert(Row::RequestCpu, cpu(&usage) * 1e6 / shown.count as f64);
    }
    let (shown, usage) = stretch_of(Kind::Connections, CLIENTS)?;
    rate(&mut figures, &shown, [Row::Connections, Row::ConnectionP50, Row::ConnectionP99]);
    if proxied {
        figures.insert(Row::ConnectionCpu, cpu(&usage) * 1e6 / shown.count as f64);
    }
    let (shown, _) = stretch_of(Kind::Bulk, 1)?;
    figures.insert(Row::BulkOne, gigabits(&shown));
    let (shown, usage) = stretch_of(Kind::Bulk, 4)?;
    figures.insert(Row::BulkFour, gigabits(&shown));
    if proxied {
        figures.insert(Row::BulkCpu, cpu(&usage) * 1e9 / shown.count as f64);
    }
    figures.insert(Row::Others, busiest);
    Ok(figures)
}

/// What a proxy took, in seconds. What the kernel put off is counted as its own: without it there would be less.
fn cpu(usage: &Usage) -> f64 {
    (usage.server + usage.network).as_secs_f64()
}

fn rate(figures: &mut Figures, shown: &Shown, rows: [Row; 3]) {
    figures.insert(rows[0], shown.count as f64 / shown.elapsed.as_secs_f64() / 1e3);
    figures.insert(rows[1], milliseconds(quantile(&shown.latencies, 0.5)));
    figures.insert(rows[2], milliseconds(quantile(&shown.latencies, 0.99)));
}

fn gigabits(shown: &Shown) -> f64 {
    shown.count as f64 * 8.0 / 1e9 / shown.elapsed.as_secs_f64()
}
