//! One step of a path into an object, in the forms that Kubernetes knows: its order, its printed form and its key in
//! `fieldsV1`.

use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// One step of a path.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// A field of an object, or an entry of a map.
    Field(String),
    /// The element of a list whose key fields have these values.
    Key(BTreeMap<String, Value>),
    /// The element of a set with this value.
    Value(Value),
    /// The element of a list at this place.
    Index(i64),
}

/// Why a `fieldsV1` key is not a path element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadElement {
    /// A kind of element from a later Kubernetes. Readers skip it.
    #[error("unknown path element type")]
    UnknownKind,
    #[error("{0}")]
    Malformed(String),
}

// === impl PathElement ===

impl PathElement {
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// The key that stands for this element in `fieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let mut out = String::from("k:{");
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(&go_json(&Value::String(name.clone())));
                    out.push(':');
                    out.push_str(&go_json(value));
                }
                out.push('}');
                out
            }
            Self::Value(value) => format!("v:{}", go_json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// The reverse of [`PathElement::encode`].
    pub fn decode(key: &str) -> Result<Self, BadElement> {
        let malformed = |text: String| BadElement::Malformed(text);
        let bytes = key.as_bytes();
        if bytes.len() < 2 {
            return Err(malformed("key must be 2 characters long:".into()));
        }
        if bytes[1] != b':' {
            return Err(malformed(format!("missing colon: {key}")));
        }
        let body = &key[2..];
        match bytes[0] {
            b'f' => Ok(Self::Field(body.to_string())),
            b'v' => serde_json::from_str(body).map(Self::Value).map_err(|e| malformed(e.to_string())),
            b'k' => serde_json::from_str(body).map(Self::Key).map_err(|e| malformed(e.to_string())),
            b'i' => body.parse().map(Self::Index).map_err(|_| malformed(format!("bad index: {key}"))),
            _ => Err(BadElement::UnknownKind),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// By `cmp`, so that 1 and 1.0 are one element in every operation.
impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", printed(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", printed(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as conflicts print it: `.spec.ports[port=80,protocol="TCP"].name`.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

fn compare_keys(a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>) -> Ordering {
    let mut left = a.iter();
    let mut right = b.iter();
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some((an, av)), Some((bn, bv))) => {
                let order = an.cmp(bn).then_with(|| compare_values(av, bv));
                if order != Ordering::Equal {
                    return order;
                }
            }
        }
    }
}

/// Kubernetes' total order of values: numbers, strings, booleans, lists, maps, null.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or(0.0).total_cmp(&y.as_f64().unwrap_or(0.0)),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            for (x, y) in x.iter().zip(y) {
                let order = compare_values(x, y);
                if order != Ordering::Equal {
                    return order;
                }
            }
            x.len().cmp(&y.len())
        }
        (Value::Object(x), Value::Object(y)) => {
            for ((xk, xv), (yk, yv)) in x.iter().zip(y) {
                let order = xk.cmp(yk).then_with(|| compare_values(xv, yv));
                if order != Ordering::Equal {
                    return order;
                }
            }
            x.len().cmp(&y.len())
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// JSON as Go's encoder writes it: the characters that matter to HTML are escaped.
fn go_json(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    let mut out = String::with_capacity(plain.len() + 16);
    for c in plain.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(s) => go_quote(s),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", printed(v))).collect(),
        other => other.to_string(),
    }
}

/// A string as Go's `%q` prints it.
pub(crate) fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(value: Value) -> PathElement {
        PathElement::Key(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn prints_as_kubernetes_does() {
        let path = [
            PathElement::field("spec"),
            PathElement::field("ports"),
            key(json!({"protocol": "TCP", "port": 80})),
            PathElement::field("name"),
        ];
        assert_eq!(path_text(&path), r#".spec.ports[port=80,protocol="TCP"].name"#);
        assert_eq!(PathElement::Value(json!("a\"b\n")).to_string(), r#"[="a\"b\n"]"#);
        assert_eq!(PathElement::Index(3).to_string(), "[3]");
    }

    #[test]
    fn encodes_keys_in_name_order_and_escapes_html() {
        assert_eq!(key(json!({"protocol": "TCP", "port": 80})).encode(), r#"k:{"port":80,"protocol":"TCP"}"#);
        assert_eq!(PathElement::Value(json!("a<b")).encode(), r#"v:"a\u003cb""#);
        assert_eq!(PathElement::field("a.b/c:d").encode(), "f:a.b/c:d");
    }

    #[test]
    fn decodes_what_it_encodes_and_refuses_the_rest() {
        for element in [
            PathElement::field(""),
            key(json!({"a": true, "b": "x\"y"})),
            PathElement::Value(json!(1.5)),
            PathElement::Index(-2),
        ] {
            assert_eq!(PathElement::decode(&element.encode()), Ok(element));
        }
        assert_eq!(PathElement::decode("z:1"), Err(BadElement::UnknownKind));
        assert!(matches!(PathElement::decode("f"), Err(BadElement::Malformed(_))));
        assert!(matches!(PathElement::decode("fx"), Err(BadElement::Malformed(_))));
        assert!(matches!(PathElement::decode("k:[1]"), Err(BadElement::Malformed(_))));
    }

    #[test]
    fn order_is_fields_keys_values_indexes_and_numeric_inside() {
        let sorted = [
            PathElement::field("a"),
            PathElement::field("b"),
            key(json!({"port": 80})),
            key(json!({"port": 443})),
            PathElement::Value(json!(2)),
            PathElement::Value(json!("1")),
            PathElement::Index(0),
        ];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{} < {}", pair[0], pair[1]);
        }
        assert_eq!(PathElement::Value(json!(1)), PathElement::Value(json!(1.0)));
    }
}
