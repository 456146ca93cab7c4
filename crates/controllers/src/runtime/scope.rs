//! Whose objects the controllers act on: everyone's, or those of one ClusterBootstrap.

use butler_api::ClusterBootstrap;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Whose objects the controllers act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everyone's, in all namespaces.
    All,
    /// One ClusterBootstrap's and its children's: whatever else the API holds is left alone.
    One {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Who runs the controllers, the same each time. When given, a Lease keeps everybody else out meanwhile.
        holder: Option<String>,
    },
}

impl Scope {
    /// Where objects are looked for.
    pub(crate) fn api<K>(&self, client: &kube::Client) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match self {
            Scope::All => Api::all(client.clone()),
            Scope::One { namespace, .. } => Api::namespaced(client.clone(), namespace),
        }
    }

    /// Whether an object is to be acted on.
    pub(crate) fn holds<K: Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        let Scope::One { namespace, name, .. } = self else { return true };
        let cluster = ClusterBootstrap::kind(&());
        let itself = K::kind(&()) == cluster && object.name_any() == *name;
        let owned =
            object.owner_references().iter().any(|owner| owner.kind == cluster && owner.name == *name);
        object.namespace().as_ref() == Some(namespace) && (itself || owned)
    }
}

/// Changes with the owners of an object: it can come into the scope, or leave it.
pub(crate) fn owners<K: Resource>(object: &K) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for owner in object.owner_references() {
        owner.uid.hash(&mut hasher);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_api::MachineRequest;
    use serde_json::{Value, json};

    fn machine(namespace: &str, owners: Value) -> MachineRequest {
        serde_json::from_value(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest",
            "metadata": {"name": "prod", "namespace": namespace, "ownerReferences": owners},
            "spec": {"providerRef": {"name": "p"}, "machineName": "prod", "role": "worker",
                     "cpu": 1, "memoryMB": 2048, "diskGB": 20},
        }))
        .unwrap()
    }

    fn owner(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ClusterBootstrap", "name": name, "uid": name})
    }

    #[test]
    fn one_cluster_and_its_children_are_in_scope() {
        let one = Scope::One { namespace: "n".into(), name: "prod".into(), holder: None };
        let table = [
            ("ours", machine("n", json!([owner("prod")])), true),
            ("shared", machine("n", json!([owner("other"), owner("prod")])), true),
            ("another's", machine("n", json!([owner("other")])), false),
            ("nobody's, of our name", machine("n", json!([])), false),
            ("elsewhere", machine("m", json!([owner("prod")])), false),
        ];
        for (name, machine, held) in table {
            assert_eq!(one.holds(&machine), held, "{name}");
            assert!(Scope::All.holds(&machine), "{name}");
        }
    }

    #[test]
    fn a_new_owner_is_a_change() {
        let (alone, shared) = (json!([owner("other")]), json!([owner("other"), owner("prod")]));
        assert_ne!(owners(&machine("n", alone.clone())), owners(&machine("n", shared)));
        assert_eq!(owners(&machine("n", alone.clone())), owners(&machine("m", alone)));
    }
}
