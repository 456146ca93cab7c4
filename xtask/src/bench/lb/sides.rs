//! What is measured: nothing in between, HAProxy, HAProxy with splice or with one thread, nginx, ours. Each of the others with
//! two threads or processes, and all with the same three backends in turn and the same checks where they have any.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::peers::{HAPROXY, NGINX, NGINX_STREAM, ensure_packages};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Direct,
    Haproxy,
    HaproxySplice,
    HaproxyOne,
    Nginx,
    Ours,
}

/// In the order of the table.
pub(super) const ALL: [Side; 6] =
    [Side::Direct, Side::Haproxy, Side::HaproxySplice, Side::HaproxyOne, Side::Nginx, Side::Ours];

/// A proxy that runs. Dropping it ends it.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    child: Option<Child>,
}

// === impl Side ===

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Haproxy => "HAProxy",
            Self::HaproxySplice => "HAProxy splice",
            Self::HaproxyOne => "HAProxy, 1 thread",
            Self::Nginx => "nginx stream",
            Self::Ours => "butler-lb",
        }
    }

    /// Where its configuration is.
    pub(super) fn file(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.conf", self.name().replace(' ', "-")))
    }

    /// Starts it and waits until it answers.
    pub(super) fn start(self, ours: &Path, folder: &Path, backends: &[SocketAddr]) -> Result<Proxy> {
        if self == Self::Direct {
            return Ok(Proxy { address: backends[0], child: None });
        }
        let address = free_address()?;
        let file = self.file(folder);
        let text = match self {
            Self::Nginx => nginx(address, backends, folder),
            Self::Ours => butler(address, backends, folder),
            _ => haproxy(address, backends, self),
        };
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        let mut command = match self {
            Self::Nginx => Command::new(NGINX.program),
            Self::Ours => Command::new(ours),
            _ => Command::new(HAPROXY.program),
        };
        match self {
            Self::Nginx => command.arg("-c").arg(&file).arg("-p").arg(folder),
            Self::Ours => command.args(["run", "--config"]).arg(&file),
            _ => command.args(["-db", "-f"]).arg(&file),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {}", self.name()))?;
        let mut proxy = Proxy { address, child: Some(child) };
        proxy.wait().with_context(|| format!("wait for {}", self.name()))?;
        Ok(proxy)
    }
}

/// Has the peers installed, if they are not.
pub(super) fn install_peers() -> Result<()> {
    ensure_packages(&[HAPROXY, NGINX, NGINX_STREAM])
}

/// The versions of the peers, for the report.
pub(super) fn versions() -> Result<String> {
    let said = |program: &str| -> Result<String> {
        let output = Command::new(program).arg("-v").output().with_context(|| format!("start {program}"))?;
        let text = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned();
        let version = line.split([' ', '/', '-']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        Ok(version.unwrap_or("of unknown version").to_owned())
    };
    Ok(format!("HAProxy {}, nginx {}", said(HAPROXY.program)?, said(NGINX.program)?))
}

// === impl Proxy ===

impl Proxy {
    /// It and its children.
    pub(super) fn pids(&self) -> Vec<u32> {
        let Some(child) = &self.child else { return Vec::new() };
        let first = child.id();
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        std::iter::once(first)
            .chain(children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()))
            .collect()
    }

    /// Has ours read its configuration again.
    pub(super) fn reload(&self) -> Result<()> {
        let pid = self.child.as_ref().and_then(|child| rustix::process::Pid::from_raw(child.id() as i32));
        let pid = pid.context("there is no process")?;
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).context("ask for a reload")
    }

    fn wait(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address).is_err() {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                anyhow::bail!("it has ended: {status}");
            }
            ensure!(Instant::now() < until, "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Checks have had the time to find the backends.
        std::thread::sleep(Duration::from_millis(1200));
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // By the end that each understands, so that nginx ends its workers too.
        if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

// === configurations ===

fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?)
}

fn haproxy(address: SocketAddr, backends: &[SocketAddr], side: Side) -> String {
    let splice = if side == Side::HaproxySplice { "  option splice-auto\n" } else { "" };
    let threads = if side == Side::HaproxyOne { 1 } else { 2 };
    let servers: String = (0..)
        .zip(backends)
        .map(|(number, backend): (u32, _)| format!("  server s{number} {backend} check inter 1s\n"))
        .collect();
    format!(
        "global\n  nbthread {threads}\n  maxconn 4000\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 24h\n  timeout server 24h\n  retries 3\n\
         \x20 option redispatch 1\n{splice}\
         frontend front\n  bind {address}\n  default_backend back\n\
         backend back\n  balance roundrobin\n{servers}"
    )
}

fn nginx(address: SocketAddr, backends: &[SocketAddr], folder: &Path) -> String {
    let servers: String = backends.iter().map(|backend| format!("    server {backend};\n")).collect();
    let pid: PathBuf = folder.join("nginx.pid");
    format!(
        "load_module {};\n\
         daemon off;\nworker_processes 2;\nworker_rlimit_nofile 40000;\npid {};\nerror_log /dev/null;\n\
         events {{ worker_connections 20000; }}\n\
         stream {{\n  upstream back {{\n{servers}  }}\n\
         \x20 server {{ listen {address} backlog=65535; proxy_pass back; proxy_timeout 24h; tcp_nodelay on; }}\n}}\n",
        NGINX_STREAM.program,
        pid.display()
    )
}

pub(super) fn butler(address: SocketAddr, backends: &[SocketAddr], folder: &Path) -> String {
    let servers: String = (0..)
        .zip(backends)
        .map(|(number, backend): (u32, _)| format!("      - name: s{number}\n        address: {backend}\n"))
        .collect();
    format!(
        "threads: 2\nadmin:\n  socket: {}\nlisteners:\n  - name: bench\n    bind: [\"{address}\"]\n\
         \x20   balance: roundRobin\n    health:\n      kind: tcp\n    backends:\n{servers}",
        folder.join("admin.sock").display()
    )
}
