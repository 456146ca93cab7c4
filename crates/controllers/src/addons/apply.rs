//! Puts objects into a cluster: server-side apply in stages, what is independent side by side.
//!
//! Applying is safe to repeat, and an object that is as it should be is not changed. Fields that others own are never taken
//! from them. Retries are the caller's; only a write that met another one is made again at once.

use super::kinds::{self, Kind, ObjectRef, Stage};
use super::trouble;
use butler_api::names;
use butler_drivers::{Class, Failure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, discovery};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Objects that are applied at the same time.
const SIDE_BY_SIDE: usize = 8;
/// Writes of one object that may meet another write before it counts as a failure.
const RACES: usize = 3;
/// How long a CRD may take to be served.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// Applies objects to one cluster. Clones share what they have learned about the cluster's kinds.
#[derive(Clone)]
pub(crate) struct Applier {
    client: Client,
    kinds: Arc<Mutex<HashMap<(String, String), Kind>>>,
}

/// An object as the cluster has it now.
pub(crate) type Applied = (ObjectRef, Value);

impl Applier {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, kinds: Arc::default() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Applies all objects, stage by stage. CRDs are served when this returns.
    pub(crate) async fn apply(&self, manager: &str, objects: &[Value]) -> Result<Vec<Applied>, Failure> {
        let mut staged: Vec<(Stage, ObjectRef, &Value)> = Vec::with_capacity(objects.len());
        for object in objects {
            let of = ObjectRef::of(object).ok_or_else(nameless)?;
            staged.push((of.stage(), of, object));
        }
        staged.sort_by_key(|entry| entry.0);
        let mut applied = Vec::with_capacity(staged.len());
        for stage in staged.chunk_by(|a, b| a.0 == b.0) {
            // Collected first: a closure that lives on in the stream makes the whole future unfit to be sent to a thread.
            let calls: Vec<_> =
                stage.iter().map(|(_, of, object)| self.apply_one(manager, of, object)).collect();
            let done: Vec<Applied> = stream::iter(calls).buffer_unordered(SIDE_BY_SIDE).try_collect().await?;
            applied.extend(done);
        }
        Ok(applied)
    }

    /// Deletes an object, if it is there and carries the label. Returns once it was told to go.
    pub(crate) async fn delete(&self, of: &ObjectRef, label: (&str, &str)) -> Result<(), Failure> {
        let failed = |error: &kube::Error| trouble::failure("delete", of, error);
        let api = match self.api(of).await {
            Ok(api) => api,
            // Without its kind there is no such object either.
            Err(failure) if failure.reason == "KindOrNamespaceMissing" => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let Some(found) = api.get_metadata_opt(&of.name).await.map_err(|error| failed(&error))? else {
            return Ok(());
        };
        let ours = found.metadata.labels.as_ref().and_then(|all| all.get(label.0)).map(String::as_str);
        if ours != Some(label.1) {
            return Ok(());
        }
        match api.delete(&of.name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(error) if trouble::is_absent(&error) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The API of an object's kind, in its namespace.
    pub(crate) async fn api(&self, of: &ObjectRef) -> Result<Api<DynamicObject>, Failure> {
        let kind = self.kind(of).await?;
        let client = self.client.clone();
        Ok(match kind.namespaced {
            false => Api::all_with(client, &kind.resource),
            true if of.namespace.is_empty() => Api::default_namespaced_with(client, &kind.resource),
            true => Api::namespaced_with(client, &of.namespace, &kind.resource),
        })
    }

    async fn apply_one(&self, manager: &str, of: &ObjectRef, object: &Value) -> Result<Applied, Failure> {
        let api = self.api(of).await?;
        let (body, status) = split_status(of, object);
        let mut now = self.patch(manager, of, &api, &body, false).await?;
        if let Some(status) = status {
            now = self.patch(manager, of, &api, &status, true).await?;
        }
        if of.stage() == Stage::Definitions {
            self.established(of, &now).await?;
            self.kinds.lock().extend(kinds::of_definition(object));
        }
        Ok((of.clone(), now))
    }

    async fn patch(
        &self,
        manager: &str,
        of: &ObjectRef,
        api: &Api<DynamicObject>,
        body: &Value,
        status: bool,
    ) -> Result<Value, Failure> {
        let params = PatchParams::apply(manager);
        let mut races = 0;
        loop {
            let answer = match status {
                true => api.patch_status(&of.name, &params, &Patch::Apply(body)).await,
                false => api.patch(&of.name, &params, &Patch::Apply(body)).await,
            };
            match answer {
                Ok(object) => return Ok(kinds::to_value(object, of)),
                Err(error) if races < RACES && trouble::is_race(&error) => races += 1,
                Err(error) => return Err(trouble::failure("apply", of, &error)),
            }
        }
    }

    /// Waits until a CRD is served. The answer to the apply often says so already.
    async fn established(&self, of: &ObjectRef, now: &Value) -> Result<(), Failure> {
        if super::readiness::judge(now).is_ready() {
            return Ok(());
        }
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let waiting = await_condition(api, &of.name, conditions::is_crd_established());
        let failure = |why: String| {
            Failure::new(
                Class::Retryable,
                "DefinitionNotServed",
                format!("{} is not served: {why}", of.title()),
                "look at its conditions: another CRD may hold one of its names",
            )
        };
        match tokio::time::timeout(ESTABLISHED_WITHIN, waiting).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(failure(error.to_string())),
            Err(_) => Err(failure(format!("waited {} s for it", ESTABLISHED_WITHIN.as_secs()))),
        }
    }

    async fn kind(&self, of: &ObjectRef) -> Result<Kind, Failure> {
        if let Some(kind) = kinds::known(&of.api_version, &of.kind) {
            return Ok(kind);
        }
        let key = (of.api_version.clone(), of.kind.clone());
        if let Some(kind) = self.kinds.lock().get(&key) {
            return Ok(kind.clone());
        }
        let gvk = kinds::gvk(&of.api_version, &of.kind);
        let (resource, capabilities) = match discovery::pinned_kind(&self.client, &gvk).await {
            Ok(found) => found,
            Err(kube::Error::Discovery(_)) => return Err(unknown_kind(of)),
            Err(error) if trouble::is_absent(&error) => return Err(unknown_kind(of)),
            Err(error) => return Err(trouble::failure("find the kind of", of, &error)),
        };
        let kind = Kind { resource, namespaced: capabilities.scope == discovery::Scope::Namespaced };
        self.kinds.lock().insert(key, kind.clone());
        Ok(kind)
    }
}

/// Status is applied by itself, since a plain apply ignores it. Only for our own kinds: in other people's manifests it is
/// a leftover of their generators.
fn split_status(of: &ObjectRef, object: &Value) -> (Value, Option<Value>) {
    let mut body = object.clone();
    let status = body.as_object_mut().and_then(|fields| fields.remove("status"));
    let ours = of.api_version.split('/').next() == Some(names::GROUP);
    let status = status.filter(|_| ours).map(|status| {
        json!({
            "apiVersion": of.api_version,
            "kind": of.kind,
            "metadata": { "name": of.name },
            "status": status,
        })
    });
    (body, status)
}

fn nameless() -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "ObjectNameless",
        "an object of the addon lacks its apiVersion, kind or name",
        "check the addon's source",
    )
}

fn unknown_kind(of: &ObjectRef) -> Failure {
    Failure::new(
        Class::Retryable,
        "KindOrNamespaceMissing",
        format!("{}: the cluster does not serve {} {}", of.title(), of.api_version, of.kind),
        "install the addon that brings the kind; it is tried again by itself",
    )
}
