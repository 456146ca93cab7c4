//! CRDs that are refused, and why.
//!
//! Each row changes a good CRD and names every cause. `…` stands for text that shows the inside of a Go program.

use crate::fixtures::{unique_group, widgets};
use crate::harness::{Cluster, as_causes, scenario, text};
use serde_json::{Value, json};

type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;
type Row<'a> = (&'a str, Change<'a>, Vec<(&'a str, &'a str, &'a str)>);

const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SPEC: &str = "spec.validation.openAPIV3Schema.properties[spec]";

/// Sets the value at a JSON pointer's place in the CRD.
fn set<'a>(pointer: &'a str, value: Value) -> Change<'a> {
    Box::new(move |crd| {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = crd.pointer_mut(parent).expect("the place exists");
        match (parent, value.clone()) {
            (Value::Array(items), value) if key == "-" => items.push(value),
            (Value::Object(fields), Value::Null) => drop(fields.remove(key)),
            (parent, value) => parent[key] = value,
        }
    })
}

/// Sets the schema of `spec`.
fn spec<'a>(schema: Value) -> Change<'a> {
    set("/spec/versions/0/schema/openAPIV3Schema/properties/spec", schema)
}

fn like(expected: &str, got: &str) -> bool {
    match expected.split_once('…') {
        Some((start, end)) => got.starts_with(start) && got.ends_with(end),
        None => expected == got,
    }
}

/// Creates each row's CRD, and compares the causes and the message made of them.
async fn check(c: &Cluster, rows: Vec<Row<'_>>) {
    for (what, change, expected) in rows {
        let mut crd = widgets(&unique_group(), json!({"type": "object"}));
        change(&mut crd);
        let reply = c.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
        if reply.code == 201 {
            c.doom(format!(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}",
                text(&crd["metadata"]["name"])
            ));
        }
        assert_eq!((reply.code, text(&reply.body["reason"])), (422, "Invalid"), "{what}: {}", reply.text);
        let causes = as_causes(&reply.body["details"]);
        assert_eq!(causes.len(), expected.len(), "{what}: {causes:#?}");
        for (got, wanted) in causes.iter().zip(&expected) {
            assert!(
                got.0 == wanted.0 && got.1 == wanted.1 && like(wanted.2, got.2),
                "{what}: {got:?} is not {wanted:?}"
            );
        }
        let list: Vec<_> = causes.iter().map(|(_, field, message)| format!("{field}: {message}")).collect();
        let list = if list.len() == 1 { list.concat() } else { format!("[{}]", list.join(", ")) };
        let name = text(&crd["metadata"]["name"]);
        let message = format!("CustomResourceDefinition.apiextensions.k8s.io \"{name}\" is invalid: {list}");
        assert_eq!(reply.body["message"], message, "{what}");
    }
}

fn required(field: &str) -> Vec<(&str, &str, &str)> {
    vec![("FieldValueRequired", field, "Required value")]
}

