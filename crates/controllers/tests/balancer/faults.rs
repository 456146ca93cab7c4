//! What is in the way of a load balancer: it is told, it goes away, and nothing is lost meanwhile.

use super::*;
use butler_drivers::{Class, Owner};
use kube::ResourceExt;
use kube::api::DeleteParams;
use std::time::Duration;
use support::failure;

fn reason(request: &LoadBalancerRequest) -> Option<&str> {
    request.status.as_ref()?.failure_reason.as_deref()
}

#[tokio::test]
async fn the_whole_status_is_as_documented() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10", "10.128.0.11"])).await;
    let made = synced(&home).await;
    assert_eq!(made.finalizers(), ["butler.butlerlabs.dev/loadbalancerrequest"]);
    assert_eq!(
        (
            told(&made, "Provisioned").unwrap().reason.as_str(),
            told(&made, "TargetsSynced").unwrap().reason.as_str()
        ),
        ("LBReady", "AllTargetsRegistered")
    );
    assert_eq!(told(&made, "TargetsSynced").unwrap().message, "2 targets registered");
    let status = made.status.unwrap();
    assert_eq!(
        (status.endpoint.as_deref(), status.resource_id.as_deref()),
        (Some("198.51.100.7"), Some("rule-1"))
    );
    assert_eq!((status.registered_targets, status.listeners[0].healthy), (Some(2), 2));
    assert_eq!(status.observed_generation, made.metadata.generation);
    assert!(status.last_updated.is_some() && status.failure_reason.is_none() && status.operation.is_none());
    life.end().await;
}

#[tokio::test]
async fn obstacles_are_told_by_their_class_and_go_away() {
    for (class, told_as) in
        [(Class::Quota, "Degraded"), (Class::Auth, "Degraded"), (Class::Throttled, "Degraded")]
    {
        let cloud = cloud();
        cloud.by_hand(|state| state.faults.extend((0..200).map(|_| failure(class, "InTheWay"))));
        let (home, life) = home(&cloud).await;
        home.create::<LoadBalancerRequest>(request(&["10.128.0.10"])).await;
        let obstructed = home
            .until::<LoadBalancerRequest>(NAME, move |request| {
                told(request, told_as).is_some_and(|told| told.is_true() && told.reason == "InTheWay")
            })
            .await;
        assert_eq!(phase(&obstructed), Some(LoadBalancerPhase::Creating), "{class} is not the end");
        assert!(obstructed.status.unwrap().failure_message.unwrap().contains("what to do: mend it"));
        cloud.by_hand(|state| state.faults.clear());
        let made = synced(&home).await;
        assert_eq!(reason(&made), None, "{class}");
        life.end().await;
    }
}

#[tokio::test]
async fn a_conflict_stops_and_another_spec_starts_it_again() {
    let cloud = cloud();
    let somebody =
        Owner { cluster: "prod".into(), cluster_uid: "theirs".into(), object_uid: "theirs".into() };
    cloud.by_hand(|state| state.address = Some(somebody.clone()));
    let home = Home::new().await;
    provider(&home).await;
    let mut context = home.context(Arc::new(cloud.clone()));
    context.deadlines.slow_retry = Duration::from_secs(3600);
    context.deadlines.resync = Duration::from_secs(3600);
    let life = home.start(context);
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10"])).await;
    let failed = home
        .until::<LoadBalancerRequest>(NAME, |request| phase(request) == Some(LoadBalancerPhase::Failed))
        .await;
    assert_eq!(reason(&failed), Some("NameTaken"));
    assert!(cloud.journal().is_empty(), "nothing of theirs was touched");
    // They take theirs away, and the request is changed: that is a reason to look at once.
    cloud.by_hand(|state| state.address = None);
    aim(&home, &["10.128.0.11"]).await;
    synced(&home).await;
    // Theirs again, with ours wanted gone: it is not removed, and the finalizer stays until it is known to be ours or gone.
    cloud.by_hand(|state| state.address = Some(somebody));
    home.api::<LoadBalancerRequest>().delete(NAME, &DeleteParams::default()).await.unwrap();
    let stuck = home
        .until::<LoadBalancerRequest>(NAME, |request| {
            phase(request) == Some(LoadBalancerPhase::Deleting) && reason(request) == Some("NameTaken")
        })
        .await;
    assert_eq!(stuck.finalizers().len(), 1);
    cloud.by_hand(|state| assert!(state.address.is_some()));
    life.end().await;
}

