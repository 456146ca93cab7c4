//! Pods and pod templates: the defaults that every workload's template gets, and the checks that catch most mistakes.

use super::common::{at, child, fill, fill_all, items, items_mut, present, text};
use super::metadata::{invalid, label_problems};
use crate::status::{FieldError, FieldProblem};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Defaults of a pod spec.
pub(super) fn default_pod_spec(spec: &mut Value) {
    fill_all(
        spec,
        [
            ("restartPolicy", json!("Always")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("dnsPolicy", json!("ClusterFirst")),
            ("schedulerName", json!("default-scheduler")),
        ],
    );
    child(spec, "securityContext");
    // The two names of the service account are one field.
    for (from, to) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        let name = text(spec, from).to_string();
        if !name.is_empty() {
            fill(spec, to, name.into());
        }
    }
    for name in ["initContainers", "containers"] {
        items_mut(spec, name).for_each(default_container);
    }
    items_mut(spec, "volumes").for_each(default_volume);
}

/// Defaults of a pod alone, not of a template.
pub(super) fn default_pod(pod: &mut Value) {
    let spec = child(pod, "spec");
    default_pod_spec(spec);
    fill(spec, "enableServiceLinks", json!(true));
    let on_host = at(spec, "hostNetwork") == true;
    // What is limited but not requested is requested to its limit.
    for name in ["initContainers", "containers"] {
        for container in items_mut(spec, name) {
            let limits = at(container, "resources.limits").clone();
            for (resource, amount) in limits.as_object().into_iter().flatten() {
                fill(child(child(container, "resources"), "requests"), resource, amount.clone());
            }
            // On the host's network, a container's ports are the host's.
            for port in items_mut(container, "ports").filter(|_| on_host) {
                let number = at(port, "containerPort").clone();
                fill(port, "hostPort", number);
            }
        }
    }
}

