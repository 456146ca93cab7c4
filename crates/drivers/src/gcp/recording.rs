//! The dry run's Google: a model in memory of what each change does, under the same plans as the real one.

use super::balancer::{self, Desired, Health, Look, Observed};
use super::machine_plan::{self, facts, identify};
use super::names::{last, tail};
use super::part::{Kind, Mutation, Part, Thing, Verb};
use super::settings::Settings;
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
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A project that is only thought of.
pub(crate) struct GcpRecording {
    settings: Settings,
    model: Mutex<Model>,
}

#[derive(Default)]
struct Model {
    things: Vec<Thing>,
    members: BTreeMap<Part, Vec<String>>,
    changes: Vec<PlannedChange>,
    /// Numbers of machines' addresses that were handed out.
    given: BTreeSet<u8>,
}

impl Recorded for GcpRecording {
    fn infrastructure(self: Arc<Self>) -> Infrastructure {
        Infrastructure {
            profile: Profile::of(Provider::Gcp),
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

impl GcpRecording {
    pub(crate) fn new(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        Ok(Self { settings: Settings::read(config)?, model: Mutex::default() })
    }

    /// Zones of the settings; without any, the first three that every region is taken to have.
    fn zones(&self) -> Vec<String> {
        match self.settings.zones.is_empty() {
            true => ["a", "b", "c"].iter().map(|zone| format!("{}-{zone}", self.settings.region)).collect(),
            false => self.settings.zones.clone(),
        }
    }
}

impl Model {
    fn of(&self, kind: Kind) -> Vec<Thing> {
        self.things.iter().filter(|thing| thing.part.kind == kind).cloned().collect()
    }

    fn named(&self, name: &str) -> Vec<Thing> {
        let name = super::names::google_name(name);
        self.of(Kind::Instance).into_iter().filter(|thing| thing.part.name == name).collect()
    }

    fn answer(&self, looks: Vec<Look>, seen: &mut Observed) {
        for look in looks {
            match look {
                Look::List(kind) => {
                    seen.lists.insert(kind, self.of(kind));
                }
                Look::Members(group) => {
                    let members = self.members.get(&group).cloned().unwrap_or_default();
                    seen.members.insert(group, members);
                }
                Look::Instances(_) => seen.instances = Some(self.of(Kind::Instance)),
            }
        }
    }

    /// What a change does.
    fn apply(&mut self, mutation: &Mutation, settings: &Settings) {
        self.changes.push(mutation.change());
        let part = &mutation.part;
        match &mutation.verb {
            Verb::Insert { body, .. } => {
                let body = self.made(part, body, settings);
                self.things.extend(Thing::read(part.kind, &body));
            }
            Verb::Replace { body, .. } | Verb::Patch { body, .. } => self.write(part, body),
            Verb::Delete => {
                self.things.retain(|thing| thing.part != *part);
                self.members.remove(part);
            }
            Verb::AddInstances(urls) => {
                let mut members = self.members_of(part);
                members.extend(urls.iter().map(|url| tail(url).to_owned()));
                self.set_members(part, members);
            }
            Verb::RemoveInstances(urls) => {
                let mut members = self.members_of(part);
                members.retain(|member| !urls.iter().any(|url| tail(url) == member));
                self.set_members(part, members);
            }
            Verb::Start | Verb::Resume => self.write(part, &json!({"status": "RUNNING"})),
        }
    }

    /// A new thing, as Google would show it. Addresses are from the blocks for documentation, unlike any other's.
    fn made(&mut self, part: &Part, body: &Value, settings: &Settings) -> Value {
        let mut body = body.clone();
        body["selfLink"] = json!(settings.url(&part.path()));
        match part.kind {
            Kind::Address => {
                let number = self.things.iter().filter(|thing| thing.part.kind == Kind::Address).count() + 1;
                body["status"] = json!("RESERVED");
                body["address"] = json!(format!("203.0.113.{number}"));
            }
            Kind::Instance => {
                let number = self.number(part);
                body["status"] = json!("RUNNING");
                let card = &mut body["networkInterfaces"][0];
                if card.get("networkIP").is_none() {
                    card["networkIP"] = json!(format!("192.0.2.{number}"));
                }
                if card.get("accessConfigs").is_some() {
                    card["accessConfigs"][0]["natIP"] = json!(format!("198.51.100.{number}"));
                }
            }
            _ => {}
        }
        body
    }

    /// The number of a machine's address.
    fn number(&mut self, part: &Part) -> u8 {
        let number = placeholder(&part.name, |number| self.given.contains(&number));
        self.given.insert(number);
        number
    }

    fn write(&mut self, part: &Part, fields: &Value) {
        let Some(thing) = self.things.iter_mut().find(|thing| thing.part == *part) else { return };
        for (key, value) in fields.as_object().into_iter().flatten() {
            thing.body[key] = value.clone();
        }
    }

    fn members_of(&self, part: &Part) -> Vec<String> {
        match part.kind {
            Kind::TargetPool => {
                let pool = self.things.iter().find(|thing| thing.part == *part);
                let urls = pool.map(|pool| pool.urls("instances")).unwrap_or_default();
                urls.into_iter().map(|url| tail(url).to_owned()).collect()
            }
            _ => self.members.get(part).cloned().unwrap_or_default(),
        }
    }

    fn set_members(&mut self, part: &Part, members: Vec<String>) {
        if part.kind == Kind::TargetPool {
            let urls: Vec<String> = members.iter().map(|member| super::settings::url(member)).collect();
            self.write(part, &json!({"instances": urls}));
        } else {
            self.members.insert(part.clone(), members);
        }
    }

    /// Instances leave groups and pools when they go.
    fn forget(&mut self, instance: &Part) {
        let is_it = |member: &str| last(member) == instance.name;
        for members in self.members.values_mut() {
            members.retain(|member| !is_it(member));
        }
    }

    fn owned(&self, kinds: &[Kind], cluster_uid: Option<&str>, settings: &Settings) -> Vec<OwnedResource> {
        let ours = self.things.iter().filter(|thing| kinds.contains(&thing.part.kind));
        ours.filter_map(|thing| {
            let mark =
                thing.mark.as_ref().filter(|mark| cluster_uid.is_none_or(|uid| uid == mark.cluster_uid))?;
            let machine = thing.part.kind == Kind::Instance;
            Some(OwnedResource {
                kind: if machine { "machine" } else { thing.part.kind.words() }.to_owned(),
                name: thing.part.name.clone(),
                id: if machine { facts(thing, settings).provider_id } else { thing.part.path() },
                owner: mark.owner(),
            })
        })
        .collect()
    }
}

#[async_trait]
impl Machines for GcpRecording {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let settings = &self.settings;
        let zones = self.zones();
        let zone = settings.place(&wanted.name, &zones)?;
        let mut model = self.model.lock();
        loop {
            let found = model.named(&wanted.name);
            match machine_plan::plan(wanted, settings, zone, &found, &[])? {
                machine_plan::Plan::Do(mutation) => model.apply(&mutation, settings),
                machine_plan::Plan::Wait(what) => return Err(stuck(&what)),
                machine_plan::Plan::Settled => match identify(&wanted.owner, &found)? {
                    Some(thing) => return Ok(Progress::Ready(facts(thing, settings))),
                    None => return Err(stuck("a machine that is not there")),
                },
            }
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let found = self.model.lock().named(&target.name);
        let ours = identify(&target.owner, &found).ok().flatten();
        Ok(ours.map(|thing| facts(thing, &self.settings)))
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let mut model = self.model.lock();
        let found = model.named(&target.name);
        if let Some(mutation) = machine_plan::plan_removal(&target.name, &target.owner, &found) {
            model.apply(&mutation, &self.settings);
            model.forget(&mutation.part);
        }
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(self.model.lock().owned(&[Kind::Instance], cluster_uid, &self.settings))
    }
}

#[async_trait]
impl LoadBalancers for GcpRecording {
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure> {
        let desired = Desired::new(wanted, &self.settings);
        let mut model = self.model.lock();
        let mut seen = Observed::default();
        loop {
            match balancer::plan(&desired, &seen)? {
                balancer::Plan::Look(looks) => model.answer(looks, &mut seen),
                balancer::Plan::Do(mutation) => {
                    model.apply(&mutation, &self.settings);
                    seen = Observed::default();
                }
                // Targets that nobody makes in the dry run: at Google they are taken to be there.
                balancer::Plan::Wait(_) | balancer::Plan::Settled => {
                    return balancer::facts(&desired, &seen, &Health::new())
                        .map(Progress::Ready)
                        .ok_or_else(|| stuck("an address"));
                }
            }
        }
    }

    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let desired = Desired::new(wanted, &self.settings);
        let mut model = self.model.lock();
        let mut seen = Observed::default();
        loop {
            match balancer::plan_removal(&desired, &seen) {
                balancer::Plan::Look(looks) => model.answer(looks, &mut seen),
                balancer::Plan::Do(mutation) => {
                    model.apply(&mutation, &self.settings);
                    seen = Observed::default();
                }
                balancer::Plan::Wait(what) => return Err(stuck(&what)),
                balancer::Plan::Settled => return Ok(Progress::Ready(())),
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(self.model.lock().owned(&Kind::OF_LOAD_BALANCERS, cluster_uid, &self.settings))
    }
}
