//! Tests of the plans of load balancers. Those that are named `defect_` hold what a well-known implementation gets wrong.

use super::desired::{Desired, PROTECTION};
use super::facts::facts;
use super::model::{Attributes, Rule, TargetHealth};
use super::mutation::{Mutation, Verb};
use super::plan::{Observed, Part, Plan, plan};
use super::removal::{Removal, plan_removal};
use crate::aws::recording::{apply, look};
use crate::aws::settings::Settings;
use crate::aws::tags::{TARGET, Tags};
use crate::failure::{Class, Failure};
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted, Owner};
use butler_api::ProviderConfigSpec;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn settings() -> Settings {
    let config: ProviderConfigSpec = serde_json::from_value(json!({
        "provider": "aws", "credentialsRef": {"name": "x"},
        "aws": {"region": "eu-west-1", "subnetIDs": ["subnet-a", "subnet-b"]}
    }))
    .unwrap();
    Settings::read(&config).unwrap()
}

/// Three listeners of the guide, two control planes and a worker; `change` is merged into the spec.
fn wanted(change: Value) -> LoadBalancerWanted {
    let mut spec = json!({
        "clusterName": "mgmt", "providerConfigRef": {"name": "aws"},
        "listeners": [{"port": 50000}, {"port": 50001, "targetPort": 50000, "role": "worker"}],
        "targets": [
            {"ip": "10.0.1.10", "instanceID": "i-0"}, {"ip": "10.0.2.10", "instanceID": "aws:///eu-west-1b/i-1"},
            {"ip": "10.0.1.20", "instanceID": "i-w", "role": "worker"}
        ]
    });
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    LoadBalancerWanted {
        owner: Owner { cluster: "mgmt".into(), cluster_uid: "c-1".into(), object_uid: "lb-1".into() },
        name: "mgmt-lb".to_owned(),
        spec: serde_json::from_value(spec).unwrap(),
    }
}

fn desired(change: Value) -> Desired {
    Desired::new(&wanted(change), &settings()).unwrap()
}

/// Goes on until nothing is left to do; every change in words.
fn finish(desired: &Desired, seen: &mut Observed) -> Result<Vec<String>, Failure> {
    let mut changes = Vec::new();
    seen.instances = None;
    for _ in 0..100 {
        match plan(desired, seen)? {
            Plan::Look(part) => look(part, &desired.subnets, seen),
            Plan::Do(mutation) => {
                changes.push(mutation.change().to_string());
                apply(&mutation, seen);
            }
            Plan::Wait(what) | Plan::Doubt(what) => panic!("waits for {what} after {changes:#?}"),
            Plan::Settled => return Ok(changes),
        }
    }
    panic!("never done: {changes:#?}");
}

/// A load balancer that is as it should be.
fn settled(desired: &Desired) -> Observed {
    let mut seen = Observed::default();
    finish(desired, &mut seen).unwrap();
    seen
}

fn next(desired: &Desired, seen: &Observed) -> Plan {
    let mut seen = seen.clone();
    loop {
        match plan(desired, &seen).unwrap() {
            Plan::Look(part) => look(part, &desired.subnets, &mut seen),
            other => return other,
        }
    }
}

fn verb(plan: Plan) -> Verb {
    match plan {
        Plan::Do(mutation) => mutation.verb,
        other => panic!("no change: {other:?}"),
    }
}

fn told(desired: &Desired, seen: &Observed) -> LoadBalancerFacts {
    facts(desired, seen, 6443).unwrap()
}

