//! Server-side apply: merging a configuration into the live object, with conflicts and removal.

use super::compare::{Comparison, compare};
use super::element::{PathElement, path_text};
use super::entries::{Entry, Manager, Managers, Operation};
use super::fieldset::FieldSet;
use super::last_applied;
use super::managed::{NEVER_OWNED, Request, record_update, set_managed_fields, take_managed_fields};
use super::merge::merge;
use super::shape::{Ty, with_meta};
use super::typed::{errors_text, field_set, remove_items, type_errors, with_named_fields};
use crate::status::{Cause, Status};
use serde_json::{Map, Value};

/// A field that an apply would have to take from somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Vec<PathElement>,
}

/// Why an apply was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<Conflict>),
    /// The request is wrong (400).
    #[error("{0}")]
    Invalid(String),
    /// The request or the live object can't be understood under the schema (500, as Kubernetes answers).
    #[error("{0}")]
    Failed(String),
}

const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Merges `config` into `live`. The result carries the new `managedFields`; it equals `live` where nothing changed.
/// Defaulting, validation and resetting the fields of other paths come after it.
pub fn apply(req: &Request<'_>, live: Option<&Value>, config: &Value) -> Result<Value, ApplyError> {
    check_config(req, config)?;
    let ty = with_meta(req.schema);
    let (live_object, managers) = take_apart(req, ty, live)?;
    let attempt = Attempt { req, ty, live: &live_object, config };
    let second_try = (req.manager == last_applied::MANAGER && !req.force).then(|| managers.clone());
    let result = match (attempt.run(managers, req.force), second_try) {
        (Err(ApplyError::Conflict(conflicts)), Some(managers)) => {
            let left = last_applied::not_allowed(ty, req.api_version, &live_object, conflicts);
            if left.is_empty() { attempt.run(managers, true) } else { Err(ApplyError::Conflict(left)) }
        }
        (other, _) => other,
    };
    let (mut object, managers) = result?;
    if req.manager == last_applied::MANAGER {
        last_applied::sync(&mut object, config);
    }
    tidy_metadata(&mut object);
    set_managed_fields(&mut object, managers.write());
    Ok(object)
}

// === impl ApplyError ===

impl ApplyError {
    /// The answer to the client. Kubernetes names neither the object nor its kind in it.
    pub fn into_status(self, _group: &str, _resource: &str, _name: &str) -> Status {
        match self {
            Self::Conflict(conflicts) => {
                let cause = |c: &Conflict| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: format!("conflict with {}", c.manager.description()),
                    field: path_text(&c.path),
                };
                let causes = conflicts.iter().map(cause).collect();
                Status::new(409, "Conflict", conflict_message(&conflicts)).with_causes(causes)
            }
            Self::Invalid(message) => Status::bad_request(message),
            Self::Failed(message) => Status::new(500, "", message),
        }
    }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        let manager = one.manager.description();
        return format!("Apply failed with 1 conflict: conflict with {manager}: {}", path_text(&one.path));
    }
    let mut lines = Vec::new();
    let mut last = None;
    // Sorted by manager when they were found.
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager.description()));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", path_text(&conflict.path)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn check_config(req: &Request<'_>, config: &Value) -> Result<(), ApplyError> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != req.api_version || kind != req.kind {
        return Err(ApplyError::Invalid(format!("invalid object type: {}", kind_text(api_version, kind))));
    }
    let meta = |key: &str| config.get("metadata").and_then(|m| m.get(key));
    if meta("managedFields").is_some_and(Value::is_array) {
        return Err(ApplyError::Invalid("metadata.managedFields must be nil".into()));
    }
    let errors = type_errors(with_meta(req.schema), config);
    if errors.is_empty() {
        return Ok(());
    }
    let name = |key: &str| meta(key).and_then(Value::as_str).unwrap_or_default();
    Err(ApplyError::Failed(format!(
        "failed to create typed patch object ({}/{}; {}): {}",
        name("namespace"),
        name("name"),
        kind_text(api_version, kind),
        errors_text(&errors)
    )))
}

/// `apps/v1, Kind=Deployment`, and `/v1, Kind=ConfigMap` in the core group.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// The live object without its `managedFields`, and those. An object that nobody owns anything of gets an owner for what
/// is there, so that the first apply meets conflicts.
fn take_apart(req: &Request<'_>, ty: Ty<'_>, live: Option<&Value>) -> Result<(Value, Managers), ApplyError> {
    let Some(live) = live else {
        let mut object = Map::new();
        object.insert("apiVersion".into(), req.api_version.into());
        object.insert("kind".into(), req.kind.into());
        return Ok((Value::Object(object), Managers::default()));
    };
    let mut object = live.clone();
    let list = take_managed_fields(&mut object);
    let mut managers = Managers::read(list).map_err(unreadable)?;
    if managers.is_empty() {
        record_update(req, ty, BEFORE_FIRST_APPLY, None, &object, &mut managers);
    }
    Ok((object, managers))
}

