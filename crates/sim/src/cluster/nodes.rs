//! Node objects: who registers, who is ready, who is lost. Pure.

use super::clock::{Clock, Wait};
use super::facts::Facts;
use super::objects::{self, Action, Objects, condition, controller_uid, is_true, label, list, name, text};
use super::schedule;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROLE: &str = "node-role.kubernetes.io/control-plane";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Marks a workload that stands in for a product.
pub(super) const STAND_IN: &str = "butler.butlerlabs.dev/stand-in-for";

/// Machines whose kubelet can speak to the API, by node name.
pub(super) type Kubelets = BTreeMap<String, Arc<Facts>>;

/// What is to be done about nodes, and about pods on nodes that are lost.
pub(super) fn plan(objects: &Objects, kubelets: &Kubelets, clock: &mut Clock) -> Vec<Action> {
    let mut actions = Vec::new();
    let networked = networked(objects, clock);
    for (host, facts) in kubelets {
        match objects.get(objects::NODES, "", host) {
            None => {
                if clock.over(Wait::NodeRegisters, host) {
                    actions.push(Action::Create { collection: objects::NODES, value: node(objects, facts) });
                }
            }
            Some(found) => {
                let ready = networked.contains(host.as_str());
                actions.extend(changed(found, alive(found, facts, ready, clock.text())));
                actions.extend(own_pods(objects, found, facts));
            }
        }
    }
    for lost in objects.all(objects::NODES).filter(|node| !kubelets.contains_key(name(node))) {
        if clock.over(Wait::NodeLost, name(lost)) {
            actions.extend(changed(lost, silent(lost, clock.text())));
            strand(objects, lost, clock, &mut actions);
        }
    }
    collect(objects, &mut actions);
    actions
}

fn changed(old: &Arc<Value>, new: Value) -> Option<Action> {
    (**old != new).then_some(Action::Put { collection: objects::NODES, value: new })
}

/// The nodes that have a network: those on which a CNI's daemon is ready.
pub(super) fn networked<'a>(objects: &'a Objects, clock: &mut Clock) -> BTreeSet<&'a str> {
    let cnis: BTreeSet<&str> =
        objects.all(objects::DAEMON_SETS).filter(|set| is_cni(set)).map(|set| objects::uid(set)).collect();
    let mut nodes = BTreeSet::new();
    for pod in objects.all(objects::PODS) {
        let of_cni = controller_uid(pod).is_some_and(|owner| cnis.contains(owner));
        if of_cni && is_true(pod, "Ready") {
            let node = text(pod, "/spec/nodeName");
            let known = objects.get(objects::NODES, "", node).is_some_and(|node| is_true(node, "Ready"));
            if known || clock.over(Wait::NetworkReady, node) {
                nodes.insert(node);
            }
        }
    }
    nodes
}

/// Whether a DaemonSet brings the pod network: it runs on the host's own, and is known by name or by what it writes.
fn is_cni(set: &Value) -> bool {
    let spec = &set["spec"]["template"]["spec"];
    if spec["hostNetwork"] != true {
        return false;
    }
    let template = &set["spec"]["template"];
    let stands_in =
        [set, template].iter().any(|object| objects::annotation(object, STAND_IN) == Some("cilium"));
    let cilium = [set, template].iter().any(|object| label(object, "k8s-app") == Some("cilium"));
    let installs = list(spec, "/volumes").iter().any(|volume| {
        let path = text(volume, "/hostPath/path");
        path.starts_with("/opt/cni") || path.starts_with("/etc/cni/net.d")
    });
    stands_in || cilium || installs
}

