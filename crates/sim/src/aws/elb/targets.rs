//! Targets: registered, checked, drained.

use super::target_groups::no_group;
use crate::aws::input::{list, number, text};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::route::Context;
use crate::aws::rules::contains;
use crate::aws::state::{BalancerState, Power, Registration, State, TargetGroup};
use crate::balancer::{Trouble, Verdict};
use crate::delays;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A state of the API with its reason, if it has one.
type Told = (&'static str, Option<&'static str>);

impl State {
    pub(in crate::aws) fn register_targets(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default().to_string();
        let group = self.target_groups.get(&arn).ok_or_else(|| no_group(&arn))?;
        let mut targets = Vec::new();
        for target in list(input, "Targets") {
            let id = text(target, "Id").unwrap_or_default().to_string();
            self.check_target(group, &id)?;
            targets.push((id, number(target, "Port").unwrap_or(group.port)));
        }
        for target in targets {
            let due = now + self.scaled(delays::AWS_TARGET_REGISTERS);
            let Some(group) = self.target_groups.get_mut(&arn) else { continue };
            match group.targets.get(&target) {
                Some(Registration::Beginning(_) | Registration::Through) => {}
                Some(Registration::Draining(_)) | None => {
                    group.targets.insert(target, Registration::Beginning(due));
                }
            }
        }
        Ok(json!({}))
    }

    fn check_target(&self, group: &TargetGroup, id: &str) -> Result<(), Refusal> {
        let wrong = |why: String| Err(Refusal::new("InvalidTarget", why));
        if group.by_instance {
            let instance = self.instances.get(id).filter(|instance| {
                self.subnets.get(&instance.subnet).is_some_and(|subnet| subnet.vpc == group.vpc)
            });
            return match instance {
                None => wrong(format!("Instance ID '{id}' is not valid")),
                Some(instance) if instance.power != Power::Running => wrong(format!(
                    "The following targets are not in a running state and cannot be registered: '{id}'"
                )),
                Some(_) => Ok(()),
            };
        }
        let within = |address: Ipv4Addr| {
            let known = self.vpcs.get(&group.vpc).is_some_and(|vpc| contains(vpc.cidr, address));
            known || address.is_private()
        };
        match id.parse::<Ipv4Addr>() {
            Err(_) => Err(Refusal::new(
                "ValidationError",
                format!("The IP address '{id}' is not a valid IPv4 address"),
            )),
            Ok(address) if !within(address) => {
                wrong(format!("The IP address '{id}' is not within a range of the VPC"))
            }
            Ok(_) => Ok(()),
        }
    }

    pub(in crate::aws) fn deregister_targets(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default().to_string();
        let group = self.target_groups.get(&arn).ok_or_else(|| no_group(&arn))?;
        let port = group.port;
        for target in list(input, "Targets") {
            let id = text(target, "Id").unwrap_or_default().to_string();
            // One that is not registered is no error.
            self.drain(&arn, &(id, number(target, "Port").unwrap_or(port)), now);
        }
        Ok(json!({}))
    }

    /// A target gets no new connections, and leaves when the delay is over.
    fn drain(&mut self, arn: &str, target: &(String, u16), now: u64) {
        let used = self.listeners.values().any(|listener| listener.target_group == arn);
        let Some(group) = self.target_groups.get(arn) else { return };
        let delay = group.attributes.get("deregistration_delay.timeout_seconds");
        let delay = delay.and_then(|delay| delay.parse::<f64>().ok()).unwrap_or(300.0);
        let due = now + self.scaled(delay);
        let Some(group) = self.target_groups.get_mut(arn) else { return };
        match group.targets.get(target) {
            None | Some(Registration::Draining(_)) => {}
            Some(_) if !used => {
                group.targets.remove(target);
            }
            Some(_) => {
                group.targets.insert(target.clone(), Registration::Draining(due));
            }
        }
    }

    /// An instance that ends leaves the groups that know it by its id.
    pub(in crate::aws) fn deregister_everywhere(&mut self, id: &str, now: u64) {
        let of_it = |(arn, group): (&String, &TargetGroup)| -> Vec<(String, (String, u16))> {
            let targets = group.targets.keys().filter(|(target, _)| target == id);
            targets.map(|target| (arn.clone(), target.clone())).collect()
        };
        let all: Vec<(String, (String, u16))> = self.target_groups.iter().flat_map(of_it).collect();
        for (arn, target) in all {
            self.drain(&arn, &target, now);
        }
    }

    /// The address of a target.
    pub(super) fn address_of(&self, group: &TargetGroup, id: &str) -> Option<IpAddr> {
        if group.by_instance {
            return self.instances.get(id).map(|instance| IpAddr::V4(instance.private));
        }
        id.parse().ok()
    }

