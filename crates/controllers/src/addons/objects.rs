//! The objects of an addon, as they are applied. Pure: the dry run shows the same ones.

use super::graph::{self, Content, MANAGER, Row};
use super::site::Site;
use super::source::{Part, Sources};
use butler_api::names;
use butler_drivers::{Class, Failure};
use serde_json::{Value, json};

/// Label of every object that we apply: the addon that it belongs to. Watches and pruning select by it.
pub const LABEL_ADDON: &str = "butler.butlerlabs.dev/addon";

/// Namespaces whose pods need more than Pod Security's baseline: storage and address announcements work on the host.
const PRIVILEGED: [&str; 2] = ["longhorn-system", "metallb-system"];
/// Namespaces that are there from the start.
const GIVEN: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// All objects of an addon, in no particular order.
///
/// # Errors
/// `InvalidConfig` when there is no such addon, or its source does not have it.
pub fn objects(addon: &str, site: &Site<'_>, sources: &dyn Sources) -> Result<Vec<Value>, Failure> {
    let row = known(addon)?;
    let mut all = match row.content {
        Content::BuiltIn(make) => make(site)?,
        Content::Sourced(parts) => sourced(&parts(site), sources)?,
        Content::BuiltInOr(make, parts) => match make(site) {
            Some(objects) => objects,
            None => sourced(&parts(site), sources)?,
        },
        Content::NodeEdits => Vec::new(),
        Content::Infrastructure => return Err(not_built(addon)),
    };
    for object in &mut all {
        mark(object, row);
    }
    Ok(all)
}

/// The parts that an addon asks its source for; none for built-in ones.
pub fn parts(addon: &str, site: &Site<'_>) -> Vec<Part> {
    match graph::find(addon).map(|row| &row.content) {
        Some(Content::Sourced(parts)) => parts(site),
        Some(Content::BuiltInOr(make, parts)) if make(site).is_none() => parts(site),
        _ => Vec::new(),
    }
}

/// The same object without the values that nobody may see.
pub fn redacted(object: &Value) -> Value {
    let mut object = object.clone();
    if object.get("kind").and_then(Value::as_str) == Some("Secret") {
        for field in ["data", "stringData"] {
            if let Some(Value::Object(data)) = object.get_mut(field) {
                data.values_mut().for_each(|value| *value = json!("<redacted>"));
            }
        }
    }
    object
}

pub(crate) fn known(addon: &str) -> Result<&'static Row, Failure> {
    graph::find(addon).ok_or_else(|| {
        Failure::new(
            Class::InvalidConfig,
            "AddonUnknown",
            format!("there is no addon {addon:?}"),
            "use one of the addons that the plan names",
        )
    })
}

/// Metadata of an object in a namespace.
pub(crate) fn meta(namespace: &str, name: &str) -> Value {
    json!({ "name": name, "namespace": namespace })
}

/// Metadata of an object of the whole cluster.
pub(crate) fn named(name: &str) -> Value {
    json!({ "name": name })
}

/// A namespace. All addons that share one make it alike, so that it does not matter who comes first.
pub(crate) fn namespace(name: &str) -> Value {
    let mut labels = json!({ names::LABEL_MANAGED_BY: names::MANAGED_BY });
    if PRIVILEGED.contains(&name) {
        for mode in ["enforce", "audit", "warn"] {
            labels[format!("pod-security.kubernetes.io/{mode}")] = json!("privileged");
            labels[format!("pod-security.kubernetes.io/{mode}-version")] = json!("latest");
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": labels },
    })
}

fn sourced(parts: &[Part], sources: &dyn Sources) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    for part in parts {
        if !GIVEN.contains(&part.namespace.as_str()) {
            all.push(namespace(&part.namespace));
        }
        let given = sources.objects(part)?;
        // The namespace is ours to make: a second one would be a second opinion on its labels.
        all.extend(given.into_iter().filter(|object| !is_namespace(object, &part.namespace)));
    }
    Ok(all)
}

fn is_namespace(object: &Value, name: &str) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Namespace")
        && object.pointer("/metadata/name").and_then(Value::as_str) == Some(name)
}

/// Writes the addon's name on an object. Not on namespaces, which addons share; nor on an object of another addon, of
/// which a row with its own field manager writes a few fields.
fn mark(object: &mut Value, row: &Row) {
    let is_namespace = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    if is_namespace || row.manager != MANAGER {
        return;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert(LABEL_ADDON.to_owned(), row.name.into());
        labels.entry(names::LABEL_MANAGED_BY).or_insert_with(|| names::MANAGED_BY.into());
    }
}

fn not_built(addon: &str) -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "AddonNotBuilt",
        format!("the addon {addon} is done by the infrastructure's driver, which does not have it yet"),
        "leave it out",
    )
}
