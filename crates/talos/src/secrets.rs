//! The secrets of a cluster: all CAs, tokens and keys, in Talos' own `secrets.yaml` form.
//!
//! A bundle belongs to one cluster for life. Used for a second one, the discovery service would mix their members, so a new
//! cluster always gets a bundle of its own.

use crate::contract::Contract;
use crate::pki::{BACKDATE, CA_LIFE, Ca, KeyAlgorithm, PkiError, PrivateKey, random};
use crate::secret::Secret;
use crate::yaml::{self, Node, Order};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Everything that is secret about a cluster.
#[derive(Debug)]
pub struct SecretsBundle {
    /// By which the discovery service tells clusters apart.
    pub cluster_id: Secret,
    /// With which nodes encrypt what they tell the discovery service.
    pub cluster_secret: Secret,
    /// With which kubelets join.
    pub bootstrap_token: Secret,
    pub encryption: EncryptionSecret,
    /// With which workers ask a control plane to sign their certificates.
    pub trustd_token: Secret,
    pub etcd: Ca,
    pub kubernetes: Ca,
    pub aggregator: Ca,
    /// Talos' own CA.
    pub os: Ca,
    pub service_account: PrivateKey,
}

/// With what secrets are encrypted in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncryptionSecret {
    Secretbox(Secret),
    /// Bundles of clusters older than Talos 1.3.
    AesCbc(Secret),
}

