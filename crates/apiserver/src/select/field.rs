//! Field selectors: `metadata.name=a,status.phase!=Running`.

use crate::store::Object;
use serde_json::Value;

/// All terms must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let (field, value, equal) = operator(&part)
                .ok_or_else(|| format!("invalid selector: '{part}'; can't understand '{part}'"))?;
            terms.push(Term { field: field.to_string(), value: unescape(value)?, equal });
        }
        Ok(Self { terms })
    }

    /// The first field that this kind can't be selected by.
    pub(crate) fn unknown(&self, known: impl Fn(&str) -> bool) -> Option<&str> {
        self.terms.iter().find(|t| !known(&t.field)).map(|t| t.field.as_str())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The one object that can match, when the selector names one.
    pub(crate) fn name(&self) -> Option<&str> {
        let term = self.terms.iter().find(|t| t.field == "metadata.name" && t.equal)?;
        Some(&term.value)
    }

    /// `lookup` gives the text of the fields other than name and namespace.
    pub(crate) fn matches(&self, object: &Object, lookup: &dyn Fn(&Value, &str) -> String) -> bool {
        let mut parsed: Option<Value> = None;
        self.terms.iter().all(|term| {
            let same = match term.field.as_str() {
                "metadata.name" => *object.key.name == *term.value,
                "metadata.namespace" => *object.key.namespace == *term.value,
                other => lookup(parsed.get_or_insert_with(|| object.value()), other) == term.value,
            };
            same == term.equal
        })
    }
}

/// Splits at commas that no backslash protects.
fn split(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                if let Some(last) = out.last_mut() {
                    last.push(c);
                    last.extend(chars.next());
                }
            }
            ',' => out.push(String::new()),
            _ => {
                if let Some(last) = out.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    out
}

fn operator(part: &str) -> Option<(&str, &str, bool)> {
    let at = part.find(['=', '!'])?;
    let (field, rest) = part.split_at(at);
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some(value) = rest.strip_prefix(sign) {
            return Some((field, value, equal));
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                other => {
                    let seen: String = other.into_iter().collect();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{seen}"));
                }
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {c:?}")),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Draft, Key};
    use serde_json::json;

    #[test]
    fn terms_are_tested_on_names_and_on_fields() {
        let mut value = json!({"metadata": {"name": "x"}, "status": {"phase": "A,b"}});
        let object = Draft::new(&mut value).unwrap().seal(Key::new("ns", "x"), 1);
        let lookup = |v: &Value, field: &str| match field {
            "status.phase" => v["status"]["phase"].as_str().unwrap_or_default().to_string(),
            _ => String::new(),
        };
        for (text, expected) in [
            ("metadata.name=x", true),
            ("metadata.name!=x", false),
            ("metadata.namespace==ns", true),
            ("status.phase=A\\,b", true),
            ("status.phase=,metadata.name=x", false),
            ("", true),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&object, &lookup), expected, "{text}");
        }
        assert!(FieldSelector::parse("nonsense").is_err());
        assert!(FieldSelector::parse("a=b\\x").is_err());
        assert_eq!(
            FieldSelector::parse("spec.x=1").unwrap().unknown(|f| f == "metadata.name"),
            Some("spec.x")
        );
    }
}
