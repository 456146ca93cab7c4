//! Looks whether a project has what a bootstrap needs. Reads only.

use super::balancer::{CHECK_SOURCES, Desired, strangers};
use super::client::Client;
use super::driver::{Driver, zones_of};
use super::firewall::{BETWEEN_MACHINES, From, Machines, Need, Passage, passage};
use super::names::{google_name, last, tail};
use super::part::{Kind, Thing};
use super::quota::{self, Shortage};
use super::settings::Settings;
use crate::failure::Failure;
use crate::seam::{Finding, Preflight, PreflightWanted, Verdict};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Checks of one project.
pub(crate) struct GcpPreflight(pub(crate) Arc<Driver>);

const OBJECT: &str = "preflight";

/// Permissions that machines need.
const FOR_MACHINES: &[&str] = &[
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.get",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.resume",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.start",
    "compute.projects.get",
    "compute.regions.get",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
];

/// Permissions on images that are the project's own; those of another project are that one's to give.
const FOR_OWN_IMAGES: &[&str] =
    &["compute.images.get", "compute.images.getFromFamily", "compute.images.useReadOnly"];

/// Permissions on a network that is the project's own.
const FOR_OWN_NETWORKS: &[&str] =
    &["compute.networks.get", "compute.subnetworks.get", "compute.subnetworks.use"];

/// Permissions that an internal load balancer needs besides.
const FOR_INTERNAL: &[&str] = &[
    "compute.addresses.createInternal",
    "compute.addresses.deleteInternal",
    "compute.addresses.useInternal",
    "compute.networks.use",
];

/// Permissions that a load balancer needs, whichever its kind.
const FOR_LOAD_BALANCERS: &[&str] = &[
    "compute.addresses.create",
    "compute.addresses.delete",
    "compute.addresses.get",
    "compute.addresses.list",
    "compute.addresses.use",
    "compute.forwardingRules.create",
    "compute.forwardingRules.delete",
    "compute.forwardingRules.get",
    "compute.forwardingRules.list",
    "compute.instances.use",
    "compute.regionOperations.get",
    "compute.regionOperations.list",
];

/// Parts of every kind are looked for, whichever kind is made: what was made by other settings goes too.
const FOR_LOOKS: &[&str] = &[
    "compute.firewalls.list",
    "compute.globalOperations.list",
    "compute.httpHealthChecks.list",
    "compute.instanceGroups.list",
    "compute.regionBackendServices.list",
    "compute.regionHealthChecks.list",
    "compute.targetPools.list",
];

const FOR_SERVICES: &[&str] = &[
    "compute.instanceGroups.create",
    "compute.instanceGroups.delete",
    "compute.instanceGroups.get",
    "compute.instanceGroups.list",
    "compute.instanceGroups.update",
    "compute.instanceGroups.use",
    "compute.regionBackendServices.create",
    "compute.regionBackendServices.delete",
    "compute.regionBackendServices.get",
    "compute.regionBackendServices.list",
    "compute.regionBackendServices.update",
    "compute.regionBackendServices.use",
    "compute.regionHealthChecks.create",
    "compute.regionHealthChecks.delete",
    "compute.regionHealthChecks.get",
    "compute.regionHealthChecks.list",
    "compute.regionHealthChecks.update",
    "compute.regionHealthChecks.useReadOnly",
];

const FOR_POOLS: &[&str] = &[
    "compute.httpHealthChecks.create",
    "compute.httpHealthChecks.delete",
    "compute.httpHealthChecks.get",
    "compute.httpHealthChecks.list",
    "compute.httpHealthChecks.update",
    "compute.httpHealthChecks.useReadOnly",
    "compute.targetPools.addInstance",
    "compute.targetPools.create",
    "compute.targetPools.delete",
    "compute.targetPools.get",
    "compute.targetPools.list",
    "compute.targetPools.removeInstance",
    "compute.targetPools.use",
];

const FOR_FIREWALLS: &[&str] = &[
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.firewalls.update",
    "compute.globalOperations.get",
    "compute.globalOperations.list",
    "compute.networks.updatePolicy",
];

