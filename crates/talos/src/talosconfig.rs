//! `talosconfig`: how clients reach the Talos API of a cluster.

use crate::pki::{Ca, Certificate, Leaf, Pair, PkiError, PrivateKey, Usage};
use crate::secret::Secret;
use crate::secrets::{SecretsBundle, base64_of};
use crate::yaml::{self, Node, Order};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The file: some contexts, one of which is used when none is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Talosconfig {
    pub context: String,
    pub contexts: BTreeMap<String, TalosContext>,
}

/// How to reach one cluster, and as whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TalosContext {
    /// Where to connect.
    pub endpoints: Vec<String>,
    /// Whom to ask for by default, through an endpoint.
    pub nodes: Vec<String>,
    /// An HTTP proxy to connect through. A field of ours: Talos' own tools ignore it.
    pub proxy_url: Option<String>,
    /// PEM, like the next two.
    pub ca: Option<String>,
    pub crt: Option<String>,
    pub key: Option<Secret>,
    /// What is there beside these, kept as it is.
    pub rest: Map<String, Value>,
}

#[derive(Debug, thiserror::Error)]
pub enum TalosconfigError {
    #[error("cannot make a talosconfig: cannot sign the client certificate")]
    Sign { source: PkiError },
    #[error("cannot read the talosconfig: line {line}: {why}")]
    NotYaml { line: usize, why: String },
    #[error("cannot read the talosconfig: it must be one YAML document, and there are {found}")]
    Documents { found: usize },
    #[error("cannot read the talosconfig: {field} {why}")]
    Field { field: String, why: String },
}

/// The role that may do everything.
pub const ADMIN: &str = "os:admin";

// === impl Talosconfig ===

impl Talosconfig {
    /// A config with one context, named after the cluster, and a client certificate with the role `os:admin`.
    pub fn generate(
        cluster: &str,
        endpoints: Vec<String>,
        secrets: &SecretsBundle,
        not_before: Timestamp,
        life: Duration,
    ) -> Result<Talosconfig, TalosconfigError> {
        let pair = client_certificate(&secrets.os, &[ADMIN], not_before, life)
            .map_err(|source| TalosconfigError::Sign { source })?;
        let context = TalosContext {
            endpoints,
            ca: Some(secrets.os.cert_pem().to_owned()),
            crt: Some(pair.cert_pem),
            key: Some(pair.key_pem),
            ..TalosContext::default()
        };
        Ok(Talosconfig { context: cluster.to_owned(), contexts: [(cluster.to_owned(), context)].into() })
    }

    pub fn from_yaml(text: &str) -> Result<Talosconfig, TalosconfigError> {
        let mut documents = yaml::parse(text);
        if documents.len() != 1 {
            return Err(TalosconfigError::Documents { found: documents.len() });
        }
        let root = documents
            .remove(0)
            .map_err(|error| TalosconfigError::NotYaml { line: error.at.line, why: error.why })?;
        let context = root.get("context").and_then(Node::text).unwrap_or_default().to_owned();
        let mut contexts = BTreeMap::new();
        match root.get("contexts").map(|node| &node.data) {
            Some(yaml::Data::Map(entries)) => {
                for (_, name, node) in entries {
                    contexts.insert(name.clone(), TalosContext::read(name, node)?);
                }
            }
            None => {}
            Some(_) if root.get("contexts").is_some_and(Node::is_null) => {}
            Some(_) => {
                return Err(TalosconfigError::Field { field: "contexts".into(), why: "is not a map".into() });
            }
        }
        Ok(Talosconfig { context, contexts })
    }

    /// The text is secret.
    pub fn to_yaml(&self) -> String {
        let contexts: Map<String, Value> =
            self.contexts.iter().map(|(name, context)| (name.clone(), context.write())).collect();
        yaml::write(&json!({"context": self.context, "contexts": contexts}), &ContextOrder)
    }

