//! `POST .../clone`: full copies and linked ones, with the rules that tell them apart.

use super::auth::Caller;
use super::config;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, BOOL, FORMAT, Kind, TEXT, VMID, may, must};
use super::state::{State, Vm, Volume, Work};
use super::vms::{number, refuse_unsimulated};
use super::volumes::Drive;
use crate::random::Random;
use std::collections::BTreeMap;

/// A clone that passed every check.
struct Plan {
    vmid: u32,
    node: String,
    target: String,
    full: bool,
    storage: Option<String>,
    format: Option<String>,
}

impl State {
    pub(super) fn clone_vm(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        source: u32,
        now: u64,
    ) -> Outcome {
        let own = [
            must("newid", VMID),
            may("name", Kind::Name),
            may("description", TEXT),
            may("pool", TEXT),
            may("snapname", TEXT),
            may("storage", TEXT),
            may("format", FORMAT),
            may("full", BOOL),
            may("target", TEXT),
            may("bwlimit", Kind::Integer(0, i64::MAX)),
        ];
        schema::check(call, &own, false)?;
        refuse_unsimulated(call, &["snapname"])?;
        let vmid = number(call, "newid")?;
        self.need(caller, &format!("/vms/{source}"), &["VM.Clone"])?;
        let pool = call.params.get("pool");
        let in_pool =
            pool.is_some_and(|pool| self.has_any(caller, &format!("/pool/{pool}"), &["VM.Allocate"]));
        if !in_pool {
            self.need(caller, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        }
        let plan = self.check_clone(caller, call, node, source, vmid)?;
        let mut config = self.cloned_config(source, call);
        let (outcome, copied) = match self.clone_lock(&config, &plan) {
            Ok(()) => self.copy_drives(&plan, &mut config, now),
            Err(why) => (Err(why), 0),
        };
        self.insert_locked(&plan, pool);
        let work = match outcome {
            Ok(()) => Work::Clone { source, vmid, target: plan.target, config },
            Err(why) => Work::Undo { vmid, why: format!("clone failed: {why}") },
        };
        Ok(self.begin(now, caller, node, ("qmclone", &source.to_string()), work, Self::copying(copied)))
    }

    fn insert_locked(&mut self, plan: &Plan, pool: Option<&String>) {
        let vm = Vm {
            node: plan.node.clone(),
            // Until the end of the task that is the whole configuration: no name, no tags.
            config: BTreeMap::from([("lock".to_string(), "clone".to_string())]),
            running: false,
            pid: 0,
            started: 0,
            machine: None,
            foreign: None,
            agent_from: None,
        };
        self.vms.insert(plan.vmid, vm);
        if let Some(pool) = pool {
            self.pools.insert(plan.vmid.to_string(), pool.clone());
        }
    }

    fn check_clone(
        &self,
        caller: &Caller,
        call: &Call,
        node: &str,
        source: u32,
        vmid: u32,
    ) -> Result<Plan, Refusal> {
        let Some(vm) = self.vms.get(&source).filter(|vm| vm.node == node) else {
            return Err(Refusal::died(format!(
                "unable to find configuration file for VM {source} on node '{node}'"
            )));
        };
        let storage = call.params.get("storage").cloned();
        let target = call.params.get("target").filter(|t| *t != node).cloned();
        if let Some(target) = &target
            && !self.nodes.contains_key(target)
        {
            return Err(Refusal::died(format!("no such cluster node '{target}'")));
        }
        if let Some(storage) = &storage {
            let found = self.storage_on(storage, node)?;
            if let Some(target) = &target {
                self.storage_on(storage, target)?;
                if !found.shared {
                    return Err(Refusal::died(format!("can't clone to non-shared storage '{storage}'")));
                }
            }
        }
        if let Some(lock) = vm.lock() {
            return Err(Refusal::died(format!("VM is locked ({lock})")));
        }
        let full = call.params.get("full").map_or(!vm.is_template(), |v| schema::truth(Some(v)));
        for name in ["storage", "format"] {
            if !full && call.params.contains_key(name) {
                return Err(Refusal::died(format!("parameter '{name}' not allowed for linked clones")));
            }
        }
        let plan = Plan {
            vmid,
            node: node.to_string(),
            target: target.clone().unwrap_or_else(|| node.to_string()),
            full,
            storage,
            format: call.params.get("format").cloned(),
        };
        self.check_clone_storages(caller, vm, &plan)?;
        if self.vms.contains_key(&vmid) {
            return Err(Refusal::died(format!("unable to create VM {vmid}: config file already exists")));
        }
        self.check_clone_features(vm, &plan)?;
        if let Some(net) = vm.config.get("net0") {
            self.may_use_bridge(caller, net)?;
        }
        Ok(plan)
    }

    /// The caller may use each storage, and all are shared when the clone goes to another host.
    fn check_clone_storages(&self, caller: &Caller, vm: &Vm, plan: &Plan) -> Result<(), Refusal> {
        let mut shared = true;
        for (_, text) in vm.config.iter().filter(|(key, _)| schema::is_drive(key)) {
            let drive = Drive::parse(text);
            let Some(storage) = drive.storage() else { continue };
            shared &= self.storages.get(storage).is_some_and(|s| s.shared);
            if drive.is_cdrom() && !drive.is_cloud_init() {
                continue;
            }
            let to = plan.storage.as_deref().unwrap_or(storage);
            self.need(caller, &format!("/storage/{to}"), &["Datastore.AllocateSpace"])?;
        }
        if plan.target != plan.node && !shared {
            return Err(Refusal::died(format!(
                "can't clone VM to node '{}' (VM uses local storage)",
                plan.target
            )));
        }
        Ok(())
    }

    /// A linked clone needs a base, on a storage that can have such.
    fn check_clone_features(&self, vm: &Vm, plan: &Plan) -> Result<(), Refusal> {
        if plan.full {
            return Ok(());
        }
        for (key, text) in vm.config.iter().filter(|(key, _)| schema::is_drive(key)) {
            let drive = Drive::parse(text);
            if drive.is_cdrom() || drive.is_cloud_init() {
                continue;
            }
            let kind = drive.storage().and_then(|s| self.storages.get(s)).map(|s| s.kind.as_str());
            let is_base =
                drive.volume.rsplit(['/', ':']).next().is_some_and(|name| name.starts_with("base-"));
            if !is_base || kind == Some("lvm") {
                let volume = &drive.volume;
                return Err(Refusal::died(format!(
                    "Linked clone feature is not supported for '{volume}' ({key})"
                )));
            }
        }
        Ok(())
    }

    /// The configuration of the new machine, still with the old one's drives.
    fn cloned_config(&mut self, source: u32, call: &Call) -> BTreeMap<String, String> {
        let mut config = self.vms.get(&source).map(|vm| vm.config.clone()).unwrap_or_default();
        config.retain(|key, _| key != "template" && key != "lock" && !key.starts_with("unused"));
        for (key, value) in &mut config {
            if key.starts_with("net") && matches!(schema::option(key), Some((Kind::Net, _))) {
                let mac = self.mac();
                let model = value.split(['=', ',']).next().unwrap_or("virtio").to_string();
                let rest = value.split_once(',').map(|(_, rest)| format!(",{rest}")).unwrap_or_default();
                *value = config::net(&format!("{model}={mac}{rest}"), None, String::new);
            }
        }
        let (uuid, generation) = (Random::new(self.draw()).uuid(), Random::new(self.draw()).uuid());
        config.insert("smbios1".to_string(), format!("uuid={uuid}"));
        config.insert("vmgenid".to_string(), generation);
        let old = config.get("name").cloned().unwrap_or_else(|| format!("VM-{source}"));
        let name = call.params.get("name").cloned().unwrap_or_else(|| format!("Copy-of-{old}"));
        config.insert("name".to_string(), name);
        if let Some(description) = call.params.get("description") {
            config.insert("description".to_string(), description.clone());
        }
        config
    }

    /// Makes the new machine's volumes. What was made before a failure stays, to be removed by the task.
    fn copy_drives(
        &mut self,
        plan: &Plan,
        config: &mut BTreeMap<String, String>,
        now: u64,
    ) -> (Result<(), String>, u64) {
        let mut copied = 0;
        for (key, text) in config.iter_mut().filter(|(key, _)| schema::is_drive(key)) {
            let mut drive = Drive::parse(text);
            if drive.is_cdrom() && !drive.is_cloud_init() {
                continue;
            }
            let made = if drive.is_cloud_init() {
                let storage =
                    plan.storage.clone().or(drive.storage().map(ToString::to_string)).unwrap_or_default();
                self.allocate_cloud_init(&storage, &plan.node, plan.vmid, now)
            } else if plan.full {
                self.full_copy(plan, &drive, now).inspect(|volume| copied += volume.size).map(|v| v.volid)
            } else {
                self.linked_copy(plan, &drive, now)
            };
            match made {
                Ok(volid) => {
                    drive.volume = volid;
                    *text = drive.print();
                }
                Err(why) => {
                    tracing::debug!(drive = key, %why, "SIMULATED: a clone can't be made");
                    return (Err(why), copied);
                }
            }
        }
        (Ok(()), copied)
    }

    /// Volumes are allocated under a lock of the whole cluster, which is waited for ten seconds: on a storage that can't keep
    /// up, one copy too many does not get it.
    pub(super) fn storage_lock(&self, name: &str) -> Result<(), String> {
        let Some(most) = self.storages.get(name).and_then(|storage| storage.copies) else { return Ok(()) };
        let copying = |work: &Work| match work {
            Work::Clone { config, .. } | Work::Create { config, .. } => {
                storages_of(config).any(|other| other == name)
            }
            _ => false,
        };
        let busy = self.active.iter().filter_map(|upid| self.tasks.get(upid)).filter(|t| copying(&t.work));
        if busy.count() >= most {
            return Err(format!("cfs-lock 'storage-{name}' error: got lock request timeout"));
        }
        Ok(())
    }

    fn clone_lock(&self, config: &BTreeMap<String, String>, plan: &Plan) -> Result<(), String> {
        let name = plan.storage.clone().or_else(|| storages_of(config).next());
        name.map_or(Ok(()), |name| self.storage_lock(&name))
    }

    fn full_copy(&mut self, plan: &Plan, drive: &Drive, now: u64) -> Result<Volume, String> {
        let Some(source) = self.volume(&drive.volume, &plan.node).cloned() else {
            return Err(format!("volume '{}' does not exist", drive.volume));
        };
        let storage = plan.storage.clone().or(drive.storage().map(ToString::to_string)).unwrap_or_default();
        let format = plan.format.as_deref();
        let made = self.allocate(&storage, &plan.node, plan.vmid, source.size, format, now)?;
        if let Some(volume) = self.volume_mut(&made.volid, &plan.node) {
            volume.system = source.system;
        }
        Ok(made)
    }

    fn linked_copy(&mut self, plan: &Plan, drive: &Drive, now: u64) -> Result<String, String> {
        let Some(base) = self.volume(&drive.volume, &plan.node).cloned() else {
            return Err(format!("volume '{}' does not exist", drive.volume));
        };
        let storage = drive.storage().unwrap_or_default().to_string();
        let name = self.disk_name(&storage, &plan.node, plan.vmid, &base.format);
        let kind = self.storages.get(&storage).map(|s| (s.kind.clone(), s.has_files()));
        let (_, base_name) = base.volid.split_once(':').unwrap_or_default();
        let (_, own_name) = name.split_once(':').unwrap_or_default();
        let volid = match kind {
            // A thin volume's name does not tell what it rests on; everywhere else it does.
            Some((kind, false)) if kind == "lvmthin" => name.clone(),
            _ => format!("{storage}:{base_name}/{own_name}"),
        };
        let volume = Volume {
            volid: volid.clone(),
            used: 0,
            vmid: Some(plan.vmid),
            parent: Some(base.volid.clone()),
            created: now / 1000,
            ..base
        };
        self.put(&storage, &plan.node, volume)?;
        Ok(volid)
    }
}

/// Storages of all disks of a configuration.
fn storages_of(config: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    let drives = config.iter().filter(|(key, _)| schema::is_drive(key));
    drives.filter_map(|(_, text)| Drive::parse(text).storage().map(ToString::to_string))
}
