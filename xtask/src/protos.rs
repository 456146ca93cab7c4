//! Generates what the embedded API server knows of Kubernetes' protobuf messages.
//!
//! A field's number and type come from the `.proto` files that Kubernetes publishes in its Go modules; how the field looks
//! in JSON (its name, whether it is spread into its parent, whether a zero is left out) comes from the tags of the Go
//! struct beside it. Only such facts are taken.
//!
//! The table is text, packed: `=apps/v1` starts the messages of an API version, and each of its lines names a message and,
//! after a tab, its fields as `NUMBER+FLAGS NAME TYPE` between semicolons. The flags: `r`epeated, `m`ap, `k`eeps zeros,
//! `i`nlined. A type is a scalar, a special form (see [`special`]), `*string` for a list that is a message, `~Name` for a
//! message that is one of several things in JSON, `Name`, or `apps/v1:Name` for a message of another version.

use crate::builtins::{module_folder, pack, read_json, read_packed, say, write};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const RESOURCES: &str = "crates/apiserver/src/builtin/resources.json";
const TABLE: &str = "crates/apiserver/src/protobuf/messages.gz";
/// The release of the staging modules that belongs to the one of the other tables.
const RELEASE: &str = "v0.36.4";
/// What an API version is called that is no group of its own.
const META: &str = "meta/v1";
/// Versions of which only parts are served: scales.
const ALSO: [(&str, &str); 1] = [("autoscaling", "v1")];

/// A message as its `.proto` file defines it.
#[derive(Debug, Default)]
struct Message {
    fields: Vec<Field>,
}

#[derive(Debug, PartialEq)]
struct Field {
    label: Label,
    ty: String,
    number: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Label {
    Optional,
    Repeated,
    Map,
}

/// What the tags of a Go struct field say.
#[derive(Debug, Clone, PartialEq)]
struct Tag {
    name: String,
    inline: bool,
    keeps_zero: bool,
}

/// All that is known of one API version.
struct Package {
    /// `k8s.io.api.apps.v1`
    proto: String,
    messages: BTreeMap<String, Message>,
    /// Struct name to its fields by their protobuf number.
    structs: BTreeMap<String, BTreeMap<u32, Tag>>,
}

/// Writes the table, or with `check` compares it with what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let packages = match read_packages() {
        Ok(packages) => packages,
        Err(why) if check => {
            say(&format!("protos: skipped, the definitions are not to be had: {why:#}"));
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let table = table_text(&packages)?;
    if check {
        if !read_packed(Path::new(TABLE)).is_ok_and(|old| old == table) {
            bail!("{TABLE}: the table of protobuf messages is stale; run `cargo xtask protos`");
        }
        return Ok(());
    }
    let packed = pack(&table)?;
    write(Path::new(TABLE), &packed)?;
    say(&format!("protos: {} bytes of messages in {} packed", table.len(), packed.len()));
    Ok(())
}

/// The definitions of all served versions, under their apiVersion.
fn read_packages() -> Result<BTreeMap<String, Package>> {
    let resources = read_json(Path::new(RESOURCES))?;
    let mut versions: BTreeSet<(String, String)> = resources
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|r| Some((r["group"].as_str()?.to_owned(), r["version"].as_str()?.to_owned())))
        .collect();
    versions.extend(ALSO.iter().map(|(group, version)| (group.to_string(), version.to_string())));
    let mut out = BTreeMap::new();
    let api = module_folder(&format!("k8s.io/api@{RELEASE}"))?;
    for (group, version) in versions {
        let short = group.split('.').next().unwrap_or_default();
        let folder = match group.as_str() {
            "" => api.join("core").join(&version),
            "apiextensions.k8s.io" => staged("apiextensions-apiserver", "pkg/apis/apiextensions", &version)?,
            "apiregistration.k8s.io" => staged("kube-aggregator", "pkg/apis/apiregistration", &version)?,
            _ => api.join(short).join(&version),
        };
        let name = if group.is_empty() { version } else { format!("{group}/{version}") };
        out.insert(name, read_package(&folder)?);
    }
    out.insert(META.into(), read_package(&staged("apimachinery", "pkg/apis/meta", "v1")?)?);
    Ok(out)
}

fn staged(module: &str, path: &str, version: &str) -> Result<PathBuf> {
    Ok(module_folder(&format!("k8s.io/{module}@{RELEASE}"))?.join(path).join(version))
}

fn read_package(folder: &Path) -> Result<Package> {
    let path = folder.join("generated.proto");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (proto, messages) = parse_proto(&text).with_context(|| format!("parsing {}", path.display()))?;
    let mut structs = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.ends_with(".pb.go") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            structs.extend(parse_structs(&text));
        }
    }
    Ok(Package { proto, messages, structs })
}

