//! The operations of a resource, as OpenAPI lists them.
//!
//! kubectl looks here for two things: which query parameters the PATCH of a kind takes, and which verbs there are. The
//! rest is enough for generators of clients.

use crate::resource::Resource;
use serde_json::{Map, Value, json};

/// One operation before it is written down in version 3 or 2 of OpenAPI.
pub(super) struct Operation {
    pub(super) method: &'static str,
    action: &'static str,
    /// Name and type of query parameters.
    parameters: &'static [(&'static str, &'static str)],
    /// Media types of the body and the type name that it holds (none: a patch document).
    body: Option<(&'static [&'static str], Option<String>)>,
    /// The type name of the answer.
    answer: String,
}

/// A path with its operations.
pub(super) struct PathItem {
    pub(super) path: String,
    pub(super) operations: Vec<Operation>,
    /// Names of path parameters.
    parameters: Vec<&'static str>,
    /// Told apart in operation ids.
    suffix: String,
}

const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const ANY: &[&str] = &["*/*"];
const CUSTOM_PATCHES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
const BUILTIN_PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// All paths of a resource. `kind` and `list` are the names of its types.
pub(super) fn path_items(resource: &Resource, kind: &str, list: &str) -> Vec<PathItem> {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let (folder, outer) = if resource.namespaced {
        (format!("{base}/namespaces/{{namespace}}/{}", resource.plural), vec!["namespace"])
    } else {
        (format!("{base}/{}", resource.plural), Vec::new())
    };
    let mut inner = outer.clone();
    inner.insert(0, "name");
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let item =
        |path: String, operations: Vec<Operation>, parameters: &[&'static str], suffix: &str| PathItem {
            path,
            operations,
            parameters: parameters.to_vec(),
            suffix: format!("{scope}{}{suffix}", resource.kind),
        };
    let mut out = vec![
        item(folder.clone(), collection(resource, kind, list), &outer, ""),
        item(format!("{folder}/{{name}}"), single(resource, kind, true), &inner, ""),
    ];
    if resource.namespaced && resource.verbs.contains(&"list") {
        let mut everywhere = item(
            format!("{base}/{}", resource.plural),
            collection(resource, kind, list),
            &[],
            "ForAllNamespaces",
        );
        everywhere.operations.retain(|operation| operation.action == "list");
        everywhere.suffix = format!("{}ForAllNamespaces", resource.kind);
        out.push(everywhere);
    }
    if resource.has_status {
        out.push(item(format!("{folder}/{{name}}/status"), single(resource, kind, false), &inner, "Status"));
    }
    if resource.scale.is_some() {
        out.push(item(format!("{folder}/{{name}}/scale"), single(resource, SCALE, false), &inner, "Scale"));
    }
    out.retain(|item| !item.operations.is_empty());
    out
}

fn collection(resource: &Resource, kind: &str, list: &str) -> Vec<Operation> {
    let has = |verb: &str| resource.verbs.contains(&verb);
    let mut out = Vec::new();
    if has("list") {
        out.push(Operation {
            method: "get",
            action: "list",
            parameters: LIST,
            body: None,
            answer: list.into(),
        });
    }
    if has("create") {
        out.push(Operation {
            method: "post",
            action: "post",
            parameters: WRITE,
            body: Some((ANY, Some(kind.into()))),
            answer: kind.into(),
        });
    }
    if has("deletecollection") {
        out.push(Operation {
            method: "delete",
            action: "deletecollection",
            parameters: DELETE,
            body: Some((ANY, Some(OPTIONS.into()))),
            answer: STATUS.into(),
        });
    }
    out
}

