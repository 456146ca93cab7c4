//! A port: listener, TLS, HTTP/2, and closing it so that nothing of it is left.

use crate::fabric::{Listener, Network, Stream};
use crate::pki;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;

/// How long calls under way may take to end when a port is closed in order.
const GRACE: Duration = Duration::from_millis(500);
const HANDSHAKE: Duration = Duration::from_secs(10);
const BIND_TRIES: u32 = 40;
const BIND_PAUSE: Duration = Duration::from_millis(50);

/// Who calls: the roles in the client certificate; `None` when no certificate is asked for.
pub(crate) type Caller = Option<Vec<String>>;

/// In the extensions of a response: it is not to be sent, the connection is to be cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutConnection;

/// A port that is open.
pub(crate) struct Listening {
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    Graceful,
    AtOnce,
}

impl Listening {
    /// Opens a port; every request goes to `answer`.
    pub(crate) async fn open<A, F>(
        network: &Network,
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        answer: A,
    ) -> Result<Self, io::Error>
    where
        A: Fn(Caller, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = bind(network, address).await?;
        let (stop, stopped) = watch::channel(Stop::No);
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(tls), answer, stopped));
        Ok(Self { stop, task })
    }

    /// Closes the port and ends its connections; when this returns, a dial is refused.
    pub(crate) async fn close(mut self, graceful: bool) {
        let _ = self.stop.send(if graceful { Stop::Graceful } else { Stop::AtOnce });
        let _ = (&mut self.task).await;
    }
}

/// A world that is dropped without being stopped leaves no port behind either.
impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Binds; an address that a client of the last listener still holds is tried again.
async fn bind(network: &Network, address: SocketAddr) -> Result<Listener, io::Error> {
    for _ in 0..BIND_TRIES {
        match network.listen(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(BIND_PAUSE).await,
            outcome => return outcome,
        }
    }
    network.listen(address).await
}

async fn accept<A, F>(
    mut listener: Listener,
    acceptor: TlsAcceptor,
    answer: A,
    mut stopped: watch::Receiver<Stop>,
) where
    A: Fn(Caller, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = told(&mut stopped) => break,
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream, acceptor.clone(), answer.clone(), stopped.clone()));
                }
                // Out of descriptors, say: the next try has to wait a little.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    if *stopped.borrow() == Stop::Graceful {
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, all).await;
    }
    connections.shutdown().await;
}

async fn connection<A, F>(
    stream: Stream,
    acceptor: TlsAcceptor,
    answer: A,
    mut stopped: watch::Receiver<Stop>,
) where
    A: Fn(Caller, Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let (_, session) = stream.get_ref();
    // A gRPC server of Talos' age refuses a peer that has not agreed on HTTP/2.
    if session.alpn_protocol() != Some(b"h2") {
        return tracing::debug!("the peer has not agreed on h2");
    }
    let caller = session.peer_certificates().and_then(<[_]>::first).map(pki::roles);
    let cut = Arc::new(Notify::new());
    let cutter = cut.clone();
    let service = service_fn(move |request| {
        let (answered, cutter) = (answer(caller.clone(), request), cutter.clone());
        async move {
            let response = answered.await;
            if response.extensions().get::<CutConnection>().is_some() {
                cutter.notify_one();
                // The answer must not be faster than the cut.
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => {}
        () = cut.notified() => {}
        () = told(&mut stopped) => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

/// Waits until the port is to be closed.
async fn told(stopped: &mut watch::Receiver<Stop>) {
    // The sender lives as long as the port; when it is gone, so is the port.
    let _ = stopped.wait_for(|stop| *stop != Stop::No).await;
}
