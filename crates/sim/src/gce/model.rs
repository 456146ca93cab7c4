//! What Google's discovery documents say: which methods there are, and what a request to one may hold.
//!
//! The table is made by `cargo xtask models`. A request that does not fit it is refused in Google's words.

use super::request::Refusal;
use crate::urlencoded::decode;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Parameters that every method takes.
const COMMON: [&str; 12] = [
    "$.xgafv",
    "access_token",
    "alt",
    "callback",
    "fields",
    "key",
    "oauth_token",
    "prettyPrint",
    "quotaUser",
    "uploadType",
    "upload_protocol",
    "userIp",
];

const NAME_FORM: &str = "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'";

static MODEL: LazyLock<Model> =
    LazyLock::new(|| serde_json::from_str(include_str!("model.json")).unwrap_or_default());

#[derive(Deserialize, Default)]
struct Model {
    methods: BTreeMap<String, Method>,
    schemas: BTreeMap<String, BTreeMap<String, Field>>,
}

#[derive(Deserialize)]
struct Method {
    #[serde(rename = "m")]
    http: String,
    #[serde(rename = "p")]
    path: String,
    #[serde(rename = "q", default)]
    query: BTreeMap<String, String>,
    #[serde(rename = "b")]
    body: Option<String>,
}

#[derive(Deserialize, Default)]
struct Field {
    #[serde(rename = "t")]
    kind: Option<String>,
    #[serde(rename = "f")]
    format: Option<String>,
    #[serde(rename = "e", default)]
    known: Vec<String>,
    #[serde(rename = "r")]
    reference: Option<String>,
    #[serde(rename = "o", default)]
    output_only: u8,
    #[serde(rename = "n", default)]
    name: u8,
    #[serde(rename = "w", default)]
    required_by: Vec<String>,
    #[serde(rename = "i")]
    items: Option<Box<Field>>,
    #[serde(rename = "m")]
    values: Option<Box<Field>>,
    #[serde(rename = "p")]
    fields: Option<BTreeMap<String, Field>>,
}

/// A request whose method is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// `compute.addresses.insert`.
    pub(super) id: &'static str,
    /// What the path holds: `project`, `region`, `address`.
    pub(super) path: BTreeMap<String, String>,
}

impl Request {
    /// `addresses` of `compute.addresses.insert`.
    pub(super) fn collection(&self) -> &'static str {
        self.id.rsplit('.').nth(1).unwrap_or_default()
    }

    /// `insert` of `compute.addresses.insert`.
    pub(super) fn verb(&self) -> &'static str {
        self.id.rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn is_compute(&self) -> bool {
        self.id.starts_with("compute.")
    }

    /// Whether anything can be another after it.
    pub(super) fn mutates(&self) -> bool {
        !matches!(
            self.verb(),
            "get"
                | "list"
                | "aggregatedList"
                | "getFromFamily"
                | "getHealth"
                | "listInstances"
                | "wait"
                | "testIamPermissions"
        )
    }
}

/// A method's id, and the parts of its path.
type Template = (&'static str, Vec<&'static str>);

/// Methods by the verb and the number of parts of the path: every call looks here.
static INDEX: LazyLock<BTreeMap<(&str, usize), Vec<Template>>> = LazyLock::new(|| {
    let mut index: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, method) in &MODEL.methods {
        let parts: Vec<&str> = method.path.split('/').collect();
        index.entry((method.http.as_str(), parts.len())).or_default().push((id.as_str(), parts));
    }
    index
});

/// Finds the method of a request.
pub(super) fn find(method: &str, path: &str) -> Option<Request> {
    let parts: Vec<&str> = path.split('/').collect();
    let candidates = INDEX.get(&(method, parts.len()))?;
    candidates.iter().find_map(|(id, wanted)| captures(wanted, &parts).map(|path| Request { id, path }))
}

/// What the path of a request holds where the template has names in braces.
fn captures(wanted: &[&str], parts: &[&str]) -> Option<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (wanted, part) in wanted.iter().zip(parts) {
        // `{resource}:testIamPermissions`: a name with a verb behind it.
        let (wanted, part) = match wanted.split_once("}:") {
            Some((name, verb)) => (&wanted[..=name.len()], part.strip_suffix(verb)?.strip_suffix(':')?),
            None => (*wanted, *part),
        };
        match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) if !part.is_empty() => found.insert(name.to_string(), decode(part, false)),
            None if wanted == part => None,
            _ => return None,
        };
    }
    Some(found)
}

