//! `node` and `nodes`: who answers a request, and how answers of several nodes become one.
//!
//! A request for `node` is handed on as it is. One for `nodes` goes to each, even when that is a single one: every message
//! gets the name of its node, and a failure becomes a message of its own inside an answer that is OK. This works on encoded
//! bytes, because every reply has the same two outer layers.

use super::methods::Method;
use super::{Api, Call, local, refuse};
use crate::machine::Role as NodeRole;
use crate::node::Node;
use butler_talos::api::common::{Empty, EmptyResponse, Metadata};
use butler_talos::api::google::rpc;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;

/// The node that a request is for, and the way there.
enum Target {
    Here,
    Other(Arc<Node>),
    Unreachable(Status),
}

/// Finds who is to answer, and lets them.
pub(super) async fn route(node: Arc<Node>, method: &'static Method, call: Call) -> Response<Body> {
    let header = |name: &str| -> Vec<String> {
        let values = call.headers().get_all(name).into_iter();
        values.filter_map(|value| value.to_str().ok()).map(ToString::to_string).collect()
    };
    let (one, many) = (header("node"), header("nodes"));
    if one.len() > 1 {
        return refuse(Status::invalid_argument("node metadata must be single-valued"));
    }
    if let Some(address) = one.first() {
        return match target(&node, address, true) {
            Target::Here => local(here(node), call).await,
            Target::Other(other) => local(here(other), call).await,
            Target::Unreachable(status) => refuse(status),
        };
    }
    if many.is_empty() {
        return local(here(node), call).await;
    }
    if method.path.starts_with("/cosi.") {
        return refuse(Status::invalid_argument("one-2-many proxying is not supported for COSI methods"));
    }
    let single = many.len() == 1;
    let targets: Vec<_> =
        many.into_iter().map(|address| (target(&node, &address, single), address)).collect();
    if let Some(status) = targets.iter().find_map(|(target, _)| forbidden(target)) {
        return refuse(status);
    }
    if method.streaming { stream(node, targets, call) } else { unary(node, targets, call).await }
}

fn here(node: Arc<Node>) -> Api {
    Api { node }
}

/// A worker does not forward, and says so for the request as a whole.
fn forbidden(target: &Target) -> Option<Status> {
    match target {
        Target::Unreachable(status) if status.code() == tonic::Code::PermissionDenied => Some(status.clone()),
        _ => None,
    }
}

fn target(node: &Arc<Node>, address: &str, single: bool) -> Target {
    let own = node.options.address.to_string() == address || node.hostname() == address;
    if own && (single || node.machine().role() == Some(NodeRole::ControlPlane)) {
        return Target::Here;
    }
    if node.machine().role() == Some(NodeRole::Worker) {
        return Target::Unreachable(Status::permission_denied("no request forwarding"));
    }
    let refused = || {
        Status::unavailable(format!(
            "connection error: desc = \"transport: Error while dialing: dial tcp {address}:50000: connect: connection refused\""
        ))
    };
    let Ok(ip) = address.parse::<IpAddr>() else {
        return Target::Unreachable(Status::internal(format!("invalid target {address:?}")));
    };
    let Some(other) = node.world.upgrade().and_then(|world| world.node(ip)) else {
        return Target::Unreachable(refused());
    };
    let (mine, theirs) = (node.machine(), other.machine());
    if !theirs.serves_apid() {
        return Target::Unreachable(refused());
    }
    let ca =
        |machine: &crate::machine::Machine| machine.config().map(|config| config.parts.os_ca.cert.clone());
    if ca(&mine) != ca(&theirs) {
        return Target::Unreachable(Status::unavailable(
            "connection error: desc = \"transport: authentication handshake failed: tls: failed to verify certificate: \
             x509: certificate signed by unknown authority\"",
        ));
    }
    Target::Other(other)
}

/// All answers in one message: replies are lists, and encoded lists can be put one behind the other.
async fn unary(node: Arc<Node>, targets: Vec<(Target, String)>, call: Call) -> Response<Body> {
    let mut whole = BytesMut::new();
    for (target, name) in targets {
        let outcome = match perform(&node, target, &call).await {
            Ok(mut messages) => messages.recv().await.unwrap_or_else(|| Ok(Bytes::new())),
            Err(status) => Err(status),
        };
        match outcome {
            Ok(message) => whole.extend_from_slice(&named(&message, &name)),
            Err(status) => {
                let message = EmptyResponse { messages: vec![failure(&name, &status)] };
                whole.extend_from_slice(&message.encode_to_vec());
            }
        }
    }
    let (sender, receiver) = mpsc::channel(2);
    let _ = sender.try_send(Ok(Frame::data(framed(&whole))));
    let _ = sender.try_send(Ok(Frame::trailers(ok_trailers())));
    respond(receiver)
}

/// All streams side by side; the answer ends when the last of them does.
fn stream(node: Arc<Node>, targets: Vec<(Target, String)>, call: Call) -> Response<Body> {
    let (sender, receiver) = mpsc::channel(16);
    let mut running = tokio::task::JoinSet::new();
    for (target, name) in targets {
        let (node, call, sender) = (node.clone(), call.clone(), sender.clone());
        running.spawn(async move {
            let mut messages = match perform(&node, target, &call).await {
                Ok(messages) => messages,
                Err(status) => {
                    let message = failure(&name, &status).encode_to_vec();
                    let _ = sender.send(Ok(Frame::data(framed(&message)))).await;
                    return;
                }
            };
            while let Some(outcome) = messages.recv().await {
                let message = match outcome {
                    Ok(message) => {
                        [&message[..], &Empty { metadata: Some(head(&name)) }.encode_to_vec()].concat()
                    }
                    Err(status) => failure(&name, &status).encode_to_vec(),
                };
                if sender.send(Ok(Frame::data(framed(&message)))).await.is_err() {
                    return;
                }
            }
        });
    }
    tokio::spawn(async move {
        tokio::select! {
            () = async { while running.join_next().await.is_some() {} } => {
                let _ = sender.send(Ok(Frame::trailers(ok_trailers()))).await;
            }
            // The caller has gone; dropping the set ends what still runs.
            () = sender.closed() => {}
        }
    });
    respond(receiver)
}

