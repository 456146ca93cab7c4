//! Texts with a form of their own. They are plain types in Rust; here is what the schema calls them and how they are judged.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// Names of things: in metrics, logs, and generated files of others.
const NAME_LENGTH: usize = 63;
/// The kernel's limit, without the byte at the end.
const INTERFACE_LENGTH: usize = 15;

macro_rules! formats {
    ($($(#[$about:meta])* $type:ident = $name:literal;)*) => {$(
        $(#[$about])*
        pub(super) struct $type;
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "format": $name})
            }
        }
    )*};
}

formats! {
    /// `192.0.2.1:6443`, `[2001:db8::1]:6443`.
    HostPort = "address:port";
    /// `192.0.2.0/24`, or one address.
    Cidr = "cidr";
    /// `192.0.2.1/32`, or an address alone.
    Prefixed = "address/prefix";
    /// Small letters, digits and dashes.
    Name = "name";
    /// A network interface.
    Interface = "interface";
    /// A path from the root.
    AbsolutePath = "absolute-path";
}

/// What is wrong with a text of a format, as what is expected instead.
pub(super) fn judge(format: &str, text: &str) -> Result<(), String> {
    let expected = match format {
        "address:port" => match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => "port 0 is none: name a port from 1 to 65535",
            Ok(_) => return Ok(()),
            Err(_) => return Err(host_port(text)),
        },
        "ip" if text.parse::<IpAddr>().is_err() => "an IPv4 or IPv6 address is expected",
        "cidr" if parse_prefix(text).is_none() => "an address with a prefix length is expected: 192.0.2.0/24",
        "address/prefix" if parse_prefix(text).is_none() => "an address is expected: 192.0.2.1/32",
        "name" if !is_name(text) => {
            "a name has small letters, digits and inner dashes only, at most 63 of them"
        }
        "interface" if !is_interface(text) => "the name of a network interface is expected, such as eth0",
        "absolute-path" if !text.starts_with('/') => "a path from the root is expected, beginning with /",
        _ => return Ok(()),
    };
    Err(expected.to_owned())
}

/// The commonest slips have a hint of their own.
fn host_port(text: &str) -> String {
    if text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) {
        return format!("the port is missing: \"[{text}]:6443\"");
    }
    if text.parse::<IpAddr>().is_ok() {
        return format!("the port is missing: {text}:6443");
    }
    if let Some(port) = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')) {
        return format!("all addresses are written 0.0.0.0:{port} and \"[::]:{port}\"");
    }
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    if host.starts_with(|c: char| c.is_ascii_alphabetic()) && !host.contains(':') {
        return "names are not looked up: an address with a port is expected, such as 192.0.2.1:6443"
            .to_owned();
    }
    "an address with a port is expected, such as 192.0.2.1:6443 or \"[2001:db8::1]:6443\"".to_owned()
}

/// An address and the length of its prefix; without one, that of the address alone.
pub(crate) fn parse_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address.parse::<IpAddr>().ok()?, Some(length)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        // `+5` and ` 5` are no lengths, though Rust takes the first for a number.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse::<u8>().ok()?,
        Some(_) => return None,
        None => most,
    };
    (length <= most).then_some((address, length))
}

/// The network of an address: everything below its prefix is 0.
pub(super) fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= NAME_LENGTH
        && text.bytes().all(good)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_interface(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    !text.is_empty()
        && text.len() <= INTERFACE_LENGTH
        && text != "."
        && text != ".."
        && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_named() {
        for (text, hint) in [
            ("192.0.2.1", "192.0.2.1:6443"),
            ("2001:db8::1", "\"[2001:db8::1]:6443\""),
            ("*:6443", "0.0.0.0:6443"),
            ("cp-1.example.com:6443", "names are not looked up"),
            ("192.0.2.1:0", "port 0"),
            ("192.0.2.1:70000", "an address with a port is expected"),
        ] {
            let said = judge("address:port", text).unwrap_err();
            assert!(said.contains(hint), "{text}: {said}");
        }
        judge("address:port", "[::]:6443").unwrap();
    }

    #[test]
    fn prefixes() {
        let parsed = |text| parse_prefix(text).map(|(address, length)| network(address, length).to_string());
        assert_eq!(parsed("10.1.2.3/8").as_deref(), Some("10.0.0.0"));
        assert_eq!(parsed("10.1.2.3/0").as_deref(), Some("0.0.0.0"));
        assert_eq!(parsed("10.1.2.3").as_deref(), Some("10.1.2.3"));
        assert_eq!(parsed("2001:db8:1::5/32").as_deref(), Some("2001:db8::"));
        for bad in ["10.1.2.3/33", "10.1.2.3/", "10.1.2.3/+8", "10.1.2/8", "::/129", ""] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_and_interfaces() {
        for good in ["a", "kubernetes-api", "x9"] {
            judge("name", good).unwrap();
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a b", &"a".repeat(64)] {
            judge("name", bad).unwrap_err();
        }
        judge("interface", "eth0.100").unwrap();
        for bad in ["", "a/b", "sixteencharacter", "..", "a:0"] {
            judge("interface", bad).unwrap_err();
        }
    }
}
