//! The same patches by us and by Talos: one configuration, a table of patches, and the outcome document by document. What one
//! side refuses the other has to refuse too.
//!
//! Both outcomes are written by the machinery before they are compared, so that only what they say counts.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

use super::{Count, generated::Generated, machinery::Pipe};
use crate::peers::Machinery;

/// With a worker: a control plane that pods run on has no label to delete.
const CLUSTER: [&str; 6] = [
    "patches",
    "https://192.168.50.10:6443",
    "--control-plane",
    "192.168.50.11",
    "--worker",
    "192.168.50.12",
];

/// The file of the control plane.
const NODE: &str = "patches-cp-1.yaml";

/// Whether a patch may be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Applied,
    Refused,
}
use Want::{Applied, Refused};

/// What it is, the oldest minor release it makes sense for, what is to come of it, and the patch.
type Case = (&'static str, u8, Want, &'static str);

/// Strategic merge patches.
const MERGES: &[Case] = &[
    (
        "butler-lb on control planes, as people copy it",
        9,
        Applied,
        include_str!("../../../deploy/butler-lb/talos-vip-only.yaml"),
    ),
    ("scalars", 9, Applied, "machine: {install: {disk: /dev/sdz, wipe: true}}"),
    ("an appended list", 9, Applied, "machine: {certSANs: [extra.example.com]}"),
    ("replaced networks", 9, Applied, "cluster: {network: {podSubnets: [10.32.0.0/16]}}"),
    (
        "a replaced audit policy",
        9,
        Applied,
        "cluster: {apiServer: {auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}}}",
    ),
    (
        "mounts and maps",
        9,
        Applied,
        "machine: {sysctls: {a.b: '1'}, kubelet: {extraArgs: {v: '4'}, extraMounts: [{destination: /x, type: bind, source: /x, options: [bind]}]}}",
    ),
    (
        "a new document",
        9,
        Applied,
        "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: r\nurl: tcp://192.168.50.3:1514\n",
    ),
    (
        "a deleted label",
        9,
        Applied,
        "machine: {nodeLabels: {node.kubernetes.io/exclude-from-external-load-balancers: {$patch: delete}}}",
    ),
    ("a deleted section", 9, Applied, "cluster: {discovery: {$patch: delete}}"),
    (
        "a deleted scalar beside a new one",
        9,
        Applied,
        "machine: {install: {image: {$patch: delete}, wipe: true}}",
    ),
    (
        "a deleted item of a list",
        9,
        Applied,
        "cluster: {apiServer: {admissionControl: [{name: PodSecurity, $patch: delete}]}}",
    ),
    ("a deleted document", 12, Applied, "apiVersion: v1alpha1\nkind: HostnameConfig\n$patch: delete\n"),
    (
        "the deletion of a label that is not there",
        9,
        Refused,
        "machine: {nodeLabels: {nope: {$patch: delete}}}",
    ),
    (
        "the deletion of an item that is not there",
        9,
        Refused,
        "cluster: {apiServer: {admissionControl: [{name: Nope, $patch: delete}]}}",
    ),
    (
        "the deletion of a document that is not there",
        9,
        Refused,
        "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: nope\n$patch: delete\n",
    ),
    ("an unknown key", 9, Refused, "machine: {nope: 1}"),
    ("another type", 9, Refused, "machine: {install: [1]}"),
];

