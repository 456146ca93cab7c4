//! Deployments and the like, and jobs.

use super::common::{at, child, fill, fill_all, is_blank, items, items_mut, same, selects, text};
use super::pods::{default_pod_spec, validate_pod_spec};
use crate::status::FieldError;
use serde_json::{Value, json};

/// Defaults of one workload.
pub(super) fn default_workload(kind: &str, object: &mut Value) {
    match kind {
        "Deployment" => default_deployment(child(object, "spec")),
        "ReplicaSet" => default_replicas(child(object, "spec")),
        "StatefulSet" => default_stateful_set(child(object, "spec")),
        "DaemonSet" => default_daemon_set(object),
        "ReplicationController" => default_replication_controller(object),
        "Job" => {
            default_job(child(object, "spec"));
            if is_blank(at(object, "metadata.labels")) {
                copy_template_labels(object, "spec.template.metadata.labels");
            }
        }
        "CronJob" => default_cron_job(child(object, "spec")),
        _ => {}
    }
}

fn default_template(spec: &mut Value) {
    let template = child(spec, "template");
    child(template, "metadata");
    default_pod_spec(child(template, "spec"));
}

fn default_replicas(spec: &mut Value) {
    fill(spec, "replicas", json!(1));
    default_template(spec);
}

fn default_deployment(spec: &mut Value) {
    default_replicas(spec);
    fill_all(spec, [("revisionHistoryLimit", json!(10)), ("progressDeadlineSeconds", json!(600))]);
    let strategy = child(spec, "strategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        fill_all(rolling, [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    }
}

fn default_stateful_set(spec: &mut Value) {
    default_replicas(spec);
    fill_all(spec, [("revisionHistoryLimit", json!(10)), ("podManagementPolicy", json!("OrderedReady"))]);
    let strategy = child(spec, "updateStrategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        fill(child(strategy, "rollingUpdate"), "partition", json!(0));
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    fill_all(retention, [("whenDeleted", json!("Retain")), ("whenScaled", json!("Retain"))]);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        fill_all(claim, [("kind", json!("PersistentVolumeClaim")), ("apiVersion", json!("v1"))]);
        fill(child(claim, "spec"), "volumeMode", json!("Filesystem"));
        fill(child(claim, "status"), "phase", json!("Pending"));
    }
}

fn default_daemon_set(object: &mut Value) {
    let spec = child(object, "spec");
    default_template(spec);
    fill(spec, "revisionHistoryLimit", json!(10));
    let strategy = child(spec, "updateStrategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        fill_all(rolling, [("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
    }
}

fn default_replication_controller(object: &mut Value) {
    let spec = child(object, "spec");
    fill(spec, "replicas", json!(1));
    if !spec["template"].is_object() {
        return;
    }
    default_template(spec);
    if is_blank(&spec["selector"]) {
        let labels = at(spec, "template.metadata.labels").clone();
        if !is_blank(&labels) {
            spec["selector"] = labels;
        }
    }
    if is_blank(at(object, "metadata.labels")) {
        copy_template_labels(object, "spec.template.metadata.labels");
    }
}

fn copy_template_labels(object: &mut Value, from: &str) {
    let labels = at(object, from).clone();
    if !is_blank(&labels) {
        child(object, "metadata")["labels"] = labels;
    }
}

fn default_job(spec: &mut Value) {
    // Jobs choose their restart policy; the template's usual default would be refused.
    let named = !text(spec, "template.spec.restartPolicy").is_empty();
    default_template(spec);
    if !named && let Some(pod) = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
        pod.insert("restartPolicy".into(), json!("Always"));
    }
    if is_blank(at(spec, "completions")) && is_blank(at(spec, "parallelism")) {
        fill_all(spec, [("completions", json!(1)), ("parallelism", json!(1))]);
    }
    fill_all(
        spec,
        [
            ("parallelism", json!(1)),
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("manualSelector", json!(false)),
        ],
    );
}

fn default_cron_job(spec: &mut Value) {
    fill_all(
        spec,
        [
            ("concurrencyPolicy", json!("Allow")),
            ("suspend", json!(false)),
            ("successfulJobsHistoryLimit", json!(3)),
            ("failedJobsHistoryLimit", json!(1)),
        ],
    );
    let template = child(spec, "jobTemplate");
    child(template, "metadata");
    // Job templates get the defaults of their pods only; the rest is filled in when a job is made of them.
    default_template(child(template, "spec"));
}

