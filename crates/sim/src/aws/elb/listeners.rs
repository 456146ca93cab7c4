//! Listeners: a port of a balancer, and the target group that its connections go to.

use super::attributes;
use super::balancers::{no_balancer, paged};
use super::target_groups::no_group;
use crate::aws::input::{list, number, only, tags, text, texts};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::state::{Listener, State};
use crate::delays;
use serde_json::{Value, json};

fn no_listener(arn: &str) -> Refusal {
    Refusal::new("ListenerNotFound", format!("Listeners '[{arn}]' not found"))
}

/// The one target group that a request forwards to.
fn forwards_to(input: &Value) -> Result<String, Refusal> {
    let wrong = |why: &str| Err(Refusal::new("InvalidLoadBalancerAction", why));
    let [action] = list(input, "DefaultActions") else {
        return wrong("You must specify exactly one default action");
    };
    if text(action, "Type") != Some("forward") {
        return wrong("Network load balancers support forward actions only");
    }
    let forward =
        action.get("ForwardConfig").map(|forward| list(forward, "TargetGroups")).unwrap_or_default();
    let from_list = match forward {
        [] => None,
        [one] => text(one, "TargetGroupArn"),
        _ => return Err(Service::Elb.not_simulated("a listener with several target groups")),
    };
    match text(action, "TargetGroupArn").or(from_list) {
        Some(arn) => Ok(arn.to_string()),
        None => wrong("A target group ARN must be specified"),
    }
}

impl State {
    /// A target group that this balancer can forward to.
    fn check_forward(&self, balancer: &str, target_group: &str) -> Result<(), Refusal> {
        let group = self.target_groups.get(target_group).ok_or_else(|| no_group(target_group))?;
        let vpc = self.balancers.get(balancer).map(|balancer| balancer.vpc.clone()).unwrap_or_default();
        if group.vpc != vpc {
            let why = "The target group and the load balancer belong to different VPCs";
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        let other = |l: &Listener| l.target_group == target_group && l.balancer != balancer;
        if self.listeners.values().any(other) {
            let why = format!(
                "The target group '{target_group}' cannot be associated with more than one load balancer"
            );
            return Err(Refusal::new("TargetGroupAssociationLimit", why));
        }
        Ok(())
    }

    pub(in crate::aws) fn create_listener(&mut self, input: &Value) -> Outcome {
        only(Service::Elb, input, &["DefaultActions", "LoadBalancerArn", "Port", "Protocol", "Tags"])?;
        let balancer = text(input, "LoadBalancerArn").unwrap_or_default().to_string();
        let name = self.balancers.get(&balancer).ok_or_else(|| no_balancer(&balancer))?.name.clone();
        let protocol = text(input, "Protocol").unwrap_or_default().to_string();
        if protocol != "TCP" {
            return Err(Service::Elb.not_simulated("a listener of another protocol than TCP"));
        }
        let Some(port) = number::<u16>(input, "Port") else {
            return Err(Refusal::new("ValidationError", "A port must be specified"));
        };
        let target_group = forwards_to(input)?;
        self.check_forward(&balancer, &target_group)?;
        let of_it: Vec<(&String, &Listener)> =
            self.listeners.iter().filter(|(_, listener)| listener.balancer == balancer).collect();
        if let Some((arn, there)) = of_it.iter().find(|(_, listener)| listener.port == port) {
            if there.target_group == target_group {
                return Ok(json!({ "Listeners": [show(arn, there)] }));
            }
            let why = "A listener already exists on this port for this load balancer";
            return Err(Refusal::new("DuplicateListener", why));
        }
        if of_it.len() >= usize::try_from(self.quotas.listeners_per_load_balancer).unwrap_or(usize::MAX) {
            return Err(Refusal::new("TooManyListeners", "The maximum number of listeners has been reached"));
        }
        let given = tags(list(input, "Tags"));
        super::tags::check(&given)?;
        let number = balancer.rsplit('/').next().unwrap_or_default().to_string();
        let arn = self.new_arn("listener/net", &format!("{name}/{number}"));
        let listener = Listener {
            balancer,
            port,
            protocol,
            target_group,
            attributes: attributes::defaults(attributes::LISTENER),
            tags: given,
        };
        let told = show(&arn, &listener);
        self.listeners.insert(arn, listener);
        Ok(json!({ "Listeners": [told] }))
    }

    pub(in crate::aws) fn describe_listeners(&self, input: &Value) -> Outcome {
        let arns = texts(input, "ListenerArns");
        if let Some(arn) = arns.iter().find(|arn| !self.listeners.contains_key(*arn)) {
            return Err(no_listener(arn));
        }
        let balancer = text(input, "LoadBalancerArn");
        if let Some(arn) = balancer.filter(|arn| !self.balancers.contains_key(*arn)) {
            return Err(no_balancer(arn));
        }
        if arns.is_empty() && balancer.is_none() {
            let why = "You must specify either listener ARNs or a load balancer ARN";
            return Err(Refusal::new("ValidationError", why));
        }
        let wanted = |(arn, listener): &(&String, &Listener)| {
            arns.contains(arn) || balancer.is_some_and(|balancer| listener.balancer == balancer)
        };
        let found = self.listeners.iter().filter(wanted).map(|(arn, listener)| show(arn, listener)).collect();
        Ok(paged("Listeners", found, input))
    }

    pub(in crate::aws) fn modify_listener(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "ListenerArn").unwrap_or_default().to_string();
        let listener = self.listeners.get(&arn).cloned().ok_or_else(|| no_listener(&arn))?;
        let mut after = listener.clone();
        if let Some(port) = number::<u16>(input, "Port") {
            let taken = |(other, l): (&String, &Listener)| {
                *other != arn && l.balancer == listener.balancer && l.port == port
            };
            if self.listeners.iter().any(taken) {
                let why = "A listener already exists on this port for this load balancer";
                return Err(Refusal::new("DuplicateListener", why));
            }
            after.port = port;
        }
        if !list(input, "DefaultActions").is_empty() {
            after.target_group = forwards_to(input)?;
            self.check_forward(&after.balancer, &after.target_group)?;
        }
        if after.target_group != listener.target_group {
            self.release_group(&listener.target_group, now);
        }
        let told = show(&arn, &after);
        self.listeners.insert(arn, after);
        Ok(json!({ "Listeners": [told] }))
    }

