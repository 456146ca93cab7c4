//! Listeners, their backends and health checks.

use super::super::finding::plural;
use super::super::formats::{network, parse_prefix};
use super::super::model::{CheckKind, Config, HealthCheck, Listener, ProxyProtocol};
use super::{Report, same_family};
use rustls::pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};

/// Talos' API: gRPC that wants a client certificate.
const TALOS_PORT: u16 = 50000;
/// Watches of Kubernetes are quiet for longer than this.
const QUIET: u64 = 300;

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let names = config.listeners.iter().enumerate();
    report.unique("listeners", names.map(|(i, listener)| (format!("listeners[{i}].name"), &*listener.name)));
    binds(config, report);
    for (index, listener) in config.listeners.iter().enumerate() {
        let path = format!("listeners[{index}]");
        backends(&path, listener, report);
        shared_backends(&path, listener, config, report);
        allow(&path, listener, report);
        health(&format!("{path}.health"), listener, report);
        times(&path, listener, report);
    }
}

/// An address and port belongs to one listener.
fn binds(config: &Config, report: &mut Report<'_>) {
    let mut taken: Vec<(String, SocketAddr)> = Vec::new();
    for (i, listener) in config.listeners.iter().enumerate() {
        for (k, bind) in listener.bind.iter().enumerate() {
            let path = format!("listeners[{i}].bind[{k}]");
            if let Some((first, _)) = taken.iter().find(|(_, other)| other == bind) {
                report.error(&path, format!("\"{bind}\": {first} listens there already"), "");
            }
            if config.admin.metrics == Some(*bind) {
                report.error(&path, format!("\"{bind}\": admin.metrics listens there already"), "");
            }
            taken.push((path, *bind));
        }
    }
}

fn backends(path: &str, listener: &Listener, report: &mut Report<'_>) {
    let names = listener.backends.iter().enumerate();
    report.unique(
        "the backends of a listener",
        names.map(|(k, backend)| (format!("{path}.backends[{k}].name"), &*backend.name)),
    );
    for (k, backend) in listener.backends.iter().enumerate() {
        let here = format!("{path}.backends[{k}].address");
        let address = backend.address;
        if address.ip().is_unspecified() {
            report.error(&here, format!("\"{address}\": not an address that can be connected to"), "");
        }
        if let Some(bind) = listener.bind.iter().find(|bind| is_itself(**bind, address)) {
            let text =
                format!("\"{address}\": the listener itself is there ({bind}): it would connect to itself");
            report.error(&here, text, "give the listener or the backend another port");
        }
        if let Some(first) = listener.backends[..k].iter().find(|other| other.address == address) {
            report.warn(
                &here,
                format!("\"{address}\": {} has the address too", first.name),
                "use weight for a larger share",
            );
        }
    }
}

/// A shared address is this machine's own for as long as it holds it.
fn shared_backends(path: &str, listener: &Listener, config: &Config, report: &mut Report<'_>) {
    let shared: Vec<IpAddr> = config
        .vips
        .iter()
        .flat_map(|vip| &vip.addresses)
        .filter_map(|address| parse_prefix(address).map(|(host, _)| host))
        .collect();
    for (k, backend) in listener.backends.iter().enumerate() {
        let address = backend.address;
        if shared.contains(&address.ip()) && listener.bind.iter().any(|bind| bind.port() == address.port()) {
            let text = format!("\"{address}\": a shared address: the holder would connect to itself");
            report.error(&format!("{path}.backends[{k}].address"), text, "name the machines behind it");
        }
    }
}

/// Whether a connection to `address` could end at a listener on `bind`.
fn is_itself(bind: SocketAddr, address: SocketAddr) -> bool {
    let covers = bind.ip() == address.ip()
        || (bind.ip().is_unspecified() && address.ip().is_loopback() && same_family(bind.ip(), address.ip()));
    bind.port() == address.port() && covers
}

fn allow(path: &str, listener: &Listener, report: &mut Report<'_>) {
    for (k, cidr) in listener.allow.iter().enumerate() {
        let Some((address, length)) = parse_prefix(cidr) else { continue };
        let network = network(address, length);
        if network != address {
            let text = format!("{cidr:?}: the address has bits beyond its prefix");
            report.warn(&format!("{path}.allow[{k}]"), text, format!("{network}/{length} is what it means"));
        }
    }
}

