//! Environment variables in place of fields: `BUTLER_NETWORK_VIP` is `network.vip`.
//!
//! Every single-valued field has one: its path in capitals, with underscores for dots. Those of the blocks of other infrastructures
//! than the file's are left alone: people have the variables of all their sites set.

use butler_apiserver::schema::{Schema, Type};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const PREFIX: &str = "BUTLER_";

/// Puts variables into the file's contents: the paths that were set, with the variable each came from.
pub(super) fn apply(
    schema: &Schema,
    variables: &BTreeMap<String, String>,
    file: &mut Value,
) -> Vec<(String, String)> {
    let mut set = Vec::new();
    if !variables.keys().any(|name| name.starts_with(PREFIX)) {
        return set;
    }
    let mut fields = Vec::new();
    walk(schema, &mut Vec::new(), &mut fields);
    let provider = provider(variables, file);
    for (path, ty) in fields {
        if is_of_another(&path, provider.as_deref()) {
            continue;
        }
        let variable = format!("{PREFIX}{}", path.join("_").to_uppercase());
        let Some(text) = variables.get(&variable).filter(|text| !text.is_empty()) else { continue };
        put(file, &path, value(ty, text));
        set.push((path.join("."), variable));
    }
    set
}

/// The infrastructure that the file, or the variable in its place, names.
fn provider(variables: &BTreeMap<String, String>, file: &Value) -> Option<String> {
    let variable = variables.get("BUTLER_PROVIDER").filter(|text| !text.is_empty()).cloned();
    variable.or_else(|| file.get("provider")?.as_str().map(ToOwned::to_owned))
}

/// Whether a field is in the block of an infrastructure that the file does not name.
fn is_of_another(path: &[String], provider: Option<&str>) -> bool {
    match (path, provider) {
        ([first, block, ..], Some(provider)) => first == "providerConfig" && block != provider,
        _ => false,
    }
}

/// All single-valued fields.
fn walk(schema: &Schema, path: &mut Vec<String>, fields: &mut Vec<(Vec<String>, Type)>) {
    for (name, field) in &schema.properties {
        path.push(name.clone());
        match field.ty {
            Some(ty @ (Type::String | Type::Integer | Type::Boolean | Type::Number)) => {
                fields.push((path.clone(), ty));
            }
            _ => walk(field, path, fields),
        }
        path.pop();
    }
}

/// A text in the type of its field; one that does not fit stays text, and the schema complains.
fn value(ty: Type, text: &str) -> Value {
    match ty {
        Type::Integer => text.trim().parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Type::Number => text.trim().parse::<f64>().map_or_else(|_| text.into(), Value::from),
        Type::Boolean => text.trim().parse::<bool>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    }
}

fn put(file: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *file = value;
        return;
    };
    if !file.is_object() {
        *file = Value::Object(Map::new());
    }
    if let Value::Object(map) = file {
        put(map.entry(first.clone()).or_insert(Value::Null), rest, value);
    }
}
