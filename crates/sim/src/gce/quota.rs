//! Limits of a project and its regions, and how much of each is used.

use super::machine_types;
use super::state::{State, collection_of};
use serde_json::{Value, json};

/// Metrics of each region with their usual limits.
const REGIONAL: &[(&str, f64)] = &[
    ("CPUS", 72.0),
    ("N2_CPUS", 72.0),
    ("N2D_CPUS", 72.0),
    ("C3_CPUS", 24.0),
    ("INSTANCES", 720.0),
    ("DISKS_TOTAL_GB", 4096.0),
    ("SSD_TOTAL_GB", 4096.0),
    ("IN_USE_ADDRESSES", 16.0),
    ("STATIC_ADDRESSES", 8.0),
    ("INSTANCE_GROUPS", 100.0),
    ("EXTERNAL_NETWORK_LB_FORWARDING_RULES", 50.0),
    ("REGIONAL_EXTERNAL_NETWORK_LB_BACKEND_SERVICES", 50.0),
];

/// Metrics of the project.
const GLOBAL: &[(&str, f64)] = &[
    ("CPUS_ALL_REGIONS", 96.0),
    ("FIREWALLS", 100.0),
    ("FORWARDING_RULES", 15.0),
    ("TARGET_POOLS", 50.0),
    ("HEALTH_CHECKS", 75.0),
    ("BACKEND_SERVICES", 50.0),
];

impl State {
    fn limit(&self, metric: &str, usual: f64) -> f64 {
        self.quotas.get(metric).copied().unwrap_or(usual)
    }

    /// What `projects.get` (without a region) and `regions.get` show.
    pub(super) fn quotas_of(&self, region: Option<&str>) -> Value {
        let table = if region.is_some() { REGIONAL } else { GLOBAL };
        let told = table.iter().map(|(metric, usual)| {
            json!({ "metric": metric, "limit": self.limit(metric, *usual), "usage": self.usage(metric, region) })
        });
        told.collect()
    }

    /// The limit that would be exceeded by so much more of a metric, with the place that it holds in.
    pub(super) fn exceeds(&self, metric: &str, region: Option<&str>, more: f64) -> Option<(f64, String)> {
        let table = if region.is_some() { REGIONAL } else { GLOBAL };
        let (_, usual) = table.iter().find(|(known, _)| *known == metric)?;
        let limit = self.limit(metric, *usual);
        let place = region.map_or_else(|| "globally".to_string(), |region| format!("in region {region}"));
        (self.usage(metric, region) + more > limit).then_some((limit, place))
    }

    fn usage(&self, metric: &str, region: Option<&str>) -> f64 {
        let here = |path: &str| region.is_none_or(|region| self.region_of(path) == Some(region));
        let count = |collection: &str| {
            let docs = self.docs.keys().filter(|path| collection_of(path) == collection && here(path));
            // What is being made counts already, unless it is shown already.
            let coming = self.coming.keys().filter(|path| {
                collection_of(path) == collection && here(path) && !self.docs.contains_key(*path)
            });
            number(docs.count() + coming.count())
        };
        match metric {
            "CPUS" | "N2_CPUS" | "N2D_CPUS" | "C3_CPUS" | "CPUS_ALL_REGIONS" => self.cpus(metric, &here),
            "INSTANCES" => count("instances"),
            "DISKS_TOTAL_GB" => self.disks(false, &here),
            "SSD_TOTAL_GB" => self.disks(true, &here),
            "IN_USE_ADDRESSES" => number(self.external_in_use(region.unwrap_or_default())),
            "STATIC_ADDRESSES" => count("addresses"),
            "INSTANCE_GROUPS" => count("instanceGroups"),
            "EXTERNAL_NETWORK_LB_FORWARDING_RULES" | "FORWARDING_RULES" => count("forwardingRules"),
            "REGIONAL_EXTERNAL_NETWORK_LB_BACKEND_SERVICES" | "BACKEND_SERVICES" => count("backendServices"),
            "FIREWALLS" => count("firewalls"),
            "TARGET_POOLS" => count("targetPools"),
            "HEALTH_CHECKS" => count("healthChecks") + count("httpHealthChecks"),
            _ => 0.0,
        }
    }

    fn cpus(&self, metric: &str, here: &dyn Fn(&str) -> bool) -> f64 {
        let running = self.all("instances").filter(|(path, _)| {
            here(path) && !matches!(self.text(path, "status"), "TERMINATED" | "PROVISIONING")
        });
        let cpus = running.filter_map(|(path, _)| {
            let link = self.text(path, "machineType");
            let name = link.rsplit('/').next().unwrap_or_default();
            let counts = metric == "CPUS_ALL_REGIONS" || machine_types::metric(name) == metric;
            machine_types::parse(name).ok().filter(|_| counts).map(|(cpus, _)| f64::from(cpus))
        });
        cpus.sum()
    }

    fn disks(&self, ssd: bool, here: &dyn Fn(&str) -> bool) -> f64 {
        let size = |path: &str| self.text(path, "sizeGb").parse::<f64>().unwrap_or_default();
        let fits = |path: &str| self.text(path, "type").ends_with("/pd-standard") != ssd;
        self.all("disks").filter(|(path, _)| here(path) && fits(path)).map(|(path, _)| size(path)).sum()
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn number(count: usize) -> f64 {
    count as f64
}
