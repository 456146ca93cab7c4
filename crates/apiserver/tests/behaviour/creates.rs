//! Create: names, dry runs, field validation, and what is refused.

use crate::harness::{Call, configmap, managers, scenario, text, unique};
use serde_json::{Value, json};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[tokio::test]
async fn a_created_object_has_its_server_side_metadata() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&format!("{path}?fieldManager=tester"), &configmap("a")).await;
        let object = made.ok(201);
        let meta = &object["metadata"];
        assert_eq!(text(&meta["uid"]).len(), 36);
        assert!(text(&meta["resourceVersion"]).parse::<u64>().is_ok_and(|v| v > 0));
        assert!(text(&meta["creationTimestamp"]).ends_with('Z'));
        assert_eq!(meta["namespace"], path.split('/').nth(4).unwrap());
        assert_eq!(meta.get("generation"), None, "a ConfigMap has no generation");
        assert_eq!(object["data"], json!({"key": "value"}));
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        let expected = json!([{
            "manager": "tester", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:key": {}}},
        }]);
        assert_eq!(json!(managers(object)), expected);
        assert_eq!(c.get(&format!("{path}/a")).await.ok(200), object);
    })
    .await;
}

#[tokio::test]
async fn creating_twice_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let details = c.post(&path, &configmap("a")).await;
        let details = details.refused(409, "AlreadyExists", "configmaps \"a\" already exists");
        assert_eq!(*details, json!({"name": "a", "kind": "configmaps"}));
    })
    .await;
}

#[tokio::test]
async fn a_custom_resource_is_named_with_its_group_when_it_exists() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("a", json!({}))).await.ok(201);
        let again = c.post(&crd.objects, &crd.widget("a", json!({}))).await;
        let message = format!("{} \"a\" already exists", crd.resource());
        let details = again.refused(409, "AlreadyExists", &message);
        assert_eq!(*details, json!({"name": "a", "group": crd.group, "kind": "widgets"}));
    })
    .await;
}

#[tokio::test]
async fn generate_name_appends_five_characters() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = json!({"metadata": {"generateName": "gen-"}});
        let (one, two) = (c.post(&path, &body).await, c.post(&path, &body).await);
        for made in [&one, &two] {
            let meta = &made.ok(201)["metadata"];
            assert_eq!(meta["generateName"], "gen-");
            let name = text(&meta["name"]);
            assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
            assert!(name[4..].chars().all(|ch| "bcdfghjklmnpqrstvwxz2456789".contains(ch)), "{name}");
        }
        assert_ne!(one.body["metadata"]["name"], two.body["metadata"]["name"]);
    })
    .await;
}

#[tokio::test]
async fn a_long_generate_name_is_cut() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &json!({"metadata": {"generateName": "x".repeat(70)}})).await;
        assert_eq!(text(&made.ok(201)["metadata"]["name"]).len(), 63);
    })
    .await;
}

#[tokio::test]
async fn no_name_at_all_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &json!({"metadata": {}})).await.invalid(
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
            &[("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")],
        );
    })
    .await;
}

#[tokio::test]
async fn bad_names_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let why = format!("Invalid value: \"Bad_Name\": {SUBDOMAIN}");
        c.post(&path, &configmap("Bad_Name")).await.invalid(
            &format!("ConfigMap \"Bad_Name\" is invalid: metadata.name: {why}"),
            &[("FieldValueInvalid", "metadata.name", &why)],
        );
        let long = "x".repeat(254);
        let why = format!("Invalid value: \"{long}\": must be no more than 253 characters");
        c.post(&path, &configmap(&long)).await.invalid(
            &format!("ConfigMap \"{long}\" is invalid: metadata.name: {why}"),
            &[("FieldValueInvalid", "metadata.name", &why)],
        );
        // Names of RBAC objects are path segments, and only that.
        let roles = path.replace("/api/v1/", "/apis/rbac.authorization.k8s.io/v1/").replace("configmaps", "roles");
        c.post(&roles, &json!({"metadata": {"name": "system:Odd_name"}, "rules": []})).await.ok(201);
        c.post(&roles, &json!({"metadata": {"name": "a%b"}, "rules": []})).await.invalid(
            "Role.rbac.authorization.k8s.io \"a%b\" is invalid: metadata.name: Invalid value: \"a%b\": may not contain '%'",
            &[("FieldValueInvalid", "metadata.name", "Invalid value: \"a%b\": may not contain '%'")],
        );
    })
    .await;
}

