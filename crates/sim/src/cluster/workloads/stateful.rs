//! StatefulSets: pods with numbers, one after the other, each with its own volumes.

use super::super::objects::{self, Action, counts, key, label, list, name, namespace, number, with_status};
use super::template::{self, Named};
use super::{Sight, generation, is_ready, tell_failed_create};
use serde_json::{Value, json};
use std::sync::Arc;

const KIND: (&str, &str) = ("apps/v1", "StatefulSet");
const REVISION: &str = "controller-revision-hash";
const INDEX: &str = "apps.kubernetes.io/pod-index";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

pub(super) fn plan(sight: &Sight<'_>, set: &Arc<Value>, actions: &mut Vec<Action>) {
    let wanted = number(set, "/spec/replicas").unwrap_or(1);
    let revision = format!("{}-{}", name(set), template::hash(set));
    let ordered = objects::text(set, "/spec/podManagementPolicy") != "Parallel";
    let pods = sight.active(set);
    let at = |index: i64| pods.iter().find(|pod| name(pod) == format!("{}-{index}", name(set))).copied();
    for index in 0..wanted {
        match at(index) {
            Some(pod) if ordered && !is_ready(pod) => break,
            Some(_) => {}
            None => {
                if !start(sight, set, index, &revision, actions) || ordered {
                    break;
                }
            }
        }
    }
    let surplus = pods.iter().filter(|pod| ordinal(set, pod).is_none_or(|index| index >= wanted));
    if let Some(last) = surplus.max_by_key(|pod| ordinal(set, pod)) {
        actions.push(Action::Delete { collection: objects::PODS, key: key(last) });
    }
    let all_up = (0..wanted).all(|index| at(index).is_some_and(|pod| is_ready(pod)));
    let outdated = pods.iter().filter(|pod| label(pod, REVISION) != Some(&revision));
    let next = outdated.max_by_key(|pod| (!is_ready(pod), ordinal(set, pod)));
    if let Some(next) = next.filter(|next| all_up || !is_ready(next))
        && objects::text(set, "/spec/updateStrategy/type") != "OnDelete"
    {
        actions.push(Action::Delete { collection: objects::PODS, key: key(next) });
    }
    let status = status(set, &pods, wanted, &revision);
    actions.extend(with_status(objects::STATEFUL_SETS, set, status));
}

/// Makes the volumes of one pod, and the pod. `false` when it is refused.
fn start(sight: &Sight<'_>, set: &Arc<Value>, index: i64, revision: &str, actions: &mut Vec<Action>) -> bool {
    let pod_name = format!("{}-{index}", name(set));
    let labels = [(REVISION, revision), (INDEX, &*index.to_string()), (POD_NAME, &*pod_name)];
    let mut pod = template::pod(set, KIND, &Named::As(&pod_name), &labels);
    pod["spec"]["hostname"] = pod_name.as_str().into();
    pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    template::patient(&mut pod);
    if let Some(why) = sight.refusal(set, &pod) {
        tell_failed_create(set, sight.refused.contains_key(objects::uid(set)), &why, actions);
        return false;
    }
    let mut volumes = list(&pod, "/spec/volumes").to_vec();
    for claim in list(set, "/spec/volumeClaimTemplates") {
        let claim_name = format!("{}-{pod_name}", name(claim));
        volumes.retain(|volume| volume["name"] != name(claim));
        volumes.push(json!({"name": name(claim), "persistentVolumeClaim": {"claimName": claim_name}}));
        if !sight.objects.has(objects::CLAIMS, namespace(set), &claim_name) {
            let mut metadata = json!({"name": claim_name, "namespace": namespace(set)});
            metadata["labels"] = set["spec"]["selector"]["matchLabels"].clone();
            let value = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": metadata, "spec": claim["spec"],
            });
            actions.push(Action::Create { collection: objects::CLAIMS, value });
        }
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    actions.push(Action::Create { collection: objects::PODS, value: pod });
    true
}

fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    name(pod).strip_prefix(name(set))?.strip_prefix('-')?.parse().ok()
}

fn status(set: &Value, pods: &[&Arc<Value>], wanted: i64, revision: &str) -> Value {
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let updated = pods.iter().filter(|pod| label(pod, REVISION) == Some(revision)).count();
    let over = updated == pods.len() && i64::try_from(updated) == Ok(wanted);
    let before = objects::text(set, "/status/currentRevision");
    let current = if over || before.is_empty() { revision } else { before };
    let mut status = json!({
        "observedGeneration": generation(set), "replicas": pods.len(), "collisionCount": 0,
        "currentRevision": current, "updateRevision": revision, "availableReplicas": ready,
    });
    let of_current = pods.iter().filter(|pod| label(pod, REVISION) == Some(current)).count();
    counts(
        &mut status,
        &[("readyReplicas", ready), ("currentReplicas", of_current), ("updatedReplicas", updated)],
    );
    status
}
