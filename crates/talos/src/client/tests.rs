//! The client against a real server on the loopback address: both TLS personalities, proxy, calls, waits, guard.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tonic::Status;

use super::{
    test_node::{TestCa, TestNode, VALID, service},
    *,
};
use crate::api::{cosi::resource, machine::apply_configuration_request::Mode};

/// Silence never ends a wait in these tests: what ends it is an event.
fn patient() -> Arc<Settings> {
    Arc::new(Settings { quiet_limit: Duration::from_secs(3600), ..Settings::default() })
}

fn node(address: SocketAddr) -> Node {
    Node::new(address.into(), patient())
}

fn wait(name: &str) -> Wait {
    Wait::new(name, Instant::now() + Duration::from_secs(60))
}

fn deadline_now(name: &str) -> Wait {
    Wait::new(name, Instant::now() + Duration::from_millis(200))
}

#[tokio::test]
async fn maintenance_mode_is_told_with_its_fingerprint_and_takes_a_config() {
    let server = TestNode::maintenance().await;
    let ca = TestCa::new();
    let plain = node(server.address);
    let told = NodeState::Maintenance { fingerprint: server.fingerprint.clone() };
    assert_eq!(plain.probe().await, told);
    // Our credentials do not change what it is.
    assert_eq!(plain.clone().with_credentials(ca.credentials(&ca, VALID)).probe().await, told);

    let client = plain.connect_maintenance().await.unwrap();
    assert_eq!(client.fingerprint(), Some(&server.fingerprint));
    client.apply_configuration("machine: {}\n", true).await.unwrap();
    server.script(|script| {
        let request = &script.applied[0];
        assert_eq!(
            (request.mode(), request.dry_run, request.data.as_slice()),
            (Mode::Auto, true, &b"machine: {}\n"[..])
        );
    });
}

#[tokio::test]
async fn a_pinned_key_is_the_only_one_spoken_to() {
    let server = TestNode::maintenance().await;
    let right = node(server.address).with_pin(server.fingerprint.clone());
    right.connect_maintenance().await.unwrap();

    let other = TestNode::maintenance().await.fingerprint.clone();
    let wrong = node(server.address).with_pin(other.clone());
    let error = wrong.connect_maintenance().await.unwrap_err();
    assert_eq!(*error.class(), ErrorClass::WrongCertificate);
    assert!(
        error.message().contains(other.as_str()) && error.message().contains(server.fingerprint.as_str())
    );
    assert!(matches!(wrong.probe().await, NodeState::CertificateTrouble { .. }));
    assert!(server.script(|script| script.applied.is_empty()));
}

#[tokio::test]
async fn a_configured_node_is_ours_or_foreign() {
    let (ours, theirs) = (TestCa::new(), TestCa::new());
    let server = TestNode::configured(&ours).await;
    let mine = node(server.address).with_credentials(ours.credentials(&ours, VALID));
    let fingerprint = Some(server.fingerprint.clone());
    assert_eq!(
        mine.probe().await,
        NodeState::Configured { owner: Owner::Ours, fingerprint: fingerprint.clone() }
    );
    let version = mine.connect().await.unwrap().version().await.unwrap();
    assert_eq!(version.version.unwrap().tag, "v1.9.5");

    let foreign = node(server.address).with_credentials(theirs.credentials(&theirs, VALID));
    assert_eq!(
        foreign.probe().await,
        NodeState::Configured { owner: Owner::Foreign, fingerprint: fingerprint.clone() }
    );
    let error = foreign.connect().await.unwrap_err();
    assert_eq!(*error.class(), ErrorClass::WrongCertificate);
    assert!(error.message().contains(server.fingerprint.as_str()), "{error}");

    assert_eq!(
        node(server.address).probe().await,
        NodeState::Configured { owner: Owner::Unknown, fingerprint }
    );
    let error = node(server.address).connect_maintenance().await.unwrap_err();
    assert!(error.message().contains("asks for a client certificate"), "{error}");
}

