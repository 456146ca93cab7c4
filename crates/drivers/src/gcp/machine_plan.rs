//! What to do next about one machine: pure decisions over what was seen.
//!
//! ```text
//! nobody there --insert--> being made --> running, with its addresses: settled
//!                           stopped --start--^
//! ```

use super::names::{
    LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_OBJECT_UID, google_name, google_name_with, labels,
};
use super::part::{About, Kind, Mutation, Part, Scope, Thing, Verb};
use super::settings::Settings;
use crate::failure::{Class, Failure};
use crate::mark::Mark;
use crate::seam::{MachineFacts, MachineWanted, Owner};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    Do(Box<Mutation>),
    Wait(String),
    /// It is there, and on.
    Settled,
}

/// The machine, by its name and zone.
pub(crate) fn part(name: &str, zone: &str) -> Part {
    Part::new(Kind::Instance, Scope::Zone(zone.to_owned()), google_name(name))
}

pub(crate) fn about(name: &str, owner: &Owner) -> About {
    About { kind: "machine", name: name.to_owned(), uid: owner.object_uid.clone() }
}

/// Which of the instances of a name is the owner's. One that is not is a conflict.
pub(crate) fn identify<'a>(owner: &Owner, found: &'a [Thing]) -> Result<Option<&'a Thing>, Failure> {
    if let Some(ours) = found.iter().find(|thing| thing.is_of(owner)) {
        return Ok(Some(ours));
    }
    found.first().map_or(Ok(None), |thing| Err(foreign(thing)))
}

/// Something has the name that we need.
pub(crate) fn foreign(thing: &Thing) -> Failure {
    let whose = match &thing.mark {
        Some(mark) => {
            format!("belongs to another request of the cluster {} ({})", mark.cluster, mark.cluster_uid)
        }
        None => "is not ours".to_owned(),
    };
    Failure::new(
        Class::Conflict,
        "NameTaken",
        format!("{} is there already, and {whose}", thing.part.words()),
        "rename or delete it, or choose another cluster name; it was not touched",
    )
}

/// The next step towards the machine that is wanted. `disks` have the names of its disks; they matter while it is not there.
pub(crate) fn plan(
    wanted: &MachineWanted,
    settings: &Settings,
    zone: &str,
    found: &[Thing],
    disks: &[Thing],
) -> Result<Plan, Failure> {
    let Some(thing) = identify(&wanted.owner, found)? else {
        if let Some(disk) = disks.first() {
            return left_disk(wanted, disk);
        }
        let mutation = Mutation {
            part: part(&wanted.name, zone),
            about: about(&wanted.name, &wanted.owner),
            verb: Verb::Insert { body: body(wanted, settings, zone)?, words: words(wanted, settings)? },
        };
        return Ok(Plan::Do(Box::new(mutation)));
    };
    let change = |verb| {
        let about = about(&wanted.name, &wanted.owner);
        Ok(Plan::Do(Box::new(Mutation { part: thing.part.clone(), about, verb })))
    };
    match thing.text("status").unwrap_or_default() {
        "RUNNING" => {
            let facts = facts(thing, settings);
            if facts.addresses.is_empty() || (settings.external_address && facts.addresses.len() < 2) {
                return Ok(Plan::Wait(format!("{} to get its addresses", thing.part.words())));
            }
            Ok(Plan::Settled)
        }
        "TERMINATED" | "STOPPED" => change(Verb::Start),
        "SUSPENDED" => change(Verb::Resume),
        status => Ok(Plan::Wait(format!("{}, which is {status}, to run", thing.part.words()))),
    }
}

/// A disk is in the way of the machine: one of ours that has outlived an earlier instance goes.
fn left_disk(wanted: &MachineWanted, disk: &Thing) -> Result<Plan, Failure> {
    if !disk.is_of(&wanted.owner) {
        return Err(foreign(disk));
    }
    if !users(disk).is_empty() {
        return Ok(Plan::Wait(format!("{} to be released", disk.part.words())));
    }
    let about = about(&wanted.name, &wanted.owner);
    Ok(Plan::Do(Box::new(Mutation { part: disk.part.clone(), about, verb: Verb::Delete })))
}

/// Instances that a disk is attached to.
pub(crate) fn users(disk: &Thing) -> Vec<&Value> {
    disk.body.get("users").and_then(Value::as_array).into_iter().flatten().collect()
}

/// Names of a machine's disks, the one that it boots from first.
pub(crate) fn disk_names(wanted: &MachineWanted) -> Vec<String> {
    let name = google_name(&wanted.name);
    let extra =
        (1..=wanted.extra_disks.len()).map(|number| google_name_with(&name, &format!("-disk-{number}")));
    std::iter::once(name.clone()).chain(extra).collect()
}

/// The next step towards its absence; `None` when nobody of ours is there. Its disks go with it.
pub(crate) fn plan_removal(name: &str, owner: &Owner, found: &[Thing]) -> Option<Mutation> {
    let thing = found.iter().find(|thing| thing.is_of(owner))?;
    Some(Mutation { part: thing.part.clone(), about: about(name, owner), verb: Verb::Delete })
}

/// What is known of an instance.
pub(crate) fn facts(thing: &Thing, settings: &Settings) -> MachineFacts {
    let (inside, outside) = addresses(thing);
    let zone = thing.part.zone().unwrap_or_default();
    MachineFacts {
        provider_id: format!("gce://{}/{zone}/{}", settings.project, thing.part.name),
        reach: outside.first().or(inside.first()).copied(),
        addresses: inside.into_iter().chain(outside).collect(),
        mac: None,
        zone: Some(zone.to_owned()),
        running: thing.text("status") == Some("RUNNING"),
    }
}

