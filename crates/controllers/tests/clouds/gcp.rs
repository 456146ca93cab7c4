//! Google Cloud: a load balancer that hands packets on with its own address in them.

use crate::lives::Place;
use crate::site::Site;
use crate::stories;
use serde_json::json;

async fn site() -> Site {
    Site::new(Place::Gcp).await
}

fn known(id: &str, name: &str) -> bool {
    id.starts_with("gce://rehearsal/us-central1-") && id.ends_with(&format!("/{name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_cluster_comes_up_behind_its_load_balancer_and_goes_away() {
    stories::ha(site().await, json!({}), known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configs_can_come_with_the_machines() {
    let site = site().await;
    // The load balancer's address is on every control plane, and must not be taken for its own.
    site.names_the_nodes_network("10.128.0.0/20").await;
    stories::ha(site, json!({"talos": {"configDelivery": "userData"}}), known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_needs_no_load_balancer_and_takes_traffic() {
    stories::single(site().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_control_plane_is_lost_and_requests_keep_working() {
    stories::lost(site().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_is_replaced_and_takes_the_place_of_the_old_one() {
    stories::replaced(site().await).await;
}
