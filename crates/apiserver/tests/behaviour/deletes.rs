//! Delete: preconditions, finalizers, options and collections.

use crate::harness::{Call, MERGE_PATCH, configmap, names, scenario, text};
use serde_json::{Value, json};

fn held(name: &str) -> Value {
    let mut body = configmap(name);
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    body
}

#[tokio::test]
async fn a_delete_answers_with_a_status_that_names_the_object() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await;
        let reply = c.delete(&format!("{path}/a")).await;
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": made.body["metadata"]["uid"]},
        });
        assert_eq!(*reply.ok(200), expected);
        c.get(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
        c.delete(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
        let crd = c.widgets().await;
        let made = c.post(&crd.objects, &crd.widget("w", json!({}))).await;
        let reply = c.delete(&crd.at("w")).await;
        let expected = json!({
            "name": "w", "group": crd.group, "kind": "widgets", "uid": made.body["metadata"]["uid"],
        });
        assert_eq!(reply.ok(200)["details"], expected);
    })
    .await;
}

#[tokio::test]
async fn preconditions_must_hold() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &configmap("a")).await;
        let (uid, rv) = (text(&made.body["metadata"]["uid"]), made.resource_version());
        let object = format!("{path}/a");
        let reply = c.delete_with(&object, &json!({"preconditions": {"uid": "abc"}})).await;
        let message = format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (abc) does not match the UID \
             in record ({uid}). The object might have been deleted and then recreated"
        );
        let details = reply.refused(409, "Conflict", &message);
        assert_eq!(*details, json!({"name": "a", "kind": "ConfigMap"}));
        let reply = c.delete_with(&object, &json!({"preconditions": {"resourceVersion": "1"}})).await;
        let message = format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not \
             match the ResourceVersion in record ({rv}). The object might have been modified"
        );
        reply.refused(409, "Conflict", &message);
        c.get(&object).await.ok(200);
        c.delete_with(&object, &json!({"preconditions": {"uid": uid, "resourceVersion": rv}})).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn bad_delete_options_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let object = format!("{path}/a");
        let unsupported =
            |v: &str| format!("Unsupported value: \"{v}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"");
        let both = "Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set";
        let table = [
            (Call::delete(&object).json(&json!({"propagationPolicy": "Sideways"})), unsupported("Sideways")),
            (Call::delete(&format!("{object}?propagationPolicy=Bad")), unsupported("Bad")),
            (
                Call::delete(&object).json(&json!({"propagationPolicy": "Orphan", "orphanDependents": true})),
                both.to_string(),
            ),
        ];
        for (call, why) in table {
            let reply = c.send(call).await;
            reply.refused(422, "Invalid", &format!("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: {why}"));
            assert_eq!(reply.body["details"]["causes"][0]["field"], "propagationPolicy");
        }
        c.delete(&format!("{object}?gracePeriodSeconds=abc")).await.refused(
            400,
            "BadRequest",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        );
        let reply = c.delete_with(&object, &json!({"kind": "Foo", "apiVersion": "v1"})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        assert!(text(&reply.body["message"]).starts_with("no kind \"Foo\" is registered for version \"v1\""));
        let reply = c.send(Call::delete(&object).header("content-type", "application/json").bytes("{bad")).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        c.get(&object).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        assert_eq!(c.delete(&format!("{path}/a?dryRun=All")).await.ok(200)["status"], "Success");
        c.delete_with(&format!("{path}/a"), &json!({"dryRun": ["All"]})).await.ok(200);
        c.get(&format!("{path}/a")).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn a_finalizer_holds_the_object() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &held("a")).await.ok(201);
        let object = format!("{path}/a");
        let terminating = c.delete(&object).await;
        let meta = &terminating.ok(200)["metadata"];
        assert!(meta["deletionTimestamp"].is_string());
        assert_eq!(meta["deletionGracePeriodSeconds"], 0);
        assert_eq!(terminating.body["kind"], "ConfigMap", "the object comes back, not a status");
        assert_eq!(*c.get(&object).await.ok(200), terminating.body);
        assert_eq!(*c.delete(&object).await.ok(200), terminating.body, "again changes nothing");
        let updated = c.patch(&object, MERGE_PATCH, &json!({"data": {"x": "y"}})).await;
        assert_eq!(updated.ok(200)["data"]["x"], "y", "it can still be changed");
        let kept = c.patch(&object, MERGE_PATCH, &json!({"metadata": {"deletionTimestamp": null}})).await;
        assert!(kept.ok(200)["metadata"]["deletionTimestamp"].is_string());
        c.post(&path, &configmap("a")).await.refused(
            409,
            "AlreadyExists",
            "object is being deleted: configmaps \"a\" already exists",
        );
        let last = c.patch(&object, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await;
        assert_eq!(last.ok(200)["metadata"].get("finalizers"), None);
        c.get(&object).await.refused(404, "NotFound", "configmaps \"a\" not found");
    })
    .await;
}

