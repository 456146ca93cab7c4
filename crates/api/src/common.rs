//! Small types that several kinds share.

use std::collections::BTreeMap;
use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An infrastructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Harvester (KubeVirt).
    Harvester,
    /// Nutanix Prism.
    Nutanix,
    /// Proxmox VE.
    Proxmox,
    /// Google Cloud.
    Gcp,
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
}

impl Provider {
    /// All of them, in the order of the documentation.
    pub const ALL: [Provider; 6] = [
        Provider::Harvester,
        Provider::Nutanix,
        Provider::Proxmox,
        Provider::Gcp,
        Provider::Aws,
        Provider::Azure,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Harvester => "harvester",
            Provider::Nutanix => "nutanix",
            Provider::Proxmox => "proxmox",
            Provider::Gcp => "gcp",
            Provider::Aws => "aws",
            Provider::Azure => "azure",
        }
    }

    /// Whether it has no load balancer of its own, so that the control plane needs a virtual IP.
    pub fn is_on_prem(self) -> bool {
        matches!(self, Provider::Harvester | Provider::Nutanix | Provider::Proxmox)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a machine is for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MachineRole {
    /// Runs etcd and the Kubernetes API.
    #[default]
    ControlPlane,
    /// Runs workloads.
    Worker,
}

impl fmt::Display for MachineRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MachineRole::ControlPlane => "control-plane",
            MachineRole::Worker => "worker",
        })
    }
}

/// Names a ProviderConfig.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderReference {
    /// Name of the ProviderConfig.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its namespace. Default: the namespace of the object that refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Names a Secret, or one key of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Its namespace. Default: the namespace of the object that refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Key in the Secret. Default: the whole Secret, with the keys that the reader looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Names an object of a known kind in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names an object of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API version of the object, such as v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the object. Default: the namespace of the referrer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the object, when exactly that one is meant and not a later one of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Version of the object. Taken for compatibility, not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Part of the object. Taken for compatibility, not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}

/// One more disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskSpec {
    /// Size in gigabytes, at least 1.
    #[serde(rename = "sizeGB")]
    #[schemars(range(min = 1))]
    pub size_gb: i32,
    /// Storage class or pool of the infrastructure. Default: the infrastructure's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// Selects objects by their labels; all requirements have to hold. An empty selector selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that an object must have, with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub match_expressions: Vec<LabelRequirement>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// The label is there, with one of the values.
    In,
    /// The label is not there, or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// Label key.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: LabelOperator,
    /// Values for In and NotIn; none for the other two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether it would select anything at all.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels))
    }
}

impl LabelRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let found = labels.get(&self.key);
        let listed = found.is_some_and(|value| self.values.contains(value));
        match self.operator {
            LabelOperator::In => listed,
            LabelOperator::NotIn => !listed,
            LabelOperator::Exists => found.is_some(),
            LabelOperator::DoesNotExist => found.is_none(),
        }
    }
}

/// For fields that default to `true`.
pub(crate) fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_select() {
        let labels: BTreeMap<_, _> =
            [("role", "cp"), ("zone", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let select =
            |json: serde_json::Value| serde_json::from_value::<LabelSelector>(json).unwrap().matches(&labels);
        let expression = |op: &str, key: &str, values: &[&str]| {
            select(serde_json::json!({"matchExpressions": [{"key": key, "operator": op, "values": values}]}))
        };
        assert!(select(serde_json::json!({})));
        assert!(select(serde_json::json!({"matchLabels": {"role": "cp"}})));
        assert!(!select(serde_json::json!({"matchLabels": {"role": "worker"}})));
        assert!(expression("In", "zone", &["a", "b"]) && !expression("In", "zone", &["b"]));
        assert!(expression("NotIn", "zone", &["b"]) && expression("NotIn", "other", &["b"]));
        assert!(expression("Exists", "zone", &[]) && !expression("Exists", "other", &[]));
        assert!(expression("DoesNotExist", "other", &[]) && !expression("DoesNotExist", "zone", &[]));
    }

    #[test]
    fn provider_names_are_the_wire_names() {
        for provider in Provider::ALL {
            assert_eq!(serde_json::to_value(provider).unwrap(), provider.as_str());
        }
        assert_eq!(Provider::ALL.iter().filter(|p| p.is_on_prem()).count(), 3);
    }
}
