//! Target groups: whom listeners forward to, and how they are checked.

use super::attributes;
use super::balancers::{check_name, no_balancer, paged};
use crate::aws::input::{flag, list, number, only, tags, text, texts};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::state::{HealthCheck, State, TargetGroup};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a request may say; the rest is refused by name.
const SIMULATED: [&str; 15] = [
    "HealthCheckEnabled",
    "HealthCheckIntervalSeconds",
    "HealthCheckPath",
    "HealthCheckPort",
    "HealthCheckProtocol",
    "HealthCheckTimeoutSeconds",
    "HealthyThresholdCount",
    "Matcher",
    "Name",
    "Port",
    "Protocol",
    "Tags",
    "TargetType",
    "UnhealthyThresholdCount",
    "VpcId",
];

pub(super) fn no_group(arn: &str) -> Refusal {
    Refusal::new("TargetGroupNotFound", format!("Target groups '[{arn}]' not found"))
}

impl HealthCheck {
    /// What a request wants of a check, where it says nothing what was before.
    fn change(&self, input: &Value) -> Result<Self, Refusal> {
        let said = |key: &str| text(input, key).map(ToString::to_string);
        let protocol = said("HealthCheckProtocol").unwrap_or_else(|| self.protocol.clone());
        let by_http = matches!(protocol.as_str(), "HTTP" | "HTTPS");
        if !by_http && protocol != "TCP" {
            let why = format!("Health check protocol '{protocol}' is not supported");
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        if !by_http && (said("HealthCheckPath").is_some() || input.get("Matcher").is_some()) {
            let why = "Health check path and matcher are not supported for health checks with protocol TCP";
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        if flag(input, "HealthCheckEnabled") == Some(false) {
            let why = "Health checks cannot be disabled for this target type";
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        let codes = input.get("Matcher").and_then(|matcher| text(matcher, "HttpCode"));
        let check = Self {
            port: said("HealthCheckPort").unwrap_or_else(|| self.port.clone()),
            path: by_http
                .then(|| said("HealthCheckPath").or(self.path.clone()).unwrap_or_else(|| "/".to_string())),
            interval: number(input, "HealthCheckIntervalSeconds").unwrap_or(self.interval),
            timeout: number(input, "HealthCheckTimeoutSeconds").unwrap_or(self.timeout),
            healthy: number(input, "HealthyThresholdCount").unwrap_or(self.healthy),
            unhealthy: number(input, "UnhealthyThresholdCount").unwrap_or(self.unhealthy),
            codes: by_http.then(|| {
                codes.map(ToString::to_string).or(self.codes.clone()).unwrap_or_else(|| "200-399".to_string())
            }),
            protocol,
        };
        let port = check.port == "traffic-port" || check.port.parse::<u16>().is_ok_and(|port| port > 0);
        if !port {
            let why = format!("Health check port '{}' is not valid", check.port);
            return Err(Refusal::new("ValidationError", why));
        }
        if !(5..=300).contains(&check.interval)
            || !(2..=120).contains(&check.timeout)
            || check.timeout > check.interval
        {
            let why = "Health check interval must be greater than or equal to the timeout, 5 to 300 seconds, and the timeout 2 to 120";
            return Err(Refusal::new("ValidationError", why));
        }
        if !(2..=10).contains(&check.healthy) || !(2..=10).contains(&check.unhealthy) {
            return Err(Refusal::new("ValidationError", "Thresholds must be between 2 and 10"));
        }
        Ok(check)
    }
}

/// What the vendor takes when a request says nothing.
fn usual_check() -> HealthCheck {
    HealthCheck {
        protocol: "TCP".to_string(),
        port: "traffic-port".to_string(),
        path: None,
        interval: 30,
        timeout: 10,
        healthy: 5,
        unhealthy: 2,
        codes: None,
    }
}

impl State {
    pub(in crate::aws) fn create_target_group(&mut self, input: &Value) -> Outcome {
        let name = text(input, "Name").unwrap_or_default().to_string();
        check_name("target group", &name)?;
        only(Service::Elb, input, &SIMULATED)?;
        let protocol = text(input, "Protocol").unwrap_or_default().to_string();
        if protocol != "TCP" {
            return Err(Service::Elb.not_simulated("a target group of another protocol than TCP"));
        }
        let by_instance = match text(input, "TargetType").unwrap_or("instance") {
            "instance" => true,
            "ip" => false,
            other => return Err(Service::Elb.not_simulated(&format!("target type {other}"))),
        };
        let Some(port) = number::<u16>(input, "Port") else {
            return Err(Refusal::new("ValidationError", "A port must be specified"));
        };
        let Some(vpc) = text(input, "VpcId") else {
            return Err(Refusal::new("ValidationError", "A VPC ID must be specified"));
        };
        if !self.vpcs.contains_key(vpc) {
            return Err(Refusal::new("ValidationError", format!("The VPC ID '{vpc}' is not found")));
        }
        let check = usual_check().change(input)?;
        if let Some((arn, there)) = self.target_groups.iter().find(|(_, group)| group.name == name) {
            let same = (there.port, &there.vpc[..], there.by_instance, &there.check)
                == (port, vpc, by_instance, &check);
            if same {
                return Ok(json!({ "TargetGroups": [self.show_target_group(arn, there)] }));
            }
            let why =
                format!("A target group with the same name '{name}' exists, but with different settings");
            return Err(Refusal::new("DuplicateTargetGroupName", why));
        }
        if self.target_groups.len() >= usize::try_from(self.quotas.target_groups).unwrap_or(usize::MAX) {
            return Err(Refusal::new(
                "TooManyTargetGroups",
                "The maximum number of target groups has been reached",
            ));
        }
        let given = tags(list(input, "Tags"));
        super::tags::check(&given)?;
        let mut attributes = attributes::defaults(attributes::TARGET_GROUP);
        attributes.insert("preserve_client_ip.enabled".to_string(), by_instance.to_string());
        let group = TargetGroup {
            protocol,
            port,
            vpc: vpc.to_string(),
            by_instance,
            check,
            attributes,
            tags: given,
            targets: BTreeMap::new(),
            released: 0,
            name: name.clone(),
        };
        let arn = self.new_arn("targetgroup", &name);
        let told = self.show_target_group(&arn, &group);
        self.target_groups.insert(arn, group);
        Ok(json!({ "TargetGroups": [told] }))
    }

    fn show_target_group(&self, arn: &str, group: &TargetGroup) -> Value {
        let mut balancers: Vec<&String> =
            self.listeners.values().filter(|l| l.target_group == arn).map(|l| &l.balancer).collect();
        balancers.sort();
        balancers.dedup();
        let check = &group.check;
        json!({
            "TargetGroupArn": arn, "TargetGroupName": group.name, "Protocol": group.protocol, "Port": group.port,
            "VpcId": group.vpc, "TargetType": if group.by_instance { "instance" } else { "ip" },
            "HealthCheckProtocol": check.protocol, "HealthCheckPort": check.port, "HealthCheckEnabled": true,
            "HealthCheckIntervalSeconds": check.interval, "HealthCheckTimeoutSeconds": check.timeout,
            "HealthyThresholdCount": check.healthy, "UnhealthyThresholdCount": check.unhealthy,
            "HealthCheckPath": check.path, "Matcher": check.codes.as_ref().map(|codes| json!({ "HttpCode": codes })),
            "LoadBalancerArns": balancers, "IpAddressType": "ipv4",
        })
    }

    pub(in crate::aws) fn describe_target_groups(&self, input: &Value) -> Outcome {
        let (arns, names) = (texts(input, "TargetGroupArns"), texts(input, "Names"));
        if let Some(arn) = arns.iter().find(|arn| !self.target_groups.contains_key(*arn)) {
            return Err(no_group(arn));
        }
        let known = |name: &&String| !self.target_groups.values().any(|group| group.name == **name);
        if let Some(name) = names.iter().find(known) {
            return Err(no_group(name));
        }
        let balancer = text(input, "LoadBalancerArn");
        if let Some(arn) = balancer.filter(|arn| !self.balancers.contains_key(*arn)) {
            return Err(no_balancer(arn));
        }
        let behind = |arn: &str| {
            let to = |balancer: &str| {
                self.listeners.values().any(|l| l.balancer == balancer && l.target_group == arn)
            };
            balancer.is_none_or(to)
        };
        let wanted = |(arn, group): &(&String, &TargetGroup)| {
            let all = arns.is_empty() && names.is_empty();
            behind(arn) && (all || arns.contains(arn) || names.contains(&group.name))
        };
        let found = self.target_groups.iter().filter(wanted);
        let found = found.map(|(arn, group)| self.show_target_group(arn, group)).collect();
        Ok(paged("TargetGroups", found, input))
    }

    pub(in crate::aws) fn modify_target_group(&mut self, input: &Value) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default().to_string();
        let group = self.target_groups.get_mut(&arn).ok_or_else(|| no_group(&arn))?;
        group.check = group.check.change(input)?;
        let told = self.target_groups.get(&arn).map(|group| self.show_target_group(&arn, group));
        Ok(json!({ "TargetGroups": [told] }))
    }

    pub(in crate::aws) fn delete_target_group(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default();
        let Some(group) = self.target_groups.get(arn) else { return Ok(json!({})) };
        let used = self.listeners.values().any(|listener| listener.target_group == arn);
        if used || group.released > now {
            let why = format!("Target group '{arn}' is currently in use by a listener or a rule");
            return Err(Refusal::new("ResourceInUse", why));
        }
        self.target_groups.remove(arn);
        Ok(json!({}))
    }

    pub(in crate::aws) fn target_group_attributes(&self, input: &Value) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default();
        let group = self.target_groups.get(arn).ok_or_else(|| no_group(arn))?;
        Ok(json!({ "Attributes": attributes::show(&group.attributes) }))
    }

    pub(in crate::aws) fn modify_target_group_attributes(&mut self, input: &Value) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default();
        let group = self.target_groups.get_mut(arn).ok_or_else(|| no_group(arn))?;
        group.attributes = attributes::change(attributes::TARGET_GROUP, &group.attributes, input)?;
        Ok(json!({ "Attributes": attributes::show(&group.attributes) }))
    }
}
