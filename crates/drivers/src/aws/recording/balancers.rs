//! What each change of a load balancer does, in memory.

use crate::aws::balancer::desired::PROTECTION;
use crate::aws::balancer::model::{Attributes, Balancer, Group, Listener, Subnet, TargetGroup, TargetHealth};
use crate::aws::balancer::mutation::{Mutation as Change, Verb as Part};
use crate::aws::balancer::plan::{Observed as Seen, Part as Look};
use crate::aws::machine::model::{Instance, State};
use crate::aws::tags::{TARGET, Tags};
use std::collections::BTreeSet;

/// What is taken to be there: nothing but the network and the machines that are named.
pub(crate) fn look(part: Look, subnets: &[String], seen: &mut Seen) {
    match part {
        Look::Subnets => {
            let subnet = |id: &String| Subnet {
                id: id.clone(),
                vpc: "vpc".to_owned(),
                zone: format!("zone-of-{id}"),
                cidr: String::new(),
                free: 0,
            };
            seen.subnets = Some(subnets.iter().map(subnet).collect());
        }
        Look::Balancer => seen.balancer = Some(None),
        Look::TargetGroups => seen.target_groups = Some(Vec::new()),
        Look::Listeners { .. } => seen.listeners = Some(Vec::new()),
        Look::Tags { arns } => {
            for arn in arns {
                seen.tags.entry(arn).or_default();
            }
        }
        Look::Nodes { .. } => seen.nodes = Some(BTreeSet::from(["192.0.2.0/24".to_owned()])),
        Look::Groups { .. } | Look::OwnGroups => seen.groups = Some(Vec::new()),
        Look::Attributes { .. } => seen.attributes = Some(usual(&["load_balancing.cross_zone.enabled"])),
        Look::GroupAttributes { target_group } => {
            drop(seen.group_attributes.insert(target_group, Attributes::new()))
        }
        Look::Health { target_group } => drop(seen.health.insert(target_group, Vec::new())),
        Look::Instances { ids, ips, .. } => {
            let running = |id: String, ip: Option<&String>| Instance {
                id,
                state: State::Running,
                private: ip.and_then(|ip| ip.parse().ok()),
                ..Instance::default()
            };
            let named = ids.into_iter().map(|id| running(id, None));
            seen.instances =
                Some(named.chain(ips.iter().map(|ip| running(format!("i-{ip}"), Some(ip)))).collect());
        }
    }
}

/// What AWS sets when nobody says anything.
fn usual(more: &[&str]) -> Attributes {
    let off = |key: &str| (key.to_owned(), "false".to_owned());
    more.iter().map(|key| off(key)).chain([off(PROTECTION)]).collect()
}

/// What a change of a load balancer does.
pub(crate) fn apply(change: &Change, seen: &mut Seen) {
    let arn = format!("arn:{}", change.name);
    match &change.verb {
        Part::CreateGroup { vpc, tags } => {
            let group = Group {
                id: "sg-new".to_owned(),
                name: change.name.clone(),
                vpc: vpc.clone(),
                tags: tags.clone(),
                rules: BTreeSet::new(),
            };
            seen.groups.get_or_insert_default().push(group);
        }
        Part::Allow { rules, .. } | Part::AllowNodes { rules, .. } => {
            seen.groups.iter_mut().flatten().for_each(|group| group.rules.extend(rules.clone()))
        }
        Part::Forbid { rules, .. } => {
            seen.groups
                .iter_mut()
                .flatten()
                .for_each(|group| group.rules.retain(|rule| !rules.contains(rule)));
        }
        Part::DeleteGroup { group } => {
            seen.groups.iter_mut().for_each(|all| all.retain(|one| one.id != *group))
        }
        Part::CreateBalancer { internal, subnets, group, tags } => {
            seen.tags.insert(arn.clone(), tags.clone());
            seen.balancer = Some(Some(Balancer {
                arn,
                name: change.name.clone(),
                dns: format!("{}.elb.example.com", change.name),
                kind: "network".to_owned(),
                internal: *internal,
                vpc: seen.vpc(),
                state: "active".to_owned(),
                why: String::new(),
                subnets: subnets.clone(),
                groups: BTreeSet::from([group.clone()]),
            }));
        }
        Part::SetSubnets { subnets, .. } => {
            seen.balancer.iter_mut().flatten().for_each(|b| b.subnets = subnets.clone())
        }
        Part::SetGroups { group, .. } => {
            seen.balancer.iter_mut().flatten().for_each(|b| b.groups = BTreeSet::from([group.clone()]));
        }
        Part::SetAttributes { attributes, .. } => {
            seen.attributes.get_or_insert_default().extend(attributes.clone())
        }
        Part::DeleteBalancer { .. } => {
            seen.balancer = Some(None);
            seen.listeners = None;
        }
        _ => apply_to_targets(change, seen, arn),
    }
}

