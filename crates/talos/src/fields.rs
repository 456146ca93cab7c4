//! The table of all config fields (`fields.txt`), and what it is good for: reading strictly, writing in Talos' order.
//!
//! Talos refuses a key that it does not know, anywhere, and each minor knows other ones. The table is what makes the same
//! check possible here, with a line number and before anything is sent.

use crate::client::shown_key;
use crate::contract::Contract;
use crate::validate::{Problem, Source};
use crate::yaml::{Data, Node, Order, Scalar};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;

/// The type of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type {
    String,
    Bool,
    Int,
    /// An `Int` that is not negative.
    Uint,
    /// `1h30m`
    Duration,
    Url,
    Ip,
    /// An address with a prefix length.
    Prefix,
    /// Bytes, as a number or as `50GiB`.
    Size,
    /// `6443` or `1-1024`
    Port,
    /// A file's permissions: an octal number.
    Mode,
    Base64,
    /// A flag's value; from 1.13 on it may be a list.
    Arg,
    /// A map of anything.
    Free,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(&'static str),
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
    /// Zero is a value that a patch can set.
    pub(crate) zero_counts: bool,
    pub(crate) merge: Merge,
    versions: Versions,
}

/// How a strategic merge patch changes a field, beyond what its type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    Usual,
    Replace,
    /// Items of a list are the same when one of these keys (separated by `|`) is.
    By(&'static str),
    /// The same, and an item replaces its predecessor.
    ReplaceBy(&'static str),
}

#[derive(Debug, Clone, Copy, Default)]
struct Versions {
    since: Option<u32>,
    until: Option<u32>,
}

#[derive(Debug, Default)]
struct Table {
    structs: BTreeMap<&'static str, Vec<Field>>,
    documents: BTreeMap<&'static str, Versions>,
    /// Lines that make no sense; a test sees to it that there are none.
    bad: Vec<&'static str>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::parse(include_str!("fields.txt")))
}

/// The fields of a struct, or of a document by its kind (`Config` is the v1alpha1 document).
pub(crate) fn fields(name: &str) -> &'static [Field] {
    table().structs.get(name).map_or(&[], Vec::as_slice)
}

/// Whether a kind of document exists: in that contract, or in any.
pub(crate) fn document_known(kind: &str, contract: Option<Contract>) -> bool {
    table().documents.get(kind).is_some_and(|versions| versions.hold(contract))
}

/// The kind as the table spells it.
pub(crate) fn document_kind(kind: &str) -> Option<&'static str> {
    table().documents.get_key_value(kind).map(|(name, _)| *name)
}

/// The first minor that knows this kind.
pub(crate) fn document_since(kind: &str) -> Option<Contract> {
    let versions = table().documents.get(kind)?;
    versions.since.map_or(Some(Contract::V1_9), Contract::from_minor)
}

// === impl Table ===

impl Table {
    fn parse(text: &'static str) -> Table {
        let mut table = Table::default();
        let mut owner = "";
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if !line.starts_with(' ') {
                let words: Vec<&'static str> = line.split(' ').collect();
                let name = match words.as_slice() {
                    ["document", name, rest @ ..] => {
                        match Versions::parse(rest) {
                            Some((versions, [])) => drop(table.documents.insert(name, versions)),
                            _ => table.bad.push(line),
                        }
                        name
                    }
                    [name] => name,
                    _ => {
                        table.bad.push(line);
                        ""
                    }
                };
                owner = name;
                table.structs.insert(owner, Vec::new());
                continue;
            }
            match Field::parse(line.trim()) {
                Some(field) => table.structs.entry(owner).or_default().push(field),
                None => table.bad.push(line),
            }
        }
        table
    }
}

impl Field {
    fn parse(line: &'static str) -> Option<Field> {
        let words: Vec<&'static str> = line.split(' ').collect();
        let [name, ty, rest @ ..] = words.as_slice() else { return None };
        let (versions, rest) = Versions::parse(rest)?;
        let merge = match rest {
            [] => Merge::Usual,
            ["replace"] => Merge::Replace,
            ["by", keys] => Merge::By(keys),
            ["by", keys, "replace"] => Merge::ReplaceBy(keys),
            _ => return None,
        };
        let zero_counts = ty.ends_with('*');
        let ty = Type::parse(ty.trim_end_matches(['*', '?']))?;
        Some(Field { name, ty, zero_counts, merge, versions })
    }
}

