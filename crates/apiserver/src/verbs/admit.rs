//! From what a client sent to what is stored: the steps that create, update, patch and apply share.

use crate::builtin;
use crate::crd;
use crate::engine::{Call, Engine, Entry, FieldValidation};
use crate::http::decode::{self, Decoded, Syntax};
use crate::http::media;
use crate::resource::Resource;
use crate::schema;
use crate::status::{Cause, FieldError, Status};
use crate::store::Object;
use serde_json::{Map, Value};

/// An object as it came in, with what is to be said about it in warning headers.
pub(crate) struct Incoming {
    pub(crate) value: Value,
    pub(crate) warnings: Vec<String>,
}

pub(crate) const CRD_COLLECTION: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Call {
    /// The syntax of a whole object in the body.
    pub(crate) fn body_syntax(&self) -> Result<Syntax, Status> {
        match media::content_type(Some(&self.content_type)) {
            "" | "application/json" => Ok(Syntax::Json),
            "application/yaml" => Ok(Syntax::Yaml),
            _ => Err(Status::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml{}",
                if self.entry.resource.is_custom() { "" } else { ", application/vnd.kubernetes.protobuf" }
            ))),
        }
    }

    /// Decodes the body and checks that it is an object of the kind that the path names.
    pub(crate) fn decode_object(&self, body: &[u8]) -> Result<Incoming, Status> {
        if self.is_protobuf() && !self.entry.resource.is_custom() {
            return Ok(Incoming { value: self.decode_protobuf(body)?, warnings: Vec::new() });
        }
        let syntax = self.body_syntax()?;
        let decoded = decode::decode(body, syntax).map_err(|why| self.unrecognized(body, syntax, &why))?;
        if !decoded.value.is_object() {
            let why = format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                go_type(&decoded.value)
            );
            return Err(self.unrecognized(body, syntax, &why));
        }
        for key in ["apiVersion", "kind"] {
            let given = decoded.value.get(key).filter(|v| !v.is_string() && !v.is_null());
            if let Some(wrong) = given {
                let why = format!(
                    "json: cannot unmarshal {} into Go struct field .{key} of type string",
                    go_type(wrong)
                );
                return Err(self.unrecognized(body, syntax, &why));
            }
        }
        let mut decoded = decoded;
        self.check_kind(&mut decoded.value)?;
        self.check_types(&decoded.value).map_err(|why| self.cannot_be_handled(&why))?;
        let (problems, strict) = self.field_problems(&decoded, syntax);
        if strict {
            return Err(self.cannot_be_handled(&format!("strict decoding error: {}", problems.join(", "))));
        }
        Ok(Incoming { value: decoded.value, warnings: problems })
    }

    /// A body that is not even an object.
    fn unrecognized(&self, body: &[u8], syntax: Syntax, why: &str) -> Status {
        let start: String = String::from_utf8_lossy(body).chars().take(30).collect();
        let shown = match body.len() {
            0 => "<empty>".to_string(),
            1..30 => start,
            _ => format!("{start} ..."),
        };
        let parser = if syntax == Syntax::Json { "json parse error: " } else { "" };
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; {parser}{why} ({shown})",
            self.entry.resource.kind
        ))
    }

    pub(crate) fn cannot_be_handled(&self, why: &str) -> Status {
        let r = &self.entry.resource;
        Status::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {why}",
            r.kind, r.version, r.kind
        ))
    }

    pub(crate) fn check_kind(&self, value: &mut Value) -> Result<(), Status> {
        let resource = &self.entry.resource;
        let expected = resource.api_version();
        let Some(object) = value.as_object_mut() else {
            return Err(Status::bad_request("the body is no object"));
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if resource.is_custom() {
            if kind.is_empty() {
                let shown = Value::Object(object.clone());
                return Err(Status::bad_request(format!("Object 'Kind' is missing in '{shown}'")));
            }
            if api_version != expected {
                return Err(Status::bad_request(format!(
                    "the API version in the data ({api_version}) does not match the expected API version ({expected})"
                )));
            }
            if kind != resource.kind {
                let name = meta_text(value, "name").to_string();
                let error =
                    FieldError::invalid("kind", kind.as_str().into(), format!("must be {}", resource.kind));
                return Err(Status::invalid(&resource.group, &kind, &name, &[error]));
            }
        } else if (!kind.is_empty() && kind != resource.kind)
            || (!api_version.is_empty() && api_version != expected)
        {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            let why = if api_version.is_empty() || api_version == expected {
                format!("the path is for {}", resource.kind)
            } else {
                format!("no kind {kind:?} is registered for version {api_version:?}")
            };
            return Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {}: {why}",
                resource.kind
            )));
        }
        let Some(object) = value.as_object_mut() else { return Ok(()) };
        object.insert("apiVersion".into(), Value::String(expected));
        object.insert("kind".into(), Value::String(resource.kind.clone()));
        Ok(())
    }

    /// A value of the wrong type in metadata, or anywhere in a built-in kind, can't even be read.
    pub(crate) fn check_types(&self, value: &Value) -> Result<(), String> {
        let resource = &self.entry.resource;
        if resource.is_custom() {
            return schema::decode_meta(value.get("metadata").unwrap_or(&Value::Null));
        }
        builtin::check_types(resource.schema(), value).map_or(Ok(()), Err)
    }

    /// Unknown and repeated fields, and whether they are a reason to refuse.
    pub(crate) fn field_problems(&self, decoded: &Decoded, syntax: Syntax) -> (Vec<String>, bool) {
        if self.field_validation == FieldValidation::Ignore {
            return (Vec::new(), false);
        }
        let twice = |path: &String| match syntax {
            Syntax::Json => format!("duplicate field {path:?}"),
            Syntax::Yaml => {
                let key = path.rsplit('.').next().unwrap_or(path);
                format!("yaml: unmarshal errors:\n  key {key:?} already set in map")
            }
        };
        let unknown = schema::unknown_fields(self.entry.resource.schema(), &decoded.value);
        let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
        let problems: Vec<String> = decoded.duplicates.iter().map(twice).chain(unknown).collect();
        let strict = !problems.is_empty() && self.field_validation == FieldValidation::Strict;
        (problems, strict)
    }
}

