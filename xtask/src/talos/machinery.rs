//! The pipe to Talos' own machinery: one JSON object per line in each direction (`xtask/peers/talos-machinery/main.go`).

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::peers::Machinery;

/// The longest that one answer may take: making an RSA key can need many seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running machinery, or anything else that speaks like it. It ends when it is dropped.
pub(crate) struct Pipe {
    name: String,
    _process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What the machinery answers; every operation fills its own fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Answer {
    pub(super) ok: bool,
    pub(super) errors: Vec<String>,
    pub(super) version: String,
    pub(crate) secrets: String,
    pub(super) control_plane: String,
    pub(super) config: String,
    pub(crate) nanoseconds: Vec<u64>,
}

// === impl Pipe ===

impl Pipe {
    /// Starts the machinery, and makes sure that it is the release it is called.
    pub(crate) async fn open(machinery: &Machinery) -> Result<Self> {
        let mut pipe = Self::start(&machinery.path)?;
        let found = pipe.ask(&json!({"op": "version"})).await?.version;
        ensure!(found == machinery.version, "{} says that it is {found}", machinery.path.display());
        Ok(pipe)
    }

    pub(crate) fn start(program: &Path) -> Result<Self> {
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let requests = process.stdin.take().context("write to a pipe")?;
        let stdout = process.stdout.take().context("read from a pipe")?;
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, _process: process, requests, answers: BufReader::new(stdout).lines() })
    }

    pub(crate) async fn ask(&mut self, request: &Value) -> Result<Answer> {
        let operation = request["op"].as_str().unwrap_or_default();
        let exchange = async {
            self.requests.write_all(format!("{request}\n").as_bytes()).await.context("write the request")?;
            let line = self.answers.next_line().await.context("read the answer")?;
            serde_json::from_str(&line.context("it ended")?).context("parse the answer")
        };
        timeout(PATIENCE, exchange)
            .await
            .context("it takes too long")
            .flatten()
            .with_context(|| format!("ask {} for {operation}", self.name))
    }

    /// What Talos finds wrong with a configuration, in a mode: nothing, if all is well.
    pub(super) async fn validate(&mut self, config: &str, mode: &str) -> Result<Vec<String>> {
        let answer = self.ask(&json!({"op": "validate", "config": config, "mode": mode})).await?;
        Ok(answer.problems())
    }

    /// A configuration with patches applied and written by Talos, or what it finds wrong with them.
    pub(super) async fn patch(
        &mut self,
        config: &str,
        patches: &[&str],
    ) -> Result<Result<String, Vec<String>>> {
        let mut answer = self.ask(&json!({"op": "patch", "config": config, "patches": patches})).await?;
        let patched = std::mem::take(&mut answer.config);
        let problems = answer.problems();
        Ok(if problems.is_empty() { Ok(patched) } else { Err(problems) })
    }

    /// What Talos finds wrong with a client configuration.
    pub(super) async fn talosconfig(&mut self, text: &str) -> Result<Vec<String>> {
        Ok(self.ask(&json!({"op": "talosconfig", "talosconfig": text})).await?.problems())
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn problems(self) -> Vec<String> {
        match (self.ok, self.errors.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec!["refused without a reason".to_owned()],
            (false, false) => self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        serde_json::from_str::<Answer>(text).unwrap().problems()
    }

    #[test]
    fn only_an_answer_that_says_so_is_well() {
        assert!(problems(r#"{"ok":true,"warnings":["old"]}"#).is_empty());
        assert_eq!(problems(r#"{"ok":false,"errors":["a","b"]}"#), ["a", "b"]);
        assert_eq!(problems("{}").len(), 1);
    }
}
