//! What operators do: reloads that rename, renumber, split and join, addresses that are not ours, several addresses and vips on
//! one interface.

use crate::agent::Agent;
use crate::lab::{Lab, PORT, wait};
use crate::ours::{VIP, pair, vip};
use butler_lb::core::neighbour::unsolicited_advertisement;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};
use std::io::Read;
use std::net::{SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A vip by all that tests here change.
fn named(name: &str, number: u8, address: &str, more: &str) -> String {
    format!(
        r#"{{"name": "{name}", "interface": "eth0", "routerId": {number}, "addresses": ["{address}/32"]{more}}}"#
    )
}

#[test]
fn an_address_of_the_host_is_refused_and_stays_though_it_is_bare() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    lab.put_on("a", "10.77.0.100/32", &[]);
    let mut a = Agent::start(&lab, "a", &vip(150, ""));
    a.wait_for_status("10.77.0.100/32 is on eth0 already, and butler-lb did not put it there");
    let status = a.status();
    assert!(status.contains("ip addr del 10.77.0.100/32 dev eth0"), "the remedy: {status}");
    assert!(status.contains("role: Init") && status.contains("transitions: 0"), "{status}");
    // Also as one more address of a vip that is held already, and when that one is given up.
    lab.take_off("a", VIP);
    lab.wait_for_holder("a", VIP);
    lab.put_on("a", "10.77.0.101/32", &[]);
    let both = vip(150, r#", "addresses": ["10.77.0.100/32", "10.77.0.101/32"]"#);
    let gone = lab.taken_off_during("a", || {
        a.reload(&both);
        a.wait_for_status("10.77.0.101/32 is on eth0 already");
        a.stop();
    });
    assert!(!gone.iter().any(|line| line.contains("10.77.0.101")), "{gone:?}");
    assert!(lab.holds("a", "10.77.0.101") && !lab.holds("a", VIP));
    assert!(lab.is_there_for_good("a", "10.77.0.101"));
}

#[test]
fn what_an_earlier_life_left_on_a_kernel_that_keeps_no_marks_is_known_by_its_time() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    // No mark, but about to go by itself: as ours are.
    lab.put_on("a", "10.77.0.100/32", &["valid_lft", "3", "preferred_lft", "3"]);
    let gone = lab.taken_off_during("a", || {
        let mut a = Agent::start(&lab, "a", &vip(150, r#", "advertMs": 1000"#));
        a.wait_for_status("role: Backup");
        assert!(a.status().contains("problem: None"));
    });
    assert!(gone.iter().any(|line| line.contains(VIP)), "{gone:?}");
}

#[test]
fn a_vip_that_is_renamed_or_renumbered_stays_where_it_is() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let mut a = Agent::start(&lab, "a", &vip(150, ""));
    lab.wait_for_holder("a", VIP);
    let gone = lab.taken_off_during("a", || {
        for (name, number) in [("other", 51), ("other", 52), ("third", 53)] {
            a.reload(&format!("[{}]", named(name, number, VIP, "")));
            a.wait_for_status(&format!("name: \"{name}\""));
            a.wait_for_status("role: Master");
        }
    });
    assert_eq!(gone, Vec::<String>::new());
    assert!(a.status().contains("transitions: 1"), "{}", a.status());
}

#[test]
fn vips_that_swap_their_names_keep_their_addresses() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let vips = |one: &str, other: &str| {
        format!("[{}, {}]", named(one, 51, VIP, ""), named(other, 52, "10.77.0.101", ""))
    };
    let mut a = Agent::start(&lab, "a", &vips("one", "other"));
    lab.wait_for_holder("a", VIP);
    lab.wait_for_holder("a", "10.77.0.101");
    let gone = lab.taken_off_during("a", || {
        a.reload(&vips("other", "one"));
        a.wait_for_status("name: \"other\", addresses: [\"10.77.0.100/32\"]");
    });
    assert_eq!(gone, Vec::<String>::new());
    assert_eq!(a.status().matches("transitions: 1").count(), 2, "{}", a.status());
}