fn respond(receiver: mpsc::Receiver<Result<Frame<Bytes>, Status>>) -> Response<Body> {
    let mut response = Response::new(Body::new(StreamBody::new(ReceiverStream::new(receiver))));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Calls one node and gives its messages one by one, without their frames; the last may be an error.
async fn perform(
    node: &Arc<Node>,
    target: Target,
    call: &Call,
) -> Result<mpsc::Receiver<Result<Bytes, Status>>, Status> {
    let response = match target {
        Target::Here => local(here(node.clone()), call.clone()).await,
        Target::Other(other) => local(here(other), call.clone()).await,
        Target::Unreachable(status) => return Err(status),
    };
    if let Some(status) = failed(response.headers()) {
        return Err(status);
    }
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        tokio::select! {
            () = unframe(response.into_body(), &sender) => {}
            () = sender.closed() => {}
        }
    });
    Ok(receiver)
}

async fn unframe(mut body: Body, sender: &mpsc::Sender<Result<Bytes, Status>>) {
    let mut buffer = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => buffer.extend_from_slice(&data),
            Ok(Err(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(failed) {
                    let _ = sender.send(Err(status)).await;
                }
            }
            Err(status) => {
                let _ = sender.send(Err(status)).await;
                return;
            }
        }
        while let Some(message) = take_message(&mut buffer) {
            if sender.send(Ok(message)).await.is_err() {
                return;
            }
        }
    }
}

/// Cuts one message off the front: a flag, four bytes of length, the message.
fn take_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(buffer.split_to(length).freeze())
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}

fn failed(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers).filter(|status| status.code() != tonic::Code::Ok)
}

fn ok_trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))])
}

fn head(name: &str) -> Metadata {
    Metadata { hostname: name.to_string(), ..Metadata::default() }
}

fn failure(name: &str, status: &Status) -> Empty {
    let code = i32::from(status.code());
    let text = format!("rpc error: code = {:?} desc = {}", status.code(), status.message());
    let detail = rpc::Status { code, message: status.message().to_string(), details: Vec::new() };
    Empty { metadata: Some(Metadata { hostname: name.to_string(), error: text, status: Some(detail) }) }
}

/// Adds the node's name to the one element of an encoded reply.
fn named(reply: &[u8], name: &str) -> Vec<u8> {
    const MESSAGES: u64 = (1 << 3) | 2;
    let extra = Empty { metadata: Some(head(name)) }.encode_to_vec();
    let mut rest = reply;
    let fits = prost::encoding::decode_varint(&mut rest).is_ok_and(|tag| tag == MESSAGES)
        && prost::encoding::decode_varint(&mut rest).is_ok_and(|length| length as usize == rest.len());
    if !fits {
        // A reply of another form is passed on as it is.
        return reply.to_vec();
    }
    let mut whole = Vec::with_capacity(reply.len() + extra.len() + 4);
    prost::encoding::encode_varint(MESSAGES, &mut whole);
    prost::encoding::encode_varint((rest.len() + extra.len()) as u64, &mut whole);
    whole.extend_from_slice(rest);
    whole.extend_from_slice(&extra);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_talos::api::machine::{Hostname, HostnameResponse};

    #[test]
    fn a_reply_gets_the_name_of_its_node() {
        let reply = HostnameResponse { messages: vec![Hostname { metadata: None, hostname: "cp1".into() }] };
        let named = named(&reply.encode_to_vec(), "10.0.0.1");
        let both = [named.clone(), named].concat();
        let read = HostnameResponse::decode(&both[..]).unwrap();
        assert_eq!(read.messages.len(), 2, "replies can be put one behind the other");
        assert_eq!(read.messages[0].hostname, "cp1");
        assert_eq!(read.messages[0].metadata.as_ref().unwrap().hostname, "10.0.0.1");
    }

    #[test]
    fn a_failure_reads_as_an_empty_reply_with_an_error() {
        let message = EmptyResponse { messages: vec![failure("10.0.0.1", &Status::not_found("gone"))] };
        let read = HostnameResponse::decode(&message.encode_to_vec()[..]).unwrap();
        let metadata = read.messages[0].metadata.clone().unwrap();
        assert_eq!(metadata.error, "rpc error: code = NotFound desc = gone");
        assert_eq!(metadata.status.unwrap().code, 5);
    }

    #[test]
    fn messages_are_cut_from_frames_that_come_in_pieces() {
        let whole = [framed(b"one"), framed(b"two")].concat();
        let mut buffer = BytesMut::from(&whole[..6]);
        assert_eq!(take_message(&mut buffer), None);
        buffer.extend_from_slice(&whole[6..]);
        assert_eq!(take_message(&mut buffer).as_deref(), Some(&b"one"[..]));
        assert_eq!(take_message(&mut buffer).as_deref(), Some(&b"two"[..]));
        assert_eq!(take_message(&mut buffer), None);
    }
}
