//! PATCH: JSON patch, merge patch, strategic merge patch, server-side apply.

use super::admit::{Incoming, meta_mut, meta_text};
use super::update::Ownership;
use crate::apply;
use crate::engine::{Call, Engine};
use crate::http::decode::{self, Decoded, Syntax};
use crate::http::media;
use crate::http::reply::Reply;
use crate::patch::{self, JsonPatch};
use crate::status::{FieldError, Status};
use parking_lot::Mutex;
use serde_json::Value;

/// Keys that the patch itself has twice.
fn repeated(body: &[u8]) -> Vec<String> {
    decode::decode(body, Syntax::Json).map(|d| d.duplicates).unwrap_or_default()
}

pub(crate) fn merged(old: &Value, patch: &Value) -> Value {
    let mut new = old.clone();
    patch::merge_patch(&mut new, patch);
    new
}

const APPLY: &str = "application/apply-patch+yaml";
const SUPPORTED: &str = "the body of the request was in an unknown format - accepted media types include: ";

/// Where the values of a patch are shown in a refusal.
enum Shown<'a> {
    Patch(&'a Value),
    Outcome,
}

impl Engine {
    pub(crate) async fn patch(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let resource = &call.entry.resource;
        let kind = media::content_type(Some(&call.content_type));
        if kind != APPLY && call.params.has("force") {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(Status::invalid_options("PatchOptions", &[error]));
        }
        match kind {
            "application/json-patch+json" => {
                let patch = JsonPatch::parse(body)?;
                self.edit_by(call, Vec::new(), Shown::Outcome, |old| patch.apply(old)).await
            }
            "application/merge-patch+json" => {
                let patch = patch::parse_merge_patch(body)?;
                self.edit_by(call, repeated(body), Shown::Outcome, |old| Ok(merged(old, &patch))).await
            }
            "application/strategic-merge-patch+json" if !resource.is_custom() => {
                let patch = patch::parse_strategic_patch(body)?;
                let edit = |old: &Value| patch::strategic_patch(resource.schema(), old, &patch);
                self.edit_by(call, repeated(body), Shown::Patch(&patch), edit).await
            }
            APPLY => self.apply(call, body).await,
            _ => {
                let strategic =
                    if resource.is_custom() { "" } else { "application/strategic-merge-patch+json, " };
                Err(Status::unsupported_media_type(format!(
                    "{SUPPORTED}application/json-patch+json, application/merge-patch+json, {strategic}application/apply-patch+yaml"
                )))
            }
        }
    }

    /// Runs a patch function on the present state, then treats the outcome as an update.
    async fn edit_by(
        &self,
        call: &Call,
        duplicates: Vec<String>,
        shown: Shown<'_>,
        edit: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Reply, Status> {
        let warnings = Mutex::new(Vec::new());
        let outcome = self
            .change(call, Ownership::FromDifference, |old| {
                let mut new = edit(old)?;
                // A patch that does not name a revision is not about one.
                if meta_text(&new, "resourceVersion") == meta_text(old, "resourceVersion") {
                    meta_mut(&mut new).remove("resourceVersion");
                }
                self.check_names(call, &new)?;
                let refuse = |why: String| {
                    let value = match shown {
                        Shown::Patch(patch) => apply::go_value(patch),
                        Shown::Outcome => new.to_string(),
                    };
                    Status::invalid("", "", "", &[FieldError::invalid("patch", Value::String(value), why)])
                };
                call.check_types(&new).map_err(refuse)?;
                let decoded = Decoded { value: new.clone(), duplicates: duplicates.clone() };
                let (problems, strict) = call.field_problems(&decoded, Syntax::Json);
                if strict {
                    return Err(refuse(format!("strict decoding error: {}", problems.join(", "))));
                }
                *warnings.lock() = problems;
                Ok(new)
            })
            .await;
        let mut reply = outcome?;
        reply.warnings.extend(warnings.into_inner());
        Ok(reply)
    }

    /// Server-side apply: the body says what one manager wants, and nothing else is touched.
    async fn apply(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        if call.params.get("fieldManager").is_none() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(Status::invalid_options("PatchOptions", &[error]));
        }
        let Incoming { value: config, warnings } = self.read_config(call, body)?;
        self.check_apply(call, &config)?;
        let mut reply = loop {
            if self.store.get(call.collection(), &call.key()).is_none() {
                if !call.subresource().is_empty() {
                    return Err(call.not_found());
                }
                match self.create_by_apply(call, &config).await {
                    Err(status) if status.reason == "AlreadyExists" => continue,
                    other => break other?.with_code(201),
                }
            }
            let now = self.timestamp();
            let outcome = self
                .change(call, Ownership::Settled, |old| {
                    let request = self.tracking(call, &now);
                    let merged =
                        apply::apply(&request, Some(old), &config).map_err(|e| self.apply_status(call, e))?;
                    Ok(merged)
                })
                .await;
            match outcome {
                Err(status) if status.reason == "NotFound" && call.subresource().is_empty() => {}
                other => break other?,
            }
        };
        reply.warnings.extend(warnings);
        Ok(reply)
    }

    /// The body of an apply, which must say what it is.
    fn read_config(&self, call: &Call, body: &[u8]) -> Result<Incoming, Status> {
        let undecodable = |why: &str| Status::bad_request(format!("error decoding YAML: {why}"));
        let decoded = decode::decode(body, Syntax::Yaml).map_err(|why| undecodable(&why))?;
        let Some(object) = decoded.value.as_object() else {
            return Err(undecodable(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal into an object",
            ));
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let resource = &call.entry.resource;
        if api_version != resource.api_version() || kind != resource.kind {
            let version =
                if api_version.contains('/') { api_version.to_string() } else { format!("/{api_version}") };
            return Err(Status::bad_request(format!("invalid object type: {version}, Kind={kind}")));
        }
        call.check_types(&decoded.value).map_err(|why| undecodable(&why))?;
        let (problems, strict) = call.field_problems(&decoded, Syntax::Json);
        if strict {
            return Err(Status::bad_request(format!("strict decoding error: {}", problems.join(", "))));
        }
        Ok(Incoming { value: decoded.value, warnings: problems })
    }

    fn check_apply(&self, call: &Call, config: &Value) -> Result<(), Status> {
        if config["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        self.check_names(call, config)
    }

    async fn create_by_apply(&self, call: &Call, config: &Value) -> Result<Reply, Status> {
        self.authorize_create(call)?;
        if !meta_text(config, "uid").is_empty() {
            return Err(Status::conflict(
                &call.entry.resource.group,
                &call.entry.resource.plural,
                call.name(),
                format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    meta_text(config, "uid")
                ),
            ));
        }
        let now = self.timestamp();
        let request = self.tracking(call, &now);
        let mut value = apply::apply(&request, None, config).map_err(|e| self.apply_status(call, e))?;
        let meta = meta_mut(&mut value);
        meta.insert("name".into(), call.name().into());
        if let Some(namespace) = &call.namespace {
            meta.insert("namespace".into(), namespace.as_str().into());
        }
        self.create_object(call, value, Some(())).await
    }

    fn apply_status(&self, call: &Call, error: apply::ApplyError) -> Status {
        let resource = &call.entry.resource;
        error.into_status(&resource.group, &resource.plural, call.name())
    }
}
