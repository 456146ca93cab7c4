//! What people change on the way: the spec before and after etcd is made, a pause, a full disk that is made room on.

use crate::site::{NAME, Site, Size, soon};
use crate::support::{cluster_conditions, has, quick};
use butler_api::{CONDITION_PROGRESSING, ClusterBootstrap, ClusterBootstrapPhase as Phase};
use butler_sim::{Matcher, Moment, Pattern};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn call(operation: &str) -> Matcher {
    Matcher { operation: Some(Pattern::from(operation)), ..Matcher::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_changes_while_machines_are_made() {
    let mut site = Site::of(Size::Four).await;
    let mut checkpoint = site.data_centre.gate().hold_when(call("POST */clone"), Moment::Before);
    site.begin(quick()).await;
    checkpoint.reached().await.unwrap();
    site.patch(json!({"spec": {"network": {"vip": "10.40.0.201"}}})).await;
    checkpoint.go_on();
    site.comes_up().await;
    let ready = site.home.until::<ClusterBootstrap>(NAME, |_| true).await;
    assert_eq!(ready.status.clone().unwrap().control_plane_endpoint.as_deref(), Some("10.40.0.201"));
    assert!(has(cluster_conditions(&ready), "SpecApplied", true, "AsAsked"));
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_machines_are_wanted_before_etcd_is_made() {
    let mut site = Site::of(Size::Four).await;
    let mut checkpoint = site.data_centre.gate().hold_when(call("ApplyConfiguration"), Moment::Before);
    site.begin_with(quick(), json!({"cluster": {"workers": {"replicas": 3}}})).await;
    checkpoint.reached().await.unwrap();
    site.patch(json!({"spec": {"cluster": {"workers": {"replicas": 1}}}})).await;
    checkpoint.go_on();
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_changes_when_the_cluster_is_there() {
    let mut site = Site::of(Size::One).await;
    site.begin(quick()).await;
    site.comes_up().await;
    site.patch(json!({"spec": {"network": {"podCIDR": "10.245.0.0/16"}}})).await;
    let told = site
        .home
        .until::<ClusterBootstrap>(NAME, |cb| {
            has(cluster_conditions(cb), "SpecApplied", false, "ChangeNotApplied")
        })
        .await;
    let said = butler_api::find_condition(cluster_conditions(&told), "SpecApplied").unwrap();
    assert!(said.message.contains("put them back"), "{}", said.message);
    let applied = site.calls("ApplyConfiguration").len();
    site.patch(json!({"spec": {"network": {"podCIDR": "10.244.0.0/16"}}})).await;
    site.home
        .until::<ClusterBootstrap>(NAME, |cb| {
            has(cluster_conditions(cb), "SpecApplied", true, "AsAsked")
                && crate::site::phase(cb) == Some(Phase::Ready)
        })
        .await;
    assert_eq!(site.calls("ApplyConfiguration").len(), applied, "the cluster that is there is left alone");
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_can_not_work_stops_at_once_and_a_better_one_goes_on() {
    let mut site = Site::of(Size::One).await;
    site.begin_with(quick(), json!({"talos": {"version": "v1.2.0"}})).await;
    let (message, remedy) = site.fails("TalosVersionUnsupported").await;
    assert!(message.contains("1.2") && remedy.contains("talos.version"), "{message}: {remedy}");
    assert_eq!(site.data_centre.gate().count(), 0, "nobody was asked for anything");
    site.patch(json!({"spec": {"talos": {"version": "v1.9.2"}}})).await;
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Paused in the middle of every phase, and on again.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_in_every_phase() {
    for operation in ["POST */clone", "POST */status/start", "ApplyConfiguration", "Bootstrap", "PATCH *"] {
        let mut site = Site::of(Size::One).await;
        let mut checkpoint = site.data_centre.gate().hold_when(call(operation), Moment::Before);
        site.begin(soon()).await;
        checkpoint.reached().await.unwrap();
        site.patch(json!({"spec": {"paused": true}})).await;
        site.home
            .until::<ClusterBootstrap>(NAME, |cb| {
                has(cluster_conditions(cb), CONDITION_PROGRESSING, false, "Paused")
            })
            .await;
        checkpoint.go_on();
        // The call that was under way ends; longer than every deadline, and no other change follows.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let changes = |site: &Site| site.calls("").iter().filter(|logged| logged.call.mutates).count();
        let made = changes(&site);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(changes(&site), made, "paused at {operation}");
        let paused = site.home.until::<ClusterBootstrap>(NAME, |_| true).await;
        assert!(crate::site::phase(&paused) != Some(Phase::Failed), "a pause is no failure");
        site.patch(json!({"spec": {"paused": false}})).await;
        site.comes_up().await;
        site.leaves_nothing().await;
    }
}

/// The disk under the embedded API is full: every write is refused as that API does it. Nothing is done that could not be
/// written down first, and everything goes on when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk() {
    for operation in ["POST */clone", "ApplyConfiguration", "Bootstrap", "PATCH *"] {
        let mut site = Site::of(Size::One).await;
        let full = Arc::new(AtomicBool::new(false));
        let mut context = site.context(quick());
        context.client = crate::disk::client(&site.home.server, full.clone());
        let mut checkpoint = site.data_centre.gate().hold_when(call(operation), Moment::Before);
        site.begin_as(context).await;
        checkpoint.reached().await.unwrap();
        full.store(true, Ordering::SeqCst);
        checkpoint.go_on();
        tokio::time::sleep(Duration::from_millis(500)).await;
        site.has_no_more_than_wanted();
        // The controllers are killed on top of it: all that they know is what was written down.
        let mut context = site.context(quick());
        context.client = crate::disk::client(&site.home.server, full.clone());
        site.next_life(context).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        full.store(false, Ordering::SeqCst);
        site.comes_up().await;
        site.leaves_nothing().await;
    }
}

/// The Secret with the configs, and what is noted in it of who has taken them, is lost while they are in use.
#[tokio::test(flavor = "multi_thread")]
async fn the_configs_are_deleted_while_etcd_is_made() {
    let mut site = Site::of(Size::One).await;
    let mut checkpoint = site.data_centre.gate().hold_when(call("Bootstrap"), Moment::Before);
    site.begin(quick()).await;
    checkpoint.reached().await.unwrap();
    site.home
        .api::<Secret>()
        .delete(&format!("{NAME}-talos-configs"), &DeleteParams::default())
        .await
        .unwrap();
    checkpoint.go_on();
    site.comes_up().await;
    site.leaves_nothing().await;
}
