//! Tables of who may do what.

use super::*;
use crate::auth::default_rbac_objects;
use serde_json::json;

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects})
}

fn default_policy(more_bindings: Vec<Value>) -> Policy {
    let mut objects = default_rbac_objects();
    objects.extend(more_bindings);
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).cloned().collect::<Vec<_>>();
    Policy::build(of("Role"), of("ClusterRole"), of("RoleBinding"), of("ClusterRoleBinding"))
}

fn list_pods(namespace: &str) -> Attributes<'_> {
    Attributes { verb: "list", resource: "pods", namespace, ..Attributes::default() }
}

fn small_policy() -> Policy {
    let pods = json!([{"apiGroups": [""], "resources": ["pods", "*/scale"], "verbs": ["get", "list"]}]);
    let one = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"],
        "resourceNames": ["web"]}]);
    let paths = json!([{"nonResourceURLs": ["/logs/*", "/exact"], "verbs": ["get"]}]);
    Policy::build(
        [role("a", "pods", pods.clone())],
        [role("", "pods", pods), role("", "one", one), role("", "paths", paths)],
        [
            binding("a", "x", "Role", "pods", json!([{"kind": "User", "name": "ann"}])),
            binding("a", "y", "ClusterRole", "one", json!([{"kind": "ServiceAccount", "name": "robot"}])),
            binding("b", "x", "Role", "pods", json!([{"kind": "User", "name": "ann"}])),
        ],
        [
            binding("", "g", "ClusterRole", "pods", json!([{"kind": "Group", "name": "ops"}])),
            binding("", "p", "ClusterRole", "paths", json!([{"kind": "User", "name": "ann"}])),
            binding(
                "",
                "s",
                "ClusterRole",
                "one",
                json!([{"kind": "ServiceAccount", "name": "far", "namespace": "z"}, {"kind": "ServiceAccount", "name": "no"}]),
            ),
        ],
    )
}

#[test]
fn subjects_scopes_and_wildcards() {
    let policy = small_policy();
    let ann = User::new("ann", &[]);
    let ops = User::new("otto", &["ops"]);
    let robot = User::service_account("a", "robot", "1");
    let far = User::service_account("z", "far", "2");
    let at = |verb, group, resource, subresource, name, namespace| Attributes {
        verb,
        group,
        resource,
        subresource,
        name,
        namespace,
        path: None,
    };
    let table = [
        (&ann, at("list", "", "pods", "", "", "a"), true),
        (&ann, at("list", "", "pods", "", "", "b"), false), // dangling role
        (&ann, at("list", "", "pods", "", "", ""), false),
        (&ann, at("get", "", "pods", "status", "p", "a"), false),
        (&ann, at("get", "", "things", "scale", "p", "a"), true),
        (&ann, at("get", "apps", "pods", "", "p", "a"), false),
        (&ops, at("list", "", "pods", "", "", ""), true),
        (&ops, at("list", "", "pods", "", "", "anywhere"), true),
        (&ops, at("delete", "", "pods", "", "p", "a"), false),
        (&robot, at("delete", "apps", "deployments", "", "web", "a"), true),
        (&robot, at("delete", "apps", "deployments", "", "db", "a"), false),
        (&robot, at("list", "apps", "deployments", "", "", "a"), false),
        (&robot, at("delete", "apps", "deployments", "", "web", "b"), false),
        (&far, at("delete", "apps", "deployments", "", "web", "b"), true),
    ];
    for (user, attributes, wanted) in table {
        assert_eq!(policy.allows(user, &attributes).allowed, wanted, "{} {attributes:?}", user.name);
    }
    let no = User::service_account("", "no", "3");
    assert!(!policy.allows(&no, &at("get", "apps", "deployments", "", "web", "a")).allowed);
    for (path, wanted) in [("/logs/x", true), ("/logs", false), ("/exact", true), ("/exact/", false)] {
        assert_eq!(policy.allows(&ann, &Attributes::path("get", path)).allowed, wanted, "{path}");
        assert!(!policy.allows(&ann, &Attributes::path("post", path)).allowed, "{path}");
    }
}

#[test]
fn masters_need_no_objects() {
    let master = User::new("root", &["system:masters"]);
    assert_eq!(
        Policy::default().allows(&master, &list_pods("a")),
        Decision { allowed: true, reason: String::new() }
    );
    assert!(!Policy::default().allows(&User::new("ann", &[]), &list_pods("a")).allowed);
    let (rules, problem) = Policy::default().rules_for(&master, "a");
    assert_eq!((rules, problem), (vec![Rule::every_resource(), Rule::every_path()], None));
}

#[test]
fn reasons_are_those_of_kubernetes() {
    let policy = small_policy();
    let ann = User::new("ann", &[]);
    assert_eq!(
        policy.allows(&ann, &list_pods("a")).reason,
        r#"RBAC: allowed by RoleBinding "x/a" of Role "pods" to User "ann""#
    );
    assert_eq!(
        policy.allows(&User::new("o", &["ops"]), &list_pods("")).reason,
        r#"RBAC: allowed by ClusterRoleBinding "g" of ClusterRole "pods" to Group "ops""#
    );
    assert_eq!(
        policy.allows(&ann, &list_pods("b")).reason,
        r#"RBAC: role.rbac.authorization.k8s.io "pods" not found"#
    );
    let robot = User::service_account("a", "robot", "1");
    let web = Attributes {
        verb: "get",
        group: "apps",
        resource: "deployments",
        name: "web",
        namespace: "a",
        ..Attributes::default()
    };
    assert_eq!(
        policy.allows(&robot, &web).reason,
        r#"RBAC: allowed by RoleBinding "y/a" of ClusterRole "one" to ServiceAccount "robot/a""#
    );
}

