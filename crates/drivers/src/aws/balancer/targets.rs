//! Which machines are behind a load balancer. Pure; the last part of the plan.
//!
//! ```text
//!   wanted -note it as ours--> noted -register--> initial --> healthy
//!   not wanted, noted -deregister--> draining --> gone -take the note off--> forgotten
//!   not wanted, not noted: somebody else's; left alone and reported
//! ```
//!
//! Targets have no tags, so the note is a tag of the target group, written before the target is registered.

use super::desired::{Desired, Port};
use super::model::{TargetGroup, TargetHealth};
use super::mutation::{Member, Verb};
use super::plan::{Observed, Part, Plan, Stage, do_it};
use crate::aws::machine::model::State;
use crate::aws::tags::TARGET;
use std::collections::BTreeMap;

/// How a target group stands.
struct Standing<'a> {
    port: &'a Port,
    group: &'a TargetGroup,
    /// Id to address of those that are wanted and known.
    wanted: BTreeMap<String, String>,
    /// Id to address of those that we noted.
    noted: BTreeMap<String, String>,
    /// Everybody on the right port, gone ones left out.
    members: Vec<&'a TargetHealth>,
}

impl Standing<'_> {
    fn member(&self, id: &str) -> Option<&TargetHealth> {
        self.members.iter().copied().find(|member| member.id == id)
    }

    fn is_in(&self, id: &str) -> bool {
        self.member(id).is_some_and(|member| !member.is_draining())
    }

    /// Wanted, and not in.
    fn missing(&self) -> Vec<Member> {
        self.wanted
            .iter()
            .filter(|(id, _)| !self.is_in(id))
            .map(|(id, ip)| (id.clone(), ip.clone()))
            .collect()
    }

    /// Noted, not wanted, and `fits`.
    fn leaving(&self, fits: impl Fn(Option<&TargetHealth>) -> bool) -> Vec<Member> {
        let noted = self.noted.iter().filter(|(id, _)| !self.wanted.contains_key(*id));
        noted.filter(|(id, _)| fits(self.member(id))).map(|(id, ip)| (id.clone(), ip.clone())).collect()
    }
}

pub(super) fn stage(desired: &Desired, seen: &Observed) -> Stage {
    let mut unresolved: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for port in &desired.ports {
        let Some(group) = seen.target_group(&port.name) else { continue };
        let Some(health) = seen.health.get(&group.arn) else {
            return Ok(Some(Plan::Look(Part::Health { target_group: group.arn.clone() })));
        };
        let mut wanted = BTreeMap::new();
        for target in &port.targets {
            match target.id.clone().or_else(|| resolve(&target.ip, seen)) {
                Some(id) => drop(wanted.insert(id, target.ip.clone())),
                None if !unresolved.contains(&target.ip) => unresolved.push(target.ip.clone()),
                None => {}
            }
        }
        let members = health.iter().filter(|member| on_port(member, port) && !member.is_absent()).collect();
        all.push(Standing { port, group, wanted, noted: noted(seen, group), members });
    }
    // Only a machine that runs can be registered, and one that does not would take the others down with it.
    let missing: Vec<String> = all.iter().flat_map(Standing::missing).map(|(id, _)| id).collect();
    if seen.instances.is_none() && !(missing.is_empty() && unresolved.is_empty()) {
        let mut ids = missing;
        ids.sort();
        ids.dedup();
        return Ok(Some(Plan::Look(Part::Instances { ids, ips: unresolved, vpc: seen.vpc() })));
    }
    if let Some(plan) = note(&all)? {
        return Ok(Some(plan));
    }
    for standing in &all {
        if let Some(plan) = in_and_out(standing, seen)? {
            return Ok(Some(plan));
        }
    }
    Ok(wait(&all, &unresolved))
}

/// The machine with an address.
fn resolve(ip: &str, seen: &Observed) -> Option<String> {
    let mut there = seen.instances.iter().flatten().filter(|instance| instance.is_there());
    there
        .find(|instance| instance.private.is_some_and(|own| own.to_string() == ip))
        .map(|instance| instance.id.clone())
}

pub(super) fn on_port(member: &TargetHealth, port: &Port) -> bool {
    member.port == 0 || member.port == port.target_port
}

/// Those that we registered, by the group's tags.
pub(super) fn noted(seen: &Observed, group: &TargetGroup) -> BTreeMap<String, String> {
    let tags = seen.tags_of(&group.arn).iter();
    tags.filter_map(|(key, ip)| Some((key.strip_prefix(TARGET)?.to_owned(), ip.clone()))).collect()
}

/// The first note that is missing; groups that lack the same ones get it by the same call.
fn note(all: &[Standing<'_>]) -> Stage {
    let lacks = |standing: &Standing<'_>| -> Vec<Member> {
        let wanted = standing.wanted.iter().filter(|(id, ip)| standing.noted.get(*id) != Some(*ip));
        wanted.map(|(id, ip)| (id.clone(), ip.clone())).collect()
    };
    let Some((first, members)) =
        all.iter().map(|one| (one, lacks(one))).find(|(_, members)| !members.is_empty())
    else {
        return Ok(None);
    };
    let same = all.iter().filter(|other| lacks(other) == members);
    let target_groups = same.map(|other| other.group.arn.clone()).collect();
    do_it(&first.port.name, Verb::Claim { target_groups, members })
}

fn in_and_out(standing: &Standing<'_>, seen: &Observed) -> Stage {
    let (name, target_group) = (&standing.port.name, standing.group.arn.clone());
    let port = standing.port.target_port;
    let members: Vec<Member> = standing.missing().into_iter().filter(|(id, _)| runs(id, seen)).collect();
    if !members.is_empty() {
        return do_it(name, Verb::Register { target_group, port, members });
    }
    let members = standing.leaving(|member| member.is_some_and(|member| !member.is_draining()));
    if !members.is_empty() {
        return do_it(name, Verb::Deregister { target_group, port, members });
    }
    let members = standing.leaving(|member| member.is_none());
    if !members.is_empty() {
        return do_it(name, Verb::Disclaim { target_group, members });
    }
    Ok(None)
}

fn runs(id: &str, seen: &Observed) -> bool {
    let machine = seen.instances.iter().flatten().find(|instance| instance.id == id);
    machine.is_some_and(|machine| machine.state == State::Running)
}

/// What can only be waited for.
fn wait(all: &[Standing<'_>], unresolved: &[String]) -> Option<Plan> {
    let mut waiting: Vec<String> = unresolved.to_vec();
    waiting.extend(all.iter().flat_map(Standing::missing).map(|(_, ip)| ip));
    waiting.sort();
    waiting.dedup();
    if !waiting.is_empty() {
        return Some(Plan::Wait(format!(
            "the machines {} to run, so that they can be registered",
            waiting.join(", ")
        )));
    }
    let draining = |standing: &Standing<'_>| standing.leaving(|member| member.is_some());
    let (standing, members) =
        all.iter().map(|standing| (standing, draining(standing))).find(|(_, members)| !members.is_empty())?;
    let ips: Vec<String> = members.into_iter().map(|(_, ip)| ip).collect();
    Some(Plan::Wait(format!("{} to be drained from port {}", ips.join(", "), standing.port.port)))
}