/// A new bundle, and how long it took.
#[derive(Debug)]
pub struct Generated {
    pub bundle: SecretsBundle,
    /// The RSA key of the service accounts alone. It is made on a thread of its own, beside the rest.
    pub rsa: Duration,
    /// Everything else.
    pub rest: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error("cannot make the secrets of a cluster: {what}")]
    Generate { what: &'static str, source: PkiError },
    #[error("cannot make the secrets of a cluster: cannot start a thread")]
    Thread { source: std::io::Error },
    #[error("cannot make the secrets of a cluster: the thread that makes the RSA key has stopped")]
    ThreadStopped,
    #[error("cannot read the secrets bundle: it is not YAML: line {line}: {why}")]
    NotYaml { line: usize, why: String },
    #[error("cannot read the secrets bundle: it must be one YAML document, and there are {found}")]
    Documents { found: usize },
    #[error("the secrets bundle is not usable: {}", problems.join("; "))]
    Unusable { problems: Vec<String> },
    #[error("{field} is a key in PKCS#8 form (PEM label PRIVATE KEY), which Talos 1.9 does not read")]
    KeyForm { field: &'static str },
}

const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

// === impl SecretsBundle ===

impl SecretsBundle {
    /// Makes all secrets of a new cluster. The RSA key takes longer than all the rest, so it is begun first.
    pub fn generate(now: Timestamp) -> Result<Generated, SecretsError> {
        let rsa = std::thread::Builder::new()
            .name("rsa".into())
            .spawn(|| {
                let start = Instant::now();
                (PrivateKey::generate(KeyAlgorithm::Rsa), start.elapsed())
            })
            .map_err(|source| SecretsError::Thread { source })?;
        let start = Instant::now();
        let begin = now.checked_sub(BACKDATE).unwrap_or(now);
        let ca = |what, algorithm, organization| {
            Ca::generate(algorithm, organization, begin, CA_LIFE + BACKDATE)
                .map_err(|source| SecretsError::Generate { what, source })
        };
        let etcd = ca("etcd CA", KeyAlgorithm::P256, Some("etcd"))?;
        let kubernetes = ca("Kubernetes CA", KeyAlgorithm::P256, Some("kubernetes"))?;
        // Talos asks for the name front-proxy, and its CA builder drops it: all clusters have this CA without a name.
        let aggregator = ca("aggregator CA", KeyAlgorithm::P256, None)?;
        let os = ca("Talos CA", KeyAlgorithm::Ed25519, Some("talos"))?;
        let drawn = |what| move |source| SecretsError::Generate { what, source };
        let cluster_id = Secret::new(URL_SAFE.encode(random::<32>().map_err(drawn("cluster id"))?));
        let cluster_secret = Secret::new(STANDARD.encode(random::<32>().map_err(drawn("cluster secret"))?));
        let secretbox = Secret::new(STANDARD.encode(random::<32>().map_err(drawn("secretbox secret"))?));
        let bootstrap_token = token().map_err(drawn("bootstrap token"))?;
        let trustd_token = token().map_err(drawn("trustd token"))?;
        let rest = start.elapsed();
        let (service_account, rsa) = rsa.join().map_err(|_| SecretsError::ThreadStopped)?;
        let service_account = service_account.map_err(drawn("service account key"))?;
        let bundle = SecretsBundle {
            cluster_id,
            cluster_secret,
            bootstrap_token,
            encryption: EncryptionSecret::Secretbox(secretbox),
            trustd_token,
            etcd,
            kubernetes,
            aggregator,
            os,
            service_account,
        };
        Ok(Generated { bundle, rsa, rest })
    }

    /// Reads `secrets.yaml`, or its JSON form. All that is wrong is said at once, with the name of the field.
    pub fn from_yaml(text: &str, now: Timestamp) -> Result<SecretsBundle, SecretsError> {
        let mut documents = yaml::parse(text);
        if documents.len() != 1 {
            return Err(SecretsError::Documents { found: documents.len() });
        }
        let node = documents
            .remove(0)
            .map_err(|error| SecretsError::NotYaml { line: error.at.line, why: error.why })?;
        Loader { root: &node, now, problems: Vec::new() }.load()
    }

    /// `secrets.yaml`, as `talosctl gen secrets` writes it. The text is secret.
    pub fn to_yaml(&self) -> String {
        let pair =
            |ca: &Ca| json!({"crt": base64_of(ca.cert_pem()), "key": base64_of(ca.key_pem().expose())});
        let mut secrets = Map::new();
        secrets.insert("bootstraptoken".into(), self.bootstrap_token.expose().into());
        let (name, secret) = match &self.encryption {
            EncryptionSecret::Secretbox(secret) => ("secretboxencryptionsecret", secret),
            EncryptionSecret::AesCbc(secret) => ("aescbcencryptionsecret", secret),
        };
        secrets.insert(name.into(), secret.expose().into());
        let value = json!({
            "cluster": {"id": self.cluster_id.expose(), "secret": self.cluster_secret.expose()},
            "secrets": secrets,
            "trustdinfo": {"token": self.trustd_token.expose()},
            "certs": {
                "etcd": pair(&self.etcd),
                "k8s": pair(&self.kubernetes),
                "k8saggregator": pair(&self.aggregator),
                "k8sserviceaccount": {"key": base64_of(self.service_account.pem().expose())},
                "os": pair(&self.os),
            },
        });
        yaml::write(&value, &FileOrder)
    }

    /// Whether nodes of that contract can read all keys. The node finds out at run time only, and then does not start.
    pub fn check_for(&self, contract: Contract) -> Result<(), SecretsError> {
        if contract > Contract::V1_9 {
            return Ok(());
        }
        let keys = [
            ("certs.etcd.key", self.etcd.key()),
            ("certs.k8s.key", self.kubernetes.key()),
            ("certs.k8saggregator.key", self.aggregator.key()),
            ("certs.k8sserviceaccount.key", &self.service_account),
            ("certs.os.key", self.os.key()),
        ];
        match keys.into_iter().find(|(_, key)| key.pem().expose().contains("-----BEGIN PRIVATE KEY-----")) {
            Some((field, _)) => Err(SecretsError::KeyForm { field }),
            None => Ok(()),
        }
    }
}

pub(crate) fn base64_of(text: &str) -> String {
    STANDARD.encode(text)
}

/// `abcdef.0123456789abcdef`: every character equally likely, because bytes that would favour some are drawn again.
fn token() -> Result<Secret, PkiError> {
    let mut text = String::with_capacity(23);
    while text.len() < 23 {
        for byte in random::<64>()? {
            if text.len() == 6 {
                text.push('.');
            }
            if text.len() < 23 && byte < 252 {
                text.push(char::from(ALPHABET[usize::from(byte % 36)]));
            }
        }
    }
    Ok(Secret::new(text))
}

pub(crate) fn is_token(text: &str) -> bool {
    let word = |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
    text.split_once('.').is_some_and(|(id, secret)| word(id, 6) && word(secret, 16))
}

/// The order of Go's fields, which is not the alphabet's.
struct FileOrder;

impl Order for FileOrder {
    fn keys<'a>(&self, map: &'a Map<String, Value>) -> Vec<&'a str> {
        let place = |key: &str| match key {
            "cluster" | "bootstraptoken" => 0,
            "secrets" | "aescbcencryptionsecret" | "secretboxencryptionsecret" => 1,
            "trustdinfo" => 2,
            _ => 3,
        };
        let mut keys: Vec<&str> = map.keys().map(String::as_str).collect();
        keys.sort_by_key(|key| place(key));
        keys
    }

    fn below(&self, _key: &str) -> FileOrder {
        FileOrder
    }

    fn item(&self) -> FileOrder {
        FileOrder
    }
}

// === impl Loader ===

struct Loader<'a> {
    root: &'a Node,
    now: Timestamp,
    problems: Vec<String>,
}

