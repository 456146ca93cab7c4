//! Storages and the room on them: every volume that is made, grown, copied or removed goes through here.

use super::request::Refusal;
use super::schema::{parse_size, print_size};
use super::state::{State, Storage, System, Volume};

const CLOUD_INIT_SIZE: u64 = 4 << 20;
/// LVM counts in extents of 4 MiB.
const EXTENT: u64 = 4 << 20;

/// A drive of a configuration: `local-lvm:vm-100-disk-0,size=10G`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drive {
    pub(super) volume: String,
    pub(super) options: Vec<(String, String)>,
}

impl Drive {
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let volume = first.strip_prefix("file=").unwrap_or(first).to_string();
        let options = parts
            .filter(|part| !part.is_empty())
            .map(|part| part.split_once('=').unwrap_or((part, "1")))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        Self { volume, options }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn set(&mut self, key: &str, value: String) {
        self.options.retain(|(known, _)| known != key);
        self.options.push((key.to_string(), value));
    }

    pub(super) fn is_cdrom(&self) -> bool {
        self.get("media") == Some("cdrom")
    }

    pub(super) fn is_cloud_init(&self) -> bool {
        self.volume.contains("cloudinit")
    }

    pub(super) fn storage(&self) -> Option<&str> {
        self.volume.split_once(':').map(|(storage, _)| storage)
    }

    pub(super) fn print(&self) -> String {
        let mut text = self.volume.clone();
        for (key, value) in &self.options {
            text.push_str(&format!(",{key}={value}"));
        }
        text
    }
}

impl Storage {
    /// Where on this storage something of a host is.
    pub(super) fn home(&self, node: &str) -> String {
        if self.shared { String::new() } else { node.to_string() }
    }

    pub(super) fn key(home: &str, volid: &str) -> String {
        format!("{home}|{volid}")
    }

    /// Bytes in use, seen from a host.
    pub(super) fn used(&self, node: &str) -> u64 {
        let home = self.home(node);
        self.reserved + self.volumes.values().filter(|v| v.home == home).map(|v| v.used).sum::<u64>()
    }

    pub(super) fn free(&self, node: &str) -> u64 {
        self.total.saturating_sub(self.used(node))
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|n| n == node)
    }

    /// Files rather than block devices.
    pub(super) fn has_files(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "nfs" | "cifs" | "btrfs" | "cephfs")
    }

    pub(super) fn default_format(&self) -> &'static str {
        if self.has_files() { "qcow2" } else { "raw" }
    }

    /// What the tool behind the storage says when there is no room.
    pub(super) fn full(&self, node: &str, name: &str, wanted: u64) -> String {
        let short = name.rsplit(['/', ':']).next().unwrap_or(name);
        match self.kind.as_str() {
            "lvm" | "lvmthin" => format!(
                "lvcreate 'pve/{short}' error:   Volume group \"pve\" has insufficient free space ({} extents): {} required.",
                self.free(node) / EXTENT,
                wanted.div_ceil(EXTENT)
            ),
            "zfspool" => format!("zfs error: cannot create 'rpool/data/{short}': out of space"),
            "rbd" => format!("rbd create '{short}' error: (28) No space left on device"),
            _ => format!("unable to create image: qemu-img: {short}: No space left on device"),
        }
    }
}

impl State {
    /// A storage that is there, enabled and on the host.
    pub(super) fn storage_on(&self, storage: &str, node: &str) -> Result<&Storage, Refusal> {
        let Some(found) = self.storages.get(storage) else {
            return Err(Refusal::died(format!("storage '{storage}' does not exist")));
        };
        if !found.enabled {
            return Err(Refusal::died(format!("storage '{storage}' is disabled")));
        }
        if !found.is_on(node) {
            return Err(Refusal::died(format!("storage '{storage}' is not available on node '{node}'")));
        }
        Ok(found)
    }

    /// A volume by its id, as a host sees it.
    pub(super) fn volume(&self, volid: &str, node: &str) -> Option<&Volume> {
        let (storage, _) = volid.split_once(':')?;
        let storage = self.storages.get(storage)?;
        storage.volumes.get(&Storage::key(&storage.home(node), volid))
    }

    pub(super) fn volume_mut(&mut self, volid: &str, node: &str) -> Option<&mut Volume> {
        let (storage, _) = volid.split_once(':')?;
        let storage = self.storages.get_mut(storage)?;
        let key = Storage::key(&storage.home(node), volid);
        storage.volumes.get_mut(&key)
    }

    /// Puts a volume on its storage, if there is room for it.
    pub(super) fn put(&mut self, storage: &str, node: &str, volume: Volume) -> Result<String, String> {
        let Some(found) = self.storages.get_mut(storage) else {
            return Err(format!("storage '{storage}' does not exist"));
        };
        if volume.used > found.free(node) {
            return Err(found.full(node, &volume.volid, volume.used));
        }
        let key = Storage::key(&volume.home, &volume.volid);
        found.volumes.insert(key.clone(), volume);
        Ok(key)
    }

    pub(super) fn remove_volume(&mut self, volid: &str, node: &str) -> Option<Volume> {
        let (storage, _) = volid.split_once(':')?;
        let storage = self.storages.get_mut(storage)?;
        let key = Storage::key(&storage.home(node), volid);
        storage.volumes.remove(&key)
    }

