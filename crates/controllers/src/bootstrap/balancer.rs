//! The load balancer in front of a cloud's control plane: whether there is to be one, what it is to send to, and what is
//! missing of it. Pure.
//!
//! It is asked for beside the machines, and gets each of them when that has its address: by the time that configs are made,
//! its endpoint is usually known, although nothing may answer there yet. A machine that goes is first taken out of it.

use super::observe::{Observed, up};
use super::plan::{Action, Work, obstacle};
use super::wanted::{WantedNode, meta};
use crate::loadbalancer::{DRAINING, was_ready};
use crate::machine::VANISHED;
use crate::report::split_remedy;
use crate::{Class, Failure, Profile};
use butler_api::names::{
    FINALIZER_LOAD_BALANCER_TARGET, LABEL_CLUSTER, LABEL_CLUSTER_BOOTSTRAP, LABEL_MANAGED_BY, MANAGED_BY,
    label_value, load_balancer_name,
};
use butler_api::{
    CONDITION_TARGETS_SYNCED, ClusterBootstrap, ClusterBootstrapSpec, Condition, LoadBalancerPhase,
    LoadBalancerRequest, LoadBalancerRequestSpec, LoadBalancerTarget, MachineRequest, MachineRole, Topology,
    find_condition,
};
use butler_talos::API_PORT;
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// What there is of a load balancer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BalancerSight {
    /// Whether there is to be one.
    pub(crate) needed: bool,
    /// The LoadBalancerRequest of this ClusterBootstrap, needed or not.
    pub(crate) own: Option<Box<LoadBalancerRequest>>,
    /// There is one of that name, and it is somebody else's.
    pub(crate) foreign: bool,
}

/// What to look at when a load balancer does not come.
const LOOK: &str = "look at its LoadBalancerRequest and at the infrastructure";

/// A control plane of a cloud has one, unless the user has named an endpoint or there is nothing to balance.
pub(crate) fn needed(spec: &ClusterBootstrapSpec, profile: &Profile) -> bool {
    let given = spec.network.vip.as_ref().is_some_and(|vip| !vip.is_empty());
    !profile.on_prem && !given && spec.cluster.topology == Topology::Ha
}

/// The LoadBalancerRequest that a ClusterBootstrap is going to make, without targets. `None`: it needs none.
pub fn planned_load_balancer(cb: &ClusterBootstrap, profile: &Profile) -> Option<LoadBalancerRequest> {
    needed(&cb.spec, profile).then(|| request(cb, Vec::new()))
}

impl BalancerSight {
    /// Whether all parts of it were there once: from then on what goes missing comes back.
    pub(crate) fn ready(&self) -> bool {
        self.own.as_ref().and_then(|own| own.status.as_ref()).is_some_and(was_ready)
    }

    /// Where the control plane is going to be reached: known before anything answers there.
    pub(crate) fn endpoint(&self) -> Option<String> {
        let status = self.own.as_ref().filter(|_| self.needed)?.status.as_ref()?;
        status.endpoint.clone().filter(|host| !host.is_empty())
    }

    /// What it said about its targets, whichever spec that is about.
    fn told(&self) -> Option<&Condition> {
        let status = self.own.as_ref()?.status.as_ref()?;
        find_condition(&status.conditions, CONDITION_TARGETS_SYNCED)
    }

    /// What it said about the targets that it is to have now.
    fn targets(&self) -> Option<&Condition> {
        let generation = self.own.as_ref()?.metadata.generation;
        self.told().filter(|told| told.observed_generation == generation)
    }

    /// Whether it sends to all that it is to send to.
    pub(crate) fn complete(&self) -> bool {
        self.targets().is_some_and(|told| told.is_true() || told.reason == DRAINING)
    }

    /// Whether nothing of a former target is left in it either. One that never got as far as targets has none.
    fn drained(&self) -> bool {
        self.told().is_none() || self.targets().is_some_and(Condition::is_true)
    }
}

impl Observed {
    /// Whether machines of a role are behind the load balancer.
    fn balanced(&self, role: MachineRole) -> bool {
        let settings = self.object.spec.control_plane_load_balancer.as_ref();
        let further = settings.map(|settings| settings.listeners.as_slice()).unwrap_or_default();
        role == MachineRole::ControlPlane || further.iter().any(|listener| listener.role == role)
    }

