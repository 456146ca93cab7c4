//! Nobody may hand out rights that they do not hold: checks on writes to roles and bindings.

use super::identity::User;
use super::rbac::{Attributes, GROUP, Policy, RoleRef, meta};
use super::rule::{Rule, quoted_list};
use crate::status::Status;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The parts of `wanted` that no rule of `owned` grants, split into single rights. Empty if all is covered.
pub fn covers(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(Rule::split).filter(|part| !owned.iter().any(|rule| rule.covers(part))).collect()
}

/// Checks a create (`old` is `None`) or update of a Role or ClusterRole. `namespace` is empty for a ClusterRole.
pub fn check_role_write(
    policy: &Policy,
    user: &User,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if user.is_master() || old.is_some_and(|old| only_cleanup_changed(object, old)) {
        return Ok(());
    }
    let resource = if namespace.is_empty() { "clusterroles" } else { "roles" };
    let name = meta(object, "name");
    // A create has no name yet that a right could be limited to.
    let named = if old.is_some() { name } else { "" };
    let escalate = Attributes {
        verb: "escalate",
        group: GROUP,
        resource,
        name: named,
        namespace,
        ..Attributes::default()
    };
    if policy.allows(user, &escalate).allowed {
        return Ok(());
    }
    confirm(policy, user, namespace, &Rule::list(object))
        .map_err(|why| Status::forbidden(GROUP, resource, name, why))?;
    // Aggregation hands over whatever other roles will hold later, so only someone who may do everything can ask for it.
    if aggregates(object) || old.is_some_and(aggregates) {
        let everything = [Rule::every_resource(), Rule::every_path()];
        confirm(policy, user, "", &everything).map_err(|_| {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            Status::forbidden(GROUP, resource, name, why)
        })?;
    }
    Ok(())
}

fn aggregates(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
}

/// Checks a create or update of a RoleBinding or, with an empty namespace, a ClusterRoleBinding.
pub fn check_binding_write(
    policy: &Policy,
    user: &User,
    namespace: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if user.is_master() || old.is_some_and(|old| only_cleanup_changed(object, old)) {
        return Ok(());
    }
    let role = RoleRef::read(&object["roleRef"]);
    let role_resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => "",
    };
    let bind = Attributes {
        verb: "bind",
        group: object["roleRef"]["apiGroup"].as_str().unwrap_or_default(),
        resource: role_resource,
        name: &role.name,
        namespace,
        ..Attributes::default()
    };
    if !role_resource.is_empty() && policy.allows(user, &bind).allowed {
        return Ok(());
    }
    let resource = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    // Kubernetes names the kind of the binding here, not that of the missing role.
    let rules =
        policy.rules_of(&role, namespace).ok_or_else(|| Status::not_found(GROUP, resource, &role.name))?;
    confirm(policy, user, namespace, rules)
        .map_err(|why| Status::forbidden(GROUP, resource, meta(object, "name"), why))
}

/// `Err` with the message that lists each right which `user` does not hold.
fn confirm(policy: &Policy, user: &User, namespace: &str, wanted: &[Rule]) -> Result<(), String> {
    let (owned, problem) = policy.rules_for(user, namespace);
    let missing = covers(&owned, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compacted(missing).iter().map(Rule::compact).collect();
    let mut text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted_list(&user.groups),
        lines.into_iter().collect::<Vec<_>>().join("\n")
    );
    if let Some(problem) = problem {
        text.push_str(&format!("; resolution errors: [{problem}]"));
    }
    Err(text)
}

/// Puts the verbs of one resource together again.
fn compacted(parts: Vec<Rule>) -> Vec<Rule> {
    let mut by_resource: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
    let mut out = Vec::new();
    for mut part in parts {
        if part.resources.is_empty() {
            out.push(part);
            continue;
        }
        let verbs = std::mem::take(&mut part.verbs);
        by_resource.entry(part).or_default().extend(verbs);
    }
    out.extend(by_resource.into_iter().map(|(rule, verbs)| Rule { verbs, ..rule }));
    out
}

