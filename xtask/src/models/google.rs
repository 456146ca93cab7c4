//! What Google's discovery documents say of the methods that a driver may call.
//!
//! The table is JSON with one method or schema per line, under short keys: of a method the HTTP `m`ethod, `p`ath, `q`uery
//! parameters and re`q`uest body (`b`); of a field its `t`ype, `f`ormat, `e`num, `r`eference, `i`tems, values of a `m`ap,
//! whether the server writes it (`o`), whether it has the form of a resource's `n`ame, and the methods that require it (`w`).

use super::{Package, Table, Wheel, lines};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) const PACKAGE: Package = Package {
    name: "google-api-python-client",
    version: "2.202.0",
    sha256: "aaa90064c9bb642ff1d065b22ca8958a2cb6e345909cefe70d0e5452fc50e08b",
};

const TABLE: &str = "crates/sim/src/gce/model.json";
const DOCUMENTS: &str = "googleapiclient/discovery_cache/documents";

/// The collections and methods that are served. Others are refused by name.
const COMPUTE: &[(&str, &[&str])] = &[
    ("addresses", &["aggregatedList", "delete", "get", "insert", "list", "setLabels"]),
    ("disks", &["aggregatedList", "delete", "get", "list", "setLabels"]),
    ("firewalls", &["delete", "get", "insert", "list", "patch", "update"]),
    (
        "forwardingRules",
        &["aggregatedList", "delete", "get", "insert", "list", "patch", "setLabels", "setTarget"],
    ),
    ("globalOperations", &["get", "list", "wait"]),
    ("httpHealthChecks", &["delete", "get", "insert", "list", "patch", "update"]),
    ("images", &["get", "getFromFamily", "list"]),
    (
        "instanceGroups",
        &[
            "addInstances",
            "aggregatedList",
            "delete",
            "get",
            "insert",
            "list",
            "listInstances",
            "removeInstances",
        ],
    ),
    (
        "instances",
        &[
            "aggregatedList",
            "delete",
            "get",
            "insert",
            "list",
            "reset",
            "setDeletionProtection",
            "setLabels",
            "setMetadata",
            "setTags",
            "start",
            "stop",
        ],
    ),
    ("machineTypes", &["get", "list"]),
    ("networks", &["get", "list"]),
    ("projects", &["get"]),
    ("regionBackendServices", &["delete", "get", "getHealth", "insert", "list", "patch", "update"]),
    ("regionHealthChecks", &["delete", "get", "insert", "list", "patch", "update"]),
    ("regionOperations", &["get", "list", "wait"]),
    ("regions", &["get", "list"]),
    ("subnetworks", &["get", "list"]),
    (
        "targetPools",
        &[
            "addHealthCheck",
            "addInstance",
            "delete",
            "get",
            "getHealth",
            "insert",
            "list",
            "removeHealthCheck",
            "removeInstance",
        ],
    ),
    ("zoneOperations", &["get", "list", "wait"]),
    ("zones", &["get", "list"]),
];
const RESOURCE_MANAGER: &[(&str, &[&str])] = &[("projects", &["get", "testIamPermissions"])];

/// The form of names, as most fields give it.
const NAME: &str = "[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?";

pub(super) fn tables(wheel: &Wheel) -> Result<Vec<Table>> {
    let mut out = Facts::default();
    for (file, served) in [
        ("compute.v1.json", COMPUTE),
        ("cloudresourcemanager.v1.json", RESOURCE_MANAGER),
        ("cloudresourcemanager.v3.json", RESOURCE_MANAGER),
    ] {
        let bytes = wheel.file(&format!("{DOCUMENTS}/{file}"))?;
        let document: Value = serde_json::from_slice(&bytes).with_context(|| format!("read {file}"))?;
        out.take(file, &document, served)?;
    }
    Ok(vec![Table { path: TABLE, text: out.print()? }])
}

#[derive(Default)]
struct Facts {
    revisions: BTreeMap<String, String>,
    methods: BTreeMap<String, Value>,
    schemas: BTreeMap<String, Value>,
}

impl Facts {
    fn take(&mut self, file: &str, document: &Value, served: &[(&str, &[&str])]) -> Result<()> {
        let api = file.trim_end_matches(".json");
        self.revisions.insert(api.to_owned(), text(&document["revision"]).to_owned());
        let base = text(&document["servicePath"]);
        let mut wanted = Vec::new();
        for (collection, methods) in served {
            for name in *methods {
                let method = &document["resources"][collection]["methods"][name];
                let id = method["id"].as_str().with_context(|| format!("{api}: no {collection}.{name}"))?;
                // Two versions of an API have methods of one id.
                let id = if id.starts_with("cloudresourcemanager") {
                    id.replacen("manager", &format!("manager.{}", &api[api.len() - 2..]), 1)
                } else {
                    id.to_owned()
                };
                self.methods.insert(id, shorten_method(method, base, &mut wanted));
            }
        }
        while let Some(name) = wanted.pop() {
            if self.schemas.contains_key(&name) {
                continue;
            }
            let schema = &document["schemas"][&name];
            let fields =
                schema["properties"].as_object().with_context(|| format!("{api}: no schema {name}"))?;
            let fields: Map<String, Value> = fields
                .iter()
                .map(|(name, field)| (name.clone(), shorten_field(field, &mut wanted)))
                .collect();
            self.schemas.insert(name, Value::Object(fields));
        }
        Ok(())
    }

