//! The kinds that are questions: access reviews, rules reviews, token reviews and token requests.
//!
//! Each handler takes the posted object and gives back the object with its status, or the refusal. Nothing is stored.

use super::identity::{Authenticator, User};
use super::jwt::{AccountKey, BoundKind, Claims, ISSUER, ObjectRef, TokenProblem, Uids, now, random_uuid};
use super::rbac::{Attributes, Decision, Policy, meta};
use super::rule::strings;
use crate::status::{FieldError, Status};
use serde_json::{Map, Value, json};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Of a token for which no life time is asked.
const DEFAULT_LIFE: i64 = 3600;
const SHORTEST_LIFE: i64 = 600;
const LONGEST_LIFE: i64 = 1 << 32;

/// May I?
pub fn self_subject_access_review(policy: &Policy, user: &User, body: &Value) -> Result<Value, Status> {
    let mut errors = attribute_errors(&body["spec"]);
    errors.extend(metadata_error(body, &["managedFields"], "must be empty"));
    refuse(AUTHORIZATION, &errors)?;
    Ok(answered("SelfSubjectAccessReview", body, decide(policy, user, &body["spec"])))
}

/// May they?
pub fn subject_access_review(policy: &Policy, body: &Value) -> Result<Value, Status> {
    let mut errors = subject_errors(&body["spec"]);
    errors.extend(metadata_error(body, &["managedFields"], "must be empty"));
    refuse(AUTHORIZATION, &errors)?;
    let subject = subject(&body["spec"]);
    Ok(answered("SubjectAccessReview", body, decide(policy, &subject, &body["spec"])))
}

/// May they, in this namespace? `namespace` is that of the request path.
pub fn local_subject_access_review(policy: &Policy, namespace: &str, body: &Value) -> Result<Value, Status> {
    let mut body = body.clone();
    let given = meta(&body, "namespace");
    if !given.is_empty() && given != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    body["metadata"]["namespace"] = json!(namespace);
    let spec = &body["spec"];
    let mut errors = subject_errors(spec);
    errors.extend(metadata_error(
        &body,
        &["managedFields", "namespace"],
        "must be empty except for namespace",
    ));
    if let Some(resource) = spec["resourceAttributes"].as_object() {
        let wanted = resource.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if wanted != namespace {
            let field = "spec.resourceAttributes.namespace";
            errors.push(FieldError::invalid(field, json!(wanted), "must match metadata.namespace"));
        }
    }
    if spec["nonResourceAttributes"].is_object() {
        let shown = shown_path(&spec["nonResourceAttributes"]);
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            shown,
            "disallowed on this kind of request",
        ));
    }
    refuse(AUTHORIZATION, &errors)?;
    let decision = decide(policy, &subject(spec), spec);
    Ok(answered("LocalSubjectAccessReview", &body, decision))
}

/// What may I do in a namespace?
pub fn self_subject_rules_review(policy: &Policy, user: &User, body: &Value) -> Result<Value, Status> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, problem) = policy.rules_for(user, namespace);
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for rule in rules {
        if !rule.resources.is_empty() {
            let mut one = rule.clone();
            one.non_resource_urls.clear();
            resources.push(one.to_value());
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if let Some(problem) = problem {
        status["evaluationError"] = json!(problem);
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": format!("{AUTHORIZATION}/v1"), "metadata": {}, "spec": {},
        "status": status,
    }))
}

/// Who am I?
pub fn self_subject_review(user: &User) -> Value {
    json!({
        "kind": "SelfSubjectReview", "apiVersion": format!("{AUTHENTICATION}/v1"),
        "metadata": {"creationTimestamp": timestamp(now())},
        "status": {"userInfo": user.to_user_info()},
    })
}

/// Whose token is this?
pub fn token_review(auth: &Authenticator, body: &Value, uids: &dyn Uids) -> Result<Value, Status> {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted = strings(&body["spec"]["audiences"]);
    let status = match auth.by_token(token, Some(&wanted), uids) {
        Ok(user) => {
            let audiences = if wanted.is_empty() { vec![ISSUER.to_string()] } else { wanted };
            json!({"authenticated": true, "user": user.to_user_info(), "audiences": audiences})
        }
        Err(TokenProblem::Unknown) => json!({"user": {}, "error": TokenProblem::Unknown.to_string()}),
        Err(why) => json!({"user": {}, "error": format!("[{}, {why}]", TokenProblem::Unknown)}),
    };
    Ok(with_status("TokenReview", AUTHENTICATION, body, status))
}

/// A token for the service account of the request path.
pub fn token_request(
    key: &AccountKey,
    namespace: &str,
    name: &str,
    body: &Value,
    uids: &dyn Uids,
) -> Result<Value, Status> {
    let uid = check_account(namespace, name, body, uids)?;
    let spec = &body["spec"];
    let life = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_LIFE);
    check_life(life)?;
    let mut audiences = strings(&spec["audiences"]);
    if audiences.is_empty() {
        audiences.push(ISSUER.to_string());
    }
    let now = now();
    let failed = |why| Status::internal(format!("failed to generate token: {why}"));
    let mut claims = Claims {
        audiences,
        expires: now + life,
        issued: now,
        not_before: now,
        id: random_uuid().map_err(failed)?,
        namespace: namespace.to_string(),
        account: ObjectRef { name: name.to_string(), uid: uid.clone() },
        ..Claims::default()
    };
    bind(&mut claims, &spec["boundObjectRef"], uids)?;
    let token = key.sign(&claims).map_err(failed)?;
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": format!("{AUTHENTICATION}/v1"),
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": timestamp(now)},
        "spec": {
            "audiences": claims.audiences, "expirationSeconds": life, "boundObjectRef": spec["boundObjectRef"],
        },
        "status": {"token": token, "expirationTimestamp": timestamp(claims.expires)},
    }))
}

