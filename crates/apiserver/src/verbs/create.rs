//! POST.

use super::admit::{CRD_COLLECTION, Incoming, is_deleting, meta_mut, meta_text, to_storage};
use crate::apply;
use crate::builtin::{self, ServicePool};
use crate::crd;
use crate::engine::{Call, Engine, Entry};
use crate::http::reply::{Content, Reply};
use crate::random;
use crate::status::{FieldError, Status};
use crate::store::{Change, Draft, Expect, Key, Object, Scope, WriteError};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// How often a generated name that is taken is drawn again.
const NAME_TRIES: usize = 8;

impl Engine {
    pub(crate) async fn create(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let incoming = call.decode_object(body)?;
        let Incoming { mut value, warnings } = incoming;
        self.own_metadata(call, &mut value)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.create_object(call, value.clone(), None).await {
                Err(status)
                    if status.reason == "AlreadyExists" && generated(&value) && tries < NAME_TRIES => {}
                Err(status) => return Err(status),
                Ok(mut reply) => {
                    reply.warnings.extend(warnings);
                    return Ok(reply.with_code(201));
                }
            }
        }
    }

    /// The namespace of the path is the object's; another one in the body is a mistake.
    pub(super) fn own_metadata(&self, call: &Call, value: &mut Value) -> Result<(), Status> {
        let resource = &call.entry.resource;
        let meta = meta_mut(value);
        let given = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
        match (&call.namespace, resource.namespaced) {
            (Some(ns), true) => {
                if !given.is_empty() && given != ns {
                    return Err(Status::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                meta.insert("namespace".into(), Value::String(ns.clone()));
            }
            (None, true) => {
                return Err(Status::method_not_allowed());
            }
            (_, false) if !given.is_empty() => {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            (_, false) => {
                meta.remove("namespace");
            }
        }
        Ok(())
    }

    /// Creates an object from what a client wants it to be. `applied` is set when the fields are owned already, by a
    /// server-side apply.
    pub(crate) async fn create_object(
        &self,
        call: &Call,
        mut value: Value,
        applied: Option<()>,
    ) -> Result<Reply, Status> {
        let entry = &call.entry;
        let resource = &entry.resource;
        let now = self.timestamp();
        name_it(&mut value);
        let meta = meta_mut(&mut value);
        for key in
            ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"]
        {
            let given = meta.get(key).and_then(Value::as_str).is_some_and(|rv| !rv.is_empty() && rv != "0");
            // An apply of an object that is not there passes over it, as the real server does.
            if key == "resourceVersion" && given && applied.is_none() {
                return Err(Status::unexplained(
                    "resourceVersion should not be set on objects to be created",
                ));
            }
            meta.remove(key);
        }
        meta.insert("uid".into(), Value::String(random::uuid()));
        meta.insert("creationTimestamp".into(), Value::String(now.clone()));
        if resource.is_custom() || builtin::has_generation(resource) {
            meta.insert("generation".into(), 1.into());
        }
        if resource.has_status
            && resource.is_custom()
            && let Some(object) = value.as_object_mut()
        {
            object.remove("status");
        }
        self.shape(entry, &mut value);
        builtin::prepare_create(resource, &mut value);
        if resource.namespaced {
            self.check_namespace(entry, meta_text(&value, "namespace"), meta_text(&value, "name"))?;
        }
        if applied.is_none() {
            apply::track_update(&self.tracking(call, &now), None, &mut value);
        }
        let _turn = self.service_turn(entry).await;
        let mut errors = self.allocate(entry, &mut value);
        errors.extend(self.problems(entry, &value, None, ""));
        if !errors.is_empty() {
            return Err(self.invalid(entry, &value, &errors));
        }
        self.guard(call, &value, None)?;
        self.check_crd_stays(call, meta_text(&value, "name"))?;
        let object = self.store_new(call, value).await?;
        Ok(self.reply_object(call, object))
    }

    async fn store_new(&self, call: &Call, mut value: Value) -> Result<Arc<Object>, Status> {
        let resource = &call.entry.resource;
        let is_crd = **call.collection() == *CRD_COLLECTION;
        let _turn = if is_crd { Some(self.crd_turn.lock().await) } else { None };
        if is_crd {
            value["status"] = self.crd_status(&value);
        }
        let name = meta_text(&value, "name").to_string();
        let key = Key::new(meta_text(&value, "namespace"), &name);
        to_storage(&mut value, &call.entry);
        let draft = Draft::new(&mut value).map_err(Status::internal)?;
        if call.dry_run {
            if self.store.get(call.collection(), &key).is_some() {
                return Err(Status::already_exists(&resource.group, &resource.plural, &name));
            }
            return Ok(Arc::new(draft.seal_unsaved(key)));
        }
        let taken = key.clone();
        let written = self.store.write(call.collection(), key, Expect::Absent, Change::Put(draft)).await;
        let object = written.map_err(|error| match error {
            WriteError::Exists => self.already_there(call, &name, &taken),
            other => storage_status(other),
        })?;
        if is_crd {
            self.reload_registry();
        }
        Ok(object)
    }

    /// The answer that shows one object, in the version the client speaks.
    pub(crate) fn reply_object(&self, call: &Call, object: Arc<Object>) -> Reply {
        if call.entry.storage.is_none() {
            return Reply::ok(Content::Object(object));
        }
        Reply::value(self.view(&call.entry, &object))
    }

    /// Addresses are given out one service at a time.
    pub(super) async fn service_turn(&self, entry: &Entry) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if *entry.collection == *"services" { Some(self.service_turn.lock().await) } else { None }
    }

    /// The addresses and ports that a service has not got yet.
    pub(super) fn allocate(&self, entry: &Entry, value: &mut Value) -> Vec<FieldError> {
        if *entry.collection != *"services" {
            return Vec::new();
        }
        let own = Key::new(meta_text(value, "namespace"), meta_text(value, "name"));
        let others = self.store.list("services", Scope::All).objects;
        let others: Vec<Value> = others.iter().filter(|o| o.key != own).map(|o| o.value()).collect();
        let ip_used = |ip: Ipv4Addr| others.iter().any(|s| s["spec"]["clusterIP"] == ip.to_string().as_str());
        let node_port_used = |port: u16| {
            let ports = others.iter().flat_map(|s| s["spec"]["ports"].as_array().into_iter().flatten());
            ports.into_iter().any(|p| p["nodePort"] == port)
        };
        let mut random = || u32::from_le_bytes(random::bytes());
        let mut pool =
            ServicePool { ip_used: &ip_used, node_port_used: &node_port_used, random: &mut random };
        builtin::allocate_service(value, &mut pool)
    }

    /// The name is taken, perhaps by an object on its way out.
    fn already_there(&self, call: &Call, name: &str, key: &Key) -> Status {
        let resource = &call.entry.resource;
        let mut status = Status::already_exists(&resource.group, &resource.plural, name);
        if self.store.get(call.collection(), key).is_some_and(|o| is_deleting(&o.value())) {
            status.message = format!("object is being deleted: {}", status.message);
        }
        status
    }

    /// No new objects of a kind that is going away.
    fn check_crd_stays(&self, call: &Call, name: &str) -> Result<(), Status> {
        let resource = &call.entry.resource;
        let Some(facts) = &resource.crd else { return Ok(()) };
        let crd = self.store.get(CRD_COLLECTION, &Key::new("", &facts.crd_name));
        if crd.is_some_and(|c| is_deleting(&c.value())) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, name, why));
        }
        Ok(())
    }

    /// What a CRD's status will be once it is stored, among the others that are there.
    pub(crate) fn crd_status(&self, crd: &Value) -> Value {
        let others =
            self.crds_beside(meta_text(crd, "name"), crd["spec"]["group"].as_str().unwrap_or_default());
        crd::accepted_conditions(crd, &others.iter().collect::<Vec<_>>(), &self.timestamp())
    }

    /// The other CRDs of a group. Only they can hold a name that this one wants, and a CRD's name ends with its group.
    fn crds_beside(&self, name: &str, group: &str) -> Vec<Value> {
        let all = self.store.list(CRD_COLLECTION, Scope::All).objects;
        let in_group = |other: &str| other.split_once('.').is_some_and(|(_, rest)| rest == group);
        all.iter().filter(|o| &*o.key.name != name && in_group(&o.key.name)).map(|o| o.value()).collect()
    }

    /// Who the changed fields of this call go to.
    pub(crate) fn tracking<'a>(&self, call: &'a Call, now: &'a str) -> apply::Request<'a> {
        apply::Request {
            schema: call.entry.resource.schema(),
            api_version: &call.entry.api_version,
            kind: &call.entry.resource.kind,
            builtin: !call.entry.resource.is_custom(),
            manager: &call.manager,
            subresource: call.subresource(),
            force: call.params.flag("force"),
            now,
            reset: match (call.subresource(), call.entry.resource.has_status) {
                ("status", _) => apply::Reset::AllButStatus,
                (_, true) => apply::Reset::Status,
                _ => apply::Reset::Nothing,
            },
        }
    }
}

fn generated(value: &Value) -> bool {
    meta_text(value, "name").is_empty() && !meta_text(value, "generateName").is_empty()
}

/// Draws a name where only its beginning was given.
fn name_it(value: &mut Value) {
    if !generated(value) {
        return;
    }
    // 63 characters in all, as Kubernetes cuts it.
    let base: String = meta_text(value, "generateName").chars().take(58).collect();
    meta_mut(value).insert("name".into(), Value::String(format!("{base}{}", random::name_suffix())));
}

/// A write that the store could not make.
pub(crate) fn storage_status(error: WriteError) -> Status {
    match error {
        WriteError::Closed => Status::new(503, "ServiceUnavailable", "the server is shutting down"),
        WriteError::Journal(error) => {
            let mut status = Status::internal(format!("the write was not stored: {error}"));
            status.code = 507;
            status
        }
        other => Status::internal(other),
    }
}