fn health(path: &str, listener: &Listener, report: &mut Report<'_>) {
    let check = &listener.health;
    let times = check.times();
    for (field, set) in without_effect(check, times.kind) {
        if set {
            let text = format!("has no effect on a check of kind {}", word(times.kind));
            report.error(&format!("{path}.{field}"), text, "remove it, or set kind");
        }
    }
    identity(path, check, report);
    if times.timeout_ms > times.interval_ms {
        let text = format!(
            "a check may take {} ms and the next is due after {} ms",
            times.timeout_ms, times.interval_ms
        );
        report.warn(
            &format!("{path}.timeoutMs"),
            text,
            "checks of one backend never overlap: the next one waits",
        );
    }
    if times.kind == CheckKind::Https {
        https(path, listener, report);
    }
}

/// What a check asks for, and what both sides show.
fn identity(path: &str, check: &HealthCheck, report: &mut Report<'_>) {
    if let Some(text) = check
        .path
        .as_deref()
        .filter(|text| !text.starts_with('/') || text.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        report.error(
            &format!("{path}.path"),
            format!("{text:?}: a path begins with / and has no blanks"),
            "",
        );
    }
    if let Some(name) = check.server_name.as_deref().filter(|name| ServerName::try_from(*name).is_err()) {
        report.error(
            &format!("{path}.serverName"),
            format!("{name:?}: neither a DNS name nor an address"),
            "",
        );
    }
    match (&check.cert_file, &check.key_file) {
        (Some(_), None) => report.error(&format!("{path}.certFile"), "keyFile is missing beside it", ""),
        (None, Some(_)) => report.error(&format!("{path}.keyFile"), "certFile is missing beside it", ""),
        _ => {}
    }
    if check.token_file.is_some() && check.ca_file.is_none() {
        let help = "add caFile: without it the token is shown to whoever answers";
        report.error(
            &format!("{path}.tokenFile"),
            "a token needs a backend whose certificate is checked",
            help,
        );
    }
}

/// What does not go together with a check by GET.
fn https(path: &str, listener: &Listener, report: &mut Report<'_>) {
    let talos = listener
        .backends
        .iter()
        .any(|backend| listener.health.port.unwrap_or(backend.address.port()) == TALOS_PORT);
    if talos {
        let text = format!(
            "https on port {TALOS_PORT}: Talos' API answers no plain GET, so that no backend gets healthy"
        );
        report.warn(path, text, "profile: guide, or kind: tls");
    }
    if listener.send_proxy != ProxyProtocol::None {
        let text = "kube-apiserver does not understand the PROXY protocol";
        report.warn(
            &path.replace(".health", ".sendProxy"),
            text,
            "leave it out unless the backends are something else",
        );
    }
}

/// Fields that do nothing for a kind of check, and whether they are set.
fn without_effect(check: &HealthCheck, kind: CheckKind) -> Vec<(&'static str, bool)> {
    let of_https = [
        ("path", check.path.is_some()),
        ("statuses", !check.statuses.is_empty()),
        ("tokenFile", check.token_file.is_some()),
    ];
    let of_tls = [
        ("serverName", check.server_name.is_some()),
        ("caFile", check.ca_file.is_some()),
        ("certFile", check.cert_file.is_some()),
        ("keyFile", check.key_file.is_some()),
    ];
    match kind {
        CheckKind::Https => Vec::new(),
        CheckKind::Tls => of_https.to_vec(),
        CheckKind::Tcp => of_https.into_iter().chain(of_tls).collect(),
    }
}

fn word(kind: CheckKind) -> &'static str {
    match kind {
        CheckKind::Tcp => "tcp",
        CheckKind::Tls => "tls",
        CheckKind::Https => "https",
    }
}

fn times(path: &str, listener: &Listener, report: &mut Report<'_>) {
    let idle = listener.timeouts.idle;
    if idle < QUIET {
        let text = format!(
            "{} without a byte end a connection: quiet watches and `kubectl logs -f` are cut",
            plural(idle as usize, "second")
        );
        report.warn(
            &format!("{path}.timeouts.idle"),
            text,
            "leave it out for 24 hours; dead peers are found by keepalive",
        );
    }
}
