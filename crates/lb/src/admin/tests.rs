//! The runtime API over its sockets, with a balancer that does nothing.

use super::*;
use parking_lot::Mutex;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Answers with fixed values, and remembers what was asked.
#[derive(Default)]
struct Fake {
    drained: Mutex<Vec<Drain>>,
}

impl Control for Fake {
    fn status(&self) -> Status {
        status()
    }
    fn reload(&self) -> Result<Vec<String>, Refusal> {
        Err(Refusal::Wrong(vec!["lb.yaml:3:1: error: x".to_owned()]))
    }
    fn drain(&self, drain: &Drain) -> Result<String, Refusal> {
        if drain.backend == "none" {
            return Err(Refusal::NotFound("no such backend".to_owned()));
        }
        self.drained.lock().push(drain.clone());
        Ok(format!("{} gets no new connections", drain.backend))
    }
}

fn status() -> Status {
    let backend = |name: &str, state| BackendStatus {
        name: name.to_owned(),
        address: "192.0.2.1:6443".parse().unwrap(),
        state,
        check: "200".to_owned(),
        connections: 2,
        opened: 9,
        failed: 1,
    };
    Status {
        version: "0.1.0".to_owned(),
        uptime: 5,
        config_age: 4,
        failed_reloads: 0,
        threads: Threads { used: 1, all: 2 },
        listeners: vec![ListenerStatus {
            name: "kubernetes".to_owned(),
            bind: vec!["0.0.0.0:6443".parse().unwrap()],
            summary: "1 of 2 members healthy".to_owned(),
            healthy: 1,
            connections: 4,
            queued: 0,
            accepted: 20,
            denied: 1,
            refused: 2,
            retried: 3,
            shed: 0,
            bytes_in: 100,
            bytes_out: 1000,
            backends: vec![backend("cp-1", BackendState::Up), backend("cp-2", BackendState::Down)],
        }],
        vips: vec![VipStatus {
            name: "api".to_owned(),
            addresses: vec!["192.0.2.30/32".to_owned()],
            interface: "eth0".to_owned(),
            state: VipState::Master,
            priority: 100,
            holder: None,
            transitions: 1,
            rejected: 3,
            clock_refused: 2,
            replayed: 3,
            wrong_key: 4,
            foreign_claims: 5,
            tracks: vec![TrackStatus { check: "a \"b\"".to_owned(), good: true }],
            bfd: vec![BfdStatus { peer: "192.0.2.12".parse().unwrap(), up: false }],
            problem: None,
        }],
    }
}

struct Served {
    fake: Arc<Fake>,
    server: Server,
    socket: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

fn served() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("lb.sock");
    let fake = Arc::new(Fake::default());
    let metrics = Some("127.0.0.1:0".parse().unwrap());
    let server = Sockets::bind(&socket, metrics).unwrap().serve(fake.clone()).unwrap();
    Served { fake, server, socket, _folder: folder }
}

#[test]
fn status_comes_back_as_it_went() {
    let served = served();
    let answer = request(&served.socket, "GET", "/v1/status").unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(serde_json::from_str::<Status>(&answer.body).unwrap(), status());
}

#[test]
fn drain_and_reload_reach_the_balancer() {
    let served = served();
    let answer =
        request(&served.socket, "POST", "/v1/drain?backend=cp-1&listener=kubernetes&undo=true").unwrap();
    assert_eq!(answer.status, 200);
    let wanted = Drain { listener: Some("kubernetes".to_owned()), backend: "cp-1".to_owned(), undo: true };
    assert_eq!(*served.fake.drained.lock(), [wanted]);
    for (method, target, status) in [
        ("POST", "/v1/drain", 400),
        ("POST", "/v1/drain?backend=none", 404),
        ("POST", "/v1/drain?backend=a&undo=maybe", 400),
        ("GET", "/v1/drain?backend=cp-1", 405),
        ("POST", "/v1/reload", 422),
        ("GET", "/elsewhere", 404),
        ("GET", "/readyz", 200),
        ("GET", "/healthz", 200),
    ] {
        assert_eq!(request(&served.socket, method, target).unwrap().status, status, "{method} {target}");
    }
    assert_eq!(served.fake.drained.lock().len(), 1);
}

