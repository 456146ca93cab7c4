//! What a bootstrap's status says.

use super::super::memory::TalosSight;
use super::super::plan::plan;
use super::super::plan::tests::{
    asked, at, begun, complete, configured, etcd_up, machines_up, reached, running, seen, stored, surveyed,
    trouble,
};
use super::*;
use crate::Class;
use butler_api::{Condition, find_condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn told(observed: &Observed) -> ClusterBootstrapStatus {
    status(observed, &plan(observed))
}

fn holds(status: &ClusterBootstrapStatus, type_: &str) -> bool {
    find_condition(&status.conditions, type_).is_some_and(Condition::is_true)
}

fn reason(status: &ClusterBootstrapStatus, type_: &str) -> String {
    find_condition(&status.conditions, type_).unwrap().reason.clone()
}

#[test]
fn phases_follow_the_milestones() {
    let mut new = begun();
    new.object.metadata.finalizers = None;
    let mut paused = begun();
    paused.object.spec.paused = true;
    let table = [
        ("new", new, Phase::Pending, 1),
        ("begun", begun(), Phase::ProvisioningMachines, 1),
        ("paused", paused, Phase::ProvisioningMachines, 1),
        ("asked", asked(begun()), Phase::ProvisioningMachines, 1),
        ("machines", machines_up(begun()), Phase::ConfiguringTalos, 2),
        ("stored", stored(begun()), Phase::ConfiguringTalos, 2),
        ("configured", configured(begun()), Phase::BootstrappingCluster, 3),
        ("etcd", etcd_up(begun()), Phase::BootstrappingCluster, 4),
        ("reached", reached(begun()), Phase::InstallingAddons, 5),
        ("addons", surveyed(begun()), Phase::InstallingAddons, 5),
        ("complete", complete(begun()), Phase::Ready, 6),
    ];
    for (name, observed, phase, milestones) in table {
        let status = told(&observed);
        assert_eq!(status.phase, Some(phase), "{name}");
        let held = Milestone::ALL.iter().filter(|milestone| holds(&status, milestone.condition())).count();
        assert_eq!(held, milestones, "{name}");
        assert_eq!(holds(&status, "Ready"), phase == Phase::Ready, "{name}");
        assert_eq!(holds(&status, "Progressing"), phase != Phase::Ready && name != "paused", "{name}");
        assert!(!holds(&status, "Failed") && !holds(&status, "Pivoted"), "{name}");
        assert_eq!(status.observed_generation, Some(1));
    }
}

#[test]
fn the_bootstrap_machine_is_written_before_etcd_is_made() {
    let observed = configured(begun());
    let step = plan(&observed);
    assert_eq!(step, Step::Do(vec![Action::Start(Task::Bootstrap)]));
    assert_eq!(status(&observed, &step).bootstrap_machine.as_deref(), Some("prod-cp-0"));
    assert_eq!(told(&stored(begun())).bootstrap_machine, None);
    let mut written = configured(begun());
    written.object.status =
        Some(ClusterBootstrapStatus { bootstrap_machine: Some("prod-cp-1".into()), ..Default::default() });
    assert_eq!(told(&written).bootstrap_machine.as_deref(), Some("prod-cp-1"), "never changed");
}

#[test]
fn machines_and_credentials_are_told() {
    let status = told(&complete(begun()));
    assert_eq!(status.machines.len(), 3);
    assert!(status.machines.iter().all(|machine| machine.talos_configured && machine.ready));
    assert_eq!(status.machines[0].ip_address.as_deref(), Some("10.40.0.11"));
    assert_eq!(status.control_plane_endpoint.as_deref(), Some("10.40.0.200"));
    assert_eq!(status.talosconfig, Some(STANDARD.encode("talosconfig")));
    assert!(status.kubeconfig.is_some());
    assert_eq!(status.addons_installed.len(), 3, "what is skipped is not installed");
    assert!(told(&stored(begun())).kubeconfig.is_none(), "of no use before etcd");
    let mut private = complete(begun());
    private.object.metadata.annotations =
        Some([("butler.butlerlabs.dev/credentials-in-status".to_owned(), "false".to_owned())].into());
    let status = told(&private);
    assert_eq!((status.kubeconfig, status.talosconfig), (None, None));
}

#[test]
fn a_console_has_an_address_once_it_is_there() {
    let mut observed = complete(begun());
    let console = &mut observed.object.spec.addons.console;
    console.enabled = true;
    console.ingress = Some(butler_api::ConsoleIngressSpec { enabled: true, tls: true, ..Default::default() });
    assert_eq!(told(&observed).console_url, None);
    assert_eq!(console_url(&observed).as_deref(), Some("https://butler.prod.local"));
}

#[test]
fn a_stop_is_a_failure_with_a_remedy_and_stays_while_it_is_tried_again() {
    let look = Task::Look("prod-cp-0".into());
    let stopped = told(&trouble(stored(begun()), look.clone(), Class::Conflict, 20));
    assert_eq!(stopped.phase, Some(Phase::Failed));
    assert_eq!(
        (
            stopped.failure_reason.as_deref(),
            stopped.failure_message.as_deref(),
            stopped.failure_remedy.as_deref()
        ),
        (Some("Why"), Some("it failed"), Some("mend it"))
    );
    assert!(holds(&stopped, "Failed") && !holds(&stopped, "Progressing"));
    let again = trouble(stored(begun()), look, Class::Conflict, 5);
    assert!(matches!(plan(&again), Step::Do(_)));
    assert_eq!(told(&again).phase, Some(Phase::Failed));
}

#[test]
fn a_deadline_is_a_failure_that_goes_away_with_its_cause() {
    let mut waiting = asked(begun());
    waiting.object.status = Some(told(&waiting));
    let late = Observed { now: waiting.now + waiting.deadlines.machines, ..waiting };
    let status = told(&late);
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.failure_reason.as_deref(), Some("MachineNotUp"));
    assert!(!status.failure_remedy.clone().unwrap().is_empty());
    let mut still = late.clone();
    still.object.status = Some(status.clone());
    still.now = at(10) + still.deadlines.machines;
    assert_eq!(told(&still).phase, Some(Phase::Failed), "it stays until something comes of it");
    let mut up = machines_up(begun());
    (up.now, up.object.status) = (still.now, Some(status));
    let status = told(&up);
    assert_eq!((status.phase, status.failure_reason), (Some(Phase::ConfiguringTalos), None));
    up.object.status = Some(told(&up));
    assert!(up.deadline() > up.now, "the next milestone has its own time");
}

