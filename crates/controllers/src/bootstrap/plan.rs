//! What is to happen to a bootstrap next. Pure.
//!
//! Each track looks at what it needs and adds what can be done now, or what is missing: tracks that need nothing of each other
//! go on side by side. Nothing here asks which phase it was.

use super::memory::{Survey, TalosSight, Task};
use super::observe::{ImageSight, Observed};
use super::talos::{ETCD_LEARNS, ETCD_SILENT, Lack};
use super::view::phase;
use super::wanted::WantedNode;
use super::{balancer, deletion};
use crate::addons::AddonState;
use crate::machine::VANISHED;
use crate::report::split_remedy;
use crate::step::{Awaited, Step, Wait};
use crate::{Class, Failure};
use butler_api::{
    CONDITION_DEGRADED, Condition, ConfigDelivery, ImageSync, ImageSyncPhase, MachinePhase, MachineRequest,
    MachineRole, Severity, Validate, find_condition,
};
use kube::ResourceExt;
use std::borrow::Cow;
use std::time::Duration;

/// What can be done about a bootstrap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    AddFinalizer,
    /// Asks for the boot image.
    CreateImage,
    /// Takes a share in an image that is there for another cluster.
    JoinImage(String),
    CreateMachine(String),
    /// Changes a MachineRequest that nobody has acted on yet.
    UpdateMachine(String),
    /// Asks for a machine to go.
    DeleteMachine(String),
    /// Lets a machine go that no load balancer sends to any more.
    ReleaseMachine(String),
    /// Asks for the load balancer.
    CreateBalancer,
    /// Tells it what it is to send to, and how it is to be set up.
    UpdateBalancer,
    /// Asks for it to go.
    DeleteBalancer,
    /// Writes configs and talosconfig down.
    StoreConfigs,
    /// Writes the config of a machine down that has replaced another.
    StoreConfig(String),
    /// Writes the kubeconfig down.
    StoreKubeconfig,
    /// Starts work in the background.
    Start(Task),
    /// Gives up the share in an image; the last one asks for it to go.
    ReleaseImage(String),
    DeleteSecret(String),
    RemoveFinalizer,
}

/// Longest pause before looking again when nothing is heard: the last resort, everything else wakes by itself.
pub(super) const RECHECK: Duration = Duration::from_secs(5);
/// What to do about clocks that disagree.
pub(crate) const CLOCKS: &str =
    "set the clocks of this computer and of the node; check the node's time servers";
/// How long an addon that was applied may be seen as missing before it is applied again.
const SETTLING: Duration = Duration::from_secs(2);

impl Action {
    /// Whether it writes the ClusterBootstrap itself.
    pub(crate) fn writes_object(&self) -> bool {
        matches!(self, Action::AddFinalizer | Action::RemoveFinalizer)
    }
}

/// What the tracks have found.
#[derive(Default)]
pub(super) struct Work {
    pub(super) actions: Vec<Action>,
    pub(super) on: Vec<Awaited>,
    pub(super) stop: Option<Failure>,
}

impl Work {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn wait(
        &mut self,
        reason: impl Into<Cow<'static, str>>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.on.push(Awaited { reason: reason.into(), what: what.into(), remedy: remedy.into() });
    }

    pub(super) fn stop(&mut self, failure: Failure) {
        self.stop.get_or_insert(failure);
    }

    /// Starts a task, unless it runs, or failed a moment ago. `what` is what it is waited for.
    pub(super) fn run(
        &mut self,
        observed: &Observed,
        task: Task,
        reason: &'static str,
        what: String,
        remedy: &str,
    ) {
        let trouble = observed.troubles.get(&task);
        let due = trouble.is_none_or(|trouble| observed.now >= trouble.until);
        if !observed.running.contains(&task) && due {
            self.act(Action::Start(task));
            return;
        }
        match trouble {
            Some(trouble) if trouble.failure.class.stops() => self.stop(trouble.failure.clone()),
            Some(trouble) => {
                let what = format!("{what} (last: {})", trouble.failure.message);
                // What was in the way the last time says more than what is missing.
                self.wait(trouble.failure.reason.clone(), what, trouble.failure.remedy.clone());
            }
            None => self.wait(reason, what, remedy),
        }
    }
}