/// The operations on one object, or (without `deletable`) on a subresource of it.
fn single(resource: &Resource, kind: &str, deletable: bool) -> Vec<Operation> {
    let has = |verb: &str| resource.verbs.contains(&verb);
    let mut out = Vec::new();
    if has("get") {
        out.push(Operation {
            method: "get",
            action: "get",
            parameters: &[],
            body: None,
            answer: kind.into(),
        });
    }
    if has("update") {
        out.push(Operation {
            method: "put",
            action: "put",
            parameters: WRITE,
            body: Some((ANY, Some(kind.into()))),
            answer: kind.into(),
        });
    }
    if has("patch") {
        let forms = if resource.is_custom() { CUSTOM_PATCHES } else { BUILTIN_PATCHES };
        out.push(Operation {
            method: "patch",
            action: "patch",
            parameters: PATCH,
            body: Some((forms, None)),
            answer: kind.into(),
        });
    }
    if deletable && has("delete") {
        out.push(Operation {
            method: "delete",
            action: "delete",
            parameters: DELETE,
            body: Some((ANY, Some(OPTIONS.into()))),
            answer: STATUS.into(),
        });
    }
    out
}

impl Operation {
    /// What both versions of OpenAPI say.
    fn common(&self, resource: &Resource, suffix: &str) -> Value {
        let verb = match self.action {
            "post" => "create",
            "put" => "replace",
            "get" => "read",
            "deletecollection" => "deleteCollection",
            other => other,
        };
        let group = if resource.group.is_empty() { "core" } else { &resource.group };
        json!({
            "operationId": format!("{verb}{}{}{suffix}", camel(group), camel(&resource.version)),
            "tags": [format!("{}_{}", group.replace(['.', '-'], "_"), resource.version)],
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind":
                {"group": resource.group, "version": resource.version, "kind": resource.kind},
        })
    }
}

/// `AppsV1` of `apps` and `v1`; dots and dashes start a new word.
fn camel(text: &str) -> String {
    text.split(['.', '-'])
        .map(|word| {
            let mut chars = word.chars();
            chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
        })
        .collect()
}

impl PathItem {
    /// The path in OpenAPI 3.
    pub(super) fn v3(&self, resource: &Resource) -> Value {
        let mut out = Map::new();
        for operation in &self.operations {
            let mut document = operation.common(resource, &self.suffix);
            document["parameters"] =
                operation.parameters.iter().map(|(name, ty)| query_v3(name, ty)).collect();
            if let Some((media, holds)) = &operation.body {
                let schema = match holds {
                    Some(name) => reference(name),
                    None => json!({"type": "object"}),
                };
                let content: Map<String, Value> =
                    media.iter().map(|media| (media.to_string(), json!({"schema": schema}))).collect();
                document["requestBody"] =
                    json!({"content": content, "required": operation.action != "delete"});
            }
            let answer = json!({"application/json": {"schema": reference(&operation.answer)}});
            document["responses"] = json!({"200": {"description": "OK", "content": answer}});
            out.insert(operation.method.into(), document);
        }
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(
                |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
            );
            out.insert("parameters".into(), parameters.collect());
        }
        Value::Object(out)
    }

    /// The path in OpenAPI 2.
    pub(super) fn v2(&self, resource: &Resource) -> Value {
        let mut out = Map::new();
        for operation in &self.operations {
            let mut document = operation.common(resource, &self.suffix);
            let mut parameters: Vec<Value> = operation
                .parameters
                .iter()
                .map(|(name, ty)| json!({"name": name, "in": "query", "type": ty, "uniqueItems": true}))
                .collect();
            if let Some((media, holds)) = &operation.body {
                document["consumes"] = json!(media);
                let schema = match holds {
                    Some(name) => json!({"$ref": format!("#/definitions/{name}")}),
                    None => json!({"type": "object"}),
                };
                parameters.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
            }
            document["parameters"] = parameters.into();
            document["produces"] = json!(["application/json"]);
            document["schemes"] = json!(["https"]);
            let answer = json!({"$ref": format!("#/definitions/{}", operation.answer)});
            document["responses"] = json!({"200": {"description": "OK", "schema": answer}});
            out.insert(operation.method.into(), document);
        }
        if !self.parameters.is_empty() {
            let parameters = self
                .parameters
                .iter()
                .map(|name| json!({"name": name, "in": "path", "required": true, "type": "string"}));
            out.insert("parameters".into(), parameters.collect());
        }
        Value::Object(out)
    }
}

fn query_v3(name: &str, ty: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}
