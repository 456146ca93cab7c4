//! Which call is which operation, who may call it, and what it is called in logs.

use super::input::{flag, text, texts};
use super::model;
use super::request::{Answer, Call, Outcome, Refusal, Service};
use super::sign::{Arrived, Signature};
use super::state::State;
use crate::balancer::Verdict;
use crate::random::Random;
use serde_json::Value;
use std::net::SocketAddr;

/// What a call needs to know beside the state.
pub(super) struct Context<'a> {
    /// Milliseconds.
    pub(super) now: u64,
    /// The health of a target of a target group of a load balancer.
    pub(super) health: &'a dyn Fn(&str, &str, SocketAddr) -> Verdict,
    /// The name of who calls.
    pub(super) caller: String,
}

impl State {
    /// Answers one call. What it sets going is carried out by [`State::advance`].
    pub(super) fn handle(&mut self, call: &Call, context: &Context<'_>) -> Answer {
        let request_id = self.request_id(context.now);
        if call.service == Service::Quotas {
            let outcome = self.may(call, &context.caller).and_then(|()| self.quota(call));
            return outcome.unwrap_or_else(|refusal| Answer::refused(call.service, &refusal, &request_id));
        }
        let outcome = self.route(call, context).and_then(|value| {
            let operation = model::operation(call.service, &call.action);
            let written = operation
                .map(|operation| model::write(call.service, &call.action, operation, &value, &request_id));
            match written {
                Some(Ok(body)) => Ok(Answer { status: 200, body }),
                other => Err(Refusal::new("InternalError", format!("SIMULATED: {other:?}")).with_status(500)),
            }
        });
        outcome.unwrap_or_else(|refusal| Answer::refused(call.service, &refusal, &request_id))
    }

    pub(super) fn request_id(&self, now: u64) -> String {
        Random::new(self.seed ^ now).uuid()
    }

    fn route(&mut self, call: &Call, context: &Context<'_>) -> Outcome {
        let service = call.service;
        let Some(operation) = model::operation(service, &call.action) else {
            let why = format!("The action {} is not valid for this web service.", call.action);
            return Err(Refusal::new("InvalidAction", why));
        };
        let version = call.params.get("Version").map_or("", String::as_str);
        if version != model::version(service) {
            let why =
                format!("{version:?} is not a version of this service; use {}", model::version(service));
            return Err(Refusal::new("NoSuchVersion", why));
        }
        self.may(call, &context.caller)?;
        let input = model::read(service, operation, &call.params)?;
        if flag(&input, "DryRun") == Some(true) {
            let why = "Request would have succeeded, but DryRun flag is set.";
            return Err(Refusal::new("DryRunOperation", why).with_status(412));
        }
        self.check_known(&call.action, &input, context.now)?;
        let outcome = match service {
            Service::Ec2 => self.route_ec2(&call.action, &input, context),
            Service::Elb => self.route_elb(&call.action, &input, context),
            Service::Sts => self.route_sts(&call.action, &input, context),
            Service::Quotas => Err(service.not_simulated(&call.action)),
        };
        self.as_seen(&call.action, &input, outcome, context.now)
    }