    /// The named context, or the one that is chosen in the file.
    pub fn get(&self, name: Option<&str>) -> Option<&TalosContext> {
        self.contexts.get(name.unwrap_or(&self.context))
    }

    /// Takes over the contexts of another config and chooses its context. A name that is there already gets `-1`, `-2`, ...
    pub fn merge(&mut self, other: Talosconfig) {
        for (name, context) in other.contexts {
            let mut free = name.clone();
            let mut number = 0;
            while self.contexts.contains_key(&free) {
                number += 1;
                free = format!("{name}-{number}");
            }
            if name == other.context {
                self.context.clone_from(&free);
            }
            self.contexts.insert(free, context);
        }
    }
}

// === impl TalosContext ===

impl TalosContext {
    /// The client certificate, or why there is none to use.
    pub fn certificate(&self) -> Option<Result<Certificate, PkiError>> {
        self.crt.as_deref().map(Certificate::from_pem)
    }

    pub fn private_key(&self) -> Option<Result<PrivateKey, PkiError>> {
        self.key.as_ref().map(|key| PrivateKey::from_pem(key.expose()))
    }

    fn read(name: &str, node: &Node) -> Result<TalosContext, TalosconfigError> {
        let field = |key: &str, why: &str| TalosconfigError::Field {
            field: format!("contexts.{name}.{key}"),
            why: why.to_owned(),
        };
        let yaml::Data::Map(entries) = &node.data else {
            return Err(TalosconfigError::Field {
                field: format!("contexts.{name}"),
                why: "is not a map".into(),
            });
        };
        let mut context = TalosContext::default();
        for (_, key, node) in entries {
            let list = || -> Result<Vec<String>, TalosconfigError> {
                match &node.data {
                    yaml::Data::List(items) => items
                        .iter()
                        .map(|item| {
                            item.text().map(str::to_owned).ok_or_else(|| field(key, "is not a list of texts"))
                        })
                        .collect(),
                    _ if node.is_null() => Ok(Vec::new()),
                    _ => Err(field(key, "is not a list")),
                }
            };
            let pem = || -> Result<Option<String>, TalosconfigError> {
                let Some(text) = node.text().filter(|text| !text.is_empty()) else { return Ok(None) };
                let pem = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                pem.map(Some).ok_or_else(|| field(key, "is not base64 of PEM text"))
            };
            match key.as_str() {
                "endpoints" => context.endpoints = list()?,
                "nodes" => context.nodes = list()?,
                "proxy-url" => context.proxy_url = node.text().map(str::to_owned),
                "ca" => context.ca = pem()?,
                "crt" => context.crt = pem()?,
                "key" => context.key = pem()?.map(Secret::new),
                _ => {
                    context.rest.insert(key.clone(), node.to_value());
                }
            }
        }
        Ok(context)
    }

    fn write(&self) -> Value {
        let mut map = self.rest.clone();
        map.insert("endpoints".into(), json!(self.endpoints));
        if !self.nodes.is_empty() {
            map.insert("nodes".into(), json!(self.nodes));
        }
        if let Some(url) = &self.proxy_url {
            map.insert("proxy-url".into(), json!(url));
        }
        for (name, pem) in [
            ("ca", self.ca.as_deref()),
            ("crt", self.crt.as_deref()),
            ("key", self.key.as_ref().map(Secret::expose)),
        ] {
            if let Some(pem) = pem {
                map.insert(name.into(), base64_of(pem).into());
            }
        }
        Value::Object(map)
    }
}

/// A client certificate of the Talos API: the roles are its organizations, and it may be used by clients only. The key is of
/// the CA's own kind.
pub fn client_certificate(
    ca: &Ca,
    roles: &[&str],
    not_before: Timestamp,
    life: Duration,
) -> Result<Pair, PkiError> {
    let mut organizations: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
    organizations.sort();
    let leaf = Leaf {
        common_name: None,
        organizations,
        names: Vec::new(),
        usage: Usage::Client,
        key_encipherment: false,
        not_before,
        not_after: not_before.checked_add(life).map_err(|_| PkiError::Time)?,
    };
    ca.issue(ca.key().algorithm(), &leaf)
}

