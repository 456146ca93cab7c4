//! What happens to an object of a built-in kind on its way in: defaults, the server's own fields, checks.
//!
//! The order is that of the real server: [`default`] after decoding, [`prepare_create`] or [`prepare_update`], then
//! [`validate`]. Custom resources pass through unchanged.

use super::common::{at, child, fill, remove, text};
use super::metadata::{qualified_name_problems, validate_name};
use super::{fixed, others, pods, rbac, secrets, service, workloads};
use crate::resource::Resource;
use crate::status::FieldError;
use serde_json::{Value, json};

/// Fills fields that the object leaves out. Safe to repeat.
pub fn default(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    super::decode::fill_defaults(resource.schema(), object);
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => default_namespace(object),
        ("", "Secret") => secrets::default_secret(object),
        ("", "Service") => service::default_service(object),
        ("", "Event") => default_event(object),
        ("", "Pod") => pods::default_pod(object),
        ("", "PodTemplate") => pods::default_pod_spec(child(child(object, "template"), "spec")),
        ("", "ReplicationController") | ("apps" | "batch", _) => {
            workloads::default_workload(&resource.kind, object);
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => rbac::default_binding(object),
        (_, kind) => others::default_other(kind, object),
    }
}

/// Fields that Kubernetes shows also when they are empty.
fn default_event(event: &mut Value) {
    let Some(fields) = event.as_object_mut() else { return };
    fields.entry("eventTime").or_insert(Value::Null);
    for name in ["reportingComponent", "reportingInstance"] {
        fields.entry(name).or_insert_with(|| "".into());
    }
}

fn default_namespace(namespace: &mut Value) {
    // The label is the server's own: selectors by name must be able to trust it.
    let name = text(namespace, "metadata.name").to_string();
    if !name.is_empty() {
        child(child(namespace, "metadata"), "labels")["kubernetes.io/metadata.name"] = name.into();
    }
}

/// Sets what a new object starts with, whatever the client sent.
pub fn prepare_create(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    if resource.has_status && !keeps_status_on_create(resource) {
        object["status"] = first_status(&resource.group, &resource.kind);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            let finalizers = &mut child(object, "spec")["finalizers"];
            if !finalizers.is_array() {
                *finalizers = json!([]);
            }
            if let Some(list) = finalizers.as_array_mut()
                && !list.contains(&json!("kubernetes"))
            {
                list.push("kubernetes".into());
            }
        }
        ("", "Pod") => pods::admit_pod(object),
        ("", "Node") => taint_new_node(object),
        ("", "ServiceAccount") => remove(object, "status"),
        ("batch", "Job") => workloads::select_own_pods(object),
        ("apps", "DaemonSet") => {
            let annotations = child(child(object, "metadata"), "annotations");
            annotations["deprecated.daemonset.template.generation"] = "1".into();
        }
        _ => {}
    }
}

