//! All decisions about a load balancer. Pure: what is wanted and what was seen give the next step.
//!
//! ```text
//!   look at everything of that name -> is it ours? -> security group -> load balancer -> target groups -> listeners
//!     -> targets in and out -> is it active? -> settled
//! ```
//!
//! The plan says itself what has to be looked at, so that a call costs no more reads than its step needs. Whatever differs is
//! put right, whoever changed it; what somebody else has added (a target, a listener) stays and is reported.

use super::desired::{Desired, Nodes};
use super::model::{Attributes, Balancer, Group, Listener, Subnet, TargetGroup, TargetHealth};
use super::mutation::{Mutation, Verb};
use super::targets;
use crate::aws::machine::model::Instance;
use crate::aws::tags::{self, Tags};
use crate::failure::{Class, Failure};
use std::collections::{BTreeMap, BTreeSet};

/// All that was seen. What was not looked at is `None`, or has no entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) subnets: Option<Vec<Subnet>>,
    pub(crate) balancer: Option<Option<Balancer>>,
    /// Those whose name begins with the stem.
    pub(crate) target_groups: Option<Vec<TargetGroup>>,
    pub(crate) listeners: Option<Vec<Listener>>,
    /// By ARN.
    pub(crate) tags: BTreeMap<String, Tags>,
    /// Security groups of that name, or with our tags.
    pub(crate) groups: Option<Vec<Group>>,
    /// Where the cluster's machines come from, in CIDR notation.
    pub(crate) nodes: Option<BTreeSet<String>>,
    pub(crate) attributes: Option<Attributes>,
    /// By ARN of the target group.
    pub(crate) group_attributes: BTreeMap<String, Attributes>,
    pub(crate) health: BTreeMap<String, Vec<TargetHealth>>,
    /// Machines behind targets that are not registered yet.
    pub(crate) instances: Option<Vec<Instance>>,
    /// What has no tags had time enough to show some, so that it is not ours.
    pub(crate) bare_is_foreign: bool,
}

/// What else has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Subnets,
    Balancer,
    TargetGroups,
    Listeners {
        balancer: String,
    },
    Tags {
        arns: Vec<String>,
    },
    /// Security groups of a name.
    Groups {
        vpc: String,
    },
    /// Where the cluster's machines come from.
    Nodes {
        nodes: Nodes,
        vpc: String,
    },
    /// Security groups with the owner's tags.
    OwnGroups,
    Attributes {
        balancer: String,
    },
    GroupAttributes {
        target_group: String,
    },
    Health {
        target_group: String,
    },
    Instances {
        ids: Vec<String>,
        ips: Vec<String>,
        vpc: String,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    Look(Part),
    Do(Mutation),
    Wait(String),
    /// Whose something is can't be said yet.
    Doubt(String),
    /// Nothing is left to do.
    Settled,
}

/// The outcome of one stage: `None` when it has nothing to do.
pub(super) type Stage = Result<Option<Plan>, Failure>;

impl Observed {
    pub(crate) fn balancer(&self) -> Option<&Balancer> {
        self.balancer.as_ref()?.as_ref()
    }

    pub(crate) fn target_group(&self, name: &str) -> Option<&TargetGroup> {
        self.target_groups.iter().flatten().find(|group| group.name == name)
    }

    pub(super) fn tags_of(&self, arn: &str) -> &Tags {
        static NONE: Tags = Tags::new();
        self.tags.get(arn).unwrap_or(&NONE)
    }

    /// Whether these tags do not say yet whose their thing is.
    pub(super) fn is_doubtful(&self, tags: &Tags) -> bool {
        tags.is_empty() && !self.bare_is_foreign
    }

    /// What has tags and was seen: load balancer, target groups, listeners.
    pub(super) fn arns(&self) -> impl Iterator<Item = &String> {
        let balancer = self.balancer().map(|balancer| &balancer.arn);
        let groups = self.target_groups.iter().flatten().map(|group| &group.arn);
        balancer
            .into_iter()
            .chain(groups)
            .chain(self.listeners.iter().flatten().map(|listener| &listener.arn))
    }

