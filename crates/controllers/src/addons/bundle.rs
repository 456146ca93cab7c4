//! Bundles: the manifests of addons in files, each with its digest, for sites without a way out.
//!
//! ```yaml
//! apiVersion: butler.butlerlabs.dev/v1alpha1
//! kind: AddonBundle
//! entries:
//! - addon: cilium
//!   version: 1.17.0
//!   sha256: 5f1c...            # of the file's bytes
//!   file: cilium.yaml          # beside this one
//! - addon: flux
//!   version: v2.4.0
//!   standIn: true
//!   sha256: 03ab...            # of the objects as JSON: keys sorted, no spaces, one line for each object
//!   objects: [...]
//! ```

use super::inventory::hex;
use super::kinds::ObjectRef;
use super::source::{Part, Sources};
use aws_lc_rs::digest;
use butler_api::{Problem, Severity, names};
use butler_drivers::{Class, Failure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// Manifests of addons, whose digests have been checked.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    entries: BTreeMap<(String, String), Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    stand_in: bool,
    objects: Vec<Value>,
}

/// The file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Index {
    api_version: String,
    kind: String,
    entries: Vec<IndexEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IndexEntry {
    addon: String,
    version: String,
    #[serde(default)]
    stand_in: bool,
    sha256: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    objects: Option<Vec<Value>>,
}

impl Bundle {
    /// Reads a bundle and the files that it names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let text = std::fs::read_to_string(path).map_err(|error| {
            let shown = path.display().to_string();
            vec![problem(
                "",
                Some(shown),
                &format!("the bundle can't be read: {error}"),
                "give the path of a bundle",
            )]
        })?;
        Self::parse(&text, |name| std::fs::read(folder.join(name)))
    }

    /// Reads a bundle from text; `read` gives the files that it names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Result<Self, Vec<Problem>> {
        let index: Index = yaml(text).map_err(|error| {
            vec![problem("", None, &format!("a bundle must be well-formed: {error}"), "mend the file")]
        })?;
        let wanted = format!("{}/{}", names::GROUP, names::VERSION);
        if index.api_version != wanted || index.kind != "AddonBundle" {
            let found = format!("{} {}", index.api_version, index.kind);
            let rule = format!("a bundle is a {wanted} AddonBundle");
            return Err(vec![problem("kind", Some(found), &rule, "give a bundle made for this version")]);
        }
        let mut bundle = Bundle::default();
        let mut problems = Vec::new();
        for (n, entry) in index.entries.into_iter().enumerate() {
            let place = format!("entries[{n}]");
            let key = (entry.addon.clone(), entry.version.clone());
            match entry.open(&place, &read) {
                Ok(_) if bundle.entries.contains_key(&key) => {
                    let name = format!("{} {}", key.0, key.1);
                    problems.push(problem(
                        &place,
                        Some(name),
                        "an addon's version may be there once",
                        "leave one out",
                    ));
                }
                Ok(opened) => {
                    bundle.entries.insert(key, opened);
                }
                Err(wrong) => problems.push(wrong),
            }
        }
        if problems.is_empty() { Ok(bundle) } else { Err(problems) }
    }

    /// All addons in it, with their versions.
    pub fn addons(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.keys().map(|(addon, version)| (addon.as_str(), version.as_str()))
    }

    /// The digest that an entry with these objects has to carry.
    pub fn digest(objects: &[Value]) -> String {
        let lines: String = objects.iter().map(|object| format!("{}\n", sorted(object))).collect();
        sha256(lines.as_bytes())
    }
}

impl Sources for Bundle {
    fn objects(&self, part: &Part) -> Result<Vec<Value>, Failure> {
        if let Some(entry) = self.entries.get(&(part.addon.clone(), part.version.clone())) {
            return Ok(entry.objects.clone());
        }
        let others: Vec<&str> =
            self.addons().filter(|(addon, _)| *addon == part.addon).map(|(_, version)| version).collect();
        let has = match others.is_empty() {
            true => format!("the bundle does not have the addon {}", part.addon),
            false => format!("the bundle has {} {}, not {}", part.addon, others.join(", "), part.version),
        };
        Err(Failure::new(
            Class::InvalidConfig,
            "AddonSourceMissing",
            has,
            "give a bundle that has it, ask for a version that it has, or leave the addon out",
        ))
    }

