//! `cargo xtask bench api`: our embedded server beside the real kube-apiserver with etcd, in one run. Absolute rates of a
//! shared machine mean little, so the sides take turns, each round with fresh servers, and the comparison is made within
//! each round.
//!
//! ```text
//! mod     arguments, rounds, what is started in which order
//! round   one side, once: start, write, list, watch, restart
//!   subject       starts and ends the servers      objects  what is written
//!   http, stream  the load's own client            writes, reads
//!   usage         memory and CPU from /proc        syncs    fsync counts by perf or strace
//! report  the table and the goals                  stats, machine
//! talos, bootstrap, loadbalancer, lb, vip   `cargo xtask bench talos` and so on, apart from all of this
//! ```

mod bootstrap;
mod http;
mod lb;
mod loadbalancer;
mod machine;
mod objects;
mod reads;
mod report;
mod round;
mod stats;
mod stream;
mod subject;
mod syncs;
mod talos;
mod usage;
mod vip;
mod writes;

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    report::{Round, Setting},
    subject::Recipe,
    syncs::Tool,
    writes::Write,
};
use crate::{cluster, peers::Peers};

/// So many objects are listed and held in memory in a real run.
const OBJECTS: usize = 10_000;
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The embedded Kubernetes API beside the real kube-apiserver with etcd
    Api(ApiArgs),
    /// The files of a Talos cluster beside the generator of Talos' own machinery
    Talos(talos::TalosArgs),
    /// Whole bootstraps in the simulated data centre beside what they have to take at least
    Bootstrap(bootstrap::BootstrapArgs),
    /// Load balancers of simulated clouds: time over what it has to take at least, and how often the cloud is asked
    #[command(name = "loadbalancer")]
    LoadBalancer(loadbalancer::LoadBalancerArgs),
    /// The load balancer beside HAProxy and nginx
    Lb(lb::LbArgs),
    /// Outages of a virtual address beside Keepalived
    Vip(vip::VipArgs),
    /// Answers for a host of `bench vip`
    #[command(hide = true)]
    VipAnswer,
}

#[derive(Debug, clap::Args)]
struct ApiArgs {
    /// One short round, for a first look: about a minute
    #[arg(long)]
    quick: bool,
    /// How many rounds (5, or 1 with --quick)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// Write the result to docs/benchmarks.md
    #[arg(long, conflicts_with_all = ["quick", "self_check", "objects", "no_build"])]
    write: bool,
    /// How many objects, for trying the bench itself out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000))]
    objects: Option<u64>,
    /// The real server on both sides: the factors should come out around 1
    #[arg(long)]
    self_check: bool,
    /// Measure with what is built already, even with a load that was built without optimisation
    #[arg(long)]
    no_build: bool,
}

/// How much of everything a round does.
#[derive(Debug, Clone, Copy)]
struct Plan {
    objects: usize,
    /// Halves the updates and applies.
    quick: bool,
    lists: usize,
    /// Objects created while watchers look on.
    watched: usize,
}

// === impl Plan ===

impl Plan {
    fn new(objects: usize, quick: bool) -> Self {
        let watched = (objects / 50).clamp(10, if quick { 100 } else { 200 });
        Self { objects, quick, lists: 10, watched }
    }

    /// Creates before anything is counted.
    fn warm_up(&self) -> usize {
        self.objects / 50
    }

    /// Writes of one stretch. All creates together make `objects`; the shares give the reference about two seconds with
    /// one client and four with 32.
    fn writes(&self, write: Write, clients: usize) -> usize {
        let hundredth = self.objects / 100;
        let half = if self.quick { 2 } else { 1 };
        match (write, clients) {
            (Write::Create, 1) => 10 * hundredth,
            (Write::Create, _) => self.objects - self.warm_up() - 10 * hundredth,
            (Write::Update, 1) => 10 * hundredth / half,
            (Write::Update, _) => 40 * hundredth / half,
            (Write::Apply, 1) => 8 * hundredth / half,
            (Write::Apply, _) => 25 * hundredth / half,
        }
    }

    /// Creates whose disk syncs are counted.
    fn syncs(&self, clients: usize) -> usize {
        let hundredth = self.objects / 100;
        if clients == 1 { 5 * hundredth } else { 16 * hundredth }
    }
}

// === the command ===

pub(crate) async fn run_command(args: BenchArgs) -> Result<()> {
    let args = match args.what {
        What::Api(args) => args,
        What::Talos(args) => return talos::run(&args).await,
        What::Bootstrap(args) => return bootstrap::run(&args),
        What::LoadBalancer(args) => return loadbalancer::run(&args),
        What::Lb(args) => return lb::run(args).await,
        What::Vip(args) => return vip::run(&args),
        What::VipAnswer => return vip::answer(),
    };
    let target_dir = target_dir()?;
    if !args.no_build {
        build(&args, &target_dir)?;
    } else if cfg!(debug_assertions) {
        say("the load was built without optimisation: its own CPU distorts every figure");
    }
    // Dropping the work ends every server that it has started.
    tokio::select! {
        result = bench(&args, &target_dir) => result,
        end = cluster::wait_for_end() => end.and_then(|()| bail!("interrupted")),
    }
}

