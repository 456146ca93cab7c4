//! What a data centre holds, in words that are the same in every run: ids, uuids and hardware addresses are left out.

use super::CLUSTER;
use butler_sim::DataCentre;
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that a bootstrap can make or break.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    /// Machines of ours: one line of settings each.
    pub machines: BTreeMap<String, Vec<String>>,
    /// Volumes that belong to a machine, by its name; others by their own.
    pub volumes: Vec<String>,
    /// Machines of others and templates, as they are in every detail.
    pub foreign: BTreeMap<String, Value>,
    /// Machines that have power.
    pub powered: Vec<String>,
    /// How often a machine was made, by name: more than once is a machine too many, even when it is gone.
    pub made: BTreeMap<String, usize>,
    /// How often etcd was made.
    pub etcd_clusters: usize,
}

impl Inventory {
    pub fn of(data_centre: &DataCentre) -> Inventory {
        if data_centre.proxmox().is_none() {
            return Inventory::of_cloud(data_centre);
        }
        let state = serde_json::to_value(data_centre.proxmox().unwrap().state()).unwrap();
        let ours = format!("{CLUSTER}-");
        let (mut machines, mut foreign, mut names) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (vmid, vm) in state["vms"].as_object().unwrap() {
            let name = vm["config"]["name"].as_str().unwrap_or(vmid).to_owned();
            names.insert(vmid.clone(), name.clone());
            if name.starts_with(&ours) {
                let second = if machines.contains_key(&name) { " again" } else { "" };
                machines.insert(format!("{name}{second}"), settings(vmid, vm));
            } else {
                foreign.insert(name, vm.clone());
            }
        }
        let mut powered: Vec<String> =
            data_centre.world().nodes().iter().map(|node| node.address().to_string()).collect();
        powered.sort();
        Inventory {
            machines,
            volumes: volumes(&state, &names),
            foreign,
            powered,
            made: made(&state),
            etcd_clusters: data_centre.world().etcd_clusters(),
        }
    }
}

impl Inventory {
    /// A cloud's parts are counted by their kinds; machines by their names.
    fn of_cloud(data_centre: &DataCentre) -> Inventory {
        let machines = data_centre.gce().map(|gce| gce.state().paths()).unwrap_or_default();
        let named = |path: &String| Some(path.rsplit_once("/instances/")?.1.to_owned());
        let mut names: Vec<String> = machines.iter().filter_map(named).collect();
        let mut made = data_centre.gce().map(|gce| gce.state().launched()).unwrap_or_default();
        made.extend(data_centre.aws().map(|aws| aws.state().launched()).unwrap_or_default());
        let lines = data_centre.aws().map(|aws| aws.state().inventory()).unwrap_or_default();
        names.extend(lines.iter().filter_map(|line| line.strip_prefix("instance ").map(str::to_owned)));
        let mut counted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in names {
            let second = if counted.contains_key(&name) { " again" } else { "" };
            counted.insert(format!("{name}{second}"), Vec::new());
        }
        let mut powered: Vec<String> =
            data_centre.world().nodes().iter().map(|node| node.address().to_string()).collect();
        powered.sort();
        Inventory {
            machines: counted,
            volumes: super::Place::resources(data_centre),
            foreign: BTreeMap::new(),
            powered,
            made,
            etcd_clusters: data_centre.world().etcd_clusters(),
        }
    }
}

/// A machine's settings without what differs from run to run.
fn settings(vmid: &str, vm: &Value) -> Vec<String> {
    let varies = ["description", "digest", "meta", "smbios1", "tags", "vmgenid", "net0"];
    let mut lines: Vec<String> = vm["config"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| !varies.contains(&key.as_str()))
        .map(|(key, value)| format!("{key}: {}", value.as_str().unwrap_or_default().replace(vmid, "ID")))
        .collect();
    let tags = vm["config"]["tags"].as_str().unwrap_or_default();
    lines.push(format!("{} tags", tags.split(';').filter(|tag| !tag.is_empty()).count()));
    lines.push(format!("running: {}", vm["running"]));
    lines
}

fn volumes(state: &Value, names: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (storage, contents) in state["storages"].as_object().unwrap() {
        for volume in contents["volumes"].as_object().unwrap().values() {
            let owner = volume["vmid"].as_u64().map(|vmid| vmid.to_string());
            let name = owner.and_then(|vmid| names.get(&vmid).cloned());
            let name = name.unwrap_or_else(|| {
                let file = volume["volid"].as_str().unwrap_or_default();
                // An image of ours has the uids of its owners in its name.
                let ours = file.split_once(".butler.").map(|(name, _)| format!("{name} of {CLUSTER}"));
                ours.unwrap_or_else(|| file.to_owned())
            });
            lines.push(format!("{storage}: {} {} for {name}", volume["content"], volume["size"]));
        }
    }
    lines.sort();
    lines
}

/// Counts the tasks that made machines and came to a good end.
fn made(state: &Value) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for task in state["tasks"].as_object().unwrap().values() {
        let name = ["Clone", "Create"].iter().find_map(|way| task["work"][way]["config"]["name"].as_str());
        if let Some(name) = name
            && task["exit"].as_str() == Some("OK")
        {
            *made.entry(name.to_owned()).or_default() += 1;
        }
    }
    made
}

impl Inventory {
    /// What is there and not as wanted, in words.
    pub fn differences(&self, wanted: &Inventory) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, settings) in &wanted.machines {
            match self.machines.get(name) {
                None => problems.push(format!("the machine {name} is missing")),
                Some(there) if there != settings => {
                    problems.push(format!("{name} is {there:?} and not {settings:?}"))
                }
                Some(_) => {}
            }
        }
        for name in self.machines.keys().filter(|name| !wanted.machines.contains_key(*name)) {
            problems.push(format!("the machine {name} is there and not wanted"));
        }
        if self.volumes != wanted.volumes {
            problems.push(format!("volumes are {:?} and not {:?}", self.volumes, wanted.volumes));
        }
        if self.foreign != wanted.foreign {
            problems.push("something that is not ours was touched".to_owned());
        }
        if self.powered.len() != wanted.powered.len() {
            problems.push(format!("{:?} have power and not {:?}", self.powered, wanted.powered));
        }
        if self.made.values().any(|times| *times > 1) {
            problems.push(format!("machines were made twice: {:?}", self.made));
        }
        if self.etcd_clusters != wanted.etcd_clusters {
            problems.push(format!("etcd was made {} times", self.etcd_clusters));
        }
        problems
    }
}