/// The whole decision.
pub(crate) fn plan(observed: &Observed) -> Step<Action> {
    if observed.deleting() {
        return deletion::plan(observed);
    }
    if !observed.has_finalizer() {
        return Step::Do(vec![Action::AddFinalizer]);
    }
    if observed.object.spec.paused {
        let on = vec![Awaited {
            reason: "Paused".into(),
            what: "spec.paused to be false".to_owned(),
            remedy: "set spec.paused to false".to_owned(),
        }];
        return Step::Wait(Wait { on, deadline: jiff::Timestamp::MAX, recheck: observed.deadlines.resync });
    }
    if let Some(failure) = invalid(observed) {
        return Step::Stop(failure);
    }
    let mut work = Work::default();
    image(observed, &mut work);
    secrets(observed, &mut work);
    address(observed, &mut work);
    machines(observed, &mut work);
    balancer::track(observed, &mut work);
    configs(observed, &mut work);
    talos(observed, &mut work);
    etcd(observed, &mut work);
    kubernetes(observed, &mut work);
    addons(observed, &mut work);
    finish(observed, work)
}

fn finish(observed: &Observed, work: Work) -> Step<Action> {
    if let Some(failure) = work.stop {
        return Step::Stop(failure);
    }
    if !work.actions.is_empty() {
        return Step::Do(work.actions);
    }
    if work.on.is_empty() {
        return Step::Done;
    }
    Step::Wait(Wait { on: work.on, deadline: observed.deadline(), recheck: recheck(observed) })
}

/// The soonest moment at which something failed may be tried again, and otherwise seldom.
fn recheck(observed: &Observed) -> Duration {
    let pauses = observed
        .troubles
        .values()
        .filter(|trouble| trouble.until > observed.now)
        .map(|trouble| crate::runtime::until(observed.now, trouble.until));
    pauses.min().unwrap_or(RECHECK).min(RECHECK)
}

/// What can't work, whatever the outside does.
fn invalid(observed: &Observed) -> Option<Failure> {
    let problems: Vec<String> = observed
        .object
        .validate()
        .iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    if !problems.is_empty() {
        let remedy = "change the fields that the message names";
        return Some(Failure::new(Class::InvalidConfig, "ValidationFailed", problems.join("; "), remedy));
    }
    if let Err(failure) = &observed.provided {
        return Some(failure.clone());
    }
    if let Some(provided) = observed.provided.as_ref().ok().map(|provided| provided.config.spec.provider)
        && provided != observed.object.spec.provider
    {
        return Some(Failure::new(
            Class::InvalidConfig,
            "ProviderMismatch",
            format!(
                "spec.provider is {}, and the ProviderConfig is for {provided}",
                observed.object.spec.provider
            ),
            "name a ProviderConfig of the same infrastructure",
        ));
    }
    if let Err(failure) = &observed.nodes {
        return Some(failure.clone());
    }
    // Said before the first machine is made, rather than when configs are.
    if let Err(error) = butler_talos::Contract::parse(&observed.object.spec.talos.version) {
        let remedy = "set talos.version to one that is supported";
        return Some(Failure::new(
            Class::InvalidConfig,
            "TalosVersionUnsupported",
            error.to_string(),
            remedy,
        ));
    }
    None
}

fn image(observed: &Observed, work: &mut Work) {
    match &observed.image {
        // After etcd there is no machine to be made from an image any more.
        _ if observed.etcd_made() => {}
        ImageSight::Skipped(_) => {}
        ImageSight::Wanted => work.act(Action::CreateImage),
        ImageSight::Coming { image, join } | ImageSight::Ready { image, join, .. } => {
            if *join {
                work.act(Action::JoinImage(image.name_any()));
            }
            if matches!(observed.image, ImageSight::Coming { .. }) {
                image_coming(observed, image, work);
            }
        }
    }
}

