//! The `managedFields` of an object: read, changed, written back.
//!
//! Writes are frequent and most of them touch the fields of one manager, so an entry keeps the JSON that it came from
//! and is taken apart only when a change touches it. Whether it does is asked of that JSON directly.

use super::element::go_quote;
use super::fieldset::FieldSet;
use super::shape::Ty;
use super::typed::fit_to_schema;
use serde_json::{Map, Value, json};

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

/// Who owns fields. Updates at two versions of an API are two managers, applies are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    pub operation: Operation,
    /// The version that the fields are of.
    pub api_version: String,
    pub subresource: String,
}

/// One manager and what it owns.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    pub(super) time: Option<String>,
    fields: Value,
    /// `fields`, taken apart; newer than `fields` when `stale`.
    set: Option<FieldSet>,
    stale: bool,
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managers {
    pub(super) entries: Vec<Entry>,
}

const MAX_UPDATERS: usize = 10;
const OLD_UPDATERS: &str = "ancient-changes";

// === impl Operation ===

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

// === impl Manager ===

impl Manager {
    fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// As conflicts name it.
    pub fn description(&self) -> String {
        let mut out = go_quote(&self.name);
        if !self.subresource.is_empty() {
            out.push_str(&format!(" with subresource {}", go_quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            out.push_str(&format!(" using {}", self.api_version));
        }
        out
    }

    /// Kubernetes lists managers in the order of this text.
    pub(super) fn sort_text(&self) -> String {
        let mut out = json!(self.name).to_string();
        out.push_str(&format!(",\"operation\":\"{}\"", self.operation.text()));
        if self.operation == Operation::Update {
            out.push_str(&format!(",\"apiVersion\":\"{}\"", self.api_version));
        }
        if !self.subresource.is_empty() {
            out.push_str(&format!(",\"subresource\":\"{}\"", self.subresource));
        }
        out
    }
}

// === impl Entry ===

impl Entry {
    pub(super) fn new(manager: Manager, set: FieldSet, time: Option<String>) -> Self {
        Self { manager, time, fields: Value::Null, set: Some(set), stale: true }
    }

    fn from_json(entry: &mut Value, at: usize) -> Result<Self, String> {
        let text =
            |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let operation = match entry.get("operation").and_then(Value::as_str) {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".into()),
        };
        let api_version = text(entry, "apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".into());
        }
        match text(entry, "fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                return Err(format!("invalid fieldsType {} in managed fields entry {at}", go_quote(other)));
            }
        }
        let manager = Manager {
            name: text(entry, "manager"),
            operation,
            api_version,
            subresource: text(entry, "subresource"),
        };
        let time = entry.get("time").and_then(Value::as_str).map(utc_seconds);
        let fields = match entry.get_mut("fieldsV1").map(Value::take) {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(fields) => fields,
        };
        Ok(Self { manager, time, fields, set: None, stale: false })
    }

    fn into_json(mut self) -> Value {
        if self.stale {
            self.fields = self.set.unwrap_or_default().to_fields_v1();
        }
        let mut out = Map::new();
        out.insert("apiVersion".into(), self.manager.api_version.into());
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.fields);
        if !self.manager.name.is_empty() {
            out.insert("manager".into(), self.manager.name.into());
        }
        out.insert("operation".into(), self.manager.operation.text().into());
        if !self.manager.subresource.is_empty() {
            out.insert("subresource".into(), self.manager.subresource.into());
        }
        if let Some(time) = self.time {
            out.insert("time".into(), time.into());
        }
        Value::Object(out)
    }

    /// What it owns, in terms of today's schema.
    pub(super) fn set(&mut self, ty: Ty<'_>) -> Result<&FieldSet, String> {
        if self.set.is_none() {
            let read = FieldSet::from_fields_v1(&self.fields)?;
            let fitted = fit_to_schema(ty, &read);
            self.stale = fitted.is_some();
            self.set = Some(fitted.unwrap_or(read));
        }
        Ok(self.set.get_or_insert_default())
    }

    /// What it owns of these paths.
    pub(super) fn shared_with(&mut self, ty: Ty<'_>, paths: &FieldSet) -> Result<FieldSet, String> {
        if self.set.is_none() && !touches(&self.fields, paths) {
            return Ok(FieldSet::new());
        }
        Ok(self.set(ty)?.intersection(paths))
    }

    pub(super) fn replace(&mut self, set: FieldSet) {
        if self.set.as_ref() != Some(&set) {
            self.set = Some(set);
            self.stale = true;
        }
    }

    /// Takes the paths away from it.
    pub(super) fn lose(&mut self, ty: Ty<'_>, paths: &FieldSet) {
        if paths.is_empty() || (self.set.is_none() && !touches(&self.fields, paths)) {
            return;
        }
        // What can't be read owns nothing: it can't have been written by a server.
        let left = self.set(ty).map(|set| set.difference(paths)).unwrap_or_default();
        self.replace(left);
    }

    /// Gives the paths to it.
    pub(super) fn gain(&mut self, ty: Ty<'_>, paths: &FieldSet) {
        if self.set.is_none() && holds(&self.fields, paths) {
            return;
        }
        let all = self.set(ty).map(|set| set.union(paths)).unwrap_or_else(|_| paths.clone());
        self.replace(all);
    }

    fn is_empty(&self) -> bool {
        match &self.set {
            Some(set) => set.is_empty(),
            None => self.fields.as_object().is_none_or(Map::is_empty),
        }
    }
}

