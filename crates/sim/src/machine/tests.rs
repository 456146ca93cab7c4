//! A test per transition of the drawing in `mod.rs`.

use super::*;
use crate::config::{ConfigError, NodeConfig};
use std::sync::Arc;

fn config(role: &str, extra: &str) -> Arc<NodeConfig> {
    let text = format!(
        "machine:\n  type: {role}\n  token: aaaaaa.bbbbbbbbbbbbbbbb\n  network: {{hostname: n1}}\n  install: {{image: 'x/installer:v1.9.5'}}\n{extra}"
    );
    NodeConfig::check_lenient(&text).unwrap()
}

fn apply(config: Result<Arc<NodeConfig>, ConfigError>, mode: ApplyMode, dry_run: bool) -> Input {
    Input::Apply(Apply { config, mode, dry_run })
}

/// Steps through several inputs; the effects are those of the last.
fn steps(mut machine: Machine, inputs: impl IntoIterator<Item = Input>) -> (Machine, Vec<Effect>) {
    let mut effects = Vec::new();
    for input in inputs {
        (machine, effects) = step(machine, input);
    }
    (machine, effects)
}

fn done(machine: &Machine, task: Task) -> Input {
    Input::Done(task, machine.boot)
}

/// Ends a task that is under way.
fn end(machine: Machine, task: Task) -> (Machine, Vec<Effect>) {
    let input = done(&machine, task);
    step(machine, input)
}

fn maintenance(media: Media) -> Machine {
    let (machine, _) = step(Machine::new(media, "v1.9.2"), Input::PowerOn);
    end(machine, Task::Boot).0
}

/// A configured control plane whose services are up, and that waits for bootstrap.
fn waiting() -> Machine {
    let mut machine = Machine::new(Media::DiskImage, "v1.9.2");
    machine.disk.config = Some(config("controlplane", ""));
    let mut machine = step(machine, Input::PowerOn).0;
    for task in [Task::Boot, Task::Apid, Task::Cri, Task::TimeSync, Task::Kubelet] {
        machine = end(machine, task).0;
    }
    machine
}

const MEMBER: Member = Member { cluster: 1, id: 2 };

fn running() -> Machine {
    let machine = steps(waiting(), [Input::Bootstrap]).0;
    let machine = end(machine, Task::EtcdData).0;
    let machine = step(machine, Input::EtcdMember { member: MEMBER, learner: false }).0;
    let machine = end(machine, Task::EtcdStart).0;
    step(machine, Input::EtcdStarted { learner: false }).0
}

fn worker() -> Machine {
    let mut machine = Machine::new(Media::DiskImage, "v1.9.2");
    machine.disk.config = Some(config("worker", ""));
    let machine = step(machine, Input::PowerOn).0;
    end(machine, Task::Boot).0
}

fn answer(effects: &[Effect]) -> &Answer {
    match effects.first() {
        Some(Effect::Answer(answer)) => answer,
        other => panic!("the first effect is {other:?}"),
    }
}

#[track_caller]
fn assert_refused(effects: &[Effect], code: Code, message: &str) {
    assert_eq!(answer(effects), &Answer::refused(code, message));
    assert_eq!(effects.len(), 1, "a refusal does nothing: {effects:?}");
}

fn starts(effects: &[Effect], task: Task) -> bool {
    effects.contains(&Effect::Start(task))
}

const ALL: Wipe = Wipe { everything: true, state: true, ephemeral: true };

fn reset(graceful: bool, reboot: bool, wipe: Wipe) -> Input {
    Input::Reset { actor: "actor".into(), graceful, reboot, wipe }
}

#[test]
fn off_to_powering_on() {
    let (machine, effects) = step(Machine::new(Media::Iso, "v1.9.2"), Input::PowerOn);
    assert_eq!(machine.stage, Stage::PoweringOn);
    assert_eq!(effects, [Effect::Start(Task::Boot)]);
}

#[test]
fn powering_on_to_maintenance_without_a_configuration() {
    let (machine, _) = step(Machine::new(Media::Iso, "v1.9.2"), Input::PowerOn);
    let (machine, effects) = end(machine, Task::Boot);
    assert_eq!(machine.stage, Stage::Maintenance);
    assert!(effects.contains(&Effect::Serve(Port::Maintenance)));
}