#[test]
fn the_whole_of_it_in_order() {
    let mut seen = Observed::default();
    let changes = finish(&desired(json!({})), &mut seen).unwrap();
    let expected = [
        "security-group mgmt-lb: create it, for the clients of the load balancer",
        "security-group mgmt-lb: let in tcp 6443 from 0.0.0.0/0, tcp 50000 from 0.0.0.0/0, tcp 50001 from 0.0.0.0/0",
        "load-balancer mgmt-lb: create it: network, internet-facing, in subnet-a, subnet-b",
        "target-group mgmt-6443-6443: create it: TCP 6443, checked by TCP on port 6443 every 10 s, 5 s each, in after 2, out after 2",
        "target-group mgmt-6443-6443: set deregistration_delay.connection_termination.enabled to true, \
         deregistration_delay.timeout_seconds to 30, preserve_client_ip.enabled to false",
        "target-group mgmt-50000-50000: create it: TCP 50000, checked by TCP on port 50000 every 10 s, 5 s each, in after 2, out after 2",
        "target-group mgmt-50000-50000: set deregistration_delay.connection_termination.enabled to true, \
         deregistration_delay.timeout_seconds to 30, preserve_client_ip.enabled to false",
        "target-group mgmt-50001-50000: create it: TCP 50000, checked by TCP on port 50000 every 10 s, 5 s each, in after 2, out after 2",
        "target-group mgmt-50001-50000: set deregistration_delay.connection_termination.enabled to true, \
         deregistration_delay.timeout_seconds to 30, preserve_client_ip.enabled to false",
        "listener mgmt-6443: create it: TCP 6443",
        "listener mgmt-50000: create it: TCP 50000",
        "listener mgmt-50001: create it: TCP 50001",
        "target-group mgmt-6443-6443: note 10.0.1.10, 10.0.2.10 as ours",
        "target-group mgmt-50001-50000: note 10.0.1.20 as ours",
        "target-group mgmt-6443-6443: register 10.0.1.10, 10.0.2.10",
        "target-group mgmt-50000-50000: register 10.0.1.10, 10.0.2.10",
        "target-group mgmt-50001-50000: register 10.0.1.20",
    ];
    assert_eq!(changes, expected);
    let facts = told(&desired(json!({})), &seen);
    assert_eq!(facts.outputs.kubernetes_endpoint.as_deref(), Some("https://mgmt-lb.elb.example.com:6443"));
    assert_eq!(facts.outputs.talos_endpoint.as_deref(), Some("mgmt-lb.elb.example.com:50000"));
    assert_eq!(facts.listeners[0].registered, ["10.0.1.10", "10.0.2.10"]);
    assert_eq!(
        (facts.listeners[2].port, &facts.listeners[2].registered),
        (50001, &vec!["10.0.1.20".to_owned()])
    );
    assert_eq!(facts.outputs.kubernetes_target_group_id.as_deref(), Some("arn:mgmt-6443-6443"));
}

#[test]
fn settings_of_the_guide_arrive() {
    let desired = desired(json!({"options": {
        "internal": true, "crossZone": true, "deletionProtection": true, "preserveClientIP": true,
        "deregistrationDelaySeconds": 120, "allowedCIDRs": ["196.45.28.20/32", "10.9.8.7/8", "2001:db8::1/32"],
        "healthCheck": {"protocol": "https", "interval": 1, "timeout": 60, "healthy": 1, "unhealthy": 3}
    }}));
    let seen = settled(&desired);
    assert!(seen.balancer().unwrap().internal);
    let attributes = seen.attributes.clone().unwrap();
    assert_eq!(
        (attributes[PROTECTION].as_str(), attributes["load_balancing.cross_zone.enabled"].as_str()),
        ("true", "true")
    );
    let group = &seen.group_attributes["arn:mgmt-6443-6443"];
    assert_eq!(
        (
            group["preserve_client_ip.enabled"].as_str(),
            group["deregistration_delay.timeout_seconds"].as_str()
        ),
        ("true", "120")
    );
    let health = &seen.target_group("mgmt-6443-6443").unwrap().health;
    assert_eq!(
        (health.protocol.as_str(), health.path.as_deref(), health.interval, health.timeout),
        ("HTTPS", Some("/readyz"), 5, 4)
    );
    assert_eq!((health.healthy, health.unhealthy), (2, 3));
    assert_eq!(
        seen.target_group("mgmt-50000-50000").unwrap().health.protocol,
        "TCP",
        "the Talos API answers no HTTP"
    );
    let sources: BTreeSet<&str> =
        seen.groups.iter().flatten().flat_map(|g| &g.rules).map(|r| r.source.as_str()).collect();
    assert_eq!(
        sources,
        BTreeSet::from(["196.45.28.20/32", "10.0.0.0/8", "2001:db8::/32", "192.0.2.0/24"]),
        "without host bits"
    );
    let lacking = told(&desired, &seen).lacking;
    assert!(lacking.len() == 3 && lacking[0].contains("interval 1"), "{lacking:?}");
}

