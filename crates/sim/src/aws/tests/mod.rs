use super::model;
use super::request::{Call, Service};
use super::route::Context;
use super::site::AwsSite;
use super::state::{Effect, State};
use crate::balancer::Verdict;
use std::collections::BTreeMap;

mod compute;
mod load_balancers;
mod wire;

pub(super) const SUBNETS: [&str; 3] =
    ["subnet-0a11c2d3e4f50617a", "subnet-0b22c2d3e4f50617b", "subnet-0c33c2d3e4f50617c"];
pub(super) const GROUP: &str = "sg-0d44c2d3e4f50617d";
pub(super) const IMAGE: &str = "ami-0e55c2d3e4f50617e";
pub(super) const VPC: &str = "vpc-0f6a1c2d3e4b50617";

/// Codes that every operation may have, beside those of the model.
const COMMON: [&str; 3] = ["ValidationError", "InvalidAction", "AccessDenied"];

/// An account with a clock that stands still until it is told otherwise.
pub(super) struct Account {
    pub(super) state: State,
    pub(super) now: u64,
    pub(super) verdict: Verdict,
}

impl Account {
    pub(super) fn new() -> Self {
        Self::of(&AwsSite::example())
    }

    pub(super) fn of(site: &AwsSite) -> Self {
        // Speed 1 and seed 0: delays are those of the table.
        Self { state: State::new(site, 1.0, 0), now: 1_800_000_000_000, verdict: Verdict::Healthy }
    }

    /// The XML of an answer, or the code of an error.
    pub(super) fn call(
        &mut self,
        service: Service,
        action: &str,
        params: &[(&str, &str)],
    ) -> Result<String, String> {
        let own = [("Action", action), ("Version", model::version(service))];
        let params: BTreeMap<String, String> =
            params.iter().chain(&own).map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let call = Call { service, action: action.to_string(), params };
        let verdict = self.verdict;
        let health = |_: &str, _: &str, _| verdict;
        let context =
            Context { now: self.now, health: &health, caller: "arn:aws:iam::1:user/test".to_string() };
        let answer = self.state.handle(&call, &context);
        if answer.status == 200 {
            return Ok(answer.body);
        }
        let code = element(&answer.body, "Code").unwrap();
        if service == Service::Elb {
            let errors = &model::operation(service, action).unwrap().errors;
            assert!(
                errors.contains(&code) || COMMON.contains(&code.as_str()),
                "{action} has no error {code} in the vendor's model: {}",
                answer.body
            );
        }
        Err(code)
    }

    pub(super) fn ec2(&mut self, action: &str, params: &[(&str, &str)]) -> Result<String, String> {
        self.call(Service::Ec2, action, params)
    }

    pub(super) fn elb(&mut self, action: &str, params: &[(&str, &str)]) -> Result<String, String> {
        self.call(Service::Elb, action, params)
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        self.now += seconds * 1000;
        self.state.advance(self.now)
    }

    pub(super) fn launch(&mut self, name: &str, token: &str, subnet: &str) -> Result<String, String> {
        let xml = self.ec2("RunInstances", &launch(name, token, subnet))?;
        Ok(element(&xml, "instanceId").unwrap())
    }
}

pub(super) fn launch<'a>(name: &'a str, token: &'a str, subnet: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("ImageId", IMAGE),
        ("InstanceType", "m5.xlarge"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", subnet),
        ("SecurityGroupId.1", GROUP),
        ("ClientToken", token),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", "Name"),
        ("TagSpecification.1.Tag.1.Value", name),
        ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
        ("BlockDeviceMapping.1.Ebs.VolumeSize", "50"),
        ("BlockDeviceMapping.2.DeviceName", "/dev/xvdb"),
        ("BlockDeviceMapping.2.Ebs.VolumeSize", "100"),
        ("BlockDeviceMapping.2.Ebs.DeleteOnTermination", "true"),
    ]
}

/// The text of the first element of this name.
pub(super) fn element(xml: &str, name: &str) -> Option<String> {
    let begin = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let end = xml[begin..].find(&format!("</{name}>"))?;
    Some(xml[begin..begin + end].to_string())
}
