//! ProviderConfig: how an infrastructure is reached, and where on it things go.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{Reason, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Provider, SecretReference};
use crate::conditions::Condition;
use crate::tenancy::{ProviderLimits, ProviderNetwork, ProviderScope};

/// An infrastructure and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "butler.butlerlabs.dev",
    version = "v1alpha1",
    kind = "ProviderConfig",
    namespaced,
    shortname = "pc",
    category = "butler",
    status = "ProviderConfigStatus",
    derive = "PartialEq",
    doc = "A ProviderConfig says how an infrastructure is reached and where on it machines, load balancers and images go.",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Scope", type_ = "string", json_path = ".spec.scope.type"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Validated", type_ = "boolean", json_path = ".status.validated"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = block_rule("harvester"),
    validation = block_rule("nutanix"),
    validation = block_rule("proxmox"),
    validation = block_rule("gcp"),
    validation = block_rule("aws"),
    validation = block_rule("azure"),
)]
#[serde(rename_all = "camelCase")]
pub struct ProviderConfigSpec {
    /// The infrastructure: harvester, nutanix, proxmox, gcp, aws or azure. The block of that name must be there.
    pub provider: Provider,
    /// Secret with the credentials. Keys: kubeconfig (harvester); username, password (nutanix); username, password or
    /// token, tokenSecret (proxmox); serviceAccountKey, which is a key file, or any other application-default credentials, or
    /// the word metadata (gcp); accessKeyID, secretAccessKey and optionally sessionToken, or profile with the files credentials
    /// and config, each optionally with roleARN, externalID and roleSessionName (aws); clientID, clientSecret, tenantID,
    /// subscriptionID and optionally securityGroupName (azure).
    pub credentials_ref: SecretReference,
    /// Settings for Harvester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harvester: Option<HarvesterConfig>,
    /// Settings for Nutanix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<NutanixConfig>,
    /// Settings for Proxmox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxmox: Option<ProxmoxConfig>,
    /// Settings for Google Cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpConfig>,
    /// Settings for AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsConfig>,
    /// Settings for Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureConfig>,
    /// Who may use this configuration after the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ProviderScope>,
    /// Addresses for tenant clusters after the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<ProviderNetwork>,
    /// Limits for tenant clusters after the bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProviderLimits>,
}

/// Settings for Harvester.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HarvesterConfig {
    /// URL of the API. Default: the server in the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Namespace that machines are made in. Default: default.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Network of the machines, as namespace/name.
    #[schemars(regex(pattern = "^[a-z0-9-]+/[a-z0-9-]+$"))]
    pub network_name: String,
    /// Boot image, as namespace/name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    /// Storage class of the disks. Default: that of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// Settings for Nutanix.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NutanixConfig {
    /// URL of Prism Central, with http or https.
    #[schemars(regex(pattern = "^https?://"))]
    pub endpoint: String,
    /// Port of Prism Central. Default: 9440.
    #[serde(default = "prism_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Do not check the server's certificate. Default: false.
    #[serde(default)]
    pub insecure: bool,
    /// UUID of the cluster that machines are made on.
    #[serde(rename = "clusterUUID")]
    pub cluster_uuid: String,
    /// UUID of the machines' subnet.
    #[serde(rename = "subnetUUID")]
    pub subnet_uuid: String,
    /// UUID of the boot image.
    #[serde(default, rename = "imageUUID", skip_serializing_if = "Option::is_none")]
    pub image_uuid: Option<String>,
    /// UUID of the storage container of the disks. Default: the cluster's own.
    #[serde(default, rename = "storageContainerUUID", skip_serializing_if = "Option::is_none")]
    pub storage_container_uuid: Option<String>,
}

/// Settings for Proxmox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxConfig {
    /// URL of the API, with http or https.
    #[schemars(regex(pattern = "^https?://"))]
    pub endpoint: String,
    /// Do not check the server's certificate. Default: false.
    #[serde(default)]
    pub insecure: bool,
    /// Nodes that machines are spread over, at least one.
    #[schemars(length(min = 1))]
    pub nodes: Vec<String>,
    /// Storage of the disks.
    pub storage: String,
    /// Id of the template that machines are cloned from.
    #[serde(default, rename = "templateID", skip_serializing_if = "Option::is_none")]
    pub template_id: Option<i32>,
    /// Ids that machines may take. What is used when this is not set: whatever the cluster says is free.
    #[serde(default, rename = "vmidRange", skip_serializing_if = "Option::is_none")]
    pub vmid_range: Option<VmidRange>,
    /// Bridge that the machines' network cards are on. What is used when this is not set: vmbr0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub bridge: Option<String>,
    /// VLAN tag of the machines' network cards, 1 to 4094. Default: untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<i32>,
    /// Storage that downloaded images go to; it has to take content of type import. What is used when this is not set:
    /// local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image_storage: Option<String>,
}

/// A range of Proxmox machine ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmidRange {
    /// First id, at least 100.
    #[schemars(range(min = 100))]
    pub start: i32,
    /// Last id, at least 100.
    #[schemars(range(min = 100))]
    pub end: i32,
}

