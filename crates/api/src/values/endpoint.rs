//! Where a control plane is reached: an address or a host name, without scheme and port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ValueError, text_value};

/// An IP address or a DNS host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Endpoint {
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
    /// A host name, in lower case.
    Host(String),
}

impl Endpoint {
    /// The address, when it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Endpoint::Ip(ip) => Some(*ip),
            Endpoint::Host(_) => None,
        }
    }

    /// `host:port`, with the brackets that IPv6 needs.
    pub fn with_port(&self, port: u16) -> String {
        match self {
            Endpoint::Ip(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
            other => format!("{other}:{port}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |rule: String, remedy: &str| {
            Err(ValueError::new("an IP address or a DNS host name", text, rule, remedy))
        };
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Endpoint::Ip(ip));
        }
        if text.contains("://") {
            return wrong("it has a scheme".to_owned(), "write the host alone, such as 10.40.0.200");
        }
        if text.contains(':') {
            return wrong(
                "it has a port or is a broken IPv6 address".to_owned(),
                "write the host alone, without a port",
            );
        }
        let host = text.to_ascii_lowercase();
        let name = host.strip_suffix('.').unwrap_or(&host);
        if name.is_empty() || name.len() > 253 {
            return wrong(format!("it has {} characters", name.len()), "a host name has 1 to 253 characters");
        }
        for label in name.split('.') {
            if let Err(rule) = check_label(label) {
                return wrong(rule, "write an address such as 10.40.0.200 or a name such as k8s.example.com");
            }
        }
        // No top-level domain is a number, so this is an address with a slip in it, and resolvers would not even ask.
        let last = name.rsplit('.').next().unwrap_or(name);
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return wrong(
                "it looks like an IPv4 address and is none".to_owned(),
                "write four numbers from 0 to 255, without leading zeros",
            );
        }
        Ok(Endpoint::Host(name.to_owned()))
    }
}

fn check_label(label: &str) -> Result<(), String> {
    if label.is_empty() || label.len() > 63 {
        return Err(format!("part {label:?} has {} characters, and 1 to 63 are allowed", label.len()));
    }
    if let Some(bad) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        return Err(format!("{bad:?} is not allowed in a host name"));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(format!("part {label:?} begins or ends with a dash"));
    }
    Ok(())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Ip(ip) => ip.fmt(f),
            Endpoint::Host(host) => f.write_str(host),
        }
    }
}

text_value!(Endpoint);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    proptest! {
        #[test]
        fn addresses_round_trip(v4: u32, v6: u128) {
            for ip in [IpAddr::V4(Ipv4Addr::from_bits(v4)), IpAddr::V6(Ipv6Addr::from_bits(v6))] {
                prop_assert_eq!(ip.to_string().parse::<Endpoint>().unwrap(), Endpoint::Ip(ip));
            }
        }

        #[test]
        fn parsing_is_stable(text in "[-a-zA-Z0-9.:/_]{0,40}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
            }
        }
    }

    #[test]
    fn takes_names_and_addresses() {
        assert_eq!("K8s.Example.com.".parse::<Endpoint>().unwrap().to_string(), "k8s.example.com");
        assert_eq!("10.40.0.200".parse::<Endpoint>().unwrap().with_port(6443), "10.40.0.200:6443");
        assert_eq!("fd00::1".parse::<Endpoint>().unwrap().with_port(6443), "[fd00::1]:6443");
        assert_eq!("lb-1.elb.eu-west-1.amazonaws.com".parse::<Endpoint>().unwrap().ip(), None);
    }

    #[test]
    fn refuses_slips() {
        for (text, hint) in [
            ("10.40.0.300", "looks like an IPv4 address"),
            ("10.40.0", "looks like an IPv4 address"),
            ("https://10.40.0.200", "scheme"),
            ("10.40.0.200:6443", "port"),
            ("", "0 characters"),
            ("a..b", "0 characters"),
            ("a_b", "not allowed"),
            ("-a.b", "dash"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.rule.contains(hint), "{text}: {error}");
        }
    }
}
