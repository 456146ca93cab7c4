//! Server-side apply: conflicts, force, and patches that are refused.

use crate::fixtures::Crd;
use crate::harness::{APPLY_PATCH, Call, Cluster, MERGE_PATCH, Reply, as_causes, managers, scenario, text};
use serde_json::{Value, json};

async fn apply(c: &Cluster, crd: &Crd, manager: &str, spec: Value) -> Reply {
    c.apply(&crd.at("w"), manager, &crd.widget("w", spec)).await
}

#[tokio::test]
async fn different_values_conflict() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1, "order": ["o"], "ports": [{"name": "x", "port": 1}]}))
            .await
            .ok(201);
        let reply = apply(c, &crd, "two", json!({"size": 2})).await;
        let details =
            reply.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"one\": .spec.size");
        assert_eq!(as_causes(details), [("FieldManagerConflict", ".spec.size", "conflict with \"one\"")]);
        let reply =
            apply(c, &crd, "two", json!({"size": 2, "order": ["p"], "ports": [{"name": "x", "port": 2}]}))
                .await;
        let details = reply.refused(
            409,
            "Conflict",
            "Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.order\n- .spec.size\n- \
             .spec.ports[name=\"x\"].port",
        );
        let conflict = |field| ("FieldManagerConflict", field, "conflict with \"one\"");
        let expected =
            [conflict(".spec.order"), conflict(".spec.size"), conflict(".spec.ports[name=\"x\"].port")];
        assert_eq!(as_causes(details), expected);
        assert_eq!(c.get(&crd.at("w")).await.body["spec"]["size"], 1);
    })
    .await;
}

#[tokio::test]
async fn a_conflict_with_an_update_names_its_version() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1})).await.ok(201);
        let path = format!("{}?fieldManager=editor", crd.at("w"));
        c.patch(&path, MERGE_PATCH, &json!({"spec": {"size": 9}})).await.ok(200);
        let reply = apply(c, &crd, "one", json!({"size": 1})).await;
        let who = format!("conflict with \"editor\" using {}", crd.api_version());
        let details =
            reply.refused(409, "Conflict", &format!("Apply failed with 1 conflict: {who}: .spec.size"));
        assert_eq!(as_causes(details), [("FieldManagerConflict", ".spec.size", who.as_str())]);
    })
    .await;
}

#[tokio::test]
async fn conflicts_with_several_managers_are_grouped() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1})).await.ok(201);
        apply(c, &crd, "two", json!({"colour": "red", "order": ["a"]})).await.ok(200);
        let reply = apply(c, &crd, "three", json!({"size": 2, "colour": "blue", "order": ["b"]})).await;
        reply.refused(
            409,
            "Conflict",
            "Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.size\nconflicts with \"two\":\n- \
             .spec.colour\n- .spec.order",
        );
    })
    .await;
}

#[tokio::test]
async fn a_conflict_with_a_subresource_says_so() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1})).await.ok(201);
        let mut body = crd.widget("w", json!({}));
        body["status"] = json!({"phase": "Ready"});
        let status = format!("{}/status", crd.at("w"));
        c.apply(&status, "controller", &body).await.ok(200);
        body["status"]["phase"] = json!("Bad");
        let reply = c.apply(&status, "other", &body).await;
        let who = "conflict with \"controller\" with subresource \"status\"";
        let details =
            reply.refused(409, "Conflict", &format!("Apply failed with 1 conflict: {who}: .status.phase"));
        assert_eq!(as_causes(details), [("FieldManagerConflict", ".status.phase", who)]);
    })
    .await;
}

#[tokio::test]
async fn force_takes_the_fields_over() {
    scenario(async |c| {
        let crd = c.widgets().await;
        apply(c, &crd, "one", json!({"size": 1, "colour": "red"})).await.ok(201);
        let path = format!("{}?force=true", crd.at("w"));
        let forced = c.apply(&path, "two", &crd.widget("w", json!({"size": 2}))).await;
        assert_eq!(forced.ok(200)["spec"], json!({"size": 2, "colour": "red"}));
        let owned = |manager: &str| {
            let entries = managers(&forced.body);
            entries.into_iter().find(|e| e["manager"] == manager).expect("the manager is there")["fieldsV1"]
                .clone()
        };
        assert_eq!(owned("one"), json!({"f:spec": {"f:colour": {}}}));
        assert_eq!(owned("two"), json!({"f:spec": {"f:size": {}}}));
        let back = apply(c, &crd, "one", json!({"colour": "red"})).await;
        assert_eq!(
            back.ok(200)["spec"],
            json!({"size": 2, "colour": "red"}),
            "what was taken is not removed"
        );
    })
    .await;
}