#[test]
fn powering_on_to_booting_with_a_configuration() {
    let machine = worker();
    assert_eq!(machine.stage, Stage::Booting);
}

#[test]
fn a_wiped_disk_image_does_not_boot() {
    let mut machine = Machine::new(Media::DiskImage, "v1.9.2");
    machine.disk.installed = None;
    let (machine, _) = step(machine, Input::PowerOn);
    let (machine, effects) = end(machine, Task::Boot);
    assert_eq!(machine.stage, Stage::Off);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Serve(_))));
}

#[test]
fn maintenance_to_leaving_on_an_accepted_configuration() {
    for mode in [ApplyMode::Reboot, ApplyMode::Auto, ApplyMode::Try] {
        let (machine, effects) =
            step(maintenance(Media::Iso), apply(Ok(config("controlplane", "")), mode, false));
        assert_eq!(machine.stage, Stage::LeavingMaintenance);
        let told = Answer::Applied { mode: 0, details: String::new(), warnings: Vec::new() };
        assert_eq!(effects, [Effect::Answer(told), Effect::Start(Task::CloseMaintenance)]);
    }
}

#[test]
fn maintenance_refuses_other_modes() {
    let input = apply(Ok(config("worker", "")), ApplyMode::NoReboot, false);
    let (machine, effects) = step(maintenance(Media::Iso), input);
    assert_eq!(machine.stage, Stage::Maintenance);
    assert_refused(
        &effects,
        Code::Unimplemented,
        "apply configuration --mode='no-reboot' is not supported in maintenance mode",
    );
}

#[test]
fn maintenance_refuses_bad_configurations_with_the_code_of_the_step_that_fails() {
    let refused = |error| step(maintenance(Media::Iso), apply(Err(error), ApplyMode::Auto, false));
    let (machine, effects) = refused(ConfigError::Parse("bad".into()));
    assert_refused(&effects, Code::Unknown, "failed to parse config: bad");
    assert_eq!(machine.stage, Stage::Maintenance);
    let (_, effects) = refused(ConfigError::Invalid("bad".into()));
    assert_refused(&effects, Code::InvalidArgument, "configuration validation failed: bad");
    let (_, effects) = refused(ConfigError::Runtime("bad".into()));
    assert_refused(&effects, Code::InvalidArgument, "runtime configuration validation failed: bad");
}

#[test]
fn maintenance_stays_after_a_dry_run_and_after_a_partial_configuration() {
    let dry = apply(Ok(config("worker", "")), ApplyMode::Auto, true);
    let (machine, effects) = step(maintenance(Media::Iso), dry);
    assert_eq!(machine.stage, Stage::Maintenance);
    assert!(machine.disk.config.is_none());
    let Answer::Applied { details, .. } = answer(&effects) else { panic!("{effects:?}") };
    assert!(details.ends_with("does not have a config yet."), "{details}");

    let partial = NodeConfig::check_lenient("apiVersion: v1alpha1\nkind: SideroLinkConfig\n").unwrap();
    let (machine, _) = step(maintenance(Media::Iso), apply(Ok(partial), ApplyMode::Auto, false));
    assert_eq!(machine.stage, Stage::Maintenance);
    assert!(machine.disk.config.is_none());
}

#[test]
fn leaving_maintenance_to_installing_from_an_iso() {
    let input = apply(Ok(config("worker", "")), ApplyMode::Auto, false);
    let (machine, _) = step(maintenance(Media::Iso), input);
    let (machine, effects) = end(machine, Task::CloseMaintenance);
    assert_eq!(machine.stage, Stage::Installing);
    assert_eq!(effects[0], Effect::Close { graceful: true });
    assert!(starts(&effects, Task::Install));
}

#[test]
fn leaving_maintenance_to_booting_from_a_disk_image() {
    let input = apply(Ok(config("controlplane", "")), ApplyMode::Auto, false);
    let (machine, _) = step(maintenance(Media::DiskImage), input);
    let (machine, effects) = end(machine, Task::CloseMaintenance);
    assert_eq!(machine.stage, Stage::Booting);
    assert!(starts(&effects, Task::Apid), "no install and no reboot: {effects:?}");
}

