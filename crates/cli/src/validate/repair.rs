//! A guess at what an object was meant to be, so that the checks across fields can run although the schema refuses it.
//!
//! Only for looking further: a number in quotes is read as the number, a missing field is filled with the least that
//! decodes. What is found at a field that was guessed counts for nothing.

use super::explain;
use butler_apiserver::schema::{Schema, Type};
use butler_apiserver::status::{FieldError, FieldProblem};
use serde_json::{Map, Value};

/// Makes an object decode, as far as that takes no choice: a value that is none of an enum's is left as it is.
pub(crate) fn repair(root: &Schema, object: &mut Value, errors: &[FieldError]) {
    for error in errors {
        let Some(schema) = explain::walk(root, &error.field) else { continue };
        let value = match error.problem {
            FieldProblem::Required => sample(schema),
            FieldProblem::TypeInvalid => match lookup(object, &error.field) {
                Some(value) => coerce(schema, value).unwrap_or_else(|| sample(schema)),
                None => continue,
            },
            _ => continue,
        };
        put(object, &error.field, value);
    }
}

/// The value at a path.
pub(crate) fn lookup<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    object.pointer(&pointer(path))
}

fn put(object: &mut Value, path: &str, value: Value) {
    let pointer = pointer(path);
    if let Some(place) = object.pointer_mut(&pointer) {
        *place = value;
    } else if let Some((parent, key)) = pointer.rsplit_once('/')
        && let Some(Value::Object(parent)) = object.pointer_mut(parent)
    {
        parent.insert(key.to_owned(), value);
    }
}

/// A path of Kubernetes as a JSON Pointer. The fields of our kinds hold neither dots nor slashes; keys of maps that do
/// are not found, and so not repaired.
fn pointer(path: &str) -> String {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.map(|step| format!("/{}", step.trim_end_matches(']'))).collect()
}

/// The value in the type that is wanted, where there is no doubt about it.
fn coerce(schema: &Schema, value: &Value) -> Option<Value> {
    match (schema.ty?, value) {
        (Type::String, Value::Number(_) | Value::Bool(_)) => Some(value.to_string().into()),
        (Type::Integer, Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        (Type::Boolean, Value::String(text)) => text.trim().parse::<bool>().ok().map(Value::from),
        _ => None,
    }
}

/// The least that decodes.
fn sample(schema: &Schema) -> Value {
    if let Some(default) = &schema.default {
        return default.clone();
    }
    match schema.ty {
        Some(Type::String) => Value::String(String::new()),
        Some(Type::Integer) => Value::from(schema.limits.minimum.unwrap_or_default() as i64),
        Some(Type::Number) => Value::from(schema.limits.minimum.unwrap_or_default()),
        Some(Type::Boolean) => Value::Bool(false),
        Some(Type::Array) => Value::Array(Vec::new()),
        Some(Type::Object) | None => {
            let required = schema.limits.required.iter();
            let fields =
                required.filter_map(|name| Some((name.clone(), sample(schema.properties.get(name)?))));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}
