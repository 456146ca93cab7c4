//! The way out: get, list at a revision, watch from a revision.

use super::history::{Collection, Event};
use super::object::{Key, Object};
use super::{CollectionName, Restored, State, Store};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::watch;

/// Which objects of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    All,
    Namespace(&'a str),
}

/// Objects as they were at one revision.
#[derive(Debug)]
pub struct Listing {
    pub revision: u64,
    pub objects: Vec<Arc<Object>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// What was then is no longer known.
    #[error("revision {asked} is older than the history that is kept, which begins at {floor}")]
    TooOld { asked: u64, floor: u64 },
    /// Nothing has that revision yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future { asked: u64, newest: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revision {from} is older than the history that is kept, which begins at {floor}")]
pub struct WatchError {
    pub from: u64,
    pub floor: u64,
}

/// A place in the history of one collection.
pub struct Watcher {
    store: Store,
    collection: CollectionName,
    /// All up to here was delivered.
    seen: u64,
    changed: watch::Receiver<u64>,
}

impl Scope<'_> {
    fn holds(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(ns) => &*key.namespace == *ns,
        }
    }
}

impl Store {
    /// The newest durable revision.
    pub fn revision(&self) -> u64 {
        self.shared.state.read().revision
    }

    pub fn get(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        self.shared.state.read().collections.get(collection)?.objects.get(key).cloned()
    }

    /// The objects in `scope` as they are now.
    pub fn list(&self, collection: &str, scope: Scope<'_>) -> Listing {
        let state = self.shared.state.read();
        let objects = match state.collections.get(collection) {
            Some(held) => held.range(scope, None).cloned().collect(),
            None => Vec::new(),
        };
        Listing { revision: state.revision, objects }
    }

    /// The objects in `scope` after `start` as they were at `revision`.
    pub fn list_at(
        &self,
        collection: &str,
        scope: Scope<'_>,
        start: Option<&Key>,
        revision: u64,
    ) -> Result<Listing, ListError> {
        let state = self.shared.state.read();
        if revision > state.revision {
            return Err(ListError::Future { asked: revision, newest: state.revision });
        }
        let Some(held) = state.collections.get(collection) else {
            return Ok(Listing { revision, objects: Vec::new() });
        };
        if revision < held.floor {
            return Err(ListError::TooOld { asked: revision, floor: held.floor });
        }
        Ok(Listing { revision, objects: held.as_of(revision, scope, start) })
    }

    /// How many objects there are, without touching them.
    pub fn count(&self, collection: &str) -> usize {
        self.shared.state.read().collections.get(collection).map_or(0, |c| c.objects.len())
    }

    /// The revision of the last change in any of `collections`: a cheap way to know that nothing changed.
    pub fn last_change(&self, collections: &[&str]) -> u64 {
        let state = self.shared.state.read();
        let last = |name: &&str| {
            let held = state.collections.get(*name)?;
            let newest = held.events.back().map(|e| e.object.revision);
            newest.or(Some(held.floor))
        };
        collections.iter().filter_map(last).max().unwrap_or(0)
    }

    /// The names of the collections that hold anything.
    pub fn collections(&self) -> Vec<CollectionName> {
        let state = self.shared.state.read();
        let used = state.collections.iter().filter(|(_, c)| !c.objects.is_empty());
        used.map(|(name, _)| name.clone()).collect()
    }

