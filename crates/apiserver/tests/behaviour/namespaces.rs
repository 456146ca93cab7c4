//! The life of a namespace.

use crate::harness::{APPLY_PATCH, MERGE_PATCH, configmap, scenario, text};
use serde_json::json;

#[tokio::test]
async fn a_new_namespace_is_active() {
    scenario(async |c| {
        let name = c.namespace().await;
        let path = format!("/api/v1/namespaces/{name}");
        let namespace = c.get(&path).await;
        assert_eq!(namespace.ok(200)["status"], json!({"phase": "Active"}));
        assert_eq!(namespace.body["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace.body["metadata"]["labels"], json!({"kubernetes.io/metadata.name": name}));
        let account = format!("{path}/serviceaccounts/default");
        c.until(&account, "the default service account", |reply| reply.code == 200).await;
        let root = format!("{path}/configmaps/kube-root-ca.crt");
        let map = c.until(&root, "the root certificate", |reply| reply.code == 200).await;
        assert!(text(&map.body["data"]["ca.crt"]).starts_with("-----BEGIN CERTIFICATE-----\n"));
    })
    .await;
}

#[tokio::test]
async fn the_system_namespaces_are_there_and_stay() {
    scenario(async |c| {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            assert_eq!(
                c.get(&format!("/api/v1/namespaces/{name}")).await.ok(200)["status"]["phase"],
                "Active"
            );
        }
        for name in ["default", "kube-system", "kube-public"] {
            let reply = c.delete(&format!("/api/v1/namespaces/{name}")).await;
            let message = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
            assert_eq!(
                *reply.refused(403, "Forbidden", &message),
                json!({"name": name, "kind": "namespaces"})
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_namespaces_name_is_a_label() {
    scenario(async |c| {
        let post = async |name: &str| c.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        let why = "Invalid value: \"a.b\": must not contain dots";
        post("a.b").await.invalid(
            &format!("Namespace \"a.b\" is invalid: metadata.name: {why}"),
            &[("FieldValueInvalid", "metadata.name", why)],
        );
        let why = "Invalid value: \"Bad\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
             '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        post("Bad").await.invalid(
            &format!("Namespace \"Bad\" is invalid: metadata.name: {why}"),
            &[("FieldValueInvalid", "metadata.name", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn deleting_a_namespace_deletes_what_is_in_it() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let path = format!("/api/v1/namespaces/{}", crd.namespace);
        c.post(&format!("{path}/configmaps"), &configmap("a")).await.ok(201);
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        let deleted = c.delete(&path).await;
        assert_eq!(deleted.ok(200)["status"]["phase"], "Terminating");
        assert!(deleted.body["metadata"]["deletionTimestamp"].is_string());
        c.gone(&path).await;
        c.get(&format!("{path}/configmaps/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
        assert_eq!(c.get(&crd.at("w")).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn a_terminating_namespace_takes_nothing_new_and_waits_for_finalizers() {
    scenario(async |c| {
        let name = c.namespace().await;
        let path = format!("/api/v1/namespaces/{name}");
        let maps = format!("{path}/configmaps");
        let mut held = configmap("held");
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        c.post(&maps, &held).await.ok(201);
        c.delete(&path).await.ok(200);
        let message = format!(
            "configmaps \"late\" is forbidden: unable to create new content in namespace {name} because it is being \
             terminated"
        );
        let cause = format!("namespace {name} is being terminated");
        let expected = json!({
            "name": "late", "kind": "configmaps",
            "causes": [{"reason": "NamespaceTerminating", "message": cause, "field": "metadata.namespace"}],
        });
        let late = configmap("late");
        assert_eq!(*c.post(&maps, &late).await.refused(403, "Forbidden", &message), expected);
        let apply = c.patch(&format!("{maps}/late?fieldManager=x"), APPLY_PATCH, &late).await;
        assert_eq!(*apply.refused(403, "Forbidden", &message), expected);
        c.patch(&format!("{maps}/held"), MERGE_PATCH, &json!({"data": {"still": "changes"}})).await.ok(200);
        let again = format!("object is being deleted: namespaces \"{name}\" already exists");
        c.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.refused(409, "AlreadyExists", &again);
        c.until(&format!("{maps}/held"), "the held object to be marked", |reply| {
            reply.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        assert_eq!(c.get(&path).await.ok(200)["status"]["phase"], "Terminating");
        c.patch(&format!("{maps}/held"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.ok(200);
        c.gone(&path).await;
    })
    .await;
}

#[tokio::test]
async fn a_namespaces_finalizers_and_phase_are_not_edited_by_hand() {
    scenario(async |c| {
        let name = c.namespace().await;
        let path = format!("/api/v1/namespaces/{name}");
        let patched = c.patch(&path, MERGE_PATCH, &json!({"spec": {"finalizers": ["foo"]}})).await;
        assert_eq!(patched.ok(200)["spec"]["finalizers"], json!(["kubernetes"]));
        let reply = c
            .patch(&format!("{path}/status"), MERGE_PATCH, &json!({"status": {"phase": "Terminating"}}))
            .await;
        let why = "Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty";
        let message = format!("Namespace \"{name}\" is invalid: status.Phase: {why}");
        reply.invalid(&message, &[("FieldValueInvalid", "status.Phase", why)]);
    })
    .await;
}
