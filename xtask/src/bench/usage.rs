//! What processes use, read from /proc: memory, CPU time, and how much of the machine was taken by somebody else.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Resident memory of all processes of a server together, in MiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Sum of VmRSS.
    pub(super) resident: f64,
    /// Sum of PSS: pages that several processes share are counted once in total.
    pub(super) proportional: f64,
}

pub(super) fn memory(pids: &[u32]) -> Result<Memory> {
    let mut memory = Memory { resident: 0.0, proportional: 0.0 };
    for pid in pids {
        memory.resident += field_in_mib(&format!("/proc/{pid}/status"), "VmRSS:")?;
        memory.proportional += field_in_mib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")?;
    }
    Ok(memory)
}

fn field_in_mib(path: &str, field: &str) -> Result<f64> {
    let text = read(path)?;
    let kib: Option<f64> = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    Ok(kib.with_context(|| format!("find {field} in {path}"))? / 1024.0)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// User and system time of a process with all its threads, ended ones too.
fn cpu_of(pid: &str) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = read(&path)?;
    // The second field is the program's name in brackets and may hold anything; utime and stime are fields 14 and 15.
    let ticks: Option<u64> = text.rsplit_once(')').and_then(|(_, rest)| {
        let mut fields = rest.split_ascii_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some(user + system)
    });
    Ok(from_ticks(ticks.with_context(|| format!("find the CPU time in {path}"))?))
}

/// Time in which a core was not idle, summed over the cores. Stolen time counts: it was not ours either.
fn busy() -> Result<Duration> {
    let text = read("/proc/stat")?;
    let first = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = first.split_ascii_whitespace().skip(1).map_while(|f| f.parse().ok()).collect();
    let ticks = match fields[..] {
        [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] => {
            user + nice + system + irq + softirq + steal
        }
        _ => anyhow::bail!("understand the first line of /proc/stat: {first}"),
    };
    Ok(from_ticks(ticks))
}

/// Linux shows /proc's times in units of 1/100 s on every architecture.
fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

/// Watches a stretch of work.
#[derive(Debug)]
pub(super) struct Meter {
    pids: Vec<u32>,
    started: Instant,
    before: Reading,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    server: Duration,
    load: Duration,
    network: Duration,
    busy: Duration,
}

/// What a stretch of work took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) elapsed: Duration,
    pub(super) server: Duration,
    pub(super) load: Duration,
    /// What the kernel's threads for packets that it puts off (ksoftirqd) took, for whomever.
    pub(super) network: Duration,
    /// Cores that were busy with none of these, on average.
    pub(super) others: f64,
}

// === impl Meter ===

impl Meter {
    pub(super) fn start(pids: &[u32]) -> Result<Self> {
        Ok(Self { pids: pids.to_vec(), before: reading(pids)?, started: Instant::now() })
    }

    pub(super) fn stop(self) -> Result<Usage> {
        let elapsed = self.started.elapsed();
        let after = reading(&self.pids)?;
        let server = after.server.saturating_sub(self.before.server);
        let load = after.load.saturating_sub(self.before.load);
        let network = after.network.saturating_sub(self.before.network);
        let others = after.busy.saturating_sub(self.before.busy).saturating_sub(server + load + network);
        Ok(Usage { elapsed, server, load, network, others: others.as_secs_f64() / elapsed.as_secs_f64() })
    }
}

fn reading(pids: &[u32]) -> Result<Reading> {
    let mut server = Duration::ZERO;
    for pid in pids {
        server += cpu_of(&pid.to_string())?;
    }
    let mut network = Duration::ZERO;
    for pid in network_threads()? {
        network += cpu_of(&pid)?;
    }
    Ok(Reading { server, load: cpu_of("self")?, network, busy: busy()? })
}

/// The kernel's ksoftirqd threads, one per core; none where it does not show them.
fn network_threads() -> Result<Vec<String>> {
    let names = fs::read_dir("/proc")
        .context("list /proc")?
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    let is_one = |pid: &String| {
        pid.bytes().all(|byte| byte.is_ascii_digit())
            && fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("ksoftirqd/"))
    };
    Ok(names.filter(is_one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_test_is_some_and_shared_pages_count_less() {
        let memory = memory(&[std::process::id()]).unwrap();
        assert!(memory.resident > 0.5, "{memory:?}");
        assert!(memory.proportional > 0.0 && memory.proportional <= memory.resident * 1.1, "{memory:?}");
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let meter = Meter::start(&[std::process::id()]).unwrap();
        let started = Instant::now();
        let mut sum = 0_u64;
        while started.elapsed() < Duration::from_millis(200) || cpu_of("self").unwrap() < from_ticks(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let usage = meter.stop().unwrap();
        assert!(usage.server >= Duration::from_millis(10), "{usage:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = memory(&[u32::MAX]).unwrap_err().to_string();
        assert!(error.contains("/proc/4294967295/status"), "{error}");
    }
}
