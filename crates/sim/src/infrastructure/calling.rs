//! For tests: a client of an infrastructure.

use crate::fabric::Stream;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// One call on a connection of its own. `None` when the connection was cut.
pub(crate) async fn send(
    stream: Stream,
    ca_pem: &str,
    host: &str,
    request: Request<String>,
) -> Option<Response<Bytes>> {
    let mut roots = RootCertStore::empty();
    roots.add(crate::pki::certificates(ca_pem).unwrap().remove(0)).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_string()).unwrap();
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (parts, body) =
        sender.send_request(request.map(|body| Full::new(Bytes::from(body)))).await.ok()?.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    drop(sender);
    let _ = connection.await;
    Some(Response::from_parts(parts, body))
}
