//! `haproxy.cfg`, for HAProxy 2.4 and later.
//!
//! Unlike most examples: watches may be quiet for a day, checks ask for readiness and not for an open port, a refused
//! connection goes to another server at once.

use super::{MONITOR, RenderError, head, is_shared, one_word};
use crate::config::{AllDown, Balance, CheckKind, Config, HealthCheck, Listener, ProxyProtocol};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The configuration of HAProxy.
pub fn haproxy(config: &Config) -> Result<String, RenderError> {
    if config.listeners.is_empty() {
        return Err(RenderError::Nothing("there are no listeners: HAProxy would have nothing to do"));
    }
    let mut out = head("haproxy", &missing(config)?);
    out.push_str(&global(config));
    for listener in &config.listeners {
        out.push_str(&frontend(listener, config));
        out.push_str(&backend(listener));
    }
    out.push_str(&monitor(config));
    Ok(out)
}

fn missing(config: &Config) -> Result<Vec<String>, RenderError> {
    let mut missing = vec!["A server is up from the start, before its first good check.".to_owned()];
    for listener in &config.listeners {
        let name = &listener.name;
        if listener.health.token_file.is_some() {
            return Err(RenderError::Impossible(format!(
                "listener {name}: HAProxy reads no token from a file; use certFile and keyFile for its health checks"
            )));
        }
        let health = &listener.health;
        let texts = [("path", &health.path), ("caFile", &health.ca_file), ("certFile", &health.cert_file)];
        for (field, text) in texts.iter().filter_map(|(field, text)| Some((field, text.as_ref()?))) {
            one_word(&format!("listener {name}: {field}"), text)?;
        }
        if listener.rebalance.enabled {
            missing
                .push(format!("{name}: long-lived connections are not evened out when a server comes back."));
        }
        if listener.all_down == AllDown::TryAll {
            missing.push(format!(
                "{name}: connections are refused when all servers are down (allDown is tryAll)."
            ));
        }
    }
    if config.access_log.path.is_some() {
        missing.push("Connections are logged by syslog, in HAProxy's format.".to_owned());
    }
    Ok(missing)
}

fn global(config: &Config) -> String {
    // No maxconn: HAProxy takes it from the number of files that it may open, and refuses to start with one that is too large.
    let threads = config.threads.map(|count| format!("    nbthread {count}\n")).unwrap_or_default();
    format!(
        "global\n    log /dev/log local0\n    user haproxy\n    group haproxy\n{threads}\n\
         defaults\n    mode tcp\n    log global\n    option dontlognull\n    \
         option clitcpka\n    option srvtcpka\n    option redispatch 1\n\n"
    )
}

fn frontend(listener: &Listener, config: &Config) -> String {
    let mut out = format!("frontend {}\n", listener.name);
    let keepalive = listener.timeouts.keepalive;
    for bind in &listener.bind {
        let mut words = format!("    bind {}", address(*bind));
        if bind.is_ipv6() {
            words.push_str(" v6only");
        }
        if is_shared(bind.ip(), config) {
            // The address may be on the other machine.
            words.push_str(" transparent");
        }
        if listener.accept_proxy {
            words.push_str(" accept-proxy");
        }
        let _ = writeln!(out, "{words} tcp-ut {keepalive}s");
    }
    if listener.max_connections > 0 {
        let _ = writeln!(out, "    maxconn {}", listener.max_connections);
    }
    if !listener.allow.is_empty() {
        let allowed = listener.allow.join(" ");
        let _ = writeln!(out, "    tcp-request connection reject unless {{ src {allowed} }}");
        if listener.accept_proxy {
            // The first rule sees who is connected, this one whom the header names.
            let _ = writeln!(out, "    tcp-request session reject unless {{ src {allowed} }}");
        }
    }
    let _ = writeln!(out, "    option tcplog");
    let _ = writeln!(out, "    clitcpka-idle {keepalive}s");
    let _ = writeln!(out, "    timeout client {}s", listener.timeouts.idle);
    let _ = writeln!(out, "    default_backend {}\n", listener.name);
    out
}

