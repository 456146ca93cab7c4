//! Certificates against rustls and x509-parser, which did not make them.

use super::*;
use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

fn day(text: &str) -> Timestamp {
    format!("{text}T00:00:00Z").parse().unwrap()
}

fn leaf(usage: Usage, names: Vec<Name>) -> Leaf {
    Leaf {
        common_name: None,
        organizations: vec!["os:admin".into()],
        names,
        usage,
        key_encipherment: false,
        not_before: day("2026-01-01"),
        not_after: day("2027-01-01"),
    }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(day("2026-06-01").as_second() as u64))
}

fn roots(ca: &Ca) -> Arc<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(ca.certificate().der().to_vec())).unwrap();
    Arc::new(roots)
}

#[test]
fn a_ca_is_as_talos_makes_it() {
    for (algorithm, organization) in [
        (KeyAlgorithm::Ed25519, Some("talos")),
        (KeyAlgorithm::P256, Some("etcd")),
        (KeyAlgorithm::P256, None),
    ] {
        let ca = Ca::generate(algorithm, organization, day("2026-01-01"), CA_LIFE).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(ca.certificate().der()).unwrap();
        assert_eq!(parsed.subject().to_string(), organization.map(|o| format!("O={o}")).unwrap_or_default());
        assert_eq!(parsed.subject().as_raw(), parsed.issuer().as_raw());
        let usage = parsed.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        assert_eq!(usage.value.flags, 0b10_0001, "digitalSignature and keyCertSign");
        let extended = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.server_auth && extended.client_auth && extended.other.is_empty());
        let constraints = parsed.basic_constraints().unwrap().unwrap();
        assert!(
            constraints.critical && constraints.value.ca && constraints.value.path_len_constraint.is_none()
        );
        assert_eq!(parsed.extensions().len(), 4, "and a subject key id");
        assert!(parsed.serial.bits() > 120);
        assert_eq!(ca.certificate().not_before(), day("2026-01-01"));
        assert_eq!(ca.certificate().not_after(), day("2035-12-30"));
    }
}

#[test]
fn a_leaf_is_accepted_for_its_use_and_its_names_only() {
    for algorithm in [KeyAlgorithm::Ed25519, KeyAlgorithm::P256] {
        let ca = Ca::generate(algorithm, Some("talos"), day("2026-01-01"), CA_LIFE).unwrap();
        let names = vec![
            Name::Dns("cp-1".into()),
            Name::Ip("10.0.0.1".parse().unwrap()),
            Name::Ip("fd00::1".parse().unwrap()),
        ];
        let pair = ca.issue(algorithm, &leaf(Usage::Server, names)).unwrap();
        let der = CertificateDer::from(Certificate::from_pem(&pair.cert_pem).unwrap().der().to_vec());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots(&ca), provider.clone())
                .build()
                .unwrap();
        for (name, good) in
            [("cp-1", true), ("10.0.0.1", true), ("fd00::1", true), ("10.0.0.2", false), ("cp-2", false)]
        {
            use rustls::client::danger::ServerCertVerifier as _;
            let name = ServerName::try_from(name).unwrap();
            assert_eq!(verifier.verify_server_cert(&der, &[], &name, &[], now()).is_ok(), good, "{name:?}");
        }
        let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(roots(&ca), provider)
            .build()
            .unwrap();
        assert!(clients.verify_client_cert(&der, &[], now()).is_err(), "a server certificate is no client's");
        let client = ca.issue(algorithm, &leaf(Usage::Client, vec![])).unwrap();
        let client = CertificateDer::from(Certificate::from_pem(&client.cert_pem).unwrap().der().to_vec());
        clients.verify_client_cert(&client, &[], now()).unwrap();
    }
}

#[test]
fn a_client_certificate_has_exactly_what_apid_wants() {
    let ca = Ca::generate(KeyAlgorithm::Ed25519, Some("talos"), day("2026-01-01"), CA_LIFE).unwrap();
    let pair = ca.issue(KeyAlgorithm::Ed25519, &leaf(Usage::Client, vec![])).unwrap();
    let certificate = Certificate::from_pem(&pair.cert_pem).unwrap();
    assert_eq!(certificate.organizations(), ["os:admin"]);
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
    assert_eq!(parsed.subject().to_string(), "O=os:admin");
    assert!(parsed.basic_constraints().unwrap().is_none());
    assert!(parsed.subject_alternative_name().unwrap().is_none());
    let extended = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.client_auth && !extended.server_auth && !extended.any && extended.other.is_empty());
    assert_eq!(parsed.key_usage().unwrap().unwrap().value.flags, 1, "digitalSignature");
    let authority = parsed
        .extensions()
        .iter()
        .find_map(|e| match e.parsed_extension() {
            x509_parser::extensions::ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.clone(),
            _ => None,
        })
        .unwrap();
    let (_, parsed_ca) = x509_parser::parse_x509_certificate(ca.certificate().der()).unwrap();
    let subject = parsed_ca
        .extensions()
        .iter()
        .find_map(|e| match e.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        })
        .unwrap();
    assert_eq!(authority.0, subject);
}

#[test]
fn several_organizations_share_one_set() {
    let ca = Ca::generate(KeyAlgorithm::P256, None, day("2026-01-01"), CA_LIFE).unwrap();
    let mut many = leaf(Usage::Client, vec![]);
    many.organizations = vec!["os:reader".into(), "os:admin".into()];
    many.common_name = Some("admin".into());
    let pair = ca.issue(KeyAlgorithm::P256, &many).unwrap();
    let certificate = Certificate::from_pem(&pair.cert_pem).unwrap();
    assert_eq!(certificate.organizations(), ["os:admin", "os:reader"]);
}

#[test]
fn a_foreign_pair_is_caught() {
    let (one, two) = (
        Ca::generate(KeyAlgorithm::P256, None, day("2026-01-01"), CA_LIFE).unwrap(),
        Ca::generate(KeyAlgorithm::P256, None, day("2026-01-01"), CA_LIFE).unwrap(),
    );
    Ca::from_pem(one.cert_pem(), one.key_pem().expose()).unwrap();
    assert!(matches!(Ca::from_pem(one.cert_pem(), two.key_pem().expose()), Err(PkiError::KeyMismatch)));
    assert!(matches!(Certificate::from_pem(one.key_pem().expose()), Err(PkiError::CertificateLabel { .. })));
    let shown = format!("{one:?}");
    assert!(!shown.contains("BEGIN") && shown.contains("PrivateKey(P-256)"), "{shown}");
}