    /// The objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<(CollectionName, Arc<Object>)> {
        let state = self.shared.state.read();
        let Some(places) = state.dependents.get(uid) else { return Vec::new() };
        let lookup = |(name, key): &(CollectionName, Key)| {
            Some((name.clone(), state.collections.get(name)?.objects.get(key)?.clone()))
        };
        places.iter().filter_map(lookup).collect()
    }

    /// The changes of a collection after revision `from`.
    pub fn watch(&self, collection: &CollectionName, from: u64) -> Result<Watcher, WatchError> {
        let mut state = self.shared.state.write();
        let held = state.collection(collection);
        if from < held.floor {
            return Err(WatchError { from, floor: held.floor });
        }
        let changed = held.changed.subscribe();
        Ok(Watcher { store: self.clone(), collection: collection.clone(), seen: from, changed })
    }

    /// Begins the history of a collection here, if it has none: nobody can have seen it earlier.
    pub(crate) fn begin(&self, collection: &CollectionName) {
        let mut state = self.shared.state.write();
        let revision = state.revision;
        if !state.collections.contains_key(collection) {
            state.collection(collection).floor = revision;
        }
    }

    /// Everything that is there now, for a store that is to go on from here. Objects are shared, not copied; the past is
    /// not taken along, so that watches of the old store have to list again.
    pub fn export(&self) -> Restored {
        let state = self.shared.state.read();
        let all = state.collections.iter();
        let objects = all
            .flat_map(|(name, held)| held.objects.values().map(move |o| (name.clone(), o.clone())))
            .collect();
        Restored { revision: state.revision, objects, recent: Vec::new(), floor: state.revision }
    }

    /// Forgets the history up to `revision`, as etcd's compaction does.
    pub fn compact(&self, revision: u64) {
        let mut state = self.shared.state.write();
        state.floor = state.floor.max(revision.min(state.revision));
        for held in state.collections.values_mut() {
            held.compact(revision);
        }
    }

    /// Replaces the text of objects without a new revision; `reshape` returns `None` for those that stay as they are.
    /// For a schema that changed under its objects: readers then see new defaults, the disk keeps what was written.
    pub(crate) fn reshape(&self, collection: &str, reshape: impl Fn(&Object) -> Option<Object>) {
        let State { collections, .. } = &mut *self.shared.state.write();
        let Some(held) = collections.get_mut(collection) else { return };
        for object in held.objects.values_mut() {
            if let Some(new) = reshape(object) {
                *object = Arc::new(new);
            }
        }
    }
}

impl Collection {
    fn range(&self, scope: Scope<'_>, start: Option<&Key>) -> impl Iterator<Item = &Arc<Object>> {
        let from = match (start, scope) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Scope::Namespace(ns)) => Bound::Included(Key::new(ns, "")),
            (None, Scope::All) => Bound::Unbounded,
        };
        let in_scope = move |(key, _): &(&Key, &Arc<Object>)| match scope {
            Scope::All => true,
            Scope::Namespace(ns) => &*key.namespace == ns,
        };
        self.objects.range((from, Bound::Unbounded)).take_while(in_scope).map(|(_, object)| object)
    }

    /// Today's objects with everything after `revision` undone.
    fn as_of(&self, revision: u64, scope: Scope<'_>, start: Option<&Key>) -> Vec<Arc<Object>> {
        let mut undone: BTreeMap<&Key, Option<&Arc<Object>>> = BTreeMap::new();
        for event in self.events.iter().rev().take_while(|e| e.object.revision > revision) {
            undone.insert(&event.object.key, event.previous.as_ref());
        }
        if undone.is_empty() {
            return self.range(scope, start).cloned().collect();
        }
        let mut then: BTreeMap<&Key, &Arc<Object>> = self.range(scope, start).map(|o| (&o.key, o)).collect();
        for (key, before) in undone {
            if !scope.holds(key) || start.is_some_and(|s| key <= s) {
                continue;
            }
            match before {
                Some(object) => then.insert(key, object),
                None => then.remove(key),
            };
        }
        then.into_values().cloned().collect()
    }
}

impl Watcher {
    /// Waits for changes and returns them; an error when they were forgotten before this watcher came by.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        loop {
            // Marked as seen before looking, so that a change in between wakes us again.
            self.changed.borrow_and_update();
            let events = self.pending()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.changed.changed().await.is_err() {
                // The collection is never removed while the store lives; the store going away ends all watches.
                std::future::pending::<()>().await;
            }
        }
    }

    /// What has happened since the last call, without waiting.
    pub fn pending(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        let state = self.store.shared.state.read();
        let Some(held) = state.collections.get(&self.collection) else { return Ok(Vec::new()) };
        if self.seen < held.floor {
            return Err(WatchError { from: self.seen, floor: held.floor });
        }
        let start = held.events.partition_point(|e| e.object.revision <= self.seen);
        let events: Vec<_> = held.events.range(start..).cloned().collect();
        if let Some(last) = events.last() {
            self.seen = last.object.revision;
        }
        Ok(events)
    }

    /// The revision up to which this watcher has seen everything in its collection: what a bookmark says.
    pub fn caught_up_to(&mut self) -> u64 {
        let state = self.store.shared.state.read();
        match state.collections.get(&self.collection) {
            Some(held) if held.events.back().is_some_and(|e| e.object.revision > self.seen) => self.seen,
            // Nothing newer in this collection: it is current up to the newest revision of all.
            _ => {
                self.seen = self.seen.max(state.revision);
                self.seen
            }
        }
    }
}
