//! The only place that prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is where the program speaks")]

use std::io::Write as _;

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

/// A file that can't be used: what was found in it has places of its own, and needs no word before them.
pub(crate) fn unusable(error: &butler_lb::config::ReadError) {
    match error {
        butler_lb::config::ReadError::Wrong { .. } => eprintln!("{error}"),
        butler_lb::config::ReadError::Unreadable { .. } => self::error(&error.to_string()),
    }
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
