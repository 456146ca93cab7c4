//! The same file as configurations of HAProxy and Keepalived, for sites that must keep those.
//!
//! What the two can't do is not left out in silence: each text begins with a list of what is missing in it.

mod haproxy;
mod keepalived;

pub use haproxy::haproxy;
pub use keepalived::keepalived;

use crate::config::{CheckKind, Config, Listener, parse_prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A port of HAProxy, on loopback, that tells whether a listener has a healthy backend; Keepalived asks it.
pub const MONITOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9445);

/// Why a file can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// There is nothing to make it from.
    #[error("{0}")]
    Nothing(&'static str),
    /// It would not do what the configuration says, in a way that matters.
    #[error("{0}")]
    Impossible(String),
}

/// The head of a generated file.
fn head(program: &str, missing: &[String]) -> String {
    let mut text =
        format!("# Made by `butler-lb render {program}`: edit the file of butler-lb and make it again.\n");
    if !missing.is_empty() {
        text.push_str("#\n# What butler-lb does and this does not:\n");
        for line in missing {
            text.push_str(&format!("# - {line}\n"));
        }
    }
    text.push('\n');
    text
}

/// What one of the two would take for something else than a part of a word: quotes, comments, blocks, variables, conditions.
const NOT_IN_WORDS: &str = "\"'\\#{}$!@~";

/// A text of the operator that is to be one word in a generated file.
fn one_word(field: &str, text: &str) -> Result<(), RenderError> {
    let good = |c: char| c.is_alphanumeric() || (c.is_ascii_graphic() && !NOT_IN_WORDS.contains(c));
    if !text.is_empty() && text.chars().all(good) {
        return Ok(());
    }
    Err(RenderError::Impossible(format!(
        "{field}: {text:?} can't be one word of a generated file; choose another name"
    )))
}

/// Where a listener can be reached from its own machine, whoever holds the shared addresses.
fn local(listener: &Listener, config: &Config) -> Option<SocketAddr> {
    let bind = listener.bind.iter().find(|bind| !is_shared(bind.ip(), config))?;
    let ip = match bind.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    Some(SocketAddr::new(ip, bind.port()))
}

fn is_shared(ip: IpAddr, config: &Config) -> bool {
    let mut shared = config.vips.iter().flat_map(|vip| &vip.addresses);
    shared.any(|address| parse_prefix(address).is_some_and(|(host, _)| host == ip))
}

/// Whether Keepalived can ask a backend through the listener; otherwise it asks HAProxy about it. Keys and tokens are left to
/// HAProxy.
fn is_asked_through(listener: &Listener) -> bool {
    let health = &listener.health;
    let keys = health.token_file.is_some() || health.cert_file.is_some();
    let plain = !keys && health.port.is_none() && !listener.accept_proxy;
    health.times().kind == CheckKind::Https
        && plain
        && listener.allow.is_empty()
        && health.statuses.is_empty()
}

#[cfg(test)]
mod tests;
