//! Whether a network's firewall rules let through what a cluster needs: pure, over the rules as Google lists them.

use crate::cover::{Range, covers};
use serde_json::Value;
use std::net::Ipv4Addr;

/// Something that has to reach the machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    /// For people: `etcd`.
    pub(crate) what: &'static str,
    /// `tcp` or `udp`.
    pub(crate) protocol: &'static str,
    /// First and last port.
    pub(crate) ports: (u16, u16),
    pub(crate) from: From,
}

/// Where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    /// The cluster's own machines.
    Machines,
    /// All of a network, in CIDR notation.
    Network(String),
    /// Somebody outside, wherever that is.
    Somewhere,
}

/// The machines that a rule may be for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machines {
    pub(crate) tags: Vec<String>,
    pub(crate) service_account: Option<String>,
    /// Their subnetwork's range, where it is known.
    pub(crate) range: Option<String>,
}

/// How a need fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passage {
    /// By this rule.
    Allowed(String),
    /// By this rule.
    Denied(String),
    /// No rule speaks of it, and what no rule speaks of does not come in.
    Nothing,
}

const fn between(what: &'static str, protocol: &'static str, first: u16, last: u16) -> Need {
    Need { what, protocol, ports: (first, last), from: From::Machines }
}

/// What the machines of a cluster need of each other.
pub(crate) const BETWEEN_MACHINES: [Need; 6] = [
    between("Kubernetes API", "tcp", 6443, 6443),
    between("Talos API", "tcp", 50000, 50001),
    between("etcd", "tcp", 2379, 2380),
    between("kubelet", "tcp", 10250, 10250),
    between("Cilium health", "tcp", 4240, 4240),
    between("Cilium VXLAN", "udp", 8472, 8472),
];

/// The fate of a need under some rules: for each port, the rule with the lowest number that speaks of it decides, a denial before
/// a permission. Rules may share the ports and the addresses of a need between them.
pub(crate) fn passage(rules: &[Value], need: &Need, machines: &Machines) -> Passage {
    let mut names: Vec<String> = Vec::new();
    for port in need.ports.0..=need.ports.1 {
        match passage_of_port(rules, &Need { ports: (port, port), ..need.clone() }, machines) {
            Passage::Allowed(name) if names.contains(&name) => {}
            Passage::Allowed(name) => names.push(name),
            other => return other,
        }
    }
    Passage::Allowed(names.join(", "))
}

fn passage_of_port(rules: &[Value], need: &Need, machines: &Machines) -> Passage {
    let number = |rule: &&Value| {
        let priority = rule.get("priority").and_then(Value::as_u64).unwrap_or(1000);
        (priority, rule.get("denied").is_none())
    };
    let mut ordered: Vec<&Value> = rules.iter().filter(|rule| is_for(rule, machines)).collect();
    ordered.sort_by_key(number);
    let wanted = match &need.from {
        From::Machines => machines.range.as_deref().and_then(range),
        From::Network(network) => range(network),
        From::Somewhere => None,
    };
    // Parts of the wanted addresses that rules have let in so far, and their names.
    let (mut parts, mut names) = (Vec::new(), Vec::new());
    for rule in ordered {
        let name = rule.get("name").and_then(Value::as_str).unwrap_or("?").to_owned();
        // A denial of a part is a denial; a permission of a part is none.
        if speaks_of(rule, "denied", need, false) && comes_from(rule, need, machines, false) {
            return Passage::Denied(name);
        }
        if speaks_of(rule, "allowed", need, true) && comes_from(rule, need, machines, true) {
            return Passage::Allowed(name);
        }
        let sources: Vec<Range> = texts(rule, "sourceRanges").into_iter().filter_map(range).collect();
        let Some(wanted) = wanted.filter(|_| speaks_of(rule, "allowed", need, true)) else { continue };
        let before = parts.len();
        parts.extend(sources.into_iter().filter(|(first, last)| *first <= wanted.1 && wanted.0 <= *last));
        if parts.len() > before {
            names.push(name);
            if covers(parts.iter().copied(), wanted) {
                return Passage::Allowed(names.join(", "));
            }
        }
    }
    Passage::Nothing
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_for(rule: &Value, machines: &Machines) -> bool {
    let inward = rule.get("direction").and_then(Value::as_str).is_none_or(|direction| direction == "INGRESS");
    let on = rule.get("disabled").and_then(Value::as_bool) != Some(true);
    let (tags, accounts) = (texts(rule, "targetTags"), texts(rule, "targetServiceAccounts"));
    let tagged = tags.iter().any(|tag| machines.tags.iter().any(|other| other == tag));
    let account = machines.service_account.as_deref();
    let everyone = tags.is_empty() && accounts.is_empty();
    inward && on && (everyone || tagged || account.is_some_and(|account| accounts.contains(&account)))
}

fn speaks_of(rule: &Value, key: &str, need: &Need, wholly: bool) -> bool {
    let entries = rule.get(key).and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| {
        let protocol = entry.get("IPProtocol").and_then(Value::as_str).unwrap_or_default();
        let number = if need.protocol == "tcp" { "6" } else { "17" };
        let fits = protocol == "all" || protocol == number || protocol.eq_ignore_ascii_case(need.protocol);
        let ports = texts(entry, "ports");
        fits && (ports.is_empty() || ports.iter().any(|range| meets(range, need.ports, wholly)))
    })
}

