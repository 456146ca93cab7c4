//! YAML text in the shape that Talos' own encoder gives it: four spaces, lists indented below their key, strings in
//! quotes only where they would be read as something else.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The order of a map's keys. Maps have none of their own here, and a struct's fields have the one of their table.
pub(crate) trait Order {
    /// The keys of the map at this place, in the order to write them. By default: as they come, which is sorted.
    fn keys<'a>(&self, map: &'a serde_json::Map<String, Value>) -> Vec<&'a str> {
        map.keys().map(String::as_str).collect()
    }

    /// The order below a key of a map at this place.
    fn below(&self, key: &str) -> Self;

    /// The order of the items of a list at this place.
    fn item(&self) -> Self;

    /// The text of a number at this place, when it is not the usual one.
    fn number(&self, _number: &serde_json::Number) -> Option<String> {
        None
    }
}

/// Sorted keys.
impl Order for () {
    fn below(&self, _key: &str) {}
    fn item(&self) {}
}

const STEP: usize = 4;

/// One document, ending with a newline.
pub(crate) fn write(value: &Value, order: &impl Order) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => entries(&mut out, map, order, 0, false),
        Value::Array(list) if !list.is_empty() => items(&mut out, list, order, 0),
        scalar => {
            inline(&mut out, scalar, order, 0);
            out.push('\n');
        }
    }
    out
}

/// The entries of a map. `continued`: the first one stands behind a dash that is written already.
fn entries(
    out: &mut String,
    map: &serde_json::Map<String, Value>,
    order: &impl Order,
    indent: usize,
    continued: bool,
) {
    for (index, key) in order.keys(map).into_iter().enumerate() {
        let Some(value) = map.get(key) else { continue };
        if index > 0 || !continued {
            pad(out, indent);
        }
        out.push_str(&quoted(key));
        out.push(':');
        below(out, value, &order.below(key), indent);
    }
}

fn items(out: &mut String, list: &[Value], order: &impl Order, indent: usize) {
    let order = order.item();
    for item in list {
        pad(out, indent);
        out.push('-');
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                entries(out, map, &order, indent + 2, true);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push(' ');
                nested(out, inner, &order, indent + 2);
            }
            scalar => {
                out.push(' ');
                inline(out, scalar, &order, indent);
                out.push('\n');
            }
        }
    }
}

/// A list as the item of a list: its first dash follows the outer one.
fn nested(out: &mut String, list: &[Value], order: &impl Order, indent: usize) {
    let mut text = String::new();
    items(&mut text, list, order, indent);
    out.push_str(text.trim_start_matches(' '));
}

/// What stands after `key:`.
fn below(out: &mut String, value: &Value, order: &impl Order, indent: usize) {
    // The encoder goes to the next multiple of its step, also from inside a list item.
    let deeper = (indent + STEP) / STEP * STEP;
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            entries(out, map, order, deeper, false);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            items(out, list, order, deeper);
        }
        scalar => {
            out.push(' ');
            inline(out, scalar, order, indent);
            out.push('\n');
        }
    }
}

fn inline(out: &mut String, value: &Value, order: &impl Order, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match order.number(number) {
            Some(text) => out.push_str(&text),
            None => {
                let _ = write!(out, "{number}");
            }
        },
        Value::String(text) if is_block(text) => block(out, text, (indent + STEP) / STEP * STEP),
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Text of several lines is easier on the eye as a block, where a block can say exactly the same.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n'])
        && !text.chars().any(|c| (c.is_control() && c != '\n') || is_odd(c))
        && text.lines().all(|line| !line.ends_with(' '))
}

