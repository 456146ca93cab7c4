//! Talos versions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ValueError, text_value};

/// A released Talos version, ordered as versions are: `v1.9.2` comes before `v1.10.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TalosVersion {
    /// First number.
    pub major: u32,
    /// Second number: it decides the config contract.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl TalosVersion {
    /// The pattern that the CRDs carry.
    pub const PATTERN: &str = r"^v[0-9]+\.[0-9]+\.[0-9]+$";
}

impl FromStr for TalosVersion {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |rule: &str| ValueError::new("a Talos version", text, rule, "write it as v1.9.2");
        let rest = text.strip_prefix('v').ok_or_else(|| wrong("it does not begin with v"))?;
        let mut numbers = rest.split('.').map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if !digits {
                return Err(wrong("it has to be three numbers"));
            }
            part.parse::<u32>().map_err(|_| wrong("a number in it is too large"))
        });
        let mut next = || numbers.next().unwrap_or_else(|| Err(wrong("it has to be three numbers")));
        let version = TalosVersion { major: next()?, minor: next()?, patch: next()? };
        if numbers.next().is_some() {
            return Err(wrong("it has to be three numbers"));
        }
        Ok(version)
    }
}

impl fmt::Display for TalosVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

text_value!(TalosVersion);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(major: u32, minor: u32, patch: u32) {
            let version = TalosVersion { major, minor, patch };
            prop_assert_eq!(version.to_string().parse::<TalosVersion>().unwrap(), version);
        }

        #[test]
        fn accepts_no_more_than_the_pattern(text in "v?[0-9.v+-]{0,12}") {
            let pattern = regex::Regex::new(TalosVersion::PATTERN).unwrap();
            if text.parse::<TalosVersion>().is_ok() {
                prop_assert!(pattern.is_match(&text));
            }
        }
    }

    #[test]
    fn orders_as_versions_do() {
        assert!("v1.9.2".parse::<TalosVersion>().unwrap() < "v1.10.0".parse().unwrap());
    }

    #[test]
    fn refuses_what_is_not_a_release() {
        for text in
            ["1.9.2", "v1.9", "v1.9.2.1", "v1.9.2-alpha.1", "v1..2", "v", "v1.9.+2", "v99999999999.0.0"]
        {
            assert!(text.parse::<TalosVersion>().is_err(), "{text}");
        }
    }
}
