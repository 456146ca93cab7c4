//! Changes to nodes: pure decisions, as merge patches.

use super::site::Site;
use serde_json::{Value, json};

/// Keeps load balancers away from a node. Kubernetes puts it on control planes.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The providerID that a node still lacks. A cloud's controllers find the machine by it.
pub(crate) fn provider_id(site: &Site<'_>, node: &Value) -> Option<Value> {
    let machine =
        site.machines.iter().find(|machine| is_node_of(node, &machine.name, machine.address.as_deref()))?;
    let wanted = machine.provider_id.as_deref().filter(|id| !id.is_empty())?;
    // Kubernetes never lets a providerID be changed, so one that is there is left alone.
    let has = node.pointer("/spec/providerID").and_then(Value::as_str).unwrap_or_default();
    has.is_empty().then(|| json!({ "spec": { "providerID": wanted } }))
}

/// What a node of a cloud still lacks: its providerID, and on a single node the way for the Services' traffic.
pub(crate) fn of_cloud(site: &Site<'_>, node: &Value) -> Option<Value> {
    match (provider_id(site, node), take_traffic(site, node)) {
        (Some(id), Some(traffic)) => Some(json!({ "spec": id["spec"], "metadata": traffic["metadata"] })),
        (id, traffic) => id.or(traffic),
    }
}

/// On a single node, the control plane is also what takes the Services' traffic.
pub(crate) fn take_traffic(site: &Site<'_>, node: &Value) -> Option<Value> {
    let excluded = node.pointer("/metadata/labels").and_then(|labels| labels.get(EXCLUDED)).is_some();
    (site.single_node() && excluded).then(|| json!({ "metadata": { "labels": { EXCLUDED: null } } }))
}

/// Machines whose node has not joined, where the addon needs all of them.
pub(crate) fn missing<'a>(site: &Site<'a>, nodes: &[Value]) -> Vec<&'a str> {
    let joined = |name: &str, address: Option<&str>| nodes.iter().any(|node| is_node_of(node, name, address));
    let all = site.machines.iter();
    all.filter(|machine| !joined(&machine.name, machine.address.as_deref()))
        .map(|machine| machine.name.as_str())
        .collect()
}

/// By address, since a cloud may name its nodes as it likes; by name when no address is known.
fn is_node_of(node: &Value, name: &str, address: Option<&str>) -> bool {
    let named = node.pointer("/metadata/name").and_then(Value::as_str) == Some(name);
    let Some(address) = address else { return named };
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
    named
        || addresses.into_iter().flatten().any(|entry| {
            entry.get("type").and_then(Value::as_str) == Some("InternalIP")
                && entry.get("address").and_then(Value::as_str) == Some(address)
        })
}