fn image_coming(observed: &Observed, image: &ImageSync, work: &mut Work) {
    let status = image.status.clone().unwrap_or_default();
    let (message, remedy) = split_remedy(status.failure_message.as_deref().unwrap_or_default());
    if status.phase == Some(ImageSyncPhase::Failed) && observed.stopped(image) {
        let reason = status.failure_reason.as_deref().unwrap_or("ImageSyncFailed");
        let message = format!("the image {}: {message}", image.name_any());
        work.stop(Failure::new(Class::InvalidConfig, reason, message, remedy));
        return;
    }
    let (reason, why, remedy) = obstacle(&status.conditions, "ImageNotReady");
    let what = format!("the image {} to be on the infrastructure{why}", image.name_any());
    let usual = "look at the ImageSync, and at the infrastructure's tasks";
    work.wait(reason, what, if remedy.is_empty() { usual.to_owned() } else { remedy });
}

fn secrets(observed: &Observed, work: &mut Work) {
    match &observed.secrets {
        None => work.run(
            observed,
            Task::MakeSecrets,
            "SecretsBeingMade",
            "the cluster's secrets to be drawn".to_owned(),
            "",
        ),
        Some(Err(failure)) => work.stop(failure.clone()),
        Some(Ok(_)) => {}
    }
}

/// Two owners of one address would both be unreachable half of the time, and nobody would know why.
fn address(observed: &Observed, work: &mut Work) {
    if let Some(address) = observed.address_to_claim().filter(|_| !observed.address_is_free()) {
        let what = format!("a look whether somebody has the virtual address {address}");
        work.run(observed, Task::Knock, "AddressNotLookedAt", what, "look at the way to that address");
    }
}

fn machines(observed: &Observed, work: &mut Work) {
    let image_there = match &observed.image {
        ImageSight::Ready { .. } | ImageSight::Skipped(_) => true,
        ImageSight::Wanted | ImageSight::Coming { .. } => observed.etcd_made(),
    };
    // Configs that come with the machine have to be there before it is.
    let data_there = observed.object.spec.talos.config_delivery == ConfigDelivery::Push
        || matches!(&observed.rendered, Some(Ok(_)));
    for node in observed.wanted() {
        if observed.foreign.contains(&node.name) {
            work.stop(Failure::new(
                Class::Conflict,
                "MachineRequestNotOurs",
                format!("there is a MachineRequest {} that belongs to another ClusterBootstrap", node.name),
                "give the cluster another name, or remove that MachineRequest",
            ));
            continue;
        }
        match observed.machines.get(&node.name) {
            None if image_there && data_there => work.act(Action::CreateMachine(node.name.clone())),
            None => {}
            Some(machine) => machine_there(observed, node, machine, work),
        }
    }
    let surplus = observed.machines.values().filter(|machine| {
        machine.metadata.deletion_timestamp.is_none()
            && !observed.wanted().iter().any(|node| node.name == machine.name_any())
    });
    if !observed.etcd_made() {
        surplus.for_each(|machine| work.act(Action::DeleteMachine(machine.name_any())));
    }
}

fn machine_there(observed: &Observed, node: &WantedNode, machine: &MachineRequest, work: &mut Work) {
    let name = &node.name;
    if machine.metadata.deletion_timestamp.is_some() {
        work.wait("MachineLeaving", format!("the machine {name} to be gone"), "look at its MachineRequest");
        return;
    }
    let wanted = observed.machine_request(node);
    let asked = machine.status.as_ref().is_some_and(|status| {
        find_condition(&status.conditions, "Requested").is_some_and(butler_api::Condition::is_true)
    });
    if wanted.spec != machine.spec && !asked {
        work.act(Action::UpdateMachine(name.clone()));
        return;
    }
    let failed = phase(machine) == Some(MachinePhase::Failed);
    if failed && observed.stopped(machine) {
        machine_failed(observed, name, machine, work);
    } else if failed || !super::observe::up(machine) {
        machine_awaited(name, machine, work);
    }
}