impl Engine {
    /// The stored form of an object in the version that the call speaks.
    pub(crate) fn view(&self, entry: &Entry, object: &Object) -> Value {
        let mut value = object.value();
        if entry.storage.is_some() {
            convert(&mut value, entry);
        }
        value
    }

    /// The schema's share of admission: prune, default, and for built-in kinds what their strategy adds.
    pub(crate) fn shape(&self, entry: &Entry, value: &mut Value) {
        let resource = &entry.resource;
        let schema = resource.schema();
        schema::prune(schema, value);
        if resource.is_custom() {
            schema::apply_defaults(schema, value);
        } else if *entry.collection == *CRD_COLLECTION {
            crd::default_crd(value);
        } else {
            builtin::normalise(schema, value);
            builtin::default(resource, value);
        }
    }

    /// All that is wrong with an object that is about to be stored.
    pub(crate) fn problems(
        &self,
        entry: &Entry,
        new: &Value,
        old: Option<&Value>,
        subresource: &str,
    ) -> Vec<FieldError> {
        let resource = &entry.resource;
        let mut errors = match old {
            None => schema::validate_meta(new, resource.namespaced),
            Some(old) => schema::validate_meta_update(new, old),
        };
        if !resource.is_custom() && *entry.collection != *CRD_COLLECTION {
            // Names have rules per kind there.
            errors.retain(|e| {
                !matches!(e.field.as_str(), "metadata.name" | "metadata.generateName") || old.is_some()
            });
            errors.extend(plain_finalizers(new));
            errors.extend(builtin::validate(resource, new, old));
            errors.extend(namespace_phase(resource, new));
            return errors;
        }
        if *entry.collection == *CRD_COLLECTION {
            errors.extend(crd::validate_crd(new, old));
        } else {
            let found = match old {
                None => schema::validate(resource.schema(), new),
                Some(old) if subresource == "status" => {
                    schema::validate_status_update(resource.schema(), new, old)
                }
                Some(old) => schema::validate_update(resource.schema(), new, old),
            };
            errors.extend(found);
            if let Some(scale) = &resource.scale {
                errors.extend(crd::validate_scale(scale, new, subresource == "status"));
            }
            entry.rules.check_after(&mut errors, new, old);
        }
        errors
    }