    /// Target groups that have targets of ours, and whose health was not looked at.
    pub(super) fn groups_with_targets(&self) -> Vec<String> {
        let noted = |arn: &String| self.tags_of(arn).keys().any(|key| key.starts_with(tags::TARGET));
        let all = self.target_groups.iter().flatten().map(|group| &group.arn);
        all.filter(|arn| noted(arn) && !self.health.contains_key(*arn)).cloned().collect()
    }

    pub(crate) fn vpc(&self) -> String {
        self.subnets.iter().flatten().next().map(|subnet| subnet.vpc.clone()).unwrap_or_default()
    }

    fn group(&self, desired: &Desired) -> Option<&Group> {
        let named = |group: &&Group| group.name == desired.name && group.vpc == self.vpc();
        self.groups.iter().flatten().find(named)
    }
}

/// The next step towards the load balancer that is wanted.
pub(crate) fn plan(desired: &Desired, seen: &Observed) -> Result<Plan, Failure> {
    let stages: [fn(&Desired, &Observed) -> Stage; 10] = [
        look,
        ownership,
        security_group,
        load_balancer,
        settings,
        target_groups,
        listeners,
        surplus,
        targets::stage,
        active,
    ];
    for stage in stages {
        if let Some(plan) = stage(desired, seen)? {
            return Ok(plan);
        }
    }
    Ok(Plan::Settled)
}

pub(super) fn do_it(name: &str, verb: Verb) -> Stage {
    Ok(Some(Plan::Do(Mutation { name: name.to_owned(), verb })))
}

/// Everything that decides whose things are, before anything is changed.
fn look(desired: &Desired, seen: &Observed) -> Stage {
    let Some(subnets) = &seen.subnets else { return Ok(Some(Plan::Look(Part::Subnets))) };
    let vpcs: BTreeSet<&str> = subnets.iter().map(|subnet| subnet.vpc.as_str()).collect();
    if vpcs.len() != 1 {
        return Err(Failure::new(
            Class::InvalidConfig,
            "SubnetUnusable",
            format!("load balancer {}: its subnets are in {} VPCs", desired.name, vpcs.len()),
            "name subnets of one VPC in the ProviderConfig",
        ));
    }
    let Some(balancer) = &seen.balancer else { return Ok(Some(Plan::Look(Part::Balancer))) };
    if seen.target_groups.is_none() {
        return Ok(Some(Plan::Look(Part::TargetGroups)));
    }
    if let (Some(balancer), None) = (balancer, &seen.listeners) {
        return Ok(Some(Plan::Look(Part::Listeners { balancer: balancer.arn.clone() })));
    }
    let arns: Vec<String> = seen.arns().filter(|arn| !seen.tags.contains_key(*arn)).cloned().collect();
    if !arns.is_empty() {
        return Ok(Some(Plan::Look(Part::Tags { arns })));
    }
    if seen.groups.is_none() {
        return Ok(Some(Plan::Look(Part::Groups { vpc: seen.vpc() })));
    }
    Ok(None)
}

/// A thing of one of our names that is not ours is never adopted, changed or deleted.
fn ownership(desired: &Desired, seen: &Observed) -> Stage {
    let balancer = seen.balancer().map(|one| ("load balancer", &one.name, seen.tags_of(&one.arn)));
    let groups = desired.ports.iter().filter_map(|port| seen.target_group(&port.name));
    let groups = groups.map(|one| ("target group", &one.name, seen.tags_of(&one.arn)));
    let security_group = seen.group(desired).map(|one| ("security group", &one.name, &one.tags));
    for (kind, name, found) in balancer.into_iter().chain(groups).chain(security_group) {
        if seen.is_doubtful(found) {
            return Ok(Some(doubt(kind, name)));
        }
        if !tags::is_of(found, &desired.owner) {
            return Err(taken(kind, name, found));
        }
    }
    Ok(None)
}

/// Tags may be seen later than what they are on.
pub(super) fn doubt(kind: &str, name: &str) -> Plan {
    Plan::Doubt(format!("the tags of the {kind} {name} to be seen"))
}

fn taken(kind: &str, name: &str, found: &Tags) -> Failure {
    Failure::new(
        Class::Conflict,
        "NameTaken",
        format!("there is a {kind} {name} already, and {}", tags::whose(found)),
        "delete or rename it, or choose another cluster name; it was not touched",
    )
}

