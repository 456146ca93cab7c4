//! The schema of a bootstrap file: made of the schemas of our own kinds, so that whatever an object can say, the file can say
//! too, with the same limits and the same words of help; plus what only the file knows.

use anyhow::{Context as _, Result, anyhow};
use butler_api::Provider;
use butler_apiserver::schema::{self, Schema};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The schemas that a bootstrap file is checked and translated with.
pub(crate) struct Schemas {
    /// Of the file.
    pub(crate) file: Arc<Schema>,
    /// Of a ClusterBootstrap.
    pub(crate) bootstrap: Arc<Schema>,
    /// Of a ProviderConfig.
    pub(crate) provider: Arc<Schema>,
}

/// Talos when the file names no version.
pub(crate) const TALOS_VERSION: &str = "v1.12.1";
/// The schematic with the guest agent, iSCSI and util-linux tools, which Longhorn and address reports need.
pub(crate) const SCHEMATIC: &str = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515";

impl Schemas {
    pub(crate) fn new() -> Result<Schemas> {
        let bootstrap = open_api("ClusterBootstrap")?;
        let provider = open_api("ProviderConfig")?;
        Ok(Schemas {
            file: parse("the bootstrap file", &file(&bootstrap, &provider))?,
            bootstrap: parse("ClusterBootstrap", &bootstrap)?,
            provider: parse("ProviderConfig", &provider)?,
        })
    }
}

fn parse(what: &str, open_api: &Value) -> Result<Arc<Schema>> {
    schema::parse(open_api).map_err(|errors| {
        let list = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        anyhow!("the schema of {what} is wrong: {list}")
    })
}

/// The schema in the CRD of a kind.
fn open_api(kind: &str) -> Result<Value> {
    let crd = butler_api::crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .with_context(|| format!("there is no CRD of {kind}"))?;
    let crd = serde_json::to_value(&crd)?;
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().context("a CRD without a schema")
}

/// The file: a ClusterBootstrap's spec without the reference to a ProviderConfig, and the ProviderConfig's settings.
fn file(bootstrap: &Value, provider: &Value) -> Value {
    let of = |root: &Value, field: &str| root["properties"]["spec"]["properties"][field].clone();
    let mut network = of(bootstrap, "network");
    optional(&mut network, &["podCIDR", "serviceCIDR"]);
    network["properties"]["podCIDR"]["default"] = "10.244.0.0/16".into();
    network["properties"]["serviceCIDR"]["default"] = "10.96.0.0/12".into();
    // The schema of the object refuses an empty text less kindly than the checks across fields do.
    add(&mut network, network_fields(&of(provider, "network")));
    let mut talos = of(bootstrap, "talos");
    optional(&mut talos, &["version", "schematic"]);
    talos["properties"]["version"]["default"] = TALOS_VERSION.into();
    talos["properties"]["schematic"]["default"] = SCHEMATIC.into();
    add(&mut talos, json!({"timeServers": list("Time servers of the nodes, instead of Talos' own.")}));
    let mut cluster = of(bootstrap, "cluster");
    cluster["properties"]["workers"]["properties"]["replicas"]["minimum"] = 0.into();
    cluster["properties"]["workers"]["properties"]["replicas"]["description"] =
        "Number of nodes, 0 to 10. 0 means no workers.".into();
    let mut addons = of(bootstrap, "addons");
    add(
        &mut addons["properties"]["loadBalancer"],
        json!({"addressPool": text("Old form of network.loadBalancerPool, as first-last. The new form wins.")}),
    );
    add(&mut addons["properties"]["console"], json!({"auth": console_auth()}));
    for (part, default) in [(&mut network, json!({})), (&mut talos, json!({}))] {
        part["default"] = default;
    }
    let properties = json!({
        "provider": of(bootstrap, "provider"),
        "cluster": cluster, "network": network, "talos": talos, "addons": addons,
        "controlPlaneLoadBalancer": of(bootstrap, "controlPlaneLoadBalancer"),
        "controlPlaneExposure": of(bootstrap, "controlPlaneExposure"),
        "paused": of(bootstrap, "paused"),
        "providerConfig": provider_blocks(provider),
        "providerNetwork": of(provider, "network"),
        "multiTenancyMode": {"type": "string", "enum": ["Enforced", "Optional", "Disabled"],
            "description": "How teams are kept apart on the new cluster: Enforced, Optional or Disabled."},
        "networkPool": network_pool(),
        "imageFactory": image_factory(),
        "proxy": text("HTTP proxy that the infrastructure, the nodes and the new cluster are reached through: \
            http://host:port. Default: none."),
    });
    json!({"type": "object", "required": ["provider", "cluster", "providerConfig"], "properties": properties})
}

fn network_fields(provider_network: &Value) -> Value {
    let mut fields = json!({
        "mtu": {"type": "integer", "minimum": 576, "maximum": 9000,
            "description": "Largest packet of the nodes' network, 576 to 9000; above 1500 only with jumboFrames. Default: as the network has it."},
        "jumboFrames": {"type": "boolean", "description": "Says that an mtu above 1500 is meant. Default: false."},
    });
    let addresses = &provider_network["properties"]["nodeAddresses"];
    if addresses.is_object() {
        fields["nodeAddresses"] = addresses.clone();
    }
    fields
}

