//! The controllers of workloads: from what is there to what should be done. Pure; the driver applies what comes out.
//!
//! Updates are simpler than in Kubernetes: a Deployment starts all of its new pods before it ends the old ones, daemons and
//! stateful pods are replaced one at a time.

mod daemon;
mod deployment;
mod job;
mod replica;
mod stateful;
mod template;
#[cfg(test)]
mod tests;

use super::clock::Clock;
use super::facts::PodSecurity;
use super::objects::{self, Action, Objects};
use super::security;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What the controllers decide from.
pub(super) struct Sight<'a> {
    pub(super) objects: &'a Objects,
    pub(super) security: &'a PodSecurity,
    /// Why the API did not take the last pod of an owner, by the owner's uid.
    pub(super) refused: &'a BTreeMap<String, String>,
    pub(super) pods: HashMap<String, Vec<Arc<Value>>>,
    pub(super) replica_sets: HashMap<String, Vec<Arc<Value>>>,
    pub(super) now: String,
}

impl<'a> Sight<'a> {
    pub(super) fn new(
        objects: &'a Objects,
        security: &'a PodSecurity,
        refused: &'a BTreeMap<String, String>,
        clock: &Clock,
    ) -> Self {
        Self {
            objects,
            security,
            refused,
            pods: objects.owned(objects::PODS),
            replica_sets: objects.owned(objects::REPLICA_SETS),
            now: clock.text().to_string(),
        }
    }

    /// The pods of an owner that count: neither over nor on their way out.
    fn active(&self, owner: &Value) -> Vec<&Arc<Value>> {
        self.of(owner).iter().filter(|pod| is_active(pod)).collect()
    }

    fn of(&self, owner: &Value) -> &[Arc<Value>] {
        self.pods.get(objects::uid(owner)).map(Vec::as_slice).unwrap_or_default()
    }

    /// Why a pod of this owner would not be made, if it would not.
    fn refusal(&self, owner: &Value, pod: &Value) -> Option<String> {
        let (namespace, account) = (objects::namespace(owner), account(pod));
        let shown = match objects::name(pod) {
            "" => objects::text(pod, "/metadata/generateName"),
            name => name,
        };
        if !self.objects.has(objects::SERVICE_ACCOUNTS, namespace, account) {
            return Some(format!(
                "pods {shown:?} is forbidden: error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
            ));
        }
        let space = self.objects.get(objects::NAMESPACES, "", namespace);
        security::violation(self.security, space.map(Arc::as_ref), namespace, pod)
            .map(|why| format!("pods {shown:?} is forbidden: {why}"))
            .or_else(|| self.refused.get(objects::uid(owner)).cloned())
    }
}

/// Everything that the workloads of a cluster call for now.
pub(super) fn plan(sight: &Sight<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    let alive = |collection| sight.objects.all(collection).filter(|object| !objects::is_deleting(object));
    for set in alive(objects::DAEMON_SETS) {
        daemon::plan(sight, set, &mut actions);
    }
    for deployment in alive(objects::DEPLOYMENTS) {
        deployment::plan(sight, deployment, &mut actions);
    }
    for set in alive(objects::REPLICA_SETS) {
        replica::plan(sight, set, &mut actions);
    }
    for set in alive(objects::STATEFUL_SETS) {
        stateful::plan(sight, set, &mut actions);
    }
    for job in alive(objects::JOBS) {
        job::plan(sight, job, &mut actions);
    }
    actions
}

fn account(pod: &Value) -> &str {
    match objects::text(pod, "/spec/serviceAccountName") {
        "" => "default",
        name => name,
    }
}

fn is_active(pod: &Value) -> bool {
    !objects::is_deleting(pod) && !matches!(objects::text(pod, "/status/phase"), "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    objects::is_true(pod, "Ready")
}

fn generation(object: &Value) -> i64 {
    objects::number(object, "/metadata/generation").unwrap_or(1)
}

/// Says why no pod was made, once per reason.
fn tell_failed_create(owner: &Arc<Value>, known: bool, why: &str, actions: &mut Vec<Action>) {
    if !known {
        actions.push(Action::Tell {
            regarding: owner.clone(),
            warning: true,
            reason: "FailedCreate",
            message: format!("Error creating: {why}"),
        });
    }
}