    /// A target group that a listener has left is let go of a moment later.
    fn release_group(&mut self, target_group: &str, now: u64) {
        let released = now + self.scaled(delays::AWS_GROUP_RELEASED);
        if let Some(group) = self.target_groups.get_mut(target_group) {
            group.released = released;
        }
    }

    pub(super) fn remove_listener(&mut self, arn: &str, now: u64) {
        if let Some(listener) = self.listeners.remove(arn) {
            self.release_group(&listener.target_group, now);
        }
    }

    pub(in crate::aws) fn delete_listener(&mut self, input: &Value, now: u64) -> Outcome {
        let arn = text(input, "ListenerArn").unwrap_or_default();
        if !self.listeners.contains_key(arn) {
            return Err(no_listener(arn));
        }
        self.remove_listener(arn, now);
        Ok(json!({}))
    }

    pub(in crate::aws) fn listener_attributes(&self, input: &Value) -> Outcome {
        let arn = text(input, "ListenerArn").unwrap_or_default();
        let listener = self.listeners.get(arn).ok_or_else(|| no_listener(arn))?;
        Ok(json!({ "Attributes": attributes::show(&listener.attributes) }))
    }

    pub(in crate::aws) fn modify_listener_attributes(&mut self, input: &Value) -> Outcome {
        let arn = text(input, "ListenerArn").unwrap_or_default();
        let listener = self.listeners.get_mut(arn).ok_or_else(|| no_listener(arn))?;
        listener.attributes = attributes::change(attributes::LISTENER, &listener.attributes, input)?;
        Ok(json!({ "Attributes": attributes::show(&listener.attributes) }))
    }
}

fn show(arn: &str, listener: &Listener) -> Value {
    json!({
        "ListenerArn": arn, "LoadBalancerArn": listener.balancer, "Port": listener.port,
        "Protocol": listener.protocol,
        "DefaultActions": [{
            "Type": "forward", "TargetGroupArn": listener.target_group, "Order": 1,
            "ForwardConfig": { "TargetGroups": [{ "TargetGroupArn": listener.target_group }] },
        }],
    })
}
