//! Roles and bindings.

use super::common::{at, fill, is_blank, items, items_mut, present, text};
use super::metadata::{invalid, path_segment_problems, subdomain_problems};
use crate::status::FieldError;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn default_binding(binding: &mut Value) {
    if let Some(role) = present(binding, "roleRef") {
        fill(role, "apiGroup", json!(GROUP));
    }
    for subject in items_mut(binding, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            fill(subject, "apiGroup", json!(GROUP));
        }
    }
}

pub(super) fn validate_role(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in items(role, "rules").iter().enumerate() {
        errors.extend(validate_rule(rule, namespaced, &format!("rules[{index}]")));
    }
    let aggregation = at(role, "aggregationRule");
    if aggregation.is_object() && items(aggregation, "clusterRoleSelectors").is_empty() {
        errors.push(FieldError::required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    errors
}

fn validate_rule(rule: &Value, namespaced: bool, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items(rule, "verbs").is_empty() {
        errors.push(FieldError::required(format!("{field}.verbs"), "verbs must contain at least one value"));
    }
    let urls = at(rule, "nonResourceURLs");
    if !is_blank(urls) {
        let mut refuse = |why: &str| {
            errors.push(FieldError::invalid(format!("{field}.nonResourceURLs"), urls.clone(), why));
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !items(rule, name).is_empty()) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return errors;
    }
    for (name, what) in [("apiGroups", "api group"), ("resources", "resource")] {
        if items(rule, name).is_empty() {
            let why = format!("resource rules must supply at least one {what}");
            errors.push(FieldError::required(format!("{field}.{name}"), why));
        }
    }
    errors
}

pub(super) fn validate_binding(binding: &Value, old: Option<&Value>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = at(binding, "roleRef");
    if text(role, "apiGroup") != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", text(role, "apiGroup").into(), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.push(FieldError::not_supported("roleRef.kind", text(role, "kind").into(), kinds));
    }
    match text(role, "name") {
        "" => errors.push(FieldError::required("roleRef.name", "")),
        name => errors.extend(invalid("roleRef.name", name, path_segment_problems(name))),
    }
    for (index, subject) in items(binding, "subjects").iter().enumerate() {
        errors.extend(validate_subject(subject, namespaced, &format!("subjects[{index}]")));
    }
    if let Some(old) = old
        && at(old, "roleRef") != role
    {
        // Shown with Go's field names, as the real server shows it.
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
    }
    errors
}

fn validate_subject(subject: &Value, namespaced: bool, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (kind, name, group) = (text(subject, "kind"), text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{field}.name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(invalid(&format!("{field}.name"), name, subdomain_problems(name)));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(format!("{field}.apiGroup"), group.into(), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(format!("{field}.apiGroup"), group.into(), &[GROUP]));
            }
        }
        _ => errors.push(FieldError::not_supported(
            format!("{field}.kind"),
            kind.into(),
            &["ServiceAccount", "User", "Group"],
        )),
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bindings_get_their_groups() {
        let mut binding = json!({"roleRef": {"kind": "Role", "name": "x"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]});
        default_binding(&mut binding);
        assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
        assert_eq!(binding["subjects"][0]["apiGroup"], GROUP);
        assert!(binding["subjects"][1].get("apiGroup").is_none());
        assert!(validate_binding(&binding, None, true).is_empty());
        assert_eq!(
            words(&validate_binding(&binding, None, false)),
            [
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "subjects[1].namespace: Required value",
            ]
        );
        let mut new = binding.clone();
        new["roleRef"]["name"] = json!("y");
        assert_eq!(
            words(&validate_binding(&new, Some(&binding), true)),
            [
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"y\"}: cannot change roleRef"
            ]
        );
    }

    #[test]
    fn rules_need_verbs_groups_and_resources() {
        let role = json!({"rules": [
            {"verbs": [], "resources": ["pods"]}, {"verbs": ["get"], "apiGroups": [""]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert_eq!(
            words(&validate_role(&role, true)),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[1].resources: Required value: resource rules must supply at least one resource",
                "rules[2].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
            ]
        );
        let ok = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert!(validate_role(&ok, false).is_empty());
    }
}
