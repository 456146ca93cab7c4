//! What is wrong with the objects of a file.

use super::Finding;
use super::document::{self, Data, Mark, Node};
use super::explain;
use super::place;
use super::repair;
use anyhow::{Result, anyhow};
use butler_api::{Problem, Severity, validate_object};
use butler_apiserver::schema::{self, Schema};
use butler_apiserver::status::{FieldError, FieldProblem};
use serde_json::Value;
use std::sync::Arc;

/// Our kinds and their schemas.
pub(super) struct Kinds(Vec<Kind>);

struct Kind {
    api_version: String,
    name: String,
    namespaced: bool,
    schema: Arc<Schema>,
}

impl Kinds {
    pub(super) fn new() -> Result<Kinds> {
        butler_api::crds()
            .iter()
            .map(|crd| Kind::new(&serde_json::to_value(crd)?))
            .collect::<Result<_>>()
            .map(Kinds)
    }

    fn names(&self) -> String {
        self.0.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Kind {
    fn new(crd: &Value) -> Result<Kind> {
        let text =
            |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/spec/names/kind");
        let open_api = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        let schema = schema::parse(open_api).map_err(|errors| {
            let list = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            anyhow!("the schema of {name} is wrong: {list}")
        })?;
        let api_version = format!("{}/{}", text("/spec/group"), text("/spec/versions/0/name"));
        Ok(Kind { api_version, name, namespaced: text("/spec/scope") == "Namespaced", schema })
    }
}

/// Checks a whole text: the number of objects of ours, and everything that is wrong.
pub(super) fn check_text(kinds: &Kinds, text: &str) -> (usize, Vec<Finding>) {
    let mut report = Report { kinds, objects: 0, findings: Vec::new() };
    let documents = document::parse(text);
    if documents.is_empty() {
        report.error(Mark { line: 1, column: 1 }, "the file holds no object", "");
    }
    for document in documents {
        match document {
            Ok(node) => report.document(&node),
            Err(error) => {
                report.error(
                    error.at,
                    format!("not YAML: {}", error.why),
                    "nothing of this document could be checked",
                );
            }
        }
    }
    (report.objects, report.findings)
}

struct Report<'a> {
    kinds: &'a Kinds,
    objects: usize,
    findings: Vec<Finding>,
}

impl<'a> Report<'a> {
    fn error(&mut self, at: Mark, text: impl Into<String>, help: impl Into<String>) {
        self.push(Severity::Error, at, text, help);
    }

    fn push(&mut self, severity: Severity, at: Mark, text: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding { at, severity, text: text.into(), help: help.into() });
    }

    /// An object, or a list of them as `kubectl get -o yaml` writes it.
    fn document(&mut self, node: &Node) {
        let is_list = text_of(node, "kind").is_some_and(|kind| kind.ends_with("List"));
        match node.get("items").map(|items| &items.data) {
            Some(Data::List(items)) if is_list => items.iter().for_each(|item| self.object(item)),
            _ => self.object(node),
        }
    }

    fn object(&mut self, node: &Node) {
        let mut repeated = Vec::new();
        node.duplicates("", &mut |path, first, second| repeated.push((path, first, second)));
        for (path, first, second) in repeated {
            let text = format!("{path}: the key is there already, at {}:{}", first.line, first.column);
            self.error(second, text, "keep one of the two");
        }
        let Some(kind) = self.kind_of(node) else { return };
        self.objects += 1;
        let mut object = node.to_value();
        let unknown = schema::unknown_fields(&kind.schema, &object);
        for path in &unknown {
            let help = explain::unknown(&kind.schema, path);
            self.error(place::find(node, path).key, format!("{path}: unknown field"), help);
        }
        schema::apply_defaults(&kind.schema, &mut object);
        let mut errors = schema::validate(&kind.schema, &object);
        if errors.is_empty() {
            errors = schema::validate_rules(&kind.schema, &object, None);
        }
        let problems = self.across_fields(node, kind, object.clone(), &errors);
        errors.extend(check_meta(kind, &object));
        // A problem says more than the schema does about the same thing.
        let said = |error: &FieldError| {
            let mut wrong = problems.iter().filter(|problem| problem.severity == Severity::Error);
            wrong.any(|problem| problem.path == error.field || problem.rule == error.detail)
        };
        for error in errors.iter().filter(|error| !said(error)) {
            self.field_error(node, kind, &object, error);
        }
        for problem in &problems {
            self.problem(node, problem);
        }
    }

