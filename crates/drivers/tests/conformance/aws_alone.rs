//! What only AWS has: its keys and roles, its quotas and permissions, its load balancers that take their time or never come.

use crate::aws::{AwsWorld, KEY, SECRET, config, keys};
use crate::harness::{Balancing, Harness, Setup};
use crate::suite::{Life, balancer, machine, make, remove, removed, target};
use butler_api::{LoadBalancerOptions, LoadBalancerTarget};
use butler_drivers::{Class, Credentials, Failure, MachineFacts, PreflightWanted, Progress, Verdict};
use butler_sim::aws::{AwsSite, Fate, Service, SiteRole};
use std::time::{SystemTime, UNIX_EPOCH};

fn is(failure: &Failure, class: Class, reason: &str) {
    assert_eq!((failure.class, failure.reason.as_str()), (class, reason), "{failure:?}");
    assert!(!failure.remedy.is_empty());
}

#[tokio::test]
async fn machines_are_spread_over_zones_and_have_public_addresses() {
    let world = AwsWorld::start(Setup::default()).await;
    let mut config = config();
    config.aws.as_mut().unwrap().public_ip = None;
    let hands = world.hands(&config, &keys(&[]));
    let mut zones = Vec::new();
    for number in 0..3 {
        let mut wanted = world.wanted(&format!("butler-cp-{number}"), number);
        wanted.static_address = None;
        let facts = machine(&hands, &wanted).await.unwrap();
        assert_eq!((facts.addresses.len(), facts.reach), (2, facts.addresses.get(1).copied()), "{facts:?}");
        let zone = facts.zone.clone().unwrap();
        assert!(facts.provider_id.starts_with(&format!("aws:///{zone}/i-")), "{facts:?}");
        zones.push(zone);
    }
    assert_eq!(zones, ["eu-central-1a", "eu-central-1b", "eu-central-1c"]);
    world.stop().await;
}

/// A machine that was terminated by hand is made anew, once; one that was stopped is started.
#[tokio::test]
async fn machines_that_were_ended_by_hand_come_back() {
    let world = AwsWorld::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let first = make(&world, &wanted, Life::Same).await.unwrap();
    let id = |facts: &MachineFacts| facts.provider_id.rsplit('/').next().unwrap().to_owned();
    world.console(Service::Ec2, "StopInstances", &[("InstanceId.1", &id(&first))], "requestId");
    let started = make(&world, &wanted, Life::Reborn).await.unwrap();
    assert_eq!((&started.provider_id, started.running), (&first.provider_id, true));
    world.console(Service::Ec2, "TerminateInstances", &[("InstanceId.1", &id(&first))], "requestId");
    let second = make(&world, &wanted, Life::Reborn).await.unwrap();
    assert_ne!(first.provider_id, second.provider_id);
    assert_eq!(make(&world, &wanted, Life::Reborn).await.unwrap(), second);
    assert_eq!(world.machines(), ["butler-cp-0"]);
    remove(&world, &target(&wanted), Life::Reborn).await;
    assert_eq!((world.machines().len(), world.volumes()), (0, 0));
    world.stop().await;
}

