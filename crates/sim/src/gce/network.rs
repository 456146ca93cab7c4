//! Addresses and firewall rules.

use super::state::{Fields, State, link};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where probes of backend services come from, and where those of target pools do as well.
pub(super) const PROBES: [IpAddr; 1] = [v4(35, 191, 0, 1)];
pub(super) const LEGACY_PROBES: [IpAddr; 3] = [v4(35, 191, 0, 1), v4(209, 85, 152, 1), v4(209, 85, 204, 1)];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    base: u32,
    bits: u32,
}

impl Range {
    /// `10.0.0.0/8`, or a single address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, "32"), |(address, bits)| (address, bits));
        let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        let range = Self { base: u32::from(address), bits };
        (bits <= 32 && range.base & !range.mask() == 0).then_some(range)
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - self.bits).unwrap_or(0)
    }

    pub(super) fn has(self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(address) if u32::from(address) & self.mask() == self.base)
    }

    /// Addresses that machines can have: all but the first two and the last two.
    fn usable(self) -> impl Iterator<Item = IpAddr> {
        let last = self.base | !self.mask();
        (self.base.saturating_add(2)..last.saturating_sub(1)).map(|number| IpAddr::V4(Ipv4Addr::from(number)))
    }

    fn first(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(self.base + 1))
    }
}

/// Whether a text is a range, of either family.
pub(super) fn is_range(text: &str) -> bool {
    let v6 = || {
        text.split_once('/').is_some_and(|(address, bits)| {
            address.parse::<std::net::Ipv6Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= 128)
        })
    };
    Range::parse(text).is_some() || v6()
}

/// Texts of a list.
pub(super) fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

impl State {
    /// The address of an instance on its network, and the one outside, if it has one.
    pub(super) fn addresses_of(&self, instance: &str) -> (Option<IpAddr>, Option<IpAddr>) {
        let Some(doc) = self.doc(instance) else { return (None, None) };
        let first = doc.fields.get("networkInterfaces").and_then(|all| all.get(0));
        let read = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| text.parse().ok());
        let outside = first.and_then(|nic| nic.pointer("/accessConfigs/0/natIP"));
        (read(first.and_then(|nic| nic.get("networkIP"))), read(outside))
    }

    /// Addresses outside that are taken: reserved ones, those of instances and of forwarding rules.
    fn external_taken(&self) -> BTreeSet<IpAddr> {
        let read = |text: &str| text.parse().ok();
        let reserved = self.all("addresses").filter_map(|(path, _)| read(self.text(path, "address")));
        let rules = self.all("forwardingRules").filter_map(|(path, _)| read(self.text(path, "IPAddress")));
        let instances = self.all("instances").filter_map(|(path, _)| self.addresses_of(path).1);
        reserved.chain(rules).chain(instances).collect()
    }

    /// How many addresses outside are in use in a region.
    pub(super) fn external_in_use(&self, region: &str) -> usize {
        let here = |path: &str| self.region_of(path) == Some(region);
        let rules: BTreeSet<&str> = self
            .all("forwardingRules")
            .filter(|(path, _)| here(path))
            .map(|(path, _)| self.text(path, "IPAddress"))
            .collect();
        let instances =
            self.all("instances").filter(|(path, _)| here(path) && self.addresses_of(path).1.is_some());
        rules.len() + instances.count()
    }

    /// A free address outside.
    pub(super) fn free_external(&mut self) -> IpAddr {
        let taken = self.external_taken();
        loop {
            let [a, b, c, ..] = self.draw().to_be_bytes();
            let address = v4(34, 64 + a % 64, b, c.clamp(1, 254));
            if !taken.contains(&address) {
                return address;
            }
        }
    }

    /// A free address of a subnetwork.
    pub(super) fn free_internal(&self, subnetwork: &str) -> Option<IpAddr> {
        let range = Range::parse(self.text(subnetwork, "ipCidrRange"))?;
        let taken = self.internal_taken();
        range.usable().find(|address| !taken.contains(address))
    }

    pub(super) fn internal_taken(&self) -> BTreeSet<IpAddr> {
        let instances = self.all("instances").filter_map(|(path, _)| self.addresses_of(path).0);
        let reserved = self.all("addresses").filter_map(|(path, _)| self.text(path, "address").parse().ok());
        instances.chain(reserved).collect()
    }

    /// The router of a subnetwork.
    pub(super) fn gateway_of(range: &str) -> Option<String> {
        Range::parse(range).map(|range| range.first().to_string())
    }

    /// Whether firewall rules let a connection from an address through to a port of an instance.
    pub(super) fn admits(&self, instance: &str, source: IpAddr, port: u16) -> bool {
        let Some(doc) = self.doc(instance) else { return false };
        let network = doc
            .fields
            .get("networkInterfaces")
            .and_then(|all| all.pointer("/0/network"))
            .and_then(Value::as_str);
        let tags: Vec<&str> = texts(doc.fields.get("tags").and_then(|tags| tags.get("items"))).collect();
        let accounts: Vec<&str> = doc
            .fields
            .get("serviceAccounts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|account| account["email"].as_str())
            .collect();
        let mut best: Option<(i64, bool)> = None;
        for (path, rule) in self.all("firewalls") {
            let fields = &rule.fields;
            let aims =
                |field: &str, own: &[&str]| texts(fields.get(field)).any(|wanted| own.contains(&wanted));
            let listed = |field: &str| texts(fields.get(field)).next().is_some();
            let everybody = !listed("targetTags") && !listed("targetServiceAccounts");
            let meant = everybody || aims("targetTags", &tags) || aims("targetServiceAccounts", &accounts);
            let active = fields.get("disabled") != Some(&Value::Bool(true))
                && self.text(path, "direction") != "EGRESS";
            if !meant
                || !active
                || Some(self.text(path, "network")) != network
                || !self.comes_from(fields, source)
            {
                continue;
            }
            let priority = fields.get("priority").and_then(Value::as_i64).unwrap_or(1000);
            for (field, lets) in [("allowed", true), ("denied", false)] {
                let fits = fields
                    .get(field)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .any(|entry| covers(entry, port));
                // At the same priority, a denial wins.
                if fits
                    && best.is_none_or(|(known, was)| priority < known || (priority == known && was && !lets))
                {
                    best = Some((priority, lets));
                }
            }
        }
        best.is_some_and(|(_, lets)| lets)
    }

    /// Whether a rule is about connections from an address.
    fn comes_from(&self, rule: &Fields, source: IpAddr) -> bool {
        let in_range =
            texts(rule.get("sourceRanges")).filter_map(Range::parse).any(|range| range.has(source));
        let tagged = || {
            texts(rule.get("sourceTags")).any(|tag| {
                self.all("instances").any(|(path, doc)| {
                    let own = texts(doc.fields.get("tags").and_then(|tags| tags.get("items")))
                        .any(|own| own == tag);
                    own && self.addresses_of(path).0 == Some(source)
                })
            })
        };
        in_range || tagged()
    }

    /// Whether somebody outside can reach an address and port at all.
    pub(super) fn admits_from_outside(&self, to: SocketAddr) -> bool {
        for (path, _) in self.all("instances") {
            let (inside, outside) = self.addresses_of(path);
            if outside == Some(to.ip()) {
                return self.admits(path, self.client, to.port());
            }
            if inside == Some(to.ip()) {
                return self.vpn;
            }
        }
        true
    }

    /// What resources are going to hold, by path, when the operations under way end well.
    pub(super) fn changes_under_way(&self) -> impl Iterator<Item = (&String, &Fields)> {
        use super::operations::Work;
        let open = self.active.iter().filter_map(|name| self.operations.get(name));
        open.filter_map(|operation| match &operation.work {
            Work::Insert(fields) | Work::Set(fields) | Work::Update(fields) => {
                Some((&operation.target, fields))
            }
            _ => None,
        })
    }

    /// Resources that use another one, by path; those on their way included.
    pub(super) fn users_of(&self, path: &str) -> Vec<String> {
        let wanted = link(path);
        let address = self.text(path, "address").to_string();
        let coming = self.changes_under_way();
        let all = self.docs.iter().map(|(path, doc)| (path, &doc.fields)).chain(coming);
        let mut users: Vec<String> = all
            .filter(|(user, fields)| user.as_str() != path && uses(user, fields, &wanted, &address))
            .map(|(user, _)| user.clone())
            .collect();
        users.sort();
        users.dedup();
        users
    }
}