async fn bench(args: &ApiArgs, target_dir: &Path) -> Result<()> {
    let peers = Peers::ensure()?;
    let ours = target_dir.join("release/butleradm");
    let theirs = format!(
        "kube-apiserver {} with etcd {}",
        machine::version(&peers.kube_apiserver)?,
        machine::version(&peers.etcd)?
    );
    let (recipe, version) = if args.self_check {
        (Recipe::Real(peers.clone()), theirs.clone())
    } else {
        ensure!(ours.is_file(), "{} is missing; run without --no-build", ours.display());
        (Recipe::Ours(ours.clone()), format!("butleradm {}", machine::version(&ours)?))
    };
    let recipes = [Recipe::Real(peers), recipe];
    let folder = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(target_dir)
        .with_context(|| format!("make a folder for the servers in {}", target_dir.display()))?;
    let tool = Tool::find().await;
    let objects = args.objects.map_or(Ok(OBJECTS), usize::try_from).context("count the objects")?;
    let setting = Setting {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        machine: machine::describe(folder.path())?,
        sides: [theirs, version],
        objects,
        sync_tool: tool.map(Tool::name),
    };
    let rounds = args.rounds.map(usize::try_from).transpose().context("count the rounds")?;
    let rounds = rounds.unwrap_or(if args.quick { QUICK_ROUNDS } else { ROUNDS });
    let results = run_rounds(&recipes, folder.path(), &Plan::new(objects, args.quick), tool, rounds).await?;
    publish(&report::write(&setting, &results), args.write.then_some("benchmarks.md"))
}

/// Each side leads every other round, so that neither always meets the machine as the other left it.
async fn run_rounds(
    recipes: &[Recipe; 2],
    folder: &Path,
    plan: &Plan,
    tool: Option<Tool>,
    rounds: usize,
) -> Result<Vec<Round>> {
    let mut results = Vec::with_capacity(rounds);
    for number in 0..rounds {
        let mut figures = Round::default();
        for turn in 0..2 {
            let side = (number + turn) % 2;
            let name = ["kube-apiserver + etcd", "ours"][side];
            let started = Instant::now();
            figures[side] = round::run(&recipes[side], folder, plan, tool)
                .await
                .with_context(|| format!("round {} of {name}", number + 1))?;
            let took = started.elapsed().as_secs();
            say(&format!("round {} of {rounds}: {name}, {took} s", number + 1));
        }
        results.push(figures);
    }
    Ok(results)
}

/// Prints the result, and writes it to a file of the documentation.
fn publish(text: &str, file: Option<&str>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("print the result")?;
    if let Some(file) = file {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

// === building ===

/// Builds the released server, as it is shipped and alone (together with other packages it would get their features), and
/// goes on as an optimised build of this program if this is not one.
fn build(args: &ApiArgs, target_dir: &Path) -> Result<()> {
    if !args.self_check {
        cargo(&["--package", "butler-cli"])?;
    }
    build_and_go_on(target_dir)
}

/// Goes on as an optimised build of this program if this is not one.
fn build_and_go_on(target_dir: &Path) -> Result<()> {
    if cfg!(debug_assertions) {
        cargo(&["--package", "xtask"])?;
        let program = target_dir.join("release/xtask");
        let error = Command::new(&program).args(env::args_os().skip(1)).exec();
        return Err(error).with_context(|| format!("go on as {}", program.display()));
    }
    Ok(())
}

fn cargo(package: &[&str]) -> Result<()> {
    build_as(&["--release"], package)
}

/// Without optimisation, for a first look.
fn cargo_debug(package: &[&str]) -> Result<()> {
    build_as(&[], package)
}

fn build_as(profile: &[&str], package: &[&str]) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let status = Command::new(cargo)
        .args(["build", "--locked"])
        .args(profile)
        .args(package)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status()
        .context("start cargo")?;
    ensure!(status.success(), "cargo build {} {}: {status}", profile.join(" "), package.join(" "));
    Ok(())
}

/// Where cargo puts what it builds: this program is in a folder of it.
fn target_dir() -> Result<PathBuf> {
    let program = env::current_exe().context("find this program")?;
    let folder = program.ancestors().nth(2).context("find cargo's target folder")?;
    Ok(folder.to_owned())
}

/// Progress goes to stderr, so that stdout holds only the result. A closed terminal is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "bench: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_creates_together_make_the_wanted_number() {
        for objects in [100, 250, 10_000] {
            for quick in [false, true] {
                let plan = Plan::new(objects, quick);
                let creates = plan.warm_up() + plan.writes(Write::Create, 1) + plan.writes(Write::Create, 32);
                assert_eq!(creates, objects);
                let most = plan.writes(Write::Update, 32).max(plan.writes(Write::Apply, 32));
                assert!(most <= objects, "{most} updates of {objects} objects");
            }
        }
    }
}
