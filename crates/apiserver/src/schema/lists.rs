//! Sets and list maps: nothing may be in them twice.

use super::numbers::shown;
use super::path::Path;
use super::{ListType, Schema};
use crate::status::{FieldError, FieldProblem};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Below this many items a look at all earlier ones is faster than hashing.
const FEW: usize = 16;

/// Checks one list by its list type.
pub(crate) fn check(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match schema.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            for index in repeated(items.len(), |a, b| items[a] == items[b], |i| items[i].to_string()) {
                errors.push(duplicate(&path.index(index), shown(&items[index])));
            }
        }
        ListType::Map => check_map(schema, items, path, errors),
    }
}

fn check_map(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        errors.push(FieldError::invalid(
            path.index(index).bracketed(),
            shown(&items[index]),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys = &schema.list_map_keys;
    let same = |a: usize, b: usize| keys.iter().all(|key| items[a].get(key) == items[b].get(key));
    for index in repeated(items.len(), same, |i| identity(keys, &items[i]).to_string()) {
        errors.push(duplicate(&path.index(index), shown(&identity(keys, &items[index]))));
    }
}

/// The keys of an item, as far as it has them.
fn identity(keys: &[String], item: &Value) -> Value {
    let mut out = Map::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            out.insert(key.clone(), value.clone());
        }
    }
    Value::Object(out)
}

fn duplicate(path: &Path<'_>, value: Value) -> FieldError {
    FieldError::new(FieldProblem::Duplicate, path.bracketed(), value, "")
}

/// The indexes of second occurrences. Third and later ones are not reported again.
fn repeated(count: usize, same: impl Fn(usize, usize) -> bool, text: impl Fn(usize) -> String) -> Vec<usize> {
    if count <= FEW {
        return (1..count).filter(|&i| (0..i).filter(|&j| same(i, j)).count() == 1).collect();
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(count);
    let mut out = Vec::new();
    for index in 0..count {
        let times = seen.entry(text(index)).or_default();
        *times += 1;
        if *times == 2 {
            out.push(index);
        }
    }
    out
}
