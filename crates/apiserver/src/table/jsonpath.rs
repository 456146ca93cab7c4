//! The part of JSONPath that Kubernetes allows in printer columns, scale paths and selectable fields.
//!
//! Understood: `.a.b`, `.a\.b`, `['a']`, `[0]`, `[-1]`, `[0:2]`, `[*]`, `.*`, `..a`, and filters `[?(@.type=="Ready")]` with
//! `==`, `!=`, `<`, `<=`, `>`, `>=` or mere presence.

use serde_json::Value;
use std::cmp::Ordering;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path(Vec<Step>);

/// Why a path was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading JSON path {path:?}: {problem}")]
pub struct PathError {
    path: String,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    /// `..name`: the field at any depth.
    Anywhere(String),
    Filter(Path, Option<(Operator, Value)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Two-letter ones first, so that `<` does not take the start of `<=`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// All values at a path, in document order; none if the path is not understood.
pub fn eval<'a>(path: &str, value: &'a Value) -> Vec<&'a Value> {
    Path::parse(path).map(|path| path.eval(value)).unwrap_or_default()
}

impl Path {
    /// A path, with or without the braces of kubectl and the leading `$`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inner);
        let inner = inner.strip_prefix(['$', '@']).unwrap_or(inner);
        parse_steps(inner).map(Self).map_err(|problem| PathError { path: text.to_string(), problem })
    }

    pub fn eval<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.apply(value)).collect();
        }
        found
    }
}

fn parse_steps(text: &str) -> Result<Vec<Step>, &'static str> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            let (name, tail) = take_name(after);
            steps.push(Step::Anywhere(name));
            rest = tail;
        } else if let Some(after) = rest.strip_prefix('.') {
            if after.is_empty() {
                break;
            }
            if after.starts_with('[') {
                rest = after;
                continue;
            }
            let (name, tail) = take_name(after);
            if name.is_empty() {
                return Err("a field name is missing");
            }
            steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            rest = tail;
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after).ok_or("a bracket is not closed")?;
            steps.push(parse_bracket(&after[..end])?);
            rest = &after[end + 1..];
        } else {
            return Err("a step starts with a dot or a bracket");
        }
    }
    Ok(steps)
}

/// A name up to the next dot or bracket; a backslash takes the next character as it is.
fn take_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(c),
        }
    }
    (name, "")
}

/// Where the bracket ends, not counting those in quotes or of inner brackets.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn parse_bracket(text: &str) -> Result<Step, &'static str> {
    let text = text.trim();
    if text == "*" {
        return Ok(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return parse_filter(filter.trim());
    }
    if let Some(name) = unquote(text) {
        return Ok(Step::Field(name.to_string()));
    }
    if let Some((from, to)) = text.split_once(':') {
        let bound = |part: &str| match part.trim() {
            "" => Ok(None),
            part => part.parse().map(Some).map_err(|_| "a slice needs numbers"),
        };
        return Ok(Step::Slice(bound(from)?, bound(to)?));
    }
    text.parse().map(Step::Index).map_err(|_| "a bracket holds a number, a quoted name, * or a filter")
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn parse_filter(text: &str) -> Result<Step, &'static str> {
    let text = text.strip_prefix('@').ok_or("a filter starts with @")?;
    // The operator stands after the path, which may hold brackets and quotes of its own.
    let found = OPERATORS
        .iter()
        .filter_map(|(word, operator)| Some((text.find(word)?, *word, *operator)))
        .min_by_key(|(at, word, _)| (*at, std::cmp::Reverse(word.len())));
    let Some((at, word, operator)) = found else {
        return Ok(Step::Filter(Path(parse_steps(text.trim())?), None));
    };
    let right = text[at + word.len()..].trim();
    let value = match unquote(right) {
        Some(quoted) => Value::String(quoted.to_string()),
        None => {
            serde_json::from_str(right).map_err(|_| "a filter compares with a quoted text or a number")?
        }
    };
    Ok(Step::Filter(Path(parse_steps(text[..at].trim())?), Some((operator, value))))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::All => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                position(*index, items.len()).and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::Slice(from, to) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let end = |bound: &Option<i64>, default: usize| {
                    bound.map_or(default, |b| position(b, items.len()).unwrap_or_default()).min(items.len())
                };
                let (from, to) = (end(from, 0), end(to, items.len()));
                items.get(from..to).unwrap_or_default().iter().collect()
            }
            Self::Anywhere(name) => {
                let mut found = Vec::new();
                search(value, name, &mut found);
                found
            }
            Self::Filter(path, test) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                items.iter().filter(|item| passes(path, test.as_ref(), item)).collect()
            }
        }
    }
}

/// Negative positions count from the end.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn search<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name));
            fields.values().for_each(|inner| search(inner, name, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| search(inner, name, found)),
        _ => {}
    }
}

fn passes(path: &Path, test: Option<&(Operator, Value)>, item: &Value) -> bool {
    let found = path.eval(item);
    let Some((operator, wanted)) = test else { return !found.is_empty() };
    found.iter().any(|value| {
        let order = match (value, wanted) {
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (left, right) if *left == right => Some(Ordering::Equal),
            _ => None,
        };
        match operator {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => order.is_some_and(Ordering::is_le),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_what_columns_name() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "lv"}},
            "spec": {"a": ["p", "q"], "l": [{"name": "n1", "n": 1}, {"name": "n2", "n": 2}], "o": {"x": 1}},
            "status": {"conditions": [{"type": "Other", "status": "No"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (".spec.a", json!([["p", "q"]])),
            (".spec.a[0]", json!(["p"])),
            (".spec.a[-1]", json!(["q"])),
            (".spec.a[5]", json!([])),
            (".spec.a[*]", json!(["p", "q"])),
            (".spec.a[0:1]", json!(["p"])),
            (".spec.l[*].name", json!(["n1", "n2"])),
            (".spec.o.*", json!([1])),
            ("{.spec.o['x']}", json!([1])),
            ("$.spec.o.x", json!([1])),
            (r".metadata.labels.a\.b/c", json!(["lv"])),
            (".metadata.labels['a.b/c']", json!(["lv"])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (".status.conditions[?(@.type!='Ready')].status", json!(["No"])),
            (".spec.l[?(@.n>1)].name", json!(["n2"])),
            (".spec.l[?(@.n<=1)].name", json!(["n1"])),
            (".spec.l[?(@.name)].n", json!([1, 2])),
            ("..name", json!(["n1", "n2"])),
            (".spec.missing.deeper", json!([])),
        ] {
            let found: Vec<Value> = eval(path, &object).into_iter().cloned().collect();
            assert_eq!(Value::Array(found), expected, "{path}");
        }
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for path in ["spec.x", ".spec[", ".a[x]", ".a[?(b)]", ".a[?(@.b==c d)]"] {
            assert!(Path::parse(path).is_err(), "{path}");
            assert!(eval(path, &json!({"spec": {"x": 1}})).is_empty());
        }
    }
}
