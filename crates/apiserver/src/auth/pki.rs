//! The server's own certificates and keys, made at the first start and kept in `<data dir>/pki`.
//!
//! `ca.{crt,key}` sign the others. `apiserver.{crt,key}` are made anew when the names that the server is reached by
//! change, `admin.{crt,key}` are for the kubeconfig, both again before they end. `sa.key` signs service-account tokens.
//! A CA that is already in the folder is used as it is, whoever made it.
//!
//! The first start writes the folder as a whole. Later, keys are written before their certificates: a key that does not
//! fit its certificate is what a crash leaves, and both are replaced.

use super::der;
use super::files::{Folder, write_private};
use super::jwt::AccountKey;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SigningKey as _,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

const DAY: Duration = Duration::from_secs(24 * 3600);
const CA_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// What ends sooner than this is replaced at the start.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Certificates begin in the past, for clients whose clock is behind.
const BACKDATE: Duration = Duration::from_secs(10 * 60);
/// Names by which clients inside a cluster reach the server, and the first address of the default service network.
const CLUSTER_NAMES: [&str; 8] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
];

/// All certificates and keys of one server.
pub struct Pki {
    ca_pem: String,
    ca_der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// The CA's name, byte for byte.
    issuer_name: Vec<u8>,
    serving: Pair,
    admin: Pair,
    account_key: Arc<AccountKey>,
}

