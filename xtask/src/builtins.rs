//! Generates what the embedded API server knows of the built-in kinds: which resources there are, and their types.
//!
//! The facts come from the OpenAPI and discovery documents that Kubernetes publishes in its Go module. Only facts are
//! taken (names, types, merge keys); descriptions are another project's sentences and stay out. Two tables are written:
//! `resources.json`, read at every start and therefore small and plain, and `types.gz`, unpacked when a type is first
//! needed. A line of the second holds, between tabs, the type's name, its `group/version/kind` if it has one, and the
//! type in the short JSON that [`shorten`] makes.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const MODULE: &str = "k8s.io/kubernetes@v1.36.4";
const TABLES: &str = "crates/apiserver/src/builtin";
/// Kinds that only a running cluster can answer for, and that nothing else needs.
const NOT_SERVED: [&str; 2] = ["bindings", "componentstatuses"];
/// Versions of which a newer one is served; their kinds would need conversion.
const OLD_VERSIONS: [(&str, &str); 1] = [("autoscaling", "v1")];
/// Types beside the served kinds and their lists that documents refer to.
const ALSO: [&str; 4] = [
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
];

/// Writes the tables, or with `check` compares them with what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let module = match module_folder(MODULE) {
        Ok(folder) => folder,
        Err(why) if check => {
            say(&format!("builtins: skipped, {MODULE} is not to be had: {why:#}"));
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let resources = read_resources(&module)?;
    let types = read_types(&module, &resources)?;
    let resources = resources_text(&resources)?;
    let folder = Path::new(TABLES);
    if check {
        let fresh = std::fs::read_to_string(folder.join("resources.json")).is_ok_and(|old| old == resources)
            && read_packed(&folder.join("types.gz")).is_ok_and(|old| old == types);
        if !fresh {
            bail!("{TABLES}: the tables of built-in kinds are stale; run `cargo xtask builtins`");
        }
        return Ok(());
    }
    write(&folder.join("resources.json"), resources.as_bytes())?;
    let packed = pack(&types)?;
    write(&folder.join("types.gz"), &packed)?;
    say(&format!("builtins: {} bytes of types in {} packed", types.len(), packed.len()));
    Ok(())
}

/// Where Go keeps the module's files.
pub(crate) fn module_folder(module: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", module])
        .output()
        .context("starting `go mod download`")?;
    let answer: Value =
        serde_json::from_slice(&output.stdout).context("reading the answer of `go mod download`")?;
    match answer["Dir"].as_str() {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => bail!("{}", answer["Error"].as_str().unwrap_or("go names no folder")),
    }
}

/// All stable resources in the order in which Kubernetes lists their groups.
fn read_resources(module: &Path) -> Result<Vec<Value>> {
    let folder = module.join("api/discovery");
    let mut out = Vec::new();
    let core = read_json(&folder.join("api__v1.json"))?;
    collect_resources("", "v1", &core, &mut out);
    let groups = read_json(&folder.join("apis.json"))?;
    for group in list(&groups["groups"]) {
        let name = text(&group["name"]);
        for version in list(&group["versions"]) {
            let version = text(&version["version"]);
            let is_stable = !version.contains("alpha") && !version.contains("beta");
            if !is_stable || OLD_VERSIONS.contains(&(name, version)) {
                continue;
            }
            let document = read_json(&folder.join(format!("apis__{name}__{version}.json")))?;
            collect_resources(name, version, &document, &mut out);
        }
    }
    Ok(out)
}