impl Versions {
    fn parse<'a>(words: &'a [&'static str]) -> Option<(Versions, &'a [&'static str])> {
        let minor = |word: &str| word.strip_prefix("1.")?.parse().ok();
        Some(match words {
            ["since", since, "until", until, rest @ ..] => {
                (Versions { since: Some(minor(since)?), until: Some(minor(until)?) }, rest)
            }
            ["since", since, rest @ ..] => (Versions { since: Some(minor(since)?), until: None }, rest),
            ["until", until, rest @ ..] => (Versions { since: None, until: Some(minor(until)?) }, rest),
            rest => (Versions::default(), rest),
        })
    }

    fn hold(&self, contract: Option<Contract>) -> bool {
        contract.is_none_or(|contract| {
            let minor = contract.minor();
            self.since.is_none_or(|since| minor >= since) && self.until.is_none_or(|until| minor <= until)
        })
    }
}

impl Type {
    fn parse(text: &'static str) -> Option<Type> {
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return Some(Type::List(Box::new(Type::parse(inner)?)));
        }
        if let Some(inner) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            return Some(Type::Map(Box::new(Type::parse(inner)?)));
        }
        Some(match text {
            "string" => Type::String,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "duration" => Type::Duration,
            "url" => Type::Url,
            "ip" => Type::Ip,
            "prefix" => Type::Prefix,
            "size" => Type::Size,
            "port" => Type::Port,
            "mode" => Type::Mode,
            "base64" => Type::Base64,
            "arg" => Type::Arg,
            "free" => Type::Free,
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => Type::Struct(name),
            _ => return None,
        })
    }

    fn wanted(&self) -> &'static str {
        match self {
            Type::String => "a string",
            Type::Bool => "true or false",
            Type::Int => "a whole number",
            Type::Uint => "a whole number that is not negative",
            Type::Duration => "a duration such as 1m30s",
            Type::Url => "a URL",
            Type::Ip => "an IP address",
            Type::Prefix => "an address with a prefix length, such as 10.0.0.0/24",
            Type::Size => "a size such as 50GiB",
            Type::Port => "a port, or a range of ports such as 1000-2000",
            Type::Mode => "file permissions such as 0o644",
            Type::Base64 => "base64",
            Type::Arg => "a string, or (from Talos 1.13 on) a list of strings",
            Type::List(_) => "a list",
            Type::Free | Type::Map(_) | Type::Struct(_) => "a map",
        }
    }
}

// === reading ===

/// Reads a tree as a type, and says what Talos' strict loader would refuse.
pub(crate) struct Reader<'a> {
    pub(crate) contract: Option<Contract>,
    pub(crate) document: &'a str,
    pub(crate) problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    /// The value, with scalars as the fields want them. What does not fit is left out and told.
    pub(crate) fn read(&mut self, node: &Node, ty: &Type, path: &str) -> Value {
        if node.is_null() {
            return Value::Null;
        }
        match (ty, &node.data) {
            (Type::Free, Data::Map(_)) => node.to_value(),
            (Type::Struct(name), Data::Map(entries)) => self.read_struct(entries, name, path),
            (Type::Map(inner), Data::Map(entries)) => Value::Object(
                entries
                    .iter()
                    .map(|(_, key, node)| {
                        (key.clone(), self.read(node, inner, &format!("{path}[{}]", shown_key(key))))
                    })
                    .collect(),
            ),
            (Type::List(inner), Data::List(items)) => Value::Array(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.read(item, inner, &format!("{path}[{index}]")))
                    .collect(),
            ),
            (Type::Arg, Data::List(items)) if self.contract.is_none_or(|c| c >= Contract::V1_13) => {
                Value::Array(
                    items
                        .iter()
                        .enumerate()
                        .map(|(index, item)| self.read(item, &Type::String, &format!("{path}[{index}]")))
                        .collect(),
                )
            }
            (_, Data::Scalar(scalar)) => match scalar_value(scalar, ty) {
                Some(value) => value,
                None => self.mismatch(node, ty, path),
            },
            _ => self.mismatch(node, ty, path),
        }
    }

    fn read_struct(
        &mut self,
        entries: &[(crate::yaml::Mark, String, Node)],
        name: &str,
        path: &str,
    ) -> Value {
        let mut map = Map::new();
        let known = fields(name);
        let is_document = document_known(name, None);
        for (at, key, node) in entries {
            let shown = shown_key(key);
            let here = if path.is_empty() { shown.to_owned() } else { format!("{path}.{shown}") };
            if is_document && path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind") {
                map.insert(key.clone(), node.to_value());
                continue;
            }
            match known.iter().find(|field| field.name == key) {
                Some(field) if field.versions.hold(self.contract) => {
                    let value = self.read(node, &field.ty, &here);
                    map.insert(key.clone(), value);
                }
                Some(field) => {
                    let text = format!(
                        "is not known to Talos {}: {}",
                        self.contract.map(|c| c.to_string()).unwrap_or_default(),
                        field.versions.describe()
                    );
                    self.problem(&here, text, *at);
                }
                None => self.problem(&here, "unknown key".to_owned() + &nearest(key, known), *at),
            }
        }
        Value::Object(map)
    }

    /// The value itself is not shown: it may be a secret.
    fn mismatch(&mut self, node: &Node, ty: &Type, path: &str) -> Value {
        let found = match &node.data {
            // A string of the wrong form is still a string.
            Data::Scalar(_) => "this".to_owned(),
            _ => node.kind().to_owned(),
        };
        self.problem(path, format!("must be {}, not {found}", ty.wanted()), node.at);
        Value::Null
    }

    fn problem(&mut self, path: &str, text: String, at: crate::yaml::Mark) {
        self.problems.push(Problem::error(Source::Talos, self.document, path, text).at(at));
    }
}

