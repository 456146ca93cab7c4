//! Machines at EC2: looks, asks the plan, makes at most one change.

use super::model::{Image, Instance, Volume};
use super::mutation::{Mutation, Verb};
use super::plan::{Observed, Part, Plan, plan, plan_removal};
use crate::aws::client::{Params, Service, param};
use crate::aws::driver::{Driver, INSTANCE};
use crate::aws::error::CallError;
use crate::aws::settings::architecture;
use crate::aws::tags;
use crate::failure::Failure;
use crate::seam::{
    MachineFacts, MachineTarget, MachineWanted, Machines, Operation, OwnedResource, Owner, Progress,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// What is said when a token has given an instance that has ended.
const AGAIN: &str = "an instance to be launched anew: the one before has ended";

/// Machines of one region.
pub(crate) struct AwsMachines(pub(crate) Arc<Driver>);

#[async_trait]
impl Machines for AwsMachines {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let object = format!("machine {}", wanted.name);
        let uid = &wanted.owner.object_uid;
        let ours = self.ours(&wanted.owner).await?;
        let (spent, told) = (self.0.launches.spent(uid), self.0.launches.told(uid));
        let mut seen = Observed { ours, spent, told, ..Observed::default() };
        // Lists lag behind.
        if seen.alive(&wanted.owner).is_none() && self.0.launches.unseen(uid).is_some() {
            let what = "the new instance to be seen";
            return Ok(Progress::waiting(what, None, self.0.pace.next(uid, INSTANCE)));
        }
        loop {
            match plan(wanted, &self.0.settings, &seen)? {
                Plan::Look(Part::Named) => seen.named = Some(self.named(&wanted.name, &object).await?),
                Plan::Look(Part::Images) => seen.images = Some(self.images(wanted, &object).await?),
                Plan::Look(Part::Volumes) => seen.volumes = Some(self.volumes(&wanted.owner, &object).await?),
                Plan::Do(mutation) => return self.make(&mutation, &wanted.owner, &seen).await,
                Plan::Died(instance, failure) => {
                    // Told once, so that the next call tries again: not at once, since a failure is paused after.
                    self.0.launches.tell(uid, instance);
                    return Err(failure);
                }
                Plan::Wait(what) => {
                    let known = seen.alive(&wanted.owner).map(Instance::facts);
                    let recheck = self.0.pace.next(uid, INSTANCE);
                    return Ok(Progress::InProgress { operation: None, waiting_for: what, recheck, known });
                }
                Plan::Settled(instance) => {
                    self.0.pace.over(uid);
                    return Ok(Progress::Ready(instance.facts()));
                }
                Plan::Gone => return Ok(Progress::waiting("the machine to be seen", None, Duration::ZERO)),
            }
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let seen = Observed { ours: self.ours(&target.owner).await?, ..Observed::default() };
        Ok(seen.alive(&target.owner).map(Instance::facts))
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("machine {}", target.name);
        let uid = &target.owner.object_uid;
        let mut confirmed = false;
        let mut seen = Observed { ours: self.ours(&target.owner).await?, ..Observed::default() };
        loop {
            match plan_removal(&target.name, &target.owner, &seen) {
                Plan::Look(_) => seen.volumes = Some(self.volumes(&target.owner, &object).await?),
                Plan::Do(mutation) => return self.remove(&mutation, &target.owner).await,
                Plan::Wait(what) => {
                    return Ok(Progress::waiting(what, None, self.0.pace.next(uid, INSTANCE)));
                }
                Plan::Died(_, failure) => return Err(failure),
                // Lists lag behind: what this process launched has to have been seen, and nobody believes one look.
                Plan::Gone | Plan::Settled(_) if !confirmed => {
                    confirmed = true;
                    seen =
                        Observed { ours: self.again(&target.owner, &object).await?, ..Observed::default() };
                    if let Some(id) =
                        self.0.launches.unseen(uid).filter(|id| !seen.ours.iter().any(|one| one.id == *id))
                    {
                        let what = format!("the instance {id}, which was just launched, to be seen");
                        return Ok(Progress::waiting(what, None, self.0.pace.next(uid, INSTANCE)));
                    }
                }
                Plan::Gone | Plan::Settled(_) => {
                    self.0.pace.over(uid);
                    self.0.launches.forget(uid);
                    return Ok(Progress::Ready(()));
                }
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "machines of ours";
        let filter = match cluster_uid {
            Some(uid) => tags::filters(&[(&format!("tag:{}", tags::CLUSTER_UID), uid)]),
            None => tags::filters(&[("tag-key", tags::CLUSTER_UID)]),
        };
        let answers = self.0.pages("DescribeInstances", filter.clone(), object).await?;
        let instances = answers.iter().flat_map(Instance::list).filter(Instance::is_there);
        let mut found: Vec<OwnedResource> = instances
            .filter_map(|one| {
                let owner = tags::owner(&one.tags)?;
                let (name, id) = (one.name().to_owned(), one.provider_id());
                Some(OwnedResource { kind: "machine".to_owned(), name, id, owner })
            })
            .collect();
        // A disk whose machine has ended is found by its own tags.
        for answer in self.0.pages("DescribeVolumes", filter, object).await? {
            for volume in answer.list("volumeSet") {
                let all = tags::of_ec2(volume);
                let Some(owner) = tags::owner(&all) else { continue };
                if volume.text("status") == Some("available")
                    && !found.iter().any(|other| other.owner == owner)
                {
                    let name = all.get("Name").cloned().unwrap_or_default();
                    found.push(OwnedResource {
                        kind: "disk".to_owned(),
                        name,
                        id: volume.string("volumeId"),
                        owner,
                    });
                }
            }
        }
        Ok(found)
    }
}

impl AwsMachines {
    /// Instances with an owner's tags, out of one list for all machines of the cluster that are looked at now.
    async fn ours(&self, owner: &Owner) -> Result<Vec<Instance>, Failure> {
        let cluster = &owner.cluster_uid;
        let filter = tags::filters(&[(&format!("tag:{}", tags::CLUSTER_UID), cluster)]);
        let of_all = format!("machines of {}", owner.cluster);
        let listed = self.0.listings.ask(cluster, &owner.object_uid, || self.listed(filter, &of_all)).await;
        let all = listed?;
        let all: Vec<Instance> = all.into_iter().filter(|one| tags::is_of(&one.tags, owner)).collect();
        self.0.launches.saw(&owner.object_uid, all.iter().map(|one| &one.id));
        Ok(all)
    }

    async fn listed(&self, filter: Params, object: &str) -> Result<Vec<Instance>, Failure> {
        let answers = self.0.pages("DescribeInstances", filter, object).await?;
        Ok(answers.iter().flat_map(Instance::list).collect())
    }

    /// The same, asked in another way.
    async fn again(&self, owner: &Owner, object: &str) -> Result<Vec<Instance>, Failure> {
        let filter = tags::filters(&[(&format!("tag:{}", tags::OBJECT_UID), &owner.object_uid)]);
        let answers = self.0.pages("DescribeInstances", filter, object).await?;
        Ok(answers.iter().flat_map(Instance::list).collect())
    }

    async fn named(&self, name: &str, object: &str) -> Result<Vec<Instance>, Failure> {
        let answers = self.0.pages("DescribeInstances", tags::filters(&[("tag:Name", name)]), object).await?;
        Ok(answers.iter().flat_map(Instance::list).collect())
    }

    async fn volumes(&self, owner: &Owner, object: &str) -> Result<Vec<Volume>, Failure> {
        let answers = self.0.pages("DescribeVolumes", tags::filter(owner), object).await?;
        Ok(answers.iter().flat_map(Volume::list).collect())
    }

    /// Images that a machine can boot from, the newest first; none when the region has no such image.
    pub(crate) async fn images(&self, wanted: &MachineWanted, object: &str) -> Result<Vec<Image>, Failure> {
        let choice = self.0.settings.image(wanted)?;
        let instance_type = self.0.settings.size(wanted)?;
        let params = choice.query(architecture(&instance_type));
        let look = || async {
            match self.0.client.read(Service::Ec2, "DescribeImages", params.clone(), object).await {
                Ok(answer) => Ok(Image::list(&answer)),
                Err(CallError::Refused(refusal))
                    if refusal.is(&["InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"]) =>
                {
                    Ok(Vec::new())
                }
                Err(error) => {
                    Err(error.failure(&format!("looking for the image {} for {object}", choice.shown())))
                }
            }
        };
        self.0.images.ask(&format!("{params:?}"), &wanted.name, look).await
    }

    /// Makes one change.
    async fn make(
        &self,
        mutation: &Mutation,
        owner: &Owner,
        seen: &Observed,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let uid = &owner.object_uid;
        self.0.pace.begin(uid);
        self.0.listings.forget(&owner.cluster_uid);
        let change = mutation.change().to_string();
        let waiting = |waiting_for: String, recheck, known| {
            Ok(Progress::InProgress { operation: None, waiting_for, recheck, known })
        };
        match self.0.client.change(&mutation.wire(), &change).await {
            Ok(answer) => {
                let mut known = seen.alive(owner).map(Instance::facts);
                if let Verb::Launch(_) = mutation.verb
                    && let Some(instance) = answer.list("instancesSet").next().map(Instance::read)
                {
                    if instance.is_over() {
                        // The token is remembered for longer than what was launched with it.
                        self.0.launches.is_spent(uid, &instance.id);
                        return waiting(AGAIN.to_owned(), Duration::ZERO, None);
                    }
                    self.0.launches.launched(uid, &instance.id);
                    known = Some(instance.facts());
                }
                waiting(mutation.waiting_for(), self.0.pace.next(uid, INSTANCE), known)
            }
            Err(CallError::Refused(refusal)) if refusal.is(&["IdempotentInstanceTerminated"]) => {
                self.0.launches.is_spent(uid, &format!("ended {}", seen.spent.len()));
                waiting(AGAIN.to_owned(), Duration::ZERO, None)
            }
            // An earlier launch with this token was carried out, and is not seen yet.
            Err(CallError::Refused(refusal)) if refusal.is_there_already() => {
                self.0.launches.is_refused(uid);
                waiting(
                    "the instance that was launched before to be seen".to_owned(),
                    self.0.pace.next(uid, INSTANCE),
                    None,
                )
            }
            Err(CallError::Refused(refusal)) if refusal.has_to_wait() => {
                waiting(mutation.waiting_for(), self.0.pace.next(uid, INSTANCE), None)
            }
            Err(error) => Err(error.failure(&change)),
        }
    }

    async fn remove(&self, mutation: &Mutation, owner: &Owner) -> Result<Progress<()>, Failure> {
        let uid = &owner.object_uid;
        self.0.pace.begin(uid);
        self.0.listings.forget(&owner.cluster_uid);
        let change = mutation.change().to_string();
        match self.0.client.change(&mutation.wire(), &change).await {
            Ok(_) => {}
            // Gone in between, or busy: the next look tells.
            Err(CallError::Refused(refusal)) if refusal.not_found() || refusal.has_to_wait() => {}
            Err(error) => return Err(error.failure(&change)),
        }
        Ok(Progress::waiting(mutation.waiting_for(), None, self.0.pace.next(uid, INSTANCE)))
    }
}

/// The instance in a provider id, or the id itself.
pub(crate) fn instance_id(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

impl Driver {
    /// All pages of a list of EC2.
    pub(crate) async fn pages(
        &self,
        action: &'static str,
        params: Vec<(String, String)>,
        object: &str,
    ) -> Result<Vec<crate::aws::xml::Element>, Failure> {
        let mut answers = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut params = params.clone();
            params.extend(next.iter().map(|token| param("NextToken", token)));
            let answer = self.client.read(Service::Ec2, action, params, object).await;
            let answer = answer.map_err(|error| error.failure(&format!("{action} for {object}")))?;
            next = answer.text("nextToken").map(str::to_owned);
            answers.push(answer);
            if next.is_none() {
                return Ok(answers);
            }
        }
    }
}
