//! The only place that prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where the program speaks")]

use std::io::Write;

/// One line on standard output, there at once even when it is a pipe. A reader that has gone is no error.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Something that went wrong, on standard error.
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}

/// Something worth knowing, on standard error.
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