impl Versions {
    fn describe(&self) -> String {
        match (self.since, self.until) {
            (Some(since), Some(until)) => format!("only 1.{since} to 1.{until} have it"),
            (Some(since), None) => format!("it came with 1.{since}"),
            (None, Some(until)) => format!("it went after 1.{until}"),
            (None, None) => String::new(),
        }
    }
}

/// What a scalar is worth to a field of that type.
fn scalar_value(scalar: &Scalar, ty: &Type) -> Option<Value> {
    let text = scalar.text.as_str();
    match ty {
        // Any scalar is a string to Go, by its text.
        Type::String | Type::Arg => Some(text.into()),
        Type::Bool => scalar.boolean().map(Value::from),
        Type::Int => scalar.integer().map(Value::from),
        Type::Uint | Type::Mode => scalar.integer().filter(|number| *number >= 0).map(Value::from),
        Type::Duration => is_duration(text).then(|| text.into()),
        Type::Url => (!text.contains(char::is_whitespace)).then(|| text.into()),
        Type::Ip => (text.is_empty() || text.parse::<IpAddr>().is_ok()).then(|| text.into()),
        Type::Prefix => (text.is_empty() || crate::intent::Cidr::parse(text).is_ok()).then(|| text.into()),
        Type::Size => match scalar.integer() {
            Some(number) => (number >= 0).then(|| number.into()),
            None => is_size(text).then(|| text.into()),
        },
        Type::Port => match scalar.integer() {
            Some(number) => u16::try_from(number).is_ok().then(|| number.into()),
            None => {
                let good =
                    text.split('-').count() <= 2 && text.split('-').all(|part| part.parse::<u16>().is_ok());
                good.then(|| text.into())
            }
        },
        Type::Base64 => {
            use base64::Engine as _;
            let clean: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
            base64::engine::general_purpose::STANDARD.decode(clean).ok().map(|_| text.into())
        }
        Type::Free | Type::List(_) | Type::Map(_) | Type::Struct(_) => None,
    }
}

/// Go's form: numbers with units, together.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let after = &rest[number..];
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .filter(|u| after.starts_with(u))
            .max_by_key(|u| u.len());
        let Some(unit) = unit.filter(|_| rest[..number].parse::<f64>().is_ok()) else { return false };
        rest = &after[unit.len()..];
    }
    true
}

pub(crate) fn is_size(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse::<f64>().is_ok();
    }
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = text[number..].trim().to_ascii_lowercase();
    let units = [
        "", "b", "k", "m", "g", "t", "p", "e", "kb", "mb", "gb", "tb", "pb", "eb", "kib", "mib", "gib",
        "tib", "pib", "eib", "ki", "mi", "gi", "ti", "pi", "ei",
    ];
    text[..number].parse::<f64>().is_ok() && units.contains(&unit.as_str())
}

/// `, did you mean ...?` when one known name is close.
fn nearest(key: &str, known: &[Field]) -> String {
    let closest = known.iter().map(|field| (distance(key, field.name), field.name)).min();
    match closest {
        Some((away, name)) if away <= 2 && away * 2 < name.len() => format!(", did you mean {name:?}?"),
        _ => String::new(),
    }
}

