//! Proxmox.

use crate::user::{DataCentre, User, example};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

fn single_node() -> String {
    example("bootstrap-proxmox-single-node.yaml")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn rehearse_without_a_file_ends_ready_and_leaves_nothing() {
    let user = User::new();
    let (code, out, err) = user.run(&["rehearse"]);
    assert_eq!(code, 0, "{out}\n{err}");
    for line in [
        "SIMULATED: a built-in example",
        "STAND-INS in place of charts: cilium, ",
        "butler-mgmt on SIMULATED proxmox: 3 control planes and 3 workers",
        "butler-mgmt is ready at 10.40.0.200",
    ] {
        assert!(out.contains(line), "no {line:?} in\n{out}");
    }
    assert!(out.contains("nothing is kept, --keep") && !out.contains("state is kept"), "{out}");
    assert!(!out.contains("\u{1b}["), "colours on something that is no terminal");
    assert_eq!(err, "");
    assert_eq!(fs::read_dir(user.dir.path()).unwrap().count(), 0, "a rehearsal leaves nothing behind");
}

#[test]
fn a_whole_life_stop_resume_look_and_destroy() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let bootstrap =
        ["bootstrap", "proxmox", "--config", &file, "--bundle", "bundle.yaml", "--output", "json"];
    // Interrupted at its first sign of life, by the signal that Ctrl-C sends.
    let mut first = user.command(&bootstrap).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    let machine = lines.find(|line| line.contains("\"event\":\"machine\"")).expect("a machine is told");
    assert!(machine.contains("butler-dev-cp-0"));
    let (code, _, err) = user.run(&["status"]);
    assert_eq!(code, 0, "status works while another command runs: {err}");
    let (code, _, err) = user.run(&bootstrap);
    assert!(code == 6 && err.contains("another butleradm"), "{code} {err}");
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(first.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.last().unwrap().contains("\"event\":\"stopped\""), "{rest:?}");

    let (code, out, err) = user.run(&bootstrap);
    assert_eq!(code, 0, "{out}\n{err}");
    let turns: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = turns.last().unwrap();
    assert_eq!((done["event"].as_str(), done["endpoint"].as_str()), (Some("done"), Some("10.40.0.60")));
    assert!(turns.iter().any(|turn| turn["event"] == "addon" && turn["addon"] == "cilium"));
    kept_files(&user);
    looks(&user);
    as_the_dry_run_said(&user, &file);
    doctor_knows_its_own(&user, &file);

    let changed = user.command(&bootstrap).env("BUTLER_NETWORK_VIP", "10.40.0.62").output().unwrap();
    let said = String::from_utf8_lossy(&changed.stderr);
    assert_eq!(changed.status.code(), Some(2), "{said}");
    assert!(said.contains("network.vip: was \"10.40.0.60\", is now \"10.40.0.62\""), "{said}");

    let (code, _, err) = user.run(&["destroy"]);
    assert!(code == 2 && err.contains("--yes"), "{code} {err}");
    let (code, out, err) = user.run(&["destroy", "--yes"]);
    assert!(code == 0 && out.contains("butler-dev is gone"), "{out}\n{err}");
    assert_eq!(fs::read_dir(user.home()).unwrap().count(), 0, "everything is forgotten");
    assert_eq!(user.run(&["status"]).0, 3);
}

