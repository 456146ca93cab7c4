//! A machine that loses a shared address while it lives: what becomes of the connections that came by it. Where another machine has the
//! address they are cut, and their clients know it; where nobody has it they go on as soon as it is back. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

#[path = "vip/lab.rs"]
#[allow(dead_code, reason = "others use the rest of it")]
mod lab;

use butler_lb::admin::{Status, VipState, request};
use lab::{Lab, PORT, Process, wait};
use rustix::process::Signal;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VIP: &str = "10.77.0.100";
const LISTEN: u16 = 8000;
const NOT_THERE: &str = "10.77.0.3:1\"";

/// The backend, as a configuration has it.
fn there() -> String {
    format!("10.77.0.3:{PORT}\"")
}

struct Balancer {
    process: Process,
    path: PathBuf,
    socket: PathBuf,
}

impl Balancer {
    fn start(lab: &Lab, folder: &Path, host: &str, vip: &str) -> Self {
        let (path, socket) = (folder.join(format!("{host}.yaml")), folder.join(format!("{host}.sock")));
        let text = format!(
            "listeners: [{{name: web, bind: [\"0.0.0.0:{LISTEN}\"], health: {{kind: tcp, intervalMs: 100}}, \
             backends: [{{name: c, address: \"10.77.0.3:{PORT}\"}}]}}]\n\
             vips: [{{name: api, addresses: [{VIP}/32], interface: eth0, routerId: 51, {vip}, \
             track: [{{check: {{listener: web}}}}]}}]\nadmin: {{socket: {}}}\n",
            socket.display()
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_butler-lb"));
        command.arg("--config").arg(&path).arg("run").stderr(Stdio::null());
        Self { process: lab.spawn(host, &mut command), path, socket }
    }

    fn reload(&self, from: &str, to: &str) {
        let text = std::fs::read_to_string(&self.path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&self.path, text.replace(from, to)).unwrap();
        assert_eq!(request(&self.socket, "POST", "/v1/reload").unwrap().status, 200);
    }

    /// Its only backend is replaced by one that is not there: what is connected stays, and what is tracked fails.
    fn lose_backend(&self) {
        self.reload(&there(), NOT_THERE);
        self.wait_for("it is unfit", |status| status.vips[0].state == VipState::Unfit);
    }

    fn find_backend(&self) {
        self.reload(NOT_THERE, &there());
    }

    fn wait_for_master(&self) {
        self.wait_for("it holds the address", |status| status.vips[0].state == VipState::Master);
    }

    fn wait_for_connections(&self, count: usize) {
        let text = format!("there are {count} connections");
        self.wait_for(&text, |status| status.listeners[0].connections as usize == count);
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        wait(what, || {
            let answer = request(&self.socket, "GET", "/v1/status").map_err(|error| error.to_string())?;
            let status: Status = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
            if is_so(&status) { Ok(()) } else { Err(answer.body) }
        });
    }
}

/// What is forwarded to, in `c`: says back what it is told.
fn answer(lab: &Lab) {
    let listener = lab.inside("c", || TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
}

fn say(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0; 1])
}

fn connected(lab: &Lab, address: &'static str) -> TcpStream {
    let mut stream = lab.inside("client", move || TcpStream::connect((address, LISTEN)).unwrap());
    stream.set_read_timeout(Some(lab::PATIENCE)).unwrap();
    say(&mut stream).unwrap();
    stream
}

/// Its client sends nothing, and still learns that the connection is gone.
fn is_told(mut stream: TcpStream) {
    let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(read, Ok(0) | Err(ErrorKind::ConnectionReset)), "{read:?}");
}

/// Takes the own address of a host off its interface, or puts it on.
fn own_address(lab: &Lab, host: &str, verb: &'static str) {
    let address = format!("{}/24", lab.address(host));
    let run = move || Command::new("ip").args(["addr", verb, &address, "dev", "eth0"]).status().unwrap();
    assert!(lab.inside(host, run).success());
}

