//! The objects that the simulated controllers look at, read once each, and what they want done to them.

use butler_apiserver::store::{Event, EventKind, Key, Object, Scope, Store};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(super) const NODES: &str = "nodes";
pub(super) const PODS: &str = "pods";
pub(super) const NAMESPACES: &str = "namespaces";
pub(super) const SERVICES: &str = "services";
pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const DAEMON_SETS: &str = "daemonsets.apps";
pub(super) const DEPLOYMENTS: &str = "deployments.apps";
pub(super) const REPLICA_SETS: &str = "replicasets.apps";
pub(super) const STATEFUL_SETS: &str = "statefulsets.apps";
pub(super) const JOBS: &str = "jobs.batch";
pub(super) const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";
pub(super) const ENDPOINT_SLICES: &str = "endpointslices.discovery.k8s.io";
pub(super) const LEASES: &str = "leases.coordination.k8s.io";
pub(super) const ADDRESS_POOLS: &str = "ipaddresspools.metallb.io";
pub(super) const SERVICE_ACCOUNTS: &str = "serviceaccounts";
pub(super) const SECRETS: &str = "secrets";
pub(super) const CONFIG_MAPS: &str = "configmaps";

const READ: [&str; 15] = [
    NODES,
    PODS,
    NAMESPACES,
    SERVICES,
    CLAIMS,
    VOLUMES,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    STORAGE_CLASSES,
    ENDPOINT_SLICES,
    LEASES,
    ADDRESS_POOLS,
];
/// Only known to be there: their content is nobody's business here.
const NAMED: [&str; 3] = [SERVICE_ACCOUNTS, SECRETS, CONFIG_MAPS];

/// The state of a cluster as its controllers see it. Clones share the objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    held: HashMap<&'static str, BTreeMap<Key, Arc<Value>>>,
}

/// Something that a controller wants done. Applied in order; what has changed meanwhile is left for the next round.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Through the API, with all its defaults and checks.
    Create {
        collection: &'static str,
        value: Value,
    },
    /// A new state of an object, if it is still the one that was looked at.
    Put {
        collection: &'static str,
        value: Value,
    },
    Delete {
        collection: &'static str,
        key: Key,
    },
    /// A line for people, about `regarding`.
    Tell {
        regarding: Arc<Value>,
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

impl Objects {
    pub(super) fn read(store: &Store) -> Self {
        let mut objects = Self::default();
        for collection in READ.into_iter().chain(NAMED) {
            for object in store.list(collection, Scope::All).objects {
                objects.put(collection, &object);
            }
        }
        objects
    }

    /// Takes a change in; `false` when it is none that matters here.
    pub(super) fn take(&mut self, collection: &str, event: &Event) -> bool {
        let Some(collection) = READ.into_iter().chain(NAMED).find(|known| *known == collection) else {
            return false;
        };
        if event.kind == EventKind::Deleted {
            self.held.entry(collection).or_default().remove(&event.object.key);
        } else {
            self.put(collection, &event.object);
        }
        true
    }

    fn put(&mut self, collection: &'static str, object: &Object) {
        let value = if NAMED.contains(&collection) { Value::Null } else { object.value() };
        self.held.entry(collection).or_default().insert(object.key.clone(), Arc::new(value));
    }

    pub(super) fn all(&self, collection: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.held.get(collection).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn get(&self, collection: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.held.get(collection)?.get(&Key::new(namespace, name))
    }

    pub(super) fn has(&self, collection: &str, namespace: &str, name: &str) -> bool {
        self.get(collection, namespace, name).is_some()
    }

    /// Objects by the uid of their controller.
    pub(super) fn owned(&self, collection: &str) -> HashMap<String, Vec<Arc<Value>>> {
        let mut owned: HashMap<String, Vec<Arc<Value>>> = HashMap::new();
        for object in self.all(collection) {
            if let Some(uid) = controller_uid(object) {
                owned.entry(uid.to_string()).or_default().push(object.clone());
            }
        }
        owned
    }

    #[cfg(test)]
    pub(super) fn remove(&mut self, collection: &'static str, key: &Key) {
        self.held.entry(collection).or_default().remove(key);
    }

    #[cfg(test)]
    pub(super) fn with(mut self, collection: &'static str, values: Vec<Value>) -> Self {
        for value in values {
            self.held.entry(collection).or_default().insert(key(&value), Arc::new(value));
        }
        self
    }
}

/// The text at a pointer, or nothing.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn name(value: &Value) -> &str {
    text(value, "/metadata/name")
}

pub(super) fn namespace(value: &Value) -> &str {
    text(value, "/metadata/namespace")
}

pub(super) fn uid(value: &Value) -> &str {
    text(value, "/metadata/uid")
}

pub(super) fn key(value: &Value) -> Key {
    Key::new(namespace(value), name(value))
}

pub(super) fn label<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.pointer("/metadata/labels")?.get(key)?.as_str()
}

pub(super) fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.pointer("/metadata/annotations")?.get(key)?.as_str()
}

pub(super) fn is_deleting(value: &Value) -> bool {
    value.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

pub(super) fn controller_uid(value: &Value) -> Option<&str> {
    let owner = list(value, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str()
}

/// The reference that makes `owner` the controller of something.
pub(super) fn owned_by(owner: &Value, api_version: &str, kind: &str) -> Value {
    serde_json::json!([{
        "apiVersion": api_version, "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// `object` with another status, when it is another.
pub(super) fn with_status(collection: &'static str, object: &Value, status: Value) -> Option<Action> {
    if object.get("status") == Some(&status) {
        return None;
    }
    let mut value = object.clone();
    value["status"] = status;
    Some(Action::Put { collection, value })
}

/// A condition; its time of change is kept as long as its status is.
pub(super) fn condition(
    old: &[Value],
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> Value {
    let before = old.iter().find(|c| c["type"] == kind && c["status"] == status);
    let since = before.and_then(|c| c["lastTransitionTime"].as_str()).unwrap_or(now);
    let mut made = serde_json::json!({"type": kind, "status": status, "lastTransitionTime": since});
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            made[field] = text.into();
        }
    }
    made
}

/// Whether a condition of the status holds.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    list(object, "/status/conditions").iter().any(|c| c["type"] == kind && c["status"] == "True")
}

/// Leaves out what Kubernetes leaves out: counts of zero.
pub(super) fn counts(status: &mut Value, counts: &[(&str, usize)]) {
    for (name, count) in counts {
        if *count > 0 {
            status[*name] = (*count).into();
        }
    }
}
