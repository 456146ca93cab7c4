//! The changes that are made to a load balancer and its parts: as a call, and in words.

use super::desired::Port;
use super::model::{Attributes, Health, Rule};
use crate::aws::client::{Params, Service, Wire, numbered, param};
use crate::aws::tags::{self, TARGET, Tags};
use crate::change::PlannedChange;
use std::collections::BTreeSet;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// The part's name.
    pub(crate) name: String,
    pub(crate) verb: Verb,
}

/// Id and address of a target.
pub(crate) type Member = (String, String);

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    CreateGroup {
        vpc: String,
        tags: Tags,
    },
    Allow {
        group: String,
        rules: BTreeSet<Rule>,
    },
    /// Lets the cluster's own machines in.
    AllowNodes {
        group: String,
        rules: BTreeSet<Rule>,
    },
    Forbid {
        group: String,
        rules: BTreeSet<Rule>,
    },
    DeleteGroup {
        group: String,
    },
    CreateBalancer {
        internal: bool,
        subnets: BTreeSet<String>,
        group: String,
        tags: Tags,
    },
    SetSubnets {
        balancer: String,
        subnets: BTreeSet<String>,
    },
    SetGroups {
        balancer: String,
        group: String,
    },
    SetAttributes {
        balancer: String,
        attributes: Attributes,
    },
    DeleteBalancer {
        balancer: String,
    },
    CreateTargetGroup {
        port: Box<Port>,
        vpc: String,
        tags: Tags,
    },
    SetHealth {
        target_group: String,
        health: Health,
    },
    SetGroupAttributes {
        target_group: String,
        attributes: Attributes,
    },
    DeleteTargetGroup {
        target_group: String,
    },
    CreateListener {
        balancer: String,
        port: i32,
        target_group: String,
        tags: Tags,
    },
    PointListener {
        listener: String,
        port: i32,
        target_group: String,
    },
    DeleteListener {
        listener: String,
        port: i32,
    },
    /// Notes on the target groups that these targets are ours, before they are registered.
    Claim {
        target_groups: Vec<String>,
        members: Vec<Member>,
    },
    /// Takes the note off again, after they are gone.
    Disclaim {
        target_group: String,
        members: Vec<Member>,
    },
    Register {
        target_group: String,
        port: i32,
        members: Vec<Member>,
    },
    Deregister {
        target_group: String,
        port: i32,
        members: Vec<Member>,
    },
}

impl Mutation {
    /// Whether it tells one service of a security group that was made with another.
    pub(crate) fn names_group(&self) -> bool {
        matches!(self.verb, Verb::CreateBalancer { .. } | Verb::SetGroups { .. })
    }

    pub(crate) fn wire(&self) -> Wire {
        use Service::{Ec2, Elb};
        let (service, action, params) = match &self.verb {
            Verb::CreateGroup { vpc, tags } => (Ec2, "CreateSecurityGroup", new_group(&self.name, vpc, tags)),
            Verb::Allow { group, rules } | Verb::AllowNodes { group, rules } => {
                (Ec2, "AuthorizeSecurityGroupIngress", permissions(group, rules))
            }
            Verb::Forbid { group, rules } => (Ec2, "RevokeSecurityGroupIngress", permissions(group, rules)),
            Verb::DeleteGroup { group } => (Ec2, "DeleteSecurityGroup", vec![param("GroupId", group)]),
            Verb::CreateBalancer { internal, subnets, group, tags } => {
                (Elb, "CreateLoadBalancer", new_balancer(&self.name, *internal, subnets, group, tags))
            }
            Verb::SetSubnets { balancer, subnets } => {
                (Elb, "SetSubnets", with_list("LoadBalancerArn", balancer, "Subnets", subnets))
            }
            Verb::SetGroups { balancer, group } => {
                (Elb, "SetSecurityGroups", with_list("LoadBalancerArn", balancer, "SecurityGroups", [group]))
            }
            Verb::SetAttributes { balancer, attributes } => {
                let params = with_attributes("LoadBalancerArn", balancer, attributes);
                (Elb, "ModifyLoadBalancerAttributes", params)
            }
            Verb::DeleteBalancer { balancer } => {
                (Elb, "DeleteLoadBalancer", vec![param("LoadBalancerArn", balancer)])
            }
            Verb::CreateTargetGroup { port, vpc, tags } => {
                (Elb, "CreateTargetGroup", new_target_group(&self.name, port, vpc, tags))
            }
            Verb::SetHealth { target_group, health } => (
                Elb,
                "ModifyTargetGroup",
                after(param("TargetGroupArn", target_group), health_params(health)),
            ),
            Verb::SetGroupAttributes { target_group, attributes } => {
                let params = with_attributes("TargetGroupArn", target_group, attributes);
                (Elb, "ModifyTargetGroupAttributes", params)
            }
            Verb::DeleteTargetGroup { target_group } => {
                (Elb, "DeleteTargetGroup", vec![param("TargetGroupArn", target_group)])
            }
            Verb::CreateListener { balancer, port, target_group, tags } => {
                let mut params = after(param("LoadBalancerArn", balancer), forward(*port, target_group));
                params.extend(tags::params("Tags.member", tags));
                (Elb, "CreateListener", params)
            }
            Verb::PointListener { listener, port, target_group } => {
                (Elb, "ModifyListener", after(param("ListenerArn", listener), forward(*port, target_group)))
            }
            Verb::DeleteListener { listener, .. } => {
                (Elb, "DeleteListener", vec![param("ListenerArn", listener)])
            }
            Verb::Claim { target_groups, members } => (Elb, "AddTags", notes(target_groups, members)),
            Verb::Disclaim { target_group, members } => (Elb, "RemoveTags", no_notes(target_group, members)),
            Verb::Register { target_group, port, members } => {
                (Elb, "RegisterTargets", with_targets(target_group, *port, members))
            }
            Verb::Deregister { target_group, port, members } => {
                (Elb, "DeregisterTargets", with_targets(target_group, *port, members))
            }
        };
        Wire { service, action, params }
    }

