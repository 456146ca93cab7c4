//! `cargo xtask bench bootstrap`: whole bootstraps in the simulated data centre, beside what they have to take at least.
//!
//! ```text
//! zero     3 + 3 nodes to Ready when nothing outside takes time       goal: under 2 s
//! delays   the same on the committed delay table                      goal: at most 3 % over its critical path
//! many     10 and 100 clusters at once in one process                 goal: time and memory per cluster stay flat
//! ```
//!
//! Each measurement is a process of its own (`benches/bootstrap` of butler-controllers), so that none meets what another one
//! left behind.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{machine, say, stats::Spread, target_dir};

const ROUNDS: u64 = 5;
/// Real time would be two and a half minutes a round.
const SPEED: f64 = 0.2;
const FEW: u64 = 10;
const MANY: u64 = 100;

#[derive(Debug, clap::Args)]
pub(super) struct BootstrapArgs {
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// How fast the delay table goes: 1 is real time, 0.1 a tenth of it
    #[arg(long, value_name = "X", default_value_t = SPEED)]
    speed: f64,
    /// How many clusters at once; 0 leaves that out
    #[arg(long, value_name = "N", default_value_t = MANY)]
    clusters: u64,
    /// Write the result to docs/benchmarks-bootstrap.md
    #[arg(long, conflicts_with = "program")]
    write: bool,
    /// Measure with this program in place of a new build of it
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// One round.
#[derive(Debug, Default, Clone, Copy)]
struct Round {
    zero: f64,
    delays: f64,
    few: Crowd,
    many: Crowd,
}

/// Clusters at once.
#[derive(Debug, Default, Clone, Copy)]
struct Crowd {
    clusters: f64,
    seconds: f64,
    /// MiB of this process: before the first cluster, with all of them Ready, and at most.
    before: f64,
    after: f64,
    peak: f64,
}

/// What the figures are to be compared with, at the speed that was measured.
struct Shapes {
    speed: f64,
    critical: Vec<(String, f64)>,
    upstream: Vec<(String, f64)>,
}

pub(super) fn run(args: &BootstrapArgs) -> Result<()> {
    ensure!(args.speed > 0.0 && args.speed <= 10.0, "the speed is to be above 0 and at most 10");
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build("bootstrap")?,
    };
    let shapes = Shapes::ask(&program, args.speed)?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        let round = round(&program, args).with_context(|| format!("round {}", number + 1))?;
        say(&format!(
            "round {} of {}: {:.2} s without delays, {:.2} s with",
            number + 1,
            args.rounds,
            round.zero,
            round.delays
        ));
        rounds.push(round);
    }
    let text = report(&machine::describe(&target_dir()?)?, &shapes, &rounds);
    super::publish(&text, args.write.then_some("benchmarks-bootstrap.md"))
}

/// Builds a program of that name, and says where it is.
pub(super) fn build(name: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .arg("build")
        .args(crate::dist::as_released())
        .args(["--package", "butler-controllers", "--bench", name])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    ensure!(built.status.success(), "cargo build --release --bench {name}: {}", built.status);
    let messages = String::from_utf8_lossy(&built.stdout);
    let program =
        messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|told| {
            let ours = told["target"]["name"] == name && told["target"]["kind"][0] == "bench";
            ours.then(|| told["executable"].as_str().map(PathBuf::from)).flatten()
        });
    program.context("cargo does not say where the program is")
}

pub(super) fn ask(program: &Path, words: &[&str]) -> Result<Value> {
    let output = Command::new(program)
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(output.status.success(), "{}: {}", words.join(" "), output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("read the figures of {}", words.join(" ")))
}

fn number(figures: &Value, name: &str) -> Result<f64> {
    figures[name].as_f64().with_context(|| format!("there is no {name} in {figures}"))
}

fn round(program: &Path, args: &BootstrapArgs) -> Result<Round> {
    let mut round = Round {
        zero: number(&ask(program, &["zero"])?, "seconds")?,
        delays: number(&ask(program, &["delays", &args.speed.to_string()])?, "seconds")?,
        ..Round::default()
    };
    if args.clusters > 0 {
        round.few = crowd(program, FEW.min(args.clusters))?;
        round.many = crowd(program, args.clusters)?;
    }
    Ok(round)
}

fn crowd(program: &Path, clusters: u64) -> Result<Crowd> {
    let figures = ask(program, &["many", &clusters.to_string()])?;
    let get = |name| number(&figures, name);
    Ok(Crowd {
        clusters: get("clusters")?,
        seconds: get("seconds")?,
        before: get("before")?,
        after: get("after")?,
        peak: get("peak")?,
    })
}

impl Shapes {
    fn ask(program: &Path, speed: f64) -> Result<Self> {
        let told = ask(program, &["shapes", &speed.to_string()])?;
        let rows = |name: &str| -> Result<Vec<(String, f64)>> {
            serde_json::from_value(told[name].clone()).with_context(|| format!("read {name}"))
        };
        Ok(Self { speed, critical: rows("rows")?, upstream: rows("upstreamRows")? })
    }