fn block(out: &mut String, text: &str, indent: usize) {
    let kept = text.trim_end_matches('\n');
    let ends = text.len() - kept.len();
    out.push_str(match ends {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    for line in kept.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
    }
    for _ in 1..ends {
        out.push('\n');
    }
}

/// A string on one line: plain, or in the quotes that it needs.
fn quoted(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let printable = !text.chars().any(|c| c.is_control() || is_odd(c));
    // A word that is a number, a boolean or nothing gets double quotes, text with signs in it single ones.
    if printable && !text.is_empty() && !means_something_else(text) {
        return Cow::Owned(format!("'{}'", text.replace('\'', "''")));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || is_odd(c) => {
                let code = u32::from(c);
                let _ = if code < 0x100 {
                    write!(out, "\\x{code:02X}")
                } else if code < 0x1_0000 {
                    write!(out, "\\u{code:04X}")
                } else {
                    write!(out, "\\U{code:08X}")
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    Cow::Owned(out)
}

/// Line separators and marks that YAML treats as breaks, or that a reader may not see.
fn is_odd(c: char) -> bool {
    matches!(c, '\u{85}' | '\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn is_plain(text: &str) -> bool {
    if text.is_empty() || means_something_else(text) {
        return false;
    }
    let first = text.chars().next().unwrap_or(' ');
    let second = text.chars().nth(1);
    let bad_first = match first {
        '-' | '?' | ':' => second.is_none_or(|c| c == ' '),
        c => "!&*|>'\"%@`#,[]{} ".contains(c),
    };
    !bad_first
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.starts_with("<<")
        && text.chars().all(|c| !c.is_control() && !is_odd(c))
}

/// Whether a parser of YAML 1.1 or 1.2 would take the bare word for something other than this string.
fn means_something_else(text: &str) -> bool {
    const WORDS: [&str; 14] =
        ["null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "-.inf", "+.inf"];
    if WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return true;
    }
    let bytes = text.as_bytes();
    let numeric = bytes.first().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.'));
    if !numeric {
        return false;
    }
    let bare = text.replace('_', "");
    let unsigned = bare.trim_start_matches(['-', '+']);
    let radix = |prefix: &str, radix: u32| {
        unsigned
            .to_ascii_lowercase()
            .strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)))
    };
    // 12:30:45 is a number in base 60 to some, and 2001-01-01 a date.
    let sixty =
        unsigned.contains(':') && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '.'));
    let date = bytes.len() >= 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes.get(5).is_some_and(u8::is_ascii_digit);
    bare.parse::<f64>().is_ok() || radix("0x", 16) || radix("0o", 8) || radix("0b", 2) || sixty || date
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use super::super::read::parse;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_shape_is_that_of_talos() {
        let value = json!({
            "machine": {
                "certSANs": [],
                "install": {"disk": "/dev/sda", "wipe": false},
                "kubelet": {"extraMounts": [{"destination": "/var/mnt/x", "options": ["bind", "rshared"], "type": "bind"}]},
                "labels": {"a/b": "", "n": "1", "off": "off", "colon": "a: b"},
                "network": {},
                "pods": [["a", ["b"]], {"text": "one\ntwo\n", "last": "x\ny"}],
            },
        });
        let wanted = "\
machine:
    certSANs: []
    install:
        disk: /dev/sda
        wipe: false
    kubelet:
        extraMounts:
            - destination: /var/mnt/x
              options:
                - bind
                - rshared
              type: bind
    labels:
        a/b: \"\"
        colon: 'a: b'
        \"n\": \"1\"
        \"off\": \"off\"
    network: {}
    pods:
        - - a
          - - b
        - last: |-
            x
            y
          text: |
            one
            two
";
        assert_eq!(write(&value, &()), wanted);
        assert_eq!(parse(wanted)[0].as_ref().unwrap().to_value(), value);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\n\t]{0,12}".prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            "(0x|0o|0b|-|\\+|\\.)?[0-9_.:e-]{1,8}".prop_map(Value::from),
            prop::sample::select(vec![
                "on",
                "No",
                "~",
                "null",
                "- a",
                "? b",
                "#",
                "a #b",
                "'",
                "\"",
                "...",
                "---",
                "<<",
                "\u{2028}",
                "\u{85}x\n"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,8}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in value()) {
            let text = write(&value, &());
            let read = parse(&text);
            if value.is_null() {
                prop_assert!(read.is_empty());
            } else {
                prop_assert_eq!(read.len(), 1, "{}", text);
                let read = read[0].as_ref().map_err(|e| TestCaseError::fail(format!("{e:?}\n{text}")))?;
                prop_assert_eq!(read.to_value(), value, "{}", text);
            }
        }
    }
}
