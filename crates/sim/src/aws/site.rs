//! An AWS account in one region as data: what is there before the first call. From a user's own names, or the example.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Everything that a simulated account begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsSite {
    pub region: String,
    /// Twelve digits.
    pub account: String,
    /// Where the APIs answer.
    pub address: IpAddr,
    /// The address that calls and connections from outside come from.
    pub client: IpAddr,
    /// The address that machines without a public one reach the internet by.
    pub nat: IpAddr,
    pub keys: Vec<SiteKey>,
    pub roles: Vec<SiteRole>,
    /// Actions that nobody may call: `ec2:RunInstances`, `elasticloadbalancing:*`.
    pub denied: Vec<String>,
    pub vpcs: Vec<SiteVpc>,
    pub subnets: Vec<SiteSubnet>,
    pub groups: Vec<SiteGroup>,
    pub images: Vec<SiteAmi>,
    pub quotas: AwsQuotas,
}

/// An access key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteKey {
    pub id: String,
    pub secret: AwsSecret,
    /// Temporary keys have one.
    #[serde(default)]
    pub session_token: Option<AwsSecret>,
    /// Seconds since 1970 from when on a temporary key is refused.
    #[serde(default)]
    pub expires: Option<u64>,
    /// The name of its user.
    #[serde(default = "butler")]
    pub user: String,
}

/// A role that the keys may take.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRole {
    pub arn: String,
    #[serde(default)]
    pub external_id: Option<String>,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteVpc {
    pub id: String,
    /// `10.0.0.0/16`
    pub cidr: String,
}

/// A part of a network, in one zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSubnet {
    pub id: String,
    pub vpc: String,
    /// `eu-central-1a`
    pub zone: String,
    pub cidr: String,
    /// Whether its machines get public addresses, and the internet reaches it.
    #[serde(default = "yes")]
    pub public: bool,
    /// How many addresses are left in it; all that the size gives, without.
    #[serde(default)]
    pub free: Option<u32>,
}

/// A security group of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteGroup {
    pub id: String,
    pub name: String,
    pub vpc: String,
    /// Ports or a range of them, and where from: an address range or another group.
    #[serde(default)]
    pub ingress: Vec<SiteRule>,
}

/// What a security group lets in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRule {
    /// `tcp`, `udp`, `icmp`, or `-1` for everything.
    pub protocol: String,
    #[serde(default)]
    pub from: u16,
    #[serde(default)]
    pub to: u16,
    /// `0.0.0.0/0`, or the id of a group.
    pub source: String,
}

/// A machine image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteAmi {
    pub id: String,
    pub name: String,
    /// Account of its owner.
    #[serde(default = "sidero")]
    pub owner: String,
    #[serde(default = "amd64")]
    pub architecture: String,
    #[serde(default = "talos")]
    pub talos_version: String,
    /// In GiB.
    #[serde(default = "image_size")]
    pub size: u32,
}

/// What an account may have of things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsQuotas {
    /// Virtual CPUs of all running instances.
    pub vcpus: u32,
    pub network_load_balancers: u32,
    pub target_groups: u32,
    pub listeners_per_load_balancer: u32,
    pub security_groups: u32,
    pub rules_per_security_group: u32,
}

/// A secret key or token: never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AwsSecret(String);

/// What is known of an account from a user's own settings.
#[derive(Debug, Clone, Default)]
pub struct AwsNames {
    pub region: String,
    pub vpc: Option<String>,
    /// Of the machines.
    pub subnets: Vec<String>,
    /// Of the load balancer, where they are others.
    pub balancer_subnets: Vec<String>,
    pub groups: Vec<String>,
    /// Whether machines are of ARM's kind.
    pub arm: bool,
    /// Images by id.
    pub image_ids: Vec<String>,
    /// Images by owner and name.
    pub image_names: Vec<(String, String)>,
    pub talos_version: Option<String>,
    pub access_key: String,
    pub secret_key: String,
    pub session_token: Option<String>,
    /// A role that is to be taken.
    pub role: Option<String>,
    pub external_id: Option<String>,
    /// Address ranges of those who may reach the load balancer: one of them becomes the client's.
    pub admin_cidrs: Vec<String>,
}

fn yes() -> bool {
    true
}

fn butler() -> String {
    "butler".to_string()
}

/// The account that publishes Talos' images.
fn sidero() -> String {
    "540036508848".to_string()
}

fn amd64() -> String {
    "x86_64".to_string()
}

fn talos() -> String {
    "v1.9.2".to_string()
}

fn image_size() -> u32 {
    8
}

impl AwsSecret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub(super) fn is(&self, value: &str) -> bool {
        self.0 == value
    }

    /// For the signature.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AwsSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsSecret(...)")
    }
}

impl Default for AwsQuotas {
    /// The vendor's defaults for a new account, but for the CPUs, of which a new one has next to none.
    fn default() -> Self {
        Self {
            vcpus: 128,
            network_load_balancers: 50,
            target_groups: 3000,
            listeners_per_load_balancer: 50,
            security_groups: 2500,
            rules_per_security_group: 60,
        }
    }
}

impl Default for AwsSite {
    fn default() -> Self {
        Self::example()
    }
}

