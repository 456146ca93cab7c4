//! What is known of a load balancer, from what was seen.

use super::desired::Desired;
use super::plan::{Observed, backends, is_leaving, is_wanted};
use crate::gcp::machine_plan::addresses;
use crate::gcp::names::{last, tail};
use crate::seam::{ListenerFacts, LoadBalancerFacts};
use butler_api::LoadBalancerOutputs;
use std::collections::{BTreeMap, BTreeSet};

/// Port of the Talos API.
const TALOS: u16 = 50000;

/// Members that pass their check, by the listener's port and the ends of their URLs.
pub(crate) type Health = BTreeMap<u16, BTreeSet<String>>;

/// What is known; `None` before there is an address.
pub(crate) fn facts(desired: &Desired, seen: &Observed, health: &Health) -> Option<LoadBalancerFacts> {
    let endpoint = seen.find(&desired.address()).filter(|address| address.is_of(&desired.owner))?;
    let endpoint = endpoint.text("address")?.to_owned();
    let first = desired.listeners.first()?;
    let rule = desired.rule(first);
    let holder = |port: u16| {
        let listener = desired.listeners.iter().find(|listener| listener.port == port)?;
        Some(desired.holder(listener).name)
    };
    let talos = desired.listeners.iter().any(|listener| listener.port == TALOS);
    let outputs = LoadBalancerOutputs {
        dns_name: None,
        load_balancer_id: seen.find(&rule).and_then(|rule| rule.text("selfLink")).map(str::to_owned),
        kubernetes_endpoint: Some(format!("https://{endpoint}:{}", first.port)),
        talos_endpoint: talos.then(|| format!("{endpoint}:{TALOS}")),
        kubernetes_target_group_id: Some(desired.holder(first).name),
        talos_target_group_id: holder(TALOS),
    };
    Some(LoadBalancerFacts {
        listeners: listeners(desired, seen, health),
        foreign_targets: foreign(desired, seen),
        resource_id: rule.name,
        lacking: desired.lacking.clone(),
        endpoint,
        outputs,
    })
}

fn listeners(desired: &Desired, seen: &Observed, health: &Health) -> Vec<ListenerFacts> {
    let shown = |member: &String| {
        let address = seen.instance(member).and_then(|instance| addresses(instance).0.first().copied());
        address.map_or_else(|| last(member).to_owned(), |address| address.to_string())
    };
    let of = |port: u16| health.get(&port).cloned().unwrap_or_default();
    let listeners = desired.listeners.iter().map(|listener| {
        let (leaving, members): (Vec<String>, Vec<String>) = seen
            .members_of(desired, listener)
            .into_iter()
            .partition(|member| is_leaving(desired, seen, listener.role, member));
        let healthy = of(listener.port);
        let mut registered: Vec<String> = members.iter().map(shown).collect();
        let mut passing: Vec<String> =
            members.iter().filter(|member| healthy.contains(*member)).map(shown).collect();
        registered.sort();
        passing.sort();
        ListenerFacts {
            port: listener.port,
            resource_id: desired.holder(listener).name,
            registered,
            healthy: passing,
            draining: leaving.iter().map(shown).collect(),
        }
    });
    listeners.collect()
}

/// Members, and groups behind a service, that somebody else has put there.
fn foreign(desired: &Desired, seen: &Observed) -> Vec<String> {
    let mut found = BTreeSet::new();
    for listener in &desired.listeners {
        let strangers = seen.members_of(desired, listener).into_iter();
        let strangers = strangers.filter(|member| {
            !is_wanted(desired, seen, listener.role, member)
                && !is_leaving(desired, seen, listener.role, member)
        });
        found.extend(strangers.map(|member| last(&member).to_owned()));
        if desired.pool {
            continue;
        }
        let ours: BTreeSet<&str> = seen
            .groups(desired, listener.role)
            .into_iter()
            .map(|group| tail(group.text("selfLink").unwrap_or_default()))
            .collect();
        let behind = seen.find(&desired.holder(listener)).map(backends).unwrap_or_default();
        let groups = behind.iter().filter(|group| !ours.contains(group.as_str()));
        found.extend(groups.map(|group| format!("group {}", last(group))));
    }
    found.into_iter().collect()
}