    fn route_ec2(&mut self, action: &str, input: &Value, context: &Context<'_>) -> Outcome {
        let now = context.now;
        match action {
            "RunInstances" => self.run_instances(input, now),
            "DescribeInstances" => self.describe_instances(input, now),
            "TerminateInstances" => self.terminate_instances(input, now),
            "StartInstances" => self.start_instances(input, now),
            "StopInstances" => self.stop_instances(input, now),
            "RebootInstances" => self.reboot_instances(input, now),
            "ModifyInstanceAttribute" => self.modify_instance_attribute(input, now),
            "DescribeInstanceTypes" => self.describe_instance_types(input),
            "DescribeInstanceTypeOfferings" => self.describe_offerings(input),
            "DescribeImages" => self.describe_images(input),
            "DescribeVpcs" => self.describe_vpcs(input),
            "DescribeSubnets" => self.describe_subnets(input),
            "DescribeAvailabilityZones" => self.describe_zones(input),
            "DescribeRegions" => self.describe_regions(input),
            "DescribeAccountAttributes" => self.describe_account_attributes(input),
            "DescribeNetworkInterfaces" => self.describe_interfaces(input),
            "DescribeVolumes" => self.describe_volumes(input),
            "DeleteVolume" => self.delete_volume(input),
            "CreateSecurityGroup" => self.create_group(input),
            "DescribeSecurityGroups" => self.describe_groups(input),
            "DescribeSecurityGroupRules" => self.describe_group_rules(input),
            "DeleteSecurityGroup" => self.delete_group(input),
            "AuthorizeSecurityGroupIngress" => self.authorize_ingress(input),
            "RevokeSecurityGroupIngress" => self.revoke_ingress(input),
            "CreateTags" => self.create_tags(input),
            "DeleteTags" => self.delete_tags(input),
            "DescribeTags" => self.describe_tags(input),
            other => Err(Service::Ec2.not_simulated(other)),
        }
    }

    fn route_elb(&mut self, action: &str, input: &Value, context: &Context<'_>) -> Outcome {
        let now = context.now;
        match action {
            "CreateLoadBalancer" => self.create_balancer(input, now),
            "DescribeLoadBalancers" => self.describe_balancers(input, now),
            "DeleteLoadBalancer" => self.delete_balancer(input, now),
            "DescribeLoadBalancerAttributes" => self.balancer_attributes(input),
            "ModifyLoadBalancerAttributes" => self.modify_balancer_attributes(input),
            "SetSubnets" => self.set_subnets(input, now),
            "SetSecurityGroups" => self.set_groups(input),
            "DescribeAccountLimits" => self.account_limits(input),
            "CreateTargetGroup" => self.create_target_group(input),
            "DescribeTargetGroups" => self.describe_target_groups(input),
            "ModifyTargetGroup" => self.modify_target_group(input),
            "DeleteTargetGroup" => self.delete_target_group(input, now),
            "DescribeTargetGroupAttributes" => self.target_group_attributes(input),
            "ModifyTargetGroupAttributes" => self.modify_target_group_attributes(input),
            "CreateListener" => self.create_listener(input),
            "DescribeListeners" => self.describe_listeners(input),
            "ModifyListener" => self.modify_listener(input, now),
            "DeleteListener" => self.delete_listener(input, now),
            "DescribeListenerAttributes" => self.listener_attributes(input),
            "ModifyListenerAttributes" => self.modify_listener_attributes(input),
            "RegisterTargets" => self.register_targets(input, now),
            "DeregisterTargets" => self.deregister_targets(input, now),
            "DescribeTargetHealth" => self.target_health(input, context),
            "AddTags" => self.add_elb_tags(input),
            "RemoveTags" => self.remove_elb_tags(input),
            "DescribeTags" => self.describe_elb_tags(input),
            other => Err(Service::Elb.not_simulated(other)),
        }
    }

    /// Whether policies let somebody make this call.
    fn may(&self, call: &Call, caller: &str) -> Result<(), Refusal> {
        let whole = format!("{}:*", call.service.name());
        if !self.denied.contains(&call.name()) && !self.denied.contains(&whole) {
            return Ok(());
        }
        let why = format!("User: {caller} is not authorized to perform: {}", call.name());
        let code = if call.service == Service::Ec2 { "UnauthorizedOperation" } else { "AccessDenied" };
        Err(Refusal::new(code, why).with_status(403))
    }

