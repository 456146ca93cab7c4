//! TLS to a node: our client certificate against its OS CA, or, in maintenance mode, anyone with a pinned key.

use std::{
    fmt, io,
    str::FromStr,
    sync::{Arc, OnceLock},
};

use ::aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::address::Malformed;
use crate::{secret::Secret, talosconfig::TalosContext};

/// SHA-256 of a certificate's public key (SPKI), in base64: what a Talos console shows in maintenance mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a certificate in DER form.
    pub fn of(certificate: &[u8]) -> Result<Self, Malformed> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|_| Malformed::new("certificate", "(DER)", "can't be parsed"))?;
        Ok(Self(BASE64_STANDARD.encode(digest(&SHA256, parsed.tbs_certificate.subject_pki.raw))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fingerprint {
    type Err = Malformed;

    fn from_str(given: &str) -> Result<Self, Malformed> {
        match BASE64_STANDARD.decode(given.trim()) {
            Ok(bytes) if bytes.len() == 32 => Ok(Self(given.trim().to_owned())),
            _ => Err(Malformed::new("certificate fingerprint", given, "is not the base64 of 32 bytes")),
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The OS CA of a cluster, and a client certificate with its key: one context of a talosconfig.
#[derive(Clone)]
pub struct Credentials {
    cas: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl Credentials {
    /// Of a talosconfig's context, which has to have all three: CA, certificate and key.
    pub fn from_context(context: &TalosContext) -> Result<Self, Malformed> {
        fn part<'a>(what: &str, text: Option<&'a str>) -> Result<&'a str, Malformed> {
            text.filter(|text| !text.is_empty())
                .ok_or_else(|| Malformed::new("talosconfig", what, "is missing in the context"))
        }
        Self::from_pem(
            part("ca", context.ca.as_deref())?,
            part("crt", context.crt.as_deref())?,
            part("key", context.key.as_ref().map(Secret::expose))?,
        )
    }

    /// From PEM texts. Talos' own label `ED25519 PRIVATE KEY` is understood.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, Malformed> {
        // The key's text is never part of an error.
        let bad = |what, why| Malformed::new(what, "(PEM)", why);
        let certificates = |what, pem: &str| match CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
        {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(bad(what, "holds no certificate")),
        };
        let key = key.replace("ED25519 PRIVATE KEY", "PRIVATE KEY");
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| bad("client key", "holds no private key"))?;
        let credentials = Self {
            cas: certificates("OS CA", ca)?,
            chain: certificates("client certificate", certificate)?,
            key: Arc::new(key),
        };
        // Found here, a key that does not fit is named; found later it would look like a broken node.
        credentials
            .client_config(&provider(), Arc::new(Seen::default()))
            .map_err(|_| bad("client certificate", "does not fit its key or the CA"))?;
        Ok(credentials)
    }

    fn client_config(
        &self,
        provider: &Arc<CryptoProvider>,
        seen: Arc<Seen>,
    ) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        for ca in &self.cas {
            roots.add(ca.clone())?;
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| TlsError::General(error.to_string()))?;
        let verifier = Verifier { check: Check::Ca(webpki), provider: provider.clone(), seen };
        builder(provider, verifier)?.with_client_auth_cert(self.chain.clone(), self.key.clone_key())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// How we and the node prove ourselves to each other.
#[derive(Debug, Clone)]
pub enum Access {
    /// No proof by us; of the node only the key that the pin names, if there is one.
    Maintenance { pin: Option<Fingerprint> },
    /// Both by the OS CA.
    Mutual(Credentials),
}

/// What a handshake showed, told even when it failed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    leaf: OnceLock<Fingerprint>,
}

impl Seen {
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.leaf.get().cloned()
    }
}

/// The pinned key was not the one the node has.
#[derive(Debug, thiserror::Error)]
#[error("the node's key has the fingerprint {found}, not the pinned {pinned}")]
pub(super) struct PinMismatch {
    pub(super) pinned: Fingerprint,
    pub(super) found: Fingerprint,
}

pub(super) fn client_config(access: &Access, seen: Arc<Seen>) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let mut config = match access {
        Access::Mutual(credentials) => credentials.client_config(&provider, seen)?,
        Access::Maintenance { pin } => {
            let verifier = Verifier { check: Check::Pin(pin.clone()), provider: provider.clone(), seen };
            builder(&provider, verifier)?.with_no_client_auth()
        }
    };
    // A node with grpc-go 1.67 or newer hangs up on a client that does not ask for HTTP/2 by name.
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the look at the certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn builder(
    provider: &Arc<CryptoProvider>,
    verifier: Verifier,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

#[derive(Debug)]
enum Check {
    Ca(Arc<WebPkiServerVerifier>),
    Pin(Option<Fingerprint>),
}

/// Notes the leaf's fingerprint, then checks it. Handshake signatures are checked in every case: the peer has the key.
#[derive(Debug)]
struct Verifier {
    check: Check,
    provider: Arc<CryptoProvider>,
    seen: Arc<Seen>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let found = Fingerprint::of(leaf).map_err(|_| CertificateError::BadEncoding)?;
        // One handshake shows one leaf: a second look would set the same.
        let _ = self.seen.leaf.set(found.clone());
        match &self.check {
            Check::Ca(webpki) => webpki.verify_server_cert(leaf, intermediates, name, ocsp, now),
            Check::Pin(Some(pinned)) if *pinned != found => {
                let mismatch = PinMismatch { pinned: pinned.clone(), found };
                Err(CertificateError::Other(rustls::OtherError(Arc::new(mismatch))).into())
            }
            Check::Pin(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The TLS error inside an IO error, where tokio-rustls puts it.
pub(super) fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}
