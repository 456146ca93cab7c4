//! The answers and refusals of the review kinds, with the texts that a real server gave.

use super::*;
use crate::auth::{StaticTokens, default_rbac_objects};
use std::sync::Arc;

fn policy() -> Policy {
    let objects = default_rbac_objects();
    let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).cloned().collect::<Vec<_>>();
    Policy::build(of("Role"), of("ClusterRole"), of("RoleBinding"), of("ClusterRoleBinding"))
}

fn bob() -> User {
    User::new("bob", &[])
}

fn uids(kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
    match (kind, namespace, name) {
        (BoundKind::ServiceAccount, "ns", "robot") => Some("u1".into()),
        (BoundKind::Secret, "ns", "s") => Some("s1".into()),
        (BoundKind::Node, "", "n") => Some("n1".into()),
        _ => None,
    }
}

fn message(result: Result<Value, Status>) -> (u16, String) {
    let status = result.unwrap_err();
    (status.code, status.message)
}

#[test]
fn self_reviews_answer_with_the_reason() {
    let pods = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let answer = self_subject_access_review(&policy(), &bob(), &pods).unwrap();
    assert_eq!(
        answer,
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
        "status": {"allowed": false}})
    );
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/api"}}});
    assert_eq!(
        self_subject_access_review(&policy(), &bob(), &path).unwrap()["status"],
        json!({"allowed": true,
        "reason": r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#})
    );
}

#[test]
fn malformed_reviews_are_refused_in_the_words_of_kubernetes() {
    let ask = |body: Value| message(self_subject_access_review(&policy(), &bob(), &body));
    assert_eq!(
        ask(json!({"metadata": {"name": "x"}, "spec": {}})),
        (422, r#".authorization.k8s.io "" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, metadata: Invalid value: {"name":"x"}: must be empty]"#.into())
    );
    let both = json!({"nonResourceAttributes": {"verb": "get", "path": "/api"},
        "resourceAttributes": {"verb": "list", "resource": "pods"}});
    assert_eq!(
        ask(json!({"spec": both})).1,
        r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/api","Verb":"get"}: cannot be specified in combination with resourceAttributes"#
    );
    let nobody = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    assert_eq!(
        message(subject_access_review(&policy(), &nobody)).1,
        r#".authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified"#
    );
}

#[test]
fn others_are_judged_by_the_groups_given() {
    let ask =
        |spec: Value| subject_access_review(&policy(), &json!({"spec": spec})).unwrap()["status"].clone();
    let pods = json!({"verb": "list", "resource": "pods"});
    assert_eq!(
        ask(json!({"user": "u", "groups": ["system:masters"], "resourceAttributes": pods})),
        json!({"allowed": true})
    );
    let api = json!({"verb": "get", "path": "/api"});
    assert_eq!(ask(json!({"user": "u", "nonResourceAttributes": api})), json!({"allowed": false}));
    let known = json!({"user": "u", "groups": ["system:authenticated"], "nonResourceAttributes": api});
    assert_eq!(ask(known)["allowed"], true);
}

#[test]
fn local_reviews_stay_in_their_namespace() {
    let ask = |body: Value| local_subject_access_review(&policy(), "default", &body);
    let spec = |namespace: &str| json!({"user": "u", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": namespace}});
    let answer = ask(json!({"spec": spec("default")})).unwrap();
    assert_eq!(answer["metadata"], json!({"namespace": "default"}));
    assert_eq!(answer["status"], json!({"allowed": false}));
    assert_eq!(
        message(ask(json!({"spec": spec("other")}))).1,
        r#".authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace"#
    );
    assert_eq!(
        message(ask(json!({"metadata": {"namespace": "kube-system"}, "spec": spec("kube-system")}))),
        (400, "the namespace of the provided object does not match the namespace sent on the request".into())
    );
    assert_eq!(
        message(ask(json!({"spec": {"user": "u", "nonResourceAttributes": {"verb": "list", "path": "/x"}}})))
            .1,
        r#".authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"list"}: disallowed on this kind of request"#
    );
}

#[test]
fn rules_reviews_list_what_holds() {
    let ask = |body: Value| self_subject_rules_review(&policy(), &bob(), &body);
    let status = ask(json!({"spec": {"namespace": "default"}})).unwrap()["status"].clone();
    assert_eq!(status["incomplete"], false);
    assert_eq!(status["resourceRules"].as_array().unwrap().len(), 2);
    assert_eq!(
        status["resourceRules"][0],
        json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]})
    );
    assert_eq!(status["nonResourceRules"].as_array().unwrap().len(), 2);
    assert_eq!(message(ask(json!({"spec": {}}))), (400, "no namespace on request".into()));
}

#[test]
fn whoami() {
    let answer = self_subject_review(&bob());
    assert_eq!(answer["status"]["userInfo"], json!({"username": "bob", "groups": ["system:authenticated"]}));
    assert!(answer["metadata"]["creationTimestamp"].as_str().unwrap().ends_with('Z'));
}

fn authenticator() -> Authenticator {
    let tokens = StaticTokens::parse("bob-token,bob,u3\n").unwrap();
    Authenticator::new(tokens, Arc::new(AccountKey::generate().unwrap()))
}

#[test]
fn token_reviews_tell_static_tokens_from_bad_ones() {
    let auth = authenticator();
    let ask = |spec: Value| token_review(&auth, &json!({"spec": spec}), &uids).map(|v| v["status"].clone());
    assert_eq!(
        ask(json!({"token": "bob-token"})).unwrap(),
        json!({"authenticated": true,
        "user": {"username": "bob", "uid": "u3", "groups": ["system:authenticated"]}, "audiences": [ISSUER]})
    );
    let refused = json!({"user": {}, "error": "invalid bearer token"});
    for bad in [
        json!({"token": "nope"}),
        json!({"token": "a.b.c"}),
        json!({"token": "bob-token", "audiences": ["x"]}),
    ] {
        assert_eq!(ask(bad).unwrap(), refused);
    }
    assert_eq!(message(ask(json!({}))), (400, "token is required for TokenReview in authentication".into()));
}

#[test]
fn requested_tokens_work_and_say_when_they_end() {
    let auth = authenticator();
    let body = json!({"spec": {"expirationSeconds": 1200}});
    let answer = token_request(auth.account_key(), "ns", "robot", &body, &uids).unwrap();
    assert_eq!(answer["metadata"]["uid"], "u1");
    assert_eq!(
        answer["spec"],
        json!({"audiences": [ISSUER], "expirationSeconds": 1200, "boundObjectRef": null})
    );
    let token = answer["status"]["token"].as_str().unwrap();
    let review = |spec: Value| token_review(&auth, &json!({"spec": spec}), &uids).unwrap()["status"].clone();
    let status = review(json!({"token": token}));
    assert_eq!(status["user"]["username"], "system:serviceaccount:ns:robot");
    assert_eq!(
        review(json!({"token": token, "audiences": ["zz"]})),
        json!({"user": {}, "error": format!("[invalid bearer token, token audiences [\"{ISSUER}\"] is invalid for the target audiences [\"zz\"]]")})
    );
    let default = token_request(auth.account_key(), "ns", "robot", &json!({}), &uids).unwrap();
    assert_eq!(default["spec"]["expirationSeconds"], 3600);
}

#[test]
fn token_requests_are_checked_in_the_words_of_kubernetes() {
    let key = AccountKey::generate().unwrap();
    let ask = |body: Value| message(token_request(&key, "ns", "robot", &body, &uids));
    let table = [
        (
            json!({"spec": {"expirationSeconds": 60}}),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"#,
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            422,
            r#"TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds"#,
        ),
        (
            json!({"metadata": {"name": "zz"}}),
            422,
            r#"TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "zz": must match the service account name if specified"#,
        ),
        (
            json!({"metadata": {"uid": "zz"}}),
            409,
            r#"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (zz) does not match the UID of the service account (u1)"#,
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "x"}}}),
            404,
            r#"secrets "x" not found"#,
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "zz"}}}),
            409,
            r#"Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated"#,
        ),
    ];
    for (body, code, text) in table {
        assert_eq!(ask(body), (code, text.to_string()));
    }
    assert_eq!(
        message(token_request(&key, "ns", "gone", &json!({}), &uids)),
        (404, r#"serviceaccounts "gone" not found"#.into())
    );
}

