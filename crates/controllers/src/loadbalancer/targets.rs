//! Compares the targets that are wanted with those that there are. Pure.

use crate::LoadBalancerFacts;
use butler_api::{LoadBalancerRequestSpec, MachineRole};
use std::collections::BTreeSet;

/// How the targets of a load balancer are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Addresses that are registered somewhere, without those that are not ours.
    pub(crate) registered: BTreeSet<String>,
    /// Addresses that a port of their role lacks.
    pub(crate) missing: BTreeSet<String>,
    /// Addresses that nobody asks for any more.
    pub(crate) surplus: BTreeSet<String>,
    /// Addresses that still have old connections.
    pub(crate) draining: BTreeSet<String>,
    /// Wanted addresses that a port of their role finds unhealthy.
    pub(crate) unhealthy: BTreeSet<String>,
    /// Ports that are asked for and are not there.
    pub(crate) closed: Vec<u16>,
}

/// All ports that are asked for, with the role of the machines behind them.
pub(crate) fn ports(spec: &LoadBalancerRequestSpec) -> Vec<(u16, MachineRole)> {
    let further = spec.listeners.iter().map(|listener| (listener.port, listener.role));
    std::iter::once((spec.port, MachineRole::ControlPlane))
        .chain(further)
        .filter_map(|(port, role)| Some((u16::try_from(port).ok()?, role)))
        .collect()
}

/// The addresses of a role.
fn wanted(spec: &LoadBalancerRequestSpec, role: MachineRole) -> BTreeSet<String> {
    let of_role = spec.targets.iter().filter(|target| target.role.unwrap_or_default() == role);
    of_role.map(|target| target.ip.clone()).collect()
}

/// Compares.
pub(crate) fn count(facts: &LoadBalancerFacts, spec: &LoadBalancerRequestSpec) -> Count {
    let mut count = Count::default();
    let foreign: BTreeSet<&String> = facts.foreign_targets.iter().collect();
    for (port, role) in ports(spec) {
        let wanted = wanted(spec, role);
        let Some(listener) = facts.listeners.iter().find(|listener| listener.port == port) else {
            count.closed.push(port);
            count.missing.extend(wanted);
            continue;
        };
        let registered: BTreeSet<String> =
            listener.registered.iter().filter(|address| !foreign.contains(address)).cloned().collect();
        count.missing.extend(wanted.difference(&registered).cloned());
        count.surplus.extend(registered.difference(&wanted).cloned());
        count.draining.extend(listener.draining.iter().filter(|a| !foreign.contains(a)).cloned());
        count.unhealthy.extend(wanted.iter().filter(|address| !listener.healthy.contains(*address)).cloned());
        count.registered.extend(registered);
    }
    count
}

impl Count {
    /// Whether the targets are exactly those that are wanted, and no connection is on its way out.
    pub(crate) fn synced(&self) -> bool {
        self.complete() && self.draining.is_empty()
    }

    /// Whether the targets are exactly those that are wanted; old ones may still have connections.
    pub(crate) fn complete(&self) -> bool {
        self.missing.is_empty() && self.surplus.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_drivers::ListenerFacts;
    use serde_json::json;

    fn spec() -> LoadBalancerRequestSpec {
        serde_json::from_value(json!({
            "clusterName": "c", "providerConfigRef": {"name": "p"},
            "targets": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2", "role": "control-plane"},
                        {"ip": "10.0.0.9", "role": "worker"}],
            "listeners": [{"port": 50001, "targetPort": 50000, "role": "worker"}],
        }))
        .unwrap()
    }

    fn listener(port: u16, registered: &[&str], healthy: &[&str], draining: &[&str]) -> ListenerFacts {
        let all = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        ListenerFacts {
            port,
            registered: all(registered),
            healthy: all(healthy),
            draining: all(draining),
            ..ListenerFacts::default()
        }
    }

    #[test]
    fn every_port_is_compared_with_the_targets_of_its_role() {
        let listeners = vec![
            listener(6443, &["10.0.0.1", "10.0.0.2"], &["10.0.0.1"], &[]),
            listener(50001, &["10.0.0.9"], &["10.0.0.9"], &[]),
        ];
        let good = count(&LoadBalancerFacts { listeners, ..Default::default() }, &spec());
        assert!(good.synced() && good.closed.is_empty(), "{good:?}");
        assert_eq!(
            (good.registered.len(), good.unhealthy.into_iter().collect()),
            (3, vec!["10.0.0.2".to_owned()])
        );
    }

    #[test]
    fn what_is_missing_too_much_closed_or_on_its_way_out_is_told_apart() {
        let listeners = vec![listener(6443, &["10.0.0.1", "10.0.0.3"], &[], &["10.0.0.4"])];
        let seen = count(&LoadBalancerFacts { listeners, ..Default::default() }, &spec());
        let set = |list: &[&str]| list.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(seen.closed, [50001]);
        assert_eq!(seen.missing, set(&["10.0.0.2", "10.0.0.9"]));
        assert_eq!((seen.surplus.clone(), seen.draining.clone()), (set(&["10.0.0.3"]), set(&["10.0.0.4"])));
        assert!(!seen.complete());
    }

    #[test]
    fn what_somebody_else_put_there_counts_for_nothing() {
        let facts = LoadBalancerFacts {
            listeners: vec![
                listener(6443, &["10.0.0.1", "10.0.0.2", "10.9.9.9"], &[], &["10.9.9.8"]),
                listener(50001, &["10.0.0.9"], &[], &[]),
            ],
            foreign_targets: vec!["10.9.9.9".to_owned(), "10.9.9.8".to_owned()],
            ..Default::default()
        };
        let seen = count(&facts, &spec());
        assert!(seen.synced() && !seen.registered.contains("10.9.9.9"), "{seen:?}");
    }
}
