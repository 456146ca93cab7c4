//! The two faces of port 50000: maintenance, which asks for no certificate, and apid, which checks the caller's.

use crate::pki::{self, Identity, PkiError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::sync::Arc;

/// Why a port can't be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("cannot set up TLS")]
    Rustls(#[from] Error),
    #[error("cannot set up the check of client certificates: {0}")]
    Verifier(String),
}

/// What Talos 1.9 and 1.10 offer: X25519, TLS 1.3, and one cipher suite of TLS 1.2.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let old = aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    provider.cipher_suites.retain(|suite| suite.tls13().is_some() || *suite == old);
    Arc::new(provider)
}

/// Maintenance and trustd: no client certificate is asked for.
pub(crate) fn open(identity: Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)?;
    Ok(finish(config))
}

/// apid: a client certificate of one of these CAs is required.
pub(crate) fn mutual(
    identity: Identity,
    cas: &[CertificateDer<'static>],
    check_key_usage: bool,
    ahead: impl Fn() -> i64 + Send + Sync + 'static,
) -> Result<Arc<ServerConfig>, TlsError> {
    let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(store(cas)?), provider())
        .build()
        .map_err(|e| TlsError::Verifier(e.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Callers {
            inner,
            check_key_usage,
            clock: Clock(Box::new(ahead)),
        }))
        .with_single_cert(identity.chain, identity.key)?;
    Ok(finish(config))
}

/// kube-apiserver: a client certificate is looked at when there is one; HTTP/2 and HTTP/1.1.
pub(crate) fn kubernetes(
    identity: Identity,
    cas: &[CertificateDer<'static>],
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store(cas)?), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| TlsError::Verifier(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A worker that dials trustd.
pub(crate) fn client(cas: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store(cas)?)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn store(cas: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        roots.add(ca.clone())?;
    }
    Ok(roots)
}

fn finish(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// The usual check, plus Talos' own: the extended key usage must be exactly `clientAuth`. Failures give the alerts that a Go
/// server gives, which is what clients tell states apart by.
#[derive(Debug)]
struct Callers {
    inner: Arc<dyn ClientCertVerifier>,
    check_key_usage: bool,
    clock: Clock,
}

/// How many seconds the server's clock is ahead of the right time.
struct Clock(Box<dyn Fn() -> i64 + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({})", (self.0)())
    }
}

impl Clock {
    fn shows(&self, now: UnixTime) -> UnixTime {
        let shown = now.as_secs().saturating_add_signed((self.0)());
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(shown))
    }
}

/// Go knows three alerts for a certificate that fails; rustls has more. This error is the one that gives `bad_certificate`.
const BAD_CERTIFICATE: Error = Error::InvalidCertificate(CertificateError::BadEncoding);

impl ClientCertVerifier for Callers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let now = self.clock.shows(now);
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now).map_err(as_go)?;
        if self.check_key_usage && !pki::only_client_auth(end_entity) {
            return Err(BAD_CERTIFICATE);
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn as_go(error: Error) -> Error {
    use CertificateError as C;
    match error {
        Error::InvalidCertificate(
            C::Expired | C::ExpiredContext { .. } | C::NotValidYet | C::NotValidYetContext { .. },
        ) => Error::InvalidCertificate(C::Expired),
        Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            Error::InvalidCertificate(C::UnknownIssuer)
        }
        Error::InvalidCertificate(_) => BAD_CERTIFICATE,
        other => other,
    }
}