#[test]
fn the_port_tells_metrics_and_takes_no_orders() {
    let served = served();
    let ask = |line: &str| {
        let mut stream = TcpStream::connect(served.server.metrics().unwrap()).unwrap();
        stream.write_all(format!("{line} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let page = ask("GET /metrics");
    for line in [
        "butler_lb_backend_up{listener=\"kubernetes\",backend=\"cp-2\"} 0\n",
        "butler_lb_listener_sent_bytes_total{listener=\"kubernetes\"} 1000\n",
        "butler_lb_vip_holder{vip=\"api\"} 1\n",
        "butler_lb_vip_rejected_adverts_total{vip=\"api\"} 3\n",
        "butler_lb_vip_clock_refused_adverts_total{vip=\"api\"} 2\n",
        "butler_lb_vip_replayed_adverts_total{vip=\"api\"} 3\n",
        "butler_lb_vip_wrong_key_adverts_total{vip=\"api\"} 4\n",
        "butler_lb_vip_foreign_claims_total{vip=\"api\"} 5\n",
        "butler_lb_vip_track_good{vip=\"api\",check=\"a \\\"b\\\"\"} 1\n",
        "butler_lb_vip_bfd_up{vip=\"api\",peer=\"192.0.2.12\"} 0\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    for line in ["GET /v1/status", "POST /v1/reload", "POST /v1/drain?backend=cp-1"] {
        assert!(ask(line).starts_with("HTTP/1.1 404 "), "{line}");
    }
    assert!(served.fake.drained.lock().is_empty());
}

#[test]
fn every_metric_says_what_it_is_once() {
    let page = metrics(&status());
    let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(names.len(), unique.len());
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(names.iter().any(|about| about.split(' ').next() == Some(name)), "{line}");
    }
}

#[test]
fn a_backend_that_a_reload_has_moved_is_counted_under_its_name_once() {
    let mut status = status();
    let backends = &mut status.listeners[0].backends;
    let moved = BackendStatus { state: BackendState::Removed, ..backends[0].clone() };
    let gone = BackendStatus { name: "cp-3".to_owned(), ..moved.clone() };
    backends.insert(0, moved);
    backends.push(gone);
    let page = metrics(&status);
    let series: Vec<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, _)| name)
        .collect();
    let unique: std::collections::BTreeSet<&&str> = series.iter().collect();
    assert_eq!(series.len(), unique.len(), "{page}");
    for line in [
        r#"listener_backends{listener="kubernetes"} 2"#,
        r#"backend_up{listener="kubernetes",backend="cp-1"} 1"#,
        r#"backend_connections{listener="kubernetes",backend="cp-1"} 4"#,
        r#"backend_opened_total{listener="kubernetes",backend="cp-1"} 18"#,
        r#"backend_up{listener="kubernetes",backend="cp-3"} 0"#,
        r#"backend_connections{listener="kubernetes",backend="cp-3"} 2"#,
    ] {
        assert!(page.lines().any(|l| l == format!("butler_lb_{line}")), "{line}\n{page}");
    }
}

#[test]
fn the_socket_is_its_owners_and_goes_with_its_process() {
    let served = served();
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let second = Sockets::bind(&served.socket, None);
    let own = Some(std::process::id());
    assert!(matches!(second, Err(ServerError::Locked { holder, .. }) if holder == own), "{second:?}");
    drop(served.server);
    assert!(!served.socket.exists());
    assert!(matches!(request(&served.socket, "GET", "/healthz"), Err(ClientError::Unreachable { .. })));
}

#[test]
fn a_socket_that_a_dead_process_left_is_replaced_and_a_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Sockets::bind(&path, None).unwrap().serve(Arc::new(Fake::default())).unwrap();
    drop(server);
    std::fs::write(&path, "mine").unwrap();
    assert!(Sockets::bind(&path, None).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_client_that_dawdles_holds_up_nobody() {
    let served = served();
    let _silent: Vec<UnixStream> = (0..5).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    assert_eq!(request(&served.socket, "GET", "/healthz").unwrap().status, 200);
}

#[test]
fn of_many_that_start_at_once_one_serves() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = folder.path().join(format!("{round}.sock"));
        // A process that was killed has left it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let barrier = std::sync::Barrier::new(8);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                barrier.wait();
                Sockets::bind(&path, None)
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refused: Vec<_> = bound.iter().filter_map(|bound| bound.as_ref().err()).collect();
        assert_eq!(refused.len(), 7, "round {round}");
        for error in refused {
            let text = error.to_string();
            assert!(text.contains("another process serves it") && text.contains(".sock.lock"), "{text}");
        }
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn a_process_that_hangs_does_not_hold_up_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lb.sock");
    // As one of before would be that accepts nobody any more: its queue is full.
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
    let socket = socket.unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let other = path.clone();
    std::thread::spawn(move || tell.send(Sockets::bind(&other, None).map(drop)));
    let outcome = told.recv_timeout(std::time::Duration::from_secs(20)).expect("it does not wait");
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("another process serves it"), "{error}");
    assert!(path.exists(), "it is not ours to take");
}