    /// The kind of an object. What is not ours is reported here, and not looked at further.
    fn kind_of(&mut self, node: &Node) -> Option<&'a Kind> {
        if !matches!(node.data, Data::Map(_)) {
            self.error(node.at, "not an object: a mapping with apiVersion and kind is expected", "");
            return None;
        }
        let (Some(api_version), Some(name)) = (text_of(node, "apiVersion"), text_of(node, "kind")) else {
            let help =
                format!("an object begins with apiVersion and kind; the kinds are {}", self.kinds.names());
            self.error(node.at, "apiVersion or kind is missing or no text", help);
            return None;
        };
        let kinds = self.kinds;
        if let Some(kind) = kinds.0.iter().find(|kind| kind.name == name && kind.api_version == api_version) {
            return Some(kind);
        }
        let at = place::find(node, "kind").value;
        if let Some(kind) = kinds.0.iter().find(|kind| kind.name == name) {
            let at = place::find(node, "apiVersion").value;
            let text = format!("apiVersion: {api_version:?}: not the apiVersion of {name}");
            self.error(at, text, format!("write {}", kind.api_version));
        } else if is_kubernetes(api_version) {
            let text =
                format!("kind: {name:?}: a kind of Kubernetes ({api_version}), which is not checked here");
            self.push(Severity::Warning, at, text, "check it with kubectl apply --dry-run=server");
        } else {
            let text = format!("kind: {name:?}: there is no such kind in {api_version}");
            self.error(at, text, format!("the kinds are {}", kinds.names()));
        }
        None
    }

    /// The checks across fields. They need an object that decodes; when the schema refuses it, they look at a repaired
    /// copy, and when that does not help either, the reader is told that there may be more.
    fn across_fields(
        &mut self,
        node: &Node,
        kind: &Kind,
        mut object: Value,
        refused: &[FieldError],
    ) -> Vec<Problem> {
        if let Some(Ok(problems)) = validate_object(&object) {
            return problems;
        }
        repair::repair(&kind.schema, &mut object, refused);
        match validate_object(&object) {
            Some(Ok(mut problems)) => {
                // A warning may come from the repair.
                problems.retain(|problem| {
                    problem.severity == Severity::Error && !is_guessed(refused, &problem.path)
                });
                problems
            }
            _ => {
                let text = "the checks across fields wait until the errors of this object are corrected";
                self.push(Severity::Warning, node.at, text, "");
                Vec::new()
            }
        }
    }

    fn field_error(&mut self, node: &Node, kind: &Kind, object: &Value, error: &FieldError) {
        let place = place::find(node, &error.field);
        let at = if place.whole { place.value } else { place.key };
        let about = explain::field(&kind.schema, &error.field);
        let there =
            repair::lookup(object, &error.field).filter(|_| error.problem == FieldProblem::TypeInvalid);
        if let Some(there) = there {
            // Kubernetes names the type that is there; the value itself says more.
            let detail = error.detail.replace(&format!("{} in body ", error.field), "");
            let rule = detail.rsplit_once(':').map_or(detail.as_str(), |(rule, _)| rule);
            let help = match there {
                Value::String(_) => "is it in quotes that should not be there? ",
                Value::Number(_) | Value::Bool(_) if rule.ends_with("string") => "put it in quotes. ",
                _ => "",
            };
            self.error(at, format!("{}: {there}: {rule}", error.field), format!("{help}{about}"));
            return;
        }
        let text = match error.field.as_str() {
            "" | "<nil>" => error.body(),
            field => format!("{field}: {}", error.body().replace(&format!("{field} in body "), "")),
        };
        self.error(at, text, about);
    }

    fn problem(&mut self, node: &Node, problem: &Problem) {
        let place = place::find(node, &problem.path);
        let at = if place.whole { place.value } else { place.key };
        let value = problem
            .value
            .as_ref()
            .filter(|_| place.whole)
            .map(|value| format!("{value:?}: "))
            .unwrap_or_default();
        self.push(
            problem.severity,
            at,
            format!("{}: {value}{}", problem.path, problem.rule),
            problem.remedy.clone(),
        );
    }
}

