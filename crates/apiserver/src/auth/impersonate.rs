//! Impersonation: `Impersonate-User` and its companions, each value of which must be allowed.
//!
//! As in Kubernetes 1.36 the narrow ways are tried first (`impersonate:user-info`, `impersonate:serviceaccount`,
//! `impersonate:arbitrary-node`, each together with `impersonate-on:MODE:VERB` for the request itself), then the old
//! verb `impersonate`. The refusal that is shown is that of the first way tried.

use super::identity::{
    ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, account_groups, split_account_user_name,
};
use super::rbac::{Attributes, Policy, forbidden};
use crate::status::Status;
use http::HeaderMap;
use std::collections::BTreeMap;

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// A way to impersonate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Node,
    ServiceAccount,
    UserInfo,
    /// The verb `impersonate`, whatever the request is.
    Legacy,
}

/// The user that the request asks to be, if it asks and `requestor` may; `attributes` are those of the request itself.
pub fn impersonate(
    policy: &Policy,
    requestor: &User,
    headers: &HeaderMap,
    attributes: &Attributes<'_>,
) -> Result<Option<User>, Status> {
    let Some(wanted) = wanted_user(headers)? else { return Ok(None) };
    let mut first_refusal = None;
    for mode in [Mode::Node, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        if !mode.applies(&wanted) {
            continue;
        }
        match mode.check(policy, requestor, &wanted, attributes) {
            Ok(user) => return Ok(Some(user)),
            Err(refusal) => {
                first_refusal.get_or_insert(refusal);
            }
        }
    }
    // The last mode always applies, so there is a refusal.
    Err(first_refusal.unwrap_or_else(|| forbidden(requestor, attributes, "")))
}

// === impl Mode ===

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Node => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn applies(self, wanted: &User) -> bool {
        let is_node = node_name(&wanted.name).is_some();
        let is_account = split_account_user_name(&wanted.name).is_some();
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::Node => only_name && is_node,
            Self::ServiceAccount => only_name && is_account,
            Self::UserInfo => !is_node && !is_account,
            Self::Legacy => true,
        }
    }

    fn check(
        self,
        policy: &Policy,
        requestor: &User,
        wanted: &User,
        request: &Attributes<'_>,
    ) -> Result<User, Status> {
        let narrow = self != Self::Legacy;
        let verb = if narrow { format!("impersonate:{}", self.name()) } else { "impersonate".to_string() };
        if narrow {
            let on = format!("impersonate-on:{}:{}", self.name(), request.verb);
            policy.authorize(requestor, &Attributes { verb: &on, ..*request })?;
        }
        let group = if narrow { AUTHENTICATION_GROUP } else { "" };
        let ask = |group, resource, name| Attributes {
            verb: &verb,
            group,
            resource,
            name,
            ..Attributes::default()
        };
        let mut user = wanted.clone();
        let mut who = ask(group, "users", &wanted.name);
        if let Some(node) = node_name(&wanted.name).filter(|_| narrow) {
            (who.resource, who.name) = ("nodes", node);
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, name)) = split_account_user_name(&wanted.name) {
            (who.resource, who.namespace, who.name) = ("serviceaccounts", namespace, name);
            if wanted.groups.is_empty() {
                user.groups = account_groups(namespace);
            }
        }
        policy.authorize(requestor, &who)?;
        if !wanted.uid.is_empty() {
            policy.authorize(requestor, &ask(AUTHENTICATION_GROUP, "uids", &wanted.uid))?;
        }
        for name in &wanted.groups {
            let attributes = ask(group, "groups", name);
            if narrow && matches!(name.as_str(), "" | "system:masters") {
                let what = if name.is_empty() { "empty string" } else { name };
                let why = format!("impersonating the {what} group is not allowed");
                return Err(forbidden(requestor, &attributes, &why));
            }
            policy.authorize(requestor, &attributes)?;
        }
        for (key, values) in &wanted.extra {
            for value in values {
                let one = Attributes { subresource: key, ..ask(AUTHENTICATION_GROUP, "userextras", value) };
                policy.authorize(requestor, &one)?;
            }
        }
        add_standard_group(&mut user);
        Ok(user)
    }
}

fn add_standard_group(user: &mut User) {
    let group = if user.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !user.in_group(group) && !user.in_group(UNAUTHENTICATED) {
        user.groups.push(group.into());
    }
}

fn node_name(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    let fits = !name.is_empty()
        && name.len() <= 253
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    fits.then_some(name)
}

/// The headers as a user, without any checks. `None` if there are no such headers.
fn wanted_user(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            extra.entry(unescaped(key)).or_default().push(text(value));
        }
    }
    let wanted = User {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: headers.get_all("impersonate-group").iter().map(text).collect(),
        extra,
    };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == User::default() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", go_syntax(&wanted))))
}

/// The user as Kubernetes prints it in the one message that shows it.
fn go_syntax(user: &User) -> String {
    let list = |values: &[String]| {
        let quoted: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_string() } else { list(&user.groups) };
    let extra = if user.extra.is_empty() {
        "map[string][]string(nil)".to_string()
    } else {
        let pairs: Vec<String> = user.extra.iter().map(|(k, v)| format!("{k:?}:{}", list(v))).collect();
        format!("map[string][]string{{{}}}", pairs.join(", "))
    };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}", user.name, user.uid)
}

