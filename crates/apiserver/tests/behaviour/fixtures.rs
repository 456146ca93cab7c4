//! Custom resources for the tests: a small builder of CRDs, each with a group of its own.

use crate::harness::{Cluster, unique};
use serde_json::{Value, json};

/// A CRD that is served.
pub(crate) struct Crd {
    pub(crate) group: String,
    /// The path of the objects in the test's namespace, or of all of them when the CRD is cluster-scoped.
    pub(crate) objects: String,
    /// The path of the CRD.
    pub(crate) path: String,
    pub(crate) namespace: String,
}

/// A CRD `widgets.<group>` with one version `v1` whose `spec` has this schema; `status` is open, and a subresource.
pub(crate) fn widgets(group: &str, spec: Value) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// The schema most tests need no more than: a size, a colour, a map and some lists.
pub(crate) fn plain_spec() -> Value {
    json!({
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "colour": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "order": {"type": "array", "items": {"type": "string"}},
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "port": {"type": "integer"}, "note": {"type": "string"}},
                },
            },
        },
    })
}

pub(crate) fn unique_group() -> String {
    format!("{}.example.com", unique("g"))
}

impl Cluster {
    /// Widgets with [`plain_spec`], in a new namespace.
    pub(crate) async fn widgets(&self) -> Crd {
        self.widgets_with(|_| ()).await
    }

    /// Widgets whose CRD is changed before it is created.
    pub(crate) async fn widgets_with(&self, change: impl FnOnce(&mut Value)) -> Crd {
        let mut crd = widgets(&unique_group(), plain_spec());
        change(&mut crd);
        self.install(&crd).await
    }

    /// Widgets with this schema of `spec`.
    pub(crate) async fn widgets_of(&self, spec: Value) -> Crd {
        self.install(&widgets(&unique_group(), spec)).await
    }

    /// Creates a CRD and waits until it is served.
    pub(crate) async fn install(&self, crd: &Value) -> Crd {
        let name = crd["metadata"]["name"].as_str().expect("the CRD has a name");
        let group = crd["spec"]["group"].as_str().expect("the CRD has a group").to_string();
        let plural = crd["spec"]["names"]["plural"].as_str().expect("the CRD has a plural");
        let version = crd["spec"]["versions"][0]["name"].as_str().expect("the CRD has a version");
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let made = self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
        assert_eq!(made.code, 201, "CRD: {}", made.text);
        self.doom(&path);
        self.established(&path).await;
        let namespace = self.namespace().await;
        let objects = match crd["spec"]["scope"].as_str() {
            Some("Cluster") => format!("/apis/{group}/{version}/{plural}"),
            _ => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        };
        // A real server answers 404 for a moment after it reported Established.
        self.until(&objects, "the new resource to be served", |reply| reply.code == 200).await;
        Crd { group, objects, path, namespace }
    }

    /// Waits for the CRD's condition.
    pub(crate) async fn established(&self, path: &str) -> Value {
        let reply = self
            .until(path, "the CRD to be established", |reply| {
                let conditions = reply.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
            })
            .await;
        reply.body
    }
}

impl Crd {
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.objects)
    }

    pub(crate) fn api_version(&self) -> String {
        format!("{}/v1", self.group)
    }

    /// A Widget with this spec.
    pub(crate) fn widget(&self, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": self.api_version(), "kind": "Widget",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        })
    }

    /// `Widget.<group>`, as messages about a whole object name it.
    pub(crate) fn kind(&self) -> String {
        format!("Widget.{}", self.group)
    }

    /// `widgets.<group>`, as messages about a request name it.
    pub(crate) fn resource(&self) -> String {
        format!("widgets.{}", self.group)
    }
}
