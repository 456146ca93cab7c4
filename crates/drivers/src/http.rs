//! The HTTP client below all drivers: one place for trust, proxies, name overrides, time limits and the flight recorder.
//!
//! It knows nothing of any infrastructure: a request goes out, and an answer or the reason why there is none comes back.

use crate::connection::Connection;
use crate::failure::{Class, Failure};
use crate::recorder::{Call, Outcome, SharedRecorder};
use reqwest::{Certificate, Client, Method, Proxy};
use serde_json::Value;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reason: there was a connection, and no answer in time.
pub(crate) const NO_ANSWER: &str = "NoAnswer";

/// A client of one infrastructure's API.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
    base: String,
    system: &'static str,
    recorder: SharedRecorder,
    /// What a call usually has, until its answer is there.
    pub(crate) call_timeout: Duration,
}

/// What is asked.
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// With its query, and without a secret: it is written down.
    pub(crate) path: String,
    /// Which object it is about, in our words.
    pub(crate) object: String,
    pub(crate) mutates: bool,
    pub(crate) form: Option<Vec<(String, String)>>,
    /// A body in JSON, in place of a form.
    pub(crate) json: Option<Value>,
    /// Never written down.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// More time than usual until the answer is there.
    pub(crate) patience: Option<Duration>,
}

/// What came back, whatever its status.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The words behind the status, where the server says anything there.
    pub(crate) reason: String,
    /// JSON, or a string when it is none.
    pub(crate) body: Value,
}

impl Http {
    /// Makes no call.
    pub(crate) fn new(
        system: &'static str,
        endpoint: &str,
        insecure: bool,
        connection: &Connection,
    ) -> Result<Self, Failure> {
        // Whoever comes first installs it; all of us install the same.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let invalid = |what: &str, cause: String, remedy: &str| {
            Failure::new(
                Class::InvalidConfig,
                "ConnectionInvalid",
                format!("{what} for {system}: {cause}"),
                remedy,
            )
        };
        let base = connection.base_url.as_deref().unwrap_or(endpoint).trim_end_matches('/').to_owned();
        reqwest::Url::parse(&base).map_err(|error| {
            invalid(
                "the endpoint can't be used",
                error.to_string(),
                "write it as a URL: https://pve.example.com:8006",
            )
        })?;
        let client =
            client(insecure, connection).map_err(|(what, cause, remedy)| invalid(what, cause, remedy))?;
        let (recorder, call_timeout) = (Arc::clone(&connection.recorder), connection.call_timeout);
        Ok(Self { client, base, system, recorder, call_timeout })
    }

    /// Where it talks to, for messages.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request and waits for the whole answer. The call is recorded by [`Http::record`], once its meaning is known.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, Failure> {
        let mut builder =
            self.client.request(request.method.clone(), format!("{}{}", self.base, request.path));
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        if let Some(patience) = request.patience {
            builder = builder.timeout(patience);
        }
        if let Some(form) = &request.form {
            builder =
                builder.header("content-type", "application/x-www-form-urlencoded").body(encode_form(form));
        }
        if let Some(json) = &request.json {
            builder = builder.json(json);
        }
        let response = builder.send().await.map_err(|error| self.broken(request, &error))?;
        let status = response.status().as_u16();
        let reason = response
            .extensions()
            .get::<hyper::ext::ReasonPhrase>()
            .map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).into_owned())
            .unwrap_or_default();
        let text = response.text().await.map_err(|error| self.broken(request, &error))?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, reason, body })
    }

    /// Tells the flight recorder how a call ended.
    pub(crate) fn record(&self, request: &Request, began: jiff::Timestamp, since: Instant, outcome: Outcome) {
        let operation = format!("{} {}", request.method, request.path);
        self.record_as(operation, request, began, since, outcome);
    }

    /// The same, where method and path don't say what was asked.
    pub(crate) fn record_as(
        &self,
        operation: String,
        request: &Request,
        began: jiff::Timestamp,
        since: Instant,
        outcome: Outcome,
    ) {
        self.recorder.record(Call {
            system: self.system,
            operation,
            object: request.object.clone(),
            mutates: request.mutates,
            began,
            took: since.elapsed(),
            outcome,
        });
    }

    /// No answer: says what is known about why.
    fn broken(&self, request: &Request, error: &reqwest::Error) -> Failure {
        let what = format!("{} {} for {}", request.method, request.path, request.object);
        let cause = innermost(error);
        let base = &self.base;
        if cause.contains("certificate") {
            return Failure::new(
                Class::Auth,
                "CertificateNotTrusted",
                format!("{what}: the certificate of {base} is not trusted: {cause}"),
                "add the certificate authority as ca.crt to the credentials, or correct the endpoint's name",
            );
        }
        if error.is_timeout() {
            return Failure::new(
                Class::Retryable,
                NO_ANSWER,
                format!("{what}: {base} did not answer in time"),
                "it is tried again; when it lasts, look at the server's load and at the network between",
            );
        }
        if error.is_connect() {
            return Failure::new(
                Class::Retryable,
                "Unreachable",
                format!("{what}: {base} can't be reached: {cause}"),
                "check the endpoint, name resolution, firewall and proxy",
            );
        }
        let unknown = if request.mutates { "; whether it was carried out is looked at next" } else { "" };
        Failure::new(
            Class::Retryable,
            "AnswerLost",
            format!("{what}: the connection broke before the answer: {cause}{unknown}"),
            "it is tried again",
        )
    }
}

