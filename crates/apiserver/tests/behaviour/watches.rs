//! Watch: resuming, selectors, bookmarks, streaming lists, and the ends of a watch.

use crate::harness::{Call, Cluster, scenario, text};
use serde_json::{Value, json};

/// The path of the Secrets of a new namespace, which nobody else writes.
async fn secrets(c: &Cluster) -> String {
    format!("/api/v1/namespaces/{}/secrets", c.namespace().await)
}

fn secret(name: &str, colour: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"colour": colour}}})
}

fn step(kind: &str, name: &str) -> (String, String) {
    (kind.to_string(), name.to_string())
}

#[tokio::test]
async fn a_watch_resumes_after_the_revision_it_is_given() {
    scenario(async |c| {
        let path = secrets(c).await;
        let first = c.post(&path, &secret("a", "red")).await;
        let rv = first.resource_version();
        c.post(&path, &secret("b", "red")).await.ok(201);
        c.put(&format!("{path}/a"), &secret("a", "blue")).await.ok(200);
        c.delete(&format!("{path}/b")).await.ok(200);
        let mut watch = c.watch(&format!("{path}?resourceVersion={rv}")).await;
        assert_eq!(watch.step().await, step("ADDED", "b"));
        assert_eq!(watch.step().await, step("MODIFIED", "a"));
        let last = watch.next().await;
        assert_eq!((text(&last["type"]), &last["object"]["metadata"]["name"]), ("DELETED", &json!("b")));
        assert_eq!(
            (&last["object"]["kind"], &last["object"]["apiVersion"]),
            (&json!("Secret"), &json!("v1"))
        );
        let deleted: u64 = text(&last["object"]["metadata"]["resourceVersion"]).parse().unwrap();
        assert!(deleted > rv.parse().unwrap(), "a deletion has a revision of its own");
        c.post(&path, &secret("c", "red")).await.ok(201);
        assert_eq!(watch.step().await, step("ADDED", "c"), "and goes on live");
    })
    .await;
}

#[tokio::test]
async fn a_watch_without_a_revision_begins_with_what_is_there() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        c.post(&path, &secret("b", "red")).await.ok(201);
        for query in ["", "?resourceVersion=0"] {
            let mut watch = c.watch(&format!("{path}{query}")).await;
            assert_eq!(watch.step().await, step("ADDED", "a"), "{query}");
            assert_eq!(watch.step().await, step("ADDED", "b"), "{query}");
            c.patch(&format!("{path}/a"), crate::harness::MERGE_PATCH, &json!({"stringData": {query: "x"}}))
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_deleted_for_the_watcher() {
    scenario(async |c| {
        let path = secrets(c).await;
        let first = c.post(&path, &secret("a", "red")).await;
        let rv = first.resource_version();
        let mut watch = c.watch(&format!("{path}?resourceVersion={rv}&labelSelector=colour%3Dred")).await;
        let blue = c.put(&format!("{path}/a"), &secret("a", "blue")).await;
        let event = watch.next().await;
        assert_eq!(event["type"], "DELETED");
        assert_eq!(event["object"]["metadata"]["labels"]["colour"], "red", "the last state that was seen");
        assert_eq!(event["object"]["metadata"]["resourceVersion"], blue.resource_version());
        c.put(&format!("{path}/a"), &secret("a", "green")).await.ok(200);
        c.put(&format!("{path}/a"), &secret("a", "red")).await.ok(200);
        assert_eq!(watch.step().await, step("ADDED", "a"));
        c.delete(&format!("{path}/a")).await.ok(200);
        assert_eq!(watch.step().await, step("DELETED", "a"));
    })
    .await;
}

#[tokio::test]
async fn one_object_is_watched_by_its_name() {
    scenario(async |c| {
        let path = secrets(c).await;
        let rv = c.get(&path).await.resource_version().to_string();
        let mut watch =
            c.watch(&format!("{path}?resourceVersion={rv}&fieldSelector=metadata.name%3Db")).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        c.post(&path, &secret("b", "red")).await.ok(201);
        c.delete(&format!("{path}/a")).await.ok(200);
        c.delete(&format!("{path}/b")).await.ok(200);
        assert_eq!(watch.step().await, step("ADDED", "b"));
        assert_eq!(watch.step().await, step("DELETED", "b"));
    })
    .await;
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        let mut watch = c.watch(&format!("{path}?timeoutSeconds=1")).await;
        let events = watch.rest().await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["type"], "ADDED");
    })
    .await;
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("b", "red")).await.ok(201);
        c.post(&path, &secret("a", "red")).await.ok(201);
        c.post(&path, &secret("c", "blue")).await.ok(201);
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut watch = c.watch(&format!("{path}?{query}&labelSelector=colour%3Dred")).await;
        assert_eq!(watch.step().await, step("ADDED", "a"));
        assert_eq!(watch.step().await, step("ADDED", "b"));
        let end = watch.next().await;
        assert_eq!(end["type"], "BOOKMARK");
        let meta = &end["object"]["metadata"];
        assert_eq!(meta["annotations"], json!({"k8s.io/initial-events-end": "true"}));
        assert_eq!((&end["object"]["kind"], &end["object"]["apiVersion"]), (&json!("Secret"), &json!("v1")));
        let rv = text(&meta["resourceVersion"]).to_string();
        c.post(&path, &secret("d", "red")).await.ok(201);
        assert_eq!(watch.step().await, step("ADDED", "d"));
        let mut resumed = c.watch(&format!("{path}?resourceVersion={rv}")).await;
        assert_eq!(resumed.step().await, step("ADDED", "d"), "the bookmark's revision can be resumed from");
    })
    .await;
}

