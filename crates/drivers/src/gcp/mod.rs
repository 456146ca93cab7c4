//! Google Cloud: instances, and the passthrough load balancer in front of a control plane.
//!
//! Read `machine_plan.rs` and `balancer/plan.rs` first: all decisions are there, and the dry run makes the same ones. `machines.rs`
//! and `balancer/mod.rs` look, ask the plan and make one change; `driver.rs` holds what all parts share.

mod auth;
mod balancer;
mod client;
mod controller_manager;
mod driver;
mod error;
mod firewall;
mod machine_plan;
mod machines;
mod names;
mod part;
mod preflight;
mod quota;
mod recording;
mod settings;
#[cfg(test)]
mod tests;
mod watch;

pub(crate) use controller_manager::objects as controller_manager;
pub(crate) use recording::GcpRecording;

use crate::connection::{Connection, Credentials};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::seam::Infrastructure;
use butler_api::{Provider, ProviderConfigSpec};
use std::sync::Arc;

/// Hosts and ports of its APIs.
pub(crate) fn doors() -> Vec<(String, u16)> {
    [client::COMPUTE, client::RESOURCE_MANAGER, auth::TOKEN_URI]
        .into_iter()
        .filter_map(crate::http::door)
        .collect()
}

/// The project that a ProviderConfig describes. Makes no call.
pub(crate) fn connect(
    config: &ProviderConfigSpec,
    credentials: &Credentials,
    connection: &Connection,
) -> Result<Infrastructure, Failure> {
    let settings = settings::Settings::read(config)?;
    let client = client::Client::new(&settings.project, credentials, connection)?;
    let driver = Arc::new(driver::Driver::new(client, settings));
    Ok(Infrastructure {
        profile: Profile::of(Provider::Gcp),
        machines: Arc::new(machines::GcpMachines(Arc::clone(&driver))),
        // An image is brought by a bucket and a file in it, which is more than an address: images are named instead.
        images: None,
        load_balancers: Some(Arc::new(balancer::GcpLoadBalancers::new(Arc::clone(&driver)))),
        preflight: Arc::new(preflight::GcpPreflight(driver)),
    })
}
