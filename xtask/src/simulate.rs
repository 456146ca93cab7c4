//! `cargo xtask simulate`: the load balancer's simulation (`crates/lb/tests/simulation`) in release mode, with as many
//! schedules as asked for, or one with its story.

use anyhow::{Context, Result, ensure};
use std::process::Command;

#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Schedules, over all worlds
    #[arg(long, default_value_t = 1_000_000)]
    schedules: u64,
    /// One schedule, and what happens in it
    #[arg(long, conflicts_with = "schedules")]
    seed: Option<u64>,
    /// One world: election, detection or balance
    #[arg(long)]
    world: Option<String>,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--release", "--locked", "-p", "butler-lb", "--test", "simulation"]);
    cargo.args(args.world.as_deref()).args(["--", "--nocapture"]);
    match args.seed {
        Some(seed) => cargo.env("BUTLER_LB_SEED", seed.to_string()),
        None => cargo.env("BUTLER_LB_SCHEDULES", args.schedules.to_string()),
    };
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "a schedule failed: run it again with --seed");
    Ok(())
}
