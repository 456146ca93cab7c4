//! What an answer of the new cluster's API means: who has to move next, and what a person can do.

use super::kinds::ObjectRef;
use butler_drivers::{Class, Failure};
use kube::core::Status;

/// What came of a call about one object.
pub(crate) fn failure(doing: &str, object: &ObjectRef, error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => refusal(doing, object, status),
        kube::Error::Auth(_) => Failure::new(
            Class::Auth,
            "ClusterCredentialsUnusable",
            format!("{doing} {}: the credentials can't be used: {}", object.title(), chain(error)),
            "check the cluster's kubeconfig",
        ),
        other => Failure::new(
            Class::Retryable,
            "ClusterUnreachable",
            format!("{doing} {}: {}", object.title(), chain(other)),
            "check that the control plane's endpoint answers; it is tried again by itself",
        ),
    }
}

/// Whether the answer says that somebody else wrote in between, so that the same call can be made again at once.
pub(crate) fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && field_conflicts(status).is_empty())
}

/// Whether the object, its kind or its namespace is not there.
pub(crate) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn refusal(doing: &str, object: &ObjectRef, status: &Status) -> Failure {
    let title = object.title();
    let said = words(object, status);
    let make = |class, reason: &str, remedy: &str| {
        Failure::new(class, reason, format!("{doing} {title}: {said}"), remedy)
    };
    match status.code {
        401 => make(Class::Auth, "ClusterCredentialsRefused", "check the cluster's kubeconfig"),
        // A namespace that is going takes nothing new; it is gone soon.
        403 if said.contains("being terminated") => {
            make(Class::Retryable, "NamespaceTerminating", "wait until the namespace is gone")
        }
        403 => {
            make(Class::Auth, "ClusterForbids", "give the bootstrap's user the rights of an administrator")
        }
        404 => make(
            Class::Retryable,
            "KindOrNamespaceMissing",
            "the API does not serve it yet; it is tried again by itself",
        ),
        409 => conflict(doing, object, status),
        429 => make(Class::Throttled, "ClusterThrottles", "it is tried again by itself"),
        400 | 405 | 406 | 413 | 415 | 422 => make(
            Class::InvalidConfig,
            "ObjectRefused",
            "the cluster's API does not take this object: check the addon's version and values",
        ),
        _ => make(Class::Retryable, "ClusterError", "it is tried again by itself"),
    }
}

fn conflict(doing: &str, object: &ObjectRef, status: &Status) -> Failure {
    let conflicts = field_conflicts(status);
    if conflicts.is_empty() {
        return Failure::new(
            Class::Retryable,
            "WrittenMeanwhile",
            format!("{doing} {}: {}", object.title(), words(object, status)),
            "it is tried again by itself",
        );
    }
    let list: Vec<String> =
        conflicts.iter().map(|(field, manager)| format!("{field} (by {manager})")).collect();
    Failure::new(
        Class::Conflict,
        "FieldsOwnedByAnother",
        format!("{doing} {}: others have set {}", object.title(), list.join(", ")),
        "take the field out of the other tool's hands, or remove the object if it is not needed",
    )
}

/// Fields that others manage, with the managers' names.
fn field_conflicts(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes
        .iter()
        .filter(|cause| cause.reason == "FieldManagerConflict")
        .map(|cause| {
            // `conflict with "kubectl" using apps/v1`
            let manager = cause.message.split('"').nth(1).unwrap_or("another manager");
            (cause.field.clone(), manager.to_owned())
        })
        .collect()
}

/// What the API said. About a Secret, only the names of fields: values may be in the sentence.
fn words(object: &ObjectRef, status: &Status) -> String {
    if object.kind != "Secret" {
        return format!("{} ({})", status.message, status.code);
    }
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    format!("{} ({}) {}", status.reason, status.code, fields.join(", ")).trim_end().to_owned()
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        // Wrappers often say what they wrap.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
