//! Instances: what they have to be like, how they come, go, stop and start.

use super::disks::hide_disks;
use super::machine_types;
use super::network::texts;
use super::operations::{End, Failed, Operation};
use super::request::{Refusal, quota_message};
use super::state::{Boot, Doc, Effect, Fields, State, link, name_of, timestamp};
use serde_json::Value;
use std::net::IpAddr;

/// Largest value of one entry of an instance's metadata.
const METADATA_LIMIT: usize = 256 * 1024;

impl State {
    pub(super) fn check_instance(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        let zone = zone_of(path);
        let kind = fields.get("machineType").and_then(Value::as_str).unwrap_or_default().to_string();
        if kind.is_empty() {
            return Err(Refusal::required("resource.machineType"));
        }
        let malformed = || Refusal::field("resource.machineType", &kind, "The URL is malformed.");
        let named = self.path_of(&kind).ok_or_else(malformed)?;
        if !named.contains(&format!("/zones/{zone}/machineTypes/")) {
            return Err(Refusal::field(
                "resource.machineType",
                &kind,
                "The machine type must be in the zone of the instance.",
            ));
        }
        machine_types::parse(name_of(&named))
            .map_err(|why| Refusal::field("resource.machineType", &kind, &why))?;
        fields.insert("machineType".into(), link(&named).into());
        check_tags(fields)?;
        check_metadata(fields)?;
        self.check_accounts(fields)?;
        self.check_interfaces(path, fields)?;
        self.check_disks(path, fields)
    }

    fn check_accounts(&self, fields: &Fields) -> Result<(), Refusal> {
        let given = fields.get("serviceAccounts").and_then(Value::as_array);
        let given = given.map(Vec::as_slice).unwrap_or_default();
        if given.len() > 1 {
            return Err(Refusal::invalid("At most one service account can be specified."));
        }
        let email = given.first().and_then(|account| account["email"].as_str()).unwrap_or("default");
        if email == "default" || self.accounts.iter().any(|known| known.email == email) {
            return Ok(());
        }
        Err(Refusal::new(
            400,
            "invalid",
            format!(
                "The user does not have access to service account '{email}'. Ask a project owner to grant you the iam.serviceAccountUser role on the service account."
            ),
        ))
    }

    /// The subnetwork that a network interface is in, named or found by its network.
    fn subnetwork_of(&self, nic: &Value, region: Option<&str>) -> Result<String, Refusal> {
        let at = |field: &str| format!("resource.networkInterfaces[0].{field}");
        let subnetwork = match (nic["subnetwork"].as_str(), nic["network"].as_str()) {
            (Some(subnetwork), _) => self.linked(&at("subnetwork"), subnetwork, "subnetworks")?,
            (None, network) => {
                let network =
                    self.linked(&at("network"), network.unwrap_or("global/networks/default"), "networks")?;
                let own = |path: &&String| {
                    self.text(path, "network") == link(&network) && self.region_of(path) == region
                };
                let automatic = self.doc(&network).and_then(|doc| doc.fields.get("autoCreateSubnetworks"))
                    == Some(&Value::Bool(true));
                let found = self.all("subnetworks").map(|(path, _)| path).find(own).filter(|_| automatic);
                found.cloned().ok_or_else(|| {
                    Refusal::field(
                        &at("subnetwork"),
                        "",
                        "The network has custom subnetworks, and one must be specified.",
                    )
                })?
            }
        };
        if self.region_of(&subnetwork) != region {
            return Err(Refusal::field(
                &at("subnetwork"),
                &subnetwork,
                "The subnetwork is in another region.",
            ));
        }
        Ok(subnetwork)
    }

