//! Instances: what is refused, what is made with them, and what happens to their machines.

use super::*;

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut body = instance(ZONE, "cp-0");
    change(&mut body);
    body
}

#[test]
fn an_instance_comes_with_its_disk_and_addresses_and_boots_a_machine() {
    let mut bench = Bench::with(&site(), 1.0);
    let instances = format!("zones/{ZONE}/instances");
    bench.ok("POST", &instances, instance(ZONE, "cp-0"));
    let path = format!("{instances}/cp-0");
    assert_eq!(bench.get(&path)["status"], "PROVISIONING");
    bench.now += 12_000;
    let effects = bench.settle();
    let [Effect::Translate { external, internal: Some(internal) }, Effect::PowerOn { boot, .. }] =
        effects.as_slice()
    else {
        panic!("{effects:?}")
    };
    assert_eq!((boot.address, boot.talos_version.as_deref(), boot.known), (*internal, Some("v1.9.2"), false));
    assert_eq!((boot.hostname.as_str(), boot.user_data.as_deref()), ("cp-0", Some("version: v1alpha1")));
    let shown = format!("{boot:?} {:?} {:?}", bench.state, bench.state.operations);
    assert!(!shown.contains("v1alpha1") && !shown.contains(TOKEN), "secrets stay out of logs");
    let made = bench.get(&path);
    assert_eq!((made["status"].as_str(), made["kind"].as_str()), (Some("RUNNING"), Some("compute#instance")));
    let nic = &made["networkInterfaces"][0];
    assert_eq!(nic["networkIP"], internal.to_string());
    assert_eq!(nic["accessConfigs"][0]["natIP"], external.to_string());
    assert!(nic["subnetwork"].as_str().unwrap().ends_with("/regions/us-central1/subnetworks/default"));
    assert_eq!(made["disks"][0]["initializeParams"], Value::Null);
    let disk = bench.get(&format!("zones/{ZONE}/disks/cp-0"));
    assert_eq!((disk["sizeGb"].as_str(), disk["users"].as_array().unwrap().len()), (Some("50"), 1));
    let held = bench.reason("DELETE", &format!("zones/{ZONE}/disks/cp-0"), Value::Null);
    assert_eq!(held, (400, "resourceInUseByAnotherResource".to_string()));
    bench.ok("DELETE", &path, Value::Null);
    assert_eq!(bench.get(&path)["status"], "STOPPING");
    bench.now += 30_000;
    let gone = bench.settle();
    assert!(gone.contains(&Effect::Remove { address: *internal }), "{gone:?}");
    assert!(gone.contains(&Effect::Translate { external: *external, internal: None }));
    assert_eq!(bench.reason("GET", &path, Value::Null).0, 404);
    assert_eq!(bench.reason("GET", &format!("zones/{ZONE}/disks/cp-0"), Value::Null).0, 404);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_made() {
    let mut bench = Bench::new();
    let instances = format!("zones/{ZONE}/instances");
    let cases: Vec<(Value, u16, &str)> = vec![
        (
            with(|b| b["machineType"] = json!("zones/us-central1-a/machineTypes/custom-3-8192")),
            400,
            "invalid",
        ),
        (
            with(|b| b["machineType"] = json!("zones/us-central1-b/machineTypes/e2-standard-2")),
            400,
            "invalid",
        ),
        (with(|b| b["machineType"] = json!("e2-standard-2")), 400, "invalid"),
        (with(|b| b["disks"][0]["boot"] = json!(false)), 400, "invalid"),
        (with(|b| b["disks"][0]["initializeParams"]["diskSizeGb"] = json!("5")), 400, "invalid"),
        (
            with(|b| b["disks"][0]["initializeParams"]["sourceImage"] = json!("global/images/none")),
            404,
            "notFound",
        ),
        (
            with(|b| b["disks"][0]["initializeParams"]["sourceImage"] = json!("global/images/family/none")),
            404,
            "notFound",
        ),
        (with(|b| b["networkInterfaces"] = json!([])), 400, "required"),
        (
            with(|b| b["networkInterfaces"][0]["subnetwork"] = json!("regions/us-central1/subnetworks/none")),
            404,
            "notFound",
        ),
        (with(|b| b["tags"]["items"] = json!(["Prod"])), 400, "invalid"),
        (with(|b| b["serviceAccounts"] = json!([{"email": "nobody@x"}])), 400, "invalid"),
        (with(|b| b["name"] = json!("1cp")), 400, "invalid"),
        (with(|b| b["userData"] = json!("x")), 400, "invalid"),
    ];
    for (body, status, reason) in cases {
        assert_eq!(bench.reason("POST", &instances, body.clone()), (status, reason.to_string()), "{body}");
    }
    assert!(bench.state.paths().iter().all(|path| !path.contains("cp")), "{:?}", bench.state.paths());
}

#[test]
fn quota_a_full_subnetwork_and_an_empty_zone_are_errors_of_the_operation() {
    let mut bench = Bench::new();
    let instances = format!("zones/{ZONE}/instances");
    bench.state.set_quota("CPUS", 6.0);
    bench.instance(ZONE, "cp-0");
    let over = bench.change("POST", &instances, instance(ZONE, "cp-1"));
    assert_eq!(over["error"]["errors"][0]["code"], "QUOTA_EXCEEDED");
    assert_eq!(
        over["error"]["errors"][0]["message"],
        "Quota 'CPUS' exceeded.  Limit: 6.0 in region us-central1."
    );
    assert_eq!(over["httpErrorStatusCode"], 403);
    assert_eq!(
        bench.reason("GET", &format!("{instances}/cp-1"), Value::Null).0,
        404,
        "nothing is left of it"
    );
    bench.state.set_quota("CPUS", 60.0);
    let subnetwork = "projects/rehearsal/regions/us-central1/subnetworks/default";
    assert!(bench.state.set_fields(subnetwork, &json!({"ipCidrRange": "10.128.0.0/29"})));
    for name in ["cp-1", "cp-2", "cp-3"] {
        bench.instance(ZONE, name);
    }
    let full = bench.change("POST", &instances, instance(ZONE, "cp-4"));
    assert_eq!(full["error"]["errors"][0]["code"], "IP_SPACE_EXHAUSTED");
    bench.state.fail(SiteFailure {
        method: "compute.instances.insert".to_string(),
        name: "*".to_string(),
        code: "ZONE_RESOURCE_POOL_EXHAUSTED".to_string(),
        message: "The zone does not have enough resources available.".to_string(),
        status: 503,
        times: 1,
    });
    let empty = bench.change("POST", "zones/us-central1-b/instances", instance("us-central1-b", "cp-5"));
    assert_eq!(empty["error"]["errors"][0]["code"], "ZONE_RESOURCE_POOL_EXHAUSTED");
}

#[test]
fn stopping_gives_the_outer_address_back_and_protection_holds() {
    let mut bench = Bench::new();
    bench.instance(ZONE, "cp-0");
    let path = format!("zones/{ZONE}/instances/cp-0");
    let before = bench.get(&path)["networkInterfaces"][0].clone();
    bench.done("POST", &format!("{path}/stop"), Value::Null);
    let stopped = bench.get(&path);
    assert_eq!(stopped["status"], "TERMINATED");
    assert_eq!(stopped["networkInterfaces"][0]["accessConfigs"][0]["natIP"], Value::Null);
    let operation = bench.ok("POST", &format!("{path}/start"), Value::Null);
    let effects = bench.settle();
    assert!(effects.iter().any(|e| matches!(e, Effect::PowerOn { boot, .. } if boot.known)), "{effects:?}");
    assert_eq!(operation["operationType"], "start");
    let after = bench.get(&path);
    assert_eq!(after["networkInterfaces"][0]["networkIP"], before["networkIP"]);
    assert_ne!(
        after["networkInterfaces"][0]["accessConfigs"][0]["natIP"],
        before["accessConfigs"][0]["natIP"]
    );
    // A machine that switches itself off is seen.
    bench.state.observe("projects/rehearsal/zones/us-central1-a/instances/cp-0", false, NOON);
    assert_eq!(bench.get(&path)["status"], "TERMINATED");
    bench.done("POST", &format!("{path}/setDeletionProtection?deletionProtection=true"), Value::Null);
    assert_eq!(bench.reason("DELETE", &path, Value::Null).0, 400);
    bench.done("POST", &format!("{path}/setDeletionProtection?deletionProtection=false"), Value::Null);
    bench.done("DELETE", &path, Value::Null);
}
