//! Talos' checks of `machine.network.interfaces`.

use super::Checker;
use super::talos::is_wireguard_key;
use crate::intent::Cidr;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

const BOND_MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];

pub(super) fn check(c: &mut Checker<'_>) {
    let devices = c.list("machine.network.interfaces");
    let members = members(c, &devices);
    let worker = matches!(c.text("machine.type"), "worker" | "join" | "");
    for (index, device) in devices.iter().enumerate() {
        let path = format!("machine.network.interfaces[{index}]");
        if device.is_null() {
            c.error(&path, "empty device");
            continue;
        }
        if worker {
            let vlans = device["vlans"].as_array().cloned().unwrap_or_default();
            if !device["vip"].is_null() || vlans.iter().any(|vlan| !vlan["vip"].is_null()) {
                c.error(
                    &format!("{path}.vip"),
                    "virtual (shared) IP is not allowed on non-controlplane nodes",
                );
            }
        }
        if device["ignore"] == true {
            continue;
        }
        identity(c, device, &path);
        addressing(c, device, &members, &path);
        routes(c, device, &path);
        if !device["bond"].is_null() {
            bond(c, &device["bond"], &format!("{path}.bond"));
        }
        if !device["wireguard"].is_null() {
            wireguard(c, &device["wireguard"], &format!("{path}.wireguard"));
        }
        vlans(c, device, &path);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Which interfaces are part of a bond or a bridge, and of which one.
fn members(c: &mut Checker<'_>, devices: &[Value]) -> BTreeMap<String, String> {
    let mut members: BTreeMap<String, String> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        let path = format!("machine.network.interfaces[{index}]");
        let name = text(device, "interface");
        let (bond, bridge) = (&device["bond"], &device["bridge"]);
        if !bond.is_null() && !bridge.is_null() {
            c.error(&path, format!("interface has both bridge and bond sections set {name:?}: config sections are mutually exclusive"));
        }
        let selectors = bond["deviceSelectors"].as_array().is_some_and(|list| !list.is_empty());
        if selectors && !texts(&bond["interfaces"]).is_empty() {
            c.error(&path, format!("interface {name:?} has both interfaces and selectors set: config sections are mutually exclusive"));
        }
        let inside = if bridge.is_null() { texts(&bond["interfaces"]) } else { texts(&bridge["interfaces"]) };
        for member in inside {
            if let Some(other) = members.get(&member).filter(|other| *other != name) {
                let text = format!(
                    "interface {member:?} is declared as part of two separate links: {other:?} and {name:?}"
                );
                c.error(&path, text);
            }
            members.insert(member, name.to_owned());
        }
    }
    members
}

fn identity(c: &mut Checker<'_>, device: &Value, path: &str) {
    const BOTH: &str = "[networking.os.device.interface], [networking.os.device.deviceSelector]";
    let selector = &device["deviceSelector"];
    match (text(device, "interface").is_empty(), selector.is_null()) {
        (true, true) => c.error(path, format!("{BOTH}: required either config section to be set")),
        (false, false) => c.error(path, format!("{BOTH}: config sections are mutually exclusive")),
        _ => {}
    }
    let empty = |map: &serde_json::Map<String, Value>| map.values().all(|v| v.is_null() || v == "");
    if selector.as_object().is_some_and(empty) {
        c.error(
            path,
            "[networking.os.device.deviceSelector]: config section should contain at least one field",
        );
    }
}

fn addressing(c: &mut Checker<'_>, device: &Value, members: &BTreeMap<String, String>, path: &str) {
    let name = text(device, "interface");
    let (addresses, cidr) = (texts(&device["addresses"]), text(device, "cidr"));
    let vip = &device["vip"];
    if members.contains_key(name)
        && (device["dhcp"] == true || !cidr.is_empty() || !addresses.is_empty() || !vip.is_null())
    {
        let text = "bonded/bridged interface shouldn't have any addressing methods configured";
        c.error(path, format!("[networking.os.device] {name:?}: {text}"));
    }
    if !addresses.is_empty() && !cidr.is_empty() {
        c.error(
            path,
            format!("[networking.os.device] {name:?}: interface can't have both .cidr and .addresses set"),
        );
    }
    if !cidr.is_empty() {
        if !is_address(cidr) {
            c.error(
                &format!("{path}.cidr"),
                format!("[networking.os.device.CIDR] {name:?}: failed to parse IP address {cidr:?}"),
            );
        }
        let text =
            "machine.network.interface.cidr is deprecated, please use machine.network.interface.addresses";
        c.warning(&format!("{path}.cidr"), format!("{name:?}: {text}"));
    }
    for (index, address) in addresses.iter().enumerate().filter(|(_, address)| !is_address(address)) {
        let text =
            format!("[networking.os.device.addresses] {name:?}: failed to parse IP address {address:?}");
        c.error(&format!("{path}.addresses[{index}]"), text);
    }
    let shared = text(vip, "ip");
    if !vip.is_null() && shared.parse::<IpAddr>().is_err() {
        c.error(
            &format!("{path}.vip.ip"),
            format!("[networking.os.device.vip] failed to parse {shared:?} as IP address"),
        );
    }
}

/// An address with or without a prefix length.
fn is_address(text: &str) -> bool {
    if text.contains('/') { Cidr::parse(text).is_ok() } else { text.parse::<IpAddr>().is_ok() }
}

fn routes(c: &mut Checker<'_>, device: &Value, path: &str) {
    for (index, route) in device["routes"].as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}.routes[{index}]");
        let shown = format!("networking.os.device.route[{index}]");
        let (network, gateway) = (text(route, "network"), text(route, "gateway"));
        if !network.is_empty() && Cidr::parse(network).is_err() {
            c.error(
                &format!("{here}.network"),
                format!("[{shown}.network] {network:?}: invalid network address"),
            );
        }
        if network.is_empty() && gateway.is_empty() {
            c.error(&here, format!("[{shown}]: either network or gateway should be set"));
        }
        for (key, address) in [("gateway", gateway), ("source", text(route, "source"))] {
            if !address.is_empty() && address.parse::<IpAddr>().is_err() {
                c.error(
                    &format!("{here}.{key}"),
                    format!("[{shown}.{key}] {address:?}: invalid network address"),
                );
            }
        }
    }
}