/// A load balancer that is made without a security group never gets one: it comes first, and always.
fn security_group(desired: &Desired, seen: &Observed) -> Stage {
    let Some(group) = seen.group(desired) else {
        return do_it(
            &desired.name,
            Verb::CreateGroup { vpc: seen.vpc(), tags: desired.tags(&desired.name) },
        );
    };
    let wanted = desired.rules();
    let missing: BTreeSet<_> = wanted.difference(&group.rules).cloned().collect();
    if !missing.is_empty() {
        return do_it(&desired.name, Verb::Allow { group: group.id.clone(), rules: missing });
    }
    let mut nodes = BTreeSet::new();
    if let Some(wanted) = &desired.nodes {
        let Some(seen_nodes) = &seen.nodes else {
            return Ok(Some(Plan::Look(Part::Nodes { nodes: wanted.clone(), vpc: seen.vpc() })));
        };
        nodes = desired.node_rules(seen_nodes);
        let missing: BTreeSet<_> = nodes.difference(&group.rules).cloned().collect();
        if !missing.is_empty() {
            return do_it(&desired.name, Verb::AllowNodes { group: group.id.clone(), rules: missing });
        }
    }
    // The list of networks is a promise: a rule that nobody asked for breaks it.
    let extra: BTreeSet<_> =
        group.rules.iter().filter(|rule| !wanted.contains(rule) && !nodes.contains(rule)).cloned().collect();
    if !extra.is_empty() {
        return do_it(&desired.name, Verb::Forbid { group: group.id.clone(), rules: extra });
    }
    Ok(None)
}

fn load_balancer(desired: &Desired, seen: &Observed) -> Stage {
    let subnets = desired.one_per_zone(seen.subnets.as_deref().unwrap_or_default());
    let group = seen.group(desired).map(|group| group.id.clone()).unwrap_or_default();
    let Some(balancer) = seen.balancer() else {
        let tags = desired.tags(&desired.name);
        return do_it(
            &desired.name,
            Verb::CreateBalancer { internal: desired.internal, subnets, group, tags },
        );
    };
    if balancer.state == "failed" {
        return Err(Failure::new(
            Class::Terminal,
            "LoadBalancerFailed",
            format!("AWS could not make the load balancer {}: {}", balancer.name, said(&balancer.why)),
            "look at its subnets, then delete the LoadBalancerRequest and create it again",
        ));
    }
    let immutable = |what: &str, remedy: &str| {
        let message = format!("load balancer {}: {what}, which can't be changed", balancer.name);
        Err(Failure::new(Class::InvalidConfig, "Immutable", message, remedy))
    };
    if balancer.internal != desired.internal {
        let is = if balancer.internal { "it is internal" } else { "it is internet-facing" };
        return immutable(
            is,
            "put options.internal back, or delete the LoadBalancerRequest and create it again",
        );
    }
    if balancer.vpc != seen.vpc() {
        return immutable(
            "it is in another VPC",
            "name subnets of its VPC, or delete it and create it again",
        );
    }
    if balancer.subnets != subnets {
        return do_it(&desired.name, Verb::SetSubnets { balancer: balancer.arn.clone(), subnets });
    }
    if balancer.groups.is_empty() {
        return immutable(
            "it was made without a security group",
            "delete the LoadBalancerRequest and create it again",
        );
    }
    if balancer.groups != BTreeSet::from([group.clone()]) {
        return do_it(&desired.name, Verb::SetGroups { balancer: balancer.arn.clone(), group });
    }
    Ok(None)
}

fn said(why: &str) -> &str {
    if why.is_empty() { "no reason was given" } else { why }
}

