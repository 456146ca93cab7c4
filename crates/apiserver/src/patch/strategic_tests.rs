use super::*;
use crate::apply::test_support::schema;
use serde_json::json;

fn pod() -> Schema {
    schema(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}}}},
        "spec": {"type": "object", "properties": {
            "args": {"type": "array", "items": {"type": "string"}},
            "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys", "properties": {
                "type": {"type": "string"}, "rolling": {"type": "object", "properties": {"max": {"type": "integer"}}}}},
            "containers": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "image": {"type": "string"},
                    "env": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
                        "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}},
            "keyless": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "object"}}}}}}))
}

fn patched(object: Value, patch: Value) -> Value {
    strategic_patch(&pod(), &object, &patch).unwrap()
}

fn refused(object: Value, patch: Value) -> (u16, String) {
    let status = strategic_patch(&pod(), &object, &patch).unwrap_err();
    (status.code, status.message)
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn merges_lists_by_key_and_puts_new_items_where_the_patch_has_them() {
    let live = containers(
        json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
    );
    let table = [
        (
            json!([{"name": "b", "image": "2"}]),
            json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}]),
        ),
        (
            json!([{"name": "c", "image": "3"}]),
            json!([{"name": "c", "image": "3"}, {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]),
        ),
        (
            json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": null}]}]),
            json!([{"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X"}]}, {"name": "b", "image": "1"}]),
        ),
        (json!([{"name": "a", "$patch": "delete"}]), json!([{"name": "b", "image": "1"}])),
        (json!([{"$patch": "replace"}, {"name": "z", "image": "9"}]), json!([{"name": "z", "image": "9"}])),
        (
            json!([{"name": "a", "image": null, "env": null}]),
            json!([{"name": "a"}, {"name": "b", "image": "1"}]),
        ),
    ];
    for (patch, wanted) in table {
        assert_eq!(patched(live.clone(), containers(patch.clone())), containers(wanted), "{patch}");
    }
}

#[test]
fn order_directive_orders() {
    let live = containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
    let order = |names: &[&str], extra: Value| {
        let list: Vec<_> = names.iter().map(|n| json!({"name": n})).collect();
        let mut spec = json!({"$setElementOrder/containers": list});
        if !extra.is_null() {
            spec["containers"] = extra;
        }
        json!({"spec": spec})
    };
    let names = |object: Value| -> String {
        object["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_string())
            .collect()
    };
    assert_eq!(names(patched(live.clone(), order(&["c", "a"], Value::Null))), "bca");
    assert_eq!(names(patched(live.clone(), order(&["c", "n", "a", "b"], json!([{"name": "n"}])))), "cnab");
    assert_eq!(
        names(patched(live.clone(), order(&["a", "c"], json!([{"name": "b", "$patch": "delete"}])))),
        "ac"
    );
    assert_eq!(
        names(patched(json!({"spec": {}}), order(&["q", "p"], json!([{"name": "q"}, {"name": "p"}])))),
        "qp"
    );
    assert_eq!(patched(json!({"spec": {}}), order(&["q"], Value::Null)), json!({"spec": {}}));
    assert_eq!(
        refused(live.clone(), order(&["z"], json!([{"image": "i", "name": "r"}]))),
        (500, "The order in patch list:\n[map[image:i name:r]]\n doesn't match $setElementOrder list:\n[map[name:z]]\n".into())
    );
    assert_eq!(
        refused(live, json!({"spec": {"$setElementOrder/containers": "x"}})),
        (500, "expected a []interface {}, but received a string".into())
    );
}

#[test]
fn scalars_merge_as_a_set() {
    let live = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"args": ["x"]}});
    let finalizers = |object: Value| object["metadata"]["finalizers"].clone();
    let meta = |patch: Value| json!({"metadata": patch});
    assert_eq!(
        finalizers(patched(live.clone(), meta(json!({"finalizers": ["c", "b"]})))),
        json!(["c", "a", "b"])
    );
    assert_eq!(
        finalizers(patched(live.clone(), meta(json!({"$deleteFromPrimitiveList/finalizers": ["a"]})))),
        json!(["b"])
    );
    assert_eq!(
        finalizers(patched(
            live.clone(),
            meta(
                json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]})
            )
        )),
        json!(["c", "b"])
    );
    assert_eq!(
        patched(live.clone(), json!({"spec": {"args": ["y"]}}))["spec"]["args"],
        json!(["y"]),
        "atomic"
    );
    assert_eq!(
        refused(live.clone(), meta(json!({"$deleteFromPrimitiveList": ["a"]}))),
        (400, "invalid patch format of primitive list".into())
    );
    assert_eq!(patched(live.clone(), meta(json!({"$deleteFromPrimitiveList/finalizers": "a"}))), live);
}

