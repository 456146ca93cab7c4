//! The row of a pod: its state is gathered from phase, conditions and containers.

use super::view::View;
use serde_json::Value;

/// What the containers of a pod say together.
struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    /// When a container last ended before it was restarted; RFC 3339 texts sort by time.
    last_restart: String,
}

pub(super) fn cells(pod: View<'_>) -> Vec<Value> {
    let state = state(pod);
    let restarts = if state.restarts != 0 && !state.last_restart.is_empty() {
        let time = Value::String(state.last_restart);
        format!("{} ({} ago)", state.restarts, super::age::since(&time, pod.now()))
    } else {
        state.restarts.to_string()
    };
    let ip = pod.list("status.podIPs").next().map_or("", |first| first.text("ip"));
    vec![
        pod.name().into(),
        format!("{}/{}", state.ready, state.total).into(),
        state.reason.into(),
        restarts.into(),
        pod.age().into(),
        if ip.is_empty() { "<none>" } else { ip }.into(),
        pod.text_or("spec.nodeName", "<none>").into(),
        pod.text_or("status.nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.list("spec.readinessGates");
    let total = gates.len();
    if total == 0 {
        return "<none>".into();
    }
    let open = gates.filter(|gate| pod.condition(gate.text("conditionType"), "True")).count();
    format!("{open}/{total}")
}

fn state(pod: View<'_>) -> State {
    let sidecars: Vec<&str> = pod
        .list("spec.initContainers")
        .filter(|container| container.text("restartPolicy") == "Always")
        .map(|container| container.text("name"))
        .collect();
    let mut state = State {
        reason: first_reason(pod),
        ready: 0,
        total: pod.count("spec.containers") + sidecars.len(),
        restarts: 0,
        last_restart: String::new(),
    };
    let initializing = read_init_containers(pod, &sidecars, &mut state);
    if !initializing || pod.condition("Initialized", "True") {
        read_containers(pod, &sidecars, &mut state);
    }
    if pod.has("metadata.deletionTimestamp") {
        if pod.text("status.reason") == "NodeLost" {
            state.reason = "Unknown".into();
        } else if !matches!(pod.text("status.phase"), "Succeeded" | "Failed") {
            state.reason = "Terminating".into();
        }
    }
    state
}

fn first_reason(pod: View<'_>) -> String {
    let gated = pod
        .list("status.conditions")
        .any(|c| c.text("type") == "PodScheduled" && c.text("reason") == "SchedulingGated");
    if gated {
        return "SchedulingGated".into();
    }
    pod.text_or("status.reason", pod.text("status.phase")).to_string()
}

/// Counts a container's restarts in.
fn note_restarts(container: View<'_>, state: &mut State) {
    state.restarts += container.int("restartCount");
    let ended = container.text("lastState.terminated.finishedAt");
    if ended > state.last_restart.as_str() {
        state.last_restart = ended.to_string();
    }
}

/// Looks at init containers up to the first that is not through; true if there is such a one.
fn read_init_containers(pod: View<'_>, sidecars: &[&str], state: &mut State) -> bool {
    let total = pod.count("spec.initContainers");
    for (index, container) in pod.list("status.initContainerStatuses").enumerate() {
        note_restarts(container, state);
        let ended = container.part("state.terminated");
        if container.has("state.terminated") && ended.int("exitCode") == 0 {
            continue;
        }
        if sidecars.contains(&container.text("name")) && container.is_true("started") {
            state.ready += usize::from(container.is_true("ready"));
            continue;
        }
        let waiting = container.text("state.waiting.reason");
        state.reason = if container.has("state.terminated") {
            format!("Init:{}", end_reason(ended))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{total}")
        };
        return true;
    }
    false
}

fn end_reason(ended: View<'_>) -> String {
    match (ended.text("reason"), ended.int("signal")) {
        ("", 0) => format!("ExitCode:{}", ended.int("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_string(),
    }
}

fn read_containers(pod: View<'_>, sidecars: &[&str], state: &mut State) {
    // Restarts while initializing no longer count, but those of sidecars do.
    (state.restarts, state.last_restart) = (0, String::new());
    for container in pod.list("status.initContainerStatuses") {
        if sidecars.contains(&container.text("name")) {
            note_restarts(container, state);
        }
    }
    let mut running = false;
    let mut failure = None;
    for container in pod.list("status.containerStatuses").rev() {
        note_restarts(container, state);
        let waiting = container.text("state.waiting.reason");
        let ended = container.part("state.terminated");
        if !waiting.is_empty() {
            state.reason = waiting.to_string();
        } else if container.has("state.terminated") {
            state.reason = end_reason(ended);
            if ended.int("exitCode") != 0 {
                failure = Some(state.reason.clone());
            }
        } else if container.is_true("ready") && container.has("state.running") {
            running = true;
            state.ready += 1;
        }
    }
    // One container is through, but others may go on.
    if state.reason == "Completed" {
        if running && pod.condition("Ready", "True") {
            state.reason = "Running".into();
        } else if let Some(failure) = failure {
            state.reason = failure;
        } else if running {
            state.reason = "NotReady".into();
        }
    }
}
