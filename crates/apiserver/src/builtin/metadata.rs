//! Names: what each kind allows, and the words for what it does not.

use crate::resource::Resource;
use crate::status::FieldError;
use serde_json::Value;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
    or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const QUALIFIED_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// What a kind's names must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameRule {
    Label,
    Subdomain,
    PathSegment,
}

fn rule(resource: &Resource) -> NameRule {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

/// What is wrong with a name for objects of this kind.
pub(super) fn name_problems(resource: &Resource, name: &str) -> Vec<String> {
    let mut problems = match rule(resource) {
        NameRule::Label => label_problems(name),
        NameRule::Subdomain => subdomain_problems(name),
        NameRule::PathSegment => path_segment_problems(name),
    };
    // The controller appends eleven characters to make the names of its jobs, which end as 63 characters of labels.
    if resource.group == "batch" && resource.kind == "CronJob" && name.len() > 52 {
        problems.push("must be no more than 52 characters".into());
    }
    problems
}

/// The name of an object, checked; a missing one too.
pub(super) fn validate_name(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return vec![FieldError::required("metadata.name", "name or generateName is required")];
    }
    invalid("metadata.name", name, name_problems(resource, name))
}

/// One error per problem.
pub(super) fn invalid(field: &str, value: &str, problems: Vec<String>) -> Vec<FieldError> {
    problems.into_iter().map(|problem| FieldError::invalid(field, value.into(), problem)).collect()
}

pub(super) fn label_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters".into());
    }
    if !is_label(name) {
        problems.push(if is_subdomain(name) { "must not contain dots".into() } else { LABEL.into() });
    }
    problems
}

pub(super) fn subdomain_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 253 {
        problems.push("must be no more than 253 characters".into());
    }
    if !is_subdomain(name) {
        problems.push(SUBDOMAIN.into());
    }
    problems
}

pub(super) fn path_segment_problems(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// A key of a ConfigMap or Secret: it may become a file name.
pub(super) fn config_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".to_string());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if key.is_empty() || !key.chars().all(is_plain) {
        problems.push(CONFIG_KEY.into());
    }
    match key {
        "." | ".." => problems.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => problems.push("must not start with '..'".into()),
        _ => {}
    }
    problems
}

/// A label key, a finalizer, a taint key.
pub(super) fn qualified_name_problems(name: &str) -> Vec<String> {
    let (prefix, last) = match name.split_once('/') {
        Some((prefix, last)) => (Some(prefix), last),
        None => (None, name),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            problems.extend(
                subdomain_problems(prefix).into_iter().map(|problem| format!("prefix part {problem}")),
            );
        }
        None => {}
    }
    if last.is_empty() {
        problems.push("name part must be non-empty".into());
    } else if last.len() > 63 {
        problems.push("name part must be no more than 63 bytes".into());
    }
    if !is_word(last) {
        problems.push(QUALIFIED_NAME.into());
    }
    problems
}

pub(super) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes".into());
    }
    if !value.is_empty() && !is_word(value) {
        problems.push(LABEL_VALUE.into());
    }
    problems
}

/// Labels or a plain selector.
pub(super) fn validate_labels(field: &str, labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.extend(invalid(field, key, qualified_name_problems(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid(field, value, label_value_problems(value)));
    }
    errors
}

/// A port name of 15 letters at most.
pub(super) fn port_name_problems(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters".into());
    }
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.chars().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen".into());
    }
    problems
}

fn is_label(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_edge) && name.ends_with(is_edge) && name.chars().all(|c| is_edge(c) || c == '-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_word(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(is_edge)
        && name.ends_with(is_edge)
        && name.chars().all(|c| is_edge(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resources;

    #[test]
    fn each_kind_has_its_rule() {
        let all = resources();
        let problems =
            |kind: &str, name: &str| name_problems(all.iter().find(|r| r.kind == kind).unwrap(), name);
        assert!(problems("ConfigMap", "a.b").is_empty());
        assert_eq!(problems("Service", "a.b"), ["must not contain dots"]);
        assert!(problems("Service", "1a").is_empty());
        assert_eq!(problems("Namespace", "A_b"), [LABEL]);
        assert_eq!(problems("Secret", "A_a"), [SUBDOMAIN]);
        assert!(problems("ClusterRole", "system:a:B").is_empty());
        assert_eq!(problems("ClusterRole", "a%b"), ["may not contain '%'"]);
        assert_eq!(problems("Namespace", &"a".repeat(70)), ["must be no more than 63 characters"]);
        assert_eq!(problems("CronJob", &"a".repeat(60)), ["must be no more than 52 characters"]);
    }

    #[test]
    fn config_keys() {
        assert!(config_key_problems("a.b-C_1").is_empty());
        assert_eq!(config_key_problems(".."), ["must not be '..'"]);
        assert_eq!(config_key_problems("../x"), [CONFIG_KEY, "must not start with '..'"]);
    }

    #[test]
    fn port_names() {
        assert_eq!(
            port_name_problems("UPPER"),
            [
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                "must contain at least one letter (a-z)"
            ]
        );
        assert!(port_name_problems("http").is_empty());
    }
}
