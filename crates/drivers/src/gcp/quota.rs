//! How much of the project's quotas a bootstrap takes, and what is left of them: pure.

use super::balancer::Desired;
use super::names::google_name;
use super::part::{Kind, Thing};
use super::settings::Settings;
use crate::seam::PreflightWanted;
use serde_json::Value;
use std::collections::BTreeMap;

/// A quota that has less left than is needed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shortage {
    pub(crate) metric: &'static str,
    pub(crate) limit: u64,
    pub(crate) usage: u64,
    pub(crate) needed: u64,
}

/// What is going to be taken, by Google's names of quotas. `there` are the instances of the project: those that are wanted and
/// there already take nothing more.
pub(crate) fn needed(
    settings: &Settings,
    wanted: &PreflightWanted,
    desired: Option<&Desired>,
    there: &[Thing],
) -> BTreeMap<&'static str, u64> {
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut take = |metric, amount: u64| *all.entry(metric).or_default() += amount;
    let disks = match settings.disk_type.as_str() {
        "pd-standard" => "DISKS_TOTAL_GB",
        _ => "SSD_TOTAL_GB",
    };
    for machine in &wanted.machines {
        let name = google_name(&machine.name);
        if there.iter().any(|thing| thing.part.name == name && thing.is_of(&machine.owner)) {
            continue;
        }
        take("INSTANCES", 1);
        let kind = settings.machine_type(machine.cpu, machine.memory_mb);
        // Newer series have a quota of their own; what a given type holds is not looked up.
        let cpus = if kind.starts_with("n2-") { "N2_CPUS" } else { "CPUS" };
        take(cpus, u64::from(machine.cpu));
        let extra: u64 =
            machine.extra_disks.iter().map(|disk| u64::try_from(disk.size_gb).unwrap_or(0)).sum();
        take(disks, u64::from(machine.disk_gb) + extra);
        if settings.external_address {
            take("IN_USE_ADDRESSES", 1);
        }
    }
    // The parts of a load balancer that is there already are counted as if they were not: too careful by a handful.
    for part in desired.map(Desired::parts).unwrap_or_default() {
        match part.kind {
            Kind::Address => take("STATIC_ADDRESSES", 1),
            Kind::ForwardingRule => take("FORWARDING_RULES", 1),
            Kind::BackendService => take("BACKEND_SERVICES", 1),
            Kind::HealthCheck | Kind::HttpHealthCheck => take("HEALTH_CHECKS", 1),
            Kind::TargetPool => take("TARGET_POOLS", 1),
            Kind::Firewall => take("FIREWALLS", 1),
            _ => {}
        }
    }
    all
}

/// Quotas, of the region and of the project, that have too little left. A quota that Google does not list has no limit here.
pub(crate) fn shortages(
    needed: &BTreeMap<&'static str, u64>,
    region: &Value,
    project: &Value,
) -> Vec<Shortage> {
    let lists = [region, project];
    let mut short = Vec::new();
    for (metric, amount) in needed {
        let listed = lists.iter().filter_map(|list| list.get("quotas")?.as_array()).flatten();
        let listed = listed.filter(|quota| quota.get("metric").and_then(Value::as_str) == Some(metric));
        for quota in listed {
            let number = |key: &str| quota.get(key).and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
            let (limit, usage) = (number("limit"), number("usage"));
            if usage + *amount as f64 > limit {
                short.push(Shortage { metric, limit: limit as u64, usage: usage as u64, needed: *amount });
            }
        }
    }
    short
}
