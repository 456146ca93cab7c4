//! Counts how often a server tells the kernel to put data on the disk (fsync, fdatasync). perf counts inside the kernel
//! and does not slow the server down; strace stops it at every system call, which shifts how many writes share one sync,
//! so it is only the second choice, and the report says which one it was. The same for both sides of a run.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

/// Time for a tool to attach to all threads. What a server syncs by itself meanwhile is counted as well, so it is short.
const TO_ATTACH: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Perf,
    Strace,
}

/// A count that is going on.
pub(super) struct Counter {
    tool: Tool,
    /// Taken when it is asked for the sum.
    process: Option<Child>,
}

// === impl Tool ===

impl Tool {
    /// The first tool that works here, tried on this very process. `None`: syncs can't be counted on this machine.
    pub(super) async fn find() -> Option<Self> {
        for tool in [Self::Perf, Self::Strace] {
            if let Ok(counter) = tool.attach(&[std::process::id()]).await
                && counter.finish().await.is_ok()
            {
                return Some(tool);
            }
        }
        None
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Strace => "strace",
        }
    }

    /// Begins to count for these processes, with all their threads.
    pub(super) async fn attach(self, pids: &[u32]) -> Result<Counter> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new(self.name());
        match self {
            Self::Perf => command
                .args(["stat", "-x,", "-e", "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync", "-p"])
                .arg(pids.join(",")),
            Self::Strace => {
                command.args(["-f", "-c", "-U", "name,calls", "-e", "trace=fsync,fdatasync"]);
                pids.iter().fold(&mut command, |command, pid| command.args(["-p", pid]))
            }
        };
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.name()))?;
        tokio::time::sleep(TO_ATTACH).await;
        if let Some(status) = process.try_wait().with_context(|| format!("look after {}", self.name()))? {
            bail!("{} ended at once: {status}", self.name());
        }
        Ok(Counter { tool: self, process: Some(process) })
    }

    /// The sum of both calls in what the tool printed.
    fn parse(self, text: &str) -> Result<u64> {
        let mut sum = 0;
        let mut lines = 0;
        for line in text.lines().filter(|line| line.contains("sync")) {
            let count = match self {
                // COUNT,,syscalls:sys_enter_fsync,...
                Self::Perf => line.split(',').next().map(str::trim),
                // fdatasync    COUNT
                Self::Strace => line.split_ascii_whitespace().nth(1),
            };
            let Some(count) = count.and_then(|count| count.parse::<u64>().ok()) else { continue };
            sum += count;
            lines += 1;
        }
        // perf names both calls also when there were none; strace leaves such lines out.
        ensure!(self == Self::Strace || lines == 2, "understand what perf printed: {text}");
        Ok(sum)
    }
}

// === impl Counter ===

impl Counter {
    /// Ends the count, hands back the sum.
    pub(super) async fn finish(mut self) -> Result<u64> {
        let name = self.tool.name();
        let process = self.process.take().with_context(|| format!("{name} has been ended already"))?;
        rustix::process::kill_process(Pid::from_child(&process), Signal::INT)
            .with_context(|| format!("end {name}"))?;
        // Both tools print their sums when they are interrupted, and then exit with an odd status.
        let output = tokio::task::spawn_blocking(move || process.wait_with_output())
            .await
            .with_context(|| format!("wait for {name}"))?
            .with_context(|| format!("read what {name} printed"))?;
        self.tool.parse(&String::from_utf8_lossy(&output.stderr))
    }
}

impl Drop for Counter {
    /// A count that was given up. A tracer that dies lets go of what it traced.
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_is_read() {
        let text =
            "0,,syscalls:sys_enter_fsync,2000,100.00,,\n15,,syscalls:sys_enter_fdatasync,2000,100.00,,\n";
        assert_eq!(Tool::Perf.parse(text).unwrap(), 15);
        let refused = "<not supported>,,syscalls:sys_enter_fsync,0,100.00,,\n";
        assert!(Tool::Perf.parse(refused).is_err());
    }

    #[test]
    fn strace_is_read() {
        let text = "strace: Process 7 attached\nsyscall          calls\n---------- ---------\nfdatasync      24\nfsync           2\n---------- ---------\ntotal        26\n";
        assert_eq!(Tool::Strace.parse(text).unwrap(), 26);
        assert_eq!(Tool::Strace.parse("strace: Process 7 attached\n").unwrap(), 0);
    }
}