#[tokio::test]
async fn a_streaming_list_of_custom_resources_ends_with_a_bookmark() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"size": 1}))).await.ok(201);
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut watch = c.watch(&format!("{}?{query}&resourceVersion=0", crd.objects)).await;
        // A server that answers from a cache may show the object late, but never after the bookmark.
        assert_eq!(watch.step().await, step("ADDED", "w"));
        let end = watch.next().await;
        assert_eq!(end["type"], "BOOKMARK");
        assert_eq!(end["object"]["kind"], "Widget");
        assert_eq!(end["object"]["apiVersion"], crd.api_version());
        assert_eq!(end["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    })
    .await;
}

#[tokio::test]
async fn a_streaming_list_without_bookmarks_has_no_end_mark() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
        let events = c.watch(&format!("{path}?{query}")).await.rest().await;
        assert_eq!(events.iter().map(|e| text(&e["type"])).collect::<Vec<_>>(), ["ADDED"]);
    })
    .await;
}

#[tokio::test]
async fn initial_events_can_be_declined() {
    scenario(async |c| {
        let path = secrets(c).await;
        let first = c.post(&path, &secret("a", "red")).await;
        c.post(&path, &secret("b", "red")).await.ok(201);
        let rv = first.resource_version();
        let query = format!("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={rv}");
        let mut watch = c.watch(&format!("{path}?{query}")).await;
        assert_eq!(watch.step().await, step("ADDED", "b"));
    })
    .await;
}

#[tokio::test]
async fn bad_watch_options_are_refused() {
    scenario(async |c| {
        let path = secrets(c).await;
        let table = [
            (
                "watch=1&sendInitialEvents=true",
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (
                "watch=1&resourceVersionMatch=NotOlderThan",
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            ("sendInitialEvents=true", "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
        ];
        for (query, field, why) in table {
            c.get(&format!("{path}?{query}")).await.invalid(
                &format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}"),
                &[("FieldValueForbidden", field, why)],
            );
        }
        let (one, two) = (
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
        );
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5";
        c.get(&format!("{path}?{query}")).await.invalid(
            &format!(
                "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: {one}, resourceVersionMatch: {two}]"
            ),
            &[
                ("FieldValueForbidden", "resourceVersionMatch", one),
                ("FieldValueNotSupported", "resourceVersionMatch", two),
            ],
        );
        c.get(&format!("{path}?watch=1&timeoutSeconds=abc")).await.refused(
            400,
            "BadRequest",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        );
    })
    .await;
}

#[tokio::test]
async fn a_malformed_revision_ends_the_watch_before_it_begins() {
    scenario(async |c| {
        let path = secrets(c).await;
        let reply = c.get(&format!("{path}?watch=1&resourceVersion=abc")).await;
        assert_eq!(reply.code, 500);
        assert_eq!(
            reply.body["message"],
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
        );
    })
    .await;
}

#[tokio::test]
async fn a_revision_that_is_gone_is_an_error_event() {
    scenario(async |c| {
        // Of a kind that is younger than the revision, so that no server can still have it in a cache.
        let path = c.widgets().await.objects;
        let mut watch = c.watch(&format!("{path}?resourceVersion=1")).await;
        let events = watch.rest().await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["type"], "ERROR");
        let status = &events[0]["object"];
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(410)));
        assert_eq!(status["reason"], "Expired");
        let message = text(&status["message"]);
        assert!(message.starts_with("too old resource version: 1 ("), "{message}");
    })
    .await;
}