#[async_trait]
impl Preflight for GcpPreflight {
    async fn check(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let project = self.client().get("", OBJECT).await;
        let project = match project {
            Ok(project) => project,
            Err(error) => {
                let failure = error.failure(&format!("reading the project {}", self.settings().project));
                // Without a login every other check would only say the same again.
                let rest = finding("everything else", Verdict::Skip, "not looked at without an answer", "");
                return vec![failed("credentials", failure), rest];
            }
        };
        let took = format!("{} may read the project {}", self.client().who(), self.settings().project);
        let mut findings = vec![finding("credentials", Verdict::Pass, took, "")];
        let (permissions, region, images, network, names) = tokio::join!(
            self.permissions(wanted),
            self.region(wanted, &project),
            self.images(wanted),
            self.network(wanted),
            self.names(wanted),
        );
        findings.push(permissions);
        findings.extend(region);
        findings.extend(images);
        findings.extend(network);
        findings.extend(names);
        findings.extend(wanted.endpoint.as_ref().map(|endpoint| {
            let detail = format!("{endpoint} is taken as it is: no load balancer is made, and whether it leads to the control plane shows when that is up");
            finding("endpoint", Verdict::Skip, detail, "")
        }));
        findings
    }
}

impl GcpPreflight {
    fn client(&self) -> &Client {
        &self.0.client
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    fn desired(&self, wanted: &PreflightWanted) -> Option<Desired> {
        wanted.load_balancer.as_ref().map(|wanted| Desired::new(wanted, self.settings()))
    }

    async fn permissions(&self, wanted: &PreflightWanted) -> Finding {
        let check = "permissions";
        let needed = needed_permissions(self.settings(), self.desired(wanted).as_ref());
        let mut missing = Vec::new();
        // Google takes a hundred at a time.
        for some in needed.chunks(100) {
            match self.client().permissions(some, OBJECT).await {
                Ok(held) => missing.extend(some.iter().filter(|one| !held.iter().any(|other| other == *one))),
                Err(error) => return failed(check, error.failure("asking for our permissions")),
            }
        }
        if missing.is_empty() {
            return finding(check, Verdict::Pass, format!("all {} that are needed", needed.len()), "");
        }
        let missing: Vec<&str> = missing.into_iter().copied().collect();
        let detail = format!("{} lacks {}", self.client().who(), missing.join(", "));
        let remedy = "give it the roles Compute Instance Admin (v1), Compute Load Balancer Admin and Compute Security Admin, and Service Account User when machines have a service account";
        finding(check, Verdict::Fail, detail, remedy)
    }

    /// The region, its zones, and what is left of quotas.
    async fn region(&self, wanted: &PreflightWanted, project: &Value) -> Vec<Finding> {
        let name = &self.settings().region;
        let check = format!("region {name}");
        let region = match self.client().get(&format!("regions/{name}"), OBJECT).await {
            Ok(region) => region,
            Err(error) => return vec![failed(&check, error.failure(&format!("reading the region {name}")))],
        };
        let zones = zones_of(&region);
        let unknown: Vec<&String> =
            self.settings().zones.iter().filter(|zone| !zones.contains(zone)).collect();
        let mut findings = match unknown.as_slice() {
            [] => vec![finding(&check, Verdict::Pass, format!("zones {}", zones.join(", ")), "")],
            [zone, ..] => {
                let detail = format!("has no zone {zone}, but {}", zones.join(", "));
                vec![finding(
                    &check,
                    Verdict::Fail,
                    detail,
                    "name zones that are there in the ProviderConfig",
                )]
            }
        };
        let there = match self.0.list(Kind::Instance, "", OBJECT).await {
            Ok(there) => there,
            Err(failure) => return findings.into_iter().chain([failed("quotas", failure)]).collect(),
        };
        let needed = quota::needed(self.settings(), wanted, self.desired(wanted).as_ref(), &there);
        let short = quota::shortages(&needed, &region, project);
        findings.extend(short.iter().map(|Shortage { metric, limit, usage, needed }| {
            let detail = format!("{needed} needed, {usage} of {limit} used");
            let remedy = "ask Google for a higher quota, or free some of it";
            finding(&format!("quota {metric}"), Verdict::Fail, detail, remedy)
        }));
        if short.is_empty() {
            let metrics: Vec<&str> = needed.keys().copied().collect();
            findings.push(finding("quotas", Verdict::Pass, format!("enough of {}", metrics.join(", ")), ""));
        }
        findings
    }

    async fn images(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = BTreeSet::new();
        for machine in &wanted.machines {
            let image = match self.settings().image(machine) {
                Ok(image) => image,
                Err(_) if wanted.brings_image => continue,
                Err(failure) => {
                    findings.push(failed("image", failure));
                    break;
                }
            };
            if !seen.insert(image.clone()) {
                continue;
            }
            let check = format!("image {}", last(&image));
            findings.push(match self.client().get_tail(tail(&image), OBJECT).await {
                Ok(found) => image_finding(&check, &found),
                Err(error) => {
                    let mut found = failed(&check, error.failure(&format!("looking at {}", tail(&image))));
                    found.remedy =
                        "bring the image of Talos into the project, or name another in the ProviderConfig"
                            .to_owned();
                    found
                }
            });
        }
        findings
    }

    /// Network, subnetwork, and what the firewall rules let through.
    async fn network(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let settings = self.settings();
        let check = format!("network {}", last(&settings.network));
        let network = match self.client().get_tail(tail(&settings.network), OBJECT).await {
            Ok(network) => network,
            Err(error) => return vec![failed(&check, error.failure("reading the network"))],
        };
        let mut findings = vec![finding(&check, Verdict::Pass, "is there", "")];
        let subnetwork = settings.subnetwork.clone().or_else(|| in_region(&network, &settings.region));
        let mut range = None;
        match subnetwork {
            Some(url) => {
                let check = format!("subnetwork {}", last(&url));
                match self.client().get_tail(tail(&url), OBJECT).await {
                    Ok(found) => {
                        range = found.get("ipCidrRange").and_then(Value::as_str).map(str::to_owned);
                        findings.push(subnetwork_finding(&check, &found, settings));
                    }
                    Err(error) => findings.push(failed(&check, error.failure("reading the subnetwork"))),
                }
            }
            None => {
                let detail = format!("the network has none in {}", settings.region);
                findings.push(finding("subnetwork", Verdict::Fail, detail, "make one there, or name it"));
            }
        }
        findings.extend(self.firewall(wanted, range).await);
        findings
    }

    async fn firewall(&self, wanted: &PreflightWanted, range: Option<String>) -> Vec<Finding> {
        let settings = self.settings();
        if !settings.owns_network() {
            let detail = format!("the network is another project's ({})", tail(&settings.network));
            let remedy = "have its owner open the ports that docs/contracts/preflight.md lists";
            return vec![finding("firewall", Verdict::Skip, detail, remedy)];
        }
        let rules = match self.client().list("global/firewalls", "", OBJECT).await {
            Ok(rules) => rules,
            Err(error) => return vec![failed("firewall", error.failure("listing the firewall rules"))],
        };
        let ours = |rule: &&Value| {
            let network = rule.get("network").and_then(Value::as_str).unwrap_or_default();
            tail(network) == tail(&settings.network)
        };
        let rules: Vec<Value> = rules.iter().filter(ours).cloned().collect();
        let cluster = cluster_of(wanted);
        let machines = Machines {
            tags: settings.tags(&cluster),
            service_account: settings.service_account.clone(),
            range,
        };
        let mut findings = Vec::new();
        for need in BETWEEN_MACHINES {
            findings.push(passage_finding(&need, &rules, &machines, Verdict::Fail));
        }
        let reach = Need {
            what: "Talos API for whoever runs the bootstrap",
            protocol: "tcp",
            ports: (50000, 50000),
            from: From::Somewhere,
        };
        if settings.external_address {
            findings.push(passage_finding(&reach, &rules, &machines, Verdict::Warn));
        }
        if let Some(desired) = self.desired(wanted) {
            findings.extend(check_findings(&desired, &rules, &machines));
        }
        if findings.iter().any(|finding| finding.verdict == Verdict::Fail) && self.has_policies().await {
            for finding in findings.iter_mut().filter(|finding| finding.verdict == Verdict::Fail) {
                finding.verdict = Verdict::Warn;
                finding
                    .detail
                    .push_str(", unless a firewall policy of the network does, which is not read here");
            }
        }
        findings
    }

    /// Whether policies stand before the network's own rules. What can't be asked is taken for no.
    async fn has_policies(&self) -> bool {
        let path = format!("{}/getEffectiveFirewalls", tail(&self.settings().network));
        let Ok(answer) = self.client().get_tail(&path, OBJECT).await else { return false };
        has_policy(&answer)
    }

    /// Whether somebody else has a name that we need.
    async fn names(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let mut taken = Vec::new();
        let names: BTreeSet<String> =
            wanted.machines.iter().map(|machine| google_name(&machine.name)).collect();
        let uid = wanted.cluster_uid.as_deref();
        let is_ours =
            |thing: &Thing| uid.is_some() && thing.mark.as_ref().map(|mark| mark.cluster_uid.as_str()) == uid;
        let instances = match self.0.list(Kind::Instance, "", OBJECT).await {
            Ok(instances) => instances,
            Err(failure) => return vec![failed("names", failure)],
        };
        let clashes = instances.iter().filter(|thing| names.contains(&thing.part.name) && !is_ours(thing));
        taken.extend(clashes.map(|thing| thing.part.words()));
        if let Some(desired) = self.desired(wanted) {
            for kind in desired.parts().iter().map(|part| part.kind).collect::<BTreeSet<_>>() {
                match self.0.list(kind, &format!("name eq {}.*", desired.base()), OBJECT).await {
                    Ok(found) => {
                        let clashes = strangers(&desired, &found).into_iter().filter(|thing| !is_ours(thing));
                        taken.extend(clashes.map(|thing| thing.part.words()));
                    }
                    Err(failure) => return vec![failed("names", failure)],
                }
            }
        }
        if taken.is_empty() {
            return vec![finding("names", Verdict::Pass, "nobody else has a name that is needed", "")];
        }
        let detail = format!("taken by what is not ours: {}", taken.join(", "));
        vec![finding("names", Verdict::Fail, detail, "rename or delete them, or choose another cluster name")]
    }
}

fn needed_permissions(settings: &Settings, desired: Option<&Desired>) -> Vec<&'static str> {
    let mut needed = FOR_MACHINES.to_vec();
    if settings.external_address {
        needed.push("compute.subnetworks.useExternalIp");
    }
    if settings.owns_network() {
        needed.extend(FOR_OWN_NETWORKS);
    }
    if settings.owns_images() {
        needed.extend(FOR_OWN_IMAGES);
    }
    if settings.service_account.is_some() {
        needed.push("iam.serviceAccounts.actAs");
    }
    if let Some(desired) = desired {
        needed.extend(FOR_LOAD_BALANCERS);
        needed.extend(FOR_LOOKS);
        needed.extend(if desired.pool { FOR_POOLS } else { FOR_SERVICES });
        if desired.internal {
            needed.extend(FOR_INTERNAL);
        }
        if !desired.firewalls().is_empty() {
            needed.extend(FOR_FIREWALLS);
        }
    }
    needed.sort_unstable();
    needed.dedup();
    needed
}

