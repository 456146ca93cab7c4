//! YAML into a tree that remembers where everything stands.

use super::finding::{Mark, TOP};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};
use std::fmt;

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Mark,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Scalar(Value),
    List(Vec<Node>),
    /// In the order of the file, with repeated keys.
    Map(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) at: Mark,
    pub(super) name: String,
}

/// A text that is no YAML.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) at: Mark,
    pub(super) why: String,
}

/// Deeper than any configuration, and the stack always holds it.
const MAX_DEPTH: usize = 50;

/// Parses a text of one document. `None`: there is nothing in it.
pub(super) fn parse(text: &str) -> Result<Option<Node>, SyntaxError> {
    // Blank text has no node to point at.
    let blank =
        |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---";
    if text.lines().all(blank) {
        return Ok(None);
    }
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    let node = serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let at = error.location().map_or(TOP, mark);
        let why = error.without_snippet().to_string();
        // The place is printed in front already.
        let why = why.split(" at line ").next().unwrap_or(&why).trim_start_matches("error: ").to_owned();
        SyntaxError { at, why }
    })?;
    Ok(Some(node))
}

fn mark(location: Location) -> Mark {
    Mark { line: location.line().max(1), column: location.column().max(1) }
}

// === impl Node ===

impl Node {
    /// The value without its places; of a repeated key the last one counts.
    pub(super) fn to_value(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Data::Map(entries) => {
                let pairs = entries.iter().map(|(key, value)| (key.name.clone(), value.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Where a path such as `listeners[0].bind` leads, or as much of it as the file has: the place of the value, or of the
    /// last key on the way.
    pub(super) fn place(&self, path: &str) -> Mark {
        let (mut node, mut key_at, mut whole) = (self, self.at, true);
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match (&node.data, step.strip_suffix(']')) {
                (Data::List(items), Some(index)) => {
                    let item = index.parse::<usize>().ok().and_then(|index| items.get(index));
                    item.map(|item| (item.at, item))
                }
                (Data::Map(entries), None) => {
                    let entry = entries.iter().rev().find(|(key, _)| key.name == step);
                    entry.map(|(key, value)| (key.at, value))
                }
                _ => None,
            };
            let Some((at, value)) = next else {
                whole = false;
                break;
            };
            (node, key_at) = (value, at);
        }
        if whole { node.at } else { key_at }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<Data>::deserialize(deserializer)?;
        Ok(Node { at: mark(spanned.referenced), data: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        deserializer.deserialize_any(DataVisitor)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let spanned = Spanned::<Data>::deserialize(deserializer)?;
        let name = match spanned.value {
            Data::Scalar(Value::String(name)) => name,
            Data::Scalar(Value::Null) | Data::List(_) | Data::Map(_) => {
                return Err(D::Error::custom("a key must be a string"));
            }
            Data::Scalar(other) => other.to_string(),
        };
        Ok(Key { at: mark(spanned.referenced), name })
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Data, E> {
        Ok(Data::Scalar(v.into()))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Data, E> {
        Ok(Data::Scalar(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Data, E> {
        Ok(Data::Scalar(v.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Data, E> {
        let number = Number::from_f64(v).ok_or_else(|| E::custom("a number that JSON can't hold"))?;
        Ok(Data::Scalar(number.into()))
    }
    fn visit_str<E>(self, v: &str) -> Result<Data, E> {
        Ok(Data::Scalar(v.into()))
    }
    fn visit_unit<E>(self) -> Result<Data, E> {
        Ok(Data::Scalar(Value::Null))
    }
    fn visit_none<E>(self) -> Result<Data, E> {
        Ok(Data::Scalar(Value::Null))
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Data, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Data::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Data::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(text: &str, path: &str) -> (u64, u64) {
        let place = parse(text).unwrap().unwrap().place(path);
        (place.line, place.column)
    }

    #[test]
    fn paths_lead_to_places() {
        let text = "# first\na:\n  b:\n  - c: 1\n  - c: 2\n  d: x\n";
        assert_eq!(line(text, "a.b[1].c"), (5, 8));
        assert_eq!(line(text, "a.d"), (6, 6));
        // What is missing is shown at the last key that is there.
        assert_eq!(line(text, "a.b[1].z"), (5, 5));
        assert_eq!(line(text, "q"), (2, 1));
    }

    #[test]
    fn values_come_without_their_places() {
        let node = parse("a: {b: [1, true, null, 1.5, \"0x\"]}\n").unwrap().unwrap();
        assert_eq!(node.to_value(), json!({"a": {"b": [1, true, null, 1.5, "0x"]}}));
        assert!(parse("# only this\n---\n").unwrap().is_none());
    }

    #[test]
    fn hostile_text_is_refused() {
        for text in ["[".repeat(100_000), "{a: ".repeat(5_000), "- ".repeat(50_000)] {
            assert!(parse(&text).is_err());
        }
    }
}