/// The order in which Talos' own tools write a context.
struct ContextOrder;

impl Order for ContextOrder {
    fn keys<'a>(&self, map: &'a Map<String, Value>) -> Vec<&'a str> {
        let place = |key: &str| {
            ["endpoints", "nodes", "proxy-url", "ca", "crt", "key"]
                .iter()
                .position(|known| *known == key)
                .unwrap_or(9)
        };
        let mut keys: Vec<&str> = map.keys().map(String::as_str).collect();
        keys.sort_by_key(|key| place(key));
        keys
    }

    fn below(&self, _key: &str) -> ContextOrder {
        ContextOrder
    }

    fn item(&self) -> ContextOrder {
        ContextOrder
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{CLIENT_LIFE, KeyAlgorithm};
    use crate::secrets::tests::{bundle, now, secret_texts};

    fn config() -> Talosconfig {
        Talosconfig::generate("prod", vec!["10.0.0.1".into()], bundle(), now(), CLIENT_LIFE).unwrap()
    }

    #[test]
    fn it_goes_both_ways() {
        let mut made = config();
        let context = made.contexts.get_mut("prod").unwrap();
        context.nodes = vec!["10.0.0.2".into()];
        context.proxy_url = Some("http://127.0.0.1:3128".into());
        context.rest.insert("cluster".into(), "other".into());
        let text = made.to_yaml();
        assert!(
            text.starts_with(
                "context: prod\ncontexts:\n    prod:\n        endpoints:\n            - 10.0.0.1\n"
            ),
            "{text}"
        );
        assert_eq!(Talosconfig::from_yaml(&text).unwrap(), made);
        assert_eq!(made.get(None), made.get(Some("prod")));
        assert_eq!(made.get(Some("test")), None);
    }

    #[test]
    fn the_certificate_is_an_admins_and_signed_by_the_talos_ca() {
        let made = config();
        let context = made.get(None).unwrap();
        let certificate = context.certificate().unwrap().unwrap();
        assert_eq!(certificate.organizations(), ["os:admin"]);
        assert_eq!(certificate.not_before(), now());
        assert_eq!(certificate.not_after(), now() + CLIENT_LIFE);
        let key = context.private_key().unwrap().unwrap();
        assert_eq!(key.algorithm(), KeyAlgorithm::Ed25519);
        assert_eq!(key.public_key_info().unwrap(), certificate.public_key_info());
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
        assert_eq!(parsed.issuer().to_string(), "O=talos");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| Talosconfig::from_yaml(text).unwrap_err().to_string();
        assert!(error("contexts: {a: {ca: zzz}}").ends_with("contexts.a.ca is not base64 of PEM text"));
        assert!(error("contexts: {a: {endpoints: x}}").ends_with("contexts.a.endpoints is not a list"));
        assert!(error("contexts: [1]").ends_with("contexts is not a map"));
        assert!(error("a: 1\n---\nb: 2\n").ends_with("there are 2"));
        assert_eq!(Talosconfig::from_yaml("context: x\n").unwrap().contexts.len(), 0);
    }

    #[test]
    fn a_clash_gets_a_number() {
        let mut one = config();
        one.merge(config());
        one.merge(config());
        assert_eq!(one.contexts.keys().collect::<Vec<_>>(), ["prod", "prod-1", "prod-2"]);
        assert_eq!(one.context, "prod-2");
    }

    #[test]
    fn keys_are_not_shown() {
        let made = config();
        let key = made.get(None).unwrap().key.as_ref().unwrap().expose().lines().nth(1).unwrap().to_owned();
        let shown = format!("{made:?}");
        assert!(!shown.contains(&key) && shown.contains("<secret>"));
        assert!(secret_texts(bundle()).iter().all(|text| !shown.contains(text)));
    }
}
