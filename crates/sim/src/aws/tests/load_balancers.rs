use super::*;
use crate::aws::state::Fate;

const SUBNET_PARAMS: [(&str, &str); 2] = [("Subnets.member.1", SUBNETS[0]), ("Subnets.member.2", SUBNETS[1])];

fn balancer_params(name: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut params = vec![("Name", name), ("Type", "network"), ("Scheme", "internal")];
    params.extend(SUBNET_PARAMS);
    params
}

fn group_params(name: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("Name", name),
        ("Protocol", "TCP"),
        ("Port", "6443"),
        ("VpcId", VPC),
        ("TargetType", "instance"),
        ("HealthCheckIntervalSeconds", "10"),
        ("HealthCheckTimeoutSeconds", "5"),
        ("HealthyThresholdCount", "2"),
        ("UnhealthyThresholdCount", "2"),
    ]
}

/// A balancer, a target group, a listener on 6443, and a running machine.
struct Set {
    account: Account,
    balancer: String,
    group: String,
    listener: String,
    machine: String,
}

fn set() -> Set {
    let mut account = Account::new();
    let made = account.elb("CreateLoadBalancer", &balancer_params("api")).unwrap();
    let balancer = element(&made, "LoadBalancerArn").unwrap();
    let made = account.elb("CreateTargetGroup", &group_params("api")).unwrap();
    let group = element(&made, "TargetGroupArn").unwrap();
    let made = account.elb("CreateListener", &listener_params(&balancer, &group, "6443")).unwrap();
    let listener = element(&made, "ListenerArn").unwrap();
    let machine = account.launch("cp-0", "t", SUBNETS[0]).unwrap();
    account.pass(200);
    Set { account, balancer, group, listener, machine }
}

fn listener_params<'a>(balancer: &'a str, group: &'a str, port: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("LoadBalancerArn", balancer),
        ("Protocol", "TCP"),
        ("Port", port),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group),
    ]
}

impl Set {
    fn health(&mut self) -> (String, String) {
        let params =
            [("TargetGroupArn", self.group.as_str()), ("Targets.member.1.Id", self.machine.as_str())];
        let xml = self.account.elb("DescribeTargetHealth", &params).unwrap();
        (element(&xml, "State").unwrap(), element(&xml, "Reason").unwrap_or_default())
    }

    fn with_target(&mut self, action: &str) -> Result<String, String> {
        let params =
            [("TargetGroupArn", self.group.as_str()), ("Targets.member.1.Id", self.machine.as_str())];
        self.account.elb(action, &params)
    }

    fn of(&mut self, action: &str, key: &str, arn: &str) -> Result<String, String> {
        self.account.elb(action, &[(key, arn)])
    }
}

#[test]
fn the_same_again_is_no_error_and_another_of_that_name_is() {
    let mut account = Account::new();
    let arn = |xml: String| element(&xml, "LoadBalancerArn").unwrap();
    let first = account.elb("CreateLoadBalancer", &balancer_params("api")).map(arn).unwrap();
    assert!(first.contains(":loadbalancer/net/api/"), "{first}");
    assert_eq!(account.elb("CreateLoadBalancer", &balancer_params("api")).map(arn).unwrap(), first);
    let mut other = balancer_params("api");
    other[2] = ("Scheme", "internet-facing");
    assert_eq!(account.elb("CreateLoadBalancer", &other).unwrap_err(), "DuplicateLoadBalancerName");
    let group = account.elb("CreateTargetGroup", &group_params("api")).unwrap();
    let group = element(&group, "TargetGroupArn").unwrap();
    let again = account.elb("CreateTargetGroup", &group_params("api")).unwrap();
    assert_eq!(element(&again, "TargetGroupArn").unwrap(), group);
    let mut other = group_params("api");
    other[2] = ("Port", "50000");
    assert_eq!(account.elb("CreateTargetGroup", &other).unwrap_err(), "DuplicateTargetGroupName");
    let listener = account.elb("CreateListener", &listener_params(&first, &group, "6443")).unwrap();
    let again = account.elb("CreateListener", &listener_params(&first, &group, "6443")).unwrap();
    assert_eq!(element(&listener, "ListenerArn"), element(&again, "ListenerArn"));
    let second = account.elb("CreateTargetGroup", &group_params("other")).unwrap();
    let second = element(&second, "TargetGroupArn").unwrap();
    let taken = account.elb("CreateListener", &listener_params(&first, &second, "6443"));
    assert_eq!(taken.unwrap_err(), "DuplicateListener");
    let elsewhere = account.elb("CreateLoadBalancer", &balancer_params("second")).map(arn).unwrap();
    let shared = account.elb("CreateListener", &listener_params(&elsewhere, &group, "6443"));
    assert_eq!(shared.unwrap_err(), "TargetGroupAssociationLimit");
}

