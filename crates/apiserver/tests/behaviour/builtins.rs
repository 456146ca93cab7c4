//! What is special about the built-in kinds that are first-class.

use crate::harness::{
    Cluster, MERGE_PATCH, Reply, STRATEGIC_PATCH, as_causes, names, scenario, text, unique,
};
use serde_json::{Value, json};

const IMMUTABLE: &str = "Forbidden: field is immutable when `immutable` is set";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

async fn core(c: &Cluster, plural: &str) -> String {
    format!("/api/v1/namespaces/{}/{plural}", c.namespace().await)
}

#[track_caller]
fn causes(reply: &Reply, code: u16) -> Vec<(&str, &str, &str)> {
    assert_eq!(reply.code, code, "{}", reply.text);
    as_causes(&reply.body["details"])
}

#[tokio::test]
async fn a_secrets_plain_text_is_encoded() {
    scenario(async |c| {
        let path = core(c, "secrets").await;
        let body =
            json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"d": "ZA==", "k": "b2xk"}});
        let made = c.post(&path, &body).await;
        assert_eq!(made.ok(201)["data"], json!({"d": "ZA==", "k": "dg=="}), "the plain text wins");
        assert_eq!(made.body.get("stringData"), None);
        assert_eq!(made.body["type"], "Opaque");
    })
    .await;
}

#[tokio::test]
async fn bad_secrets_are_refused() {
    scenario(async |c| {
        let path = core(c, "secrets").await;
        let post = async |mut body: Value| {
            body["metadata"] = json!({"name": "a"});
            c.post(&path, &body).await
        };
        let message =
            "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 3";
        post(json!({"data": {"d": "not base64!"}})).await.refused(400, "BadRequest", message);
        let why = format!("Invalid value: \"bad key\": {CONFIG_KEY}");
        post(json!({"data": {"bad key": "ZA=="}})).await.invalid(
            &format!("Secret \"a\" is invalid: data[bad key]: {why}"),
            &[("FieldValueInvalid", "data[bad key]", &why)],
        );
        let required = |key| ("FieldValueRequired", key, "Required value");
        let tls = post(json!({"type": "kubernetes.io/tls", "data": {}})).await;
        assert_eq!(causes(&tls, 422), [required("data[tls.crt]"), required("data[tls.key]")]);
        let basic = post(json!({"type": "kubernetes.io/basic-auth", "data": {}})).await;
        assert_eq!(causes(&basic, 422), [required("data[username]"), required("data[password]")]);
        let docker =
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "nope"}});
        let docker = post(docker).await;
        let found = causes(&docker, 422);
        assert_eq!((found.len(), found[0].1), (1, "data[.dockerconfigjson]"));
        assert!(found[0].2.starts_with("Invalid value: \"<secret contents redacted>\": "), "{}", found[0].2);
        let token = post(json!({"type": "kubernetes.io/service-account-token"})).await;
        assert_eq!(
            causes(&token, 422),
            [required("metadata.annotations[kubernetes.io/service-account.name]")]
        );
    })
    .await;
}

#[tokio::test]
async fn a_secrets_type_is_fixed() {
    scenario(async |c| {
        let path = core(c, "secrets").await;
        c.post(&path, &json!({"metadata": {"name": "a"}})).await.ok(201);
        let why = "Invalid value: \"other\": field is immutable";
        c.patch(&format!("{path}/a"), MERGE_PATCH, &json!({"type": "other"}))
            .await
            .invalid(&format!("Secret \"a\" is invalid: type: {why}"), &[("FieldValueInvalid", "type", why)]);
    })
    .await;
}

