//! Tests of CRD handling. The expected sentences are those of a real kube-apiserver 1.36, recorded in `testdata`.

use super::*;
use crate::status::FieldError;
use serde_json::{Value, json};
use std::cmp::Ordering;

fn minimal() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "minis.schema.example.com"},
        "spec": {
            "group": "schema.example.com", "scope": "Namespaced", "names": {"plural": "minis", "kind": "Mini"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"x": {"type": "string"}}}},
            }}}],
        },
    })
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn sorted(errors: &[FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

fn check(mut crd: Value) -> Vec<String> {
    default_crd(&mut crd);
    sorted(&validate_crd(&crd, None))
}

fn with_property(property: Value) -> Value {
    let mut crd = minimal();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] =
        property;
    crd
}

#[test]
fn answers_of_kubernetes() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("testdata/answers.json")).unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let mut crd = minimal();
        if let Some(spec) = case.get("spec") {
            merge(&mut crd["spec"], spec);
        } else if let Some(version) = case.get("version") {
            merge(&mut crd["spec"]["versions"][0], version);
        } else if let Some(schema) = case.get("schema") {
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        } else {
            crd = with_property(case["property"].clone());
        }
        let expected: Vec<&str> =
            case["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
        assert_eq!(check(crd), expected, "{}", case["case"]);
    }
}

#[test]
fn names_and_versions() {
    let changed = |change: fn(&mut Value)| {
        let mut crd = minimal();
        change(&mut crd);
        check(crd)
    };
    assert_eq!(changed(|_| {}), Vec::<String>::new());
    assert_eq!(
        changed(|crd| crd["metadata"]["name"] = json!("wrong")),
        ["metadata.name: Invalid value: \"wrong\": must be spec.names.plural+\".\"+spec.group"]
    );
    let storage = "spec.versions: Invalid value: must have exactly one version marked as storage version";
    let stored = "status.storedVersions: Invalid value: null: must have at least one stored version";
    assert_eq!(changed(|crd| crd["spec"]["versions"][0]["storage"] = json!(false)), [storage, stored]);
    assert_eq!(changed(|crd| crd["spec"]["versions"] = json!([])), [storage, stored]);
    fn second(crd: &mut Value, name: &str, storage: bool) {
        let mut version = crd["spec"]["versions"][0].clone();
        version["name"] = json!(name);
        version["storage"] = json!(storage);
        crd["spec"]["versions"].as_array_mut().unwrap().push(version);
    }
    assert_eq!(
        changed(|crd| second(crd, "v2", true)),
        [storage, "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2"]
    );
    assert_eq!(
        changed(|crd| second(crd, "v1", false)),
        ["spec.versions: Invalid value: must contain unique version names"]
    );
    assert_eq!(changed(|crd| second(crd, "v2", false)), Vec::<String>::new());
    // Schemas that differ are reported version by version.
    assert_eq!(
        changed(|crd| {
            second(crd, "v2", false);
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "string"});
        }),
        [
            "spec.versions[0].schema.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"
        ]
    );
}

