//! Generated files: what must be in them. The programs themselves judge them in `tests/files.rs`.

use super::*;
use crate::config::{Config, TrackCheck, check};

/// Everything that can be rendered, in one file.
const FULL: &str = include_str!("../../tests/data/full.yaml");

fn full() -> Config {
    let (config, findings) = check(FULL, None);
    config.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// The lines of a section of HAProxy's file.
fn section(text: &str, name: &str) -> String {
    let start = text.find(&format!("\n{name}\n")).unwrap_or_else(|| panic!("{name}: {text}"));
    let rest = &text[start + 1..];
    rest[..rest.find("\n\n").unwrap_or(rest.len())].to_owned()
}

#[test]
fn haproxy_keeps_quiet_watches_and_asks_for_readiness() {
    let text = haproxy(&full()).unwrap();
    let back = section(&text, "backend kubernetes");
    for part in [
        "timeout server 86400s",
        "timeout tunnel 86400s",
        "http-check send meth GET uri /readyz",
        "balance leastconn",
        "inter 1000ms fall 2 rise 2 check-ssl",
        "retries 2",
        "tcp-ut 30s",
        "server cp-02 192.168.30.32:6443 weight 2 maxconn 500",
        "server cp-03 2001:db8::33:6443",
    ] {
        assert!(back.contains(part), "{part}: {back}");
    }
    assert!(section(&text, "frontend kubernetes").contains("timeout client 86400s"));
    assert!(section(&text, "frontend kubernetes").contains("bind :::6443 v6only"));
    assert!(text.contains("option redispatch 1"));
    let talos = section(&text, "backend talos");
    assert!(
        talos.contains("inter 10000ms") && talos.contains("send-proxy-v2") && !talos.contains("ssl"),
        "{talos}"
    );
    let front = section(&text, "frontend talos");
    assert!(front.contains("bind 192.168.30.30:50000 transparent"), "{front}");
    assert!(front.contains("reject unless { src 10.0.0.0/8 192.168.0.0/16 }"), "{front}");
    assert!(text.contains("kubernetes: long-lived connections are not evened out"));
    assert!(!text.contains("other: long-lived"));
}

#[test]
fn keepalived_asks_through_the_proxy_and_outvotes() {
    let text = keepalived(&full()).unwrap();
    assert!(text.contains("https://127.0.0.1:6443/readyz\"\n    interval 1\n"), "{text}");
    assert!(!text.contains("pidof"));
    let api = &text[text.find("vrrp_instance api").unwrap()..text.find("vrrp_instance six").unwrap()];
    // Unfit without a weight; subtracted with one; never added.
    assert!(api.contains("        listener_kubernetes\n"), "{api}");
    assert!(
        api.contains("        listener_talos weight -60\n") && api.contains("        lo weight -20\n"),
        "{api}"
    );
    assert!(
        api.contains("advert_int 0.1\n") && api.contains("nopreempt") && api.contains("state BACKUP"),
        "{api}"
    );
    // Clients must come from allowed networks, so that HAProxy itself is asked about this one.
    assert!(text.contains("http://127.0.0.1:9446/healthz"), "{text}");
    let old = &text[text.find("vrrp_instance old").unwrap()..];
    assert!(old.contains("version 2\n") && old.contains("unicast_peer {\n        192.168.30.12\n"), "{old}");
    assert!(old.contains("    unicast_src_ip 192.168.30.11\n"), "{old}");
}

#[test]
fn a_listener_at_the_shared_address_is_asked_about_where_it_always_answers() {
    let mut config = full();
    config.listeners[0].bind = vec!["192.168.30.30:6443".parse().unwrap()];
    let text = keepalived(&config).unwrap();
    // Whoever does not hold the address would ask the other machine, and nobody could ever take it.
    assert!(!text.contains("https://192.168.30.30"), "{text}");
    assert!(text.contains("http://127.0.0.1:9445/healthz"), "{text}");
    config.listeners[0].bind.push("192.168.30.11:6443".parse().unwrap());
    let text = keepalived(&config).unwrap();
    assert!(text.contains("https://192.168.30.11:6443/readyz"), "{text}");
}

#[test]
fn haproxy_judges_the_client_that_a_header_names_as_well() {
    let mut config = full();
    let talos = config.listeners.iter_mut().find(|listener| listener.name == "talos").unwrap();
    talos.accept_proxy = true;
    let front = section(&haproxy(&config).unwrap(), "frontend talos");
    for at in ["connection", "session"] {
        let rule = format!("tcp-request {at} reject unless {{ src 10.0.0.0/8 192.168.0.0/16 }}");
        assert!(front.contains(&rule), "{rule}: {front}");
    }
}

#[test]
fn what_an_operator_writes_stays_one_word() {
    for text in ["", "/a b", "/a\nb", "/a\"b", "/a#b", "/a'b", "/a{b", "/a$b"] {
        let mut config = full();
        config.listeners[0].health.ca_file = Some(text.to_owned());
        assert!(matches!(haproxy(&config), Err(RenderError::Impossible(_))), "{text}");
        config.vips[0].track[0].check = TrackCheck::LocalApiserver(text.to_owned());
        assert!(matches!(keepalived(&config), Err(RenderError::Impossible(_))), "{text}");
    }
    let mut config = full();
    config.vips[0].interface = "!eth0".to_owned();
    assert!(keepalived(&config).unwrap_err().to_string().contains("vip api: interface: \"!eth0\""));
    config.listeners[0].health.ca_file = Some("/etc/bücher/ca-1.pem".to_owned());
    assert!(haproxy(&config).unwrap().contains(" ca-file /etc/bücher/ca-1.pem"));
}

#[test]
fn the_ports_for_keepalived_have_names_that_no_listener_has() {
    let mut config = full();
    config.listeners[1].name = "kubernetes-monitor".to_owned();
    let text = haproxy(&config).unwrap();
    assert_eq!(text.matches("frontend kubernetes-monitor\n").count(), 1, "{text}");
}

#[test]
fn what_they_cannot_do_is_refused_or_told() {
    let mut config = full();
    config.listeners[0].health.token_file = Some("/etc/token".to_owned());
    assert!(matches!(haproxy(&config), Err(RenderError::Impossible(_))));
    config.vips[0].sign = Some(crate::config::Signing { key_file: "/etc/keys".to_owned() });
    assert!(matches!(keepalived(&config), Err(RenderError::Impossible(_))));
    config.listeners.clear();
    config.vips.clear();
    assert!(matches!(haproxy(&config), Err(RenderError::Nothing(_))));
    assert!(matches!(keepalived(&config), Err(RenderError::Nothing(_))));
}