#[tokio::test]
async fn immutable_means_immutable() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        for (plural, kind) in [("secrets", "Secret"), ("configmaps", "ConfigMap")] {
            let path = format!("/api/v1/namespaces/{namespace}/{plural}");
            let body = json!({"metadata": {"name": "a"}, "data": {"k": "ZA=="}, "immutable": true});
            c.post(&path, &body).await.ok(201);
            let object = format!("{path}/a");
            for (patch, field) in [
                (json!({"data": {"k": "ZQ=="}}), "data"),
                (json!({"immutable": false}), "immutable"),
                (json!({"immutable": null}), "immutable"),
            ] {
                c.patch(&object, MERGE_PATCH, &patch).await.invalid(
                    &format!("{kind} \"a\" is invalid: {field}: {IMMUTABLE}"),
                    &[("FieldValueForbidden", field, IMMUTABLE)],
                );
            }
            c.patch(&object, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok(200);
            c.delete(&object).await.ok(200);
        }
    })
    .await;
}

#[tokio::test]
async fn bad_configmaps_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = json!({"metadata": {"name": "x"}, "data": {"a": "1"}, "binaryData": {"a": "MQ=="}});
        let why = "Invalid value: \"a\": duplicate of key present in binaryData";
        c.post(&path, &body).await.invalid(
            &format!("ConfigMap \"x\" is invalid: data[a]: {why}"),
            &[("FieldValueInvalid", "data[a]", why)],
        );
        let reply =
            c.post(&path, &json!({"metadata": {"name": "x"}, "data": {"..": "2", "bad key": "1"}})).await;
        let mut found = causes(&reply, 422);
        found.sort_unstable_by_key(|cause| cause.1);
        let bad = format!("Invalid value: \"bad key\": {CONFIG_KEY}");
        let expected = [
            ("FieldValueInvalid", "data[..]", "Invalid value: \"..\": must not be '..'"),
            ("FieldValueInvalid", "data[bad key]", bad.as_str()),
        ];
        assert_eq!(found, expected);
    })
    .await;
}

#[tokio::test]
async fn a_service_gets_its_defaults_and_an_address() {
    scenario(async |c| {
        let path = core(c, "services").await;
        let body =
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}});
        let made = c.post(&path, &body).await;
        let address = made.ok(201)["spec"]["clusterIP"].clone();
        assert!(text(&address).parse::<std::net::Ipv4Addr>().is_ok(), "{address}");
        let expected = json!({
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "selector": {"a": "b"},
            "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
        });
        assert_eq!(made.body["spec"], expected);
        assert_eq!(made.body["status"], json!({"loadBalancer": {}}));
        let put = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 81}]}});
        let updated = c.put(&format!("{path}/a"), &put).await;
        assert_eq!(updated.ok(200)["spec"]["clusterIP"], address, "an update without the address keeps it");
        let other = json!({"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}});
        assert_ne!(c.post(&path, &other).await.ok(201)["spec"]["clusterIP"], address);
    })
    .await;
}

