//! Defaults and checks of kinds that need only a few: networking, storage, admission, policy, scheduling.

use super::common::{at, child, empty, fill, fill_all, is_blank, items, items_mut, present, text};
use crate::status::FieldError;
use serde_json::{Value, json};

/// Defaults of one object.
pub(super) fn default_other(kind: &str, object: &mut Value) {
    match kind {
        "NetworkPolicy" => default_network_policy(child(object, "spec")),
        "StorageClass" | "CSIDriver" | "PersistentVolume" | "PersistentVolumeClaim" => {
            default_storage(kind, object);
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            items_mut(object, "webhooks").for_each(|webhook| default_webhook(webhook, kind.starts_with('M')));
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => default_policy(child(object, "spec")),
        "HorizontalPodAutoscaler" => default_autoscaler(child(object, "spec")),
        "IngressClass" => {
            if let Some(parameters) = present(child(object, "spec"), "parameters") {
                fill(parameters, "scope", json!("Cluster"));
            }
        }
        "FlowSchema" => fill(child(object, "spec"), "matchingPrecedence", json!(1000)),
        "PriorityLevelConfiguration" => {
            if let Some(limited) = present(child(object, "spec"), "limited") {
                fill_all(limited, [("nominalConcurrencyShares", json!(30)), ("lendablePercent", json!(0))]);
            }
        }
        "ResourceClaim" => default_device_requests(child(object, "spec")),
        "PriorityClass" => fill(object, "preemptionPolicy", json!("PreemptLowerPriority")),
        "EndpointSlice" => {
            items_mut(object, "endpoints").for_each(|endpoint| {
                child(endpoint, "conditions");
            });
            items_mut(object, "ports").for_each(|port| {
                fill(port, "protocol", json!("TCP"));
                if let Some(fields) = port.as_object_mut() {
                    fields.entry("name").or_insert_with(|| json!(""));
                }
            });
        }
        "Endpoints" => {
            for subset in items_mut(object, "subsets") {
                items_mut(subset, "ports").for_each(|port| fill(port, "protocol", json!("TCP")));
            }
        }
        "APIService" => {
            if let Some(service) = present(child(object, "spec"), "service") {
                fill(service, "port", json!(443));
            }
        }
        "LimitRange" => items_mut(child(object, "spec"), "limits").for_each(default_limit),
        "Node" => default_node(object),
        _ => {}
    }
}

fn default_storage(kind: &str, object: &mut Value) {
    match kind {
        "StorageClass" => {
            fill_all(object, [("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))]);
        }
        "CSIDriver" => fill_all(
            child(object, "spec"),
            [
                ("attachRequired", json!(true)),
                ("podInfoOnMount", json!(false)),
                ("storageCapacity", json!(false)),
                ("requiresRepublish", json!(false)),
                ("seLinuxMount", json!(false)),
                ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
                ("volumeLifecycleModes", json!(["Persistent"])),
            ],
        ),
        "PersistentVolume" => {
            let spec = child(object, "spec");
            fill_all(
                spec,
                [("persistentVolumeReclaimPolicy", json!("Retain")), ("volumeMode", json!("Filesystem"))],
            );
            if let Some(path) = present(spec, "hostPath").and_then(Value::as_object_mut) {
                path.entry("type").or_insert_with(|| json!(""));
            }
        }
        "PersistentVolumeClaim" => default_claim(child(object, "spec")),
        _ => {}
    }
}

fn default_network_policy(spec: &mut Value) {
    for direction in ["ingress", "egress"] {
        for rule in items_mut(spec, direction) {
            items_mut(rule, "ports").for_each(|port| fill(port, "protocol", json!("TCP")));
        }
    }
    if is_blank(at(spec, "policyTypes")) {
        let both = at(spec, "egress").is_array();
        spec["policyTypes"] = if both { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

fn default_webhook(webhook: &mut Value, mutating: bool) {
    fill_all(
        webhook,
        [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", empty()),
            ("objectSelector", empty()),
            ("timeoutSeconds", json!(10)),
        ],
    );
    if mutating {
        fill(webhook, "reinvocationPolicy", json!("Never"));
    }
    items_mut(webhook, "rules").for_each(|rule| fill(rule, "scope", json!("*")));
    if let Some(service) = present(webhook, "clientConfig").and_then(|client| present(client, "service")) {
        fill(service, "port", json!(443));
    }
}

/// A container's default limit is its maximum, and its default request is its default limit, then its minimum.
fn default_limit(limit: &mut Value) {
    if text(limit, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let source = at(limit, from).clone();
        for (resource, amount) in source.as_object().into_iter().flatten() {
            fill(child(limit, to), resource, amount.clone());
        }
    }
}

/// The older and the newer field for a claim's source say the same.
fn default_claim(spec: &mut Value) {
    fill(spec, "volumeMode", json!("Filesystem"));
    let source = at(spec, "dataSource").clone();
    if source.is_object() {
        fill(spec, "dataSourceRef", source);
    }
}

fn default_policy(spec: &mut Value) {
    fill(spec, "failurePolicy", json!("Fail"));
    if let Some(rules) = present(spec, "matchConstraints") {
        fill_all(
            rules,
            [
                ("matchPolicy", json!("Equivalent")),
                ("namespaceSelector", empty()),
                ("objectSelector", empty()),
            ],
        );
        items_mut(rules, "resourceRules").for_each(|rule| fill(rule, "scope", json!("*")));
    }
}

/// Without metrics, a scaler keeps processors at eighty per cent.
fn default_autoscaler(spec: &mut Value) {
    fill(spec, "minReplicas", json!(1));
    if is_blank(at(spec, "metrics")) {
        spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    }
    let Some(behavior) = present(spec, "behavior") else { return };
    let quick = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    let up = child(behavior, "scaleUp");
    fill_all(
        up,
        [
            ("stabilizationWindowSeconds", json!(0)),
            ("selectPolicy", json!("Max")),
            ("policies", json!([quick("Pods", 4), quick("Percent", 100)])),
        ],
    );
    let down = child(behavior, "scaleDown");
    fill_all(down, [("selectPolicy", json!("Max")), ("policies", json!([quick("Percent", 100)]))]);
}

fn default_device_requests(spec: &mut Value) {
    for request in present(spec, "devices").into_iter().flat_map(|devices| items_mut(devices, "requests")) {
        if let Some(exact) = present(request, "exactly") {
            fill(exact, "allocationMode", json!("ExactCount"));
            if exact["allocationMode"] == "ExactCount" {
                fill(exact, "count", json!(1));
            }
        }
    }
}

fn default_node(node: &mut Value) {
    let capacity = at(node, "status.capacity").clone();
    if !is_blank(&capacity) {
        fill(child(node, "status"), "allocatable", capacity);
    }
    let spec = child(node, "spec");
    let single = at(spec, "podCIDR").clone();
    if !is_blank(&single) && is_blank(at(spec, "podCIDRs")) {
        spec["podCIDRs"] = json!([single]);
    }
}

/// The few checks that catch most mistakes.
pub(super) fn validate_other(kind: &str, object: &Value) -> Vec<FieldError> {
    let spec = at(object, "spec");
    let mut errors = Vec::new();
    match kind {
        "Ingress" => return validate_ingress(spec),
        "StorageClass" if text(object, "provisioner").is_empty() => {
            errors.push(FieldError::required("provisioner", ""));
        }
        "PersistentVolumeClaim" => {
            if items(spec, "accessModes").is_empty() {
                let why = "at least 1 access mode is required";
                errors.push(FieldError::required("spec.accessModes", why));
            }
            if is_blank(at(spec, "resources.requests.storage")) {
                errors.push(FieldError::required("spec.resources[storage]", ""));
            }
        }
        "Lease" => {
            let positive = |name: &str, least: i64, why: &str| {
                let value = at(spec, name);
                value
                    .as_i64()
                    .filter(|number| *number < least)
                    .map(|_| FieldError::invalid(format!("spec.{name}"), value.clone(), why))
            };
            errors.extend(positive("leaseDurationSeconds", 1, "must be greater than 0"));
            errors.extend(positive("leaseTransitions", 0, "must be greater than or equal to 0"));
        }
        "Node" => {
            let valid = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            for (index, taint) in items(spec, "taints").iter().enumerate() {
                let effect = text(taint, "effect");
                if !valid.contains(&effect) {
                    // The real server names a field under metadata here, though taints are in the spec.
                    let field = format!("metadata.taints[{index}].effect");
                    errors.push(FieldError::not_supported(field, effect.into(), &valid));
                }
            }
        }
        "HorizontalPodAutoscaler" if at(spec, "maxReplicas").as_i64().unwrap_or_default() < 1 => {
            let shown = at(spec, "maxReplicas").as_i64().unwrap_or_default();
            errors.push(FieldError::invalid("spec.maxReplicas", shown.into(), "must be greater than 0"));
        }
        _ => {}
    }
    errors
}

fn validate_ingress(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items(spec, "rules").is_empty() && at(spec, "defaultBackend").is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", Value::Null, why));
    }
    for (index, rule) in items(spec, "rules").iter().enumerate() {
        for (number, path) in items(rule, "http.paths").iter().enumerate() {
            let field = format!("spec.rules[{index}].http.paths[{number}]");
            match text(path, "pathType") {
                "" => errors
                    .push(FieldError::required(format!("{field}.pathType"), "pathType must be specified")),
                "Exact" | "Prefix" | "ImplementationSpecific" => {}
                other => errors.push(FieldError::not_supported(
                    format!("{field}.pathType"),
                    other.into(),
                    &["Exact", "ImplementationSpecific", "Prefix"],
                )),
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: &str, mut object: Value) -> Value {
        default_other(kind, &mut object);
        object
    }

    #[test]
    fn defaults_of_the_real_server() {
        let policy =
            made("NetworkPolicy", json!({"spec": {"ingress": [{"ports": [{"port": 80}]}], "egress": [{}]}}));
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["protocol"], "TCP");
        let policy = made("NetworkPolicy", json!({"spec": {"podSelector": {}}}));
        assert_eq!(policy["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
        let hooks = made(
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"clientConfig": {"service": {"name": "s"}}, "rules": [{}]}]}),
        );
        assert_eq!(
            hooks["webhooks"][0],
            json!({"clientConfig": {"service": {"name": "s", "port": 443}}, "rules": [{"scope": "*"}],
                "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "timeoutSeconds": 10, "reinvocationPolicy": "Never"})
        );
        let limits =
            made("LimitRange", json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}));
        assert_eq!(
            limits["spec"]["limits"][0],
            json!({"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}})
        );
        let slice = made("EndpointSlice", json!({"endpoints": [{}], "ports": [{"port": 80}]}));
        assert_eq!(slice["ports"][0], json!({"name": "", "protocol": "TCP", "port": 80}));
        assert_eq!(
            made("Node", json!({"spec": {"podCIDR": "10.0.0.0/24"}}))["spec"]["podCIDRs"],
            json!(["10.0.0.0/24"])
        );
    }

    #[test]
    fn refusals_are_worded_as_the_real_server_words_them() {
        let words = |kind: &str, object: Value| -> Vec<String> {
            validate_other(kind, &object).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            words("Lease", json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
            ]
        );
        assert_eq!(words("StorageClass", json!({})), ["provisioner: Required value"]);
        assert_eq!(
            words("Ingress", json!({"spec": {}})),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
        assert_eq!(
            words("PersistentVolumeClaim", json!({"spec": {}})),
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources[storage]: Required value"
            ]
        );
    }
}
