//! Tests of the walks together. The expected sentences are those of a real kube-apiserver 1.36, recorded in `testdata`.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const NOT_CHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                           invalid; correct the existing errors to complete validation";

/// Shared by all tests, as a server shares it between its threads.
static WIDGET: LazyLock<(Arc<Schema>, Rules)> = LazyLock::new(|| {
    let text = include_str!("testdata/widget.json");
    let schema = parse(&serde_json::from_str(text).unwrap()).unwrap();
    let (rules, broken) = Rules::compile(&schema);
    assert_eq!(broken, []);
    (schema, rules)
});

fn widget() -> Arc<Schema> {
    Arc::clone(&WIDGET.0)
}

fn object(spec: Value) -> Value {
    json!({
        "apiVersion": "schema.example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"}, "spec": spec,
    })
}

/// All that happens to a new object.
fn create(schema: &Schema, rules: &Rules, spec: Value) -> Vec<String> {
    let mut new = object(spec);
    prune(schema, &mut new);
    apply_defaults(schema, &mut new);
    let mut errors = validate_meta(&new, true);
    errors.extend(validate(schema, &new));
    rules.check_after(&mut errors, &new, None);
    sorted(&errors)
}

fn sorted(errors: &[crate::status::FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

#[test]
fn answers_of_kubernetes() {
    let (schema, rules) = &*WIDGET;
    let mut cases = 0;
    let mut lines = include_str!("testdata/answers.txt").lines().peekable();
    while let Some(spec) = lines.next() {
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
            expected.push(match line.trim_start() {
                "BLOCKED" => NOT_CHECKED.to_string(),
                text => text.to_string(),
            });
        }
        expected.sort();
        assert_eq!(create(schema, rules, serde_json::from_str(spec).unwrap()), expected, "for spec {spec}");
        cases += 1;
    }
    assert!(cases >= 75, "the table was read: {cases}");
}

#[test]
fn unknown_fields_are_named_and_removed() {
    let schema = widget();
    let mut new = object(json!({
        "req": "a", "foo": 1, "ports": [{"name": "a", "port": 1, "zz": 2}], "sizes": {"any": 1},
        "emb": {"apiVersion": "v1", "kind": "A", "metadata": {"bar": 1, "name": "n"}, "free": {"x": 1}},
    }));
    new["extra"] = json!({});
    new["metadata"]["oops"] = json!(1);
    new["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "b": 1}]);
    new["status"] = json!({"anything": {"goes": true}});
    let expected = [
        "metadata.oops",
        "metadata.ownerReferences[0].b",
        "extra",
        "spec.foo",
        "spec.ports[0].zz",
        "spec.emb.metadata.bar",
    ];
    assert_eq!(unknown_fields(&schema, &new), expected);
    prune(&schema, &mut new);
    assert_eq!(unknown_fields(&schema, &new), Vec::<String>::new());
    assert_eq!(
        new["spec"]["emb"]["free"]["x"], 1,
        "an embedded resource that preserves keeps its own fields"
    );
    assert_eq!(new["status"]["anything"]["goes"], true);
    assert_eq!(new["spec"]["sizes"]["any"], 1);
    assert!(new.get("extra").is_none() && new["spec"].get("foo").is_none());
}

fn of(schema: Value) -> Arc<Schema> {
    parse(&schema).unwrap()
}

#[test]
fn pruning_corner_cases() {
    // A map of anything keeps scalars and empties objects; a list that preserves keeps the fields of its items.
    let schema = of(json!({"type": "object", "properties": {
        "any": {"type": "object", "additionalProperties": true},
        "list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true,
                 "items": {"type": "object", "properties": {"a": {"type": "object"}}}},
    }}));
    let mut value = json!({"any": {"k": 1, "o": {"x": 1}}, "list": [{"b": 1, "a": {"c": 1}}]});
    prune(&schema, &mut value);
    assert_eq!(value, json!({"any": {"k": 1, "o": {}}, "list": [{"b": 1, "a": {}}]}));
}

#[test]
fn defaults_fill_what_is_absent() {
    let schema = of(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "gone": {"type": "string"},
            "sub": {"type": "object", "default": {}, "properties": {"deep": {"type": "integer", "default": 3}}},
            "list": {"type": "array", "items": {"type": "object", "default": {}, "properties": {
                "p": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                "v": {"type": "integer", "default": 1}}}},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "default": "New"}}},
    }}));
    let mut value = json!({"spec": {"a": null, "n": null, "gone": null, "list": [{}, {"p": "UDP"}, null],
                                    "map": {"k": {}, "z": {"v": 5}}}});
    apply_defaults(&schema, &mut value);
    assert_eq!(
        value,
        json!({"spec": {
            "a": "x", "n": null, "sub": {"deep": 3},
            "list": [{"p": "TCP"}, {"p": "UDP"}, {"p": "TCP"}], "map": {"k": {"v": 1}, "z": {"v": 5}},
        }})
    );
    let mut empty = json!({});
    apply_defaults(&schema, &mut empty);
    assert_eq!(empty, json!({}), "no parent, no default");
}

