//! What kubelets make of the pods on their nodes. Pure.

use super::addresses;
use super::clock::{Clock, Wait};
use super::facts::Facts;
use super::nodes::Kubelets;
use super::objects::{self, Action, Objects, condition, is_true, list, namespace, text, with_status};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far a pod has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Its containers wait, for this reason and with this message.
    Waiting(&'static str, String),
    Started,
    Ready,
    Done,
}

/// What holds for all nodes of a cluster.
pub(super) struct Surroundings<'a> {
    pub(super) kubelets: &'a Kubelets,
    /// Nodes whose pods have a network of their own.
    pub(super) networked: &'a BTreeSet<&'a str>,
    /// Images with one of these words in their name can't be pulled.
    pub(super) missing_images: &'a [String],
}

pub(super) fn plan(objects: &Objects, around: &Surroundings<'_>, clock: &mut Clock) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in objects.all(objects::PODS) {
        let Some(facts) = around.kubelets.get(text(pod, "/spec/nodeName")) else { continue };
        if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            continue;
        }
        let state = state(objects, pod, around, clock);
        if let State::Waiting(reason, message) = &state
            && !message.is_empty()
            && !list(pod, "/status/containerStatuses")
                .iter()
                .any(|c| text(c, "/state/waiting/reason") == *reason)
        {
            actions.push(Action::Tell {
                regarding: pod.clone(),
                warning: true,
                reason: if *reason == "CrashLoopBackOff" { "BackOff" } else { "Failed" },
                message: message.clone(),
            });
        }
        actions.extend(with_status(objects::PODS, pod, status(pod, facts, &state, clock.text())));
    }
    actions
}

fn state(objects: &Objects, pod: &Arc<Value>, around: &Surroundings<'_>, clock: &mut Clock) -> State {
    let uid = objects::uid(pod);
    let node = text(pod, "/spec/nodeName");
    let running = text(pod, "/status/phase") == "Running";
    let host = pod["spec"]["hostNetwork"] == true;
    if !running {
        let containers =
            ["/spec/initContainers", "/spec/containers"].into_iter().flat_map(|at| list(pod, at));
        let images = containers.map(|container| text(container, "/image"));
        let missing = |image: &&str| around.missing_images.iter().any(|word| image.contains(word.as_str()));
        if let Some(image) = images.into_iter().find(missing) {
            return State::Waiting("ImagePullBackOff", format!("Back-off pulling image {image:?}"));
        }
        if let Some(why) = missing_volume(objects, pod) {
            return State::Waiting("ContainerCreating", why);
        }
        if !host && !around.networked.contains(node) {
            return State::Waiting("ContainerCreating", String::new());
        }
        if !clock.over(Wait::PodStarts, uid) {
            return State::Waiting("ContainerCreating", String::new());
        }
    }
    if let Some(why) = addresses::cannot_run(objects, pod, around) {
        return State::Waiting("CrashLoopBackOff", why);
    }
    if !is_true(pod, "Ready") && !clock.over(Wait::PodReady, uid) {
        return State::Started;
    }
    let ends = matches!(text(pod, "/spec/restartPolicy"), "Never" | "OnFailure");
    if ends && clock.over(Wait::JobRuns, uid) { State::Done } else { State::Ready }
}

/// A Secret or ConfigMap that must be there before the pod can start.
fn missing_volume(objects: &Objects, pod: &Value) -> Option<String> {
    let space = namespace(pod);
    for volume in list(pod, "/spec/volumes") {
        for (field, by, collection, kind) in [
            ("secret", "secretName", objects::SECRETS, "secret"),
            ("configMap", "name", objects::CONFIG_MAPS, "configmap"),
        ] {
            let Some(source) = volume.get(field).filter(|source| source["optional"] != true) else {
                continue;
            };
            let wanted = source[by].as_str().unwrap_or_default();
            if !objects.has(collection, space, wanted) {
                return Some(format!(
                    "MountVolume.SetUp failed for volume {:?} : {kind} {wanted:?} not found",
                    text(volume, "/name")
                ));
            }
        }
    }
    None
}

