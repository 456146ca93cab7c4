//! The port 6443 of one control plane: its own certificate, the gate, and the API that it shares with the others.

use super::facts::{API_PORT, Facts, PodSecurity};
use super::security;
use crate::fabric::{Fabric, FabricListener, Stream};
use crate::gate::{Call, Fault, Gate, Leaving, Verdict};
use crate::pki;
use crate::tls::{self, TlsError};
use butler_apiserver::serve::{self, Incomings, ServeOptions};
use butler_apiserver::store::{Key, Store};
use butler_apiserver::{ApiService, Body};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::JoinHandle;
use tower_service::Service;

/// Why a control plane does not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrontError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen")]
    Listen(#[from] io::Error),
}

/// An open port; dropped, it is closed and its connections are cut.
#[derive(Debug)]
pub(super) struct Front {
    /// What the certificate was made from, and in which boot.
    made_from: (Vec<String>, String, u32),
    task: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Incomings for FabricListener {
    type Stream = Stream;

    async fn accept(&mut self) -> io::Result<Stream> {
        FabricListener::accept(self).await
    }
}

/// What all fronts of a cluster share.
#[derive(Clone)]
pub(super) struct Backing {
    pub(super) fabric: Fabric,
    pub(super) gate: Gate,
    pub(super) service: ApiService,
    pub(super) store: Store,
}

impl Front {
    pub(super) fn open(backing: &Backing, facts: &Facts) -> Result<Self, FrontError> {
        let ca = facts.kubernetes_ca();
        let identity = pki::kubernetes_server(ca, &facts.names()).map_err(TlsError::from)?;
        let cas = pki::certificates(&ca.cert).map_err(TlsError::from)?;
        let config = tls::kubernetes(identity, &cas)?;
        let listener = backing.fabric.listen(SocketAddr::new(facts.address, API_PORT))?;
        let service = Gated {
            inner: backing.service.clone(),
            gate: backing.gate.clone(),
            store: backing.store.clone(),
            security: Arc::new(facts.pod_security()),
            anonymous: facts.lets_anonymous_in(),
        };
        let options = ServeOptions { max_connections: 1024, ..ServeOptions::default() };
        let never = std::future::pending();
        let task = tokio::spawn(serve::serve_with(listener, config, service, options, never));
        Ok(Self { made_from: made_from(facts), task })
    }

    /// Whether it is still what this machine would open.
    pub(super) fn is_of(&self, facts: &Facts) -> bool {
        self.made_from == made_from(facts)
    }
}

fn made_from(facts: &Facts) -> (Vec<String>, String, u32) {
    (facts.names(), facts.kubernetes_ca().cert.clone(), facts.boot)
}

/// The API behind the gate.
#[derive(Clone)]
struct Gated {
    inner: ApiService,
    gate: Gate,
    store: Store,
    security: Arc<PodSecurity>,
    /// Those without credentials are answered.
    anonymous: bool,
}

/// The connection is to be cut: there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
struct Cut;

type Answer = Response<Either<Body, Full<Bytes>>>;

impl Service<Request<Incoming>> for Gated {
    type Response = Answer;
    type Error = Cut;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Cut>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        if is_check(&request) {
            if !self.anonymous {
                return Box::pin(async { Ok(refusal(401, "Unauthorized")) });
            }
            return Box::pin(async move { Ok(service.answer(request).await) });
        }
        Box::pin(async move {
            match service.gate.enter(call(&request)).await {
                Verdict::Refuse(Fault::Status(code)) => {
                    Ok(refusal(code, "refused by the simulated data centre"))
                }
                Verdict::Refuse(Fault::Throttle) => Ok(throttled()),
                Verdict::Refuse(_) => Err(Cut),
                Verdict::Proceed(ticket) => {
                    let answer = service.answer(request).await;
                    match ticket.leave().await {
                        Leaving::Answer => Ok(answer),
                        Leaving::Lose => Err(Cut),
                    }
                }
            }
        })
    }
}

impl Gated {
    async fn answer(mut self, request: Request<Incoming>) -> Answer {
        let Some(namespace) = creates_pod(&request) else {
            return match self.inner.call(request).await {
                Ok(response) => response.map(Either::Left),
                Err(never) => match never {},
            };
        };
        // Pods that a client makes by itself are judged like those of a workload.
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            return refusal(400, "the request body broke off");
        };
        let pod: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let space = self.store.get("namespaces", &Key::new("", &namespace)).map(|space| space.value());
        if let Some(why) = security::violation(&self.security, space.as_ref(), &namespace, &pod) {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            return refusal(403, &format!("pods {name:?} is forbidden: {why}"));
        }
        match self.inner.call(Request::from_parts(parts, Full::new(body))).await {
            Ok(response) => response.map(Either::Left),
            Err(never) => match never {},
        }
    }
}

/// Whether a load balancer only looks whether this server is there: no call from outside, and no business of the gate.
fn is_check<B>(request: &Request<B>) -> bool {
    let agent = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let health = matches!(request.uri().path(), "/readyz" | "/livez" | "/healthz");
    health && (agent.starts_with("ELB-HealthChecker/") || agent.starts_with("GoogleHC/"))
}

/// The namespace in which a request makes a pod, if it does.
fn creates_pod(request: &Request<Incoming>) -> Option<String> {
    let rest = request.uri().path().strip_prefix("/api/v1/namespaces/")?;
    let (namespace, resource) = rest.split_once('/')?;
    (request.method() == Method::POST && resource == "pods").then(|| namespace.to_string())
}

/// A request in the words of the call log.
fn call<B>(request: &Request<B>) -> Call {
    let path = request.uri().path();
    let watches = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1")));
    let verb = if watches { "WATCH" } else { request.method().as_str() };
    let mut parts = path.trim_matches('/').split('/');
    let depth = if path.starts_with("/apis/") { 3 } else { 2 };
    let rest: Vec<&str> = parts.by_ref().skip(depth).collect();
    let object = match rest.as_slice() {
        ["namespaces", namespace, _, name, ..] => format!("{namespace}/{name}"),
        ["namespaces", namespace, kind] => format!("{namespace}/{kind}"),
        [kind] => (*kind).to_string(),
        [_, name, ..] => (*name).to_string(),
        [] => path.to_string(),
    };
    let mutates = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    Call { system: "kubernetes", operation: format!("{verb} {path}"), object, mutates }
}

fn refusal(code: u16, message: &str) -> Answer {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(status.to_string()))));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn throttled() -> Answer {
    let mut response = refusal(429, "too many requests, please try again later");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_names_in_the_call_log() {
        let named = |method: &str, uri: &str| {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let call = call(&request);
            (call.operation, call.object, call.mutates)
        };
        assert_eq!(
            named("PATCH", "/apis/apps/v1/namespaces/a/deployments/b?fieldManager=butler"),
            ("PATCH /apis/apps/v1/namespaces/a/deployments/b".into(), "a/b".into(), true)
        );
        assert_eq!(
            named("GET", "/api/v1/nodes?watch=true"),
            ("WATCH /api/v1/nodes".into(), "nodes".into(), false)
        );
        assert_eq!(named("GET", "/api/v1/nodes/n1"), ("GET /api/v1/nodes/n1".into(), "n1".into(), false));
        assert_eq!(named("GET", "/version").1, "/version");
    }
}