#[test]
fn who_loses_the_address_to_another_keeps_none_of_its_connections_and_all_others() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let a = Balancer::start(&lab, folder.path(), "a", "priority: 100");
    a.wait_for_master();
    let shared: Vec<_> = (0..20).map(|_| connected(&lab, VIP)).collect();
    let mut own = connected(&lab, "10.77.0.1");
    a.wait_for_connections(21);
    let b = Balancer::start(&lab, folder.path(), "b", "priority: 200, preempt: true");
    b.wait_for_master();
    a.wait_for_connections(1);
    say(&mut own).unwrap();
    shared.into_iter().for_each(is_told);
}

#[test]
fn connections_by_an_address_that_nobody_has_go_on_when_it_is_back_and_end_when_another_takes_it() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let a = Balancer::start(&lab, folder.path(), "a", "priority: 100");
    a.wait_for_master();
    let b = Balancer::start(&lab, folder.path(), "b", "priority: 90");
    b.wait_for("it stands by", |status| status.vips[0].state == VipState::Backup);
    b.lose_backend();
    let (mut shared, mut own) = (connected(&lab, VIP), connected(&lab, "10.77.0.1"));
    a.lose_backend();
    assert_eq!(lab.holders(VIP), Vec::<&str>::new());
    a.find_backend();
    a.wait_for_master();
    say(&mut shared).unwrap();
    // Again, and this time it is another one's in the end: one that was not there when the address was held.
    a.lose_backend();
    a.wait_for_connections(2);
    drop(b);
    let b = Balancer::start(&lab, folder.path(), "b", "priority: 90");
    b.wait_for_master();
    a.wait_for_connections(1);
    say(&mut own).unwrap();
    is_told(shared);
}

#[test]
fn connections_of_a_holder_that_slept_and_has_no_peer_go_on() {
    let Some(lab) = Lab::new(&["a", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let mut a = Balancer::start(&lab, folder.path(), "a", "priority: 100");
    a.wait_for_master();
    let mut shared = connected(&lab, VIP);
    a.process.signal(Signal::STOP);
    // Longer than peers would have patience with it, and shorter than the kernel.
    std::thread::sleep(std::time::Duration::from_millis(800));
    a.process.signal(Signal::CONT);
    a.wait_for("it has given the address up and taken it again", |status| {
        status.vips[0].state == VipState::Master && status.vips[0].transitions == 3
    });
    say(&mut shared).unwrap();
}

#[test]
fn connections_of_a_holder_whose_own_address_goes_and_comes_go_on() {
    let Some(lab) = Lab::new(&["a", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let a = Balancer::start(&lab, folder.path(), "a", "priority: 100");
    a.wait_for_master();
    let mut shared = connected(&lab, VIP);
    // Once for a moment, while it still offers the address to others; and once for longer.
    own_address(&lab, "a", "del");
    a.wait_for("it can't speak", |status| status.vips[0].state != VipState::Master);
    own_address(&lab, "a", "add");
    a.wait_for_master();
    say(&mut shared).unwrap();
    own_address(&lab, "a", "del");
    a.wait_for("it is unfit", |status| status.vips[0].state == VipState::Unfit);
    own_address(&lab, "a", "add");
    a.wait_for_master();
    say(&mut shared).unwrap();
}

#[test]
fn connections_by_an_address_that_a_reload_gives_to_another_vip_go_on() {
    let Some(lab) = Lab::new(&["a", "c", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    answer(&lab);
    let a = Balancer::start(&lab, folder.path(), "a", "priority: 100");
    a.wait_for_master();
    let mut shared = connected(&lab, VIP);
    // First one with another address beside it, then one each.
    a.reload("10.77.0.100/32", "10.77.0.101/32, 10.77.0.100/32");
    a.wait_for_master();
    let text = std::fs::read_to_string(&a.path).unwrap();
    let line = text.lines().find(|line| line.starts_with("vips: [")).unwrap();
    let one = line.trim_start_matches("vips: [").trim_end_matches(']').replace(", 10.77.0.100/32", "");
    let other = one.replace("name: api", "name: other").replace("routerId: 51", "routerId: 52");
    let other = other.replace("10.77.0.101/32", "10.77.0.100/32");
    a.reload(line, &format!("vips: [{one}, {other}]"));
    a.wait_for("both are held", |status| {
        status.vips.len() == 2 && status.vips.iter().all(|vip| vip.state == VipState::Master)
    });
    say(&mut shared).unwrap();
}
