//! The balancers themselves.

use super::attributes;
use crate::aws::input::{list, number, only, page, tags, text, texts, time};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::state::{Balancer, BalancerState, Fate, Interface, Registration, State, Tags};
use crate::delays;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LONGEST_NAME: usize = 32;
/// What a request may say; the rest is refused by name.
const SIMULATED: [&str; 8] =
    ["IpAddressType", "Name", "Scheme", "SecurityGroups", "SubnetMappings", "Subnets", "Tags", "Type"];

/// What a balancer is to be, checked.
struct Plan {
    name: String,
    internal: bool,
    vpc: String,
    groups: Vec<String>,
    tags: Tags,
}

/// # Errors
/// Says which rule a name breaks.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    let why = if name.len() > LONGEST_NAME {
        format!("{what} name '{name}' cannot be longer than '{LONGEST_NAME}' characters")
    } else if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        format!(
            "The {what} name '{name}' can only contain characters that are alphanumeric characters and hyphens(-)"
        )
    } else if name.starts_with('-') || name.ends_with('-') {
        format!("The {what} name '{name}' cannot begin or end with a hyphen(-)")
    } else if name.starts_with("internal-") {
        format!("The {what} name '{name}' cannot begin with 'internal-'")
    } else {
        return Ok(());
    };
    Err(Refusal::new("ValidationError", why))
}

pub(super) fn no_balancer(arn: &str) -> Refusal {
    Refusal::new("LoadBalancerNotFound", format!("Load balancers '[{arn}]' not found"))
}

impl State {
    pub(super) fn new_arn(&mut self, kind: &str, name: &str) -> String {
        let number = self.draw();
        format!("arn:aws:elasticloadbalancing:{}:{}:{kind}/{name}/{number:016x}", self.region, self.account)
    }

    pub(in crate::aws) fn create_balancer(&mut self, input: &Value, now: u64) -> Outcome {
        only(Service::Elb, input, &SIMULATED)?;
        let name = text(input, "Name").unwrap_or_default().to_string();
        check_name("load balancer", &name)?;
        if text(input, "Type") != Some("network") {
            return Err(Service::Elb.not_simulated("a load balancer of another type than network"));
        }
        if text(input, "IpAddressType").is_some_and(|kind| kind != "ipv4") {
            return Err(Service::Elb.not_simulated("an address type other than ipv4"));
        }
        let internal = match text(input, "Scheme").unwrap_or("internet-facing") {
            "internet-facing" => false,
            "internal" => true,
            other => return Err(Refusal::new("InvalidScheme", format!("The scheme '{other}' is not valid"))),
        };
        let subnets = self.subnets_of(input)?;
        let vpc = self.check_subnets(&subnets)?;
        let mut groups = texts(input, "SecurityGroups");
        groups.sort();
        self.check_groups(&groups, &vpc)?;
        if let Some((arn, there)) = self.balancers.iter().find(|(_, balancer)| balancer.name == name) {
            let mut known = there.groups.clone();
            known.sort();
            let same =
                there.internal == internal && there.subnets.keys().eq(subnets.iter()) && known == groups;
            if same {
                return Ok(json!({ "LoadBalancers": [self.show_balancer(arn, there)] }));
            }
            let why =
                format!("A load balancer with the same name '{name}' exists, but with different settings");
            return Err(Refusal::new("DuplicateLoadBalancerName", why));
        }
        if self.balancers.len() >= usize::try_from(self.quotas.network_load_balancers).unwrap_or(usize::MAX) {
            let why = "The maximum number of load balancers has been reached";
            return Err(Refusal::new("TooManyLoadBalancers", why));
        }
        let given = tags(list(input, "Tags"));
        super::tags::check(&given)?;
        self.check_room(&subnets)?;
        let told = self.build(Plan { name, internal, vpc, groups, tags: given }, subnets, now)?;
        Ok(json!({ "LoadBalancers": [told] }))
    }

