//! DELETE of one object or of many, with finalizers and propagation.

use super::admit::{finalizers, is_deleting, meta_mut, meta_text};
use super::create::storage_status;
use super::list::Selection;
use crate::apply;
use crate::crd;
use crate::engine::{Call, Engine};
use crate::http::reply::{Content, Reply};
use crate::resource::Resource;
use crate::status::{FieldError, Status};
use crate::store::{Change, CollectionName, Draft, Expect, Key, Object, WriteError};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const ORPHAN: &str = "orphan";
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// What a deletion asks for beside the name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    pub(crate) propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The body of a delete request. Every field must have its type: what is misread here is deleted for real.
#[derive(Default)]
struct BodyOptions {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl BodyOptions {
    fn read(options: &Value) -> Result<Self, Status> {
        let preconditions = field(options, "preconditions", "Preconditions", Value::is_object)?;
        let text = |of: &Value, name: &str| -> Result<Option<String>, Status> {
            Ok(field(of, name, "string", Value::is_string)?.and_then(Value::as_str).map(str::to_string))
        };
        let nothing = Value::Null;
        let preconditions = preconditions.unwrap_or(&nothing);
        field(options, "gracePeriodSeconds", "int64", Value::is_i64)?;
        let dry_run = field(options, "dryRun", "[]string", |v| {
            v.as_array().is_some_and(|list| list.iter().all(Value::is_string))
        })?;
        let dry_run: Vec<&str> =
            dry_run.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        if dry_run.iter().any(|v| *v != "All") {
            let error = FieldError::not_supported("dryRun", dry_run.into(), &["All"]);
            return Err(Status::invalid_options("DeleteOptions", &[error]));
        }
        Ok(Self {
            propagation_policy: text(options, "propagationPolicy")?,
            orphan_dependents: field(options, "orphanDependents", "bool", Value::is_boolean)?
                .and_then(Value::as_bool),
            uid: text(preconditions, "uid")?,
            resource_version: text(preconditions, "resourceVersion")?,
            dry_run: !dry_run.is_empty(),
        })
    }
}

/// A field that is absent or of its type.
fn field<'a>(
    of: &'a Value,
    name: &str,
    ty: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Option<&'a Value>, Status> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) if fits(value) => Ok(Some(value)),
        Some(value) => Err(Status::bad_request(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal {} into Go struct field DeleteOptions.{name} of type {ty}",
            apply::go_type(value)
        ))),
    }
}

/// What became of an object that was deleted.
pub(crate) enum Deleted {
    Gone(Arc<Object>),
    /// It waits for its finalizers.
    Waiting(Arc<Object>),
}

impl Deletion {
    /// From the body, which is optional, and the query.
    pub(crate) fn read(call: &Call, body: &[u8]) -> Result<Self, Status> {
        call.params.int("gracePeriodSeconds")?;
        let mut out = Self { dry_run: call.dry_run, ..Self::default() };
        let mut policy = call.params.get("propagationPolicy").map(str::to_string);
        let mut orphan = call.params.get("orphanDependents").map(|v| v != "false");
        if !body.iter().all(u8::is_ascii_whitespace) {
            let options = call.decode_other(body, "v1", "DeleteOptions")?;
            let kind = options.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
            if !options.is_object() || kind != "DeleteOptions" {
                let version = options.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
                return Err(Status::bad_request(format!(
                    "no kind {kind:?} is registered for version {version:?}: a delete takes DeleteOptions"
                )));
            }
            let read = BodyOptions::read(&options)?;
            policy = read.propagation_policy.or(policy);
            orphan = read.orphan_dependents.or(orphan);
            out.uid = read.uid;
            out.resource_version = read.resource_version;
            out.dry_run |= read.dry_run;
        }
        let refuse = |error: FieldError| Status::invalid_options("DeleteOptions", &[error]);
        out.propagation = match (policy.as_deref(), orphan) {
            (Some(policy), Some(_)) => {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                return Err(refuse(FieldError::invalid("propagationPolicy", policy.into(), detail)));
            }
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some(other), _) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                return Err(refuse(FieldError::not_supported("propagationPolicy", other.into(), &known)));
            }
            (None, None) => None,
        };
        Ok(out)
    }
}

