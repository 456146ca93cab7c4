//! Machines at Google: looks, asks the plan, makes at most one change.

use super::driver::{Driver, SOON, Sent};
use super::machine_plan::{
    Plan, about, disk_names, facts, identify, part, plan, plan_removal, users, zone_of,
};
use super::names::{LABEL_CLUSTER_UID, LABEL_OBJECT_UID, google_name};
use super::part::{Kind, Mutation, Part, Scope, Thing, Verb};
use crate::failure::{Class, Failure};
use crate::seam::{MachineFacts, MachineTarget, MachineWanted, Machines, Operation, OwnedResource, Progress};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Machines of one project.
pub(crate) struct GcpMachines(pub(crate) Arc<Driver>);

#[async_trait]
impl Machines for GcpMachines {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let object = format!("machine {}", wanted.name);
        let under_way = self.0.follow(operation, &object).await?;
        if !under_way.is_empty() {
            let what = "the instance to be made";
            return Ok(Progress::waiting(what, under_way.operation(), under_way.recheck));
        }
        let zones = self.0.zones(&object).await?;
        let zone = self.0.settings.place(&wanted.name, &zones)?;
        let found = self.look(&wanted.name, zone, &object).await?;
        let known = || {
            let ours = identify(&wanted.owner, &found).ok().flatten();
            ours.map(|thing| facts(thing, &self.0.settings))
        };
        let disks = if found.is_empty() { self.disks(wanted, zone, &object).await? } else { Vec::new() };
        match plan(wanted, &self.0.settings, zone, &found, &disks)? {
            Plan::Do(mutation) => self.make(&mutation, known()).await,
            Plan::Wait(what) => Ok(waiting(what, None, SOON, known())),
            Plan::Settled => match known() {
                Some(facts) => Ok(Progress::Ready(facts)),
                None => Ok(Progress::waiting("the instance to be seen", None, SOON)),
            },
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let object = format!("machine {}", target.name);
        if let Some(facts) = self.listed(target).await? {
            return Ok(Some(facts));
        }
        let zone = self.zone(target, &object).await?;
        let found = self.look(&target.name, &zone, &object).await?;
        match identify(&target.owner, &found) {
            Ok(Some(thing)) => Ok(Some(facts(thing, &self.0.settings))),
            Ok(None) | Err(Failure { class: Class::Conflict, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("machine {}", target.name);
        let under_way = self.0.follow(operation, &object).await?;
        if !under_way.is_empty() {
            let what = "the instance to be deleted";
            return Ok(Progress::waiting(what, under_way.operation(), under_way.recheck));
        }
        let zone = self.zone(target, &object).await?;
        let found = self.look(&target.name, &zone, &object).await?;
        if let Some(mutation) = plan_removal(&target.name, &target.owner, &found) {
            return self.make(&mutation, None).await;
        }
        // A creation whose answer was lost may not show its instance yet.
        let name = google_name(&target.name);
        let scopes: Vec<Scope> = self.0.zones(&object).await?.into_iter().map(Scope::Zone).collect();
        if let Some(operation) = self.0.being_made(&scopes, |made| made == name, &object).await? {
            let what = "a creation that is under way to finish";
            return Ok(Progress::waiting(what, Some(operation), SOON));
        }
        match self.left_disk(target, &object).await? {
            Some(mutation) => self.make(&mutation, None).await,
            None => Ok(Progress::Ready(())),
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "machines of ours";
        let mut owned = Vec::new();
        for kind in [Kind::Instance, Kind::Disk] {
            let found = self.0.list(kind, "", object).await?;
            for thing in found.iter().filter(|thing| kind == Kind::Instance || users(thing).is_empty()) {
                let Some(mark) = &thing.mark else { continue };
                if cluster_uid.is_none_or(|uid| uid == mark.cluster_uid) {
                    owned.push(OwnedResource {
                        kind: if kind == Kind::Instance { "machine" } else { "disk" }.to_owned(),
                        name: thing.part.name.clone(),
                        id: match kind {
                            Kind::Instance => facts(thing, &self.0.settings).provider_id,
                            _ => thing.part.path(),
                        },
                        owner: mark.owner(),
                    });
                }
            }
        }
        Ok(owned)
    }
}

impl GcpMachines {
    /// A machine in one list of all machines of its cluster, for all that are looked at now. What is not in it is asked for by name.
    async fn listed(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let cluster = target.owner.cluster_uid.to_lowercase();
        let of_all = format!("machines of {}", target.owner.cluster);
        let filter = format!("labels.{LABEL_CLUSTER_UID} = {cluster}");
        let look = || self.0.list(Kind::Instance, &filter, &of_all);
        let found = self.0.listings.ask(&cluster, &target.owner.object_uid, look).await?;
        let name = google_name(&target.name);
        let ours = found.iter().find(|thing| thing.part.name == name && thing.is_of(&target.owner));
        Ok(ours.map(|thing| facts(thing, &self.0.settings)))
    }

    /// Instances of a name. Where it should be is asked for by name, which is never behind; all other zones by a list, since a
    /// machine stays where it is when the zones of the settings change.
    async fn look(&self, name: &str, zone: &str, object: &str) -> Result<Vec<Thing>, Failure> {
        if let Some(thing) = self.0.find(&part(name, zone), object).await? {
            return Ok(vec![thing]);
        }
        self.0.instances(&BTreeSet::from([google_name(name)]), object).await
    }

    /// Disks that have the names that a new machine's are going to have.
    async fn disks(&self, wanted: &MachineWanted, zone: &str, object: &str) -> Result<Vec<Thing>, Failure> {
        let mut found = Vec::new();
        for name in disk_names(wanted) {
            let part = Part::new(Kind::Disk, Scope::Zone(zone.to_owned()), name);
            found.extend(self.0.find(&part, object).await?);
        }
        Ok(found)
    }

    async fn zone(&self, target: &MachineTarget, object: &str) -> Result<String, Failure> {
        match target.provider_id.as_deref().and_then(zone_of) {
            Some(zone) => Ok(zone.to_owned()),
            None => {
                let zones = self.0.zones(object).await?;
                Ok(self.0.settings.place(&target.name, &zones)?.to_owned())
            }
        }
    }

    /// Makes one change.
    async fn make<T>(&self, mutation: &Mutation, known: Option<T>) -> Result<Progress<T>, Failure> {
        Ok(match self.0.send(mutation).await? {
            Sent::Began { operation, recheck } => waiting(mutation.waiting_for(), operation, recheck, known),
            Sent::LookAgain { why, recheck } => waiting(why, None, recheck, known),
        })
    }

    /// A disk of ours that outlived its instance: somebody has told it to, or its creation failed half-way.
    async fn left_disk(&self, target: &MachineTarget, object: &str) -> Result<Option<Mutation>, Failure> {
        let filter = format!("labels.{LABEL_OBJECT_UID} = {}", target.owner.object_uid.to_lowercase());
        let disks = self.0.list(Kind::Disk, &filter, object).await?;
        let left = disks.into_iter().find(|disk| disk.is_of(&target.owner) && users(disk).is_empty());
        Ok(left.map(|disk| Mutation {
            part: disk.part,
            about: about(&target.name, &target.owner),
            verb: Verb::Delete,
        }))
    }
}

/// In progress, with what is known.
pub(crate) fn waiting<T>(
    waiting_for: String,
    operation: Option<Operation>,
    recheck: std::time::Duration,
    known: Option<T>,
) -> Progress<T> {
    Progress::InProgress { operation, waiting_for, recheck, known }
}
