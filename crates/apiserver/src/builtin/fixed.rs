//! Fields that stay as they were when the object was made.

use super::common::{at, is_blank, remove, same, text};
use crate::status::FieldError;
use serde_json::Value;

const FIXED: &str = "field is immutable";

/// Fields of a kind that an update must not change.
fn fixed_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("storage.k8s.io", "StorageClass") => {
            &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"]
        }
        ("storage.k8s.io", "VolumeAttachment") => &["spec"],
        ("storage.k8s.io", "VolumeAttributesClass") => &["driverName", "parameters"],
        ("scheduling.k8s.io", "PriorityClass") => &["preemptionPolicy"],
        ("node.k8s.io", "RuntimeClass") => &["handler"],
        ("networking.k8s.io", "IngressClass") => &["spec.controller"],
        ("discovery.k8s.io", "EndpointSlice") => &["addressType"],
        ("batch", "Job") => &["spec.completions", "spec.selector", "spec.template", "spec.completionMode"],
        ("apps", "ControllerRevision") => &["data"],
        _ => &[],
    }
}

pub(super) fn validate_fixed(group: &str, kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if (group, kind) == ("scheduling.k8s.io", "PriorityClass") && at(new, "value") != at(old, "value") {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    for field in fixed_fields(group, kind) {
        // A job that waits may still get other completions and another template.
        let waits = kind == "Job" && is_changeable_job(field, new, old);
        if !waits && !same(at(new, field), at(old, field)) {
            errors.push(FieldError::invalid(*field, at(new, field).clone(), FIXED));
        }
    }
    if (group, kind) == ("", "PersistentVolumeClaim") {
        errors.extend(validate_claim(at(new, "spec"), old));
    }
    errors
}

fn is_changeable_job(field: &str, new: &Value, old: &Value) -> bool {
    match field {
        "spec.completions" => {
            // Elastic indexed jobs grow and shrink by changing both numbers together.
            let spec = at(new, "spec");
            text(spec, "completionMode") == "Indexed" && at(spec, "completions") == at(spec, "parallelism")
        }
        "spec.template" => at(old, "spec.suspend") == true && is_blank(at(old, "status.startTime")),
        _ => false,
    }
}

/// A claim may be given its class and volume once; a bound one may grow.
fn validate_claim(spec: &Value, old: &Value) -> Option<FieldError> {
    let before = at(old, "spec");
    let bound = text(old, "status.phase") == "Bound";
    let strip = |spec: &Value| {
        let mut spec = spec.clone();
        for name in ["storageClassName", "volumeName"] {
            if is_blank(at(before, name)) {
                remove(&mut spec, name);
            }
        }
        if bound {
            remove(&mut spec, "volumeAttributesClassName");
            if let Some(resources) = spec.get_mut("resources") {
                remove(resources, "requests");
            }
        }
        spec
    };
    let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    (strip(spec) != strip(before)).then(|| FieldError::forbidden("spec", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(group: &str, kind: &str, new: Value, old: Value) -> Vec<String> {
        validate_fixed(group, kind, &new, &old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn refusals_are_worded_as_the_real_server_words_them() {
        assert_eq!(
            words(
                "storage.k8s.io",
                "StorageClass",
                json!({"provisioner": "y", "parameters": {"a": "b"}}),
                json!({"provisioner": "x"})
            ),
            [
                "parameters: Invalid value: {\"a\":\"b\"}: field is immutable",
                "provisioner: Invalid value: \"y\": field is immutable"
            ]
        );
        assert_eq!(
            words("scheduling.k8s.io", "PriorityClass", json!({"value": 6}), json!({"value": 5})),
            ["value: Forbidden: may not be changed in an update."]
        );
        assert!(words("", "ConfigMap", json!({"data": 1}), json!({"data": 2})).is_empty());
    }

    #[test]
    fn claims_grow_only_when_bound() {
        let claim = |storage: &str, class: Option<&str>, phase: &str| {
            json!({"spec": {"resources": {"requests": {"storage": storage}}, "storageClassName": class},
                "status": {"phase": phase}})
        };
        let check = |new: Value, old: Value| words("", "PersistentVolumeClaim", new, old).len();
        assert_eq!(check(claim("2Gi", None, "Pending"), claim("1Gi", None, "Pending")), 1);
        assert_eq!(check(claim("2Gi", None, "Bound"), claim("1Gi", None, "Bound")), 0);
        assert_eq!(check(claim("1Gi", Some("x"), "Pending"), claim("1Gi", None, "Pending")), 0);
        assert_eq!(check(claim("1Gi", Some("x"), "Pending"), claim("1Gi", Some("y"), "Pending")), 1);
    }

    #[test]
    fn only_a_waiting_job_gets_another_template() {
        let job =
            |image: &str, suspend: bool| json!({"spec": {"template": {"image": image}, "suspend": suspend}});
        assert_eq!(words("batch", "Job", job("y", false), job("x", false)).len(), 1);
        assert_eq!(words("batch", "Job", job("y", true), job("x", true)).len(), 0);
    }
}
