//! The whole program, and what it renders for others: two hosts that forward to a third, and a client that asks at the shared
//! address.

use crate::lab::{Lab, PORT, Process, has, wait};
use butler_lb::admin::{Status, VipState, request};
use butler_lb::config::Config;
use butler_lb::render::{haproxy, keepalived};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VIP: &str = "10.77.0.100";
const HAPROXY: &str = "/usr/sbin/haproxy";
const KEEPALIVED: &str = "/usr/sbin/keepalived";
const CURL: &str = "/usr/bin/curl";
/// Where the balancers listen; what they forward to answers on [`PORT`].
const LISTEN: u16 = 8000;

/// The file of a host.
fn file(folder: &Path, host: &str, priority: u8) -> String {
    let socket = folder.join(format!("{host}.sock"));
    format!(
        "listeners:\n- name: web\n  bind: [\"0.0.0.0:{LISTEN}\"]\n  deregistrationDelay: 20\n  \
         health: {{kind: tcp, intervalMs: 100, timeoutMs: 1000}}\n  backends: [{{name: c, address: \"10.77.0.3:{PORT}\"}}]\n\
         vips:\n- name: api\n  addresses: [{VIP}/32]\n  interface: eth0\n  routerId: 51\n  priority: {priority}\n  \
         track: [{{check: {{listener: web}}}}]\nadmin: {{socket: {}}}\n",
        socket.display()
    )
}

/// What is forwarded to, in `c`: says its name, and closes when the other side does.
fn answer(lab: &Lab) {
    let listener = lab.inside("c", || TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                if writeln!(stream, "c").is_ok() {
                    let _ = std::io::copy(&mut stream, &mut std::io::sink());
                }
            });
        }
    });
}

