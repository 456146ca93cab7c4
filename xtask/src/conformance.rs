//! `cargo xtask conformance`: the behaviour suite against the real control plane, the same kubectl commands on both, and
//! our Talos parts beside Talos' own ([`crate::talos`]), the AWS driver against moto, whole bootstraps with all of them
//! ([`crate::bootstrap`]), and the load balancer beside Keepalived, HAProxy and frr in network namespaces.
//!
//! ```text
//!   cargo test -p butler-apiserver --test behaviour  -->  real kube-apiserver + etcd + kube-controller-manager
//!   kubectl 1.32 .. 1.36                             -->  the same  |  butleradm apiserver     (answers compared)
//! ```
//!
//! The suite's run against the embedded server is the ordinary `cargo test`; here it is held against the original, so that
//! an expectation which is wrong can't stay.
//!
//! Tests are named in the whole workspace and not in one package: with the same features, nothing is built twice.

use crate::bootstrap;
use crate::cluster::{Parts, RealCluster};
use crate::kubectl::{self, Tally, Target};
use crate::peers::{CURL, FRR, HAPROXY, KEEPALIVED, Moto, Peers, RUNC, ensure_packages};
use crate::talos;
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Set to `1` by whoever can't or won't build the peers.
const NO_PEERS: &str = "BUTLER_NO_PEERS";

/// Modules of the load balancer's tests in which no peer is.
const OURS_ALONE: [&str; 3] = ["changes::", "idle::", "ours::"];

/// How long the embedded server may take until it says that it is ready.
const START: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    /// Only one of the parts
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only tests of the suite whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// The butleradm that is looked at, in place of a debug build of the sources
    #[arg(long, value_name = "PROGRAM")]
    butleradm: Option<PathBuf>,
    /// A kubeconfig of a real control plane that already runs (an empty one), in place of a new one
    #[arg(long, value_name = "KUBECONFIG")]
    real: Option<PathBuf>,
    /// A kubeconfig of an embedded server that already runs (an empty one), in place of a new one
    #[arg(long, value_name = "KUBECONFIG")]
    embedded: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Suite,
    Kubectl,
    Talos,
    Moto,
    Bootstrap,
    /// Of the bootstraps, those on clouds
    Clouds,
    /// The load balancer beside Keepalived, HAProxy and frr
    Lb,
}

/// An embedded server as its own process.
struct Embedded {
    process: Child,
    kubeconfig: PathBuf,
    _folder: tempfile::TempDir,
}

impl ConformanceArgs {
    async fn butleradm(&self) -> Result<PathBuf> {
        match &self.butleradm {
            // Users have folders of their own.
            Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display())),
            None => build_butleradm().await,
        }
    }
}

pub(crate) async fn run_command(args: ConformanceArgs) -> Result<()> {
    let no_peers = std::env::var(NO_PEERS).is_ok_and(|value| value == "1");
    let wants = |part: Part| args.only.is_none_or(|only| only == part);
    let mut total = Tally::default();
    let began = Instant::now();
    let took = |part: &str| say(&format!("{part}: done {} s after the start", began.elapsed().as_secs()));
    if no_peers {
        say(&format!("conformance: the real peers were skipped by request ({NO_PEERS}=1)"))?;
    }
    if !no_peers && (wants(Part::Suite) || wants(Part::Kubectl)) {
        add(&mut total, kubernetes(&args).await?);
        took("embedded Kubernetes API")?;
    }
    if !no_peers && wants(Part::Talos) {
        add(&mut total, talos::conformance(&args.butleradm().await?).await?);
        took("Talos")?;
    }
    if !no_peers && wants(Part::Moto) {
        add(&mut total, moto().await?);
        took("moto")?;
    }
    if wants(Part::Bootstrap) || args.only == Some(Part::Clouds) {
        let peers = (!no_peers).then(Peers::ensure).transpose().context("get the real peers")?;
        let program = args.butleradm().await?;
        let clouds_alone = args.only == Some(Part::Clouds);
        add(&mut total, bootstrap::conformance(&program, peers.as_ref(), clouds_alone).await?);
        took("bootstraps")?;
    }
    if !no_peers && wants(Part::Lb) {
        ensure_packages(&[KEEPALIVED, HAPROXY, CURL, FRR, RUNC])
            .context("install the load balancer's peers")?;
        add(&mut total, load_balancer(args.filter.as_deref()).await?);
        took("load balancer")?;
    }
    say(&format!("conformance: {} passed, {} failed", total.passed, total.failed))?;
    ensure!(total.failed == 0, "{} of {} checks failed", total.failed, total.passed + total.failed);
    Ok(())
}