/// A certificate and its key, both PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// What a leaf certificate is for.
struct Leaf<'a> {
    file: &'a str,
    purpose: ExtendedKeyUsagePurpose,
    common_name: &'a str,
    organizations: &'a [&'a str],
    names: &'a BTreeSet<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot {operation} {}", path.display())]
    File { operation: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot make a {what}")]
    Make { what: &'static str, source: rcgen::Error },
    #[error("cannot sign a {what}")]
    Sign { what: &'static str },
    #[error("{} is not usable: {problem}", path.display())]
    Unusable { path: PathBuf, problem: &'static str },
    #[error("{name:?} is neither an address nor a host name")]
    HostName { name: String },
    #[error("cannot set up TLS: {problem}")]
    Tls { problem: String },
}

// === impl Pki ===

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

impl Pki {
    /// Loads the folder, and makes what is missing, outdated or near its end. `hosts` are the names and addresses by
    /// which clients reach the server, beside the usual ones.
    pub fn open(data_dir: &Path, hosts: &[String]) -> Result<Self, PkiError> {
        let dir = data_dir.join("pki");
        let mut folder = Folder::open(&dir).map_err(|source| file_error("open folder", &dir, source))?;
        let (ca_pem, ca_der, key) = open_ca(&mut folder)?;
        let (issuer, issuer_name) = issuer(&folder.path("ca.crt"), &ca_der, key)?;
        let mut pki = Self {
            ca_pem,
            ca_der,
            issuer,
            issuer_name,
            serving: Pair::empty(),
            admin: Pair::empty(),
            account_key: Arc::new(open_account_key(&mut folder)?),
        };
        let names = serving_names(hosts);
        pki.serving = pki.open_leaf(
            &mut folder,
            &Leaf {
                file: "apiserver",
                purpose: ExtendedKeyUsagePurpose::ServerAuth,
                common_name: "kube-apiserver",
                organizations: &[],
                names: &names,
            },
        )?;
        pki.admin = pki.open_leaf(
            &mut folder,
            &Leaf {
                file: "admin",
                purpose: ExtendedKeyUsagePurpose::ClientAuth,
                common_name: "kubernetes-admin",
                organizations: &["system:masters"],
                names: &BTreeSet::new(),
            },
        )?;
        folder.commit().map_err(|source| file_error("write folder", &dir, source))?;
        Ok(pki)
    }

    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub fn account_key(&self) -> &Arc<AccountKey> {
        &self.account_key
    }

    /// Certificate and key, PEM, of a client: user `common_name` with `organizations` as groups, for one year.
    pub fn issue_client_cert(
        &self,
        common_name: &str,
        organizations: &[&str],
    ) -> Result<(String, String), PkiError> {
        let pair = self.make_leaf(&Leaf {
            file: "client certificate",
            purpose: ExtendedKeyUsagePurpose::ClientAuth,
            common_name,
            organizations,
            names: &BTreeSet::new(),
        })?;
        Ok((pair.certificate, pair.key))
    }

    /// TLS for the server: own certificate, client certificates of the own CA asked for but not required, HTTP/2 and
    /// HTTP/1.1.
    pub fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca_der.clone()).map_err(tls_error)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(tls_error)?;
        let certificate =
            CertificateDer::from_pem_slice(self.serving.certificate.as_bytes()).map_err(tls_error)?;
        let key = PrivateKeyDer::from_pem_slice(self.serving.key.as_bytes()).map_err(tls_error)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .map_err(tls_error)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Writes a kubeconfig for the administrator, 0600, whole or not at all.
    pub fn write_kubeconfig(&self, path: &Path, server_url: &str, context: &str) -> Result<(), PkiError> {
        let text = self.kubeconfig(server_url, context);
        write_private(path, text.as_bytes()).map_err(|source| file_error("write kubeconfig", path, source))
    }

    /// The text of the administrator's kubeconfig. It holds a private key.
    pub fn kubeconfig(&self, server_url: &str, context: &str) -> String {
        use base64::Engine as _;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        // A JSON string is a YAML string as well, whatever characters it holds.
        let quote = |text: &str| serde_json::Value::from(text).to_string();
        let (server, name, user) = (quote(server_url), quote(context), quote(&format!("{context}-admin")));
        let (ca, certificate, key) =
            (encode(&self.ca_pem), encode(&self.admin.certificate), encode(&self.admin.key));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  cluster:\n    \
             server: {server}\n    certificate-authority-data: {ca}\ncontexts:\n- name: {name}\n  context:\n    \
             cluster: {name}\n    user: {user}\nusers:\n- name: {user}\n  user:\n    \
             client-certificate-data: {certificate}\n    client-key-data: {key}\npreferences: {{}}\n"
        )
    }

    /// The pair in the folder if it will do, else a new one.
    fn open_leaf(&self, folder: &mut Folder, leaf: &Leaf<'_>) -> Result<Pair, PkiError> {
        let (cert_name, key_name) = (format!("{}.crt", leaf.file), format!("{}.key", leaf.file));
        if let (Some(certificate), Some(key)) = (read(folder, &cert_name)?, read(folder, &key_name)?) {
            let pair = Pair { certificate, key };
            if self.still_good(&pair, leaf.names) {
                return Ok(pair);
            }
        }
        let pair = self.make_leaf(leaf)?;
        folder.write(&key_name, &pair.key);
        folder.write(&cert_name, &pair.certificate);
        Ok(pair)
    }

    /// Made by this CA, for these names, with this key, and not about to end.
    fn still_good(&self, pair: &Pair, names: &BTreeSet<String>) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(pair.certificate.as_bytes()) else { return false };
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(&der) else { return false };
        let Ok(key) = KeyPair::from_pem(&pair.key) else { return false };
        let Ok((_, ca)) = x509_parser::parse_x509_certificate(&self.ca_der) else { return false };
        key.subject_public_key_info() == certificate.public_key().raw
            && certificate.issuer().as_raw() == self.issuer_name
            && subject_key_id(&ca).is_some_and(|id| authority_key_id(&certificate) == Some(id))
            && alternative_names(&certificate) == *names
            && lasts(&certificate)
    }

    fn make_leaf(&self, leaf: &Leaf<'_>) -> Result<Pair, PkiError> {
        let what = "certificate";
        let make = |source| PkiError::Make { what, source };
        let mut params = validity(LEAF_LIFE);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![leaf.purpose.clone()];
        params.use_authority_key_identifier_extension = self.has_key_id();
        for name in leaf.names {
            let san = match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(
                    name.as_str().try_into().map_err(|_| PkiError::HostName { name: name.clone() })?,
                ),
            };
            params.subject_alt_names.push(san);
        }
        let key = KeyPair::generate().map_err(make)?;
        let draft = params.signed_by(&key, &self.issuer).map_err(make)?;
        let subject = der::subject(leaf.common_name, leaf.organizations);
        let signed = der::with_names(draft.der(), &self.issuer_name, &subject, |body| {
            self.issuer.key().sign(body).ok()
        })
        .ok_or(PkiError::Sign { what })?;
        Ok(Pair { certificate: pem("CERTIFICATE", &signed), key: key.serialize_pem() })
    }

    fn has_key_id(&self) -> bool {
        x509_parser::parse_x509_certificate(&self.ca_der).is_ok_and(|(_, ca)| subject_key_id(&ca).is_some())
    }
}

impl Pair {
    fn empty() -> Self {
        Self { certificate: String::new(), key: String::new() }
    }
}

