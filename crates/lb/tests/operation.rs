//! A balancer that is changed while it runs: reload, drain, health, logs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::{
    io::{self, Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use butler_lb::{
    config::{AllDown, Balance, CheckKind, HealthCheck},
    forward::{LoadBalancer, Options, StartError, Tuning, UnknownError},
};
use rcgen::{CertificateParams, Issuer, KeyPair};
use support::*;

/// Fast checks by TCP.
fn quick() -> HealthCheck {
    HealthCheck {
        kind: Some(CheckKind::Tcp),
        interval_ms: Some(20),
        timeout_ms: Some(1000),
        ..HealthCheck::default()
    }
}

#[test]
fn a_reload_under_load_fails_nothing() {
    let servers = [Server::named("a"), Server::named("b"), Server::named("c")];
    let addresses = servers.each_ref().map(|server| server.address);
    let both = listener(&addresses);
    let (handle, address) = start(both.clone());
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut count = 0;
                while !over.load(Ordering::SeqCst) {
                    let name = ask(address).unwrap();
                    assert_eq!(name.len(), 1, "{name:?}");
                    count += 1;
                }
                count
            })
        })
        .collect();
    for round in 0..40 {
        let mut changed = both.clone();
        changed.backends.truncate(1 + round % 3);
        changed.max_connections = if round % 2 == 0 { 0 } else { 500 };
        let mut config = config(changed);
        if round % 4 == 0 {
            // Another listener comes and goes beside it.
            let mut other = both.clone();
            other.name = "other".into();
            config.listeners.push(other);
        }
        handle.reload(&config).unwrap();
        assert_eq!(handle.addresses("test"), [address]);
    }
    over.store(true, Ordering::SeqCst);
    let asked: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(asked > 0);
    assert_eq!(handle.status().listeners[0].totals.no_backend, 0);
}

#[test]
fn a_listener_that_gets_another_name_and_other_backends_stays_ready_and_loses_nobody() {
    let servers = [Server::named("a"), Server::named("b")];
    // A port of its own, so that the address is the same one after each reload.
    let port = nobody();
    let address = port.address;
    drop(port);
    let named = |name: &str, server: &Server| {
        let mut listener = listener(&[server.address]);
        listener.name = name.into();
        listener.bind = vec![address];
        listener.all_down = AllDown::TryAll;
        config(listener)
    };
    let handle = LoadBalancer::start(&named("one", &servers[0]), Options::default()).unwrap();
    until("it is ready", || handle.is_ready("one"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    assert_eq!(ask(address).unwrap().len(), 1);
                }
            });
        }
        for round in 0..40 {
            let (old, new) = if round % 2 == 0 { ("one", "two") } else { ("two", "one") };
            handle.reload(&named(new, &servers[(round + 1) % 2])).unwrap();
            assert!(handle.is_ready(new) && handle.is_ready(old), "round {round}");
            until("its backend was checked", || handle.status().listeners[0].backends[0].checks > 0);
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn connections_outlive_a_reload_and_their_backends_configuration() {
    let (old, new) = (Server::echo(), Server::named("new"));
    let (handle, address) = start(listener(&[old.address]));
    let mut stream = connect(address);
    let mut say = |text: &[u8; 1]| {
        stream.write_all(text).unwrap();
        let mut answer = [0; 1];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *text);
    };
    say(b"1");
    handle.reload(&config(listener(&[new.address]))).unwrap();
    assert_eq!(ask(address).unwrap(), "new");
    say(b"2");
    let states: Vec<_> = handle.status().listeners[0].backends.iter().map(|backend| backend.state).collect();
    assert!(states.contains(&"removed"), "{states:?}");
}