/// What the admission plugins of a real server add to a new pod, but for the volume with its service account's token,
/// which only a kubelet could fill.
pub(super) fn admit_pod(pod: &mut Value) {
    let class = quality_of_service(pod);
    pod["status"]["qosClass"] = class.into();
    let spec = child(pod, "spec");
    fill_all(
        spec,
        [
            ("priority", json!(0)),
            ("preemptionPolicy", json!("PreemptLowerPriority")),
            ("serviceAccountName", json!("default")),
        ],
    );
    let account = at(spec, "serviceAccountName").clone();
    fill(spec, "serviceAccount", account);
    if !at(spec, "tolerations").is_array() {
        spec["tolerations"] = json!([]);
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = items(spec, "tolerations").iter().any(|toleration| {
            (text(toleration, "key").is_empty() || text(toleration, "key") == key)
                && matches!(text(toleration, "effect"), "" | "NoExecute")
        });
        if !tolerated && let Some(list) = spec["tolerations"].as_array_mut() {
            list.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

/// `Guaranteed` if every container requests just what it is limited to, `BestEffort` if none asks for anything.
fn quality_of_service(pod: &Value) -> &'static str {
    let containers: Vec<&Value> =
        ["initContainers", "containers"].iter().flat_map(|list| items(at(pod, "spec"), list)).collect();
    let amount = |container: &Value, kind: &str, resource: &str| {
        at(at(container, "resources"), kind)[resource].clone()
    };
    let resources = ["cpu", "memory"];
    let asks = containers.iter().any(|container| {
        resources
            .iter()
            .any(|r| !amount(container, "requests", r).is_null() || !amount(container, "limits", r).is_null())
    });
    let exact = containers.iter().all(|container| {
        resources.iter().all(|r| {
            let limit = amount(container, "limits", r);
            !limit.is_null() && limit == amount(container, "requests", r)
        })
    });
    match (asks, exact) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn default_container(container: &mut Value) {
    child(container, "resources");
    let image = text(container, "image");
    let pull = if is_latest(image) { "Always" } else { "IfNotPresent" };
    fill_all(
        container,
        [
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("imagePullPolicy", json!(pull)),
        ],
    );
    for port in items_mut(container, "ports") {
        fill(port, "protocol", json!("TCP"));
    }
    for variable in items_mut(container, "env") {
        let Some(from) = present(variable, "valueFrom") else { continue };
        if let Some(field) = present(from, "fieldRef") {
            fill(field, "apiVersion", json!("v1"));
        }
        if let Some(resource) = present(from, "resourceFieldRef") {
            fill(resource, "divisor", json!("0"));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = present(container, name) {
            default_probe(probe);
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(get) = present(container, "lifecycle")
            .and_then(|lifecycle| present(lifecycle, name))
            .and_then(|hook| present(hook, "httpGet"))
        {
            default_http_get(get);
        }
    }
}

/// No tag, or the tag `latest`, and no digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn default_probe(probe: &mut Value) {
    for (name, number) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if at(probe, name).as_i64().unwrap_or_default() == 0 {
            probe[name] = number.into();
        }
    }
    if let Some(get) = present(probe, "httpGet") {
        default_http_get(get);
    }
    if let Some(grpc) = present(probe, "grpc") {
        let grpc = grpc.as_object_mut();
        grpc.into_iter().for_each(|grpc| {
            grpc.entry("service").or_insert_with(|| json!(""));
        });
    }
}

fn default_http_get(get: &mut Value) {
    fill_all(get, [("path", json!("/")), ("scheme", json!("HTTP"))]);
}

fn default_volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|fields| fields.keys().any(|name| name != "name"));
    if !has_source {
        volume["emptyDir"] = json!({});
    }
    for name in ["configMap", "secret", "downwardAPI", "projected"] {
        if let Some(source) = present(volume, name) {
            fill(source, "defaultMode", json!(420));
        }
    }
    if let Some(path) = present(volume, "hostPath").and_then(Value::as_object_mut) {
        path.entry("type").or_insert_with(|| json!(""));
    }
    if let Some(claim) =
        present(volume, "ephemeral").and_then(|source| present(source, "volumeClaimTemplate"))
    {
        child(claim, "metadata");
        fill(child(claim, "spec"), "volumeMode", json!("Filesystem"));
    }
    let field_refs = |items: &mut Value| {
        for item in items_mut(items, "items") {
            if let Some(field) = present(item, "fieldRef") {
                fill(field, "apiVersion", json!("v1"));
            }
        }
    };
    if let Some(source) = present(volume, "downwardAPI") {
        field_refs(source);
    }
    for source in
        present(volume, "projected").into_iter().flat_map(|projected| items_mut(projected, "sources"))
    {
        if let Some(token) = present(source, "serviceAccountToken") {
            fill(token, "expirationSeconds", json!(3600));
        }
        if let Some(downward) = present(source, "downwardAPI") {
            field_refs(downward);
        }
    }
}

/// The checks of a pod spec at `field`. `claims` are volumes that the workload adds to each of its pods.
pub(super) fn validate_pod_spec(spec: &Value, field: &str, claims: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut volumes: BTreeSet<&str> =
        items(spec, "volumes").iter().map(|volume| text(volume, "name")).collect();
    volumes.extend(claims);
    let mut names = BTreeSet::new();
    for (list, is_main) in [("initContainers", false), ("containers", true)] {
        let containers = items(spec, list);
        if is_main && containers.is_empty() {
            errors.push(FieldError::required(format!("{field}.{list}"), ""));
        }
        for (index, container) in containers.iter().enumerate() {
            let place = format!("{field}.{list}[{index}]");
            errors.extend(validate_container(container, &volumes, &place));
            let name = text(container, "name");
            if !name.is_empty() && !names.insert(name) {
                errors.push(FieldError::new(
                    FieldProblem::Duplicate,
                    format!("{place}.name"),
                    name.into(),
                    "",
                ));
            }
        }
    }
    let policy = text(spec, "restartPolicy");
    if !matches!(policy, "" | "Always" | "OnFailure" | "Never") {
        let valid = ["Always", "Never", "OnFailure"];
        errors.push(FieldError::not_supported(format!("{field}.restartPolicy"), policy.into(), &valid));
    }
    errors
}

fn validate_container(container: &Value, volumes: &BTreeSet<&str>, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(container, "name") {
        "" => errors.push(FieldError::required(format!("{field}.name"), "")),
        name => errors.extend(invalid(&format!("{field}.name"), name, label_problems(name))),
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{field}.image"), ""));
    }
    for (index, port) in items(container, "ports").iter().enumerate() {
        let place = format!("{field}.ports[{index}].containerPort");
        match at(port, "containerPort").as_i64().unwrap_or_default() {
            0 => errors.push(FieldError::required(place, "")),
            1..=65535 => {}
            number => {
                errors.push(FieldError::invalid(
                    place,
                    number.into(),
                    "must be between 1 and 65535, inclusive",
                ));
            }
        }
    }
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let place = format!("{field}.volumeMounts[{index}]");
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{place}.name"), ""));
        } else if !volumes.contains(name) {
            errors.push(FieldError::new(FieldProblem::NotFound, format!("{place}.name"), name.into(), ""));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{place}.mountPath"), ""));
        }
    }
    errors
}

