//! Every branch of the bootstrap's plan, from the first look to the last.

use super::super::configs::tests::SECRETS;
use super::super::configs::{Rendered, fingerprint, intent_of};
use super::super::memory::{NodeSight, Survey, Trouble};
use super::super::milestone::Milestone;
use super::super::observe::Stored;
use super::super::wanted::{self, tests::cluster};
use super::*;
use crate::addons::PlannedAddon;
use crate::provider::Provided;
use crate::{Deadlines, Profile};
use butler_api::names::FINALIZER_CLUSTER_BOOTSTRAP;
use butler_api::{ClusterBootstrapStatus, MachineRequestStatus, ProviderConfig};
use butler_talos::Secret as Text;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ADDRESS: &str = "10.40.0.11";

pub(crate) fn at(second: i64) -> Timestamp {
    let begin: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
    Timestamp::from_second(begin.as_second() + second).unwrap()
}

pub(crate) fn provided() -> Provided {
    let config: ProviderConfig = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
        "metadata": {"name": "site", "uid": "pc-uid", "generation": 1},
        "spec": {"provider": "proxmox", "credentialsRef": {"name": "creds"},
                 "proxmox": {"endpoint": "https://p", "nodes": ["a"], "storage": "s"}},
    }))
    .unwrap();
    Provided { config, credentials: Default::default(), raw: BTreeMap::new(), version: "1".into() }
}

/// A cluster of three control planes and no workers, with a finalizer, and nothing else yet.
pub(crate) fn begun() -> Observed {
    let mut object = cluster("ha");
    object.spec.cluster.workers = None;
    object.metadata.finalizers = Some(vec![FINALIZER_CLUSTER_BOOTSTRAP.to_owned()]);
    let nodes = wanted::nodes(&object.spec, None);
    Observed {
        now: at(10),
        since: at(0),
        deadlines: Deadlines::default(),
        profile: Profile::of(object.spec.provider),
        provided: Ok(Arc::new(provided())),
        settings: None,
        image: ImageSight::Skipped("there is no ButlerConfig"),
        images: Vec::new(),
        nodes,
        machines: BTreeMap::new(),
        foreign: BTreeSet::new(),
        balancer: Default::default(),
        stopped: BTreeSet::new(),
        marks: 0,
        secrets: None,
        endpoint: Some("10.40.0.200".into()),
        rendered: None,
        stored: None,
        kubeconfig: None,
        own_secrets: Vec::new(),
        talos: BTreeMap::new(),
        clocks: BTreeMap::new(),
        free_address: Some("10.40.0.200".into()),
        unverified: BTreeMap::new(),
        bootstrapped: false,
        etcd_up: false,
        voters: BTreeSet::new(),
        reached: None,
        endpoint_answers: false,
        reach_note: String::new(),
        survey: None,
        stale: false,
        addons: Vec::new(),
        installed: BTreeMap::new(),
        withdrawn: false,
        heard: None,
        running: BTreeSet::new(),
        troubles: BTreeMap::new(),
        object,
    }
}

fn names(observed: &Observed) -> Vec<String> {
    observed.wanted().iter().map(|node| node.name.clone()).collect()
}

pub(crate) fn with_secrets(mut observed: Observed) -> Observed {
    observed.secrets = Some(Ok(SECRETS.clone()));
    let server = server("10.40.0.200");
    observed.kubeconfig = Some(Text::new(format!("server: {server}")));
    observed
}

/// All MachineRequests are there, and nothing has come of them.
pub(crate) fn asked(observed: Observed) -> Observed {
    let mut observed = with_secrets(observed);
    for node in observed.wanted().to_vec() {
        let mut request = observed.machine_request(&node);
        request.metadata.uid = Some(format!("uid-{}", node.name));
        observed.machines.insert(node.name.clone(), request);
    }
    observed
}

pub(crate) fn machines_up(observed: Observed) -> Observed {
    let mut observed = asked(observed);
    for machine in observed.machines.values_mut() {
        machine.status = Some(MachineRequestStatus {
            phase: Some(MachinePhase::Running),
            provider_id: Some("x".into()),
            ip_address: Some(ADDRESS.into()),
            conditions: vec![crate::report::condition("Requested", true, "Asked", "", at(0), None)],
            ..MachineRequestStatus::default()
        });
    }
    let configs =
        names(&observed).into_iter().map(|name| (name.clone(), Text::new(format!("config of {name}"))));
    observed.rendered = Some(Ok(Arc::new(Rendered { configs: configs.collect(), warnings: Vec::new() })));
    observed
}

