//! The files that people copy: examples and manifests must pass what the program itself would say about them, and what is
//! rendered must pass what HAProxy and Keepalived say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/skipped.rs"]
mod skipped;

use butler_lb::config::{Config, check};
use butler_lb::render::{haproxy, keepalived};
use skipped::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[track_caller]
fn is_good(name: &str, text: &str) {
    let (config, findings) = check(text, None);
    assert!(config.is_some() && findings.is_empty(), "{name}: {findings:#?}");
}

#[test]
fn examples_are_without_a_warning() {
    for path in ["examples/butler-lb.yaml", "examples/butler-lb-vip-only.yaml"] {
        is_good(path, &text(path));
    }
}

#[test]
fn the_configuration_inside_the_talos_patch_is_the_example() {
    let patch: serde_json::Value =
        serde_saphyr::from_str(&text("deploy/butler-lb/talos-vip-only.yaml")).unwrap();
    let content = patch["machine"]["files"][0]["content"].as_str().unwrap();
    is_good("talos-vip-only.yaml", content);
    let parsed = |text: &str| check(text, None).0.unwrap();
    assert_eq!(parsed(content), parsed(&text("examples/butler-lb-vip-only.yaml")));
}

/// The kubelet of Talos looks for a folder that has a type in its own file system, which has few of the machine's.
#[test]
fn the_pod_of_the_talos_patch_has_no_folder_that_the_kubelet_would_look_for() {
    let patch: serde_json::Value =
        serde_saphyr::from_str(&text("deploy/butler-lb/talos-vip-only.yaml")).unwrap();
    let volumes = patch["machine"]["pods"][0]["spec"]["volumes"].as_array().unwrap();
    let paths: Vec<_> = volumes.iter().filter_map(|volume| volume.get("hostPath")).collect();
    assert_eq!(paths, [&serde_json::json!({"path": "/var/etc/butler-lb"})]);
    let file = patch["machine"]["files"][0]["path"].as_str().unwrap();
    assert!(file.starts_with("/var/etc/butler-lb/"), "{file}");
}

#[test]
fn manifests_ask_for_what_is_needed_and_no_more() {
    let pods =
        [
            serde_saphyr::from_str::<serde_json::Value>(&text("deploy/butler-lb/static-pod.yaml")).unwrap(),
            serde_saphyr::from_str::<serde_json::Value>(&text("deploy/butler-lb/talos-vip-only.yaml"))
                .unwrap()["machine"]["pods"][0]
                .clone(),
        ];
    for pod in pods {
        assert_eq!(pod["spec"]["hostNetwork"], true);
        let rights = &pod["spec"]["containers"][0]["securityContext"]["capabilities"];
        assert_eq!(rights["drop"], serde_json::json!(["ALL"]));
        assert_eq!(
            rights["add"],
            serde_json::json!(["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE", "SYS_NICE"])
        );
    }
    let unit = text("deploy/butler-lb/butler-lb.service");
    assert!(
        unit.contains("CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE CAP_SYS_NICE\n")
    );
}

/// What systemd itself says of the unit, in a folder that has no other units but the names it leans on.
#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    const ANALYZE: &str = "/usr/bin/systemd-analyze";
    if !Path::new(ANALYZE).exists() {
        skip(&format!("no {ANALYZE}"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (programs, units) = (folder.path().join("usr/local/bin"), folder.path().join("etc/systemd/system"));
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::create_dir_all(&units).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_butler-lb"), programs.join("butler-lb")).unwrap();
    for target in ["sysinit", "basic", "shutdown", "network-online", "multi-user"] {
        std::fs::write(units.join(format!("{target}.target")), "[Unit]\nDescription=A name\n").unwrap();
    }
    let verify = |unit: &str| {
        std::fs::write(units.join("butler-lb.service"), unit).unwrap();
        let root = format!("--root={}", folder.path().display());
        let output = Command::new(ANALYZE).args(["verify", &root, "butler-lb.service"]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let unit = text("deploy/butler-lb/butler-lb.service");
    assert_eq!(verify(&unit), (true, String::new()));
    // It does look.
    let (_, said) = verify(&unit.replace("RestartSec", "RestratSec"));
    assert!(said.contains("RestratSec"), "{said}");
}

/// Every block of YAML in the guide that is a whole file.
#[test]
fn the_guides_files_are_good() {
    let guide = text("docs/load-balancer.md");
    let blocks: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2, "{}", blocks.len());
    for block in blocks {
        let (config, findings) = check(block, None);
        assert!(config.is_some(), "{findings:#?}\n{block}");
    }
}

fn parsed(text: &str) -> Config {
    let (config, findings) = check(text, None);
    config.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// Runs a program over a generated file. `None`: it is not installed.
fn judged(program: &str, arguments: &[&str], text: &str) -> Option<Result<(), String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.conf");
    std::fs::write(&file, text).unwrap();
    match Command::new(program).args(arguments).arg(&file).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            Some(if output.status.success() { Ok(()) } else { Err(format!("{said}\n{text}")) })
        }
        Err(_) => {
            skip(&format!("no {program} (install it, or run `cargo xtask conformance`)"));
            None
        }
    }
}

#[test]
fn haproxy_itself_accepts_it() {
    let program =
        if std::path::Path::new("/usr/sbin/haproxy").exists() { "/usr/sbin/haproxy" } else { "haproxy" };
    if let Some(verdict) =
        judged(program, &["-c", "-f"], &haproxy(&parsed(&text("crates/lb/tests/data/full.yaml"))).unwrap())
    {
        verdict.unwrap();
    }
}

#[test]
fn keepalived_itself_accepts_it() {
    // It looks at who could have written the scripts' programs, and takes nobody but root for safe.
    if !rustix::process::geteuid().is_root() {
        skip("it needs root");
        return;
    }
    let program = if std::path::Path::new("/usr/sbin/keepalived").exists() {
        "/usr/sbin/keepalived"
    } else {
        "keepalived"
    };
    // It wants an interface that is there and takes multicast.
    let name = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten().find_map(|entry| {
        let flags = std::fs::read_to_string(entry.path().join("flags")).ok()?;
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
        let (up, loopback, multicast) = (flags & 1 != 0, flags & 8 != 0, flags & 0x1000 != 0);
        entry.file_name().into_string().ok().filter(|_| up && multicast && !loopback)
    });
    let Some(name) = name else {
        skip("there is no network interface that takes multicast");
        return;
    };
    let mut config = parsed(&text("crates/lb/tests/data/full.yaml"));
    config.vips.iter_mut().for_each(|vip| vip.interface = name.clone());
    if let Some(verdict) = judged(program, &["-t", "-f"], &keepalived(&config).unwrap()) {
        verdict.unwrap();
    }
}

/// In a process of its own, as `cargo test` would run it.
#[test]
fn what_is_skipped_is_seen_without_asking_for_it() {
    const INSIDE: &str = "BUTLER_LB_TEST_SKIP";
    if std::env::var_os(INSIDE).is_some() {
        return skip("only to be seen");
    }
    let name = "what_is_skipped_is_seen_without_asking_for_it";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let again = again.args(["--exact", name]).env(INSIDE, "1").output().unwrap();
    assert!(again.status.success());
    let seen = String::from_utf8_lossy(&again.stderr);
    assert!(seen.contains(&format!("skipped {name}: only to be seen\n")), "{seen:?}");
}
