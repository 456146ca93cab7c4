//! `$patch: delete`: takes out a field, an item of a list, or a whole document.

use crate::fields::{Type, fields};
use crate::yaml::{Data, Node, Scalar};
use serde_json::Value;

/// One thing to delete: where, and for an item of a list the key and value by which it is known.
#[derive(Debug, PartialEq)]
pub(super) struct Deletion {
    pub(super) path: Vec<String>,
    item: Option<(String, String)>,
}

impl Deletion {
    pub(super) fn path(&self) -> String {
        self.path.join(".")
    }
}

/// Takes all deletions out of a tree. What is left is what is to be merged; `true` when nothing is.
pub(super) fn take(node: &mut Node, found: &mut Vec<Deletion>) -> Result<bool, String> {
    let mut path = Vec::new();
    walk(node, &mut path, false, false, found)
}

/// Whether the node itself is to go from the tree.
fn walk(
    node: &mut Node,
    path: &mut Vec<String>,
    in_list: bool,
    below_list: bool,
    found: &mut Vec<Deletion>,
) -> Result<bool, String> {
    match &mut node.data {
        Data::Scalar(_) => Ok(false),
        Data::Map(entries) => {
            if entries.iter().any(|(_, key, value)| key == "$patch" && value.text() == Some("delete")) {
                if below_list && !in_list {
                    return Err(format!("cannot delete an inner key in {}", path.join(".")));
                }
                let item = if in_list { Some(selector(entries, path)?) } else { None };
                found.push(Deletion { path: path.clone(), item });
                return Ok(true);
            }
            let before = entries.len();
            let mut failed = None;
            entries.retain_mut(|(_, key, value)| {
                path.push(key.clone());
                let gone = walk(value, path, false, below_list || in_list, found).unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                });
                path.pop();
                !gone
            });
            failed.map_or(Ok(entries.is_empty() && before > 0), Err)
        }
        Data::List(items) => {
            let before = items.len();
            let mut failed = None;
            let mut index = 0;
            items.retain_mut(|item| {
                path.push(format!("[{index}]"));
                index += 1;
                let gone = walk(item, path, true, below_list, found).unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                });
                path.pop();
                !gone
            });
            failed.map_or(Ok(items.is_empty() && before > 0), Err)
        }
    }
}

/// An item is known by its first key that is not `$patch`.
fn selector(
    entries: &[(crate::yaml::Mark, String, Node)],
    path: &[String],
) -> Result<(String, String), String> {
    entries
        .iter()
        .find(|(_, key, _)| key != "$patch")
        .and_then(|(_, key, value)| match &value.data {
            Data::Scalar(Scalar { text, .. }) => Some((key.clone(), text.clone())),
            _ => None,
        })
        .ok_or_else(|| format!("{}: an item to delete needs a key by which it is known", path.join(".")))
}

/// Deletes from a document.
pub(super) fn apply(value: &mut Value, ty: &Type, deletion: &Deletion) -> Result<(), String> {
    remove(value, ty, &deletion.path, deletion.item.as_ref())
}

fn remove(
    value: &mut Value,
    ty: &Type,
    path: &[String],
    item: Option<&(String, String)>,
) -> Result<(), String> {
    let missing = || Err("there is nothing to delete".to_owned());
    let Some((key, rest)) = path.split_first() else { return missing() };
    match value {
        Value::Object(map) => {
            let (inner, is_field) = match ty {
                Type::Struct(name) => match fields(name).iter().find(|field| field.name == key) {
                    Some(field) => (field.ty.clone(), true),
                    None => return Err(format!("unknown key {:?}", crate::client::shown_key(key))),
                },
                Type::Map(inner) => ((**inner).clone(), false),
                _ => (Type::Free, false),
            };
            if rest.is_empty() {
                // A field that is not set is deleted already; a missing key of a free map is a mistake.
                return match map.remove(key) {
                    None if !is_field => missing(),
                    _ => Ok(()),
                };
            }
            match map.get_mut(key) {
                Some(value) => remove(value, &inner, rest, item),
                None => missing(),
            }
        }
        Value::Array(items) => {
            let Some((name, wanted)) = item.filter(|_| rest.is_empty()) else { return missing() };
            let same = |item: &Value| match item.get(name) {
                Some(Value::String(text)) => text == wanted,
                Some(Value::Null) | None => false,
                Some(Value::Bool(flag)) => wanted.parse() == Ok(*flag),
                Some(other) => other.as_i64().is_some_and(|number| wanted.parse() == Ok(number)),
            };
            match items.iter().position(same) {
                Some(index) => {
                    items.remove(index);
                    Ok(())
                }
                None => missing(),
            }
        }
        _ => missing(),
    }
}