fn machine_failed(observed: &Observed, name: &str, machine: &MachineRequest, work: &mut Work) {
    let status = machine.status.clone().unwrap_or_default();
    let (message, remedy) = split_remedy(status.failure_message.as_deref().unwrap_or_default());
    let reason = status.failure_reason.as_deref().unwrap_or("MachineProvisioningFailed");
    let vanished = reason == VANISHED;
    if vanished && !observed.etcd_may_be() {
        // Nothing is lost with it: it goes, and is made anew.
        work.act(Action::DeleteMachine(name.to_owned()));
        return;
    }
    let remedy = if vanished {
        let cluster = observed.object.name_any();
        format!(
            "put the machine back, for example from a backup; or make the cluster anew: `butleradm destroy {cluster}`, \
             then `butleradm bootstrap`"
        )
    } else {
        remedy.to_owned()
    };
    work.stop(Failure::new(Class::Terminal, reason, format!("the machine {name}: {message}"), remedy));
}

fn machine_awaited(name: &str, machine: &MachineRequest, work: &mut Work) {
    let conditions = machine.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let (reason, why, remedy) = obstacle(conditions, "MachineNotUp");
    let what = format!("the machine {name} to be up and have an address{why}");
    let usual = "look at its MachineRequest and at the infrastructure";
    work.wait(reason, what, if remedy.is_empty() { usual.to_owned() } else { remedy });
}

/// What is in the way of an object of ours, as its conditions tell it: a word, why (with a colon in front), what to do.
pub(super) fn obstacle(conditions: &[Condition], usual: &'static str) -> (Cow<'static, str>, String, String) {
    let degraded = find_condition(conditions, CONDITION_DEGRADED).filter(|condition| condition.is_true());
    let reason = degraded.map_or(usual.into(), |condition| condition.reason.clone().into());
    let told = degraded.or_else(|| find_condition(conditions, "Ready")).map(|told| told.message.as_str());
    let (why, remedy) = split_remedy(told.unwrap_or_default());
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    (reason, why, remedy.to_owned())
}

fn configs(observed: &Observed, work: &mut Work) {
    match &observed.rendered {
        // The shape of a cluster is fixed once etcd is there: what changed is told, and left alone.
        _ if observed.etcd_made() && observed.stored.is_some() => {
            let replaced = observed.wanted().iter().filter(|node| observed.outdated(&node.name));
            replaced.for_each(|node| work.act(Action::StoreConfig(node.name.clone())));
        }
        Some(Err(failure)) => work.stop(failure.clone()),
        Some(Ok(_)) if !observed.configs_current() => work.act(Action::StoreConfigs),
        _ => {}
    }
    let server = observed.endpoint.as_ref().map(|host| server(host));
    let good =
        |text: &butler_talos::Secret| server.as_ref().is_some_and(|server| text.expose().contains(server));
    if server.is_some()
        && matches!(&observed.secrets, Some(Ok(_)))
        && !observed.kubeconfig.as_ref().is_some_and(good)
    {
        work.act(Action::StoreKubeconfig);
    }
}

/// The URL of the Kubernetes API at a host.
pub(crate) fn server(host: &str) -> String {
    butler_talos::Endpoint::new(host, butler_talos::API_PORT).to_string()
}

