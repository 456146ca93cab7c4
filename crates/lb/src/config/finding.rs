//! What is said about a place in a file.

use std::fmt;

/// A place in a file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It can't work.
    Error,
    /// It works, and is hardly what is meant.
    Warning,
}

/// Something to say about a place in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub at: Mark,
    /// How bad.
    pub severity: Severity,
    /// Which field, and what is wrong with it.
    pub text: String,
    /// What to do about it; may be empty.
    pub help: String,
}

/// The first place of a file.
pub(super) const TOP: Mark = Mark { line: 1, column: 1 };

/// Whether something can't work.
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Everything that was found in a file, as lines to print, in the order of the file; with the sum of it when it is bad.
pub fn report(file: &str, findings: &[Finding]) -> Vec<String> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.at);
    let mut lines = Vec::new();
    for Finding { at, severity, text, help } in sorted {
        lines.push(format!("{file}:{}:{}: {severity}: {text}", at.line, at.column));
        if !help.is_empty() {
            lines.push(format!("    help: {help}"));
        }
    }
    if has_errors(findings) {
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        lines.push(format!("{file}: {}, {}", plural(errors, "error"), plural(warnings, "warning")));
    }
    lines
}

/// A number and what it counts.
pub(crate) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}
