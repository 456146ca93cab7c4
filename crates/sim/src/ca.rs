//! The certificate authority of the simulated infrastructure: what its API servers show, and what a user puts into `ca.crt`.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Why a certificate or a server's TLS can't be made.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("cannot make {what}")]
    Make { what: &'static str, source: rcgen::Error },
    #[error("cannot set up TLS with a certificate of the simulated CA")]
    Tls(#[from] rustls::Error),
}

/// A CA and its key. Clones are the same CA.
#[derive(Clone)]
pub struct SimCa {
    pem: Arc<str>,
    key_pem: Arc<str>,
}

impl std::fmt::Debug for SimCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimCa").finish_non_exhaustive()
    }
}

fn make<T>(what: &'static str, outcome: Result<T, rcgen::Error>) -> Result<T, CaError> {
    outcome.map_err(|source| CaError::Make { what, source })
}

impl SimCa {
    /// A new CA.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn generate() -> Result<Self, CaError> {
        const WHAT: &str = "the simulated CA";
        let key = make(WHAT, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
        let mut params = make(WHAT, CertificateParams::new(Vec::new()))?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Simulated data centre CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = SystemTime::now();
        params.not_before = (now - DAY).into();
        params.not_after = (now + 3650 * DAY).into();
        let pem = make(WHAT, params.self_signed(&key))?.pem();
        Ok(Self { pem: pem.into(), key_pem: key.serialize_pem().into() })
    }

    /// The CA's certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// TLS for a server with these names and addresses, without client certificates.
    ///
    /// # Errors
    /// When one of the names can't be put into a certificate.
    pub fn server(&self, names: &[String], alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, CaError> {
        const WHAT: &str = "a server's certificate";
        let issuer = make(WHAT, KeyPair::from_pem(&self.key_pem))?;
        let issuer = make(WHAT, Issuer::from_ca_cert_pem(&self.pem, issuer))?;
        let key = make(WHAT, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
        let mut leaf = make(WHAT, CertificateParams::new(names.to_vec()))?;
        leaf.distinguished_name = DistinguishedName::new();
        if let Some(name) = names.first() {
            leaf.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        leaf.is_ca = IsCa::NoCa;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.use_authority_key_identifier_extension = true;
        let now = SystemTime::now();
        leaf.not_before = (now - DAY).into();
        leaf.not_after = (now + 365 * DAY).into();
        let cert = make(WHAT, leaf.signed_by(&key, &issuer))?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    async fn shake(ca: &SimCa, trusted: &SimCa, name: &str) -> bool {
        let server = ca.server(&["pve.example".into(), "10.40.0.5".into()], &[b"http/1.1"]).unwrap();
        let (near, far) = tokio::io::duplex(16 * 1024);
        let mut roots = RootCertStore::empty();
        let der: CertificateDer<'_> = crate::pki::certificates(trusted.pem()).unwrap().remove(0);
        roots.add(der).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_string()).unwrap();
        let (client, _) = tokio::join!(
            TlsConnector::from(Arc::new(client)).connect(name, near),
            TlsAcceptor::from(server).accept(far)
        );
        client.is_ok()
    }

    #[tokio::test]
    async fn a_server_is_believed_under_its_names_and_by_those_who_trust_the_ca() {
        let (ca, other) = (SimCa::generate().unwrap(), SimCa::generate().unwrap());
        assert!(shake(&ca, &ca, "pve.example").await);
        assert!(shake(&ca, &ca, "10.40.0.5").await);
        assert!(!shake(&ca, &ca, "10.40.0.6").await);
        assert!(!shake(&ca, &other, "pve.example").await);
        assert!(!format!("{ca:?}").contains("KEY"));
    }
}
