//! The port: TLS, HTTP, and the gate that every call passes.

use super::request::{Answer, Call, Refusal};
use super::shell::Shell;
use crate::gate::{self, Fault};
use crate::infrastructure::port::{self, Answered, Cut};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HeaderName, SERVER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use std::sync::Arc;

/// pveproxy takes no more than this outside of uploads.
const LARGEST_BODY: usize = 512 * 1024;
const CSRF: HeaderName = HeaderName::from_static("csrfpreventiontoken");

pub(super) async fn answer(shell: Arc<Shell>, request: Request<Incoming>) -> Answered {
    let (parts, body) = request.into_parts();
    let header =
        |name: &HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok()).map(ToString::to_string);
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Cut)?.to_bytes();
    let target = parts.uri.path_and_query().map_or("/", |t| t.as_str());
    let content_type = header(&CONTENT_TYPE).unwrap_or_default();
    let call = match Call::read(parts.method.as_str(), target, &content_type, &body) {
        Ok(Some(call)) => call,
        Ok(None) => return Ok(refuse(404, &format!("no such file '{}'", parts.uri.path()))),
        Err(unreadable) => return Ok(refuse(unreadable.status, &unreadable.why)),
    };
    let call =
        Call { authorization: header(&AUTHORIZATION), cookie: header(&COOKIE), csrf: header(&CSRF), ..call };
    pass(&shell, call).await
}

/// Through the gate, and back.
async fn pass(shell: &Arc<Shell>, mut call: Call) -> Answered {
    let (operation, object) = shell.describe(&call);
    let mutates = call.method != "GET";
    let answer = async |stale| {
        call.stale = stale;
        shell.answer(&call).await
    };
    let told = gate::Call { system: "proxmox", operation, object, mutates };
    match port::pass(&shell.base.gate, told, answer).await {
        Ok(answer) => Ok(respond(answer)),
        Err(fault) => refused(fault),
    }
}

fn refused(fault: Fault) -> Answered {
    match fault {
        Fault::Throttle => Ok(refuse(429, "Too Many Requests")),
        Fault::Status(401) => Ok(refuse(401, "permission denied - invalid PVE ticket")),
        Fault::Status(403) => Ok(refuse(403, "Permission check failed")),
        Fault::Status(500) => Ok(refuse(500, "got timeout")),
        // What pveproxy says when another host, or its own daemon, does not answer.
        Fault::Status(code @ (595..=599)) => Ok(refuse(code, "Connection timed out")),
        Fault::Status(code) => {
            let usual = StatusCode::from_u16(code).ok().and_then(|c| c.canonical_reason());
            Ok(refuse(code, usual.unwrap_or("simulated failure")))
        }
        _ => Err(Cut),
    }
}

fn refuse(status: u16, message: &str) -> Response<Full<Bytes>> {
    respond(Answer::of(Err(Refusal { status, message: message.to_string(), errors: Default::default() })))
}

fn respond(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = port::response(answer.status, answer.body.to_string());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=0"));
    headers.insert(SERVER, HeaderValue::from_static("pve-api-daemon/3.0"));
    // HTTP/2 has no place for it; there the text is in the body alone.
    let line: String = answer.reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if !line.is_empty()
        && let Ok(reason) = ReasonPhrase::try_from(line.into_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    response
}
