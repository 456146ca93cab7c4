//! `cargo xtask faults`: the fault matrix of the controllers, in release mode and on a disk in memory where there is one.
//!
//! The matrix itself is a test (`crates/controllers/tests/matrix`); this builds it, tells it what to run, and hands on its
//! table. Every failure in it names the call by which it can be run again alone.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use crate::bootstrap::Deaths;
use crate::dist;
use anyhow::{Context, Result, ensure};

const IN_MEMORY: &str = "/dev/shm";

#[derive(Debug, clap::Args)]
pub(crate) struct FaultsArgs {
    /// Every class of error at every call, instead of one in turn
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Every N-th call
    #[arg(long, value_name = "N", conflicts_with = "only")]
    every: Option<u32>,
    /// All that can happen at one call: "bootstrap 17" or "destroy 401"
    #[arg(long, value_name = "CALL")]
    only: Option<String>,
    /// One of several parts that together are the whole: 2/4 is the second quarter
    #[arg(long, value_name = "K/N", conflicts_with_all = ["all", "every", "only"], value_parser = part)]
    part: Option<(u32, u32)>,
    /// On which simulated infrastructure: proxmox, proxmox-image (machines from an image of a factory), gcp or aws
    #[arg(long, value_name = "PLACE", default_value = "proxmox", value_parser = ["proxmox", "proxmox-image", "gcp", "aws"])]
    on: String,
    /// Not the matrix: kill butleradm N times without warning, with the data centre as a process of its own
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "50", conflicts_with_all = ["all", "every", "only", "part"])]
    sigkill: Option<usize>,
    /// So many points side by side
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: u32,
    /// Seed of the simulated data centre
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A line for every point
    #[arg(long)]
    verbose: bool,
}

impl FaultsArgs {
    /// The deaths that `--sigkill` asks for.
    pub(crate) fn deaths(&self) -> Option<Deaths> {
        let parallel = usize::try_from(self.threads).unwrap_or(1);
        self.sigkill.map(|points| Deaths { points, seed: self.seed, parallel })
    }
}

/// `K/N`.
fn part(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    numbers.filter(|(part, of)| (1..=*of).contains(part)).ok_or_else(|| "write it as 2/4".to_owned())
}

/// What the test is told by its environment.
fn choice(args: &FaultsArgs) -> String {
    if let Some((part, of)) = args.part {
        return format!("part {part} {of}");
    }
    match (&args.only, args.every) {
        (Some(only), _) => only.clone(),
        (None, Some(every)) if args.all => format!("all every {every}"),
        (None, Some(every)) => format!("every {every}"),
        (None, None) if args.all => "all".to_owned(),
        (None, None) => String::new(),
    }
}

pub(crate) fn run(args: &FaultsArgs) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .arg("test")
        .args(dist::as_released())
        .args(["-p", "butler-controllers", "--test", "matrix", "--"])
        .args(["--ignored", "--exact", "--nocapture", "the_whole_matrix"])
        .env("BUTLER_FAULTS", choice(args))
        .env("BUTLER_FAULTS_THREADS", args.threads.to_string())
        .env("BUTLER_FAULTS_SEED", args.seed.to_string())
        .env("BUTLER_FAULTS_ON", &args.on)
        .stdin(Stdio::null());
    if args.verbose {
        command.env("BUTLER_FAULTS_VERBOSE", "1");
    }
    // Thousands of lives are opened and thrown away; a real disk adds nothing but its own speed.
    if env::var_os("TMPDIR").is_none() && Path::new(IN_MEMORY).is_dir() {
        command.env("TMPDIR", IN_MEMORY);
    }
    let status = command.status().context("run cargo test")?;
    ensure!(status.success(), "the fault matrix has failures; see above");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_one_word_or_two() {
        let args = |all, every, only: Option<&str>| FaultsArgs {
            all,
            every,
            only: only.map(str::to_owned),
            part: None,
            on: "proxmox".to_owned(),
            sigkill: None,
            threads: 2,
            seed: 1,
            verbose: false,
        };
        assert_eq!(choice(&args(false, None, None)), "");
        assert_eq!(choice(&args(true, None, None)), "all");
        assert_eq!(choice(&args(false, Some(17), None)), "every 17");
        assert_eq!(choice(&args(true, Some(17), None)), "all every 17");
        assert_eq!(choice(&args(false, None, Some("destroy 401"))), "destroy 401");
        assert_eq!(choice(&FaultsArgs { part: part("2/4").ok(), ..args(false, None, None) }), "part 2 4");
        assert!(["0/4", "5/4", "4", "a/b"].iter().all(|wrong| part(wrong).is_err()));
    }
}