    fn check_interfaces(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        let region = self.region_of(path).map(ToString::to_string);
        let mut given =
            fields.get("networkInterfaces").and_then(Value::as_array).cloned().unwrap_or_default();
        let [nic] = given.as_mut_slice() else {
            return Err(if given.is_empty() {
                Refusal::required("resource.networkInterfaces")
            } else {
                Refusal::not_simulated("More than one network interface")
            });
        };
        let at = |field: &str| format!("resource.networkInterfaces[0].{field}");
        let subnetwork = self.subnetwork_of(nic, region.as_deref())?;
        nic["name"] = "nic0".into();
        nic["subnetwork"] = link(&subnetwork).into();
        nic["network"] = self.text(&subnetwork, "network").into();
        if let Some(wanted) = nic["networkIP"].as_str() {
            let free = wanted.parse().is_ok_and(|wanted: IpAddr| !self.internal_taken().contains(&wanted));
            if !free {
                return Err(Refusal::field(
                    &at("networkIP"),
                    wanted,
                    "The IP address is in use or not readable.",
                ));
            }
        }
        for config in nic["accessConfigs"].as_array_mut().into_iter().flatten() {
            config["type"] = "ONE_TO_ONE_NAT".into();
            config["kind"] = "compute#accessConfig".into();
            let entry = config.as_object_mut();
            entry.map(|entry| entry.entry("networkTier").or_insert("PREMIUM".into()));
        }
        fields.insert("networkInterfaces".into(), given.into());
        Ok(())
    }

    /// What is shown from the beginning of the operation on.
    pub(super) fn show_provisioning(&mut self, path: &str, fields: &Fields, now: u64) {
        let mut shown = fields.clone();
        shown.insert("status".into(), "PROVISIONING".into());
        hide_disks(&mut shown);
        let listed_from = now + self.scaled(crate::delays::GCE_LIST_LAG);
        self.put(path, Doc { fields: shown, listed_from, ..Doc::default() }, now);
    }

