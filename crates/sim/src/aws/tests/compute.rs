use super::*;
use crate::aws::state::Power;

#[test]
fn a_launch_with_the_same_token_is_one_launch_and_another_request_with_it_is_refused() {
    let mut account = Account::new();
    let first = account.launch("cp-0", "token-1", SUBNETS[0]).unwrap();
    assert_eq!(account.launch("cp-0", "token-1", SUBNETS[0]).unwrap(), first);
    assert_eq!(account.launch("cp-1", "token-1", SUBNETS[0]).unwrap_err(), "IdempotentParameterMismatch");
    assert_ne!(
        account.launch("cp-0", "token-2", SUBNETS[0]).unwrap(),
        first,
        "names don't make a machine unique"
    );
    assert_eq!(account.state.instances.len(), 2);
}

#[test]
fn an_instance_lives_from_pending_to_terminated_and_leaves_nothing() {
    let mut account = Account::new();
    let id = account.launch("cp-0", "t", SUBNETS[1]).unwrap();
    // What was just made is not seen at once.
    assert_eq!(
        account.ec2("DescribeInstances", &[("InstanceId.1", &id)]).unwrap_err(),
        "InvalidInstanceID.NotFound"
    );
    account.pass(1);
    let told = account.ec2("DescribeInstances", &[("InstanceId.1", &id)]).unwrap();
    assert_eq!(element(&told, "instanceState").unwrap(), "<code>0</code><name>pending</name>");
    let private = element(&told, "privateIpAddress").unwrap();
    assert_eq!(private, "10.0.2.4");
    let effects = account.pass(10);
    assert!(
        matches!(&effects[0], Effect::PowerOn { boot, .. } if boot.hostname == "cp-0" && !boot.known),
        "{effects:?}"
    );
    assert!(matches!(&effects[1], Effect::Lead { to: Some(to), .. } if to.to_string() == private));
    assert_eq!(account.state.inventory(), ["instance cp-0", &volume(&account, 0), &volume(&account, 1)]);
    account.ec2("StopInstances", &[("InstanceId.1", &id)]).unwrap();
    assert_eq!(
        account.ec2("StartInstances", &[("InstanceId.1", &id)]).unwrap_err(),
        "IncorrectInstanceState"
    );
    assert!(matches!(account.pass(30)[0], Effect::PowerOff { .. }));
    account.ec2("StartInstances", &[("InstanceId.1", &id)]).unwrap();
    assert!(matches!(&account.pass(10)[0], Effect::PowerOn { boot, .. } if boot.known));
    account.ec2("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    let told = account.ec2("DescribeInstances", &[("InstanceId.1", &id)]).unwrap();
    assert!(told.contains("shutting-down"), "{told}");
    assert!(matches!(account.pass(40)[0], Effect::Remove { .. }));
    account.ec2("TerminateInstances", &[("InstanceId.1", &id)]).unwrap();
    let told = account.ec2("DescribeInstances", &[("InstanceId.1", &id)]).unwrap();
    assert!(told.contains("terminated") && !told.contains("privateIpAddress"), "{told}");
    assert_eq!(account.state.inventory(), Vec::<String>::new());
    assert_eq!(account.state.subnets[SUBNETS[1]].taken.len(), 0, "its address is free again");
    assert!(account.state.public.is_empty());
}

fn volume(account: &Account, at: usize) -> String {
    format!("volume {}", account.state.volumes.keys().nth(at).unwrap())
}

#[test]
fn a_machine_that_goes_off_by_itself_is_stopped() {
    let mut account = Account::new();
    let id = account.launch("cp-0", "t", SUBNETS[0]).unwrap();
    account.pass(10);
    assert!(account.state.observe_off(&id));
    assert!(!account.state.observe_off(&id));
    assert_eq!(account.state.instances[&id].power, Power::Stopped);
}

#[test]
fn a_launch_that_cannot_be_is_refused_for_its_own_reason() {
    let mut site = AwsSite::example();
    site.quotas.vcpus = 10;
    site.subnets[2].free = Some(1);
    let mut account = Account::of(&site);
    let mut refused = |key: &str, value: &str| {
        let mut params = launch("a", "x", SUBNETS[0]);
        params.retain(|(name, _)| *name != key);
        params.push((key, value));
        account.ec2("RunInstances", &params).unwrap_err()
    };
    assert_eq!(refused("ImageId", "ami-0123456789abcdef0"), "InvalidAMIID.NotFound");
    assert_eq!(refused("ImageId", "talos"), "InvalidAMIID.Malformed");
    assert_eq!(refused("SubnetId", "subnet-1"), "InvalidSubnetID.NotFound");
    assert_eq!(refused("SecurityGroupId.1", "sg-1"), "InvalidGroup.NotFound");
    assert_eq!(refused("InstanceType", "m5.4xlarge"), "VcpuLimitExceeded");
    assert_eq!(refused("InstanceType", "m6g.large"), "InvalidParameterValue");
    assert_eq!(refused("UserData", "not base64!"), "InvalidUserData.Malformed");
    assert_eq!(refused("KeyName", "mine"), "UnsupportedOperation");
    assert_eq!(refused("DryRun", "true"), "DryRunOperation");
    account.launch("a", "1", SUBNETS[2]).unwrap();
    assert_eq!(account.launch("b", "2", SUBNETS[2]).unwrap_err(), "InsufficientFreeAddressesInSubnet");
    account.launch("c", "3", SUBNETS[0]).unwrap();
    assert_eq!(account.launch("d", "4", SUBNETS[0]).unwrap_err(), "VcpuLimitExceeded");
}

#[test]
fn instances_are_found_by_filters_and_in_pages() {
    let mut account = Account::new();
    for name in ["cp-0", "cp-1", "wk-0"] {
        account.launch(name, name, SUBNETS[0]).unwrap();
    }
    account.pass(10);
    let found = |account: &mut Account, params: &[(&str, &str)]| {
        account.ec2("DescribeInstances", params).map(|xml| xml.matches("<instanceId>").count())
    };
    let by_name = [("Filter.1.Name", "tag:Name"), ("Filter.1.Value.1", "cp-*")];
    assert_eq!(found(&mut account, &by_name), Ok(2));
    let state = [("Filter.1.Name", "instance-state-name"), ("Filter.1.Value.1", "stopped")];
    assert_eq!(found(&mut account, &state), Ok(0));
    assert_eq!(found(&mut account, &[("Filter.1.Name", "colour")]), Err("InvalidParameterValue".to_string()));
    assert_eq!(found(&mut account, &[("MaxResults", "2")]), Ok(2));
    let page = account.ec2("DescribeInstances", &[("MaxResults", "2")]).unwrap();
    let token = element(&page, "nextToken").unwrap();
    assert_eq!(found(&mut account, &[("MaxResults", "2"), ("NextToken", &token)]), Ok(1));
}

#[test]
fn security_groups_hold_rules_once_and_stay_while_somebody_has_them() {
    let mut account = Account::new();
    let create = [("GroupName", "lb"), ("GroupDescription", "d"), ("VpcId", VPC)];
    let made = account.ec2("CreateSecurityGroup", &create).unwrap();
    let id = element(&made, "groupId").unwrap();
    assert_eq!(account.ec2("CreateSecurityGroup", &create).unwrap_err(), "InvalidGroup.Duplicate");
    let rule = |cidr: &'static str| {
        [
            ("GroupId", id.as_str()),
            ("IpPermissions.1.IpProtocol", "tcp"),
            ("IpPermissions.1.FromPort", "6443"),
            ("IpPermissions.1.ToPort", "6443"),
            ("IpPermissions.1.IpRanges.1.CidrIp", cidr),
        ]
    };
    account.ec2("AuthorizeSecurityGroupIngress", &rule("10.0.0.0/8")).unwrap();
    let again = account.ec2("AuthorizeSecurityGroupIngress", &rule("10.0.0.0/8"));
    assert_eq!(again.unwrap_err(), "InvalidPermission.Duplicate");
    let crooked = account.ec2("AuthorizeSecurityGroupIngress", &rule("10.0.0.1/8"));
    assert_eq!(crooked.unwrap_err(), "InvalidParameterValue");
    account.ec2("AuthorizeSecurityGroupIngress", &rule("192.168.0.0/16")).unwrap();
    let told = account.ec2("DescribeSecurityGroups", &[("GroupId.1", &id)]).unwrap();
    assert!(
        told.contains("<cidrIp>10.0.0.0/8</cidrIp>") && told.contains("<cidrIp>192.168.0.0/16</cidrIp>"),
        "{told}"
    );
    account.ec2("RevokeSecurityGroupIngress", &rule("10.0.0.0/8")).unwrap();
    let gone = account.ec2("RevokeSecurityGroupIngress", &rule("10.0.0.0/8"));
    assert_eq!(gone.unwrap_err(), "InvalidPermission.NotFound");
    let machine = account.launch("a", "1", SUBNETS[0]).unwrap();
    account.pass(10);
    assert_eq!(account.ec2("DeleteSecurityGroup", &[("GroupId", GROUP)]).unwrap_err(), "DependencyViolation");
    account.ec2("TerminateInstances", &[("InstanceId.1", &machine)]).unwrap();
    account.pass(40);
    account.ec2("DeleteSecurityGroup", &[("GroupId", GROUP)]).unwrap();
    account.ec2("DeleteSecurityGroup", &[("GroupId", &id)]).unwrap();
    assert_eq!(account.ec2("DeleteSecurityGroup", &[("GroupId", &id)]).unwrap_err(), "InvalidGroup.NotFound");
}

