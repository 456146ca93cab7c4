//! From a [`Schema`] back to OpenAPI v3 JSON, extensions included.

use super::{Additional, Branch, Limits, ListType, Rule, Schema};
use serde_json::{Map, Value, json};

/// The JSON to publish.
pub fn to_openapi(schema: &Schema) -> Value {
    let mut out = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.to_string(), value);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    let flag = |flag: bool| flag.then_some(Value::Bool(true));
    set("type", schema.ty.map(|ty| ty.name().into()));
    set("format", text(&schema.format));
    set("title", text(&schema.title));
    set("description", text(&schema.description));
    set("nullable", flag(schema.nullable));
    set("default", schema.default.clone());
    set("items", schema.items.as_deref().map(to_openapi));
    set("properties", object(schema.properties.iter().map(|(k, v)| (k, to_openapi(v)))));
    set(
        "additionalProperties",
        match &schema.additional {
            Additional::Nothing => None,
            Additional::Anything => Some(Value::Bool(true)),
            Additional::Of(values) => Some(to_openapi(values)),
        },
    );
    set("x-kubernetes-int-or-string", flag(schema.int_or_string));
    set("x-kubernetes-preserve-unknown-fields", flag(schema.preserve_unknown));
    set("x-kubernetes-embedded-resource", flag(schema.embedded_resource));
    set(
        "x-kubernetes-list-type",
        match schema.list_type {
            ListType::Atomic => None,
            ListType::Set => Some("set".into()),
            ListType::Map => Some("map".into()),
        },
    );
    let keys = &schema.list_map_keys;
    set("x-kubernetes-list-map-keys", (!keys.is_empty()).then(|| json!(keys)));
    set("x-kubernetes-map-type", schema.atomic_map.then(|| "atomic".into()));
    set("x-kubernetes-patch-merge-key", text(&schema.patch_merge_key));
    set("x-kubernetes-patch-strategy", patch_strategy(schema).map(Value::from));
    let rules = &schema.rules;
    set("x-kubernetes-validations", (!rules.is_empty()).then(|| rules.iter().map(rule).collect()));
    limits(&schema.limits, &mut out);
    Value::Object(out)
}

fn patch_strategy(schema: &Schema) -> Option<&'static str> {
    match (schema.patch_merge, schema.patch_retain_keys) {
        (true, true) => Some("merge,retainKeys"),
        (true, false) => Some("merge"),
        (false, true) => Some("retainKeys"),
        (false, false) => None,
    }
}

fn limits(limits: &Limits, out: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.to_string(), value);
        }
    };
    let count = |n: Option<u64>| n.map(Value::from);
    let flag = |flag: bool| flag.then_some(Value::Bool(true));
    let list = |list: &[Branch]| (!list.is_empty()).then(|| list.iter().map(branch).collect());
    set("required", (!limits.required.is_empty()).then(|| json!(limits.required)));
    set("enum", limits.enumeration.clone().map(Value::Array));
    set("pattern", limits.pattern.as_ref().map(|p| p.source.as_str().into()));
    set("minLength", count(limits.min_length));
    set("maxLength", count(limits.max_length));
    set("minimum", limits.minimum.map(number));
    set("exclusiveMinimum", flag(limits.exclusive_minimum));
    set("maximum", limits.maximum.map(number));
    set("exclusiveMaximum", flag(limits.exclusive_maximum));
    set("multipleOf", limits.multiple_of.map(number));
    set("minItems", count(limits.min_items));
    set("maxItems", count(limits.max_items));
    set("uniqueItems", flag(limits.unique_items));
    set("minProperties", count(limits.min_properties));
    set("maxProperties", count(limits.max_properties));
    set("allOf", list(&limits.all_of));
    set("anyOf", list(&limits.any_of));
    set("oneOf", list(&limits.one_of));
    set("not", limits.not.as_deref().map(branch));
}

fn branch(branch_schema: &Branch) -> Value {
    let mut out = Map::new();
    if let Some(ty) = branch_schema.ty {
        out.insert("type".into(), ty.name().into());
    }
    if let Some(format) = &branch_schema.format {
        out.insert("format".into(), format.as_str().into());
    }
    if let Some(properties) = object(branch_schema.properties.iter().map(|(k, v)| (k, branch(v)))) {
        out.insert("properties".into(), properties);
    }
    if let Some(values) = &branch_schema.additional {
        out.insert("additionalProperties".into(), branch(values));
    }
    if let Some(items) = &branch_schema.items {
        out.insert("items".into(), branch(items));
    }
    limits(&branch_schema.limits, &mut out);
    Value::Object(out)
}

fn rule(rule: &Rule) -> Value {
    let mut out = Map::new();
    out.insert("rule".into(), rule.rule.as_str().into());
    for (key, value) in [
        ("message", &rule.message),
        ("messageExpression", &rule.message_expression),
        ("reason", &rule.reason),
        ("fieldPath", &rule.field_path),
    ] {
        if let Some(text) = value {
            out.insert(key.into(), text.as_str().into());
        }
    }
    if let Some(optional) = rule.optional_old_self {
        out.insert("optionalOldSelf".into(), optional.into());
    }
    Value::Object(out)
}

fn object<'a>(entries: impl Iterator<Item = (&'a String, Value)>) -> Option<Value> {
    let map: Map<String, Value> = entries.map(|(k, v)| (k.clone(), v)).collect();
    (!map.is_empty()).then_some(Value::Object(map))
}

/// Whole numbers without a fraction, as they were most likely written.
fn number(f: f64) -> Value {
    if f.fract() == 0.0 && f.abs() < 9e15 { Value::from(f as i64) } else { Value::from(f) }
}
