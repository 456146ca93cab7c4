//! What only Google Cloud has: its logins, its operations that are done and failed, its quotas and permissions.

use crate::gcp::{GcpWorld, SimulatedGcp, config, key};
use crate::harness::{Balancing, Harness, Setup};
use crate::suite::{Life, balancer, machine, make, remove, removed, target};
use butler_api::ProviderConfigSpec;
use butler_drivers::{Class, Credentials, PreflightWanted, Verdict, connect};
use butler_sim::gce::{GceSite, SiteFailure};
use serde_json::json;

fn failing(method: &str, code: &str, status: u16) -> SiteFailure {
    SiteFailure {
        method: method.to_owned(),
        name: "*".to_owned(),
        code: code.to_owned(),
        message: format!("simulated {code}"),
        status,
        times: 1,
    }
}

#[tokio::test]
async fn machines_are_spread_and_have_external_addresses() {
    let world = GcpWorld::start(Setup::default()).await;
    let mut config = config();
    config.gcp.as_mut().unwrap().external_address = true;
    // No zones are named: the region is asked.
    config.gcp.as_mut().unwrap().zones.clear();
    let hands = connect(&config, &key(), &world.connection()).unwrap();
    let mut zones = Vec::new();
    for number in 0..3 {
        let mut wanted = world.wanted(&format!("butler-cp-{number}"), number);
        wanted.static_address = None;
        let facts = machine(&hands, &wanted).await.unwrap();
        assert_eq!((facts.addresses.len(), facts.reach), (2, facts.addresses.get(1).copied()), "{facts:?}");
        assert_eq!(
            facts.provider_id,
            format!("gce://rehearsal/{}/{}", facts.zone.clone().unwrap(), wanted.name)
        );
        zones.extend(facts.zone);
    }
    assert_eq!(zones, ["us-central1-a", "us-central1-b", "us-central1-c"]);
    world.stop().await;
}

#[tokio::test]
async fn operations_that_are_done_and_failed_are_told_and_tried_again() {
    let table = [
        ("compute.instances.insert", "QUOTA_EXCEEDED", 403, Class::Quota),
        ("compute.instances.insert", "ZONE_RESOURCE_POOL_EXHAUSTED", 503, Class::Quota),
        ("compute.instances.insert", "INTERNAL_ERROR", 500, Class::Retryable),
        ("compute.instances.insert", "PERMISSIONS_ERROR", 403, Class::Auth),
    ];
    for (method, code, status, class) in table {
        let world = GcpWorld::start(Setup::default()).await;
        world.gce.change(|state| state.fail(failing(method, code, status)));
        let hands = world.infrastructure();
        let wanted = world.wanted("butler-cp-0", 0);
        let failure = machine(&hands, &wanted).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure:?}");
        assert!(
            failure.message.contains(&format!("simulated {code}")) && failure.message.contains("butler-cp-0")
        );
        machine(&hands, &wanted).await.unwrap();
        world.stop().await;
    }
}

#[tokio::test]
async fn a_quota_in_the_middle_of_a_balancer_is_waited_for() {
    let world = GcpWorld::start(Setup::default()).await;
    world.gce.change(|state| state.set_quota("FORWARDING_RULES", 1.0));
    let hands = world.infrastructure();
    let wanted = world.balancer();
    let failure = balancer(&hands, &wanted).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Quota, "QuotaExceeded"), "{failure:?}");
    world.gce.change(|state| state.set_quota("FORWARDING_RULES", 10.0));
    balancer(&hands, &wanted).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn a_missing_permission_is_not_a_quota() {
    let world = GcpWorld::start(Setup::default()).await;
    world.gce.change(|state| state.set_lacking(&["compute.forwardingRules.create"]));
    let hands = world.infrastructure();
    let wanted = world.balancer();
    let failure = balancer(&hands, &wanted).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "PermissionDenied"));
    assert!(failure.message.contains("compute.forwardingRules.create"), "{failure}");
    let preflight = PreflightWanted { load_balancer: Some(wanted.clone()), ..PreflightWanted::default() };
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check == "permissions").unwrap();
    assert_eq!(found.verdict, Verdict::Fail);
    assert!(found.detail.ends_with("lacks compute.forwardingRules.create"), "{found:?}");
    world.gce.change(|state| state.set_lacking(&[]));
    balancer(&hands, &wanted).await.unwrap();
    world.stop().await;
}

/// What the cluster's own cloud controller has made is told, by the tag of the machines that it is for.
#[tokio::test]
async fn load_balancers_of_services_are_told() {
    let world = GcpWorld::start(Setup::default()).await;
    world.gce.change(|state| {
        for (name, cluster) in [("a0b1", "butler"), ("c2d3", "another")] {
            let firewall = json!({"name": format!("k8s-fw-{name}"), "targetTags": [cluster]});
            state.add_foreign(&format!("projects/rehearsal/global/firewalls/k8s-fw-{name}"), firewall);
            let path = format!("projects/rehearsal/regions/us-central1/forwardingRules/{name}");
            state.add_foreign(&path, json!({"name": name, "IPAddress": "203.0.113.80"}));
        }
    });
    let balancers = world.infrastructure().load_balancers.unwrap();
    let found = balancers.of_services("butler").await.unwrap();
    assert_eq!(found, ["the firewall rule k8s-fw-a0b1", "the forwarding rule a0b1 in us-central1"]);
    assert_eq!(balancers.of_services("nobody").await.unwrap(), Vec::<String>::new());
    world.stop().await;
}

