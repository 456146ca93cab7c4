//! What a simulated node reads from the machine configuration that is applied to it.

use crate::disks;
use crate::machine::{Media, Role};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use butler_talos::{Contract, MachineConfig, Mode, Problem, Severity, Source};
use serde_json::Value;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A configuration that passed the check, and the parts of it that the simulation acts on.
#[derive(Clone)]
pub struct NodeConfig {
    pub role: Role,
    /// Has a v1alpha1 document. Without one a node stays in maintenance mode.
    pub complete: bool,
    pub hostname: Option<String>,
    pub cni_none: bool,
    pub warnings: Vec<String>,
    pub(crate) parts: Parts,
    text: String,
    documents: Vec<Value>,
}

/// The parts that certificates, trust and membership are made of. Some are secret.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) cluster_name: String,
    pub(crate) cluster_id: String,
    pub(crate) cluster_secret: String,
    pub(crate) endpoint: String,
    pub(crate) token: String,
    pub(crate) os_ca: KeyPair,
    pub(crate) accepted_cas: Vec<String>,
    pub(crate) kubernetes_ca: KeyPair,
    pub(crate) cert_sans: Vec<String>,
    pub(crate) discovery: bool,
    pub(crate) rbac: bool,
    pub(crate) check_key_usage: bool,
    pub(crate) admin_lifetime: Option<String>,
}

/// A certificate and its key, both PEM; the key is empty where a node has none.
#[derive(Clone, Default)]
pub(crate) struct KeyPair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// Why a configuration is refused. The variants are the steps in which Talos finds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{0}")]
    Parse(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Runtime(String),
}

// By hand: a configuration is full of secrets.
impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig")
            .field("role", &self.role)
            .field("hostname", &self.hostname)
            .field("cluster", &self.parts.cluster_name)
            .finish_non_exhaustive()
    }
}

impl NodeConfig {
    /// Reads a configuration and checks it as strictly as a Talos of this version does at an apply. One that is to install
    /// itself wants to know where.
    ///
    /// # Errors
    /// Says in which of Talos' steps the configuration was refused, and why.
    pub fn check(text: &str, version: &str, media: Media) -> Result<Arc<Self>, ConfigError> {
        let mode = if media == Media::Iso { Mode::Metal } else { Mode::Cloud };
        Self::read(text, |text| validate(text, version, mode))
    }

    /// Reads a configuration that would not pass the check, for tests that need no more than a few keys.
    #[cfg(test)]
    pub(crate) fn check_lenient(text: &str) -> Result<Arc<Self>, ConfigError> {
        Self::read(text, |_| Ok(Vec::new()))
    }

    fn read(
        text: &str,
        validate: impl Fn(&str) -> Result<Vec<String>, ConfigError>,
    ) -> Result<Arc<Self>, ConfigError> {
        let documents = parse_documents(text)?;
        let main = documents.iter().find(|document| is_main(document));
        let Some(main) = main else {
            validate(text)?;
            return Ok(Arc::new(Self::partial(text, documents)));
        };
        let mut warnings = validate(text)?;
        disks::check_install(main)?;
        warnings.extend(disks::about_volumes(&documents));
        Ok(Arc::new(Self {
            role: role(main),
            complete: true,
            hostname: hostname(main, &documents),
            cni_none: main.pointer("/cluster/network/cni/name").and_then(Value::as_str) == Some("none"),
            warnings,
            parts: parts(main)?,
            text: text.to_string(),
            documents,
        }))
    }

    fn partial(text: &str, documents: Vec<Value>) -> Self {
        Self {
            role: Role::Worker,
            complete: false,
            hostname: None,
            cni_none: false,
            warnings: Vec::new(),
            parts: Parts::default(),
            text: text.to_string(),
            documents,
        }
    }

    fn main(&self) -> &Value {
        self.documents.iter().find(|document| is_main(document)).unwrap_or(&Value::Null)
    }

    /// A value of the v1alpha1 document. It may be secret.
    pub(crate) fn value(&self, pointer: &str) -> Option<&Value> {
        self.main().pointer(pointer)
    }