/// Checks the query and the body of a request, and takes out of the body what only the server writes.
pub(super) fn check(
    request: &Request,
    query: &BTreeMap<String, String>,
    mut body: Map<String, Value>,
) -> Result<Map<String, Value>, Refusal> {
    let Some(method) = MODEL.methods.get(request.id) else { return Ok(body) };
    for (name, value) in query {
        let Some(kind) = method.query.get(name) else {
            if COMMON.contains(&name.as_str()) {
                continue;
            }
            return Err(Refusal::invalid(format!(
                "Invalid JSON payload received. Unknown name \"{name}\": Cannot bind query parameter. Field '{name}' could not be found in request message."
            )));
        };
        let fits = match kind.as_str() {
            "integer" => value.parse::<u32>().is_ok(),
            "boolean" => matches!(value.as_str(), "true" | "false"),
            _ => true,
        };
        if !fits {
            return Err(Refusal::invalid(format!("Invalid value at '{name}' ({kind}), \"{value}\"")));
        }
    }
    let Some(schema) = &method.body else {
        return if body.is_empty() {
            Ok(body)
        } else {
            Err(Refusal::invalid("Invalid JSON payload received. The request has no body."))
        };
    };
    check_object(schema, &mut body, "resource", request.id)?;
    Ok(body)
}

fn check_object(
    schema: &str,
    members: &mut Map<String, Value>,
    at: &str,
    method: &str,
) -> Result<(), Refusal> {
    let Some(fields) = MODEL.schemas.get(schema) else { return Ok(()) };
    check_fields(fields, members, at, method)
}

fn check_fields(
    fields: &BTreeMap<String, Field>,
    members: &mut Map<String, Value>,
    at: &str,
    method: &str,
) -> Result<(), Refusal> {
    for (name, value) in members.iter_mut() {
        let Some(field) = fields.get(name) else {
            return Err(Refusal::invalid(format!(
                "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field."
            )));
        };
        check_value(field, value, &format!("{at}.{name}"), method)?;
    }
    members.retain(|name, value| {
        !value.is_null() && fields.get(name).is_some_and(|field| field.output_only == 0)
    });
    for (name, field) in fields {
        let missing = members.get(name).is_none_or(|value| value == "");
        if missing && field.required_by.iter().any(|id| id == method) {
            return Err(Refusal::required(&format!("{at}.{name}")));
        }
    }
    Ok(())
}

fn check_value(field: &Field, value: &mut Value, at: &str, method: &str) -> Result<(), Refusal> {
    let shown = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let wrong = |kind: &str| Refusal::invalid(format!("Invalid value at '{at}' ({kind}), \"{shown}\""));
    match (value, field) {
        (Value::Null, _) => Ok(()),
        (Value::Object(members), Field { reference: Some(schema), .. }) => {
            check_object(schema, members, at, method)
        }
        (_, Field { reference: Some(schema), .. }) => Err(wrong(schema)),
        (Value::Object(members), Field { fields: Some(fields), .. }) => {
            check_fields(fields, members, at, method)
        }
        (Value::Object(members), Field { values: Some(values), .. }) => members
            .iter_mut()
            .try_for_each(|(key, value)| check_value(values, value, &format!("{at}[{key}]"), method)),
        (Value::Array(items), Field { items: Some(item), .. }) => {
            let mut all = items.iter_mut().enumerate();
            all.try_for_each(|(index, value)| check_value(item, value, &format!("{at}[{index}]"), method))
        }
        (value, field) => check_scalar(field, value, at).map_err(|kind| kind.unwrap_or_else(wrong)),
    }
}