fn collect_resources(group: &str, version: &str, document: &Value, out: &mut Vec<Value>) {
    let all = list(&document["resources"]);
    for resource in all {
        let plural = text(&resource["name"]);
        if plural.contains('/') || NOT_SERVED.contains(&plural) {
            continue;
        }
        let prefix = format!("{plural}/");
        let subresources: Vec<&str> =
            all.iter().filter_map(|r| text(&r["name"]).strip_prefix(prefix.as_str())).collect();
        let mut entry = Map::new();
        entry.insert("group".into(), group.into());
        entry.insert("version".into(), version.into());
        entry.insert("plural".into(), plural.into());
        entry.insert("singular".into(), resource["singularName"].clone());
        entry.insert("kind".into(), resource["kind"].clone());
        entry.insert("namespaced".into(), resource["namespaced"].clone());
        entry.insert("verbs".into(), resource["verbs"].clone());
        for (key, value) in [
            ("shortNames", resource["shortNames"].clone()),
            ("categories", resource["categories"].clone()),
            ("subresources", json!(subresources)),
        ] {
            if value.as_array().is_some_and(|items| !items.is_empty()) {
                entry.insert(key.into(), value);
            }
        }
        out.push(Value::Object(entry));
    }
}

/// One resource per line, so that a change of Kubernetes reads well in a diff.
fn resources_text(resources: &[Value]) -> Result<String> {
    let lines: Vec<String> = resources.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// All types that the resources need, one per line, sorted by name.
fn read_types(module: &Path, resources: &[Value]) -> Result<String> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    let mut wanted: Vec<String> = ALSO.iter().map(ToString::to_string).collect();
    let mut seen = BTreeSet::new();
    for resource in resources {
        let (group, version) = (text(&resource["group"]), text(&resource["version"]));
        let path =
            if group.is_empty() { format!("api__{version}") } else { format!("apis__{group}__{version}") };
        if !seen.insert(path.clone()) {
            continue;
        }
        let document = read_json(&module.join(format!("api/openapi-spec/v3/{path}_openapi.json")))?;
        if let Some(schemas) = document["components"]["schemas"].as_object() {
            all.extend(schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
        }
    }
    let kinds: BTreeSet<(String, String, String)> = resources.iter().flat_map(kinds_of).collect();
    for (name, schema) in &all {
        let is_wanted = list(&schema["x-kubernetes-group-version-kind"]).iter().any(|gvk| {
            let key = (text(&gvk["group"]).into(), text(&gvk["version"]).into(), text(&gvk["kind"]).into());
            kinds.contains(&key)
        });
        // DeleteOptions and the like carry the group of everybody; the kind's own package tells them apart.
        if is_wanted && !name.contains(".meta.v1.") {
            wanted.push(name.clone());
        }
    }
    let mut types = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        if types.contains_key(&name) {
            continue;
        }
        let schema =
            all.get(&name).with_context(|| format!("type {name} is referred to but not published"))?;
        let kind = match list(&schema["x-kubernetes-group-version-kind"]) {
            [gvk] => format!("{}/{}/{}", text(&gvk["group"]), text(&gvk["version"]), text(&gvk["kind"])),
            _ => String::new(),
        };
        let line = format!("{kind}\t{}", serde_json::to_string(&shorten(schema, &mut wanted))?);
        types.insert(name, line);
    }
    Ok(types.iter().map(|(name, line)| format!("{name}\t{line}\n")).collect())
}

/// The kind of a resource and the kind of its list.
fn kinds_of(resource: &Value) -> [(String, String, String); 2] {
    let (group, version, kind) =
        (text(&resource["group"]), text(&resource["version"]), text(&resource["kind"]));
    [(group.into(), version.into(), kind.into()), (group.into(), version.into(), format!("{kind}List"))]
}

