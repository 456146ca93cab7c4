//! A program of the control plane: started with its log in a file, watched while it is waited for, ended with its owner.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// Far above what a loaded machine needs; a program that is not ready by then never will be.
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// How much of a log goes into an error.
const LAST_LINES: usize = 15;

#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
    started: Instant,
}

// === impl Process ===

impl Process {
    pub(super) fn start(name: &'static str, program: &Path, dir: &Path, args: &[String]) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let errors = file.try_clone().with_context(|| format!("open {} twice", log.display()))?;
        let started = Instant::now();
        let child = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { name, child, log, started })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks until the answer is yes; returns the time since the start. A program that ends meanwhile, or takes too long,
    /// is an error with the end of its log.
    pub(super) async fn ready(&mut self, mut is_ready: impl AsyncFnMut() -> bool) -> Result<Duration> {
        loop {
            if is_ready().await {
                return Ok(self.started.elapsed());
            }
            if let Some(status) =
                self.child.try_wait().with_context(|| format!("look after {}", self.name))?
            {
                bail!("{} ended before it was ready: {status}\n{}", self.name, self.last_lines());
            }
            if self.started.elapsed() > PATIENCE {
                bail!("{} is not ready after {} s\n{}", self.name, PATIENCE.as_secs(), self.last_lines());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Asks the program to end (SIGTERM) and waits until it has.
    pub(super) async fn terminate(&mut self) -> Result<()> {
        let asked = Instant::now();
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("end {}", self.name))?;
        while self.child.try_wait().with_context(|| format!("look after {}", self.name))?.is_none() {
            if asked.elapsed() > PATIENCE {
                bail!("{} has not ended {} s after it was asked to", self.name, PATIENCE.as_secs());
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Process {
    /// By SIGKILL: nothing of the cluster outlives it, so there is nothing to put in order. Both calls fail only when the
    /// program is gone already.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, script: &str) -> Process {
        Process::start("sh", Path::new("/bin/sh"), dir, &["-c".to_owned(), script.to_owned()]).unwrap()
    }

    #[tokio::test]
    async fn a_program_that_ends_too_early_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(dir.path(), "echo no port left; exit 3");
        let error = process.ready(async || false).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no port left"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_is_asked_to_end_may_tidy_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut process =
            shell(dir.path(), "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done");
        let log = dir.path().join("sh.log");
        process.ready(async || fs::read_to_string(&log).unwrap() == "up\n").await.unwrap();
        process.terminate().await.unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "up\nbye\n");
    }

    #[tokio::test]
    async fn a_dropped_program_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(dir.path(), "exec sleep 1000");
        process.ready(async || true).await.unwrap();
        let proc_dir = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(proc_dir.exists());
        drop(process);
        assert!(!proc_dir.exists());
    }
}
