//! A call and its answer, before and after HTTP.

use super::model;
use crate::urlencoded;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The services that are served, each at its own host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Ec2,
    Elb,
    Sts,
    /// Service Quotas.
    Quotas,
}

/// A call as the API sees it.
#[derive(Clone, PartialEq)]
pub struct Call {
    pub service: Service,
    /// `RunInstances`.
    pub action: String,
    /// All parameters, `Action` and `Version` among them.
    pub params: BTreeMap<String, String>,
}

/// An answer: the status and the XML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

pub(super) type Outcome = Result<Value, Refusal>;

/// Without values: user data is among them.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("action", &self.name())
            .field("params", &self.params.keys())
            .finish_non_exhaustive()
    }
}

impl Service {
    pub(super) const ALL: [Service; 4] = [Service::Ec2, Service::Elb, Service::Sts, Service::Quotas];

    /// As the vendor's model calls it.
    pub(super) fn model(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb => "elbv2",
            Service::Sts => "sts",
            Service::Quotas => "service-quotas",
        }
    }

    /// As signatures, permissions and host names call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Elb => "elasticloadbalancing",
            Service::Sts => "sts",
            Service::Quotas => "servicequotas",
        }
    }

    /// The name of a member in a request.
    pub(super) fn wire_name(self, name: &str, location: Option<&str>, query: Option<&str>) -> String {
        match (self, query, location) {
            (Service::Ec2, Some(query), _) => query.to_string(),
            (Service::Ec2, None, Some(location)) => {
                let mut letters = location.chars();
                letters.next().map_or_else(String::new, |first| {
                    first.to_uppercase().collect::<String>() + letters.as_str()
                })
            }
            (_, _, Some(location)) => location.to_string(),
            (_, _, None) => name.to_string(),
        }
    }

    pub(super) fn missing_parameter(self, path: &str) -> Refusal {
        match self {
            Service::Ec2 => {
                Refusal::new("MissingParameter", format!("The request must contain the parameter {path}"))
            }
            _ => Refusal::new(
                "ValidationError",
                format!(
                    "1 validation error detected: Value null at '{path}' failed to satisfy constraint: Member must not be null"
                ),
            ),
        }
    }

    pub(super) fn unknown_parameter(self, path: &str) -> Refusal {
        match self {
            Service::Ec2 => {
                Refusal::new("UnknownParameter", format!("The parameter {path} is not recognized"))
            }
            _ => Refusal::new("ValidationError", format!("'{path}' is not a valid parameter")),
        }
    }

    pub(super) fn invalid_parameter(self, path: &str, value: &str, why: &str) -> Refusal {
        match self {
            Service::Ec2 => Refusal::new(
                "InvalidParameterValue",
                format!("Value ({value}) for parameter {path} is invalid: {why}"),
            ),
            _ => Refusal::new(
                "ValidationError",
                format!(
                    "1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: {why}"
                ),
            ),
        }
    }

    /// What the real service can and this one can't is refused by name, not ignored.
    pub(super) fn not_simulated(self, what: &str) -> Refusal {
        let code = if self == Service::Ec2 { "UnsupportedOperation" } else { "InvalidConfigurationRequest" };
        Refusal::new(code, format!("{what} is not simulated"))
    }
}

impl Refusal {
    pub(super) fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status: 400, code: code.into(), message: message.into() }
    }

    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

impl Call {
    /// From the body of a request. The path, the method and the host name are somebody else's business.
    pub(super) fn read(service: Service, body: &str) -> Self {
        let params = urlencoded::form(body);
        let action = params.get("Action").cloned().unwrap_or_default();
        Self { service, action, params }
    }

    /// `ec2:RunInstances`, as permissions name it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.service.name(), self.action)
    }

    #[must_use]
    pub fn mutates(&self) -> bool {
        let reads = ["Describe", "Get", "AssumeRole"].iter().any(|verb| self.action.starts_with(verb));
        !reads && self.params.get("DryRun").is_none_or(|dry| dry != "true")
    }
}

impl Answer {
    pub(super) fn refused(service: Service, refusal: &Refusal, request_id: &str) -> Self {
        let (code, message) = (model::escape(&refusal.code), model::escape(&refusal.message));
        let kind = if refusal.status >= 500 { "Receiver" } else { "Sender" };
        let body = match service {
            Service::Ec2 => format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>{request_id}</RequestID></Response>"
            ),
            Service::Quotas => super::quotas::refused(refusal),
            _ => format!(
                "<ErrorResponse><Error><Type>{kind}</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
            ),
        };
        Self { status: refusal.status, body }
    }
}
