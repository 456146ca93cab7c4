//! `cargo xtask bench talos`: the files of a highly available cluster, 3 + 3 nodes, from secrets that are given, beside the
//! generator of Talos' own machinery. Making the RSA key of new secrets takes longer than everything else together, and
//! is shown apart.
//!
//! ```text
//! whole program   start, read the secrets, make and write all files, end     talos-machinery-v… | butleradm talos gen
//! generator       the same in a program that is warm, without the disk       talos-machinery-v… | examples/pipe of butler-talos
//! RSA key         one service account key                                    the same two
//! ```

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use super::{cargo, machine, publish, say, stats::Spread, target_dir};
use crate::{
    peers::{Machinery, TalosPeers},
    talos::Pipe,
};

const ROUNDS: u64 = 15;
/// Bundles that a warm generator makes in a round; their median counts.
const BUNDLES: usize = 20;
/// Where Linux has a filesystem in memory.
const MEMORY: &str = "/dev/shm";
const ENDPOINT: &str = "https://192.168.50.10:6443";
const CONTROL_PLANES: [&str; 3] = ["192.168.50.11", "192.168.50.12", "192.168.50.13"];
const WORKERS: [&str; 3] = ["192.168.50.16", "192.168.50.17", "192.168.50.18"];

#[derive(Debug, clap::Args)]
pub(super) struct TalosArgs {
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Which minor release of Talos
    #[arg(long, value_name = "MINOR", default_value = "1.13")]
    talos: String,
    /// Write the result to docs/benchmarks-talos.md
    #[arg(long, conflicts_with = "no_build")]
    write: bool,
    /// Measure with what is built already
    #[arg(long)]
    no_build: bool,
}

/// The same figures of both sides, the machinery first. Milliseconds.
#[derive(Debug, Default, Clone, Copy)]
struct Figures {
    whole: [f64; 2],
    in_memory: [f64; 2],
    generator: [f64; 2],
    rsa: [f64; 2],
}

/// Both sides, and what they are asked for.
struct Sides {
    machinery: PathBuf,
    butleradm: PathBuf,
    /// Warm programs, in the order of the figures.
    pipes: [Pipe; 2],
    request: Value,
    version: &'static str,
    folder: tempfile::TempDir,
    /// On a filesystem in memory, where a sync costs nothing.
    memory: tempfile::TempDir,
}

pub(super) async fn run(args: &TalosArgs) -> Result<()> {
    let target_dir = target_dir()?;
    if !args.no_build {
        cargo(&["--package", "butler-cli"])?;
        cargo(&["--package", "butler-talos", "--example", "pipe"])?;
    }
    let machineries = TalosPeers::machineries().context("get Talos' own machinery")?;
    let machinery = machineries
        .iter()
        .find(|machinery| machinery.minor == args.talos)
        .with_context(|| format!("there is no machinery of Talos {}", args.talos))?;
    let mut sides = Sides::start(machinery, &target_dir).await?;
    let mut rounds = Vec::new();
    for number in 0..args.rounds {
        rounds.push(sides.round(number % 2 == 1).await.with_context(|| format!("round {}", number + 1))?);
        say(&format!("round {} of {}", number + 1, args.rounds));
    }
    let text = report(machinery.version, &machine::describe(&target_dir)?, &rounds);
    publish(&text, args.write.then_some("benchmarks-talos.md"))
}

// === impl Sides ===

impl Sides {
    async fn start(machinery: &Machinery, target_dir: &Path) -> Result<Self> {
        let release = target_dir.join("release");
        let (butleradm, pipe) = (release.join("butleradm"), release.join("examples/pipe"));
        for program in [&butleradm, &pipe] {
            ensure!(program.is_file(), "{} is missing; run without --no-build", program.display());
        }
        let folder = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(target_dir)
            .with_context(|| format!("make a folder in {}", target_dir.display()))?;
        let memory = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(MEMORY)
            .context("make a folder in memory")?;
        let mut pipes = [Pipe::open(machinery).await?, Pipe::start(&pipe)?];
        let mut request = json!({
            "name": "bench", "endpoint": ENDPOINT, "kubernetes": "1.33.0", "contract": machinery.version,
            "installDisk": "/dev/sda", "endpoints": CONTROL_PLANES, "controlPlanes": CONTROL_PLANES, "workers": WORKERS,
        });
        let made = pipes[0].ask(&with(&request, json!({"op": "generate"}))).await?;
        let secrets = made.secrets.clone();
        ensure!(made.problems().is_empty(), "the machinery makes no secrets");
        fs::write(folder.path().join("secrets.yaml"), &secrets).context("write the secrets")?;
        request["secrets"] = secrets.into();
        let (machinery, version) = (machinery.path.clone(), machinery.version);
        Ok(Self { machinery, butleradm, pipes, request, version, folder, memory })
    }

    /// Each figure of both sides in turn; which of them leads alternates.
    async fn round(&mut self, ours_first: bool) -> Result<Figures> {
        let mut figures = Figures::default();
        let order = if ours_first { [1, 0] } else { [0, 1] };
        for side in order {
            figures.whole[side] = self.whole(side, self.folder.path()).await?;
        }
        for side in order {
            figures.in_memory[side] = self.whole(side, self.memory.path()).await?;
        }
        for side in order {
            figures.generator[side] = self.warm(side, "bundle", BUNDLES).await?;
        }
        for side in order {
            figures.rsa[side] = self.warm(side, "rsa", 1).await?;
        }
        Ok(figures)
    }

