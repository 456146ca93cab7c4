//! Owner references: what goes with its owner, what waits for it, and what stays.

use crate::harness::{Cluster, MERGE_PATCH, configmap, scenario, text};
use serde_json::{Value, json};

fn owned(name: &str, owners: &[Value]) -> Value {
    let mut body = configmap(name);
    body["metadata"]["ownerReferences"] = json!(owners);
    body
}

/// A reference to a ConfigMap.
fn reference(owner: &Value, blocking: bool) -> Value {
    let meta = &owner["metadata"];
    let mut out = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]});
    if blocking {
        out["blockOwnerDeletion"] = json!(true);
    }
    out
}

async fn make(c: &Cluster, path: &str, body: &Value) -> Value {
    c.post(path, body).await.ok(201).clone()
}

#[tokio::test]
async fn dependents_go_after_their_owner() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let owner = make(c, &path, &configmap("owner")).await;
        let child = make(c, &path, &owned("child", &[reference(&owner, false)])).await;
        make(c, &path, &owned("grandchild", &[reference(&child, false)])).await;
        make(c, &path, &configmap("bystander")).await;
        c.delete(&format!("{path}/owner?propagationPolicy=Background")).await.ok(200);
        c.get(&format!("{path}/owner")).await.refused(404, "NotFound", "configmaps \"owner\" not found");
        c.gone(&format!("{path}/child")).await;
        c.gone(&format!("{path}/grandchild")).await;
        c.get(&format!("{path}/bystander")).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn background_is_the_default() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let owner = make(c, &crd.objects, &crd.widget("owner", json!({}))).await;
        let path = format!("/api/v1/namespaces/{}/configmaps", crd.namespace);
        let reference = json!({
            "apiVersion": crd.api_version(), "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"],
        });
        make(c, &path, &owned("child", &[reference])).await;
        c.delete(&crd.at("owner")).await.ok(200);
        c.gone(&format!("{path}/child")).await;
    })
    .await;
}

#[tokio::test]
async fn in_the_foreground_the_owner_waits_for_blocking_dependents() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let owner = make(c, &path, &configmap("owner")).await;
        let mut child = owned("child", &[reference(&owner, true)]);
        child["metadata"]["finalizers"] = json!(["example.com/hold"]);
        make(c, &path, &child).await;
        let deleting = c.delete(&format!("{path}/owner?propagationPolicy=Foreground")).await;
        assert_eq!(deleting.ok(200)["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        assert!(deleting.body["metadata"]["deletionTimestamp"].is_string());
        c.until(&format!("{path}/child"), "the dependent to be deleted", |reply| {
            reply.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        c.get(&format!("{path}/owner")).await.ok(200);
        c.patch(&format!("{path}/child"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}}))
            .await
            .ok(200);
        c.gone(&format!("{path}/owner")).await;
        c.gone(&format!("{path}/child")).await;
    })
    .await;
}

#[tokio::test]
async fn orphans_stay_and_lose_the_reference() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let owner = make(c, &path, &configmap("owner")).await;
        make(c, &path, &owned("child", &[reference(&owner, false)])).await;
        let deleting = c.delete(&format!("{path}/owner?propagationPolicy=Orphan")).await;
        assert_eq!(deleting.ok(200)["metadata"]["finalizers"], json!(["orphan"]));
        c.gone(&format!("{path}/owner")).await;
        let child = c.get(&format!("{path}/child")).await;
        assert_eq!(child.ok(200)["metadata"].get("ownerReferences"), None);
    })
    .await;
}

#[tokio::test]
async fn orphaning_can_be_asked_the_old_way() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let owner = make(c, &path, &configmap("owner")).await;
        make(c, &path, &owned("child", &[reference(&owner, false)])).await;
        c.delete_with(&format!("{path}/owner"), &json!({"orphanDependents": true})).await.ok(200);
        c.gone(&format!("{path}/owner")).await;
        assert_eq!(c.get(&format!("{path}/child")).await.ok(200)["metadata"].get("ownerReferences"), None);
    })
    .await;
}

#[tokio::test]
async fn one_living_owner_is_enough() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let one = make(c, &path, &configmap("one")).await;
        let two = make(c, &path, &configmap("two")).await;
        make(c, &path, &owned("child", &[reference(&one, false), reference(&two, false)])).await;
        c.delete(&format!("{path}/one")).await.ok(200);
        let child = c
            .until(&format!("{path}/child"), "the dead reference to go", |reply| {
                reply.body["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
            })
            .await;
        assert_eq!(text(&child.body["metadata"]["ownerReferences"][0]["name"]), "two");
        c.delete(&format!("{path}/two")).await.ok(200);
        c.gone(&format!("{path}/child")).await;
    })
    .await;
}

#[tokio::test]
async fn an_owner_that_never_was_takes_its_dependents_with_it() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let nobody = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000",
        });
        make(c, &path, &owned("child", &[nobody])).await;
        c.gone(&format!("{path}/child")).await;
    })
    .await;
}

#[tokio::test]
async fn an_owner_of_the_same_name_is_not_the_same_owner() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let first = make(c, &path, &configmap("owner")).await;
        c.delete(&format!("{path}/owner")).await.ok(200);
        make(c, &path, &configmap("owner")).await;
        make(c, &path, &owned("child", &[reference(&first, false)])).await;
        c.gone(&format!("{path}/child")).await;
        c.get(&format!("{path}/owner")).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn a_dependent_with_a_finalizer_waits() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let owner = make(c, &path, &configmap("owner")).await;
        let mut child = owned("child", &[reference(&owner, false)]);
        child["metadata"]["finalizers"] = json!(["example.com/hold"]);
        make(c, &path, &child).await;
        c.delete(&format!("{path}/owner")).await.ok(200);
        c.until(&format!("{path}/child"), "the dependent to be marked", |reply| {
            reply.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        c.patch(&format!("{path}/child"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}}))
            .await
            .ok(200);
        c.gone(&format!("{path}/child")).await;
    })
    .await;
}