    fn print(&self) -> Result<String> {
        Ok(format!(
            "{{\"revisions\":{},\n\"methods\":{{\n{}\n}},\n\"schemas\":{{\n{}\n}}}}\n",
            serde_json::to_string(&self.revisions)?,
            lines(&self.methods)?,
            lines(&self.schemas)?
        ))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn shorten_method(method: &Value, base: &str, wanted: &mut Vec<String>) -> Value {
    let mut query = Map::new();
    for (name, parameter) in method["parameters"].as_object().into_iter().flatten() {
        if parameter["location"] == "query" {
            query.insert(name.clone(), parameter["type"].clone());
        }
    }
    let mut out = Map::new();
    out.insert("m".into(), method["httpMethod"].clone());
    let path = method["flatPath"].as_str().unwrap_or_else(|| text(&method["path"]));
    out.insert("p".into(), format!("/{base}{path}").into());
    if !query.is_empty() {
        out.insert("q".into(), Value::Object(query));
    }
    if let Some(body) = method["request"]["$ref"].as_str() {
        out.insert("b".into(), body.into());
        wanted.push(body.to_owned());
    }
    Value::Object(out)
}

fn shorten_field(field: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    if let Some(name) = field["$ref"].as_str() {
        out.insert("r".into(), name.into());
        wanted.push(name.to_owned());
    } else {
        out.insert("t".into(), field["type"].clone());
    }
    for (long, short) in [("format", "f"), ("enum", "e")] {
        if !field[long].is_null() {
            out.insert(short.into(), field[long].clone());
        }
    }
    let description = text(&field["description"]);
    if field["readOnly"] == true || description.starts_with("[Output Only]") {
        out.insert("o".into(), json!(1));
    }
    if field["pattern"] == NAME {
        out.insert("n".into(), json!(1));
    }
    if !field["annotations"]["required"].is_null() {
        out.insert("w".into(), field["annotations"]["required"].clone());
    }
    if field["items"].is_object() {
        out.insert("i".into(), shorten_field(&field["items"], wanted));
    }
    if field["additionalProperties"].is_object() {
        out.insert("m".into(), shorten_field(&field["additionalProperties"], wanted));
    }
    // Inline objects are rare and have fields of their own.
    if let Some(fields) = field["properties"].as_object() {
        let fields: Map<String, Value> =
            fields.iter().map(|(name, field)| (name.clone(), shorten_field(field, wanted))).collect();
        out.insert("p".into(), Value::Object(fields));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_kept_and_sentences_are_not() {
        let document = json!({
            "revision": "7", "servicePath": "compute/v1/",
            "resources": {"addresses": {"methods": {"insert": {
                "id": "compute.addresses.insert", "httpMethod": "POST", "description": "Sentences.",
                "flatPath": "projects/{project}/addresses", "request": {"$ref": "Address"},
                "parameters": {
                    "project": {"location": "path", "type": "string"},
                    "requestId": {"location": "query", "type": "string", "description": "Sentences."},
                },
            }}}},
            "schemas": {"Address": {"properties": {
                "id": {"type": "string", "format": "uint64", "readOnly": true, "description": "Sentences."},
                "selfLink": {"type": "string", "description": "[Output Only] Sentences."},
                "name": {"type": "string", "pattern": NAME, "annotations": {"required": ["compute.addresses.insert"]}},
            }}},
        });
        let mut facts = Facts::default();
        facts.take("compute.v1.json", &document, &[("addresses", &["insert"])]).unwrap();
        let printed = facts.print().unwrap();
        assert!(!printed.contains("Sentences"), "{printed}");
        let table: Value = serde_json::from_str(&printed).unwrap();
        let method = &table["methods"]["compute.addresses.insert"];
        assert_eq!(method["p"], "/compute/v1/projects/{project}/addresses");
        assert_eq!(method["q"], json!({"requestId": "string"}));
        let fields = &table["schemas"]["Address"];
        assert_eq!(
            (&fields["id"]["o"], &fields["selfLink"]["o"], &fields["name"]["n"]),
            (&json!(1), &json!(1), &json!(1))
        );
        assert_eq!(fields["name"]["w"], json!(["compute.addresses.insert"]));
        let missing = facts.take("compute.v1.json", &document, &[("addresses", &["delete"])]).unwrap_err();
        assert!(missing.to_string().contains("no addresses.delete"), "{missing}");
    }
}