#[tokio::test]
async fn a_namespace_that_differs_from_the_path_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        body["metadata"]["namespace"] = json!("elsewhere");
        let reply = c.post(&path, &body).await;
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!(*reply.refused(400, "BadRequest", message), Value::Null);
    })
    .await;
}

#[tokio::test]
async fn a_missing_namespace_is_refused() {
    scenario(async |c| {
        let name = unique("missing");
        let reply = c.post(&format!("/api/v1/namespaces/{name}/configmaps"), &configmap("a")).await;
        let details = reply.refused(404, "NotFound", &format!("namespaces \"{name}\" not found"));
        assert_eq!(*details, json!({"name": name, "kind": "namespaces"}));
        let crd = c.widgets().await;
        let elsewhere = crd.objects.replace(&crd.namespace, &name);
        let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "a"}});
        c.post(&elsewhere, &body).await.refused(404, "NotFound", &format!("namespaces \"{name}\" not found"));
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_answers_and_writes_nothing() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&format!("{path}?dryRun=All"), &configmap("dry")).await;
        let meta = &made.ok(201)["metadata"];
        assert_eq!(meta.get("resourceVersion"), None);
        assert_eq!(text(&meta["uid"]).len(), 36);
        c.get(&format!("{path}/dry")).await.refused(404, "NotFound", "configmaps \"dry\" not found");
    })
    .await;
}

#[tokio::test]
async fn bad_create_options_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let long = format!("fieldManager={}", "x".repeat(129));
        let table = [
            (
                "dryRun=Some",
                "FieldValueNotSupported",
                "dryRun",
                "Unsupported value: [\"Some\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=Sometimes",
                "FieldValueNotSupported",
                "fieldValidation",
                "Unsupported value: \"Sometimes\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
            (&long, "FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes"),
        ];
        for (query, reason, field, why) in table {
            let reply = c.post(&format!("{path}?{query}"), &configmap("a")).await;
            reply.invalid(
                &format!("CreateOptions.meta.k8s.io \"\" is invalid: {field}: {why}"),
                &[(reason, field, why)],
            );
            assert_eq!(reply.body["details"]["group"], "meta.k8s.io");
            assert_eq!(reply.body["details"]["kind"], "CreateOptions");
        }
        c.get(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
    })
    .await;
}

