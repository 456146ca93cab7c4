//! CRDs from their creation to their end: conditions, versions, changes, deletion.

use crate::fixtures::{plain_spec, unique_group, widgets};
use crate::harness::{Cluster, JSON_PATCH, MERGE_PATCH, names, scenario, text};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn condition<'a>(crd: &'a Value, kind: &str) -> &'a Value {
    let conditions = crd["status"]["conditions"].as_array().expect("a CRD has conditions");
    conditions.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_crd_is_established_and_its_names_accepted() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                crd["spec"]["names"]["shortNames"] = json!(["wdg"]);
                crd["spec"]["names"]["categories"] = json!(["junk"]);
            })
            .await;
        let object = c.get(&crd.path).await.body;
        let established = condition(&object, "Established");
        assert_eq!(established["reason"], "InitialNamesAccepted");
        assert_eq!(established["message"], "the initial names have been accepted");
        let accepted = condition(&object, "NamesAccepted");
        assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("True"), &json!("NoConflicts")));
        assert_eq!(accepted["message"], "no conflicts found");
        assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(object["status"]["acceptedNames"], object["spec"]["names"]);
        assert_eq!(object["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(object["metadata"]["generation"], 1);
    })
    .await;
}

#[tokio::test]
async fn names_are_filled_in() {
    scenario(async |c| {
        let mut body = widgets(&unique_group(), plain_spec());
        let names = body["spec"]["names"].as_object_mut().unwrap();
        names.remove("singular");
        names.remove("listKind");
        let crd = c.install(&body).await;
        let object = c.get(&crd.path).await.body;
        assert_eq!(object["spec"]["names"]["singular"], "widget");
        assert_eq!(object["spec"]["names"]["listKind"], "WidgetList");
    })
    .await;
}

#[tokio::test]
async fn a_cluster_scoped_kind_has_no_namespace() {
    scenario(async |c| {
        let crd = c.widgets_with(|crd| crd["spec"]["scope"] = json!("Cluster")).await;
        let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "w"}});
        let made = c.post(&crd.objects, &body).await;
        assert_eq!(made.ok(201)["metadata"].get("namespace"), None);
        let nested = format!("/apis/{}/v1/namespaces/{}/widgets", crd.group, crd.namespace);
        assert_eq!(c.get(&nested).await.code, 404);
    })
    .await;
}

/// Adds a second, deprecated version whose schema has one field more, with a default.
fn second_version(crd: &mut Value) {
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["deprecated"] = json!(true);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["added"] =
        json!({"type": "string", "default": "later"});
    crd["spec"]["versions"].as_array_mut().unwrap().push(second);
}

#[tokio::test]
async fn every_served_version_shows_the_same_objects() {
    scenario(async |c| {
        let crd = c.widgets_with(second_version).await;
        c.post(&crd.objects, &crd.widget("a", json!({"size": 1}))).await.ok(201);
        let second = crd.objects.replace("/v1/", "/v2/");
        let read = c.get(&format!("{second}/a")).await;
        assert_eq!(read.ok(200)["apiVersion"], format!("{}/v2", crd.group));
        assert_eq!(read.body["spec"], json!({"size": 1}), "reading does not apply another version's defaults");
        assert_eq!(read.warnings(), [format!("299 - \"{}/v2 Widget is deprecated\"", crd.group)]);
        assert_eq!(c.get(&second).await.ok(200)["items"][0]["apiVersion"], format!("{}/v2", crd.group));
        let body = json!({
            "apiVersion": format!("{}/v2", crd.group), "kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 2},
        });
        let made = c.post(&second, &body).await;
        assert_eq!(made.ok(201)["spec"], json!({"size": 2}), "what the stored version does not know is not kept");
        let first = c.get(&crd.at("b")).await;
        assert_eq!(first.ok(200)["apiVersion"], crd.api_version());
        assert_eq!(first.body["spec"], json!({"size": 2}));
        let mut watch = c.watch(&format!("{second}?resourceVersion=0&fieldSelector=metadata.name%3Da")).await;
        assert_eq!(watch.next().await["object"]["apiVersion"], format!("{}/v2", crd.group));
    })
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_served_is_not_found() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                second_version(crd);
                crd["spec"]["versions"][1]["served"] = json!(false);
            })
            .await;
        let reply = c.get(&crd.objects.replace("/v1/", "/v2/")).await;
        assert_eq!(reply.code, 404);
        let patch = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": true}]);
        c.patch(&crd.path, JSON_PATCH, &patch).await.ok(200);
        c.until(&crd.objects.replace("/v1/", "/v2/"), "the second version", |reply| reply.code == 200).await;
    })
    .await;
}

