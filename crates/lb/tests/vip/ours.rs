//! Several of ours.

use crate::agent::Agent;
use crate::lab::{Lab, PATIENCE, PORT, wait};
use butler_lb::config::Config;
use butler_lb::vip::{Failed, Vips};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const VIP: &str = "10.77.0.100";
const VIP6: &str = "fd77::100";

/// A virtual address with a priority, and more fields where they are needed.
pub(crate) fn vip(priority: u8, more: &str) -> String {
    let basic = r#""name": "api", "interface": "eth0", "routerId": 51"#;
    let addresses = if more.contains("addresses") { "" } else { r#", "addresses": ["10.77.0.100/32"]"# };
    format!(r#"[{{{basic}{addresses}, "priority": {priority}{more}}}]"#)
}

/// `a` holds the address, `b` stands by.
pub(crate) fn pair(lab: &Lab, address: &str, more: &str) -> (Agent, Agent) {
    lab.answer();
    let a = Agent::start(lab, "a", &vip(150, more));
    lab.wait_for_holder("a", address);
    let mut b = Agent::start(lab, "b", &vip(100, more));
    b.wait_for_status("role: Backup");
    (a, b)
}

#[test]
fn a_killed_holder_is_replaced_and_its_next_life_respects_the_new_one() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (mut a, mut b) = pair(&lab, VIP, "");
    a.kill();
    lab.wait_for_answer("b", VIP);
    // Nobody is there to take it off but the kernel. From then on whoever asks for the address finds the one that serves it.
    lab.wait_for_holder("b", VIP);
    for _ in 0..20 {
        lab.forget_neighbours("client");
        assert_eq!(lab.ask(VIP).as_deref(), Some("b"));
    }
    let mut a = Agent::start(&lab, "a", &vip(150, ""));
    a.wait_for_status("role: Backup");
    lab.wait_for_holder("b", VIP);
    b.wait_for_status("role: Master");
}

#[test]
fn a_holder_that_hangs_loses_the_address_and_finds_its_place_when_it_goes_on() {
    for (address, more) in [(VIP, ""), (VIP6, r#", "addresses": ["fd77::100/128"]"#)] {
        let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
        let (mut a, _b) = pair(&lab, address, more);
        a.freeze(true);
        lab.wait_for_holder("b", address);
        a.freeze(false);
        lab.wait_for_holder("a", address);
    }
}

#[test]
fn a_machine_that_cannot_put_the_address_on_does_not_say_that_it_has_it() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    // No kernel takes a group for the address of a machine.
    let mut a = Agent::start(&lab, "a", &vip(150, r#", "addresses": ["ff0e::77/128"]"#));
    a.wait_for_status("ff0e::77 can't be put on eth0");
    a.wait_for_status("role: Fault");
    // It stands again, and once more says nothing that is not so.
    a.wait_for_status("role: Backup");
    a.wait_for_status("ff0e::77 can't be put on eth0");
}

#[test]
fn a_clean_stop_leaves_no_gap() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    // A long interval: whoever dropped the address first would leave a gap of a second.
    let (mut a, _b) = pair(&lab, VIP, r#", "advertMs": 1000"#);
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let client = lab.start("client", move || {
        let to = SocketAddr::new(VIP.parse().unwrap(), PORT);
        let (mut good, mut cut, mut bad) = (0, 0, Vec::new());
        while !is_over.load(Ordering::Relaxed) {
            match TcpStream::connect_timeout(&to, Duration::from_millis(500)) {
                Ok(mut stream) => {
                    good += 1;
                    // Only so that no more connections wait than the host takes; in the moment of the move it may end.
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
                    let _ = stream.read(&mut [0]);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => cut += 1,
                Err(error) => bad.push(error),
            }
        }
        (good, cut, bad)
    });
    a.stop();
    lab.wait_for_holder("b", VIP);
    over.store(true, Ordering::Relaxed);
    let (good, cut, bad) = client.join().unwrap();
    assert!(good > 10 && bad.is_empty(), "{good} connections, and failed: {bad:?}");
    // One after the other, so that only one can be in the middle of its handshake when the address moves.
    assert!(cut <= 1, "{cut} connections were reset while they were made");
}

#[test]
fn after_a_partition_one_holder_is_left_and_the_client_finds_it() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (_a, _b) = pair(&lab, VIP, "");
    lab.part(&["a", "b"], true);
    wait("both hold the address", || {
        let holders = lab.holders(VIP);
        if holders == ["a", "b"] { Ok(()) } else { Err(format!("{holders:?}")) }
    });
    lab.part(&["a", "b"], false);
    lab.wait_for_holder("a", VIP);
}

#[test]
fn a_holder_whose_cable_is_pulled_is_replaced_and_wins_when_it_is_back() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (_a, _b) = pair(&lab, VIP, "");
    lab.cut("a");
    lab.wait_for_answer("b", VIP);
    lab.heal("a");
    lab.wait_for_holder("a", VIP);
}

#[test]
fn an_idle_connection_is_reset_when_its_holder_is_lost() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (_a, mut b) = pair(&lab, VIP, "");
    let (mut stream, name) = lab.idle_connection(VIP);
    assert_eq!(name, "a");
    b.wait_for_status("mirrored: 1");
    lab.cut("a");
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "not by a timeout of the client");
}