    /// In words, the same in a dry run and in a real one.
    pub(crate) fn change(&self) -> PlannedChange {
        let (kind, detail) = match &self.verb {
            Verb::CreateGroup { .. } => {
                ("security-group", "create it, for the clients of the load balancer".to_owned())
            }
            Verb::Allow { rules, .. } => ("security-group", format!("let in {}", in_words(rules))),
            // Their addresses differ from run to run.
            Verb::AllowNodes { .. } => ("security-group", "let the cluster's machines in".to_owned()),
            Verb::Forbid { rules, .. } => ("security-group", format!("no longer let in {}", in_words(rules))),
            Verb::DeleteGroup { .. } => ("security-group", "delete it".to_owned()),
            Verb::CreateBalancer { internal, subnets, .. } => {
                let subnets: Vec<&str> = subnets.iter().map(String::as_str).collect();
                let words = format!("create it: network, {}, in {}", scheme(*internal), subnets.join(", "));
                ("load-balancer", words)
            }
            Verb::SetSubnets { subnets, .. } => {
                let subnets: Vec<&str> = subnets.iter().map(String::as_str).collect();
                ("load-balancer", format!("put it into {}", subnets.join(", ")))
            }
            Verb::SetGroups { .. } => ("load-balancer", "put it behind its security group again".to_owned()),
            Verb::SetAttributes { attributes, .. } => {
                ("load-balancer", format!("set {}", settings(attributes)))
            }
            Verb::DeleteBalancer { .. } => ("load-balancer", "delete it with its listeners".to_owned()),
            Verb::CreateTargetGroup { port, .. } => {
                let words =
                    format!("create it: TCP {}, checked by {}", port.target_port, check(&port.health));
                ("target-group", words)
            }
            Verb::SetHealth { health, .. } => ("target-group", format!("check by {}", check(health))),
            Verb::SetGroupAttributes { attributes, .. } => {
                ("target-group", format!("set {}", settings(attributes)))
            }
            Verb::DeleteTargetGroup { .. } => ("target-group", "delete it".to_owned()),
            Verb::CreateListener { port, .. } => ("listener", format!("create it: TCP {port}")),
            Verb::PointListener { port, .. } => {
                ("listener", format!("send TCP {port} to its target group again"))
            }
            Verb::DeleteListener { port, .. } => ("listener", format!("delete TCP {port}")),
            Verb::Claim { members, .. } => ("target-group", format!("note {} as ours", addresses(members))),
            Verb::Disclaim { members, .. } => {
                ("target-group", format!("take the note of {} off", addresses(members)))
            }
            Verb::Register { members, .. } => ("target-group", format!("register {}", addresses(members))),
            Verb::Deregister { members, .. } => {
                ("target-group", format!("drain and deregister {}", addresses(members)))
            }
        };
        PlannedChange::new(kind, &self.name, detail)
    }

    /// What is waited for afterwards.
    pub(crate) fn waiting_for(&self) -> String {
        let change = self.change();
        format!(
            "the change of {} {} to be seen ({})",
            change.kind.replace('-', " "),
            change.name,
            change.detail
        )
    }
}

/// Targets with their port.
fn with_targets(target_group: &str, port: i32, members: &[Member]) -> Params {
    let mut params = vec![param("TargetGroupArn", target_group)];
    for (index, (id, _)) in members.iter().enumerate() {
        let at = format!("Targets.member.{}", index + 1);
        params.push(param(format!("{at}.Id"), id));
        params.push(param(format!("{at}.Port"), port.to_string()));
    }
    params
}

fn with_attributes(key: &str, arn: &str, attributes: &Attributes) -> Params {
    let mut params = vec![param(key, arn)];
    params.extend(tags::params("Attributes.member", attributes));
    params
}

/// One parameter, and others behind it.
fn after(first: (String, String), rest: Params) -> Params {
    std::iter::once(first).chain(rest).collect()
}

fn with_list<'a>(key: &str, arn: &str, list: &str, values: impl IntoIterator<Item = &'a String>) -> Params {
    let values = values.into_iter().map(String::as_str);
    after(param(key, arn), numbered(&format!("{list}.member"), values))
}