    /// The documents beside the v1alpha1 one, of one kind.
    pub(crate) fn documents_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.documents.iter().filter(move |document| document["kind"] == kind)
    }

    /// Addresses on the loopback interface, beside its own.
    pub(crate) fn loopback_addresses(&self) -> Vec<IpAddr> {
        let interfaces = self.value("/machine/network/interfaces").and_then(Value::as_array);
        let old = interfaces.into_iter().flatten().filter(|interface| interface["interface"] == "lo");
        let old = old.filter_map(|interface| interface.get("addresses")?.as_array()).flatten();
        let new = self.documents_of("LinkConfig").filter(|document| document["name"] == "lo");
        let new = new.filter_map(|document| document.get("addresses")?.as_array()).flatten();
        let texts = old.filter_map(Value::as_str).chain(new.filter_map(|entry| entry["address"].as_str()));
        texts.filter_map(|text| text.split('/').next()?.parse().ok()).collect()
    }

    /// The text as it was applied. It is secret.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a Talos of this version can read the CA's key. 1.9 wants its own labels, and says so only when its API is to
    /// start, long after the configuration was taken.
    pub(crate) fn key_is_readable(&self, version: &str) -> bool {
        let old = Contract::parse(version).is_ok_and(|contract| contract <= Contract::V1_9);
        !(old && self.parts.os_ca.key.starts_with("-----BEGIN PRIVATE KEY-----"))
    }

    /// The Talos version of the installer image, when its tag names one.
    pub(crate) fn installer_version(&self) -> Option<String> {
        let image = self.main().pointer("/machine/install/image")?.as_str()?;
        version_of_image(image)
    }

    /// Why `new` can't take effect without a reboot, if it can't.
    pub(crate) fn needs_reboot(&self, new: &Self) -> Option<String> {
        let before = without_immediate(self.main());
        let after = without_immediate(new.main());
        if before == after {
            return None;
        }
        let mut lines = Vec::new();
        compare("", &before, &after, &mut lines);
        Some(format!("this config change can't be applied in immediate mode\ndiff:\n{}", lines.join("\n")))
    }

    /// What changes from this configuration to `new`, one line a value; secrets are hidden.
    pub(crate) fn diff(&self, new: &Self) -> String {
        let mut lines = Vec::new();
        compare("", self.main(), new.main(), &mut lines);
        let others = |config: &Self| -> Vec<Value> {
            config.documents.iter().filter(|document| !is_main(document)).cloned().collect()
        };
        compare("documents", &Value::from(others(self)), &Value::from(others(new)), &mut lines);
        if lines.is_empty() { "No changes.".to_string() } else { lines.join("\n") }
    }
}

/// The version in the tag of an image reference; the reference may carry a digest.
pub(crate) fn version_of_image(image: &str) -> Option<String> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit_once(':')?;
    let mut numbers = tag.strip_prefix('v')?.split(['.', '-']);
    let numeric = |part: Option<&str>| part.is_some_and(|text| text.parse::<u32>().is_ok());
    (numeric(numbers.next()) && numeric(numbers.next()) && numeric(numbers.next())).then(|| tag.to_string())
}

fn is_main(document: &Value) -> bool {
    document.get("kind").is_none()
        && ["machine", "cluster", "debug", "persist"].iter().any(|key| document.get(key).is_some())
}

fn parse_documents(text: &str) -> Result<Vec<Value>, ConfigError> {
    let mut documents = Vec::new();
    for part in split_documents(text) {
        let blank = part.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if blank {
            continue;
        }
        let value: Value =
            serde_saphyr::from_str(&part).map_err(|e| ConfigError::Parse(e.without_snippet().to_string()))?;
        documents.push(value);
    }
    if documents.is_empty() {
        return Err(ConfigError::Parse("no configuration documents found".to_string()));
    }
    Ok(documents)
}