/// The uid of the account, if the request agrees with it.
fn check_account(namespace: &str, name: &str, body: &Value, uids: &dyn Uids) -> Result<String, Status> {
    for (key, wanted) in [("name", name), ("namespace", namespace)] {
        let given = meta(body, key);
        if !given.is_empty() && given != wanted {
            let why = format!("must match the service account {key} if specified");
            let error = FieldError::invalid(format!("metadata.{key}"), json!(given), why);
            return Err(Status::invalid(AUTHENTICATION, "TokenRequest", name, &[error]));
        }
    }
    let uid = uids
        .uid(BoundKind::ServiceAccount, namespace, name)
        .ok_or_else(|| Status::not_found("", "serviceaccounts", name))?;
    let given = meta(body, "uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        return Err(Status::conflict(AUTHENTICATION, "TokenRequest", name, why));
    }
    Ok(uid)
}

fn check_life(life: i64) -> Result<(), Status> {
    let why = if life < SHORTEST_LIFE {
        "may not specify a duration less than 10 minutes"
    } else if life > LONGEST_LIFE {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError::invalid("spec.expirationSeconds", json!(life), why);
    Err(Status::invalid(AUTHENTICATION, "TokenRequest", "", &[error]))
}

/// Ties the token to a pod, secret or node, so that it ends with it.
fn bind(claims: &mut Claims, reference: &Value, uids: &dyn Uids) -> Result<(), Status> {
    if reference.is_null() {
        return Ok(());
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (bound, plural, namespace) = match kind {
        "Pod" if !api_version.contains('/') => (BoundKind::Pod, "pods", claims.namespace.as_str()),
        "Secret" if !api_version.contains('/') => (BoundKind::Secret, "secrets", claims.namespace.as_str()),
        "Node" if !api_version.contains('/') => (BoundKind::Node, "nodes", ""),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let uid = uids.uid(bound, namespace, name).ok_or_else(|| Status::not_found("", plural, name))?;
    let account = &claims.account.name;
    if bound == BoundKind::Pod && uids.pod_account(namespace, name).is_some_and(|a| a != *account) {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let given = text("uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might \
             have been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, why));
    }
    let object = Some(ObjectRef { name: name.to_string(), uid });
    match bound {
        BoundKind::Pod => claims.pod = object,
        BoundKind::Secret => claims.secret = object,
        BoundKind::Node | BoundKind::ServiceAccount => claims.node = object,
    }
    Ok(())
}

/// The user that an access review is about. Groups are as given: nothing is added.
fn subject(spec: &Value) -> User {
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_string();
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text("user"),
        uid: text("uid"),
        groups: strings(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), strings(values))).collect(),
    }
}

fn decide(policy: &Policy, user: &User, spec: &Value) -> Decision {
    let path = &spec["nonResourceAttributes"];
    if path.is_object() {
        let text = |key: &str| path[key].as_str().unwrap_or_default();
        return policy.allows(user, &Attributes::path(text("verb"), text("path")));
    }
    let part = |key: &str| spec["resourceAttributes"][key].as_str().unwrap_or_default();
    policy.allows(
        user,
        &Attributes {
            verb: part("verb"),
            group: part("group"),
            resource: part("resource"),
            subresource: part("subresource"),
            name: part("name"),
            namespace: part("namespace"),
            path: None,
        },
    )
}

fn answered(kind: &str, body: &Value, decision: Decision) -> Value {
    let mut status = Map::new();
    status.insert("allowed".into(), decision.allowed.into());
    if !decision.reason.is_empty() {
        status.insert("reason".into(), decision.reason.into());
    }
    with_status(kind, AUTHORIZATION, body, status.into())
}

fn with_status(kind: &str, group: &str, body: &Value, status: Value) -> Value {
    let metadata = body["metadata"].as_object().cloned().unwrap_or_default();
    json!({
        "kind": kind, "apiVersion": format!("{group}/v1"), "metadata": metadata, "spec": body["spec"],
        "status": status,
    })
}

fn attribute_errors(spec: &Value) -> Vec<FieldError> {
    let path = &spec["nonResourceAttributes"];
    match (spec["resourceAttributes"].is_object(), path.is_object()) {
        (true, true) => vec![FieldError::invalid(
            "spec.nonResourceAttributes",
            shown_path(path),
            "cannot be specified in combination with resourceAttributes",
        )],
        (false, false) => vec![FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

fn subject_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = attribute_errors(spec);
    if spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid(
            "spec.user",
            json!(""),
            "at least one of user or group must be specified",
        ));
    }
    errors
}

/// Kubernetes shows its internal names of these two fields.
fn shown_path(path: &Value) -> Value {
    let text = |key: &str| path[key].as_str().unwrap_or_default();
    json!({"Path": text("path"), "Verb": text("verb")})
}

fn metadata_error(body: &Value, allowed: &[&str], why: &str) -> Option<FieldError> {
    let mut rest = body["metadata"].as_object()?.clone();
    rest.retain(|key, value| !allowed.contains(&key.as_str()) && !value.is_null());
    (!rest.is_empty()).then(|| FieldError::invalid("metadata", Value::Object(rest), why))
}

/// Kubernetes leaves the kind out of these refusals.
fn refuse(group: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(group, "", "", errors)) }
}

fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|t| t.to_string()).unwrap_or_default()
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
