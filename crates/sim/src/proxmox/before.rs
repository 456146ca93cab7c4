//! What was so before the last change: for reads that a fault script wants to be stale.
//!
//! Only what a call can touch is kept, since a copy of everything would make each call as slow as the site is large.

use super::request::Call;
use super::state::{State, Storage, Vm};

/// Virtual machines and the storage of one call, as they were.
#[derive(Debug, Default)]
pub(super) struct Before {
    vms: Vec<(u32, Option<Vm>)>,
    storage: Option<(String, Storage)>,
}

impl State {
    /// Keeps what a call is about to change, now or by a task.
    pub(super) fn before(&self, call: &Call) -> Before {
        let named = |key: &str| call.params.get(key).and_then(|id| id.parse().ok());
        let vmids = [call.vmid(), named("newid"), named("vmid")].into_iter().flatten();
        let storage = match call.path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["nodes", _, "storage", name, ..] => {
                self.storages.get(name).map(|s| (name.to_string(), s.clone()))
            }
            _ => None,
        };
        Before { vms: vmids.map(|vmid| (vmid, self.vms.get(&vmid).cloned())).collect(), storage }
    }

    /// A copy in which the last change has not happened yet.
    pub(super) fn as_before(&self, before: &Before) -> Self {
        let mut old = self.clone();
        for (vmid, vm) in &before.vms {
            match vm {
                Some(vm) => old.vms.insert(*vmid, vm.clone()),
                None => old.vms.remove(vmid),
            };
        }
        old.storages.extend(before.storage.clone());
        old
    }
}