#[tokio::test]
async fn a_missing_provider_and_bad_specs_are_told_and_mended() {
    let cloud = cloud();
    let home = Home::new().await;
    let life = home.start(home.context(Arc::new(cloud.clone())));
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10", "10.128.0.10"])).await;
    home.until::<LoadBalancerRequest>(NAME, |request| reason(request) == Some("ValidationFailed")).await;
    aim(&home, &["10.128.0.10"]).await;
    home.until::<LoadBalancerRequest>(NAME, |request| reason(request) == Some("ProviderConfigNotFound"))
        .await;
    provider(&home).await;
    synced(&home).await;
    life.end().await;
}

#[tokio::test]
async fn one_that_was_never_asked_for_goes_without_a_call() {
    let cloud = cloud();
    let home = Home::new().await;
    let life = home.start(home.context(Arc::new(cloud.clone())));
    home.create::<LoadBalancerRequest>(request(&[])).await;
    home.until::<LoadBalancerRequest>(NAME, |request| reason(request) == Some("ProviderConfigNotFound"))
        .await;
    home.api::<LoadBalancerRequest>().delete(NAME, &DeleteParams::default()).await.unwrap();
    home.until_gone::<LoadBalancerRequest>(NAME).await;
    life.end().await;
}

#[tokio::test]
async fn an_infrastructure_without_load_balancers_says_so() {
    let home = Home::new().await;
    home.provider(json!({})).await;
    let script = Arc::new(support::Script::default());
    let life = home.start(home.context(Arc::new(support::Scripted(script))));
    home.create::<LoadBalancerRequest>(request(&[])).await;
    let told = home.until::<LoadBalancerRequest>(NAME, |request| reason(request).is_some()).await;
    assert_eq!(reason(&told), Some("LoadBalancersNotThere"));
    life.end().await;
}

#[tokio::test]
async fn one_that_never_turns_active_is_told_as_late_and_watched_on() {
    let cloud = cloud();
    cloud.by_hand(|state| state.pending = true);
    let home = Home::new().await;
    provider(&home).await;
    let mut context = home.context(Arc::new(cloud.clone()));
    context.deadlines.load_balancer = Duration::from_millis(200);
    let life = home.start(context);
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10"])).await;
    let late = home
        .until::<LoadBalancerRequest>(NAME, |request| phase(request) == Some(LoadBalancerPhase::Failed))
        .await;
    assert_eq!(reason(&late), Some("LoadBalancerLate"));
    assert!(late.status.unwrap().failure_message.unwrap().contains("to be active"));
    cloud.by_hand(|state| state.pending = false);
    let made = synced(&home).await;
    assert_eq!(reason(&made), None);
    life.end().await;
}

#[tokio::test]
async fn a_second_life_finds_it_and_changes_nothing() {
    let cloud = cloud();
    let (home, life) = home(&cloud).await;
    home.create::<LoadBalancerRequest>(request(&["10.128.0.10"])).await;
    let before = synced(&home).await;
    life.end().await;
    cloud.take_journal();
    let life = home.start(home.context(Arc::new(cloud.clone())));
    cloud.by_hand(|state| state.ports.get_mut(&6443).unwrap().foreign.insert("10.9.9.9".into()));
    let after = home.until::<LoadBalancerRequest>(NAME, |request| holds(request, "ForeignTargets")).await;
    assert!(cloud.journal().is_empty(), "{:?}", cloud.journal());
    assert_eq!(after.status.unwrap().endpoint, before.status.unwrap().endpoint);
    life.end().await;
}