#[test]
fn names_and_settings_have_rules() {
    let mut account = Account::new();
    let long = "a".repeat(33);
    let mut named = |name: &str| {
        let mut params = vec![("Name", name), ("Type", "network")];
        params.extend(SUBNET_PARAMS);
        account.elb("CreateLoadBalancer", &params).map(|_| ())
    };
    for bad in [long.as_str(), "a_b", "-a", "a-", "internal-a", ""] {
        assert_eq!(named(bad), Err("ValidationError".to_string()), "{bad}");
    }
    assert_eq!(named(&long[..32]), Ok(()));
    let create = |account: &mut Account, extra: &[(&str, &str)]| {
        let mut params = vec![("Name", "x"), ("Type", "network")];
        params.extend(extra);
        account.elb("CreateLoadBalancer", &params).unwrap_err()
    };
    assert_eq!(create(&mut account, &[("Subnets.member.1", "subnet-1")]), "SubnetNotFound");
    let group = [("Subnets.member.1", SUBNETS[0]), ("SecurityGroups.member.1", "sg-1")];
    assert_eq!(create(&mut account, &group), "InvalidSecurityGroup");
    let elastic = [
        ("SubnetMappings.member.1.SubnetId", SUBNETS[0]),
        ("SubnetMappings.member.1.AllocationId", "eipalloc-1"),
    ];
    assert_eq!(create(&mut account, &elastic), "InvalidConfigurationRequest");
    account.state.set_room(SUBNETS[2], 0);
    assert_eq!(create(&mut account, &[("Subnets.member.1", SUBNETS[2])]), "InvalidSubnet");
    account.state.quotas_mut().network_load_balancers = 1;
    assert_eq!(create(&mut account, &[("Subnets.member.1", SUBNETS[0])]), "TooManyLoadBalancers");
    let mut short = group_params("g");
    short[5] = ("HealthCheckIntervalSeconds", "5");
    short[6] = ("HealthCheckTimeoutSeconds", "6");
    assert_eq!(account.elb("CreateTargetGroup", &short).unwrap_err(), "ValidationError");
    let mut http = group_params("g");
    http.push(("HealthCheckPath", "/readyz"));
    assert_eq!(account.elb("CreateTargetGroup", &http).unwrap_err(), "InvalidConfigurationRequest");
    http.push(("HealthCheckProtocol", "HTTPS"));
    account.elb("CreateTargetGroup", &http).unwrap();
}

#[test]
fn a_balancer_is_provisioning_then_active_or_failed_or_neither() {
    let mut account = Account::new();
    let state = |account: &mut Account, name: &str| {
        account
            .elb("DescribeLoadBalancers", &[("Names.member.1", name)])
            .map(|xml| element(&xml, "Code").unwrap())
    };
    account.elb("CreateLoadBalancer", &balancer_params("api")).unwrap();
    assert_eq!(state(&mut account, "api"), Err("LoadBalancerNotFound".to_string()), "not seen at once");
    account.pass(1);
    assert_eq!(state(&mut account, "api").unwrap(), "provisioning");
    account.pass(120);
    assert_eq!(state(&mut account, "api").unwrap(), "active");
    account.state.set_fate(Fate::NeverActive);
    account.elb("CreateLoadBalancer", &balancer_params("slow")).unwrap();
    account.pass(10_000);
    assert_eq!(state(&mut account, "slow").unwrap(), "provisioning");
    account.state.set_fate(Fate::Failed);
    account.elb("CreateLoadBalancer", &balancer_params("bad")).unwrap();
    account.pass(200);
    assert_eq!(state(&mut account, "bad").unwrap(), "failed");
}

