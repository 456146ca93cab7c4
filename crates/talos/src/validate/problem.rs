//! One thing that is wrong, and where.

use crate::client::masked;
use crate::config::DocumentId;
use crate::yaml::Mark;
use std::fmt;

/// Something that is wrong with a config. Its text never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    pub source: Source,
    pub document: DocumentId,
    /// Of a field, such as `machine.install.disk`; empty when it is about a whole document or config.
    pub path: String,
    pub message: String,
    /// Where in the text, when it is known.
    pub mark: Option<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Talos refuses it (or warns) when the config is applied.
    Talos,
    /// Talos takes it, and the cluster would not work.
    Butler,
}

impl Problem {
    pub(crate) fn error(source: Source, kind: &str, path: &str, message: impl Into<String>) -> Problem {
        Problem {
            severity: Severity::Error,
            source,
            document: DocumentId { kind: kind.to_owned(), name: String::new() },
            path: path.to_owned(),
            // A slip of the pen can join a secret to the value that is quoted.
            message: masked(message.into()),
            mark: None,
        }
    }

    pub(crate) fn at(mut self, mark: Mark) -> Problem {
        self.mark = Some(mark);
        self
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// `machine.install.disk: text`, with the document in front when it is not the v1alpha1 one.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !matches!(self.document.kind.as_str(), "" | "Config") {
            write!(f, "{}: ", self.document)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