#[tokio::test]
async fn wrong_expired_and_lacking_keys_are_told_apart_and_heal() {
    let world = AwsWorld::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let pairs = |id: &str, secret: &str| {
        Credentials(
            [("accessKeyID", id), ("secretAccessKey", secret)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        )
    };
    for wrong in [pairs(KEY, "wrong"), pairs("AKIANOBODY", SECRET)] {
        let hands = world.hands(&config(), &wrong);
        is(&machine(&hands, &wanted).await.unwrap_err(), Class::Auth, "LoginFailed");
        is(&balancer(&hands, &world.balancer()).await.unwrap_err(), Class::Auth, "LoginFailed");
        let findings = hands.preflight.check(&PreflightWanted::default()).await;
        assert_eq!((findings[0].check.as_str(), findings[0].verdict), ("credentials", Verdict::Fail));
        assert_eq!(findings[1].verdict, Verdict::Skip);
    }
    let hands = world.infrastructure();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - 60;
    world.aws.change(|state| state.expire_keys(Some(before)));
    let failure = machine(&hands, &wanted).await.unwrap_err();
    assert_eq!(failure.class, Class::Auth, "{failure:?}");
    world.aws.change(|state| state.expire_keys(None));
    // One permission is missing; the failure names the call, and the same driver goes on when it is given.
    for action in ["ec2:RunInstances", "ec2:DescribeInstances"] {
        world.aws.change(|state| state.deny(action, true));
        let failure = machine(&hands, &wanted).await.unwrap_err();
        is(&failure, Class::Auth, "PermissionDenied");
        world.aws.change(|state| state.deny(action, false));
    }
    machine(&hands, &wanted).await.unwrap();
    assert!(!world.journal().contains(SECRET));
    world.stop().await;
}

/// Every call of a load balancer is denied in turn: nothing but `Auth`, nothing half-made stays, and it goes on.
#[tokio::test]
async fn a_permission_that_is_missing_for_one_call() {
    // In the order of the calls: each one is met after the ones before it were allowed.
    let actions = [
        "ec2:CreateSecurityGroup",
        "ec2:AuthorizeSecurityGroupIngress",
        "elasticloadbalancing:CreateLoadBalancer",
        "elasticloadbalancing:CreateTargetGroup",
        "elasticloadbalancing:ModifyTargetGroupAttributes",
        "elasticloadbalancing:CreateListener",
        "elasticloadbalancing:DescribeTags",
    ];
    let world = AwsWorld::start(Setup::default()).await;
    let empty = world.parts();
    let hands = world.infrastructure();
    for action in actions {
        world.aws.change(|state| state.deny(action, true));
        let failure = balancer(&hands, &world.balancer()).await.unwrap_err();
        is(&failure, Class::Auth, "PermissionDenied");
        if action.ends_with("DescribeTags") {
            assert!(
                removed(&hands, &world.balancer()).await.is_err() || world.parts() == empty,
                "taken for absence"
            );
        }
        world.aws.change(|state| state.deny(action, false));
    }
    balancer(&hands, &world.balancer()).await.unwrap();
    // And on the way out: what can't be deleted is not forgotten.
    for action in [
        "elasticloadbalancing:DeleteLoadBalancer",
        "elasticloadbalancing:DeleteTargetGroup",
        "ec2:DeleteSecurityGroup",
    ] {
        world.aws.change(|state| state.deny(action, true));
        is(&removed(&hands, &world.balancer()).await.unwrap_err(), Class::Auth, "PermissionDenied");
        assert_ne!(world.parts(), empty);
        world.aws.change(|state| state.deny(action, false));
    }
    removed(&hands, &world.balancer()).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.stop().await;
}

/// Things are seen late, their tags later, and by the other service later still: nothing of that is a conflict or a wrong
/// setting, nothing is made twice, and nothing is left.
#[tokio::test]
async fn everything_is_seen_late() {
    let world = AwsWorld::start(Setup::default()).await;
    let empty = world.parts();
    world.aws.change(|state| state.set_lag(60));
    let hands = world.infrastructure();
    let wanted = world.wanted("butler-cp-0", 0);
    machine(&hands, &wanted).await.unwrap();
    assert_eq!(world.machines(), ["butler-cp-0"]);
    remove(&world, &target(&wanted), Life::Same).await;
    assert_eq!((world.machines().len(), world.volumes()), (0, 0));
    balancer(&hands, &world.balancer()).await.unwrap();
    let whole = world.parts();
    assert_eq!(whole.iter().filter(|part| part.starts_with("target-group")).count(), 2, "{whole:?}");
    removed(&hands, &world.balancer()).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.stop().await;
}

/// What the cluster's own cloud controller has made is told, by the tag that it puts on everything.
#[tokio::test]
async fn load_balancers_of_services_are_told() {
    let world = AwsWorld::start(Setup::default()).await;
    let site = AwsSite::example();
    let tag = [("Tags.member.1.Key", "kubernetes.io/cluster/butler"), ("Tags.member.1.Value", "owned")];
    let (subnet, vpc) = (site.subnets[0].id.as_str(), site.vpcs[0].id.as_str());
    let params = [("Name", "a0b1"), ("Type", "network"), ("Subnets.member.1", subnet), tag[0], tag[1]];
    world.console(Service::Elb, "CreateLoadBalancer", &params, "LoadBalancerArn");
    let params = [
        ("GroupName", "k8s-elb-a0b1"),
        ("GroupDescription", "for a Service"),
        ("VpcId", vpc),
        ("TagSpecification.1.ResourceType", "security-group"),
        ("TagSpecification.1.Tag.1.Key", "kubernetes.io/cluster/butler"),
        ("TagSpecification.1.Tag.1.Value", "owned"),
    ];
    world.console(Service::Ec2, "CreateSecurityGroup", &params, "groupId");
    let balancers = world.infrastructure().load_balancers.unwrap();
    let found = balancers.of_services("butler").await.unwrap();
    assert_eq!(found[0], "load balancer a0b1");
    assert!(found.len() == 2 && found[1].starts_with("security group k8s-elb-a0b1 (sg-"), "{found:?}");
    assert_eq!(balancers.of_services("butler-2").await.unwrap(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn quotas_are_waited_for() {
    let world = AwsWorld::start(Setup::default()).await;
    let hands = world.infrastructure();
    world.aws.change(|state| state.quotas_mut().vcpus = 2);
    let wanted = world.wanted("butler-cp-0", 0);
    is(&machine(&hands, &wanted).await.unwrap_err(), Class::Quota, "QuotaExceeded");
    let preflight = PreflightWanted { machines: vec![wanted.clone()], ..PreflightWanted::default() };
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check == "quota of virtual CPUs").unwrap();
    assert_eq!((found.verdict, found.detail.as_str()), (Verdict::Fail, "0 of 2 are used, 4 are needed"));
    world.aws.change(|state| state.quotas_mut().vcpus = 64);
    machine(&hands, &wanted).await.unwrap();
    // In the middle: the load balancer is there, and the second target group has no room.
    world.aws.change(|state| state.quotas_mut().target_groups = 1);
    let failure = balancer(&hands, &world.balancer()).await.unwrap_err();
    is(&failure, Class::Quota, "QuotaExceeded");
    let preflight = PreflightWanted { load_balancer: Some(world.balancer()), ..PreflightWanted::default() };
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check == "quota of target groups").unwrap();
    assert_eq!(found.verdict, Verdict::Fail, "{found:?}");
    world.aws.change(|state| state.quotas_mut().target_groups = 3000);
    balancer(&hands, &world.balancer()).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_subnet_without_free_addresses() {
    let world = AwsWorld::start(Setup::default()).await;
    let hands = world.infrastructure();
    let subnet = AwsSite::example().subnets[0].id.clone();
    world.aws.change(|state| state.set_room(&subnet, 0));
    let mut wanted = world.wanted("butler-cp-0", 0);
    wanted.static_address = None;
    is(&machine(&hands, &wanted).await.unwrap_err(), Class::Quota, "NoFreeAddress");
    let failure = balancer(&hands, &world.balancer()).await.unwrap_err();
    is(&failure, Class::Quota, "NoFreeAddress");
    let preflight = PreflightWanted { machines: vec![wanted.clone()], ..PreflightWanted::default() };
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check == format!("subnet {subnet}")).unwrap();
    assert_eq!(found.verdict, Verdict::Fail, "{found:?}");
    world.aws.change(|state| state.set_room(&subnet, 200));
    machine(&hands, &wanted).await.unwrap();
    balancer(&hands, &world.balancer()).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_region_without_the_image() {
    let world = AwsWorld::start(Setup::default()).await;
    let hands = world.infrastructure();
    world.aws.change(|state| state.remove_image(&AwsSite::example().images[0].id));
    let wanted = world.wanted("butler-cp-0", 0);
    let failure = machine(&hands, &wanted).await.unwrap_err();
    is(&failure, Class::InvalidConfig, "NoSuchImage");
    assert!(failure.message.contains("eu-central-1"), "{failure}");
    let preflight = PreflightWanted { machines: vec![wanted], ..PreflightWanted::default() };
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check.starts_with("image ")).unwrap();
    assert_eq!(found.verdict, Verdict::Fail);
    world.stop().await;
}

/// An image by its name, of Talos' makers.
#[tokio::test]
async fn an_image_by_name() {
    let world = AwsWorld::start(Setup::default()).await;
    let mut config = config();
    config.aws.as_mut().unwrap().ami = Some(AwsSite::example().images[0].name.clone());
    let facts = machine(&world.hands(&config, &keys(&[])), &world.wanted("butler-cp-0", 0)).await.unwrap();
    assert!(facts.running);
    // The same name from somebody else does not count.
    config.aws.as_mut().unwrap().ami_owner = Some("999999999999".to_owned());
    let failure =
        machine(&world.hands(&config, &keys(&[])), &world.wanted("butler-cp-1", 1)).await.unwrap_err();
    is(&failure, Class::InvalidConfig, "NoSuchImage");
    world.stop().await;
}

#[tokio::test]
async fn a_load_balancer_that_never_turns_active_and_one_that_fails() {
    let world = AwsWorld::start(Setup::default()).await;
    let empty = world.parts();
    let hands = world.infrastructure();
    world.aws.change(|state| state.set_fate(Fate::NeverActive));
    let balancers = hands.load_balancers.clone().unwrap();
    let mut last = None;
    for _ in 0..40 {
        match balancers.ensure(&world.balancer(), None).await.unwrap() {
            Progress::Ready(facts) => panic!("ready: {facts:?}"),
            Progress::InProgress { waiting_for, known, .. } => last = Some((waiting_for, known)),
        }
    }
    let (waiting_for, known) = last.unwrap();
    assert!(waiting_for.contains("to turn active"), "{waiting_for}");
    assert!(!known.unwrap().endpoint.is_empty(), "its name is known before it is active");
    removed(&hands, &world.balancer()).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.aws.change(|state| state.set_fate(Fate::Failed));
    let failure = balancer(&hands, &world.balancer()).await.unwrap_err();
    is(&failure, Class::Terminal, "LoadBalancerFailed");
    removed(&hands, &world.balancer()).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.stop().await;
}

#[tokio::test]
async fn deletion_protection_is_told_and_taken_back_by_the_request() {
    let world = AwsWorld::start(Setup::default()).await;
    let empty = world.parts();
    let hands = world.infrastructure();
    let mut wanted = world.balancer();
    wanted.spec.options =
        Some(LoadBalancerOptions { deletion_protection: true, ..LoadBalancerOptions::default() });
    balancer(&hands, &wanted).await.unwrap();
    let whole = world.parts();
    is(&removed(&hands, &wanted).await.unwrap_err(), Class::InvalidConfig, "DeletionProtected");
    // As somebody does who has nothing but the list of what is ours.
    wanted.spec.options = None;
    is(&removed(&hands, &wanted).await.unwrap_err(), Class::InvalidConfig, "DeletionProtected");
    assert_eq!(world.parts(), whole, "nothing is half-gone");
    wanted.spec.options = Some(LoadBalancerOptions::default());
    removed(&hands, &wanted).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.stop().await;
}

/// By a role with an external id, and by a profile that leads to it.
#[tokio::test]
async fn roles_and_profiles_are_taken_on() {
    let arn = "arn:aws:iam::123456789012:role/deploy";
    let mut site = AwsSite::example();
    site.roles.push(SiteRole { arn: arn.to_owned(), external_id: Some("ext-1".to_owned()) });
    let world = AwsWorld::with(site).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let hands = world.hands(&config(), &keys(&[("roleARN", arn), ("externalID", "ext-1")]));
    machine(&hands, &wanted).await.unwrap();
    let hands = world.hands(&config(), &keys(&[("roleARN", arn), ("externalID", "wrong")]));
    assert_eq!(machine(&hands, &wanted).await.unwrap_err().class, Class::Auth);
    let files = [
        ("profile", "deploy".to_owned()),
        ("credentials", format!("[base]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")),
        ("config", format!("[profile deploy]\nrole_arn={arn}\nsource_profile=base\nexternal_id=ext-1\n")),
    ];
    let profile = Credentials(files.map(|(key, value)| (key.to_owned(), value)).into());
    machine(&world.hands(&config(), &profile), &wanted).await.unwrap();
    assert!(!world.journal().contains(SECRET));
    world.stop().await;
}

/// A target leaves by draining: it is told as draining for as long, and not as registered.
#[tokio::test]
async fn a_target_is_drained_before_it_is_gone() {
    let world = AwsWorld::start(Setup::default()).await;
    let hands = world.infrastructure();
    let mut wanted = world.balancer();
    wanted.spec.options =
        Some(LoadBalancerOptions { deregistration_delay_seconds: 3600, ..LoadBalancerOptions::default() });
    for number in 0..2 {
        let machine = world.wanted(&format!("butler-cp-{number}"), number);
        let facts = make(&world, &machine, Life::Same).await.unwrap();
        let instance_id = Some(facts.provider_id.clone());
        let ip = facts.addresses[0].to_string();
        wanted.spec.targets.push(LoadBalancerTarget { ip, instance_id, ..LoadBalancerTarget::default() });
    }
    let facts = balancer(&hands, &wanted).await.unwrap();
    assert_eq!(facts.listeners[0].registered.len(), 2);
    let gone = wanted.spec.targets.remove(0);
    let facts = balancer(&hands, &wanted).await.unwrap();
    assert_eq!(facts.listeners[0].registered, [wanted.spec.targets[0].ip.clone()]);
    assert!(!facts.listeners[0].registered.contains(&gone.ip));
    let drained =
        world.recorded().iter().filter(|change| change.detail.contains("drain and deregister")).count();
    assert_eq!(drained, 2, "from both ports");
    // Security groups, by hand: what was opened is closed again.
    let group = world.console(
        Service::Ec2,
        "DescribeSecurityGroups",
        &[("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "butler-lb")],
        "groupId",
    );
    let params = [
        ("GroupId", group.as_str()),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "22"),
        ("IpPermissions.1.ToPort", "22"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
    ];
    world.console(Service::Ec2, "AuthorizeSecurityGroupIngress", &params, "requestId");
    let before = world.changes();
    balancer(&hands, &wanted).await.unwrap();
    assert_eq!(world.changes(), before + 1);
    world.stop().await;
}
