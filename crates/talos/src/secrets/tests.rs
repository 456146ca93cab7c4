//! Bundles: made, saved, loaded, broken.

use super::*;
use std::sync::OnceLock;

/// A bundle that was made by this crate once, for tests that need one and not the time to make it.
const FIXTURE: &str = include_str!("../../tests/data/secrets.yaml");

pub(crate) fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn bundle() -> &'static SecretsBundle {
    static BUNDLE: OnceLock<SecretsBundle> = OnceLock::new();
    BUNDLE.get_or_init(|| SecretsBundle::from_yaml(FIXTURE, now()).unwrap())
}

/// All secret texts of a bundle, as they could leak: whole values and lines of keys.
pub(crate) fn secret_texts(bundle: &SecretsBundle) -> Vec<String> {
    let EncryptionSecret::Secretbox(secretbox) = &bundle.encryption else { panic!("a new bundle") };
    let mut texts: Vec<String> =
        [&bundle.cluster_secret, &bundle.bootstrap_token, &bundle.trustd_token, secretbox]
            .map(|secret| secret.expose().to_owned())
            .to_vec();
    for key in
        [&bundle.etcd, &bundle.kubernetes, &bundle.aggregator, &bundle.os].map(|ca| ca.key_pem().expose())
    {
        texts.push(base64_of(key)[60..100].to_owned());
        texts.push(key.lines().nth(1).unwrap().to_owned());
    }
    texts.push(bundle.service_account.pem().expose().lines().nth(1).unwrap().to_owned());
    texts
}

#[test]
fn a_new_bundle_is_loaded_again_as_it_was() {
    let made = SecretsBundle::generate(now()).unwrap();
    assert!(!made.rsa.is_zero() && !made.rest.is_zero());
    let text = made.bundle.to_yaml();
    let again = SecretsBundle::from_yaml(&text, now()).unwrap();
    assert_eq!(again.to_yaml(), text);
    assert_eq!(again.service_account.algorithm(), KeyAlgorithm::Rsa);
    assert_eq!(again.service_account.bits(), 4096);
    assert_eq!(again.os.key().algorithm(), KeyAlgorithm::Ed25519);
    for contract in Contract::ALL {
        again.check_for(contract).unwrap();
    }
    let keys: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(keys, ["cluster:", "secrets:", "trustdinfo:", "certs:"]);
    // Nothing is drawn twice.
    let other = SecretsBundle::from_yaml(FIXTURE, now()).unwrap();
    assert_ne!(other.cluster_secret, again.cluster_secret);
}

#[test]
fn the_fixture_is_what_we_write() {
    assert_eq!(bundle().to_yaml(), FIXTURE);
}

#[test]
fn the_json_form_is_read_too() {
    let b = bundle();
    let pair = |ca: &Ca| json!({"crt": base64_of(ca.cert_pem()), "key": base64_of(ca.key_pem().expose())});
    let EncryptionSecret::Secretbox(secretbox) = &b.encryption else { panic!() };
    let text = json!({
        "Cluster": {"Id": b.cluster_id.expose(), "Secret": b.cluster_secret.expose()},
        "Secrets": {"BootstrapToken": b.bootstrap_token.expose(), "SecretboxEncryptionSecret": secretbox.expose()},
        "TrustdInfo": {"Token": b.trustd_token.expose()},
        "Certs": {
            "Etcd": pair(&b.etcd), "K8s": pair(&b.kubernetes), "K8sAggregator": pair(&b.aggregator), "OS": pair(&b.os),
            "K8sServiceAccount": {"key": base64_of(b.service_account.pem().expose())},
        },
    });
    let read = SecretsBundle::from_yaml(&text.to_string(), now()).unwrap();
    assert_eq!(read.to_yaml(), b.to_yaml());
}

