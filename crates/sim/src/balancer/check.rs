//! One check of one target.

use super::pool::{Probe, Trouble};
use crate::fabric::{Fabric, Stream};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

/// A status line is short; whoever sends more than this without one is no web server.
const HEAD_LIMIT: usize = 4096;

/// Load balancers take any certificate of a target. The handshake itself is real.
static TLS: LazyLock<Option<TlsConnector>> = LazyLock::new(|| {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(TlsConnector::from(Arc::new(config)))
});

/// Checks a target once. How long that may take is the caller's business.
pub(super) async fn run(fabric: &Fabric, target: SocketAddr, probe: &Probe) -> Result<(), Trouble> {
    let stream = fabric.dial(target).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Trouble::Refused,
        _ => Trouble::Timeout,
    })?;
    let Probe::Http { tls, path, good, agent } = probe else { return Ok(()) };
    let status = match tls {
        false => ask(stream, target, path, agent).await,
        true => ask_by_tls(stream, target, path, agent).await,
    };
    match status {
        Ok(status) if Probe::is_good(good, status) => Ok(()),
        Ok(status) => Err(Trouble::Status(status)),
        Err(_) => Err(Trouble::Refused),
    }
}

async fn ask_by_tls(stream: Stream, target: SocketAddr, path: &str, agent: &str) -> io::Result<u16> {
    let connector = TLS.as_ref().ok_or_else(|| io::Error::other("TLS cannot be set up"))?;
    let stream = connector.connect(ServerName::from(target.ip()), stream).await?;
    ask(stream, target, path, agent).await
}

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    target: SocketAddr,
    path: &str,
    agent: &str,
) -> io::Result<u16> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: {agent}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut head = Vec::new();
    while !head.contains(&b'\n') {
        let mut part = [0; 512];
        let count = stream.read(&mut part).await?;
        if count == 0 || head.len() > HEAD_LIMIT {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        head.extend_from_slice(&part[..count]);
    }
    let line = String::from_utf8_lossy(&head);
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    status.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Believes every certificate, and checks that the peer has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
