//! AWS: a load balancer with a name, which connects by itself.

use crate::lives::Place;
use crate::site::Site;
use crate::stories;
use serde_json::json;

async fn site() -> Site {
    Site::new(Place::Aws).await
}

fn known(id: &str, _: &str) -> bool {
    id.starts_with("aws:///eu-central-1") && id.contains("/i-")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ha_cluster_comes_up_behind_its_load_balancer_and_goes_away() {
    // The Talos API of control planes and of workers, beside the Kubernetes API.
    let ports = json!([{"port": 50000}, {"port": 50001, "targetPort": 50000, "role": "worker"}]);
    stories::ha(site().await, json!({"controlPlaneLoadBalancer": {"listeners": ports}}), known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configs_can_come_with_the_machines() {
    stories::ha(site().await, json!({"talos": {"configDelivery": "userData"}}), known).await;
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
