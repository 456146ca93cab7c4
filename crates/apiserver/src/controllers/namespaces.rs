//! Namespaces: what each has from the start, and how they end.

use crate::engine::Engine;
use crate::store::{Change, Draft, Expect, Key, Scope};
use crate::verbs::{Deletion, Propagation, is_deleting};
use serde_json::{Value, json};

impl Engine {
    /// A default service account and the cluster's CA, which every workload expects.
    pub(super) async fn furnish(&self, namespace: &str) {
        let alive = self.namespace(namespace).is_some_and(|n| !is_deleting(&n.value()));
        if !alive {
            return;
        }
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace}});
        let ca = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": self.ca_pem},
            "metadata": {"name": "kube-root-ca.crt", "namespace": namespace}});
        self.provide(vec![account, ca]).await;
    }

    /// Creates those of the server's own objects that are not there, in one batch.
    pub(crate) async fn provide(&self, objects: Vec<Value>) {
        use crate::store::WriteError::{Closed, Exists};
        let registry = self.registry();
        let now = self.timestamp();
        let missing = objects.into_iter().filter_map(|mut value| {
            let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let entry = registry.find_kind(text("/apiVersion"), text("/kind"))?;
            let key = Key::new(text("/metadata/namespace"), text("/metadata/name"));
            if self.store.get(&entry.collection, &key).is_some() {
                return None;
            }
            value["metadata"]["uid"] = Value::String(crate::random::uuid());
            value["metadata"]["creationTimestamp"] = Value::String(now.clone());
            let draft = Draft::new(&mut value).ok()?;
            Some((entry.collection.clone(), key, Expect::Absent, Change::Put(draft)))
        });
        for receipt in self.store.submit(missing.collect::<Vec<_>>()) {
            let outcome = match receipt {
                Ok(receipt) => receipt.await.unwrap_or(Err(Closed)),
                Err(refusal) => Err(refusal),
            };
            match outcome {
                Ok(_) | Err(Exists | Closed) => {}
                Err(error) => {
                    tracing::warn!(%error, "an object of the server's own was not stored");
                    self.try_again();
                }
            }
        }
    }

    /// Deletes all that is in a namespace; what finalizers hold is waited for.
    pub(super) async fn empty_namespace(&self, namespace: &str) {
        let registry = self.registry();
        for collection in self.store.collections() {
            let Some(entry) = registry.find_collection(&collection) else { continue };
            if !entry.resource.namespaced {
                continue;
            }
            for object in self.store.list(&collection, Scope::Namespace(namespace)).objects {
                let deletion = Deletion::by_server(Propagation::Background);
                self.delete_quietly(&collection, &object.key, &deletion).await;
            }
        }
        self.finish_namespace(namespace).await;
    }

    /// The end of a namespace that is being deleted and is empty; else says what it still holds.
    pub(super) async fn finish_namespace(&self, namespace: &str) {
        let Some(object) = self.namespace(namespace) else { return };
        if !is_deleting(&object.value()) {
            return;
        }
        let left = self.left_in(namespace);
        let key = Key::new("", namespace);
        if left.is_empty() {
            self.edit("namespaces", &key, |value| {
                value["spec"]["finalizers"] = json!([]);
            })
            .await;
            return;
        }
        let now = self.timestamp();
        self.edit("namespaces", &key, |value| say_what_is_left(value, &left, &now)).await;
    }

    fn left_in(&self, namespace: &str) -> Vec<(String, usize, Vec<String>)> {
        let registry = self.registry();
        let mut left = Vec::new();
        for collection in self.store.collections() {
            // What no CRD serves any more can't be deleted by anyone, and holds nobody up.
            if registry.find_collection(&collection).is_none() {
                continue;
            }
            let objects = self.store.list(&collection, Scope::Namespace(namespace)).objects;
            if objects.is_empty() {
                continue;
            }
            let mut finalizers: Vec<String> = Vec::new();
            for object in &objects {
                let value = object.value();
                finalizers.extend(crate::verbs::finalizers(&value).into_iter().map(str::to_string));
            }
            finalizers.sort();
            finalizers.dedup();
            left.push((collection.to_string(), objects.len(), finalizers));
        }
        left.sort();
        left
    }
}

fn say_what_is_left(value: &mut Value, left: &[(String, usize, Vec<String>)], now: &str) {
    let content =
        left.iter().map(|(c, n, _)| format!("{c} has {n} resource instances")).collect::<Vec<_>>().join(", ");
    let held = left.iter().flat_map(|(_, _, f)| f.clone()).collect::<Vec<_>>();
    let condition = |kind: &str, reason: &str, message: String| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let mut conditions = vec![condition(
        "NamespaceContentRemaining",
        "SomeResourcesRemain",
        format!("Some resources are remaining: {content}"),
    )];
    if !held.is_empty() {
        let text = format!("Some content in the namespace has finalizers remaining: {}", held.join(", "));
        conditions.push(condition("NamespaceFinalizersRemaining", "SomeFinalizersRemain", text));
    }
    // The same words under a new time would wake this controller for ever.
    let same = |a: &Value, b: &Value| a["type"] == b["type"] && a["message"] == b["message"];
    let old = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if old.len() == conditions.len() && old.iter().zip(&conditions).all(|(a, b)| same(a, b)) {
        return;
    }
    value["status"]["conditions"] = Value::Array(conditions);
}
