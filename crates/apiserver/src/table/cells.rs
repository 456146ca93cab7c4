//! Cells of built-in kinds, in the order of their columns.

use super::view::View;
use super::{age, network, pod};
use serde_json::{Value, json};

/// The cells of one object.
pub(super) fn cells(group: &str, kind: &str, object: View<'_>) -> Vec<Value> {
    match (group, kind) {
        ("", "Pod") => pod::cells(object),
        ("", "Node") => network::node_cells(object),
        ("", "Service") => network::service_cells(object),
        ("", "Endpoints") => network::endpoints_cells(object),
        ("", "PersistentVolume") => network::volume_cells(object),
        ("", "PersistentVolumeClaim") => network::claim_cells(object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice_cells(object),
        ("networking.k8s.io", "Ingress") => network::ingress_cells(object),
        ("networking.k8s.io", "IngressClass") => network::ingress_class_cells(object),
        (_, "Event") => event_cells(group, object),
        ("apps", _) | ("batch", _) | ("", "ReplicationController") => workload_cells(kind, object),
        ("storage.k8s.io", _) => storage_cells(kind, object),
        ("admissionregistration.k8s.io", _) => admission_cells(kind, object),
        ("flowcontrol.apiserver.k8s.io", _) => flow_cells(kind, object),
        _ => other_cells(group, kind, object),
    }
}

fn other_cells(group: &str, kind: &str, object: View<'_>) -> Vec<Value> {
    let name: Value = object.name().into();
    let age: Value = object.age().into();
    match (group, kind) {
        ("", "ConfigMap") => vec![name, json!(object.count("data") + object.count("binaryData")), age],
        ("", "Secret") => vec![name, object.text("type").into(), json!(object.count("data")), age],
        ("", "Namespace") => vec![name, object.text("status.phase").into(), age],
        ("", "PodTemplate") => {
            let [containers, images] = object.containers("template.spec.containers");
            vec![name, containers, images, object.labels("template.metadata.labels").into()]
        }
        ("", "ResourceQuota") => quota_cells(object),
        ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => {
            vec![name, age]
        }
        ("apiregistration.k8s.io", _) => api_service_cells(object),
        ("autoscaling", _) => autoscaler_cells(object),
        ("certificates.k8s.io", _) => signing_request_cells(object),
        ("coordination.k8s.io", "Lease") => vec![name, object.text("spec.holderIdentity").into(), age],
        ("networking.k8s.io", "NetworkPolicy") => {
            vec![name, object.selector("spec.podSelector", "<none>").into(), age]
        }
        ("networking.k8s.io", "ServiceCIDR") => vec![name, object.joined("spec.cidrs", ",").into(), age],
        ("networking.k8s.io", "IPAddress") => vec![name, parent_reference(object).into()],
        ("node.k8s.io", _) => vec![name, object.text("handler").into(), age],
        ("policy", _) => {
            let budget = |path: &str| object.words(path).unwrap_or_else(|| "N/A".into()).into();
            let allowed = json!(object.int("status.disruptionsAllowed"));
            vec![name, budget("spec.minAvailable"), budget("spec.maxUnavailable"), allowed, age]
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding_cells(object),
        ("resource.k8s.io", "ResourceClaim") => vec![name, claim_state(object).into(), age],
        ("resource.k8s.io", "ResourceSlice") => vec![
            name,
            object.text("spec.nodeName").into(),
            object.text("spec.driver").into(),
            object.text("spec.pool.name").into(),
            age,
        ],
        ("scheduling.k8s.io", "PriorityClass") => vec![
            name,
            json!(object.int("value")),
            json!(object.is_true("globalDefault")),
            age,
            object.text("preemptionPolicy").into(),
        ],
        // The time itself: clients turn it into an age.
        _ => vec![name, object.at("metadata.creationTimestamp").clone()],
    }
}

fn workload_cells(kind: &str, object: View<'_>) -> Vec<Value> {
    let name: Value = object.name().into();
    let age: Value = object.age().into();
    let number = |path: &str| json!(object.int(path));
    let [names, images] = object.containers("spec.template.spec.containers");
    let ready = || format!("{}/{}", object.int("status.readyReplicas"), object.int("spec.replicas")).into();
    let selector = |empty: &str| object.selector("spec.selector", empty).into();
    match kind {
        "Deployment" => {
            let (updated, available) = (number("status.updatedReplicas"), number("status.availableReplicas"));
            vec![name, ready(), updated, available, age, names, images, selector("")]
        }
        "StatefulSet" => vec![name, ready(), age, names, images],
        "DaemonSet" => vec![
            name,
            number("status.desiredNumberScheduled"),
            number("status.currentNumberScheduled"),
            number("status.numberReady"),
            number("status.updatedNumberScheduled"),
            number("status.numberAvailable"),
            object.labels("spec.template.spec.nodeSelector").into(),
            age,
            names,
            images,
            selector("<none>"),
        ],
        "ReplicaSet" | "ReplicationController" => {
            let chosen =
                if kind == "ReplicaSet" { selector("<none>") } else { object.labels("spec.selector").into() };
            let (wanted, there) = (number("spec.replicas"), number("status.replicas"));
            vec![name, wanted, there, number("status.readyReplicas"), age, names, images, chosen]
        }
        "Job" => {
            let mut cells = job_cells(object);
            cells.extend([names, images, selector("<none>")]);
            cells
        }
        "CronJob" => cron_job_cells(object),
        "ControllerRevision" => {
            let owner = object.list("metadata.ownerReferences").find(|owner| owner.is_true("controller"));
            vec![name, owner.map_or_else(|| "<none>".into(), owner_name).into(), number("revision"), age]
        }
        _ => vec![name, object.at("metadata.creationTimestamp").clone()],
    }
}

/// `statefulset.apps/a`.
fn owner_name(owner: View<'_>) -> String {
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

fn job_cells(job: View<'_>) -> Vec<Value> {
    let done = job.int("status.succeeded");
    let completions = match job.at("spec.completions").as_i64() {
        Some(wanted) => format!("{done}/{wanted}"),
        None if job.int("spec.parallelism") > 1 => format!("{done}/1 of {}", job.int("spec.parallelism")),
        None => format!("{done}/1"),
    };
    let end = job.text("status.completionTime").parse().unwrap_or_else(|_| job.now());
    let duration = age::between(job.at("status.startTime"), end).unwrap_or_default();
    let has = |ty: &str| job.condition(ty, "True");
    let status = match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if job.has("metadata.deletionTimestamp") => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    vec![job.name().into(), status.into(), completions.into(), duration.into(), job.age().into()]
}

fn cron_job_cells(cron: View<'_>) -> Vec<Value> {
    let suspend = match cron.at("spec.suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = if cron.has("status.lastScheduleTime") {
        cron.since("status.lastScheduleTime")
    } else {
        "<none>".into()
    };
    let [names, images] = cron.containers("spec.jobTemplate.spec.template.spec.containers");
    vec![
        cron.name().into(),
        cron.text("spec.schedule").into(),
        cron.words("spec.timeZone").unwrap_or_else(|| "<none>".into()).into(),
        suspend.into(),
        json!(cron.count("status.active")),
        last.into(),
        cron.age().into(),
        names,
        images,
        cron.selector("spec.jobTemplate.spec.selector", "<none>").into(),
    ]
}

fn event_cells(group: &str, event: View<'_>) -> Vec<Value> {
    // The two faces of an event name the same fields differently.
    let is_core = group.is_empty();
    let pick = |core: &'static str, other: &'static str| if is_core { core } else { other };
    let subject = event.part(pick("involvedObject", "regarding"));
    let first_field = pick("firstTimestamp", "deprecatedFirstTimestamp");
    let first = event.since(if event.has(first_field) { first_field } else { "eventTime" });
    let last_field = pick("lastTimestamp", "deprecatedLastTimestamp");
    let mut last = if event.has(last_field) { event.since(last_field) } else { first.clone() };
    let mut count = event.int(pick("count", "deprecatedCount")).max(1);
    if event.has("series") {
        last = event.since("series.lastObservedTime");
        count = event.int("series.count");
    }
    let kind = subject.text("kind").to_lowercase();
    let target = match subject.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = event.part(pick("source", "deprecatedSource"));
    let reporter = event.text(pick("reportingComponent", "reportingController"));
    let component = source.text_or("component", reporter);
    let instance = source.text_or("host", event.text("reportingInstance"));
    let source = if instance.is_empty() { component.to_string() } else { format!("{component}, {instance}") };
    vec![
        last.into(),
        event.text("type").into(),
        event.text("reason").into(),
        target.into(),
        subject.text("fieldPath").into(),
        source.into(),
        event.text(pick("message", "note")).trim().into(),
        first.into(),
        json!(count),
        event.name().into(),
    ]
}

fn binding_cells(binding: View<'_>) -> Vec<Value> {
    let names = |kind: &str| -> Value {
        let names: Vec<String> = binding
            .list("subjects")
            .filter(|subject| subject.text("kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
                _ => subject.text("name").to_string(),
            })
            .collect();
        names.join(", ").into()
    };
    let role = format!("{}/{}", binding.text("roleRef.kind"), binding.text("roleRef.name"));
    let age = binding.age();
    vec![
        binding.name().into(),
        role.into(),
        age.into(),
        names("User"),
        names("Group"),
        names("ServiceAccount"),
    ]
}

fn quota_cells(quota: View<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let used = quota.at("status.used");
    for (resource, amount) in quota.at("status.hard").as_object().into_iter().flatten() {
        let used = used.get(resource).and_then(Value::as_str).unwrap_or("0");
        let text = format!("{resource}: {used}/{}", amount.as_str().unwrap_or_default());
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![quota.name().into(), requests.join(", ").into(), limits.join(", ").into(), quota.age().into()]
}

fn api_service_cells(service: View<'_>) -> Vec<Value> {
    let target = if service.has("spec.service") {
        format!("{}/{}", service.text("spec.service.namespace"), service.text("spec.service.name"))
    } else {
        "Local".into()
    };
    let condition = service.list("status.conditions").find(|c| c.text("type") == "Available");
    let available = match condition {
        Some(c) if c.text("status") == "True" => "True".to_string(),
        Some(c) => format!("{} ({})", c.text("status"), c.text("reason")),
        None => "Unknown".into(),
    };
    vec![service.name().into(), target.into(), available.into(), service.age().into()]
}

fn autoscaler_cells(scaler: View<'_>) -> Vec<Value> {
    let target = scaler.part("spec.scaleTargetRef");
    vec![
        scaler.name().into(),
        format!("{}/{}", target.text("kind"), target.text("name")).into(),
        metrics(scaler).into(),
        scaler.words("spec.minReplicas").unwrap_or_else(|| "<unset>".into()).into(),
        json!(scaler.int("spec.maxReplicas")),
        json!(scaler.int("status.currentReplicas")),
        scaler.age().into(),
    ]
}

/// Current and wanted values of the first two metrics.
fn metrics(scaler: View<'_>) -> String {
    let current: Vec<View<'_>> = scaler.list("status.currentMetrics").collect();
    let all: Vec<String> = scaler
        .list("spec.metrics")
        .enumerate()
        .map(|(index, metric)| {
            let field = match metric.text("type") {
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                "Pods" => "pods",
                "Object" => "object",
                "External" => "external",
                _ => return "<unknown type>".to_string(),
            };
            let target = metric.part(field).part("target");
            let now = current.get(index).map(|status| status.part(field).part("current"));
            one_metric(field, metric.text(&format!("{field}.name")), target, now)
        })
        .collect();
    match all.len() {
        0 => "<none>".into(),
        1 | 2 => all.join(", "),
        count => format!("{} + {} more...", all[..2].join(", "), count - 2),
    }
}

fn one_metric(field: &str, name: &str, target: View<'_>, current: Option<View<'_>>) -> String {
    let now = |value: &str| current.and_then(|c| c.words(value)).unwrap_or_else(|| "<unknown>".into());
    let is_resource = matches!(field, "resource" | "containerResource");
    let prefix = if is_resource { format!("{name}: ") } else { String::new() };
    if let Some(average) = target.words("averageValue") {
        let note = if matches!(field, "object" | "external") { " (avg)" } else { "" };
        return format!("{prefix}{}/{average}{note}", now("averageValue"));
    }
    if !is_resource {
        return format!("{}/{}", now("value"), target.words("value").unwrap_or_else(|| "0".into()));
    }
    let percent =
        |value: Option<String>, other: &str| value.map_or_else(|| other.to_string(), |v| format!("{v}%"));
    let have = percent(current.and_then(|c| c.words("averageUtilization")), "<unknown>");
    format!("{prefix}{have}/{}", percent(target.words("averageUtilization"), "<auto>"))
}

fn signing_request_cells(request: View<'_>) -> Vec<Value> {
    let has = |ty: &str| request.list("status.conditions").any(|c| c.text("type") == ty);
    let mut status = if has("Denied") {
        "Denied".to_string()
    } else if has("Approved") {
        "Approved".into()
    } else {
        "Pending".into()
    };
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !request.text("status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = request.at("spec.expirationSeconds").as_i64().map(age::human);
    vec![
        request.name().into(),
        request.age().into(),
        request.text_or("spec.signerName", "<none>").into(),
        request.text("spec.username").into(),
        duration.unwrap_or_else(|| "<none>".into()).into(),
        status.into(),
    ]
}

fn parent_reference(address: View<'_>) -> String {
    let parent = address.part("spec.parentRef");
    if !address.has("spec.parentRef") {
        return "<none>".into();
    }
    let mut words = parent.text("resource").to_lowercase();
    for (separator, field) in [(".", "group"), ("/", "namespace")] {
        if !parent.text(field).is_empty() {
            words.push_str(&format!("{separator}{}", parent.text(field)));
        }
    }
    format!("{words}/{}", parent.text("name"))
}

fn claim_state(claim: View<'_>) -> String {
    let mut states = Vec::new();
    let deleted = claim.has("metadata.deletionTimestamp");
    if deleted {
        states.push("deleted");
    }
    if claim.has("status.allocation") {
        states.push("allocated");
        if claim.count("status.reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    states.join(",")
}

fn storage_cells(kind: &str, object: View<'_>) -> Vec<Value> {
    let name: Value = object.name().into();
    let age: Value = object.age().into();
    let flag = |path: &str, default: bool| json!(object.at(path).as_bool().unwrap_or(default));
    match kind {
        "StorageClass" => vec![
            network::marked(object, "storageclass.kubernetes.io/is-default-class"),
            object.text("provisioner").into(),
            object.text_or("reclaimPolicy", "Delete").into(),
            object.text_or("volumeBindingMode", "Immediate").into(),
            flag("allowVolumeExpansion", false),
            age,
        ],
        "CSIDriver" => {
            let audiences: Vec<&str> =
                object.list("spec.tokenRequests").map(|t| t.text("audience")).collect();
            let tokens =
                if object.has("spec.tokenRequests") { audiences.join(",") } else { "<unset>".into() };
            let modes = object.joined("spec.volumeLifecycleModes", ",");
            vec![
                name,
                flag("spec.attachRequired", true),
                flag("spec.podInfoOnMount", false),
                flag("spec.storageCapacity", false),
                tokens.into(),
                flag("spec.requiresRepublish", false),
                if modes.is_empty() { "<none>".into() } else { modes.into() },
                age,
            ]
        }
        "CSINode" => vec![name, json!(object.count("spec.drivers")), age],
        "VolumeAttachment" => vec![
            name,
            object.text("spec.attacher").into(),
            object.text("spec.source.persistentVolumeName").into(),
            object.text("spec.nodeName").into(),
            flag("status.attached", false),
            age,
        ],
        "VolumeAttributesClass" => vec![name, object.text("driverName").into(), age],
        _ => vec![name, object.at("metadata.creationTimestamp").clone()],
    }
}

fn admission_cells(kind: &str, object: View<'_>) -> Vec<Value> {
    let name: Value = object.name().into();
    let age: Value = object.age().into();
    if kind.ends_with("WebhookConfiguration") {
        return vec![name, json!(object.count("webhooks")), age];
    }
    if kind.ends_with("Binding") {
        let param = object.part("spec.paramRef");
        let shown = match (param.text("name"), param.text("namespace")) {
            ("", _) if param.has("selector") => param.selector("selector", ""),
            ("", _) => "<unset>".into(),
            (name, "") => format!("*/{name}"),
            (name, namespace) => format!("{namespace}/{name}"),
        };
        return vec![name, object.text("spec.policyName").into(), shown.into(), age];
    }
    let count = if kind.starts_with('M') { "spec.mutations" } else { "spec.validations" };
    let param = if object.has("spec.paramKind") {
        format!("{}/{}", object.text("spec.paramKind.apiVersion"), object.text("spec.paramKind.kind"))
    } else {
        "<unset>".into()
    };
    vec![name, json!(object.count(count)), param.into(), age]
}

fn flow_cells(kind: &str, object: View<'_>) -> Vec<Value> {
    let name: Value = object.name().into();
    let age: Value = object.age().into();
    if kind == "FlowSchema" {
        let dangling = object.list("status.conditions").find(|c| c.text("type") == "Dangling");
        return vec![
            name,
            object.text("spec.priorityLevelConfiguration.name").into(),
            json!(object.int("spec.matchingPrecedence")),
            object.text_or("spec.distinguisherMethod.type", "<none>").into(),
            age,
            dangling.map_or("?", |c| c.text("status")).into(),
        ];
    }
    let or_none = |path: &str| match object.at(path) {
        Value::Null => json!("<none>"),
        value => value.clone(),
    };
    vec![
        name,
        object.text("spec.type").into(),
        or_none("spec.limited.nominalConcurrencyShares"),
        or_none("spec.limited.limitResponse.queuing.queues"),
        or_none("spec.limited.limitResponse.queuing.handSize"),
        or_none("spec.limited.limitResponse.queuing.queueLengthLimit"),
        age,
    ]
}
