//! What a simulated project of Google Cloud is started with; also as a part of a file.

use crate::proxmox::Secret;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// A project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GceSite {
    pub project: String,
    /// Regions and their zones.
    pub regions: BTreeMap<String, Vec<String>>,
    pub networks: Vec<SiteNetwork>,
    pub images: Vec<SiteImage>,
    pub accounts: Vec<SiteAccount>,
    /// Limits that differ from the usual ones, by metric.
    pub quotas: BTreeMap<String, f64>,
    /// Operations that are going to end with an error.
    pub failures: Vec<SiteFailure>,
    /// The address that calls from outside come from, as firewall rules see it.
    pub client: IpAddr,
    /// Private addresses are reached from outside too, by a VPN.
    pub vpn: bool,
    /// A metadata server gives tokens of the first account to whoever asks: the caller runs on a machine of the project.
    pub metadata_server: bool,
    /// The key of the first account, as a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
}

/// A network with its subnetworks and firewall rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteNetwork {
    pub name: String,
    /// Name, region and range.
    pub subnetworks: Vec<(String, String, String)>,
    /// As the API takes them.
    #[serde(default)]
    pub firewalls: Vec<Value>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteImage {
    pub project: String,
    pub name: String,
    #[serde(default)]
    pub family: Option<String>,
    #[serde(default = "image_size")]
    pub disk_gb: u64,
    /// The version of Talos on it, if it is a Talos image.
    #[serde(default)]
    pub talos_version: Option<String>,
    /// Nobody should use it any more; a family passes it over.
    #[serde(default)]
    pub deprecated: bool,
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteAccount {
    pub email: String,
    /// Public part of its key: base64 of PKCS #1.
    #[serde(default)]
    pub public_key: String,
    /// A user's own credentials instead: a refresh token.
    #[serde(default)]
    pub refresh_token: Option<Secret>,
    /// Patterns of permissions, with stars.
    #[serde(default = "all")]
    pub permissions: Vec<String>,
    /// Permissions that it lacks all the same.
    #[serde(default)]
    pub lacks: Vec<String>,
    #[serde(default)]
    pub disabled: bool,
}

/// An operation that ends with an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteFailure {
    /// `compute.instances.insert`.
    pub method: String,
    /// Name of the resource, with stars.
    #[serde(default = "star")]
    pub name: String,
    /// `ZONE_RESOURCE_POOL_EXHAUSTED`.
    pub code: String,
    pub message: String,
    #[serde(default = "unavailable")]
    pub status: u16,
    #[serde(default = "once")]
    pub times: u32,
}

/// What is known of a project from a user's own settings.
#[derive(Debug, Clone, Default)]
pub struct GceNames {
    pub project: String,
    pub region: String,
    /// Zones beside the usual a, b and c.
    pub zones: Vec<String>,
    pub network: Option<String>,
    pub subnetwork: Option<String>,
    /// The range of that subnetwork; the one of Google's first region without.
    pub range: Option<String>,
    pub image_project: Option<String>,
    pub image: Option<String>,
    pub image_family: Option<String>,
    pub talos_version: Option<String>,
    /// The account that the machines run as.
    pub service_account: Option<String>,
    /// The user's own key file; without, one is made up.
    pub key: Option<String>,
    /// Private addresses are to be reached from outside.
    pub vpn: bool,
}

fn image_size() -> u64 {
    10
}

fn all() -> Vec<String> {
    vec![star()]
}

fn star() -> String {
    "*".to_string()
}

fn unavailable() -> u16 {
    503
}

fn once() -> u32 {
    1
}

impl Default for GceSite {
    fn default() -> Self {
        Self {
            project: "rehearsal".to_string(),
            regions: BTreeMap::new(),
            networks: Vec::new(),
            images: Vec::new(),
            accounts: Vec::new(),
            quotas: BTreeMap::new(),
            failures: Vec::new(),
            client: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)),
            vpn: false,
            metadata_server: false,
            key: None,
        }
    }
}

impl GceSite {
    /// One region with three zones, the default network, a Talos image with a family, and an account that may do everything.
    #[must_use]
    pub fn example() -> Self {
        Self::for_config(&GceNames {
            project: "rehearsal".to_string(),
            region: "us-central1".to_string(),
            image: Some("talos-v1-9-2".to_string()),
            image_family: Some("talos".to_string()),
            ..GceNames::default()
        })
    }