    /// Makes a balancer that nothing speaks against.
    fn build(&mut self, plan: Plan, subnets: Vec<String>, now: u64) -> Outcome {
        let Plan { name, internal, vpc, groups, tags } = plan;
        let arn = self.new_arn("loadbalancer/net", &name);
        let number = arn.rsplit('/').next().unwrap_or_default().to_string();
        let mut interfaces = BTreeMap::new();
        for subnet in subnets {
            let interface = self.attach(&arn, &subnet, internal, &groups)?;
            interfaces.insert(subnet, interface);
        }
        let due = match self.fate {
            Fate::NeverActive => None,
            _ => Some(now + self.scaled(delays::AWS_BALANCER_STARTS)),
        };
        let visible = now + self.scaled(delays::AWS_VISIBLE);
        let balancer = Balancer {
            dns: format!("{name}-{number}.elb.{}.amazonaws.com", self.region),
            name,
            internal,
            vpc,
            subnets: interfaces,
            groups,
            attributes: attributes::defaults(attributes::BALANCER),
            tags,
            state: BalancerState::Provisioning,
            due,
            visible,
            created: now,
        };
        let told = self.show_balancer(&arn, &balancer);
        self.balancers.insert(arn, balancer);
        Ok(told)
    }

    /// Subnets of a request, in the order of their ids.
    fn subnets_of(&self, input: &Value) -> Result<Vec<String>, Refusal> {
        let mut subnets = texts(input, "Subnets");
        for mapping in list(input, "SubnetMappings") {
            only(Service::Elb, mapping, &["SubnetId"])?;
            subnets.extend(text(mapping, "SubnetId").map(ToString::to_string));
        }
        subnets.sort();
        subnets.dedup();
        if subnets.is_empty() {
            return Err(Refusal::new("ValidationError", "At least one subnet must be specified"));
        }
        Ok(subnets)
    }

    /// The network of subnets that a balancer may have together.
    fn check_subnets(&self, subnets: &[String]) -> Result<String, Refusal> {
        let mut zones = Vec::new();
        let mut vpc = None;
        for id in subnets {
            let Some(subnet) = self.subnets.get(id) else {
                return Err(Refusal::new("SubnetNotFound", format!("The subnet ID '{id}' does not exist")));
            };
            if zones.contains(&subnet.zone) {
                let why =
                    "A load balancer cannot be attached to multiple subnets in the same Availability Zone";
                return Err(Refusal::new("InvalidConfigurationRequest", why));
            }
            if vpc.as_ref().is_some_and(|vpc| *vpc != subnet.vpc) {
                let why = "All subnets must belong to the same VPC";
                return Err(Refusal::new("InvalidConfigurationRequest", why));
            }
            zones.push(subnet.zone.clone());
            vpc = Some(subnet.vpc.clone());
        }
        Ok(vpc.unwrap_or_default())
    }

    fn check_room(&self, subnets: &[String]) -> Result<(), Refusal> {
        let full = |id: &&String| self.subnets.get(*id).is_some_and(|subnet| subnet.free() == 0);
        match subnets.iter().find(full) {
            Some(id) => {
                let why = format!(
                    "Not enough IP space available in {id}. The subnet is out of available addresses"
                );
                Err(Refusal::new("InvalidSubnet", why))
            }
            None => Ok(()),
        }
    }

    fn check_groups(&self, groups: &[String], vpc: &str) -> Result<(), Refusal> {
        let fits = |id: &&String| self.groups.get(*id).is_none_or(|group| group.vpc != vpc);
        match groups.iter().find(fits) {
            Some(id) => {
                let why = format!("The security group '{id}' does not exist in VPC '{vpc}'");
                Err(Refusal::new("InvalidSecurityGroup", why))
            }
            None => Ok(()),
        }
    }

    /// Gives a balancer a network interface in a subnet.
    fn attach(
        &mut self,
        arn: &str,
        subnet: &str,
        internal: bool,
        groups: &[String],
    ) -> Result<String, Refusal> {
        let taken = self.subnets.get_mut(subnet).map(|subnet| subnet.take(None));
        let Some(Ok(private)) = taken else {
            return Err(Refusal::new("InvalidSubnet", format!("{subnet} is out of available addresses")));
        };
        let public = (!internal).then(|| self.take_public());
        let description = arn.split(":loadbalancer/").nth(1).unwrap_or_default();
        let id = self.id("eni");
        let interface = Interface {
            subnet: subnet.to_string(),
            private,
            public,
            groups: groups.to_vec(),
            description: format!("ELB {description}"),
            due: None,
        };
        self.interfaces.insert(id.clone(), interface);
        Ok(id)
    }