pub(crate) fn stored(observed: Observed) -> Observed {
    let mut observed = machines_up(observed);
    let Some(Ok(rendered)) = &observed.rendered else { panic!("rendered") };
    observed.stored = Some(Stored {
        intent: intent_of(&observed.object.spec, &observed.provided.as_ref().unwrap().config.spec),
        configs: rendered.configs.clone(),
        applied: BTreeMap::new(),
        talosconfig: Some(Text::new("talosconfig")),
    });
    observed
}

pub(crate) fn configured(observed: Observed) -> Observed {
    let mut observed = stored(observed);
    let marks: BTreeMap<String, String> =
        names(&observed).into_iter().map(|name| (name.clone(), observed.mark(&name).unwrap())).collect();
    observed.stored.as_mut().unwrap().applied = marks;
    observed
}

pub(crate) fn etcd_up(observed: Observed) -> Observed {
    Observed { bootstrapped: true, etcd_up: true, ..configured(observed) }
}

fn addon(name: &'static str, needs: &[&'static str], skipped: Option<&str>) -> PlannedAddon {
    PlannedAddon {
        name,
        step: "1",
        needs: needs.to_vec(),
        skipped: skipped.map(str::to_owned),
        version: "1".into(),
    }
}

/// The API answers at the endpoint; nothing is installed, no node has joined.
pub(crate) fn reached(observed: Observed) -> Observed {
    let mut observed = etcd_up(observed);
    (observed.reached, observed.endpoint_answers) = (Some("10.40.0.200".into()), true);
    observed.addons = vec![
        addon("cilium", &[], None),
        addon("cert-manager", &["cilium", "ccm"], None),
        addon("ccm", &["cilium"], Some("on-prem")),
        addon("crds", &[], None),
    ];
    observed
}

pub(crate) fn surveyed(observed: Observed) -> Observed {
    let mut observed = reached(observed);
    let absent = |name: &str| (name.to_owned(), AddonState::Absent);
    observed.survey = Some(Survey {
        at: at(10),
        answered: at(10),
        nodes: BTreeMap::new(),
        addons: ["cilium", "cert-manager", "crds"].map(absent).into(),
    });
    observed.running.insert(Task::Watch);
    observed
}

pub(crate) fn complete(observed: Observed) -> Observed {
    let mut observed = surveyed(observed);
    let nodes =
        names(&observed).into_iter().map(|name| (name, NodeSight { ready: true, why: String::new() }));
    let nodes = nodes.collect();
    let survey = observed.survey.as_mut().unwrap();
    survey.nodes = nodes;
    survey.addons.values_mut().for_each(|state| *state = AddonState::Ready);
    observed.voters = observed.control_planes().map(|node| node.name.clone()).collect();
    observed
}

pub(crate) fn trouble(mut observed: Observed, task: Task, class: Class, until: i64) -> Observed {
    let failure = Failure::new(class, "Why", "it failed", "mend it");
    observed.troubles.insert(task, Trouble { failure, failures: 1, until: at(until) });
    observed
}

pub(crate) fn running(mut observed: Observed, tasks: &[Task]) -> Observed {
    observed.running.extend(tasks.iter().cloned());
    observed
}

pub(crate) fn seen(mut observed: Observed, machine: &str, sight: TalosSight) -> Observed {
    observed.talos.insert(machine.to_owned(), sight);
    observed
}

/// A plan, short.
pub(crate) fn words(step: &Step<Action>) -> Vec<String> {
    match step {
        Step::Do(actions) => actions.iter().map(|action| format!("{action:?}")).collect(),
        Step::Wait(wait) => wait.on.iter().map(|awaited| format!("wait {}", awaited.reason)).collect(),
        Step::Done => vec!["done".to_owned()],
        Step::Stop(failure) => vec![format!("stop {}", failure.reason)],
    }
}

pub(crate) fn check(name: &str, observed: &Observed, expected: &[&str]) {
    assert_eq!(words(&plan(observed)), expected, "{name}");
}

