//! `cargo xtask bench vip`: how long an address is gone when its holder dies, is cut off or stops, beside Keepalived, at the
//! same advert intervals and in the same namespaces. The two take turns.
//!
//! ```text
//!   a (150) --+           every run starts both programs anew, waits until `a` holds the address and answers,
//!   b (100) --+-- switch  then does one thing to `a` and measures until `b` answers
//!   client  --+
//! ```

mod lab;
mod probe;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use self::lab::{Lab, Process};
use super::{cargo, machine, publish, say, stats::Spread, target_dir};
use crate::peers::{KEEPALIVED, ensure_packages};

/// Set where real-time priority has been taken.
const HURRIED: &str = "BUTLER_BENCH_HURRIED";
const ADDRESS: [u8; 4] = [10, 77, 0, 100];
const RUNS: u64 = 5;
const QUICK_RUNS: u64 = 2;
/// How long the election at the start may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(super) struct VipArgs {
    /// How many runs of each kind (5, or 2 with --quick)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: Option<u64>,
    /// Only these advert intervals, in milliseconds
    #[arg(long, value_name = "MS", conflicts_with = "write")]
    interval: Vec<u32>,
    /// A first look, with the debug build
    #[arg(long, conflicts_with = "write")]
    quick: bool,
    /// Write the result to docs/benchmarks-vip.md
    #[arg(long)]
    write: bool,
}

/// Who holds the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Keepalived,
    Ours,
    /// Ours with BFD between the peers.
    OursWithBfd,
}

/// What happens to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// Shows what the measurement itself can tell apart on this machine.
    Nothing,
    Kill,
    Cut,
    Stop,
}

const EVENTS: [Event; 4] = [Event::Nothing, Event::Kill, Event::Cut, Event::Stop];
const INTERVALS: [u32; 3] = [1000, 100, 10];

/// The outages of one kind of run, in milliseconds: by datagrams and by connections.
#[derive(Debug, Default)]
struct Outages {
    datagrams: Vec<f64>,
    connections: Vec<f64>,
}

struct Bench {
    lab: Lab,
    butler_lb: PathBuf,
    folder: tempfile::TempDir,
}

/// Answers for a host until it is killed; started by the bench itself.
pub(super) fn answer() -> Result<()> {
    probe::answer(ADDRESS.into())
}

pub(super) fn run(args: &VipArgs) -> Result<()> {
    let profile = if args.quick { "debug" } else { "release" };
    if std::env::var_os(HURRIED).is_none() {
        if args.quick {
            super::cargo_debug(&["--package", "butler-lb"])?;
        } else {
            cargo(&["--package", "butler-lb"])?;
        }
        ensure_packages(&[KEEPALIVED])?;
        return hurry();
    }
    let target_dir = target_dir()?;
    let bench = Bench {
        lab: Lab::new()?,
        butler_lb: target_dir.join(profile).join("butler-lb"),
        folder: tempfile::tempdir().context("make a folder")?,
    };
    let runs = args.runs.unwrap_or(if args.quick { QUICK_RUNS } else { RUNS });
    let mut rows = Vec::new();
    let wanted = |interval: &u32| args.interval.is_empty() || args.interval.contains(interval);
    for interval in INTERVALS.into_iter().filter(wanted) {
        // What the measurement can tell apart is the same at every interval, and quickest seen at the shortest.
        let shortest = interval == INTERVALS[INTERVALS.len() - 1];
        for event in EVENTS.into_iter().filter(|event| shortest || *event != Event::Nothing) {
            let outages = bench.rounds(interval, event, runs)?;
            rows.push((interval, event, outages));
        }
    }
    let text = report(&machine::describe(&target_dir)?, runs, &rows);
    publish(&text, args.write.then_some("benchmarks-vip.md"))
}

/// Goes on with real-time priority, which everything that is started inherits, both sides alike: what else this machine does
/// would else show as silence.
fn hurry() -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let status = Command::new("chrt")
        .args(["--rr", "1"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(HURRIED, "1")
        .status()
        .context("start chrt")?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(())
}

// === impl Side ===

impl Side {
    const ALL: [Side; 3] = [Side::Keepalived, Side::Ours, Side::OursWithBfd];
}

// === impl Event ===

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Nothing => "nothing",
            Event::Kill => "agent and service killed (-9)",
            Event::Cut => "link cut",
            Event::Stop => "agent stopped (SIGTERM)",
        }
    }
}

// === impl Bench ===

impl Bench {
    /// All sides in turn, each leading once in a while.
    fn rounds(&self, interval: u32, event: Event, runs: u64) -> Result<[Outages; 3]> {
        let mut outages: [Outages; 3] = Default::default();
        for run in 0..runs as usize {
            for turn in 0..Side::ALL.len() {
                let index = (run + turn) % Side::ALL.len();
                let side = Side::ALL[index];
                let (datagrams, connections) = self
                    .one(side, interval, event)
                    .with_context(|| format!("{side:?}, {interval} ms, {}", event.name()))?;
                outages[index].datagrams.push(milliseconds(datagrams));
                outages[index].connections.push(milliseconds(connections));
                say(&format!(
                    "{interval} ms, {}, {side:?}: {:.1} ms, connections {:.1} ms",
                    event.name(),
                    milliseconds(datagrams),
                    milliseconds(connections)
                ));
            }
        }
        Ok(outages)
    }

