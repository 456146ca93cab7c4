//! The shape of `ObjectMeta`.
//!
//! Metadata looks the same in every kind, so no schema describes it. Decoding it refuses wrong types in the words of
//! Go's JSON decoder; cleaning it leaves what Kubernetes would write back.

use super::path::Path;
use serde_json::{Map, Value};

/// The JSON shape of a metadata field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Uid,
    Int,
    Bool,
    Time,
    TextMap,
    TextList,
    Anything,
    /// A list of structs.
    List(&'static str, &'static [(&'static str, Shape)]),
}

const META: &[(&str, Shape)] = &[
    ("annotations", Shape::TextMap),
    ("creationTimestamp", Shape::Time),
    ("deletionGracePeriodSeconds", Shape::Int),
    ("deletionTimestamp", Shape::Time),
    ("finalizers", Shape::TextList),
    ("generateName", Shape::Text),
    ("generation", Shape::Int),
    ("labels", Shape::TextMap),
    ("managedFields", Shape::List("ManagedFieldsEntry", MANAGED)),
    ("name", Shape::Text),
    ("namespace", Shape::Text),
    ("ownerReferences", Shape::List("OwnerReference", OWNER)),
    ("resourceVersion", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Uid),
];

const OWNER: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("blockOwnerDeletion", Shape::Bool),
    ("controller", Shape::Bool),
    ("kind", Shape::Text),
    ("name", Shape::Text),
    ("uid", Shape::Uid),
];

const MANAGED: &[(&str, Shape)] = &[
    ("apiVersion", Shape::Text),
    ("fieldsType", Shape::Text),
    ("fieldsV1", Shape::Anything),
    ("manager", Shape::Text),
    ("operation", Shape::Text),
    ("subresource", Shape::Text),
    ("time", Shape::Time),
];

fn shape_of(table: &[(&str, Shape)], key: &str) -> Option<Shape> {
    table.binary_search_by_key(&key, |(name, _)| name).ok().map(|at| table[at].1)
}

// === decoding ===

/// Refuses metadata of the wrong types, as the decoder of custom resources does. The text is what follows
/// `... cannot be handled as a Widget: `.
pub fn decode_meta(metadata: &Value) -> Result<(), String> {
    decode(metadata, None)
}

/// The same for a built-in kind, whose decoder names the field from the object's root.
pub fn decode_meta_of(kind: &str, metadata: &Value) -> Result<(), String> {
    decode(metadata, Some(kind))
}

fn decode(metadata: &Value, kind: Option<&str>) -> Result<(), String> {
    let prefix = if kind.is_some() { "metadata." } else { "" };
    match metadata {
        Value::Null => Ok(()),
        Value::Object(map) => decode_fields(META, "ObjectMeta", prefix, map),
        other => Err(match kind {
            None => format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", word(other)),
            Some(kind) => format!(
                "json: cannot unmarshal {} into Go struct field {kind}.metadata of type v1.ObjectMeta",
                word(other)
            ),
        }),
    }
}

fn decode_fields(
    table: &'static [(&str, Shape)],
    owner: &str,
    prefix: &str,
    map: &Map<String, Value>,
) -> Result<(), String> {
    for (key, value) in map {
        let Some(shape) = shape_of(table, key) else { continue };
        if !value.is_null() {
            decode_field(shape, owner, prefix, key, value)?;
        }
    }
    Ok(())
}

fn decode_field(shape: Shape, owner: &str, prefix: &str, key: &str, value: &Value) -> Result<(), String> {
    let wrong = |value: &Value, wanted: &str| {
        // A number that is merely out of shape is shown.
        let found = match value {
            Value::Number(n) if wanted == "int64" => format!("number {n}"),
            other => word(other).to_string(),
        };
        Err(format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{prefix}{key} of type {wanted}"
        ))
    };
    match (shape, value) {
        (Shape::Anything, _)
        | (Shape::Text | Shape::Uid, Value::String(_))
        | (Shape::Bool, Value::Bool(_)) => Ok(()),
        (Shape::Int, Value::Number(n)) if n.is_i64() || n.as_f64().is_some_and(|f| f.fract() == 0.0) => {
            Ok(())
        }
        (Shape::Time, Value::String(text)) => parse_time(text),
        (Shape::Text | Shape::Time, other) => wrong(other, "string"),
        (Shape::Uid, other) => wrong(other, "types.UID"),
        (Shape::Int, other) => wrong(other, "int64"),
        (Shape::Bool, other) => wrong(other, "bool"),
        (Shape::TextMap, Value::Object(map)) => {
            map.values().find(|v| !v.is_string() && !v.is_null()).map_or(Ok(()), |v| wrong(v, "string"))
        }
        (Shape::TextMap, other) => wrong(other, "map[string]string"),
        (Shape::TextList, Value::Array(items)) => {
            items.iter().find(|v| !v.is_string() && !v.is_null()).map_or(Ok(()), |v| wrong(v, "string"))
        }
        (Shape::TextList, other) => wrong(other, "[]string"),
        (Shape::List(name, table), Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Null => {}
                    Value::Object(map) => decode_fields(table, name, &format!("{prefix}{key}."), map)?,
                    other => return wrong(other, &format!("v1.{name}")),
                }
            }
            Ok(())
        }
        (Shape::List(name, _), other) => wrong(other, &format!("[]v1.{name}")),
    }
}

fn parse_time(text: &str) -> Result<(), String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    // Go says at which element it stopped; the common case is a text that is no time at all.
    Err(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""))
}

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

// === unknown fields ===

pub(crate) fn find_unknown(metadata: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    find_in(META, metadata, path, found);
}

fn find_in(table: &'static [(&str, Shape)], value: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    let Value::Object(map) = value else { return };
    for (key, child) in map {
        let here = path.field(key);
        match (shape_of(table, key), child) {
            (None, _) => found.push(here.dotted()),
            (Some(Shape::List(_, table)), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    find_in(table, item, &here.index(index), found);
                }
            }
            _ => {}
        }
    }
}

/// Leaves what Kubernetes would write back: known fields that hold something.
pub(crate) fn remove_unknown(metadata: &mut Value) {
    clean(META, metadata);
}

fn clean(table: &'static [(&str, Shape)], value: &mut Value) {
    let Value::Object(map) = value else { return };
    map.retain(|key, child| {
        let Some(shape) = shape_of(table, key) else { return false };
        match (shape, child) {
            (_, Value::Null) => false,
            (Shape::Text, Value::String(text)) => !text.is_empty() || table.len() == OWNER.len(),
            (Shape::Int, Value::Number(n)) => n.as_i64() != Some(0) || key == "deletionGracePeriodSeconds",
            (Shape::TextMap, Value::Object(map)) => {
                for text in map.values_mut().filter(|v| v.is_null()) {
                    *text = Value::String(String::new());
                }
                !map.is_empty()
            }
            (Shape::List(_, table), Value::Array(items)) => {
                items.iter_mut().for_each(|item| clean(table, item));
                !items.is_empty()
            }
            (_, Value::Array(items)) => !items.is_empty(),
            _ => true,
        }
    });
}