/// With a list of client networks the cluster's own machines still reach its API, as long as they are there.
#[test]
fn machines_get_in_beside_the_listed_networks() {
    let desired =
        desired(json!({"listeners": [{"port": 50000}], "options": {"allowedCIDRs": ["196.45.28.20/32"]}}));
    let nodes = desired.nodes.clone().unwrap();
    assert!(nodes.public && !nodes.by_gateway && nodes.subnets == ["subnet-a", "subnet-b"]);
    let mut seen = settled(&desired);
    let rules = |seen: &Observed| -> Vec<String> {
        seen.groups
            .iter()
            .flatten()
            .flat_map(|g| &g.rules)
            .map(|r| format!("{} {}", r.from, r.source))
            .collect()
    };
    assert_eq!(rules(&seen), ["6443 192.0.2.0/24", "6443 196.45.28.20/32", "50000 196.45.28.20/32"]);
    // A machine comes, another goes.
    seen.nodes = Some(BTreeSet::from(["192.0.2.0/24".to_owned(), "52.1.1.1/32".to_owned()]));
    assert_eq!(
        finish(&desired, &mut seen).unwrap(),
        ["security-group mgmt-lb: let the cluster's machines in"]
    );
    seen.nodes = Some(BTreeSet::from(["192.0.2.0/24".to_owned()]));
    assert_eq!(
        finish(&desired, &mut seen).unwrap(),
        ["security-group mgmt-lb: no longer let in tcp 6443 from 52.1.1.1/32"]
    );
    assert_eq!(super::tests::desired(json!({})).nodes, None, "everybody gets in anyway");
    let internal =
        super::tests::desired(json!({"options": {"internal": true, "allowedCIDRs": ["10.0.0.0/8"]}}));
    assert!(
        internal.nodes.is_some_and(|nodes| !nodes.public && !nodes.by_gateway),
        "they come from their subnets"
    );
}

#[test]
fn one_subnet_of_each_zone() {
    let desired = desired(json!({}));
    let mut seen = Observed::default();
    look(Part::Subnets, &desired.subnets, &mut seen);
    seen.subnets.iter_mut().flatten().for_each(|subnet| subnet.zone = "eu-west-1a".to_owned());
    finish(&desired, &mut seen).unwrap();
    assert_eq!(seen.balancer().unwrap().subnets, BTreeSet::from(["subnet-a".to_owned()]));
    // A look that shows the load balancer somewhere else brings it back.
    seen.balancer.as_mut().unwrap().as_mut().unwrap().subnets = BTreeSet::from(["subnet-z".to_owned()]);
    assert!(matches!(verb(next(&desired, &seen)), Verb::SetSubnets { .. }));
    seen.subnets.as_mut().unwrap()[1].vpc = "vpc-other".to_owned();
    assert_eq!(plan(&desired, &seen).unwrap_err().reason, "SubnetUnusable");
}

/// Defect 2: a failure is not for ever; a mended spec goes on.
#[test]
fn defect_2_a_mended_spec_goes_on() {
    let seen = settled(&desired(json!({})));
    let wrong = desired(json!({"options": {"internal": true}}));
    let failure = plan(&wrong, &seen).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "Immutable"));
    assert_eq!(next(&desired(json!({})), &seen), Plan::Settled);
}

