//! Load balancers: parts that need each other, members, and what comes out as a balancer.

use super::*;
use crate::balancer::{Mode, Probe};
use std::net::IpAddr;

const SERVICE: &str = "regions/us-central1/backendServices";
const RULES: &str = "regions/us-central1/forwardingRules";
const CHECKS: &str = "regions/us-central1/healthChecks";
const GROUPS: &str = "zones/us-central1-a/instanceGroups";

fn link(path: &str) -> String {
    format!("https://www.googleapis.com/compute/v1/projects/rehearsal/{path}")
}

fn member(name: &str) -> Value {
    json!({"instances": [{"instance": link(&format!("zones/{ZONE}/instances/{name}"))}]})
}

impl Bench {
    /// Two control planes behind a backend service, and a rule for 6443.
    fn service(&mut self) -> IpAddr {
        self.done("POST", "regions/us-central1/addresses", json!({"name": "api"}));
        self.done("POST", CHECKS, json!({
            "name": "api", "type": "HTTPS", "httpsHealthCheck": {"port": 6443, "requestPath": "/readyz"}, "checkIntervalSec": 8,
        }));
        self.done("POST", GROUPS, json!({"name": "api-a"}));
        for name in ["cp-0", "cp-1"] {
            self.instance(ZONE, name);
            self.done("POST", &format!("{GROUPS}/api-a/addInstances"), member(name));
        }
        self.done("POST", SERVICE, json!({
            "name": "api", "loadBalancingScheme": "EXTERNAL", "protocol": "TCP", "healthChecks": [link(&format!("{CHECKS}/api"))],
            "backends": [{"group": link(&format!("{GROUPS}/api-a")), "balancingMode": "CONNECTION"}],
            "connectionDraining": {"drainingTimeoutSec": 60},
        }));
        self.done("POST", RULES, json!({
            "name": "api-6443", "IPAddress": link("regions/us-central1/addresses/api"), "IPProtocol": "TCP", "portRange": "6443",
            "backendService": link(&format!("{SERVICE}/api")), "loadBalancingScheme": "EXTERNAL",
        }));
        let address = self.get("regions/us-central1/addresses/api");
        assert_eq!(address["status"], "IN_USE");
        address["address"].as_str().unwrap().parse().unwrap()
    }
}

#[test]
fn a_backend_service_becomes_a_balancer_that_hands_packets_on() {
    let mut bench = Bench::new();
    let address = bench.service();
    assert_eq!(bench.get(&format!("{RULES}/api-6443"))["portRange"], "6443-6443");
    let all = bench.state.balancers();
    let balancer = &all[&format!("gce/{address}")];
    assert_eq!((balancer.mode, balancer.frontends.len()), (Mode::Passthrough, 1));
    let pool = &balancer.pools["6443"];
    assert_eq!(pool.targets.len(), 2);
    assert!(pool.targets.iter().all(|target| target.port == 6443 && target.open));
    let Probe::Http { tls, path, .. } = &pool.check.probe else { panic!("{:?}", pool.check) };
    assert_eq!(
        (*tls, path.as_str(), pool.check.interval.as_secs(), pool.check.fall),
        (true, "/readyz", 8, 2)
    );
    // Nobody lets the checks in yet: the rule for everybody is taken away.
    let talos = "projects/rehearsal/global/firewalls/default-allow-talos";
    assert!(bench.state.set_fields(talos, &json!({"sourceRanges": ["203.0.113.0/24"]})));
    let kept_out =
        |bench: &Bench| bench.state.balancers()[&format!("gce/{address}")].pools["6443"].targets[0].clone();
    assert!(kept_out(&bench).open && !kept_out(&bench).checkable);
    bench.done(
        "POST",
        "global/firewalls",
        json!({
            "name": "checks", "sourceRanges": ["35.191.0.0/16", "130.211.0.0/22"], "targetTags": ["prod"],
            "allowed": [{"IPProtocol": "tcp", "ports": ["6443"]}],
        }),
    );
    assert!(kept_out(&bench).checkable);
    bench.done("POST", "global/firewalls", json!({
        "name": "no-clients", "sourceRanges": ["203.0.113.10/32"], "priority": 10, "denied": [{"IPProtocol": "tcp"}],
    }));
    assert!(!kept_out(&bench).open, "a denial of higher priority wins");
    let health = bench.ok(
        "POST",
        &format!("{SERVICE}/api/getHealth"),
        json!({"group": link(&format!("{GROUPS}/api-a"))}),
    );
    assert_eq!(health["healthStatus"].as_array().unwrap().len(), 2);
    assert_eq!(health["healthStatus"][0]["healthState"], "HEALTHY");
}

