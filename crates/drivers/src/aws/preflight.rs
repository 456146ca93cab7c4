//! Looks whether a region has what a bootstrap needs. Reads only; `DryRun` calls of EC2 change nothing either.

mod network;

use super::balancer::desired::{Desired, names};
use super::client::{Params, Service, Wire, numbered, param};
use super::controller_manager::Way;
use super::driver::Driver;
use super::error::CallError;
use super::machine::AwsMachines;
use super::machine::model::Instance;
use super::machine::plan::{Observed, Plan, plan};
use super::settings::virtual_cpus;
use super::tags::{self, Tags};
use super::xml::Element;
use crate::failure::Failure;
use crate::seam::{Finding, LoadBalancerWanted, Preflight, PreflightWanted, Verdict};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Checks of one region.
pub(crate) struct AwsPreflight(pub(crate) Arc<Driver>);

const OBJECT: &str = "preflight";

#[async_trait]
impl Preflight for AwsPreflight {
    async fn check(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let credentials = self.credentials().await;
        let refused = credentials.verdict == Verdict::Fail;
        let mut findings = vec![credentials];
        if refused {
            // Without a login every other check would only say the same again.
            findings.push(finding("everything else", Verdict::Skip, "not looked at without an answer", ""));
            return findings;
        }
        let (images, types, names) =
            tokio::join!(self.images(wanted), self.instance_types(wanted), self.machine_names(wanted));
        findings.extend(images);
        findings.extend(types);
        findings.push(names);
        findings.extend(self.permissions(wanted).await);
        findings.extend(self.virtual_cpus(wanted).await);
        findings.extend(self.network(wanted).await);
        findings.push(self.cloud_controller());
        if let Some(balancer) = &wanted.load_balancer {
            findings.extend(self.balancer(balancer, wanted.cluster_uid.as_deref()).await);
        }
        findings
    }
}

impl AwsPreflight {
    async fn credentials(&self) -> Finding {
        let check = "credentials";
        match self.0.client.read(Service::Sts, "GetCallerIdentity", Vec::new(), OBJECT).await {
            Ok(answer) => {
                let part = |name: &str| answer.string(&format!("GetCallerIdentityResult/{name}"));
                let detail = format!("account {} took them as {}", part("Account"), part("Arn"));
                finding(check, Verdict::Pass, detail, "")
            }
            Err(error) => failed(check, error.failure("asking who the credentials are")),
        }
    }

    /// Whether the cluster's own cloud controller is going to get at AWS.
    fn cloud_controller(&self) -> Finding {
        let check = "credentials of the cloud controller manager";
        match Way::of(&self.0.settings, Some(&self.0.client.source)) {
            Way::Profile => finding(check, Verdict::Pass, "the machines' instance profile", ""),
            Way::Keys(..) => {
                finding(check, Verdict::Pass, "the keys of the bootstrap, in a Secret of the cluster", "")
            }
            Way::Nothing => finding(
                check,
                Verdict::Warn,
                "machines have no instance profile, and the keys of the bootstrap end: Services get no load balancers",
                "name an instanceProfile whose role may use EC2 and load balancers in the ProviderConfig",
            ),
        }
    }

    /// Every image that a machine asks for.
    async fn images(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut looked = BTreeSet::new();
        let machines = AwsMachines(Arc::clone(&self.0));
        for machine in &wanted.machines {
            let choice = match self.0.settings.image(machine) {
                Ok(choice) => choice,
                Err(failure) => {
                    if looked.insert(String::new()) {
                        findings.push(failed("image", failure));
                    }
                    continue;
                }
            };
            if !looked.insert(choice.shown().to_owned()) {
                continue;
            }
            let check = format!("image {}", choice.shown());
            findings.push(match machines.images(machine, OBJECT).await {
                Ok(found) => match found.first() {
                    Some(image) => finding(&check, Verdict::Pass, format!("{} ({})", image.id, image.name), ""),
                    None => finding(
                        &check,
                        Verdict::Fail,
                        format!("the region {} has no such image", self.0.settings.region),
                        "name an image that is there in this region, and the account that owns it (ami, amiOwner)",
                    ),
                },
                Err(failure) => failed(&check, failure),
            });
        }
        findings
    }