/// Defect 3: something of the same name that is not ours is neither adopted nor deleted.
#[test]
fn defect_3_what_is_not_ours_is_never_touched() {
    let desired = desired(json!({}));
    let whole = settled(&desired);
    let foreign = Tags::from([("Name".to_owned(), "mgmt-lb".to_owned())]);
    for arn in ["arn:mgmt-lb", "arn:mgmt-6443-6443"] {
        let mut seen = whole.clone();
        seen.tags.insert(arn.to_owned(), foreign.clone());
        let failure = plan(&desired, &seen).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"), "{arn}");
    }
    let mut seen = whole.clone();
    seen.groups.as_mut().unwrap()[0].tags = foreign.clone();
    assert_eq!(plan(&desired, &seen).unwrap_err().class, Class::Conflict);
    // Another request's is not ours either, and removal leaves all of it.
    let mut seen = whole;
    seen.tags
        .values_mut()
        .for_each(|tags| drop(tags.insert(crate::aws::tags::OBJECT_UID.to_owned(), "lb-2".to_owned())));
    seen.groups.as_mut().unwrap()[0].tags = foreign;
    assert!(plan(&desired, &seen).unwrap_err().message.contains("another request"));
    assert_eq!(plan_removal(&Removal::new(&wanted(json!({}))), &seen).unwrap(), Plan::Settled);
}

/// What never shows a tag is somebody else's after all.
#[test]
fn what_stays_without_tags_is_a_conflict() {
    let desired = desired(json!({}));
    let mut seen = settled(&desired);
    seen.groups.as_mut().unwrap()[0].tags.clear();
    let in_doubt = Plan::Doubt("the tags of the security group mgmt-lb to be seen".to_owned());
    assert_eq!(plan(&desired, &seen).unwrap(), in_doubt);
    seen.bare_is_foreign = true;
    assert_eq!(plan(&desired, &seen).unwrap_err().reason, "NameTaken");
    seen.tags.values_mut().for_each(Tags::clear);
    assert_eq!(plan_removal(&Removal::new(&wanted(json!({}))), &seen).unwrap(), Plan::Settled);
}

/// Before anything is made, it is known that nothing of that name is somebody else's.
#[test]
fn a_conflict_is_seen_before_the_first_change() {
    let desired = desired(json!({}));
    let mut seen = Observed::default();
    for part in [Part::Subnets, Part::TargetGroups] {
        look(part, &desired.subnets, &mut seen);
    }
    let mut whole = settled(&desired);
    whole.tags.clear();
    (seen.balancer, seen.listeners) = (whole.balancer, whole.listeners);
    assert!(
        matches!(plan(&desired, &seen).unwrap(), Plan::Look(Part::Tags { .. })),
        "nothing is changed unseen"
    );
    let arns: Vec<String> = seen.arns().cloned().collect();
    look(Part::Tags { arns }, &[], &mut seen);
    look(Part::Groups { vpc: "vpc".to_owned() }, &[], &mut seen);
    seen.bare_is_foreign = true;
    assert_eq!(plan(&desired, &seen).unwrap_err().class, Class::Conflict);
}

/// Defect 4: it is not ready before it is active; and `failed` ends the wait.
#[test]
fn defect_4_only_active_is_ready() {
    let desired = desired(json!({}));
    let mut seen = settled(&desired);
    let mut state = |text: &str| {
        seen.balancer.as_mut().unwrap().as_mut().unwrap().state = text.to_owned();
        plan(&desired, &seen)
    };
    assert!(matches!(state("provisioning").unwrap(), Plan::Wait(what) if what.contains("provisioning")));
    assert_eq!(state("failed").unwrap_err().class, Class::Terminal);
    assert_eq!(state("active_impaired").unwrap(), Plan::Settled);
    assert_eq!(state("active").unwrap(), Plan::Settled);
}