// === impl Managers ===

impl Managers {
    /// Reads entries that this server wrote.
    pub(super) fn read(list: Option<Value>) -> Result<Self, String> {
        let mut entries = Vec::new();
        if let Some(Value::Array(list)) = list {
            for (at, mut entry) in list.into_iter().enumerate() {
                entries.push(Entry::from_json(&mut entry, at)?);
            }
        }
        Ok(Self { entries })
    }

    /// Reads entries that a client sent: every field set is looked at, and of two entries for one manager the last
    /// counts.
    pub(super) fn read_untrusted(list: Option<Value>) -> Result<Self, String> {
        let mut out = Self::default();
        for entry in Self::read(list)?.entries {
            FieldSet::from_fields_v1(&entry.fields)?;
            out.entries.retain(|e| !e.manager.is(&entry.manager));
            out.entries.push(entry);
        }
        Ok(out)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn find(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.manager.is(manager))
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|e| !e.is_empty());
    }

    /// An object that many clients update would otherwise gather an entry for each of them: beyond the limit, the
    /// oldest are joined.
    pub(super) fn cap_updaters(&mut self, ty: Ty<'_>) {
        let mut updaters: Vec<Manager> = Vec::new();
        {
            let mut sorted: Vec<&Entry> =
                self.entries.iter().filter(|e| e.manager.operation == Operation::Update).collect();
            if sorted.len() <= MAX_UPDATERS {
                return;
            }
            sorted.sort_by_cached_key(|e| (e.time.clone().unwrap_or_default(), e.manager.sort_text()));
            updaters.extend(sorted.into_iter().map(|e| e.manager.clone()));
        }
        let mut surplus = updaters.len() - MAX_UPDATERS;
        let mut first_of: Vec<Manager> = Vec::new();
        for manager in updaters {
            if surplus == 0 {
                return;
            }
            let Some(first) = first_of.iter().find(|m| m.api_version == manager.api_version) else {
                first_of.push(manager);
                continue;
            };
            let bucket = Manager { name: OLD_UPDATERS.into(), subresource: String::new(), ..first.clone() };
            if manager.is(&bucket) {
                continue;
            }
            if self.find(&bucket).is_none()
                && let Some(entry) = self.find(first)
            {
                entry.manager = bucket.clone();
            }
            let Some(at) = self.entries.iter().position(|e| e.manager.is(&manager)) else { continue };
            let mut joined = self.entries.remove(at);
            let paths = joined.set(ty).cloned().unwrap_or_default();
            if let Some(entry) = self.find(&bucket) {
                entry.gain(ty, &paths);
                entry.time = joined.time;
            }
            surplus -= 1;
        }
    }

    /// `None`: nobody owns anything, and the object has no `managedFields`.
    pub(super) fn write(mut self) -> Option<Value> {
        self.entries.sort_by(|a, b| {
            let (am, bm) = (&a.manager, &b.manager);
            am.operation
                .cmp(&bm.operation)
                .then_with(|| a.time.cmp(&b.time))
                .then_with(|| am.name.cmp(&bm.name))
                .then_with(|| am.api_version.cmp(&bm.api_version))
                .then_with(|| am.subresource.cmp(&bm.subresource))
        });
        (!self.is_empty()).then(|| self.entries.into_iter().map(Entry::into_json).collect())
    }
}

/// Times are kept in whole seconds, UTC: then their text sorts as they do.
fn utc_seconds(text: &str) -> String {
    if text.len() == 20 && text.ends_with('Z') {
        return text.to_string();
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => text.to_string(),
    }
}

fn is_member(fields: &Map<String, Value>) -> bool {
    fields.is_empty() || fields.contains_key(".")
}

/// Whether taking `paths` away could change what `fields` says.
fn touches(fields: &Value, paths: &FieldSet) -> bool {
    let Value::Object(fields) = fields else { return true };
    paths.nodes().iter().any(|node| match fields.get(&node.element.encode()) {
        None => false,
        // A path with nothing below it is a leaf. Where the entry has paths below a leaf, the schema was changed.
        Some(Value::Object(below)) if node.owned && (is_member(below) || node.below.is_empty()) => true,
        Some(below) => !node.below.is_empty() && touches(below, &node.below),
    })
}

/// Whether `fields` has all `paths`.
fn holds(fields: &Value, paths: &FieldSet) -> bool {
    let Value::Object(fields) = fields else { return false };
    paths.nodes().iter().all(|node| {
        let Some(below) = fields.get(&node.element.encode()) else { return false };
        (!node.owned || below.as_object().is_some_and(is_member))
            && (node.below.is_empty() || holds(below, &node.below))
    })
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