/// What is wrong with a value that holds no others: a refusal, or the type that it should have had.
fn check_scalar(field: &Field, value: &Value, at: &str) -> Result<(), Result<Refusal, &'static str>> {
    let whole = |value: &Value, text_too: bool| {
        value.as_i64().is_some()
            || value.as_u64().is_some()
            || (text_too && value.as_str().is_some_and(|t| t.parse::<i128>().is_ok()))
    };
    match (field.kind.as_deref(), field.format.as_deref()) {
        (Some("string"), Some("int64" | "uint64")) if whole(value, true) => Ok(()),
        (Some("string"), Some("int64" | "uint64")) => Err(Err("TYPE_INT64")),
        (Some("integer"), _) if whole(value, true) => Ok(()),
        (Some("integer"), _) => Err(Err("TYPE_INT32")),
        (Some("number"), _) => {
            if value.is_number() {
                Ok(())
            } else {
                Err(Err("TYPE_FLOAT"))
            }
        }
        (Some("boolean"), _) => {
            if value.is_boolean() {
                Ok(())
            } else {
                Err(Err("TYPE_BOOL"))
            }
        }
        (Some("string"), _) => {
            let Some(text) = value.as_str() else { return Err(Err("TYPE_STRING")) };
            if !field.known.is_empty() && !field.known.iter().any(|known| known == text) {
                let why = format!("Must be one of [{}]", field.known.join(", "));
                return Err(Ok(Refusal::field(at, text, &why)));
            }
            if field.name == 1 && field.output_only == 0 && !text.is_empty() && !is_name(text) {
                return Err(Ok(Refusal::field(at, text, NAME_FORM)));
            }
            Ok(())
        }
        (Some("array"), _) => Err(Err("TYPE_MESSAGE")),
        (Some("object"), _) if !value.is_object() => Err(Err("TYPE_MESSAGE")),
        _ => Ok(()),
    }
}

/// The form of most names: a letter first, no dash at the end, at most 63.
pub(super) fn is_name(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(method: &str, path: &str, body: Value) -> String {
        let request = find(method, path).unwrap();
        let Value::Object(body) = body else { panic!("no object") };
        check(&request, &BTreeMap::new(), body).unwrap_err().message
    }

    #[test]
    fn methods_are_found_by_their_paths() {
        let found = find("POST", "/compute/v1/projects/p/regions/r/targetPools/pool/addInstance").unwrap();
        assert_eq!(
            (found.id, found.collection(), found.verb()),
            ("compute.targetPools.addInstance", "targetPools", "addInstance")
        );
        assert_eq!((found.path["project"].as_str(), found.path["targetPool"].as_str()), ("p", "pool"));
        let family = find("GET", "/compute/v1/projects/p/global/images/family/talos").unwrap();
        assert_eq!(family.id, "compute.images.getFromFamily");
        let permissions = find("POST", "/v1/projects/p:testIamPermissions").unwrap();
        assert_eq!((permissions.verb(), permissions.path["resource"].as_str()), ("testIamPermissions", "p"));
        assert!(!permissions.mutates() && found.mutates());
        assert_eq!(find("PUT", "/compute/v1/projects/p/regions/r/addresses"), None);
        assert_eq!(find("GET", "/compute/v1/projects//regions"), None);
    }

    #[test]
    fn what_the_document_does_not_know_is_refused_in_googles_words() {
        let addresses = "/compute/v1/projects/p/regions/r/addresses";
        let unknown = refused("POST", addresses, json!({"name": "a", "adress": "1.2.3.4"}));
        assert_eq!(
            unknown,
            "Invalid JSON payload received. Unknown name \"adress\" at 'resource': Cannot find field."
        );
        assert!(refused("POST", addresses, json!({"name": "A"})).contains("Must be a match of regex"));
        assert_eq!(refused("POST", addresses, json!({})), "Required field 'resource.name' not specified");
        assert!(
            refused("POST", addresses, json!({"name": "a", "addressType": "OUTER"}))
                .contains("Must be one of")
        );
        let instances = "/compute/v1/projects/p/zones/z/instances";
        let nested = refused("POST", instances, json!({"name": "a", "disks": [{"boot": "yes"}]}));
        assert_eq!(nested, "Invalid value at 'resource.disks[0].boot' (TYPE_BOOL), \"yes\"");
        let deep =
            refused("POST", instances, json!({"name": "a", "disks": [{"initializeParams": {"size": 1}}]}));
        assert!(deep.contains("Unknown name \"size\" at 'resource.disks[0].initializeParams'"), "{deep}");
    }

    #[test]
    fn the_server_writes_what_is_its_own() {
        let request = find("POST", "/compute/v1/projects/p/regions/r/addresses").unwrap();
        let body = json!({"name": "a", "status": "IN_USE", "selfLink": "x", "prefixLength": "29"});
        let kept = check(&request, &BTreeMap::new(), body.as_object().unwrap().clone()).unwrap();
        assert_eq!(Value::Object(kept), json!({"name": "a", "prefixLength": "29"}));
        let query = BTreeMap::from([("requestID".to_string(), "x".to_string())]);
        assert!(
            check(&request, &query, Map::new()).unwrap_err().message.contains("Cannot bind query parameter")
        );
    }
}