    /// Disks, addresses and the machine itself.
    pub(super) fn finish_instance(
        &mut self,
        operation: &Operation,
        mut fields: Fields,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<End, Failed> {
        let path = operation.target.as_str();
        self.check_room(path, &fields)?;
        let internal = self.place_interface(&mut fields)?;
        let system = self.make_disks(path, &mut fields, now);
        fields.insert("status".into(), "STAGING".into());
        fields.insert("lastStartTimestamp".into(), timestamp(now).into());
        let external =
            fields.get("networkInterfaces").and_then(|all| all.pointer("/0/accessConfigs/0/natIP"));
        let external = external.and_then(Value::as_str).and_then(|text| text.parse().ok());
        let user_data = metadata(&fields, "user-data");
        let listed_from = self.doc(path).map_or(now, |doc| doc.listed_from);
        let shown = self.doc(path).map(|doc| doc.fields.clone()).unwrap_or_default();
        for name in ["id", "creationTimestamp"] {
            fields.extend(shown.get(name).map(|value| (name.to_string(), value.clone())));
        }
        self.put(path, Doc { fields, listed_from, system: system.clone(), ..Doc::default() }, now);
        effects.extend(external.map(|external| Effect::Translate { external, internal: Some(internal) }));
        let boot = Boot {
            address: internal,
            talos_version: system,
            hostname: name_of(path).to_string(),
            user_data,
            known: false,
        };
        effects.push(Effect::PowerOn { operation: operation.name.clone(), path: path.to_string(), boot });
        Ok(End::Later)
    }

    /// Limits are looked at when the operation runs, and are its error.
    fn check_room(&self, path: &str, fields: &Fields) -> Result<(), Failed> {
        let region = self.region_of(path);
        let kind = fields.get("machineType").and_then(Value::as_str).map(name_of).unwrap_or_default();
        let cpus = machine_types::parse(kind).map(|(cpus, _)| f64::from(cpus)).unwrap_or_default();
        let external =
            fields.get("networkInterfaces").and_then(|all| all.pointer("/0/accessConfigs/0")).is_some();
        let mut wanted = vec![(machine_types::metric(kind), region, cpus), ("CPUS_ALL_REGIONS", None, cpus)];
        if external {
            wanted.push(("IN_USE_ADDRESSES", region, 1.0));
        }
        for disk in fields.get("disks").and_then(Value::as_array).into_iter().flatten() {
            let params = &disk["initializeParams"];
            let standard = params["type"].as_str().is_some_and(|kind| kind.ends_with("/pd-standard"));
            let metric = if standard { "DISKS_TOTAL_GB" } else { "SSD_TOTAL_GB" };
            wanted.push((
                metric,
                region,
                params["sizeGb"].as_str().and_then(|size| size.parse().ok()).unwrap_or_default(),
            ));
        }
        for (metric, region, more) in wanted {
            if let Some((limit, place)) = self.exceeds(metric, region, more) {
                return Err(Failed::new("QUOTA_EXCEEDED", quota_message(metric, limit, &place), 403));
            }
        }
        Ok(())
    }

    /// Gives addresses to the one network interface; the one inside comes back.
    fn place_interface(&mut self, fields: &mut Fields) -> Result<IpAddr, Failed> {
        let external = self.free_external();
        let reserved: Vec<String> =
            self.all("addresses").map(|(path, _)| self.text(path, "address").to_string()).collect();
        let Some(nic) = fields.get_mut("networkInterfaces").and_then(|all| all.get_mut(0)) else {
            return Err(Failed::new("INVALID_USAGE", "there is no network interface", 400));
        };
        let subnetwork = self.path_of(nic["subnetwork"].as_str().unwrap_or_default()).unwrap_or_default();
        let internal = nic["networkIP"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .or_else(|| self.free_internal(&subnetwork));
        let Some(internal) = internal else {
            return Err(Failed::new(
                "IP_SPACE_EXHAUSTED",
                format!("IP space of '{subnetwork}' is exhausted."),
                400,
            ));
        };
        nic["networkIP"] = internal.to_string().into();
        if let Some(config) = nic.pointer_mut("/accessConfigs/0") {
            let given =
                config["natIP"].as_str().is_some_and(|given| reserved.iter().any(|known| known == given));
            if !given {
                config["natIP"] = external.to_string().into();
            }
        }
        Ok(internal)
    }

    /// How switching on went.
    pub fn booted(
        &mut self,
        operation: &str,
        path: &str,
        address: IpAddr,
        outcome: Result<(), String>,
        now: u64,
    ) {
        if let Some(doc) = self.docs.get_mut(path) {
            let status = if outcome.is_ok() { "RUNNING" } else { "TERMINATED" };
            doc.fields.insert("status".into(), status.into());
            doc.machine = doc.system.as_ref().filter(|_| outcome.is_ok()).map(|_| address);
        }
        self.end(operation, now, outcome.err().map(|why| Failed::new("INTERNAL_ERROR", why, 500)));
    }

    /// What is seen of a machine from outside: its power.
    pub fn observe(&mut self, path: &str, powered: bool, now: u64) {
        let Some(doc) = self.docs.get_mut(path) else { return };
        if !powered && doc.fields.get("status") == Some(&Value::from("RUNNING")) {
            doc.fields.insert("status".into(), "TERMINATED".into());
            doc.fields.insert("lastStopTimestamp".into(), timestamp(now).into());
        }
    }

    pub(super) fn finish_start(
        &mut self,
        operation: &Operation,
        effects: &mut Vec<Effect>,
    ) -> Result<End, Failed> {
        let path = operation.target.clone();
        let (Some(internal), _) = self.addresses_of(&path) else { return Ok(End::Now) };
        // An address outside that was not reserved is another one each time.
        let external = self.free_external();
        let Some(doc) = self.docs.get_mut(&path) else { return Ok(End::Now) };
        let config =
            doc.fields.get_mut("networkInterfaces").and_then(|all| all.pointer_mut("/0/accessConfigs/0"));
        let mut translated = None;
        if let Some(config) = config {
            let held = config["natIP"].as_str().and_then(|text| text.parse().ok());
            let outside = held.unwrap_or(external);
            config["natIP"] = outside.to_string().into();
            translated = Some(Effect::Translate { external: outside, internal: Some(internal) });
        }
        let boot = Boot {
            address: internal,
            talos_version: doc.system.clone(),
            hostname: name_of(&path).to_string(),
            user_data: metadata(&doc.fields, "user-data"),
            known: doc.machine.is_some(),
        };
        effects.extend(translated);
        effects.push(Effect::PowerOn { operation: operation.name.clone(), path, boot });
        Ok(End::Later)
    }

    pub(super) fn finish_stop(&mut self, path: &str, now: u64, effects: &mut Vec<Effect>) {
        effects
            .extend(self.doc(path).and_then(|doc| doc.machine).map(|address| Effect::PowerOff { address }));
        let reserved: Vec<String> =
            self.all("addresses").map(|(path, _)| self.text(path, "address").to_string()).collect();
        let (_, external) = self.addresses_of(path);
        effects.extend(external.map(|external| Effect::Translate { external, internal: None }));
        let Some(doc) = self.docs.get_mut(path) else { return };
        doc.fields.insert("status".into(), "TERMINATED".into());
        doc.fields.insert("lastStopTimestamp".into(), timestamp(now).into());
        let config =
            doc.fields.get_mut("networkInterfaces").and_then(|all| all.pointer_mut("/0/accessConfigs/0"));
        if let Some(config) = config.and_then(Value::as_object_mut)
            && !config
                .get("natIP")
                .and_then(Value::as_str)
                .is_some_and(|held| reserved.iter().any(|known| known == held))
        {
            config.remove("natIP");
        }
    }

    /// The machine, its disks that go with it, and its places in instance groups.
    pub(super) fn remove_instance(&mut self, path: &str, effects: &mut Vec<Effect>) {
        let (_, external) = self.addresses_of(path);
        let Some(doc) = self.docs.remove(path) else { return };
        effects.extend(doc.machine.map(|address| Effect::Remove { address }));
        effects.extend(external.map(|external| Effect::Translate { external, internal: None }));
        for disk in doc.fields.get("disks").and_then(Value::as_array).into_iter().flatten() {
            if disk["autoDelete"] == true
                && let Some(source) = disk["source"].as_str().and_then(|source| self.path_of(source))
            {
                self.docs.remove(&source);
            }
        }
        // Target pools keep the link to what is gone; groups do not.
        self.docs.values_mut().for_each(|doc| {
            doc.members.remove(path);
            doc.draining.remove(path);
        });
    }
}

pub(super) fn zone_of(path: &str) -> &str {
    path.split('/').nth(3).unwrap_or_default()
}

/// An entry of an instance's metadata.
fn metadata(fields: &Fields, key: &str) -> Option<String> {
    let items = fields.get("metadata")?.get("items")?.as_array()?;
    items.iter().find(|item| item["key"] == key)?["value"].as_str().map(ToString::to_string)
}

fn check_tags(fields: &Fields) -> Result<(), Refusal> {
    let items = fields.get("tags").and_then(|tags| tags.get("items"));
    match texts(items).find(|tag| !super::model::is_name(tag)) {
        Some(bad) => Err(Refusal::field(
            "resource.tags.items",
            bad,
            "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'",
        )),
        None if texts(items).count() > 64 => Err(Refusal::invalid("At most 64 tags are allowed.")),
        None => Ok(()),
    }
}

fn check_metadata(fields: &Fields) -> Result<(), Refusal> {
    let items = fields.get("metadata").and_then(|metadata| metadata.get("items")).and_then(Value::as_array);
    let too_long = |item: &&Value| item["value"].as_str().is_some_and(|value| value.len() > METADATA_LIMIT);
    match items.into_iter().flatten().find(too_long) {
        Some(item) => {
            let key = item["key"].as_str().unwrap_or_default();
            Err(Refusal::field(
                "resource.metadata.items",
                key,
                "The value is too large: maximum size is 262144 bytes.",
            ))
        }
        None => Ok(()),
    }
}
