//! ReplicaSets: as many pods as asked for.

use super::super::objects::{self, Action, condition, counts, key, list, number, with_status};
use super::template::{self, Named};
use super::{Sight, generation, is_ready, tell_failed_create};
use serde_json::{Value, json};
use std::sync::Arc;

const KIND: (&str, &str) = ("apps/v1", "ReplicaSet");

pub(super) fn plan(sight: &Sight<'_>, set: &Arc<Value>, actions: &mut Vec<Action>) {
    let wanted = usize::try_from(number(set, "/spec/replicas").unwrap_or(1)).unwrap_or_default();
    let mut pods = sight.active(set);
    let mut refusal = None;
    if pods.len() < wanted {
        let mut pod = template::pod(set, KIND, &Named::Like(template::prefix(set)), &[]);
        template::patient(&mut pod);
        refusal = sight.refusal(set, &pod);
        if refusal.is_none() {
            for _ in pods.len()..wanted {
                actions.push(Action::Create { collection: objects::PODS, value: pod.clone() });
            }
        }
    }
    // Those that are not ready yet are the first to go.
    pods.sort_by_key(|pod| (!is_ready(pod), objects::name(pod).to_string()));
    for pod in pods.iter().rev().take(pods.len().saturating_sub(wanted)) {
        actions.push(Action::Delete { collection: objects::PODS, key: key(pod) });
    }
    let old = list(set, "/status/conditions");
    let mut status = json!({"replicas": pods.len(), "observedGeneration": generation(set)});
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    counts(
        &mut status,
        &[("fullyLabeledReplicas", pods.len()), ("readyReplicas", ready), ("availableReplicas", ready)],
    );
    if let Some(why) = &refusal {
        let known = old.iter().any(|c| c["type"] == "ReplicaFailure" && c["message"] == *why);
        tell_failed_create(set, known, why, actions);
        status["conditions"] =
            json!([condition(old, "ReplicaFailure", "True", "FailedCreate", why, &sight.now)]);
    }
    actions.extend(with_status(objects::REPLICA_SETS, set, status));
}
