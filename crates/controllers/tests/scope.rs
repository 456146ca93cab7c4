//! Controllers that work for one ClusterBootstrap leave everything else alone, and keep a second run out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use butler_api::{ClusterBootstrap, MachineRequest};
use butler_controllers::{Context, RunError, Scope, run_for};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::sync::Arc;
use support::ask::cluster;
use support::{Home, Script, Scripted, machine_request};
use tokio_util::sync::CancellationToken;

fn one(home: &Home, holder: &str) -> Scope {
    let namespace = home.api::<ClusterBootstrap>().namespace().unwrap().to_owned();
    Scope::One { namespace, name: "mine".to_owned(), holder: Some(holder.to_owned()) }
}

/// A single node without an address that would have to be free.
fn small(name: &str) -> Value {
    cluster(name, 1, json!({"cluster": {"topology": "single-node"}, "network": {"vip": null}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_cluster_is_worked_on_by_one_run() {
    let home = Home::new().await;
    home.provider(json!({})).await;
    let script = Arc::new(Script::default());
    let context: Context = home.context(Arc::new(Scripted(script.clone())));
    home.create::<MachineRequest>(machine_request("alone")).await;
    for name in ["mine", "theirs"] {
        home.given_secrets(name).await;
    }
    home.create::<ClusterBootstrap>(small("theirs")).await;
    let end = CancellationToken::new();
    let first = tokio::spawn(run_for(context.clone(), one(&home, "first"), end.clone()));
    home.create::<ClusterBootstrap>(small("mine")).await;
    home.until::<MachineRequest>("mine-cp-0", MachineRequest::is_ready).await;

    let theirs = home.api::<ClusterBootstrap>().get("theirs").await.unwrap();
    assert!(theirs.finalizers().is_empty() && theirs.status.is_none(), "another's cluster is left alone");
    let alone = home.api::<MachineRequest>().get("alone").await.unwrap();
    assert!(alone.finalizers().is_empty() && alone.status.is_none(), "so is a machine of no cluster");
    assert!(script.called().iter().all(|call| call.contains(" mine-")), "{:?}", script.called());

    let second = run_for(context, one(&home, "second"), CancellationToken::new()).await;
    let refused = second.unwrap_err();
    assert!(matches!(&refused, RunError::Held { holder, .. } if holder == "first"), "{refused}");
    end.cancel();
    first.await.unwrap().unwrap();
    let free = home.api::<Lease>().get("butler-mine").await.unwrap().spec.unwrap();
    assert_eq!(free.holder_identity, None, "the next run need not wait");
}
