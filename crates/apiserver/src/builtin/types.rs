//! The packed table of built-in types, and the schemas made from it.
//!
//! `types.gz` is generated; a line holds a type's name, its `group/version/kind` if it has one, and its facts under
//! one-letter keys. It is unpacked when the first type is asked for, and a type becomes a [`Schema`] when it is first
//! used: a server that holds only custom resources never pays for the rest.

use crate::schema::{Additional, ListType, Schema, Type};
use flate2::read::GzDecoder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::sync::{Arc, OnceLock};

/// Marks a [`Schema`] that takes a quantity: a string or a number.
pub(crate) const QUANTITY: &str = "quantity";
/// The Go type of times with microseconds, which are decoded more strictly than other times.
pub(crate) const MICRO_TIME: &str = "v1.MicroTime";

static PACKED: &[u8] = include_bytes!("types.gz");

struct Table {
    /// Type name to its facts, still as text.
    lines: BTreeMap<String, String>,
    /// `group/version/kind` to type name.
    kinds: HashMap<String, String>,
    /// Types already made.
    made: Mutex<HashMap<String, Arc<Schema>>>,
    /// Plain scalars and lists of them, one node each however often they are used.
    shared: Mutex<HashMap<String, Arc<Schema>>>,
}

/// The schema of a built-in kind; of an unknown one, a schema that takes anything.
pub fn load_schema(group: &str, version: &str, kind: &str) -> Arc<Schema> {
    match type_name(group, version, kind) {
        Some(name) => table().schema(name, &mut Vec::new()),
        None => Arc::new(anything()),
    }
}

/// The name of a kind's type, as in `io.k8s.api.apps.v1.Deployment`.
pub fn type_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    table().kinds.get(&format!("{group}/{version}/{kind}")).map(String::as_str)
}

/// OpenAPI documents of the named types and of all that they refer to.
pub fn openapi_components(roots: &[&str]) -> BTreeMap<String, Value> {
    let table = table();
    let by_type: HashMap<&str, &str> =
        table.kinds.iter().map(|(kind, name)| (name.as_str(), kind.as_str())).collect();
    let mut wanted: Vec<String> = roots.iter().map(ToString::to_string).collect();
    let mut out = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if out.contains_key(&name) {
            continue;
        }
        let Some(facts) = table.facts(&name) else { continue };
        let mut document = openapi(&facts, &mut wanted);
        if let Some(gvk) = by_type.get(name.as_str()) {
            let mut parts = gvk.splitn(3, '/');
            let mut next = || parts.next().unwrap_or_default();
            document["x-kubernetes-group-version-kind"] =
                json!([{"group": next(), "version": next(), "kind": next()}]);
        }
        out.insert(name, document);
    }
    out
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut text = String::new();
        // The bytes are part of the program; a test unpacks them. Should they ever be damaged, every built-in kind is
        // merely untyped.
        if let Err(error) = GzDecoder::new(PACKED).read_to_string(&mut text) {
            tracing::error!(%error, "unpacking the table of built-in types");
        }
        Table::parse(&text)
    })
}

fn anything() -> Schema {
    Schema { preserve_unknown: true, ..Schema::default() }
}

// === impl Table ===

