//! Conditions, as every kind of ours reports them.
//!
//! The type has the wire form of Kubernetes' own `metav1.Condition`; it is ours so that its limits and its help text are in
//! the CRD, and so that a message may be left out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition type: the object is what its spec asks for.
pub const CONDITION_READY: &str = "Ready";
/// Condition type: work goes on.
pub const CONDITION_PROGRESSING: &str = "Progressing";
/// Condition type: it works, but worse than it should.
pub const CONDITION_DEGRADED: &str = "Degraded";
/// Of a ClusterBootstrap: all that is to run on the new cluster does.
pub const CONDITION_ADDONS_INSTALLED: &str = "AddonsInstalled";
/// Condition type: a failure that does not go away by itself.
pub const CONDITION_FAILED: &str = "Failed";
/// Condition type of a LoadBalancerRequest: all cloud resources exist.
pub const CONDITION_PROVISIONED: &str = "Provisioned";
/// Condition type of a LoadBalancerRequest: all targets are registered.
pub const CONDITION_TARGETS_SYNCED: &str = "TargetsSynced";
/// Condition type of a MachineLoadBalancer: it asks for a protocol that is not built.
pub const CONDITION_UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows yet.
    Unknown,
}

/// One observation about an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is observed, such as Ready.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Whether it holds: True, False or Unknown.
    pub status: ConditionStatus,
    /// The generation of the spec that the observation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When the status last changed from one value to another.
    pub last_transition_time: Time,
    /// Why, as one word for programs.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Why, as a sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
}

impl Condition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Puts a condition into a list: replaces the one of its type, and keeps that one's transition time when the status has
/// not changed, since clients measure waiting by it.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// The condition of a type, if it was ever set.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(status: ConditionStatus, at: &str, reason: &str) -> Condition {
        Condition {
            type_: CONDITION_READY.to_owned(),
            status,
            observed_generation: Some(1),
            last_transition_time: Time(at.parse().unwrap()),
            reason: reason.to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn transition_time_moves_with_the_status_only() {
        let mut list = Vec::new();
        set_condition(&mut list, condition(ConditionStatus::False, "2026-03-10T12:00:00Z", "Waiting"));
        set_condition(&mut list, condition(ConditionStatus::False, "2026-03-10T12:01:00Z", "StillWaiting"));
        let found = find_condition(&list, "Ready").unwrap();
        assert_eq!((found.reason.as_str(), found.is_true()), ("StillWaiting", false));
        assert_eq!(found.last_transition_time.0.to_string(), "2026-03-10T12:00:00Z");
        set_condition(&mut list, condition(ConditionStatus::True, "2026-03-10T12:02:00Z", "Done"));
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].last_transition_time.0.to_string(), "2026-03-10T12:02:00Z");
    }
}
