//! What is known of a cluster's objects, kept up to date by watches, so that looking costs no call.
//!
//! Only what judging needs is kept: of a CRD its conditions, of a pod its state.

use super::inventory::LABEL_INVENTORY;
use super::kinds::{self, ObjectRef};
use super::objects::LABEL_ADDON;
use super::readiness;
use super::trouble;
use butler_drivers::Failure;
use futures::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What is watched: the kind, the label that selects, the fields that are kept, and whether a change of readiness wakes.
struct Watched {
    api_version: &'static str,
    kind: &'static str,
    label: Option<&'static str>,
    keep: &'static [&'static str],
    wakes: bool,
}

const WATCHED: [Watched; 9] = [
    workload("apps/v1", "Deployment"),
    workload("apps/v1", "DaemonSet"),
    workload("apps/v1", "StatefulSet"),
    workload("batch/v1", "Job"),
    workload("v1", "Service"),
    Watched { keep: &["status"], ..workload("apiextensions.k8s.io/v1", "CustomResourceDefinition") },
    Watched { label: Some(LABEL_INVENTORY), keep: &["data"], ..workload("v1", "Secret") },
    Watched { label: None, ..workload("v1", "Node") },
    // Pods tell the cause when their workload is not ready. Their own comings and goings matter to nobody.
    Watched { label: None, keep: &["status"], wakes: false, ..workload("v1", "Pod") },
];

const fn workload(api_version: &'static str, kind: &'static str) -> Watched {
    Watched { api_version, kind, label: Some(LABEL_ADDON), keep: &["spec", "status"], wakes: true }
}

/// Objects of one kind, by namespace and name.
type Listing = BTreeMap<(String, String), Arc<Value>>;

/// Objects of one cluster.
#[derive(Default)]
pub(crate) struct Memory {
    state: RwLock<State>,
    /// Counts changes that can matter to readiness.
    changes: watch::Sender<u64>,
    /// Nothing is waited for.
    calm: AtomicBool,
}

#[derive(Default)]
struct State {
    objects: HashMap<&'static str, Listing>,
    /// Objects that writes have told of since the last list of their kind was begun: it may have missed them.
    learned: HashMap<&'static str, BTreeSet<(String, String)>>,
    /// Kinds whose list has come, and the failure of those whose last one has not.
    listed: HashMap<&'static str, Result<(), Failure>>,
}

impl Memory {
    /// Starts the watches. They end when the handles are aborted.
    pub(crate) fn start(client: &Client) -> (Arc<Self>, Vec<tokio::task::AbortHandle>) {
        let memory = Arc::new(Self::default());
        let follow = |watched| tokio::spawn(memory.clone().follow(client.clone(), watched)).abort_handle();
        let tasks = WATCHED.iter().map(follow).collect();
        (memory, tasks)
    }

