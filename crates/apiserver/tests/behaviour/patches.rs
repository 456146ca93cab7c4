//! JSON, merge and strategic merge patches.

use crate::harness::{
    Call, Cluster, JSON_PATCH, MERGE_PATCH, Reply, STRATEGIC_PATCH, configmap, scenario, text,
};
use serde_json::{Value, json};

const REJECTED: &str = "the server rejected our request due to an error in our request";

/// A ConfigMap `a` with `key: value`; gives its path.
async fn one(c: &Cluster) -> String {
    let path = c.configmaps().await;
    c.post(&path, &configmap("a")).await.ok(201);
    format!("{path}/a")
}

/// A Service with two ports; gives its path.
async fn service(c: &Cluster) -> String {
    let path = format!("/api/v1/namespaces/{}/services", c.namespace().await);
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
    c.post(&path, &json!({"metadata": {"name": "s"}, "spec": {"ports": ports}})).await.ok(201);
    format!("{path}/s")
}

/// (name, port) of a Service's ports.
fn ports(reply: &Reply) -> Vec<(&str, i64)> {
    let ports = reply.ok(200)["spec"]["ports"].as_array().unwrap();
    ports.iter().map(|p| (text(&p["name"]), p["port"].as_i64().unwrap())).collect()
}

#[tokio::test]
async fn a_merge_patch_sets_and_removes() {
    scenario(async |c| {
        let path = one(c).await;
        let patched = c.patch(&path, MERGE_PATCH, &json!({"data": {"more": "x"}})).await;
        assert_eq!(patched.ok(200)["data"], json!({"key": "value", "more": "x"}));
        let patched = c.patch(&path, MERGE_PATCH, &json!({"data": {"key": null}})).await;
        assert_eq!(patched.ok(200)["data"], json!({"more": "x"}));
    })
    .await;
}

#[tokio::test]
async fn a_merge_patch_replaces_lists() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"order": ["a", "b"], "size": 1}))).await.ok(201);
        let patched = c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"order": ["c"]}})).await;
        assert_eq!(patched.ok(200)["spec"], json!({"order": ["c"], "size": 1}));
        assert_eq!(patched.body["metadata"]["generation"], 2);
    })
    .await;
}

#[tokio::test]
async fn a_json_patch_applies_its_operations_in_order() {
    scenario(async |c| {
        let path = one(c).await;
        let operations = json!([
            {"op": "test", "path": "/data/key", "value": "value"},
            {"op": "add", "path": "/data/slash~1and~0tilde", "value": "x"},
            {"op": "copy", "from": "/data/key", "path": "/data/copy"},
            {"op": "move", "from": "/data/copy", "path": "/data/moved"},
            {"op": "replace", "path": "/data/key", "value": "new"},
            {"op": "remove", "path": "/data/slash~1and~0tilde"},
        ]);
        // The key with a slash never reaches validation, because it is removed again.
        let patched = c.patch(&path, JSON_PATCH, &operations).await;
        assert_eq!(patched.ok(200)["data"], json!({"key": "new", "moved": "value"}));
    })
    .await;
}

#[tokio::test]
async fn a_json_patch_edits_lists() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"order": ["a", "b"]}))).await.ok(201);
        let operations = json!([
            {"op": "add", "path": "/spec/order/0", "value": "first"},
            {"op": "add", "path": "/spec/order/-", "value": "last"},
            {"op": "remove", "path": "/spec/order/1"},
        ]);
        let patched = c.patch(&crd.at("w"), JSON_PATCH, &operations).await;
        assert_eq!(patched.ok(200)["spec"]["order"], json!(["first", "b", "last"]));
    })
    .await;
}

#[tokio::test]
async fn a_json_patch_that_does_not_fit_is_invalid() {
    scenario(async |c| {
        let path = one(c).await;
        let table = [
            json!({"op": "test", "path": "/data/key", "value": "other"}),
            json!({"op": "remove", "path": "/data/nope"}),
            json!({"op": "replace", "path": "/nope/x", "value": 1}),
            json!({"op": "add", "path": "/nope/x", "value": 1}),
            json!({"op": "frob", "path": "/data/x", "value": 1}),
        ];
        for operation in table {
            let reply = c.patch(&path, JSON_PATCH, &json!([operation])).await;
            assert_eq!(*reply.refused(422, "Invalid", REJECTED), json!({}), "{operation}");
        }
        assert_eq!(c.get(&path).await.body["data"], json!({"key": "value"}));
    })
    .await;
}

