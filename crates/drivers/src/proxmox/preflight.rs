//! Looks whether a Proxmox cluster has what a bootstrap needs. Reads only.

use super::client::Client;
use super::driver::Driver;
use super::error::CallError;
use super::mark::Mark;
use super::model::{Vm, number};
use super::settings::{Settings, Source};
use crate::failure::Failure;
use crate::http::escape;
use crate::seam::{Finding, Preflight, PreflightWanted, Verdict};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks of one Proxmox cluster.
pub(crate) struct ProxmoxPreflight(pub(crate) Arc<Driver>);

const OBJECT: &str = "preflight";

/// Room for an image that is downloaded: those of Talos are smaller.
const IMAGE_GB: u64 = 2;

/// Rights on machines that the driver's calls ask for; any one of those that are separated by `|` is enough. Version 9 has
/// split VM.Monitor.
const ON_MACHINES: &[&str] = &[
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Monitor|VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted",
    "VM.PowerMgmt",
];

/// What is there, read once for several checks.
struct There {
    vms: Vec<Vm>,
    /// Ids of machines that are the cluster's already.
    ours: BTreeSet<u32>,
}

#[async_trait]
impl Preflight for ProxmoxPreflight {
    async fn check(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let version = self.version().await;
        let refused = version.verdict == Verdict::Fail;
        let mut findings = vec![version];
        if refused {
            // Without a login every other check would only say the same again.
            findings.push(finding("everything else", Verdict::Skip, "not looked at without an answer", ""));
            return findings;
        }
        let (permissions, nodes, there) =
            tokio::join!(self.permissions(wanted), self.nodes(), self.there(wanted));
        findings.push(permissions);
        findings.push(nodes);
        match there {
            Ok(there) => {
                findings.extend(self.storages(wanted, &there).await);
                findings.extend(templates(self.settings(), wanted, &there.vms));
                findings.push(ids(self.settings(), wanted, &there.vms, &there.ours));
                findings.push(names(wanted, &there.vms, &there.ours));
            }
            Err(failure) => findings.push(failed("machines", failure)),
        }
        findings
    }
}

impl ProxmoxPreflight {
    fn client(&self) -> &Client {
        &self.0.client
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    async fn version(&self) -> Finding {
        let check = "credentials";
        match self.client().get("/version", OBJECT).await {
            Ok(value) => {
                let version = value.get("version").and_then(Value::as_str).unwrap_or("?");
                let major = version.split('.').next().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
                let detail = format!("Proxmox VE {version} at {} took them", self.client().endpoint());
                if major < 8 {
                    return finding(
                        check,
                        Verdict::Warn,
                        detail,
                        "Butler is made for Proxmox VE 8 and later",
                    );
                }
                finding(check, Verdict::Pass, detail, "")
            }
            Err(error) => failed(check, error.failure("asking for the version")),
        }
    }

    async fn permissions(&self, wanted: &PreflightWanted) -> Finding {
        let check = "permissions";
        let mut missing = Vec::new();
        for (path, rights) in needed_rights(self.settings(), wanted) {
            // Asked path by path: the answer counts what is granted above, and on this path alone.
            let query = format!("/access/permissions?path={}", escape(&path));
            let value = match self.client().get(&query, OBJECT).await {
                Ok(value) => value,
                Err(error) => return failed(check, error.failure("reading the permissions")),
            };
            let held = |right: &str| value.get(&path).and_then(|entry| entry.get(right)).is_some();
            let lacking = rights.iter().filter(|right| !right.split('|').any(held));
            missing.extend(lacking.map(|right| format!("{} on {path}", right.replace('|', " or "))));
        }
        if missing.is_empty() {
            return finding(check, Verdict::Pass, "all that is needed", "");
        }
        finding(
            check,
            Verdict::Fail,
            format!("missing: {}", missing.join(", ")),
            "give the user, and a token of its own too, a role with these rights there (PVEVMAdmin, PVEDatastoreUser, PVESDNUser)",
        )
    }

    async fn nodes(&self) -> Finding {
        let check = "nodes";
        let online = match self.0.online(OBJECT).await {
            Ok(online) => online,
            Err(failure) => return failed(check, failure),
        };
        let wanted = &self.settings().nodes;
        let missing: Vec<&str> =
            wanted.iter().filter(|node| !online.contains(node)).map(String::as_str).collect();
        match (missing.is_empty(), online.is_empty()) {
            (true, _) => finding(check, Verdict::Pass, format!("{} online", wanted.join(", ")), ""),
            (false, false) => {
                let detail = format!(
                    "{} offline or unknown; machines go to {}",
                    missing.join(", "),
                    online.join(", ")
                );
                finding(
                    check,
                    Verdict::Warn,
                    detail,
                    "bring them back, or take them out of the ProviderConfig",
                )
            }
            (false, true) => {
                let detail = format!("none of {} is online", wanted.join(", "));
                finding(check, Verdict::Fail, detail, "name nodes of the cluster that are online")
            }
        }
    }

    async fn storages(&self, wanted: &PreflightWanted, there: &There) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (storage, gb) in needed_room(self.settings(), wanted, there) {
            let check = format!("storage {storage}");
            findings.push(self.storage(&check, storage, "images", gb).await);
        }
        if wanted.brings_image {
            let storage = &self.settings().image_storage;
            let check = format!("image storage {storage}");
            findings.push(self.storage(&check, storage, "import", IMAGE_GB).await);
        }
        findings
    }

