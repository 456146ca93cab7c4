//! What EC2 and ELB say of the parts of a load balancer, read once.

use crate::aws::tags::{self, Tags};
use crate::aws::xml::Element;
use std::collections::{BTreeMap, BTreeSet};

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) vpc: String,
    pub(crate) zone: String,
    pub(crate) cidr: String,
    pub(crate) free: i64,
}

/// A rule that lets traffic in: a port from a network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    /// `tcp`, `udp`, `-1` for all.
    pub(crate) protocol: String,
    pub(crate) from: i32,
    pub(crate) to: i32,
    /// A network in CIDR notation, or the id of a security group.
    pub(crate) source: String,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) vpc: String,
    pub(crate) tags: Tags,
    pub(crate) rules: BTreeSet<Rule>,
}

/// A load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) dns: String,
    pub(crate) kind: String,
    pub(crate) internal: bool,
    pub(crate) vpc: String,
    pub(crate) state: String,
    pub(crate) why: String,
    pub(crate) subnets: BTreeSet<String>,
    pub(crate) groups: BTreeSet<String>,
}

/// A target group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TargetGroup {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: String,
    pub(crate) vpc: String,
    pub(crate) target_type: String,
    pub(crate) health: Health,
}

/// How targets are checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub(crate) protocol: String,
    /// A number, or `traffic-port`.
    pub(crate) port: String,
    pub(crate) path: Option<String>,
    pub(crate) interval: i32,
    pub(crate) timeout: i32,
    pub(crate) healthy: i32,
    pub(crate) unhealthy: i32,
}

/// A listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) arn: String,
    pub(crate) port: i32,
    pub(crate) protocol: String,
    /// The target group that it sends to, when it does nothing but that.
    pub(crate) forwards_to: Option<String>,
}

/// A target and how it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TargetHealth {
    pub(crate) id: String,
    pub(crate) port: i32,
    /// `initial`, `healthy`, `unhealthy`, `draining`, `unused`, `unavailable` ...
    pub(crate) state: String,
    pub(crate) reason: String,
}

/// Settings of a load balancer or target group by key.
pub(crate) type Attributes = BTreeMap<String, String>;

fn int(element: &Element, path: &str) -> i32 {
    element.number(path).and_then(|number| i32::try_from(number).ok()).unwrap_or(0)
}

impl Subnet {
    pub(crate) fn read(element: &Element) -> Self {
        Self {
            id: element.string("subnetId"),
            vpc: element.string("vpcId"),
            zone: element.string("availabilityZone"),
            cidr: element.string("cidrBlock"),
            free: element.number("availableIpAddressCount").unwrap_or(0),
        }
    }
}

impl Group {
    pub(crate) fn read(element: &Element) -> Self {
        let mut rules = BTreeSet::new();
        for permission in element.list("ipPermissions") {
            let protocol = permission.string("ipProtocol");
            let port = |path: &str, all: i32| {
                permission.number(path).and_then(|n| i32::try_from(n).ok()).unwrap_or(all)
            };
            let (from, to) = (port("fromPort", 0), port("toPort", 65535));
            let sources = permission
                .list("ipRanges")
                .filter_map(|range| range.text("cidrIp"))
                .chain(permission.list("ipv6Ranges").filter_map(|range| range.text("cidrIpv6")))
                .chain(permission.list("groups").filter_map(|group| group.text("groupId")))
                .chain(permission.list("prefixListIds").filter_map(|list| list.text("prefixListId")));
            for source in sources {
                rules.insert(Rule { protocol: protocol.clone(), from, to, source: source.to_owned() });
            }
        }
        Self {
            id: element.string("groupId"),
            name: element.string("groupName"),
            vpc: element.string("vpcId"),
            tags: tags::of_ec2(element),
            rules,
        }
    }
}

impl Balancer {
    pub(crate) fn read(element: &Element) -> Self {
        let zones = element.list("AvailabilityZones");
        Self {
            arn: element.string("LoadBalancerArn"),
            name: element.string("LoadBalancerName"),
            dns: element.string("DNSName"),
            kind: element.string("Type"),
            internal: element.text("Scheme") == Some("internal"),
            vpc: element.string("VpcId"),
            state: element.string("State/Code"),
            why: element.string("State/Reason"),
            subnets: zones.filter_map(|zone| zone.text("SubnetId")).map(str::to_owned).collect(),
            groups: element.list("SecurityGroups").map(|group| group.own_text().to_owned()).collect(),
        }
    }
}

impl TargetGroup {
    pub(crate) fn read(element: &Element) -> Self {
        Self {
            arn: element.string("TargetGroupArn"),
            name: element.string("TargetGroupName"),
            port: int(element, "Port"),
            protocol: element.string("Protocol"),
            vpc: element.string("VpcId"),
            target_type: element.string("TargetType"),
            health: Health {
                protocol: element.string("HealthCheckProtocol"),
                port: element.string("HealthCheckPort"),
                path: element.text("HealthCheckPath").map(str::to_owned),
                interval: int(element, "HealthCheckIntervalSeconds"),
                timeout: int(element, "HealthCheckTimeoutSeconds"),
                healthy: int(element, "HealthyThresholdCount"),
                unhealthy: int(element, "UnhealthyThresholdCount"),
            },
        }
    }
}

impl Listener {
    pub(crate) fn read(element: &Element) -> Self {
        let actions: Vec<&Element> = element.list("DefaultActions").collect();
        let forwards_to = match actions.as_slice() {
            [only] if only.text("Type") == Some("forward") => {
                let several = only.list("ForwardConfig/TargetGroups").count() > 1;
                let inner =
                    only.list("ForwardConfig/TargetGroups").find_map(|group| group.text("TargetGroupArn"));
                only.text("TargetGroupArn").or(inner).filter(|_| !several).map(str::to_owned)
            }
            _ => None,
        };
        Self {
            arn: element.string("ListenerArn"),
            port: int(element, "Port"),
            protocol: element.string("Protocol"),
            forwards_to,
        }
    }
}

impl TargetHealth {
    pub(crate) fn read(element: &Element) -> Self {
        Self {
            id: element.string("Target/Id"),
            port: int(element, "Target/Port"),
            state: element.string("TargetHealth/State"),
            reason: element.string("TargetHealth/Reason"),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state == "draining"
    }

    /// Shown, and not a member: a target that was asked for by name, or one whose draining is over.
    pub(crate) fn is_absent(&self) -> bool {
        self.state == "unused"
            && matches!(self.reason.as_str(), "Target.NotRegistered" | "Target.DeregistrationInProgress")
    }

    /// Takes part, or will as soon as it is healthy.
    pub(crate) fn counts(&self) -> bool {
        !self.is_draining() && self.state != "unused"
    }
}

/// `Attributes` of an answer.
pub(crate) fn attributes(answer: &Element, path: &str) -> Attributes {
    answer.list(path).map(|pair| (pair.string("Key"), pair.string("Value"))).collect()
}