#[test]
fn the_beginning() {
    let mut bare = begun();
    bare.object.metadata.finalizers = None;
    check("new", &bare, &["AddFinalizer"]);
    let mut paused = begun();
    paused.object.spec.paused = true;
    check("paused", &paused, &["wait Paused"]);
    let mut invalid = begun();
    invalid.object.spec.network.vip = Some("10.244.0.7".into());
    check("vip among the pods", &invalid, &["stop ValidationFailed"]);
    let missing = Failure::new(Class::InvalidConfig, "ProviderConfigNotFound", "", "");
    check("no provider", &Observed { provided: Err(missing), ..begun() }, &["stop ProviderConfigNotFound"]);
    let mut other = begun();
    other.object.spec.provider = butler_api::Provider::Nutanix;
    check("another provider", &other, &["stop ProviderMismatch"]);
    let first = [
        "Start(MakeSecrets)",
        "CreateMachine(\"prod-cp-0\")",
        "CreateMachine(\"prod-cp-1\")",
        "CreateMachine(\"prod-cp-2\")",
        "StoreKubeconfig",
    ];
    check("secrets and machines side by side", &begun(), &first[..4]);
    let given = Observed { kubeconfig: None, ..with_secrets(begun()) };
    check("secrets given", &given, &first[1..]);
}

#[test]
fn secrets_are_drawn_once_and_bad_ones_stop() {
    let bad = Failure::new(Class::InvalidConfig, "SecretsUnusable", "", "");
    check("bad", &Observed { secrets: Some(Err(bad)), ..begun() }, &["stop SecretsUnusable"]);
    let waiting = asked(begun());
    let waiting = Observed { secrets: None, kubeconfig: None, ..running(waiting, &[Task::MakeSecrets]) };
    assert_eq!(words(&plan(&waiting))[0], "wait SecretsBeingMade");
}

#[test]
fn images_come_before_machines() {
    let coming = |status: serde_json::Value, join| {
        let image: ImageSync = serde_json::from_value(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ImageSync", "metadata": {"name": "i", "uid": "i-uid"},
            "spec": {"factoryRef": {"schematicID": "12345678", "version": "v1"}, "providerConfigRef": {"name": "p"}},
            "status": status,
        }))
        .unwrap();
        ImageSight::Coming { image: Box::new(image), join }
    };
    let with = |image| Observed { image, ..with_secrets(begun()) };
    check("wanted", &with(ImageSight::Wanted), &["CreateImage"]);
    check("coming", &with(coming(json!({}), false)), &["wait ImageNotReady"]);
    check("another's", &with(coming(json!({}), true)), &["JoinImage(\"i\")"]);
    let failed = json!({"phase": "Failed", "failureReason": "NotFound", "failureMessage": "no such image; what to do: upload it"});
    let before = with(coming(failed.clone(), false));
    check("failed in an earlier life", &before, &["wait ImageNotReady"]);
    let observed = Observed { stopped: ["i-uid".to_owned()].into(), ..with(coming(failed, false)) };
    check("failed", &observed, &["stop NotFound"]);
    let Step::Stop(failure) = plan(&observed) else { panic!("it stops") };
    assert_eq!(
        (failure.message.as_str(), failure.remedy.as_str()),
        ("the image i: no such image", "upload it")
    );
    let ImageSight::Coming { image, .. } = coming(json!({}), false) else { panic!("coming") };
    let ready = with(ImageSight::Ready { reference: "local:x".into(), image, join: false });
    assert_eq!(words(&plan(&ready)).len(), 3, "all machines");
    assert_eq!(ready.machine_request(&ready.wanted()[0]).spec.image.as_deref(), Some("local:x"));
    check("not waited for any more", &Observed { image: ImageSight::Wanted, ..complete(begun()) }, &["done"]);
}

#[test]
fn a_vanished_machine_is_made_anew_until_etcd_may_be_there() {
    let vanish = |mut observed: Observed| {
        let status = observed.machines.get_mut("prod-cp-1").unwrap().status.as_mut().unwrap();
        (status.phase, status.failure_reason) = (Some(MachinePhase::Failed), Some("VMDeleted".into()));
        Observed { stopped: ["uid-prod-cp-1".to_owned()].into(), ..observed }
    };
    check("before etcd", &vanish(configured(begun())), &["DeleteMachine(\"prod-cp-1\")", "Start(Bootstrap)"]);
    let mut written = vanish(configured(begun()));
    written.object.status =
        Some(ClusterBootstrapStatus { bootstrap_machine: Some("prod-cp-0".into()), ..Default::default() });
    check("etcd may be there", &written, &["stop VMDeleted"]);
    let made = vanish(etcd_up(begun()));
    check("etcd is there", &made, &["stop VMDeleted"]);
    let Step::Stop(failure) = plan(&made) else { panic!("it stops") };
    assert!(failure.remedy.contains("`butleradm destroy prod`"), "{}", failure.remedy);
}