#[test]
fn webhooks_and_community_groups() {
    let mut crd = minimal();
    crd["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}});
    assert_eq!(
        check(crd),
        [
            "spec.conversion.strategy: Unsupported value: \"Webhook\": supported values: \"None\" (this API server does \
             not call conversion webhooks)",
        ]
    );
    let mut crd = minimal();
    crd["spec"]["group"] = json!("foo.k8s.io");
    crd["metadata"]["name"] = json!("minis.foo.k8s.io");
    let must = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    assert_eq!(check(crd.clone()), [format!("{field}: Required value: {must}, {see}")]);
    for (text, fine) in
        [("x", false), ("unapproved, for tests", true), ("https://github.com/kubernetes/x", true)]
    {
        crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": text});
        assert_eq!(check(crd.clone()).is_empty(), fine, "{text}");
    }
}

#[test]
fn rules_that_do_not_compile() {
    let errors =
        |rule: Value| check(with_property(json!({"type": "string", "x-kubernetes-validations": [rule]})));
    let base = "spec.validation.openAPIV3Schema.properties[spec].properties[x].x-kubernetes-validations[0]";
    let found = errors(json!({"rule": "self =="}));
    assert!(found[0].starts_with(&format!("{base}.rule: Invalid value: {{")), "{found:?}");
    assert!(found[0].contains("compilation failed: ERROR: <input>:1:8: Syntax error"), "{found:?}");
    assert!(
        errors(json!({"rule": "foo == 'a'"}))[0].contains("undeclared reference to 'foo' (in container '')")
    );
    let found = errors(json!({"rule": "true", "messageExpression": "self +"}));
    assert!(
        found[0].contains("messageExpression compilation failed: ERROR: <input>:1:7: Syntax error"),
        "{found:?}"
    );
    assert_eq!(errors(json!({"rule": "self.matches('^a')"})), Vec::<String>::new());
}

#[test]
fn what_an_update_may_not_change() {
    let mut old = minimal();
    default_crd(&mut old);
    old["status"] = accepted_conditions(&old, &[], "2024-01-01T00:00:00Z");
    let change = |pointer: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        sorted(&validate_crd(&new, Some(&old)))
    };
    assert_eq!(change("/spec/names/listKind", json!("Minis")), Vec::<String>::new());
    for (pointer, field, value) in [
        ("/spec/scope", "spec.scope", "Cluster"),
        ("/spec/names/kind", "spec.names.kind", "Other"),
        ("/spec/group", "spec.group", "other.example.com"),
        ("/spec/names/plural", "spec.names.plural", "others"),
    ] {
        assert_eq!(
            change(pointer, json!(value)),
            [format!("{field}: Invalid value: {value:?}: field is immutable")]
        );
    }
    assert_eq!(
        change("/spec/versions/0/name", json!("v2")),
        [
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
             version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 \
             and removes v1 from status.storedVersions",
        ]
    );
    // Before the names are accepted, scope and kind are still free.
    let mut fresh = old.clone();
    fresh["status"]["conditions"] = json!([]);
    let mut new = fresh.clone();
    new["spec"]["scope"] = json!("Cluster");
    assert_eq!(validate_crd(&new, Some(&fresh)), []);
}

#[test]
fn names_are_given_to_the_first() {
    let mut first = minimal();
    default_crd(&mut first);
    first["status"] = accepted_conditions(&first, &[], "2024-01-01T00:00:00Z");
    assert_eq!(
        first["status"],
        json!({
            "acceptedNames": {"kind": "Mini", "listKind": "MiniList", "plural": "minis", "singular": "mini"},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
                 "lastTransitionTime": "2024-01-01T00:00:00Z"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                 "message": "the initial names have been accepted", "lastTransitionTime": "2024-01-01T00:00:00Z"},
            ],
            "storedVersions": ["v1"],
        })
    );
    let again = accepted_conditions(&first, &[], "2025-01-01T00:00:00Z");
    assert_eq!(again, first["status"], "nothing changed, and no time moved");

    let mut second = minimal();
    second["spec"]["names"] = json!({"plural": "others", "kind": "Mini", "singular": "mini", "shortNames": ["minis"], "categories": ["all"]});
    default_crd(&mut second);
    let status = accepted_conditions(&second, &[&first], "2024-01-02T00:00:00Z");
    assert_eq!(status["acceptedNames"], json!({"kind": "", "plural": "others", "categories": ["all"]}));
    assert_eq!(status["conditions"][0]["reason"], "ListKindConflict");
    assert_eq!(status["conditions"][0]["message"], "\"MiniList\" is already in use");
    assert_eq!(status["conditions"][1]["status"], "False");
    assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
    second["spec"]["group"] = json!("other.example.com");
    let status = accepted_conditions(&second, &[&first], "2024-01-02T00:00:00Z");
    assert_eq!(status["conditions"][1]["status"], "True", "another group, other names");
}

