//! Machines: made, and described.

use super::types;
use crate::aws::input::{Filters, flag, list, number, only, paged, show_tags, tags, text, texts, time};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::site::AwsSecret;
use crate::aws::state::{Instance, Power, State, Tags, Volume};
use crate::delays;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// What a launch may say; the rest is refused by name.
const SIMULATED: [&str; 21] = [
    "BlockDeviceMappings",
    "ClientToken",
    "CreditSpecification",
    "DisableApiTermination",
    "DryRun",
    "EbsOptimized",
    "IamInstanceProfile",
    "ImageId",
    "InstanceInitiatedShutdownBehavior",
    "InstanceType",
    "MaxCount",
    "MetadataOptions",
    "MinCount",
    "Monitoring",
    "NetworkInterfaces",
    "Placement",
    "PrivateIpAddress",
    "SecurityGroupIds",
    "SubnetId",
    "TagSpecifications",
    "UserData",
];
/// User data may be so long before it is encoded.
const LONGEST_USER_DATA: usize = 16 * 1024;

/// What a launch asks for, checked.
struct Launch {
    count: u32,
    kind: String,
    cpus: u32,
    image: String,
    subnet: String,
    groups: Vec<String>,
    wants_public: bool,
    address: Option<Ipv4Addr>,
    instance_tags: Tags,
    volume_tags: Tags,
}

