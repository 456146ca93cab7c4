//! What Google says when it refuses, and who has to move then.
//!
//! A refusal comes in two forms: as the answer to a call (`quotaExceeded`), and as the end of an operation that the call began
//! (`QUOTA_EXCEEDED`). One status stands for different obstacles, so the reasons decide: both forms are matched in one table.

use crate::failure::{Class, Failure};
use crate::http::Answer;
use serde_json::Value;

/// A refusal in Google's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// In lower case and without underscores: `quotaexceeded`.
    reasons: Vec<String>,
    pub(crate) message: String,
    /// Whether it has the form of Google's refusals: what stands between may answer with a 404 of its own.
    google: bool,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// It was answered with a refusal.
    Refused(Refusal),
    /// There was no answer, or no login.
    Failed(Failure),
}

/// A reason, and what it means.
struct Meaning {
    reason: &'static str,
    class: Class,
    word: &'static str,
    remedy: &'static str,
}

const fn meaning(reason: &'static str, class: Class, word: &'static str, remedy: &'static str) -> Meaning {
    Meaning { reason, class, word, remedy }
}

const AGAIN: &str = "it is tried again; when it lasts, look at https://status.cloud.google.com";
const ROLES: &str =
    "give the service account the missing permission; butleradm doctor lists all that are needed";
const RAISE: &str = "ask Google for a higher quota, or free some of it; it goes on by itself then";
const ROOM: &str =
    "name other zones or another machine type in the ProviderConfig, or wait: it is tried again";
const SLOWER: &str = "it is tried again, more slowly";
const USED: &str = "it is tried again until nothing uses it any more";
const ENABLE: &str = "enable the Compute Engine API in the project";
const BILLING: &str = "link the project to a billing account";

/// The first that fits wins.
const MEANINGS: &[Meaning] = &[
    meaning("quotaexceeded", Class::Quota, "QuotaExceeded", RAISE),
    meaning("limitexceeded", Class::Quota, "QuotaExceeded", RAISE),
    meaning("ratelimitexceeded", Class::Throttled, "TooManyCalls", SLOWER),
    meaning("userratelimitexceeded", Class::Throttled, "TooManyCalls", SLOWER),
    meaning("concurrentoperationsquotaexceeded", Class::Throttled, "TooManyCalls", SLOWER),
    meaning("resourceoperationrateexceeded", Class::Throttled, "TooManyCalls", SLOWER),
    meaning("zoneresourcepoolexhausted", Class::Quota, "ZoneFull", ROOM),
    meaning("zoneresourcepoolexhaustedwithdetails", Class::Quota, "ZoneFull", ROOM),
    meaning("resourcepoolexhausted", Class::Quota, "ZoneFull", ROOM),
    meaning(
        "ipspaceexhausted",
        Class::Quota,
        "SubnetworkFull",
        "widen the subnetwork, or free addresses in it; it goes on by itself then",
    ),
    meaning(
        "ipspaceexhaustedwithdetails",
        Class::Quota,
        "SubnetworkFull",
        "widen the subnetwork, or free addresses in it; it goes on by itself then",
    ),
    meaning("accessnotconfigured", Class::Auth, "ApiDisabled", ENABLE),
    meaning("servicedisabled", Class::Auth, "ApiDisabled", ENABLE),
    meaning("billingnotenabled", Class::Auth, "BillingDisabled", BILLING),
    meaning("insufficientpermissions", Class::Auth, "PermissionDenied", ROLES),
    meaning("forbidden", Class::Auth, "PermissionDenied", ROLES),
    meaning("permissionserror", Class::Auth, "PermissionDenied", ROLES),
    meaning("permissiondenied", Class::Auth, "PermissionDenied", ROLES),
    meaning("resourcenotready", Class::Retryable, "NotReady", AGAIN),
    meaning("resourceinusebyanotherresource", Class::Retryable, "InUse", USED),
    meaning("ipinusebyanotherresource", Class::Retryable, "InUse", USED),
    meaning("conditionnotmet", Class::Retryable, "ChangedBetween", "it is looked at and tried again"),
    meaning("resourcealreadyexists", Class::Retryable, "ExistsAlready", "it is looked at again"),
    meaning("alreadyexists", Class::Retryable, "ExistsAlready", "it is looked at again"),
    meaning("memberalreadyexists", Class::Retryable, "ExistsAlready", "it is looked at again"),
    meaning("backenderror", Class::Retryable, "Unavailable", AGAIN),
    meaning("internalerror", Class::Retryable, "Unavailable", AGAIN),
    meaning("operationcanceledbyuser", Class::Retryable, "Cancelled", "it is tried again"),
];

