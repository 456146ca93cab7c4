//! What a cluster does by itself: garbage collection, the life of namespaces, the end of CRDs.
//!
//! One task follows every change of the store, in order, and reacts to it. Nothing here polls, and nothing is remembered
//! between changes that could not be found again: at start every object is looked at once.

mod garbage;
mod namespaces;

use crate::engine::{Engine, stopped};
use crate::store::{Event, EventKind, Scope};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long the server waits before it tries again what the store refused.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Follows the store until the server stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut changes = engine.store.observe();
    let mut stopping = engine.stopping.clone();
    engine.start_up().await;
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Some((collection, event)) => engine.react(&collection, &event).await,
                None => return,
            },
            () = tokio::time::sleep(RETRY_AFTER), if engine.has_unfinished() => {
                // A disk that was full, say: look at everything once more.
                engine.take_unfinished();
                engine.start_up().await;
            }
            () = stopped(&mut stopping) => return,
        }
    }
}

impl Engine {
    /// What a change that was missed would have started: deletions that were under way when the server stopped.
    async fn start_up(&self) {
        for collection in self.store.collections() {
            for object in self.store.list(&collection, Scope::All).objects {
                if object.owners.is_empty() && !may_be_deleting(&object.json) {
                    continue;
                }
                self.settle(&collection, &object.value()).await;
            }
        }
        for namespace in self.store.list("namespaces", Scope::All).objects {
            self.furnish(&namespace.key.name).await;
        }
    }

    async fn react(&self, collection: &str, event: &Event) {
        if collection == garbage::CRD_COLLECTION {
            // The request that wrote it does this too, but its client may have gone before.
            self.reload_registry();
            if event.kind == EventKind::Deleted {
                self.judge_names_again().await;
            }
        }
        if event.kind == EventKind::Deleted {
            self.collect_dependents(&event.object).await;
            self.release(collection, event).await;
            if matches!(collection, "serviceaccounts" | "configmaps") {
                // What every namespace has comes back.
                self.furnish(&event.object.key.namespace).await;
            }
            return;
        }
        let value = event.object.value();
        self.settle(collection, &value).await;
        if collection == "namespaces" && event.kind == EventKind::Added {
            self.furnish(&event.object.key.name).await;
        }
    }

    /// Everything that the present state of one object calls for.
    async fn settle(&self, collection: &str, value: &Value) {
        if value["metadata"].get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
            self.go_on_deleting(collection, value).await;
        } else if value["metadata"]["ownerReferences"].as_array().is_some_and(|o| !o.is_empty()) {
            self.collect_orphan(collection, value).await;
        }
    }

    /// A thing is gone: those who waited for it to go may go on.
    async fn release(&self, collection: &str, event: &Event) {
        self.unblock_owners(&event.object.value()).await;
        if !event.object.key.namespace.is_empty() {
            self.finish_namespace(&event.object.key.namespace).await;
        }
        self.finish_crd(collection).await;
    }
}

/// A cheap look before an expensive parse.
fn may_be_deleting(json: &[u8]) -> bool {
    const MARK: &[u8] = b"\"deletionTimestamp\":";
    json.windows(MARK.len()).any(|w| w == MARK)
}