/// Most of a pod can't change once it is there.
pub(super) fn validate_pod_update(pod: &Value, old: &Value) -> Vec<FieldError> {
    const ALLOWED: [&str; 5] = [
        "activeDeadlineSeconds",
        "terminationGracePeriodSeconds",
        "tolerations",
        "nodeName",
        "schedulingGates",
    ];
    let strip = |pod: &Value| {
        let mut spec = at(pod, "spec").clone();
        if let Some(fields) = spec.as_object_mut() {
            ALLOWED.iter().for_each(|name| {
                fields.remove(*name);
            });
        }
        for name in ["initContainers", "containers"] {
            for container in items_mut(&mut spec, name) {
                container["image"] = Value::Null;
            }
        }
        spec
    };
    if strip(pod) == strip(old) {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        "spec",
        "pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_get_the_defaults_of_the_real_server() {
        let mut spec = json!({
            "containers": [
                {"name": "c", "image": "x", "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": 80}},
                 "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
                {"name": "d", "image": "r:5000/x:1"}],
            "initContainers": [{"name": "i", "image": "y@sha256:abc"}],
            "volumes": [{"name": "v", "configMap": {"name": "q"}}, {"name": "no"}, {"name": "h", "hostPath": {"path": "/x"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        });
        default_pod_spec(&mut spec);
        let common = |name: &str, image: &str, pull: &str| {
            json!({"name": name, "image": image, "resources": {}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": pull})
        };
        assert_eq!(spec["containers"][1], common("d", "r:5000/x:1", "IfNotPresent"));
        assert_eq!(spec["initContainers"][0], common("i", "y@sha256:abc", "IfNotPresent"));
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(
            spec["containers"][0]["livenessProbe"],
            json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(
            spec["volumes"],
            json!([{"name": "v", "configMap": {"name": "q", "defaultMode": 420}}, {"name": "no", "emptyDir": {}},
                {"name": "h", "hostPath": {"path": "/x", "type": ""}},
                {"name": "p", "projected": {"defaultMode": 420,
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}])
        );
        assert_eq!(spec["dnsPolicy"], "ClusterFirst");
        assert_eq!(spec["securityContext"], json!({}));
    }

    #[test]
    fn a_pod_requests_what_it_limits() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
        default_pod(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(pod["spec"]["enableServiceLinks"], true);
    }

    #[test]
    fn a_new_pod_is_admitted() {
        let admitted = |resources: Value| {
            let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}, "status": {}});
            admit_pod(&mut pod);
            pod
        };
        let pod = admitted(json!({}));
        assert_eq!(pod["status"]["qosClass"], "BestEffort");
        assert_eq!(pod["spec"]["serviceAccount"], "default");
        let keys: Vec<&str> = items(&pod, "spec.tolerations").iter().map(|t| text(t, "key")).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            admitted(json!({"limits": limits, "requests": limits}))["status"]["qosClass"],
            "Guaranteed"
        );
        assert_eq!(admitted(json!({"limits": limits}))["status"]["qosClass"], "Burstable");
    }

    #[test]
    fn mistakes_are_named() {
        let spec = json!({"containers": [
            {"name": "A_", "image": "x", "volumeMounts": [{"name": "no", "mountPath": "/x"}], "ports": [{"containerPort": 0}]},
            {"name": "b", "image": "y"}, {"name": "b"}]});
        let words: Vec<String> =
            validate_pod_spec(&spec, "spec", &[]).iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), 5, "{words:?}");
        assert!(
            words[0]
                .starts_with("spec.containers[0].name: Invalid value: \"A_\": a lowercase RFC 1123 label")
        );
        assert_eq!(words[1], "spec.containers[0].ports[0].containerPort: Required value");
        assert_eq!(words[2], "spec.containers[0].volumeMounts[0].name: Not found: \"no\"");
        assert_eq!(words[3], "spec.containers[2].image: Required value");
        assert_eq!(words[4], "spec.containers[2].name: Duplicate value: \"b\"");
    }

    #[test]
    fn running_pods_change_only_a_little() {
        let old = json!({"spec": {"containers": [{"name": "c", "image": "x"}]}});
        let mut new = old.clone();
        new["spec"]["containers"][0]["image"] = json!("y");
        assert!(validate_pod_update(&new, &old).is_empty());
        new["spec"]["hostNetwork"] = json!(true);
        assert_eq!(validate_pod_update(&new, &old).len(), 1);
    }
}