impl Table {
    fn parse(text: &str) -> Self {
        let mut lines = BTreeMap::new();
        let mut kinds = HashMap::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, '\t');
            let (Some(name), Some(kind), Some(facts)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            if !kind.is_empty() {
                kinds.insert(kind.to_string(), name.to_string());
            }
            lines.insert(name.to_string(), facts.to_string());
        }
        Self { lines, kinds, made: Mutex::default(), shared: Mutex::default() }
    }

    fn facts(&self, name: &str) -> Option<Value> {
        serde_json::from_str(self.lines.get(name)?).ok()
    }

    /// `open` holds the types being made: one that comes up again inside itself is left untyped there, which ends the
    /// recursion (only JSON schemas contain themselves).
    fn schema(&self, name: &str, open: &mut Vec<String>) -> Arc<Schema> {
        if let Some(made) = self.made.lock().get(name) {
            return made.clone();
        }
        let facts = match self.facts(name) {
            Some(facts) if !open.iter().any(|other| other == name) => facts,
            _ => return Arc::new(anything()),
        };
        open.push(name.to_string());
        let mut schema = self.make(&facts, open);
        open.pop();
        schema.title = Some(go_name(name));
        // Another thread may have made it meanwhile; the first one counts, so that there is one node for one type.
        self.made.lock().entry(name.to_string()).or_insert_with(|| Arc::new(schema)).clone()
    }

    fn node(&self, facts: &Value, open: &mut Vec<String>) -> Arc<Schema> {
        if let (Some(name), 1) = (facts["r"].as_str(), facts.as_object().map_or(0, serde_json::Map::len)) {
            return self.schema(name, open);
        }
        if facts["p"].is_object() {
            return Arc::new(self.make(facts, open));
        }
        let key = facts.to_string();
        if let Some(shared) = self.shared.lock().get(&key) {
            return shared.clone();
        }
        let schema = Arc::new(self.make(facts, open));
        self.shared.lock().entry(key).or_insert(schema).clone()
    }

    fn make(&self, facts: &Value, open: &mut Vec<String>) -> Schema {
        let mut schema = match facts["r"].as_str() {
            Some(name) => self.schema(name, open).as_ref().clone(),
            None => Schema::default(),
        };
        match facts["t"].as_str() {
            Some("object") => schema.ty = Some(Type::Object),
            Some("array") => schema.ty = Some(Type::Array),
            Some("string") => schema.ty = Some(Type::String),
            Some("integer") => schema.ty = Some(Type::Integer),
            Some("number") => schema.ty = Some(Type::Number),
            Some("boolean") => schema.ty = Some(Type::Boolean),
            Some("int-or-string") => schema.int_or_string = true,
            Some("quantity") => {
                schema.preserve_unknown = true;
                schema.format = Some(QUANTITY.into());
            }
            _ if facts["r"].is_null() => schema.preserve_unknown = true,
            _ => {}
        }
        if let Some(format) = facts["f"].as_str() {
            schema.format = Some(format.into());
        }
        if let Some(properties) = facts["p"].as_object() {
            schema.properties =
                properties.iter().map(|(name, facts)| (name.clone(), self.node(facts, open))).collect();
        }
        if facts["i"].is_object() {
            schema.items = Some(self.node(&facts["i"], open));
        }
        if facts["m"].is_object() {
            schema.additional = Additional::Of(self.node(&facts["m"], open));
        }
        if schema.ty == Some(Type::Object)
            && facts["p"].is_null()
            && facts["m"].is_null()
            && facts["r"].is_null()
        {
            schema.preserve_unknown = true;
        }
        merge_facts(&mut schema, facts);
        schema
    }
}