/// What differs from what is wanted; keys that nobody asked for stay.
fn differing(wanted: &Attributes, there: &Attributes) -> Attributes {
    wanted
        .iter()
        .filter(|(key, value)| there.get(*key) != Some(value))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

fn settings(desired: &Desired, seen: &Observed) -> Stage {
    let Some(balancer) = seen.balancer() else { return Ok(None) };
    let Some(there) = &seen.attributes else {
        return Ok(Some(Plan::Look(Part::Attributes { balancer: balancer.arn.clone() })));
    };
    let attributes = differing(&desired.attributes(), there);
    if attributes.is_empty() {
        return Ok(None);
    }
    do_it(&desired.name, Verb::SetAttributes { balancer: balancer.arn.clone(), attributes })
}

fn target_groups(desired: &Desired, seen: &Observed) -> Stage {
    for port in &desired.ports {
        let Some(group) = seen.target_group(&port.name) else {
            let (vpc, tags) = (seen.vpc(), desired.tags(&port.name));
            return do_it(&port.name, Verb::CreateTargetGroup { port: Box::new(port.clone()), vpc, tags });
        };
        let fixed = (group.port, group.protocol.as_str(), group.target_type.as_str(), group.vpc.as_str());
        if fixed != (port.target_port, "TCP", "instance", seen.vpc().as_str()) {
            return Err(Failure::new(
                Class::InvalidConfig,
                "Immutable",
                format!(
                    "target group {}: port, protocol, kind or VPC differ, which can't be changed",
                    group.name
                ),
                "delete the LoadBalancerRequest and create it again",
            ));
        }
        let target_group = group.arn.clone();
        if group.health != port.health {
            return do_it(&port.name, Verb::SetHealth { target_group, health: port.health.clone() });
        }
        let Some(there) = seen.group_attributes.get(&group.arn) else {
            return Ok(Some(Plan::Look(Part::GroupAttributes { target_group })));
        };
        let attributes = differing(&desired.group_attributes(), there);
        if !attributes.is_empty() {
            return do_it(&port.name, Verb::SetGroupAttributes { target_group, attributes });
        }
    }
    Ok(None)
}

fn listeners(desired: &Desired, seen: &Observed) -> Stage {
    let Some(balancer) = seen.balancer() else { return Ok(None) };
    for port in &desired.ports {
        let Some(group) = seen.target_group(&port.name) else { continue };
        let (name, target_group) = (listener_name(desired, port.port), group.arn.clone());
        // A listener is found by its port alone: the port is what can't be there twice.
        match seen.listeners.iter().flatten().find(|listener| listener.port == port.port) {
            None => {
                let tags = desired.tags(&name);
                let balancer = balancer.arn.clone();
                return do_it(&name, Verb::CreateListener { balancer, port: port.port, target_group, tags });
            }
            Some(listener) => {
                let right =
                    listener.protocol == "TCP" && listener.forwards_to.as_ref() == Some(&target_group);
                if !right {
                    let listener = listener.arn.clone();
                    return do_it(&name, Verb::PointListener { listener, port: port.port, target_group });
                }
            }
        }
    }
    Ok(None)
}

fn listener_name(desired: &Desired, port: i32) -> String {
    format!("{}-{port}", desired.stem)
}

/// What was ours and is not wanted any more: listeners first, since a target group in use can't be deleted.
fn surplus(desired: &Desired, seen: &Observed) -> Stage {
    let ours = |arn: &str| tags::is_of(seen.tags_of(arn), &desired.owner);
    let unwanted = |listener: &&Listener| !desired.ports.iter().any(|port| port.port == listener.port);
    let listener = seen.listeners.iter().flatten().filter(unwanted).find(|listener| ours(&listener.arn));
    if let Some(listener) = listener {
        let verb = Verb::DeleteListener { listener: listener.arn.clone(), port: listener.port };
        return do_it(&listener_name(desired, listener.port), verb);
    }
    let unwanted = |group: &&TargetGroup| !desired.ports.iter().any(|port| port.name == group.name);
    match seen.target_groups.iter().flatten().filter(unwanted).find(|group| ours(&group.arn)) {
        Some(group) => do_it(&group.name, Verb::DeleteTargetGroup { target_group: group.arn.clone() }),
        None => Ok(None),
    }
}

/// Until it is active it passes nothing on, although it has a name.
fn active(_desired: &Desired, seen: &Observed) -> Stage {
    Ok(starting(seen).map(Plan::Wait))
}

/// What is waited for while AWS makes it active.
pub(super) fn starting(seen: &Observed) -> Option<String> {
    let balancer = seen.balancer()?;
    match balancer.state.as_str() {
        "active" | "active_impaired" => None,
        state => Some(format!("the load balancer {} to turn active (it is {state})", balancer.name)),
    }
}