/// The package's name and its messages. The files are made by a generator, one field to a line.
fn parse_proto(text: &str) -> Result<(String, BTreeMap<String, Message>)> {
    let mut package = String::new();
    let mut messages: BTreeMap<String, Message> = BTreeMap::new();
    let mut open: Option<(String, Message)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_owned();
        } else if let Some(name) = line.strip_prefix("message ") {
            open = Some((name.trim_end_matches('{').trim().to_owned(), Message::default()));
        } else if line == "}" {
            messages.extend(open.take());
        } else if let Some((_, message)) = &mut open
            && !line.is_empty()
            && !line.starts_with("//")
        {
            message.fields.push(parse_field(line).with_context(|| format!("line {line:?}"))?);
        }
    }
    Ok((package, messages))
}

fn parse_field(line: &str) -> Result<Field> {
    let (head, number) = line.trim_end_matches(';').rsplit_once(" = ").context("no number")?;
    let number = number.parse().context("the number is none")?;
    let (head, _name) = head.rsplit_once(' ').context("no name")?;
    let (label, ty) = match head.strip_prefix("map<") {
        Some(inner) => {
            let value = inner.trim_end_matches('>').strip_prefix("string, ");
            (Label::Map, value.context("the keys of a map are no strings")?)
        }
        None => match head.split_once(' ') {
            Some(("optional", ty)) => (Label::Optional, ty),
            Some(("repeated", ty)) => (Label::Repeated, ty),
            _ => bail!("neither optional, repeated nor a map"),
        },
    };
    Ok(Field { label, ty: ty.to_owned(), number })
}

/// The tagged fields of all structs in a Go file.
fn parse_structs(text: &str) -> BTreeMap<String, BTreeMap<u32, Tag>> {
    let mut out = BTreeMap::new();
    let mut open: Option<(String, BTreeMap<u32, Tag>)> = None;
    for line in text.lines() {
        let header = line.strip_prefix("type ").and_then(|rest| rest.split_once(" struct"));
        if let Some((name, rest)) = header {
            open = Some((name.to_owned(), BTreeMap::new()));
            if rest.ends_with('}') {
                out.extend(open.take());
            }
        } else if line == "}" {
            out.extend(open.take());
        } else if let Some((_, fields)) = &mut open {
            fields.extend(parse_tag(line.trim()));
        }
    }
    out
}

/// One field of a struct: its protobuf number and how it looks in JSON.
fn parse_tag(line: &str) -> Option<(u32, Tag)> {
    if line.starts_with("//") {
        return None;
    }
    let (declaration, tags) = line.split_once('`')?;
    let quoted = |key: &str| tags.split_once(&format!("{key}:\""))?.1.split('"').next();
    let protobuf = quoted("protobuf")?;
    let number = protobuf.split(',').nth(1)?.parse().ok()?;
    // Types with a JSON form of their own have no JSON tags.
    let json = quoted("json").or_else(|| protobuf.split_once("name=").map(|(_, name)| name))?;
    let (name, options) = json.split_once(',').unwrap_or((json, ""));
    let option = |wanted: &str| options.split(',').any(|option| option == wanted);
    let is_pointer = declaration.split_whitespace().last()?.starts_with('*');
    let keeps_zero = is_pointer || !option("omitempty");
    Some((number, Tag { name: name.to_owned(), inline: option("inline"), keeps_zero }))
}

fn table_text(packages: &BTreeMap<String, Package>) -> Result<String> {
    let mut out = String::new();
    for (version, package) in packages {
        out.push_str(&format!("={version}\n"));
        for (name, message) in &package.messages {
            let full = format!("{}.{name}", package.proto);
            // Without a struct there is a list (written where it is used), or another name for a type of another package.
            if special(&full).is_some() || !package.structs.contains_key(name) {
                continue;
            }
            let fields = message.fields.iter().map(|field| field_text(packages, package, name, field));
            let fields: Vec<String> = fields.collect::<Result<_>>()?;
            out.push_str(&format!("{name}\t{}\n", fields.join(";")));
        }
    }
    Ok(out)
}

fn field_text(
    packages: &BTreeMap<String, Package>,
    package: &Package,
    message: &str,
    field: &Field,
) -> Result<String> {
    let tag = package.structs.get(message).and_then(|fields| fields.get(&field.number));
    let tag =
        tag.with_context(|| format!("{}.{message}: field {} has no Go tag", package.proto, field.number))?;
    let ty = type_text(packages, package, &field.ty).with_context(|| format!("{message}.{}", tag.name))?;
    let mut flags = String::new();
    match field.label {
        Label::Optional => {}
        Label::Repeated => flags.push('r'),
        Label::Map => flags.push('m'),
    }
    if tag.keeps_zero && field.label == Label::Optional && is_scalar(&ty) {
        flags.push('k');
    }
    if tag.inline {
        flags.push('i');
    }
    Ok(format!("{}{flags} {} {ty}", field.number, tag.name))
}

fn is_scalar(ty: &str) -> bool {
    matches!(ty, "string" | "bytes" | "bool" | "int32" | "int64" | "double")
}