fn bond(c: &mut Checker<'_>, bond: &Value, path: &str) {
    let mode = match text(bond, "mode") {
        "" => "balance-rr",
        mode => mode,
    };
    if !BOND_MODES.contains(&mode) {
        c.error(&format!("{path}.mode"), format!("invalid bond mode {mode}"));
        return;
    }
    for (key, allowed) in [
        ("xmitHashPolicy", &["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"][..]),
        ("lacpRate", &["slow", "fast"]),
        ("arpValidate", &["none", "active", "backup", "all", "filter", "filter-active", "filter-backup"]),
        ("arpAllTargets", &["any", "all"]),
        ("primaryReselect", &["always", "better", "failure"]),
        ("failOverMac", &["none", "active", "follow"]),
        ("adSelect", &["stable", "bandwidth", "count"]),
    ] {
        let value = text(bond, key);
        if !value.is_empty() && !allowed.contains(&value) {
            c.error(&format!("{path}.{key}"), format!("invalid {key} {value}"));
        }
    }
    let number = |key: &str| bond[key].as_i64().unwrap_or_default();
    let monitor = number("miimon");
    for key in ["updelay", "downdelay"] {
        let shown = if key == "updelay" { "upDelay" } else { "downDelay" };
        if monitor == 0 && number(key) != 0 {
            c.error(&format!("{path}.{key}"), format!("bond.{shown} can't be set if miiMon is zero"));
        } else if monitor != 0 && number(key) % monitor != 0 {
            c.error(&format!("{path}.{key}"), format!("bond.{shown} should be a multiple of miiMon"));
        }
    }
    for (key, shown) in [("arpIPTarget", "arpIPTarget"), ("adActorSystem", "adActorSystem")] {
        let set = !texts(&bond[key]).is_empty() || !text(bond, key).is_empty();
        if set {
            c.error(&format!("{path}.{key}"), format!("bond.{shown} is not supported"));
        }
    }
    bond_modes(c, bond, mode, path);
}

