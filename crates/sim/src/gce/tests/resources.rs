//! Operations, request ids, lists, names and limits, with addresses and firewall rules as examples.

use super::*;

const ID: &str = "0b0c2b2e-5a5c-4f1e-9a3c-0d6f5e3a1b11";

#[test]
fn a_change_is_an_operation_that_takes_its_time_and_is_then_done() {
    let mut bench = Bench::with(&site(), 1.0);
    let addresses = format!("{REGION}/addresses");
    let begun = bench.ok("POST", &addresses, json!({"name": "api"}));
    assert_eq!(
        (begun["status"].as_str(), begun["operationType"].as_str()),
        (Some("PENDING"), Some("insert"))
    );
    let operation = format!("{REGION}/operations/{}", begun["name"].as_str().unwrap());
    assert_eq!(bench.reason("GET", &format!("{addresses}/api"), Value::Null), (404, "notFound".to_string()));
    assert_eq!(bench.reason("POST", &addresses, json!({"name": "api"})), (409, "alreadyExists".to_string()));
    let early = bench.reason("DELETE", &format!("{addresses}/api"), Value::Null);
    assert_eq!(early, (400, "resourceNotReady".to_string()));
    bench.now += 1000;
    bench.settle();
    assert_eq!(bench.get(&operation)["status"], "RUNNING");
    bench.now += 1000;
    bench.settle();
    let over = bench.get(&operation);
    assert_eq!((over["status"].as_str(), over["progress"].as_i64()), (Some("DONE"), Some(100)));
    let address = bench.get(&format!("{addresses}/api"));
    assert_eq!(
        (address["status"].as_str(), address["addressType"].as_str()),
        (Some("RESERVED"), Some("EXTERNAL"))
    );
    assert!(address["address"].as_str().unwrap().parse::<std::net::Ipv4Addr>().is_ok());
    // A list is a little behind.
    assert_eq!(bench.get(&addresses)["items"], Value::Null);
    bench.now += 1000;
    assert_eq!(bench.get(&addresses)["items"][0]["name"], "api");
    let elsewhere = bench.reason("GET", &operation.replace("us-central1", "us-east9"), Value::Null);
    assert_eq!(elsewhere.1, "invalid");
}

#[test]
fn a_request_id_is_good_for_one_request_and_gives_its_operation_again() {
    let mut bench = Bench::new();
    let target = format!("{REGION}/addresses?requestId={ID}");
    let first = bench.ok("POST", &target, json!({"name": "api"}));
    let again = bench.ok("POST", &target, json!({"name": "api"}));
    assert_eq!(first["name"], again["name"]);
    bench.settle();
    let later = bench.ok("POST", &target, json!({"name": "api"}));
    assert_eq!((&later["name"], later["status"].as_str()), (&first["name"], Some("DONE")));
    assert_eq!(bench.reason("POST", &target, json!({"name": "other"})), (400, "invalid".to_string()));
    // A delete of before does not come back to life after the resource was made anew.
    for bad in ["00000000-0000-0000-0000-000000000000", "1", "0b0c2b2e-5a5c-4f1e-9a3c-0d6f5e3a1b1z"] {
        let (status, reason, _) =
            bench.refused("POST", &format!("{REGION}/addresses?requestId={bad}"), json!({"name": "b"}));
        assert_eq!((status, reason.as_str()), (400, "invalid"), "{bad}");
    }
}

#[test]
fn an_operation_can_be_done_and_have_failed() {
    let mut bench = Bench::new();
    bench.state.fail(SiteFailure {
        method: "compute.addresses.insert".to_string(),
        name: "a*".to_string(),
        code: "INTERNAL_ERROR".to_string(),
        message: "Internal error.".to_string(),
        status: 500,
        times: 1,
    });
    let addresses = format!("{REGION}/addresses");
    let over = bench.change("POST", &addresses, json!({"name": "api"}));
    assert_eq!(over["error"]["errors"][0]["code"], "INTERNAL_ERROR");
    assert_eq!(
        (over["httpErrorStatusCode"].as_i64(), over["httpErrorMessage"].as_str()),
        (Some(500), Some("INTERNAL SERVER ERROR"))
    );
    assert_eq!(bench.reason("GET", &format!("{addresses}/api"), Value::Null).0, 404);
    bench.done("POST", &addresses, json!({"name": "api"}));
}

#[test]
fn limits_are_told_and_held() {
    let mut bench = Bench::new();
    bench.state.set_quota("STATIC_ADDRESSES", 1.0);
    let addresses = format!("{REGION}/addresses");
    bench.ok("POST", &addresses, json!({"name": "one"}));
    // What is on its way counts.
    let (status, reason, message) = bench.refused("POST", &addresses, json!({"name": "two"}));
    assert_eq!((status, reason.as_str()), (403, "quotaExceeded"));
    assert_eq!(message, "Quota 'STATIC_ADDRESSES' exceeded.  Limit: 1.0 in region us-central1.");
    bench.settle();
    let region = bench.get(REGION);
    let quota = region["quotas"]
        .as_array()
        .unwrap()
        .iter()
        .find(|q| q["metric"] == "STATIC_ADDRESSES")
        .unwrap()
        .clone();
    assert_eq!((quota["limit"].as_f64(), quota["usage"].as_f64()), (Some(1.0), Some(1.0)));
    bench.state.set_quota("FIREWALLS", 3.0);
    let rule = json!({"name": "more", "allowed": [{"IPProtocol": "tcp"}]});
    assert_eq!(
        bench.refused("POST", "global/firewalls", rule).2,
        "Quota 'FIREWALLS' exceeded.  Limit: 3.0 globally."
    );
}