/// Metadata as a server would see it: with the namespace and the name that it would fill in.
fn check_meta(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut object = object.clone();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return vec![FieldError::required("metadata.name", "name or generateName is required")];
    };
    if let Err(why) = schema::decode_meta(&Value::Object(metadata.clone())) {
        return vec![FieldError::invalid("metadata", Value::Null, why)];
    }
    if kind.namespaced {
        metadata.entry("namespace").or_insert_with(|| "default".into());
    }
    if !metadata.contains_key("name") && metadata.contains_key("generateName") {
        metadata.insert("name".to_owned(), "generated".into());
    }
    schema::validate_meta(&object, kind.namespaced)
}

fn text_of<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    match &node.get(key)?.data {
        Data::Scalar(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Whether an apiVersion is of Kubernetes itself: the core, a group without a dot, or one under k8s.io.
fn is_kubernetes(api_version: &str) -> bool {
    match api_version.split_once('/') {
        None => api_version.starts_with('v'),
        Some((group, _)) => !group.contains('.') || group.ends_with(".k8s.io"),
    }
}

/// Whether a path, or something above or below it, was filled in by the repair.
fn is_guessed(refused: &[FieldError], path: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    refused.iter().any(|error| within(&error.field, path) || within(path, &error.field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What the CEL rules alone say, as a server would send it.
    fn rules(kind: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let kinds = Kinds::new().unwrap();
        let kind = kinds.0.iter().find(|known| known.name == kind).unwrap();
        let mut object = object.clone();
        schema::apply_defaults(&kind.schema, &mut object);
        schema::validate_rules(&kind.schema, &object, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_speak_plainly_when_a_key_is_absent() {
        let exposure =
            |value: Value| json!({"metadata": {"name": "x"}, "spec": {"controlPlaneExposure": value}});
        let needed = |field: &str, mode: &str| {
            format!(
                "spec.controlPlaneExposure.{field}: Required value: {field} is required when mode is {mode}"
            )
        };
        let bootstrap = |value: Value| rules("ClusterBootstrap", &exposure(value), None);
        assert_eq!(bootstrap(json!({"mode": "Ingress"})), [needed("hostname", "Ingress")]);
        assert_eq!(bootstrap(json!({"mode": "Ingress", "hostname": ""})), [needed("hostname", "Ingress")]);
        assert_eq!(
            bootstrap(json!({"mode": "Gateway"})),
            [needed("hostname", "Gateway"), needed("gatewayRef", "Gateway")]
        );
        assert_eq!(bootstrap(json!({"mode": "Gateway", "hostname": "*.a", "gatewayRef": "b/c"})), [""; 0]);
        assert_eq!(bootstrap(json!({})), [""; 0]);
        assert_eq!(rules("ClusterBootstrap", &json!({"spec": {}}), None), [""; 0]);
    }

    #[test]
    fn rules_of_patches_providers_and_the_singleton() {
        let patches = json!({"spec": {"talos": {"configPatches": [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/b"}]}}});
        assert_eq!(
            rules("ClusterBootstrap", &patches, None),
            [
                "spec.talos.configPatches[1].value: Required value: value is required when op is add or replace"
            ]
        );
        for provider in butler_api::Provider::ALL {
            let name = provider.as_str();
            let text =
                format!("spec.{name}: Required value: the block {name} is required when provider is {name}");
            assert_eq!(rules("ProviderConfig", &json!({"spec": {"provider": name}}), None), [text]);
        }
        let found = rules("ButlerConfig", &json!({"metadata": {"name": "other"}, "spec": {}}), None);
        assert!(
            found.len() == 1 && found[0].ends_with("there is one ButlerConfig, and its name is butler"),
            "{found:?}"
        );
    }

    #[test]
    fn a_load_balancer_stays_with_its_cluster() {
        let request = |cluster: &str, config: &str| json!({"spec": {"clusterName": cluster, "providerConfigRef": {"name": config}}});
        let old = request("a", "p");
        assert_eq!(rules("LoadBalancerRequest", &old, Some(&old)), [""; 0]);
        let found = rules("LoadBalancerRequest", &request("b", "q"), Some(&old));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("spec.clusterName") && found[0].contains("clusterName is immutable"),
            "{found:?}"
        );
        assert!(found[1].contains("providerConfigRef is immutable"), "{found:?}");
    }
}
