//! Files, good and bad, and what is said about them.

use super::*;
use crate::config::finding::Severity::{Error, Warning};
use proptest::prelude::*;
use std::net::SocketAddr;

const GOOD: &str = "\
listeners:
- name: kubernetes
  bind: [\"0.0.0.0:6443\", \"[::]:6443\"]
  backends:
  - {name: cp-1, address: 192.168.30.31:6443}
  - {name: cp-2, address: 192.168.30.32:6443, weight: 2}
- name: talos
  bind: [0.0.0.0:50000]
  health: {profile: guide}
  backends:
  - {name: cp-1, address: 192.168.30.31:50000}
vips:
- name: api
  addresses: [192.168.30.30/32]
  interface: eth0
  routerId: 51
  track:
  - check: {listener: kubernetes}
  - check: {interface: eth0}
";

/// `line:column severity text`, in the order of the file.
fn said(text: &str) -> Vec<String> {
    let (config, mut findings) = check(text, None);
    assert_eq!(config.is_some(), !has_errors(&findings));
    findings.sort_by_key(|finding| finding.at);
    let line = |f: Finding| format!("{}:{} {} {} ({})", f.at.line, f.at.column, f.severity, f.text, f.help);
    findings.into_iter().map(line).collect()
}

/// What is said about the good file with one text in place of another.
fn with(old: &str, new: &str) -> Vec<String> {
    assert!(GOOD.contains(old), "{old}");
    said(&GOOD.replacen(old, new, 1))
}

#[track_caller]
fn one(findings: &[String], parts: &[&str]) {
    assert_eq!(findings.len(), 1, "{findings:#?}");
    for part in parts {
        assert!(findings[0].contains(part), "{part}: {findings:#?}");
    }
}

#[test]
fn a_good_file_has_its_defaults() {
    let (config, findings) = check(GOOD, None);
    assert_eq!(findings, []);
    let config = config.unwrap();
    let kubernetes = &config.listeners[0];
    assert_eq!(kubernetes.bind[1], "[::]:6443".parse::<SocketAddr>().unwrap());
    let times = kubernetes.health.times();
    assert_eq!((times.kind, times.interval_ms, times.timeout_ms), (CheckKind::Https, 1000, 1000));
    assert_eq!((times.healthy, times.unhealthy), (2, 2));
    let guide = config.listeners[1].health.times();
    assert_eq!((guide.kind, guide.interval_ms, guide.timeout_ms), (CheckKind::Tcp, 10_000, 5000));
    assert_eq!(kubernetes.timeouts.idle, 86_400);
    assert_eq!(kubernetes.deregistration_delay, 30);
    assert!(!config.vips[0].preempt && kubernetes.rebalance.enabled);
}

#[test]
fn an_empty_object_has_the_defaults_of_its_type() {
    let listener = "listeners: [{name: a, bind: [127.0.0.1:1], backends: [{name: b, address: 127.0.0.1:2}],\n  health: {}, queue: {}, timeouts: {}, rebalance: {}}]\nadmin: {}\n";
    let (config, findings) = check(listener, None);
    assert_eq!(findings, []);
    let config = config.unwrap();
    let listener = &config.listeners[0];
    assert_eq!(listener.health, HealthCheck::default());
    assert_eq!((&listener.queue, &listener.timeouts), (&Queue::default(), &Timeouts::default()));
    assert_eq!((&listener.rebalance, &config.admin), (&Rebalance::default(), &Admin::default()));
}

#[test]
fn all_slips_are_told_at_once() {
    let text = "\
listeners:
- name: Kubernetes
  bnid: [0.0.0.0:6443]
  balance: roundrobin
  maxConnections: \"5\"
  backends:
  - {name: cp-1, address: cp-1:6443, weight: 0}
vips: {}
";
    let findings = said(text);
    let starts = ["2:9 ", "2:3 ", "3:3 ", "4:12 ", "5:19 ", "7:27 ", "7:46 ", "8:7 "];
    for start in starts {
        assert!(findings.iter().any(|line| line.starts_with(start)), "{start}: {findings:#?}");
    }
    assert_eq!(findings.len(), starts.len(), "{findings:#?}");
    let all = findings.join("\n");
    for part in [
        "listeners[0].bnid: unknown field (did you mean bind?)",
        "listeners[0].bind: is missing",
        "no such choice (did you mean roundRobin?)",
        "write the number without quotes",
        "names are not looked up",
        "0: a number from 1 to 256 is expected",
        "vips: a mapping: a list is expected",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

#[test]
fn a_path_is_part_of_one_line() {
    for (path, good) in
        [("/readyz?verbose", true), ("/a b", false), ("/a\\n", false), ("/a\\x01", false), ("a", false)]
    {
        let findings =
            with("health: {profile: guide}", &format!("health: {{kind: https, path: \"{path}\"}}"));
        let refused = findings.iter().any(|line| line.contains("health.path:") && line.contains(" error "));
        assert_eq!(refused, !good, "{path}: {findings:#?}");
    }
}

#[test]
fn what_is_no_yaml_is_told_with_its_place() {
    one(&said("listeners: [\n"), &["not YAML", "error"]);
    one(&said(""), &["1:1 error the file is empty"]);
    one(&said("- a\n"), &["a mapping is expected"]);
    assert!(said("a: 1\n---\nb: 2\n").iter().all(|line| line.contains("error")));
    one(
        &with("name: talos\n", "name: talos\n  name: talos\n"),
        &["8:3 error", "the key is there already, at 7:3"],
    );
}

#[test]
fn listeners_are_checked_across_fields() {
    one(&with("name: talos", "name: kubernetes"), &["7:9 error", "listeners[0].name has the name already"]);
    one(&with("[0.0.0.0:50000]", "[0.0.0.0:6443]"), &["listeners[0].bind[0] listens there already"]);
    one(&with("name: cp-2", "name: cp-1"), &["6:12 error", "backends[0].name has the name"]);
    one(&with("192.168.30.31:6443", "127.0.0.1:6443"), &["it would connect to itself"]);
    one(&with("192.168.30.32:6443", "192.168.30.31:6443"), &["warning", "cp-1 has the address too"]);
    one(
        &with("health: {profile: guide}", "health: {profile: guide, path: /x}"),
        &["has no effect on a check of kind tcp"],
    );
    one(&with("health: {profile: guide}", "health: {}"), &["warning", "Talos' API answers no plain GET"]);
    one(
        &with("health: {profile: guide}", "health: {kind: tls, certFile: a}"),
        &["keyFile is missing beside it"],
    );
    one(
        &with("health: {profile: guide}", "health: {kind: https, tokenFile: a, port: 1}"),
        &["a token needs a backend"],
    );
    one(
        &with("health: {profile: guide}", "health: {kind: https, path: readyz, port: 1}"),
        &["a path begins with /"],
    );
    one(&with("- name: talos", "- name: talos\n  timeouts: {idle: 30}"), &["warning", "quiet watches"]);
    one(
        &with("- name: talos", "- name: talos\n  allow: [10.1.2.3/8]"),
        &["warning", "10.0.0.0/8 is what it means"],
    );
    one(
        &with("- name: talos", "- name: talos\n  allow: [10.1.2.3/33]"),
        &["error", "an address with a prefix length"],
    );
    one(&with("192.168.30.31:6443", "192.168.30.30:6443"), &["the holder would connect to itself"]);
}

#[test]
fn a_stop_that_would_be_cut_short_is_told_of() {
    let delay =
        |seconds: u32| with("- name: talos", &format!("- name: talos\n  deregistrationDelay: {seconds}"));
    assert_eq!(delay(43), Vec::<String>::new());
    one(
        &delay(45),
        &["8:24 warning", "listeners[1].deregistrationDelay: 45", "46 seconds", "TimeoutStopSec"],
    );
    // Handing the addresses over takes its time, too, and needs none where there are none.
    let slow = |ms: u32| with("  routerId: 51", &format!("  routerId: 51\n  advertMs: {ms}"));
    assert_eq!(slow(3000), Vec::<String>::new());
    one(&slow(4000), &["warning", "vips[0].advertMs: 4000", "48 seconds", "terminationGracePeriodSeconds"]);
    let alone = |seconds: u32| {
        let listeners = GOOD.split("vips:").next().unwrap();
        let slow = format!("- name: talos\n  deregistrationDelay: {seconds}");
        said(&listeners.replacen("- name: talos", &slow, 1))
    };
    assert_eq!(alone(44), Vec::<String>::new());
    one(&alone(45), &["a stop may take 45 seconds"]);
}

#[test]
fn vips_are_checked_across_fields() {
    one(&with("routerId: 51", "routerId: 0"), &["a number from 1 to 255"]);
    one(&with("routerId: 51", "routerId: 51\n  version: 2"), &["VRRPv2 counts in whole seconds"]);
    one(&with("routerId: 51", "routerId: 51\n  advertMs: 15"), &["hundredths of a second"]);
    one(&with("routerId: 51", "routerId: 51\n  preemptDelay: 5"), &["has no effect without preempt"]);
    one(&with("routerId: 51", "routerId: 51\n  bfd: {}"), &["needs to know whom to watch"]);
    one(&with("routerId: 51", "routerId: 51\n  peers: [\"2001:db8::1\"]"), &["are of one family"]);
    one(&with("routerId: 51", "routerId: 51\n  peers: [192.168.30.30]"), &["is a shared address"]);
    let source = |text: &str| with("routerId: 51", &format!("routerId: 51\n  {text}"));
    one(&source("source: \"2001:db8::1\""), &["source and addresses are of one family"]);
    one(&source("source: 192.168.30.30"), &["source", "is a shared address"]);
    one(&source("source: 127.0.0.1"), &["no machine speaks from it"]);
    one(&source("source: 192.168.30.12\n  peers: [192.168.30.12]"), &["is a peer's address too"]);
    one(
        &with("[192.168.30.30/32]", "[192.168.30.30/32, \"2001:db8::1\"]"),
        &["14:33 error", "of one family"],
    );
    one(
        &with("[\"0.0.0.0:6443\", \"[::]:6443\"]", "[\"192.168.30.11:6443\", \"[::]:6443\"]"),
        &["18:23 warning", "bound to none of the addresses"],
    );
    one(
        &with("listener: kubernetes", "listener: kube"),
        &["no such listener", "there are kubernetes, talos"],
    );
    one(
        &with("{interface: eth0}", "{interfaces: eth0}"),
        &["19:13 error", "no such choice", "did you mean interface?"],
    );
    one(
        &with("{interface: eth0}", "eth0"),
        &["a mapping is expected", "listener, localApiserver, interface"],
    );
    one(
        &with("check: {interface: eth0}", "check: {interface: eth0}\n    weight: 2"),
        &["warning", "above 98"],
    );
    one(&with("  - check: {listener: kubernetes}\n", ""), &["warning", "no listener is tracked"]);
    for (url, good) in [
        ("https://127.0.0.1:6443/readyz", true),
        ("https://[::1]:6443/readyz", true),
        ("https://10.0.0.1", true),
        ("http://127.0.0.1:6443/readyz", false),
        ("https://localhost:6443/readyz", false),
        ("https://127.0.0.1:x/readyz", false),
        // What would be taken here and never answered.
        ("https://::1/readyz", false),
        ("https://[[::1]]/readyz", false),
        ("https://10.0.0.1]/readyz", false),
        ("https://[fe80::1%2]:6443/readyz", false),
        ("https://10.0.0.1/ready z", false),
        ("https://10.0.0.1/readyz\\n", false),
    ] {
        let findings = with("{interface: eth0}", &format!("{{localApiserver: \"{url}\"}}"));
        assert_eq!(findings.is_empty(), good, "{url}: {findings:#?}");
    }
}

#[test]
fn the_rest_is_checked_too() {
    let more = |text: &str| said(&format!("{GOOD}{text}\n"));
    one(&more("admin: {metrics: 0.0.0.0:9100}"), &["loopback address only", "127.0.0.1:9100"]);
    one(&more("admin: {socket: lb.sock}"), &["a path from the root"]);
    one(&more("accessLog: {path: access.log}"), &["or - for standard output"]);
    one(&more("threads: 0"), &["a number from 1 to 1024"]);
    one(&more("threads: many"), &["a whole number is expected"]);
    one(&said("listeners: []\nvips: []\n"), &["nothing to do"]);
}

#[test]
fn files_are_looked_at_from_the_folder_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lb.yaml");
    let text = GOOD.replace("health: {profile: guide}", "health: {kind: tls, caFile: ca.pem}");
    std::fs::write(&file, &text).unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("lb.yaml:9:31: error: listeners[1].health.caFile:"), "{error}");
    assert!(error.contains("cannot read it") && error.ends_with("1 error, 0 warnings"), "{error}");
    std::fs::write(
        folder.path().join("ca.pem"),
        "-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let error = load(&file).unwrap_err().to_string();
    assert!(error.contains("ca.pem\": not PEM") || error.contains("certificate 1 in it"), "{error}");
    std::fs::write(folder.path().join("ca.pem"), authority().0).unwrap();
    let loaded = load(&file).unwrap();
    let path = loaded.config.listeners[1].health.ca_file.clone().unwrap();
    assert_eq!(std::path::Path::new(&path), folder.path().join("ca.pem"));
    assert!(matches!(load(&folder.path().join("none")), Err(ReadError::Unreadable { .. })));
}

/// A certificate and its key, in PEM.
fn authority() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["lb".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn what_is_in_the_files_is_looked_at_and_never_told() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let health = "health: {kind: https, port: 1, caFile: ca, certFile: crt, keyFile: key, tokenFile: token}";
    let text = GOOD
        .replace("health: {profile: guide}", health)
        .replace("routerId: 51", "routerId: 51\n  sign: {keyFile: keys}");
    put("lb.yaml", &text);
    let said = || load(&folder.path().join("lb.yaml")).map_err(|error| error.to_string());
    let ((crt, key), (_, other)) = (authority(), authority());
    put("ca", &crt);
    put("crt", &crt);
    put("key", "secret\n");
    put("token", "two words");
    put("keys", "1 c2VjcmV0\n");
    let allow = |mode: u32| {
        for name in ["key", "token", "keys"] {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
        }
    };
    // Not left to the umask, which another test may have changed at this moment.
    allow(0o644);
    let error = said().unwrap_err();
    for part in ["no private key in PEM", "not a token", "sign.keyFile", "line 1", "chmod 600"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(
        !error.contains("secret") && !error.contains("c2VjcmV0") && !error.contains("two words"),
        "{error}"
    );
    put("token", "abc.def\n");
    put("keys", "1 c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=\n");
    put("key", &other);
    allow(0o600);
    let error = said().unwrap_err();
    assert!(error.contains("does not go with certFile") && error.ends_with("1 error, 0 warnings"), "{error}");
    put("key", &key);
    assert_eq!(said().unwrap().warnings, []);
}

#[test]
fn severities_have_words() {
    assert_eq!((Error.to_string(), Warning.to_string()), ("error".to_owned(), "warning".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever stands in a file, it is judged, and a configuration comes only without errors.
    #[test]
    fn any_text_is_judged(text in "\\PC{0,200}") {
        let (config, findings) = check(&text, None);
        prop_assert_eq!(config.is_some(), !has_errors(&findings));
    }

    /// The same for files that are nearly right: a piece of the good one is replaced.
    #[test]
    fn a_broken_file_is_judged(from in 0usize..GOOD.len(), length in 0usize..40, new in "[-\\[\\]{}:, \"a-z0-9\n]{0,12}") {
        let mut text = GOOD.to_owned();
        let end = (from + length).min(text.len());
        text.replace_range(from..end, &new);
        let (config, findings) = check(&text, None);
        prop_assert_eq!(config.is_some(), !has_errors(&findings));
        for finding in findings {
            prop_assert!(finding.at.line <= 1 + text.lines().count() as u64);
        }
    }
}
