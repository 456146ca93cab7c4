//! Server-side apply: creating, owning, sharing and dropping fields.

use crate::fixtures::Crd;
use crate::harness::{APPLY_PATCH, Call, Cluster, MERGE_PATCH, Reply, managers, scenario, text};
use serde_json::{Value, json};

/// An entry of managedFields, as it is expected.
fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
    json!({
        "manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

async fn apply(c: &Cluster, crd: &Crd, manager: &str, spec: Value) -> Reply {
    c.apply(&crd.at("w"), manager, &crd.widget("w", spec)).await
}

#[tokio::test]
async fn applying_creates_what_is_not_there() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let spec = json!({"size": 1, "ports": [{"name": "x", "port": 1}], "tags": ["t"], "order": ["o"], "labels": {"a": "b"}});
        let made = apply(c, &crd, "one", spec.clone()).await;
        assert_eq!(made.ok(201)["spec"], spec);
        assert_eq!(made.body["metadata"]["generation"], 1);
        let fields = json!({"f:spec": {
            "f:labels": {"f:a": {}},
            "f:order": {},
            "f:ports": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:port": {}}},
            "f:size": {},
            "f:tags": {"v:\"t\"": {}},
        }});
        assert_eq!(managers(&made.body), [entry("one", "Apply", &crd.api_version(), fields)]);
        let again = apply(c, &crd, "one", spec).await;
        assert_eq!(*again.ok(200), made.body, "applying the same again changes nothing");
    })
    .await;
}

#[tokio::test]
async fn equal_values_are_owned_together() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1, "tags": ["a"], "ports": [{"name": "x", "port": 1}]}))
            .await
            .ok(201);
        let shared =
            apply(c, &crd, "two", json!({"size": 1, "tags": ["b"], "ports": [{"name": "x", "port": 1}]}))
                .await;
        let spec = json!({"size": 1, "tags": ["a", "b"], "ports": [{"name": "x", "port": 1}]});
        assert_eq!(shared.ok(200)["spec"], spec);
        let port = json!({"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:port": {}}});
        let fields = |tag: &str| json!({"f:spec": {"f:ports": port, "f:size": {}, "f:tags": {tag: {}}}});
        let version = crd.api_version();
        let mut got = managers(&shared.body);
        got.sort_by_key(|entry| text(&entry["manager"]).to_string());
        let expected = [
            entry("one", "Apply", &version, fields("v:\"a\"")),
            entry("two", "Apply", &version, fields("v:\"b\"")),
        ];
        assert_eq!(got, expected);
        let one_leaves = apply(c, &crd, "one", json!({})).await;
        let spec = json!({"size": 1, "tags": ["b"], "ports": [{"name": "x", "port": 1}]});
        assert_eq!(one_leaves.ok(200)["spec"], spec, "the other owner keeps them");
    })
    .await;
}

#[tokio::test]
async fn a_field_that_is_no_longer_applied_is_removed() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let spec = json!({"size": 1, "colour": "red", "ports": [{"name": "x"}, {"name": "y"}], "labels": {"a": "1", "b": "2"}});
        apply(c, &crd, "one", spec).await.ok(201);
        let less = apply(c, &crd, "one", json!({"size": 1, "ports": [{"name": "y"}], "labels": {"b": "2"}})).await;
        assert_eq!(less.ok(200)["spec"], json!({"size": 1, "ports": [{"name": "y"}], "labels": {"b": "2"}}));
        let least = apply(c, &crd, "one", json!({"size": 1})).await;
        assert_eq!(least.ok(200)["spec"], json!({"size": 1}));
        assert_eq!(least.body["metadata"]["generation"], 3);
    })
    .await;
}

