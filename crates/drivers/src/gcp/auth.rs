//! Who we are to Google: a service account's key, application-default credentials, or the metadata server of the machine that
//! this runs on. Whichever it is, what goes out with a call is a token that lives for an hour.

use super::error::Refusal;
use crate::connection::{Connection, Credentials};
use crate::failure::{Class, Failure};
use crate::http::{Answer, Http, Request};
use crate::recorder::Outcome;
use aws_lc_rs::{rand::SystemRandom, signature};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// What tokens are good for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
pub(super) const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const METADATA: &str = "http://169.254.169.254";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// A token is renewed so long before its end.
const MARGIN: Duration = Duration::from_secs(300);

/// Hands out tokens. Has no `Debug`: it holds keys.
pub(crate) struct Login {
    http: Http,
    path: String,
    source: Source,
    kept: Mutex<Option<Token>>,
}

enum Source {
    ServiceAccount { email: String, key_id: String, key: Box<signature::RsaKeyPair>, audience: String },
    User { client_id: String, client_secret: String, refresh_token: String },
    Metadata,
}

struct Token {
    text: String,
    until: Instant,
}

fn missing(message: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(Class::Auth, "CredentialsInvalid", message, remedy)
}

const REMEDY: &str = "put the key file of a service account into the credentials, as serviceAccountKey";

impl Login {
    /// Makes no call.
    pub(crate) fn new(credentials: &Credentials, connection: &Connection) -> Result<Self, Failure> {
        let Some(text) = credentials.get("serviceAccountKey").or(credentials.get("applicationDefault"))
        else {
            return Err(Failure::new(
                Class::Auth,
                "CredentialsMissing",
                "the credentials have no serviceAccountKey",
                REMEDY,
            ));
        };
        if text.trim() == "metadata" {
            // The address is that of this very machine: no proxy leads there.
            let direct = Connection { proxy: None, ..connection.clone() };
            let http = Http::new("gcp", METADATA, false, &direct)?;
            return Ok(Self::of(http, METADATA_PATH.to_owned(), Source::Metadata));
        }
        // The error of the parser is not passed on: it may quote the key.
        let file: Value = serde_json::from_str(text)
            .map_err(|_| missing("serviceAccountKey in the credentials is not JSON", REMEDY))?;
        let field = |key: &str| file.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let needed = |key: &str| {
            field(key)
                .map(str::to_owned)
                .ok_or_else(|| missing(format!("serviceAccountKey in the credentials has no {key}"), REMEDY))
        };
        let uri = field("token_uri").unwrap_or(TOKEN_URI).to_owned();
        let source = match field("type") {
            Some("service_account") => Source::ServiceAccount {
                email: needed("client_email")?,
                key_id: field("private_key_id").unwrap_or_default().to_owned(),
                key: Box::new(read_key(&needed("private_key")?)?),
                audience: uri.clone(),
            },
            Some("authorized_user") => Source::User {
                client_id: needed("client_id")?,
                client_secret: needed("client_secret")?,
                refresh_token: needed("refresh_token")?,
            },
            other => {
                let other = other.unwrap_or("none");
                let message = format!("credentials of type {other} can't be used");
                let remedy = "use a file of type service_account or authorized_user, or the word metadata";
                return Err(missing(message, remedy));
            }
        };
        let (endpoint, path) = split(&uri)?;
        Ok(Self::of(Http::new("gcp", endpoint, false, connection)?, path.to_owned(), source))
    }

    fn of(http: Http, path: String, source: Source) -> Self {
        Self { http, path, source, kept: Mutex::new(None) }
    }

    /// The token to use; a new one when there is none, when it ends soon, or when `renew` says so.
    pub(crate) async fn token(&self, renew: bool) -> Result<String, Failure> {
        // Held over the login, so that many calls at once log in once.
        let mut kept = self.kept.lock().await;
        if let Some(token) = kept.as_ref().filter(|token| !renew && Instant::now() < token.until) {
            return Ok(token.text.clone());
        }
        let request = self.request()?;
        let (began, since) = (jiff::Timestamp::now(), Instant::now());
        let result = match self.http.send(&request).await {
            Ok(answer) => self.read(&answer),
            Err(failure) => Err(failure),
        };
        let outcome = match &result {
            Ok(_) => Outcome::Ok("200".to_owned()),
            Err(failure) => Outcome::Failed { class: failure.class, message: failure.message.clone() },
        };
        self.http.record(&request, began, since, outcome);
        let token = result?;
        let text = token.text.clone();
        *kept = Some(token);
        Ok(text)
    }

    /// Who asks, for messages.
    pub(crate) fn who(&self) -> String {
        match &self.source {
            Source::ServiceAccount { email, .. } => email.clone(),
            Source::User { .. } => "a user's application-default credentials".to_owned(),
            Source::Metadata => "the service account of this machine".to_owned(),
        }
    }

