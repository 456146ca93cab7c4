//! Questions about what was observed, that plan and status both ask. Pure.

use super::configs::{fingerprint, intent_of};
use super::memory::Task;
use super::milestone::Milestone;
use super::observe::{ImageSight, Observed, up};
use super::wanted::{self, WantedNode};
use crate::Failure;
use crate::addons::{AddonState, PlannedAddon};
use butler_api::{
    CONDITION_PROGRESSING, Condition, ConfigDelivery, ControlPlaneHaType, MachinePhase, MachineRequest,
    MachineRole, find_condition,
};
use jiff::Timestamp;
use kube::ResourceExt;
use std::net::IpAddr;
use std::time::Duration;

/// So long after the API answered, nodes have joined unless something is wrong with them.
const LATE: Duration = Duration::from_secs(60);

impl Observed {
    pub(crate) fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|known| known == butler_api::names::FINALIZER_CLUSTER_BOOTSTRAP)
    }

    pub(crate) fn wanted(&self) -> &[WantedNode] {
        self.nodes.as_deref().unwrap_or_default()
    }

    pub(crate) fn control_planes(&self) -> impl Iterator<Item = &WantedNode> {
        self.wanted().iter().filter(|node| node.role == MachineRole::ControlPlane)
    }

    /// The machine that etcd is made on: as written down, else the first control plane by name.
    pub(crate) fn first(&self) -> Option<String> {
        let written = self.object.status.as_ref().and_then(|status| status.bootstrap_machine.clone());
        written.or_else(|| self.control_planes().map(|node| node.name.clone()).min())
    }

    fn conditions(&self) -> &[Condition] {
        self.object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    /// Whether a condition was reported as true.
    pub(crate) fn told(&self, type_: &str) -> bool {
        find_condition(self.conditions(), type_).is_some_and(Condition::is_true)
    }

    /// The virtual address that our control planes are going to take, as long as none of them can have taken it: before the
    /// first config is applied, whoever answers there is somebody else.
    pub(crate) fn address_to_claim(&self) -> Option<IpAddr> {
        let ours = matches!(
            self.object.spec.effective_control_plane_ha(),
            ControlPlaneHaType::KubeVip | ControlPlaneHaType::TalosVip
        );
        let applied = self.stored.as_ref().is_some_and(|stored| !stored.applied.is_empty());
        let handed = self.object.spec.talos.config_delivery == ConfigDelivery::UserData;
        if !ours || applied || self.etcd_made() || (handed && !self.machines.is_empty()) {
            return None;
        }
        self.object.spec.network.vip.as_ref()?.parse().ok()
    }

    /// Whether configs that name the virtual address may be handed out.
    pub(crate) fn address_is_free(&self) -> bool {
        self.address_to_claim()
            .is_none_or(|address| self.free_address.as_deref() == Some(&address.to_string()))
    }

    /// What a machine has to have taken: its MachineRequest and its config.
    pub(crate) fn mark(&self, machine: &str) -> Option<String> {
        let uid = self.machines.get(machine)?.uid()?;
        let config = self.stored.as_ref()?.configs.get(machine)?;
        Some(format!("{uid}:{}", fingerprint(config.expose())))
    }

    /// Whether a machine has taken the config that is stored for it.
    pub(crate) fn configured(&self, machine: &str) -> bool {
        let applied = self.stored.as_ref().and_then(|stored| stored.applied.get(machine));
        applied.is_some() && applied == self.mark(machine).as_ref()
    }

    /// Whether the stored configs are what the spec asks for.
    pub(crate) fn configs_current(&self) -> bool {
        let (Some(Ok(rendered)), Some(stored)) = (&self.rendered, &self.stored) else { return false };
        rendered.configs == stored.configs && stored.talosconfig.is_some()
    }

    /// Whether a machine that has replaced another is to get another config than that one: its address is in it.
    pub(crate) fn outdated(&self, machine: &str) -> bool {
        let (Some(Ok(rendered)), Some(stored), Ok(provided)) = (&self.rendered, &self.stored, &self.provided)
        else {
            return false;
        };
        // A spec that was changed since is not for a cluster that is there.
        self.etcd_made()
            && !self.configured(machine)
            && stored.intent == intent_of(&self.object.spec, &provided.config.spec)
            && rendered.configs.get(machine).is_some_and(|new| stored.configs.get(machine) != Some(new))
    }

    /// Whether etcd was made: from then on the cluster's shape is fixed.
    pub(crate) fn etcd_made(&self) -> bool {
        self.etcd_up || self.reached.is_some() || self.told(Milestone::Etcd.condition())
    }

    /// Whether a child's failure was seen in this life of ours.
    pub(crate) fn stopped(&self, child: &impl ResourceExt) -> bool {
        child.uid().is_some_and(|uid| self.stopped.contains(&uid))
    }

    /// Whether etcd may have been asked for: written down before the first time. Until then no machine holds anything that
    /// another one could not.
    pub(crate) fn etcd_may_be(&self) -> bool {
        let written = self.object.status.as_ref().is_some_and(|status| status.bootstrap_machine.is_some());
        written || self.bootstrapped || self.etcd_made()
    }

    /// Whether a milestone is reached; `None` when that is not known in this life yet.
    pub(crate) fn reached(&self, milestone: Milestone) -> Option<bool> {
        match milestone {
            Milestone::Image => Some(
                matches!(self.image, ImageSight::Skipped(_) | ImageSight::Ready { .. }) || self.etcd_made(),
            ),
            Milestone::Machines => Some(
                !self.wanted().is_empty()
                    && self.wanted().iter().all(|node| self.machine_up(&node.name))
                    && self.balancer_there(),
            ),
            Milestone::Talos => Some(
                !self.wanted().is_empty() && self.wanted().iter().all(|node| self.configured(&node.name)),
            ),
            Milestone::Etcd => Some(self.etcd_made()),
            Milestone::Kubernetes if self.reached.is_some() => Some(true),
            Milestone::Kubernetes if self.troubles.contains_key(&Task::Reach) => Some(false),
            Milestone::Kubernetes => self.etcd_made().then_some(()).map_or(Some(false), |()| None),
            // The last one: addons and nodes, the endpoint, and etcd on every control plane.
            Milestone::Addons if !self.etcd_made() => Some(false),
            Milestone::Addons => self.survey.as_ref().and_then(|_| self.complete()),
        }
    }

    /// As last known: what is not known in this life is as it was told.
    pub(crate) fn holds(&self, milestone: Milestone) -> bool {
        self.reached(milestone).unwrap_or_else(|| self.told(milestone.condition()))
    }

    /// The milestone that is worked for; `None` when all are reached.
    pub(crate) fn milestone(&self) -> Option<Milestone> {
        Milestone::ALL.into_iter().find(|milestone| !self.holds(*milestone))
    }

    fn machine_up(&self, name: &str) -> bool {
        self.machines
            .get(name)
            .is_some_and(|machine| up(machine) && phase(machine) != Some(MachinePhase::Failed))
    }

    /// Addons that are to be there.
    pub(crate) fn planned(&self) -> impl Iterator<Item = &PlannedAddon> {
        self.addons.iter().filter(|addon| addon.skipped.is_none())
    }

    pub(crate) fn addon(&self, name: &str) -> Option<&AddonState> {
        self.survey.as_ref()?.addons.get(name)
    }

    /// Whether addons, nodes, endpoint and etcd are all as they should be; `None` while all that is missing is a look at etcd.
    fn complete(&self) -> Option<bool> {
        let seen = self.planned().all(|addon| self.addon(addon.name) == Some(&AddonState::Ready))
            && self.wanted().iter().all(|node| self.node_ready(&node.name))
            && self.endpoint_answers
            && (!self.balancer.needed || (self.balancer.ready() && self.balancer.complete()));
        let mut silent = self.control_planes().filter(|node| !self.voters.contains(&node.name)).peekable();
        if !seen || silent.peek().is_none() {
            return Some(seen);
        }
        silent.any(|node| self.troubles.contains_key(&Task::Vote(node.name.clone()))).then_some(false)
    }

    pub(crate) fn node_ready(&self, name: &str) -> bool {
        self.survey.as_ref().and_then(|survey| survey.nodes.get(name)).is_some_and(|node| node.ready)
    }

    /// Whether a node that is still not ready is worth a closer look.
    pub(crate) fn is_late(&self, name: &str) -> bool {
        let patience = LATE.min(self.deadlines.addons / 2);
        let began = self.began(Milestone::Addons);
        !self.node_ready(name) && crate::runtime::until(began, self.now) >= patience
    }

    /// When work for a milestone began: the one before it was reached, it was lost again, or work began again after a pause
    /// or a failure.
    pub(crate) fn began(&self, milestone: Milestone) -> Timestamp {
        let created = self.object.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or(self.now);
        let Some(status) = &self.object.status else { return created };
        // A changed spec gets its own time: what was told is about the one before.
        if status.observed_generation.is_some()
            && status.observed_generation != self.object.metadata.generation
        {
            return self.now;
        }
        let index = Milestone::ALL.iter().position(|known| *known == milestone).unwrap_or_default();
        let before = Milestone::ALL.get(..index).unwrap_or_default();
        // One before it is reached just now, or it was lost just now: neither was told yet.
        if before.iter().any(|milestone| !self.told(milestone.condition()))
            || self.told(milestone.condition())
        {
            return self.now;
        }
        let own = find_condition(&status.conditions, milestone.condition());
        let times = before
            .iter()
            .map(|milestone| milestone.condition())
            .chain([CONDITION_PROGRESSING])
            .filter_map(|type_| find_condition(&status.conditions, type_))
            .filter(|condition| condition.is_true())
            .chain(own)
            .map(|condition| condition.last_transition_time.0);
        // Time that nobody was there to use does not count.
        times.fold(created, Timestamp::max).max(self.since)
    }

    /// When the milestone that is worked for becomes a failure.
    pub(crate) fn deadline(&self) -> Timestamp {
        let Some(milestone) = self.milestone() else { return Timestamp::MAX };
        self.began(milestone).checked_add(milestone.limit(&self.deadlines)).unwrap_or(Timestamp::MAX)
    }

    /// An obstacle that stands until something changes, also while it is being tried again.
    pub(crate) fn standing(&self) -> Option<&Failure> {
        self.troubles.values().map(|trouble| &trouble.failure).find(|failure| failure.class.stops())
    }

    /// The MachineRequest that a node asks for. An image that is not known now is as it was.
    pub(crate) fn machine_request(&self, node: &WantedNode) -> MachineRequest {
        let there = self.machines.get(&node.name);
        let image = match &self.image {
            ImageSight::Ready { reference, .. } if !self.etcd_made() => Some(reference.as_str()),
            _ => there.and_then(|machine| machine.spec.image.as_deref()),
        };
        let handed = self.object.spec.talos.config_delivery == ConfigDelivery::UserData;
        let data = match &self.rendered {
            Some(Ok(rendered)) if handed && !self.etcd_made() => {
                rendered.configs.get(&node.name).map(|config| config.expose().to_owned())
            }
            _ => there.and_then(|machine| machine.spec.user_data.clone()),
        };
        let mut request = wanted::machine_request(&self.object, node, image, data);
        let holds = self.finalizers(node);
        request.metadata.finalizers = (!holds.is_empty()).then_some(holds);
        request
    }

    /// The host that a machine is reached at.
    pub(crate) fn address(&self, machine: &str) -> Option<String> {
        self.machines.get(machine)?.status.as_ref()?.ip_address.clone()
    }
}

/// Where a MachineRequest says that its machine is.
pub(crate) fn phase(machine: &MachineRequest) -> Option<MachinePhase> {
    machine.status.as_ref().and_then(|status| status.phase)
}