    /// Finalizers that a new MachineRequest gets from us.
    pub(crate) fn finalizers(&self, node: &WantedNode) -> Vec<String> {
        let held = self.balancer.needed && self.balanced(node.role);
        held.then(|| FINALIZER_LOAD_BALANCER_TARGET.to_owned()).into_iter().collect()
    }

    /// All machines that are to be behind the load balancer now: those that have an address and are not about to go.
    fn targets(&self) -> Vec<LoadBalancerTarget> {
        let nodes = self.wanted().iter().filter(|node| self.balanced(node.role));
        nodes.filter_map(|node| target(node, self.machines.get(&node.name)?)).collect()
    }

    /// The LoadBalancerRequest that is wanted.
    pub(crate) fn load_balancer_request(&self) -> LoadBalancerRequest {
        request(&self.object, self.targets())
    }

    /// Whether the load balancer is as far as machine configs need it.
    pub(crate) fn balancer_there(&self) -> bool {
        !self.balancer.needed || self.endpoint.is_some()
    }

    /// The endpoint that the load balancer has now, when the cluster was made with another one.
    pub(crate) fn endpoint_moved(&self) -> Option<String> {
        let now = self.balancer.endpoint()?;
        self.endpoint.as_ref().is_some_and(|published| *published != now).then_some(now)
    }

    /// Machines that are about to go and that no load balancer knows any more.
    fn released(&self) -> impl Iterator<Item = &MachineRequest> {
        let held = |machine: &&MachineRequest| {
            machine.metadata.deletion_timestamp.is_some()
                && machine.finalizers().iter().any(|known| known == FINALIZER_LOAD_BALANCER_TARGET)
        };
        self.machines.values().filter(held).filter(|machine| match &self.balancer.own {
            // One that goes itself sends to nobody.
            None => true,
            Some(own) if own.metadata.deletion_timestamp.is_some() => true,
            Some(own) => {
                let address = address(machine);
                let listed = own.spec.targets.iter().any(|target| Some(&target.ip) == address.as_ref());
                // Without an address it never was a target.
                !listed && (address.is_none() || self.balancer.drained())
            }
        })
    }
}

/// The address by which machines of the same network reach a machine.
fn address(machine: &MachineRequest) -> Option<String> {
    let status = machine.status.as_ref()?;
    status.ip_addresses.first().or(status.ip_address.as_ref()).cloned()
}

fn target(node: &WantedNode, machine: &MachineRequest) -> Option<LoadBalancerTarget> {
    let status = machine.status.as_ref()?;
    let vanished = status.failure_reason.as_deref() == Some(VANISHED);
    if !up(machine) || machine.metadata.deletion_timestamp.is_some() || vanished {
        return None;
    }
    // A provider id ends in what the infrastructure itself calls the machine.
    let id = status.provider_id.as_deref().and_then(|id| id.rsplit('/').next()).filter(|id| !id.is_empty());
    Some(LoadBalancerTarget {
        ip: address(machine)?,
        instance_id: id.map(str::to_owned),
        instance_name: Some(machine.spec.machine_name.clone()),
        role: (node.role != MachineRole::ControlPlane).then_some(node.role),
    })
}

/// The LoadBalancerRequest of a cluster.
fn request(cb: &ClusterBootstrap, targets: Vec<LoadBalancerTarget>) -> LoadBalancerRequest {
    let cluster = &cb.spec.cluster.name;
    let settings = cb.spec.control_plane_load_balancer.clone().unwrap_or_default();
    let mut reference = cb.spec.provider_ref.clone();
    reference.namespace = reference.namespace.or_else(|| cb.namespace());
    let spec = LoadBalancerRequestSpec {
        cluster_name: cluster.clone(),
        provider_config_ref: reference,
        port: API_PORT.into(),
        health_check_port: None,
        targets,
        listeners: settings.listeners,
        options: settings.options,
    };
    let labels = [
        (LABEL_CLUSTER_BOOTSTRAP.to_owned(), label_value(&cb.name_any())),
        (LABEL_CLUSTER.to_owned(), label_value(cluster)),
        (LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned()),
    ];
    let name = load_balancer_name(cluster);
    let mut request = LoadBalancerRequest::new(&name, spec);
    request.metadata = ObjectMeta { labels: Some(labels.into()), ..meta(cb, &name) };
    request
}

