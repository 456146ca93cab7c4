//! What a cloud controller manager does for Services: a load balancer of the cloud for each that asks for one. Pure.
//!
//! It knows machines by their providerID alone, as the real ones do that run their service controller only. The load balancers
//! themselves are no more than an address on paper: nobody connects to them.

use super::clock::{Clock, Wait};
use super::objects::{self, Action, Objects, is_true, text};
use super::services::runs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Keeps load balancers away from a node.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// A network that is routed nowhere.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 10]);

pub(super) fn plan(objects: &Objects, clock: &mut Clock) -> Vec<Action> {
    let wants = |service: &&Arc<Value>| text(service, "/spec/type") == "LoadBalancer";
    let ip = |service: &Value| text(service, "/status/loadBalancer/ingress/0/ip").to_owned();
    let services: Vec<&Arc<Value>> = objects.all(objects::SERVICES).filter(wants).collect();
    let waiting = services.iter().filter(|service| ip(service).is_empty());
    let waiting: Vec<_> = waiting.filter(|service| !objects::is_deleting(service)).collect();
    if waiting.is_empty() || !runs(objects, "cloud-controller-manager", "") {
        return Vec::new();
    }
    // Without a machine behind it, a load balancer is not made.
    let usable = |node: &&Arc<Value>| {
        !text(node, "/spec/providerID").is_empty()
            && node.pointer("/metadata/labels").is_none_or(|labels| labels.get(EXCLUDED).is_none())
            && is_true(node, "Ready")
    };
    if !objects.all(objects::NODES).any(|node| usable(&node)) {
        return Vec::new();
    }
    let mut taken: BTreeSet<String> = services.iter().map(|service| ip(service)).collect();
    let mut actions = Vec::new();
    for service in waiting {
        if !clock.over(Wait::Provisioned, objects::uid(service)) {
            continue;
        }
        let mut addresses = (FIRST..).map(|address| Ipv4Addr::from(address).to_string());
        let Some(free) = addresses.find(|address| !taken.contains(address)) else { continue };
        taken.insert(free.clone());
        let mut value = service.as_ref().clone();
        value["status"]["loadBalancer"] = json!({"ingress": [{"ip": free, "ipMode": "VIP"}]});
        actions.push(Action::Put { collection: objects::SERVICES, value });
    }
    actions
}
