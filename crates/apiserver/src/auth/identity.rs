//! Who is asking: from a client certificate or a bearer token.

use super::jwt::{AccountKey, ISSUER, TokenProblem, Uids};
use super::tokens::StaticTokens;
use crate::status::Status;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const AUTHENTICATED: &str = "system:authenticated";
pub(super) const UNAUTHENTICATED: &str = "system:unauthenticated";
pub(super) const ANONYMOUS: &str = "system:anonymous";
/// Members may do everything, whatever the RBAC objects say.
pub(super) const MASTERS: &str = "system:masters";
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The one who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Request extension: who the client certificate of this connection says that the peer is. Parsed once per connection.
#[derive(Debug, Clone, Default)]
pub struct PeerIdentity(pub Option<Arc<User>>);

/// Turns credentials into a [`User`].
#[derive(Debug)]
pub struct Authenticator {
    static_tokens: StaticTokens,
    account_key: Arc<AccountKey>,
}

/// Paths that need no credentials.
pub fn is_public_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz" | "/version" | "/version/")
}

// === impl User ===

impl User {
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// An authenticated user.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let groups = groups.iter().map(ToString::to_string).collect();
        Self { name: name.into(), groups, ..Self::default() }.authenticated()
    }

    /// A service account, with the groups that every service account has.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: account_user_name(namespace, name),
            uid: uid.into(),
            groups: account_groups(namespace),
            extra: BTreeMap::new(),
        }
        .authenticated()
    }

    /// From a certificate whose chain has been verified: the common name is the user, organizations are groups.
    /// `None` if there is no common name.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let (_, cert) = x509_parser::parse_x509_certificate(der).ok()?;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().ok().filter(|s| !s.is_empty()).map(str::to_string)
        };
        let name = cert.subject().iter_common_name().find_map(text)?;
        let groups = cert.subject().iter_organization().filter_map(text).collect();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        let id = format!("X509SHA256={}", hex(digest.as_ref()));
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_string(), vec![id])]);
        Some(Self { name, uid: String::new(), groups, extra }.authenticated())
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Whether RBAC is asked at all.
    pub fn is_master(&self) -> bool {
        self.in_group(MASTERS)
    }

    pub(super) fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.in_group(AUTHENTICATED) && !self.in_group(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// `authentication.k8s.io/v1 UserInfo`.
    pub fn to_user_info(&self) -> Value {
        let mut out = Map::new();
        if !self.name.is_empty() {
            out.insert("username".into(), json!(self.name));
        }
        if !self.uid.is_empty() {
            out.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            out.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            out.insert("extra".into(), json!(self.extra));
        }
        Value::Object(out)
    }
}

pub(super) fn account_user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

pub(super) fn account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
}

/// Namespace and name of `system:serviceaccount:NAMESPACE:NAME`.
pub(super) fn split_account_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let well_formed = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    well_formed.then_some((namespace, name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

// === impl Authenticator ===

impl Authenticator {
    pub fn new(static_tokens: StaticTokens, account_key: Arc<AccountKey>) -> Self {
        Self { static_tokens, account_key }
    }

    pub fn account_key(&self) -> &Arc<AccountKey> {
        &self.account_key
    }

    /// The user of a request, or the refusal. A certificate is looked at first, then the bearer token; bad credentials
    /// are refused even on public paths, as they are in Kubernetes.
    pub fn authenticate(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
        path: &str,
        uids: &dyn Uids,
    ) -> Result<Arc<User>, Status> {
        if let Some(user) = peer.and_then(|p| p.0.as_ref()) {
            return Ok(user.clone());
        }
        match bearer_token(headers) {
            Some(token) => self.by_token(token, None, uids).map_err(|_| Status::unauthorized()),
            None if is_public_path(path) => Ok(Arc::new(User::anonymous())),
            None => Err(Status::unauthorized()),
        }
    }

    /// The user of a bearer token. `audiences`: the token must be for at least one of them; none given means the API
    /// server itself, the only audience of a static token.
    pub fn by_token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        uids: &dyn Uids,
    ) -> Result<Arc<User>, TokenProblem> {
        if audiences.is_none_or(|list| list.is_empty() || list.iter().any(|a| a == ISSUER))
            && let Some(user) = self.static_tokens.find(token)
        {
            return Ok(user);
        }
        self.account_key.verify(token, audiences, uids).map(Arc::new)
    }
}

/// The token of `Authorization: Bearer TOKEN`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?.trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator(csv: &str) -> Authenticator {
        Authenticator::new(StaticTokens::parse(csv).unwrap(), Arc::new(AccountKey::generate().unwrap()))
    }

    fn headers(authorization: &str) -> HeaderMap {
        let mut out = HeaderMap::new();
        if !authorization.is_empty() {
            out.insert(http::header::AUTHORIZATION, authorization.parse().unwrap());
        }
        out
    }

    fn nobody(_: crate::auth::BoundKind, _: &str, _: &str) -> Option<String> {
        None
    }

    #[test]
    fn nothing_but_health_and_version_is_anonymous() {
        let auth = authenticator("");
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            let user = auth.authenticate(None, &headers(""), path, &nobody).unwrap();
            assert_eq!(*user, User::anonymous(), "{path}");
        }
        for path in ["/", "/api", "/apis", "/healthz/etcd", "/openapi/v3", "/metrics"] {
            let refusal = auth.authenticate(None, &headers(""), path, &nobody).unwrap_err();
            assert_eq!((refusal.code, refusal.reason), (401, "Unauthorized"), "{path}");
        }
    }

    #[test]
    fn tokens_are_found_and_bad_ones_refused_everywhere() {
        let auth = authenticator("tok,jane,u1,\"dev,ops\"\n");
        let user = auth.authenticate(None, &headers("bearer tok"), "/api", &nobody).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "u1"));
        assert_eq!(user.groups, ["dev", "ops", AUTHENTICATED]);
        for bad in ["Bearer nope", "Bearer a.b.c"] {
            assert_eq!(auth.authenticate(None, &headers(bad), "/healthz", &nobody).unwrap_err().code, 401);
        }
        for none in ["Bearer", "Bearer  ", "Basic dG9rOg=="] {
            assert!(auth.authenticate(None, &headers(none), "/api", &nobody).is_err(), "{none}");
        }
    }

    #[test]
    fn a_certificate_wins_over_a_token() {
        let auth = authenticator("tok,jane,u1");
        let peer = PeerIdentity(Some(Arc::new(User::new("cert", &["a"]))));
        let user = auth.authenticate(Some(&peer), &headers("Bearer tok"), "/api", &nobody).unwrap();
        assert_eq!(user.name, "cert");
    }

    #[test]
    fn account_names_split_only_when_well_formed() {
        assert_eq!(split_account_user_name("system:serviceaccount:a:b"), Some(("a", "b")));
        for bad in
            ["system:serviceaccount:a", "system:serviceaccount::b", "system:serviceaccount:a:b:c", "a:b"]
        {
            assert_eq!(split_account_user_name(bad), None, "{bad}");
        }
    }
}