fn problems(text: &str, at: Timestamp) -> Vec<String> {
    match SecretsBundle::from_yaml(text, at) {
        Err(SecretsError::Unusable { problems }) => problems,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_problem_names_its_field() {
    let base = yaml::parse(FIXTURE).remove(0).unwrap().to_value();
    let other = Ca::generate(KeyAlgorithm::P256, Some("etcd"), now(), CA_LIFE).unwrap();
    let not_ca = {
        let leaf = crate::pki::Leaf {
            common_name: None,
            organizations: vec![],
            names: vec![],
            usage: crate::pki::Usage::Client,
            key_encipherment: false,
            not_before: now(),
            not_after: now() + CA_LIFE,
        };
        bundle().etcd.issue(KeyAlgorithm::P256, &leaf).unwrap()
    };
    let b64 = |text: &str| Value::from(base64_of(text));
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/cluster/id", Value::Null, "cluster.id is missing"),
        ("/cluster/secret", "!!".into(), "cluster.secret is not base64"),
        ("/cluster/secret", "QUJD".into(), "cluster.secret has 3 bytes, and must have 32"),
        (
            "/secrets/bootstraptoken",
            "ABCDEF.0123456789abcdef".into(),
            "secrets.bootstraptoken is not a token",
        ),
        ("/trustdinfo/token", "abc".into(), "trustdinfo.token is not a token"),
        ("/secrets/secretboxencryptionsecret", "".into(), "secrets.secretboxencryptionsecret is missing"),
        ("/certs/etcd/crt", "zzz".into(), "certs.etcd.crt is not base64 of PEM text"),
        ("/certs/etcd/crt", b64("hello"), "certs.etcd.crt: not in PEM form"),
        ("/certs/k8s/key", b64("hello"), "certs.k8s.key: not in PEM form"),
        ("/certs/etcd/crt", b64(other.cert_pem()), "certs.etcd: the certificate does not belong to the key"),
        ("/certs/etcd/key", b64(other.cert_pem()), "certs.etcd.key: the PEM label \"CERTIFICATE\""),
        ("/certs/k8sserviceaccount/key", Value::Null, "certs.k8sserviceaccount.key is missing"),
        ("/certs/os", Value::Null, "certs.os.crt is missing"),
    ];
    for (pointer, value, wanted) in cases {
        let mut changed = base.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let found = problems(&changed.to_string(), now());
        assert!(found.iter().any(|problem| problem.starts_with(wanted)), "{pointer}: {found:?}");
    }
    let mut changed = base.clone();
    changed["certs"]["etcd"] =
        json!({"crt": base64_of(&not_ca.cert_pem), "key": base64_of(not_ca.key_pem.expose())});
    assert_eq!(
        problems(&changed.to_string(), now()),
        ["certs.etcd.crt: the certificate is not that of a CA"]
    );
    changed = base;
    changed["secrets"]["aescbcencryptionsecret"] = changed["secrets"]["secretboxencryptionsecret"].clone();
    assert!(problems(&changed.to_string(), now())[0].starts_with("only one of"));
}

#[test]
fn time_is_checked() {
    let late = problems(FIXTURE, "2050-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(late.len(), 4);
    assert!(late.iter().all(|problem| problem.contains("the certificate ended on")), "{late:?}");
    let early = problems(FIXTURE, "2001-01-01T00:00:00Z".parse().unwrap());
    assert!(early.iter().all(|problem| problem.contains("begins only on")), "{early:?}");
}

#[test]
fn all_problems_come_at_once() {
    let found = problems("{}", now());
    assert_eq!(found.len(), 14, "{found:?}");
    assert!(matches!(SecretsBundle::from_yaml("a: [", now()), Err(SecretsError::NotYaml { line: 1.., .. })));
    assert!(matches!(SecretsBundle::from_yaml("", now()), Err(SecretsError::Documents { found: 0 })));
}

#[test]
fn talos_1_9_wants_the_old_labels() {
    let pem = |der: &[u8]| {
        let body = STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    };
    let mut changed = yaml::parse(FIXTURE).remove(0).unwrap().to_value();
    changed["certs"]["os"]["key"] = base64_of(&pem(&bundle().os.key().pkcs8_der().unwrap())).into();
    let read = SecretsBundle::from_yaml(&changed.to_string(), now()).unwrap();
    assert!(matches!(read.check_for(Contract::V1_9), Err(SecretsError::KeyForm { field: "certs.os.key" })));
    read.check_for(Contract::V1_10).unwrap();
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?}", bundle());
    for text in secret_texts(bundle()) {
        assert!(!shown.contains(&text), "{shown}");
        // Not in errors about the text either.
        let broken = FIXTURE.replace("certs:", "certz:").replace("token: ", "token: x");
        let error = SecretsBundle::from_yaml(&broken, now()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(&text));
    }
}

#[test]
fn tokens_are_tokens() {
    for _ in 0..200 {
        assert!(is_token(token().unwrap().expose()));
    }
    for bad in
        ["", ".", "abcdef", "abcdef.0123456789abcde", "abcde.f0123456789abcdef", "abcdef.0123456789abcdeF"]
    {
        assert!(!is_token(bad), "{bad}");
    }
}
