//! Refusals, in the form that every Kubernetes client understands: `metav1.Status`.
//!
//! [`FieldError`] is one problem with one field, worded as Kubernetes words it; [`Status::invalid`] gathers all of them
//! into one answer. Handlers return `Result<_, Status>`; nothing else ever becomes an error response.

use serde_json::{Value, json};
use std::fmt;

/// The answer to a request that was not carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// Boxed: most answers are successes, and a large error type would slow each of them down.
    pub details: Option<Box<Details>>,
}

/// What a [`Status`] is about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One reason among several.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldProblem {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

/// One problem with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub problem: FieldProblem,
    /// As Kubernetes writes it: `spec.ports[0].name`, `metadata.labels[a.b/c]`.
    pub field: String,
    /// Shown for the problems where Kubernetes shows it.
    pub bad_value: Value,
    pub detail: String,
    /// The value is not shown although the problem is of a kind that shows it: it is too large to help.
    pub omit_value: bool,
}

// === impl FieldProblem ===

impl FieldProblem {
    /// The words before the value.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    /// The machine-readable cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

// === impl FieldError ===

impl FieldError {
    pub fn new(
        problem: FieldProblem,
        field: impl Into<String>,
        bad_value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self { problem, field: field.into(), bad_value, detail: detail.into(), omit_value: false }
    }

    pub fn invalid(field: impl Into<String>, bad_value: Value, detail: impl Into<String>) -> Self {
        Self::new(FieldProblem::Invalid, field, bad_value, detail)
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldProblem::Required, field, Value::Null, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldProblem::Forbidden, field, Value::Null, detail)
    }

    /// `valid` is listed for the reader.
    pub fn not_supported(field: impl Into<String>, bad_value: Value, valid: &[&str]) -> Self {
        let list = valid.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
        Self::new(FieldProblem::NotSupported, field, bad_value, format!("supported values: {list}"))
    }

    /// Leaves the value out of the message.
    pub fn without_value(mut self) -> Self {
        self.omit_value = true;
        self
    }

    /// Everything but the field path: what a cause carries.
    pub fn body(&self) -> String {
        let mut out = self.problem.text().to_string();
        if self.problem.shows_value() && !self.omit_value {
            out.push_str(": ");
            match &self.bad_value {
                Value::String(s) => out.push_str(&format!("{s:?}")),
                Value::Null => out.push_str("null"),
                other => out.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

// === impl Status ===

impl Status {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        let mut status = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        status.details = Some(Box::new(Details {
            causes: vec![Cause { reason: String::new(), message: message.to_string(), field: String::new() }],
            ..Details::default()
        }));
        status
    }

    /// What Kubernetes answers when an error of its own has no better word: 500 and the bare text.
    pub fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Query parameters or options that can't be; `kind` is that of the options.
    pub fn invalid_options(kind: &str, errors: &[FieldError]) -> Self {
        let mut status = Self::invalid("meta.k8s.io", kind, "", errors);
        if let Some(details) = &mut status.details {
            details.name.clear();
        }
        status
    }

    /// The path names nothing that is served here.
    pub fn no_such_path() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::about(
            404,
            "NotFound",
            group,
            resource,
            name,
            format!("{} {name:?} not found", qualified(resource, group)),
        )
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, group));
        Self::about(409, "AlreadyExists", group, resource, name, message)
    }

    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(resource, group));
        Self::about(409, "Conflict", group, resource, name, message)
    }

    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(resource, group))
        } else {
            format!("{} {name:?} is forbidden: {why}", qualified(resource, group))
        };
        Self::about(403, "Forbidden", group, resource, name, message)
    }

    pub fn method_not_allowed() -> Self {
        let mut status = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// All problems of one object at once. `kind` is the object's kind.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // The same words twice are told once; the causes stay complete.
        let mut told: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !told.contains(&text) {
                told.push(text);
            }
        }
        let list = if let [one] = told.as_slice() { one.clone() } else { format!("[{}]", told.join(", ")) };
        let message = format!("{} {name:?} is invalid: {list}", qualified(kind, group));
        let mut status = Self::about(422, "Invalid", group, kind, name, message);
        if let Some(details) = &mut status.details {
            details.causes = errors
                .iter()
                .map(|e| Cause {
                    reason: e.problem.reason().to_string(),
                    message: e.body(),
                    field: e.field.clone(),
                })
                .collect();
        }
        status
    }

    pub fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    fn about(code: u16, reason: &'static str, group: &str, kind: &str, name: &str, message: String) -> Self {
        let details = Details {
            name: name.to_string(),
            group: group.to_string(),
            kind: kind.to_string(),
            ..Details::default()
        };
        Self { code, reason, message, details: Some(Box::new(details)) }
    }

    /// The wire form.
    pub fn to_json(&self) -> Value {
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            out["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            out["details"] = details.to_json();
        }
        out
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, value) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !value.is_empty() {
                out.insert(key.into(), Value::String(value.clone()));
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".into(), self.causes.iter().map(Cause::to_json).collect());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, value) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !value.is_empty() {
                out.insert(key.into(), Value::String(value.clone()));
            }
        }
        Value::Object(out)
    }
}

/// `deployments.apps`, and plain `pods` in the core group.
fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") }
}
