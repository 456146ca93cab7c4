//! `ObjectMeta`: its rules, and what an update may change.

use super::names;
use super::path::Path;
use crate::status::{FieldError, FieldProblem};
use serde_json::{Map, Value};

/// All annotations of an object together.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Which rule a name has to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameStyle {
    /// A DNS subdomain: custom resources and most built-in kinds.
    #[default]
    Subdomain,
    /// A DNS label: namespaces.
    Label,
    /// A DNS label that starts with a letter: services.
    Label1035,
    /// Anything that fits into a path: RBAC kinds.
    PathSegment,
    /// The same for embedded resources, which need no name.
    OptionalPathSegment,
}

/// Checks the metadata of a new object whose name follows the usual rule. `object` is the whole object.
pub fn validate_meta(object: &Value, namespaced: bool) -> Vec<FieldError> {
    validate_meta_named(object, namespaced, NameStyle::Subdomain)
}

/// Checks the metadata of a new object.
pub fn validate_meta_named(object: &Value, namespaced: bool, style: NameStyle) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    check(metadata, namespaced, style, &Path::Root.field("metadata"), &mut errors);
    errors
}

/// `path` is where the metadata is.
pub(crate) fn check(
    metadata: &Value,
    namespaced: bool,
    style: NameStyle,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    let invalid = |key: &str, value: &str, problems: Vec<String>, errors: &mut Vec<FieldError>| {
        for problem in problems {
            errors.push(FieldError::invalid(path.field(key).bracketed(), value.into(), problem));
        }
    };
    let prefix = text("generateName");
    if !prefix.is_empty() {
        invalid("generateName", prefix, style.check_prefix(prefix), errors);
    }
    match text("name") {
        "" if style == NameStyle::OptionalPathSegment => {}
        "" => {
            let name = path.field("name").bracketed();
            errors.push(FieldError::required(name, "name or generateName is required"));
        }
        name => invalid("name", name, style.check(name), errors),
    }
    match (namespaced, text("namespace")) {
        (true, "") => errors.push(FieldError::required(path.field("namespace").bracketed(), "")),
        (true, namespace) => invalid("namespace", namespace, names::dns1123_label(namespace), errors),
        (false, "") => {}
        (false, _) => {
            let namespace = path.field("namespace").bracketed();
            errors.push(FieldError::forbidden(namespace, "not allowed on this type"));
        }
    }
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64).filter(|g| *g < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.field("generation").bracketed(), generation.into(), detail));
    }
    check_common(metadata, path, errors);
}

/// What holds on create and on update alike.
fn check_common(metadata: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(labels) = metadata.get("labels").and_then(Value::as_object) {
        check_labels(labels, &path.field("labels"), errors);
    }
    if let Some(annotations) = metadata.get("annotations").and_then(Value::as_object) {
        check_annotations(annotations, &path.field("annotations"), errors);
    }
    if let Some(owners) = metadata.get("ownerReferences").and_then(Value::as_array) {
        check_owners(owners, &path.field("ownerReferences"), errors);
    }
    if let Some(finalizers) = metadata.get("finalizers").and_then(Value::as_array) {
        check_finalizers(finalizers, &path.field("finalizers"), errors);
    }
    if let Some(managed) = metadata.get("managedFields").and_then(Value::as_array) {
        check_managed(managed, &path.field("managedFields"), errors);
    }
}

fn check_labels(labels: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(path.bracketed(), key.as_str().into(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(path.bracketed(), value.into(), problem));
        }
    }
}

fn check_annotations(annotations: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Only the prefix cares about case, and annotations do not.
        let lower;
        let checked = if key.bytes().any(|b| b.is_ascii_uppercase()) || !key.is_ascii() {
            lower = key.to_lowercase();
            lower.as_str()
        } else {
            key
        };
        for problem in names::qualified_name(checked) {
            errors.push(FieldError::invalid(path.bracketed(), key.as_str().into(), problem));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError::new(FieldProblem::TooLong, path.bracketed(), Value::Null, detail));
    }
}