    /// Whether the zones of the subnets have the instance types.
    async fn instance_types(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let types: Result<BTreeSet<String>, Failure> =
            wanted.machines.iter().map(|machine| self.0.settings.size(machine)).collect();
        let types = match types {
            Ok(types) => types,
            Err(failure) => return vec![failed("instance types", failure)],
        };
        let zones: BTreeSet<String> = match self.0.subnets(&self.0.settings.subnets, OBJECT).await {
            Ok(subnets) => subnets.into_iter().map(|subnet| subnet.zone).collect(),
            // The check of the subnets says why.
            Err(_) => return Vec::new(),
        };
        if types.is_empty() || zones.is_empty() {
            return Vec::new();
        }
        let mut params =
            vec![param("LocationType", "availability-zone"), param("Filter.1.Name", "instance-type")];
        params.extend(numbered("Filter.1.Value", types.iter().map(String::as_str)));
        params.push(param("Filter.2.Name", "location"));
        params.extend(numbered("Filter.2.Value", zones.iter().map(String::as_str)));
        let answers = match self.0.pages("DescribeInstanceTypeOfferings", params, OBJECT).await {
            Ok(answers) => answers,
            Err(failure) => return vec![failed("instance types", failure)],
        };
        let offers = answers.iter().flat_map(|answer| answer.list("instanceTypeOfferingSet"));
        let offers: BTreeSet<(String, String)> =
            offers.map(|offer| (offer.string("instanceType"), offer.string("location"))).collect();
        let check = |kind: &String| {
            let lacking: Vec<&str> = zones
                .iter()
                .filter(|zone| !offers.contains(&(kind.clone(), (*zone).clone())))
                .map(String::as_str)
                .collect();
            let name = format!("instance type {kind}");
            match lacking.is_empty() {
                true => finding(&name, Verdict::Pass, "every zone of the subnets has it", ""),
                false => finding(
                    &name,
                    Verdict::Fail,
                    format!("{} don't have it", lacking.join(", ")),
                    "name another instanceType, or subnets in other zones, in the ProviderConfig",
                ),
            }
        };
        types.iter().map(check).collect()
    }

    /// Machines of somebody else with a name that is needed.
    async fn machine_names(&self, wanted: &PreflightWanted) -> Finding {
        let check = "machine names";
        if wanted.machines.is_empty() {
            return finding(check, Verdict::Pass, "none are needed", "");
        }
        let mut params = vec![param("Filter.1.Name", "tag:Name")];
        let names = wanted.machines.iter().map(|machine| machine.name.as_str());
        params.extend(numbered("Filter.1.Value", names));
        let answers = match self.0.pages("DescribeInstances", params, OBJECT).await {
            Ok(answers) => answers,
            Err(failure) => return failed(check, failure),
        };
        let there = answers.iter().flat_map(Instance::list).filter(Instance::is_there);
        let foreign: Vec<String> = there
            .filter(|instance| !is_clusters(&instance.tags, wanted.cluster_uid.as_deref()))
            .map(|instance| format!("{} ({})", instance.name(), instance.id))
            .collect();
        match foreign.is_empty() {
            true => finding(check, Verdict::Pass, "free, or the cluster's already", ""),
            false => finding(
                check,
                Verdict::Fail,
                format!("taken by instances that are not ours: {}", foreign.join(", ")),
                "rename or terminate them, or choose another cluster name",
            ),
        }
    }

    /// EC2 says whether a call would be allowed. ELB has no such thing: its reads are tried by the checks below.
    async fn permissions(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let Some(machine) = wanted.machines.first() else { return Vec::new() };
        let machines = AwsMachines(Arc::clone(&self.0));
        let Ok(images) = machines.images(machine, OBJECT).await else { return Vec::new() };
        let seen = Observed { named: Some(Vec::new()), images: Some(images), ..Observed::default() };
        let mut wires: Vec<(&str, Wire)> = Vec::new();
        if let Ok(Plan::Do(mutation)) = plan(machine, &self.0.settings, &seen) {
            wires.push(("launch machines", mutation.wire()));
        }
        if let (Some(balancer), Ok(subnets)) =
            (&wanted.load_balancer, self.0.subnets(&self.0.settings.balancer_subnets, OBJECT).await)
            && let Some(subnet) = subnets.first()
        {
            let (_, name) = names(balancer);
            let params = vec![
                param("GroupName", format!("{name}-preflight")),
                param("GroupDescription", "never made"),
                param("VpcId", &subnet.vpc),
            ];
            wires.push((
                "make security groups",
                Wire { service: Service::Ec2, action: "CreateSecurityGroup", params },
            ));
        }
        let mut findings = Vec::new();
        for (what, mut wire) in wires {
            wire.params.retain(|(key, _)| key != "ClientToken");
            wire.params.push(param("DryRun", "true"));
            findings.push(self.dry_run(what, wire).await);
        }
        findings
    }

