//! Service-account tokens: JSON web tokens signed with ES256, bound to the uid of the account and, when asked for, of
//! a pod, secret or node.
//!
//! Only what Kubernetes itself issues is read back: one algorithm, one issuer, one key. A verified token is remembered
//! for a while, since a controller sends the same one thousands of times; expiry and uids are checked each time.

use super::identity::{CREDENTIAL_ID, User, account_user_name};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::{self, SystemRandom};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Clocks may differ by this much, as in Kubernetes.
const LEEWAY: i64 = 60;
/// A longer bearer token is not read.
const MAX_TOKEN: usize = 16 * 1024;
const MAX_REMEMBERED: usize = 1024;

/// What a token can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundKind {
    ServiceAccount,
    Pod,
    Secret,
    Node,
}

/// Tells the uid of an object that is there and not deleted. Nodes have an empty namespace.
pub trait Uids {
    fn uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String>;

    /// The service account that a pod runs as, if that is known here.
    fn pod_account(&self, _namespace: &str, _pod: &str) -> Option<String> {
        None
    }
}

impl<F: Fn(BoundKind, &str, &str) -> Option<String>> Uids for F {
    fn uid(&self, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        self(kind, namespace, name)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectRef {
    pub name: String,
    pub uid: String,
}

/// What a token says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    pub audiences: Vec<String>,
    /// Seconds since 1970.
    pub expires: i64,
    pub issued: i64,
    pub not_before: i64,
    pub id: String,
    pub namespace: String,
    pub account: ObjectRef,
    pub pod: Option<ObjectRef>,
    pub secret: Option<ObjectRef>,
    pub node: Option<ObjectRef>,
}

/// Why a bearer token was not accepted. The text is safe to show: it never holds any of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    #[error("invalid bearer token")]
    Unknown,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    OtherAccount { found: String, claimed: String },
    #[error("service account token has been invalidated")]
    Invalidated,
    #[error("token audiences {} is invalid for the target audiences {}",
        super::rule::quoted_list(.token), super::rule::quoted_list(.wanted))]
    Audience { token: Vec<String>, wanted: Vec<String> },
}

/// Signing or key handling failed inside the crypto library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the service-account key")]
pub struct KeyProblem;

/// The key that signs service-account tokens.
pub struct AccountKey {
    pair: EcdsaKeyPair,
    id: String,
    /// By digest of the token: the tokens themselves are not kept.
    remembered: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

// === impl AccountKey ===

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AccountKey {
    pub fn generate() -> Result<Self, KeyProblem> {
        Self::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| KeyProblem)?)
    }

    /// From a P-256 private key in PKCS #8 form.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyProblem> {
        Self::new(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der).map_err(|_| KeyProblem)?)
    }

    /// From a P-256 private key in SEC 1 form (`EC PRIVATE KEY`).
    pub fn from_sec1(der: &[u8]) -> Result<Self, KeyProblem> {
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        Self::new(pair.map_err(|_| KeyProblem)?)
    }

    fn new(pair: EcdsaKeyPair) -> Result<Self, KeyProblem> {
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| KeyProblem)?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, public.as_ref()));
        Ok(Self { pair, id, remembered: Mutex::default() })
    }

    /// The public half as a JSON web key set, for `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        // An uncompressed point: one tag byte, then both coordinates.
        let point = self.pair.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len().saturating_sub(1) / 2);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }

    pub fn sign(&self, claims: &Claims) -> Result<String, KeyProblem> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_json().to_string(), &mut token);
        let signature = self.pair.sign(&SystemRandom::new(), token.as_bytes()).map_err(|_| KeyProblem)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        Ok(token)
    }

    /// The user of a token that is signed by this key, in its time, and whose account is still the same one.
    /// `audiences` as in [`super::Authenticator::by_token`].
    pub fn verify(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        uids: &dyn Uids,
    ) -> Result<User, TokenProblem> {
        self.verify_at(token, audiences, uids, now())
    }

    pub(super) fn verify_at(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        uids: &dyn Uids,
        now: i64,
    ) -> Result<User, TokenProblem> {
        let claims = self.claims(token).ok_or(TokenProblem::Unknown)?;
        claims.check_time(now)?;
        claims.check_audience(audiences)?;
        claims.check_uids(uids)?;
        Ok(claims.to_user())
    }

    /// The claims, if the signature is ours.
    fn claims(&self, token: &str) -> Option<Arc<Claims>> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(claims) = self.remembered.lock().get(&key) {
            return Some(claims.clone());
        }
        let claims = Arc::new(self.check_signature(token)?);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, claims.clone());
        Some(claims)
    }

    fn check_signature(&self, token: &str) -> Option<Claims> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        // The algorithm is fixed, never taken from the token: `none` and foreign ones end here.
        if header["alg"] != "ES256" || header["kid"] != self.id.as_str() {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        Claims::from_json(&serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?)
    }
}

pub(super) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs().cast_signed())
}

