//! The node's own word on its state: the resource MachineStatus, readable in every state.

use std::fmt;

use serde::Deserialize;

use super::{error::ClientError, session::Client, stream::ResourceEvents};
use crate::api::cosi::resource::Resource;

const NAMESPACE: &str = "runtime";
const KIND: &str = "MachineStatuses.runtime.talos.dev";
const ID: &str = "machine";

/// Where a node is in its life, and what keeps it from being ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineStatus {
    /// `booting`, `installing`, `maintenance`, `running`, `rebooting`, `shutting down`, `resetting`, `upgrading`.
    pub stage: String,
    pub ready: bool,
    /// Name and reason.
    pub unmet: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Spec {
    stage: String,
    #[serde(default)]
    status: Inner,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inner {
    #[serde(default)]
    ready: bool,
    #[serde(default)]
    unmet_conditions: Option<Vec<Unmet>>,
}

#[derive(Deserialize)]
struct Unmet {
    #[serde(default)]
    name: String,
    #[serde(default)]
    reason: String,
}

impl MachineStatus {
    pub async fn get(client: &Client) -> Result<Option<Self>, ClientError> {
        Ok(Self::read(&client.resource(NAMESPACE, KIND, ID).await?))
    }

    pub async fn watch(client: &Client) -> Result<ResourceEvents, ClientError> {
        client.watch(NAMESPACE, KIND, Some(ID)).await
    }

    /// `None` when the resource has no such spec: it was destroyed, or is of another kind.
    pub fn read(resource: &Resource) -> Option<Self> {
        let spec: Spec = serde_saphyr::from_str(&resource.spec.as_ref()?.yaml_spec).ok()?;
        let unmet = spec.status.unmet_conditions.unwrap_or_default();
        Some(Self {
            stage: spec.stage,
            ready: spec.status.ready,
            unmet: unmet.into_iter().map(|unmet| (unmet.name, unmet.reason)).collect(),
        })
    }

    pub fn is_running(&self) -> bool {
        self.stage == "running"
    }
}

impl fmt::Display for MachineStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}, {}", self.stage, if self.ready { "ready" } else { "not ready" })?;
        for (name, reason) in &self.unmet {
            write!(f, "; {name}: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cosi::resource::Spec as Wire;

    fn read(yaml: &str) -> Option<MachineStatus> {
        let spec = Some(Wire { yaml_spec: yaml.to_owned(), ..Default::default() });
        MachineStatus::read(&Resource { spec, ..Default::default() })
    }

    #[test]
    fn the_status_is_read_from_its_yaml() {
        let status = read("stage: booting\nstatus:\n    ready: false\n    unmetConditions:\n        - name: time\n          reason: not in sync\n").unwrap();
        assert_eq!(status.to_string(), "stage booting, not ready; time: not in sync");
        let status = read("stage: running\nstatus:\n    ready: true\n    unmetConditions: []\n").unwrap();
        assert!(status.is_running() && status.ready);
        assert!(read("stage: running\nstatus:\n    ready: true\n    unmetConditions: null\n").unwrap().ready);
        assert_eq!(read("kind: other\n"), None);
    }
}
