//! Where a node is, and the roads to it: address, HTTP CONNECT proxy, resolver overrides, time limits.

use std::{collections::BTreeMap, fmt, net::SocketAddr, str::FromStr, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::ServerName;

/// The port of the Talos API; Talos has no setting for it.
pub const TALOS_PORT: u16 = 50000;

/// A string of the user's that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?}: {why}")]
pub struct Malformed {
    what: &'static str,
    given: String,
    why: &'static str,
}

impl Malformed {
    pub(super) fn new(what: &'static str, given: &str, why: &'static str) -> Self {
        Self { what, given: given.to_owned(), why }
    }
}

/// Host (address or name) and port of a node's API. `10.0.0.1`, `node-1:50000`, `::1` and `[::1]:50000` all parse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAddress {
    host: String,
    port: u16,
}

impl NodeAddress {
    /// Without brackets, also when it is an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name that the node's certificate has to carry.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, Malformed> {
        ServerName::try_from(self.host.clone()).map_err(|_| {
            Malformed::new("node address", &self.host, "is neither an IP address nor a DNS name")
        })
    }

    /// `host:port`, with brackets where they are needed.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl From<SocketAddr> for NodeAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for NodeAddress {
    type Err = Malformed;

    fn from_str(given: &str) -> Result<Self, Malformed> {
        let bad = |why| Malformed::new("node address", given, why);
        let (host, port) = split_port(given).map_err(bad)?;
        let address = Self { host: host.to_owned(), port: port.unwrap_or(TALOS_PORT) };
        if address.port == 0 {
            return Err(bad("port 0 can't be connected to"));
        }
        address.server_name().map_err(|_| bad("is neither an IP address nor a DNS name"))?;
        Ok(address)
    }
}

impl fmt::Display for NodeAddress {
    /// The port is told only when it is not the usual one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == TALOS_PORT { f.write_str(&self.host) } else { f.write_str(&self.authority()) }
    }
}

fn split_port(given: &str) -> Result<(&str, Option<u16>), &'static str> {
    if let Some(rest) = given.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("the bracket is not closed")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port.parse().map_err(|_| "the port is not a number up to 65535")?))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("something other than a port follows the bracket"),
        };
    }
    match given.split_once(':') {
        // More than one colon and no bracket: an IPv6 address.
        Some((_, port)) if port.contains(':') => Ok((given, None)),
        Some((host, port)) => {
            Ok((host, Some(port.parse().map_err(|_| "the port is not a number up to 65535")?)))
        }
        None => Ok((given, None)),
    }
}

/// An HTTP proxy that is asked to CONNECT. Its password appears in no `Debug` and no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    authorization: Option<String>,
}

impl Proxy {
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of `Proxy-Authorization`.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }
}

impl FromStr for Proxy {
    type Err = Malformed;

    /// `http://[user:password@]host:port`. The text itself is kept out of the error, for the password's sake.
    fn from_str(given: &str) -> Result<Self, Malformed> {
        let bad = |why| Malformed::new("proxy", "***", why);
        let rest = match given.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(bad("only http:// proxies (CONNECT) are supported")),
            None => given,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = split_port(place).map_err(bad)?;
        if host.is_empty() || host.contains('/') {
            return Err(bad("expected http://host:port"));
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.unwrap_or(80),
            authorization: user.map(|user| format!("Basic {}", BASE64_STANDARD.encode(unescape(user)))),
        })
    }
}

/// Undoes percent escapes in the user part of a URL.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// How connections are made. The same for every node of a cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Every connection goes through it, if given.
    pub proxy: Option<Proxy>,
    /// Host as in [`NodeAddress::host`] -> where to dial instead. Certificates are still checked for the host.
    pub overrides: BTreeMap<String, SocketAddr>,
    /// For each of: reach the port (through the proxy), shake hands, hear the first word.
    pub connect_timeout: Duration,
    /// For a call that gives one answer. Streams end with their caller's own deadline.
    pub call_timeout: Duration,
    /// The first and the longest pause between two tries while a port is closed.
    pub retry: (Duration, Duration),
    /// A stream that is silent for so long has its node asked whether it still lives.
    pub quiet_limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            proxy: None,
            overrides: BTreeMap::new(),
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(30),
            retry: (Duration::from_millis(50), Duration::from_millis(500)),
            quiet_limit: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_with_and_without_port() {
        for (given, host, port) in [
            ("10.0.0.1", "10.0.0.1", 50000),
            ("10.0.0.1:1234", "10.0.0.1", 1234),
            ("node-1.lan", "node-1.lan", 50000),
            ("node-1.lan:50001", "node-1.lan", 50001),
            ("fd00::1", "fd00::1", 50000),
            ("[fd00::1]", "fd00::1", 50000),
            ("[fd00::1]:7", "fd00::1", 7),
        ] {
            let address: NodeAddress = given.parse().unwrap();
            assert_eq!((address.host(), address.port()), (host, port), "{given}");
        }
        for given in
            ["", "10.0.0.1:x", "[::1", "[::1]x", "https://10.0.0.1", "a b", "10.0.0.1:0", "10.0.0.1:70000"]
        {
            assert!(given.parse::<NodeAddress>().is_err(), "{given}");
        }
    }

    #[test]
    fn an_address_is_shown_with_its_port_only_when_unusual() {
        let shown = |given: &str| given.parse::<NodeAddress>().unwrap().to_string();
        assert_eq!(shown("10.0.0.1:50000"), "10.0.0.1");
        assert_eq!(shown("[::1]:5"), "[::1]:5");
    }

    #[test]
    fn a_proxy_keeps_its_password_to_itself() {
        let proxy: Proxy = "http://bob:s3c%40ret@proxy.lan:3128".parse().unwrap();
        assert_eq!(proxy.authorization(), Some("Basic Ym9iOnMzY0ByZXQ="));
        assert_eq!(format!("{proxy} {proxy:?}"), "http://proxy.lan:3128 Proxy(http://proxy.lan:3128)");
        let error = "socks5://bob:hunter2@proxy".parse::<Proxy>().unwrap_err();
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"));
    }
}
