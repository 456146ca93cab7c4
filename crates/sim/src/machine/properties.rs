//! What holds whatever happens, in any order.

use super::*;
use crate::config::{ConfigError, NodeConfig};
use proptest::prelude::*;

fn tasks() -> impl Strategy<Value = Task> {
    proptest::sample::select(vec![
        Task::Boot,
        Task::CloseMaintenance,
        Task::Install,
        Task::Reboot,
        Task::Apid,
        Task::Cri,
        Task::TimeSync,
        Task::Kubelet,
        Task::EtcdJoin,
        Task::EtcdData,
        Task::EtcdStart,
        Task::EtcdPromote,
        Task::StaticPods,
        Task::Reset,
        Task::Upgrade,
        Task::Shutdown,
        Task::TryTimeout(1),
    ])
}

fn apply() -> impl Strategy<Value = Input> {
    let modes =
        vec![ApplyMode::Reboot, ApplyMode::Auto, ApplyMode::NoReboot, ApplyMode::Staged, ApplyMode::Try];
    (0..4_u8, proptest::sample::select(modes), any::<bool>()).prop_map(|(which, mode, dry_run)| {
        let text = match which {
            0 => "machine: {type: controlplane}",
            1 => "machine: {type: controlplane, files: []}",
            2 => "machine: {type: worker}",
            _ => "",
        };
        let config = if text.is_empty() {
            Err(ConfigError::Invalid("no".into()))
        } else {
            NodeConfig::check_lenient(text)
        };
        Input::Apply(Apply { config, mode, dry_run })
    })
}

/// Anything that can happen; tasks end in this boot or come late from another.
fn inputs() -> impl Strategy<Value = (Input, bool)> {
    let member = Member { cluster: 1, id: 2 };
    let actor = String::from("actor");
    let wipe = (any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(everything, state, ephemeral)| Wipe { everything, state, ephemeral });
    let input = prop_oneof![
        3 => Just(Input::PowerOn),
        1 => Just(Input::PowerOff),
        20 => tasks().prop_map(|task| Input::Done(task, 0)),
        4 => apply(),
        4 => Just(Input::Bootstrap),
        1 => Just(Input::Reboot { actor: actor.clone() }),
        1 => Just(Input::Shutdown { actor: actor.clone() }),
        2 => (any::<bool>(), any::<bool>(), wipe).prop_map(|(graceful, reboot, wipe)| Input::Reset {
            actor: "actor".into(), graceful, reboot, wipe
        }),
        1 => any::<bool>().prop_map(|stage| Input::Upgrade {
            actor: "actor".into(), version: "v1.10.0".into(), stage
        }),
        3 => Just(Input::Certified(0)),
        2 => any::<bool>().prop_map(move |learner| Input::EtcdMember { member, learner }),
        1 => Just(Input::EtcdNotFound),
        3 => any::<bool>().prop_map(|learner| Input::EtcdStarted { learner }),
        1 => Just(Input::EtcdPromoted),
        1 => Just(Input::EtcdNotPromoted),
        1 => Just(Input::EtcdRemoved),
        1 => any::<bool>().prop_map(|good| Input::EtcdLeft(if good { Ok(()) } else { Err("no".into()) })),
        1 => any::<bool>().prop_map(Input::KubernetesReady),
    ];
    (input, proptest::bool::weighted(0.9))
}

/// Gives an input the number of this boot, or of another.
fn dated(input: Input, current: bool, boot: u32) -> Input {
    let boot = if current { boot } else { boot.wrapping_sub(1) };
    match input {
        Input::Done(task, _) => Input::Done(task, boot),
        Input::Certified(_) => Input::Certified(boot),
        other => other,
    }
}

fn wants_answer(input: &Input) -> bool {
    matches!(
        input,
        Input::Apply(_)
            | Input::Bootstrap
            | Input::Reboot { .. }
            | Input::Shutdown { .. }
            | Input::Reset { .. }
            | Input::Upgrade { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happens(
        image in any::<bool>(),
        happenings in proptest::collection::vec(inputs(), 1..200),
    ) {
        let media = if image { Media::DiskImage } else { Media::Iso };
        let mut machine = Machine::new(media, "v1.9.2");
        let mut open: Vec<Port> = Vec::new();
        for (input, current) in happenings {
            let input = dated(input, current, machine.boot);
            let had_data = machine.disk.etcd.is_some();
            let bootstraps = matches!(input, Input::Bootstrap);
            let asked = wants_answer(&input);
            let (next, effects) = step(machine, input);

            let answers = effects.iter().filter(|effect| matches!(effect, Effect::Answer(_))).count();
            prop_assert_eq!(answers, usize::from(asked), "one answer to a request, and none to anything else");
            if asked {
                prop_assert!(matches!(effects[0], Effect::Answer(_)), "the answer comes first");
            }
            if bootstraps && had_data {
                prop_assert_ne!(&effects[0], &Effect::Answer(Answer::Done), "data are never overwritten");
            }
            for effect in &effects {
                match effect {
                    Effect::Serve(port) => {
                        prop_assert!(!open.contains(port), "{port:?} is open already");
                        open.push(*port);
                    }
                    Effect::Close { .. } => open.clear(),
                    _ => {}
                }
            }
            let maintenance = matches!(next.stage, Stage::Maintenance | Stage::LeavingMaintenance);
            prop_assert_eq!(open.contains(&Port::Maintenance), maintenance, "{:?}", next.stage);
            prop_assert_eq!(open.contains(&Port::Apid), next.serves_apid(), "{:?}", next.stage);
            prop_assert!(!open.contains(&Port::Trustd) || next.is_control_plane(), "trustd on a worker");
            if open.contains(&Port::Apid) {
                prop_assert!(next.config().is_some());
            }
            if next.stage == Stage::Off {
                prop_assert!(open.is_empty());
            }
            machine = next;
        }
    }
}
