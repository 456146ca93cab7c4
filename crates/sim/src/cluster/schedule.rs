//! Which node takes which pod. Pure.

use super::objects::{self, Action, Objects, condition, label, list, name, namespace, text};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const REQUIRED: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
const APART: &str = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const HOST: &str = "kubernetes.io/hostname";

/// Gives every pod that waits for one a node, or says why there is none.
pub(super) fn plan(objects: &Objects, now: &str) -> Vec<Action> {
    let pods: Vec<&Arc<Value>> = objects.all(objects::PODS).filter(|pod| !is_over(pod)).collect();
    let mut load: HashMap<String, Vec<Arc<Value>>> = HashMap::new();
    for pod in &pods {
        load.entry(text(pod, "/spec/nodeName").to_string()).or_default().push((*pod).clone());
    }
    let waiting = load.remove("").unwrap_or_default();
    let mut actions = Vec::new();
    for pod in waiting.iter().filter(|pod| !objects::is_deleting(pod)) {
        let placed = match unbound_claim(objects, pod) {
            Some(why) => Err(why),
            None => choose(objects, pod, &load),
        };
        match placed {
            Ok(node) => {
                actions.push(bind(pod, &node, now));
                load.entry(node).or_default().push(pod.clone());
            }
            Err(why) => actions.extend(not_now(pod, &why, now)),
        }
    }
    actions
}

fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The node with the fewest pods among those that take this one.
fn choose(objects: &Objects, pod: &Value, load: &HashMap<String, Vec<Arc<Value>>>) -> Result<String, String> {
    let nodes: Vec<&Arc<Value>> = objects.all(objects::NODES).collect();
    let on = |node: &Value| load.get(name(node)).map(Vec::as_slice).unwrap_or_default();
    let mut tainted = 0;
    let mut crowded = 0;
    let mut best: Option<(usize, &str)> = None;
    for node in &nodes {
        if untolerated(node, &pod["spec"]) {
            tainted += 1;
        } else if !selected(node, &pod["spec"]) {
        } else if keeps_apart(pod, on(node)) {
            crowded += 1;
        } else if best.is_none_or(|(count, _)| on(node).len() < count) {
            best = Some((on(node).len(), name(node)));
        }
    }
    best.map(|(_, name)| name.to_string()).ok_or_else(|| {
        let unselected = nodes.len() - tainted - crowded;
        let mut reasons = Vec::new();
        for (count, why) in [
            (tainted, "node(s) had untolerated taint(s)"),
            (unselected, "node(s) didn't match Pod's node affinity/selector"),
            (crowded, "node(s) didn't match pod anti-affinity rules"),
        ] {
            if count > 0 {
                reasons.push(format!("{count} {why}"));
            }
        }
        let why = if reasons.is_empty() { "no nodes".to_string() } else { reasons.join(", ") };
        format!("0/{} nodes are available: {why}.", nodes.len())
    })
}

/// Whether a node takes pods of this spec at all.
pub(super) fn takes(node: &Value, spec: &Value) -> bool {
    !untolerated(node, spec) && selected(node, spec)
}

fn untolerated(node: &Value, spec: &Value) -> bool {
    let tolerations = list(spec, "/tolerations");
    let mut taints = list(node, "/spec/taints").to_vec();
    if node["spec"]["unschedulable"] == true {
        taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}));
    }
    let counts = |taint: &&Value| taint["effect"] != "PreferNoSchedule";
    taints.iter().filter(counts).any(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Whether a toleration is for a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_string();
    let effect = field(toleration, "effect");
    if !effect.is_empty() && effect != field(taint, "effect") {
        return false;
    }
    let key = field(toleration, "key");
    match field(toleration, "operator").as_str() {
        "Exists" => key.is_empty() || key == field(taint, "key"),
        _ => key == field(taint, "key") && field(toleration, "value") == field(taint, "value"),
    }
}

