//! Why something could not be done, in the words that a person needs at night.

use std::fmt;

/// What kind of obstacle it is; decides who has to move next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Goes away by itself: a lost connection, a 5xx, a lock that somebody holds.
    Retryable,
    /// Too many calls; the same call works later.
    Throttled,
    /// The infrastructure has no room; works once somebody makes some.
    Quota,
    /// Wrong or missing credentials or rights; works once somebody mends them.
    Auth,
    /// What was asked for can't be: only another spec helps.
    InvalidConfig,
    /// Something of that name is there and is not ours.
    Conflict,
    /// Cannot be mended.
    Terminal,
}

/// An obstacle: what, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// One word for programs, in CamelCase: `StorageFull`.
    pub reason: String,
    /// A sentence that names the operation, the object and the cause. Never a secret.
    pub message: String,
    /// What a person can do.
    pub remedy: String,
    /// Who has to move next.
    pub class: Class,
}

impl Class {
    /// Whether only a changed spec (or a removed foreign object) can help: such a failure stops a bootstrap at once.
    pub fn stops(self) -> bool {
        matches!(self, Class::InvalidConfig | Class::Conflict | Class::Terminal)
    }

    /// The name in journals.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Retryable => "retryable",
            Class::Throttled => "throttled",
            Class::Quota => "quota",
            Class::Auth => "auth",
            Class::InvalidConfig => "invalid-config",
            Class::Conflict => "conflict",
            Class::Terminal => "terminal",
        }
    }
}

impl Failure {
    /// A failure with all its parts.
    pub fn new(
        class: Class,
        reason: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { reason: reason.into(), message: message.into(), remedy: remedy.into(), class }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