    pub(crate) fn invalid(&self, entry: &Entry, value: &Value, errors: &[FieldError]) -> Status {
        let name = meta_text(value, "name");
        Status::invalid(&entry.resource.group, &entry.resource.kind, name, errors)
    }

    /// New objects need a namespace that is there and staying.
    pub(crate) fn check_namespace(&self, entry: &Entry, namespace: &str, name: &str) -> Result<(), Status> {
        let Some(object) = self.namespace(namespace) else {
            return Err(Status::not_found("", "namespaces", namespace));
        };
        if object.value()["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let message = format!("namespace {namespace} is being terminated");
        let r = &entry.resource;
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Err(Status::forbidden(&r.group, &r.plural, name, why).with_causes(vec![Cause {
            reason: "NamespaceTerminating".into(),
            message,
            field: "metadata.namespace".into(),
        }]))
    }
}

/// From the stored form to the one that the path speaks. Between versions of a CRD only the apiVersion differs.
fn convert(value: &mut Value, entry: &Entry) {
    if entry.resource.is_custom() {
        value["apiVersion"] = Value::String(entry.api_version.clone());
    } else {
        builtin::event_from_core(value);
    }
}

/// The reverse; what the stored version does not know is not kept.
pub(super) fn to_storage(value: &mut Value, entry: &Entry) {
    let Some(storage) = &entry.storage else { return };
    if entry.resource.is_custom() {
        value["apiVersion"] = Value::String(storage.api_version.clone());
        schema::prune(storage.resource.schema(), value);
    } else {
        builtin::event_to_core(value);
    }
}

/// Built-in kinds take a finalizer without a domain only when it is one of Kubernetes' own.
fn plain_finalizers(value: &Value) -> Vec<FieldError> {
    let unknown =
        |f: &&str| !f.contains('/') && !matches!(*f, "orphan" | "foregroundDeletion" | "kubernetes");
    let error = |(i, f): (usize, &str)| {
        let why = "name is neither a standard finalizer name nor is it fully qualified";
        FieldError::invalid(format!("metadata.finalizers[{i}]"), f.into(), why)
    };
    finalizers(value).into_iter().enumerate().filter(|(_, f)| unknown(f)).map(error).collect()
}

fn namespace_phase(resource: &Resource, value: &Value) -> Option<FieldError> {
    if resource.plural != "namespaces" || !resource.group.is_empty() {
        return None;
    }
    let phase = &value["status"]["phase"];
    let why = match (is_deleting(value), phase.as_str()) {
        (false, Some(p)) if p != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, Some(p)) if p != "Terminating" => {
            "may only be 'Terminating' if `deletionTimestamp` is not empty"
        }
        _ => return None,
    };
    Some(FieldError::invalid("status.Phase", phase.clone(), why))
}

/// The metadata of an object, made when it is missing.
pub(crate) fn meta_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.get("metadata").is_some_and(Value::is_object) {
        value["metadata"] = Value::Object(Map::new());
    }
    match &mut value["metadata"] {
        Value::Object(meta) => meta,
        _ => unreachable!("it was made an object right above"),
    }
}

pub(crate) fn meta_text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn finalizers(value: &Value) -> Vec<&str> {
    let list = value.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn is_deleting(value: &Value) -> bool {
    !meta_text(value, "deletionTimestamp").is_empty()
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
