//! The program as people run it: a file, signals, the runtime API. On loopback, without shared addresses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use butler_lb::admin::{BackendState, Status, request};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// An address of this test alone: all of 127.0.0.0/8 is ours.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    Ipv4Addr::new(127, 64 | high & 63, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A backend that says its name to whoever connects, and then what it hears. Ends with the process.
fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                if stream.write_all(name.as_bytes()).is_ok() {
                    let mut bytes = [0; 1024];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        if stream.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                }
            });
        }
    });
    address
}

struct Balancer {
    process: Child,
    log: Receiver<String>,
    seen: Vec<String>,
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Balancer {
    /// Starts a balancer with a listener `web` and these backends, and waits until they are healthy.
    fn start(backends: &[(&str, SocketAddr)], more: &str) -> Balancer {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from((own_address(), 6443));
        let text = file(folder.path(), address, backends, more);
        std::fs::write(folder.path().join("lb.yaml"), text).unwrap();
        let mut process = program(folder.path()).arg("run").stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(process.stderr.take().unwrap());
        let (lines, log) = channel();
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut balancer = Balancer { process, log, seen: Vec::new(), folder, address };
        balancer.wait_for_line("ready: web on ");
        balancer.wait_until(|status| status.listeners[0].healthy == backends.len());
        balancer
    }

    fn wait_for_line(&mut self, part: &str) {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.log.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let found = line.contains(part);
            self.seen.push(line);
            if found {
                return;
            }
        }
        panic!("{part:?} was not logged: {:#?}", self.seen);
    }

    fn write(&self, backends: &[(&str, SocketAddr)], more: &str) {
        let text = file(self.folder.path(), self.address, backends, more);
        std::fs::write(self.folder.path().join("lb.yaml"), text).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("lb.sock")
    }

    fn status(&self) -> Status {
        serde_json::from_str(&request(&self.socket(), "GET", "/v1/status").unwrap().body).unwrap()
    }

    #[track_caller]
    fn wait_until(&self, good: impl Fn(&Status) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !good(&self.status()) {
            assert!(Instant::now() < end, "{:#?}", self.status());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Connects, and reads the backend's name.
    fn connect(&self) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut name = [0; 3];
        stream.read_exact(&mut name).unwrap();
        (stream, String::from_utf8_lossy(&name).into_owned())
    }

    fn command(&self, words: &[&str]) -> (i32, String) {
        let output = program(self.folder.path()).args(words).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text)
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_butler-lb"));
    command.arg("--config").arg(folder.join("lb.yaml"));
    command
}

fn file(folder: &Path, address: SocketAddr, backends: &[(&str, SocketAddr)], more: &str) -> String {
    let list: Vec<String> = backends
        .iter()
        .map(|(name, address)| format!("  - {{name: {name}, address: \"{address}\"}}\n"))
        .collect();
    format!(
        "listeners:\n- name: web\n  bind: [\"{address}\"]\n  balance: roundRobin\n  deregistrationDelay: 1\n  \
         health: {{kind: tcp, intervalMs: 50, timeoutMs: 1000}}\n  backends:\n{}{more}\nadmin: {{socket: {}}}\n",
        list.concat(),
        folder.join("lb.sock").display()
    )
}

#[test]
fn connections_go_to_all_backends_and_the_commands_tell_so() {
    let balancer = Balancer::start(&[("one", backend("one")), ("two", backend("two"))], "");
    let mut names: Vec<String> = (0..4).map(|_| balancer.connect().1).collect();
    names.sort();
    assert_eq!(names, ["one", "one", "two", "two"]);
    let (code, text) = balancer.command(&["status"]);
    assert_eq!(code, 0);
    assert!(text.contains("2 of 2 members healthy"), "{text}");
    let (code, text) = balancer.command(&["status", "--json"]);
    assert_eq!(code, 0);
    assert_eq!(serde_json::from_str::<Status>(&text).unwrap().listeners[0].accepted, 4);
    let page = request(&balancer.socket(), "GET", "/metrics").unwrap().body;
    assert!(page.contains("butler_lb_listener_accepted_total{listener=\"web\"} 4"), "{page}");
}

#[test]
fn a_reload_keeps_connections_and_a_wrong_one_changes_nothing() {
    let (one, two) = (backend("one"), backend("two"));
    let mut balancer = Balancer::start(&[("one", one)], "");
    let (mut old, name) = balancer.connect();
    assert_eq!(name, "one");

    balancer.write(&[("two", two)], "");
    let (code, text) = balancer.command(&["reload"]);
    assert_eq!((code, text.contains("is in force")), (0, true), "{text}");
    balancer.wait_until(|status| status.listeners[0].healthy == 1);
    assert_eq!(balancer.connect().1, "two");
    old.write_all(b"still").unwrap();
    let mut bytes = [0; 5];
    old.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"still");