/// Defects 5 and 10: whatever was changed by hand is put right, with the same spec as before.
#[test]
fn defects_5_and_10_drift_is_repaired() {
    let desired = desired(json!({}));
    type Spoil = fn(&mut Observed);
    let cases: [(Spoil, &str); 10] = [
        (|seen| drop(seen.listeners.as_mut().unwrap().remove(0)), "create it: TCP 6443"),
        (|seen| seen.target_groups.as_mut().unwrap()[0].health.interval = 30, "check by TCP on port 6443"),
        (
            |seen| seen.target_groups.as_mut().unwrap()[1].health.port = "1".to_owned(),
            "check by TCP on port 50000",
        ),
        (
            |seen| {
                drop(
                    seen.group_attributes
                        .get_mut("arn:mgmt-6443-6443")
                        .unwrap()
                        .insert("preserve_client_ip.enabled".to_owned(), "true".to_owned()),
                )
            },
            "set preserve_client_ip.enabled to false",
        ),
        (
            |seen| {
                drop(
                    seen.attributes
                        .as_mut()
                        .unwrap()
                        .insert("load_balancing.cross_zone.enabled".to_owned(), "true".to_owned()),
                )
            },
            "set load_balancing.cross_zone.enabled to false",
        ),
        (
            |seen| drop(seen.balancer.as_mut().unwrap().as_mut().unwrap().subnets.pop_last()),
            "put it into subnet-a, subnet-b",
        ),
        (
            |seen| _ = seen.balancer.as_mut().unwrap().as_mut().unwrap().groups.insert("sg-open".to_owned()),
            "put it behind its security group again",
        ),
        (|seen| drop(seen.groups.as_mut().unwrap()[0].rules.pop_first()), "let in tcp 6443 from 0.0.0.0/0"),
        (
            |seen| {
                let open =
                    Rule { protocol: "-1".to_owned(), from: 0, to: 65535, source: "0.0.0.0/0".to_owned() };
                seen.groups.as_mut().unwrap()[0].rules.insert(open);
            },
            "no longer let in everything from 0.0.0.0/0",
        ),
        (|seen| drop(seen.health.get_mut("arn:mgmt-6443-6443").unwrap().remove(0)), "register 10.0.1.10"),
    ];
    for (spoil, repair) in cases {
        let mut seen = settled(&desired);
        assert_eq!(next(&desired, &seen), Plan::Settled);
        spoil(&mut seen);
        let changes = finish(&desired, &mut seen).unwrap();
        assert!(changes.len() == 1 && changes[0].contains(repair), "{repair}: {changes:?}");
    }
}

/// Defect 6: what drains is no longer registered.
#[test]
fn defect_6_draining_targets_do_not_count() {
    let desired = desired(json!({}));
    let mut seen = settled(&desired);
    let members = seen.health.get_mut("arn:mgmt-6443-6443").unwrap();
    members[0].state = "draining".to_owned();
    members[1].state = "unhealthy".to_owned();
    let facts = told(&desired, &seen);
    assert_eq!(facts.listeners[0].registered, ["10.0.2.10"]);
    assert_eq!(
        (facts.listeners[0].draining.as_slice(), facts.listeners[0].healthy.len()),
        (&["10.0.1.10".to_owned()][..], 0)
    );
    seen.health.get_mut("arn:mgmt-6443-6443").unwrap()[1].state = "unused".to_owned();
    assert_eq!(told(&desired, &seen).listeners[0].registered.len(), 0);
}

/// Defect 7: a node reaches itself through the load balancer, unless somebody insists.
#[test]
fn defect_7_client_addresses_are_not_kept() {
    let off = desired(json!({})).group_attributes();
    assert_eq!(off["preserve_client_ip.enabled"], "false", "said, since AWS' default is true");
    let on = desired(json!({"options": {"preserveClientIP": true}})).group_attributes();
    assert_eq!(on["preserve_client_ip.enabled"], "true");
}

