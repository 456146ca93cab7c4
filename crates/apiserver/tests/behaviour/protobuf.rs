//! Bodies in Kubernetes' binary format, as typed clients send them. The answers are JSON, which all of them take.

use crate::harness::{Call, Cluster, Reply, scenario};
use serde_json::json;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A run of bytes as a field. All lengths here are short.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    assert!(bytes.len() < 128, "the length takes one byte");
    let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    out.extend_from_slice(bytes);
    out
}

fn flag(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, raw: impl AsRef<[u8]>) -> Vec<u8> {
    let types = [field(1, api_version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, types), field(2, raw)].concat()
}

async fn send(c: &Cluster, call: Call, bytes: Vec<u8>) -> Reply {
    c.send(call.header("content-type", PROTOBUF).bytes(bytes)).await
}

#[tokio::test]
async fn objects_are_created_and_replaced() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let labels = [field(1, "tier"), field(2, "")].concat();
        // Typed clients send every empty field too.
        let meta = [field(1, "binary"), field(2, ""), field(3, ""), field(8, ""), field(11, labels)].concat();
        let data = [field(1, "key"), field(2, "text")].concat();
        let binary = [field(1, "raw"), field(2, [0xff, 0x00])].concat();
        let raw = [field(1, &meta), field(2, data), field(3, binary)].concat();
        let made = send(c, Call::post(&path), body("v1", "ConfigMap", raw)).await;
        let object = made.ok(201);
        assert_eq!(object["metadata"]["labels"], json!({"tier": ""}));
        assert_eq!(object["metadata"].get("generateName"), None);
        assert_eq!(object["data"], json!({"key": "text"}));
        assert_eq!(object["binaryData"], json!({"raw": "/wA="}));
        let fields = &object["metadata"]["managedFields"][0]["fieldsV1"];
        assert_eq!(fields["f:data"], json!({".": {}, "f:key": {}}));

        // A pointer to false is not the same as nothing.
        let raw = [field(1, field(1, "binary")), flag(4, 0)].concat();
        let one = format!("{path}/binary");
        let replaced = send(c, Call::put(&one), body("v1", "ConfigMap", raw)).await;
        assert_eq!(replaced.ok(200)["immutable"], false);
        assert_eq!(replaced.body.get("data"), None);
        assert_eq!(c.get(&one).await.ok(200)["immutable"], false);
    })
    .await;
}

#[tokio::test]
async fn options_and_questions_may_be_binary() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &crate::harness::configmap("a")).await.ok(201);
        let wrong = field(2, field(1, "no-such-uid"));
        let reply = send(c, Call::delete(&format!("{path}/a")), body("v1", "DeleteOptions", wrong)).await;
        assert_eq!(reply.code, 409, "{}", reply.text);
        send(c, Call::delete(&format!("{path}/a")), body("v1", "DeleteOptions", "")).await.ok(200);
        c.get(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");

        let asked = field(1, field(1, [field(2, "get"), field(5, "pods")].concat()));
        let review = body("authorization.k8s.io/v1", "SelfSubjectAccessReview", field(2, asked));
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = send(c, Call::post(path), review).await;
        assert_eq!(answer.ok(201)["status"]["allowed"], true);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let unrecognized = "the object provided is unrecognized (must be of type ConfigMap): ";
        let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        for (bytes, message) in [
            (b"hello".to_vec(), format!("{unrecognized}{prefix} (68656c6c6f)")),
            (b"k8s\0".to_vec(), format!("{unrecognized}empty body (6b387300)")),
            (b"k8s\0\x0a\xff".to_vec(), format!("{unrecognized}unexpected EOF (6b3873000aff)")),
            (
                body("v1", "ConfigMap", [0x0a, 0x7f]),
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF".into(),
            ),
        ] {
            let reply = send(c, Call::post(&path), bytes).await;
            reply.refused(400, "BadRequest", &message);
        }
        let reply = send(c, Call::post(&path), body("v1", "Secret", "")).await;
        let start = "Secret in version \"v1\" cannot be handled as a ConfigMap: ";
        assert_eq!(reply.code, 400);
        assert!(reply.body["message"].as_str().is_some_and(|m| m.starts_with(start)), "{}", reply.text);
        let reply = send(c, Call::post(&path), b"k8s\0\x12\x00".to_vec()).await;
        let why = "Required value: name or generateName is required";
        reply.invalid(
            &format!("ConfigMap \"\" is invalid: metadata.name: {why}"),
            &[("FieldValueRequired", "metadata.name", why)],
        );
    })
    .await;
}
