//! `butleradm validate`: checks files of our kinds without a cluster.
//!
//! A file goes through the same schema, defaulting and CEL rules that the embedded API uses, then through the validation
//! across fields. Everything that is found is printed at once:
//!
//! ```text
//! bootstrap.yaml:22:10: error: spec.network.vip: "10.40.0.220": lies inside spec.network.loadBalancerPool ...
//!     help: move the vip out of the pool, or make the pool smaller
//! ```
//!
//! Exit code 0: no errors (there may be warnings). 2: a file is bad or cannot be read.

mod check;
mod document;
mod explain;
mod place;
mod repair;

use crate::output;
use anyhow::Result;
use butler_api::Severity;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use check::Kinds;
use document::Mark;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of YAML (any number of documents) or JSON; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// Exit code of a bad file: clap uses the same for bad arguments.
const BAD: u8 = 2;
/// More than any sane file, and little enough to hold in memory with its marks.
const MAX_BYTES: u64 = 64 << 20;

/// Something to say about a place in a file.
#[derive(Debug, Clone, PartialEq)]
struct Finding {
    at: Mark,
    severity: Severity,
    text: String,
    help: String,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kinds = Kinds::new()?;
    let mut bad = false;
    for file in &args.files {
        bad |= !validate_file(&kinds, file);
    }
    Ok(if bad { ExitCode::from(BAD) } else { ExitCode::SUCCESS })
}

/// Prints what is wrong with a file; whether it is good.
fn validate_file(kinds: &Kinds, file: &str) -> bool {
    let shown = if file == "-" { "<stdin>" } else { file };
    let text = match read(file) {
        Ok(text) => text,
        Err(why) => {
            output::error(&format!("cannot read {shown}: {why}"));
            return false;
        }
    };
    let (objects, mut findings) = check::check_text(kinds, &text);
    findings.sort_by_key(|finding| finding.at);
    for finding in &findings {
        let Finding { at, severity, text, help } = finding;
        output::line(&format!("{shown}:{}:{}: {severity}: {text}", at.line, at.column));
        if !help.is_empty() {
            output::line(&format!("    help: {help}"));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    if errors > 0 {
        output::line(&format!("{shown}: {}, {}", plural(errors, "error"), plural(warnings, "warning")));
    } else {
        output::line(&format!("{shown}: ok ({})", plural(objects, "object")));
    }
    errors == 0
}

/// The text of a file, or of standard input (`-`), if it is not too large.
pub(crate) fn read(file: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let result = match file {
        "-" => std::io::stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes),
        path => {
            std::fs::File::open(Path::new(path)).and_then(|f| f.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        }
    };
    result.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count();
        format!("it is not UTF-8: the first bad byte is at offset {good}, line {line}")
    })
}
