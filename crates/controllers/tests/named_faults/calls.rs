//! What can go wrong with single calls: throttling, errors of the server, lost answers, stale reads.

use crate::site::{Setting, Site, Size, soon};
use crate::support::quick;

/// Calls to the infrastructure are refused until it is mended; the obstacle has a name all the while.
async fn refused(fault: &str, reason: &'static str) {
    let mut site = Site::of(Size::One).await;
    site.set_faults(&format!("calls: [{{system: proxmox, times: always, fault: {fault}}}]"));
    site.begin(soon()).await;
    site.is_degraded(reason).await;
    site.fails(reason).await;
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_for_good() {
    refused("throttle", "TooManyCalls").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_server_for_good() {
    refused("status 503", "Unavailable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn internal_errors_for_good() {
    refused("status 500", "Busy").await;
}

/// Every third call or so goes wrong, on all systems; the cluster comes up and goes away all the same.
async fn all_the_time(faults: &'static str) {
    let mut site = Site::new(Setting { faults, size: Size::Four, ..Setting::default() }).await;
    site.begin(quick()).await;
    site.comes_up().await;
    let met = site.calls("").iter().filter(|logged| logged.fault.is_some()).count();
    assert!(met > 3, "only {met} faults were met");
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_and_errors_again_and_again() {
    all_the_time("random: {rate: 0.2, limit: 60, faults: [throttle, status 500, status 503, reset]}").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_to_a_change_of_machines_is_lost() {
    all_the_time(
        "calls:\n- {system: proxmox, operation: 'POST *', times: 40, fault: lose-answer}\n\
         - {system: proxmox, operation: 'PUT *', times: 40, fault: lose-answer}\n\
         - {system: proxmox, operation: 'DELETE *', times: 40, fault: lose-answer}",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_talos_and_kubernetes_are_lost() {
    all_the_time(
        "calls:\n- {operation: ApplyConfiguration, times: 6, fault: lose-answer}\n\
         - {operation: Bootstrap, times: 2, fault: lose-answer}\n\
         - {system: kubernetes, operation: 'PATCH *', times: 12, fault: lose-answer}",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_behind() {
    all_the_time(
        "calls:\n- {system: proxmox, operation: 'GET /cluster/resources*', times: 60, fault: stale-read}\n\
         - {system: proxmox, operation: 'GET */config', nth: 3, times: 20, fault: stale-read}",
    )
    .await;
}
