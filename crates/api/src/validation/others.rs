//! Rules of the other kinds.

use super::bootstrap::check_exposure;
use super::{Findings, Problem, Validate};
use crate::names::BUTLER_CONFIG_NAME;
use crate::{
    AddonDefinition, ButlerConfig, Cidr, ImageSync, MachineRequest, Provider, ProviderConfig,
    ProviderNetworkMode, ProviderScopeType, TalosVersion,
};

impl Validate for ProviderConfig {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        let spec = &self.spec;
        if !spec.has_block(spec.provider) {
            let name = spec.provider.as_str();
            found.missing(
                format!("spec.{name}"),
                format!("the block {name} is required when provider is {name}"),
                "add the block with the settings of the infrastructure",
            );
        }
        for other in Provider::ALL {
            if other != spec.provider && spec.has_block(other) {
                found.warn(
                    format!("spec.{other}"),
                    "set",
                    format!("provider is {}, so this block is ignored", spec.provider),
                    "remove the block, or make a ProviderConfig of its own for it",
                );
            }
        }
        check_proxmox(self, &mut found);
        if let Some(scope) = &spec.scope
            && scope.type_ == ProviderScopeType::Team
            && scope.team_ref.is_none()
        {
            found.missing(
                "spec.scope.teamRef",
                "teamRef is required when scope.type is team",
                "name the team",
            );
        }
        check_provider_network(self, &mut found);
        found.0
    }
}

fn check_proxmox(config: &ProviderConfig, found: &mut Findings) {
    let range = config.spec.proxmox.as_ref().and_then(|proxmox| proxmox.vmid_range.as_ref());
    if let Some(range) = range.filter(|range| range.start > range.end) {
        found.error(
            "spec.proxmox.vmidRange.start",
            range.start,
            format!("comes after the end, {}", range.end),
            "swap start and end",
        );
    }
}

fn check_provider_network(config: &ProviderConfig, found: &mut Findings) {
    let Some(network) = &config.spec.network else { return };
    let on_prem = config.spec.provider.is_on_prem();
    match network.mode {
        ProviderNetworkMode::Ipam if !on_prem => {
            let rule = format!("{} gives out addresses itself", config.spec.provider);
            found.error("spec.network.mode", "ipam", rule, "set it to cloud");
        }
        ProviderNetworkMode::Ipam if network.pool_refs.is_empty() => {
            found.missing("spec.network.poolRefs", "ipam needs at least one pool", "name a pool");
        }
        _ => {}
    }
    let subnet = match &network.subnet {
        Some(text) => found.parsed("spec.network.subnet", text.parse::<Cidr>()),
        None => None,
    };
    let Some(gateway) = &network.gateway else { return };
    match gateway.parse() {
        Ok(ip) => {
            if let Some(subnet) = subnet.filter(|subnet| !subnet.contains(ip)) {
                let rule = format!("lies outside spec.network.subnet {subnet}");
                found.error("spec.network.gateway", gateway, rule, "use the router's address in that subnet");
            }
        }
        Err(_) => {
            let rule = format!("not an IP address: {}", crate::values::address_slip(gateway));
            found.error("spec.network.gateway", gateway, rule, "write it as 10.40.0.1");
        }
    }
}

impl Validate for ButlerConfig {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        if let Some(name) = self.metadata.name.as_ref().filter(|name| *name != BUTLER_CONFIG_NAME) {
            let rule = "there is one ButlerConfig, and its name is butler";
            found.error("metadata.name", name, rule, "name it butler");
        }
        if let Some(exposure) = &self.spec.control_plane_exposure {
            check_exposure(exposure, "spec.controlPlaneExposure", &mut found);
        }
        found.0
    }
}

impl Validate for ImageSync {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        found.parsed("spec.factoryRef.version", self.spec.factory_ref.version.parse::<TalosVersion>());
        found.0
    }
}

impl Validate for MachineRequest {
    /// Nothing spans fields here: the schema says it all.
    fn validate(&self) -> Vec<Problem> {
        Vec::new()
    }
}

impl Validate for AddonDefinition {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        let (chart, name) = (&self.spec.chart, self.metadata.name.as_deref().unwrap_or_default());
        if !chart.available_versions.is_empty() && !chart.available_versions.contains(&chart.default_version)
        {
            found.error(
                "spec.chart.defaultVersion",
                &chart.default_version,
                "is not one of spec.chart.availableVersions",
                "add it to the list, or choose one of the list",
            );
        }
        if let Some(index) = self.spec.depends_on.iter().position(|other| other == name) {
            let path = format!("spec.dependsOn[{index}]");
            found.error(path, name, "an addon cannot depend on itself", "remove the entry");
        }
        if let Some(timeout) = self.spec.defaults.as_ref().map(|defaults| &defaults.timeout)
            && !is_duration(timeout)
        {
            found.error("spec.defaults.timeout", timeout, "not a duration", "write it as 10m or 1h30m");
        }
        found.0
    }
}

/// Go's notation of durations, as Helm takes it: `1h30m`, `90s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if number == 0 || rest[..number].parse::<f64>().is_err() {
            return false;
        }
        let tail = &rest[number..];
        let Some(unit) = ["ms", "us", "ns", "h", "m", "s"].into_iter().find(|unit| tail.starts_with(unit))
        else {
            return false;
        };
        rest = &tail[unit.len()..];
    }
    !text.is_empty()
}
