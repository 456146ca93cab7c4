//! What machines, images and the preflight share: the client, reading what is there, following tasks, making changes.

use super::client::Client;
use super::error::{CallError, Refusal};
use super::model::{Config, TaskState, Vm, task_age, task_node};
use super::mutation::Wire;
use super::plan::{Observed, candidates};
use super::settings::Settings;
use crate::failure::{Class, Failure};
use crate::http::{escape, recheck_after};
use crate::seam::{Operation, Owner};
use crate::together::Together;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long until a look at something that Proxmox gives no time for.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// What a list is about that several machines share.
const ALL: &str = "all machines";

/// How an operation begins that is no task, but a chosen id.
const RESERVED: &str = "reserve:";

/// Nodes that are up, and what is on them.
type ByNode = (Vec<String>, Vec<Vm>);

/// A Proxmox cluster.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    /// Ids that were chosen for a machine, by the uid of its request: machines that are made at once take different ones.
    pub(crate) reserved: Mutex<BTreeMap<u32, String>>,
    /// Where machines were last seen, by the uid of their requests: a hint that saves a list, and is never believed unseen.
    places: Mutex<BTreeMap<String, (String, u32)>>,
    /// The cluster's list, for all machines that look at once.
    listing: Together<Result<Vec<Vm>, Failure>>,
    /// The nodes' own lists, likewise.
    listing_by_node: Together<Result<ByNode, Failure>>,
    /// Failed tasks that were reported: the same task must not be reported for ever when its id is kept.
    reported: Mutex<BTreeSet<String>>,
}

/// How an operation stands.
pub(crate) enum Followed {
    Running {
        recheck: Duration,
        upid: String,
    },
    /// It is over, or nobody knows it any more: what is there decides.
    Over,
}

/// A task that is not over.
pub(crate) struct RunningTask {
    pub(crate) upid: String,
    pub(crate) kind: String,
    /// What it is about: an id, or a file's name.
    pub(crate) id: String,
    /// Whether we have begun it.
    pub(crate) ours: bool,
}

/// Where a machine is, by what the caller knows.
pub(crate) struct Whom<'a> {
    pub(crate) name: &'a str,
    pub(crate) owner: &'a Owner,
    pub(crate) vmid: Option<u32>,
}