#[test]
fn a_vip_that_is_split_and_joined_again_keeps_its_addresses() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let joined = vip(150, r#", "addresses": ["10.77.0.100/32", "10.77.0.101/32"]"#);
    let split = format!("[{}, {}]", named("api", 51, VIP, ""), named("other", 52, "10.77.0.101", ""));
    let mut a = Agent::start(&lab, "a", &joined);
    lab.wait_for_holder("a", VIP);
    lab.wait_for_holder("a", "10.77.0.101");
    let gone = lab.taken_off_during("a", || {
        a.reload(&split);
        wait("both are held", || {
            let status = a.status();
            if status.matches("role: Master").count() == 2 { Ok(()) } else { Err(status) }
        });
        a.reload(&joined);
        wait("one is left", || {
            let status = a.status();
            if status.matches("name: ").count() == 1 { Ok(()) } else { Err(status) }
        });
    });
    assert_eq!(gone, Vec::<String>::new());
    assert!(a.status().contains("transitions: 1"), "{}", a.status());
    lab.wait_for_holder("a", "10.77.0.101");
}

#[test]
fn a_renamed_standby_still_knows_the_holders_connections() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (mut a, mut b) = pair(&lab, VIP, "");
    let (_stream, _) = lab.idle_connection(VIP);
    b.wait_for_status("mirrored: 1");
    b.reload(&vip(100, "").replace("\"api\"", "\"other\""));
    let status = b.status();
    assert!(status.contains("name: \"other\"") && status.contains("mirrored: 1"), "{status}");
    b.wait_for_status("holder: Some(10.77.0.1)");
    assert!(status.contains("transitions: 0") && a.status().contains("transitions: 1"));
}