#[tokio::test]
async fn what_others_wrote_stays() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1, "ports": [{"name": "x", "port": 1}]})).await.ok(201);
        let patch = json!({"spec": {"colour": "red", "ports": [{"name": "x", "port": 1, "note": "n"}]}});
        c.patch(&format!("{}?fieldManager=editor", crd.at("w")), MERGE_PATCH, &patch).await.ok(200);
        let again = apply(c, &crd, "one", json!({"ports": [{"name": "x", "port": 1}]})).await;
        let spec = json!({"colour": "red", "ports": [{"name": "x", "port": 1, "note": "n"}]});
        assert_eq!(again.ok(200)["spec"], spec);
        let editor = json!({"f:spec": {"f:colour": {}, "f:ports": {"k:{\"name\":\"x\"}": {"f:note": {}}}}});
        let entries = managers(&again.body);
        assert!(entries.contains(&entry("editor", "Update", &crd.api_version(), editor)), "{entries:#?}");
    })
    .await;
}

#[tokio::test]
async fn metadata_is_applied_too() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let apply = async |manager: &str, meta: Value| {
            let mut body = crd.widget("w", json!({}));
            for (key, value) in meta.as_object().unwrap() {
                body["metadata"][key] = value.clone();
            }
            c.apply(&crd.at("w"), manager, &body).await
        };
        let meta = json!({"labels": {"a": "1"}, "annotations": {"x": "y"}, "finalizers": ["example.com/a"]});
        apply("one", meta).await.ok(201);
        apply("two", json!({"labels": {"b": "1"}, "finalizers": ["example.com/b"]})).await.ok(200);
        let last = apply("one", json!({"labels": {"c": "1"}})).await;
        let meta = &last.ok(200)["metadata"];
        assert_eq!(meta["labels"], json!({"b": "1", "c": "1"}));
        assert_eq!(meta["finalizers"], json!(["example.com/b"]));
        assert_eq!(meta.get("annotations"), None);
        let fields = json!({
            "f:metadata": {"f:finalizers": {"v:\"example.com/b\"": {}}, "f:labels": {"f:b": {}}}, "f:spec": {},
        });
        let expected = entry("two", "Apply", &crd.api_version(), fields);
        assert!(managers(&last.body).contains(&expected), "{:#?}", managers(&last.body));
        c.patch(&crd.at("w"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn builtins_are_applied_by_their_own_lists() {
    scenario(async |c| {
        let path = format!("/api/v1/namespaces/{}/services/s", c.namespace().await);
        let apply = async |manager: &str, ports: Value| {
            let body = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports},
            });
            c.apply(&path, manager, &body).await
        };
        let tcp = |port: i64| json!({"port": port, "protocol": "TCP", "name": format!("p{port}")});
        apply("one", json!([tcp(80)])).await.ok(201);
        let both = apply("two", json!([tcp(81)])).await;
        let ports = both.ok(200)["spec"]["ports"].as_array().unwrap();
        assert_eq!(ports.iter().map(|p| p["port"].as_i64().unwrap()).collect::<Vec<_>>(), [80, 81]);
        let fields = json!({"f:spec": {"f:ports": {
            "k:{\"port\":81,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}},
        }}});
        assert!(
            managers(&both.body).contains(&entry("two", "Apply", "v1", fields)),
            "{:#?}",
            managers(&both.body)
        );
    })
    .await;
}

#[tokio::test]
async fn a_map_of_a_builtin_is_owned_key_by_key() {
    scenario(async |c| {
        let path = format!("{}/cm", c.configmaps().await);
        let apply = async |manager: &str, data: Value| {
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": data});
            c.apply(&path, manager, &body).await
        };
        let first = apply("one", json!({"a": "1", "b": "1"})).await;
        let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
        assert_eq!(managers(first.ok(201)), [entry("one", "Apply", "v1", fields)]);
        apply("two", json!({"a": "1"})).await.ok(200);
        assert_eq!(apply("one", json!({"b": "1"})).await.ok(200)["data"], json!({"a": "1", "b": "1"}));
        assert_eq!(apply("two", json!({})).await.ok(200)["data"], json!({"b": "1"}));
    })
    .await;
}

