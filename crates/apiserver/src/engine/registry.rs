//! What is served at this moment: the built-in kinds and those of the CRDs. Immutable; a CRD change makes a new one.

use crate::builtin;
use crate::crd;
use crate::resource::Resource;
use crate::schema::{self, Rules};
use crate::store::{CollectionName, Scope, Store};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A served resource with what is derived from it once.
pub(crate) struct Entry {
    pub(crate) resource: Arc<Resource>,
    pub(crate) collection: CollectionName,
    /// `v1`, `apps/v1`.
    pub(crate) api_version: String,
    /// CEL rules; empty for built-in kinds.
    pub(crate) rules: Rules,
    /// The entry whose version is written to storage; `None` when it is this one.
    pub(crate) storage: Option<Arc<Entry>>,
    /// metadata.generation of the CRD; 0 for built-in kinds.
    crd_generation: i64,
}

pub(crate) struct Registry {
    /// The last change of a CRD that is in here.
    as_of: u64,
    entries: HashMap<(String, String, String), Arc<Entry>>,
    /// In the order of discovery.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// What each CRD brings, by its name, with the revision that was read: compiling its rules is the costly part.
    definitions: HashMap<String, (u64, Vec<Served>)>,
    /// Discovery and OpenAPI documents, made when first asked for.
    documents: Mutex<HashMap<String, Option<Bytes>>>,
}

/// A version of a CRD, and whether it is served.
type Served = (Arc<Entry>, bool);

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// `deployments.apps`, `pods`.
pub(crate) fn collection_name(group: &str, plural: &str) -> CollectionName {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

impl Registry {
    /// What the store holds. CRDs that `before` knows as they are now are taken from there.
    pub(crate) fn from_store(store: &Store, before: Option<&Registry>) -> Self {
        let mut registry = Self {
            as_of: store.last_change(&[CRDS]),
            entries: HashMap::new(),
            resources: Vec::new(),
            definitions: HashMap::new(),
            documents: Mutex::default(),
        };
        for resource in builtin::resources() {
            registry.add(Arc::new(Entry {
                collection: collection_name(&resource.group, &resource.plural),
                api_version: resource.api_version(),
                resource,
                rules: Rules::default(),
                storage: None,
                crd_generation: 0,
            }));
        }
        registry.share_events();
        let crds = store.list(CRDS, Scope::All);
        for object in crds.objects {
            let known = before.and_then(|before| before.definitions.get(&*object.key.name));
            let versions = match known {
                Some((revision, versions)) if *revision == object.revision => versions.clone(),
                _ => versions_of(&object.value()),
            };
            for (entry, _) in versions.iter().filter(|(_, served)| *served) {
                registry.add(entry.clone());
            }
            registry.definitions.insert(object.key.name.to_string(), (object.revision, versions));
        }
        registry
    }

    pub(crate) fn is_current(&self, store: &Store) -> bool {
        self.as_of == store.last_change(&[CRDS])
    }

    /// `events.k8s.io` shows the events of the core group.
    fn share_events(&mut self) {
        let Some(core) = self.find("", "v1", "events").cloned() else { return };
        let key = ("events.k8s.io".to_string(), "v1".to_string(), "events".to_string());
        if let Some(other) = self.entries.get(&key) {
            let entry = Entry {
                resource: other.resource.clone(),
                collection: core.collection.clone(),
                api_version: other.api_version.clone(),
                rules: Rules::default(),
                storage: Some(core),
                crd_generation: 0,
            };
            self.entries.insert(key, Arc::new(entry));
        }
    }

    fn add(&mut self, entry: Arc<Entry>) {
        let r = &entry.resource;
        let key = (r.group.clone(), r.version.clone(), r.plural.clone());
        self.resources.push(r.clone());
        self.entries.insert(key, entry);
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Entry>> {
        self.entries.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// Any served version of a kind: for references that name apiVersion and kind.
    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Entry>> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.entries.values().find(|e| e.resource.group == group && e.resource.kind == kind)
    }

    /// An entry for a collection, whatever the version.
    pub(crate) fn find_collection(&self, collection: &str) -> Option<&Arc<Entry>> {
        self.entries
            .values()
            .find(|e| &*e.collection == collection && e.storage.is_none())
            .or_else(|| self.entries.values().find(|e| &*e.collection == collection))
    }

    pub(crate) fn is_builtin_group(&self, group: &str, version: &str) -> bool {
        self.resources.iter().any(|r| r.group == group && r.version == version && !r.is_custom())
    }

    /// A document, from the cache or made now. `None` when there is no such document.
    pub(crate) fn document(
        &self,
        key: &str,
        make: impl FnOnce(&[Arc<Resource>]) -> Option<Bytes>,
    ) -> Option<Bytes> {
        let mut documents = self.documents.lock();
        documents.entry(key.to_string()).or_insert_with(|| make(&self.resources)).clone()
    }

    /// A kind that is new has no past.
    pub(crate) fn begin_collections(&self, store: &Store) {
        for entry in self.entries.values().filter(|e| e.resource.is_custom()) {
            store.begin(&entry.collection);
        }
    }

    /// When the schema that objects are stored under has changed, shows them as if they were read through the new one.
    pub(crate) fn reshape_changed(&self, old: &Registry, store: &Store) {
        for entry in self.entries.values().filter(|e| e.resource.is_custom() && e.storage.is_none()) {
            let r = &entry.resource;
            let before = old.find(&r.group, &r.version, &r.plural).map_or(0, |e| e.crd_generation);
            if before == entry.crd_generation || (before == 0 && entry.crd_generation <= 1) {
                continue;
            }
            store.reshape(&entry.collection, |object| {
                let old = object.value();
                let mut new = old.clone();
                schema::prune(r.schema(), &mut new);
                schema::apply_defaults(r.schema(), &mut new);
                if new == old { None } else { object.reshaped(&mut new).ok() }
            });
        }
    }
}

/// All versions of a CRD, the stored one first.
fn versions_of(crd: &serde_json::Value) -> Vec<Served> {
    if !crd::is_established(crd) {
        return Vec::new();
    }
    let generation = crd["metadata"]["generation"].as_i64().unwrap_or(1);
    let (stored, others): (Vec<_>, Vec<_>) = crd::versions(crd)
        .into_iter()
        .partition(|(r, _)| r.crd.as_ref().is_some_and(|c| c.storage_version == r.version));
    let mut storage = None;
    let entries = stored.into_iter().chain(others).map(|(resource, served)| {
        let entry = Arc::new(Entry {
            collection: collection_name(&resource.group, &resource.plural),
            api_version: resource.api_version(),
            rules: Rules::compile(resource.schema()).0,
            resource: Arc::new(resource),
            storage: storage.clone(),
            crd_generation: generation,
        });
        storage.get_or_insert_with(|| entry.clone());
        (entry, served)
    });
    entries.collect()
}
