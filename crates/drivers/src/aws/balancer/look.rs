//! Looks at the parts of a load balancer, as the plan asks for them. An error while looking is never "not there".

use super::desired::Nodes;
use super::model::{Balancer, Group, Listener, Subnet, TargetGroup, TargetHealth, attributes};
use super::plan::{Observed, Part};
use crate::aws::client::{Params, Service, numbered, param};
use crate::aws::driver::Driver;
use crate::aws::error::CallError;
use crate::aws::machine::model::Instance;
use crate::aws::tags::{self, Tags};
use crate::aws::xml::Element;
use crate::failure::Failure;
use crate::seam::Owner;
use std::collections::{BTreeMap, BTreeSet};

/// No call of ELB takes more ARNs for their tags.
const TAGS_AT_ONCE: usize = 20;

/// Whose load balancer, and how it is called.
pub(super) struct Whose<'a> {
    pub(super) owner: &'a Owner,
    pub(super) stem: &'a str,
    pub(super) name: &'a str,
    pub(super) subnets: &'a [String],
}

impl Driver {
    /// Looks at one part.
    pub(super) async fn look(
        &self,
        part: Part,
        whose: &Whose<'_>,
        seen: &mut Observed,
        object: &str,
    ) -> Result<(), Failure> {
        match part {
            Part::Subnets => seen.subnets = Some(self.subnets(whose.subnets, object).await?),
            Part::Balancer => seen.balancer = Some(self.balancer(whose.name, object).await?),
            Part::TargetGroups => {
                let prefix = format!("{}-", whose.stem);
                let all = self.elb_pages("DescribeTargetGroups", Vec::new(), object).await?;
                let all =
                    all.iter().flat_map(|answer| answer.list("DescribeTargetGroupsResult/TargetGroups"));
                let ours = all.map(TargetGroup::read).filter(|group| group.name.starts_with(&prefix));
                seen.target_groups = Some(ours.collect());
            }
            Part::Listeners { balancer } => seen.listeners = Some(self.listeners(&balancer, object).await?),
            Part::Tags { arns } => {
                let found = self.tags(&arns, object).await?;
                // What went away in between, or is too new, shows none.
                seen.tags.extend(arns.into_iter().map(|arn| (arn, Tags::new())));
                seen.tags.extend(found);
            }
            Part::Groups { vpc } => {
                let filter = tags::filters(&[("group-name", whose.name), ("vpc-id", &vpc)]);
                seen.groups = Some(self.security_groups(filter, object).await?);
            }
            Part::Nodes { nodes, vpc } => {
                seen.nodes = Some(self.nodes(&nodes, &vpc, whose.owner, object).await?)
            }
            Part::OwnGroups => {
                seen.groups = Some(self.security_groups(tags::filter(whose.owner), object).await?)
            }
            Part::Attributes { balancer } => {
                let params = vec![param("LoadBalancerArn", &balancer)];
                let answer = self.elb("DescribeLoadBalancerAttributes", params, object).await?;
                seen.attributes =
                    Some(attributes(&answer, "DescribeLoadBalancerAttributesResult/Attributes"));
            }
            Part::GroupAttributes { target_group } => {
                let params = vec![param("TargetGroupArn", &target_group)];
                let answer = self.elb("DescribeTargetGroupAttributes", params, object).await?;
                let found = attributes(&answer, "DescribeTargetGroupAttributesResult/Attributes");
                seen.group_attributes.insert(target_group, found);
            }
            Part::Health { target_group } => {
                let params = vec![param("TargetGroupArn", &target_group)];
                let answer = self.elb("DescribeTargetHealth", params, object).await?;
                let found = answer.list("DescribeTargetHealthResult/TargetHealthDescriptions");
                seen.health.insert(target_group, found.map(TargetHealth::read).collect());
            }
            Part::Instances { ids, ips, vpc } => {
                seen.instances = Some(self.instances(&ids, &ips, &vpc, object).await?);
            }
        }
        Ok(())
    }

    pub(crate) async fn elb(
        &self,
        action: &'static str,
        params: Params,
        object: &str,
    ) -> Result<Element, Failure> {
        let answer = self.client.read(Service::Elb, action, params, object).await;
        answer.map_err(|error| error.failure(&format!("{action} for {object}")))
    }

