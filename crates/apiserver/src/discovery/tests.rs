//! Discovery of the built-in kinds and one custom resource.

use super::*;
use crate::resource::{CrdFacts, Scale, SchemaSource};
use crate::schema::{Schema, Type};
use std::collections::BTreeMap;

fn widget(version: &str) -> Arc<Resource> {
    let text =
        Arc::new(Schema { ty: Some(Type::String), description: Some("text".into()), ..Schema::default() });
    let spec = Arc::new(Schema {
        ty: Some(Type::Object),
        properties: BTreeMap::from([("s".into(), text)]),
        ..Schema::default()
    });
    let schema = Schema {
        ty: Some(Type::Object),
        description: Some("A widget.".into()),
        properties: BTreeMap::from([("spec".into(), spec)]),
        ..Schema::default()
    };
    Arc::new(Resource {
        group: "builtin.test".into(),
        version: version.into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        namespaced: true,
        short_names: vec!["wd".into()],
        categories: vec!["all".into()],
        verbs: vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        has_status: true,
        scale: Some(Scale {
            spec_replicas_path: ".spec.replicas".into(),
            status_replicas_path: ".status.replicas".into(),
            label_selector_path: None,
        }),
        columns: vec![],
        selectable_fields: vec![],
        schema: SchemaSource::Ready(Arc::new(schema)),
        crd: Some(CrdFacts { crd_name: "widgets.builtin.test".into(), storage_version: "v1".into() }),
        deprecation_warning: None,
    })
}

fn served() -> Vec<Arc<Resource>> {
    let mut all = builtin::resources();
    all.extend([widget("v1beta1"), widget("v1")]);
    all
}

fn parse(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn groups_are_listed_in_the_order_of_the_real_server() {
    let list = parse(&group_list(&served()));
    let names: Vec<&str> =
        list["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "apiregistration.k8s.io",
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
            "resource.k8s.io",
            "flowcontrol.apiserver.k8s.io",
            "builtin.test"
        ]
    );
    let group_value = parse(&group(&served(), "builtin.test").unwrap());
    assert_eq!(group_value["kind"], "APIGroup");
    assert_eq!(group_value["preferredVersion"], json!({"groupVersion": "builtin.test/v1", "version": "v1"}));
    assert_eq!(group_value["versions"][1]["version"], "v1beta1");
    assert!(group(&served(), "no.such").is_none());
    assert!(group(&served(), "").is_none());
}

