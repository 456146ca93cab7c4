//! The status and scale subresources.

use crate::fixtures::Crd;
use crate::harness::{Cluster, MERGE_PATCH, scenario, text};
use serde_json::{Value, json};

async fn scalable(c: &Cluster) -> Crd {
    c.widgets_with(|crd| {
        let version = &mut crd["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"] =
            json!({"type": "integer"});
        version["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    })
    .await
}

#[tokio::test]
async fn the_status_changes_the_status_only() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let made = c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await;
        let mut body = made.body.clone();
        body["spec"]["size"] = json!(99);
        body["status"] = json!({"phase": "Ready"});
        body["metadata"]["labels"] = json!({"x": "y"});
        let updated = c.put(&format!("{}/status", crd.at("w")), &body).await;
        assert_eq!(updated.ok(200)["status"], json!({"phase": "Ready"}));
        assert_eq!(updated.body["spec"], json!({"size": 1}));
        assert_eq!(updated.body["metadata"].get("labels"), None);
        assert_eq!(updated.body["metadata"]["generation"], 1);
        assert_ne!(updated.resource_version(), made.resource_version());
        assert_eq!(c.get(&format!("{}/status", crd.at("w"))).await.ok(200), &updated.body);
    })
    .await;
}

#[tokio::test]
async fn the_main_resource_leaves_the_status_alone() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await.ok(201);
        let status = format!("{}/status", crd.at("w"));
        c.patch(&status, MERGE_PATCH, &json!({"status": {"phase": "Ready"}})).await.ok(200);
        let body = json!({"spec": {"size": 2}, "status": {"phase": "Forged"}});
        let patched = c.patch(&crd.at("w"), MERGE_PATCH, &body).await;
        assert_eq!(patched.ok(200)["status"], json!({"phase": "Ready"}));
        assert_eq!(patched.body["spec"], json!({"size": 2}));
    })
    .await;
}

#[tokio::test]
async fn a_status_conflicts_like_any_update() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = c.post(&crd.objects, &crd.widget("w", json!({}))).await.body;
        c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"size": 3}})).await.ok(200);
        body["status"] = json!({"phase": "Late"});
        let reply = c.put(&format!("{}/status", crd.at("w")), &body).await;
        let message = format!(
            "Operation cannot be fulfilled on {} \"w\": the object has been modified; please apply your changes to the \
             latest version and try again",
            crd.resource()
        );
        reply.refused(409, "Conflict", &message);
    })
    .await;
}

#[tokio::test]
async fn a_kind_without_subresources_has_no_such_paths() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                crd["spec"]["versions"][0].as_object_mut().unwrap().remove("subresources");
            })
            .await;
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        for part in ["status", "scale", "nonsense"] {
            let reply = c.get(&format!("{}/{part}", crd.at("w"))).await;
            assert_eq!(reply.code, 404, "{part}: {}", reply.text);
        }
    })
    .await;
}

#[tokio::test]
async fn the_status_of_nothing_is_not_found() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let message = format!("{} \"nope\" not found", crd.resource());
        let status = format!("{}/status", crd.at("nope"));
        c.get(&status).await.refused(404, "NotFound", &message);
        c.patch(&status, MERGE_PATCH, &json!({"status": {}})).await.refused(404, "NotFound", &message);
    })
    .await;
}

#[tokio::test]
async fn a_scale_reads_and_writes_replicas() {
    scenario(async |c| {
        let crd = scalable(c).await;
        let made = c.post(&crd.objects, &crd.widget("w", json!({"replicas": 3, "size": 1}))).await;
        let scale = format!("{}/scale", crd.at("w"));
        let read = c.get(&scale).await;
        let meta = &made.body["metadata"];
        let expected = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": "w", "namespace": crd.namespace, "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"],
            },
            "spec": {"replicas": 3}, "status": {"replicas": 0},
        });
        assert_eq!(*read.ok(200), expected);
        let body = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 7},
        });
        assert_eq!(c.put(&scale, &body).await.ok(200)["spec"], json!({"replicas": 7}));
        assert_eq!(c.patch(&scale, MERGE_PATCH, &json!({"spec": {"replicas": 8}})).await.ok(200)["spec"]["replicas"], 8);
        let object = c.get(&crd.at("w")).await;
        assert_eq!(object.ok(200)["spec"], json!({"replicas": 8, "size": 1}));
        assert_eq!(object.body["metadata"]["generation"], 3);
        let status = json!({"status": {"replicas": 5, "selector": "a=b"}});
        c.patch(&format!("{}/status", crd.at("w")), MERGE_PATCH, &status).await.ok(200);
        assert_eq!(c.get(&scale).await.ok(200)["status"], json!({"replicas": 5, "selector": "a=b"}));
    })
    .await;
}

#[tokio::test]
async fn bad_scales_are_refused() {
    scenario(async |c| {
        let crd = scalable(c).await;
        c.post(&crd.objects, &crd.widget("w", json!({"replicas": 1}))).await.ok(201);
        c.post(&crd.objects, &crd.widget("none", json!({}))).await.ok(201);
        let scale = format!("{}/scale", crd.at("w"));
        let why = "Invalid value: -1: should be a non-negative integer";
        c.patch(&scale, MERGE_PATCH, &json!({"spec": {"replicas": -1}})).await.invalid(
            &format!("{} \"w\" is invalid: .spec.replicas: {why}", crd.kind()),
            &[("FieldValueInvalid", ".spec.replicas", why)],
        );
        let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}});
        let reply = c.patch(&scale, MERGE_PATCH, &stale).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (409, "Conflict"));
        let reply = c.get(&format!("{}/scale", crd.at("none"))).await;
        let why = "the spec replicas field \".spec.replicas\" does not exist";
        let details = reply.refused(500, "InternalError", &format!("Internal error occurred: {why}"));
        assert_eq!(*details, json!({"causes": [{"message": why}]}));
    })
    .await;
}

#[tokio::test]
async fn managed_fields_tell_the_subresource() {
    scenario(async |c| {
        let crd = scalable(c).await;
        c.post(&format!("{}?fieldManager=maker", crd.objects), &crd.widget("w", json!({"size": 1})))
            .await
            .ok(201);
        let status = format!("{}/status?fieldManager=keeper", crd.at("w"));
        let patched = c.patch(&status, MERGE_PATCH, &json!({"status": {"phase": "Ready"}})).await;
        let entries = patched.ok(200)["metadata"]["managedFields"].as_array().unwrap().clone();
        let of = |manager: &str| -> Value {
            entries.iter().find(|e| e["manager"] == manager).expect("the manager is there").clone()
        };
        assert_eq!(of("keeper")["subresource"], "status");
        assert_eq!(of("keeper")["fieldsV1"], json!({"f:status": {".": {}, "f:phase": {}}}));
        assert_eq!(of("maker").get("subresource"), None);
        assert_eq!(of("maker")["fieldsV1"], json!({"f:spec": {".": {}, "f:size": {}}}));
    })
    .await;
}

#[tokio::test]
async fn a_deployment_scales() {
    scenario(async |c| {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", c.namespace().await);
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let body = json!({
            "metadata": {"name": "d"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        });
        c.post(&path, &body).await.ok(201);
        let scale = c.get(&format!("{path}/d/scale")).await;
        assert_eq!(scale.ok(200)["kind"], "Scale");
        assert_eq!(scale.body["status"]["selector"], "a=b");
        let patch = json!({"metadata": {"annotations": {"x": "y"}}, "spec": {"replicas": 0}});
        c.patch(&format!("{path}/d/scale"), MERGE_PATCH, &patch).await.ok(200);
    })
    .await;
}