#[test]
fn publishing_returns_what_was_parsed() {
    let text = include_str!("testdata/widget.json");
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(to_openapi(&parse(&given).unwrap()), given);
}

#[test]
fn what_cannot_be_parsed_is_named() {
    let errors = |schema: Value| sorted(&parse(&schema).unwrap_err());
    assert_eq!(
        errors(json!({"type": "object", "properties": {"a": {"type": "strin", "maxLength": "5"}}})),
        [
            "openAPIV3Schema.properties[a].maxLength: Invalid value: \"5\": must be a non-negative integer",
            "openAPIV3Schema.properties[a].type: Unsupported value: \"strin\": supported values: \"array\", \
             \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ]
    );
    assert_eq!(errors(json!(5)), ["openAPIV3Schema: Invalid value: 5: must be a schema, which is an object"]);
    let mut deep = json!({"type": "string"});
    for _ in 0..300 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert!(errors(deep)[0].ends_with("Forbidden: must not be nested more than 100 levels deep"));
}

/// A schema with rules on old and new values.
fn ratcheted() -> Arc<Schema> {
    of(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 3},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 2}},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
            "items": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "integer"}, "v": {"type": "string", "maxLength": 2},
                "fixed": {"type": "string", "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "fixed is immutable"}]}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 5}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "once": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true,
             "messageExpression": "'not ' + self"}]},
        "small": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
        "bag": {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [
            {"rule": "self.a < 5", "fieldPath": ".a", "reason": "FieldValueDuplicate"}]},
    }}}}))
}

fn update(new: Value, old: Value) -> Vec<String> {
    let schema = ratcheted();
    let (rules, broken) = Rules::compile(&schema);
    assert_eq!(broken, []);
    let (new, old) = (json!({"spec": new}), json!({"spec": old}));
    let mut errors = validate_update(&schema, &new, &old);
    rules.check_after(&mut errors, &new, Some(&old));
    errors.retain(|e| !e.detail.starts_with("some validation rules"));
    sorted(&errors)
}

#[test]
fn what_did_not_change_is_let_through() {
    let none: [&str; 0] = [];
    assert_eq!(update(json!({"name": "long"}), json!({"name": "long"})), none);
    assert_eq!(
        update(json!({"name": "longer"}), json!({"name": "long"})),
        ["spec.name: Too long: may not be more than 3 bytes"]
    );
    // A plain list is one value; items of a list map are matched by key, whatever their order.
    assert_eq!(update(json!({"tags": ["abc"]}), json!({"tags": ["abc"]})), none);
    assert_eq!(
        update(json!({"tags": ["abc", "d"]}), json!({"tags": ["abc"]})),
        ["spec.tags[0]: Too long: may not be more than 2 bytes"]
    );
    let ports = |list: Value| json!({"ports": list});
    assert_eq!(
        update(
            ports(json!([{"id": 2, "v": "x"}, {"id": 1, "v": "long"}])),
            ports(json!([{"id": 1, "v": "long"}]))
        ),
        none
    );
    assert_eq!(
        update(ports(json!([{"id": 3, "v": "long"}])), ports(json!([{"id": 1, "v": "long"}]))),
        ["spec.ports[0].v: Too long: may not be more than 2 bytes"]
    );
    assert_eq!(update(json!({"map": {"a": 9, "b": 1}}), json!({"map": {"a": 9}})), none);
    assert_eq!(
        update(json!({"set": ["a", "a", "b"]}), json!({"set": ["a", "a"]})),
        none,
        "was broken before"
    );
    assert_eq!(
        update(json!({"set": ["a", "a"]}), json!({"set": ["a"]})),
        ["spec.set[1]: Duplicate value: \"a\""]
    );
    assert_eq!(update(json!({"small": 9, "name": "a"}), json!({"small": 9})), none);
}

