//! Hands: they change the outside world and know nothing of clusters, phases or addons.
//!
//! Start with [`Infrastructure`] in `seam.rs`; the contract is in `docs/contracts/`. One module per infrastructure.
#![warn(missing_docs)]

mod aws;
mod change;
mod connection;
mod controller_manager;
mod cover;
pub mod dry_run;
mod failure;
mod gcp;
mod http;
mod mark;
mod profile;
mod proxmox;
mod recorder;
mod seam;
mod together;
#[cfg(test)]
mod wire_tests;

pub use change::PlannedChange;
pub use connection::{Connection, Credentials};
pub use failure::{Class, Failure};
pub use profile::{Component, Profile};
pub use recorder::{Call, NoRecorder, Outcome, Recorder, SharedRecorder};
pub use seam::*;

use butler_api::{Provider, ProviderConfigSpec};

/// Hosts and ports at which an infrastructure's API is reached.
pub fn doors(config: &ProviderConfigSpec) -> Vec<(String, u16)> {
    match config.provider {
        Provider::Aws => aws::doors(config),
        Provider::Gcp => gcp::doors(),
        Provider::Proxmox => proxmox::doors(config),
        _ => Vec::new(),
    }
}

/// The infrastructure that a ProviderConfig describes. Makes no call.
///
/// # Errors
/// `InvalidConfig` when settings are missing or the infrastructure is not built yet, `Auth` when credentials are missing.
pub fn connect(
    config: &ProviderConfigSpec,
    credentials: &Credentials,
    connection: &Connection,
) -> Result<Infrastructure, Failure> {
    let connection = &connection.trusting(credentials);
    match config.provider {
        Provider::Aws => aws::connect(config, credentials, connection),
        Provider::Gcp => gcp::connect(config, credentials, connection),
        Provider::Proxmox => proxmox::connect(config, credentials, connection),
        other => Err(dry_run::not_built(other)),
    }
}
