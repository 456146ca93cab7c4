//! What a schema does to objects: validation, defaulting, pruning, embedded resources.

use crate::fixtures::Crd;
use crate::harness::{Cluster, MERGE_PATCH, Reply, as_causes, scenario, text};
use serde_json::{Value, json};

/// A field for each kind of constraint.
fn every_constraint() -> Value {
    let ab = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    json!({
        "type": "object",
        "required": ["need"],
        "properties": {
            "need": {"type": "string"},
            "int": {"type": "integer", "minimum": 1, "maximum": 5},
            "above": {"type": "integer", "minimum": 1, "exclusiveMinimum": true},
            "even": {"type": "integer", "multipleOf": 2},
            "num": {"type": "number"},
            "str": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"},
            "enum": {"type": "string", "enum": ["a", "b"]},
            "bool": {"type": "boolean"},
            "arr": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
            "map": {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "integer"}},
            "ios": {"x-kubernetes-int-or-string": true},
            "nul": {"type": "string", "nullable": true},
            "date": {"type": "string", "format": "date-time"},
            "ip": {"type": "string", "format": "ipv4"},
            "i32": {"type": "integer", "format": "int32"},
            "byte": {"type": "string", "format": "byte"},
            "listmap": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}},
            },
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "one": {"type": "object", "properties": ab, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "not": {"type": "string", "not": {"enum": ["x"]}},
            "all": {"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]},
        },
    })
}

async fn create(c: &Cluster, crd: &Crd, name: &str, spec: Value) -> Reply {
    c.post(&crd.objects, &crd.widget(name, spec)).await
}

/// Creates a Widget with each row's field, and expects just that one cause.
async fn refuses(c: &Cluster, rows: &[(Value, &str, &str, &str)]) {
    let crd = c.widgets_of(every_constraint()).await;
    for (fields, reason, field, why) in rows {
        let mut spec = fields.clone();
        spec["need"] = json!("x");
        let reply = create(c, &crd, "w", spec).await;
        reply.invalid(&format!("{} \"w\" is invalid: {field}: {why}", crd.kind()), &[(reason, field, why)]);
        assert_eq!(reply.body["details"]["group"], crd.group);
        assert_eq!(reply.body["details"]["kind"], "Widget");
        assert_eq!(reply.body["details"]["name"], "w");
    }
}

#[tokio::test]
async fn values_outside_their_bounds_are_refused() {
    let invalid = "FieldValueInvalid";
    let rows = [
        (
            json!({"int": 0}),
            invalid,
            "spec.int",
            "Invalid value: 0: spec.int in body should be greater than or equal to 1",
        ),
        (
            json!({"int": 6}),
            invalid,
            "spec.int",
            "Invalid value: 6: spec.int in body should be less than or equal to 5",
        ),
        (
            json!({"above": 1}),
            invalid,
            "spec.above",
            "Invalid value: 1: spec.above in body should be greater than 1",
        ),
        (
            json!({"even": 3}),
            invalid,
            "spec.even",
            "Invalid value: 3: spec.even in body should be a multiple of 2",
        ),
        (
            json!({"str": "a"}),
            invalid,
            "spec.str",
            "Invalid value: \"a\": spec.str in body should be at least 2 chars long",
        ),
        (json!({"str": "abcd"}), "FieldValueTooLong", "spec.str", "Too long: may not be more than 3 bytes"),
        (
            json!({"str": "bcd"}),
            invalid,
            "spec.str",
            "Invalid value: \"bcd\": spec.str in body should match '^a'",
        ),
        (
            json!({"enum": "c"}),
            "FieldValueNotSupported",
            "spec.enum",
            "Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({"arr": []}),
            invalid,
            "spec.arr",
            "Invalid value: 0: spec.arr in body should have at least 1 items",
        ),
        (
            json!({"arr": ["a", "b", "c"]}),
            "FieldValueTooMany",
            "spec.arr",
            "Too many: 3: must have at most 2 items",
        ),
        (
            json!({"map": {}}),
            invalid,
            "spec.map",
            "Invalid value: 0: spec.map in body should have at least 1 properties",
        ),
        (
            json!({"map": {"a": 1, "b": 2}}),
            "FieldValueTooMany",
            "spec.map",
            "Too many: 2: must have at most 1 item",
        ),
    ];
    scenario(async |c| refuses(c, &rows).await).await;
}