fn status(pod: &Value, facts: &Facts, state: &State, now: &str) -> Value {
    let old = list(pod, "/status/conditions");
    let (up, ready, done) = (
        *state != State::Done && !matches!(state, State::Waiting(..)),
        *state == State::Ready,
        *state == State::Done,
    );
    let phase = match state {
        State::Waiting("CrashLoopBackOff", _) => "Running",
        State::Waiting(..) => "Pending",
        State::Started | State::Ready => "Running",
        State::Done => "Succeeded",
    };
    let truth = |yes: bool| if yes { "True" } else { "False" };
    let (reason, message) = match (ready, done) {
        (true, _) => ("", String::new()),
        (_, true) => ("PodCompleted", String::new()),
        _ => {
            let names: Vec<&str> = list(pod, "/spec/containers").iter().map(|c| text(c, "/name")).collect();
            ("ContainersNotReady", format!("containers with unready status: [{}]", names.join(" ")))
        }
    };
    let conditions = json!([
        condition(old, "PodReadyToStartContainers", truth(up), "", "", now),
        condition(old, "Initialized", truth(up || done), if done { "PodCompleted" } else { "" }, "", now),
        condition(old, "Ready", truth(ready), reason, &message, now),
        condition(old, "ContainersReady", truth(ready), reason, &message, now),
        condition(old, "PodScheduled", "True", "", "", now),
    ]);
    let started = text(pod, "/status/startTime");
    let mut status = json!({
        "phase": phase, "conditions": conditions, "qosClass": "Burstable",
        "hostIP": facts.address.to_string(), "hostIPs": [{"ip": facts.address.to_string()}],
        "startTime": if started.is_empty() { now } else { started },
    });
    if up || done {
        let ip = pod_ip(pod, facts);
        status["podIP"] = ip.as_str().into();
        status["podIPs"] = json!([{"ip": ip}]);
    }
    status["containerStatuses"] =
        containers(pod, "/spec/containers", "/status/containerStatuses", state, now);
    if !list(pod, "/spec/initContainers").is_empty() {
        let before = if up || done { &State::Done } else { state };
        status["initContainerStatuses"] =
            containers(pod, "/spec/initContainers", "/status/initContainerStatuses", before, now);
    }
    status
}

fn pod_ip(pod: &Value, facts: &Facts) -> String {
    let old = text(pod, "/status/podIP");
    if !old.is_empty() {
        return old.to_string();
    }
    if pod["spec"]["hostNetwork"] == true {
        return facts.address.to_string();
    }
    // Any address will do, so long as it stays the same and others have others.
    let mix =
        objects::uid(pod).bytes().fold(7_u32, |mix, byte| mix.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("10.244.{}.{}", (mix >> 8) & 0xff, 1 + (mix & 0xff) % 254)
}

fn containers(pod: &Value, spec: &str, status: &str, state: &State, now: &str) -> Value {
    let old = list(pod, status);
    let made = list(pod, spec).iter().map(|container| {
        let own = text(container, "/name");
        let before = old.iter().find(|status| status["name"] == own);
        let since = |field: &str| {
            let at = before.and_then(|status| status.pointer(field)).and_then(Value::as_str);
            at.unwrap_or(now).to_string()
        };
        let image = text(container, "/image");
        let waits = matches!(state, State::Waiting(..));
        let mut made = json!({
            "name": own, "image": image, "imageID": if waits { "" } else { image },
            "restartCount": 0, "ready": matches!(state, State::Ready), "started": !waits && *state != State::Done,
        });
        made["state"] = match state {
            State::Waiting(reason, message) if message.is_empty() => json!({"waiting": {"reason": reason}}),
            State::Waiting(reason, message) => json!({"waiting": {"reason": reason, "message": message}}),
            State::Started | State::Ready => json!({"running": {"startedAt": since("/state/running/startedAt")}}),
            State::Done => json!({"terminated": {
                "exitCode": 0, "reason": "Completed",
                "startedAt": since("/state/terminated/startedAt"), "finishedAt": since("/state/terminated/finishedAt"),
            }}),
        };
        if let State::Waiting("CrashLoopBackOff", message) = state {
            made["restartCount"] = 1.into();
            made["lastState"] = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": message}});
        }
        if *state == State::Done {
            made["ready"] = (spec == "/spec/initContainers").into();
        }
        if !waits {
            made["containerID"] = format!("containerd://{}-{own}", objects::uid(pod)).into();
        }
        made
    });
    Value::from(made.collect::<Vec<_>>())
}
