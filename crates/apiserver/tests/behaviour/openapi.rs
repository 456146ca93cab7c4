//! OpenAPI v3: the index, and the documents that `kubectl explain` and apply read.

use crate::harness::{Cluster, Reply, eventually, scenario, text};
use serde_json::{Value, json};

/// The document of a group version, by the address in the index.
async fn document(c: &Cluster, path: &str) -> Reply {
    eventually(path, async || {
        let index = c.get("/openapi/v3").await;
        let url = index.ok(200)["paths"][path]["serverRelativeURL"].as_str()?.to_string();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
        // The hash may have changed since, and is then redirected.
        Some(c.get(&url).await).filter(|document| document.code == 200)
    })
    .await
}

#[tokio::test]
async fn the_index_names_every_group_version() {
    scenario(async |c| {
        let index = c.get("/openapi/v3").await;
        let paths = index.ok(200)["paths"].as_object().unwrap();
        for path in [
            "api/v1",
            "apis/apps/v1",
            "apis/batch/v1",
            "apis/rbac.authorization.k8s.io/v1",
            "apis/coordination.k8s.io/v1",
            "apis/apiextensions.k8s.io/v1",
            "apis/networking.k8s.io/v1",
            "apis/policy/v1",
            "apis/storage.k8s.io/v1",
        ] {
            let url = text(&paths[path]["serverRelativeURL"]);
            assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{path}: {url}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_document_with_its_hash_is_cacheable_for_ever() {
    scenario(async |c| {
        let document = document(c, "apis/coordination.k8s.io/v1").await;
        document.ok(200);
        assert_eq!(document.headers["content-type"], "application/json");
        assert_eq!(document.headers["cache-control"], "public, immutable");
        assert!(document.headers.contains_key("etag"));
        let plain = c.get("/openapi/v3/apis/coordination.k8s.io/v1").await;
        assert_eq!(plain.ok(200), &document.body);
        assert_eq!(plain.headers["cache-control"], "no-cache, private");
        assert_eq!(c.get("/openapi/v3/apis/nope.example.com/v1").await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn a_document_describes_paths_and_kinds() {
    scenario(async |c| {
        let document = document(c, "api/v1").await;
        let body = document.ok(200);
        assert_eq!(body["openapi"], "3.0.0");
        assert_eq!(body["info"]["title"], "Kubernetes");
        let schema = &body["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"];
        let kind = json!([{"group": "", "kind": "ConfigMap", "version": "v1"}]);
        assert_eq!(schema["x-kubernetes-group-version-kind"], kind);
        assert_eq!(schema["properties"]["data"]["type"], "object");
        assert_eq!(schema["properties"]["data"]["additionalProperties"]["type"], "string");
        let get = &body["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["get"];
        assert_eq!(get["x-kubernetes-action"], "get");
        assert_eq!(
            get["x-kubernetes-group-version-kind"],
            json!({"group": "", "kind": "ConfigMap", "version": "v1"})
        );
        let ports = &body["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-list-type"], "map");
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
        assert_eq!(ports["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
    })
    .await;
}

fn schema_of<'a>(body: &'a Value, group: &str, kind: &str) -> &'a Value {
    let schemas = body["components"]["schemas"].as_object().expect("the document has schemas");
    let wanted = json!([{"group": group, "kind": kind, "version": "v1"}]);
    schemas
        .values()
        .find(|schema| schema["x-kubernetes-group-version-kind"] == wanted)
        .unwrap_or_else(|| panic!("no schema of {kind}"))
}

#[tokio::test]
async fn a_crd_is_described_with_its_own_words() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
                spec["description"] = json!("What is wanted.");
                spec["properties"]["size"]["description"] = json!("How big.");
                spec["properties"]["size"]["minimum"] = json!(1);
                spec["properties"]["size"]["default"] = json!(3);
                spec["required"] = json!(["size"]);
            })
            .await;
        let document = document(c, &format!("apis/{}/v1", crd.group)).await;
        let widget = schema_of(document.ok(200), &crd.group, "Widget");
        assert_eq!(widget["type"], "object");
        let spec = &widget["properties"]["spec"];
        assert_eq!(spec["description"], "What is wanted.");
        assert_eq!(spec["required"], json!(["size"]));
        assert_eq!(
            spec["properties"]["size"],
            json!({"type": "integer", "description": "How big.", "minimum": 1, "default": 3})
        );
        assert_eq!(spec["properties"]["ports"]["x-kubernetes-list-map-keys"], json!(["name"]));
        assert_eq!(spec["properties"]["tags"]["x-kubernetes-list-type"], "set");
        assert!(widget["properties"]["apiVersion"]["description"].is_string(), "apiVersion is described");
        let metadata = &widget["properties"]["metadata"];
        let reference = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        assert!(metadata.to_string().contains(reference), "{metadata}");
        schema_of(&document.body, &crd.group, "WidgetList");
        let path = format!("/apis/{}/v1/namespaces/{{namespace}}/widgets/{{name}}", crd.group);
        let patch = &document.body["paths"][&path]["patch"]["requestBody"]["content"];
        assert!(patch.get("application/apply-patch+yaml").is_some(), "{patch}");
        assert!(patch.get("application/strategic-merge-patch+json").is_none(), "{patch}");
    })
    .await;
}

#[tokio::test]
async fn a_change_of_a_crd_changes_its_document() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let path = format!("apis/{}/v1", crd.group);
        let before = document(c, &path).await;
        let spec = &schema_of(before.ok(200), &crd.group, "Widget")["properties"]["spec"]["properties"];
        assert_eq!(spec.get("weight"), None);
        let patch = json!([{
            "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight",
            "value": {"type": "integer"},
        }]);
        c.patch(&crd.path, crate::harness::JSON_PATCH, &patch).await.ok(200);
        eventually("the new field in the document", async || {
            let after = document(c, &path).await;
            let spec = &schema_of(after.ok(200), &crd.group, "Widget")["properties"]["spec"]["properties"];
            spec.get("weight").map(|_| ())
        })
        .await;
    })
    .await;
}