/// Defect 8: a listener is found by its port; one that leads elsewhere is turned, not made again.
#[test]
fn defect_8_a_listener_that_leads_elsewhere_is_turned() {
    let desired = desired(json!({}));
    let whole = settled(&desired);
    for elsewhere in [Some("arn:somebody".to_owned()), None] {
        let mut seen = whole.clone();
        seen.listeners.as_mut().unwrap()[0].forwards_to = elsewhere;
        let Verb::PointListener { port, target_group, .. } = verb(next(&desired, &seen)) else {
            panic!("not turned")
        };
        assert_eq!((port, target_group.as_str()), (6443, "arn:mgmt-6443-6443"));
    }
}

/// Defect 9: the scheme is what was asked for, and there is a security group from the beginning.
#[test]
fn defect_9_scheme_and_security_group_from_the_beginning() {
    for internal in [false, true] {
        let desired = desired(json!({"options": {"internal": internal}}));
        let mut seen = Observed::default();
        let mut made = None;
        while made.is_none() {
            match plan(&desired, &seen).unwrap() {
                Plan::Look(part) => look(part, &desired.subnets, &mut seen),
                Plan::Do(mutation) if matches!(mutation.verb, Verb::CreateBalancer { .. }) => {
                    made = Some(mutation)
                }
                Plan::Do(mutation) => apply(&mutation, &mut seen),
                other => panic!("{other:?}"),
            }
        }
        let wire = made.unwrap().wire();
        let get =
            |key: &str| wire.params.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert_eq!(get("Scheme"), Some(if internal { "internal" } else { "internet-facing" }));
        assert_eq!(get("SecurityGroups.member.1"), Some("sg-new"));
        assert_eq!((get("Type"), get("Subnets.member.2")), (Some("network"), Some("subnet-b")));
        assert!(get("Tags.member.1.Key").is_some(), "tagged from the first moment");
    }
}

#[test]
fn targets_come_and_go_one_by_one() {
    let target = |n: u8| json!({"ip": format!("10.0.1.{n}"), "instanceID": format!("i-{n}")});
    let with = |all: &[u8]| {
        let targets: Vec<Value> = all.iter().map(|n| target(*n)).collect();
        desired(json!({"targets": targets, "listeners": [{"port": 50000}]}))
    };
    let mut seen = settled(&with(&[]));
    assert_eq!(
        told(&with(&[]), &seen).listeners[0].registered.len(),
        0,
        "the endpoint is there before any target"
    );
    let changes = finish(&with(&[1]), &mut seen).unwrap();
    assert_eq!(changes.len(), 3, "one note for both groups, and each its registration: {changes:?}");
    finish(&with(&[1, 2]), &mut seen).unwrap();
    // A control plane is replaced: the new one is in before the old one leaves.
    let swap = with(&[2, 3]);
    let first = verb(next(&swap, &seen));
    assert!(matches!(first, Verb::Claim { ref members, .. } if members[0].0 == "i-3"), "{first:?}");
    let mut order = Vec::new();
    seen.instances = None;
    loop {
        match plan(&swap, &seen).unwrap() {
            Plan::Look(part) => look(part, &swap.subnets, &mut seen),
            Plan::Do(mutation) => {
                order.push(mutation.change().detail.clone());
                match &mutation.verb {
                    Verb::Deregister { target_group, members, .. } => {
                        // As AWS does: it drains for a while.
                        let all = seen.health.get_mut(target_group).unwrap();
                        all.iter_mut()
                            .filter(|one| members[0].0 == one.id)
                            .for_each(|one| one.state = "draining".to_owned());
                    }
                    _ => apply(&mutation, &mut seen),
                }
            }
            Plan::Wait(what) | Plan::Doubt(what) => {
                assert!(what.contains("10.0.1.1 to be drained"), "{what}");
                seen.health.values_mut().for_each(|all| all.retain(|one| one.state != "draining"));
            }
            Plan::Settled => break,
        }
    }
    assert_eq!(
        order,
        [
            "note 10.0.1.3 as ours",
            "register 10.0.1.3",
            "drain and deregister 10.0.1.1",
            "register 10.0.1.3",
            "drain and deregister 10.0.1.1",
            "take the note of 10.0.1.1 off",
            "take the note of 10.0.1.1 off"
        ]
    );
}