/// A new job's selector and labels carry its own uid, so that no two jobs ever claim the same pods.
pub(super) fn select_own_pods(job: &mut Value) {
    if at(job, "spec.manualSelector") == true {
        return;
    }
    let (uid, name) = (text(job, "metadata.uid").to_string(), text(job, "metadata.name").to_string());
    if uid.is_empty() {
        return;
    }
    // Labels that were taken over from the template go on being those of the template.
    let shared = same(at(job, "metadata.labels"), at(job, "spec.template.metadata.labels"));
    let spec = child(job, "spec");
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        fill(labels, key, value.clone().into());
    }
    if !at(spec, "selector").is_object() {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
    if shared {
        copy_template_labels(job, "spec.template.metadata.labels");
    }
}

pub(super) fn validate_workload(kind: &str, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = at(object, "spec");
    match kind {
        "Job" => validate_job(spec, "spec"),
        "CronJob" => {
            let mut errors = Vec::new();
            if text(spec, "schedule").is_empty() {
                errors.push(FieldError::required("spec.schedule", ""));
            }
            errors.extend(validate_job(at(spec, "jobTemplate.spec"), "spec.jobTemplate.spec"));
            errors
        }
        "ReplicationController" => validate_replication_controller(spec),
        _ => validate_apps(kind, spec, old.map(|old| at(old, "spec"))),
    }
}

fn validate_apps(kind: &str, spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(validate_replicas(spec));
    let selector = at(spec, "selector");
    if selector.is_null() {
        if kind != "DaemonSet" {
            errors.push(FieldError::required("spec.selector", ""));
        }
    } else if ["matchLabels", "matchExpressions"].iter().all(|part| is_blank(at(selector, part))) {
        let why = format!("empty selector is invalid for {}", kind.to_lowercase());
        errors.push(FieldError::invalid("spec.selector", selector.clone(), why));
    }
    let labels = at(spec, "template.metadata.labels");
    let chosen = !is_blank(selector) && selects(selector, labels);
    if !chosen && (selector.is_null() || !is_blank(selector)) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), why));
    }
    let claims: Vec<&str> =
        items(spec, "volumeClaimTemplates").iter().map(|claim| text(claim, "metadata.name")).collect();
    errors.extend(validate_pod_spec(at(spec, "template.spec"), "spec.template.spec", &claims));
    let policy = text(spec, "template.spec.restartPolicy");
    if policy != "Always" {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, policy.into(), &["Always"]));
    }
    errors.extend(validate_strategy(kind, spec));
    if let Some(old) = old {
        errors.extend(validate_apps_update(kind, spec, old));
    }
    errors
}

fn validate_strategy(kind: &str, spec: &Value) -> Vec<FieldError> {
    let (field, valid): (&str, &[&str]) = match kind {
        "Deployment" => ("strategy", &["Recreate", "RollingUpdate"]),
        "DaemonSet" | "StatefulSet" => ("updateStrategy", &["OnDelete", "RollingUpdate"]),
        _ => return Vec::new(),
    };
    let strategy = at(spec, field);
    if valid.contains(&text(strategy, "type")) {
        return Vec::new();
    }
    if kind != "Deployment" {
        let shown = at(strategy, "type").clone();
        return vec![FieldError::not_supported(format!("spec.{field}.type"), shown, valid)];
    }
    let shown = json!({"Type": strategy["type"], "RollingUpdate": strategy["rollingUpdate"]});
    vec![FieldError::not_supported(format!("spec.{field}"), shown, valid)]
}

fn validate_apps_update(kind: &str, spec: &Value, old: &Value) -> Vec<FieldError> {
    if kind == "StatefulSet" {
        const ALLOWED: [&str; 7] = [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ];
        let mut names: Vec<&String> =
            [spec, old].iter().filter_map(|s| s.as_object()).flat_map(|s| s.keys()).collect();
        names.dedup();
        let changed = names
            .iter()
            .any(|name| !ALLOWED.contains(&name.as_str()) && !same(at(spec, name), at(old, name)));
        if changed {
            return vec![FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            )];
        }
        return Vec::new();
    }
    if same(at(spec, "selector"), at(old, "selector")) {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.selector", at(spec, "selector").clone(), "field is immutable")]
}

fn validate_replicas(spec: &Value) -> Option<FieldError> {
    let replicas = at(spec, "replicas");
    replicas
        .as_i64()
        .is_some_and(|number| number < 0)
        .then(|| FieldError::invalid("spec.replicas", replicas.clone(), "must be greater than or equal to 0"))
}

