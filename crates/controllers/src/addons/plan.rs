//! The graph with a cluster's gates applied. Pure.

use super::graph::{self, Gate};
use super::site::Site;

/// An addon of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAddon {
    /// Key in `status.addonsInstalled`.
    pub name: &'static str,
    /// Number of the step in the documentation, such as `2.5`.
    pub step: &'static str,
    /// What has to be ready before it is installed. Holds no addon that is skipped.
    pub needs: Vec<&'static str>,
    /// Why it is not installed.
    pub skipped: Option<String>,
    /// What is installed.
    pub version: String,
}

/// All addons of a cluster, those that are skipped too, in the order of the documentation.
pub fn plan(site: &Site<'_>) -> Vec<PlannedAddon> {
    let gates: Vec<(&graph::Row, Gate)> = graph::ROWS.iter().map(|row| (row, (row.gate)(site))).collect();
    let installed = |name: &str| gates.iter().any(|(row, gate)| row.name == name && *gate == Gate::Install);
    let planned = gates.iter().filter_map(|(row, gate)| {
        let skipped = match gate {
            Gate::Install => None,
            Gate::Skip(why) => Some(why.clone()),
            Gate::NotChosen => return None,
        };
        let needs = row.needs.iter().filter(|need| (need.when)(site) && installed(need.on));
        Some(PlannedAddon {
            name: row.name,
            step: row.step,
            needs: if skipped.is_some() { Vec::new() } else { needs.map(|need| need.on).collect() },
            skipped,
            version: (row.version)(site),
        })
    });
    planned.collect()
}
