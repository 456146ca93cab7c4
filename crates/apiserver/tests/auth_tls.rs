//! The TLS front with a bare rustls client: who is let in, as whom, and how it ends.

// Functions that only tests call are not seen as tests by the lint.
#![allow(clippy::unwrap_used)]

use butler_apiserver::auth::{PeerIdentity, Pki};
use butler_apiserver::serve::{ServeOptions, serve_with};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Answers with the peer's name; `/slow` when it is told to; watches get one event and never end.
#[derive(Clone, Default)]
struct WhoIsThere {
    slow_begun: Arc<Notify>,
    slow_may_end: Arc<Notify>,
}

impl tower_service::Service<Request<Incoming>> for WhoIsThere {
    type Response = Response<BoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            if request.uri().path() == "/slow" {
                this.slow_begun.notify_one();
                this.slow_may_end.notified().await;
            }
            let PeerIdentity(user) = request.extensions().get().cloned().unwrap();
            let text = user.map_or("nobody".into(), |u| format!("{} {}", u.name, u.groups.join("+")));
            let bytes = Bytes::from(format!("<{text}>"));
            let body = match request.uri().query() {
                Some("watch=true") => Endless(Some(bytes)).boxed(),
                _ => http_body_util::Full::new(bytes).boxed(),
            };
            Ok(Response::new(body))
        })
    }
}

/// One frame, then silence.
struct Endless(Option<Bytes>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

struct Server {
    port: u16,
    pki: Pki,
    service: WhoIsThere,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Server {
    async fn start(options: ServeOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel();
        let tls = pki.server_config().unwrap();
        let service = WhoIsThere::default();
        let task = tokio::spawn(serve_with(listener, tls, service.clone(), options, async {
            let _ = stopped.await;
        }));
        Self { port, pki, service, stop, task, dir }
    }

    async fn connect(
        &self,
        identity: Option<&(String, String)>,
        protocol: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.ca_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// One HTTP/1.1 request on a connection of its own, read to the end.
    async fn get(&self, identity: Option<&(String, String)>, path: &str) -> std::io::Result<String> {
        let mut stream = self.connect(identity, "http/1.1").await?;
        send(&mut stream, path, "close").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn send(stream: &mut TlsStream<TcpStream>, path: &str, connection: &str) -> std::io::Result<()> {
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await
}

/// Reads until `wanted` has come.
async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &str) {
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(wanted) {
        let mut part = [0; 1024];
        let n = stream.read(&mut part).await.unwrap();
        assert_ne!(n, 0, "ended before {wanted:?}: {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&part[..n]);
    }
}

#[tokio::test]
async fn certificates_of_the_own_ca_name_the_peer() {
    let server = Server::start(ServeOptions::default()).await;
    let jane = server.pki.issue_client_cert("jane", &["dev", "ops"]).unwrap();
    let answer = server.get(Some(&jane), "/").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("<jane dev+ops+system:authenticated>"), "{answer}");
    let answer = server.get(None, "/").await.unwrap();
    assert!(answer.ends_with("<nobody>"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn certificates_of_another_ca_and_server_certificates_are_refused() {
    let server = Server::start(ServeOptions::default()).await;
    let dir = tempfile::tempdir().unwrap();
    let foreign = Pki::open(dir.path(), &[]).unwrap().issue_client_cert("root", &["system:masters"]).unwrap();
    assert!(server.get(Some(&foreign), "/").await.is_err());
    let read = |name: &str| std::fs::read_to_string(server.dir.path().join("pki").join(name)).unwrap();
    let serving = (read("apiserver.crt"), read("apiserver.key"));
    assert!(server.get(Some(&serving), "/").await.is_err(), "not made for clients");
    assert!(server.get(None, "/").await.is_ok(), "the door still stands");
    server.end().await;
}

#[tokio::test]
async fn http2_is_spoken_with_room_for_many_streams() {
    let server = Server::start(ServeOptions::default()).await;
    let mut stream = server.connect(None, "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await.unwrap();
    stream.flush().await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut settings = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let max_streams = settings.chunks(6).find(|s| s[..2] == [0, 3]).map(|s| &s[2..]);
    assert_eq!(max_streams, Some(&[0, 0, 0, 250][..]));
    drop(stream);
    server.end().await;
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_ends_watches() {
    let server = Server::start(ServeOptions::default()).await;
    let mut slow = server.connect(None, "http/1.1").await.unwrap();
    let mut watch = server.connect(None, "http/1.1").await.unwrap();
    let mut idle = server.connect(None, "http/1.1").await.unwrap();
    send(&mut idle, "/", "keep-alive").await.unwrap();
    read_until(&mut idle, "<nobody>").await;
    send(&mut watch, "/?watch=true", "keep-alive").await.unwrap();
    read_until(&mut watch, "<nobody>").await;
    send(&mut slow, "/slow", "keep-alive").await.unwrap();
    server.service.slow_begun.notified().await;
    server.stop.send(()).unwrap();
    let mut rest = String::new();
    watch.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "the watch ends as a whole body: {rest:?}");
    assert_eq!(idle.read(&mut [0; 8]).await.unwrap(), 0);
    server.service.slow_may_end.notify_one();
    let mut text = String::new();
    slow.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("<nobody>"), "{text}");
    server.task.await.unwrap();
    assert!(TcpStream::connect(("127.0.0.1", server.port)).await.is_err());
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut() {
    let options = ServeOptions { grace: Duration::from_millis(20), ..ServeOptions::default() };
    let server = Server::start(options).await;
    let mut slow = server.connect(None, "http/1.1").await.unwrap();
    send(&mut slow, "/slow", "keep-alive").await.unwrap();
    server.service.slow_begun.notified().await;
    server.end().await;
    let mut text = String::new();
    let _ = slow.read_to_string(&mut text).await;
    assert_eq!(text, "");
}

#[tokio::test]
async fn silent_clients_are_dropped_and_free_their_place() {
    let options = ServeOptions {
        max_connections: 1,
        handshake_timeout: Duration::from_millis(300),
        request_timeout: Duration::from_millis(300),
        ..ServeOptions::default()
    };
    let server = Server::start(options).await;
    // One that never begins the handshake, and one that never asks; each holds the only place for a while.
    let mut mute = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    assert_eq!(mute.read(&mut [0; 8]).await.unwrap_or(0), 0);
    let mut shy = server.connect(None, "h2").await.unwrap();
    let _ = shy.read_to_end(&mut Vec::new()).await;
    assert!(server.get(None, "/").await.unwrap().ends_with("<nobody>"));
    server.end().await;
}

#[tokio::test]
async fn kube_connects_with_the_written_kubeconfig() {
    let server = Server::start(ServeOptions::default()).await;
    let path = server.dir.path().join("kubeconfig");
    server.pki.write_kubeconfig(&path, &format!("https://127.0.0.1:{}", server.port), "test").unwrap();
    let config = kube::config::Kubeconfig::read_from(&path).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let request = Request::get("/who").body(Vec::new()).unwrap();
    assert_eq!(
        client.request_text(request).await.unwrap(),
        "<kubernetes-admin system:masters+system:authenticated>"
    );
    drop(client);
    server.end().await;
}