#[tokio::test]
async fn watch_false_is_a_list_and_any_other_word_a_watch() {
    scenario(async |c| {
        let path = secrets(c).await;
        for word in ["false", "0"] {
            assert_eq!(c.get(&format!("{path}?watch={word}")).await.ok(200)["kind"], "SecretList", "{word}");
        }
        c.post(&path, &secret("a", "red")).await.ok(201);
        let reply = c.get(&format!("{path}?watch=maybe&timeoutSeconds=1")).await;
        assert_eq!(reply.ok(200)["type"], "ADDED");
    })
    .await;
}

#[tokio::test]
async fn the_old_watch_paths_still_work() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        c.post(&path, &secret("b", "red")).await.ok(201);
        let old = path.replace("/api/v1/", "/api/v1/watch/");
        let events = c.get(&format!("{old}?timeoutSeconds=1")).await;
        assert_eq!(events.text.lines().count(), 2, "{}", events.text);
        let events = c.get(&format!("{old}/b?timeoutSeconds=1")).await;
        assert_eq!(events.ok(200)["object"]["metadata"]["name"], "b", "{}", events.text);
    })
    .await;
}

#[tokio::test]
async fn a_watch_can_be_of_metadata_only() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}})).await.ok(201);
        let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        let mut watch = c.watch_call(Call::get(&path).header("accept", accept)).await;
        let event = watch.next().await;
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(event["object"]["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(event["object"]["metadata"]["name"], "a");
        assert_eq!(event["object"].get("data"), None);
    })
    .await;
}

#[tokio::test]
async fn a_watch_as_table_sends_the_columns_once() {
    scenario(async |c| {
        let path = secrets(c).await;
        c.post(&path, &secret("a", "red")).await.ok(201);
        c.post(&path, &secret("b", "red")).await.ok(201);
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let mut watch = c.watch_call(Call::get(&path).header("accept", accept)).await;
        let (one, two) = (watch.next().await, watch.next().await);
        for event in [&one, &two] {
            assert_eq!(event["type"], "ADDED");
            assert_eq!(event["object"]["kind"], "Table");
            assert_eq!(event["object"]["rows"].as_array().map(Vec::len), Some(1));
        }
        assert!(one["object"]["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty()));
        assert!(two["object"]["columnDefinitions"].as_array().is_none_or(Vec::is_empty));
    })
    .await;
}

#[tokio::test]
async fn a_watch_of_all_namespaces_sees_each() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let other = c.namespace().await;
        let all = format!("/apis/{}/v1/widgets", crd.group);
        let rv = c.get(&all).await.resource_version().to_string();
        let mut watch = c.watch(&format!("{all}?resourceVersion={rv}")).await;
        for namespace in [&crd.namespace, &other] {
            let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "w"}});
            c.post(&crd.objects.replace(&crd.namespace, namespace), &body).await.ok(201);
            let event = watch.next().await;
            assert_eq!(event["object"]["metadata"]["namespace"], json!(namespace));
        }
    })
    .await;
}

#[tokio::test]
async fn finalizers_show_as_a_modification_then_a_deletion() {
    scenario(async |c| {
        let path = secrets(c).await;
        let mut body = secret("a", "red");
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let made = c.post(&path, &body).await;
        let mut watch = c.watch(&format!("{path}?resourceVersion={}", made.resource_version())).await;
        c.delete(&format!("{path}/a")).await.ok(200);
        let event = watch.next().await;
        assert_eq!(event["type"], "MODIFIED");
        assert!(event["object"]["metadata"]["deletionTimestamp"].is_string());
        let patch = json!({"metadata": {"finalizers": null}});
        c.patch(&format!("{path}/a"), crate::harness::MERGE_PATCH, &patch).await.ok(200);
        let event = watch.next().await;
        assert_eq!(event["type"], "DELETED");
        let finalizers = &event["object"]["metadata"]["finalizers"];
        assert_eq!(*finalizers, json!(["example.com/hold"]), "the last state that was stored");
    })
    .await;
}
