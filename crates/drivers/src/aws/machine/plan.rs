//! All decisions about a machine. Pure: what is wanted and what was seen give the next step.
//!
//! ```text
//!   (nobody) -launch--> pending --> running, with its address: settled
//!                          stopped -start--^
//!   removal: any -terminate--> shutting-down --> terminated --> its disks are gone too
//! ```
//!
//! A launch carries a token that follows from the machine's uid, so that a launch whose answer was lost, or a look that is
//! behind, never makes a second instance. Instances of ours that have ended are part of it: a new one needs a new token.

use super::model::{Image, Instance, State, Volume};
use super::mutation::{Launch, Mutation, Verb};
use crate::aws::settings::{Settings, architecture};
use crate::aws::sign::sha256;
use crate::aws::tags;
use crate::failure::{Class, Failure};
use crate::seam::{MachineWanted, Owner};
use std::collections::BTreeSet;

/// All that was seen for one machine. What was not looked at is `None`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    /// Instances with the owner's tags, in any state.
    pub(crate) ours: Vec<Instance>,
    /// Instances of that name.
    pub(crate) named: Option<Vec<Instance>>,
    /// Images that fit, the best first.
    pub(crate) images: Option<Vec<Image>>,
    /// Volumes with the owner's tags.
    pub(crate) volumes: Option<Vec<Volume>>,
    /// Instances that have ended and are not shown any more, or whatever else tells that a token is used up.
    pub(crate) spent: BTreeSet<String>,
    /// Instances whose death was told.
    pub(crate) told: BTreeSet<String>,
}

/// What else has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Named,
    Images,
    Volumes,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    Look(Part),
    Do(Mutation),
    Wait(String),
    /// An instance has died by itself, and that was not told yet.
    Died(String, Failure),
    /// It is there and on.
    Settled(Instance),
    /// It is not there, and neither is anything of it.
    Gone,
}

impl Observed {
    /// Everything that is the owner's, by whichever look it was found.
    fn all_of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = &'a Instance> {
        let named =
            self.named.iter().flatten().filter(|one| !self.ours.iter().any(|other| other.id == one.id));
        self.ours.iter().chain(named).filter(|instance| tags::is_of(&instance.tags, owner))
    }

    /// The owner's instance, as long as it is there.
    pub(crate) fn alive<'a>(&'a self, owner: &'a Owner) -> Option<&'a Instance> {
        self.all_of(owner).find(|instance| instance.is_there())
    }
}

/// The next step towards the machine that is wanted.
pub(crate) fn plan(wanted: &MachineWanted, settings: &Settings, seen: &Observed) -> Result<Plan, Failure> {
    let mutation = |verb| Plan::Do(Mutation { name: wanted.name.clone(), verb });
    if let Some(instance) = seen.alive(&wanted.owner) {
        let id = &instance.id;
        return Ok(match instance.state {
            State::Running if instance.private.is_some() => Plan::Settled(instance.clone()),
            State::Running => Plan::Wait(format!("the instance {id} to get an address")),
            State::Pending => Plan::Wait(format!("the instance {id} to run")),
            State::Stopping => Plan::Wait(format!("the instance {id} to have stopped")),
            State::Stopped => mutation(Verb::Start { id: id.clone() }),
            State::ShuttingDown | State::Terminated => Plan::Wait(format!("the instance {id} to have ended")),
        });
    }
    let Some(named) = &seen.named else { return Ok(Plan::Look(Part::Named)) };
    let foreign = named.iter().find(|one| one.is_there() && !tags::is_of(&one.tags, &wanted.owner));
    if let Some(foreign) = foreign {
        return Err(taken(&wanted.name, foreign));
    }
    let last = seen.all_of(&wanted.owner).last();
    if let Some((instance, (code, words))) = last.and_then(|one| Some((one, one.died_of()?)))
        && !seen.told.contains(&instance.id)
    {
        return Ok(Plan::Died(instance.id.clone(), died(&wanted.name, &instance.id, code, words)));
    }
    let choice = settings.image(wanted)?;
    let instance_type = settings.size(wanted)?;
    let Some(images) = &seen.images else { return Ok(Plan::Look(Part::Images)) };
    let Some(image) = images.first() else {
        return Err(Failure::new(
            Class::InvalidConfig,
            "NoSuchImage",
            format!("{}: the region {} has no image {}", wanted.name, settings.region, choice.shown()),
            "name an image that is there in this region, and the account that owns it (ami, amiOwner)",
        ));
    };
    if !image.architecture.is_empty() && image.architecture != architecture(&instance_type) {
        return Err(Failure::new(
            Class::InvalidConfig,
            "ArchitectureMismatch",
            format!(
                "{}: {instance_type} does not run {} images such as {}",
                wanted.name, image.architecture, image.id
            ),
            "name an image and an instance type of the same architecture",
        ));
    }
    Ok(mutation(Verb::Launch(Box::new(launch(wanted, settings, seen, image, instance_type)?))))
}