#[tokio::test]
async fn a_deployment_is_applied_by_its_merge_keys() {
    scenario(async |c| {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/d", c.namespace().await);
        let apply = async |manager: &str, containers: Value| {
            let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
            let body = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"selector": {"matchLabels": {"a": "b"}}, "replicas": 0, "template": template},
            });
            c.apply(&path, manager, &body).await
        };
        apply("one", json!([{"name": "main", "image": "i:1", "env": [{"name": "A", "value": "1"}]}]))
            .await
            .ok(201);
        let both = apply(
            "two",
            json!([{"name": "main", "image": "i:1", "env": [{"name": "B", "value": "2"}]},
            {"name": "side", "image": "s:1"}]),
        )
        .await;
        let containers = both.ok(200)["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let env: Vec<_> = containers[0]["env"].as_array().unwrap().iter().map(|e| text(&e["name"])).collect();
        assert_eq!(env, ["A", "B"]);
        assert_eq!(containers.iter().map(|c| text(&c["name"])).collect::<Vec<_>>(), ["main", "side"]);
    })
    .await;
}

#[tokio::test]
async fn the_status_is_applied_at_its_subresource() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1})).await.ok(201);
        let mut body = crd.widget("w", json!({"size": 5}));
        body["status"] = json!({"phase": "Ready"});
        let done = c.apply(&format!("{}/status", crd.at("w")), "controller", &body).await;
        assert_eq!(done.ok(200)["status"], json!({"phase": "Ready"}));
        assert_eq!(done.body["spec"], json!({"size": 1}), "the spec is left alone");
        let mut expected =
            entry("controller", "Apply", &crd.api_version(), json!({"f:status": {"f:phase": {}}}));
        expected["subresource"] = json!("status");
        assert!(managers(&done.body).contains(&expected), "{:#?}", managers(&done.body));
        body["spec"]["size"] = json!(1);
        body["status"]["phase"] = json!("Ignored");
        let main = c.apply(&crd.at("w"), "one", &body).await;
        assert_eq!(
            main.ok(200)["status"],
            json!({"phase": "Ready"}),
            "and the main resource leaves the status alone"
        );
    })
    .await;
}

#[tokio::test]
async fn applying_a_dry_run_writes_nothing() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let dry = c
            .apply(&format!("{}?dryRun=All", crd.at("w")), "one", &crd.widget("w", json!({"size": 1})))
            .await;
        assert_eq!(dry.ok(201)["spec"], json!({"size": 1}));
        assert_eq!(dry.body["metadata"].get("resourceVersion"), None);
        assert_eq!(c.get(&crd.at("w")).await.code, 404);
        apply(c, &crd, "one", json!({"size": 1})).await.ok(201);
        let dry = c
            .apply(&format!("{}?dryRun=All", crd.at("w")), "one", &crd.widget("w", json!({"size": 2})))
            .await;
        assert_eq!(dry.ok(200)["spec"], json!({"size": 2}));
        assert_eq!(c.get(&crd.at("w")).await.body["spec"], json!({"size": 1}));
    })
    .await;
}

#[tokio::test]
async fn managed_fields_can_be_reset() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1, "colour": "red"})).await.ok(201);
        let patch = json!({"metadata": {"managedFields": [{}]}});
        let reset = c.patch(&crd.at("w"), MERGE_PATCH, &patch).await;
        assert_eq!(reset.ok(200)["metadata"].get("managedFields"), None);
        let fresh = apply(c, &crd, "fresh", json!({"size": 1})).await;
        let entries = fresh.ok(200)["metadata"]["managedFields"].as_array().unwrap();
        let before = entries
            .iter()
            .find(|e| e["manager"] == "before-first-apply")
            .expect("what was there has an owner");
        assert_eq!(before["operation"], "Update");
        assert_eq!(before["fieldsV1"], json!({"f:spec": {".": {}, "f:colour": {}, "f:size": {}}}));
        assert_eq!(entries.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn yaml_is_applied() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let yaml = format!(
            "apiVersion: {}\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 3\n  order: [a, b]\n",
            crd.api_version()
        );
        let path = format!("{}?fieldManager=one", crd.at("w"));
        let made = c.send(Call::patch(&path, APPLY_PATCH).bytes(yaml)).await;
        assert_eq!(made.ok(201)["spec"], json!({"size": 3, "order": ["a", "b"]}));
    })
    .await;
}