    fn critical(&self) -> f64 {
        total(&self.critical)
    }
}

fn total(rows: &[(String, f64)]) -> f64 {
    rows.iter().map(|(_, seconds)| seconds).sum()
}

// === the report ===

fn report(machine: &str, shapes: &Shapes, rounds: &[Round]) -> String {
    let mut text = format!(
        "# Benchmarks: bootstrap\n\n\
         Written by `cargo xtask bench bootstrap --write`; not to be edited by hand.\n\n\
         - Date: {}\n\
         - Machine: {machine}\n\
         - Rounds: {}; median [least..most]\n\
         - What runs: embedded API, controllers, Proxmox driver, and the whole simulated data centre (Proxmox, Talos,\n  \
         Kubernetes), in one process; the stand-ins of the addons; secrets are given\n\n",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        rounds.len()
    );
    one_cluster(&mut text, shapes, rounds);
    crowds(&mut text, rounds);
    path(&mut text, shapes);
    text
}

fn show(values: impl Iterator<Item = f64>) -> String {
    Spread::of(values).map_or_else(String::new, |spread| spread.show())
}

fn one_cluster(text: &mut String, shapes: &Shapes, rounds: &[Round]) {
    let critical = shapes.critical();
    let over = rounds.iter().map(|round| (round.delays / critical - 1.0) * 100.0);
    let _ = write!(
        text,
        "## One cluster, 3 + 3 nodes, to Ready\n\n\
         | | seconds | goal |\n|---|---|---|\n\
         | nothing outside takes time | {} | under 2 |\n\
         | delay table at speed {} | {} | |\n\
         | its critical path | {critical:.2} | |\n\
         | over the critical path, % | {} | at most 3 |\n",
        show(rounds.iter().map(|round| round.zero)),
        shapes.speed,
        show(rounds.iter().map(|round| round.delays)),
        show(over),
    );
    let _ = write!(
        text,
        "| the first Butler's fixed waits on the same table: **modelled**, not run | {:.2} | |\n\n\
         Our own work costs the same at any speed, so that it weighs the more the faster the table goes: at speed 1 the\n\
         share is smaller. The fixed waits do not scale either.\n\n",
        total(&shapes.upstream)
    );
}

fn crowds(text: &mut String, rounds: &[Round]) {
    let crowds = [rounds.iter().map(|r| r.few).collect::<Vec<_>>(), rounds.iter().map(|r| r.many).collect()];
    if crowds[1].iter().any(|crowd| crowd.clusters == 0.0) {
        return;
    }
    text.push_str(
        "## Many clusters at once, in one process\n\n\
         | clusters | seconds | seconds per cluster | MiB per cluster | MiB in all, at most |\n|---|---|---|---|---|\n",
    );
    for crowd in crowds {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            crowd[0].clusters,
            show(crowd.iter().map(|c| c.seconds)),
            show(crowd.iter().map(|c| c.seconds / c.clusters)),
            show(crowd.iter().map(|c| (c.after - c.before) / c.clusters)),
            show(crowd.iter().map(|c| c.peak)),
        );
    }
    text.push_str(
        "\nWithout delays, so that all of it is work for the CPU; memory is the process' resident set, and holds the simulated\n\
         machines and Kubernetes clusters beside our own part.\n\n",
    );
}

fn path(text: &mut String, shapes: &Shapes) {
    for (title, rows) in
        [("The critical path", &shapes.critical), ("The modelled fixed waits", &shapes.upstream)]
    {
        let _ = write!(text, "## {title}, at speed {}\n\n| | seconds |\n|---|---|\n", shapes.speed);
        for (name, seconds) in rows {
            let _ = writeln!(text, "| {name} | {seconds:.2} |");
        }
        let _ = writeln!(text, "| together | {:.2} |\n", total(rows));
    }
    // One newline ends the file.
    text.truncate(text.trim_end().len());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_over_the_path_and_the_cost_of_a_cluster_are_told() {
        let crowd = |clusters, seconds| Crowd { clusters, seconds, before: 20.0, after: 120.0, peak: 130.0 };
        let round = Round { zero: 1.5, delays: 10.2, few: crowd(10.0, 5.0), many: crowd(100.0, 50.0) };
        let rows = vec![("a".to_owned(), 4.0), ("b".to_owned(), 6.0)];
        let shapes = Shapes { speed: 0.1, critical: rows, upstream: vec![("wait".to_owned(), 25.0)] };
        let text = report("a machine", &shapes, &[round]);
        for line in [
            "| nothing outside takes time | 1.50 | under 2 |",
            "| over the critical path, % | 2.00 | at most 3 |",
            "| 10 | 5.00 | 0.500 | 10.0 | 130 |",
            "| 100 | 50.0 | 0.500 | 1.00 | 130 |",
            "| together | 10.00 |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let alone = report("a machine", &shapes, &[Round { many: Crowd::default(), ..round }]);
        assert!(!alone.contains("Many clusters"));
    }
}