    /// A free name for a disk of a virtual machine.
    pub(super) fn disk_name(&self, storage: &str, node: &str, vmid: u32, format: &str) -> String {
        let has_files = self.storages.get(storage).is_some_and(Storage::has_files);
        let name = |n: u32| {
            if has_files {
                format!("{storage}:{vmid}/vm-{vmid}-disk-{n}.{format}")
            } else {
                format!("{storage}:vm-{vmid}-disk-{n}")
            }
        };
        // A linked clone's name has its base in front, and counts as well.
        let taken = |volid: &str| {
            let tail = volid.split_once(':').map_or(volid, |(_, tail)| tail);
            self.storages.get(storage).is_some_and(|s| {
                let home = s.home(node);
                s.volumes
                    .values()
                    .any(|v| v.home == home && (v.volid == volid || v.volid.ends_with(&format!("/{tail}"))))
            })
        };
        (0..).map(name).find(|volid| !taken(volid)).unwrap_or_default()
    }

    /// A new, empty volume with a size in bytes.
    pub(super) fn allocate(
        &mut self,
        storage: &str,
        node: &str,
        vmid: u32,
        size: u64,
        format: Option<&str>,
        now: u64,
    ) -> Result<Volume, String> {
        let Some(found) = self.storages.get(storage) else {
            return Err(format!("storage '{storage}' does not exist"));
        };
        if !found.content.contains("images") {
            return Err(format!("storage '{storage}' does not support content-type 'images'"));
        }
        let format = format.filter(|_| found.has_files()).unwrap_or(found.default_format()).to_string();
        let home = found.home(node);
        let volume = Volume {
            volid: self.disk_name(storage, node, vmid, &format),
            home,
            content: "images".to_string(),
            format,
            size,
            used: size,
            vmid: Some(vmid),
            parent: None,
            created: now / 1000,
            system: None,
        };
        self.put(storage, node, volume.clone())?;
        Ok(volume)
    }

    /// The drive that cloud-init settings are handed over by.
    pub(super) fn allocate_cloud_init(
        &mut self,
        storage: &str,
        node: &str,
        vmid: u32,
        now: u64,
    ) -> Result<String, String> {
        let Some(found) = self.storages.get(storage) else {
            return Err(format!("storage '{storage}' does not exist"));
        };
        let volid = if found.has_files() {
            format!("{storage}:{vmid}/vm-{vmid}-cloudinit.qcow2")
        } else {
            format!("{storage}:vm-{vmid}-cloudinit")
        };
        let volume = Volume {
            volid: volid.clone(),
            home: found.home(node),
            content: "images".to_string(),
            format: found.default_format().to_string(),
            size: CLOUD_INIT_SIZE,
            used: CLOUD_INIT_SIZE,
            vmid: Some(vmid),
            parent: None,
            created: now / 1000,
            system: None,
        };
        if self.volume(&volid, node).is_none() {
            self.put(storage, node, volume)?;
        }
        Ok(volid)
    }

    /// Makes what a drive of a create or config call asks for. Gives the drive as it stands in the configuration.
    pub(super) fn make_drive(
        &mut self,
        vmid: u32,
        node: &str,
        text: &str,
        now: u64,
    ) -> Result<String, String> {
        let mut drive = Drive::parse(text);
        if drive.volume == "none" || drive.volume == "cdrom" {
            return Ok(drive.print());
        }
        let Some((storage, rest)) =
            drive.volume.clone().split_once(':').map(|(s, r)| (s.to_string(), r.to_string()))
        else {
            return Err(format!("unable to parse volume ID '{}'", drive.volume));
        };
        if rest == "cloudinit" {
            drive.volume = self.allocate_cloud_init(&storage, node, vmid, now)?;
            drive.set("media", "cdrom".to_string());
            return Ok(drive.print());
        }
        let Ok(gigabytes) = rest.parse::<f64>() else {
            let Some(volume) = self.volume(&drive.volume, node) else {
                return Err(format!("no such volume '{}'", drive.volume));
            };
            let size = volume.size;
            if !drive.is_cloud_init() {
                drive.set("size", print_size(size));
            }
            return Ok(drive.print());
        };
        let source = match drive.get("import-from").map(ToString::to_string) {
            Some(from) => {
                Some(self.volume(&from, node).cloned().ok_or(format!("volume '{from}' does not exist"))?)
            }
            None => None,
        };
        let size = match &source {
            Some(source) => disk_size(source),
            None => parse_size(&format!("{gigabytes}G")).unwrap_or_default(),
        };
        let format = drive.get("format").map(ToString::to_string);
        let made = self.allocate(&storage, node, vmid, size, format.as_deref(), now)?;
        if let Some(volume) = self.volume_mut(&made.volid, node) {
            volume.system = source.and_then(|source| source.system);
        }
        drive.options.retain(|(key, _)| !matches!(key.as_str(), "import-from" | "format"));
        drive.volume = made.volid;
        drive.set("size", print_size(size));
        Ok(drive.print())
    }

    /// What is on the volume that a virtual machine boots from, and whether that is a CD.
    pub(super) fn boot_system(&self, vmid: u32) -> Option<(System, bool)> {
        let vm = self.vms.get(&vmid)?;
        let named: Vec<String> = match vm.config.get("boot").and_then(|b| b.split("order=").nth(1)) {
            Some(order) => {
                order.split(',').next().unwrap_or_default().split(';').map(ToString::to_string).collect()
            }
            None => ["scsi0", "virtio0", "sata0", "ide0", "ide2"].map(ToString::to_string).to_vec(),
        };
        named.iter().find_map(|key| {
            let drive = Drive::parse(vm.config.get(key)?);
            let system = self.volume(&drive.volume, &vm.node)?.system.clone()?;
            Some((system, drive.is_cdrom()))
        })
    }
}

/// The size of the disk inside an image file: Talos' are a little over a gigabyte, whatever the file is.
fn disk_size(source: &Volume) -> u64 {
    if source.content == "images" { source.size } else { 1246 << 20 }
}
