//! What is told of a load balancer. Pure.

use super::desired::{Desired, Port};
use super::model::{TargetGroup, TargetHealth};
use super::plan::Observed;
use super::targets::{noted, on_port};
use crate::aws::tags;
use crate::seam::{ListenerFacts, LoadBalancerFacts};
use butler_api::LoadBalancerOutputs;
use std::collections::BTreeMap;

/// The port of the Talos API.
const TALOS: i32 = 50000;

/// What is known so far; `None` before there is a load balancer.
pub(crate) fn facts(desired: &Desired, seen: &Observed, api_port: i32) -> Option<LoadBalancerFacts> {
    let balancer = seen.balancer()?;
    let group = |port: &Port| seen.target_group(&port.name);
    let mut foreign = foreign_listeners(desired, seen);
    let mut listeners = Vec::new();
    for port in &desired.ports {
        let Some(group) = group(port) else { continue };
        let (one, others) = listener(port, group, seen);
        listeners.push(one);
        foreign.extend(others.into_iter().filter(|other| !foreign.contains(other)).collect::<Vec<_>>());
    }
    let arn_of = |wanted: i32, target: i32| {
        let port = desired.ports.iter().find(|port| port.port == wanted && port.target_port == target)?;
        group(port).map(|group| group.arn.clone())
    };
    let dns = balancer.dns.clone();
    let talos = arn_of(TALOS, TALOS);
    Some(LoadBalancerFacts {
        endpoint: dns.clone(),
        resource_id: balancer.arn.clone(),
        listeners,
        foreign_targets: foreign,
        outputs: LoadBalancerOutputs {
            dns_name: Some(dns.clone()),
            load_balancer_id: Some(balancer.arn.clone()),
            kubernetes_endpoint: Some(format!("https://{dns}:{api_port}")),
            talos_endpoint: talos.is_some().then(|| format!("{dns}:{TALOS}")),
            kubernetes_target_group_id: arn_of(api_port, api_port),
            talos_target_group_id: talos,
        },
        lacking: desired.lacking.clone(),
    })
}

/// One port, and targets that are neither wanted nor ours.
fn listener(port: &Port, group: &TargetGroup, seen: &Observed) -> (ListenerFacts, Vec<String>) {
    let noted = noted(seen, group);
    let mut names: BTreeMap<String, String> = noted.clone();
    names.extend(port.targets.iter().filter_map(|target| Some((target.id.clone()?, target.ip.clone()))));
    let mut facts = ListenerFacts {
        port: u16::try_from(port.port).unwrap_or(0),
        resource_id: group.arn.clone(),
        ..ListenerFacts::default()
    };
    let mut foreign = Vec::new();
    for member in seen.health.get(&group.arn).into_iter().flatten().filter(|member| !member.is_absent()) {
        let shown = names.get(&member.id).cloned().unwrap_or_else(|| member.id.clone());
        let wanted = names.contains_key(&member.id) && on_port(member, port);
        if !wanted && !member.is_draining() {
            foreign.push(foreign_name(member, port));
        }
        if member.is_draining() {
            facts.draining.push(shown);
        } else if wanted && member.counts() {
            if member.state == "healthy" {
                facts.healthy.push(shown.clone());
            }
            facts.registered.push(shown);
        }
    }
    (facts, foreign)
}

fn foreign_name(member: &TargetHealth, port: &Port) -> String {
    match on_port(member, port) {
        true => member.id.clone(),
        false => format!("{}:{}", member.id, member.port),
    }
}

/// Listeners that somebody else has added to our load balancer.
fn foreign_listeners(desired: &Desired, seen: &Observed) -> Vec<String> {
    let unwanted =
        seen.listeners.iter().flatten().filter(|one| !desired.ports.iter().any(|p| p.port == one.port));
    let foreign = unwanted.filter(|one| !tags::is_of(seen.tags_of(&one.arn), &desired.owner));
    foreign.map(|one| format!("listener {}", one.port)).collect()
}