    /// One storage on all nodes: there, switched on, for what it is to hold, and with room.
    async fn storage(&self, check: &str, storage: &str, kind: &str, gb: u64) -> Finding {
        let (mut free, mut shared) = (0_u64, false);
        for node in &self.settings().nodes {
            let path = format!("/nodes/{}/storage/{}/status", escape(node), escape(storage));
            let value = match self.client().get(&path, OBJECT).await {
                Ok(value) => value,
                // A node that is down is the finding of another check.
                Err(CallError::Refused(refusal)) if (595..=599).contains(&refusal.status) => continue,
                Err(error) => {
                    return failed(check, error.failure(&format!("looking at {storage} on {node}")));
                }
            };
            let flag = |key: &str| value.get(key).and_then(number);
            if flag("active") == Some(0) || flag("enabled") == Some(0) {
                let detail = format!("is switched off on {node}");
                return finding(check, Verdict::Fail, detail, "enable it, or name another storage");
            }
            let content = value.get("content").and_then(Value::as_str).unwrap_or(kind);
            if !content.split(',').any(|held| held.trim() == kind) {
                let detail = format!("takes {content} on {node}, and not {kind}");
                let remedy = "add that content to it, or name another storage";
                return finding(check, Verdict::Fail, detail, remedy);
            }
            let here = value.get("avail").and_then(Value::as_u64).unwrap_or(0);
            shared |= flag("shared") == Some(1);
            free = if shared { free.max(here) } else { free + here };
        }
        let free_gb = free >> 30;
        if free_gb < gb {
            let detail = format!("has {free_gb} GiB free, and {gb} GiB are needed");
            return finding(check, Verdict::Fail, detail, "free some space, or name another storage");
        }
        finding(check, Verdict::Pass, format!("{free_gb} GiB free of the {gb} GiB needed"), "")
    }

    async fn there(&self, wanted: &PreflightWanted) -> Result<There, Failure> {
        let vms = self.0.list().await?;
        let ours = self.ours(wanted, &vms).await?;
        Ok(There { vms, ours })
    }

    /// Ids of machines that are the cluster's already.
    async fn ours(&self, wanted: &PreflightWanted, vms: &[Vm]) -> Result<BTreeSet<u32>, Failure> {
        let mut ours = BTreeSet::new();
        let Some(uid) = &wanted.cluster_uid else { return Ok(ours) };
        let named = |vm: &&Vm| {
            wanted.machines.iter().any(|machine| vm.name.as_deref() == Some(machine.name.as_str()))
        };
        for vm in vms.iter().filter(|vm| !vm.container && !vm.template).filter(named) {
            let mark: Option<Mark> = self.0.config(vm, OBJECT).await?.and_then(|config| config.mark());
            if mark.is_some_and(|mark| mark.cluster_uid == *uid) {
                ours.insert(vm.vmid);
            }
        }
        Ok(ours)
    }
}

/// The rights that are needed, path by path.
fn needed_rights(settings: &Settings, wanted: &PreflightWanted) -> Vec<(String, Vec<&'static str>)> {
    // Rights may be granted on the ids of the range alone.
    let machines = settings.range.map_or_else(|| "/vms".to_owned(), |(start, _)| format!("/vms/{start}"));
    let vlan = settings.vlan.map(|tag| format!("/{tag}")).unwrap_or_default();
    let bridge = format!("/sdn/zones/localnetwork/{}{vlan}", settings.bridge);
    let mut all = vec![(machines, ON_MACHINES.to_vec()), (bridge, vec!["SDN.Use"])];
    for storage in storages(settings, wanted) {
        all.push((format!("/storage/{storage}"), vec!["Datastore.AllocateSpace", "Datastore.Audit"]));
    }
    if wanted.brings_image {
        let storage = format!("/storage/{}", settings.image_storage);
        all.push((storage, vec!["Datastore.AllocateTemplate", "Datastore.Audit"]));
        let download = |node: &String| (format!("/nodes/{node}"), vec!["Sys.AccessNetwork|Sys.Modify"]);
        all.extend(settings.nodes.iter().map(download));
    }
    all
}