#[test]
fn everything_else_is_described() {
    let mut account = Account::new();
    let has = |account: &mut Account, action: &str, params: &[(&str, &str)], text: &str| {
        let xml = account.ec2(action, params).unwrap();
        assert!(xml.contains(text), "{action}: {xml}");
    };
    has(
        &mut account,
        "DescribeImages",
        &[("Owner.1", "540036508848"), ("Filter.1.Name", "name"), ("Filter.1.Value.1", "talos-v1.9*")],
        IMAGE,
    );
    has(
        &mut account,
        "DescribeSubnets",
        &[("SubnetId.1", SUBNETS[0])],
        "<availableIpAddressCount>251</availableIpAddressCount>",
    );
    has(&mut account, "DescribeVpcs", &[("VpcId.1", VPC)], "<cidrBlock>10.0.0.0/16</cidrBlock>");
    has(&mut account, "DescribeAvailabilityZones", &[], "<zoneName>eu-central-1c</zoneName>");
    has(
        &mut account,
        "DescribeInstanceTypes",
        &[("InstanceType.1", "t3.large")],
        "<defaultVCpus>2</defaultVCpus>",
    );
    has(
        &mut account,
        "DescribeInstanceTypeOfferings",
        &[("LocationType", "availability-zone")],
        "<location>eu-central-1b</location>",
    );
    has(&mut account, "DescribeRegions", &[], "eu-central-1");
    has(&mut account, "DescribeAccountAttributes", &[], "max-instances");
    has(&mut account, "DescribeNetworkInterfaces", &[], "networkInterfaceSet");
    assert_eq!(
        account.ec2("DescribeSubnets", &[("SubnetId.1", "subnet-1")]).unwrap_err(),
        "InvalidSubnetID.NotFound"
    );
    let id = account.launch("a", "1", SUBNETS[0]).unwrap();
    account.ec2("CreateTags", &[("ResourceId.1", &id), ("Tag.1.Key", "k"), ("Tag.1.Value", "v")]).unwrap();
    has(
        &mut account,
        "DescribeTags",
        &[("Filter.1.Name", "resource-id"), ("Filter.1.Value.1", &id)],
        "<value>v</value>",
    );
    has(
        &mut account,
        "DescribeVolumes",
        &[("Filter.1.Name", "attachment.instance-id"), ("Filter.1.Value.1", &id)],
        "<size>100</size>",
    );
    let volume = account.state.volumes.keys().next().unwrap().clone();
    assert_eq!(account.ec2("DeleteVolume", &[("VolumeId", &volume)]).unwrap_err(), "VolumeInUse");
    account.ec2("DeleteTags", &[("ResourceId.1", &id), ("Tag.1.Key", "k")]).unwrap();
    assert!(!account.state.instances[&id].tags.contains_key("k"));
}