#[test]
fn a_target_is_registered_checked_drained_and_gone() {
    let mut set = set();
    assert_eq!(set.health(), ("unused".into(), "Target.NotRegistered".into()));
    set.with_target("RegisterTargets").unwrap();
    assert_eq!(set.health(), ("initial".into(), "Elb.RegistrationInProgress".into()));
    assert!(set.account.state.data_plane()[&set.balancer].pools[&set.group].targets.is_empty());
    set.account.pass(20);
    assert_eq!(set.health().0, "healthy");
    set.account.verdict = Verdict::Unhealthy(crate::balancer::Trouble::Timeout);
    assert_eq!(set.health(), ("unhealthy".into(), "Target.Timeout".into()));
    set.with_target("DeregisterTargets").unwrap();
    assert_eq!(set.health(), ("draining".into(), "Target.DeregistrationInProgress".into()));
    assert!(set.account.state.data_plane()[&set.balancer].pools[&set.group].targets[0].draining);
    set.account.pass(290);
    assert_eq!(set.health().0, "draining", "300 seconds without another setting");
    set.account.pass(20);
    assert_eq!(set.health().0, "unused");
    set.with_target("DeregisterTargets").unwrap();
    // A machine that is terminated leaves by itself.
    set.with_target("RegisterTargets").unwrap();
    set.account.pass(20);
    let machine = set.machine.clone();
    set.account.ec2("TerminateInstances", &[("InstanceId.1", &machine)]).unwrap();
    assert_eq!(set.health().0, "draining");
}

#[test]
fn a_target_has_to_run_and_has_to_be_one() {
    let mut set = set();
    let pending = set.account.launch("cp-1", "u", SUBNETS[0]).unwrap();
    let mut register = |id: &str| {
        let params = [("TargetGroupArn", set.group.as_str()), ("Targets.member.1.Id", id)];
        set.account.elb("RegisterTargets", &params).map(|_| ())
    };
    assert_eq!(register(&pending), Err("InvalidTarget".to_string()));
    assert_eq!(register("i-0000000000000000f"), Err("InvalidTarget".to_string()));
    assert_eq!(register("10.0.1.4"), Err("InvalidTarget".to_string()));
}

#[test]
fn nothing_goes_before_what_needs_it() {
    let mut set = set();
    let (balancer, group, listener) = (set.balancer.clone(), set.group.clone(), set.listener.clone());
    let protect = |value| {
        [
            ("LoadBalancerArn", balancer.as_str()),
            ("Attributes.member.1.Key", "deletion_protection.enabled"),
            ("Attributes.member.1.Value", value),
        ]
    };
    set.account.elb("ModifyLoadBalancerAttributes", &protect("true")).unwrap();
    let kept = set.of("DeleteLoadBalancer", "LoadBalancerArn", &balancer);
    assert_eq!(kept.unwrap_err(), "OperationNotPermitted");
    set.account.elb("ModifyLoadBalancerAttributes", &protect("false")).unwrap();
    assert_eq!(set.of("DeleteTargetGroup", "TargetGroupArn", &group).unwrap_err(), "ResourceInUse");
    set.of("DeleteListener", "ListenerArn", &listener).unwrap();
    assert_eq!(set.of("DeleteListener", "ListenerArn", &listener).unwrap_err(), "ListenerNotFound");
    let soon = set.of("DeleteTargetGroup", "TargetGroupArn", &group);
    assert_eq!(soon.unwrap_err(), "ResourceInUse", "the listener lets go of it a moment later");
    set.account.pass(5);
    set.of("DeleteTargetGroup", "TargetGroupArn", &group).unwrap();
    set.of("DeleteTargetGroup", "TargetGroupArn", &group).unwrap();
    set.of("DeleteLoadBalancer", "LoadBalancerArn", &balancer).unwrap();
    set.of("DeleteLoadBalancer", "LoadBalancerArn", &balancer).unwrap();
    let gone = set.of("DescribeListeners", "LoadBalancerArn", &balancer);
    assert_eq!(gone.unwrap_err(), "LoadBalancerNotFound");
}