#[test]
fn refusals_are_worded_as_kubernetes_words_them() {
    let bob = User::new("bob", &[]);
    let text = |a: &Attributes<'_>, reason: &str| forbidden(&bob, a, reason).message;
    assert_eq!(
        text(&list_pods("default"), ""),
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#
    );
    let log = Attributes { verb: "get", name: "x", subresource: "log", ..list_pods("default") };
    assert_eq!(
        text(&log, ""),
        r#"pods "x" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "default""#
    );
    let nodes = Attributes { verb: "list", group: "g.io", resource: "things", ..Attributes::default() };
    assert_eq!(
        text(&nodes, "RBAC: why"),
        r#"things.g.io is forbidden: User "bob" cannot list resource "things" in API group "g.io" at the cluster scope: RBAC: why"#
    );
    let status = forbidden(&bob, &Attributes::path("get", "/metrics"), "");
    assert_eq!(status.message, r#"forbidden: User "bob" cannot get path "/metrics""#);
    assert_eq!(status.to_json()["details"], json!({}));
    let script = forbidden(&bob, &Attributes::path("get", "/<script>&"), "");
    assert_eq!(script.message, r#"forbidden: User "bob" cannot get path "/&lt;script&gt;&amp;""#);
}

#[test]
fn default_roles_say_what_they_say_in_kubernetes() {
    let subjects = |user: &str| json!([{"kind": "User", "name": user}]);
    let mut bind = Vec::new();
    for who in ["view", "edit", "admin"] {
        let mut one = binding("ns", who, "ClusterRole", who, subjects(who));
        one["kind"] = json!("RoleBinding");
        bind.push(one);
    }
    let policy = default_policy(bind);
    let may = |user: &str, verb, group, resource, namespace| {
        let attributes = Attributes { verb, group, resource, namespace, ..Attributes::default() };
        policy.allows(&User::new(user, &[]), &attributes).allowed
    };
    assert!(may("view", "list", "", "pods", "ns"));
    assert!(!may("view", "list", "", "secrets", "ns"), "view shows no secrets");
    assert!(!may("view", "create", "", "pods", "ns"));
    assert!(may("edit", "list", "", "secrets", "ns"));
    assert!(may("edit", "create", "apps", "deployments", "ns"));
    assert!(!may("edit", "create", GROUP, "roles", "ns"));
    assert!(may("admin", "create", GROUP, "roles", "ns"));
    assert!(may("admin", "list", "", "pods", "ns"), "admin holds edit, which holds view");
    assert!(!may("admin", "list", "", "pods", "other"));
    assert!(!may("admin", "list", "", "nodes", "ns"));
    for user in [User::new("any", &[]), User::anonymous()] {
        assert!(policy.allows(&user, &Attributes::path("get", "/readyz")).allowed);
    }
    assert!(policy.allows(&User::new("any", &[]), &Attributes::path("get", "/api/v1")).allowed);
    assert!(!policy.allows(&User::anonymous(), &Attributes::path("get", "/api/v1")).allowed);
    let review = Attributes {
        verb: "create",
        group: "authorization.k8s.io",
        resource: "selfsubjectaccessreviews",
        ..Attributes::default()
    };
    assert!(policy.allows(&User::new("any", &[]), &review).allowed);
}

#[test]
fn aggregation_follows_labels_and_survives_a_circle() {
    let feeds = |name: &str, label: &str, rules: Value| json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": rules});
    let gathers = |name: &str, from: &str, label: &str| {
        json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": [{"verbs": ["stale"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {from: "true"}}]}})
    };
    let rule = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]});
    let roles = [
        gathers("top", "to-middle", "to-bottom"),
        gathers("middle", "to-bottom", "to-middle"),
        feeds("leaf", "to-bottom", json!([rule])),
    ];
    for name in [0, 1] {
        assert_eq!(aggregated_rules(&roles[name], &roles), Some(vec![rule.clone()]));
    }
    assert_eq!(aggregated_rules(&roles[2], &roles), None);
}

#[test]
fn selector_expressions() {
    let object = json!({"metadata": {"labels": {"a": "1"}}});
    let table = [
        (json!({"key": "a", "operator": "In", "values": ["1", "2"]}), true),
        (json!({"key": "a", "operator": "NotIn", "values": ["1"]}), false),
        (json!({"key": "b", "operator": "NotIn", "values": ["1"]}), true),
        (json!({"key": "a", "operator": "Exists"}), true),
        (json!({"key": "a", "operator": "DoesNotExist"}), false),
        (json!({"key": "a", "operator": "Gt", "values": ["0"]}), false),
    ];
    for (expression, wanted) in table {
        assert_eq!(selects(&json!({"matchExpressions": [expression]}), &object), wanted, "{expression}");
    }
}
