//! Rules of the other kinds.

use super::bootstrap::check_exposure;
use super::{Findings, Problem, Validate};
use crate::names::BUTLER_CONFIG_NAME;
use crate::{
    AddonDefinition, ButlerConfig, Cidr, ImageSync, MachineRequest, Provider, ProviderConfig,
    ProviderNetwork, ProviderNetworkMode, ProviderScopeType, TalosVersion,
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
    check_node_addresses(network, subnet.as_ref(), found);
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

fn check_node_addresses(network: &ProviderNetwork, subnet: Option<&Cidr>, found: &mut Findings) {
    let Some(addresses) = &network.node_addresses else { return };
    if network.subnet.is_none() {
        let rule = "node addresses need the network that they lie in";
        found.missing("spec.network.subnet", rule, "set it to the machines' network, such as 10.40.0.0/24");
    }
    let Some(range) = found.parsed("spec.network.nodeAddresses", addresses.range()) else { return };
    for (field, ip) in [("start", range.start()), ("end", range.end())] {
        if let Some(subnet) = subnet.filter(|subnet| !subnet.contains(ip)) {
            let rule = format!("lies outside spec.network.subnet {subnet}");
            let path = format!("spec.network.nodeAddresses.{field}");
            found.error(path, ip, rule, "use addresses of that subnet");
        }
    }
    let gateway = network.gateway.as_ref().and_then(|text| text.parse().ok());
    if let Some(gateway) = gateway.filter(|gateway| range.contains(*gateway)) {
        let rule = format!("holds the router's address {gateway}");
        found.error("spec.network.nodeAddresses", range, rule, "leave the router's address out");
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
        let sum = self.spec.image_factory.as_ref().and_then(|factory| factory.sha256.as_deref());
        check_sha256(sum, "spec.imageFactory.sha256", &mut found);
        found.0
    }
}

fn check_sha256(sum: Option<&str>, path: &str, found: &mut Findings) {
    let good = |sum: &&str| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(sum) = sum.filter(|sum| !good(sum)) {
        let rule = "is not a SHA-256: 64 hexadecimal digits";
        found.error(path, sum, rule, "write what `sha256sum` prints for the file");
    }
}

impl Validate for ImageSync {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        found.parsed("spec.factoryRef.version", self.spec.factory_ref.version.parse::<TalosVersion>());
        check_sha256(self.spec.sha256.as_deref(), "spec.sha256", &mut found);
        found.0
    }
}

impl Validate for MachineRequest {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        let Some(fixed) = &self.spec.static_address else { return found.0 };
        let network = found.parsed("spec.staticAddress.address", fixed.parse()).map(|(_, network)| network);
        let gateway = fixed.gateway.iter().map(|text| ("gateway".to_owned(), text));
        let servers = fixed.nameservers.iter().enumerate();
        let servers = servers.map(|(index, text)| (format!("nameservers[{index}]"), text));
        for (field, text) in gateway.chain(servers) {
            let path = format!("spec.staticAddress.{field}");
            match text.parse() {
                Ok(ip) if field == "gateway" && network.is_some_and(|network| !network.contains(ip)) => {
                    let rule = format!("lies outside the network of {}", fixed.address);
                    found.error(path, text, rule, "use the router's address in that network");
                }
                Ok(_) => {}
                Err(_) => {
                    let rule = format!("not an IP address: {}", crate::values::address_slip(text));
                    found.error(path, text, rule, "write it as 10.40.0.1");
                }
            }
        }
        found.0
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
