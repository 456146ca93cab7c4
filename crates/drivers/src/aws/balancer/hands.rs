//! Load balancers at AWS: looks, asks the plan, makes at most one change.

use super::desired::Desired;
use super::facts::facts;
use super::kept::{self, Kept};
use super::look::Whose;
use super::model::{Balancer, TargetGroup};
use super::mutation::{Mutation, Verb};
use super::plan::{Observed, Part, Plan, plan, starting};
use super::removal::{Removal, plan_removal};
use crate::aws::driver::Driver;
use crate::aws::error::CallError;
use crate::aws::tags::{self, Tags};
use crate::aws::xml::Element;
use crate::failure::Failure;
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, Operation, OwnedResource, Progress};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Load balancers of one region.
pub(crate) struct AwsLoadBalancers {
    driver: Arc<Driver>,
    /// By the uid of the request; saves calls, and nothing else.
    kept: Mutex<BTreeMap<String, Kept>>,
}

/// A load balancer that was made is seen within this time; later it is asked for anew, which makes no second one.
const UNSEEN: Duration = Duration::from_secs(30);

/// The longest pause between two looks at something that AWS makes.
const LATEST: Duration = Duration::from_secs(5);

/// What came of a change.
enum Made {
    /// It was made, and AWS has said this.
    Yes(Element),
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
        let desired = Desired::new(wanted, &self.driver.settings)?;
        let whose = Whose {
            owner: &desired.owner,
            stem: &desired.stem,
            name: &desired.name,
            subnets: &desired.subnets,
        };
        let uid = &wanted.owner.object_uid;
        // Taken out: what is not put back, since something failed, is looked at anew.
        let kept = self.kept.lock().remove(uid);
        let made = kept.as_ref().and_then(|kept| kept.made).filter(|made| made.elapsed() < UNSEEN);
        let unseen = || Observed { bare_is_foreign: self.driver.doubts.are_over(uid), ..Observed::default() };
        let mut seen = unseen();
        let mut fresh = true;
        let mut now = Kept::new(made);
        match kept {
            Some(kept) if kept.rest.as_ref().is_some_and(|rest| rest.is_for(wanted)) => {
                let balancer = self.driver.balancer(&desired.name, &object).await?;
                if let Some(rest) = kept.rest.as_ref().filter(|rest| rest.goes_on(balancer.as_ref())) {
                    let (waiting_for, known) = (rest.waiting_for.clone(), rest.known.clone());
                    let recheck = self.driver.pace.next(uid, LATEST);
                    self.keep(uid, kept);
                    return Ok(Progress::InProgress { operation: None, waiting_for, recheck, known });
                }
                seen.balancer = Some(balancer);
            }
            Some(kept) => {
                if let Some(before) = kept.seen() {
                    (seen, fresh, now) =
                        (Observed { bare_is_foreign: seen.bare_is_foreign, ..before }, false, kept);
                }
            }
            None => {}
        }
        loop {
            match plan(&desired, &seen)? {
                Plan::Look(part) => self.driver.look(part, &whose, &mut seen, &object).await?,
                Plan::Doubt(what) => {
                    self.driver.doubts.arise(uid);
                    return Ok(Progress::waiting(what, None, self.driver.pace.next(uid, LATEST)));
                }
                // It was asked for a moment ago, and a list does not show it yet.
                Plan::Do(Mutation { verb: Verb::CreateBalancer { .. }, .. }) if made.is_some() => {
                    seen.balancer = None;
                    self.keep(uid, now.with(seen));
                    let recheck = self.driver.pace.next(uid, LATEST);
                    return Ok(Progress::waiting("the load balancer to be seen", None, recheck));
                }
                Plan::Do(mutation) => {
                    self.driver.doubts.end(uid);
                    let known = self.known(&desired, &mut seen, &whose, wanted, &object).await?;
                    let recheck = match self.make(&mutation, uid).await? {
                        Made::Yes(answer) => {
                            if matches!(mutation.verb, Verb::CreateBalancer { .. }) {
                                now.made = Some(Instant::now());
                            }
                            if let Some(seen) = kept::after(&mutation, &answer, seen) {
                                self.keep(uid, now.with(seen));
                            }
                            Duration::ZERO
                        }
                        Made::NotYet => self.driver.pace.next(uid, LATEST),
                    };
                    let waiting_for = mutation.waiting_for();
                    return Ok(Progress::InProgress { operation: None, waiting_for, recheck, known });
                }
                Plan::Wait(waiting_for) => {
                    let known = self.known(&desired, &mut seen, &whose, wanted, &object).await?;
                    let recheck = self.driver.pace.next(uid, LATEST);
                    if starting(&seen).as_ref() == Some(&waiting_for) {
                        self.keep(uid, now.at_rest(&seen, wanted, &waiting_for, known.clone()));
                    }
                    return Ok(Progress::InProgress { operation: None, waiting_for, recheck, known });
                }
                // Only what is seen now counts.
                Plan::Settled if !fresh => (fresh, seen) = (true, unseen()),
                Plan::Settled => {
                    self.driver.pace.over(uid);
                    self.driver.doubts.end(uid);
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
        self.kept.lock().remove(uid);
        let mut confirmed = false;
        let fresh = || Observed { bare_is_foreign: self.driver.doubts.are_over(uid), ..Observed::default() };
        let mut seen = fresh();
        loop {
            match plan_removal(&removal, &seen)? {
                Plan::Look(part) => self.driver.look(part, &whose, &mut seen, &object).await?,
                Plan::Doubt(what) => {
                    self.driver.doubts.arise(uid);
                    return Ok(Progress::waiting(what, None, self.driver.pace.next(uid, LATEST)));
                }
                Plan::Do(mutation) => {
                    let recheck = match self.make(&mutation, uid).await? {
                        Made::Yes(_) => Duration::ZERO,
                        Made::NotYet => self.driver.pace.next(uid, LATEST),
                    };
                    return Ok(Progress::waiting(mutation.waiting_for(), None, recheck));
                }
                Plan::Wait(what) => {
                    return Ok(Progress::waiting(what, None, self.driver.pace.next(uid, LATEST)));
                }
                // Lists lag behind: nobody believes one look.
                Plan::Settled if !confirmed => {
                    confirmed = true;
                    seen = fresh();
                }
                Plan::Settled => {
                    self.driver.pace.over(uid);
                    self.driver.doubts.end(uid);
                    return Ok(Progress::Ready(()));
                }
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "load balancers of ours";
        let mut named: Vec<(&str, String, String)> = Vec::new();
        for answer in self.driver.elb_pages("DescribeLoadBalancers", Vec::new(), object).await? {
            let all = answer.list("DescribeLoadBalancersResult/LoadBalancers").map(Balancer::read);
            named.extend(all.map(|one| ("load balancer", one.name, one.arn)));
        }
        for answer in self.driver.elb_pages("DescribeTargetGroups", Vec::new(), object).await? {
            let all = answer.list("DescribeTargetGroupsResult/TargetGroups").map(TargetGroup::read);
            named.extend(all.map(|one| ("target group", one.name, one.arn)));
        }
        let arns: Vec<String> = named.iter().map(|(_, _, arn)| arn.clone()).collect();
        let mut all_tags = self.driver.tags(&arns, object).await?;
        let filter = tags::filters(&[("tag-key", tags::CLUSTER_UID)]);
        for group in self.driver.security_groups(filter, object).await? {
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

    async fn of_services(&self, cluster: &str) -> Result<Vec<String>, Failure> {
        let object = "load balancers of Services";
        let key = format!("kubernetes.io/cluster/{cluster}");
        let made = |tags: &Tags| tags.get(&key).is_some_and(|value| value == "owned");
        let mut all = Vec::new();
        for answer in self.driver.elb_pages("DescribeLoadBalancers", Vec::new(), object).await? {
            all.extend(answer.list("DescribeLoadBalancersResult/LoadBalancers").map(Balancer::read));
        }
        let arns: Vec<String> = all.iter().map(|one| one.arn.clone()).collect();
        let all_tags = self.driver.tags(&arns, object).await?;
        let balancers = all.into_iter().filter(|one| all_tags.get(&one.arn).is_some_and(made));
        let mut found: Vec<String> = balancers.map(|one| format!("load balancer {}", one.name)).collect();
        // A classic load balancer, of which another API tells, is known by the group that was made with it.
        let filter = tags::filters(&[(&format!("tag:{key}"), "owned")]);
        let groups = self.driver.security_groups(filter, object).await?;
        found.extend(groups.into_iter().map(|group| format!("security group {} ({})", group.name, group.id)));
        Ok(found)
    }
}

impl AwsLoadBalancers {
    pub(crate) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, kept: Mutex::default() }
    }

    fn keep(&self, uid: &str, kept: Kept) {
        self.kept.lock().insert(uid.to_owned(), kept);
    }

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
            self.driver.look(Part::Health { target_group }, whose, seen, object).await?;
        }
        Ok(facts(desired, seen, wanted.spec.port))
    }

    /// Makes one change.
    async fn make(&self, mutation: &Mutation, uid: &str) -> Result<Made, Failure> {
        let change = mutation.change().to_string();
        match self.driver.client.change(&mutation.wire(), &change).await {
            Ok(answer) => {
                self.driver.pace.begin(uid);
                Ok(Made::Yes(answer))
            }
            // Made before and not seen, gone in between, or in use for a while: the next look tells.
            Err(CallError::Refused(refusal))
                if refusal.is_there_already() || refusal.not_found() || refusal.has_to_wait() =>
            {
                Ok(Made::NotYet)
            }
            // The group is always the one of ours that was just looked at: only the other service does not know it yet.
            Err(CallError::Refused(refusal)) if mutation.names_group() && refusal.group_not_known() => {
                Ok(Made::NotYet)
            }
            Err(error) => Err(error.failure(&change)),
        }
    }
}
