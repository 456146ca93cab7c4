//! What a LoadBalancerRequest means on AWS. Pure.

use super::model::{Attributes, Health, Rule, Subnet};
use crate::aws::machine::instance_id;
use crate::aws::settings::{Settings, stem};
use crate::aws::tags::{self, Tags};
use crate::failure::{Class, Failure};
use crate::seam::{LoadBalancerWanted, Owner};
use butler_api::{Cidr, HealthCheckProtocol, LoadBalancerOptions, MachineRole};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A load balancer, in AWS' terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    pub(crate) owner: Owner,
    /// What all names begin with.
    pub(crate) stem: String,
    /// Name of load balancer and security group.
    pub(crate) name: String,
    pub(crate) internal: bool,
    /// As they were given; of each zone the first one is used.
    pub(crate) subnets: Vec<String>,
    pub(crate) cross_zone: bool,
    /// `None`: nobody has said anything, so what is there stays.
    pub(crate) protection: Option<bool>,
    pub(crate) cidrs: BTreeSet<String>,
    /// When not everybody may come in: the cluster's own machines, which use the endpoint too.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) preserve_client_ip: bool,
    pub(crate) drain_seconds: i32,
    pub(crate) ports: Vec<Port>,
    pub(crate) lacking: Vec<String>,
}

/// Where the cluster's own machines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// The port that they use: that of the Kubernetes API.
    pub(crate) port: i32,
    pub(crate) subnets: Vec<String>,
    /// An internet-facing load balancer sees them with their public addresses.
    pub(crate) public: bool,
    /// Or with that of the VPC's gateway, when they have none.
    pub(crate) by_gateway: bool,
}

/// One listener with its target group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) port: i32,
    pub(crate) target_port: i32,
    /// Name of the target group.
    pub(crate) name: String,
    pub(crate) health: Health,
    pub(crate) targets: Vec<Target>,
}

/// A machine behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ip: String,
    /// Looked up by address when it is not given.
    pub(crate) id: Option<String>,
}

/// What AWS allows for health checks: seconds between two, seconds until one has failed, checks in a row.
const INTERVAL: (i32, i32) = (5, 300);
const TIMEOUT: (i32, i32) = (2, 120);
const THRESHOLD: (i32, i32) = (2, 10);

impl Desired {
    pub(crate) fn new(wanted: &LoadBalancerWanted, settings: &Settings) -> Result<Self, Failure> {
        if settings.balancer_subnets.is_empty() {
            return Err(Failure::new(
                Class::InvalidConfig,
                "SubnetsMissing",
                format!("load balancer {}: the ProviderConfig names no subnets", wanted.name),
                "name one subnet in each zone as subnetIDs in the ProviderConfig",
            ));
        }
        let spec = &wanted.spec;
        let given = spec.options.clone();
        let options = given.clone().unwrap_or_default();
        let mut lacking = Vec::new();
        if options.implementation.is_some() {
            lacking.push("options.implementation: AWS has one implementation only".to_owned());
        }
        let (stem, name) = names(wanted);
        let mut ports = vec![Port {
            port: spec.port,
            target_port: spec.port,
            name: group_name(&stem, spec.port, spec.port),
            health: api_check(&options, spec.effective_health_check_port(), &mut lacking),
            targets: targets(wanted, MachineRole::ControlPlane),
        }];
        ports.extend(spec.listeners.iter().map(|listener| {
            let target_port = listener.effective_target_port();
            Port {
                port: listener.port,
                target_port,
                name: group_name(&stem, listener.port, target_port),
                // What is behind the further ports speaks no HTTP that a check could ask.
                health: Health {
                    protocol: "TCP".to_owned(),
                    path: None,
                    ..timing(&options, target_port, &mut Vec::new())
                },
                targets: targets(wanted, listener.role),
            }
        }));
        ports.sort_by_key(|port| port.port);
        Ok(Self {
            owner: wanted.owner.clone(),
            stem,
            name,
            internal: options.internal,
            subnets: settings.balancer_subnets.clone(),
            cross_zone: options.cross_zone,
            protection: given.map(|options| options.deletion_protection),
            cidrs: cidrs(&options)?,
            nodes: (!options.allowed_cidrs.is_empty()).then(|| Nodes {
                port: spec.port,
                subnets: settings.subnets.clone(),
                public: !options.internal,
                by_gateway: !options.internal && !settings.public_address,
            }),
            preserve_client_ip: options.preserve_client_ip,
            drain_seconds: options.deregistration_delay_seconds,
            ports,
            lacking,
        })
    }

    pub(crate) fn tags(&self, name: &str) -> Tags {
        tags::ours(&self.owner, name, &BTreeMap::new())
    }

    /// The first subnet of each zone: a load balancer takes no more than one.
    pub(crate) fn one_per_zone(&self, seen: &[Subnet]) -> BTreeSet<String> {
        let mut zones = BTreeSet::new();
        let known = self.subnets.iter().filter_map(|id| seen.iter().find(|subnet| subnet.id == *id));
        known.filter(|subnet| zones.insert(subnet.zone.clone())).map(|subnet| subnet.id.clone()).collect()
    }