#[tokio::test]
async fn values_of_a_wrong_type_are_refused() {
    let row = |spec: Value, field: &'static str, got: &'static str, wanted: &'static str| {
        (
            spec,
            field,
            format!("Invalid value: \"{got}\": {field} in body must be of type {wanted}: \"{got}\""),
        )
    };
    let rows = [
        row(json!({"int": "s"}), "spec.int", "string", "integer"),
        row(json!({"int": true}), "spec.int", "boolean", "integer"),
        row(json!({"num": "s"}), "spec.num", "string", "number"),
        row(json!({"str": 1}), "spec.str", "integer", "string"),
        row(json!({"bool": "true"}), "spec.bool", "string", "boolean"),
        row(json!({"bool": 1}), "spec.bool", "integer", "boolean"),
        row(json!({"arr": "x"}), "spec.arr", "string", "array"),
        row(json!({"arr": {}}), "spec.arr", "object", "array"),
        row(json!({"arr": [1]}), "spec.arr[0]", "integer", "string"),
        row(json!({"map": {"a": "x"}}), "spec.map.a", "string", "integer"),
        row(json!({"map": []}), "spec.map", "array", "object"),
        row(json!({"ios": true}), "spec.ios", "boolean", "integer,string"),
        row(json!({"ios": 1.5}), "spec.ios", "number", "integer,string"),
    ];
    let rows: Vec<_> = rows
        .iter()
        .map(|(spec, field, why)| (spec.clone(), "FieldValueTypeInvalid", *field, why.as_str()))
        .collect();
    scenario(async |c| refuses(c, &rows).await).await;
}

#[tokio::test]
async fn formats_are_checked() {
    let reason = "FieldValueTypeInvalid";
    let rows = [
        (
            json!({"date": "nope"}),
            reason,
            "spec.date",
            "Invalid value: \"nope\": spec.date in body must be of type date-time: \"nope\"",
        ),
        (
            json!({"ip": "300.1.1.1"}),
            reason,
            "spec.ip",
            "Invalid value: \"300.1.1.1\": spec.ip in body must be of type ipv4: \"300.1.1.1\"",
        ),
        (
            json!({"byte": "!!"}),
            reason,
            "spec.byte",
            "Invalid value: \"!!\": spec.byte in body must be of type byte: \"!!\"",
        ),
        (
            json!({"i32": 3_000_000_000_u64}),
            "FieldValueInvalid",
            "<nil>",
            "Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i32",
        ),
    ];
    scenario(async |c| refuses(c, &rows).await).await;
}

#[tokio::test]
async fn lists_with_keys_hold_each_key_once() {
    let rows = [
        (
            json!({"listmap": [{"k": "a"}, {"k": "a"}]}),
            "FieldValueDuplicate",
            "spec.listmap[1]",
            "Duplicate value: {\"k\":\"a\"}",
        ),
        (json!({"listmap": [{}]}), "FieldValueRequired", "spec.listmap[0].k", "Required value"),
        (json!({"set": ["a", "a"]}), "FieldValueDuplicate", "spec.set[1]", "Duplicate value: \"a\""),
    ];
    scenario(async |c| refuses(c, &rows).await).await;
}