#[test]
fn machines_are_waited_for_and_their_failures_told() {
    check("asked", &asked(begun()), &["wait MachineNotUp", "wait MachineNotUp", "wait MachineNotUp"]);
    let change = |change: fn(&mut MachineRequest)| {
        let mut observed = machines_up(begun());
        change(observed.machines.get_mut("prod-cp-1").unwrap());
        observed.rendered = None;
        observed
    };
    let failed = change(|machine| {
        let status = machine.status.as_mut().unwrap();
        status.phase = Some(MachinePhase::Failed);
        status.failure_reason = Some("LoginFailed".into());
        status.failure_message = Some("it is locked; what to do: unlock it".into());
    });
    check("failed in an earlier life", &failed, &["wait MachineNotUp"]);
    let failed = Observed { stopped: ["uid-prod-cp-1".to_owned()].into(), ..failed };
    check("failed", &failed, &["stop LoginFailed"]);
    let Step::Stop(failure) = plan(&failed) else { panic!("it stops") };
    assert_eq!(
        (failure.message.as_str(), failure.remedy.as_str()),
        ("the machine prod-cp-1: it is locked", "unlock it")
    );
    check(
        "leaving",
        &change(|machine| machine.metadata.deletion_timestamp = Some(Time(at(1)))),
        &["wait MachineLeaving"],
    );
    let mut resized = asked(begun());
    resized.machines.get_mut("prod-cp-1").unwrap().spec.cpu = 99;
    assert_eq!(words(&plan(&resized)), ["UpdateMachine(\"prod-cp-1\")"], "nobody has acted on it");
    let mut made = machines_up(begun());
    made.machines.get_mut("prod-cp-1").unwrap().spec.cpu = 99;
    assert_eq!(words(&plan(&made)), ["StoreConfigs"], "made already: left alone");
    assert!(refused(&made).unwrap().contains("prod-cp-1"));
    let taken = Observed { foreign: ["prod-cp-0".to_owned()].into(), ..with_secrets(begun()) };
    check("another's", &taken, &["stop MachineRequestNotOurs"]);
    let mut surplus = asked(begun());
    surplus.machines.insert("prod-worker-7".into(), surplus.machines["prod-cp-0"].clone());
    surplus.machines.get_mut("prod-worker-7").unwrap().metadata.name = Some("prod-worker-7".into());
    check("fewer are wanted", &surplus, &["DeleteMachine(\"prod-worker-7\")"]);
    let mut no_room = asked(begun());
    let degraded =
        crate::report::condition("Degraded", true, "StorageFull", "full; what to do: free some", at(1), None);
    no_room.machines.get_mut("prod-cp-0").unwrap().status =
        Some(MachineRequestStatus { conditions: vec![degraded], ..Default::default() });
    let Step::Wait(wait) = plan(&no_room) else { panic!("it waits") };
    assert!(wait.on[0].what.ends_with(": full") && wait.on[0].remedy == "free some", "{:?}", wait.on[0]);
}

#[test]
fn configs_are_stored_before_they_are_applied() {
    check("rendered", &machines_up(begun()), &["StoreConfigs"]);
    let bad = Failure::new(Class::InvalidConfig, "ConfigPatchWrong", "", "");
    check("bad", &Observed { rendered: Some(Err(bad)), ..machines_up(begun()) }, &["stop ConfigPatchWrong"]);
    let mut changed = stored(begun());
    changed.stored.as_mut().unwrap().configs.insert("prod-cp-0".into(), Text::new("an older one"));
    check("changed", &changed, &["StoreConfigs"]);
    let looks = ["Start(Look(\"prod-cp-0\"))", "Start(Look(\"prod-cp-1\"))", "Start(Look(\"prod-cp-2\"))"];
    check("stored", &stored(begun()), &looks);
}