#[test]
fn rules_see_the_old_value() {
    let none: [&str; 0] = [];
    let ports = |list: Value| json!({"ports": list});
    assert_eq!(
        update(
            ports(json!([{"id": 2, "fixed": "z"}, {"id": 1, "fixed": "b"}])),
            ports(json!([{"id": 1, "fixed": "a"}]))
        ),
        ["spec.ports[1].fixed: Invalid value: \"b\": fixed is immutable"]
    );
    assert_eq!(update(json!({"once": "any"}), json!({"once": "first"})), none);
    assert_eq!(update(json!({"once": "any"}), json!({})), ["spec.once: Invalid value: \"any\": not any"]);
    assert_eq!(update(json!({"once": "first"}), json!({})), none);
    assert_eq!(
        update(json!({"small": 9}), json!({"small": 8})),
        ["spec.small: Invalid value: 9: failed rule: self < 5"]
    );
    assert_eq!(update(json!({"bag": {"a": 7}}), json!({"bag": {"a": 6}})), ["spec.bag.a: Duplicate value"]);
    assert_eq!(
        update(json!({"bag": {}}), json!({"bag": {}})),
        ["spec.bag: Invalid value: \"object\": no such key: a evaluating rule: self.a < 5"],
        "a rule that cannot be evaluated fails, changed or not"
    );
}