/// The garbage collector may drop owners and finalizers of an object whose rights it does not hold.
fn only_cleanup_changed(object: &Value, old: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(meta) = value["metadata"].as_object_mut() {
            for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                meta.remove(key);
            }
        }
        value
    };
    strip(object) == strip(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(value: Value) -> Vec<Rule> {
        Rule::list(&json!({"rules": value}))
    }

    /// bob may write roles and bindings in `ns`, and holds `get pods`.
    fn policy(more: &[Value]) -> Policy {
        let mut own = vec![
            json!({"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "update"]}),
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
        ];
        own.extend_from_slice(more);
        let big = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        let small = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        Policy::build(
            [json!({"metadata": {"name": "bobs", "namespace": "ns"}, "rules": own})],
            [
                json!({"metadata": {"name": "big"}, "rules": big}),
                json!({"metadata": {"name": "small"}, "rules": small}),
            ],
            [json!({"metadata": {"name": "bobs", "namespace": "ns"},
                "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "bobs"},
                "subjects": [{"kind": "User", "name": "bob"}]})],
            Vec::<Value>::new(),
        )
    }

    fn binding(role: &str) -> Value {
        json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}})
    }

    #[test]
    fn a_role_with_more_than_one_holds_is_refused_line_by_line() {
        let bob = User::new("bob", &[]);
        let role = json!({"metadata": {"name": "r1"}, "rules": [
            {"apiGroups": ["", "apps"], "resources": ["pods", "pods/status"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}]});
        let refusal = check_role_write(&policy(&[]), &bob, "ns", &role, None).unwrap_err();
        assert_eq!(refusal.code, 403);
        let wanted = [
            r#"roles.rbac.authorization.k8s.io "r1" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:"#,
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#,
            r#"{APIGroups:[""], Resources:["pods/status"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
            r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}"#,
            r#"{APIGroups:["apps"], Resources:["pods/status"], Verbs:["get" "list"]}"#,
        ];
        assert_eq!(refusal.message, wanted.join("\n"));
        let mut labelled = role.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let relabel = check_role_write(&policy(&[]), &bob, "ns", &labelled, Some(&role));
        assert_eq!(
            relabel.unwrap_err().message,
            refusal.message,
            "a role one does not hold is not edited either"
        );
        let escalate = json!({"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]});
        assert!(check_role_write(&policy(&[escalate]), &bob, "ns", &role, None).is_ok());
        let master = User::new("root", &["system:masters"]);
        assert!(check_role_write(&policy(&[]), &master, "ns", &role, None).is_ok());
    }

    #[test]
    fn a_role_of_what_one_holds_is_fine() {
        let role = json!({"metadata": {"name": "r"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get"]}]});
        assert!(check_role_write(&policy(&[]), &User::new("bob", &[]), "ns", &role, None).is_ok());
        let refusal = check_role_write(&policy(&[]), &User::new("bob", &[]), "other", &role, None);
        assert!(refusal.is_err(), "rights of one namespace say nothing in another");
    }

    #[test]
    fn bindings_need_the_rights_or_the_verb_bind() {
        let bob = User::new("bob", &[]);
        let write =
            |policy: &Policy, role: &str| check_binding_write(policy, &bob, "ns", &binding(role), None);
        assert!(write(&policy(&[]), "small").is_ok());
        let refusal = write(&policy(&[]), "big").unwrap_err();
        assert!(refusal.message.ends_with(
            "not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n{NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
        ), "{}", refusal.message);
        let refusal = write(&policy(&[]), "nono").unwrap_err();
        assert_eq!(
            (refusal.code, refusal.message.as_str()),
            (404, r#"rolebindings.rbac.authorization.k8s.io "nono" not found"#)
        );
        let bind = json!({"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"],
            "resourceNames": ["big", "nono"]});
        assert!(write(&policy(std::slice::from_ref(&bind)), "big").is_ok());
        assert!(write(&policy(&[bind]), "nono").is_ok());
    }

    #[test]
    fn aggregation_is_for_those_who_may_do_everything() {
        let role = json!({"metadata": {"name": "agg"}, "rules": [], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        let refusal = check_role_write(&policy(&[]), &User::new("bob", &[]), "", &role, None).unwrap_err();
        assert_eq!(
            refusal.message,
            r#"clusterroles.rbac.authorization.k8s.io "agg" is forbidden: must have cluster-admin privileges to use the aggregationRule"#
        );
    }

    #[test]
    fn the_collector_may_clean_up() {
        let old = json!({"metadata": {"name": "b", "finalizers": ["x"], "resourceVersion": "1"},
            "roleRef": {"kind": "ClusterRole", "name": "big"}});
        let mut new = old.clone();
        new["metadata"] = json!({"name": "b", "resourceVersion": "2"});
        let bob = User::new("bob", &[]);
        assert!(check_binding_write(&policy(&[]), &bob, "ns", &new, Some(&old)).is_ok());
        new["subjects"] = json!([{"kind": "User", "name": "bob"}]);
        assert!(check_binding_write(&policy(&[]), &bob, "ns", &new, Some(&old)).is_err());
    }

    #[test]
    fn covers_lists_what_is_missing() {
        let owned = rules(json!([{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get"]},
            {"nonResourceURLs": ["/a/*"], "verbs": ["*"]}]));
        let ok = json!([{"apiGroups": ["apps"], "resources": ["x/scale"], "verbs": ["get"]},
            {"nonResourceURLs": ["/a/b", "/a/*"], "verbs": ["get", "post"]}]);
        assert!(covers(&owned, &rules(ok)).is_empty());
        let no = json!([{"apiGroups": ["apps"], "resources": ["x", "*"], "verbs": ["get"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]}]);
        assert_eq!(covers(&owned, &rules(no)).len(), 3);
    }
}
