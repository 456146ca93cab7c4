//! The `scale` subresource.

use super::admit::{meta_mut, meta_text};
use super::patch::merged;
use super::update::Ownership;
use crate::builtin;
use crate::engine::{Call, Engine};
use crate::http::decode::{self, Syntax};
use crate::http::media;
use crate::http::reply::{Content, Reply};
use crate::patch::JsonPatch;
use crate::resource::Scale;
use crate::status::{FieldError, Status};
use crate::table;
use serde_json::{Value, json};

impl Engine {
    pub(crate) fn get_scale(&self, call: &Call) -> Result<Reply, Status> {
        let scale = scale_of(call)?;
        let object = self.store.get(call.collection(), &call.key()).ok_or_else(|| call.not_found())?.value();
        let path = &scale.spec_replicas_path;
        if call.entry.resource.is_custom() && table::eval(path, &object).is_empty() {
            return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
        }
        Ok(Reply::value(view(scale, &object)))
    }

    /// PUT or PATCH of the scale: changes the replicas of the object behind it.
    pub(crate) async fn change_scale(
        &self,
        call: &Call,
        body: &[u8],
        is_patch: bool,
    ) -> Result<Reply, Status> {
        let scale = scale_of(call)?.clone();
        let kind = media::content_type(Some(&call.content_type)).to_string();
        let operations = if is_patch && kind == "application/json-patch+json" {
            Some(JsonPatch::parse(body)?)
        } else {
            None
        };
        let document = match &operations {
            Some(_) => Value::Null,
            None if is_patch => decode::decode(body, Syntax::Json).map_err(Status::bad_request)?.value,
            None => call.decode_other(body, "autoscaling/v1", "Scale")?,
        };
        let edit = |old: &Value| -> Result<Value, Status> {
            let present = view(&scale, old);
            let wanted = match (&operations, is_patch) {
                (Some(operations), _) => operations.apply(&present)?,
                (None, true) => merged(&present, &document),
                (None, false) => document.clone(),
            };
            let replicas = wanted["spec"].get("replicas").cloned().unwrap_or_else(|| 0.into());
            if replicas.as_i64().is_none_or(|n| n < 0) && !call.entry.resource.is_custom() {
                let error =
                    FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
                return Err(Status::invalid("autoscaling", "Scale", call.name(), &[error]));
            }
            let mut new = old.clone();
            set_path(&mut new, &scale.spec_replicas_path, replicas);
            let rv = meta_text(&wanted, "resourceVersion").to_string();
            let meta = meta_mut(&mut new);
            meta.remove("resourceVersion");
            let named = !rv.is_empty() && rv != meta_text(&present, "resourceVersion");
            if named || (!is_patch && !rv.is_empty()) {
                meta.insert("resourceVersion".into(), Value::String(rv));
            }
            Ok(new)
        };
        let reply = self.change(call, Ownership::FromDifference, edit).await?;
        let value = match &reply.content {
            Content::Object(object) => object.value(),
            Content::Value(value) => value.clone(),
            _ => Value::Null,
        };
        Ok(Reply { content: Content::Value(view(&scale, &value)), ..reply })
    }
}

fn scale_of(call: &Call) -> Result<&Scale, Status> {
    call.entry.resource.scale.as_ref().ok_or_else(Status::no_such_path)
}

fn number(value: &Value, path: &str) -> i64 {
    table::eval(path, value).first().and_then(|v| v.as_i64()).unwrap_or(0)
}

fn view(scale: &Scale, object: &Value) -> Value {
    let meta = &object["metadata"];
    let mut shown = serde_json::Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(key) {
            shown.insert(key.into(), value.clone());
        }
    }
    let mut status = json!({"replicas": number(object, &scale.status_replicas_path)});
    if let Some(path) = &scale.label_selector_path {
        match table::eval(path, object).first() {
            Some(Value::String(text)) if !text.is_empty() => status["selector"] = text.as_str().into(),
            Some(selector @ Value::Object(_)) => {
                status["selector"] = builtin::scale_selector(selector).into()
            }
            _ => {}
        }
    }
    let mut spec = json!({});
    let replicas = number(object, &scale.spec_replicas_path);
    if replicas != 0 {
        spec["replicas"] = replicas.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown, "spec": spec, "status": status})
}

/// Sets `.a.b.c`, making the objects on the way.
fn set_path(value: &mut Value, path: &str, to: Value) {
    let mut at = value;
    for part in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = to;
}
