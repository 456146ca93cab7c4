//! Google Cloud and AWS: behind a load balancer, and without one.

use crate::user::{DataCentre, User, example};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A file for a bootstrap that is small enough to be run often: the example with fewer and smaller machines.
fn small(user: &User, provider: &str, more: &str) -> String {
    let text = fs::read_to_string(example(&format!("bootstrap-{provider}.yaml"))).unwrap();
    let text = text.replace("workers: {replicas: 3", "workers: {replicas: 1").replace("butler-mgmt", "m");
    user.file(&format!("{provider}.yaml"), &format!("{text}{more}"))
}

#[test]
fn rehearsals_of_both_clouds_end_ready_behind_a_load_balancer() {
    for (provider, endpoint) in [("gcp", "."), ("aws", ".elb.us-east-1.amazonaws.com")] {
        let user = User::new();
        let (code, out, err) = user.run(&["rehearse", "--provider", provider, "--output", "json"]);
        assert_eq!(code, 0, "{out}\n{err}");
        let turns = parse(&out);
        let done = turns.last().unwrap();
        assert_eq!(done["event"], "done", "{out}");
        assert!(done["endpoint"].as_str().unwrap().contains(endpoint), "{done}");
        let told: Vec<&Value> = turns.iter().filter(|turn| turn["event"] == "loadBalancer").collect();
        assert_eq!(told.first().unwrap()["name"], "butler-mgmt-lb");
        assert!(
            told.iter().any(|turn| turn["phase"] == "Ready" && turn["registered"].as_i64() >= Some(3)),
            "{told:?}"
        );
        let addons: Vec<&str> = turns
            .iter()
            .filter(|turn| turn["event"] == "addon")
            .filter_map(|turn| turn["addon"].as_str())
            .collect();
        assert!(addons.contains(&"cloud-controller-manager"), "{addons:?}");
        assert_eq!(fs::read_dir(user.dir.path()).unwrap().count(), 0, "a rehearsal leaves nothing behind");
    }
}

#[test]
fn a_single_node_of_either_cloud_has_no_load_balancer() {
    for provider in ["gcp", "aws"] {
        let user = User::new();
        let file = example(&format!("bootstrap-{provider}-single-node.yaml"));
        let (code, out, err) = user.run(&["rehearse", &file, "--output", "json"]);
        assert_eq!(code, 0, "{out}\n{err}");
        assert!(!parse(&out).iter().any(|turn| turn["event"] == "loadBalancer"), "{out}");
    }
}

#[test]
fn a_dry_run_names_every_part_of_the_load_balancer_and_contacts_nobody() {
    let parts: [(&str, &[&str]); 2] = [
        (
            "gcp",
            &[
                "butler-mgmt-lb-ip",
                "butler-mgmt-lb-hc",
                "butler-mgmt-lb-backend",
                "butler-mgmt-lb-fwd",
                "butler-mgmt-lb-checks",
                "butler-mgmt-lb-50000-fwd",
                "butler-mgmt-lb-cp",
            ],
        ),
        ("aws", &["load-balancer", "security-group", "target-group", "listener", "6443", "50000", "50001"]),
    ];
    for (provider, parts) in parts {
        let mut user = User::new();
        let file = example(&format!("bootstrap-{provider}.yaml"));
        user.variables.push(("AWS_ACCESS_KEY_ID".to_owned(), "AKIA".to_owned()));
        user.variables.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "s3cret-s3cret".to_owned()));
        let (code, out, err) =
            user.run(&["bootstrap", provider, "--config", &file, "--dry-run", "--output", "json"]);
        assert_eq!(code, 0, "{out}\n{err}");
        assert!(!out.contains("s3cret-s3cret"), "a secret is shown");
        let lines = parse(&out);
        let changes: Vec<String> = lines
            .iter()
            .filter(|line| line["event"] == "change")
            .map(|line| format!("{} {} {}", line["kind"], line["name"], line["detail"]))
            .collect();
        let all = changes.join("\n");
        for part in parts {
            assert!(all.contains(part), "no {part} in\n{all}");
        }
        assert_eq!(changes.iter().filter(|change| change.starts_with("\"machine\"")).count() % 6, 0, "{all}");
        let balancers: Vec<&Value> =
            lines.iter().filter(|line| line["object"]["kind"] == "LoadBalancerRequest").collect();
        assert_eq!(balancers.len(), 1);
        assert_eq!(balancers[0]["object"]["metadata"]["name"], "butler-mgmt-lb");
        assert!(!user.home().exists(), "a dry run keeps nothing");
        // Machines are planned in any order, and nobody sees it.
        let again = user.run(&["bootstrap", provider, "--config", &file, "--dry-run", "--output", "json"]).1;
        assert_eq!(again, out, "two dry runs differ");
    }
}

