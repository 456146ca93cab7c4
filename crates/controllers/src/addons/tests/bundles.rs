//! Bundles: what is taken, and what is refused by name.

use crate::addons::{Bundle, Part, Sources};
use serde_json::{Value, json};
use std::io;

const FILE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";

fn sha(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(name: &str) -> io::Result<Vec<u8>> {
    match name {
        "cilium.yaml" => Ok(FILE.as_bytes().to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn bundle(entries: Value) -> Result<Bundle, Vec<String>> {
    let index =
        json!({ "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "AddonBundle", "entries": entries });
    Bundle::parse(&index.to_string(), read)
        .map_err(|problems| problems.iter().map(|p| format!("{}: {}", p.path, p.rule)).collect())
}

fn part(addon: &str, version: &str) -> Part {
    Part { addon: addon.into(), version: version.into(), namespace: "x".into(), values: json!({}) }
}

#[test]
fn files_and_objects_are_taken_with_their_digests() {
    let objects = json!([{ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "f" } }]);
    let digest = Bundle::digest(objects.as_array().expect("a list"));
    let bundle = bundle(json!([
        { "addon": "cilium", "version": "1.17.0", "sha256": sha(FILE).to_uppercase(), "file": "cilium.yaml" },
        { "addon": "flux", "version": "v2.4.0", "standIn": true, "sha256": digest, "objects": objects },
    ]))
    .expect("a good bundle");
    let cilium = bundle.objects(&part("cilium", "1.17.0")).expect("is there");
    let names: Vec<&Value> = cilium.iter().map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"], "lists are taken apart, empty documents are nothing");
    assert_eq!(bundle.describe(&part("flux", "v2.4.0")), "STAND-IN for flux v2.4.0");
    assert_eq!(bundle.describe(&part("cilium", "1.17.0")), "bundle cilium 1.17.0");
    let missing = bundle.objects(&part("cilium", "1.19.4")).expect_err("another version");
    assert_eq!(missing.message, "the bundle has cilium 1.17.0, not 1.19.4");
    assert!(bundle.objects(&part("traefik", "1")).expect_err("not there").message.contains("traefik"));
}

#[test]
fn the_digest_does_not_depend_on_the_order_of_keys() {
    let one: Value = serde_json::from_str(r#"{"a":{"c":1,"b":[2,{"y":1,"x":"\n"}]}}"#).expect("JSON");
    let other: Value = serde_json::from_str(r#"{"a":{"b":[2,{"x":"\n","y":1}],"c":1}}"#).expect("JSON");
    assert_eq!(Bundle::digest(&[one]), Bundle::digest(&[other]));
    assert_eq!(Bundle::digest(&[json!({})]), sha("{}\n"));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let object = json!([{ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "f" } }]);
    let nameless = json!([{ "kind": "ConfigMap" }]);
    let problems = bundle(json!([
        { "addon": "cilium", "version": "1.17.0", "sha256": "00", "file": "cilium.yaml" },
        { "addon": "flux", "version": "v2.4.0", "sha256": "00", "objects": object },
        { "addon": "traefik", "version": "1", "sha256": "00", "file": "gone.yaml" },
        { "addon": "steward", "version": "1", "sha256": "00", "file": "../secret.yaml" },
        { "addon": "metallb", "version": "1", "sha256": "00" },
        { "addon": "capi-core", "version": "1", "sha256": Bundle::digest(nameless.as_array().expect("a list")),
          "objects": nameless },
    ]))
    .expect_err("nothing is right");
    let wanted = [
        "entries[0].sha256: cilium 1.17.0: the digest must be that of its content",
        "entries[1].sha256: flux v2.4.0: the digest must be that of its content",
        "entries[2].file: traefik 1: it can't be read",
        "entries[3].file: steward 1: a file must be beside the bundle",
        "entries[4].file: metallb 1: it must have either file or objects",
        "entries[5].objects: capi-core 1: object 1 lacks",
    ];
    assert_eq!(problems.len(), wanted.len(), "{problems:#?}");
    for (problem, wanted) in problems.iter().zip(wanted) {
        assert!(problem.starts_with(wanted), "{problem}");
    }
}

#[test]
fn what_is_no_bundle_is_refused() {
    assert!(Bundle::parse("kind: [", read).is_err());
    assert!(Bundle::parse("apiVersion: v1\nkind: AddonBundle\nentries: []", read).is_err());
    let typo = json!([{ "addon": "a", "version": "1", "sha256": "00", "objets": [] }]);
    assert!(bundle(typo).expect_err("a slip")[0].contains("objets"));
    let digest = Bundle::digest(&[]);
    let twice = json!([
        { "addon": "a", "version": "1", "sha256": digest, "objects": [] },
        { "addon": "a", "version": "1", "sha256": digest, "objects": [] },
    ]);
    assert!(
        bundle(twice).expect_err("twice")[0].starts_with("entries[1]: an addon's version may be there once")
    );
}

#[test]
fn a_bundle_is_read_from_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("cilium.yaml"), FILE).expect("written");
    let index = folder.path().join("bundle.yaml");
    let text = format!(
        "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: AddonBundle\nentries:\n- addon: cilium\n  version: 1.17.0\n  sha256: {}\n  file: cilium.yaml\n",
        sha(FILE)
    );
    std::fs::write(&index, text).expect("written");
    let bundle = Bundle::load(&index).expect("a good bundle");
    assert_eq!(bundle.addons().collect::<Vec<_>>(), [("cilium", "1.17.0")]);
    std::fs::write(folder.path().join("cilium.yaml"), format!("{FILE}#")).expect("written");
    let problems = Bundle::load(&index).expect_err("one byte more");
    assert_eq!((problems.len(), problems[0].path.as_str()), (1, "entries[0].sha256"));
    assert!(Bundle::load(&folder.path().join("none.yaml")).is_err());
}