#[tokio::test]
async fn a_node_that_refuses_our_certificate_says_so_at_connect() {
    let (ours, theirs) = (TestCa::new(), TestCa::new());
    // The node's own certificate is of our CA, but it trusts clients of another one.
    let server = TestNode::odd(&ours, &["127.0.0.1"], &theirs, VALID).await;
    let mine = node(server.address).with_credentials(ours.credentials(&ours, VALID));
    let error = mine.connect().await.unwrap_err();
    assert_eq!(*error.class(), ErrorClass::WrongCertificate);
    assert!(error.message().contains("another CA"), "{error}");
    assert!(matches!(mine.probe().await, NodeState::CertificateTrouble { .. }));
}

#[tokio::test]
async fn a_certificate_for_other_names_is_trouble() {
    let ca = TestCa::new();
    let server = TestNode::odd(&ca, &["10.1.2.3"], &ca, VALID).await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    assert!(matches!(mine.probe().await, NodeState::CertificateTrouble { .. }));
}

#[tokio::test]
async fn certificates_outside_their_validity_mean_clock_skew_on_either_side() {
    let ca = TestCa::new();
    for days in [(-9, -8), (8, 9)] {
        let server = TestNode::odd(&ca, &["127.0.0.1"], &ca, days).await;
        let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
        assert!(matches!(mine.probe().await, NodeState::ClockSkew { .. }), "server {days:?}");
        assert_eq!(*mine.connect().await.unwrap_err().class(), ErrorClass::ClockSkew);
    }
    let server = TestNode::configured(&ca).await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, (-9, -8)));
    let error = mine.connect().await.unwrap_err();
    assert_eq!(*error.class(), ErrorClass::ClockSkew, "{error}");
    assert!(error.message().contains("by the node's clock"), "{error}");
}

#[tokio::test]
async fn a_closed_port_and_strangers_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let greeting = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-test\r\n").await.unwrap();
        // Stays until the client leaves.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    assert!(matches!(node(address).probe().await, NodeState::NotTalos { .. }));
    greeting.await.unwrap();
    assert_eq!(node(address).probe().await, NodeState::Refused);
    let error = node(address).connect_maintenance().await.unwrap_err();
    assert_eq!(*error.class(), ErrorClass::NotThereYet);
    assert!(error.is_temporary());
}

#[tokio::test]
async fn a_refused_config_comes_back_in_talos_words_without_its_secrets() {
    let server = TestNode::maintenance().await;
    let message = "unknown keys found during decoding:\nmachine:\n    tokn: abcdef.0123456789abcdef\n";
    server.script(|script| script.apply = Err(Status::invalid_argument(message)));
    let client = node(server.address).connect_maintenance().await.unwrap();
    let config = "machine:\n  tokn: abcdef.0123456789abcdef\n";
    let error = client.apply_configuration(config, false).await.unwrap_err();
    let ErrorClass::RefusedConfig { message } = error.class() else { panic!("{error:?}") };
    assert_eq!(message, "unknown keys found during decoding:\nmachine:\n    tokn: ******\n");
    assert!(!format!("{error} {error:?}").contains("0123456789abcdef"));

    server.script(|script| script.apply = Ok("diff: -token: abcdef.0123456789abcdef".to_owned()));
    let applied = client.apply_configuration(config, true).await.unwrap();
    assert_eq!(applied.details, "diff: -token: ******");
}

#[tokio::test]
async fn messages_beyond_four_mebibytes_are_taken() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    server.script(|script| script.services = vec![service(&"x".repeat(6 << 20), "Running", None)]);
    let client = node(server.address).with_credentials(ca.credentials(&ca, VALID)).connect().await.unwrap();
    assert_eq!(client.service_list().await.unwrap()[0].id.len(), 6 << 20);
}

#[tokio::test]
async fn a_call_that_is_not_served_and_one_that_hangs_are_classified() {
    let ca = TestCa::new();
    let mut server = TestNode::configured(&ca).await;
    let settings = Settings { call_timeout: Duration::from_millis(100), ..Settings::default() };
    let quick =
        Node::new(server.address.into(), Arc::new(settings)).with_credentials(ca.credentials(&ca, VALID));
    let client = quick.connect().await.unwrap();
    assert_eq!(*client.kubeconfig().await.unwrap_err().class(), ErrorClass::Unimplemented);
    assert_eq!(*client.disks().await.unwrap_err().class(), ErrorClass::Unimplemented);
    server.script(|script| script.bootstrap = [None].into());
    assert_eq!(*client.bootstrap().await.unwrap_err().class(), ErrorClass::TimedOut);
    server.stop().await;
    client.closed().await;
    assert!(client.is_closed());
    assert_eq!(*client.version().await.unwrap_err().class(), ErrorClass::ConnectionLost);
}

