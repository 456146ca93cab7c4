//! `butleradm completions`: what shells need to complete the command line.

use crate::exit::Exit;
use crate::output;
use anyhow::Result;
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell, such as bash: `butleradm completions bash > /etc/bash_completion.d/butleradm`.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "butleradm", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Ok)
}
