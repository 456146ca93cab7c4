//! LoadBalancerRequests on the embedded API, and bootstraps behind them, with a cloud in memory.
//!
//! `UPDATE_GOLDEN=1 cargo test -p butler-controllers --test balancer` writes the journals anew; look at the difference.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bootstrap;
mod faults;
mod journal;
mod journals;
#[path = "../lives/mod.rs"]
mod lives;
#[path = "../support/mod.rs"]
mod support;

use butler_api::{
    Condition, LoadBalancerPhase, LoadBalancerRequest, Provider, ProviderConfig, find_condition,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::Arc;
use support::cloud::Cloud;
use support::{Home, Life};

/// The request of all these tests.
const NAME: &str = "prod-lb";

/// A home with a ProviderConfig of a cloud, and the controllers on it.
async fn home(cloud: &Cloud) -> (Home, Life) {
    let home = Home::new().await;
    provider(&home).await;
    let life = home.start(home.context(Arc::new(cloud.clone())));
    (home, life)
}

fn cloud() -> Cloud {
    Cloud::new(Provider::Gcp)
}

async fn provider(home: &Home) {
    home.create::<Secret>(json!({"metadata": {"name": "creds"}, "stringData": {"serviceAccountKey": "{}"}}))
        .await;
    home.create::<ProviderConfig>(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
        "metadata": {"name": "site"},
        "spec": {
            "provider": "gcp", "credentialsRef": {"name": "creds"},
            "gcp": {"projectID": "p", "region": "europe-west3"},
        }
    }))
    .await;
}

fn request(targets: &[&str]) -> Value {
    let targets: Vec<Value> = targets.iter().map(|ip| json!({"ip": ip})).collect();
    json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "LoadBalancerRequest",
        "metadata": {"name": NAME},
        "spec": {"clusterName": "prod", "providerConfigRef": {"name": "site"}, "targets": targets},
    })
}

/// Asks for these targets from now on.
async fn aim(home: &Home, targets: &[&str]) {
    change(home, json!({"targets": targets.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()})).await;
}

async fn change(home: &Home, spec: Value) {
    let patch = json!({ "spec": spec });
    let api = home.api::<LoadBalancerRequest>();
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn told<'a>(request: &'a LoadBalancerRequest, type_: &str) -> Option<&'a Condition> {
    find_condition(&request.status.as_ref()?.conditions, type_)
}

fn holds(request: &LoadBalancerRequest, type_: &str) -> bool {
    told(request, type_).is_some_and(Condition::is_true)
}

fn phase(request: &LoadBalancerRequest) -> Option<LoadBalancerPhase> {
    request.status.as_ref()?.phase
}

/// Waits until all that the spec asks for is registered, and nothing else.
async fn synced(home: &Home) -> LoadBalancerRequest {
    home.until::<LoadBalancerRequest>(NAME, |request| {
        let current = |told: &Condition| told.observed_generation == request.metadata.generation;
        phase(request) == Some(LoadBalancerPhase::Ready)
            && holds(request, "Provisioned")
            && told(request, "TargetsSynced").is_some_and(|told| told.is_true() && current(told))
    })
    .await
}
