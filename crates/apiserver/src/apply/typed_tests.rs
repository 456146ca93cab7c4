use super::*;
use crate::apply::test_support::schema;
use crate::apply::with_meta;
use serde_json::json;

fn widget() -> Schema {
    schema(&json!({"type": "object", "properties": {
    "spec": {"type": "object", "properties": {
        "size": {"type": "integer"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "args": {"type": "array", "items": {"type": "string"}},
        "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "proto"],
            "items": {"type": "object", "properties": {"port": {"type": "integer"},
                "proto": {"type": "string", "default": "TCP"}, "note": {"type": "string"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"in": {"type": "object", "properties": {"x": {"type": "string"}}}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "time": {"type": "string", "format": "date-time"},
        "nested": {"type": "object", "properties": {"x": {"type": "string"}}},
    }}}}))
}

fn fields(value: Value) -> Value {
    field_set(with_meta(&widget()), &value).to_fields_v1()
}

#[test]
fn ownership_follows_the_schema() {
    let table = [
        (json!({"size": 1, "args": ["a", "b"]}), json!({"f:size": {}, "f:args": {}})),
        (json!({"set": ["a", "b"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
        (
            json!({"rules": [{"port": 80, "note": "n"}]}),
            json!({"f:rules": {"k:{\"port\":80,\"proto\":\"TCP\"}": {".": {}, "f:note": {}, "f:port": {}}}}),
        ),
        (json!({"whole": {"a": "1"}}), json!({"f:whole": {}})),
        (json!({"labels": {"a": "1"}}), json!({"f:labels": {"f:a": {}}})),
        (json!({"free": {"in": {"x": "1"}}}), json!({"f:free": {"f:in": {"f:x": {}}}})),
        (
            json!({"free": {"k": {"l": [1], "m": {}}}}),
            json!({"f:free": {"f:k": {".": {}, "f:l": {}, "f:m": {}}}}),
        ),
        (json!({"nested": {}, "size": null}), json!({"f:nested": {}, "f:size": {}})),
        (json!({"set": ["a", "a", "b"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
    ];
    for (spec, wanted) in table {
        assert_eq!(fields(json!({"spec": spec})), json!({"f:spec": wanted}), "{spec}");
    }
    assert_eq!(fields(json!({"spec": {"set": []}})), json!({}), "an empty list has nothing in it to own");
}

#[test]
fn metadata_is_known_though_the_schema_leaves_it_out() {
    let meta = json!({"metadata": {"name": "n", "labels": {"a": "b"}, "finalizers": ["x"],
        "ownerReferences": [{"uid": "u", "name": "o"}]}});
    assert_eq!(
        fields(meta),
        json!({"f:metadata": {"f:name": {}, "f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}})
    );
}

#[test]
fn without_a_schema_objects_are_maps_and_lists_are_leaves() {
    let none = Schema::default();
    let set = field_set(with_meta(&none), &json!({"spec": {"l": [{"name": "x"}], "m": {"n": 1}}}));
    assert_eq!(set.to_fields_v1(), json!({"f:spec": {".": {}, "f:l": {}, "f:m": {".": {}, "f:n": {}}}}));
    assert!(type_errors(with_meta(&none), &json!({"spec": {"anything": [1, {}]}})).is_empty());
}

#[test]
fn type_errors_are_those_of_the_real_server() {
    let table = [
        (json!({"bogus": 1}), ".spec.bogus: field not declared in schema"),
        (json!({"size": "x"}), ".spec.size: expected numeric (int or float), got string"),
        (json!({"set": "x"}), ".spec.set: expected list, got &{x}"),
        (json!({"nested": [1]}), ".spec.nested: expected map, got &{[1]}"),
        (
            json!({"nested": {"x": true}}),
            ".spec.nested.x: expected string, got &value.valueUnstructured{Value:true}",
        ),
        (json!({"set": ["a", "a"]}), ".spec.set: duplicate entries for key [=\"a\"]"),
        (
            json!({"rules": [{"port": 1}, {"port": 1}]}),
            ".spec.rules: duplicate entries for key [port=1,proto=\"TCP\"]",
        ),
        (
            json!({"rules": [null]}),
            ".spec.rules: element 0: associative list with keys may not have a null element",
        ),
        (json!({"args": [1]}), ".spec.args[0]: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"time": {}}), ".spec.time: expected any scalar, got &{map[]}"),
    ];
    for (spec, wanted) in table {
        assert_eq!(errors_text(&type_errors(with_meta(&widget()), &json!({"spec": spec}))), wanted);
    }
    let two = type_errors(with_meta(&widget()), &json!({"a": 1, "b": 1}));
    assert_eq!(
        errors_text(&two),
        "errors:\n  .a: field not declared in schema\n  .b: field not declared in schema"
    );
    for fine in
        [json!({"size": null, "time": 5, "free": {"q": [1]}}), json!({"free": {"in": {"unknown": 1}}})]
    {
        assert!(type_errors(with_meta(&widget()), &json!({"spec": fine})).is_empty(), "{fine}");
    }
}

#[test]
fn removes_and_extracts_the_same_paths() {
    let object = json!({"spec": {"size": 1, "set": ["a", "b"], "labels": {"x": "1", "y": "2"},
        "rules": [{"port": 80, "note": "n"}, {"port": 81, "proto": "UDP", "note": "m"}]}});
    let schema = widget();
    let ty = with_meta(&schema);
    let set = FieldSet::from_fields_v1(&json!({"f:spec": {"f:size": {}, "f:set": {"v:\"b\"": {}}, "f:labels": {"f:x": {}},
        "f:rules": {"k:{\"port\":80,\"proto\":\"TCP\"}": {"f:note": {}}, "k:{\"port\":81,\"proto\":\"UDP\"}": {}}}}))
    .unwrap();
    let mut rest = object.clone();
    remove_items(ty, &mut rest, &set);
    assert_eq!(rest, json!({"spec": {"set": ["a"], "labels": {"y": "2"}, "rules": [{"port": 80}]}}));
    assert_eq!(
        extract_items(ty, &object, &set),
        Some(json!({"spec": {"size": 1, "set": ["b"], "labels": {"x": "1"}, "rules": [{"note": "n"}, {}]}}))
    );
    assert_eq!(extract_items(ty, &object, &FieldSet::new()), None);
}

#[test]
fn a_set_is_fitted_when_its_schema_became_atomic() {
    let schema = widget();
    let ty = with_meta(&schema);
    let old = FieldSet::from_fields_v1(
        &json!({"f:spec": {"f:whole": {"f:a": {}}, "f:args": {".": {}, "v:\"x\"": {}},
        "f:size": {}}}),
    )
    .unwrap();
    let fitted = fit_to_schema(ty, &old).unwrap();
    assert_eq!(fitted.to_fields_v1(), json!({"f:spec": {"f:whole": {}, "f:args": {}, "f:size": {}}}));
    assert_eq!(fit_to_schema(ty, &fitted), None);
}