#[test]
fn installing_to_rebooting_to_powering_on() {
    let input = apply(Ok(config("worker", "")), ApplyMode::Auto, false);
    let machine = step(maintenance(Media::Iso), input).0;
    let machine = end(machine, Task::CloseMaintenance).0;
    let (machine, effects) = end(machine, Task::Install);
    assert_eq!(machine.stage, Stage::Rebooting);
    assert_eq!(machine.disk.installed.as_deref(), Some("v1.9.5"), "the version of the installer image");
    assert!(effects.contains(&Effect::Close { graceful: true }));
    let (machine, effects) = end(machine, Task::Reboot);
    assert_eq!(machine.stage, Stage::PoweringOn);
    assert!(starts(&effects, Task::Boot));
    let (machine, _) = end(machine, Task::Boot);
    assert_eq!((machine.stage, machine.version.as_str()), (Stage::Booting, "v1.9.5"));
}

#[test]
fn a_control_plane_opens_its_api_by_itself() {
    let mut machine = Machine::new(Media::DiskImage, "v1.9.2");
    machine.disk.config = Some(config("controlplane", ""));
    let machine = step(machine, Input::PowerOn).0;
    let (machine, effects) = end(machine, Task::Boot);
    assert!(starts(&effects, Task::Apid));
    let (machine, effects) = end(machine, Task::Apid);
    assert!(machine.serves_apid());
    assert!(effects.contains(&Effect::Serve(Port::Apid)) && effects.contains(&Effect::Serve(Port::Trustd)));
}

#[test]
fn a_worker_opens_its_api_when_it_is_certified() {
    let machine = worker();
    let (machine, effects) = step(machine.clone(), Input::Certified(machine.boot + 1));
    assert!(effects.is_empty() && !machine.serves_apid(), "that was another boot");
    let (machine, effects) = step(machine.clone(), Input::Certified(machine.boot));
    assert!(machine.serves_apid());
    assert!(effects.contains(&Effect::Serve(Port::Apid)));
    assert!(!effects.contains(&Effect::Serve(Port::Trustd)), "trustd is for control planes");
}

#[test]
fn a_worker_runs_without_etcd() {
    let machine = worker();
    let mut machine = step(machine.clone(), Input::Certified(machine.boot)).0;
    for task in [Task::Cri, Task::TimeSync, Task::Kubelet] {
        assert_eq!(machine.stage, Stage::Booting);
        machine = end(machine, task).0;
    }
    assert_eq!(machine.stage, Stage::Running);
    assert!(!machine.run.services.contains_key("etcd"));
}

#[test]
fn a_control_plane_boots_until_etcd_runs() {
    let machine = waiting();
    assert_eq!(machine.stage, Stage::Booting);
    assert_eq!(machine.run.etcd, Etcd::Joining);
    assert_eq!(machine.run.services["etcd"], ServiceState::Preparing);
    assert!(machine.status().unmet.iter().any(|unmet| unmet.reason.contains("etcd not running")));
}

#[test]
fn stopped_to_joining_and_around() {
    let (machine, effects) = end(waiting(), Task::EtcdJoin);
    assert_eq!(effects, [Effect::Etcd(EtcdCall::Join)]);
    let (machine, effects) = step(machine, Input::EtcdNotFound);
    assert_eq!(effects, [Effect::Start(Task::EtcdJoin)]);
    let (machine, effects) = step(machine, Input::EtcdMember { member: MEMBER, learner: true });
    assert_eq!(machine.run.etcd, Etcd::Starting);
    assert_eq!(machine.disk.etcd, Some(MEMBER));
    assert!(starts(&effects, Task::EtcdStart));
}

