//! The way from client-side to server-side apply: kubectl's annotation.
//!
//! What the annotation says was applied, and what still is as it says, belongs to kubectl although its managed fields say
//! that a plain update wrote it. And as long as the annotation is there it is kept true, so that a user can go back.

use super::applying::Conflict;
use super::compare::compare;
use super::shape::Ty;
use super::typed::{field_set, type_errors};
use serde_json::{Map, Value};

/// The only manager that this is done for. Other tools opt out by their name.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

fn last_applied(object: &Value) -> Option<&str> {
    annotations(object)?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The conflicts that the annotation does not excuse.
pub(super) fn not_allowed(
    ty: Ty<'_>,
    api_version: &str,
    live: &Value,
    conflicts: Vec<Conflict>,
) -> Vec<Conflict> {
    let Some(before) = last_applied(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return conflicts;
    };
    let same_version = before.get("apiVersion").and_then(Value::as_str) == Some(api_version);
    if !same_version || !type_errors(ty, &before).is_empty() {
        return conflicts;
    }
    let changed = compare(ty, &before, live);
    let allowed = field_set(ty, &before).difference(&changed.written()).difference(&changed.removed);
    conflicts.into_iter().filter(|c| !allowed.has(&c.path)).collect()
}

/// Writes what was applied into the annotation, if the object has it.
pub(super) fn sync(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut applied = config.clone();
    if let Some(meta) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(notes) = meta.get_mut("annotations").and_then(Value::as_object_mut)
    {
        notes.remove(ANNOTATION);
        if notes.is_empty() {
            meta.remove("annotations");
        }
    }
    // Kubernetes' encoder ends a document with a newline.
    let text = format!("{applied}\n");
    let Some(notes) =
        object.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut)
    else {
        return;
    };
    notes.insert(ANNOTATION.into(), text.into());
    let size: usize = notes.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS_SIZE {
        notes.remove(ANNOTATION);
    }
}