/// What a kubelet registers itself with.
fn node(objects: &Objects, facts: &Facts) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": facts.hostname,
    });
    if facts.is_control_plane() {
        labels[ROLE] = "".into();
    }
    for (key, value) in facts.map("/machine/nodeLabels") {
        labels[key] = value.into();
    }
    let mut annotations = json!({"node.alpha.kubernetes.io/ttl": "0"});
    for (key, value) in facts.map("/machine/nodeAnnotations") {
        annotations[key] = value.into();
    }
    let used: BTreeSet<&str> = objects.all(objects::NODES).map(|node| text(node, "/spec/podCIDR")).collect();
    let free = (0..255).map(|n| format!("10.244.{n}.0/24")).find(|cidr| !used.contains(cidr.as_str()));
    let cidr = free.unwrap_or_default();
    let mut taints = vec![json!({"key": NOT_READY, "effect": "NoSchedule"})];
    taints.extend(own_taints(facts));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": facts.hostname, "labels": labels, "annotations": annotations},
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "taints": taints},
    })
}

fn own_taints(facts: &Facts) -> Vec<Value> {
    let mut taints = Vec::new();
    if facts.is_control_plane() && !facts.schedules_on_control_planes() {
        taints.push(json!({"key": ROLE, "effect": "NoSchedule"}));
    }
    for (key, value) in facts.map("/machine/nodeTaints") {
        let (value, effect) = value.rsplit_once(':').unwrap_or(("", &value));
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = value.into();
        }
        taints.push(taint);
    }
    taints
}

/// The node with the taints that go with its condition; others stay as they are.
fn tainted(node: &mut Value, wanted: &[(&str, &str)]) {
    let mut taints: Vec<Value> = list(node, "/spec/taints")
        .iter()
        .filter(|taint| taint["key"] != NOT_READY && taint["key"] != UNREACHABLE)
        .cloned()
        .collect();
    for (key, effect) in wanted {
        taints.push(json!({"key": key, "effect": effect}));
    }
    match node["spec"].as_object_mut() {
        Some(spec) if taints.is_empty() => {
            spec.remove("taints");
        }
        Some(spec) => {
            spec.insert("taints".to_string(), taints.into());
        }
        None => {}
    }
}

const PRESSURES: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];

