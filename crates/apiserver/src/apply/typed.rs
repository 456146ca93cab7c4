//! Walks over one value under its schema: which paths it holds, whether its types fit, taking paths out of it.

use super::element::PathElement;
use super::fieldset::FieldSet;
use super::shape::{ListTy, Shape, Ty};
use crate::schema::{Schema, Type};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The paths that a value holds.
pub fn field_set(ty: Ty<'_>, value: &Value) -> FieldSet {
    paths_of(ty, value).1
}

/// Whether the value itself is a leaf, and the paths below it.
fn paths_of(ty: Ty<'_>, value: &Value) -> (bool, FieldSet) {
    let mut out = FieldSet::new();
    match (ty.shape(value), value) {
        (Shape::Leaf, _) => return (true, out),
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, child) in fields {
                let (child_ty, named) = map.field(name).unwrap_or((Ty::Deduced, false));
                let (leaf, below) = paths_of(child_ty, child);
                // Entries of a map are owned for being there; a named field only where something is in it.
                let owned = leaf || !named || child.is_null() || is_empty_object(child);
                out.push(PathElement::field(name), owned, below);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (element, found) in index(&list, items) {
                // What is there twice can only be owned as a whole.
                let below = match found.as_slice() {
                    [one] => paths_of(list.items, one).1,
                    _ => FieldSet::new(),
                };
                out.push(element, true, below);
            }
        }
        _ => {}
    }
    (false, out)
}

fn is_empty_object(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

/// The items of a list by what tells them apart. An item that can't be told apart is left out.
pub(super) fn index<'v>(list: &ListTy<'_>, items: &'v [Value]) -> BTreeMap<PathElement, Vec<&'v Value>> {
    let mut out: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = list.element(item) {
            out.entry(element).or_default().push(item);
        }
    }
    out
}

/// Makes each named field under which the set has paths a member of it: for removal, an emptied struct goes too.
pub(super) fn with_named_fields(ty: Ty<'_>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::new();
    for node in set.nodes() {
        let (child, named) = ty.step(&node.element);
        let below = with_named_fields(child, &node.below);
        out.push(node.element.clone(), node.owned || (named && !below.is_empty()), below);
    }
    out
}

/// What becomes of a set when the schema has made some of its places atomic since. `None`: nothing.
pub(super) fn fit_to_schema(ty: Ty<'_>, set: &FieldSet) -> Option<FieldSet> {
    let mut changed = false;
    let mut out = FieldSet::new();
    for node in set.nodes() {
        let (child, _) = ty.step(&node.element);
        if node.below.is_empty() {
            out.push(node.element.clone(), node.owned, FieldSet::new());
        } else if child.is_atomic_container() {
            changed = true;
            out.push(node.element.clone(), true, FieldSet::new());
        } else {
            let fitted = fit_to_schema(child, &node.below);
            changed |= fitted.is_some();
            out.push(node.element.clone(), node.owned, fitted.unwrap_or_else(|| node.below.clone()));
        }
    }
    changed.then_some(out)
}

