//! A recorder that keeps everything, and a journal for people made from it.
//!
//! Calls of different machines and addons come in any order, so that a journal has lanes: one for the cluster's own
//! milestones, one for each machine, one for each addon. Within a lane of machines and milestones the order is that of the
//! run; objects of an addon are applied side by side, and are sorted.

use super::{CLUSTER, Life};
use butler_api::ClusterBootstrap;
use butler_drivers::{Call, Outcome, PlannedChange, Recorder};
use butler_sim::DataCentre;
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Keeps every call.
#[derive(Default)]
pub struct Journal {
    calls: Mutex<Vec<Call>>,
    milestones: watch::Sender<Vec<String>>,
}

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

impl Journal {
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits until a milestone is written down.
    pub async fn reaches(&self, milestone: &str) {
        let reached = |lines: &Vec<String>| lines.iter().any(|line| line == milestone);
        self.milestones.subscribe().wait_for(reached).await.unwrap();
    }

    /// Begins anew.
    pub fn forget(&self) {
        self.calls.lock().unwrap().clear();
        self.milestones.send_modify(Vec::clear);
    }

    /// Changes of the infrastructure, in the words of the dry run.
    pub fn changes(&self) -> Vec<PlannedChange> {
        self.calls().iter().filter_map(PlannedChange::from_call).collect()
    }

    /// Writes down the cluster's phases and the conditions that come to hold. Needs the life's runtime.
    pub fn follow(self: &Arc<Self>, life: &Life) {
        let (journal, api) = (self.clone(), life.api::<ClusterBootstrap>());
        tokio::spawn(async move {
            let mut last = (None, BTreeSet::new());
            let mut changes = pin!(watcher(api, watcher::Config::default()).applied_objects());
            while let Some(Ok(cluster)) = changes.next().await {
                let status = cluster.status.unwrap_or_default();
                let held = status.conditions.iter().filter(|condition| condition.is_true());
                let held: BTreeSet<String> = held.map(|condition| condition.type_.clone()).collect();
                let mut lines = Vec::new();
                for condition in
                    status.conditions.iter().filter(|c| c.is_true() && !last.1.contains(&c.type_))
                {
                    lines.push(format!("{}: {}", condition.type_, condition.reason));
                }
                if status.phase != last.0
                    && let Some(phase) = &status.phase
                {
                    lines.push(format!("phase {phase:?}"));
                }
                last = (status.phase, held);
                journal.milestones.send_modify(|all| all.extend(lines));
            }
        });
    }

    /// The journal of what was changed and waited for, with a title.
    pub fn text(&self, title: &str, data_centre: &DataCentre) -> String {
        let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let calls = self.calls();
        for (lane, line) in calls.iter().filter_map(machine_line) {
            let lane = lanes.entry(lane).or_default();
            if lane.last() != Some(&line) {
                lane.push(line);
            }
        }
        for (lane, lines) in addon_lanes(&calls, data_centre) {
            lanes.insert(lane, lines);
        }
        let mut text = format!("{title}\n\ncluster\n");
        for line in self.milestones.borrow().iter() {
            writeln!(text, "  {line}").unwrap();
        }
        for (lane, lines) in lanes {
            writeln!(text, "\n{lane}").unwrap();
            lines.iter().for_each(|line| writeln!(text, "  {line}").unwrap());
        }
        text
    }
}

/// What a call did to a machine or an image, or waited for there; `None` for looks and for what failed on the way.
fn machine_line(call: &Call) -> Option<(String, String)> {
    let Outcome::Ok(word) = &call.outcome else { return None };
    if call.system == "proxmox" {
        let change = PlannedChange::from_call(call)?;
        return Some((format!("{} {}", change.kind, change.name), change.detail));
    }
    let waits = call.operation == "probe" || call.operation.starts_with("wait ");
    (call.system == "talos" && (call.mutates || waits))
        .then(|| (call.object.clone(), format!("talos: {}, {}", call.operation, word.to_lowercase())))
}

/// What was applied to the new cluster, by addon as the cluster's own inventories say.
fn addon_lanes(calls: &[Call], data_centre: &DataCentre) -> BTreeMap<String, Vec<String>> {
    let worked =
        |call: &&Call| matches!(call.outcome, Outcome::Ok(_)) && call.system == "kubernetes" && call.mutates;
    let mut written: BTreeSet<String> =
        calls.iter().filter(worked).map(|call| place(&call.operation)).collect();
    let mut lanes = BTreeMap::new();
    let inventories = inventories(data_centre);
    for (addon, objects) in &inventories {
        let own: Vec<String> = objects.iter().filter(|object| written.contains(*object)).cloned().collect();
        if !own.is_empty() {
            lanes.insert(format!("addon {addon}"), own);
        }
    }
    for (addon, objects) in &inventories {
        written.remove(&format!("secrets kube-system/butler-addon-{addon}"));
        written.retain(|object| !objects.contains(object));
    }
    if !written.is_empty() {
        lanes.insert("kubernetes".to_owned(), written.into_iter().collect());
    }
    lanes
}

/// `PATCH /apis/apps/v1/namespaces/a/deployments/b` is `deployments a/b`.
fn place(operation: &str) -> String {
    let path = operation.split_once(' ').map_or(operation, |(_, path)| path);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = parts.get(if parts.first() == Some(&"apis") { 3 } else { 2 }..).unwrap_or_default();
    match rest {
        ["namespaces", namespace, kind, name, ..] => format!("{kind} {namespace}/{name}"),
        [kind, name, ..] => format!("{kind} {name}"),
        other => other.join(" "),
    }
}

/// What every addon consists of, as it is written in the new cluster.
pub fn inventories(data_centre: &DataCentre) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let Some(store) = data_centre.clusters().store(CLUSTER) else { return all };
    for object in store.export().objects.iter().map(|(_, object)| object.value()) {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let lines = object.pointer("/data/objects").and_then(Value::as_str);
        if let (Some(addon), Some(lines)) = (name.strip_prefix("butler-addon-"), lines) {
            let mut objects: Vec<String> = decoded(lines).lines().map(listed).collect();
            objects.sort();
            all.insert(addon.to_owned(), objects);
        }
    }
    all
}

/// `apps/v1 Deployment a b` is `deployments a/b`.
fn listed(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, kind, namespace, name] = words.as_slice() else { return line.to_owned() };
    let kind = plural(&kind.to_lowercase());
    if *namespace == "-" { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

fn plural(kind: &str) -> String {
    match kind {
        kind if kind.ends_with("ss") => format!("{kind}es"),
        kind if kind.ends_with("policy") => format!("{}ies", kind.trim_end_matches('y')),
        kind => format!("{kind}s"),
    }
}

/// The text of a Secret's value.
fn decoded(value: &str) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(value.into()).unwrap();
    String::from_utf8(bytes.0).unwrap()
}
