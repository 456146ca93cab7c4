//! `butleradm`: reads words, wires the rooms, speaks.

mod apiserver;
mod commands;
mod config;
mod crds;
mod engine;
mod exit;
mod output;
mod progress;
mod recorder;
mod sim;
mod talos;
mod validate;

use clap::{CommandFactory as _, Parser, Subcommand};
use commands::{
    bootstrap, completions, destroy, doctor, events, kubeconfig, logs, rehearse, status, support,
};
use exit::Exit;
use std::process::ExitCode;

/// Brings up a Talos Kubernetes management cluster, and the load balancer in front of its control plane.
///
/// Begin with `butleradm rehearse`: a whole bootstrap on a simulated data centre, on this machine, in seconds.
#[derive(Debug, Parser)]
#[command(name = "butleradm", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// What to log to standard error: error, warn, info, debug, trace, or a filter such as `butler_apiserver=debug`.
    #[arg(
        long,
        global = true,
        env = "BUTLER_LOG",
        default_value = "warn,kube_client=off",
        value_name = "FILTER"
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Rehearse a bootstrap on a simulated data centre in this process; without a file, a built-in example.
    Rehearse(rehearse::Args),
    /// Bring up a management cluster from a bootstrap file. The same command goes on after a crash or Ctrl-C.
    Bootstrap(bootstrap::Args),
    /// Show how far a cluster is.
    Status(status::Args),
    /// Show what the controllers have told.
    Events(events::Args),
    /// Show the flight recorder: every call to the outside, and what came of it.
    Logs(logs::Args),
    /// Print the kubeconfig of a cluster, or merge it into another.
    Kubeconfig(kubeconfig::Args),
    /// Take a cluster down, wait until everything of it is gone, and forget it.
    Destroy(destroy::Args),
    /// Look at everything that a bootstrap needs, and change nothing. Exits with 1 when a check fails.
    Doctor(doctor::Args),
    /// Pack what helps to understand a bootstrap into one file, without secrets.
    Support(support::Args),
    /// Print what a shell needs to complete this command line.
    Completions(completions::Args),
    /// Run the embedded Kubernetes API until it is told to stop (Ctrl-C or SIGTERM).
    Apiserver(apiserver::Args),
    /// Print the custom resource definitions, or write them into a directory.
    Crds(crds::Args),
    /// Simulated machines on this one, to try things out on.
    Sim(sim::Args),
    /// Talos without talosctl: configure, bootstrap and look after nodes.
    Talos(talos::Args),
    /// Check files of our kinds and bootstrap files offline: every problem at once, with line numbers. Exits with 2 when a file is bad.
    Validate(validate::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(message) = start_logging(&cli.log) {
        output::error(&message);
        return Exit::Usage.into();
    }
    // One crypto provider for the whole process; a second call can't happen here, so its error says nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match cli.command {
        Command::Rehearse(args) => rehearse::run(args).map(ExitCode::from),
        Command::Bootstrap(args) => bootstrap::run(args).map(ExitCode::from),
        Command::Status(args) => status::run(args).map(ExitCode::from),
        Command::Events(args) => events::run(args).map(ExitCode::from),
        Command::Logs(args) => logs::run(args).map(ExitCode::from),
        Command::Kubeconfig(args) => kubeconfig::run(args).map(ExitCode::from),
        Command::Destroy(args) => destroy::run(args).map(ExitCode::from),
        Command::Doctor(args) => doctor::run(args).map(ExitCode::from),
        Command::Support(args) => support::run(args).map(ExitCode::from),
        Command::Completions(args) => completions::run(&args, Cli::command()).map(ExitCode::from),
        Command::Apiserver(args) => apiserver::run(args),
        Command::Crds(args) => crds::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Talos(args) => talos::run(args),
        Command::Validate(args) => validate::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output::error(&output::chain(&error));
            Exit::of(&error).into()
        }
    }
}

fn start_logging(filter: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|e| format!("--log {filter:?} is not a log filter: {e}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}