fn talos(observed: &Observed, work: &mut Work) {
    if !observed.etcd_made() && !observed.configs_current() {
        return;
    }
    let pushed = observed.object.spec.talos.config_delivery == ConfigDelivery::Push;
    for node in observed.wanted() {
        let name = &node.name;
        let Some(address) = observed.address(name).filter(|_| !observed.configured(name)) else { continue };
        if observed.outdated(name) {
            continue;
        }
        let port_open = "check the machine's power, its address, and that port 50000 is not blocked";
        match observed.talos.get(name) {
            Some(TalosSight::Maintenance) if !pushed => work.wait(
                "UserDataNotTaken",
                format!("{name} to take the config that was handed over with the machine"),
                "check that the infrastructure hands user data to the machine, or set talos.configDelivery to push",
            ),
            Some(TalosSight::Maintenance | TalosSight::Ours) if !observed.address_is_free() => {}
            Some(TalosSight::Maintenance | TalosSight::Ours) => {
                let what = format!("{name} to take its config at {address}");
                work.run(observed, Task::Apply(name.clone()), "TalosConfigNotApplied", what, port_open);
            }
            Some(TalosSight::ClockSkew(why)) => {
                let what = format!("the clock of {name} to be right: {why}");
                let what = with_look(observed, work, name, what);
                work.wait("ClockSkew", what, CLOCKS);
            }
            Some(TalosSight::Silent(why)) => {
                let what = format!("Talos on {name} to answer at {address}: {why}");
                let what = with_look(observed, work, name, what);
                work.wait("TalosSilent", what, port_open);
            }
            // The mark may have been written after the Secret was read: the next reading has it. One that has it not has
            // lost it, and what the node has is looked at.
            Some(TalosSight::Applied { mark, .. }) if *mark > observed.marks => {
                let what = format!("{name} to be known to have taken its config");
                work.wait("TalosConfigNotApplied", what, port_open);
            }
            Some(TalosSight::Applied { .. }) | None => {
                let what = format!("Talos on {name} to answer at {address}");
                work.run(observed, Task::Look(name.clone()), "TalosSilent", what, port_open);
            }
        }
    }
}

/// Keeps looking.
fn with_look(observed: &Observed, work: &mut Work, name: &str, what: String) -> String {
    let task = Task::Look(name.to_owned());
    if !observed.running.contains(&task) {
        work.act(Action::Start(task));
    }
    what
}

fn etcd(observed: &Observed, work: &mut Work) {
    let ready = observed.control_planes().all(|node| observed.configured(&node.name));
    let Some(first) = observed.first().filter(|_| ready && observed.control_planes().count() > 0) else {
        return;
    };
    if observed.etcd_made() {
        return;
    }
    let Lack { reason, remedy } = ETCD_SILENT;
    if !observed.bootstrapped {
        let what = format!("etcd to be made on {first}");
        work.run(observed, Task::Bootstrap, "EtcdNotBootstrapped", what, remedy);
        return;
    }
    let what = format!("etcd on {first} to be healthy");
    work.run(observed, Task::Etcd, reason, what, remedy);
}

fn kubernetes(observed: &Observed, work: &mut Work) {
    if !(observed.bootstrapped || observed.etcd_made()) || observed.kubeconfig.is_none() {
        return;
    }
    let note = &observed.reach_note;
    if observed.reached.is_none() {
        let what = format!(
            "a Kubernetes API to answer{}",
            if note.is_empty() { String::new() } else { format!(": {note}") }
        );
        let remedy = "look at the control planes' services and at port 6443";
        work.run(observed, Task::Reach, "KubernetesSilent", what, remedy);
        return;
    }
    if !observed.endpoint_answers {
        let endpoint = observed.endpoint.clone().unwrap_or_default();
        let what = format!("the Kubernetes API to answer at the endpoint {endpoint}");
        let remedy = "check that nobody else has that address, and that whatever holds it runs (kube-vip, load balancer)";
        work.run(observed, Task::ReachEndpoint, "EndpointSilent", what, remedy);
    }
}

fn addons(observed: &Observed, work: &mut Work) {
    if observed.reached.is_none() {
        return;
    }
    let due = observed.survey.as_ref().is_none_or(|survey| {
        observed.stale || crate::runtime::until(survey.at, observed.now) >= observed.deadlines.resync
    });
    let known = observed.survey.is_some() && !observed.troubles.contains_key(&Task::Survey);
    if due && known && observed.running.contains(&Task::Survey) {
        // It is on its way, and what the last look showed is told meanwhile.
    } else if due {
        let what = "a look at the new cluster".to_owned();
        work.run(observed, Task::Survey, "ClusterNotSeen", what, "look at the new cluster's API server");
    } else if !observed.running.contains(&Task::Watch) {
        work.act(Action::Start(Task::Watch));
    }
    let Some(survey) = &observed.survey else { return };
    // First: a node that is missing is why addons are not ready, more often than the other way round.
    nodes(observed, survey, work);
    for addon in observed.planned() {
        match observed.addon(addon.name) {
            Some(AddonState::Ready) => {}
            Some(AddonState::NotReady { object, why }) => {
                let what = format!("the addon {}: {object}: {why}", addon.name);
                work.wait("AddonNotReady", what, format!("look at {object} on the new cluster"));
            }
            Some(AddonState::Absent) | None => absent(observed, addon, work),
        }
    }
}

