//! A network in namespaces: hosts on one switch, each with `eth0`, 10.77.0.N and fd77::N. Everything goes away with the
//! value, also when a test fails; what a killed run left behind is removed by the next one.
//!
//! ```text
//!   a (.1)   b (.2)   c (.3)   client (.9)
//!     \        |        /        |
//!      +------ switch (bridge) --+
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../support/skipped.rs"]
mod skipped;
pub(crate) use skipped::skip;

/// Where every host answers with its name.
pub(crate) const PORT: u16 = 7000;
/// How long anything may take: far longer than it does, so that a busy machine fails no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

static LABS: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    prefix: String,
    hosts: Vec<&'static str>,
}

/// A program in a host, killed when dropped.
pub(crate) struct Process(Child);

// === impl Lab ===

impl Lab {
    /// `None`, with the reason printed, where namespaces can't be made.
    pub(crate) fn new(hosts: &[&'static str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("network namespaces need root");
            return None;
        }
        remove_leftovers();
        let prefix = format!("blb{}x{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed));
        let lab = Self { prefix, hosts: hosts.to_vec() };
        let switch = lab.namespace("switch");
        if !try_run(&["netns", "add", &switch]) {
            skip("`ip netns add` fails here");
            return None;
        }
        lab.configure("switch", "ipv6/conf/all/disable_ipv6", "1");
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0"]);
        // A switch that looks for multicast listeners would swallow the first adverts.
        ip(&["-n", &switch, "link", "set", "br0", "type", "bridge", "mcast_snooping", "0"]);
        ip(&["-n", &switch, "link", "set", "br0", "up"]);
        for host in hosts {
            lab.add_host(host);
        }
        Some(lab)
    }

    fn add_host(&self, host: &str) {
        let (switch, space, number) = (self.namespace("switch"), self.namespace(host), number(host));
        ip(&["netns", "add", &space]);
        // Addresses are usable at once, and what is not for this host is dropped and not passed on late.
        self.configure(host, "ipv6/conf/default/accept_dad", "0");
        self.configure(host, "ipv6/conf/all/accept_dad", "0");
        self.configure(host, "ipv4/ip_forward", "0");
        let port = format!("p-{host}");
        ip(&["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space]);
        ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"]);
        ip(&["-n", &space, "link", "set", "lo", "up"]);
        ip(&["-n", &space, "link", "set", "eth0", "up"]);
        ip(&["-n", &space, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "eth0"]);
        ip(&["-n", &space, "addr", "add", &format!("fd77::{number}/64"), "dev", "eth0", "nodad"]);
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn configure(&self, host: &str, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        let value = value.to_owned();
        self.inside(host, move || std::fs::write(&path, value).unwrap_or_else(|e| panic!("{path}: {e}")));
    }

    /// Runs something in a host: on a thread of its own, whose sockets and programs belong there.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.start(host, work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The same, without waiting for its end.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let namespace = self.namespace(host);
        thread::spawn(move || {
            enter(&namespace);
            work()
        })
    }

    /// Starts a program in a host, in a process group of its own.
    pub(crate) fn spawn(&self, host: &str, command: &mut Command) -> Process {
        let name = format!("{command:?}");
        command.process_group(0);
        let spawned = thread::scope(|scope| {
            let spawn = || {
                enter(&self.namespace(host));
                command.spawn()
            };
            scope.spawn(spawn).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        Process(spawned.unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// Every host but the client answers on its port with its name, and keeps connections open.
    pub(crate) fn answer(&self) {
        for host in self.hosts.iter().copied().filter(|host| *host != "client") {
            let listener = self.inside(host, || TcpListener::bind(("::", PORT)).unwrap());
            thread::spawn(move || {
                let mut open = Vec::new();
                // The listener lives as long as this program: the namespace goes, the thread waits for ever.
                for stream in listener.incoming() {
                    let Ok(mut stream) = stream else { return };
                    let _ = writeln!(stream, "{host}");
                    open.push(stream);
                }
            });
        }
    }

    /// As if a host had never spoken with the others.
    pub(crate) fn forget_neighbours(&self, host: &str) {
        ip(&["-n", &self.namespace(host), "neigh", "flush", "dev", "eth0"]);
    }

    /// Pulls a host's cable at the switch: the host itself does not see it.
    pub(crate) fn cut(&self, host: &str) {
        // The port is taken out of the bridge: its carrier stays, nothing passes.
        ip(&["-n", &self.namespace("switch"), "link", "set", &format!("p-{host}"), "nomaster"]);
    }

    pub(crate) fn heal(&self, host: &str) {
        ip(&["-n", &self.namespace("switch"), "link", "set", &format!("p-{host}"), "master", "br0"]);
    }

    /// Hosts that can't hear each other any more, while all the others hear them.
    pub(crate) fn part(&self, hosts: &[&str], parted: bool) {
        for host in hosts {
            let (port, state) = (format!("p-{host}"), if parted { "on" } else { "off" });
            let switch = self.namespace("switch");
            ip(&["-n", &switch, "link", "set", &port, "type", "bridge_slave", "isolated", state]);
        }
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: &str) -> IpAddr {
        IpAddr::from([10, 77, 0, number(host)])
    }

    /// Takes an address off all hosts: a killed program leaves it there.
    pub(crate) fn take_off_everywhere(&self, address: &str) {
        for host in self.holders(address) {
            self.take_off(host, address);
        }
    }

    /// Takes an address off a host's interface, as a person could.
    pub(crate) fn take_off(&self, host: &str, address: &str) {
        let prefix = if address.contains(':') { 128 } else { 32 };
        let (space, address) = (self.namespace(host), format!("{address}/{prefix}"));
        ip(&["-n", &space, "addr", "del", &address, "dev", "eth0"]);
    }

    /// Puts an address on a host's interface, as a person would: with its prefix length, and more words of `ip`.
    pub(crate) fn put_on(&self, host: &str, address: &str, more: &[&str]) {
        let space = self.namespace(host);
        ip(&[&["-n", &space, "addr", "add", address, "dev", "eth0"], more].concat());
    }

    /// Has a host say at which hardware address its IPv6 addresses are: as after a change of it.
    pub(crate) fn announce_ipv6(&self, host: &str) {
        self.configure(host, "ipv6/conf/eth0/ndisc_notify", "1");
        ip(&["-n", &self.namespace(host), "link", "set", "eth0", "address", "02:00:00:00:77:09"]);
    }

    /// Watches for addresses that are taken off a host. Everything before the end of `work` is seen.
    pub(crate) fn taken_off_during(&self, host: &str, work: impl FnOnce()) -> Vec<String> {
        let mut command = Command::new("ip");
        command.args(["-o", "monitor", "address"]).stdout(Stdio::piped());
        let mut monitor = self.spawn(host, &mut command);
        let mut lines = BufReader::new(monitor.child().stdout.take().unwrap()).lines().map_while(Result::ok);
        // It says nothing when it is ready: marks are put on until one is seen, and another one when all is over.
        let mut marks = 1..250;
        let mut mark = |wanted: &mut (dyn Iterator<Item = String> + Send)| {
            let (sender, seen) = std::sync::mpsc::channel();
            let mut found = Vec::new();
            thread::scope(|scope| {
                scope.spawn(|| {
                    for line in wanted {
                        let is_mark = line.contains("10.88.0.");
                        found.push(line);
                        if is_mark {
                            let _ = sender.send(());
                            return;
                        }
                    }
                });
                for number in marks.by_ref() {
                    self.put_on(host, &format!("10.88.0.{number}/32"), &[]);
                    if seen.recv_timeout(Duration::from_millis(200)).is_ok() {
                        return;
                    }
                }
            });
            found
        };
        mark(&mut lines);
        work();
        let mut seen = mark(&mut lines);
        seen.retain(|line| line.contains("Deleted"));
        seen
    }

    /// Whether a host has an address on its interface.
    pub(crate) fn holds(&self, host: &str, address: &str) -> bool {
        let output = Command::new("ip")
            .args(["-n", &self.namespace(host), "-o", "addr", "show", "dev", "eth0"])
            .output()
            .unwrap();
        let wanted = format!(" {address}/");
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.contains(&wanted))
    }

    /// Whether an address of a host stays until someone takes it off.
    pub(crate) fn is_there_for_good(&self, host: &str, address: &str) -> bool {
        let shown = ["-n", &self.namespace(host), "-o", "addr", "show", "to", address].map(str::to_owned);
        let output = Command::new("ip").args(shown).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("valid_lft forever")
    }

    /// Which hosts hold an address.
    pub(crate) fn holders(&self, address: &str) -> Vec<&'static str> {
        self.hosts.iter().copied().filter(|host| self.holds(host, address)).collect()
    }

    /// Who answers the client at an address.
    pub(crate) fn ask(&self, address: &str) -> Option<String> {
        let address: IpAddr = address.parse().unwrap();
        self.inside("client", move || {
            let to = SocketAddr::new(address, PORT);
            let stream = TcpStream::connect_timeout(&to, Duration::from_millis(500)).ok()?;
            stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).ok()?;
            Some(line.trim().to_owned())
        })
    }

    /// An idle connection of the client, after it has got the name of who answered.
    pub(crate) fn idle_connection(&self, address: &str) -> (TcpStream, String) {
        let address: IpAddr = address.parse().unwrap();
        let mut stream = self.inside("client", move || TcpStream::connect((address, PORT)).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut name = Vec::new();
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte).unwrap();
            name.push(byte[0]);
        }
        (stream, String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Waits until this host answers the client at the address, whoever else still has it.
    pub(crate) fn wait_for_answer(&self, host: &str, address: &str) {
        wait(&format!("{host} answers at {address}"), || {
            let answer = self.ask(address);
            if answer.as_deref() == Some(host) { Ok(()) } else { Err(format!("answered by {answer:?}")) }
        });
    }

    /// Waits until exactly this host holds the address and answers the client at it.
    pub(crate) fn wait_for_holder(&self, host: &str, address: &str) {
        wait(&format!("{host} alone holds and answers at {address}"), || {
            let (holders, answer) = (self.holders(address), self.ask(address));
            if holders == [host] && answer.as_deref() == Some(host) {
                Ok(())
            } else {
                Err(format!("held by {holders:?}, answered by {answer:?}"))
            }
        });
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in self.hosts.iter().chain(&["switch"]) {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(host)]).output();
        }
    }
}

// === impl Process ===

impl Process {
    /// SIGKILL: it can do nothing about it.
    pub(crate) fn kill(&mut self) {
        // With its children: theirs could else say goodbye for it.
        if matches!(self.0.try_wait(), Ok(None)) {
            let group = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }

    /// SIGTERM, and waits for its end.
    pub(crate) fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }

    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) {
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Moves the calling thread into a namespace, for good.
fn enter(namespace: &str) {
    let path = format!("/run/netns/{namespace}");
    let space = File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(space.as_fd(), Some(kind)).unwrap();
}

/// Asks until it is so, or fails with what it was at last.
pub(crate) fn wait(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match check() {
            Ok(()) => return,
            Err(state) if Instant::now() > deadline => panic!("waited in vain until {what}: {state}"),
            // The kernel and other programs can only be asked.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether a program is installed; says so where it is not.
pub(crate) fn has(program: &str) -> bool {
    let found = Path::new(program).exists();
    if !found {
        skip(&format!("no {program} (install it, or run `cargo xtask conformance`)"));
    }
    found
}

fn number(host: &str) -> u8 {
    match host {
        "a" => 1,
        "b" => 2,
        "c" => 3,
        "client" => 9,
        _ => panic!("no host {host}"),
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn try_run(arguments: &[&str]) -> bool {
    let run = Command::new("ip").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Namespaces whose maker is dead: a test that was killed can't clean up.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("blb").and_then(|rest| rest.split('x').next()) else { continue };
        if pid.parse::<u32>().is_ok() && !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
