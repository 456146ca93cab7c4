//! `butleradm talos validate`: checks machine configs without a node.
//!
//! ```text
//! cp-1.yaml:22:10: error: machine.network.interfaces[0].vip.ip: the shared address 10.244.0.9 lies inside 10.244.0.0/16 ...
//! ```
//!
//! Exit code 0: no errors (there may be warnings). 2: a file is bad or cannot be read.

use crate::{output, validate};
use anyhow::Result;
use butler_talos::{Contract, MachineConfig, Mode, Problem, Severity, Source, check_together, validate_text};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Machine configs; `-` is standard input. Several are also checked against each other, as nodes of one cluster.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Where the nodes run: metal installs Talos to a disk, in a cloud it is installed already.
    #[arg(long, value_enum, default_value = "metal")]
    mode: ModeArg,
    /// The Talos version that is to read the configs; by default that of each config's installer image.
    #[arg(long, value_name = "VERSION", value_parser = Contract::parse)]
    talos_version: Option<Contract>,
    /// Take warnings for errors.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    Metal,
    Cloud,
    Container,
}

const BAD: u8 = 2;

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mode = match args.mode {
        ModeArg::Metal => Mode::Metal,
        ModeArg::Cloud => Mode::Cloud,
        ModeArg::Container => Mode::Container,
    };
    let mut bad = false;
    let mut checked = Vec::new();
    for file in &args.files {
        let shown = if file == "-" { "<stdin>" } else { file };
        match validate::read(file) {
            Ok(text) => {
                let problems = validate_text(&text, mode, args.talos_version);
                checked.push((shown, MachineConfig::from_yaml(&text, None).ok(), problems));
            }
            Err(why) => {
                output::error(&format!("cannot read {shown}: {why}"));
                bad = true;
            }
        }
    }
    together(&mut checked);
    for (file, _, problems) in &checked {
        bad |= tell(file, problems, args.strict);
    }
    Ok(if bad { ExitCode::from(BAD) } else { ExitCode::SUCCESS })
}

/// Adds what the files say against each other.
fn together(checked: &mut [(&str, Option<MachineConfig>, Vec<Problem>)]) {
    let readable: Vec<(usize, MachineConfig)> = checked
        .iter()
        .enumerate()
        .filter_map(|(index, (_, config, _))| Some((index, config.clone()?)))
        .collect();
    let configs: Vec<&MachineConfig> = readable.iter().map(|(_, config)| config).collect();
    for (index, problem) in check_together(&configs) {
        if let Some((_, _, problems)) = readable.get(index).and_then(|(place, _)| checked.get_mut(*place)) {
            problems.push(problem);
        }
    }
}

/// Prints what is wrong with a file; whether it is bad.
fn tell(file: &str, problems: &[Problem], strict: bool) -> bool {
    let mut counts = [0, 0];
    for problem in problems {
        let place = problem.mark.map_or_else(String::new, |mark| format!(":{}:{}", mark.line, mark.column));
        let severity = if strict { Severity::Error } else { problem.severity };
        counts[usize::from(severity == Severity::Warning)] += 1;
        // Who would say so matters: what Talos refuses is refused, what we see fails later.
        let by = if problem.source == Source::Talos { " (Talos)" } else { "" };
        output::line(&format!("{file}{place}: {severity}: {problem}{by}"));
    }
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let [errors, warnings] = counts;
    if errors > 0 {
        output::line(&format!("{file}: {}, {}", plural(errors, "error"), plural(warnings, "warning")));
    } else {
        output::line(&format!("{file}: ok"));
    }
    errors > 0
}