    /// Whether the account may run so many virtual CPUs. Machines that run already, the cluster's too, are counted as used.
    async fn virtual_cpus(&self, wanted: &PreflightWanted) -> Option<Finding> {
        const STANDARD: &str = "L-1216C47A";
        let check = "quota of virtual CPUs";
        if wanted.machines.is_empty() {
            return None;
        }
        let mut params = vec![param("Filter.1.Name", "instance-state-name")];
        params.extend(numbered("Filter.1.Value", ["pending", "running"]));
        let answers = match self.0.pages("DescribeInstances", params, OBJECT).await {
            Ok(answers) => answers,
            Err(failure) => return Some(failed(check, failure)),
        };
        let running: Vec<&Element> = answers
            .iter()
            .flat_map(|answer| answer.list("reservationSet"))
            .flat_map(|reservation| reservation.list("instancesSet"))
            .collect();
        let used: u32 = running.iter().filter_map(|one| virtual_cpus(one.text("instanceType")?)).sum();
        let there: BTreeSet<String> = running
            .iter()
            .map(|one| Instance::read(one))
            .filter(|one| is_clusters(&one.tags, wanted.cluster_uid.as_deref()))
            .map(|one| one.name().to_owned())
            .collect();
        let missing = wanted.machines.iter().filter(|machine| !there.contains(&machine.name));
        let needed: u32 =
            missing.filter_map(|machine| virtual_cpus(&self.0.settings.size(machine).ok()?)).sum();
        let limit = match self.0.client.quota(STANDARD, OBJECT).await {
            Ok(limit) => limit,
            Err(error) => {
                let failure = error.failure("asking for the quota of virtual CPUs");
                let remedy = "allow servicequotas:GetServiceQuota, or look at the quota L-1216C47A yourself";
                return Some(finding(check, Verdict::Skip, failure.message, remedy));
            }
        };
        let detail = format!("{used} of {limit} are used, {needed} are needed");
        Some(match f64::from(used + needed) <= limit {
            true => finding(check, Verdict::Pass, detail, ""),
            false => finding(
                check,
                Verdict::Fail,
                detail,
                "end machines that are not used, or ask AWS to raise the quota",
            ),
        })
    }

    async fn dry_run(&self, what: &str, wire: Wire) -> Finding {
        let check = format!("permission to {what}");
        match self.0.client.read(wire.service, wire.action, wire.params, OBJECT).await {
            Err(CallError::Refused(refusal)) if refusal.is(&["DryRunOperation"]) => {
                finding(&check, Verdict::Pass, format!("{} would be allowed", wire.action), "")
            }
            Ok(_) => finding(&check, Verdict::Pass, format!("{} would be allowed", wire.action), ""),
            Err(error) => failed(&check, error.failure(wire.action)),
        }
    }

    /// The load balancer: room for it, its names, and settings that are unwise.
    async fn balancer(&self, wanted: &LoadBalancerWanted, cluster_uid: Option<&str>) -> Vec<Finding> {
        let desired = match Desired::new(wanted, &self.0.settings) {
            Ok(desired) => desired,
            Err(failure) => return vec![failed("load balancer", failure)],
        };
        let mut findings = match self.balancer_room(&desired, cluster_uid).await {
            Ok(findings) => findings,
            Err(failure) => vec![failed("load balancer", failure)],
        };
        if desired.preserve_client_ip {
            findings.push(finding(
                "client addresses",
                Verdict::Warn,
                "preserveClientIP is on: a node can't reach itself through the load balancer",
                "leave it off unless nothing on the nodes uses the endpoint",
            ));
        }
        for lacking in &desired.lacking {
            findings.push(finding(
                "load balancer settings",
                Verdict::Warn,
                lacking.clone(),
                "choose what AWS allows",
            ));
        }
        findings
    }

