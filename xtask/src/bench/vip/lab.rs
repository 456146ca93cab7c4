//! Four namespaces: a switch, a client and two hosts. They go away with the value.

use std::{
    fs::File,
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const HOSTS: [(&str, u8); 3] = [("a", 1), ("b", 2), ("client", 9)];

pub(super) struct Lab {
    prefix: String,
}

/// A program in a host; killed with its children when dropped.
pub(super) struct Process(Child);

// === impl Lab ===

impl Lab {
    pub(super) fn new() -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
        let lab = Self { prefix: format!("blbbench{}", std::process::id()) };
        let switch = lab.namespace("switch");
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for (host, number) in HOSTS {
            lab.add(host, number)?;
        }
        Ok(lab)
    }

    fn add(&self, host: &str, number: u8) -> Result<()> {
        let (switch, space, port) = (self.namespace("switch"), self.namespace(host), format!("p-{host}"));
        ip(&["netns", "add", &space])?;
        // A host that passed packets on would bring those for the lost address late, and hide the gap.
        self.inside(host, || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").context("turn forwarding off")
        })??;
        ip(&["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
        ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
        ip(&["-n", &space, "link", "set", "lo", "up"])?;
        ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        ip(&["-n", &space, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "eth0"])
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// Runs something in a host, on a thread of its own.
    pub(super) fn inside<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = format!("/run/netns/{}", self.namespace(host));
        let entered = || -> Result<T> {
            let space = File::open(&path).with_context(|| format!("open {path}"))?;
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("enter {path}"))?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(entered).join()).map_err(|_| anyhow!("a thread in {path} died"))?
    }

    pub(super) fn spawn(&self, host: &str, command: &mut Command) -> Result<Process> {
        let name = format!("{command:?}");
        command.process_group(0).stdin(Stdio::null());
        let child = self.inside(host, || command.spawn())?;
        child.map(Process).with_context(|| format!("start {name}"))
    }

    /// Pulls a host's cable, or plugs it in again.
    pub(super) fn plug(&self, host: &str, is_in: bool) -> Result<()> {
        let (switch, port) = (self.namespace("switch"), format!("p-{host}"));
        match is_in {
            true => ip(&["-n", &switch, "link", "set", &port, "master", "br0"]),
            false => ip(&["-n", &switch, "link", "set", &port, "nomaster"]),
        }
    }

    /// Takes an address off a host that a killed program left there.
    pub(super) fn take_off(&self, host: &str, address: &str) {
        let arguments = ["-n", &self.namespace(host), "addr", "del", address, "dev", "eth0"];
        // Usually it is not there.
        let _ = Command::new("ip").args(arguments).output();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in HOSTS.map(|(host, _)| host).iter().chain(&["switch"]) {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(host)]).output();
        }
    }
}

// === impl Process ===

impl Process {
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child of one that has ended may still be there.
        self.signal(rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("start ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
