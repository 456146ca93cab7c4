//! What answers of the API mean, as a table; and what an inventory keeps.

use crate::addons::inventory::Inventory;
use crate::addons::kinds::ObjectRef;
use crate::addons::trouble;
use butler_drivers::Class;
use kube::core::Status;
use serde_json::{Value, json};

fn object(kind: &str) -> ObjectRef {
    ObjectRef { api_version: "v1".into(), kind: kind.into(), namespace: "a".into(), name: "b".into() }
}

fn answer(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> kube::Error {
    let causes: Vec<Value> = causes
        .iter()
        .map(|(reason, field, message)| json!({ "reason": reason, "field": field, "message": message }))
        .collect();
    let status = json!({
        "status": "Failure", "code": code, "message": message, "reason": "Reason", "details": { "causes": causes },
    });
    kube::Error::Api(Box::new(serde_json::from_value::<Status>(status).expect("a status")))
}

#[test]
fn answers_have_classes() {
    let cases = [
        (401, "Unauthorized", Class::Auth, "ClusterCredentialsRefused"),
        (403, "forbidden: User x cannot patch", Class::Auth, "ClusterForbids"),
        (403, "namespace a is being terminated", Class::Retryable, "NamespaceTerminating"),
        (404, "the server could not find it", Class::Retryable, "KindOrNamespaceMissing"),
        (409, "the object has been modified", Class::Retryable, "WrittenMeanwhile"),
        (422, "spec.x: Required value", Class::InvalidConfig, "ObjectRefused"),
        (400, "strict decoding error", Class::InvalidConfig, "ObjectRefused"),
        (429, "too many requests", Class::Throttled, "ClusterThrottles"),
        (500, "failed calling webhook", Class::Retryable, "ClusterError"),
        (503, "no leader", Class::Retryable, "ClusterError"),
        (504, "timeout", Class::Retryable, "ClusterError"),
    ];
    for (code, message, class, reason) in cases {
        let failure = trouble::failure("apply", &object("ConfigMap"), &answer(code, message, &[]));
        assert_eq!((failure.class, failure.reason.as_str()), (class, reason), "{code} {message}");
        assert_eq!(failure.message, format!("apply ConfigMap a/b: {message} ({code})"));
        assert!(!failure.remedy.is_empty());
    }
}

#[test]
fn a_conflict_names_fields_and_managers() {
    let causes = [
        ("FieldManagerConflict", ".spec.replicas", "conflict with \"kubectl\" using apps/v1"),
        ("FieldManagerConflict", ".data.x", "conflict with \"helm\""),
    ];
    let error = answer(409, "Apply failed with 2 conflicts", &causes);
    assert!(!trouble::is_race(&error) && trouble::is_race(&answer(409, "modified", &[])));
    let failure = trouble::failure("apply", &object("Deployment"), &error);
    assert_eq!(failure.class, Class::Conflict);
    let wanted = "apply Deployment a/b: others have set .spec.replicas (by kubectl), .data.x (by helm)";
    assert_eq!(failure.message, wanted);
}

#[test]
fn of_a_secret_only_field_names_are_told() {
    let causes = [("FieldValueInvalid", "data.token", "Invalid value: \"hush\"")];
    let error = answer(422, "Secret \"b\" is invalid: data.token: Invalid value: \"hush\"", &causes);
    let failure = trouble::failure("apply", &object("Secret"), &error);
    assert_eq!(failure.message, "apply Secret a/b: Reason (422) data.token");
}

#[test]
fn an_inventory_survives_its_secret() {
    let make = |kind: &str, namespace: Option<&str>| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "b", "namespace": namespace } });
    let all = [make("Secret", Some("a")), make("Namespace", None), make("ConfigMap", Some("a"))];
    let inventory = Inventory::of(&all);
    assert_eq!(Inventory::from_object(&inventory.to_object("x", "1")), Some(inventory.clone()));
    assert_ne!(inventory.digest, Inventory::of(&all[..2]).digest);
    let left = inventory.leftovers(&Inventory::of(&[]));
    let kinds: Vec<&str> = left.iter().map(|of| of.kind.as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret"], "a namespace holds more than ours");
    assert_eq!(Inventory::from_object(&json!({ "data": { "digest": "not base64" } })), None);
}
