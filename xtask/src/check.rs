//! `cargo xtask check`: the rules of the house that no compiler knows.
//!
//! - Which room may import which (docs: ARCHITECTURE.md). Dev-dependencies are free.
//! - Every crate inherits the workspace's lints; `lb` may deny `unsafe` in place of forbidding it.
//! - The load balancer's decisions (`crates/lb/src/core`) do no IO and read no clock.
//! - Pure files stay pure: no `async`, clock or driver in a `plan.rs` or `status.rs` of a controller.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Who may import whom, among our own crates.
const MAY_IMPORT: [(&str, &[&str]); 10] = [
    ("butler-api", &[]),
    ("butler-apiserver", &[]),
    ("butler-talos", &[]),
    ("butler-charts", &[]),
    ("butler-lb", &[]),
    ("butler-drivers", &["butler-api", "butler-lb"]),
    ("butler-controllers", &["butler-api", "butler-drivers", "butler-talos", "butler-charts"]),
    ("butler-sim", &["butler-apiserver", "butler-lb", "butler-talos"]),
    (
        "butler-cli",
        &[
            "butler-api",
            "butler-apiserver",
            "butler-talos",
            "butler-charts",
            "butler-lb",
            "butler-drivers",
            "butler-controllers",
            "butler-sim",
        ],
    ),
    ("xtask", &["butler-api"]),
];

/// Crates that `butler-api` must not pull in: it does no IO and knows no clock.
const NOT_IN_API: [&str; 5] = ["tokio", "hyper", "reqwest", "kube-client", "kube-runtime"];

/// What a pure file of a controller must not contain.
const IMPURE: [&str; 6] =
    ["async ", "kube::Client", "drivers::", "SystemTime::now", "Instant::now", "Timestamp::now"];

/// What the load balancer's decisions must not contain.
const NOT_IN_DECISIONS: [&str; 8] = [
    "Instant::now",
    "SystemTime::now",
    "std::fs",
    "std::thread",
    "rustix::",
    "TcpStream",
    "UdpSocket",
    "crate::forward",
];

pub(crate) fn run() -> Result<()> {
    let metadata = metadata()?;
    let root = metadata["workspace_root"].as_str().context("cargo metadata has no workspace_root")?;
    let mut problems = imports(&metadata)?;
    problems.extend(api_is_pure(&metadata)?);
    problems.extend(lints(&metadata)?);
    problems.extend(pure_files(Path::new(root))?);
    problems.extend(pure_decisions(Path::new(root))?);
    if problems.is_empty() {
        say("check: the rooms import only what they may");
        return Ok(());
    }
    bail!("{}", problems.join("\n"));
}

#[allow(clippy::print_stdout, reason = "a chore speaks")]
fn say(text: &str) {
    println!("{text}");
}

fn metadata() -> Result<Value> {
    let out = Command::new(env!("CARGO")).args(["metadata", "--format-version=1", "--locked"]).output()?;
    if !out.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn members(metadata: &Value) -> impl Iterator<Item = &Value> {
    let ids: Vec<&str> =
        metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(move |p| p["id"].as_str().is_some_and(|id| ids.contains(&id)))
}

fn imports(metadata: &Value) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in members(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(n, _)| *n == name) else {
            problems.push(format!(
                "{name}: no such room; add it to the table in xtask/src/check.rs and ARCHITECTURE.md"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let theirs = dependency["name"].as_str().unwrap_or_default();
            let ours = MAY_IMPORT.iter().any(|(n, _)| *n == theirs);
            if ours && dependency["kind"].as_str() != Some("dev") && !allowed.contains(&theirs) {
                problems.push(format!("{name} imports {theirs}, which the layering does not allow"));
            }
        }
    }
    Ok(problems)
}

/// The resolved dependencies of `butler-api`, without dev-dependencies, hold no IO.
fn api_is_pure(_metadata: &Value) -> Result<Vec<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-p", "butler-api", "-e", "normal", "--prefix", "none", "--format", "{p}"])
        .output()?;
    if !out.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    let tree = String::from_utf8_lossy(&out.stdout);
    let named = |line: &str| NOT_IN_API.iter().find(|c| line.split(' ').next() == Some(**c)).copied();
    let mut found: Vec<&str> = tree.lines().filter_map(named).collect();
    found.dedup();
    Ok(found.iter().map(|c| format!("butler-api pulls in {c}: it must do no IO")).collect())
}

fn lints(metadata: &Value) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in members(metadata) {
        let path = package["manifest_path"].as_str().unwrap_or_default();
        let manifest = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let inherits = manifest.contains("[lints]\nworkspace = true");
        // Its system calls need `unsafe` in one file, which a workspace's `forbid` could not give way to.
        let denies = package["name"] == "butler-lb" && manifest.contains("unsafe_code = \"deny\"");
        if !inherits && !denies {
            problems
                .push(format!("{path} does not inherit the workspace's lints ([lints] workspace = true)"));
        }
    }
    Ok(problems)
}

/// Every file below the decisions of the load balancer, tests aside.
fn pure_decisions(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut todo = vec![root.join("crates/lb/src/core")];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            if path.file_stem().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with("tests")) {
                continue;
            }
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let found = NOT_IN_DECISIONS.iter().filter(|word| code.contains(**word));
            problems.extend(
                found.map(|word| format!("{} has {word}, which a decision must not", path.display())),
            );
        }
    }
    Ok(problems)
}

fn pure_files(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut todo = vec![root.join("crates/controllers/src")];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            if !matches!(path.file_name().and_then(|n| n.to_str()), Some("plan.rs" | "status.rs")) {
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            for word in IMPURE.iter().filter(|w| text.contains(**w)) {
                problems.push(format!(
                    "{} contains `{}`: plans and status are pure",
                    path.display(),
                    word.trim()
                ));
            }
        }
    }
    Ok(problems)
}
