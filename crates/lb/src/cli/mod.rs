//! The commands of `butler-lb`.

mod ask;
mod check;
pub(crate) mod output;
mod render;
mod run;
mod show;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// L4 load balancer with a virtual IP: HAProxy and Keepalived in one process.
///
/// One file says what it does. `butler-lb check` tells what is wrong with it, `butler-lb run` does it.
#[derive(Debug, Parser)]
#[command(name = "butler-lb", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The configuration file; `-` is standard input, for check and render.
    #[arg(
        short,
        long,
        global = true,
        env = "BUTLER_LB_CONFIG",
        default_value = "/etc/butler-lb/config.yaml",
        value_name = "FILE"
    )]
    config: PathBuf,
    /// What to log to standard error: error, warn, info, debug, trace, or a filter.
    #[arg(long, global = true, env = "BUTLER_LB_LOG", default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do what the file says, until SIGTERM or Ctrl-C. SIGHUP reads the file again.
    Run,
    /// Check the file and everything that it names, without doing anything. Exits with 2 when it can't be used.
    Check,
    /// Show how the running balancer is: backends, connections, shared addresses.
    Status(show::Args),
    /// Give a backend no new connections; those that are open may stay for its deregistration delay.
    Drain(ask::DrainArgs),
    /// Read the file again, in place: no connection is refused or reset. A wrong file changes nothing.
    Reload(ask::Socket),
    /// Print what the file means as a configuration of another program.
    Render(render::Args),
    /// Print the JSON schema of the file, for editors.
    Schema,
}

/// How a command ended. Documented, and kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked.
    Ok = 0,
    /// Something went wrong that has no code of its own.
    General = 1,
    /// The file or an argument is wrong.
    Usage = 2,
    /// Nobody answers on the socket.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Does what was asked.
pub(crate) fn run(cli: Cli) -> Exit {
    match cli.command {
        Command::Run => run::run(&cli.config),
        Command::Check => check::run(&cli.config),
        Command::Status(args) => show::run(&args, &cli.config),
        Command::Drain(args) => ask::drain(&args, &cli.config),
        Command::Reload(args) => ask::reload(&args, &cli.config),
        Command::Render(args) => render::run(&args, &cli.config),
        Command::Schema => schema(),
    }
}

fn schema() -> Exit {
    match serde_json::to_string_pretty(&butler_lb::config::json_schema()) {
        Ok(text) => {
            output::line(&text);
            Exit::Ok
        }
        Err(error) => {
            output::error(&error.to_string());
            Exit::General
        }
    }
}

/// The socket of the running balancer: as named, else as the file says, else the usual one.
fn socket(named: Option<&Path>, config: &Path) -> PathBuf {
    if let Some(named) = named {
        return named.to_owned();
    }
    PathBuf::from(
        butler_lb::config::admin_socket(config).unwrap_or_else(|| butler_lb::config::Admin::default().socket),
    )
}
