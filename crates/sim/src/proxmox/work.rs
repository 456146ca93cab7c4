//! What each kind of task does at its end.

use super::config;
use super::schema::{parse_size, print_size};
use super::state::{Effect, State, Storage, Volume, Work};
use super::tasks::missing;
use super::volumes::Drive;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

impl State {
    pub(super) fn do_work(&mut self, work: Work, now: u64, effects: &mut Vec<Effect>) -> Result<(), String> {
        match work {
            Work::Clone { vmid, target, config, .. } => {
                let Some(vm) = self.vms.get_mut(&vmid) else { return Err(missing(vmid)) };
                vm.config = config;
                vm.node = target;
                Ok(())
            }
            Work::Create { vmid, config, start } => {
                let Some(vm) = self.vms.get_mut(&vmid) else { return Err(missing(vmid)) };
                vm.config = config;
                if let Some(caller) = start {
                    let (node, id) = (vm.node.clone(), vmid.to_string());
                    self.begin(now, &caller, &node, ("qmstart", &id), Work::Start { vmid }, 0.0);
                }
                Ok(())
            }
            Work::Undo { vmid, why } => {
                self.free_all(vmid);
                self.vms.remove(&vmid);
                Err(why)
            }
            Work::Config { vmid, changes } => config::apply(self, vmid, &changes, now),
            Work::Resize { vmid, disk, size } => self.resize(vmid, &disk, size),
            Work::Template { vmid } => self.make_template(vmid),
            // Begun and ended by its own rules.
            Work::Start { .. } => Ok(()),
            Work::Stop { vmid } => self.switch_off(vmid, effects),
            Work::Reboot { vmid } | Work::Reset { vmid } => {
                let Some(vm) = self.vms.get_mut(&vmid) else { return Err(missing(vmid)) };
                if !vm.running {
                    return Err(format!("VM {vmid} not running"));
                }
                vm.started = now;
                vm.agent_from = None;
                effects.extend(vm.machine.map(|address| Effect::Cycle { address }));
                Ok(())
            }
            Work::Destroy { vmid, unreferenced, .. } => self.destroy(vmid, unreferenced, effects),
            Work::Download { storage, volume, url, sha256 } => self.download(&storage, *volume, &url, sha256),
            Work::Delete { volid } => self.delete_volume(&volid),
        }
    }

    fn switch_off(&mut self, vmid: u32, effects: &mut Vec<Effect>) -> Result<(), String> {
        let Some(vm) = self.vms.get_mut(&vmid) else { return Err(missing(vmid)) };
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        vm.agent_from = None;
        // Stopping what is stopped is fine.
        if std::mem::take(&mut vm.running) {
            effects.extend(vm.machine.map(|address| Effect::PowerOff { address }));
            effects.extend(vm.foreign.map(|address| Effect::Foreign { address, up: false }));
        }
        Ok(())
    }