/// Percent-decoded; text that is not well escaped stays as it is.
fn unescaped(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { return key.to_string() };
        let Ok(byte) = u8::try_from(high * 16 + low) else { return key.to_string() };
        out.push(byte);
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in list {
            out.append(*name, value.parse().unwrap());
        }
        out
    }

    fn policy(rules: Value) -> Policy {
        Policy::build(
            Vec::<Value>::new(),
            [json!({"metadata": {"name": "r"}, "rules": rules})],
            Vec::<Value>::new(),
            [json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                "subjects": [{"kind": "User", "name": "bob"}]})],
        )
    }

    const API: Attributes<'static> = Attributes {
        verb: "get",
        group: "",
        resource: "",
        subresource: "",
        name: "",
        namespace: "",
        path: Some("/api"),
    };

    #[test]
    fn no_headers_no_change() {
        let bob = User::new("bob", &[]);
        assert_eq!(impersonate(&Policy::default(), &bob, &headers(&[]), &API), Ok(None));
    }

    #[test]
    fn a_user_is_needed() {
        let root = User::new("root", &["system:masters"]);
        let ask = |list: &[(&'static str, &str)]| {
            impersonate(&Policy::default(), &root, &headers(list), &API).unwrap_err().message
        };
        assert_eq!(
            ask(&[("Impersonate-Group", "dev")]),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)} without impersonating a user name"#
        );
        assert_eq!(
            ask(&[("Impersonate-Group", "dev"), ("Impersonate-Uid", "u"), ("Impersonate-Extra-Foo", "b")]),
            r#"requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string{"dev"}, Extra:map[string][]string{"foo":[]string{"b"}}} without impersonating a user name"#
        );
    }

    #[test]
    fn refusals_name_the_first_way_tried() {
        let bob = User::new("bob", &[]);
        let ask = |user: &str| {
            let headers = headers(&[("Impersonate-User", user)]);
            impersonate(&Policy::default(), &bob, &headers, &API).unwrap_err().message
        };
        let table = [
            ("alice", "user-info"),
            ("system:serviceaccount:default:x", "serviceaccount"),
            ("system:node:n1", "arbitrary-node"),
        ];
        for (user, mode) in table {
            assert_eq!(
                ask(user),
                format!("forbidden: User \"bob\" cannot impersonate-on:{mode}:get path \"/api\"")
            );
        }
    }

    #[test]
    fn the_old_verb_covers_each_value_on_its_own() {
        let rules = json!([
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]},
            {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"], "verbs": ["impersonate"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "verbs": ["impersonate"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "verbs": ["impersonate"]},
        ]);
        let bob = User::new("bob", &[]);
        let ask =
            |list: &[(&'static str, &str)]| impersonate(&policy(rules.clone()), &bob, &headers(list), &API);
        let user = ask(&[
            ("Impersonate-User", "alice"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Scopes", "a"),
            ("Impersonate-Extra-Scopes", "b"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("alice", "7"));
        assert_eq!(user.groups, ["dev", AUTHENTICATED]);
        assert_eq!(user.extra["scopes"], ["a", "b"]);
        assert!(ask(&[("Impersonate-User", "carl")]).is_err());
        assert!(ask(&[("Impersonate-User", "alice"), ("Impersonate-Group", "ops")]).is_err());
        assert!(ask(&[("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters")]).is_err());
        assert!(ask(&[("Impersonate-User", "alice"), ("Impersonate-Extra-Other", "x")]).is_err());
    }

    #[test]
    fn the_narrow_verbs_need_both_halves() {
        let half = json!({"apiGroups": ["authentication.k8s.io"], "resources": ["users", "groups"],
            "verbs": ["impersonate:user-info"]});
        let on = json!({"nonResourceURLs": ["/api"], "verbs": ["impersonate-on:user-info:get"]});
        let bob = User::new("bob", &[]);
        let who = headers(&[("Impersonate-User", "alice")]);
        assert!(impersonate(&policy(json!([half])), &bob, &who, &API).is_err());
        assert!(impersonate(&policy(json!([on])), &bob, &who, &API).is_err());
        let both = policy(json!([half, on]));
        assert_eq!(impersonate(&both, &bob, &who, &API).unwrap().unwrap().name, "alice");
        let other = Attributes { verb: "post", ..API };
        assert!(impersonate(&both, &bob, &who, &other).is_err());
        let masters = headers(&[("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters")]);
        let refusal = impersonate(&both, &bob, &masters, &API).unwrap_err().message;
        assert!(refusal.ends_with("impersonating the system:masters group is not allowed"), "{refusal}");
    }

    #[test]
    fn fixed_groups_and_the_anonymous_user() {
        let root = User::new("root", &["system:masters"]);
        let groups = |list: &[(&'static str, &str)]| {
            impersonate(&Policy::default(), &root, &headers(list), &API).unwrap().unwrap().groups
        };
        assert_eq!(
            groups(&[("Impersonate-User", "system:serviceaccount:a:b")]),
            ["system:serviceaccounts", "system:serviceaccounts:a", AUTHENTICATED]
        );
        assert_eq!(groups(&[("Impersonate-User", "system:node:n1")]), ["system:nodes", AUTHENTICATED]);
        assert_eq!(groups(&[("Impersonate-User", ANONYMOUS)]), [UNAUTHENTICATED]);
        assert_eq!(
            groups(&[("Impersonate-User", "x"), ("Impersonate-Group", UNAUTHENTICATED)]),
            [UNAUTHENTICATED]
        );
    }

    #[test]
    fn extra_keys_are_percent_decoded() {
        for (key, wanted) in [("a%2fb", "a/b"), ("plain", "plain"), ("bad%zz", "bad%zz"), ("cut%4", "cut%4")]
        {
            assert_eq!(unescaped(key), wanted);
        }
    }
}