/// What goes with some modes only.
fn bond_modes(c: &mut Checker<'_>, bond: &Value, mode: &str, path: &str) {
    let number = |key: &str| bond[key].as_i64().unwrap_or_default();
    let lacp = mode == "802.3ad";
    let balancing = matches!(mode, "balance-tlb" | "balance-alb");
    if !lacp {
        for (key, set) in [
            ("lacpRate", !text(bond, "lacpRate").is_empty()),
            ("adActorSysPrio", number("adActorSysPrio") > 0),
            ("adUserPortKey", number("adUserPortKey") > 0),
        ] {
            if set {
                c.error(&format!("{path}.{key}"), format!("bond.{key} is only available in 802.3ad mode"));
            }
        }
    }
    for (key, shown, bad) in [
        ("arpValidate", "arpValidate", (lacp || balancing) && !text(bond, "arpValidate").is_empty()),
        ("primary", "primary", !(balancing || mode == "active-backup" || text(bond, "primary").is_empty())),
        ("arpInterval", "arpInterval", (lacp || balancing) && number("arpInterval") > 0),
        ("packetsPerSlave", "packetsPerSlave", mode != "balance-rr" && number("packetsPerSlave") > 1),
        ("tlbDynamicLb", "tlbDynamicTLB", !balancing && number("tlbDynamicLb") > 0),
    ] {
        if bad {
            c.error(&format!("{path}.{key}"), format!("bond.{shown} is not available in {mode} mode"));
        }
    }
}

fn wireguard(c: &mut Checker<'_>, wireguard: &Value, path: &str) {
    if !is_wireguard_key(text(wireguard, "privateKey")) {
        c.error(&format!("{path}.privateKey"), "private key is invalid");
    }
    for (index, peer) in wireguard["peers"].as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}.peers[{index}]");
        if !is_wireguard_key(text(peer, "publicKey")) {
            c.error(&format!("{here}.publicKey"), "public key invalid");
        }
        let endpoint = text(peer, "endpoint");
        if !endpoint.is_empty()
            && endpoint.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err())
        {
            c.error(&format!("{here}.endpoint"), format!("peer endpoint {endpoint:?} is invalid"));
        }
        for network in texts(&peer["allowedIPs"]).iter().filter(|network| Cidr::parse(network).is_err()) {
            c.error(&format!("{here}.allowedIPs"), format!("peer allowed IP {network:?} is invalid"));
        }
    }
}

fn vlans(c: &mut Checker<'_>, device: &Value, path: &str) {
    let name = text(device, "interface");
    for (index, vlan) in device["vlans"].as_array().into_iter().flatten().enumerate() {
        let here = format!("{path}.vlans[{index}]");
        let id = vlan["vlanId"].as_i64().unwrap_or_default();
        let (addresses, cidr) = (texts(&vlan["addresses"]), text(vlan, "cidr"));
        if !addresses.is_empty() && !cidr.is_empty() {
            let text = format!(
                "[networking.os.device.vlan] {name}.{id}: vlan can't have both .cidr and .addresses set"
            );
            c.error(&here, text);
        }
        let given = addresses.iter().map(String::as_str).chain((!cidr.is_empty()).then_some(cidr));
        for address in given.filter(|address| !is_address(address)) {
            let text = format!(
                "[networking.os.device.vlan.addresses] {name}.{id}: failed to parse IP address {address:?}"
            );
            c.error(&here, text);
        }
    }
}
