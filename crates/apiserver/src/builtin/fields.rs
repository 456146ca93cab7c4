//! Which fields of built-in kinds a field selector may name, and what they compare as.

use crate::resource::Resource;
use serde_json::Value;

/// Selectable fields beside metadata.name and metadata.namespace.
pub(crate) fn selectable_fields(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "Namespace") => &["status.phase"],
        ("", "Node") => &["spec.unschedulable"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["status.replicas"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        ("resource.k8s.io", "ResourceSlice") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// What a selectable field of an object compares as: a missing field is its zero value in words.
pub fn field_value(resource: &Resource, object: &Value, field: &str) -> String {
    match (resource.kind.as_str(), field) {
        ("Event", "source") => {
            let component = words(at(object, "source.component"));
            if component.is_empty() { words(at(object, "reportingComponent")) } else { component }
        }
        ("Job", "status.successful") => number(at(object, "status.succeeded")),
        (_, "status.replicas") => number(at(object, field)),
        (_, "spec.unschedulable" | "spec.hostNetwork") => {
            at(object, field).and_then(Value::as_bool).unwrap_or_default().to_string()
        }
        ("Pod", "status.podIPs") => words(object.pointer("/status/podIPs/0/ip")),
        _ => words(at(object, field)),
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, name| value.get(name))
}

fn words(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn number(value: Option<&Value>) -> String {
    value.and_then(Value::as_i64).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resources;
    use serde_json::json;

    #[test]
    fn missing_fields_compare_as_zero_values() {
        let all = resources();
        let find = |kind: &str| all.iter().find(|r| r.kind == kind && r.group.is_empty()).unwrap();
        assert_eq!(field_value(find("Node"), &json!({}), "spec.unschedulable"), "false");
        assert_eq!(field_value(find("Pod"), &json!({}), "spec.nodeName"), "");
        assert_eq!(
            field_value(find("Pod"), &json!({"status": {"phase": "Running"}}), "status.phase"),
            "Running"
        );
        assert_eq!(field_value(find("ReplicationController"), &json!({}), "status.replicas"), "0");
        let event = json!({"reportingComponent": "me", "involvedObject": {"name": "a"}});
        assert_eq!(field_value(find("Event"), &event, "source"), "me");
        assert_eq!(field_value(find("Event"), &event, "involvedObject.name"), "a");
        assert!(find("Event").selectable_fields.contains(&"involvedObject.name".to_string()));
    }
}
