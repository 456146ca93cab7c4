//! The forms an answer may be asked for: tables, metadata only, YAML, and what is not acceptable.

use crate::fixtures::Crd;
use crate::harness::{Call, Cluster, Reply, configmap, names, scenario, text};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn get_as(c: &Cluster, path: &str, accept: &str) -> Reply {
    c.send(Call::get(path).header("accept", accept)).await
}

/// (name, type, format, priority) of a table's columns.
fn columns(table: &Value) -> Vec<(&str, &str, &str, i64)> {
    let columns = table["columnDefinitions"].as_array().expect("a table has columns");
    columns
        .iter()
        .map(|c| (text(&c["name"]), text(&c["type"]), text(&c["format"]), c["priority"].as_i64().unwrap()))
        .collect()
}

fn cells(table: &Value) -> Vec<Value> {
    table["rows"].as_array().expect("a table has rows").iter().map(|row| row["cells"].clone()).collect()
}

async fn with_columns(c: &Cluster) -> Crd {
    let crd = c
        .widgets_with(|crd| {
            crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How big"},
                {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1},
                {"name": "First", "type": "string", "jsonPath": ".spec.order[0]"},
                {"name": "Port", "type": "integer", "jsonPath": ".spec.ports[?(@.name==\"web\")].port"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ]);
        })
        .await;
    let spec = json!({"size": 1, "order": ["one", "two"], "ports": [{"name": "a", "port": 1}, {"name": "web", "port": 80}]});
    c.post(&crd.objects, &crd.widget("a", spec)).await.ok(201);
    c.post(&crd.objects, &crd.widget("b", json!({}))).await.ok(201);
    crd
}

#[tokio::test]
async fn a_table_has_the_columns_of_the_crd() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        let table = get_as(c, &crd.objects, TABLE).await;
        assert_eq!(
            (&table.ok(200)["kind"], &table.body["apiVersion"]),
            (&json!("Table"), &json!("meta.k8s.io/v1"))
        );
        assert!(table.resource_version().parse::<u64>().is_ok());
        let expected = [
            ("Name", "string", "name", 0),
            ("Size", "integer", "", 0),
            ("Phase", "string", "", 1),
            ("First", "string", "", 0),
            ("Port", "integer", "", 0),
            ("Age", "date", "", 0),
        ];
        assert_eq!(columns(&table.body), expected);
        let described = &table.body["columnDefinitions"];
        assert_eq!(described[1]["description"], "How big");
        assert_eq!(
            described[2]["description"],
            "Custom resource definition column (in JSONPath format): .status.phase"
        );
        let rows = cells(&table.body);
        assert_eq!(
            rows[0].as_array().unwrap()[..5],
            [json!("a"), json!(1), Value::Null, json!("one"), json!(80)]
        );
        assert_eq!(
            rows[1].as_array().unwrap()[..5],
            [json!("b"), Value::Null, Value::Null, Value::Null, Value::Null]
        );
        assert!(text(&rows[0][5]).ends_with('s'), "an age: {}", rows[0]);
        let object = &table.body["rows"][0]["object"];
        assert_eq!(
            (&object["kind"], &object["metadata"]["name"]),
            (&json!("PartialObjectMetadata"), &json!("a"))
        );
        assert_eq!(object.get("spec"), None);
    })
    .await;
}

#[tokio::test]
async fn a_crd_without_columns_shows_the_age() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("a", json!({}))).await.ok(201);
        let table = get_as(c, &crd.at("a"), TABLE).await;
        assert_eq!(columns(table.ok(200)), [("Name", "string", "name", 0), ("Age", "date", "", 0)]);
        assert_eq!(table.body["rows"].as_array().map(Vec::len), Some(1));
    })
    .await;
}

#[tokio::test]
async fn a_table_may_carry_the_whole_object_or_none() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        let none = get_as(c, &format!("{}?includeObject=None", crd.objects), TABLE).await;
        assert_eq!(none.ok(200)["rows"][0]["object"], Value::Null);
        let whole = get_as(c, &format!("{}?includeObject=Object&limit=1", crd.objects), TABLE).await;
        assert_eq!(whole.ok(200)["rows"][0]["object"]["spec"]["size"], 1);
        assert_eq!(whole.body["rows"].as_array().map(Vec::len), Some(1));
        assert_eq!(whole.body["metadata"]["remainingItemCount"], 1);
        assert!(whole.body["metadata"]["continue"].is_string());
        let message = "Unable to convert to Table as requested: includeObject: Invalid value: \"Bad\": must be \
             'Metadata', 'Object', 'None', or empty";
        let bad = get_as(c, &format!("{}?includeObject=Bad", crd.objects), TABLE).await;
        bad.refused(400, "BadRequest", message);
    })
    .await;
}