/// A part that a list still shows, and that is not there any more, is looked at again: nobody's settings are wrong.
#[tokio::test]
async fn a_part_that_has_just_gone_does_not_stop_anything() {
    let world = GcpWorld::start(Setup::default()).await;
    let machine_wanted = world.wanted("butler-cp-0", 0);
    let hands = world.infrastructure();
    let made = machine(&hands, &machine_wanted).await.unwrap();
    let mut wanted = world.balancer();
    wanted.spec.targets.push(butler_api::LoadBalancerTarget {
        ip: made.addresses[0].to_string(),
        instance_name: Some(machine_wanted.name.clone()),
        ..Default::default()
    });
    balancer(&hands, &wanted).await.unwrap();
    for (question, status) in [("listInstances", 404), ("getHealth", 404), ("getHealth", 400)] {
        let before = world.calls();
        balancer(&hands, &wanted).await.unwrap();
        let calls = world.ground().gate.calls();
        let asked =
            calls.iter().find(|one| one.number > before && one.call.operation.contains(question)).unwrap();
        let again = world.calls() + asked.number - before;
        world.ground().gate.on_call(again, butler_sim::Fault::Status(status));
        let balancers = hands.load_balancers.as_ref().unwrap();
        if let Err(failure) = balancers.ensure(&wanted, None).await {
            assert!(!failure.class.stops(), "{question} {status}: {failure:?}");
        }
        assert!(world.calls() >= again, "{question} {status} was not asked");
        balancer(&hands, &wanted).await.unwrap();
    }
    world.stop().await;
}

/// What doctor asks for is all that a life needs, and nothing that it needs is left out.
async fn a_life_with_no_more_than_doctor_lists<const POOLS: bool>(internal: bool) {
    let world = SimulatedGcp::<POOLS>::start(Setup::default()).await;
    let machine_wanted = world.wanted("butler-cp-0", 0);
    let mut wanted = world.balancer();
    wanted.spec.options.get_or_insert_default().internal = internal;
    let preflight = PreflightWanted {
        machines: vec![machine_wanted.clone()],
        load_balancer: Some(wanted.clone()),
        ..PreflightWanted::default()
    };
    let hands = world.infrastructure();
    world.gce.change(|state| state.set_holding(&["compute.projects.get"]));
    let findings = hands.preflight.check(&preflight).await;
    let found = findings.iter().find(|finding| finding.check == "permissions").unwrap();
    let (_, listed) = found.detail.split_once(" lacks ").unwrap();
    let held: Vec<&str> = listed.split(", ").chain(["compute.projects.get"]).collect();
    world.gce.change(|state| state.set_holding(&held));
    let findings = hands.preflight.check(&preflight).await;
    assert!(findings.iter().all(|finding| finding.verdict != Verdict::Fail), "{findings:#?}");
    let made = machine(&hands, &machine_wanted).await.unwrap();
    wanted.spec.targets.push(butler_api::LoadBalancerTarget {
        ip: made.addresses[0].to_string(),
        instance_name: Some(machine_wanted.name.clone()),
        ..Default::default()
    });
    balancer(&hands, &wanted).await.unwrap();
    removed(&hands, &wanted).await.unwrap();
    remove(&world, &target(&machine_wanted), Life::Same).await;
    assert_eq!((world.machines().len(), world.volumes()), (0, 0));
    world.stop().await;
}

#[tokio::test]
async fn the_permissions_that_doctor_lists_are_enough() {
    a_life_with_no_more_than_doctor_lists::<false>(false).await;
    a_life_with_no_more_than_doctor_lists::<false>(true).await;
    a_life_with_no_more_than_doctor_lists::<true>(false).await;
}

#[tokio::test]
async fn logins_fail_by_name_and_heal() {
    let world = GcpWorld::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let hands = world.infrastructure();
    machine(&hands, &wanted).await.unwrap();
    // A token that ended early is renewed without a word.
    world.gce.change(|state| state.expire_tokens());
    machine(&hands, &wanted).await.unwrap();
    world.gce.change(|state| {
        state.set_disabled(true);
        state.expire_tokens();
    });
    let failure = machine(&hands, &wanted).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "LoginFailed"), "{failure:?}");
    let findings = world.infrastructure().preflight.check(&PreflightWanted::default()).await;
    assert_eq!(
        (findings[0].check.as_str(), findings[0].verdict, findings.len()),
        ("credentials", Verdict::Fail, 2)
    );
    world.gce.change(|state| state.set_disabled(false));
    machine(&hands, &wanted).await.unwrap();
    // Another account's key.
    let other = GceSite::example().service_account_key().unwrap().to_owned();
    let other = Credentials([("serviceAccountKey".to_owned(), other)].into());
    let failure =
        machine(&connect(&config(), &other, &world.connection()).unwrap(), &wanted).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "LoginFailed"), "{failure:?}");
    assert!(!world.journal().contains("ya29"), "a token was written down");
    world.stop().await;
}