    async fn balancer_room(
        &self,
        desired: &Desired,
        cluster_uid: Option<&str>,
    ) -> Result<Vec<Finding>, Failure> {
        let limits = self.0.elb("DescribeAccountLimits", Params::new(), OBJECT).await?;
        let limits: BTreeMap<String, i64> = limits
            .list("DescribeAccountLimitsResult/Limits")
            .filter_map(|limit| Some((limit.string("Name"), limit.number("Max")?)))
            .collect();
        let mut used: Vec<(String, String, String)> = Vec::new();
        for answer in self.0.elb_pages("DescribeLoadBalancers", Params::new(), OBJECT).await? {
            let all = answer.list("DescribeLoadBalancersResult/LoadBalancers");
            used.extend(all.map(|one| {
                (one.string("Type"), one.string("LoadBalancerName"), one.string("LoadBalancerArn"))
            }));
        }
        for answer in self.0.elb_pages("DescribeTargetGroups", Params::new(), OBJECT).await? {
            let all = answer.list("DescribeTargetGroupsResult/TargetGroups");
            used.extend(all.map(|one| {
                ("group".to_owned(), one.string("TargetGroupName"), one.string("TargetGroupArn"))
            }));
        }
        let own: BTreeSet<&str> = std::iter::once(desired.name.as_str())
            .chain(desired.ports.iter().map(|port| port.name.as_str()))
            .collect();
        let same: Vec<String> = used
            .iter()
            .filter(|(_, name, _)| own.contains(name.as_str()))
            .map(|(_, _, arn)| arn.clone())
            .collect();
        let tags = if same.is_empty() { BTreeMap::new() } else { self.0.tags(&same, OBJECT).await? };
        let ours = |arn: &String| tags.get(arn).is_some_and(|tags| is_clusters(tags, cluster_uid));
        let mut taken: Vec<&str> = used
            .iter()
            .filter(|(_, name, arn)| own.contains(name.as_str()) && !ours(arn))
            .map(|(_, name, _)| name.as_str())
            .collect();
        let groups = self.0.security_groups(tags::filters(&[("group-name", &desired.name)]), OBJECT).await?;
        if groups.iter().any(|group| !is_clusters(&group.tags, cluster_uid)) {
            taken.push(&desired.name);
        }
        let needs_groups =
            desired.ports.len() - used.iter().filter(|(kind, _, arn)| kind == "group" && ours(arn)).count();
        let needs_balancer = usize::from(!used.iter().any(|(kind, _, arn)| kind == "network" && ours(arn)));
        let count = |wanted: &str| used.iter().filter(|(kind, _, _)| kind == wanted).count();
        Ok(vec![
            names_free(&taken),
            room("load balancers", limits.get("network-load-balancers"), count("network"), needs_balancer),
            room("target groups", limits.get("target-groups"), count("group"), needs_groups),
            room("listeners", limits.get("listeners-per-network-load-balancer"), 0, desired.ports.len()),
        ])
    }
}

fn names_free(taken: &[&str]) -> Finding {
    let check = "load balancer names";
    match taken.is_empty() {
        true => finding(check, Verdict::Pass, "free, or the cluster's already", ""),
        false => finding(
            check,
            Verdict::Fail,
            format!("taken by something that is not ours: {}", taken.join(", ")),
            "delete or rename it, or choose another cluster name",
        ),
    }
}

/// Whether a quota has room for what is missing.
fn room(what: &str, limit: Option<&i64>, used: usize, needed: usize) -> Finding {
    let check = format!("quota of {what}");
    let Some(limit) = limit else {
        return finding(&check, Verdict::Pass, "AWS names no limit", "");
    };
    let detail = format!("{used} of {limit} are used, {needed} are needed");
    let fits = i64::try_from(used + needed).is_ok_and(|sum| sum <= *limit);
    match fits {
        true => finding(&check, Verdict::Pass, detail, ""),
        false => finding(
            &check,
            Verdict::Fail,
            detail,
            "remove some that are not used, or ask AWS to raise the quota",
        ),
    }
}

/// Whether something is the cluster's already.
fn is_clusters(tags: &Tags, cluster_uid: Option<&str>) -> bool {
    cluster_uid.is_some() && tags.get(tags::CLUSTER_UID).map(String::as_str) == cluster_uid
}

pub(super) fn finding(check: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Finding {
    Finding { check: check.to_owned(), verdict, detail: detail.into(), remedy: remedy.to_owned() }
}

pub(super) fn failed(check: &str, failure: Failure) -> Finding {
    finding(check, Verdict::Fail, failure.message, &failure.remedy)
}
