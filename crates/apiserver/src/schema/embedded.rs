//! Resources inside resources (`x-kubernetes-embedded-resource`): they must say what they are, and their metadata must
//! be in order.

use super::meta::{self, NameStyle};
use super::numbers::shown;
use super::path::Path;
use super::{meta_shape, names};
use crate::status::FieldError;
use serde_json::{Map, Value};

pub(crate) fn check(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let here = path.field(name);
        match map.get(name) {
            None => errors.push(FieldError::required(here.bracketed(), "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(here.bracketed(), "".into(), "must not be empty"));
            }
            Some(Value::String(text)) => {
                let problem = if name == "kind" { bad_kind(text) } else { bad_api_version(text) };
                if let Some(problem) = problem {
                    errors.push(FieldError::invalid(here.bracketed(), text.as_str().into(), problem));
                }
            }
            Some(other) => {
                errors.push(FieldError::invalid(here.bracketed(), shown(other), "must be a string"));
            }
        }
    }
    let Some(metadata) = map.get("metadata") else { return };
    let here = path.field("metadata");
    match meta_shape::decode_meta(metadata) {
        Err(why) => errors.push(FieldError::invalid(here.bracketed(), shown(metadata), why)),
        Ok(()) => {
            let namespaced = metadata.get("namespace").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
            meta::check(metadata, namespaced, NameStyle::OptionalPathSegment, &here, errors);
        }
    }
}

fn bad_kind(kind: &str) -> Option<String> {
    let problems = names::dns1035_label(&kind.to_lowercase());
    (!problems.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", problems.join(",")))
}

fn bad_api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}
