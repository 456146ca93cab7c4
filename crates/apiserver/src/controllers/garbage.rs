//! Owner references: what belongs to something that is gone goes too.

use crate::crd::CLEANUP_FINALIZER as CRD_FINALIZER;
use crate::engine::{Engine, Entry};
use crate::store::{Change, CollectionName, Draft, Expect, Key, Object, Scope};
use crate::verbs::{
    Deletion, FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Propagation, finalizers, is_deleting,
    orphans_dependents, waits_for_dependents, without_finalizer,
};
use serde_json::Value;
use std::sync::Arc;

pub(super) const CRD_COLLECTION: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Engine {
    /// The next step of an object that is being deleted.
    pub(super) async fn go_on_deleting(&self, collection: &str, value: &Value) {
        if collection == "namespaces" {
            self.empty_namespace(&text(value, "name")).await;
            return;
        }
        if collection == CRD_COLLECTION {
            self.empty_crd(value).await;
        }
        if orphans_dependents(value) {
            self.orphan(collection, value).await;
        } else if waits_for_dependents(value) {
            self.delete_in_foreground(collection, value).await;
        }
    }

    /// Those that the object owned belong to themselves from now on.
    async fn orphan(&self, collection: &str, value: &Value) {
        let uid = text(value, "uid");
        for (held_in, dependent) in self.store.dependents(&uid) {
            self.edit(&held_in, &dependent.key, |v| disown(v, &uid)).await;
        }
        self.edit(collection, &key_of(value), |v| without_finalizer(v, ORPHAN_FINALIZER)).await;
    }

    async fn delete_in_foreground(&self, collection: &str, value: &Value) {
        let uid = text(value, "uid");
        let mut blocked = false;
        for (held_in, dependent) in self.store.dependents(&uid) {
            let child = dependent.value();
            blocked |= blocks(&child, &uid);
            if is_deleting(&child) {
                continue;
            }
            let others = self.living_owners(&child, Some(&uid));
            if others {
                self.edit(&held_in, &dependent.key, |v| disown(v, &uid)).await;
                continue;
            }
            let deletion = Deletion::by_server_of(&dependent.uid, Some(Propagation::Foreground));
            self.delete_quietly(&held_in, &dependent.key, &deletion).await;
        }
        let blocked = blocked && self.store.dependents(&uid).iter().any(|(_, d)| blocks(&d.value(), &uid));
        if !blocked {
            self.edit(collection, &key_of(value), |v| without_finalizer(v, FOREGROUND_FINALIZER)).await;
        }
    }

    /// An owner is gone: its dependents follow, unless they have another.
    pub(super) async fn collect_dependents(&self, owner: &Object) {
        if owner.uid.is_empty() {
            return;
        }
        for (held_in, dependent) in self.store.dependents(&owner.uid) {
            let child = dependent.value();
            if self.living_owners(&child, Some(&owner.uid)) {
                self.edit(&held_in, &dependent.key, |v| disown(v, &owner.uid)).await;
            } else if !is_deleting(&child) {
                let deletion = Deletion::by_server_of(&dependent.uid, None);
                self.delete_quietly(&held_in, &dependent.key, &deletion).await;
            }
        }
    }

    /// A new object whose owners are all unknown is collected at once.
    pub(super) async fn collect_orphan(&self, collection: &str, value: &Value) {
        if is_deleting(value) || self.living_owners(value, None) {
            return;
        }
        let registry = self.registry();
        let Some(entry) = registry.find_collection(collection) else { return };
        let deletion = Deletion::by_server_of(&text(value, "uid"), None);
        self.delete_quietly(&entry.collection, &key_of(value), &deletion).await;
    }

    /// Whether any owner but `except` is there. An owner of a kind that is not served counts as there: it may be served
    /// again, and what is deleted does not come back.
    fn living_owners(&self, child: &Value, except: Option<&str>) -> bool {
        let registry = self.registry();
        let owners = child["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().any(|owner| {
            let uid = owner["uid"].as_str().unwrap_or_default();
            if except == Some(uid) {
                return false;
            }
            let kind = owner["kind"].as_str().unwrap_or_default();
            let Some(entry) = registry.find_kind(owner["apiVersion"].as_str().unwrap_or_default(), kind)
            else {
                return true;
            };
            let namespace = if entry.resource.namespaced { text(child, "namespace") } else { String::new() };
            if entry.resource.namespaced && namespace.is_empty() {
                // A cluster-scoped object can't have an owner in a namespace: nobody can say whether that one is gone.
                return true;
            }
            let key = Key::new(&namespace, owner["name"].as_str().unwrap_or_default());
            match self.store.get(&entry.collection, &key) {
                Some(found) => *found.uid == *uid && !waits_for_dependents(&found.value()),
                None => false,
            }
        })
    }

    /// A dependent is gone: an owner that waited for it may be next.
    pub(super) async fn unblock_owners(&self, child: &Value) {
        let registry = self.registry();
        for owner in child["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let kind = owner["kind"].as_str().unwrap_or_default();
            let Some(entry) = registry.find_kind(owner["apiVersion"].as_str().unwrap_or_default(), kind)
            else {
                continue;
            };
            let namespace = if entry.resource.namespaced { text(child, "namespace") } else { String::new() };
            let key = Key::new(&namespace, owner["name"].as_str().unwrap_or_default());
            let Some(found) = self.store.get(&entry.collection, &key) else { continue };
            let value = found.value();
            if waits_for_dependents(&value) {
                self.delete_in_foreground(&entry.collection, &value).await;
            }
        }
    }

    /// A CRD goes when its last object has gone.
    async fn empty_crd(&self, crd: &Value) {
        if !finalizers(crd).contains(&CRD_FINALIZER) {
            return;
        }
        let Some(collection) = self.collection_of_crd(crd) else { return };
        for object in self.store.list(&collection.collection, Scope::All).objects {
            let deletion = Deletion::by_server(Propagation::Background);
            self.delete_quietly(&collection.collection, &object.key, &deletion).await;
        }
        self.finish_crd(&collection.collection).await;
    }

    fn collection_of_crd(&self, crd: &Value) -> Option<Arc<Entry>> {
        let group = crd["spec"]["group"].as_str()?;
        let plural = crd["spec"]["names"]["plural"].as_str()?;
        self.registry().find_collection(&format!("{plural}.{group}")).cloned()
    }

    /// Lets go of a deleted CRD whose collection, `collection`, is empty.
    pub(super) async fn finish_crd(&self, collection: &str) {
        if self.store.count(collection) > 0 {
            return;
        }
        // A CRD is named like its collection.
        let key = Key::new("", collection);
        let Some(crd) = self.store.get(CRD_COLLECTION, &key) else { return };
        if is_deleting(&crd.value()) {
            self.edit(CRD_COLLECTION, &key, |v| without_finalizer(v, CRD_FINALIZER)).await;
            self.reload_registry();
        }
    }

    /// A deletion of the server's own. What is gone already, or is another object now, is as it should be; what the
    /// store refused is tried again.
    pub(super) async fn delete_quietly(&self, collection: &CollectionName, key: &Key, deletion: &Deletion) {
        if let Err(status) = self.delete_object(collection, key, deletion, None).await
            && status.code >= 500
        {
            tracing::warn!(%collection, name = %key.name, %status, "a deletion of the server's own was not stored");
            self.try_again();
        }
    }

    /// CRDs that were refused a name get it when the one that had it is gone.
    pub(super) async fn judge_names_again(&self) {
        let _turn = self.crd_turn.lock().await;
        for crd in self.store.list(CRD_COLLECTION, Scope::All).objects {
            let value = crd.value();
            let refused = |c: &Value| c["type"] == "NamesAccepted" && c["status"] == "False";
            if value["status"]["conditions"].as_array().is_some_and(|l| l.iter().any(refused)) {
                self.edit(CRD_COLLECTION, &crd.key, |v| v["status"] = self.crd_status(v)).await;
            }
        }
        self.reload_registry();
    }

    /// Changes an object by the server's own hand; an object that has lost its last finalizer goes.
    pub(super) async fn edit(&self, collection: &str, key: &Key, edit: impl Fn(&mut Value)) {
        let name: crate::store::CollectionName = collection.into();
        loop {
            let Some(current) = self.store.get(collection, key) else { return };
            let before = current.value();
            let mut value = before.clone();
            edit(&mut value);
            let held = value["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
            let gone =
                is_deleting(&value) && finalizers(&value).is_empty() && !(collection == "namespaces" && held);
            if value == before && !gone {
                return;
            }
            let change = if gone {
                Change::Delete
            } else {
                match Draft::new(&mut value) {
                    Ok(draft) => Change::Put(draft),
                    Err(_) => return,
                }
            };
            use crate::store::WriteError::{Missing, Stale};
            match self.store.write(&name, key.clone(), Expect::Revision(current.revision), change).await {
                Err(Stale | Missing) => {}
                Err(error) => {
                    tracing::warn!(collection, name = %key.name, %error, "a change of the server's own was not stored");
                    self.try_again();
                    return;
                }
                Ok(_) => return,
            }
        }
    }
}

fn text(value: &Value, key: &str) -> String {
    value["metadata"][key].as_str().unwrap_or_default().to_string()
}

fn key_of(value: &Value) -> Key {
    Key::new(&text(value, "namespace"), &text(value, "name"))
}

fn blocks(child: &Value, owner_uid: &str) -> bool {
    let owners = child["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|o| o["uid"] == owner_uid && o["blockOwnerDeletion"] == true)
}

fn disown(value: &mut Value, uid: &str) {
    let Some(meta) = value["metadata"].as_object_mut() else { return };
    if let Some(owners) = meta.get_mut("ownerReferences").and_then(Value::as_array_mut) {
        owners.retain(|o| o["uid"] != uid);
        if owners.is_empty() {
            meta.remove("ownerReferences");
        }
    }
}