impl State {
    pub(in crate::aws) fn run_instances(&mut self, input: &Value, now: u64) -> Outcome {
        only(Service::Ec2, input, &SIMULATED)?;
        let token = text(input, "ClientToken");
        if let Some((request, ids)) = token.and_then(|token| self.tokens.get(token)) {
            if *request == fingerprint(input) {
                return Ok(self.reservation(ids, now));
            }
            let why = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).";
            return Err(Refusal::new("IdempotentParameterMismatch", why));
        }
        let launch = self.check_launch(input)?;
        let ids = (0..launch.count)
            .map(|_| self.launch(&launch, input, now))
            .collect::<Result<Vec<String>, Refusal>>()?;
        if let Some(token) = token {
            self.tokens.insert(token.to_string(), (fingerprint(input), ids.clone()));
        }
        Ok(self.reservation(&ids, now))
    }

    fn check_launch(&self, input: &Value) -> Result<Launch, Refusal> {
        let (least, most): (u32, u32) =
            (number(input, "MinCount").unwrap_or(0), number(input, "MaxCount").unwrap_or(0));
        if least == 0 || most < least {
            return Err(Refusal::new(
                "InvalidParameterValue",
                "MinCount and MaxCount must be at least 1, and in order",
            ));
        }
        let (image, kind, cpus) = self.check_kind(input)?;
        let card = list(input, "NetworkInterfaces").first();
        let (subnet, groups) = self.check_network(input, card)?;
        self.check_room_for(most, cpus, &subnet)?;
        check_user_data(input)?;
        let (instance_tags, volume_tags) = tag_specifications(input)?;
        let public = self.subnet(&subnet)?.public;
        let address =
            card.and_then(|card| text(card, "PrivateIpAddress")).or(text(input, "PrivateIpAddress"));
        Ok(Launch {
            count: most,
            kind,
            cpus,
            image,
            wants_public: card.and_then(|card| flag(card, "AssociatePublicIpAddress")).unwrap_or(public),
            subnet,
            groups,
            address: address.and_then(|address| address.parse().ok()),
            instance_tags,
            volume_tags,
        })
    }

    /// Image, instance type and its virtual CPUs.
    fn check_kind(&self, input: &Value) -> Result<(String, String, u32), Refusal> {
        let image = text(input, "ImageId").unwrap_or_default();
        if image.is_empty() {
            return Err(Service::Ec2.missing_parameter("ImageId"));
        }
        let architecture = &self.image(image)?.architecture;
        let kind = text(input, "InstanceType").unwrap_or("m1.small");
        let Some((cpus, _)) = types::capacity(kind) else {
            return Err(Service::Ec2.not_simulated(&format!("instance type {kind}")));
        };
        if types::architecture(kind) != architecture {
            let why = format!(
                "The architecture '{}' of the specified instance type does not match the architecture '{architecture}' of the specified AMI.",
                types::architecture(kind)
            );
            return Err(Refusal::new("InvalidParameterValue", why));
        }
        Ok((image.to_string(), kind.to_string(), cpus))
    }

    /// Whether the account and the subnet have room for so many more machines.
    fn check_room_for(&self, most: u32, cpus: u32, subnet: &str) -> Result<(), Refusal> {
        let on = |instance: &&Instance| matches!(instance.power, Power::Pending | Power::Running);
        let running = self.instances.values().filter(on);
        let used: u32 =
            running.filter_map(|instance| types::capacity(&instance.kind)).map(|(cpus, _)| cpus).sum();
        if used + cpus * most > self.quotas.vcpus {
            let why = format!(
                "You have requested more vCPU capacity than your current vCPU limit of {} allows for the instance bucket that the specified instance type belongs to.",
                self.quotas.vcpus
            );
            return Err(Refusal::new("VcpuLimitExceeded", why));
        }
        if self.subnet(subnet)?.free() < most {
            let why = format!(
                "There are not enough free addresses in subnet '{subnet}' to satisfy the requested number of instances."
            );
            return Err(Refusal::new("InsufficientFreeAddressesInSubnet", why));
        }
        Ok(())
    }

    fn check_network(&self, input: &Value, card: Option<&Value>) -> Result<(String, Vec<String>), Refusal> {
        let (subnet, groups) = match card {
            Some(card) => {
                if text(input, "SubnetId").is_some() || !texts(input, "SecurityGroupIds").is_empty() {
                    let why = "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request";
                    return Err(Refusal::new("InvalidParameterCombination", why));
                }
                (text(card, "SubnetId"), texts(card, "Groups"))
            }
            None => (text(input, "SubnetId"), texts(input, "SecurityGroupIds")),
        };
        let Some(subnet) = subnet else {
            return Err(Refusal::new(
                "MissingInput",
                "No subnets found for the default VPC. Please specify a subnet.",
            ));
        };
        let vpc = &self.subnet(subnet)?.vpc;
        for id in &groups {
            let group = self.group(id)?;
            if group.vpc != *vpc {
                let why = format!("Security group {id} and subnet {subnet} belong to different networks.");
                return Err(Refusal::new("InvalidParameter", why));
            }
        }
        if groups.is_empty() {
            let own = self.groups.iter().find(|(_, group)| group.vpc == *vpc && group.name == "default");
            return Ok((subnet.to_string(), own.map(|(id, _)| id.clone()).into_iter().collect()));
        }
        Ok((subnet.to_string(), groups))
    }

    fn launch(&mut self, launch: &Launch, input: &Value, now: u64) -> Result<String, Refusal> {
        let taken = self.subnets.get_mut(&launch.subnet).map(|subnet| subnet.take(launch.address));
        let Some(Ok(private)) = taken else {
            let why = format!("Address {:?} is in use.", launch.address);
            return Err(Refusal::new("InvalidIPAddress.InUse", why));
        };
        let id = self.id("i");
        let volumes = self.launch_volumes(&id, launch, input, now);
        let public = launch.wants_public.then(|| self.take_public());
        let due = now + self.scaled(delays::AWS_INSTANCE_STARTS);
        let visible = now + self.scaled(delays::AWS_VISIBLE);
        let profile = input.get("IamInstanceProfile");
        let profile = profile.and_then(|profile| text(profile, "Name").or(text(profile, "Arn")));
        tracing::debug!(instance = %id, cpus = launch.cpus, "SIMULATED: an instance is launched");
        let instance = Instance {
            kind: launch.kind.clone(),
            image: launch.image.clone(),
            subnet: launch.subnet.clone(),
            private,
            public,
            wants_public: launch.wants_public,
            groups: launch.groups.clone(),
            volumes,
            profile: profile.map(ToString::to_string),
            token: text(input, "ClientToken").map(ToString::to_string),
            user_data: user_data(input),
            launched: now,
            power: Power::Pending,
            due: Some(due),
            visible,
            booted: false,
            source_dest_check: true,
            protected: flag(input, "DisableApiTermination").unwrap_or(false),
            tags: launch.instance_tags.clone(),
        };
        self.instances.insert(id.clone(), instance);
        Ok(id)
    }

    /// The root volume, as the image or the request wants it, and the further ones.
    fn launch_volumes(
        &mut self,
        instance: &str,
        launch: &Launch,
        input: &Value,
        now: u64,
    ) -> Vec<(String, String)> {
        let root_size = self.images.get(&launch.image).map_or(8, |image| image.size);
        let zone = self.subnets.get(&launch.subnet).map(|subnet| subnet.zone.clone()).unwrap_or_default();
        let mut devices = vec![("/dev/xvda".to_string(), json!({ "VolumeSize": root_size }))];
        for mapping in list(input, "BlockDeviceMappings") {
            let name = text(mapping, "DeviceName").unwrap_or_default().to_string();
            let ebs = mapping.get("Ebs").cloned().unwrap_or_default();
            match devices.iter_mut().find(|(device, _)| *device == name) {
                Some((_, root)) => *root = ebs,
                None => devices.push((name, ebs)),
            }
        }
        let mut made = Vec::new();
        for (device, ebs) in devices {
            let id = self.id("vol");
            let volume = Volume {
                size: number(&ebs, "VolumeSize").unwrap_or(root_size),
                kind: text(&ebs, "VolumeType").unwrap_or("gp2").to_string(),
                zone: zone.clone(),
                encrypted: flag(&ebs, "Encrypted").unwrap_or(false),
                attached: Some(instance.to_string()),
                // The root volume goes with its instance unless told otherwise, and others stay.
                dies_with_instance: flag(&ebs, "DeleteOnTermination").unwrap_or(device == "/dev/xvda"),
                created: now,
                tags: launch.volume_tags.clone(),
            };
            self.volumes.insert(id.clone(), volume);
            made.push((device, id));
        }
        made
    }

    fn reservation(&self, ids: &[String], now: u64) -> Value {
        let instances: Vec<Value> = ids.iter().filter_map(|id| self.show_instance(id, now)).collect();
        json!({
            "ReservationId": format!("r-{}", ids.first().map_or("0", |id| &id[2..])),
            "OwnerId": self.account, "Instances": instances,
        })
    }

    pub(in crate::aws) fn describe_instances(&self, input: &Value, now: u64) -> Outcome {
        let filters = Filters::read(
            input,
            &[
                "instance-state-name",
                "instance-state-code",
                "instance-id",
                "instance-type",
                "client-token",
                "vpc-id",
                "subnet-id",
                "image-id",
                "private-ip-address",
                "ip-address",
                "availability-zone",
                "instance.group-id",
                "network-interface.group-id",
            ],
        )?;
        let ids = texts(input, "InstanceIds");
        if !ids.is_empty() && input.get("MaxResults").is_some() {
            let why = "The parameter instancesSet cannot be used with the parameter maxResults";
            return Err(Refusal::new("InvalidParameterCombination", why));
        }
        self.check_ids(&ids, now)?;
        let fits = |(id, instance): &(&String, &Instance)| {
            let subnet = self.subnets.get(&instance.subnet);
            let of = |name: &str| match name {
                "instance-state-name" => vec![instance.power.name().to_string()],
                "instance-state-code" => vec![instance.power.code().to_string()],
                "instance-id" => vec![(*id).clone()],
                "instance-type" => vec![instance.kind.clone()],
                "client-token" => instance.token.clone().into_iter().collect(),
                "vpc-id" => subnet.map(|subnet| subnet.vpc.clone()).into_iter().collect(),
                "availability-zone" => subnet.map(|subnet| subnet.zone.clone()).into_iter().collect(),
                "subnet-id" => vec![instance.subnet.clone()],
                "image-id" => vec![instance.image.clone()],
                "private-ip-address" => vec![instance.private.to_string()],
                "ip-address" => instance.public.map(|public| public.to_string()).into_iter().collect(),
                _ => instance.groups.clone(),
            };
            (ids.is_empty() || ids.contains(id)) && instance.visible <= now && filters.fit(&instance.tags, of)
        };
        let found = self.instances.iter().filter(fits);
        let told = found.map(|(id, _)| self.reservation(std::slice::from_ref(id), now)).collect();
        Ok(paged("Reservations", told, input))
    }

    /// # Errors
    /// Names the first that is none, or that is not to be seen yet.
    pub(in crate::aws) fn check_ids(&self, ids: &[String], now: u64) -> Result<(), Refusal> {
        for id in ids {
            let good = id.strip_prefix("i-").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_hexdigit()));
            if !good {
                return Err(Refusal::new("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\"")));
            }
            if self.instances.get(id).is_none_or(|instance| instance.visible > now) {
                let why = format!("The instance ID '{id}' does not exist");
                return Err(Refusal::new("InvalidInstanceID.NotFound", why));
            }
        }
        Ok(())
    }

    fn show_instance(&self, id: &str, now: u64) -> Option<Value> {
        let instance = self.instances.get(id)?;
        let subnet = self.subnets.get(&instance.subnet);
        let groups: Vec<Value> = instance
            .groups
            .iter()
            .map(|id| json!({ "GroupId": id, "GroupName": self.groups.get(id).map(|group| group.name.clone()) }))
            .collect();
        let mut told = json!({
            "InstanceId": id, "ImageId": instance.image, "InstanceType": instance.kind, "AmiLaunchIndex": 0,
            "State": { "Code": instance.power.code(), "Name": instance.power.name() },
            "LaunchTime": time(instance.launched), "ClientToken": instance.token.clone().unwrap_or_default(),
            "Placement": { "AvailabilityZone": subnet.map(|subnet| subnet.zone.clone()), "GroupName": "", "Tenancy": "default" },
            "Monitoring": { "State": "disabled" }, "Architecture": types::architecture(&instance.kind),
            "RootDeviceType": "ebs", "RootDeviceName": "/dev/xvda", "VirtualizationType": "hvm", "Hypervisor": "xen",
            "EbsOptimized": false, "SourceDestCheck": instance.source_dest_check, "Tags": show_tags(&instance.tags),
        });
        if instance.power == Power::Terminated {
            // What it was attached to is gone with it.
            told["StateReason"] = json!({ "Code": "Client.UserInitiatedShutdown", "Message": "Client.UserInitiatedShutdown: User initiated shutdown" });
            return Some(told);
        }
        told["SubnetId"] = instance.subnet.as_str().into();
        told["VpcId"] = json!(subnet.map(|subnet| subnet.vpc.clone()));
        told["PrivateIpAddress"] = instance.private.to_string().into();
        told["PublicIpAddress"] =
            json!(instance.public.filter(|_| now >= instance.visible).map(|public| public.to_string()));
        told["SecurityGroups"] = json!(groups);
        told["BlockDeviceMappings"] = self.show_devices(instance);
        told["NetworkInterfaces"] = json!([{
            "NetworkInterfaceId": format!("eni-{}", &id[2..]), "MacAddress": mac(id), "Status": "in-use",
            "PrivateIpAddress": instance.private.to_string(), "SubnetId": instance.subnet, "Groups": groups,
            "Attachment": { "DeviceIndex": 0, "Status": "attached", "DeleteOnTermination": true },
        }]);
        if let Some(profile) = &instance.profile {
            let arn = format!(
                "arn:aws:iam::{}:instance-profile/{}",
                self.account,
                profile.rsplit('/').next().unwrap_or_default()
            );
            told["IamInstanceProfile"] = json!({ "Arn": arn });
        }
        Some(told)
    }

    fn show_devices(&self, instance: &Instance) -> Value {
        let show = |(device, id): &(String, String)| {
            let volume = self.volumes.get(id)?;
            Some(json!({
                "DeviceName": device,
                "Ebs": {
                    "VolumeId": id, "Status": "attached", "AttachTime": time(volume.created),
                    "DeleteOnTermination": volume.dies_with_instance,
                },
            }))
        };
        instance.volumes.iter().filter_map(show).collect()
    }
}

