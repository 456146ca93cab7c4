//! The front door: accepts TLS connections and hands their requests to a service.
//!
//! One task per connection. The client certificate is looked at once, after the handshake, and its user travels with
//! each request as [`PeerIdentity`]. Connections that never ask anything are dropped, the number of connections is
//! bounded, and running out of file descriptors slows accepting down instead of ending it.
//!
//! At shutdown no more connections are accepted and running requests may finish; watches, which never would, are ended
//! at once, between two events.

use crate::auth::{PeerIdentity, User};
use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Limits of the front door.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Further clients wait in the kernel's queue.
    pub max_connections: usize,
    pub handshake_timeout: Duration,
    /// From the handshake to the first request, and for the head of each HTTP/1 request.
    pub request_timeout: Duration,
    /// How long running requests may take at shutdown.
    pub grace: Duration,
}

/// A service that answers requests from the network.
pub trait NetworkService<B>:
    Service<Request<Incoming>, Response = Response<B>, Error: Into<Failure>, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
}

type Failure = Box<dyn Error + Send + Sync>;

/// Where connections come from: a port of this computer, or one of a network that only exists in this process.
pub trait Incomings: Send {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection. Dropped halfway, it has taken none.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl<S, B> NetworkService<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<Failure>, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

impl Incomings for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self).await?;
        // Events are small and must not wait for more to come.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        Ok(stream)
    }
}

// === impl ServeOptions ===

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Serves until `shutdown` is ready and running requests are done, with the default limits.
pub async fn serve<S, B>(
    listener: impl Incomings,
    tls: Arc<rustls::ServerConfig>,
    service: S,
    shutdown: impl Future<Output = ()>,
) where
    S: NetworkService<B>,
    B: Body<Data: Buf + Send, Error: Into<Failure>> + Send + Unpin + 'static,
{
    serve_with(listener, tls, service, ServeOptions::default(), shutdown).await;
}

/// [`serve`] with limits of one's own.
pub async fn serve_with<S, B>(
    mut listener: impl Incomings,
    tls: Arc<rustls::ServerConfig>,
    service: S,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) where
    S: NetworkService<B>,
    B: Body<Data: Buf + Send, Error: Into<Failure>> + Send + Unpin + 'static,
{
    let (close, closing) = watch::channel(false);
    let grace = options.grace;
    let door = Arc::new(Door {
        acceptor: TlsAcceptor::from(tls),
        http: http_settings(&options),
        places: Arc::new(Semaphore::new(options.max_connections)),
        options,
        closing,
    });
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut backoff = BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = door.accept(&mut listener) => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                backoff = BACKOFF_MIN;
                let door = door.clone();
                let service = service.clone();
                connections.spawn(async move { door.connection(stream, place, service).await });
            }
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, trying again");
                tokio::select! {
                    () = &mut shutdown => break,
                    () = sleep(backoff) => {}
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
    drop(listener);
    close.send_replace(true);
    if timeout(grace, async { while connections.join_next().await.is_some() {} }).await.is_err() {
        tracing::info!(open = connections.len(), "closing connections that did not finish in time");
    }
    connections.shutdown().await;
}

/// Errors that a client caused, and that say nothing about the next one.
fn is_about_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Windows are wide enough for large objects in few round trips; pings find dead peers of long watches.
fn http_settings(options: &ServeOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(options.request_timeout);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .initial_stream_window_size(512 * 1024)
        .initial_connection_window_size(2 * 1024 * 1024)
        .max_header_list_size(256 * 1024)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    http
}

/// What all connections share.
struct Door {
    acceptor: TlsAcceptor,
    http: auto::Builder<TokioExecutor>,
    places: Arc<Semaphore>,
    options: ServeOptions,
    closing: watch::Receiver<bool>,
}

impl Door {
    /// The next connection, once there is a place for it.
    async fn accept<L: Incomings>(&self, listener: &mut L) -> io::Result<(L::Stream, OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok((listener.accept().await?, place))
    }