#[tokio::test]
async fn no_finalizer_can_be_added_while_deleting() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("w", json!({}));
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        c.post(&crd.objects, &body).await.ok(201);
        let deleting = c.delete(&crd.at("w")).await;
        assert_eq!(deleting.ok(200)["metadata"]["generation"], 2, "the beginning of a deletion counts");
        let patch = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
        let why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{\"example.com/more\"}";
        let message = format!("{} \"w\" is invalid: metadata.finalizers: {why}", crd.kind());
        c.patch(&crd.at("w"), MERGE_PATCH, &patch).await.refused(422, "Invalid", &message);
        c.patch(&crd.at("w"), MERGE_PATCH, &json!({"metadata": {"finalizers": []}})).await.ok(200);
        c.gone(&crd.at("w")).await;
    })
    .await;
}

#[tokio::test]
async fn the_last_finalizer_can_go_by_update() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("w", json!({}));
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        c.post(&crd.objects, &body).await.ok(201);
        let mut deleting = c.delete(&crd.at("w")).await.body;
        deleting["metadata"].as_object_mut().unwrap().remove("finalizers");
        c.put(&crd.at("w"), &deleting).await.ok(200);
        let message = format!("{} \"w\" not found", crd.resource());
        c.get(&crd.at("w")).await.refused(404, "NotFound", &message);
    })
    .await;
}

#[tokio::test]
async fn a_finalizer_removed_before_the_deletion_does_not_hold() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &held("a")).await.ok(201);
        let object = format!("{path}/a");
        c.patch(&object, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.ok(200);
        c.get(&object).await.ok(200);
        c.delete(&object).await.ok(200);
        c.get(&object).await.refused(404, "NotFound", "configmaps \"a\" not found");
    })
    .await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    scenario(async |c| {
        let crd = c.widgets().await;
        for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
            let mut body = crd.widget(name, json!({}));
            body["metadata"]["labels"] = json!({"colour": colour});
            c.post(&crd.objects, &body).await.ok(201);
        }
        let reply = c
            .delete(&format!("{}?labelSelector=colour%3Dred&fieldSelector=metadata.name%21%3Dd", crd.objects))
            .await;
        assert_eq!(reply.ok(200)["kind"], "WidgetList");
        assert_eq!(names(&reply.body), ["a", "c"]);
        assert_eq!(names(c.get(&crd.objects).await.ok(200)), ["b", "d"]);
        let none = c.delete(&format!("{}?labelSelector=colour%3Dgreen", crd.objects)).await;
        assert_eq!(none.ok(200)["items"], json!([]));
        c.delete(&format!("{}?dryRun=All", crd.objects)).await.ok(200);
        assert_eq!(names(c.get(&crd.objects).await.ok(200)), ["b", "d"]);
        c.delete(&crd.objects).await.ok(200);
        assert_eq!(names(c.get(&crd.objects).await.ok(200)), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_collection_with_finalizers_stays_until_they_go() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &held("a")).await.ok(201);
        let mut labelled = configmap("b");
        labelled["metadata"]["labels"] = json!({"x": "y"});
        c.post(&path, &labelled).await.ok(201);
        c.delete(&format!("{path}?fieldSelector=metadata.name%21%3Dkube-root-ca.crt")).await.ok(200);
        c.get(&format!("{path}/b")).await.refused(404, "NotFound", "configmaps \"b\" not found");
        let held = c.get(&format!("{path}/a")).await;
        assert!(held.ok(200)["metadata"]["deletionTimestamp"].is_string());
        c.patch(&format!("{path}/a"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.ok(200);
        c.gone(&format!("{path}/a")).await;
    })
    .await;
}

#[tokio::test]
async fn namespaces_have_no_collection_delete() {
    scenario(async |c| {
        let reply = c.delete("/api/v1/namespaces").await;
        let message = "the server does not allow this method on the requested resource";
        assert_eq!(*reply.refused(405, "MethodNotAllowed", message), json!({}));
    })
    .await;
}

#[tokio::test]
async fn delete_options_are_read_in_yaml_too() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let options = "kind: DeleteOptions\napiVersion: v1\npreconditions:\n  uid: abc\n";
        let call =
            Call::delete(&format!("{path}/a")).header("content-type", "application/yaml").bytes(options);
        assert_eq!(c.send(call).await.code, 409);
    })
    .await;
}

#[tokio::test]
async fn options_that_are_not_understood_delete_nothing() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let object = format!("{path}/a");
        for (options, code) in [
            (json!({"dryRun": ["all"]}), 422),
            (json!({"dryRun": ["All", "x"]}), 422),
            (json!({"dryRun": "All"}), 400),
            (json!({"preconditions": {"uid": 5}}), 400),
            (json!({"preconditions": {"resourceVersion": 5}}), 400),
            (json!({"preconditions": []}), 400),
            (json!({"propagationPolicy": 5}), 400),
            (json!({"orphanDependents": "x"}), 400),
            (json!({"gracePeriodSeconds": "x"}), 400),
        ] {
            let reply = c.delete_with(&object, &options).await;
            assert_eq!(reply.code, code, "{options}: {}", reply.text);
        }
        assert_eq!(c.delete("/api/v1/configmaps").await.code, 405, "not all namespaces at once");
        c.get(&object).await.ok(200);
    })
    .await;
}
