//! Whether an object does its work, and if not, why. Pure.

use super::kinds::ObjectRef;
use serde_json::Value;

/// How far an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does its work.
    Ready,
    /// It does not yet.
    NotReady {
        /// For people: `0 of 1 replicas available`.
        why: String,
    },
}

impl Readiness {
    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        *self == Readiness::Ready
    }

    fn not(why: impl Into<String>) -> Self {
        Readiness::NotReady { why: why.into() }
    }

    fn when(ready: bool, why: impl FnOnce() -> String) -> Self {
        if ready { Readiness::Ready } else { Readiness::not(why()) }
    }
}

/// Judges an object by itself.
pub fn judge(object: &Value) -> Readiness {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Readiness::not("it is being deleted");
    }
    match object.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "Deployment" => deployment(object),
        "DaemonSet" => daemon_set(object),
        "StatefulSet" => stateful_set(object),
        "Job" => job(object),
        "Pod" => pod(object),
        "CustomResourceDefinition" => definition(object),
        "APIService" => condition(object, "Available"),
        "Node" => condition(object, "Ready"),
        "Namespace" => phase(object, "Active"),
        "PersistentVolumeClaim" => phase(object, "Bound"),
        "Service" => service(object),
        _ => ready_if_it_says_so(object),
    }
}

/// Judges a workload, and looks for the cause among its pods.
pub fn judge_with_pods<'a>(object: &Value, pods: impl IntoIterator<Item = &'a Value>) -> Readiness {
    let Readiness::NotReady { why } = judge(object) else { return Readiness::Ready };
    let causes = pods.into_iter().filter(|pod| belongs(object, pod)).filter_map(pod_trouble);
    // One cause says enough: the pods of a workload mostly fail alike.
    match causes.min() {
        Some(cause) => Readiness::not(format!("{why}; {cause}")),
        None => Readiness::not(why),
    }
}

/// `Deployment cert-manager/cert-manager-webhook`.
pub fn title(object: &Value) -> String {
    ObjectRef::of(object).map_or_else(|| "an object without a name".to_owned(), |of| of.title())
}

