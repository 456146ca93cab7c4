//! From what the API shows to turns that are worth telling. Pure.

use super::obstacle;
use butler_api::{
    ClusterBootstrap, ClusterBootstrapPhase, ClusterBootstrapStatus, LoadBalancerPhase, LoadBalancerRequest,
    MachinePhase, MachineRequest, MachineRole,
};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is followed, as it is now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) bootstrap: Option<ClusterBootstrap>,
    pub(crate) machines: BTreeMap<String, MachineRequest>,
    pub(crate) balancers: BTreeMap<String, LoadBalancerRequest>,
    /// Warnings that the controllers have told since this command began, by the event's name.
    pub(crate) warnings: BTreeMap<String, Warning>,
    /// Whether the ClusterBootstrap was looked for.
    pub(crate) listed: bool,
    /// A list is under way, and it has not shown the ClusterBootstrap yet.
    pub(crate) relisting: bool,
}

/// Something that is worth telling. The JSON form is documented in docs/bootstrap.md.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Turn {
    /// A command begins.
    Start { cluster: String, provider: String, control_planes: u32, workers: u32, simulated: bool },
    /// The bootstrap is in another phase.
    Phase { phase: String },
    /// A machine has changed.
    Machine(Machine),
    /// The load balancer in front of the control plane has changed.
    LoadBalancer(Balancer),
    /// An addon is installed.
    Addon { addon: String, installed: usize, total: usize },
    /// Addons that were installed before this command began.
    AddonsKnown { installed: usize, total: usize },
    /// Something outside is waited for.
    Wait {
        reason: String,
        message: String,
        /// When waiting becomes a failure.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The infrastructure was looked at, and this is not as it should be.
    Check { check: String, verdict: String, detail: String, remedy: String },
    /// A warning of the controllers that nothing else here tells.
    Warning(Warning),
    /// It does not go on like this.
    Failure { reason: String, message: String, remedy: String },
    /// It is finished.
    Done {
        cluster: String,
        endpoint: String,
        kubeconfig: String,
        talosconfig: String,
        console: Option<String>,
    },
    /// It was given up by the user or by the time limit; everything is kept.
    Stopped {
        why: String,
        /// What was in the way, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
        next: String,
    },
    /// Everything of a cluster is gone.
    Gone { cluster: String },
}

/// A warning about an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Warning {
    pub(crate) object: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A machine, as far as people care.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) role: MachineRole,
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) configured: bool,
    pub(crate) ready: bool,
    /// Why it is not further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
}

/// A load balancer, as far as people care.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Balancer {
    pub(crate) name: String,
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    /// Targets that it is to have, that it has, and that pass the checks of its first port.
    pub(crate) targets: usize,
    pub(crate) registered: i32,
    pub(crate) healthy: i32,
    /// Why it is not further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
}

/// What has been told already.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// A cluster is taken down: the phases of its making and addons say nothing then.
    deleting: bool,
    /// Something was told already.
    begun: bool,
    phase: Option<String>,
    machines: BTreeMap<String, Machine>,
    balancers: BTreeMap<String, Balancer>,
    addons: BTreeMap<String, bool>,
    wait: Option<(String, Option<Timestamp>)>,
    /// Waits of this phase that were told, and how often: one that comes back says nothing new.
    told_waits: BTreeMap<String, u8>,
    /// The one that was told last.
    last_wait: Option<String>,
    failure: Option<(String, String)>,
    told_warnings: BTreeSet<String>,
}

impl Progress {
    /// Of a cluster that is taken down.
    pub(crate) fn take_down() -> Progress {
        Progress { deleting: true, ..Progress::default() }
    }

    /// What has changed, in the order in which people should read it.
    pub(crate) fn turns(&mut self, snapshot: &Snapshot) -> Vec<Turn> {
        let mut turns = Vec::new();
        let status =
            snapshot.bootstrap.as_ref().and_then(|bootstrap| bootstrap.status.clone()).unwrap_or_default();
        self.phase(&status, &mut turns);
        self.machines(&status, snapshot, &mut turns);
        self.balancers(snapshot, &mut turns);
        if !self.deleting {
            self.addons(&status, &mut turns);
        }
        self.wait(&status, &mut turns);
        self.failure(&status, &mut turns);
        self.warnings(snapshot, &mut turns);
        self.begun |= snapshot.bootstrap.is_some();
        turns
    }