fn console_auth() -> Value {
    json!({"type": "object", "description": "Taken for compatibility, not used: the console makes its own secrets.",
        "properties": {"adminPassword": text("Not used."), "jwtSecret": text("Not used.")}})
}

fn image_factory() -> Value {
    json!({
        "type": "object", "required": ["url"],
        "description": "Where boot images come from. Without it, images must be on the infrastructure already.",
        "properties": {
            "url": {"type": "string", "pattern": "^https?://", "description": "URL of the image factory, with http or https."},
            "apiKey": text("Refused: the infrastructure fetches images itself and can't send a key."),
            "sha256": {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$",
                "description": "SHA-256 of the boot image, 64 hexadecimal digits; the infrastructure checks what it has fetched. Default: not checked."},
            "autoSync": {"type": "boolean", "default": true, "description": "Bring images to the infrastructure without being asked. Default: true."},
        },
    })
}

fn network_pool() -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "description": "Address pool of tenant clusters. Taken for compatibility, not used by the bootstrap.",
    })
}

/// The settings of all infrastructures, with what is in the file only: credentials, and other spellings.
fn provider_blocks(provider: &Value) -> Value {
    let mut blocks = Map::new();
    for name in Provider::ALL {
        let mut block = provider["properties"]["spec"]["properties"][name.as_str()].clone();
        add(
            &mut block,
            json!({
                "credentialsFile": text("File with the credentials, as `key: value` or `KEY=value` lines; relative to this file."),
                "caFile": text("File with the certificate authority of the endpoint, in PEM; relative to this file."),
                "hostAliases": list("Names in place of a look-up, each as `address name...`."),
            }),
        );
        add(&mut block, block_fields(name));
        match name {
            Provider::Azure => optional(&mut block, &["subscriptionID"]),
            Provider::Nutanix | Provider::Proxmox => drop_pattern(&mut block, "endpoint"),
            _ => {}
        }
        block["description"] = format!("Settings and credentials for {name}.").into();
        blocks.insert(name.to_string(), block);
    }
    json!({"type": "object", "description": "Settings of the infrastructure: one block, named like the provider.",
        "properties": blocks})
}

/// What a block has beside the fields of the ProviderConfig.
fn block_fields(provider: Provider) -> Value {
    match provider {
        Provider::Harvester => {
            json!({"kubeconfigPath": text("Kubeconfig of Harvester. Also: HARVESTER_KUBECONFIG.")})
        }
        Provider::Nutanix => json!({
            "username": text("User of Prism Central. Also: NUTANIX_USER."),
            "password": text("Password of that user. Also: NUTANIX_PASSWORD."),
        }),
        Provider::Proxmox => json!({
            "token": text("API token's id, as user@realm!name. Also: PROXMOX_TOKEN_ID."),
            "tokenSecret": text("API token's secret. Also: PROXMOX_TOKEN_SECRET."),
            "username": text("User with realm, such as root@pam, in place of a token. Also: PROXMOX_USERNAME."),
            "password": text("Password of that user. Also: PROXMOX_PASSWORD."),
            "vmidStart": number("First machine id, at least 100; the short form of vmidRange.start."),
            "vmidEnd": number("Last machine id; the short form of vmidRange.end."),
        }),
        Provider::Gcp => json!({
            "serviceAccountKeyPath": text("Key file of the service account, or other application-default credentials; the word metadata \
                takes those of the machine that this runs on. Also: GOOGLE_APPLICATION_CREDENTIALS. Default: what gcloud has written."),
        }),
        Provider::Aws => json!({
            "accessKeyID": text("Access key. Also: AWS_ACCESS_KEY_ID."),
            "secretAccessKey": text("Secret of the access key. Also: AWS_SECRET_ACCESS_KEY."),
            "sessionToken": text("Token that goes with temporary keys. Also: AWS_SESSION_TOKEN."),
            "profile": text("Profile of ~/.aws/credentials and ~/.aws/config, in place of keys. Also: AWS_PROFILE. Default: default."),
            "roleARN": text("Role that is taken on with the keys or the profile."),
            "externalID": text("What the role asks for beside."),
            "roleSessionName": text("How the session of the role is called. Default: butler."),
            "subnetID": text("The one subnet; the short form of subnetIDs."),
            "securityGroupID": text("The one security group; the short form of securityGroupIDs."),
        }),
        Provider::Azure => json!({
            "clientID": text("Application id of the service principal. Also: AZURE_CLIENT_ID."),
            "clientSecret": text("Its secret. Also: AZURE_CLIENT_SECRET."),
            "tenantID": text("Its directory. Also: AZURE_TENANT_ID."),
            "securityGroupName": text("Network security group of the nodes; the cloud controller needs it."),
        }),
    }
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "minimum": 100, "description": description})
}

fn list(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "description": description})
}

/// Adds fields; those that the kind has already stay as they are.
fn add(object: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { return };
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (name, field) in fields {
            properties.entry(name).or_insert(field);
        }
    }
}

/// Makes fields optional.
fn optional(object: &mut Value, names: &[&str]) {
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|field| !names.iter().any(|name| field == name));
        if required.is_empty()
            && let Value::Object(object) = object
        {
            object.remove("required");
        }
    }
}

fn drop_pattern(object: &mut Value, field: &str) {
    if let Some(Value::Object(field)) = object.pointer_mut(&format!("/properties/{field}")) {
        field.remove("pattern");
    }
}
