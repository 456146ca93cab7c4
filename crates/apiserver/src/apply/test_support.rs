//! Schemas for tests, from OpenAPI as it is published.

use crate::schema::{Additional, ListType, Schema, Type};
use serde_json::Value;
use std::sync::Arc;

/// A schema from its OpenAPI form, with everything inlined.
pub(crate) fn schema(json: &Value) -> Schema {
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    let strings = |key: &str| -> Vec<String> {
        json.get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|v| Some(v.as_str()?.into()))
            .collect()
    };
    let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
    let mut out = Schema {
        ty: text("type").map(|ty| match ty {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            other => panic!("type {other}"),
        }),
        format: text("format").map(Into::into),
        default: json.get("default").cloned(),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        items: json.get("items").map(|s| Arc::new(schema(s))),
        list_type: match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        },
        list_map_keys: strings("x-kubernetes-list-map-keys"),
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        patch_merge_key: text("x-kubernetes-patch-merge-key").map(Into::into),
        patch_merge: strategy.contains("merge"),
        patch_retain_keys: strategy.contains("retainKeys"),
        ..Schema::default()
    };
    out.limits.required = strings("required");
    for (name, property) in json.get("properties").and_then(Value::as_object).into_iter().flatten() {
        out.properties.insert(name.clone(), Arc::new(schema(property)));
    }
    if let Some(values) = json.get("additionalProperties") {
        out.additional = match values.as_bool() {
            Some(true) => Additional::Anything,
            Some(false) => Additional::Nothing,
            None => Additional::Of(Arc::new(schema(values))),
        };
    }
    out
}