#[tokio::test]
async fn names() {
    let (kind, plural, short) = (
        format!("Invalid value: \"wid get\": may have mixed case, but should otherwise match: {LABEL}"),
        format!("Invalid value: \"Widgets\": {LABEL}"),
        format!("Invalid value: \"OK!\": {LABEL}"),
    );
    let rows: Vec<Row<'_>> = vec![
        (
            "the name is plural and group",
            set("/metadata/name", json!("wrong.example.com")),
            vec![(
                "FieldValueInvalid",
                "metadata.name",
                "Invalid value: \"wrong.example.com\": must be spec.names.plural+\".\"+spec.group",
            )],
        ),
        ("no kind", set("/spec/names/kind", Value::Null), required("spec.names.kind")),
        (
            "kind",
            set("/spec/names/kind", json!("wid get")),
            vec![("FieldValueInvalid", "spec.names.kind", &kind)],
        ),
        (
            "plural",
            set("/spec/names/plural", json!("Widgets")),
            vec![
                (
                    "FieldValueInvalid",
                    "metadata.name",
                    "Invalid value: …: must be spec.names.plural+\".\"+spec.group",
                ),
                ("FieldValueInvalid", "spec.names.plural", &plural),
            ],
        ),
        (
            "short name",
            set("/spec/names/shortNames", json!(["OK!"])),
            vec![("FieldValueInvalid", "spec.names.shortNames[0]", &short)],
        ),
        (
            "list kind",
            set("/spec/names/listKind", json!("Widget")),
            vec![(
                "FieldValueInvalid",
                "spec.names.listKind",
                "Invalid value: \"Widget\": kind and listKind may not be the same",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn scope_and_group() {
    let group = |group: &'static str| -> Change<'static> {
        Box::new(move |crd| {
            crd["spec"]["group"] = json!(group);
            crd["metadata"]["name"] = json!(format!("widgets.{group}"));
        })
    };
    let rows: Vec<Row<'_>> = vec![
        (
            "scope",
            set("/spec/scope", json!("Galaxy")),
            vec![(
                "FieldValueNotSupported",
                "spec.scope",
                "Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
            )],
        ),
        ("no scope", set("/spec/scope", Value::Null), required("spec.scope")),
        (
            "a group without a dot",
            group("nodots"),
            vec![(
                "FieldValueInvalid",
                "spec.group",
                "Invalid value: \"nodots\": should be a domain with at least one dot",
            )],
        ),
        (
            "a group of Kubernetes itself",
            group("foo.k8s.io"),
            vec![(
                "FieldValueRequired",
                "metadata.annotations[api-approved.kubernetes.io]",
                "Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                 https://github.com/kubernetes/enhancements/pull/1111",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn versions() {
    let bad = format!("Invalid value: \"V_1\": {LABEL}");
    let other = json!({"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let twin = json!({"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let storage = "Invalid value: …: must have exactly one version marked as storage version";
    let stored = (
        "FieldValueInvalid",
        "status.storedVersions",
        "Invalid value: null: must have at least one stored version",
    );
    let rows: Vec<Row<'_>> = vec![
        (
            "none",
            set("/spec/versions", json!([])),
            vec![("FieldValueInvalid", "spec.versions", storage), stored],
        ),
        (
            "no storage",
            set("/spec/versions/0/storage", json!(false)),
            vec![("FieldValueInvalid", "spec.versions", storage), stored],
        ),
        (
            "two storages",
            set("/spec/versions/-", other),
            vec![
                ("FieldValueInvalid", "spec.versions", storage),
                (
                    "FieldValueInvalid",
                    "status.storedVersions",
                    "Invalid value: [\"v1\"]: must have the storage version v2",
                ),
            ],
        ),
        (
            "twins",
            set("/spec/versions/-", twin),
            vec![(
                "FieldValueInvalid",
                "spec.versions",
                "Invalid value: …: must contain unique version names",
            )],
        ),
        (
            "version name",
            set("/spec/versions/0/name", json!("V_1")),
            vec![
                ("FieldValueInvalid", "spec.versions[0].name", &bad),
                ("FieldValueInvalid", "spec.version", &bad),
            ],
        ),
        (
            "no schema",
            set("/spec/versions/0/schema", Value::Null),
            required("spec.versions[0].schema.openAPIV3Schema"),
        ),
        (
            "conversion strategy",
            set("/spec/conversion", json!({"strategy": "Magic"})),
            vec![(
                "FieldValueNotSupported",
                "spec.conversion.strategy",
                "Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
            )],
        ),
        (
            "pruning can't be turned off as a whole",
            set("/spec/preserveUnknownFields", json!(true)),
            vec![(
                "FieldValueInvalid",
                "spec.preserveUnknownFields",
                "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                 spec.versions[*].schema instead",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn structure_of_the_schema() {
    let root = "spec.validation.openAPIV3Schema.type";
    let at = |suffix: &str| format!("{SPEC}.{suffix}");
    let (type_, items, a) = (at("type"), at("items"), at("properties[a].default"));
    let (default, pattern, additional) =
        (at("default"), at("properties[a].pattern"), at("additionalProperties"));
    let (preserve, any_of, all_of, reference) =
        (at("x-kubernetes-preserve-unknown-fields"), at("anyOf[0].type"), at("allOf[0].default"), at("$ref"));
    let unique = at("uniqueItems");
    let rows: Vec<Row<'_>> = vec![
        (
            "no type at the root",
            set("/spec/versions/0/schema/openAPIV3Schema/type", Value::Null),
            vec![("FieldValueRequired", root, "Required value: must not be empty at the root")],
        ),
        (
            "no type",
            spec(json!({"properties": {"a": {"type": "string"}}})),
            vec![(
                "FieldValueRequired",
                &type_,
                "Required value: must not be empty for specified object fields",
            )],
        ),
        (
            "type",
            spec(json!({"type": "strange"})),
            vec![(
                "FieldValueNotSupported",
                &type_,
                "Unsupported value: \"strange\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
                 \"object\", \"string\"",
            )],
        ),
        (
            "an array of nothing",
            spec(json!({"type": "array"})),
            vec![("FieldValueRequired", &items, "Required value: must be specified")],
        ),
        (
            "default of a wrong type",
            spec(json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}})),
            vec![(
                "FieldValueTypeInvalid",
                &a,
                "Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            )],
        ),
        (
            "default outside the enum",
            spec(
                json!({"type": "object", "properties": {"a": {"type": "string", "enum": ["a"], "default": "b"}}}),
            ),
            vec![("FieldValueNotSupported", &a, "Unsupported value: \"b\": supported values: \"a\"")],
        ),
        (
            "default with unknown fields",
            spec(json!({"type": "object", "default": {"x": 1}})),
            vec![("FieldValueInvalid", &default, "Invalid value: {\"x\":1}: must not have unknown fields")],
        ),
        (
            "pattern",
            spec(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}})),
            vec![(
                "FieldValueInvalid",
                &pattern,
                "Invalid value: \"[\": must be a valid regular expression, but isn't: …",
            )],
        ),
        (
            "properties and additionalProperties",
            spec(json!({
                "type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"},
            })),
            vec![(
                "FieldValueForbidden",
                &additional,
                "Forbidden: additionalProperties and properties are mutual exclusive",
            )],
        ),
        (
            "preserve false",
            spec(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
            vec![("FieldValueInvalid", &preserve, "Invalid value: false: must be true or undefined")],
        ),
        (
            "a type inside anyOf",
            spec(json!({"type": "object", "anyOf": [{"type": "object"}]})),
            vec![("FieldValueForbidden", &any_of, "Forbidden: must be empty to be structural")],
        ),
        (
            "a default inside allOf",
            spec(json!({"type": "object", "allOf": [{"default": {}}]})),
            vec![("FieldValueForbidden", &all_of, "Forbidden: must be undefined to be structural")],
        ),
        (
            "reference",
            spec(json!({"$ref": "#/x"})),
            vec![("FieldValueForbidden", &reference, "Forbidden: $ref is not supported")],
        ),
        (
            "unique items",
            spec(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}})),
            vec![(
                "FieldValueForbidden",
                &unique,
                "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            )],
        ),
        (
            "metadata",
            set(
                "/spec/versions/0/schema/openAPIV3Schema/properties/metadata",
                json!({"type": "object", "properties": {"labels": {"type": "object"}}}),
            ),
            vec![(
                "FieldValueForbidden",
                "spec.validation.openAPIV3Schema.properties[metadata]",
                "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly \
                 specified",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn lists_and_maps() {
    let at = |suffix: &str| format!("{SPEC}.{suffix}");
    let (keys, list, map, type_) = (
        at("x-kubernetes-list-map-keys"),
        at("x-kubernetes-list-type"),
        at("x-kubernetes-map-type"),
        at("type"),
    );
    let (item_default, item_map, properties) =
        (at("items.properties[a].default"), at("items.x-kubernetes-map-type"), at("properties"));
    let item = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let rows: Vec<Row<'_>> = vec![
        (
            "a map without keys",
            spec(json!({"type": "array", "x-kubernetes-list-type": "map", "items": item})),
            vec![(
                "FieldValueRequired",
                &keys,
                "Required value: must not be empty if x-kubernetes-list-type is map",
            )],
        ),
        (
            "a key that no item has",
            spec(json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": item,
            })),
            vec![(
                "FieldValueInvalid",
                &keys,
                "Invalid value: [\"b\"]: entries must all be names of item properties",
            )],
        ),
        (
            "a key that an item may lack",
            spec(json!({
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"], "items": item,
            })),
            vec![(
                "FieldValueRequired",
                &item_default,
                "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                 required property",
            )],
        ),
        (
            "list type",
            spec(json!({"type": "array", "x-kubernetes-list-type": "heap", "items": {"type": "string"}})),
            vec![(
                "FieldValueNotSupported",
                &list,
                "Unsupported value: \"heap\": supported values: \"atomic\", \"set\", \"map\"",
            )],
        ),
        (
            "list type of a string",
            spec(json!({"type": "string", "x-kubernetes-list-type": "set"})),
            vec![(
                "FieldValueInvalid",
                &type_,
                "Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            )],
        ),
        (
            "map type",
            spec(json!({"type": "object", "x-kubernetes-map-type": "heap"})),
            vec![(
                "FieldValueNotSupported",
                &map,
                "Unsupported value: \"heap\": supported values: \"atomic\", \"granular\"",
            )],
        ),
        (
            "a set of open objects",
            spec(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
            vec![(
                "FieldValueInvalid",
                &item_map,
                "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            )],
        ),
        (
            "keys without a map",
            spec(json!({"type": "array", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}})),
            vec![(
                "FieldValueRequired",
                &list,
                "Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            )],
        ),
        (
            "an embedded resource without fields",
            spec(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
            vec![(
                "FieldValueRequired",
                &properties,
                "Required value: must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn rules() {
    let rule = |rule: Value| spec(json!({"type": "object", "x-kubernetes-validations": [rule]}));
    let at = |suffix: &str| format!("{SPEC}.x-kubernetes-validations[0].{suffix}");
    let (text, reason, message, path) = (at("rule"), at("reason"), at("message"), at("fieldPath"));
    let rows: Vec<Row<'_>> = vec![
        (
            "syntax",
            rule(json!({"rule": "self."})),
            vec![(
                "FieldValueInvalid",
                &text,
                "Invalid value: …compilation failed: ERROR: <input>:1:6: Syntax error: no viable alternative at input '.'\n | self.\n | .....^",
            )],
        ),
        (
            "empty",
            rule(json!({"rule": "  "})),
            vec![("FieldValueRequired", &text, "Required value: rule is not specified")],
        ),
        (
            "reason",
            rule(json!({"rule": "true", "reason": "Because"})),
            vec![(
                "FieldValueNotSupported",
                &reason,
                "Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
                 \"FieldValueInvalid\", \"FieldValueRequired\"",
            )],
        ),
        (
            "two lines",
            rule(json!({"rule": "true", "message": "a\nb"})),
            vec![("FieldValueInvalid", &message, "Invalid value: \"a\\nb\": must not contain line breaks")],
        ),
        (
            "empty message",
            rule(json!({"rule": "true", "message": "  "})),
            vec![("FieldValueInvalid", &message, "Invalid value: \"  \": must be non-empty if specified")],
        ),
        (
            "path",
            rule(json!({"rule": "true", "fieldPath": ".nope"})),
            vec![("FieldValueInvalid", &path, "Invalid value: \".nope\": must be a valid path")],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn columns() {
    let column = |column: Value| set("/spec/versions/0/additionalPrinterColumns", json!([column]));
    let rows: Vec<Row<'_>> = vec![
        (
            "type",
            column(json!({"name": "x", "type": "float", "jsonPath": ".spec.x"})),
            vec![(
                "FieldValueInvalid",
                "spec.additionalPrinterColumns[0].type",
                "Invalid value: \"float\": must be one of boolean,date,integer,number,string",
            )],
        ),
        (
            "path",
            column(json!({"name": "x", "type": "string", "jsonPath": "spec.x["})),
            vec![(
                "FieldValueInvalid",
                "spec.additionalPrinterColumns[0].JSONPath",
                "Invalid value: \"spec.x[\": must be a simple json path starting with .",
            )],
        ),
        (
            "name",
            column(json!({"type": "string", "jsonPath": ".spec.x"})),
            required("spec.additionalPrinterColumns[0].name"),
        ),
        (
            "format",
            column(json!({"name": "x", "type": "string", "format": "weird", "jsonPath": ".spec.x"})),
            vec![(
                "FieldValueInvalid",
                "spec.additionalPrinterColumns[0].format",
                "Invalid value: \"weird\": must be one of byte,date,date-time,double,float,int32,int64,password",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}

#[tokio::test]
async fn subresources_and_selectable_fields() {
    let select = |paths: Value, schema: Value| -> Change<'static> {
        Box::new(move |crd| {
            spec(schema.clone())(crd);
            crd["spec"]["versions"][0]["selectableFields"] = paths.clone();
        })
    };
    let string = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let object = json!({"type": "object", "properties": {"a": {"type": "object"}}});
    let (path, second) = ("spec.selectableFields[0].jsonPath", "spec.selectableFields[1].jsonPath");
    let (spec_path, status_path) =
        ("spec.subresources.scale.specReplicasPath", "spec.subresources.scale.statusReplicasPath");
    let scale = |scale: Value| set("/spec/versions/0/subresources/scale", scale);
    let rows: Vec<Row<'_>> = vec![
        (
            "scale elsewhere",
            scale(json!({"specReplicasPath": ".status.x", "statusReplicasPath": ".spec.y"})),
            vec![
                (
                    "FieldValueInvalid",
                    spec_path,
                    "Invalid value: \".status.x\": should be a json path under .spec",
                ),
                (
                    "FieldValueInvalid",
                    status_path,
                    "Invalid value: \".spec.y\": should be a json path under .status",
                ),
            ],
        ),
        (
            "scale without paths",
            scale(json!({})),
            vec![
                ("FieldValueRequired", spec_path, "Required value"),
                ("FieldValueRequired", status_path, "Required value"),
            ],
        ),
        (
            "no such field",
            select(json!([{"jsonPath": ".spec.nope"}]), string.clone()),
            vec![(
                "FieldValueInvalid",
                path,
                "Invalid value: \".spec.nope\": is an invalid path: does not refer to a valid field",
            )],
        ),
        (
            "twice",
            select(json!([{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]), string),
            vec![("FieldValueDuplicate", second, "Duplicate value: \".spec.a\"")],
        ),
        (
            "an object",
            select(json!([{"jsonPath": ".spec.a"}]), object),
            vec![(
                "FieldValueInvalid",
                path,
                "Invalid value: \".spec.a\": must point to a field of type string, boolean or integer. Enum string \
                 fields and strings with formats are allowed.",
            )],
        ),
    ];
    scenario(async |c| check(c, rows).await).await;
}