#[tokio::test]
async fn schemas_are_combined() {
    scenario(async |c| {
        let crd = c.widgets_of(every_constraint()).await;
        let create = async |name: &str, field: &str, value: Value| {
            let mut spec = json!({"need": "x"});
            spec[field] = value;
            create(c, &crd, name, spec).await
        };
        create("a", "one", json!({"a": "1"})).await.ok(201);
        create("b", "one", json!({"b": "1"})).await.ok(201);
        let why = "Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives";
        create("w", "one", json!({"a": "1", "b": "1"})).await.invalid(
            &format!("{} \"w\" is invalid: <nil>: {why}", crd.kind()),
            &[("FieldValueInvalid", "<nil>", why)],
        );
        let why = "Invalid value: \"\": \"spec.not\" must not validate the schema (not)";
        create("w", "not", json!("x")).await.invalid(
            &format!("{} \"w\" is invalid: <nil>: {why}", crd.kind()),
            &[("FieldValueInvalid", "<nil>", why)],
        );
        let (one, two) = (
            "Invalid value: 4: spec.all in body should be less than or equal to 3",
            "Invalid value: \"\": \"spec.all\" must validate all the schemas (allOf)",
        );
        let reply = create("w", "all", json!(4)).await;
        let mut causes = as_causes(&reply.body["details"]);
        causes.sort_unstable();
        assert_eq!(causes, [("FieldValueInvalid", "<nil>", two), ("FieldValueInvalid", "spec.all", one)]);
    })
    .await;
}

#[tokio::test]
async fn all_problems_are_told_at_once() {
    scenario(async |c| {
        let crd = c.widgets_of(every_constraint()).await;
        let reply = create(c, &crd, "w", json!({"int": 0, "enum": "z"})).await;
        assert_eq!(reply.code, 422);
        let mut causes = as_causes(&reply.body["details"]);
        causes.sort_unstable_by_key(|cause| cause.1);
        let expected = [
            (
                "FieldValueNotSupported",
                "spec.enum",
                "Unsupported value: \"z\": supported values: \"a\", \"b\"",
            ),
            (
                "FieldValueInvalid",
                "spec.int",
                "Invalid value: 0: spec.int in body should be greater than or equal to 1",
            ),
            ("FieldValueRequired", "spec.need", "Required value"),
        ];
        assert_eq!(causes, expected);
        let message = text(&reply.body["message"]);
        assert!(message.starts_with(&format!("{} \"w\" is invalid: [", crd.kind())), "{message}");
    })
    .await;
}

#[tokio::test]
async fn required_fields_must_be_there() {
    scenario(async |c| {
        let crd = c.widgets_of(every_constraint()).await;
        for spec in [json!({}), json!({"need": null})] {
            create(c, &crd, "w", spec).await.invalid(
                &format!("{} \"w\" is invalid: spec.need: Required value", crd.kind()),
                &[("FieldValueRequired", "spec.need", "Required value")],
            );
        }
        let why = "Invalid value: \"string\": spec in body must be of type object: \"string\"";
        create(c, &crd, "w", json!("text")).await.invalid(
            &format!("{} \"w\" is invalid: spec: {why}", crd.kind()),
            &[("FieldValueTypeInvalid", "spec", why)],
        );
        let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "w"}});
        c.post(&crd.objects, &body).await.ok(201);
    })
    .await;
}

#[tokio::test]
async fn good_values_are_taken_as_they_are() {
    scenario(async |c| {
        let crd = c.widgets_of(every_constraint()).await;
        let table = [
            (json!({"need": "x", "ios": 1}), json!({"need": "x", "ios": 1})),
            (json!({"need": "x", "ios": "1%"}), json!({"need": "x", "ios": "1%"})),
            (json!({"need": "x", "nul": null}), json!({"need": "x", "nul": null})),
            (json!({"need": "x", "int": null}), json!({"need": "x"})),
            (json!({"need": "x", "num": 3}), json!({"need": "x", "num": 3})),
            (json!({"need": "x", "num": 3.5}), json!({"need": "x", "num": 3.5})),
            (
                json!({"need": "x", "date": "2020-01-01T00:00:00Z"}),
                json!({"need": "x", "date": "2020-01-01T00:00:00Z"}),
            ),
        ];
        for (i, (spec, expected)) in table.into_iter().enumerate() {
            let made = create(c, &crd, &format!("w{i}"), spec.clone()).await;
            assert_eq!(made.ok(201)["spec"], expected, "{spec}");
        }
    })
    .await;
}