struct PodOfOther;

impl Uids for PodOfOther {
    fn uid(&self, _: BoundKind, _: &str, _: &str) -> Option<String> {
        Some("u1".into())
    }

    fn pod_account(&self, _: &str, _: &str) -> Option<String> {
        Some("other".into())
    }
}

#[test]
fn bound_tokens_end_with_their_object() {
    let auth = authenticator();
    let bound = |kind: &str, name: &str| {
        let reference = json!({"kind": kind, "apiVersion": "v1", "name": name});
        json!({"spec": {"boundObjectRef": reference}})
    };
    for (kind, name) in [("Secret", "s"), ("Node", "n")] {
        let answer = token_request(auth.account_key(), "ns", "robot", &bound(kind, name), &uids).unwrap();
        let token = answer["status"]["token"].as_str().unwrap();
        assert!(auth.by_token(token, None, &uids).is_ok(), "{kind}");
        let without = |kind: BoundKind, namespace: &str, name: &str| {
            uids(kind, namespace, name).filter(|_| kind == BoundKind::ServiceAccount)
        };
        assert_eq!(auth.by_token(token, None, &without), Err(TokenProblem::Invalidated), "{kind}");
    }
    assert_eq!(
        message(token_request(auth.account_key(), "ns", "robot", &bound("Pod", "p"), &PodOfOther)).1,
        r#"cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name."#
    );
}