#[tokio::test]
async fn unknown_fields_of_a_builtin_follow_field_validation() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        body["extra"] = json!(1);
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown \
             field \"extra\"";
        c.post(&format!("{path}?fieldValidation=Strict"), &body).await.refused(400, "BadRequest", message);
        for (name, query, warnings) in [
            ("warn", "?fieldValidation=Warn", &[r#"299 - "unknown field \"extra\"""#][..]),
            ("default", "", &[r#"299 - "unknown field \"extra\"""#][..]),
            ("ignore", "?fieldValidation=Ignore", &[][..]),
        ] {
            body["metadata"]["name"] = json!(name);
            let made = c.post(&format!("{path}{query}"), &body).await;
            assert_eq!(made.ok(201).get("extra"), None, "{name}");
            assert_eq!(made.warnings(), warnings, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn duplicate_fields_follow_field_validation() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let body = r#"{"metadata":{"name":"dup"},"data":{"a":"1"},"data":{"b":"2"},"more":1}"#;
        let call = |query: &str| {
            Call::post(&format!("{path}{query}")).header("content-type", "application/json").bytes(body)
        };
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate \
             field \"data\", unknown field \"more\"";
        c.send(call("?fieldValidation=Strict")).await.refused(400, "BadRequest", message);
        let made = c.send(call("?fieldValidation=Warn")).await;
        made.ok(201);
        let expected = [r#"299 - "duplicate field \"data\"""#, r#"299 - "unknown field \"more\"""#];
        assert_eq!(made.warnings(), expected);
    })
    .await;
}

#[tokio::test]
async fn unknown_and_duplicate_fields_of_a_custom_resource_follow_field_validation() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let body = format!(
            r#"{{"apiVersion":"{}","kind":"Widget","metadata":{{"name":"w","bogus":1}},
                "spec":{{"size":1,"size":2,"nope":true,"ports":[{{"name":"a","wrong":1}}]}}}}"#,
            crd.api_version()
        );
        let call = |query: &str| {
            Call::post(&format!("{}{query}", crd.objects))
                .header("content-type", "application/json")
                .bytes(body.clone())
        };
        let message = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: duplicate field \
             \"spec.size\", unknown field \"metadata.bogus\", unknown field \"spec.nope\", unknown field \
             \"spec.ports[0].wrong\"";
        c.send(call("?fieldValidation=Strict")).await.refused(400, "BadRequest", message);
        let made = c.send(call("")).await;
        assert_eq!(made.ok(201)["spec"], json!({"size": 2, "ports": [{"name": "a"}]}));
        let expected = [
            r#"299 - "duplicate field \"spec.size\"""#,
            r#"299 - "unknown field \"metadata.bogus\"""#,
            r#"299 - "unknown field \"spec.nope\"""#,
            r#"299 - "unknown field \"spec.ports[0].wrong\"""#,
        ];
        assert_eq!(made.warnings(), expected);
    })
    .await;
}

#[tokio::test]
async fn the_kind_must_fit_the_path() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let reply = c.post(&path, &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "z"}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        assert!(message.starts_with("Secret in version \"v1\" cannot be handled as a ConfigMap: "), "{message}");
        let reply = c.post(&path, &json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "z"}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        let start = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered \
             for version \"v2\"";
        assert!(message.starts_with(start), "{message}");
        c.get(&format!("{path}/z")).await.refused(404, "NotFound", "configmaps \"z\" not found");
    })
    .await;
}

#[tokio::test]
async fn a_builtin_may_leave_out_kind_and_version_and_a_custom_resource_may_not() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let made = c.post(&path, &json!({"metadata": {"name": "bare"}})).await;
        assert_eq!(made.ok(201)["kind"], "ConfigMap");
        let crd = c.widgets().await;
        let reply = c.post(&crd.objects, &json!({"metadata": {"name": "bare"}})).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        assert!(message.contains("Object 'Kind' is missing in '{"), "{message}");
    })
    .await;
}

#[tokio::test]
async fn a_custom_resource_of_another_version_or_kind_is_refused() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("w", json!({}));
        body["apiVersion"] = json!(format!("{}/v9", crd.group));
        let message = format!(
            "the API version in the data ({}/v9) does not match the expected API version ({}/v1)",
            crd.group, crd.group
        );
        c.post(&crd.objects, &body).await.refused(400, "BadRequest", &message);
        let mut body = crd.widget("w", json!({}));
        body["kind"] = json!("Gadget");
        let reply = c.post(&crd.objects, &body).await;
        let message =
            format!("Gadget.{} \"w\" is invalid: kind: Invalid value: \"Gadget\": must be Widget", crd.group);
        reply
            .invalid(&message, &[("FieldValueInvalid", "kind", "Invalid value: \"Gadget\": must be Widget")]);
    })
    .await;
}

#[tokio::test]
async fn a_resource_version_on_create_is_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        body["metadata"]["resourceVersion"] = json!("5");
        let reply = c.post(&path, &body).await;
        assert_eq!(reply.code, 500);
        assert_eq!(reply.body["message"], "resourceVersion should not be set on objects to be created");
        c.get(&format!("{path}/a")).await.refused(404, "NotFound", "configmaps \"a\" not found");
    })
    .await;
}

