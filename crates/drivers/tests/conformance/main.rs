//! Conformance of drivers to `docs/contracts/`. A new driver brings a [`harness::Harness`] and one list of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod aws;
mod aws_alone;
mod balancers;
mod gcp;
mod gcp_alone;
mod ground;
mod harness;
mod images;
mod proxmox;
mod proxmox_alone;
mod suite;

use aws::AwsWorld;
use gcp::{GcpPools, GcpWorld};
use proxmox::{ProxmoxWithoutRange, ProxmoxWorld};
use suite::Life;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_a_life() {
    suite::a_life::<ProxmoxWorld>().await;
}

#[tokio::test]
async fn proxmox_a_foreigner_is_left_alone() {
    suite::a_foreigner_is_left_alone::<ProxmoxWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_many_at_once() {
    suite::many_at_once::<ProxmoxWorld>().await;
}

#[tokio::test]
async fn proxmox_no_memory_is_needed() {
    suite::no_memory_is_needed::<ProxmoxWorld>().await;
}

#[tokio::test]
async fn proxmox_half_made_is_removed() {
    suite::half_made_is_removed::<ProxmoxWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_every_call_goes_wrong() {
    suite::every_call_goes_wrong::<ProxmoxWorld>(Life::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_every_call_goes_wrong_and_the_caller_dies() {
    suite::every_call_goes_wrong::<ProxmoxWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_lost_answers_and_stale_looks() {
    suite::lost_answers_and_stale_looks::<ProxmoxWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_without_range_a_life() {
    suite::a_life::<ProxmoxWithoutRange>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_without_range_many_at_once() {
    suite::many_at_once::<ProxmoxWithoutRange>().await;
}

#[tokio::test]
async fn proxmox_without_range_half_made_is_removed() {
    suite::half_made_is_removed::<ProxmoxWithoutRange>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_without_range_every_call_goes_wrong() {
    suite::every_call_goes_wrong::<ProxmoxWithoutRange>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_without_range_lost_answers_and_stale_looks() {
    suite::lost_answers_and_stale_looks::<ProxmoxWithoutRange>(Life::Same).await;
    suite::lost_answers_and_stale_looks::<ProxmoxWithoutRange>(Life::Reborn).await;
}

#[tokio::test]
async fn proxmox_an_image() {
    suite::an_image::<ProxmoxWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_every_call_of_an_image_goes_wrong_and_the_caller_dies() {
    images::every_call_goes_wrong::<ProxmoxWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxmox_every_call_of_an_image_on_a_shared_storage_goes_wrong() {
    images::every_call_goes_wrong::<ProxmoxWithoutRange>(Life::Same).await;
}

#[tokio::test]
async fn proxmox_a_half_fetched_image_is_removed() {
    images::half_fetched_is_removed::<ProxmoxWorld>().await;
}

#[tokio::test]
async fn proxmox_no_image_is_fetched_twice() {
    images::nothing_is_fetched_twice::<ProxmoxWorld>().await;
}

#[tokio::test]
async fn proxmox_a_preflight() {
    suite::a_preflight::<ProxmoxWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_a_life() {
    suite::a_life::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_a_foreigner_is_left_alone() {
    suite::a_foreigner_is_left_alone::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_many_at_once() {
    suite::many_at_once::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_no_memory_is_needed() {
    suite::no_memory_is_needed::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_half_made_is_removed() {
    suite::half_made_is_removed::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_every_call_goes_wrong() {
    suite::every_call_goes_wrong::<GcpWorld>(Life::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_every_call_goes_wrong_and_the_caller_dies() {
    suite::every_call_goes_wrong::<GcpWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_lost_answers_and_stale_looks() {
    suite::lost_answers_and_stale_looks::<GcpWorld>(Life::Reborn).await;
}

#[tokio::test]
async fn gcp_a_preflight() {
    suite::a_preflight::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_a_balancers_life() {
    balancers::a_life::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_a_foreign_balancer_is_left_alone() {
    balancers::a_foreigner_is_left_alone::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_a_balancer_drifts() {
    balancers::drift_is_repaired::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_a_member_of_a_balancer_vanishes() {
    balancers::a_member_vanishes::<GcpWorld>().await;
}

#[tokio::test]
async fn gcp_a_balancer_needs_no_memory() {
    balancers::no_memory_is_needed::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_a_half_made_balancer_is_removed() {
    balancers::half_made_is_removed::<GcpWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_every_call_of_a_balancer_goes_wrong() {
    balancers::every_call_goes_wrong::<GcpWorld>(Life::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_every_call_of_a_balancer_goes_wrong_and_the_caller_dies() {
    balancers::every_call_goes_wrong::<GcpWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_a_balancers_lost_answers_and_stale_looks() {
    balancers::lost_answers_and_stale_looks::<GcpWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_pools_a_balancers_life() {
    balancers::a_life::<GcpPools>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_pools_a_balancer_drifts() {
    balancers::drift_is_repaired::<GcpPools>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_a_life() {
    suite::a_life::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_a_foreigner_is_left_alone() {
    suite::a_foreigner_is_left_alone::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_many_at_once() {
    suite::many_at_once::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_no_memory_is_needed() {
    suite::no_memory_is_needed::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_half_made_is_removed() {
    suite::half_made_is_removed::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_every_call_goes_wrong() {
    suite::every_call_goes_wrong::<AwsWorld>(Life::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_every_call_goes_wrong_and_the_caller_dies() {
    suite::every_call_goes_wrong::<AwsWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_lost_answers_and_stale_looks() {
    suite::lost_answers_and_stale_looks::<AwsWorld>(Life::Reborn).await;
}

#[tokio::test]
async fn aws_a_preflight() {
    suite::a_preflight::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_a_balancers_life() {
    balancers::a_life::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_a_foreign_balancer_is_left_alone() {
    balancers::a_foreigner_is_left_alone::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_a_balancer_drifts() {
    balancers::drift_is_repaired::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_a_member_of_a_balancer_vanishes() {
    balancers::a_member_vanishes::<AwsWorld>().await;
}

#[tokio::test]
async fn aws_a_balancer_needs_no_memory() {
    balancers::no_memory_is_needed::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_a_half_made_balancer_is_removed() {
    balancers::half_made_is_removed::<AwsWorld>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_every_call_of_a_balancer_goes_wrong() {
    balancers::every_call_goes_wrong::<AwsWorld>(Life::Same).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_every_call_of_a_balancer_goes_wrong_and_the_caller_dies() {
    balancers::every_call_goes_wrong::<AwsWorld>(Life::Reborn).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_a_balancers_lost_answers_and_stale_looks() {
    balancers::lost_answers_and_stale_looks::<AwsWorld>(Life::Reborn).await;
}