/// Storages that disks go to.
fn storages<'a>(settings: &'a Settings, wanted: &'a PreflightWanted) -> BTreeSet<&'a str> {
    let further = wanted.machines.iter().flat_map(|machine| &machine.extra_disks);
    let named = further.filter_map(|disk| disk.storage_class.as_deref());
    named.chain([settings.storage.as_str()]).collect()
}

/// GiB that the machines which are not there yet need, by storage.
fn needed_room<'a>(
    settings: &'a Settings,
    wanted: &'a PreflightWanted,
    there: &There,
) -> BTreeMap<&'a str, u64> {
    let made = |name: &str| {
        there.vms.iter().any(|vm| there.ours.contains(&vm.vmid) && vm.name.as_deref() == Some(name))
    };
    let mut needed: BTreeMap<&str, u64> =
        storages(settings, wanted).into_iter().map(|storage| (storage, 0)).collect();
    for machine in wanted.machines.iter().filter(|machine| !made(&machine.name)) {
        *needed.entry(&settings.storage).or_default() += u64::from(machine.disk_gb);
        for disk in &machine.extra_disks {
            let storage = disk.storage_class.as_deref().unwrap_or(&settings.storage);
            *needed.entry(storage).or_default() += u64::try_from(disk.size_gb).unwrap_or(0);
        }
    }
    needed
}

/// Whether every machine has something to be made from.
fn templates(settings: &Settings, wanted: &PreflightWanted, vms: &[Vm]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for machine in &wanted.machines {
        if wanted.brings_image && machine.image.is_none() {
            let storage = &settings.image_storage;
            let found =
                finding("image", Verdict::Pass, format!("is going to be downloaded to {storage}"), "");
            if !findings.contains(&found) {
                findings.push(found);
            }
            continue;
        }
        let found = match settings.source(machine, vms) {
            Ok(Source::Template { vmid, node }) => {
                finding("template", Verdict::Pass, format!("template {vmid} on {node}"), "")
            }
            Ok(Source::Image(image)) => finding("image", Verdict::Pass, format!("made from {image}"), ""),
            Err(failure) => failed("template", failure),
        };
        if !findings.contains(&found) {
            findings.push(found);
        }
    }
    findings
}

/// Whether the range has room for the machines that are not there yet.
fn ids(settings: &Settings, wanted: &PreflightWanted, vms: &[Vm], ours: &BTreeSet<u32>) -> Finding {
    let check = "VM ids";
    let Some((start, end)) = settings.range else {
        return finding(check, Verdict::Pass, "no range given: the next free ids are used", "");
    };
    let taken = vms.iter().filter(|vm| (start..=end).contains(&vm.vmid)).count();
    let free = (end - start + 1) as usize - taken.min((end - start + 1) as usize);
    let needed = wanted.machines.len().saturating_sub(ours.len());
    let detail = format!("{free} free from {start} to {end}, {needed} needed");
    if free < needed {
        return finding(check, Verdict::Fail, detail, "widen vmidRange, or delete unused VMs in it");
    }
    finding(check, Verdict::Pass, detail, "")
}

/// Whether a foreign machine has a name that we need.
fn names(wanted: &PreflightWanted, vms: &[Vm], ours: &BTreeSet<u32>) -> Finding {
    let clashes: Vec<String> = vms
        .iter()
        .filter(|vm| !ours.contains(&vm.vmid) && !vm.template)
        .filter_map(|vm| {
            let name = vm.name.as_deref()?;
            wanted
                .machines
                .iter()
                .any(|machine| machine.name == name)
                .then(|| format!("{name} (VM {})", vm.vmid))
        })
        .collect();
    if clashes.is_empty() {
        return finding("names", Verdict::Pass, "no other machine has a name that is needed", "");
    }
    let detail = format!("taken by machines that are not ours: {}", clashes.join(", "));
    finding("names", Verdict::Fail, detail, "rename or delete them, or choose another cluster name")
}

fn finding(check: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Finding {
    Finding { check: check.to_owned(), verdict, detail: detail.into(), remedy: remedy.to_owned() }
}

fn failed(check: &str, failure: Failure) -> Finding {
    finding(check, Verdict::Fail, failure.message, &failure.remedy)
}