#[tokio::test]
async fn a_call_can_be_passed_on_to_another_node() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let client = node(server.address).with_credentials(ca.credentials(&ca, VALID)).connect().await.unwrap();
    client.version().await.unwrap();
    client.targeting("10.0.0.7").version().await.unwrap();
    assert_eq!(server.script(|script| script.asked_for.clone()), [None, Some("10.0.0.7".to_owned())]);
}

/// Answers one CONNECT with `answer`, and tunnels if that is a success. Returns the request's head.
async fn proxy(answer: &'static str, to: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).await.unwrap();
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        if answer.starts_with("HTTP/1.1 200") {
            let mut onward = TcpStream::connect(to).await.unwrap();
            // Ends with an error when either side just goes away.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
        }
        head
    });
    (address, task)
}

#[tokio::test]
async fn a_proxy_is_asked_to_connect_with_its_password() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let (address, task) = proxy("HTTP/1.1 200 OK\r\nVia: test\r\n\r\n", server.address).await;
    let settings = Settings {
        proxy: Some(format!("http://bob:secret@{address}").parse().unwrap()),
        ..Settings::default()
    };
    // Nobody has this name: only the proxy can reach it, and the certificate has to carry it.
    let behind = Node::new("node.test:50000".parse().unwrap(), Arc::new(settings))
        .with_credentials(ca.credentials(&ca, VALID));
    let client = behind.connect().await.unwrap();
    client.version().await.unwrap();
    assert!(!format!("{behind:?} {client:?}").contains("secret"));
    drop(client);
    let head = task.await.unwrap();
    assert!(head.starts_with("CONNECT node.test:50000 HTTP/1.1\r\nHost: node.test:50000\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic Ym9iOnNlY3JldA==\r\n"), "{head}");
}

#[tokio::test]
async fn what_a_proxy_refuses_is_classified() {
    for (answer, class) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", ErrorClass::Denied),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", ErrorClass::Denied),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", ErrorClass::NotThereYet),
        ("220 mail ready\r\n\r\n", ErrorClass::NotTalos),
    ] {
        let (address, task) = proxy(answer, ([127, 0, 0, 1], 1).into()).await;
        let settings =
            Settings { proxy: Some(format!("http://{address}").parse().unwrap()), ..Settings::default() };
        let behind = Node::new("10.9.9.9".parse().unwrap(), Arc::new(settings));
        assert_eq!(*behind.connect_maintenance().await.unwrap_err().class(), class, "{answer}");
        task.await.unwrap();
    }
}

#[tokio::test]
async fn an_overridden_host_is_dialled_elsewhere_and_still_checked_by_name() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let overrides =
        BTreeMap::from([("node.test".to_owned(), server.address), ("other.test".to_owned(), server.address)]);
    let settings = Arc::new(Settings { overrides, ..Settings::default() });
    let named = |name: &str| {
        Node::new(name.parse().unwrap(), settings.clone()).with_credentials(ca.credentials(&ca, VALID))
    };
    named("node.test").connect().await.unwrap().version().await.unwrap();
    assert_eq!(*named("other.test").connect().await.unwrap_err().class(), ErrorClass::WrongCertificate);
}