fn check_owners(owners: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for owner in owners {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("apiVersion");
        if api_version.rsplit('/').next().unwrap_or_default().is_empty()
            || api_version.matches('/').count() > 1
        {
            let field = path.field("apiVersion").bracketed();
            errors.push(FieldError::invalid(field, api_version.into(), "version must not be empty"));
        }
        for key in ["kind", "name", "uid"] {
            if text(key).is_empty() {
                errors.push(FieldError::invalid(path.field(key).bracketed(), "".into(), "must not be empty"));
            }
        }
        if (api_version, text("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path.bracketed(), owner.clone(), detail));
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let name = format!("{}/{}", text("kind"), text("name"));
        match &controller {
            None => controller = Some(name),
            Some(first) => errors.push(FieldError::invalid(
                path.bracketed(),
                Value::Array(owners.to_vec()),
                format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {name}"
                ),
            )),
        }
    }
}

fn check_finalizers(finalizers: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let texts = || finalizers.iter().map(|f| f.as_str().unwrap_or_default());
    for finalizer in texts() {
        for problem in names::qualified_name(finalizer) {
            errors.push(FieldError::invalid(path.bracketed(), finalizer.into(), problem));
        }
    }
    if texts().any(|f| f == "orphan") && texts().any(|f| f == "foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path.bracketed(), Value::Array(finalizers.to_vec()), detail));
    }
}

fn check_managed(entries: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, entry) in entries.iter().enumerate() {
        let here = path.index(index);
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = text("operation");
        if !matches!(operation, "Apply" | "Update") {
            let field = here.field("operation").bracketed();
            errors.push(FieldError::invalid(field, operation.into(), "must be `Apply` or `Update`"));
        }
        let fields_type = text("fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            let field = here.field("fieldsType").bracketed();
            errors.push(FieldError::invalid(field, fields_type.into(), "must be `FieldsV1`"));
        }
        for (key, limit) in [("manager", 128), ("subresource", 256)] {
            if text(key).len() > limit {
                let detail = format!("may not be more than {limit} bytes");
                errors.push(FieldError::new(
                    FieldProblem::TooLong,
                    here.field(key).bracketed(),
                    Value::Null,
                    detail,
                ));
            }
        }
    }
}

/// Checks the metadata of a changed object against the stored one. Both are whole objects.
pub fn validate_meta_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = Path::Root.field("metadata");
    let null = Value::Null;
    let (new, old) = (new.get("metadata").unwrap_or(&null), old.get("metadata").unwrap_or(&null));
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        check_no_new_finalizers(new, old, &path, &mut errors);
    }
    if new.get("resourceVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
        let field = path.field("resourceVersion").bracketed();
        errors.push(FieldError::invalid(field, "".into(), "must be specified for an update"));
    }
    let generation = |meta: &Value| meta.get("generation").and_then(Value::as_i64).unwrap_or_default();
    if generation(new) < generation(old) {
        let field = path.field("generation").bracketed();
        errors.push(FieldError::invalid(field, generation(new).into(), "must not be decremented"));
    }
    for (key, empty) in [
        ("name", Value::from("")),
        ("namespace", Value::from("")),
        ("uid", Value::from("")),
        ("creationTimestamp", Value::Null),
        ("deletionTimestamp", Value::Null),
        ("deletionGracePeriodSeconds", Value::Null),
    ] {
        let (is, was) = (new.get(key).unwrap_or(&empty), old.get(key).unwrap_or(&empty));
        if is != was {
            errors.push(FieldError::invalid(path.field(key).bracketed(), is.clone(), "field is immutable"));
        }
    }
    check_common(new, &path, &mut errors);
    errors
}

/// Warnings on finalizers that are new in a custom resource: names that others may come to use as well.
pub fn finalizer_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let list = |object: &Value| -> Vec<String> {
        let items = object.get("metadata").and_then(|m| m.get("finalizers")).and_then(Value::as_array);
        items.into_iter().flatten().filter_map(|f| f.as_str().map(String::from)).collect()
    };
    let before = old.map(list).unwrap_or_default();
    let mut added = list(new);
    added.retain(|finalizer| !before.contains(finalizer));
    added.sort();
    added.dedup();
    let mut warnings = Vec::new();
    for finalizer in added {
        let mut warn = |text: &str| warnings.push(format!("metadata.finalizers: {finalizer:?}: {text}"));
        names::qualified_name(&finalizer).iter().for_each(|problem| warn(problem));
        if finalizer.contains('/')
            || matches!(finalizer.as_str(), "orphan" | "foregroundDeletion" | "kubernetes")
        {
            continue;
        }
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warn(&format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}

fn check_no_new_finalizers(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let list = |meta: &Value| -> Vec<String> {
        let items = meta.get("finalizers").and_then(Value::as_array);
        items.into_iter().flatten().filter_map(|f| f.as_str().map(String::from)).collect()
    };
    let before = list(old);
    let mut extra: Vec<String> = list(new).into_iter().filter(|f| !before.contains(f)).collect();
    extra.sort();
    extra.dedup();
    if !extra.is_empty() {
        let shown = extra.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ");
        errors.push(FieldError::forbidden(
            path.field("finalizers").bracketed(),
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{shown}}}"
            ),
        ));
    }
}

// === impl NameStyle ===

impl NameStyle {
    fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => names::dns1123_subdomain(name),
            Self::Label => names::dns1123_label(name),
            Self::Label1035 => names::dns1035_label(name),
            Self::PathSegment | Self::OptionalPathSegment => names::path_segment(name, false),
        }
    }

    fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            Self::Subdomain => names::generated(prefix, names::dns1123_subdomain),
            Self::Label => names::generated(prefix, names::dns1123_label),
            Self::Label1035 => names::generated(prefix, names::dns1035_label),
            Self::PathSegment | Self::OptionalPathSegment => names::path_segment(prefix, true),
        }
    }
}
