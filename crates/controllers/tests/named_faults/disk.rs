//! The disk under the embedded API: when it is full, every write is refused with the status that this API gives then.

use butler_apiserver::{ApiService, Server, User};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tower_service::Service;

/// The API, on a disk that may be full.
#[derive(Clone)]
struct OnDisk {
    inner: ApiService,
    full: Arc<AtomicBool>,
}

/// A client of an API whose disk is full as long as `full` says so.
pub(crate) fn client(server: &Server, full: Arc<AtomicBool>) -> Client {
    let inner = server.service(User::new("test", &["system:masters"]));
    Client::new(OnDisk { inner, full }, crate::support::NAMESPACE)
}

type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

impl Service<Request<Body>> for OnDisk {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() != Method::GET && self.full.load(Ordering::SeqCst) {
            return Box::pin(async { Ok(refusal()) });
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            answer.await.map(|answer| answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}

fn refusal() -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Internal error occurred: the write was not stored: the disk is full: No space left on device (os error 28)",
        "reason": "InternalError", "code": 507,
    });
    let mut response =
        Response::new(Full::from(status.to_string()).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = http::StatusCode::INSUFFICIENT_STORAGE;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
