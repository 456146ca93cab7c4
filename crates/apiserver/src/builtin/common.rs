//! Small tools for reading, filling and checking objects as JSON.

use serde_json::{Map, Value, json};

/// The value at a dotted path, or null.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |value, name| value.get(name)).unwrap_or(&Value::Null)
}

pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

pub(super) fn items<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The elements of a list field that is there.
pub(super) fn items_mut<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The object in a field, made if it is missing.
pub(super) fn child<'a>(value: &'a mut Value, name: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let field = &mut value[name];
    if !field.is_object() {
        *field = Value::Object(Map::new());
    }
    field
}

/// The object in a field that is there.
pub(super) fn present<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    value.get_mut(name).filter(|field| field.is_object())
}

/// Fills a field that is missing, null or an empty string.
pub(super) fn fill(value: &mut Value, name: &str, default: Value) {
    if let Some(fields) = value.as_object_mut() {
        let field = fields.entry(name).or_insert(Value::Null);
        if field.is_null() || field.as_str() == Some("") {
            *field = default;
        }
    }
}

/// Fills several fields.
pub(super) fn fill_all<const N: usize>(value: &mut Value, defaults: [(&str, Value); N]) {
    for (name, default) in defaults {
        fill(value, name, default);
    }
}

pub(super) fn remove(value: &mut Value, name: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(name);
    }
}

/// Null, absent, empty string, list or map.
pub(super) fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Equal, where missing and empty are the same.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    left == right || (is_blank(left) && is_blank(right))
}

/// Whether a label selector (`matchLabels`, `matchExpressions`) takes these labels.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = at(selector, "matchLabels")
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    equal
        && items(selector, "matchExpressions").iter().all(|rule| {
            let found = labels.get(text(rule, "key"));
            let listed = found.is_some_and(|value| items(rule, "values").contains(value));
            match text(rule, "operator") {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// The empty label selector, which many specs get when they name none.
pub(super) fn empty() -> Value {
    json!({})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_labels() {
        let labels = json!({"a": "b", "c": "d"});
        assert!(selects(&json!({"matchLabels": {"a": "b"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"a": "x"}}), &labels));
        let rule = |operator: &str, key: &str| json!({"matchExpressions": [{"key": key, "operator": operator, "values": ["d"]}]});
        assert!(selects(&rule("In", "c"), &labels));
        assert!(!selects(&rule("NotIn", "c"), &labels));
        assert!(selects(&rule("NotIn", "zz"), &labels));
        assert!(selects(&rule("Exists", "a"), &labels));
        assert!(selects(&rule("DoesNotExist", "zz"), &labels));
    }

    #[test]
    fn fill_takes_only_blank_fields() {
        let mut value = json!({"a": 0, "b": "", "c": null});
        fill_all(&mut value, [("a", json!(1)), ("b", json!(1)), ("c", json!(1)), ("d", json!(1))]);
        assert_eq!(value, json!({"a": 0, "b": 1, "c": 1, "d": 1}));
    }
}