fn split_documents(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

fn role(main: &Value) -> Role {
    match main.pointer("/machine/type").and_then(Value::as_str) {
        Some("controlplane" | "init") => Role::ControlPlane,
        _ => Role::Worker,
    }
}

fn hostname(main: &Value, documents: &[Value]) -> Option<String> {
    let own = main.pointer("/machine/network/hostname");
    let document = documents.iter().find(|document| document["kind"] == "HostnameConfig");
    own.or_else(|| document.and_then(|document| document.get("hostname")))
        .and_then(Value::as_str)
        .map(ToString::to_string)
}

fn parts(main: &Value) -> Result<Parts, ConfigError> {
    let text = |pointer: &str| main.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    let flag =
        |pointer: &str, default: bool| main.pointer(pointer).and_then(Value::as_bool).unwrap_or(default);
    let list = |pointer: &str| main.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut accepted_cas = Vec::new();
    for entry in list("/machine/acceptedCAs") {
        accepted_cas.push(decode(entry["crt"].as_str().unwrap_or_default(), "machine.acceptedCAs")?);
    }
    Ok(Parts {
        cluster_name: text("/cluster/clusterName"),
        cluster_id: text("/cluster/id"),
        cluster_secret: text("/cluster/secret"),
        endpoint: text("/cluster/controlPlane/endpoint"),
        token: text("/machine/token"),
        os_ca: key_pair(main, "machine")?,
        accepted_cas,
        kubernetes_ca: key_pair(main, "cluster")?,
        cert_sans: list("/machine/certSANs")
            .iter()
            .filter_map(Value::as_str)
            .map(ToString::to_string)
            .collect(),
        discovery: flag("/cluster/discovery/enabled", true),
        rbac: flag("/machine/features/rbac", true),
        check_key_usage: flag("/machine/features/apidCheckExtKeyUsage", true),
        admin_lifetime: main
            .pointer("/cluster/adminKubeconfig/certLifetime")
            .and_then(Value::as_str)
            .map(ToString::to_string),
    })
}

fn key_pair(main: &Value, section: &str) -> Result<KeyPair, ConfigError> {
    let get = |name: &str| {
        let value = main.pointer(&format!("/{section}/ca/{name}")).and_then(Value::as_str);
        decode(value.unwrap_or_default(), &format!("{section}.ca.{name}"))
    };
    Ok(KeyPair { cert: get("crt")?, key: get("key")? })
}

fn decode(text: &str, path: &str) -> Result<String, ConfigError> {
    let bytes =
        BASE64.decode(text).map_err(|_| ConfigError::Parse(format!("{path}: illegal base64 data")))?;
    String::from_utf8(bytes).map_err(|_| ConfigError::Parse(format!("{path}: not a PEM text")))
}

/// Takes out everything that Talos can change without a reboot.
fn without_immediate(main: &Value) -> Value {
    const MACHINE: [&str; 18] = [
        "ca",
        "acceptedCAs",
        "time",
        "certSANs",
        "install",
        "network",
        "sysfs",
        "sysctls",
        "logging",
        "controlPlane",
        "kubelet",
        "kernel",
        "registries",
        "pods",
        "seccompProfiles",
        "nodeLabels",
        "nodeAnnotations",
        "nodeTaints",
    ];
    const FEATURES: [&str; 5] =
        ["kubernetesTalosAPIAccess", "kubePrism", "hostDNS", "imageCache", "nodeAddressSortAlgorithm"];
    let mut rest = main.clone();
    remove(&mut rest, &["debug", "cluster"]);
    if let Some(machine) = rest.get_mut("machine") {
        remove(machine, &MACHINE);
        if let Some(features) = machine.get_mut("features") {
            remove(features, &FEATURES);
        }
    }
    rest
}

fn remove(object: &mut Value, keys: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        keys.iter().for_each(|key| {
            map.remove(*key);
        });
    }
}

/// Appends a line for every leaf that differs.
fn compare(path: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    if before == after {
        return;
    }
    if let (Value::Object(old), Value::Object(new)) = (before, after) {
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            compare(
                &below,
                old.get(key).unwrap_or(&Value::Null),
                new.get(key).unwrap_or(&Value::Null),
                lines,
            );
        }
        return;
    }
    if !before.is_null() {
        lines.push(format!("-{path}: {}", shown(path, before)));
    }
    if !after.is_null() {
        lines.push(format!("+{path}: {}", shown(path, after)));
    }
}

/// A value as it may be shown: what can hold a secret is hidden.
fn shown(path: &str, value: &Value) -> String {
    const SECRET: [&str; 12] = [
        "token",
        "key",
        "secret",
        "password",
        "auth",
        "passphrase",
        "content",
        "documents",
        "privateKey",
        "Secret",
        "Token",
        "serviceAccount",
    ];
    let last = path.rsplit('.').next().unwrap_or(path);
    let hidden = SECRET.iter().any(|name| last == *name || last.ends_with(name));
    // Lists and maps that appear or go as a whole are not searched; only plain values are shown.
    if hidden || value.is_object() || value.is_array() { "******".to_string() } else { value.to_string() }
}

/// The strict check of the whole text: unknown keys and wrong types first, as Talos' decoder has it.
fn validate(text: &str, version: &str, mode: Mode) -> Result<Vec<String>, ConfigError> {
    let contract = Contract::parse(version).ok();
    let config = MachineConfig::from_yaml(text, contract)
        .map_err(|problems| ConfigError::Parse(decoding(&problems)))?;
    // What only we find fault with, a node takes.
    let problems: Vec<Problem> = butler_talos::validate(&config, mode, contract)
        .into_iter()
        .filter(|problem| problem.source == Source::Talos)
        .collect();
    let (errors, warnings): (Vec<&Problem>, Vec<&Problem>) =
        problems.iter().partition(|problem| problem.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(ConfigError::Invalid(several(&errors)));
    }
    Ok(warnings.iter().map(ToString::to_string).collect())
}