#[test]
fn bootstrap_is_refused_before_cri_then_before_time() {
    let mut machine = Machine::new(Media::DiskImage, "v1.9.2");
    machine.disk.config = Some(config("controlplane", ""));
    let machine = step(machine, Input::PowerOn).0;
    let machine = end(machine, Task::Boot).0;
    let (machine, effects) = step(machine, Input::Bootstrap);
    assert_refused(&effects, Code::FailedPrecondition, "bootstrap is not available yet");
    let machine = end(machine, Task::Cri).0;
    let (_, effects) = step(machine, Input::Bootstrap);
    assert_refused(&effects, Code::FailedPrecondition, "time is not in sync yet");
}

#[test]
fn bootstrap_is_refused_on_a_worker() {
    let machine = end(worker(), Task::Cri).0;
    let (_, effects) = step(machine, Input::Bootstrap);
    assert_refused(
        &effects,
        Code::FailedPrecondition,
        "bootstrap can only be performed on a control plane node",
    );
}

#[test]
fn joining_to_bootstrapping_to_starting_to_running() {
    let (machine, effects) = step(waiting(), Input::Bootstrap);
    assert_eq!(answer(&effects), &Answer::Done);
    assert_eq!(machine.run.etcd, Etcd::Bootstrapping);
    assert!(starts(&effects, Task::EtcdData));
    let (machine, effects) = end(machine, Task::EtcdData);
    assert_eq!(effects, [Effect::Etcd(EtcdCall::Create)]);
    let (machine, effects) = step(machine, Input::EtcdMember { member: MEMBER, learner: false });
    assert_eq!(machine.run.etcd, Etcd::Starting);
    assert!(starts(&effects, Task::EtcdStart));
    let (machine, effects) = end(machine, Task::EtcdStart);
    assert_eq!(effects, [Effect::Etcd(EtcdCall::Start(MEMBER))]);
    let (machine, effects) = step(machine, Input::EtcdStarted { learner: false });
    assert_eq!((machine.stage, machine.run.etcd), (Stage::Running, Etcd::Running { learner: false }));
    assert!(starts(&effects, Task::StaticPods));
}

#[test]
fn a_second_bootstrap_is_caught_only_when_there_are_data() {
    let machine = step(waiting(), Input::Bootstrap).0;
    let (machine, effects) = step(machine, Input::Bootstrap);
    assert_eq!(answer(&effects), &Answer::Done, "nothing is written yet");
    // Both calls started a write; the second finds the member of the first.
    let machine = end(machine, Task::EtcdData).0;
    let machine = step(machine, Input::EtcdMember { member: MEMBER, learner: false }).0;
    let (machine, effects) = end(machine, Task::EtcdData);
    assert!(effects.is_empty());
    let (machine, effects) = step(machine, Input::Bootstrap);
    assert_refused(&effects, Code::AlreadyExists, "etcd data directory is not empty");
    assert_eq!(machine.run.etcd, Etcd::Starting);
}

#[test]
fn a_join_that_was_under_way_does_not_undo_a_bootstrap() {
    let machine = step(waiting(), Input::Bootstrap).0;
    let (machine, effects) = end(machine, Task::EtcdJoin);
    assert!(effects.is_empty());
    let (machine, effects) = step(machine, Input::EtcdNotFound);
    assert!(effects.is_empty());
    assert_eq!(machine.run.etcd, Etcd::Bootstrapping);
}

#[test]
fn a_learner_is_promoted_in_the_end() {
    let machine = step(waiting(), Input::EtcdMember { member: MEMBER, learner: true }).0;
    let (machine, effects) = step(machine, Input::EtcdStarted { learner: true });
    assert_eq!(machine.stage, Stage::Running, "a learner counts as up");
    assert!(starts(&effects, Task::EtcdPromote));
    let (machine, effects) = end(machine, Task::EtcdPromote);
    assert_eq!(effects, [Effect::Etcd(EtcdCall::Promote(MEMBER))]);
    let (machine, effects) = step(machine, Input::EtcdNotPromoted);
    assert_eq!(effects, [Effect::Start(Task::EtcdPromote)]);
    let (machine, _) = step(machine, Input::EtcdPromoted);
    assert_eq!(machine.run.etcd, Etcd::Running { learner: false });
}