fn image_finding(check: &str, image: &Value) -> Finding {
    let text = |key: &str| image.get(key).and_then(Value::as_str);
    let name = text("name").unwrap_or("?");
    match text("status") {
        None | Some("READY") => {
            let deprecated =
                image.get("deprecated").and_then(|state| state.get("state")).and_then(Value::as_str);
            match deprecated {
                Some(state @ ("OBSOLETE" | "DELETED")) => {
                    finding(check, Verdict::Fail, format!("{name} is {state}"), "name a newer image")
                }
                _ => finding(check, Verdict::Pass, format!("made from {name}"), ""),
            }
        }
        Some(status) => finding(
            check,
            Verdict::Fail,
            format!("{name} is {status}"),
            "wait until it is ready, or bring it anew",
        ),
    }
}

fn subnetwork_finding(check: &str, found: &Value, settings: &Settings) -> Finding {
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
    if tail(text("network")) != tail(&settings.network) {
        let detail =
            format!("is in the network {}, not in {}", last(text("network")), last(&settings.network));
        return finding(check, Verdict::Fail, detail, "set network to the subnetwork's own");
    }
    finding(check, Verdict::Pass, format!("has {}", text("ipCidrRange")), "")
}

/// Whether an answer of `getEffectiveFirewalls` tells of a policy with a rule.
fn has_policy(answer: &Value) -> bool {
    let policies = answer.get("firewallPolicys").and_then(Value::as_array);
    let with_rules =
        |policy: &Value| policy.get("rules").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    policies.into_iter().flatten().any(with_rules)
}