#[test]
fn an_instance_that_leaves_keeps_its_connections_for_a_while() {
    let mut bench = Bench::with(&site(), 0.0);
    let address = bench.service();
    bench.state.speed = 1.0;
    bench.ok("POST", &format!("{GROUPS}/api-a/removeInstances"), member("cp-0"));
    bench.now += 4000;
    bench.settle();
    let targets =
        |bench: &Bench| bench.state.balancers()[&format!("gce/{address}")].pools["6443"].targets.clone();
    let draining: Vec<bool> = targets(&bench).iter().map(|target| target.draining).collect();
    assert_eq!(draining, [false, true]);
    assert_eq!(bench.get(&format!("{GROUPS}/api-a"))["size"], 1);
    assert_eq!(bench.state.next_due(), Some(bench.now + 60_000));
    bench.now += 60_000;
    bench.settle();
    assert_eq!(targets(&bench).len(), 1);
    assert_eq!(bench.state.next_due(), None);
}

#[test]
fn parts_go_in_the_order_in_which_nobody_uses_them() {
    let mut bench = Bench::new();
    bench.service();
    let (rule, service) = (format!("{RULES}/api-6443"), format!("{SERVICE}/api"));
    let (group, check) = (format!("{GROUPS}/api-a"), format!("{CHECKS}/api"));
    let address = "regions/us-central1/addresses/api".to_string();
    let used = |bench: &mut Bench, path: &str| bench.reason("DELETE", path, Value::Null).1;
    for held in [&service, &group, &check, &address] {
        assert_eq!(used(&mut bench, held), "resourceInUseByAnotherResource", "{held}");
    }
    bench.done("DELETE", &rule, Value::Null);
    assert_eq!(bench.get(&address)["status"], "RESERVED");
    for held in [&group, &check] {
        assert_eq!(used(&mut bench, held), "resourceInUseByAnotherResource", "{held}");
    }
    bench.done("DELETE", &service, Value::Null);
    for free in [&group, &check, &address] {
        bench.done("DELETE", free, Value::Null);
    }
    assert!(bench.state.balancers().is_empty());
}

#[test]
fn members_come_and_go_once_and_an_instance_leaves_when_it_is_gone() {
    let mut bench = Bench::new();
    bench.service();
    let add = format!("{GROUPS}/api-a/addInstances");
    assert_eq!(bench.reason("POST", &add, member("cp-0")), (400, "memberAlreadyExists".to_string()));
    assert_eq!(bench.reason("POST", &add, member("cp-9")), (404, "notFound".to_string()));
    let remove = format!("{GROUPS}/api-a/removeInstances");
    bench.done("POST", &remove, member("cp-0"));
    assert_eq!(bench.reason("POST", &remove, member("cp-0")), (400, "memberNotFound".to_string()));
    let listed = bench.ok("POST", &format!("{GROUPS}/api-a/listInstances"), json!({}));
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    bench.done("DELETE", &format!("zones/{ZONE}/instances/cp-1"), Value::Null);
    assert_eq!(bench.get(&format!("{GROUPS}/api-a"))["size"], 0);
    let elsewhere = format!("zones/{ZONE}/instances/cp-0");
    bench.done("POST", "zones/us-central1-b/instanceGroups", json!({"name": "api-b"}));
    let other = json!({"instances": [{"instance": elsewhere}]});
    assert_eq!(bench.reason("POST", "zones/us-central1-b/instanceGroups/api-b/addInstances", other).0, 400);
}

