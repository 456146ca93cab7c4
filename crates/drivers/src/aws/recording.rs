//! The dry run's AWS: a model in memory of what each change does, under the same plans as the real one.

mod balancers;

pub(crate) use balancers::{apply, look};

use super::balancer::desired::Desired;
use super::balancer::facts::facts;
use super::balancer::plan::{self as plans, Observed as Seen};
use super::balancer::removal::{Removal, plan_removal as plan_balancer_removal};
use super::machine::model::{Image, Instance, State};
use super::machine::mutation::{Mutation, Verb};
use super::machine::plan::{Observed, Part as MachinePart, Plan, plan, plan_removal};
use super::settings::{Settings, architecture};
use super::tags;
use crate::change::PlannedChange;
use crate::dry_run::{NothingAsked, Recorded, placeholder, stuck};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::seam::{
    Infrastructure, LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, MachineFacts, MachineTarget,
    MachineWanted, Machines, Operation, OwnedResource, Progress,
};
use async_trait::async_trait;
use butler_api::{Provider, ProviderConfigSpec};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A region that is only thought of.
pub(crate) struct AwsRecording {
    settings: Settings,
    model: Mutex<Model>,
}

#[derive(Default)]
struct Model {
    instances: Vec<Instance>,
    /// What there is of each load balancer, by the uid of its request.
    balancers: BTreeMap<String, Seen>,
    changes: Vec<PlannedChange>,
}

impl Recorded for AwsRecording {
    fn infrastructure(self: Arc<Self>) -> Infrastructure {
        Infrastructure {
            profile: Profile::of(Provider::Aws),
            machines: self.clone(),
            images: None,
            load_balancers: Some(self.clone()),
            preflight: Arc::new(NothingAsked),
        }
    }

    fn changes(&self) -> Vec<PlannedChange> {
        self.model.lock().changes.clone()
    }
}

impl AwsRecording {
    pub(crate) fn new(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        Ok(Self { settings: Settings::read(config)?, model: Mutex::default() })
    }
}

impl Model {
    /// What a change of a machine does.
    fn apply(&mut self, mutation: &Mutation) {
        self.changes.push(mutation.change());
        match &mutation.verb {
            Verb::Launch(launch) => {
                let taken = |number: u8| self.instances.iter().any(|one| one.id == placeholder_id(number));
                let number = placeholder(&mutation.name, taken);
                // Placeholders, unlike any other machine's, from the blocks for documentation.
                let private = launch.address.unwrap_or(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)));
                let public = launch.public_address.then_some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, number)));
                self.instances.push(Instance {
                    id: placeholder_id(number),
                    state: State::Running,
                    zone: launch
                        .subnet
                        .as_ref()
                        .map(|subnet| format!("zone-of-{subnet}"))
                        .unwrap_or_default(),
                    private: Some(private),
                    public,
                    tags: launch.tags.clone(),
                    ..Instance::default()
                });
            }
            Verb::Start { id } => self.set(id, State::Running),
            Verb::Terminate { id } => self.set(id, State::Terminated),
            Verb::DeleteVolume { .. } => {}
        }
    }

    fn set(&mut self, id: &str, state: State) {
        if let Some(instance) = self.instances.iter_mut().find(|instance| instance.id == id) {
            instance.state = state;
        }
    }

    fn seen(&self, name: &str) -> Observed {
        let named = self.instances.iter().filter(|instance| instance.name() == name).cloned();
        Observed {
            ours: self.instances.clone(),
            named: Some(named.collect()),
            volumes: Some(Vec::new()),
            ..Observed::default()
        }
    }
}

#[async_trait]
impl Machines for AwsRecording {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let mut model = self.model.lock();
        let mut images = None;
        loop {
            let seen = Observed { images: images.clone(), ..model.seen(&wanted.name) };
            match plan(wanted, &self.settings, &seen)? {
                // The image is taken to be there.
                Plan::Look(MachinePart::Images) => {
                    let id = self.settings.image(wanted)?.shown().to_owned();
                    let architecture = architecture(&self.settings.size(wanted)?).to_owned();
                    images = Some(vec![Image { id, architecture, ..Image::default() }]);
                }
                Plan::Do(mutation) => model.apply(&mutation),
                Plan::Settled(instance) => return Ok(Progress::Ready(instance.facts())),
                other => return Err(stuck(&format!("{other:?}"))),
            }
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let seen = self.model.lock().seen(&target.name);
        Ok(seen.alive(&target.owner).map(Instance::facts))
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let mut model = self.model.lock();
        loop {
            match plan_removal(&target.name, &target.owner, &model.seen(&target.name)) {
                Plan::Do(mutation) => model.apply(&mutation),
                Plan::Gone => return Ok(Progress::Ready(())),
                other => return Err(stuck(&format!("{other:?}"))),
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let model = self.model.lock();
        let owned = model.instances.iter().filter(|instance| instance.is_there()).filter_map(|instance| {
            let owner = tags::owner(&instance.tags)?;
            let (name, id) = (instance.name().to_owned(), instance.provider_id());
            cluster_uid.is_none_or(|uid| uid == owner.cluster_uid).then(|| OwnedResource {
                kind: "machine".to_owned(),
                name,
                id,
                owner,
            })
        });
        Ok(owned.collect())
    }
}

#[async_trait]
impl LoadBalancers for AwsRecording {
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure> {
        let desired = Desired::new(wanted, &self.settings)?;
        let mut model = self.model.lock();
        let mut seen = model.balancers.remove(&wanted.owner.object_uid).unwrap_or_default();
        seen.instances = None;
        let result = loop {
            match plans::plan(&desired, &seen)? {
                plans::Plan::Look(part) => look(part, &desired.subnets, &mut seen),
                plans::Plan::Do(change) => {
                    model.changes.push(change.change());
                    apply(&change, &mut seen);
                }
                plans::Plan::Settled => break facts(&desired, &seen, wanted.spec.port),
                other @ (plans::Plan::Wait(_) | plans::Plan::Doubt(_)) => {
                    return Err(stuck(&format!("{other:?}")));
                }
            }
        };
        model.balancers.insert(wanted.owner.object_uid.clone(), seen);
        result.map(Progress::Ready).ok_or_else(|| stuck("a load balancer that is not there"))
    }

    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let removal = Removal::new(wanted);
        let mut model = self.model.lock();
        let mut seen = model.balancers.remove(&wanted.owner.object_uid).unwrap_or_default();
        loop {
            match plan_balancer_removal(&removal, &seen)? {
                plans::Plan::Look(part) => look(part, &[], &mut seen),
                plans::Plan::Do(change) => {
                    model.changes.push(change.change());
                    apply(&change, &mut seen);
                }
                plans::Plan::Settled => return Ok(Progress::Ready(())),
                other @ (plans::Plan::Wait(_) | plans::Plan::Doubt(_)) => {
                    return Err(stuck(&format!("{other:?}")));
                }
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let model = self.model.lock();
        let owned = model.balancers.values().filter_map(|seen| {
            let balancer = seen.balancer()?;
            let owner = tags::owner(seen.tags.get(&balancer.arn)?)?;
            let (name, id) = (balancer.name.clone(), balancer.arn.clone());
            cluster_uid.is_none_or(|uid| uid == owner.cluster_uid).then(|| OwnedResource {
                kind: "load balancer".to_owned(),
                name,
                id,
                owner,
            })
        });
        Ok(owned.collect())
    }
}

fn placeholder_id(number: u8) -> String {
    format!("i-{number:017x}")
}
