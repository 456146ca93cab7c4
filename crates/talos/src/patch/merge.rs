//! Strategic merge: what a patch says wins, what it does not say stays.
//!
//! Talos' rules: maps are merged, lists are appended to, scalars replace, but an empty string or a zero says nothing (a
//! `false` does). A few lists have keys, a few fields are replaced whole; the field table knows which.

use super::PatchError;
use super::delete::{self, Deletion};
use crate::config::{Document, MAIN, MachineConfig, read_document};
use crate::contract::Contract;
use crate::fields::{Field, Merge, Type, fields};
use crate::yaml::Node;
use serde_json::Value;

/// Applies one document of a patch.
pub(super) fn apply(
    patch: &str,
    node: &Node,
    config: &mut MachineConfig,
    contract: Contract,
) -> Result<(), PatchError> {
    let mut node = node.clone();
    let mut deletions = Vec::new();
    // Which document it is, before anything is taken out of it.
    let (kind, name) = identify(patch, &node, contract)?;
    let id = Document { kind, value: serde_json::json!({"name": name}) }.id();
    let failed = |path: String, why: String| PatchError::Merge {
        patch: patch.to_owned(),
        document: id.clone(),
        path,
        why,
    };
    let nothing_left = delete::take(&mut node, &mut deletions).map_err(|why| failed(String::new(), why))?;
    let at = config.documents.iter().position(|document| document.id() == id);
    for deletion in &deletions {
        let Some(at) = at else { return Err(failed(deletion.path(), "there is no such document".into())) };
        remove(config, at, deletion).map_err(|why| failed(deletion.path(), why))?;
        if deletion.path.is_empty() {
            return Ok(());
        }
    }
    if nothing_left || (!deletions.is_empty() && is_bare(&node)) {
        return Ok(());
    }
    let (document, problems) = read_document(&node, kind, Some(contract));
    if !problems.is_empty() {
        return Err(PatchError::Problems { patch: patch.to_owned(), problems });
    }
    match at {
        Some(at) => {
            let left = &mut config.documents[at];
            let ty = left.ty();
            merge(&mut left.value, document.value, &ty, "").map_err(|(path, why)| failed(path, why))
        }
        None => {
            let at = if kind == MAIN { 0 } else { config.documents.len() };
            config.documents.insert(at, document);
            Ok(())
        }
    }
}

fn identify(patch: &str, node: &Node, contract: Contract) -> Result<(&'static str, String), PatchError> {
    let kind = crate::config::kind_of(node, Some(contract)).map_err(|(why, at)| PatchError::NotYaml {
        patch: patch.to_owned(),
        line: at.line,
        why,
    })?;
    let name = if kind == MAIN { "" } else { node.get("name").and_then(Node::text).unwrap_or_default() };
    Ok((kind, name.to_owned()))
}

fn remove(config: &mut MachineConfig, at: usize, deletion: &Deletion) -> Result<(), String> {
    let document = &mut config.documents[at];
    if !deletion.path.is_empty() {
        let ty = document.ty();
        return delete::apply(&mut document.value, &ty, deletion);
    }
    if document.kind == MAIN {
        return Err("the v1alpha1 document cannot be deleted".into());
    }
    config.documents.remove(at);
    Ok(())
}

/// Whether a document says no more than which one it is.
fn is_bare(node: &Node) -> bool {
    match &node.data {
        crate::yaml::Data::Map(entries) => entries
            .iter()
            .all(|(_, key, _)| matches!(key.as_str(), "apiVersion" | "kind" | "name" | "version")),
        _ => false,
    }
}

/// A path, and why it cannot be merged.
type Conflict = (String, String);

fn merge(left: &mut Value, right: Value, ty: &Type, path: &str) -> Result<(), Conflict> {
    let Value::Object(entries) = right else { return Ok(()) };
    if !left.is_object() {
        *left = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = left else { return Ok(()) };
    for (key, value) in entries {
        let here = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match map.get_mut(&key) {
            Some(old) if !old.is_null() => match ty {
                Type::Struct(name) => match fields(name).iter().find(|field| field.name == key) {
                    Some(field) => merge_field(old, value, field, &here)?,
                    // apiVersion and kind, which are the same on both sides.
                    None => *old = value,
                },
                Type::Map(inner) => merge_value(old, value, inner, false, &here)?,
                _ => merge_value(old, value, &Type::Free, false, &here)?,
            },
            _ if value.is_null() => {}
            _ => {
                map.insert(key, value);
            }
        }
    }
    Ok(())
}

fn merge_field(left: &mut Value, right: Value, field: &Field, path: &str) -> Result<(), Conflict> {
    match (field.merge, right) {
        (_, Value::Null) => Ok(()),
        (Merge::Replace, right) => {
            *left = right;
            Ok(())
        }
        (Merge::By(keys), Value::Array(items)) => merge_keyed(left, items, &field.ty, keys, false, path),
        (Merge::ReplaceBy(keys), Value::Array(items)) => {
            merge_keyed(left, items, &field.ty, keys, true, path)
        }
        (_, right) => merge_value(left, right, &field.ty, field.zero_counts, path),
    }
}

fn merge_value(
    left: &mut Value,
    right: Value,
    ty: &Type,
    zero_counts: bool,
    path: &str,
) -> Result<(), Conflict> {
    match (&mut *left, right) {
        (_, Value::Null) => Ok(()),
        (Value::Object(_), right @ Value::Object(_)) => merge(left, right, ty, path),
        // A flag's value is replaced whole, also when it is a list.
        (_, right) if *ty == Type::Arg => {
            *left = right;
            Ok(())
        }
        (Value::Array(old), Value::Array(mut new)) => {
            old.append(&mut new);
            Ok(())
        }
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => {
            Err((path.to_owned(), "the patch has another type there".into()))
        }
        (_, right) => {
            let zero = match &right {
                Value::String(text) => text.is_empty(),
                Value::Number(number) => number.as_f64() == Some(0.0),
                _ => false,
            };
            if !zero || zero_counts {
                *left = right;
            }
            Ok(())
        }
    }
}

/// Items that are the same by a key are merged (or replaced), others appended.
fn merge_keyed(
    left: &mut Value,
    items: Vec<Value>,
    ty: &Type,
    keys: &str,
    replace: bool,
    path: &str,
) -> Result<(), Conflict> {
    let (Value::Array(old), Type::List(inner)) = (left, ty) else { return Ok(()) };
    for item in items {
        // The first key that the new item has decides.
        let key = keys.split('|').find(|key| item.get(key).is_some_and(|value| !value.is_null()));
        let same = key.and_then(|key| old.iter().position(|other| other.get(key) == item.get(key)));
        match same {
            Some(index) if replace => old[index] = item,
            Some(index) => merge(&mut old[index], item, inner, &format!("{path}[{index}]"))?,
            None => old.push(item),
        }
    }
    Ok(())
}
