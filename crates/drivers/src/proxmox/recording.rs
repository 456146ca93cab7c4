//! The dry run's Proxmox: a model in memory of what each change does, under the same plans as the real one.

use super::images::{download_words, file_name};
use super::machines::facts;
use super::mark::split_tags;
use super::model::{Config, Vm};
use super::mutation::{Mutation, Verb};
use super::plan::{Identity, Observed, Plan, identify, plan, plan_removal};
use super::settings::Settings;
use crate::change::PlannedChange;
use crate::dry_run::{NothingAsked, Recorded, stuck};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::seam::{
    ImageFacts, ImageWanted, Images, Infrastructure, MachineFacts, MachineTarget, MachineWanted, Machines,
    Operation, OwnedResource, Progress,
};
use async_trait::async_trait;
use butler_api::{Provider, ProviderConfigSpec};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Size of the disk of a template that nobody has looked at: smaller than any that can be asked for.
const TEMPLATE_GB: u32 = 1;

/// A Proxmox cluster that is only thought of.
pub(crate) struct ProxmoxRecording {
    settings: Settings,
    model: Mutex<Model>,
}

#[derive(Default)]
struct Model {
    vms: Vec<Vm>,
    configs: BTreeMap<u32, Config>,
    running: BTreeSet<u32>,
    images: BTreeSet<String>,
    changes: Vec<PlannedChange>,
}

impl Recorded for ProxmoxRecording {
    fn infrastructure(self: Arc<Self>) -> Infrastructure {
        Infrastructure {
            profile: Profile::of(Provider::Proxmox),
            machines: self.clone(),
            images: Some(self.clone()),
            load_balancers: None,
            preflight: Arc::new(NothingAsked),
        }
    }

    fn changes(&self) -> Vec<PlannedChange> {
        self.model.lock().changes.clone()
    }
}

impl ProxmoxRecording {
    pub(crate) fn new(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        let (settings, _) = Settings::read(config)?;
        let model = Mutex::new(Model { vms: template(&settings, None), ..Model::default() });
        Ok(Self { settings, model })
    }

    fn seen(&self, model: &Model, vmid: Option<u32>) -> Observed {
        Observed {
            vms: model.vms.clone(),
            configs: model.configs.clone(),
            online: self.settings.nodes.clone(),
            next_id: Some(100),
            kept: None,
            reserved: BTreeMap::new(),
            running: vmid.is_some_and(|vmid| model.running.contains(&vmid)),
        }
    }
}

/// The template that the settings or a machine name: it is taken to be there, on the first node.
fn template(settings: &Settings, image: Option<&str>) -> Vec<Vm> {
    let node = settings.nodes.first().cloned().unwrap_or_default();
    let of = |vmid, name| Vm { vmid, node: node.clone(), name, template: true, ..Vm::default() };
    match image {
        Some(image) => match image.parse() {
            Ok(vmid) => vec![of(vmid, None)],
            Err(_) => vec![of(9000, Some(image.to_owned()))],
        },
        None => settings.template.map(|vmid| of(vmid, None)).into_iter().collect(),
    }
}

impl Model {
    /// What a change does.
    fn apply(&mut self, mutation: &Mutation) {
        self.changes.push(mutation.change());
        let vmid = mutation.vmid;
        match &mutation.verb {
            Verb::Clone { description, .. } => {
                self.add(mutation);
                let root = format!("template:disk,size={TEMPLATE_GB}G");
                self.write(
                    vmid,
                    &[("scsi0".to_owned(), root), ("description".to_owned(), description.clone())],
                );
            }
            Verb::Create { settings, .. } => {
                self.add(mutation);
                self.write(vmid, settings);
                let root = format!("image:disk,size={TEMPLATE_GB}G");
                self.write(vmid, &[("scsi0".to_owned(), root)]);
            }
            Verb::Configure { settings, .. } => self.write(vmid, settings),
            Verb::Resize { disk, gb } => {
                self.write(vmid, &[(disk.clone(), format!("grown:disk,size={gb}G"))])
            }
            Verb::Start => {
                self.running.insert(vmid);
            }
            Verb::Stop => {
                self.running.remove(&vmid);
            }
            Verb::Destroy => {
                self.vms.retain(|vm| vm.vmid != vmid);
                self.configs.remove(&vmid);
                self.running.remove(&vmid);
            }
        }
    }

    fn add(&mut self, mutation: &Mutation) {
        self.vms.push(Vm {
            vmid: mutation.vmid,
            node: mutation.node.clone(),
            name: Some(mutation.name.clone()),
            ..Vm::default()
        });
    }