/// Metadata never holds an empty list or map, whatever was applied.
fn tidy_metadata(object: &mut Value) {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in ["annotations", "finalizers", "labels", "ownerReferences"] {
        let empty = match meta.get(key) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            meta.remove(key);
        }
    }
}

/// One try to apply.
struct Attempt<'a, 'r> {
    req: &'a Request<'r>,
    ty: Ty<'a>,
    live: &'a Value,
    config: &'a Value,
}

impl Attempt<'_, '_> {
    fn run(&self, mut managers: Managers, force: bool) -> Result<(Value, Managers), ApplyError> {
        let Self { req, ty, live, config } = *self;
        let manager = Manager {
            name: if req.manager.is_empty() { "unknown".into() } else { req.manager.into() },
            operation: Operation::Apply,
            api_version: req.api_version.into(),
            subresource: req.subresource.into(),
        };
        let mut object = live.clone();
        merge(ty, &mut object, config);
        let set = req.reset.keep(field_set(ty, config));
        let last = match managers.find(&manager) {
            Some(entry) => {
                let last = read_set(entry, ty)?;
                entry.replace(set.clone());
                entry.manager = manager.clone();
                last
            }
            None => {
                managers.entries.push(Entry::new(manager.clone(), set.clone(), None));
                FieldSet::new()
            }
        };
        self.prune(&mut object, &mut managers, &last, &set)?;

        let changed = compare(ty, live, &object).map(|set| req.reset.keep(set));
        self.settle(&mut managers, &manager, &changed, force)?;
        if let Some(entry) = managers.find(&manager) {
            entry.replace(set.difference(&NEVER_OWNED));
            if object != *live {
                entry.time = Some(req.now.into());
            }
        }
        managers.drop_empty();
        Ok((object, managers))
    }

    /// Refuses on conflict; then takes from the others what they lose.
    fn settle(
        &self,
        managers: &mut Managers,
        manager: &Manager,
        changed: &Comparison,
        force: bool,
    ) -> Result<(), ApplyError> {
        let written = changed.written();
        let is_self = |entry: &Entry| entry.manager == *manager;
        let mut conflicts = Vec::new();
        for entry in managers.entries.iter_mut().filter(|e| !is_self(e)) {
            let taken = entry.shared_with(self.ty, &written).map_err(unreadable)?;
            conflicts.extend(
                taken.paths().into_iter().map(|path| Conflict { manager: entry.manager.clone(), path }),
            );
        }
        if !force && !conflicts.is_empty() {
            conflicts.sort_by_cached_key(|c| c.manager.sort_text());
            return Err(ApplyError::Conflict(conflicts));
        }
        for entry in managers.entries.iter_mut().filter(|e| !is_self(e)) {
            entry.lose(self.ty, &written);
            entry.lose(self.ty, &changed.removed);
        }
        Ok(())
    }

    /// Takes out what the manager applied last time and does not any more, unless somebody else owns it.
    fn prune(
        &self,
        object: &mut Value,
        managers: &mut Managers,
        last: &FieldSet,
        set: &FieldSet,
    ) -> Result<(), ApplyError> {
        if set.contains(last) {
            return Ok(());
        }
        let ty = self.ty;
        let paths_in = |value: &Value| with_named_fields(ty, &field_set(ty, value));
        let last = with_named_fields(ty, last);
        let mut owned = FieldSet::new();
        for entry in &mut managers.entries {
            owned = owned.union(&read_set(entry, ty)?);
        }
        let merged = paths_in(object);
        // Without all that was applied, then with what somebody owns put back.
        let mut pruned = object.clone();
        remove_items(ty, &mut pruned, &last);
        let keep = paths_in(&pruned).union(&with_named_fields(ty, &owned));
        let mut pruned = object.clone();
        remove_items(ty, &mut pruned, &merged.difference(&keep));
        // What nobody owns went with its parent in the steps above: only what the manager itself owned may go.
        let gone = merged.difference(&paths_in(&pruned)).intersection(&last);
        remove_items(ty, object, &gone);
        Ok(())
    }
}

fn read_set(entry: &mut Entry, ty: Ty<'_>) -> Result<FieldSet, ApplyError> {
    match entry.set(ty) {
        Ok(set) => Ok(set.clone()),
        Err(why) => Err(unreadable(why)),
    }
}

fn unreadable(why: String) -> ApplyError {
    ApplyError::Failed(format!("failed to decode managed fields: {why}"))
}
