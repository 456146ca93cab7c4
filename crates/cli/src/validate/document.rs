//! YAML and JSON into trees that remember where everything stands.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};
use std::fmt;

/// A place in a file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// A value and its place.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) at: Mark,
    pub(crate) data: Data,
}

#[derive(Debug)]
pub(crate) enum Data {
    Scalar(Value),
    List(Vec<Node>),
    /// In the order of the file, with repeated keys.
    Map(Vec<(Key, Node)>),
}

#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) at: Mark,
    pub(crate) name: String,
}

/// A document that is no YAML.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) at: Mark,
    pub(crate) why: String,
}

/// The depth that no object of Kubernetes reaches, and the stack always holds.
const MAX_DEPTH: usize = 50;

/// Parses all documents of a text. Each is parsed by itself, so that a slip in one does not hide the others.
pub(crate) fn parse(text: &str) -> Vec<Result<Node, SyntaxError>> {
    split(text)
        .into_iter()
        .filter_map(|(first_line, document)| match parse_one(document) {
            Ok(Node { data: Data::Scalar(Value::Null), .. }) => None,
            Ok(mut node) => {
                node.shift(first_line);
                Some(Ok(node))
            }
            Err(mut error) => {
                error.at.line += first_line;
                Some(Err(error))
            }
        })
        .collect()
}

fn parse_one(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
    };
    // Blank text has no node to point at.
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---")
    {
        return Ok(Node { at: Mark { line: 1, column: 1 }, data: Data::Scalar(Value::Null) });
    }
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|error| {
        let at = error.location().map_or(Mark { line: 1, column: 1 }, mark);
        let why = error.without_snippet().to_string();
        // The place is printed in front already.
        let why = why.split(" at line ").next().unwrap_or(&why).trim_start_matches("error: ").to_owned();
        SyntaxError { at, why }
    })
}

/// Cuts a text at its document markers: (lines before, document). A line that begins with `---` is a marker wherever it
/// stands, even inside a block of text, so cutting by lines is what YAML itself does.
fn split(text: &str) -> Vec<(u64, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 0, 0);
    let mut has_content = false;
    for (number, line) in (0u64..).zip(text.split_inclusive('\n')) {
        let marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marker && has_content {
            documents.push((start_line, &text[start..offset]));
            (start, start_line) = (offset, number);
            has_content = false;
        }
        let trimmed = line.trim();
        // Comments and %-directives belong to the document after them.
        let body = if marker { trimmed.trim_start_matches('-').trim() } else { trimmed };
        has_content |= marker || !(body.is_empty() || body.starts_with('#') || body.starts_with('%'));
        offset += line.len();
    }
    documents.push((start_line, &text[start..]));
    documents
}

fn mark(location: Location) -> Mark {
    Mark { line: location.line().max(1), column: location.column().max(1) }
}

// === impl Node ===

impl Node {
    fn shift(&mut self, lines: u64) {
        self.at.line += lines;
        match &mut self.data {
            Data::Scalar(_) => {}
            Data::List(items) => items.iter_mut().for_each(|item| item.shift(lines)),
            Data::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.at.line += lines;
                value.shift(lines);
            }),
        }
    }

    /// The value without its places; of a repeated key the last one counts.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Data::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.name.clone(), value.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        match &self.data {
            Data::Map(entries) => {
                entries.iter().rev().find(|(key, _)| key.name == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Calls `found` for each key that is there a second time: path, first place, second place.
    pub(crate) fn duplicates(&self, path: &str, found: &mut dyn FnMut(String, Mark, Mark)) {
        match &self.data {
            Data::Scalar(_) => {}
            Data::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.duplicates(&format!("{path}[{index}]"), found);
                }
            }
            Data::Map(entries) => {
                for (index, (key, value)) in entries.iter().enumerate() {
                    let here =
                        if path.is_empty() { key.name.clone() } else { format!("{path}.{}", key.name) };
                    if let Some((first, _)) =
                        entries[..index].iter().find(|(other, _)| other.name == key.name)
                    {
                        found(here.clone(), first.at, key.at);
                    }
                    value.duplicates(&here, found);
                }
            }
        }
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
        Number::from_f64(v)
            .map(|n| Data::Scalar(n.into()))
            .ok_or_else(|| E::custom("a number that JSON can't hold"))
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

    fn good(text: &str) -> Vec<Node> {
        parse(text).into_iter().map(|document| document.unwrap()).collect()
    }

    #[test]
    fn places_are_those_of_the_file() {
        let text = "# a comment\n---\na:\n  b: [1, {c: x}]\n  d: |\n    text\n---\ne: \"f\"\n";
        let documents = good(text);
        assert_eq!(documents.len(), 2);
        let a = documents[0].get("a").unwrap();
        let Data::List(b) = &a.get("b").unwrap().data else { panic!() };
        assert_eq!(b[0].at, Mark { line: 4, column: 7 });
        assert_eq!(b[1].get("c").unwrap().at, Mark { line: 4, column: 14 });
        let Data::Map(entries) = &documents[1].data else { panic!() };
        assert_eq!(
            (entries[0].0.at, entries[0].1.at),
            (Mark { line: 8, column: 1 }, Mark { line: 8, column: 4 })
        );
        assert_eq!(documents[0].to_value(), json!({"a": {"b": [1, {"c": "x"}], "d": "text\n"}}));
    }

    #[test]
    fn json_is_read_too() {
        let documents = good("{\n\t\"a\": {\"b\": [true, null, 1.5, \"\\u00e9\\/\"]}\n}\n");
        assert_eq!(documents[0].to_value(), json!({"a": {"b": [true, null, 1.5, "é/"]}}));
        assert_eq!(documents[0].get("a").unwrap().at.line, 2);
    }

    #[test]
    fn a_slip_in_one_document_leaves_the_others() {
        let documents = parse("a: 1\n---\nb: [1\n---\nc: 3\n");
        assert_eq!(documents.len(), 3);
        assert!(documents[0].is_ok() && documents[2].is_ok());
        let error = documents[1].as_ref().unwrap_err();
        assert!((3..=4).contains(&error.at.line), "{error:?}");
    }

    #[test]
    fn empty_documents_are_nothing() {
        assert!(good("").is_empty() && good("---\n---\n# only this\n").is_empty());
        assert_eq!(good("---\na: 1\n---\n").len(), 1);
        assert_eq!(good("%YAML 1.2\n---\na: 1\n").len(), 1);
    }

    #[test]
    fn repeated_keys_are_found_with_both_places() {
        let mut found = Vec::new();
        good("a:\n  b: 1\n  b: 2\nl:\n- c: 1\n  c: 2\n")[0].duplicates("", &mut |path, first, second| {
            found.push((path, first.line, second.line));
        });
        assert_eq!(found, [("a.b".to_owned(), 2, 3), ("l[0].c".to_owned(), 5, 6)]);
    }

    #[test]
    fn hostile_text_is_refused_not_survived() {
        for text in ["[".repeat(100_000), "{a: ".repeat(5_000), "- ".repeat(50_000)] {
            assert!(parse(&text)[0].is_err());
        }
        // A bomb of aliases.
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                    d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
        assert!(parse(bomb)[0].is_err());
    }
}
