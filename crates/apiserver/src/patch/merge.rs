//! JSON merge patch (RFC 7396).

use super::syntax::{cannot_unmarshal, parse};
use crate::status::Status;
use serde_json::Value;

/// Reads a merge patch: a JSON object.
pub fn parse_merge_patch(body: &[u8]) -> Result<Value, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    match parse(body).map_err(refuse)? {
        patch @ Value::Object(_) => Ok(patch),
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => Err(refuse(cannot_unmarshal(&other, "value of type map[string]interface {}"))),
    }
}

/// Puts the patch into the object: null takes a field away, objects merge, all else replaces.
pub fn merge_patch(object: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *object, patch) else {
        // Where there was no object to take nulls away from, they still must not come in.
        let replaces_object = object.is_object();
        *object = patch.clone();
        if !replaces_object {
            drop_nulls(object);
        }
        return;
    };
    for (name, change) in changes {
        match fields.get_mut(name) {
            _ if change.is_null() => {
                fields.remove(name);
            }
            Some(current) if !current.is_null() => merge_patch(current, change),
            _ => {
                let mut value = change.clone();
                drop_nulls(&mut value);
                fields.insert(name.clone(), value);
            }
        }
    }
}

/// Takes null fields out of objects, at any depth. Null list items stay.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn follows_the_examples_of_the_rfc() {
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": 1}), json!({"a": {"b": null, "c": 2}}), json!({"a": {"c": 2}})),
            (json!({}), json!({"l": [null, {"x": null}]}), json!({"l": [null, {}]})),
        ];
        for (mut object, patch, wanted) in table {
            merge_patch(&mut object, &patch);
            assert_eq!(object, wanted, "{patch}");
        }
    }

    #[test]
    fn refuses_what_is_no_object() {
        let table: [(&[u8], &str); 5] = [
            (b"{", "error decoding patch: unexpected end of JSON input"),
            (b"", "error decoding patch: unexpected end of JSON input"),
            (
                b"[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (
                b"\"x\"",
                "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
            ),
            (b"null", "Invalid JSON Patch"),
        ];
        for (body, message) in table {
            let status = parse_merge_patch(body).unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (400, message));
        }
        assert_eq!(parse_merge_patch(b"{\"a\":null}").unwrap(), json!({"a": null}));
    }
}