#[test]
fn a_removed_member_fails() {
    let (machine, _) = step(running(), Input::EtcdRemoved);
    assert!(matches!(machine.run.etcd, Etcd::Failed(_)));
    assert_eq!(machine.run.services["etcd"], ServiceState::Failed);
}

#[test]
fn a_node_with_data_starts_etcd_without_a_bootstrap() {
    let machine = step(running(), Input::Reboot { actor: "a".into() }).0;
    let mut machine = end(machine, Task::Reboot).0;
    for task in [Task::Boot, Task::Apid, Task::Cri, Task::TimeSync] {
        machine = end(machine, task).0;
    }
    assert_eq!(machine.run.etcd, Etcd::Starting);
    let (_, effects) = end(machine, Task::EtcdStart);
    assert_eq!(effects, [Effect::Etcd(EtcdCall::Start(MEMBER))]);
}

#[test]
fn ready_needs_static_pods_and_a_cni() {
    let machine = running();
    assert!(!machine.status().ready);
    let machine = end(machine, Task::StaticPods).0;
    assert!(machine.status().ready, "{:?}", machine.status());

    let mut bare = machine.clone();
    bare.disk.config = Some(config("controlplane", "cluster: {network: {cni: {name: none}}}\n"));
    assert_eq!(bare.status().unmet[0].reason, "node \"n1\" is not ready");
    let (bare, _) = step(bare, Input::KubernetesReady(true));
    assert!(bare.status().ready);
}

#[test]
fn running_to_rebooting_on_request() {
    let (machine, effects) = step(running(), Input::Reboot { actor: "a".into() });
    assert_eq!(answer(&effects), &Answer::Done);
    assert_eq!(machine.stage, Stage::Rebooting);
    assert!(effects.contains(&Effect::Etcd(EtcdCall::Stop(MEMBER))));
    assert!(effects.contains(&Effect::Close { graceful: true }));
    assert_eq!(machine.disk.etcd, Some(MEMBER), "data stay");
}

#[test]
fn what_an_earlier_boot_began_is_ignored() {
    let machine = running();
    let late = done(&machine, Task::StaticPods);
    let machine = step(machine, Input::Reboot { actor: "a".into() }).0;
    let (machine, effects) = step(machine, late);
    assert!(effects.is_empty());
    assert!(!machine.run.static_pods);
}

#[test]
fn running_to_shutting_down_to_off() {
    let (machine, effects) = step(running(), Input::Shutdown { actor: "a".into() });
    assert_eq!(machine.stage, Stage::ShuttingDown);
    assert!(starts(&effects, Task::Shutdown));
    let (machine, effects) = end(machine, Task::Shutdown);
    assert_eq!(machine.stage, Stage::Off);
    assert!(effects.contains(&Effect::Close { graceful: true }));
    assert!(machine.disk.config.is_some());
}

#[test]
fn running_to_resetting_to_maintenance() {
    let (machine, effects) = step(running(), reset(false, true, ALL));
    assert_eq!(machine.stage, Stage::Resetting);
    let waited_for = |action| Effect::Emit(Event::Task { name: "stopAllServices", action });
    assert!(effects.contains(&waited_for(Action::Start)), "clients wait for it");
    assert!(!effects.contains(&waited_for(Action::Stop)), "it lasts as long as the sequence");
    let (machine, effects) = end(machine, Task::Reset);
    let place = |wanted: &Effect| effects.iter().position(|effect| effect == wanted);
    let sequence = Event::Sequence { name: "reset", action: Action::Stop, error: None };
    let (stopped, over) = (place(&waited_for(Action::Stop)), place(&Effect::Emit(sequence)));
    assert!(stopped.is_some() && stopped < over, "the task ends before its sequence: {stopped:?} {over:?}");
    assert_eq!(machine.stage, Stage::Rebooting);
    assert!(effects.contains(&Effect::Etcd(EtcdCall::Stop(MEMBER))), "the member is dead, and not removed");
    assert!(machine.disk.config.is_none() && machine.disk.etcd.is_none() && machine.disk.installed.is_none());
    let mut machine = end(machine, Task::Reboot).0;
    machine.media = Media::Iso;
    assert_eq!(end(machine, Task::Boot).0.stage, Stage::Maintenance);
}