    fn write(&mut self, vmid: u32, settings: &[(String, String)]) {
        let config = self.configs.entry(vmid).or_default();
        config.0.extend(settings.iter().cloned());
        let tags = split_tags(config.get("tags").unwrap_or_default());
        if let Some(vm) = self.vms.iter_mut().find(|vm| vm.vmid == vmid) {
            vm.tags = tags;
        }
    }

    /// A placeholder for an address that DHCP would give: unlike any other machine's, from the block for documentation.
    fn by_dhcp(&self, vmid: u32) -> IpAddr {
        let place = self.vms.iter().filter(|vm| !vm.template).position(|vm| vm.vmid == vmid).unwrap_or(0);
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, u8::try_from(place + 1).unwrap_or(u8::MAX)))
    }
}

#[async_trait]
impl Machines for ProxmoxRecording {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let mut model = self.model.lock();
        if let Some(image) = wanted.image.as_deref().filter(|image| !image.contains(':')) {
            let known = |vm: &Vm| vm.name.as_deref() == Some(image) || vm.vmid.to_string() == image;
            if !model.vms.iter().any(known) {
                let assumed = template(&self.settings, Some(image));
                model.vms.extend(assumed);
            }
        }
        loop {
            let ours = match identify(&wanted.name, &wanted.owner, &self.seen(&model, None))? {
                Identity::Ours(vm) => Some(vm),
                _ => None,
            };
            let seen = self.seen(&model, ours.as_ref().map(|vm| vm.vmid));
            match (plan(wanted, &self.settings, &seen)?, ours) {
                (Plan::Do(mutation), _) => model.apply(&mutation),
                (Plan::Settled, Some(vm)) => {
                    let fixed = wanted.static_address.as_ref().map(|fixed| fixed.address);
                    let address = fixed.unwrap_or_else(|| model.by_dhcp(vm.vmid));
                    let config = seen.configs.get(&vm.vmid).cloned().unwrap_or_default();
                    return Ok(Progress::Ready(facts(&vm, &config, vec![address], true)));
                }
                (Plan::Wait(what), _) => return Err(stuck(&what)),
                (Plan::Settled, None) => return Err(stuck("a machine that is not there")),
            }
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let model = self.model.lock();
        let Ok(Identity::Ours(vm)) = identify(&target.name, &target.owner, &self.seen(&model, None)) else {
            return Ok(None);
        };
        let config = model.configs.get(&vm.vmid).cloned().unwrap_or_default();
        let address = config.static_address().unwrap_or_else(|| model.by_dhcp(vm.vmid));
        Ok(Some(facts(&vm, &config, vec![address], model.running.contains(&vm.vmid))))
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let mut model = self.model.lock();
        loop {
            let vmid = match identify(&target.name, &target.owner, &self.seen(&model, None)) {
                Ok(Identity::Ours(vm)) => Some(vm.vmid),
                _ => None,
            };
            let seen = self.seen(&model, vmid);
            match plan_removal(&target.name, &target.owner, &self.settings, &seen)? {
                Some(Plan::Do(mutation)) => model.apply(&mutation),
                Some(Plan::Wait(what)) => return Err(stuck(&what)),
                Some(Plan::Settled) | None => return Ok(Progress::Ready(())),
            }
        }
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let model = self.model.lock();
        let owned = model.vms.iter().filter_map(|vm| {
            let mark = model.configs.get(&vm.vmid)?.mark()?;
            cluster_uid.is_none_or(|uid| uid == mark.cluster_uid).then(|| OwnedResource {
                kind: "machine".to_owned(),
                name: vm.name.clone().unwrap_or_default(),
                id: super::machines::provider_id(vm),
                owner: mark.owner(),
            })
        });
        Ok(owned.collect())
    }
}

#[async_trait]
impl Images for ProxmoxRecording {
    async fn ensure(
        &self,
        wanted: &ImageWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<ImageFacts>, Failure> {
        let storage = &self.settings.image_storage;
        let image_ref = format!("{storage}:import/{}", file_name(wanted)?);
        let mut model = self.model.lock();
        if model.images.insert(image_ref.clone()) {
            // Whether the nodes share the storage is not known without asking: listed for each.
            for node in &self.settings.nodes {
                let words = download_words(wanted, storage, node);
                model.changes.push(PlannedChange::new("image", &wanted.name, words));
            }
        }
        Ok(Progress::Ready(ImageFacts { image_ref, sha256: wanted.sha256.clone() }))
    }

    async fn delete(
        &self,
        wanted: &ImageWanted,
        _operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let storage = &self.settings.image_storage;
        let image_ref = format!("{storage}:import/{}", file_name(wanted)?);
        let mut model = self.model.lock();
        if model.images.remove(&image_ref) {
            for node in &self.settings.nodes {
                let words = format!("delete the file from {storage} on {node}");
                model.changes.push(PlannedChange::new("image", &wanted.name, words));
            }
        }
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, _cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(Vec::new())
    }
}