#[test]
fn a_foreign_target_or_listener_is_left_alone_and_reported() {
    let desired = desired(json!({}));
    let mut seen = settled(&desired);
    let foreign = |id: &str, port: i32| TargetHealth {
        id: id.to_owned(),
        port,
        state: "healthy".to_owned(),
        reason: String::new(),
    };
    let members = seen.health.get_mut("arn:mgmt-6443-6443").unwrap();
    members.push(foreign("i-foreign", 6443));
    members.push(foreign("i-0", 8443));
    let mut listener = seen.listeners.as_ref().unwrap()[0].clone();
    (listener.port, listener.arn) = (9000, "arn:by-hand".to_owned());
    seen.listeners.as_mut().unwrap().push(listener);
    assert_eq!(next(&desired, &seen), Plan::Settled);
    let facts = told(&desired, &seen);
    assert_eq!(facts.foreign_targets, ["listener 9000", "i-foreign", "i-0:8443"]);
    assert_eq!(facts.listeners[0].registered, ["10.0.1.10", "10.0.2.10"], "they do not count as ours");
}

#[test]
fn a_port_that_is_not_wanted_any_more_goes_with_its_group() {
    let mut seen = settled(&desired(json!({})));
    let less = desired(json!({"listeners": [{"port": 50000, "targetPort": 50005}]}));
    let changes = finish(&less, &mut seen).unwrap();
    let has = |part: &str| changes.iter().any(|change| change.contains(part));
    assert!(
        has("listener mgmt-50001: delete TCP 50001") && has("target-group mgmt-50001-50000: delete it"),
        "{changes:#?}"
    );
    assert!(
        has("target-group mgmt-50000-50005: create it") && has("listener mgmt-50000: send TCP 50000"),
        "{changes:#?}"
    );
    assert!(has("target-group mgmt-50000-50000: delete it"), "{changes:#?}");
    assert_eq!(seen.target_groups.as_ref().unwrap().len(), 2);
}

#[test]
fn a_machine_that_does_not_run_yet_is_waited_for_and_keeps_nobody_out() {
    let desired = desired(json!({}));
    let mut seen = settled(&desired);
    seen.health.values_mut().for_each(Vec::clear);
    seen.instances = None;
    look(
        Part::Instances {
            ids: vec!["i-0".to_owned(), "i-w".to_owned()],
            ips: Vec::new(),
            vpc: String::new(),
        },
        &[],
        &mut seen,
    );
    let Verb::Register { members, .. } = verb(plan(&desired, &seen).unwrap()) else {
        panic!("nobody is registered")
    };
    assert_eq!(members, [("i-0".to_owned(), "10.0.1.10".to_owned())]);
    for group in ["arn:mgmt-6443-6443", "arn:mgmt-50000-50000"] {
        let verb = Verb::Register {
            target_group: group.to_owned(),
            port: if group.contains("6443") { 6443 } else { 50000 },
            members: members.clone(),
        };
        apply(&Mutation { name: "x".to_owned(), verb }, &mut seen);
    }
    let worker = Verb::Register {
        target_group: "arn:mgmt-50001-50000".to_owned(),
        port: 50000,
        members: vec![("i-w".to_owned(), "10.0.1.20".to_owned())],
    };
    apply(&Mutation { name: "x".to_owned(), verb: worker }, &mut seen);
    assert!(matches!(plan(&desired, &seen).unwrap(), Plan::Wait(what) if what.contains("10.0.2.10")));
}

