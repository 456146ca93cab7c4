//! Fills a new state with what a site has: templates and the machines of others.

use super::schema::print_size;
use super::site::{ProxmoxSite, SiteTemplate, SiteVm};
use super::state::{State, System, Vm};
use crate::random::Random;
use std::collections::BTreeMap;

pub(super) fn furnish(state: &mut State, site: &ProxmoxSite) {
    for template in &site.templates {
        add_template(state, template);
    }
    for vm in &site.foreign {
        add_foreign(state, vm);
    }
}

/// A machine with the settings that the web interface would give it.
fn plain(state: &mut State, name: &str, node: &str, tags: &str) -> Vm {
    let mac = state.mac();
    let uuid = Random::new(state.draw()).uuid();
    let bridge = state.network.bridge.clone();
    let mut config: BTreeMap<String, String> = [
        ("name", name),
        ("cores", "2"),
        ("sockets", "1"),
        ("memory", "4096"),
        ("cpu", "host"),
        ("ostype", "l26"),
        ("scsihw", "virtio-scsi-single"),
        ("boot", "order=scsi0"),
        ("serial0", "socket"),
    ]
    .map(|(key, value)| (key.to_string(), value.to_string()))
    .into();
    config.insert("net0".to_string(), format!("virtio={mac},bridge={bridge}"));
    config.insert("smbios1".to_string(), format!("uuid={uuid}"));
    if !tags.is_empty() {
        config.insert("tags".to_string(), tags.to_string());
    }
    Vm {
        node: node.to_string(),
        config,
        running: false,
        pid: 0,
        started: 0,
        machine: None,
        foreign: None,
        agent_from: None,
    }
}

/// A site whose template has no room on its storage has a template without a disk; the first clone says so.
fn add_template(state: &mut State, template: &SiteTemplate) {
    let mut vm = plain(state, &template.name, &template.node, &template.tags);
    let vmid = template.vmid;
    if let Ok(disk) = state.allocate(&template.storage, &template.node, vmid, template.disk, None, 0) {
        let size = print_size(disk.size);
        vm.config.insert("scsi0".to_string(), format!("{},iothread=1,size={size}", disk.volid));
        if let Some(volume) = state.volume_mut(&disk.volid, &template.node) {
            volume.system = Some(System { version: template.talos_version.clone(), agent: template.agent });
        }
    }
    if template.cloud_init
        && let Ok(volid) = state.allocate_cloud_init(&template.storage, &template.node, vmid, 0)
    {
        vm.config.insert("ide2".to_string(), format!("{volid},media=cdrom"));
        vm.config.insert("ipconfig0".to_string(), "ip=dhcp".to_string());
    }
    if template.agent {
        vm.config.insert("agent".to_string(), "enabled=1".to_string());
    }
    state.vms.insert(vmid, vm);
    // Its disks were just made, so nothing can be in the way.
    let _ = state.make_template(vmid);
}

pub(super) fn add_foreign(state: &mut State, foreign: &SiteVm) {
    let mut vm = plain(state, &foreign.name, &foreign.node, &foreign.tags);
    vm.running = foreign.running;
    vm.foreign = foreign.address;
    if let Some((storage, size)) = &foreign.disk
        && let Ok(disk) = state.allocate(storage, &foreign.node, foreign.vmid, *size, None, 0)
    {
        vm.config.insert("scsi0".to_string(), format!("{},size={}", disk.volid, print_size(*size)));
    }
    state.vms.insert(foreign.vmid, vm);
}
