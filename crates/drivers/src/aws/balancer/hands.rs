//! Load balancers at AWS: looks, asks the plan, makes at most one change.

use super::desired::Desired;
use super::facts::facts;
use super::look::Whose;
use super::model::{Balancer, TargetGroup};
use super::mutation::Mutation;
use super::plan::{Observed, Part, Plan, plan};
use super::removal::{Removal, plan_removal};
use crate::aws::driver::Driver;
use crate::aws::error::CallError;
use crate::aws::tags;
use crate::failure::Failure;
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, Operation, OwnedResource, Progress};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// Load balancers of one region.
pub(crate) struct AwsLoadBalancers(pub(crate) Arc<Driver>);

/// What came of a change.
enum Made {
    /// It was made; the next look shows it.
    Yes,
    /// Something else has to happen first, or an earlier change is not seen yet.
    NotYet,
}

#[async_trait]
impl LoadBalancers for AwsLoadBalancers {
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure> {
        let object = format!("load balancer {}", wanted.name);
        let desired = Desired::new(wanted, &self.0.settings)?;
        let whose = Whose {
            owner: &desired.owner,
            stem: &desired.stem,
            name: &desired.name,
            subnets: &desired.subnets,
        };
        let uid = &wanted.owner.object_uid;
        let mut seen = Observed::default();
        loop {
            match plan(&desired, &seen)? {
                Plan::Look(part) => self.0.look(part, &whose, &mut seen, &object).await?,
                Plan::Do(mutation) => {
                    let known = self.known(&desired, &mut seen, &whose, wanted, &object).await?;
                    let recheck = match self.make(&mutation, uid).await? {
                        Made::Yes => Duration::ZERO,
                        Made::NotYet => self.0.pace.next(uid),
                    };
                    let waiting_for = mutation.waiting_for();
                    return Ok(Progress::InProgress { operation: None, waiting_for, recheck, known });
                }
                Plan::Wait(waiting_for) => {
                    let known = self.known(&desired, &mut seen, &whose, wanted, &object).await?;
                    let recheck = self.0.pace.next(uid);
                    return Ok(Progress::InProgress { operation: None, waiting_for, recheck, known });
                }
                Plan::Settled => {
                    self.0.pace.over(uid);
                    let Some(known) = facts(&desired, &seen, wanted.spec.port) else {
                        return Ok(Progress::waiting("the load balancer to be seen", None, Duration::ZERO));
                    };
                    return Ok(Progress::Ready(known));
                }
            }
        }
    }

    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("load balancer {}", wanted.name);
        let removal = Removal::new(wanted);
        let whose = Whose { owner: &removal.owner, stem: &removal.stem, name: &removal.name, subnets: &[] };
        let uid = &wanted.owner.object_uid;
        let mut confirmed = false;
        let mut seen = Observed::default();
        loop {
            match plan_removal(&removal, &seen)? {
                Plan::Look(part) => self.0.look(part, &whose, &mut seen, &object).await?,
                Plan::Do(mutation) => {
                    let recheck = match self.make(&mutation, uid).await? {
                        Made::Yes => Duration::ZERO,
                        Made::NotYet => self.0.pace.next(uid),
                    };
                    return Ok(Progress::waiting(mutation.waiting_for(), None, recheck));
                }
                Plan::Wait(what) => return Ok(Progress::waiting(what, None, self.0.pace.next(uid))),
                // Lists lag behind: nobody believes one look.
                Plan::Settled if !confirmed => {
                    confirmed = true;
                    seen = Observed::default();
                }
                Plan::Settled => {
                    self.0.pace.over(uid);
                    return Ok(Progress::Ready(()));
                }
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "load balancers of ours";
        let mut named: Vec<(&str, String, String)> = Vec::new();
        for answer in self.0.elb_pages("DescribeLoadBalancers", Vec::new(), object).await? {
            let all = answer.list("DescribeLoadBalancersResult/LoadBalancers").map(Balancer::read);
            named.extend(all.map(|one| ("load balancer", one.name, one.arn)));
        }
        for answer in self.0.elb_pages("DescribeTargetGroups", Vec::new(), object).await? {
            let all = answer.list("DescribeTargetGroupsResult/TargetGroups").map(TargetGroup::read);
            named.extend(all.map(|one| ("target group", one.name, one.arn)));
        }
        let arns: Vec<String> = named.iter().map(|(_, _, arn)| arn.clone()).collect();
        let mut all_tags = self.0.tags(&arns, object).await?;
        let filter = tags::filters(&[("tag-key", tags::CLUSTER_UID)]);
        for group in self.0.security_groups(filter, object).await? {
            all_tags.insert(group.id.clone(), group.tags);
            named.push(("security group", group.name, group.id));
        }
        let owned = named.into_iter().filter_map(|(kind, name, id)| {
            let owner = tags::owner(all_tags.get(&id)?)?;
            let ours = cluster_uid.is_none_or(|uid| uid == owner.cluster_uid);
            ours.then(|| OwnedResource { kind: kind.to_owned(), name, id, owner })
        });
        Ok(owned.collect())
    }
}

impl AwsLoadBalancers {
    /// What is known while something is left to do. Targets of ours are looked at even where the step did not need them: they
    /// must not seem to be gone because nobody looked.
    async fn known(
        &self,
        desired: &Desired,
        seen: &mut Observed,
        whose: &Whose<'_>,
        wanted: &LoadBalancerWanted,
        object: &str,
    ) -> Result<Option<LoadBalancerFacts>, Failure> {
        for target_group in seen.groups_with_targets() {
            self.0.look(Part::Health { target_group }, whose, seen, object).await?;
        }
        Ok(facts(desired, seen, wanted.spec.port))
    }

    /// Makes one change.
    async fn make(&self, mutation: &Mutation, uid: &str) -> Result<Made, Failure> {
        let change = mutation.change().to_string();
        match self.0.client.change(&mutation.wire(), &change).await {
            Ok(_) => {
                self.0.pace.begin(uid);
                Ok(Made::Yes)
            }
            // Made before and not seen, gone in between, or in use for a while: the next look tells.
            Err(CallError::Refused(refusal))
                if refusal.is_there_already() || refusal.not_found() || refusal.has_to_wait() =>
            {
                Ok(Made::NotYet)
            }
            Err(error) => Err(error.failure(&change)),
        }
    }
}
