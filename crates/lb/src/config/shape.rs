//! The shape of a file: keys, types, limits and forms, by the schema. Everything that is wrong is found in one walk.

use super::document::{Data, Key, Node};
use super::finding::{Finding, Mark, Severity};
use super::formats;
use serde_json::{Map, Value};

/// Walks a file beside its schema.
pub(super) fn check(root: &Node, schema: &Value, findings: &mut Vec<Finding>) {
    Walk { findings }.value("", root.at, root, schema);
}

struct Walk<'a> {
    findings: &'a mut Vec<Finding>,
}

impl Walk<'_> {
    fn error(&mut self, at: Mark, path: &str, text: &str, help: impl Into<String>) {
        let text = if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") };
        self.findings.push(Finding { at, severity: Severity::Error, text, help: help.into() });
    }

    /// `key` is where the value's key stands: what is missing below it is shown there.
    fn value(&mut self, path: &str, key: Mark, node: &Node, schema: &Value) {
        let (schema, optional) = unwrap_optional(schema);
        if matches!(node.data, Data::Scalar(Value::Null)) {
            if !optional {
                let help = about(schema);
                self.error(key, path, &format!("is empty: {} is expected", expected(schema)), help);
            }
            return;
        }
        if let Some(variants) = schema["oneOf"].as_array() {
            return self.variant(path, node, variants);
        }
        match (kind(schema), &node.data) {
            ("object", Data::Map(entries)) => self.object(path, key, entries, schema),
            ("array", Data::List(items)) => self.list(path, node, items, schema),
            ("string", Data::Scalar(Value::String(text))) => self.text(path, node, text, schema),
            ("boolean", Data::Scalar(Value::Bool(_))) => {}
            ("integer", Data::Scalar(Value::Number(number))) => match number.as_i64() {
                Some(whole) => self.integer(path, node, whole, schema),
                None => self.wrong_type(path, node, schema),
            },
            _ => self.wrong_type(path, node, schema),
        }
    }

    fn wrong_type(&mut self, path: &str, node: &Node, schema: &Value) {
        let help = match (kind(schema), &node.data) {
            ("string", Data::List(_)) => {
                "brackets make a list: put the value in quotes, as in \"[::]:6443\"".into()
            }
            ("integer", Data::Scalar(Value::String(text))) if text.parse::<u64>().is_ok() => {
                "write the number without quotes".into()
            }
            ("array", Data::Scalar(_)) => {
                "a list has a dash before each entry, or brackets around them".into()
            }
            _ => about(schema),
        };
        self.error(node.at, path, &format!("{}: {} is expected", shown(node), expected(schema)), help);
    }

    fn object(&mut self, path: &str, key: Mark, entries: &[(Key, Node)], schema: &Value) {
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        for (index, (key, value)) in entries.iter().enumerate() {
            let here = join(path, &key.name);
            if let Some((first, _)) = entries[..index].iter().find(|(other, _)| other.name == key.name) {
                let text = format!("the key is there already, at {}:{}", first.at.line, first.at.column);
                self.error(key.at, &here, &text, "keep one of the two");
            }
            match properties.get(&key.name) {
                Some(schema) => self.value(&here, key.at, value, schema),
                None => {
                    let help = meant(&key.name, properties.keys().map(String::as_str), "the fields here are");
                    self.error(key.at, &here, "unknown field", help);
                }
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !entries.iter().any(|(key, _)| key.name == name) {
                let help = properties.get(name).map(about).unwrap_or_default();
                self.error(key, &join(path, name), "is missing", help);
            }
        }
    }

    fn list(&mut self, path: &str, node: &Node, items: &[Node], schema: &Value) {
        let count = items.len() as u64;
        if schema["minItems"].as_u64().is_some_and(|least| count < least) {
            self.error(node.at, path, "the list is empty", about(schema));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.error(node.at, path, &format!("{count} entries: at most {most} are possible"), "");
        }
        for (index, item) in items.iter().enumerate() {
            self.value(&format!("{path}[{index}]"), item.at, item, &schema["items"]);
        }
    }

    fn text(&mut self, path: &str, node: &Node, text: &str, schema: &Value) {
        let Some(format) = schema["format"].as_str() else { return };
        if let Err(expected) = formats::judge(format, text) {
            self.error(node.at, path, &format!("{text:?}: {expected}"), "");
        }
    }

    fn integer(&mut self, path: &str, node: &Node, number: i64, schema: &Value) {
        let low = schema["minimum"].as_i64().unwrap_or(i64::MIN);
        // A u32 has no maximum of its own in the schema.
        let of_type = match schema["format"].as_str() {
            Some("uint32") => i64::from(u32::MAX),
            _ => i64::MAX,
        };
        let high = schema["maximum"].as_i64().unwrap_or(of_type);
        if (low..=high).contains(&number) {
            return;
        }
        let text = match high {
            i64::MAX => format!("{number}: at least {low} is expected"),
            _ => format!("{number}: a number from {low} to {high} is expected"),
        };
        self.error(node.at, path, &text, about(schema));
    }

    /// One of several words, or an object with one of several keys.
    fn variant(&mut self, path: &str, node: &Node, variants: &[Value]) {
        let words: Vec<&str> = variants.iter().flat_map(words).collect();
        match &node.data {
            Data::Scalar(Value::String(word)) if words.contains(&word.as_str()) => {}
            Data::Scalar(Value::String(word)) if !words.is_empty() => {
                let help = meant(word, words.iter().copied(), "the choices are");
                self.error(node.at, path, &format!("{word:?}: no such choice"), help);
            }
            Data::Map(entries) if words.is_empty() => self.tagged(path, node, entries, variants),
            _ if words.is_empty() => {
                let keys: Vec<&str> = variants.iter().filter_map(tag).collect();
                let help = format!("it has one key of {}", keys.join(", "));
                self.error(node.at, path, &format!("{}: a mapping is expected", shown(node)), help);
            }
            _ => {
                let text = format!("{}: one of {} is expected", shown(node), words.join(", "));
                self.error(node.at, path, &text, "");
            }
        }
    }

    fn tagged(&mut self, path: &str, node: &Node, entries: &[(Key, Node)], variants: &[Value]) {
        let keys: Vec<&str> = variants.iter().filter_map(tag).collect();
        let [(key, value)] = entries else {
            let text = format!("one key of {} is expected", keys.join(", "));
            return self.error(node.at, path, &text, "make an entry of its own for each");
        };
        let here = join(path, &key.name);
        match variants.iter().find(|variant| tag(variant) == Some(&key.name)) {
            Some(variant) => self.value(&here, key.at, value, &variant["properties"][&key.name]),
            None => {
                let help = meant(&key.name, keys.iter().copied(), "the choices are");
                self.error(key.at, &here, "no such choice", help);
            }
        }
    }
}