    /// Whether this kind is known by heart.
    pub(crate) fn knows(kind: &str) -> bool {
        WATCHED.iter().any(|watched| watched.kind == kind)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn rest(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    pub(crate) fn revision(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Whether all first lists have come; the failure of one that has not.
    pub(crate) fn listed(&self) -> Result<bool, Failure> {
        let state = self.state.read();
        let mut all = true;
        for watched in &WATCHED {
            match state.listed.get(watched.kind) {
                Some(Ok(())) => {}
                Some(Err(failure)) => return Err(failure.clone()),
                None => all = false,
            }
        }
        Ok(all)
    }

    pub(crate) fn get(&self, of: &ObjectRef) -> Option<Arc<Value>> {
        let state = self.state.read();
        state.objects.get(of.kind.as_str())?.get(&(of.namespace.clone(), of.name.clone())).cloned()
    }

    pub(crate) fn all(&self, kind: &str) -> Vec<Arc<Value>> {
        self.state.read().objects.get(kind).map(|all| all.values().cloned().collect()).unwrap_or_default()
    }

    /// Remembers the answer to a write: the watch may bring it only later.
    pub(crate) fn learn(&self, of: &ObjectRef, object: &Value) {
        let Some(watched) = WATCHED.iter().find(|watched| watched.kind == of.kind) else { return };
        let metadata = object.pointer("/metadata/labels");
        let selected = watched.label.is_none_or(|label| metadata.is_some_and(|all| all.get(label).is_some()));
        if selected {
            let object = kept(watched, object.clone());
            self.state.write().learned.entry(watched.kind).or_default().insert(key(&object));
            self.store(watched, object);
        }
    }

    async fn follow(self: Arc<Self>, client: Client, watched: &'static Watched) {
        let Some(kind) = kinds::known(watched.api_version, watched.kind) else { return };
        let api: Api<DynamicObject> = Api::all_with(client, &kind.resource);
        let config = watched
            .label
            .map_or_else(watcher::Config::default, |label| watcher::Config::default().labels(label));
        loop {
            // A connection can die without a word, for one when the address moves to another node. A watch that says nothing
            // for long is begun anew with a list; the server ends it a little earlier.
            let quiet = if self.calm.load(Ordering::Relaxed) { QUIET_WHEN_CALM } else { QUIET };
            let config = config.clone().timeout(quiet.as_secs() as u32 - 10);
            let mut events = watcher(api.clone(), config).backoff(Patience::default()).boxed();
            let mut listing = BTreeMap::new();
            while let Ok(Some(event)) = tokio::time::timeout(quiet, events.next()).await {
                self.take(watched, event, &mut listing);
            }
        }
    }

    fn take(
        &self,
        watched: &'static Watched,
        event: Result<watcher::Event<DynamicObject>, watcher::Error>,
        listing: &mut Listing,
    ) {
        match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                self.state.write().learned.remove(watched.kind);
            }
            Ok(watcher::Event::InitApply(object)) => {
                let value = self.value(watched, object);
                listing.insert(key(&value), Arc::new(value));
            }
            Ok(watcher::Event::InitDone) => self.replace(watched, std::mem::take(listing)),
            Ok(watcher::Event::Apply(object)) => self.store(watched, self.value(watched, object)),
            Ok(watcher::Event::Delete(object)) => self.forget(watched, &object),
            Err(error) => self.fail(watched, &error),
        }
    }

    fn value(&self, watched: &Watched, mut object: DynamicObject) -> Value {
        object.managed_fields_mut().clear();
        let of = reference(watched, &object);
        kept(watched, kinds::to_value(object, &of))
    }

    /// A whole new list: what is not in it is gone, unless a write has told of it meanwhile. Quiet watches end with one every
    /// now and then, which mostly says what is known already.
    fn replace(&self, watched: &'static Watched, mut listing: Listing) {
        let wakes = {
            let mut state = self.state.write();
            let old = state.objects.remove(watched.kind).unwrap_or_default();
            let learned = state.learned.remove(watched.kind).unwrap_or_default();
            for (key, object) in old.iter().filter(|(key, _)| learned.contains(key)) {
                if listing.get(key).is_none_or(|listed| version(object) > version(listed)) {
                    listing.insert(key.clone(), object.clone());
                }
            }
            let alike = old.len() == listing.len()
                && old.iter().zip(&listing).all(|((key, before), (listed, now))| {
                    key == listed && (Arc::ptr_eq(before, now) || weight(before) == weight(now))
                });
            state.objects.insert(watched.kind, listing);
            let known = matches!(state.listed.insert(watched.kind, Ok(())), Some(Ok(())));
            !known || (watched.wakes && !alike)
        };
        if wakes {
            self.wake();
        }
    }

    fn store(&self, watched: &'static Watched, object: Value) {
        let wakes = {
            let mut state = self.state.write();
            let all = state.objects.entry(watched.kind).or_default();
            let key = key(&object);
            let before = all.get(&key);
            if before.is_some_and(|before| version(before) > version(&object)) {
                return;
            }
            let matters = watched.wakes && before.is_none_or(|before| weight(before) != weight(&object));
            all.insert(key, Arc::new(object));
            matters
        };
        if wakes {
            self.wake();
        }
    }

    fn forget(&self, watched: &'static Watched, object: &DynamicObject) {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        if let Some(all) = self.state.write().objects.get_mut(watched.kind) {
            all.remove(&key);
        }
        if watched.wakes {
            self.wake();
        }
    }

