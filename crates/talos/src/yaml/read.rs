//! YAML text into trees that remember where everything stands and how it was written.
//!
//! Scalars keep their text: whether `1.10` is a number or a version is known only by the field that it is for.

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// A place in a text; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    pub line: usize,
    pub column: usize,
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Mark,
    pub(crate) data: Data,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text: (place of the key, key, value).
    Map(Vec<(Mark, String, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// Not in quotes and not a block, so that it may mean something other than a string.
    pub(crate) plain: bool,
}

/// A document that is no YAML, or YAML that nobody should write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SyntaxError {
    pub(crate) at: Mark,
    pub(crate) why: String,
}

/// Deeper than any config, and shallow enough for the stack.
const MAX_DEPTH: usize = 64;
/// An alias can repeat what is large; this many nodes is more than any config has.
const MAX_NODES: usize = 200_000;

/// Reads all documents. Null documents are left out. Each broken document is one error, and those after it are still read.
pub(crate) fn parse(text: &str) -> Vec<Result<Node, SyntaxError>> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut documents = Vec::new();
    loop {
        match reader.document() {
            Ok(None) => return documents,
            Ok(Some(node)) if node.is_null() => {}
            Ok(Some(node)) => documents.push(Ok(node)),
            Err(error) => {
                documents.push(Err(error));
                if !matches!(reader.parser.proceed_next_document(), Ok(true)) {
                    return documents;
                }
            }
        }
    }
}

struct Reader<'input> {
    parser: Parser<'input, granit_parser::StrInput<'input>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'input> Reader<'input> {
    /// The next event that is not a comment.
    fn next(&mut self) -> Result<Option<(Event<'input>, Span)>, SyntaxError> {
        for found in self.parser.by_ref() {
            let (event, span) = found.map_err(|error| syntax(&error))?;
            if is_structure(&event) {
                return Ok(Some((event, span)));
            }
        }
        Ok(None)
    }

    fn document(&mut self) -> Result<Option<Node>, SyntaxError> {
        self.anchors.clear();
        loop {
            match self.next()? {
                None | Some((Event::StreamEnd, _)) => return Ok(None),
                Some((Event::DocumentStart(..) | Event::DocumentEnd, _)) => {}
                Some((event, span)) => {
                    let node = self.node(event, span, 0)?;
                    return Ok(Some(node));
                }
            }
        }
    }

    fn node(&mut self, event: Event<'input>, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        let at = mark(&span.start);
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(SyntaxError { at, why: "it is nested too deeply, or too large".into() });
        }
        let (data, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let string = tag.is_some_and(|tag| tag.to_string().ends_with("str"));
                let plain = style == ScalarStyle::Plain && !string;
                (Data::Scalar(Scalar { text: text.into_owned(), plain }), anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Data::List(self.list(depth)?), anchor),
            Event::MappingStart(_, anchor, _) => (Data::Map(self.map(depth)?), anchor),
            Event::Alias(id) => {
                let mut node = self.anchors.get(&id).cloned().ok_or_else(|| SyntaxError {
                    at,
                    why: "an alias stands inside of what it repeats".into(),
                })?;
                self.nodes += node.count();
                node.at = at;
                return Ok(node);
            }
            _ => return Err(SyntaxError { at, why: "a value is missing".into() }),
        };
        let node = Node { at, data };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, SyntaxError> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, span, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Mark, String, Node)>, SyntaxError> {
        let mut entries: Vec<(Mark, String, Node)> = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, span, depth + 1)?;
            let Data::Scalar(Scalar { text, plain }) = key.data else {
                return Err(SyntaxError { at: key.at, why: "a key must be a string".into() });
            };
            if plain && text == "<<" {
                return Err(SyntaxError { at: key.at, why: "merge keys (<<) are not supported".into() });
            }
            if let Some((first, _, _)) = entries.iter().find(|(_, other, _)| *other == text) {
                let why = format!("the key {text:?} is there twice, first in line {}", first.line);
                return Err(SyntaxError { at: key.at, why });
            }
            let Some((event, span)) = self.next()? else { break };
            let value = self.node(event, span, depth + 1)?;
            entries.push((key.at, text, value));
        }
        Ok(entries)
    }
}

/// Everything but comments, whose event exists only with a feature that another crate may turn on for the whole build.
fn is_structure(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd
    )
}

fn mark(marker: &granit_parser::Marker) -> Mark {
    Mark { line: marker.line().max(1), column: marker.col() + 1 }
}

fn syntax(error: &ScanError) -> SyntaxError {
    SyntaxError { at: mark(error.marker()), why: error.kind().to_string() }
}

// === impl Node ===