#[test]
fn labels_have_fingerprints_and_rules() {
    let mut bench = Bench::new();
    let addresses = format!("{REGION}/addresses");
    let bad = json!({"name": "api", "labels": {"Upper": "x"}});
    assert_eq!(bench.reason("POST", &addresses, bad), (400, "invalid".to_string()));
    let dotted = json!({"name": "api", "labels": {"ok": "a.b"}});
    assert_eq!(bench.reason("POST", &addresses, dotted), (400, "invalid".to_string()));
    bench.done("POST", &addresses, json!({"name": "api", "labels": {"a": "1"}}));
    let held = bench.get(&format!("{addresses}/api"))["labelFingerprint"].clone();
    let set = format!("{addresses}/api/setLabels");
    let stale = bench.reason("POST", &set, json!({"labels": {"a": "2"}, "labelFingerprint": "AAAAAAAAAAA="}));
    assert_eq!(stale, (412, "conditionNotMet".to_string()));
    bench.done("POST", &set, json!({"labels": {"b": "2"}, "labelFingerprint": held}));
    let changed = bench.get(&format!("{addresses}/api"));
    assert_eq!(changed["labels"], json!({"b": "2"}));
    assert_ne!(changed["labelFingerprint"], held);
    let found = bench.get(&format!("{addresses}?filter=labels.b%3D2"));
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(bench.get(&format!("{addresses}?filter=labels.b%3D3"))["items"], Value::Null);
    let everywhere = bench.get("aggregated/addresses");
    assert_eq!(everywhere["items"][REGION]["addresses"][0]["name"], "api");
    assert_eq!(everywhere["items"]["zones/us-central1-a"]["warning"]["code"], "NO_RESULTS_ON_PAGE");
}

#[test]
fn firewall_rules_are_checked_and_completed() {
    let mut bench = Bench::new();
    let rule = |change: Value| {
        let mut rule = json!({"name": "api", "allowed": [{"IPProtocol": "tcp", "ports": ["6443"]}]});
        for (key, value) in change.as_object().unwrap() {
            rule[key] = value.clone();
        }
        rule
    };
    for bad in [
        json!({"denied": [{"IPProtocol": "tcp"}]}),
        json!({"allowed": []}),
        json!({"sourceRanges": ["10.0.0.1/8"]}),
        json!({"priority": 70000}),
        json!({"allowed": [{"IPProtocol": "tcp", "ports": ["a"]}]}),
    ] {
        assert_eq!(bench.reason("POST", "global/firewalls", rule(bad.clone())).0, 400, "{bad}");
    }
    let nowhere = bench.reason("POST", "global/firewalls", rule(json!({"network": "global/networks/other"})));
    assert_eq!(nowhere, (404, "notFound".to_string()));
    bench.done("POST", "global/firewalls", rule(json!({})));
    let made = bench.get("global/firewalls/api");
    assert_eq!((made["priority"].as_i64(), &made["sourceRanges"]), (Some(1000), &json!(["0.0.0.0/0"])));
    bench.done("PATCH", "global/firewalls/api", json!({"name": "api", "sourceRanges": ["192.0.2.0/24"]}));
    let changed = bench.get("global/firewalls/api");
    assert_eq!((&changed["sourceRanges"], &changed["allowed"]), (&json!(["192.0.2.0/24"]), &made["allowed"]));
    bench.done("DELETE", "global/firewalls/api", Value::Null);
    assert_eq!(bench.reason("GET", "global/firewalls/api", Value::Null).0, 404);
}

#[test]
fn places_and_projects_that_are_not_there_are_named() {
    let mut bench = Bench::new();
    assert_eq!(bench.reason("GET", "regions/mars1/addresses", Value::Null), (400, "invalid".to_string()));
    assert_eq!(bench.reason("GET", "regions/mars1", Value::Null), (404, "notFound".to_string()));
    assert_eq!(bench.reason("GET", "zones/mars1-a/instances", Value::Null), (400, "invalid".to_string()));
    let mut call =
        Call::read("compute.googleapis.com", "GET", "/compute/v1/projects/other/global/firewalls", b"");
    call.token = Some(TOKEN.to_string());
    assert_eq!(bench.state.handle(&call, NOON, &|_, _, _| true).status, 404);
    let unknown = bench.refused("POST", "global/routers", json!({}));
    assert_eq!((unknown.0, unknown.2.contains("is not simulated")), (501, true));
    assert_eq!(bench.get("global/images/family/talos")["name"], "talos-v1-9-2");
    assert_eq!(bench.get("zones/us-central1-b/machineTypes/e2-custom-4-8192")["guestCpus"], 4);
    assert_eq!(bench.reason("GET", "zones/us-central1-b/machineTypes/e2-custom-3-8192", Value::Null).0, 404);
    assert_eq!(bench.get(&format!("{REGION}/subnetworks/default"))["ipCidrRange"], "10.128.0.0/20");
}
