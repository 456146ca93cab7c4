//! What is written and read: a custom resource of about 650 bytes as it is served, and its definition.

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::{Value, json};

pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The collection that all objects are in.
pub(super) const SAMPLES: &str = "/apis/bench.example.com/v1/namespaces/bench/samples";

pub(super) fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "bench" } })
}

/// A structural schema with bounds, an enum, a pattern, a list with keys and a default: what an ordinary CRD has.
pub(super) fn definition() -> Value {
    let endpoint = json!({
        "type": "object",
        "required": ["name", "port"],
        "properties": {
            "name": { "type": "string", "maxLength": 63 },
            "port": { "type": "integer", "minimum": 1, "maximum": 65535 },
        },
    });
    let spec = json!({
        "type": "object",
        "required": ["owner"],
        "properties": {
            "owner": { "type": "string", "pattern": "^[a-z][a-z0-9-]*$" },
            "size": { "type": "integer", "minimum": 0 },
            "tier": { "type": "string", "enum": ["small", "large"], "default": "small" },
            "endpoints": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": endpoint,
            },
        },
    });
    let status = json!({ "type": "object", "properties": { "phase": { "type": "string" } } });
    let version = json!({
        "name": "v1",
        "served": true,
        "storage": true,
        "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": status } } },
        "additionalPrinterColumns": [
            { "name": "Owner", "type": "string", "jsonPath": ".spec.owner" },
            { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
        ],
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "samples.bench.example.com" },
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": { "kind": "Sample", "listKind": "SampleList", "plural": "samples", "singular": "sample" },
            "versions": [version],
        },
    })
}

/// The body of one write. Text, not a tree: the load is to spend its time on the wire.
pub(super) fn sample(name: &str, size: u64, version: Option<&str>) -> Bytes {
    let version = version.map(|v| format!(r#","resourceVersion":"{v}""#)).unwrap_or_default();
    format!(
        r#"{{"apiVersion":"bench.example.com/v1","kind":"Sample","metadata":{{"name":"{name}","namespace":"bench"{version}}},"spec":{{"owner":"team-{}","size":{size},"tier":"large","endpoints":[{{"name":"api","port":6443}}]}}}}"#,
        size % 10
    )
    .into()
}

/// Finds `metadata.resourceVersion` without building a tree. In an answer to a write there is only this one.
pub(super) fn resource_version(body: &[u8]) -> Result<String> {
    const KEY: &[u8] = br#""resourceVersion":"#;
    let start = body.windows(KEY.len()).position(|window| window == KEY).map(|at| at + KEY.len());
    start
        .and_then(|start| {
            let quoted = body[start..].trim_ascii_start().strip_prefix(b"\"")?;
            let end = quoted.iter().position(|byte| *byte == b'"')?;
            String::from_utf8(quoted[..end].to_vec()).ok()
        })
        .with_context(|| format!("find the resourceVersion in {}", String::from_utf8_lossy(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_json_with_and_without_a_version() {
        let parse = |version| -> Value { serde_json::from_slice(&sample("a", 7, version)).unwrap() };
        let created = parse(None);
        assert_eq!(created["spec"]["size"], 7);
        assert!(created["metadata"].get("resourceVersion").is_none());
        assert_eq!(parse(Some("12"))["metadata"]["resourceVersion"], "12");
    }

    #[test]
    fn the_resource_version_is_found_with_and_without_spaces() {
        assert_eq!(resource_version(br#"{"metadata":{"resourceVersion":"42","uid":"x"}}"#).unwrap(), "42");
        assert_eq!(resource_version(br#"{"resourceVersion": "7"}"#).unwrap(), "7");
        let error = resource_version(br#"{"kind":"Status"}"#).unwrap_err().to_string();
        assert!(error.contains("Status"), "{error}");
    }
}