#[test]
fn a_target_without_an_id_is_found_by_its_address() {
    let desired = desired(json!({"listeners": [], "targets": [{"ip": "10.0.1.10"}]}));
    let mut seen = Observed::default();
    finish(&desired, &mut seen).unwrap();
    assert_eq!(seen.tags["arn:mgmt-6443-6443"][&format!("{TARGET}i-10.0.1.10")], "10.0.1.10");
    assert_eq!(told(&desired, &seen).listeners[0].registered, ["10.0.1.10"]);
    // Nobody has that address: it is waited for, not dropped.
    let mut seen = settled(&super::tests::desired(json!({"listeners": [], "targets": []})));
    seen.instances = Some(Vec::new());
    assert!(matches!(plan(&desired, &seen).unwrap(), Plan::Wait(what) if what.contains("10.0.1.10")));
}

fn remove(wanted: &LoadBalancerWanted, seen: &mut Observed) -> Result<Vec<String>, Failure> {
    let removal = Removal::new(wanted);
    let mut changes = Vec::new();
    loop {
        match plan_removal(&removal, seen)? {
            Plan::Look(part) => look(part, &[], seen),
            Plan::Do(mutation) => {
                changes.push(mutation.change().to_string());
                apply(&mutation, seen);
            }
            Plan::Wait(what) | Plan::Doubt(what) => panic!("{what}"),
            Plan::Settled => return Ok(changes),
        }
    }
}

#[test]
fn removal_takes_everything_that_is_ours() {
    let mut seen = settled(&desired(json!({})));
    let changes = remove(&wanted(json!({})), &mut seen).unwrap();
    let expected = [
        "load-balancer mgmt-lb: delete it with its listeners",
        "target-group mgmt-6443-6443: delete it",
        "target-group mgmt-50000-50000: delete it",
        "target-group mgmt-50001-50000: delete it",
        "security-group mgmt-lb: delete it",
    ];
    assert_eq!(changes, expected);
    // Half of it was removed before: the rest is found without the load balancer.
    let mut seen = settled(&desired(json!({})));
    (seen.balancer, seen.listeners) = (Some(None), None);
    assert_eq!(remove(&wanted(json!({})), &mut seen).unwrap(), expected[1..]);
}

#[test]
fn deletion_protection_stops_unless_the_request_takes_it_back() {
    let protected = settled(&desired(json!({"options": {"deletionProtection": true}})));
    for options in [json!({"deletionProtection": true}), Value::Null] {
        let failure = remove(&wanted(json!({"options": options})), &mut protected.clone()).unwrap_err();
        assert_eq!(failure.reason, "DeletionProtected");
        assert!(failure.remedy.contains("deletionProtection"), "{failure:?}");
    }
    let changes = remove(&wanted(json!({"options": {}})), &mut protected.clone()).unwrap();
    assert_eq!(changes[0], "load-balancer mgmt-lb: set deletion_protection.enabled to false");
    // Nobody said anything: a protection that was set by hand stays.
    let mut seen = settled(&desired(json!({})));
    seen.attributes = Some(Attributes::from([
        (PROTECTION.to_owned(), "true".to_owned()),
        ("load_balancing.cross_zone.enabled".to_owned(), "false".to_owned()),
    ]));
    assert_eq!(next(&desired(json!({})), &seen), Plan::Settled);
    assert!(matches!(verb(next(&desired(json!({"options": {}})), &seen)), Verb::SetAttributes { .. }));
}

#[test]
fn without_subnets_nothing_is_tried() {
    let config = json!({"provider": "aws", "credentialsRef": {"name": "x"}, "aws": {"region": "eu-west-1"}});
    let settings = Settings::read(&serde_json::from_value(config).unwrap()).unwrap();
    assert_eq!(Desired::new(&wanted(json!({})), &settings).unwrap_err().reason, "SubnetsMissing");
}
