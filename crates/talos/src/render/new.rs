//! Contracts from 1.12 on: host name, links, shared address, resolver, time and registries are documents.

use super::{links, old, put, vip};
use crate::config::Document;
use crate::intent::{Cidr, ClusterIntent, Link, LinkName, Mirror, NodeIntent};
use serde_json::{Value, json};

/// The documents beside the main one. `main` gets what no document can say without side effects.
pub(super) fn documents(cluster: &ClusterIntent, node: &NodeIntent, main: &mut Value) -> Vec<Document> {
    let mut documents: Vec<Document> =
        cluster.registry_mirrors.iter().map(|(host, settings)| registry_mirror(host, settings)).collect();
    // With a name of its own, the automatic one must be off: Talos refuses both.
    documents.push(Document::new("HostnameConfig", json!({"auto": "off", "hostname": node.hostname})));
    documents.extend(network(cluster, node, main));
    if !cluster.nameservers.is_empty() {
        let servers: Vec<Value> =
            cluster.nameservers.iter().map(|address| json!({"address": address.to_string()})).collect();
        documents.push(Document::new("ResolverConfig", json!({"nameservers": servers})));
    }
    if !cluster.time_servers.is_empty() {
        documents.push(Document::new("TimeSyncConfig", json!({"ntp": {"servers": cluster.time_servers}})));
    }
    documents
}

fn network(cluster: &ClusterIntent, node: &NodeIntent, main: &mut Value) -> Vec<Document> {
    let mut documents = Vec::new();
    // The first document about any link turns DHCP off for all links that have none of their own. So with no link
    // configured, the shared address names its link without configuring it, and lo stays in the v1alpha1 document.
    let configured = !node.links.is_empty();
    let all = links(node);
    let names: Vec<String> = all
        .iter()
        .enumerate()
        .map(|(index, link)| match &link.name {
            LinkName::Name(name) => name.clone(),
            LinkName::Mac(mac) => {
                let alias = alias(index, &all);
                let matching = format!("mac(link.permanent_addr) == {:?}", mac.to_ascii_lowercase());
                let value = json!({"name": alias, "selector": {"match": matching}});
                documents.push(Document::new("LinkAliasConfig", value));
                alias
            }
        })
        .collect();
    if configured {
        for (link, name) in all.iter().zip(&names) {
            documents.push(link_config(name, link));
            if link.dhcp {
                documents.push(Document::new("DHCPv4Config", json!({"name": name})));
            }
        }
    }
    if !node.loopback.is_empty() {
        if configured {
            documents.push(loopback(node));
        } else {
            main["machine"]["network"]["interfaces"] = old::loopback(node).into_iter().collect();
        }
    }
    if let Some((address, wanted)) = vip(cluster, node)
        && let Some((_, name)) = all.iter().zip(&names).find(|(link, _)| link.name == *wanted)
    {
        documents.push(Document::new("Layer2VIPConfig", json!({"name": address, "link": name})));
    }
    documents
}

/// A name for a link that is known by its hardware address, and that no other link has.
fn alias(index: usize, links: &[Link]) -> String {
    let taken =
        |name: &str| links.iter().any(|link| matches!(&link.name, LinkName::Name(other) if other == name));
    let mut name = format!("net{index}");
    while taken(&name) {
        name.push('x');
    }
    name
}

fn link_config(name: &str, link: &Link) -> Document {
    let mut value = json!({"name": name});
    put(&mut value, "mtu", link.mtu);
    let addresses: Vec<Value> =
        link.addresses.iter().map(|address| json!({"address": address.to_string()})).collect();
    put(&mut value, "addresses", addresses);
    let routes: Vec<Value> = link
        .routes
        .iter()
        .map(|route| {
            let mut value = json!({"gateway": route.gateway.to_string()});
            // Without a destination it is the default route; 0.0.0.0/0 is refused.
            put(
                &mut value,
                "destination",
                route.network.filter(|net| net.bits() > 0).map(|net| net.to_string()),
            );
            value
        })
        .collect();
    put(&mut value, "routes", routes);
    Document::new("LinkConfig", value)
}

fn loopback(node: &NodeIntent) -> Document {
    let addresses: Vec<Value> =
        node.loopback.iter().map(|address| json!({"address": Cidr::host(*address).to_string()})).collect();
    Document::new("LinkConfig", json!({"name": "lo", "addresses": addresses}))
}

fn registry_mirror(host: &str, settings: &Mirror) -> Document {
    let endpoints: Vec<Value> = settings
        .endpoints
        .iter()
        .map(|url| {
            let mut endpoint = json!({"url": url});
            if settings.override_path {
                endpoint["overridePath"] = true.into();
            }
            endpoint
        })
        .collect();
    let mut value = json!({"name": host, "endpoints": endpoints});
    if settings.skip_fallback {
        value["skipFallback"] = true.into();
    }
    Document::new("RegistryMirrorConfig", value)
}
