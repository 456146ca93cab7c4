//! Talos' own summary of a machine, as in its `MachineStatus` resource.

use super::{Machine, Role, ServiceState, Stage};

/// The stage, and what is missing until the node is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineStatus {
    pub stage: Stage,
    pub ready: bool,
    pub unmet: Vec<Unmet>,
}

/// One unmet condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    pub name: &'static str,
    pub reason: String,
}

impl Machine {
    /// What `MachineStatus` says now. Only a node that boots or runs has conditions, as in Talos.
    #[must_use]
    pub fn status(&self) -> MachineStatus {
        let mut unmet = Vec::new();
        if matches!(self.stage, Stage::Booting | Stage::Running) {
            if !self.run.time_synced {
                unmet.push(Unmet { name: "time", reason: "time is not synced".to_string() });
            }
            let services = self.services_not_running();
            if !services.is_empty() {
                unmet.push(Unmet { name: "services", reason: services.join(", ") });
            }
            if let Some(reason) = self.static_pods_missing() {
                unmet.push(Unmet { name: "staticPods", reason });
            }
            if let Some(reason) = self.node_not_ready() {
                unmet.push(Unmet { name: "nodeReady", reason });
            }
        }
        MachineStatus { stage: self.stage, ready: unmet.is_empty(), unmet }
    }

    fn services_not_running(&self) -> Vec<String> {
        self.run
            .services
            .iter()
            .filter(|(_, state)| **state != ServiceState::Running)
            .map(|(id, _)| format!("{id} not running"))
            .collect()
    }

    fn static_pods_missing(&self) -> Option<String> {
        let waits =
            self.role() == Some(Role::ControlPlane) && self.stage == Stage::Running && !self.run.static_pods;
        waits.then(|| "kube-system/kube-apiserver pending".to_string())
    }

    fn node_not_ready(&self) -> Option<String> {
        let config = self.config()?;
        let name = self.hostname();
        if !self.run.kubelet || self.stage != Stage::Running || !self.run.static_pods {
            return Some(format!("node {name:?} status is not available yet"));
        }
        // Without a CNI a node never becomes ready, until something outside says that one was installed.
        let ready = self.kubernetes_ready.unwrap_or(!config.cni_none);
        (!ready).then(|| format!("node {name:?} is not ready"))
    }
}
