//! What is in the way of a bootstrap right now, and until when that is waited for. Pure.

use super::model::Snapshot;
use butler_api::{CONDITION_DEGRADED, CONDITION_PROGRESSING, Condition, find_condition};
use jiff::Timestamp;
use std::time::Duration;

/// What stands between a message and its remedy in a condition.
const REMEDY: &str = "; what to do: ";
/// What stands between a wait and its end.
const UNTIL: &str = " until ";
/// Nobody works, since nobody is to.
pub(super) const PAUSED: &str = "Paused";

/// Something that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl Obstacle {
    /// From a condition; the remedy is in its message, where there is one.
    fn of(condition: &Condition, whose: &str) -> Obstacle {
        let (message, _) = split_until(&condition.message);
        let (message, remedy) = message.split_once(REMEDY).unwrap_or((message, ""));
        let remedy = match (condition.reason.as_str(), remedy) {
            (PAUSED, _) => UNPAUSE,
            (_, "") => "look at `butleradm status` and `butleradm logs --failed`",
            (_, remedy) => remedy,
        };
        Obstacle {
            reason: condition.reason.clone(),
            message: format!("{whose}{message}"),
            remedy: remedy.to_owned(),
        }
    }
}

const UNPAUSE: &str = "set paused to false in the file, and run the same command again";

/// The obstacle that people should hear of: one that has a name before one that is only waited for.
pub(crate) fn obstacle(picture: &Snapshot) -> Option<Obstacle> {
    let status = picture.bootstrap.as_ref()?.status.clone().unwrap_or_default();
    let holds = |condition: &&Condition| condition.is_true();
    let progressing = find_condition(&status.conditions, CONDITION_PROGRESSING);
    if let Some(paused) = progressing.filter(|condition| condition.reason == PAUSED) {
        return Some(Obstacle::of(paused, ""));
    }
    if let Some(trouble) = find_condition(&status.conditions, CONDITION_DEGRADED).filter(holds) {
        return Some(Obstacle::of(trouble, ""));
    }
    let of_machines = picture.machines.iter().find_map(|(name, machine)| {
        let conditions = &machine.status.as_ref()?.conditions;
        let trouble = find_condition(conditions, CONDITION_DEGRADED).filter(holds)?;
        Some(Obstacle::of(trouble, &format!("the machine {name}: ")))
    });
    let of_balancer = picture.balancers.iter().find_map(|(name, balancer)| {
        let conditions = &balancer.status.as_ref()?.conditions;
        let trouble = find_condition(conditions, CONDITION_DEGRADED).filter(holds)?;
        Some(Obstacle::of(trouble, &format!("the load balancer {name}: ")))
    });
    of_machines.or(of_balancer).or_else(|| {
        let waits = progressing.filter(holds).filter(|condition| !condition.message.is_empty())?;
        Some(Obstacle::of(waits, ""))
    })
}

/// The current wait of a bootstrap: reason, message, and when it becomes a failure.
pub(super) fn wait(conditions: &[Condition]) -> Option<(String, String, Option<Timestamp>)> {
    let condition = find_condition(conditions, CONDITION_PROGRESSING)?;
    if condition.reason == PAUSED {
        return Some((PAUSED.to_owned(), format!("paused, nothing is done: {UNPAUSE}"), None));
    }
    if !condition.is_true() || condition.message.is_empty() {
        return None;
    }
    let (message, until) = split_until(&condition.message);
    Some((condition.reason.clone(), message.to_owned(), until))
}

/// A message without the time at its end, and that time.
pub(crate) fn split_until(message: &str) -> (&str, Option<Timestamp>) {
    let Some((before, time)) = message.rsplit_once(UNTIL) else { return (message, None) };
    match time.trim().parse::<Timestamp>() {
        // The controllers part what is waited for from the time with a semicolon.
        Ok(until) => (before.trim_end_matches(';'), Some(until)),
        Err(_) => (message, None),
    }
}

/// What is left of a wait, in words.
pub(crate) fn left(until: Option<Timestamp>, now: Timestamp) -> String {
    let Some(until) = until else { return String::new() };
    match u64::try_from(until.as_second() - now.as_second()) {
        Ok(seconds) if seconds > 0 => {
            format!(" (for {} more at most)", super::text::duration(Duration::from_secs(seconds)))
        }
        _ => " (the time for it is over)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn picture(conditions: Value, of_machine: Value) -> Snapshot {
        let pool = json!({"replicas": 1, "cpu": 1, "memoryMB": 2048, "diskGB": 20});
        let bootstrap = json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap", "metadata": {"name": "m"},
            "spec": {"provider": "proxmox", "providerRef": {"name": "p"}, "cluster": {"name": "m", "controlPlane": pool},
                "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12"}, "talos": {"version": "v1.9.2", "schematic": "s"}},
            "status": {"conditions": conditions},
        });
        let machine = json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest", "metadata": {"name": "m-cp-0"},
            "spec": {"providerRef": {"name": "p"}, "machineName": "m-cp-0", "role": "control-plane", "cpu": 1, "memoryMB": 2048, "diskGB": 20},
            "status": {"conditions": of_machine},
        });
        let mut picture =
            Snapshot { bootstrap: Some(serde_json::from_value(bootstrap).unwrap()), ..Snapshot::default() };
        picture.machines.insert("m-cp-0".to_owned(), serde_json::from_value(machine).unwrap());
        picture
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_named_obstacle_comes_before_a_wait() {
        let waits =
            condition("Progressing", "True", "MachineNotUp", "waiting for m-cp-0 until 2026-01-01T00:30:00Z");
        let refused = condition("Degraded", "True", "LoginFailed", "401; what to do: mend the token");
        let found = obstacle(&picture(json!([waits]), json!([refused]))).unwrap();
        assert_eq!(
            (found.reason.as_str(), found.message.as_str(), found.remedy.as_str()),
            ("LoginFailed", "the machine m-cp-0: 401", "mend the token")
        );
        let found = obstacle(&picture(json!([waits]), json!([]))).unwrap();
        assert_eq!((found.reason.as_str(), found.message.as_str()), ("MachineNotUp", "waiting for m-cp-0"));
        assert!(found.remedy.contains("butleradm status"));
        let paused = condition("Progressing", "False", "Paused", "waiting for spec.paused to be false");
        let found = obstacle(&picture(json!([paused]), json!([refused]))).unwrap();
        assert_eq!((found.reason.as_str(), found.remedy.as_str()), ("Paused", UNPAUSE));
        assert_eq!(obstacle(&picture(json!([]), json!([]))), None);
    }

    #[test]
    fn the_end_of_a_wait_is_told_as_what_is_left() {
        assert_eq!(split_until("waiting for a; until 2026-01-01T00:30:00Z").0, "waiting for a");
        let (message, until) = split_until("waiting for a until b; c until 2026-01-01T00:30:00Z");
        assert_eq!(message, "waiting for a until b; c");
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(left(until, at("2026-01-01T00:10:30Z")), " (for 19m30s more at most)");
        assert_eq!(left(until, at("2026-01-01T00:30:00Z")), " (the time for it is over)");
        assert_eq!(left(None, at("2026-01-01T00:30:00Z")), "");
        assert_eq!(split_until("waiting for a; until 2026-01-01T00:30:00Z"), ("waiting for a", until));
        assert_eq!(split_until("waiting until 10:30:00 for x"), ("waiting until 10:30:00 for x", None));
    }
}
