//! Credentials of an infrastructure: from the environment, from a file, or from the bootstrap file itself, in this order.
//!
//! Nothing here has `Debug`, and no message holds a value.

mod aws;
mod gcp;

use super::Surroundings;
use butler_api::Provider;
use butler_drivers::Credentials;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One entry of a credentials Secret and the places that it may come from.
struct Entry {
    /// Key in the Secret.
    key: &'static str,
    /// Field of the block in the bootstrap file.
    field: &'static str,
    /// Environment variables.
    variables: &'static [&'static str],
    /// Whether field and variable name a file that holds the value.
    is_path: bool,
}

/// What was found, and what is wrong with it.
#[derive(Default)]
pub(super) struct Found {
    /// Key of the Secret to its value.
    pub(super) values: BTreeMap<String, String>,
    /// Field of the block, what is wrong, and what to do.
    pub(super) errors: Vec<(String, String, String)>,
    /// Field of the block, what is unwise, and what to do.
    pub(super) warnings: Vec<(String, String, String)>,
}

const fn entry(key: &'static str, field: &'static str, variables: &'static [&'static str]) -> Entry {
    Entry { key, field, variables, is_path: false }
}

const fn path(key: &'static str, field: &'static str, variables: &'static [&'static str]) -> Entry {
    Entry { key, field, variables, is_path: true }
}

/// Every entry of a provider's Secret.
fn entries(provider: Provider) -> &'static [Entry] {
    const HARVESTER: [Entry; 1] = [path("kubeconfig", "kubeconfigPath", &["HARVESTER_KUBECONFIG"])];
    const NUTANIX: [Entry; 2] = [
        entry("username", "username", &["NUTANIX_USER", "NUTANIX_USERNAME"]),
        entry("password", "password", &["NUTANIX_PASSWORD"]),
    ];
    const PROXMOX: [Entry; 4] = [
        entry("token", "token", &["PROXMOX_TOKEN_ID"]),
        entry("tokenSecret", "tokenSecret", &["PROXMOX_TOKEN_SECRET"]),
        entry("username", "username", &["PROXMOX_USERNAME"]),
        entry("password", "password", &["PROXMOX_PASSWORD"]),
    ];
    const GCP: [Entry; 1] =
        [path("serviceAccountKey", "serviceAccountKeyPath", &["GOOGLE_APPLICATION_CREDENTIALS"])];
    const AWS: [Entry; 7] = [
        entry("accessKeyID", "accessKeyID", &["AWS_ACCESS_KEY_ID"]),
        entry("secretAccessKey", "secretAccessKey", &["AWS_SECRET_ACCESS_KEY"]),
        entry("sessionToken", "sessionToken", &["AWS_SESSION_TOKEN"]),
        entry("profile", "profile", &["AWS_PROFILE"]),
        entry("roleARN", "roleARN", &[]),
        entry("externalID", "externalID", &[]),
        entry("roleSessionName", "roleSessionName", &[]),
    ];
    const AZURE: [Entry; 5] = [
        entry("clientID", "clientID", &["AZURE_CLIENT_ID"]),
        entry("clientSecret", "clientSecret", &["AZURE_CLIENT_SECRET"]),
        entry("tenantID", "tenantID", &["AZURE_TENANT_ID"]),
        entry("subscriptionID", "subscriptionID", &["AZURE_SUBSCRIPTION_ID"]),
        entry("securityGroupName", "securityGroupName", &[]),
    ];
    match provider {
        Provider::Harvester => &HARVESTER,
        Provider::Nutanix => &NUTANIX,
        Provider::Proxmox => &PROXMOX,
        Provider::Gcp => &GCP,
        Provider::Aws => &AWS,
        Provider::Azure => &AZURE,
    }
}

/// Sets of keys of which one has to be whole; the first whole one is used.
pub(super) fn sets(provider: Provider) -> &'static [&'static [&'static str]] {
    match provider {
        Provider::Harvester => &[&["kubeconfig"]],
        Provider::Nutanix => &[&["username", "password"]],
        Provider::Proxmox => &[&["token", "tokenSecret"], &["username", "password"]],
        Provider::Gcp => &[&["serviceAccountKey"]],
        Provider::Aws => &[&["accessKeyID", "secretAccessKey"], &["profile"]],
        Provider::Azure => &[&["clientID", "clientSecret", "tenantID", "subscriptionID"]],
    }
}

/// Whether a field of the bootstrap file must never be shown.
pub(super) fn is_secret(path: &str) -> bool {
    const SECRET: [&str; 8] = [
        "password",
        "tokenSecret",
        "secretAccessKey",
        "sessionToken",
        "clientSecret",
        "adminPassword",
        "jwtSecret",
        "apiKey",
    ];
    SECRET.contains(&path.rsplit('.').next().unwrap_or(path))
}

/// Looks everywhere. `block` is the provider's block of the bootstrap file. With `implicit` also where a provider's own tools keep
/// their credentials.
pub(super) fn collect(provider: Provider, block: &Value, around: &Surroundings, implicit: bool) -> Found {
    let mut found = Found::default();
    let from_file = credentials_file(provider, block, around, &mut found);
    match provider {
        Provider::Aws => aws::collect(block, &from_file, around, implicit, &mut found),
        Provider::Gcp => {
            gcp::collect(block, from_file.get("serviceAccountKey"), around, implicit, &mut found)
        }
        _ => plain(provider, block, &from_file, around, &mut found),
    }
    certificate_authority(block, around, &mut found);
    choose(provider, &mut found);
    found
}

