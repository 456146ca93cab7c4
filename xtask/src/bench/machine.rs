//! The machine that the figures come from, in words: they mean little without it.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::stats;

/// How often the disk is asked how long a sync takes.
const SYNCS: usize = 100;

/// One line, for a machine whose disk holds `folder`. Refuses a filesystem in memory, where durability costs nothing.
pub(super) fn describe(folder: &Path) -> Result<String> {
    let filesystem = filesystem(folder)?;
    ensure!(
        !matches!(filesystem.as_str(), "tmpfs" | "ramfs"),
        "{} is in memory, so writes are not durable there; set CARGO_TARGET_DIR to a folder on a disk",
        folder.display()
    );
    let cores = thread::available_parallelism().context("count the cores")?;
    let cpu = field("/proc/cpuinfo", "model name")?;
    let memory: f64 = field("/proc/meminfo", "MemTotal")?
        .trim_end_matches(" kB")
        .parse()
        .context("read MemTotal in /proc/meminfo")?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("read the kernel's release")?;
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    Ok(format!(
        "{cores} cores ({cpu}), {:.0} GiB of memory, {}, kernel {}, {filesystem}, fdatasync p50 {:.2} ms",
        memory / 1024.0 / 1024.0,
        system.trim_matches('"'),
        kernel.trim(),
        stats::milliseconds(sync_time(folder)?)
    ))
}

/// The value of `name : value`, or `unknown` where a machine doesn't say (some architectures name no CPU model).
fn field(path: &str, name: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
    Ok(value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned()))
}

/// The type of the innermost mount that holds `folder`.
fn filesystem(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("find {}", folder.display()))?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?;
    let found = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| folder.starts_with(point))
        // The last of several mounts on one point covers the others.
        .max_by_key(|(point, _)| point.len());
    found.map(|(_, kind)| kind.to_owned()).with_context(|| format!("find the mount of {}", folder.display()))
}

/// Median time to make 4 KiB durable at the end of a file.
fn sync_time(folder: &Path) -> Result<Duration> {
    let mut file: File = tempfile::tempfile_in(folder).context("make a file to time the disk with")?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        file.write_all(&[0x5a; 4096]).context("time the disk")?;
        let started = Instant::now();
        file.sync_data().context("time the disk")?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(stats::quantile(&times, 0.5))
}

/// The version of a program: the last word of the first line that it prints when asked.
pub(super) fn version(program: &Path) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("ask {} for its version", program.display()))?;
    ensure!(output.status.success(), "{} --version: {}", program.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let word = text.lines().next().and_then(|line| line.split_ascii_whitespace().last());
    Ok(word.unwrap_or("of unknown version").trim_start_matches('v').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_taken() {
        assert_eq!(filesystem(Path::new("/proc/self/fd")).unwrap(), "proc");
    }

    #[test]
    fn a_field_that_is_not_there_is_unknown() {
        assert_eq!(field("/proc/meminfo", "NoSuchThing").unwrap(), "unknown");
        assert!(field("/proc/meminfo", "MemTotal").unwrap().ends_with(" kB"));
    }
}