    /// Who has signed a request.
    ///
    /// # Errors
    /// Says what is wrong with the signature or the key, in the words of the service.
    pub(super) fn authenticate(
        &self,
        service: Service,
        request: &Arrived<'_>,
        now: u64,
    ) -> Result<String, Refusal> {
        let Some(header) = request.headers.get("authorization") else {
            let why = "Request is missing Authentication Token";
            return Err(Refusal::new("MissingAuthenticationToken", why).with_status(403));
        };
        let Some(signature) = Signature::parse(header) else {
            let why = "Authorization header is not in the form of signature version 4";
            return Err(Refusal::new("IncompleteSignature", why).with_status(400));
        };
        let unknown = || match service {
            Service::Ec2 => {
                Refusal::new("AuthFailure", "AWS was not able to validate the provided access credentials")
                    .with_status(401)
            }
            _ => {
                Refusal::new("InvalidClientTokenId", "The security token included in the request is invalid.")
                    .with_status(403)
            }
        };
        let key = self.keys.get(&signature.key).ok_or_else(unknown)?;
        let token = request.headers.get("x-amz-security-token");
        let matches = match (&key.token, token) {
            (None, None) => true,
            (Some(known), Some(given)) => known.is(given),
            _ => false,
        };
        if !matches {
            return Err(unknown());
        }
        if key.expires.is_some_and(|expires| now >= expires) {
            return Err(match service {
                Service::Ec2 => Refusal::new("RequestExpired", "Request has expired.").with_status(400),
                _ => Refusal::new("ExpiredToken", "The security token included in the request is expired")
                    .with_status(403),
            });
        }
        signature.check(request, key.secret.reveal(), service, &self.region, now)?;
        Ok(key.arn.clone())
    }

    /// What a call is about, for logs and fault scripts, by the names that people gave to things.
    #[must_use]
    pub fn object_of(&self, call: &Call) -> String {
        let Some(operation) = model::operation(call.service, &call.action) else {
            return call.action.clone();
        };
        let Ok(input) = model::read(call.service, operation, &call.params) else {
            return call.action.clone();
        };
        let found = match call.service {
            Service::Ec2 => self.ec2_object(&input),
            Service::Elb => self.elb_object(&input),
            Service::Sts => text(&input, "RoleArn").map(ToString::to_string),
            Service::Quotas => None,
        };
        found.unwrap_or_else(|| call.action.clone())
    }

    fn ec2_object(&self, input: &Value) -> Option<String> {
        for specification in super::input::list(input, "TagSpecifications") {
            let tags = super::input::tags(super::input::list(specification, "Tags"));
            if let Some(name) = tags.get("Name").filter(|_| specification["ResourceType"] == "instance") {
                return Some(format!("machine {name}"));
            }
        }
        let named = text(input, "InstanceId").map(ToString::to_string);
        let ids = named.into_iter().chain(texts(input, "InstanceIds")).chain(texts(input, "Resources"));
        if let Some(id) = ids.into_iter().find(|id| self.instances.contains_key(id)) {
            return Some(format!("machine {}", self.called(&id)));
        }
        let group = text(input, "GroupId").and_then(|id| self.groups.get(id)).map(|g| g.name.clone());
        text(input, "GroupName").map(ToString::to_string).or(group)
    }

    fn elb_object(&self, input: &Value) -> Option<String> {
        if let Some(name) = text(input, "Name") {
            return Some(name.to_string());
        }
        let singles = ["LoadBalancerArn", "TargetGroupArn", "ListenerArn"];
        let single = singles.iter().find_map(|key| text(input, key)).map(ToString::to_string);
        let lists = ["LoadBalancerArns", "TargetGroupArns", "ListenerArns", "ResourceArns", "Names"];
        let arn = single.or_else(|| lists.iter().find_map(|key| texts(input, key).into_iter().next()))?;
        Some(self.name_of_arn(&arn).unwrap_or(arn))
    }

    /// The name of a load balancer, a target group, or the port of a listener.
    fn name_of_arn(&self, arn: &str) -> Option<String> {
        if let Some(balancer) = self.balancers.get(arn) {
            return Some(balancer.name.clone());
        }
        if let Some(group) = self.target_groups.get(arn) {
            return Some(group.name.clone());
        }
        let listener = self.listeners.get(arn)?;
        let balancer = self.balancers.get(&listener.balancer).map_or("", |balancer| &balancer.name);
        Some(format!("{balancer}:{}", listener.port))
    }
}