/// The CA of the folder, or a new one if there is none. One that is near its end gets a new certificate for the same
/// key, which those who trust the old one still trust.
fn open_ca(folder: &mut Folder) -> Result<(String, CertificateDer<'static>, KeyPair), PkiError> {
    let (cert_path, key_path) = (folder.path("ca.crt"), folder.path("ca.key"));
    let unusable = |path: &Path, problem| PkiError::Unusable { path: path.to_path_buf(), problem };
    let key = match (read(folder, "ca.crt")?, read(folder, "ca.key")?) {
        (Some(pem), Some(key)) => {
            let key =
                KeyPair::from_pem(&key).map_err(|_| unusable(&key_path, "not a private key in PEM form"))?;
            let der = CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|_| unusable(&cert_path, "not a certificate in PEM form"))?;
            let (_, parsed) = x509_parser::parse_x509_certificate(&der)
                .map_err(|_| unusable(&cert_path, "not an X.509 certificate"))?;
            if key.subject_public_key_info() != parsed.public_key().raw {
                return Err(unusable(&cert_path, "it does not belong to ca.key beside it"));
            }
            let ours = parsed.subject().iter_common_name().any(|n| n.as_str() == Ok(CA_NAME));
            if lasts(&parsed) || !ours {
                drop(parsed);
                return Ok((pem, der, key));
            }
            key
        }
        (Some(_), None) => {
            let problem =
                "ca.crt is there without it; restore it, or remove the folder to start with a new CA";
            return Err(unusable(&key_path, problem));
        }
        (None, _) => {
            let key = KeyPair::generate().map_err(|source| PkiError::Make { what: "CA key", source })?;
            folder.write("ca.key", &key.serialize_pem());
            key
        }
    };
    let certificate =
        ca_params().self_signed(&key).map_err(|source| PkiError::Make { what: "CA certificate", source })?;
    folder.write("ca.crt", &certificate.pem());
    Ok((certificate.pem(), certificate.der().clone(), key))
}

const CA_NAME: &str = "butler-kubernetes-ca";

fn ca_params() -> CertificateParams {
    let mut params = validity(CA_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, CA_NAME);
    params
}

/// The CA as the certificate library wants it, and its name.
fn issuer(
    path: &Path,
    ca: &CertificateDer<'_>,
    key: KeyPair,
) -> Result<(Issuer<'static, KeyPair>, Vec<u8>), PkiError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(ca)
        .map_err(|_| PkiError::Unusable { path: path.to_path_buf(), problem: "not an X.509 certificate" })?;
    let mut params = ca_params();
    if let Some(id) = subject_key_id(&parsed) {
        params.key_identifier_method = KeyIdMethod::PreSpecified(id.to_vec());
    }
    Ok((Issuer::new(params, key), parsed.subject().as_raw().to_vec()))
}

fn open_account_key(folder: &mut Folder) -> Result<AccountKey, PkiError> {
    let pem = match read(folder, "sa.key")? {
        Some(pem) => pem,
        None => {
            let key = KeyPair::generate()
                .map_err(|source| PkiError::Make { what: "service-account key", source })?
                .serialize_pem();
            folder.write("sa.key", &key);
            key
        }
    };
    let unusable =
        || PkiError::Unusable { path: folder.path("sa.key"), problem: "not a P-256 private key in PEM form" };
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs8(der)) => AccountKey::from_pkcs8(der.secret_pkcs8_der()),
        Ok(PrivateKeyDer::Sec1(der)) => AccountKey::from_sec1(der.secret_sec1_der()),
        _ => return Err(unusable()),
    }
    .map_err(|_| unusable())
}

fn serving_names(hosts: &[String]) -> BTreeSet<String> {
    let given = hosts.iter().map(String::as_str).filter(|host| {
        // "Every address" is no address to connect to.
        !host.is_empty() && host.parse::<IpAddr>().map_or(true, |address| !address.is_unspecified())
    });
    CLUSTER_NAMES
        .into_iter()
        .chain(given)
        .map(|name| name.parse::<IpAddr>().map_or_else(|_| name.to_ascii_lowercase(), |a| a.to_string()))
        .collect()
}

/// Parameters with begin and end set, and an empty name.
fn validity(life: Duration) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut params = CertificateParams::default();
    params.not_before = epoch + now.saturating_sub(BACKDATE);
    params.not_after = epoch + now + life;
    params.distinguished_name = DistinguishedName::new();
    params
}

fn lasts(certificate: &X509Certificate<'_>) -> bool {
    let left = certificate.validity().time_to_expiration();
    left.is_some_and(|left| left.whole_days() >= RENEW_BEFORE.as_secs().div_ceil(DAY.as_secs()).cast_signed())
        && certificate.validity().is_valid()
}

fn alternative_names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let names = extension.value.general_names.iter();
    names
        .map(|name| match name {
            GeneralName::DNSName(name) => (*name).to_string(),
            GeneralName::IPAddress(bytes) => match **bytes {
                [a, b, c, d] => IpAddr::from([a, b, c, d]).to_string(),
                _ => <[u8; 16]>::try_from(*bytes).map(|b| IpAddr::from(b).to_string()).unwrap_or_default(),
            },
            other => other.to_string(),
        })
        .collect()
}

fn subject_key_id<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    })
}

fn authority_key_id<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = more;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

fn read(folder: &Folder, name: &str) -> Result<Option<String>, PkiError> {
    folder.read(name).map_err(|source| file_error("read", &folder.path(name), source))
}

fn file_error(operation: &'static str, path: &Path, source: std::io::Error) -> PkiError {
    PkiError::File { operation, path: path.to_path_buf(), source }
}

fn tls_error(problem: impl fmt::Display) -> PkiError {
    PkiError::Tls { problem: problem.to_string() }
}

#[cfg(test)]
#[path = "pki_tests.rs"]
mod tests;
