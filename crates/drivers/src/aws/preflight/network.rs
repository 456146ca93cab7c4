//! Subnets with room, and security groups that let through what a cluster needs.

use super::{AwsPreflight, OBJECT, failed, finding};
use crate::aws::balancer::model::{Group, Rule, Subnet};
use crate::aws::client::numbered;
use crate::aws::tags;
use crate::cover::covers;
use crate::seam::{Finding, PreflightWanted, Verdict};
use butler_api::Cidr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Between the nodes: protocol, first and last port, and what for.
const BETWEEN: [(&str, i32, i32, &str); 6] = [
    ("tcp", 6443, 6443, "Kubernetes API"),
    ("tcp", 50000, 50001, "Talos API and trust"),
    ("tcp", 2379, 2380, "etcd"),
    ("tcp", 10250, 10250, "kubelet"),
    ("tcp", 4240, 4240, "Cilium health"),
    ("udp", 8472, 8472, "Cilium VXLAN"),
];

/// A load balancer needs so many free addresses in each of its subnets.
const FOR_BALANCER: i64 = 8;

/// Where traffic comes from.
struct From<'a> {
    groups: &'a [String],
    cidrs: Vec<Cidr>,
}

impl AwsPreflight {
    pub(super) async fn network(&self, wanted: &PreflightWanted) -> Vec<Finding> {
        let settings = &self.0.settings;
        let mut ids = settings.subnets.clone();
        ids.extend(settings.balancer_subnets.iter().filter(|id| !settings.subnets.contains(id)).cloned());
        if ids.is_empty() {
            let remedy = "name one subnet in each zone as subnetIDs in the ProviderConfig";
            let verdict = if wanted.load_balancer.is_some() { Verdict::Fail } else { Verdict::Warn };
            return vec![finding(
                "subnets",
                verdict,
                "none is named: machines go to the default subnet",
                remedy,
            )];
        }
        let subnets = match self.0.subnets_now(&ids, OBJECT).await {
            Ok(subnets) => subnets,
            Err(failure) => return vec![failed("subnets", failure)],
        };
        let mut findings = self.rooms(wanted, &subnets);
        findings.push(self.zones(wanted, &subnets));
        findings.extend(self.security(wanted, &subnets).await);
        findings
    }

    /// Free addresses in each subnet.
    fn rooms(&self, wanted: &PreflightWanted, subnets: &[Subnet]) -> Vec<Finding> {
        let settings = &self.0.settings;
        let mut needed: BTreeMap<&str, i64> = BTreeMap::new();
        for machine in &wanted.machines {
            if let Some(subnet) = settings.place(&machine.name) {
                *needed.entry(subnet).or_default() += 1;
            }
        }
        if wanted.load_balancer.is_some() {
            for subnet in &settings.balancer_subnets {
                *needed.entry(subnet).or_default() += FOR_BALANCER;
            }
        }
        let check = |subnet: &Subnet| {
            let needed = needed.get(subnet.id.as_str()).copied().unwrap_or(0);
            let detail = format!("{} free addresses in {}, {needed} are needed", subnet.free, subnet.zone);
            let name = format!("subnet {}", subnet.id);
            match subnet.free >= needed {
                true => finding(&name, Verdict::Pass, detail, ""),
                false => {
                    finding(&name, Verdict::Fail, detail, "free some addresses, or name a larger subnet")
                }
            }
        };
        subnets.iter().map(check).collect()
    }

    /// One VPC; and the load balancer in every zone that has machines.
    fn zones(&self, wanted: &PreflightWanted, subnets: &[Subnet]) -> Finding {
        let check = "zones";
        let settings = &self.0.settings;
        let vpcs: BTreeSet<&str> = subnets.iter().map(|subnet| subnet.vpc.as_str()).collect();
        let given = settings.vpc.as_deref();
        if vpcs.len() > 1 || given.is_some_and(|given| !vpcs.contains(given)) {
            let vpcs: Vec<&str> = vpcs.into_iter().collect();
            let detail = format!(
                "the subnets are in {}, and vpcID is {}",
                vpcs.join(", "),
                given.unwrap_or("not set")
            );
            return finding(
                check,
                Verdict::Fail,
                detail,
                "name subnets of one VPC, the one that vpcID names",
            );
        }
        let zones = |ids: &[String]| -> BTreeSet<&str> {
            subnets
                .iter()
                .filter(|subnet| ids.contains(&subnet.id))
                .map(|subnet| subnet.zone.as_str())
                .collect()
        };
        let (machines, balancer) = (zones(&settings.subnets), zones(&settings.balancer_subnets));
        let outside: Vec<&str> = machines.difference(&balancer).copied().collect();
        if wanted.load_balancer.is_some() && !outside.is_empty() {
            let detail = format!(
                "machines in {} get nothing from the load balancer, which is not there",
                outside.join(", ")
            );
            return finding(
                check,
                Verdict::Fail,
                detail,
                "name a subnet of every zone as loadBalancerSubnetIDs",
            );
        }
        if machines.len() < settings.subnets.len() {
            let detail = format!("{} subnets are in {} zones", settings.subnets.len(), machines.len());
            return finding(
                check,
                Verdict::Warn,
                detail,
                "name one subnet in each zone, so that machines are spread",
            );
        }
        let names: Vec<&str> = machines.into_iter().collect();
        finding(check, Verdict::Pass, format!("machines are spread over {}", names.join(", ")), "")
    }

