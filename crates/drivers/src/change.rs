//! One change to an infrastructure, in words: what a dry run lists and what a real run tells the flight recorder.

use crate::recorder::{Call, Outcome};
use std::fmt;

/// A change that would be, or was, made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlannedChange {
    /// `machine`, `image`.
    pub kind: String,
    /// The object's name in our words: `butler-mgmt-cp-0`.
    pub name: String,
    /// What happens to it: `clone template 9000 to VM 200 on pve1`.
    pub detail: String,
}

impl PlannedChange {
    pub(crate) fn new(kind: &str, name: &str, detail: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), name: name.to_owned(), detail: detail.into() }
    }

    /// The change that a recorded call made; `None` for calls that read, that failed, or that went elsewhere.
    ///
    /// A lost answer counts as no change, although the change may have been made.
    pub fn from_call(call: &Call) -> Option<Self> {
        if !call.mutates || !matches!(call.outcome, Outcome::Ok(_)) {
            return None;
        }
        let (head, detail) = call.object.split_once(": ")?;
        let (kind, name) = head.split_once(' ')?;
        Some(Self::new(kind, name, detail))
    }
}

impl fmt::Display for PlannedChange {
    /// The form that goes into [`Call::object`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.name, self.detail)
    }
}