#[test]
fn directives_on_maps() {
    let live = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"strategy": {"type": "Rolling", "rolling": {"max": 1}}}});
    let labels = |patch: Value| {
        patched(live.clone(), json!({"metadata": {"labels": patch}}))["metadata"]["labels"].clone()
    };
    assert_eq!(labels(json!({"a": null, "c": "3"})), json!({"b": "2", "c": "3"}));
    assert_eq!(labels(json!({"$patch": "replace", "c": "3"})), json!({"c": "3"}));
    assert_eq!(labels(json!({"$patch": "delete", "c": "3"})), json!({}));
    let strategy = |patch: Value| json!({"spec": {"strategy": patch}});
    assert_eq!(
        patched(live.clone(), strategy(json!({"$retainKeys": ["type"], "type": "Recreate"})))["spec"]["strategy"],
        json!({"type": "Recreate"})
    );
    for bad in [json!({"$retainKeys": ["rolling"], "type": "Recreate"}), json!({"$retainKeys": "x"})] {
        assert_eq!(refused(live.clone(), strategy(bad)), (400, "invalid patch format of retainKeys".into()));
    }
    let anew = patched(
        json!({}),
        json!({"metadata": {"labels": {"$patch": "replace", "a": "1"}}, "spec": {"x": {"y": null}}}),
    );
    assert_eq!(
        anew,
        json!({"metadata": {}, "spec": {"x": {}}}),
        "what comes in anew brings no directives and no nulls"
    );
}

#[test]
fn refusals_are_those_of_the_real_server() {
    let live = containers(json!([{"name": "c", "image": "i"}]));
    let table = [
        (
            containers(json!([{"image": "x"}])),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            containers(json!([{"$patch": "delete"}])),
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            containers(json!([{"$patch": "frob", "name": "c"}])),
            500,
            "unknown patch type: frob in map: map[$patch:frob name:c]",
        ),
        (
            containers(json!([{"$patch": "merge", "name": "c"}])),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (json!({"spec": {"$patch": "frob"}}), 500, "unknown patch type: frob in map: map[$patch:frob]"),
        (json!({"spec": {"$patch": 5}}), 500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
        (containers(json!([5])), 500, "list element types are not identical: [[map[image:i name:c]] [5]]"),
    ];
    for (patch, code, message) in table {
        assert_eq!(refused(live.clone(), patch), (code, message.to_string()));
    }
    let keyless = json!({"spec": {"keyless": [{"a": 1}]}});
    assert_eq!(
        refused(keyless.clone(), keyless),
        (500, "cannot merge lists without merge key for keyless".into())
    );
    let nested = json!({"metadata": {"finalizers": [["a"]]}});
    assert_eq!(refused(nested.clone(), nested).0, 422);
}

#[test]
fn bodies_that_are_no_object_are_refused() {
    let table: [(&[u8], &str); 3] = [
        (b"{", "unexpected end of JSON input"),
        (b"", "unexpected end of JSON input"),
        (b"[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ];
    for (body, message) in table {
        let status = parse_strategic_patch(body).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (400, message));
    }
    assert_eq!(parse_strategic_patch(b"null").unwrap(), json!({}));
}

/// Without what the real server's types do not keep: nulls, empty lists and maps.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            fields.retain(|_, v| match v {
                Value::Null => false,
                Value::Object(map) => !map.is_empty(),
                Value::Array(list) => !list.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Random patches and what a real kube-apiserver (1.36) made of them.
#[test]
fn recorded_patches_end_as_on_the_real_server() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("testdata/strategic.json")).unwrap();
    let merged_by_name = |items: Value| {
        json!({"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
            "items": {"type": "object", "properties": items}})
    };
    let holding = |name: &str, what: Value| json!({"type": "object", "properties": {name: what}});
    let containers = merged_by_name(json!({"env": merged_by_name(json!({}))}));
    let mut deployment =
        holding("spec", holding("template", holding("spec", holding("containers", containers))));
    deployment["properties"]["metadata"] = json!({"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": {"type": "string"}}}});
    let deployment = schema(&deployment);
    let mut problems = Vec::new();
    for case in &recorded {
        let mut ours = match strategic_patch(&deployment, &case["live"], &case["patch"]) {
            Ok(object) => json!({"code": 200, "result": object}),
            Err(status) => json!({"code": status.code, "result": {"message": status.message}}),
        };
        let mut real = json!({"code": case["code"], "result": case["result"]});
        tidy(&mut ours);
        tidy(&mut real);
        if ours != real {
            problems
                .push(format!("{} patched by {}\n  {ours}\nbut real\n  {real}", case["live"], case["patch"]));
        }
    }
    assert!(recorded.len() > 150);
    assert!(
        problems.is_empty(),
        "{} of {} differ:\n{}",
        problems.len(),
        recorded.len(),
        problems.join("\n\n")
    );
}
