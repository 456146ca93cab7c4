//! Reading an object for its cells.

use super::age;
use jiff::Timestamp;
use serde_json::Value;

/// An object, or a part of one, at a moment.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    value: &'a Value,
    now: Timestamp,
}

impl<'a> View<'a> {
    pub(super) fn new(value: &'a Value, now: Timestamp) -> Self {
        Self { value, now }
    }

    /// The value at a dotted path, or null.
    pub(super) fn at(self, path: &str) -> &'a Value {
        path.split('.').try_fold(self.value, |value, name| value.get(name)).unwrap_or(&Value::Null)
    }

    pub(super) fn part(self, path: &str) -> Self {
        Self { value: self.at(path), now: self.now }
    }

    pub(super) fn has(self, path: &str) -> bool {
        !self.at(path).is_null()
    }

    pub(super) fn text(self, path: &str) -> &'a str {
        self.at(path).as_str().unwrap_or_default()
    }

    /// The text at a path, or another one where it is missing or empty.
    pub(super) fn text_or(self, path: &str, other: &'a str) -> &'a str {
        Some(self.text(path)).filter(|text| !text.is_empty()).unwrap_or(other)
    }

    pub(super) fn int(self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    pub(super) fn is_true(self, path: &str) -> bool {
        self.at(path) == true
    }

    pub(super) fn list(self, path: &str) -> impl DoubleEndedIterator<Item = View<'a>> + ExactSizeIterator {
        let items = self.at(path).as_array().map_or(&[][..], Vec::as_slice);
        items.iter().map(move |value| View { value, now: self.now })
    }

    /// How many elements or fields there are.
    pub(super) fn count(self, path: &str) -> usize {
        match self.at(path) {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        }
    }

    /// Texts of a list, joined.
    pub(super) fn joined(self, path: &str, separator: &str) -> String {
        let texts: Vec<&str> =
            self.at(path).as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        texts.join(separator)
    }

    /// A scalar in words; nothing for a missing one.
    pub(super) fn words(self, path: &str) -> Option<String> {
        match self.at(path) {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    pub(super) fn since(self, path: &str) -> String {
        age::since(self.at(path), self.now)
    }

    pub(super) fn now(self) -> Timestamp {
        self.now
    }

    pub(super) fn age(self) -> String {
        self.since("metadata.creationTimestamp")
    }

    pub(super) fn name(self) -> &'a str {
        self.text("metadata.name")
    }

    /// Whether a condition of this type has this status.
    pub(super) fn condition(self, ty: &str, status: &str) -> bool {
        self.list("status.conditions").any(|c| c.text("type") == ty && c.text("status") == status)
    }

    /// A plain map as `a=b,c=d`.
    pub(super) fn labels(self, path: &str) -> String {
        let pairs: Vec<String> = self
            .at(path)
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
    }

    /// A label selector in the words of a selector; `empty` where it selects everything.
    pub(super) fn selector(self, path: &str, empty: &str) -> String {
        let words = selector_words(self.at(path));
        if words.is_empty() { empty.to_string() } else { words }
    }

    /// Names and images of containers, each joined by commas.
    pub(super) fn containers(self, path: &str) -> [Value; 2] {
        ["name", "image"].map(|field| {
            let words: Vec<&str> = self.list(path).map(|container| container.text(field)).collect();
            words.join(",").into()
        })
    }
}

/// A label selector in the form that query parameters have: `a=b,c in (d,e)`.
pub fn selector_words(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut parts: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push((key.clone(), format!("{key}={}", text(value))));
    }
    for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = text(&rule["key"]);
        let values: Vec<String> = rule["values"].as_array().into_iter().flatten().map(text).collect();
        let values = values.join(",");
        let words = match rule["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, words));
    }
    parts.sort();
    let words: Vec<String> = parts.into_iter().map(|(_, words)| words).collect();
    words.join(",")
}