    /// All pages of a list of ELB.
    pub(crate) async fn elb_pages(
        &self,
        action: &'static str,
        params: Params,
        object: &str,
    ) -> Result<Vec<Element>, Failure> {
        let mut answers = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut params = params.clone();
            params.extend(next.iter().map(|marker| param("Marker", marker)));
            let answer = self.elb(action, params, object).await?;
            next = answer.text(&format!("{action}Result/NextMarker")).map(str::to_owned);
            answers.push(answer);
            if next.is_none() {
                return Ok(answers);
            }
        }
    }

    /// Subnets by id; those that are not there are an error.
    pub(crate) async fn subnets(&self, ids: &[String], object: &str) -> Result<Vec<Subnet>, Failure> {
        let known = |all: &[Subnet]| -> Option<Vec<Subnet>> {
            ids.iter().map(|id| all.iter().find(|subnet| subnet.id == *id).cloned()).collect()
        };
        if let Some(known) = known(&self.subnets.lock()) {
            return Ok(known);
        }
        let found = self.subnets_now(ids, object).await?;
        let mut kept = self.subnets.lock();
        let unknown: Vec<Subnet> =
            found.iter().filter(|one| !kept.iter().any(|other| other.id == one.id)).cloned().collect();
        kept.extend(unknown);
        Ok(found)
    }

    /// The same, with as many free addresses as there are now.
    pub(crate) async fn subnets_now(&self, ids: &[String], object: &str) -> Result<Vec<Subnet>, Failure> {
        let params = numbered("SubnetId", ids.iter().map(String::as_str));
        let answers = self.pages("DescribeSubnets", params, object).await?;
        Ok(answers.iter().flat_map(|answer| answer.list("subnetSet")).map(Subnet::read).collect())
    }

    pub(crate) async fn balancer(&self, name: &str, object: &str) -> Result<Option<Balancer>, Failure> {
        let params = vec![param("Names.member.1", name)];
        match self.client.read(Service::Elb, "DescribeLoadBalancers", params, object).await {
            Ok(answer) => {
                let found =
                    answer.list("DescribeLoadBalancersResult/LoadBalancers").next().map(Balancer::read);
                Ok(found)
            }
            Err(CallError::Refused(refusal)) if refusal.not_found() => Ok(None),
            Err(error) => Err(error.failure(&format!("DescribeLoadBalancers for {object}"))),
        }
    }

    async fn listeners(&self, balancer: &str, object: &str) -> Result<Vec<Listener>, Failure> {
        let params = vec![param("LoadBalancerArn", balancer)];
        let answers = self.elb_pages("DescribeListeners", params, object).await?;
        let all = answers.iter().flat_map(|answer| answer.list("DescribeListenersResult/Listeners"));
        Ok(all.map(Listener::read).collect())
    }

    /// Tags by ARN. A thing that is gone has none.
    pub(crate) async fn tags(
        &self,
        arns: &[String],
        object: &str,
    ) -> Result<BTreeMap<String, Tags>, Failure> {
        let mut all = BTreeMap::new();
        for some in arns.chunks(TAGS_AT_ONCE) {
            let params = numbered("ResourceArns.member", some.iter().map(String::as_str));
            let answer = self.elb("DescribeTags", params, object).await?;
            for one in answer.list("DescribeTagsResult/TagDescriptions") {
                let tags = one.list("Tags").map(|tag| (tag.string("Key"), tag.string("Value"))).collect();
                all.insert(one.string("ResourceArn"), tags);
            }
        }
        Ok(all)
    }

    pub(crate) async fn security_groups(&self, params: Params, object: &str) -> Result<Vec<Group>, Failure> {
        let answers = self.pages("DescribeSecurityGroups", params, object).await?;
        Ok(answers.iter().flat_map(|answer| answer.list("securityGroupInfo")).map(Group::read).collect())
    }

    /// Where the cluster's machines come from: their subnets, and for an internet-facing load balancer also their public
    /// addresses, or those of the VPC's gateways.
    async fn nodes(
        &self,
        nodes: &Nodes,
        vpc: &str,
        owner: &Owner,
        object: &str,
    ) -> Result<BTreeSet<String>, Failure> {
        let mut sources = BTreeSet::new();
        if !nodes.subnets.is_empty() {
            let subnets = self.subnets(&nodes.subnets, object).await?;
            sources.extend(subnets.into_iter().map(|subnet| subnet.cidr).filter(|cidr| !cidr.is_empty()));
        }
        if nodes.public {
            let filter = tags::filters(&[(&format!("tag:{}", tags::CLUSTER_UID), &owner.cluster_uid)]);
            let answers = self.pages("DescribeInstances", filter, object).await?;
            let machines = answers.iter().flat_map(Instance::list).filter(Instance::is_there);
            sources
                .extend(machines.filter_map(|machine| machine.public).map(|address| format!("{address}/32")));
        }
        if nodes.by_gateway {
            let answers =
                self.pages("DescribeNatGateways", tags::filters(&[("vpc-id", vpc)]), object).await?;
            let gateways = answers.iter().flat_map(|answer| answer.list("natGatewaySet"));
            let addresses = gateways.flat_map(|gateway| gateway.list("natGatewayAddressSet"));
            sources.extend(
                addresses.filter_map(|one| one.text("publicIp")).map(|address| format!("{address}/32")),
            );
        }
        Ok(sources)
    }

    /// Machines by id and by address.
    async fn instances(
        &self,
        ids: &[String],
        ips: &[String],
        vpc: &str,
        object: &str,
    ) -> Result<Vec<Instance>, Failure> {
        let mut all = Vec::new();
        for (filter, values) in [("instance-id", ids), ("private-ip-address", ips)] {
            if values.is_empty() {
                continue;
            }
            let mut params = tags::filters(&[("vpc-id", vpc)]);
            params.push(param("Filter.2.Name", filter));
            params.extend(numbered("Filter.2.Value", values.iter().map(String::as_str)));
            let answers = self.pages("DescribeInstances", params, object).await?;
            all.extend(answers.iter().flat_map(Instance::list));
        }
        Ok(all)
    }
}