#[test]
fn talos_nodes_are_handled_by_what_they_show() {
    let others = |observed| {
        let applied = || TalosSight::Applied { fresh: true, mark: 1 };
        let mut observed = seen(seen(observed, "prod-cp-1", applied()), "prod-cp-2", applied());
        for name in ["prod-cp-1", "prod-cp-2"] {
            let mark = observed.mark(name).unwrap();
            observed.stored.as_mut().unwrap().applied.insert(name.into(), mark);
        }
        observed
    };
    let show = |sight| seen(others(stored(begun())), "prod-cp-0", sight);
    let (look, apply) = (Task::Look("prod-cp-0".into()), Task::Apply("prod-cp-0".into()));
    check("maintenance", &show(TalosSight::Maintenance), &["Start(Apply(\"prod-cp-0\"))"]);
    check("ours, not marked", &show(TalosSight::Ours), &["Start(Apply(\"prod-cp-0\"))"]);
    check(
        "being applied",
        &running(show(TalosSight::Maintenance), std::slice::from_ref(&apply)),
        &["wait TalosConfigNotApplied"],
    );
    let taken = |marks| Observed { marks, ..show(TalosSight::Applied { fresh: true, mark: 3 }) };
    check("taken, and its mark not read yet", &taken(2), &["wait TalosConfigNotApplied"]);
    check("taken, and its mark was lost", &taken(3), &["Start(Look(\"prod-cp-0\"))"]);
    check("silent", &show(TalosSight::Silent("x".into())), &["Start(Look(\"prod-cp-0\"))"]);
    check(
        "still silent",
        &running(show(TalosSight::Silent("x".into())), std::slice::from_ref(&look)),
        &["wait TalosSilent"],
    );
    check(
        "clocks",
        &running(show(TalosSight::ClockSkew("x".into())), std::slice::from_ref(&look)),
        &["wait ClockSkew"],
    );
    let foreign = trouble(others(stored(begun())), look.clone(), Class::Conflict, 20);
    check("another cluster's", &foreign, &["stop Why"]);
    let again = trouble(others(stored(begun())), look.clone(), Class::Conflict, 5);
    check("another cluster's, looked at again", &again, &["Start(Look(\"prod-cp-0\"))"]);
    let hiccup = trouble(show(TalosSight::Maintenance), apply, Class::Retryable, 20);
    check("hiccup", &hiccup, &["wait Why"]);
    let mut handed = show(TalosSight::Maintenance);
    handed.object.spec.talos.config_delivery = ConfigDelivery::UserData;
    for machine in handed.machines.values_mut() {
        machine.spec.user_data = Some(format!("config of {}", machine.name_any()));
    }
    check("user data not taken", &handed, &["wait UserDataNotTaken"]);
    let mut replaced = configured(begun());
    replaced.machines.get_mut("prod-cp-1").unwrap().metadata.uid = Some("another".into());
    assert!(
        words(&plan(&replaced)).contains(&"Start(Look(\"prod-cp-1\"))".to_owned()),
        "a new machine has no config"
    );
}

#[test]
fn etcd_is_made_once_and_only_on_the_first() {
    check("configured", &configured(begun()), &["Start(Bootstrap)"]);
    let mut half = configured(begun());
    half.stored.as_mut().unwrap().applied.remove("prod-cp-2");
    let half =
        seen(running(half, &[Task::Look("prod-cp-2".into())]), "prod-cp-2", TalosSight::Silent("x".into()));
    check("a control plane is missing", &half, &["wait TalosSilent"]);
    check("asked", &running(configured(begun()), &[Task::Bootstrap]), &["wait EtcdNotBootstrapped"]);
    check("refused", &trouble(configured(begun()), Task::Bootstrap, Class::Conflict, 20), &["stop Why"]);
    let called = Observed { bootstrapped: true, ..configured(begun()) };
    check("called", &called, &["Start(Etcd)", "Start(Reach)"]);
    check("etcd is up", &etcd_up(begun()), &["Start(Reach)"]);
    let mut second_life = configured(begun());
    let made = crate::report::condition(Milestone::Etcd.condition(), true, "EtcdHealthy", "", at(5), None);
    second_life.object.status = Some(ClusterBootstrapStatus { conditions: vec![made], ..Default::default() });
    check("a second life", &second_life, &["Start(Reach)"]);
    let mut chosen = configured(begun());
    chosen.object.status =
        Some(ClusterBootstrapStatus { bootstrap_machine: Some("prod-cp-2".into()), ..Default::default() });
    assert_eq!(chosen.first().as_deref(), Some("prod-cp-2"), "what was written down counts");
    assert_eq!(begun().first().as_deref(), Some("prod-cp-0"));
}

