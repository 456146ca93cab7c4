//! Small readers for requests that the model has already checked, and what describing calls have in common.

use super::request::{Refusal, Service};
use super::state::Tags;
use serde_json::{Value, json};

pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

pub(super) fn texts(value: &Value, key: &str) -> Vec<String> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(ToString::to_string).collect()
}

pub(super) fn flag(value: &Value, key: &str) -> Option<bool> {
    value.get(key)?.as_bool()
}

pub(super) fn number<T: TryFrom<i64>>(value: &Value, key: &str) -> Option<T> {
    T::try_from(value.get(key)?.as_i64()?).ok()
}

pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// # Errors
/// Names what a request says beside these: what the real service can and this one can't is refused by name, not ignored.
pub(super) fn only(service: Service, input: &Value, simulated: &[&str]) -> Result<(), Refusal> {
    let said = input.as_object().into_iter().flatten().map(|(key, _)| key);
    match said.into_iter().find(|key| !simulated.contains(&key.as_str())) {
        Some(unknown) => Err(service.not_simulated(unknown)),
        None => Ok(()),
    }
}

/// A list of keys and values as tags.
pub(super) fn tags(entries: &[Value]) -> Tags {
    let pair = |entry: &Value| {
        Some((text(entry, "Key")?.to_string(), text(entry, "Value").unwrap_or_default().to_string()))
    };
    entries.iter().filter_map(pair).collect()
}

pub(super) fn show_tags(tags: &Tags) -> Value {
    tags.iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect()
}

/// Seconds since 1970, as the API writes times.
pub(super) fn time(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or_default();
    jiff::Timestamp::from_millisecond(millis).map_or_else(
        |_| "1970-01-01T00:00:00.000Z".to_string(),
        |t| t.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string(),
    )
}

/// The filters of a describing call of EC2.
#[derive(Debug)]
pub(super) struct Filters(Vec<(String, Vec<String>)>);

impl Filters {
    /// # Errors
    /// Names a filter that is none of these; those about tags every resource has.
    pub(super) fn read(input: &Value, known: &[&str]) -> Result<Self, Refusal> {
        let mut filters = Vec::new();
        for filter in list(input, "Filters") {
            let name = text(filter, "Name").unwrap_or_default().to_string();
            let is_known = known.contains(&name.as_str()) || name == "tag-key" || name.starts_with("tag:");
            if !is_known {
                return Err(Refusal::new("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
            filters.push((name, texts(filter, "Values")));
        }
        Ok(Self(filters))
    }

    /// Whether a resource fits all of them. `of` gives its values for the filters that are not about tags.
    pub(super) fn fit(&self, tags: &Tags, of: impl Fn(&str) -> Vec<String>) -> bool {
        self.0.iter().all(|(name, patterns)| {
            let values = match name.strip_prefix("tag:") {
                Some(key) => tags.get(key).cloned().into_iter().collect(),
                None if name == "tag-key" => tags.keys().cloned().collect(),
                None => of(name),
            };
            values.iter().any(|value| patterns.iter().any(|pattern| fits(pattern, value)))
        })
    }
}

/// `*` stands for anything, `?` for one character.
pub(super) fn fits(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            value.char_indices().map(|(at, _)| at).chain([value.len()]).any(|at| fits(rest, &value[at..]))
        }
        Some(first) => {
            let mut letters = value.chars();
            letters.next().is_some_and(|letter| first == '?' || first == letter)
                && fits(&pattern[first.len_utf8()..], letters.as_str())
        }
    }
}

/// One page of a list, and where the next one begins. The token is a number.
pub(super) fn page(
    all: Vec<Value>,
    size: Option<usize>,
    token: Option<&str>,
) -> (Vec<Value>, Option<String>) {
    let begin: usize = token.and_then(|token| token.parse().ok()).unwrap_or_default();
    let size = size.unwrap_or(1000).max(1);
    let next = (all.len() > begin + size).then(|| (begin + size).to_string());
    (all.into_iter().skip(begin).take(size).collect(), next)
}

/// `{key: items, NextToken: ...}` of EC2.
pub(super) fn paged(key: &str, all: Vec<Value>, input: &Value) -> Value {
    let (items, next) = page(all, number(input, "MaxResults"), text(input, "NextToken"));
    let mut told = json!({ key: items });
    if let Some(next) = next {
        told["NextToken"] = next.into();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_pages() {
        assert!(fits("talos-v1.9.*-amd64", "talos-v1.9.2-eu-amd64"));
        assert!(fits("*", "") && fits("a?c", "abc") && fits("a*", "a"));
        assert!(!fits("a", "ab") && !fits("b*", "ab") && !fits("?", ""));
        let all: Vec<Value> = (0..5).map(Value::from).collect();
        let (first, next) = page(all.clone(), Some(3), None);
        assert_eq!((first.len(), next.as_deref()), (3, Some("3")));
        let (rest, next) = page(all, Some(3), Some("3"));
        assert_eq!((rest, next), (vec![json!(3), json!(4)], None));
        assert_eq!(time(1_440_938_160_000), "2015-08-30T12:36:00.000Z");
    }
}
