//! Whatever is sent: an answer comes, in the form of a `Status` or of an object, and nothing is written unless it was a
//! success. Bodies are mutations of good ones, so that they get past the first check.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use butler_apiserver::{ApiService, Server, User};
use serde_json::{Value, json};

/// A seeded generator: the same run every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }
}

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.fuzz.example.com"},
        "spec": {
            "group": "fuzz.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size < 100", "message": "too big"}],
                    "properties": {
                        "size": {"type": "integer", "minimum": 0},
                        "ports": {"type": "array", "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["port"],
                            "items": {"type": "object", "required": ["port"],
                                "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}},
                        "any": {"x-kubernetes-int-or-string": true},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}]
        }
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let widget = json!({
        "apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"l": "v"},
            "finalizers": ["x.y/z"], "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]},
        "spec": {"size": 3, "ports": [{"port": 1, "name": "n"}], "any": "x", "free": {"deep": [[[1]]]}}
    });
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": 80, "targetPort": "x"}], "selector": {"a": "b"}}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}}}]}}}});
    let patch = json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}, {"op": "test", "path": "/a", "value": 1}]);
    let strategic = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "$patch": "delete"}],
        "$setElementOrder/containers": [{"name": "c"}]}}}});
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground",
        "preconditions": {"uid": "x"}});
    let all = [
        widget,
        service,
        deployment,
        patch,
        strategic,
        options,
        widgets(),
        json!({"metadata": {"name": "a"}}),
    ];
    all.iter().map(|v| v.to_string().into_bytes()).collect()
}

/// Cuts, doubles, overwrites and swaps pieces, and strews in the bytes that parsers care about.
fn mutate(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut body = seeds[dice.roll(seeds.len())].clone();
    const SPICE: [&[u8]; 14] = [
        b"{", b"}", b"[", b"]", b"\"", b":", b",", b"null", b"-1", b"1e999", b"\\ud800", b"\xff", b"\x00",
        b"\n- ",
    ];
    for _ in 0..dice.roll(6) {
        if body.is_empty() {
            break;
        }
        let at = dice.roll(body.len());
        match dice.roll(5) {
            0 => body.truncate(at),
            1 => {
                let spice = SPICE[dice.roll(SPICE.len())];
                body.splice(at..at, spice.iter().copied());
            }
            2 => body[at] = dice.roll(256) as u8,
            3 => {
                let end = (at + dice.roll(40)).min(body.len());
                let piece = body[at..end].to_vec();
                let to = dice.roll(body.len());
                body.splice(to..to, piece);
            }
            _ => {
                let end = (at + dice.roll(20)).min(body.len());
                body.drain(at..end);
            }
        }
    }
    body
}

fn path(dice: &mut Dice) -> String {
    let base = dice.pick(&[
        "/apis/fuzz.example.com/v1/namespaces/default/widgets",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/configmaps",
        "/apis/apps/v1/namespaces/default/deployments",
        CRD,
        "/api/v1/nodes",
        "/api/v1/namespaces",
    ]);
    let object = dice.pick(&["", "/a", "/a/status", "/a/scale", "/widgets.fuzz.example.com", "/%ff", "//"]);
    let query = dice.pick(&[
        "",
        "?fieldManager=m&force=true",
        "?fieldManager=m",
        "?fieldValidation=Strict",
        "?dryRun=All",
        "?labelSelector=a%20in%20(b,c),!d,e%3E1",
        "?labelSelector=%2C%2C((!!",
        "?fieldSelector=metadata.name%3Da,spec.x!%3D%5C%2C",
        "?limit=1&continue=eyJ2Ijoib",
        "?resourceVersion=1&resourceVersionMatch=Exact",
        "?resourceVersion=-1",
        "?%%%&=&a",
    ]);
    format!("{base}{object}{query}")
}

/// The revision once the server's own controllers have nothing left to do.
async fn settled(server: &Server) -> u64 {
    loop {
        let before = server.store().revision();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        if server.store().revision() == before {
            return before;
        }
    }
}

async fn check(api: &ApiService, server: &Server, dice: &mut Dice, seeds: &[Vec<u8>], round: u64) {
    let method = dice.pick(&["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "POST"]);
    let kind = dice.pick(&[
        "application/json",
        "application/yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "text/plain",
        "",
    ]);
    let (path, body) = (path(dice), mutate(dice, seeds));
    let before = settled(server).await;
    let (code, answer) = api.send(method, &path, kind, body.clone().into()).await;
    let shown = || {
        format!("round {round}: {method} {path} {kind}\n{}\n{code} {answer}", String::from_utf8_lossy(&body))
    };
    if code >= 300 {
        assert_eq!(server.store().revision(), before, "nothing may be stored: {}", shown());
        assert!(answer.is_null() || answer["kind"] == "Status", "{}", shown());
        assert!(code != 500 || !answer["message"].as_str().unwrap_or_default().is_empty(), "{}", shown());
    }
    if path.contains("dryRun=All") || method == "GET" {
        assert_eq!(server.store().revision(), before, "{}", shown());
    }
}

#[tokio::test]
async fn nonsense_is_answered_and_changes_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let server = Server::in_memory(scratch.path()).await.expect("the server starts");
    let api = server.service(User::new("fuzz", &["system:masters"]));
    let (code, _) = api.send("POST", CRD, "application/json", widgets().to_string().into()).await;
    assert_eq!(code, 201);
    let seeds = seeds();
    let mut dice = Dice(0x5eed_cafe);
    for round in 0..20_000 {
        check(&api, &server, &mut dice, &seeds, round).await;
    }
    // It is still a server.
    let (code, list) = api.send("GET", "/api/v1/namespaces", "", Default::default()).await;
    assert_eq!(code, 200);
    assert!(list["items"].as_array().is_some_and(|l| l.len() >= 4));
}