/// Settings for Azure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureConfig {
    /// Id of the subscription.
    #[serde(rename = "subscriptionID")]
    pub subscription_id: String,
    /// Resource group that everything is made in.
    pub resource_group: String,
    /// Region. Default: that of the resource group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Virtual network of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vnet_name: Option<String>,
    /// Subnet of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_name: Option<String>,
    /// Size of the machines. Default: one that has the CPUs and memory of the node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_size: Option<String>,
    /// Boot image: publisher:offer:sku:version, or the id of a managed image or of a gallery image version.
    #[serde(default, rename = "imageURN", skip_serializing_if = "Option::is_none")]
    pub image_urn: Option<String>,
}

/// Settings for AWS.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsConfig {
    /// Region.
    pub region: String,
    /// VPC of machines and load balancer.
    #[serde(default, rename = "vpcID", skip_serializing_if = "Option::is_none")]
    pub vpc_id: Option<String>,
    /// Subnets, best one in each zone: the machines of a role are spread over them in this order, and the load balancer is in
    /// all of them.
    #[serde(default, rename = "subnetIDs", skip_serializing_if = "Vec::is_empty")]
    pub subnet_ids: Vec<String>,
    /// Subnets of the load balancer, where they are not those of the machines. They must be in the same zones.
    #[serde(default, rename = "loadBalancerSubnetIDs", skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_subnet_ids: Vec<String>,
    /// Security groups of the machines. What is used when there are none: the VPC's default group.
    #[serde(default, rename = "securityGroupIDs", skip_serializing_if = "Vec::is_empty")]
    pub security_group_ids: Vec<String>,
    /// Instance type. Default: the smallest one that has the CPUs and memory of the node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Boot image: an AMI id, or a name that is looked for among the images of amiOwner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami: Option<String>,
    /// Account whose images are looked through by name. What is used when this is not set: the own account, and that of the
    /// makers of Talos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_owner: Option<String>,
    /// Whether machines get a public address. What is used when this is not set: true.
    #[serde(default, rename = "publicIP", skip_serializing_if = "Option::is_none")]
    pub public_ip: Option<bool>,
    /// Name or ARN of the instance profile of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Type of the machines' volumes. What is used when this is not set: gp3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
    /// Whether volumes are encrypted, with the account's default key. What is used when this is not set: what the account's
    /// settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypt_volumes: Option<bool>,
}

/// Settings for Google Cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcpConfig {
    /// Id of the project.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// Region.
    pub region: String,
    /// The one zone of all machines. What is used when neither this nor zones is set: all zones of the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Zones that machines are spread over, by the number in their names; wins over zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Network of the machines, by its name, or as projects/.../global/networks/... What is used when this is not set:
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Subnetwork of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<String>,
    /// Machine type. Default: a custom one with the CPUs and memory of the node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// Project of the boot image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_project: Option<String>,
    /// Family of the boot image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_family: Option<String>,
    /// Boot image; wins over imageFamily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Service account of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Network tags of the machines, beside the cluster's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Type of the disks, such as pd-ssd. What is used when this is not set: pd-balanced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_type: Option<String>,
    /// Whether machines get an external address. Without one, the network has to give them a way out, and whoever runs
    /// the bootstrap has to reach their internal addresses. Default: true.
    #[serde(default = "yes")]
    pub external_address: bool,
    /// Whether machines may send and receive packets with addresses that are not theirs. Default: false.
    #[serde(default, rename = "canIPForward")]
    pub can_ip_forward: bool,
    /// Whether the load balancer comes with firewall rules of its own, for its clients and for Google's health checks.
    /// Default: true.
    #[serde(default = "yes")]
    pub firewall_rules: bool,
}

/// What is known of the infrastructure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderConfigStatus {
    /// Observations about the infrastructure: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
    /// Whether the credentials were accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validated: Option<bool>,
    /// When the credentials were last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_validation_time: Option<Time>,
    /// Version that the infrastructure reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_version: Option<String>,
    /// Whether it can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// When it was last asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// What is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ProviderCapacity>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What is left of an infrastructure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderCapacity {
    /// Free addresses in the pools.
    #[serde(default, rename = "availableIPs", skip_serializing_if = "Option::is_none")]
    pub available_ips: Option<i32>,
    /// Tenant clusters that fit into them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_tenants: Option<i32>,
}

impl ProxmoxConfig {
    /// Bridge of the machines' network cards.
    pub fn bridge(&self) -> &str {
        self.bridge.as_deref().unwrap_or("vmbr0")
    }

    /// Storage of downloaded images.
    pub fn image_storage(&self) -> &str {
        self.image_storage.as_deref().unwrap_or("local")
    }
}

impl ProviderConfigSpec {
    /// Whether the settings of an infrastructure are there.
    pub fn has_block(&self, provider: Provider) -> bool {
        match provider {
            Provider::Harvester => self.harvester.is_some(),
            Provider::Nutanix => self.nutanix.is_some(),
            Provider::Proxmox => self.proxmox.is_some(),
            Provider::Gcp => self.gcp.is_some(),
            Provider::Aws => self.aws.is_some(),
            Provider::Azure => self.azure.is_some(),
        }
    }
}

/// The rule that `provider` brings its block along.
fn block_rule(name: &str) -> Rule {
    Rule::new(format!("self.provider != '{name}' || has(self.{name})"))
        .message(format!("the block {name} is required when provider is {name}").as_str())
        .field_path(format!(".{name}"))
        .reason(Reason::FieldValueRequired)
}

fn default_namespace() -> String {
    "default".to_owned()
}

fn yes() -> bool {
    true
}

fn prism_port() -> i32 {
    9440
}
