//! Whether a CRD may be registered. Problems are worded, and placed, as Kubernetes does: a schema, subresources or
//! columns that all versions share are reported once, under the names they had in older forms of the API.

use super::view::View;
use super::{openapi, stored_versions};
use crate::schema::{Path, Schema, Type, names, parse};
use crate::status::{FieldError, FieldProblem};
use serde_json::Value;

/// More than this is too many.
const MAX_SELECTABLE: usize = 8;

/// Checks a CRD, defaulted before; `old` is the stored one on update. Metadata is checked only as far as it is special:
/// the name, and the approval of community groups.
pub fn validate_crd(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let null = Value::Null;
    let spec = new.get("spec").unwrap_or(&null);
    let old_spec = old.and_then(|old| old.get("spec"));
    if old.is_none() {
        check_name(new, spec, &mut errors);
    }
    check_spec(spec, &mut errors);
    if let (Some(old), Some(old_spec)) = (old, old_spec) {
        check_immutable(spec, old_spec, is_established(old), &mut errors);
    }
    check_stored(new, spec, &mut errors);
    check_approval(new, old, spec.text("group"), &mut errors);
    if spec.flag("preserveUnknownFields") && !old_spec.is_some_and(|old| old.flag("preserveUnknownFields")) {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true.into(),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

fn is_established(crd: &Value) -> bool {
    let status = crd.get("status").unwrap_or(&Value::Null);
    status.list("conditions").iter().any(|c| c.text("type") == "Established" && c.text("status") == "True")
}

fn check_name(crd: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let name = crd.get("metadata").map_or("", |m| m.text("name"));
    let plural = spec.get("names").map_or("", |n| n.text("plural"));
    if !name.is_empty() && name != format!("{plural}.{}", spec.text("group")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name.into(), detail));
    }
}

fn check_spec(spec: &Value, errors: &mut Vec<FieldError>) {
    check_group(spec.text("group"), errors);
    one_of("spec.scope", spec.text("scope"), &["Cluster", "Namespaced"], errors);
    let versions = spec.list("versions");
    for (index, version) in versions.iter().enumerate() {
        if version.get("schema").and_then(|s| s.some("openAPIV3Schema")).is_none() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    check_versions(spec, versions, errors);
    check_names(spec.get("names").unwrap_or(&Value::Null), errors);
    // What all versions share is looked at once.
    if let Some(first) = versions.first() {
        let has_status = versions.iter().any(has_status);
        if shared(versions, "schema") {
            check_schema(first, "spec.validation", has_status, errors);
        }
        if shared(versions, "subresources") {
            check_scale(first, "spec.subresources", errors);
        }
        if shared(versions, "additionalPrinterColumns") {
            check_columns(first, "spec.additionalPrinterColumns", errors);
        }
        if shared(versions, "selectableFields") {
            check_selectable(first, "spec.selectableFields", errors);
        }
    }
    check_conversion(spec, errors);
}

fn has_status(version: &Value) -> bool {
    version.get("subresources").is_some_and(|s| s.some("status").is_some())
}

fn shared(versions: &[Value], key: &str) -> bool {
    versions.iter().all(|version| version.some(key).is_some() && version.get(key) == versions[0].get(key))
}

fn check_group(group: &str, errors: &mut Vec<FieldError>) {
    let problems = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid("spec.group", group.into(), problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            group.into(),
            "should be a domain with at least one dot",
        ));
    }
}

fn one_of(field: &str, value: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if !allowed.contains(&value) {
        errors.push(FieldError::not_supported(field, value.into(), allowed));
    }
}

fn check_versions(spec: &Value, versions: &[Value], errors: &mut Vec<FieldError>) {
    for (index, version) in versions.iter().enumerate() {
        let base = format!("spec.versions[{index}]");
        let name = version.text("name");
        let problems = names::dns1035_label(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(format!("{base}.name"), name.into(), problems.join(",")));
            if index == 0 {
                // The first version is also checked under the name that it had before there were several.
                errors.push(FieldError::invalid("spec.version", name.into(), problems.join(",")));
            }
        }
        check_deprecation(version, &base, errors);
        if !shared(versions, "schema") {
            check_schema(version, &format!("{base}.schema"), has_status(version), errors);
        }
        if !shared(versions, "subresources") {
            check_scale(version, &format!("{base}.subresources"), errors);
        }
        if !shared(versions, "additionalPrinterColumns") {
            check_columns(version, &format!("{base}.additionalPrinterColumns"), errors);
        }
        if !shared(versions, "selectableFields") {
            check_selectable(version, &format!("{base}.selectableFields"), errors);
        }
    }
    let names: Vec<&str> = versions.iter().map(|v| v.text("name")).collect();
    let repeated = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
    let storage = versions.iter().filter(|v| v.flag("storage")).count();
    // Kubernetes prints its inner form of all versions here, which helps nobody.
    let mut refuse = |detail: &str| {
        let value = spec.get("versions").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("spec.versions", value, detail).without_value());
    };
    if repeated {
        refuse("must contain unique version names");
    }
    if storage != 1 {
        refuse("must have exactly one version marked as storage version");
    }
}

