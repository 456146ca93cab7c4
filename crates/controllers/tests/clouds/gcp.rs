//! Google Cloud: a load balancer that hands packets on with its own address in them.

use crate::lives::Place;
use crate::site::Site;
use crate::stories;
use serde_json::json;

async fn site() -> Site {
    Site::new(Place::Gcp).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_cluster_comes_up_behind_its_load_balancer_and_goes_away() {
    let known = |id: &str, name: &str| {
        id.starts_with("gce://rehearsal/us-central1-") && id.ends_with(&format!("/{name}"))
    };
    stories::ha(site().await, json!({}), known).await;
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