fn new_group(name: &str, vpc: &str, tags: &Tags) -> Params {
    let mut params = vec![
        param("GroupName", name),
        param("GroupDescription", "Clients of a control plane, made by Butler"),
        param("VpcId", vpc),
    ];
    params.extend(tags::specification(1, "security-group", tags));
    params
}

fn new_balancer(name: &str, internal: bool, subnets: &BTreeSet<String>, group: &str, tags: &Tags) -> Params {
    let mut params = vec![
        param("Name", name),
        param("Type", "network"),
        param("Scheme", scheme(internal)),
        param("IpAddressType", "ipv4"),
    ];
    params.extend(numbered("Subnets.member", subnets.iter().map(String::as_str)));
    params.extend(numbered("SecurityGroups.member", [group]));
    params.extend(tags::params("Tags.member", tags));
    params
}

fn scheme(internal: bool) -> &'static str {
    if internal { "internal" } else { "internet-facing" }
}

fn new_target_group(name: &str, port: &Port, vpc: &str, tags: &Tags) -> Params {
    let mut params = vec![
        param("Name", name),
        param("Protocol", "TCP"),
        param("Port", port.target_port.to_string()),
        param("VpcId", vpc),
        param("TargetType", "instance"),
    ];
    params.extend(health_params(&port.health));
    params.extend(tags::params("Tags.member", tags));
    params
}

fn notes(target_groups: &[String], members: &[Member]) -> Params {
    let mut params = numbered("ResourceArns.member", target_groups.iter().map(String::as_str));
    let tags: Tags = members.iter().map(|(id, ip)| (format!("{TARGET}{id}"), ip.clone())).collect();
    params.extend(tags::params("Tags.member", &tags));
    params
}

fn no_notes(target_group: &str, members: &[Member]) -> Params {
    let mut params = numbered("ResourceArns.member", [target_group]);
    let keys: Vec<String> = members.iter().map(|(id, _)| format!("{TARGET}{id}")).collect();
    params.extend(numbered("TagKeys.member", keys.iter().map(String::as_str)));
    params
}

fn forward(port: i32, target_group: &str) -> Params {
    vec![
        param("Protocol", "TCP"),
        param("Port", port.to_string()),
        param("DefaultActions.member.1.Type", "forward"),
        param("DefaultActions.member.1.TargetGroupArn", target_group),
    ]
}

fn health_params(health: &Health) -> Params {
    let mut params = vec![
        param("HealthCheckProtocol", &health.protocol),
        param("HealthCheckPort", &health.port),
        param("HealthCheckIntervalSeconds", health.interval.to_string()),
        param("HealthCheckTimeoutSeconds", health.timeout.to_string()),
        param("HealthyThresholdCount", health.healthy.to_string()),
        param("UnhealthyThresholdCount", health.unhealthy.to_string()),
    ];
    if let Some(path) = &health.path {
        params.push(param("HealthCheckPath", path));
        params.push(param("Matcher.HttpCode", "200"));
    }
    params
}

/// Rules, those of one port together.
fn permissions(group: &str, rules: &BTreeSet<Rule>) -> Params {
    let mut params = vec![param("GroupId", group)];
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("IpPermissions.{}", index + 1);
        params.push(param(format!("{at}.IpProtocol"), &rule.protocol));
        if rule.protocol != "-1" {
            params.push(param(format!("{at}.FromPort"), rule.from.to_string()));
            params.push(param(format!("{at}.ToPort"), rule.to.to_string()));
        }
        let key = match &rule.source {
            source if source.starts_with("sg-") => "Groups.1.GroupId",
            source if source.starts_with("pl-") => "PrefixListIds.1.PrefixListId",
            source if source.contains(':') => "Ipv6Ranges.1.CidrIpv6",
            _ => "IpRanges.1.CidrIp",
        };
        params.push(param(format!("{at}.{key}"), &rule.source));
    }
    params
}

fn in_words(rules: &BTreeSet<Rule>) -> String {
    let rule = |rule: &Rule| match (rule.protocol.as_str(), rule.from == rule.to) {
        ("-1", _) => format!("everything from {}", rule.source),
        (protocol, true) => format!("{protocol} {} from {}", rule.from, rule.source),
        (protocol, false) => format!("{protocol} {}-{} from {}", rule.from, rule.to, rule.source),
    };
    rules.iter().map(rule).collect::<Vec<_>>().join(", ")
}

fn settings(attributes: &Attributes) -> String {
    attributes.iter().map(|(key, value)| format!("{key} to {value}")).collect::<Vec<_>>().join(", ")
}

fn check(health: &Health) -> String {
    let path = health.path.as_deref().unwrap_or_default();
    format!(
        "{} on port {}{path} every {} s, {} s each, in after {}, out after {}",
        health.protocol, health.port, health.interval, health.timeout, health.healthy, health.unhealthy
    )
}

fn addresses(members: &[Member]) -> String {
    members.iter().map(|(_, ip)| ip.as_str()).collect::<Vec<_>>().join(", ")
}