// === the schema ===

/// The schema of the value of an optional field, and whether it is one.
fn unwrap_optional(schema: &Value) -> (&Value, bool) {
    if let Some(choices) = schema["anyOf"].as_array() {
        let null = choices.iter().any(|choice| choice["type"] == "null");
        let value = choices.iter().find(|choice| choice["type"] != "null");
        return (value.unwrap_or(schema), null);
    }
    let null = schema["type"].as_array().is_some_and(|types| types.iter().any(|name| name == "null"));
    (schema, null)
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(name) => name,
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any")
        }
        _ => "any",
    }
}

/// The words that a variant allows.
fn words(variant: &Value) -> Vec<&str> {
    let listed = variant["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    variant["const"].as_str().into_iter().chain(listed).collect()
}

/// The key of a variant that is an object.
fn tag(variant: &Value) -> Option<&str> {
    variant["required"].as_array()?.first()?.as_str()
}

fn expected(schema: &Value) -> String {
    match (kind(schema), schema["format"].as_str()) {
        (_, Some("address:port")) => "an address with a port, such as 192.0.2.1:6443,".to_owned(),
        ("object", _) => "a mapping".to_owned(),
        ("array", _) => "a list".to_owned(),
        ("string", _) => "a text".to_owned(),
        ("boolean", _) => "true or false".to_owned(),
        ("integer", _) => "a whole number".to_owned(),
        _ => {
            let words: Vec<&str> = schema["oneOf"].as_array().into_iter().flatten().flat_map(words).collect();
            format!("one of {}", words.join(", "))
        }
    }
}

fn about(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

// === words ===

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A value in a message.
fn shown(node: &Node) -> String {
    match &node.data {
        Data::Scalar(value) => value.to_string(),
        Data::List(_) => "a list".to_owned(),
        Data::Map(_) => "a mapping".to_owned(),
    }
}

/// What could be meant by a word that is none of these.
fn meant<'w>(word: &str, known: impl Iterator<Item = &'w str>, otherwise: &str) -> String {
    let known: Vec<&str> = known.collect();
    let near = known.iter().map(|other| (distance(word, other), other)).min();
    match near {
        Some((steps, other)) if steps <= 2.max(word.len() / 3) => format!("did you mean {other}?"),
        _ => format!("{otherwise} {}", known.join(", ")),
    }
}

/// Levenshtein's distance, without regard to case, dashes and underscores: `router_id` is no distance from `routerId`.
fn distance(a: &str, b: &str) -> usize {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let (a, b) = (plain(a), plain(b));
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
