//! `butleradm talos`: Talos without talosctl.

mod apply;
mod bootstrap;
pub(crate) mod files;
mod r#gen;
mod health;
mod kubeconfig;
mod reach;
mod reset;
mod validate;

use anyhow::Result;
use clap::Subcommand;
use std::future::Future;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the configs of all nodes of a cluster, with its secrets, talosconfig and kubeconfig. Needs no node.
    Gen(Box<r#gen::Args>),
    /// Check machine configs offline: every problem at once, with line numbers. Exits with 2 when a file is bad.
    Validate(validate::Args),
    /// Give nodes their machine config: to new ones in maintenance mode, to configured ones with the talosconfig.
    Apply(apply::Args),
    /// Start etcd on one control plane, once; refuses when any other may have it already.
    Bootstrap(bootstrap::Args),
    /// Fetch the administrator's kubeconfig from a control plane.
    Kubeconfig(kubeconfig::Args),
    /// Wait until nodes are healthy: services, etcd votes, one and the same etcd cluster, clocks.
    Health(health::Args),
    /// Wipe nodes.
    Reset(reset::Args),
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Gen(args) => r#gen::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Apply(args) => run_async(apply::run(args)),
        Command::Bootstrap(args) => run_async(bootstrap::run(args)),
        Command::Kubeconfig(args) => run_async(kubeconfig::run(args)),
        Command::Health(args) => run_async(health::run(args)),
        Command::Reset(args) => run_async(reset::run(args)),
    }
}

fn run_async(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