    fn fail(&self, watched: &'static Watched, error: &watcher::Error) {
        let of = ObjectRef {
            api_version: watched.api_version.to_owned(),
            kind: watched.kind.to_owned(),
            namespace: String::new(),
            name: "of the cluster".to_owned(),
        };
        let (failure, is_list) = match error {
            watcher::Error::InitialListFailed(error) => (trouble::failure("list every", &of, error), true),
            watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
                (trouble::failure("watch every", &of, error), false)
            }
            // The history was forgotten or the stream ended: the next list mends it.
            _ => return,
        };
        {
            // A watch that broke is begun again where it was; what is known stays true meanwhile.
            let mut state = self.state.write();
            if !is_list && matches!(state.listed.get(watched.kind), Some(Ok(()))) {
                return;
            }
            state.listed.insert(watched.kind, Err(failure));
        }
        self.wake();
    }

    fn wake(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }
}

/// What can make a difference to whoever waits.
fn weight(object: &Value) -> (bool, [Option<&Value>; 3]) {
    let ready = readiness::judge(object).is_ready();
    let is_node = object.get("kind").and_then(Value::as_str) == Some("Node");
    let of_node = |path: &str| object.pointer(path).filter(|_| is_node);
    // An inventory says something new by its data, a node by its labels and addresses.
    (ready, [object.get("data"), of_node("/metadata/labels"), of_node("/status/addresses")])
}

fn kept(watched: &Watched, mut object: Value) -> Value {
    const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];
    if let Value::Object(fields) = &mut object {
        fields.retain(|name, _| ALWAYS.contains(&name.as_str()) || watched.keep.contains(&name.as_str()));
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.remove("managedFields");
            metadata.remove("annotations");
        }
        // The pods' shape is the largest part of a workload, and nobody here reads it.
        if let Some(Value::Object(spec)) = fields.get_mut("spec") {
            spec.remove("template");
        }
    }
    object
}

fn key(object: &Value) -> (String, String) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

fn version(object: &Value) -> u64 {
    let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn reference(watched: &Watched, object: &DynamicObject) -> ObjectRef {
    ObjectRef {
        api_version: watched.api_version.to_owned(),
        kind: watched.kind.to_owned(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// When a watch that broke is begun again: soon at first, then ever more patiently.
struct Patience(Duration);

/// How long a watch may say nothing.
const QUIET: Duration = Duration::from_secs(40);
/// The same where nothing is waited for: that the cluster answers is asked anyway.
const QUIET_WHEN_CALM: Duration = Duration::from_secs(280);
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

impl Default for Patience {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (now * 2).min(LONGEST);
        Some(now)
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn listing(ready: u64) -> Listing {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "n", "name": "d", "generation": 1},
            "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
                "conditions": [{"type": "Available", "status": if ready > 0 { "True" } else { "False" }}]},
        });
        BTreeMap::from([(key(&deployment), Arc::new(deployment))])
    }

    #[test]
    fn a_list_that_says_nothing_new_wakes_nobody() {
        let memory = Memory::default();
        let deployments = WATCHED.iter().find(|watched| watched.kind == "Deployment").unwrap();
        let after = |listing: Listing| {
            memory.replace(deployments, listing);
            memory.revision()
        };
        assert_eq!(after(Listing::new()), 1, "the first list is waited for, also an empty one");
        assert_eq!(after(Listing::new()), 1);
        assert_eq!(after(listing(0)), 2);
        assert_eq!(after(listing(0)), 2);
        assert_eq!(after(listing(1)), 3, "ready now");
        assert_eq!(after(Listing::new()), 4, "gone");
    }
}