/// A hardware address that stays the same for the same machine.
fn mac(id: &str) -> String {
    let digits: Vec<char> = id.chars().rev().filter(char::is_ascii_hexdigit).take(10).collect();
    let pairs: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    format!("0a:{}", pairs.join(":"))
}

/// Two requests with one token have to be the same. The whole of it is not kept: there are secrets in it.
fn fingerprint(input: &Value) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, input.to_string().as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the machine reads at its first boot.
fn user_data(input: &Value) -> Option<AwsSecret> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text(input, "UserData")?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    (!text.trim().is_empty()).then(|| AwsSecret::new(text))
}

fn check_user_data(input: &Value) -> Result<(), Refusal> {
    use base64::Engine;
    let Some(data) = text(input, "UserData") else { return Ok(()) };
    match base64::engine::general_purpose::STANDARD.decode(data) {
        Err(_) => Err(Refusal::new("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")),
        Ok(bytes) if bytes.len() > LONGEST_USER_DATA => {
            Err(Refusal::new("InvalidParameterValue", "User data is limited to 16384 bytes"))
        }
        Ok(_) => Ok(()),
    }
}

/// Tags for instances and for volumes.
fn tag_specifications(input: &Value) -> Result<(Tags, Tags), Refusal> {
    let (mut instances, mut volumes) = (Tags::new(), Tags::new());
    for specification in list(input, "TagSpecifications") {
        let given = tags(list(specification, "Tags"));
        super::tags::check(&given)?;
        match text(specification, "ResourceType") {
            Some("instance") => instances.extend(given),
            Some("volume") => volumes.extend(given),
            Some("network-interface") => {}
            other => {
                let why = format!(
                    "{:?} is not a valid taggable resource type for this operation.",
                    other.unwrap_or_default()
                );
                return Err(Refusal::new("InvalidParameterValue", why));
            }
        }
    }
    Ok((instances, volumes))
}