#[test]
fn resetting_to_off_without_reboot() {
    let machine = step(running(), reset(false, false, ALL)).0;
    let (machine, _) = end(machine, Task::Reset);
    assert_eq!(machine.stage, Stage::Off);
    assert!(machine.disk.config.is_none());
}

#[test]
fn a_reset_of_the_state_partition_keeps_talos_and_etcd() {
    let state = Wipe { everything: false, state: true, ephemeral: false };
    let machine = step(running(), reset(false, true, state)).0;
    let (machine, _) = end(machine, Task::Reset);
    assert!(machine.disk.config.is_none());
    assert!(machine.disk.installed.is_some() && machine.disk.etcd.is_some());
}

#[test]
fn a_graceful_reset_leaves_etcd_first() {
    let (machine, effects) = step(running(), reset(true, true, ALL));
    assert!(effects.contains(&Effect::Etcd(EtcdCall::Leave(MEMBER))));
    assert!(!starts(&effects, Task::Reset));
    let (machine, effects) = step(machine, Input::EtcdLeft(Ok(())));
    assert!(starts(&effects, Task::Reset));
    assert_eq!(machine.disk.etcd, None);
}

#[test]
fn a_graceful_reset_of_the_last_member_fails_and_the_node_goes_on() {
    let (machine, _) = step(running(), reset(true, true, ALL));
    let (machine, effects) = step(machine, Input::EtcdLeft(Err("not enough started members".into())));
    assert_eq!(machine.stage, Stage::Running);
    assert!(machine.disk.config.is_some());
    let failed = |effect: &Effect| matches!(effect, Effect::Emit(Event::Sequence { error: Some(_), .. }));
    assert!(effects.iter().any(failed));
}

#[test]
fn running_to_upgrading_to_a_new_version() {
    let input = Input::Upgrade { actor: "a".into(), version: "v1.10.3".into(), stage: false };
    let (machine, effects) = step(running(), input);
    assert_eq!(machine.stage, Stage::Upgrading);
    assert!(starts(&effects, Task::Upgrade));
    let machine = end(machine, Task::Upgrade).0;
    assert_eq!(machine.stage, Stage::Rebooting);
    let machine = end(machine, Task::Reboot).0;
    let machine = end(machine, Task::Boot).0;
    assert_eq!((machine.stage, machine.version.as_str()), (Stage::Booting, "v1.10.3"));
    assert_eq!(machine.disk.etcd, Some(MEMBER));
}

#[test]
fn a_staged_upgrade_happens_at_the_next_boot() {
    let input = Input::Upgrade { actor: "a".into(), version: "v1.10.3".into(), stage: true };
    let machine = step(running(), input).0;
    assert_eq!(machine.stage, Stage::Rebooting);
    assert_ne!(machine.disk.installed.as_deref(), Some("v1.10.3"));
    let machine = end(machine, Task::Reboot).0;
    assert_eq!(end(machine, Task::Boot).0.version, "v1.10.3");
}

#[test]
fn one_sequence_at_a_time() {
    let machine = step(running(), reset(false, true, ALL)).0;
    let (_, effects) = step(machine, Input::Reboot { actor: "a".into() });
    assert_refused(&effects, Code::FailedPrecondition, "another sequence is in progress");
}

#[test]
fn power_off_from_every_stage() {
    let on = step(Machine::new(Media::Iso, "v1.9.2"), Input::PowerOn).0;
    let resetting = step(running(), reset(false, true, ALL)).0;
    let rebooting = step(running(), Input::Reboot { actor: "a".into() }).0;
    for machine in [on, maintenance(Media::Iso), waiting(), running(), resetting, rebooting] {
        let (off, effects) = step(machine, Input::PowerOff);
        assert_eq!(off.stage, Stage::Off);
        assert_eq!(effects[0], Effect::Close { graceful: false });
    }
    let (off, effects) = step(running(), Input::PowerOff);
    assert!(effects.contains(&Effect::Etcd(EtcdCall::Stop(MEMBER))));
    assert!(off.disk.config.is_some(), "the disk is not touched");
}