#[test]
fn a_configuration_that_does_not_work_changes_nothing() {
    let server = Server::named("x");
    let (handle, address) = start(listener(&[server.address]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut wrong = listener(&[server.address]);
    wrong.name = "wrong".into();
    wrong.bind = vec![taken.local_addr().unwrap()];
    let error = handle.reload(&config(wrong)).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    let mut wrong = listener(&[server.address]);
    wrong.health = HealthCheck { ca_file: Some("/no/such/file".into()), ..HealthCheck::default() };
    let error = handle.reload(&config(wrong)).unwrap_err();
    assert!(matches!(error, StartError::Health { .. }), "{error}");
    let mut other = config(listener(&[server.address]));
    other.threads = Some(5);
    assert!(matches!(handle.reload(&other).unwrap_err(), StartError::Threads));
    // As when there are more cores than at the start: the file does not say how many threads there are to be.
    other.threads = None;
    handle.reload(&other).unwrap();
    assert_eq!(ask(address).unwrap(), "x");
}

#[test]
fn a_listener_that_is_gone_is_closed_and_its_connections_end_in_time() {
    let server = Server::echo();
    let mut going = listener(&[server.address]);
    going.deregistration_delay = 0;
    let (handle, address) = start(going);
    let mut stream = connect(address);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    let mut empty = config(listener(&[]));
    empty.listeners.clear();
    handle.reload(&empty).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(std::net::TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_drained_backend_gets_nothing_new_and_loses_the_old_in_time() {
    let servers = [Server::echo(), Server::echo()];
    let mut listener = listener(&servers.each_ref().map(|server| server.address));
    listener.deregistration_delay = 0;
    let (handle, address) = start(listener);
    healthy(&handle, "2 of 2 members healthy");
    let mut streams: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = connect(address);
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            stream
        })
        .collect();
    assert_eq!(servers.each_ref().map(Server::served).map(|n| n > 0), [true, true]);
    handle.drain("test", "b0").unwrap();
    healthy(&handle, "1 of 2 members healthy");
    until("its connection is closed", || handle.connections() == 1);
    let ended = streams.iter_mut().map(|stream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0; 1]), Ok(0))
    });
    assert_eq!(ended.filter(|ended| *ended).count(), 1);
    handle.undrain("test", "b0").unwrap();
    healthy(&handle, "2 of 2 members healthy");
    assert_eq!(handle.drain("no", "b0"), Err(UnknownError::Listener("no".into())));
    assert!(matches!(handle.drain("test", "no"), Err(UnknownError::Backend { .. })));
}

