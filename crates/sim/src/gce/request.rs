//! A call and its answer, before and after HTTP.

use crate::urlencoded::form;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// A call to one of Google's hosts.
#[derive(Clone, Default, PartialEq)]
pub struct Call {
    /// `compute.googleapis.com`, without a port.
    pub host: String,
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: String,
    /// As in the request line, without the query.
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// What follows `Authorization: Bearer`.
    pub token: Option<String>,
    /// `Metadata-Flavor: Google` was said.
    pub metadata_flavor: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

pub(super) type Outcome = Result<Value, Refusal>;

/// Without the body and the token: there are secrets in both.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("host", &self.host)
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Refusal {
    pub(super) fn new(status: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    /// A field's value can't be.
    pub(super) fn field(field: &str, value: &str, why: &str) -> Self {
        Self::new(400, "invalid", format!("Invalid value for field '{field}': '{value}'. {why}"))
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid", message)
    }

    pub(super) fn required(field: &str) -> Self {
        Self::new(400, "required", format!("Required field '{field}' not specified"))
    }

    pub(super) fn not_found(path: &str) -> Self {
        Self::new(404, "notFound", format!("The resource '{path}' was not found"))
    }

    pub(super) fn exists(path: &str) -> Self {
        Self::new(409, "alreadyExists", format!("The resource '{path}' already exists"))
    }

    pub(super) fn not_ready(path: &str) -> Self {
        Self::new(400, "resourceNotReady", format!("The resource '{path}' is not ready"))
    }

    pub(super) fn in_use(kind: &str, path: &str, by: &str) -> Self {
        Self::new(
            400,
            "resourceInUseByAnotherResource",
            format!("The {kind} resource '{path}' is already being used by '{by}'"),
        )
    }

    pub(super) fn stale_fingerprint() -> Self {
        Self::new(
            412,
            "conditionNotMet",
            "Supplied fingerprint does not match current fingerprint of the resource.",
        )
    }

    pub(super) fn forbidden(permission: &str, on: &str) -> Self {
        Self::new(403, "forbidden", format!("Required '{permission}' permission for '{on}'"))
    }

    pub(super) fn unauthenticated() -> Self {
        Self::new(
            401,
            "authError",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.",
        )
    }

    pub(super) fn quota(metric: &str, limit: f64, place: &str) -> Self {
        Self::new(403, "quotaExceeded", quota_message(metric, limit, place))
    }

    pub(super) fn throttled() -> Self {
        Self::new(403, "rateLimitExceeded", "Rate Limit Exceeded")
    }

    pub(super) fn not_simulated(what: &str) -> Self {
        Self::new(501, "notImplemented", format!("{what} is not simulated"))
    }

    /// The gate refuses with this status.
    pub(super) fn of_status(status: u16) -> Self {
        let (reason, message) = match status {
            401 => return Self::unauthenticated(),
            403 => ("forbidden", "Required permission is missing"),
            404 => ("notFound", "The resource was not found"),
            409 => ("alreadyExists", "The resource already exists"),
            412 => ("conditionNotMet", "Precondition Failed"),
            429 => ("rateLimitExceeded", "Too Many Requests"),
            400..=499 => ("invalid", "simulated failure"),
            _ => ("backendError", "Internal error. Please try again or contact Google Support."),
        };
        Self::new(status, reason, message)
    }
}

pub(super) fn quota_message(metric: &str, limit: f64, place: &str) -> String {
    format!("Quota '{metric}' exceeded.  Limit: {limit:.1} {place}.")
}

impl Answer {
    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Ok(body) => Self { status: 200, body },
            Err(refusal) => {
                let Refusal { status, reason, message } = refusal;
                let domain = if reason == "rateLimitExceeded" || reason == "quotaExceeded" {
                    "usageLimits"
                } else {
                    "global"
                };
                let one = json!({ "message": message, "domain": domain, "reason": reason });
                let mut error = Map::new();
                error.insert("code".into(), status.into());
                error.insert("message".into(), message.into());
                error.insert("errors".into(), json!([one]));
                error.extend(status_name(status).map(|name| ("status".to_string(), name.into())));
                Self { status, body: json!({ "error": error }) }
            }
        }
    }

    /// OAuth's own form of errors.
    pub(super) fn oauth(status: u16, error: &str, description: &str) -> Self {
        Self { status, body: json!({ "error": error, "error_description": description }) }
    }
}

fn status_name(status: u16) -> Option<&'static str> {
    Some(match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        501 => "UNIMPLEMENTED",
        _ => return None,
    })
}

impl Call {
    /// From the parts of an HTTP request.
    pub(super) fn read(host: &str, method: &str, target: &str, body: &[u8]) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let host =
            host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(h, _)| h);
        Self {
            host: host.to_ascii_lowercase(),
            method: method.to_string(),
            path: path.to_string(),
            query: form(query),
            body: body.to_vec(),
            ..Self::default()
        }
    }

    /// The body as a form, which OAuth uses.
    pub(super) fn form(&self) -> BTreeMap<String, String> {
        form(&String::from_utf8_lossy(&self.body))
    }

    /// The body as JSON; none is an empty object.
    pub(super) fn json(&self) -> Result<Map<String, Value>, Refusal> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err(Refusal::new(
                400,
                "parseError",
                "Invalid JSON payload received. Root element must be a message.",
            )),
            Err(error) => {
                Err(Refusal::new(400, "parseError", format!("Invalid JSON payload received. {error}")))
            }
        }
    }
}
