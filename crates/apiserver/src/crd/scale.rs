//! The fields that the scale subresource reads and writes must hold what it needs, whatever the schema allows.

use crate::resource::Scale;
use crate::status::FieldError;
use serde_json::Value;

/// Checks the replica counts and the selector of an object. A write to the status looks at the status alone.
pub fn validate_scale(scale: &Scale, object: &Value, status_only: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !status_only {
        replicas(&scale.spec_replicas_path, object, &mut errors);
    }
    replicas(&scale.status_replicas_path, object, &mut errors);
    if let Some(path) = &scale.label_selector_path
        && let Err(why) = find(object, path, "string", |v| v.as_str())
    {
        errors.push(FieldError::invalid(path.as_str(), "".into(), why));
    }
    errors
}

fn replicas(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    match find(object, path, "int64", Value::as_i64) {
        Err(why) => errors.push(FieldError::invalid(path, 0.into(), why)),
        Ok(Some(count)) if count < 0 => {
            errors.push(FieldError::invalid(path, count.into(), "should be a non-negative integer"));
        }
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(path, count.into(), detail));
        }
        Ok(_) => {}
    }
}

/// The value at a dotted path; absent is fine, another type is not.
fn find<'a, T>(
    object: &'a Value,
    path: &str,
    wanted: &str,
    convert: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let mut at = object;
    let mut walked = String::new();
    for name in path.trim_start_matches('.').split('.') {
        walked.push('.');
        walked.push_str(name);
        match at {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(next) => at = next,
                None => return Ok(None),
            },
            other => return Err(mismatch(&walked, other, "map[string]interface{}")),
        }
    }
    convert(at).map(Some).ok_or_else(|| mismatch(&walked, at, wanted))
}

fn mismatch(path: &str, value: &Value, wanted: &str) -> String {
    let (text, ty) = match value {
        Value::Null => ("<nil>".to_string(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(n) if n.is_i64() => (n.to_string(), "int64"),
        Value::Number(n) => (n.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    format!("{path} accessor error: {text} is of the type {ty}, expected {wanted}")
}
