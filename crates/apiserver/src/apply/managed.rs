//! Who owns what: the terms of a request, and the tracking under all writes that are not an apply.
//!
//! The rules, in short: a plain write takes every field that it changes from whoever had it. An apply owns every field
//! that it names; where it would change a field of somebody else it is refused, unless forced; where it no longer names a
//! field that it owned, the field goes, unless somebody else owns it too.

use super::compare::{Before, compare_from};
use super::entries::{Entry, Manager, Managers, Operation};
use super::fieldset::FieldSet;
use super::shape::{Ty, with_meta};
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::sync::{Arc, LazyLock};

/// Who writes what, where and when.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub schema: &'a Schema,
    /// `v1` or `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// `fieldManager`, or what [`manager_from_user_agent`] gives.
    pub manager: &'a str,
    /// Empty on the main path.
    pub subresource: &'a str,
    pub force: bool,
    /// RFC 3339, whole seconds, UTC.
    pub now: &'a str,
    pub reset: Reset,
    /// A built-in kind: an empty object has its structs already (a custom resource's has nothing).
    pub builtin: bool,
}

/// The fields that a path of the API does not write, whatever the request says.
#[derive(Debug, Clone, Default)]
pub enum Reset {
    #[default]
    Nothing,
    /// The main path of a kind with a status subresource.
    Status,
    /// The status path.
    AllButStatus,
    /// These, and all below them.
    Fields(Arc<FieldSet>),
}

pub(super) static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));

const MANAGER_MAX_LENGTH: usize = 128;

/// The manager of a request that names none: what its `User-Agent` says before the first slash.
pub fn manager_from_user_agent(user_agent: &str) -> String {
    let mut out = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars() {
        if c.is_control() || (c.is_whitespace() && c != ' ') {
            continue;
        }
        if out.len() + c.len_utf8() > MANAGER_MAX_LENGTH {
            break;
        }
        out.push(c);
    }
    out
}

/// Writes the `managedFields` of `new`, which is about to replace `old`, for any request that is not an apply.
pub fn track_update(req: &Request<'_>, old: Option<&Value>, new: &mut Value) {
    let sent = take_managed_fields(new);
    if !new.get("metadata").is_some_and(Value::is_object) {
        return;
    }
    let mut managers = managers_for_update(req, old, sent);
    // Somebody switched tracking off for this object by emptying the list: it stays off until an apply.
    if managers.is_empty() && old.is_some() {
        return;
    }
    let ty = with_meta(req.schema);
    record_update(req, ty, req.manager, old.map(Before::Value), new, &mut managers);
    set_managed_fields(new, managers.write());
}

/// Where only the times in `managedFields` differ, takes the old ones back: such a write is none.
pub fn restore_times(old: &Value, new: &mut Value) {
    fn managed(object: &Value) -> Option<&Vec<Value>> {
        object.get("metadata")?.get("managedFields")?.as_array()
    }
    fn without<'v>(object: &'v Value, key: &'v str) -> impl Iterator<Item = (&'v String, &'v Value)> {
        object.as_object().into_iter().flatten().filter(move |(k, _)| *k != key)
    }
    let (Some(before), Some(after)) = (managed(old), managed(new)) else { return };
    let same_entries = before.len() == after.len()
        && before.iter().zip(after).all(|(a, b)| without(a, "time").eq(without(b, "time")));
    let same_object = same_entries
        && without(old, "metadata").eq(without(new, "metadata"))
        && without(&old["metadata"], "managedFields").eq(without(&new["metadata"], "managedFields"));
    if same_object {
        let list = Value::Array(before.clone());
        set_managed_fields(new, Some(list));
    }
}

// === impl Reset ===

impl Reset {
    pub(super) fn keep(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::Nothing => set,
            Self::Status => set.recursive_difference(&STATUS),
            Self::AllButStatus => set.only_field("status"),
            Self::Fields(fields) => set.recursive_difference(fields),
        }
    }
}

pub(super) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

pub(super) fn set_managed_fields(object: &mut Value, list: Option<Value>) {
    if let (Some(list), Some(meta)) = (list, object.get_mut("metadata").and_then(Value::as_object_mut)) {
        meta.insert("managedFields".into(), list);
    }
}

/// Whose word on the present owners counts. A client may rewrite the list on the main path, but one that does not
/// understand it must not lose it by accident.
fn managers_for_update(req: &Request<'_>, old: Option<&Value>, sent: Option<Value>) -> Managers {
    let live = old.and_then(|old| old.get("metadata")?.get("managedFields"));
    if sent.as_ref() == live {
        return Managers::read(sent).unwrap_or_default();
    }
    if req.subresource.is_empty()
        && let Some(Value::Array(list)) = &sent
    {
        let empty_entry = |entry: &Value| entry.as_object().is_some_and(Map::is_empty);
        if list.is_empty() || (list.len() == 1 && empty_entry(&list[0])) {
            return Managers::default();
        }
        if let Ok(managers) = Managers::read_untrusted(sent) {
            return managers;
        }
    }
    Managers::read(live.cloned()).unwrap_or_default()
}

/// Moves what changed to the manager that changed it.
pub(super) fn record_update(
    req: &Request<'_>,
    ty: Ty<'_>,
    name: &str,
    old: Option<Before<'_>>,
    new: &Value,
    managers: &mut Managers,
) {
    let nothing = Value::Object(Map::new());
    let old = old.unwrap_or(if req.builtin { Before::Zero } else { Before::Value(&nothing) });
    let changed = compare_from(ty, old, new).map(|set| req.reset.keep(set));
    if changed.is_same() {
        return;
    }
    let written = changed.written();
    let own = written.difference(&NEVER_OWNED);
    let manager = Manager {
        name: if name.is_empty() { "unknown".into() } else { name.into() },
        operation: Operation::Update,
        api_version: req.api_version.into(),
        subresource: req.subresource.into(),
    };
    for entry in &mut managers.entries {
        // What the writer wrote it keeps; taking it away first would only mean to give it back.
        if entry.manager != manager {
            entry.lose(ty, &written);
        }
        entry.lose(ty, &changed.removed);
    }
    if !own.is_empty() {
        match managers.find(&manager) {
            Some(entry) => {
                entry.gain(ty, &own);
                entry.time = Some(req.now.into());
            }
            None => managers.entries.push(Entry::new(manager, own, Some(req.now.into()))),
        }
    }
    managers.drop_empty();
    managers.cap_updaters(ty);
}

#[cfg(test)]
#[path = "managed_tests.rs"]
mod tests;