#[test]
fn the_new_cluster_is_reached_and_looked_at() {
    check("reaching", &running(etcd_up(begun()), &[Task::Reach]), &["wait KubernetesSilent"]);
    check("reached", &reached(begun()), &["Start(Survey)"]);
    let elsewhere = Observed { endpoint_answers: false, ..reached(begun()) };
    check("not by the endpoint", &elsewhere, &["Start(ReachEndpoint)", "Start(Survey)"]);
    let mut unwatched = complete(begun());
    unwatched.running.clear();
    check("watched between looks", &unwatched, &["Start(Watch)"]);
    check("something changed", &Observed { stale: true, ..complete(begun()) }, &["Start(Survey)"]);
    check("from time to time", &Observed { now: at(60), ..complete(begun()) }, &["Start(Survey)"]);
    check("complete", &complete(begun()), &["done"]);
}

#[test]
fn addons_go_side_by_side_as_soon_as_their_needs_are_met() {
    let installs = ["Start(Install(\"cilium\"))", "Start(Install(\"crds\"))"];
    check("what needs nothing", &surveyed(begun()), &installs);
    let mut network = surveyed(begun());
    network.survey.as_mut().unwrap().addons.insert("cilium".into(), AddonState::Ready);
    let second = ["Start(Install(\"cert-manager\"))", "Start(Install(\"crds\"))"];
    check("what is skipped is no need", &network, &second);
    let mut settling = complete(begun());
    settling.survey.as_mut().unwrap().addons.insert("crds".into(), AddonState::Absent);
    settling.installed.insert("crds".into(), at(9));
    check("just applied", &settling, &["wait AddonNotInstalled"]);
    settling.installed.insert("crds".into(), at(1));
    check("taken away again", &settling, &["Start(Install(\"crds\"))"]);
    let mut ill = complete(begun());
    let not_ready = AddonState::NotReady { object: "Deployment a/b".into(), why: "0 of 1".into() };
    ill.survey.as_mut().unwrap().addons.insert("crds".into(), not_ready);
    let Step::Wait(wait) = plan(&ill) else { panic!("it waits") };
    assert_eq!(wait.on[0].what, "the addon crds: Deployment a/b: 0 of 1");
    let mut failed = complete(begun());
    failed.survey.as_mut().unwrap().addons.insert("crds".into(), AddonState::Absent);
    let failed = trouble(failed, Task::Install("crds".into()), Class::InvalidConfig, 20);
    check("impossible", &failed, &["stop Why"]);
}

#[test]
fn every_control_plane_has_to_vote() {
    let mut learns = complete(begun());
    learns.voters.remove("prod-cp-2");
    let vote = Task::Vote("prod-cp-2".into());
    check("not looked at yet", &learns, &["Start(Vote(\"prod-cp-2\"))"]);
    assert_eq!(learns.reached(Milestone::Addons), None, "not known");
    assert_eq!(learns.milestone(), Some(Milestone::Addons), "and never told before");
    check("it learns", &running(learns.clone(), std::slice::from_ref(&vote)), &["wait EtcdNotVoting"]);
    let failed = trouble(learns.clone(), vote, Class::Retryable, 20);
    check("it does not come up", &failed, &["wait Why"]);
    assert_eq!(failed.reached(Milestone::Addons), Some(false));
    let mut kept_out = failed.clone();
    kept_out.survey.as_mut().unwrap().nodes.remove("prod-cp-1");
    check("the cause before what follows from it", &kept_out, &["wait Why", "wait NodeNotJoined"]);
    learns.survey.as_mut().unwrap().nodes.remove("prod-cp-2");
    check("no node, no look", &learns, &["wait NodeNotJoined"]);
}

#[test]
fn nodes_are_waited_for_by_name() {
    let mut observed = complete(begun());
    let nodes = &mut observed.survey.as_mut().unwrap().nodes;
    nodes.remove("prod-cp-1");
    nodes.insert("prod-cp-2".into(), NodeSight { ready: false, why: "cni plugin not initialized".into() });
    let Step::Wait(wait) = plan(&observed) else { panic!("it waits") };
    assert_eq!(wait.on[0].what, "the node prod-cp-1 to join the cluster");
    assert_eq!(wait.on[1].what, "the node prod-cp-2 to be ready: cni plugin not initialized");
}

