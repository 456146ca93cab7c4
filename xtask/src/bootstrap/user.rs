//! A user with a home of their own who types butleradm and kubectl, and knows nothing of the tester's environment.

use super::centre::DataCentre;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// The longest that one command may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// A user, and what they have set in their shell.
pub(crate) struct User {
    program: PathBuf,
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A butleradm that runs and tells its turns as lines of JSON. Killed when it is dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All turns so far.
    pub(crate) turns: Vec<Value>,
}

impl User {
    pub(crate) fn new(program: &Path) -> Result<User> {
        // A disk in memory where there is one: a process that is killed loses nothing of what it wrote to either.
        let memory = Path::new("/dev/shm");
        let folder = match std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.context("make a folder for a user")?;
        Ok(User { program: program.to_owned(), folder, variables: Vec::new() })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `~/.butler`.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Sets everything that leads to a data centre.
    pub(crate) fn use_centre(&mut self, centre: &DataCentre) {
        self.variables.extend(centre.exports.iter().cloned());
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.clean(&self.program);
        command.args(args);
        command
    }

    /// Runs butleradm to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<Answer> {
        finish(self.command(args)).await.with_context(|| format!("run butleradm {}", args.join(" ")))
    }

    /// Starts butleradm with `--output json`.
    pub(crate) fn start(&self, args: &[&str]) -> Result<Running> {
        let mut command = self.command(args);
        command.args(["--output", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start butleradm {}", args.join(" ")))?;
        let stdout = child.stdout.take().context("read what butleradm prints")?;
        Ok(Running { child, lines: BufReader::new(stdout).lines(), turns: Vec::new() })
    }

    /// Runs a kubectl to its end.
    pub(crate) async fn kubectl(&self, kubectl: &Path, kubeconfig: &Path, args: &[&str]) -> Result<Answer> {
        let mut command = self.clean(kubectl);
        command.args(args).env("KUBECONFIG", kubeconfig);
        // Discovery is cached by address, and addresses come back.
        let cache = tempfile::tempdir_in(self.folder()).context("make a cache for kubectl")?;
        command.env("KUBECACHEDIR", cache.path());
        finish(command).await.with_context(|| format!("run kubectl {}", args.join(" ")))
    }

    fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder()).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command.env("BUTLER_HOME", self.home()).env("HOME", self.folder()).env("TMPDIR", self.folder());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Running {
    /// Reads until a turn is as wanted; `None` when the program ended before.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Option<Value>> {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await.with_context(|| {
                format!("nothing happens any more; the last turn was {:?}", self.turns.last())
            })?;
            let Some(line) = line.context("read what butleradm prints")? else { return Ok(None) };
            let turn: Value =
                serde_json::from_str(&line).with_context(|| format!("understand the turn {line:?}"))?;
            self.turns.push(turn.clone());
            if wanted(&turn) {
                return Ok(Some(turn));
            }
        }
    }

    /// Reads to the end.
    pub(crate) async fn end(mut self) -> Result<Answer> {
        self.until(|_| false).await?;
        let output = timeout(PATIENCE, self.child.wait_with_output()).await.context("it does not end")?;
        let output = output.context("wait for butleradm")?;
        let stdout: String = self.turns.iter().map(|turn| format!("{turn}\n")).collect();
        Ok(Answer {
            code: output.status.code(),
            stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// As Ctrl-C does.
    pub(crate) fn interrupt(&self) -> Result<()> {
        signal(&self.child, rustix::process::Signal::INT)
    }
}

impl Answer {
    /// The output of a command that was to end with this code.
    pub(crate) fn expect(&self, code: i32, what: &str) -> Result<&str> {
        ensure!(
            self.code == Some(code),
            "{what} ended with {:?} and not with {code}\n{}\n{}",
            self.code,
            self.stdout,
            self.stderr
        );
        Ok(&self.stdout)
    }
}

/// Sends a signal to a program of ours that still runs.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) -> Result<()> {
    let id = child.id().context("it has ended already")?;
    let id =
        i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw).context("a strange process id")?;
    rustix::process::kill_process(id, signal).context("send a signal")
}

async fn finish(mut command: Command) -> Result<Answer> {
    let output =
        timeout(PATIENCE, command.output()).await.context("it takes too long")?.context("start it")?;
    Ok(Answer {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