/// How many letters differ, with case counting as none.
fn distance(left: &str, right: &str) -> usize {
    let (left, right) = (left.to_ascii_lowercase(), right.to_ascii_lowercase());
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let change = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

// === writing ===

/// Keys in the order of the table.
#[derive(Clone)]
pub(crate) struct TypeOrder(pub(crate) Type);

impl Order for TypeOrder {
    fn keys<'a>(&self, map: &'a Map<String, Value>) -> Vec<&'a str> {
        let mut keys: Vec<&str> = map.keys().map(String::as_str).collect();
        if let Type::Struct(name) = &self.0 {
            let known = fields(name);
            keys.sort_by_key(|key| match *key {
                "apiVersion" => 0,
                "kind" => 1,
                key => known.iter().position(|field| field.name == key).map_or(usize::MAX, |at| at + 2),
            });
        }
        keys
    }

    fn below(&self, key: &str) -> TypeOrder {
        TypeOrder(match &self.0 {
            Type::Struct(name) => fields(name)
                .iter()
                .find(|field| field.name == key)
                .map_or(Type::Free, |field| field.ty.clone()),
            Type::Map(inner) => (**inner).clone(),
            _ => Type::Free,
        })
    }

    fn item(&self) -> TypeOrder {
        TypeOrder(match &self.0 {
            Type::List(inner) => (**inner).clone(),
            _ => Type::Free,
        })
    }

    fn number(&self, number: &serde_json::Number) -> Option<String> {
        match (&self.0, number.as_u64()) {
            (Type::Mode, Some(number)) => Some(format!("0o{number:o}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_makes_sense() {
        let table = table();
        assert_eq!(table.bad, Vec::<&str>::new());
        assert_eq!(table.documents.len(), 44);
        fn check(ty: &Type, owner: &str) {
            match ty {
                Type::Struct(name) => assert!(super::table().structs.contains_key(name), "{owner}: {name}"),
                Type::List(inner) | Type::Map(inner) => check(inner, owner),
                _ => {}
            }
        }
        for (owner, fields) in &table.structs {
            for (index, field) in fields.iter().enumerate() {
                check(&field.ty, owner);
                assert!(
                    fields[..index].iter().all(|other| other.name != field.name),
                    "{owner}.{}",
                    field.name
                );
                if let Merge::By(keys) | Merge::ReplaceBy(keys) = field.merge {
                    let Type::List(inner) = &field.ty else { panic!("{owner}.{}", field.name) };
                    let Type::Struct(inner) = &**inner else { panic!("{owner}.{}", field.name) };
                    for key in keys.split('|') {
                        assert!(super::fields(inner).iter().any(|field| field.name == key), "{inner}.{key}");
                    }
                }
            }
        }
    }

    #[test]
    fn kinds_come_with_their_minor() {
        assert!(document_known("VolumeConfig", Some(Contract::V1_9)));
        assert!(!document_known("UserVolumeConfig", Some(Contract::V1_9)));
        assert!(document_known("UserVolumeConfig", Some(Contract::V1_10)));
        assert!(!document_known("HostnameConfig", Some(Contract::V1_11)));
        assert!(document_known("HostnameConfig", None));
        assert!(!document_known("NoConfig", None));
        assert_eq!(document_since("HostnameConfig"), Some(Contract::V1_12));
    }

    #[test]
    fn durations_and_sizes() {
        for good in ["1h30m0s", "0", "-1.5s", "10ms", "1µs"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "1", "s", "1d", "1h 30m", "h1"] {
            assert!(!is_duration(bad), "{bad}");
        }
        for good in ["1", "50GiB", "100 MB", "1.5t", "80%"] {
            assert!(is_size(good), "{good}");
        }
        for bad in ["", "GiB", "1x", "a%"] {
            assert!(!is_size(bad), "{bad}");
        }
    }

    #[test]
    fn a_slip_gets_a_hint() {
        assert_eq!(nearest("hostName", fields("Network")), ", did you mean \"hostname\"?");
        assert_eq!(nearest("interfcaes", fields("Network")), ", did you mean \"interfaces\"?");
        assert_eq!(nearest("colour", fields("Network")), "");
        // Half of the letters wrong is no slip.
        assert_eq!(nearest("nope", fields("Machine")), "");
    }
}