/// Internal and external addresses.
pub(crate) fn addresses(thing: &Thing) -> (Vec<IpAddr>, Vec<IpAddr>) {
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let address = |value: &Value, key: &str| value.get(key)?.as_str()?.parse::<IpAddr>().ok();
    let cards = list(&thing.body, "networkInterfaces");
    let inside = cards.iter().filter_map(|card| address(card, "networkIP")).collect();
    let configs = cards.iter().flat_map(|card| list(card, "accessConfigs"));
    let outside = configs.filter_map(|config| address(&config, "natIP")).collect();
    (inside, outside)
}

/// The zone in a provider id.
pub(crate) fn zone_of(provider_id: &str) -> Option<&str> {
    provider_id.strip_prefix("gce://")?.split('/').nth(1)
}

/// Labels of what is made for a machine: they say whose it is as well as the description does.
fn owner_labels(wanted: &MachineWanted) -> BTreeMap<String, String> {
    let mut all = labels(&wanted.labels);
    all.insert(LABEL_CLUSTER.to_owned(), wanted.owner.cluster.clone());
    all.insert(LABEL_CLUSTER_UID.to_owned(), wanted.owner.cluster_uid.to_lowercase());
    all.insert(LABEL_OBJECT_UID.to_owned(), wanted.owner.object_uid.to_lowercase());
    all
}

fn words(wanted: &MachineWanted, settings: &Settings) -> Result<String, Failure> {
    let machine = settings.machine_type(wanted.cpu, wanted.memory_mb);
    let image = settings.image(wanted)?;
    let image = super::names::tail(&image).to_owned();
    let mut parts = vec![machine, format!("{} GiB from {image}", wanted.disk_gb)];
    parts.extend(wanted.extra_disks.iter().map(|disk| format!("disk of {} GiB", disk.size_gb)));
    if let Some(fixed) = &wanted.static_address {
        parts.push(format!("address {}", fixed.address));
    }
    if settings.external_address {
        parts.push("external address".to_owned());
    }
    Ok(parts.join(", "))
}

/// The instance as it is asked for.
fn body(wanted: &MachineWanted, settings: &Settings, zone: &str) -> Result<Value, Failure> {
    let name = google_name(&wanted.name);
    let machine = settings.machine_type(wanted.cpu, wanted.memory_mb);
    let machine = match machine.contains('/') {
        true => machine,
        false => settings.url(&format!("zones/{zone}/machineTypes/{machine}")),
    };
    let mut body = json!({
        "name": name,
        "description": Mark::new(&wanted.owner, &BTreeMap::new()).describe(),
        "machineType": machine,
        "canIpForward": settings.can_ip_forward,
        "labels": owner_labels(wanted),
        "tags": {"items": settings.tags(&wanted.owner.cluster)},
        "disks": disks(wanted, settings, zone)?,
        "networkInterfaces": [card(wanted, settings)],
    });
    if let Some(email) = &settings.service_account {
        let scopes = ["https://www.googleapis.com/auth/cloud-platform"];
        body["serviceAccounts"] = json!([{"email": email, "scopes": scopes}]);
    }
    if let Some(data) = &wanted.user_data {
        body["metadata"] = json!({"items": [{"key": "user-data", "value": data}]});
    }
    Ok(body)
}

fn card(wanted: &MachineWanted, settings: &Settings) -> Value {
    let mut card = json!({"network": settings.network});
    if let Some(subnetwork) = &settings.subnetwork {
        card["subnetwork"] = json!(subnetwork);
    }
    if let Some(fixed) = &wanted.static_address {
        card["networkIP"] = json!(fixed.address.to_string());
    }
    if settings.external_address {
        card["accessConfigs"] = json!([{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]);
    }
    card
}

/// All disks, the one that it boots from first. Each goes when the machine goes.
fn disks(wanted: &MachineWanted, settings: &Settings, zone: &str) -> Result<Vec<Value>, Failure> {
    let names = disk_names(wanted);
    let kind = |class: &str| settings.url(&format!("zones/{zone}/diskTypes/{class}"));
    let description = Mark::new(&wanted.owner, &BTreeMap::new()).describe();
    let mut disks = vec![json!({
        "boot": true,
        "autoDelete": true,
        "type": "PERSISTENT",
        "initializeParams": {
            "diskName": names.first(),
            "description": description,
            "labels": owner_labels(wanted),
            "sourceImage": settings.image(wanted)?,
            "diskSizeGb": wanted.disk_gb.to_string(),
            "diskType": kind(&settings.disk_type),
        },
    })];
    for (index, disk) in wanted.extra_disks.iter().enumerate() {
        let class = disk.storage_class.as_deref().unwrap_or(&settings.disk_type);
        disks.push(json!({
            "boot": false,
            "autoDelete": true,
            "type": "PERSISTENT",
            "deviceName": format!("disk-{}", index + 1),
            "initializeParams": {
                "diskName": names.get(index + 1),
                "description": description,
                "labels": owner_labels(wanted),
                "diskSizeGb": disk.size_gb.to_string(),
                "diskType": kind(class),
            },
        }));
    }
    Ok(disks)
}