#[test]
fn of_three_the_next_in_priority_takes_over() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    let (mut a, _b) = pair(&lab, VIP, "");
    let mut c = Agent::start(&lab, "c", &vip(50, ""));
    c.wait_for_status("role: Backup");
    lab.cut("a");
    a.kill();
    wait("b alone answers", || {
        let (answer, c) = (lab.ask(VIP), lab.holds("c", VIP));
        if answer.as_deref() == Some("b") && !c { Ok(()) } else { Err(format!("{answer:?}, c: {c}")) }
    });
    c.wait_for_status("role: Backup");
}

#[test]
fn ipv6_addresses_move_too() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (mut a, mut b) = pair(&lab, VIP6, r#", "addresses": ["fd77::100/128"]"#);
    let (mut stream, name) = lab.idle_connection(VIP6);
    assert_eq!(name, "a");
    b.wait_for_status("mirrored: 1");
    a.stop();
    lab.wait_for_holder("b", VIP6);
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the client is told of a clean stop as well");
}

#[test]
fn a_failed_track_check_moves_the_address_and_a_good_one_lets_it_return() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    let track = r#", "preempt": true, "track": [{"check": {"listener": "api"}, "weight": 60}]"#;
    let mut a = Agent::start(&lab, "a", &vip(150, track));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, track));
    b.wait_for_status("role: Backup");
    a.set_listener(false);
    lab.wait_for_holder("b", VIP);
    assert!(a.status().contains("priority: 90"));
    a.set_listener(true);
    lab.wait_for_holder("a", VIP);
}

#[test]
fn signed_adverts_between_named_peers_and_a_rotation_without_a_flap() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let (old, new) = ("1 b2xkIGtleSBvZiBzaXh0ZWVuIGJ5dGVz\n", "2 bmV3IGtleSBvZiBzaXh0ZWVuIGJ5dGVz\n");
    std::fs::write(&file, old).unwrap();
    let more = |peer: &str| format!(r#", "peers": ["{peer}"], "sign": {{"keyFile": "{}"}}"#, file.display());
    lab.answer();
    let mut a = Agent::start(&lab, "a", &vip(150, &more("10.77.0.2")));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, &more("10.77.0.1")));
    b.wait_for_status("holder: Some(10.77.0.1)");
    for keys in [format!("{old}{new}"), format!("{new}{old}"), new.to_owned()] {
        std::fs::write(&file, keys).unwrap();
        a.reload(&vip(150, &more("10.77.0.2")));
        b.reload(&vip(100, &more("10.77.0.1")));
    }
    lab.wait_for_holder("a", VIP);
    assert_no_flap(&mut a, &mut b);
    assert!(b.status().contains("rejected: 0"), "{}", b.status());
}