    /// A project that has what a user's settings name, and room for it.
    #[must_use]
    pub fn for_config(names: &GceNames) -> Self {
        let region = if names.region.is_empty() { "us-central1" } else { &names.region };
        let mut zones: Vec<String> = ["a", "b", "c"].map(|zone| format!("{region}-{zone}")).to_vec();
        for zone in &names.zones {
            if !zones.contains(zone) {
                zones.push(zone.clone());
            }
        }
        let network = last(names.network.as_deref().unwrap_or("default"));
        let subnetwork = last(names.subnetwork.as_deref().unwrap_or(&network));
        let range = names.range.clone().unwrap_or_else(|| "10.128.0.0/20".to_string());
        let version = names.talos_version.clone().unwrap_or_else(|| "v1.9.2".to_string());
        let image_project = names.image_project.clone().unwrap_or_else(|| names.project.clone());
        let image = match (&names.image, &names.image_family) {
            (Some(image), _) => last(image),
            (None, _) => format!("talos-{}", version.replace('.', "-")),
        };
        let (account, key) = match &names.key {
            Some(key) => (account_of(key), Some(Secret::new(key.clone()))),
            None => made_up(&names.project),
        };
        let mut accounts: Vec<SiteAccount> = account.into_iter().collect();
        if let Some(email) = names.service_account.clone()
            && !accounts.iter().any(|known| known.email == email)
        {
            accounts.push(SiteAccount { permissions: Vec::new(), ..SiteAccount::named(email) });
        }
        Self {
            project: names.project.clone(),
            regions: BTreeMap::from([(region.to_string(), zones)]),
            networks: vec![SiteNetwork {
                subnetworks: vec![(subnetwork, region.to_string(), range)],
                firewalls: default_firewalls(&network),
                name: network,
            }],
            images: vec![SiteImage {
                project: image_project,
                name: image,
                family: names.image_family.as_deref().map(last),
                disk_gb: image_size(),
                talos_version: Some(version),
                deprecated: false,
            }],
            accounts,
            vpn: names.vpn,
            key,
            ..Self::default()
        }
    }

    /// The key of the first account, as the file that a user downloads.
    #[must_use]
    pub fn service_account_key(&self) -> Option<&str> {
        self.key.as_ref().map(Secret::reveal)
    }
}

impl SiteAccount {
    /// An account that may do everything and has no key.
    pub(super) fn named(email: String) -> Self {
        Self {
            email,
            public_key: String::new(),
            refresh_token: None,
            permissions: all(),
            lacks: Vec::new(),
            disabled: false,
        }
    }
}

/// The last part of a URL, or the name itself.
fn last(text: &str) -> String {
    text.rsplit('/').next().unwrap_or(text).to_string()
}

/// The rules that come with the default network, and those that the installation guide wants.
fn default_firewalls(network: &str) -> Vec<Value> {
    let link = format!("global/networks/{network}");
    let rule = |name: &str, ranges: Value, allowed: Value| {
        json!({
            "name": format!("{network}-{name}"), "network": link, "direction": "INGRESS", "priority": 65534,
            "sourceRanges": ranges, "allowed": allowed,
        })
    };
    vec![
        rule("allow-internal", json!(["10.128.0.0/9"]), json!([{"IPProtocol": "all"}])),
        rule("allow-icmp", json!(["0.0.0.0/0"]), json!([{"IPProtocol": "icmp"}])),
        rule(
            "allow-talos",
            json!(["0.0.0.0/0"]),
            json!([{"IPProtocol": "tcp", "ports": ["6443", "50000-50001"]}]),
        ),
    ]
}

/// The account of a key file, if it is one.
fn account_of(file: &str) -> Option<SiteAccount> {
    let key: Value = serde_json::from_str(file).ok()?;
    match key["type"].as_str()? {
        "authorized_user" => Some(SiteAccount {
            refresh_token: key["refresh_token"].as_str().map(Secret::new),
            ..SiteAccount::named("user@example.com".to_string())
        }),
        _ => {
            let pem = key["private_key"].as_str()?;
            let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
            let pair = KeyPair::from_pkcs8(&BASE64.decode(body).ok()?).ok()?;
            Some(SiteAccount {
                public_key: BASE64.encode(pair.public_key().as_ref()),
                ..SiteAccount::named(key["client_email"].as_str()?.to_string())
            })
        }
    }
}

/// An account with a new key. Keys are never made from a seed.
fn made_up(project: &str) -> (Option<SiteAccount>, Option<Secret>) {
    let Some((pair, der)) = KeyPair::generate(KeySize::Rsa2048).ok().and_then(|pair| {
        let der: Pkcs8V1Der<'static> = pair.as_der().ok()?;
        Some((pair, der))
    }) else {
        return (None, None);
    };
    let body = BASE64.encode(der.as_ref());
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    let email = format!("butler@{project}.iam.gserviceaccount.com");
    let file = json!({
        "type": "service_account",
        "project_id": project,
        "private_key_id": "5f2c0d3a9b1e4f70a6c8",
        "private_key": format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")),
        "client_email": email,
        "client_id": "104512345678901234567",
        "token_uri": TOKEN_URI,
    });
    let account =
        SiteAccount { public_key: BASE64.encode(pair.public_key().as_ref()), ..SiteAccount::named(email) };
    (Some(account), Some(Secret::new(file.to_string())))
}
