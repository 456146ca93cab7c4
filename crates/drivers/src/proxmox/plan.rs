//! What to do next about one machine: pure decisions over what was seen.
//!
//! ```text
//! nobody there --clone--> ours, half made --configure--> --grow--> --start--> running --address--> settled
//!              `-create (from an image)--^
//! ```
//!
//! Every step is found out from what is there, never from memory: a driver that starts anew goes on where another ended.
//! The one exception is an id that Proxmox proposed: it is handed to the caller to be kept before it is used.

use super::mark::{Mark, tags};
use super::model::{Config, Vm, property};
use super::mutation::{Mutation, Verb};
use super::settings::Settings;
use crate::failure::{Class, Failure};
use crate::seam::{MachineWanted, Owner, StaticAddress};
use std::collections::BTreeMap;

/// All that was seen for one machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    /// Everything that has an id.
    pub(crate) vms: Vec<Vm>,
    /// Configurations of those that may be ours.
    pub(crate) configs: BTreeMap<u32, Config>,
    /// Nodes that are up; read when something is to be made.
    pub(crate) online: Vec<String>,
    /// What the cluster says is free; read when there is no range.
    pub(crate) next_id: Option<u32>,
    /// The id that was chosen for the machine before; the caller kept it.
    pub(crate) kept: Option<u32>,
    /// Ids that are about to be taken, by the uid of the machine's request.
    pub(crate) reserved: BTreeMap<u32, String>,
    /// Whether the machine runs; read when it is fully set up.
    pub(crate) running: bool,
}

/// Which of the machines there is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    Ours(Vm),
    /// One that does not yet show whose it is.
    Unclear(Vm),
    Nobody,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    Do(Mutation),
    Wait(String),
    /// It is there, set up and on.
    Settled,
}

/// Machines whose configuration has to be read to know whose they are: the name fits, a tag fits, or there is no name yet.
pub(crate) fn candidates<'a>(
    vms: &'a [Vm],
    name: &'a str,
    owner: &'a Owner,
    provider_id: Option<u32>,
    range: Option<(u32, u32)>,
) -> impl Iterator<Item = &'a Vm> {
    let tag = super::mark::tag(&owner.object_uid);
    vms.iter().filter(move |vm| {
        !vm.container
            && (vm.name.as_deref() == Some(name)
                || (vm.name.is_none() && range.is_none_or(|(start, end)| (start..=end).contains(&vm.vmid)))
                || vm.tags.contains(&tag)
                || provider_id == Some(vm.vmid))
    })
}

/// Finds the machine of an owner. A machine of the same name that is not the owner's is a conflict.
pub(crate) fn identify(name: &str, owner: &Owner, seen: &Observed) -> Result<Identity, Failure> {
    let with_config = || seen.vms.iter().filter_map(|vm| Some((vm, seen.configs.get(&vm.vmid)?)));
    if let Some((vm, _)) =
        with_config().find(|(_, config)| config.mark().is_some_and(|mark| mark.is_of(owner)))
    {
        return Ok(Identity::Ours(vm.clone()));
    }
    for (vm, config) in with_config() {
        let shown = config.get("name").or(vm.name.as_deref());
        // Proxmox writes an empty configuration with a lock first, and name and description after the first disk.
        let unfinished = shown.is_none() && config.lock().is_some();
        let anothers = seen.reserved.get(&vm.vmid).is_some_and(|uid| *uid != owner.object_uid);
        if unfinished && !anothers {
            return Ok(Identity::Unclear(vm.clone()));
        }
        if shown == Some(name) && !vm.template {
            return Err(foreign(name, vm, config.mark().as_ref()));
        }
    }
    Ok(Identity::Nobody)
}

fn foreign(name: &str, vm: &Vm, mark: Option<&Mark>) -> Failure {
    let whose = match mark {
        Some(mark) => {
            format!("it belongs to another request of the cluster {} ({})", mark.cluster, mark.cluster_uid)
        }
        None => "it is not ours".to_owned(),
    };
    Failure::new(
        Class::Conflict,
        "NameTaken",
        format!("VM {} on {} has the name {name} already, and {whose}", vm.vmid, vm.node),
        "rename or delete that VM, or choose another cluster name; it was not touched",
    )
}

