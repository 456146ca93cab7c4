//! Work that takes as long as the outside world takes: it runs in the background, at most once per object and purpose, and
//! its end wakes the controller. A reconcile itself never waits for the outside.

use crate::object::Key;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

/// The background tasks of all objects. `W` says what a task is for.
pub(crate) struct Tasks<W> {
    running: Arc<Mutex<Running<W>>>,
    tracker: TaskTracker,
    next: AtomicU64,
}

type Running<W> = HashMap<Key, BTreeMap<W, (u64, AbortHandle)>>;

impl<W> Default for Tasks<W> {
    fn default() -> Self {
        Self { running: Arc::default(), tracker: TaskTracker::new(), next: AtomicU64::new(0) }
    }
}

impl<W: Ord + Clone + Send + 'static> Tasks<W> {
    /// Starts `work` unless it runs already; `after` is called when it has ended by itself.
    pub(crate) fn start(
        &self,
        key: &Key,
        what: W,
        work: impl Future<Output = ()> + Send + 'static,
        after: impl FnOnce() + Send + 'static,
    ) {
        let mut running = self.running.lock();
        let own = running.entry(key.clone()).or_default();
        if own.contains_key(&what) {
            return;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (all, ended, purpose) = (self.running.clone(), key.clone(), what.clone());
        let handle = self.tracker.spawn(async move {
            work.await;
            let mut all = all.lock();
            // One that was cancelled and started anew is not this one.
            if let Some(own) = all.get_mut(&ended)
                && own.get(&purpose).is_some_and(|(known, _)| *known == id)
            {
                own.remove(&purpose);
            }
            drop(all);
            after();
        });
        own.insert(what, (id, handle.abort_handle()));
    }

    /// What is under way for an object.
    pub(crate) fn running(&self, key: &Key) -> BTreeSet<W> {
        self.running.lock().get(key).map(|own| own.keys().cloned().collect()).unwrap_or_default()
    }

    /// Ends everything that is under way for an object.
    pub(crate) fn cancel(&self, key: &Key) {
        if let Some(own) = self.running.lock().remove(key) {
            own.values().for_each(|(_, handle)| handle.abort());
        }
    }

    /// Ends everything but one that is under way for an object.
    pub(crate) fn cancel_but(&self, key: &Key, kept: &W) {
        if let Some(own) = self.running.lock().get_mut(key) {
            own.retain(|what, (_, handle)| {
                if what != kept {
                    handle.abort();
                }
                what == kept
            });
        }
    }

    /// Ends one task of an object.
    pub(crate) fn cancel_one(&self, key: &Key, what: &W) {
        if let Some(own) = self.running.lock().get_mut(key)
            && let Some((_, handle)) = own.remove(what)
        {
            handle.abort();
        }
    }

    /// Ends everything, and returns when it has ended.
    pub(crate) async fn cancel_all(&self) {
        for (_, own) in self.running.lock().drain() {
            own.values().for_each(|(_, handle)| handle.abort());
        }
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{mpsc, oneshot};

    fn key(name: &str) -> Key {
        Key { namespace: "n".into(), name: name.into(), uid: "u".into() }
    }

    #[tokio::test]
    async fn a_task_runs_once_and_its_end_is_told() {
        let tasks: Tasks<&'static str> = Tasks::default();
        let (release, gate) = oneshot::channel::<()>();
        let (told, mut ends) = mpsc::unbounded_channel();
        let first = told.clone();
        tasks.start(&key("a"), "look", async { gate.await.unwrap() }, move || first.send("first").unwrap());
        let second = told.clone();
        tasks.start(&key("a"), "look", async {}, move || second.send("second").unwrap());
        assert_eq!(tasks.running(&key("a")), ["look"].into());
        assert!(tasks.running(&key("b")).is_empty());
        release.send(()).unwrap();
        assert_eq!(ends.recv().await, Some("first"));
        assert!(tasks.running(&key("a")).is_empty(), "told only after it is off the list");
        tasks.start(&key("a"), "look", async {}, move || told.send("third").unwrap());
        assert_eq!(ends.recv().await, Some("third"), "the second was never started");
    }

    #[tokio::test]
    async fn all_but_one_can_be_ended() {
        let tasks: Tasks<&'static str> = Tasks::default();
        for what in ["look", "apply", "leave"] {
            tasks.start(&key("a"), what, std::future::pending(), || {});
        }
        tasks.cancel_but(&key("a"), &"leave");
        assert_eq!(tasks.running(&key("a")), ["leave"].into());
        tasks.cancel_but(&key("b"), &"leave");
        tasks.cancel_all().await;
    }

    #[tokio::test]
    async fn a_cancelled_task_tells_nothing_and_can_be_started_again() {
        let tasks: Tasks<&'static str> = Tasks::default();
        let (told, mut ends) = mpsc::unbounded_channel();
        let first = told.clone();
        tasks.start(&key("a"), "look", std::future::pending(), move || first.send("never").unwrap());
        tasks.cancel(&key("a"));
        tasks.start(&key("a"), "look", async {}, move || told.send("second").unwrap());
        assert_eq!(ends.recv().await, Some("second"));
        tasks.cancel_all().await;
        assert_eq!(ends.recv().await, None, "both have let go of the channel");
    }
}
