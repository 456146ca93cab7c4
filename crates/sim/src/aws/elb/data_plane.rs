//! What the balancers of the account do with connections: their state, as the data plane wants it. Pure.

use super::attributes::is_on;
use crate::aws::rules::{Peer, let_in};
use crate::aws::state::{
    Balancer as Wanted, BalancerState, HealthCheck, Power, Registration, State, TargetGroup,
};
use crate::balancer::{Balancer, Check, Frontend, Mode, Pool, Probe, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How the vendor's checks call themselves.
const AGENT: &str = "ELB-HealthChecker/2.0";

impl State {
    /// Every balancer that is active, by its ARN.
    #[must_use]
    pub fn data_plane(&self) -> BTreeMap<String, Balancer> {
        let active = self.balancers.iter().filter(|(_, b)| b.state == BalancerState::Active);
        active.map(|(arn, balancer)| (arn.clone(), self.plane_of(arn, balancer))).collect()
    }

    fn plane_of(&self, arn: &str, balancer: &Wanted) -> Balancer {
        let mut frontends = Vec::new();
        let listeners: Vec<_> = self.listeners.values().filter(|l| l.balancer == arn).collect();
        for listener in &listeners {
            let admitted = |address: IpAddr| {
                balancer.groups.is_empty()
                    || let_in(&self.groups, &balancer.groups, listener.port, Peer { address, groups: &[] })
            };
            let inside = self.sources_inside(balancer).into_iter().all(admitted);
            for (subnet, interface) in &balancer.subnets {
                let Some(interface) = self.interfaces.get(interface) else { continue };
                let Some(subnet) = self.subnets.get(subnet) else { continue };
                let group = self.target_groups.get(&listener.target_group);
                let cross = group.is_some_and(|group| is_cross(balancer, group));
                frontends.push(Frontend {
                    address: IpAddr::V4(interface.public.unwrap_or(interface.private)),
                    port: listener.port,
                    pool: listener.target_group.clone(),
                    zone: (!cross).then(|| subnet.zone.clone()),
                    // A balancer with public addresses in a subnet that the internet does not reach is reached by nobody.
                    open: admitted(self.client) && (balancer.internal || subnet.public),
                    open_inside: inside,
                });
            }
        }
        let groups: BTreeSet<&String> = listeners.iter().map(|listener| &listener.target_group).collect();
        let pools = groups.into_iter().filter_map(|id| {
            let group = self.target_groups.get(id)?;
            Some((id.clone(), self.pool_of(balancer, group)))
        });
        Balancer { mode: Mode::Proxy, frontends, pools: pools.collect(), names: vec![balancer.dns.clone()] }
    }

    /// The addresses that machines of its network come from: over the internet those are public ones.
    fn sources_inside(&self, balancer: &Wanted) -> Vec<IpAddr> {
        let running = self.instances.values().filter(|instance| {
            let vpc = self.subnets.get(&instance.subnet).map(|subnet| &subnet.vpc);
            instance.power == Power::Running && vpc == Some(&balancer.vpc)
        });
        let source = |instance: &crate::aws::state::Instance| match (balancer.internal, instance.public) {
            (true, _) => IpAddr::V4(instance.private),
            (false, Some(public)) => IpAddr::V4(public),
            (false, None) => self.nat,
        };
        running.map(source).collect()
    }

    fn pool_of(&self, balancer: &Wanted, group: &TargetGroup) -> Pool {
        let mut targets = Vec::new();
        for ((id, port), registration) in &group.targets {
            if matches!(registration, Registration::Beginning(_)) {
                continue;
            }
            let Some(address) = self.address_of(group, id) else { continue };
            let check_port = group.check.port.parse().unwrap_or(*port);
            let own: Vec<IpAddr> = balancer
                .subnets
                .values()
                .filter_map(|id| self.interfaces.get(id))
                .map(|interface| IpAddr::V4(interface.private))
                .collect();
            let passes = |port: u16, from: &[IpAddr]| {
                from.iter().all(|from| {
                    self.reaches(address, port, Peer { address: *from, groups: &balancer.groups })
                })
            };
            // With the client's address preserved, the rules of the target see the client.
            let preserved = is_on(&group.attributes, "preserve_client_ip.enabled");
            let sources = if preserved { vec![self.client] } else { own.clone() };
            targets.push(Target {
                address,
                port: *port,
                zone: self.zone_of(address).unwrap_or_default(),
                draining: matches!(registration, Registration::Draining(_)),
                open: passes(*port, &sources),
                checkable: passes(check_port, &own),
            });
        }
        Pool {
            targets,
            check: check_of(&group.check),
            cut_unhealthy: is_on(
                &group.attributes,
                "target_health_state.unhealthy.connection_termination.enabled",
            ),
            cut_removed: is_on(&group.attributes, "deregistration_delay.connection_termination.enabled"),
        }
    }

    /// Whether the security groups of the machine at an address let somebody in. What is no machine has none.
    fn reaches(&self, address: IpAddr, port: u16, from: Peer<'_>) -> bool {
        let at = |instance: &&crate::aws::state::Instance| {
            IpAddr::V4(instance.private) == address && !instance.power.is_over()
        };
        let machine = self.instances.values().find(at);
        machine.is_none_or(|machine| let_in(&self.groups, &machine.groups, port, from))
    }

    /// Whether a connection from outside gets to an address and port: the security groups of machines decide.
    #[must_use]
    pub fn admits_from_outside(&self, to: SocketAddr) -> bool {
        let has = |instance: &&crate::aws::state::Instance| {
            let all = instance.public.into_iter().chain([instance.private]);
            !instance.power.is_over() && all.into_iter().any(|address| IpAddr::V4(address) == to.ip())
        };
        let from = Peer { address: self.client, groups: &[] };
        let machine = self.instances.values().find(has);
        machine.is_none_or(|machine| let_in(&self.groups, &machine.groups, to.port(), from))
    }
}

fn is_cross(balancer: &Wanted, group: &TargetGroup) -> bool {
    let key = "load_balancing.cross_zone.enabled";
    match group.attributes.get(key).map(String::as_str) {
        Some("true") => true,
        Some("false") => false,
        _ => is_on(&balancer.attributes, key),
    }
}

fn check_of(check: &HealthCheck) -> Check {
    let probe = match (check.protocol.as_str(), &check.path) {
        ("HTTP" | "HTTPS", Some(path)) => Probe::Http {
            tls: check.protocol == "HTTPS",
            path: path.clone(),
            good: codes(check.codes.as_deref().unwrap_or("200-399")),
            agent: AGENT,
        },
        _ => Probe::Tcp,
    };
    Check {
        probe,
        port: check.port.parse().ok(),
        interval: Duration::from_secs(u64::from(check.interval)),
        timeout: Duration::from_secs(u64::from(check.timeout)),
        first: 1,
        rise: check.healthy,
        fall: check.unhealthy,
    }
}

/// `200,301-308` as ranges.
fn codes(text: &str) -> Vec<(u16, u16)> {
    let range = |part: &str| match part.split_once('-') {
        Some((from, to)) => Some((from.trim().parse().ok()?, to.trim().parse().ok()?)),
        None => part.trim().parse().ok().map(|code| (code, code)),
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn codes_are_read() {
        assert_eq!(super::codes("200,301-308"), [(200, 200), (301, 308)]);
    }
}