impl Refusal {
    /// Reads the answer to a call: `{"error": {"message", "errors": [{"reason", "message"}], "status"}}`.
    pub(crate) fn read(answer: &Answer) -> Self {
        let error = answer.body.get("error");
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let entries = error.and_then(|error| error.get("errors")).and_then(Value::as_array);
        let mut reasons: Vec<String> =
            entries.into_iter().flatten().filter_map(|entry| text(entry, "reason")).collect();
        reasons.extend(error.and_then(|error| text(error, "status")));
        let message = error
            .and_then(|error| text(error, "message"))
            .unwrap_or_else(|| format!("status {} {}", answer.status, answer.reason).trim_end().to_owned());
        let google = error.is_some_and(Value::is_object);
        Self { status: answer.status, reasons: plain(reasons), message, google }
    }

    /// Reads the end of an operation; `None` when it went well.
    pub(crate) fn of_operation(operation: &Value) -> Option<Self> {
        let entries = operation.get("error")?.get("errors").and_then(Value::as_array).cloned();
        let entries = entries.unwrap_or_default();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let reasons = entries.iter().filter_map(|entry| text(entry, "code")).collect();
        let messages: Vec<String> = entries.iter().filter_map(|entry| text(entry, "message")).collect();
        let message = if messages.is_empty() {
            text(operation, "httpErrorMessage").unwrap_or_else(|| "it failed without a word".to_owned())
        } else {
            messages.join("; ")
        };
        let status = operation.get("httpErrorStatusCode").and_then(Value::as_u64).unwrap_or(500);
        let status = u16::try_from(status).unwrap_or(500);
        Some(Self { status, reasons: plain(reasons), message, google: true })
    }

    fn says(&self, reasons: &[&str]) -> bool {
        self.reasons.iter().any(|reason| reasons.contains(&reason.as_str()))
    }

    /// What was asked for is not there. `path` is what was asked for: a missing project or region is something else.
    pub(crate) fn not_found(&self, path: &str) -> bool {
        let missing = self.google
            && (self.status == 404 || self.says(&["notfound", "resourcenotfound"]))
            && !matches!(self.status, 401 | 403);
        // "The resource 'projects/p/regions/r/addresses/a' was not found"
        let named = self.message.split('\'').nth(1);
        missing && named.is_none_or(|named| same_end(named, path))
    }

    /// Something that the driver makes itself, and that a change refers to, is not seen yet.
    pub(crate) fn part_not_seen(&self) -> bool {
        const PARTS: [&str; 6] = [
            "healthChecks",
            "httpHealthChecks",
            "backendServices",
            "targetPools",
            "instanceGroups",
            "instances",
        ];
        let missing = self.google && (self.status == 404 || self.says(&["notfound", "resourcenotfound"]));
        let named = self.message.split('\'').nth(1).and_then(|named| named.rsplit('/').nth(1));
        missing && named.is_some_and(|collection| PARTS.contains(&collection))
    }

    /// The question does not fit what it is asked of.
    pub(crate) fn is_unfit(&self) -> bool {
        self.google && self.status == 400
    }

    /// Something of that name is there already, or is a member already.
    pub(crate) fn exists_already(&self) -> bool {
        let text = self.message.to_lowercase();
        self.says(&["alreadyexists", "resourcealreadyexists", "memberalreadyexists"])
            || (self.status == 409 && text.contains("already exists"))
            || text.contains("is already a member")
    }

    /// Somebody still needs it.
    pub(crate) fn in_use(&self) -> bool {
        self.says(&["resourceinusebyanotherresource"])
            || self.message.to_lowercase().contains("being used by")
    }

    /// It is being worked on, or was changed since it was read.
    pub(crate) fn not_now(&self) -> bool {
        self.says(&["resourcenotready", "conditionnotmet"]) || self.status == 412
    }

    /// An instance is not in a group or pool.
    pub(crate) fn not_a_member(&self) -> bool {
        self.says(&["membernotfound"]) || self.message.to_lowercase().contains("is not a member")
    }

    /// The failure that this refusal is. `what` names the operation and its object.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let (class, reason, remedy) = self.classify();
        Failure::new(class, reason, format!("{what}: Google says: {}", self.message), remedy)
    }

    fn classify(&self) -> (Class, &'static str, &'static str) {
        if self.status == 401 {
            let remedy =
                "check the key in the credentials: it may have been deleted, or its account switched off";
            return (Class::Auth, "LoginFailed", remedy);
        }
        let found = MEANINGS.iter().find(|meaning| self.says(&[meaning.reason]));
        if let Some(found) = found {
            return (found.class, found.word, found.remedy);
        }
        match self.status {
            403 => (Class::Auth, "PermissionDenied", ROLES),
            404 if !self.google => {
                (Class::Retryable, "NotGoogle", "check the proxy: the answer is not Google's")
            }
            404 => {
                let remedy = "correct the name in the ProviderConfig, or make what is missing";
                (Class::InvalidConfig, "NotFound", remedy)
            }
            408 | 409 | 412 | 500..=599 => (Class::Retryable, "Unavailable", AGAIN),
            429 => (Class::Throttled, "TooManyCalls", SLOWER),
            _ if !self.google => {
                (Class::Retryable, "NotGoogle", "check the proxy: the answer is not Google's")
            }
            _ => {
                let remedy = "correct what Google names, in the spec or in the ProviderConfig";
                (Class::InvalidConfig, "Refused", remedy)
            }
        }
    }
}