#[test]
fn resources_and_their_subresources_are_listed() {
    let list = parse(&resource_list(&served(), "apps", "v1").unwrap());
    assert_eq!(list["groupVersion"], "apps/v1");
    let entries = list["resources"].as_array().unwrap();
    let find = |name: &str| entries.iter().find(|e| e["name"] == name).unwrap();
    assert_eq!(
        *find("deployments"),
        json!({"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["deploy"], "categories": ["all"]})
    );
    assert_eq!(
        *find("deployments/scale"),
        json!({"name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]})
    );
    assert_eq!(find("deployments/status")["kind"], "Deployment");
    let core = parse(&resource_list(&served(), "", "v1").unwrap());
    let names: Vec<&str> =
        core["resources"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"serviceaccounts/token"));
    assert!(
        !names.contains(&"pods/exec") && !names.contains(&"pods/log") && !names.contains(&"pods/eviction")
    );
    assert!(resource_list(&served(), "apps", "v2").is_none());
}

#[test]
fn aggregated_discovery_has_it_all() {
    let all = parse(&aggregated(&served(), false, AggregatedVersion::V2));
    assert_eq!(all["apiVersion"], "apidiscovery.k8s.io/v2");
    let items = all["items"].as_array().unwrap();
    let last = items.last().unwrap();
    assert_eq!(last["metadata"]["name"], "builtin.test");
    assert_eq!(last["versions"][0]["version"], "v1");
    assert_eq!(
        last["versions"][0]["resources"][0],
        json!({"resource": "widgets", "responseKind": {"group": "builtin.test", "version": "v1", "kind": "Widget"},
            "scope": "Namespaced", "singularResource": "widget", "shortNames": ["wd"], "categories": ["all"],
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [
                {"subresource": "scale", "verbs": ["get", "patch", "update"],
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}},
                {"subresource": "status", "verbs": ["get", "patch", "update"],
                    "responseKind": {"group": "builtin.test", "version": "v1", "kind": "Widget"}}]})
    );
    let core = parse(&aggregated(&served(), true, AggregatedVersion::V2Beta1));
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert_eq!(core["items"][0]["versions"][0]["version"], "v1");
    assert_ne!(etag(b"a"), etag(b"b"));
}

#[test]
fn the_index_names_a_document_for_each_version() {
    let served = served();
    let index = parse(&openapi_v3_index(&served));
    let paths = index["paths"].as_object().unwrap();
    for path in ["api/v1", "apis/apps/v1", "apis/builtin.test/v1", "apis/builtin.test/v1beta1"] {
        let url = paths[path]["serverRelativeURL"].as_str().unwrap();
        let hash = openapi_v3_hash(&served, path).unwrap();
        assert_eq!(url, format!("/openapi/v3/{path}?hash={hash}"));
        assert!(openapi_v3(&served, path).is_some());
    }
    assert!(openapi_v3(&served, "apis/none/v1").is_none());
    assert!(openapi_v3(&served, "nonsense").is_none());
    let without: Vec<Arc<Resource>> = served.iter().filter(|r| r.plural != "deployments").cloned().collect();
    assert_ne!(openapi_v3_hash(&served, "apis/apps/v1"), openapi_v3_hash(&without, "apis/apps/v1"));
    assert_eq!(openapi_v3_hash(&served, "api/v1"), openapi_v3_hash(&without, "api/v1"));
}

/// What kubectl does before it sends fieldValidation: find the PATCH of the kind and look for the parameter.
#[test]
fn kubectl_finds_field_validation_on_patches_of_every_kind() {
    let served = served();
    for resource in served.iter().filter(|r| r.verbs.contains(&"patch")) {
        let path = if resource.group.is_empty() {
            format!("api/{}", resource.version)
        } else {
            format!("apis/{}/{}", resource.group, resource.version)
        };
        let document = parse(&openapi_v3(&served, &path).unwrap());
        let found = document["paths"].as_object().unwrap().values().any(|item| {
            item["patch"]["x-kubernetes-group-version-kind"]
                == json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
                && item["patch"]["parameters"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|p| p["name"] == "fieldValidation")
        });
        assert!(found, "{}", resource.kind);
    }
}

/// What kubectl explain does: find the schema by group, version and kind, and follow references.
#[test]
fn schemas_are_found_by_kind_and_complete() {
    let served = served();
    for path in ["api/v1", "apis/apps/v1", "apis/builtin.test/v1"] {
        let text = String::from_utf8(openapi_v3(&served, path).unwrap().to_vec()).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for target in text.split("#/components/schemas/").skip(1) {
            let target = target.split('"').next().unwrap();
            assert!(schemas.contains_key(target), "{path} refers to {target}");
        }
    }
    let document = parse(&openapi_v3(&served, "apis/builtin.test/v1").unwrap());
    let widget = &document["components"]["schemas"]["test.builtin.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(widget["properties"]["spec"]["properties"]["s"]["description"], "text");
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "builtin.test", "version": "v1", "kind": "Widget"}])
    );
    assert!(document["components"]["schemas"].get("test.builtin.v1.WidgetList").is_some());
}

#[test]
fn the_old_document_has_no_words_of_the_new_one() {
    let text = String::from_utf8(openapi_v2(&served()).to_vec()).unwrap();
    assert!(!text.contains("#/components/"));
    assert!(!text.contains("\"oneOf\":["));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["swagger"], "2.0");
    let definitions = document["definitions"].as_object().unwrap();
    for target in text.split("#/definitions/").skip(1) {
        let target = target.split('"').next().unwrap();
        assert!(definitions.contains_key(target), "refers to {target}");
    }
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["type"], "string");
}

#[test]
fn the_version_can_be_read_by_clients() {
    let version = parse(&version());
    assert_eq!(version["major"], "1");
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.36.4+butler."));
}