#[test]
fn a_whole_life_on_google_cloud() {
    let mut user = User::new();
    let file = small(&user, "gcp", "");
    let _data_centre = DataCentre::start(&mut user, &file);
    let (code, out, err) = user.run(&["doctor", "--config", &file, "--bundle", "bundle.yaml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    for check in
        ["PASS  credentials: ", "PASS  permissions: ", "PASS  port 443 of compute.googleapis.com: open"]
    {
        assert!(out.contains(check), "no {check:?} in\n{out}");
    }
    let (code, out, err) = user.run(&["bootstrap", "gcp", "--config", &file, "--bundle", "bundle.yaml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(out.contains("  load balancer m-lb Ready "), "{out}");
    let (_, out, _) = user.run(&["status"]);
    assert!(out.contains("LOAD BALANCER  PHASE") && out.contains("m-lb           Ready"), "{out}");
    let inventory = fs::read_to_string(user.home().join("m/inventory.json")).unwrap();
    let inventory: Value = serde_json::from_str(&inventory).unwrap();
    assert_eq!(inventory["loadBalancers"][0]["name"], "m-lb");
    assert_eq!(inventory["loadBalancers"][0]["endpoint"], inventory["endpoint"]);
    let journal = fs::read_to_string(user.home().join("m/journal.jsonl")).unwrap();
    assert!(!journal.contains("PRIVATE KEY"), "the key is written down");
    let (code, out, err) = user.run(&["doctor", "--config", &file, "--bundle", "bundle.yaml"]);
    assert!(code == 0 && out.contains("PASS  port 6443 of m-lb: open"), "{out}\n{err}");
    let (code, out, err) = user.run(&["destroy", "--yes"]);
    assert!(
        code == 0 && out.contains("load balancer m-lb Deleted") && out.contains("m is gone"),
        "{out}\n{err}"
    );
    let by_tag = ["destroy", "m", "--by-tag", "--yes", "--config", &file];
    let (code, _, err) = user.run(&by_tag);
    assert!(code == 3 && err.contains("nothing on gcp carries the tags of m"), "{code} {err}");
}

/// A check that is wrong must not keep anybody from going on.
#[test]
fn checks_of_the_infrastructure_can_be_skipped() {
    let mut user = User::new();
    let file = small(&user, "gcp", "");
    let _data_centre = DataCentre::start(&mut user, &file);
    let text = fs::read_to_string(&file).unwrap().replace("talos-v1-9-2", "talos-of-nobody");
    let file = user.file("without-image.yaml", &text);
    let command = ["bootstrap", "gcp", "--config", &file, "--bundle", "bundle.yaml"];
    let (code, out, err) = user.run(&command);
    assert!(code == 4 && format!("{out}{err}").contains("nothing was touched"), "{code} {out}\n{err}");
    let (code, out, err) = user.run(&[&command[..], &["--skip-preflight", "--timeout", "60s"]].concat());
    assert!(code != 0 && !format!("{out}{err}").contains("nothing was touched"), "{code} {out}\n{err}");
    assert!(format!("{out}{err}").contains("talos-of-nobody"), "it was tried: {out}\n{err}");
}

#[test]
fn what_is_left_behind_of_a_load_balancer_is_found_by_its_tags() {
    for provider in ["gcp", "aws"] {
        let mut user = User::new();
        let file = small(&user, provider, "");
        let _data_centre = DataCentre::start(&mut user, &file);
        let mut run = user
            .command(&[
                "bootstrap",
                provider,
                "--config",
                &file,
                "--bundle",
                "bundle.yaml",
                "--output",
                "json",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ready = |line: &String| {
            line.contains("\"event\":\"loadBalancer\"") && line.contains("\"phase\":\"Ready\"")
        };
        lines.find(ready).expect("the load balancer is up");
        // Killed, and its state lost: only the tags in the cloud are left.
        run.kill().unwrap();
        run.wait().unwrap();
        fs::remove_dir_all(user.home()).unwrap();
        let by_tag = ["destroy", "m", "--by-tag", "--yes", "--config", &file];
        let (code, out, err) = user.run(&by_tag);
        assert_eq!(code, 0, "{out}\n{err}");
        let gone: Vec<&str> = out.lines().filter(|line| line.ends_with(" is gone")).collect();
        assert!(
            gone.first().is_some_and(|line| !line.starts_with("machine ")),
            "load balancers go first: {gone:?}"
        );
        assert!(gone.iter().any(|line| line.starts_with("machine m-cp-")), "{gone:?}");
        assert_eq!(user.run(&by_tag).0, 3, "nothing is left");
    }
}

/// A protected load balancer is not deleted, and goes once the file says so.
#[test]
fn deletion_protection_is_honoured() {
    let mut user = User::new();
    let file = small(&user, "aws", "");
    let protected =
        fs::read_to_string(&file).unwrap().replace("deletionProtection: false", "deletionProtection: true");
    let protected = user.file("protected.yaml", &protected);
    let _data_centre = DataCentre::start(&mut user, &protected);
    let (code, out, err) = user.run(&["bootstrap", "aws", "--config", &protected, "--bundle", "bundle.yaml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    let (code, out, err) = user.run(&["destroy", "--yes"]);
    assert!(code == 4 && out.contains("DeletionProtected"), "{code} {out}\n{err}");
    assert!(user.home().join("m/api").exists(), "nothing is forgotten");
    let (code, out, err) = user.run(&["destroy", "--yes", "--config", &file]);
    assert!(code == 0 && out.contains("m is gone"), "{out}\n{err}");
}

/// Keys that the cloud does not take are said before anything is made.
#[test]
fn wrong_keys_of_a_cloud_are_said_at_once() {
    let mut user = User::new();
    let file = small(&user, "aws", "");
    let _data_centre = DataCentre::start(&mut user, &file);
    let doctor = ["doctor", "--config", &file, "--bundle", "bundle.yaml"];
    let (code, out, err) = user.run(&doctor);
    assert_eq!(code, 0, "{out}\n{err}");
    for check in [
        "credentials: account ",
        "permission to launch machines: ",
        "security groups between nodes: ",
        "security groups for the load balancer: ",
        "quota of virtual CPUs: ",
        "quota of load balancers: ",
        "quota of target groups: ",
    ] {
        assert!(out.contains(&format!("PASS  {check}")), "no {check:?} in\n{out}");
    }
    user.variables.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "wrong-and-not-to-be-shown".to_owned()));
    let (code, out, err) = user.run(&["bootstrap", "aws", "--config", &file, "--bundle", "bundle.yaml"]);
    assert!(code == 4 && out.contains("FAIL  credentials: "), "{code} {out}\n{err}");
    assert!(!out.contains("not-to-be-shown") && !err.contains("not-to-be-shown"));
    let (code, out, err) = user.run(&doctor);
    assert!(code == 1 && out.contains("FAIL  credentials: "), "{code} {out}\n{err}");
    assert!(!out.contains("not-to-be-shown") && !err.contains("not-to-be-shown"));
}
