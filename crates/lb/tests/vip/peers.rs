//! Ours beside the programs of others: Debian's Keepalived as the other half of a pair, and frr's BFD.

use crate::agent::Agent;
use crate::lab::{Lab, Process, has, wait};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const KEEPALIVED: &str = "/usr/sbin/keepalived";
const ZEBRA: &str = "/usr/lib/frr/zebra";
const BFDD: &str = "/usr/lib/frr/bfdd";

/// How a pair talks.
#[derive(Clone, Copy)]
struct Way {
    version: u8,
    advert_ms: u32,
    address: &'static str,
    prefix: u8,
    unicast: bool,
}

const V3: Way = Way { version: 3, advert_ms: 100, address: "10.77.0.100", prefix: 32, unicast: false };

impl Way {
    /// One of ours in a host.
    fn ours(&self, lab: &Lab, host: &str, other: &str, priority: u8) -> Agent {
        let peers = if self.unicast { format!(r#""{}""#, lab.address(other)) } else { String::new() };
        let Way { version, advert_ms, address, prefix, .. } = self;
        let vips = format!(
            r#"[{{"name": "api", "interface": "eth0", "routerId": 51, "addresses": ["{address}/{prefix}"],
                "priority": {priority}, "version": {version}, "advertMs": {advert_ms}, "peers": [{peers}],
                "preempt": true}}]"#
        );
        Agent::start(lab, host, &vips.replace('\n', ""))
    }

    /// A Keepalived in a host.
    fn keepalived(&self, lab: &Lab, folder: &Path, host: &str, other: &str, priority: u8) -> Process {
        let Way { version, advert_ms, address, prefix, .. } = self;
        let unicast = match self.unicast {
            true => format!("unicast_peer {{ {} }}", lab.address(other)),
            false => String::new(),
        };
        let seconds = f64::from(*advert_ms) / 1000.0;
        let config = format!(
            "vrrp_instance api {{\n state BACKUP\n interface eth0\n virtual_router_id 51\n priority {priority}\n \
             version {version}\n advert_int {seconds}\n {unicast}\n virtual_ipaddress {{ {address}/{prefix} dev eth0 }}\n}}\n"
        );
        let path = folder.join(format!("keepalived-{host}.conf"));
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(KEEPALIVED);
        command.args(["--dont-fork", "--vrrp", "--use-file"]).arg(&path);
        for (option, name) in [("--pid", "parent"), ("--vrrp_pid", "child")] {
            let file = folder.join(format!("{host}-{name}.pid"));
            // One that was killed left it behind, and would be taken for running.
            let _ = std::fs::remove_file(&file);
            command.arg(option).arg(file);
        }
        lab.spawn(host, command.stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

/// Each side leads once, stops cleanly, comes back and takes the address again, and is killed.
fn both_ways_round(way: Way) {
    if !has(KEEPALIVED) {
        return;
    }
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    lab.answer();
    let address = way.address;
    {
        let mut keepalived = way.keepalived(&lab, folder.path(), "a", "b", 150);
        lab.wait_for_holder("a", address);
        let mut ours = way.ours(&lab, "b", "a", 100);
        ours.wait_for_status("role: Backup");
        keepalived.terminate();
        lab.wait_for_holder("b", address);
        let mut keepalived = way.keepalived(&lab, folder.path(), "a", "b", 150);
        lab.wait_for_holder("a", address);
        lab.cut("a");
        lab.wait_for_answer("b", address);
        lab.heal("a");
        lab.wait_for_holder("a", address);
        keepalived.kill();
        lab.wait_for_answer("b", address);
        assert!(ours.status().contains("rejected: 0"), "{}", ours.status());
    }
    lab.take_off_everywhere(address);
    let mut ours = way.ours(&lab, "a", "b", 150);
    lab.wait_for_holder("a", address);
    let _keepalived = way.keepalived(&lab, folder.path(), "b", "a", 100);
    ours.stop();
    lab.wait_for_holder("b", address);
    let mut ours = way.ours(&lab, "a", "b", 150);
    lab.wait_for_holder("a", address);
    ours.kill();
    lab.wait_for_answer("b", address);
}

#[test]
fn keepalived_and_ours_by_version_3() {
    both_ways_round(V3);
}

#[test]
fn keepalived_and_ours_by_version_2() {
    both_ways_round(Way { version: 2, advert_ms: 1000, ..V3 });
}

#[test]
fn keepalived_and_ours_with_named_peers() {
    both_ways_round(Way { unicast: true, ..V3 });
}

#[test]
fn keepalived_and_ours_with_ipv6() {
    both_ways_round(Way { address: "fd77::100", prefix: 128, ..V3 });
}

/// frr's BFD in a host.
struct Frr {
    folder: TempDir,
    _zebra: Process,
    bfdd: Process,
}

impl Frr {
    fn start(lab: &Lab, host: &str, peer: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let config = format!(
            "bfd\n peer {} interface eth0\n  receive-interval 50\n  transmit-interval 50\n  no shutdown\n",
            lab.address(peer)
        );
        std::fs::write(path.join("bfdd.conf"), config).unwrap();
        std::fs::write(path.join("zebra.conf"), "").unwrap();
        // Its programs become a user of their own.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        chown(path, Some(user_id("frr")), None).unwrap();
        let start = |program: &str, name: &str| {
            let mut command = Command::new(program);
            command.args(["-u", "frr", "-g", "frr", "-P", "0"]);
            for (option, file) in [("-f", "conf"), ("-i", "pid")] {
                command.arg(option).arg(path.join(format!("{name}.{file}")));
            }
            command.arg("-z").arg(path.join("zserv.api")).arg("--vty_socket").arg(path);
            if name == "bfdd" {
                command.arg("--bfdctl").arg(path.join("bfdd.sock"));
            }
            lab.spawn(host, command.stdout(Stdio::null()).stderr(Stdio::null()))
        };
        let zebra = start(ZEBRA, "zebra");
        wait("zebra is there", || if path.join("zserv.api").exists() { Ok(()) } else { Err(String::new()) });
        let bfdd = start(BFDD, "bfdd");
        Self { folder, _zebra: zebra, bfdd }
    }

    fn wait_for(&self, status: &str) {
        let wanted = format!("\"status\":\"{status}\"");
        wait(&format!("frr says {status}"), || {
            let output = Command::new("vtysh")
                .arg("--vty_socket")
                .arg(self.folder.path())
                .args(["-d", "bfdd", "-c", "show bfd peers json"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains(&wanted) { Ok(()) } else { Err(text) }
        });
    }
}

fn user_id(name: &str) -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

#[test]
fn bfd_with_frr_comes_up_and_each_side_notices_the_others_death() {
    if !has(ZEBRA) || !has(BFDD) {
        return;
    }
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let vips = format!(
        r#"[{{"name": "api", "interface": "eth0", "routerId": 51, "addresses": ["10.77.0.100/32"],
            "peers": ["{}"], "bfd": {{"intervalMs": 50, "multiplier": 3}}}}]"#,
        lab.address("b")
    )
    .replace('\n', "");
    let mut frr = Frr::start(&lab, "b", "a");
    let mut ours = Agent::start(&lab, "a", &vips);
    ours.wait_for_status("up: true");
    frr.wait_for("up");
    ours.kill();
    frr.wait_for("down");
    let mut ours = Agent::start(&lab, "a", &vips);
    ours.wait_for_status("up: true");
    frr.wait_for("up");
    frr.bfdd.kill();
    ours.wait_for_status("up: false");
}