#[test]
fn bfd_notices_a_dead_peer_long_before_its_adverts_are_missed() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    // Adverts alone would take two minutes.
    let more = |peer: &str| {
        format!(r#", "advertMs": 40000, "peers": ["{peer}"], "bfd": {{"intervalMs": 50, "multiplier": 5}}"#)
    };
    lab.answer();
    let mut a = Agent::start(&lab, "a", &vip(150, &more("10.77.0.2")).replace("40000", "100"));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, &more("10.77.0.1")));
    a.wait_for_status("up: true");
    b.wait_for_status("up: true");
    a.reload(&vip(150, &more("10.77.0.2")));
    b.wait_for_status("holder: Some(10.77.0.1)");
    // By its cable: no kernel says that anything has ended, so that only BFD can have noticed.
    lab.cut("a");
    lab.wait_for_answer("b", VIP);
}

#[test]
fn the_end_of_a_holders_process_is_noticed_long_before_its_adverts_are_missed() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    let mut a = Agent::start(&lab, "a", &vip(150, ""));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, ""));
    b.wait_for_status("holder: Some(10.77.0.1)");
    // From now on adverts alone would take two minutes.
    a.reload(&vip(150, r#", "advertMs": 40000"#));
    b.wait_for_status("lifeline: true");
    a.kill();
    lab.wait_for_answer("b", VIP);
}

#[test]
fn a_stranger_at_the_holders_port_moves_nothing() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    // Someone else in `a` takes whoever connects to the port of the quiet connection, and hangs up.
    let listener = lab.inside("a", || TcpListener::bind("10.77.0.1:8112").unwrap());
    // One who looks as if he were on the link: of others nothing is heard at all.
    rustix::net::sockopt::set_ip_ttl(&listener, 255).unwrap();
    let (sender, hung_up) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            if sender.send(()).is_err() {
                return;
            }
        }
    });
    let (mut a, mut b) = pair(&lab, VIP, "");
    hung_up.recv_timeout(PATIENCE).unwrap();
    assert_no_flap(&mut a, &mut b);
}

#[test]
fn a_reload_of_the_holder_moves_nothing() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (mut a, mut b) = pair(&lab, VIP, "");
    b.wait_for_status("lifeline: true");
    // Another list of peers makes the sockets anew. Those that are still listed keep their quiet connections.
    a.reload(&vip(150, r#", "peers": ["10.77.0.2"]"#));
    b.wait_for_status("lifeline: true");
    assert_no_flap(&mut a, &mut b);
}

#[test]
fn an_advert_from_an_address_that_is_not_listed_is_counted() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let mut a = Agent::start(&lab, "a", &vip(150, r#", "peers": ["10.77.0.3"]"#));
    let _b = Agent::start(&lab, "b", &vip(100, r#", "peers": ["10.77.0.1"]"#));
    // Both hold the address, and this is how one finds out why.
    wait("it is counted", || {
        let status = a.status();
        if status.contains("rejected: 0") { Err(status) } else { Ok(()) }
    });
}

/// The holder still holds, and nobody else ever did.
fn assert_no_flap(a: &mut Agent, b: &mut Agent) {
    b.wait_for_status("holder: Some(10.77.0.1)");
    let (a, b) = (a.status(), b.status());
    assert!(a.contains("transitions: 1") && b.contains("transitions: 0"), "{a} {b}");
}

#[test]
fn an_address_that_someone_takes_off_is_put_back() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let _a = Agent::start(&lab, "a", &vip(150, ""));
    lab.wait_for_holder("a", VIP);
    lab.take_off("a", VIP);
    lab.wait_for_holder("a", VIP);
}

#[test]
fn the_machines_own_address_is_not_taken_for_a_virtual_one() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let mut a = Agent::start(&lab, "a", &vip(150, r#", "addresses": ["10.77.0.1/24"]"#));
    a.wait_for_status("problem: Some");
    a.stop();
    assert!(lab.holds("a", "10.77.0.1"));
}

#[test]
fn without_a_capability_it_is_refused_by_its_name() {
    let text = format!(r#"{{"vips": {}}}"#, vip(150, ""));
    let vips = serde_json::from_str::<Config>(&text).unwrap().vips;
    // Capabilities belong to a thread: this one gives up all it has.
    let refused = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        rustix::thread::set_capabilities(None, sets).unwrap();
        Vips::start(&vips, Arc::new(|_| true)).unwrap_err()
    });
    let refused = refused.join().unwrap();
    assert!(
        matches!(&refused, Failed::Capabilities { names } if names == &["NET_ADMIN", "NET_RAW"]),
        "{refused}"
    );
}
