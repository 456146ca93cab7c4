//! Golden journals: create, target by target, drift, replace, delete.

use super::journal::Journal;
use super::lives::golden;
use super::*;
use kube::api::DeleteParams;

#[tokio::test]
async fn create() {
    let cloud = cloud();
    cloud.by_hand(|state| state.pending = true);
    let (home, life) = home(&cloud).await;
    let journal = Journal::follow(&home);
    home.create::<LoadBalancerRequest>(request(&[])).await;
    let waiting = home
        .until::<LoadBalancerRequest>(NAME, |request| {
            told(request, "Provisioned").is_some_and(|told| told.message.ends_with("to be active"))
        })
        .await;
    assert_eq!(phase(&waiting), Some(LoadBalancerPhase::Creating), "it is there, and does not answer yet");
    assert!(waiting.status.unwrap().endpoint.is_some(), "machines can be told of it");
    cloud.by_hand(|state| state.pending = false);
    synced(&home).await;
    let text = journal.text("a load balancer is made", "phase Ready", &cloud.take_journal()).await;
    golden("balancer-create", &text);
    life.end().await;
}

#[tokio::test]
async fn target_by_target() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    let journal = Journal::follow(&home);
    home.create::<LoadBalancerRequest>(request(&[])).await;
    synced(&home).await;
    journal.text("", "phase Ready", &cloud.take_journal()).await;
    let all = ["10.128.0.10", "10.128.0.11", "10.128.0.12"];
    for number in 1..=all.len() {
        aim(&home, &all[..number]).await;
        let request = synced(&home).await;
        let status = request.status.unwrap();
        assert_eq!(status.registered_targets, Some(i32::try_from(number).unwrap()));
        assert_eq!(status.observed_generation, request.metadata.generation);
    }
    let text =
        journal.text("control planes come one by one", "TargetsSynced=true", &cloud.take_journal()).await;
    golden("balancer-targets", &text);
    life.end().await;
}

#[tokio::test]
async fn drift() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    let journal = Journal::follow(&home);
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10", "10.128.0.11"])).await;
    synced(&home).await;
    journal.text("", "TargetsSynced=true", &cloud.take_journal()).await;
    // A listener is taken away: it comes back, with its targets.
    cloud.by_hand(|state| state.ports.clear());
    journal.tells("Provisioned=false").await;
    let mended = synced(&home).await;
    assert_eq!(mended.status.unwrap().registered_targets, Some(2));
    let first =
        journal.text("a listener is removed by hand", "TargetsSynced=true", &cloud.take_journal()).await;
    // A target is taken out: it comes back.
    cloud.by_hand(|state| state.ports.get_mut(&6443).unwrap().registered.remove("10.128.0.11"));
    journal.tells("TargetsSynced=false").await;
    synced(&home).await;
    let second =
        journal.text("a target is taken out by hand", "TargetsSynced=true", &cloud.take_journal()).await;
    // Somebody adds a machine of their own: it is reported and left alone.
    cloud.by_hand(|state| state.ports.get_mut(&6443).unwrap().foreign.insert("10.9.9.9".into()));
    let reported = home.until::<LoadBalancerRequest>(NAME, |request| holds(request, "ForeignTargets")).await;
    assert!(told(&reported, "ForeignTargets").unwrap().message.contains("10.9.9.9"));
    assert_eq!(reported.status.unwrap().registered_targets, Some(2), "it is not one of ours");
    aim(&home, &["10.128.0.10"]).await;
    home.until::<LoadBalancerRequest>(NAME, |request| {
        told(request, "TargetsSynced").is_some_and(|told| told.reason == "TargetsDraining")
    })
    .await;
    cloud.by_hand(|state| {
        let port = state.ports.get_mut(&6443).unwrap();
        assert_eq!(port.foreign.iter().next().map(String::as_str), Some("10.9.9.9"), "it is still there");
        port.draining.clear();
    });
    synced(&home).await;
    let third = journal
        .text("somebody adds a target of their own", "TargetsSynced=true", &cloud.take_journal())
        .await;
    golden("balancer-drift", &[first, second, third].join("\n"));
    life.end().await;
}

#[tokio::test]
async fn replace() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    let journal = Journal::follow(&home);
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10", "10.128.0.11", "10.128.0.12"])).await;
    synced(&home).await;
    journal.text("", "TargetsSynced=true", &cloud.take_journal()).await;
    aim(&home, &["10.128.0.10", "10.128.0.11", "10.128.0.77"]).await;
    let draining = home
        .until::<LoadBalancerRequest>(NAME, |request| {
            told(request, "TargetsSynced").is_some_and(|told| told.reason == "TargetsDraining")
        })
        .await;
    assert_eq!(phase(&draining), Some(LoadBalancerPhase::Ready), "it serves all the while");
    assert!(told(&draining, "TargetsSynced").unwrap().message.ends_with("10.128.0.12"));
    cloud.by_hand(|state| state.ports.get_mut(&6443).unwrap().draining.clear());
    synced(&home).await;
    let text = journal.text("a control plane is replaced", "TargetsSynced=true", &cloud.take_journal()).await;
    golden("balancer-replace", &text);
    life.end().await;
}

#[tokio::test]
async fn delete() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    let journal = Journal::follow(&home);
    let mut wanted = request(&["10.128.0.10"]);
    wanted["spec"]["listeners"] = json!([{"port": 50000}]);
    home.create::<LoadBalancerRequest>(wanted).await;
    synced(&home).await;
    journal.text("", "TargetsSynced=true", &cloud.take_journal()).await;
    // Protected, and then throttled: nothing is let go of.
    cloud.by_hand(|state| state.protected = true);
    home.api::<LoadBalancerRequest>().delete(NAME, &DeleteParams::default()).await.unwrap();
    let stuck = home
        .until::<LoadBalancerRequest>(NAME, |request| {
            told(request, "Degraded").is_some_and(|told| told.reason == "DeletionProtected")
        })
        .await;
    assert_eq!(phase(&stuck), Some(LoadBalancerPhase::Deleting));
    assert_eq!(stuck.status.unwrap().failure_reason.as_deref(), Some("DeletionProtected"));
    cloud.by_hand(|state| {
        let throttled = support::failure(butler_drivers::Class::Throttled, "Throttled");
        (state.protected, state.faults) = (false, [throttled].into());
    });
    home.until_gone::<LoadBalancerRequest>(NAME).await;
    cloud.by_hand(|state| {
        assert!(state.address.is_none() && state.ports.is_empty() && state.faults.is_empty())
    });
    let text = journal.text("a load balancer goes", "Degraded=false", &cloud.take_journal()).await;
    golden("balancer-delete", &text);
    life.end().await;
}