/// A cluster that runs is no obstacle to itself, and its ports are dialled.
fn doctor_knows_its_own(user: &User, file: &str) {
    let (code, out, err) = user.run(&["doctor", "--config", file, "--bundle", "bundle.yaml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    for check in [
        "PASS  names: ",
        "PASS  port 50000 of butler-dev-cp-0: open",
        "PASS  port 6443 of butler-dev-cp-0: open",
    ] {
        assert!(out.contains(check), "no {check:?} in\n{out}");
    }
}

/// What the recorder says was changed on the infrastructure is what the dry run says would be, in the same order.
fn as_the_dry_run_said(user: &User, file: &str) {
    let parse =
        |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let journal = parse(&fs::read_to_string(user.home().join("butler-dev/journal.jsonl")).unwrap());
    let done: Vec<String> = journal
        .iter()
        .filter(|entry| entry["system"] == "proxmox" && entry["mutates"] == true && entry["ok"].is_string())
        .map(|entry| entry["object"].as_str().unwrap().to_owned())
        .collect();
    let (_, out, _) = user.run(&["bootstrap", "proxmox", "--config", file, "--dry-run", "--output", "json"]);
    let text = |change: &Value, key: &str| change[key].as_str().unwrap().to_owned();
    let said: Vec<String> = parse(&out)
        .iter()
        .filter(|line| line["event"] == "change")
        .map(|change| {
            format!("{} {}: {}", text(change, "kind"), text(change, "name"), text(change, "detail"))
        })
        .collect();
    // A template brings some settings along, which only a look at it could tell: the real run has no more than was said.
    let parts = |change: &String| -> (String, Vec<String>) {
        let mut words = change.splitn(3, ": ");
        let head = format!("{}: {}", words.next().unwrap(), words.next().unwrap());
        (head, words.next().unwrap_or_default().split("; ").map(ToOwned::to_owned).collect())
    };
    let (done, said): (Vec<_>, Vec<_>) = (done.iter().map(parts).collect(), said.iter().map(parts).collect());
    let heads = |all: &[(String, Vec<String>)]| all.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>();
    assert_eq!(heads(&done), heads(&said));
    assert_eq!(done.len(), 4, "{done:?}");
    for ((_, real), (head, planned)) in done.iter().zip(&said) {
        assert!(real.iter().all(|setting| planned.contains(setting)), "{head}: {real:?} beside {planned:?}");
    }
}

fn kept_files(user: &User) {
    let home = user.home();
    let folder = home.join("butler-dev");
    assert_eq!((mode(&home), mode(&folder)), (0o700, 0o700));
    for file in [
        "butler-dev-kubeconfig",
        "butler-dev-talosconfig",
        "butler-dev/journal.jsonl",
        "butler-dev/inventory.json",
    ] {
        assert_eq!(mode(&home.join(file)), 0o600, "{file}");
    }
    assert!(!folder.join("bootstrap-kubeconfig").exists(), "the bootstrap API is over");
    let kubeconfig = fs::read_to_string(home.join("butler-dev-kubeconfig")).unwrap();
    assert!(
        kubeconfig.contains("proxy-url: ") && kubeconfig.contains("https://10.40.0.60:6443"),
        "{kubeconfig}"
    );
    let journal = fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    assert!(journal.contains("\"system\":\"proxmox\"") && journal.contains("\"system\":\"talos\""));
    for text in [journal, fs::read_to_string(folder.join("inventory.json")).unwrap()] {
        assert!(!text.contains("4e4ea45a1000"), "the token's secret is written down");
    }
}

fn looks(user: &User) {
    let (_, out, _) = user.run(&["status"]);
    assert!(out.starts_with("butler-dev on proxmox: Ready"), "{out}");
    assert!(
        out.contains("butler-dev-cp-0  control-plane  Running    10.40.0.61       yes         yes"),
        "{out}"
    );
    let (_, out, _) = user.run(&["status", "--output", "json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert!(status["phase"] == "Ready" && status["kubeconfig"].is_null() && status["talosconfig"].is_null());
    assert!(user.run(&["events"]).1.contains("Ready"));
    assert!(user.run(&["logs"]).1.contains("* proxmox"));
    let (code, out, _) = user.run(&["kubeconfig", "--path"]);
    assert_eq!((code, out.trim()), (0, user.home().join("butler-dev-kubeconfig").to_str().unwrap()));
    let (code, out, _) = user.run(&["support", "--file", "s.tar.gz"]);
    assert_eq!((code, out.trim(), mode(&user.dir.path().join("s.tar.gz"))), (0, "s.tar.gz", 0o600));
    let mut text = String::new();
    let file = fs::File::open(user.dir.path().join("s.tar.gz")).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
    assert!(text.contains("butler-dev-support/objects.json") && !text.contains("4e4ea45a1000"));
    assert!(
        !text.contains("PRIVATE KEY") && !text.contains("LS0tLS1CRUdJTi"),
        "keys are in the support file"
    );
}

#[test]
fn what_is_left_behind_is_found_by_its_tags() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let by_tag = ["destroy", "butler-dev", "--by-tag", "--yes", "--config", &file];
    let (code, _, err) = user.run(&by_tag);
    assert!(code == 3 && err.contains("nothing on proxmox carries the tags of butler-dev"), "{code} {err}");
    let mut run = user
        .command(&["bootstrap", "proxmox", "--config", &file, "--bundle", "bundle.yaml", "--output", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"phase\":\"Running\"")).expect("the machine is up");
    // Killed, and its state lost: only the tags on the infrastructure are left.
    run.kill().unwrap();
    run.wait().unwrap();
    fs::remove_dir_all(user.home()).unwrap();
    let (code, out, err) = user.run(&by_tag);
    assert!(code == 0 && out.contains("machine butler-dev-cp-0 is gone"), "{out}\n{err}");
    assert_eq!(user.run(&by_tag).0, 3, "nothing is left");
}

/// Wrong credentials are said before anything is made, and a cluster that has them stored can be destroyed all the same.
#[test]
fn wrong_credentials_are_said_at_once_and_can_be_mended() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let bootstrap = ["bootstrap", "proxmox", "--config", &file, "--bundle", "bundle.yaml"];
    let wrongly = |args: &[&str]| {
        let secret = "wrong-and-not-to-be-shown";
        let output = user.command(args).env("PROXMOX_TOKEN_SECRET", secret).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!said.contains(secret), "{said}");
        (output.status.code().unwrap(), said)
    };
    for mend in [&["destroy", "--yes"][..], &["destroy", "--yes", "--config", &file]] {
        let (code, said) = wrongly(&bootstrap);
        assert!(code == 4 && said.contains("FAIL  credentials: "), "{code} {said}");
        assert!(said.contains("go on with: butleradm bootstrap proxmox"), "{said}");
        let (code, said) = wrongly(&["destroy", "--yes"]);
        assert!(code == 4 && said.contains("butleradm destroy butler-dev --config FILE"), "{code} {said}");
        assert!(user.home().join("butler-dev/api").exists(), "nothing is forgotten");
        let journal = fs::read_to_string(user.home().join("butler-dev/journal.jsonl")).unwrap();
        assert!(!journal.contains("not-to-be-shown"));
        let (code, out, err) = user.run(mend);
        assert!(code == 0 && out.contains("butler-dev is gone"), "{out}\n{err}");
    }
}