#[test]
fn what_is_not_known_in_a_second_life_is_as_it_was() {
    let ready = told(&complete(begun()));
    let mut second = configured(begun());
    second.object.status = Some(ready);
    let status = told(&second);
    assert_eq!(status.phase, Some(Phase::Ready));
    assert!(status.machines.iter().all(|machine| machine.ready));
    let gone = trouble(second, Task::Reach, Class::Retryable, 20);
    let status = told(&gone);
    assert!(!holds(&status, "KubernetesReachable") && !holds(&status, "Ready"));
}

#[test]
fn waits_are_told_by_name() {
    let observed = seen(stored(begun()), "prod-cp-0", TalosSight::ClockSkew("an hour apart".into()));
    let looks = ["prod-cp-0", "prod-cp-1", "prod-cp-2"].map(|name| Task::Look(name.into()));
    let observed = running(observed, &looks);
    let status = told(&observed);
    assert_eq!(reason(&status, "Progressing"), "ClockSkew");
    let talos = find_condition(&status.conditions, "TalosConfigured").unwrap();
    assert!(talos.message.contains("an hour apart"), "{}", talos.message);
    assert_eq!(reason(&status, "ImageReady"), "ImageSyncSkipped");
}

#[test]
fn a_wait_says_until_when_and_the_rest_does_not() {
    let mut observed = asked(begun());
    observed.object.status = Some(told(&observed));
    let first = told(&observed);
    let until = format!("; until {}", whole_second(observed.deadline()));
    let message = |status: &ClusterBootstrapStatus, type_: &str| {
        find_condition(&status.conditions, type_).unwrap().message.clone()
    };
    assert!(message(&first, "Progressing").ends_with(&until), "{}", message(&first, "Progressing"));
    assert!(
        !message(&first, "Ready").contains("until") && !message(&first, "MachinesReady").contains("until")
    );
    observed.object.status = Some(first);
    let busy = status(&observed, &Step::Do(vec![Action::StoreConfigs]));
    assert_eq!(message(&busy, "Progressing").matches("; until ").count(), 1, "once, also while work goes on");
    let mut paused = asked(begun());
    paused.object.spec.paused = true;
    assert!(!message(&told(&paused), "Progressing").contains("until"), "a pause has no end of its own");
}

