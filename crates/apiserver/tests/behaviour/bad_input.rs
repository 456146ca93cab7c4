//! Requests that make no sense: bodies, sizes, types, paths and methods. Nothing is written for any of them.

use crate::harness::{Call, MERGE_PATCH, names, scenario, text};
use serde_json::{Value, json};

const NO_METHOD: &str = "the server does not allow this method on the requested resource";
const NO_RESOURCE: &str = "the server could not find the requested resource";

fn post(path: &str, body: impl Into<Vec<u8>>) -> Call {
    Call::post(path).header("content-type", "application/json").bytes(body)
}

#[tokio::test]
async fn malformed_json_is_refused() {
    scenario(async |c| {
        let path = format!("/api/v1/namespaces/{}/secrets", c.namespace().await);
        let start = "the object provided is unrecognized (must be of type Secret): couldn't get version/kind; json parse \
             error: ";
        let table = [
            ("", "unexpected end of JSON input (<empty>)"),
            ("{", "unexpected end of JSON input ({)"),
            ("{'a':1}", "invalid character '\\'' looking for beginning of object key string ({'a':1})"),
            (
                "{\"metadata\":{\"name\":\"a\"}} trailing",
                "invalid character 't' after top-level value ({\"metadata\":{\"name\":\"a\"}} trai ...)",
            ),
        ];
        for (body, end) in table {
            let reply = c.send(post(&path, body)).await;
            assert_eq!(*reply.refused(400, "BadRequest", &format!("{start}{end}")), Value::Null);
        }
        for body in ["[]", "\"text\"", "{\"kind\":5}", "{\"a\":\u{1}}"] {
            let reply = c.send(post(&path, body)).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"), "{body}");
            let message = text(&reply.body["message"]);
            assert!(message.starts_with(start), "{message}");
        }
        assert_eq!(names(c.get(&path).await.ok(200)), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn values_of_a_wrong_type_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let start = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
        let table = [
            (
                r#"{"metadata":{"name":1}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                r#"{"metadata":{"name":"a"},"data":{"a":1}}"#,
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                r#"{"metadata":{"name":"a","labels":{"x":1}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
        ];
        for (body, end) in table {
            c.send(post(&path, body)).await.refused(400, "BadRequest", &format!("{start}{end}"));
        }
        for body in [r#"{"metadata":[]}"#, r#"{"metadata":{"name":"a","creationTimestamp":"yesterday"}}"#] {
            let reply = c.send(post(&path, body)).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"), "{body}");
            let message = text(&reply.body["message"]);
            assert!(message.starts_with(start), "{message}");
        }
    })
    .await;
}

#[tokio::test]
async fn malformed_custom_resources_are_refused() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let head = format!("\"apiVersion\":\"{}\",\"kind\":\"Widget\"", crd.api_version());
        for body in [
            "{".to_string(),
            "[]".to_string(),
            format!("{{{head},\"metadata\":[]}}"),
            format!("{{{head},\"metadata\":{{\"name\":1}}}}"),
            format!("{{{head},\"metadata\":{{\"name\":\"w\",\"labels\":{{\"a\":1}}}}}}"),
        ] {
            let reply = c.send(post(&crd.objects, body.clone())).await;
            assert_eq!(
                (reply.code, text(&reply.body["reason"])),
                (400, "BadRequest"),
                "{body}: {}",
                reply.text
            );
        }
        assert_eq!(c.get(&crd.objects).await.ok(200)["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn malformed_yaml_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let yaml = |body: &str| Call::post(&path).header("content-type", "application/yaml").bytes(body);
        let reply = c.send(yaml("a: [b")).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        assert!(
            message.starts_with("the object provided is unrecognized (must be of type ConfigMap): "),
            "{message}"
        );
        let strict = format!("{path}?fieldValidation=Strict");
        let body = "metadata: {name: z}\ndata: {a: \"1\"}\ndata: {a: \"2\"}";
        let reply = c.send(Call::post(&strict).header("content-type", "application/yaml").bytes(body)).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        let start = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: ";
        assert!(
            message.starts_with(start) && message.ends_with("key \"data\" already set in map"),
            "{message}"
        );
        let first = c.send(yaml("---\nmetadata: {name: one}\n---\nmetadata: {name: two}\n")).await;
        assert_eq!(first.ok(201)["metadata"]["name"], "one", "only the first document counts");
    })
    .await;
}

#[tokio::test]
async fn nesting_has_a_limit() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let nested = |depth: usize| format!("{}1{}", "{\"x\":".repeat(depth), "}".repeat(depth));
        let reply = c.send(post(&path, nested(11_000))).await;
        let message = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json \
             parse error: invalid character '{' exceeded max depth ({\"x\":{\"x\":{\"x\":{\"x\":{\"x\":{\"x\": ...)";
        reply.refused(400, "BadRequest", message);
        let reply = c.send(post(&path, nested(100))).await;
        reply.refused(
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        );
    })
    .await;
}