/// Each entry from the first place that has it.
fn plain(
    provider: Provider,
    block: &Value,
    from_file: &BTreeMap<String, String>,
    around: &Surroundings,
    found: &mut Found,
) {
    for entry in entries(provider) {
        let variable = entry.variables.iter().find_map(|name| around.variable(name));
        let inline = block.get(entry.field).and_then(Value::as_str).map(ToOwned::to_owned);
        let kept = from_file.get(entry.key).cloned();
        let value = if entry.is_path {
            // A credentials file holds the contents themselves, the others name a file.
            match variable.or(inline.filter(|path| !path.is_empty())) {
                Some(path) => read(entry.field, Path::new(&path), around, found),
                None => kept,
            }
        } else {
            variable.or(kept).or(inline).filter(|value| !value.is_empty())
        };
        if let Some(value) = value {
            found.values.insert(entry.key.to_owned(), value);
        }
    }
}

fn certificate_authority(block: &Value, around: &Surroundings, found: &mut Found) {
    if let Some(path) = block.get("caFile").and_then(Value::as_str).filter(|path| !path.is_empty())
        && let Some(pem) = around.read(Path::new(path), &mut |why| {
            found.errors.push(("caFile".to_owned(), why, "name a file in PEM".to_owned()));
        })
    {
        if pem.contains("-----BEGIN CERTIFICATE-----") {
            found.values.insert("ca.crt".to_owned(), pem);
        } else {
            let why = format!("{path:?}: there is no certificate in PEM in it");
            found.errors.push((
                "caFile".to_owned(),
                why,
                "name a file that begins with -----BEGIN CERTIFICATE-----".to_owned(),
            ));
        }
    }
}

/// Credentials that the environment holds on its own, where they are whole.
pub(crate) fn from_environment(provider: Provider) -> Option<Credentials> {
    let found = collect(provider, &Value::Null, &Surroundings::of(Path::new("environment")), true);
    found.errors.is_empty().then_some(Credentials(found.values))
}

/// Keeps the first whole set; says what is missing when there is none.
fn choose(provider: Provider, found: &mut Found) {
    let whole = sets(provider).iter().find(|set| set.iter().all(|key| found.values.contains_key(*key)));
    if let Some(chosen) = whole {
        let others: Vec<&str> = sets(provider)
            .iter()
            .flat_map(|set| set.iter().copied())
            .filter(|key| !chosen.contains(key))
            .collect();
        found.values.retain(|key, _| !others.contains(&key.as_str()));
        return;
    }
    // Of what is half there, the missing half is named; a file that could not be read was reported already.
    if !found.errors.is_empty() {
        return;
    }
    let nearest = sets(provider)
        .iter()
        .min_by_key(|set| {
            std::cmp::Reverse(set.iter().filter(|key| found.values.contains_key(**key)).count())
        })
        .copied()
        .unwrap_or_default();
    for entry in entries(provider).iter().filter(|entry| nearest.contains(&entry.key)) {
        if !found.values.contains_key(entry.key) {
            let why = format!("{} is missing from the credentials of {provider}", entry.key);
            found.errors.push((entry.field.to_owned(), why, remedy(provider, entry)));
        }
    }
}

fn remedy(provider: Provider, entry: &Entry) -> String {
    let variable = match entry.variables.first() {
        Some(variable) => format!("set the environment variable {variable}, or "),
        None => String::new(),
    };
    let place = format!("providerConfig.{provider}");
    match (entry.is_path, provider) {
        (true, _) => format!("{variable}name the file in {place}.{}", entry.field),
        (false, Provider::Aws) => {
            format!("{variable}name a profile of ~/.aws with AWS_PROFILE or {place}.profile")
        }
        (false, _) => format!("{variable}put it into the file that {place}.credentialsFile names"),
    }
}

/// The credentials file: a YAML mapping, or lines as a shell would take them. Keys are those of the Secret, or the
/// names of the environment variables.
fn credentials_file(
    provider: Provider,
    block: &Value,
    around: &Surroundings,
    found: &mut Found,
) -> BTreeMap<String, String> {
    let Some(path) = block.get("credentialsFile").and_then(Value::as_str).filter(|path| !path.is_empty())
    else {
        return BTreeMap::new();
    };
    let Some(text) = read("credentialsFile", Path::new(path), around, found) else { return BTreeMap::new() };
    let pairs = pairs(&text);
    let mut values = BTreeMap::new();
    for entry in entries(provider) {
        let names = std::iter::once(&entry.key).chain(entry.variables);
        if let Some(value) = names.into_iter().find_map(|name| pairs.get(*name)) {
            values.insert(entry.key.to_owned(), value.clone());
        }
    }
    if values.is_empty() {
        let keys: Vec<&str> = entries(provider).iter().map(|entry| entry.key).collect();
        let why = format!("{path:?}: none of the keys {} is in it", keys.join(", "));
        let help = "write them as `key: value`, one to a line".to_owned();
        found.errors.push(("credentialsFile".to_owned(), why, help));
    }
    values
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    if let Ok(Value::Object(map)) = serde_saphyr::from_str::<Value>(text) {
        let texts = map.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text)),
            Value::Number(number) => Some((key, number.to_string())),
            _ => None,
        });
        return texts.collect();
    }
    let lines = text.lines().map(|line| line.trim().trim_start_matches("export ").trim());
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
        .collect()
}

/// Reads a file of secrets; one that others can read is worth a word.
fn read(field: &str, path: &Path, around: &Surroundings, found: &mut Found) -> Option<String> {
    let text = around.read(path, &mut |why| {
        found.errors.push((field.to_owned(), why, "name a file that can be read".to_owned()));
    })?;
    if let Some(mode) = around.mode(path).filter(|mode| mode & 0o077 != 0) {
        let why = format!(
            "{:?}: other users of this computer can read it (mode {mode:04o})",
            path.display().to_string()
        );
        found.warnings.push((field.to_owned(), why, format!("chmod 600 {}", path.display())));
    }
    Some(text)
}