/// The next step towards the machine that is wanted.
pub(crate) fn plan(wanted: &MachineWanted, settings: &Settings, seen: &Observed) -> Result<Plan, Failure> {
    let vm = match identify(&wanted.name, &wanted.owner, seen)? {
        Identity::Nobody => return creation(wanted, settings, seen).map(Plan::Do),
        Identity::Unclear(vm) => {
            return Ok(Plan::Wait(format!(
                "VM {} on {}, which is being made, to show whose it is",
                vm.vmid, vm.node
            )));
        }
        Identity::Ours(vm) => vm,
    };
    let none = Config::default();
    let config = seen.configs.get(&vm.vmid).unwrap_or(&none);
    if let Some(lock) = config.lock() {
        return Ok(Plan::Wait(format!("VM {} to be unlocked ({lock})", vm.vmid)));
    }
    if seen.running {
        // A machine that runs is left as it is: what could still differ only takes effect at its next start.
        return Ok(Plan::Settled);
    }
    let mutation = |verb| {
        Ok(Plan::Do(Mutation {
            node: vm.node.clone(),
            vmid: vm.vmid,
            name: wanted.name.clone(),
            fixed_id: settings.range.is_some(),
            verb,
        }))
    };
    let missing = missing_settings(wanted, settings, config);
    if !missing.is_empty() {
        let digest = config.get("digest").map(str::to_owned);
        return mutation(Verb::Configure { settings: missing, digest, words: in_words(wanted, settings) });
    }
    if let Some(disk) = config.root_disk()
        && config.disk_gb(&disk).is_some_and(|gb| gb < wanted.disk_gb)
    {
        return mutation(Verb::Resize { disk, gb: wanted.disk_gb });
    }
    mutation(Verb::Start)
}

/// The next step towards its absence; `None` when nobody of ours is there.
pub(crate) fn plan_removal(
    name: &str,
    owner: &Owner,
    settings: &Settings,
    seen: &Observed,
) -> Result<Option<Plan>, Failure> {
    let vm = match identify(name, owner, seen) {
        Ok(Identity::Ours(vm)) => vm,
        Ok(Identity::Unclear(vm)) => {
            let what = format!("VM {} on {}, which is being made, to show whose it is", vm.vmid, vm.node);
            return Ok(Some(Plan::Wait(what)));
        }
        // A foreign machine of that name stays, and ours is not there.
        Ok(Identity::Nobody) | Err(Failure { class: Class::Conflict, .. }) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let lock = seen.configs.get(&vm.vmid).and_then(Config::lock);
    if let Some(lock) = lock {
        return Ok(Some(Plan::Wait(format!("VM {} to be unlocked ({lock})", vm.vmid))));
    }
    let verb = if seen.running { Verb::Stop } else { Verb::Destroy };
    let fixed_id = settings.range.is_some();
    Ok(Some(Plan::Do(Mutation { node: vm.node, vmid: vm.vmid, name: name.to_owned(), fixed_id, verb })))
}

/// How the machine comes into being.
fn creation(wanted: &MachineWanted, settings: &Settings, seen: &Observed) -> Result<Mutation, Failure> {
    if wanted.user_data.is_some() {
        return Err(Failure::new(
            Class::InvalidConfig,
            "UserDataUnsupported",
            format!("{}: Proxmox has no way to hand user data to a machine by its API", wanted.name),
            "set talos.configDelivery to push",
        ));
    }
    let node = settings.place(&wanted.name, &seen.online)?;
    let vmid = free_id(wanted, settings, seen)?;
    let verb = match settings.source(wanted, &seen.vms)? {
        super::settings::Source::Template { vmid, node } => Verb::Clone {
            template: vmid,
            template_node: node,
            storage: settings.storage.clone(),
            description: Mark::new(&wanted.owner, &wanted.labels).describe(),
        },
        super::settings::Source::Image(image) => {
            let root = format!("{}:0,import-from={image}", settings.storage);
            let mut all = missing_settings(wanted, settings, &Config::default());
            all.push(("scsi0".to_owned(), root));
            all.push(("boot".to_owned(), "order=scsi0".to_owned()));
            Verb::Create { image, settings: all, words: in_words(wanted, settings) }
        }
    };
    Ok(Mutation { node, vmid, name: wanted.name.clone(), fixed_id: settings.range.is_some(), verb })
}

/// The id that was chosen for a machine before, by this process or another, as long as nobody else is seen under it.
pub(crate) fn own_id(wanted: &MachineWanted, seen: &Observed) -> Option<u32> {
    let uid = &wanted.owner.object_uid;
    let remembered = || seen.reserved.iter().find(|(_, other)| *other == uid).map(|(id, _)| *id);
    seen.kept.or_else(remembered).filter(|id| !seen.vms.iter().any(|vm| vm.vmid == *id))
}

/// An id that nobody has: the machine's own place in the range, or the next behind it; without a range the one that was chosen
/// before, or what the cluster proposes.
///
/// A clone whose answer was lost has to be asked for under the same id again, which Proxmox refuses. In a range the choice
/// therefore depends on the name and on what is there only.
fn free_id(wanted: &MachineWanted, settings: &Settings, seen: &Observed) -> Result<u32, Failure> {
    let taken = |id: u32| {
        seen.vms.iter().any(|vm| vm.vmid == id)
            || seen.reserved.get(&id).is_some_and(|uid| *uid != wanted.owner.object_uid)
    };
    let Some((start, end)) = settings.range else {
        if let Some(id) = own_id(wanted, seen) {
            return Ok(id);
        }
        let first = seen.next_id.unwrap_or(100).max(100);
        return (first..=999_999_999)
            .find(|id| !taken(*id))
            .ok_or_else(|| no_ids("all ids are taken".to_owned()));
    };
    settings
        .ids(&wanted.name)
        .find(|id| !taken(*id))
        .ok_or_else(|| no_ids(format!("all ids from {start} to {end} are taken")))
}

fn no_ids(message: String) -> Failure {
    Failure::new(
        Class::Quota,
        "NoFreeVmid",
        message,
        "widen vmidRange in the ProviderConfig, or delete unused VMs",
    )
}

/// Settings of the machine that are not as they should be.
pub(crate) fn missing_settings(
    wanted: &MachineWanted,
    settings: &Settings,
    config: &Config,
) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: String| out.push((key.to_owned(), value));
    let first = |text: &str| text.split(',').next().unwrap_or_default().rsplit('=').next().map(str::to_owned);
    if config.get("cores") != Some(wanted.cpu.to_string().as_str()) {
        set("cores", wanted.cpu.to_string());
    }
    if config.get("sockets").unwrap_or("1") != "1" {
        set("sockets", "1".to_owned());
    }
    if config.get("memory").and_then(first) != Some(wanted.memory_mb.to_string()) {
        set("memory", wanted.memory_mb.to_string());
    }
    if config.get("agent").and_then(first).as_deref() != Some("1") {
        set("agent", "1".to_owned());
    }
    // The controller of disks that are there already is left alone: the guest may know only that one.
    if config.get("scsihw").is_none() {
        set("scsihw", "virtio-scsi-pci".to_owned());
    }
    if let Some(card) = missing_card(settings, config) {
        set("net0", card);
    }
    let mut all_tags = config.tags();
    if !tags(&wanted.owner).is_subset(&all_tags) {
        all_tags.extend(tags(&wanted.owner));
        set("tags", all_tags.into_iter().collect::<Vec<_>>().join(";"));
    }
    if config.mark().is_none() {
        set("description", Mark::new(&wanted.owner, &wanted.labels).describe());
    }
    if let Some(fixed) = &wanted.static_address {
        if !config.has_cloud_init() {
            let slot = ["ide2", "ide0", "ide1", "ide3"].into_iter().find(|slot| config.get(slot).is_none());
            set(slot.unwrap_or("ide2"), format!("{}:cloudinit", settings.storage));
        }
        let servers: Vec<String> = fixed.nameservers.iter().map(ToString::to_string).collect();
        for (key, value) in [("ipconfig0", ip_config(fixed)), ("nameserver", servers.join(" "))] {
            if !value.is_empty() && config.get(key) != Some(value.as_str()) {
                set(key, value);
            }
        }
    }
    for (index, disk) in wanted.extra_disks.iter().enumerate() {
        let slot = format!("scsi{}", index + 1);
        if config.get(&slot).is_none() {
            let storage = disk.storage_class.as_deref().unwrap_or(&settings.storage);
            set(&slot, format!("{storage}:{}", disk.size_gb));
        }
    }
    out
}

