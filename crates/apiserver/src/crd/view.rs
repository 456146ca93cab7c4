//! Reading a CRD's JSON: absent, null and wrongly typed values all read as empty. What is of the wrong type has been
//! refused before, when the CRD was decoded.

use serde_json::{Map, Value};
use std::sync::LazyLock;

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

pub(super) trait View {
    fn text(&self, key: &str) -> &str;
    fn flag(&self, key: &str) -> bool;
    fn list(&self, key: &str) -> &[Value];
    fn map(&self, key: &str) -> &Map<String, Value>;
    /// The value if it is there and not null.
    fn some(&self, key: &str) -> Option<&Value>;

    fn texts(&self, key: &str) -> Vec<&str> {
        self.list(key).iter().filter_map(Value::as_str).collect()
    }
}

impl View for Value {
    fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    fn list(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn map(&self, key: &str) -> &Map<String, Value> {
        self.get(key).and_then(Value::as_object).unwrap_or(&EMPTY)
    }

    fn some(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|v| !v.is_null())
    }
}
