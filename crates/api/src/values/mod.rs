//! Values that are parsed once, at the door, and are right ever after.
//!
//! The custom resources keep the text as the user wrote it, with accessors that parse: a stored value that is wrong must
//! fail the one thing that needs it, and not make the whole object undecodable for every controller that watches it.

mod address;
pub(crate) use address::address_slip;
mod endpoint;
mod name;
mod version;

pub use address::{AddressRange, Cidr};
pub use endpoint::Endpoint;
pub use name::ClusterName;
pub use version::TalosVersion;

/// A text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {what}: {rule}; {remedy}")]
pub struct ValueError {
    /// What was expected: "a CIDR".
    pub what: &'static str,
    /// The text as it was given.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
    /// What to write instead.
    pub remedy: String,
}

impl ValueError {
    pub(crate) fn new(
        what: &'static str,
        value: &str,
        rule: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ValueError {
        ValueError { what, value: value.to_owned(), rule: rule.into(), remedy: remedy.into() }
    }
}

/// Serde and text conversions that all newtypes share, so that a value can be a field, a map key or an argument.
macro_rules! text_value {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = $crate::ValueError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}
pub(crate) use text_value;
