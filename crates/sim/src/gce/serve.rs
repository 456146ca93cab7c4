//! The ports: TLS, HTTP, and the gate that every call passes.

use super::request::{Answer, Call, Refusal};
use super::shell::Shell;
use crate::gate::{self, Fault};
use crate::infrastructure::port::{self, Answered, Cut};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER, SERVER};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use std::sync::Arc;

/// An instance's metadata may be large.
const LARGEST_BODY: usize = 4 * 1024 * 1024;
const FLAVOR: HeaderName = HeaderName::from_static("metadata-flavor");

pub(super) async fn answer(shell: Arc<Shell>, metadata: bool, request: Request<Incoming>) -> Answered {
    let (parts, body) = request.into_parts();
    let header = |name: &HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Cut)?.to_bytes();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let host = parts.uri.host().or_else(|| header(&HOST)).unwrap_or_default();
    let host = if metadata { "169.254.169.254" } else { host };
    let mut call = Call::read(host, parts.method.as_str(), target, &body);
    call.token =
        header(&AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).map(ToString::to_string);
    call.metadata_flavor = header(&FLAVOR) == Some("Google");
    pass(&shell, call).await
}

/// Through the gate, and back.
async fn pass(shell: &Arc<Shell>, call: Call) -> Answered {
    let (operation, object, mutates) = shell.describe(&call);
    let told = gate::Call { system: "gce", operation, object, mutates };
    let answer =
        match port::pass(&shell.base.gate, told, async |stale| shell.answer(&call, stale).await).await {
            Ok(answer) => answer,
            Err(Fault::Throttle) => Answer::of(Err(Refusal::throttled())),
            Err(Fault::Status(code)) => Answer::of(Err(Refusal::of_status(code))),
            Err(_) => return Err(Cut),
        };
    Ok(respond(&answer))
}

fn respond(answer: &Answer) -> Response<Full<Bytes>> {
    let (text, kind) = match &answer.body {
        Value::String(text) => (text.clone(), "application/text"),
        other => (other.to_string(), "application/json; charset=UTF-8"),
    };
    let mut response = port::response(answer.status, text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(SERVER, HeaderValue::from_static("ESF"));
    headers.insert(FLAVOR, HeaderValue::from_static("Google"));
    if answer.status == 429 || answer.status == 503 {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