    async fn security(&self, wanted: &PreflightWanted, subnets: &[Subnet]) -> Vec<Finding> {
        let settings = &self.0.settings;
        let params = match settings.groups.is_empty() {
            false => numbered("GroupId", settings.groups.iter().map(String::as_str)),
            true => {
                let vpc = subnets.first().map(|subnet| subnet.vpc.as_str()).unwrap_or_default();
                tags::filters(&[("group-name", "default"), ("vpc-id", vpc)])
            }
        };
        let groups: Vec<Group> = match self.0.security_groups(params, OBJECT).await {
            Ok(groups) => groups,
            Err(failure) => return vec![failed("security groups", failure)],
        };
        let rules: Vec<Rule> = groups.iter().flat_map(|group| group.rules.iter().cloned()).collect();
        let ids: Vec<String> = groups.iter().map(|group| group.id.clone()).collect();
        let cidrs = |wanted: &[String]| -> Vec<Cidr> {
            let ours = subnets.iter().filter(|subnet| wanted.contains(&subnet.id));
            ours.filter_map(|subnet| subnet.cidr.parse().ok()).collect()
        };
        let nodes = From { groups: &ids, cidrs: cidrs(&settings.subnets) };
        let mut findings = vec![between(&rules, &nodes)];
        if let Some(balancer) = &wanted.load_balancer {
            let spec = &balancer.spec;
            let mut ports = vec![spec.port, spec.effective_health_check_port()];
            ports.extend(spec.listeners.iter().map(butler_api::LoadBalancerListener::effective_target_port));
            // With its client's address dropped, everything that the load balancer sends comes from its own subnets.
            let from = From { groups: &[], cidrs: cidrs(&settings.balancer_subnets) };
            findings.push(from_balancer(&rules, &from, &ports));
        }
        findings
    }
}

/// Fails when something is closed; warns when it may be open to somebody whom only AWS knows.
fn verdict<'a>(closed: impl Iterator<Item = &'a Passage>) -> Verdict {
    closed
        .map(|passage| if *passage == Passage::Unknown { Verdict::Warn } else { Verdict::Fail })
        .max()
        .unwrap_or(Verdict::Pass)
}

fn between(rules: &[Rule], nodes: &From<'_>) -> Finding {
    let judged = BETWEEN.iter().map(|need| (need, passage(rules, need.0, need.1, need.2, nodes)));
    let judged: Vec<_> = judged.filter(|(_, passage)| *passage != Passage::Open).collect();
    let closed: Vec<String> = judged
        .iter()
        .map(|(need, _)| need)
        .map(|(protocol, first, last, what)| match first == last {
            true => format!("{protocol} {first} ({what})"),
            false => format!("{protocol} {first}-{last} ({what})"),
        })
        .collect();
    let check = "security groups between nodes";
    match closed.is_empty() {
        true => finding(check, Verdict::Pass, "all ports of a cluster are open between the nodes", ""),
        false => finding(
            check,
            verdict(judged.iter().map(|(_, passage)| passage)),
            format!("closed between the nodes: {}", closed.join(", ")),
            "let the machines' security group take these from itself",
        ),
    }
}

fn from_balancer(rules: &[Rule], from: &From<'_>, ports: &[i32]) -> Finding {
    let ports: BTreeSet<i32> = ports.iter().copied().collect();
    let judged = ports.iter().map(|port| (port, passage(rules, "tcp", *port, *port, from)));
    let judged: Vec<_> = judged.filter(|(_, passage)| *passage != Passage::Open).collect();
    let closed: Vec<String> = judged.iter().map(|(port, _)| port.to_string()).collect();
    let check = "security groups for the load balancer";
    match closed.is_empty() {
        true => finding(check, Verdict::Pass, "traffic and health checks of its subnets get through", ""),
        false => finding(
            check,
            verdict(judged.iter().map(|(_, passage)| passage)),
            format!("closed for the subnets of the load balancer: tcp {}", closed.join(", ")),
            "let the machines' security group take these from the VPC: health checks come from there too",
        ),
    }
}

/// How traffic fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passage {
    Open,
    Closed,
    /// A rule lets somebody in who is not looked up here: a prefix list, or another security group.
    Unknown,
}