/// Whether a range of ports, as `80` or `80-90`, holds another: all of it, or some of it.
fn meets(range: &str, (first, last): (u16, u16), wholly: bool) -> bool {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let (Ok(from), Ok(to)) = (from.trim().parse::<u16>(), to.trim().parse::<u16>()) else { return false };
    if wholly { from <= first && last <= to } else { from <= last && first <= to }
}

fn comes_from(rule: &Value, need: &Need, machines: &Machines, wholly: bool) -> bool {
    let ranges = texts(rule, "sourceRanges");
    let (tags, accounts) = (texts(rule, "sourceTags"), texts(rule, "sourceServiceAccounts"));
    if ranges.is_empty() && tags.is_empty() && accounts.is_empty() {
        return true;
    }
    let touches = |outer: &&str, inner: &str| {
        if wholly { holds(outer, inner) } else { holds(outer, inner) || holds(inner, outer) }
    };
    match &need.from {
        From::Machines => {
            let tagged = tags.iter().any(|tag| machines.tags.iter().any(|other| other == tag));
            let account = machines.service_account.as_deref();
            tagged
                || account.is_some_and(|account| accounts.contains(&account))
                || machines
                    .range
                    .as_ref()
                    .is_some_and(|range| ranges.iter().any(|outer| touches(outer, range)))
        }
        From::Network(network) => ranges.iter().any(|outer| touches(outer, network)),
        // Some address outside is enough for a permission, and only a denial to all is one.
        From::Somewhere if wholly => ranges.iter().any(|range| !is_private(range)),
        From::Somewhere => ranges.contains(&"0.0.0.0/0"),
    }
}

fn is_private(range: &str) -> bool {
    let network = range.split('/').next().and_then(|address| address.parse::<Ipv4Addr>().ok());
    network
        .is_some_and(|address| (address.is_private() || address.is_loopback()) && !address.is_unspecified())
}

/// First and last address of an IPv4 network.
fn range(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
    let bits = bits.parse::<u32>().ok().filter(|bits| *bits <= 32)?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Some((address & mask, address | !mask))
}