/// Nothing is placed on a node before it has said that it is ready.
fn taint_new_node(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let taints = &mut child(node, "spec")["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(list) = taints.as_array_mut()
        && !list.iter().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule")
    {
        list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// Nodes register themselves together with their status.
fn keeps_status_on_create(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.kind == "Node"
}

fn first_status(group: &str, kind: &str) -> Value {
    match (group, kind) {
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "Pod" | "PersistentVolume" | "PersistentVolumeClaim") => json!({"phase": "Pending"}),
        ("", "Service") | ("networking.k8s.io", "Ingress") => json!({"loadBalancer": {}}),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => json!({"replicas": 0}),
        ("apps", "StatefulSet") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "DaemonSet") => json!({"currentNumberScheduled": 0, "numberMisscheduled": 0,
            "desiredNumberScheduled": 0, "numberReady": 0}),
        ("storage.k8s.io", "VolumeAttachment") => json!({"attached": false}),
        ("autoscaling", _) => json!({"desiredReplicas": 0}),
        ("policy", "PodDisruptionBudget") => json!({"disruptionsAllowed": 0, "currentHealthy": 0,
            "desiredHealthy": 0, "expectedPods": 0}),
        _ => json!({}),
    }
}

/// Keeps what an update through the main path may not touch. `new` and `old` are the whole objects.
pub fn prepare_update(resource: &Resource, new: &mut Value, old: &Value) {
    if resource.is_custom() {
        return;
    }
    if resource.has_status {
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => remove(new, "status"),
        }
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            // Finalizers in the spec go only through the finalize subresource.
            match at(old, "spec").get("finalizers") {
                Some(finalizers) => child(new, "spec")["finalizers"] = finalizers.clone(),
                None => remove(child(new, "spec"), "finalizers"),
            }
        }
        ("", "Service") => service::keep_allocations(new, old),
        ("", "Pod") => {
            let before = at(old, "spec.priority").clone();
            if !before.is_null() {
                fill(child(new, "spec"), "priority", before);
            }
        }
        ("batch", "Job") if at(new, "spec.selector").is_null() => {
            // A client that sends the job as it first wrote it means the selector that the server gave.
            child(new, "spec")["selector"] = at(old, "spec.selector").clone();
            let labels = at(old, "spec.template.metadata.labels").clone();
            for (key, value) in labels.as_object().into_iter().flatten() {
                let template = child(child(new, "spec"), "template");
                fill(child(child(template, "metadata"), "labels"), key, value.clone());
            }
        }
        ("apps", "DaemonSet") => {
            let key = "deprecated.daemonset.template.generation";
            if let Some(count) = at(old, "metadata.annotations").get(key) {
                fill(child(child(new, "metadata"), "annotations"), key, count.clone());
            }
        }
        _ => {}
    }
}

/// Everything that is wrong with an object, its name included. `old` is there on updates.
pub fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if resource.is_custom() {
        return Vec::new();
    }
    let mut errors = if old.is_none() { validate_name(resource, object) } else { Vec::new() };
    errors.extend(match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => validate_namespace(object),
        ("", "Secret") => secrets::validate_secret(object, old),
        ("", "ConfigMap") => secrets::validate_config_map(object, old),
        ("", "Service") => service::validate_service(object, old),
        ("", "Pod") => {
            let mut errors = pods::validate_pod_spec(at(object, "spec"), "spec", &[]);
            errors.extend(old.map(|old| pods::validate_pod_update(object, old)).unwrap_or_default());
            errors
        }
        ("", "Event") => validate_event(object, "involvedObject"),
        ("events.k8s.io", "Event") => validate_new_event(object, old),
        ("apps", "ControllerRevision") => Vec::new(),
        ("", "ReplicationController") | ("apps" | "batch", _) => {
            workloads::validate_workload(&resource.kind, object, old)
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            rbac::validate_role(object, resource.namespaced)
        }
        ("rbac.authorization.k8s.io", _) => rbac::validate_binding(object, old, resource.namespaced),
        (_, kind) => others::validate_other(kind, object),
    });
    if let (Some(old), ("", "Node")) = (old, (resource.group.as_str(), resource.kind.as_str())) {
        let before = text(old, "spec.providerID");
        if !before.is_empty() && before != text(object, "spec.providerID") {
            let why = "node updates may not change providerID except from \"\" to valid";
            errors.push(FieldError::forbidden("spec.providerID", why));
        }
    }
    if let Some(old) = old {
        errors.extend(fixed::validate_fixed(&resource.group, &resource.kind, object, old));
    }
    errors
}

fn validate_namespace(namespace: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for finalizer in super::common::items(namespace, "spec.finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        for problem in qualified_name_problems(name) {
            errors.push(FieldError::invalid("spec.finalizers", name.into(), problem));
        }
        if !name.contains('/') && name != "kubernetes" {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid("spec.finalizers", name.into(), why));
        }
    }
    errors
}

/// An event lives in the namespace of what it is about; those about cluster-wide objects live in `default`.
fn validate_event(event: &Value, subject: &str) -> Vec<FieldError> {
    let about = text(at(event, subject), "namespace");
    let namespace = text(event, "metadata.namespace");
    let fits = about == namespace || (about.is_empty() && matches!(namespace, "default" | ""));
    if fits {
        return Vec::new();
    }
    let why = "does not match event.namespace";
    vec![FieldError::invalid(format!("{subject}.namespace"), about.into(), why)]
}

