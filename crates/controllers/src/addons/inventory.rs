//! What was applied for an addon, kept in the cluster itself: written last, so that it says "all of it is there".
//!
//! It is a Secret, since the digest covers credentials and nobody else needs to read it.

use super::kinds::ObjectRef;
use super::objects::LABEL_ADDON;
use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::names;
use serde_json::{Value, json};

/// Label of inventories: the addon.
pub(crate) const LABEL_INVENTORY: &str = "butler.butlerlabs.dev/inventory";
/// A namespace that every cluster has from its first second.
const NAMESPACE: &str = "kube-system";

/// What was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// Digest of all objects as they were asked for.
    pub(crate) digest: String,
    /// The objects.
    pub(crate) objects: Vec<ObjectRef>,
}

impl Inventory {
    pub(crate) fn of(objects: &[Value]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for object in objects {
            context.update(object.to_string().as_bytes());
            context.update(b"\n");
        }
        let mut refs: Vec<ObjectRef> = objects.iter().filter_map(ObjectRef::of).collect();
        refs.sort();
        Self { digest: hex(context.finish().as_ref()), objects: refs }
    }

    /// Where the inventory of an addon is.
    pub(crate) fn place(addon: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: format!("butler-addon-{addon}"),
        }
    }

    pub(crate) fn to_object(&self, addon: &str, version: &str) -> Value {
        let lines: Vec<String> = self
            .objects
            .iter()
            .map(|of| format!("{} {} {} {}", of.api_version, of.kind, or_dash(&of.namespace), of.name))
            .collect();
        let place = Self::place(addon);
        json!({
            "apiVersion": place.api_version,
            "kind": place.kind,
            "metadata": {
                "name": place.name,
                "namespace": place.namespace,
                "labels": { LABEL_INVENTORY: addon, names::LABEL_MANAGED_BY: names::MANAGED_BY },
            },
            "type": "butler.butlerlabs.dev/addon-inventory",
            "data": {
                "digest": STANDARD.encode(&self.digest),
                "version": STANDARD.encode(version),
                "objects": STANDARD.encode(lines.join("\n")),
            },
        })
    }

    pub(crate) fn from_object(secret: &Value) -> Option<Self> {
        let read = |key: &str| {
            let text = secret.get("data")?.get(key)?.as_str()?;
            String::from_utf8(STANDARD.decode(text).ok()?).ok()
        };
        let lines = read("objects")?;
        let parse = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let (api_version, kind) = (words.next()?, words.next()?);
            let namespace = words.next().filter(|text| text != "-").unwrap_or_default();
            Some(ObjectRef { api_version, kind, namespace, name: words.next()? })
        };
        Some(Self { digest: read("digest")?, objects: lines.lines().filter_map(parse).collect() })
    }

    /// What was applied once and is not wanted any more. Never what holds other things: namespaces, CRDs, volumes.
    pub(crate) fn leftovers(&self, wanted: &Inventory) -> Vec<ObjectRef> {
        const KEPT: [&str; 3] = ["Namespace", "CustomResourceDefinition", "PersistentVolumeClaim"];
        let gone = self.objects.iter().filter(|of| !wanted.objects.contains(of));
        gone.filter(|of| !KEPT.contains(&of.kind.as_str())).cloned().collect()
    }
}

/// The label that an object must carry to be pruned with its addon.
pub(crate) fn prune_label(addon: &str) -> (&'static str, &str) {
    (LABEL_ADDON, addon)
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