#[test]
fn a_security_group_of_a_balancer_goes_when_its_interfaces_have() {
    let mut account = Account::new();
    let create = [("GroupName", "lb"), ("GroupDescription", "d"), ("VpcId", VPC)];
    let id = element(&account.ec2("CreateSecurityGroup", &create).unwrap(), "groupId").unwrap();
    let mut params = balancer_params("api");
    params.push(("SecurityGroups.member.1", &id));
    let made = account.elb("CreateLoadBalancer", &params).unwrap();
    let arn = element(&made, "LoadBalancerArn").unwrap();
    let told =
        account.ec2("DescribeNetworkInterfaces", &[("Filter.1.Name", "group-id"), ("Filter.1.Value.1", &id)]);
    assert_eq!(told.unwrap().matches("<networkInterfaceId>").count(), 2);
    account.elb("DeleteLoadBalancer", &[("LoadBalancerArn", &arn)]).unwrap();
    assert_eq!(account.ec2("DeleteSecurityGroup", &[("GroupId", &id)]).unwrap_err(), "DependencyViolation");
    account.pass(40);
    account.ec2("DeleteSecurityGroup", &[("GroupId", &id)]).unwrap();
    assert_eq!(account.state.inventory(), Vec::<String>::new());
    // One that was made without any never gets one.
    let bare =
        element(&account.elb("CreateLoadBalancer", &balancer_params("bare")).unwrap(), "LoadBalancerArn")
            .unwrap();
    let set = [("LoadBalancerArn", bare.as_str()), ("SecurityGroups.member.1", GROUP)];
    assert_eq!(account.elb("SetSecurityGroups", &set).unwrap_err(), "InvalidConfigurationRequest");
}

#[test]
fn attributes_begin_as_documented_and_only_known_ones_are_set() {
    let mut set = set();
    let told = set.account.elb("DescribeTargetGroupAttributes", &[("TargetGroupArn", &set.group)]).unwrap();
    assert!(told.contains("<Key>preserve_client_ip.enabled</Key><Value>true</Value>"), "{told}");
    let group = set.group.clone();
    let mut change = |key: &str, value: &str| {
        let params = [
            ("TargetGroupArn", group.as_str()),
            ("Attributes.member.1.Key", key),
            ("Attributes.member.1.Value", value),
        ];
        set.account.elb("ModifyTargetGroupAttributes", &params).map(|_| ())
    };
    let refused = Err("InvalidConfigurationRequest".to_string());
    assert_eq!(change("preserve_client_ip.enabled", "false"), Ok(()));
    assert_eq!(change("preserve_client_ip.enabled", "no"), refused);
    assert_eq!(change("colour", "red"), refused);
    assert_eq!(change("deregistration_delay.timeout_seconds", "4000"), refused);
    assert_eq!(change("target_health_state.unhealthy.draining_interval_seconds", "30"), refused);
    assert_eq!(change("target_health_state.unhealthy.connection_termination.enabled", "false"), Ok(()));
    assert_eq!(change("target_health_state.unhealthy.draining_interval_seconds", "30"), Ok(()));
    let timeout = |value| {
        [
            ("ListenerArn", set.listener.as_str()),
            ("Attributes.member.1.Key", "tcp.idle_timeout.seconds"),
            ("Attributes.member.1.Value", value),
        ]
    };
    set.account.elb("ModifyListenerAttributes", &timeout("6000")).unwrap();
    assert_eq!(set.account.elb("ModifyListenerAttributes", &timeout("10")), refused.map(|()| String::new()));
}

