//! The parts of ProviderConfig that tenant clusters use after the bootstrap: who, with which addresses, how much.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::LocalObjectReference;
use crate::values::{AddressRange, ValueError};

/// Who may use a ProviderConfig.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderScope {
    /// platform (default): everyone. team: the team in teamRef.
    #[serde(default, rename = "type")]
    pub type_: ProviderScopeType,
    /// The team, for type team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_ref: Option<LocalObjectReference>,
}

/// Reach of a ProviderConfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderScopeType {
    /// Everyone.
    #[default]
    Platform,
    /// One team.
    Team,
}

/// Addresses for tenant clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderNetwork {
    /// ipam: from the pools in poolRefs. cloud (default): as the cloud gives them.
    #[serde(default)]
    pub mode: ProviderNetworkMode,
    /// Pools that addresses are taken from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pool_refs: Vec<PoolReference>,
    /// Network of the machines, in CIDR notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Address of the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Time servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub time_servers: Vec<String>,
    /// Fixed addresses for the nodes of the management cluster, handed out in order, control planes first. They need
    /// subnet and gateway beside them. Default: the nodes get theirs by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_addresses: Option<NodeAddresses>,
    /// Addresses for load-balanced services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<ProviderLoadBalancer>,
    /// How many addresses one tenant may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_per_tenant: Option<AddressQuota>,
}

/// Fixed addresses for nodes, from the first to the last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddresses {
    /// First address.
    #[schemars(length(min = 1))]
    pub start: String,
    /// Last address; not before the first.
    #[schemars(length(min = 1))]
    pub end: String,
}

/// Where tenant addresses come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderNetworkMode {
    /// Our own pools.
    Ipam,
    /// The cloud.
    #[default]
    Cloud,
}

/// Names an address pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolReference {
    /// Name of the pool.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Pools with lower numbers are used first. Default: 0.
    #[serde(default)]
    pub priority: i32,
}

/// Addresses for load-balanced services of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderLoadBalancer {
    /// Addresses that a tenant gets, at least 1. Default: 8.
    #[serde(default = "eight")]
    #[schemars(range(min = 1))]
    pub default_pool_size: i32,
    /// static (default): all at once. elastic: more when they run out.
    #[serde(default)]
    pub allocation_mode: AllocationMode,
    /// elastic: addresses at the beginning, at least 1. Default: 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub initial_pool_size: i32,
    /// elastic: addresses added at a time, at least 1. Default: 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub growth_increment: i32,
}

/// How a tenant gets its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllocationMode {
    /// All at once.
    #[default]
    Static,
    /// More when they run out.
    Elastic,
}

/// How many addresses one tenant may take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressQuota {
    /// Addresses for nodes, at least 1. Default: no limit.
    #[serde(default, rename = "maxNodeIPs", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_node_ips: Option<i32>,
    /// Addresses for load-balanced services, at least 1. Default: no limit.
    #[serde(default, rename = "maxLoadBalancerIPs", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_load_balancer_ips: Option<i32>,
}

/// Limits for tenant clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderLimits {
    /// Clusters that one team may have, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_clusters_per_team: Option<i32>,
    /// Nodes that one team may have, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_nodes_per_team: Option<i32>,
}

impl NodeAddresses {
    /// The addresses as a range.
    ///
    /// # Errors
    /// When an end is no address, or the first comes after the last.
    pub fn range(&self) -> Result<AddressRange, ValueError> {
        format!("{}-{}", self.start.trim(), self.end.trim()).parse()
    }
}

impl Default for ProviderLoadBalancer {
    fn default() -> Self {
        ProviderLoadBalancer {
            default_pool_size: eight(),
            allocation_mode: AllocationMode::Static,
            initial_pool_size: two(),
            growth_increment: two(),
        }
    }
}

fn eight() -> i32 {
    8
}

fn two() -> i32 {
    2
}