fn apply_to_targets(change: &Change, seen: &mut Seen, arn: String) {
    match &change.verb {
        Part::CreateTargetGroup { port, vpc, tags } => {
            seen.tags.insert(arn.clone(), tags.clone());
            seen.target_groups.get_or_insert_default().push(TargetGroup {
                arn,
                name: change.name.clone(),
                port: port.target_port,
                protocol: "TCP".to_owned(),
                vpc: vpc.clone(),
                target_type: "instance".to_owned(),
                health: port.health.clone(),
            });
        }
        Part::SetHealth { target_group, health } => {
            let mut all = seen.target_groups.iter_mut().flatten();
            all.by_ref().filter(|one| one.arn == *target_group).for_each(|one| one.health = health.clone());
        }
        Part::SetGroupAttributes { target_group, attributes } => {
            seen.group_attributes.entry(target_group.clone()).or_default().extend(attributes.clone());
        }
        Part::DeleteTargetGroup { target_group } => {
            seen.target_groups.iter_mut().for_each(|all| all.retain(|one| one.arn != *target_group));
        }
        Part::CreateListener { port, target_group, tags, .. } => {
            seen.tags.insert(arn.clone(), tags.clone());
            let forwards_to = Some(target_group.clone());
            let listener = Listener { arn, port: *port, protocol: "TCP".to_owned(), forwards_to };
            seen.listeners.get_or_insert_default().push(listener);
        }
        Part::PointListener { port, target_group, .. } => {
            let mut all = seen.listeners.iter_mut().flatten();
            all.by_ref()
                .filter(|one| one.port == *port)
                .for_each(|one| one.forwards_to = Some(target_group.clone()));
        }
        Part::DeleteListener { port, .. } => {
            seen.listeners.iter_mut().for_each(|all| all.retain(|one| one.port != *port))
        }
        _ => apply_to_members(change, seen),
    }
}

fn apply_to_members(change: &Change, seen: &mut Seen) {
    match &change.verb {
        Part::Claim { target_groups, members } => {
            for group in target_groups {
                let tags: &mut Tags = seen.tags.entry(group.clone()).or_default();
                tags.extend(members.iter().map(|(id, ip)| (format!("{TARGET}{id}"), ip.clone())));
            }
        }
        Part::Disclaim { target_group, members } => {
            let tags: &mut Tags = seen.tags.entry(target_group.clone()).or_default();
            members.iter().for_each(|(id, _)| drop(tags.remove(&format!("{TARGET}{id}"))));
        }
        Part::Register { target_group, port, members } => {
            let healthy = |id: &String| TargetHealth {
                id: id.clone(),
                port: *port,
                state: "healthy".to_owned(),
                reason: String::new(),
            };
            let all = seen.health.entry(target_group.clone()).or_default();
            all.extend(members.iter().map(|(id, _)| healthy(id)));
        }
        Part::Deregister { target_group, members, .. } => {
            let all = seen.health.entry(target_group.clone()).or_default();
            all.retain(|one| !members.iter().any(|(id, _)| *id == one.id));
        }
        _ => {}
    }
}