impl Driver {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            reserved: Mutex::default(),
            places: Mutex::default(),
            listing: Together::default(),
            listing_by_node: Together::default(),
            reported: Mutex::default(),
        }
    }

    /// Where a machine is: the next look begins there.
    pub(crate) fn remember(&self, owner: &Owner, vm: &Vm) {
        self.places.lock().insert(owner.object_uid.clone(), (vm.node.clone(), vm.vmid));
    }

    pub(crate) fn place(&self, owner: &Owner) -> Option<(String, u32)> {
        self.places.lock().get(&owner.object_uid).cloned()
    }

    /// A machine that is gone has no place, and no id waits for it.
    pub(crate) fn forget(&self, owner: &Owner) {
        self.places.lock().remove(&owner.object_uid);
        self.reserved.lock().retain(|_, uid| *uid != owner.object_uid);
    }

    /// Looks at a task. A failed one is an error the first time.
    pub(crate) async fn follow(
        &self,
        operation: Option<&Operation>,
        object: &str,
    ) -> Result<Followed, Failure> {
        let Some(operation) = operation.filter(|operation| reserved_id(operation).is_none()) else {
            return Ok(Followed::Over);
        };
        let Operation(upid) = operation;
        let node = task_node(upid)?;
        let path = format!("/nodes/{}/tasks/{}/status", escape(node), escape(upid));
        let state = match self.client.get(&path, object).await {
            Ok(value) => TaskState::read(&value),
            Err(CallError::Refused(refusal)) if refusal.no_such_task() => return Ok(Followed::Over),
            Err(error) => return Err(error.failure(&format!("looking at the task {upid} for {object}"))),
        };
        match state {
            TaskState::Running => {
                let recheck = recheck_after(task_age(upid, jiff::Timestamp::now()));
                Ok(Followed::Running { recheck, upid: upid.clone() })
            }
            TaskState::Done => Ok(Followed::Over),
            TaskState::Failed(exit) => {
                let refusal = Refusal::of_task(&exit);
                // A second call for what a first one did: what is there decides.
                let repeated = refusal.id_taken() || refusal.done_already();
                if repeated || !self.reported.lock().insert(upid.clone()) {
                    return Ok(Followed::Over);
                }
                let kind = upid.split(':').nth(5).unwrap_or("task");
                Err(refusal.failure(&format!("{object}: the task {kind} on {node} failed")))
            }
        }
    }

    /// What a node is busy with.
    pub(crate) async fn running_tasks(&self, node: &str, object: &str) -> Result<Vec<RunningTask>, Failure> {
        let path = format!("/nodes/{}/tasks?source=active", escape(node));
        let value = self.client.get(&path, object).await;
        let value =
            value.map_err(|error| error.failure(&format!("listing the tasks on {node} for {object}")))?;
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let running = value.as_array().into_iter().flatten().filter_map(|entry| {
            let over = entry.get("endtime").is_some_and(|end| !end.is_null());
            let upid = text(entry, "upid").filter(|_| !over)?;
            let kind = text(entry, "type").unwrap_or_default();
            let id = text(entry, "id").unwrap_or_default();
            let ours = text(entry, "user").is_none_or(|user| self.client.is_user(&user));
            Some(RunningTask { upid, kind, id, ours })
        });
        Ok(running.collect())
    }

    /// Everything that has an id, as the cluster shows it.
    pub(crate) async fn list(&self) -> Result<Vec<Vm>, Failure> {
        let ask = || async {
            let value = self.client.get("/cluster/resources?type=vm", ALL).await;
            let value = value.map_err(|error| error.failure(&format!("listing {ALL}")))?;
            Ok(read_list(&value, None))
        };
        self.listing.ask(ask).await
    }

    /// All nodes that are up, and everything on them as their configuration files say: slower to ask, and never behind.
    pub(crate) async fn list_by_node(&self) -> Result<ByNode, Failure> {
        let ask = || async {
            let nodes = self.all_online(ALL).await?;
            let lists = nodes.iter().map(|node| async move {
                let value = self.client.get(&format!("/nodes/{}/qemu", escape(node)), ALL).await;
                let value = value.map_err(|error| error.failure(&format!("listing {ALL} on {node}")))?;
                Ok(read_list(&value, Some(node)))
            });
            let lists: Vec<Vec<Vm>> = futures::future::try_join_all(lists).await?;
            Ok((nodes, lists.concat()))
        };
        self.listing_by_node.ask(ask).await
    }

    /// Nodes of ours that are up, in the order of the settings.
    pub(crate) async fn online(&self, object: &str) -> Result<Vec<String>, Failure> {
        let up = self.all_online(object).await?;
        Ok(self.settings.nodes.iter().filter(|node| up.contains(node)).cloned().collect())
    }

    /// All nodes that are up: a machine may have been moved to one that we don't use.
    pub(crate) async fn all_online(&self, object: &str) -> Result<Vec<String>, Failure> {
        let value = self.client.get("/nodes", object).await;
        let value = value.map_err(|error| error.failure(&format!("listing the nodes for {object}")))?;
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        Ok(value
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| text(entry, "status").is_none_or(|status| status == "online"))
            .filter_map(|entry| text(entry, "node"))
            .collect())
    }

    /// A machine's configuration; `None` when the machine is not there.
    pub(crate) async fn config(&self, vm: &Vm, object: &str) -> Result<Option<Config>, Failure> {
        let path = format!("/nodes/{}/qemu/{}/config", escape(&vm.node), vm.vmid);
        match self.client.get(&path, object).await {
            Ok(value) => Ok(Some(Config::read(&value))),
            Err(CallError::Refused(refusal)) if refusal.machine_gone() => Ok(None),
            Err(error) => Err(error.failure(&format!("reading VM {} for {object}", vm.vmid))),
        }
    }

    /// Whether a machine runs, and for how long.
    pub(crate) async fn power(&self, vm: &Vm, object: &str) -> Result<(bool, Duration), Failure> {
        let path = format!("/nodes/{}/qemu/{}/status/current", escape(&vm.node), vm.vmid);
        let value = self.client.get(&path, object).await.map_err(|error| match error {
            CallError::Refused(refusal) if refusal.machine_gone() => vanished(vm, object),
            other => other.failure(&format!("reading the state of VM {} for {object}", vm.vmid)),
        })?;
        let running = value.get("status").and_then(Value::as_str) == Some("running");
        let uptime = value.get("uptime").and_then(Value::as_u64).unwrap_or(0);
        Ok((running, Duration::from_secs(uptime)))
    }

    /// What is there of one machine: the list, and the configurations of those that may be it.
    pub(crate) async fn observe(
        &self,
        whom: &Whom<'_>,
        vms: Vec<Vm>,
        object: &str,
    ) -> Result<Observed, Failure> {
        let mut configs = BTreeMap::new();
        let mut gone = BTreeSet::new();
        let range = self.settings.range;
        for vm in candidates(&vms, whom.name, whom.owner, whom.vmid, range).filter(|vm| !vm.template) {
            match self.config(vm, object).await? {
                Some(config) => {
                    configs.insert(vm.vmid, config);
                }
                None => {
                    gone.insert(vm.vmid);
                }
            }
        }
        let reserved = self.reserved.lock().clone();
        let vms = vms.into_iter().filter(|vm| !gone.contains(&vm.vmid)).collect();
        Ok(Observed { vms, configs, reserved, ..Observed::default() })
    }

    /// Sends a change. `Some`: the task that carries it out.
    pub(crate) async fn send(&self, wire: Wire, object: &str) -> Result<Option<Operation>, CallError> {
        let answer = self.client.change(wire.method, &wire.path, wire.form, object).await?;
        Ok(answer.as_str().filter(|text| text.starts_with("UPID:")).map(|upid| Operation(upid.to_owned())))
    }
}

/// An id that was chosen for a machine and is not used yet, as the operation that the caller keeps.
pub(crate) fn reservation(vmid: u32) -> Operation {
    Operation(format!("{RESERVED}{vmid}"))
}

/// The id in such an operation.
pub(crate) fn reserved_id(operation: &Operation) -> Option<u32> {
    operation.0.strip_prefix(RESERVED)?.parse().ok()
}

fn read_list(value: &Value, node: Option<&str>) -> Vec<Vm> {
    let mut vms: Vec<Vm> =
        value.as_array().into_iter().flatten().filter_map(|entry| Vm::read(entry, node)).collect();
    vms.sort_by_key(|vm| vm.vmid);
    vms
}

/// A machine went away between two looks.
pub(crate) fn vanished(vm: &Vm, object: &str) -> Failure {
    Failure::new(
        Class::Retryable,
        "VmVanished",
        format!("{object}: VM {} on {} went away while it was worked on", vm.vmid, vm.node),
        "it is looked at again; find out who deletes it",
    )
}