/// In the form in which Talos lists errors.
fn several(errors: &[&Problem]) -> String {
    let noun = if errors.len() == 1 { "error" } else { "errors" };
    let lines: Vec<String> = errors.iter().map(|error| format!("\t* {error}")).collect();
    format!("{} {noun} occurred:\n{}\n\n", errors.len(), lines.join("\n"))
}

/// The words of Talos' decoder. It prints unknown keys with their values; values may be secret, so here they are paths.
fn decoding(problems: &[Problem]) -> String {
    let (unknown, other): (Vec<&Problem>, Vec<&Problem>) =
        problems.iter().partition(|problem| problem.message.starts_with("unknown key"));
    let mut lines: Vec<String> = other.iter().map(ToString::to_string).collect();
    if !unknown.is_empty() {
        lines.push("unknown keys found during decoding:".to_string());
        lines.extend(unknown.iter().map(|problem| problem.path.clone()));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(extra: &str) -> Arc<NodeConfig> {
        NodeConfig::check_lenient(&format!("machine:\n  type: controlplane\n  token: aaa.bbb\n{extra}"))
            .unwrap()
    }

    #[test]
    fn a_document_without_machine_or_cluster_is_partial() {
        let partial = NodeConfig::check(
            "apiVersion: v1alpha1\nkind: SideroLinkConfig\napiUrl: grpc://1.2.3.4",
            "v1.9.2",
            Media::Iso,
        )
        .unwrap();
        assert!(!partial.complete);
        assert!(config("").complete);
    }

    #[test]
    fn a_change_of_network_is_immediate_and_one_of_disks_is_not() {
        let base = config("");
        assert_eq!(base.needs_reboot(&config("  network: {hostname: a}\n")), None);
        let why = base.needs_reboot(&config("  disks: [{device: /dev/sdb}]\n")).unwrap();
        assert!(why.starts_with("this config change can't be applied in immediate mode\ndiff:\n"), "{why}");
        assert!(why.contains("machine.disks"), "{why}");
    }

    #[test]
    fn a_diff_shows_no_secret() {
        let before =
            NodeConfig::check_lenient("machine: {type: worker, token: old-token, sysctls: {a: '1'}}")
                .unwrap();
        let after = NodeConfig::check_lenient("machine: {type: worker, token: new-token, sysctls: {a: '2'}}")
            .unwrap();
        let diff = before.diff(&after);
        assert!(!diff.contains("old-token") && !diff.contains("new-token"), "{diff}");
        assert!(diff.contains("+machine.sysctls.a: \"2\""), "{diff}");
        assert!(!format!("{after:?}").contains("new-token"));
    }

    #[test]
    fn the_version_is_the_tag_of_the_installer() {
        assert_eq!(version_of_image("ghcr.io/x/installer:v1.10.3").as_deref(), Some("v1.10.3"));
        assert_eq!(version_of_image("host:5000/installer:v1.9.2@sha256:aa").as_deref(), Some("v1.9.2"));
        assert_eq!(version_of_image("host:5000/installer"), None);
        assert_eq!(version_of_image("installer:latest"), None);
    }

    #[test]
    fn the_hostname_of_a_document_counts() {
        let text = "machine: {type: worker}\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: w1\nauto: off\n";
        assert_eq!(NodeConfig::check_lenient(text).unwrap().hostname.as_deref(), Some("w1"));
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_refused_with_the_decoders_words() {
        let unknown =
            NodeConfig::check("machine: {type: worker, tokn: s3cret}", "v1.9.2", Media::Iso).unwrap_err();
        assert_eq!(
            unknown,
            ConfigError::Parse("unknown keys found during decoding:\nmachine.tokn".to_string())
        );
        let wrong =
            NodeConfig::check("machine: {type: worker, certSANs: s3cret}", "v1.9.2", Media::Iso).unwrap_err();
        assert!(matches!(&wrong, ConfigError::Parse(why) if !why.contains("s3cret")), "{wrong:?}");
    }

    #[test]
    fn what_talos_itself_checks_is_refused_all_at_once() {
        let text = "machine: {type: worker, install: {disk: /dev/sda}}\ncluster: {}\n";
        let Err(ConfigError::Invalid(why)) = NodeConfig::check(text, "v1.9.2", Media::Iso) else {
            panic!("taken")
        };
        assert!(why.contains("errors occurred:\n\t* "), "{why}");
    }

    #[test]
    fn an_old_talos_reads_no_generic_key() {
        let ca = BASE64.encode("-----BEGIN PRIVATE KEY-----\n");
        let text = format!("machine: {{type: controlplane, ca: {{crt: '', key: {ca}}}}}");
        let config = NodeConfig::check_lenient(&text).unwrap();
        assert!(!config.key_is_readable("v1.9.5"));
        assert!(config.key_is_readable("v1.10.0"));
    }
}
