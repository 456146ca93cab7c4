//! `butleradm talos gen` and `talos validate` as a user runs them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

fn butleradm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_butleradm")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn generate(out: &Path, more: &[&str]) -> Output {
    let mut args = vec!["talos", "gen", "prod", "https://10.40.0.200:6443", "--out", out.to_str().unwrap()];
    args.extend(["--control-plane", "10.40.0.201", "--worker", "10.40.0.211"]);
    args.extend(more);
    butleradm(&args)
}

fn good(output: &Output) {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_cluster_is_generated_checked_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let made = generate(&out, &["--talos-version", "v1.12.7"]);
    good(&made);
    assert!(text(&made.stderr).contains("the RSA key in "), "{}", text(&made.stderr));
    let mut names: Vec<String> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["kubeconfig", "prod-cp-1.yaml", "prod-worker-1.yaml", "secrets.yaml", "talosconfig"]);
    for name in &names {
        assert_eq!(fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let files =
        ["prod-cp-1.yaml", "prod-worker-1.yaml"].map(|name| out.join(name).to_str().unwrap().to_owned());
    let checked = butleradm(&["talos", "validate", "--strict", &files[0], &files[1]]);
    good(&checked);
    assert_eq!(text(&checked.stdout), format!("{}: ok\n{}: ok\n", files[0], files[1]));
    // A second time: refused, and nothing is touched.
    let before = fs::read(out.join("secrets.yaml")).unwrap();
    let again = generate(&out, &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("say --force to replace"), "{}", text(&again.stderr));
    assert_eq!(fs::read(out.join("secrets.yaml")).unwrap(), before);
    // By force: new secrets, and the old ones are still there.
    good(&generate(&out, &["--force"]));
    assert_ne!(fs::read(out.join("secrets.yaml")).unwrap(), before);
    assert_eq!(fs::read(out.join("secrets.yaml.old")).unwrap(), before);
}

#[test]
fn the_same_secrets_give_the_same_configs() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = concat!(env!("CARGO_MANIFEST_DIR"), "/../talos/tests/data/secrets.yaml");
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for out in [&one, &two] {
        good(&generate(out, &["--with-secrets", secrets]));
        assert!(!out.join("secrets.yaml").exists());
    }
    let name = "prod-cp-1.yaml";
    assert_eq!(fs::read(one.join(name)).unwrap(), fs::read(two.join(name)).unwrap());
    let missing = generate(&dir.path().join("three"), &["--with-secrets", "/nowhere"]);
    assert!(text(&missing.stderr).contains("cannot read /nowhere"));
    assert!(!dir.path().join("three").exists());
}

#[test]
fn patches_apply_and_errors_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = concat!(env!("CARGO_MANIFEST_DIR"), "/../talos/tests/data/secrets.yaml");
    let patch = dir.path().join("p.yaml");
    fs::write(&patch, "- op: add\n  path: /machine/sysctls\n  value: {a.b: '1'}\n").unwrap();
    let at = format!("@{}", patch.display());
    let out = dir.path().join("out");
    good(&generate(&out, &["--with-secrets", secrets, "--patch", &at, "--patch", "machine: {env: {X: y}}"]));
    let config = fs::read_to_string(out.join("prod-worker-1.yaml")).unwrap();
    assert!(
        config.contains("        a.b: \"1\"\n") && config.contains("    env:\n        X: \"y\"\n"),
        "{config}"
    );
    // Some patches fit one role only.
    let label =
        "machine: {nodeLabels: {node.kubernetes.io/exclude-from-external-load-balancers: {$patch: delete}}}";
    let roles = dir.path().join("roles");
    let more = ["--patch-control-plane", label, "--patch-worker", "machine: {env: {W: '1'}}"];
    good(&generate(&roles, &[&["--with-secrets", secrets], &more[..]].concat()));
    let of = |name: &str| fs::read_to_string(roles.join(name)).unwrap();
    assert!(!of("prod-cp-1.yaml").contains("exclude-from") && !of("prod-cp-1.yaml").contains("W: "));
    assert!(of("prod-worker-1.yaml").contains("W: \"1\""));
    let wrong = generate(&dir.path().join("wrong"), &["--with-secrets", secrets, "--patch", label]);
    assert!(
        text(&wrong.stderr)
            .contains("the config of prod-worker-1: cannot apply the patch --patch 1: v1alpha1")
    );
    fs::write(&patch, "- op: remove\n  path: /machine/udev\n").unwrap();
    let bad = generate(&dir.path().join("bad"), &["--with-secrets", secrets, "--patch", &at]);
    assert_eq!(bad.status.code(), Some(1));
    let error = text(&bad.stderr);
    assert!(error.contains("p.yaml: operation 0 (remove /machine/udev)"), "{error}");
    assert!(!dir.path().join("bad").exists());
}

#[test]
fn a_wish_that_cannot_work_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for (more, wanted) in [
        (&["--pod-network", "10.40.0.0/16"][..], "10.40.0.201 lies inside 10.40.0.0/16"),
        (&["--kubernetes-version", "1.20.0"], "runs Kubernetes 1.31 to 1.36, not 1.20.0"),
        (&["--worker", "10.40.0.201"], "10.40.0.201 is also nodes[prod-cp-1].address"),
        (&["--talos-version", "v1.8.0"], "Talos 1.8 is not supported"),
        (&["--vip", "10.40.0.200"], "--vip-link"),
        (&["--schematic", "x"], "is not a schematic"),
        (&["--patch", "cluster: {network: {cni: {name: calico}}}"], "cni name should be one of"),
    ] {
        let made = generate(&out, more);
        assert_eq!(made.status.code(), Some(2), "{more:?}: {}", text(&made.stderr));
        assert!(text(&made.stderr).contains(wanted), "{more:?}: {}", text(&made.stderr));
        assert!(!out.exists());
    }
}

#[test]
fn bad_files_are_told_with_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.yaml");
    fs::write(&file, "version: v1alpha1\nmachine:\n  type: worker\n  colour: red\n").unwrap();
    let file = file.to_str().unwrap();
    let checked = butleradm(&["talos", "validate", "--mode", "cloud", file, "/nowhere"]);
    assert_eq!(checked.status.code(), Some(2));
    let out = text(&checked.stdout);
    assert!(out.contains(&format!("{file}:4:3: error: machine.colour: unknown key (Talos)\n")), "{out}");
    assert!(out.contains("cluster instructions are required"), "{out}");
    assert!(text(&checked.stderr).contains("cannot read /nowhere"));
}