    balancer.write(&[("one", one)], "  balans: x\n");
    let (code, text) = balancer.command(&["reload"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("unknown field") && text.contains("stays in force"), "{text}");
    balancer.signal("HUP");
    balancer.wait_for_line("did you mean balance?");
    balancer.wait_until(|status| status.failed_reloads == 2);
    assert_eq!(balancer.connect().1, "two");

    balancer.write(&[("one", one)], "threads: 7\n");
    let (code, text) = balancer.command(&["reload"]);
    assert_eq!((code, text.contains("threads can't change while it runs")), (2, true), "{text}");
}

#[test]
fn a_drained_backend_gets_nothing_new_until_it_is_taken_back() {
    let balancer = Balancer::start(&[("one", backend("one")), ("two", backend("two"))], "");
    assert_eq!(balancer.command(&["drain", "one"]).0, 0);
    balancer.wait_until(|status| status.listeners[0].backends[0].state == BackendState::Draining);
    assert!((0..4).all(|_| balancer.connect().1 == "two"));
    let (code, text) = balancer.command(&["drain", "one", "--undo", "--listener", "web"]);
    assert_eq!((code, text.contains("gets connections again in web")), (0, true), "{text}");
    balancer.wait_until(|status| status.listeners[0].healthy == 2);
    assert!((0..4).any(|_| balancer.connect().1 == "one"));
    let (code, text) = balancer.command(&["drain", "three"]);
    assert_eq!((code, text.contains("there is no backend \"three\"")), (1, true), "{text}");
}

#[test]
fn sigterm_waits_for_connections_and_takes_no_new_ones() {
    let mut balancer = Balancer::start(&[("one", backend("one"))], "");
    let (mut stream, _) = balancer.connect();
    balancer.signal("TERM");
    balancer.wait_for_line("stopping: ");
    // The one that is there still works for its second.
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let code = balancer.process.wait().unwrap().code();
    assert_eq!(code, Some(0));
    assert!(TcpStream::connect(balancer.address).is_err());
    assert!(!balancer.socket().exists());
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_reload_during_a_stop_is_refused_and_starts_nothing() {
    let (one, two) = (backend("one"), backend("two"));
    let mut balancer = Balancer::start(&[("one", one)], "");
    let longer = |text: String| text.replace("deregistrationDelay: 1\n", "deregistrationDelay: 600\n");
    let path = balancer.folder.path().join("lb.yaml");
    std::fs::write(&path, longer(std::fs::read_to_string(&path).unwrap())).unwrap();
    assert_eq!(balancer.command(&["reload"]).0, 0);
    let (mut stream, _) = balancer.connect();
    balancer.signal("TERM");
    balancer.wait_for_line("stopping: connections have 600 s");
    balancer.write(&[("two", two)], "");
    let (code, text) = balancer.command(&["reload"]);
    assert_eq!((code, text.contains("it is stopping")), (1, true), "{text}");
    balancer.wait_for_line("it is stopping");
    balancer.signal("HUP");
    balancer.wait_for_line("it is stopping");
    // The listener may be about to close, and is not opened again.
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(balancer.address).is_ok() {
        assert!(Instant::now() < end, "somebody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(balancer.status().failed_reloads, 0);
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    drop(stream);
    assert_eq!(balancer.process.wait().unwrap().code(), Some(0));
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let address = SocketAddr::from((own_address(), 6443));
    std::fs::write(
        folder.path().join("lb.yaml"),
        file(folder.path(), address, &[("one", backend("one"))], ""),
    )
    .unwrap();
    let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = program(folder.path());
    command.arg("run").stderr(Stdio::null()).env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut process = command.spawn().unwrap();
    let told = || {
        let mut bytes = [0; 64];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    assert!(TcpStream::connect(address).is_ok());
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_balancer_with_the_same_socket_is_refused() {
    let balancer = Balancer::start(&[("one", backend("one"))], "");
    let (code, text) = balancer.command(&["run"]);
    assert_eq!((code, text.contains("another process serves it")), (1, true), "{text}");
    assert_eq!(balancer.connect().1, "one");
}

#[test]
fn the_access_log_is_a_line_for_each_connection() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let balancer =
        Balancer::start(&[("one", backend("one"))], &format!("accessLog: {{path: {}}}\n", log.display()));
    drop(balancer.connect());
    balancer.wait_until(|_| std::fs::read_to_string(&log).is_ok_and(|text| text.ends_with('\n')));
    let text = std::fs::read_to_string(&log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&line["listener"], &line["backend"]), (&"web".into(), &"one".into()));
    assert_eq!(line["bytesFromBackend"], 3);
}

#[test]
fn what_is_wrong_is_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let output = program(folder.path()).args(words).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&["run"]);
    assert_eq!((code, text.contains("cannot read ")), (2, true), "{text}");
    std::fs::write(folder.path().join("lb.yaml"), "listeners:\n- nam: x\n").unwrap();
    for command in ["run", "check"] {
        let (code, text) = run(&[command]);
        assert_eq!(code, 2);
        assert!(text.contains("lb.yaml:2:3: error: listeners[0].nam: unknown field"), "{text}");
    }
    let (code, text) = run(&["status", "--socket", "/nonexistent.sock"]);
    assert_eq!((code, text.contains("no butler-lb answers")), (3, true), "{text}");
}