#[tokio::test]
async fn services_of_other_types() {
    scenario(async |c| {
        let path = core(c, "services").await;
        let post = async |name: &str, spec: Value| {
            let made = c.post(&path, &json!({"metadata": {"name": name}, "spec": spec})).await;
            made.ok(201)["spec"].clone()
        };
        let headless = post("headless", json!({"clusterIP": "None", "ports": [{"port": 80}]})).await;
        assert_eq!((&headless["clusterIP"], &headless["clusterIPs"]), (&json!("None"), &json!(["None"])));
        let port =
            post("port", json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": "http"}]})).await;
        assert!(port["ports"][0]["nodePort"].as_i64().is_some_and(|p| (30000..32768).contains(&p)), "{port}");
        assert_eq!(
            (&port["externalTrafficPolicy"], &port["ports"][0]["targetPort"]),
            (&json!("Cluster"), &json!("http"))
        );
        let balanced = post("balanced", json!({"type": "LoadBalancer", "ports": [{"port": 80}]})).await;
        assert_eq!(balanced["allocateLoadBalancerNodePorts"], true);
        assert!(balanced["ports"][0]["nodePort"].is_i64());
        let external = post("external", json!({"type": "ExternalName", "externalName": "a.b"})).await;
        assert_eq!(
            external,
            json!({"type": "ExternalName", "sessionAffinity": "None", "externalName": "a.b"})
        );
    })
    .await;
}

#[tokio::test]
async fn bad_services_are_refused() {
    scenario(async |c| {
        let path = core(c, "services").await;
        let post = async |spec: Value| c.post(&path, &json!({"metadata": {"name": "a"}, "spec": spec})).await;
        let types = "Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"";
        let reply = post(json!({"type": "Foo", "ports": [{"port": 80}]})).await;
        assert_eq!(causes(&reply, 422), [("FieldValueNotSupported", "spec.type", types)]);
        let reply = post(json!({})).await;
        assert_eq!(causes(&reply, 422), [("FieldValueRequired", "spec.ports", "Required value")]);
        let reply = post(json!({"ports": [{"port": 80}, {"port": 81}]})).await;
        let required = |field| ("FieldValueRequired", field, "Required value");
        assert_eq!(causes(&reply, 422), [required("spec.ports[0].name"), required("spec.ports[1].name")]);
        let reply = post(json!({"ports": [{"port": 70000, "targetPort": 1}]})).await;
        let why = "Invalid value: 70000: must be between 1 and 65535, inclusive";
        assert_eq!(causes(&reply, 422), [("FieldValueInvalid", "spec.ports[0].port", why)]);
        c.post(&path, &json!({"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}})).await.ok(201);
        let reply = c.patch(&format!("{path}/b"), MERGE_PATCH, &json!({"spec": {"clusterIP": "10.96.1.1"}})).await;
        let why = "Invalid value: [\"10.96.1.1\"]: may not change once set";
        assert_eq!(causes(&reply, 422), [("FieldValueInvalid", "spec.clusterIPs[0]", why)]);
    })
    .await;
}

#[tokio::test]
async fn a_lease_keeps_microseconds() {
    scenario(async |c| {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", c.namespace().await);
        let spec = json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00.123456Z",
            "renewTime": "2026-01-01T00:00:01.000000Z", "leaseTransitions": 0,
        });
        let made = c.post(&path, &json!({"metadata": {"name": "l"}, "spec": spec})).await;
        assert_eq!(made.ok(201)["spec"], spec);
        let bad =
            json!({"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}});
        let reply = c.post(&path, &bad).await;
        let expected = [
            ("FieldValueInvalid", "spec.leaseDurationSeconds", "Invalid value: 0: must be greater than 0"),
            (
                "FieldValueInvalid",
                "spec.leaseTransitions",
                "Invalid value: -1: must be greater than or equal to 0",
            ),
        ];
        assert_eq!(causes(&reply, 422), expected);
        let reply =
            c.post(&path, &json!({"metadata": {"name": "m"}, "spec": {"renewTime": "yesterday"}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
    })
    .await;
}

#[tokio::test]
async fn an_event_is_seen_in_both_groups() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let (old, new) = (
            format!("/api/v1/namespaces/{namespace}/events"),
            format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
        );
        let object = json!({"kind": "ConfigMap", "name": "a", "namespace": namespace, "apiVersion": "v1"});
        let event = json!({
            "metadata": {"name": "e"}, "involvedObject": object, "reason": "Because", "message": "hello",
            "type": "Normal", "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1, "source": {"component": "me"},
        });
        let made = c.post(&old, &event).await;
        assert_eq!(made.ok(201)["reportingComponent"], "");
        assert_eq!(made.body["eventTime"], Value::Null);
        let seen = c.get(&format!("{new}/e")).await;
        assert_eq!(seen.ok(200)["apiVersion"], "events.k8s.io/v1");
        assert_eq!((&seen.body["note"], &seen.body["regarding"]), (&json!("hello"), &object));
        assert_eq!(seen.body["deprecatedCount"], 1);
        assert_eq!(seen.body["deprecatedSource"], json!({"component": "me"}));
        let list = c.get(&format!("{old}?fieldSelector=involvedObject.name%3Da,reason%3DBecause")).await;
        assert_eq!(names(list.ok(200)), ["e"]);
        assert_eq!(names(c.get(&format!("{old}?fieldSelector=type%3DWarning")).await.ok(200)), [""; 0]);
        let event = json!({
            "metadata": {"name": "n"}, "regarding": object, "reason": "R", "note": "n", "type": "Normal", "action": "Do",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "reportingInstance": "i",
        });
        c.post(&new, &event).await.ok(201);
        let seen = c.get(&format!("{old}/n")).await;
        assert_eq!((&seen.ok(200)["message"], &seen.body["reportingComponent"]), (&json!("n"), &json!("a.b/c")));
    })
    .await;
}

#[tokio::test]
async fn bad_events_are_refused() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "X", "name": "a", "namespace": "other"}});
        let reply = c.post(&format!("/api/v1/namespaces/{namespace}/events"), &event).await;
        let why = "Invalid value: \"other\": does not match event.namespace";
        assert_eq!(causes(&reply, 422), [("FieldValueInvalid", "involvedObject.namespace", why)]);
        let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "X", "name": "y", "namespace": namespace}});
        let reply = c.post(&format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &event).await;
        assert_eq!(causes(&reply, 422)[0], ("FieldValueRequired", "eventTime", "Required value"));
    })
    .await;
}