    /// The zone of a target. One that no subnet has is taken to be everywhere.
    pub(super) fn zone_of(&self, address: IpAddr) -> Option<String> {
        let IpAddr::V4(address) = address else { return None };
        self.subnets.values().find(|subnet| contains(subnet.cidr, address)).map(|subnet| subnet.zone.clone())
    }

    /// The balancer that forwards to a target group.
    pub(super) fn balancer_of(&self, target_group: &str) -> Option<&String> {
        self.listeners.values().find(|l| l.target_group == target_group).map(|l| &l.balancer)
    }

    pub(in crate::aws) fn target_health(&self, input: &Value, context: &Context<'_>) -> Outcome {
        let arn = text(input, "TargetGroupArn").unwrap_or_default();
        let group = self.target_groups.get(arn).ok_or_else(|| no_group(arn))?;
        let mut wanted: Vec<(String, u16)> = list(input, "Targets")
            .iter()
            .map(|target| {
                let id = text(target, "Id").unwrap_or_default().to_string();
                (id, number(target, "Port").unwrap_or(group.port))
            })
            .collect();
        if wanted.is_empty() {
            wanted = group.targets.keys().cloned().collect();
        }
        let told: Vec<Value> = wanted
            .iter()
            .map(|target| {
                let (state, reason) = self.health_of(arn, group, target, context);
                let described = reason.map(describe);
                json!({
                    "Target": { "Id": target.0, "Port": target.1 }, "HealthCheckPort": check_port(group, target.1),
                    "TargetHealth": { "State": state, "Reason": reason, "Description": described },
                })
            })
            .collect();
        Ok(json!({ "TargetHealthDescriptions": told }))
    }

    fn health_of(
        &self,
        arn: &str,
        group: &TargetGroup,
        target: &(String, u16),
        context: &Context<'_>,
    ) -> Told {
        let Some(registration) = group.targets.get(target) else {
            return ("unused", Some("Target.NotRegistered"));
        };
        let Some(balancer) = self.balancer_of(arn) else { return ("unused", Some("Target.NotInUse")) };
        if matches!(registration, Registration::Draining(_)) {
            return ("draining", Some("Target.DeregistrationInProgress"));
        }
        if group.by_instance && self.instances.get(&target.0).is_none_or(|i| i.power != Power::Running) {
            return ("unused", Some("Target.InvalidState"));
        }
        let Some(address) = self.address_of(group, &target.0) else {
            return ("unused", Some("Target.IpUnusable"));
        };
        if !self.is_zone_served(balancer, address) {
            return ("unused", Some("Target.NotInUse"));
        }
        let active =
            self.balancers.get(balancer).is_some_and(|balancer| balancer.state == BalancerState::Active);
        if matches!(registration, Registration::Beginning(_)) || !active {
            return ("initial", Some("Elb.RegistrationInProgress"));
        }
        match (context.health)(balancer, arn, SocketAddr::new(address, target.1)) {
            Verdict::Initial => ("initial", Some("Elb.InitialHealthChecking")),
            Verdict::Healthy => ("healthy", None),
            Verdict::Unhealthy(Trouble::Timeout) => ("unhealthy", Some("Target.Timeout")),
            Verdict::Unhealthy(Trouble::Refused) => ("unhealthy", Some("Target.FailedHealthChecks")),
            Verdict::Unhealthy(Trouble::Status(_)) => ("unhealthy", Some("Target.ResponseCodeMismatch")),
        }
    }

    /// Whether a balancer is in the zone of an address, or serves all zones.
    pub(super) fn is_zone_served(&self, balancer: &str, address: IpAddr) -> bool {
        let Some(balancer) = self.balancers.get(balancer) else { return false };
        let zones = balancer.subnets.keys().filter_map(|id| self.subnets.get(id)).map(|subnet| &subnet.zone);
        let cross = super::attributes::is_on(&balancer.attributes, "load_balancing.cross_zone.enabled");
        match self.zone_of(address) {
            Some(zone) => cross || zones.into_iter().any(|served| *served == zone),
            None => true,
        }
    }
}

fn check_port(group: &TargetGroup, port: u16) -> String {
    if group.check.port == "traffic-port" { port.to_string() } else { group.check.port.clone() }
}

fn describe(reason: &'static str) -> &'static str {
    match reason {
        "Elb.RegistrationInProgress" => "Target registration is in progress",
        "Elb.InitialHealthChecking" => "Initial health checks in progress",
        "Target.NotRegistered" => "Target is not registered to the target group",
        "Target.NotInUse" => "Target group is not configured to receive traffic from the load balancer",
        "Target.DeregistrationInProgress" => "Target deregistration is in progress",
        "Target.InvalidState" => "Target is in the stopped state",
        "Target.Timeout" => "Request timed out",
        "Target.ResponseCodeMismatch" => "Health checks failed with another code than the expected ones",
        _ => "Health checks failed",
    }
}
