//! Default values, and the removal of nulls that a field may not hold.
//!
//! Kubernetes does the second while it decodes and the first right after; both are one call here. A default fills a
//! field that is absent, or that is null though it may not be, and only where the parent object is there.

use super::{Additional, Schema};
use serde_json::{Map, Value};

/// Fills in the defaults of `schema`.
pub fn apply_defaults(schema: &Schema, object: &mut Value) {
    drop_nulls(Some(schema), object);
    fill(Some(schema), object);
}

/// A null in a place that takes none and has no default is as good as absent.
fn drop_nulls(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, child| {
            let sub = schema.and_then(|s| child_schema(s, key));
            if child.is_null() {
                return sub.is_none_or(|s| s.nullable || s.default.is_some());
            }
            // Without a schema nothing below can have one either.
            if sub.is_some() {
                drop_nulls(sub, child);
            }
            true
        }),
        Value::Array(items) => {
            if let Some(item_schema) = schema.and_then(|s| s.items.as_deref()) {
                items.iter_mut().for_each(|item| drop_nulls(Some(item_schema), item));
            }
        }
        _ => {}
    }
}

fn child_schema<'a>(schema: &'a Schema, key: &str) -> Option<&'a Schema> {
    schema.properties.get(key).map(|s| &**s).or(match &schema.additional {
        Additional::Of(values) => Some(values),
        _ => None,
    })
}

fn fill(schema: Option<&Schema>, value: &mut Value) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(map) => fill_object(schema, map),
        Value::Array(items) => {
            let Some(item_schema) = schema.items.as_deref() else { return };
            for item in items {
                if let (true, Some(default)) = (item.is_null() && !item_schema.nullable, &item_schema.default)
                {
                    *item = default.clone();
                }
                fill(Some(item_schema), item);
            }
        }
        _ => {}
    }
}

fn fill_object(schema: &Schema, map: &mut Map<String, Value>) {
    for (name, property) in &schema.properties {
        let Some(default) = &property.default else { continue };
        match map.get_mut(name) {
            Some(Value::Null) if !property.nullable => {
                map.insert(name.clone(), default.clone());
            }
            Some(_) => {}
            None => {
                map.insert(name.clone(), default.clone());
            }
        }
    }
    for (key, child) in map.iter_mut() {
        match (schema.properties.get(key), &schema.additional) {
            (Some(property), _) => fill(Some(property), child),
            (None, Additional::Of(values)) => {
                if let (true, Some(default)) = (child.is_null() && !values.nullable, &values.default) {
                    *child = default.clone();
                }
                fill(Some(values), child);
            }
            _ => {}
        }
    }
}