fn parsed(text: &str) -> Config {
    let (config, findings) = butler_lb::config::check(text, None);
    config.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// Who answers the client by way of the shared address.
fn ask() -> Option<String> {
    let to = SocketAddr::new(VIP.parse().unwrap(), LISTEN);
    let stream = TcpStream::connect_timeout(&to, Duration::from_millis(500)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line.trim().to_owned())
}

fn wait_for_service(lab: &Lab, holder: &str) {
    wait(&format!("the client is served by way of {holder}"), || {
        let (held, answer) = (lab.holds(holder, VIP), lab.inside("client", ask));
        if held && answer.as_deref() == Some("c") {
            Ok(())
        } else {
            Err(format!("held: {held}, answer: {answer:?}"))
        }
    });
}

/// A balancer in a host.
struct Balancer {
    process: Process,
    socket: PathBuf,
}

impl Balancer {
    fn start(lab: &Lab, folder: &Path, host: &str, priority: u8) -> Balancer {
        let path = folder.join(format!("{host}.yaml"));
        std::fs::write(&path, file(folder, host, priority)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_butler-lb"));
        command.arg("--config").arg(&path).arg("run").stderr(Stdio::null());
        Balancer { process: lab.spawn(host, &mut command), socket: folder.join(format!("{host}.sock")) }
    }

    fn status(&self) -> Option<Status> {
        let answer = request(&self.socket, "GET", "/v1/status").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    fn wait_for(&self, state: VipState) {
        wait(&format!("the role is {state:?}"), || {
            let now = self.status().and_then(|status| status.vips.first().map(|vip| vip.state));
            if now == Some(state) { Ok(()) } else { Err(format!("{now:?}")) }
        });
    }
}

/// Asks again and again, each time by a new connection, until told to stop: how often that went well, how often it was reset
/// while it was made, and how often it failed otherwise.
fn ask_until(over: &AtomicBool) -> (u32, u32, u32) {
    let (mut good, mut cut, mut bad) = (0, 0, 0);
    while !over.load(Ordering::Relaxed) {
        let to = SocketAddr::new(VIP.parse().unwrap(), LISTEN);
        match TcpStream::connect_timeout(&to, Duration::from_millis(500)) {
            Ok(_) => good += 1,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => cut += 1,
            Err(_) => bad += 1,
        }
        // Often enough to hit any gap, and seldom enough to leave the machine to others.
        std::thread::sleep(Duration::from_millis(1));
    }
    (good, cut, bad)
}

#[test]
fn a_pair_serves_through_a_clean_stop_and_a_kill() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let mut a = Balancer::start(&lab, folder.path(), "a", 150);
    wait_for_service(&lab, "a");
    let mut b = Balancer::start(&lab, folder.path(), "b", 100);
    b.wait_for(VipState::Backup);

    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let client = lab.start("client", move || ask_until(&is_over));
    // Ended by its own connections' end and not by their time, which is 20 s.
    a.process.terminate();
    wait_for_service(&lab, "b");
    over.store(true, Ordering::Relaxed);
    let (good, cut, bad) = client.join().unwrap();
    // One after the other, so that only one can be in the middle of its handshake when the address moves.
    assert!(good > 0 && cut <= 1 && bad == 0, "{good} good, {cut} reset, {bad} bad");
    assert!(!lab.holds("a", VIP));

    let a = Balancer::start(&lab, folder.path(), "a", 150);
    a.wait_for(VipState::Backup);
    b.process.kill();
    wait_for_service(&lab, "a");
}

#[test]
fn an_address_leaves_a_machine_that_reaches_no_backend() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let a = Balancer::start(&lab, folder.path(), "a", 150);
    wait_for_service(&lab, "a");
    let b = Balancer::start(&lab, folder.path(), "b", 100);
    b.wait_for(VipState::Backup);
    // The file of `a` names a backend that is not there.
    let broken = file(folder.path(), "a", 150).replace(&format!("10.77.0.3:{PORT}"), "10.77.0.3:1");
    std::fs::write(folder.path().join("a.yaml"), broken).unwrap();
    assert_eq!(request(&a.socket, "POST", "/v1/reload").unwrap().status, 200);
    wait_for_service(&lab, "b");
    a.wait_for(VipState::Unfit);
    assert!(!lab.holds("a", VIP));
}

/// HAProxy and Keepalived in a host, as rendered.
fn rendered(lab: &Lab, folder: &Path, host: &str, file: &str) -> (Process, Process) {
    let config = parsed(file);
    let path = |name: &str| folder.join(format!("{host}-{name}"));
    std::fs::write(path("haproxy.cfg"), haproxy(&config).unwrap()).unwrap();
    std::fs::write(path("keepalived.conf"), keepalived(&config).unwrap()).unwrap();
    let mut command = Command::new(HAPROXY);
    command.arg("-db").arg("-f").arg(path("haproxy.cfg")).stdout(Stdio::null()).stderr(Stdio::null());
    let proxy = lab.spawn(host, &mut command);
    let mut command = Command::new(KEEPALIVED);
    command.args(["--dont-fork", "--vrrp", "--use-file"]).arg(path("keepalived.conf"));
    command.arg("--pid").arg(path("parent.pid")).arg("--vrrp_pid").arg(path("child.pid"));
    (proxy, lab.spawn(host, command.stdout(Stdio::null()).stderr(Stdio::null())))
}

#[test]
fn a_rendered_pair_fails_over_when_haproxy_dies() {
    if ![HAPROXY, KEEPALIVED, CURL].into_iter().all(has) {
        return;
    }
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let (mut proxy, _agent) = rendered(&lab, folder.path(), "a", &file(folder.path(), "a", 150));
    wait_for_service(&lab, "a");
    let _b = rendered(&lab, folder.path(), "b", &file(folder.path(), "b", 100));
    proxy.kill();
    wait_for_service(&lab, "b");
    assert!(!lab.holds("a", VIP));
}

/// In `c`: answers every request over TLS, as an API server that is ready.
fn answer_over_tls(lab: &Lab) {
    let made = rcgen::generate_simple_self_signed(vec!["c".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![made.cert.der().clone()],
            made.signing_key.serialize_der().try_into().unwrap(),
        );
    let config = Arc::new(config.unwrap());
    let listener = lab.inside("c", || TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut socket) = stream else { return };
            let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            std::thread::spawn(move || {
                let mut stream = rustls::Stream::new(&mut tls, &mut socket);
                let mut line = String::new();
                let mut reader = BufReader::new(&mut stream);
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                    line.clear();
                }
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                let _ = stream.flush();
            });
        }
    });
}

#[test]
fn a_rendered_pair_that_listens_at_the_shared_address_alone_takes_it_and_fails_over() {
    if ![HAPROXY, KEEPALIVED, CURL].into_iter().all(has) {
        return;
    }
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer_over_tls(&lab);
    // Readiness is asked for, as by default, and nobody can ask for it by way of an address that nobody holds yet.
    let start = |host: &str, priority| {
        let file = file(folder.path(), host, priority)
            .replace("0.0.0.0", VIP)
            .replace("kind: tcp, intervalMs: 100, timeoutMs: 1000", "intervalMs: 100");
        rendered(&lab, folder.path(), host, &file)
    };
    let wait_for = |host: &str| {
        wait(&format!("the client is served by way of {host}"), || {
            let url = format!("https://{VIP}:{LISTEN}/readyz");
            let mut curl = Command::new(CURL);
            curl.args(["--silent", "--fail", "--insecure", "--max-time", "2", &url]).stdout(Stdio::null());
            let good = lab.spawn("client", &mut curl).child().wait().is_ok_and(|status| status.success());
            let held = lab.holds(host, VIP);
            if good && held { Ok(()) } else { Err(format!("held: {held}, answered: {good}")) }
        });
    };
    let (mut proxy, _agent) = start("a", 150);
    wait_for("a");
    let _b = start("b", 100);
    proxy.kill();
    wait_for("b");
    assert!(!lab.holds("a", VIP));
}