impl AwsSite {
    /// One network with three public subnets in three zones, a security group for machines, and a Talos image.
    #[must_use]
    pub fn example() -> Self {
        Self::for_config(&AwsNames {
            region: "eu-central-1".to_string(),
            vpc: Some("vpc-0f6a1c2d3e4b50617".to_string()),
            subnets: ["subnet-0a11c2d3e4f50617a", "subnet-0b22c2d3e4f50617b", "subnet-0c33c2d3e4f50617c"]
                .map(ToString::to_string)
                .to_vec(),
            groups: vec!["sg-0d44c2d3e4f50617d".to_string()],
            image_ids: vec!["ami-0e55c2d3e4f50617e".to_string()],
            access_key: "AKIAREHEARSALEXAMPLE".to_string(),
            secret_key: "rehearsal/secret+of+nobody/0123456789abc".to_string(),
            ..AwsNames::default()
        })
    }

    /// An account that has what a user's settings name, and room for it.
    #[must_use]
    pub fn for_config(names: &AwsNames) -> Self {
        let region = if names.region.is_empty() { "us-east-1".to_string() } else { names.region.clone() };
        let account = "123456789012".to_string();
        let vpc = names.vpc.clone().unwrap_or_else(|| "vpc-0f6a1c2d3e4b50617".to_string());
        let wanted = if names.subnets.is_empty() {
            vec!["subnet-0a11c2d3e4f50617a".to_string()]
        } else {
            names.subnets.clone()
        };
        let subnets = subnets_of(&wanted, &names.balancer_subnets, &vpc, &region);
        let groups = names.groups.iter().enumerate();
        let groups = groups.map(|(at, id)| SiteGroup::for_nodes(id, &format!("talos-nodes-{at}"), &vpc));
        let version = names.talos_version.clone().unwrap_or_else(talos);
        Self {
            client: client_of(&names.admin_cidrs),
            nat: IpAddr::V4(Ipv4Addr::new(3, 66, 0, 1)),
            address: IpAddr::V4(Ipv4Addr::new(52, 94, 10, 1)),
            keys: vec![SiteKey {
                id: names.access_key.clone(),
                secret: AwsSecret::new(&names.secret_key),
                session_token: names.session_token.as_ref().map(AwsSecret::new),
                expires: None,
                user: butler(),
            }],
            roles: names
                .role
                .iter()
                .map(|arn| SiteRole { arn: arn.clone(), external_id: names.external_id.clone() })
                .collect(),
            denied: Vec::new(),
            vpcs: vec![SiteVpc { id: vpc.clone(), cidr: "10.0.0.0/16".to_string() }],
            subnets,
            groups: groups.collect(),
            images: images_of(names, &version, &region),
            quotas: AwsQuotas::default(),
            region,
            account,
        }
    }
}

impl SiteGroup {
    /// What the guide asks for: every port that nodes use among themselves and that their users reach them by.
    #[must_use]
    pub fn for_nodes(id: &str, name: &str, vpc: &str) -> Self {
        let rule = |protocol: &str, from: u16, to: u16| SiteRule {
            protocol: protocol.to_string(),
            from,
            to,
            source: "0.0.0.0/0".to_string(),
        };
        let ingress = vec![
            rule("tcp", 6443, 6443),
            rule("tcp", 50000, 50001),
            rule("tcp", 2379, 2380),
            rule("tcp", 10250, 10250),
            rule("tcp", 4240, 4240),
            rule("udp", 8472, 8472),
        ];
        Self { id: id.to_string(), name: name.to_string(), vpc: vpc.to_string(), ingress }
    }
}

/// Each list goes through the zones by itself: the balancer has to be where the machines are.
fn subnets_of(machines: &[String], balancer: &[String], vpc: &str, region: &str) -> Vec<SiteSubnet> {
    let zone = |at: usize| char::from(b'a' + u8::try_from(at % 3).unwrap_or_default());
    let more = balancer.iter().enumerate().filter(|(_, id)| !machines.contains(id));
    let all = machines.iter().enumerate().chain(more);
    all.enumerate()
        .map(|(number, (at, id))| SiteSubnet {
            id: id.clone(),
            vpc: vpc.to_string(),
            zone: format!("{region}{}", zone(at)),
            cidr: format!("10.0.{}.0/24", number + 1),
            public: true,
            free: None,
        })
        .collect()
}

/// An address within the first range that is narrower than everything.
fn client_of(cidrs: &[String]) -> IpAddr {
    let narrow = cidrs.iter().find_map(|cidr| {
        let (address, bits) = cidr.split_once('/')?;
        (bits != "0").then(|| address.parse().ok()).flatten()
    });
    narrow.unwrap_or(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)))
}

fn images_of(names: &AwsNames, version: &str, region: &str) -> Vec<SiteAmi> {
    let named = format!("talos-{version}-{region}-amd64");
    let image = |id: String, name: String, owner: String| SiteAmi {
        id,
        name,
        owner,
        architecture: if names.arm { "arm64".to_string() } else { amd64() },
        talos_version: version.to_string(),
        size: image_size(),
    };
    let mut images: Vec<SiteAmi> =
        names.image_ids.iter().map(|id| image(id.clone(), named.clone(), sidero())).collect();
    for (at, (owner, pattern)) in names.image_names.iter().enumerate() {
        let owner =
            if owner.is_empty() || owner == "self" { "123456789012".to_string() } else { owner.clone() };
        images.push(image(format!("ami-0e55c2d3e4f5061{at:02x}"), pattern.replace('*', "1"), owner));
    }
    if images.is_empty() {
        images.push(image("ami-0e55c2d3e4f50617e".to_string(), named, sidero()));
    }
    images
}