/// Takes the paths of the set out of the value. Containers that are emptied by it stay, unless they are in the set too.
pub fn remove_items(ty: Ty<'_>, value: &mut Value, set: &FieldSet) {
    match (ty.shape(value), value) {
        (Shape::Map(map), Value::Object(fields)) => {
            for node in set.nodes() {
                let PathElement::Field(name) = &node.element else { continue };
                if node.owned {
                    fields.remove(name);
                    continue;
                }
                if let Some(child) = fields.get_mut(name) {
                    remove_items(map.step(&node.element).0, child, &node.below);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => items.retain_mut(|item| {
            let Ok(element) = list.element(item) else { return true };
            if set.has_element(&element) {
                return false;
            }
            if let Some(below) = set.below(&element) {
                remove_items(list.items, item, below);
            }
            true
        }),
        _ => {}
    }
}

/// The part of the value that the set covers. `None`: nothing of it.
pub fn extract_items(ty: Ty<'_>, value: &Value, set: &FieldSet) -> Option<Value> {
    match (ty.shape(value), value) {
        (Shape::Map(map), Value::Object(fields)) => {
            let mut out = Map::new();
            for node in set.nodes() {
                let PathElement::Field(name) = &node.element else { continue };
                let Some(child) = fields.get(name) else { continue };
                if let Some(kept) = extract_node(map.step(&node.element).0, child, node.owned, &node.below) {
                    out.insert(name.clone(), kept);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (Shape::List(list), Value::Array(items)) => {
            let kept = |item: &Value| {
                let element = list.element(item).ok()?;
                let none = FieldSet::new();
                let below = set.below(&element).unwrap_or(&none);
                extract_node(list.items, item, set.has_element(&element), below)
            };
            let out: Vec<_> = items.iter().filter_map(kept).collect();
            (!out.is_empty()).then_some(Value::Array(out))
        }
        _ => Some(value.clone()),
    }
}

fn extract_node(ty: Ty<'_>, value: &Value, owned: bool, below: &FieldSet) -> Option<Value> {
    match (ty.shape(value), value) {
        (Shape::Map(_), Value::Object(_)) if below.is_empty() => owned.then(|| Value::Object(Map::new())),
        (Shape::List(_), Value::Array(_)) if below.is_empty() => owned.then(|| Value::Array(Vec::new())),
        (Shape::Leaf, _) => owned.then(|| value.clone()),
        _ => extract_items(ty, value, below),
    }
}

/// Every way in which the value does not fit its schema, as `path: what`. Duplicates in lists are refused.
pub fn type_errors(ty: Ty<'_>, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    check(ty, value, &mut String::new(), &mut out);
    out
}

/// The errors as Kubernetes puts them into one message.
pub fn errors_text(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

fn check(ty: Ty<'_>, value: &Value, path: &mut String, out: &mut Vec<String>) {
    if let Some(problem) = wrong_type(ty, value) {
        out.push(at(path, problem));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, child) in fields {
                let element = PathElement::field(name);
                match ty.field(name) {
                    Some((child_ty, _)) => descend(child_ty, child, &element, path, out),
                    None => out.push(at(&format!("{path}{element}"), "field not declared in schema".into())),
                }
            }
        }
        Value::Array(items) => check_items(ty, items, path, out),
        _ => {}
    }
}

fn check_items(ty: Ty<'_>, items: &[Value], path: &mut String, out: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        match ty.shape(&Value::Array(Vec::new())) {
            Shape::List(list) => {
                let element = match list.element(item) {
                    Ok(element) => element,
                    Err(problem) => {
                        out.push(at(path, format!("element {i}: {problem}")));
                        return;
                    }
                };
                if seen.contains(&element) {
                    out.push(at(path, format!("duplicate entries for key {element}")));
                }
                descend(list.items, item, &element, path, out);
                seen.insert(element);
            }
            _ => {
                let items_ty = match ty {
                    Ty::Known { schema: Schema { items: Some(items), .. }, preserve, .. } => {
                        Ty::Known { schema: items, preserve, resource: items.embedded_resource }
                    }
                    _ => Ty::Whole,
                };
                descend(items_ty, item, &PathElement::Index(i as i64), path, out);
            }
        }
    }
}

fn descend(ty: Ty<'_>, value: &Value, element: &PathElement, path: &mut String, out: &mut Vec<String>) {
    let length = path.len();
    path.push_str(&element.to_string());
    check(ty, value, path, out);
    path.truncate(length);
}

fn at(path: &str, problem: String) -> String {
    if path.is_empty() { problem } else { format!("{path}: {problem}") }
}

/// What is wrong with the value's own type.
fn wrong_type(ty: Ty<'_>, value: &Value) -> Option<String> {
    let Ty::Known { schema, .. } = ty else { return None };
    if value.is_null() {
        return None;
    }
    let scalar = !matches!(value, Value::Object(_) | Value::Array(_));
    // Other formats than `byte` may come as any scalar (times, quantities, int-or-string).
    let free_text = schema.int_or_string || schema.format.as_deref().is_some_and(|f| f != "byte");
    match schema.ty? {
        Type::Object if !value.is_object() => Some(format!("expected map, got &{{{}}}", go_value(value))),
        Type::Array if !value.is_array() => Some(format!("expected list, got &{{{}}}", go_value(value))),
        Type::String if free_text => {
            (!scalar).then(|| format!("expected any scalar, got &{{{}}}", go_value(value)))
        }
        Type::String if !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_literal(value)))
        }
        Type::Boolean if !value.is_boolean() => {
            Some(format!("expected boolean, got &{{{}}}", go_value(value)))
        }
        Type::Integer | Type::Number if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        _ => None,
    }
}

/// A value as Go's `%v` prints it.
pub(crate) fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(s) => s.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<_> = map.iter().map(|(k, v)| format!("{k}:{}", go_value(v))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as Go's `%#v` prints it.
fn go_literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(s) => super::element::go_quote(s),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let entry =
                |(k, v): (&String, &Value)| format!("{}:{}", super::element::go_quote(k), go_literal(v));
            format!("map[string]interface {{}}{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The Go type that a JSON value is read into.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
#[path = "typed_tests.rs"]
mod tests;