fn backend(listener: &Listener) -> String {
    let (health, times) = (&listener.health, &listener.timeouts);
    let check = health.times();
    let mut out = format!("backend {}\n    {}\n", listener.name, balance(listener.balance));
    let _ = writeln!(out, "    retries {}", times.tries.saturating_sub(1));
    let _ = writeln!(out, "    srvtcpka-idle {}s", times.keepalive);
    let _ = writeln!(out, "    timeout connect {}ms", times.connect_ms);
    let _ = writeln!(out, "    timeout server {}s", times.idle);
    let _ = writeln!(out, "    timeout tunnel {}s", times.idle);
    let _ = writeln!(out, "    timeout queue {}ms", listener.queue.timeout_ms);
    let _ = writeln!(out, "    timeout check {}ms", check.timeout_ms);
    out.push_str(&http_check(health));
    let _ = writeln!(out, "    default-server {}", defaults(listener));
    for server in &listener.backends {
        let mut words =
            format!("    server {} {} weight {}", server.name, address(server.address), server.weight);
        if server.max_connections > 0 {
            let _ = write!(words, " maxconn {}", server.max_connections);
        }
        out.push_str(&words);
        out.push('\n');
    }
    out.push('\n');
    out
}

/// The words that all servers of a listener share.
fn defaults(listener: &Listener) -> String {
    let health = &listener.health;
    let check = health.times();
    let mut words =
        format!("check inter {}ms fall {} rise {}", check.interval_ms, check.unhealthy, check.healthy);
    if let Some(port) = health.port {
        let _ = write!(words, " port {port}");
    }
    if check.kind != CheckKind::Tcp {
        words.push_str(&tls(health));
    }
    if health.passive > 0 {
        let _ = write!(words, " observe layer4 error-limit {} on-error mark-down", health.passive);
    }
    if health.slow_start > 0 {
        let _ = write!(words, " slowstart {}s", health.slow_start);
    }
    match listener.send_proxy {
        ProxyProtocol::None => {}
        ProxyProtocol::V1 => words.push_str(" send-proxy"),
        ProxyProtocol::V2 => words.push_str(" send-proxy-v2"),
    }
    // A dead server's connections end by this. One that is marked down may still finish what it does: a kube-apiserver
    // that shuts down is not ready long before it stops to serve, so that its connections are not cut.
    let _ = write!(words, " tcp-ut {}s", listener.timeouts.keepalive);
    words
}

fn tls(health: &HealthCheck) -> String {
    let mut words = " check-ssl check-alpn http/1.1".to_owned();
    match &health.ca_file {
        Some(file) => {
            let _ = write!(words, " verify required ca-file {file}");
        }
        None => words.push_str(" verify none"),
    }
    if let Some(name) = &health.server_name {
        let _ = write!(words, " check-sni {name} verifyhost {name}");
    }
    if let Some(file) = &health.cert_file {
        // HAProxy takes the key from FILE.key, or from the same file.
        let _ = write!(words, " crt {file}");
    }
    words
}

fn http_check(health: &HealthCheck) -> String {
    if health.times().kind != CheckKind::Https {
        return String::new();
    }
    let path = health.path.as_deref().unwrap_or("/readyz");
    let host = health.server_name.as_deref().unwrap_or("localhost");
    let expected = match health.statuses.as_slice() {
        [] => "status 200-299".to_owned(),
        list => format!("status {}", list.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
    };
    format!(
        "    option httpchk\n    http-check send meth GET uri {path} ver HTTP/1.1 hdr Host {host}\n    \
         http-check expect {expected}\n"
    )
}

/// A port on loopback that tells whether each listener has a server: what Keepalived asks.
fn monitor(config: &Config) -> String {
    let mut out = String::new();
    for (index, listener) in (0u16..).zip(&config.listeners) {
        let at = SocketAddr::new(MONITOR.ip(), MONITOR.port().saturating_add(index));
        let _ = write!(
            out,
            // No listener's name has an underscore.
            "frontend {name}_monitor\n    bind {at}\n    mode http\n    timeout client 5s\n    \
             monitor-uri /healthz\n    monitor fail if {{ nbsrv({name}) lt 1 }}\n\n",
            name = listener.name
        );
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn balance(balance: Balance) -> &'static str {
    match balance {
        Balance::RoundRobin => "balance roundrobin",
        Balance::LeastConnections => "balance leastconn",
        Balance::PowerOfTwo => "balance random(2)",
        Balance::SourceHash => "balance source\n    hash-type consistent",
    }
}

/// HAProxy writes IPv6 addresses without brackets.
fn address(address: SocketAddr) -> String {
    format!("{}:{}", address.ip(), address.port())
}