#[test]
fn a_backend_comes_and_goes_with_its_checks() {
    let server = Server::named("a");
    let gone = nobody();
    let mut listener = listener(&[server.address, gone.address]);
    listener.health = quick();
    listener.all_down = AllDown::Refuse;
    let (handle, address) = start(listener);
    healthy(&handle, "1 of 2 members healthy");
    assert!(handle.is_ready("test"));
    until("the reason is told", || {
        handle.status().listeners[0].backends[1].reason.as_deref().is_some_and(|why| why.contains("refused"))
    });
    let address_of_gone = gone.address;
    drop(gone);
    let back = Server::start_on(address_of_gone, |mut stream| {
        let _ = stream.write_all(b"b");
    });
    healthy(&handle, "2 of 2 members healthy");
    drop((server, back));
    healthy(&handle, "0 of 2 members healthy");
    assert!(!handle.is_ready("test"));
    assert_eq!(ask(address).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// A certificate authority and a server certificate for 127.0.0.1, in files.
struct Pki {
    folder: tempfile::TempDir,
    config: Arc<rustls::ServerConfig>,
}

fn pki() -> Pki {
    let folder = tempfile::tempdir().unwrap();
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    std::fs::write(folder.path().join("ca.pem"), ca_cert.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let cert = CertificateParams::new(vec!["127.0.0.1".into(), "api".into()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    Pki { folder, config: Arc::new(config) }
}

/// An HTTPS server with the status that it is given, which keeps the last request.
fn https(pki: &Pki, status: &Arc<AtomicUsize>, requests: &Arc<Mutex<String>>) -> Server {
    let (config, status, requests) = (Arc::clone(&pki.config), Arc::clone(status), Arc::clone(requests));
    Server::start(move |mut socket| {
        let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let mut request = String::new();
        let mut buffer = [0; 1024];
        while !request.contains("\r\n\r\n") {
            let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
            request.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        *requests.lock().unwrap() = request;
        let _ = write!(stream, "HTTP/1.1 {} X\r\nContent-Length: 2\r\n\r\nok", status.load(Ordering::SeqCst));
        let _ = stream.flush();
    })
}

#[test]
fn https_checks_look_at_the_status_and_at_the_certificate() {
    let pki = pki();
    let (status, requests) = (Arc::new(AtomicUsize::new(200)), Arc::new(Mutex::new(String::new())));
    let server = https(&pki, &status, &requests);
    let token = pki.folder.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let file = |name: &str| Some(pki.folder.path().join(name).to_str().unwrap().to_owned());
    let mut listener = listener(&[server.address]);
    listener.health = HealthCheck {
        interval_ms: Some(20),
        timeout_ms: Some(5000),
        ca_file: file("ca.pem"),
        token_file: file("token"),
        ..HealthCheck::default()
    };
    let (handle, _) = start(listener.clone());
    healthy(&handle, "1 of 1 members healthy");
    let request = requests.lock().unwrap().clone();
    assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nAuthorization: Bearer secret\r\n"), "{request}");
    status.store(500, Ordering::SeqCst);
    healthy(&handle, "0 of 1 members healthy");
    assert_eq!(handle.status().listeners[0].backends[0].reason.as_deref(), Some("status 500"));
    // Another name than the certificate has.
    status.store(200, Ordering::SeqCst);
    healthy(&handle, "1 of 1 members healthy");
    listener.health.server_name = Some("elsewhere".into());
    handle.reload(&config(listener.clone())).unwrap();
    healthy(&handle, "0 of 1 members healthy");
    // Nobody asks for the name when there is no authority.
    listener.health.ca_file = None;
    handle.reload(&config(listener.clone())).unwrap();
    healthy(&handle, "1 of 1 members healthy");
    listener.health.kind = Some(CheckKind::Tls);
    status.store(500, Ordering::SeqCst);
    handle.reload(&config(listener)).unwrap();
    let checks = handle.status().listeners[0].backends[0].checks;
    until("it was checked by handshake", || handle.status().listeners[0].backends[0].checks > checks + 4);
    assert_eq!(handle.status().listeners[0].summary, "1 of 1 members healthy");
}

/// An authority: what signs, and its certificate.
fn authority() -> (Issuer<'static, KeyPair>, rcgen::Certificate) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (Issuer::new(params, key), certificate)
}

/// A certificate of an authority and its key.
fn signed(issuer: &Issuer<'_, KeyPair>) -> (rcgen::Certificate, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    (params.signed_by(&key, issuer).unwrap(), key)
}

#[test]
fn certificates_that_are_renewed_are_used_from_the_next_check_on() {
    let [(_, old_ca), (server_ca, server_root), (client_ca, client_root)] =
        [authority(), authority(), authority()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(client_root.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (cert, key) = signed(&server_ca);
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![cert.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let pki = Pki { folder: tempfile::tempdir().unwrap(), config: Arc::new(config) };
    let (status, requests) = (Arc::new(AtomicUsize::new(200)), Arc::new(Mutex::new(String::new())));
    let server = https(&pki, &status, &requests);
    let path = |name: &str| pki.folder.path().join(name);
    let client = |issuer: &Issuer<'_, KeyPair>| {
        let (cert, key) = signed(issuer);
        std::fs::write(path("client.pem"), cert.pem()).unwrap();
        std::fs::write(path("client.key"), key.serialize_pem()).unwrap();
    };
    std::fs::write(path("ca.pem"), old_ca.pem()).unwrap();
    client(&server_ca);
    let mut listener = listener(&[server.address]);
    let file = |name: &str| Some(path(name).to_str().unwrap().to_owned());
    listener.health = HealthCheck {
        interval_ms: Some(20),
        timeout_ms: Some(5000),
        ca_file: file("ca.pem"),
        cert_file: file("client.pem"),
        key_file: file("client.key"),
        ..HealthCheck::default()
    };
    let (handle, _) = start(listener);
    let backend = || handle.status().listeners[0].backends[0].clone();
    let unknown = "invalid peer certificate";
    until("the server is not known", || backend().reason.is_some_and(|why| why.contains(unknown)));
    std::fs::write(path("ca.pem"), server_root.pem()).unwrap();
    until("the server is known", || backend().reason.is_some_and(|why| !why.contains(unknown)));
    assert_eq!(handle.status().listeners[0].summary, "0 of 1 members healthy", "it does not know us");
    client(&client_ca);
    healthy(&handle, "1 of 1 members healthy");
    // What is no certificate is not used, and a key without its certificate is not either.
    for name in ["ca.pem", "client.key"] {
        std::fs::write(path(name), "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
        let checks = backend().checks;
        until("it was checked", || backend().checks > checks + 4);
        assert_eq!(handle.status().listeners[0].summary, "1 of 1 members healthy");
    }
}

#[test]
fn a_backend_that_hangs_is_down_in_time() {
    // Accepts, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut listener = listener(&[silent.local_addr().unwrap()]);
    listener.health = HealthCheck {
        interval_ms: Some(20),
        timeout_ms: Some(30),
        kind: Some(CheckKind::Https),
        ..HealthCheck::default()
    };
    let (handle, _) = start(listener);
    until("the reason is told", || {
        handle.status().listeners[0].backends[0].reason.as_deref() == Some("no answer in time")
    });
    assert!(!handle.is_ready("test"));
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_connection_is_written_down() {
    let server = Server::echo();
    let lines = Lines::default();
    let options = Options { access_log: Some(Box::new(lines.clone())), ..Options::default() };
    let (handle, address) = start_with(listener(&[server.address]), options);
    let mut stream = connect(address);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(hear(&mut stream).unwrap(), "hello");
    until("it has ended", || handle.connections() == 0);
    handle.stop(Duration::ZERO);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["listener"], "test");
    assert_eq!(line["backend"], "b0");
    assert_eq!(line["address"], server.address.to_string());
    assert_eq!(line["client"], stream.local_addr().unwrap().to_string());
    assert_eq!(line["bytesFromClient"], 5);
    assert_eq!(line["bytesFromBackend"], 5);
    assert_eq!(line["ending"], "done");
}

#[test]
fn connections_by_an_address_that_has_moved_are_cut_and_others_stay() {
    let server = Server::echo();
    let mut everywhere = listener(&[server.address]);
    everywhere.bind = vec!["0.0.0.0:0".parse().unwrap()];
    let lines = Lines::default();
    let options = Options { access_log: Some(Box::new(lines.clone())), ..Options::default() };
    let (handle, address) = start_with(everywhere, options);
    let by = |ip: [u8; 4]| connect((ip, address.port()).into());
    let (mut moved, mut other) = (by([127, 0, 0, 2]), by([127, 0, 0, 1]));
    until("both are there", || handle.connections() == 2);
    handle.leave(&["127.0.0.2".parse().unwrap(), "::1".parse().unwrap()]);
    assert_eq!(moved.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    other.write_all(b"x").unwrap();
    other.read_exact(&mut [0; 1]).unwrap();
    until("its backend's is gone, too", || handle.status().listeners[0].backends[0].connections == 1);
    handle.stop(Duration::ZERO);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.lines().next().is_some_and(|line| line.contains("\"ending\":\"moved\"")), "{text}");
}

#[test]
fn when_it_stops_connections_may_end_until_the_grace_is_over() {
    let server = Server::echo();
    let (handle, address) = start(listener(&[server.address]));
    let mut streams = [connect(address), connect(address)];
    until("all are there", || handle.connections() == 2);
    let stopper = std::thread::spawn(move || handle.stop(LONG));
    until("nothing new is taken", || std::net::TcpStream::connect(address).is_err());
    for stream in &mut streams {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
    stopper.join().unwrap();
}

#[test]
fn when_a_backend_comes_back_the_others_shed_until_shares_are_even() {
    let (first, gone) = (Server::echo(), nobody());
    let mut listener = listener(&[first.address, gone.address]);
    listener.health = quick();
    listener.balance = Balance::LeastConnections;
    listener.rebalance.per_second = 1000;
    let tuning = Tuning { young: Duration::ZERO, ..Tuning::default() };
    let (handle, address) = start_with(listener, Options { tuning, ..Options::default() });
    healthy(&handle, "1 of 2 members healthy");
    let mut streams: Vec<_> = (0..40).map(|_| connect(address)).collect();
    until("all are there", || handle.status().listeners[0].backends[0].connections == 40);
    let place = gone.address;
    drop(gone);
    let _second = Server::start_on(place, echo);
    // Clients come back when they are shed, as clients of an API server do.
    until("shares are even", || {
        for stream in &mut streams {
            stream.set_nonblocking(true).unwrap();
            if let Ok(0) = stream.read(&mut [0; 1]) {
                *stream = connect(address);
            }
        }
        let backends = &handle.status().listeners[0].backends;
        backends[0].connections.abs_diff(backends[1].connections) <= 4 && handle.connections() == 40
    });
    let totals = handle.status().listeners[0].totals;
    assert!((15..=25).contains(&totals.shed), "{totals:?}");
}

#[test]
fn a_backend_that_is_not_ready_and_says_nothing_is_left_by_those_who_ask_and_ask() {
    let silent = || {
        Server::start(|mut stream| {
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        })
    };
    let (server, other) = (silent(), silent());
    let mut listener = listener(&[server.address, other.address]);
    listener.health = quick();
    listener.rebalance.close_unready = 1;
    listener.rebalance.enabled = false;
    let (handle, address) = start(listener);
    healthy(&handle, "2 of 2 members healthy");
    handle.drain("test", "b1").unwrap();
    let mut stream = connect(address);
    stream.write_all(b"x").unwrap();
    // Only then may the other one be chosen again.
    until("it has reached its backend", || handle.status().listeners[0].totals.from_clients == 1);
    handle.undrain("test", "b1").unwrap();
    drop(server);
    healthy(&handle, "1 of 2 members healthy");
    stream.set_nonblocking(true).unwrap();
    until("it is closed although its client speaks all the time", || {
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(b"x").is_err() || matches!(stream.read(&mut [0; 1]), Ok(0))
    });
}

#[test]
fn a_backend_that_is_not_ready_keeps_the_connections_that_are_in_use() {
    let (server, other) = (Server::echo(), Server::echo());
    let mut listener = listener(&[server.address, other.address]);
    listener.health = quick();
    listener.rebalance.close_unready = 2;
    listener.rebalance.enabled = false;
    let (handle, address) = start(listener);
    healthy(&handle, "2 of 2 members healthy");
    let say = |stream: &mut std::net::TcpStream| {
        let mut answer = [0; 1];
        stream.write_all(b"x").and_then(|()| stream.read_exact(&mut answer))
    };
    handle.drain("test", "b1").unwrap();
    let mut streams: Vec<_> = (0..2).map(|_| connect(address)).collect();
    streams.iter_mut().for_each(|stream| say(stream).unwrap());
    handle.undrain("test", "b1").unwrap();
    // Nothing listens any more, and who is connected is still served.
    drop(server);
    healthy(&handle, "1 of 2 members healthy");
    let (mut idle, mut busy) = (streams.remove(0), streams.remove(0));
    idle.set_nonblocking(true).unwrap();
    let mut after = None;
    until("the idle one is closed, and for long", || {
        say(&mut busy).expect("the busy one is there");
        std::thread::sleep(Duration::from_millis(20));
        if after.is_none() && matches!(idle.read(&mut [0; 1]), Ok(0)) {
            after = Some(std::time::Instant::now());
        }
        after.is_some_and(|at| at.elapsed() > Duration::from_secs(3))
    });
    // Now it is idle too.
    assert_eq!(busy.read(&mut [0; 1]).unwrap(), 0);
}
