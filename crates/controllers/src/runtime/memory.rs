//! What is remembered of an object beside what is stored: results of calls, pauses, connections. All of it can be lost.

use crate::object::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// One memory per object.
pub(crate) struct Memories<T> {
    all: Mutex<HashMap<Key, Arc<Mutex<T>>>>,
}

impl<T> Default for Memories<T> {
    fn default() -> Self {
        Self { all: Mutex::new(HashMap::new()) }
    }
}

impl<T: Default> Memories<T> {
    /// Reads or changes the memory of an object. Others of the same object wait meanwhile, those of other objects don't.
    pub(crate) fn change<R>(&self, key: &Key, change: impl FnOnce(&mut T) -> R) -> R {
        let own = self.all.lock().entry(key.clone()).or_default().clone();
        let mut own = own.lock();
        change(&mut own)
    }

    /// The object is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.all.lock().remove(key);
    }

    /// All objects of that name are gone, whatever their uid was.
    pub(crate) fn forget_name(&self, namespace: &str, name: &str) -> Vec<Key> {
        let mut all = self.all.lock();
        let keys: Vec<Key> =
            all.keys().filter(|key| key.namespace == namespace && key.name == name).cloned().collect();
        for key in &keys {
            all.remove(key);
        }
        keys
    }
}
