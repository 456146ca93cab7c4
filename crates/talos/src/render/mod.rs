//! From intent to documents, per contract.
//!
//! ```text
//! ClusterIntent + NodeIntent + SecretsBundle --> main.rs: the v1alpha1 document
//!                                                old.rs:  1.9 to 1.11, network, time and registries inside of it
//!                                                new.rs:  from 1.12 on, each in a document of its own
//! ```
//!
//! Nothing is patched: every document is built whole, with the keys that the contract's own generator writes.

mod main;
mod new;
mod old;

use crate::config::{Document, MachineConfig};
use crate::intent::{ClusterIntent, Link, LinkName, NodeIntent, Role, VOLUMES};
use crate::secrets::{SecretsBundle, SecretsError};
use serde_json::{Map, Value, json};

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("cannot render the config of {node}: the secrets do not fit")]
    Secrets { node: String, source: SecretsError },
    #[error("cannot render the config of {node}: {field} {why}")]
    Intent { node: String, field: &'static str, why: String },
}

/// The whole config of one node.
pub fn render(
    cluster: &ClusterIntent,
    node: &NodeIntent,
    secrets: &SecretsBundle,
) -> Result<MachineConfig, RenderError> {
    let contract = cluster.talos.contract();
    secrets
        .check_for(contract)
        .map_err(|source| RenderError::Secrets { node: node.hostname.clone(), source })?;
    check(cluster, node)?;
    let mut main = main::main(cluster, node, secrets);
    let mut documents = Vec::new();
    if contract.has_network_documents() {
        documents.append(&mut new::documents(cluster, node, &mut main));
    } else {
        old::fill(cluster, node, &mut main);
    }
    if contract.has_user_volumes() {
        documents.extend(node.extra_disks.iter().map(user_volume));
    } else if !node.extra_disks.is_empty() {
        main["machine"]["disks"] = node.extra_disks.iter().map(old_disk).collect();
    }
    if contract.drops_empty_network() && main["machine"]["network"].as_object().is_some_and(Map::is_empty) {
        remove(&mut main["machine"], "network");
    }
    documents.insert(0, Document::new(crate::config::MAIN, main));
    Ok(MachineConfig { documents })
}

/// What a renderer could only turn into a config that does not work.
fn check(cluster: &ClusterIntent, node: &NodeIntent) -> Result<(), RenderError> {
    let error = |field, why: String| Err(RenderError::Intent { node: node.hostname.clone(), field, why });
    if cluster.vip.is_some() && node.role == Role::ControlPlane && node.vip_link.is_none() {
        return error("vip_link", "must name the link that holds the cluster's shared address".into());
    }
    for disk in &node.extra_disks {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if disk.name.is_empty() || disk.name.len() > MAX_VOLUME_NAME || !disk.name.chars().all(good) {
            let why =
                format!("has the name {:?}, which is not 1 to 34 letters, digits and dashes", disk.name);
            return error("extra_disks", why);
        }
        if disk.device.contains('"') || !disk.device.starts_with("/dev/") {
            return error(
                "extra_disks",
                format!("has the device {:?}, which is not below /dev/", disk.device),
            );
        }
    }
    for link in &node.links {
        if let LinkName::Mac(mac) = &link.name
            && !is_mac(mac)
        {
            return error("links", format!("has {mac:?}, which is not a hardware address"));
        }
    }
    Ok(())
}

/// What is left of a partition label of 36 characters after Talos' prefix.
const MAX_VOLUME_NAME: usize = 34;

pub(crate) fn is_mac(text: &str) -> bool {
    let mut parts = text.split(':');
    text.len() == 17 && parts.all(|part| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn old_disk(disk: &crate::intent::ExtraDisk) -> Value {
    json!({"device": disk.device, "partitions": [{"mountpoint": format!("{VOLUMES}/{}", disk.name)}]})
}

fn user_volume(disk: &crate::intent::ExtraDisk) -> Document {
    // A name that is a link to the disk is not its own path, so it has to be looked for among the links.
    let matching = if disk.device.starts_with("/dev/disk/") {
        format!("{:?} in disk.symlinks", disk.device)
    } else {
        format!("disk.dev_path == {:?}", disk.device)
    };
    Document::new(
        "UserVolumeConfig",
        json!({
            "name": disk.name,
            "provisioning": {"diskSelector": {"match": matching}, "grow": true, "minSize": "1GiB"},
        }),
    )
}

/// The links of a node, with the one for the shared address among them, and whether that one was asked for by itself.
fn links(node: &NodeIntent) -> Vec<Link> {
    let mut links = node.links.clone();
    if let Some(name) = node.vip_link.as_ref().filter(|_| node.role == Role::ControlPlane)
        && !links.iter().any(|link| link.name == *name)
    {
        // An interface that is mentioned gets no DHCP by itself.
        links.push(Link { name: name.clone(), dhcp: true, addresses: vec![], routes: vec![], mtu: None });
    }
    links
}

/// The shared address, on nodes that may hold it.
fn vip<'a>(cluster: &ClusterIntent, node: &'a NodeIntent) -> Option<(String, &'a LinkName)> {
    if node.role == Role::Worker {
        return None;
    }
    cluster.vip.map(|address| address.to_string()).zip(node.vip_link.as_ref())
}

/// Sets a key when there is something to set.
fn put(map: &mut Value, key: &str, value: impl Into<Value>) {
    let value = value.into();
    let empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if !empty {
        map[key] = value;
    }
}

fn remove(map: &mut Value, key: &str) {
    if let Some(map) = map.as_object_mut() {
        map.remove(key);
    }
}

#[cfg(test)]
pub(crate) mod tests;