#[tokio::test]
async fn builtins_have_tables_of_their_own() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let core = format!("/api/v1/namespaces/{namespace}");
        c.post(&format!("{core}/configmaps"), &configmap("cm")).await.ok(201);
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "1", "b": "2"}});
        c.post(&format!("{core}/secrets"), &secret).await.ok(201);
        let table = get_as(c, &format!("{core}/configmaps/cm"), TABLE).await;
        let expected = [("Name", "string", "name", 0), ("Data", "string", "", 0), ("Age", "string", "", 0)];
        assert_eq!(columns(table.ok(200)), expected);
        assert_eq!(cells(&table.body)[0].as_array().unwrap()[..2], [json!("cm"), json!(1)]);
        let table = get_as(c, &format!("{core}/secrets"), TABLE).await;
        let expected = [
            ("Name", "string", "name", 0),
            ("Type", "string", "", 0),
            ("Data", "string", "", 0),
            ("Age", "string", "", 0),
        ];
        assert_eq!(columns(table.ok(200)), expected);
        assert_eq!(cells(&table.body)[0].as_array().unwrap()[..3], [json!("s"), json!("Opaque"), json!(2)]);
        let table = get_as(c, &format!("/api/v1/namespaces/{namespace}"), TABLE).await;
        let expected = [("Name", "string", "name", 0), ("Status", "string", "", 0), ("Age", "string", "", 0)];
        assert_eq!(columns(table.ok(200)), expected);
        assert_eq!(cells(&table.body)[0].as_array().unwrap()[..2], [json!(namespace), json!("Active")]);
    })
    .await;
}

#[tokio::test]
async fn metadata_alone_can_be_asked_for() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        let list = get_as(c, &crd.objects, METADATA_LIST).await;
        assert_eq!(list.ok(200)["kind"], "PartialObjectMetadataList");
        assert_eq!(list.body["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(names(&list.body), ["a", "b"]);
        for item in list.body["items"].as_array().unwrap() {
            let keys: Vec<_> = item.as_object().unwrap().keys().map(String::as_str).collect();
            assert!(keys.iter().all(|key| ["kind", "apiVersion", "metadata"].contains(key)), "{keys:?}");
        }
        let one = get_as(c, &crd.at("a"), METADATA).await;
        assert_eq!(one.ok(200)["kind"], "PartialObjectMetadata");
        assert_eq!(one.body["metadata"]["name"], "a");
        assert_eq!(one.body.get("spec"), None);
    })
    .await;
}

#[tokio::test]
async fn answers_to_writes_can_be_tables_and_metadata_too() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        let call = Call::post(&crd.objects).json(&crd.widget("c", json!({}))).header("accept", METADATA);
        assert_eq!(c.send(call).await.ok(201)["kind"], "PartialObjectMetadata");
        let call = Call::patch(&crd.at("c"), crate::harness::MERGE_PATCH)
            .bytes(r#"{"spec":{"size":3}}"#)
            .header("accept", TABLE);
        let table = c.send(call).await;
        assert_eq!(cells(table.ok(200))[0][1], 3);
    })
    .await;
}

#[tokio::test]
async fn yaml_can_be_asked_for() {
    scenario(async |c| {
        let path = c.configmaps().await;
        c.post(&path, &configmap("a")).await.ok(201);
        let reply = get_as(c, &format!("{path}/a"), "application/yaml").await;
        assert_eq!(reply.code, 200);
        assert_eq!(reply.headers["content-type"], "application/yaml");
        assert!(reply.text.contains("\nkind: ConfigMap\n"), "{}", reply.text);
        assert!(reply.text.contains("data:\n  key: value\n"), "{}", reply.text);
    })
    .await;
}

#[tokio::test]
async fn the_first_acceptable_form_is_taken() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        let table = [
            ("*/*", "Widget"),
            ("application/*", "Widget"),
            ("application/json;as=Nope;v=v1;g=meta.k8s.io,application/json", "Widget"),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "Table"),
            ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "Widget"),
            ("text/html,application/json;q=0.9", "Widget"),
        ];
        for (accept, kind) in table {
            assert_eq!(get_as(c, &crd.at("a"), accept).await.ok(200)["kind"], kind, "{accept}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_given_is_not_acceptable() {
    scenario(async |c| {
        let crd = with_columns(c).await;
        for accept in ["text/html", "application/json;as=Nope;v=v1;g=meta.k8s.io"] {
            let reply = get_as(c, &crd.at("a"), accept).await;
            let message = text(&reply.body["message"]);
            // Protobuf may follow in the list.
            let start = "only the following media types are accepted: application/json, application/yaml";
            assert!(message.starts_with(start), "{message}");
            assert_eq!(*reply.refused(406, "NotAcceptable", message), Value::Null, "{accept}");
        }
    })
    .await;
}
