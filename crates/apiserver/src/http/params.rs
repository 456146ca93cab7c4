//! The query string.

use super::path;
use crate::status::Status;

/// Query parameters in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
}

impl Params {
    pub(crate) fn parse(query: &str) -> Self {
        let text = |t: &str| path::decode(&t.replace('+', " ")).into_owned();
        let pair = |p: &str| {
            let (key, value) = p.split_once('=').unwrap_or((p, ""));
            (text(key), text(value))
        };
        Self { pairs: query.split('&').filter(|p| !p.is_empty()).map(pair).collect() }
    }

    /// The first value, unless it is empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Kubernetes reads booleans loosely: everything but `false`, `0` and an absent key is true.
    pub(crate) fn flag(&self, key: &str) -> bool {
        let given = self.pairs.iter().find(|(k, _)| k == key);
        given.is_some_and(|(_, v)| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    pub(crate) fn int(&self, key: &str) -> Result<Option<i64>, Status> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

#[cfg(test)]
mod tests {
    use super::Params;

    #[test]
    fn values_are_decoded_and_flags_are_loose() {
        let p = Params::parse("labelSelector=a%3Db%2Cc+in+(d)&watch&force=false&limit=x&empty=");
        assert_eq!(p.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(p.flag("watch") && !p.flag("force") && !p.flag("absent"));
        assert!(p.int("limit").is_err());
        assert_eq!(p.get("empty"), None);
    }
}