/// How the machine is to be set up, for people. Says what it will be, not what differs from a template, so that it is the same
/// before and after a look at the template.
fn in_words(wanted: &MachineWanted, settings: &Settings) -> String {
    let vlan = settings.vlan.map(|tag| format!(" VLAN {tag}")).unwrap_or_default();
    let address = match &wanted.static_address {
        Some(fixed) => {
            let servers: Vec<String> = fixed.nameservers.iter().map(ToString::to_string).collect();
            let gateway = fixed.gateway.map(|gateway| format!(" by {gateway}")).unwrap_or_default();
            let names =
                if servers.is_empty() { String::new() } else { format!(", names by {}", servers.join(" ")) };
            format!("address {}/{}{gateway}{names}", fixed.address, fixed.bits)
        }
        None => "address by DHCP".to_owned(),
    };
    let mut words = format!(
        "{} CPUs, {} MiB, on {}{vlan}, {address}, tags of cluster and machine",
        wanted.cpu, wanted.memory_mb, settings.bridge
    );
    for (index, disk) in wanted.extra_disks.iter().enumerate() {
        let storage = disk.storage_class.as_deref().unwrap_or(&settings.storage);
        words.push_str(&format!(", disk scsi{} of {} GiB on {storage}", index + 1, disk.size_gb));
    }
    words
}

/// The network card, when it is not on the right bridge and VLAN. Its hardware address stays.
fn missing_card(settings: &Settings, config: &Config) -> Option<String> {
    let now = config.get("net0").unwrap_or_default();
    let tag = settings.vlan.map(|tag| tag.to_string());
    let right = now.starts_with("virtio")
        && property(now, "bridge") == Some(settings.bridge.as_str())
        && property(now, "tag") == tag.as_deref();
    if right {
        return None;
    }
    let card = config
        .mac()
        .map_or_else(|| "virtio".to_owned(), |mac| format!("virtio={}", mac.to_ascii_uppercase()));
    let tag = tag.map(|tag| format!(",tag={tag}")).unwrap_or_default();
    Some(format!("{card},bridge={}{tag}", settings.bridge))
}

fn ip_config(fixed: &StaticAddress) -> String {
    let six = if fixed.address.is_ipv6() { "6" } else { "" };
    let gateway = fixed.gateway.map(|gateway| format!(",gw{six}={gateway}")).unwrap_or_default();
    format!("ip{six}={}/{}{gateway}", fixed.address, fixed.bits)
}