/// The subnetwork of a network in a region.
fn in_region(network: &Value, region: &str) -> Option<String> {
    let all = network.get("subnetworks").and_then(Value::as_array)?;
    let inside = format!("/regions/{region}/");
    all.iter().filter_map(Value::as_str).find(|url| url.contains(&inside)).map(str::to_owned)
}

fn cluster_of(wanted: &PreflightWanted) -> String {
    let machine = wanted.machines.first().map(|machine| machine.owner.cluster.clone());
    machine.or(wanted.load_balancer.as_ref().map(|lb| lb.owner.cluster.clone())).unwrap_or_default()
}

fn passage_finding(need: &Need, rules: &[Value], machines: &Machines, otherwise: Verdict) -> Finding {
    let (first, last) = need.ports;
    let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
    let from = match &need.from {
        From::Machines => "between machines".to_owned(),
        From::Network(network) => format!("from {network}"),
        From::Somewhere => "from outside".to_owned(),
    };
    let check = format!("firewall {} {ports} {from}", need.protocol);
    let tag = machines.tags.first().map(String::as_str).unwrap_or_default();
    let remedy = format!(
        "add a rule that allows {} {ports} {from} to machines with the tag {tag} ({})",
        need.protocol, need.what
    );
    match passage(rules, need, machines) {
        Passage::Allowed(rule) => finding(&check, Verdict::Pass, format!("let in by {rule}"), ""),
        Passage::Denied(rule) => finding(&check, otherwise, format!("kept out by {rule}"), &remedy),
        Passage::Nothing => finding(&check, otherwise, "no rule lets it in", &remedy),
    }
}