/// Defaults, required fields, and how lists and maps merge.
fn merge_facts(schema: &mut Schema, facts: &Value) {
    if let Some(default) = facts.get("d") {
        schema.default = Some(default.clone());
    }
    if facts["q"].is_array() {
        schema.limits.required = strings(&facts["q"]);
    }
    match facts["l"].as_str() {
        Some("map") => schema.list_type = ListType::Map,
        Some("set") => schema.list_type = ListType::Set,
        _ => {}
    }
    if facts["k"].is_array() {
        schema.list_map_keys = strings(&facts["k"]);
    }
    schema.atomic_map |= facts["a"] == 1;
    if let Some(key) = facts["y"].as_str() {
        schema.patch_merge_key = Some(key.into());
    }
    if let Some(strategy) = facts["s"].as_str() {
        schema.patch_merge = strategy.split(',').any(|word| word == "merge");
        schema.patch_retain_keys = strategy.split(',').any(|word| word == "retainKeys");
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `v1.PodSpec`: what Go, and therefore a decoding error, calls the type.
fn go_name(name: &str) -> String {
    let mut parts = name.rsplit('.');
    let last = parts.next().unwrap_or_default();
    format!("{}.{last}", parts.next().unwrap_or_default())
}

/// One type in OpenAPI's words.
fn openapi(facts: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = serde_json::Map::new();
    if let Some(name) = facts["r"].as_str() {
        wanted.push(name.to_string());
        let target = json!({"$ref": format!("#/components/schemas/{name}")});
        if facts.as_object().is_some_and(|facts| facts.len() == 1) {
            return target;
        }
        // A reference must stand alone; what is said beside it needs a wrapper.
        out.insert("allOf".into(), json!([target]));
    }
    match facts["t"].as_str() {
        Some("int-or-string") => {
            out.insert("format".into(), "int-or-string".into());
            out.insert("oneOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        }
        Some("quantity") => {
            out.insert("oneOf".into(), json!([{"type": "string"}, {"type": "number"}]));
        }
        Some(ty) => {
            out.insert("type".into(), ty.into());
        }
        None => {}
    }
    for (short, long) in [
        ("f", "format"),
        ("q", "required"),
        ("d", "default"),
        ("l", "x-kubernetes-list-type"),
        ("k", "x-kubernetes-list-map-keys"),
        ("y", "x-kubernetes-patch-merge-key"),
        ("s", "x-kubernetes-patch-strategy"),
    ] {
        if !facts[short].is_null() {
            out.insert(long.into(), facts[short].clone());
        }
    }
    if facts["a"] == 1 {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if let Some(properties) = facts["p"].as_object() {
        let properties: serde_json::Map<String, Value> =
            properties.iter().map(|(name, facts)| (name.clone(), openapi(facts, wanted))).collect();
        out.insert("properties".into(), Value::Object(properties));
    }
    if facts["i"].is_object() {
        out.insert("items".into(), openapi(&facts["i"], wanted));
    }
    if facts["m"].is_object() {
        out.insert("additionalProperties".into(), openapi(&facts["m"], wanted));
    }
    Value::Object(out)
}

/// All type names: for tests that walk everything.
#[cfg(test)]
pub(crate) fn all_types() -> std::collections::BTreeSet<String> {
    table().lines.keys().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_can_be_made_and_refers_only_to_known_types() {
        let names = all_types();
        assert!(names.len() > 400, "{}", names.len());
        let roots: Vec<&str> = names.iter().map(String::as_str).collect();
        let documents = openapi_components(&roots);
        assert_eq!(documents.len(), names.len());
        for (name, document) in &documents {
            let text = document.to_string();
            for target in text.split("#/components/schemas/").skip(1) {
                let target = target.split('"').next().unwrap();
                assert!(names.contains(target), "{name} refers to {target}");
            }
            assert!(!text.contains("\"description\":\""), "{name} has words of others");
            table().schema(name, &mut Vec::new());
        }
    }

    #[test]
    fn pod_spec_has_merge_keys_and_is_shared() {
        let pod = load_schema("", "v1", "Pod");
        let template = load_schema("apps", "v1", "Deployment");
        let spec = &template.properties["spec"].properties["template"].properties["spec"];
        assert!(Arc::ptr_eq(&pod.properties["spec"], spec), "one node for one type");
        let containers = &spec.properties["containers"];
        assert_eq!(containers.list_type, ListType::Map);
        assert_eq!(containers.list_map_keys, ["name"]);
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        assert!(containers.patch_merge);
        let volumes = &spec.properties["volumes"];
        assert!(volumes.patch_merge && volumes.patch_retain_keys);
        let ports = &containers.items.as_ref().unwrap().properties["ports"];
        assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
        let protocol = &ports.items.as_ref().unwrap().properties["protocol"];
        assert_eq!(protocol.default, Some(json!("TCP")));
        let strategy = &template.properties["spec"].properties["strategy"];
        assert!(strategy.patch_retain_keys, "kept beside a reference");
        assert_eq!(strategy.title.as_deref(), Some("v1.DeploymentStrategy"));
    }

    #[test]
    fn self_containing_types_end() {
        let crd = load_schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let version = crd.properties["spec"].properties["versions"].items.clone().unwrap();
        let root = &version.properties["schema"].properties["openAPIV3Schema"];
        assert!(!root.preserve_unknown && root.properties.contains_key("properties"));
        let Additional::Of(inner) = &root.properties["properties"].additional else { panic!("a map") };
        assert!(inner.preserve_unknown && inner.ty.is_none());
    }

    #[test]
    fn unknown_kinds_take_anything() {
        assert!(load_schema("x.y", "v1", "Nothing").preserve_unknown);
        assert_eq!(type_name("", "v1", "Pod"), Some("io.k8s.api.core.v1.Pod"));
    }
}