fn check_deprecation(version: &Value, base: &str, errors: &mut Vec<FieldError>) {
    let Some(warning) = version.some("deprecationWarning").and_then(Value::as_str) else { return };
    let mut problems = Vec::new();
    if !version.flag("deprecated") {
        problems.push("can only be set for deprecated versions".to_string());
    } else {
        if warning.len() > 256 {
            problems.push("must be <= 256 characters long".to_string());
        }
        if warning.is_empty() {
            problems.push("must not be an empty string".to_string());
        }
        if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
            problems.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {at}"
            ));
        }
    }
    for problem in problems {
        errors.push(FieldError::invalid(format!("{base}.deprecationWarning"), warning.into(), problem));
    }
}

fn check_schema(version: &Value, base: &str, has_status: bool, errors: &mut Vec<FieldError>) {
    if let Some(schema) = version.get("schema").and_then(|s| s.some("openAPIV3Schema")) {
        openapi::check(schema, &format!("{base}.openAPIV3Schema"), has_status, errors);
    }
}

fn check_names(given: &Value, errors: &mut Vec<FieldError>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if given.text(key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = given.text(key);
        let mixed = matches!(key, "kind" | "listKind");
        let problems =
            if mixed { names::dns1035_label(&name.to_lowercase()) } else { names::dns1035_label(name) };
        if !name.is_empty() && !problems.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            let detail = format!("{prefix}{}", problems.join(","));
            errors.push(FieldError::invalid(format!("spec.names.{key}"), name.into(), detail));
        }
    }
    let check_list = |key: &str, errors: &mut Vec<FieldError>| {
        for (index, name) in given.texts(key).into_iter().enumerate() {
            let problems = names::dns1035_label(name);
            if !problems.is_empty() {
                let field = format!("spec.names.{key}[{index}]");
                errors.push(FieldError::invalid(field, name.into(), problems.join(",")));
            }
        }
    };
    check_list("shortNames", errors);
    let kind = given.text("kind");
    if !kind.is_empty() && kind == given.text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", kind.into(), detail));
    }
    check_list("categories", errors);
}

/// `None` when the path is one that Kubernetes takes.
fn bad_path(path: &str) -> Option<&'static str> {
    (!path.starts_with('.')).then_some("must be a simple json path starting with .")
}

fn check_scale(version: &Value, base: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = version.get("subresources").and_then(|s| s.some("scale")) else { return };
    for (key, prefixes, under, required) in [
        ("specReplicasPath", &[".spec."][..], ".spec", true),
        ("statusReplicasPath", &[".status."][..], ".status", true),
        ("labelSelectorPath", &[".spec.", ".status."][..], "either .spec or .status", false),
    ] {
        let path = scale.text(key);
        let field = format!("{base}.scale.{key}");
        if path.is_empty() {
            if required {
                errors.push(FieldError::required(field, ""));
            }
        } else if let Some(detail) = bad_path(path) {
            errors.push(FieldError::invalid(field, path.into(), detail));
        } else if !prefixes.iter().any(|prefix| path.starts_with(prefix)) {
            let detail = format!("should be a json path under {under}");
            errors.push(FieldError::invalid(field, path.into(), detail));
        }
    }
}

fn check_columns(version: &Value, base: &str, errors: &mut Vec<FieldError>) {
    let types = ["boolean", "date", "integer", "number", "string"];
    let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in version.list("additionalPrinterColumns").iter().enumerate() {
        let field = |key: &str| format!("{base}[{index}].{key}");
        if column.text("name").is_empty() {
            errors.push(FieldError::required(field("name"), ""));
        }
        let (ty, format, path) = (column.text("type"), column.text("format"), column.text("jsonPath"));
        let detail = format!("must be one of {}", types.join(","));
        if ty.is_empty() {
            errors.push(FieldError::required(field("type"), detail));
        } else if !types.contains(&ty) {
            errors.push(FieldError::invalid(field("type"), ty.into(), detail));
        }
        if !format.is_empty() && !formats.contains(&format) {
            let detail = format!("must be one of {}", formats.join(","));
            errors.push(FieldError::invalid(field("format"), format.into(), detail));
        }
        if path.is_empty() {
            errors.push(FieldError::required(field("JSONPath"), ""));
        } else if let Some(detail) = bad_path(path) {
            errors.push(FieldError::invalid(field("JSONPath"), path.into(), detail));
        }
    }
}