#[test]
fn an_immediate_change_is_applied_without_a_reboot() {
    let new = config("controlplane", "  sysctls: {a: '1'}\n");
    let (machine, effects) = step(running(), apply(Ok(new), ApplyMode::Auto, false));
    assert_eq!(machine.stage, Stage::Running);
    let Answer::Applied { mode, details, .. } = answer(&effects) else { panic!("{effects:?}") };
    assert_eq!((*mode, details.as_str()), (2, "Applied configuration without a reboot"));
}

#[test]
fn another_change_reboots_or_is_refused() {
    let new = || Ok(config("controlplane", "  disks: []\n"));
    let (machine, effects) = step(running(), apply(new(), ApplyMode::Auto, false));
    assert_eq!(machine.stage, Stage::Rebooting);
    let Answer::Applied { mode, details, .. } = answer(&effects) else { panic!("{effects:?}") };
    assert_eq!(*mode, 0);
    assert!(
        details.starts_with("Applied configuration with a reboot: this config change can't"),
        "{details}"
    );

    for mode in [ApplyMode::NoReboot, ApplyMode::Try] {
        let (machine, effects) = step(running(), apply(new(), mode, false));
        assert_eq!(machine.stage, Stage::Running);
        let Answer::Refused { code, .. } = answer(&effects) else { panic!("{effects:?}") };
        assert_eq!(*code, Code::InvalidArgument);
    }
}

#[test]
fn the_default_mode_reboots_even_without_a_change() {
    let same = config("controlplane", "");
    let (machine, _) = step(running(), apply(Ok(same), ApplyMode::Reboot, false));
    assert_eq!(machine.stage, Stage::Rebooting);
}

#[test]
fn a_staged_configuration_takes_effect_at_the_next_boot() {
    let new = config("controlplane", "  disks: []\n");
    let (machine, _) = step(running(), apply(Ok(new.clone()), ApplyMode::Staged, false));
    assert_eq!(machine.stage, Stage::Running);
    assert!(!Arc::ptr_eq(machine.config().unwrap(), &new));
    let machine = step(machine, Input::Reboot { actor: "a".into() }).0;
    let machine = end(machine, Task::Reboot).0;
    let machine = end(machine, Task::Boot).0;
    assert!(Arc::ptr_eq(machine.config().unwrap(), &new));
}

#[test]
fn a_tried_configuration_is_taken_back_unless_it_is_confirmed() {
    let new = config("controlplane", "  sysctls: {a: '1'}\n");
    let (machine, effects) = step(running(), apply(Ok(new.clone()), ApplyMode::Try, false));
    assert!(starts(&effects, Task::TryTimeout(1)));
    assert!(Arc::ptr_eq(machine.config().unwrap(), &new));
    let back = end(machine.clone(), Task::TryTimeout(1)).0;
    assert!(!Arc::ptr_eq(back.config().unwrap(), &new));
    let kept = step(machine, apply(Ok(new.clone()), ApplyMode::NoReboot, false)).0;
    let kept = end(kept, Task::TryTimeout(1)).0;
    assert!(Arc::ptr_eq(kept.config().unwrap(), &new));
}

#[test]
fn a_dry_run_changes_nothing() {
    let new = config("controlplane", "  disks: []\n");
    let (machine, effects) = step(running(), apply(Ok(new), ApplyMode::Auto, true));
    assert_eq!(machine.stage, Stage::Running);
    let Answer::Applied { details, .. } = answer(&effects) else { panic!("{effects:?}") };
    assert!(details.starts_with("Dry run summary:\nApplied configuration with a reboot"), "{details}");
    assert!(details.contains("machine.disks"), "{details}");
    assert_eq!(effects.len(), 1);
}

#[test]
fn a_configured_node_answers_bad_configurations_with_invalid_argument() {
    for error in [ConfigError::Parse("p".into()), ConfigError::Invalid("i".into())] {
        let (_, effects) = step(running(), apply(Err(error), ApplyMode::Auto, false));
        let Answer::Refused { code, .. } = answer(&effects) else { panic!("{effects:?}") };
        assert_eq!(*code, Code::InvalidArgument);
    }
}
