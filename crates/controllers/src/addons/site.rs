//! What addons are made for: one cluster, as far as it is known by the time that its API answers.

use butler_api::{
    ClusterBootstrapSpec, LoadBalancerAddonType, MachineRole, MultiTenancyMode, ProviderConfig, Topology,
};
use butler_drivers::Profile;
use std::collections::BTreeMap;
use std::fmt;

/// The cluster that addons are installed on.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The ClusterBootstrap's spec.
    pub spec: &'a ClusterBootstrapSpec,
    /// The ClusterBootstrap's name.
    pub name: &'a str,
    /// The ClusterBootstrap's namespace.
    pub namespace: &'a str,
    /// What is known of the infrastructure.
    pub profile: &'a Profile,
    /// Where the control plane is reached: an address or a DNS name.
    pub endpoint: &'a str,
    /// The infrastructure's settings, as they are where the bootstrap runs.
    pub provider_config: &'a ProviderConfig,
    /// The infrastructure's credentials. Secret.
    pub credentials: &'a BTreeMap<String, Vec<u8>>,
    /// All machines.
    pub machines: &'a [SiteMachine],
    /// How teams are kept apart, where the bootstrap's settings say so.
    pub multi_tenancy: Option<MultiTenancyMode>,
}

/// A machine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteMachine {
    /// Name of the MachineRequest, which is also the node's.
    pub name: String,
    /// What it is for.
    pub role: MachineRole,
    /// The address that its node registers with.
    pub address: Option<String>,
    /// `spec.providerID` of its node, in the infrastructure's form.
    pub provider_id: Option<String>,
}

impl Site<'_> {
    pub(crate) fn single_node(&self) -> bool {
        self.spec.cluster.topology == Topology::SingleNode
    }

    /// Whether MetalLB hands out addresses here.
    pub(crate) fn has_metallb(&self) -> bool {
        let wanted = &self.spec.addons.load_balancer;
        self.profile.on_prem
            && wanted.enabled
            && wanted.type_ == LoadBalancerAddonType::Metallb
            && self.spec.network.load_balancer_pool.is_some()
    }

    /// Whether something of ours gives load-balanced Services their addresses, so that waiting for one makes sense.
    pub(crate) fn has_service_addresses(&self) -> bool {
        self.has_metallb() || self.profile.cloud_controller.is_some()
    }
}

impl fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("endpoint", &self.endpoint)
            .field("machines", &self.machines.len())
            .finish_non_exhaustive()
    }
}
