//! What came to a data centre that is a process of its own: one line of JSON for every call, written when the call is over.

use anyhow::{Context as _, Result};
use butler_sim::{Gate, LoggedCall, Progress};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use tokio::task::JoinHandle;

/// Writes until it is dropped or ended.
pub(super) struct CallLog {
    gate: Gate,
    task: JoinHandle<Written>,
    stop: tokio_util::sync::CancellationToken,
}

/// How far the log is.
struct Written {
    file: File,
    /// Calls from here on may still be missing.
    from: u64,
    /// Those of them that are not: calls do not end in the order in which they came.
    ahead: std::collections::BTreeSet<u64>,
}

impl CallLog {
    /// Begins a new file.
    pub(super) fn start(path: &Path, gate: &Gate) -> Result<CallLog> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut written = Written { file, from: 1, ahead: std::collections::BTreeSet::new() };
        let (gate, stop) = (gate.clone(), tokio_util::sync::CancellationToken::new());
        let (calls, stopped) = (gate.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut changed = calls.watch();
            loop {
                if let Err(error) = written.add(&calls.calls_from(written.from)) {
                    tracing::warn!(%error, "the log of calls cannot be written; it ends here");
                    return written;
                }
                tokio::select! {
                    () = stopped.cancelled() => return written,
                    changed = changed.changed() => if changed.is_err() { return written },
                }
            }
        });
        Ok(CallLog { gate, task, stop })
    }

    /// Writes what is missing.
    pub(super) async fn end(self) -> Result<()> {
        self.stop.cancel();
        let mut written = self.task.await.context("the log of calls has ended early")?;
        let calls = self.gate.calls_from(written.from);
        written.add(&calls).context("cannot write the log of calls")
    }
}

impl Written {
    /// Writes those that are over. One write for all, so that a reader sees whole lines.
    fn add(&mut self, calls: &[LoggedCall]) -> std::io::Result<()> {
        let mut lines = String::new();
        for logged in calls {
            if let Some(outcome) = outcome(logged.progress)
                && self.ahead.insert(logged.number)
            {
                lines.push_str(&line(logged, outcome).to_string());
                lines.push('\n');
            }
        }
        while self.ahead.remove(&self.from) {
            self.from += 1;
        }
        self.file.write_all(lines.as_bytes())
    }
}

fn line(logged: &LoggedCall, outcome: &str) -> Value {
    let call = &logged.call;
    json!({
        "number": logged.number, "system": call.system, "operation": call.operation, "object": call.object,
        "mutates": call.mutates, "outcome": outcome, "fault": logged.fault.map(|fault| fault.to_string()),
    })
}

/// How a call ended, if it has.
fn outcome(progress: Progress) -> Option<&'static str> {
    Some(match progress {
        Progress::Waiting | Progress::UnderWay => return None,
        Progress::Refused => "refused",
        Progress::Answered => "answered",
        Progress::Lost => "lost",
        Progress::Dropped => "dropped",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_sim::{Call, FaultScript, Verdict};

    fn call(operation: &str) -> Call {
        Call {
            system: "proxmox",
            operation: operation.to_owned(),
            object: "vm 100".to_owned(),
            mutates: true,
        }
    }

    #[tokio::test]
    async fn every_call_is_written_once_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.jsonl");
        let gate = Gate::new(FaultScript::parse("calls:\n- {operation: c, fault: status 503}").unwrap());
        let log = CallLog::start(&path, &gate).unwrap();
        let Verdict::Proceed(first) = gate.enter(call("a")).await else { panic!("refused") };
        let Verdict::Proceed(second) = gate.enter(call("b")).await else { panic!("refused") };
        second.leave().await;
        assert!(matches!(gate.enter(call("c")).await, Verdict::Refuse(_)));
        tokio::task::yield_now().await;
        drop(first);
        log.end().await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.sort_by_key(|line| line["number"].as_u64());
        let seen: Vec<_> =
            lines.iter().map(|line| (line["operation"].as_str(), line["outcome"].as_str())).collect();
        let wanted = [("a", "dropped"), ("b", "answered"), ("c", "refused")];
        assert_eq!(seen, wanted.map(|(operation, outcome)| (Some(operation), Some(outcome))));
        assert_eq!((&lines[2]["fault"], &lines[2]["system"]), (&json!("status 503"), &json!("proxmox")));
    }
}
