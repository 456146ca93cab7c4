//! Discovery, plain and aggregated, and the paths outside the API proper.

use crate::harness::{Call, Cluster, scenario, text};
use serde_json::{Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn named<'a>(list: &'a Value, key: &str, name: &str) -> Option<&'a Value> {
    list.as_array().expect("a list").iter().find(|item| item[key] == name)
}

/// The resource, without the hash of its storage.
fn resource(list: &Value, name: &str) -> Value {
    let mut found = named(&list["resources"], "name", name).unwrap_or(&Value::Null).clone();
    if let Some(fields) = found.as_object_mut() {
        fields.remove("storageVersionHash");
    }
    found
}

#[tokio::test]
async fn the_core_group_lists_its_version() {
    scenario(async |c| {
        let reply = c.get("/api").await;
        assert_eq!(reply.ok(200)["kind"], "APIVersions");
        assert_eq!(reply.body["versions"], json!(["v1"]));
        assert!(reply.body["serverAddressByClientCIDRs"].is_array());
    })
    .await;
}

#[tokio::test]
async fn the_core_resources_are_listed() {
    scenario(async |c| {
        let list = c.get("/api/v1").await;
        assert_eq!(list.ok(200)["kind"], "APIResourceList");
        assert_eq!(list.body["groupVersion"], "v1");
        let expected = json!({
            "name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap",
            "verbs": ALL_VERBS, "shortNames": ["cm"],
        });
        assert_eq!(resource(&list.body, "configmaps"), expected);
        let expected = json!({
            "name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace",
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"], "shortNames": ["ns"],
        });
        assert_eq!(resource(&list.body, "namespaces"), expected);
        let expected = json!({
            "name": "services", "singularName": "service", "namespaced": true, "kind": "Service",
            "verbs": ALL_VERBS, "shortNames": ["svc"], "categories": ["all"],
        });
        assert_eq!(resource(&list.body, "services"), expected);
        let expected = json!({
            "name": "serviceaccounts/token", "singularName": "", "namespaced": true, "group": "authentication.k8s.io",
            "version": "v1", "kind": "TokenRequest", "verbs": ["create"],
        });
        assert_eq!(resource(&list.body, "serviceaccounts/token"), expected);
        let status = resource(&list.body, "nodes/status");
        assert_eq!((&status["kind"], &status["verbs"]), (&json!("Node"), &json!(["get", "patch", "update"])));
        let finalize = resource(&list.body, "namespaces/finalize");
        assert_eq!(finalize["verbs"], json!(["update"]));
    })
    .await;
}

#[tokio::test]
async fn the_groups_are_listed() {
    scenario(async |c| {
        let list = c.get("/apis").await;
        assert_eq!(list.ok(200)["kind"], "APIGroupList");
        assert_eq!(list.body["apiVersion"], "v1");
        let groups = [
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "autoscaling",
            "batch",
            "certificates.k8s.io",
            "networking.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "storage.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "scheduling.k8s.io",
            "coordination.k8s.io",
            "node.k8s.io",
            "discovery.k8s.io",
        ];
        for group in groups {
            let found = named(&list.body["groups"], "name", group).unwrap_or_else(|| panic!("no group {group}"));
            assert_eq!(found["preferredVersion"], found["versions"][0], "{group}");
        }
        let apps = json!({"groupVersion": "apps/v1", "version": "v1"});
        let expected = json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [apps], "preferredVersion": apps,
        });
        assert_eq!(*c.get("/apis/apps").await.ok(200), expected);
    })
    .await;
}

/// Discovery of a real server follows a CRD with a short delay.
async fn discovered(c: &Cluster, path: &str, accept: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    crate::harness::eventually(path, async || {
        let reply = c.send(Call::get(path).header("accept", accept)).await;
        (reply.code == 200 && wanted(&reply.body)).then_some(reply.body)
    })
    .await
}

#[tokio::test]
async fn a_crd_shows_in_plain_discovery() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                crd["spec"]["names"]["shortNames"] = json!(["wdg"]);
                crd["spec"]["names"]["categories"] = json!(["junk"]);
                crd["spec"]["versions"][0]["subresources"]["scale"] =
                    json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
            })
            .await;
        let groups = discovered(c, "/apis", "application/json", |list| {
            named(&list["groups"], "name", &crd.group).is_some()
        })
        .await;
        let group = named(&groups["groups"], "name", &crd.group).unwrap();
        let version = json!({"groupVersion": crd.api_version(), "version": "v1"});
        assert_eq!(group["versions"], json!([version]));
        let path = format!("/apis/{}/v1", crd.group);
        let list =
            discovered(c, &path, "application/json", |list| resource(list, "widgets") != Value::Null).await;
        assert_eq!(list["groupVersion"], crd.api_version());
        let mut widgets = resource(&list, "widgets");
        let mut verbs: Vec<String> = serde_json::from_value(widgets["verbs"].take()).unwrap();
        verbs.sort();
        assert_eq!(verbs, ALL_VERBS);
        let expected = json!({
            "name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": null,
            "shortNames": ["wdg"], "categories": ["junk"],
        });
        assert_eq!(widgets, expected);
        let status = resource(&list, "widgets/status");
        assert_eq!(
            (&status["kind"], &status["verbs"]),
            (&json!("Widget"), &json!(["get", "patch", "update"]))
        );
        let scale = resource(&list, "widgets/scale");
        let got = (text(&scale["group"]), text(&scale["version"]), text(&scale["kind"]));
        assert_eq!(got, ("autoscaling", "v1", "Scale"));
    })
    .await;
}