/// The client below; or what is wrong, why, and what to do.
fn client(insecure: bool, connection: &Connection) -> Result<Client, (&'static str, String, &'static str)> {
    let mut builder = Client::builder()
        .no_proxy()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connection.connect_timeout)
        .timeout(connection.call_timeout)
        .tls_danger_accept_invalid_certs(insecure);
    if let Some(pem) = &connection.ca_pem {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| {
            let remedy = "give it in PEM, with -----BEGIN CERTIFICATE-----";
            ("the certificate authority can't be used", error.to_string(), remedy)
        })?;
        builder = builder.tls_certs_merge(certificates);
    }
    if let Some(proxy) = &connection.proxy {
        // The proxy's URL may hold a password, and its errors repeat the URL.
        let proxy = Proxy::all(proxy).map_err(|_| {
            ("the proxy can't be used", "its URL is not one".to_owned(), "write it as http://host:port")
        })?;
        builder = builder.proxy(proxy);
    }
    for (name, address) in &connection.host_aliases {
        builder = builder.resolve(name, SocketAddr::new(*address, 0));
    }
    builder
        .build()
        .map_err(|error| ("no client can be made", innermost(&error), "look at the certificate authorities"))
}

/// The last link of an error's chain: the one that says something. Chains of HTTP errors repeat the URL on the way there.
fn innermost(error: &reqwest::Error) -> String {
    let mut text = None;
    let mut source = error.source();
    while let Some(inner) = source {
        text = Some(inner.to_string());
        source = inner.source();
    }
    text.unwrap_or_else(|| "no cause was given".to_owned())
}

/// `a=b&c=d`, with everything but letters, digits and `-._~` escaped.
pub(crate) fn encode_form(pairs: &[(String, String)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
    pairs.join("&")
}

/// Escapes a text for one place in a path or a form.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// How long until the next look at something that began so long ago: 3 % of it, from 20 ms to 2 s.
pub(crate) fn recheck_after(elapsed: Duration) -> Duration {
    (elapsed * 3 / 100).clamp(Duration::from_millis(20), Duration::from_secs(2))
}

/// Host and port of a URL.
pub(crate) fn door(url: &str) -> Option<(String, u16)> {
    let url: reqwest::Url = url.parse().ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some((host, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_escaped() {
        let pairs = [("description".to_owned(), "a b\n{\"x\":1}&+ü".to_owned())];
        assert_eq!(encode_form(&pairs), "description=a%20b%0A%7B%22x%22%3A1%7D%26%2B%C3%BC");
    }

    #[test]
    fn rechecks_grow_with_what_has_passed() {
        assert_eq!(recheck_after(Duration::ZERO), Duration::from_millis(20));
        assert_eq!(recheck_after(Duration::from_secs(10)), Duration::from_millis(300));
        assert_eq!(recheck_after(Duration::from_secs(600)), Duration::from_secs(2));
    }

    #[test]
    fn bad_connections_are_refused_by_name() {
        let proxy = Connection { proxy: Some("http://user:hunter2@".to_owned()), ..Connection::default() };
        let failure = Http::new("proxmox", "https://pve:8006", false, &proxy).err().unwrap();
        assert!(failure.message.contains("proxy") && !failure.message.contains("hunter2"), "{failure}");
        let failure = Http::new("proxmox", "pve", false, &Connection::default()).err().unwrap();
        assert_eq!(failure.reason, "ConnectionInvalid");
    }
}