#[tokio::test]
async fn waiting_for_a_configured_node_spans_maintenance_the_closed_port_and_the_new_certificate() {
    let ca = TestCa::new();
    let mut server = TestNode::maintenance().await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = told.clone();
    let (said, mut saying) = tokio::sync::mpsc::unbounded_channel();
    let wait = wait("the node to be configured").telling(move |state| {
        hears.lock().unwrap().push(state.to_owned());
        let _ = said.send(state.to_owned());
    });
    let waiting = tokio::spawn(async move { wait_until_configured(&mine, &wait).await });
    assert_eq!(saying.recv().await.unwrap(), "still in maintenance mode");
    server.stop().await;
    assert_eq!(saying.recv().await.unwrap(), "the port is closed");
    server.come_back_configured(&ca).await;
    waiting.await.unwrap().unwrap().version().await.unwrap();
    assert_eq!(told.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn waiting_for_maintenance_spans_a_reset() {
    let ca = TestCa::new();
    let mut server = TestNode::configured(&ca).await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let (said, mut saying) = tokio::sync::mpsc::unbounded_channel();
    let wait = wait("maintenance mode").telling(move |state| {
        let _ = said.send(state.to_owned());
    });
    let waiting = tokio::spawn(async move { wait_until_maintenance(&mine, &wait).await });
    assert_eq!(saying.recv().await.unwrap(), "still configured");
    server.stop().await;
    assert_eq!(saying.recv().await.unwrap(), "the port is closed");
    // Another key after the reset; the port is the same.
    server.come_back_in_maintenance().await;
    let client = waiting.await.unwrap().unwrap();
    assert_eq!(client.fingerprint(), Some(&server.fingerprint));
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_and_names_what_it_saw() {
    let mut server = TestNode::maintenance().await;
    server.stop().await;
    let ca = TestCa::new();
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let error = wait_until_configured(&mine, &deadline_now("node 1 to boot")).await.unwrap_err();
    let WaitError::Deadline { name, last, .. } = &error else { panic!("{error:?}") };
    assert_eq!((name.as_str(), last.as_str()), ("node 1 to boot", "the port is closed"));
    assert!(error.to_string().contains("node 1 to boot"));
}

#[tokio::test]
async fn a_wait_stops_at_once_when_it_can_not_succeed() {
    let (ours, theirs) = (TestCa::new(), TestCa::new());
    let server = TestNode::configured(&theirs).await;
    let mine = node(server.address).with_credentials(ours.credentials(&ours, VALID));
    let error = wait_until_configured(&mine, &wait("the node")).await.unwrap_err();
    assert_eq!(*error.cause().unwrap().class(), ErrorClass::WrongCertificate);
}

#[tokio::test]
async fn waiting_for_a_service_ends_with_its_event() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let other = mine.clone();
    let waiting = tokio::spawn(async move { wait_until_etcd(&other, &wait("etcd")).await.map(drop) });
    server.listeners(false).await;
    server.service_becomes(service("kubelet", "Running", Some(true)));
    // Running is not enough for etcd: its health is not known yet.
    server.service_becomes(service("etcd", "Running", None));
    let early = wait_until_service(&mine, "etcd", &deadline_now("etcd")).await.unwrap_err();
    assert!(matches!(early, WaitError::Deadline { .. }));
    server.service_becomes(service("etcd", "Running", Some(true)));
    waiting.await.unwrap().unwrap();
    // Services without a health check count as up when they run.
    server.service_becomes(service("udevd", "Running", None));
    wait_until_service(&mine, "udevd", &wait("udevd")).await.unwrap();
    // A learner does not vote.
    server.script(|script| script.learner = true);
    let learner = wait_until_etcd(&mine, &deadline_now("etcd")).await.unwrap_err();
    assert!(learner.to_string().contains("learner"), "{learner}");
}

#[tokio::test]
async fn waiting_for_a_status_ends_with_the_change() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let waiting = tokio::spawn(async move {
        wait_until_status(&mine, &wait("running"), |status| status.is_running() && status.ready).await
    });
    server.listeners(true).await;
    for yaml in [
        "stage: booting\n",
        "stage: running\nstatus: {ready: false}\n",
        "stage: running\nstatus: {ready: true}\n",
    ] {
        let spec = Some(resource::Spec { yaml_spec: yaml.to_owned(), ..Default::default() });
        server.answers.changes.send(resource::Resource { spec, ..Default::default() }).unwrap();
    }
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn bootstrap_is_repeated_while_the_node_says_not_yet() {
    let ca = TestCa::new();
    let server = TestNode::configured(&ca).await;
    let not_yet = |text: &str| Some(Err(Status::failed_precondition(text)));
    server.script(|script| {
        script.bootstrap =
            [not_yet("bootstrap is not available yet"), not_yet("time is not in sync yet"), Some(Ok(()))]
                .into();
    });
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    bootstrap_when_ready(&mine, &wait("bootstrap")).await.unwrap();
    assert_eq!(server.script(|script| script.bootstraps), 3);

    let full = Some(Err(Status::already_exists("etcd data directory is not empty")));
    server.script(|script| script.bootstrap = [full].into());
    let error = bootstrap_when_ready(&mine, &wait("bootstrap")).await.unwrap_err();
    assert_eq!(*error.cause().unwrap().class(), ErrorClass::AlreadyBootstrapped);
    assert_eq!(server.script(|script| script.bootstraps), 4);
}

#[tokio::test]
async fn a_bootstrap_whose_answer_is_lost_is_not_repeated() {
    let ca = TestCa::new();
    let mut server = TestNode::configured(&ca).await;
    server.script(|script| script.bootstrap = [None].into());
    let mine = node(server.address).with_credentials(ca.credentials(&ca, VALID));
    let waiting = tokio::spawn(async move { bootstrap_when_ready(&mine, &wait("bootstrap")).await });
    while server.script(|script| script.bootstraps) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.stop().await;
    server.come_back_configured(&ca).await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(*error.cause().unwrap().class(), ErrorClass::ConnectionLost);
    assert_eq!(server.script(|script| script.bootstraps), 1);
}

#[tokio::test]
async fn the_guard_looks_at_every_control_plane() {
    let ca = TestCa::new();
    let mut servers =
        [TestNode::configured(&ca).await, TestNode::configured(&ca).await, TestNode::maintenance().await];
    let nodes: Vec<Node> = servers
        .iter()
        .map(|server| node(server.address).with_credentials(ca.credentials(&ca, VALID)))
        .collect();
    // Neither a missing nor an empty folder is data.
    servers[1].script(|script| script.etcd_files = Some(Vec::new()));
    let (decision, seen) = bootstrap_guard(&nodes, &nodes[0]).await;
    assert_eq!(decision, Decision::Bootstrap, "{seen:?}");

    servers[1].script(|script| script.etcd_files = Some(vec!["member".to_owned()]));
    let elsewhere = Decision::Refuse(Refusal::Elsewhere { nodes: vec![nodes[1].address().to_string()] });
    assert_eq!(bootstrap_guard(&nodes, &nodes[0]).await.0, elsewhere);
    assert_eq!(bootstrap_guard(&nodes, &nodes[1]).await.0, Decision::AlreadyDone);

    // A running etcd counts without its files.
    servers[1].script(|script| script.etcd_files = None);
    servers[1].service_becomes(service("etcd", "Running", None));
    assert_eq!(bootstrap_guard(&nodes, &nodes[0]).await.0, elsewhere);

    servers[1].stop().await;
    let (decision, _) = bootstrap_guard(&nodes, &nodes[0]).await;
    let Decision::Refuse(Refusal::Unanswered { nodes: silent }) = decision else { panic!("{decision:?}") };
    assert_eq!(silent, [(nodes[1].address().to_string(), "the port is closed".to_owned())]);

    let foreign = TestNode::configured(&TestCa::new()).await;
    let strange = [nodes[0].clone(), node(foreign.address).with_credentials(ca.credentials(&ca, VALID))];
    let (decision, _) = bootstrap_guard(&strange, &nodes[0]).await;
    assert!(matches!(decision, Decision::Refuse(Refusal::Foreign { .. })), "{decision:?}");
}

#[test]
fn debug_forms_hold_no_secret() {
    use crate::api::{common, machine};
    let ca = TestCa::new();
    let credentials = ca.credentials(&ca, VALID);
    let access = Access::Mutual(credentials.clone());
    let config = machine::ApplyConfigurationRequest { data: b"hunter2".to_vec(), ..Default::default() };
    let data = common::Data { bytes: bytes::Bytes::from_static(b"hunter2"), ..Default::default() };
    let spec = resource::Spec { proto_spec: b"hunter2".to_vec(), yaml_spec: "hunter2".to_owned() };
    let reply = machine::ApplyConfiguration { mode_details: "hunter2".to_owned(), ..Default::default() };
    let shown = format!("{credentials:?} {access:?} {config:?} {data:?} {spec:?} {reply:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("104, 117, 110"), "{shown}");
    assert!(!shown.contains("key:") && shown.contains("<7 bytes>"), "{shown}");
}
