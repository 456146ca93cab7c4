//! From a pod template to a pod.

use super::super::objects::{name, namespace, owned_by};
use serde_json::{Value, json};

/// What a pod is called.
pub(super) enum Named<'a> {
    /// Exactly so.
    As(&'a str),
    /// So, and five letters.
    Like(String),
}

/// A pod of `owner`, as its controller would send it.
pub(super) fn pod(owner: &Value, kind: (&str, &str), named: &Named<'_>, labels: &[(&str, &str)]) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = json!({
        "namespace": namespace(owner),
        "ownerReferences": owned_by(owner, kind.0, kind.1),
        "labels": template["metadata"]["labels"],
    });
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    if let Some(annotations) = template["metadata"].get("annotations") {
        metadata["annotations"] = annotations.clone();
    }
    match named {
        Named::As(name) => metadata["name"] = (*name).into(),
        Named::Like(prefix) => metadata["generateName"] = prefix.as_str().into(),
    }
    for (key, value) in labels {
        metadata["labels"][*key] = (*value).into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// What admission adds to every pod that does not say otherwise: five minutes on a node that is gone.
pub(super) fn patient(pod: &mut Value) {
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let covers = |toleration: &Value| {
            let key = toleration["key"].as_str().unwrap_or_default();
            let effect = toleration["effect"].as_str().unwrap_or_default();
            (key.is_empty() || key == taint) && (effect.is_empty() || effect == "NoExecute")
        };
        if !tolerations.iter().any(covers) {
            add(
                pod,
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

pub(super) fn add(pod: &mut Value, toleration: Value) {
    let spec = &mut pod["spec"];
    match spec["tolerations"].as_array_mut() {
        Some(list) => list.push(toleration),
        None => spec["tolerations"] = json!([toleration]),
    }
}

/// A short name for a template that changes when the template does.
pub(super) fn hash(owner: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a over the canonical text: keys of a JSON object are in order here.
    let text = owner["spec"]["template"].to_string();
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut out = String::with_capacity(10);
    for _ in 0..10 {
        out.push(char::from(LETTERS[usize::try_from(hash % 27).unwrap_or_default()]));
        hash /= 27;
    }
    out
}

/// The start of the names of pods that belong to `owner`.
pub(super) fn prefix(owner: &Value) -> String {
    format!("{}-", name(owner))
}