/// Labels and node affinity.
fn selected(node: &Value, spec: &Value) -> bool {
    let wanted = spec.get("nodeSelector").and_then(Value::as_object);
    let labelled = wanted.into_iter().flatten().all(|(key, value)| label(node, key) == value.as_str());
    let terms = list(spec, REQUIRED);
    let fits = |term: &Value| {
        let expressions = list(term, "/matchExpressions");
        let fields = list(term, "/matchFields");
        // A term that asks nothing is for nobody.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|e| matches(label(node, text(e, "/key")), e))
            && fields.iter().all(|e| matches(Some(name(node)), e))
    };
    labelled && (terms.is_empty() || terms.iter().any(fits))
}

/// One expression of a selector on the value that it asks about.
fn matches(value: Option<&str>, expression: &Value) -> bool {
    let among = || list(expression, "/values").iter().any(|v| v.as_str() == value);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = || number(list(expression, "/values").first().and_then(Value::as_str));
    match text(expression, "/operator") {
        "In" => value.is_some() && among(),
        "NotIn" => !(value.is_some() && among()),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound()).is_some_and(|(own, bound)| own > bound),
        "Lt" => number(value).zip(bound()).is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

/// Whether a label selector chooses an object.
pub(super) fn selects(selector: &Value, object: &Value) -> bool {
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    let labels = wanted.into_iter().flatten().all(|(key, value)| label(object, key) == value.as_str());
    labels && list(selector, "/matchExpressions").iter().all(|e| matches(label(object, text(e, "/key")), e))
}

/// Whether a pod will not share this node with those that are there.
fn keeps_apart(pod: &Value, there: &[Arc<Value>]) -> bool {
    let rules = list(&pod["spec"], APART).iter().filter(|rule| rule["topologyKey"] == HOST);
    let hostile = |rule: &Value| {
        there.iter().any(|other| namespace(other) == namespace(pod) && selects(&rule["labelSelector"], other))
    };
    let ports = |pod: &Value| -> Vec<(i64, String)> {
        let containers = list(pod, "/spec/containers").iter();
        let ports = containers.flat_map(|container| list(container, "/ports"));
        let host = pod["spec"]["hostNetwork"] == true;
        ports
            .filter_map(|port| {
                let number =
                    port["hostPort"].as_i64().or_else(|| port["containerPort"].as_i64().filter(|_| host))?;
                Some((number, port["protocol"].as_str().unwrap_or("TCP").to_string()))
            })
            .collect()
    };
    let own = ports(pod);
    let clash = |other: &Arc<Value>| ports(other).iter().any(|port| own.contains(port));
    rules.into_iter().any(hostile) || (!own.is_empty() && there.iter().any(clash))
}

fn unbound_claim(objects: &Objects, pod: &Value) -> Option<String> {
    for volume in list(pod, "/spec/volumes") {
        let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName").and_then(Value::as_str) else {
            continue;
        };
        match objects.get(objects::CLAIMS, namespace(pod), claim) {
            None => return Some(format!("persistentvolumeclaim {claim:?} not found")),
            Some(found) if text(found, "/status/phase") != "Bound" => {
                return Some("pod has unbound immediate PersistentVolumeClaims".to_string());
            }
            Some(_) => {}
        }
    }
    None
}

fn bind(pod: &Value, node: &str, now: &str) -> Action {
    let mut value = pod.clone();
    value["spec"]["nodeName"] = node.into();
    let old = list(pod, "/status/conditions");
    value["status"]["phase"] = "Pending".into();
    value["status"]["conditions"] = json!([condition(old, "PodScheduled", "True", "", "", now)]);
    Action::Put { collection: objects::PODS, value }
}

fn not_now(pod: &Arc<Value>, why: &str, now: &str) -> Vec<Action> {
    let old = list(pod, "/status/conditions");
    if old.iter().any(|c| c["type"] == "PodScheduled" && c["message"] == why) {
        return Vec::new();
    }
    let mut value = pod.as_ref().clone();
    value["status"]["phase"] = "Pending".into();
    value["status"]["conditions"] =
        json!([condition(old, "PodScheduled", "False", "Unschedulable", why, now)]);
    let tell = Action::Tell {
        regarding: pod.clone(),
        warning: true,
        reason: "FailedScheduling",
        message: why.to_string(),
    };
    vec![Action::Put { collection: objects::PODS, value }, tell]
}
