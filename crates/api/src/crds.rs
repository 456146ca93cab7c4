//! The CRDs of all kinds, as they are installed and committed.
//!
//! What `kube` derives is tidied:
//! - `nullable` is dropped. An optional field is left out, never null; and beside a `default`, `nullable` would keep a
//!   written null as it is, where Kubernetes otherwise puts the default in its place.
//! - A default of an object is `{}`: its fields have their own defaults, which Kubernetes then fills in. One list of
//!   defaults, not a second copy of it one level higher.
//! - Line breaks of doc comments become spaces, so that `kubectl explain` wraps the text itself.
//! - Limits are written as whole numbers, since they limit whole numbers.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value};

use crate::{
    AddonDefinition, ButlerConfig, ClusterBootstrap, ImageSync, LoadBalancerRequest, MachineLoadBalancer,
    MachineRequest, ProviderConfig,
};

/// The CRDs of all kinds, ordered by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        tidy(AddonDefinition::crd()),
        tidy(ButlerConfig::crd()),
        tidy(ClusterBootstrap::crd()),
        tidy(ImageSync::crd()),
        tidy(LoadBalancerRequest::crd()),
        tidy(MachineLoadBalancer::crd()),
        tidy(MachineRequest::crd()),
        tidy(ProviderConfig::crd()),
    ];
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// One CRD as YAML text.
pub fn crd_yaml(crd: &CustomResourceDefinition) -> Result<String, CrdYamlError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let failed = |reason: String| CrdYamlError { name: name.clone(), reason };
    let mut value = serde_json::to_value(crd).map_err(|e| failed(e.to_string()))?;
    whole_numbers(&mut value);
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&value, options).map_err(|e| failed(e.to_string()))
}

/// Turns `1.0` into `1`: the types of a CRD hold limits as floating-point numbers.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < 1e15);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// All CRDs as one stream of YAML documents.
pub fn crds_yaml() -> Result<String, CrdYamlError> {
    crds().iter().map(|crd| Ok(format!("---\n{}", crd_yaml(crd)?))).collect()
}

/// A CRD that could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("write CRD {name} as YAML: {reason}")]
pub struct CrdYamlError {
    name: String,
    reason: String,
}

fn tidy(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let tidied = serde_json::to_value(&crd).ok().and_then(|mut value| {
        for version in value.pointer_mut("/spec/versions")?.as_array_mut()? {
            if let Some(Value::Object(schema)) = version.pointer_mut("/schema/openAPIV3Schema") {
                tidy_schema(schema);
            }
        }
        serde_json::from_value(value).ok()
    });
    // A CRD is plain data, so it survives the way to JSON and back; a test checks that no `nullable` is left.
    tidied.unwrap_or(crd)
}

fn tidy_schema(schema: &mut Map<String, Value>) {
    schema.remove("nullable");
    schema.remove("title");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if schema.get("default").is_some_and(Value::is_object) {
        schema.insert("default".to_owned(), Value::Object(Map::new()));
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            if let Value::Object(property) = property {
                tidy_schema(property);
            }
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(key) {
            tidy_schema(inner);
        }
    }
}
