//! What keeps a reconcile from ending: our own API did not do as asked. Obstacles outside are [`crate::Failure`]s and are
//! reported in status, not here.

/// A call to our own API that failed. The reconcile is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// A call failed.
    #[error("{operation}")]
    Api {
        /// What was asked, and of which object.
        operation: String,
        /// What came back.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Controllers that can't run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Our kinds are not served.
    #[error("the API does not serve {kind}; are the custom resource definitions installed?")]
    NoKind {
        /// The kind.
        kind: &'static str,
        /// What came back.
        #[source]
        source: Box<kube::Error>,
    },
    /// Somebody else works on the same ClusterBootstrap.
    #[error(
        "{holder} works on this cluster already (Lease {name}); end that run first, or wait until {until} if it is dead"
    )]
    Held {
        /// The Lease.
        name: String,
        /// Who holds it.
        holder: String,
        /// Until when, unless it is renewed.
        until: jiff::Timestamp,
    },
    /// Others want the Lease at the same time.
    #[error("several runs want the Lease {name} at the same time; try again when only one does")]
    LeaseContested {
        /// The Lease.
        name: String,
    },
    /// The Lease can't be read or written.
    #[error("the Lease {name}, which keeps two runs from working on one cluster, can't be used")]
    Lease {
        /// The Lease.
        name: String,
        /// What came back.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Says what was asked when a call fails.
pub(crate) trait Doing<T> {
    fn doing(self, operation: impl FnOnce() -> String) -> Result<T, ReconcileError>;
}

impl<T> Doing<T> for Result<T, kube::Error> {
    fn doing(self, operation: impl FnOnce() -> String) -> Result<T, ReconcileError> {
        self.map_err(|source| ReconcileError::Api { operation: operation(), source: Box::new(source) })
    }
}

/// Whether somebody else wrote the object in between.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Whether there is no such object.
pub(crate) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
