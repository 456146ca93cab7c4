//! The configuration of a virtual machine: how changes are applied, and how it is shown.

use super::schema::{self, Kind};
use super::state::{State, Vm};
use super::volumes::Drive;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Applies a change: what `delete` names goes, the rest is set. Volumes are made and let go on the way.
///
/// Changes that a real guest would only see after its next start take effect at once.
pub(super) fn apply(
    state: &mut State,
    vmid: u32,
    changes: &BTreeMap<String, String>,
    now: u64,
) -> Result<(), String> {
    let Some(vm) = state.vms.get(&vmid) else { return Err(super::tasks::missing(vmid)) };
    let node = vm.node.clone();
    let mut config = vm.config.clone();
    // All or nothing: what is made or removed on the way to a failure must not have happened.
    let before =
        changes.keys().any(|key| key == "delete" || schema::is_drive(key)).then(|| state.storages.clone());
    let gone = changes.get("delete").map(String::as_str).unwrap_or_default();
    for key in gone.split([',', ';', ' ']).filter(|key| !key.is_empty()) {
        let Some(text) = config.remove(key) else { continue };
        if schema::is_drive(key) || key.starts_with("unused") {
            let_go(state, &mut config, vmid, &node, &text, key.starts_with("unused"));
        }
    }
    let options = changes.iter().filter(|(key, _)| schema::option(key).is_some());
    for (key, value) in options {
        if let Err(why) = set_option(state, &mut config, vmid, &node, key, value, now) {
            state.storages = before.unwrap_or_else(|| std::mem::take(&mut state.storages));
            return Err(why);
        }
    }
    if let Some(vm) = state.vms.get_mut(&vmid) {
        vm.config = config;
    }
    Ok(())
}

/// Sets one option of a configuration that is being made.
pub(super) fn set_option(
    state: &mut State,
    config: &mut BTreeMap<String, String>,
    vmid: u32,
    node: &str,
    key: &str,
    value: &str,
    now: u64,
) -> Result<(), String> {
    let old = config.get(key).cloned();
    let kept = match schema::option(key).map(|(kind, _)| kind) {
        Some(Kind::Drive) => {
            let same = old.as_ref().map(|o| Drive::parse(o).volume) == Some(Drive::parse(value).volume);
            if let Some(old) = old.filter(|_| !same) {
                let_go(state, config, vmid, node, &old, false);
            }
            state.make_drive(vmid, node, value, now)?
        }
        Some(Kind::Net) => net(value, old.as_deref(), || state.mac()),
        Some(Kind::Tags) => tags(value),
        Some(Kind::Bool) => u8::from(schema::truth(Some(&value.to_string()))).to_string(),
        _ => value.to_string(),
    };
    // An empty list of tags is no list.
    if key == "tags" && kept.is_empty() {
        config.remove(key);
    } else {
        config.insert(key.to_string(), kept);
    }
    Ok(())
}

/// A drive leaves the configuration: its volume is kept as unused, removed, or was never ours.
fn let_go(
    state: &mut State,
    config: &mut BTreeMap<String, String>,
    vmid: u32,
    node: &str,
    text: &str,
    remove: bool,
) {
    let drive = Drive::parse(text);
    let own = state.volume(&drive.volume, node).is_some_and(|v| v.vmid == Some(vmid));
    if !own {
        return;
    }
    if remove || drive.is_cloud_init() {
        state.remove_volume(&drive.volume, node);
        return;
    }
    let free = (0..256).map(|n| format!("unused{n}")).find(|key| !config.contains_key(key));
    if let Some(key) = free {
        config.insert(key, drive.volume);
    }
}

/// A network card with a hardware address: the given one, the one it had, or a new one.
pub(super) fn net(value: &str, old: Option<&str>, new: impl FnOnce() -> String) -> String {
    let mut parts: Vec<String> = value.split(',').map(ToString::to_string).collect();
    if let Some(model) = parts.iter().find_map(|p| p.strip_prefix("model=")).map(ToString::to_string) {
        let mac = parts.iter().find_map(|p| p.strip_prefix("macaddr=")).map(ToString::to_string);
        parts.retain(|p| !p.starts_with("model=") && !p.starts_with("macaddr="));
        parts.insert(0, mac.map_or(model.clone(), |mac| format!("{model}={mac}")));
    }
    if let Some(first) = parts.first_mut()
        && !first.contains('=')
    {
        let mac = old.and_then(mac_of).unwrap_or_else(new);
        *first = format!("{first}={mac}");
    }
    parts.join(",")
}

/// The hardware address of a network card.
pub(super) fn mac_of(net: &str) -> Option<String> {
    let (_, mac) = net.split(',').next()?.split_once('=')?;
    (mac.len() == 17).then(|| mac.to_ascii_uppercase())
}

/// Tags as Proxmox keeps them: lower case, each once, in order.
fn tags(value: &str) -> String {
    let each: BTreeSet<String> =
        value.split([';', ',', ' ']).filter(|t| !t.is_empty()).map(str::to_ascii_lowercase).collect();
    each.into_iter().collect::<Vec<_>>().join(";")
}

/// The configuration as `GET .../config` shows it.
pub(super) fn show(vm: &Vm) -> Value {
    let mut shown = Map::new();
    for (key, value) in &vm.config {
        let kind = schema::option(key).map(|(kind, _)| kind);
        let number = value.parse::<i64>().ok();
        let value = match (kind, number) {
            _ if key == "cipassword" => json!("**********"),
            // It is kept as comment lines, each with its end.
            _ if key == "description" => json!(format!("{}\n", value.trim_end_matches('\n'))),
            // Since it became a property string, memory is text.
            (Some(Kind::Integer(..) | Kind::Bool), Some(number)) if key != "memory" => json!(number),
            _ => json!(value),
        };
        shown.insert(key.clone(), value);
    }
    shown.insert("digest".to_string(), json!(digest(vm)));
    Value::Object(shown)
}

/// Changes with every change of the configuration.
pub(super) fn digest(vm: &Vm) -> String {
    let text: String = vm.config.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