#[tokio::test]
async fn malformed_patches_are_refused() {
    scenario(async |c| {
        let path = one(c).await;
        let table = [
            (JSON_PATCH, r#"{"not":"a list"}"#),
            (JSON_PATCH, "["),
            (MERGE_PATCH, "{"),
            (MERGE_PATCH, "[]"),
            (MERGE_PATCH, "\"x\""),
            (STRATEGIC_PATCH, "{"),
        ];
        for (kind, body) in table {
            let reply = c.send(Call::patch(&path, kind).bytes(body)).await;
            assert_eq!(
                (reply.code, text(&reply.body["reason"])),
                (400, "BadRequest"),
                "{kind} {body}: {}",
                reply.text
            );
        }
        let reply = c.send(Call::patch(&path, MERGE_PATCH).bytes("{")).await;
        reply.refused(400, "BadRequest", "error decoding patch: unexpected end of JSON input");
    })
    .await;
}

#[tokio::test]
async fn a_json_patch_has_at_most_ten_thousand_operations() {
    scenario(async |c| {
        let path = one(c).await;
        let operations = vec![json!({"op": "test", "path": "/data/key", "value": "value"}); 10_001];
        let message =
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
        c.patch(&path, JSON_PATCH, &json!(operations)).await.refused(413, "RequestEntityTooLarge", message);
    })
    .await;
}

#[tokio::test]
async fn other_patch_types_are_refused() {
    scenario(async |c| {
        let path = one(c).await;
        for kind in ["text/plain", "application/json"] {
            let reply = c.send(Call::patch(&path, kind).bytes("{}")).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (415, "UnsupportedMediaType"), "{kind}");
        }
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        let reply = c.patch(&crd.at("w"), STRATEGIC_PATCH, &json!({"spec": {"size": 1}})).await;
        let message = "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        reply.refused(415, "UnsupportedMediaType", message);
    })
    .await;
}

#[tokio::test]
async fn a_patch_of_nothing_is_not_found() {
    scenario(async |c| {
        let path = c.configmaps().await;
        for (kind, body) in [(MERGE_PATCH, json!({})), (STRATEGIC_PATCH, json!({})), (JSON_PATCH, json!([]))]
        {
            let reply = c.patch(&format!("{path}/nope"), kind, &body).await;
            reply.refused(404, "NotFound", "configmaps \"nope\" not found");
        }
    })
    .await;
}

#[tokio::test]
async fn a_patch_cannot_move_or_replace_an_object() {
    scenario(async |c| {
        let path = one(c).await;
        let patch = async |body: Value| c.patch(&path, MERGE_PATCH, &body).await;
        patch(json!({"metadata": {"name": "other"}})).await.refused(
            400,
            "BadRequest",
            "the name of the object (other) does not match the name on the URL (a)",
        );
        patch(json!({"metadata": {"namespace": "other"}})).await.refused(
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        );
        patch(json!({"metadata": {"uid": "other"}})).await.refused(
            422,
            "Invalid",
            "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable",
        );
        let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
             your changes to the latest version and try again";
        patch(json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}})).await.refused(409, "Conflict", message);
    })
    .await;
}

