//! Lists: filters and pages.

use super::request::Refusal;
use serde_json::Value;
use std::collections::BTreeMap;

/// Comparisons that have to hold, all of them.
#[derive(Debug, PartialEq)]
pub(super) struct Filter(Vec<Test>);

#[derive(Debug, PartialEq)]
struct Test {
    field: Vec<String>,
    wanted: String,
    /// How the two are compared.
    how: How,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum How {
    Equal,
    Unequal,
    /// `:`: it is there (`*`), or begins or ends as the stars say.
    Has,
    /// `eq`: the whole text fits; of regular expressions only `.*` is known here.
    Matches,
}

impl Filter {
    /// `labels.a=b`, `(name = "x") (zone:*)`, `a=b AND c!=d`, `name eq web.*`.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let bad = || Refusal::field("filter", text, "Invalid list filter expression.");
        let mut tests = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            if part.split_whitespace().any(|word| word == "OR") {
                return Err(Refusal::not_simulated("A filter with OR"));
            }
            let operators =
                [("!=", How::Unequal), (" eq ", How::Matches), ("=", How::Equal), (":", How::Has)];
            let found =
                operators.iter().filter_map(|(sign, how)| part.find(sign).map(|at| (at, *sign, *how)));
            let (at, sign, how) = found.min_by_key(|(at, ..)| *at).ok_or_else(bad)?;
            let field: Vec<String> =
                part[..at].trim().split('.').map(|name| name.trim_matches('"').to_string()).collect();
            let wanted = part[at + sign.len()..].trim().trim_matches(|c| c == '"' || c == '\'').to_string();
            if field.iter().any(String::is_empty) || wanted.is_empty() {
                return Err(bad());
            }
            tests.push(Test { field, wanted, how });
        }
        Ok(Self(tests))
    }

    pub(super) fn fits(&self, resource: &Value) -> bool {
        self.0.iter().all(|test| {
            let value = test.field.iter().try_fold(resource, |value, name| value.get(name));
            let text = match value {
                Some(Value::String(text)) => Some(text.clone()),
                Some(Value::Null) | None => None,
                Some(other) => Some(other.to_string()),
            };
            match (test.how, text) {
                (How::Equal, Some(text)) => text == test.wanted,
                (How::Unequal, text) => text.as_ref() != Some(&test.wanted),
                (How::Has, Some(text)) => crate::gate::Pattern::from(test.wanted.as_str()).fits(&text),
                (How::Matches, Some(text)) => {
                    crate::gate::Pattern::from(test.wanted.replace(".*", "*").as_str()).fits(&text)
                }
                (_, None) => false,
            }
        })
    }
}

/// The parts of an expression: in brackets, or between words AND.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '(' | ')' if !quoted => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let outside = parts.iter().flat_map(|part| part.split(" AND "));
    outside
        .map(|part| part.trim().trim_start_matches("AND ").trim_end_matches(" AND").to_string())
        .filter(|part| part != "AND")
        .collect()
}

/// One page of what is listed, and where the next begins.
pub(super) fn page(
    all: Vec<Value>,
    query: &BTreeMap<String, String>,
) -> Result<(Vec<Value>, Option<String>), Refusal> {
    let most = query.get("maxResults").and_then(|text| text.parse().ok()).unwrap_or(500_usize);
    if most > 500 {
        return Err(Refusal::field("maxResults", &most.to_string(), "Must be less than or equal to 500"));
    }
    let from = match query.get("pageToken") {
        Some(token) => token
            .strip_prefix("page-")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| Refusal::field("pageToken", token, "Invalid page token."))?,
        None => 0_usize,
    };
    let most = if most == 0 { 500 } else { most };
    let next = (all.len() > from + most).then(|| format!("page-{}", from + most));
    Ok((all.into_iter().skip(from).take(most).collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn filters_compare_fields_and_pages_end() {
        let resource = json!({"name": "web-0", "labels": {"cluster": "a", "role": "cp"}, "size": 3, "description": "owner=a/b"});
        let fits = |text: &str| Filter::parse(text).unwrap().fits(&resource);
        assert!(fits("labels.cluster=a") && !fits("labels.cluster=b") && !fits("labels.other=a"));
        assert!(
            fits("(labels.cluster = \"a\") (labels.role=cp)")
                && !fits("(labels.cluster=a) AND (labels.role=w)")
        );
        assert!(
            fits("labels.cluster=a AND labels.role=cp") && fits("labels.role:*") && !fits("labels.zone:*")
        );
        assert!(fits("name eq web-.*") && !fits("name eq db.*") && fits("size=3") && fits("name!=x"));
        assert!(fits("description=\"owner=a/b\"") && fits("description:owner=a*"));
        assert!(Filter::parse("nonsense").is_err() && Filter::parse("a=b OR c=d").is_err());
        let all: Vec<Value> = (0..5).map(|n| json!(n)).collect();
        let query = |most: &str, token: Option<String>| {
            let mut query = BTreeMap::from([("maxResults".to_string(), most.to_string())]);
            query.extend(token.map(|token| ("pageToken".to_string(), token)));
            query
        };
        let (first, next) = page(all.clone(), &query("3", None)).unwrap();
        assert_eq!(first.len(), 3);
        let (second, end) = page(all.clone(), &query("3", next)).unwrap();
        assert_eq!((second, end), (vec![json!(3), json!(4)], None));
        assert!(page(all, &query("501", None)).is_err());
    }
}