#[test]
fn objects_can_be_kept_in_another_cluster() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let other = user
        .command(&["apiserver", "--data-dir", "other", "--write-kubeconfig", "other.kubeconfig"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut other = DataCentre(other);
    BufReader::new(other.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let (code, out, err) = user.run(&[
        "bootstrap",
        "proxmox",
        "--config",
        &file,
        "--bundle",
        "bundle.yaml",
        "--kubeconfig",
        "other.kubeconfig",
    ]);
    assert_eq!(code, 0, "{out}\n{err}");
    assert!(!user.home().join("butler-dev/api").exists(), "the embedded API was used");
    let (_, out, _) = user.run(&["status"]);
    assert!(out.starts_with("butler-dev on proxmox: Ready"), "{out}");
    let (code, out, err) = user.run(&["destroy", "--yes"]);
    assert!(code == 0 && out.contains("butler-dev is gone"), "{out}\n{err}");
    assert!(!user.home().join("butler-dev").exists());
}

#[test]
fn doctor_passes_on_its_own_data_centre_and_sees_what_is_taken() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let (code, out, err) = user.run(&["doctor", "--config", &file, "--bundle", "bundle.yaml"]);
    assert_eq!(code, 0, "{out}\n{err}");
    for check in [
        "PASS  credentials: ",
        "PASS  network.vip: nobody answers at 10.40.0.60",
        "PASS  addons: ",
        "PASS  port 8006 of ",
        "SKIP  ports of nodes: ",
    ] {
        assert!(out.contains(check), "no {check:?} in\n{out}");
    }
    assert_eq!(fs::read_dir(user.home()).unwrap().count(), 0, "looking leaves nothing behind");
    // The hypervisor itself has this address.
    user.variables.push(("BUTLER_NETWORK_VIP".to_owned(), "10.40.0.5".to_owned()));
    let (code, out, _) = user.run(&["doctor", "--config", &file, "--bundle", "bundle.yaml"]);
    assert!(code == 1 && out.contains("FAIL  network.vip: 10.40.0.5: "), "{out}");
    user.variables.push(("PROXMOX_TOKEN_SECRET".to_owned(), "wrong-and-not-to-be-shown".to_owned()));
    let (code, out, err) = user.run(&["doctor", "--config", &file, "--bundle", "bundle.yaml"]);
    assert!(code == 1 && out.contains("FAIL  credentials: "), "{out}");
    assert!(!out.contains("not-to-be-shown") && !err.contains("not-to-be-shown"));
}

#[test]
fn a_dry_run_names_everything_and_contacts_nobody() {
    let mut user = User::new();
    user.variables.push(("PROXMOX_TOKEN_ID".to_owned(), "b@pve!t".to_owned()));
    user.variables.push(("PROXMOX_TOKEN_SECRET".to_owned(), "s3cret-s3cret".to_owned()));
    let file = example("bootstrap-proxmox.yaml");
    let (code, out, err) = user.run(&["bootstrap", "proxmox", "--config", &file, "--dry-run"]);
    assert_eq!(code, 0, "{out}\n{err}");
    for line in [
        "kind: ClusterBootstrap",
        "name: butler-mgmt-proxmox-credentials",
        "tokenSecret: (not shown)",
        "kind: MachineRequest",
        "machineName: butler-mgmt-worker-2",
        "  machine butler-mgmt-cp-0: ",
        "6443/tcp",
        "CANNOT BE INSTALLED",
    ] {
        assert!(out.contains(line), "no {line:?} in\n{out}");
    }
    assert!(!out.contains("s3cret-s3cret"), "a secret is shown");
    assert!(!user.home().exists(), "a dry run keeps nothing");
    let (_, out, _) = user.run(&["bootstrap", "proxmox", "--config", &file, "--dry-run", "--output", "json"]);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    let machines = lines.iter().filter(|line| line["object"]["kind"] == "MachineRequest").count();
    assert_eq!(machines, 6);
    assert!(count("change") >= 6 && count("port") == 7 && count("addon") > 15, "{out}");
}

#[test]
fn exit_codes_of_what_is_wrong_before_it_begins() {
    let user = User::new();
    let (code, _, err) = user.run(&["bootstrap", "proxmox"]);
    assert!(code == 2 && err.contains("there is no bootstrap file"), "{code} {err}");
    let file = example("bootstrap-proxmox.yaml");
    let (code, _, err) = user.run(&["bootstrap", "proxmox", "--config", &file]);
    assert!(code == 2 && err.contains("PROXMOX_TOKEN_ID"), "{code} {err}");
    let (code, _, err) = user.run(&["bootstrap", "gcp", "--config", &file]);
    assert!(code == 2 && err.contains("the command says gcp"), "{code} {err}");
    let object = example("clusterbootstrap-ha-on-prem.yaml");
    let (code, _, err) = user.run(&["rehearse", &object]);
    assert!(code == 2 && err.contains("this is a Kubernetes object (ClusterBootstrap)"), "{code} {err}");
    let azure = example("bootstrap-azure.yaml");
    let (code, _, err) = user.run(&["rehearse", &azure]);
    assert!(code == 2 && err.contains("proxmox, gcp and aws can be simulated so far"), "{code} {err}");
    let (code, _, err) = user.run(&["rehearse", "--provider", "nutanix"]);
    assert!(code == 2 && err.contains("there is no built-in example of nutanix"), "{code} {err}");
    let (code, _, err) = user.run(&["rehearse", &file, "--provider", "aws"]);
    assert!(code == 2 && err.contains("the command says aws"), "{code} {err}");
    for args in [&["status", "nobody"][..], &["kubeconfig", "nobody"], &["logs"], &["destroy", "--yes"]] {
        assert_eq!(user.run(args).0, 3, "{args:?}");
    }
    assert_eq!(user.run(&["bootstrap", "openstack"]).0, 2);
    assert_eq!(user.run(&["rehearse", "--timeout", "soon"]).0, 2);
    let mut secrets = user;
    secrets.variables.push(("PROXMOX_TOKEN_ID".to_owned(), "b@pve!t".to_owned()));
    secrets.variables.push(("PROXMOX_TOKEN_SECRET".to_owned(), "s".to_owned()));
    let (code, _, err) = secrets.run(&["bootstrap", "proxmox", "--config", &file]);
    assert!(code == 2 && err.contains("there is no source for the addons cilium"), "{code} {err}");
}

#[test]
fn time_that_is_over_has_a_code_of_its_own() {
    let user = User::new();
    let script = user.dir.path().join("faults.yaml");
    fs::write(&script, "machines:\n  - {machine: '*', fault: never-boots}\n").unwrap();
    let (code, out, _) =
        user.run(&["rehearse", &single_node(), "--fault", script.to_str().unwrap(), "--timeout", "2s"]);
    assert!(code == 5 && out.contains("not ready after 2.0s"), "{code}\n{out}");
    fs::write(&script, "machines:\n  - {machine: a, fault: explode}\n").unwrap();
    let (code, _, err) = user.run(&["rehearse", "--fault", script.to_str().unwrap()]);
    assert!(code == 2 && err.contains("line 2"), "{code} {err}");
}

#[test]
fn what_failed_is_tried_again_when_it_is_mended() {
    let mut user = User::new();
    let file = single_node();
    let _data_centre = DataCentre::start(&mut user, &file);
    let bootstrap = ["bootstrap", "proxmox", "--config", &file, "--bundle", "bundle.yaml"];
    let wrong =
        user.command(&bootstrap).env("BUTLER_PROVIDERCONFIG_PROXMOX_TEMPLATEID", "9999").output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stdout);
    assert_eq!(wrong.status.code(), Some(4), "{said}");
    assert!(said.contains("there is no template 9999") && said.contains("what to do: "), "{said}");
    let (code, out, err) = user.run(&bootstrap);
    assert_eq!(code, 0, "{out}\n{err}");
}

#[test]
fn completions_are_there_for_every_shell() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = user.run(&["completions", shell]);
        assert!(code == 0 && out.contains("rehearse"), "{shell}");
    }
}