impl Deletion {
    /// One of the server's own.
    pub(crate) fn by_server(propagation: Propagation) -> Self {
        Self { propagation: Some(propagation), ..Self::default() }
    }

    /// The same, for exactly this object and none that took its name meanwhile. What is written on it about its own
    /// dependents stands.
    pub(crate) fn by_server_of(uid: &str, propagation: Option<Propagation>) -> Self {
        Self { uid: Some(uid.to_string()), propagation, ..Self::default() }
    }
}

impl Engine {
    pub(crate) async fn delete(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let deletion = Deletion::read(call, body)?;
        let resource = &call.entry.resource;
        match self.delete_object(call.collection(), &call.key(), &deletion, Some(call)).await? {
            Deleted::Waiting(object) => Ok(self.reply_object(call, object)),
            // Namespaces are the one kind that is always shown.
            Deleted::Gone(object) => Ok(Reply::value(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {
                    "name": call.name(), "group": resource.group, "kind": resource.plural, "uid": &*object.uid,
                }
            }))
            .tidy()),
        }
    }

    /// Deletes whatever the selectors choose, and shows what was there.
    pub(crate) async fn delete_collection(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let deletion = Deletion::read(call, body)?;
        let selection = Selection::read(self, call)?;
        let listing = self.store.list(call.collection(), call.scope());
        let chosen: Vec<_> =
            listing.objects.into_iter().filter(|o| selection.matches(self, call, o)).collect();
        let mut shown = Vec::with_capacity(chosen.len());
        for object in chosen {
            match self.delete_object(call.collection(), &object.key, &deletion, None).await {
                Ok(Deleted::Gone(object) | Deleted::Waiting(object)) => shown.push(object),
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
        let head = self.list_head(call, self.store.revision(), None, None);
        Ok(Reply::ok(Content::List { head, bare: !call.entry.resource.is_custom(), objects: shown }))
    }

    /// Deletes one object, or marks it when finalizers hold it. `call` is `None` for the server's own deletions.
    pub(crate) async fn delete_object(
        &self,
        collection: &CollectionName,
        key: &Key,
        deletion: &Deletion,
        call: Option<&Call>,
    ) -> Result<Deleted, Status> {
        let registry = self.registry();
        let entry = match call {
            Some(call) => call.entry.clone(),
            None => registry.find_collection(collection).cloned().ok_or_else(Status::no_such_path)?,
        };
        let (group, plural) = (entry.resource.group.clone(), entry.resource.plural.clone());
        loop {
            let Some(current) = self.store.get(collection, key) else {
                return Err(Status::not_found(&group, &plural, &key.name));
            };
            self.check_preconditions(deletion, &current, &entry.resource)?;
            let mut value = current.value();
            let mut keep = keepers(&value, deletion.propagation);
            let is_namespace = **collection == *"namespaces";
            let is_crd = **collection == *super::admit::CRD_COLLECTION;
            if is_crd && !is_deleting(&value) {
                keep.push(crd::CLEANUP_FINALIZER.into());
                crd::mark_terminating(&mut value, &self.timestamp());
            }
            if is_namespace {
                protect_namespace(&key.name)?;
            }
            let held = !keep.is_empty() || (is_namespace && namespace_held(&value));
            let expect = Expect::Revision(current.revision);
            let (change, shown) = if held {
                let before = value.clone();
                self.mark_deleting(&mut value, &keep, is_namespace);
                if before == value {
                    return Ok(Deleted::Waiting(current));
                }
                let draft = Draft::new(&mut value).map_err(Status::internal)?;
                (Change::Put(draft), None)
            } else {
                (Change::Delete, Some(current.clone()))
            };
            if deletion.dry_run {
                return Ok(match shown {
                    Some(object) => Deleted::Gone(object),
                    None => Deleted::Waiting(current),
                });
            }
            match self.store.write(collection, key.clone(), expect, change).await {
                Ok(object) if held => return Ok(Deleted::Waiting(object)),
                Ok(object) => {
                    if is_crd {
                        self.reload_registry();
                    }
                    return Ok(Deleted::Gone(object));
                }
                Err(WriteError::Stale | WriteError::Missing) => {}
                Err(other) => return Err(storage_status(other)),
            }
        }
    }

    fn check_preconditions(
        &self,
        deletion: &Deletion,
        current: &Object,
        resource: &Resource,
    ) -> Result<(), Status> {
        let refuse = |what: &str, asked: &str, have: &str, hint: &str| {
            let why = format!(
                "the {what} in the precondition ({asked}) does not match the {what} in record ({have}). The object might have {hint}"
            );
            Err(Status::conflict(&resource.group, &resource.kind, &current.key.name, why))
        };
        if let Some(uid) = &deletion.uid
            && **uid != *current.uid
        {
            return refuse("UID", uid, &current.uid, "been deleted and then recreated");
        }
        if let Some(rv) = &deletion.resource_version
            && *rv != current.revision.to_string()
        {
            return refuse("ResourceVersion", rv, &current.revision.to_string(), "been modified");
        }
        Ok(())
    }

    fn mark_deleting(&self, value: &mut Value, keep: &[String], is_namespace: bool) {
        let now = self.timestamp();
        let first_time = !is_deleting(value);
        let meta = meta_mut(value);
        if first_time {
            meta.insert("deletionTimestamp".into(), Value::String(now));
            if !is_namespace {
                meta.insert("deletionGracePeriodSeconds".into(), 0.into());
            }
            if let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
                meta.insert("generation".into(), (generation + 1).into());
            }
        }
        if keep.is_empty() {
            meta.remove("finalizers");
        } else {
            meta.insert("finalizers".into(), keep.iter().cloned().map(Value::String).collect());
        }
        if is_namespace {
            value["status"]["phase"] = Value::String("Terminating".into());
        }
    }
}