#[test]
fn machines_that_could_not_prove_who_they_are_are_told() {
    let mut observed = stored(begun());
    assert!(find_condition(&told(&observed).conditions, PEERS_VERIFIED).is_none());
    observed.unverified.insert("prod-cp-0".into(), "ab:cd".into());
    let status = told(&observed);
    assert_eq!(reason(&status, PEERS_VERIFIED), "MaintenanceUnverified");
    let told = crate::report::warning(&[], &status.conditions, PEERS_VERIFIED).unwrap();
    assert!(told.warning && told.text.contains("prod-cp-0 ab:cd"), "{}", told.text);
    assert_eq!(crate::report::warning(&status.conditions, &status.conditions, PEERS_VERIFIED), None);
}

#[test]
fn telling_the_same_twice_changes_nothing() {
    let looks = ["prod-cp-0", "prod-cp-1", "prod-cp-2"].map(|name| Task::Look(name.into()));
    let table = [
        asked(begun()),
        running(stored(begun()), &looks),
        complete(begun()),
        configured(begun()),
        surveyed(begun()),
    ];
    for mut observed in table {
        observed.object.status = Some(told(&observed));
        let first = told(&observed);
        observed.object.status = Some(first.clone());
        observed.now = at(11);
        let second = told(&observed);
        assert_eq!(ClusterBootstrapStatus { last_updated: first.last_updated.clone(), ..second }, first);
    }
}

#[test]
fn a_deletion_tells_what_it_waits_for() {
    let mut observed = machines_up(begun());
    observed.object.metadata.deletion_timestamp = Some(Time(at(5)));
    observed
        .machines
        .values_mut()
        .for_each(|machine| machine.metadata.deletion_timestamp = Some(Time(at(6))));
    let status = told(&observed);
    assert_eq!(reason(&status, "Progressing"), "Deleting");
    let message = &find_condition(&status.conditions, "Progressing").unwrap().message;
    assert!(message.contains("the machine prod-cp-0 to be gone"), "{message}");
    observed.now = at(5) + observed.deadlines.deletion;
    assert_eq!(told(&observed).failure_reason.as_deref(), Some("MachineLeaving"));
}

/// A whole log as a failure's message would make the object too large to be written, and the failure would never be told.
#[test]
fn what_is_told_of_a_failure_has_an_end() {
    let mut observed = complete(begun());
    let endless = Failure::new(Class::InvalidConfig, "Endless", "so it goes ".repeat(100_000), "stop it");
    observed.provided = Err(endless);
    let status = told(&observed);
    assert_eq!((status.phase, status.failure_reason.as_deref()), (Some(Phase::Failed), Some("Endless")));
    assert!(status.failure_message.as_ref().is_some_and(|text| text.len() <= 4096), "it is cut");
    assert_eq!(status.failure_remedy.as_deref(), Some("stop it"));
    let failed = find_condition(&status.conditions, "Failed").unwrap();
    assert!(failed.message.len() <= 4096 && failed.message.ends_with("; what to do: stop it"));
}
