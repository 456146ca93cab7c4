//! Deletion: in the middle of every phase, with an infrastructure that refuses, and without the objects that it needs.

use crate::site::{NAME, Site, Size, TOKEN_SECRET, soon};
use crate::support::{cluster_conditions, has, quick};
use butler_api::{ClusterBootstrap, ProviderConfig};
use butler_sim::{Matcher, Moment, Pattern};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// Deleted while a call is under way: before it is carried out, or after it and before its answer.
async fn in_the_middle(operation: &str, moment: Moment, size: Size) {
    let mut site = Site::of(size).await;
    let calls = Matcher { operation: Some(Pattern::from(operation)), ..Matcher::default() };
    let mut checkpoint = site.data_centre.gate().hold_when(calls, moment);
    site.begin(quick()).await;
    checkpoint.reached().await.unwrap();
    site.delete().await;
    site.home.until::<ClusterBootstrap>(NAME, |cb| cb.metadata.deletion_timestamp.is_some()).await;
    checkpoint.go_on();
    site.is_gone().await;
    site.stops().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_machines_are_made() {
    for operation in ["POST */clone", "POST */config", "PUT */resize", "POST */status/start"] {
        for moment in [Moment::Before, Moment::After] {
            in_the_middle(operation, moment, Size::One).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_talos_is_configured_and_etcd_is_made() {
    for operation in ["ApplyConfiguration", "Bootstrap"] {
        for moment in [Moment::Before, Moment::After] {
            in_the_middle(operation, moment, Size::One).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_addons_are_installed() {
    in_the_middle("PATCH *", Moment::Before, Size::Four).await;
    in_the_middle("PATCH *", Moment::After, Size::One).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_cluster_that_has_failed() {
    let mut site = Site::of(Size::One).await;
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.fill_storage("ceph-vm")));
    site.begin(soon()).await;
    site.fails("StorageFull").await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_credentials_that_are_not_good_any_more() {
    let mut site = Site::of(Size::One).await;
    site.begin(soon()).await;
    site.comes_up().await;
    site.set_credentials(json!({"tokenSecret": "wrong"})).await;
    site.delete().await;
    let (message, remedy) = site.fails("LoginFailed").await;
    assert!(message.contains("prod-cp-0") && remedy.contains("tokenSecret"), "{message}: {remedy}");
    assert_eq!(site.ours().len(), 1, "what can't be removed is not forgotten");
    site.set_credentials(json!({"tokenSecret": TOKEN_SECRET})).await;
    site.is_gone().await;
    site.stops().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_provider_config() {
    let mut site = Site::of(Size::One).await;
    site.begin(soon()).await;
    site.comes_up().await;
    let configs = site.home.api::<ProviderConfig>();
    let mut kept = configs.get("site").await.unwrap();
    configs.delete("site", &DeleteParams::default()).await.unwrap();
    site.delete().await;
    let (message, remedy) = site.fails("ProviderConfigNotFound").await;
    assert!(message.contains("prod-cp-0"), "{message}");
    assert!(remedy.contains("create it"), "{remedy}");
    assert_eq!(site.ours().len(), 1, "what can't be removed is not forgotten");
    kept.metadata = kube::api::ObjectMeta { name: kept.metadata.name, ..Default::default() };
    configs.create(&PostParams::default(), &kept).await.unwrap();
    site.is_gone().await;
    site.stops().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_credentials() {
    let mut site = Site::of(Size::One).await;
    site.begin(soon()).await;
    site.comes_up().await;
    let secrets = site.home.api::<Secret>();
    secrets.delete("creds", &DeleteParams::default()).await.unwrap();
    site.delete().await;
    let (_, remedy) = site.fails("CredentialsNotFound").await;
    assert!(remedy.contains("create the Secret"), "{remedy}");
    assert_eq!(site.ours().len(), 1, "what can't be removed is not forgotten");
    site.home
        .create::<Secret>(json!({
            "metadata": {"name": "creds"},
            "stringData": {"token": "root@pam!butler", "tokenSecret": TOKEN_SECRET},
        }))
        .await;
    site.is_gone().await;
    site.stops().await;
}

/// Paused or not, what is to go goes.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_cluster_that_is_paused() {
    let mut site = Site::of(Size::One).await;
    site.begin(quick()).await;
    site.comes_up().await;
    site.patch(json!({"spec": {"paused": true}})).await;
    site.home
        .until::<ClusterBootstrap>(NAME, |cb| {
            let generation = cb.metadata.generation;
            cb.status.as_ref().is_some_and(|status| status.observed_generation == generation)
                && !has(cluster_conditions(cb), "Progressing", true, "Working")
        })
        .await;
    site.leaves_nothing().await;
}