fn with_defaults() -> Value {
    json!({
        "type": "object",
        "default": {},
        "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "nullable": true, "default": "d"},
            "o": {
                "type": "object", "default": {"k": "v"},
                "properties": {"k": {"type": "string"}, "z": {"type": "integer", "default": 5}},
            },
            "l": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "boolean", "default": true}}}},
            "m": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"q": {"type": "integer", "default": 1}}},
            },
            "free": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
            },
        },
    })
}

#[tokio::test]
async fn defaults_fill_what_is_missing() {
    scenario(async |c| {
        let crd = c.widgets_of(with_defaults()).await;
        let all = json!({"a": "x", "n": "d", "o": {"k": "v", "z": 5}});
        let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "none"}});
        assert_eq!(c.post(&crd.objects, &body).await.ok(201)["spec"], all);
        assert_eq!(create(c, &crd, "empty", json!({})).await.ok(201)["spec"], all);
        let spec = json!({"a": null, "n": null, "o": {}, "l": [{}, {"q": false}], "m": {"x": {}}});
        let expected = json!({
            "a": "x", "n": null, "o": {"z": 5}, "l": [{"q": true}, {"q": false}], "m": {"x": {"q": 1}},
        });
        assert_eq!(create(c, &crd, "some", spec).await.ok(201)["spec"], expected);
        let patched = c.patch(&crd.at("none"), MERGE_PATCH, &json!({"spec": {"a": null}})).await;
        assert_eq!(patched.ok(200)["spec"]["a"], "x", "a default comes back");
    })
    .await;
}

#[tokio::test]
async fn a_default_that_is_added_later_shows_on_reading() {
    scenario(async |c| {
        let crd = c.widgets().await;
        create(c, &crd, "old", json!({"size": 1})).await.ok(201);
        let patch = json!([{
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/colour/default",
            "value": "grey",
        }]);
        c.patch(&crd.path, crate::harness::JSON_PATCH, &patch).await.ok(200);
        c.until(&crd.at("old"), "the default", |reply| reply.body["spec"]["colour"] == "grey").await;
    })
    .await;
}

#[tokio::test]
async fn unknown_fields_are_pruned_where_they_are_not_preserved() {
    scenario(async |c| {
        let crd = c.widgets_of(with_defaults()).await;
        let spec = json!({"free": {"any": {"thing": 1}, "known": {"a": "1", "pruned": 1}}, "junk": 1});
        let made = create(c, &crd, "w", spec).await;
        assert_eq!(made.ok(201)["spec"]["free"], json!({"any": {"thing": 1}, "known": {"a": "1"}}));
        assert_eq!(made.body["spec"].get("junk"), None);
        let mut body = crd.widget("top", json!({}));
        body["extra"] = json!(1);
        let made = c.post(&crd.objects, &body).await;
        assert_eq!(made.ok(201).get("extra"), None);
        assert_eq!(made.warnings(), [r#"299 - "unknown field \"extra\"""#]);
    })
    .await;
}

#[tokio::test]
async fn embedded_resources_are_checked_as_objects() {
    scenario(async |c| {
        let template = json!({
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        });
        let crd = c.widgets_of(json!({"type": "object", "properties": {"template": template}})).await;
        let spec = |template: Value| json!({"template": template});
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}, "bogus": 1}, "spec": {"x": 1},
        });
        let made = create(c, &crd, "good", spec(good)).await;
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"x": 1},
        });
        assert_eq!(made.ok(201)["spec"]["template"], expected);
        create(c, &crd, "w", spec(json!({"kind": "Pod"}))).await.invalid(
            &format!("{} \"w\" is invalid: spec.template.apiVersion: Required value", crd.kind()),
            &[("FieldValueRequired", "spec.template.apiVersion", "Required value")],
        );
        let bad = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b c"}}});
        let reply = create(c, &crd, "w", spec(bad)).await;
        let causes = as_causes(&reply.body["details"]);
        assert_eq!(causes.len(), 1, "{}", reply.text);
        assert_eq!((reply.code, causes[0].1), (422, "spec.template.metadata.labels"));
    })
    .await;
}
