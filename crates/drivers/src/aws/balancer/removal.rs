//! How a load balancer goes. Pure.
//!
//! ```text
//!   load balancer (its listeners go with it) -> target groups -> security group -> gone
//! ```
//!
//! Target groups and security group are found by name and tags, not by the load balancer, so that none is lost when an earlier
//! attempt got only half of the way. Nothing is drained: nobody is left who would answer.

use super::desired::{PROTECTION, names};
use super::model::Attributes;
use super::mutation::{Mutation, Verb};
use super::plan::{Observed, Part, Plan, doubt};
use crate::aws::tags;
use crate::failure::{Class, Failure};
use crate::seam::{LoadBalancerWanted, Owner};

/// What is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) owner: Owner,
    pub(crate) stem: String,
    pub(crate) name: String,
    /// What the request says of deletion protection, if it says anything.
    pub(crate) protection: Option<bool>,
}

impl Removal {
    pub(crate) fn new(wanted: &LoadBalancerWanted) -> Self {
        let (stem, name) = names(wanted);
        let protection = wanted.spec.options.as_ref().map(|options| options.deletion_protection);
        Self { owner: wanted.owner.clone(), stem, name, protection }
    }
}

/// The next step towards its absence; `Settled` when nothing of ours is left.
pub(crate) fn plan_removal(removal: &Removal, seen: &Observed) -> Result<Plan, Failure> {
    let Some(balancer) = &seen.balancer else { return Ok(Plan::Look(Part::Balancer)) };
    if seen.target_groups.is_none() {
        return Ok(Plan::Look(Part::TargetGroups));
    }
    let arns: Vec<String> = seen.arns().filter(|arn| !seen.tags.contains_key(*arn)).cloned().collect();
    if !arns.is_empty() {
        return Ok(Plan::Look(Part::Tags { arns }));
    }
    let named = balancer.iter().map(|one| ("load balancer", &one.name, &one.arn));
    let groups = seen.target_groups.iter().flatten().map(|one| ("target group", &one.name, &one.arn));
    let mut bare = named.chain(groups).filter(|(_, _, arn)| seen.is_doubtful(seen.tags_of(arn)));
    if let Some((kind, name, _)) = bare.next() {
        return Ok(doubt(kind, name));
    }
    let ours = |arn: &str| tags::is_of(seen.tags_of(arn), &removal.owner);
    let mutation = |name: &str, verb| Ok(Plan::Do(Mutation { name: name.to_owned(), verb }));
    if let Some(balancer) = balancer.as_ref().filter(|balancer| ours(&balancer.arn)) {
        let arn = balancer.arn.clone();
        let Some(attributes) = &seen.attributes else {
            return Ok(Plan::Look(Part::Attributes { balancer: arn }));
        };
        let protected = attributes.get(PROTECTION).is_some_and(|value| value == "true");
        return match (protected, removal.protection) {
            (false, _) => mutation(&removal.name, Verb::DeleteBalancer { balancer: arn }),
            // The request says in so many words that it is not protected (any more).
            (true, Some(false)) => {
                let attributes = Attributes::from([(PROTECTION.to_owned(), "false".to_owned())]);
                mutation(&removal.name, Verb::SetAttributes { balancer: arn, attributes })
            }
            (true, _) => Err(protection(&removal.name)),
        };
    }
    if let Some(group) = seen.target_groups.iter().flatten().find(|group| ours(&group.arn)) {
        return mutation(&group.name, Verb::DeleteTargetGroup { target_group: group.arn.clone() });
    }
    let Some(groups) = &seen.groups else { return Ok(Plan::Look(Part::OwnGroups)) };
    match groups.iter().find(|group| tags::is_of(&group.tags, &removal.owner)) {
        Some(group) => mutation(&group.name, Verb::DeleteGroup { group: group.id.clone() }),
        None => Ok(Plan::Settled),
    }
}

fn protection(name: &str) -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "DeletionProtected",
        format!("the load balancer {name} is protected against deletion"),
        "set options.deletionProtection to false in the LoadBalancerRequest, or switch the protection off at AWS",
    )
}
