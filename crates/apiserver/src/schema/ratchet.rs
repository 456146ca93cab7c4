//! Ratcheting: an update is not refused for what it did not change.
//!
//! A value is compared with the one it replaces: object fields and map values by key, items of a list map by their
//! keys. Items of other lists have no counterpart, so such a list counts as one value.

use super::{Additional, ListType, Schema};
use serde_json::Value;

/// The value that is being replaced, with the schema that tells how its children are matched.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) value: &'a Value,
}

impl<'a> Old<'a> {
    /// The counterpart of the field or map value `key`.
    pub(crate) fn key(self, key: &str) -> Option<Old<'a>> {
        let value = self.value.as_object()?.get(key)?;
        let schema = match (self.schema.properties.get(key), &self.schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Of(values)) => values,
            _ => return None,
        };
        Some(Old { schema, value })
    }

    /// The counterpart of `item`, one of the new list.
    pub(crate) fn item(self, item: &Value) -> Option<Old<'a>> {
        let schema = self.schema.items.as_deref()?;
        if self.schema.list_type != ListType::Map {
            return None;
        }
        let keys = &self.schema.list_map_keys;
        let value = self.value.as_array()?.iter().find(|old| same_keys(schema, keys, old, item))?;
        (!value.is_null()).then_some(Old { schema, value })
    }

    /// Whether `new` says the same. Order does not count in a list map.
    pub(crate) fn equals(self, new: &Value) -> bool {
        match (self.value, new) {
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len()
                    && new.iter().all(|(key, child)| self.key(key).is_some_and(|old| old.equals(child)))
            }
            (Value::Array(old), Value::Array(items)) => {
                if self.schema.list_type != ListType::Map {
                    return old == items;
                }
                old.len() == items.len()
                    && items.iter().all(|item| self.item(item).is_some_and(|old| old.equals(item)))
            }
            (old, new) => old == new,
        }
    }
}

/// Whether two items of a list map are the same one. A key that is absent counts by its default.
pub(crate) fn same_keys(items: &Schema, keys: &[String], a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    keys.iter().all(|key| {
        let default = items.properties.get(key).and_then(|s| s.default.as_ref());
        a.get(key).or(default) == b.get(key).or(default)
    })
}
