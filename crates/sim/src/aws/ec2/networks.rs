//! Networks, subnets, zones, addresses, network interfaces.

use crate::aws::input::{Filters, paged, show_tags, texts};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::rules::print_cidr;
use crate::aws::state::{Interface, State, Subnet};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// There is no address left.
#[derive(Debug)]
pub(in crate::aws) struct Taken;

impl Subnet {
    pub(in crate::aws) fn free(&self) -> u32 {
        self.room.saturating_sub(u32::try_from(self.taken.len()).unwrap_or(u32::MAX))
    }

    /// Takes the lowest free address, or a certain one.
    pub(in crate::aws) fn take(&mut self, wanted: Option<Ipv4Addr>) -> Result<Ipv4Addr, Taken> {
        if self.free() == 0 {
            return Err(Taken);
        }
        let size = 1_u32.checked_shl(32 - u32::from(self.cidr.1)).unwrap_or(u32::MAX);
        let network = u32::from(self.cidr.0);
        let mut usable = (4..size.saturating_sub(1)).map(|at| Ipv4Addr::from(network + at));
        let free = usable
            .find(|address| !self.taken.contains(address) && wanted.is_none_or(|wanted| wanted == *address));
        let address = free.ok_or(Taken)?;
        self.taken.insert(address);
        Ok(address)
    }
}

impl State {
    pub(in crate::aws) fn zones(&self) -> Vec<String> {
        let all: BTreeSet<String> = self.subnets.values().map(|subnet| subnet.zone.clone()).collect();
        all.into_iter().collect()
    }

    /// A public address that nobody has.
    pub(in crate::aws) fn take_public(&mut self) -> Ipv4Addr {
        let first = u32::from(Ipv4Addr::new(3, 64, 0, 10));
        let free = (first..).map(Ipv4Addr::from).find(|address| !self.public.contains(address));
        let address = free.unwrap_or(Ipv4Addr::new(3, 64, 0, 9));
        self.public.insert(address);
        address
    }

    pub(in crate::aws) fn release(&mut self, subnet: &str, address: Ipv4Addr) {
        if let Some(subnet) = self.subnets.get_mut(subnet) {
            subnet.taken.remove(&address);
        }
    }

