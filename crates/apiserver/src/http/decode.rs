//! Bodies into trees: JSON or YAML, with every repeated key noticed.

use super::gojson;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// A decoded body.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// The paths of keys that were given twice: `metadata.name`. The last one counts, as in Go.
    pub(crate) duplicates: Vec<String>,
}

/// What a body is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Yaml,
}

/// Decodes `body`; the error is what a JSON or YAML decoder in Go would say.
pub(crate) fn decode(body: &[u8], syntax: Syntax) -> Result<Decoded, String> {
    // Go reads what is not UTF-8 as the replacement character.
    let text = String::from_utf8_lossy(body);
    match syntax {
        Syntax::Json => json(&text),
        // JSON is YAML too, and its parser is ten times as fast: most bodies of an apply are JSON.
        Syntax::Yaml if text.trim_start().starts_with('{') => parse_json(&text).or_else(|_| yaml(&text)),
        Syntax::Yaml => yaml(&text),
    }
}

fn json(text: &str) -> Result<Decoded, String> {
    match parse_json(text) {
        Ok(decoded) => Ok(decoded),
        Err(_) if text.contains("\\u") => {
            parse_json(&gojson::mend_surrogates(text)).map_err(|_| gojson::complaint(text))
        }
        Err(_) => Err(gojson::complaint(text)),
    }
}

fn parse_json(text: &str) -> Result<Decoded, serde_json::Error> {
    let duplicates = RefCell::new(Vec::new());
    let mut de = serde_json::Deserializer::from_str(text);
    let node = Node { path: None, duplicates: &duplicates };
    let value = node.deserialize(&mut de)?;
    de.end()?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

fn yaml(text: &str) -> Result<Decoded, String> {
    let duplicates = RefCell::new(Vec::new());
    let options =
        serde_saphyr::options! { duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins };
    let node = Node { path: None, duplicates: &duplicates };
    let text = first_document(text);
    let value =
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |de| node.deserialize(de));
    match value {
        Ok(value) => Ok(Decoded { value, duplicates: duplicates.into_inner() }),
        Err(error) => {
            let said = error.to_string();
            Err(format!("yaml: {}", said.lines().next().unwrap_or_default().trim_start_matches("error: ")))
        }
    }
}

/// Kubernetes reads the first document of a stream and passes over the rest.
fn first_document(text: &str) -> &str {
    let body = text.strip_prefix("---\n").unwrap_or(text);
    match body.find("\n---\n") {
        Some(end) => &body[..=end],
        None => body,
    }
}

/// Where in the document we are; made into text only when something is wrong there.
#[derive(Clone, Copy)]
enum Path<'a> {
    Field(Option<&'a Path<'a>>, &'a str),
    Index(Option<&'a Path<'a>>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(None, name) => f.write_str(name),
            Self::Field(Some(parent), name) => write!(f, "{parent}.{name}"),
            Self::Index(None, i) => write!(f, "[{i}]"),
            Self::Index(Some(parent), i) => write!(f, "{parent}[{i}]"),
        }
    }
}

/// Builds a `Value` and writes down repeated keys.
struct Node<'a> {
    path: Option<&'a Path<'a>>,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Value, D::Error> {
        de.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("a number that JSON can't hold"))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.into()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, de: D) -> Result<Value, D::Error> {
        de.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let path = Path::Index(self.path, out.len());
            match seq.next_element_seed(Node { path: Some(&path), duplicates: self.duplicates })? {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key_seed(Node { path: self.path, duplicates: self.duplicates })? {
            let key = match key {
                Value::String(key) => key,
                Value::Bool(b) => b.to_string(),
                Value::Number(n) => n.to_string(),
                other => return Err(A::Error::custom(format!("a key must be a string, not {other}"))),
            };
            let path = Path::Field(self.path, &key);
            if out.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.to_string());
            }
            let value = map.next_value_seed(Node { path: Some(&path), duplicates: self.duplicates })?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn repeated_keys_are_named_and_the_last_one_counts() {
        for (syntax, body) in [
            (Syntax::Json, r#"{"a":{"b":1,"b":2},"l":[{"c":1,"c":3}]}"#),
            (Syntax::Yaml, "a:\n  b: 1\n  b: 2\nl:\n- c: 1\n  c: 3\n"),
        ] {
            let decoded = decode(body.as_bytes(), syntax).unwrap();
            assert_eq!(decoded.value, json!({"a": {"b": 2}, "l": [{"c": 3}]}), "{syntax:?}");
            assert_eq!(decoded.duplicates, ["a.b", "l[0].c"], "{syntax:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_not_survived() {
        for body in [&b"{"[..], b"{\"a\":}", b"\xff\xfe", b"{} {}", b""] {
            assert!(decode(body, Syntax::Json).is_err(), "{body:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(decode(deep.as_bytes(), Syntax::Json).is_err());
        assert!(decode(deep.as_bytes(), Syntax::Yaml).is_err());
        assert!(decode(b"a: [", Syntax::Yaml).is_err());
    }

    #[test]
    fn plain_yaml_scalars_have_their_types() {
        let decoded =
            decode(b"a: 1\nb: true\nc: null\nd: 1.5\ne: \"1\"\nf: yes-sir\n", Syntax::Yaml).unwrap();
        assert_eq!(decoded.value, json!({"a": 1, "b": true, "c": null, "d": 1.5, "e": "1", "f": "yes-sir"}));
    }
}