impl CallError {
    /// The failure that this is.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            CallError::Refused(refusal) => refusal.failure(what),
            CallError::Failed(failure) => failure,
        }
    }
}

fn plain(reasons: Vec<String>) -> Vec<String> {
    reasons.into_iter().map(|reason| reason.replace('_', "").to_lowercase()).collect()
}

/// Whether two paths name the same thing, whatever comes before the project.
fn same_end(named: &str, path: &str) -> bool {
    let last_two = |text: &str| {
        let mut parts = text.split('?').next().unwrap_or(text).rsplit('/');
        (parts.next().map(str::to_owned), parts.next().map(str::to_owned))
    };
    last_two(named) == last_two(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(status: u16, reason: &str, message: &str) -> Refusal {
        let body = json!({"error": {"code": status, "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}]}});
        Refusal::read(&Answer { status, reason: String::new(), body })
    }

    #[test]
    fn one_status_stands_for_many_obstacles() {
        let table = [
            (403, "quotaExceeded", Class::Quota, "QuotaExceeded"),
            (403, "rateLimitExceeded", Class::Throttled, "TooManyCalls"),
            (403, "forbidden", Class::Auth, "PermissionDenied"),
            (403, "accessNotConfigured", Class::Auth, "ApiDisabled"),
            (401, "authError", Class::Auth, "LoginFailed"),
            (429, "", Class::Throttled, "TooManyCalls"),
            (503, "backendError", Class::Retryable, "Unavailable"),
            (412, "conditionNotMet", Class::Retryable, "ChangedBetween"),
            (409, "alreadyExists", Class::Retryable, "ExistsAlready"),
            (400, "resourceInUseByAnotherResource", Class::Retryable, "InUse"),
            (400, "resourceNotReady", Class::Retryable, "NotReady"),
            (400, "invalid", Class::InvalidConfig, "Refused"),
            (404, "notFound", Class::InvalidConfig, "NotFound"),
        ];
        for (status, reason, class, word) in table {
            let failure = refused(status, reason, "some words").failure("x");
            assert_eq!((failure.class, failure.reason.as_str()), (class, word), "{status} {reason}");
            assert!(failure.message.contains("some words") && !failure.remedy.is_empty());
        }
    }

    #[test]
    fn an_operation_that_is_done_may_have_failed() {
        let of = |code: &str| {
            Refusal::of_operation(&json!({"status": "DONE", "httpErrorStatusCode": 403,
                "error": {"errors": [{"code": code, "message": "Quota 'CPUS' exceeded. Limit: 24.0"}]}}))
            .unwrap()
            .failure("x")
        };
        assert_eq!(of("QUOTA_EXCEEDED").class, Class::Quota);
        assert_eq!(of("ZONE_RESOURCE_POOL_EXHAUSTED").reason, "ZoneFull");
        assert_eq!(of("IP_SPACE_EXHAUSTED").reason, "SubnetworkFull");
        assert_eq!(of("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE").class, Class::Retryable);
        assert_eq!(of("IP_IN_USE_BY_ANOTHER_RESOURCE").class, Class::Retryable);
        assert_eq!(of("PERMISSIONS_ERROR").class, Class::Auth);
        assert_eq!(Refusal::of_operation(&json!({"status": "DONE"})), None);
    }

    #[test]
    fn only_what_was_asked_for_can_be_missing() {
        let path = "regions/r/addresses/a";
        let missing = |message: &str| refused(404, "notFound", message).not_found(path);
        assert!(missing("The resource 'projects/p/regions/r/addresses/a' was not found"));
        assert!(!missing("The resource 'projects/p' was not found"));
        assert!(!refused(403, "notFound", "hidden").not_found(path));
        let hidden =
            refused(404, "notFound", "The resource 'projects/p/regions/r/healthChecks/h' was not found");
        assert!(
            hidden.part_not_seen() && !missing("The resource 'projects/p/global/images/i' was not found")
        );
        // A proxy's own 404 says nothing about the address.
        let html = Answer { status: 404, reason: "Not Found".into(), body: json!("<html>") };
        let refusal = Refusal::read(&html);
        assert!(!refusal.not_found(path));
        assert_eq!(refusal.failure("x").class, Class::Retryable);
    }
}
