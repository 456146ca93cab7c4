//! The port: TLS, HTTP, and the gate that every call passes.

use super::request::{Answer, Call, Refusal, Service};
use super::shell::Shell;
use super::sign::Arrived;
use crate::gate::{self, Fault};
use crate::infrastructure::port::{self, Answered, Cut};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, SERVER};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use std::collections::BTreeMap;
use std::sync::Arc;

const LARGEST_BODY: usize = 1024 * 1024;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

pub(super) async fn answer(shell: Arc<Shell>, request: Request<Incoming>) -> Answered {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Cut)?.to_bytes();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &parts.headers {
        headers.insert(name.as_str().to_string(), value.to_str().unwrap_or_default().to_string());
    }
    // HTTP/2 has the host in another place; what was signed is the header.
    if let Some(authority) = parts.uri.authority() {
        headers.entry(HOST.as_str().to_string()).or_insert_with(|| authority.to_string());
    }
    let host = headers.get(HOST.as_str()).cloned().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default();
    let at = |service: &Service| host == format!("{}.{}.amazonaws.com", service.name(), shell.region);
    let Some(service) = Service::ALL.into_iter().find(at) else {
        let refusal = Refusal::new("InvalidAction", format!("no service answers at {host}")).with_status(404);
        return Ok(refuse(&shell, Service::Sts, &refusal));
    };
    if parts.method != Method::POST || parts.uri.path() != "/" {
        let refusal = Refusal::new("InvalidAction", "calls are simulated as POST to / only").with_status(405);
        return Ok(refuse(&shell, service, &refusal));
    }
    let Ok(text) = std::str::from_utf8(&body) else {
        let refusal = Refusal::new("MalformedQueryString", "the body is not UTF-8");
        return Ok(refuse(&shell, service, &refusal));
    };
    let call = match service {
        Service::Quotas => super::quotas::read(headers.get("x-amz-target").map_or("", String::as_str), text),
        _ => Call::read(service, text),
    };
    let arrived = Arrived {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        headers: &headers,
        body: &body,
    };
    pass(&shell, &call, &arrived).await
}

/// Through the gate, and back.
async fn pass(shell: &Arc<Shell>, call: &Call, arrived: &Arrived<'_>) -> Answered {
    let (operation, object) = (call.name(), shell.object_of(call));
    let told = gate::Call { system: "aws", operation, object, mutates: call.mutates() };
    let answer = async |stale| shell.answer(call, arrived, stale).await;
    match port::pass(&shell.base.gate, told, answer).await {
        Ok(answer) => Ok(respond(answer, &shell.request_id())),
        Err(fault) => refused(shell, call.service, fault),
    }
}

fn refused(shell: &Shell, service: Service, fault: Fault) -> Answered {
    let ec2 = service == Service::Ec2;
    let refusal = match fault {
        Fault::Throttle if ec2 => {
            Refusal::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503)
        }
        Fault::Throttle => Refusal::new("Throttling", "Rate exceeded"),
        Fault::Status(401 | 403) if ec2 => {
            Refusal::new("UnauthorizedOperation", "You are not authorized to perform this operation.")
                .with_status(403)
        }
        Fault::Status(401 | 403) => Refusal::new("AccessDenied", "Access denied").with_status(403),
        Fault::Status(429) => Refusal::new("Throttling", "Rate exceeded").with_status(429),
        Fault::Status(503) if ec2 => {
            Refusal::new("Unavailable", "The service is unavailable.").with_status(503)
        }
        Fault::Status(503) => {
            Refusal::new("ServiceUnavailable", "The service is unavailable.").with_status(503)
        }
        Fault::Status(code @ 500..) if ec2 => {
            Refusal::new("InternalError", "An internal error has occurred").with_status(code)
        }
        Fault::Status(code @ 500..) => {
            Refusal::new("InternalFailure", "An internal error has occurred").with_status(code)
        }
        Fault::Status(code) => Refusal::new("ValidationError", "simulated failure").with_status(code),
        _ => return Err(Cut),
    };
    Ok(refuse(shell, service, &refusal))
}

fn refuse(shell: &Shell, service: Service, refusal: &Refusal) -> Response<Full<Bytes>> {
    let id = shell.request_id();
    respond(Answer::refused(service, refusal, &id), &id)
}

fn respond(answer: Answer, request_id: &str) -> Response<Full<Bytes>> {
    let mut response = port::response(answer.status, answer.body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml;charset=UTF-8"));
    headers.insert(SERVER, HeaderValue::from_static("AmazonEC2"));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}