impl Reply {
    /// Leaves out an empty group, as Kubernetes does.
    fn tidy(mut self) -> Self {
        if let Content::Value(value) = &mut self.content
            && value["details"]["group"] == ""
            && let Some(details) = value["details"].as_object_mut()
        {
            details.remove("group");
        }
        self
    }
}

/// The finalizers that the object will have once it is being deleted.
fn keepers(value: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let own = finalizers(value);
    let present = |f: &str| own.contains(&f);
    let mut keep: Vec<String> =
        own.iter().filter(|f| **f != ORPHAN && **f != FOREGROUND).map(ToString::to_string).collect();
    let (orphan, foreground) = match propagation {
        Some(Propagation::Orphan) => (true, false),
        Some(Propagation::Foreground) => (false, true),
        Some(Propagation::Background) => (false, false),
        // Nothing said: what is written on the object stands.
        None => (present(ORPHAN), present(FOREGROUND)),
    };
    if orphan {
        keep.push(ORPHAN.into());
    }
    if foreground {
        keep.push(FOREGROUND.into());
    }
    keep
}

fn namespace_held(value: &Value) -> bool {
    value["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
}

fn protect_namespace(name: &str) -> Result<(), Status> {
    if matches!(name, "default" | "kube-system" | "kube-public") {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Used by the garbage collector.
pub(crate) fn waits_for_dependents(value: &Value) -> bool {
    is_deleting(value) && finalizers(value).contains(&FOREGROUND)
}

pub(crate) fn orphans_dependents(value: &Value) -> bool {
    is_deleting(value) && finalizers(value).contains(&ORPHAN)
}

pub(crate) fn without_finalizer(value: &mut Value, finalizer: &str) {
    let rest: Vec<Value> =
        finalizers(value).into_iter().filter(|f| *f != finalizer).map(|f| Value::String(f.into())).collect();
    let meta = meta_mut(value);
    if rest.is_empty() {
        meta.remove("finalizers");
    } else {
        meta.insert("finalizers".into(), Value::Array(rest));
    }
    debug_assert!(!meta_text(value, "name").is_empty());
}