#[tokio::test]
async fn bad_labels_and_annotations_are_refused_all_at_once() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        // One label with both mistakes: of two labels kube-apiserver looks at either first.
        body["metadata"]["labels"] = json!({"bad key!": "bad value!"});
        body["metadata"]["annotations"] = json!({"bad key!": "x"});
        let key = "Invalid value: \"bad key!\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
             for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        let value = "Invalid value: \"bad value!\": a valid label must be an empty string or consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        let message = format!(
            "ConfigMap \"a\" is invalid: [metadata.labels: {key}, metadata.labels: {value}, metadata.annotations: {key}]"
        );
        c.post(&path, &body).await.invalid(
            &message,
            &[
                ("FieldValueInvalid", "metadata.labels", key),
                ("FieldValueInvalid", "metadata.labels", value),
                ("FieldValueInvalid", "metadata.annotations", key),
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn bad_owner_references_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": "u", "controller": true});
        body["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "", "name": "", "uid": ""}]);
        let why = "Invalid value: \"\": must not be empty";
        c.post(&path, &body).await.invalid(
            &format!(
                "ConfigMap \"a\" is invalid: [metadata.ownerReferences.kind: {why}, metadata.ownerReferences.name: \
                 {why}, metadata.ownerReferences.uid: {why}]"
            ),
            &[
                ("FieldValueInvalid", "metadata.ownerReferences.kind", why),
                ("FieldValueInvalid", "metadata.ownerReferences.name", why),
                ("FieldValueInvalid", "metadata.ownerReferences.uid", why),
            ],
        );
        body["metadata"]["ownerReferences"] = json!([owner("one"), owner("two")]);
        let reply = c.post(&path, &body).await;
        assert_eq!(reply.code, 422, "{}", reply.text);
        let message = text(&reply.body["details"]["causes"][0]["message"]);
        assert!(message.contains("Only one reference can have Controller set to true"), "{message}");
    })
    .await;
}

#[tokio::test]
async fn bad_finalizers_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        body["metadata"]["finalizers"] = json!(["nofinal"]);
        let why =
            "Invalid value: \"nofinal\": name is neither a standard finalizer name nor is it fully qualified";
        c.post(&path, &body).await.invalid(
            &format!("ConfigMap \"a\" is invalid: metadata.finalizers[0]: {why}"),
            &[("FieldValueInvalid", "metadata.finalizers[0]", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn what_only_the_server_may_set_is_dropped() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let mut body = configmap("a");
        let claims = json!({
            "name": "a", "uid": "abc", "selfLink": "x", "creationTimestamp": "2020-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 4,
        });
        body["metadata"] = claims;
        let made = c.post(&path, &body).await;
        let meta = &made.ok(201)["metadata"];
        assert_ne!(meta["uid"], "abc");
        assert!(!text(&meta["creationTimestamp"]).starts_with("2020"));
        for key in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            assert_eq!(meta.get(key), None, "{key}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_custom_resource_starts_at_generation_one_without_status() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let mut body = crd.widget("w", json!({"size": 1}));
        body["status"] = json!({"phase": "Ready"});
        body["metadata"]["generation"] = json!(7);
        let made = c.post(&crd.objects, &body).await;
        assert_eq!(made.ok(201)["metadata"]["generation"], 1);
        assert_eq!(made.body.get("status"), None);
    })
    .await;
}

#[tokio::test]
async fn yaml_bodies_are_read() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: read\ndata:\n  a: 'on'\n  b: |\n    two\n    lines\n";
        let call = Call::post(&path).header("content-type", "application/yaml").bytes(yaml);
        assert_eq!(c.send(call).await.ok(201)["data"], json!({"a": "on", "b": "two\nlines\n"}));
    })
    .await;
}

#[tokio::test]
async fn yaml_is_of_the_old_kind_where_yes_is_a_boolean() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let yaml = "metadata:\n  name: yes\n";
        let reply = c.send(Call::post(&path).header("content-type", "application/yaml").bytes(yaml)).await;
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal bool into Go \
             struct field ObjectMeta.metadata.name of type string";
        reply.refused(400, "BadRequest", message);
    })
    .await;
}
