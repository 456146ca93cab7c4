//! The certificates of a simulated node: its own in maintenance, those of the machine's CA afterwards, and the administrator's.

use crate::config::KeyPair as CaPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::time::{Duration, SystemTime};

/// What could not be made or read, and why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PkiError {
    #[error("cannot make {what}")]
    Make { what: &'static str, source: rcgen::Error },
    #[error("cannot read {what}: {why}")]
    Read { what: &'static str, why: String },
}

/// A certificate chain, and the key of its first.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Certificates start a little in the past, as Talos' own do.
const BACKDATED: Duration = Duration::from_secs(10);

fn make<T>(what: &'static str, outcome: Result<T, rcgen::Error>) -> Result<T, PkiError> {
    outcome.map_err(|source| PkiError::Make { what, source })
}

fn valid(params: &mut CertificateParams, lifetime: Duration) {
    let now = SystemTime::now();
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + lifetime).into();
}

/// Maintenance mode: a CA of its own with an empty subject, and a leaf. Gives the chain and the leaf's fingerprint, as a
/// console shows it.
pub(crate) fn maintenance(names: &[String]) -> Result<(Identity, String), PkiError> {
    const WHAT: &str = "the maintenance certificate";
    let ca_key = make(WHAT, KeyPair::generate_for(&PKCS_ED25519))?;
    let mut ca = make(WHAT, CertificateParams::new(Vec::new()))?;
    ca.distinguished_name = DistinguishedName::new();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    valid(&mut ca, 365 * DAY);
    let ca_cert = make(WHAT, ca.self_signed(&ca_key))?;
    let issuer = Issuer::new(ca, ca_key);

    let key = make(WHAT, KeyPair::generate_for(&PKCS_ED25519))?;
    let mut leaf = make(WHAT, CertificateParams::new(names.to_vec()))?;
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, "maintenance-service.talos.dev");
    server_usage(&mut leaf);
    valid(&mut leaf, DAY);
    let cert = make(WHAT, leaf.signed_by(&key, &issuer))?;
    let fingerprint = fingerprint(cert.der())?;
    let chain = vec![cert.der().clone(), ca_cert.der().clone()];
    Ok((Identity { chain, key: private_key(&key) }, fingerprint))
}

/// base64(sha256(subject public key info)).
pub(crate) fn fingerprint(cert: &CertificateDer<'_>) -> Result<String, PkiError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(cert)
        .map_err(|e| PkiError::Read { what: "a certificate", why: e.to_string() })?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parsed.public_key().raw);
    Ok(BASE64.encode(digest))
}

/// The certificate of apid and trustd on a node that holds the CA's key.
pub(crate) fn server(ca: &CaPair, names: &[String]) -> Result<Identity, PkiError> {
    const WHAT: &str = "the certificate of the Talos API";
    let issuer = issuer(ca, "the key of machine.ca")?;
    let key = make(WHAT, KeyPair::generate_for(&PKCS_ED25519))?;
    let mut leaf = make(WHAT, CertificateParams::new(names.to_vec()))?;
    leaf.distinguished_name = DistinguishedName::new();
    server_usage(&mut leaf);
    valid(&mut leaf, DAY);
    let cert = make(WHAT, leaf.signed_by(&key, &issuer))?;
    Ok(Identity { chain: vec![cert.der().clone()], key: private_key(&key) })
}