#[test]
fn the_status_is_validated_by_itself() {
    let schema = of(json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["x"]},
        "status": {"type": "object", "required": ["r"], "properties": {
            "r": {"type": "string"}, "n": {"type": "integer"},
            "l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}}));
    let check = |new: Value| sorted(&validate_status_update(&schema, &json!({"status": new}), &json!({})));
    assert_eq!(check(json!({})), ["status.r: Required value"]);
    assert_eq!(
        check(json!({"r": 5})),
        ["status.r: Invalid value: \"integer\": r in body must be of type string: \"integer\""]
    );
    assert_eq!(check(json!({"r": "a", "l": ["a", "a"]})), ["status.l[1]: Duplicate value: \"a\""]);
    assert_eq!(
        check(json!("x")),
        ["status: Invalid value: \"string\":  in body must be of type object: \"string\""]
    );
    assert_eq!(
        check(json!({"r": "a", "n": 1.5})),
        [
            "status.n: Invalid value: \"number\": n in body must be of type integer: \"number\"",
            "status: Invalid value: \"\": Checked value must be of type integer (default format) in n",
        ]
    );
    let broken = json!({"status": {"r": 5}});
    assert_eq!(validate_status_update(&schema, &broken, &broken), [], "unchanged");
}

#[test]
fn metadata_of_wrong_types_is_refused_as_by_the_decoder() {
    let cases = [
        (json!({"labels": [1]}), "array into Go struct field ObjectMeta.labels of type map[string]string"),
        (json!({"labels": {"a": 1}}), "number into Go struct field ObjectMeta.labels of type string"),
        (json!({"name": 5}), "number into Go struct field ObjectMeta.name of type string"),
        (json!({"uid": 5}), "number into Go struct field ObjectMeta.uid of type types.UID"),
        (
            json!({"creationTimestamp": {}}),
            "object into Go struct field ObjectMeta.creationTimestamp of type string",
        ),
        (json!({"finalizers": "x"}), "string into Go struct field ObjectMeta.finalizers of type []string"),
        (json!({"finalizers": [1]}), "number into Go struct field ObjectMeta.finalizers of type string"),
        (
            json!({"ownerReferences": {}}),
            "object into Go struct field ObjectMeta.ownerReferences of type []v1.OwnerReference",
        ),
        (
            json!({"ownerReferences": [1]}),
            "number into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
        ),
        (
            json!({"ownerReferences": [{"controller": "x"}]}),
            "string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
        (json!({"generation": "x"}), "string into Go struct field ObjectMeta.generation of type int64"),
        (json!({"generation": 1.5}), "number 1.5 into Go struct field ObjectMeta.generation of type int64"),
        (json!([]), "array into Go value of type v1.ObjectMeta"),
    ];
    for (metadata, text) in cases {
        assert_eq!(decode_meta(&metadata), Err(format!("json: cannot unmarshal {text}")));
    }
    assert_eq!(
        decode_meta(&json!({"creationTimestamp": "x"})),
        Err("parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"".to_string())
    );
    assert_eq!(
        decode_meta_of("ConfigMap", &json!({"labels": [1]})),
        Err("json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string"
            .to_string())
    );
    assert_eq!(
        decode_meta_of("ConfigMap", &json!(5)),
        Err("json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
            .to_string())
    );
    let fine = json!({"name": "a", "labels": {"a": null}, "generation": 1, "unknown": [],
                      "creationTimestamp": "2024-01-01T00:00:00Z", "managedFields": [{"fieldsV1": {"f:a": {}}}]});
    assert_eq!(decode_meta(&fine), Ok(()));
}

#[test]
fn metadata_is_checked() {
    let check =
        |metadata: Value, namespaced| sorted(&validate_meta(&json!({"metadata": metadata}), namespaced));
    let none: [&str; 0] = [];
    assert_eq!(check(json!({"name": "a", "namespace": "b"}), true), none);
    assert_eq!(check(json!({}), false), ["metadata.name: Required value: name or generateName is required"]);
    assert_eq!(check(json!({"name": "a"}), true), ["metadata.namespace: Required value"]);
    assert_eq!(
        check(json!({"name": "a", "namespace": "b"}), false),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    let errors = check(json!({"name": "A_b", "generateName": "A_"}), false);
    assert_eq!(errors.len(), 2);
    assert!(errors[0].starts_with(
        "metadata.generateName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain must consist of"
    ));
    assert_eq!(
        check(json!({"name": "a", "annotations": {"k": "x".repeat(256 << 10)}}), false),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    );
    assert_eq!(
        check(
            json!({"name": "a", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}),
            false
        ),
        [
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ]
    );
    let owner =
        |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "a", "uid": "u", "controller": true});
    let errors = check(json!({"name": "a", "ownerReferences": [owner("A"), owner("B")]}), false);
    assert!(errors[0].ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for A/a and B/a"
    ));
    assert_eq!(
        check(json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), false),
        ["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
             foregroundDeletion cannot be both set",]
    );
}

#[test]
fn finalizers_that_may_clash() {
    let new = json!({"metadata": {"finalizers": ["x", "x.y", "x.y/z", "orphan"]}});
    assert_eq!(
        finalizer_warnings(&new, None),
        [
            "metadata.finalizers: \"x\": prefer a domain-qualified finalizer name to avoid accidental conflicts with \
             other finalizer writers",
            "metadata.finalizers: \"x.y\": prefer a domain-qualified finalizer name including a path (/) to avoid \
             accidental conflicts with other finalizer writers",
        ]
    );
    assert_eq!(finalizer_warnings(&new, Some(&new)), Vec::<String>::new());
}

#[test]
fn metadata_that_stays() {
    let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 2,
        "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a.b/c"]}});
    let change = |key: &str, value: Value| {
        let mut new = old.clone();
        new["metadata"][key] = value;
        sorted(&validate_meta_update(&new, &old))
    };
    assert_eq!(change("labels", json!({"a": "b"})), Vec::<String>::new());
    assert_eq!(change("name", json!("b")), ["metadata.name: Invalid value: \"b\": field is immutable"]);
    assert_eq!(change("uid", json!("x")), ["metadata.uid: Invalid value: \"x\": field is immutable"]);
    assert_eq!(
        change("deletionTimestamp", Value::Null),
        ["metadata.deletionTimestamp: Invalid value: null: field is immutable"]
    );
    assert_eq!(
        change("resourceVersion", json!("")),
        ["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"]
    );
    assert_eq!(
        change("generation", json!(1)),
        ["metadata.generation: Invalid value: 1: must not be decremented"]
    );
    assert_eq!(
        change("finalizers", json!(["a.b/c", "x.y/z"])),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found \
             new finalizers []string{\"x.y/z\"}",
        ]
    );
}

