//! PUT, and the step that all changes of an existing object go through.

use super::admit::{CRD_COLLECTION, Incoming, finalizers, is_deleting, meta_mut, meta_text, to_storage};
use super::create::storage_status;
use crate::apply;
use crate::builtin;
use crate::engine::{Call, Engine, Entry};
use crate::http::reply::Reply;
use crate::resource::Resource;
use crate::status::{FieldError, Status};
use crate::store::{Change, Draft, Expect, Object, WriteError};
use serde_json::Value;
use std::sync::Arc;

/// Changes that lose a race are computed again this often when the client set no resourceVersion.
const RACES: usize = 64;

/// How the fields of a change get their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// By what differs from the stored object.
    FromDifference,
    /// Decided already, by a server-side apply.
    Settled,
}

impl Engine {
    pub(crate) async fn update(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let Incoming { value, warnings } = call.decode_object(body)?;
        self.check_names(call, &value)?;
        let resource = &call.entry.resource;
        let rv = meta_text(&value, "resourceVersion").to_string();
        if self.store.get(call.collection(), &call.key()).is_none() {
            if call.subresource().is_empty() && creates_on_update(resource) && rv.is_empty() {
                self.authorize_create(call)?;
                let mut value = value;
                self.own_metadata(call, &mut value)?;
                let mut reply = self.create_object(call, value, None).await?.with_code(201);
                reply.warnings = warnings;
                return Ok(reply);
            }
            return Err(call.not_found());
        }
        if rv.is_empty() && resource.is_custom() {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                Value::from(0),
                "must be specified for an update",
            );
            // Kubernetes names the resource here, not the kind.
            return Err(Status::invalid(&resource.group, &resource.plural, call.name(), &[error]));
        }
        self.check_uid(call, &value)?;
        let mut reply = self.change(call, Ownership::FromDifference, |_| Ok(value.clone())).await?;
        reply.warnings.extend(warnings);
        Ok(reply)
    }

    /// A uid in the body of a PUT is a precondition.
    fn check_uid(&self, call: &Call, value: &Value) -> Result<(), Status> {
        let asked = meta_text(value, "uid");
        let Some(current) = self.store.get(call.collection(), &call.key()) else { return Ok(()) };
        if asked.is_empty() || *asked == *current.uid {
            return Ok(());
        }
        let resource = &call.entry.resource;
        let why =
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {}", current.uid);
        Err(Status::conflict(&resource.group, &resource.plural, call.name(), why))
    }

    pub(super) fn check_names(&self, call: &Call, value: &Value) -> Result<(), Status> {
        let name = meta_text(value, "name");
        if name.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.name()
            )));
        }
        if name != call.name() {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name()
            )));
        }
        let namespace = meta_text(value, "namespace");
        if !namespace.is_empty() && namespace != call.namespace() {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    /// Changes an existing object by `edit`, which is given its present state and may be called again after a lost race.
    pub(crate) async fn change(
        &self,
        call: &Call,
        ownership: Ownership,
        edit: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Reply, Status> {
        let is_crd = **call.collection() == *CRD_COLLECTION;
        let _crd_turn = if is_crd { Some(self.crd_turn.lock().await) } else { None };
        let _service_turn = self.service_turn(&call.entry).await;
        for _ in 0..RACES {
            let Some(current) = self.store.get(call.collection(), &call.key()) else {
                return Err(call.not_found());
            };
            let old = self.view(&call.entry, &current);
            let mut new = edit(&old)?;
            let asked = meta_text(&new, "resourceVersion").to_string();
            if !asked.is_empty() && asked.parse::<u64>().is_err() {
                return Err(Status::unexplained(format!(
                    "strconv.ParseUint: parsing {asked:?}: invalid syntax"
                )));
            }
            let conditional =
                !asked.is_empty() && asked != "0" && asked != meta_text(&old, "resourceVersion");
            if conditional {
                return Err(modified(call));
            }
            self.admit_update(call, ownership, &mut new, &old)?;
            if same_but_for_times(&new, &old) {
                return Ok(self.reply_object(call, current));
            }
            match self.replace(call, &current, new).await {
                Err(WriteError::Stale | WriteError::Missing) if asked.is_empty() => {}
                Err(WriteError::Stale) => return Err(modified(call)),
                Err(WriteError::Missing) => return Err(call.not_found()),
                Err(other) => return Err(storage_status(other)),
                Ok(object) => {
                    if is_crd {
                        self.reload_registry();
                    }
                    return Ok(self.reply_object(call, object));
                }
            }
        }
        Err(modified(call))
    }

    /// Makes `new` what may be stored in place of `old`.
    fn admit_update(
        &self,
        call: &Call,
        ownership: Ownership,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), Status> {
        let entry = &call.entry;
        keep_system_fields(new, old);
        keep_other_half(call, new, old);
        self.shape(entry, new);
        let mut errors = Vec::new();
        if call.subresource().is_empty() {
            builtin::prepare_update(&entry.resource, new, old);
            errors = self.allocate(entry, new);
        }
        if ownership == Ownership::FromDifference {
            let now = self.timestamp();
            apply::track_update(&self.tracking(call, &now), Some(old), new);
        }
        bump_generation(entry, new, old);
        if **call.collection() == *CRD_COLLECTION && call.subresource().is_empty() {
            new["status"] = self.crd_status(new);
        }
        errors.extend(self.problems(entry, new, Some(old), call.subresource()));
        if !errors.is_empty() {
            return Err(self.invalid(entry, new, &errors));
        }
        self.guard(call, new, Some(old))
    }

    /// Writes the new state; an object that was only waiting for its last finalizer goes away instead.
    async fn replace(
        &self,
        call: &Call,
        current: &Arc<Object>,
        mut new: Value,
    ) -> Result<Arc<Object>, WriteError> {
        let gone = is_deleting(&new) && finalizers(&new).is_empty() && !self.still_held(call, &new);
        to_storage(&mut new, &call.entry);
        let Ok(draft) = Draft::new(&mut new) else { return Err(WriteError::Missing) };
        let key = current.key.clone();
        if call.dry_run {
            return Ok(Arc::new(draft.seal(key, current.revision)));
        }
        let expect = Expect::Revision(current.revision);
        if !gone {
            return self.store.write(call.collection(), key, expect, Change::Put(draft)).await;
        }
        self.store.write(call.collection(), key.clone(), expect, Change::Delete).await?;
        Ok(Arc::new(draft.seal(key, current.revision)))
    }

    /// Namespaces are also held by `spec.finalizers`.
    fn still_held(&self, call: &Call, value: &Value) -> bool {
        **call.collection() == *"namespaces"
            && value["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
    }
}

/// The kinds that a PUT may create.
fn creates_on_update(resource: &Resource) -> bool {
    matches!(
        resource.plural.as_str(),
        "leases"
            | "leasecandidates"
            | "events"
            | "services"
            | "endpoints"
            | "limitranges"
            | "runtimeclasses"
            | "roles"
            | "clusterroles"
            | "rolebindings"
            | "clusterrolebindings"
    ) && !resource.is_custom()
}

fn modified(call: &Call) -> Status {
    Status::conflict(
        &call.entry.resource.group,
        &call.entry.resource.plural,
        call.name(),
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// What only the server writes stays as it was. A different uid is left in place: validation refuses it by name.
fn keep_system_fields(new: &mut Value, old: &Value) {
    let before = old["metadata"].clone();
    let meta = meta_mut(new);
    for key in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let missing = meta.get(key).is_none_or(|v| v.is_null() || v.as_str() == Some(""));
        if missing && let Some(value) = before.get(key) {
            meta.insert(key.into(), value.clone());
        }
    }
    for key in ["resourceVersion", "generation", "creationTimestamp"] {
        match before.get(key) {
            Some(value) => meta.insert(key.into(), value.clone()),
            None => meta.remove(key),
        };
    }
    meta.remove("selfLink");
}

/// The main path leaves status alone; the status path leaves everything else alone. On the status path of a custom
/// resource that includes its metadata, on that of a built-in kind it does not.
fn keep_other_half(call: &Call, new: &mut Value, old: &Value) {
    match call.subresource() {
        "status" => {
            let status = new.get("status").cloned();
            let mut meta = new["metadata"].take();
            *new = old.clone();
            set(new, "status", status);
            if call.entry.resource.is_custom() {
                set(&mut new["metadata"], "managedFields", meta.get_mut("managedFields").map(Value::take));
            } else {
                new["metadata"] = meta;
            }
        }
        "finalize" => {
            let finalizers = new["spec"].get("finalizers").cloned();
            *new = old.clone();
            set(&mut new["spec"], "finalizers", finalizers);
        }
        _ if call.entry.resource.has_status => set(new, "status", old.get("status").cloned()),
        _ => {}
    }
}

fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if let Some(object) = object.as_object_mut() {
        match value {
            Some(value) => object.insert(key.into(), value),
            None => object.remove(key),
        };
    }
}

/// A new generation for each change of what is wanted.
fn bump_generation(entry: &Entry, new: &mut Value, old: &Value) {
    let resource = &entry.resource;
    if !(resource.is_custom() || builtin::has_generation(resource)) {
        return;
    }
    let ignored = |key: &str| key == "metadata" || (key == "status" && resource.has_status);
    if !same_wish(new, old, ignored) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        meta_mut(new).insert("generation".into(), generation.into());
    }
}

/// Whether all fields but the ignored ones are the same.
fn same_wish(new: &Value, old: &Value, ignored: impl Fn(&str) -> bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let count = |fields: &serde_json::Map<String, Value>| fields.keys().filter(|k| !ignored(k)).count();
    count(new) == count(old) && new.iter().all(|(k, v)| ignored(k) || old.get(k) == Some(v))
}

/// A change of nothing is not written, so that it wakes nobody. The times in managedFields do not count.
fn same_but_for_times(new: &Value, old: &Value) -> bool {
    if new == old {
        return true;
    }
    let same = |key: &str| new.get(key) == old.get(key);
    let keys = new.as_object().into_iter().flatten().chain(old.as_object().into_iter().flatten());
    keys.filter(|(k, _)| *k != "metadata").all(|(k, _)| same(k)) && timeless(new) == timeless(old)
}

fn timeless(value: &Value) -> Value {
    let mut meta = value.get("metadata").cloned().unwrap_or_default();
    if let Some(entries) = meta.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
    }
    meta
}