/// A new instance, with everything said at once.
fn launch(
    wanted: &MachineWanted,
    settings: &Settings,
    seen: &Observed,
    image: &Image,
    instance_type: String,
) -> Result<Launch, Failure> {
    let disks = wanted.extra_disks.iter().map(|disk| {
        (disk.size_gb, disk.storage_class.clone().unwrap_or_else(|| settings.volume_type.clone()))
    });
    let mut all_tags = tags::ours(&wanted.owner, &wanted.name, &wanted.labels);
    // The cloud controller finds the machines, and by them the network, of its cluster by this one.
    all_tags.insert(format!("kubernetes.io/cluster/{}", wanted.owner.cluster), "owned".to_owned());
    Ok(Launch {
        token: token(&wanted.owner, seen),
        image: image.id.clone(),
        image_words: settings.image(wanted)?.shown().to_owned(),
        root_device: Some(image.root_device.clone())
            .filter(|d| !d.is_empty())
            .unwrap_or_else(|| "/dev/xvda".to_owned()),
        instance_type,
        subnet: settings.place(&wanted.name).map(str::to_owned),
        groups: settings.groups.clone(),
        address: wanted.static_address.as_ref().map(|fixed| fixed.address),
        public_address: settings.public_address,
        profile: settings.instance_profile.clone(),
        root_gb: wanted.disk_gb,
        disks: disks.collect(),
        volume_type: settings.volume_type.clone(),
        encrypt: settings.encrypt,
        user_data: wanted.user_data.clone(),
        tags: all_tags,
    })
}

/// The next step towards its absence.
pub(crate) fn plan_removal(name: &str, owner: &Owner, seen: &Observed) -> Plan {
    let mutation = |verb| Plan::Do(Mutation { name: name.to_owned(), verb });
    if let Some(instance) = seen.alive(owner) {
        let id = instance.id.clone();
        return match instance.state {
            State::ShuttingDown => Plan::Wait(format!("the instance {id} to have ended")),
            _ => mutation(Verb::Terminate { id }),
        };
    }
    let Some(volumes) = &seen.volumes else { return Plan::Look(Part::Volumes) };
    // Disks go with their instance; one that was detached by hand, or kept by a changed setting, would stay and cost.
    if let Some(left) = volumes.iter().find(|volume| matches!(volume.state.as_str(), "available" | "error")) {
        return mutation(Verb::DeleteVolume { id: left.id.clone() });
    }
    match volumes.iter().find(|volume| volume.state != "deleted") {
        Some(volume) => Plan::Wait(format!("the disk {} to be gone", volume.id)),
        None => Plan::Gone,
    }
}

/// The same for the same machine, another after an instance of it has ended.
fn token(owner: &Owner, seen: &Observed) -> String {
    let mut ended: Vec<&str> =
        seen.all_of(owner).filter(|one| !one.is_there()).map(|one| one.id.as_str()).collect();
    ended.extend(seen.spent.iter().map(String::as_str));
    ended.sort_unstable();
    ended.dedup();
    sha256(&format!("butler-launch {} {} {}", owner.cluster_uid, owner.object_uid, ended.join(" ")))
}

/// What a death while starting means, by EC2's code.
fn died(name: &str, id: &str, code: &str, words: &str) -> Failure {
    let (class, reason, remedy) = match code {
        "Server.InsufficientInstanceCapacity" => (
            Class::Quota,
            "NoCapacity",
            "AWS has no such machine in that zone now: it is tried again; another instance type or zone may have some",
        ),
        "Client.VolumeLimitExceeded" => {
            (Class::Quota, "QuotaExceeded", "remove disks that are not used, or ask AWS to raise the quota")
        }
        code if code.starts_with("Client.InvalidKMSKey") || code.starts_with("Client.InvalidSnapshot") => (
            Class::InvalidConfig,
            "DiskUnusable",
            "mend the key that disks are encrypted with, or the image's snapshot",
        ),
        _ => (
            Class::Retryable,
            "InstanceDied",
            "it is made anew; when it dies again, look at the key of its encrypted disks and at its image",
        ),
    };
    let words = if words.starts_with(code) { words.to_owned() } else { format!("{code}: {words}") };
    Failure::new(
        class,
        reason,
        format!("{name}: the instance {id} ended by itself: AWS says: {words}"),
        remedy,
    )
}

fn taken(name: &str, foreign: &Instance) -> Failure {
    Failure::new(
        Class::Conflict,
        "NameTaken",
        format!(
            "the instance {} has the name {name} already, and {}",
            foreign.id,
            tags::whose(&foreign.tags)
        ),
        "rename or terminate that instance, or choose another cluster name; it was not touched",
    )
}