    fn describe(&self, part: &Part) -> String {
        let key = (part.addon.clone(), part.version.clone());
        match self.entries.get(&key) {
            Some(entry) if entry.stand_in => format!("STAND-IN for {} {}", part.addon, part.version),
            _ => format!("bundle {} {}", part.addon, part.version),
        }
    }
}

impl IndexEntry {
    /// The objects, if their digest is the one that was promised.
    fn open(&self, place: &str, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Result<Entry, Problem> {
        let wrong = |field: &str, value: Option<String>, rule: &str, remedy: &str| {
            let rule = format!("{} {}: {rule}", self.addon, self.version);
            problem(&format!("{place}.{field}"), value, &rule, remedy)
        };
        let (found, objects) = match (&self.file, &self.objects) {
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong(
                    "file",
                    None,
                    "it must have either file or objects",
                    "give one of the two",
                ));
            }
            (None, Some(objects)) => (Bundle::digest(objects), objects.clone()),
            (Some(file), None) => {
                if !is_beside(file) {
                    let rule = "a file must be beside the bundle or below it";
                    return Err(wrong("file", Some(file.clone()), rule, "move the file"));
                }
                let bytes = read(file).map_err(|error| {
                    wrong("file", Some(file.clone()), &format!("it can't be read: {error}"), "bring the file")
                })?;
                let found = sha256(&bytes);
                // Only what was promised is looked into.
                let objects =
                    if found == self.sha256.to_lowercase() { documents(&bytes) } else { Ok(Vec::new()) };
                let objects =
                    objects.map_err(|error| wrong("file", Some(file.clone()), &error, "mend the file"))?;
                (found, objects)
            }
        };
        if found != self.sha256.to_lowercase() {
            let rule = format!("the digest must be that of its content, which has {found}");
            let remedy = "get the bundle again; if it was changed on purpose, write the new digest";
            return Err(wrong("sha256", Some(self.sha256.clone()), &rule, remedy));
        }
        let objects = flat(objects);
        if let Some(n) = objects.iter().position(|object| ObjectRef::of(object).is_none()) {
            let rule = format!("object {} lacks its apiVersion, kind or name", n + 1);
            return Err(wrong("objects", None, &rule, "mend the object"));
        }
        Ok(Entry { stand_in: self.stand_in, objects })
    }
}

/// The documents of a YAML stream (JSON is YAML too); empty ones are nothing.
fn documents(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let options = generous();
    let all: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

fn yaml<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, generous()).map_err(|error| error.to_string())
}

/// The manifests of a dozen charts are more than a usual YAML file.
fn generous() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 20_000_000, max_nodes: 10_000_000, max_documents: 20_000 },
    }
}

/// Lists are taken apart.
fn flat(objects: Vec<Value>) -> Vec<Value> {
    let mut all = Vec::with_capacity(objects.len());
    for mut object in objects {
        let is_list = object.get("kind").and_then(Value::as_str) == Some("List");
        match object.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) if is_list => all.extend(flat(std::mem::take(items))),
            _ => all.push(object),
        }
    }
    all
}

fn is_beside(file: &str) -> bool {
    !file.is_empty() && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
}

/// JSON text with sorted keys, however the values are kept in memory.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let ordered: BTreeMap<&String, &Value> = fields.iter().collect();
            let inner: Vec<String> = ordered
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::String(key.clone()), sorted(value)))
                .collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn problem(path: &str, value: Option<String>, rule: &str, remedy: &str) -> Problem {
    Problem {
        severity: Severity::Error,
        path: path.to_owned(),
        value,
        rule: rule.to_owned(),
        remedy: remedy.to_owned(),
    }
}