fn validate_job(spec: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        let value = at(spec, name);
        if value.as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{field}.{name}"), value.clone(), why));
        }
    }
    errors.extend(validate_pod_spec(at(spec, "template.spec"), &format!("{field}.template.spec"), &[]));
    let place = format!("{field}.template.spec.restartPolicy");
    match text(spec, "template.spec.restartPolicy") {
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.push(FieldError::required(place, "valid values: \"OnFailure\", \"Never\"")),
        other => errors.push(FieldError::not_supported(place, other.into(), &["OnFailure", "Never"])),
    }
    errors
}

fn validate_replication_controller(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(validate_replicas(spec));
    if is_blank(at(spec, "selector")) {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if !at(spec, "template").is_object() {
        errors.push(FieldError::required("spec.template", ""));
        return errors;
    }
    let labels = at(spec, "template.metadata.labels");
    if !is_blank(at(spec, "selector")) && !selects(&json!({"matchLabels": at(spec, "selector")}), labels) {
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), why));
    }
    errors.extend(validate_pod_spec(at(spec, "template.spec"), "spec.template.spec", &[]));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: &str, spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
        default_workload(kind, &mut object);
        object
    }

    fn problems(kind: &str, spec: Value) -> Vec<String> {
        validate_workload(kind, &made(kind, spec), None).iter().map(ToString::to_string).collect()
    }

    fn template(labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    }

    #[test]
    fn defaults_of_the_real_server() {
        let spec = |kind: &str| {
            let mut spec =
                made(kind, json!({"selector": {}, "template": template(json!({}))}))["spec"].take();
            spec["template"].take();
            spec["selector"].take();
            spec
        };
        assert_eq!(
            spec("Deployment"),
            json!({"replicas": 1, "selector": null, "template": null, "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}})
        );
        assert_eq!(
            spec("DaemonSet"),
            json!({"selector": null, "template": null, "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}})
        );
        assert_eq!(
            spec("StatefulSet"),
            json!({"replicas": 1, "selector": null, "template": null, "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}})
        );
        assert_eq!(
            spec("Job"),
            json!({"selector": null, "template": null, "parallelism": 1, "completions": 1, "backoffLimit": 6,
                "completionMode": "NonIndexed", "suspend": false, "manualSelector": false,
                "podReplacementPolicy": "TerminatingOrFailed"})
        );
    }

    #[test]
    fn selectors_must_match_their_template() {
        assert_eq!(
            problems("Deployment", json!({})),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
                "spec.template.spec.containers: Required value"
            ]
        );
        let spec = json!({"selector": {"matchLabels": {"a": "c"}}, "template": template(json!({"a": "b"}))});
        assert_eq!(
            problems("Deployment", spec),
            [
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`"
            ]
        );
        let spec = json!({"replicas": -1, "selector": {}, "template": template(json!({"a": "b"}))});
        assert_eq!(
            problems("Deployment", spec),
            [
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.selector: Invalid value: {}: empty selector is invalid for deployment"
            ]
        );
        assert_eq!(
            problems("ReplicationController", json!({})),
            ["spec.selector: Required value", "spec.template: Required value"]
        );
    }

    #[test]
    fn jobs_choose_a_restart_policy() {
        assert_eq!(
            problems("Job", json!({"template": template(json!({}))})),
            ["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""]
        );
        assert_eq!(
            problems("CronJob", json!({})),
            [
                "spec.schedule: Required value",
                "spec.jobTemplate.spec.template.spec.containers: Required value",
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""
            ]
        );
    }

    #[test]
    fn what_may_not_change() {
        let spec = |selector: &str, service: &str| {
            json!({"selector": {"matchLabels": {"a": selector}}, "serviceName": service,
                "template": template(json!({"a": selector}))})
        };
        let words = |kind: &str, new: Value, old: Value| -> Vec<String> {
            validate_workload(kind, &made(kind, new), Some(&made(kind, old)))
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            words("Deployment", spec("c", "s"), spec("b", "s")),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable"]
        );
        let refused = words("StatefulSet", spec("b", "t"), spec("b", "s"));
        assert!(refused[0].starts_with("spec: Forbidden: updates to statefulset spec for fields other than"));
        assert!(words("StatefulSet", spec("b", "s"), spec("b", "s")).is_empty());
    }

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = made("Job", json!({"template": template(json!({}))}));
        job["metadata"]["uid"] = json!("u1");
        select_own_pods(&mut job);
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u1"}})
        );
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "a");
    }
}