    pub(super) fn show_balancer(&self, arn: &str, balancer: &Balancer) -> Value {
        let zones: Vec<Value> = balancer
            .subnets
            .keys()
            .map(|id| {
                let zone = self.subnets.get(id).map(|subnet| subnet.zone.clone());
                json!({ "SubnetId": id, "ZoneName": zone, "LoadBalancerAddresses": [] })
            })
            .collect();
        let (state, reason) = match balancer.state {
            BalancerState::Provisioning => ("provisioning", None),
            BalancerState::Active => ("active", None),
            BalancerState::Failed => ("failed", Some("The load balancer could not be set up")),
        };
        let mut told = json!({
            "LoadBalancerArn": arn, "LoadBalancerName": balancer.name, "DNSName": balancer.dns, "Type": "network",
            "CanonicalHostedZoneId": "Z3F0SRJ5LGBH90", "CreatedTime": time(balancer.created),
            "Scheme": if balancer.internal { "internal" } else { "internet-facing" }, "VpcId": balancer.vpc,
            "State": { "Code": state, "Reason": reason }, "AvailabilityZones": zones, "IpAddressType": "ipv4",
        });
        if !balancer.groups.is_empty() {
            told["SecurityGroups"] = json!(balancer.groups);
        }
        told
    }

    pub(in crate::aws) fn describe_balancers(&self, input: &Value, now: u64) -> Outcome {
        let (arns, names) = (texts(input, "LoadBalancerArns"), texts(input, "Names"));
        let seen = |balancer: &Balancer| balancer.visible <= now;
        for arn in &arns {
            self.balancers.get(arn).filter(|balancer| seen(balancer)).ok_or_else(|| no_balancer(arn))?;
        }
        for name in &names {
            let there = self.balancers.values().any(|balancer| balancer.name == *name && seen(balancer));
            if !there {
                return Err(no_balancer(name));
            }
        }
        let wanted = |(arn, balancer): &(&String, &Balancer)| {
            let all = arns.is_empty() && names.is_empty();
            seen(balancer) && (all || arns.contains(arn) || names.contains(&balancer.name))
        };
        let found = self.balancers.iter().filter(wanted).map(|(arn, b)| self.show_balancer(arn, b)).collect();
        Ok(paged("LoadBalancers", found, input))
    }