/// The facts of one schema under one-letter keys: `t`ype, `f`ormat, `p`roperties, `i`tems, values of a `m`ap, re`q`uired,
/// `d`efault, `r`eference, `l`ist type, list `k`eys, `a`tomic map, merge key `y`, patch `s`trategy. Type names that it
/// refers to are added to `wanted`.
fn shorten(schema: &Value, wanted: &mut Vec<String>) -> Value {
    let mut out = Map::new();
    if let Some(name) = reference(schema) {
        out.insert("r".into(), name.clone().into());
        wanted.push(name);
    } else if let Some(union) = schema["oneOf"].as_array() {
        // The two scalars with two faces: int-or-string, and quantities, which are a string or a number.
        let number = union.iter().any(|branch| branch["type"] == "number");
        out.insert("t".into(), if number { "quantity" } else { "int-or-string" }.into());
    } else if let Some(ty) = schema["type"].as_str() {
        out.insert("t".into(), ty.into());
    }
    for (long, short) in [
        ("format", "f"),
        ("required", "q"),
        ("x-kubernetes-list-type", "l"),
        ("x-kubernetes-list-map-keys", "k"),
        ("x-kubernetes-patch-merge-key", "y"),
        ("x-kubernetes-patch-strategy", "s"),
    ] {
        let numbered = long == "format" && out.get("t").is_some_and(|t| t == "int-or-string");
        if !schema[long].is_null() && !numbered {
            out.insert(short.into(), schema[long].clone());
        }
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        out.insert("a".into(), 1.into());
    }
    if schema.get("default").is_some_and(|value| !is_zero(value)) {
        out.insert("d".into(), schema["default"].clone());
    }
    if let Some(properties) = schema["properties"].as_object() {
        let short: Map<String, Value> =
            properties.iter().map(|(name, property)| (name.clone(), shorten(property, wanted))).collect();
        out.insert("p".into(), Value::Object(short));
    }
    if schema["items"].is_object() {
        out.insert("i".into(), shorten(&schema["items"], wanted));
    }
    if schema["additionalProperties"].is_object() {
        out.insert("m".into(), shorten(&schema["additionalProperties"], wanted));
    }
    Value::Object(out)
}

fn reference(schema: &Value) -> Option<String> {
    let target = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    target.rsplit('/').next().map(str::to_owned)
}

/// Go's zero value, which the published documents name as a default although nothing is ever filled in.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

pub(crate) fn pack(text: &str) -> Result<Vec<u8>> {
    // No file name and no time in the header: the same types always give the same bytes.
    let mut encoder = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).context("packing a table")?;
    encoder.finish().context("packing a table")
}

pub(crate) fn read_packed(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .with_context(|| format!("unpacking {}", path.display()))?;
    Ok(text)
}

pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("parsing {}", path.display()))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[allow(clippy::print_stdout, reason = "a chore tells its user what it did")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_facts_and_drops_sentences_and_zero_defaults() {
        let mut wanted = Vec::new();
        let short = shorten(
            &json!({
                "type": "object", "description": "words", "required": ["a"],
                "properties": {
                    "a": {"allOf": [{"$ref": "#/components/schemas/x.A"}], "default": {}, "description": "words"},
                    "b": {"type": "array", "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "set"},
                    "c": {"type": "string", "default": "TCP"},
                    "d": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
                },
            }),
            &mut wanted,
        );
        let expected = json!({"t": "object", "q": ["a"], "p": {
            "a": {"r": "x.A"}, "b": {"t": "array", "i": {"t": "string"}, "l": "set"},
            "c": {"t": "string", "d": "TCP"}, "d": {"t": "int-or-string"},
        }});
        assert_eq!(short, expected);
        assert_eq!(wanted, ["x.A"]);
    }

    #[test]
    fn packing_is_deterministic_and_reversible() {
        let text = "a\t{}\nb\t{}\n";
        let packed = pack(text).unwrap();
        assert_eq!(packed, pack(text).unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &packed).unwrap();
        assert_eq!(read_packed(file.path()).unwrap(), text);
    }

    #[test]
    fn subresources_are_folded_into_their_resource() {
        let document = json!({"resources": [
            {"name": "widgets", "singularName": "widget", "kind": "Widget", "namespaced": true, "verbs": ["get"]},
            {"name": "widgets/status", "kind": "Widget", "verbs": ["get"]},
            {"name": "bindings", "kind": "Binding", "verbs": ["create"]},
        ]});
        let mut out = Vec::new();
        collect_resources("g", "v1", &document, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0]["subresources"], json!(["status"]));
    }
}