#[tokio::test]
async fn a_node_is_made_with_its_status_and_taint() {
    scenario(async |c| {
        let name = unique("node");
        let body = json!({
            "metadata": {"name": name}, "spec": {"podCIDR": "10.1.0.0/24", "providerID": "x://1"},
            "status": {"capacity": {"cpu": "1000m", "memory": "1Gi"}},
        });
        let made = c.post("/api/v1/nodes", &body).await;
        let path = format!("/api/v1/nodes/{name}");
        c.doom(&path);
        assert_eq!(made.ok(201)["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        assert_eq!(made.body["spec"]["taints"], json!([taint]));
        assert_eq!(
            made.body["status"]["capacity"],
            json!({"cpu": "1", "memory": "1Gi"}),
            "quantities are put in order"
        );
        assert_eq!(made.body["status"]["allocatable"], made.body["status"]["capacity"]);
        let why = "Forbidden: node updates may not change providerID except from \"\" to valid";
        let reply = c.patch(&path, MERGE_PATCH, &json!({"spec": {"providerID": "y://2"}})).await;
        assert_eq!(causes(&reply, 422), [("FieldValueForbidden", "spec.providerID", why)]);
    })
    .await;
}

#[tokio::test]
async fn node_conditions_merge_by_type() {
    scenario(async |c| {
        let name = unique("node");
        c.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.ok(201);
        let path = format!("/api/v1/nodes/{name}");
        c.doom(&path);
        let status = format!("{path}/status");
        let patch =
            |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        c.patch(&status, STRATEGIC_PATCH, &patch("Ready", "True")).await.ok(200);
        c.patch(&status, STRATEGIC_PATCH, &patch("DiskPressure", "False")).await.ok(200);
        let reply = c.patch(&status, STRATEGIC_PATCH, &patch("Ready", "False")).await;
        let conditions = reply.ok(200)["status"]["conditions"].as_array().unwrap();
        let mut got: Vec<_> = conditions.iter().map(|c| (text(&c["type"]), text(&c["status"]))).collect();
        got.sort_unstable();
        assert_eq!(got, [("DiskPressure", "False"), ("Ready", "False")]);
        c.patch(&path, MERGE_PATCH, &json!({"spec": {"unschedulable": true}})).await.ok(200);
        let list = c.get("/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").await;
        assert!(names(list.ok(200)).contains(&name.as_str()));
    })
    .await;
}

#[tokio::test]
async fn a_default_service_account_comes_back() {
    scenario(async |c| {
        let path = format!("{}/default", core(c, "serviceaccounts").await);
        let first = c.until(&path, "the default service account", |reply| reply.code == 200).await;
        c.delete(&path).await.ok(200);
        c.until(&path, "a new one", |reply| {
            reply.code == 200 && reply.body["metadata"]["uid"] != first.body["metadata"]["uid"]
        })
        .await;
    })
    .await;
}

/// Of the other built-in kinds only storing and serving is claimed.
#[tokio::test]
async fn other_builtins_are_stored_and_served() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
        let mut long_lived = pod.clone();
        long_lived["spec"]["restartPolicy"] = json!("Always");
        let selector = json!({"matchLabels": {"a": "b"}});
        let table = [
            ("apps/v1", "deployments", json!({"spec": {"replicas": 0, "selector": selector, "template": long_lived}})),
            ("apps/v1", "statefulsets", json!({"spec": {"replicas": 0, "serviceName": "s", "selector": selector, "template": long_lived}})),
            ("apps/v1", "daemonsets", json!({"spec": {"selector": selector, "template": long_lived}})),
            ("batch/v1", "jobs", json!({"spec": {"suspend": true, "template": pod}})),
            ("batch/v1", "cronjobs", json!({"spec": {"suspend": true, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pod}}}})),
            ("policy/v1", "poddisruptionbudgets", json!({"spec": {"minAvailable": 1, "selector": selector}})),
            ("networking.k8s.io/v1", "networkpolicies", json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}})),
            ("networking.k8s.io/v1", "ingresses", json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})),
            ("autoscaling/v2", "horizontalpodautoscalers", json!({"spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})),
            ("discovery.k8s.io/v1", "endpointslices", json!({"addressType": "IPv4", "endpoints": [], "ports": []})),
        ];
        for (version, plural, mut body) in table {
            body["metadata"] = json!({"name": "x", "labels": {"suite": "behaviour"}});
            let path = format!("/apis/{version}/namespaces/{namespace}/{plural}");
            let made = c.post(&path, &body).await;
            assert_eq!(made.code, 201, "{plural}: {}", made.text);
            assert_eq!(made.body["apiVersion"], version);
            assert_eq!(names(c.get(&format!("{path}?labelSelector=suite%3Dbehaviour")).await.ok(200)), ["x"], "{plural}");
            let patched = c.patch(&format!("{path}/x"), MERGE_PATCH, &json!({"metadata": {"annotations": {"a": "b"}}})).await;
            assert_eq!(patched.ok(200)["metadata"]["annotations"]["a"], "b", "{plural}");
            assert_eq!(c.delete(&format!("{path}/x")).await.code, 200, "{plural}");
        }
    })
    .await;
}

#[tokio::test]
async fn cluster_scoped_builtins_are_stored_and_served() {
    scenario(async |c| {
        let table = [
            ("storage.k8s.io/v1", "storageclasses", json!({"provisioner": "example.com/p"})),
            ("scheduling.k8s.io/v1", "priorityclasses", json!({"value": 5})),
            ("rbac.authorization.k8s.io/v1", "clusterroles", json!({"rules": []})),
            ("node.k8s.io/v1", "runtimeclasses", json!({"handler": "h"})),
            ("networking.k8s.io/v1", "ingressclasses", json!({"spec": {"controller": "example.com/c"}})),
        ];
        for (version, plural, mut body) in table {
            let name = unique("kind");
            body["metadata"] = json!({"name": name});
            let path = format!("/apis/{version}/{plural}");
            let made = c.post(&path, &body).await;
            assert_eq!(made.code, 201, "{plural}: {}", made.text);
            c.doom(format!("{path}/{name}"));
            assert_eq!(
                c.get(&format!("{path}/{name}")).await.ok(200)["metadata"]["uid"],
                made.body["metadata"]["uid"]
            );
        }
    })
    .await;
}