#[test]
fn deadlines_count_from_the_milestone_before() {
    let deadline = |observed: &Observed| match plan(observed) {
        Step::Wait(wait) => wait.deadline,
        other => panic!("{other:?}"),
    };
    let limits = Deadlines::default();
    assert_eq!(deadline(&asked(begun())), at(0) + limits.machines, "from the creation");
    let mut later = running(configured(begun()), &[Task::Bootstrap]);
    let reached = |type_, second| crate::report::condition(type_, true, "X", "", at(second), Some(1));
    let talos = reached(Milestone::Talos.condition(), 300);
    let mut status = ClusterBootstrapStatus { observed_generation: Some(1), ..Default::default() };
    status.conditions =
        vec![reached("Progressing", 20), reached("ImageReady", 1), reached("MachinesReady", 90), talos];
    later.object.status = Some(status.clone());
    assert_eq!(deadline(&later), at(300) + limits.etcd, "from the milestone before");
    status.conditions[0] = reached("Progressing", 500);
    later.object.status = Some(status.clone());
    assert_eq!(deadline(&later), at(500) + limits.etcd, "from the moment at which work began again");
    later.object.metadata.generation = Some(2);
    assert_eq!(deadline(&later), later.now + limits.etcd, "a new spec has its own time");
    later.object.metadata.generation = Some(1);
    later.since = at(9000);
    assert_eq!(deadline(&later), at(9000) + limits.etcd, "from the moment at which somebody was there again");
    let late = Observed { now: at(0) + limits.machines, ..asked(begun()) };
    let step = plan(&late);
    let failure = step.failure(late.now).unwrap();
    assert_eq!(failure.reason, "MachineNotUp");
}

#[test]
fn everything_goes_in_order() {
    let deleting = |mut observed: Observed| {
        observed.object.metadata.deletion_timestamp = Some(Time(at(5)));
        observed
    };
    let gone =
        ["DeleteMachine(\"prod-cp-0\")", "DeleteMachine(\"prod-cp-1\")", "DeleteMachine(\"prod-cp-2\")"];
    check("machines first", &deleting(machines_up(begun())), &gone);
    let mut paused = deleting(machines_up(begun()));
    paused.object.spec.paused = true;
    check("also when paused", &paused, &gone);
    let mut leaving = deleting(machines_up(begun()));
    leaving.machines.values_mut().for_each(|machine| machine.metadata.deletion_timestamp = Some(Time(at(6))));
    leaving.own_secrets = vec!["s".into()];
    check(
        "they are waited for",
        &leaving,
        &["wait MachineLeaving", "wait MachineLeaving", "wait MachineLeaving"],
    );
    let image: ImageSync = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ImageSync", "metadata": {"name": "i"},
        "spec": {"factoryRef": {"schematicID": "12345678", "version": "v1"}, "providerConfigRef": {"name": "p"}},
    }))
    .unwrap();
    let images = Observed { images: vec![image.clone()], own_secrets: vec!["s".into()], ..deleting(begun()) };
    check("then images", &images, &["ReleaseImage(\"i\")"]);
    let mut going = images.clone();
    going.images[0].metadata.deletion_timestamp = Some(Time(at(6)));
    check("they are waited for too", &going, &["wait ImageLeaving"]);
    check(
        "then secrets",
        &Observed { own_secrets: vec!["s".into()], ..deleting(begun()) },
        &["DeleteSecret(\"s\")"],
    );
    check("then it is over", &deleting(begun()), &["RemoveFinalizer"]);
    let mut over = deleting(begun());
    over.object.metadata.finalizers = None;
    check("over", &over, &["done"]);
}

#[test]
fn changes_that_cannot_be_made_are_told_and_left_alone() {
    let mut grown = complete(begun());
    assert_eq!(refused(&grown), None);
    grown.object.spec.talos.install_disk = "/dev/sdz".into();
    assert!(refused(&grown).is_some());
    assert_eq!(words(&plan(&grown)), ["done"], "nothing is done about it");
    let mut before = stored(begun());
    before.object.spec.talos.install_disk = "/dev/sdz".into();
    assert_eq!(refused(&before), None, "before etcd, configs are simply made anew");
    assert_eq!(fingerprint("a").len(), 32);
}