    fn one(&self, side: Side, interval: u32, event: Event) -> Result<(Duration, Duration)> {
        self.lab.plug("a", true)?;
        for host in ["a", "b"] {
            self.lab.take_off(host, "10.77.0.100/32");
        }
        let service = self.start_answering("a")?;
        let _other_service = self.start_answering("b")?;
        let agent = self.start_agent(side, "a", 150, interval)?;
        self.wait_until_answered()?;
        let _other = self.start_agent(side, "b", 100, interval)?;
        // Long enough that the second one has heard the first, and BFD has come up; nothing tells us from outside.
        thread::sleep(Duration::from_millis(1500) + Duration::from_millis(interval.into()));
        let stop = AtomicBool::new(false);
        let (answers, begun, end) = thread::scope(|scope| -> Result<_> {
            let client = scope.spawn(|| self.lab.inside("client", || probe::ask(ADDRESS.into(), &stop)));
            thread::sleep(Duration::from_millis(300));
            let begun = Instant::now();
            match event {
                Event::Nothing => {}
                Event::Kill => {
                    agent.signal(Signal::KILL);
                    service.signal(Signal::KILL);
                }
                Event::Cut => self.lab.plug("a", false)?,
                Event::Stop => agent.signal(Signal::TERM),
            }
            // Everything has happened after the longest takeover that the protocol allows.
            thread::sleep(Duration::from_millis(u64::from(interval) * 4 + 500));
            let end = Instant::now();
            stop.store(true, Ordering::Relaxed);
            let answers = client.join().map_err(|_| anyhow::anyhow!("the client died"))???;
            Ok((answers, begun, end))
        })?;
        Ok(answers.outages(begun, end))
    }

    fn start_answering(&self, host: &str) -> Result<Process> {
        let program = std::env::current_exe().context("find this program")?;
        self.lab.spawn(host, Command::new(program).args(["bench", "vip-answer"]))
    }

    fn wait_until_answered(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.lab.inside("client", || probe::is_answered(ADDRESS.into()))? {
            ensure!(Instant::now() < deadline, "nobody answers at the address");
        }
        Ok(())
    }

    fn start_agent(&self, side: Side, host: &str, priority: u8, interval: u32) -> Result<Process> {
        let path = self.folder.path().join(host);
        match side {
            Side::Keepalived => self.start_keepalived(&path, host, priority, interval),
            Side::Ours | Side::OursWithBfd => {
                let peer = if host == "a" { 2 } else { 1 };
                let bfd = match side {
                    Side::OursWithBfd => {
                        format!("    peers: [10.77.0.{peer}]\n    bfd: {{intervalMs: 5, multiplier: 3}}\n")
                    }
                    _ => String::new(),
                };
                let config = format!(
                    "admin:\n  socket: {}.sock\nvips:\n  - name: api\n    addresses: [10.77.0.100/32]\n    \
                     interface: eth0\n    routerId: 51\n    priority: {priority}\n    advertMs: {interval}\n{bfd}",
                    path.display()
                );
                fs::write(&path, config).context("write a configuration")?;
                // It takes real-time priority for the one thread that needs it; all of it would get into its own way.
                let mut command = Command::new("chrt");
                command.args(["--other", "0"]).arg(&self.butler_lb);
                command.arg("--config").arg(&path).args(["--log", "error", "run"]);
                self.lab.spawn(host, &mut command)
            }
        }
    }

    fn start_keepalived(&self, path: &Path, host: &str, priority: u8, interval: u32) -> Result<Process> {
        let config = format!(
            "vrrp_instance api {{\n  state BACKUP\n  interface eth0\n  virtual_router_id 51\n  priority {priority}\n  \
             version 3\n  advert_int {}\n  virtual_ipaddress {{ 10.77.0.100/32 dev eth0 }}\n}}\n",
            f64::from(interval) / 1000.0
        );
        fs::write(path, config).context("write a configuration")?;
        let mut command = Command::new(KEEPALIVED.program);
        command.args(["--dont-fork", "--vrrp", "--use-file"]).arg(path);
        for (option, name) in [("--pid", "parent"), ("--vrrp_pid", "child")] {
            let file = self.folder.path().join(format!("{host}-{name}.pid"));
            // One that was killed left it behind, and would be taken for running.
            let _ = fs::remove_file(&file);
            command.arg(option).arg(file);
        }
        self.lab.spawn(host, command.stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn report(machine: &str, runs: u64, rows: &[(u32, Event, [Outages; 3])]) -> String {
    let mut text = format!(
        "# How long a virtual address is gone\n\nMade by `cargo xtask bench vip --write`, beside Keepalived in the same \
         network namespaces, in turns; {runs} runs each. Milliseconds: median [least..most] of the longest silence between \
         two answers, to a datagram every millisecond / to a new connection every five. Less is better. BFD: 5 ms, 3 \
         missed. Each standby of butler-lb also keeps a quiet connection to the holder, which ends \
         with the holder's process.\n\n{machine}\n\n| adverts every | what happens to the holder | Keepalived | butler-lb | butler-lb with BFD \
         |\n|---|---|---|---|---|\n"
    );
    for (interval, event, outages) in rows {
        let cells = outages.each_ref().map(|outages| {
            let show =
                |values: &[f64]| Spread::of(values.iter().copied()).map_or_else(String::new, |s| s.show());
            format!("{} / {}", show(&outages.datagrams), show(&outages.connections))
        });
        let _ = writeln!(text, "| {interval} ms | {} | {} |", event.name(), cells.join(" | "));
    }
    text
}