fn nodes(observed: &Observed, survey: &Survey, work: &mut Work) {
    // First: etcd takes one learner at a time, so that one which is never promoted keeps all others out.
    observed.wanted().iter().for_each(|node| vote(observed, node, work));
    for node in observed.wanted() {
        match survey.nodes.get(&node.name) {
            Some(sight) if sight.ready => {}
            _ if observed.clocks.contains_key(&node.name) => clock_wrong(observed, &node.name, work),
            None => work.wait(
                "NodeNotJoined",
                format!("the node {} to join the cluster", node.name),
                "look at its services (`butleradm talos health`), and at the way from it to the endpoint",
            ),
            Some(sight) => {
                let what = format!("the node {} to be ready: {}", node.name, sight.why);
                work.wait(
                    "NodeNotReady",
                    what,
                    "a node is ready once pod networking (addons.cni) runs on it",
                );
            }
        }
        if observed.is_late(&node.name) && !observed.running.contains(&Task::Clock(node.name.clone())) {
            work.act(Action::Start(Task::Clock(node.name.clone())));
        }
    }
}

/// A control plane that is lost while another one's etcd still learns takes the majority with it: all have to vote first. They
/// are asked once their nodes are ready, which comes late: by then the question is mostly answered at once.
fn vote(observed: &Observed, node: &WantedNode, work: &mut Work) {
    let due = node.role == MachineRole::ControlPlane && observed.node_ready(&node.name);
    if due && !observed.voters.contains(&node.name) {
        let what = format!("etcd on {} to vote", node.name);
        let Lack { reason, remedy } = ETCD_LEARNS;
        work.run(observed, Task::Vote(node.name.clone()), reason, what, remedy);
    }
}

fn clock_wrong(observed: &Observed, name: &str, work: &mut Work) {
    let why = observed.clocks.get(name).cloned().unwrap_or_default();
    work.wait("ClockSkew", format!("the clock of {name} to be right: {why}"), CLOCKS);
}

fn absent(observed: &Observed, addon: &crate::addons::PlannedAddon, work: &mut Work) {
    let met = |need: &&'static str| {
        let planned = observed.planned().any(|known| known.name == *need);
        !planned || observed.addon(need) == Some(&AddonState::Ready)
    };
    if !addon.needs.iter().all(met) {
        return;
    }
    let recent = observed
        .installed
        .get(addon.name)
        .is_some_and(|at| crate::runtime::until(*at, observed.now) < SETTLING);
    let what = format!("the addon {} to be installed", addon.name);
    if recent {
        work.wait("AddonNotInstalled", what, "look at the new cluster");
        return;
    }
    work.run(
        observed,
        Task::Install(addon.name.to_owned()),
        "AddonNotInstalled",
        what,
        "look at the new cluster",
    );
}

/// What the spec asks for and is left alone, since the cluster is there already.
pub(crate) fn refused(observed: &Observed) -> Option<String> {
    let mut differs: Vec<String> = Vec::new();
    if let (Some(stored), Ok(provided)) = (&observed.stored, &observed.provided)
        && observed.etcd_made()
        && stored.intent != super::configs::intent_of(&observed.object.spec, &provided.config.spec)
    {
        differs.push(
            "cluster, network, talos, addons.cni.type, addons.storage.type or the ProviderConfig's network"
                .to_owned(),
        );
    }
    for node in observed.wanted() {
        let Some(machine) = observed.machines.get(&node.name) else { continue };
        let wanted = observed.machine_request(node);
        if wanted.spec != machine.spec && (differs.is_empty() || !observed.etcd_made()) {
            differs.push(format!("the machine {}, which was made by another spec", node.name));
        }
    }
    (!differs.is_empty()).then(|| differs.join("; "))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