#[tokio::test]
async fn a_disk_that_outlives_its_machine_goes_too() {
    let world = GcpWorld::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    make(&world, &wanted, Life::Same).await.unwrap();
    // Somebody takes the instance away and leaves its disks.
    world.gce.change(|state| {
        assert!(state.take_away("projects/rehearsal/zones/us-central1-a/instances/butler-cp-0"));
    });
    assert_eq!((world.machines().len(), world.volumes()), (0, 2));
    let owned = world.infrastructure().machines.owned(Some(&wanted.owner.cluster_uid)).await.unwrap();
    assert!(owned.len() == 2 && owned.iter().all(|one| one.kind == "disk"), "{owned:?}");
    remove(&world, &target(&wanted), Life::Same).await;
    assert_eq!(world.volumes(), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_region_without_the_image_is_told_before() {
    let world = GcpWorld::start(Setup::default()).await;
    world.gce.change(|state| state.remove_image(None));
    let wanted =
        PreflightWanted { machines: vec![world.wanted("butler-cp-0", 0)], ..PreflightWanted::default() };
    let findings = world.infrastructure().preflight.check(&wanted).await;
    let failed: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert!(failed.len() == 1 && failed[0].check == "image talos", "{findings:#?}");
    let failure = machine(&world.infrastructure(), &wanted.machines[0]).await.unwrap_err();
    assert_eq!(failure.class, Class::InvalidConfig, "{failure:?}");
    world.stop().await;
}

fn named(network: &str) -> ProviderConfigSpec {
    let mut config = config();
    config.gcp.as_mut().unwrap().network = Some(network.to_owned());
    config
}

#[tokio::test]
async fn a_preflight_sees_closed_ports_full_quotas_and_taken_names() {
    let world = GcpWorld::start(Setup { foreign_balancer: true, ..Setup::default() }).await;
    let wanted = PreflightWanted {
        machines: (0..3).map(|number| world.wanted(&format!("butler-cp-{number}"), number)).collect(),
        load_balancer: Some(world.balancer()),
        ..PreflightWanted::default()
    };
    world.gce.change(|state| {
        for rule in ["default-allow-internal", "default-allow-talos"] {
            assert!(state.take_away(&format!("projects/rehearsal/global/firewalls/{rule}")));
        }
        state.add_foreign(
            "projects/rehearsal/global/firewalls/no-google",
            json!({"name": "no-google", "network": "https://www.googleapis.com/compute/v1/projects/rehearsal/global/networks/default",
                "priority": 10, "sourceRanges": ["35.191.0.0/16"], "denied": [{"IPProtocol": "all"}], "direction": "INGRESS"}),
        );
        state.set_quota("CPUS", 10.0);
    });
    let changes = world.changes();
    let findings = world.infrastructure().preflight.check(&wanted).await;
    let failed: Vec<&str> =
        findings.iter().filter(|one| one.verdict == Verdict::Fail).map(|one| one.check.as_str()).collect();
    let expected = [
        "quota CPUS",
        "firewall tcp 6443 between machines",
        "firewall tcp 50000-50001 between machines",
        "firewall tcp 2379-2380 between machines",
        "firewall tcp 10250 between machines",
        "firewall tcp 4240 between machines",
        "firewall udp 8472 between machines",
        "firewall tcp 6443 from 35.191.0.0/16",
        "firewall tcp 50000 from 35.191.0.0/16",
        "names",
    ];
    assert_eq!(failed, expected, "{findings:#?}");
    assert!(findings.iter().filter(|one| one.verdict == Verdict::Fail).all(|one| !one.remedy.is_empty()));
    assert_eq!(world.changes(), changes);
    let hands = connect(&named("nowhere"), &key(), &world.connection()).unwrap();
    let findings = hands.preflight.check(&PreflightWanted::default()).await;
    assert!(findings.iter().any(|one| one.check == "network nowhere" && one.verdict == Verdict::Fail));
    world.stop().await;
}

#[tokio::test]
async fn registered_is_not_healthy() {
    let world = GcpWorld::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let made = make(&world, &wanted, Life::Same).await.unwrap();
    let mut lb = world.balancer();
    lb.spec.targets.push(butler_api::LoadBalancerTarget {
        ip: made.addresses[0].to_string(),
        instance_name: Some(wanted.name.clone()),
        ..butler_api::LoadBalancerTarget::default()
    });
    // Checks come to the load balancer's address, which a machine without a configuration does not have.
    let facts = balancer(&world.infrastructure(), &lb).await.unwrap();
    for listener in &facts.listeners {
        assert_eq!(listener.registered, [made.addresses[0].to_string()]);
        assert_eq!(listener.healthy, Vec::<String>::new());
    }
    world.stop().await;
}
