//! `butleradm validate` and `butleradm crds` as a user runs them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn butleradm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_butleradm")).args(args).output().unwrap()
}

/// Validates a text: exit code and lines of standard output, with the file's name left out.
fn validate(text: &str) -> (i32, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.yaml");
    std::fs::write(&file, text).unwrap();
    let output = butleradm(&["validate", file.to_str().unwrap()]);
    let name = file.display().to_string();
    let lines = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), lines.lines().map(|line| line.replace(&name, "f")).collect())
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn fixture(name: &str) -> String {
    std::fs::read_to_string(fixtures().join(name)).unwrap()
}

#[track_caller]
fn assert_line(lines: &[String], begins: &str) {
    assert!(
        lines.iter().any(|line| line.starts_with(begins)),
        "no line begins with {begins:?}:\n{}",
        lines.join("\n")
    );
}

#[test]
fn every_documented_example_is_ok() {
    let mut files: Vec<_> =
        std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `butler-lb check` is for those.
    files.retain(|file| !file.file_name().unwrap().to_string_lossy().starts_with("butler-lb"));
    assert!(files.len() > 10);
    let mut args = vec!["validate"];
    args.extend(files.iter().map(|file| file.to_str().unwrap()));
    let output = butleradm(&args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.lines().count(), files.len(), "{text}");
    assert!(text.lines().all(|line| line.contains(": ok (")), "{text}");
    assert!(text.contains("providerconfig-all.yaml: ok (6 objects)"), "{text}");
}

#[test]
fn all_problems_at_once_with_their_places() {
    let text = fixture("clusterbootstrap-ha-on-prem.yaml")
        .replace("provider: harvester", "provider: nutanix")
        .replace("    vip: \"10.40.0.200\"", "    vip: \"10.40.0.220\"\n    vippp: 1")
        .replace("version: v1.9.2", "version: 1.9")
        .replace("      memoryMB: 16384\n", "      memoryMB: 100\n")
        .replace("    serviceCIDR: 10.96.0.0/12\n", "")
        .replace("mode: LoadBalancer", "mode: Gateway");
    let (code, lines) = validate(&text);
    assert_eq!(code, 2);
    for begins in [
        "f:17:17: error: spec.cluster.controlPlane.memoryMB: Invalid value: 100: should be greater than or equal to 2048",
        "f:27:3: error: spec.network.serviceCIDR: Required value",
        "f:29:10: error: spec.network.vip: \"10.40.0.220\": lies inside spec.network.loadBalancerPool",
        "f:30:5: error: spec.network.vippp: unknown field",
        "    help: did you mean vip",
        "f:36:14: error: spec.talos.version: 1.9: must be of type string",
        "    help: put it in quotes.",
        "f:66:3: error: spec.controlPlaneExposure.hostname: hostname is required when mode is Gateway",
        "f:66:3: error: spec.controlPlaneExposure.gatewayRef: gatewayRef is required when mode is Gateway",
        "f: 7 errors, 0 warnings",
    ] {
        assert_line(&lines, begins);
    }
}

#[test]
fn warnings_do_not_fail() {
    let text = fixture("clusterbootstrap-gcp.yaml").replacen("replicas: 3", "replicas: 4", 1);
    let (code, lines) = validate(&text);
    assert_eq!(code, 0, "{lines:?}");
    assert_line(&lines, "f:15:17: warning: spec.cluster.controlPlane.replicas: \"4\": an even number");
    assert_line(&lines, "f: ok (1 object)");
}

#[test]
fn syntax_kinds_and_repeated_keys() {
    let text = "a: [1\n---\napiVersion: v1\nkind: Secret\n---\napiVersion: butler.butlerlabs.dev/v1alpha1\nkind: Typo\n---\n\
                apiVersion: butler.butlerlabs.dev/v2\nkind: ImageSync\n---\nkind: ImageSync\nkind: ImageSync\n---\n- 1\n";
    let (code, lines) = validate(text);
    assert_eq!(code, 2);
    for begins in [
        "f:1:4: error: not YAML: unclosed bracket",
        "f:4:7: warning: kind: \"Secret\": a kind of Kubernetes (v1)",
        "f:7:7: error: kind: \"Typo\": there is no such kind in butler.butlerlabs.dev/v1alpha1",
        "f:9:13: error: apiVersion: \"butler.butlerlabs.dev/v2\": not the apiVersion of ImageSync",
        "f:12:1: error: apiVersion or kind is missing",
        "f:13:1: error: kind: the key is there already, at 12:1",
        "f:15:1: error: not an object",
    ] {
        assert_line(&lines, begins);
    }
    assert_eq!(validate("# nothing\n").0, 2);
}

#[test]
fn rules_and_metadata() {
    let text = "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: ButlerConfig\nmetadata: {name: other, namespace: q}\n\
                spec: {}\n---\napiVersion: butler.butlerlabs.dev/v1alpha1\nkind: ImageSync\nmetadata: {name: A_b}\n\
                spec: {factoryRef: {schematicID: short, version: v1.9.2}, providerConfigRef: {name: p}}\n";
    let (code, lines) = validate(text);
    assert_eq!(code, 2);
    assert_line(&lines, "f:3:18: error: metadata.name: \"other\": there is one ButlerConfig");
    assert_line(&lines, "f:3:36: error: metadata.namespace: Forbidden");
    assert_line(&lines, "f:8:18: error: metadata.name: Invalid value: \"A_b\"");
    assert_line(&lines, "f:9:34: error: spec.factoryRef.schematicID: Invalid value: \"short\"");
    assert_line(&lines, "f: 4 errors, 0 warnings");
}

#[test]
fn lists_and_json_from_standard_input() {
    let object = |name: &str| {
        format!(
            r#"{{"apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ImageSync", "metadata": {{"name": "{name}"}},
            "spec": {{"factoryRef": {{"schematicID": "12345678", "version": "v1.9.2"}}, "providerConfigRef": {{"name": "p"}}}}}}"#
        )
    };
    let list =
        format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{}, {}]}}"#, object("a"), object("b"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_butleradm"))
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "<stdin>: ok (2 objects)\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("b.yaml");
    std::fs::write(&binary, b"a: 1\nb: \xff\n").unwrap();
    let output = butleradm(&["validate", "/nowhere/f.yaml", binary.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("cannot read /nowhere/f.yaml: No such file"), "{errors}");
    assert!(errors.contains("not UTF-8") && errors.contains("line 2"), "{errors}");
}

#[test]
fn crds_are_printed_and_written_alike() {
    let printed = String::from_utf8(butleradm(&["crds"]).stdout).unwrap();
    assert_eq!(printed.matches("\nkind: CustomResourceDefinition\n").count(), 8);
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new/crds");
    let output = butleradm(&["crds", "--out", target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let mut files: Vec<_> = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let joined: String =
        files.iter().map(|file| format!("---\n{}", std::fs::read_to_string(file).unwrap())).collect();
    assert_eq!(joined, printed);
}
