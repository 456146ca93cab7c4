//! CustomResourceDefinitions: defaults, checks, the status that makes them real, and the resources they bring.

mod names;
mod openapi;
mod resources;
mod scale;
mod structural;
mod validate;
mod view;

pub use names::accepted_conditions;
pub use resources::{compare_versions, resources, versions};
pub use scale::validate_scale;
pub use validate::validate_crd;

use crate::schema::is_checked_format;
use serde_json::{Map, Value, json};
use view::View;

/// Holds a deleted CRD until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether the resources of a CRD are served.
pub fn is_established(crd: &Value) -> bool {
    let conditions = crd.get("status").map(|s| s.list("conditions")).unwrap_or_default();
    conditions.iter().any(|c| c.text("type") == "Established" && c.text("status") == "True")
}

/// Says on a CRD that its objects are about to be deleted.
pub fn mark_terminating(crd: &mut Value, now: &str) {
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "lastTransitionTime": now,
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    if let Some(conditions) = crd["status"]["conditions"].as_array_mut() {
        conditions.retain(|c| c.text("type") != "Terminating");
        conditions.push(condition);
    }
}

/// Fills in what may be left out of a CRD, and the storage version in its status.
pub fn default_crd(crd: &mut Value) {
    let Some(map) = crd.as_object_mut() else { return };
    let Some(spec) = map.entry("spec").or_insert_with(|| Value::Object(Map::new())).as_object_mut() else {
        return;
    };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    // The default is false, and Kubernetes does not write it back.
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    let names = spec.entry("names").or_insert_with(|| Value::Object(Map::new()));
    let kind = names.text("kind").to_string();
    let (no_singular, no_list) = (names.text("singular").is_empty(), names.text("listKind").is_empty());
    if let (false, Some(names)) = (kind.is_empty(), names.as_object_mut()) {
        if no_singular {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if no_list {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    let stored = stored_versions(crd);
    if let (false, Some(map)) = (stored.is_empty(), crd.as_object_mut()) {
        let status = map.entry("status").or_insert_with(|| Value::Object(Map::new()));
        if let Some(status) = status.as_object_mut() {
            status.insert("storedVersions".into(), stored.into());
        }
    }
}

/// Warnings on a CRD: formats that are not enforced, as far as `old` did not have them too.
pub fn crd_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(unchecked_formats).unwrap_or_default();
    let mut found = unchecked_formats(new);
    found.retain(|format| !before.contains(format));
    found.into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unchecked_formats(crd: &Value) -> Vec<String> {
    fn collect(schema: &Value, found: &mut Vec<String>) {
        let format = schema.text("format");
        if !format.is_empty() && !is_checked_format(schema.text("type"), format) {
            found.push(format.to_string());
        }
        structural::children(schema).into_iter().for_each(|child| collect(child, found));
    }
    let mut found = Vec::new();
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    for version in spec.list("versions") {
        if let Some(schema) = version.get("schema").and_then(|s| s.some("openAPIV3Schema")) {
            collect(schema, &mut found);
        }
    }
    // A client shows the same warning once.
    found.sort();
    found.dedup();
    found
}

/// The versions that objects may be stored in: those of the status, and the present storage version.
fn stored_versions(crd: &Value) -> Vec<String> {
    let null = Value::Null;
    let (spec, status) = (crd.get("spec").unwrap_or(&null), crd.get("status").unwrap_or(&null));
    let mut stored: Vec<String> = status.texts("storedVersions").into_iter().map(String::from).collect();
    let storage = spec.list("versions").iter().find(|version| version.flag("storage"));
    if let Some(name) =
        storage.map(|version| version.text("name").to_string()).filter(|n| !stored.contains(n))
    {
        stored.push(name);
    }
    stored
}

#[cfg(test)]
mod tests;