#[test]
fn policies_deny_an_action_or_a_whole_service() {
    let mut account = Account::new();
    account.state.deny("ec2:RunInstances", true);
    assert_eq!(account.launch("a", "1", SUBNETS[0]).unwrap_err(), "UnauthorizedOperation");
    account.ec2("DescribeVpcs", &[]).unwrap();
    account.state.deny("ec2:RunInstances", false);
    account.state.deny("elasticloadbalancing:*", true);
    account.launch("a", "1", SUBNETS[0]).unwrap();
    assert_eq!(account.elb("DescribeLoadBalancers", &[]).unwrap_err(), "AccessDenied");
}

#[test]
fn a_machine_without_groups_has_the_default_one_of_its_network_which_lets_nobody_in_from_outside() {
    let mut account = Account::new();
    let mut params = launch("a", "1", SUBNETS[0]);
    params.retain(|(key, _)| *key != "SecurityGroupId.1");
    let told = account.ec2("RunInstances", &params).unwrap();
    assert!(told.contains("<groupName>default</groupName>"), "{told}");
    account.pass(10);
    let address = account.state.machine_of("a").unwrap();
    assert!(!account.state.admits_from_outside(std::net::SocketAddr::new(address, 50000)));
}

#[test]
fn an_account_has_what_a_config_names() {
    let names = crate::aws::AwsNames {
        region: "us-west-2".to_string(),
        subnets: vec!["subnet-1".to_string(), "subnet-2".to_string()],
        balancer_subnets: vec!["subnet-8".to_string(), "subnet-9".to_string()],
        arm: true,
        admin_cidrs: vec!["0.0.0.0/0".to_string(), "196.45.28.20/32".to_string()],
        ..Default::default()
    };
    let site = AwsSite::for_config(&names);
    let zones: Vec<&str> = site.subnets.iter().map(|subnet| subnet.zone.as_str()).collect();
    assert_eq!(zones, ["us-west-2a", "us-west-2b", "us-west-2a", "us-west-2b"]);
    assert_eq!(site.client.to_string(), "196.45.28.20");
    assert_eq!(site.images[0].architecture, "arm64");
    let text = "aws:\n  region: us-west-2\n  quotas: {vcpus: 4}\n";
    let options = crate::DataCentreOptions::parse(text).unwrap();
    assert_eq!(options.aws.unwrap().quotas.vcpus, 4);
    assert_eq!(options.proxmox, None);
}
