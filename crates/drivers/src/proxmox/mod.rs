//! Proxmox VE 8.
//!
//! Read `plan.rs` first: all decisions are there, and the dry run makes the same ones. `machines.rs` looks, asks the plan and
//! makes one change; `driver.rs` holds what all parts share.

mod client;
mod driver;
mod error;
mod images;
mod machines;
mod mark;
mod model;
mod mutation;
mod plan;
mod preflight;
pub(crate) mod recording;
mod settings;
#[cfg(test)]
mod tests;

use crate::connection::{Connection, Credentials};
use crate::failure::Failure;
use crate::http::Http;
use crate::profile::Profile;
use crate::seam::Infrastructure;
use butler_api::{Provider, ProviderConfigSpec};
use std::sync::Arc;

/// Host and port of its API.
pub(crate) fn doors(config: &ProviderConfigSpec) -> Vec<(String, u16)> {
    config.proxmox.iter().filter_map(|proxmox| crate::http::door(&proxmox.endpoint)).collect()
}

/// The Proxmox cluster that a ProviderConfig describes. Makes no call.
pub(crate) fn connect(
    config: &ProviderConfigSpec,
    credentials: &Credentials,
    connection: &Connection,
) -> Result<Infrastructure, Failure> {
    let (settings, block) = settings::Settings::read(config)?;
    let http = Http::new("proxmox", &block.endpoint, block.insecure, connection)?;
    let client = client::Client::new(http, credentials)?;
    let driver = Arc::new(driver::Driver::new(client, settings));
    Ok(Infrastructure {
        profile: Profile::of(Provider::Proxmox),
        machines: Arc::new(machines::ProxmoxMachines(Arc::clone(&driver))),
        images: Some(Arc::new(images::ProxmoxImages(Arc::clone(&driver)))),
        load_balancers: None,
        preflight: Arc::new(preflight::ProxmoxPreflight(driver)),
    })
}
