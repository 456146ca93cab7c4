//! Rules of security groups, and what they let through. Pure.

use super::state::Group;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// What a security group lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// `tcp`, `udp`, `icmp`, `-1`.
    pub(super) protocol: String,
    /// -1 for all.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) source: Source,
    pub(super) description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// As it was written, and read.
    Cidr(String, (Ipv4Addr, u8)),
    /// Not evaluated: the simulated network has no IPv6.
    Cidr6(String),
    Group(String),
}

/// Somebody who connects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer<'a> {
    pub(super) address: IpAddr,
    pub(super) groups: &'a [String],
}

impl Rule {
    /// Whether it is about the same traffic; a description makes no difference.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.protocol, self.from, self.to, &self.source)
            == (&other.protocol, other.from, other.to, &other.source)
    }

    fn lets_in(&self, port: u16, from: Peer<'_>) -> bool {
        let protocol = self.protocol == "-1" || self.protocol == "tcp" || self.protocol == "6";
        let all = self.protocol == "-1" || self.from == -1;
        let ports = all || (self.from..=self.to).contains(&i64::from(port));
        protocol && ports && self.comes_from(from)
    }

    fn comes_from(&self, from: Peer<'_>) -> bool {
        match (&self.source, from.address) {
            (Source::Cidr(_, range), IpAddr::V4(address)) => contains(*range, address),
            (Source::Group(group), _) => from.groups.contains(group),
            _ => false,
        }
    }
}

/// Whether any of these groups lets somebody in.
pub(super) fn let_in(groups: &BTreeMap<String, Group>, ids: &[String], port: u16, from: Peer<'_>) -> bool {
    let rules = ids.iter().filter_map(|id| groups.get(id)).flat_map(|group| group.ingress.values());
    rules.into_iter().any(|rule| rule.lets_in(port, from))
}

/// `10.0.0.0/16`, with bits beyond the prefix cut off.
pub(super) fn parse_cidr(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let bits: u8 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    let address: Ipv4Addr = address.parse().ok()?;
    Some((Ipv4Addr::from(u32::from(address) & mask(bits)), bits))
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

pub(super) fn contains((network, bits): (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    u32::from(address) & mask(bits) == u32::from(network)
}

pub(super) fn print_cidr((network, bits): (Ipv4Addr, u8)) -> String {
    format!("{network}/{bits}")
}

/// A rule in the form in which groups list them.
pub(super) fn permission(rule: &Rule, account: &str) -> Value {
    let mut told = json!({ "IpProtocol": rule.protocol });
    if rule.protocol != "-1" {
        told["FromPort"] = rule.from.into();
        told["ToPort"] = rule.to.into();
    }
    let mut source = match &rule.source {
        Source::Cidr(text, _) => json!({ "CidrIp": text }),
        Source::Cidr6(text) => json!({ "CidrIpv6": text }),
        Source::Group(id) => json!({ "GroupId": id, "UserId": account }),
    };
    if let Some(description) = &rule.description {
        source["Description"] = description.as_str().into();
    }
    let list = match &rule.source {
        Source::Cidr(..) => "IpRanges",
        Source::Cidr6(_) => "Ipv6Ranges",
        Source::Group(_) => "UserIdGroupPairs",
    };
    told[list] = json!([source]);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_let_in_what_they_name_and_nothing_else() {
        let rule = |protocol: &str, from: i64, to: i64, source: Source| Rule {
            protocol: protocol.to_string(),
            from,
            to,
            source,
            description: None,
        };
        let cidr = |text: &str| Source::Cidr(text.to_string(), parse_cidr(text).unwrap());
        let office = Peer { address: "196.45.28.20".parse().unwrap(), groups: &[] };
        let inside = Peer { address: "10.0.1.5".parse().unwrap(), groups: &["sg-1".to_string()] };
        let narrow = rule("tcp", 6443, 6443, cidr("196.45.28.20/32"));
        assert!(narrow.lets_in(6443, office));
        assert!(!narrow.lets_in(6444, office));
        assert!(!narrow.lets_in(6443, inside));
        assert!(!rule("udp", 6443, 6443, cidr("0.0.0.0/0")).lets_in(6443, office));
        assert!(rule("-1", -1, -1, cidr("0.0.0.0/0")).lets_in(22, office));
        assert!(rule("tcp", 0, 65535, Source::Group("sg-1".to_string())).lets_in(22, inside));
        assert!(!rule("tcp", 0, 65535, Source::Group("sg-2".to_string())).lets_in(22, inside));
        assert_eq!(parse_cidr("10.1.2.3/16"), Some(("10.1.0.0".parse().unwrap(), 16)));
        assert_eq!(parse_cidr("10.1.2.3/33"), None);
    }
}
