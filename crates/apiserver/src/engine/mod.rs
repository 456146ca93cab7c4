//! The engine behind the wire: what is served, who may do what, and the verbs on objects.
//!
//! A request becomes a [`Call`]; each verb is a file in `verbs/`; they meet in `admit`, which turns what a client sent
//! into what is stored.

mod access;
mod dispatch;
mod registry;

pub(crate) use access::attributes;
pub(crate) use registry::{Entry, Registry};

use crate::auth::{Authenticator, User};
use crate::http::media::Accepted;
use crate::http::params::Params;
use crate::status::Status;
use crate::store::{CollectionName, Key, Object, Store};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by all requests.
pub(crate) struct Engine {
    pub(crate) store: Store,
    registry: RwLock<Arc<Registry>>,
    policy: Mutex<access::CachedPolicy>,
    pub(crate) authenticator: Authenticator,
    /// The certificate authority, for those who ask the cluster for it.
    pub(crate) ca_pem: String,
    clock: Box<dyn Fn() -> jiff::Timestamp + Send + Sync>,
    /// CRD names are judged against each other: one change at a time.
    pub(crate) crd_turn: tokio::sync::Mutex<()>,
    /// Service addresses are unique: one allocation at a time.
    pub(crate) service_turn: tokio::sync::Mutex<()>,
    /// Something that a controller wanted to do was refused by the store.
    unfinished: AtomicBool,
    /// Dropped when the server stops, which ends every watch.
    pub(crate) stopping: tokio::sync::watch::Receiver<bool>,
}

/// How strictly unknown and repeated fields are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// One request for objects.
pub(crate) struct Call {
    pub(crate) entry: Arc<Entry>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) user: Arc<User>,
    pub(crate) params: Params,
    pub(crate) accepted: Accepted,
    /// Who the changed fields will belong to.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    pub(crate) content_type: String,
}

impl Call {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    pub(crate) fn collection(&self) -> &CollectionName {
        &self.entry.collection
    }

    pub(crate) fn subresource(&self) -> &str {
        self.subresource.as_deref().unwrap_or_default()
    }

    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(&self.entry.resource.group, &self.entry.resource.plural, self.name())
    }
}

impl Engine {
    pub(crate) fn new(
        store: Store,
        authenticator: Authenticator,
        ca_pem: String,
        clock: Box<dyn Fn() -> jiff::Timestamp + Send + Sync>,
        stopping: tokio::sync::watch::Receiver<bool>,
    ) -> Self {
        let registry = Registry::from_store(&store, None);
        Self {
            store,
            registry: RwLock::new(Arc::new(registry)),
            policy: Mutex::default(),
            authenticator,
            ca_pem,
            clock,
            crd_turn: tokio::sync::Mutex::new(()),
            service_turn: tokio::sync::Mutex::new(()),
            unfinished: AtomicBool::new(false),
            stopping,
        }
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    /// Reads the CRDs again: called after each change of one, before the change is answered.
    pub(crate) fn reload_registry(&self) {
        let mut registry = self.registry.write();
        if registry.is_current(&self.store) {
            return;
        }
        let new = Registry::from_store(&self.store, Some(&registry));
        new.reshape_changed(&registry, &self.store);
        new.begin_collections(&self.store);
        *registry = Arc::new(new);
    }

    /// Has the controllers look at everything once more in a while.
    pub(crate) fn try_again(&self) {
        self.unfinished.store(true, Ordering::Release);
    }

    /// Whether that was asked for; forgets it.
    pub(crate) fn take_unfinished(&self) -> bool {
        self.unfinished.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn has_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire)
    }

    pub(crate) fn now(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    /// As Kubernetes writes it in metadata: whole seconds, UTC.
    pub(crate) fn timestamp(&self) -> String {
        seconds(self.now())
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Object>> {
        self.store.get("namespaces", &Key::new("", name))
    }
}

/// Ends when the server is told to stop.
pub(crate) async fn stopped(stopping: &mut tokio::sync::watch::Receiver<bool>) {
    // An error means that the server is gone altogether.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// RFC 3339 without fractions.
pub(crate) fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