#[test]
fn resources_of_the_served_versions() {
    let mut crd = minimal();
    crd["spec"]["names"]["shortNames"] = json!(["mi"]);
    let schema = crd["spec"]["versions"][0]["schema"].clone();
    crd["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema,
         "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
         "additionalPrinterColumns": [{"name": "X", "type": "string", "jsonPath": ".spec.x", "priority": 1}],
         "selectableFields": [{"jsonPath": ".spec.x"}]},
        {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": schema},
        {"name": "v1alpha1", "served": false, "storage": false, "schema": schema},
        {"name": "v1alpha2", "served": true, "storage": false, "schema": schema, "deprecated": true,
         "deprecationWarning": "gone soon"},
    ]);
    default_crd(&mut crd);
    assert_eq!(validate_crd(&crd, None), []);
    let found = resources(&crd);
    let [v1, beta, alpha] = found.as_slice() else { panic!("three served versions") };
    assert_eq!(
        (v1.api_version().as_str(), v1.singular.as_str(), v1.list_kind.as_str()),
        ("schema.example.com/v1", "mini", "MiniList")
    );
    assert!(v1.namespaced && v1.has_status && v1.is_custom());
    assert_eq!(v1.scale.as_ref().unwrap().spec_replicas_path, ".spec.n");
    assert_eq!(v1.selectable_fields, ["spec.x"]);
    assert_eq!((v1.columns[0].name.as_str(), v1.columns[0].priority), ("X", 1));
    assert_eq!(v1.columns[0].description, "Custom resource definition column (in JSONPath format): .spec.x");
    assert!(v1.schema().properties.contains_key("spec"));
    assert_eq!(v1.deprecation_warning, None);
    assert_eq!(beta.columns[0].json_path, ".metadata.creationTimestamp");
    assert!(beta.scale.is_none() && !beta.has_status);
    assert_eq!(
        beta.deprecation_warning.as_deref(),
        Some("schema.example.com/v1beta1 Mini is deprecated; use schema.example.com/v1 Mini")
    );
    assert_eq!(alpha.deprecation_warning.as_deref(), Some("gone soon"));
    assert_eq!(beta.crd.as_ref().unwrap().storage_version, "v1");
}

#[test]
fn versions_are_ordered_by_stability() {
    let mut versions = ["v1alpha1", "foo1", "v2beta1", "v10", "v1", "v1beta2", "foo10", "v2"];
    versions.sort_by(|a, b| compare_versions(b, a));
    assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo1", "foo10"]);
    assert_eq!(compare_versions("v1", "v1"), Ordering::Equal);
}

#[test]
fn scale_fields() {
    let scale = crate::resource::Scale {
        spec_replicas_path: ".spec.n".into(),
        status_replicas_path: ".status.n".into(),
        label_selector_path: Some(".status.sel".into()),
    };
    let check = |object: Value| sorted(&validate_scale(&scale, &object, false));
    assert_eq!(check(json!({"spec": {"n": 1}})), Vec::<String>::new());
    assert_eq!(
        check(json!({"spec": {"n": -1}})),
        [".spec.n: Invalid value: -1: should be a non-negative integer"]
    );
    assert_eq!(
        check(json!({"spec": {"n": 3_000_000_000_u32}})),
        [".spec.n: Invalid value: 3000000000: should be less than or equal to 2147483647"]
    );
    assert_eq!(
        check(json!({"spec": {"n": "x"}, "status": {"sel": 5}})),
        [
            ".spec.n: Invalid value: 0: .spec.n accessor error: x is of the type string, expected int64",
            ".status.sel: Invalid value: \"\": .status.sel accessor error: 5 is of the type int64, expected string",
        ]
    );
    assert_eq!(
        sorted(&validate_scale(&scale, &json!({"spec": {"n": -1}, "status": "x"}), true)),
        [
            ".status.n: Invalid value: 0: .status.n accessor error: x is of the type string, expected \
             map[string]interface{}",
            ".status.sel: Invalid value: \"\": .status.sel accessor error: x is of the type string, expected \
             map[string]interface{}",
        ]
    );
}

#[test]
fn hostile_definitions_do_no_harm() {
    for crd in [
        json!(null),
        json!([]),
        json!({}),
        json!({"spec": 5}),
        json!({"spec": {"versions": {}, "names": []}}),
    ] {
        let mut defaulted = crd.clone();
        default_crd(&mut defaulted);
        assert!(!validate_crd(&defaulted, None).is_empty(), "{crd}");
        assert!(resources(&defaulted).is_empty());
        accepted_conditions(&defaulted, &[&crd], "2024-01-01T00:00:00Z");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..400 {
        deep = json!({"type": "object", "properties": {"a": deep}, "allOf": [{"properties": {"a": {}}}]});
    }
    assert!(check(with_property(deep))[0].contains("must not be nested more than 100 levels deep"));
}

#[test]
fn formats_that_nobody_checks_are_warned_about() {
    let crd = with_property(json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "foo"}, "b": {"type": "integer", "format": "bar"},
        "c": {"type": "string", "format": "date-time"}, "d": {"type": "integer", "format": "int32"},
        "e": {"type": "array", "items": {"type": "number", "format": "int32"}}, "f": {"type": "string", "format": "foo"},
    }}));
    let expected = ["bar", "foo", "int32"].map(|format| format!("unrecognized format {format:?}"));
    assert_eq!(crd_warnings(&crd, None), expected);
    assert_eq!(crd_warnings(&crd, Some(&crd)), Vec::<String>::new());
}
