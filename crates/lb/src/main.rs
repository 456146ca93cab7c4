//! `butler-lb`: reads words, wires the library, speaks.

mod cli;

use clap::Parser as _;
use cli::{Cli, Exit, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(message) = start_logging(&cli.log) {
        output::error(&message);
        return Exit::Usage.into();
    }
    // One crypto provider for the whole process; a second call can't happen here, so its error says nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    cli::run(cli).into()
}

fn start_logging(filter: &str) -> Result<(), String> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| format!("--log {filter:?} is not a log filter: {error}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}
