//! Deployments: one ReplicaSet per template.

use super::super::objects::{
    self, Action, annotation, condition, counts, list, name, namespace, number, owned_by, with_status,
};
use super::{Sight, generation, template};
use serde_json::{Value, json};
use std::sync::Arc;

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) fn plan(sight: &Sight<'_>, deployment: &Arc<Value>, actions: &mut Vec<Action>) {
    let wanted = number(deployment, "/spec/replicas").unwrap_or(1);
    let hash = template::hash(deployment);
    let sets = sight.replica_sets.get(objects::uid(deployment)).map(Vec::as_slice).unwrap_or_default();
    let (new, old): (Vec<&Arc<Value>>, Vec<&Arc<Value>>) =
        sets.iter().partition(|set| objects::label(set, HASH) == Some(&hash));
    let new = new.first().copied();
    let recreate = objects::text(deployment, "/spec/strategy/type") == "Recreate";
    let revision = revision(sets, new);
    let left: i64 = old.iter().map(|set| count(set, "replicas")).sum();
    match new {
        None if recreate && left > 0 => {}
        None => actions.push(Action::Create {
            collection: objects::REPLICA_SETS,
            value: replica_set(deployment, &hash, wanted, &revision),
        }),
        Some(set) if number(set, "/spec/replicas") != Some(wanted) => actions.push(scaled(set, wanted)),
        Some(_) => {}
    }
    let taken_over = new.is_some_and(|set| count(set, "availableReplicas") >= wanted);
    for set in old.iter().filter(|set| number(set, "/spec/replicas") != Some(0)) {
        if recreate || taken_over {
            actions.push(scaled(set, 0));
        }
    }
    if annotation(deployment, REVISION) != Some(&revision) {
        let mut value = deployment.as_ref().clone();
        if !value["metadata"]["annotations"].is_object() {
            value["metadata"]["annotations"] = json!({});
        }
        value["metadata"]["annotations"][REVISION] = revision.into();
        value["status"] = status(sight, deployment, sets, new, wanted);
        actions.push(Action::Put { collection: objects::DEPLOYMENTS, value });
        return;
    }
    let status = status(sight, deployment, sets, new, wanted);
    actions.extend(with_status(objects::DEPLOYMENTS, deployment, status));
}

fn count(set: &Value, field: &str) -> i64 {
    set["status"][field].as_i64().unwrap_or(0)
}

/// The number of the present template: its own, or one more than any before.
fn revision(sets: &[Arc<Value>], new: Option<&Arc<Value>>) -> String {
    let number =
        |set: &Value| annotation(set, REVISION).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let last = sets.iter().map(|set| number(set)).max().unwrap_or(0);
    new.map(|set| number(set)).filter(|own| *own > 0).unwrap_or(last + 1).to_string()
}

fn replica_set(deployment: &Value, hash: &str, replicas: i64, revision: &str) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = hash.into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.into();
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)), "namespace": namespace(deployment),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision},
            "ownerReferences": owned_by(deployment, "apps/v1", "Deployment"),
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn scaled(set: &Value, replicas: i64) -> Action {
    let mut value = set.clone();
    value["spec"]["replicas"] = replicas.into();
    value["metadata"]["generation"] = (generation(set) + 1).into();
    Action::Put { collection: objects::REPLICA_SETS, value }
}

fn status(
    sight: &Sight<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: Option<&Arc<Value>>,
    wanted: i64,
) -> Value {
    let sum =
        |field: &str| usize::try_from(sets.iter().map(|set| count(set, field)).sum::<i64>()).unwrap_or(0);
    let (all, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = new.map_or(0, |set| usize::try_from(count(set, "replicas")).unwrap_or(0));
    let target = usize::try_from(wanted).unwrap_or(0);
    let mut status = json!({"observedGeneration": generation(deployment)});
    counts(
        &mut status,
        &[
            ("replicas", all),
            ("updatedReplicas", updated),
            ("readyReplicas", ready),
            ("availableReplicas", available),
            ("unavailableReplicas", target.max(all).saturating_sub(available)),
        ],
    );
    status["conditions"] = conditions(sight, deployment, new, (all, updated, available, target));
    status
}

fn conditions(
    sight: &Sight<'_>,
    deployment: &Value,
    new: Option<&Arc<Value>>,
    (all, updated, available, target): (usize, usize, usize, usize),
) -> Value {
    let old = list(deployment, "/status/conditions");
    let now = &sight.now;
    // One may be missing out of four, as with the usual 25 %.
    let enough = available + target / 4 >= target;
    let mut conditions = vec![if enough {
        let message = "Deployment has minimum availability.";
        timed(old, "Available", "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        timed(old, "Available", "False", "MinimumReplicasUnavailable", message, now)
    }];
    let set = new.map(|set| name(set)).unwrap_or_default();
    let complete = updated == target && all == target && available == target;
    conditions.push(if complete {
        let message = format!("ReplicaSet {set:?} has successfully progressed.");
        timed(old, "Progressing", "True", "NewReplicaSetAvailable", &message, now)
    } else if new.is_some() {
        let message = format!("ReplicaSet {set:?} is progressing.");
        timed(old, "Progressing", "True", "ReplicaSetUpdated", &message, now)
    } else {
        timed(old, "Progressing", "True", "NewReplicaSetCreated", "Created new replica set", now)
    });
    let failure = new.and_then(|set| {
        list(set, "/status/conditions").iter().find(|c| c["type"] == "ReplicaFailure").cloned()
    });
    if let Some(failure) = failure {
        let message = failure["message"].as_str().unwrap_or_default();
        conditions.push(timed(old, "ReplicaFailure", "True", "FailedCreate", message, now));
    }
    Value::from(conditions)
}

/// A condition of a Deployment also says when it was last looked at.
fn timed(old: &[Value], kind: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    let mut made = condition(old, kind, status, reason, message, now);
    let same = old.iter().find(|c| c["type"] == kind && c["reason"] == reason && c["status"] == status);
    made["lastUpdateTime"] = same.map_or_else(|| now.into(), |c| c["lastUpdateTime"].clone());
    made
}