/// Google's health checks reach the machines: by rules that come with the load balancer, unless something stronger forbids it.
fn check_findings(desired: &Desired, rules: &[Value], machines: &Machines) -> Vec<Finding> {
    let coming: Vec<Value> = desired.firewalls().into_iter().map(|(_, body, _)| body).collect();
    let mut all = rules.to_vec();
    all.extend(coming);
    let needs = desired.check_ports().into_iter().flat_map(|port| {
        CHECK_SOURCES.iter().map(move |range| Need {
            what: "health checks of the load balancer",
            protocol: "tcp",
            ports: (port, port),
            from: From::Network((*range).to_owned()),
        })
    });
    needs.map(|need| passage_finding(&need, &all, machines, Verdict::Fail)).collect()
}

fn finding(check: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Finding {
    Finding { check: check.to_owned(), verdict, detail: detail.into(), remedy: remedy.to_owned() }
}

fn failed(check: &str, failure: Failure) -> Finding {
    finding(check, Verdict::Fail, failure.message, &failure.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_count_when_they_have_rules() {
        assert!(!has_policy(&json!({"firewalls": [{"name": "a"}]})));
        assert!(!has_policy(&json!({"firewallPolicys": [{"type": "NETWORK", "rules": []}]})));
        assert!(has_policy(&json!({"firewallPolicys": [{"type": "HIERARCHY", "rules": [{"priority": 1}]}]})));
    }
}