#[test]
fn rules_share_an_address_but_no_port_and_services_have_fingerprints() {
    let mut bench = Bench::new();
    bench.service();
    let rule = |change: Value| {
        let mut rule = json!({
            "name": "more", "IPAddress": "regions/us-central1/addresses/api", "portRange": "50000",
            "backendService": format!("{SERVICE}/api"), "loadBalancingScheme": "EXTERNAL",
        });
        for (key, value) in change.as_object().unwrap() {
            rule[key] = value.clone();
        }
        rule
    };
    for bad in [
        json!({"portRange": "6000-7000"}),
        json!({"portRange": "x"}),
        json!({"ports": ["50000"]}),
        json!({"IPAddress": "198.51.100.77"}),
        json!({"loadBalancingScheme": "INTERNAL"}),
        json!({"target": "regions/us-central1/targetPools/none"}),
    ] {
        assert_ne!(bench.call("POST", RULES, rule(bad.clone())).status, 200, "{bad}");
    }
    bench.done("POST", RULES, rule(json!({})));
    assert_eq!(bench.state.balancers().values().next().unwrap().frontends.len(), 2);
    let path = format!("{SERVICE}/api");
    let stale = json!({"fingerprint": "AAAAAAAAAAA=", "backends": []});
    assert_eq!(bench.reason("PATCH", &path, stale), (412, "conditionNotMet".to_string()));
    let held = bench.get(&path)["fingerprint"].clone();
    bench.done("PATCH", &path, json!({"fingerprint": held, "connectionDraining": {"drainingTimeoutSec": 5}}));
    let changed = bench.get(&path);
    assert_eq!(changed["connectionDraining"]["drainingTimeoutSec"], 5);
    assert_eq!(changed["backends"].as_array().unwrap().len(), 1, "what is not named stays");
    assert_ne!(changed["fingerprint"], held);
    let wrong = json!({"backends": [{"group": format!("{GROUPS}/api-a"), "balancingMode": "UTILIZATION"}]});
    assert_eq!(bench.reason("PATCH", &path, wrong).0, 400);
    let two = json!({"name": "b", "healthChecks": [], "loadBalancingScheme": "EXTERNAL"});
    assert_eq!(bench.reason("POST", SERVICE, two).0, 400);
    for bad in [
        json!({"name": "c", "type": "TCP", "timeoutSec": 9, "checkIntervalSec": 5}),
        json!({"name": "c", "type": "TCP", "httpsHealthCheck": {"port": 1}}),
        json!({"name": "c"}),
        json!({"name": "c", "type": "TCP", "unhealthyThreshold": 11}),
    ] {
        assert_eq!(bench.reason("POST", CHECKS, bad.clone()).0, 400, "{bad}");
    }
}

#[test]
fn a_target_pool_takes_only_legacy_checks_and_keeps_links_to_what_is_gone() {
    let mut bench = Bench::new();
    bench.instance(ZONE, "cp-0");
    bench.done("POST", CHECKS, json!({"name": "new", "type": "TCP"}));
    bench.done(
        "POST",
        "global/httpHealthChecks",
        json!({"name": "old", "port": 3990, "requestPath": "/readyz"}),
    );
    let pools = "regions/us-central1/targetPools";
    let modern = json!({"name": "api", "healthChecks": [link(&format!("{CHECKS}/new"))]});
    assert_eq!(bench.reason("POST", pools, modern), (400, "invalid".to_string()));
    bench.done("POST", pools, json!({"name": "api", "healthChecks": [link("global/httpHealthChecks/old")]}));
    bench.done("POST", &format!("{pools}/api/addInstance"), member("cp-0"));
    bench.done(
        "POST",
        RULES,
        json!({"name": "api", "portRange": "6443-6443", "target": link(&format!("{pools}/api"))}),
    );
    let all = bench.state.balancers();
    let pool = &all.values().next().unwrap().pools["6443"];
    assert_eq!((pool.targets.len(), pool.check.port), (1, Some(3990)));
    let health = json!({"instance": link(&format!("zones/{ZONE}/instances/cp-0"))});
    let told = bench.ok("POST", &format!("{pools}/api/getHealth"), health);
    assert_eq!(told["healthStatus"][0]["healthState"], "HEALTHY");
    bench.done("DELETE", &format!("zones/{ZONE}/instances/cp-0"), Value::Null);
    assert_eq!(bench.get(&format!("{pools}/api"))["instances"].as_array().unwrap().len(), 1);
    bench.done("POST", &format!("{pools}/api/removeInstance"), member("cp-0"));
    assert!(bench.get(&format!("{pools}/api"))["instances"].as_array().unwrap().is_empty());
    assert_eq!(
        bench.reason("DELETE", "global/httpHealthChecks/old", Value::Null).1,
        "resourceInUseByAnotherResource"
    );
}
