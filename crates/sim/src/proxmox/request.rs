//! A call and its answer, before and after HTTP.

use crate::urlencoded::{decode, form};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// A call as the API sees it: the path below `/api2/json`, and parameters of query and body in one map.
#[derive(Clone, Default, PartialEq)]
pub struct Call {
    /// `GET`, `POST`, `PUT`, `DELETE`.
    pub method: String,
    /// Decoded segments.
    pub path: Vec<String>,
    pub params: BTreeMap<String, String>,
    /// `Authorization`, `Cookie` and `CSRFPreventionToken`, each if it is there.
    pub authorization: Option<String>,
    pub cookie: Option<String>,
    pub csrf: Option<String>,
    /// A fault: reads are answered from what was true a moment ago.
    pub stale: bool,
}

/// An answer: the status line and the body.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// The text after the number in the status line; empty for the usual one.
    pub reason: String,
    pub body: Value,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) errors: BTreeMap<String, String>,
}

/// A request that never becomes a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unreadable {
    pub(super) status: u16,
    pub(super) why: String,
}

impl Unreadable {
    fn body(why: &str) -> Self {
        Self { status: 400, why: format!("unable to parse the request's body: {why}") }
    }
}

pub(super) type Outcome = Result<Value, Refusal>;

/// Without values: there are passwords and tokens among them.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("params", &self.params.keys())
            .finish_non_exhaustive()
    }
}

impl Refusal {
    fn of(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new() }
    }

    /// The handler died: 500, with the reason in the status line.
    pub(super) fn died(message: impl Into<String>) -> Self {
        Self::of(500, message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::of(401, message)
    }

    pub(super) fn forbidden(path: &str, privileges: &str) -> Self {
        Self::of(403, format!("Permission check failed ({path}, {privileges})"))
    }

    pub(super) fn not_implemented(method: &str, path: &str) -> Self {
        Self::of(501, format!("Method '{method} {path}' not implemented"))
    }

    /// Another host was to answer, and can't be reached.
    pub(super) fn no_route() -> Self {
        Self::of(595, "Errors during connection establishment, proxy handshake: No route to host")
    }

    pub(super) fn params(errors: BTreeMap<String, String>) -> Self {
        Self { errors, ..Self::of(400, "Parameter verification failed.") }
    }

    pub(super) fn param(name: &str, why: impl Into<String>) -> Self {
        Self::params(BTreeMap::from([(name.to_string(), why.into())]))
    }
}

impl Answer {
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Ok(data) => Self { status: 200, reason: String::new(), body: json!({ "data": data }) },
            Err(refusal) => {
                let mut body = Map::from_iter([("data".to_string(), Value::Null)]);
                if !refusal.errors.is_empty() {
                    body.insert("errors".to_string(), json!(refusal.errors));
                }
                // Perl's `die` ends its texts with a newline, and the formatter leaves it there.
                body.insert("message".to_string(), json!(format!("{}\n", refusal.message)));
                Self { status: refusal.status, reason: refusal.message, body: Value::Object(body) }
            }
        }
    }
}

impl Call {
    /// From the parts of an HTTP request. Gives `None` for a path outside of the API.
    ///
    /// # Errors
    /// Says what is wrong with the body.
    pub(super) fn read(
        method: &str,
        target: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Option<Self>, Unreadable> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Some(rest) = path.strip_prefix("/api2/json") else { return Ok(None) };
        if !rest.is_empty() && !rest.starts_with('/') {
            return Ok(None);
        }
        let path = rest.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
        if !body.is_empty() && !matches!(method, "POST" | "PUT") {
            return Err(Unreadable { status: 501, why: format!("Unexpected content for method '{method}'") });
        }
        let mut params = form(query);
        if content_type.starts_with("application/json") {
            params.extend(json_params(body)?);
        } else if !body.is_empty() {
            let text = std::str::from_utf8(body).map_err(|_| Unreadable::body("it is not UTF-8"))?;
            params.extend(form(text));
        }
        Ok(Some(Self { method: method.to_string(), path, params, ..Self::default() }))
    }

    /// The path as text.
    #[must_use]
    pub fn path_text(&self) -> String {
        format!("/{}", self.path.join("/"))
    }

    /// The virtual machine that the path names.
    #[must_use]
    pub fn vmid(&self) -> Option<u32> {
        match self.path.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["nodes", _, "qemu", vmid, ..] => vmid.parse().ok(),
            _ => None,
        }
    }
}

fn json_params(body: &[u8]) -> Result<BTreeMap<String, String>, Unreadable> {
    if body.is_empty() {
        return Ok(BTreeMap::new());
    }
    let Value::Object(members) =
        serde_json::from_slice(body).map_err(|e| Unreadable::body(&e.to_string()))?
    else {
        return Err(Unreadable::body("it is not an object"));
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        // Perl has no booleans: they arrive as numbers.
        Value::Bool(flag) => u8::from(flag).to_string(),
        Value::Array(items) => items
            .iter()
            .map(|i| i.as_str().map_or_else(|| i.to_string(), ToString::to_string))
            .collect::<Vec<_>>()
            .join(","),
        other => other.to_string(),
    };
    Ok(members.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, text(v))).collect())
}
