//! Hands: they change the outside world and know nothing of clusters, phases or addons.
//!
//! Start with [`Infrastructure`] in `seam.rs`; the contract is in `docs/contracts/`. One module per infrastructure.
#![warn(missing_docs)]

mod change;
mod connection;
pub mod dry_run;
mod failure;
mod http;
mod profile;
mod proxmox;
mod recorder;
mod seam;

pub use change::PlannedChange;
pub use connection::{Connection, Credentials};
pub use failure::{Class, Failure};
pub use profile::{Component, Profile};
pub use recorder::{Call, NoRecorder, Outcome, Recorder, SharedRecorder};
pub use seam::*;

use butler_api::{Provider, ProviderConfigSpec};

/// The infrastructure that a ProviderConfig describes. Makes no call.
///
/// # Errors
/// `InvalidConfig` when settings are missing or the infrastructure is not built yet, `Auth` when credentials are missing.
pub fn connect(
    config: &ProviderConfigSpec,
    credentials: &Credentials,
    connection: &Connection,
) -> Result<Infrastructure, Failure> {
    match config.provider {
        Provider::Proxmox => proxmox::connect(config, credentials, connection),
        other => Err(dry_run::not_built(other)),
    }
}
