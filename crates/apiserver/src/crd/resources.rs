//! The resources that a CRD brings, one per served version.

use super::view::View;
use crate::resource::{Column, CrdFacts, Resource, Scale, SchemaSource};
use crate::schema::{Schema, parse};
use serde_json::Value;
use std::cmp::Ordering;
use std::sync::Arc;

/// In the order in which Kubernetes lists them in discovery.
const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The resources of the served versions of a CRD that passed [`super::validate_crd`].
pub fn resources(crd: &Value) -> Vec<Resource> {
    let null = Value::Null;
    let spec = crd.get("spec").unwrap_or(&null);
    spec.list("versions")
        .iter()
        .filter(|version| version.flag("served"))
        .map(|version| resource(crd, spec, version))
        .collect()
}

/// The resources of all versions, each with whether it is served.
pub fn versions(crd: &Value) -> Vec<(Resource, bool)> {
    let null = Value::Null;
    let spec = crd.get("spec").unwrap_or(&null);
    let versions = spec.list("versions").iter();
    versions.map(|version| (resource(crd, spec, version), version.flag("served"))).collect()
}

fn resource(crd: &Value, spec: &Value, version: &Value) -> Resource {
    let null = Value::Null;
    let names = spec.get("names").unwrap_or(&null);
    let subresources = version.get("subresources").unwrap_or(&null);
    let owned = |list: Vec<&str>| list.into_iter().map(String::from).collect::<Vec<_>>();
    let storage = spec.list("versions").iter().find(|v| v.flag("storage"));
    Resource {
        group: spec.text("group").to_string(),
        version: version.text("name").to_string(),
        plural: names.text("plural").to_string(),
        singular: names.text("singular").to_string(),
        kind: names.text("kind").to_string(),
        list_kind: names.text("listKind").to_string(),
        namespaced: spec.text("scope") == "Namespaced",
        short_names: owned(names.texts("shortNames")),
        categories: owned(names.texts("categories")),
        verbs: VERBS.to_vec(),
        has_status: subresources.some("status").is_some(),
        scale: subresources.some("scale").map(scale),
        columns: columns(version),
        selectable_fields: version
            .list("selectableFields")
            .iter()
            .map(|field| field.text("jsonPath").trim_start_matches('.').to_string())
            .collect(),
        schema: SchemaSource::Ready(schema(version)),
        crd: Some(CrdFacts {
            crd_name: crd.get("metadata").map_or("", |m| m.text("name")).to_string(),
            storage_version: storage.map_or("", |v| v.text("name")).to_string(),
        }),
        deprecation_warning: version.flag("deprecated").then(|| deprecation(spec, version)),
    }
}

/// A schema that does not parse was refused before; the empty one that stands in prunes everything.
fn schema(version: &Value) -> Arc<Schema> {
    let given = version.get("schema").and_then(|s| s.some("openAPIV3Schema"));
    given.and_then(|given| parse(given).ok()).unwrap_or_default()
}

fn scale(scale: &Value) -> Scale {
    Scale {
        spec_replicas_path: scale.text("specReplicasPath").to_string(),
        status_replicas_path: scale.text("statusReplicasPath").to_string(),
        label_selector_path: Some(scale.text("labelSelectorPath").to_string()).filter(|p| !p.is_empty()),
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let given = version.list("additionalPrinterColumns");
    if given.is_empty() {
        return vec![Column {
            name: "Age".to_string(),
            ty: "date".to_string(),
            format: String::new(),
            description: "When the object was created.".to_string(),
            priority: 0,
            json_path: ".metadata.creationTimestamp".to_string(),
        }];
    }
    given.iter().map(column).collect()
}

fn column(column: &Value) -> Column {
    let json_path = column.text("jsonPath").to_string();
    let description = match column.text("description") {
        "" => format!("Custom resource definition column (in JSONPath format): {json_path}"),
        text => text.to_string(),
    };
    Column {
        name: column.text("name").to_string(),
        ty: column.text("type").to_string(),
        format: column.text("format").to_string(),
        description,
        priority: column.get("priority").and_then(Value::as_i64).and_then(|p| p.try_into().ok()).unwrap_or(0),
        json_path,
    }
}

fn deprecation(spec: &Value, version: &Value) -> String {
    if let Some(text) = version.some("deprecationWarning").and_then(Value::as_str) {
        return text.to_string();
    }
    let (group, kind) = (spec.text("group"), spec.get("names").map_or("", |n| n.text("kind")));
    let name = version.text("name");
    let better = spec
        .list("versions")
        .iter()
        .filter(|v| v.flag("served") && !v.flag("deprecated"))
        .map(|v| v.text("name"))
        .filter(|other| compare_versions(name, other) == Ordering::Less)
        .max_by(|a, b| compare_versions(a, b));
    let message = format!("{group}/{name} {kind} is deprecated");
    match better {
        Some(better) => format!("{message}; use {group}/{better} {kind}"),
        None => message,
    }
}

/// Kubernetes' order of versions: `v2` over `v1` over `v1beta1` over `v1alpha1` over anything else.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stability, major, minor.
fn parse_version(text: &str) -> Option<(u8, u64, u64)> {
    let rest = text.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let suffix = &rest[digits..];
    if suffix.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match suffix.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, suffix.strip_prefix("alpha")?),
    };
    Some((stability, major, minor.parse().ok()?))
}
