//! Machines: what is asked for, where, and what a state leads to.

use super::{config, machine, owner, settings};
use crate::dry_run::Recording;
use crate::failure::Class;
use crate::gcp::machine_plan::{Plan, facts, plan, plan_removal};
use crate::gcp::part::{Kind, Thing, Verb};
use crate::gcp::settings::Settings;
use crate::mark::Mark;
use crate::seam::{MachineTarget, Owner, Progress, StaticAddress};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn inserted(plan: Plan) -> Value {
    match plan {
        Plan::Do(mutation) => match mutation.verb {
            Verb::Insert { body, .. } => body,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn instance(owner: Option<&Owner>, status: &str) -> Thing {
    let description = owner.map(|owner| Mark::new(owner, &BTreeMap::new()).describe()).unwrap_or_default();
    let body = json!({"name": "mgmt-cp-0", "description": description, "status": status,
        "selfLink": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/instances/mgmt-cp-0",
        "networkInterfaces": [{"networkIP": "10.128.0.5", "accessConfigs": [{"natIP": "203.0.113.9"}]}]});
    Thing::read(Kind::Instance, &body).unwrap()
}

#[test]
fn an_instance_carries_everything_from_the_first_moment() {
    let mut wanted = machine("mgmt-cp-0");
    wanted.user_data = Some("#secret".into());
    wanted.static_address = Some(StaticAddress {
        address: "10.128.0.7".parse().unwrap(),
        bits: 20,
        gateway: None,
        nameservers: Vec::new(),
    });
    let config = config(json!({"serviceAccount": "nodes@p.iam.gserviceaccount.com", "tags": ["mgmt", "web"],
        "canIPForward": true}));
    let settings = Settings::read(&config).unwrap();
    let body = inserted(plan(&wanted, &settings, "us-central1-a", &[], &[]).unwrap());
    assert_eq!(body["tags"]["items"], json!(["mgmt", "web"]), "the cluster's name is a tag, once");
    assert!(Mark::read(body["description"].as_str().unwrap()).unwrap().is_of(&wanted.owner));
    assert_eq!(body["labels"]["butler_butlerlabs_dev_role"], "control-plane");
    assert_eq!(body["labels"]["butler-object-uid"], "uid-mgmt-cp-0");
    assert!(
        body["machineType"].as_str().unwrap().ends_with("zones/us-central1-a/machineTypes/e2-custom-4-8192")
    );
    assert_eq!(body["canIpForward"], true);
    let disks = body["disks"].as_array().unwrap();
    assert!(disks.iter().all(|disk| disk["autoDelete"] == true), "no disk outlives its machine");
    assert_eq!(disks[0]["initializeParams"]["diskSizeGb"], "40");
    assert!(
        disks[0]["initializeParams"]["sourceImage"]
            .as_str()
            .unwrap()
            .ends_with("p/global/images/talos-v1-12")
    );
    assert_eq!(disks[1]["initializeParams"]["diskName"], "mgmt-cp-0-disk-1");
    assert!(disks[1]["initializeParams"]["diskType"].as_str().unwrap().ends_with("diskTypes/pd-ssd"));
    let card = &body["networkInterfaces"][0];
    assert_eq!((card["networkIP"].as_str(), card["accessConfigs"].is_array()), (Some("10.128.0.7"), true));
    assert!(card["subnetwork"].as_str().unwrap().ends_with("p/regions/us-central1/subnetworks/nodes"));
    assert_eq!(body["serviceAccounts"][0]["email"], "nodes@p.iam.gserviceaccount.com");
    assert_eq!(body["metadata"]["items"][0], json!({"key": "user-data", "value": "#secret"}));
    // What is sent is not what is told.
    let Plan::Do(mutation) = plan(&wanted, &settings, "us-central1-a", &[], &[]).unwrap() else { panic!() };
    assert!(!mutation.change().to_string().contains("#secret"));
}

#[test]
fn machines_are_spread_over_the_zones() {
    let settings = settings();
    let zones: Vec<String> = ["a", "b", "c"].iter().map(|zone| format!("us-central1-{zone}")).collect();
    let places: Vec<&str> =
        (0..4).map(|number| settings.place(&format!("mgmt-cp-{number}"), &zones).unwrap()).collect();
    assert_eq!(places, ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-a"]);
    assert!(settings.place("mgmt-cp-0", &[]).is_err());
}

#[test]
fn a_state_leads_to_one_step() {
    let wanted = machine("mgmt-cp-0");
    let step =
        |status| plan(&wanted, &settings(), "us-central1-a", &[instance(Some(&wanted.owner), status)], &[]);
    assert_eq!(step("RUNNING").unwrap(), Plan::Settled);
    for status in ["PROVISIONING", "STAGING", "STOPPING", "REPAIRING"] {
        assert!(matches!(step(status).unwrap(), Plan::Wait(_)), "{status}");
    }
    for (status, verb) in [("TERMINATED", Verb::Start), ("SUSPENDED", Verb::Resume)] {
        let Plan::Do(mutation) = step(status).unwrap() else { panic!("{status}") };
        assert_eq!(mutation.verb, verb);
    }
}

#[test]
fn facts_have_the_private_address_first() {
    let facts = facts(&instance(None, "RUNNING"), &settings());
    assert_eq!(facts.provider_id, "gce://p/us-central1-a/mgmt-cp-0");
    let expected: [std::net::IpAddr; 2] = ["10.128.0.5".parse().unwrap(), "203.0.113.9".parse().unwrap()];
    assert_eq!((facts.addresses.as_slice(), facts.reach), (&expected[..], Some(expected[1])));
}

#[test]
fn a_stranger_of_that_name_is_never_touched() {
    let wanted = machine("mgmt-cp-0");
    for stranger in [instance(None, "RUNNING"), instance(Some(&owner("another")), "TERMINATED")] {
        let failure =
            plan(&wanted, &settings(), "us-central1-a", std::slice::from_ref(&stranger), &[]).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"));
        assert_eq!(plan_removal("mgmt-cp-0", &wanted.owner, &[stranger]), None);
    }
}

#[test]
fn a_disk_in_the_way_goes_only_when_it_is_ours() {
    let wanted = machine("mgmt-cp-0");
    let disk = |labels: Value, users: Value| {
        let body = json!({"name": "mgmt-cp-0", "labels": labels, "users": users,
            "selfLink": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/disks/mgmt-cp-0"});
        Thing::read(Kind::Disk, &body).unwrap()
    };
    let ours = json!({"butler-cluster-uid": "c1c1c1c1-0000", "butler-object-uid": "uid-mgmt-cp-0"});
    let step = |disk| plan(&wanted, &settings(), "us-central1-a", &[], &[disk]);
    let Plan::Do(mutation) = step(disk(ours.clone(), json!([]))).unwrap() else { panic!() };
    assert_eq!((mutation.part.kind, mutation.verb), (Kind::Disk, Verb::Delete));
    assert!(matches!(step(disk(ours, json!(["somebody"]))).unwrap(), Plan::Wait(_)));
    assert_eq!(step(disk(json!({}), json!([]))).unwrap_err().class, Class::Conflict);
}

#[test]
fn bad_settings_are_refused_by_name() {
    let reason = |more| Settings::read(&config(more)).unwrap_err().reason;
    assert_eq!(reason(json!({"zones": ["europe-west1-b"]})), "ZoneInvalid");
    assert_eq!(reason(json!({"projectID": ""})), "SettingsMissing");
    let none = Settings::read(&config(json!({"image": ""}))).unwrap();
    let failure = plan(&machine("a"), &none, "us-central1-a", &[], &[]).unwrap_err();
    assert_eq!(failure.reason, "NoImage");
}

#[tokio::test]
async fn a_dry_run_makes_and_removes() {
    let recording = Recording::new(&config(json!({}))).unwrap();
    let hands = recording.infrastructure();
    let wanted = machine("mgmt-cp-1");
    let Progress::Ready(facts) = hands.machines.ensure(&wanted, None).await.unwrap() else { panic!() };
    assert_eq!(facts.provider_id, "gce://p/us-central1-b/mgmt-cp-1");
    let changes = recording.changes();
    let words = "make the instance mgmt-cp-1 in us-central1-b: e2-custom-4-8192, 40 GiB from \
                 p/global/images/talos-v1-12, disk of 50 GiB, external address";
    assert_eq!((changes.len(), changes[0].detail.as_str()), (1, words));
    let target = MachineTarget { owner: wanted.owner.clone(), name: wanted.name.clone(), provider_id: None };
    hands.machines.delete(&target, None).await.unwrap();
    assert_eq!(hands.machines.find(&target).await.unwrap(), None);
    assert_eq!(
        recording.changes()[1].to_string(),
        "machine mgmt-cp-1: delete the instance mgmt-cp-1 in us-central1-b"
    );
}
