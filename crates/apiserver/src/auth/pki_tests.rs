//! What is kept, what is renewed, what is refused.

use super::*;
use crate::auth::User;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn read_all(dir: &Path) -> Vec<(String, String)> {
    let mut out: Vec<_> = fs::read_dir(dir.join("pki"))
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| (e.file_name().into_string().unwrap(), fs::read_to_string(e.path()).unwrap()))
        .collect();
    out.sort();
    out
}

fn changed(before: &[(String, String)], after: &[(String, String)]) -> Vec<String> {
    assert_eq!(before.len(), after.len());
    before.iter().zip(after).filter(|(a, b)| a != b).map(|(a, _)| a.0.clone()).collect()
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

#[test]
fn the_second_start_changes_nothing_and_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), &["example.org".into()]).unwrap();
    let before = read_all(dir.path());
    Pki::open(dir.path(), &["example.org".into()]).unwrap();
    assert_eq!(changed(&before, &read_all(dir.path())), [""; 0]);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "ca.crt", "ca.key", "sa.key"]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("pki")), 0o700);
    for name in names {
        assert_eq!(mode(&dir.path().join("pki").join(name)), 0o600, "{name}");
    }
}

#[test]
fn only_the_serving_pair_follows_the_names() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), &[]).unwrap();
    let before = read_all(dir.path());
    let pki = Pki::open(dir.path(), &["10.1.2.3".into(), "0.0.0.0".into(), "Host.Example".into()]).unwrap();
    assert_eq!(changed(&before, &read_all(dir.path())), ["apiserver.crt", "apiserver.key"]);
    let der = certificate(&pki.serving.certificate);
    let names = alternative_names(&x509_parser::parse_x509_certificate(&der).unwrap().1);
    for wanted in CLUSTER_NAMES.into_iter().chain(["10.1.2.3", "host.example"]) {
        assert!(names.contains(wanted), "{wanted} in {names:?}");
    }
    assert_eq!(names.len(), CLUSTER_NAMES.len() + 2);
}

#[test]
fn broken_leaves_are_made_again_and_a_new_ca_renews_all() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), &[]).unwrap();
    let before = read_all(dir.path());
    let at = |name: &str| dir.path().join("pki").join(name);
    fs::write(at("apiserver.crt"), "torn").unwrap();
    fs::copy(at("ca.key"), at("admin.key")).unwrap();
    Pki::open(dir.path(), &[]).unwrap();
    assert_eq!(
        changed(&before, &read_all(dir.path())),
        ["admin.crt", "admin.key", "apiserver.crt", "apiserver.key"]
    );
    // A key without its certificate is what a crash at the first start leaves.
    let before = read_all(dir.path());
    fs::remove_file(at("ca.crt")).unwrap();
    Pki::open(dir.path(), &[]).unwrap();
    assert_eq!(
        changed(&before, &read_all(dir.path())),
        ["admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "ca.crt", "ca.key"]
    );
}

#[test]
fn a_lost_or_foreign_ca_key_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), &[]).unwrap();
    let key = dir.path().join("pki/ca.key");
    fs::copy(dir.path().join("pki/sa.key"), &key).unwrap();
    let text = Pki::open(dir.path(), &[]).unwrap_err().to_string();
    assert!(text.ends_with("ca.crt is not usable: it does not belong to ca.key beside it"), "{text}");
    fs::remove_file(&key).unwrap();
    let text = Pki::open(dir.path(), &[]).unwrap_err().to_string();
    assert!(text.contains("remove the folder to start with a new CA"), "{text}");
    fs::write(&key, "x").unwrap();
    assert!(Pki::open(dir.path(), &[]).unwrap_err().to_string().contains("not a private key"));
}

/// The key in the older form that other tools write.
fn sec1_pem(key: &KeyPair) -> String {
    use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.serialized_der()).unwrap();
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    pem("EC PRIVATE KEY", der.as_ref())
}

#[test]
fn a_ca_brought_from_elsewhere_is_used_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("pki");
    fs::create_dir(&folder).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = ca_params();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "kubernetes");
    fs::write(folder.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("ca.key"), sec1_pem(&key)).unwrap();
    fs::write(folder.join("sa.key"), sec1_pem(&KeyPair::generate().unwrap())).unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    let der = certificate(&pki.admin.certificate);
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert_eq!(parsed.issuer().to_string(), "O=kubernetes");
    let before = read_all(dir.path());
    Pki::open(dir.path(), &[]).unwrap();
    assert_eq!(changed(&before, &read_all(dir.path())), [""; 0]);
    assert!(pki.server_config().is_ok());
}

#[test]
fn certificates_name_users_with_all_their_groups() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    let admin = User::from_certificate(&certificate(&pki.admin.certificate)).unwrap();
    assert_eq!(admin.name, "kubernetes-admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    let long = "x".repeat(300);
    let (pem, _) = pki.issue_client_cert("jané", &["dev", "ops", &long]).unwrap();
    let user = User::from_certificate(&certificate(&pem)).unwrap();
    assert_eq!((user.name.as_str(), user.groups.len()), ("jané", 4));
    assert_eq!(user.groups[..3], ["dev".to_string(), "ops".into(), long]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
    let (pem, _) = pki.issue_client_cert("", &["dev"]).unwrap();
    assert_eq!(User::from_certificate(&certificate(&pem)), None, "no name, no user");
}

#[test]
fn certificates_begin_in_the_past_and_last_as_long_as_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    for (pem, days) in [(&pki.ca_pem, 3650), (&pki.serving.certificate, 365), (&pki.admin.certificate, 365)] {
        let der = certificate(pem);
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let validity = parsed.validity();
        let life = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert_eq!(life, days * 24 * 3600 + 600);
        assert!(lasts(&parsed));
    }
    let key = KeyPair::generate().unwrap();
    let short = validity(DAY * 29).self_signed(&key).unwrap();
    assert!(!lasts(&x509_parser::parse_x509_certificate(short.der()).unwrap().1));
}

#[test]
fn the_kubeconfig_is_private_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    let path = dir.path().join("kubeconfig");
    fs::write(&path, "old").unwrap();
    pki.write_kubeconfig(&path, "https://127.0.0.1:6443", "a: \"b\"").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let config = kube::config::Kubeconfig::read_from(&path).unwrap();
    assert_eq!(config.current_context.as_deref(), Some("a: \"b\""));
    assert_eq!(
        config.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
        Some("https://127.0.0.1:6443")
    );
    assert!(config.auth_infos[0].auth_info.as_ref().unwrap().client_key_data.is_some());
}

#[test]
fn debug_and_errors_show_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    assert_eq!(format!("{pki:?}"), "Pki { .. }");
    let refused = pki.write_kubeconfig(&dir.path().join("no/such/folder"), "https://x", "c").unwrap_err();
    assert!(!format!("{refused:?} {refused}").contains("PRIVATE"), "{refused:?}");
    assert!(matches!(Pki::open(dir.path(), &["bad name\u{e9}".into()]), Err(PkiError::HostName { .. })));
}
