//! JSON values as CEL rules see them.
//!
//! The schema decides: which numbers are doubles, which texts are times, durations or bytes, and whether the keys of an
//! object are names of fields, which CEL spells in its own way, or data.

use super::cel::call;
use super::numbers::Num;
use super::{Additional, Schema, Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// A JSON value as a rule sees it. At the root only the names in metadata are visible.
pub(crate) fn bind(schema: &Schema, value: &Value, root: bool) -> Cel {
    let Value::Object(map) = value else { return bind_value(Some(schema), value) };
    if !root {
        return bind_value(Some(schema), value);
    }
    let mut out = HashMap::with_capacity(map.len());
    for (key, child) in map {
        let bound = match key.as_str() {
            "apiVersion" | "kind" => bind_value(None, child),
            "metadata" => {
                let names = ["name", "generateName"];
                let known = names.iter().filter_map(|n| Some((text_key(n), bind_value(None, child.get(n)?))));
                Cel::Map(Map { map: Arc::new(known.collect()) })
            }
            _ => bind_value(schema.properties.get(key).map(|s| &**s), child),
        };
        out.insert(text_key(&escape(key)), bound);
    }
    Cel::Map(Map { map: Arc::new(out) })
}

pub(super) fn bind_value(schema: Option<&Schema>, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (Num::from(number), schema.and_then(|s| s.ty)) {
            (num, Some(Type::Number)) => Cel::Float(num.as_f64()),
            (Num::Int(int), _) => Cel::Int(int),
            (num @ Num::Float(float), Some(Type::Integer)) if num.is_whole() => Cel::Int(float as i64),
            (Num::Float(float), _) => Cel::Float(float),
        },
        Value::String(text) => bind_text(schema.and_then(|s| s.format.as_deref()), text),
        Value::Array(items) => {
            let of_items = schema.and_then(|s| s.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| bind_value(of_items, item)).collect()))
        }
        Value::Object(map) => {
            let mut out = HashMap::with_capacity(map.len());
            for (key, child) in map {
                let property = schema.and_then(|s| s.properties.get(key)).map(|s| &**s);
                let (key, sub) = match (property, schema.map(|s| &s.additional)) {
                    // Keys of a map are data and stay as they are; names of fields are spelled for CEL.
                    (None, Some(Additional::Of(values))) => (text_key(key), Some(&**values)),
                    (None, Some(Additional::Anything)) => (text_key(key), None),
                    (property, _) => (text_key(&escape(key)), property),
                };
                out.insert(key, bind_value(sub, child));
            }
            Cel::Map(Map { map: Arc::new(out) })
        }
    }
}

fn text_key(text: &str) -> Key {
    Key::String(Arc::new(text.to_string()))
}

/// Texts whose format has a CEL type of its own. A text that is not in its format stays a text.
fn bind_text(format: Option<&str>, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_string()));
    let through = |function: &str, text: &str| call(function, text).unwrap_or_else(plain);
    match format {
        Some("date-time") => through("timestamp", text),
        Some("date") => through("timestamp", &format!("{text}T00:00:00Z")),
        Some("duration") => through("duration", text),
        Some("byte") => STANDARD.decode(text).map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// The spelling of a field name in CEL, where some names are keywords and some characters are operators.
fn escape(name: &str) -> String {
    const KEYWORDS: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if KEYWORDS.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_string();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_for_cel() {
        assert_eq!(escape("namespace"), "__namespace__");
        assert_eq!(escape("a-b.c/d"), "a__dash__b__dot__c__slash__d");
        assert_eq!(escape("my_field"), "my_field");
        assert_eq!(escape("a__b"), "a__underscores__b");
    }
}