#[test]
fn a_vip_that_is_back_before_it_has_gone_stays() {
    let Some(lab) = Lab::new(&["a", "client"]) else { return };
    lab.answer();
    let slow = vip(150, r#", "advertMs": 1000"#);
    let mut a = Agent::start(&lab, "a", &slow);
    lab.wait_for_holder("a", VIP);
    let gone = lab.taken_off_during("a", || {
        a.reload("[]");
        a.reload(&slow);
        a.wait_for_status("role: Master");
    });
    assert_eq!(gone, Vec::<String>::new());
}

#[test]
fn vips_with_different_peers_share_the_sockets_of_an_interface() {
    let Some(lab) = Lab::new(&["a", "b", "c", "client"]) else { return };
    lab.answer();
    let vips = |priority: u8, one: &str, other: &str| {
        let more = |peers: &str| format!(r#", "priority": {priority}, "peers": [{peers}], "preempt": true"#);
        format!(
            "[{}, {}]",
            named("one", 51, VIP, &more(one)),
            named("other", 52, "10.77.0.101", &more(other))
        )
    };
    let _a = Agent::start(&lab, "a", &vips(150, r#""10.77.0.2""#, r#""10.77.0.2", "10.77.0.3""#));
    let mut b = Agent::start(&lab, "b", &vips(100, r#""10.77.0.1""#, r#""10.77.0.1", "10.77.0.3""#));
    let more = r#", "priority": 50, "peers": ["10.77.0.1", "10.77.0.2"]"#;
    let mut c = Agent::start(&lab, "c", &format!("[{}]", named("other", 52, "10.77.0.101", more)));
    lab.wait_for_holder("a", VIP);
    lab.wait_for_holder("a", "10.77.0.101");
    c.wait_for_status("lifeline: true");
    wait("both have a line", || {
        let status = b.status();
        if status.matches("lifeline: true").count() == 2 { Ok(()) } else { Err(status) }
    });
}

#[test]
fn vips_that_speak_from_different_addresses_share_the_ports_of_an_interface() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    for (host, number) in [("a", 1), ("b", 2), ("client", 9)] {
        lab.put_on(host, &format!("10.78.0.{number}/24"), &[]);
    }
    let vips = |priority: u8, peer: u8| {
        let more = |network: u8| {
            format!(
                r#", "priority": {priority}, "peers": ["10.{network}.0.{peer}"],
                "bfd": {{"intervalMs": 50, "multiplier": 5}}"#
            )
            .replace('\n', "")
        };
        format!("[{}, {}]", named("one", 51, VIP, &more(77)), named("other", 52, "10.78.0.100", &more(78)))
    };
    let mut a = Agent::start(&lab, "a", &vips(150, 2));
    lab.wait_for_holder("a", VIP);
    lab.wait_for_holder("a", "10.78.0.100");
    let mut b = Agent::start(&lab, "b", &vips(100, 1));
    for agent in [&mut a, &mut b] {
        wait("all are watched", || {
            let status = agent.status();
            if status.matches("up: true").count() == 2 { Ok(()) } else { Err(status) }
        });
    }
    let to = |address: &str| (address.parse::<std::net::IpAddr>().unwrap(), PORT);
    let (one, other) = (to(VIP), to("10.78.0.100"));
    let _streams = lab.inside("client", move || [one, other].map(|to| TcpStream::connect(to).unwrap()));
    wait("the connections of both are known", || {
        let status = b.status();
        if status.matches("mirrored: 1").count() == 2 { Ok(()) } else { Err(status) }
    });
}

#[test]
fn a_machine_that_speaks_from_two_addresses_is_watched_at_both() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    lab.put_on("a", "10.77.0.51/24", &[]);
    let vips = |priority: u8, peers: [&str; 2], source: &str| {
        let more = |peer: &str, source: &str| {
            let bfd = r#""bfd": {"intervalMs": 50, "multiplier": 5}"#;
            format!(r#", "priority": {priority}, "peers": ["{peer}"], {bfd}{source}"#)
        };
        let (one, other) = (more(peers[0], ""), more(peers[1], source));
        format!("[{}, {}]", named("one", 51, VIP, &one), named("other", 52, "10.77.0.101", &other))
    };
    let source = r#", "source": "10.77.0.51""#;
    let mut a = Agent::start(&lab, "a", &vips(150, ["10.77.0.2"; 2], source));
    lab.wait_for_holder("a", "10.77.0.101");
    let mut b = Agent::start(&lab, "b", &vips(100, ["10.77.0.1", "10.77.0.51"], ""));
    for agent in [&mut a, &mut b] {
        wait("both are watched", || {
            let status = agent.status();
            if status.matches("up: true").count() == 2 { Ok(()) } else { Err(status) }
        });
    }
}

#[test]
fn a_reload_without_bfd_says_so_for_a_detection_time() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    let with = |peer: &str, bfd: &str| format!(r#", "peers": ["{peer}"]{bfd}"#);
    let bfd = r#", "bfd": {"intervalMs": 50, "multiplier": 5}"#;
    let mut a = Agent::start(&lab, "a", &vip(150, &with("10.77.0.2", bfd)));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, &with("10.77.0.1", bfd)));
    a.wait_for_status("up: true");
    b.wait_for_status("up: true");
    let goodbyes = Arc::new(AtomicUsize::new(0));
    let counted = goodbyes.clone();
    let socket = lab.inside("b", || {
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).unwrap()
    });
    // It lives as long as this program.
    std::thread::spawn(move || {
        let mut packet = [0; 128];
        while let Ok((length, _)) = rustix::net::recv(&socket, &mut packet[..], RecvFlags::empty()) {
            // After 20 bytes of IP and 8 of UDP: the state is in the two highest bits of the second byte.
            let is_bfd = length == 52 && packet[22..24] == 3784_u16.to_be_bytes();
            counted.fetch_add(usize::from(is_bfd && packet[29] >> 6 == 0), Ordering::Relaxed);
        }
    });
    a.reload(&vip(150, &with("10.77.0.2", "")));
    wait("it has been said as often as may be missed", || {
        let said = goodbyes.load(Ordering::Relaxed);
        if said >= 5 { Ok(()) } else { Err(format!("said {said} times")) }
    });
    b.wait_for_status("up: false");
    assert!(b.status().contains("transitions: 0") && a.status().contains("transitions: 1"));
}

#[test]
fn a_neighbour_with_many_connections_keeps_no_standby_out() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    let _a = Agent::start(&lab, "a", &vip(150, ""));
    lab.wait_for_holder("a", VIP);
    let _neighbour = lab.inside("client", || {
        let connect = |_| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            rustix::net::sockopt::set_ip_ttl(&socket, 255).unwrap();
            rustix::net::connect(&socket, &SocketAddr::from(([10, 77, 0, 1], 8112))).unwrap();
            let mut stream = TcpStream::from(socket);
            // The first word: it has been let in.
            stream.read_exact(&mut [0]).unwrap();
            stream
        };
        (0..64).map(connect).collect::<Vec<_>>()
    });
    let mut b = Agent::start(&lab, "b", &vip(100, ""));
    b.wait_for_status("lifeline: true");
}

