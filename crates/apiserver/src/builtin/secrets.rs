//! Secrets and config maps.

use super::common::{at, fill, remove, same, text};
use super::metadata::{config_key_problems, invalid};
use crate::status::{FieldError, FieldProblem};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

const LIMIT: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

pub(super) fn default_secret(secret: &mut Value) {
    // The write-only text form wins over data of the same key.
    if let Some(plain) = secret.get_mut("stringData").map(Value::take) {
        let data = &mut secret["data"];
        if !data.is_object() {
            *data = Value::Object(Map::new());
        }
        for (key, value) in plain.as_object().into_iter().flatten() {
            data[key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
        if data.as_object().is_some_and(Map::is_empty) {
            remove(secret, "data");
        }
        remove(secret, "stringData");
    }
    fill(secret, "type", json!("Opaque"));
}

pub(super) fn validate_secret(secret: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let data = at(secret, "data");
    let mut size = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        errors.extend(invalid(&format!("data[{key}]"), key, config_key_problems(key)));
        size += decoded_length(value);
    }
    if size > LIMIT {
        errors.push(too_long("data"));
    }
    errors.extend(validate_type(secret, data));
    if let Some(old) = old {
        if text(secret, "type") != text(old, "type") {
            errors.push(FieldError::invalid("type", at(secret, "type").clone(), "field is immutable"));
        }
        errors.extend(validate_fixed(secret, old, &["data"]));
    }
    errors
}

/// Keys that a type of secret must have.
fn validate_type(secret: &Value, data: &Value) -> Vec<FieldError> {
    let required = |keys: &[&str]| -> Vec<FieldError> {
        keys.iter()
            .filter(|key| data.get(**key).is_none())
            .map(|key| FieldError::required(format!("data[{key}]"), ""))
            .collect()
    };
    match text(secret, "type") {
        "kubernetes.io/tls" => required(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => required(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            required(&["username", "password"])
        }
        "kubernetes.io/dockercfg" => validate_json_key(data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => validate_json_key(data, ".dockerconfigjson"),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let named =
                at(secret, "metadata.annotations").get(key).and_then(Value::as_str).unwrap_or_default();
            if named.is_empty() {
                vec![FieldError::required(format!("metadata.annotations[{key}]"), "")]
            } else {
                Vec::new()
            }
        }
        _ => Vec::new(),
    }
}

fn validate_json_key(data: &Value, key: &str) -> Vec<FieldError> {
    let field = format!("data[{key}]");
    let Some(value) = data.get(key).and_then(Value::as_str) else {
        return vec![FieldError::required(field, "")];
    };
    let bytes = STANDARD.decode(value).unwrap_or_default();
    if serde_json::from_slice::<Map<String, Value>>(&bytes).is_ok() {
        return Vec::new();
    }
    let problem = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_string(),
        Some(b'{') => "invalid JSON object".into(),
        Some(first) => format!("invalid character '{}' looking for beginning of value", char::from(*first)),
    };
    vec![FieldError::invalid(field, "<secret contents redacted>".into(), problem)]
}

pub(super) fn validate_config_map(map: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (data, binary) = (at(map, "data"), at(map, "binaryData"));
    let mut size = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        let field = format!("data[{key}]");
        errors.extend(invalid(&field, key, config_key_problems(key)));
        if binary.get(key).is_some() {
            let problem = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(field, key.as_str().into(), problem));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in binary.as_object().into_iter().flatten() {
        errors.extend(invalid(&format!("binaryData[{key}]"), key, config_key_problems(key)));
        size += decoded_length(value);
    }
    if size > LIMIT {
        // The whole object is too long; the real server has no field to name either.
        errors.push(too_long("[]"));
    }
    if let Some(old) = old {
        errors.extend(validate_fixed(map, old, &["data", "binaryData"]));
    }
    errors
}

/// Once `immutable` is set, neither it nor the data can change.
fn validate_fixed(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if at(old, "immutable") != true {
        return errors;
    }
    if at(new, "immutable") != true {
        errors.push(FieldError::forbidden("immutable", FIXED));
    }
    for field in fields {
        if !same(at(new, field), at(old, field)) {
            errors.push(FieldError::forbidden(*field, FIXED));
        }
    }
    errors
}

fn too_long(field: &str) -> FieldError {
    FieldError::new(FieldProblem::TooLong, field, Value::Null, format!("may not be more than {LIMIT} bytes"))
}

/// Bytes behind a base64 text, without decoding it.
fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count().min(2);
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn string_data_is_folded_into_data() {
        let mut secret = json!({"stringData": {"x": "y", "z": "k"}, "data": {"x": "YQ=="}});
        default_secret(&mut secret);
        assert_eq!(secret, json!({"data": {"x": "eQ==", "z": "aw=="}, "type": "Opaque"}));
        let mut empty = json!({"type": ""});
        default_secret(&mut empty);
        assert_eq!(empty, json!({"type": "Opaque"}));
    }

    #[test]
    fn types_need_their_keys() {
        let check = |ty: &str, data: Value| words(&validate_secret(&json!({"type": ty, "data": data}), None));
        assert_eq!(check("kubernetes.io/tls", json!({"tls.crt": "YQ=="})), ["data[tls.key]: Required value"]);
        assert_eq!(
            check("kubernetes.io/basic-auth", json!({})),
            ["data[username]: Required value", "data[password]: Required value"]
        );
        assert!(check("kubernetes.io/basic-auth", json!({"username": "YQ=="})).is_empty());
        assert_eq!(
            check("kubernetes.io/dockercfg", json!({".dockercfg": "eA=="})),
            [
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"
            ]
        );
        assert_eq!(
            check("kubernetes.io/service-account-token", json!({})),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]
        );
        assert!(check("anything", json!({})).is_empty());
    }

    #[test]
    fn immutable_objects_stay() {
        let old = json!({"type": "Opaque", "immutable": true, "data": {"x": "eQ=="}});
        let new = json!({"type": "foo", "data": {"x": "eg=="}});
        assert_eq!(
            words(&validate_secret(&new, Some(&old))),
            [
                "type: Invalid value: \"foo\": field is immutable",
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set"
            ]
        );
        let old = json!({"immutable": true, "data": {"x": "y"}});
        assert!(validate_config_map(&old, Some(&old)).is_empty());
        let new = json!({"immutable": true, "data": {"x": "z"}});
        assert_eq!(validate_config_map(&new, Some(&old)).len(), 1);
    }

    #[test]
    fn config_map_keys_and_size() {
        let map = json!({"data": {"a": "x"}, "binaryData": {"a": "YQ=="}});
        assert_eq!(
            words(&validate_config_map(&map, None)),
            ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
        );
        let large = json!({"data": {"a": "x".repeat(LIMIT + 1)}});
        assert_eq!(
            words(&validate_config_map(&large, None)),
            ["[]: Too long: may not be more than 1048576 bytes"]
        );
    }
}