    fn phase(&mut self, status: &ClusterBootstrapStatus, turns: &mut Vec<Turn>) {
        let told = if self.deleting { Some(DELETING) } else { status.phase.map(phase_name) };
        let Some(phase) = told.map(ToOwned::to_owned) else { return };
        if self.phase.as_ref() != Some(&phase) {
            self.phase = Some(phase.clone());
            self.told_waits.clear();
            self.last_wait = None;
            turns.push(Turn::Phase { phase });
        }
    }

    fn machines(&mut self, status: &ClusterBootstrapStatus, snapshot: &Snapshot, turns: &mut Vec<Turn>) {
        for (name, request) in &snapshot.machines {
            let machine = machine(name, request, status);
            if self.machines.get(name) != Some(&machine) {
                self.machines.insert(name.clone(), machine.clone());
                turns.push(Turn::Machine(machine));
            }
        }
        let gone: Vec<String> =
            self.machines.keys().filter(|name| !snapshot.machines.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(mut machine) = self.machines.remove(&name) {
                machine.phase = "Deleted".to_owned();
                (machine.configured, machine.ready, machine.trouble) = (false, false, None);
                turns.push(Turn::Machine(machine));
            }
        }
    }

    fn balancers(&mut self, snapshot: &Snapshot, turns: &mut Vec<Turn>) {
        for (name, request) in &snapshot.balancers {
            let balancer = balancer(name, request);
            if self.balancers.get(name) != Some(&balancer) {
                self.balancers.insert(name.clone(), balancer.clone());
                turns.push(Turn::LoadBalancer(balancer));
            }
        }
        let gone: Vec<String> =
            self.balancers.keys().filter(|name| !snapshot.balancers.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(mut balancer) = self.balancers.remove(&name) {
                balancer.phase = "Deleted".to_owned();
                (balancer.targets, balancer.registered, balancer.healthy) = (0, 0, 0);
                (balancer.endpoint, balancer.trouble) = (None, None);
                turns.push(Turn::LoadBalancer(balancer));
            }
        }
    }

    fn addons(&mut self, status: &ClusterBootstrapStatus, turns: &mut Vec<Turn>) {
        let total = status.addons_installed.len();
        let installed = status.addons_installed.values().filter(|done| **done).count();
        if !self.begun && installed > 0 {
            turns.push(Turn::AddonsKnown { installed, total });
            self.addons = status.addons_installed.clone();
            return;
        }
        for (addon, done) in &status.addons_installed {
            if *done && self.addons.get(addon) != Some(&true) {
                turns.push(Turn::Addon { addon: addon.clone(), installed, total });
            }
        }
        self.addons = status.addons_installed.clone();
    }

    fn wait(&mut self, status: &ClusterBootstrapStatus, turns: &mut Vec<Turn>) {
        let wait = obstacle::wait(&status.conditions);
        // Machines and addons tell their own details; a new line is due when something new is first in the list, or when the
        // last line is not true any more: nobody is to believe that what is there is still waited for.
        if let Some((reason, message, until)) = wait.clone() {
            let head = headline(&message).to_owned();
            let over = self.last_wait.as_ref().is_some_and(|last| !message.contains(awaited(last)));
            let times = self.told_waits.entry(head.clone()).or_default();
            if *times == 0 || (over && *times < TELLINGS) {
                *times += 1;
                self.last_wait = Some(head);
                turns.push(Turn::Wait { reason, message, until });
            }
        }
        self.wait = wait.map(|(_, message, until)| (message, until));
    }

    fn failure(&mut self, status: &ClusterBootstrapStatus, turns: &mut Vec<Turn>) {
        let failure = status
            .failure_reason
            .clone()
            .map(|reason| (reason, status.failure_message.clone().unwrap_or_default()));
        if failure != self.failure {
            if let Some((reason, message)) = failure.clone() {
                let remedy = status.failure_remedy.clone().unwrap_or_default();
                turns.push(Turn::Failure { reason, message, remedy });
            }
            self.failure = failure;
        }
    }

    fn warnings(&mut self, snapshot: &Snapshot, turns: &mut Vec<Turn>) {
        for (name, warning) in &snapshot.warnings {
            // A failure of the whole was told with its remedy.
            let whole = self.failure.as_ref().is_some_and(|(reason, _)| *reason == warning.reason);
            // So was a load balancer's own.
            let troubles = self.balancers.values().filter_map(|balancer| balancer.trouble.as_ref());
            let told = whole || troubles.into_iter().any(|trouble| trouble.starts_with(&warning.reason));
            if self.told_warnings.insert(name.clone()) && !told {
                turns.push(Turn::Warning(warning.clone()));
            }
        }
    }