/// The embedded Kubernetes API beside the real one.
async fn kubernetes(args: &ConformanceArgs) -> Result<Tally> {
    let peers = Peers::ensure().context("get the real peers")?;
    let started = match &args.real {
        Some(_) => None,
        None => Some(RealCluster::start(&peers, &std::env::temp_dir(), Parts::WithControllers).await?),
    };
    let real = match (&args.real, &started) {
        (Some(kubeconfig), _) => kubeconfig.clone(),
        (None, Some(cluster)) => cluster.kubeconfig.clone(),
        (None, None) => bail!("no real control plane"),
    };
    let mut total = Tally::default();
    if args.only != Some(Part::Kubectl) {
        let tally = suite(&real, args.filter.as_deref()).await?;
        say(&format!(
            "behaviour suite on the real server: {} passed, {} failed",
            tally.passed, tally.failed
        ))?;
        add(&mut total, tally);
    }
    if args.only != Some(Part::Suite) {
        let started = match &args.embedded {
            Some(_) => None,
            None => Some(Embedded::start(&args.butleradm().await?).await?),
        };
        let embedded =
            args.embedded.clone().or_else(|| started.as_ref().map(|server| server.kubeconfig.clone()));
        let embedded = embedded.context("no embedded server")?;
        add(&mut total, transcripts(&peers, &real, &embedded).await?);
        if let Some(mut server) = started {
            server.end().await?;
        }
    }
    Ok(total)
}

fn add(total: &mut Tally, part: Tally) {
    total.passed += part.passed;
    total.failed += part.failed;
}

// === the suite ===

/// Runs the suite against a kubeconfig, showing what it prints.
async fn suite(kubeconfig: &Path, filter: Option<&str>) -> Result<Tally> {
    let mut command = Command::new(cargo());
    command
        .args(["test", "--quiet", "--workspace", "--test", "behaviour", "--"])
        // Most of a test's time on a real server is waiting for it.
        .args(["--test-threads", "6"])
        .args(filter)
        .env("BUTLER_CONFORMANCE_KUBECONFIG", kubeconfig);
    run_tests(&mut command, "the behaviour suite").await
}

/// The AWS driver against moto.
async fn moto() -> Result<Tally> {
    let moto = Moto::start().await?;
    let mut command = Command::new(cargo());
    command.args(["test", "--quiet", "--workspace", "--test", "moto"]).env("BUTLER_MOTO_URL", &moto.url);
    let tally = run_tests(&mut command, "the AWS driver's tests on moto").await?;
    moto.end().await?;
    say(&format!("AWS driver on moto: {} passed, {} failed", tally.passed, tally.failed))?;
    Ok(tally)
}

/// The load balancer's tests with real peers, in network namespaces. Those between machines that are all ours run in
/// `cargo test`.
async fn load_balancer(filter: Option<&str>) -> Result<Tally> {
    let mut command = Command::new(cargo());
    // Real time decides there who holds an address: one at a time. What is skipped is printed.
    command.args(["test", "--quiet", "--workspace", "--test", "files", "--test", "vip"]).args([
        "--",
        "--test-threads",
        "1",
        "--show-output",
    ]);
    match filter {
        Some(filter) => command.arg(filter),
        None => command.args(OURS_ALONE.iter().flat_map(|module| ["--skip", module])),
    };
    run_tests(&mut command, "the load balancer's tests").await
}

