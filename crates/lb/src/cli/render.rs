//! `butler-lb render`.

use super::{Exit, output};
use butler_lb::config::load;
use butler_lb::render::{haproxy, keepalived};
use std::path::Path;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// For which program.
    program: Program,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Program {
    /// haproxy.cfg: the listeners.
    Haproxy,
    /// keepalived.conf: the shared addresses.
    Keepalived,
}

pub(super) fn run(args: &Args, file: &Path) -> Exit {
    let config = match load(file) {
        Ok(loaded) => loaded.config,
        Err(error) => {
            output::unusable(&error);
            return Exit::Usage;
        }
    };
    let text = match args.program {
        Program::Haproxy => haproxy(&config),
        Program::Keepalived => keepalived(&config),
    };
    match text {
        Ok(text) => {
            output::line(text.trim_end());
            Exit::Ok
        }
        Err(error) => {
            output::error(&error.to_string());
            Exit::General
        }
    }
}
