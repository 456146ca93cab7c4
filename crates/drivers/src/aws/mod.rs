//! AWS: EC2 and network load balancers, by thin signed calls of the query protocol.
//!
//! Read `machine/plan.rs` and `balancer/plan.rs` first: all decisions are there, and the dry run makes the same ones. The
//! `hands.rs` beside them look, ask the plan and make one change; `client.rs` signs and sends.

mod balancer;
mod client;
mod controller_manager;
mod credentials;
mod driver;
mod error;
mod machine;
mod preflight;
pub(crate) mod recording;
mod settings;
mod sign;
mod tags;
#[cfg(test)]
mod wire_tests;
mod xml;

pub(crate) use controller_manager::objects as controller_manager;

use crate::connection::{Connection, Credentials};
use crate::failure::Failure;
use crate::profile::Profile;
use crate::seam::Infrastructure;
use butler_api::{Provider, ProviderConfigSpec};
use std::sync::Arc;

/// Hosts and ports of its APIs.
pub(crate) fn doors(config: &ProviderConfigSpec) -> Vec<(String, u16)> {
    use client::Service;
    let region = config.aws.as_ref().map(|aws| aws.region.as_str()).unwrap_or_default();
    let services = [Service::Ec2, Service::Elb, Service::Sts, Service::Quotas];
    services.into_iter().filter_map(|service| crate::http::door(&client::endpoint(service, region))).collect()
}

/// The region that a ProviderConfig describes. Makes no call.
pub(crate) fn connect(
    config: &ProviderConfigSpec,
    credentials: &Credentials,
    connection: &Connection,
) -> Result<Infrastructure, Failure> {
    let settings = settings::Settings::read(config)?;
    let client = client::Client::new(&settings.region, credentials, connection)?;
    let driver = Arc::new(driver::Driver::new(client, settings));
    Ok(Infrastructure {
        profile: Profile::of(Provider::Aws),
        machines: Arc::new(machine::AwsMachines(Arc::clone(&driver))),
        images: None,
        load_balancers: Some(Arc::new(balancer::AwsLoadBalancers::new(Arc::clone(&driver)))),
        preflight: Arc::new(preflight::AwsPreflight(driver)),
    })
}
