//! The two sides of the comparison behind one face: started fresh, restarted over their data, ended with their owner.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::http::{Ask, Target};
use crate::{
    cluster::{Parts, RealCluster},
    peers::Peers,
};

/// A server that has not said it is ready, or has not ended, by then is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to get a side's servers.
#[derive(Debug, Clone)]
pub(super) enum Recipe {
    /// kube-apiserver over etcd.
    Real(Peers),
    /// `butleradm apiserver`, this program.
    Ours(PathBuf),
}

/// A running server.
pub(super) struct Subject {
    server: Running,
    pub(super) target: Target,
    pub(super) start: Start,
}

/// How long a start took, from the first program's start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// Until a new client got its first answer that needs authentication.
    pub(super) answered: Duration,
    /// The same without the time that etcd took: what the API server alone needs.
    pub(super) without_store: Duration,
}

enum Running {
    Real { cluster: Box<RealCluster>, peers: Peers },
    Ours(Embedded),
}

// === impl Recipe ===

impl Recipe {
    /// Starts a new, empty server in a folder of its own below `parent`.
    pub(super) async fn start(&self, parent: &Path) -> Result<Subject> {
        let server = match self {
            Self::Real(peers) => {
                let cluster = Box::new(RealCluster::start(peers, parent, Parts::ApiOnly).await?);
                Running::Real { cluster, peers: peers.clone() }
            }
            Self::Ours(program) => Running::Ours(Embedded::start(program, parent).await?),
        };
        Subject::greet(server).await
    }
}

// === impl Subject ===

impl Subject {
    /// The last step of a start: a client that knows only the kubeconfig gets its first answer.
    async fn greet(server: Running) -> Result<Self> {
        let greeting = Instant::now();
        let target = Target::from_kubeconfig(server.kubeconfig()).await?;
        let mut connection = target.connect().await?;
        connection.call(Ask::get("/api/v1/namespaces?limit=1")).await?;
        let greeted = greeting.elapsed();
        let start = match &server {
            Running::Real { cluster, .. } => Start {
                answered: cluster.timings.etcd + cluster.timings.apiserver + greeted,
                without_store: cluster.timings.apiserver + greeted,
            },
            Running::Ours(ours) => {
                Start { answered: ours.ready + greeted, without_store: ours.ready + greeted }
            }
        };
        Ok(Self { server, target, start })
    }

    /// Ends the server as an operator would (SIGTERM), starts it again over the same data.
    pub(super) async fn restart(self) -> Result<Self> {
        let mut server = self.server;
        match &mut server {
            Running::Real { cluster, peers } => cluster.restart(peers).await?,
            Running::Ours(ours) => ours.restart().await?,
        }
        Self::greet(server).await
    }

    /// All processes that make up the server.
    pub(super) fn pids(&self) -> Vec<u32> {
        match &self.server {
            Running::Real { cluster, .. } => vec![cluster.pids().apiserver, cluster.pids().etcd],
            Running::Ours(ours) => vec![ours.process.0.id()],
        }
    }
}

// === impl Running ===

impl Running {
    fn kubeconfig(&self) -> &Path {
        match self {
            Self::Real { cluster, .. } => &cluster.kubeconfig,
            Self::Ours(ours) => &ours.kubeconfig,
        }
    }
}

/// Our own server as a process of its own, the released program as a user starts it.
struct Embedded {
    process: Owned,
    /// Kept open, or the server's next line would meet a closed pipe.
    _stdout: BufReader<ChildStdout>,
    program: PathBuf,
    kubeconfig: PathBuf,
    ready: Duration,
    /// Removed after the process has ended: fields are dropped in order.
    folder: TempDir,
}

/// A process that ends with whoever holds it, also when a start is given up half-way.
#[derive(Debug)]
struct Owned(Child);

impl Drop for Owned {
    /// Both calls fail only when the process is gone already.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// === impl Embedded ===

impl Embedded {
    async fn start(program: &Path, parent: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("embedded-")
            .tempdir_in(parent)
            .with_context(|| format!("make a folder for the server in {}", parent.display()))?;
        let kubeconfig = folder.path().join("admin.kubeconfig");
        let (process, stdout, ready) = launch(program, folder.path(), &kubeconfig).await?;
        Ok(Self { process, _stdout: stdout, program: program.to_owned(), kubeconfig, ready, folder })
    }

    async fn restart(&mut self) -> Result<()> {
        let asked = Instant::now();
        rustix::process::kill_process(Pid::from_child(&self.process.0), Signal::TERM)
            .context("end butleradm apiserver")?;
        while self.process.0.try_wait().context("look after butleradm apiserver")?.is_none() {
            if asked.elapsed() > PATIENCE {
                bail!("butleradm apiserver has not ended {} s after it was asked to", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (self.process, self._stdout, self.ready) =
            launch(&self.program, self.folder.path(), &self.kubeconfig).await?;
        Ok(())
    }
}

/// Starts the program and waits for its line `ready https://...`; the time is from the start to that line.
async fn launch(
    program: &Path,
    folder: &Path,
    kubeconfig: &Path,
) -> Result<(Owned, BufReader<ChildStdout>, Duration)> {
    let log = folder.join("log");
    let errors = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let started = Instant::now();
    let child = Command::new(program)
        .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.join("data"))
        .arg("--write-kubeconfig")
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let mut process = Owned(child);
    match ready_line(&mut process.0).await {
        Ok(stdout) => Ok((process, stdout, started.elapsed())),
        Err(error) => {
            // What it has to say for itself may come after the line: give it a moment to end.
            for _ in 0..100 {
                if process.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let log = fs::read_to_string(&log).unwrap_or_default();
            Err(error.context(format!("butleradm apiserver is not ready\n{log}")))
        }
    }
}

async fn ready_line(child: &mut Child) -> Result<BufReader<ChildStdout>> {
    let mut stdout = BufReader::new(child.stdout.take().context("read what it prints")?);
    let read = spawn_blocking(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).map(|_| (line, stdout))
    });
    let (line, stdout) = tokio::time::timeout(PATIENCE, read)
        .await
        .with_context(|| format!("no word from it for {} s", PATIENCE.as_secs()))?
        .context("wait for its first line")?
        .context("read its first line")?;
    if !line.starts_with("ready https://") {
        bail!("its first line is {line:?}");
    }
    Ok(stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("program");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[tokio::test]
    async fn a_server_that_says_something_else_is_reported_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo port taken; echo who else >&2; exit 4");
        let error = launch(&program, dir.path(), Path::new("k")).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("port taken") && error.contains("who else"), "{error}");
    }

    #[tokio::test]
    async fn a_dropped_server_leaves_neither_process_nor_folder() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo ready https://127.0.0.1:1; exec sleep 1000");
        let server = Embedded::start(&program, dir.path()).await.unwrap();
        let process = PathBuf::from(format!("/proc/{}", server.process.0.id()));
        assert!(process.exists());
        drop(server);
        assert!(!process.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the script itself is left");
    }
}
