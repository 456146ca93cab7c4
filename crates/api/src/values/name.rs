//! Cluster names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ValueError, text_value};

/// A DNS label of 1 to 63 characters: what a cluster may be called, since most names of its parts begin with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(String);

impl ClusterName {
    /// The pattern that the CRDs carry for names of clusters and machines.
    pub const PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |rule: String, remedy: &str| Err(ValueError::new("a cluster name", text, rule, remedy));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if text.is_empty() {
            return wrong("it is empty".to_owned(), "give the cluster a name such as butler-mgmt");
        }
        if text.len() > crate::names::MAX_NAME {
            let rule = format!("it has {} characters, and 63 are allowed", text.len());
            return wrong(rule, "choose a shorter name");
        }
        if let Some(bad) = text.chars().find(|c| !plain(*c) && *c != '-') {
            let rule = format!("{bad:?} is not allowed in it");
            return wrong(rule, "use lower-case letters, digits and dashes");
        }
        if !text.starts_with(plain) || !text.ends_with(plain) {
            return wrong(
                "it begins or ends with a dash".to_owned(),
                "begin and end it with a letter or a digit",
            );
        }
        Ok(ClusterName(text.to_owned()))
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(ClusterName);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn accepts_exactly_what_the_pattern_accepts(text in "[-a-zA-Z0-9._]{0,70}") {
            let pattern = regex::Regex::new(ClusterName::PATTERN).unwrap();
            let expected = pattern.is_match(&text) && (1..=63).contains(&text.len());
            prop_assert_eq!(text.parse::<ClusterName>().is_ok(), expected);
        }

        #[test]
        fn prints_what_it_read(text in "[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?") {
            prop_assert_eq!(text.parse::<ClusterName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_value_rule_and_remedy() {
        let error = "Butler_Mgmt".parse::<ClusterName>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"Butler_Mgmt\" is not a cluster name: 'B' is not allowed in it; use lower-case letters, digits and dashes"
        );
        assert!("-a".parse::<ClusterName>().unwrap_err().rule.contains("dash"));
        assert!("".parse::<ClusterName>().unwrap_err().rule.contains("empty"));
    }

    #[test]
    fn serde_refuses_what_parsing_refuses() {
        assert!(serde_json::from_str::<ClusterName>("\"ok\"").is_ok());
        let error = serde_json::from_str::<ClusterName>("\"No\"").unwrap_err().to_string();
        assert!(error.contains("not a cluster name"), "{error}");
    }
}
