//! Update: conflicts, immutable metadata, no-ops and generations.

use crate::harness::{configmap, resource_version, scenario, text};
use serde_json::{Value, json};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

#[tokio::test]
async fn an_update_with_a_stale_version_conflicts() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let first = c.post(&path, &configmap("a")).await.body;
        let mut second = first.clone();
        second["data"]["key"] = json!("two");
        let updated = c.put(&format!("{path}/a"), &second).await;
        assert_eq!(updated.ok(200)["data"], json!({"key": "two"}));
        assert_ne!(updated.resource_version(), resource_version(&first));
        let mut stale = first.clone();
        stale["data"]["key"] = json!("three");
        let reply = c.put(&format!("{path}/a"), &stale).await;
        let message = format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}");
        let details = reply.refused(409, "Conflict", &message);
        assert_eq!(*details, json!({"name": "a", "kind": "configmaps"}));
        assert_eq!(c.get(&format!("{path}/a")).await.body["data"], json!({"key": "two"}));
    })
    .await;
}

#[tokio::test]
async fn a_builtin_may_be_updated_without_a_version_and_a_custom_resource_may_not() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let mut body = configmap("a");
        body["data"] = json!({"other": "1"});
        assert_eq!(c.put(&format!("{path}/a"), &body).await.ok(200)["data"], json!({"other": "1"}));
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await.ok(201);
        let reply = c.put(&crd.at("w"), &crd.widget("w", json!({"size": 2}))).await;
        let why = "Invalid value: 0: must be specified for an update";
        reply.invalid(
            &format!("{} \"w\" is invalid: metadata.resourceVersion: {why}", crd.resource()),
            &[("FieldValueInvalid", "metadata.resourceVersion", why)],
        );
        assert_eq!(*reply.refused(422, "Invalid", text(&reply.body["message"])), reply.body["details"]);
    })
    .await;
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_version() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await.body;
        let same = c.put(&format!("{path}/a"), &made).await;
        assert_eq!(same.ok(200), &made);
        let crd = c.widgets().await;
        let made = c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await.body;
        let same = c.put(&crd.at("w"), &made).await;
        assert_eq!(same.ok(200), &made);
        let same = c.patch(&crd.at("w"), crate::harness::MERGE_PATCH, &json!({"spec": {"size": 1}})).await;
        assert_eq!(same.ok(200), &made);
    })
    .await;
}

#[tokio::test]
async fn names_and_namespaces_must_match_the_path() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let put = async |body: Value| c.put(&format!("{path}/a"), &body).await;
        put(configmap("b")).await.refused(
            400,
            "BadRequest",
            "the name of the object (b) does not match the name on the URL (a)",
        );
        put(json!({"metadata": {}})).await.refused(
            400,
            "BadRequest",
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        );
        let mut elsewhere = configmap("a");
        elsewhere["metadata"]["namespace"] = json!("elsewhere");
        put(elsewhere).await.refused(
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        );
    })
    .await;
}

#[tokio::test]
async fn updating_what_is_not_there_is_not_found() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let reply = c.put(&format!("{path}/nope"), &configmap("nope")).await;
        let details = reply.refused(404, "NotFound", "configmaps \"nope\" not found");
        assert_eq!(*details, json!({"name": "nope", "kind": "configmaps"}));
        let crd = c.widgets().await;
        let mut body = crd.widget("nope", json!({}));
        body["metadata"]["resourceVersion"] = json!("1");
        let reply = c.put(&crd.at("nope"), &body).await;
        reply.refused(404, "NotFound", &format!("{} \"nope\" not found", crd.resource()));
    })
    .await;
}

#[tokio::test]
async fn a_uid_in_the_body_is_a_precondition() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await.body;
        let mut body = configmap("a");
        body["metadata"]["uid"] = json!("abc");
        let reply = c.put(&format!("{path}/a"), &body).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (409, "Conflict"));
        let message = text(&reply.body["message"]);
        assert!(message.starts_with("Operation cannot be fulfilled on configmaps \"a\": "), "{message}");
        let end = format!(
            "Precondition failed: UID in precondition: abc, UID in object meta: {}",
            text(&made["metadata"]["uid"])
        );
        assert!(message.ends_with(&end), "{message}");
    })
    .await;
}

#[tokio::test]
async fn a_malformed_version_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let mut body = configmap("a");
        body["metadata"]["resourceVersion"] = json!("abc");
        let reply = c.put(&format!("{path}/a"), &body).await;
        assert_eq!(reply.code, 500, "{}", reply.text);
        assert_eq!(reply.body["message"], "strconv.ParseUint: parsing \"abc\": invalid syntax");
    })
    .await;
}

#[tokio::test]
async fn the_servers_own_metadata_is_kept() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await.body;
        let mut body = configmap("a");
        body["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
        body["data"]["key"] = json!("two");
        let updated = c.put(&format!("{path}/a"), &body).await;
        assert_eq!(updated.ok(200)["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
        assert_eq!(updated.body["metadata"]["uid"], made["metadata"]["uid"]);
        body["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        let why = "Invalid value: \"2020-01-01T00:00:00Z\": field is immutable";
        let reply = c.put(&format!("{path}/a"), &body).await;
        reply.refused(
            422,
            "Invalid",
            &format!("ConfigMap \"a\" is invalid: metadata.deletionTimestamp: {why}"),
        );
    })
    .await;
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut object = c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await.body;
        assert_eq!(object["metadata"]["generation"], 1);
        object["metadata"]["labels"] = json!({"a": "b"});
        object = c.put(&crd.at("w"), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 1, "a label is not the spec");
        object["spec"]["size"] = json!(2);
        object = c.put(&crd.at("w"), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 2);
        object["metadata"]["generation"] = json!(40);
        object["metadata"]["labels"] = json!({"a": "c"});
        object = c.put(&crd.at("w"), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 2, "clients can't set it");
        object["status"] = json!({"phase": "Ready"});
        object = c.put(&format!("{}/status", crd.at("w")), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 2, "the status is not the spec");
        assert_eq!(object["status"], json!({"phase": "Ready"}));
    })
    .await;
}

#[tokio::test]
async fn without_a_status_subresource_generation_counts_all_but_metadata() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                let version = crd["spec"]["versions"][0].as_object_mut().unwrap();
                version.remove("subresources");
            })
            .await;
        let mut body = crd.widget("w", json!({"size": 1}));
        body["status"] = json!({"phase": "New"});
        let mut object = c.post(&crd.objects, &body).await.body;
        assert_eq!(object["status"], json!({"phase": "New"}));
        object["status"]["phase"] = json!("Ready");
        object = c.put(&crd.at("w"), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 2);
        object["metadata"]["annotations"] = json!({"a": "b"});
        object = c.put(&crd.at("w"), &object).await.body;
        assert_eq!(object["metadata"]["generation"], 2);
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_update_writes_nothing() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await.body;
        let mut body = made.clone();
        body["data"]["key"] = json!("two");
        let dry = c.put(&format!("{path}/a?dryRun=All"), &body).await;
        assert_eq!(dry.ok(200)["data"]["key"], "two");
        assert_eq!(c.get(&format!("{path}/a")).await.body, made);
    })
    .await;
}

#[tokio::test]
async fn update_options_are_checked() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let why = "Unsupported value: [\"None\"]: supported values: \"All\"";
        c.put(&format!("{path}/a?dryRun=None"), &configmap("a")).await.invalid(
            &format!("UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: {why}"),
            &[("FieldValueNotSupported", "dryRun", why)],
        );
    })
    .await;
}
