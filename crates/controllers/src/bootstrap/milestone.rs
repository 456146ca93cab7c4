//! The milestones of a bootstrap, in order: how each is called, what phase leads to it, and how long it may take. Pure.

use crate::Deadlines;
use butler_api::{CONDITION_ADDONS_INSTALLED, ClusterBootstrapPhase as Phase};
use std::time::Duration;

/// A point on the way that is reported as a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Milestone {
    Image,
    Machines,
    Talos,
    Etcd,
    Kubernetes,
    Addons,
}

impl Milestone {
    /// In the order in which they are reached.
    pub(crate) const ALL: [Milestone; 6] = [
        Milestone::Image,
        Milestone::Machines,
        Milestone::Talos,
        Milestone::Etcd,
        Milestone::Kubernetes,
        Milestone::Addons,
    ];

    /// Its condition.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Milestone::Image => "ImageReady",
            Milestone::Machines => "MachinesReady",
            Milestone::Talos => "TalosConfigured",
            Milestone::Etcd => "EtcdBootstrapped",
            Milestone::Kubernetes => "KubernetesReachable",
            Milestone::Addons => CONDITION_ADDONS_INSTALLED,
        }
    }

    /// The phase in which it is worked for.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Milestone::Image | Milestone::Machines => Phase::ProvisioningMachines,
            Milestone::Talos => Phase::ConfiguringTalos,
            Milestone::Etcd | Milestone::Kubernetes => Phase::BootstrappingCluster,
            Milestone::Addons => Phase::InstallingAddons,
        }
    }

    /// How long it may take once the one before it is reached.
    pub(crate) fn limit(self, deadlines: &Deadlines) -> Duration {
        match self {
            Milestone::Image => deadlines.image,
            Milestone::Machines => deadlines.machines,
            Milestone::Talos => deadlines.talos,
            Milestone::Etcd => deadlines.etcd,
            Milestone::Kubernetes => deadlines.kubernetes,
            Milestone::Addons => deadlines.addons,
        }
    }
}
