//! The port of an infrastructure: TLS, HTTP, and the gate that every call passes.

use crate::fabric::{FabricListener, Stream};
use crate::gate::{Call, Fault, Gate, Leaving, Verdict};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const HANDSHAKE: Duration = Duration::from_secs(10);

/// The connection is to be cut instead of answered.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut on purpose")]
pub(crate) struct Cut;

/// What becomes of a request.
pub(crate) type Answered = Result<Response<Full<Bytes>>, Cut>;

/// Serves until it is aborted, with TLS or without; its connections end with it.
pub(crate) async fn accept<A, F>(mut listener: FabricListener, tls: Option<Arc<ServerConfig>>, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Answered> + Send + 'static,
{
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream, acceptor.clone(), answer.clone()));
                }
                Err(_) => return,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection<A, F>(stream: Stream, acceptor: Option<TlsAcceptor>, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answered> + Send + 'static,
{
    let Some(acceptor) = acceptor else { return serve(stream, answer).await };
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, answer).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake with a simulated infrastructure failed"),
        Err(_) => tracing::debug!("TLS handshake with a simulated infrastructure timed out"),
    }
}

async fn serve<A, F>(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, answer: A)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answered> + Send + 'static,
{
    let serving = auto::Builder::new(TokioExecutor::new());
    // An error here is a connection that was cut, by either side.
    let _ = serving.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

/// Through the gate, and back. `answer` is told whether it is to be stale. What the caller meets instead of an answer is the
/// error; an answer that is lost is a cut connection.
pub(crate) async fn pass<T>(
    gate: &Gate,
    call: Call,
    answer: impl AsyncFnOnce(bool) -> T,
) -> Result<T, Fault> {
    let ticket = match gate.enter(call).await {
        Verdict::Proceed(ticket) => ticket,
        Verdict::Refuse(fault) => return Err(fault),
    };
    let answer = answer(ticket.is_stale()).await;
    match ticket.leave().await {
        Leaving::Answer => Ok(answer),
        Leaving::Lose => Err(Fault::Reset),
    }
}

/// A response that has no headers yet.
pub(crate) fn response(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
