//! Virtual machines: list, create, clone, configure, resize, remove.

use super::auth::Caller;
use super::config;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, BOOL, Kind, TEXT, VMID, may, must};
use super::state::{State, Vm, Work};
use super::volumes::Drive;
use super::work::wanted_size;
use crate::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A change of any option needs at least one of these before anything else is looked at.
const CONFIG_PRIVILEGES: [&str; 8] = [
    "VM.Config.Disk",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.HWType",
    "VM.Config.Options",
    "VM.Config.Cloudinit",
];

impl State {
    /// The virtual machine of a path.
    pub(super) fn vm(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        self.vms.get(&vmid).filter(|vm| vm.node == node).ok_or_else(|| {
            Refusal::died(format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist"))
        })
    }

    /// `GET /nodes/{node}/qemu`.
    pub(super) fn list_vms(&self, caller: &Caller, call: &Call, node: &str, now: u64) -> Outcome {
        schema::check(call, &[may("full", BOOL)], false)?;
        let seen = self.vms.iter().filter(|(vmid, vm)| {
            vm.node == node && self.has_any(caller, &format!("/vms/{vmid}"), &["VM.Audit"])
        });
        Ok(seen.map(|(vmid, vm)| self.summary(*vmid, vm, now)).collect())
    }

    /// What lists and `status/current` say of a virtual machine.
    pub(super) fn summary(&self, vmid: u32, vm: &Vm, now: u64) -> Value {
        let mut told = json!({
            "vmid": vmid,
            "name": vm.name(vmid),
            "status": if vm.running { "running" } else { "stopped" },
            "cpus": vm.cpus(),
            "cpu": 0,
            "maxmem": vm.memory(),
            "mem": if vm.running { vm.memory() / 2 } else { 0 },
            "maxdisk": self.root_size(vm),
            "disk": 0,
            "diskread": 0,
            "diskwrite": 0,
            "netin": 0,
            "netout": 0,
            "uptime": if vm.running { now.saturating_sub(vm.started) / 1000 } else { 0 },
        });
        if vm.running {
            told["pid"] = json!(vm.pid);
        }
        if vm.is_template() {
            told["template"] = json!(1);
        }
        for key in ["lock", "tags"] {
            if let Some(value) = vm.config.get(key) {
                told[key] = json!(value);
            }
        }
        told
    }

    pub(super) fn root_size(&self, vm: &Vm) -> u64 {
        let drive =
            vm.config.get("scsi0").or_else(|| vm.config.get("virtio0")).map(|text| Drive::parse(text));
        drive.and_then(|d| self.volume(&d.volume, &vm.node)).map_or(0, |volume| volume.size)
    }

    /// `GET .../status/current`.
    pub(super) fn current(&self, caller: &Caller, call: &Call, node: &str, vmid: u32, now: u64) -> Outcome {
        schema::check(call, &[], false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Audit"])?;
        let vm = self.vm(node, vmid)?;
        let mut told = self.summary(vmid, vm, now);
        told["qmpstatus"] = told["status"].clone();
        told["ha"] = json!({ "managed": 0 });
        if vm.agent_enabled() {
            told["agent"] = json!(1);
        }
        Ok(told)
    }

    /// `GET .../config`.
    pub(super) fn get_config(&self, caller: &Caller, call: &Call, node: &str, vmid: u32) -> Outcome {
        schema::check(call, &[may("current", BOOL), may("snapshot", TEXT)], false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Audit"])?;
        Ok(config::show(self.vm(node, vmid)?))
    }

    /// `POST /nodes/{node}/qemu`.
    pub(super) fn create(&mut self, caller: &Caller, call: &Call, node: &str, now: u64) -> Outcome {
        let own = [
            must("vmid", VMID),
            may("start", BOOL),
            may("storage", TEXT),
            may("pool", TEXT),
            may("force", BOOL),
            may("unique", BOOL),
            may("bwlimit", Kind::Integer(0, i64::MAX)),
            may("archive", TEXT),
            may("live-restore", BOOL),
        ];
        schema::check(call, &own, true)?;
        refuse_unsimulated(call, &["archive", "force", "live-restore", "unique"])?;
        let vmid = number(call, "vmid")?;
        self.may_allocate(caller, vmid, call.params.get("pool"))?;
        self.may_change(caller, node, vmid, &call.params, true)?;
        if let Some(there) = self.vms.get(&vmid) {
            let why = format!("VM {vmid} already exists on node '{}'", there.node);
            return Err(Refusal::died(format!("unable to create VM {vmid} - {why}")));
        }
        let mut config = self.fresh_config(now);
        let mut copied = 0;
        let storages = call.params.iter().filter(|(key, _)| schema::is_drive(key));
        let locked = storages.filter_map(|(_, text)| self.storage_lock(Drive::parse(text).storage()?).err());
        let mut failed = locked.map(|why| format!("unable to create VM {vmid} - {why}")).next();
        for (key, value) in call.params.iter().filter(|(key, _)| schema::option(key).is_some()) {
            if failed.is_some() {
                break;
            }
            if let Err(why) = config::set_option(self, &mut config, vmid, node, key, value, now) {
                failed = Some(format!("unable to create VM {vmid} - {why}"));
            }
            if value.contains("import-from=") {
                copied += 1 << 30;
            }
        }
        self.reserve(vmid, node, "create", call.params.get("pool"));
        let start = schema::truth(call.params.get("start")).then(|| caller.clone());
        let work = match failed {
            Some(why) => Work::Undo { vmid, why },
            None => Work::Create { vmid, config, start },
        };
        Ok(self.begin(now, caller, node, ("qmcreate", &vmid.to_string()), work, Self::copying(copied)))
    }

    /// What every new virtual machine has.
    fn fresh_config(&mut self, now: u64) -> BTreeMap<String, String> {
        let (uuid, generation) = (Random::new(self.draw()).uuid(), Random::new(self.draw()).uuid());
        BTreeMap::from([
            ("smbios1".to_string(), format!("uuid={uuid}")),
            ("vmgenid".to_string(), generation),
            ("meta".to_string(), format!("creation-qemu=9.0.2,ctime={}", now / 1000)),
        ])
    }

    /// A virtual machine of which nothing is known yet but that it is being made.
    fn reserve(&mut self, vmid: u32, node: &str, lock: &str, pool: Option<&String>) {
        let vm = Vm {
            node: node.to_string(),
            config: BTreeMap::from([("lock".to_string(), lock.to_string())]),
            running: false,
            pid: 0,
            started: 0,
            machine: None,
            foreign: None,
            agent_from: None,
        };
        self.vms.insert(vmid, vm);
        if let Some(pool) = pool {
            self.pools.insert(vmid.to_string(), pool.clone());
        }
    }

    fn may_allocate(&self, caller: &Caller, vmid: u32, pool: Option<&String>) -> Result<(), Refusal> {
        let in_pool =
            pool.is_some_and(|pool| self.has_any(caller, &format!("/pool/{pool}"), &["VM.Allocate"]));
        if in_pool { Ok(()) } else { self.need(caller, &format!("/vms/{vmid}"), &["VM.Allocate"]) }
    }

    /// Each option has its privilege, each storage and bridge another.
    fn may_change(
        &self,
        caller: &Caller,
        node: &str,
        vmid: u32,
        params: &BTreeMap<String, String>,
        new: bool,
    ) -> Result<(), Refusal> {
        let deleted = params.get("delete").map(String::as_str).unwrap_or_default();
        let named = deleted.split([',', ';', ' ']).filter(|k| !k.is_empty()).map(|k| (k, ""));
        let path = format!("/vms/{vmid}");
        for (key, value) in params.iter().map(|(k, v)| (k.as_str(), v.as_str())).chain(named) {
            let Some((kind, privilege)) = schema::option(key) else { continue };
            if key == "cicustom" {
                return Err(Refusal::died("cicustom: snippets are not simulated"));
            }
            if privilege == "root" {
                if caller.id() != "root@pam" {
                    return Err(Refusal::died(format!("only root can set '{key}' config")));
                }
                continue;
            }
            let drive = Drive::parse(value);
            let privilege = match kind {
                Kind::Drive if drive.is_cloud_init() => "VM.Config.Cloudinit",
                Kind::Drive if drive.is_cdrom() => "VM.Config.CDROM",
                _ => privilege,
            };
            // Whoever may allocate a machine may give it whatever it is to be made of.
            if !(new && self.has_any(caller, &path, &["VM.Allocate"])) {
                self.need(caller, &path, &[privilege])?;
            }
            match kind {
                Kind::Drive if !value.is_empty() => self.may_use_volume(caller, node, &drive)?,
                Kind::Net if !value.is_empty() => self.may_use_bridge(caller, value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn may_use_volume(&self, caller: &Caller, node: &str, drive: &Drive) -> Result<(), Refusal> {
        let Some(storage) = drive.storage() else { return Ok(()) };
        self.storage_on(storage, node)?;
        self.need(caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        if let Some(source) = drive.get("import-from")
            && let Some((from, _)) = source.split_once(':')
        {
            self.storage_on(from, node)?;
            self.need_any(
                caller,
                &format!("/storage/{from}"),
                &["Datastore.Audit", "Datastore.AllocateSpace"],
            )?;
            if self.volume(source, node).is_none() {
                return Err(Refusal::died(format!("volume '{source}' does not exist")));
            }
        }
        Ok(())
    }

    pub(super) fn may_use_bridge(&self, caller: &Caller, net: &str) -> Result<(), Refusal> {
        let Some(bridge) = net.split(',').find_map(|part| part.strip_prefix("bridge=")) else {
            return Ok(());
        };
        self.need(caller, &format!("/sdn/zones/localnetwork/{bridge}"), &["SDN.Use"])?;
        if bridge != self.network.bridge {
            return Err(Refusal::died(format!("bridge '{bridge}' does not exist")));
        }
        Ok(())
    }

    /// `POST .../config` (a task) and `PUT .../config` (at once).
    pub(super) fn set_config(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        now: u64,
    ) -> Outcome {
        let own = [
            may("delete", TEXT),
            may("digest", TEXT),
            may("skiplock", BOOL),
            may("force", BOOL),
            may("revert", TEXT),
            may("background_delay", Kind::Integer(1, 30)),
        ];
        schema::check(call, &own, true)?;
        refuse_unsimulated(call, &["revert"])?;
        self.need_any(caller, &format!("/vms/{vmid}"), &CONFIG_PRIVILEGES)?;
        self.may_skip_lock(caller, call)?;
        let deleted = call.params.get("delete").map(String::as_str).unwrap_or_default();
        for key in deleted.split([',', ';', ' ']).filter(|k| !k.is_empty()) {
            if schema::option(key).is_none() {
                return Err(Refusal::param("delete", format!("unknown option '{key}'")));
            }
            if call.params.contains_key(key) {
                return Err(Refusal::param(
                    "delete",
                    format!("you can't use '-{key}' and -delete {key}' at the same time"),
                ));
            }
        }
        self.may_change(caller, node, vmid, &call.params, false)?;
        let vm = self.vm(node, vmid)?;
        if let Some(digest) = call.params.get("digest")
            && *digest != config::digest(vm)
        {
            return Err(Refusal::died(
                "detected modified configuration - file changed by other user? Try again.",
            ));
        }
        if let Some(lock) = vm.lock()
            && !schema::truth(call.params.get("skiplock"))
        {
            return Err(Refusal::died(format!("VM is locked ({lock})")));
        }
        if !call.params.keys().any(|k| k == "delete" || schema::option(k).is_some()) {
            return Err(Refusal::died("no options specified"));
        }
        if call.method == "PUT" {
            config::apply(self, vmid, &call.params, now).map_err(Refusal::died)?;
            return Ok(Value::Null);
        }
        let work = Work::Config { vmid, changes: call.params.clone() };
        Ok(self.begin(now, caller, node, ("qmconfig", &vmid.to_string()), work, 0.0))
    }

    pub(super) fn may_skip_lock(&self, caller: &Caller, call: &Call) -> Result<(), Refusal> {
        if schema::truth(call.params.get("skiplock")) && caller.id() != "root@pam" {
            return Err(Refusal::param("skiplock", "Only root may use this option."));
        }
        Ok(())
    }

    /// `PUT .../resize`.
    pub(super) fn resize_disk(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        now: u64,
    ) -> Outcome {
        let own = [must("disk", TEXT), must("size", Kind::Size), may("digest", TEXT), may("skiplock", BOOL)];
        schema::check(call, &own, false)?;
        let disk = call.params.get("disk").cloned().unwrap_or_default();
        if !schema::is_drive(&disk) {
            let why = format!(
                "value '{disk}' does not have a value in the enumeration 'ide0, ide1, ide2, ide3, scsi0, ...'"
            );
            return Err(Refusal::param("disk", why));
        }
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Config.Disk"])?;
        let vm = self.vm(node, vmid)?;
        if let Some(lock) = vm.lock() {
            return Err(Refusal::died(format!("VM is locked ({lock})")));
        }
        let Some(text) = vm.config.get(&disk) else {
            return Err(Refusal::died(format!("disk '{disk}' does not exist")));
        };
        let drive = Drive::parse(text);
        if drive.is_cdrom() {
            return Err(Refusal::died("you can't resize a cdrom"));
        }
        let Some(volume) = self.volume(&drive.volume, node) else {
            return Err(Refusal::died(format!("no such volume '{}'", drive.volume)));
        };
        let before = volume.size;
        let storage = drive.storage().unwrap_or_default();
        self.need(caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        let asked = call.params.get("size").map(String::as_str).unwrap_or_default();
        let size = wanted_size(asked, before).unwrap_or(before);
        if size < before {
            return Err(Refusal::died("shrinking disks is not supported"));
        }
        let work = Work::Resize { vmid, disk, size };
        Ok(self.begin(now, caller, node, ("resize", &vmid.to_string()), work, 0.0))
    }

    /// `DELETE .../qemu/{vmid}`.
    pub(super) fn destroy_vm(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        now: u64,
    ) -> Outcome {
        let own = [may("purge", BOOL), may("destroy-unreferenced-disks", BOOL), may("skiplock", BOOL)];
        schema::check(call, &own, false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        self.may_skip_lock(caller, call)?;
        let vm = self.vm(node, vmid)?;
        if vm.config.get("protection").is_some_and(|p| p == "1") {
            return Err(Refusal::died(format!("can't remove VM {vmid} - protection mode enabled")));
        }
        if let Some(lock) = vm.lock() {
            return Err(Refusal::died(format!("VM is locked ({lock})")));
        }
        if vm.running {
            return Err(Refusal::died(format!("VM {vmid} is running - destroy failed")));
        }
        let unreferenced = schema::truth(call.params.get("destroy-unreferenced-disks"));
        let work = Work::Destroy { vmid, name: vm.config.get("name").cloned(), unreferenced };
        Ok(self.begin(now, caller, node, ("qmdestroy", &vmid.to_string()), work, 0.0))
    }

    /// `POST .../template`.
    pub(super) fn convert(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        now: u64,
    ) -> Outcome {
        schema::check(call, &[may("disk", TEXT)], false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Allocate"])?;
        let vm = self.vm(node, vmid)?;
        if let Some(lock) = vm.lock() {
            return Err(Refusal::died(format!("VM is locked ({lock})")));
        }
        if vm.is_template() {
            return Err(Refusal::died("you can't convert a template to a template"));
        }
        if vm.running {
            return Err(Refusal::died("you can't convert a VM to template if VM is running"));
        }
        Ok(self.begin(now, caller, node, ("qmtemplate", &vmid.to_string()), Work::Template { vmid }, 0.0))
    }
}

/// A parameter that the schema has made sure of.
pub(super) fn number(call: &Call, name: &str) -> Result<u32, Refusal> {
    call.params
        .get(name)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| Refusal::param(name, "property is missing and it is not optional"))
}

/// What the real API can and this one can't is refused by name, not ignored.
pub(super) fn refuse_unsimulated(call: &Call, names: &[&str]) -> Result<(), Refusal> {
    match names.iter().find(|name| call.params.get(**name).is_some_and(|v| v != "0")) {
        Some(name) => Err(Refusal::died(format!("parameter '{name}' is not simulated"))),
        None => Ok(()),
    }
}