fn number(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or_default()
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the controller of the object has seen its newest spec.
fn seen(object: &Value) -> bool {
    number(object, "/status/observedGeneration") >= number(object, "/metadata/generation").max(1)
}

const UNSEEN: &str = "its controller has not looked at it yet";

fn wanted_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn deployment(object: &Value) -> Readiness {
    if !seen(object) {
        return Readiness::not(UNSEEN);
    }
    let wanted = wanted_replicas(object);
    let updated = number(object, "/status/updatedReplicas");
    let available = number(object, "/status/availableReplicas");
    // Says why no pod is made at all: a quota, Pod Security.
    if let Some(refused) = find_condition(object, "ReplicaFailure").filter(|found| found.status == "True") {
        return Readiness::not(format!("{available} of {wanted} replicas available; {}", refused.words()));
    }
    if updated < wanted && available > 0 {
        return Readiness::not(format!("{updated} of {wanted} replicas are of the newest version"));
    }
    let old = number(object, "/status/replicas") - updated;
    if old > 0 && available >= wanted {
        return Readiness::not(format!("{old} old replicas are still there"));
    }
    let all = available >= wanted && updated >= wanted;
    Readiness::when(all, || format!("{available} of {wanted} replicas available"))
}

fn daemon_set(object: &Value) -> Readiness {
    if !seen(object) {
        return Readiness::not(UNSEEN);
    }
    let wanted = number(object, "/status/desiredNumberScheduled");
    if wanted == 0 {
        return Readiness::not("there is no node yet that it should run on");
    }
    let updated = number(object, "/status/updatedNumberScheduled");
    if updated < wanted {
        return Readiness::not(format!("{updated} of {wanted} pods are of the newest version"));
    }
    let available = number(object, "/status/numberAvailable");
    Readiness::when(available >= wanted, || format!("{available} of {wanted} pods available"))
}

fn stateful_set(object: &Value) -> Readiness {
    if !seen(object) {
        return Readiness::not(UNSEEN);
    }
    let wanted = wanted_replicas(object);
    let ready = number(object, "/status/readyReplicas");
    if ready < wanted {
        return Readiness::not(format!("{ready} of {wanted} replicas ready"));
    }
    let (current, update) = (text(object, "/status/currentRevision"), text(object, "/status/updateRevision"));
    let updated = number(object, "/status/updatedReplicas");
    Readiness::when(current == update || updated >= wanted, || {
        format!("{updated} of {wanted} replicas are of the newest version")
    })
}

fn job(object: &Value) -> Readiness {
    if let Some(failed) = find_condition(object, "Failed").filter(|found| found.status == "True") {
        return Readiness::not(format!("it failed: {}", failed.words()));
    }
    let done = find_condition(object, "Complete").is_some_and(|found| found.status == "True");
    let wanted = object.pointer("/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    Readiness::when(done, || format!("{} of {wanted} completions", number(object, "/status/succeeded")))
}

fn pod(object: &Value) -> Readiness {
    if text(object, "/status/phase") == "Succeeded" {
        return Readiness::Ready;
    }
    let ready = find_condition(object, "Ready").is_some_and(|found| found.status == "True");
    Readiness::when(ready, || {
        pod_trouble(object).unwrap_or_else(|| format!("phase {}", text(object, "/status/phase")))
    })
}

fn definition(object: &Value) -> Readiness {
    if let Some(refused) = find_condition(object, "NamesAccepted").filter(|found| found.status == "False") {
        return Readiness::not(format!("its names are not accepted: {}", refused.words()));
    }
    condition(object, "Established")
}

fn service(object: &Value) -> Readiness {
    if text(object, "/spec/type") != "LoadBalancer" {
        return Readiness::Ready;
    }
    let addresses = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    Readiness::when(addresses.is_some_and(|all| !all.is_empty()), || "it has no address yet".to_owned())
}

fn phase(object: &Value, wanted: &str) -> Readiness {
    let is = text(object, "/status/phase");
    Readiness::when(is == wanted, || match is {
        "" => format!("not {wanted} yet"),
        other => format!("phase {other}, not {wanted}"),
    })
}

/// Kinds that nobody knows are ready unless they say that they are not.
fn ready_if_it_says_so(object: &Value) -> Readiness {
    match find_condition(object, "Ready") {
        Some(found) => Readiness::when(found.status == "True", || found.words()),
        None => Readiness::Ready,
    }
}

fn condition(object: &Value, name: &str) -> Readiness {
    match find_condition(object, name) {
        Some(found) => Readiness::when(found.status == "True", || format!("not {name}: {}", found.words())),
        None => Readiness::not(format!("not {name} yet")),
    }
}

/// A condition of an object.
struct Found<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl Found<'_> {
    fn words(&self) -> String {
        match (self.reason, self.message) {
            ("", "") => format!("status {}", self.status),
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

fn find_condition<'a>(object: &'a Value, name: &str) -> Option<Found<'a>> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| text(condition, "/type") == name)?;
    Some(Found {
        status: text(found, "/status"),
        reason: text(found, "/reason"),
        message: text(found, "/message"),
    })
}

/// Whether a pod is one of a workload's.
fn belongs(workload: &Value, pod: &Value) -> bool {
    if text(workload, "/metadata/namespace") != text(pod, "/metadata/namespace") {
        return false;
    }
    let wanted = workload.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object);
    match (wanted, labels) {
        (Some(wanted), Some(labels)) if !wanted.is_empty() => {
            wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
        }
        _ => false,
    }
}

/// What keeps a pod from working: `pod webhook-7d9-x: ImagePullBackOff: ...`. `None` when nothing is known.
fn pod_trouble(pod: &Value) -> Option<String> {
    let name = text(pod, "/metadata/name");
    let containers = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = containers.iter().filter_map(|path| pod.pointer(path)?.as_array()).flatten();
    for status in statuses {
        if let Some(cause) = container_trouble(status) {
            return Some(format!("pod {name}: {cause}"));
        }
    }
    let unscheduled = find_condition(pod, "PodScheduled").filter(|found| found.status == "False")?;
    Some(format!("pod {name}: {}", unscheduled.words()))
}

fn container_trouble(status: &Value) -> Option<String> {
    // Every pod is in one of these for a moment.
    const PASSING: [&str; 2] = ["ContainerCreating", "PodInitializing"];
    let says = |state: &str| {
        let (reason, message) =
            (text(status, &format!("{state}/reason")), text(status, &format!("{state}/message")));
        match (reason, message) {
            ("", _) => None,
            (reason, "") => Some(reason.to_owned()),
            (reason, message) => Some(format!("{reason}: {message}")),
        }
    };
    let waiting = text(status, "/state/waiting/reason");
    if !waiting.is_empty() && !PASSING.contains(&waiting) {
        return says("/state/waiting");
    }
    let exit = number(status, "/state/terminated/exitCode");
    (exit != 0).then(|| {
        let reason = says("/state/terminated").unwrap_or_else(|| "Error".to_owned());
        format!("container {} ended with {exit}: {reason}", text(status, "/name"))
    })
}
