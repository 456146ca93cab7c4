//! From the contents of a bootstrap file to objects, as JSON. What the kinds do not know is left out.

use super::schema::Schemas;
use butler_api::{Provider, names};
use butler_apiserver::schema;
use serde_json::{Map, Value, json};

/// Name of the Secret with a cluster's credentials.
fn credentials_name(cluster: &str, provider: Provider) -> String {
    format!("{cluster}-{provider}-credentials")
}

/// Name of a cluster's ProviderConfig.
fn provider_name(cluster: &str) -> String {
    format!("{cluster}-provider")
}

/// The ClusterBootstrap.
pub(super) fn bootstrap(schemas: &Schemas, file: &Value, cluster: &str) -> Value {
    let mut spec = Map::new();
    spec.insert(
        "providerRef".to_owned(),
        json!({"name": provider_name(cluster), "namespace": names::SYSTEM_NAMESPACE}),
    );
    for field in [
        "provider",
        "cluster",
        "network",
        "talos",
        "addons",
        "controlPlaneLoadBalancer",
        "controlPlaneExposure",
        "paused",
    ] {
        if let Some(value) = file.get(field).filter(|value| !value.is_null()) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    let mut object = object("ClusterBootstrap", cluster, cluster, Value::Object(spec));
    shorten(&mut object["spec"], file);
    schema::prune(&schemas.bootstrap, &mut object);
    schema::apply_defaults(&schemas.bootstrap, &mut object);
    object
}

/// Forms that only the file has.
fn shorten(spec: &mut Value, file: &Value) {
    // A pool of no workers is no pool.
    if spec["cluster"]["workers"]["replicas"] == json!(0)
        && let Some(Value::Object(cluster)) = spec.get_mut("cluster")
    {
        cluster.remove("workers");
    }
    if spec["network"]["loadBalancerPool"].is_null()
        && let Some((start, end)) = old_pool(file)
    {
        spec["network"]["loadBalancerPool"] = json!({"start": start, "end": end});
    }
}

/// The pool in its old form, `first-last`.
pub(super) fn old_pool(file: &Value) -> Option<(String, String)> {
    let text = file.pointer("/addons/loadBalancer/addressPool")?.as_str()?;
    let (start, end) = text.split_once('-')?;
    Some((start.trim().to_owned(), end.trim().to_owned()))
}

/// The ProviderConfig.
pub(super) fn provider_config(schemas: &Schemas, file: &Value, cluster: &str, provider: Provider) -> Value {
    let mut block =
        file.pointer(&format!("/providerConfig/{provider}")).cloned().unwrap_or_else(|| json!({}));
    respell(provider, &mut block);
    let mut spec = json!({
        "provider": provider,
        "credentialsRef": {"name": credentials_name(cluster, provider), "namespace": names::SYSTEM_NAMESPACE},
        provider.as_str(): block,
    });
    let mut network = file.get("providerNetwork").cloned().unwrap_or(Value::Null);
    let shared = [
        ("nodeAddresses", file.pointer("/network/nodeAddresses")),
        ("timeServers", file.pointer("/talos/timeServers")),
    ];
    for (field, value) in shared {
        if let Some(value) = value.filter(|value| !value.is_null())
            && network.get(field).is_none_or(Value::is_null)
        {
            network[field] = value.clone();
        }
    }
    if !network.is_null() {
        spec["network"] = network;
    }
    let mut object = object("ProviderConfig", &provider_name(cluster), cluster, spec);
    schema::prune(&schemas.provider, &mut object);
    schema::apply_defaults(&schemas.provider, &mut object);
    object
}

/// Short forms of the file in the long form of the object.
fn respell(provider: Provider, block: &mut Value) {
    match provider {
        Provider::Proxmox => {
            if block["vmidRange"].is_null() && (!block["vmidStart"].is_null() || !block["vmidEnd"].is_null())
            {
                let start = block["vmidStart"].as_i64().unwrap_or(100);
                let end = block["vmidEnd"].as_i64().unwrap_or(999_999_999);
                block["vmidRange"] = json!({"start": start, "end": end});
            }
            trim_endpoint(block);
        }
        Provider::Nutanix => trim_endpoint(block),
        Provider::Aws => {
            for (short, long) in [("subnetID", "subnetIDs"), ("securityGroupID", "securityGroupIDs")] {
                if block[long].is_null() && !block[short].is_null() {
                    block[long] = json!([block[short]]);
                }
            }
        }
        Provider::Harvester | Provider::Gcp | Provider::Azure => {}
    }
}

/// An endpoint without a scheme means https, and needs no slash at its end.
fn trim_endpoint(block: &mut Value) {
    if let Some(endpoint) = block["endpoint"].as_str() {
        let trimmed = endpoint.trim().trim_end_matches('/');
        let whole = if trimmed.contains("://") { trimmed.to_owned() } else { format!("https://{trimmed}") };
        block["endpoint"] = whole.into();
    }
}

/// The ButlerConfig, when the file says anything that belongs there.
pub(super) fn butler_config(file: &Value, cluster: &str) -> Option<Value> {
    let mut spec = json!({});
    if let Some(factory) = file.get("imageFactory").filter(|factory| factory.is_object()) {
        spec["imageFactory"] =
            json!({"url": factory["url"], "autoSync": factory["autoSync"].as_bool().unwrap_or(true)});
        if let Some(digest) = factory["sha256"].as_str() {
            spec["imageFactory"]["sha256"] = digest.to_ascii_lowercase().into();
        }
    }
    if let Some(mode) = file.get("multiTenancyMode").filter(|mode| mode.is_string()) {
        spec["multiTenancy"] = json!({"mode": mode});
    }
    if spec.as_object().is_none_or(Map::is_empty) {
        return None;
    }
    if spec["multiTenancy"].is_null() {
        // What the new cluster gets without a word about it; the kind's own default would switch teams off.
        spec["multiTenancy"] = json!({"mode": "Optional"});
    }
    let mut object = object("ButlerConfig", names::BUTLER_CONFIG_NAME, cluster, spec);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("namespace");
    }
    Some(object)
}

fn object(kind: &str, name: &str, cluster: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": kind,
        "metadata": {
            "name": name, "namespace": names::SYSTEM_NAMESPACE,
            "labels": {names::LABEL_CLUSTER: cluster, names::LABEL_MANAGED_BY: names::MANAGED_BY},
        },
        "spec": spec,
    })
}
