//! Addons: what is installed on a new cluster.
//!
//! ```text
//!   graph.rs ---- every addon as a row: gate, needs, content, how readiness is judged
//!      |              built in: kube_vip, gateway_api, metallb, butler, provider_config, exposure
//!      |              from a source: values.rs says what is asked for; bundle.rs and stand_ins.rs are sources
//!   plan.rs ----- the rows of one cluster           (pure)
//!   objects.rs -- the objects of one addon          (pure)
//!   target.rs --- looks (memory.rs, readiness.rs) and installs (apply.rs, inventory.rs)
//! ```

mod apply;
mod bundle;
mod butler;
mod exposure;
mod gateway_api;
mod graph;
mod inventory;
mod kinds;
mod kube_vip;
mod memory;
mod metallb;
mod nodes;
mod objects;
mod plan;
mod provider_config;
mod readiness;
mod site;
mod source;
mod stand_in_table;
mod stand_ins;
mod target;
mod trouble;
mod values;

pub use bundle::Bundle;
pub use objects::{LABEL_ADDON, objects, parts, redacted};
pub use plan::{PlannedAddon, plan};
pub use readiness::{Readiness, judge, judge_with_pods, title};
pub use site::{Site, SiteMachine};
pub use source::{NoSources, Part, Sources};
pub use stand_ins::{LABEL_STAND_IN, StandIns};
pub use target::{AddonState, Target};

use butler_drivers::Failure;
use std::collections::BTreeMap;

/// How far a cluster's addons are, looked at once. Whoever looks again and again keeps a [`Target`].
///
/// # Errors
/// As [`Target::observe`].
pub async fn observe(
    client: &kube::Client,
    site: &Site<'_>,
    sources: &dyn Sources,
) -> Result<BTreeMap<String, AddonState>, Failure> {
    Target::new(client.clone()).observe(site, sources).await
}

/// Installs one addon. Whoever installs several keeps a [`Target`].
///
/// # Errors
/// As [`Target::install`].
pub async fn install(
    client: &kube::Client,
    addon: &str,
    site: &Site<'_>,
    sources: &dyn Sources,
) -> Result<(), Failure> {
    Target::new(client.clone()).install(addon, site, sources).await
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests;
