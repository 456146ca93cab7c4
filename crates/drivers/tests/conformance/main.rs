//! Conformance of drivers to `docs/contracts/`. A new driver brings a [`harness::Harness`] and one list of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;
mod proxmox;
mod proxmox_alone;
mod suite;

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

#[tokio::test]
async fn proxmox_a_preflight() {
    suite::a_preflight::<ProxmoxWorld>().await;
}
