//! `butleradm validate`: checks files of our kinds, and bootstrap files, without a cluster.
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
pub(crate) mod document;
pub(crate) mod explain;
pub(crate) mod place;
pub(crate) mod repair;

use crate::config::{self, Need, Schemas, Surroundings};
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
pub(crate) struct Finding {
    pub(crate) at: Mark,
    pub(crate) severity: Severity,
    pub(crate) text: String,
    pub(crate) help: String,
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
    let (objects, findings) = match is_bootstrap_file(&text) {
        // Credentials are looked for when they are needed, not here.
        true => match Schemas::new() {
            Ok(schemas) => {
                let around = Surroundings::of(Path::new(file));
                (1, config::check(&schemas, &text, None, Need::AnyCredentials, &around).findings)
            }
            Err(error) => {
                output::error(&output::chain(&error));
                return false;
            }
        },
        false => check::check_text(kinds, &text),
    };
    report(shown, &findings).iter().for_each(|line| output::line(line));
    let errors = has_errors(&findings);
    if !errors {
        output::line(&format!("{shown}: ok ({})", plural(objects, "object")));
    }
    !errors
}

/// Whether a text is a bootstrap file rather than objects.
fn is_bootstrap_file(text: &str) -> bool {
    match document::parse(text).first() {
        Some(Ok(node)) => {
            node.get("kind").is_none() && node.get("provider").is_some() && node.get("cluster").is_some()
        }
        _ => false,
    }
}

/// Whether something can't work.
pub(crate) fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Everything that was found in a file as lines to print, in the order of the file; with the sum of it when it is bad.
pub(crate) fn report(shown: &str, findings: &[Finding]) -> Vec<String> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.at);
    let mut lines = Vec::new();
    for Finding { at, severity, text, help } in sorted {
        lines.push(format!("{shown}:{}:{}: {severity}: {text}", at.line, at.column));
        if !help.is_empty() {
            lines.push(format!("    help: {help}"));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    if has_errors(findings) {
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        lines.push(format!("{shown}: {}, {}", plural(errors, "error"), plural(warnings, "warning")));
    }
    lines
}

/// A number and what it counts.
pub(crate) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
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