fn check_selectable(version: &Value, base: &str, errors: &mut Vec<FieldError>) {
    let fields = version.list("selectableFields");
    let Some(Ok(schema)) = version.get("schema").and_then(|s| s.some("openAPIV3Schema")).map(parse) else {
        return;
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, selectable) in fields.iter().enumerate() {
        let field = format!("{base}[{index}].jsonPath");
        let path = selectable.text("jsonPath");
        if path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        match find_field(&schema, path) {
            Err(why) => {
                errors.push(FieldError::invalid(field, path.into(), format!("is an invalid path: {why}")));
                continue;
            }
            Ok(found) => {
                if path.starts_with(".metadata") {
                    let detail = "must not point to fields in metadata";
                    errors.push(FieldError::invalid(field.clone(), path.into(), detail));
                }
                if !matches!(found.ty, Some(Type::String | Type::Boolean | Type::Integer)) {
                    errors.push(FieldError::invalid(
                        field.clone(),
                        path.into(),
                        "must point to a field of type string, boolean or integer. Enum string fields and strings \
                         with formats are allowed.",
                    ));
                }
            }
        }
        if seen.contains(&path) {
            errors.push(FieldError::new(FieldProblem::Duplicate, field, path.into(), ""));
        } else {
            seen.push(path);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        let detail = format!("must have at most {MAX_SELECTABLE} items");
        errors.push(FieldError::new(FieldProblem::TooMany, base, seen.len().into(), detail));
    }
}

fn find_field<'a>(schema: &'a Schema, path: &str) -> Result<&'a Schema, String> {
    let mut at = schema;
    let mut rest = path;
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".to_string());
        }
        let end = |text: &str| text.find(['.', '[', ']']).unwrap_or(text.len());
        let Some(plain) = rest.strip_prefix('.') else {
            return Err(format!("expected [ or . but got: {}", &rest[..end(rest)]));
        };
        let name = &plain[..end(plain)];
        if name.is_empty() {
            return Err("unexpected end of JSON path".to_string());
        }
        at = at.properties.get(name).ok_or("does not refer to a valid field")?;
        rest = &plain[name.len()..];
    }
    Ok(at)
}

fn check_conversion(spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.some("conversion") else { return };
    let strategy = conversion.text("strategy");
    if strategy == "Webhook" {
        errors.push(FieldError::new(
            FieldProblem::NotSupported,
            "spec.conversion.strategy",
            strategy.into(),
            "supported values: \"None\" (this API server does not call conversion webhooks)",
        ));
        return;
    }
    one_of("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    let Some(webhook) = conversion.some("webhook") else { return };
    let detail = "should not be set when strategy is not set to Webhook";
    if webhook.some("clientConfig").is_some() {
        errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", detail));
    }
    if !webhook.list("conversionReviewVersions").is_empty() {
        errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", detail));
    }
}

fn check_immutable(spec: &Value, old: &Value, established: bool, errors: &mut Vec<FieldError>) {
    let null = Value::Null;
    let (names, old_names) = (spec.get("names").unwrap_or(&null), old.get("names").unwrap_or(&null));
    let scope = ("spec.scope", spec.text("scope"), old.text("scope"));
    let kind = ("spec.names.kind", names.text("kind"), old_names.text("kind"));
    let group = ("spec.group", spec.text("group"), old.text("group"));
    let plural = ("spec.names.plural", names.text("plural"), old_names.text("plural"));
    let fixed = if established { vec![scope, kind, group, plural] } else { vec![group, plural] };
    for (field, is, was) in fixed {
        if is != was {
            errors.push(FieldError::invalid(field, is.into(), "field is immutable"));
        }
    }
}

fn check_stored(crd: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let stored = stored_versions(crd);
    let path = Path::Base("status.storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(path.bracketed(), Value::Null, detail));
        return;
    }
    let versions = spec.list("versions");
    for version in versions.iter().filter(|v| v.flag("storage")) {
        let name = version.text("name");
        if !stored.iter().any(|s| s == name) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(path.bracketed(), stored.clone().into(), detail));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if versions.iter().any(|v| v.text("name") == name) {
            continue;
        }
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        );
        errors.push(FieldError::invalid(path.index(index).bracketed(), name.as_str().into(), detail));
    }
}

/// Whether the Kubernetes community agreed to a group of its own.
#[derive(PartialEq)]
enum Approval {
    Missing,
    Given,
    Bypassed,
    Nonsense,
}

fn check_approval(new: &Value, old: Option<&Value>, group: &str, errors: &mut Vec<FieldError>) {
    let community = ["k8s.io", "kubernetes.io"];
    if !community.iter().any(|c| group == *c || group.strip_suffix(c).is_some_and(|rest| rest.ends_with('.')))
    {
        return;
    }
    let state = approval(new);
    if old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let field = "metadata.annotations[api-approved.kubernetes.io]";
    let must = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Given | Approval::Bypassed => {}
        Approval::Missing => errors.push(FieldError::required(field, format!("{must}, {see}"))),
        Approval::Nonsense => {
            let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {see}");
            errors.push(FieldError::invalid(field, annotation(new).into(), detail));
        }
    }
}

fn annotation(crd: &Value) -> &str {
    let metadata = crd.get("metadata").unwrap_or(&Value::Null);
    metadata.get("annotations").map_or("", |a| a.text("api-approved.kubernetes.io"))
}

fn approval(crd: &Value) -> Approval {
    let text = annotation(crd);
    let has_host = text
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    match text {
        "" => Approval::Missing,
        _ if text.starts_with("unapproved") => Approval::Bypassed,
        _ if has_host => Approval::Given,
        _ => Approval::Nonsense,
    }
}