#[test]
fn tags_subnets_and_listeners_change() {
    let mut set = set();
    let (balancer, group) = (set.balancer.clone(), set.group.clone());
    let tag = [
        ("ResourceArns.member.1", balancer.as_str()),
        ("Tags.member.1.Key", "k"),
        ("Tags.member.1.Value", "v"),
    ];
    set.account.elb("AddTags", &tag).unwrap();
    let told = set.account.elb("DescribeTags", &[("ResourceArns.member.1", &balancer)]).unwrap();
    assert!(told.contains("<Key>k</Key><Value>v</Value>"), "{told}");
    set.account
        .elb("RemoveTags", &[("ResourceArns.member.1", &balancer), ("TagKeys.member.1", "k")])
        .unwrap();
    let subnets = [
        ("LoadBalancerArn", balancer.as_str()),
        ("Subnets.member.1", SUBNETS[0]),
        ("Subnets.member.2", SUBNETS[2]),
    ];
    set.account.elb("SetSubnets", &subnets).unwrap();
    let told = set.account.elb("DescribeLoadBalancers", &[]).unwrap();
    assert!(told.contains(SUBNETS[2]) && !told.contains(SUBNETS[1]), "{told}");
    let second = set.account.elb("CreateTargetGroup", &group_params("second")).unwrap();
    let second = element(&second, "TargetGroupArn").unwrap();
    let modify = [
        ("ListenerArn", set.listener.as_str()),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", second.as_str()),
    ];
    set.account.elb("ModifyListener", &modify).unwrap();
    let behind = set.account.elb("DescribeTargetGroups", &[("LoadBalancerArn", &balancer)]).unwrap();
    assert!(behind.contains(&second) && !behind.contains(&group), "{behind}");
    let check = [("TargetGroupArn", second.as_str()), ("HealthCheckIntervalSeconds", "20")];
    assert!(set.account.elb("ModifyTargetGroup", &check).unwrap().contains(">20<"));
    assert!(set.account.elb("DescribeAccountLimits", &[]).unwrap().contains("network-load-balancers"));
}

#[test]
fn rules_and_zones_decide_what_the_data_plane_passes() {
    let mut set = set();
    set.with_target("RegisterTargets").unwrap();
    set.account.pass(20);
    let (balancer, group) = (set.balancer.clone(), set.group.clone());
    let plane = |account: &Account| account.state.data_plane()[&balancer].clone();
    let first = plane(&set.account);
    assert!(first.frontends.iter().all(|frontend| frontend.open && frontend.zone.is_some()), "{first:?}");
    assert!(first.pools[&group].targets[0].open && first.pools[&group].targets[0].checkable);
    let cross = [
        ("LoadBalancerArn", balancer.as_str()),
        ("Attributes.member.1.Key", "load_balancing.cross_zone.enabled"),
        ("Attributes.member.1.Value", "true"),
    ];
    set.account.elb("ModifyLoadBalancerAttributes", &cross).unwrap();
    assert!(plane(&set.account).frontends.iter().all(|frontend| frontend.zone.is_none()));
    // The machines' own group no longer lets anybody in on 6443.
    let rule = [
        ("GroupId", GROUP),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "6443"),
        ("IpPermissions.1.ToPort", "6443"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
    ];
    set.account.ec2("RevokeSecurityGroupIngress", &rule).unwrap();
    let shut = plane(&set.account);
    assert!(!shut.pools[&group].targets[0].open && !shut.pools[&group].targets[0].checkable);
    let address = set.account.state.machine_of("cp-0").unwrap();
    let at = |port| std::net::SocketAddr::new(address, port);
    assert!(!set.account.state.admits_from_outside(at(6443)));
    assert!(set.account.state.admits_from_outside(at(50000)));
}