    /// The cluster's machines may come in to the Kubernetes API, from where they were seen.
    pub(crate) fn node_rules(&self, seen: &BTreeSet<String>) -> BTreeSet<Rule> {
        self.nodes.iter().flat_map(|nodes| seen.iter().map(|source| rule(nodes.port, source))).collect()
    }

    /// Who may come in: the clients' networks, on every listener's port.
    pub(crate) fn rules(&self) -> BTreeSet<Rule> {
        self.ports.iter().flat_map(|port| self.cidrs.iter().map(move |cidr| rule(port.port, cidr))).collect()
    }

    /// Settings of the load balancer itself.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut all =
            Attributes::from([("load_balancing.cross_zone.enabled".to_owned(), self.cross_zone.to_string())]);
        all.extend(self.protection.map(|on| (PROTECTION.to_owned(), on.to_string())));
        all
    }

    /// Settings of every target group.
    pub(crate) fn group_attributes(&self) -> Attributes {
        Attributes::from([
            ("preserve_client_ip.enabled".to_owned(), self.preserve_client_ip.to_string()),
            ("deregistration_delay.timeout_seconds".to_owned(), self.drain_seconds.to_string()),
            // Watches live for hours: without this, a machine that has left keeps them until it dies.
            ("deregistration_delay.connection_termination.enabled".to_owned(), "true".to_owned()),
        ])
    }
}

fn rule(port: i32, source: &str) -> Rule {
    Rule { protocol: "tcp".to_owned(), from: port, to: port, source: source.to_owned() }
}

/// The key of deletion protection.
pub(crate) const PROTECTION: &str = "deletion_protection.enabled";

/// The stem of all names, and the load balancer's name.
pub(crate) fn names(wanted: &LoadBalancerWanted) -> (String, String) {
    let cluster =
        Some(&wanted.spec.cluster_name).filter(|name| !name.is_empty()).unwrap_or(&wanted.owner.cluster);
    let stem = stem(cluster);
    let name = format!("{stem}-lb");
    (stem, name)
}

/// Port and protocol of a target group can't be changed: both ports are in its name, so that another port is another group.
fn group_name(stem: &str, port: i32, target_port: i32) -> String {
    format!("{stem}-{port}-{target_port}")
}

fn targets(wanted: &LoadBalancerWanted, role: MachineRole) -> Vec<Target> {
    let all = wanted.spec.targets.iter().filter(|target| target.role.unwrap_or_default() == role);
    let id = |text: &String| Some(instance_id(text).to_owned()).filter(|id| !id.is_empty());
    all.map(|target| Target { ip: target.ip.clone(), id: target.instance_id.as_ref().and_then(id) }).collect()
}

/// The check of the first port, as it was asked for.
fn api_check(options: &LoadBalancerOptions, port: i32, lacking: &mut Vec<String>) -> Health {
    let check = &options.health_check;
    let path = || Some(check.path.clone().unwrap_or_else(|| "/readyz".to_owned()));
    let (protocol, path) = match check.protocol {
        HealthCheckProtocol::Tcp => ("TCP", None),
        HealthCheckProtocol::Http => ("HTTP", path()),
        HealthCheckProtocol::Https => ("HTTPS", path()),
    };
    Health { protocol: protocol.to_owned(), path, ..timing(options, port, lacking) }
}

/// Times and counts, brought into what AWS allows.
fn timing(options: &LoadBalancerOptions, port: i32, lacking: &mut Vec<String>) -> Health {
    let check = &options.health_check;
    let mut within = |what: &str, asked: i32, (low, high): (i32, i32)| {
        let used = asked.clamp(low, high);
        if used != asked {
            lacking.push(format!("healthCheck.{what} {asked}: AWS allows {low} to {high}; {used} is used"));
        }
        used
    };
    let interval = within("interval", check.interval, INTERVAL);
    // A check that takes as long as the time between two is refused.
    let timeout = within("timeout", check.timeout, (TIMEOUT.0, TIMEOUT.1.min(interval - 1)));
    Health {
        protocol: String::new(),
        port: port.to_string(),
        path: None,
        interval,
        timeout,
        healthy: within("healthy", check.healthy, THRESHOLD),
        unhealthy: within("unhealthy", check.unhealthy, THRESHOLD),
    }
}

/// Networks as EC2 writes them: without host bits. Everyone, when none is named.
fn cidrs(options: &LoadBalancerOptions) -> Result<BTreeSet<String>, Failure> {
    if options.allowed_cidrs.is_empty() {
        return Ok(BTreeSet::from(["0.0.0.0/0".to_owned()]));
    }
    let parsed = options.allowed_cidrs.iter().map(|text| {
        let cidr: Cidr = text.parse().map_err(|_| {
            Failure::new(
                Class::InvalidConfig,
                "CidrInvalid",
                format!("allowedCIDRs: {text} is not a network"),
                "write it as 196.45.28.20/32",
            )
        })?;
        let first: IpAddr = cidr.network();
        Ok(format!("{first}/{}", cidr.prefix()))
    });
    parsed.collect()
}