/// Whether the document of a resource refers to a link, or holds an address.
fn uses(user: &str, fields: &Fields, wanted: &str, address: &str) -> bool {
    let is = |field: &str| fields.get(field).and_then(Value::as_str) == Some(wanted);
    match super::state::collection_of(user) {
        "forwardingRules" => {
            let held = fields
                .get("IPAddress")
                .and_then(Value::as_str)
                .is_some_and(|held| !address.is_empty() && held == address);
            is("backendService") || is("target") || held
        }
        "backendServices" => {
            let groups = fields.get("backends").and_then(Value::as_array);
            texts(fields.get("healthChecks")).any(|check| check == wanted)
                || groups.into_iter().flatten().any(|backend| backend["group"] == wanted)
        }
        "targetPools" => texts(fields.get("healthChecks")).any(|check| check == wanted),
        "instances" => {
            let disks = fields.get("disks").and_then(Value::as_array);
            let nics = fields.get("networkInterfaces").and_then(Value::as_array);
            disks.into_iter().flatten().any(|disk| disk["source"] == wanted)
                || nics.into_iter().flatten().any(|nic| {
                    !address.is_empty()
                        && (nic["networkIP"] == address
                            || nic.pointer("/accessConfigs/0/natIP").is_some_and(|ip| ip == address))
                })
        }
        _ => false,
    }
}

/// Whether an entry of `allowed` or `denied` is about TCP at a port.
fn covers(entry: &Value, port: u16) -> bool {
    let protocol = entry["IPProtocol"].as_str().unwrap_or_default().to_ascii_lowercase();
    if protocol == "all" {
        return true;
    }
    if protocol != "tcp" && protocol != "6" {
        return false;
    }
    let mut ports = texts(entry.get("ports")).peekable();
    ports.peek().is_none() || ports.any(|text| in_ports(text, port))
}

/// Whether `80` or `80-90` has a port.
pub(super) fn in_ports(text: &str, port: u16) -> bool {
    parse_ports(text).is_some_and(|(from, to)| (from..=to).contains(&port))
}

/// First and last port of `80` or `80-90`.
pub(super) fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from <= to).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_ports_are_read_strictly() {
        let range = Range::parse("10.128.0.0/20").unwrap();
        assert!(range.has(v4(10, 128, 15, 255)) && !range.has(v4(10, 128, 16, 0)));
        assert_eq!(range.usable().next(), Some(v4(10, 128, 0, 2)));
        assert_eq!(Range::parse("10.128.0.1/20"), None, "host bits are set");
        assert!(Range::parse("0.0.0.0/0").unwrap().has(v4(203, 0, 113, 9)));
        assert!(is_range("2001:db8::/32") && !is_range("2001:db8::/200") && !is_range("everywhere"));
        assert!(in_ports("50000-50001", 50001) && !in_ports("50000-50001", 6443) && in_ports("6443", 6443));
        assert_eq!(parse_ports("90-80"), None);
    }
}
