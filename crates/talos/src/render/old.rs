//! Contracts 1.9 to 1.11: network, time servers and registries are inside the v1alpha1 document.

use super::{links, put, vip};
use crate::intent::{Cidr, ClusterIntent, Link, LinkName, Mirror, NodeIntent};
use serde_json::{Map, Value, json};

pub(super) fn fill(cluster: &ClusterIntent, node: &NodeIntent, main: &mut Value) {
    let machine = &mut main["machine"];
    machine["network"]["hostname"] = json!(node.hostname);
    let shared = vip(cluster, node);
    let mut interfaces: Vec<Value> = links(node)
        .iter()
        .map(|link| {
            let mut interface = interface(link);
            if let Some((address, _)) = shared.as_ref().filter(|(_, name)| **name == link.name) {
                interface["vip"] = json!({"ip": address});
            }
            interface
        })
        .collect();
    interfaces.extend(loopback(node));
    put(&mut machine["network"], "interfaces", interfaces);
    let nameservers: Vec<String> = cluster.nameservers.iter().map(ToString::to_string).collect();
    put(&mut machine["network"], "nameservers", json!(nameservers));
    if !cluster.time_servers.is_empty() {
        machine["time"] = json!({"servers": cluster.time_servers});
    }
    let mirrors: Map<String, Value> =
        cluster.registry_mirrors.iter().map(|(host, settings)| (host.clone(), mirror(settings))).collect();
    if !mirrors.is_empty() {
        machine["registries"] = json!({"mirrors": mirrors});
    }
}

/// The interface `lo` with its addresses, if it has any.
pub(super) fn loopback(node: &NodeIntent) -> Option<Value> {
    let addresses: Vec<String> =
        node.loopback.iter().map(|address| Cidr::host(*address).to_string()).collect();
    (!addresses.is_empty()).then(|| json!({"interface": "lo", "addresses": addresses}))
}

fn interface(link: &Link) -> Value {
    let mut interface = match &link.name {
        LinkName::Name(name) => json!({"interface": name}),
        LinkName::Mac(mac) => json!({"deviceSelector": {"hardwareAddr": mac}}),
    };
    let addresses: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
    put(&mut interface, "addresses", json!(addresses));
    let routes: Vec<Value> = link
        .routes
        .iter()
        .map(|route| {
            let everywhere = if route.gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let network = route.network.map_or_else(|| everywhere.to_owned(), |network| network.to_string());
            json!({"network": network, "gateway": route.gateway.to_string()})
        })
        .collect();
    put(&mut interface, "routes", routes);
    put(&mut interface, "mtu", link.mtu);
    // Said in any case: whether it is on by default depends on more than this interface.
    interface["dhcp"] = link.dhcp.into();
    interface
}

fn mirror(settings: &Mirror) -> Value {
    let mut mirror = json!({"endpoints": settings.endpoints});
    if settings.override_path {
        mirror["overridePath"] = true.into();
    }
    if settings.skip_fallback {
        mirror["skipFallback"] = true.into();
    }
    mirror
}