    pub(in crate::aws) fn delete_balancer(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "LoadBalancerArn").unwrap_or_default().to_string();
        // One that is gone already is no error.
        let Some(balancer) = self.balancers.get(&arn) else { return Ok(json!({})) };
        if attributes::is_on(&balancer.attributes, "deletion_protection.enabled") {
            let why =
                format!("Load balancer '{arn}' cannot be deleted because deletion protection is enabled");
            return Err(Refusal::new("OperationNotPermitted", why));
        }
        let interfaces: Vec<String> = balancer.subnets.values().cloned().collect();
        let listeners: Vec<String> =
            self.listeners.iter().filter(|(_, l)| l.balancer == arn).map(|(id, _)| id.clone()).collect();
        for listener in listeners {
            self.remove_listener(&listener, now);
        }
        let due = now + self.scaled(delays::AWS_INTERFACES_LINGER);
        for id in interfaces {
            if let Some(interface) = self.interfaces.get_mut(&id) {
                interface.due = Some(due);
            }
        }
        self.balancers.remove(&arn);
        Ok(json!({}))
    }

    pub(in crate::aws) fn balancer_attributes(&self, input: &Value) -> Outcome {
        let arn = text(input, "LoadBalancerArn").unwrap_or_default();
        let balancer = self.balancers.get(arn).ok_or_else(|| no_balancer(arn))?;
        Ok(json!({ "Attributes": attributes::show(&balancer.attributes) }))
    }

    pub(in crate::aws) fn modify_balancer_attributes(&mut self, input: &Value) -> Outcome {
        let arn = text(input, "LoadBalancerArn").unwrap_or_default();
        let balancer = self.balancers.get_mut(arn).ok_or_else(|| no_balancer(arn))?;
        balancer.attributes = attributes::change(attributes::BALANCER, &balancer.attributes, input)?;
        Ok(json!({ "Attributes": attributes::show(&balancer.attributes) }))
    }

    pub(in crate::aws) fn set_subnets(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "LoadBalancerArn").unwrap_or_default().to_string();
        let balancer = self.balancers.get(&arn).cloned().ok_or_else(|| no_balancer(&arn))?;
        let wanted = self.subnets_of(input)?;
        let vpc = self.check_subnets(&wanted)?;
        if vpc != balancer.vpc {
            let why = "The subnets must belong to the VPC of the load balancer";
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        let new: Vec<String> =
            wanted.iter().filter(|id| !balancer.subnets.contains_key(*id)).cloned().collect();
        self.check_room(&new)?;
        let mut subnets = balancer.subnets.clone();
        for id in new {
            let interface = self.attach(&arn, &id, balancer.internal, &balancer.groups)?;
            subnets.insert(id, interface);
        }
        let due = now + self.scaled(delays::AWS_INTERFACES_LINGER);
        for (_, interface) in subnets.iter().filter(|(id, _)| !wanted.contains(id)) {
            if let Some(interface) = self.interfaces.get_mut(interface) {
                interface.due = Some(due);
            }
        }
        subnets.retain(|id, _| wanted.contains(id));
        if let Some(balancer) = self.balancers.get_mut(&arn) {
            balancer.subnets = subnets;
        }
        let zones = self.balancers.get(&arn).map(|balancer| self.show_balancer(&arn, balancer));
        Ok(json!({ "AvailabilityZones": zones.map(|told| told["AvailabilityZones"].clone()) }))
    }

    pub(in crate::aws) fn set_groups(&mut self, input: &Value) -> Outcome {
        let arn = text(input, "LoadBalancerArn").unwrap_or_default().to_string();
        let balancer = self.balancers.get(&arn).ok_or_else(|| no_balancer(&arn))?;
        let groups = texts(input, "SecurityGroups");
        if balancer.groups.is_empty() || groups.is_empty() {
            let why = "Security groups of a network load balancer that was created without any cannot be set, and all of one's cannot be removed";
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        self.check_groups(&groups, &balancer.vpc)?;
        for interface in balancer.subnets.values() {
            if let Some(interface) = self.interfaces.get_mut(interface) {
                interface.groups.clone_from(&groups);
            }
        }
        if let Some(balancer) = self.balancers.get_mut(&arn) {
            balancer.groups.clone_from(&groups);
        }
        Ok(json!({ "SecurityGroupIds": groups }))
    }

    pub(in crate::aws) fn account_limits(&self, input: &Value) -> Outcome {
        let limits = [
            ("network-load-balancers", self.quotas.network_load_balancers),
            ("target-groups", self.quotas.target_groups),
            ("listeners-per-network-load-balancer", self.quotas.listeners_per_load_balancer),
            ("targets-per-network-load-balancer", 3000),
            ("targets-per-availability-zone-per-network-load-balancer", 500),
        ];
        let told = limits.iter().map(|(name, max)| json!({ "Name": name, "Max": max.to_string() })).collect();
        Ok(paged("Limits", told, input))
    }

    /// What becomes due by itself: balancers, interfaces that linger, targets that come and go.
    pub(in crate::aws) fn advance_balancers(&mut self, now: u64) {
        let is_due = |due: Option<u64>| due.is_some_and(|due| due <= now);
        for balancer in self.balancers.values_mut().filter(|balancer| is_due(balancer.due)) {
            balancer.due = None;
            balancer.state =
                if self.fate == Fate::Failed { BalancerState::Failed } else { BalancerState::Active };
        }
        let gone: Vec<String> =
            self.interfaces.iter().filter(|(_, i)| is_due(i.due)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            if let Some(interface) = self.interfaces.remove(&id) {
                self.release(&interface.subnet, interface.private);
                interface.public.iter().for_each(|public| {
                    self.public.remove(public);
                });
            }
        }
        for group in self.target_groups.values_mut() {
            group.targets.retain(|_, at| !matches!(at, Registration::Draining(due) if *due <= now));
            for at in group.targets.values_mut() {
                if matches!(at, Registration::Beginning(due) if *due <= now) {
                    *at = Registration::Through;
                }
            }
        }
    }
}

/// `{key: items, NextMarker: ...}` of this service.
pub(super) fn paged(key: &str, all: Vec<Value>, input: &Value) -> Value {
    let (items, next) = page(all, number(input, "PageSize").or(Some(400)), text(input, "Marker"));
    let mut told = json!({ key: items });
    if let Some(next) = next {
        told["NextMarker"] = next.into();
    }
    told
}
