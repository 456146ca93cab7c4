//! Exit codes: documented in docs/bootstrap.md, and kept.

use std::fmt;
use std::process::ExitCode;

/// How a command ended. 0 to 4 are those that the upstream documentation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// As asked.
    Ok = 0,
    /// Something went wrong that has no code of its own.
    General = 1,
    /// The bootstrap file, an argument or an environment variable is wrong.
    Usage = 2,
    /// There is no such cluster, or not yet what was asked for of it.
    NotFound = 3,
    /// The bootstrap failed. Its state is kept; the same command goes on.
    Failed = 4,
    /// The time that `--timeout` gives was over. The state is kept; the same command goes on.
    Timeout = 5,
    /// Another command works on the same cluster.
    Busy = 6,
    /// Interrupted by Ctrl-C or SIGTERM. The state is kept; the same command goes on.
    Interrupted = 130,
}

/// An error that knows its exit code.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    text: String,
}

impl Ended {
    /// An error with this code, as an `anyhow` error.
    pub(crate) fn error(exit: Exit, text: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Ended { exit, text: text.into() })
    }
}

impl Exit {
    /// The code of an error: its own, or the general one.
    pub(crate) fn of(error: &anyhow::Error) -> Exit {
        error.downcast_ref::<Ended>().map_or(Exit::General, |ended| ended.exit)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ended {}
