//! What is served, told in the ways that clients ask for it: plain and aggregated discovery, version, OpenAPI.
//!
//! All functions are pure: they take a snapshot of the served resources and give the bytes of the answer, so that the
//! caller can keep them until the snapshot changes.

mod openapi;
mod paths;
mod priority;
mod schema_document;

pub use openapi::{openapi_v2, openapi_v3, openapi_v3_hash, openapi_v3_index};
pub use priority::compare_versions;

use crate::builtin;
use crate::resource::Resource;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

/// The Kubernetes release whose behaviour is followed.
pub const KUBERNETES_VERSION: (&str, &str, &str) = ("1", "36", "v1.36.4");

/// Which form of aggregated discovery a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregatedVersion {
    V2,
    V2Beta1,
}

impl AggregatedVersion {
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V2 => "apidiscovery.k8s.io/v2",
            Self::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }

    /// The content type of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }
}

/// `/version`.
pub fn version() -> Bytes {
    let (major, minor, full) = KUBERNETES_VERSION;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    to_bytes(&json!({
        "major": major, "minor": minor, "gitVersion": format!("{full}+butler.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": format!("{}/{architecture}", std::env::consts::OS),
    }))
}

/// `/api`, for clients that do not take the aggregated form. `server` is the address that the client reached.
pub fn api_versions(server: &str) -> Bytes {
    to_bytes(&json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    }))
}

/// `/apis`, for clients that do not take the aggregated form.
pub fn group_list(resources: &[Arc<Resource>]) -> Bytes {
    let groups: Vec<Value> = groups(resources)
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| group_value(resources, name))
        .collect();
    to_bytes(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// `/apis/<group>`.
pub fn group(resources: &[Arc<Resource>], name: &str) -> Option<Bytes> {
    if name.is_empty() || versions(resources, name).is_empty() {
        return None;
    }
    let mut value = group_value(resources, name);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(to_bytes(&value))
}

/// `/api/v1` (with an empty group) and `/apis/<group>/<version>`.
pub fn resource_list(resources: &[Arc<Resource>], group: &str, version: &str) -> Option<Bytes> {
    let mut members = members(resources, group, version).peekable();
    members.peek()?;
    let entries: Vec<Value> = members.flat_map(|resource| plain_entries(resource)).collect();
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    Some(to_bytes(&json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries,
    })))
}

/// `/api` (with `core`) or `/apis` in the aggregated form.
pub fn aggregated(resources: &[Arc<Resource>], core: bool, form: AggregatedVersion) -> Bytes {
    let items: Vec<Value> = groups(resources)
        .into_iter()
        .filter(|name| name.is_empty() == core)
        .map(|name| {
            let versions: Vec<Value> = versions(resources, name)
                .into_iter()
                .map(|version| {
                    let entries: Vec<Value> = members(resources, name, version)
                        .map(|resource| aggregated_entry(resource))
                        .collect();
                    json!({"version": version, "resources": entries, "freshness": "Current"})
                })
                .collect();
            // The core group has no name, and then no field for it either.
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    to_bytes(&json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": form.api_version(), "metadata": {}, "items": items,
    }))
}

/// A strong entity tag of a document, quotes included.
pub fn etag(body: &[u8]) -> String {
    format!("\"{}\"", hash(body))
}

pub(crate) fn hash(body: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Serialising a [`Value`] can't fail.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// All groups: built-in ones in the order of the snapshot, then those of custom resources by name.
fn groups(resources: &[Arc<Resource>]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let mut custom: Vec<&str> = Vec::new();
    for resource in resources {
        let list = if resource.is_custom() { &mut custom } else { &mut names };
        if !list.contains(&resource.group.as_str()) {
            list.push(&resource.group);
        }
    }
    custom.sort_unstable();
    custom.retain(|name| !names.contains(name));
    names.extend(custom);
    names
}

/// The versions of a group, the preferred one first.
fn versions<'a>(resources: &'a [Arc<Resource>], group: &str) -> Vec<&'a str> {
    let mut versions: Vec<&str> =
        resources.iter().filter(|r| r.group == group).map(|r| r.version.as_str()).collect();
    versions.sort_by(|left, right| compare_versions(left, right));
    versions.dedup();
    versions
}

fn members<'a>(
    resources: &'a [Arc<Resource>],
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Resource>> {
    resources.iter().filter(move |r| r.group == group && r.version == version)
}

fn group_value(resources: &[Arc<Resource>], name: &str) -> Value {
    let versions: Vec<Value> = versions(resources, name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// A subresource in discovery: name, and group, version and kind of its answers (empty: those of the resource).
struct Subresource {
    name: &'static str,
    kind: (&'static str, &'static str, String),
    verbs: &'static [&'static str],
}

const READ_AND_WRITE: &[&str] = &["get", "patch", "update"];

fn subresources(resource: &Resource) -> Vec<Subresource> {
    let mut out: Vec<Subresource> = builtin::extra_subresources(resource)
        .iter()
        .map(|extra| Subresource {
            name: extra.name,
            kind: (extra.group, extra.version, extra.kind.to_string()),
            verbs: extra.verbs,
        })
        .collect();
    if resource.scale.is_some() {
        out.push(Subresource {
            name: "scale",
            kind: ("autoscaling", "v1", "Scale".into()),
            verbs: READ_AND_WRITE,
        });
    }
    if resource.has_status {
        out.push(Subresource {
            name: "status",
            kind: ("", "", resource.kind.clone()),
            verbs: READ_AND_WRITE,
        });
    }
    out.sort_by_key(|sub| sub.name);
    out
}

/// The resource and its subresources as plain discovery lists them.
fn plain_entries(resource: &Resource) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    add_names(resource, &mut main);
    let mut out = vec![main];
    for sub in subresources(resource) {
        let (group, version, kind) = sub.kind;
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": kind, "verbs": sub.verbs,
        });
        if !version.is_empty() {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        out.push(entry);
    }
    out
}

fn add_names(resource: &Resource, entry: &mut Value) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
}

/// Built-in kinds leave group and version empty when they are those of the path, as the real server does.
fn response_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> Value {
    let same = !resource.is_custom() && group == resource.group && version == resource.version;
    let (group, version) = if same { ("", "") } else { (group, version) };
    json!({"group": group, "version": version, "kind": kind})
}

fn aggregated_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, &resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    add_names(resource, &mut entry);
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|sub| {
            let (group, version, kind) = match sub.kind {
                (_, "", kind) => (resource.group.as_str(), resource.version.as_str(), kind),
                other => other,
            };
            let response = response_kind(resource, group, version, &kind);
            json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

#[cfg(test)]
mod tests;