impl Loader<'_> {
    fn load(mut self) -> Result<SecretsBundle, SecretsError> {
        let cluster_id = self.text("cluster.id");
        let cluster_secret = self.bytes("cluster.secret", &[32]);
        let bootstrap_token = self.token("secrets.bootstraptoken");
        let trustd_token = self.token("trustdinfo.token");
        let encryption = self.encryption();
        let etcd = self.ca("certs.etcd");
        let kubernetes = self.ca("certs.k8s");
        let aggregator = self.ca("certs.k8saggregator");
        let service_account = self.key("certs.k8sserviceaccount.key");
        let os = self.ca("certs.os");
        match (etcd, kubernetes, aggregator, os, service_account, encryption) {
            (
                Some(etcd),
                Some(kubernetes),
                Some(aggregator),
                Some(os),
                Some(service_account),
                Some(encryption),
            ) if self.problems.is_empty() => Ok(SecretsBundle {
                cluster_id: Secret::new(cluster_id.unwrap_or_default()),
                cluster_secret: Secret::new(cluster_secret.unwrap_or_default()),
                bootstrap_token: Secret::new(bootstrap_token.unwrap_or_default()),
                encryption,
                trustd_token: Secret::new(trustd_token.unwrap_or_default()),
                etcd,
                kubernetes,
                aggregator,
                os,
                service_account,
            }),
            _ => Err(SecretsError::Unusable { problems: self.problems }),
        }
    }

    /// The JSON form spells the same names with capitals.
    fn find(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self.root, |node, wanted| match &node.data {
            yaml::Data::Map(entries) => {
                entries.iter().find(|(_, key, _)| key.eq_ignore_ascii_case(wanted)).map(|(_, _, node)| node)
            }
            _ => None,
        })
    }

    fn optional(&self, path: &str) -> Option<String> {
        self.find(path).and_then(Node::text).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn text(&mut self, path: &str) -> Option<String> {
        let text = self.optional(path);
        if text.is_none() {
            self.problems.push(format!("{path} is missing"));
        }
        text
    }

    fn token(&mut self, path: &str) -> Option<String> {
        let token = self.text(path)?;
        if !is_token(&token) {
            self.problems.push(format!(
                "{path} is not a token: 6 and 16 characters of a-z and 0-9 with a dot between"
            ));
        }
        Some(token)
    }

    fn bytes(&mut self, path: &str, lengths: &[usize]) -> Option<String> {
        let text = self.text(path)?;
        match STANDARD.decode(&text) {
            Err(_) => self.problems.push(format!("{path} is not base64")),
            Ok(bytes) if !lengths.contains(&bytes.len()) => {
                self.problems.push(format!("{path} has {} bytes, and must have {}", bytes.len(), lengths[0]));
            }
            Ok(_) => {}
        }
        Some(text)
    }

    fn encryption(&mut self) -> Option<EncryptionSecret> {
        const SECRETBOX: &str = "secrets.secretboxencryptionsecret";
        const AESCBC: &str = "secrets.aescbcencryptionsecret";
        match (self.optional(SECRETBOX), self.optional(AESCBC)) {
            (Some(_), Some(_)) => {
                self.problems.push(format!("only one of {SECRETBOX} and {AESCBC} may be there"));
                None
            }
            (None, Some(_)) => {
                self.bytes(AESCBC, &[32, 24, 16]).map(|text| EncryptionSecret::AesCbc(Secret::new(text)))
            }
            _ => self.bytes(SECRETBOX, &[32]).map(|text| EncryptionSecret::Secretbox(Secret::new(text))),
        }
    }

    /// The PEM text that a field holds in base64.
    fn pem(&mut self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let pem = STANDARD.decode(&text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        if pem.is_none() {
            self.problems.push(format!("{path} is not base64 of PEM text"));
        }
        pem
    }

    fn key(&mut self, path: &str) -> Option<PrivateKey> {
        let pem = self.pem(path)?;
        PrivateKey::from_pem(&pem).map_err(|error| self.problems.push(format!("{path}: {error}"))).ok()
    }

    fn ca(&mut self, path: &str) -> Option<Ca> {
        let (certificate, key) = (self.pem(&format!("{path}.crt")), self.pem(&format!("{path}.key")));
        let (certificate, key) = (certificate?, key?);
        let ca = match Ca::from_pem(&certificate, &key) {
            Ok(ca) => ca,
            Err(error) => {
                let field = match error {
                    PkiError::KeyMismatch => path.to_owned(),
                    PkiError::CertificateLabel { .. } | PkiError::BrokenCertificate => format!("{path}.crt"),
                    PkiError::NotPem if crate::pki::Certificate::from_pem(&certificate).is_err() => {
                        format!("{path}.crt")
                    }
                    _ => format!("{path}.key"),
                };
                self.problems.push(format!("{field}: {error}"));
                return None;
            }
        };
        let certificate = ca.certificate();
        if !certificate.is_ca() {
            self.problems.push(format!("{path}.crt: the certificate is not that of a CA"));
        }
        if certificate.not_after() <= self.now {
            self.problems.push(format!("{path}.crt: the certificate ended on {}", certificate.not_after()));
        }
        if certificate.not_before() > self.now {
            self.problems
                .push(format!("{path}.crt: the certificate begins only on {}", certificate.not_before()));
        }
        Some(ca)
    }
}

#[cfg(test)]
pub(crate) mod tests;
