//! A dry run: an infrastructure that makes no call, decides by the real plans, and writes down what they would change.

use crate::change::PlannedChange;
use crate::failure::{Class, Failure};
use crate::proxmox::recording::ProxmoxRecording;
use crate::seam::Infrastructure;
use butler_api::{Provider, ProviderConfigSpec};
use std::sync::Arc;

/// What a dry run has recorded. Clones are the same recording.
#[derive(Clone)]
pub struct Recording(Arc<ProxmoxRecording>);

impl Recording {
    /// A recording for the infrastructure that a ProviderConfig describes, taken to be empty but for what the ProviderConfig
    /// names (a template, say).
    ///
    /// # Errors
    /// `InvalidConfig` when settings are missing or the infrastructure is not built yet.
    pub fn new(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        match config.provider {
            Provider::Proxmox => Ok(Self(Arc::new(ProxmoxRecording::new(config)?))),
            other => Err(not_built(other)),
        }
    }

    /// The infrastructure to hand to controllers.
    pub fn infrastructure(&self) -> Infrastructure {
        ProxmoxRecording::infrastructure(&self.0)
    }

    /// Every change so far, in the order in which it was planned.
    pub fn changes(&self) -> Vec<PlannedChange> {
        self.0.changes()
    }
}

pub(crate) fn not_built(provider: Provider) -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "ProviderNotBuilt",
        format!("the infrastructure {provider} is not built yet"),
        "use proxmox",
    )
}