fn validate_new_event(event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = validate_event(event, "regarding");
    if old.is_some() {
        return errors;
    }
    if text(event, "eventTime").is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    if !matches!(text(event, "type"), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text(event, "type"));
        errors.push(FieldError::invalid("type", "".into(), why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::{check_types, resources};
    use std::sync::Arc;

    fn find(group: &str, kind: &str) -> Arc<Resource> {
        resources().into_iter().find(|r| r.group == group && r.kind == kind).unwrap()
    }

    fn create(resource: &Resource, mut object: Value) -> (Value, Vec<String>) {
        default(resource, &mut object);
        prepare_create(resource, &mut object);
        let errors = validate(resource, &object, None).iter().map(ToString::to_string).collect();
        (object, errors)
    }

    #[test]
    fn namespaces_start_active() {
        let namespaces = find("", "Namespace");
        let (made, errors) = create(
            &namespaces,
            json!({"metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "other"}},
                "spec": {"finalizers": ["a/b"]}, "status": {"phase": "Terminating"}}),
        );
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(
            made,
            json!({"metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "x"}},
                "spec": {"finalizers": ["a/b", "kubernetes"]}, "status": {"phase": "Active"}})
        );
        let (_, errors) =
            create(&namespaces, json!({"metadata": {"name": "x"}, "spec": {"finalizers": ["ab"]}}));
        assert_eq!(
            errors,
            [
                "spec.finalizers: Invalid value: \"ab\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        let mut new = json!({"metadata": {"name": "x"}});
        prepare_update(&namespaces, &mut new, &made);
        assert_eq!(new["spec"]["finalizers"], json!(["a/b", "kubernetes"]));
        assert_eq!(new["status"]["phase"], "Active");
    }

    #[test]
    fn events_live_with_their_subject() {
        let events = find("", "Event");
        let event = |about: Value| {
            create(&events, json!({"metadata": {"name": "a", "namespace": "n"}, "involvedObject": about})).1
        };
        assert!(event(json!({"namespace": "n"})).is_empty());
        assert_eq!(
            event(json!({"namespace": "other"})),
            ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
        );
        assert_eq!(event(json!({})).len(), 1);
        let (_, errors) = create(
            &events,
            json!({"metadata": {"name": "a", "namespace": "default"}, "involvedObject": {"kind": "Node"}}),
        );
        assert!(errors.is_empty());
        let newer = find("events.k8s.io", "Event");
        let (_, errors) = create(
            &newer,
            json!({"metadata": {"name": "a", "namespace": "n"}, "regarding": {"namespace": "n"}}),
        );
        assert_eq!(errors, ["eventTime: Required value", "type: Invalid value: \"\": has invalid value: "]);
    }

    #[test]
    fn a_missing_name_is_named() {
        let (_, errors) = create(&find("", "ConfigMap"), json!({"metadata": {}}));
        assert_eq!(errors, ["metadata.name: Required value: name or generateName is required"]);
    }

    #[test]
    fn nodes_keep_their_first_status_and_others_do_not() {
        let (node, _) =
            create(&find("", "Node"), json!({"metadata": {"name": "n"}, "status": {"phase": "x"}}));
        assert_eq!(node["status"]["phase"], "x");
        let (claim, _) = create(
            &find("", "PersistentVolumeClaim"),
            json!({"metadata": {"name": "n"}, "status": {"phase": "Bound"}}),
        );
        assert_eq!(claim["status"]["phase"], "Pending");
    }

    /// Whatever the defaults put in must be of the right type and known to the schema.
    #[test]
    fn defaults_fit_the_types_and_are_safe_to_repeat() {
        for resource in resources() {
            let mut object = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
                "metadata": {"name": "a", "uid": "u"}});
            if let Some(spec) = resource.schema().properties.get("spec") {
                object["spec"] = json!({});
                if spec.properties.contains_key("template") {
                    object["spec"]["template"] =
                        json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}});
                }
            }
            default(&resource, &mut object);
            prepare_create(&resource, &mut object);
            assert_eq!(check_types(resource.schema(), &object), None, "{}", resource.kind);
            let mut again = object.clone();
            default(&resource, &mut again);
            assert_eq!(again, object, "{}", resource.kind);
        }
    }
}
