//! What a cloud controller has made for Services goes while there is somebody who can remove it.

use super::super::memory::Trouble;
use super::super::plan::plan;
use super::super::plan::tests::{at, check, complete, running, trouble, words};
use super::super::target::SERVICES_LEAVING;
use super::*;
use crate::{Class, Failure, Profile};
use butler_api::{ClusterBootstrapStatus, Provider};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A cluster in a cloud that is ready and is to go.
fn leaving(controller: bool) -> Observed {
    let mut observed = complete(super::super::plan::tests::begun());
    observed.profile = Profile::of(Provider::Aws);
    observed.object.metadata.deletion_timestamp = Some(Time(at(5)));
    let mut status = ClusterBootstrapStatus::default();
    if controller {
        status.addons_installed.insert(CONTROLLER.to_owned(), true);
    }
    observed.object.status = Some(status);
    observed
}

const MACHINES: [&str; 3] =
    ["DeleteMachine(\"prod-cp-0\")", "DeleteMachine(\"prod-cp-1\")", "DeleteMachine(\"prod-cp-2\")"];

#[test]
fn services_go_first_where_a_controller_makes_load_balancers_for_them() {
    check("first", &leaving(true), &["Start(Withdraw)"]);
    check("waited for", &running(leaving(true), &[Task::Withdraw]), &["wait ServicesLeaving"]);
    check("gone", &Observed { withdrawn: true, ..leaving(true) }, &MACHINES);
    check("there is no controller", &leaving(false), &MACHINES);
    check("there never was a cluster", &Observed { kubeconfig: None, ..leaving(true) }, &MACHINES);
    let mut on_prem = leaving(true);
    on_prem.profile = Profile::of(Provider::Proxmox);
    check("on-prem", &on_prem, &MACHINES);
    let mut late = leaving(true);
    late.machines.get_mut("prod-cp-1").unwrap().metadata.deletion_timestamp = Some(Time(at(6)));
    assert!(
        !words(&plan(&late)).contains(&"Start(Withdraw)".to_owned()),
        "a second life asks no half-gone cluster"
    );
}

#[test]
fn a_silent_cluster_is_given_up_soon_and_one_that_answers_gets_its_time() {
    let limits = leaving(true).deadlines;
    let silence = i64::try_from(SILENCE.as_secs()).unwrap();
    let silent = |second| Observed {
        now: at(second),
        ..trouble(leaving(true), Task::Withdraw, Class::Retryable, 500)
    };
    check("silent", &silent(20), &["wait Why"]);
    check("silent for long", &silent(5 + silence), &MACHINES);
    let busy = |second| {
        let mut observed = Observed { now: at(second), heard: Some(at(second)), ..leaving(true) };
        let failure = Failure::new(Class::Retryable, SERVICES_LEAVING, "a/b", "look");
        observed.troubles.insert(Task::Withdraw, Trouble { failure, failures: 9, until: at(9999) });
        observed
    };
    check("it answers, and clouds take their time", &busy(5 + silence), &["wait ServicesLeaving"]);
    let half = i64::try_from(limits.deletion.as_secs() / 2).unwrap();
    check("not for ever", &busy(5 + half), &MACHINES);
    let told = super::super::status::status(&busy(5 + half), &plan(&busy(5 + half)));
    let degraded = butler_api::find_condition(&told.conditions, "Degraded").unwrap();
    assert_eq!(
        (degraded.is_true(), degraded.reason.as_str()),
        (true, SERVICES_LEAVING),
        "what is left is told"
    );
}

/// Time in which nobody ran does not count, and what a later life is not told by an earlier one it finds out itself.
#[test]
fn a_later_life_asks_again_before_it_gives_up() {
    let silence = i64::try_from(SILENCE.as_secs()).unwrap();
    let later = |second| Observed { since: at(600), now: at(second), ..leaving(true) };
    check("nobody was asked in this life", &later(600), &["Start(Withdraw)"]);
    check("nor for long", &later(601 + silence), &["Start(Withdraw)"]);
    let silent = |second| Observed {
        now: at(second),
        since: at(600),
        ..trouble(leaving(true), Task::Withdraw, Class::Retryable, 5000)
    };
    check("silent from the start of this life", &silent(599 + silence), &["wait Why"]);
    check("silent for long", &silent(600 + silence), &MACHINES);
}

#[test]
fn one_lost_connection_does_not_undo_what_was_heard() {
    let lost = |second| Observed {
        now: at(second),
        heard: Some(at(125)),
        ..trouble(leaving(true), Task::Withdraw, Class::Retryable, 5000)
    };
    check("it answered a moment ago", &lost(130), &["wait Why"]);
    let silence = i64::try_from(SILENCE.as_secs()).unwrap();
    check("it never came back", &lost(125 + silence), &MACHINES);
}

#[test]
fn what_an_earlier_life_left_is_told_by_the_next() {
    let failure = Failure::new(Class::Retryable, SERVICES_LEAVING, "a/b is left", "look");
    let mut first = leaving(true);
    first.troubles.insert(Task::Withdraw, Trouble { failure, failures: 1, until: at(9999) });
    let told = super::super::status::status(&first, &plan(&first));
    let withdrawn = butler_api::find_condition(&told.conditions, SERVICES_WITHDRAWN).unwrap();
    assert!(!withdrawn.is_true() && withdrawn.message.contains("a/b is left"), "{withdrawn:?}");
    let mut second = leaving(true);
    second.object.status = Some(told);
    second.machines.get_mut("prod-cp-1").unwrap().metadata.deletion_timestamp = Some(Time(at(6)));
    let told = super::super::status::status(&second, &plan(&second));
    let degraded = butler_api::find_condition(&told.conditions, "Degraded").unwrap();
    assert_eq!((degraded.is_true(), degraded.reason.as_str()), (true, SERVICES_LEAVING));
    assert!(degraded.message.contains("a/b is left"), "{}", degraded.message);
}