/// How the table names a type.
fn type_text(packages: &BTreeMap<String, Package>, here: &Package, ty: &str) -> Result<String> {
    if is_scalar(ty) {
        return Ok(ty.to_owned());
    }
    let full = match ty.strip_prefix('.') {
        Some(full) => full.to_owned(),
        None => format!("{}.{ty}", here.proto),
    };
    if let Some(form) = special(&full) {
        return Ok(form.to_owned());
    }
    if full.ends_with(".meta.v1.Duration") {
        bail!("durations are text in JSON, which the decoder does not know how to write");
    }
    let (proto, name) = full.rsplit_once('.').context("a type without a package")?;
    let (version, package) = packages
        .iter()
        .find(|(_, p)| p.proto == proto)
        .with_context(|| format!("{full} is in no package"))?;
    if let Some(inner) = list_of(package, name) {
        return Ok(format!("*{inner}"));
    }
    if !package.structs.contains_key(name) {
        bail!("{full} has no Go struct");
    }
    let choice = if name.starts_with("JSONSchemaPropsOr") { "~" } else { "" };
    let prefix = if proto == here.proto { String::new() } else { format!("{version}:") };
    Ok(format!("{choice}{prefix}{name}"))
}

/// Messages with a JSON form of their own.
fn special(full: &str) -> Option<&'static str> {
    Some(match full.strip_prefix("k8s.io.")? {
        "apimachinery.pkg.apis.meta.v1.Time" => "time",
        "apimachinery.pkg.apis.meta.v1.MicroTime" => "microtime",
        "apimachinery.pkg.apis.meta.v1.FieldsV1" | "apimachinery.pkg.runtime.RawExtension" => "raw",
        "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON" => "raw",
        "apimachinery.pkg.api.resource.Quantity" => "quantity",
        "apimachinery.pkg.util.intstr.IntOrString" => "intorstring",
        _ => return None,
    })
}

/// A message that stands for a named list type of Go, which is a plain list in JSON.
fn list_of<'a>(package: &'a Package, name: &str) -> Option<&'a str> {
    if package.structs.contains_key(name) {
        return None;
    }
    match package.messages.get(name)?.fields.as_slice() {
        [Field { label: Label::Repeated, ty, number: 1 }] => Some(ty),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTO: &str = "\
package k8s.io.api.toys.v1;

// Words that are not taken.
message Toy {
  // optional string commented = 9;
  optional .k8s.io.apimachinery.pkg.util.intstr.IntOrString size = 1;
  repeated Part parts = 2;
  map<string, bytes> data = 3;
  optional Part inner = 4;
  optional Names names = 5;
  optional int32 count = 6;
}

message Part {
  optional string name = 1;
  optional bool loose = 2;
}

message Nothing {
}

message Names {
  repeated string items = 1;
}
";

    const GO: &str = "
type Toy struct {
\t// Old string `json:\"old\" protobuf:\"bytes,9,opt,name=old\"`
\tSize intstr.IntOrString `json:\"size,omitempty\" protobuf:\"bytes,1,opt,name=size\"`
\tParts []Part `json:\"pieces\" protobuf:\"bytes,2,rep,name=parts\"`
\tData map[string][]byte `json:\"data,omitempty\" protobuf:\"bytes,3,rep,name=data\"`
\tPart `json:\",inline\" protobuf:\"bytes,4,opt,name=inner\"`
\tNames Names `json:\"names,omitempty\" protobuf:\"bytes,5,opt,name=names\"`
\tCount *int32 `json:\"count,omitempty\" protobuf:\"varint,6,opt,name=count\"`
}

type Part struct {
\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`
\tLoose bool `json:\"loose,omitempty\" protobuf:\"varint,2,opt,name=loose\"`
}

type Names []string

type Nothing struct{}
";

    fn toys() -> Package {
        let (proto, messages) = parse_proto(PROTO).unwrap();
        Package { proto, messages, structs: parse_structs(GO) }
    }

    #[test]
    fn messages_take_their_numbers_from_proto_and_their_looks_from_go() {
        let table = table_text(&BTreeMap::from([("toys/v1".to_owned(), toys())])).unwrap();
        assert_eq!(
            table,
            "=toys/v1\nNothing\t\nPart\t1k name string;2 loose bool\nToy\t1 size intorstring;2r pieces Part;3m data bytes;\
             4i  Part;5 names *string;6k count int32\n"
        );
    }

    #[test]
    fn other_packages_are_named_and_missing_ones_noticed() {
        let packages = BTreeMap::from([("toys/v1".to_owned(), toys())]);
        let other = Package { proto: "k8s.io.api.dolls.v1".into(), ..toys() };
        assert_eq!(type_text(&packages, &other, ".k8s.io.api.toys.v1.Toy").unwrap(), "toys/v1:Toy");
        let error = type_text(&packages, &other, ".k8s.io.api.cars.v1.Car").unwrap_err().to_string();
        assert_eq!(error, "k8s.io.api.cars.v1.Car is in no package");
        let error =
            type_text(&packages, &other, ".k8s.io.apimachinery.pkg.apis.meta.v1.Duration").unwrap_err();
        assert!(error.to_string().starts_with("durations are text"), "{error}");
    }

    #[test]
    fn what_is_no_field_is_an_error() {
        for line in ["required string a = 1;", "map<int32, string> a = 1;", "optional string a = x;", "oneof"]
        {
            assert!(parse_field(line).is_err(), "{line}");
        }
    }
}