/// RFC 6902 patches. Talos applies them to configurations of one document only, so that one is all it gets.
const OPERATIONS: &[Case] = &[
    ("add to a map", 9, Applied, r#"[{"op":"add","path":"/machine/sysctls","value":{"a.b":"1"}}]"#),
    (
        "add at the end of a list",
        9,
        Applied,
        r#"[{"op":"add","path":"/machine/certSANs/-","value":"x.example.com"}]"#,
    ),
    ("add into a list", 9, Applied, r#"[{"op":"add","path":"/machine/certSANs/0","value":"x.example.com"}]"#),
    ("replace", 9, Applied, r#"[{"op":"replace","path":"/cluster/network/dnsDomain","value":"a.example"}]"#),
    (
        "remove by an escaped name",
        9,
        Applied,
        r#"[{"op":"remove","path":"/machine/nodeLabels/node.kubernetes.io~1exclude-from-external-load-balancers"}]"#,
    ),
    (
        "test, copy and move, as YAML",
        9,
        Applied,
        "- {op: test, path: /machine/type, value: controlplane}\n- {op: copy, from: /machine/install/disk, path: /machine/env}\n- {op: remove, path: /machine/env}\n- {op: move, from: /cluster/network/dnsDomain, path: /cluster/clusterName}\n",
    ),
    (
        "two in order",
        9,
        Applied,
        r#"[{"op":"add","path":"/machine/env","value":{}},{"op":"add","path":"/machine/env/A","value":"b"}]"#,
    ),
    ("the removal of what is not there", 9, Refused, r#"[{"op":"remove","path":"/machine/nope"}]"#),
    (
        "the replacement of what is not there",
        9,
        Refused,
        r#"[{"op":"replace","path":"/machine/nope/x","value":1}]"#,
    ),
    ("an add below what is not there", 9, Refused, r#"[{"op":"add","path":"/machine/nope/x","value":1}]"#),
    ("a test that fails", 9, Refused, r#"[{"op":"test","path":"/machine/type","value":"worker"}]"#),
    ("an unknown key in a value", 9, Refused, r#"[{"op":"add","path":"/machine/nope","value":1}]"#),
    ("an index beyond the list", 9, Refused, r#"[{"op":"add","path":"/machine/certSANs/99","value":"x"}]"#),
];

pub(super) async fn run(butleradm: &Path, machinery: &Machinery) -> Result<Count> {
    let mut count = Count::default();
    let folder = tempfile::tempdir().context("make a folder for the patches")?;
    let options = CLUSTER.into_iter().chain(["--talos-version", machinery.version]);
    let base = Generated::run(butleradm, options.clone()).await?;
    let text = base.read(NODE)?;
    let secrets = base.path("secrets.yaml").to_string_lossy().into_owned();
    let minor: u8 = machinery.minor.trim_start_matches("1.").parse().context("read the minor release")?;
    let mut pipe = Pipe::open(machinery).await?;
    for (cases, whole) in [(MERGES, true), (OPERATIONS, false)] {
        for (what, _, want, patch) in cases.iter().filter(|(_, since, ..)| *since <= minor) {
            let given = if whole { text.clone() } else { main_document(&text) };
            let theirs = match pipe.patch(&given, &[patch]).await? {
                // Operations leave a text that Talos has not read again yet.
                Ok(patched) => pipe.patch(&patched, &[]).await?,
                refusal => refusal,
            };
            let file = folder.path().join("patch");
            fs::write(&file, patch).context("write a patch")?;
            let argument = format!("@{}", file.display());
            let args =
                options.clone().chain(["--with-secrets", &secrets, "--patch-control-plane", &argument]);
            let ours = match Generated::run(butleradm, args).await {
                Ok(generated) => {
                    let patched = generated.read(NODE)?;
                    let seen = if whole { patched } else { main_document(&patched) };
                    pipe.patch(&seen, &[]).await?
                }
                Err(error) => Err(vec![format!("{error:#}")]),
            };
            let mut problems = judge(*want, &ours, &theirs);
            if let (Ok(patched), true) = (&ours, whole) {
                problems.extend(pipe.validate(patched, "metal").await?);
            }
            count.check(&format!("{}: {what}", machinery.minor), &problems)?;
        }
    }
    Ok(count)
}

/// A patched configuration, or why there is none.
type Outcome = Result<String, Vec<String>>;

fn judge(want: Want, ours: &Outcome, theirs: &Outcome) -> Vec<String> {
    match (want, ours, theirs) {
        (Refused, Err(_), Err(_)) => Vec::new(),
        (Applied, Ok(ours), Ok(theirs)) => differences(&documents(ours), &documents(theirs)),
        (_, ours, theirs) => {
            let tell = |outcome: &Outcome| match outcome {
                Ok(_) => "applies it".to_owned(),
                Err(why) => format!("refuses it: {}", why.join("; ")),
            };
            vec![format!("Butler {}", tell(ours)), format!("Talos {}", tell(theirs))]
        }
    }
}

/// By kind and name; the v1alpha1 document has neither.
fn documents(text: &str) -> BTreeMap<String, Value> {
    let parts = text.split("\n---\n").map(|part| serde_saphyr::from_str::<Value>(part).unwrap_or_default());
    let name = |value: &Value| format!("{} {}", value["kind"], value["name"]);
    parts.filter(|value| !value.is_null()).map(|value| (name(&value), value)).collect()
}

fn main_document(text: &str) -> String {
    text.split("\n---\n").next().unwrap_or_default().to_owned() + "\n"
}

/// The places, not the values: some are secret.
fn differences(ours: &BTreeMap<String, Value>, theirs: &BTreeMap<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    let all = |side: &BTreeMap<String, Value>| json!(side);
    super::secrets::compare("", &all(ours), &all(theirs), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_sees_what_differs_and_who_refuses() {
        let outcome = |text: &str| -> Outcome { Ok(text.to_owned()) };
        let refusal: Outcome = Err(vec!["no".to_owned()]);
        let two = "a: 1\n---\nkind: X\nname: n\nb: 2\n";
        assert!(judge(Applied, &outcome(two), &outcome("kind: X\nname: n\nb: 2\n---\na: 1\n")).is_empty());
        assert_eq!(judge(Applied, &outcome(two), &outcome("a: 1\n")).len(), 1);
        assert_eq!(judge(Applied, &outcome(two), &outcome("a: 2\n---\nkind: X\nname: n\nb: 2\n")).len(), 1);
        assert_eq!(judge(Applied, &refusal, &refusal).len(), 2);
        assert_eq!(judge(Refused, &refusal, &outcome(two)).len(), 2);
        assert!(judge(Refused, &refusal, &refusal).is_empty());
    }
}
