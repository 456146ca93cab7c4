//! `butleradm`: reads words, wires the rooms, speaks.

mod apiserver;
mod crds;
mod output;
mod sim;
mod talos;
mod validate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Brings up a Talos Kubernetes management cluster, and the load balancer in front of its control plane.
#[derive(Debug, Parser)]
#[command(name = "butleradm", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    /// What to log to standard error: error, warn, info, debug, trace, or a filter such as `butler_apiserver=debug`.
    #[arg(long, global = true, env = "BUTLER_LOG", default_value = "warn", value_name = "FILTER")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the embedded Kubernetes API until it is told to stop (Ctrl-C or SIGTERM).
    Apiserver(apiserver::Args),
    /// Print the custom resource definitions, or write them into a directory.
    Crds(crds::Args),
    /// Simulated machines on this one, to try things out on.
    Sim(sim::Args),
    /// Talos without talosctl: configure, bootstrap and look after nodes.
    Talos(talos::Args),
    /// Check files of our kinds offline: every problem at once, with line numbers. Exits with 2 when a file is bad.
    Validate(validate::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(message) = start_logging(&cli.log) {
        output::error(&message);
        return ExitCode::from(2);
    }
    // One crypto provider for the whole process; a second call can't happen here, so its error says nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = match cli.command {
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
            ExitCode::FAILURE
        }
    }
}

fn start_logging(filter: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|e| format!("--log {filter:?} is not a log filter: {e}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}