    fn resize(&mut self, vmid: u32, disk: &str, size: u64) -> Result<(), String> {
        let Some(vm) = self.vms.get(&vmid) else { return Err(missing(vmid)) };
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        let node = vm.node.clone();
        let Some(text) = vm.config.get(disk) else { return Err(format!("disk '{disk}' does not exist")) };
        let mut drive = Drive::parse(text);
        let Some(volume) = self.volume(&drive.volume, &node) else {
            return Err(format!("no such volume '{}'", drive.volume));
        };
        let more = size.saturating_sub(volume.size);
        let name = drive.storage().unwrap_or_default().to_string();
        if let Some(storage) = self.storages.get(&name)
            && more > storage.free(&node)
        {
            return Err(storage.full(&node, &drive.volume, more));
        }
        if let Some(volume) = self.volume_mut(&drive.volume, &node) {
            volume.size += more;
            volume.used += more;
            drive.set("size", print_size(volume.size));
        }
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.config.insert(disk.to_string(), drive.print());
        }
        Ok(())
    }

    /// Marks a virtual machine as a template and its disks as bases.
    pub(super) fn make_template(&mut self, vmid: u32) -> Result<(), String> {
        let Some(vm) = self.vms.get(&vmid) else { return Err(missing(vmid)) };
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        let node = vm.node.clone();
        let mut config = vm.config.clone();
        for (_, text) in config.iter_mut().filter(|(key, _)| super::schema::is_drive(key)) {
            let mut drive = Drive::parse(text);
            if drive.is_cdrom() || drive.is_cloud_init() {
                continue;
            }
            let Some(mut volume) = self.remove_volume(&drive.volume, &node) else { continue };
            let base = drive.volume.replace(&format!("vm-{vmid}-"), &format!("base-{vmid}-"));
            volume.volid.clone_from(&base);
            let storage = drive.storage().unwrap_or_default().to_string();
            self.put(&storage, &node, volume)?;
            drive.volume = base;
            *text = drive.print();
        }
        config.insert("template".to_string(), "1".to_string());
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.config = config;
        }
        Ok(())
    }

    fn destroy(&mut self, vmid: u32, unreferenced: bool, effects: &mut Vec<Effect>) -> Result<(), String> {
        let Some(vm) = self.vms.get(&vmid) else { return Err(missing(vmid)) };
        if vm.running {
            return Err(format!("VM {vmid} is running - destroy failed"));
        }
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        let cloning = |work: &Work| matches!(work, Work::Clone { source, .. } if *source == vmid);
        if self.active.iter().filter_map(|upid| self.tasks.get(upid)).any(|t| cloning(&t.work)) {
            return Err(format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout"));
        }
        if let Some((base, clone)) = self.linked_to(vmid) {
            return Err(format!("base volume '{base}' is still in use by linked cloned '{clone}'"));
        }
        let Some(vm) = self.vms.remove(&vmid) else { return Err(missing(vmid)) };
        if unreferenced {
            self.free_all(vmid);
        } else {
            let drives =
                vm.config.iter().filter(|(key, _)| super::schema::is_drive(key) || key.starts_with("unused"));
            for (_, text) in drives {
                let drive = Drive::parse(text);
                // A CD image is nobody's.
                let own = self.volume(&drive.volume, &vm.node).is_some_and(|v| v.vmid == Some(vmid));
                if own {
                    self.remove_volume(&drive.volume, &vm.node);
                }
            }
        }
        self.pools.remove(&vmid.to_string());
        effects.extend(vm.machine.map(|address| Effect::Remove { address }));
        Ok(())
    }

    /// A base volume of a virtual machine that somebody else's disk rests on.
    fn linked_to(&self, vmid: u32) -> Option<(String, String)> {
        let all = || self.storages.values().flat_map(|s| s.volumes.values());
        all().filter(|v| v.vmid != Some(vmid)).find_map(|v| {
            let parent = v.parent.as_ref()?;
            let base = all().find(|b| b.volid == *parent && b.vmid == Some(vmid))?;
            let short = v.volid.rsplit(['/', ':']).next().unwrap_or_default();
            Some((base.volid.clone(), short.to_string()))
        })
    }

    /// Removes every volume that belongs to a virtual machine.
    pub(super) fn free_all(&mut self, vmid: u32) {
        for storage in self.storages.values_mut() {
            storage.volumes.retain(|_, v| v.vmid != Some(vmid) || v.content != "images");
        }
    }

    fn download(
        &mut self,
        storage: &str,
        mut volume: Volume,
        url: &str,
        sha256: Option<String>,
    ) -> Result<(), String> {
        let Some(image) = self.images.iter().find(|i| i.url == url).cloned() else {
            return Err("download failed: exit code 8".to_string());
        };
        let node = volume.home.clone();
        let key = Storage::key(&volume.home, &volume.volid);
        let there = self.storages.get(storage).and_then(|s| s.volumes.get(&key)).is_some();
        let path =
            format!("/var/lib/vz/template/{}", volume.volid.split_once(':').map_or("", |(_, rest)| rest));
        let got = image.sha256.to_ascii_lowercase();
        if let Some(expected) = sha256.as_ref().filter(|expected| !expected.eq_ignore_ascii_case(&got)) {
            return Err(format!("checksum mismatch: got '{got}' != expect '{expected}', aborting"));
        }
        // A file that is there is left alone; with a checksum that fits, that is what was asked for.
        match (there, sha256) {
            (true, Some(_)) => return Ok(()),
            (true, None) => return Err(format!("refusing to override existing file '{path}'")),
            (false, _) => {}
        }
        volume.size = image.size;
        volume.used = image.size;
        volume.system =
            image.talos_version.map(|version| super::state::System { version, agent: image.agent });
        let full = self.storages.get(storage).is_some_and(|s| image.size > s.free(&node));
        if full {
            return Err(format!("download failed: {path}: No space left on device"));
        }
        self.put(storage, &node, volume).map(|_| ())
    }

    fn delete_volume(&mut self, key: &str) -> Result<(), String> {
        let storage =
            key.split('|').nth(1).and_then(|volid| volid.split_once(':')).map(|(s, _)| s.to_string());
        let found = storage.and_then(|s| self.storages.get_mut(&s)).and_then(|s| s.volumes.remove(key));
        // Somebody else was faster: what is gone is gone.
        let _ = found;
        Ok(())
    }

    /// The address that a machine of this virtual machine takes: from cloud-init, else from DHCP.
    pub(super) fn address_of(&mut self, vmid: u32) -> Option<IpAddr> {
        let vm = self.vms.get(&vmid)?;
        let mac = config::mac_of(vm.config.get("net0")?)?;
        // Without its drive, nothing of cloud-init reaches the machine.
        let drive = vm
            .config
            .iter()
            .any(|(key, text)| super::schema::is_drive(key) && Drive::parse(text).is_cloud_init());
        let fixed = vm.config.get("ipconfig0").filter(|_| drive).and_then(|text| {
            let value = text.split(',').find_map(|part| part.strip_prefix("ip="))?;
            super::schema::cidr(value).map(|(address, _)| address)
        });
        fixed.or_else(|| self.lease(&mac))
    }

    /// The DHCP server remembers who had which address.
    fn lease(&mut self, mac: &str) -> Option<IpAddr> {
        if let Some(address) = self.leases.get(mac) {
            return Some(*address);
        }
        let (first, last) = self.network.dhcp?;
        let held = self.vms.values().flat_map(|vm| [vm.machine, vm.foreign]).flatten();
        let taken: HashSet<IpAddr> = self.leases.values().copied().chain(held).collect();
        let address = (u32::from(first)..=u32::from(last))
            .map(|n| IpAddr::V4(Ipv4Addr::from(n)))
            .find(|address| !taken.contains(address))?;
        self.leases.insert(mac.to_string(), address);
        Some(address)
    }
}

/// The size that a resize asks for, given the size that is there.
pub(super) fn wanted_size(text: &str, now: u64) -> Option<u64> {
    match text.strip_prefix('+') {
        Some(more) => parse_size(more).map(|bytes| now + bytes),
        None => parse_size(text),
    }
}