#[tokio::test]
async fn a_patched_object_is_checked_for_unknown_fields() {
    scenario(async |c| {
        let path = one(c).await;
        let strict = format!("{path}?fieldValidation=Strict");
        let reply = c.patch(&strict, STRATEGIC_PATCH, &json!({"bogus": {"n": 1}})).await;
        let why = "Invalid value: \"map[bogus:map[n:1]]\": strict decoding error: unknown field \"bogus\"";
        reply.invalid(&format!(" \"\" is invalid: patch: {why}"), &[("FieldValueInvalid", "patch", why)]);
        for (kind, body) in [
            (MERGE_PATCH, json!({"bogus": {"n": 1}})),
            (JSON_PATCH, json!([{"op": "add", "path": "/bogus", "value": 1}])),
        ] {
            let reply = c.patch(&strict, kind, &body).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (422, "Invalid"));
            let message = text(&reply.body["message"]);
            assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: "), "{message}");
            assert!(message.ends_with(": strict decoding error: unknown field \"bogus\""), "{message}");
        }
        let reply = c.patch(&path, MERGE_PATCH, &json!({"bogus": 1})).await;
        reply.ok(200);
        assert_eq!(reply.warnings(), [r#"299 - "unknown field \"bogus\"""#]);
    })
    .await;
}

#[tokio::test]
async fn a_patched_custom_resource_is_checked_for_unknown_fields() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        let strict = format!("{}?fieldValidation=Strict", crd.at("w"));
        let reply = c.patch(&strict, MERGE_PATCH, &json!({"spec": {"bogus": 1}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (422, "Invalid"));
        let message = text(&reply.body["message"]);
        assert!(message.ends_with(": strict decoding error: unknown field \"spec.bogus\""), "{message}");
        let body = r#"{"spec":{"bogus":1,"size":1,"size":2}}"#;
        let reply = c.send(Call::patch(&crd.at("w"), MERGE_PATCH).bytes(body)).await;
        assert_eq!(reply.ok(200)["spec"], json!({"size": 2}));
        let expected =
            [r#"299 - "duplicate field \"spec.size\"""#, r#"299 - "unknown field \"spec.bogus\"""#];
        assert_eq!(reply.warnings(), expected);
    })
    .await;
}

#[tokio::test]
async fn a_patch_to_a_wrong_type_is_refused() {
    scenario(async |c| {
        let path = one(c).await;
        let reply = c.patch(&path, MERGE_PATCH, &json!({"data": {"n": 1}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (422, "Invalid"), "{}", reply.text);
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        let reply = c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"size": "big"}})).await;
        let why = "Invalid value: \"string\": spec.size in body must be of type integer: \"string\"";
        reply.invalid(
            &format!("{} \"w\" is invalid: spec.size: {why}", crd.kind()),
            &[("FieldValueTypeInvalid", "spec.size", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn patch_options_are_checked() {
    scenario(async |c| {
        let path = one(c).await;
        let table = [
            (
                "force=true",
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
            ),
            (
                "dryRun=x",
                "FieldValueNotSupported",
                "dryRun",
                "Unsupported value: [\"x\"]: supported values: \"All\"",
            ),
        ];
        for (query, reason, field, why) in table {
            c.patch(&format!("{path}?{query}"), MERGE_PATCH, &json!({})).await.invalid(
                &format!("PatchOptions.meta.k8s.io \"\" is invalid: {field}: {why}"),
                &[(reason, field, why)],
            );
        }
        let dry = c.patch(&format!("{path}?dryRun=All"), MERGE_PATCH, &json!({"data": {"dry": "x"}})).await;
        assert_eq!(dry.ok(200)["data"]["dry"], "x");
        assert_eq!(c.get(&path).await.body["data"], json!({"key": "value"}));
    })
    .await;
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_key() {
    scenario(async |c| {
        let path = service(c).await;
        let patch = async |body: Value| c.patch(&path, STRATEGIC_PATCH, &body).await;
        let reply = patch(json!({"spec": {"ports": [{"port": 2, "name": "bb"}]}})).await;
        assert_eq!(ports(&reply), [("a", 1), ("bb", 2)]);
        let reply = patch(json!({"spec": {"ports": [{"port": 1, "$patch": "delete"}]}})).await;
        assert_eq!(ports(&reply), [("bb", 2)]);
        let reply =
            patch(json!({"spec": {"ports": [{"port": 3, "name": "c"}, {"$patch": "replace"}]}})).await;
        assert_eq!(ports(&reply), [("c", 3)]);
    })
    .await;
}

#[tokio::test]
async fn a_strategic_patch_merges_sets() {
    scenario(async |c| {
        let path = service(c).await;
        let patch = async |body: Value| c.patch(&path, STRATEGIC_PATCH, &body).await;
        let finalizers = |reply: &Reply| reply.ok(200)["metadata"]["finalizers"].clone();
        let reply = patch(json!({"metadata": {"finalizers": ["example.com/a"]}})).await;
        assert_eq!(finalizers(&reply), json!(["example.com/a"]));
        let reply = patch(json!({"metadata": {"finalizers": ["example.com/b"]}})).await;
        assert_eq!(
            finalizers(&reply),
            json!(["example.com/b", "example.com/a"]),
            "what the patch names comes first"
        );
        let reply =
            patch(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}})).await;
        assert_eq!(finalizers(&reply), json!(["example.com/b"]));
        let reply =
            patch(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/b"]}})).await;
        assert_eq!(finalizers(&reply), Value::Null);
    })
    .await;
}

#[tokio::test]
async fn bad_strategic_patches_are_refused() {
    scenario(async |c| {
        let path = service(c).await;
        let reply = c.patch(&path, STRATEGIC_PATCH, &json!({"spec": {"ports": [{"name": "x"}]}})).await;
        assert_eq!(reply.code, 500);
        assert_eq!(reply.body["message"], "map: map[name:x] does not contain declared merge key: port");
        let reply = c.patch(&path, STRATEGIC_PATCH, &json!({"spec": {"$patch": "bogus"}})).await;
        assert_eq!(reply.code, 500);
        assert_eq!(reply.body["message"], "unknown patch type: bogus in map: map[$patch:bogus]");
    })
    .await;
}