#[test]
fn rules_at_the_root_see_the_name() {
    let schema = of(json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a') && !has(self.metadata.labels)", "fieldPath": ".spec"}],
        "properties": {"spec": {"type": "object"}}}));
    let check = |name: &str| {
        sorted(&validate_rules(&schema, &json!({"metadata": {"name": name, "labels": {}}}), None))
    };
    assert_eq!(check("abc"), Vec::<String>::new());
    assert_eq!(
        check("b"),
        [
            "spec: Invalid value: failed rule: self.metadata.name.startsWith('a') && !has(self.metadata.labels)"
        ]
    );
}

#[test]
fn formats_bind_to_their_types() {
    let schema = of(json!({"type": "object", "properties": {
        "t": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"},
        "b": {"type": "string", "format": "byte"}, "n": {"type": "number"}, "day": {"type": "string", "format": "date"},
        "ios": {"x-kubernetes-int-or-string": true}},
        "x-kubernetes-validations": [
            {"rule": "self.t > timestamp('2020-01-01T00:00:00Z') && self.d > duration('30m')"},
            {"rule": "self.b.size() == 2 && self.n > 0.5 && self.day.getFullYear() == 2024"},
            {"rule": "type(self.ios) == string ? self.ios == '5%' : self.ios == 5"}]}));
    for ios in [json!(5), json!("5%")] {
        let value = json!({"t": "2024-01-01T00:00:00Z", "d": "1h", "b": "YWI=", "n": 1, "day": "2024-05-06", "ios": ios});
        assert_eq!(validate_rules(&schema, &value, None), []);
    }
}