impl Node {
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.data, Data::Scalar(scalar) if scalar.is_null())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.data {
            Data::Map(entries) => entries.iter().find(|(_, name, _)| name == key).map(|(_, _, node)| node),
            _ => None,
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar(scalar) if !scalar.is_null() => Some(&scalar.text),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Scalar(scalar) => match scalar.value() {
                Value::Null => "null",
                Value::Bool(_) => "a boolean",
                Value::Number(_) => "a number",
                _ => "a string",
            },
            Data::List(_) => "a list",
            Data::Map(_) => "a map",
        }
    }

    /// The value, with scalars taken for what they look like.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Scalar(scalar) => scalar.value(),
            Data::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Data::Map(entries) => Value::Object(
                entries.iter().map(|(_, key, node)| (key.clone(), node.to_value())).collect::<Map<_, _>>(),
            ),
        }
    }

    fn count(&self) -> usize {
        match &self.data {
            Data::Scalar(_) => 1,
            Data::List(items) => 1 + items.iter().map(Node::count).sum::<usize>(),
            Data::Map(entries) => 1 + entries.iter().map(|(_, _, node)| node.count()).sum::<usize>(),
        }
    }
}

// === impl Scalar ===

impl Scalar {
    pub(crate) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// `true` and `false`, and what YAML 1.1 took for them: Talos' parser does so where a boolean is wanted.
    pub(crate) fn boolean(&self) -> Option<bool> {
        if !self.plain {
            return None;
        }
        match self.text.as_str() {
            "true" | "True" | "TRUE" | "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
            "false" | "False" | "FALSE" | "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
                Some(false)
            }
            _ => None,
        }
    }

    /// A whole number, in decimal, or with 0x, 0o, 0b or an octal 0 in front.
    pub(crate) fn integer(&self) -> Option<i64> {
        if !self.plain {
            return None;
        }
        let text = self.text.replace('_', "");
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(&text)),
        };
        if !digits.starts_with(|c: char| c.is_ascii_digit()) || self.text.starts_with('_') {
            return None;
        }
        let (radix, digits) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
            [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
            [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
            [b'0', _, ..] => (8, &digits[1..]),
            _ => (10, digits),
        };
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        i64::from_str_radix(digits, radix).ok()?.checked_mul(sign)
    }

    fn value(&self) -> Value {
        if self.is_null() {
            return Value::Null;
        }
        match self.text.as_str() {
            "true" | "True" | "TRUE" if self.plain => return Value::Bool(true),
            "false" | "False" | "FALSE" if self.plain => return Value::Bool(false),
            _ => {}
        }
        if let Some(number) = self.integer() {
            return Value::Number(number.into());
        }
        if self.plain
            && self.text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
            && let Some(number) = self.text.parse::<f64>().ok().and_then(Number::from_f64)
        {
            return Value::Number(number);
        }
        Value::String(self.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(text: &str) -> Value {
        let documents = parse(text);
        assert_eq!(documents.len(), 1, "{documents:?}");
        documents[0].as_ref().unwrap().to_value()
    }

    #[test]
    fn scalars_are_what_they_look_like() {
        let text = "a: 1\nb: 0x10\nc: 0o17\nd: 017\ne: '1'\nf: off\ng: true\nh: ~\ni: 1.5\nj: v1.10\nk: 10.0.0.1\nl: .\nm: \"true\"\n";
        let wanted = json!({
            "a": 1, "b": 16, "c": 15, "d": 15, "e": "1", "f": "off", "g": true, "h": null, "i": 1.5, "j": "v1.10",
            "k": "10.0.0.1", "l": ".", "m": "true",
        });
        assert_eq!(one(text), wanted);
    }

    #[test]
    fn places_are_kept() {
        let documents = parse("# head\na:\n  - b: 1 # why\n    c: [x, y]\n---\nd: 2\n");
        let first = documents[0].as_ref().unwrap();
        let Data::List(items) = &first.get("a").unwrap().data else { panic!() };
        assert_eq!(items[0].get("c").unwrap().at, Mark { line: 4, column: 8 });
        let Data::Map(entries) = &documents[1].as_ref().unwrap().data else { panic!() };
        assert_eq!(entries[0].0, Mark { line: 6, column: 1 });
    }

    #[test]
    fn a_broken_document_does_not_hide_the_next() {
        let documents = parse("a: 1\n---\nb: [1\n---\nc: 3\n---\n\n---\nd: 1\nd: 2\n");
        assert_eq!(documents.len(), 4, "{documents:?}");
        assert!(documents[0].is_ok() && documents[2].is_ok());
        assert!(documents[1].is_err());
        let error = documents[3].as_ref().unwrap_err();
        assert_eq!(
            (error.at.line, error.why.as_str()),
            (10, "the key \"d\" is there twice, first in line 9")
        );
    }

    #[test]
    fn aliases_are_followed_but_not_for_ever() {
        assert_eq!(one("a: &x [1, 2]\nb: *x\n"), json!({"a": [1, 2], "b": [1, 2]}));
        let mut bomb = String::from("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for n in 1..9 {
            let before = n - 1;
            let items = vec![format!("*a{before}"); 10].join(", ");
            bomb.push_str(&format!("a{n}: &a{n} [{items}]\n"));
        }
        assert!(parse(&bomb)[0].is_err());
        assert!(parse("a: &x [*x]\n")[0].is_err());
        assert!(parse(&format!("{}1{}", "[".repeat(500), "]".repeat(500)))[0].is_err());
    }

    #[test]
    fn nothing_is_no_document() {
        assert_eq!(parse(""), []);
        assert_eq!(parse("# only a comment\n---\n---\n"), []);
    }
}
