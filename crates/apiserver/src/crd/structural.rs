//! Whether a schema is structural: every field has exactly one type, told outside of `allOf`, `anyOf`, `oneOf` and
//! `not`, which may only narrow what is already there.

use super::view::View;
use crate::schema::{Path, compile_pattern};
use crate::status::FieldError;
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks the whole schema; problems come sorted, as Kubernetes sorts them.
pub(super) fn check(schema: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, Level::Root, path, &mut errors);
    completeness(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

/// Constructs that cannot be read as a structural schema at all; they are refused elsewhere, by name.
pub(super) fn is_readable(schema: &Value) -> bool {
    let here = ["id", "$schema", "$ref"].iter().all(|key| schema.text(key).is_empty())
        && ["patternProperties", "dependencies", "definitions"].iter().all(|key| schema.map(key).is_empty())
        && schema.some("additionalItems").is_none()
        && !schema.get("items").is_some_and(Value::is_array)
        && schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(false));
    here && children(schema).iter().all(|child| is_readable(child))
}

/// All schemas directly below.
pub(super) fn children(schema: &Value) -> Vec<&Value> {
    let mut out: Vec<&Value> = schema.map("properties").values().collect();
    out.extend(
        ["items", "additionalProperties", "not"]
            .iter()
            .filter_map(|key| schema.get(key))
            .filter(|v| v.is_object()),
    );
    out.extend(["allOf", "anyOf", "oneOf"].iter().flat_map(|key| schema.list(key)));
    out
}

fn node(s: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ty = s.text("type");
    let embedded = s.flag("x-kubernetes-embedded-resource");
    let items = s.some("items");
    match items {
        None if ty == "array" => {
            errors.push(FieldError::required(path.field("items").bracketed(), "must be specified"))
        }
        Some(items) => node(items, Level::Item, &path.field("items"), errors),
        None => {}
    }
    let properties = path.field("properties");
    for (name, property) in s.map("properties") {
        node(property, Level::Field, &properties.key(name), errors);
    }
    if let Some(additional) = s.some("additionalProperties") {
        let here = path.field("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(here.bracketed(), "must not be used at the root"));
        }
        if additional.is_object() {
            node(additional, Level::Field, &here, errors);
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(here.bracketed(), detail));
        }
    }
    extensions(s, path, errors);
    let any_of = is_int_or_string(s.list("anyOf"));
    let first_all_of = s.list("allOf").first().is_some_and(|first| is_int_or_string(first.list("anyOf")));
    value_validation(s, any_of, first_all_of, path, errors);
    types(s, level, path, errors);
    metadata(s, level, path, errors);
    if embedded && !s.flag("x-kubernetes-preserve-unknown-fields") && s.map("properties").is_empty() {
        errors.push(FieldError::required(
            properties.bracketed(),
            "must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn extensions(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !s.flag("x-kubernetes-int-or-string") {
        return;
    }
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if s.flag(key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.field(key).bracketed(), true.into(), detail));
        }
    }
}

fn types(s: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let ty = s.text("type");
    let here = path.field("type");
    if s.flag("x-kubernetes-embedded-resource") && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(here.bracketed(), detail)
        } else {
            FieldError::invalid(here.bracketed(), ty.into(), detail)
        });
    } else if ty.is_empty()
        && !s.flag("x-kubernetes-int-or-string")
        && !s.flag("x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(here.bracketed(), detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(here.bracketed(), ty.into(), "must be object at the root"));
    }
}