    pub(super) fn current_phase(&self) -> &str {
        let first = if self.deleting { DELETING } else { "Starting" };
        self.phase.as_deref().unwrap_or(first)
    }

    /// Machines that are up, configured and joined, of how many.
    pub(super) fn machine_counts(&self) -> (usize, usize, usize, usize) {
        let count =
            |test: fn(&Machine) -> bool| self.machines.values().filter(|machine| test(machine)).count();
        let up = count(|machine| machine.phase == "Running");
        (up, count(|machine| machine.configured), count(|machine| machine.ready), self.machines.len())
    }

    /// Addons that are installed, of how many.
    pub(super) fn addon_counts(&self) -> (usize, usize) {
        (self.addons.values().filter(|done| **done).count(), self.addons.len())
    }

    pub(super) fn waiting(&self) -> Option<String> {
        let (message, until) = self.wait.as_ref()?;
        Some(format!("{}{}", summary(message), obstacle::left(*until, Timestamp::now())))
    }
}

/// So often the same wait is told in a phase.
const TELLINGS: u8 = 2;

/// What is waited for, in the words of a headline.
fn awaited(headline: &str) -> &str {
    headline.strip_prefix("waiting for ").unwrap_or(headline)
}

/// The first of the things that are waited for, without its details.
fn headline(message: &str) -> &str {
    let first = message.split("; ").next().unwrap_or(message);
    first.split_once(": ").map_or(first, |(head, _)| head)
}

/// The first thing that is waited for, and how many more there are.
pub(super) fn summary(message: &str) -> String {
    let parts: Vec<&str> = message.split("; ").collect();
    match parts.len() {
        0 | 1 => message.to_owned(),
        more => format!("{} (and {} more)", headline(message), more - 1),
    }
}

fn machine(name: &str, request: &MachineRequest, status: &ClusterBootstrapStatus) -> Machine {
    let of_machine = request.status.clone().unwrap_or_default();
    let of_cluster = status.machines.iter().find(|machine| machine.name == name);
    let phase = of_machine.phase.unwrap_or(MachinePhase::Pending);
    Machine {
        name: name.to_owned(),
        role: request.spec.role,
        phase: format!("{phase:?}"),
        address: of_machine.ip_address.filter(|address| !address.is_empty()),
        configured: of_cluster.is_some_and(|machine| machine.talos_configured),
        ready: of_cluster.is_some_and(|machine| machine.ready),
        trouble: trouble(of_machine.failure_reason, of_machine.failure_message),
    }
}

fn balancer(name: &str, request: &LoadBalancerRequest) -> Balancer {
    let status = request.status.clone().unwrap_or_default();
    let first = status.listeners.iter().find(|listener| listener.port == request.spec.port);
    Balancer {
        name: name.to_owned(),
        phase: format!("{:?}", status.phase.unwrap_or(LoadBalancerPhase::Pending)),
        endpoint: status.endpoint.filter(|endpoint| !endpoint.is_empty()),
        targets: request.spec.targets.len(),
        registered: status.registered_targets.unwrap_or(0),
        healthy: first.map_or(0, |listener| listener.healthy),
        trouble: trouble(status.failure_reason, status.failure_message),
    }
}

fn trouble(reason: Option<String>, message: Option<String>) -> Option<String> {
    reason.map(|reason| match message.unwrap_or_default() {
        message if message.is_empty() => reason,
        message => format!("{reason}: {message}"),
    })
}

/// What is told in place of a phase while a cluster is taken down.
pub(crate) const DELETING: &str = "Deleting";

/// A phase as the API spells it.
pub(crate) fn phase_name(phase: ClusterBootstrapPhase) -> &'static str {
    match phase {
        ClusterBootstrapPhase::Pending => "Pending",
        ClusterBootstrapPhase::ProvisioningMachines => "ProvisioningMachines",
        ClusterBootstrapPhase::ConfiguringTalos => "ConfiguringTalos",
        ClusterBootstrapPhase::BootstrappingCluster => "BootstrappingCluster",
        ClusterBootstrapPhase::InstallingAddons => "InstallingAddons",
        ClusterBootstrapPhase::Pivoting => "Pivoting",
        ClusterBootstrapPhase::Ready => "Ready",
        ClusterBootstrapPhase::Failed => "Failed",
    }
}