    fn request(&self) -> Result<Request, Failure> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let form = match &self.source {
            Source::ServiceAccount { email, key_id, key, audience } => {
                let now = jiff::Timestamp::now().as_second();
                let assertion = assertion(email, key_id, key, audience, now)?;
                Some(vec![
                    pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                    pair("assertion", &assertion),
                ])
            }
            Source::User { client_id, client_secret, refresh_token } => Some(vec![
                pair("grant_type", "refresh_token"),
                pair("client_id", client_id),
                pair("client_secret", client_secret),
                pair("refresh_token", refresh_token),
            ]),
            Source::Metadata => None,
        };
        let headers = match &self.source {
            Source::Metadata => vec![("metadata-flavor", "Google".to_owned())],
            _ => Vec::new(),
        };
        Ok(Request {
            method: if form.is_some() { Method::POST } else { Method::GET },
            path: self.path.clone(),
            object: format!("login of {}", self.who()),
            // Nothing in the cloud changes by it.
            mutates: false,
            form,
            headers,
            ..Request::default()
        })
    }

    fn read(&self, answer: &Answer) -> Result<Token, Failure> {
        let text = |key: &str| answer.body.get(key).and_then(Value::as_str);
        if (200..300).contains(&answer.status)
            && let Some(token) = text("access_token")
        {
            let life = answer.body.get("expires_in").and_then(Value::as_u64).unwrap_or(3600);
            let until = Instant::now() + Duration::from_secs(life).saturating_sub(MARGIN);
            return Ok(Token { text: token.to_owned(), until });
        }
        let what = format!("login of {}", self.who());
        // OAuth's own form: {"error": "invalid_grant", "error_description": "..."}; the description never holds the assertion.
        match text("error") {
            Some(error) if (400..500).contains(&answer.status) => {
                let said = text("error_description").unwrap_or_default();
                Err(Failure::new(
                    Class::Auth,
                    "LoginFailed",
                    format!("{what}: Google says: {error} {said}").trim_end().to_owned(),
                    "check that the key still exists and its account is enabled, and that this computer's clock is right",
                ))
            }
            _ => Err(Refusal::read(answer).failure(&what)),
        }
    }
}

/// A claim to be `email`, signed: what Google gives a token for.
fn assertion(
    email: &str,
    key_id: &str,
    key: &signature::RsaKeyPair,
    audience: &str,
    now: i64,
) -> Result<String, Failure> {
    let mut header = json!({"alg": "RS256", "typ": "JWT"});
    if !key_id.is_empty() {
        header["kid"] = json!(key_id);
    }
    let claims = json!({"iss": email, "scope": SCOPE, "aud": audience, "iat": now, "exp": now + 3600});
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let mut bytes = vec![0; key.public_modulus_len()];
    key.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut bytes)
        .map_err(|_| missing("the private key in the credentials can't sign", REMEDY))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn read_key(pem: &str) -> Result<signature::RsaKeyPair, Failure> {
    // Keys that were passed through an environment variable often have their line breaks escaped.
    let pem = pem.replace("\\n", "\n");
    let invalid = || missing("private_key in the credentials is not an RSA key in PEM", REMEDY);
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| invalid())?;
    signature::RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| invalid())
}

/// Splits a URL into what is dialled and what is asked for there.
fn split(uri: &str) -> Result<(&str, &str), Failure> {
    let host_at = uri.find("://").map(|at| at + 3);
    let Some(host_at) = host_at.filter(|_| uri.starts_with("https://")) else {
        // A key goes nowhere in the clear.
        return Err(missing("token_uri in the credentials is not an https URL", REMEDY));
    };
    let path_at = uri[host_at..].find('/').map_or(uri.len(), |at| host_at + at);
    Ok(uri.split_at(path_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::KeyPair as _;

    fn credentials(text: &str) -> Credentials {
        Credentials([("serviceAccountKey".to_owned(), text.to_owned())].into())
    }

    #[test]
    fn assertions_are_signed_by_the_key() {
        let key = signature::RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let text = assertion("a@p.iam.gserviceaccount.com", "k1", &key, TOKEN_URI, 1_700_000_000).unwrap();
        let parts: Vec<&str> = text.split('.').collect();
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let header: Value = serde_json::from_slice(&decode(parts[0])).unwrap();
        let claims: Value = serde_json::from_slice(&decode(parts[1])).unwrap();
        assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        assert_eq!(claims["aud"], TOKEN_URI);
        assert_eq!(
            (claims["iat"].as_i64(), claims["exp"].as_i64()),
            (Some(1_700_000_000), Some(1_700_003_600))
        );
        let public = signature::UnparsedPublicKey::new(
            &signature::RSA_PKCS1_2048_8192_SHA256,
            key.public_key().as_ref(),
        );
        public.verify(format!("{}.{}", parts[0], parts[1]).as_bytes(), &decode(parts[2])).unwrap();
        // And the same key is read back from what a key file holds, line breaks escaped or not.
        let der = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let body = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        assert_eq!(read_key(&pem).unwrap().public_key().as_ref(), key.public_key().as_ref());
        assert!(read_key(&pem.replace('\n', "\\n")).is_ok());
    }

    #[test]
    fn bad_credentials_are_refused_by_name_and_never_shown() {
        let table = [
            ("hunter2", "is not JSON"),
            (r#"{"type": "service_account", "client_email": "a"}"#, "no private_key"),
            (
                r#"{"type": "service_account", "client_email": "a", "private_key": "hunter2"}"#,
                "RSA key in PEM",
            ),
            (r#"{"type": "external_account"}"#, "external_account can't be used"),
            (
                r#"{"type": "authorized_user", "client_id": "a", "client_secret": "hunter2"}"#,
                "no refresh_token",
            ),
            (
                r#"{"type": "authorized_user", "client_id": "a", "client_secret": "s", "refresh_token": "r",
                    "token_uri": "http://evil/token"}"#,
                "not an https URL",
            ),
        ];
        for (text, part) in table {
            let failure = Login::new(&credentials(text), &Connection::default()).err().unwrap();
            assert_eq!(failure.class, Class::Auth);
            assert!(failure.message.contains(part), "{failure}");
            assert!(!failure.message.contains("hunter2"), "{failure}");
        }
        let none = Login::new(&Credentials::default(), &Connection::default()).err().unwrap();
        assert_eq!(none.reason, "CredentialsMissing");
        assert!(Login::new(&credentials("metadata"), &Connection::default()).is_ok());
        assert_eq!(
            split("https://oauth2.googleapis.com/token").unwrap(),
            ("https://oauth2.googleapis.com", "/token")
        );
    }
}
