//! Validation across fields: what a schema cannot say.
//!
//! One pure function per kind. It reports everything that it finds, each with the path of the field, the value, the rule and
//! a remedy. Limits of single fields (ranges, patterns, enums) are in the CRDs and are not repeated here.

mod bootstrap;
mod load_balancer;
mod others;

use std::fmt;

use serde_json::Value;

use crate::{
    AddonDefinition, ButlerConfig, ClusterBootstrap, ImageSync, LoadBalancerRequest, MachineLoadBalancer,
    MachineRequest, ProviderConfig, ValueError,
};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It works, and probably not as meant.
    Warning,
    /// It cannot work.
    Error,
}

/// Something that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether it can work all the same.
    pub severity: Severity,
    /// The field, as Kubernetes writes it: `spec.listeners[0].port`.
    pub path: String,
    /// What is there; nothing when the field is missing.
    pub value: Option<String>,
    /// The rule that is broken.
    pub rule: String,
    /// What to do about it.
    pub remedy: String,
}

/// Objects that can be checked by themselves.
pub trait Validate {
    /// Everything that is wrong across the fields of the object, in the order of its fields.
    fn validate(&self) -> Vec<Problem>;
}

/// Checks an object of any of our kinds that came as JSON. `None` when the kind is not ours.
pub fn validate_object(object: &Value) -> Option<Result<Vec<Problem>, serde_json::Error>> {
    fn check<T: Validate + serde::de::DeserializeOwned>(
        object: &Value,
    ) -> Result<Vec<Problem>, serde_json::Error> {
        serde_json::from_value::<T>(object.clone()).map(|object| object.validate())
    }
    Some(match object.get("kind")?.as_str()? {
        "AddonDefinition" => check::<AddonDefinition>(object),
        "ButlerConfig" => check::<ButlerConfig>(object),
        "ClusterBootstrap" => check::<ClusterBootstrap>(object),
        "ImageSync" => check::<ImageSync>(object),
        "LoadBalancerRequest" => check::<LoadBalancerRequest>(object),
        "MachineLoadBalancer" => check::<MachineLoadBalancer>(object),
        "MachineRequest" => check::<MachineRequest>(object),
        "ProviderConfig" => check::<ProviderConfig>(object),
        _ => return None,
    })
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.severity, self.path)?;
        if let Some(value) = &self.value {
            write!(f, "{value:?}: ")?;
        }
        write!(f, "{}; {}", self.rule, self.remedy)
    }
}

/// Collects problems; the short names keep the rules readable.
#[derive(Default)]
struct Findings(Vec<Problem>);

impl Findings {
    fn error(
        &mut self,
        path: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: &str,
    ) {
        self.push(Severity::Error, path, Some(value.to_string()), rule, remedy);
    }

    fn missing(&mut self, path: impl Into<String>, rule: impl Into<String>, remedy: &str) {
        self.push(Severity::Error, path, None, rule, remedy);
    }

    fn warn(
        &mut self,
        path: impl Into<String>,
        value: impl fmt::Display,
        rule: impl Into<String>,
        remedy: &str,
    ) {
        self.push(Severity::Warning, path, Some(value.to_string()), rule, remedy);
    }

    /// Takes a parsed value, or notes why it is none.
    fn parsed<T>(&mut self, path: &str, result: Result<T, ValueError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let rule = format!("not {}: {}", error.what, error.rule);
                self.push(Severity::Error, path, Some(error.value), rule, &error.remedy);
                None
            }
        }
    }

    fn push(
        &mut self,
        severity: Severity,
        path: impl Into<String>,
        value: Option<String>,
        rule: impl Into<String>,
        remedy: &str,
    ) {
        self.0.push(Problem {
            severity,
            path: path.into(),
            value,
            rule: rule.into(),
            remedy: remedy.to_owned(),
        });
    }
}