#[tokio::test]
async fn a_change_of_the_schema_takes_effect() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let made = c.post(&crd.objects, &crd.widget("w", json!({"weight": 5}))).await;
        assert_eq!(made.ok(201)["spec"], json!({}));
        let patch = json!([{
            "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight",
            "value": {"type": "integer"},
        }]);
        let patched = c.patch(&crd.path, JSON_PATCH, &patch).await;
        assert_eq!(patched.ok(200)["metadata"]["generation"], 2);
        crate::harness::eventually("the new field", async || {
            let patched = c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"weight": 6}})).await;
            (patched.ok(200)["spec"]["weight"] == 6).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn what_a_crd_may_not_change() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let why = "Invalid value: \"Cluster\": field is immutable";
        let name = format!("widgets.{}", crd.group);
        let reply = c.patch(&crd.path, MERGE_PATCH, &json!({"spec": {"scope": "Cluster"}})).await;
        let message = format!("CustomResourceDefinition.apiextensions.k8s.io \"{name}\" is invalid: spec.scope: {why}");
        reply.invalid(&message, &[("FieldValueInvalid", "spec.scope", why)]);
        let patch = json!([{"op": "replace", "path": "/spec/versions/0/name", "value": "v9"}]);
        let reply = c.patch(&crd.path, JSON_PATCH, &patch).await;
        let why = "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in \
             spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from \
             status.storedVersions";
        let message = format!(
            "CustomResourceDefinition.apiextensions.k8s.io \"{name}\" is invalid: status.storedVersions[0]: {why}"
        );
        reply.invalid(&message, &[("FieldValueInvalid", "status.storedVersions[0]", why)]);
    })
    .await;
}

#[tokio::test]
async fn a_taken_name_is_not_accepted() {
    scenario(async |c| {
        let first = c.widgets().await;
        let mut other = widgets(&first.group, plain_spec());
        other["metadata"]["name"] = json!(format!("gadgets.{}", first.group));
        other["spec"]["names"] =
            json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
        c.post(CRDS, &other).await.ok(201);
        let path = format!("{CRDS}/gadgets.{}", first.group);
        c.doom(&path);
        let reply = c
            .until(&path, "the verdict about the names", |reply| {
                reply.body["status"]["conditions"].is_array()
            })
            .await;
        let accepted = condition(&reply.body, "NamesAccepted");
        assert_eq!((&accepted["status"], &accepted["reason"]), (&json!("False"), &json!("KindConflict")));
        assert_eq!(accepted["message"], "\"Widget\" is already in use");
        let established = condition(&reply.body, "Established");
        assert_eq!(
            (&established["status"], &established["reason"]),
            (&json!("False"), &json!("NotAccepted"))
        );
    })
    .await;
}

#[tokio::test]
async fn deleting_a_crd_deletes_its_objects() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("a", json!({}))).await.ok(201);
        let deleted = c.delete(&crd.path).await;
        deleted.ok(200);
        c.gone(&crd.path).await;
        c.until(&crd.objects, "the kind to go", |reply| reply.code == 404).await;
        let again = c.install(&widgets(&crd.group, plain_spec())).await;
        let list = c.get(&format!("/apis/{}/v1/widgets", again.group)).await;
        assert_eq!(names(list.ok(200)), [""; 0], "nothing comes back with the kind");
    })
    .await;
}

#[tokio::test]
async fn a_crd_waits_for_the_finalizers_of_its_objects() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("a", json!({}));
        body["metadata"]["finalizers"] = json!(["example.com/hold"]);
        c.post(&crd.objects, &body).await.ok(201);
        c.delete(&crd.path).await.ok(200);
        c.until(&crd.at("a"), "the object to be marked", |reply| {
            reply.body["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        let held = c.get(&crd.path).await;
        assert_eq!(
            held.ok(200)["metadata"]["finalizers"],
            json!(["customresourcecleanup.apiextensions.k8s.io"])
        );
        let reply = c.post(&crd.objects, &crd.widget("b", json!({}))).await;
        let why = "create not allowed while custom resource definition is terminating";
        let details =
            reply.refused(403, "Forbidden", &format!("{} \"b\" is forbidden: {why}", crd.resource()));
        assert_eq!(*details, json!({"name": "b", "group": crd.group, "kind": "widgets"}));
        c.patch(&crd.at("a"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.ok(200);
        c.gone(&crd.path).await;
    })
    .await;
}

/// A CRD of another group may have the same names.
#[tokio::test]
async fn two_groups_may_use_the_same_names() {
    scenario(async |c: &Cluster| {
        let (one, two) = (c.widgets().await, c.widgets().await);
        c.post(&one.objects, &one.widget("w", json!({"size": 1}))).await.ok(201);
        let list = c.get(&two.objects).await;
        assert_eq!(list.ok(200)["items"], json!([]));
        assert_ne!(text(&json!(one.group)), two.group);
    })
    .await;
}