#[test]
fn string_formats() {
    let valid = [
        ("date", "2024-02-29"),
        ("date-time", "2024-01-01t00:00:00z"),
        ("ipv4", "1.2.3.4"),
        ("ipv6", "::1"),
        ("cidr", "10.0.0.0/8"),
        ("cidr", "fe80::/10"),
        ("mac", "00:11:22:aa:bb:cc"),
        ("uri", "https://a.b/c?d"),
        ("uri", "/path"),
        ("hostname", "a-b.example.com"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("email", "a@b.c"),
        ("byte", "YWI="),
        ("duration", "1h30m"),
        ("duration", "3 days"),
        ("hexcolor", "#fff"),
        ("uuid4", "123e4567e89b42d3a456426614174000"),
        ("k8s-short-name", "abc"),
        ("k8s-long-name", "a.b"),
        ("isbn", "978-0321751041"),
        ("ssn", "123-45-6789"),
        ("rgbcolor", "rgb(1, 2, 3)"),
        ("password", ""),
        ("creditcard", "4111 1111 1111 1111"),
        ("bsonobjectid", "507f1f77bcf86cd799439011"),
        ("unknown-format", "anything"),
    ];
    let invalid = [
        ("date", "2023-02-29"),
        ("date-time", "2024-01-01"),
        ("ipv4", "1.2.3"),
        ("ipv6", "1.2.3.4"),
        ("cidr", "10.0.0.0/33"),
        ("mac", "00:11:22"),
        ("uri", "not a uri"),
        ("uri", "http://a b/"),
        ("hostname", "-a.example.com"),
        ("uuid", "123"),
        ("uuid4", "123e4567-e89b-12d3-a456-426614174000"),
        ("email", "a@"),
        ("byte", "YWI"),
        ("byte", ""),
        ("duration", "soon"),
        ("hexcolor", "#ff"),
        ("k8s-short-name", "A"),
        ("isbn", "978-0321751042"),
        ("ssn", "12-345-6789"),
        ("rgbcolor", "rgb(256,0,0)"),
        ("creditcard", "4111 1111 1111 1112"),
        ("bsonobjectid", "zz7f1f77bcf86cd799439011"),
    ];
    let errors = |format: &str, text: &str| {
        validate(
            &of(json!({"type": "object", "properties": {"f": {"type": "string", "format": format}}})),
            &json!({"f": text}),
        )
    };
    for (format, text) in valid {
        assert_eq!(errors(format, text), [], "{format} {text}");
    }
    for (format, text) in invalid {
        assert_eq!(
            sorted(&errors(format, text)),
            [format!("f: Invalid value: {text:?}: f in body must be of type {format}: {text:?}")]
        );
    }
}

#[test]
fn deep_values_do_no_harm() {
    let schema = widget();
    let mut deep = json!({});
    for _ in 0..120 {
        deep = json!({"choice": deep, "emb": [deep]});
        if deep.to_string().len() > 1 << 16 {
            deep = json!({"ports": [deep["choice"]]});
        }
    }
    let mut new = object(deep.clone());
    new["status"] = deep;
    let first = unknown_fields(&schema, &new);
    assert!(!first.is_empty());
    prune(&schema, &mut new);
    apply_defaults(&schema, &mut new);
    assert!(!validate(&schema, &new).is_empty());
    assert!(!validate_update(&schema, &new, &object(json!({}))).is_empty());
}

/// Any JSON, with keys that the widget schema knows so that the walks go somewhere.
fn any_json() -> impl Strategy<Value = Value> {
    let keys = "(spec|req|replicas|mode|list|set|ports|name|port|sizes|emb|metadata|labels|choice|cel|x|l|m|a|kind|zz)";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
        Just(json!("a")),
    ];
    leaf.prop_recursive(6, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(keys, inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_twice_is_pruning_once(value in any_json()) {
        let schema = widget();
        let mut once = value.clone();
        prune(&schema, &mut once);
        let mut twice = once.clone();
        prune(&schema, &mut twice);
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(unknown_fields(&schema, &once), Vec::<String>::new());
        // Nothing unknown, nothing removed (metadata is also normalised, so it is left out).
        if unknown_fields(&schema, &value).is_empty() && value.get("metadata").is_none() && !value.to_string().contains("emb") {
            prop_assert_eq!(&once, &value);
        }
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(value in any_json()) {
        let schema = of(json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "name": {"type": "string", "default": "x"}, "list": {"type": "array", "default": [{}],
                    "items": {"type": "object", "default": {"a": 1}, "properties": {"x": {"type": "integer", "default": 1}}}},
                "m": {"type": "object", "additionalProperties": {"type": "string", "default": "d"}}}}}}));
        let mut once = value;
        apply_defaults(&schema, &mut once);
        let mut twice = once.clone();
        apply_defaults(&schema, &mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn validation_never_panics(value in any_json(), old in any_json()) {
        let (schema, rules) = &*WIDGET;
        let _ = validate(schema, &value);
        let _ = validate_update(schema, &value, &old);
        let _ = rules.check(&value, Some(&old));
        let _ = validate_meta(&value, true);
        let _ = validate_meta_update(&value, &old);
        let _ = value.get("metadata").map(decode_meta);
        // An object is never worse than itself.
        if let Value::Object(_) = value {
            let again = validate_update(schema, &value, &value);
            prop_assert!(again.len() <= validate(schema, &value).len());
        }
    }

    #[test]
    fn parsing_never_panics(value in any_json()) {
        let _ = parse(&value);
        let _ = parse(&json!({"type": "object", "properties": value, "pattern": "x", "enum": []}));
    }
}

/// Rules that the CEL engine cannot run, or where it answers otherwise: refused at registration, or lists whose order
/// does not count for Kubernetes.
const OTHERWISE: [&str; 3] =
    ["self.l.all(x, y, x >= 0)", "self.l.sortBy(x, -x)[0] == 2", "self.set == ['b','a']"];

#[test]
fn cel_answers_of_kubernetes() {
    let table: Value = serde_json::from_str(include_str!("testdata/cel.json")).unwrap();
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
    };
    let mut rules = texts(&table["rules"]);
    rules.retain(|rule| !OTHERWISE.contains(&rule.as_str()));
    assert!(rules.len() > 50);
    let mut schema = table["schema"].clone();
    schema["properties"]["spec"]["x-kubernetes-validations"] =
        rules.iter().map(|rule| json!({"rule": rule})).collect();
    let schema = of(schema);
    for answer in table["answers"].as_array().unwrap() {
        let mut expected = texts(&answer["errors"]);
        expected.retain(|error| !OTHERWISE.iter().any(|rule| error.ends_with(rule)));
        assert_eq!(sorted(&validate_rules(&schema, &json!({"spec": answer["spec"]}), None)), expected);
    }
}
