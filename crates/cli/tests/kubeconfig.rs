//! The kubeconfig that the API server writes: its own file again and again, nobody else's ever.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn a_kubeconfig_of_somebody_else_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let theirs = folder.path().join("config");
    let text =
        "apiVersion: v1\nkind: Config\ncontexts:\n- name: production\n  context: {cluster: p, user: p}\n";
    std::fs::write(&theirs, text).expect("their kubeconfig");
    let out = Command::new(env!("CARGO_BIN_EXE_butleradm"))
        .args(["apiserver", "--data-dir"])
        .arg(folder.path().join("data"))
        .arg("--write-kubeconfig")
        .arg(&theirs)
        .output()
        .expect("butleradm runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("was not written by this command"), "{said}");
    assert_eq!(std::fs::read_to_string(&theirs).expect("it is there"), text, "and is as it was");
    assert!(!folder.path().join("data").exists(), "nothing else was begun");
}
