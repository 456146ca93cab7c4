//! OpenAPI documents: one for each group and version (v3), and one for all (v2).
//!
//! Built-in types come from the packed table, those of custom resources from their schemas.

use super::paths::path_items;
use super::schema_document::schema_to_openapi;
use super::{KUBERNETES_VERSION, groups, hash, members, to_bytes, versions};
use crate::builtin;
use crate::resource::Resource;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// `/openapi/v3`: which documents there are. The hash changes with the document, so that clients can keep it for ever.
pub fn openapi_v3_index(resources: &[Arc<Resource>]) -> Bytes {
    let mut paths = Map::new();
    for group in groups(resources) {
        for version in versions(resources, group) {
            let path = document_path(group, version);
            let hash = openapi_v3_hash(resources, &path).unwrap_or_default();
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            );
        }
    }
    to_bytes(&json!({"paths": paths}))
}

/// The hash of a document, without making the document: built-in types change only with the program.
pub fn openapi_v3_hash(resources: &[Arc<Resource>], path: &str) -> Option<String> {
    let (group, version) = parse_path(path)?;
    let mut facts = String::from(env!("CARGO_PKG_VERSION"));
    let mut found = false;
    for resource in members(resources, group, version) {
        found = true;
        facts.push_str(&format!("\n{} {} {:?}", resource.plural, resource.kind, resource.verbs));
        facts.push_str(&format!(" {} {}", resource.has_status, resource.scale.is_some()));
        if resource.is_custom() {
            facts.push_str(&schema_to_openapi(resource.schema()).to_string());
        }
    }
    found.then(|| hash(facts.as_bytes()))
}

/// `/openapi/v3/<path>` with a path like `api/v1` or `apis/apps/v1`.
pub fn openapi_v3(resources: &[Arc<Resource>], path: &str) -> Option<Bytes> {
    let (group, version) = parse_path(path)?;
    let members: Vec<&Arc<Resource>> = members(resources, group, version).collect();
    if members.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    for resource in &members {
        let (kind, list) = type_names(resource);
        for item in path_items(resource, &kind, &list) {
            paths.insert(item.path.clone(), item.v3(resource));
        }
    }
    Some(to_bytes(&json!({
        "openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": components(&members)},
    })))
}

/// `/openapi/v2`: everything in one document, for older clients.
pub fn openapi_v2(resources: &[Arc<Resource>]) -> Bytes {
    let members: Vec<&Arc<Resource>> = resources.iter().collect();
    let mut paths = Map::new();
    for resource in &members {
        let (kind, list) = type_names(resource);
        for item in path_items(resource, &kind, &list) {
            paths.insert(item.path.clone(), item.v2(resource));
        }
    }
    let definitions: Map<String, Value> =
        components(&members).into_iter().map(|(name, schema)| (name, downgrade(schema))).collect();
    to_bytes(&json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions}))
}

fn info() -> Value {
    let (major, minor, _) = KUBERNETES_VERSION;
    json!({"title": "Kubernetes", "version": format!("{major}.{minor}")})
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn parse_path(path: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

/// The names of a resource's type and of its list's type.
fn type_names(resource: &Resource) -> (String, String) {
    let builtin = |kind: &str| builtin::type_name(&resource.group, &resource.version, kind);
    if !resource.is_custom()
        && let Some(kind) = builtin(&resource.kind)
    {
        return (kind.to_string(), builtin(&resource.list_kind).unwrap_or(kind).to_string());
    }
    // The group backwards: com.example.v1.Widget.
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    let prefix = format!("{}.{}", group.join("."), resource.version);
    (format!("{prefix}.{}", resource.kind), format!("{prefix}.{}", resource.list_kind))
}

/// The schemas of all types of these resources and of what they refer to.
fn components(resources: &[&Arc<Resource>]) -> BTreeMap<String, Value> {
    let mut roots = vec![
        format!("{META}.Status"),
        format!("{META}.DeleteOptions"),
        format!("{META}.ObjectMeta"),
        format!("{META}.ListMeta"),
    ];
    let mut own = BTreeMap::new();
    for resource in resources {
        let (kind, list) = type_names(resource);
        if resource.is_custom() {
            own.insert(list, list_document(resource, &kind));
            own.insert(kind, custom_document(resource));
        } else {
            roots.extend([kind, list]);
        }
        if resource.scale.is_some() {
            roots.push("io.k8s.api.autoscaling.v1.Scale".into());
        }
        if resource.kind == "ServiceAccount" && !resource.is_custom() {
            roots.push("io.k8s.api.authentication.v1.TokenRequest".into());
        }
    }
    let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
    let mut all = builtin::openapi_components(&roots);
    all.extend(own);
    all
}

fn custom_document(resource: &Resource) -> Value {
    let mut document = schema_to_openapi(resource.schema());
    let properties = &mut document["properties"];
    if !properties.is_object() {
        *properties = json!({});
    }
    properties["apiVersion"] =
        json!({"type": "string", "description": "group and version of this object's schema"});
    properties["kind"] = json!({"type": "string", "description": "kind of this object"});
    properties["metadata"] = json!({
        "description": "name, labels and what else all objects have",
        "allOf": [{"$ref": format!("#/components/schemas/{META}.ObjectMeta")}],
    });
    document["x-kubernetes-group-version-kind"] = kind_words(resource, &resource.kind);
    document
}

fn list_document(resource: &Resource, kind: &str) -> Value {
    json!({
        "type": "object", "required": ["items"], "description": format!("a list of {}", resource.plural),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": format!("#/components/schemas/{META}.ListMeta")},
            "items": {"type": "array", "items": {"$ref": format!("#/components/schemas/{kind}")}},
        },
        "x-kubernetes-group-version-kind": kind_words(resource, &resource.list_kind),
    })
}

fn kind_words(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "version": resource.version, "kind": kind}])
}

/// A schema in the words of OpenAPI 2, which knows neither alternatives nor null.
fn downgrade(schema: Value) -> Value {
    let Value::Object(fields) = schema else { return schema };
    let target =
        fields.get("$ref").or_else(|| fields.get("allOf")?.get(0)?.get("$ref")).and_then(Value::as_str);
    if let Some(target) = target {
        return json!({"$ref": target.replace("#/components/schemas/", "#/definitions/")});
    }
    let is_union = fields.contains_key("oneOf") || fields.contains_key("anyOf");
    let mut out = Map::new();
    for (key, value) in fields {
        match key.as_str() {
            "oneOf" | "anyOf" | "allOf" | "not" | "nullable" => {}
            "properties" => {
                let inner = value.as_object().cloned().unwrap_or_default();
                out.insert(key, inner.into_iter().map(|(name, schema)| (name, downgrade(schema))).collect());
            }
            "items" | "additionalProperties" if value.is_object() => {
                out.insert(key, downgrade(value));
            }
            _ => {
                out.insert(key, value);
            }
        }
    }
    // Quantities and int-or-string are texts there; what else has alternatives has no type.
    let is_plain = !out.contains_key("type") && !out.contains_key("x-kubernetes-preserve-unknown-fields");
    if is_union && is_plain {
        out.insert("type".into(), "string".into());
    }
    Value::Object(out)
}