/// The node as its kubelet reports it.
fn alive(found: &Value, facts: &Facts, ready: bool, now: &str) -> Value {
    let old = list(found, "/status/conditions");
    let beat = |mut made: Value| {
        let before = old.iter().find(|c| c["type"] == made["type"] && c["status"] == made["status"]);
        made["lastHeartbeatTime"] = before.map_or_else(|| now.into(), |c| c["lastHeartbeatTime"].clone());
        made
    };
    let mut conditions: Vec<Value> = PRESSURES
        .iter()
        .map(|(kind, reason, message)| beat(condition(old, kind, "False", reason, message, now)))
        .collect();
    conditions.push(beat(if ready {
        condition(old, "Ready", "True", "KubeletReady", "kubelet is posting ready status", now)
    } else {
        let message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        condition(old, "Ready", "False", "KubeletNotReady", message, now)
    }));
    let mut node = found.clone();
    node["status"]["conditions"] = conditions.into();
    node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": facts.address.to_string()},
        {"type": "Hostname", "address": facts.hostname},
    ]);
    let size = json!({"cpu": "4", "memory": "8124Mi", "pods": "110", "ephemeral-storage": "40Gi"});
    node["status"]["capacity"] = size.clone();
    node["status"]["allocatable"] = size;
    node["status"]["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 10250}});
    node["status"]["nodeInfo"] = info(facts);
    tainted(&mut node, if ready { &[] } else { &[(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")] });
    node
}

fn info(facts: &Facts) -> Value {
    let version = facts.kubernetes_version();
    let id = crate::pki::node_id(facts.address);
    json!({
        "machineID": id, "systemUUID": id, "bootID": format!("{id}-{}", facts.boot),
        "kernelVersion": "6.12.8-talos", "osImage": format!("Talos ({})", facts.version),
        "containerRuntimeVersion": "containerd://2.0.1", "kubeletVersion": version,
        "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
    })
}

/// The node as the others see it when its kubelet says nothing any more.
fn silent(found: &Value, now: &str) -> Value {
    let old = list(found, "/status/conditions");
    let kinds = PRESSURES.iter().map(|(kind, ..)| *kind).chain(["Ready"]);
    let message = "Kubelet stopped posting node status.";
    let conditions: Vec<Value> = kinds
        .map(|kind| {
            let mut made = condition(old, kind, "Unknown", "NodeStatusUnknown", message, now);
            if let Some(before) = old.iter().find(|c| c["type"] == kind) {
                made["lastHeartbeatTime"] = before["lastHeartbeatTime"].clone();
            }
            made
        })
        .collect();
    let mut node = found.clone();
    node["status"]["conditions"] = conditions.into();
    tainted(&mut node, &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]);
    node
}

/// Pods on a lost node are not ready, and are given up after a while if they do not ask to stay.
fn strand(objects: &Objects, node: &Value, clock: &mut Clock, actions: &mut Vec<Action>) {
    let gone = json!({"key": UNREACHABLE, "effect": "NoExecute"});
    for pod in objects.all(objects::PODS).filter(|pod| text(pod, "/spec/nodeName") == name(node)) {
        let tolerations = list(pod, "/spec/tolerations");
        let stays = |t: &Value| {
            schedule::tolerates(t, &gone) && t.get("tolerationSeconds").is_none_or(Value::is_null)
        };
        let mirror = objects::annotation(pod, MIRROR).is_some();
        if !mirror && !tolerations.iter().any(stays) && clock.over(Wait::PodsEvicted, objects::uid(pod)) {
            actions.push(Action::Delete { collection: objects::PODS, key: objects::key(pod) });
        } else if is_true(pod, "Ready") {
            let mut value = pod.as_ref().clone();
            if let Some(conditions) = value["status"]["conditions"].as_array_mut() {
                for ready in conditions.iter_mut().filter(|c| c["type"] == "Ready") {
                    *ready = condition(&[], "Ready", "False", "NodeNotReady", "", clock.text());
                }
            }
            actions.push(Action::Put { collection: objects::PODS, value });
        }
    }
}

/// Pods of nodes that are not there any more.
fn collect(objects: &Objects, actions: &mut Vec<Action>) {
    for pod in objects.all(objects::PODS) {
        let node = text(pod, "/spec/nodeName");
        if !node.is_empty() && !objects.has(objects::NODES, "", node) {
            actions.push(Action::Delete { collection: objects::PODS, key: objects::key(pod) });
        }
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";
const CONTROL_PLANE: [(&str, &str); 3] = [
    ("kube-apiserver", "/cluster/apiServer/image"),
    ("kube-controller-manager", "/cluster/controllerManager/image"),
    ("kube-scheduler", "/cluster/scheduler/image"),
];

/// The images of what a kubelet runs without being asked: Kubernetes' own parts, and what the configuration has in `pods`.
fn own_pods(objects: &Objects, node: &Value, facts: &Facts) -> Vec<Action> {
    let mut pods = Vec::new();
    if facts.is_control_plane() && facts.static_pods {
        for (component, image) in CONTROL_PLANE {
            let image = facts.config.value(image).and_then(Value::as_str).unwrap_or(component);
            pods.push(json!({
                "metadata": {"name": component, "namespace": "kube-system",
                    "labels": {"tier": "control-plane", "k8s-app": component}},
                "spec": {"hostNetwork": true, "priorityClassName": "system-cluster-critical",
                    "containers": [{"name": component, "image": image}]},
            }));
        }
    }
    pods.extend(facts.own_pods());
    let missing = pods.into_iter().filter_map(|mut pod| {
        let space = match text(&pod, "/metadata/namespace") {
            "" => "default".to_string(),
            space => space.to_string(),
        };
        let mirrored = format!("{}-{}", name(&pod), facts.hostname);
        if objects.has(objects::PODS, &space, &mirrored) || !objects.has(objects::NAMESPACES, "", &space) {
            return None;
        }
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["namespace"] = space.into();
        pod["metadata"]["name"] = mirrored.as_str().into();
        pod["metadata"]["annotations"][MIRROR] = crate::pki::node_id(facts.address).into();
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "name": name(node), "uid": objects::uid(node), "controller": true,
        }]);
        pod["spec"]["nodeName"] = facts.hostname.as_str().into();
        pod["spec"]["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        Some(Action::Create { collection: objects::PODS, value: pod })
    });
    missing.collect()
}