/// Runs tests, showing what they print.
async fn run_tests(command: &mut Command, name: &str) -> Result<Tally> {
    let mut child =
        command.stdout(Stdio::piped()).kill_on_drop(true).spawn().with_context(|| format!("start {name}"))?;
    let stdout = child.stdout.take().with_context(|| format!("read what {name} prints"))?;
    let mut lines = BufReader::new(stdout).lines();
    let mut total: Option<Tally> = None;
    while let Some(line) = lines.next_line().await.with_context(|| format!("read what {name} prints"))? {
        say(&line)?;
        if let Some(tally) = result_line(&line) {
            // One result per test program.
            add(total.get_or_insert_default(), tally);
        }
    }
    let status = child.wait().await.with_context(|| format!("wait for {name}"))?;
    let total = total.with_context(|| format!("{name} did not run to its end"))?;
    ensure!(status.success() || total.failed > 0, "{name} ended with {status}");
    Ok(total)
}

/// `test result: ok. 270 passed; 0 failed; ...`
fn result_line(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = counts.split("; ").find_map(|part| part.strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Tally { passed: count(" passed")?, failed: count(" failed")? })
}

// === the transcripts ===

async fn transcripts(peers: &Peers, real: &Path, embedded: &Path) -> Result<Tally> {
    let real = Target { kubeconfig: real.to_path_buf() };
    let ours = Target { kubeconfig: embedded.to_path_buf() };
    let mut total = Tally::default();
    for kubectl in &peers.kubectls {
        let mut reports = Vec::new();
        let mut report = |line| reports.push(line);
        let tally = kubectl::compare(&kubectl.path, &kubectl.version, &real, &ours, &mut report).await?;
        for line in reports {
            say(&line)?;
        }
        say(&format!("kubectl {}: {} passed, {} failed", kubectl.version, tally.passed, tally.failed))?;
        add(&mut total, tally);
    }
    Ok(total)
}

impl Embedded {
    async fn start(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for the embedded server")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new(program);
        command
            .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path().join("data"))
            .arg("--write-kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("start {}", program.display()))?;
        let stdout = process.stdout.take().context("read what the embedded server prints")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await.context("read what the embedded server prints")? {
                if line.starts_with("ready https://") {
                    return Ok(());
                }
            }
            bail!("the embedded server ended before it was ready")
        };
        timeout(START, ready).await.context("the embedded server is not ready in time")??;
        Ok(Self { process, kubeconfig, _folder: folder })
    }

    async fn end(&mut self) -> Result<()> {
        self.process.kill().await.context("end the embedded server")
    }
}

/// Builds the program, and asks cargo where it is.
pub(crate) async fn build_butleradm() -> Result<PathBuf> {
    let output = Command::new(cargo())
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            "butleradm",
            "--message-format=json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .await
        .context("build butleradm")?;
    ensure!(output.status.success(), "butleradm does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    messages.lines().find_map(executable).context("cargo does not say where butleradm is")
}

/// The program that a message of cargo tells of.
pub(crate) fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

/// The cargo that runs us, so that the toolchain is the same.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("print")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_the_suite_is_read() {
        let line = "test result: FAILED. 268 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9s";
        let tally = result_line(line).unwrap();
        assert_eq!((tally.passed, tally.failed), (268, 2));
        assert!(result_line("running 270 tests").is_none());
    }

    #[test]
    fn cargo_says_where_a_program_is() {
        assert_eq!(executable(r#"{"executable":"/x/butleradm"}"#), Some(PathBuf::from("/x/butleradm")));
        assert_eq!(executable(r#"{"executable":null}"#), None);
    }
}