/// A random version-4 UUID.
pub(super) fn random_uuid() -> Result<String, KeyProblem> {
    let mut bytes = [0u8; 16];
    rand::fill(&mut bytes).map_err(|_| KeyProblem)?;
    let bits = (u128::from_be_bytes(bytes) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

// === impl Claims ===

impl Claims {
    fn to_json(&self) -> Value {
        let mut bound = Map::new();
        bound.insert("namespace".into(), json!(self.namespace));
        bound.insert("serviceaccount".into(), self.account.to_json());
        for (key, object) in [("pod", &self.pod), ("secret", &self.secret), ("node", &self.node)] {
            if let Some(object) = object {
                bound.insert(key.into(), object.to_json());
            }
        }
        json!({
            "aud": self.audiences, "exp": self.expires, "iat": self.issued, "iss": ISSUER, "jti": self.id,
            "kubernetes.io": bound, "nbf": self.not_before,
            "sub": account_user_name(&self.namespace, &self.account.name),
        })
    }

    /// `None` unless it is a token of ours for a service account, with subject and account in agreement.
    fn from_json(value: &Value) -> Option<Self> {
        let bound = &value["kubernetes.io"];
        let claims = Self {
            audiences: match &value["aud"] {
                Value::String(one) => vec![one.clone()],
                list => super::rule::strings(list),
            },
            expires: value["exp"].as_i64()?,
            issued: value["iat"].as_i64()?,
            not_before: value["nbf"].as_i64()?,
            id: value["jti"].as_str().unwrap_or_default().to_string(),
            namespace: bound["namespace"].as_str()?.to_string(),
            account: ObjectRef::from_json(&bound["serviceaccount"])?,
            pod: ObjectRef::from_json(&bound["pod"]),
            secret: ObjectRef::from_json(&bound["secret"]),
            node: ObjectRef::from_json(&bound["node"]),
        };
        let subject = account_user_name(&claims.namespace, &claims.account.name);
        (value["iss"] == ISSUER && value["sub"] == subject.as_str()).then_some(claims)
    }

    fn check_time(&self, now: i64) -> Result<(), TokenProblem> {
        if now.saturating_sub(LEEWAY) > self.expires {
            return Err(TokenProblem::Expired);
        }
        if now.saturating_add(LEEWAY) < self.not_before {
            return Err(TokenProblem::NotYet);
        }
        if now.saturating_add(LEEWAY) < self.issued {
            return Err(TokenProblem::IssuedInFuture);
        }
        Ok(())
    }

    fn check_audience(&self, wanted: Option<&[String]>) -> Result<(), TokenProblem> {
        let own = [ISSUER.to_string()];
        let wanted = wanted.filter(|list| !list.is_empty()).unwrap_or(&own);
        if wanted.iter().any(|a| self.audiences.contains(a)) {
            return Ok(());
        }
        Err(TokenProblem::Audience { token: self.audiences.clone(), wanted: wanted.to_vec() })
    }

    /// Everything that the token is bound to must still be the same object, not one that was made again by its name.
    fn check_uids(&self, uids: &dyn Uids) -> Result<(), TokenProblem> {
        let found = uids
            .uid(BoundKind::ServiceAccount, &self.namespace, &self.account.name)
            .ok_or_else(|| TokenProblem::NoAccount(self.account.name.clone()))?;
        if found != self.account.uid {
            return Err(TokenProblem::OtherAccount { found, claimed: self.account.uid.clone() });
        }
        // A pod's token names its node too, but lives and dies with the pod.
        let node = if self.pod.is_some() { &None } else { &self.node };
        let bound = [
            (BoundKind::Pod, self.namespace.as_str(), &self.pod),
            (BoundKind::Secret, self.namespace.as_str(), &self.secret),
            (BoundKind::Node, "", node),
        ];
        for (kind, namespace, object) in bound {
            if let Some(object) = object
                && uids.uid(kind, namespace, &object.name).as_ref() != Some(&object.uid)
            {
                return Err(TokenProblem::Invalidated);
            }
        }
        Ok(())
    }

    fn to_user(&self) -> User {
        let mut user = User::service_account(&self.namespace, &self.account.name, &self.account.uid);
        if !self.id.is_empty() {
            user.extra.insert(CREDENTIAL_ID.into(), vec![format!("JTI={}", self.id)]);
        }
        for (kind, object) in [("pod", &self.pod), ("node", &self.node)] {
            if let Some(object) = object {
                let key = |what| format!("authentication.kubernetes.io/{kind}-{what}");
                user.extra.insert(key("name"), vec![object.name.clone()]);
                user.extra.insert(key("uid"), vec![object.uid.clone()]);
            }
        }
        user
    }
}

impl ObjectRef {
    fn to_json(&self) -> Value {
        json!({"name": self.name, "uid": self.uid})
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self { name: value["name"].as_str()?.into(), uid: value["uid"].as_str()?.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000;

    fn claims() -> Claims {
        Claims {
            audiences: vec![ISSUER.into()],
            expires: NOW + 600,
            issued: NOW,
            not_before: NOW,
            id: "id".into(),
            namespace: "ns".into(),
            account: ObjectRef { name: "robot".into(), uid: "u1".into() },
            ..Claims::default()
        }
    }

    fn there(kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        match (kind, namespace, name) {
            (BoundKind::ServiceAccount, "ns", "robot") => Some("u1".into()),
            (BoundKind::Pod, "ns", "pod") => Some("p1".into()),
            _ => None,
        }
    }

    #[test]
    fn a_token_is_read_back_as_the_account() {
        let key = AccountKey::generate().unwrap();
        let token = key.sign(&claims()).unwrap();
        let user = key.verify_at(&token, None, &there, NOW).unwrap();
        assert_eq!(user.name, "system:serviceaccount:ns:robot");
        assert_eq!(user.uid, "u1");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
        );
        assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=id"]);
    }

    #[test]
    fn time_uid_and_audience_are_checked_each_time() {
        let key = AccountKey::generate().unwrap();
        let token = key.sign(&claims()).unwrap();
        let verify = |now| key.verify_at(&token, None, &there, now).map(|u| u.name);
        assert!(verify(NOW + 600 + LEEWAY).is_ok());
        assert_eq!(verify(NOW + 601 + LEEWAY), Err(TokenProblem::Expired));
        assert_eq!(verify(NOW - LEEWAY - 1), Err(TokenProblem::NotYet));
        let gone = |_: BoundKind, _: &str, _: &str| None;
        assert_eq!(
            key.verify_at(&token, None, &gone, NOW).unwrap_err().to_string(),
            "serviceaccounts \"robot\" not found"
        );
        let remade = |_: BoundKind, _: &str, _: &str| Some("u2".to_string());
        assert_eq!(
            key.verify_at(&token, None, &remade, NOW).unwrap_err().to_string(),
            "service account UID (u2) does not match claim (u1)"
        );
        let other = ["zz".to_string()];
        assert!(matches!(
            key.verify_at(&token, Some(&other), &there, NOW),
            Err(TokenProblem::Audience { .. })
        ));
    }

    #[test]
    fn a_bound_object_must_still_be_there() {
        let key = AccountKey::generate().unwrap();
        let pod = |name: &str, uid: &str| Some(ObjectRef { name: name.into(), uid: uid.into() });
        let bound = Claims { pod: pod("pod", "p1"), ..claims() };
        let user = key.verify_at(&key.sign(&bound).unwrap(), None, &there, NOW).unwrap();
        assert_eq!(user.extra["authentication.kubernetes.io/pod-uid"], ["p1"]);
        for gone in
            [Claims { pod: pod("pod", "p2"), ..claims() }, Claims { secret: pod("s", "x"), ..claims() }]
        {
            let token = key.sign(&gone).unwrap();
            assert_eq!(key.verify_at(&token, None, &there, NOW), Err(TokenProblem::Invalidated));
        }
    }

    #[test]
    fn foreign_keys_and_algorithms_are_refused() {
        let key = AccountKey::generate().unwrap();
        let foreign = AccountKey::generate().unwrap().sign(&claims()).unwrap();
        assert_eq!(key.verify_at(&foreign, None, &there, NOW), Err(TokenProblem::Unknown));
        let payload = URL_SAFE_NO_PAD.encode(claims().to_json().to_string());
        for alg in ["none", "HS256", "RS256"] {
            let header = URL_SAFE_NO_PAD.encode(json!({"alg": alg, "kid": key.id}).to_string());
            for token in [format!("{header}.{payload}."), format!("{header}.{payload}")] {
                assert_eq!(key.verify_at(&token, None, &there, NOW), Err(TokenProblem::Unknown), "{alg}");
            }
        }
    }

    #[test]
    fn the_key_set_names_a_point_of_two_coordinates() {
        let set = AccountKey::generate().unwrap().key_set();
        for axis in ["x", "y"] {
            let value = set["keys"][0][axis].as_str().unwrap();
            assert_eq!(URL_SAFE_NO_PAD.decode(value).unwrap().len(), 32);
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let key = AccountKey::generate().unwrap();
        let text = format!("{key:?}");
        assert!(text.starts_with("AccountKey { id: "), "{text}");
        assert!(text.len() < 90, "{text}");
    }

    #[test]
    fn uuids_have_the_version_and_variant_of_random_ones() {
        let id = random_uuid().unwrap();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
    }

    proptest! {
        #[test]
        fn any_changed_byte_breaks_the_token(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_.-]") {
            let key = AccountKey::generate().unwrap();
            let token = key.sign(&claims()).unwrap();
            let at = at.index(token.len());
            prop_assume!(!token[at..].starts_with(&to));
            let mut changed = token.clone();
            changed.replace_range(at..=at, &to);
            prop_assert_eq!(key.verify_at(&changed, None, &there, NOW), Err(TokenProblem::Unknown));
            prop_assert!(key.verify_at(&token, None, &there, NOW).is_ok());
        }

        #[test]
        fn garbage_is_refused_without_a_panic(token in "\\PC{0,80}(\\.[A-Za-z0-9_=-]{0,40}){0,4}") {
            let key = AccountKey::generate().unwrap();
            prop_assert_eq!(key.verify_at(&token, None, &there, NOW), Err(TokenProblem::Unknown));
        }
    }
}