    pub(in crate::aws) fn subnet(&self, id: &str) -> Result<&Subnet, Refusal> {
        self.subnets.get(id).ok_or_else(|| {
            Refusal::new("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist"))
        })
    }

    pub(in crate::aws) fn describe_vpcs(&self, input: &Value) -> Outcome {
        let filters = Filters::read(input, &["vpc-id", "state", "cidr", "is-default", "isDefault"])?;
        let ids = texts(input, "VpcIds");
        if let Some(id) = ids.iter().find(|id| !self.vpcs.contains_key(*id)) {
            return Err(Refusal::new("InvalidVpcID.NotFound", format!("The vpc ID '{id}' does not exist")));
        }
        let fits = |(id, vpc): &(&String, &crate::aws::state::Vpc)| {
            let of = |name: &str| {
                vec![match name {
                    "vpc-id" => (*id).clone(),
                    "state" => "available".to_string(),
                    "cidr" => print_cidr(vpc.cidr),
                    _ => "false".to_string(),
                }]
            };
            (ids.is_empty() || ids.contains(id)) && filters.fit(&vpc.tags, of)
        };
        let show = |(id, vpc): (&String, &crate::aws::state::Vpc)| {
            json!({
                "VpcId": id, "State": "available", "CidrBlock": print_cidr(vpc.cidr), "IsDefault": false,
                "OwnerId": self.account, "InstanceTenancy": "default", "Tags": show_tags(&vpc.tags),
                "CidrBlockAssociationSet": [{
                    "AssociationId": format!("vpc-cidr-assoc-{}", &id[4..]),
                    "CidrBlock": print_cidr(vpc.cidr), "CidrBlockState": { "State": "associated" },
                }],
            })
        };
        Ok(paged("Vpcs", self.vpcs.iter().filter(fits).map(show).collect(), input))
    }

    pub(in crate::aws) fn describe_subnets(&self, input: &Value) -> Outcome {
        let filters = Filters::read(
            input,
            &[
                "subnet-id",
                "vpc-id",
                "availability-zone",
                "availabilityZone",
                "state",
                "map-public-ip-on-launch",
            ],
        )?;
        let ids = texts(input, "SubnetIds");
        for id in &ids {
            self.subnet(id)?;
        }
        let mut told = Vec::new();
        for (id, subnet) in &self.subnets {
            let of = |name: &str| {
                vec![match name {
                    "subnet-id" => id.clone(),
                    "vpc-id" => subnet.vpc.clone(),
                    "availability-zone" | "availabilityZone" => subnet.zone.clone(),
                    "map-public-ip-on-launch" => subnet.public.to_string(),
                    _ => "available".to_string(),
                }]
            };
            if (ids.is_empty() || ids.contains(id)) && filters.fit(&subnet.tags, of) {
                told.push(json!({
                    "SubnetId": id, "VpcId": subnet.vpc, "State": "available", "OwnerId": self.account,
                    "AvailabilityZone": subnet.zone, "CidrBlock": print_cidr(subnet.cidr),
                    "AvailableIpAddressCount": subnet.free(), "MapPublicIpOnLaunch": subnet.public,
                    "DefaultForAz": false, "AssignIpv6AddressOnCreation": false, "Ipv6Native": false,
                    "SubnetArn": format!("arn:aws:ec2:{}:{}:subnet/{id}", self.region, self.account),
                    "Tags": show_tags(&subnet.tags),
                }));
            }
        }
        Ok(paged("Subnets", told, input))
    }

    pub(in crate::aws) fn describe_zones(&self, input: &Value) -> Outcome {
        let filters =
            Filters::read(input, &["zone-name", "state", "region-name", "zone-type", "opt-in-status"])?;
        let named = texts(input, "ZoneNames");
        let mut told = Vec::new();
        for zone in self.zones() {
            let of = |name: &str| {
                vec![match name {
                    "zone-name" => zone.clone(),
                    "region-name" => self.region.clone(),
                    "zone-type" => "availability-zone".to_string(),
                    "opt-in-status" => "opt-in-not-required".to_string(),
                    _ => "available".to_string(),
                }]
            };
            if (named.is_empty() || named.contains(&zone)) && filters.fit(&Default::default(), of) {
                told.push(json!({
                    "ZoneName": zone, "State": "available", "RegionName": self.region,
                    "ZoneType": "availability-zone", "OptInStatus": "opt-in-not-required",
                }));
            }
        }
        Ok(json!({ "AvailabilityZones": told }))
    }

    pub(in crate::aws) fn describe_regions(&self, input: &Value) -> Outcome {
        Filters::read(input, &["region-name", "endpoint", "opt-in-status"])?;
        let endpoint = format!("ec2.{}.amazonaws.com", self.region);
        Ok(
            json!({ "Regions": [{ "RegionName": self.region, "Endpoint": endpoint, "OptInStatus": "opt-in-not-required" }] }),
        )
    }

    /// The old way to ask for quotas.
    pub(in crate::aws) fn describe_account_attributes(&self, input: &Value) -> Outcome {
        let named = texts(input, "AttributeNames");
        let known = [
            ("supported-platforms", "VPC".to_string()),
            ("default-vpc", "none".to_string()),
            ("max-instances", (self.quotas.vcpus / 2).to_string()),
            ("vpc-max-security-groups-per-interface", "5".to_string()),
            ("max-elastic-ips", "5".to_string()),
            ("vpc-max-elastic-ips", "5".to_string()),
        ];
        let wanted =
            known.into_iter().filter(|(name, _)| named.is_empty() || named.iter().any(|n| n == name));
        let told: Vec<Value> = wanted
            .map(|(name, value)| {
                json!({ "AttributeName": name, "AttributeValues": [{ "AttributeValue": value }] })
            })
            .collect();
        Ok(json!({ "AccountAttributes": told }))
    }

    /// Interfaces of load balancers. Those of machines are shown with them.
    pub(in crate::aws) fn describe_interfaces(&self, input: &Value) -> Outcome {
        let filters = Filters::read(
            input,
            &[
                "network-interface-id",
                "subnet-id",
                "vpc-id",
                "group-id",
                "description",
                "status",
                "requester-id",
                "interface-type",
            ],
        )?;
        let ids = texts(input, "NetworkInterfaceIds");
        if let Some(id) = ids.iter().find(|id| !self.interfaces.contains_key(*id)) {
            let why = format!("The networkInterface ID '{id}' does not exist");
            return Err(Refusal::new("InvalidNetworkInterfaceID.NotFound", why));
        }
        let mut told = Vec::new();
        for (id, interface) in &self.interfaces {
            let subnet = self.subnets.get(&interface.subnet);
            let vpc = subnet.map(|subnet| subnet.vpc.clone()).unwrap_or_default();
            let of = |name: &str| match name {
                "network-interface-id" => vec![id.clone()],
                "subnet-id" => vec![interface.subnet.clone()],
                "vpc-id" => vec![vpc.clone()],
                "group-id" => interface.groups.clone(),
                "description" => vec![interface.description.clone()],
                "requester-id" => vec!["amazon-elb".to_string()],
                "interface-type" => vec!["network_load_balancer".to_string()],
                _ => vec!["in-use".to_string()],
            };
            if (ids.is_empty() || ids.contains(id)) && filters.fit(&Default::default(), of) {
                told.push(self.show_interface(id, interface, &vpc));
            }
        }
        Ok(paged("NetworkInterfaces", told, input))
    }

    fn show_interface(&self, id: &str, interface: &Interface, vpc: &str) -> Value {
        let zone = self.subnets.get(&interface.subnet).map(|subnet| subnet.zone.clone());
        let groups: Vec<Value> = interface.groups.iter().map(|group| json!({ "GroupId": group })).collect();
        json!({
            "NetworkInterfaceId": id, "SubnetId": interface.subnet, "VpcId": vpc, "AvailabilityZone": zone,
            "Description": interface.description, "PrivateIpAddress": interface.private.to_string(),
            "Status": "in-use", "RequesterManaged": true, "RequesterId": "amazon-elb", "OwnerId": self.account,
            "InterfaceType": "network_load_balancer", "SourceDestCheck": false, "Groups": groups,
            "Association": interface.public.map(|public| json!({ "PublicIp": public.to_string() })),
        })
    }
}