#[tokio::test]
async fn an_update_takes_fields_without_asking() {
    scenario(async |c| {
        let path = format!("{}/cm", c.configmaps().await);
        let body = |value: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": value}})
        };
        c.apply(&path, "one", &body("1")).await.ok(201);
        let put = c.put(&format!("{path}?fieldManager=putter"), &body("2")).await;
        let entries = managers(put.ok(200));
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(entries[0]["manager"], "putter");
        // Its fields are all taken, so the first applier is gone from the list; the next apply of it conflicts.
        let reply = c.apply(&path, "one", &body("1")).await;
        reply.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"putter\" using v1: .data.a");
        assert_eq!(c.apply(&format!("{path}?force=true"), "one", &body("1")).await.ok(200)["data"], json!({"a": "1"}));
    })
    .await;
}

#[tokio::test]
async fn a_manager_is_required() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let why = "Required value: is required for apply patch";
        c.patch(&crd.at("w"), APPLY_PATCH, &crd.widget("w", json!({}))).await.invalid(
            &format!("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: {why}"),
            &[("FieldValueRequired", "fieldManager", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn an_applied_object_must_say_what_it_is() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let apply = async |body: Value| c.apply(&crd.at("w"), "one", &body).await;
        let (group, version) = (&crd.group, crd.api_version());
        let meta = json!({"name": "w"});
        apply(json!({"metadata": meta})).await.refused(400, "BadRequest", "invalid object type: /, Kind=");
        let body = json!({"apiVersion": version, "kind": "Gadget", "metadata": meta});
        apply(body).await.refused(400, "BadRequest", &format!("invalid object type: {version}, Kind=Gadget"));
        let body = json!({"apiVersion": format!("{group}/v9"), "kind": "Widget", "metadata": meta});
        apply(body).await.refused(400, "BadRequest", &format!("invalid object type: {group}/v9, Kind=Widget"));
        apply(json!({"apiVersion": version, "kind": "Widget"})).await.refused(
            400,
            "BadRequest",
            "the name of the object (w based on URL) was undeterminable: name must be provided",
        );
        apply(json!({"apiVersion": version, "kind": "Widget", "metadata": {"name": "other"}})).await.refused(
            400,
            "BadRequest",
            "the name of the object (other) does not match the name on the URL (w)",
        );
        let body = json!({"apiVersion": version, "kind": "Widget", "metadata": {"name": "w", "managedFields": [{}]}});
        apply(body).await.refused(400, "BadRequest", "metadata.managedFields must be nil");
        assert_eq!(c.get(&crd.at("w")).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn an_applied_object_must_fit_the_schema() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let table = [
            (json!({"size": "big"}), ".spec.size: expected numeric (int or float), got string"),
            (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
            (
                json!({"ports": [{"port": 1}]}),
                ".spec.ports: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
                 (and doesn't have default values for any key fields)",
            ),
            (json!({"ports": [{"name": "a"}, {"name": "a"}]}), ".spec.ports: duplicate entries for key [name=\"a\"]"),
            (json!({"tags": ["a", "a"]}), ".spec.tags: duplicate entries for key [=\"a\"]"),
        ];
        for (spec, why) in table {
            let reply = apply(c, &crd, "one", spec).await;
            assert_eq!(reply.code, 500, "{why}: {}", reply.text);
            let message = format!(
                "failed to create typed patch object ({}/w; {}, Kind=Widget): {why}",
                crd.namespace,
                crd.api_version()
            );
            assert_eq!(text(&reply.body["message"]), message);
        }
        assert_eq!(c.get(&crd.at("w")).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn bad_yaml_is_refused() {
    scenario(async |c| {
        let crd = c.widgets().await;
        for body in ["{\"apiVersion\":", "- a\n- b", "a: b: c"] {
            let path = format!("{}?fieldManager=one", crd.at("w"));
            let reply = c.send(Call::patch(&path, APPLY_PATCH).bytes(body)).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"), "{body}");
            let message = text(&reply.body["message"]);
            assert!(message.starts_with("error decoding YAML: "), "{message}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_version_or_uid_in_an_apply_is_a_precondition() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("w", json!({}));
        body["metadata"]["resourceVersion"] = json!("1");
        c.apply(&crd.at("w"), "one", &body).await.ok(201);
        let message = format!(
            "Operation cannot be fulfilled on {} \"w\": the object has been modified; please apply your changes to the \
             latest version and try again",
            crd.resource()
        );
        c.apply(&crd.at("w"), "one", &body).await.refused(409, "Conflict", &message);
        let mut body = crd.widget("w", json!({}));
        body["metadata"]["uid"] = json!("123");
        let message =
            format!("{} \"w\" is invalid: metadata.uid: Invalid value: \"123\": field is immutable", crd.kind());
        c.apply(&crd.at("w"), "one", &body).await.refused(422, "Invalid", &message);
    })
    .await;
}