    async fn connection<C, S, B>(&self, stream: C, place: OwnedSemaphorePermit, service: S)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: NetworkService<B>,
        B: Body<Data: Buf + Send, Error: Into<Failure>> + Send + Unpin + 'static,
    {
        let _place = place;
        let mut closing = self.closing.clone();
        let handshake = timeout(self.options.handshake_timeout, self.acceptor.accept(stream));
        let stream = tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            done = handshake => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake took too long"),
            },
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let peer = certificates.and_then(|list| User::from_certificate(list.first()?)).map(Arc::new);
        let asked = Arc::new(AtomicBool::new(false));
        let service = PerConnection {
            inner: TowerToHyperService::new(service),
            peer: PeerIdentity(peer),
            asked: asked.clone(),
            closing: closing.clone(),
        };
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        let mut first_request = pin!(sleep(self.options.request_timeout));
        let mut told = false;
        let mut waiting = true;
        loop {
            tokio::select! {
                done = connection.as_mut() => {
                    if let Err(error) = done {
                        tracing::debug!(%error, "connection ended early");
                    }
                    return;
                }
                _ = closing.wait_for(|closing| *closing), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut first_request, if waiting => {
                    waiting = false;
                    if !asked.load(Ordering::Relaxed) {
                        return tracing::debug!("connection asked nothing");
                    }
                }
            }
        }
    }
}

/// The service of one connection: adds who the peer is, and lets go of watches at shutdown.
struct PerConnection<S> {
    inner: TowerToHyperService<S>,
    peer: PeerIdentity,
    asked: Arc<AtomicBool>,
    closing: watch::Receiver<bool>,
}

type Answer<B, E> = Pin<Box<dyn Future<Output = Result<Response<ClosingBody<B>>, E>> + Send>>;

impl<S, B> hyper::service::Service<Request<Incoming>> for PerConnection<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static> + Clone + Send + 'static,
    B: Send + 'static,
{
    type Response = Response<ClosingBody<B>>;
    type Error = S::Error;
    type Future = Answer<B, S::Error>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(self.peer.clone());
        let closing = is_watch(request.uri().query()).then(|| self.closing.clone());
        let answer = self.inner.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| ClosingBody::new(body, closing))) })
    }
}

/// Read as Kubernetes reads a boolean of a query: anything but false and 0.
fn is_watch(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        key == "watch" && value != "0" && !value.eq_ignore_ascii_case("false")
    })
}

/// A response body that ends when the server closes, if it is that of a watch.
struct ClosingBody<B> {
    inner: B,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B> ClosingBody<B> {
    fn new(inner: B, closing: Option<watch::Receiver<bool>>) -> Self {
        let closing = closing.map(|mut closing| {
            let closed = async move {
                let _ = closing.wait_for(|closing| *closing).await;
            };
            Box::pin(closed) as Pin<Box<dyn Future<Output = ()> + Send>>
        });
        Self { inner, closing }
    }
}

impl<B: Body + Unpin> Body for ClosingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        // What is ready is sent first: an event that was promised is not lost.
        if frame.is_pending()
            && let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.closing.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_told_by_their_query() {
        for query in ["watch=true", "watch", "a=b&watch=1", "watch=True&x"] {
            assert!(is_watch(Some(query)), "{query}");
        }
        for query in ["", "watch=0", "watch=False", "rewatch=true", "a=watch"] {
            assert!(!is_watch(Some(query)), "{query}");
        }
        assert!(!is_watch(None));
    }

    #[test]
    fn only_a_clients_own_errors_are_passed_over() {
        assert!(is_about_one_client(&io::ErrorKind::ConnectionAborted.into()));
        // EMFILE: without a pause the loop would spin.
        assert!(!is_about_one_client(&io::Error::from_raw_os_error(24)));
    }
}
