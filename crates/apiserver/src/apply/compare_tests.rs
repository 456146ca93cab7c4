use super::*;
use crate::apply::test_support::schema;
use crate::apply::with_meta;
use serde_json::json;

fn check(old: Value, new: Value, added: Value, modified: Value, removed: Value) {
    let schema = schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": {"type": "string"}}}},
        "args": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"x-kubernetes-preserve-unknown-fields": true}}}}}));
    let changed = compare(with_meta(&schema), &json!({"spec": old}), &json!({"spec": new}));
    let below =
        |set: &FieldSet| set.below(&PathElement::field("spec")).cloned().unwrap_or_default().to_fields_v1();
    let found = (below(&changed.added), below(&changed.modified), below(&changed.removed));
    assert_eq!(found, (added, modified, removed), "{old} -> {new}");
    let back = compare(with_meta(&schema), &json!({"spec": new}), &json!({"spec": old}));
    assert_eq!((&back.added, &back.removed), (&changed.removed, &changed.added), "the way back");
    assert_eq!(back.modified, changed.modified, "the way back");
}

#[test]
fn finds_what_changed() {
    let no = || json!({});
    check(json!({"size": 1}), json!({"size": 1}), no(), no(), no());
    check(json!({"size": 1}), json!({"size": 2}), no(), json!({"f:size": {}}), no());
    check(json!({}), json!({"map": {"a": "1"}}), json!({"f:map": {".": {}, "f:a": {}}}), no(), no());
    check(
        json!({"map": {"b": "1"}}),
        json!({"map": {"a": "1"}}),
        json!({"f:map": {"f:a": {}}}),
        no(),
        json!({"f:map": {"f:b": {}}}),
    );
    check(json!({"map": {}}), json!({"map": null}), no(), json!({"f:map": {}}), no());
    check(json!({"map": {}}), json!({}), no(), no(), json!({"f:map": {}}));
    check(json!({"args": ["a"]}), json!({"args": ["b"]}), no(), json!({"f:args": {}}), no());
    check(
        json!({"set": ["a", "b"]}),
        json!({"set": ["b", "c"]}),
        json!({"f:set": {"v:\"c\"": {}}}),
        no(),
        json!({"f:set": {"v:\"a\"": {}}}),
    );
    check(json!({"set": ["a", "b"]}), json!({"set": ["b", "a"]}), no(), no(), no());
    check(
        json!({"rules": [{"n": "x", "v": "1"}, {"n": "y"}]}),
        json!({"rules": [{"n": "y", "v": "2"}, {"n": "x", "v": "3"}]}),
        json!({"f:rules": {"k:{\"n\":\"y\"}": {"f:v": {}}}}),
        json!({"f:rules": {"k:{\"n\":\"x\"}": {"f:v": {}}}}),
        no(),
    );
}

#[test]
fn duplicates_are_compared_as_one() {
    let no = || json!({});
    check(json!({"set": ["a", "a"]}), json!({"set": ["a", "a"]}), no(), no(), no());
    let one = json!({"n": "x", "v": "1"});
    let two = json!({"n": "x", "v": "2"});
    check(
        json!({"rules": [one, two]}),
        json!({"rules": [one, one]}),
        no(),
        json!({"f:rules": {"k:{\"n\":\"x\"}": {}}}),
        no(),
    );
    check(
        json!({"rules": [one]}),
        json!({"rules": [one, two]}),
        json!({"f:rules": {"k:{\"n\":\"x\"}": {}}}),
        no(),
        json!({"f:rules": {"k:{\"n\":\"x\"}": {".": {}, "f:n": {}, "f:v": {}}}}),
    );
}

#[test]
fn a_change_of_kind_is_a_change_of_the_place_and_all_below() {
    let no = || json!({});
    check(json!({"any": 1}), json!({"any": "x"}), no(), json!({"f:any": {}}), no());
    check(
        json!({"any": 1}),
        json!({"any": {"a": 1}}),
        json!({"f:any": {"f:a": {}}}),
        json!({"f:any": {}}),
        no(),
    );
}

#[test]
fn a_built_in_kind_starts_with_its_structs() {
    let schema = schema(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "default": {}, "properties": {"name": {"type": "string"}}},
        "spec": {"type": "object", "default": {}, "required": ["list"], "properties": {
            "list": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "pointer": {"type": "object", "properties": {"a": {"type": "string"}}},
            "inner": {"type": "object", "default": {}, "properties": {"a": {"type": "string"}}}}}}}));
    let new = json!({"spec": {"list": ["x"], "pointer": {"a": "1"}, "inner": {"a": "1"}}});
    let zero = compare_from(with_meta(&schema), Before::Zero, &new);
    assert_eq!(
        zero.written().to_fields_v1(),
        json!({"f:spec": {"f:list": {"v:\"x\"": {}}, "f:pointer": {".": {}, "f:a": {}}, "f:inner": {"f:a": {}}}})
    );
    let custom = compare(with_meta(&schema), &json!({}), &new);
    assert_eq!(
        custom.written().to_fields_v1(),
        json!({"f:spec": {".": {}, "f:list": {".": {}, "v:\"x\"": {}}, "f:pointer": {".": {}, "f:a": {}},
            "f:inner": {".": {}, "f:a": {}}}})
    );
}

#[test]
fn structs_are_known_by_name_where_the_schema_has_no_defaults() {
    assert!(STRUCTS.is_sorted());
    let with = |properties: Value, title: &str| {
        let mut out = schema(&json!({"type": "object", "properties": properties}));
        out.title = Some(title.into());
        out
    };
    let object = || json!({"type": "object"});
    assert!(is_struct(&with(json!({"template": object()}), "v1.ReplicaSetSpec"), "template"));
    assert!(!is_struct(&with(json!({"template": object()}), "v1.ReplicationControllerSpec"), "template"));
    assert!(is_struct(
        &with(json!({"resources": object(), "accessModes": {"type": "array"}}), "v1.X"),
        "resources"
    ));
    assert!(!is_struct(&with(json!({"resources": object()}), "v1.PodSpec"), "resources"));
    assert!(!is_struct(&with(json!({"selector": object()}), "v1.ReplicaSetSpec"), "selector"));
}