/// Asks for it, keeps its targets up to date, lets go of machines that it has drained.
pub(crate) fn track(observed: &Observed, work: &mut Work) {
    for machine in observed.released() {
        work.act(Action::ReleaseMachine(machine.name_any()));
    }
    let sight = &observed.balancer;
    match &sight.own {
        _ if sight.needed && sight.foreign => work.stop(Failure::new(
            Class::Conflict,
            "LoadBalancerRequestNotOurs",
            format!(
                "there is a LoadBalancerRequest {} that belongs to nobody here",
                load_balancer_name(&observed.object.spec.cluster.name)
            ),
            "give the cluster another name, or remove that LoadBalancerRequest",
        )),
        None if sight.needed => work.act(Action::CreateBalancer),
        None => {}
        Some(own) if own.metadata.deletion_timestamp.is_some() => leaving(observed, own, work),
        // The user has named an endpoint meanwhile. A cluster that is there keeps what it was made with.
        Some(_) if !sight.needed && !observed.etcd_may_be() => work.act(Action::DeleteBalancer),
        Some(_) if !sight.needed => {}
        Some(own) => there(observed, own, work),
    }
}

fn there(observed: &Observed, own: &LoadBalancerRequest, work: &mut Work) {
    let name = own.name_any();
    if observed.load_balancer_request().spec != own.spec {
        work.act(Action::UpdateBalancer);
        return;
    }
    let status = own.status.clone().unwrap_or_default();
    if status.phase == Some(LoadBalancerPhase::Failed) && observed.stopped(own) {
        work.stop(told_failure(own));
        return;
    }
    let (reason, why, remedy) = obstacle(&status.conditions, "LoadBalancerNotReady");
    let remedy = if remedy.is_empty() { LOOK.to_owned() } else { remedy };
    if observed.balancer.endpoint().is_none() {
        work.wait(reason, format!("the load balancer {name} to have an endpoint{why}"), remedy);
    } else if !observed.balancer.ready() {
        work.wait(reason, format!("the load balancer {name} to be ready{why}"), remedy);
    } else if !observed.balancer.complete() {
        let why = observed.balancer.told().map(|told| format!(": {}", told.message)).unwrap_or_default();
        work.wait(
            "LoadBalancerTargets",
            format!("the load balancer {name} to have all its targets{why}"),
            remedy,
        );
    }
}

/// Asks for it to go, and waits until it has. `true` when there is none any more.
pub(crate) fn removed(observed: &Observed, work: &mut Work) -> bool {
    for machine in observed.released() {
        work.act(Action::ReleaseMachine(machine.name_any()));
    }
    match &observed.balancer.own {
        None => return true,
        Some(own) if own.metadata.deletion_timestamp.is_some() => leaving(observed, own, work),
        Some(_) => work.act(Action::DeleteBalancer),
    }
    false
}

/// What it says of its own failure.
fn told_failure(own: &LoadBalancerRequest) -> Failure {
    let status = own.status.clone().unwrap_or_default();
    let (message, remedy) = split_remedy(status.failure_message.as_deref().unwrap_or_default());
    let reason = status.failure_reason.as_deref().unwrap_or("LoadBalancerFailed");
    let message = format!("the load balancer {}: {message}", own.name_any());
    Failure::new(Class::Terminal, reason, message, remedy)
}

/// Waits until it is gone. What does not get better by waiting, such as a protection against deletion, is said at once.
fn leaving(observed: &Observed, own: &LoadBalancerRequest, work: &mut Work) {
    let status = own.status.clone().unwrap_or_default();
    if status.failure_reason.is_some() && observed.stopped(own) {
        work.stop(told_failure(own));
        return;
    }
    let (reason, why, remedy) = obstacle(&status.conditions, "LoadBalancerLeaving");
    let remedy = if remedy.is_empty() { LOOK.to_owned() } else { remedy };
    work.wait(reason, format!("the load balancer {} to be gone{why}", own.name_any()), remedy);
}

#[cfg(test)]
#[path = "balancer_tests.rs"]
mod tests;