/// Whether an IPv4 network lies in another.
fn holds(outer: &str, inner: &str) -> bool {
    let (Some(outer), Some(inner)) = (range(outer), range(inner)) else { return false };
    outer.0 <= inner.0 && inner.1 <= outer.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machines() -> Machines {
        Machines { tags: vec!["mgmt".into()], service_account: None, range: Some("10.128.0.0/20".into()) }
    }

    fn allow(name: &str, more: Value) -> Value {
        let mut rule = json!({"name": name, "direction": "INGRESS", "priority": 1000,
            "allowed": [{"IPProtocol": "tcp", "ports": ["6443", "50000-50001"]}]});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    }

    #[test]
    fn networks_lie_in_each_other() {
        assert!(holds("10.128.0.0/9", "10.128.0.0/20") && holds("0.0.0.0/0", "35.191.0.0/16"));
        assert!(!holds("10.128.0.0/20", "10.128.0.0/9") && !holds("10.0.0.0/9", "10.128.0.0/20"));
        assert!(holds("10.1.2.3", "10.1.2.3/32") && !holds("2001:db8::/32", "10.0.0.0/8"));
    }

    #[test]
    fn rules_are_read_as_google_reads_them() {
        let talos = &BETWEEN_MACHINES[1];
        let by = |rules: &[Value]| passage(rules, talos, &machines());
        let inside = json!({"sourceRanges": ["10.128.0.0/9"]});
        assert_eq!(by(&[]), Passage::Nothing);
        assert_eq!(by(&[allow("a", inside.clone())]), Passage::Allowed("a".into()));
        assert_eq!(by(&[allow("a", json!({"sourceTags": ["mgmt"]}))]), Passage::Allowed("a".into()));
        for useless in [
            json!({"sourceTags": ["other"]}),
            json!({"sourceRanges": ["10.0.0.0/16"]}),
            json!({"sourceRanges": ["10.128.0.0/9"], "disabled": true}),
            json!({"sourceRanges": ["10.128.0.0/9"], "direction": "EGRESS"}),
            json!({"sourceRanges": ["10.128.0.0/9"], "targetTags": ["butler-node"]}),
            json!({"sourceRanges": ["10.128.0.0/9"], "allowed": [{"IPProtocol": "tcp", "ports": ["50000"]}]}),
            json!({"sourceRanges": ["10.128.0.0/9"], "allowed": [{"IPProtocol": "udp"}]}),
        ] {
            assert_eq!(by(&[allow("a", useless.clone())]), Passage::Nothing, "{useless}");
        }
        let deny =
            |priority: u32| json!({"name": "no", "priority": priority, "denied": [{"IPProtocol": "all"}]});
        assert_eq!(by(&[allow("a", inside.clone()), deny(1000)]), Passage::Denied("no".into()));
        assert_eq!(by(&[allow("a", inside), deny(1001)]), Passage::Allowed("a".into()));
    }

    /// Ports and addresses may be shared out among rules.
    #[test]
    fn rules_work_together() {
        let talos = &BETWEEN_MACHINES[1];
        let by = |rules: &[Value]| passage(rules, talos, &machines());
        let port =
            |port: &str| json!({"sourceTags": ["mgmt"], "allowed": [{"IPProtocol": "tcp", "ports": [port]}]});
        let (first, second) = (allow("a", port("50000")), allow("b", port("50001")));
        assert_eq!(by(std::slice::from_ref(&first)), Passage::Nothing);
        assert_eq!(by(&[first, second]), Passage::Allowed("a, b".into()));
        let half = |name: &str, range: &str| allow(name, json!({"sourceRanges": [range]}));
        let (low, high) = (half("low", "10.128.0.0/21"), half("high", "10.128.8.0/21"));
        assert_eq!(by(std::slice::from_ref(&high)), Passage::Nothing);
        assert_eq!(by(&[low, high]), Passage::Allowed("low, high".into()));
        let both = allow("both", json!({"sourceRanges": ["10.128.0.0/21", "10.128.8.0/21"]}));
        assert_eq!(by(&[both]), Passage::Allowed("both".into()));
    }

    #[test]
    fn health_checks_and_people_come_from_outside() {
        let check = Need {
            what: "health checks",
            protocol: "tcp",
            ports: (6443, 6443),
            from: From::Network("35.191.0.0/16".into()),
        };
        let open = allow("open", json!({"sourceRanges": ["0.0.0.0/0"]}));
        let some = allow("some", json!({"sourceRanges": ["130.211.0.0/22", "35.191.0.0/16"]}));
        assert_eq!(
            passage(std::slice::from_ref(&open), &check, &machines()),
            Passage::Allowed("open".into())
        );
        assert_eq!(passage(&[some], &check, &machines()), Passage::Allowed("some".into()));
        let us = Need { from: From::Somewhere, ports: (50000, 50000), ..check };
        assert_eq!(passage(&[open], &us, &machines()), Passage::Allowed("open".into()));
        let office = allow("office", json!({"sourceRanges": ["203.0.113.0/24"]}));
        assert_eq!(passage(&[office], &us, &machines()), Passage::Allowed("office".into()));
        let inside = allow("inside", json!({"sourceRanges": ["10.0.0.0/8"]}));
        assert_eq!(passage(&[inside], &us, &machines()), Passage::Nothing);
    }
}