/// The certificate of kube-apiserver on a control plane.
pub(crate) fn kubernetes_server(ca: &CaPair, names: &[String]) -> Result<Identity, PkiError> {
    const WHAT: &str = "the certificate of the Kubernetes API";
    let issuer = issuer(ca, "the key of cluster.ca")?;
    let key = make(WHAT, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
    let mut leaf = make(WHAT, CertificateParams::new(names.to_vec()))?;
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    leaf.distinguished_name.push(DnType::OrganizationName, "kube-master");
    server_usage(&mut leaf);
    leaf.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    valid(&mut leaf, 365 * DAY);
    let cert = make(WHAT, leaf.signed_by(&key, &issuer))?;
    Ok(Identity { chain: vec![cert.der().clone()], key: private_key(&key) })
}

/// A worker's request to trustd, and the key that stays at home.
pub(crate) fn request(names: &[String]) -> Result<(String, PrivateKeyDer<'static>), PkiError> {
    const WHAT: &str = "a certificate request";
    let key = make(WHAT, KeyPair::generate_for(&PKCS_ED25519))?;
    let mut params = make(WHAT, CertificateParams::new(names.to_vec()))?;
    params.distinguished_name = DistinguishedName::new();
    let csr = make(WHAT, params.serialize_request(&key))?;
    Ok((make(WHAT, csr.pem())?, private_key(&key)))
}

/// What trustd does: signs a request for serving, whatever else it may ask for.
pub(crate) fn sign_request(ca: &CaPair, csr: &str) -> Result<String, PkiError> {
    const WHAT: &str = "a certificate for a worker";
    let issuer = issuer(ca, "the key of machine.ca")?;
    let mut request = make(WHAT, CertificateSigningRequestParams::from_pem(csr))?;
    server_usage(&mut request.params);
    valid(&mut request.params, DAY);
    Ok(make(WHAT, request.signed_by(&issuer))?.pem())
}

/// The administrator's client certificate for Kubernetes: (certificate, key), both PEM.
pub(crate) fn kubernetes_admin(ca: &CaPair, lifetime: Duration) -> Result<(String, String), PkiError> {
    const WHAT: &str = "the administrator's certificate";
    let issuer = issuer(ca, "the key of cluster.ca")?;
    let key = make(WHAT, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
    let mut leaf = make(WHAT, CertificateParams::new(Vec::new()))?;
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, "admin");
    leaf.distinguished_name.push(DnType::OrganizationName, "system:masters");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    leaf.use_authority_key_identifier_extension = true;
    valid(&mut leaf, lifetime);
    let cert = make(WHAT, leaf.signed_by(&key, &issuer))?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn server_usage(params: &mut CertificateParams) {
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

fn issuer(ca: &CaPair, what: &'static str) -> Result<Issuer<'static, KeyPair>, PkiError> {
    let key = load_key(&ca.key, what)?;
    make(what, Issuer::from_ca_cert_pem(&ca.cert, key))
}

/// Reads a key in any of the PEM forms that Talos writes. Its own label for Ed25519 is not in any standard.
fn load_key(pem: &str, what: &'static str) -> Result<KeyPair, PkiError> {
    let standard = pem.replace("ED25519 PRIVATE KEY", "PRIVATE KEY");
    let der = PrivateKeyDer::from_pem_slice(standard.as_bytes())
        .map_err(|e| PkiError::Read { what, why: e.to_string() })?;
    [&PKCS_ED25519, &PKCS_ECDSA_P256_SHA256]
        .into_iter()
        .find_map(|algorithm| KeyPair::from_der_and_sign_algo(&der, algorithm).ok())
        .or_else(|| KeyPair::try_from(&der).ok())
        .ok_or_else(|| PkiError::Read { what, why: "unsupported key type".to_string() })
}

/// All certificates of a PEM text.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| PkiError::Read { what: "a certificate", why: e.to_string() })
}

/// The roles in a client certificate: its organizations.
pub(crate) fn roles(cert: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(cert) else { return Vec::new() };
    parsed
        .subject()
        .iter_organization()
        .filter_map(|name| name.as_str().ok())
        .map(ToString::to_string)
        .collect()
}

/// Whether the extended key usage is `clientAuth` and nothing else.
pub(crate) fn only_client_auth(cert: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(cert) else { return false };
    let Ok(Some(usage)) = parsed.extended_key_usage() else { return false };
    let usage = usage.value;
    let more = usage.any
        || usage.server_auth
        || usage.code_signing
        || usage.email_protection
        || usage.time_stamping
        || usage.ocsp_signing
        || !usage.other.is_empty();
    usage.client_auth && !more
}

/// A name for a machine that stays the same; in the place of Talos' node id.
pub(crate) fn node_id(address: std::net::IpAddr) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, address.to_string().as_bytes());
    BASE64.encode(digest)
}
