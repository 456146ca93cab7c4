//! A custom resource's schema in OpenAPI's words.

use crate::schema::{Additional, Branch, Limits, ListType, Schema, Type};
use serde_json::{Map, Value, json};

pub(super) fn schema_to_openapi(schema: &Schema) -> Value {
    let mut out = Map::new();
    if let Some(ty) = schema.ty {
        out.insert("type".into(), type_name(ty).into());
    }
    for (key, value) in
        [("format", &schema.format), ("title", &schema.title), ("description", &schema.description)]
    {
        if let Some(value) = value {
            out.insert(key.into(), value.clone().into());
        }
    }
    if let Some(default) = &schema.default {
        out.insert("default".into(), default.clone());
    }
    for (key, set) in [
        ("nullable", schema.nullable),
        ("x-kubernetes-int-or-string", schema.int_or_string),
        ("x-kubernetes-preserve-unknown-fields", schema.preserve_unknown),
        ("x-kubernetes-embedded-resource", schema.embedded_resource),
    ] {
        if set {
            out.insert(key.into(), true.into());
        }
    }
    if !schema.properties.is_empty() {
        let properties: Map<String, Value> =
            schema.properties.iter().map(|(name, inner)| (name.clone(), schema_to_openapi(inner))).collect();
        out.insert("properties".into(), Value::Object(properties));
    }
    match &schema.additional {
        Additional::Nothing => {}
        Additional::Anything => {
            out.insert("additionalProperties".into(), true.into());
        }
        Additional::Of(inner) => {
            out.insert("additionalProperties".into(), schema_to_openapi(inner));
        }
    }
    if let Some(items) = &schema.items {
        out.insert("items".into(), schema_to_openapi(items));
    }
    merge_words(schema, &mut out);
    rules(schema, &mut out);
    limits(&schema.limits, &mut out);
    Value::Object(out)
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

/// How lists and maps merge.
fn merge_words(schema: &Schema, out: &mut Map<String, Value>) {
    match schema.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            out.insert("x-kubernetes-list-type".into(), "set".into());
        }
        ListType::Map => {
            out.insert("x-kubernetes-list-type".into(), "map".into());
            out.insert("x-kubernetes-list-map-keys".into(), json!(schema.list_map_keys));
        }
    }
    if schema.atomic_map {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
}

fn rules(schema: &Schema, out: &mut Map<String, Value>) {
    if schema.rules.is_empty() {
        return;
    }
    let rules: Vec<Value> = schema
        .rules
        .iter()
        .map(|rule| {
            let mut entry = json!({"rule": rule.rule});
            for (key, value) in [
                ("message", &rule.message),
                ("messageExpression", &rule.message_expression),
                ("reason", &rule.reason),
                ("fieldPath", &rule.field_path),
            ] {
                if let Some(value) = value {
                    entry[key] = value.clone().into();
                }
            }
            if let Some(optional) = rule.optional_old_self {
                entry["optionalOldSelf"] = optional.into();
            }
            entry
        })
        .collect();
    out.insert("x-kubernetes-validations".into(), rules.into());
}

fn limits(limits: &Limits, out: &mut Map<String, Value>) {
    if !limits.required.is_empty() {
        out.insert("required".into(), json!(limits.required));
    }
    if let Some(values) = &limits.enumeration {
        out.insert("enum".into(), json!(values));
    }
    if let Some(pattern) = &limits.pattern {
        out.insert("pattern".into(), pattern.source.clone().into());
    }
    for (key, value) in [
        ("minLength", limits.min_length),
        ("maxLength", limits.max_length),
        ("minItems", limits.min_items),
        ("maxItems", limits.max_items),
        ("minProperties", limits.min_properties),
        ("maxProperties", limits.max_properties),
    ] {
        if let Some(value) = value {
            out.insert(key.into(), value.into());
        }
    }
    for (key, value) in
        [("minimum", limits.minimum), ("maximum", limits.maximum), ("multipleOf", limits.multiple_of)]
    {
        if let Some(value) = value {
            out.insert(key.into(), number(value));
        }
    }
    for (key, set) in [
        ("exclusiveMinimum", limits.exclusive_minimum),
        ("exclusiveMaximum", limits.exclusive_maximum),
        ("uniqueItems", limits.unique_items),
    ] {
        if set {
            out.insert(key.into(), true.into());
        }
    }
    for (key, branches) in [("allOf", &limits.all_of), ("anyOf", &limits.any_of), ("oneOf", &limits.one_of)] {
        if !branches.is_empty() {
            out.insert(key.into(), branches.iter().map(branch).collect());
        }
    }
    if let Some(not) = &limits.not {
        out.insert("not".into(), branch(not));
    }
}

/// Whole numbers without a fraction, as they were most likely written.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn branch(branch_schema: &Branch) -> Value {
    let mut out = Map::new();
    if let Some(ty) = branch_schema.ty {
        out.insert("type".into(), type_name(ty).into());
    }
    if let Some(format) = &branch_schema.format {
        out.insert("format".into(), format.clone().into());
    }
    if !branch_schema.properties.is_empty() {
        let properties: Map<String, Value> =
            branch_schema.properties.iter().map(|(name, inner)| (name.clone(), branch(inner))).collect();
        out.insert("properties".into(), Value::Object(properties));
    }
    if let Some(inner) = &branch_schema.additional {
        out.insert("additionalProperties".into(), branch(inner));
    }
    if let Some(inner) = &branch_schema.items {
        out.insert("items".into(), branch(inner));
    }
    limits(&branch_schema.limits, &mut out);
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn all_words_are_kept() {
        let text = Arc::new(Schema {
            ty: Some(Type::String),
            description: Some("words".into()),
            ..Schema::default()
        });
        let list = Arc::new(Schema {
            ty: Some(Type::Array),
            items: Some(Arc::new(Schema { ty: Some(Type::Object), ..Schema::default() })),
            list_type: ListType::Map,
            list_map_keys: vec!["name".into()],
            limits: Limits { max_items: Some(3), ..Limits::default() },
            ..Schema::default()
        });
        let schema = Schema {
            ty: Some(Type::Object),
            properties: BTreeMap::from([("a".into(), text.clone()), ("l".into(), list)]),
            additional: Additional::Of(text),
            limits: Limits {
                required: vec!["a".into()],
                minimum: Some(1.0),
                any_of: vec![Branch { ty: Some(Type::Integer), ..Branch::default() }],
                ..Limits::default()
            },
            rules: vec![crate::schema::Rule { rule: "self.a".into(), ..Default::default() }],
            ..Schema::default()
        };
        assert_eq!(
            schema_to_openapi(&schema),
            json!({"type": "object", "required": ["a"], "minimum": 1, "anyOf": [{"type": "integer"}],
                "properties": {
                    "a": {"type": "string", "description": "words"},
                    "l": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"], "maxItems": 3}},
                "additionalProperties": {"type": "string", "description": "words"},
                "x-kubernetes-validations": [{"rule": "self.a"}]})
        );
    }
}