#[tokio::test]
async fn bodies_have_a_limit() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3 * 1024 * 1024));
        let message = "Request entity too large: limit is 3145728";
        c.send(post(&path, body.clone())).await.refused(413, "RequestEntityTooLarge", message);
        c.send(Call::patch(&format!("{path}/a"), MERGE_PATCH).bytes(body)).await.refused(
            413,
            "RequestEntityTooLarge",
            message,
        );
    })
    .await;
}

#[tokio::test]
async fn objects_have_limits() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body =
            |name: &str, size: usize| json!({"metadata": {"name": name}, "data": {"a": "x".repeat(size)}});
        let why = "Too long: may not be more than 1048576 bytes";
        c.post(&path, &body("big", 1_048_577)).await.invalid(
            &format!("ConfigMap \"big\" is invalid: []: {why}"),
            &[("FieldValueTooLong", "[]", why)],
        );
        c.post(&path, &body("big", 1_048_570)).await.ok(201);
        let why = "Too long: may not be more than 262144 bytes";
        let body = json!({"metadata": {"name": "a", "annotations": {"a": "x".repeat(262_145)}}});
        c.post(&path, &body).await.invalid(
            &format!("ConfigMap \"a\" is invalid: metadata.annotations: {why}"),
            &[("FieldValueTooLong", "metadata.annotations", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn content_types_are_checked() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let crd = c.widgets().await;
        // Protobuf may follow in the list.
        let start = "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml";
        for path in [&path, &crd.objects] {
            for kind in ["application/xml", "text/plain", MERGE_PATCH] {
                let reply = c.send(Call::post(path).header("content-type", kind).bytes("{}")).await;
                let message = text(&reply.body["message"]);
                assert!(message.starts_with(start), "{message}");
                assert_eq!(*reply.refused(415, "UnsupportedMediaType", message), Value::Null);
            }
        }
        let body = configmap_text("with-charset");
        c.send(Call::post(&path).header("content-type", "application/json; charset=utf-8").bytes(body))
            .await
            .ok(201);
        c.send(Call::post(&path).bytes(configmap_text("without-type"))).await.ok(201);
    })
    .await;
}

fn configmap_text(name: &str) -> String {
    crate::harness::configmap(name).to_string()
}

#[tokio::test]
async fn invalid_utf8_is_replaced() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = b"{\"metadata\":{\"name\":\"utf\"},\"data\":{\"k\":\"a\xff\xfe\"}}".to_vec();
        let made = c.send(post(&path, body)).await;
        assert_eq!(made.ok(201)["data"]["k"], "a\u{fffd}\u{fffd}");
        let body = b"{\"metadata\":{\"name\":\"half\"},\"data\":{\"k\":\"\\ud800\"}}".to_vec();
        assert_eq!(c.send(post(&path, body)).await.ok(201)["data"]["k"], "\u{fffd}");
        let reply = c.send(post(&path, b"\xff\xfe{".to_vec())).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
    })
    .await;
}

#[tokio::test]
async fn unknown_resources_are_not_found() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        for path in [
            format!("/api/v1/namespaces/{namespace}/widgets"),
            format!("/api/v1/namespaces/{namespace}/widgets/a"),
            "/apis/apps/v1/widgets".to_string(),
        ] {
            let reply = c.get(&path).await;
            assert_eq!(*reply.refused(404, "NotFound", NO_RESOURCE), json!({}), "{path}");
        }
        let crd = c.widgets().await;
        let reply = c.get(&crd.objects.replace("widgets", "gadgets")).await;
        assert_eq!((reply.code, reply.text.trim_end()), (404, "404 page not found"));
    })
    .await;
}

#[tokio::test]
async fn wrong_methods_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let one = format!("{path}/a");
        let calls = [
            Call::post(&one).json(&json!({})),
            Call::put(&path).json(&json!({})),
            Call::patch(&path, MERGE_PATCH).bytes("{}"),
            Call::post("/api/v1/configmaps").json(&json!({"metadata": {"name": "x"}})),
            Call::post("/api/v1/nodes/x").json(&json!({})),
            Call::delete("/api"),
            Call::new(http::Method::OPTIONS, "/api/v1"),
            Call::new(http::Method::from_bytes(b"FROB").unwrap(), &path),
        ];
        for call in calls {
            let reply = c.send(call).await;
            assert_eq!(*reply.refused(405, "MethodNotAllowed", NO_METHOD), json!({}));
        }
        let crd = c.widgets().await;
        let reply = c.put(&crd.objects, &json!({})).await;
        reply.refused(400, "BadRequest", "name must be provided");
    })
    .await;
}

#[tokio::test]
async fn a_trailing_slash_is_the_collection() {
    scenario(async |c| {
        let path = c.configmaps().await;
        assert_eq!(c.get(&format!("{path}/")).await.ok(200)["kind"], "ConfigMapList");
    })
    .await;
}

#[tokio::test]
async fn a_duplicate_key_is_reported_by_its_path() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = r#"{"metadata":{"name":"dup","labels":{"a":"1","a":"2"}},"data":{"k":"1","k":"2"}}"#;
        let reply = c.send(post(&format!("{path}?fieldValidation=Strict"), body)).await;
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \
             \"metadata.labels.a\", duplicate field \"data.k\"";
        reply.refused(400, "BadRequest", message);
    })
    .await;
}
