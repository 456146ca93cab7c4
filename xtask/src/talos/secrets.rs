//! Secrets bundles in both directions. Ours through the machinery: nothing may change, and every key must be one that this
//! release can use. The machinery's through ours: a configuration must hold the same secrets as the machinery's own.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Count, generated::Generated, machinery::Pipe};
use crate::peers::Machinery;

const CLUSTER: [&str; 4] = ["bundle", "https://192.168.50.10:6443", "--control-plane", "192.168.50.11"];

/// Where a control plane's configuration holds what is in a bundle.
const SECRETS: [&str; 10] = [
    "/machine/token",
    "/machine/ca",
    "/cluster/id",
    "/cluster/secret",
    "/cluster/token",
    "/cluster/ca",
    "/cluster/secretboxEncryptionSecret",
    "/cluster/aggregatorCA",
    "/cluster/serviceAccount",
    "/cluster/etcd/ca",
];

pub(super) async fn run(butleradm: &Path, machinery: &Machinery) -> Result<Count> {
    let mut count = Count::default();
    let mut pipe = Pipe::open(machinery).await?;
    let minor = machinery.minor;

    let ours =
        Generated::run(butleradm, CLUSTER.into_iter().chain(["--talos-version", machinery.version])).await;
    let problems = match ours {
        Ok(generated) => there(&mut pipe, &generated.read("secrets.yaml")?).await?,
        Err(error) => vec![format!("{error:#}")],
    };
    count.check(&format!("{minor}: a bundle of ours through the machinery"), &problems)?;

    let problems = back(butleradm, machinery, &mut pipe).await?;
    count.check(&format!("{minor}: a bundle of the machinery's through ours"), &problems)?;
    Ok(count)
}

async fn there(pipe: &mut Pipe, text: &str) -> Result<Vec<String>> {
    let answer = pipe.ask(&json!({"op": "secrets", "secrets": text})).await?;
    let mut problems = differences(text, &answer.secrets);
    problems.extend(answer.problems());
    Ok(problems)
}

/// Both make a control plane from the machinery's bundle: every secret must be at the same place in both.
async fn back(butleradm: &Path, machinery: &Machinery, pipe: &mut Pipe) -> Result<Vec<String>> {
    let request = json!({"op": "generate", "name": "bundle", "endpoint": CLUSTER[1], "kubernetes": "1.32.0"});
    let theirs = pipe.ask(&request).await?;
    let (bundle, config) = (theirs.secrets.clone(), theirs.control_plane.clone());
    let problems = theirs.problems();
    if !problems.is_empty() {
        return Ok(problems);
    }
    let folder = tempfile::tempdir().context("make a folder for a bundle")?;
    let file = folder.path().join("theirs.yaml");
    fs::write(&file, &bundle).with_context(|| format!("write {}", file.display()))?;
    let args = CLUSTER.into_iter().chain(["--talos-version", machinery.version, "--with-secrets"]);
    let args = args.map(std::ffi::OsString::from).chain([file.into_os_string()]);
    let generated = match Generated::run(butleradm, args).await {
        Ok(generated) => generated,
        Err(error) => return Ok(vec![format!("{error:#}")]),
    };
    let ours = generated.nodes()?.into_iter().next().context("no machine configuration was written")?;
    let (theirs, ours) = (main_document(&config)?, main_document(&generated.read(&ours)?)?);
    let mut found = Vec::new();
    for path in SECRETS {
        match (theirs.pointer(path), ours.pointer(path)) {
            (Some(theirs), Some(ours)) => compare(path, theirs, ours, &mut found),
            (theirs, ours) => {
                let there = |side: Option<&Value>| if side.is_some() { "there" } else { "missing" };
                found.push(format!("{path} is {} in theirs and {} in ours", there(theirs), there(ours)));
            }
        }
    }
    Ok(found)
}

/// The first document of a configuration: secrets are in no other.
fn main_document(config: &str) -> Result<Value> {
    let first = config.split("\n---\n").next().unwrap_or_default();
    serde_saphyr::from_str(first).context("parse a machine configuration")
}

/// What is not the same in two bundles, by path: the values are secret.
fn differences(before: &str, after: &str) -> Vec<String> {
    let parse = |text: &str| serde_saphyr::from_str::<Value>(text);
    match (parse(before), parse(after)) {
        (Ok(before), Ok(after)) => {
            let mut found = Vec::new();
            compare("", &before, &after, &mut found);
            found
        }
        (Err(_), _) => vec!["the bundle is not YAML before the round trip".to_owned()],
        (_, Err(_)) => vec!["the bundle is not YAML after the round trip".to_owned()],
    }
}

pub(super) fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    if let (Value::Object(one), Value::Object(other)) = (before, after) {
        for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
            let value =
                |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or(Value::Null);
            compare(&format!("{path}/{name}"), &value(one), &value(other), found);
        }
    } else if before != after {
        found.push(format!("{path} is not the same"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_and_not_shown() {
        let before = "cluster:\n  id: secret-id\n  secret: b\n";
        assert!(differences(before, "cluster: {secret: b, id: secret-id}\n").is_empty());
        let found = differences(before, "cluster:\n  id: other\n  secret: b\n  more: c\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("/cluster/id "), "{found:?}");
        assert!(found[1].starts_with("/cluster/more "), "{found:?}");
        assert!(!found.join("").contains("secret-id"));
    }

    #[test]
    fn what_is_no_bundle_is_a_difference() {
        assert_eq!(differences("a: 1\n", "a: [").len(), 1);
    }
}
