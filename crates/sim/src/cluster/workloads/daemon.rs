//! DaemonSets: a pod on every node that takes it.

use super::super::objects::{self, Action, counts, key, label, list, name, with_status};
use super::super::schedule;
use super::template::{self, Named};
use super::{Sight, generation, is_ready, tell_failed_create};
use serde_json::{Value, json};
use std::sync::Arc;

const KIND: (&str, &str) = ("apps/v1", "DaemonSet");
const REVISION: &str = "controller-revision-hash";

pub(super) fn plan(sight: &Sight<'_>, set: &Arc<Value>, actions: &mut Vec<Action>) {
    let hash = template::hash(set);
    let model = daemon(set, &hash);
    let nodes: Vec<&Arc<Value>> =
        sight.objects.all(objects::NODES).filter(|node| schedule::takes(node, &model["spec"])).collect();
    let pods = sight.active(set);
    let on = |node: &Value| pods.iter().find(|pod| place(pod) == name(node)).copied();
    let missing: Vec<&&Arc<Value>> = nodes.iter().filter(|node| on(node).is_none()).collect();
    let refusal = if missing.is_empty() { None } else { sight.refusal(set, &model) };
    if let Some(why) = &refusal {
        // A DaemonSet has no condition to say it in: an event has to do, and one is enough.
        let known =
            sight.refused.contains_key(objects::uid(set)) || set["status"]["observedGeneration"].is_i64();
        tell_failed_create(set, known, why, actions);
    } else {
        for node in missing {
            actions.push(Action::Create { collection: objects::PODS, value: bound_for(&model, name(node)) });
        }
    }
    let homeless = pods.iter().filter(|pod| !nodes.iter().any(|node| name(node) == place(pod)));
    for pod in homeless {
        actions.push(Action::Delete { collection: objects::PODS, key: key(pod) });
    }
    let here: Vec<&Arc<Value>> = nodes.iter().filter_map(|node| on(node)).collect();
    replace_one(set, &here, &hash, actions);
    let ready = here.iter().filter(|pod| is_ready(pod)).count();
    let updated = here.iter().filter(|pod| label(pod, REVISION) == Some(&hash)).count();
    let mut status = json!({
        "currentNumberScheduled": here.len(), "desiredNumberScheduled": nodes.len(),
        "numberMisscheduled": 0, "numberReady": ready, "observedGeneration": generation(set),
    });
    counts(
        &mut status,
        &[
            ("numberAvailable", ready),
            ("numberUnavailable", nodes.len() - ready),
            ("updatedNumberScheduled", updated),
        ],
    );
    actions.extend(with_status(objects::DAEMON_SETS, set, status));
}

/// The next pod of an older template goes when all others are up.
fn replace_one(set: &Value, pods: &[&Arc<Value>], hash: &str, actions: &mut Vec<Action>) {
    if objects::text(set, "/spec/updateStrategy/type") == "OnDelete" {
        return;
    }
    let outdated = pods.iter().filter(|pod| label(pod, REVISION) != Some(hash));
    // One that is not ready can go at once: nothing is lost with it.
    let next = outdated.min_by_key(|pod| is_ready(pod));
    let others_up = |next: &Value| pods.iter().all(|pod| is_ready(pod) || name(pod) == name(next));
    if let Some(next) = next.filter(|next| !is_ready(next) || others_up(next)) {
        actions.push(Action::Delete { collection: objects::PODS, key: key(next) });
    }
}

/// The pod, but for its node.
fn daemon(set: &Value, hash: &str) -> Value {
    let mut pod = template::pod(set, KIND, &Named::Like(template::prefix(set)), &[(REVISION, hash)]);
    let host = pod["spec"]["hostNetwork"] == true;
    for (condition, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ] {
        if condition != "network-unavailable" || host {
            let key = format!("node.kubernetes.io/{condition}");
            template::add(&mut pod, json!({"key": key, "operator": "Exists", "effect": effect}));
        }
    }
    pod
}

/// For one node, in the way in which the controller tells the scheduler.
fn bound_for(model: &Value, node: &str) -> Value {
    let mut pod = model.clone();
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
    pod
}

/// The node that a daemon is on, or is meant for.
fn place(pod: &Value) -> &str {
    let node = objects::text(pod, "/spec/nodeName");
    if !node.is_empty() {
        return node;
    }
    const TERMS: &str =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let term = list(pod, TERMS).first();
    term.map(|term| objects::text(term, "/matchFields/0/values/0")).unwrap_or_default()
}
