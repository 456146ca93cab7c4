//! Security groups.

use crate::aws::input::{Filters, list, number, paged, show_tags, tags, text, texts};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::rules::{Rule, Source, parse_cidr, permission};
use crate::aws::state::{Group, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;

impl State {
    pub(in crate::aws) fn group(&self, id: &str) -> Result<&Group, Refusal> {
        self.groups.get(id).ok_or_else(|| {
            Refusal::new("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))
        })
    }

    pub(in crate::aws) fn create_group(&mut self, input: &Value) -> Outcome {
        let name = text(input, "GroupName").unwrap_or_default();
        let Some(vpc) = text(input, "VpcId") else {
            return Err(Refusal::new("VPCIdNotSpecified", "No default VPC for this user"));
        };
        if !self.vpcs.contains_key(vpc) {
            return Err(Refusal::new("InvalidVpcID.NotFound", format!("The vpc ID '{vpc}' does not exist")));
        }
        if name.is_empty() || name.len() > 255 || name.starts_with("sg-") {
            return Err(Refusal::new("InvalidParameterValue", format!("Invalid group name '{name}'")));
        }
        if self.groups.values().any(|group| group.name == name && group.vpc == vpc) {
            let why = format!("The security group '{name}' already exists for VPC '{vpc}'");
            return Err(Refusal::new("InvalidGroup.Duplicate", why));
        }
        if self.groups.len() >= usize::try_from(self.quotas.security_groups).unwrap_or(usize::MAX) {
            let why = "The maximum number of security groups has been reached.";
            return Err(Refusal::new("SecurityGroupLimitExceeded", why));
        }
        let mut all = crate::aws::state::Tags::new();
        for specification in list(input, "TagSpecifications") {
            if text(specification, "ResourceType") != Some("security-group") {
                let why = "is not a valid taggable resource type for this operation.";
                return Err(Refusal::new("InvalidParameterValue", why));
            }
            all.extend(tags(list(specification, "Tags")));
        }
        super::tags::check(&all)?;
        let group = Group {
            name: name.to_string(),
            description: text(input, "Description").unwrap_or_default().to_string(),
            vpc: vpc.to_string(),
            ingress: BTreeMap::new(),
            tags: all.clone(),
        };
        let id = self.id("sg");
        self.groups.insert(id.clone(), group);
        Ok(json!({ "GroupId": id, "Tags": show_tags(&all) }))
    }

    pub(in crate::aws) fn describe_groups(&self, input: &Value) -> Outcome {
        let filters = Filters::read(input, &["group-id", "group-name", "vpc-id", "description"])?;
        let ids = texts(input, "GroupIds");
        for id in &ids {
            self.group(id)?;
        }
        let names = texts(input, "GroupNames");
        let mut told = Vec::new();
        for (id, group) in &self.groups {
            let of = |name: &str| {
                vec![match name {
                    "group-id" => id.clone(),
                    "group-name" => group.name.clone(),
                    "vpc-id" => group.vpc.clone(),
                    _ => group.description.clone(),
                }]
            };
            let named =
                (ids.is_empty() || ids.contains(id)) && (names.is_empty() || names.contains(&group.name));
            if named && filters.fit(&group.tags, of) {
                told.push(self.show_group(id, group));
            }
        }
        Ok(paged("SecurityGroups", told, input))
    }

    fn show_group(&self, id: &str, group: &Group) -> Value {
        // Rules about the same ports are told together.
        let mut permissions: Vec<Value> = Vec::new();
        for rule in group.ingress.values() {
            let told = permission(rule, &self.account);
            let same = |other: &&mut Value| {
                ["IpProtocol", "FromPort", "ToPort"].iter().all(|key| other.get(key) == told.get(key))
            };
            match permissions.iter_mut().find(same) {
                None => permissions.push(told),
                Some(found) => {
                    for key in ["IpRanges", "Ipv6Ranges", "UserIdGroupPairs"] {
                        let mut all = list(found, key).to_vec();
                        all.extend_from_slice(list(&told, key));
                        found[key] = Value::Array(all);
                    }
                }
            }
        }
        json!({
            "GroupId": id, "GroupName": group.name, "Description": group.description, "VpcId": group.vpc,
            "OwnerId": self.account, "IpPermissions": permissions, "Tags": show_tags(&group.tags),
            "IpPermissionsEgress": [{ "IpProtocol": "-1", "IpRanges": [{ "CidrIp": "0.0.0.0/0" }] }],
            "SecurityGroupArn": format!("arn:aws:ec2:{}:{}:security-group/{id}", self.region, self.account),
        })
    }

    pub(in crate::aws) fn describe_group_rules(&self, input: &Value) -> Outcome {
        let filters = Filters::read(input, &["group-id", "security-group-rule-id"])?;
        let mut told = Vec::new();
        for (group_id, group) in &self.groups {
            for (id, rule) in &group.ingress {
                let of = |name: &str| vec![if name == "group-id" { group_id.clone() } else { id.clone() }];
                if filters.fit(&Default::default(), of) {
                    told.push(show_rule(group_id, id, rule, &self.account));
                }
            }
        }
        Ok(paged("SecurityGroupRules", told, input))
    }

    pub(in crate::aws) fn delete_group(&mut self, input: &Value) -> Outcome {
        let Some(id) = text(input, "GroupId").map(ToString::to_string) else {
            return Err(Service::Ec2.not_simulated("deleting a security group by its name"));
        };
        self.group(&id)?;
        let by_machine = |instance: &crate::aws::state::Instance| {
            instance.groups.contains(&id) && instance.power != crate::aws::state::Power::Terminated
        };
        let refers = |group: &Group| {
            let to = |rule: &Rule| matches!(&rule.source, Source::Group(other) if *other == id);
            group.ingress.values().any(to)
        };
        let used = self.instances.values().any(by_machine)
            || self.interfaces.values().any(|interface| interface.groups.contains(&id))
            || self.groups.iter().any(|(other, group)| *other != id && refers(group));
        if used {
            let why = format!("resource {id} has a dependent object");
            return Err(Refusal::new("DependencyViolation", why));
        }
        self.groups.remove(&id);
        Ok(json!({ "Return": true, "GroupId": id }))
    }

    pub(in crate::aws) fn authorize_ingress(&mut self, input: &Value) -> Outcome {
        let id = text(input, "GroupId").unwrap_or_default().to_string();
        let rules = self.rules_of(input)?;
        let group = self.group(&id)?;
        if let Some(rule) = rules.iter().find(|rule| group.ingress.values().any(|old| old.is_same(rule))) {
            let why = format!(
                "the specified rule \"peer: {:?}, {}, from port: {}, to port: {}, ALLOW\" already exists",
                rule.source, rule.protocol, rule.from, rule.to
            );
            return Err(Refusal::new("InvalidPermission.Duplicate", why));
        }
        let limit = usize::try_from(self.quotas.rules_per_security_group).unwrap_or(usize::MAX);
        if group.ingress.len() + rules.len() > limit {
            let why = "The maximum number of rules per security group has been reached.";
            return Err(Refusal::new("RulesPerSecurityGroupLimitExceeded", why));
        }
        let made: Vec<(String, Rule)> = rules.into_iter().map(|rule| (self.id("sgr"), rule)).collect();
        let told: Vec<Value> =
            made.iter().map(|(rule_id, rule)| show_rule(&id, rule_id, rule, &self.account)).collect();
        if let Some(group) = self.groups.get_mut(&id) {
            group.ingress.extend(made);
        }
        Ok(json!({ "Return": true, "SecurityGroupRules": told }))
    }

    pub(in crate::aws) fn revoke_ingress(&mut self, input: &Value) -> Outcome {
        let id = text(input, "GroupId").unwrap_or_default().to_string();
        let by_id = texts(input, "SecurityGroupRuleIds");
        let rules = if by_id.is_empty() { self.rules_of(input)? } else { Vec::new() };
        let group = self.group(&id)?;
        let mut gone = Vec::new();
        for rule_id in by_id {
            if !group.ingress.contains_key(&rule_id) {
                let why = format!("The security group rule ID '{rule_id}' does not exist");
                return Err(Refusal::new("InvalidSecurityGroupRuleId.NotFound", why));
            }
            gone.push(rule_id);
        }
        for rule in rules {
            match group.ingress.iter().find(|(_, old)| old.is_same(&rule)) {
                Some((rule_id, _)) => gone.push(rule_id.clone()),
                None => {
                    let why = "The specified rule does not exist in this security group.";
                    return Err(Refusal::new("InvalidPermission.NotFound", why));
                }
            }
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.ingress.retain(|rule_id, _| !gone.contains(rule_id));
        }
        Ok(json!({ "Return": true }))
    }

    /// The rules that a request names, in either of the two ways to name them.
    fn rules_of(&self, input: &Value) -> Result<Vec<Rule>, Refusal> {
        let mut rules = Vec::new();
        for permission in list(input, "IpPermissions") {
            for range in list(permission, "IpRanges") {
                rules.push(rule(permission, range, cidr(text(range, "CidrIp").unwrap_or_default())?)?);
            }
            for range in list(permission, "Ipv6Ranges") {
                let source = Source::Cidr6(text(range, "CidrIpv6").unwrap_or_default().to_string());
                rules.push(rule(permission, range, source)?);
            }
            for pair in list(permission, "UserIdGroupPairs") {
                let group = text(pair, "GroupId").unwrap_or_default();
                self.group(group)?;
                rules.push(rule(permission, pair, Source::Group(group.to_string()))?);
            }
        }
        if let Some(range) = text(input, "CidrIp") {
            rules.push(rule(input, &Value::Null, cidr(range)?)?);
        }
        if rules.is_empty() {
            return Err(Refusal::new(
                "MissingParameter",
                "Missing source specification: include source security group or CIDR information",
            ));
        }
        Ok(rules)
    }
}

fn cidr(text: &str) -> Result<Source, Refusal> {
    match parse_cidr(text) {
        // Bits beyond the prefix are refused.
        Some(range) if text.starts_with(&format!("{}/", range.0)) => {
            Ok(Source::Cidr(text.to_string(), range))
        }
        _ => Err(Refusal::new("InvalidParameterValue", format!("CIDR block {text} is malformed"))),
    }
}

fn rule(permission: &Value, about: &Value, source: Source) -> Result<Rule, Refusal> {
    let protocol = text(permission, "IpProtocol").unwrap_or("-1").to_string();
    let ports = (number::<i64>(permission, "FromPort"), number::<i64>(permission, "ToPort"));
    let (from, to) = match (protocol.as_str(), ports) {
        ("-1", _) => (-1, -1),
        (_, (Some(from), Some(to))) if from <= to && to <= 65_535 => (from, to),
        _ => {
            return Err(Refusal::new(
                "InvalidParameterValue",
                format!("Invalid value for portRange of protocol {protocol}"),
            ));
        }
    };
    let description = text(about, "Description").map(ToString::to_string);
    Ok(Rule { protocol, from, to, source, description })
}

fn show_rule(group: &str, id: &str, rule: &Rule, account: &str) -> Value {
    let mut told = json!({
        "SecurityGroupRuleId": id, "GroupId": group, "GroupOwnerId": account, "IsEgress": false,
        "IpProtocol": rule.protocol, "FromPort": rule.from, "ToPort": rule.to, "Description": rule.description,
    });
    match &rule.source {
        Source::Cidr(text, _) => told["CidrIpv4"] = text.as_str().into(),
        Source::Cidr6(text) => told["CidrIpv6"] = text.as_str().into(),
        Source::Group(other) => told["ReferencedGroupInfo"] = json!({ "GroupId": other, "UserId": account }),
    }
    told
}