/// Metadata is implied: at the root only the two name fields may be narrowed.
fn metadata(s: &Value, level: Level, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || s.flag("x-kubernetes-embedded-resource");
    let properties = path.field("properties");
    for key in ["kind", "apiVersion"] {
        if let (true, Some(property)) = (is_resource, s.map("properties").get(key)) {
            let ty = property.text("type");
            if ty != "string" {
                let field = properties.key(key);
                errors.push(FieldError::invalid(
                    field.field("type").bracketed(),
                    ty.into(),
                    "must be string",
                ));
            }
        }
    }
    let Some(meta) = s.map("properties").get("metadata") else { return };
    let here = properties.key("metadata");
    if is_resource && meta.text("type") != "object" {
        let ty = meta.text("type").into();
        errors.push(FieldError::invalid(here.field("type").bracketed(), ty, "must be object"));
    }
    let only_names = meta.map("properties").keys().all(|key| matches!(key.as_str(), "name" | "generateName"));
    let only_known = meta
        .as_object()
        .is_none_or(|map| map.keys().all(|key| matches!(key.as_str(), "type" | "default" | "properties")));
    if level == Level::Root && !(only_names && only_known) {
        errors.push(FieldError::forbidden(
            here.bracketed(),
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

fn is_int_or_string(any_of: &[Value]) -> bool {
    any_of == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn value_validation(
    s: &Value,
    skip_any_of: bool,
    skip_first_all_of: bool,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any_of {
            continue;
        }
        let here = path.field(key);
        for (index, branch) in s.list(key).iter().enumerate() {
            let skip = key == "allOf" && index == 0 && skip_first_all_of;
            nested(branch, skip, &here.index(index), errors);
        }
    }
    if let Some(not) = s.some("not") {
        nested(not, false, &path.field("not"), errors);
    }
    let pattern = s.text("pattern");
    if let (false, Err(why)) = (pattern.is_empty(), compile_pattern(pattern)) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(path.field("pattern").bracketed(), pattern.into(), detail));
    }
}

/// A schema under a logical junctor: it may hold value checks only.
fn nested(v: &Value, skip_any_of: bool, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    value_validation(v, skip_any_of, false, path, errors);
    if let Some(items) = v.some("items") {
        nested(items, false, &path.field("items"), errors);
    }
    let properties = path.field("properties");
    for (name, property) in v.map("properties") {
        nested(property, false, &properties.key(name), errors);
    }
    let mut forbid = |key: &str, set: bool, detail: &str| {
        if set {
            errors.push(FieldError::forbidden(path.field(key).bracketed(), detail));
        }
    };
    let (empty, undefined, no) = (
        "must be empty to be structural",
        "must be undefined to be structural",
        "must be false to be structural",
    );
    forbid("type", !v.text("type").is_empty(), empty);
    let additional = v.get("additionalProperties");
    forbid(
        "additionalProperties",
        additional.is_some_and(|a| a.is_object() || a == &Value::Bool(true)),
        undefined,
    );
    forbid("default", v.some("default").is_some(), undefined);
    forbid("title", !v.text("title").is_empty(), empty);
    forbid("description", !v.text("description").is_empty(), empty);
    for key in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        forbid(key, v.flag(key), no);
    }
    forbid("x-kubernetes-list-map-keys", !v.list("x-kubernetes-list-map-keys").is_empty(), empty);
    forbid("x-kubernetes-list-type", v.some("x-kubernetes-list-type").is_some(), undefined);
    forbid("x-kubernetes-map-type", v.some("x-kubernetes-map-type").is_some(), undefined);
    forbid("x-kubernetes-validations", !v.list("x-kubernetes-validations").is_empty(), empty);
    if v.map("properties").contains_key("metadata") {
        let field = properties.key("metadata").bracketed();
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// What the junctors at the root speak of must exist. Kubernetes looks at the root's junctors only, and so do we.
fn completeness(
    v: &Value,
    s: Option<&Value>,
    s_path: &Path<'_>,
    v_path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = v.some("not") {
        nested_completeness(not, s, s_path, &v_path.field("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let here = v_path.field(key);
        for (index, branch) in v.list(key).iter().enumerate() {
            nested_completeness(branch, s, s_path, &here.index(index), errors);
        }
    }
}

fn nested_completeness(
    v: &Value,
    s: Option<&Value>,
    s_path: &Path<'_>,
    v_path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = s else {
        let detail = format!("because it is defined in {}", v_path.bracketed());
        errors.push(FieldError::required(s_path.bracketed(), detail));
        return;
    };
    completeness(v, s, s_path, v_path, errors);
    if let Some(items) = v.some("items") {
        nested_completeness(
            items,
            schema.some("items"),
            &s_path.field("items"),
            &v_path.field("items"),
            errors,
        );
    }
    let (s_properties, v_properties) = (s_path.field("properties"), v_path.field("properties"));
    for (name, property) in v.map("properties") {
        let known = schema.map("properties").get(name);
        nested_completeness(property, known, &s_properties.key(name), &v_properties.key(name), errors);
    }
}
