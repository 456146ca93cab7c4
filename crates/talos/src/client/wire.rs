//! One HTTP/2 connection as the service that the generated clients call. It never reconnects behind the caller's back, so
//! that its end is an event: "the node went away".

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, Uri};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::watch;
use tonic::{Status, body::Body};
use tower_service::Service;

use super::open::Opened;

/// Clones share the connection; it is closed when the last of them is dropped.
#[derive(Clone)]
pub(super) struct Wire {
    sender: http2::SendRequest<Body>,
    over: watch::Receiver<bool>,
    origin: Uri,
}

/// hyper could not use the connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

impl Wire {
    pub(super) async fn start(opened: Opened, origin: Uri) -> io::Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            // Logs and events of a busy node should not stop at the small default window.
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .handshake(TokioIo::new(opened.stream))
            .await
            .map_err(io::Error::other)?;
        let (end, over) = watch::channel(false);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a node ended");
            }
            // Nobody may be listening any more.
            let _ = end.send(true);
        });
        Ok(Self { sender, over, origin })
    }

    pub(super) fn origin(&self) -> Uri {
        self.origin.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Ends when the connection does.
    pub(super) async fn over(&self) {
        // An error means that the sender is gone, and with it the connection.
        let _ = self.over.clone().wait_for(|over| *over).await;
    }
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Readiness is awaited in the call: an error there keeps its source.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut sender = self.sender.clone();
        Box::pin(async move {
            sender.ready().await.map_err(lost)?;
            sender.send_request(request).await.map_err(lost)
        })
    }
}

/// A status with a source: that is how the rest of the client tells a broken connection from a node's own answer.
fn lost(error: hyper::Error) -> Status {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    Status::from_error(Box::new(Lost(text)))
}