/// Whether rules together let a range of ports in from everywhere that is named.
fn passage(rules: &[Rule], protocol: &str, first: i32, last: i32, from: &From<'_>) -> Passage {
    let all = (first..=last).map(|port| {
        let fits = |rule: &&Rule| {
            rule.protocol == "-1" || (rule.protocol == protocol && rule.from <= port && rule.to >= port)
        };
        let fits: Vec<&Rule> = rules.iter().filter(fits).collect();
        if fits.iter().any(|rule| from.groups.contains(&rule.source)) {
            return Passage::Open;
        }
        let sources: Vec<Cidr> = fits.iter().filter_map(|rule| rule.source.parse().ok()).collect();
        let covered = |cidr: &Cidr| is_covered(&sources, cidr);
        match !from.cidrs.is_empty() && from.cidrs.iter().all(covered) {
            true => Passage::Open,
            false if sources.len() < fits.len() => Passage::Unknown,
            false => Passage::Closed,
        }
    });
    let worst = |a: Passage, b: Passage| match (a, b) {
        (Passage::Closed, _) | (_, Passage::Closed) => Passage::Closed,
        (Passage::Unknown, _) | (_, Passage::Unknown) => Passage::Unknown,
        _ => Passage::Open,
    };
    all.fold(Passage::Open, worst)
}

/// Whether networks together hold all of another, however it is cut among them.
fn is_covered(sources: &[Cidr], cidr: &Cidr) -> bool {
    let range = |cidr: &Cidr| match (cidr.network(), cidr.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some((u32::from(first), u32::from(last))),
        _ => None,
    };
    let whole = |source: &Cidr| source.contains(cidr.network()) && source.contains(cidr.last());
    sources.iter().any(whole)
        || range(cidr).is_some_and(|wanted| covers(sources.iter().filter_map(range), wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(protocol: &str, from: i32, to: i32, source: &str) -> Rule {
        Rule { protocol: protocol.to_owned(), from, to, source: source.to_owned() }
    }

    #[test]
    fn rules_open_what_they_cover() {
        let ids = ["sg-1".to_owned()];
        let from = From {
            groups: &ids,
            cidrs: vec!["10.0.1.0/24".parse().unwrap(), "10.0.2.0/24".parse().unwrap()],
        };
        let etcd = |rules: &[Rule]| passage(rules, "tcp", 2379, 2380, &from);
        let open = |rules: &[Rule]| etcd(rules) == Passage::Open;
        assert!(open(&[rule("-1", 0, 65535, "sg-1")]));
        assert!(open(&[rule("tcp", 2000, 3000, "10.0.0.0/16")]));
        assert!(!open(&[rule("tcp", 2379, 2379, "10.0.0.0/16")]), "half of the range");
        assert!(!open(&[rule("udp", 2379, 2380, "10.0.0.0/16")]));
        assert!(!open(&[rule("tcp", 2379, 2380, "10.0.1.0/24")]), "one subnet of two");
        let ports = [rule("tcp", 2379, 2379, "sg-1"), rule("tcp", 2380, 2380, "10.0.0.0/16")];
        assert!(open(&ports), "each port by a rule of its own");
        let halves =
            ["10.0.1.0/25", "10.0.1.128/25", "10.0.2.0/24"].map(|half| rule("tcp", 2379, 2380, half));
        assert!(open(&halves) && !open(&halves[1..]), "a subnet by its halves");
    }

    /// Who is in a prefix list or in another group is not looked up: what may be open fails nobody.
    #[test]
    fn what_cannot_be_known_is_a_warning() {
        let ids = ["sg-1".to_owned()];
        let from = From { groups: &ids, cidrs: vec!["10.0.1.0/24".parse().unwrap()] };
        for source in ["pl-1", "sg-2"] {
            assert_eq!(
                passage(&[rule("tcp", 2379, 2380, source)], "tcp", 2379, 2380, &from),
                Passage::Unknown
            );
            let found = from_balancer(&[rule("tcp", 6443, 6443, source)], &from, &[6443]);
            assert_eq!(found.verdict, Verdict::Warn, "{source}");
        }
        let mixed = from_balancer(&[rule("tcp", 6443, 6443, "pl-1")], &from, &[6443, 50000]);
        assert_eq!(mixed.verdict, Verdict::Fail, "what is closed for sure is no warning");
    }

    /// The documented recipe leaves ports of the seed out: every one of them is named.
    #[test]
    fn every_port_between_nodes_is_named() {
        let ids = ["sg-1".to_owned()];
        let from = From { groups: &ids, cidrs: Vec::new() };
        let found = between(&[], &from);
        assert_eq!(found.verdict, Verdict::Fail);
        for port in ["6443", "50000-50001", "2379-2380", "10250", "4240", "udp 8472"] {
            assert!(found.detail.contains(port), "{port} in {}", found.detail);
        }
        let found = between(&[rule("-1", 0, 65535, "sg-1")], &from);
        assert_eq!(found.verdict, Verdict::Pass);
    }

    #[test]
    fn health_checks_come_from_the_balancers_subnets() {
        let from = From { groups: &[], cidrs: vec!["10.0.1.0/24".parse().unwrap()] };
        let closed = from_balancer(&[rule("tcp", 6443, 6443, "196.45.28.20/32")], &from, &[6443, 50000]);
        assert!(closed.verdict == Verdict::Fail && closed.detail.contains("6443, 50000"), "{closed:?}");
        let open = from_balancer(&[rule("tcp", 6443, 50000, "10.0.0.0/16")], &from, &[6443, 50000]);
        assert_eq!(open.verdict, Verdict::Pass);
    }
}