#[tokio::test]
async fn aggregated_discovery_tells_it_all_at_once() {
    scenario(async |c| {
        for (path, group) in [("/api", ""), ("/apis", "coordination.k8s.io")] {
            let reply = c.send(Call::get(path).header("accept", AGGREGATED)).await;
            assert_eq!(reply.ok(200)["kind"], "APIGroupDiscoveryList");
            assert_eq!(reply.body["apiVersion"], "apidiscovery.k8s.io/v2");
            assert_eq!(reply.headers["content-type"], AGGREGATED);
            let items = reply.body["items"].as_array().unwrap();
            let found = items
                .iter()
                .find(|item| text(&item["metadata"]["name"]) == group)
                .unwrap_or_else(|| panic!("no group {group:?}"));
            assert_eq!(found["versions"][0]["version"], "v1");
            assert_eq!(found["versions"][0]["freshness"], "Current");
        }
        let reply = c.send(Call::get("/apis").header("accept", AGGREGATED)).await;
        let items = reply.body["items"].as_array().unwrap();
        let leases = items.iter().find(|item| item["metadata"]["name"] == "coordination.k8s.io").unwrap();
        let leases = named(&leases["versions"][0]["resources"], "resource", "leases").unwrap();
        let expected = json!({
            "resource": "leases", "responseKind": {"group": "", "version": "", "kind": "Lease"}, "scope": "Namespaced",
            "singularResource": "lease", "verbs": ALL_VERBS,
        });
        assert_eq!(*leases, expected);
    })
    .await;
}

#[tokio::test]
async fn a_crd_shows_in_aggregated_discovery() {
    scenario(async |c| {
        let crd = c.widgets_with(|crd| crd["spec"]["names"]["shortNames"] = json!(["wdg"])).await;
        let of = |list: &Value| -> Option<Value> {
            let items = list["items"].as_array()?;
            items.iter().find(|item| item["metadata"]["name"] == crd.group.as_str()).cloned()
        };
        let list = discovered(c, "/apis", AGGREGATED, |list| of(list).is_some()).await;
        let version = &of(&list).unwrap()["versions"][0];
        assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
        let widgets = named(&version["resources"], "resource", "widgets").expect("the resource is there");
        let kind = json!({"group": crd.group, "version": "v1", "kind": "Widget"});
        assert_eq!(widgets["responseKind"], kind);
        assert_eq!(widgets["shortNames"], json!(["wdg"]));
        assert_eq!(widgets["scope"], "Namespaced");
        let status = named(&widgets["subresources"], "subresource", "status").expect("so is its subresource");
        assert_eq!(status["responseKind"], kind);
    })
    .await;
}

#[tokio::test]
async fn aggregated_discovery_is_cacheable() {
    scenario(async |c| {
        // Other tests change discovery all the time, so ask until no change came between the two requests.
        crate::harness::eventually("an unchanged answer", async || {
            let first = c.send(Call::get("/api").header("accept", AGGREGATED)).await;
            let tag = first.headers["etag"].to_str().expect("the tag is text").to_string();
            assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
            let again =
                c.send(Call::get("/api").header("accept", AGGREGATED).header("if-none-match", &tag)).await;
            if again.code == 304 {
                // A cache takes the headers of a 304 over, and kubectl reads the kind of the answer from this one.
                assert_eq!(again.headers.get("content-type"), None);
            }
            (again.code == 304 && again.text.is_empty()).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn an_older_client_gets_plain_discovery() {
    scenario(async |c| {
        let accept = format!("{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json");
        let reply = c.send(Call::get("/apis").header("accept", &accept)).await;
        assert_eq!(reply.ok(200)["kind"], "APIGroupDiscoveryList");
        let reply = c.send(Call::get("/apis").header("accept", "application/json;g=x;v=v1;as=Y,application/json")).await;
        assert_eq!(reply.ok(200)["kind"], "APIGroupList");
    })
    .await;
}

#[tokio::test]
async fn unknown_versions_are_not_found() {
    scenario(async |c| {
        for path in ["/apis/apps/v9", "/api/v2"] {
            let reply = c.get(path).await;
            let details = reply.refused(404, "NotFound", "the server could not find the requested resource");
            assert_eq!(*details, json!({}), "{path}");
        }
        for path in ["/apis/nope.example.com", "/apis/nope.example.com/v1", "/nope"] {
            let reply = c.get(path).await;
            assert_eq!((reply.code, reply.text.trim_end()), (404, "404 page not found"), "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_version_is_told() {
    scenario(async |c| {
        let version = c.get("/version").await;
        let body = version.ok(200);
        assert_eq!((text(&body["major"]), text(&body["minor"])), ("1", "36"));
        assert!(text(&body["gitVersion"]).starts_with("v1.36."), "{body}");
        assert!(body["platform"].is_string());
    })
    .await;
}

#[tokio::test]
async fn health_is_told() {
    scenario(async |c| {
        for path in ["/healthz", "/livez", "/readyz"] {
            let reply = c.get(path).await;
            assert_eq!((reply.code, reply.text.as_str()), (200, "ok"), "{path}");
        }
        let verbose = c.get("/readyz?verbose").await;
        assert_eq!(verbose.code, 200);
        assert!(verbose.text.starts_with("[+]ping ok\n"), "{}", verbose.text);
        assert!(verbose.text.ends_with("readyz check passed\n"), "{}", verbose.text);
    })
    .await;
}
