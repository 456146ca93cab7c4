//! The Proxmox part of a ProviderConfig, parsed once, and the choices that follow from it alone: place, id, source.

use super::model::Vm;
use crate::failure::{Class, Failure};
use crate::seam::MachineWanted;
use butler_api::{ProviderConfigSpec, ProxmoxConfig};

/// Where things go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) nodes: Vec<String>,
    pub(crate) storage: String,
    pub(crate) template: Option<u32>,
    /// Ids that machines may take, both ends included.
    pub(crate) range: Option<(u32, u32)>,
    pub(crate) bridge: String,
    pub(crate) vlan: Option<i32>,
    pub(crate) image_storage: String,
}

/// What a machine is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Template {
        vmid: u32,
        node: String,
    },
    /// A volume: `local:import/talos.qcow2`.
    Image(String),
}

fn invalid(reason: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(Class::InvalidConfig, reason, message, remedy)
}

impl Settings {
    pub(crate) fn read(config: &ProviderConfigSpec) -> Result<(Self, &ProxmoxConfig), Failure> {
        let Some(block) = &config.proxmox else {
            let message = "the ProviderConfig has no block proxmox";
            return Err(invalid("BlockMissing", message, "add the block with endpoint, nodes and storage"));
        };
        if block.nodes.is_empty() || block.storage.is_empty() {
            let message = "the block proxmox names no nodes or no storage";
            return Err(invalid(
                "SettingsMissing",
                message,
                "name at least one node, and the storage of the disks",
            ));
        }
        let id = |value: i32| u32::try_from(value).unwrap_or(0).max(100);
        let range = block.vmid_range.as_ref().map(|range| (id(range.start), id(range.end)));
        if range.is_some_and(|(start, end)| start > end) {
            return Err(invalid("VmidRangeInvalid", "vmidRange starts after its end", "swap start and end"));
        }
        let settings = Self {
            nodes: block.nodes.clone(),
            storage: block.storage.clone(),
            template: block.template_id.map(id),
            range,
            bridge: block.bridge().to_owned(),
            vlan: block.vlan,
            image_storage: block.image_storage().to_owned(),
        };
        Ok((settings, block))
    }

    /// The node for a machine: by its number, so that the machines of a role are spread, skipping nodes that are down.
    pub(crate) fn place(&self, name: &str, online: &[String]) -> Result<String, Failure> {
        let (_, index) = number_of(name);
        let count = self.nodes.len();
        (0..count)
            .map(|step| &self.nodes[(index as usize + step) % count])
            .find(|node| online.contains(node))
            .cloned()
            .ok_or_else(|| {
                Failure::new(
                    Class::Retryable,
                    "NoNodeOnline",
                    format!("none of the nodes {} is online", self.nodes.join(", ")),
                    "bring one of them back, or name others in the ProviderConfig",
                )
            })
    }

    /// All ids of the range in the order in which a machine tries them: control planes upwards from the start, all
    /// others downwards from the end. Machines of one cluster then meet only in a range that is too small.
    pub(crate) fn ids(&self, name: &str) -> impl Iterator<Item = u32> + use<> {
        let (start, end) = self.range.unwrap_or((1, 0));
        let size = (end + 1).saturating_sub(start);
        let (control_plane, index) = number_of(name);
        (0..size).map(move |step| {
            let offset = (index % size.max(1) + step) % size.max(1);
            if control_plane { start + offset } else { end - offset }
        })
    }

    /// What a machine is made from. `vms` is needed to find a template's node, or a template by its name.
    pub(crate) fn source(&self, wanted: &MachineWanted, vms: &[Vm]) -> Result<Source, Failure> {
        let found = match wanted.image.as_deref().filter(|image| !image.is_empty()) {
            Some(image) if image.contains(':') => return Ok(Source::Image(image.to_owned())),
            Some(image) => match image.parse::<u32>() {
                Ok(id) => vms.iter().find(|vm| vm.vmid == id).ok_or(image.to_owned()),
                Err(_) => vms
                    .iter()
                    .find(|vm| vm.template && vm.name.as_deref() == Some(image))
                    .ok_or(image.to_owned()),
            },
            None => {
                let Some(id) = self.template else {
                    let message =
                        format!("{} has neither a template nor an image to be made from", wanted.name);
                    return Err(invalid(
                        "NoImage",
                        message,
                        "set templateID in the ProviderConfig, or an image",
                    ));
                };
                vms.iter().find(|vm| vm.vmid == id).ok_or(id.to_string())
            }
        };
        match found {
            Ok(vm) if vm.template && !vm.container => {
                Ok(Source::Template { vmid: vm.vmid, node: vm.node.clone() })
            }
            Ok(vm) => Err(invalid(
                "NotATemplate",
                format!("VM {} on {} is not a template", vm.vmid, vm.node),
                "turn it into one (qm template), or name another",
            )),
            Err(name) => Err(invalid(
                "TemplateMissing",
                format!("there is no template {name}, or the credentials can't see it"),
                "make the template, correct templateID, or give the user VM.Audit and VM.Clone on it",
            )),
        }
    }
}

/// Whether a name is a control plane's, and its number. A name without a number gets one that stays the same.
fn number_of(name: &str) -> (bool, u32) {
    let (head, tail) = name.rsplit_once('-').unwrap_or(("", name));
    let control_plane = head.ends_with("-cp") || head.ends_with("control-plane");
    match tail.parse() {
        Ok(number) => (control_plane, number),
        // FNV-1a, cut to a small number.
        Err(_) => {
            let hash = name
                .bytes()
                .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            (control_plane, hash % 1000)
        }
    }
}