#[test]
fn adverts_come_from_the_address_that_is_asked_for() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    lab.answer();
    let named = |source: &str| vip(150, &format!(r#", "peers": ["10.77.0.2"]{source}"#));
    let source = r#", "source": "10.77.0.51""#;
    let mut a = Agent::start(&lab, "a", &named(source));
    a.wait_for_status("10.77.0.51, the source of adverts, is not an address of eth0");
    // The second one of its network: by itself it would not be chosen.
    lab.put_on("a", "10.77.0.51/24", &[]);
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(&lab, "b", &vip(100, r#", "peers": ["10.77.0.51"]"#));
    b.wait_for_status("holder: Some(10.77.0.51)");
    b.wait_for_status("lifeline: true");
    assert!(b.status().contains("transitions: 0") && b.status().contains("rejected: 0"), "{}", b.status());
    a.reload(&named(""));
    // It speaks from the other one now, which b does not know.
    wait("strangers are counted", || {
        let status = b.status();
        if status.contains("rejected: 0") { Err(status) } else { Ok(()) }
    });
}

#[test]
fn another_machine_that_claims_the_address_is_counted_and_a_peer_that_takes_it_is_not() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let v6 = r#""addresses": ["fd77::100/128"], "routerId": 52"#;
    let vips = |priority: u8| {
        let all = format!(r#""interface": "eth0", "priority": {priority}, "preempt": true"#);
        let v4 = r#""addresses": ["10.77.0.100/32"], "routerId": 51"#;
        format!(r#"[{{"name": "four", {v4}, {all}}}, {{"name": "six", {v6}, {all}}}]"#)
    };
    let count = |agent: &mut Agent, part: &str| agent.status().matches(part).count();
    let mut b = Agent::start(&lab, "b", &vips(100));
    wait("b holds both", || if count(&mut b, "role: Master") == 2 { Ok(()) } else { Err(b.status()) });
    let mut a = Agent::start(&lab, "a", &vips(150));
    wait("a has taken both", || if count(&mut a, "role: Master") == 2 { Ok(()) } else { Err(a.status()) });
    // Somebody was given the addresses by hand, and speaks from them.
    lab.put_on("client", "10.77.0.100/32", &[]);
    lab.put_on("client", "fd77::100/128", &["nodad"]);
    lab.announce_ipv6("client");
    wait("both claims are noticed", || {
        lab.inside("client", || {
            // Nobody is there, so that the kernel has to ask for it, in the name of the address.
            let socket = UdpSocket::bind(("10.77.0.100", 0)).unwrap();
            let _ = socket.send_to(b"?", ("10.77.0.250", 9));
        });
        let status = a.status();
        if status.matches("foreign_claims: 0").count() == 0 { Ok(()) } else { Err(status) }
    });
    assert_eq!(count(&mut b, "foreign_claims: 0"), 2, "a took over: {}", b.status());
}

#[test]
fn a_flood_of_claims_is_looked_at_now_and_then_and_moves_nothing() {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    let (mut a, mut b) = pair(&lab, "fd77::100", r#", "addresses": ["fd77::100/128"]"#);
    let begin = Instant::now();
    lab.inside("client", || {
        let socket =
            rustix::net::socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
        rustix::net::sockopt::set_ipv6_unicast_hops(&socket, Some(255)).unwrap();
        let to = SocketAddrV6::new("fd77::1".parse().unwrap(), 0, 0, 0);
        let frame = unsolicited_advertisement([2; 6], "fd77::100".parse().unwrap());
        // What the kernel puts before it and into it: Ethernet, IPv6, the checksum.
        let message = &frame[54..];
        for _ in 0..100_000 {
            rustix::net::sendto(&socket, message, SendFlags::empty(), &to).unwrap();
        }
    });
    let claims = |agent: &mut Agent| {
        let status = agent.status();
        let (_, rest) = status.split_once("foreign_claims: ").unwrap();
        rest.split(',').next().unwrap().parse::<u128>().unwrap()
    };
    wait("claims are noticed", || if claims(&mut a) > 0 { Ok(()) } else { Err(a.status()) });
    let counted = claims(&mut a);
    // One look in 100 ms, with 64 frames at most: however many there were, the thread that speaks has its time.
    let looks = begin.elapsed().as_millis() / 100 + 2;
    assert!(counted <= 64 * looks, "{counted} in {looks} looks");
    assert!(a.status().contains("transitions: 1") && b.status().contains("transitions: 0"));
}
