//! The infrastructure's settings and credentials, copied to the new cluster: all of them.

use super::objects::namespace;
use super::site::Site;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::names;
use butler_drivers::{Class, Failure};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

pub(crate) fn objects(site: &Site<'_>) -> Result<Vec<Value>, Failure> {
    let (secret, secret_namespace) = secret_place(site);
    let own_namespace = config_namespace(site);
    let spec = serde_json::to_value(&site.provider_config.spec).map_err(|error| {
        Failure::new(
            Class::Terminal,
            "ProviderConfigUnwritable",
            format!("write ProviderConfig {} as JSON: {error}", site.provider_config.name_any()),
            "report this as a bug",
        )
    })?;
    let data: Map<String, Value> =
        site.credentials.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value).into())).collect();
    let mut all = vec![namespace(&own_namespace)];
    if secret_namespace != own_namespace {
        all.push(namespace(&secret_namespace));
    }
    all.push(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": secret, "namespace": secret_namespace },
        "type": "Opaque",
        "data": data,
    }));
    let mut config = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "ProviderConfig",
        "metadata": { "name": site.provider_config.name_any(), "namespace": own_namespace },
        "spec": spec,
    });
    if !site.provider_config.labels().is_empty() {
        config["metadata"]["labels"] = json!(site.provider_config.labels());
    }
    all.push(config);
    Ok(all)
}

/// Name and namespace of the credentials' Secret on the new cluster: where the ProviderConfig says.
pub(crate) fn secret_place(site: &Site<'_>) -> (String, String) {
    let reference = &site.provider_config.spec.credentials_ref;
    let namespace = reference.namespace.clone().unwrap_or_else(|| config_namespace(site));
    (reference.name.clone(), namespace)
}

fn config_namespace(site: &Site<'_>) -> String {
    site.provider_config.namespace().unwrap_or_else(|| site.namespace.to_owned())
}