    async fn warm(&mut self, side: usize, operation: &str, rounds: usize) -> Result<f64> {
        let request = with(&self.request, json!({"op": operation, "rounds": rounds}));
        let answer = self.pipes[side].ask(&request).await?;
        let times = answer.nanoseconds.clone();
        let problems = answer.problems();
        ensure!(problems.is_empty(), "{operation}: {}", problems.join("; "));
        let spread = Spread::of(times.iter().map(|nanoseconds| *nanoseconds as f64 / 1e6));
        Ok(spread.context("no time was taken")?.median)
    }

    /// From the start of a program to its end, all files written.
    async fn whole(&self, side: usize, folder: &Path) -> Result<f64> {
        let out = folder.join("out");
        if out.exists() {
            fs::remove_dir_all(&out).context("remove the files of the last run")?;
        }
        let started =
            if side == 0 { self.machinery_writes(&out).await? } else { self.ours_writes(&out).await? };
        let took = started.elapsed().as_secs_f64() * 1e3;
        let files = fs::read_dir(&out).context("look at the files")?.count();
        let least = CONTROL_PLANES.len() + WORKERS.len() + 1;
        ensure!(files >= least, "side {side} wrote {files} files in place of {least}");
        Ok(took)
    }

    async fn machinery_writes(&self, out: &Path) -> Result<Instant> {
        fs::create_dir(out).context("make a folder for the files")?;
        let request = with(&self.request, json!({"op": "bundle", "out": out.to_string_lossy()}));
        let started = Instant::now();
        let mut process = Command::new(&self.machinery)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start the machinery")?;
        let mut stdin = process.stdin.take().context("write to the machinery")?;
        stdin.write_all(format!("{request}\n").as_bytes()).await.context("write to the machinery")?;
        drop(stdin);
        let status = process.wait().await.context("wait for the machinery")?;
        ensure!(status.success(), "the machinery: {status}");
        Ok(started)
    }

    async fn ours_writes(&self, out: &Path) -> Result<Instant> {
        let mut command = Command::new(&self.butleradm);
        command.args(["talos", "gen", "bench", ENDPOINT, "--talos-version", self.version]);
        for address in CONTROL_PLANES {
            command.args(["--control-plane", address]);
        }
        for address in WORKERS {
            command.args(["--worker", address]);
        }
        command
            .args(["--kubernetes-version", "1.33.0", "--with-secrets"])
            .arg(self.folder.path().join("secrets.yaml"));
        command.arg("--out").arg(out).stdout(Stdio::null()).kill_on_drop(true);
        let started = Instant::now();
        let status = command.status().await.context("start butleradm")?;
        ensure!(status.success(), "butleradm talos gen: {status}");
        Ok(started)
    }
}

/// `base` with the fields of `more`.
fn with(base: &Value, more: Value) -> Value {
    let mut all = base.clone();
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

// === the report ===

fn report(version: &str, machine: &str, rounds: &[Figures]) -> String {
    let mut text = format!(
        "# Benchmarks: Talos configuration\n\n\
         Written by `cargo xtask bench talos --write`; not to be edited by hand.\n\n\
         - Date: {}\n\
         - Machine: {machine}\n\
         - Reference: Talos' own machinery {version}, built from its Go module\n\
         - Rounds: {}, both sides in each, taking turns\n\n\
         All files of a cluster with 3 + 3 nodes, from given secrets: six machine configurations and the client configuration.\n\
         Median [least..most] over the rounds; the factor is taken within each round.\n\n\
         | milliseconds | machinery | ours | better by |\n|---|---|---|---|\n",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        rounds.len()
    );
    let column = |pick: fn(&Figures) -> [f64; 2]| rounds.iter().map(pick).collect::<Vec<_>>();
    let rows = [
        ("whole program, files on disk", column(|figures| figures.whole)),
        ("whole program, files in memory", column(|figures| figures.in_memory)),
        ("generator alone, warm, no disk", column(|figures| figures.generator)),
        ("RSA-4096 key of new secrets, apart", column(|figures| figures.rsa)),
    ];
    for (label, all) in rows {
        let show =
            |values: &mut dyn Iterator<Item = f64>| Spread::of(values).map_or_else(String::new, |s| s.show());
        let (theirs, ours) = (show(&mut all.iter().map(|r| r[0])), show(&mut all.iter().map(|r| r[1])));
        let factor = show(&mut all.iter().map(|r| r[0] / r[1]));
        let _ = writeln!(text, "| {label} | {theirs} | {ours} | {factor}× |");
    }
    text.push_str(
        "\nOurs does more: it names each node and covers every control plane in both lists of names, where the machinery's\n\
         configurations of one role are all the same. The whole program also checks them as Talos would and beyond, and makes\n\
         the administrator's kubeconfig. On disk, ours is durable: every file and both folders are synced, and all appear by one\n\
         rename; the machinery syncs nothing. The time of an RSA key is luck: its spread says more than its median.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_taken_within_each_round() {
        let round = |theirs, ours| Figures {
            whole: [theirs, ours],
            in_memory: [8.0, 2.0],
            generator: [4.0, 1.0],
            rsa: [600.0, 300.0],
        };
        let text = report("v1.13.9", "a machine", &[round(10.0, 5.0), round(30.0, 5.0), round(20.0, 20.0)]);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert_eq!(
            line("| whole program, files on disk"),
            "| whole program, files on disk | 20.0 [10.0..30.0] | 5.00 [5.00..20.0] | 2.00 [1.00..6.00]× |"
        );
        assert!(line("| generator alone").ends_with("| 4.00 | 1.00 | 4.00× |"), "{text}");
        assert!(line("| RSA-4096").ends_with("| 600 | 300 | 2.00× |"), "{text}");
    }

    #[test]
    fn fields_are_added_to_a_request() {
        assert_eq!(with(&json!({"a": 1, "b": 2}), json!({"b": 3, "c": 4})), json!({"a": 1, "b": 3, "c": 4}));
    }
}
