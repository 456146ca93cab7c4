//! The admin's kubeconfig, made from the secrets alone: no node need be there.

use crate::intent::Endpoint;
use crate::pki::{KeyAlgorithm, Leaf, PkiError, Usage};
use crate::secret::Secret;
use crate::secrets::{SecretsBundle, base64_of};
use crate::yaml;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// Makes a kubeconfig for `admin` in `system:masters`, with the names that Talos gives it. The text is secret.
///
/// `server` is where to connect, usually the cluster's endpoint; a node's own address works before the endpoint does.
pub fn admin_kubeconfig(
    cluster: &str,
    server: &Endpoint,
    secrets: &SecretsBundle,
    not_before: Timestamp,
    life: Duration,
    proxy_url: Option<&str>,
) -> Result<Secret, PkiError> {
    let leaf = Leaf {
        common_name: Some("admin".into()),
        organizations: vec!["system:masters".into()],
        names: Vec::new(),
        usage: Usage::Client,
        key_encipherment: true,
        not_before,
        not_after: not_before.checked_add(life).map_err(|_| PkiError::Time)?,
    };
    let pair = secrets.kubernetes.issue(KeyAlgorithm::P256, &leaf)?;
    let user = format!("admin@{cluster}");
    let mut place = json!({
        "server": server.to_string(),
        "certificate-authority-data": base64_of(secrets.kubernetes.cert_pem()),
    });
    if let Some(url) = proxy_url {
        place["proxy-url"] = url.into();
    }
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": place}],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": base64_of(&pair.cert_pem),
                "client-key-data": base64_of(pair.key_pem.expose()),
            },
        }],
        "contexts": [{"name": user, "context": {"cluster": cluster, "namespace": "default", "user": user}}],
        "current-context": user,
    });
    Ok(Secret::new(yaml::write(&config, &())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{CLIENT_LIFE, Certificate, PrivateKey};
    use crate::secrets::tests::{bundle, now};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    fn config(proxy: Option<&str>) -> Value {
        let server = Endpoint::parse("https://10.0.0.9:6443").unwrap();
        let text = admin_kubeconfig("prod", &server, bundle(), now(), CLIENT_LIFE, proxy).unwrap();
        yaml::parse(text.expose()).remove(0).unwrap().to_value()
    }

    fn pem(value: &Value) -> String {
        String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn it_is_what_talos_makes() {
        let config = config(None);
        assert_eq!(config["current-context"], "admin@prod");
        assert_eq!(
            config["contexts"][0]["context"],
            json!({"cluster": "prod", "namespace": "default", "user": "admin@prod"})
        );
        let cluster = &config["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://10.0.0.9:6443");
        assert_eq!(pem(&cluster["certificate-authority-data"]), bundle().kubernetes.cert_pem());
        assert_eq!(cluster.get("proxy-url"), None);
        let user = &config["users"][0]["user"];
        let certificate = Certificate::from_pem(&pem(&user["client-certificate-data"])).unwrap();
        let key = PrivateKey::from_pem(&pem(&user["client-key-data"])).unwrap();
        assert_eq!(certificate.public_key_info(), key.public_key_info().unwrap());
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
        assert_eq!(parsed.subject().to_string(), "O=system:masters, CN=admin");
        assert_eq!(parsed.issuer().to_string(), "O=kubernetes");
        assert_eq!(
            parsed.key_usage().unwrap().unwrap().value.flags,
            0b101,
            "digitalSignature, keyEncipherment"
        );
        assert_eq!((certificate.not_before(), certificate.not_after()), (now(), now() + CLIENT_LIFE));
    }

    #[test]
    fn a_proxy_is_written_down() {
        assert_eq!(
            config(Some("http://127.0.0.1:3128"))["clusters"][0]["cluster"]["proxy-url"],
            "http://127.0.0.1:3128"
        );
    }
}
